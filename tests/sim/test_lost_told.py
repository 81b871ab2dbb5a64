"""``Lost`` tells of messages: nobody is told that none were lost."""

from __future__ import annotations

import pytest
from sim_worlds import quiet

from seqcast.events import Lost
from seqcast.sim import World
from seqcast.sim.options import SECOND


@pytest.mark.long
@pytest.mark.parametrize("order", ["fifo", "total", "causal"])
def test_a_member_that_lost_no_whole_message_is_told_of_none(order):
    """The pieces of a message that is under way when a member is cut off are in packets in which no message ends."""
    world = World(quiet(members=3, order=order, rate=200, filtered="in"), lambda line: None)  # not calm: one is cut off
    world.plan()
    world.clock.run(SECOND)
    view = world.nodes[0].endpoint.view
    nodes = [next(node for node in world.nodes if node.id == member.id) for member in view.members]
    nodes[0].application.sender.on = False
    world.clock.run(2 * SECOND)
    world.network.partition({nodes[0].index}, {node.index for node in nodes[1:]})
    world.clock.run(5 * SECOND)
    world.network.heal()
    world.clock.run(8 * SECOND)
    told = [entry for node in nodes for entry in node.record.log if isinstance(entry, Lost)]
    assert told and all(lost.messages for lost in told), told
    assert not world.settle()
