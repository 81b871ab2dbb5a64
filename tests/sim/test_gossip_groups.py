"""Simulated groups whose reliability is by gossip: all else is as in every run, and so are the checkers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest
from sim_stage import Stage
from sim_worlds import quiet

from seqcast.core.frames.gossiping import Gossip, Has, Least
from seqcast.core.frames.kinds import dump
from seqcast.core.gossip import Alive
from seqcast.core.gossip.tally import Tally
from seqcast.core.machines.gossip import Gossiping
from seqcast.reports import FrameReceived
from seqcast.sim import Options, World, simulate
from seqcast.sim.options import SECOND

GOSSIP = "gossip"
PONG = 11  # SC_TYPE_PONG


def counted(world: World) -> Counter[str]:
    """The counters of all members' engines."""
    return sum((Counter(node.engine.counters()) for node in world.nodes), Counter())


def drawn(seed: int) -> Options:
    """The run of a seed, with each order in turn."""
    return Options.draw(seed, order=("fifo", "sequencer", "records")[seed % 3], reliability=GOSSIP)


@pytest.mark.parametrize("seed", (1, 2, 3, 5))
def test_all_guarantees_hold(seed):
    options = drawn(seed)
    result = simulate(options)
    assert not result.violations, f"{options}: {result.violations[0]}"


@pytest.mark.long
def test_all_guarantees_hold_in_many_seeds():
    found = [(seed, simulate(drawn(seed)).violations) for seed in range(100, 130)]
    assert not [each for each in found if each[1]]


def lossy(**settings: object) -> Options:
    """One second in which 20 % of everything is lost."""
    return replace(quiet(members=4, order="fifo", loss=0.2, rate=200.0, **settings), duration_ns=SECOND)


@pytest.mark.long
@pytest.mark.parametrize(("dynamic", "multicast"), [(True, False), (False, False), (True, True)])
def test_loss_is_repaired_without_acknowledgements_and_tail_probes(dynamic, multicast):
    """PB-12, PB-13: only by gossip do senders learn the positions of others."""
    settings = (("gossip_dynamic", dynamic), ("gossip_multicast", multicast))
    world = World(lossy(reliability=GOSSIP, settings=settings))
    result = world.run()
    counters = counted(world)
    assert not result.violations, result.violations[0]
    assert result.messages > 500 and counters["packets_retransmitted"] > 50
    assert counters["acks_sent"] == counters["probes_sent"] == 0


def test_the_same_group_without_gossip_acknowledges_and_probes():
    """Shows that the previous test can fail."""
    world = World(lossy())
    assert not world.run().violations
    assert counted(world)["acks_sent"] > 50 < counted(world)["probes_sent"]


@pytest.mark.long
def test_without_requests_lost_packets_never_come():
    """PB-06, 4."""

    def silent(self, *args, **kwargs):
        pass

    with mock.patch("seqcast.core.gossip.policy.Gossiper._ask", silent):
        found = simulate(quiet(members=3, order="fifo", loss=0.1, rate=100.0, reliability=GOSSIP)).violations
    assert found


@pytest.mark.long
def test_without_the_entries_of_gossips_for_a_stream_its_sender_has_no_credit():
    """They are the acknowledgements of elsewhere."""

    def deaf(self, frame, sender):
        said = {name: getattr(frame, name) for name in ("digest", "least", "result")}
        of_others = {
            name: tuple(each for each in marks if each.rank != self.context.rank) for name, marks in said.items()
        }
        received(self, replace(frame, **of_others), sender)

    received = Gossiping.received
    with mock.patch.object(Gossiping, "received", deaf):
        found = simulate(quiet(members=3, order="fifo", rate=400.0, reliability=GOSSIP)).violations
    assert found


def test_a_joiner_with_another_reliability_is_refused():
    """Such a wait would be for acknowledgements that nobody sends."""
    stage = Stage(reliability=GOSSIP)
    stage.group("a", "b")
    stage.options = replace(stage.options, reliability="nak")
    stage.named("c", 1000)
    stage.until(2500)
    a, b, c = stage.nodes
    assert a.endpoint.view == b.endpoint.view and len(a.endpoint.view.members) == 2
    assert c.endpoint.over


