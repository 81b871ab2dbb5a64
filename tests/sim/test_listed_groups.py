"""Simulated groups whose members have identities: a process not on the list changes nothing, whatever else it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halves import first_quick
from sim_stage import Stage

from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import Refused, Wait
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.merging import Beacon, MergeAsk
from seqcast.core.identities import LISTED_MAX, Allowed, Identities
from seqcast.core.rules.cut import first_view
from seqcast.core.vocabulary import ExcludedBy, JoinFailed, ListRead, Warn
from seqcast.reports import FrameReceived
from seqcast.sim.families import calm
from seqcast.sim.options import Options
from seqcast.sim.process import Process
from seqcast.sim.seal import SimulatedSigner, simulated_list
from seqcast.sim.world import simulate
from seqcast.types import ViewId

TURNOVER = Options(
    seed=1,
    keyed=True,
    identities=True,
    **calm(members=3, crashes=1, restarts=1, leaves=1, doubts=4, rejoins=4, partitions=1),
)
STRANGER = 5000
"""Number of a process that the list does not have."""


class Listed(Stage):
    """Members with identities; their events are kept, by name."""

    def __init__(self, **options: object) -> None:
        super().__init__(keyed=True, identities=True, **options)
        self.effects: dict[str, list[object]] = {}

    def told(self, node: Process, effect: object) -> None:
        self.effects.setdefault(node.name, []).append(effect)
        super().told(node, effect)

    def of(self, name: str, kind: type) -> list:
        return [each for each in self.effects.get(name, ()) if isinstance(each, kind)]

    def read(self, *gone: str) -> None:
        """The list of every member has no line any more for these."""
        publics = {self.node(name).endpoint.context.me.identity for name in gone}
        self.listed = tuple(each for each in simulated_list(1) if each.public not in publics)
        for node in self.nodes:
            self.tell(node)

    def tell(self, node: Process) -> None:
        node.step(ListRead(self.listed))
        node.service()

    def stranger(self, name: str, signer: SimulatedSigner | None) -> None:
        """A process with the key: its own list, if any, names that process."""
        self.named(name, self.clock.now // 10**6)
        make = self.make_endpoint

        def made(engine, me, cluster, settings):
            listed = (Allowed(signer.public, "*"), *simulated_list(1)) if signer is not None else ()
            return make(engine, me, cluster, replace(settings, signer=signer, allowed=listed))

        self.make_endpoint = made
        self.until(self.clock.now // 10**6 + 1)
        self.make_endpoint = make

    def views(self, *names: str) -> set:
        return {self.node(name).endpoint.view for name in names}


def names(view) -> list[str]:
    return sorted(member.name for member in view.members)


def test_a_group_with_identities_is_full_at_96_members_and_says_so_to_the_next_one(monkeypatch):
    """A VIEW with the signatures of more would not fit its frame; here fewer do, as 96 take long to simulate."""
    assert LISTED_MAX == 96
    monkeypatch.setattr("seqcast.core.identities.LISTED_MAX", 3)
    stage = Listed()
    stage.group("a", "b", "c")
    stage.named("one too many", 1000)
    stage.until(3000)
    assert {len(view.members) for view in stage.views("a", "b", "c")} == {3}
    (failed,) = stage.of("one too many", JoinFailed)
    assert failed.cause == "full" and "the group is full: it has 3 members, and at most 3" in failed.error


@pytest.mark.parametrize("partition", first_quick(["merge", "primary"]))
@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_members_with_identities_come_leave_fall_and_merge_as_others_do(partition, membership):
    results = [simulate(replace(TURNOVER, seed=seed, partition=partition, membership=membership)) for seed in (1, 2, 3)]
    assert [result.violations for result in results] == [[]] * 3
    assert max(result.views for result in results) > 3


@pytest.mark.parametrize("signer", [None, SimulatedSigner(1, STRANGER)], ids=["no identity", "an identity of its own"])
def test_a_process_with_the_key_that_is_not_on_the_list_is_refused_by_name_and_never_stored(signer):
    stage = Listed()
    stage.group("a", "b")
    before = stage.views("a", "b")
    stage.stranger("mallory", signer)
    stage.until(4000)
    assert stage.views("a", "b") == before and stage.node("mallory").endpoint.view is None
    (failed,) = stage.of("mallory", JoinFailed)
    assert failed.cause == "identity" and "mallory" in failed.error and "authorized=" in failed.error
    assert not any(node.endpoint.machines.membership.joiners for node in stage.nodes[:2])


def sent_by_two_joiners(stage):
    """How many frames a and b have sent when they have found each other."""
    stage.named("a", 2)
    stage.named("b", 2)
    stage.until(100)
    return {name: stage.node(name).endpoint.counters["frames_sent"] for name in "ab"}


@pytest.mark.parametrize("signer", [None, SimulatedSigner(1, STRANGER)], ids=["no identity", "an identity of its own"])
def test_joiners_wait_for_no_process_that_is_not_on_the_list(signer):
    stage = Listed()
    stage.stranger("mallory", signer)
    sent = sent_by_two_joiners(stage)
    a, b = (stage.node(name).endpoint.machines.lifecycle for name in "ab")
    assert a.seeking and set(a.peers) == {"b"} and set(b.peers) == {"a"}
    assert {*a.others, *b.others} <= {stage.node("a").id, stage.node("b").id}
    assert sent == sent_by_two_joiners(Listed())


@pytest.mark.parametrize("signer", [None, SimulatedSigner(1, STRANGER)], ids=["no identity", "an identity of its own"])
def test_a_process_not_on_the_list_that_was_first_does_not_merge_with_listed_ones(signer):
    stage = Listed()
    stage.stranger("mallory", signer)
    stage.until(1500)
    assert names(stage.node("mallory").endpoint.view) == ["mallory"]
    stage.named("a", 1500)
    stage.named("b", 1600)
    stage.until(8000)
    assert [names(view) for view in stage.views("a", "b")] == [["a", "b"]]
    for name in "ab":
        assert stage.node(name).endpoint.counters["frames_unproven"] > 0
        assert len([each for each in stage.of(name, Warn) if "(SC5003)" in str(each.text)]) == 1


def test_a_member_whose_line_goes_is_put_out_and_told_why_and_the_others_go_on():
    stage = Listed()
    stage.group("a", "b", "c")
    coordinator = stage.node("a").endpoint.view.members[0].name
    other = next(name for name in "abc" if name != coordinator)
    stage.read(other)
    stage.until(2000)
    stay = sorted({"a", "b", "c"} - {other})
    assert [names(view) for view in stage.views(*stay)] == [stay]
    (out,) = stage.of(other, ExcludedBy)
    assert out.cause == "identity" and "list of members" in out.reason
    stage.until(6000)
    assert [names(view) for view in stage.views(*stay)] == [stay]


@pytest.mark.parametrize("old", [False, True], ids=["all have the new list", "it has the old list"])
def test_the_acting_member_can_be_put_out_too_even_with_an_old_list(old):
    stage = Listed()
    stage.group("a", "b", "c")
    acting = stage.node("a").endpoint.view.members[0].name
    if old:
        stage.tell = lambda node: Listed.tell(stage, node) if node.name != acting else None
    stage.read(acting)
    stage.until(12_000)
    stay = sorted({"a", "b", "c"} - {acting})
    assert [names(view) for view in stage.views(*stay)] == [stay]
    if old:
        assert names(stage.node(acting).endpoint.view) == [acting], "with its list, it is nobody's fault"
        Listed.tell(stage, stage.node(acting))
        stage.until(13_000)
    assert [each.cause for each in stage.of(acting, ExcludedBy)] == ["identity"]


def test_a_waiting_joiner_whose_line_goes_is_not_taken_in():
    stage = Listed()
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.refuse = lambda source, node, frame: False
    joiners = [node.endpoint.machines.membership.joiners for node in stage.nodes]
    stage.until(1005)
    while not any(joiners):
        stage.until(stage.clock.now // 10**6 + 1)
    stage.read("c")
    stage.until(5000)
    assert [names(view) for view in stage.views("a", "b")] == [["a", "b"]]


def test_a_member_leaves_those_who_take_in_somebody_that_its_list_does_not_have():
    """Its list is the new one, and theirs the old."""
    stage = Listed()
    stage.group("a", "b")
    late = next(node for node in stage.nodes if node.endpoint.view.members[0].name != node.name)
    stage.named("c", 1000)
    stage.until(1001)
    gone = stage.node("c").endpoint.context.me.identity
    late.step(ListRead(tuple(each for each in simulated_list(1) if each.public != gone)))
    stage.until(4000)
    assert any("(SC5005)" in str(each.text) and "c" in str(each.text) for each in stage.of(late.name, Warn))
    assert len(stage.of(late.name, ExcludedBy)) == 1
    first = next(name for name in "ab" if name != late.name)
    assert [names(view) for view in stage.views(first, "c")] == [sorted([first, "c"])]


class Memory:
    """An excluded member's old memory, and the key, with which it says anything to one member."""

    def __init__(self, stage: Listed, name: str) -> None:
        context = stage.node(name).endpoint.context
        self.stage, self.me, self.identities = stage, context.me, context.identities

    def says(self, node: Process, frame: object, sender: int = 0, payload: bytes = b"") -> None:
        sender = sender or self.me.id
        payload = payload or self.identities.with_signature(sender, dump(frame))
        node.step(FrameReceived(sender, self.me.address, payload, outside=True))
        node.service()


