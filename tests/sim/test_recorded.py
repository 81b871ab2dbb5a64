"""Simulated groups with a key, and a replayer, which has no secret, and repeats recorded datagrams."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_stage import Stage, names

from seqcast.core.frames.joining import Challenge, Join, Refused, Seen, Wait
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.merging import Beacon
from seqcast.core.identities import Identities
from seqcast.core.rules.history import History
from seqcast.reports import FrameReceived
from seqcast.sim.process import Process
from seqcast.sim.seal import SimulatedSigner, simulated_list
from seqcast.types import ViewId

IDENTITIES = pytest.mark.parametrize("identities", [False, True], ids=["key", "key and identities"])


class Replayed(Stage):
    """A stage on which a frame that a process sealed, and signed, before its end comes again every 20 ms."""

    def __init__(self, **options: object) -> None:
        super().__init__(keyed=True, **options)
        self.ghost: Process
        self.frames: list[Join | Beacon] = []

    def record(self, *frames: Join | Beacon, of: Process) -> None:
        self.ghost, self.frames = of, list(frames)

    def play(self, until_ms: int) -> None:
        for ms in range(self.clock.now // 10**6 + 20, until_ms + 1, 20):
            self.until(ms)
            for node in self.nodes:
                for frame in self.frames:
                    if node.up and not node.endpoint.over:
                        said = self.ghost.endpoint.context.identities.with_signature(self.ghost.id, dump(frame))
                        node.step(FrameReceived(self.ghost.id, self.ghost.address, said, outside=True))
                        node.service()


def beacon_of(node: Process, **more: object) -> Beacon:
    return replace(node.endpoint.machines.merger.beacons.own_beacon(), **more)


def heard_of_z_alone(stage: Replayed) -> None:
    """A beacon of z, which is gone, is recorded before a begins to join."""
    stage.named("z")
    stage.until(1500)
    z = stage.node("z")
    stage.record(beacon_of(z), of=z)
    z.crash()
    stage.named("a", 3000)
    stage.until(3000)


@IDENTITIES
def test_a_recorded_beacon_keeps_nobody_from_founding_a_group(identities):
    stage = Replayed(identities=identities)
    heard_of_z_alone(stage)
    stage.play(6500)
    assert names(stage.node("a")) == [["a"]]


@IDENTITIES
def test_a_recorded_beacon_makes_no_primary_group_give_way(identities):
    """Its view has more history, and datagrams seem to come from as many members as its beacon counts."""
    stage = Replayed(identities=identities, partition="primary")
    stage.named("z")
    stage.until(1500)
    z = stage.node("z")
    beacon = beacon_of(z, primary=3, history=History.SHARED, view_id=ViewId(900, z.id, (1, z.id)))
    stage.record(beacon, of=z)
    z.crash()
    for number, name in enumerate("abc"):
        stage.named(name, 3000 + 200 * number)
    stage.until(4500)
    before = stage.node("a").endpoint.view
    for node in stage.nodes[1:]:
        assert len(node.endpoint.view.members) == 3
        node.endpoint.context.plane.strangers = lambda tag: 3
    stage.play(8000)
    assert {node.endpoint.view for node in stage.nodes[1:]} == {before}
    assert not any(node.record.warnings for node in stage.nodes[1:])


@IDENTITIES
def test_nobody_votes_for_a_joiner_that_is_known_from_recorded_joins_alone(identities):
    stage = Replayed(found=2, identities=identities)
    stage.named("z")
    stage.until(600)
    z = stage.node("z")
    stage.record(replace(z.endpoint.machines.lifecycle._join(z.id), founder=z.id), of=z)
    z.crash()
    for name in "abcd":
        stage.named(name, 3000)
    stage.until(3001)
    joiners = [stage.node(name) for name in "abcd"]
    stage.play(5000)
    assert {tuple(sorted(names(node)[-1])) for node in joiners} == {tuple("abcd")}
    assert not any("z" in view for node in joiners for view in names(node))


@IDENTITIES
def test_a_joiner_that_is_known_from_recorded_joins_alone_is_in_no_view(identities):
    stage = Replayed(identities=identities)
    stage.named("z")
    stage.until(100)
    z = stage.node("z")
    stage.record(z.endpoint.machines.lifecycle._join(1), of=z)
    z.crash()
    stage.named("a", 3000)
    stage.named("b", 3000)
    stage.until(3000)
    stage.play(6000)
    for name in "ab":
        assert sorted(names(stage.node(name))[-1]) == ["a", "b"]
        assert not any("z" in view for view in names(stage.node(name)))


@pytest.mark.parametrize("signer", [None, SimulatedSigner(1, 5000)], ids=["no identity", "not listed"])
def test_a_process_with_only_the_key_cannot_answer_for_a_joiner_that_is_known_from_recorded_joins(signer):
    stage = Replayed(identities=True)
    stage.named("z")
    stage.until(100)
    z = stage.node("z")
    join = z.endpoint.machines.lifecycle._join(1)
    stage.record(join, of=z)
    z.crash()
    stage.named("a", 3000)
    stage.until(3001)
    a = stage.node("a")
    challenges, other = a.endpoint.machines.challenges, Identities(signer, simulated_list(1), "sim")
    info = other.signed(replace(join.info, identity=b"", signature=b""))
    said = dump(replace(join, info=info, answers=challenges._numbers()[0]))
    a.step(FrameReceived(z.id, z.address, other.with_signature(z.id, said), outside=True))
    assert challenges.lacks_answer(join, z.id, z.address)
    stage.play(6000)
    assert names(a) == [["a"]]
    said = dump(replace(join, answers=challenges._numbers()[0]))
    own = z.endpoint.context.identities.with_signature(z.id, said)
    a.step(FrameReceived(z.id, z.address, own, outside=True))
    assert not challenges.lacks_answer(join, z.id, z.address)


AT, ELSEWHERE = b"sim88", b"sim99"


@pytest.mark.parametrize("kind", ["JOIN", "BEACON"])
def test_an_answer_counts_for_a_while_and_for_one_view(kind):
    stage = Stage(keyed=True, found=2) if kind == "JOIN" else Stage(keyed=True, partition="primary")
    stage.named("a")
    stage.until(1500)
    a = stage.node("a")
    challenges = a.endpoint.machines.challenges
    frame = beacon_of(a) if kind == "BEACON" else a.endpoint.machines.lifecycle._join(1)
    if kind == "JOIN":
        frame = replace(frame, info=replace(frame.info, address=AT))
    numbers = challenges._numbers()
    assert challenges.lacks_answer(frame, 77, AT)
    challenges.note(replace(frame, answers=numbers[0] ^ 4), 77, AT)
    assert challenges.lacks_answer(frame, 77, AT), "another number"
    challenges.note(replace(frame, answers=numbers[0]), 77, AT)
    assert not challenges.lacks_answer(frame, 77, AT) and challenges.lacks_answer(frame, 78, AT)
    assert challenges.lacks_answer(frame, 77, ELSEWHERE), "a copy that somebody else sends from there"
    challenges.note(replace(frame, answers=numbers[0]), 77, ELSEWHERE)
    assert challenges.lacks_answer(frame, 77, ELSEWHERE) == (kind == "JOIN"), "a JOIN names its address"
    if kind == "BEACON":
        other = replace(frame, view_id=ViewId(900, 77, (1, 77)))
        assert challenges.lacks_answer(other, 77, AT), "a view of it that has ended"
    a.endpoint.context.now += challenges.lasts_ns
    assert challenges.lacks_answer(frame, 77, AT), "its sender may be gone since"
    assert challenges._numbers()[1] == numbers[0], "an answer may be on its way meanwhile"
    a.endpoint.context.now += challenges.lasts_ns
    challenges.note(replace(frame, answers=numbers[0]), 77, AT)
    assert challenges.lacks_answer(frame, 77, AT), "a recorded answer"


def test_a_question_is_answered_as_often_as_somebody_asks():
    stage = Stage(keyed=True)
    stage.named("a")
    stage.until(1500)
    a = stage.node("a")
    sent = a.endpoint.counters["frames_sent"]
    question = dump(Challenge(a.endpoint.context.settings.nonce, 5))
    for _ in range(50):
        a.step(FrameReceived(77, AT, question, outside=True))
    assert a.endpoint.counters["frames_sent"] == sent + 1
    a.step(FrameReceived(78, AT, question, outside=True), FrameReceived(77, ELSEWHERE, question, outside=True))
    assert a.endpoint.counters["frames_sent"] == sent + 3, "another one, and another place"


@pytest.mark.parametrize("kind", ["WAIT", "SEEN", "REFUSED"])
def test_an_answer_that_was_recorded_earlier_in_a_join_counts_for_seconds_only(kind):
    stage = Stage(keyed=True, found=2)
    stage.named("a")
    stage.until(100)
    a = stage.node("a")
    lifecycle, nonce = a.endpoint.machines.lifecycle, a.endpoint.machines.lifecycle._join(1).nonce
    said = {"WAIT": Wait(9, "", nonce), "SEEN": Seen(b"sim98", nonce), "REFUSED": Refused("go", "name", nonce)}[kind]

    def counts() -> bool:
        before = lifecycle.form_ns, len(lifecycle.places), lifecycle.refusal
        a.step(FrameReceived(77, AT, dump(said), outside=True))
        return before != (lifecycle.form_ns, len(lifecycle.places), lifecycle.refusal)

    stage.until(100 + 2 * a.endpoint.context.settings.fresh_ns // 10**6)
    assert not counts()
    said = replace(said, nonce=lifecycle._join(1).nonce)
    assert counts()


def test_a_group_that_is_busy_when_it_is_heard_delays_a_joiner_and_one_that_is_gone_does_so_once():
    stage = Replayed()
    heard_of_z_alone(stage)
    a = stage.node("a")
    settings = a.endpoint.context.settings
    first, last = settings.discovery_ns // 10**6, (settings.discovery_ns + settings.group_seen_ns) // 10**6
    stage.play(3000 + (first + last) // 2)
    assert not names(a)
    stage.play(3000 + last + 500)
    assert names(a) == [["a"]]
