"""TOTAL (S1): requests go to the first member, which multicasts them; and the headers that only this order knows."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from engines import MS, Net, change_view, feed, of_sender
from hostile.forge import Forger

from seqcast._native.engine import SENT
from seqcast.core import orders

DATA, UNICAST, FORWARD, ACK, NAK, PROBE, TOTAL = 1, 2, 3, 4, 5, 6, 15
NEW_VIEW, NEW_VIEW_ACK, SEQ_ACK = 1, 2, 3
NUMBER = orders.by_name("total-1999").number


@dataclass(frozen=True, slots=True)
class Packet:
    """A datagram on its way, by the offsets of native/wire/wire.h."""

    src: int
    dst: int
    datagram: bytes
    ms: int

    @property
    def kind(self) -> int | tuple[int, int]:
        """The type, and of TOTAL the header too."""
        if self.datagram[2] != TOTAL:
            return self.datagram[2]
        return TOTAL, int(struct.unpack_from("<I", self.datagram, 48)[0])

    @property
    def id(self) -> int:
        """The sequence id of a BCAST, or of a header of TOTAL."""
        return int(struct.unpack_from("<Q", self.datagram, 40 if self.datagram[2] == TOTAL else 32)[0])

    @property
    def asked(self) -> list[tuple[int, int]]:
        """Of a NAK."""
        (n,) = struct.unpack_from("<I", self.datagram, 52)
        return [struct.unpack_from("<QQ", self.datagram, 56 + 16 * i) for i in range(n)]


class Watched(Net):
    """A network that keeps its datagrams, and loses those that ``lose`` selects."""

    def __init__(self, n: int, **settings: Any) -> None:
        self.carried: list[Packet] = []
        self.lose: Callable[[Packet], bool] = lambda packet: False
        super().__init__(n, sequencer=0, mechanism=NUMBER, **settings)
        self.drop = self._judge

    def _judge(self, src: int, dst: int, lane: int, datagram: bytes) -> bool:
        packet = Packet(src, dst, datagram, self.now // MS)
        self.carried.append(packet)
        return self.lose(packet)

    def of(self, kind: int | tuple[int, int]) -> list[Packet]:
        return [packet for packet in self.carried if packet.kind == kind]


def settled(n: int = 3, **settings: Any) -> Watched:
    """Members that all know that the view has begun."""
    net = Watched(n, **settings)
    net.run(5)
    net.carried.clear()
    return net


def test_a_request_goes_to_the_sequencer_alone_and_a_broadcast_has_the_next_id() -> None:
    """TOT-08, TOT-09: ids are the seqnos of the sequencer's packets, whoever made the request, with none left out."""
    net = settled()
    for k in range(12):
        assert net.engines[k % 3].send(b"%d" % k) == SENT
        net.step(1000)
    net.run(20)
    assert {(each.src, each.dst) for each in net.of(FORWARD)} == {(1, 0), (2, 0)}
    broadcasts = net.of(DATA)
    assert {each.src for each in broadcasts} == {0}
    assert sorted({each.id for each in broadcasts}) == list(range(1, 13))
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[0]) == 12


def test_broadcasts_wait_for_the_next_expected_id_and_those_that_come_twice_are_dropped() -> None:
    """TOT-05 to TOT-07: a member decides by the sequence ids alone, and delivers as long as it has the next expected
    one."""
    net, kept = settled(2), []
    net.lose = lambda packet: packet.kind == DATA and (kept.append(packet.datagram) or True)
    for k in range(1, 5):
        assert net.engines[0].send(b"%d" % k) == SENT
        net.step(1000)
    first, second, third, fourth = kept

    def arrives(*broadcasts: bytes) -> list[bytes]:
        for each in broadcasts:
            net.engines[1].receive(each, bytes([1]), net.now)
        net.take(1)
        return [text for _, text in net.got[1]]

    assert arrives(first, third, third, fourth, first) == [b"1"]
    assert net.engines[1].counters()["packets_duplicate"] == 2
    assert arrives(second) == [b"1", b"2", b"3", b"4"]


# ---- NEW_VIEW ----------------------------------------------------------------------------------------------------


