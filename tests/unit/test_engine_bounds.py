"""The engine when one of its bounds is hit: the engine counts, drops as far as it must, and continues."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from engines import MS, Net, make_engine, of_sender, reports_of
from hostile import forge
from hostile.forge import Forger, sealed

from seqcast._native.engine import AGAIN, LANE_CONTROL, SENT, Sending
from seqcast.reports import FrameReceived, OtherKey

F = Forger(7)
B = bytes([2])  # the address of member 101


def counted(net: Net, rank: int, name: str) -> int:
    return int(net.engines[rank].counters()[name])


def with_limit(net: Net, rank: int, **settings: int) -> None:
    """One member has other settings than the others."""
    net.engines[rank] = make_engine(net.ids[rank], **settings)
    net.install(list(range(len(net.ids))), sequencer=-1, tag=2, marker=2)


def test_acknowledgements_that_find_no_room_are_sent_later() -> None:
    net = Net(2, window=64 << 10)
    with_limit(net, 1, control_bytes_max=64 << 10)
    while net.engines[1].control_send(bytes(10_000)):
        pass
    while net.engines[1].control_send(b""):
        pass
    full = counted(net, 1, "drop_control_full")
    sent = [random.Random(i).randbytes(1000) for i in range(40)]
    for message in sent:
        assert net.engines[0].send(message) == SENT
    for _, _, datagram in net.engines[0].transmit(net.now):
        net.engines[1].receive(datagram, bytes([1]), net.now)
    net.take(1)
    for _ in range(5):
        net.now += MS
        net.engines[1].tick(net.now)
    assert full == 2 and counted(net, 1, "drop_control_full") > full
    assert of_sender(net, 1, 0) == sent and net.engines[0].stream(0)[2] == 0
    net.run(20)
    assert net.engines[0].stream(0)[2] == net.engines[0].stream(0)[0]


def reported(net: Net, rank: int) -> list[bytes]:
    """The control frames that a member's engine has reported since the last time."""
    net.step()
    return [each.payload for each in reports_of(net.engines[rank], FrameReceived)]


def test_a_standing_frame_is_reported_once_until_its_sender_says_something_else() -> None:
    net, frame = Net(3), b'{"kind":"beacon"}'
    sender = net.engines[0]
    said: list[list[bytes]] = []
    for payload, standing in (
        (frame, True),
        (frame, True),
        (b"{}", False),
        (b"{}", False),
        (frame, True),
        (b"[]", True),
    ):
        assert sender.stand(payload, 0, 1, net.now) if standing else sender.control_send(payload)
        said.append(reported(net, 1))
    assert said == [[frame], [], [b"{}"], [b"{}"], [frame], [b"[]"]]
    assert counted(net, 1, "drop_repeated") == 1
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    for _ in range(2):
        assert sender.stand(frame, 0, 1, net.now)
        said.append(reported(net, 1))
    assert said[-2:] == [[frame], []], "in another view it is news again"


def test_a_standing_frame_is_reported_each_time_outside_its_senders_view() -> None:
    net, frame = Net(3), b'{"kind":"beacon"}'
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    for _ in range(3):
        assert net.engines[0].stand(frame, 0, 1, net.now)
        assert reported(net, 2) == [frame]


