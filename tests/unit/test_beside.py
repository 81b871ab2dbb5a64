"""Messages beside the total order (``ordered=False``): in order per sender, in their view, without a global seqno."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engines import Net, change_view, messages, of_sender
from hostile.forge import Forger

from seqcast._native.engine import SENT, Batch, SendingArray
from seqcast.core import orders

DATA, UNICAST, STATE, RECORD, BESIDE = 1, 2, 9, 14, 8
CARRIED = [name for name in ("sequencer", "records", "total-1999") if orders.by_name(name).beside]


class Placed(Net):
    """Notes the global seqno of each message, 0 for none."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.places: dict[int, list[tuple[int, bytes]]] = {}
        super().__init__(*args, **settings)

    def take(self, i: int) -> None:
        while (item := self.engines[i].deliver()) is not None:
            if not isinstance(item, Batch):
                self.markers[i].append(item)
                continue
            payloads = item.tolist()
            for run in item.runs:
                for k in range(run["n"]):
                    payload, place = payloads[int(run["first"]) + k], int(run["global_seqno"])
                    self.got[i].append((int(run["sender"]), payload))
                    self.places.setdefault(i, []).append((place + k if place else 0, payload))


def group(order: str, n: int = 3, sequencer: int = 0, **settings: Any) -> Placed:
    return Placed(n, sequencer=sequencer, mechanism=orders.by_name(order).number, **settings)


@pytest.mark.parametrize("order", CARRIED)
@pytest.mark.parametrize("seed", range(3))
def test_the_ordered_messages_are_numbered_without_gaps_and_the_others_not_at_all(order: str, seed: int) -> None:
    """Under loss, with messages that span packets: each sender's stay in order, of both kinds together."""
    sequencer = 0 if order == "total-1999" else seed
    net, rng = group(order, sequencer=sequencer, window=30_000), random.Random(seed)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.1
    sent = {i: [b"%d" % i + each for each in messages(10 * seed + i, 200)] for i in range(3)}
    ordered = {payload: rng.random() < 0.5 for each in sent.values() for payload in each}
    todo = {i: list(of) for i, of in sent.items()}
    for _ in range(4000):
        for i, left in todo.items():
            while left and net.engines[i].send(left[0], ordered=ordered[left[0]]) == SENT:
                left.pop(0)
        net.step()
        if not any(todo.values()):
            break
    net.run(600)
    for i in range(3):
        assert [of_sender(net, i, j) for j in range(3)] == [sent[j] for j in range(3)]
        places = net.places[i]
        assert all(bool(place) == ordered[payload] for place, payload in places)
        assert [place for place, _ in places if place] == list(range(1, sum(ordered.values()) + 1))
    first, *others = ([each for each in net.places[i] if each[0]] for i in range(3))
    assert all(other == first for other in others)


def test_a_message_beside_the_order_waits_for_no_record_but_for_the_earlier_ones_of_its_sender() -> None:
    """SEQ-13: such a message is delivered on arrival, without a header of the order."""
    net = group("records")
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == RECORD
    net.engines[1].send(b"ordered")
    net.engines[1].send(b"behind it", ordered=False)
    net.engines[2].send(b"at once", ordered=False)
    net.run(3, 10_000)
    assert [[payload for _, payload in net.got[i]] for i in (1, 2)] == [[b"at once"], [b"at once"]]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    for i in range(3):
        assert of_sender(net, i, 1) == [b"ordered", b"behind it"] and of_sender(net, i, 2) == [b"at once"]


@pytest.mark.parametrize("order", CARRIED)
def test_messages_sent_beside_the_order_are_not_lost_with_the_sequencer(order: str) -> None:
    """With records such a message is delivered in its view; forwards are sent again in the next one, still beside the
    order."""
    net = group(order, 4)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    net.engines[1].send(b"1 ordered")
    net.engines[1].send(b"1 beside", ordered=False)
    net.engines[2].send(b"2 beside", ordered=False)
    net.engines[2].send(b"2 ordered")
    net.run(3)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.run(200)
    for i in (1, 2, 3):
        assert of_sender(net, i, 1) == [b"1 ordered", b"1 beside"]
        assert of_sender(net, i, 2) == [b"2 beside", b"2 ordered"]
        assert {payload for place, payload in net.places[i] if not place} == {b"1 beside", b"2 beside"}
        assert sorted(place for place, _ in net.places[i] if place) == [1, 2]


@pytest.mark.parametrize("order", CARRIED)
def test_messages_that_wait_for_the_gate_stay_beside_the_order(order: str) -> None:
    net = group(order, blocked_bytes_max=10_000)
    net.run(5)
    for engine in net.engines:
        engine.pause()
    assert net.engines[1].send(b"beside", ordered=False) == net.engines[1].send(b"ordered") == SENT
    for engine in net.engines:
        engine.resume()
    net.run(50)
    assert all(net.places[i] == [(0, b"beside"), (1, b"ordered")] for i in range(3))


@pytest.mark.parametrize("order", ["fifo", *CARRIED])
def test_a_packet_holds_messages_of_one_kind_and_without_a_total_order_there_is_one_kind(order: str) -> None:
    net = group(order, sequencer=-1 if order == "fifo" else 0)
    net.run(5)
    packets: list[bytes] = []
    net.drop = lambda src, dst, lane, datagram: packets.append(datagram) or False
    array = SendingArray(net.engines[0], [b"b%d" % k for k in range(5)], False)
    assert net.engines[0].send(b"a") == array.step() == net.engines[0].send(b"c") == SENT
    net.run(3)
    flags = [packet[3] & BESIDE for packet in dict.fromkeys(packets) if packet[2] == DATA]
    assert flags == ([0] if order == "fifo" else [0, BESIDE, 0])
    assert [payload for _, payload in net.got[2]] == [b"a", b"b0", b"b1", b"b2", b"b3", b"b4", b"c"]


def test_only_packets_to_the_group_travel_beside_its_order() -> None:
    net = group("records")
    net.engines[1].receive(Forger(7).packet(UNICAST, 100, 1, 1), bytes([1]), net.now)
    assert net.engines[1].counters()["drop_field"] == 0
    for kind in (UNICAST, STATE):
        net.engines[1].receive(Forger(7).packet(kind, 100, 1, 2, flags=BESIDE), bytes([1]), net.now)
    assert net.engines[1].counters()["drop_field"] == 2
