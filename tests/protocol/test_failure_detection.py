"""Failure detection: each rule of the engine's detector, and simulated groups that need it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from engines import HEARTBEAT_MS, SUSPECT_MS, Net, count_reports, deaf, forged, make_engine, reports_of
from halves import first_quick
from sim_worlds import after_formation, quiet

from seqcast.core.machines.coordinated import severed
from seqcast.reports import LinksChanged, MemberAlive, MemberSuspected
from seqcast.sim import World
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process
from seqcast.sim.record import Delivered
from seqcast.types import View

HEARTBEAT, PING, PONG = 7, 10, 11


# ---- the engine's rules ------------------------------------------------------------------------------------------


def test_members_that_hear_each_other_doubt_nobody_and_ping_only_whom_no_unicast_came_from():
    net = Net(3)
    net.run(10 * SUSPECT_MS)
    counters = [engine.counters() for engine in net.engines]
    assert all(counted["doubts"] == 0 for counted in counters)
    assert 6 <= sum(counted["pings_sent"] for counted in counters) <= 3 * 3, "an idle pair: at first, and in 4 S"


def test_a_member_that_lost_a_heartbeat_is_pinged_and_its_answer_ends_the_doubt():
    net = Net(2)
    net.drop = lambda src, dst, lane, datagram: src == 1 and datagram[2] == HEARTBEAT
    net.run(10 * SUSPECT_MS)
    counters = net.engines[0].counters()
    assert counters["doubts"] >= 10 and counters["suspicions"] == 0
    # The member lives; but an answer by unicast does not vouch for the link by which it multicasts.
    assert count_reports(net, 0) == {LinksChanged(): 1} and net.engines[0].links() == [(100, 101)]


def test_a_silent_member_is_suspected_after_the_suspicion_time_and_not_before():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: src == 1
    net.run(SUSPECT_MS - HEARTBEAT_MS)
    assert MemberSuspected(101) not in count_reports(net, 0)
    net.run(2 * HEARTBEAT_MS)
    assert count_reports(net, 0) == {MemberSuspected(101): 1, LinksChanged(): 1} and net.engines[0].links() == []
    net.drop = lambda src, dst, lane, datagram: False
    net.run(2 * HEARTBEAT_MS)
    assert count_reports(net, 0)[MemberAlive(101)] == 1
    assert net.engines[0].links() == [] and net.engines[0].doubted() == []


def test_another_member_vouches_for_one_that_is_not_heard():
    net = Net(3)
    net.drop = deaf(1, 0)
    net.run(5 * SUSPECT_MS)
    assert net.engines[0].counters()["vouched"] > 10
    assert MemberSuspected(101) not in count_reports(net, 0)
    assert net.engines[0].links() == [(100, 101)]
    assert net.engines[2].links() == [(100, 101)], "the heartbeats of the one tell everyone whom it does not hear"
    net.drop = lambda src, dst, lane, datagram: False
    net.run(4 * HEARTBEAT_MS)
    assert net.engines[0].links() == net.engines[2].links() == []


def test_a_member_that_vouched_and_falls_silent_too_vouches_no_more():
    net = Net(3)
    net.drop = deaf(1, 0)
    net.run(2 * SUSPECT_MS)
    net.drop = lambda src, dst, lane, datagram: dst == 0
    net.run(SUSPECT_MS + 3 * HEARTBEAT_MS)
    told = count_reports(net, 0)
    assert told[MemberSuspected(101)] == told[MemberSuspected(102)] == 1


def test_a_refused_port_and_silence_for_two_heartbeats_are_enough():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    net.engines[0].refused(bytes([2]), net.now)
    net.run(HEARTBEAT_MS - 2)  # others may vouch meanwhile
    assert MemberSuspected(101) not in count_reports(net, 0)
    net.run(HEARTBEAT_MS + HEARTBEAT_MS // 2 + 4)
    assert count_reports(net, 0)[MemberSuspected(101)] == 1


@pytest.mark.parametrize("evidence", [("silence",), ("port",), ("guard",), ("guard", "port"), ("port", "guard")])
def test_a_suspicion_names_its_evidence(evidence):
    """The first refusal counts; but a member heard since is merely silent."""
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.engines[0].refused(bytes([2]), net.now, guard=True)
    net.run(3 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    for each in evidence:
        if each != "silence":
            net.engines[0].refused(bytes([2]), net.now, guard=each == "guard")
    net.engines[0].reports()
    net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)
    assert reports_of(net.engines[0], MemberSuspected) == [MemberSuspected(101, evidence[0])]


@pytest.mark.parametrize("others_reach_it", [True, False])
def test_a_refused_port_of_a_member_that_is_heard_or_vouched_for_is_not_evidence(others_reach_it):
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    if others_reach_it:  # a firewall that rejects our unicasts, and its multicasts are lost
        net.drop = lambda src, dst, lane, datagram: {src, dst} == {0, 1}
    else:  # its multicasts reach us
        net.drop = lambda src, dst, lane, datagram: {src, dst} == {0, 1} and datagram[2] in (PING, PONG)
    for _ in range(40):
        net.engines[0].refused(bytes([2]), net.now)
        net.run(HEARTBEAT_MS // 2)
    assert MemberSuspected(101) not in count_reports(net, 0)


def test_a_refusal_by_an_address_of_nobody_is_ignored():
    net = Net(2)
    net.engines[0].refused(bytes([9]), net.now)
    net.engines[0].refused(b"", net.now)
    net.engines[0].refused(bytes([1]), net.now)  # our own
    assert net.engines[0].counters()["ports_refused"] == 0


def test_a_member_that_slept_has_no_evidence_for_that_time():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.now += 10 * SUSPECT_MS * MS
    net.engines[0].tick(net.now)  # before the datagrams in its sockets are read
    assert count_reports(net, 0) == {} and net.engines[0].counters()["late"] == 1
    net.run(2 * SUSPECT_MS)
    assert MemberSuspected(101) not in count_reports(net, 0)


@pytest.mark.parametrize(("limit", "factor"), [(1600, 2), (400, 1)])
def test_a_member_that_finds_itself_late_suspects_later_within_bounds(limit, factor):
    net = Net(2, suspect_ns_max=limit * MS)
    net.run(10 * HEARTBEAT_MS)
    net.now += 3 * HEARTBEAT_MS * MS
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 1
    net.run(factor * SUSPECT_MS - 2 * HEARTBEAT_MS)
    assert MemberSuspected(101) not in count_reports(net, 0)
    net.run(4 * HEARTBEAT_MS)
    assert count_reports(net, 0)[MemberSuspected(101)] == 1


def test_local_health_recovers():
    net = Net(2)
    net.run(10 * HEARTBEAT_MS)
    for _ in range(9):
        net.now += 3 * HEARTBEAT_MS * MS
        net.run(1)
    net.run(3 * 8 * SUSPECT_MS + HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: src == 1
    net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)
    assert count_reports(net, 0)[MemberSuspected(101)] == 1


def test_a_member_that_reads_that_it_is_not_heard_trusts_its_suspicions_less():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = deaf(0, 1)
    net.run(SUSPECT_MS + 4 * HEARTBEAT_MS)
    assert net.engines[0].counters()["unheard_by_others"] == 1
    net.drop = lambda src, dst, lane, datagram: src != 0
    net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)
    assert MemberSuspected(102) not in count_reports(net, 0)
    net.run(SUSPECT_MS)
    assert count_reports(net, 0)[MemberSuspected(102)] == 1


def test_a_member_under_verification_is_known_as_such_until_it_is_suspected():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: src == 1
    net.run(3 * HEARTBEAT_MS)
    assert net.engines[0].doubted() == [101]
    net.run(SUSPECT_MS)
    assert net.engines[0].doubted() == []


def enter(net: Net, rank: int, cut: list[int]) -> None:
    """One of three members installs the next view."""
    net.engines[rank].install(
        tag=2, ids=net.ids, addresses=[bytes([m + 1]) for m in range(3)], rank=rank, mechanism=0, sequencer=-1,
        packet_bytes=1472, state_window_bytes=1 << 20,
        window_bytes=1 << 20, forward_window_bytes=1 << 20, unicast_window_bytes=1 << 20, base=[0] * 3,
        origin_base=[0] * 3, cut=cut, marker=2, now_ns=net.now,
    )  # fmt: skip


def test_a_member_still_in_the_view_before_is_alive_and_one_that_left_for_good_is_not():
    net = Net(3, install_ns=2 * SECOND)
    net.run(10 * HEARTBEAT_MS)
    for rank in (0, 1):
        enter(net, rank, cut=[0] * 3)
    net.run(2 * SECOND // MS - HEARTBEAT_MS)
    assert MemberSuspected(102) not in count_reports(net, 0)
    net.run(SUSPECT_MS + 3 * HEARTBEAT_MS)
    assert count_reports(net, 0)[MemberSuspected(102)] == 1
    net.engines[1].close_view(None, 3)
    net.run(SUSPECT_MS + 3 * HEARTBEAT_MS)
    assert count_reports(net, 0)[MemberSuspected(101)] == 1


def test_a_joiner_that_has_not_installed_the_view_answers_for_itself():
    net = Net(2)
    net.engines.append(make_engine(103))
    net.ids.append(103)
    net.got.append([])
    net.markers.append([])
    for rank in (0, 1):
        enter(net, rank, cut=[0] * 2)
    net.run(5 * SUSPECT_MS)
    assert MemberSuspected(103) not in count_reports(net, 0)


def test_only_the_origin_is_answered_by_a_relay():
    """A relay neither chains nor serves strangers, and sends at most one datagram for each one received."""
    net = Net(3)
    net.run(10)
    engine, a = net.engines[1], bytes([1])
    engine.transmit(net.now)

    def out(sender, target, origin, kind=PING, source=a):
        body = target.to_bytes(8, "little") + origin.to_bytes(8, "little")
        engine.receive(forged(kind, sender, body), source, net.now)
        return [(address, datagram[2]) for _, address, datagram in engine.transmit(net.now)]

    assert out(100, 101, 100) == [(a, PONG)]
    assert out(100, 102, 100) == [(bytes([3]), PING)]
    assert out(100, 102, 102) == [] and out(100, 999, 100) == [] and out(999, 102, 999) == []
    assert out(102, 102, 100, PONG) == [], "it is not from the address of that member"
    assert out(102, 102, 100, PONG, bytes([3])) == [(a, PONG)]
    assert out(102, 100, 100, PONG) == [] and out(102, 102, 999, PONG) == []


def test_the_least_of_members_is_given_up_for_cut_links():
    ranks = [1, 2, 3, 4]
    assert severed([(2, 3)], ranks, 1) == {3} == severed([(3, 2)], ranks, 1)
    assert severed([(1, 2)], ranks, 2) == {1} and severed([(1, 4), (4, 1)], ranks, 1) == {4}
    assert severed([(2, 3), (2, 4), (1, 2)], ranks, 1) == {2}
    assert severed([(1, 2), (1, 3)], ranks, 1) == {2, 3}


# ---- simulated groups --------------------------------------------------------------------------------------------


class NoProbes(World):
    """Members that do not verify: no ping reaches anyone."""

    def unicast(self, source, to, datagram):
        if datagram[2] not in (PING, PONG):
            super().unicast(source, to, datagram)


@pytest.mark.parametrize("kind", first_quick([World, NoProbes]))
def test_lost_heartbeats_exclude_a_living_member_only_if_nobody_verifies(kind):
    """Multicast is filtered for a while, as by a switch whose IGMP snooping forgot its querier; unicasts pass."""
    world = kind(quiet(members=4, rate=0.5, order="fifo"))

    def multicast(source, datagram):
        if not SECOND < world.clock.now < 2 * SECOND or datagram[2] != HEARTBEAT or world.network.healed:
            World.multicast(world, source, datagram)

    world.multicast = multicast
    world.run()
    assert (after_formation(world) == [4]) is (kind is World)


@pytest.mark.parametrize("kind", first_quick([World, NoProbes]))
def test_a_link_cut_in_one_direction_for_a_while_excludes_nobody_if_others_vouch(kind):
    world = kind(quiet(members=4, order="fifo", rate=50))
    world.clock.at(1500 * MS, world.network.cut.update, {(1, 2), (3, 1)})
    world.clock.at(2200 * MS, world.faults.heal)
    world.run()
    assert (after_formation(world) == [4]) is (kind is World)


@pytest.mark.long
def test_under_heavy_loss_a_living_member_stays_if_probes_are_sent():
    """Of 40 seeds, all members stay in 39 with probes and in 16 without: of 8, in 7 or 8 and at most 5."""
    stayed = Counter()
    for kind in (World, NoProbes):
        for seed in range(8):
            world = kind(replace(quiet(seed, members=4, order="fifo", rate=1), verify_ns=0, duration_ns=20 * SECOND))
            lossy = replace(world.options, loss=0.6)
            world.clock.at(1 * SECOND, setattr, world.network, "options", lossy)
            world.plan()
            world.clock.run(world.options.duration_ns)
            stayed[kind] += after_formation(world) == [4]
    assert stayed[World] >= 7 and stayed[NoProbes] <= 5, stayed


@pytest.mark.parametrize("hosts", first_quick([False, True]))
@pytest.mark.parametrize(("verify_ns", "one"), [(100 * MS, True), (0, False)])
def test_members_that_crash_together_make_one_view_though_they_are_noticed_apart(hosts, verify_ns, one):
    """Without the wait for verifications the first crash noticed causes a view of its own, with the other crashed
    members in it."""
    outcomes = []
    for seed in range(6):
        world = World(quiet(seed, members=6, verify_ns=verify_ns, order="total", hosts=hosts, rate=3))
        for i, index in enumerate((1, 3, 5)):
            world.clock.at((1500 + 12 * i) * MS, lambda world=world, index=index: world.nodes[index].crash())
        result = world.run()
        assert not result.violations
        # An attempt with a dead survivor would be begun again without that one; there must be none.
        attempts = max(
            entry.view_id.flush[0] for node in world.nodes for entry in node.record.log if isinstance(entry, View)
        )
        outcomes.append(after_formation(world) == [6, 3] and attempts == 1)
        if not one and not outcomes[-1]:
            break
    assert all(outcomes) if one else not all(outcomes)


def by_rank(world: World) -> list[Process]:
    """The members of the one view, the coordinator first."""
    (view,) = {node.endpoint.view for node in world.nodes}
    return [next(node for node in world.nodes if node.id == member.id) for member in view.members]


def deafen(world: World, listener: int, speaker: int) -> None:
    """From now on ``listener`` does not hear ``speaker`` (ranks)."""
    members = by_rank(world)
    world.network.cut.add((members[speaker].index, members[listener].index))


def stalled(world: World) -> list[str]:
    """Pairs of members in one view of which one got no messages from the other in the last second of the faults."""

    def received() -> Counter[tuple[Process, int]]:
        return Counter((n, entry.sender) for n in world.nodes for entry in n.record.log if isinstance(entry, Delivered))

    world.clock.run(world.options.duration_ns - SECOND)
    before = received()
    world.clock.run(world.options.duration_ns)
    after = received()
    inside = [(node, node.endpoint.view) for node in world.nodes if node.endpoint.view]
    return [
        f"{member} to {node}"
        for node, view in inside
        for member in view.members
        if after[node, member.id] - before[node, member.id] < 100
    ]


@pytest.mark.parametrize(
    ("order", "link_ns", "stalls"),
    [
        ("fifo", 800 * MS, False),
        ("fifo", 3600 * SECOND, True),
        pytest.param("total", 800 * MS, False, marks=pytest.mark.long),
    ],
)
def test_a_link_between_two_that_do_not_coordinate_stalls_nobody_for_ever(order, link_ns, stalls):
    """Without the rule the acks of one member never reach the other, whose stream stops."""
    # "primary": an excluded member stays out; else both would merge, and the link be judged anew, ever more rarely.
    world = World(quiet(members=4, order=order, rate=400, link_ns=link_ns, capacity=64 << 10, partition="primary"))
    world.plan()
    world.clock.run(SECOND)
    deafen(world, 2, 3)
    assert bool(stalled(world)) is stalls
    assert after_formation(world) == ([4] if stalls else [4, 3])


@pytest.mark.parametrize(
    ("transport", "check"), [("multicast", "does it drop 224.0.0.0/4"), ("unicast", "Firewalls must pass UDP in both")]
)
def test_both_ends_of_a_cut_link_and_the_acting_member_warn_once(transport, check):
    lines: list[str] = []
    world = World(quiet(members=4, order="fifo", rate=5, partition="primary", transport=transport), lines.append)
    world.plan()
    world.clock.run(SECOND)
    members = [node.name for node in by_rank(world)]
    deafen(world, 2, 3)
    world.clock.run(world.options.duration_ns)
    warned = [line.split()[2] for line in lines if "warns" in line]
    assert sorted(warned) == sorted([members[0], members[2], members[3]])
    said = f"warns: {members[2]} does not hear {members[3]}"
    assert sum(said in line and check in line and "(SC2213)" in line for line in lines) == 3
    assert sum(node.endpoint.counters["links_cut"] for node in world.nodes) == 3


def test_a_crash_is_noticed_by_its_closed_port_long_before_the_suspicion_time():
    times = {}
    for hosts in (False, True):
        world = World(quiet(members=4, order="total", rate=20, hosts=hosts))
        world.plan()
        world.clock.run(2 * SECOND)
        world.nodes[0].crash()
        while any(node.up and (not node.endpoint.view or len(node.endpoint.view.members) != 3) for node in world.nodes):
            world.clock.run(world.clock.now + MS)
        times[hosts] = (world.clock.now - 2 * SECOND) / MS
    assert times[False] < 3.5 * HEARTBEAT_MS < SUSPECT_MS < times[True] < SUSPECT_MS + 3 * HEARTBEAT_MS


@pytest.mark.long
def test_a_busy_python_suspends_nobody_even_across_a_view_change():
    """Its engine answers instead, in the view before and in none."""
    world = World(quiet(members=4, order="total", settings=(("heartbeat_s", 0.01), ("suspect_s", 0.08)), rate=20))
    world.clock.at(1500 * MS, lambda: world.nodes[2].stall(2600 * MS))
    world.clock.at(1900 * MS, world.start_node, "late")
    result = world.run()
    named = "told that senders wait for m2"  # which takes nothing meanwhile
    assert not [said for said in result.violations if named not in said]
    assert after_formation(world) == [4, 5]


@pytest.mark.long
def test_a_member_that_is_paused_now_and_then_does_not_blame_others_for_it():
    """A machine that is short of processors: each member stops in turn, first for less than the suspicion time, then
    for more. By then each knows of its own delay."""

    def excluded(suspect_ns_max: int) -> int:
        settings = (("heartbeat_s", 0.01), ("suspect_s", 0.04), ("suspect_s_max", suspect_ns_max / SECOND))
        world = World(quiet(members=4, order="fifo", rate=20, settings=settings))
        world.plan()
        world.clock.run(SECOND)
        for number in range(14):
            for i, node in enumerate(world.nodes):
                begin = world.clock.now + (200 * number + 50 * i) * MS
                world.clock.at(begin, node.pause, begin + (30 if number < 3 else 90) * MS)
        world.clock.run(world.options.duration_ns)
        return len(after_formation(world)) - 1

    assert excluded(160 * MS) == 0 < excluded(40 * MS)
