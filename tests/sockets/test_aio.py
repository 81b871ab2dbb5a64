"""The asyncio form: the same group, awaited."""

import asyncio
import contextlib
import errno
import gc
import inspect
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from members import LIMIT_S, LOOPBACK, PATIENT, PATIENT_JOINER, cluster, output, script, sequencer, wait_until

import seqcast
import seqcast.aio


def run(main):
    asyncio.run(asyncio.wait_for(main, 2 * LIMIT_S))


async def together(*groups):
    while any(len(group.view.members) < len(groups) for group in groups):
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def two(**settings):
    name = cluster()
    settings = {"suspect_s": 20.0, **settings}  # no machine is so busy that one of them seems to have fallen
    async with (
        seqcast.aio.join(name, name="a", interface=LOOPBACK, **settings) as a,
        seqcast.aio.join(name, name="b", interface=LOOPBACK, **PATIENT_JOINER, **settings) as b,
    ):
        await together(a, b)
        yield a, b


def test_messages_go_both_ways_in_order():
    async def main():
        async with two(order="total") as (a, b):
            for i in range(50):
                await a.send(b"a%d" % i)
                await b.send(b"b%d" % i)
            await b.send_many([b"many", b"more"])
            got = [[(await group.recv(LIMIT_S)).payload for _ in range(102)] for group in (a, b)]
            assert got[0] == got[1]
            assert [p for p in got[0] if p[:1] == b"a"] == [b"a%d" % i for i in range(50)]
            assert await a.recv(0.02) is None

    run(main())


def test_a_message_to_itself_wakes_a_member_that_waits():
    """A lone member transmits nothing, and its heartbeats are rare: nothing else comes."""

    async def main():
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK, heartbeat_s=60) as a:
            waits = asyncio.create_task(a.recv(2 * LIMIT_S))
            await asyncio.sleep(0.1)
            await a.send(b"to myself", to=a.view.members[0])
            done, _ = await asyncio.wait([waits], timeout=LIMIT_S / 3)  # a wait that ends takes it, woken or not
            assert done and waits.result().payload == b"to myself"

    run(main())


def test_async_for_ends_when_the_group_is_left():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            seen = []

            async def read():
                async for message in b:
                    seen.append(message.payload)

            reader = asyncio.create_task(read())
            for i in range(20):
                await a.send(b"%d" % i)
            await a.leave()
            while len(seen) < 20:
                await asyncio.sleep(0.01)
            await b.leave()
            await reader
            assert seen == [b"%d" % i for i in range(20)]
            with pytest.raises(seqcast.NotMember):
                await b.send(b"x")

    run(main())


def test_a_group_that_another_thread_left_can_be_left():
    """As ``leave_on_signals`` does: by then the watched descriptor is closed."""

    async def main():
        async with seqcast.aio.join(cluster(), interface=LOOPBACK) as group:
            await asyncio.to_thread(group.sync.leave)
            assert [message async for message in group] == []

    run(main())


def test_a_reader_ends_when_another_thread_leaves_before_the_loop_looks():
    """A poll reports nothing of a descriptor that is closed: the watched descriptor must outlive the sockets."""

    async def main():
        async with seqcast.aio.join(cluster(), interface=LOOPBACK) as group:

            async def read():
                return [message async for message in group]

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.05)  # now the send waits
            leaving = threading.Thread(target=group.sync.leave)
            leaving.start()
            leaving.join()  # the loop does not run meanwhile
            assert await asyncio.wait_for(reading, 30) == []

    run(main())


