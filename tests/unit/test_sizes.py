"""How large packets may be on the way to each member: in the engine, with time by hand."""

from __future__ import annotations

import pytest
from engines import HEARTBEAT_MS, MS, Net, change_view, feed, messages, of_sender, reports_of
from hostile.forge import Forger

from seqcast._native.engine import AGAIN, SENT, Sending
from seqcast.reports import FrameReceived, PathsMeasured

F = Forger(7)
SIZE, SIZED, PIECE = 16, 17, 18
KNOWN_MS = 12 * HEARTBEAT_MS
"""By then each member has asked each other one for the largest size and, in vain, for all smaller ones."""


class Paths(Net):
    """Members on paths of which some lose large datagrams."""

    def __init__(self, n: int = 3, **settings: object) -> None:
        super().__init__(n, **{"path": 1472, **settings})
        self.most: dict[tuple[int, int], int] = {}  # by (from, to)
        self.asked: list[tuple[int, int, int]] = []
        self.drop = self.carry

    def carry(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if datagram[2] == SIZE:
            self.asked.append((src, dst, len(datagram)))
        return len(datagram) > self.most.get((src, dst), 65_000)

    def sizes(self, i: int) -> list[tuple[int, int]]:
        return [(each.member, each.size) for each in reports_of(self.engines[i], PathsMeasured)]


def test_a_path_that_carries_full_packets_is_asked_once_and_again_each_minute():
    net = Paths(2)
    net.run(KNOWN_MS)
    assert sorted(net.asked) == [(0, 1, 1472), (1, 0, 1472)]
    assert [engine.path_bytes() for engine in net.engines] == [1472, 1472] and not net.sizes(0)
    net.run(59, ns=1000 * MS)
    assert len(net.asked) == 2
    net.run(3, ns=1000 * MS)
    assert len(net.asked) == 4


def test_the_largest_size_that_passes_is_known_to_all_members_and_reported_once_it_lasts():
    net = Paths()
    net.most = {(0, 2): 1400}
    net.run(KNOWN_MS)
    assert {engine.path_bytes() for engine in net.engines} == {1392}
    for i, about in ((0, 102), (1, 100), (2, 100)):
        assert set(net.sizes(i)) == {(about, 1392)}
    largest = [each for each in net.asked if each == (0, 2, 1472)]
    assert len(largest) == 3, "chance loses datagrams too"


def test_a_member_that_does_not_answer_says_nothing_about_its_path():
    net = Paths()
    net.run(KNOWN_MS)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == SIZED
    net.engines[0].measure(net.now)
    net.run(KNOWN_MS)
    assert net.engines[0].path_bytes() == 1472


def test_a_member_that_says_that_next_to_nothing_reaches_it_does_not_prevent_the_next_view():
    net = Paths(2)
    net.run(KNOWN_MS)
    net.engines[0].receive(F.heartbeat(101, 1, 0, 0, [(0, 0)] * 2, path=4), b"\2", net.now)
    assert net.engines[0].path_bytes() == 512


def test_a_view_that_closes_before_its_members_have_heard_each_other_needs_no_packet_whole():
    """A member joins by a narrow path, and leaves at once: else the others would wait for its packets until they give
    it up."""
    net = Paths(2)
    net.most = {(1, 0): 1400}
    carried = net.drop
    net.drop = lambda src, dst, lane, datagram: dst == 1 or carried(src, dst, lane, datagram)
    assert net.engines[1].send(bytes(5000)) == 0
    net.run(2)
    net.drop = carried
    change_view(net, [0, 1], [0, 1], sequencer=-1, tag=2, steps=50 * HEARTBEAT_MS)
    net.run(2)
    assert net.engines[1].counters()["sent_in_pieces"] > 0
    assert [payload for _, payload in net.got[0]] == [bytes(5000)]


@pytest.mark.parametrize("stream", ["group", "unicast", "forward"])
def test_packets_that_do_not_pass_come_in_pieces(stream):
    net = Paths(3, sequencer=1 if stream == "forward" else -1)
    net.run(KNOWN_MS)
    net.most = {(0, 1): 1400, (0, 2): 1300}
    sent = messages(1, 40)
    for payload in sent:
        assert net.engines[0].send(payload, to=101 if stream == "unicast" else 0) == 0
    net.run(1500)
    got = [payload for sender, payload in net.got[1] if sender == 100]
    assert got == sent
    counters = net.engines[0].counters()
    assert counters["sent_in_pieces"] > 0 and net.engines[0].path_bytes() in (1232, 1392)


@pytest.mark.parametrize("n", [2, 3])
def test_packets_that_do_not_pass_a_path_which_nobody_has_measured_yet_come_in_pieces(n):
    """Nothing waits for the questions about sizes, which take four heartbeats."""
    net = Paths(n)
    net.most = {(0, 1): 1400}
    sent = [bytes([i]) * 5000 for i in range(8)]
    for payload in sent:
        net.engines[0].send(payload)
    net.run(2 * HEARTBEAT_MS)
    assert [payload for sender, payload in net.got[1] if sender == 100] == sent


def test_a_full_packet_that_chance_loses_is_repeated_whole_once_the_path_is_measured():
    """Which takes a round trip."""
    net = Paths()
    net.run(2)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == 1 and lane == 0
    net.engines[0].send(bytes(5000))
    net.run(2)
    net.drop = net.carry
    net.run(200)
    counters = net.engines[0].counters()
    assert counters["packets_retransmitted"] and not counters["sent_in_pieces"]
    assert [len(payload) for _, payload in net.got[1]] == [5000]


def test_packets_for_a_wider_path_do_not_hold_up_the_view_with_smaller_ones():
    """The packets of the closed view are fetched in pieces; those of the next one are smaller, for one member too."""
    net = Paths()
    net.run(KNOWN_MS)
    net.most = dict.fromkeys([(0, 2), (1, 2)], 1400)
    sent = messages(2, 30)
    for payload in sent:
        net.engines[0].send(payload)
    net.engines[0].send(bytes(20_000), to=102)
    net.run(300)
    net.packet = 1392
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=-1, tag=2, steps=2000)
    net.run(100)
    before = net.engines[0].counters()["sent_in_pieces"]
    feed(net, {0: [bytes(20_000)]})
    net.engines[0].send(bytes(20_000), to=102)
    net.run(200)
    assert [len(payload) for _, payload in net.got[2]].count(20_000) == 3
    assert [payload for _, payload in net.got[2] if len(payload) != 20_000] == sent
    assert net.engines[0].counters()["sent_in_pieces"] == before, "they pass whole"


