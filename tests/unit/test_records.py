"""Records: members multicast their packets themselves, and the sequencer says by small records whose come next."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from engines import Net, Traffic, change_view, of_sender
from hostile.forge import Forger

from seqcast._native.engine import SENT
from seqcast.core import orders

DATA, ACK, RECORD = 1, 4, 14


def kind(datagram: bytes) -> int:
    return datagram[2]


def group(n: int = 3, sequencer: int = 0, **settings: Any) -> Net:
    return Net(n, sequencer=sequencer, mechanism=orders.by_name("records").number, **settings)


def test_each_payload_crosses_the_network_once_and_packets_of_one_poll_have_one_record() -> None:
    net = group(4)
    carried: list[tuple[int, bytes]] = []

    def watch(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if dst != src and kind(datagram) in (DATA, RECORD):
            carried.append((src, datagram))
        return False

    net.drop = watch
    for i in (1, 2, 3):
        for _ in range(5):
            net.engines[i].send(random.Random(i).randbytes(1000))
    net.run(20)
    assert len(net.got[0]) == 15 and net.got.count(net.got[0]) == 4
    data = [packet for src, packet in carried if kind(packet) == DATA]
    assert len(data) == 3 * len(set(data)), "to three members each"
    records = {packet for src, packet in carried if kind(packet) == RECORD}
    assert len(records) == 1 and len(records.pop()) <= 80 + 3 * 4


def test_messages_are_numbered_in_the_order_in_which_they_are_delivered_everywhere() -> None:
    net = group(3)
    got: list[list[tuple[int, int, bytes]]] = [[], [], []]
    net.take = lambda i: None
    for k in range(30):
        net.engines[k % 3].send(b"%d" % k)
        net.step(1000)
    net.run(10)
    for i, engine in enumerate(net.engines):
        while (item := engine.deliver()) is not None:
            if isinstance(item, int):
                continue
            payloads = item.tolist()
            for run in item.runs:
                for j in range(run["n"]):
                    got[i].append((int(run["global_seqno"]) + j, int(run["sender"]), payloads[run["first"] + j]))
    assert got[0] == got[1] == got[2] and [number for number, _, _ in got[0]] == list(range(1, 31))


@pytest.mark.parametrize("lost", [DATA, RECORD])
def test_a_member_that_lacks_the_record_or_the_packet_delivers_neither_that_nor_later_packets(lost: int) -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 2 and kind(datagram) == lost
    net.engines[1].send(b"first")
    net.step(10_000)
    net.step(10_000)
    net.engines[0].send(b"second")
    net.step(10_000)
    net.step(10_000)
    assert [payload for _, payload in net.got[1]] == [b"first", b"second"] and not net.got[2]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert net.got[2] == net.got[1]


@pytest.mark.parametrize("window", range(20_000, 22_400, 300))
def test_records_need_no_credit_that_the_sequencers_own_packets_have_used_up(window: int) -> None:
    """The sequencer's window is full of its own packets, which nobody acknowledges: those of others are ordered,
    however little of the window the last packet has left."""
    net = group(3, window=window)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 0 and kind(datagram) == ACK
    while net.engines[0].send(bytes(1000)) == SENT:
        net.step(1000)
    before = len(net.got[2])
    net.engines[1].send(b"in spite of it")
    net.step(10_000)
    net.step(10_000)
    assert [payload for _, payload in net.got[2][before:]] == [b"in spite of it"]


def test_a_sequencer_that_only_records_goes_on_for_ever() -> None:
    """Records are consumed as data is: otherwise a ring, or a window, of them would be the last."""
    net = group(2, ring_packets=64, window=20_000)
    for k in range(500):
        assert net.engines[1].send(b"%d" % k) == SENT
        net.run(2)
    assert of_sender(net, 0, 1) == of_sender(net, 1, 1) == [b"%d" % k for k in range(500)]
    assert net.engines[0].counters()["records"] >= 400


def test_records_are_consumed_only_with_the_sequencers_packets_before_them() -> None:
    """An application that takes nothing stalls the sequencer, even if many records follow the messages not taken."""
    net = group(2, window=20_000)
    net.run(5)
    net.take = lambda i: i == 0 and Net.take(net, 0)
    sent = 0
    for _ in range(200):
        sent += net.engines[0].send(bytes(1000)) == SENT
        net.engines[1].send(b"")
        net.step()
    assert sent < 25


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [400, 6000])
def test_survivors_messages_are_delivered_in_their_view_when_the_sequencer_crashes(seed: int, size: int) -> None:
    """The cut orders such a message, the same everywhere, before the next view."""
    net = group(4, window=30_000)
    traffic = Traffic(net, random.Random(seed), size)
    traffic.until_crash(b"of the sequencer")
    for i in (1, 2, 3):  # the sequencer never records these
        traffic.send(i)
    in_view = {i: list(of) for i, of in traffic.sent.items()}
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2, steps=2000)
    for i in (1, 2, 3):
        net.take(i)
        assert net.markers[i] == [1, 2]
        assert [of_sender(net, i, j) for j in (1, 2, 3)] == [in_view[j] for j in (1, 2, 3)]
        agreed, end = len(net.got[i]) - len(net.transitional[i]), len(net.got[i])
        assert net.transitional[i] == net.transitional[1] == list(range(agreed, end)), "the last ones, the same for all"
        assert agreed and net.got[0][:agreed] == net.got[i][: min(agreed, len(net.got[0]))]
    traffic.after_crash()
    assert net.got[1] == net.got[2] == net.got[3]
    for i in (1, 2, 3):
        assert of_sender(net, 1, i) == traffic.sent[i]


def test_an_entry_whose_packet_no_survivor_has_is_void() -> None:
    """The sequencer had recorded the packet, and is lost together with the sender. Its later records count."""
    net = group(4)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 3 and dst != 0 and kind(datagram) == DATA
    net.engines[3].send(b"of the lost one")
    net.step(10_000)
    net.engines[2].send(b"of two")
    net.step(10_000)
    net.engines[1].send(b"of one")
    net.run(3, 10_000)
    assert [payload for _, payload in net.got[0]] == [b"of the lost one", b"of two", b"of one"] and not net.got[1]
    net.drop = lambda src, dst, lane, datagram: bool({src, dst} & {0, 3})
    change_view(net, [1, 2], [1, 2], sequencer=0, tag=2)
    net.run(10)
    assert net.got[1] == net.got[2] == [(net.ids[2], b"of two"), (net.ids[1], b"of one")]
    assert net.transitional[1] == net.transitional[2] == [0, 1], "the sequencer had another message in that place"


def test_a_record_is_served_by_any_survivor_that_holds_it() -> None:
    net = group(4)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 0 and dst != 3  # only member 3 hears the sequencer
    net.engines[2].send(b"of two")
    net.step(10_000)
    net.engines[1].send(b"of one")
    net.run(3, 10_000)
    assert [payload for _, payload in net.got[3]] == [b"of two", b"of one"] and not net.got[1]
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.run(10)
    assert net.got[1] == net.got[2] == net.got[3] == [(net.ids[2], b"of two"), (net.ids[1], b"of one")]
    assert net.transitional == [[]] * 4, "in the sequencer's order"


@pytest.mark.parametrize(("survivors", "transitional"), [([0, 1, 2], 0), ([1, 2, 3], 1), ([0, 1, 2, 3], 0)])
def test_only_a_sequencer_that_fell_makes_messages_without_a_record_transitional(
    survivors: list[int], transitional: int
) -> None:
    """One that survived delivered nothing that its records, which the cut has, do not name."""
    net = group(4)
    net.run(5)
    net.engines[2].send(b"ordered")
    net.run(20)
    net.engines[0].gate_close()
    net.engines[1].send(b"not ordered")
    net.drop = lambda src, dst, lane, datagram: not {src, dst} <= set(survivors)
    change_view(net, survivors, survivors, sequencer=0, tag=2)
    net.run(10)
    for i in survivors:
        assert net.got[i] == [(net.ids[2], b"ordered"), (net.ids[1], b"not ordered")]
        assert net.transitional[i] == [1] * transitional


def test_a_sequencer_whose_gate_has_closed_records_nothing_more() -> None:
    """The end of its stream is fixed: later packets are in the order of the cut."""
    net = group(3)
    net.run(5)
    last = net.engines[0].gate_close()
    net.engines[1].send(b"late")
    net.run(20)
    assert net.engines[0].gate_close() == last
    assert net.got == [[]] * 3


def record(*entries: tuple[int, int], seqno: int = 1, pieces: int | None = None, more: bytes = b"") -> bytes:
    """Of the member 100, the sequencer."""
    n = len(entries) if pieces is None else pieces
    body = struct.pack("<QQQQIHH", 0, 0, 0, 0, 4 * n, n, 0)
    return Forger(7).datagram(
        RECORD, 100, 1, body + b"".join(struct.pack("<HH", *each) for each in entries) + more, seqno=seqno
    )


@pytest.mark.parametrize(
    ("counter", "datagram"),
    [
        ("drop_field", record()),
        ("drop_field", record((1, 0))),
        ("drop_field", record((128, 1))),
        ("drop_field", record((1, 1), (3, 1))),
        ("drop_field", record(*[(1, 1)] * 65)),
        ("drop_short", record((1, 1), pieces=2)),
        ("drop_short", record((1, 1), more=b"\0\0\0\0")),
    ],
    ids="empty,of nothing,of no rank,of nobody,too long,cut off,padded".split(","),
)
def test_an_impossible_record_is_dropped(counter: str, datagram: bytes) -> None:
    net = group(3)
    net.engines[1].receive(datagram, bytes([1]), net.now)
    assert net.engines[1].counters()[counter] == 1


@pytest.mark.parametrize("mechanism", [0, 1])
def test_an_order_without_records_accepts_none(mechanism: int) -> None:
    """The members would read it as one with messages."""
    net = Net(3, sequencer=mechanism - 1)
    net.engines[1].receive(record((2, 1)), bytes([1]), net.now)
    assert net.engines[1].counters()["drop_field"] == 1 and net.engines[1].stream(0)[1] == 0


def test_only_the_sequencer_records() -> None:
    net = group(3, sequencer=2)
    net.engines[1].receive(record((1, 1)), bytes([1]), net.now)
    assert net.engines[1].counters()["drop_field"] == 1


def test_a_pause_waits_until_earlier_messages_have_a_record() -> None:
    """Otherwise members that hold the same packets would not have delivered the same."""
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: kind(datagram) == RECORD
    assert net.engines[1].send(b"before the pause") == SENT
    for engine in net.engines:
        engine.pause()
    net.run(3, 10_000)
    assert [engine.unordered() for engine in net.engines] == [0, 1, 0]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert [engine.unordered() for engine in net.engines] == [0, 0, 0]
    assert net.got == [[(net.ids[1], b"before the pause")]] * 3