@pytest.mark.parametrize("call", ["anext", "recv"])
def test_other_tasks_run_while_messages_come_faster_than_they_are_taken(call):
    """Waiting messages are taken without a turn of the event loop, but they may never end."""

    async def main():
        async with two(order="fifo") as (a, b):
            await b.send_many([bytes(10)] * 1500)
            assert await a.wait_deliverable(LIMIT_S)
            turns = 0

            async def turn():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            turning = asyncio.create_task(turn())
            messages = aiter(a)
            for _ in range(1500):
                assert await (anext(messages) if call == "anext" else a.recv(LIMIT_S))
                time.sleep(0.0002)
            turning.cancel()
            assert turns >= 10  # 300 ms, and a turn every 5 ms

    run(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs epoll")
def test_in_a_conversation_the_loop_receives_and_while_it_computes_the_io_thread_does():
    questions, waited = 300, 100

    async def main():
        name = cluster()
        settings = {"interface": LOOPBACK, "order": "fifo", "suspect_s": 20.0}
        async with seqcast.aio.join(name, name="b", deliver_own=False, **settings) as b:
            received = threading.Event()

            def ask():
                with seqcast.join(name, name="a", min_members=2, deliver_own=False, **settings) as a:
                    for _ in range(questions):
                        a.send(b"question")
                        assert a.recv(LIMIT_S).payload == b"answer"
                    before = b.counters()["packets_received"]
                    for _ in range(waited):
                        a.send(bytes(100))
                        time.sleep(0.0005)
                    until = time.monotonic() + LIMIT_S
                    while b.counters()["packets_received"] == before and time.monotonic() < until:
                        time.sleep(0.001)
                    received.set()
                    assert a.wait_consumed(LIMIT_S)

            asking = asyncio.create_task(asyncio.to_thread(ask))
            messages = aiter(b)
            before = b.counters()["io_turns"]
            for _ in range(questions):
                await anext(messages)
                await b.send(b"answer")
            assert b.counters()["io_turns"] - before > questions / 4, "the I/O thread received most of it"
            assert received.wait(LIMIT_S / 2), "nothing was received while the event loop computed"
            for _ in range(waited):
                assert (await anext(messages)).payload == bytes(100)
            await asking

    run(main())


@pytest.mark.parametrize("first", ["anext", "recv", "timed"])
def test_calls_that_wait_at_the_same_time_get_one_message_each(first):
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            calls = {"anext": lambda: anext(aiter(b)), "recv": b.recv, "timed": lambda: b.recv(LIMIT_S)}
            one = asyncio.ensure_future(calls[first]())
            await asyncio.sleep(0)
            other, gone = asyncio.create_task(b.recv()), asyncio.create_task(b.recv())
            await asyncio.sleep(0)
            gone.cancel()
            await a.send(b"1")
            done, _ = await asyncio.wait([one, other], timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            assert [call.result().payload for call in done] == [b"1"]
            await a.send(b"2")
            assert {(await one).payload, (await other).payload} == {b"1", b"2"} and gone.cancelled()
            assert b._waiters == []

    run(main())


def test_a_call_that_waits_gets_the_rest_of_a_batch_that_another_call_began():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            waiting = asyncio.create_task(b.recv())
            while not b._waiters:
                await asyncio.sleep(0.001)
            a.sync.send_many([b"1", b"2", b"3"])
            assert b.sync.wait_deliverable(LIMIT_S)
            b._turned_ns = time.monotonic_ns()  # the next call takes before the loop looks
            assert (await b.recv()).payload == b"1" and not waiting.done()
            assert (await asyncio.wait_for(waiting, LIMIT_S)).payload == b"2"
            assert (await b.recv(LIMIT_S)).payload == b"3"

    run(main())


def test_a_task_that_waits_for_the_next_message_of_an_iteration_ends_with_the_membership():
    async def main():
        async with seqcast.aio.join(cluster(), interface=LOOPBACK) as group:
            waiting = asyncio.ensure_future(anext(aiter(group)))
            while not group._waiters:
                await asyncio.sleep(0.001)
            await group.leave()
            with pytest.raises(StopAsyncIteration):
                await waiting

    run(main())


def test_events_hold_views_too():
    async def main():
        async with two() as (a, b):
            await b.send(b"x")
            events = []
            async for event in a.events():
                events.append(event)
                if isinstance(event, seqcast.Message):
                    break
            assert [type(event) for event in events] == [seqcast.View, seqcast.View, seqcast.Message]

    run(main())


def test_a_large_message_waits_for_credit_and_the_loop_goes_on():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            turns = 0

            async def tick():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.001)

            ticking = asyncio.create_task(tick())
            sending = asyncio.create_task(a.send(bytes(20_000_000)))
            await asyncio.sleep(0)
            begun = turns
            while turns < begun + 20:
                await asyncio.sleep(0.001)
            assert not sending.done()  # nobody takes the message
            behind = asyncio.create_task(a.send(b"behind it"))
            assert len((await b.recv(LIMIT_S)).payload) == 20_000_000
            assert (await b.recv(LIMIT_S)).payload == b"behind it"
            await sending
            await behind
            ticking.cancel()

    run(main())


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_the_loop_goes_on_while_a_large_message_waits_to_be_ordered():
    """The whole message has credit, but is not kept until ordered: its send waits."""
    name = cluster()

    async def main():
        process = sequencer(name, "print(len(group.recv().payload), group.leave())")
        async with seqcast.aio.join(
            name, name="b", interface=LOOPBACK, order="sequencer", suspect_s=600.0, discovery_s=LIMIT_S
        ) as group:
            size = group.counters()["window_bytes"] * 3 // 4
            process.send_signal(signal.SIGSTOP)
            later = threading.Timer(LIMIT_S / 2, process.send_signal, [signal.SIGCONT])  # if the loop does not go on
            later.start()
            large = asyncio.create_task(group.send(bytes(size)))
            await asyncio.sleep(0.1)
            assert not large.done() and later.is_alive()
            later.cancel()
            process.send_signal(signal.SIGCONT)
            await large
            assert output(process).split() == [str(size), "True"]

    run(main())


def test_a_send_without_credit_times_out():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, _):
            with pytest.raises(seqcast.SendTimeout):
                for _ in range(1000):
                    await a.send(bytes(100_000), timeout=0.1)

    run(main())


