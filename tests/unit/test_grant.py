"""Grant: members multicast their packets themselves, with places that the sequencer grants on request."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from engines import Net, Traffic, change_view, of_sender
from hostile.forge import Forger

from seqcast._native.engine import SENT
from seqcast.core import orders

DATA, RECORD, WANT, GRANT = 1, 14, 20, 21


def kind(datagram: bytes) -> int:
    return datagram[2]


def group(n: int = 3, sequencer: int = 0, **settings: Any) -> Net:
    return Net(n, sequencer=sequencer, mechanism=orders.by_name("grant").number, **settings)


def counts(net: Net, name: str) -> list[int]:
    return [engine.counters()[name] for engine in net.engines]


def test_a_packet_waits_for_its_place_and_crosses_the_network_once() -> None:
    """SEQ-01: the older scheme, in which members ask for a number and multicast themselves."""
    net = group(4)
    carried: list[tuple[int, int, bytes]] = []

    def watch(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if kind(datagram) in (DATA, RECORD, WANT, GRANT):
            carried.append((src, dst, datagram))
        return False

    net.drop = watch
    net.engines[2].send(b"one")
    net.run(20)
    assert [payload for _, payload in net.got[0]] == [b"one"] and net.got.count(net.got[0]) == 4
    assert [(src, dst, kind(each)) for src, dst, each in carried] == [
        (2, 0, WANT), (0, 2, GRANT), (2, 0, DATA), (2, 1, DATA), (2, 3, DATA)
    ]  # fmt: skip


def test_packets_packed_during_a_round_trip_share_the_next_request() -> None:
    net = group(2)
    net.run(5)
    net.engines[1].send(bytes(1000))
    net.step()
    for _ in range(20):
        net.engines[1].send(bytes(1000))
    net.run(20)
    assert len(net.got[0]) == 21 and counts(net, "wants_sent")[1] <= 4


def test_messages_are_numbered_without_gaps_though_places_are_given_back() -> None:
    net = group(3)
    got: list[list[int]] = [[], [], []]
    net.take = lambda i: None
    for k in range(60):
        if k % 20 == 0:
            net.run(60)  # the member that sends next is alone, and asks for places ahead
        for _ in range(4 * (k % 3)):
            net.engines[k // 20].send(bytes(1000))
        net.step(1000)
    net.run(20)
    for i, engine in enumerate(net.engines):
        while (item := engine.deliver()) is not None:
            if not isinstance(item, int):
                got[i] += [int(run["global_seqno"]) + j for run in item.runs for j in range(run["n"])]
    assert got[0] == got[1] == got[2] == list(range(1, 241))
    assert sum(counts(net, "places_void")) > 0


def test_a_member_that_stops_sending_gives_back_the_places_that_it_asked_for_ahead() -> None:
    """Another's later messages are delivered, and soon."""
    net = group(3)
    net.run(5)
    for _ in range(30):
        for _ in range(3):
            net.engines[1].send(bytes(1000))
        net.step(100_000)
    assert counts(net, "places_void") == [0, 0, 0] and counts(net, "wants_sent")[1] < 30, "it sends"
    net.run(2)
    assert counts(net, "places_void")[1] > 0 and len(net.got[2]) == 90
    net.engines[0].send(b"after")
    net.run(2)
    assert all(got[-1][1] == b"after" for got in net.got)


@pytest.mark.parametrize("lost", [WANT, GRANT])
def test_a_lost_request_or_answer_is_repeated_and_grants_no_place_twice(lost: int) -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: kind(datagram) == lost
    net.engines[1].send(b"first")
    net.run(50)
    net.engines[0].send(b"second")
    net.run(2)
    assert counts(net, "wants_sent")[1] > 2 and not of_sender(net, 2, 1)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[0]) == 2
    places = [place for place in counts(net, "stamped") if place]
    assert places == [2], "one of each message"