STRANGERS = pytest.mark.parametrize(
    "stranger",
    [None, Identities(SimulatedSigner(1, STRANGER), (), "sim")],
    ids=["the key alone", "an identity of its own"],
)


def hears_of(node: Process, frame: object, stranger: Identities | None, sender: int, address: bytes = b"") -> None:
    payload = dump(frame)
    payload = payload if stranger is None else stranger.with_signature(sender, payload)
    node.step(FrameReceived(sender, address or node.address, payload, outside=True))
    node.service()


def durable() -> tuple[Listed, list[Process]]:
    """A group whose members start again, all at once."""
    stage = Listed(partition="primary", found=2, stable=True)
    stage.group("a", "b", "c")
    for node in stage.nodes:
        node.crash()
    for name in "abc":
        stage.named(name, 2000)
    stage.until(2030)
    return stage, stage.nodes[-3:]


@STRANGERS
def test_a_process_not_on_the_list_settles_no_votes_of_members_that_start_again(stranger):
    """Its VIEW closes the last view of the group, which a beacon names to all who have the key."""
    stage, nodes = durable()
    closed = nodes[0].endpoint.machines.keeper.kept.view
    me = MemberInfo("nobody", 12345, b"evil", 1 << 20, 1472, 1 << 20)
    frame = first_view([me], "fifo", orders.resolve("fifo"), me.id)
    number = closed.view_id.counter + 5
    frame = replace(frame, closes=closed.view_id, view_id=ViewId(number, me.id, (1, me.id)))
    for node in nodes:
        hears_of(node, frame, stranger, me.id, me.address)
    assert {disk.view for disk in stage.disks.values()} == {closed}
    stage.until(6000)
    assert [names(view) for view in {node.endpoint.view for node in nodes}] == [["a", "b", "c"]]


