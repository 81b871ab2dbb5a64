"""A sequencer's members and each other's packets: whose they are, where they are requested, in which order."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

import pytest
from engines import MS, Net, change_view, make_engine

from seqcast._native.bare import crc32c
from seqcast._native.engine import SENT

DATA, FORWARD, NAK = 1, 3, 5


@dataclass(frozen=True, slots=True)
class Packet:
    """A datagram on its way, by the offsets of native/wire/wire.h."""

    src: int
    dst: int
    datagram: bytes

    @property
    def type(self) -> int:
        return self.datagram[2]

    @property
    def sender(self) -> int:
        """The incarnation that sent the message."""
        return int(struct.unpack_from("<Q", self.datagram, 16)[0])

    @property
    def seqno(self) -> int:
        return int(struct.unpack_from("<Q", self.datagram, 32)[0])

    @property
    def origin_rank(self) -> int:
        return int(struct.unpack_from("<H", self.datagram, 78)[0])

    @property
    def asked_of(self) -> tuple[int, int]:
        """Of a NAK: whose stream, and which."""
        owner, stream = struct.unpack_from("<QI", self.datagram, 40)
        return int(owner), int(stream)


class Watched(Net):
    """A network that keeps its datagrams, and drops those that ``lose`` selects."""

    def __init__(self, n: int, **settings: object) -> None:
        super().__init__(n, sequencer=0, **settings)
        self.carried: list[Packet] = []
        self.lose = lambda packet: False
        self.drop = self._judge

    def _judge(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        packet = Packet(src, dst, datagram)
        self.carried.append(packet)
        return bool(self.lose(packet))

    def of(self, kind: int) -> list[Packet]:
        return [packet for packet in self.carried if packet.type == kind]


def test_one_member_multicasts_for_all_and_its_seqnos_are_the_order_of_the_group() -> None:
    """SEQ-01, SEQ-02, SEQ-04, SEQ-05: each message travels under the sequencer's name, with its original sender in the
    header. Nobody else multicasts, so nobody contends."""
    net = Watched(3)
    net.run(5)
    net.carried.clear()
    for k in range(12):
        assert net.engines[k % 3].send(b"%d" % k) == SENT
        net.step(1000)
    net.run(20)
    assert {(packet.src, packet.sender) for packet in net.of(DATA)} == {(0, net.ids[0])}
    original = {packet.seqno: packet.origin_rank for packet in net.of(DATA)}  # a message each
    assert sorted(original) == list(range(1, 13))
    assert all([sender for sender, _ in got] == [net.ids[original[k]] for k in range(1, 13)] for got in net.got)


def test_a_multicast_goes_to_the_sequencer_as_a_forward_and_a_unicast_passes_it_by() -> None:
    """SEQ-11, SEQ-12, SEQ-15 to SEQ-17, SEQ-19: the sequencer multicasts the forward, unchanged, with the header of
    data, and each receiver delivers it as its original sender's. The sequencer's own message goes out at once."""
    net = Watched(3)
    net.run(5)
    net.carried.clear()
    assert net.engines[1].send(b"to all") == SENT
    assert net.engines[1].send(b"to 2", to=net.ids[2]) == SENT
    net.run(10)
    forward, data = net.of(FORWARD)[0], net.of(DATA)[0]
    assert {(packet.src, packet.dst) for packet in net.of(FORWARD)} == {(1, 0)}
    assert {(packet.src, packet.dst) for packet in net.of(DATA)} == {(0, 1), (0, 2)}
    assert b"to all" in forward.datagram and data.datagram[80:] == forward.datagram[80:]
    assert {(packet.src, packet.dst) for packet in net.carried if b"to 2" in packet.datagram} == {(1, 2)}
    assert net.got[0] == net.got[1] == [(net.ids[1], b"to all")]
    assert sorted(net.got[2]) == [(net.ids[1], b"to 2"), (net.ids[1], b"to all")]
    net.carried.clear()
    assert net.engines[0].send(b"own") == SENT
    net.run(10)
    assert not net.of(FORWARD) and {packet.src for packet in net.carried if b"own" in packet.datagram} == {0}


def test_a_member_that_comes_back_as_another_begins_with_seqno_1() -> None:
    """SEQ-23, E-06: with the view that excluded the member, the numbers of its packets were forgotten."""
    net = Watched(3)
    net.run(5)
    for k in range(5):
        assert net.engines[2].send(b"%d" % k) == SENT
        net.run(2)
    change_view(net, [0, 1], [0, 1], sequencer=0, tag=2)
    net.run(5)
    net.ids[2], net.got[2] = 999, []
    net.engines[2] = make_engine(999)
    base = [net.engines[0].stream(0)[0], 0, 0]
    for engine in net.engines[:2]:
        engine.gate_close()
    net.install([0, 1, 2], sequencer=0, tag=3, marker=3, base=base, cuts={0: base[:2], 1: base[:2], 2: None})
    assert net.engines[2].send(b"anew") == SENT
    net.run(50)
    assert [got[-1] for got in net.got] == [(999, b"anew")] * 3


def test_ordered_packets_are_requested_from_and_resent_by_the_sequencer_and_are_their_senders() -> None:
    """SEQ-06: the receiver restores the original sender in its deliveries, and nowhere else. Otherwise a request to
    send the packet again would go to the original sender, who does not have it under this seqno."""
    net = Watched(3)
    net.run(5)
    lost: list[Packet] = []

    def lose_the_first(packet: Packet) -> bool:
        if packet.type == DATA and packet.dst == 2 and packet.seqno == 1 and not lost:
            lost.append(packet)
            return True
        return False

    net.lose = lose_the_first
    assert net.engines[1].send(b"from 1") == SENT
    net.run(100)
    assert lost and (lost[0].src, lost[0].sender, lost[0].origin_rank) == (0, net.ids[0], 1)
    # Members 0 and 1 had delivered the packet, with its sender restored, when member 2 asked.
    naks = net.of(NAK)
    assert naks and {(nak.src, nak.dst, *nak.asked_of) for nak in naks} == {(2, 0, net.ids[0], 0)}
    again = [packet for packet in net.of(DATA) if packet.dst == 2 and packet.seqno == 1][1:]
    assert again and {(packet.src, packet.sender, packet.origin_rank) for packet in again} == {(0, net.ids[0], 1)}
    assert again[0].datagram[80:] == lost[0].datagram[80:]
    assert net.engines[0].counters()["packets_retransmitted"] == len(again)
    assert net.engines[1].counters()["packets_retransmitted"] == 0
    assert net.got == [[(net.ids[1], b"from 1")]] * 3


def test_messages_that_overtake_each_other_on_their_way_to_the_sequencer_keep_their_senders_order() -> None:
    """SEQ-07: S0 lets M2 reach the coordinator before M1 of the same sender, and has the application wait for answers.
    Here the forwards of one sender are put in its order first (E-01), so nobody need wait."""
    net = Watched(3)
    net.run(5)
    late: list[Packet] = []

    def hold_the_first(packet: Packet) -> bool:
        if packet.type == FORWARD and packet.seqno == 1 and not late:
            late.append(packet)
            return True
        return False

    net.lose = hold_the_first
    for text in (b"M1", b"M2", b"M3"):  # a packet each
        assert net.engines[1].send(text) == SENT
        net.step(1000)
    assert late and {packet.seqno for packet in net.of(FORWARD)} >= {2, 3}
    assert net.engines[0].counters()["stamped"] == 0 and net.got == [[], [], []], "M2 was there before M1"
    net.engines[0].receive(late[0].datagram, bytes([2]), net.now)
    net.run(100)
    assert net.got == [[(net.ids[1], text) for text in (b"M1", b"M2", b"M3")]] * 3
    assert net.engines[0].counters()["stamped"] == 3


def test_messages_that_the_sequencer_broadcast_to_all_but_their_sender_are_delivered_once_when_it_dies() -> None:
    """SEQ-18, SEQ-22 (the worked example): C sent 1 to 6, the coordinator A broadcast them all, and died before C got 5
    and 6. S0 has C send them again, and the others discard them. Here C gets them from the others by the cut (E-03), so
    its forward table is empty, and nothing is sent again."""
    net = Watched(4)
    net.run(5)
    texts = [b"%d" % number for number in range(1, 7)]
    delivered = [(net.ids[2], text) for text in texts]

    def send(each: list[bytes]) -> None:
        for text in each:  # a packet each
            assert net.engines[2].send(text) == SENT
            net.run(2)

    send(texts[:4])
    net.lose = lambda packet: packet.src == 0 and packet.dst == 2
    send(texts[4:])
    assert net.got == [delivered, delivered, delivered[:4], delivered]
    net.lose = lambda packet: 0 in (packet.src, packet.dst)
    forwards = len(net.of(FORWARD))
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.run(100)
    assert net.got == [delivered] * 4 and net.engines[2].own().last == net.engines[2].own().all
    assert len(net.of(FORWARD)) == forwards
    send([b"7"])
    net.run(20)
    assert net.got[1:] == [[*delivered, (net.ids[2], b"7")]] * 3
    assert net.engines[1].counters()["stamped"] == 1


def test_a_forward_at_a_member_that_is_not_the_sequencer_is_an_error_and_goes_no_further() -> None:
    """SEQ-14."""
    net = Watched(3)
    net.run(5)
    strayed: list[bytes] = []

    def stray(packet: Packet) -> bool:
        if packet.type == FORWARD and packet.dst == 0 and not strayed:
            strayed.append(packet.datagram)
            return True
        return False

    net.lose = stray
    assert net.engines[1].send(b"astray") == SENT
    net.step(1000)
    before = net.engines[2].counters()
    for _ in range(3):
        net.engines[2].receive(strayed[0], bytes([2]), net.now)
        net.take(2)
    after = net.engines[2].counters()
    assert after["drop_field"] == before["drop_field"] + 3
    assert (after["stamped"], after["messages_delivered"]) == (before["stamped"], before["messages_delivered"])
    assert net.got == [[], [], []]
    net.run(100)  # sent again, to the sequencer, and ordered once
    assert net.got == [[(net.ids[1], b"astray")]] * 3
    assert [engine.counters()["stamped"] for engine in net.engines] == [1, 0, 0]


@pytest.mark.parametrize("deliver_own", [True, False])
def test_a_member_acknowledges_its_own_packets_like_others_whether_or_not_they_are_delivered_here(
    deliver_own: bool,
) -> None:
    """Otherwise the sequencer waits for the timer of that member's acks once for each window."""
    net = Watched(3, window=64 << 10, deliver_own=deliver_own)
    net.run(5)
    begin, left = net.now, [bytes(1000)] * 1000  # 15 windows
    while left:
        while left and net.engines[1].send(left[-1]) == SENT:
            left.pop()
        net.step(50_000)
    assert net.now - begin < 10 * MS
    net.run(100)
    assert [len(got) for got in net.got] == [1000, 1000 * deliver_own, 1000]


