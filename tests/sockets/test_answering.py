"""Programs that answer in the thread or task that receives: messages that arrive while a send waits are kept in their
place."""

import asyncio
import contextlib
import ctypes
import threading
import time

import embedding
import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, wait_until

import seqcast
import seqcast.aio
from seqcast._native.driver import now_ns
from seqcast.api.keeping import cost

QUICK = {"preset": "fast"}  # a send that is stuck gives up after a second


def ask(group, n):
    for i in range(n):
        group.send(b"%07d" % i)


def answers(group, n):
    """The payloads of the messages of others."""
    came = []
    for message in group:
        if message.sender != group.member:
            came.append(message.payload)
            if len(came) == n:
                return came


def answer(group, size, kept=None):
    """Answers each message with one of this size; its deliveries, in order."""
    came = []
    for message in group:
        came.append((message.global_seqno, message.sender.name, message.payload[:7]))
        if message.sender != group.member:
            group.send(message.payload.ljust(size))
            if kept is not None:
                kept.append(group._kept)
    return came


def serving(group, size, kept=None):
    """Runs `answer` on a thread; the function to call for its result."""
    came = []
    thread = threading.Thread(target=lambda: came.extend(answer(group, size, kept)), daemon=True)
    thread.start()

    def end():
        group.leave()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        return came

    return end


@pytest.mark.parametrize("order", ["total", "sequencer", "fifo"])
@pytest.mark.parametrize(("n", "size"), [(50, 1_000_000), (2000, 10_000)])
def test_a_server_that_answers_in_the_thread_that_receives_never_hangs(order, n, size):
    with group_of(2, order=order) as (a, b):
        kept = []
        end = serving(b, size, kept)
        ask(a, n)
        assert [each[:7] for each in answers(a, n)] == [b"%07d" % i for i in range(n)]
        came = end()
        assert max(kept) > 0, "nothing was kept: the test does not show what it is for"
        if order != "fifo":
            assert [place for place, _, _ in came] == list(range(1, len(came) + 1))
        for name in "ab":
            assert [payload for _, sender, payload in came if sender == name] == [b"%07d" % i for i in range(n)]


def flood(group, errors):
    """Answers each message with four."""
    came = []
    try:
        for message in group:
            came.append(message.global_seqno)
            for _ in range(4):
                group.send(bytes(1000))
    except seqcast.SendWouldBlock as error:
        errors.append((group.member.name, error))
    return came


def test_two_members_that_answer_each_message_with_four_are_told_why_they_cannot_send():
    with group_of(2, kept_bytes=1 << 20, **QUICK) as groups:
        errors, came = [], {group: [] for group in groups}
        threads = [
            threading.Thread(target=lambda g=group: came[g].extend(flood(g, errors)), daemon=True) for group in groups
        ]
        for thread in threads:
            thread.start()
        groups[0].send(b"go")
        wait_until(lambda: errors)
        name, error = errors[0]
        assert isinstance(error, seqcast.SendTimeout) and "kept_bytes" in str(error) and "receive" in str(error).lower()
        assert set(error.waiting_for) <= {"a", "b"} and error.waiting_for
        stuck = next(group for group in groups if group.member.name == name)
        seen = came[stuck]
        wait_until(lambda: seen)
        while (message := stuck.recv(0.5)) is not None:  # kept messages come first, in order
            seen.append(message.global_seqno)
        assert seen == list(range(1, len(seen) + 1))
        wait_until(lambda: not threads[0].is_alive() or not threads[1].is_alive())


def test_a_member_whose_own_messages_fill_the_bound_of_kept_ones_is_told_at_once():
    with join(cluster(), "a", kept_bytes=1 << 20) as a:
        errors = []
        a.send(b"go")
        began = time.monotonic()
        flood(a, errors)
        assert time.monotonic() - began < 3
        ((_, error),) = errors
        assert error.waiting_for == ("a",) and "this member itself has not taken" in str(error)


def test_nothing_is_kept_while_another_thread_receives():
    with group_of(2) as (a, b):
        kept = []
        end = serving(a, 7, kept)
        b.send(b"one")
        wait_until(lambda: kept)  # that thread received last
        thread = threading.Thread(target=lambda: [b.recv(0.05) for _ in range(10)], daemon=True)
        thread.start()
        thread.join()
        with pytest.raises(seqcast.SendTimeout) as raised:
            while True:
                b.send(bytes(100_000), timeout=0.3)
        assert raised.value.waiting_for == ("b",) and not isinstance(raised.value, seqcast.SendWouldBlock)
        assert b._kept == 0 and not b._backlog
        stalls = b.stalls()
        assert [member.name for member, _ in stalls] == ["b"] and stalls[0][1] >= 0.2
        b.recv_batch(LIMIT_S)
        end()


