"""How group streams share the room of their receivers, who report by acknowledgements or by gossip."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from engines import MS, Net, messages

from seqcast._native.engine import SENT, Batch
from seqcast.core.gossip import Span, Sum
from seqcast.core.gossip.tally import Tally

DATA, ACK = 1, 4
SHARE, ROOM, PACKET = 12_000, 120_000, 1472


def charge(length: int) -> int:
    """The bytes that the kernel charges for a datagram in a receive buffer, as both sides count them."""
    if length == PACKET:
        return length + length // 50 + 64
    room = 512
    while room < length + 400:
        room *= 2
    return room + 256


class Room(Net):
    """Members that share room; knows the bytes in flight to each: sent, and not taken by its application."""

    def __init__(self, n: int, seed: int, **settings: object) -> None:
        window = ROOM - (n - 2) * SHARE
        super().__init__(n, window=window, share=SHARE, room=ROOM, packet=PACKET, **settings)
        self.rng = random.Random(seed)
        self.sizes: list[dict[int, int]] = [{} for _ in range(n)]
        self.taken: list[Counter[int]] = [Counter() for _ in range(n)]
        self.late: list[tuple[int, int, int, int, bytes]] = []
        self.loss = 0.0
        self.drop = self.watch

    def watch(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if datagram[2] == DATA:
            source = self.ids.index(int.from_bytes(datagram[16:24], "little"))
            self.sizes[source][int.from_bytes(datagram[32:40], "little")] = charge(len(datagram))
        if self.rng.random() >= self.loss:
            return False
        if datagram[2] == ACK:  # comes much later
            self.late.append((self.now + self.rng.randrange(40 * MS), src, dst, lane, datagram))
        return True

    def come_late(self) -> None:
        for due in [each for each in self.late if each[0] <= self.now]:
            self.late.remove(due)
            _, src, dst, _, datagram = due
            self.engines[dst].receive(datagram, bytes([src + 1]), self.now)

    def take_some(self, member: int, most: int = 1 << 20) -> None:
        while isinstance(batch := self.engines[member].deliver(most, self.now), (Batch, int)):
            if isinstance(batch, Batch):
                for run in batch.runs:
                    source = self.ids.index(int(run["sender"]))
                    self.taken[member][source] = max(self.taken[member][source], int(run["seqno"]))

    def on_the_way(self, member: int) -> int:
        return sum(
            size
            for source, sizes in enumerate(self.sizes)
            for seqno, size in sizes.items()
            if source != member and seqno > self.taken[member][source]
        )


class GossipRoom(Room):
    """The same for members that gossip: each step one tells another its own position, and its tally."""

    def __init__(self, n: int, seed: int, **settings: object) -> None:
        super().__init__(n, seed, pulled=True, **settings)
        everyone = range(n)
        self.tallies = [Tally(me, [each for each in everyone if each != me], MS, 0) for me in everyone]
        self.told: list[tuple[int, int, int, dict[int, Span], Sum]] = []  # time of arrival, sender, receiver, datagram

    def step(self, ns: int = MS, take: bool = True) -> int:
        moved = super().step(ns, take)
        for source in range(len(self.engines)):
            target = self.rng.randrange(len(self.engines))
            if target == source:
                continue
            digest = self.digest(source)
            due = self.now + (self.rng.randrange(40 * MS) if self.rng.random() < self.loss else 0)
            self.told.append((due, source, target, digest, self.tallies[source].say(digest, self.now)))
        for each in [each for each in self.told if each[0] <= self.now]:
            self.told.remove(each)
            self.hear(*each[1:])
        return moved

    def digest(self, member: int) -> dict[int, Span]:
        return {rank: Span(*marks) for rank, marks in enumerate(self.engines[member].gossip_marks())}

    def hear(self, source: int, target: int, digest: dict[int, Span], told: Sum) -> None:
        engine = self.engines[target]
        for rank, span in digest.items():
            for first, last in engine.gossip_lacks(rank, 1, span.received, 64) if rank != target else ():
                engine.gossip_ask(rank, first, last, source, self.now)
        engine.gossip_vote(source, *digest[target][1:], self.now)
        for sender, least in self.tallies[target].heard(told, self.digest(target), self.now):
            engine.gossip_stable(sender, least.delivered)
            if sender == target:
                for rank in range(len(self.engines)):
                    engine.gossip_vote(rank, least.delivered, *least, self.now)


KINDS = [Room, GossipRoom]


def fill(net: Room, member: int) -> int:
    sent = 0
    while net.engines[member].send(bytes(1300)) == SENT:
        sent += 1
    return sent


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_sends_alone_has_all_but_the_shares_of_the_others(kind: type[Room]) -> None:
    net = kind(5, 1)
    first = fill(net, 0)
    assert first <= SHARE // 1472, "until the receivers know of it, its share"
    for _ in range(100):
        net.step(MS, take=False)
        for member in range(5):
            net.take_some(member)
        fill(net, 0)
    for _ in range(20):  # now nobody takes anything
        net.step(MS, take=False)
        fill(net, 0)
    assert ROOM - 4 * SHARE <= net.on_the_way(1) <= ROOM - 3 * SHARE


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_begins_later_gets_as_much_as_the_first(kind: type[Room]) -> None:
    net, sent = kind(5, 2), Counter[int]()
    for step in range(600):
        for member in (0, 1) if step > 200 else (0,):
            sent[member] += fill(net, member) if step > 300 else 0 * fill(net, member)
        net.step(MS, take=False)
        for member in range(5):
            net.take_some(member)
    assert 0.8 <= sent[1] / sent[0] <= 1.25


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
@pytest.mark.parametrize("kind", KINDS)
def test_receivers_never_promise_more_room_than_they_have(kind: type[Room], seed: int) -> None:
    """Bursts, pauses, all at once, slow takers, lost datagrams, and acks or gossips that come long after they were
    overtaken."""
    net = kind(6, seed, heartbeat_ns=5 * MS, ack_delay_ns=2 * MS)
    rng, most, sending = net.rng, 0, {0}
    for step in range(1500):
        if step % 60 == 0:
            sending = {rng.randrange(6) for _ in range(rng.choice([0, 1, 1, 6, 20]))}
            slow = {rng.randrange(6) for _ in range(rng.randrange(3))}
            net.loss = rng.choice([0.0, 0.0, 0.1, 0.4])
        for member in sending:
            fill(net, member)
        net.step(MS // 2, take=False)
        net.come_late()
        for member in range(6):
            if member not in slow or rng.random() < 0.05:
                net.take_some(member)
        most = max([most, *map(net.on_the_way, range(6))])
    assert ROOM * 3 // 4 < most <= ROOM


@pytest.mark.parametrize("kind", KINDS)
def test_window_that_is_not_used_is_given_back(kind: type[Room]) -> None:
    net = kind(5, 3)
    for step in range(300):
        if step < 100 or step > 150:
            fill(net, 0 if step < 100 else 1)
        net.step(MS, take=False)
        for member in range(5):
            net.take_some(member)
    for _ in range(20):
        net.step(MS, take=False)
        fill(net, 1)
    assert net.on_the_way(2) >= ROOM - 4 * SHARE


@pytest.mark.parametrize("members", [4, 12, 32])
def test_all_is_delivered_when_all_begin_at_once_in_a_small_room(members: int) -> None:
    net = Net(members, window=20_000, share=3_000, room=members * 3_000 + 17_000)
    todo = {i: messages(i, 30, 1200) for i in range(members)}
    want = {net.ids[i]: list(todo[i]) for i in todo}
    for _ in range(1500):
        for i, rest in todo.items():
            while rest and net.engines[i].send(rest[0]) == SENT:
                rest.pop(0)
        if not net.step(MS) and not any(todo.values()):
            break
    net.run(100)
    for i in range(members):
        for sender, sent in want.items():
            assert [payload for source, payload in net.got[i] if source == sender] == sent
