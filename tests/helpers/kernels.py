"""C of the project, compiled for one test and called by ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from project import ROOT

compiler = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(compiler is None, reason="no C compiler here")
needs_compiler_and_linux = pytest.mark.skipif(
    compiler is None or not sys.platform.startswith("linux"), reason="needs a C compiler, and Linux"
)


def compiled(folder: Path, harness: str, others: Iterable[Path] = ()) -> ctypes.CDLL:
    """A library of this text, which may include kernels ("io/pace.c"), and of other files.

    Args:
        folder: for the text and the library.
    """
    assert compiler is not None, "the test needs one of the marks above"
    source, library = folder / "harness.c", folder / "harness.so"
    source.write_text(harness)
    flags = ["-std=c11", "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT / 'native'}"]
    subprocess.run([compiler, *flags, source, *others, "-o", library], check=True)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