def test_kept_messages_do_not_count_as_taken_by_the_application():
    with group_of(2) as (a, b):
        a.send(b"go")
        assert b.recv(LIMIT_S).payload == b"go"
        a.recv(LIMIT_S)

        def fill():
            with pytest.raises(seqcast.NotMember):
                while True:
                    b.send(bytes(100_000))

        thread = threading.Thread(target=fill, daemon=True)
        taker = b._taker
        assert taker == threading.get_ident()
        b._stand_ins = AlwaysStandsIn()
        thread.start()
        wait_until(lambda: a.wait_deliverable(0) and b.stalls())
        a.send(b"kept")
        wait_until(lambda: any(b"kept" in batch.tolist() for batch in list(b._backlog) if hasattr(batch, "tolist")))
        assert not a.wait_consumed(0.3), "only the driver has taken it"
        before = b._kept
        assert before >= sum(map(cost, list(b._backlog))) > 0
        while b.recv(LIMIT_S).payload != b"kept":
            a.recv_batch(0)
        b.leave(0.1)
        thread.join(LIMIT_S)


class AlwaysStandsIn(dict):
    """Every thread sends for the one that receives."""

    def get(self, _thread):
        return lambda: True


def test_views_keep_their_place_among_kept_items():
    name = cluster()
    with join(name, "a") as a, join(name, "b") as b:
        seen = {"a": [], "b": []}

        def watch(group, answers_each):
            for event in group.events():
                if isinstance(event, seqcast.Message):
                    seen[group.member.name].append((event.view_id.counter, event.global_seqno))
                    if answers_each and event.sender != group.member:
                        group.send(bytes(300_000))
                elif isinstance(event, seqcast.View):
                    seen[group.member.name].append((event.view_id.counter, len(event)))

        threads = [threading.Thread(target=watch, args=(group, group is b), daemon=True) for group in (a, b)]
        for thread in threads:
            thread.start()
        for i in range(300):
            a.send(b"%d" % i)
            if i == 150:
                c = join(name, "c", receive=False)
        wait_until(lambda: len(seen["a"]) >= 600)
        wait_until(lambda: len(seen["a"]) == len(seen["b"]) + 1)  # a was there before b
        c.leave()
        b.leave()
        a.leave()
        for thread in threads:
            thread.join(LIMIT_S)
        at_a = seen["a"][seen["a"].index(seen["b"][0]) :]
        assert at_a[: len(seen["b"])] == seen["b"]


# ---- asyncio


async def async_pair(**settings):
    name = cluster()
    a = await seqcast.aio.join(name, name="a", interface=LOOPBACK, **settings)
    return a, await seqcast.aio.join(name, name="b", interface=LOOPBACK, **settings)


async def itself(call):
    return await call


async def in_a_task(call):
    """As ``asyncio.gather``, and in Python 3.11 ``asyncio.wait_for``."""
    return await asyncio.create_task(itself(call))


@pytest.mark.parametrize(("receives", "sends"), [(itself, itself), (itself, in_a_task), (in_a_task, itself)])
@pytest.mark.parametrize(("n", "size"), [(50, 1_000_000), (2000, 10_000)])
def test_a_task_that_answers_its_messages_never_hangs(n, size, receives, sends):
    async def server(group):
        with contextlib.suppress(seqcast.NotMember):
            while message := await receives(group.recv()):
                if message.sender != group.member:
                    await sends(group.send(message.payload + bytes(size - 7)))

    async def client(group):
        for i in range(n):
            await group.send(b"%07d" % i)
        came = []
        async for message in group:
            if message.sender != group.member:
                came.append(message.payload[:7])
                if len(came) == n:
                    return came

    async def main():
        a, b = await async_pair()
        async with a, b:
            serving = asyncio.create_task(server(b))
            assert await asyncio.wait_for(client(a), LIMIT_S) == [b"%07d" % i for i in range(n)]
            await b.leave()
            await serving

    asyncio.run(main())


