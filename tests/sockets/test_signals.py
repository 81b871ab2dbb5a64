"""``leave_on_signals``: a process that is told to end leaves its groups in order."""

import contextlib
import signal
import sys
import threading
import time

import pytest
from halves import first_quick
from members import LIMIT_S, LOOPBACK, cluster, join, script, wait_until

import seqcast
from seqcast.net.joining import Joining
from seqcast.signals import TOGETHER_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")

BEGIN = """
import signal, sys, threading, time
import seqcast, seqcast.aio, seqcast.signals
seqcast.signals.TOGETHER_S = {together_s}
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
    time.sleep(600)
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
def tell():
    while not seqcast.signals.open_groups():
        time.sleep(0.001)
    print("first", flush=True)
threading.Thread(target=tell).start()
try:
    seqcast.join(name, name="b", interface=interface, join_timeout_s=600, {settings})
except seqcast.NotMember:
    print("behind the loop")
"""

MINORITY = """
with seqcast.join(name, name="b", interface=interface, partition="primary", discovery_s=1.0) as group:
    for event in group.events():
        if isinstance(event, seqcast.View):
            print("view of", len(event.members), flush=True)
        if isinstance(event, seqcast.Blocked):
            print("blocked", flush=True)
"""

NEVER_S = 10 * LIMIT_S
"""For a grace time that nobody waits for."""


@contextlib.contextmanager
def started(name, call, text, together_s=TOGETHER_S):
    """A process that makes this call first; killed at the end."""
    process = script(f"{BEGIN.format(together_s=together_s)}{call}\n{text}", name, LOOPBACK)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def leave_on_signals(grace_s):
    return f"seqcast.leave_on_signals(grace_s={grace_s})"


def ended(text, call, number):
    """A process that joins the group of this one and is sent a signal; its output and its status, and how many
    members this one lost."""
    name = cluster()
    with join(name, "a") as a, started(name, call, text) as process:
        wait_until(lambda: len(a.view.members) == 2)
        a.send(b"first")
        assert process.stdout.readline() == "first\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
        wait_until(lambda: len(a.view.members) == 1)
        return out, err, process.returncode, a.counters()["control_members_lost"]


def test_without_it_the_end_is_a_crash():
    assert ended(LOOP, "", signal.SIGTERM) == ("", "", -signal.SIGTERM, 1)


@pytest.mark.parametrize("number", first_quick([signal.SIGTERM, signal.SIGHUP]), ids=["SIGTERM", "SIGHUP"])
def test_a_loop_over_a_group_ends_and_the_program_goes_on_behind_it(number):
    assert ended(LOOP, leave_on_signals(NEVER_S), number) == ("behind the loop\n", "", 0, 0)


@pytest.mark.parametrize(("text", "grace_s"), first_quick([(SLEEP, 0.1), (ASYNC, NEVER_S)]), ids=["asleep", "asyncio"])
def test_a_main_thread_that_waits_for_something_else_ends_too(text, grace_s):
    assert ended(text, leave_on_signals(grace_s), signal.SIGTERM) == ("behind the loop\n", "", 0, 0)


@pytest.mark.parametrize("settings", first_quick(["discovery_s=60", "min_members=2"]))
def test_a_join_under_way_is_given_up(settings):
    """And not as if the join had taken too long: a program that then joins again would go on for ever."""
    with started(cluster(), leave_on_signals(NEVER_S), JOINING.replace("{settings}", settings)) as process:
        assert process.stdout.readline() == "first\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=LIMIT_S) == ("behind the loop\n", "")
        assert process.returncode == 0 and time.monotonic() - begin < 4.0


REPLICA = """
class Machine:
    def apply(self, operation): return operation
    def snapshot(self, write): write(b"")
    def restore(self, read): read()
with seqcast.replicate(name, Machine(), name="b", interface=interface, ready_s={ready_s}, found={found}) as replica:
    print("first", flush=True)
    try:
        while True:
            replica.call(b"x", timeout=60)
            time.sleep(0.01)
    except seqcast.SeqcastError:
        print("behind the loop")
"""