@pytest.mark.parametrize("deliver_own", [True, False])
def test_own_messages_of_a_sequencer_are_not_taken_before_the_forwards_ahead_of_them(deliver_own: bool) -> None:
    """Or a sequencer that does without its own messages would queue those of others without bound."""
    window = 64 << 10
    net = Watched(3, window=window, deliver_own=deliver_own)
    net.run(5)
    for _ in range(300):
        for i in range(3):
            while net.engines[i].send(bytes(1000)) == SENT:
                pass
        net.step(take=False)
        net.take(1)
        net.take(2)
    assert net.engines[0].deliverable() <= window
    before = len(net.got[2])
    net.run(20)
    assert len(net.got[2]) > before and len(net.got[0]) > 30  # all goes on once the sequencer takes


@pytest.mark.long
def test_the_sequencers_own_messages_get_their_share_beside_forwards_that_take_all_credit() -> None:
    """Forwards wait in the engine, and own messages with their thread: when that runs, credit has come and is gone."""
    net = Watched(3, window=64 << 10)
    net.run(5)
    sent = [0, 0, 0]
    for _ in range(300):
        for i in (1, 2, 0):
            while net.engines[i].send(bytes(1000)) == SENT:
                sent[i] += 1
        net.step()
    assert min(sent) * 3 > max(sent) > 1000, sent
    net.run(100)
    assert [len(got) for got in net.got] == [sum(sent)] * 3


