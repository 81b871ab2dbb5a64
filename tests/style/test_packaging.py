"""The shipped files. (.ci/run tries whether the wheel builds from the sdist and works alone, for a minute.)"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("packaging")  # one sdist for all of them
TOPS = ["native", "src", "tests", "bench", "docs", "examples", ".ci", ".github"]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Names of the files in the sdist, its PKG-INFO, and a copy of the files from which this was made."""
    tree = tmp_path_factory.mktemp("tree")
    unwanted = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for top in TOPS:
        shutil.copytree(ROOT / top, tree / top, ignore=unwanted)  # times too, so that Cython has nothing to do again
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, tree)
    out = tmp_path_factory.mktemp("sdist")
    code = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", code, str(out)]
    no_compiler = {**os.environ, "CC": str(out / "no-compiler")}  # an sdist needs none
    result = subprocess.run(command, cwd=tree, env=no_compiler, capture_output=True, text=True, timeout=170)
    assert result.returncode == 0, result.stderr
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        info = next(name for name in archive.getnames() if re.fullmatch("[^/]+/PKG-INFO", name))
        return names, archive.extractfile(info).read().decode(), tree


def test_the_sdist_holds_every_source_that_a_build_needs(sdist):
    names, *_ = sdist
    patterns = ["native/*/*.[ch]", "src/**/*.h", "src/**/*.py", "src/**/*.py[xi]", "src/**/*.px[di]"]
    needed = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    needed |= {"setup.py", "pyproject.toml", "src/seqcast/py.typed", "README.md", "LICENSE", "CHANGELOG.md", "Makefile"}
    assert needed - names == set()


def test_a_wheel_holds_the_headers_for_programs_in_c(sdist, tmp_path):
    """And nothing else of the C and Cython code, which has no stable form."""
    tree = sdist[2]
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=170)
    assert result.returncode == 0, result.stderr
    kinds = {".h", ".c", ".pxd", ".pyx", ".pxi"}
    shipped = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.suffix in kinds}
    assert shipped == {"seqcast/include/seqcast/embed.h", "seqcast/embed.pxd"}


def test_the_sdist_holds_the_tests_and_their_inputs(sdist):
    names, *_ = sdist
    found = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*") if path.is_file()]
    wanted = {str(path) for path in found if not {"build", "__pycache__"} & set(path.parts)}
    assert wanted - names == set()


def test_the_sdist_holds_nothing_that_was_built(sdist):
    names, *_ = sdist
    built = re.compile(r"\.so$|\.o$|\.pyc$|__pycache__|^src/seqcast/_native/\w+\.c$|^\.venv|^build/|^journals/")
    assert [name for name in names if built.search(name)] == []


def test_numpy_is_the_only_dependency_at_run_time(sdist):
    info = sdist[1]
    required = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==).*$", info, re.M)
    assert required == ["numpy"]
    assert "License-Expression: Apache-2.0" in info


def test_each_command_that_an_extra_serves_names_an_extra_that_exists():
    from seqcast.cli import COMMANDS, EXTRAS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for _, _, extra in COMMANDS.values() if extra} | set(EXTRAS.values()) <= set(extras)


def test_top_level_holds_only_files_that_tools_and_people_expect():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tops = {name.partition("/")[0] for name in listed.stdout.splitlines()}
    expected = {"setup.py", "pyproject.toml", "src", "native", "tests", "bench", "wheels.yml", "README.md"}
    beside = {"Makefile", "docs", "examples", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "zensical.toml"}
    assert {top for top in tops if not top.startswith(".")} == expected | beside
