"""The joiner's transfer of state and the messages held meanwhile, fed by hand."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from engines import Net

from seqcast.config import Config
from seqcast.core.context import NEVER
from seqcast.core.state.backlog import Backlog
from seqcast.core.state.chunks import Outgoing
from seqcast.core.state.merging import (
    BreakPromise,
    Gather,
    GiveState,
    GoOn,
    PromiseState,
    Reconcile,
    StateMerge,
)
from seqcast.core.state.transfer import (
    SILENCE_NS,
    BeginState,
    Deliver,
    Giver,
    GiveUp,
    LoadState,
    ProviderSilent,
    StateChunk,
    Transfer,
)
from seqcast.core.table import IllegalEvent
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StateHeld, StateLost, StatePlan, StateRefused, TakeState
from seqcast.events import Blocked, Lost, Unblocked
from seqcast.net.state_merge import StateKeeper
from seqcast.types import Member, View, ViewId

TIMEOUT = 1000
STATE = bytes(range(256)) * 40


def view(counter):
    member = Member("a", 100, b"1")
    return View(ViewId(counter, 100, (1, 100)), (member,))


BEFORE, FIRST, SECOND = view(1), view(2), view(3)
TAG = FIRST.view_id.tag


def batches(*messages):
    """The deliveries of the second of two members; each message: to that one alone, or to the group."""
    net = Net(2)
    for text in messages:
        net.engines[0].send(text, to=net.ids[1] if text.startswith(b"to b") else 0)
    for _ in range(20):
        net.step(take=False)
    items = []
    while (item := net.engines[1].deliver(1 << 20)) is not None:
        items.append(item)
    return [item for item in items if not isinstance(item, int)]


def texts(items):
    return [item.tolist() if hasattr(item, "tolist") else item for item in items]


def transfer(backlog_bytes=1 << 20):
    return Transfer(TIMEOUT, backlog_bytes, lambda member: f"m{member}", set())


def receive(machine, pieces, now=1):
    """Feeds the bytes of a giver as they fit; the machine's answers to all bytes."""
    effects, data = [], b"".join(bytes(piece) for piece in pieces)
    while data and machine.receiving:
        incoming = machine.incoming
        count = min(len(incoming.room), len(data))
        incoming.room[:count], data = data[:count], data[count:]
        effects += machine.filled(incoming, count, now)
    return effects


def given(boundary=TAG, refusal=""):
    giver = Giver(boundary, 7, TIMEOUT, 0)
    giver = giver.refuse(refusal) if refusal else giver.give([STATE[:5000], STATE[5000:]])
    while rest := giver.rest:
        yield bytes(rest[:999])
        giver.sent(len(rest[:999]))


def damaged(pieces):
    """With a flipped bit behind the first header."""
    for number, piece in enumerate(pieces):
        yield bytes([piece[0] ^ 1]) + piece[1:] if number == 1 else piece


def loading():
    machine = transfer()
    machine.told(TakeState(9, TAG), 0)
    receive(machine, given())
    assert machine.told(StateHeld(TAG), 2) == [LoadState()]
    return machine


# ---- the backlog


def test_the_backlog_voids_group_messages_of_before_the_boundary_and_keeps_unicasts_behind_it():
    (before,), (after,) = batches(b"1", b"to b 1", b"2"), batches(b"3", b"to b 2")
    backlog = Backlog(1 << 20, set())
    backlog.restart(TAG)
    for item in (BEFORE, before, Lost(BEFORE.view_id, 1, 1, None), FIRST, after, SECOND):
        assert backlog.behind_boundary is (item in (after, SECOND))
        backlog.add(item)
    assert texts(backlog.release()) == [FIRST, [b"to b 1"], after.tolist(), SECOND]


def test_a_later_boundary_voids_messages_held_behind_the_one_before():
    (one,), (two,), (three,) = batches(b"1", b"to b 1"), batches(b"2", b"to b 2"), batches(b"3")
    backlog = Backlog(1 << 20, set())
    backlog.restart(TAG)
    for item in (one, FIRST, two, SECOND, three):
        backlog.add(item)
    backlog.restart(SECOND.view_id.tag)
    assert texts(backlog.release()) == [SECOND, [b"to b 1"], [b"to b 2"], [b"3"]]


