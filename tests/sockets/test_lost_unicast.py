"""Unicasts that do not arrive while multicasts do, as with a firewall that passes the two multicast ports alone: the
pair is named, one of the two is excluded once, and the others go on. In the engine, simulated, and with nft."""

from __future__ import annotations

import contextlib
import random

import pytest
from engines import HEARTBEAT_MS, SUSPECT_MS, Net, count_reports
from halves import quick
from netns import network  # noqa: F401
from sim_worlds import after_formation, quiet
from talkers import await_, talkers

from seqcast._native.engine import LANE_UNICAST
from seqcast.reports import MemberSuspected
from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import SECOND

MUTE_MS = 3 * SUSPECT_MS
"""How long a member may owe an acknowledgement, or not answer in a new view."""
IDLE_MS = 6 * SUSPECT_MS
"""How long a member that has nothing to say may not answer."""
PORT = 47399


def unicast_of(source: int, target: int):
    """All that one member sends to the other alone is lost."""
    return lambda src, dst, lane, datagram: (src, dst, lane) == (source, target, LANE_UNICAST)


# ---- the engine's rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "mute_ms"), [("new", MUTE_MS), ("owes", MUTE_MS), ("idle", IDLE_MS)])
def test_all_members_know_whose_unicasts_do_not_arrive_where(when, mute_ms):
    net = Net(3)
    if when != "new":
        net.run(SUSPECT_MS + 2 * HEARTBEAT_MS)  # until all have been asked
    net.drop = unicast_of(1, 0)
    if when == "owes":
        net.engines[0].send(b"to be acknowledged")
    net.run(mute_ms - 3 * HEARTBEAT_MS)
    assert all(not engine.links(True) for engine in net.engines)
    net.run(6 * HEARTBEAT_MS)
    assert all(engine.links(True) == [(100, 101)] for engine in net.engines), "both ends and the third member"
    assert all(not engine.links() and not engine.doubted() for engine in net.engines), "it is heard"
    assert all(MemberSuspected(100 + j) not in count_reports(net, i) for i in range(3) for j in range(3))
    net.drop = lambda src, dst, lane, datagram: False
    net.run(4 * HEARTBEAT_MS)
    assert all(not engine.links(True) for engine in net.engines)