def test_packets_grow_again_when_all_paths_have_carried_larger_ones_for_a_minute():
    net = Paths(path=8968)
    net.run(KNOWN_MS)
    assert net.engines[0].path_bytes() == 8968 and not net.sizes(0)
    net.run(59, ns=1000 * MS)
    assert not net.sizes(0)
    net.run(3, ns=1000 * MS)
    assert net.sizes(0) == [(101, 8968)]


def test_a_path_on_which_nothing_has_passed_is_asked_again_once_packets_are_repeated_in_vain():
    """The first questions were lost: full packets wait for no minute, though no size is known that they exceed."""
    net = Paths(2)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == SIZED
    net.run(2000)
    net.drop, net.most = net.carry, {(0, 1): 1400}
    for _ in range(20):
        net.engines[0].send(bytes(1400))
        net.run(100)
    assert net.engines[0].path_bytes() == 1392


def test_isolated_loss_asks_for_no_sizes():
    net = Paths()
    net.run(KNOWN_MS)
    net.asked.clear()
    lost = {7, 19, 40}
    seen = 0

    def drop(src, dst, lane, datagram):
        nonlocal seen
        seen += datagram[2] == 1
        return net.carry(src, dst, lane, datagram) or (datagram[2] == 1 and seen in lost)

    net.drop = drop
    feed(net, {0: messages(3, 60)})
    assert net.engines[0].counters()["packets_retransmitted"] and not net.asked


def test_large_control_frames_leave_in_pieces_to_all_and_to_strangers():
    """They pass while nothing is known of the path, and arrive unchanged."""
    net = Net(3, piece_bytes=1232)
    net.drop = lambda src, dst, lane, datagram: len(datagram) > 1232
    frame = bytes(range(256)) * 20
    net.engines[0].control_send(frame)
    net.engines[0].control_send(frame, b"\2")
    net.run(3)
    assert [each.payload for each in reports_of(net.engines[1], FrameReceived)] == [frame, frame]
    assert [each.payload for each in reports_of(net.engines[2], FrameReceived)] == [frame]