def test_a_loop_without_readers_waits_in_a_thread():
    class NoReaders(asyncio.SelectorEventLoop):
        def add_reader(self, fd, callback, *args):
            raise NotImplementedError

    async def main():
        name = cluster()
        group = await asyncio.to_thread(seqcast.join, name, name="a", interface=LOOPBACK)
        asyncio.get_running_loop().add_reader = NoReaders.add_reader.__get__(asyncio.get_running_loop())
        wrapped = seqcast.aio.Group(group)
        receiving = asyncio.create_task(wrapped.recv(LIMIT_S))
        await asyncio.sleep(0.05)
        await wrapped.send(b"x")
        assert (await receiving).payload == b"x"
        await wrapped.leave()

    run(main())


def test_a_wait_that_is_cancelled_loses_no_message():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            for i in range(30):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await b.recv()
                await a.send(b"%d" % i)
                assert (await b.recv(LIMIT_S)).payload == b"%d" % i

    run(main())


def test_an_iteration_that_is_cancelled_before_it_begins_takes_no_message():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            for i in range(20):
                await a.send(b"%d" % i)
            await asyncio.to_thread(b.sync.wait_deliverable, LIMIT_S)
            messages = aiter(b)
            got = [(await anext(messages)).payload]
            for _ in range(4):
                with contextlib.suppress(TimeoutError):
                    got.append((await asyncio.wait_for(anext(messages), 0)).payload)
                task = asyncio.ensure_future(anext(messages))
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    got.append((await task).payload)
            while len(got) < 20:
                got.append((await anext(messages)).payload)
            assert got == [b"%d" % i for i in range(20)]

    run(main())


def test_an_iteration_lets_other_tasks_run_though_messages_wait():
    """However long the application takes for each: the loop gets a turn between a few of them."""

    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            for i in range(64):
                await a.send(b"%d" % i)
            await asyncio.to_thread(b.sync.wait_deliverable, LIMIT_S)
            turns = 0

            async def other():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            taken = 0
            async for _ in b:
                time.sleep(0.001)  # work
                taken += 1
                if taken == 64:
                    break
            task.cancel()
            assert turns >= 3

    run(main())


def test_a_batch_is_sent_and_the_path_is_told():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            await a.send_batch(b"onetwo", np.array([0, 3, 6]))
            assert [(await b.recv(LIMIT_S)).payload for _ in range(2)] == [b"one", b"two"]
            assert a.path == a.sync.path

    run(main())


def test_a_timeout_counts_all_messages_of_the_call_and_bounds_the_wait_for_a_turn():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            messages = [b"%06d" % i + bytes(10_000) for i in range(3000)]
            with pytest.raises(seqcast.SendTimeout) as raised:
                await a.send_many(messages, timeout=0.3)
            sent = raised.value.sent
            assert f"({sent} messages" in str(raised.value)
            waiting = asyncio.create_task(a.send(bytes(30_000_000)))  # nobody takes messages
            await asyncio.sleep(0.05)
            began = time.monotonic()
            with pytest.raises(seqcast.SendTimeout) as raised:
                await a.send(b"behind", timeout=0.1)
            assert raised.value.sent == 0 and time.monotonic() - began < LIMIT_S
            got = [int((await b.recv(LIMIT_S)).payload[:6]) for _ in range(sent)]
            assert got == list(range(sent))
            assert len((await b.recv(LIMIT_S)).payload) == 30_000_000
            await waiting
            with pytest.raises(seqcast.UsageError, match="timeout='1'"):
                await a.send(b"x", timeout="1")
            with pytest.raises(seqcast.UsageError, match="timeout='1'"):
                await a.recv("1")

    run(main())


