"""State machines and decisions as tables.

A machine's table has a row for every pair of a state and an event. A row names the next state, the actions that run
there, and the reason. If a pair has several rows, they have *guards*, and the first guard that holds chooses the row;
the last row of a pair has none. So a table is total, and nothing else reads a machine's state.

``IGNORED`` rows do nothing: they occur in healthy groups, with late or repeated frames. ``ILLEGAL`` rows are bugs in
seqcast: the event raises. A decision is a table of one pair: guards in order, each with its actions.

Guards and actions are functions of the machine, called with the event's arguments. Guards change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import ClassVar, NamedTuple

Action = Callable[..., None]
Guard = Callable[..., bool]


class Verdict(Enum):
    """The meaning of a row without actions."""

    IGNORED = auto()
    ILLEGAL = auto()


IGNORED, ILLEGAL = Verdict.IGNORED, Verdict.ILLEGAL
Does = Action | tuple[Action, ...] | Verdict


class Edge(NamedTuple):
    """A row, for the simulator's counts; for a decision only its name and the guard."""

    machine: str
    state: str = ""
    event: str = ""
    guard: str = ""

    def __str__(self) -> str:
        what = f"{self.event}, {self.guard}" if self.guard and self.event else self.event or self.guard
        return f"{self.machine}: {what}" + (f" in {self.state}" if self.state else "")


class Row(NamedTuple):
    """Actions, with their condition.

    Args:
        guard: None: whenever no row before holds.
        state: the next one; None: the same (a decision has none).
        actions: run in this order, in the next state.
        why: the reason, for the reader.
        verdict: None if there are actions.
        edge: of this row.
    """

    guard: Guard | None
    state: Enum | None
    actions: tuple[Action, ...]
    why: str
    verdict: Verdict | None
    edge: Edge


class IllegalEvent(AssertionError):
    """An event that cannot occur in this state: a bug in seqcast."""


class Table:
    """The rows of a machine, in order, by (state, event)."""

    def __init__(self, name: str, rows: dict[tuple[Enum, Enum], tuple[Row, ...]]) -> None:
        self.name = name
        self.rows = rows


class DecisionTable:
    """Cases in order, of which the first whose guard holds is taken."""

    def __init__(self, name: str, rows: tuple[Row, ...]) -> None:
        self.name = name
        self.rows = rows

    def take(self, subject: object, edges: set[Edge], *args: object) -> None:
        """Runs the actions of the first case that holds, each called with ``subject`` and ``args``."""
        _run(_first(self.rows, subject, args), subject, edges, args)


def table(
    name: str,
    states: type[Enum],
    events: type[Enum],
    *rows: tuple[object, object, Enum | None, Does, str],
) -> Table:
    """Builds a machine's table and proves it total.

    Args:
        name: of the machine.
        rows: (state, or several, or None for every case that the rows with states leave open; event, or (event,
            guard); next state, or None to stay; actions, or IGNORED or ILLEGAL; why).

    Raises:
        AssertionError: a pair has no row without a guard, or one that is not the last.
    """
    found: dict[tuple[Enum, Enum], list[Row]] = {(state, event): [] for state in states for event in events}
    for rest in (False, True):
        settled = {pair for pair, taken in found.items() if taken and taken[-1].guard is None}
        for where, what, to, does, why in rows:
            if (where is None) is not rest:
                continue
            event, guard = what if isinstance(what, tuple) else (what, None)
            for state in states if where is None else where if isinstance(where, tuple) else (where,):
                if where is None and (state, event) in settled:
                    continue
                assert (state, event) in found, f"{name}: no such pair: {state}, {event}"
                taken = found[state, event]
                assert not taken or taken[-1].guard is not None, f"{name}: two rows for {state}, {event}"
                taken.append(_row(name, state, event, guard, to, does, why))
    missing = [pair for pair, taken in found.items() if not taken or taken[-1].guard is not None]
    assert not missing, f"{name}: no row for {missing}"
    return Table(name, {pair: tuple(taken) for pair, taken in found.items()})


def decision(name: str, *cases: tuple[Guard | None, Does, str]) -> DecisionTable:
    """Builds a decision.

    Args:
        name: of the decision.
        cases: (guard, None in the last one only; actions, or IGNORED or ILLEGAL; why).

    Raises:
        AssertionError: the last case has a guard, or an earlier one has none.
    """
    unguarded = [guard is None for guard, _, _ in cases]
    assert unguarded == [False] * (len(cases) - 1) + [True], f"{name}: the last case, and no other, has no guard"
    return DecisionTable(name, tuple(_row(name, None, None, guard, None, does, why) for guard, does, why in cases))


class TableMachine:
    """A state machine that runs its table. ``edges`` records the rows that were taken, for the simulator."""

    TABLE: ClassVar[Table]

    def __init__(self, state: Enum, edges: set[Edge]) -> None:
        self.state = state
        self.edges = edges

    def fire(self, event: Enum, *args: object) -> None:
        """Takes the row of (state, ``event``): the next state first, then its actions.

        Raises:
            IllegalEvent: the row is ILLEGAL.
        """
        row = _first(self.TABLE.rows[self.state, event], self, args)
        if row.state is not None and row.verdict is not ILLEGAL:
            self.state = row.state
        _run(row, self, self.edges, args)


def _first(rows: tuple[Row, ...], subject: object, args: tuple[object, ...]) -> Row:
    for row in rows:
        if row.guard is None or row.guard(subject, *args):
            return row
    raise AssertionError(f"no row: {rows}")


def _run(row: Row, subject: object, edges: set[Edge], args: tuple[object, ...]) -> None:
    if row.verdict is ILLEGAL:
        raise IllegalEvent(f"{row.edge}: {row.why}")
    edges.add(row.edge)
    for action in row.actions:
        action(subject, *args)


def _row(
    name: str, state: Enum | None, event: Enum | None, guard: Guard | None, to: Enum | None, does: Does, why: str
) -> Row:
    edge = Edge(name, state.name if state else "", event.name if event else "", guard.__name__ if guard else "")
    if isinstance(does, Verdict):
        assert to is None, f"{edge}: an ignored or illegal event changes no state"
        return Row(guard, None, (), why, does, edge)
    return Row(guard, to, does if isinstance(does, tuple) else (does,), why, None, edge)


def edges_of(tables: Iterable[type[TableMachine] | DecisionTable]) -> set[Edge]:
    """All edges that can be taken: those that are not ILLEGAL."""
    found: set[Edge] = set()
    for each in tables:
        parts = (each.rows,) if isinstance(each, DecisionTable) else each.TABLE.rows.values()
        found.update(row.edge for rows in parts for row in rows if row.verdict is not ILLEGAL)
    return found
