"""Paths drop datagrams that are too large for them, without a word."""

from __future__ import annotations

import pytest
from halves import first_quick
from sim_worlds import quiet

from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import SECOND, Options
from seqcast.sim.world import simulate


@pytest.mark.long
@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_a_view_with_smaller_packets_follows_and_costs_nobody_its_membership(membership):
    world = World(quiet(members=4, narrows=1, membership=membership, rate=200, bytes_max=30_000, packet_bytes=1472))
    world.faults.narrow_paths = lambda share, which: None
    world.plan()
    world.clock.run(SECOND)
    views = {node.view for node in world.nodes}
    assert {node.endpoint.context.entered.packet_bytes for node in world.nodes} == {1472} and len(views) == 1
    world.network.narrow = {(0, 2): 1400, (1, 3): 1372}
    world.clock.run(3 * SECOND)
    assert {node.endpoint.context.entered.packet_bytes for node in world.nodes} == {1372}
    assert [len(node.view.members) for node in world.nodes] == [4] * 4
    world.network.narrow = {}
    world.clock.run(4 * SECOND)
    assert {node.endpoint.context.entered.packet_bytes for node in world.nodes} == {1372}, (
        "a small gain is not worth it"
    )
    assert not world.settle() and not list(check_safety(world.records))


@pytest.mark.parametrize("seed", first_quick(range(2)))
def test_paths_that_shrink_lose_nothing(seed):
    assert not simulate(Options.draw(seed + 1, family="paths")).violations
