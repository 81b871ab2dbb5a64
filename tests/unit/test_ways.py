"""Each member gets the group's messages by the way that works: in the engine, with time by hand."""

from __future__ import annotations

import pytest
from engines import HEARTBEAT_MS, MS, SUSPECT_MS, Net, count_reports, feed, messages, reports_of

from seqcast._native.engine import LANE_UNICAST
from seqcast.config import Config
from seqcast.reports import MemberSuspected, PacketsLost, WayChanged

DEAF_MS = SUSPECT_MS + 3 * HEARTBEAT_MS
"""By then a member has reported that no multicast comes, and is heard."""


class Mixed(Net):
    """Members of which some hear no multicasts of some others; counts the datagrams of each to another, by lane."""

    def __init__(self, n: int = 3, **settings: object) -> None:
        super().__init__(n, mixed=True, **settings)
        self.deaf: set[tuple[int, int]] = set()  # from, to
        self.copies = 0
        self.drop = self.carry
        self.run(10 * HEARTBEAT_MS)

    def carry(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        self.copies += lane == LANE_UNICAST
        return lane != LANE_UNICAST and (src, dst) in self.deaf

    def ways(self, src: int) -> list[tuple[int, bool]]:
        """The changes of the ways of one member since the last call."""
        return [(each.member, each.multicast) for each in reports_of(self.engines[src], WayChanged)]


def test_a_member_that_hears_no_multicast_of_another_gets_copies_and_no_link_counts_as_cut():
    net = Mixed()
    net.deaf = {(0, 1)}
    net.run(DEAF_MS)
    assert net.ways(0) == [(101, False)] and not net.ways(1) and not net.ways(2)
    assert net.engines[0].targets() == ([b"\2"], True)
    assert all(engine.links() == engine.links(True) == [] for engine in net.engines)
    assert not any(count_reports(net, i)[MemberSuspected(100 + j)] for i in range(3) for j in range(3))
    net.deaf = {(0, 1), (0, 2)}
    net.run(DEAF_MS)
    assert net.engines[0].targets() == ([b"\2", b"\3"], False), "a multicast would reach nobody"


@pytest.mark.parametrize("settings", [{}, {"sequencer": 0}, {"mechanism": 2, "sequencer": 0}])
def test_all_get_everything_without_requests_whichever_way_it_comes(settings):
    net = Mixed(4, **settings)
    net.deaf = {(0, 1), (1, 0), (2, 1), (3, 0)}
    net.run(DEAF_MS)
    before = sum(engine.counters()["naks_sent"] for engine in net.engines)
    sent = {i: messages(i, 40) for i in range(4)}
    feed(net, sent)
    for got in net.got:
        assert [payload for sender, payload in got if sender == 100] == sent[0]
        assert sorted(got) == sorted((net.ids[i], each) for i, part in sent.items() for each in part)
    assert sum(engine.counters()["naks_sent"] for engine in net.engines) == before


def test_a_member_that_hears_again_gets_both_for_two_heartbeats_and_then_multicasts_alone():
    net = Mixed()
    net.deaf = {(0, 1)}
    net.run(DEAF_MS)
    net.deaf = set()
    net.run(HEARTBEAT_MS + 5)
    assert net.engines[0].targets() == ([b"\2"], True), "both: it has just said that it hears us"
    net.run(4 * HEARTBEAT_MS)
    assert net.ways(0) == [(101, False), (101, True)]
    assert net.engines[0].targets() == ([], True)
    net.copies = 0
    net.engines[0].send(b"of all")
    net.run(3)
    assert net.got[1][-1] == (100, b"of all")


def test_each_return_waits_longer_so_that_a_flapping_switch_costs_little():
    net = Mixed()
    seen = []
    for _ in range(3):
        net.deaf = {(0, 1)}
        net.run(DEAF_MS)
        net.deaf = set()
        began = net.now
        while net.engines[0].targets() != ([], True):
            net.run(HEARTBEAT_MS)
        seen.append(round((net.now - began) / 1000 / MS))
    assert seen == [0, 10, 20], "seconds"


def test_a_member_that_neither_way_reaches_is_named_by_its_link():
    net = Mixed()
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (0, 1)
    net.run(4 * SUSPECT_MS)
    assert all(engine.links() == [(101, 100)] for engine in net.engines), "the others hear both"
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (0, 1) and lane != LANE_UNICAST
    net.run(DEAF_MS)
    assert all(engine.links() == engine.links(True) == [] for engine in net.engines)


def test_a_member_that_is_deaf_in_one_view_is_known_to_be_so_in_the_next():
    net = Mixed()
    net.deaf = {(0, 1)}
    net.run(DEAF_MS)
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    net.engines[0].send(b"at once")
    net.run(5)
    assert net.got[1] == [(100, b"at once")] and net.engines[1].counters()["naks_sent"] == 0


def test_members_that_all_hear_each_other_send_as_little_as_by_multicast():
    def sent(mixed: bool) -> list[int]:
        net = Net(4, mixed=mixed)
        feed(net, {i: messages(i, 30) for i in range(4)})
        net.run(20 * HEARTBEAT_MS)
        return [engine.counters()["datagrams_sent"] for engine in net.engines]

    assert sent(True) == sent(False)


def test_a_packet_that_is_repeated_in_vain_is_told_with_its_size():
    """As if a path drops datagrams larger than its size, and lets heartbeats through."""
    net = Net(3)
    net.run(2 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: dst == 2 and len(datagram) > 1400
    net.engines[0].send(bytes(5000))
    net.run(1500)
    (told,) = reports_of(net.engines[0], PacketsLost)
    assert (told.member, told.size) == (102, 1472) and 1000 * MS <= told.took_ns < 1400 * MS
    assert not reports_of(net.engines[1], PacketsLost)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(200)
    assert len(net.got[2]) == 1


def in_vain(n: int) -> float:
    """Repeats a second, in the second second, of so many messages of four packets, of which three never pass."""
    net = Net(3, window=1 << 20, ring_bytes=1 << 20)
    net.run(2 * HEARTBEAT_MS)
    net.drop = lambda src, dst, lane, datagram: dst == 2 and len(datagram) > 1400
    for _ in range(n):
        net.engines[0].send(bytes(5000))
    net.run(1000)
    before = net.engines[0].counters()["packets_retransmitted"]
    net.run(1000)
    return net.engines[0].counters()["packets_retransmitted"] - before


def test_repeats_that_never_pass_are_few_while_no_size_is_known():
    """Of one message by the pauses between requests, of a window by the share that each member has."""
    assert in_vain(1) < 20 * 3
    assert in_vain(200) < 1.1 * Config().retransmit_bytes_per_s / 64 / 1472


def test_the_last_speaker_of_a_view_is_the_first_target():
    """The speaker may wait for the answer."""
    net = Mixed(4)
    net.deaf = {(0, 1), (0, 2), (0, 3)}
    net.run(DEAF_MS)
    for speaker in (2, 3, 1):
        feed(net, {speaker: messages(speaker, 1)})
        first, *others = net.engines[0].targets()[0]
        assert first == bytes([speaker + 1]) and len(others) == 2
    net.install([0, 1, 2, 3], sequencer=-1, tag=2, marker=2)
    net.run(DEAF_MS)
    assert net.engines[0].targets()[0] == [b"\2", b"\3", b"\4"]