def test_a_datagram_that_comes_twice_and_late_grants_nothing_again() -> None:
    net = group(3)
    net.run(5)
    seen: list[tuple[int, int, bytes]] = []
    net.drop = lambda src, dst, lane, datagram: bool(
        kind(datagram) in (WANT, GRANT) and seen.append((src, dst, datagram))
    )
    for k in range(5):
        net.engines[1].send(b"%d" % k)
        net.run(5)
    for src, dst, datagram in [*seen, *reversed(seen)]:
        net.engines[dst].receive(datagram, bytes([src + 1]), net.now)
    net.engines[2].send(b"last")
    net.run(10)
    assert [payload for _, payload in net.got[0]] == [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert net.got[0] == net.got[1] == net.got[2] and counts(net, "stamped") == [6, 0, 0]


def test_a_member_whose_packet_is_lost_holds_up_the_order_until_it_is_repaired() -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (1, 2) and kind(datagram) == DATA
    net.engines[1].send(b"first")
    net.run(2)
    net.engines[0].send(b"second")
    net.run(2)
    assert [payload for _, payload in net.got[0]] == [b"first", b"second"] and not net.got[2]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert net.got[2] == net.got[0]


def test_places_that_are_given_back_need_no_credit() -> None:
    """A member whose window is full, as a receiver takes nothing, does not hold up others' messages."""
    net = group(3, window=20_000)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 1 and kind(datagram) == 4
    while net.engines[1].send(bytes(1000)) == SENT:
        net.step(100_000)
    before = len(net.got[2])
    net.engines[0].send(b"in spite of it")
    net.run(5)
    assert (net.ids[0], b"in spite of it") in net.got[2][before:]


def test_a_member_that_gives_back_places_goes_on_for_ever() -> None:
    """Records are consumed as data is: otherwise a ring, or a window, of them would be the last."""
    net = group(2, ring_packets=64, window=20_000)
    for k in range(400):
        for _ in range(2):
            for _ in range(2):
                assert net.engines[1].send(k.to_bytes(1000, "little")) == SENT
            net.step(50_000)
        net.run(3)
    net.run(5)
    assert len(of_sender(net, 0, 1)) == 1600 and net.got[0] == net.got[1]
    assert counts(net, "places_void")[1] >= 100


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [400, 6000])
def test_survivors_messages_are_delivered_in_their_view_when_the_sequencer_crashes(seed: int, size: int) -> None:
    """The cut orders packets with a place and those without, the same everywhere, before the view that follows."""
    net = group(4, window=30_000)
    traffic = Traffic(net, random.Random(seed), size)
    traffic.until_crash(b"of the sequencer")
    for i in (1, 2, 3):  # the sequencer never grants a place for these
        traffic.send(i)
    in_view = {i: list(of) for i, of in traffic.sent.items()}
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2, steps=2000)
    for i in (1, 2, 3):
        net.take(i)
        assert net.markers[i] == [1, 2]
        assert [of_sender(net, i, j) for j in (1, 2, 3)] == [in_view[j] for j in (1, 2, 3)]
    assert net.got[1] == net.got[2] == net.got[3]
    traffic.after_crash()
    assert net.got[1] == net.got[2] == net.got[3]
    for i in (1, 2, 3):
        assert of_sender(net, 1, i) == traffic.sent[i]


def test_the_hole_of_a_crashed_member_is_closed_by_the_cut() -> None:
    """The member got a place, and no survivor has its packet: others' later messages are delivered."""
    net = group(4)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 3 and kind(datagram) == DATA
    net.engines[3].send(b"of the lost one")
    net.run(3)
    net.engines[2].send(b"of two")
    net.run(3)
    net.engines[1].send(b"of one")
    net.run(3)
    assert counts(net, "stamped") == [3, 0, 0, 0] and not net.got[0] and not net.got[1]
    net.drop = lambda src, dst, lane, datagram: 3 in (src, dst)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(10)
    assert net.got[0] == net.got[1] == net.got[2] == [(net.ids[2], b"of two"), (net.ids[1], b"of one")]
    assert net.transitional[:3] == [[0, 1]] * 3, "the lost one may have delivered another message before them"


def one_without_a_place() -> Net:
    """Member 1 of three sends a message, and hears of no place."""
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: kind(datagram) == GRANT
    net.engines[1].send(b"without a place")
    return net


def test_messages_placed_by_the_cut_are_transitional_only_if_a_member_was_lost() -> None:
    net = one_without_a_place()
    net.run(3)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(10)
    assert net.got == [[(net.ids[1], b"without a place")]] * 3 and net.transitional == [[], [], []]


def test_packets_without_a_place_when_the_gates_close_wait_for_the_view() -> None:
    """Such a packet may arrive before or after packets with a place, and is delivered after them everywhere."""
    net = one_without_a_place()
    net.run(2)
    net.engines[1].gate_close()
    net.run(2)
    assert net.engines[2].stream(1)[1] == 1 and not net.got[2], "it is here"
    net.engines[0].send(b"with a place")
    net.run(2)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(2)
    assert net.got == [[(net.ids[0], b"with a place"), (net.ids[1], b"without a place")]] * 3


