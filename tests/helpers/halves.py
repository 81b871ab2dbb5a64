"""Which parameters of a test run in the quick half, `make test`, and which only in the long one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(few: Collection[tuple[Any, ...]], *axes: Iterable[Any]) -> list[Any]:
    """All combinations of the values of these axes; those that are not among the few are long."""
    every = list(itertools.product(*axes))
    assert set(map(repr, few)) <= set(map(repr, every))
    return [pytest.param(*each, marks=[] if each in few else [pytest.mark.long]) for each in every]


def first_quick(cases: Iterable[Any]) -> list[Any]:
    """All of these cases, as tuples of values or as single ones; those behind the first one are long."""
    values = [each if isinstance(each, tuple) else (each,) for each in cases]
    return [pytest.param(*each, marks=[pytest.mark.long] if i else []) for i, each in enumerate(values)]
