"""The programs of bench/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from project import ROOT


def bench_of(name: str) -> Any:
    """The program ``bench/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"{name}_bench", ROOT / "bench" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    path = [*sys.path]
    spec.loader.exec_module(module)
    sys.path[:] = path  # a program that adds its folder would hide the helpers of tests with names of other programs
    return module
