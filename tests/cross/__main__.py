"""Compiles every kernel and Cython's output for each system for which wheels are built, and runs the C tests on those
that this machine can run or emulate.

PYTHONPATH=tests python -m cross [--compile-only] [SYSTEM ...]

Each kernel is compiled by the compiler that the package ziglang brings, with that system's own headers; a warning is an
error. So is one of what Cython makes of the extensions; Python's headers are those of this Python, with
tests/cross/pyconfig.h in place of its own. Two programs are linked from kernels and run: the fuzz world of tests/fuzz
on its inputs and on some drawn from a fixed seed, and a hop of two members over sockets (tests/cross/hop.c).

Not covered: Microsoft's compiler and headers (Windows is compiled as MinGW has it), Apple's linker, and Python itself:
no extension is loaded. The workflow wheels.yml does these.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
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
STRICT += ["-fno-sanitize=undefined"]  # zig's choice for what is not optimised; it is built anew for each system
WORLD_S = 5
WORLD_SEED = 1
Job = tuple[System, str, list[str]]
"""What is compiled for whom, and how."""


def compile_one(job: Job) -> str:
    """Runs it; returns what went wrong, or nothing."""
    system, what, arguments = job
    command = [sys.executable, "-m", "ziglang", "cc", "-target", system.target, *STRICT, *system.options, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return f"{system.name}: {what} does not compile\n{done.stderr}" if done.returncode else ""


def kernels(system: System) -> Iterator[Job]:
    for path in sorted(ROOT.glob("native/*/*.c")):
        out = BUILD / system.name / f"{path.parent.name}-{path.stem}.o"
        yield system, str(path.relative_to(ROOT)), ["-O1", "-fvisibility=hidden", "-c", str(path), "-o", str(out)]


def extensions(system: System, includes: Path) -> Iterator[Job]:
    """Cython compares constants with variables of another sign, and keeps pointers without their const."""
    for path in sorted(ROOT.glob("src/seqcast/_native/*.pyx")):
        out = BUILD / system.name / f"extension-{path.stem}.o"
        arguments = [
            "-O0",
            "-Wno-sign-compare",
            "-Wno-incompatible-pointer-types-discards-qualifiers",
            "-isystem",
            str(includes),
        ]
        source = path.with_suffix(".c")
        yield system, str(source.relative_to(ROOT)), [*arguments, "-c", str(source), "-o", str(out)]


def programs(system: System) -> Iterator[Job]:
    """Linked from the objects of the kernels."""
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
    """What Cython makes of the extensions, as setup.py has it made: nothing to do after a build."""
    command = [sys.executable, "-m", "cython", "-3", "-X", "embedsignature=True"]
    for path in sorted(ROOT.glob("src/seqcast/_native/*.pyx")):
        made = path.with_suffix(".c")
        sources = [path, *path.parent.glob("*.px[di]")]
        if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            subprocess.run([*command, str(path)], cwd=ROOT / "src", check=True)


def run(system: System, runner: list[str]) -> str:
    """Runs its programs; returns what went wrong, or nothing."""
    inputs = [str(path) for path in sorted((ROOT / "tests" / "fuzz" / "corpus").iterdir())]
    environment = {**os.environ, "WINEDEBUG": "-all", "WINEPREFIX": str(BUILD / "wine")}
    world, hop = (str(program(system, name)) for name in ("world", "hop"))
    for command in ([world, *inputs], [world, str(WORLD_S), str(WORLD_SEED)], [hop]):
        begin, name = time.monotonic(), f"{system.name}: {Path(command[0]).stem}"
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
    """Links and runs the programs of each system that can be run here; returns what went wrong."""
    wrong = []
    for system in systems:
        runner = system.runner()
        if not system.emulators:
            print(f"{system.name}: not run: no emulator is known")
        elif runner is None:
            print(f"{system.name}: not run: there is no {system.emulators[0]} here (apt-get install {system.package})")
        else:
            wrong += compile_all(programs(system)) or filter(None, [run(system, runner)])
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cross", description=__doc__.split("\n\n")[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=", ".join(system.name for system in SYSTEMS))
    parser.add_argument("--compile-only", action="store_true", help="no programs are linked and run")
    options = parser.parse_args()
    if unknown := set(options.systems) - {system.name for system in SYSTEMS}:
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    chosen = [system for system in SYSTEMS if not options.systems or system.name in options.systems]
    cythonize()
    for system in chosen:
        shutil.rmtree(BUILD / system.name, ignore_errors=True)  # objects of kernels that are gone would be linked
        (BUILD / system.name).mkdir(parents=True)
    includes = python_headers()
    jobs = [job for system in chosen for job in (*extensions(system, includes), *kernels(system))]
    wrong = compile_all(jobs)
    if not wrong:
        print(f"{len(jobs)} files compiled for {', '.join(system.name for system in chosen)}", flush=True)
        wrong = [] if options.compile_only else run_all(chosen)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