@pytest.mark.parametrize(
    ("forwarders", "each_ms", "part"), [((), 1, 1.0), ((1,), 1, 2 / 3), ((1, 2), 1, 1 / 2), ((1, 2), 10, 1.0)]
)
def test_a_sequencers_own_messages_leave_room_for_those_of_members_that_forward_much(
    forwarders: tuple[int, ...], each_ms: int, part: float
) -> None:
    """They would take all credit while forwards lie in the socket, unread. A member that has stopped has no part."""
    net = Watched(3, window=64 << 10)
    net.run(5)
    for ms in range(26):
        for i in forwarders if ms % each_ms == 0 else ():
            assert net.engines[i].send(bytes(1000)) == SENT
        net.step()
    net.lose = lambda packet: packet.dst == 0  # no credit comes back

    def send() -> int:
        count = 0
        while net.engines[0].send(bytes(1000)) == SENT:
            count += 1
        return count

    first = send()
    whole = 56  # that its window has room for
    assert abs(first - whole * part) <= 2, (first, whole)
    net.run(30)
    assert (send() >= 5) == (part < 1)  # no more: forwards were stamped in the meantime


def test_a_message_that_has_come_back_is_not_known_to_be_delivered_by_all() -> None:
    """Its sender, if cut off now, must say that the message may be lost."""
    net = Watched(3)
    net.run(5)
    net.lose = lambda packet: packet.dst == 2
    assert net.engines[1].send(b"not everywhere") == SENT
    net.run(20)
    own = net.engines[1].own()
    assert len(net.got[1]) == 1 and not net.got[2] and (own.last, own.all) == (1, 0)
    net.lose = lambda packet: False
    net.run(100)
    assert len(net.got[2]) == 1 and net.engines[1].own().all == 1