def test_a_datagram_whose_pieces_are_mixed_with_others_arrives_and_old_ones_are_forgotten():
    net = Net(2, piece_bytes=1232)
    held = []
    net.drop = lambda src, dst, lane, datagram: datagram[2] == PIECE and not held.append(datagram)
    frames = [bytes([i]) * 3000 for i in range(12)]
    for frame in frames:
        net.engines[0].control_send(frame, b"\2")
    net.run(3)
    third = [held[i::3] for i in range(3)]
    for part in third[:2]:
        for piece in part:
            net.engines[1].receive(piece, b"\1", net.now)
    for piece in (*third[2], *held):
        net.engines[1].receive(piece, b"\1", net.now)
    got = [each.payload for each in reports_of(net.engines[1], FrameReceived)]
    assert sorted(set(got)) == frames, "the first four had to make room, and come when they are sent again"
    assert net.engines[1].counters()["pieces_dropped"] >= 4


RING = 64


def narrowed(sequencer: int, packet: int = 9600, form: bytes = b"%9000d") -> tuple[Net, list[bytes]]:
    """A view with small packets, in which all that member 1 sent in a ring of large ones waits to be ordered. Nothing
    passes to member 0.

    Args:
        packet: size of the large ones; by default more than eight rings of small ones hold the messages.
        form: of a message with its number, so that each fills a large packet.
    """
    net = Net(3, sequencer=0, packet=packet, ring_packets=RING, window=1 << 20)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 0
    sent: list[bytes] = []
    while net.engines[1].send(form % len(sent)) == SENT:
        sent.append(form % len(sent))
        net.step(1000)
    net.packet = 1232
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=sequencer, tag=2)
    net.step()
    return net, sent


def test_messages_that_are_sent_again_in_smaller_packets_may_need_more_of_them_than_a_ring_has():
    """All that a member forwards waits to be ordered, in as many packets as there may be, when paths become narrow."""
    net, sent = narrowed(sequencer=0, packet=1472, form=b"%1384d")
    assert len(sent) == RING
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    assert [of_sender(net, i, 1) for i in range(3)] == [sent] * 3
    feed(net, {1: [b"later"] * 200})
    assert of_sender(net, 2, 1) == [*sent, *[b"later"] * 200]


def test_own_packets_of_a_larger_ring_are_all_counted():
    """More of them than two rings of the setting are on their way."""
    net, sent = narrowed(sequencer=0)
    own = net.engines[1].own()
    assert own.last - own.first > 7 * RING and own.all == own.any == own.first
    assert net.engines[1].own_messages(own.first + 1, own.last)[-1] == len(sent)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    assert [of_sender(net, i, 1) for i in range(3)] == [sent] * 3


@pytest.mark.parametrize("sequencer", [0, 1])
def test_a_sender_with_a_full_ring_waits_though_messages_that_are_sent_again_had_a_larger_one(sequencer: int):
    net, _ = narrowed(sequencer)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    assert not net.engines[1].stalls(net.now)
    net.drop = lambda src, dst, lane, datagram: dst == 0
    n = 0
    while net.engines[1].send(b"%d" % n) == SENT:
        n += 1
        net.step(HEARTBEAT_MS * MS // RING)
    assert n == RING
    net.run(3 * HEARTBEAT_MS)
    assert [member for member, _ in net.engines[1].stalls(net.now)] == [net.ids[0]]


def test_a_message_that_could_fill_a_ring_passes_though_messages_that_are_sent_again_had_a_larger_one():
    net, sent = narrowed(sequencer=0)
    net.drop = lambda src, dst, lane, datagram: False
    large = bytes(2 * RING * 1232)
    sending, steps = Sending(net.engines[1], large), 0
    while sending.step() == AGAIN and steps < 500:
        net.step()
        steps += 1
    assert of_sender(net, 2, 1) == [*sent, large]


def test_callbacks_leave_room_though_messages_that_are_sent_again_had_a_larger_ring():
    net, sent = narrowed(sequencer=1)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    net.engines[1].uncount([net.ids[0]])
    assert net.engines[1].send(b"next") == SENT
    net.run(50)
    assert of_sender(net, 2, 1) == [*sent, b"next"]