def test_a_join_that_lacks_a_descriptor_for_the_event_loop_leaves_the_group(monkeypatch):
    def fail(_group, sync):
        raise OSError(errno.EMFILE, "eventfd")

    async def main():
        async with seqcast.aio.join(name, name="a", interface=LOOPBACK, suspect_s=20.0) as a:
            with monkeypatch.context() as patched:
                patched.setattr(seqcast.aio.Group, "__init__", fail)
                with pytest.raises(OSError, match="eventfd"):
                    await seqcast.aio.join(name, name="b", interface=LOOPBACK, suspect_s=20.0, **PATIENT_JOINER)
            while len(a.view.members) > 1 or a.view.view_id.counter < 3:
                await asyncio.sleep(0.01)

    name = cluster()
    run(main())


def test_a_group_with_callbacks_that_was_left_is_freed_at_once():
    """Not only when the garbage collector runs: the memory of a group is several megabytes."""

    async def main():
        async with seqcast.aio.join(
            cluster(), name="a", interface=LOOPBACK, on_block=lambda group: None, on_unblock=lambda group: None
        ) as group:
            await group.send(b"x")
            return weakref.ref(group.sync)

    gc.disable()
    try:
        left = asyncio.run(main())
        wait_until(lambda: left() is None)  # the thread of the callbacks ends meanwhile
    finally:
        gc.enable()


def test_a_join_that_is_cancelled_leaves_the_group():
    async def main():
        name = cluster()
        async with seqcast.aio.join(name, name="a", interface=LOOPBACK) as a:
            for delay in (0.0, 0.005, 0.02):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        joined = await seqcast.aio.join(name, name=f"b{delay}", interface=LOOPBACK)
                        await joined.leave()  # the join was quicker
            while any(thread.name in ("seqcast-aio", "seqcast-leave") for thread in threading.enumerate()):
                await asyncio.sleep(0.01)  # they join, and leave
            assert [group.member.name for group in seqcast.api.group._open.values() if group.cluster == name] == ["a"]
            while [member.name for member in a.view.members] != ["a"]:  # they have the view without them earlier
                await asyncio.sleep(0.01)
            assert await a.leave() is True

    run(main())


def test_the_module_exists_after_import_seqcast():
    assert output(script("import sys, seqcast; print('asyncio' in sys.modules, seqcast.aio.join.__name__)")) == (
        "False join\n"
    )


def test_the_asyncio_group_has_the_members_of_the_group_class():
    special = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}
    public = {name for name in dir(seqcast.Group) if not name.startswith("_")} | special.keys()
    for cls in seqcast.Group.__mro__:  # a group is put together from several classes
        public |= {name for name in vars(cls).get("__annotations__", {}) if not name.startswith("_")}
    assert public >= {"cluster", "view", "send", "recv", "next_event", "suspended", "wait_consumed", "leave"}
    for name in sorted(public):
        awaited = special.get(name, name)
        assert hasattr(seqcast.aio.Group, awaited), f"aio.Group has no {awaited}"
        ours, theirs = getattr(seqcast.aio.Group, awaited), getattr(seqcast.Group, name, None)
        assert ours.__doc__ or name in special, f"{awaited} is not explained"
        if name not in special and callable(theirs):
            took, takes = inspect.signature(theirs).parameters.values(), inspect.signature(ours).parameters.values()
            if not inspect.isfunction(theirs):  # compiled: without annotations
                takes = [parameter.replace(annotation=parameter.empty) for parameter in takes]
            assert [str(p) for p in takes] == [str(p) for p in took], name


def test_the_asyncio_join_takes_the_arguments_of_the_join():
    took, takes = inspect.signature(seqcast.join), inspect.signature(seqcast.aio.join)
    assert [(p.name, p.kind, p.default) for p in takes.parameters.values()] == [
        (p.name, p.kind, p.default) for p in took.parameters.values()
    ]


def test_a_join_can_be_a_task():
    async def main():
        name = cluster()
        tasks = [asyncio.create_task(seqcast.aio.join(name, name=each, interface=LOOPBACK)) for each in "ab"]
        a, b = await asyncio.gather(*tasks)
        await together(a, b)
        await a.send(b"x")
        assert (await b.recv(LIMIT_S)).payload == b"x"
        await a.leave()
        await b.leave()
        task = asyncio.create_task(seqcast.aio.join(name, name="c", order="none", interface=LOOPBACK))
        with pytest.raises(seqcast.ConfigError, match="order='none'"):
            await task

    run(main())


