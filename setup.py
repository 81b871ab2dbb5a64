"""Compiled parts. Everything else of the build stands in pyproject.toml.

SEQCAST_EXTENSIONS=engine,driver   builds only these (for development)
SEQCAST_SANITIZE=1                 ASan and UBSan
SEQCAST_WERROR=1                   warnings of the C kernels are errors
SEQCAST_LTO=0                      each file is optimised by itself, which builds faster
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler

HEADERS = sorted(str(path) for room in ("native", "src/seqcast/include") for path in Path(room).glob("*/*.h"))
# Rooms of native/: an extension is built from every kernel in its rooms.
ENGINE = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["seqcast"]["engine"]
EXTENSIONS = {
    "engine": ENGINE,
    "driver": [*ENGINE, "io"],  # it calls sc_engine_* itself
    "bare": ["bare", "hash"],
    "columns": ["columns"],
}


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
        if os.environ.get("SEQCAST_WERROR"):
            compile_args.append("-Werror")
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
