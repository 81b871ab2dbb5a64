"""Packets leave at a bounded rate, with time by hand."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from engines import MS, Net
from hostile import forge
from hostile.forge import Forger

from seqcast._native.engine import LANE_CONTROL, LANE_DATA, LANE_UNICAST, SENT
from seqcast.sim.sockets import RUNS
from seqcast.sim.wire import HEARTBEAT, MESSAGES, kind

RATE = 2_000_000
PACKET = 1472


class Bounded(Net):
    """Members whose packets, and heartbeats, are counted where they leave; ``loss``: fraction of the packets lost."""

    def __init__(self, n: int = 3, *, loss: float = 0.0, send_bytes_per_s: int = RATE, **settings: object) -> None:
        super().__init__(n, unicast=True, send_bytes_per_s=send_bytes_per_s, **{"congestion": 0, **settings})
        self.bytes, self.beats, self.loss, self.rng = 0, 0, loss, random.Random(1)
        self.bytes_of = dict.fromkeys(MESSAGES, 0)
        self.drop = self.carry

    def carry(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        what = kind(datagram)
        self.beats += src == 0 and what == HEARTBEAT
        if src or what not in MESSAGES:
            return False
        self.bytes += len(datagram)
        self.bytes_of[what] += len(datagram)
        return self.rng.random() < self.loss

    def busy(self, ms: int, to: int = 0) -> None:
        """The first member sends to all, and to one of them, all that its credit allows."""
        for _ in range(ms):
            for target in {0, to}:
                while self.engines[0].send(bytes(500), to=target) == SENT:
                    pass
            self.step()


@pytest.mark.parametrize("settings", [{}, {"loss": 0.2}, {"sequencer": 0}], ids=["lossless", "lossy", "ordered"])
def test_all_copies_and_repeats_of_packets_leave_at_the_rate_that_is_set(settings):
    net = Bounded(**settings)
    net.busy(1000)
    assert 0.9 * RATE < net.bytes < 1.02 * RATE + 2 * PACKET
    assert net.beats >= 2 * 19, "heartbeats wait for no packet"
    assert net.engines[0].counters()["sends_paced"] > 300


def test_packets_that_wait_for_the_rate_are_bounded_and_arrive():
    net = Bounded()
    sent = 0
    while net.engines[0].send(bytes(500)) == SENT:
        sent += 1
    assert 500 * sent * 2 < 0.025 * RATE, "no more than fifty milliseconds' worth is taken from the application"
    net.run(100)
    assert [len(got) for got in net.got] == [sent] * 3


def test_packets_to_one_member_yield_to_those_of_the_group_and_still_get_a_share():
    net = Bounded()
    net.busy(1000, to=net.ids[1])
    data, unicast = net.bytes_of[1], net.bytes_of[2]
    assert 0.02 < unicast / data < 0.3


def test_without_a_bound_on_the_rate_no_packet_waits():
    net = Bounded(send_bytes_per_s=0)
    assert sum(net.engines[0].send(bytes(500)) == SENT for _ in range(1000)) == 1000
    net.step()
    assert net.bytes > 2 * 500 * 1000 and not net.engines[0].counters()["sends_paced"]


def test_packets_and_repeats_leave_while_frames_of_control_wait_in_number():
    """A kernel that takes little is always behind with heartbeats, pings and frames."""
    net = Net(3)
    sender = net.engines[0]
    for _ in range(3):
        assert sender.send(bytes(1000)) == SENT
    packets = [datagram for _, _, datagram in sender.transmit(net.now) if kind(datagram) in MESSAGES]
    for i, lacking in enumerate(net.engines[1:], 1):
        for datagram in packets[: i - 1] + packets[i:]:
            lacking.receive(datagram, bytes([1]), net.now)
    net.now += 20 * MS
    for i, lacking in enumerate(net.engines[1:], 1):
        lacking.tick(net.now)
        for _, _, datagram in lacking.transmit(net.now):
            sender.receive(datagram, bytes([i + 1]), net.now)
    assert sender.send(b"for the first time") == SENT
    for _ in range(20):
        assert sender.control_send(b"a frame")
    left = Counter((lane, kind(datagram) in MESSAGES) for lane, _, datagram in sender.transmit(net.now, True, RUNS))
    assert left[LANE_DATA, True] == left[LANE_UNICAST, True] == 1, left
    assert left[LANE_CONTROL, False] + left[LANE_UNICAST, False] == RUNS - 2, left


def test_a_congestion_window_never_falls_below_four_packets():
    net = Bounded(2, loss=0.4, send_bytes_per_s=0, congestion=1)
    least = 1 << 20
    for _ in range(800):
        net.busy(1)
        least = min(least, net.engines[0].counters()["congestion_bytes"])
    assert net.engines[0].counters()["congestion_events"] > 20
    assert 4 * PACKET < least < 5 * PACKET


def test_a_repeat_that_waits_for_the_rate_is_not_queued_again():
    net, n = Bounded(2, send_bytes_per_s=150_000), 30
    net.drop = lambda _src, _dst, _lane, datagram: kind(datagram) != HEARTBEAT
    sent = 0
    while net.engines[0].counters()["packets_sent"] < n:
        while sent < n and net.engines[0].send(bytes(1300)) == SENT:
            sent += 1
        net.step()
    net.drop = net.carry
    net.run(400)
    counters = net.engines[0].counters()
    assert len(net.got[1]) == n and counters["packets_retransmitted"] == n
    assert counters["retransmit_held"] > n, "they were asked for while they waited"


def test_each_member_gets_one_repeat_of_a_packet_whoever_sent_the_first_and_however_often_they_ask():
    net, forger = Bounded(4, send_bytes_per_s=400_000, retransmit_hold_ns=0), Forger(7)
    aimed: Counter[tuple[int, int]] = Counter()

    def two_receive_and_say_nothing(src: int, dst: int, _lane: int, datagram: bytes) -> bool:
        packet = kind(datagram) in MESSAGES
        if packet:
            aimed[src, dst] += 1
        return (packet and dst > 1) or (src > 1 and kind(datagram) != HEARTBEAT)

    net.drop = two_receive_and_say_nothing
    for _ in range(10):
        assert net.engines[0].send(bytes(1300)) == SENT
        net.run(11)
    assert len(net.got[1]) == 10 and aimed == {(0, dst): 10 for dst in (1, 2, 3)}
    aimed.clear()
    net.stirred.update((0, 1))
    for _ in range(5):
        for holder in (0, 1):
            for asks in (2, 3):
                nak = forger.nak(net.ids[asks], 1, net.ids[0], forge.GROUP_STREAM, [(1, 10)])
                net.engines[holder].receive(nak, bytes([asks + 1]), net.now)
    net.run(100)
    assert aimed == {(holder, asks): 10 for holder in (0, 1) for asks in (2, 3)}
