"""The parts of the tree that a simulated run executes: the kernels of the engine, and the imported modules."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from mutants.breaks import Break
from mutants.tree import ROOT

LOADED = """
import sys
import seqcast.sim.runs
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("seqcast.")), sep="\\n")
"""


def simulated() -> tuple[str, ...]:
    """Files and folders of these parts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, env={"PYTHONPATH": "src"}, text=True, capture_output=True, check=True
    )
    modules = (name.rpartition("/src/")[2] for name in done.stdout.split() if name.endswith(".py"))
    rooms = (f"native/{room}/" for room in project["tool"]["seqcast"]["engine"])
    return (*rooms, *(f"src/{module}" for module in modules))


def is_simulated(each: Break, parts: tuple[str, ...]) -> bool:
    """Does a simulated run execute a file that the break changes?"""
    return any(file.startswith(parts) for file, _, _ in each.edits)
