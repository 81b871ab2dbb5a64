"""The guarantees of every order, by its class in core/orders, on the engines of a group."""

from __future__ import annotations

import random

import pytest
from engines import MS, Net, change_view

from seqcast._native.engine import SENT
from seqcast.core import orders
from seqcast.core.orders import Order
from seqcast.types import Member

ALL = [orders.by_name(name) for name in ("fifo", "causal", "sequencer", "records", "grant", "total-1999")]
CASES = [pytest.param(each, seed, id=f"{each.name}-{seed}") for each in ALL for seed in range(3)]


class Talk(Net):
    """Members that send under loss, and answer one another: the deliveries of each before a message are known."""

    def __init__(self, order: Order, seed: int, n: int) -> None:
        self.order, self.rng = order, random.Random(seed)
        members = [Member(str(rank), rank) for rank in range(n)]
        self.sequencer = order.sequencer(members, lambda members: seed % n)
        super().__init__(n, sequencer=self.sequencer, mechanism=order.number, window=30_000)
        self.run(5)
        self.sent: list[list[bytes]] = [[] for _ in range(n)]
        self.beside: set[bytes] = set()
        self.causes: dict[bytes, int] = {}
        self.drop = lambda src, dst, lane, datagram: self.rng.random() < 0.1

    def talk(self, senders: list[int], times: int) -> None:
        for _ in range(times):
            i = self.rng.choice(senders)
            message = b"%d %d " % (i, len(self.sent[i])) + bytes(self.rng.choice([0, 100, 4000]))
            ordered = not self.order.beside or self.rng.random() < 0.8
            if self.engines[i].send(message, ordered=ordered) == SENT:
                self.sent[i].append(message)
                self.causes[message] = len(self.got[i])
                if not ordered:
                    self.beside.add(message)
            if self.rng.random() < 0.4:
                self.step(self.rng.randrange(3 * MS))

    def texts(self, i: int) -> list[bytes]:
        return [text for _, text in self.got[i]]

    def check(self, members: list[int], whole: bool = True) -> None:
        """All that the order promises, at these members; ``whole``: nothing is missing."""
        for at in members:
            for i in range(len(self.engines)):
                got = in_order(self, at, i)
                sent = [text for text in self.sent[i] if text not in self.beside]
                assert got == (sent if whole or i in members else sent[: len(got)]), "FIFO"
            assert len(set(self.texts(at))) == len(self.got[at]), "no message twice"
            assert not whole or self.beside <= set(self.texts(at)), "what has no place is delivered, too"
        rows = [in_order(self, at, None) for at in members]
        assert all(sorted(row) == sorted(rows[0]) for row in rows), "agreement"
        assert not self.order.total or all(row == rows[0] for row in rows), "total order"
        if self.order.causal and not self.order.total:
            self.check_causal(members)

    def check_causal(self, members: list[int]) -> None:
        """Each message stands behind all that its sender had been delivered."""
        for at in members:
            place = {text: number for number, text in enumerate(self.texts(at))}
            for i, sent in enumerate(self.sent):
                for message in sent:
                    before = self.texts(i)[: self.causes[message]]
                    assert message not in place or all(place[text] < place[message] for text in before if text in place)


@pytest.mark.parametrize(("order", "seed"), CASES)
def test_members_deliver_all_messages_under_loss_in_the_order_that_is_promised(order: Order, seed: int) -> None:
    net = Talk(order, seed, 3)
    net.talk([0, 1, 2], 200)
    net.run(400)
    assert min(map(len, net.sent)) > 20
    net.check([0, 1, 2])


@pytest.mark.parametrize(("order", "seed"), CASES)
def test_survivors_deliver_the_same_in_a_view_in_which_a_member_falls(order: Order, seed: int) -> None:
    """Each of them all that survivors sent; and if the order says so, the fallen one had delivered a prefix of it."""
    net = Talk(order, seed, 4)
    fallen = seed
    net.talk([0, 1, 2, 3], 200)
    survivors = [i for i in range(4) if i != fallen]
    net.drop = lambda src, dst, lane, datagram: fallen in (src, dst) or net.rng.random() < 0.1
    net.talk(survivors, 50)
    members = [Member(str(rank), rank) for rank in survivors]
    change_view(net, survivors, survivors, sequencer=order.sequencer(members, lambda members: 0), tag=2, steps=2000)
    net.run(400)
    net.check(survivors, whole=False)
    for i in survivors:
        assert in_order(net, survivors[0], i) == [text for text in net.sent[i] if text not in net.beside]
    if order.prefix and fallen != net.sequencer:  # only that one, or a sender, may have ordered more
        for i in [None] if order.total else survivors:
            one, other = (in_order(net, at, i) for at in (fallen, survivors[0]))
            assert one == other[: len(one)]


def in_order(net: Talk, at: int, sender: int | None) -> list[bytes]:
    """This member's deliveries that have a place, of one sender or of all."""
    return [text for who, text in net.got[at] if text not in net.beside and (sender is None or who == net.ids[sender])]
