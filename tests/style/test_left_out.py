"""The end of a run says which tests were left out, for want of which part, and how to get that; a run of parts leaves
out none."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
@pytest.mark.netns
@pytest.mark.parametrize("n", range(3))
def test_in_a_namespace(n): pass
def test_elsewhere(): pytest.skip("no such machine here")
def test_that_runs(): pass
"""
MODULE = """
import pytest
pytest.importorskip("pyspark")
def test_never_seen(): pass
"""


def run(folder, *options, **environment):
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_x.py").write_text(TESTS)
    (folder / "test_y.py").write_text(MODULE)
    code = "import sys; sys.modules['pyspark'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(folder), "--rootdir", str(folder), "-p", "no:cacheprovider", *options]
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_missing_parts_are_named_with_how_to_get_them_and_how_many_tests_wait_for_them(tmp_path):
    out = run(tmp_path, PATH=str(tmp_path))  # neither ip nor nft
    assert "left out: 5" in out
    line = next(line for line in out.splitlines() if line.startswith("3 tests: needs ip, nft"))
    assert "apt-get install iproute2 nftables" in line
    assert "1 test: no such machine here\n" in out
    line = next(line for line in out.splitlines() if line.startswith("1 whole module: could not import 'pyspark'"))
    assert "pip install 'seqcast[spark]'" in line


def test_an_installed_tool_is_not_named(tmp_path):
    for tool in ("ip", "nft"):
        (tmp_path / tool).write_text("")
        (tmp_path / tool).chmod(0o755)
    assert "needs ip" not in run(tmp_path, PATH=str(tmp_path))


def test_two_parts_are_all(tmp_path):
    whole, one, other = (
        re.findall(r"test_x.py::(\S+)", run(tmp_path, "--part", part, "--collect-only", "-q"))
        for part in ("1/1", "1/2", "2/2")
    )
    assert (len(one), len(other)) == (3, 2) and sorted(one + other) == sorted(whole)
