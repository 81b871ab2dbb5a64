"""Members of which not all hear each other's multicasts are one group all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halves import first_quick, quick
from sim_worlds import quiet

from seqcast.core.vocabulary import SeedsFound
from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import PINNED, SECOND, Options
from seqcast.sim.process import Process
from seqcast.sim.world import simulate

HEARD = {0: (1, 2, 3), 1: (0, 2), 2: (3, 4), 3: (0, 1, 2, 4), 4: (0, 2, 3)}
"""By member: those that are heard by multicast."""


@pytest.mark.parametrize("membership", first_quick(["coordinated", "token-ring"]))
def test_members_with_incomplete_discovery_end_in_one_view_and_stay(membership):
    """NBC-04, with both kinds of membership."""
    world = World(quiet(members=5, order="total", transport="auto", membership=membership, rate=20))
    world.network.deaf = {(one, other) for other in range(5) for one in set(range(5)) - {other, *HEARD[other]}}
    world.plan()
    world.clock.run(3 * SECOND)
    (view,) = {node.view for node in world.nodes}
    assert len(view.members) == 5
    world.clock.run(6 * SECOND)
    assert {node.view for node in world.nodes} == {view}
    assert not world.settle() and not list(check_safety(world.records))


@pytest.mark.parametrize("keys", [{}, {"keyed": True, "settings": (("rekey_s", 0.5),)}])
def test_two_that_hear_only_members_of_each_others_views_meet(keys, monkeypatch):
    """Nobody hears the coordinator of the other view, but heartbeats of others, whose views may not last."""
    monkeypatch.setattr("seqcast.core.machines.lifecycle.HEARS_MAX", 0)  # or they would meet before they found groups
    world = World(quiet(members=4, order="fifo", transport="auto", rate=20, **keys))
    world.network.deaf = {(0, 2), (0, 3), (2, 0), (2, 1), (1, 2), (3, 0), (3, 1)}
    world.plan()
    world.clock.run(SECOND // 2)
    assert {node.view.members[0].name for node in world.nodes} == {"m0", "m2"}, "m3 alone hears another, which is m1"
    world.clock.run(6 * SECOND)
    assert {len(node.view.members) for node in world.nodes} == {4}


@pytest.mark.parametrize("third", [0, 1, 2])
@pytest.mark.parametrize("transport", ["auto", "unicast"])
def test_two_that_only_a_third_hears_found_a_group_of_three_with_the_third(transport, third, monkeypatch):
    """Multicasts do not pass between the two, or the seeds of each lead to the third alone."""
    world = World(quiet(members=3, transport=transport, found=3, partition="primary", rate=20))

    def seeds(process):
        known = [node for node in world.nodes if node is not process and third in (node.index, process.index)]
        return (SeedsFound(tuple(node.public for node in known)),) if transport == "unicast" else ()

    monkeypatch.setattr(Process, "_seeds", seeds)
    one, other = {0, 1, 2} - {third}
    world.network.deaf = {(one, other), (other, one)}
    world.plan()
    world.clock.run(3 * SECOND)
    assert [len(node.view.members) if node.view else 0 for node in world.nodes] == [3, 3, 3]
    assert len({node.view for node in world.nodes}) == 1 and not world.settle()


@pytest.mark.parametrize("members", [4, pytest.param(3, marks=pytest.mark.long)])
def test_joiners_whose_multicasts_pass_no_more_found_a_group(members):
    """They know where the others are, and hear each other by copies alone."""
    world = World(quiet(members=members, transport="auto", found=members, partition="primary", rate=20))
    world.plan()
    world.clock.run(SECOND // 50)
    world.network.deaf = {(one, other) for one in range(members) for other in range(members) if one != other}
    world.clock.run(5 * SECOND)
    assert [len(node.view.members) if node.view else 0 for node in world.nodes] == [members] * members


@pytest.mark.parametrize("membership", first_quick(["coordinated", "token-ring"]))
def test_a_joiner_that_hears_heartbeats_of_one_member_and_that_nobody_hears_is_admitted(membership):
    """The process founds no group, and hears no beacons of the coordinator."""
    world = World(quiet(members=3, transport="auto", found=2, partition="primary", membership=membership, rate=20))
    world.plan()
    world.clock.run(SECOND)
    (view,) = {node.view for node in world.nodes}
    heard = next(node for node in world.nodes if node.id == view.members[1].id)
    world.network.deaf = {(3, node.index) for node in world.nodes}
    world.network.deaf |= {(node.index, 3) for node in world.nodes if node is not heard}
    world.start_node("late")
    world.clock.run(5 * SECOND)
    assert [len(node.view.members) if node.view else 0 for node in world.nodes] == [4] * 4
    assert not world.settle()


@pytest.mark.parametrize("partition", ["merge", "primary"])
@pytest.mark.parametrize("members", first_quick([1, 2, 3, 5]))
def test_not_a_datagram_more_is_sent_than_by_multicast_alone_if_all_hear_all(members, partition):
    sent = {}
    for transport in ("auto", "multicast"):
        world = World(quiet(members=members, partition=partition, transport=transport, rate=50))
        world.plan()
        world.clock.run(4 * SECOND)
        assert {len(node.view.members) for node in world.nodes} == {members}
        sent[transport] = [dict(node.record.datagrams) for node in world.nodes]
    assert sent["auto"] == sent["multicast"]


@pytest.mark.parametrize("seed", first_quick(range(2)))
def test_ways_that_change_cost_nobody_its_membership(seed):
    assert not simulate(Options.draw(seed + 1, family="islands")).violations


@pytest.mark.parametrize(
    ("seed", "membership"), quick([(110, "coordinated")], (101, 110, 215, 306), ["coordinated", "token-ring"])
)
def test_nor_do_they_in_a_primary_group_that_a_majority_has_founded(seed, membership):
    options = Options.draw(seed, family="islands", partition="primary", membership=membership)
    assert options.found == options.members // 2 + 1
    assert not simulate(options).violations


def test_a_family_of_storms_draws_such_groups_too():
    drawn = [Options.draw(seed, family="islands") for seed in range(PINNED + 1, PINNED + 21)]
    assert {one.partition for one in drawn} == {"merge", "primary"}
    assert all((one.found > 1) == (one.partition == "primary") for one in drawn)


def test_any_seed_may_have_deaf_pairs_whatever_its_kind_of_partition():
    drawn = [Options.draw(seed) for seed in range(PINNED + 1, PINNED + 101)]
    assert {one.partition for one in drawn if one.islands and one.family != "islands"} == {"merge", "primary"}


def test_a_third_of_all_seeds_have_no_or_partial_multicast():
    drawn = [Options.draw(seed) for seed in range(PINNED + 1, PINNED + 401)]
    assert sum(one.transport == "unicast" or bool(one.islands) for one in drawn) >= len(drawn) / 3
    assert min(sum(one.transport == "unicast" for one in drawn), sum(bool(one.islands) for one in drawn)) >= 40


def firewalled(partition="merge", transport="auto", first=True):
    """Two members, and one that all hear and that hears nothing, as behind a firewall; ``first``: this one founds a
    group before the others start."""
    world = World(quiet(members=1 if first else 2, transport=transport, rate=20, partition=partition))
    deaf = 0 if first else 2
    world.network.cut = {(each, deaf) for each in range(3) if each != deaf}
    world.plan()
    world.clock.run(SECOND)
    while len(world.nodes) < 3:
        world.start_node(f"later {len(world.nodes)}")
    world.clock.run(13 * SECOND)
    return world, world.nodes[deaf], [node for node in world.nodes if node.index != deaf]


@pytest.mark.parametrize("transport", first_quick(["auto", "multicast"]))
def test_a_group_that_hears_nobody_keeps_nobody_from_founding_one_and_is_told_of(transport):
    world, deaf, others = firewalled(transport=transport)
    assert [len(node.view.members) for node in others] == [2, 2] and len(deaf.view.members) == 1
    said = "is heard, and answers nothing: datagrams from here do not arrive there. A firewall on that machine"
    assert all(any(said in text for text in node.record.warnings) for node in others)
    assert not world.settle() and not list(check_safety(world.records))


def test_none_is_founded_beside_a_primary_group_that_hears_nobody_and_the_join_says_why():
    world, _, others = firewalled(partition="primary")
    assert [node.view for node in others] == [None, None]
    assert all("is heard, and answers nothing" in node.endpoint.lacks for node in others)
    assert not world.settle() and not list(check_safety(world.records))


def test_a_joiner_says_no_longer_that_a_group_is_heard_once_that_group_is_gone():
    world = World(quiet(members=1, transport="multicast", rate=1, partition="primary"))
    world.network.cut = {(1, 0)}
    world.plan()
    world.clock.run(SECOND)
    world.options = replace(world.options, found=2)
    world.start_node("later")
    world.clock.run(6 * SECOND)
    group, later = world.nodes
    assert "is heard, and answers nothing" in later.endpoint.lacks
    group.crash()
    world.clock.run(9 * SECOND)
    assert "no group is heard" in later.endpoint.lacks


def test_a_group_names_another_one_that_is_heard_and_does_not_answer():
    """Or that asks for no merge, and should."""
    world, _, others = firewalled(first=False)
    world.clock.run(35 * SECOND)
    assert [len(node.view.members) for node in others] == [2, 2]
    said = [text for node in others for text in node.record.warnings if "is heard, and does not answer" in text]
    assert len(said) == 1 and said[0].endswith("(SC3212)")
    assert not world.settle() and not list(check_safety(world.records))
