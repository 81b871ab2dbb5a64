"""Compiles every kernel and Cython's output for each system for which wheels are built, and runs the C tests on those
that this machine can run or emulate.

PYTHONPATH=tests python -m cross [--compile-only] [SYSTEM ...]

Each kernel is compiled by the compiler that the package ziglang brings, with that system's own headers; a warning is an
error. So is one of Cython's C files of the extensions; Python's headers are those of this Python, with
tests/cross/pyconfig.h in place of its own. The extensions are linked with a library that has Python's names and no
Python; a name that is neither Python's nor the system's is an error. Three programs are linked and run: one that loads
the extensions (tests/cross/load.c), the fuzz world of tests/fuzz on its inputs and on some drawn from a fixed seed, and
a hop of two members over sockets (tests/cross/hop.c).

Not covered: Microsoft's compiler and headers (Windows is compiled as MinGW has it), Apple's linker, and Python itself:
no module is imported. The workflow wheels.yml does these.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cross.systems import SYSTEMS, System

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tests" / "cross" / "build"
INCLUDES = [f"-I{ROOT / folder}" for folder in ("native", "src/seqcast/include")]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *INCLUDES]
STRICT += ["-fno-sanitize=undefined"]  # zig's choice for code that is not optimised; built anew for each system
WORLD_S = 5
WORLD_SEED = 1
Job = tuple[System, str, list[str]]
"""The files compiled for each system, and how."""


def extension_sources() -> list[Path]:
    return sorted(ROOT.glob("src/seqcast/_native/*.pyx"))


def compile_one(job: Job) -> str:
    """Runs the program; returns the failure, or nothing."""
    system, what, arguments = job
    command = [sys.executable, "-m", "ziglang", "cc", "-target", system.target, *STRICT, *system.options, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return f"{system.name}: {what} cannot be built\n{done.stderr}" if done.returncode else ""


def kernels(system: System) -> Iterator[Job]:
    for path in sorted(ROOT.glob("native/*/*.c")):
        out = BUILD / system.name / f"{path.parent.name}-{path.stem}.o"
        options = ["-O1", "-fPIC", "-fvisibility=hidden"]
        yield system, str(path.relative_to(ROOT)), [*options, "-c", str(path), "-o", str(out)]


def extensions(system: System, includes: Path) -> Iterator[Job]:
    """Cython compares constants with variables of another sign, and keeps pointers without their const."""
    for path in extension_sources():
        out = BUILD / system.name / f"extension-{path.stem}.o"
        arguments = [
            "-O0",
            "-fPIC",
            "-Wno-sign-compare",
            "-Wno-incompatible-pointer-types-discards-qualifiers",
            "-isystem",
            str(includes),
        ]
        source = path.with_suffix(".c")
        yield system, str(source.relative_to(ROOT)), [*arguments, "-c", str(source), "-o", str(out)]


def python_names() -> str:
    """In C: the symbols that this Python exports, of all that the extensions and Python's headers name."""
    texts = [*BUILD.glob("include/**/*.h"), *ROOT.glob("src/seqcast/_native/*.c")]
    found = {name for path in texts for name in re.findall(r"\b_?Py\w+", path.read_text(errors="replace"))}
    exported = sorted(name for name in found if hasattr(ctypes.pythonapi, name))
    return "".join(f"EXPORT char {name}[8];\n" for name in exported)


def stand_ins(systems: Iterable[System]) -> Iterator[Job]:
    """Libraries in Python's place: the linker and the loader look for names only."""
    source = BUILD / "python.c"
    export = "#ifdef _WIN32\n#define EXPORT __declspec(dllexport)\n#else\n#define EXPORT\n#endif\n"
    source.write_text(export + python_names())
    for system in systems:
        yield system, "a stand-in for Python", ["-shared", str(source), "-o", str(BUILD / system.name / system.python)]


def libraries(system: System) -> Iterator[Job]:
    """The extensions, each linked with its kernels."""
    at = BUILD / system.name
    kernels = sorted(str(path) for path in at.glob("*.o") if not path.name.startswith("extension-"))
    archive = at / "kernels.a"
    subprocess.run([sys.executable, "-m", "ziglang", "ar", "rcs", str(archive), *kernels], check=True)
    python = at / (system.python.replace(".dll", ".lib"))
    for name in (path.stem for path in extension_sources()):
        needed = [
            str(at / f"extension-{name}.o"),
            str(archive),
            str(python),
            *(f"-l{library}" for library in system.libraries),
        ]
        yield system, f"the extension {name}", ["-shared", "-Wl,-z,defs", *needed, "-o", str(extension(system, name))]


def extension(system: System, name: str) -> Path:
    return BUILD / system.name / (name + (".pyd" if system.libraries else ".so"))


def loader(system: System) -> str | None:
    """The emulator for programs that load libraries; "": they run as others do, None: they cannot run here."""
    places = (Path("/lib", system.loader), BUILD / "musl" / "lib" / system.loader)
    return next((str(path) for path in places if path.is_file()), None) if system.loader else ""


