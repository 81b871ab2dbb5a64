"""Sends to a group that is closed for sending: queued, by choice, and sent in their order afterwards."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
from engines import HOP_NS, Net, change_view, of_sender
from members import LIMIT_S, LOOPBACK, PATIENT, cluster, group_of, join, payloads, wait_until

import seqcast
from seqcast import Lost, ViewId
from seqcast._native.engine import AGAIN, OLDEST_NOT_PACKED, OLDEST_PACKED, OLDEST_PACKED_BEFORE, SENT, Sending

BOUND = 1 << 20

# ---- the engine ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequencer", [-1, 0])
def test_queued_messages_are_sent_in_the_next_view_before_anything_newer(sequencer: int) -> None:
    """Also a message larger than a window, and more than the credit that the new view begins with."""
    net = Net(3, sequencer=sequencer, window=30_000, blocked_bytes_max=BOUND)
    one = net.engines[1]
    one.send(b"before")
    for engine in net.engines:
        engine.gate_close()
    queued = [b"q%d" % i for i in range(50)] + [bytes(100_000)] + [b"r%d" % i + bytes(5000) for i in range(20)]
    assert [one.send(message) for message in queued] == [SENT] * len(queued)
    assert one.blocked() == len(queued)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=sequencer, tag=2)
    newer = [b"n%d" % i for i in range(3)]
    assert one.send(newer[0]) == AGAIN and one.blocked() > 0
    for _ in range(20_000):
        net.step(HOP_NS // 8)  # often while the queue is emptied
        while newer and one.send(newer[0]) == SENT:
            newer.pop(0)
    expected = [b"before", *queued, b"n0", b"n1", b"n2"]
    for i in range(3):
        assert of_sender(net, i, 1) == expected, f"at {i}"
    counters = one.counters()
    assert counters["blocked_queued"] == len(queued) and counters["blocked_queued_bytes"] == sum(map(len, queued))
    assert one.blocked() == 0 and counters["blocked_queue_lost"] == counters["blocked_queue_full"] == 0
    assert counters["messages_sent"] == len(expected)


@pytest.mark.parametrize("sequencer", [-1, 0])
def test_unstamped_messages_go_before_queued_ones(sequencer: int) -> None:
    net = Net(3, sequencer=sequencer, blocked_bytes_max=BOUND)
    one = net.engines[1]
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    one.send(b"on its way")
    net.step()
    for engine in net.engines:
        engine.gate_close()
    one.send(b"queued")
    net.drop = lambda src, dst, lane, datagram: False
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=sequencer, tag=2)
    net.run(50)
    for i in range(3):
        assert of_sender(net, i, 1) == [b"on its way", b"queued"]


def test_a_full_queue_is_counted_once_and_senders_wait_as_without_one() -> None:
    net = Net(2, blocked_bytes_max=2000)
    one = net.engines[1]
    for engine in net.engines:
        engine.gate_close()
    assert one.send(bytes(1900)) == SENT
    assert [one.send(bytes(300)) for _ in range(5)] == [AGAIN] * 5
    assert one.counters()["blocked_queue_full"] == 1 and one.blocked() == 1
    change_view(net, [0, 1], [0, 1], sequencer=-1, tag=2)
    assert one.send(bytes(300)) == SENT
    net.run(20)
    assert [len(message) for message in of_sender(net, 0, 1)] == [1900, 300]
    one.pause()
    assert one.send(bytes(3000)) == AGAIN  # more than the bound: such a send always waits
    assert one.counters()["blocked_queue_full"] == 2
    one.resume()
    assert one.send(bytes(3000)) == SENT


@pytest.mark.parametrize("how", ["gate", "pause"])
@pytest.mark.parametrize("sequencer", [-1, 0])
def test_a_message_that_is_sent_in_part_is_queued_whole(how: str, sequencer: int) -> None:
    """Its first packets are on their way; receivers drop them, and get the message once."""
    net = Net(3, sequencer=sequencer, window=30_000, blocked_bytes_max=BOUND)
    one = net.engines[1]
    large = bytes(range(256)) * 400
    sending = Sending(one, large)
    assert sending.step() == AGAIN
    net.step()
    for engine in net.engines:
        engine.pause() if how == "pause" else engine.gate_close()
    assert sending.step() == SENT and one.send(b"behind") == SENT
    if how == "pause":
        net.run(20)
        assert one.blocked() == 2
        for engine in net.engines:
            engine.resume()
    else:
        change_view(net, [0, 1, 2], [0, 1, 2], sequencer=sequencer, tag=2)
    net.run(400)
    for i in range(3):
        assert of_sender(net, i, 1) == [large, b"behind"], f"at {i}"


def test_a_large_message_that_waits_for_its_order_is_not_queued_too() -> None:
    net = Net(3, sequencer=0, window=30_000, blocked_bytes_max=BOUND)
    one = net.engines[1]
    large = bytes(20_000)  # more than half of a window: its sender waits for the order
    sending = Sending(one, large)
    assert sending.step() == AGAIN
    for engine in net.engines:
        engine.pause()
    assert sending.step() == AGAIN and one.blocked() == 0
    net.run(50)
    assert sending.step() == SENT
    for engine in net.engines:
        engine.resume()
    net.run(50)
    for i in range(3):
        assert of_sender(net, i, 1) == [large]


def test_unicasts_are_neither_held_nor_queued() -> None:
    """FLU-09."""
    net = Net(2, blocked_bytes_max=BOUND)
    net.engines[0].gate_close()
    assert net.engines[0].send(b"to one", to=net.ids[1]) == SENT and net.engines[0].blocked() == 0
    net.run(5)
    assert of_sender(net, 1, 0) == [b"to one"]


def test_messages_queued_at_the_end_are_counted_and_no_more_are_taken() -> None:
    net = Net(2, blocked_bytes_max=BOUND)
    one = net.engines[1]
    one.gate_close()
    for _ in range(3):
        one.send(b"x")
    assert one.blocked_end() == 3 and one.blocked() == 0
    assert one.send(b"x") == AGAIN and one.counters()["blocked_queue_lost"] == 3


def _large_on_its_way(net: Net) -> None:
    """A large message of member 1 is queued with a small one, and packed as a whole; the sequencer does not get the
    packet."""
    one = net.engines[1]
    one.pause()
    assert one.send(bytes(20_000)) == one.send(b"behind it") == SENT
    assert one.blocked_oldest() == OLDEST_NOT_PACKED
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (1, 0)
    one.resume()
    assert one.blocked() == 2 and one.blocked_oldest() == OLDEST_PACKED


def test_a_queued_message_that_waits_to_be_ordered_is_not_counted_as_never_sent() -> None:
    """The sequencer may have the message, and deliver it (seen in seed 224 of the simulator, with 4 members, order
    "sequencer" and a primary partition, where a member delivered messages reported to their sender as never sent)."""
    net = Net(3, sequencer=0, window=30_000, blocked_bytes_max=BOUND)
    _large_on_its_way(net)
    one = net.engines[1]
    one.gate_close()
    own = one.own()
    assert one.own_messages(own.first + 1, own.last, waiting=True)[-1] == 1
    assert one.blocked_end() == 1 and one.blocked_oldest() == OLDEST_NOT_PACKED
    assert one.counters()["blocked_queue_lost"] == 1


def test_nor_is_one_that_waited_to_be_ordered_in_an_earlier_view() -> None:
    net = Net(3, sequencer=0, window=30_000, blocked_bytes_max=BOUND)
    _large_on_its_way(net)
    net.window = 8_000
    change_view(net, [1, 2], [1, 2], sequencer=1, tag=2)
    one = net.engines[1]
    assert one.blocked() == 2 and one.blocked_oldest() == OLDEST_PACKED_BEFORE
    assert one.blocked_end() == 1
    told = Lost(ViewId(2, 1, (1, 1)), 0, 0, None, messages=1)
    assert str(told) == "lost: 1 queued messages, sent before view 2, did not reach other members"


# ---- real sockets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["fifo", "total"])
def test_threads_send_to_a_paused_group_without_waiting_and_all_arrives_in_their_order(order):
    with group_of(3, order=order, send_while_blocked="queue", **PATIENT) as groups:
        a, b, _ = groups
        a.suspend(LIMIT_S)

        def work(number):
            for i in range(200):
                b.send(b"%d %d" % (number, i), timeout=0)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        b.send_many([b"3 %d" % i for i in range(200)], timeout=0)
        words = [b"4 %d" % i for i in range(200)]
        b.send_batch(b"".join(words), np.cumsum([0, *map(len, words)]), timeout=0)
        assert b.counters()["blocked_queued"] == 1000 and b.recv(0.05) is None
        assert a.resume()
        b.send(b"5 0", timeout=LIMIT_S)
        for group in groups:
            got = payloads(group, 1001)
            assert got[-1] == b"5 0"
            for number in range(5):
                mine = [word for word in got if word.startswith(b"%d " % number)]
                assert mine == [b"%d %d" % (number, i) for i in range(200)]


def test_messages_sent_while_a_view_changes_belong_to_the_next_view():
    """c falls silent, so that the change takes its time; nobody who sends to the group notices."""
    name, seen = cluster(), []
    settings = {"send_while_blocked": "queue", "block_events": True, "flush_deadline_s": 3.0, "block_deadline_s": 0.1}
    with join(name, "a", **settings) as a, join(name, "b", **settings) as b:
        c = join(name, "c", **settings)
        wait_until(lambda: all(len(group.view.members) == 3 for group in (a, b)))
        silence = threading.Event()
        c._runner.endpoint.step = lambda *_: silence.wait() and []  # its Python stops, its engine goes on
        d = threading.Thread(target=lambda: join(name, "d", **settings).leave())
        d.start()
        closed = 0
        while closed < 20:
            a.send(b"%d" % len(seen), timeout=LIMIT_S)
            seen.append(len(seen))
            closed += a._runner.engine.blocked() > 0
            time.sleep(0.005)
        last = len(seen) - 1
        numbers, view = [], None
        while not numbers or numbers[-1] < last:
            event = b.next_event(LIMIT_S)
            if isinstance(event, seqcast.View):
                view = event
            elif isinstance(event, seqcast.Message):
                assert event.view_id == view.view_id
                numbers.append(int(event.payload))
        assert numbers == seen[: len(numbers)]
        d.join(LIMIT_S)
        del c._runner.endpoint.step  # so that its thread ends
        silence.set()
        c._give_up()


def test_more_than_the_bound_waits_in_its_sender():
    with group_of(2, send_while_blocked="queue", blocked_queue_bytes=4096, **PATIENT) as (a, b):
        b.suspend(LIMIT_S)
        with pytest.raises(seqcast.SendTimeout) as error:
            a.send_many([bytes(100)] * 100, timeout=0.05)
        assert 20 < error.value.sent < 41
        assert a.counters()["blocked_queue_full"] == 1
        b.resume()
        a.send(b"last", timeout=LIMIT_S)
        assert payloads(b, error.value.sent + 1)[-1] == b"last"


def test_leaving_sends_queued_messages_if_the_group_opens_in_time_and_reports_them_otherwise():
    with group_of(3, send_while_blocked="queue", order="fifo", **PATIENT) as (a, b, c):
        c.suspend(LIMIT_S)
        a.send(b"in time")
        resumes = threading.Timer(0.2, c.resume)
        resumes.start()
        assert a.leave(LIMIT_S)
        assert payloads(c, 1) == [b"in time"]
        resumes.join()
        c.suspend(LIMIT_S)
        for _ in range(3):
            b.send(b"never")
        assert not b.leave(0.2)
        lost = [event for event in b.events() if isinstance(event, Lost)]
        assert [(event.unsent, event.missed_by) for event in lost] == [(3, None)]
        assert "3 queued messages were never sent" in str(lost[0])
        c.resume()
        assert c.recv(0.3) is None


def test_asyncio_sends_do_not_wait_either():
    async def main():
        name = cluster()
        settings = {"interface": LOOPBACK, "send_while_blocked": "queue", **PATIENT}
        async with seqcast.aio.join(name, name="a", **settings) as a, seqcast.aio.join(name, name="b", **settings) as b:
            while len(a.view.members) < 2:
                await asyncio.sleep(0.005)
            await b.suspend(LIMIT_S)
            for i in range(100):
                await a.send(b"%d" % i, timeout=0)
            assert await b.resume()
            assert [(await b.recv(LIMIT_S)).payload for _ in range(100)] == [b"%d" % i for i in range(100)]

    asyncio.run(main())


def test_a_wrong_setting_names_the_right_form():
    with pytest.raises(seqcast.ConfigError, match="'wait', 'queue'"):
        seqcast.Config(send_while_blocked="drop")
