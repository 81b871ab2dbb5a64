"""Type checkers accept correct code (types/right.py) and see each deliberate mistake (types/mistakes.py)."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from seqcast.config import Config
from seqcast.config.keywords import Order, Settings
from seqcast.types import ORDERS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RIGHT, MISTAKES = HERE / "types" / "right.py", HERE / "types" / "mistakes.py"
SCRIPTS = Path(sys.executable).parent


def by_mypy() -> set[tuple[str, int]]:
    """(file, line) of each error that mypy sees."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(RIGHT), str(MISTAKES)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode in (0, 1), run.stderr + run.stdout
    return {(name, int(line)) for name, line in re.findall(r"(\w+\.py):(\d+): error", run.stdout)}


def by_pyright() -> set[tuple[str, int]]:
    """The same by pyright; basedpyright is the one whose wheel brings its own Node."""
    for name in ("basedpyright", "pyright"):
        if tool := shutil.which(name, path=str(SCRIPTS)) or shutil.which(name):
            break
    else:
        pytest.skip("pyright is not installed: pip install basedpyright")
    project = str(HERE / "types" / "pyrightconfig.json")
    command = [tool, "--outputjson", "--pythonpath", sys.executable, "--project", project]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr + run.stdout
    found = json.loads(run.stdout)["generalDiagnostics"]
    errors = (each for each in found if each["severity"] == "error")
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors}


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_each_deliberate_mistake_is_seen_and_nothing_else(check):
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    marked = {("mistakes.py", number) for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    assert len(marked) > 20
    assert check() == marked


def test_the_keywords_for_type_checkers_are_the_settings():
    assert list(Settings.__annotations__) == [field.name for field in fields(Config)]
    assert Order.__args__ == ORDERS