class Machine:
    def apply(self, operation):
        return operation

    def snapshot(self, write):
        write(b"")

    def restore(self, read):
        read()


def test_a_replica_that_leaves_by_a_signal_does_not_join_again():
    name = cluster()
    with seqcast.replicate(name, Machine(), name="a", interface=LOOPBACK, found=2, ready_s=0.0) as a:
        with started(name, leave_on_signals(NEVER_S), REPLICA.format(ready_s=LIMIT_S, found=2)) as process:
            assert process.stdout.readline() == "first\n" and a.wait_ready(LIMIT_S)
            together = a.group.view.view_id.counter
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=LIMIT_S) == ("behind the loop\n", "") and process.returncode == 0
            wait_until(lambda: len(a.group.view) == 1)
        assert a.group.view.view_id.counter == together + 1


def test_a_replica_that_waits_for_others_gives_up_at_a_signal():
    with started(cluster(), leave_on_signals(NEVER_S), REPLICA.format(ready_s=0.5, found=2)) as process:
        assert process.stdout.readline() == "first\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=LIMIT_S) == ("behind the loop\n", "")
        assert process.returncode == 0 and time.monotonic() - begin < 4.0


def test_a_signal_that_python_notices_late_ends_a_join():
    """The signal came just before the main thread began to wait, and interrupts no wait."""
    late = JOINING.replace("{settings}", "discovery_s=60").replace(
        'print("first", flush=True)', "time.sleep(0.3); _thread.interrupt_main(signal.SIGTERM)"
    )
    with started(cluster(), leave_on_signals(NEVER_S), f"import _thread\n{late}") as process:
        assert process.communicate(timeout=LIMIT_S / 2) == ("behind the loop\n", "")


@pytest.mark.long
def test_a_member_of_a_blocked_minority_ends_before_it_is_killed():
    """`docker stop` waits for 10 s, which is ``leave_timeout_s`` too."""
    name = cluster()
    with (
        started(name, leave_on_signals(NEVER_S), MINORITY) as process,
        started(name, "", MINORITY.replace('"b"', '"c"')) as second,
        started(name, "", MINORITY.replace('"b"', '"d"')) as third,
    ):
        while process.stdout.readline() != "view of 3\n":
            pass
        for other in (second, third):
            other.kill()
        while process.stdout.readline() != "blocked\n":
            pass
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0 and time.monotonic() - begin < 5.0


def test_a_join_that_is_interrupted_when_its_view_has_come_leaves_in_order(monkeypatch):
    name = cluster()
    with join(name, "a") as a:
        joined = Joining.wait

        def interrupted(joining):
            joined(joining)
            raise KeyboardInterrupt

        monkeypatch.setattr(Joining, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            join(name, "b")
        wait_until(lambda: len(a.view.members) == 1 and a.view.view_id.counter == 3)
        assert a.counters()["control_members_lost"] == 0


def test_a_later_signal_has_its_earlier_effect():
    name = cluster()
    with join(name, "a") as a, started(name, leave_on_signals(NEVER_S), SLEEP) as process:
        wait_until(lambda: len(a.view.members) == 2)
        assert process.stdout.readline() == "first\n"
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(a.view.members) == 1)  # so that the first signal was taken
        time.sleep(2 * TOGETHER_S)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGTERM


def test_several_signals_at_once_are_one_wish():
    """`timeout` signals its child, and then its process group, in which the child is."""
    name = cluster()
    # The time in which they count as one is long here: the process may not run between two of them.
    with join(name, "a") as a, started(name, leave_on_signals(1.0), SLEEP, NEVER_S) as process:
        wait_until(lambda: len(a.view.members) == 2)
        assert process.stdout.readline() == "first\n"
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
            time.sleep(0.005)  # so that they are not taken for one by the kernel
        assert process.communicate(timeout=LIMIT_S) == ("behind the loop\n", "")
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
