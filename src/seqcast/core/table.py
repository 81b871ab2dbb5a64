"""State machines as tables: every (state, input) is in the table, with what is done and which state follows.

A row names the actions, methods of the machine, in the order in which they run. ``IGNORED`` rows are met in a healthy
group (late or repeated frames) and do nothing; ``ILLEGAL`` rows cannot be met: meeting one is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, NamedTuple


class Row(NamedTuple):
    """What one machine does on one input in one state."""

    state: Enum
    actions: tuple[str, ...]
    why: str


Table = dict[tuple[Enum, Enum], Row]
IGNORED = "ignored"
ILLEGAL = "illegal"


def table(states: type[Enum], inputs: type[Enum], *rows: tuple[object, Enum, object, str, str]) -> Table:
    """Builds a table and proves it total.

    Args:
        rows: (state, or several, or None for all that no other row names; input; next state, or None to stay; actions
            separated by blanks, or IGNORED or ILLEGAL; why).

    Raises:
        AssertionError: a pair stands in two rows, or in none.
    """
    result: Table = {}
    for wildcard in (False, True):
        for where, symbol, to, actions, why in rows:
            if (where is None) is not wildcard:
                continue
            for state in states if where is None else where if isinstance(where, tuple) else (where,):
                if where is None and (state, symbol) in result:
                    continue
                assert isinstance(state, states) and isinstance(symbol, inputs), (state, symbol)
                assert (state, symbol) not in result, f"two rows for {state}, {symbol}"
                after = to if isinstance(to, states) else state
                result[state, symbol] = Row(after, tuple(actions.split()), why)
    missing = [(state, symbol) for state in states for symbol in inputs if (state, symbol) not in result]
    assert not missing, f"no row for {missing}"
    return result


class Machine:
    """A machine runs its table; the simulator reads from ``edges`` which rows were taken."""

    NAME: ClassVar[str]
    TABLE: ClassVar[Table]
    state: Enum

    def __init__(self, state: Enum, edges: set[tuple[str, str, str]]) -> None:
        self.state = state
        self.edges = edges

    def fire(self, symbol: Enum, *args: object) -> None:
        """Takes the row of (state, ``symbol``): the next state first, then its actions, each called with ``args``."""
        row = self.TABLE[self.state, symbol]
        assert row.actions != (ILLEGAL,), f"{self.NAME}: {symbol.name} in {self.state.name}: {row.why}"
        self.edges.add((self.NAME, self.state.name, symbol.name))
        self.state = row.state
        if row.actions != (IGNORED,):
            for action in row.actions:
                getattr(self, action)(*args)


def edges_of(machines: Iterable[type[Machine]]) -> set[tuple[str, str, str]]:
    """All edges that can be taken: those that are not ILLEGAL."""
    return {
        (machine.NAME, state.name, symbol.name)
        for machine in machines
        for (state, symbol), row in machine.TABLE.items()
        if row.actions != (ILLEGAL,)
    }
