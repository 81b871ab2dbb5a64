"""The stream of state beside the messages: bytes to one member, with a window of its own."""

import random

import pytest
from engines import MS, Net, make_engine, reports_of

from seqcast._native.engine import AGAIN, NO_MEMBER, NO_VIEW, SENT, crc32c
from seqcast.reports import FrameReceived


def transfer(net, data, sender=0, to=1, steps=4000, read=1 << 20):
    """Sends ``data`` as far as credit allows, step by step; returns the bytes read."""
    got, at = b"", 0
    for _ in range(steps):
        if at < len(data):
            result, taken = net.engines[sender].state_send(data[at:], net.ids[to])
            assert result == (SENT if at + taken == len(data) else AGAIN)
            at += taken
        elif at == len(data):
            net.engines[sender].state_end(net.ids[to])
        net.step()
        got += net.engines[to].state_read(net.ids[sender], read, net.now)
        if len(got) == len(data):
            break
    return got


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_bytes_come_whole_and_in_order_however_they_are_cut(loss):
    rng = random.Random(5)
    net = Net(3, window=64 << 10)
    net.drop = lambda *_: rng.random() < loss
    data = rng.randbytes(700_001)
    assert transfer(net, data, read=1234 if not loss else 1 << 20) == data
    assert not net.got[1]  # not a message
    assert net.engines[0].counters()["state_bytes_sent"] == net.engines[1].counters()["state_bytes_read"] == len(data)
    assert net.engines[0].counters()["messages_sent"] == 0


def test_it_does_not_wait_for_messages_that_nobody_takes_nor_they_for_it():
    net = Net(2, window=32 << 10)
    for _ in range(200):
        net.engines[0].send(bytes(1000))
        net.engines[0].send(bytes(1000), to=net.ids[1])
        net.step(take=False)
    assert net.engines[0].send(bytes(1000)) == net.engines[0].send(bytes(1000), to=net.ids[1]) == AGAIN
    data, got = random.Random(1).randbytes(300_000), b""
    while len(got) < len(data):
        net.engines[0].state_send(data[len(got) :][:20_000], net.ids[1])
        net.step(take=False)
        got += net.engines[1].state_read(net.ids[0], 1 << 20, net.now)
    assert got == data
    while net.engines[0].state_send(bytes(10_000), net.ids[1])[0] == SENT:  # and now nobody reads
        net.run(20)
    assert net.engines[0].send(b"m") == net.engines[0].send(b"m", to=net.ids[1]) == SENT


def test_state_and_control_frames_pass_a_full_window_and_a_closed_gate():
    """FLU-03: only messages from above wait; the closing of a view, and its transfer of state, lie below both."""
    net = Net(2, window=32 << 10)
    while net.engines[0].send(bytes(1000)) == SENT:
        pass
    net.engines[0].gate_close()
    assert net.engines[0].send(b"held back") == AGAIN
    assert net.engines[0].control_send(b"{}", b"")
    assert net.engines[0].state_send(b"state", net.ids[1]) == (SENT, 5)
    net.step(take=False)
    assert [each.payload for each in reports_of(net.engines[1], FrameReceived)] == [b"{}"]
    assert net.engines[1].state_read(net.ids[0], 100, net.now) == b"state"


def test_the_window_bounds_the_bytes_in_flight():
    net = Net(2, window=32 << 10)
    taken = net.engines[0].state_send(bytes(1 << 20), net.ids[1])[1]
    net.run(50)
    assert net.engines[0].state_send(bytes(1 << 20), net.ids[1])[1] == 0 < taken < 32 << 10
    assert len(net.engines[1].state_read(net.ids[0], 1 << 20, net.now)) >= taken - 1472  # all but the open packet's


def test_unread_state_waits_within_its_window():
    net = Net(2, window=32 << 10)
    data = random.Random(3).randbytes(100_000)
    sent, got = net.engines[0].state_send(data, net.ids[1])[1], b""
    net.run(20)
    assert net.engines[0].state_send(data[sent:], net.ids[1]) == (AGAIN, 0)
    while len(got) < len(data):
        sent += net.engines[0].state_send(data[sent:], net.ids[1])[1]
        net.step()
        got += net.engines[1].state_read(net.ids[0], 1 << 20, net.now)
    assert got == data


def test_state_that_nobody_wants_is_dropped_and_does_not_hold_its_sender():
    net = Net(3, window=32 << 10)
    net.engines[0].state_send(b"a" * 5000, net.ids[1])
    net.run(5)
    net.engines[1].state_void(net.ids[0])
    for number in range(300):
        assert net.engines[0].state_send(bytes(10_000), net.ids[1])[0] == SENT
        net.engines[2].state_send(b"%03d" % number, net.ids[1])
        net.run(2)
        assert net.engines[1].state_read(net.ids[2], 1 << 20, net.now) == b"%03d" % number
    net.engines[1].state_void(0)
    for _ in range(300):
        assert net.engines[2].state_send(bytes(10_000), net.ids[1])[0] == SENT
        net.run(2)
    assert net.engines[1].state_read(net.ids[0], 1 << 20, net.now) == b""


def test_it_goes_on_across_a_view_change_and_ends_with_the_member():
    net = Net(3, window=16 << 10)
    data = random.Random(2).randbytes(100_000)
    sent = net.engines[0].state_send(data, net.ids[1])[1]
    net.step()
    got = net.engines[1].state_read(net.ids[0], 3000, net.now)
    net.install([0, 1], sequencer=-1, tag=2, marker=2, cuts={0: [0] * 3, 1: [0] * 3})
    while len(got) < len(data):
        sent += net.engines[0].state_send(data[sent:], net.ids[1])[1]
        net.engines[0].state_end(net.ids[1])
        net.step()
        got += net.engines[1].state_read(net.ids[0], 1 << 20, net.now)
    assert got == data
    net.install([0], sequencer=-1, tag=3, marker=3, cuts={0: [0] * 2})
    assert net.engines[0].state_send(b"x", net.ids[1]) == (NO_MEMBER, 0)
    assert net.engines[0].state_send(b"x", net.ids[0]) == (NO_MEMBER, 0)
    assert make_engine(9).state_send(b"x", 1) == (NO_VIEW, 0)


def test_a_stream_that_ended_starts_again_where_it_was():
    net = Net(2)
    for number in range(3):
        data = random.Random(number).randbytes(50_000)
        assert transfer(net, data) == data
        net.engines[0].state_end(net.ids[1])
        net.run(20)
    net.now += 1000 * MS
    net.engines[0].tick(net.now)
    net.engines[0].state_end(net.ids[1])  # again: nothing


def test_crc32c_goes_on_from_an_earlier_value():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the polynomial's definition
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789") and crc32c(b"") == 0
