"""Every numbered request of the machines: an answer to number n, or its end, comes while n + 1 is under way and changes
nothing. An answer to n + 1 does."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from sim_stage import Stage

from seqcast.core.frames.closing import Accepted, Block, BlockOk, Cut, Done, Held, Ok, Propose, Start
from seqcast.core.frames.kinds import SCHEMAS
from seqcast.core.frames.merging import MergeAsk, MergeCancel, MergeGo, MergeReady, MergeRefused, MergeTaken
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.recalling import Recalled
from seqcast.core.frames.ring import Confirm, Confirmed, TokenHeld, Unconfirmed
from seqcast.core.machines.beacons import Heard
from seqcast.core.machines.guard import GuardLines
from seqcast.core.machines.keeper import KeeperState, Returned
from seqcast.core.machines.merge import MergerEvent
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.machines.ring import Ring
from seqcast.core.rules.ring import RingView
from seqcast.core.state.chunks import Outgoing
from seqcast.core.state.merging import StateMerge
from seqcast.core.state.transfer import Transfer
from seqcast.core.vocabulary import PauseHeld, PauseOver, StatePlan, TakeState
from seqcast.sim.rings import SETTINGS, place

LONG_NS = 60 * 10**9
PROVIDERS = 5, 6


@dataclass
class Asked:
    """Number n + 1 is under way.

    Args:
        machine: that asked.
        late: inputs that may still come of number n.
        right: an input that ends n + 1, or carries n + 1 on.
    """

    machine: Any
    late: list[Any]
    right: list[Any]


def group(**options):
    """a of a, b and c, and its machines."""
    stage = Stage(**options)
    stage.group("a", "b", "c")
    (a, *_) = nodes = stage.nodes
    return a.endpoint.machines, a.endpoint.context, [node.id for node in nodes]


def block_callbacks():
    machines, _, _ = group(callbacks={"a": None})
    blocker = machines.blocker
    blocker.ask()
    blocker.run_timers()  # its deadline
    blocker.opened()
    blocker.ask()
    last = blocker.run
    return Asked(blocker, [lambda: blocker.returned(last - 1, "an error")], [lambda: blocker.returned(last, "")])


def pauses_that_an_application_waits_for():
    wish = PauseRequest(set())
    wish.ask(LONG_NS)
    wish.end()
    wish.ask(LONG_NS)
    late = [lambda: wish.told(PauseHeld(1)), lambda: wish.told(PauseOver(1, "late"))]
    return Asked(wish, late, [lambda: wish.told(PauseHeld(2))])


def pauses_of_an_owner():
    machines, context, members = group()
    owner = machines.pause_owner
    owner.suspend(1, LONG_NS)
    owner.resume(1)
    owner.suspend(2, LONG_NS)

    def suspended(number, member):
        return lambda: owner.suspended(Suspended(context.tag, number, owner.repeat, "stop", (0, 0, 0)), member)

    late = [suspended(1, member) for member in members]
    late += [lambda: owner.resumed(Resumed(context.tag, 1), members[1]), lambda: owner.resume(1)]
    return Asked(owner, late, [suspended(2, member) for member in members])


def pauses_of_another_member():
    machines, context, (_, b, _) = group()
    pauses = machines.pause_member
    pauses.suspend(Suspend(context.tag, 1, 1, "stop", ()), b)
    pauses.resume(Resume(context.tag, 1), b)
    pauses.suspend(Suspend(context.tag, 2, 2, "stop", ()), b)
    late = [
        lambda: pauses.resume(Resume(context.tag, 1), b),
        lambda: pauses.suspend(Suspend(context.tag, 1, 3, "hold", (0, 0, 0)), b),
    ]
    return Asked(pauses, late, [lambda: pauses.resume(Resume(context.tag, 2), b)])


def rounds_of_block_callbacks():
    machines, context, members = group(callbacks={"b": None})
    initiator = machines.initiator
    initiator.initiate(tuple(members))
    (number, rank), initiator.participant.highest = initiator.attempt, 5
    initiator.initiate(tuple(members))

    def ok(attempt):
        return [lambda m=member: initiator.block_ok(BlockOk(context.tag, attempt), m) for member in members]

    return Asked(initiator, ok((number, rank)), ok(initiator.attempt))


def attempts_to_close_a_view():
    machines, context, members = group()
    initiator, held = machines.initiator, (Held(0),) * 3
    initiator.initiate(tuple(members))
    (number, rank), initiator.participant.highest = initiator.attempt, 5
    initiator.initiate(tuple(members))

    def ok(attempt):
        return [lambda m=member: initiator.ok(Ok(context.tag, attempt, 0, held), m) for member in members]

    before, b = (number, rank), members[1]
    late = [
        lambda: initiator.done(Done(context.tag, before), b),
        lambda: initiator.note_accepted(Accepted(context.tag, before, before, context.entered), b),
    ]
    return Asked(initiator, ok((number, rank)) + late, ok(initiator.attempt))


def votes_of_those_that_started_again():
    stage = Stage(partition="primary", found=2, stable=True)
    stage.group("a", "b", "c")
    for node in stage.nodes[:]:
        node.crash()
    stage.named("a", 2000)
    stage.until(2500)
    keeper = stage.nodes[-1].endpoint.machines.keeper
    b = next(info.id for info in keeper.kept.view.members if info.name == "b")
    for _ in range(2):
        before = keeper.attempt
        keeper.ask([Returned(replace(keeper.context.me, id=77, name="b", address=b"b"), keeper.was._replace(member=b))])
    keeper.state = KeeperState.ASKING
    stage.nodes[-1].endpoint.context.emitted.clear()

    def vote(attempt):
        return lambda: keeper.recalled(Recalled(keeper.kept.view.view_id.tag, attempt, b, attempt), 77)

    return Asked(keeper, [vote(before)], [vote(keeper.attempt)])


def attempts_that_a_member_answers():
    machines, context, _ = group()
    participant = machines.participant
    everyone, me = tuple(each.id for each in context.members), context.me.id
    participant.start(Start(context.tag, (3, 0), everyone), me)
    cut = (0,) * 3
    late = [
        lambda: participant.start(Start(context.tag, (2, 0), everyone), me),
        lambda: participant.block(Block(context.tag, (2, 0), everyone), me),
        lambda: participant.cut(Cut(context.tag, (2, 0), cut, ()), me),
        lambda: participant.propose(Propose(context.tag, (2, 0), context.entered), me),
        lambda: participant.may_install(replace(context.entered, attempt=(2, 0))),
    ]
    return Asked(participant, late, [lambda: participant.cut(Cut(context.tag, (3, 0), cut, ()), me)])


def merges():
    machines, context, (a, *_) = group()
    merger, other, address = machines.merger, (1 << 63) + 1, b"\x04\x00\x01\x7f\x00\x00\x01"
    merger.beacons.heard[other] = Heard(7, address, 0, context.now)
    for _ in range(2):
        merger.quiet_ns = 0
        merger.fire(MergerEvent.CONSIDER, {other: (7, address)})
        if merger.number == 1:
            merger.receive(MergeRefused((a, 1)), other, address)
            merger.review()
    frame = context.entered
    late = [
        lambda: merger.receive(MergeRefused((a, 1)), other, address),
        lambda: merger.receive(MergeReady((a, 1), frame, ()), other, address),
        lambda: merger.receive(MergeCancel((a, 1), ""), other, address),
        lambda: merger.receive(MergeTaken((a, 1)), other, address),
    ]
    return Asked(merger, late, [lambda: merger.receive(MergeRefused((a, 2)), other, address)])


def merges_that_another_leads():
    machines, context, _ = group()
    merger, other, address = machines.merger, 1, b"\x04\x00\x01\x7f\x00\x00\x01"
    merger.beacons = SimpleNamespace(hears=lambda *_: True, asked_by=lambda *_: None)

    def says(frame):
        return lambda: merger.receive(frame, other, address)

    says(MergeAsk((other, 2), context.tag))()
    assert merger.merge == (other, 2)
    late = [says(MergeGo((other, 1), context.entered)), says(MergeCancel((other, 1), ""))]
    return Asked(merger, late, [says(MergeCancel((other, 2), ""))])


def filled(machine, incoming, boundary):
    """A whole state arrives in this stream."""

    def fill():
        for piece in map(bytes, Outgoing(boundary).pieces([b"the state"])):
            while piece:
                count = min(len(piece), len(incoming.room))
                incoming.room[:count] = piece[:count]
                machine.filled(incoming, count, 1)
                piece = piece[count:]

    return fill


def transfers_of_a_state():
    transfer = Transfer(LONG_NS, 1 << 20, str, set())
    transfer.told(TakeState(PROVIDERS[0], 1), 0)
    before = transfer.incoming
    transfer.told(TakeState(PROVIDERS[1], 2), 0)
    late = [filled(transfer, before, 1), filled(transfer, transfer.incoming, 1)]
    return Asked(transfer, late, [filled(transfer, transfer.incoming, 2)])


class Plans:
    """An endpoint with another plan each time."""

    def __init__(self):
        self.edges, self.plan = set(), StatePlan(1, PROVIDERS[:1])

    def joiners_of(self, tag):
        return ()

    def plan_at(self, tag):
        return self.plan


def merges_of_states():
    plans = Plans()
    merge = StateMerge(LONG_NS, str, plans)
    merge.reached(1, 0)
    before, plans.plan = merge.incoming, StatePlan(2, PROVIDERS[1:])
    merge.look(0)
    merge.reached(2, 0)
    late = [filled(merge, before, 1), filled(merge, merge.incoming, 1)]
    return Asked(merge, late, [filled(merge, merge.incoming, 2)])


def tokens():
    ring = Ring(1, place, SETTINGS, lambda frame, to: None, set(), RingView(5, 1, (1, 2, 3)))
    ring.ask()
    ring.review(0)
    ring.review(ring.lease_ns)  # the token is late: another one

    def back(generation):
        return [
            lambda: ring.receive(TokenHeld(1, generation, 1), 2, ring.now),
            lambda: ring.receive(replace(ring.token, generation=generation, visited=(1, 2, 3)), 3, ring.now),
            lambda: ring.receive(Confirmed(1, "prepare", generation), 2, ring.now),
            lambda: ring.receive(Unconfirmed(1, generation, generation, (1, 2, 3)), 2, ring.now),
        ]

    return Asked(ring, back(ring.generation - 1), back(ring.generation))


def memberships_that_a_ring_agrees_on():
    ring = Ring(2, place, SETTINGS, lambda frame, to: None, set(), RingView(5, 1, (1, 2, 3)))

    def confirm(generation):
        return lambda: ring.receive(Confirm(1, "prepare", generation, 1, (1, 2, 3), ()), 1, ring.now)

    confirm(8)()
    late = [confirm(7), lambda: ring.receive(Unconfirmed(1, 7, 8, (1, 2, 3)), 3, ring.now)]
    return Asked(ring, late, [confirm(9)])


def calls_of_a_guard():
    b = 2
    lines = GuardLines(3, 1, set())
    (first,) = lines.view((1, b, 3), 0)[1:]
    lines.connected(first.line, 0)
    _, check = lines.ended(first.line, 0)
    assert (first.member, check.member) == (b, b)

    def reports(line):
        told = (lines.connected, lines.refused, lines.failed, lines.ended)
        return [lambda tell=tell: tell(line, 0) for tell in told] + [lambda: lines.heard(line, b"more", 0)]

    return Asked(lines, reports(first.line), [lambda: lines.refused(check.line, 0)])


def seen(machine):
    """All that a machine knows by itself."""
    plain = (int, str, tuple, list, dict, set, frozenset)
    own = {name: value for name, value in vars(machine).items() if name not in ("edges", "now", "_now")}
    return {name: repr(value) if isinstance(value, plain) else id(value) for name, value in own.items()}


CASES = {
    block_callbacks: (),
    pauses_that_an_application_waits_for: (),
    pauses_of_an_owner: ("suspended", "resumed"),
    pauses_of_another_member: (),
    rounds_of_block_callbacks: ("block_ok",),
    attempts_to_close_a_view: ("ok", "done", "accepted"),
    attempts_that_a_member_answers: (),
    votes_of_those_that_started_again: ("recalled",),
    merges: ("merge_refused", "merge_ready", "merge_cancel", "merge_taken"),
    merges_that_another_leads: ("merge_cancel",),
    transfers_of_a_state: (),
    merges_of_states: (),
    tokens: ("token_held", "confirmed", "unconfirmed"),
    memberships_that_a_ring_agrees_on: ("unconfirmed",),
    calls_of_a_guard: (),
}
"""With the kinds of the answers that come late."""
NUMBERS = {"attempt", "generation", "merge", "pause", "request"}
NUMBERED = {kind: make.__name__ for kind, (make, fields) in SCHEMAS.items() if NUMBERS & fields.keys()}
ASKING = {
    "ask", "block", "confirm", "cut", "merge_ask", "merge_go", "propose", "recall", "resume", "start", "suspend",
    "token", "unblock", "view",
}  # fmt: skip
"""Frames that ask something under a number, or carry one on: a member that gets one answers to that number."""


def answers(given):
    """The kinds of the answers that a late input makes, or was given."""
    names = {*given.__code__.co_names, *(type(cell.cell_contents).__name__ for cell in given.__closure__ or ())}
    return {kind for kind, name in NUMBERED.items() if name in names and kind not in ASKING}


@pytest.mark.parametrize(("case", "late"), CASES.items(), ids=[case.__name__ for case in CASES])
def test_answers_to_a_number_during_the_next_one_change_nothing(case, late):
    asked = case()
    assert set().union(*map(answers, asked.late)) == set(late)
    before = seen(asked.machine)
    for each in asked.late:
        each()
        assert seen(asked.machine) == before
    for right in asked.right:
        right()
    assert seen(asked.machine) != before


ELSEWHERE = {
    "promised": "a promise that came late raises the next attempt, too",
    "told": "the questions of `seqcast probe` are not a machine: test_an_answer_to_the_question_before_is_not_shown",
    "blocked": "test_answers_to_another_command_or_too_many_of_them_are_not_heeded",
}
"""Answers that are tried elsewhere, or may come at any time."""


def test_every_answer_that_has_a_number_is_tried_late():
    tried = set().union(*CASES.values())
    assert NUMBERED.keys() - ASKING - tried == ELSEWHERE.keys()
    assert ASKING < NUMBERED.keys()
