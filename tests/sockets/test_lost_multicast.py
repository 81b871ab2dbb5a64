"""A member that loses multicast and keeps unicast, as behind a switch whose IGMP snooping has no querier: it is named
and excluded, and the others go on. Simulated, in the engine, and with nft in network namespaces."""

from __future__ import annotations

import contextlib

import pytest
from engines import HEARTBEAT_MS, SUSPECT_MS, Net, count_reports
from halves import quick
from netns import network  # noqa: F401
from sim_worlds import after_formation, quiet
from talkers import await_, talkers

from seqcast._native.engine import LANE_UNICAST
from seqcast.core.machines.coordinated import severed
from seqcast.reports import MemberSuspected
from seqcast.sim import World
from seqcast.sim.checkers.primary import check_filtered
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import MS, SECOND

# ---- the engine's rules ------------------------------------------------------------------------------------------


def multicast_of(source: int):
    """All multicasts of one member are lost; its unicasts pass."""
    return lambda src, dst, lane, datagram: src == source and lane != LANE_UNICAST


def test_an_answer_by_unicast_vouches_for_life_and_not_for_the_link():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = multicast_of(1)
    net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)
    assert net.engines[0].links() == net.engines[1].links() == [(100, 101), (102, 101)], "all know, itself too"
    assert net.engines[0].doubted() == [] and MemberSuspected(101) not in count_reports(net, 0)
    assert net.engines[1].counters()["unheard_by_others"] == 2
    net.drop = lambda src, dst, lane, datagram: False
    net.run(4 * HEARTBEAT_MS)
    assert all(engine.links() == [] for engine in net.engines)


def test_a_member_that_hears_no_multicast_says_so_though_it_is_answered():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: dst == 1 and lane != LANE_UNICAST
    net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)
    assert all(engine.links() == [(101, 100), (101, 102)] for engine in net.engines)
    assert all(count_reports(net, i)[MemberSuspected(100 + j)] == 0 for i in range(3) for j in range(3))


def test_missing_packets_reach_a_member_without_multicast_by_unicast():
    """So nobody's sends stop before the exclusion; without probes by unicast the member never learns of new packets."""
    net = Net(3, window=16 << 10)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: dst == 1 and lane != LANE_UNICAST
    sent = 0
    for _ in range(4000):
        sent += net.engines[0].send(bytes(1000)) == 1
        net.step()
    assert sent > 100 and len(net.got[1]) > 100, "a window holds 16"


def test_the_acting_member_is_given_up_if_it_is_the_one_with_the_cut_links():
    ranks = [1, 2, 3]
    assert severed([(1, 2), (1, 3)], ranks) == {1}
    assert severed([(1, 3)], ranks, links=[(1, 3), (1, 2)]) == {1}, "the others ripen a moment later"
    assert severed([(1, 2), (2, 1)], ranks) == {2}
    assert severed([(1, 2), (1, 3)], ranks, 1) == {2, 3}, "unless nobody took the turn that it left"


# ---- simulated groups --------------------------------------------------------------------------------------------


def unsettled(world, lost, time_ns):
    """The broken conditions, ``time_ns`` from now."""
    packets = {record.id: record.packets_sent for record in world.records if record.up}
    world.clock.run(world.clock.now + time_ns)
    return list(check_filtered(world.records, lost.record, packets))


FEW = [
    ("fifo", 2, "merge", "in"), ("fifo", 2, "primary", "out"), ("total", 0, "merge", "out"),
    ("total", 0, "primary", "both"), ("total", 1, "merge", "both"), ("total", 1, "primary", "in"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "rank", "partition", "kind"),
    [each for each in quick(FEW, ["fifo", "total"], [2, 0, 1], ["merge", "primary"], ["in", "out", "both"])
     if (each.values[0] == "fifo") is (each.values[1] == 2)],
)  # fmt: skip
def test_the_others_go_on_without_a_member_that_lost_multicast(order, rank, partition, kind):
    lines: list[str] = []
    world = World(quiet(members=4, order=order, rate=50, partition=partition, filtered=kind), lines.append)
    world.plan()
    world.clock.run(SECOND)
    (view,) = {node.endpoint.view for node in world.nodes}
    lost = next(node for node in world.nodes if node.id == view.members[rank].id)
    if kind != "out":
        world.network.filtered_in.add(lost.index)
    if kind != "in":
        world.network.filtered_out.add(lost.index)
    began = world.clock.now
    limit = began + 1600 * MS + 800 * MS + 600 * MS
    while (wrong := unsettled(world, lost, 10 * MS)) and world.clock.now < limit:
        pass
    assert not wrong
    others = [node for node in world.nodes if node is not lost]
    assert {node.endpoint.view.rank(lost.id) for node in others} == {-1}
    warned = {line.split()[2] for line in lines if f" and {lost} will be excluded if this continues" in line}
    assert warned >= {lost.name}, "it is told what to check"
    assert warned & {node.name for node in others}
    assert sum(f"and {lost} will be excluded" in line for line in lines) == len(warned), "once each"
    # And they stay alone: no merge before that member is heard, and hears.
    sizes = len(after_formation(world))
    apart = 0
    for _ in range(30):
        apart += not unsettled(world, lost, 100 * MS)
    assert apart >= 27, f"only {apart} of 30 times; {after_formation(world)[sizes:]}"
    assert not world.settle() and not list(check_safety(world.records))


def test_a_network_without_multicast_leaves_nobody_waiting():
    world = World(quiet(members=4, order="total", rate=100, filtered="in"))
    world.plan()
    world.clock.run(SECOND)
    world.network.filtered_in |= {node.index for node in world.nodes}
    world.clock.run(6 * SECOND)
    assert {len(node.endpoint.view.members) for node in world.nodes} == {1}
    assert not any(node.record.pending for node in world.nodes)
    assert not world.settle() and not list(check_safety(world.records))


# ---- real sockets ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_multicast(place, hooks):
    """The firewall of a member drops datagrams to multicast addresses, IGMP apart."""
    rules = "add table inet seqcast_filter"
    for hook in hooks:
        rules += f"; add chain inet seqcast_filter {hook} {{ type filter hook {hook} priority 0; }}"
        rules += f"; add rule inet seqcast_filter {hook} ip protocol udp ip daddr 224.0.0.0/4 drop"
    place.run("nft", rules)
    try:
        yield
    finally:
        place.run("nft", "delete table inet seqcast_filter")


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
@pytest.mark.parametrize(("hooks", "rank"), [(("input",), 0), (("output",), 1), (("input", "output"), 0)])
def test_a_group_goes_on_without_a_member_whose_multicast_is_dropped(network, hooks, rank):  # noqa: F811
    with talkers(network, "abc", transport="multicast") as made:
        lost = made[rank]
        others = [each for each in made if each is not lost]
        with no_multicast(lost.place, hooks):
            names = sorted(each.name for each in others)
            await_(made, lambda: all(sorted(each.members()) == names for each in others))
            marks = {(one.name, other.name): one.got(other.name) for one in others for other in others}
            await_(made, lambda: all(one.got(o.name) > marks[one.name, o.name] + 100 for one in others for o in others))
            warnings = [said["text"] for each in others for said in each.of("log")]
            assert any(f"{lost.name} will be excluded if this continues. Check" in text for text in warnings)
        await_(made, lambda: all(sorted(each.members()) == ["a", "b", "c"] for each in made))
