"""``leave_on_signals``: who is told to end leaves its groups in order."""

import signal
import sys
import threading
import time

import pytest
from members import LOOPBACK, cluster, join, script, wait_until

import seqcast
from seqcast.net.runner import Runner
from seqcast.signals import TOGETHER_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

BEGIN = """
import signal, sys, threading, time
import seqcast, seqcast.aio
name, interface = sys.argv[1:]
def join(): return seqcast.join(name, name="b", interface=interface)
"""

LOOP = """
with join() as group:
    for message in group:
        print(message.payload.decode(), flush=True)
print("behind the loop")
"""

SLEEP = """
group = join()
threading.Thread(target=lambda: list(group)).start()    # no daemon: it must end too
print("first", flush=True)
try:
    time.sleep(60)
finally:
    print("behind the loop")
"""

ASYNC = """
import asyncio
async def main():
    async with seqcast.aio.join(name, name="b", interface=interface) as group:
        async for message in group:
            print(message.payload.decode(), flush=True)
asyncio.run(main())
print("behind the loop")
"""

JOINING = """
threading.Timer(0.1, lambda: print("first", flush=True)).start()
try:
    seqcast.join(name, name="b", interface=interface, discovery_s=20, join_timeout_s=60)
except seqcast.NotMember:
    print("behind the loop")
"""


def ended(text, call, number, grace_s=5.0):
    """A process that joins the group of this one and is sent a signal; what it printed and its status, and how many
    members this one lost."""
    name = cluster()
    with join(name, "a") as a:
        process = script(f"{BEGIN}{call}\n{text}", name, LOOPBACK)
        wait_until(lambda: len(a.view.members) == 2)
        a.send(b"first")
        assert process.stdout.readline() == "first\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        wait_until(lambda: len(a.view.members) == 1)
        return out, err, process.returncode, a.counters()["control_members_lost"]


def test_without_it_the_end_is_a_crash():
    assert ended(LOOP, "", signal.SIGTERM) == ("", "", -signal.SIGTERM, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_loop_over_a_group_ends_and_the_program_goes_on_behind_it(number):
    assert ended(LOOP, "seqcast.leave_on_signals()", number) == ("behind the loop\n", "", 0, 0)


@pytest.mark.parametrize(("text", "grace_s"), [(SLEEP, 0.1), (ASYNC, 30)], ids=["asleep", "asyncio"])
def test_a_main_thread_that_waits_for_something_else_ends_too(text, grace_s):
    call = f"seqcast.leave_on_signals(grace_s={grace_s})"
    assert ended(text, call, signal.SIGTERM) == ("behind the loop\n", "", 0, 0)


def test_a_join_under_way_is_given_up():
    name = cluster()
    process = script(f"{BEGIN}seqcast.leave_on_signals()\n{JOINING}", name, LOOPBACK)
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("behind the loop\n", "")
    assert process.returncode == 0


def test_a_join_that_is_interrupted_when_its_view_is_there_leaves_in_order(monkeypatch):
    name = cluster()
    with join(name, "a") as a:
        joined = Runner.join

        def interrupted(runner):
            joined(runner)
            raise KeyboardInterrupt

        monkeypatch.setattr(Runner, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            join(name, "b")
        wait_until(lambda: len(a.view.members) == 1 and a.view.view_id.counter == 3)
        assert a.counters()["control_members_lost"] == 0


def test_a_later_signal_does_what_it_did_before():
    name = cluster()
    with join(name, "a") as a:
        process = script(f"{BEGIN}seqcast.leave_on_signals(grace_s=60)\n{SLEEP}", name, LOOPBACK)
        wait_until(lambda: len(a.view.members) == 2)
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        wait_until(lambda: len(a.view.members) == 1)
        time.sleep(max(0.0, begun + 2 * TOGETHER_S - time.monotonic()))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGTERM


def test_several_signals_at_once_are_one_wish():
    """`timeout` signals its child, and then its process group, in which the child is."""
    name = cluster()
    with join(name, "a") as a:
        process = script(f"{BEGIN}seqcast.leave_on_signals(grace_s=0.1)\n{SLEEP}", name, LOOPBACK)
        wait_until(lambda: len(a.view.members) == 2)
        assert process.stdout.readline() == "first\n"
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
            time.sleep(0.005)  # so that they are not taken for one by the kernel
        assert process.communicate(timeout=30) == ("behind the loop\n", "")
        wait_until(lambda: len(a.view.members) == 1)
        assert process.returncode == 0 and a.counters()["control_members_lost"] == 0


def test_only_the_main_thread_may_ask_for_it():
    failures = []

    def call():
        try:
            seqcast.leave_on_signals()
        except seqcast.UsageError as error:
            failures.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert failures and "main thread" in failures[0]