@STRANGERS
def test_a_process_not_on_the_list_ends_no_join_of_a_member_that_starts_again(stranger):
    """Its VIEW has the member, and an older number than the view that the member's file knows."""
    stage, nodes = durable()
    for node in nodes:
        older = first_view([node.endpoint.context.me], "fifo", orders.resolve("fifo"), node.id)
        hears_of(node, older, stranger, 999)
    stage.until(6000)
    assert not any(node.endpoint.over for node in nodes)
    assert [names(view) for view in {node.endpoint.view for node in nodes}] == [["a", "b", "c"]]


@STRANGERS
def test_a_process_not_on_the_list_changes_no_view_on_its_way_to_a_joiner(stranger):
    """With numbers of streams above the true ones, the joiner would deliver little, and its messages nowhere."""
    stage = Listed(order="sequencer")
    stage.group("a", "b")
    stage.named("c", 1200)
    stage.until(1201)
    a, c = stage.node("a"), stage.node("c")
    stage.refuse = lambda source, node, frame: node is c and a.endpoint.context.entered.has(c.id)
    for ms in range(1202, 1500):
        stage.until(ms)
    view = a.endpoint.context.entered
    assert view.has(c.id) and c.endpoint.view is None
    changed = replace(view, origin_base=tuple(each + 1000 for each in view.origin_base))
    hears_of(c, changed, stranger, a.id, a.address)
    assert c.endpoint.view is None
    stage.refuse = lambda source, node, frame: False
    stage.until(4000)
    assert c.endpoint.context.entered.origin_base == view.origin_base