def stands(net: Net, ms: int) -> dict[bytes, int]:
    """The control frames that the first member multicasts in this time, and how often each."""
    before, sent = net.drop, Counter[bytes]()

    def count(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if (src, dst, lane) == (0, 1, LANE_CONTROL) and datagram[2] == forge.CONTROL:
            sent[datagram[40:]] += 1
        return before(src, dst, lane, datagram)

    net.drop = count
    net.run(ms)
    net.drop = before
    return dict(sent)


def test_the_engine_repeats_a_standing_frame_until_it_was_sent_often_enough() -> None:
    net = Net(2)
    assert net.engines[0].stand(b"beacon", 10 * MS, 5, net.now)
    assert [stands(net, 9), stands(net, 3), stands(net, 20), stands(net, 200)] == [
        {b"beacon": 1}, {b"beacon": 1}, {b"beacon": 2}, {b"beacon": 1},
    ]  # fmt: skip
    assert net.engines[0].deadline() > net.now


def test_another_standing_frame_none_or_another_view_ends_the_last_one() -> None:
    net = Net(2)
    sender = net.engines[0]
    assert sender.stand(b"first", 10 * MS, 100, net.now)
    stands(net, 15)
    assert sender.stand(b"second", 10 * MS, 100, net.now)
    assert stands(net, 35) == {b"second": 4}
    assert sender.stand(b"", 0, 0, net.now) and stands(net, 50) == {}
    assert sender.stand(b"third", 10 * MS, 100, net.now) and stands(net, 5) == {b"third": 1}
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    assert stands(net, 50) == {}
    assert sender.stand(b"fourth", 10 * MS, 100, net.now) and stands(net, 5) == {b"fourth": 1}
    sender.close_view(None, 3)
    assert stands(net, 50) == {}


def test_a_standing_frame_that_finds_no_room_is_reported_later() -> None:
    net, frame = Net(2), bytes(10_001)
    with_limit(net, 1, control_bytes_max=64 << 10)
    while not counted(net, 1, "drop_control_full"):
        assert net.engines[0].control_send(bytes(10_000), b"")
        net.step()
    said = []
    for _ in range(3):
        assert net.engines[0].stand(frame, 0, 1, net.now)
        said.append([payload for payload in reported(net, 1) if payload == frame])
    assert said == [[], [frame], []]


@pytest.mark.parametrize("others", [False, True], ids=["in the batch", "in the sender's assembly"])
def test_a_message_that_is_too_large_for_its_receiver_is_dropped_and_the_next_one_delivered(others: bool) -> None:
    net = Net(3, window=64 << 10)
    with_limit(net, 1, message_bytes_max=20_000)
    large = random.Random(1).randbytes(30_000)
    sending = Sending(net.engines[0], large)
    while sending.step() != SENT:
        if others:
            net.engines[2].send(b"between")
        net.step()
    net.engines[0].send(b"next")
    net.run(20)
    assert of_sender(net, 1, 0) == [b"next"] and of_sender(net, 2, 0) == [large, b"next"]
    assert counted(net, 1, "drop_message_too_large") == 1


def test_more_open_messages_than_places_are_dropped_while_views_wait_for_the_application() -> None:
    """None may be dropped before the application has seen the views: the rest of each may be in the queue."""
    net = Net(3, window=20_000)
    large, places = random.Random(1).randbytes(100_000), 2 * 128
    for i in range(places + 2):
        net.ids[2] = 1000 + i
        net.engines[2] = make_engine(net.ids[2])
        net.install([0, 1, 2], sequencer=-1, tag=10 + i, marker=1)
        assert net.engines[2].send(large, to=net.ids[0]) == AGAIN
        net.step(take=False)
    net.take(0)
    dropped = counted(net, 0, "drop_partial_message")
    assert dropped > places  # those that had a place, at the newest view, and before that the one that found none
    net.install([0, 1], sequencer=-1, tag=9, marker=9)
    net.take(0)
    assert net.markers[0][-1] == 9 and counted(net, 0, "drop_partial_message") == dropped + 1
    sending = Sending(net.engines[1], large)
    while sending.step() != SENT:
        net.step()
    net.run(20)
    assert of_sender(net, 0, 1) == [large]


def with_key(datagram: bytes) -> bytes:
    return sealed(datagram[:12] + b"\1\0" + datagram[14:])


@pytest.mark.parametrize(
    ("counter", "datagram"),
    [
        ("drop_group", Forger(8).heartbeat(101, 1, 0, 0, [(0, 0)] * 2)),
        ("drop_key", with_key(F.heartbeat(101, 1, 0, 0, [(0, 0)] * 2))),
        ("drop_field", F.heartbeat(101, 1, 0, 0, [(0, 0)] * 3)),
        ("retransmit_missing", F.nak(101, 1, 100, forge.GROUP_STREAM, [(1, 5)])),
        ("retransmit_missing", F.nak(101, 1, 100, forge.UNICAST_STREAM, [(1, 5)])),
    ],
    ids=["another group", "a key", "a digest of three", "what was never sent", "what was never sent to it"],
)
def test_misfits_are_counted_and_do_nothing(counter: str, datagram: bytes) -> None:
    net = Net(2)
    net.engines[0].transmit(net.now)
    net.engines[0].receive(datagram, B, net.now)
    assert counted(net, 0, counter) >= 1
    told = [OtherKey(B, "has", False)] if counter == "drop_key" else []
    assert net.engines[0].transmit(net.now) == [] and net.engines[0].reports() == told


@pytest.mark.parametrize("hold_ms", [2, 6])
def test_a_packet_that_a_member_asks_for_each_millisecond_goes_again_as_often_as_the_setting_says(hold_ms: int) -> None:
    net = Net(2, retransmit_hold_ns=hold_ms * MS)
    net.engines[0].send(b"lost")
    net.engines[0].transmit(net.now)
    times = []
    for _ in range(30):
        net.now += MS
        net.engines[0].receive(F.nak(101, 1, 100, forge.GROUP_STREAM, [(1, 1)]), B, net.now)
        net.engines[0].transmit(net.now)
        times += [net.now] * (counted(net, 0, "packets_retransmitted") - len(times))
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [hold_ms * MS] * (len(times) - 1)
    assert len(times) > 3 and counted(net, 0, "retransmit_held") > 10


def test_the_volume_that_is_sent_again_in_a_second_is_limited_by_its_setting() -> None:
    def again(limit: int) -> int:
        net = Net(2, window=1 << 20, retransmit_bytes_per_s=limit, retransmit_hold_ns=0)
        while net.engines[0].send(bytes(1300)) == SENT:
            pass
        net.engines[0].transmit(net.now)
        for _ in range(50):
            net.now += 10 * MS
            net.engines[0].receive(F.nak(101, 1, 100, forge.GROUP_STREAM, [(1, 700)]), B, net.now)
            net.engines[0].transmit(net.now)
        return counted(net, 0, "packets_retransmitted")

    few, many = again(100_000), again(100_000_000)
    assert 0 < 2 * few < many


def test_a_refusal_by_the_limit_for_all_costs_a_member_nothing_of_a_share():
    net = Net(3, window=64 << 10, ring_bytes=64 << 10, retransmit_bytes_per_s=1_000_000, retransmit_hold_ns=0)
    net.drop, net.now = lambda src, dst, _lane, datagram: src == 0 or dst == 0, 100 * MS
    while net.engines[0].send(bytes(1300)) == SENT:
        pass
    net.engines[0].transmit(net.now)

    def ask(rank: int, times: int) -> int:
        before = counted(net, 0, "packets_retransmitted")
        for _ in range(times):
            nak = F.nak(net.ids[rank], 1, 100, forge.GROUP_STREAM, [(1, 20)])
            net.engines[0].receive(nak, bytes([rank + 1]), net.now)
            net.engines[0].transmit(net.now)
        return counted(net, 0, "packets_retransmitted") - before

    while ask(1, 1):
        pass
    refused = counted(net, 0, "retransmit_limited")
    ask(2, 300)
    assert counted(net, 0, "retransmit_limited") >= refused + 290
    net.now += 500 * MS
    assert ask(2, 1) > 10
