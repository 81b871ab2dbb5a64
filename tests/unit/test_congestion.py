"""Windows over the paths to members, with time by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

import pytest
from engines import HEARTBEAT_MS, MS, SUSPECT_MS, Net, change_view
from hostile import forge
from hostile.forge import Forger

from seqcast._native.engine import LANE_UNICAST, SENT
from seqcast.sim.wire import MESSAGES, header, kind

PACKET, TRIP_MS = 1472, 4
DATA, STATE = 1, 9
"""Types of datagrams."""


class Paths(Net):
    """A sender and its receivers. ``lost``: the numbers of the group's packets that are lost; a repeat has a number
    of its own. ``deaf``: the second member hears no multicasts of the first."""

    def __init__(self, n: int = 2, **settings: object) -> None:
        super().__init__(n, **{"congestion": 2, "ack_delay_ns": TRIP_MS * MS, **settings})
        self.lost: Collection[int] = ()
        self.deaf = False
        self.drop = self.carry
        self.packets = 0

    def carry(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        unheard = self.deaf and src == 0 and dst == 1 and lane != LANE_UNICAST
        if src or kind(datagram) not in MESSAGES:
            return unheard
        self.packets += kind(datagram) == 1
        return self.packets in self.lost or unheard

    def fill(self, payload: bytes = bytes(1000)) -> int:
        """How many messages the engine takes."""
        n = 0
        while self.engines[0].send(payload) == SENT:
            n += 1
        return n

    def busy(self, ms: int) -> None:
        """The first member sends all that its credit allows."""
        for _ in range(ms):
            self.fill()
            self.step()

    def width(self) -> int:
        return self.engines[0].counters()["congestion_bytes"]


def test_packets_wait_for_repeats_no_longer_than_a_round_trip_and_not_for_a_heartbeat():
    net = Paths(unicast=True)
    rng = random.Random(1)
    net.drop = lambda src, _dst, _lane, datagram: src == 0 and kind(datagram) in MESSAGES and rng.random() < 0.7
    net.engines[0].send(b"the first round trip")
    net.run(2 * TRIP_MS)
    net.fill()
    net.run(800)
    assert 4 * PACKET < net.width() < 5 * PACKET
    net.drop, net.lost = net.carry, range(net.packets + 1, net.packets + 5)  # a window, which only repeats fill then
    sent, begin = len(net.got[1]) + net.fill(), net.now
    while len(net.got[1]) < sent:
        net.step(MS // 10)
    assert net.now - begin < HEARTBEAT_MS * MS / 2


def test_time_in_which_nothing_was_sent_widens_no_window():
    net = Paths(unicast=True)
    net.busy(40)
    net.lost = range(net.packets + 5, net.packets + 105)
    net.busy(20)
    assert net.engines[0].counters()["congestion_events"] > 0
    net.run(20, 1000 * MS)
    before = net.width()
    net.busy(10)
    assert before < net.width() < 1.3 * before


def test_a_burst_after_a_rest_that_finds_a_queue_does_not_end_growth():
    net, late = Paths(unicast=True), list[bytes]()
    net.engines[0].send(b"the first round trip")
    net.run(60, 1000 * MS)
    net.drop = lambda _src, dst, _lane, datagram: dst == 0 and kind(datagram) == 4 and not late.append(datagram)

    def trips(n):
        for _ in range(n):
            net.fill()
            net.run(60)
            for datagram in late:
                net.engines[0].receive(datagram, bytes([2]), net.now)
            net.stirred.add(0)
            late.clear()

    trips(3)
    before = net.width()
    assert 0 < before < 40 * PACKET, "the queue ended the slow start"
    trips(50)
    assert net.width() > 1.2 * before


@pytest.mark.parametrize(("lost", "events"), [(16, 0), (24, 1)])
def test_a_wide_window_is_cut_if_more_packets_are_lost_than_chance_loses(lost, events):
    net = Paths(unicast=True)
    net.busy(20)
    net.lost = range(net.packets + 5, net.packets + 105)
    net.busy(8)
    before, window = net.engines[0].counters()["congestion_events"], net.width() // PACKET
    assert before == 1 and 500 < window < 550
    net.lost = {net.packets + 10 + each * (window // 30) for each in range(lost)}
    net.busy(8)
    assert net.engines[0].counters()["packets_retransmitted"] >= lost
    assert net.engines[0].counters()["congestion_events"] - before == events


@pytest.mark.long
def test_a_window_grows_on_in_the_next_view():
    net = Paths(unicast=True)
    net.busy(40)
    net.lost = range(net.packets + 5, net.packets + 105)
    net.busy(20)
    assert net.engines[0].counters()["congestion_events"] > 0
    change_view(net, [0, 1], [0, 1], sequencer=-1, tag=2)
    before = net.width()
    net.busy(100)
    assert net.width() > before or not net.width(), "0: as wide as credit"


def test_windows_that_begin_to_bound_know_how_much_is_on_the_way():
    net = Paths(3, mixed=True, congestion=1)
    net.busy(40)
    assert net.packets > 300 and net.width() == 0
    net.deaf = True
    net.run(SUSPECT_MS + 3 * HEARTBEAT_MS)
    assert net.engines[0].targets()[0] == [b"\2"]
    all_sent = len(net.got[1]) + net.fill()
    net.run(HEARTBEAT_MS)
    assert len(net.got[1]) == all_sent
    assert 0 < net.width() < 64 * PACKET


@pytest.mark.parametrize("back", [1, MS])
def test_a_thread_that_is_late_with_its_time_does_no_harm(back):
    net = Paths(unicast=True)
    net.lost = range(1, 20)  # so that no round trip is measured
    net.fill()
    while not net.engines[0].counters()["packets_retransmitted"]:
        net.step(MS // 10)
    net.engines[0].transmit(net.now - back)
    net.run(100)
    assert len(net.got[1]) > 10


def test_packets_behind_a_gap_widen_the_window_of_a_stream_to_one_member_once():
    net = Paths(unicast=True)

    def say() -> None:
        net.engines[0].send(bytes(1400), to=net.ids[1])

    say()
    net.run(5 * TRIP_MS)
    before, gap = net.width(), []

    def first_is_lost(src: int, _dst: int, _lane: int, datagram: bytes) -> bool:
        if src or kind(datagram) not in MESSAGES:
            return False
        gap[:] = gap or [datagram[32:40]]
        return datagram[32:40] == gap[0]

    net.drop = first_is_lost
    for _ in range(100):
        say()
        net.step()
    assert gap and net.width() <= before


def test_a_full_window_of_repeats_to_one_member_holds_up_nobody_else():
    net = Paths(3, unicast=True, ack_delay_ns=MS, retransmit_hold_ns=0)  # packets need no pauses in so short a trip
    net.engines[0].send(b"the first round trip")
    net.run(2 * TRIP_MS)
    net.drop = lambda src, _dst, _lane, datagram: src == 0 and kind(datagram) in MESSAGES
    net.fill()
    net.step(MS // 10)

    def asked(rank: int, lo: int, hi: int) -> list[bytes]:
        """Whom packets go to when this member asks for these."""
        nak = Forger(7).nak(net.ids[rank], 1, net.ids[0], forge.GROUP_STREAM, [(lo, hi)])
        net.engines[0].receive(nak, bytes([rank + 1]), net.now)
        return [address for _, address, datagram in net.engines[0].transmit(net.now) if kind(datagram) in MESSAGES]

    n = len(asked(1, 2, 100))
    assert n >= 9 and asked(1, 2, 100) == [], "the window is full"
    assert not net.engines[0].urgent() and net.engines[0].deadline() < net.now + MS
    assert asked(2, 5, 5) == [b"\3"] and not net.engines[0].urgent()
    assert net.engines[0].send(b"at once", to=net.ids[2]) == SENT
    assert [address for _, address, _ in net.engines[0].transmit(net.now)] == [b"\3"]
    assert asked(1, 2, 100) == [], "those that wait are not queued again"
    net.now = net.engines[0].deadline()
    while net.engines[0].counters()["packets_retransmitted"] < 2 * n + 1:
        net.engines[0].tick(net.now)
        assert not net.engines[0].urgent() or net.engines[0].transmit(net.now)
        net.now = net.engines[0].deadline()
    assert net.now < 30 * MS


def test_a_repeat_that_a_second_member_lacks_too_waits_no_longer_for_the_path_to_the_first():
    net = Paths(3, ack_delay_ns=MS, retransmit_hold_ns=0)
    net.engines[0].send(b"the first round trip")
    net.run(2 * TRIP_MS)
    net.drop = lambda src, _dst, _lane, datagram: src == 0 and kind(datagram) in MESSAGES
    net.fill()
    net.step(MS // 10)

    def asked(rank: int, lo: int, hi: int) -> list[tuple[bytes, int]]:
        nak = Forger(7).nak(net.ids[rank], 1, net.ids[0], forge.GROUP_STREAM, [(lo, hi)])
        net.engines[0].receive(nak, bytes([rank + 1]), net.now)
        if not net.engines[0].urgent():
            return []  # nor would a driver transmit
        sent = [each for each in net.engines[0].transmit(net.now) if kind(each[2]) in MESSAGES]
        return [(address, header(datagram).seqno) for _, address, datagram in sent]

    assert len(asked(1, 2, 100)) >= 9 and asked(1, 2, 100) == [], "the window is full"
    assert asked(2, 5, 5) == [(b"", 5)]


def test_packets_that_wait_for_a_member_leave_once_the_member_counts_no_more():
    net = Paths(3, unicast=True)
    net.drop = lambda src, dst, _lane, datagram: (src, dst) == (0, 1) and kind(datagram) in MESSAGES
    net.fill()
    net.run(20)
    assert net.engines[0].unsent() > PACKET and not net.engines[0].urgent()
    net.engines[0].uncount([net.ids[1]])
    assert net.engines[0].urgent()
    before = len(net.got[2])
    net.stirred.add(0)
    net.step()
    assert len(net.got[2]) > before


def test_the_state_for_a_joiner_takes_only_a_little_of_a_path_that_messages_fill():
    net, rng, left = Paths(unicast=True), random.Random(1), Counter()

    def carry(src: int, _dst: int, _lane: int, datagram: bytes) -> bool:
        left[kind(datagram)] += src == 0
        return src == 0 and kind(datagram) in MESSAGES and rng.random() < 0.05

    net.drop = carry
    for _ in range(300):
        net.engines[0].state_send(bytes(100_000), net.ids[1])
        net.busy(1)
        net.engines[1].state_read(net.ids[0], 1 << 20, net.now)
    assert net.width() < 20 * PACKET
    assert left[DATA] > 1000 and 0.05 < left[STATE] / left[DATA] < 0.25
