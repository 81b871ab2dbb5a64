"""Calls that wait end when they are interrupted, cancelled, or the group is left, and no thread keeps the process."""

import asyncio
import contextlib
import signal
import sys
import threading
import time

import pytest
from halves import first_quick
from members import LIMIT_S, LOOPBACK, cluster, join, output, script

import seqcast
import seqcast.aio

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

SOON_S = 10.0
"""Longer than anything here takes on a busy machine, and shorter than every wait that is interrupted."""

JOIN = """
import asyncio, sys
import seqcast.aio
name, interface, what = sys.argv[1:]
async def main():
    print("waits", flush=True)
    await seqcast.aio.join(name, name="b", interface=interface, {settings})
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""

WAIT = """
import asyncio, sys
import seqcast.aio
name, interface, what = sys.argv[1:]
async def main():
    group = await seqcast.aio.join(name, name="b", interface=interface, leave_timeout_s=0.5, suspect_s=600.0)
    if what == "wait_consumed":
        group.sync.send(b"x")
        waits = [group.wait_consumed(), group.wait_consumed(600)]
    else:
        while True:  # (a path, too, may hold up sends, but not for a second)
            try:
                await group.send(bytes(1000), timeout=1.0)
            except seqcast.SendTimeout:
                break
        waits = [group.send(b"x")] if what == "send" else [group.send_many([b"x", b"y"])]
    tasks = [asyncio.ensure_future(each) for each in waits]
    await asyncio.sleep(0.3)
    print("waits", flush=True)
    await asyncio.gather(*tasks)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def interrupted(text, what, name):
    """The output of a process that was interrupted in its wait, and how long its end took."""
    process = script(text, name, LOOPBACK, what)
    try:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.5)  # to be in the wait; an earlier interrupt ends the process as well
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        return output(process, SOON_S), time.monotonic() - begin
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "settings", first_quick(["discovery_s=60, join_timeout_s=600", "min_members=3, join_timeout_s=600"])
)
def test_an_interrupted_join_of_asyncio_ends_at_once(settings):
    printed, took_s = interrupted(JOIN.format(settings=settings), "join", cluster())
    assert printed == "interrupted\n" and took_s < SOON_S


@pytest.mark.parametrize("what", first_quick(["send_many", "send", "wait_consumed"]))
def test_an_interrupted_wait_of_asyncio_ends_outside_of_async_with_too(what):
    name = cluster()
    with join(name, "a", suspect_s=600.0):  # which receives nothing
        assert interrupted(WAIT, what, name)[0] == "interrupted\n"


def test_a_cancelled_call_leaves_no_thread_behind():
    """A program that waits again and again, a while each time, must not gather threads."""

    async def main():
        name = cluster()
        async with (
            seqcast.aio.join(name, name="a", interface=LOOPBACK, leave_timeout_s=0.5, suspect_s=600.0) as a,
            seqcast.aio.join(name, name="b", interface=LOOPBACK, suspect_s=600.0, discovery_s=1.0),
        ):
            while len(a.view.members) < 2:
                await asyncio.sleep(0.01)
            with contextlib.suppress(seqcast.SendTimeout):
                while True:
                    await a.send(bytes(1000), timeout=1.0)
            before = threading.active_count()
            for wait in (a.wait_consumed, lambda: a.send(b"x"), lambda: a.send_many([b"x", b"y"])):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait(), 0.2)
            deadline = time.monotonic() + SOON_S
            while threading.active_count() > before:
                assert time.monotonic() < deadline, threading.enumerate()
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_program_that_ends_waits_for_no_thread_of_ours():
    """A call that its event loop no longer awaits: a thread that is not a daemon would keep the process."""
    text = """
import asyncio, sys, threading
import seqcast.aio
async def main():
    joining = asyncio.ensure_future(seqcast.aio.join(sys.argv[1], interface=sys.argv[2], discovery_s=60.0))
    while not any(thread.name == "seqcast-aio" for thread in threading.enumerate()):
        await asyncio.sleep(0.01)
    print([thread.name for thread in threading.enumerate() if not thread.daemon])
asyncio.run(main())
"""
    assert output(script(text, cluster(), LOOPBACK), SOON_S) == "['MainThread']\n"


@pytest.mark.parametrize("take", ["recv", "recv_batch", "next_event"])
def test_a_call_without_a_timeout_gets_messages_that_came_just_before_the_group_was_left(take):
    """The main thread has just waited in vain when a signal's handler runs: meanwhile a message is delivered and
    another thread leaves. The call takes the message, and the next one raises."""
    with join(cluster(), "a") as group:
        while group.next_event(0.5) is not None:
            pass

        def handle(signum, frame):
            group.send(b"last")
            leaving = threading.Thread(target=group.leave)
            leaving.start()
            leaving.join()

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
            assert getattr(group, take)() is not None
            with pytest.raises(seqcast.NotMember):
                while True:
                    assert getattr(group, take)() is not None
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("take", ["recv", "recv_batch", "next_event"])
def test_calls_without_a_timeout_that_wait_while_another_thread_leaves_raise(take):
    for _ in range(10):
        group = join(cluster(), "a", discovery_s=0.01)
        ends = []

        def wait(group=group, ends=ends):
            try:
                while True:
                    if getattr(group, take)() is None:
                        ends.append("None")
            except seqcast.NotMember:
                ends.append("raised")

        waiting = [threading.Thread(target=wait) for _ in range(4)]
        for thread in waiting:
            thread.start()
        group.leave()
        for thread in waiting:
            thread.join(LIMIT_S)
        assert ends == ["raised"] * 4