def test_a_pause_waits_until_earlier_messages_have_been_delivered() -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: kind(datagram) == GRANT
    assert net.engines[1].send(b"before the pause") == SENT
    for engine in net.engines:
        engine.pause()
    net.run(3, 10_000)
    assert [engine.unordered() for engine in net.engines] == [0, 1, 0]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert [engine.unordered() for engine in net.engines] == [0, 0, 0]
    assert net.got == [[(net.ids[1], b"before the pause")]] * 3


def ask(type_: int, sender: int, number: int, count: int, place: int = 0) -> bytes:
    return Forger(7).datagram(type_, sender, 1, struct.pack("<QQII", number, place, count, 0))


@pytest.mark.parametrize(
    "datagram",
    [
        ask(WANT, 102, 0, 1),
        ask(WANT, 102, 1, 0),
        ask(WANT, 102, 1, 1, 7),
        ask(WANT, 102, 1, 1),
        ask(GRANT, 102, 1, 1, 1),
        ask(GRANT, 100, 1, 1),
        ask(GRANT, 100, 1, 1, 1),
    ],
    ids="no number,nothing,a place,not the sequencer,of another,no place,not asked for".split(","),
)
def test_an_impossible_request_or_answer_is_dropped(datagram: bytes) -> None:
    net = group(3)
    net.engines[1].receive(datagram, bytes([datagram[16] - 99]), net.now)
    assert net.engines[1].counters()["drop_field"] == 1


@pytest.mark.parametrize(("number", "count"), [(1, 1), (2, 1), (1, 4095), (1, 4096), (1, 4097)])
def test_the_sequencer_answers_requests_in_turn_and_of_bounded_size(number: int, count: int) -> None:
    net = group(3)
    net.engines[0].receive(ask(WANT, 102, number, count), bytes([3]), net.now)
    assert net.engines[0].counters()["drop_field"] == (number > 1 or count > 4096)


@pytest.mark.parametrize("mechanism", [0, 1, 2])
def test_an_order_without_places_takes_no_request(mechanism: int) -> None:
    net = Net(3, sequencer=min(mechanism - 1, 0), mechanism=mechanism)
    net.engines[0].receive(ask(WANT, 102, 1, 1), bytes([3]), net.now)
    assert net.engines[0].counters()["drop_field"] == 1


def test_only_a_members_own_places_are_given_back() -> None:
    net = group(3)
    body = struct.pack("<QQQQIHH", 0, 0, 0, 1, 4, 1, 0) + struct.pack("<HH", 2, 1)
    net.engines[1].receive(Forger(7).datagram(RECORD, 100, 1, body, seqno=1), bytes([1]), net.now)
    assert net.engines[1].counters()["drop_field"] == 1


def test_a_packet_whose_place_is_past_is_dropped_and_its_senders_right_one_is_taken() -> None:
    """Only a faulty member, or somebody in its name, sends one, which would block the stream of that member for
    ever."""
    net = group(3)
    net.run(5)
    net.engines[0].send(b"at place 1")
    net.run(5)
    forged = Forger(7).packet(DATA, net.ids[1], 1, 1, origin=1, rank=1, place=1)
    net.engines[2].receive(forged, bytes([2]), net.now)
    net.engines[1].send(b"at place 2")
    net.run(20)
    assert net.engines[2].counters()["drop_field"] == 1
    assert net.got == [[(net.ids[0], b"at place 1"), (net.ids[1], b"at place 2")]] * 3


def test_places_that_are_granted_after_the_gate_has_closed_are_not_taken() -> None:
    """Others may have closed the view without them: only this member would deliver a packet in such a place."""
    net = group(3)
    net.run(5)
    late: list[tuple[int, int, bytes]] = []

    def hold(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if kind(datagram) == GRANT:
            late.append((dst, src, datagram))
        return kind(datagram) == GRANT

    net.drop = hold
    net.engines[1].send(b"late")
    net.run(2)
    net.engines[1].gate_close()
    net.run(2)
    member, sequencer, grant = late[0]
    assert member == 1
    net.engines[member].receive(grant, bytes([sequencer + 1]), net.now)
    net.drop = lambda src, dst, lane, datagram: False
    net.engines[0].send(b"of the sequencer")
    net.run(2)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(5)
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[0]) == 2