@pytest.mark.parametrize(("receives", "sends"), [(itself, itself), (itself, in_a_task), (in_a_task, itself)])
def test_two_tasks_that_answer_each_message_with_four_are_told_why_they_cannot_send(receives, sends):
    async def flood(group):
        while await receives(group.recv()):
            for _ in range(4):
                await sends(group.send(bytes(1000)))

    async def main():
        a, b = await async_pair(kept_bytes=1 << 20, **QUICK)
        async with a, b:
            tasks = [asyncio.create_task(flood(group)) for group in (a, b)]
            await a.send(b"go")
            (first, *_), _ = await asyncio.wait(tasks, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            assert isinstance(first.exception(), seqcast.SendWouldBlock) and first.exception().waiting_for
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_while_one_task_waits_to_send_the_work_of_the_one_that_receives_is_work_and_not_disturbed():
    """The work counted as a wait; and if messages had come, the thread of the send turned in a circle."""
    calls, taken, work = 0, asyncio.Event(), asyncio.Event()

    async def answer(group):
        await group.recv()
        taken.set()
        await work.wait()
        await group.send(b"answer")

    async def fill(group):
        while not work.is_set() or group.sync.stalls():
            await group.send(bytes(100_000))

    async def main():
        nonlocal calls
        a, b = await async_pair(deliver_own=False)
        async with a, b:
            await a.send(b"question")
            tasks = [asyncio.create_task(answer(b))]
            await taken.wait()
            tasks.append(asyncio.create_task(fill(b)))
            while not b._waiting_sends:
                await asyncio.sleep(0.01)
            for _ in range(10):
                await a.send(b"another")
            keep, engine = b.sync._keep, b.sync._runner.engine

            def count():
                nonlocal calls
                calls += 1
                return keep()

            b.sync._keep = count
            await asyncio.sleep(0.5)
            now = now_ns()
            assert 0 < calls < 200 and engine.rests(now) == now, "the task works until now"
            engine.works_on(now, now)
            work.set()
            while not b.sync._backlog:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert 0 < engine.rests(now_ns()) < now_ns() - 10**6, "it waits, and did so before"
            while not all(task.done() for task in tasks):
                await a.recv_batch(0.05)
            await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


# ---- programs in C -----------------------------------------------------------------------------------------------


def answer_by_table(handle, size, kept, group, each=1):
    """As `answer`, by the table of functions: (sender, payload) of its messages, and the last code."""
    came = []
    while True:
        code, item = handle.poll(timeout_s=LIMIT_S)
        if code != embedding.OK:
            return came, code
        kind, own = item.contents.kind, group.member.id
        messages = []
        while kind == embedding.MESSAGES and (message := embedding.TABLE.next(item)):
            held = message.contents
            messages.append((held.sender, held.global_seqno, ctypes.string_at(held.data, held.len)))
        assert handle.give_back(item) == embedding.OK
        if kind in (embedding.LEFT, embedding.EXCLUDED):
            return came, embedding.ENDED
        for sender, place, payload in messages:
            came.append((sender, place, payload[:7]))
            for _ in range(each if sender != own or each > 1 else 0):
                if (code := handle.send(payload[:7].ljust(size))) != embedding.OK:
                    return came, code
                kept.append(group._kept)


@pytest.mark.parametrize(("n", "size"), [(50, 1_000_000), (2000, 10_000)])
def test_a_program_in_c_that_answers_in_the_thread_that_polls_never_hangs(n, size):
    with group_of(2, order="total") as (a, b):
        handle, kept, done = embedding.Handle(b), [], []
        thread = threading.Thread(target=lambda: done.append(answer_by_table(handle, size, kept, b)), daemon=True)
        thread.start()
        ask(a, n)
        assert [each[:7] for each in answers(a, n)] == [b"%07d" % i for i in range(n)]
        b.leave()
        thread.join(LIMIT_S)
        assert not thread.is_alive() and max(kept) > 0
        came, code = done[0]
        assert code == embedding.ENDED and [place for _, place, _ in came] == list(range(1, len(came) + 1))
        for member in (a.member, b.member):
            assert [payload for sender, _, payload in came if sender == member.id] == [b"%07d" % i for i in range(n)]
        assert handle.close() == embedding.OK


def test_a_program_in_c_that_can_keep_no_more_is_told_so():
    name = cluster()
    with join(name, "a", kept_bytes=1 << 20, **QUICK) as a, join(name, "b", **QUICK) as b:
        handle, kept = embedding.Handle(a), []
        wait_until(lambda: len(a.view) == 2)
        ask(b, 4)
        _, code = answer_by_table(handle, 100_000, kept, a, each=4)  # each message four answers, its own included
        assert code == embedding.FAILED
        assert embedding.TABLE.error(handle.member).startswith(b"SendWouldBlock: this thread receives, and waits here")
        a.leave()
        assert handle.close() == embedding.OK
