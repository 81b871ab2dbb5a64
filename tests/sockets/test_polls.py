"""Members in a conversation, and its sequencer, poll for a moment before they block, as long as that pays."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, output, payloads, sequencer, wait_until

import seqcast.aio

STEPS = 400


def talk(a, b, steps):
    """The two members speak in turn, and each hears the other."""
    for i in range(steps):
        says, hears = (a, b) if i % 2 else (b, a)
        says.send(b"%d" % i)
        assert hears.recv(LIMIT_S).payload == b"%d" % i


def polls_of_a_conversation(order):
    """Of each of three members: the first one takes, and orders, the messages of the other two in turn."""
    with group_of(3, order=order, deliver_own=False, heartbeat_s=10.0, suspect_s=60.0) as groups:
        founder, a, b = groups

        def listen():
            for _ in range(STEPS):
                assert founder.recv(LIMIT_S) is not None

        listener = threading.Thread(target=listen)
        listener.start()
        before = [each.counters()["io_polls"] for each in groups]
        talk(a, b, STEPS)
        listener.join()
        return [each.counters()["io_polls"] - polls for each, polls in zip(groups, before, strict=True)]


@contextlib.contextmanager
def one_core_shared_with_a_computation():
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("order", ["records", "sequencer", "total-1999", "grant"])
def test_those_who_talk_poll_and_so_does_the_sequencer(order):
    assert all(polls_of_a_conversation(order))


def test_a_member_that_only_listens_does_not_poll_without_an_order():
    listener, *others = polls_of_a_conversation("fifo")
    assert listener == 0 and any(others)  # on a busy machine one of the two may give up


async def polls_of_event_loops():
    """Of three members of one loop: the first two speak in turn, the third one listens."""
    name, settings = cluster(), {"deliver_own": False, "order": "fifo", "heartbeat_s": 10.0, "suspect_s": 60.0}
    async with contextlib.AsyncExitStack() as left:
        groups = [await left.enter_async_context(seqcast.aio.join(name, name=each, interface=LOOPBACK, **settings))
                  for each in "abc"]  # fmt: skip
        a, b, c = groups
        while any(len(each.view) < 3 for each in groups):
            await asyncio.sleep(0.01)

        async def answer():
            for _ in range(STEPS):
                await b.send((await b.recv(LIMIT_S)).payload)

        async def ask():
            for i in range(STEPS):
                await a.send(b"%d" % i)
                assert (await a.recv(LIMIT_S)).payload == b"%d" % i

        async def listen():
            for _ in range(2 * STEPS):
                assert await c.recv(LIMIT_S) is not None

        await a.send(b"")  # the listener has answered once: that counts until the next message is taken
        assert await b.recv(LIMIT_S) is not None and await c.recv(LIMIT_S) is not None
        await c.send(b"")
        assert await a.recv(LIMIT_S) is not None and await b.recv(LIMIT_S) is not None
        before = [each.counters()["io_polls"] for each in groups]
        await asyncio.gather(answer(), ask(), listen())
        return [each.counters()["io_polls"] - polls for each, polls in zip(groups, before, strict=True)]


def test_event_loops_that_talk_poll_and_one_that_listens_does_not():
    asks, answers, listens = asyncio.run(polls_of_event_loops())
    assert asks > 0 and answers > 0 and listens == 0


def test_polls_that_found_something_cease_when_they_do_not():
    """Messages every few microseconds may be found. If messages are far apart, blocking costs less."""
    with group_of(3, order="records", flush_s_min=0.0, heartbeat_s=10.0, suspect_s=60.0) as (founder, *others):

        def say(pause_s):
            """Polls and rounds of the founder's I/O thread."""
            time.sleep(0.02)  # until the I/O thread has the sockets again, from the thread that took messages
            before = founder.counters()
            for i in range(STEPS):
                if pause_s:
                    time.sleep(pause_s)
                others[i % 2].send(b"")
            for each in (founder, *others):
                assert len(payloads(each, STEPS)) == STEPS
            after = founder.counters()
            return [after[key] - before[key] for key in ("io_polls", "io_rounds")]

        say(0.0)  # tests/unit/test_pace.py says what polls that find something do: here a busy machine may find nothing
        polls, rounds = say(0.002)
    assert rounds >= STEPS // 2 and polls < rounds // 8, (polls, rounds)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_a_sequencer_does_not_leave_its_core_to_a_computation():
    """A datagram wakes no thread that is ready to run already: each would wait for a slice of some milliseconds."""
    takes = """
while group.recv().payload != b"end":
    pass
counters = group.counters()
print(counters["io_polls"], counters["io_rounds"])
"""
    name, settings = cluster(), {"order": "records", "deliver_own": False, "suspect_s": 600.0}
    with one_core_shared_with_a_computation():
        process = sequencer(name, takes, "records")
        with join(name, "a", **settings) as a, join(name, "b", **settings) as b:
            wait_until(lambda: len(a.view.members) == 3)
            talk(a, b, 5 * STEPS)
            a.send(b"end")
            polls, rounds = map(int, output(process).split())
    assert rounds >= 5 * STEPS and polls < rounds // 4, (polls, rounds)
