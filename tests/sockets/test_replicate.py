"""Replicated state machines on real sockets: threads call and read while replicas stop, are killed, and come back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import replica_chaos
from counting import Counting
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, wait_until
from replicas import processes

import seqcast
import seqcast.blocks.aio
import seqcast.blocks.disk
import seqcast.blocks.outbox
from seqcast.config import keys
from seqcast.errors import NotReady

pytestmark = pytest.mark.filterwarnings("ignore:partition=:RuntimeWarning")


def replicate(name: str, who: str, **settings: Any) -> seqcast.Replica[Counting]:
    settings = {"found": 1, "ready_s": LIMIT_S, **PATIENT_JOINER, **settings}
    return seqcast.replicate(name, Counting(), name=who, interface=LOOPBACK, **settings)


def test_threads_of_all_replicas_call_and_each_operation_is_applied_once_everywhere() -> None:
    name = cluster()
    with contextlib.ExitStack() as stack:
        replicas = [stack.enter_context(replicate(name, who)) for who in "abc"]
        answers: list[int] = []

        def work(replica: seqcast.Replica[Counting]) -> None:
            for _ in range(100):
                answers.append(int(replica.call(b"1", timeout=LIMIT_S)))

        threads = [threading.Thread(target=work, args=(replica,)) for replica in replicas for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == list(range(1, 1201))
        assert [replica.read(lambda machine: machine.total) for replica in replicas] == [1200] * 3
        joined = stack.enter_context(replicate(name, "d"))
        assert joined.read(lambda machine: machine.total, guarantee="local") == 1200
        assert joined.ready and joined.why == "" and len(joined.group.view) == 4


def test_reads_and_calls_under_load_share_messages() -> None:
    with replicate(cluster(), "a") as kv:
        before = kv.group.counters()["messages_sent"]
        threads = [
            threading.Thread(target=lambda: [kv.read(lambda machine: machine.total) for _ in range(50)])
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kv.group.counters()["messages_sent"] - before < 16 * 50 / 2
        kv.read(lambda machine: machine.total, guarantee="read-your-writes")
        kv.read(lambda machine: machine.total, guarantee="local")


def test_a_read_of_a_machine_that_is_not_free_keeps_its_timeout_and_no_loop_stands_still() -> None:
    async def main() -> None:
        start = seqcast.blocks.aio.replicate(cluster(), Counting(), name="a", interface=LOOPBACK)
        async with start as replica:
            with replica.sync._applying:  # as while a snapshot is written to a slow disk
                with pytest.raises(NotReady, match="was not free in time"):
                    replica.sync.read(lambda machine: machine.total, guarantee="local", timeout=0.01)
                reading = asyncio.create_task(replica.read(lambda machine: machine.total, guarantee="local"))
                with pytest.raises(NotReady, match="was not free in time"):
                    await replica.read(lambda machine: machine.total, guarantee="local", timeout=0.01)
                assert not reading.done()
            assert await reading == 0

    asyncio.run(main())


@pytest.mark.long
def test_an_excluded_replica_joins_again_and_its_call_is_applied_once() -> None:
    name = cluster()
    with processes(name, "a", "b", "c") as (a, b, c):
        a.ask("call", "1")
        assert a.answer() == "1"
        c.tell(signal.SIGSTOP)
        c.ask("call", "10")  # read when the process goes on, before any news of its exclusion
        b.ask("call", "100")
        assert b.answer() == "101"  # decided without c
        c.tell(signal.SIGCONT)
        assert c.answer() == "111"
        for each in (a, b, c):
            each.ask("read", "linearizable")
            assert each.answer() == "111"


@pytest.mark.long
def test_a_sequencer_that_was_stopped_reads_nothing_stale_if_that_is_asked_for() -> None:
    name = cluster()
    with processes(name, "a", found=1) as (a,), processes(name, "b", "c", found=1) as (b, _):
        a.ask("call", "5")
        assert a.answer() == "5"
        a.tell(signal.SIGSTOP)
        for guarantee in ("local", "linearizable"):  # read when c goes on, before any news of its exclusion
            a.ask("read", guarantee)
        b.ask("call", "1")
        assert b.answer() == "6"
        a.tell(signal.SIGCONT)
        assert a.answer() in ("5", "6"), "a local read may miss what the others did, or come after that"
        assert a.answer() == "6"


def test_a_killed_coordinator_loses_nothing_that_was_answered() -> None:
    name = cluster()
    with processes(name, "a", "b", "c") as (a, b, c):
        for _ in range(20):
            a.ask("call", "1")
        answered = [a.answer() for _ in range(10)]
        a.tell(signal.SIGKILL)
        b.ask("call", "100")
        assert int(b.answer()) >= 100 + int(answered[-1])
        c.ask("read", "linearizable")
        assert int(c.answer()) >= 100 + int(answered[-1])
        with processes(name, "a") as (again,):
            again.ask("read", "linearizable")
            assert int(again.answer()) >= 100 + int(answered[-1])


@pytest.mark.long
@pytest.mark.parametrize(("seed", "disks"), [(2, False), pytest.param(1, True, marks=pytest.mark.long)])
def test_replicas_that_are_killed_and_stopped_lose_no_answered_call_and_read_nothing_stale(
    seed: int, disks: bool, tmp_path: Path
) -> None:
    """With disks, all of them are also killed at once."""
    assert replica_chaos.run(seed, files=(str(tmp_path),) if disks else ()) == []


def test_a_replica_that_hears_nobody_says_why_and_decides_nothing() -> None:
    began = time.monotonic()
    with replicate(cluster(), "a", found=2, ready_s=0) as kv:
        assert time.monotonic() - began < 5
        with pytest.raises(seqcast.Undecided, match="not sent: ") as caught:
            kv.call(b"1", timeout=0.3)
        assert caught.value.sent == 0
        for guarantee in ("local", "linearizable"):
            with pytest.raises(seqcast.NotReady):
                kv.read(lambda machine: machine.total, guarantee=guarantee, timeout=0.1)
        assert not kv.ready and kv.why and not kv.wait_ready(0.1)
        with pytest.raises(seqcast.NotReady):
            kv.group  # noqa: B018


def test_a_replica_that_joins_says_who_is_missing() -> None:
    with replicate(cluster(), "a", found=2, ready_s=0) as alone:
        wait_until(lambda: alone.why not in ("", "it joins"))
        assert "found=2" in alone.why and not alone.ready


def test_calls_that_gather_fit_into_the_largest_message() -> None:
    with replicate(cluster(), "a", message_bytes_max=1000) as kv:
        answers: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: answers.append(kv.call(b"%300d" % 1, timeout=LIMIT_S))) for _ in range(8)
        ]
        with kv._applying:  # so that they gather behind the first
            for thread in threads:
                thread.start()
            wait_until(lambda: len(kv._outbox.pending) == 8)
        for thread in threads:
            thread.join()
        assert sorted(map(int, answers)) == list(range(1, 9)) and kv.ready


def test_errors_of_a_machine_reach_the_caller() -> None:
    with replicate(cluster(), "a") as kv:
        with pytest.raises(seqcast.MachineError, match="ValueError"):
            kv.call(b"x")
        assert kv.call(b"2") == b"2" and kv.counters.failed == 1


def test_wrong_uses_are_refused() -> None:
    name = cluster()
    for settings in ({"partition": "merge"}, {"safe": False}, {"deliver_own": False}):
        with pytest.raises(seqcast.ConfigError, match="a replica needs"):
            replicate(name, "a", **settings)
    with pytest.raises(seqcast.UsageError, match="must have the functions"):
        seqcast.replicate(name, object())
    with pytest.raises(seqcast.ConfigError, match="interface"):
        seqcast.replicate(name, Counting(), interface="none-such")
    with replicate(name, "a") as kv:
        for wrong in ("1", None):
            with pytest.raises(seqcast.UsageError, match="is bytes"):
                kv.call(wrong)
        with pytest.raises(seqcast.UsageError, match="guarantee"):
            kv.read(lambda machine: machine.total, guarantee="fresh")
        with pytest.raises(seqcast.NameTaken), replicate(name, "a", name_taken_s=1.0):
            pass
    with pytest.raises(seqcast.NotReady, match="closed"):
        kv.call(b"1")


def test_calls_that_wait_are_told_when_the_replica_is_closed() -> None:
    kv = replicate(cluster(), "a", found=2, ready_s=0)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            kv.call(b"1", timeout=None)
        except seqcast.SeqcastError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: bool(kv._outbox.pending))
    kv.close()
    thread.join(LIMIT_S)
    assert [type(error) for error in errors] == [seqcast.Undecided]


def test_a_call_of_many_operations_is_one_message_and_says_which_were_applied() -> None:
    async def main() -> list[bytes]:
        async with seqcast.blocks.aio.replicate(name, Counting(), name="b", interface=LOOPBACK) as other:
            assert await other.call_many([]) == []
            with pytest.raises(seqcast.UsageError, match="a sequence of operations"):
                await other.call_many(b"12")
            return await other.call_many([b"1"] * 3, timeout=LIMIT_S)

    name = cluster()
    with replicate(name, "a") as a:
        assert a.call_many([b"1", b"20", b"300"]) == [b"1", b"21", b"321"] and a.call_many([]) == []
        with pytest.raises(
            seqcast.MachineError, match=r"2 of 4 operations .* at place 1 was not: ValueError"
        ) as refused:
            a.call_many([b"1", b"x", b"y", b"2"])
        assert refused.value.answers == (b"322", None, None, b"324")
        with pytest.raises(seqcast.UsageError, match="one message carries at most 131,072"):
            a.call_many([bytes(70_000)] * 2)
        with a._applying, pytest.raises(seqcast.Undecided, match="2 operations were sent") as late:
            a.call_many([b"1", b"1"], timeout=0.1)
        assert late.value.sent == 2
        assert asyncio.run(main()) == [b"327", b"328", b"329"]
        before = a.group.counters()["messages_sent"]
        sums: list[list[bytes]] = []
        threads = [threading.Thread(target=lambda: sums.append(a.call_many([b"1"] * 50))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert all([int(each) for each in some] == [int(some[0]) + at for at in range(50)] for some in sums)
        assert a.read(lambda machine: machine.total) == 729
        assert a.group.counters()["messages_sent"] - before <= 9
    closed = replicate(cluster(), "a", found=2, ready_s=0)
    with pytest.raises(seqcast.Undecided, match="not sent") as unsent:
        closed.call_many([b"1", b"2"], timeout=0.1)
    assert unsent.value.sent == 0 and not closed._outbox.pending
    closed.close()


def test_threads_that_give_up_as_their_answers_come_hold_up_no_other_one() -> None:
    """The threads whose calls one message answers wake each other in turn."""
    with replicate(cluster(), "a") as replica:
        undecided: list[int] = []

        def call(hasty: bool) -> None:
            for number in range(150):
                try:
                    replica.call(b"1", timeout=number % 30 / 20_000 if hasty else LIMIT_S)
                except seqcast.Undecided as error:
                    undecided.append(error.sent)

        threads = [threading.Thread(target=call, args=(number % 2 == 0,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in threads) and 0 < len(undecided) <= 450
        assert replica.read(lambda machine: machine.total) >= 900 - len(undecided)


@pytest.mark.parametrize("turn_is_made", [False, True])
@pytest.mark.parametrize("how", ["after its timeout", "interrupted", "interrupted twice in the main thread"])
def test_a_thread_that_leaves_before_it_is_woken_holds_up_none_behind_it(
    monkeypatch: pytest.MonkeyPatch, how: str, turn_is_made: bool
) -> None:
    """Its answer has come, and the threads whose answers came too are to wake each other."""

    class Signal(BaseException):
        pass

    waiter = seqcast.blocks.replica._Waiter
    wait, wake, answered, left = waiter.wait, waiter.wake, threading.Event(), threading.Event()

    def until_answered(call: Any, seconds: float) -> bool:
        if threading.current_thread() is not leaver:
            return wait(call, seconds)
        assert answered.wait(LIMIT_S)
        if how == "after its timeout":
            return False
        raise Signal

    def let_it_leave(call: Any = None) -> None:
        answered.set()
        assert threading.current_thread() is leaver or left.wait(LIMIT_S)
        if call is not None:
            wake(call)

    def read() -> None:
        kv.read(lambda machine: machine.total, guarantee="read-your-writes", timeout=None)

    def leave() -> None:
        with contextlib.suppress(Signal):
            read()
        left.set()

    def give_up(call: Any) -> None:
        if how == "interrupted twice in the main thread":
            raise Signal
        done_up(call)

    first, leaver, behind = (
        threading.Thread(target=target, daemon=True) for target in (lambda: kv.call(b"1"), leave, read)
    )
    with replicate(cluster(), "a") as kv, monkeypatch.context() as patch:
        done_up, turn = kv._give_up, kv._wake
        patch.setattr(kv, "_give_up", give_up)
        patch.setattr(waiter, "wait", until_answered)
        if turn_is_made:
            patch.setattr(waiter, "wake", let_it_leave)
        else:
            patch.setattr(kv, "_wake", lambda calls: (calls and let_it_leave(), turn(calls)))
        if how == "interrupted twice in the main thread":
            patch.setattr(threading, "main_thread", lambda: leaver)
        with kv._applying:
            for number, thread in enumerate((first, leaver, behind)):
                thread.start()
                wait_until(lambda n=number + 1: len(kv._outbox.pending) + len(kv._outbox._followers) == n)
        for thread in (first, leaver, behind):
            thread.join(LIMIT_S / 4)
            assert not thread.is_alive()


def test_a_call_that_a_signal_interrupts_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Signal(BaseException):
        pass

    with replicate(cluster(), "a") as kv:
        group, errors = kv.group, [Signal()]
        send = group.send

        def interrupted(*arguments: Any, **settings: Any) -> None:
            if errors:
                raise errors.pop()
            send(*arguments, **settings)

        monkeypatch.setattr(group, "send", interrupted)
        with pytest.raises(Signal):
            kv.call(b"1")
        assert kv.call(b"1") == b"2"
        monkeypatch.undo()


@pytest.mark.parametrize("step", ["_gathered", "compose"])
def test_a_call_that_a_signal_interrupts_before_its_message_is_sent_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Signal(BaseException):
        pass

    with replicate(cluster(), "a") as kv:
        done, signals = getattr(kv._outbox, step), [Signal()]

        def interrupted(**settings: Any) -> Any:
            made = done(**settings)
            if made and signals:
                raise signals.pop()
            return made

        monkeypatch.setattr(kv._outbox, step, interrupted)
        with pytest.raises(Signal):
            kv.call(b"1")
        answer = kv.call(b"1", timeout=LIMIT_S)
        assert answer in (b"1", b"2"), "the one that was interrupted may be applied, once"
        assert kv.call(b"1", timeout=LIMIT_S) == str(int(answer) + 1).encode()


def test_a_replica_that_cannot_send_joins_again_and_answers_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    name = cluster()
    with replicate(name, "a"), replicate(name, "b") as kv:
        group, errors = kv.group, [MemoryError("none left"), seqcast.SendTimeout("no credit")]

        def fails(*_: Any, **__: Any) -> None:
            if errors:
                raise errors.pop()

        monkeypatch.setattr(group, "send", fails)
        assert kv.call(b"1", timeout=LIMIT_S) == b"1"
        assert errors == [] and kv.group is not group


@pytest.mark.parametrize("disk", [False, True])
def test_asyncio_calls_and_reads(disk: bool, tmp_path: Path) -> None:
    async def main() -> None:
        stable = str(tmp_path / "a") if disk else ""
        start = seqcast.blocks.aio.replicate(cluster(), Counting(), name="a", interface=LOOPBACK, stable=stable)
        async with start as kv:
            answers = await asyncio.gather(*(kv.call(b"1") for _ in range(100)))
            assert sorted(map(int, answers)) == list(range(1, 101))
            for guarantee in ("local", "read-your-writes", "linearizable"):
                assert await kv.read(lambda machine: machine.total, guarantee=guarantee) == 100
            with pytest.raises(seqcast.MachineError):
                await kv.call(b"x")
            assert kv.ready and kv.why == "" and kv.machine.total == 100 and kv.counters.applied == 100
            assert await kv.wait_ready(1.0) and len(kv.group.view) == 1
        with pytest.raises(seqcast.NotReady):
            await kv.call(b"1")
        with pytest.raises(seqcast.NotReady):
            await kv.read(lambda machine: machine.total, guarantee="local")

    asyncio.run(main())


def test_infos_of_replicas_are_in_the_view_and_come_back_with_a_replica() -> None:
    name = cluster()
    with replicate(name, "a", info={"http": 1}) as a, replicate(name, "b", info={"http": 2}, found=0) as b:
        wait_until(lambda: {each.name: each.info for each in a.group.view} == {"a": {"http": 1}, "b": {"http": 2}})
        b.set_info({"http": 3})
        wait_until(lambda: {"http": 3} in [each.info for each in a.group.view])
        before = b.group.member
        b.group.leave()  # not by the replica, which joins again
        wait_until(lambda: {"http": 3} in [each.info for each in a.group.view if each.id != before.id])
        with pytest.raises(seqcast.UsageError):
            b.set_info({"": "x" * 300})
    with pytest.raises(seqcast.UsageError):
        replicate(name, "a", info={"": "x" * 300})


@pytest.mark.long
def test_a_group_that_was_killed_as_a_whole_comes_back_with_its_state(tmp_path: Path) -> None:
    """Three processes join twice, with their files and a key: some 3 s."""
    pytest.importorskip("nacl")
    name, key = cluster(), tmp_path / "key"
    keys.make(str(key))
    (disks := tmp_path / "disks").mkdir()
    answers = []
    for _ in range(2):
        with processes(name, "a", "b", "c", files=(str(disks), str(key))) as members:
            for member in members:
                member.ask("call", "1")
            answers += sorted(int(member.answer()) for member in members)
            members[0].ask("read", "linearizable")
            answers.append(int(members[0].answer()))
    assert answers == [1, 2, 3, 3, 4, 5, 6, 6]


def test_a_replica_that_only_reads_sees_the_calls_of_others_once_they_are_on_disks(tmp_path: Path) -> None:
    name, over = cluster(), threading.Event()
    with replicate(name, "a", stable=str(tmp_path / "a")) as a, replicate(name, "b", stable=str(tmp_path / "b")) as b:

        def work() -> None:
            while not over.is_set():
                a.call(b"1", timeout=LIMIT_S)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            found = [b.read(lambda machine: machine.total, timeout=LIMIT_S / 2) for _ in range(30)]
        finally:
            over.set()
            thread.join()
    assert found == sorted(found)


def test_calls_that_wait_for_room_on_the_disks_of_others_are_sent_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seqcast.blocks.outbox, "SETTLING_MAX", 1)
    name = cluster()
    with replicate(name, "a", stable=str(tmp_path / "a")) as a, replicate(name, "b", stable=str(tmp_path / "b")):
        a.call(b"1")
        free, sync = threading.Event(), os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda number: free.wait() and sync(number))
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(a.call(b"1", timeout=10))) for _ in "12"]
        threads[0].start()
        wait_until(lambda: a.counters.applied == 2)
        threads[1].start()
        wait_until(lambda: a.counters.held_back)
        free.set()
        for thread in threads:
            thread.join()
        assert answers == [b"2", b"3"]


def test_a_replica_whose_disk_fails_ends_with_an_error_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    with replicate(cluster(), "a", stable=str(tmp_path / "a")) as kv:
        kv.on_failed(told.put)
        assert kv.call(b"1") == b"1" and kv.failed is None

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(seqcast.blocks.disk.os, "fdatasync", full, raising=False)
        with pytest.raises(seqcast.Undecided):
            kv.call(b"10", timeout=LIMIT_S)
        wait_until(lambda: "SC3111" in kv.why)
        with pytest.raises(seqcast.StableFailed, match="No space left"):
            kv.call(b"100")
        for guarantee in ("local", "read-your-writes", "linearizable"):
            with pytest.raises(seqcast.StableFailed, match="No space left"):
                kv.read(lambda machine: machine.total, guarantee=guarantee)
        assert "(SC3111)" in caplog.text
        assert isinstance(kv.failed, seqcast.StableFailed) and told.get(timeout=LIMIT_S) is kv.failed
        kv.on_failed(told.put)  # is too late, and so is told at once
        assert told.get(timeout=LIMIT_S) is kv.failed
    with replicate(cluster(), "a") as closed:
        closed.on_failed(told.put)
    assert closed.failed is None and told.empty()
    with pytest.raises(seqcast.NotReady, match="closed"):
        closed.read(lambda machine: machine.total, guarantee="local")


def test_the_fence_of_a_lock_and_the_values_of_a_dictionary_outlast_all_processes(tmp_path: Path) -> None:
    fences, name = [], cluster()
    for number in range(2):
        lock, settings = seqcast.blocks.Lock(), seqcast.blocks.ReplicatedDict()
        parts, stable = seqcast.blocks.Parts(lock, settings), str(tmp_path / "a")
        with seqcast.replicate(name, parts, name="a", interface=LOOPBACK, stable=stable, ready_s=LIMIT_S) as replica:
            assert settings.get("round", 0) == number
            settings["round"] = number + 1
            fences += [lock.acquire(LIMIT_S), replica.group.fence]
    assert fences[2] > fences[0] and fences[3] > fences[1]