def test_the_sequencer_says_with_which_id_the_view_begins_until_all_have_acknowledged_it() -> None:
    """TOT-12, E-08: NEW_VIEW is repeated, first to all, then to those alone that have not acknowledged it."""
    net = Watched(3)
    net.lose = lambda packet: packet.kind == (TOTAL, NEW_VIEW_ACK) and packet.src == 2
    net.run(400)
    told = net.of((TOTAL, NEW_VIEW))
    assert {(each.src, each.id) for each in told} == {(0, 1)}
    to = {dst: [each.ms for each in told if each.dst == dst] for dst in (1, 2)}
    assert len(to[1]) < len(to[2]) and to[2][-1] > 300
    pauses = [b - a for a, b in zip(to[2], to[2][1:], strict=False)]
    assert pauses == sorted(pauses) and pauses[-1] >= 64, "with back-off"
    net.lose = lambda packet: False
    net.run(200)
    before = len(net.of((TOTAL, NEW_VIEW)))
    net.run(1000)
    assert len(net.of((TOTAL, NEW_VIEW))) == before


def test_a_member_that_does_not_know_the_first_id_delivers_nothing_and_then_everything() -> None:
    net = Watched(3)
    net.lose = lambda packet: packet.kind == (TOTAL, NEW_VIEW) and packet.dst == 2
    for text in (b"one", b"two"):
        assert net.engines[1].send(text) == SENT
        net.run(3)
    net.run(50)
    assert [text for _, text in net.got[1]] == [b"one", b"two"] and not net.got[2]
    net.lose = lambda packet: False
    net.run(110)
    assert net.got[2] == net.got[1]


def test_requests_that_reached_a_sequencer_outside_the_view_are_made_again_when_it_says_that_it_begins() -> None:
    """E-05: not after the pause of a probe, which was doubled until then."""
    net = Watched(2, probe_ns_min=200 * MS)
    net.lose = lambda packet: (packet.dst == 0 and packet.kind == FORWARD) or packet.kind == (TOTAL, NEW_VIEW)
    assert net.engines[1].send(b"early") == SENT
    net.run(40)
    assert not net.got[0]
    net.lose = lambda packet: False
    begun = net.now
    while not net.got[1]:
        net.step()
        assert net.now < begun + 60 * MS, "it waited for the probe"


def test_a_member_that_hears_the_first_id_after_the_cut_delivers_nothing_before_the_view() -> None:
    net = Watched(3)
    net.lose = lambda packet: packet.kind == (TOTAL, NEW_VIEW) and packet.dst == 2
    assert net.engines[1].send(b"in the cut") == SENT
    net.run(50)
    assert len(net.got[1]) == 1 and not net.got[2]
    cut = [1, 0, 0]
    for engine in net.engines:
        engine.gate_close()
        engine.freeze([])
    net.engines[2].cut(cut, [])
    net.lose = lambda packet: False
    net.carried.clear()
    net.run(120)
    assert [packet for packet in net.of((TOTAL, NEW_VIEW)) if packet.dst == 2] and not net.got[2]
    for engine in net.engines[:2]:
        engine.cut(cut, [])
    net.install([0, 1, 2], sequencer=0, tag=2, marker=2, base=cut, origin=[0, 1, 0], cuts=dict.fromkeys(range(3), cut))
    net.run(5)
    assert net.got[2] == net.got[1] == [(net.ids[1], b"in the cut")]


def test_members_that_never_heard_the_first_id_deliver_the_same_at_the_cut() -> None:
    """The VIEW implies that."""
    net = Watched(4)
    net.lose = lambda packet: packet.kind == (TOTAL, NEW_VIEW) and packet.dst != 1
    for i in (0, 1, 2, 3):
        assert net.engines[i].send(b"from %d" % i) == SENT
    net.run(30)
    assert len(net.got[1]) == 4 and not net.got[2] and not net.got[3]
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.run(50)
    assert net.got[1] == net.got[2] == net.got[3] and len(net.got[1]) == 4


# ---- acknowledgements and history ---------------------------------------------------------------------------------


def held(net: Watched, ids: list[int], member: int) -> set[int]:
    """Of these broadcasts, those that the sequencer sends again to a member that requests them."""
    net.run(2)  # a broadcast that was just sent again is not sent again yet
    net.carried.clear()
    for each in ids:
        request = Forger(7).nak(net.ids[member], 1, net.ids[0], 0, [(each, each)])
        net.engines[0].receive(request, bytes([member + 1]), net.now)
    net.step(100_000)
    return {packet.id for packet in net.of(DATA) if packet.dst == member}


