"""Dictionary, lock and leader over replicas on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, script, until_all_wait, wait_until

import seqcast
import seqcast.blocks.aio as aio
from seqcast.blocks import ABSENT, Change, Lock, Parts, ReplicatedDict, on_leader

pytestmark = pytest.mark.filterwarnings("ignore:partition=:RuntimeWarning")
SETTINGS: dict[str, Any] = {"interface": LOOPBACK, "ready_s": LIMIT_S, **PATIENT_JOINER}
HOLDER = """
import sys, seqcast
from seqcast.blocks import Lock, Parts, ReplicatedDict, on_leader
cluster, name, interface = sys.argv[1:]
lock = Lock()
with seqcast.replicate(cluster, Parts(ReplicatedDict(), lock), name=name, interface=interface, ready_s=60) as replica:
    on_leader(replica, lambda fence: print("leads", fence, flush=True), lambda: print("leads no more", flush=True))
    print("fence", lock.acquire(60), flush=True)
    for line in sys.stdin:
        print("ready", replica.wait_ready(60), flush=True)
"""


@contextlib.contextmanager
def late_for_a_held_lock() -> Iterator[None]:
    """On a busy machine the time may pass before the group has answered that the request is in the queue."""
    with pytest.raises((seqcast.NotReady, seqcast.Undecided)) as raised:
        yield
    assert raised.type is seqcast.Undecided or "another member holds the lock" in str(raised.value)


def test_members_share_a_dictionary_and_hear_of_changes_and_of_ends() -> None:
    name, told = cluster(), list[Change]()
    with ReplicatedDict(name, name="a", **SETTINGS) as one, ReplicatedDict(name, name="b", **SETTINGS) as two:
        two.on_change(told.append)
        one["a"] = {"x": [1]}
        assert two["a"] == {"x": [1]} and two.compare_and_set("a", {"x": [1]}, 2) and one["a"] == 2
        one.set("short", 1, ttl_s=0.2)
        wait_until(lambda: "short" not in two and "short" not in one)  # nobody but the coordinator tells the time
        assert told == [
            ("a", {"x": [1]}, ABSENT), ("a", 2, {"x": [1]}), ("short", 1, ABSENT), ("short", ABSENT, 1)
        ]  # fmt: skip
        with ReplicatedDict(name, name="c", **SETTINGS) as three:
            assert three.get("a", guarantee="local") == 2 and three.replica.ready


def test_a_watcher_that_calls_or_reads_its_own_dictionary_is_told_at_once() -> None:
    errors = list[str]()

    def watch(change: Change) -> None:
        for forbidden in (lambda: shared.get(change.key, guarantee="local"), lambda: shared.set("b", 1, timeout=None)):
            try:
                forbidden()
            except seqcast.UsageError as error:
                errors.append(str(error))

    with ReplicatedDict(cluster(), name="a", **SETTINGS) as shared:
        shared.on_change(watch)
        shared["a"] = 1
        wait_until(lambda: len(errors) == 2)
        assert all("on another thread" in error for error in errors) and shared.copy() == {"a": 1}


def test_threads_of_several_members_hold_a_lock_one_at_a_time_with_fences_that_grow() -> None:
    name = cluster()
    inside, fences = threading.Lock(), list[int]()
    with contextlib.ExitStack() as stack:
        locks = [stack.enter_context(Lock(name, name=who, **SETTINGS)) for who in "ab"]

        def work(lock: Lock) -> None:
            for _ in range(10):
                with lock.hold(LIMIT_S) as fence:
                    assert inside.acquire(blocking=False), "two hold it"
                    assert lock.holds(fence)
                    fences.append(fence)
                    inside.release()

        threads = [threading.Thread(target=work, args=(lock,)) for lock in locks for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert fences == list(range(1, 61)) and locks[0].fence() == 60
        fence = locks[0].acquire(1.0)
        with pytest.raises(seqcast.NotReady, match="another member holds the lock"):
            locks[1].acquire(0.1)
        assert locks[0].release(fence) and not locks[0].release(fence)
        assert locks[1].acquire(LIMIT_S) > fence


def test_threads_that_wait_for_a_lock_or_have_one_are_told_when_the_block_is_closed() -> None:
    name = cluster()
    with Lock(name, name="a", **SETTINGS) as one, Lock(name, name="b", **SETTINGS) as two:
        fence, errors = one.acquire(LIMIT_S), list[seqcast.SeqcastError]()

        def wait() -> None:
            try:
                two.acquire()
            except seqcast.SeqcastError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        wait_until(lambda: len(one._queue) == len(two._queue) == 2)
        two.close()
        waiting.join(LIMIT_S)
        assert [type(error) for error in errors] == [seqcast.NotReady]
        assert one.holds(fence)
        one.close()
        assert not one.holds(fence) and not one.release(fence)


@pytest.mark.long
def test_a_stopped_leader_loses_lead_and_lock_to_a_higher_fence_and_learns_of_it() -> None:
    name = cluster()
    holder = script(HOLDER, name, "a", LOOPBACK)
    assert holder.stdout is not None and holder.stdin is not None
    said = sorted(holder.stdout.readline().split() for _ in range(2))
    assert [words[0] for words in said] == ["fence", "leads"]
    terms: list[int] = []
    lock, table = Lock(), ReplicatedDict()
    with seqcast.replicate(name, Parts(table, lock), name="b", **SETTINGS) as replica:
        third = script(HOLDER, name, "c", LOOPBACK)
        wait_until(lambda: len(replica.group.view) == 3)
        leader = on_leader(replica, terms.append)
        assert leader.fence == 0 and not lock.holds(1)
        wait_until(lambda: lock.replica.read(lambda _: len(lock._queue), guarantee="local") == 2)
        os.kill(holder.pid, signal.SIGSTOP)
        began = time.monotonic()
        wait_until(lambda: bool(terms))
        assert leader.fence == terms[0] > int(said[1][1]) and time.monotonic() - began < LIMIT_S
        assert third.stdout is not None and third.stdout.readline().split() == ["fence", "2"]
        third.kill()
        third.communicate()
        # The lock of the second, which was killed, is free. (Two of three are gone, so its place decides.)
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.stdout.readline() == "leads no more\n"
        assert lock.acquire(LIMIT_S) > 2
        leader.close()
        holder.kill()
        holder.communicate()
        assert len(terms) >= 1


def test_asyncio_dictionary_lock_and_leader_of_one_group() -> None:
    async def main() -> None:
        settings, nightly, told, led = aio.ReplicatedDict(), aio.Lock(), list[Change](), list[object]()

        async def start(fence: int) -> None:
            await asyncio.sleep(0)
            led.append(fence)

        start_all = aio.replicate(cluster(), Parts(settings.sync, nightly.sync), name="a", interface=LOOPBACK)
        async with start_all as replica, aio.on_leader(replica, start, lambda: led.append("no more")) as leader:
            settings.on_change(told.append)
            assert await settings.set("color", "red") is ABSENT
            assert await settings.compare_and_set("color", "red", "blue")
            assert not await settings.compare_and_set("color", "red", "green")
            assert await settings.get("color") == "blue" and await settings.pop("color") == "blue"
            assert await settings.copy() == {} and [change.value for change in told] == ["red", "blue", ABSENT]
            async with nightly.hold(LIMIT_S) as fence:
                assert nightly.holds(fence) and await nightly.fence() == fence == 1
                waiting = asyncio.create_task(nightly.acquire())
                with late_for_a_held_lock():
                    await nightly.acquire(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            # Neither the cancelled task nor the late one has the lock, or a place in its queue.
            async with nightly.hold(LIMIT_S) as fence:
                assert nightly.holds(fence)
            assert led == [leader.fence] == [replica.group.fence]
        assert led[1:] == ["no more"]

    asyncio.run(main())


def test_the_loop_does_not_wait_for_a_busy_machine_to_have_a_leader() -> None:
    async def main() -> None:
        async with aio.replicate(cluster(), Lock(), name="a", interface=LOOPBACK) as replica:
            fences = asyncio.Queue[int]()
            busy = replica.sync._applying  # as during a slow operation
            busy.acquire()
            threading.Timer(0.5, busy.release).start()
            leader = aio.on_leader(replica, fences.put_nowait)
            assert busy.locked() and leader.fence == 0
            assert await asyncio.wait_for(fences.get(), LIMIT_S) == leader.fence == replica.group.fence
            await leader.close()

    asyncio.run(main())


def test_tasks_that_wait_for_a_lock_need_no_threads_and_have_it_in_turn() -> None:
    async def main() -> None:
        name, fences = cluster(), list[int]()
        async with aio.Lock(name, name="a", **SETTINGS) as lock, aio.Lock(name, name="b", **SETTINGS) as other:
            before, first = threading.active_count(), await lock.acquire(LIMIT_S)
            with late_for_a_held_lock():
                await other.acquire(0.1)

            async def work(number: int) -> None:
                async with (lock, other)[number % 2].hold(LIMIT_S) as fence:
                    fences.append(fence)

            tasks = [asyncio.create_task(work(number)) for number in range(100)]
            await until_all_wait(tasks, lambda: len(lock.sync._tasks) + len(other.sync._tasks))
            assert threading.active_count() < before + 50
            tasks.pop(40).cancel()
            assert await lock.release(first)
            await asyncio.gather(*tasks)
            assert len(fences) == 99 and fences == sorted(set(fences)) and fences[0] > first
            assert not lock.sync._tasks and not other.sync._tasks

    asyncio.run(main())


def test_a_task_that_is_cancelled_as_it_gets_the_lock_gives_it_back() -> None:
    async def main() -> None:
        async with aio.Lock(cluster(), name="a", **SETTINGS) as lock:
            for steps in range(12):
                task = asyncio.create_task(lock.acquire())
                for _ in range(steps):
                    await asyncio.sleep(0.0001)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await lock.release(await task)
            async with lock.hold(LIMIT_S):
                pass

    asyncio.run(main())
