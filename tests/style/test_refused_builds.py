"""A build that cannot succeed ends with one line that names the missing part and how to get it, and not with a
traceback or a compiler's errors behind the list of copied files."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

AS_PIP_DOES = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('made')"


def refusal(folder: Path, prelude: str = "", compiler: str = "cc") -> str:
    """The one line with which a build ends that begins so."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-c", f"import sys, setuptools\n{prelude}\n{AS_PIP_DOES}"]
    environment = {"CC": compiler, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("seqcast was not built: "), done.stderr
    return done.stderr


def test_a_build_without_a_compiler_names_the_packages_that_bring_one(tmp_path):
    said = refusal(tmp_path, compiler=str(tmp_path / "no-compiler"))
    assert "no-compiler cannot be run" in said
    if sys.platform.startswith("linux"):
        assert all(command in said for command in ("apt install", "dnf install", "apk add"))


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ("int", "a C compiler that works"),
        ("<stdio.h>", "the headers of the C library"),
        ("<linux/filter.h>", "the headers of the kernel"),
        ("<Python.h>", "the headers of Python"),
    ],
)
def test_a_build_without_headers_says_which(tmp_path, lacking, named):
    if "linux" in lacking and not sys.platform.startswith("linux"):
        pytest.skip("only Linux's kernel has headers that a build needs")
    compiler = tmp_path / "some-cc"
    compiler.write_text(
        f'#!/bin/sh\nfor last; do case $last in *.c) ! grep -q "{lacking}" "$last" || exit 1 ;; esac; done\n'
    )
    compiler.chmod(0o755)
    said = refusal(tmp_path, compiler=str(compiler))
    assert f"lacks {named} ({compiler}); " in said


def test_a_setuptools_that_is_too_old_is_named(tmp_path):
    said = refusal(tmp_path, "setuptools.__version__ = '65.5.1'")
    assert "setuptools 65.5.1 is too old; pip install 'setuptools>=77'" in said


def test_the_setuptools_that_is_asked_for_is_the_one_that_pyproject_names():
    required = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition('requires = ["setuptools>=')[2]
    assert f"\nSETUPTOOLS = {required.partition(chr(34))[0]} " in (ROOT / "setup.py").read_text(encoding="utf-8")


def test_a_missing_cython_is_named(tmp_path):
    assert "there is no Cython; pip install" in refusal(tmp_path, "sys.modules['Cython'] = None")


def test_a_python_that_is_too_old_is_told_so(tmp_path):
    assert "it needs Python 3.11 or later" in refusal(tmp_path, "sys.modules['tomllib'] = None")


def test_free_threaded_python_is_refused_by_name(tmp_path):
    said = refusal(tmp_path, "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1")
    assert "free-threaded Python is not supported yet" in said