def test_a_sequencer_whose_gate_has_closed_stamps_nothing_more() -> None:
    """E-15: the sequencer has said where its stream ends. Forwards that waited for credit are sent again in the next
    view."""
    net = Watched(3, window=64 << 10)
    net.run(5)
    net.lose = lambda packet: packet.src == 0  # no credit comes back
    sent = 0
    for i in (1, 2):
        while net.engines[i].send(bytes(1000)) == SENT:
            sent += 1
    net.run(5)
    stamped, last = net.engines[0].counters()["stamped"], net.engines[0].gate_close()
    net.lose = lambda packet: False
    net.run(100)
    assert sent > len(net.got[0]) == len(net.got[1]) == len(net.got[2]) > 0, "credit has come"
    assert (net.engines[0].counters()["stamped"], net.engines[0].gate_close()) == (stamped, last)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(200)
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[0]) == sent


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_sequencer_whose_sender_gave_up_keeps_no_share_from_forwards(gave_up: bool) -> None:
    net = Watched(3, window=64 << 10)
    net.run(5)
    while net.engines[0].send(bytes(1000)) == SENT:
        pass
    while not gave_up and net.engines[0].send(b"later") != SENT:
        net.step()
    net.run(50)
    before = net.engines[0].counters()["stamped"]
    net.lose = lambda packet: packet.src == 0  # no credit comes back
    for i in (1, 2):
        while net.engines[i].send(bytes(1000)) == SENT:
            pass
    net.run(5)
    assert net.engines[0].counters()["stamped"] - before == 41  # the whole window


@pytest.mark.parametrize("size", [1000, 16_000, 16_384, 20_001, 33_333, 64_000, 200_000])
def test_the_checksum_of_an_ordered_packet_is_that_of_its_bytes(size: int) -> None:
    """SEQ-17: the sequencer changes the header of a forward. For a large one, only the effect on the CRC is
    computed."""
    net, payload = Watched(3, packet=65_000), random.Random(size).randbytes(size)
    for i in (1, 2):
        for _ in range(4):
            assert net.engines[i].send(payload) == SENT
            net.run(3)
    net.run(20)
    ordered = [packet.datagram for packet in net.of(DATA) if packet.dst == 1]
    assert len(ordered) >= 8 and {packet.origin_rank for packet in net.of(DATA)} == {1, 2}
    for datagram in ordered:
        assert int.from_bytes(datagram[4:8], "little") == crc32c(datagram[:4] + bytes(4) + datagram[8:])
    for i in range(3):
        assert [got for _, got in net.got[i]] == [payload] * 8 and net.engines[i].counters()["drop_crc"] == 0
