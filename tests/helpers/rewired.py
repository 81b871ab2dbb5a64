"""Machines whose guards and actions are replaced: their tables name functions, which a patched method leaves alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from seqcast.core.table import Table, TableMachine


def rewired(machine: type[TableMachine], **functions: Callable[..., Any]) -> Table:
    """The machine's table with other functions in place of its guards or actions of these names."""
    new = {getattr(machine, name): function for name, function in functions.items()}
    rows = {
        pair: tuple(
            row._replace(
                guard=new.get(row.guard, row.guard), actions=tuple(new.get(action, action) for action in row.actions)
            )
            for row in rows
        )
        for pair, rows in machine.TABLE.rows.items()
    }
    assert rows != machine.TABLE.rows, f"no row has {list(functions)}"
    return Table(machine.TABLE.name, rows)


@contextlib.contextmanager
def replaced(machine: type[TableMachine], **functions: Callable[..., Any]) -> Iterator[None]:
    """Meanwhile the machine uses these functions, in its table and in its own calls."""
    table = rewired(machine, **functions)
    with contextlib.ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(mock.patch.object(machine, name, function))
        stack.enter_context(mock.patch.object(machine, "TABLE", table))
        yield
