"""The policies' tables: total, without dead states, and without rows that name what is not there."""

from enum import Enum, auto

import pytest

from seqcast.core.machines.blocker import Blocker, Blocking
from seqcast.core.machines.initiator import Attempting, Initiator
from seqcast.core.machines.lifecycle import Life, Lifecycle
from seqcast.core.machines.membership import Duty, Membership
from seqcast.core.machines.merge import Merge, Merger
from seqcast.core.machines.participant import Part, Participant
from seqcast.core.machines.pause import Gate, Pause, Pauser, Pausing
from seqcast.core.machines.state import Having, StateTaker
from seqcast.core.table import IGNORED, ILLEGAL, Machine, table

MACHINES = [
    (Lifecycle, Life.OUT),
    (Membership, Duty.QUIET),
    (Initiator, Attempting.IDLE),
    (Participant, Part.OPEN),
    (StateTaker, Having.OUT),
    (Blocker, Blocking.IDLE),
    (Pause, Gate.OPEN),
    (Pauser, Pausing.IDLE),
    (Merger, Merge.APART),
]


def reachable(machine: type[Machine], start: Enum) -> set[Enum]:
    """The states that some path of the table reaches from ``start``."""
    found = {start}
    while True:
        more = {
            row.state for (state, _), row in machine.TABLE.items() if state in found and row.actions != (ILLEGAL,)
        } - found
        if not more:
            return found
        found |= more


class State(Enum):
    A = auto()
    B = auto()


class Input(Enum):
    X = auto()


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_state_and_input_has_one_row_with_a_reason(machine, start):
    inputs = {symbol for _, symbol in machine.TABLE}
    assert set(machine.TABLE) == {(state, symbol) for state in type(start) for symbol in type(next(iter(inputs)))}
    assert all(row.why for row in machine.TABLE.values())


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_state_is_reachable(machine, start):
    assert reachable(machine, start) == set(type(start))


@pytest.mark.parametrize(("machine", "start"), MACHINES)
def test_every_action_is_a_method(machine, start):
    actions = {action for row in machine.TABLE.values() for action in row.actions} - {IGNORED, ILLEGAL}
    assert all(callable(getattr(machine, action, None)) for action in actions)


def test_a_table_that_misses_a_pair_is_refused():
    with pytest.raises(AssertionError, match="no row"):
        table(State, Input, (State.A, Input.X, State.B, "go", "why"))


def test_a_table_with_two_rows_for_one_pair_is_refused():
    with pytest.raises(AssertionError, match="two rows"):
        table(State, Input, (State.A, Input.X, State.B, "go", "why"), ((State.A, State.B), Input.X, None, "go", "why"))


def test_a_machine_takes_its_row_records_the_edge_and_dies_of_an_illegal_one():
    class Lamp(Machine):
        NAME = "lamp"
        TABLE = table(
            State, Input, (State.A, Input.X, State.B, "go", "why"), (State.B, Input.X, None, ILLEGAL, "once")
        )
        gone = 0

        def go(self, by):
            assert self.state is State.B  # the next state first, then the actions
            self.gone += by

    lamp = Lamp(State.A, set())
    lamp.fire(Input.X, 3)
    assert lamp.gone == 3 and lamp.edges == {("lamp", "A", "X")}
    with pytest.raises(AssertionError, match="once"):
        lamp.fire(Input.X, 3)
