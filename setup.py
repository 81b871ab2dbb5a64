"""Compiled parts. Everything else of the build stands in pyproject.toml.

SEQCAST_EXTENSIONS=engine,driver   builds only these (for development)
SEQCAST_SANITIZE=1                 ASan and UBSan
SEQCAST_LTO=0                      each file is optimised by itself, which builds faster
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import setuptools
from setuptools import Extension, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.errors import DistutilsError
from setuptools._distutils.sysconfig import customize_compiler

# A build that cannot succeed ends with one line: pip shows all that was printed before, which is hundreds otherwise.
NOT_BUILT = "seqcast was not built: "
try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(f"{NOT_BUILT}it needs Python 3.11 or later")
try:
    from Cython.Build import cythonize
except ModuleNotFoundError:
    sys.exit(f"{NOT_BUILT}there is no Cython; pip install 'Cython>=3.1', or leave out --no-build-isolation")
SETUPTOOLS = 77  # as pyproject.toml says, which builds without isolation do not read
if int(setuptools.__version__.partition(".")[0]) < SETUPTOOLS:
    sys.exit(
        f"{NOT_BUILT}setuptools {setuptools.__version__} is too old; pip install 'setuptools>={SETUPTOOLS}', "
        "or leave out --no-build-isolation"
    )

HEADERS = sorted(str(path) for room in ("native", "src/seqcast/include") for path in Path(room).glob("*/*.h"))
# Rooms of native/: an extension is built from every kernel in its rooms.
ENGINE = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["seqcast"]["engine"]
EXTENSIONS = {
    "engine": ENGINE,
    "driver": [*ENGINE, "io"],  # it calls sc_engine_* itself
    "bare": ["bare", "hash"],
    "columns": ["columns"],
}


BUILDS = {"bdist_wheel", "build", "build_ext", "develop", "dist_info", "editable_wheel", "install"}
"""Commands that compile, or that pip calls first when it will compile. An sdist needs no compiler."""
LINUX = (
    "on Debian or Ubuntu: apt install build-essential python3-dev; on Fedora: dnf install gcc python3-devel; "
    "on Alpine: apk add build-base linux-headers python3-dev"
)
PROBES = [
    ("", "a C compiler that works"),
    ("stdio.h", "the headers of the C library"),
    *([("linux/filter.h", "the headers of the kernel")] if sys.platform.startswith("linux") else []),
    ("Python.h", "the headers of Python"),
]


def missing() -> str | None:
    """Requirements of a build that this machine lacks. Without a look, compilers end in hundreds of lines."""
    compiler = new_compiler()
    if compiler.compiler_type == "msvc":
        try:
            compiler.initialize()
        except DistutilsError:
            return "a C compiler; install Visual Studio's Build Tools with 'Desktop development with C++'"
        return None
    customize_compiler(compiler)
    cure = "xcode-select --install" if sys.platform == "darwin" else LINUX
    includes = {f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")}
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "probe.c"), Path(folder, "probe.o")
        for header, what in PROBES:
            line = f"#include <{header}>" if header else ""
            source.write_text(f"{line}\nint sc_probe;\n", encoding="utf-8")
            command = [*compiler.compiler_so, *includes, "-c", str(source), "-o", str(made)]
            try:
                if subprocess.run(command, capture_output=True).returncode:
                    return f"{what} ({compiler.compiler_so[0]}); {cure}"
            except OSError:
                return f"a C compiler ({compiler.compiler_so[0]} cannot be run); {cure}"
    return None


if BUILDS & set(sys.argv):
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit(f"{NOT_BUILT}free-threaded Python is not supported yet; use one with the GIL, without t in its name")
    if lacks := missing():
        sys.exit(f"{NOT_BUILT}this machine lacks {lacks}")


@cache
def across_files() -> list[str]:
    """The option with which compiler and linker optimise across files, if these here can: a packet passes through
    functions of a dozen files. Both are asked as the build will call them."""
    compiler = new_compiler()
    customize_compiler(compiler)
    name = "sc_across_files"

    def works(option: str, folder: Path) -> bool:
        source, made, linked = folder / "p.c", folder / "p.o", folder / "p.so"
        source.write_text(f"int {name}(void) {{ return 0; }}\n", encoding="utf-8")
        for command in (
            [*compiler.compiler_so, "-O3", option, "-c", str(source), "-o", str(made)],
            [*compiler.linker_so, str(made), "-o", str(linked), option],
        ):
            done = subprocess.run(command, capture_output=True, timeout=60)
            if done.returncode or done.stderr:
                return False
        return name.encode() in linked.read_bytes()

    if os.environ.get("SEQCAST_LTO") == "0" or "-fno-lto" in [*compiler.compiler_so, *compiler.linker_so]:
        return []
    with tempfile.TemporaryDirectory() as folder:
        try:
            return next(([option] for option in ("-flto=auto", "-flto") if works(option, Path(folder))), [])
        except (OSError, subprocess.TimeoutExpired):
            return []


def extension(name: str, rooms: list[str]) -> Extension:
    compile_args: list[str] = []
    link_args = ["-pthread"] if sys.platform.startswith("linux") else []
    if sys.platform == "win32":
        compile_args += ["/O2", "/std:c11"]
    else:
        compile_args += ["-O3", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"]
        if os.environ.get("SEQCAST_SANITIZE"):
            compile_args += ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]
            link_args += ["-fsanitize=address,undefined"]
        else:
            compile_args.append("-g0")  # Python's own flags ask for debugging symbols, five times the size
            compile_args += across_files()
            link_args += across_files()
    sources = [str(path) for room in rooms for path in sorted(Path("native", room).glob("*.c"))]
    return Extension(
        f"seqcast._native.{name}",
        [f"src/seqcast/_native/{name}.pyx", *sources],
        include_dirs=["native", "src/seqcast/include"],
        depends=[*HEADERS, *(str(path) for path in Path("src/seqcast").glob("**/*.px[di]"))],
        define_macros=[("_GNU_SOURCE", "1")] if sys.platform.startswith("linux") else [],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=["ws2_32", "iphlpapi"] if sys.platform == "win32" else [],
    )


only = os.environ.get("SEQCAST_EXTENSIONS")
names = only.split(",") if only else list(EXTENSIONS)
setup(
    ext_modules=cythonize(
        [extension(name, EXTENSIONS[name]) for name in names],
        language_level=3,
        compiler_directives={"embedsignature": True},
    )
)
