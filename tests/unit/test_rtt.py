"""Round trips measured by heartbeats: time by hand, and a clock of its own for each member."""

from __future__ import annotations

import random
import struct

import pytest
from engines import MS, Net
from hostile import forge

SECOND = 10**9
DELAY_MS = {(0, 1): 3, (1, 0): 5, (0, 2): 20, (2, 0): 1, (1, 2): 2, (2, 1): 2}
"""One way, from one member to another."""
SENT = 96  # in a heartbeat: docs/wire.md


class Far(Net):
    """Members with links of different length, whose clocks have nothing in common."""

    def __init__(self, n=3, loss=0.0, deaf=(), **settings):
        self.on_its_way, self.sent, self.rng, self.loss, self.deaf = [], 0, random.Random(1), loss, deaf
        super().__init__(n, **settings)

    def clock(self, i):
        return self.now + i * 77 * SECOND

    def step(self, ns=MS, take=True):
        self.now += ns
        for src, engine in enumerate(self.engines):
            engine.tick(self.clock(src))
            for _, address, datagram in engine.transmit(self.clock(src)):
                self.sent += 1
                for dst in [address[0] - 1] if address else [i for i in range(len(self.engines)) if i != src]:
                    unheard = not address and (src, dst) in self.deaf
                    if not unheard and self.rng.random() >= self.loss:
                        self.on_its_way.append((self.now + DELAY_MS[src, dst] * MS, dst, src, datagram))
        arrived = [each for each in self.on_its_way if each[0] <= self.now]
        self.on_its_way = [each for each in self.on_its_way if each[0] > self.now]
        for _, dst, src, datagram in sorted(arrived, key=lambda each: each[0]):
            self.engines[dst].receive(datagram, bytes([src + 1]), self.clock(dst))
        return len(arrived)

    def rtts(self, i):
        return [self.engines[i].stream(rank)[4] / MS for rank in range(len(self.engines))]


def expected(i):
    return [DELAY_MS[i, j] + DELAY_MS[j, i] if j != i else 0 for j in range(3)]


@pytest.mark.parametrize("loss", [0.0, 0.4])
def test_each_member_knows_the_time_of_a_round_trip_to_each_other_one(loss):
    net = Far(loss=loss)
    net.run(2000)
    assert [net.rtts(i) for i in range(3)] == [pytest.approx(expected(i), abs=0.01) for i in range(3)]


def test_a_member_that_hears_another_by_unicast_only_knows_it_too():
    net = Far(deaf=[(0, 1)])
    net.run(4000)
    assert net.rtts(0) == pytest.approx(expected(0), abs=0.01)
    assert net.rtts(1) == pytest.approx(expected(1), abs=0.01)


def beat(forger, rank, sent=0, echo=0, held=0, echoes=0):
    plain = forger.heartbeat(100 + rank, 1, 0, 0, [(0, 0)] * 3)
    return forge.sealed(plain[:SENT] + struct.pack("<QQIHH", sent, echo, held, echoes, 0) + plain[120:])


def test_an_echo_that_cannot_be_one_is_not_a_measurement():
    net, forger = Net(3), forge.Forger(7)
    engine = net.engines[0]
    net.now = now = 10 * SECOND
    for echo, held in [(now + 1, 0), (now, 0), (now, 1), (2**64 - 1, 0), (now - 70 * SECOND, 0)]:
        engine.receive(beat(forger, 1, 5, echo % 2**64, held, 1), b"\2", now)
    engine.receive(beat(forger, 1, 5, now - MS, 0, 2), b"\2", now)  # for another member
    assert engine.stream(1)[4] == 0 and engine.counters()["drop_field"] == 0
    engine.receive(beat(forger, 1, 5, now - MS, MS // 4, 1), b"\2", now)
    assert engine.stream(1)[4] == MS * 3 // 4
    engine.receive(beat(forger, 1, 5, 1, 0, 4), b"\2", now)  # no member has this rank
    assert engine.counters()["drop_field"] == 1
