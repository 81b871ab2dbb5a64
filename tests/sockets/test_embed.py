"""The table of functions for programs in C: its results, and its answers to every wrong call."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import select
import sys
import threading
import time
import typing
import weakref

import pytest
from embedding import (
    ALL_BORROWED,
    BAD_ARGUMENT,
    COORDINATOR_CHANGED,
    ENDED,
    FAILED,
    FUNCTIONS,
    HOLDS_GIL,
    IN_USE,
    ITEMS_MAX,
    LEFT,
    MESSAGES,
    NO_MEMBER,
    NONE,
    NOT_BORROWED,
    OK,
    SKIPPED,
    TABLE,
    TOO_LARGE,
    VIEW,
    Handle,
    Item,
    Message,
    Table,
)
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, wait_until

import seqcast
import seqcast.aio
from seqcast._native import driver
from seqcast.core.vocabulary import Meaning


@pytest.fixture
def pair():
    """A handle of member a, its group, and member b; both are in the view of two, which the handle has not had yet."""
    name = cluster()
    with join(name, "a") as a, join(name, "b") as b:
        handle = Handle(a)
        yield handle, a, b
        if handle.member:
            a.leave()
            assert handle.close() == OK


def views(handle: Handle, members: int) -> None:
    """Takes items until a view with as many members."""
    while True:
        item = handle.until(VIEW)
        n = item.contents.n
        assert handle.give_back(item) == OK
        if n == members:
            return


def messages(handle: Handle, n: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < n:
        item = handle.until(MESSAGES)
        found += handle.payloads(item)
        assert handle.give_back(item) == OK
    return found


# ---- results -------------------------------------------------------------------------------------------------------


def test_the_table_is_as_the_header_says():
    assert TABLE.version == 1 and TABLE.size == ctypes.sizeof(Table) == 8 + 8 * len(FUNCTIONS)
    header = open(os.path.join(seqcast.get_include(), "seqcast", "embed.h")).read()
    table = header[header.index("uint32_t version;") : header.index("} seqcast_table;")]
    at = [table.index(f"(*{name})(") for name, _ in FUNCTIONS]
    assert at == sorted(at) and table.count("(*") == len(FUNCTIONS)
    assert (ctypes.sizeof(Message), ctypes.sizeof(Item)) == (56, 64)


def test_every_event_has_a_kind():
    kinds = {kind.__name__ for kind in typing.get_args(Meaning)} | {"MergeView"}
    assert kinds == set(driver.KINDS)
    assert len(set(driver.KINDS.values())) == len(kinds)


def test_the_next_coordinator_is_told_with_the_one_before():
    name = cluster()
    with join(name, "a") as a, join(name, "b", coordinator_events=True) as b:
        handle = Handle(b)
        views(handle, 2)
        a.leave()
        views(handle, 1)
        item = handle.until(COORDINATOR_CHANGED)
        told = item.contents
        assert (told.n, told.ids[0], told.ids[1], told.names[0]) == (2, b.member.id, a.member.id, b"b")
        assert told.text == b"b coordinates instead of a: a is not in the view"
        assert told.view == b.view.view_id.counter and handle.give_back(item) == OK
        b.leave()
        assert handle.close() == OK


def test_a_gap_says_whose_messages_are_missed():
    """Of four members the second takes nothing at first."""
    with group_of(4, order="fifo", slow="skip", slow_s=0.3, preset="fast") as (a, b, c, d):
        handle = Handle(b)
        over = threading.Event()

        def take(group):
            while not over.is_set():
                group.recv_batch(0.05)

        takers = [threading.Thread(target=take, args=(group,), daemon=True) for group in (a, c, d)]
        for taker in takers:
            taker.start()
        end = time.monotonic() + LIMIT_S
        while b.counters()["packets_skipped"] == 0 and time.monotonic() < end:
            with contextlib.suppress(seqcast.SendTimeout):
                a.send(bytes(10_000), timeout=0.05)
        item = handle.until(SKIPPED)
        told = item.contents
        assert (told.n, told.ids[0], told.names[0]) == (1, a.member.id, b"a")
        assert told.text.startswith(b"skipped: ") and handle.give_back(item) == OK
        over.set()
        for taker in takers:
            taker.join(LIMIT_S)
        assert handle.close() == OK


def test_messages_go_both_ways(pair):
    handle, _a, b = pair
    views(handle, 2)
    assert handle.send(b"from c") == OK
    assert b.recv(LIMIT_S).payload == b"from c"
    b.send(b"to c")
    item = handle.until(MESSAGES)
    assert ctypes.string_at(TABLE.next(item).contents.data, 6) == b"from c"  # its own, as `recv` would take one
    if item.contents.n == 1:
        handle.give_back(item)
        item = handle.until(MESSAGES)
    message = TABLE.next(item)
    assert ctypes.string_at(message.contents.data, message.contents.len) == b"to c"
    assert (message.contents.sender, message.contents.global_seqno, message.contents.flags) == (b.member.id, 2, 0)
    assert abs(message.contents.sent_ns - time.time_ns()) < 60e9
    assert not TABLE.next(item)
    handle.give_back(item)
    assert handle.send(b"to b alone", to=b.member.id) == OK
    received = [b.recv(LIMIT_S) for _ in range(2)]
    assert (received[-1].payload, received[-1].unicast) == (b"to b alone", True)


def test_small_large_and_empty_messages_come_whole(pair):
    handle, _a, b = pair
    sent = [b"", b"x" * 200_000, b"small", b"y" * 3000, b"z" * 70_000, b""]
    b.send_many(sent)
    assert messages(handle, len(sent)) == sent
    for payload in sent:
        assert handle.send(payload) == OK
    own = [b.recv(LIMIT_S).payload for _ in range(2 * len(sent))]
    assert own == sent * 2


def test_views_come_in_their_place(pair):
    handle, a, b = pair
    views(handle, 2)
    b.send(b"last words")
    b.leave()
    assert messages(handle, 1) == [b"last words"]
    item = handle.until(VIEW)
    view = item.contents
    assert (view.n, view.rank, view.ids[0], view.names[0]) == (1, 0, a.member.id, b"a")
    assert view.view == a.view.view_id.counter and view.text.startswith(b"view ") and view.event
    handle.give_back(item)


def test_the_first_item_is_the_view_that_python_had(pair):
    handle, a, b = pair
    views(handle, 2)
    assert handle.close() == OK
    b.send_many([b"1", b"2", b"3"])
    first = a.recv(LIMIT_S)
    assert Handle(a).close() == OK  # and the rest of the batch is left to Python
    second = a.recv(LIMIT_S)
    handle = Handle(a)
    item = handle.until(VIEW)
    assert item.contents.n == 2
    handle.give_back(item)
    assert [first.payload, second.payload, *messages(handle, 1)] == [b"1", b"2", b"3"]
    assert handle.close() == OK
    b.send(b"4")
    assert a.recv(LIMIT_S).payload == b"4"  # Python receives again


class Numbers:
    """A state that is always the same."""

    def __init__(self) -> None:
        self.came = b""

    def get_state(self, write) -> None:
        write(b"state")

    def set_state(self, read) -> None:
        self.came = read(5)


def test_a_program_in_c_gives_state_and_gets_messages_that_came_while_its_member_joined():
    name, over = cluster(), threading.Event()
    with join(name, "a", state=Numbers(), partition="primary") as a:
        giver = Handle(a)
        taken: list[bytes] = []

        def give() -> None:
            while not over.is_set():
                code, item = giver.poll(timeout_s=0.05)
                if code == OK:
                    taken.extend(giver.payloads(item))
                    giver.give_back(item)

        def send() -> None:
            while not over.wait(0.001):
                assert giver.send(b"%d" % next(numbers)) == OK

        numbers = itertools.count()
        threads = [threading.Thread(target=give), threading.Thread(target=send)]
        for thread in threads:
            thread.start()
        try:
            state = Numbers()
            with join(name, "c", state=state, partition="primary") as c:
                handle = Handle(c)
                got = messages(handle, 100)
                c.leave()
                assert handle.close() == OK
        finally:
            over.set()
            for thread in threads:
                thread.join()
            assert giver.close() == OK
    assert state.came == b"state" and int(got[0]) > 0
    assert got == [b"%d" % (int(got[0]) + i) for i in range(len(got))]


@pytest.mark.parametrize("to_its_end", [True, False])
def test_a_journal_is_written_once_whatever_is_received(tmp_path, to_its_end):
    pytest.importorskip("pyarrow")
    from seqcast.journal.places import find

    with join(cluster(), "a", journal=str(tmp_path)) as a:
        a.send_many([b"%d" % i for i in range(50)])
        first = a.recv(LIMIT_S).payload  # the rest of its batch is journaled
        handle = Handle(a)
        if to_its_end:
            assert [first, *messages(handle, 49)] == [b"%d" % i for i in range(50)]
            a.leave()
            handle.give_back(handle.until(LEFT))
            assert handle.close() == OK
    assert sum(journal.rows for journal in find([str(tmp_path)])) == 50
    if not to_its_end:
        assert handle.close() == OK


def test_a_descriptor_wakes_a_waiting_loop(pair):
    handle, _a, b = pair
    views(handle, 2)
    assert TABLE.watch(handle.member) == BAD_ARGUMENT  # no descriptor was asked for
    descriptor = TABLE.descriptor(handle.member)
    assert descriptor >= 0 and TABLE.descriptor(handle.member) == descriptor
    sender = threading.Thread(target=lambda: [(time.sleep(0.01), b.send(b"%d" % i)) for i in range(30)])
    sender.start()
    got: list[bytes] = []
    while len(got) < 30:
        if TABLE.watch(handle.member) == NONE:
            assert select.select([descriptor], [], [], LIMIT_S)[0]
            continue
        code, item = handle.poll()
        if code == OK:
            got += handle.payloads(item)
            handle.give_back(item)
        else:
            assert code == NONE
    sender.join()
    assert got == [b"%d" % i for i in range(30)]


def test_a_descriptor_is_readable_when_the_member_leaves(pair):
    handle, a, _b = pair
    views(handle, 2)
    descriptor = TABLE.descriptor(handle.member)
    leaver = threading.Timer(0.2, a.leave)
    leaver.start()
    code, item = NONE, None
    while code == NONE:
        if TABLE.watch(handle.member) == NONE:
            assert select.select([descriptor], [], [], LIMIT_S)[0]
        code, item = handle.poll()
    assert (code, item.contents.kind) == (OK, LEFT)
    assert handle.give_back(item) == OK and TABLE.watch(handle.member) == OK
    leaver.join()


def test_senders_that_wait_until_others_have_taken_are_told(pair):
    handle, _a, b = pair
    views(handle, 2)
    b.send_many([b"x"] * 100)
    waiter = threading.Thread(target=b.wait_consumed, args=(LIMIT_S,))
    waiter.start()
    messages(handle, 100)
    waiter.join(LIMIT_S)
    assert not waiter.is_alive()


# ---- wrong calls ---------------------------------------------------------------------------------------------------


def test_null_or_zero_is_refused(pair):
    handle, _a, _b = pair
    assert handle.poll(budget=0)[0] == BAD_ARGUMENT
    assert TABLE.poll(handle.member, 1, 0, None) == BAD_ARGUMENT
    assert TABLE.poll(None, 1, 0, ctypes.byref(ctypes.POINTER(Item)())) == BAD_ARGUMENT
    assert handle.send(None) == BAD_ARGUMENT
    assert handle.send(b"x", flags=2) == BAD_ARGUMENT
    assert TABLE.send(None, 0, 0, b"x", 1, 0) == BAD_ARGUMENT
    assert TABLE.send(handle.member, 0, 0, None, 0, -1) == OK  # an empty message
    for call in (TABLE.flush, TABLE.watch, TABLE.descriptor, TABLE.close):
        assert call(None) == BAD_ARGUMENT
    assert TABLE.give_back(None, None) == TABLE.give_back(handle.member, None) == BAD_ARGUMENT
    assert not TABLE.next(None) and TABLE.error(None) is None and TABLE.error(handle.member) is None


def test_messages_that_cannot_be_sent_are_refused(pair):
    handle, a, _b = pair
    assert handle.send(b"x", to=12345) == NO_MEMBER
    assert handle.send(bytes(a.config.message_bytes_max + 1)) == TOO_LARGE
    assert handle.send(b"unordered", flags=1) == OK and TABLE.flush(handle.member) == OK


def test_an_item_is_given_back_once_and_to_its_member(pair):
    handle, _a, b = pair
    other = Handle(b)
    item = handle.until(VIEW)
    assert TABLE.give_back(other.member, item) == NOT_BORROWED
    inside = ctypes.cast(ctypes.addressof(item.contents) + 8, type(item))
    assert TABLE.give_back(handle.member, inside) == NOT_BORROWED
    assert [handle.give_back(item) for _ in range(3)] == [OK, NOT_BORROWED, NOT_BORROWED]
    b.send(b"x")
    item = handle.until(MESSAGES)
    assert [handle.give_back(item) for _ in range(2)] == [OK, NOT_BORROWED]
    assert not TABLE.next(item)  # nothing of the group can be read through the table
    assert other.close() == OK


def test_items_that_are_out_are_bounded_and_keep_their_bytes(pair):
    handle, _a, b = pair
    views(handle, 2)
    out, code = [], OK
    payloads = [bytes([i]) * 3000 for i in range(ITEMS_MAX + 1)]
    for payload in payloads:
        b.send(payload)
        code, item = handle.poll(budget=1, timeout_s=LIMIT_S)
        if code == OK:
            out.append(item)
    assert code == ALL_BORROWED and len(out) == ITEMS_MAX
    assert handle.close() == IN_USE
    assert [handle.payloads(item) for item in out] == [[payload] for payload in payloads[:-1]]
    assert handle.give_back(out[7]) == OK
    code, out[7] = handle.poll(timeout_s=LIMIT_S)
    assert code == OK and handle.payloads(out[7]) == [payloads[-1]]
    for item in out:
        assert handle.give_back(item) == OK


def test_a_call_that_may_wait_needs_the_gil_released(pair):
    handle, _a, b = pair
    views(handle, 2)
    poll = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p)
    send = ctypes.PYFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_int64,
    )
    poll, send = (
        make(ctypes.cast(each, ctypes.c_void_p).value) for make, each in ((poll, TABLE.poll), (send, TABLE.send))
    )
    item = ctypes.POINTER(Item)()
    assert poll(handle.member, 1, -1, ctypes.addressof(item)) == HOLDS_GIL
    assert send(handle.member, 0, 0, b"x", 1, -1) == HOLDS_GIL
    assert poll(handle.member, 1, 0, ctypes.addressof(item)) == NONE
    assert send(handle.member, 0, 0, b"x", 1, 0) == OK
    assert b.recv(LIMIT_S).payload == b"x"


def test_a_group_has_one_handle_and_python_does_not_receive_beside_it(pair):
    handle, a, b = pair
    b.send(b"x")
    for call in (lambda: Handle(a), lambda: a.recv(0), lambda: a.recv_batch(0), lambda: next(a.events())):
        with pytest.raises(seqcast.UsageError, match="until the handle is closed"):
            call()
    with pytest.raises(seqcast.UsageError, match=r"a seqcast\.Group is wanted, not int"):
        Handle(7)
    assert messages(handle, 1) == [b"x"]


def test_a_group_of_asyncio_is_refused_by_its_name():
    async def main() -> None:
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK) as group:
            with pytest.raises(
                seqcast.UsageError, match=r"a group of seqcast\.aio has no handle: join with seqcast\.join"
            ):
                Handle(group)

    asyncio.run(main())


def reading(group: seqcast.Group) -> threading.Thread:
    """A thread that waits for a message of this group."""
    turns = group.counters()["io_turns"]
    reader = threading.Thread(target=group.recv, args=(LIMIT_S,))
    reader.start()
    wait_until(lambda: group.counters()["io_turns"] > turns)
    return reader


def opens_a_handle(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is Handle.__init__.__code__


def test_a_handle_is_refused_while_a_thread_receives_and_opens_when_it_has_ended():
    with join(cluster(), "a") as a:
        reader = reading(a)
        with pytest.raises(seqcast.UsageError, match="another thread receives from this group: end its call"):
            Handle(a)
        a.send(b"ends it")
        reader.join(LIMIT_S)
        handle = Handle(a)
        a.leave()
        assert handle.close() == OK


def test_calls_that_wait_for_the_stream_while_a_handle_opens_are_refused():
    """Whoever gets the lock of the stream after the handle was opened: another `open`, or a call that receives."""
    outcomes: list[str] = []

    def attempt(call) -> None:
        try:
            outcomes.append(type(call()).__name__)
        except seqcast.UsageError as error:
            outcomes.append(str(error)[:15])

    with join(cluster(), "a") as a:
        reader = reading(a)
        calls = (lambda: Handle(a), lambda: Handle(a), lambda: a.recv(LIMIT_S), lambda: a.next_event(LIMIT_S))
        threads = [threading.Thread(target=attempt, args=(call,)) for call in calls[:2]]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(opens_a_handle(thread) for thread in threads))
        a.send(b"ends it")  # before the handles give up
        reader.join(LIMIT_S)
        threads += [threading.Thread(target=attempt, args=(call,)) for call in calls[2:]]
        for thread in threads[2:]:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        a.leave()
    if outcomes[:2] == 2 * ["another thread "]:
        pytest.skip("both handles gave up, as no thread of this test got a core for a second")
    assert sorted(outcomes) == ["Handle"] + 3 * ["a program in C "]


def test_an_event_in_an_item_that_was_a_batch_has_nothing_of_it(pair):
    handle, a, b = pair
    views(handle, 2)
    b.send(b"x" * 5000)
    assert messages(handle, 1) == [b"x" * 5000]
    a.leave()
    item = handle.until(LEFT)
    left = item.contents
    assert (left.n, left.bytes, left.view, left.rank, bool(left.ids), bool(left.names)) == (0, 0, 0, 0, False, False)
    handle.give_back(item)


def test_an_event_loop_polls_seldom_while_states_are_merged():
    class Keeper:
        """Merges until the test is over."""

        stopped = True
        over = False

        def step(self, wait: int) -> bool:
            return self.over

    with join(cluster(), "a") as a:
        assert isinstance(a.next_event(LIMIT_S), seqcast.View)
        a._keeper, a._stop = Keeper(), a.view  # the application has come to a view at which states are merged
        handle = Handle(a)
        assert TABLE.descriptor(handle.member) >= 0
        handle.give_back(handle.until(VIEW))  # the one before
        begin, polls = time.monotonic(), 0
        while time.monotonic() - begin < 0.1:
            assert TABLE.watch(handle.member) == OK and handle.poll()[0] == NONE
            polls += 1
        assert polls <= 100
        a._keeper.over = True
        assert TABLE.watch(handle.member) == OK
        handle.give_back(handle.until(VIEW, timeout_s=0))
        assert TABLE.watch(handle.member) == NONE
        a._keeper = None
        a.leave()
        assert handle.close() == OK


# ---- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", [False, True])
def test_a_group_that_leaves_while_c_polls_ends_it(spin):
    name = cluster()
    with join(name, "a", latency=spin) as a, join(name, "b") as b:
        handle = Handle(a)
        views(handle, 2)
        codes: list[tuple[int, int]] = []

        def drain() -> None:
            while True:
                code, item = handle.poll(timeout_s=LIMIT_S)
                codes.append((code, item.contents.kind if item else 0))
                if code != OK:
                    return
                handle.give_back(item)

        thread = threading.Thread(target=drain)
        thread.start()
        b.send(b"x")
        wait_until(lambda: (OK, MESSAGES) in codes)
        assert a.leave()
        thread.join(LIMIT_S)
        assert codes[-2:] == [(OK, LEFT), (ENDED, 0)]
        assert handle.send(b"x") == ENDED and handle.poll(timeout_s=1)[0] == ENDED
        assert TABLE.flush(handle.member) == OK
        assert handle.close() == OK
        with pytest.raises(seqcast.NotMember):
            Handle(a)


def test_a_handle_keeps_a_group_that_python_has_forgotten():
    group = join(cluster(), "a")
    handle = Handle(group)
    of_group = weakref.ref(group)
    group.leave()
    del group
    gc.collect()
    assert of_group() is not None
    item = handle.until(LEFT)
    assert item.contents.text  # its memory is there
    assert handle.give_back(item) == OK
    assert handle.poll()[0] == ENDED
    assert handle.close() == OK
    gc.collect()
    assert of_group() is None


def test_an_exception_of_python_is_told(tmp_path):
    pytest.importorskip("pyarrow")
    name = cluster()
    with join(name, "a", journal=str(tmp_path / "journals"), journal_required=True) as a:
        handle = Handle(a)
        views(handle, 1)

        def fail(batch) -> None:
            raise seqcast.JournalWriteError("the disk is full")

        a._write = fail
        assert handle.send(b"x") == OK
        assert handle.poll(timeout_s=LIMIT_S)[0] == FAILED
        assert TABLE.error(handle.member) == b"JournalWriteError: the disk is full (SC6001)"
        del a._write
        a.leave()
        assert handle.close() == OK


def test_calls_in_a_forked_child_end():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    with join(cluster(), "a") as a:
        handle = Handle(a)
        item = handle.until(VIEW)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                codes = [
                    handle.send(b"x"), handle.poll(timeout_s=1)[0], TABLE.flush(handle.member),
                    TABLE.descriptor(handle.member), handle.give_back(item), handle.close(),
                ]  # fmt: skip
                os.write(write, repr(codes).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000).decode() == repr([ENDED, ENDED, ENDED, ENDED, OK, OK])
        os.close(read)
        os.close(write)
        assert handle.give_back(item) == OK
        assert handle.send(b"x") == OK
        a.leave()
        assert handle.close() == OK


def test_many_threads_send_poll_and_give_back(pair):
    handle, _a, _b = pair
    got: list[bytes] = []
    lock, n = threading.Lock(), 3 * 300

    def send(number: int) -> None:
        for i in range(300):
            assert handle.send(b"%d/%d" % (number, i)) == OK

    def poll() -> None:
        while True:
            code, item = handle.poll(budget=2000, timeout_s=0.05)
            if code == OK:
                with lock:
                    got.extend(handle.payloads(item))
                handle.give_back(item)
            assert code in (OK, NONE)
            if len(got) >= n:
                return

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    threads += [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(got) == sorted(b"%d/%d" % (number, i) for number in range(3) for i in range(300))
