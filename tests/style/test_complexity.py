"""No function has a cyclomatic complexity above 15: ruff looks at Python, lizard at C (``make lint``)."""

import re
import shutil
import subprocess
import sys

import pytest
from project import ROOT

LIZARD = re.search(r"^\t\$\(BIN\)/lizard (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()


def too_complex(*arguments):
    """The lines that lizard prints."""
    pytest.importorskip("lizard")
    command = [sys.executable, "-m", "lizard", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120).stdout.splitlines()


def test_no_kernel_has_a_function_of_too_many_branches():
    assert too_complex(*LIZARD) == []


def test_no_compiled_module_has_a_function_of_too_many_branches(tmp_path):
    for path in (ROOT / "src" / "seqcast" / "_native").glob("*.px[yi]"):  # lizard reads Cython, by the name of Python
        shutil.copy(path, tmp_path / f"{path.stem}.py")
    assert too_complex("-C", "15", "-w", str(tmp_path)) == []


def test_a_function_of_too_many_branches_is_found(tmp_path):
    cases = "".join(f"case {n}: return {n + 1};" for n in range(16))
    (tmp_path / "long.c").write_text(f"int f(int n) {{ switch (n) {{ {cases} }} return 0; }}")
    (found,) = too_complex("-C", "15", "-w", str(tmp_path))
    assert "17 CCN" in found


def test_ruff_bounds_the_complexity_of_python():
    pytest.importorskip("ruff")
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert "max-complexity = 15" in text and '"C901"' in text
    command = [sys.executable, "-m", "ruff", "check", "--select", "C901", "src", "tests", "bench", "docs", "setup.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout
