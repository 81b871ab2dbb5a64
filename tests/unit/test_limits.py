"""Limits at exactly the limit, one below and one above; counters that wrap, or outgrow a smaller integer."""

from __future__ import annotations

import dataclasses
import math
import random
import typing

import pytest
from engines import MS, Net, feed, messages, of_sender, reports_of
from hostile.forge import Forger, sealed

from seqcast._native.engine import AGAIN, SENT, TOO_LARGE, Batch, Sending, SendingArray, charges
from seqcast.config import Config
from seqcast.config.check import NOT_MORE_THAN, field_value
from seqcast.core import orders
from seqcast.core.state.backlog import BATCH_OVERHEAD, Backlog
from seqcast.errors import ConfigError
from seqcast.reports import FrameReceived
from seqcast.types import Member, View, ViewId

F = Forger(7)
DATA, ACK, NAK, RECORD = 1, 4, 5, 14
HEADER, PACKET_MAX, AGAIN_MAX, ADDRESS_MAX, BORROWED_MAX = 40, 65_000, 1024, 28, 64
PACKET, FILLS = 1472, 1384
"""Bytes of a packet, and of a message that fills one."""
FIRST = View(ViewId(2, 100, (1, 100)), (Member("a", 100, b"1"),))
ORDERS = ["records", "sequencer", "grant", "total-1999", "causal", "fifo"]


def group(order: str, n: int = 3, **settings: object) -> Net:
    mechanism = orders.by_name(order)
    return Net(n, sequencer=0 if mechanism.total else -1, mechanism=mechanism.number, **settings)


# ---- settings


def bounds() -> list[object]:
    kinds = typing.get_type_hints(Config)
    fields = [field for field in dataclasses.fields(Config) if field.metadata["low"] is not None]
    return [pytest.param(field, kinds[field.name], id=field.name) for field in fields]


@pytest.mark.parametrize(("field", "kind"), bounds())
def test_a_setting_may_be_as_small_and_as_large_as_its_bounds_and_no_more(
    field: dataclasses.Field[object], kind: type
) -> None:
    for bound, beyond in (("low", -math.inf), ("high", math.inf)):
        at = kind(field.metadata[bound])
        assert field_value(field, kind, at) == at
        if math.isinf(at):
            continue
        outside = math.nextafter(at, beyond) if kind is float else at + (1 if beyond > 0 else -1)
        with pytest.raises(ConfigError, match=f"{field.name}="):
            field_value(field, kind, outside)


@pytest.mark.parametrize(("low", "high"), NOT_MORE_THAN)
def test_a_setting_may_be_as_large_as_the_one_that_it_must_not_exceed(low: str, high: str) -> None:
    most = getattr(Config(), high)
    assert getattr(Config().replace(**{low: most, high: most}), low) == most
    with pytest.raises(ConfigError, match=f"{low}=.* must not exceed {high}"):
        Config().replace(**{low: math.nextafter(most, math.inf), high: most})


# ---- sizes


def by_one(net: Net, payload: bytes) -> int:
    return net.engines[0].send(payload)


def by_unicast(net: Net, payload: bytes) -> int:
    return net.engines[0].send(payload, to=net.ids[1])


def by_array(net: Net, payload: bytes) -> int:
    return SendingArray(net.engines[0], [payload]).step()


def by_even_array(net: Net, payload: bytes) -> int:
    return SendingArray(net.engines[0], [payload] * 3).step()


def by_steps(net: Net, payload: bytes) -> int:
    sending = Sending(net.engines[0], payload)
    while (result := sending.step()) == AGAIN:
        net.step()
    return result


def by_queue(net: Net, payload: bytes) -> int:
    net.engines[0].gate_close()
    result = net.engines[0].send(payload)
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    return result


WAYS = [(by_one, 100), (by_unicast, 100), (by_array, 100), (by_even_array, 100), (by_queue, 100), (by_steps, 50_000)]


@pytest.mark.parametrize(("way", "most"), WAYS)
def test_a_message_of_just_the_largest_size_is_sent_and_delivered_and_a_larger_one_refused(
    way: typing.Callable[[Net, bytes], int], most: int
) -> None:
    for size in (most - 1, most, most + 1):
        net, payload = Net(3, window=1 << 15, message_bytes_max=most, blocked_bytes_max=1 << 20), bytes(size)
        assert way(net, payload) == (SENT if size <= most else TOO_LARGE)
        net.run(50)
        got = [text for _, text in net.got[1]]
        assert set(got) == ({payload} if size <= most else set())


@pytest.mark.parametrize("size", [100, 40_000])
@pytest.mark.parametrize("bytes_max", [1 << 20, 1000], ids=["in the batch", "in the sender's assembly"])
def test_a_message_as_large_as_its_receiver_takes_is_delivered(size: int, bytes_max: int) -> None:
    for over in (-1, 0, 1):
        net = Net(2, window=1 << 17)
        net.engines[1] = net.make(1, message_bytes_max=size)
        net.install([0, 1], sequencer=-1, tag=2, marker=2)
        assert net.engines[0].send(bytes(size + over)) == SENT
        net.run(20, take=False)
        got = []
        while (item := net.engines[1].deliver(bytes_max)) is not None:
            got += item.tolist() if isinstance(item, Batch) else []
        assert got == ([bytes(size + over)] if over <= 0 or size == 100 else [])


def least(accepts: typing.Callable[[int], bool], most: int) -> int:
    """The least limit with which the message is accepted."""
    low = 0
    while low < most:
        middle = (low + most) // 2
        low, most = (low, middle) if accepts(middle) else (middle + 1, most)
    return low


def test_the_queue_of_a_closed_gate_is_used_up_to_its_last_byte() -> None:
    """Two messages need twice as much as one."""

    def holds(n: int) -> typing.Callable[[int], bool]:
        def accepts(limit: int) -> bool:
            net = Net(2, blocked_bytes_max=limit)
            net.engines[0].gate_close()
            return [net.engines[0].send(bytes(100)) for _ in range(n)] == [SENT] * n

        return accepts

    assert least(holds(2), 10_000) == 2 * least(holds(1), 10_000)


def test_reports_of_frames_are_kept_up_to_the_last_byte() -> None:
    def holds(n: int) -> typing.Callable[[int], bool]:
        def accepts(limit: int) -> bool:
            net = Net(2)
            net.engines[1] = net.make(1, control_bytes_max=limit)
            net.install([0, 1], sequencer=-1, tag=2, marker=2)
            for _ in range(n):
                net.engines[1].receive(F.control(net.ids[0], bytes(1000), 2), b"\1", net.now)
            return len(reports_of(net.engines[1], FrameReceived)) == n

        return accepts

    assert least(holds(2), 10_000) == 2 * least(holds(1), 10_000)


def test_frames_that_wait_for_transmission_are_kept_up_to_the_last_byte() -> None:
    engine = Net(1, control_bytes_max=3 * (HEADER + 100)).engines[0]
    engine.transmit(0)
    assert [engine.control_send(bytes(100)) for _ in range(4)] == [True] * 3 + [False]
    engine.transmit(0)
    assert [engine.control_send(bytes(100)), engine.control_send(bytes(241))] == [True, False]


def test_a_frame_may_fill_the_largest_datagram() -> None:
    engine = Net(1).engines[0]
    sizes = [PACKET_MAX - HEADER - 1, PACKET_MAX - HEADER, PACKET_MAX - HEADER + 1]
    assert [engine.control_send(bytes(size)) for size in sizes] == [True, True, False]


def test_a_batch_is_no_larger_than_was_asked_for_but_has_one_packet_at_least() -> None:
    """With messages of which each fills a packet. The packet that comes next counts with its headers."""
    for limit, each in ((1, 1), (FILLS + PACKET - 1, 1), (FILLS + PACKET, 2), (FILLS + PACKET + 1, 2)):
        net = Net(2, packet=PACKET)
        for _ in range(4):
            assert net.engines[0].send(bytes(FILLS)) == SENT
        net.run(5, take=False)
        assert len(batches_of(net, limit)[0]) == each, limit


def test_a_message_that_just_fits_into_a_packet_travels_in_one_and_a_larger_one_in_two() -> None:
    for size, packets in ((FILLS, 1), (FILLS + 1, 1), (FILLS + 2, 2)):
        net = Net(2, packet=PACKET)
        assert net.engines[0].send(bytes(size)) == SENT
        net.run(5)
        assert net.engines[0].last_sent() == packets, size
        assert [len(text) for _, text in net.got[1]] == [size]


@pytest.mark.parametrize("ring", [64, 128])
def test_as_many_packets_as_the_ring_has_places_are_in_flight_and_no_more(ring: int) -> None:
    """Their receiver's answers are lost; when one comes, there is place for all again."""
    net = Net(2, ring_packets=ring, window=1 << 24)
    net.drop = lambda src, dst, lane, datagram: src == 1
    sent = 0
    while net.engines[0].send(bytes(FILLS)) == SENT:
        sent += 1
        net.step(1000)
    assert sent == ring == net.engines[0].last_sent()
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert net.engines[0].send(bytes(FILLS)) == SENT
    net.run(5)
    assert [len(text) for _, text in net.got[1]] == [FILLS] * (ring + 1)


def test_the_messages_that_a_joiner_holds_are_bounded_to_the_byte() -> None:
    net = Net(2)
    net.engines[0].send(bytes(1000))
    net.run(5, take=False)
    (one,) = batches_of(net, 1 << 20)
    cost = one.data.nbytes + 4 * len(one) + BATCH_OVERHEAD
    for limit, full_at in ((2 * cost - 1, 2), (2 * cost, 2), (2 * cost + 1, 3)):
        backlog = Backlog(limit, set())
        backlog.restart(FIRST.view_id.tag)
        backlog.add(FIRST)
        held = 0
        while not backlog.full:
            backlog.add(one)
            held += 1
        assert held == full_at, limit


def test_as_many_packets_as_the_queue_holds_are_repeated_at_once() -> None:
    net = Net(2, window=1 << 24, ring_packets=2048, retransmit_bytes_per_s=1 << 40, retransmit_hold_ns=0)
    for _ in range(AGAIN_MAX + 1):
        assert net.engines[0].send(bytes(FILLS)) == SENT
    net.engines[0].transmit(net.now)
    for asked in (AGAIN_MAX - 1, AGAIN_MAX, AGAIN_MAX + 1):
        net.now += 100 * MS
        limited = net.engines[0].counters()["retransmit_limited"]
        net.engines[0].receive(F.nak(net.ids[1], 1, net.ids[0], 0, [(1, asked)]), b"\2", net.now)
        repeats = [each for _, _, each in net.engines[0].transmit(net.now) if each[2] == DATA]
        assert len(repeats) == min(asked, AGAIN_MAX)
        assert net.engines[0].counters()["retransmit_limited"] - limited == (asked > AGAIN_MAX)


@pytest.mark.parametrize("to", [0, 1], ids=["group", "unicast"])
def test_as_many_bytes_as_the_window_has_are_in_flight_and_no_more(to: int) -> None:
    """As each packet is charged against the receive buffer of the other member, whose answers are lost."""
    _, charge = charges(PACKET)
    for over, most in ((-1, 9), (0, 10), (1, 10)):
        net, sent = Net(2, window=10 * charge + over), 0
        net.drop = lambda src, dst, lane, datagram: src == 1
        while net.engines[0].send(bytes(FILLS), to=net.ids[to] if to else 0) == SENT:
            sent += 1
            net.step(1000)
        assert sent == most, over


def test_as_many_bytes_are_repeated_at_once_as_a_fiftieth_of_a_second_allows_and_two_packets() -> None:
    for over, most in ((-1, 99), (0, 100), (1, 100)):
        rate = 50 * (100 * PACKET + over - 2 * PACKET_MAX)
        net = Net(2, window=1 << 20, retransmit_bytes_per_s=rate, retransmit_hold_ns=0)
        assert [net.engines[0].send(bytes(FILLS)) for _ in range(120)] == [SENT] * 120
        net.engines[0].transmit(net.now)
        net.now += 100 * MS
        net.engines[0].receive(F.nak(net.ids[1], 1, net.ids[0], 0, [(1, 120)]), b"\2", net.now)
        repeats = [each for _, _, each in net.engines[0].transmit(net.now) if each[2] == DATA]
        assert len(repeats) == most, over


@pytest.mark.parametrize("slabs", [16 * 6 - 1, 16 * 6, 16 * 6 + 1, 1 << 12])
def test_batches_borrow_a_sixteenth_of_the_slabs_and_no_more_than_there_may_be(slabs: int) -> None:
    """An application keeps them all; those beyond are copied."""
    most = min(slabs // 16, BORROWED_MAX)
    for kept in (most - 1, most, most + 1):
        net, batches = Net(2, packet=PACKET_MAX, slabs_max=slabs), []
        for _ in range(kept):
            assert net.engines[0].send(bytes(60_000)) == SENT
            net.step(take=False)
            batches += batches_of(net, 1)
            net.take(0)
            net.step(take=False)
        assert len(batches) == kept
        assert net.engines[1].counters()["batch_copies"] == max(kept - most, 0)


def test_an_address_may_be_as_long_as_its_room_and_no_longer() -> None:
    frame = F.control(101, b"{}")
    for length in (ADDRESS_MAX - 1, ADDRESS_MAX):
        engine = Net(1).engines[0]
        engine.receive(frame, bytes(length), 0)
        assert [len(each.address) for each in reports_of(engine, FrameReceived)] == [length]
    with pytest.raises(ValueError, match="at most 28 bytes, this one 29"):
        Net(1).engines[0].receive(frame, bytes(ADDRESS_MAX + 1), 0)


def batches_of(net: Net, limit: int) -> list[Batch]:
    """The messages that the second member takes, so many bytes at a time."""
    return [item for item in iter(lambda: net.engines[1].deliver(limit), None) if isinstance(item, Batch)]


# ---- tables on the wire


@pytest.mark.parametrize("gaps", [63, 64, 65, 130])
def test_as_many_gaps_as_a_request_names_and_more_are_repaired(gaps: int) -> None:
    """All are missing at one moment."""
    net, asked = Net(2), []
    sent = [k.to_bytes(FILLS, "little") for k in range(2 * gaps)]
    assert [net.engines[0].send(message) for message in sent] == [SENT] * 2 * gaps

    def watch(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if datagram[2] == NAK:
            asked.append(int.from_bytes(datagram[52:56], "little"))
        return datagram[2] == DATA and datagram[32] % 2 == 1 and not asked

    net.drop = watch
    net.run(300)
    assert of_sender(net, 1, 0) == sent and net.engines[0].last_sent() == 2 * gaps
    assert max(asked) == min(gaps, 64)


@pytest.mark.parametrize("turns", [63, 64, 65, 130])
def test_a_record_of_as_many_entries_as_it_holds_and_more_is_one_order(turns: int) -> None:
    """Two members take turns, and the sequencer hears of all messages at once."""
    net, entries = group("records", 3), []
    net.run(5)
    kept: list[tuple[int, bytes]] = []

    def hold(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if datagram[2] == RECORD:
            entries.append(int.from_bytes(datagram[76:78], "little"))
        if dst == 0 and datagram[2] == DATA:
            kept.append((src, datagram))
            return True
        return False

    net.drop = hold
    for k in range(turns):
        net.engines[1 + k % 2].send(b"%d" % k)
        net.step(0)
    for src, datagram in kept[:]:
        net.engines[0].receive(datagram, bytes([src + 1]), net.now)
    net.drop = lambda src, dst, lane, datagram: hold(src, 0 if src else 1, lane, datagram) and False
    net.run(200)
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[0]) == turns
    assert max(entries) <= 64


@pytest.mark.long
@pytest.mark.parametrize("n", [127, 128])
def test_a_view_may_have_as_many_members_as_a_heartbeat_has_bits(n: int) -> None:
    net = Net(n)
    net.run(3)
    assert net.engines[n - 1].send(b"last") == SENT
    net.run(3)
    assert net.got == [[(net.ids[n - 1], b"last")]] * n


def test_a_view_has_no_more_members_than_a_heartbeat_has_bits() -> None:
    with pytest.raises(ValueError, match="129 entries, and may have 128"):
        Net(129)


@pytest.mark.parametrize("array", [False, True])
def test_more_empty_messages_than_a_packet_can_count_are_all_delivered(array: bool) -> None:
    """They take no bytes; their number has 16 bits."""
    net, n = Net(2, packet=60_000), 70_000
    if array:
        sending = SendingArray(net.engines[0], [b""] * n)
        while sending.step() != SENT:
            net.step()
    else:
        for _ in range(n):
            while net.engines[0].send(b"") != SENT:
                net.step()
    net.run(10)
    assert len(net.got[1]) == n


# ---- counters


def asks(net: Net, claim: int) -> int:
    """Member 0 states a claim; with which one does member 1 acknowledge?"""
    head = bytearray(F.heartbeat(net.ids[0], 1, 0, 0, [(0, 0)] * 2))
    head[14:16] = claim.to_bytes(2, "little")
    net.engines[1].receive(sealed(bytes(head)), b"\1", net.now)
    net.engines[1].receive(F.probe(net.ids[0], 1, 0, 0, 0), b"\1", net.now)
    acks = [each for _, _, each in net.engines[1].transmit(net.now) if each[2] == ACK]
    return int.from_bytes(acks[-1][80:88], "little")


def test_a_claim_that_has_wrapped_is_newer_than_one_before_and_an_older_one_is_ignored() -> None:
    net = Net(2, share=5_000, room=50_000)
    net.run(2)
    assert [asks(net, claim) for claim in (1, 30_000, 60_000, 65_535, 0, 65_534, 1, 2)] == [
        1, 30_000, 60_000, 65_535, 0, 0, 1, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_seqnos_pass_32_bits(order: str) -> None:
    """A member's stream, and others' reports of it: losses, repairs, credit, places."""
    net, rng, begin = group(order, window=60_000), random.Random(2), (1 << 32) - 100
    mechanism = orders.by_name(order)
    sequencer = 0 if mechanism.total else -1
    net.install([0, 1, 2], sequencer=sequencer, tag=2, marker=2, base=[begin] * 3, origin=[begin] * 3)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.05
    sent = {i: messages(i, 250, 1500) for i in range(3)}
    feed(net, sent)
    for at in range(3):
        assert [of_sender(net, at, i) for i in range(3)] == [sent[i] for i in range(3)]
    assert not mechanism.total or net.got[0] == net.got[1] == net.got[2]


def test_a_sender_has_its_window_after_65536_bursts() -> None:
    """The sender states a claim after each, in 16 bits of the wire."""
    never = 10**15
    quiet = {"heartbeat_ns": never, "suspect_ns": 4 * never, "suspect_ns_max": 4 * never}
    net = Net(2, window=48_000, share=6_000, room=54_000, ack_bytes=1, ack_delay_ns=1000, **quiet)
    net.run(2)
    sender, receiver = net.engines

    def burst(most: int) -> tuple[int, bytes]:
        """How many messages its credit allows, and with which claim they leave; new credit follows."""
        sent, claim = 0, b""
        while sent < most and sender.send(bytes(3200)) == SENT:
            sent += 1
        for _, _, datagram in sender.transmit(net.now):
            receiver.receive(datagram, b"\1", net.now)
            claim = datagram[14:16]
        while receiver.deliver() or sender.deliver():
            pass
        for _, _, datagram in receiver.transmit(net.now):
            sender.receive(datagram, b"\2", net.now)
        return sent, claim

    for _ in range(1 << 16):
        assert burst(1)[0] == 1
        net.now += 1000  # now a silence as long as the delay of an ack
        sender.tick(net.now)
    share, claim = burst(99)
    assert claim == b"\0\0"
    assert max(burst(99)[0] for _ in range(5)) >= 3 * share > 0
