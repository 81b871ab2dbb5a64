"""The machines' tables: total, without dead states, without rows that cannot be taken; ILLEGAL rows raise."""

from enum import Enum, auto

import pytest

from seqcast.core.machines.blocker import Blocker, BlockerState
from seqcast.core.machines.coordinated import CoordinatedMembership, MembershipState
from seqcast.core.machines.guard import Line, LineState
from seqcast.core.machines.initiator import Initiator, InitiatorState
from seqcast.core.machines.interface import Interface, InterfaceState
from seqcast.core.machines.lifecycle import Lifecycle, LifecycleState
from seqcast.core.machines.merge import Merger, MergerState
from seqcast.core.machines.operator import Operator, OperatorState
from seqcast.core.machines.participant import Participant, ParticipantState
from seqcast.core.machines.pause_member import PauseMember, PauseMemberState
from seqcast.core.machines.pause_owner import PauseOwner, PauseOwnerState
from seqcast.core.machines.pause_request import PauseRequest, PauseRequestState
from seqcast.core.machines.ring import Ring, RingState
from seqcast.core.machines.token_ring import TokenRingMembership, TokenRingState
from seqcast.core.state.backlog import Backlog, BacklogState
from seqcast.core.state.merging import StateMerge, StateMergeState
from seqcast.core.state.taker import StateTaker, StateTakerState
from seqcast.core.state.transfer import Transfer, TransferState
from seqcast.core.table import IGNORED, ILLEGAL, Edge, IllegalEvent, TableMachine, decision, edges_of, table

MACHINES = [
    (Interface, InterfaceState.SOUND),
    (Lifecycle, LifecycleState.OUT),
    (CoordinatedMembership, MembershipState.QUIET),
    (TokenRingMembership, TokenRingState.QUIET),
    (Ring, RingState.IDLE),
    (Initiator, InitiatorState.IDLE),
    (Participant, ParticipantState.OPEN),
    (StateTaker, StateTakerState.OUT),
    (Blocker, BlockerState.IDLE),
    (PauseMember, PauseMemberState.OPEN),
    (PauseOwner, PauseOwnerState.IDLE),
    (Merger, MergerState.APART),
    (Transfer, TransferState.IDLE),
    (Backlog, BacklogState.IDLE),
    (StateMerge, StateMergeState.GOING),
    (PauseRequest, PauseRequestState.FREE),
    (Line, LineState.NEW),
    (Operator, OperatorState.ASKING),
]


def illegal_pairs(machine: type[TableMachine]) -> list[tuple[Enum, Enum]]:
    return [pair for pair, rows in machine.TABLE.rows.items() if rows[0].verdict is ILLEGAL]


def reachable(machine: type[TableMachine], start: Enum) -> set[Enum]:
    """The states that some path of the table reaches from ``start``."""
    found, more = set(), {start}
    while more:
        found |= more
        taken = [row for (state, _), rows in machine.TABLE.rows.items() if state in found for row in rows]
        more = {row.state for row in taken if row.state is not None and row.verdict is not ILLEGAL} - found
    return found


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_pair_ends_in_a_row_without_a_guard_and_every_row_has_a_reason(machine, start):
    """NBC-18."""
    events = type(next(iter(machine.TABLE.rows))[1])
    assert set(machine.TABLE.rows) == {(state, event) for state in type(start) for event in events}
    for rows in machine.TABLE.rows.values():
        assert [row.guard is None for row in rows] == [False] * (len(rows) - 1) + [True]
        assert all(row.why for row in rows)


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_state_is_reachable(machine, start):
    assert reachable(machine, start) == set(type(start))


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_event_is_legal_in_some_state(machine, start):
    legal = {edge.event for edge in edges_of([machine])}
    assert legal == {event.name for _, event in machine.TABLE.rows}


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_illegal_row_raises_and_changes_nothing(machine, start):
    for state, event in illegal_pairs(machine):
        one = object.__new__(machine)
        TableMachine.__init__(one, state, set())
        with pytest.raises(IllegalEvent, match=event.name):
            one.fire(event)
        assert one.state is state and not one.edges


class State(Enum):
    A = auto()
    B = auto()


class Event(Enum):
    X = auto()


class Lamp(TableMachine):
    def __init__(self):
        super().__init__(State.A, set())
        self.done = []

    def even(self, by):
        return by % 2 == 0

    def go(self, by):
        assert self.state is State.B  # the next state first, then the actions
        self.done.append(("go", by))

    def wait(self, by):
        self.done.append(("wait", by))

    TABLE = table(
        "lamp",
        State,
        Event,
        (State.A, (Event.X, even), State.B, (go, wait), "even"),
        (State.A, Event.X, None, wait, "odd"),
        (None, Event.X, None, ILLEGAL, "once"),
    )


def test_a_machine_takes_the_first_row_whose_guard_holds_records_it_and_raises_for_an_illegal_one():
    lamp = Lamp()
    lamp.fire(Event.X, 3)
    assert lamp.state is State.A and lamp.done == [("wait", 3)] and lamp.edges == {Edge("lamp", "A", "X")}
    lamp.fire(Event.X, 4)
    assert lamp.state is State.B and lamp.done[1:] == [("go", 4), ("wait", 4)]
    assert lamp.edges == edges_of([Lamp]) == {Edge("lamp", "A", "X"), Edge("lamp", "A", "X", "even")}
    with pytest.raises(IllegalEvent, match="lamp: X in B: once"):
        lamp.fire(Event.X, 3)
    assert lamp.state is State.B and len(lamp.done) == 3


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(State.A, Event.X, None, Lamp.wait, "why")], "no row for .*B"),
        ([(None, (Event.X, Lamp.even), None, Lamp.wait, "why")], "no row for"),
        ([(None, Event.X, None, Lamp.wait, "why"), (None, Event.X, None, Lamp.go, "why")], "two rows"),
        ([(None, Event.X, None, Lamp.wait, "why"), (None, (Event.X, Lamp.even), None, Lamp.go, "why")], "two rows"),
        ([(State.A, State.B, None, Lamp.wait, "why")], "no such pair"),
        ([(None, Event.X, State.B, IGNORED, "why")], "changes no state"),
    ],
)
def test_a_table_that_is_not_total_or_says_two_things_is_refused(rows, what):
    with pytest.raises(AssertionError, match=what):
        table("lamp", State, Event, *rows)


def test_a_row_without_states_is_for_cases_that_the_others_leave_open():
    class Other(Lamp):
        TABLE = table(
            "other",
            State,
            Event,
            (None, (Event.X, Lamp.even), None, Lamp.wait, "any other even number"),
            (None, Event.X, None, IGNORED, "others"),
            (State.A, (Event.X, lambda self, by: by == 4), State.B, Lamp.go, "four"),
        )

    lamp = Other()
    for number in (1, 2, 4, 4):
        lamp.fire(Event.X, number)
    assert lamp.done == [("wait", 2), ("go", 4), ("wait", 4)]


def test_a_decision_takes_the_first_case_that_holds():
    lamp = Lamp()
    lamp.state = State.B
    choice = decision("parity", (Lamp.even, Lamp.go, "even"), (None, (Lamp.wait, Lamp.wait), "odd"))
    choice.take(lamp, lamp.edges, 4)
    choice.take(lamp, lamp.edges, 5)
    assert lamp.done == [("go", 4), ("wait", 5), ("wait", 5)]
    assert lamp.edges == {Edge("parity", guard="even"), Edge("parity")}
    with pytest.raises(AssertionError, match="the last case"):
        decision("parity", (Lamp.even, Lamp.go, "even"))