def test_the_sequencer_keeps_a_broadcast_until_all_have_acknowledged_it_cumulatively() -> None:
    """STA-05: CUM_SEQ_ACK is the ACK of the sequencer's stream: broadcasts up to its id are stable, and deleted."""
    net = settled(3)
    net.lose = lambda packet: packet.src == 2 and packet.kind == ACK
    for k in range(6):
        assert net.engines[1].send(b"%d" % k) == SENT
        net.step()
    net.run(8)
    assert {each.id for each in net.of(DATA)} == set(range(1, 7))
    assert held(net, [1, 3, 6], 2) == {1, 3, 6}, "member 1 has acknowledged all of it, member 2 nothing"
    cumulative = Forger(7).ack(net.ids[2], 1, 0, 4, 4, 4)
    net.engines[0].receive(cumulative, bytes([3]), net.now)
    assert held(net, [3, 4, 5, 6], 2) == {5, 6}
    net.run(10)
    assert held(net, [3, 4, 5, 6], 2) == {5, 6}


def lost_tail(net: Watched, lost: set[int], reach: int = 2, first: bool = True) -> None:
    """Sends 5 messages, of whose first transmission this member gets no broadcast of these."""
    seen: set[int] = set()

    def lose(packet: Packet) -> bool:
        if packet.kind != DATA or packet.dst != reach or packet.id not in lost:
            return False
        again = packet.id in seen
        seen.add(packet.id)
        return not again

    net.lose = lose
    for k in range(5):
        assert net.engines[0].send(b"%d" % k) == SENT
        net.step(100_000)


def test_a_lost_end_is_sent_again_unasked_to_the_member_that_did_not_acknowledge_it() -> None:
    """TOT-20: a lost end leaves no gap, so the sequencer sends its last broadcast again, which shows the rest as a
    gap."""
    net = settled(3)
    lost_tail(net, {3, 4, 5})
    while len(net.got[2]) < 5:
        net.step()
        assert not net.of(PROBE), "it was not shown before the sequencer asked"
    again = [packet for packet in net.of(DATA) if packet.dst == 2 and packet.id == 5][1:]
    assert len(again) == 1 and not [packet for packet in net.of(DATA) if packet.dst == 1 and packet.id == 5][1:]
    assert {pair for packet in net.of(NAK) for pair in packet.asked} == {(3, 4)} and {p.src for p in net.of(NAK)} == {2}
    net.run(20)
    assert net.got[2] == net.got[1]


def test_a_member_that_acknowledged_the_last_broadcast_by_itself_does_not_get_it_again() -> None:
    """SEQ_ACK: the member has the end, behind a gap, and requests the missing packets."""
    net = settled(3, ack_delay_ns=2 * MS)
    gap = {"closed": False}
    net.lose = lambda packet: not gap["closed"] and packet.dst == 2 and packet.kind == DATA and packet.id in (2, 3)
    for k in range(5):
        assert net.engines[0].send(b"%d" % k) == SENT
        net.run(1, 100_000)
        if not k:
            net.run(4)  # acknowledged, and nothing more until the gap is closed
    net.run(30)
    assert {(each.src, each.dst, each.id) for each in net.of((TOTAL, SEQ_ACK))} == {(2, 0, 5)}
    assert len([packet for packet in net.of(DATA) if packet.dst == 2 and packet.id == 5]) == 1
    assert [text for _, text in net.got[2]] == [b"0"]
    gap["closed"] = True
    net.run(60)
    assert net.got[2] == net.got[1]


def test_one_request_names_all_that_is_missing_at_that_moment() -> None:
    """TOT-15: RESEND is the NAK to the sequencer."""
    net = settled(2)
    net.lose = lambda packet: packet.kind == DATA and packet.id % 3 and packet.dst == 1 and not net.of(NAK)
    for k in range(12):
        assert net.engines[0].send(b"%02d" % k + bytes(1380)) == SENT  # a packet each
    net.run(20)
    assert [(packet.dst, packet.asked) for packet in net.of(NAK)] == [(0, [(1, 2), (4, 5), (7, 8), (10, 11)])]
    assert net.got[1] == net.got[0] and len(net.got[0]) == 12


def test_a_request_to_send_again_backs_off_while_nobody_answers_it_and_stays_within_a_window() -> None:
    """TOT-14, TOT-16, TOT-21: the pause between two doubles, with jitter, up to a bound; and packets that the member
    could not hold are not requested yet."""
    net = settled(2, window=1 << 20, ring_packets=64)
    gone = {"on": True}
    net.lose = lambda packet: gone["on"] and packet.kind == DATA and packet.id % 4 == 1 and packet.dst == 1
    for k in range(200):
        net.engines[0].send(b"%d" % k)
        net.step(100_000)
    net.run(300)
    naks = net.of(NAK)
    assert naks and {packet.dst for packet in naks} == {0}
    assert max(hi for packet in naks for _, hi in packet.asked) <= 64, "no more than the ring holds is requested"
    asked = {lo: [packet.ms for packet in net.of(NAK) if (lo, lo) in packet.asked] for lo in (1, 5, 9)}
    assert all(5 <= len(times) <= 25 for times in asked.values()), "doubled up to 30 ms, each by its own clock"
    gone["on"] = False
    net.run(300)
    assert len(net.got[1]) == len(net.got[0]) > 50