def test_a_member_of_which_nothing_is_heard_is_not_called_mute():
    net = Net(3)
    net.run(10 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: src == 1 and (lane != LANE_UNICAST or dst == 0)
    net.run(2 * MUTE_MS)
    assert net.engines[0].links(True) == [] and (100, 101) in net.engines[0].links()


def test_heavy_loss_makes_nobody_mute():
    net, rng = Net(3), random.Random(1)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.3
    for _ in range(100):
        net.run(SUSPECT_MS)
        assert not any(engine.links(True) for engine in net.engines)


# ---- simulated groups --------------------------------------------------------------------------------------------


WAYS = {"one way": ((1, 2),), "both ways": ((1, 2), (2, 1)), "to one": ((0, 2), (1, 2)), "the first": ((0, 1), (1, 0))}
FEW = [
    ("one way", "fifo", "merge"), ("both ways", "total", "primary"), ("to one", "sequencer", "primary"),
    ("the first", "total", "merge"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ways", "order", "partition"), quick(FEW, WAYS, ["fifo", "total", "sequencer"], ["merge", "primary"])
)
def test_one_of_a_pair_is_named_and_excluded_and_the_others_go_on(ways, order, partition):
    ways, lines = WAYS[ways], list[str]()
    options = quiet(members=3, order=order, rate=50, partition=partition, filtered="in")  # not calm: one is excluded
    world = World(options, lines.append)
    world.plan()
    world.clock.run(SECOND)
    (view,) = {node.endpoint.view for node in world.nodes}
    nodes = [next(node for node in world.nodes if node.id == member.id) for member in view.members]
    world.network.mute |= {(nodes[one].index, nodes[other].index) for one, other in ways}
    world.clock.run(5 * SECOND)
    for one, other in ways:
        words = f"from {nodes[one]} to {nodes[other]}"
        for node in (nodes[one], nodes[other]):
            assert any(line.split()[2] == node.name and words in line for line in lines), (node, words)
    together = {node: len(node.endpoint.view.members) for node in nodes if node.endpoint.view}
    assert sorted(together.values())[-2:] == [2, 2], "two go on"
    sizes, delivered = len(after_formation(world)), [len(node.record.log) for node in nodes]
    world.clock.run(15 * SECOND)
    assert len(after_formation(world)) - sizes <= 8, "they try to merge seldom"
    assert sum(len(node.record.log) > before + 200 for node, before in zip(nodes, delivered, strict=True)) >= 2
    world.network.heal()
    assert not world.settle() and not list(check_safety(world.records))


@pytest.mark.long
@pytest.mark.parametrize("to_it", [True, False])
def test_a_primary_group_takes_one_whose_unicasts_are_lost_in_again_only_after_a_while_and_says_why(to_it):
    world = World(quiet(members=3, rate=10, partition="primary", filtered="in"))
    world.plan()
    world.clock.run(SECOND)
    (view,) = {node.endpoint.view for node in world.nodes}
    first, second, third = (next(node for node in world.nodes if node.id == member.id) for member in view.members)

    def lose(node):
        ways = [(other.index, node.index) for other in (first, second)]
        world.network.mute |= {way if to_it else way[::-1] for way in ways}

    lose(third)
    world.clock.run(5 * SECOND)
    assert [len(node.endpoint.view.members) for node in (first, second)] == [2, 2] and third.endpoint.over
    waits = []
    for _ in range(2):
        (known,) = first.endpoint.context.estranged.values()
        waits.append(known.wait_ns)
        until = known.until_ns - first.ahead_ns
        world.start_node(third.name)
        again = world.nodes[-1]
        lose(again)
        sizes = len(after_formation(world))
        world.clock.run(until - SECOND // 2)
        assert len(after_formation(world)) == sizes, "it is taken in again"
        why = f"unicast datagrams between {third.name} and members of the group were lost, and it was excluded"
        assert again.record.waiting.startswith(why) and "set unicast_port" in again.record.waiting
        world.clock.run(until + 5 * SECOND)
        assert again.endpoint.over, "it was taken in, and lost again"
    assert waits[1] == 2 * waits[0]
    world.network.heal()
    assert not world.settle() and not list(check_safety(world.records))


@pytest.mark.long
def test_a_coordinator_that_asks_in_vain_for_a_merge_is_named():
    """a, with the lower id, leads; b does not hear a, or a does not get the answers of b."""
    for deaf in (True, False):
        lines: list[str] = []
        world = World(quiet(members=2, rate=50, split=0), lines.append)
        world.network.partition({0}, {1})
        world.plan()
        world.clock.run(2 * SECOND)
        a, b = sorted(world.nodes, key=lambda node: node.id)
        world.network.heal()
        if deaf:
            world.network.filtered_out.add(a.index)
        else:
            world.network.mute.add((b.index, a.index))
        world.clock.run(30 * SECOND)
        said = [line for line in lines if "asks again and again to merge its group" in line]
        words = "do not reach this member" if deaf else "does not complete it"
        assert len(said) == 1 and said[0].split()[2] == b.name and words in said[0], lines[-5:]


# ---- real sockets ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def passing_only(place, ports):
    """The firewall of a member passes UDP to these ports alone."""
    rules = (
        "add table inet seqcast_filter; add chain inet seqcast_filter input { type filter hook input priority 0; }; "
        f"add rule inet seqcast_filter input ip protocol udp udp dport != {ports} drop"
    )
    place.run("nft", rules)
    try:
        yield
    finally:
        place.run("nft", "delete table inet seqcast_filter")


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_two_members_whose_firewalls_pass_the_two_multicast_ports_alone_say_so_and_continue_apart(network):  # noqa: F811
    with talkers(network, "ab") as made, passing_only(made[0].place, "47310-47311"):
        await_(made, lambda: made[0].members() == ["a"] and made[1].members() == ["b"])
        for each in made:
            warnings = [said["text"] for said in each.of("log") if said["level"] == "WARNING"]
            assert sum("unicast datagrams from b to a do not arrive" in text for text in warnings) == 1, warnings
            assert any("set unicast_port to" in text for text in warnings)


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_the_others_go_on_undisturbed_without_a_member_behind_a_firewall(network):  # noqa: F811
    with talkers(network, "abc") as made:
        with passing_only(made[2].place, "47310-47311"):
            await_(made, lambda: all(each.members() == ["a", "b"] for each in made[:2]))
            views = len(made[0].of("view"))
            before = made[0].got("b")
            await_(made, lambda: made[0].got("b") > before + 500)
            assert len(made[0].of("view")) == views, "no merge is begun that cannot be answered"
        await_(made, lambda: all(sorted(each.members()) == ["a", "b", "c"] for each in made))


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_firewalls_that_pass_unicast_port_suffice(network):  # noqa: F811
    with contextlib.ExitStack() as stack:
        for place in network[:2]:
            stack.enter_context(passing_only(place, f"{{ 47310-47311, {PORT} }}"))
        with talkers(network, "ab", unicast_port=PORT) as made:
            await_(made, lambda: made[0].got("b") > 200 and made[1].got("a") > 200)
            warnings = [said["text"] for each in made for said in each.of("log") if said["level"] == "WARNING"]
            assert all("founded the group alone" in text for text in warnings), warnings