def test_the_application_is_not_told_that_a_block_ended_of_which_it_was_not_told():
    backlog = Backlog(1 << 20, set())
    blocked, unblocked = Blocked("flush", ""), Unblocked("flush", "")
    backlog.restart(TAG)
    for item in (BEFORE, blocked, FIRST, unblocked, blocked, SECOND, unblocked):
        backlog.add(item)
    assert list(backlog.release()) == [FIRST, blocked, SECOND, unblocked]


def test_the_backlog_is_full_at_its_bound_and_not_before_its_boundary():
    (batch,) = batches(b"x" * 100)
    backlog = Backlog(2000, set())
    backlog.restart(TAG)
    for _ in range(5):
        backlog.add(batch)
    assert not backlog.full
    for item, full in ((FIRST, False), (batch, False), (batch, True)):
        backlog.add(item)
        assert backlog.full is full
    backlog.restart(SECOND.view_id.tag)
    assert not backlog.full


def test_nothing_is_released_before_the_boundary():
    backlog = Backlog(1000, set())
    backlog.restart(TAG)
    with pytest.raises(IllegalEvent):
        backlog.release()


# ---- the joiner


def test_a_state_that_arrives_whole_is_loaded_and_held_messages_are_delivered():
    machine = transfer()
    assert machine.told(TakeState(9, TAG), 0) == [BeginState(9)] and machine.holds
    *chunks, last = receive(machine, given())
    assert b"".join(chunk.data for chunk in chunks) == STATE and all(isinstance(chunk, StateChunk) for chunk in chunks)
    assert last == StateArrived(TAG) and machine.due() == NEVER and not machine.receiving
    assert machine.delivered(BEFORE, 1) == machine.delivered(FIRST, 1) == []
    assert machine.told(StateHeld(TAG), 2) == [LoadState()]
    (deliver,) = machine.loaded(3)
    assert list(deliver.items) == [FIRST] and machine.inside and machine.due() == NEVER
    assert machine.delivered(SECOND, 4) == [Deliver(type(deliver.items)([SECOND]))]  # on its way to the backlog


def test_the_application_that_is_quicker_than_the_boundary_waits_for_it():
    machine = loading()
    assert machine.loaded(3) == [] and not machine.inside and machine.due() == NEVER
    assert machine.delivered(BEFORE, 3) == []
    (deliver,) = machine.delivered(FIRST, 4)
    assert list(deliver.items) == [FIRST] and machine.inside


@pytest.mark.parametrize("how", ["refused", "damaged", "silent"])
def test_a_provider_that_cannot_give_the_state_is_reported_and_another_begins_anew(how):
    machine = transfer()
    machine.told(TakeState(9, TAG), 0)
    old = machine.incoming
    if how == "silent":
        assert machine.run_timers(TIMEOUT - 1) == []
        effects = machine.run_timers(TIMEOUT)
    else:
        effects = receive(machine, given(refusal="no") if how == "refused" else damaged(given()))
    (refused,) = effects
    assert isinstance(refused, StateRefused) and refused.boundary == TAG and refused.reason.startswith("m9: ")
    assert machine.due() == NEVER and machine.filled(old, 1, 1) == []
    assert machine.told(TakeState(8, SECOND.view_id.tag), 5) == [BeginState(8)]
    assert machine.due() == 5 + TIMEOUT and machine.receiving


def test_bytes_put_off_the_end_of_patience():
    machine = transfer()
    machine.told(TakeState(9, TAG), 0)
    receive(machine, list(given())[:3], now=500)
    assert machine.due() == 500 + TIMEOUT


def test_an_application_that_takes_too_long_leaves_and_is_told_and_reads_put_it_off():
    machine = loading()
    assert machine.due() == 2 + TIMEOUT, "also where the application reads nothing"
    machine.read(900)
    assert machine.run_timers(900 + TIMEOUT - 1) == []
    leave, give_up = machine.run_timers(900 + TIMEOUT)
    assert leave == LeaveGroup(0) and "set_state took longer" in give_up.error
    assert machine.loaded(2000) == [] and machine.ended and not machine.inside