# ---- views -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [400, 6000])
def test_nothing_of_a_survivor_is_lost_or_doubled_when_the_sequencer_crashes(seed: int, size: int) -> None:
    """TOT-11, TOT-19, E-08: the old one's multicasts are delivered up to the cut, and the other packets are requested
    of the new one, whose ids begin after its own last seqno, as each view stands for itself (TOT-10)."""
    net, rng = Watched(4, window=30_000), random.Random(seed)
    net.lose = lambda packet: rng.random() < 0.1
    sent = {i: [rng.randbytes(rng.randrange(size)) + b"%d.%d" % (i, k) for k in range(60)] for i in range(4)}
    todo = {i: list(each) for i, each in sent.items()}
    for _ in range(40):
        for i in range(4):
            if todo[i] and net.engines[i].send(todo[i][0]) == SENT:
                todo[i].pop(0)
        net.step()
    gone = {"crashed": False}
    net.lose = lambda packet: (gone["crashed"] and 0 in (packet.src, packet.dst)) or rng.random() < 0.1
    gone["crashed"] = True
    net.run(3)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2, steps=2000)
    feed(net, {i: todo[i] for i in (1, 2, 3)})
    assert net.got[1] == net.got[2] == net.got[3]
    for i in (1, 2, 3):
        assert of_sender(net, 1, i) == sent[i]
    told = [packet for packet in net.of((TOTAL, NEW_VIEW)) if packet.src == 1]
    assert told and {packet.id for packet in told} == {1}, "member 1 had multicast nothing itself"


def test_requests_to_send_again_end_with_their_view() -> None:
    """TOT-13: repeated requests of a member are forgotten, and the next view has ids of its own."""
    net = settled(3)
    net.lose = lambda packet: packet.kind == DATA and packet.id == 2
    for k in range(1, 4):
        assert net.engines[0].send(b"%d" % k) == SENT
        net.step(100_000)
    net.run(20)
    assert {pair for packet in net.of(NAK) for pair in packet.asked} == {(2, 2)}
    net.lose = lambda packet: 0 in (packet.src, packet.dst)
    change_view(net, [1, 2], [1, 2], sequencer=0, tag=2)
    net.carried.clear()
    assert net.engines[2].send(b"next") == SENT
    net.run(200)
    assert not net.of(NAK) and net.got[1] == net.got[2] == [(net.ids[0], b"1"), (net.ids[2], b"next")]


# ---- forgeries ---------------------------------------------------------------------------------------------------


def test_headers_from_those_that_may_not_send_them_or_with_an_impossible_id_are_counted_and_dropped() -> None:
    net = Watched(3)
    net.lose = lambda packet: packet.kind == (TOTAL, NEW_VIEW)
    assert net.engines[0].send(b"waits") == SENT
    net.run(5)

    def heard(member: int, by: int, header: int, seqno: int) -> int:
        """How much more is dropped at this member."""
        before = net.engines[member].counters()["drop_field"]
        body = struct.pack("<QII", seqno, header, 0)
        net.engines[member].receive(Forger(7).datagram(TOTAL, net.ids[by], 1, body), bytes([by + 1]), net.now)
        return int(net.engines[member].counters()["drop_field"] - before)

    assert heard(2, 1, NEW_VIEW, 1) == 1, "not of the sequencer"
    assert heard(2, 0, NEW_VIEW, 2) == 1, "not what the VIEW says"
    assert heard(0, 1, SEQ_ACK, 99) == 1, "never sent"
    assert heard(2, 1, SEQ_ACK, 1) == heard(2, 1, NEW_VIEW_ACK, 0) == 1, "to one that is not the sequencer"
    assert heard(0, 1, NEW_VIEW_ACK, 1) == heard(0, 1, 4, 1) == heard(0, 1, 0, 1) == 1, "not valid"
    net.take(2)
    assert not net.got[2]
    assert heard(2, 0, NEW_VIEW, 1) == 0
    net.take(2)
    assert [text for _, text in net.got[2]] == [b"waits"]


def test_a_header_of_total_is_nothing_to_another_order() -> None:
    net = Net(2, sequencer=0)
    net.engines[1].receive(
        Forger(7).datagram(TOTAL, net.ids[0], 1, struct.pack("<QII", 1, NEW_VIEW, 0)), bytes([1]), net.now
    )
    assert net.engines[1].counters()["drop_field"] == 1
