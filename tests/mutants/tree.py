"""A copy of the tree in which one break after the other is made, and mended."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from mutants.breaks import Break

ROOT = Path(__file__).resolve().parents[2]
BUILD = ("setup.py", "pyproject.toml", "README.md", "Makefile", "zensical.toml")
COPIED = ("src", "native", "tests", "docs", "bench", *BUILD)
WALL_S = 1800
"""A command that takes this long without using up its processor time waits for the processor, or for nothing."""


class NoVerdict(Exception):
    """The outcome says nothing of the break."""


def python(folder: Path, environment: dict[str, str], *command: str, cpu_s: float) -> tuple[int, str]:
    """(exit status, output) of Python with these arguments; a negative status: of a killing signal. Python is
    killed after this much processor time, however busy the machine is.

    Raises:
        NoVerdict: Python did not end.
    """
    limited = ("sh", "-c", 'ulimit -S -t "$0" && exec "$@"', str(int(cpu_s)))  # several threads start commands
    try:
        done = subprocess.run(
            [*limited, sys.executable, *command], cwd=folder, env=environment, timeout=WALL_S, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NoVerdict(f"{' '.join(command)} took longer than {WALL_S} s") from error
    return done.returncode, done.stdout


class Copy:
    """The copy.

    Args:
        folder: where the copy is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
            else:
                shutil.copy(source, folder / name)
        path = f"{folder / 'src'}:{folder / 'tests'}:{folder / 'tests' / 'helpers'}"
        self._environment = dict(os.environ, PYTHONPATH=path)
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of interpreters start
        # Groups on real sockets run the engine that is linked into the driver.
        self._build_environment = dict(self._environment, SEQCAST_EXTENSIONS="engine,driver,columns", SEQCAST_LTO="0")
        self._commands: list[list[str]] = []  # of the compiler and linker, as the first build ran them
        self._whole: dict[str, str] = {}  # by file that is broken: its text before
        self._changed: set[str] = set()  # files of native/, since the last build

    def run(self, *command: str, cpu_s: float) -> tuple[int, str]:
        """See ``python``: in the copy."""
        return python(self.folder, self._environment, *command, cpu_s=cpu_s)

    def edit(self, each: Break) -> None:
        """Makes a break."""
        for file, old, new in each.edits:
            path = self.folder / file
            text = path.read_text(encoding="utf-8")
            self._whole.setdefault(file, text)
            self._write(file, text.replace(old, new))

    def mend(self) -> None:
        """Undoes the break; its objects are built anew with the next one."""
        for file, text in self._whole.items():
            self._write(file, text)
        self._whole.clear()

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        # Bytecode counts as that of its source if second and size are the same.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        if file.startswith("native/"):
            self._changed.add(file)

    def build(self) -> None:
        """Compiles the files that changed, and links.

        Raises:
            NoVerdict: the compiler refuses the break.
        """
        if not self._commands:
            self._commands = self._build_all()
        every = any(file.endswith(".h") for file in self._changed)
        for command in self._commands:
            source = command[command.index("-c") + 1] if "-c" in command else ""
            if source and not every and source not in self._changed:
                continue
            self._must(command)
            if not source:
                target = Path(command[command.index("-o") + 1])
                shutil.copy(self.folder / target, self.folder / "src" / "seqcast" / "_native" / target.name)
        self._changed.clear()

    def _must(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self._build_environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise NoVerdict(f"the tree does not compile: {done.stdout.strip()[-300:]}")
        return done.stdout

    def _build_all(self) -> list[list[str]]:
        """Builds everything once; returns the commands used."""
        lines = self._must([sys.executable, "setup.py", "build_ext", "--force", "--inplace"]).splitlines()
        return [line.split() for line in lines if " -c native/" in line or " -shared " in line]
