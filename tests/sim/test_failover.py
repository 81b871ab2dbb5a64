"""The sequencer crashes at full load: how long until the survivors send and deliver again, in virtual time.

A real machine adds the wait for a processor; bench/failover.py measures both together.
"""

from collections.abc import Callable

import pytest

from seqcast.sim import Options, World
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process
from seqcast.sim.record import Delivered
from seqcast.types import ORDERS

ONES = [order for order in ORDERS if order != "total"]
LONGEST_NS = 10 * MS
"""From the first suspicion until each survivor has delivered a message of its own sent in the new view. A stall may
take 20 ms: the rest is the scheduler's."""
LATE_NS = 40 * MS
SOON_NS = 4 * MS
"""The same, counted from the installation by a survivor that is late."""


class Crowded:
    """Four members that always have more to send than credit allows; the sequencer, or the coordinator, crashes."""

    def __init__(self, order: str) -> None:
        quiet = {"rate": 1, "unicasts": 0.0, "waits": 0.0, "spread_ns": 0}
        world = World(Options(order=order, capacity=128 << 10, together=1.0, **quiet))
        world.plan()
        self.clock, self.nodes = world.clock, world.nodes
        self.clock.run(300 * MS)
        self.run(10 * MS)
        assert all(node.record.pending for node in self.nodes)
        view = self.nodes[0].view
        assert view is not None and len(view.members) == len(self.nodes)
        self.old = view.view_id
        victim = next(node for node in self.nodes if node.id == view.members[max(view.sequencer, 0)].id)
        victim.crash()
        self.survivors = [node for node in self.nodes if node is not victim]
        self.run(SECOND, lambda: any(node.endpoint.machines.membership.suspected for node in self.survivors))

    def run(self, ns: int, done: Callable[[], bool] = lambda: False, each_ns: int = MS // 5) -> int:
        """Runs until this has happened, or for this long; returns the time taken."""
        begin = self.clock.now
        while self.clock.now < begin + ns and not done():
            for node in self.nodes:
                pending = node.record.pending
                if node.can_run and len(pending) < 200:
                    pending += [(0, 1000)] * (200 - len(pending))
                    node.service()
            self.clock.run(self.clock.now + each_ns)
        return self.clock.now - begin

    def has_changed(self, node: Process) -> bool:
        """Is this survivor in the new view?"""
        return node.record.view is not None and node.record.view.view_id != self.old

    def is_back(self, node: Process) -> bool:
        """Has this survivor delivered a message of its own whose sending began in the new view?"""
        sent = node.record.sent
        return self.has_changed(node) and any(
            isinstance(entry, Delivered) and entry.sender == node.id and sent[entry.counter][1] != self.old
            for entry in node.record.log
        )


@pytest.mark.parametrize("order", ONES)
def test_survivors_of_the_sequencer_deliver_their_messages_within_a_few_ms_of_its_detection(order):
    load = Crowded(order)
    assert load.run(SECOND, lambda: all(map(load.is_back, load.survivors))) <= LONGEST_NS


@pytest.mark.parametrize("order", ONES)
def test_a_survivor_that_enters_the_next_view_late_soon_holds_nobody_up_any_more(order):
    """The late survivor has dropped the others' packets meanwhile, and the pauses of their tail probes have doubled. In
    total-1999 the sequencer tells the survivor that the view begins, again after a pause at most as long as the
    delay."""
    load = Crowded(order)
    acting, late = load.survivors[0], load.survivors[-1]
    load.run(SECOND, lambda: load.has_changed(acting), each_ns=MS // 100)
    assert not load.has_changed(late)
    late.stall(load.clock.now + LATE_NS)
    load.run(LATE_NS)
    limit = LATE_NS if order == "total-1999" else SOON_NS
    assert load.run(SECOND, lambda: all(map(load.is_back, load.survivors))) <= limit
