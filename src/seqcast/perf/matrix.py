"""Many measurements by one command: each combination of some options, written to a file at once."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path as File
from typing import Any

from seqcast.config import TRANSPORTS
from seqcast.files import read_file
from seqcast.perf.paths import PathError
from seqcast.types import ORDERS

AXES = {"sizes": "size", "orders": "order", "members": "members", "transports": "transport"}
"""Axis of ``--matrix`` -> the option that varies."""
NOT_KEPT = ("matrix", "out", "json")
"""Options that change no figure; each row of the file keeps all others."""
BYTES_MAX = 64 << 20
"""The most bytes of the file."""
Combination = tuple[tuple[str, Any], ...]


def combinations(text: str) -> Iterator[Combination]:
    """The combinations of ``sizes=64,1024:orders=fifo,total``, the last axis changing fastest.

    Raises:
        ValueError: the text is not a cell of a matrix.
    """
    axes: dict[str, list[Any]] = {}
    for part in text.split(":"):
        axis, _, values = part.partition("=")
        if axis not in AXES or axis in axes or not values:
            raise ValueError(f"{part!r} is not one of {', '.join(f'{each}=...' for each in AXES)}, each at most once")
        axes[axis] = [_value(axis, value) for value in values.split(",")]
    for chosen in itertools.product(*axes.values()):
        yield tuple(zip((AXES[axis] for axis in axes), chosen, strict=True))


def _value(axis: str, text: str) -> Any:
    if axis in ("sizes", "members"):
        if not text.isdecimal():
            raise ValueError(f"{axis} are numbers, not {text!r}")
        return int(text)
    known = ORDERS if axis == "orders" else TRANSPORTS
    if text not in known:
        raise ValueError(f"{axis} are of {', '.join(known)}, not {text!r}")
    return text


def run(arguments: argparse.Namespace, measure: Callable[[argparse.Namespace], list[dict[str, Any]]]) -> list[Any]:
    """Measures each combination that the file does not have yet, and returns all.

    Raises:
        PathError: the file cannot be read or written, or has a line of something else or figures of other options.
    """
    file = File(arguments.out)
    try:
        lines = read_file(file, BYTES_MAX, links=True).decode().splitlines() if file.exists() else []
        done = {_key(row["options"]): row for row in map(json.loads, lines)}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PathError(f"{file} is not a file of --matrix: {error}") from None
    options = {name: value for name, value in vars(arguments).items() if name not in NOT_KEPT}
    for row in done.values():
        if other := _differing(row["options"], options):
            raise PathError(f"{file} has figures of other options: {other}. Give those, or another --out")
    wanted = list(combinations(arguments.matrix))
    rows = []
    for number, combination in enumerate(wanted, 1):
        words = ", ".join(f"{name} {value}" for name, value in combination)
        given = {**options, **dict(combination)}
        if _key(given) not in done:
            print(f"{number} of {len(wanted)}: {words}", file=sys.stderr, flush=True)
            results = measure(argparse.Namespace(**{**vars(arguments), **given}))
            row = {"combination": dict(combination), "options": given, "results": results}
            try:
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
            except OSError as error:
                raise PathError(f"{file} cannot be written: {error}") from None
            done[_key(given)] = row
        rows.append({**done[_key(given)], "combination": dict(combination)})  # measured perhaps by another matrix
    return rows


def _key(options: dict[str, Any]) -> tuple[Any, ...]:
    """Tells the rows of a file apart."""
    return tuple(options[name] for name in AXES.values())


def _differing(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The options, apart from those that a matrix may vary, that were others in the file, in words; "": none."""
    names = [name for name in sorted(old.keys() | new.keys()) if name not in AXES.values()]
    return ", ".join(
        f"--{name.replace('_', '-')} {_shown(old.get(name))} (now {_shown(new.get(name))})"
        for name in names
        if old.get(name) != new.get(name)
    )


def _shown(value: Any) -> str:
    return "none" if value in (None, "") else str(value)
