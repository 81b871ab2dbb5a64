"""A simulated group that sends too much, so that its senders wait: which member is named as slow."""

from dataclasses import replace

import pytest
from sim_worlds import quiet

from seqcast.sim import World
from seqcast.sim.options import SECOND


def flood(order):
    options = quiet(order=order, members=3, rate=2000, bytes_max=4000, capacity=64 << 10, ring_packets=64)
    return World(replace(options, duration_ns=7 * SECOND // 4))


@pytest.mark.long
@pytest.mark.parametrize("order", ["records", pytest.param("sequencer", marks=pytest.mark.long)])
def test_of_receivers_that_are_all_as_fast_none_is_named(order):
    world = flood(order)
    assert world.options.none_is_slow and world.run().violations == []
    assert all(node.engine.counters()["credit_stalls"] > 100 for node in world.nodes)


def test_a_run_in_which_none_should_be_slow_fails_if_one_is_named():
    world = flood("records")
    world.clock.at(SECOND // 2, lambda: setattr(world.nodes[1].record, "slow_until", 2 * SECOND))
    said = {each.partition(" is told ")[2] for each in world.run().violations}
    name = f"that senders wait for {world.nodes[1].name}, which is"
    assert {f"{name} stuck"} <= said <= {f"{name} stuck", f"{name} slow"}
