"""Messages that the applications of others have taken: ``wait_consumed`` and ``consumed``, in the engine and on real
sockets."""

import asyncio
import threading
import time

import pytest
from engines import Net
from members import LIMIT_S, group_of, join, wait_until

import seqcast
import seqcast.aio
from seqcast._native.engine import AGAIN, NO_VIEW, SENT, TakenWait


def step(net, takers, n=200):
    """Time passes; only these members' applications take their deliveries, and say so."""
    for _ in range(n):
        net.step(take=False)
        for i in takers:
            net.take(i)
            net.engines[i].taken()


@pytest.mark.parametrize("sequencer", [-1, 0, 1], ids=["fifo", "its own sequencer", "another's"])
def test_a_wait_ends_when_the_last_application_has_taken_the_earlier_messages(sequencer):
    net = Net(3, sequencer=sequencer)
    a, _, c = net.engines
    for i in range(20):
        assert a.send(b"%d" % i) == SENT
    wait = TakenWait(a, net.now)
    assert a.send(b"later") == SENT
    step(net, [0, 1])
    assert wait.state() == AGAIN and a.consumed(net.now) == 0, "c's application has taken nothing"
    while (item := c.deliver()) is not None:
        assert item is not None
    step(net, [0, 1])
    assert wait.state() == AGAIN, "it was handed to c's application, and c has not said that it is out of the batch"
    c.taken()
    step(net, [0, 1], 20)
    assert wait.state() == SENT
    assert a.consumed(net.now) == a.last_sent()
    del wait
    asks = a.counters()["asks_sent"]
    step(net, [0, 1, 2])
    assert a.counters()["asks_sent"] == asks, "nobody asks any more"


def test_if_nobody_asks_nothing_is_sent_and_lost_questions_are_repeated():
    net = Net(3, sequencer=1)
    net.engines[0].send(b"x")
    step(net, [0, 1, 2])
    assert not any(engine.counters()["asks_sent"] + engine.counters()["taken_sent"] for engine in net.engines)
    net.drop = lambda src, dst, lane, datagram: datagram[2] in (12, 13)  # ASK, TAKEN
    wait = TakenWait(net.engines[0], net.now)
    step(net, [0, 1, 2], 150)
    assert wait.state() == AGAIN
    net.drop = lambda src, dst, lane, datagram: False
    step(net, [0, 1, 2], 150)
    assert wait.state() == SENT


@pytest.mark.parametrize("sequencer", [-1, 1], ids=["fifo", "sequencer"])
def test_a_wait_outlives_views_and_those_that_are_gone_or_new(sequencer):
    net = Net(4, sequencer=sequencer)
    net.install([0, 1, 2], sequencer=sequencer, tag=2, marker=2, cuts={0: [0] * 4, 1: [0] * 4, 2: [0] * 4})
    a = net.engines[0]
    a.send(b"taken after the view has changed")
    step(net, [0, 1])
    wait = TakenWait(a, net.now)
    step(net, [0, 1])
    assert wait.state() == AGAIN
    cut = [1, 0, 0] if sequencer < 0 else [0, 1, 0]
    base = [1, 0, 0, 0] if sequencer < 0 else [0, 1, 0, 0]
    origin = None if sequencer < 0 else [1, 0, 0, 0]
    net.install([0, 1, 2, 3], sequencer=sequencer, tag=3, marker=3, base=base, origin=origin,
                cuts={0: cut, 1: cut, 2: cut})  # fmt: skip
    step(net, [0, 1])
    assert wait.state() == AGAIN, "c has not taken it; d, which is new, owes nothing"
    step(net, [2], 50)
    assert wait.state() == SENT
    second = TakenWait(a, net.now)
    assert second.state() == SENT, "it is known"
    a.send(b"never taken by c")
    wait = TakenWait(a, net.now)
    step(net, [0, 1, 3])
    assert wait.state() == AGAIN
    a.close_view(None, 9)
    assert wait.state() == NO_VIEW


def test_messages_that_another_sequencer_orders_again_are_awaited_in_its_new_packets():
    net = Net(3, sequencer=2)
    a, b, _ = net.engines
    net.drop = lambda src, dst, lane, datagram: 2 in (src, dst)
    for i in range(50):
        a.send(b"%03d" % i + bytes(400))
    wait = TakenWait(a, net.now)
    step(net, [0, 1], 30)
    for engine in (a, b):
        engine.gate_close()
        engine.freeze([net.ids[2]])
        engine.cut([0, 0, 0], [])
    net.packet = 512  # other packets: more of them, so that b takes as many as were sent before, and not all
    net.install([0, 1], sequencer=1, tag=2, marker=2, cuts={0: [0, 0, 0], 1: [0, 0, 0]})
    step(net, [0], 100)
    assert wait.state() == AGAIN
    item = b.deliver(bytes_max=14_000)
    while isinstance(item, int):
        item = b.deliver(bytes_max=14_000)
    b.taken()
    step(net, [0], 100)
    taken = len(item)
    assert 0 < taken < 50 and wait.state() == AGAIN
    step(net, [0, 1], 100)
    assert wait.state() == SENT