def test_a_gossip_with_a_rank_that_the_view_does_not_have_is_dropped():
    stage = Stage(reliability=GOSSIP)
    stage.group("a", "b")
    stage.until(1000)
    a, b = stage.nodes
    before = a.endpoint.counters["frames_bad"]
    lists = {"seen": (0, 5)}, {"not_seen": (2,)}, {"counted": (2,)}
    least = Least(2, 1, 1, 0, 0)
    marks = {"digest": (Has(9, 1, 1, 1, 1, 0, 0),)}, {"least": (least,)}, {"result": (least,)}
    for bad in ({"origin": 2}, *lists, *marks):
        frame = replace(Gossip(a.endpoint.view.view_id.tag, 1, 999, 0, (), (1,), (), 1, (1,), (), ()), **bad)
        a.step(FrameReceived(b.endpoint.context.me.id, b.endpoint.context.me.address, dump(frame)))
    assert a.endpoint.counters["frames_bad"] == before + 7


def members_when_gossip_alone_tells_of_one() -> list[str]:
    """The view of a after 600 ms in which nothing comes from c, nor an answer to a ping that b passed on."""
    stage = Stage(reliability=GOSSIP)
    stage.group("a", "b", "c")
    a, _, c = stage.nodes
    carry = stage.network.carry

    def carry_some(source, target, receive, datagram, address):
        if target != a.index or (source != c.index and datagram[2] != PONG):
            carry(source, target, receive, datagram, address)

    stage.network.carry = carry_some
    stage.until(1600)
    return [member.name for member in a.endpoint.view.members]


def test_a_member_that_is_seen_in_gossips_is_not_suspected():
    """PB-11: its gossips come by way of b, and b's list c among those that have seen them."""
    assert members_when_gossip_alone_tells_of_one() == ["a", "b", "c"]
    with mock.patch("seqcast.core.gossip.policy.Alive", lambda members: Alive(())):
        assert members_when_gossip_alone_tells_of_one() == ["a", "b"]


def accepted_after_ms(members: int, messages: int) -> int:
    """Virtual time in which the sender in a quiet group is allowed to send this many messages, which are more than its
    window."""
    settings = (("gossip_average_s", 0.02), ("heartbeat_s", 0.5))
    stage = Stage(reliability=GOSSIP, capacity=1 << 20, settings=settings)
    stage.group(*(f"{number:02}" for number in range(members)))
    sender = stage.nodes[0]
    sender.record.pending += [(0, 1000)] * messages
    sender.service()
    start = now = 1000
    while sender.record.pending:
        assert now - start < 60_000
        stage.until(now := now + 50)
    return now - start


@pytest.mark.long
def test_a_sender_has_the_room_that_the_others_do_not_use():
    """With no more than its share a sender waits for credit again and again, each time for a round of the tally."""

    def tight(self, frame, sender):
        said = {name: getattr(frame, name) for name in ("digest", "least", "result")}
        shares = {name: tuple(each._replace(window=0) for each in marks) for name, marks in said.items()}
        received(self, replace(frame, **shares), sender)

    received = Gossiping.received
    lent = accepted_after_ms(12, 200)
    with mock.patch.object(Gossiping, "received", tight):
        shares = accepted_after_ms(12, 200)
    assert lent < 0.2 * shares, (lent, shares)


@pytest.mark.long
def test_a_sender_in_a_large_group_gets_credit_without_hearing_a_gossip_of_each_member():
    """Every member makes a gossip in 1 s on average; the tally takes a few of all of them together."""
    with_tally = accepted_after_ms(12, 40)
    with mock.patch.object(Tally, "heard", lambda *args: []):
        without = accepted_after_ms(12, 40)
    assert with_tally < 0.4 * without, (with_tally, without)