def test_the_first_member_has_the_state_and_one_that_nobody_can_give_it_to_gives_up():
    (deliver,) = transfer().told(StateHeld(0), 0)
    assert not deliver.items
    machine = transfer()
    machine.told(TakeState(9, TAG), 0)
    assert machine.told(StateLost("none left"), 1) == [GiveUp("no state: none left")]
    assert machine.ended and not machine.holds and machine.due() == NEVER


def test_a_handler_that_fails_gives_up():
    machine = loading()
    assert machine.failed("it raised", 3) == [GiveUp("it raised")]


# ---- the provider


class Way:
    """The bytes that a giver sends on: up to ``room`` bytes at a time, to those who still wait."""

    def __init__(self, room=1 << 20, joiners=(6, 7)):
        self.room, self.joiners, self.sent, self.ends = room, joiners, b"", []

    def send(self, rest):
        self.sent += rest[: self.room]
        return len(rest[: self.room])

    def lets(self, giver):
        """Does the transfer continue after this?"""
        return giver.go_on(self.send, lambda: self.ends.append(len(self.sent)), lambda _boundary: self.joiners)


def test_a_giver_sends_its_refusal_only():
    way, giver = Way(), Giver(TAG, 7, TIMEOUT, 0).refuse("cannot")
    assert not way.lets(giver) and giver.complete
    assert way.ends == [len(way.sent)] == [giver.bytes_sent]
    machine = transfer()
    machine.told(TakeState(9, TAG), 0)
    assert receive(machine, [way.sent]) == [StateRefused(TAG, "m9: cannot")]


def test_a_giver_ends_when_its_joiner_no_longer_waits_or_cannot_be_reached():
    way, giver = Way(room=0), Giver(TAG, 7, TIMEOUT, 0).give([STATE])
    assert way.lets(giver) and not way.sent, "credit may come"
    way.room = 10
    assert way.lets(giver) and way.lets(giver) and not way.ends
    way.joiners = (6,)
    assert not way.lets(giver) and not giver.complete and len(way.sent) == 30
    way, giver = Way(), Giver(TAG, 7, TIMEOUT, 0).give([STATE])
    way.send = lambda _: -1
    assert not way.lets(giver) and not giver.complete and not giver.bytes_sent
    way, giver = Way(joiners=()), Giver(TAG, 7, TIMEOUT, 0)
    assert not way.lets(giver) and not giver.complete


def test_frames_that_reassure_a_joiner_leave_before_the_state_follows():
    way, giver = Way(), Giver(TAG, 7, TIMEOUT, 0)
    giver.run_timers(0)
    assert way.lets(giver) and not giver.complete
    assert way.ends == [len(way.sent)] and way.sent
    giver.give([b"state"])
    assert not way.lets(giver) and giver.complete
    assert len(way.ends) == 2


