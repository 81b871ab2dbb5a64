"""Replicas in a simulated group that is cut apart at any moment: answered calls stay, and no read is stale."""

from __future__ import annotations

import functools
import random

import pytest
from counting import Counting
from halves import first_quick
from sim_stage import Stage, consume

from seqcast._native.engine import SENT, Batch
from seqcast.blocks.log import Log
from seqcast.blocks.outbox import Call, Outbox
from seqcast.sim.options import MS
from seqcast.types import View


class Replica:
    """On one simulated process, in place of its application.

    ``answers``: the sums that calls returned. ``told``: the answers to all replicas together.
    """

    def __init__(self, stage: Stage, node, told: list[int]) -> None:
        self.stage, self.node, self.told = stage, node, told
        self.log, self.outbox = Log(Counting()), Outbox(node.id, lambda: node.now)
        self.unsent: list[bytes] = []
        self.stale: list[str] = []
        self.reads = 0
        node.application.consume = functools.partial(consume, node, self.take)

    def take(self, item) -> None:
        applied = []
        if isinstance(item, Batch):
            payloads = item.tolist()
            for sender, _seqno, _place, _sent_ns, first, n, _index, _unicast, late in item.runs.tolist():
                applied += [self.log.take(each, sender, bool(late)) for each in payloads[first : first + n]]
        elif isinstance(item, View):
            applied = self.log.enter([member.id for member in item.members])
        for each in applied:
            if each is not None and each.entry.origin == self.outbox.origin:
                for call in self.outbox.applied(each):
                    call.done()

    def call(self) -> None:
        if not self.node.can_run:
            return
        call = Call(b"1", lambda: self.told.append(int(call.answer.data)))
        self.outbox.add(call)
        self.send()

    def read(self) -> None:
        if not self.node.can_run:
            return
        least = max(self.told, default=0)

        def done() -> None:
            self.reads += 1
            if self.log.machine.total < least:
                self.stale.append(f"{self.node.name} read {self.log.machine.total} after {least}")

        self.outbox.add(Call(None, done))
        self.send()

    def send(self) -> None:
        """Sends the waiting calls; tries again later while the group is closed for sending."""
        node = self.node
        if not node.up or node.endpoint.over or not node.can_run:
            return
        while message := self.unsent.pop(0) if self.unsent else self.outbox.compose():
            if node.engine.send(message, wall_ns=node.wall) != SENT:
                self.unsent.insert(0, message)
                break
        node.poke()
        node.service()


def run(seed: int, **options) -> list[Replica]:
    """Members call and read all the time, while the sequencer, and perhaps another member, is cut off from the others,
    does not run for a while, and is heard again."""
    rng = random.Random(seed)
    stage = Stage(order="total", partition="primary", **options)
    stage.quiet = True
    stage.group("a", "b", "c", "d", "e")
    told: list[int] = []
    replicas = [Replica(stage, node, told) for node in stage.nodes]
    for at in range(1000, 4000, 2):
        replica = rng.choice(replicas)
        stage.clock.at(at * MS, replica.read if rng.random() < 0.5 else replica.call)
        stage.clock.at((at + 1) * MS, functools.partial(lambda each: each.send(), rng.choice(replicas)))
    alone = {0, *rng.sample(range(1, 5), rng.choice((0, 1)))}  # the sequencer, and perhaps another one
    rest = set(range(5)) - alone
    begin, end = rng.randrange(1100, 1500), rng.randrange(2600, 3500)
    stage.clock.at(begin * MS, stage.network.partition, alone, rest)
    stage.clock.at(begin * MS, stage.nodes[0].pause, end * MS)  # so that this one learns of the others last
    for at in range(20):
        stage.clock.at(end * MS + at * MS // 10, replicas[0].read)
    stage.clock.at((end + rng.choice((-200, 300))) * MS, stage.network.heal)
    stage.until(5000)
    return replicas


@pytest.mark.parametrize("seed", first_quick(range(1, 4)))
def test_no_read_is_stale_and_nothing_that_was_answered_is_lost(seed: int) -> None:
    replicas = run(seed, safe=True)
    told = replicas[0].told
    assert len(told) > 100 and len(told) == len(set(told)) and all(replica.reads > 5 for replica in replicas)
    assert [stale for replica in replicas for stale in replica.stale] == []
    lasting = [each for each in replicas if each.node.up and not each.node.endpoint.over]
    assert len(lasting) >= 3
    assert all(replica.log.machine.total >= max(told) for replica in lasting)


def test_without_safe_delivery_a_sequencer_that_is_cut_off_unknowingly_reads_stale_values() -> None:
    """The base of the guarantee, whose absence the test above would see."""
    assert any(replica.stale for seed in range(1, 4) for replica in run(seed, safe=False))
