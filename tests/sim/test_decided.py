"""Messages that ``deliver`` returns, in a simulated primary group that is cut apart at any moment: all who stay have
them, at the same places."""

from __future__ import annotations

import functools
import random
from types import SimpleNamespace
from typing import Any

import pytest
from halves import first_quick
from sim_stage import Stage, consume

from seqcast._native.engine import SENT, Batch, Message
from seqcast.api.sought import Sought
from seqcast.sim.options import MS
from seqcast.types import Member, View


class Sender:
    """On one simulated process, in place of its application."""

    def __init__(self, node: Any, decided: dict[bytes, int | None]) -> None:
        self.node, self.decided = node, decided
        self.sought: dict[bytes, Sought] = {}
        self.places: dict[bytes, int | None] = {}  # of all that was delivered here
        self.view: View | None = None
        node.application.consume = functools.partial(consume, node, self.take)

    def take(self, item: Any) -> None:
        if isinstance(item, Batch):
            batch: Any = SimpleNamespace(view=self.view, messages=lambda: list(self.messages(item)))
            self.places |= {each.payload: each.global_seqno for each in batch.messages()}
        for sought in self.sought.values():
            sought.saw_batch(batch) if isinstance(item, Batch) else sought.saw(item)
        if isinstance(item, View):
            self.view = item
        for payload, sought in list(self.sought.items()):
            if sought.decided is not None:
                assert not sought.decided.transitional
                self.decided[payload] = sought.decided.global_seqno
            if sought.decided is not None or sought.why:
                del self.sought[payload]

    def messages(self, batch: Batch) -> Any:
        assert self.view is not None
        payloads = batch.tolist()
        for sender, seqno, place, sent_ns, first, n, index, unicast, late in batch.runs.tolist():
            who = Member("", sender)
            for at in range(n):
                where = seqno, index + at, place + at if place else None
                yield Message(payloads[first + at], who, self.view.view_id, *where, sent_ns, bool(unicast), bool(late))

    def place(self) -> tuple[int, int]:
        return self.node.endpoint.view.view_id.counter, self.node.engine.last_sent()

    def send(self, payload: bytes) -> None:
        """As ``Group.deliver``."""
        node = self.node
        if node.endpoint.view is None or node.endpoint.over or not node.can_run or self.view is None:
            return
        sought = Sought(payload, node.id, self.place(), firm=True, primary=True)
        if node.engine.send(payload, wall_ns=node.wall) == SENT:
            self.sought[payload] = sought
            sought.sent(self.place())
            node.poke()
            node.service()


def run(seed: int, safe: bool) -> tuple[list[Sender], dict[bytes, int | None]]:
    """Members send all the time, while the sequencer, and perhaps another member, is cut off, and is heard again."""
    rng, decided = random.Random(seed), dict[bytes, int | None]()
    stage = Stage(order="total", partition="primary", safe=safe)
    stage.quiet = True
    stage.group("a", "b", "c", "d", "e")
    senders = [Sender(node, decided) for node in stage.nodes]
    for sender in senders:
        sender.view = sender.node.endpoint.view
    for at in range(700, 2400, 4):
        stage.clock.at(at * MS, rng.choice(senders).send, b"%d" % at)
    alone = {0, *rng.sample(range(1, 5), rng.choice((0, 1)))}  # the sequencer, and perhaps another one
    begin, end = rng.randrange(750, 1100), rng.randrange(1700, 2200)
    stage.clock.at(begin * MS, stage.network.partition, alone, set(range(5)) - alone)
    if rng.choice((False, True)):
        stage.clock.at(begin * MS, stage.nodes[0].pause, end * MS)  # so that this one learns of the others last
    stage.clock.at((end + rng.choice((-200, 200))) * MS, stage.network.heal)
    stage.until(3000)
    return senders, decided


def lacking(senders: list[Sender], decided: dict[bytes, int | None]) -> list[bytes]:
    """The decided messages that one that stays lacks, or has at another place."""
    lasting = [each for each in senders if each.node.up and not each.node.endpoint.over]
    assert len(lasting) >= 3 and all(not each.sought for each in lasting), "a call waits for ever"
    return [payload for payload, place in decided.items() if any(each.places.get(payload) != place for each in lasting)]


@pytest.mark.parametrize("seed", first_quick(range(1, 7)))
def test_a_message_that_is_decided_is_at_its_place_at_all_who_stay(seed: int) -> None:
    senders, decided = run(seed, safe=True)
    assert len(decided) > 100 and any(each.sought for each in senders), "one that is cut off has nothing decided"
    assert lacking(senders, decided) == []


def test_without_safe_delivery_a_message_that_a_sequencer_delivered_may_be_lost() -> None:
    """The base of the decision, whose absence the test above would see."""
    assert any(lacking(*run(seed, safe=False)) for seed in range(1, 7))