def test_a_joiner_is_told_four_times_a_timeout_that_its_provider_is_at_work():
    giver, machine = Giver(TAG, 7, TIMEOUT, 100), transfer()
    machine.told(TakeState(9, TAG), 100)
    told = []
    while (now := giver.due()) < 100 + 3 * TIMEOUT:
        giver.run_timers(now - 1)
        assert not giver.rest
        giver.run_timers(now)
        receive(machine, [giver.rest], now=now)
        giver.sent(len(giver.rest))
        assert machine.due() == now + TIMEOUT
        told.append(now)
    assert told == list(range(100, 100 + 3 * TIMEOUT, TIMEOUT // 4))
    giver.give([b"state"])
    assert giver.due() == NEVER


def test_frames_that_reassure_a_joiner_are_sent_whole_before_they_are_repeated():
    way, giver = Way(room=3), Giver(TAG, 7, TIMEOUT, 0)
    giver.run_timers(0)
    assert way.lets(giver)
    giver.run_timers(giver.due())
    way.room = 1 << 20
    assert way.lets(giver)
    assert way.sent == bytes(Outgoing(TAG).patience())


def test_a_provider_whose_application_takes_too_long_is_silent():
    giver = Giver(TAG, 7, TIMEOUT, 0)
    giver.run_timers(TIMEOUT, TIMEOUT)
    assert not giver.rest and giver.due() > TIMEOUT


# ---- a merge


def merger(joiners):
    """A member that is to merge the state of member 9 into its own, and has promised the result to these joiners."""
    plan = StatePlan(TAG, (9,), merges=True)
    endpoint = SimpleNamespace(edges=set(), joiners_of=lambda tag: tuple(joiners), plan_at=lambda tag: plan)
    machine = StateMerge(TIMEOUT, str, endpoint)
    assert machine.reached(TAG, 0) == [PromiseState(TAG, tuple(joiners)), Gather()]
    for piece in Outgoing(TAG).pieces([]):
        machine.incoming.room[: len(piece)] = piece
        machine.filled(machine.incoming, len(piece), 1)
    plan = replace(plan, held=True)
    assert machine.look(2) == [Reconcile(True)]
    return machine


@pytest.mark.parametrize("ends", ["fails", "late", "excluded"])
def test_a_merger_that_cannot_give_the_promised_state_breaks_its_promise_once(ends):
    machine = merger([7])
    if ends == "fails":
        effects = machine.failed("it raised", 3)
    else:
        effects = machine.over(3) if ends == "excluded" else machine.look(2 + TIMEOUT)
    assert effects[0] == BreakPromise()
    assert BreakPromise() not in machine.over(2 * TIMEOUT)


def test_a_merger_keeps_its_promise_to_the_joiners_that_still_wait():
    joiners = [6, 7]
    machine = merger(joiners)
    joiners.remove(6)
    assert machine.loaded(3) == [GiveState(TAG, (7,)), GoOn(True)]
    assert machine.over(4) == []
    machine = merger(joiners)
    joiners.clear()
    assert machine.loaded(3) == [BreakPromise(), GoOn(True)]


def test_the_time_that_get_state_takes_is_not_silence_of_the_member_that_merges():
    plan, refused = StatePlan(TAG, (9,)), []
    endpoint = SimpleNamespace(edges=set(), joiners_of=lambda tag: (9,), plan_at=lambda tag: plan)
    runner = SimpleNamespace(
        name=FIRST.members[0].name,
        endpoint=endpoint,
        standing=SimpleNamespace(name_of=str, changed=threading.Condition(), over=False),
        giving={},
        driver=SimpleNamespace(
            state_read=lambda *_: 0, state_send=lambda data, *_: len(data), state_end=lambda _: None
        ),
        request=refused.append,
    )
    handler = SimpleNamespace(get_state=lambda write: time.sleep(1.2), set_state=lambda read: None)
    keeper = StateKeeper(runner, handler, Config(state_timeout_s=1.0))
    keeper.reached(FIRST)
    assert not keeper.step(0) and keeper.stopped and refused == []
    end = time.monotonic() + 60
    while not refused and time.monotonic() < end:
        keeper.step(10_000_000)
    assert [type(each) for each in refused] == [StateRefused]


def test_a_joiner_is_told_once_of_a_provider_that_sends_nothing_and_not_of_one_that_is_at_work():
    silent = Transfer(30 * SILENCE_NS, 1 << 20, lambda member: f"m{member}", set())
    silent.told(TakeState(9, TAG), 0)
    assert silent.due() == SILENCE_NS and silent.run_timers(SILENCE_NS - 1) == []
    assert silent.run_timers(SILENCE_NS) == [ProviderSilent("m9")]
    assert silent.due() == 30 * SILENCE_NS and silent.run_timers(2 * SILENCE_NS) == []
    at_work = Transfer(30 * SILENCE_NS, 1 << 20, lambda member: f"m{member}", set())
    at_work.told(TakeState(9, TAG), 0)
    giver = Giver(TAG, 7, TIMEOUT, 0)
    giver.run_timers(0)
    receive(at_work, [giver.rest])
    assert at_work.run_timers(2 * SILENCE_NS) == []
    at_work.told(TakeState(8, TAG + 1), 3 * SILENCE_NS)
    assert at_work.run_timers(4 * SILENCE_NS) == [ProviderSilent("m8")], "another provider has its own second"