def programs(system: System) -> Iterator[Job]:
    """One that loads the extensions, and those that are linked from the objects of the kernels."""
    if loader(system) is not None:
        dynamic = ["-O1", str(ROOT / "tests" / "cross" / "load.c"), "-dynamic", "-o", str(program(system, "load"))]
        yield system, "load", dynamic
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["seqcast"]["engine"]
    fuzz, here = ROOT / "tests" / "fuzz", ROOT / "tests" / "cross"
    worlds = [fuzz / name for name in ("standalone.c", "fuzz_engine.c", "datagrams.c")]
    for name, sources, linked in (("world", worlds, rooms), ("hop", [here / "hop.c"], [*rooms, "io"])):
        objects = [path for room in linked for path in sorted((BUILD / system.name).glob(f"{room}-*.o"))]
        libraries = [f"-l{library}" for library in system.libraries]
        options = ["-O1", "-static"]
        yield (
            system,
            name,
            [*options, *map(str, sources), *map(str, objects), *libraries, "-o", str(program(system, name))],
        )


def program(system: System, name: str) -> Path:
    return BUILD / system.name / (name + (".exe" if system.libraries else ""))


def python_headers() -> Path:
    """Those of this Python, but for the file that differs between systems."""
    includes = BUILD / "include"
    shutil.rmtree(includes, ignore_errors=True)
    shutil.copytree(sysconfig.get_paths()["include"], includes, ignore=shutil.ignore_patterns("pyconfig.h"))
    shutil.copy(ROOT / "tests" / "cross" / "pyconfig.h", includes)
    return includes


def cythonize() -> None:
    """Cython's C files of the extensions, as setup.py makes them: nothing to do after a build."""
    command = [sys.executable, "-m", "cython", "-3", "-X", "embedsignature=True"]
    for path in extension_sources():
        made = path.with_suffix(".c")
        sources = [path, *path.parent.glob("*.px[di]")]
        if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            subprocess.run([*command, str(path)], cwd=ROOT / "src", check=True)


def run(system: System, runner: list[str], wine: str) -> str:
    """Runs its programs; returns the failure, or nothing.

    Args:
        wine: a folder for wine's files, among them a link to /: a build that looks for sources must not find those
        files.
    """
    inputs = [str(path) for path in sorted((ROOT / "tests" / "fuzz" / "corpus").iterdir())]
    environment = {**os.environ, "WINEDEBUG": "-all", "WINEPREFIX": wine}
    world, hop, load = (str(program(system, name)) for name in ("world", "hop", "load"))
    commands = [[world, *inputs], [world, str(WORLD_S), str(WORLD_SEED)], [hop]]
    if (by := loader(system)) is not None:
        commands.insert(
            0, [*filter(None, [by]), load, *(str(extension(system, path.stem)) for path in extension_sources())]
        )
    else:
        print(f"{system.name}: the extensions are not loaded: there is no {system.loader} here (Debian's package musl)")
    for command in commands:
        begin, name = time.monotonic(), f"{system.name}: {'load' if load in command else Path(command[0]).stem}"
        try:
            done = subprocess.run(
                [*runner, *command],
                cwd=BUILD,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=300,
            )
        except subprocess.TimeoutExpired:
            return f"{name}: did not end in 300 s"
        said = (done.stdout.strip().splitlines() or ["nothing wrong"])[-1]
        if command == [hop] and done.returncode and done.stderr.strip() == system.no_hop:
            print(f"{name}: not run: this {Path(runner[0]).name} does not pass multicast memberships on as they are")
        elif done.returncode:
            return f"{name}: ended with status {done.returncode}\n{done.stdout}{done.stderr}"
        else:
            print(f"{name}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    return ""


def compile_all(jobs: Iterable[Job]) -> list[str]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [wrong for wrong in pool.map(compile_one, jobs) if wrong]


def run_all(systems: list[System]) -> list[str]:
    """Links and runs the programs of each system that can be run here; returns the failures."""
    wrong = []
    for system in systems:
        runner = system.runner()
        if not system.emulators:
            print(f"{system.name}: not run: no emulator is known")
        elif runner is None:
            print(f"{system.name}: not run: there is no {system.emulators[0]} here (apt-get install {system.package})")
        else:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as wine:
                wrong += compile_all(programs(system)) or filter(None, [run(system, runner, wine)])
    return wrong


def build(systems: list[System]) -> list[str]:
    """Compiles all files, and links the extensions; returns the failures."""
    for system in systems:
        shutil.rmtree(BUILD / system.name, ignore_errors=True)  # objects of kernels that are gone would be linked
        (BUILD / system.name).mkdir(parents=True)
    includes = python_headers()
    jobs = [job for system in systems for job in (*extensions(system, includes), *kernels(system))]
    wrong = compile_all(jobs) or compile_all(stand_ins(systems))
    wrong = wrong or compile_all(job for system in systems for job in libraries(system))
    if not wrong:
        names = ", ".join(system.name for system in systems)
        print(f"{len(jobs)} files compiled, and the extensions linked, for {names}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cross", description=__doc__.split("\n\n")[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=", ".join(system.name for system in SYSTEMS))
    parser.add_argument("--compile-only", action="store_true", help="no programs are run")
    options = parser.parse_args()
    if unknown := set(options.systems) - {system.name for system in SYSTEMS}:
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    chosen = [system for system in SYSTEMS if not options.systems or system.name in options.systems]
    cythonize()
    wrong = build(chosen) or ([] if options.compile_only else run_all(chosen))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