def test_a_message_that_waits_for_the_gate_is_waited_for_too():
    net = Net(2, blocked_bytes_max=1 << 20)
    a = net.engines[0]
    a.pause()
    assert a.send(b"queued") == SENT
    wait = TakenWait(a, net.now)
    step(net, [0, 1])
    assert wait.state() == AGAIN
    a.resume()
    step(net, [0])
    assert wait.state() == AGAIN
    step(net, [1], 20)
    assert wait.state() == SENT


def test_an_answer_beyond_the_sent_messages_is_refused():
    net = Net(2)
    a = net.engines[0]
    a.send(b"x")
    other = Net(2)  # in which the same member has sent more
    other.engines[0].send(bytes(20_000))
    forged = []
    other.drop = lambda src, dst, lane, datagram: datagram[2] == 13 and forged.append(datagram)
    wait = TakenWait(other.engines[0], other.now)
    step(other, [0, 1], 50)
    assert wait.state() == SENT
    before = a.counters()["drop_field"]
    a.receive(forged[-1], bytes([2]), net.now)
    assert a.counters()["drop_field"] == before + 1 and a.consumed(net.now) == 0


# ---- on real sockets


@pytest.mark.parametrize("order", ["fifo", "total"])
def test_wait_consumed_ends_when_each_application_has_every_message_in_its_hands(order):
    with group_of(3, order=order, deliver_own=False) as (a, b, c):
        for sender, others in ((a, (b, c)), (c, (a, b))):
            sender.send_many([b"%d" % i for i in range(100)])
            assert sender.wait_consumed(0.1) is False
            one, other = others
            for _ in range(100):
                assert one.recv(LIMIT_S) is not None
            assert sender.wait_consumed(0.1) is False
            got = 0
            while got < 99:
                assert other.recv(LIMIT_S) is not None
                got += 1
            assert sender.wait_consumed(0.1) is False, "the last message of the batch is still to be returned"
            assert sender.consumed < sender.sent_seqno
            assert other.recv(LIMIT_S) is not None
            assert sender.wait_consumed(LIMIT_S) is True
            assert sender.consumed == sender.sent_seqno
        with pytest.raises(seqcast.UsageError, match="timeout='soon'"):
            a.wait_consumed("soon")


def test_a_batch_counts_when_it_is_returned_and_a_wait_ends_from_another_thread():
    with group_of(2, deliver_own=False) as (a, b):
        a.send_many([b"%d" % i for i in range(500)])
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(a.wait_consumed(LIMIT_S)))
        waiting.start()
        time.sleep(0.05)
        assert not answers
        got = 0
        while got < 500:
            got += len(b.recv_batch(LIMIT_S))
        waiting.join(LIMIT_S)
        assert answers == [True]
        a.send(b"one more")
        assert b.wait_deliverable(LIMIT_S)
        assert a.consumed < a.sent_seqno
        assert b.recv(0).payload == b"one more"
        wait_until(lambda: a.consumed == a.sent_seqno)


def test_a_member_that_only_sends_has_taken_everything_and_one_that_is_gone_owes_nothing():
    with group_of(2, deliver_own=False) as (a, b):
        with join(a.cluster, "x", receive=False, deliver_own=False):
            wait_until(lambda: len(a.view.members) == 3)
            a.send(b"for b, and x which takes nothing")
            assert b.recv(LIMIT_S) is not None
            assert a.wait_consumed(LIMIT_S) is True
        a.send(b"b never takes this")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(a.wait_consumed(LIMIT_S)))
        waiting.start()
        b.leave()
        waiting.join(LIMIT_S)
        assert answers == [True]
        a.leave()
        with pytest.raises(seqcast.NotMember):
            a.wait_consumed(1)


def test_a_joiner_with_state_has_taken_nothing_before_it_is_returned():
    class State:
        def get_state(self, write):
            write(b"state")

        def set_state(self, read):
            read()
            time.sleep(0.3)  # messages come meanwhile

    with group_of(1, state=State(), deliver_own=False) as (a,):
        joined = []
        joining = threading.Thread(target=lambda: joined.append(join(a.cluster, "j", state=State(), deliver_own=False)))
        joining.start()
        assert a.next_event(LIMIT_S) and a.next_event(LIMIT_S), "its second view: the state is given here"
        wait_until(lambda: len(a.view.members) == 2)
        for i in range(3):
            a.send(b"%d" % i)
            time.sleep(0.02)
        joining.join(LIMIT_S)
        (j,) = joined
        assert a.wait_consumed(0.2) is False
        assert [j.recv(LIMIT_S).payload for _ in range(3)] == [b"0", b"1", b"2"]
        assert a.wait_consumed(LIMIT_S) is True
        j.leave()


def test_asyncio_waits_too():
    async def main():
        with group_of(1) as (first,):
            a = seqcast.aio.Group(first)
            async with seqcast.aio.join(first.cluster, name="b", interface=first.config.interface) as b:
                while len(a.view.members) < 2:
                    await asyncio.sleep(0.01)
                await a.send(b"x")
                assert await a.wait_consumed(0.05) is False
                assert (await b.recv(LIMIT_S)).payload == b"x"
                assert await a.wait_consumed(LIMIT_S) is True
                assert a.consumed == a.sent_seqno > 0

    asyncio.run(main())
