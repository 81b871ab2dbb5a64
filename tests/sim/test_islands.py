"""Members of which not all hear each other's multicasts are one group all the same."""

from __future__ import annotations

import pytest
from sim_worlds import quiet

from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import SECOND, Options
from seqcast.sim.world import simulate

HEARD = {0: (1, 2, 3), 1: (0, 2), 2: (3, 4), 3: (0, 1, 2, 4), 4: (0, 2, 3)}
"""By member: those that are heard by multicast."""


@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
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
def test_two_that_hear_only_members_of_each_others_views_meet(keys):
    """Nobody hears the coordinator of the other view, but heartbeats of others, whose views may not last."""
    world = World(quiet(members=4, order="fifo", transport="auto", rate=20, **keys))
    world.network.deaf = {(0, 2), (0, 3), (2, 0), (2, 1), (1, 2), (3, 0), (3, 1)}
    world.plan()
    world.clock.run(SECOND // 2)
    assert {node.view.members[0].name for node in world.nodes} == {"m0", "m2"}, "m3 alone hears another, which is m1"
    world.clock.run(6 * SECOND)
    assert {len(node.view.members) for node in world.nodes} == {4}


@pytest.mark.parametrize("partition", ["merge", "primary"])
@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_not_a_datagram_more_is_sent_than_by_multicast_alone_if_all_hear_all(members, partition):
    sent = {}
    for transport in ("auto", "multicast"):
        world = World(quiet(members=members, partition=partition, transport=transport, rate=50))
        world.plan()
        world.clock.run(4 * SECOND)
        assert {len(node.view.members) for node in world.nodes} == {members}
        sent[transport] = [dict(node.record.datagrams) for node in world.nodes]
    assert sent["auto"] == sent["multicast"]


@pytest.mark.parametrize("seed", range(2))
def test_ways_that_change_cost_nobody_its_membership(seed):
    assert not simulate(Options.draw(seed + 1, family="islands")).violations