def test_events_one_by_one_a_pause_and_how_it_ended():
    async def main():
        async with two(**PATIENT) as (a, b):
            assert (a.cluster, a.order, a.config) == (a.sync.cluster, "total", a.sync.config)
            assert a.cluster in repr(a) and "a" in repr(a)
            assert isinstance(await a.next_event(LIMIT_S), seqcast.View)
            assert isinstance(await a.next_event(LIMIT_S), seqcast.View)
            assert await a.next_event(0.02) is None
            waiting = asyncio.create_task(a.wait_deliverable(LIMIT_S))
            await asyncio.sleep(0.01)
            assert not waiting.done() and await a.wait_deliverable(0.01) is False
            async with b.suspended():
                with pytest.raises(seqcast.SendTimeout):
                    await a.send(b"early", timeout=0.05)
            await b.send(b"late")
            await waiting
            assert await a.wait_deliverable(LIMIT_S) is True
            assert (await a.recv(LIMIT_S)).payload == b"late"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.0001):
                    await b.suspend()
            await a.send(b"after a pause that nobody wanted", timeout=LIMIT_S)
            with pytest.raises(seqcast.SuspendTimeout, match="the pause ended too early"):
                async with a.suspended():
                    await b.leave()
            assert b.status == "left"
            with pytest.raises(seqcast.NotMember):
                while True:
                    await b.next_event(LIMIT_S)
            await b.close_journal()

    run(main())


def test_a_full_thread_pool_keeps_no_join_no_pause_and_no_leave_waiting():
    """Each waits for something that only another of them brings about."""

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        name = cluster()
        settings = {"interface": LOOPBACK, "min_members": 3, "join_timeout_s": LIMIT_S, **PATIENT}
        joins = (seqcast.aio.join(name, name=who, **settings) for who in "abc")
        a, b, c = await asyncio.gather(*joins)
        await a.send(b"x")
        waits = [asyncio.create_task(a.wait_consumed()) for _ in range(2)]  # b takes nothing
        await asyncio.sleep(0)
        await b.suspend()
        full = asyncio.create_task(c.send(b"y"))  # waits in the pool's only thread
        await asyncio.sleep(0.1)
        assert not full.done()
        assert await asyncio.wait_for(b.resume(), LIMIT_S)
        await full
        assert await asyncio.wait_for(a.leave(LIMIT_S), 2 * LIMIT_S)
        for wait in waits:
            with pytest.raises(seqcast.NotMember):
                await wait
        await b.leave()
        await c.leave()

    asyncio.run(main())


def test_a_send_is_made_when_it_is_awaited_and_only_once():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            with pytest.warns(RuntimeWarning, match=r"'Group.send' was never awaited"):
                a.send(b"forgotten")
                gc.collect()
            kept = a.send(b"1")
            assert asyncio.iscoroutine(kept)
            await kept
            with pytest.raises(RuntimeError, match="already awaited"):
                await kept
            await asyncio.gather(a.send(b"2"), a.send(b"3"))
            await asyncio.wait_for(a.send(b"4"), 30)
            wrong = a.send("text")
            with pytest.raises(seqcast.UsageError, match="a message is bytes"):
                await wrong
            assert [(await b.recv(30)).payload for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    run(main())


def test_a_send_that_is_cancelled_before_it_began_is_not_made():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            task = asyncio.create_task(a.send(b"cancelled"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            closed = a.send(b"closed")
            closed.close()
            await a.send(b"sent")
            assert (await b.recv(30)).payload == b"sent"

    run(main())


def test_a_send_that_waits_for_credit_can_be_cancelled():
    async def main():
        async with two(order="fifo", deliver_own=False) as (a, b):
            large = asyncio.create_task(a.send(bytes(20_000_000)))  # more than the window: waits for the receiver
            behind = asyncio.create_task(a.send(b"behind it"))
            while not a._waiting_sends == 2:
                await asyncio.sleep(0)
            behind.cancel()
            with pytest.raises(asyncio.CancelledError):
                await behind
            assert len((await b.recv(30)).payload) == 20_000_000
            await large
            await a.send(b"next")
            assert (await b.recv(30)).payload == b"next"

    run(main())