@STRANGERS
@pytest.mark.parametrize(("field", "value"), [("withdrawn", True), ("order", "causal"), ("tries", 7)])
def test_a_process_not_on_the_list_says_nothing_in_the_name_of_a_joiner(stranger, field, value):
    """The process copies the joiner's signed description."""
    stage = Listed()
    stage.group("a", "b")
    stage.named("c", 1000)
    joiners = [node.endpoint.machines.membership.joiners for node in stage.nodes]
    stage.until(1001)
    c = stage.node("c")
    join = c.endpoint.machines.lifecycle._join(1)
    before = [dict(each) for each in joiners]
    for node in stage.nodes[:2]:
        unproven = node.endpoint.counters["frames_unproven"]
        hears_of(node, replace(join, **{field: value}), stranger, c.id, c.address)
        assert node.endpoint.counters["frames_unproven"] == unproven + 1
    assert [dict(each) for each in joiners] == before
    stage.until(4000)
    assert {tuple(names(view)) for view in stage.views("a", "b", "c")} == {("a", "b", "c")}


@STRANGERS
def test_a_process_not_on_the_list_casts_no_vote_of_a_joiner(stranger):
    """With found=2, a would found a group alone."""
    stage = Listed(found=2)
    stage.named("b", 0)
    stage.until(600)
    b = stage.node("b")
    join = b.endpoint.machines.lifecycle._join(1)
    b.crash()
    stage.named("a", 4000)
    stage.until(4001)
    a = stage.node("a")
    for at in range(4020, 6000, 50):
        stage.until(at)
        hears_of(a, replace(join, founder=a.id), stranger, b.id, b.address)
    assert a.endpoint.view is None and not a.endpoint.machines.lifecycle.peers


def test_an_excluded_member_forges_neither_beacons_nor_merges_nor_refusals_nor_answers_to_joiners():
    stage = Listed()
    stage.group("a", "b", "c")
    view = stage.node("a").endpoint.view
    out = view.members[2].name
    memory = Memory(stage, out)
    one, other = (stage.node(member.name) for member in view.members[:2])
    stage.read(out)
    stage.until(2500)
    now, context = stage.views(one.name, other.name), other.endpoint.context
    elsewhere = ViewId(900, memory.me.id, (1, memory.me.id))
    shared = context.settings.shared
    beacon = Beacon("sim", "fifo", context.mechanism, elsewhere, shared=shared)
    forged = [
        beacon,
        MergeAsk((memory.me.id, 1), context.tag),
        Refused("go away", "name", context.settings.nonce),
        Wait(1, "it is blocked: wait", context.settings.nonce),
    ]
    for frame in forged:
        for sender in (memory.me.id, one.id):  # under its own id, and in the name of a member
            before = other.endpoint.counters["frames_unproven"]
            memory.says(other, frame, sender)
            assert other.endpoint.counters["frames_unproven"] == before + 1, (frame, sender)
    assert not other.endpoint.machines.merger.beacons.heard
    plain = dump(beacon)  # without a signature, as one sends that never had an identity
    memory.says(other, beacon, payload=plain)
    recorded = one.endpoint.context.identities.with_signature(one.id, plain)
    memory.says(other, beacon, sender=memory.me.id, payload=recorded)  # another one's, in its own name
    assert not other.endpoint.machines.merger.beacons.heard
    stage.until(6000)
    assert stage.views(one.name, other.name) == now
    # The same beacon by somebody on the list is heard: the test would see that.
    friend = Identities(SimulatedSigner(1, 150), simulated_list(1), "sim")
    answer = replace(beacon, answers=other.endpoint.machines.challenges._numbers()[0])
    memory.says(other, beacon, sender=77, payload=friend.with_signature(77, dump(answer)))
    assert 77 in other.endpoint.machines.merger.beacons.heard


def test_a_recorded_join_does_not_count_with_an_unsigned_number():
    """One that has the key, and a recording, would have the group wait for a member that is long gone."""
    stage = Listed()
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.until(1000)
    c = stage.node("c")
    c.crash()
    acting = next(node for node in stage.nodes[:2] if node.endpoint.machines.membership.acting())
    lifecycle, router = c.endpoint.machines.lifecycle, acting.endpoint._router
    join = lifecycle._join(1)
    tag = acting.endpoint.context.tag
    stolen = next(router._cookies(join, tag))  # any process with the key can compute one
    signs = c.endpoint.context.identities

    def says(**said: object) -> None:
        payload = signs.with_signature(c.id, dump(replace(join, cookie=stolen, **said)))
        acting.step(FrameReceived(c.id, c.address, payload, outside=True))

    says()
    assert not acting.endpoint.machines.membership.joiners
    says(info=signs.signed(replace(join.info, cookie=stolen)))
    assert set(acting.endpoint.machines.membership.joiners) == {c.id}
