"""Requests over groups on real sockets: who answers, who fails, and who is gone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, join, script, until_all_wait, wait_until

import seqcast
from seqcast.blocks import Reply, Rpc, aio, rpc

pytestmark = pytest.mark.filterwarnings("ignore:partition=:RuntimeWarning")
SETTINGS: dict[str, Any] = {"interface": LOOPBACK, "join_timeout_s": LIMIT_S, **PATIENT_JOINER}
NEEDED: dict[str, Any] = {"partition": "primary", "safe": True}
ANSWERER = """
import sys, time
from seqcast.blocks import Rpc
def handle(question):
    print("asked", question, flush=True)
    time.sleep(question)
with Rpc(sys.argv[1], handle, name=sys.argv[2], interface=sys.argv[3]) as rpc:
    sys.stdin.read()
"""

Handler = Callable[[Any], Any]


@contextlib.contextmanager
def members(*handlers: Handler | None, name: str = "", **settings: Any) -> Iterator[list[Rpc]]:
    """Members a, b, ... of one group, all in one view."""
    name = name or cluster()
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(Rpc(name, handler, name=who, **{**SETTINGS, **settings}))
            for who, handler in zip("abcdefgh", handlers, strict=False)
        ]
        wait_until(lambda: all(len(each._view) == len(made) for each in made))
        yield made


def by_name(replies: dict[seqcast.Member, Reply]) -> dict[str, Reply]:
    return {member.name: reply for member, reply in replies.items()}


def values(replies: dict[seqcast.Member, Reply]) -> dict[str, Any]:
    assert {reply.kind for reply in replies.values()} <= {"answered"}, replies
    return {member.name: reply.value for member, reply in replies.items()}


class Held:
    """A handler that answers once allowed."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.may = threading.Event()

    def __call__(self, question: Any) -> Any:
        self.asked.release()
        assert self.may.wait(LIMIT_S)
        return question


def asking(of: Rpc, *payload: Any, **how: Any) -> tuple[threading.Thread, list[Any]]:
    """A thread that asks, and the list that its result, or its error, gets into."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(of.ask(*payload, **{"timeout": LIMIT_S, **how}))
        except seqcast.SeqcastError as error:
            got.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, got


def test_all_answer_or_one_or_the_first_by_rank() -> None:
    with members(*[lambda q, who=who: [who, q["n"]] for who in "abc"]) as (a, b, c):
        wait = {"timeout": LIMIT_S}
        assert values(c.ask({"n": 1}, **wait)) == {"a": ["a", 1], "b": ["b", 1], "c": ["c", 1]}
        assert values(a.ask({"n": 2}, to="b", **wait)) == {"b": ["b", 2]}
        assert values(a.ask({"n": 3}, to=c.group.member, **wait)) == {"c": ["c", 3]}
        assert values(c.ask({"n": 4}, to=2, **wait)) == {"a": ["a", 4], "b": ["b", 4]}
        assert values(c.ask({"n": 5}, to=70_000, **wait)).keys() == {"a", "b", "c"}
        assert values(a.ask({"n": 6}, to="a", **wait)) == {"a": ["a", 6]}
        assert [each.counters.answered for each in (a, b, c)] == [4, 4, 3]


def test_the_first_answers_suffice_and_the_others_are_unanswered() -> None:
    slow = Held()
    with members(lambda q: q, slow, lambda q: q) as (a, b, c):
        replies = by_name(a.ask("x", first=2, timeout=LIMIT_S))
        assert replies == {"a": Reply("answered", "x"), "b": Reply("unanswered"), "c": Reply("answered", "x")}
        slow.may.set()
        wait_until(lambda: a.counters.late == 1)
        assert b.counters.answered == 1 and a.counters.malformed == c.counters.malformed == 0


def test_errors_are_not_first_answers_and_are_carried_as_type_and_text() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail(question: Any) -> Any:
        if question == "exit":
            raise SystemExit("out")
        if question == "odd":
            raise Odd
        if question in ("x", "é"):  # cut off, and the latter still larger than a message
            raise KeyError(question * 10_000)
        return object() if question == "object" else "y" * 20_000

    with members(fail, None, lambda q: q, message_bytes_max=16_384) as (a, *_):
        asked = {each: by_name(a.ask(each, first=2, timeout=LIMIT_S)) for each in ("exit", "odd", "x", "object", "")}
        assert asked["exit"]["a"] == Reply("failed", None, "SystemExit", "out")
        assert asked["odd"]["a"].error_type == "Odd" and "could not be made" in asked["odd"]["a"].text
        assert asked["x"]["a"].error_type == "KeyError" and len(asked["x"]["a"].text) == rpc.TEXT_MAX
        assert asked["object"]["a"].error_type == "TypeError"
        assert "message_bytes_max" in asked[""]["a"].text
        for replies in asked.values():
            assert replies["b"] == Reply("failed", None, "NotReady", "this member has no handler (SC3007)")
            assert replies["c"].kind == "answered"
        assert by_name(a.ask("é", first=1, timeout=LIMIT_S))["a"].kind == "unanswered"
        wait_until(lambda: (a.counters.failed, a.counters.unsent) == (6, 1))  # its own thread counts


def test_all_members_take_the_questions_of_all_in_one_order() -> None:
    taken: list[list[str]] = [[], [], []]
    with members(*[each.append for each in taken]) as made:
        asked = [asking(each, f"{index} {number}", first=1) for index, each in enumerate(made) for number in range(20)]
        for thread, _ in asked:
            thread.join()
        assert all(next(iter(got[0].values())).kind in ("answered", "unanswered") for _, got in asked)
        wait_until(lambda: all(len(each) == 60 for each in taken))
        assert taken[0] == taken[1] == taken[2]


def test_at_the_timeout_there_are_the_replies_until_then() -> None:
    slow = Held()
    with members(lambda q: q, slow) as (a, _):
        began = time.monotonic()
        assert by_name(a.ask(1, timeout=1.0)) == {"a": Reply("answered", 1), "b": Reply("unanswered")}
        assert 1.0 <= time.monotonic() - began < LIMIT_S
        slow.may.set()


def test_a_member_that_is_killed_while_asked_is_reported_and_not_waited_for() -> None:
    name = cluster()
    with members(lambda q: q, lambda q: q, name=name) as (a, b):
        other = script(ANSWERER, name, "c", LOOPBACK)
        wait_until(lambda: len(a._view) == len(b._view) == 3)
        thread, got = asking(a, LIMIT_S, timeout=None)
        alone, single = asking(b, LIMIT_S, to="c", timeout=None)
        assert other.stdout is not None and other.stdout.readline().startswith("asked")
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
        thread.join(LIMIT_S)
        alone.join(LIMIT_S)
        answered = Reply("answered", LIMIT_S)
        assert by_name(got[0]) == {"a": answered, "b": answered, "c": Reply("gone")}
        assert by_name(single[0]) == {"c": Reply("gone")}
        with pytest.raises(seqcast.NotInView, match="0 members"):
            a.ask(1, to="c")


def test_an_asker_that_closes_is_undecided_and_its_waiting_questions_are_cancelled() -> None:
    slow = Held()
    with members(lambda q: q, slow) as (a, b):
        asked = [asking(a, number, to="b") for number in range(3)]
        assert slow.asked.acquire(timeout=LIMIT_S)
        wait_until(lambda: len(b._questions) == 2)
        a.close()
        for thread, got in asked:
            thread.join()
            assert isinstance(got[0], seqcast.Undecided) and got[0].sent == 1 and "closed" in str(got[0])
        with pytest.raises(seqcast.NotReady, match="closed"):
            a.ask(1)
        wait_until(lambda: len(b._view) == 1)
        slow.may.set()
        wait_until(lambda: b.counters.cancelled == 3)  # two that waited, and the answer that nobody takes
        assert by_name(b.ask(4, timeout=LIMIT_S)) == {"b": Reply("answered", 4)}
        a.close()


def test_a_closed_block_answers_nothing() -> None:
    slow = Held()
    with members(lambda q: q, slow) as (a, b):
        thread, got = asking(a, 1, to="b", timeout=None)
        assert slow.asked.acquire(timeout=LIMIT_S)
        closing = threading.Thread(target=b.close)
        closing.start()
        thread.join(LIMIT_S)
        assert by_name(got[0]) == {"b": Reply("gone")}
        slow.may.set()
        closing.join(LIMIT_S)
        assert not b._answering.is_alive() and not b._receiving.is_alive() and a.counters.late == 0


@pytest.mark.long
def test_an_excluded_member_joins_again_and_answers() -> None:
    name = cluster()
    with members(lambda q: q, lambda q: q, name=name) as (a, b):
        other = script(ANSWERER, name, "c", LOOPBACK)
        wait_until(lambda: len(a._view) == len(b._view) == 3)
        os.kill(other.pid, signal.SIGSTOP)
        assert by_name(a.ask(0, timeout=None))["c"] == Reply("gone")
        os.kill(other.pid, signal.SIGCONT)
        wait_until(lambda: len(a._view) == len(b._view) == 3)
        assert by_name(a.ask(0, timeout=LIMIT_S))["c"] == Reply("answered", None)
        other.communicate()


def test_malformed_messages_of_others_and_later_ones_are_counted_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    name = cluster()
    head = functools.partial(rpc._HEAD.pack, rpc._MESSAGE)
    with members(lambda q: q, name=name) as (a,), join(name, "x", **NEEDED, **PATIENT_JOINER) as other:
        wait_until(lambda: len(a._view) == 2)
        bad = [
            b"", b"x", head(3, 1, 0) + b"1", head(0, 1, 0),
            head(0, 1, 0) + b"[" * 99_999,
            head(1, 1, 0) + b"1",  # an answer to the group
        ]  # fmt: skip
        answers = [head(1, 1, 0) + b"{", head(2, 1, 0) + b'["a"]', head(2, 1, 0) + b"[1, 2]"]
        for each in bad:
            other.send(each)
        for each in answers:
            other.send(each, to=a.group.member)
        wait_until(lambda: a.counters.malformed == len(bad) + len(answers))
        later = rpc._HEAD.pack(b"SqR\x02", 0, 1, 0) + b"1"
        for _ in range(2):
            other.send(later)
        wait_until(lambda: a.counters.other_release == 2)
        said = [record.getMessage() for record in caplog.records if "SC3010" in record.getMessage()]
        assert len(said) == 1 and "upgrade this member" in said[0]
        other.send(head(1, a._next, 0) + b"1", to=a.group.member)
        wait_until(lambda: a.counters.late == 1)
        number = a._next + 1  # that of the next question, which is asked of a alone
        other.send(head(1, number, 0) + b"2", to=a.group.member)
        assert by_name(a.ask(3, to="a", timeout=LIMIT_S)) == {"a": Reply("answered", 3)}


def test_an_answer_of_a_member_that_was_not_asked_is_late() -> None:
    name, slow = cluster(), Held()
    with members(slow, name=name) as (a,), join(name, "x", **NEEDED, **PATIENT_JOINER) as other:
        wait_until(lambda: len(a._view) == 2)
        thread, got = asking(a, 1, to="a")
        assert slow.asked.acquire(timeout=LIMIT_S)
        other.send(rpc._HEAD.pack(rpc._MESSAGE, 1, a._next, 0) + b"2", to=a.group.member)
        wait_until(lambda: a.counters.late == 1)
        slow.may.set()
        thread.join()
        assert by_name(got[0]) == {"a": Reply("answered", 1)}


def test_more_questions_than_fit_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "QUESTIONS_MAX", 2)
    monkeypatch.setattr(rpc, "ASKS_MAX", 3)
    slow = Held()
    with members(lambda q: q, slow) as (a, b):
        asked = [asking(a, 0, to="b")]
        assert slow.asked.acquire(timeout=LIMIT_S)
        asked += [asking(a, number, to="b") for number in (1, 2)]
        wait_until(lambda: len(b._questions) == 2)
        with pytest.raises(seqcast.NotReady, match="3 calls of ask wait already"):
            a.ask(3)
        assert by_name(b.ask(4, to="b", timeout=LIMIT_S)) == {
            "b": Reply("failed", None, "NotReady", "2 questions wait already")
        }
        monkeypatch.setattr(rpc, "QUESTIONS_MAX", 9)
        monkeypatch.setattr(rpc, "QUESTION_BYTES_MAX", 99)
        assert by_name(b.ask("x" * 98, to="b", timeout=LIMIT_S))["b"].kind == "failed"
        assert a.counters.asks_refused == 1 and b.counters.refused == 2
        slow.may.set()
        for thread, got in asked:
            thread.join()
            assert by_name(got[0])["b"].kind == "answered"
        assert b._held == 0 and by_name(b.ask("x" * 200, to="b", timeout=LIMIT_S))["b"].kind == "answered"


def test_answers_wait_for_room_at_an_asker_that_takes_nothing_and_hold_up_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "KEPT_BYTES_MAX", 5_000_000)
    name, asked = cluster(), 40
    head, ask = rpc._HEAD.size, rpc._HEAD.pack
    with members(lambda q: "y" * q, name=name) as (a,), join(name, "x", **NEEDED, **PATIENT_JOINER) as other:
        wait_until(lambda: len(a._view) == 2)
        for number in range(asked):
            other.send(ask(rpc._MESSAGE, 0, number, 0) + b"400000", to=a.group.member)
        wait_until(lambda: a.counters.answered == asked)
        assert a.counters.kept > a.counters.unsent > 0
        assert by_name(a.ask(1, to="a", timeout=LIMIT_S)) == {"a": Reply("answered", "y")}  # behind no kept answer
        came = {}
        while len(came) < asked:
            message = other.recv(timeout=LIMIT_S)
            if message.unicast:
                _, kind, number, _ = rpc._HEAD.unpack_from(message.payload)
                came[number] = kind, len(message.payload) - head
        told = [kind for kind, _ in came.values()].count(2)
        assert told == a.counters.unsent and all(size == 400_002 for kind, size in came.values() if kind == 1)
        wait_until(lambda: not a._kept and a._kept_bytes == 0)


def test_answers_for_askers_that_take_nothing_hold_up_none_for_one_that_was_full_for_a_moment() -> None:
    name, asked, settings = cluster(), 100, {"unicast_bytes": 1 << 16}
    with contextlib.ExitStack() as stack:
        (a,) = stack.enter_context(members(lambda q: "y" * q, name=name, **settings))
        x, y, z = (stack.enter_context(join(name, who, **NEEDED, **PATIENT_JOINER, **settings)) for who in "xyz")
        wait_until(lambda: len(a._view) == 4)
        for number in range(asked):
            for other, size in (x, b"20000"), (y, b"20000"), (z, b"1000"):
                other.send(rpc._HEAD.pack(rpc._MESSAGE, 0, number, 0) + size, to=a.group.member)
        wait_until(lambda: a.counters.answered == 3 * asked)
        assert len(a._kept) == 3
        wait_until(lambda: a._kept[x.member.id].pause_s > 0.3 and a._kept[y.member.id].pause_s > 0.3)
        before = time.monotonic()
        for other in z, x, y:
            came = []
            while len(came) < asked:
                message = other.recv(timeout=LIMIT_S)
                if message.unicast:
                    came.append(rpc._HEAD.unpack_from(message.payload)[2])
                assert other is not z or time.monotonic() < before + 5
            assert came == list(range(asked))
            assert other is not z or {x.member.id, y.member.id} <= a._kept.keys()
        wait_until(lambda: not a._kept and a._kept_bytes == 0)


def test_answers_that_are_kept_for_an_asker_that_leaves_are_dropped() -> None:
    name = cluster()
    with members(lambda q: "y" * q, name=name) as (a,):
        with join(name, "x", **NEEDED, **PATIENT_JOINER) as other:
            wait_until(lambda: len(a._view) == 2)
            for number in range(40):
                other.send(rpc._HEAD.pack(rpc._MESSAGE, 0, number, 0) + b"400000", to=a.group.member)
            wait_until(lambda: a.counters.answered == 40)
            assert a._kept
        wait_until(lambda: not a._kept and a._kept_bytes == 0)


def test_a_transitional_question_waits_for_the_next_view_and_later_ones_behind_it() -> None:
    taken: list[Any] = []
    with Rpc(cluster(), taken.append, name="a", **SETTINGS) as a:
        view, me = a.group.view, a.group.member
        a.ask(0, timeout=LIMIT_S)  # the first view has been taken

        def deliver(question: int, *, transitional: bool) -> None:
            payload = rpc._HEAD.pack(rpc._MESSAGE, 0, question, 0) + b"%d" % question
            a._take(seqcast.Message(payload, me, view.view_id, 1, 0, 1, 0, False, transitional))

        deliver(1, transitional=True)
        deliver(2, transitional=False)
        a._send(rpc._Question(me, 0, None, 0), 1, b"0")
        wait_until(lambda: a.counters.late == 1)  # the block is not idle
        assert taken == [0] and len(a._waiting) == 2
        a._take(view)
        wait_until(lambda: taken == [0, 1, 2])
        deliver(3, transitional=True)
        a._take(seqcast.Excluded(view.view_id, "of a test"))
        assert a._waiting == [] and a._held == 0 and a.counters.cancelled == 1


def test_a_member_is_not_gone_by_a_view_older_than_that_in_which_it_was_asked() -> None:
    a, b = seqcast.Member("a", 1), seqcast.Member("b", 2)
    old, of, new = (seqcast.ViewId(counter, 1) for counter in (4, 5, 6))
    ask = rpc._Ask((b,), None, None, of, threading.Event())
    ask.enter(seqcast.View(old, (a,)))
    assert not ask.done.is_set()
    ask.enter(seqcast.View(new, (a,)))
    assert ask.done.is_set() and ask.result() == {b: Reply("gone")}


def test_wrong_uses_are_refused() -> None:
    name = cluster()
    with pytest.raises(seqcast.ConfigError, match="Rpc needs safe=True"):
        Rpc(name, safe=False, **SETTINGS)
    with pytest.raises(seqcast.ConfigError, match="pickle"):
        Rpc(name, codec="pickle", **SETTINGS)
    with join(name, "a", partition="primary") as group, pytest.raises(seqcast.ConfigError, match="Rpc needs safe=True"):
        Rpc(group)
    refused: list[BaseException] = []

    def nested(question: Any) -> None:
        try:
            made.ask(1)
        except seqcast.UsageError as error:
            refused.append(error)

    group = join(cluster(), "a", **NEEDED)
    with pytest.raises(seqcast.UsageError, match="joined already"):
        Rpc(group, name="a")
    with Rpc(group, nested) as made:
        for wrong in ({"to": 0}, {"to": True}, {"to": None}, {"first": 0}, {"first": 1.5}, {"timeout": -1}):
            with pytest.raises(seqcast.UsageError):
                made.ask(1, **wrong)
        with pytest.raises(TypeError):
            made.ask(object())
        assert by_name(made.ask(1, timeout=LIMIT_S)) == {"a": Reply("answered", None)} and len(refused) == 1
        assert made._asks == {}
        group.leave()  # not by the block, which finds out
        wait_until(lambda: bool(made._why))
        with pytest.raises(seqcast.NotReady):
            made.ask(1)


def test_a_cancelled_task_leaves_no_thread_that_asks() -> None:
    async def main() -> None:
        held = Held()
        async with aio.Rpc(cluster(), lambda question: asyncio.to_thread(held, question), name="a", **SETTINGS) as asks:
            asking = asyncio.create_task(asks.ask(1, timeout=None))
            await asyncio.to_thread(held.asked.acquire)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.to_thread(wait_until, lambda: not asks.sync._asks)
            held.may.set()

    asyncio.run(main())


def test_asyncio_a_handler_whose_asker_leaves_is_cancelled() -> None:
    async def main() -> None:
        name, begun, ended = cluster(), asyncio.Event(), asyncio.Event()

        async def handle(question: int) -> int:
            if question == 2:
                return 2
            begun.set()
            try:
                await asyncio.sleep(LIMIT_S)
            finally:
                ended.set()
            return 1

        async with aio.Rpc(name, handle, name="a", **SETTINGS) as one:
            async with aio.Rpc(name, name="b", **SETTINGS) as two:
                asking = asyncio.create_task(two.ask(1, to="a", timeout=None))
                await begun.wait()
            with pytest.raises(seqcast.Undecided):
                await asking
            await asyncio.wait_for(ended.wait(), LIMIT_S / 2)
            assert values(await one.ask(2, to="a", timeout=LIMIT_S)) == {"a": 2}
            counters = one.sync.counters
            assert (counters.answered, counters.failed, counters.cancelled) == (1, 0, 1)

    asyncio.run(main())


def test_asyncio_tasks_that_wait_for_answers_need_no_threads() -> None:
    async def main() -> None:
        async with aio.Rpc(cluster(), lambda question: question, name="a", **SETTINGS) as requests:
            gate, before = asyncio.Event(), threading.active_count()
            requests._handler = lambda _: gate.wait()
            asking = [asyncio.create_task(requests.ask(number, timeout=LIMIT_S)) for number in range(100)]
            await until_all_wait(asking, lambda: len(requests.sync._asks))
            assert threading.active_count() < before + 50
            gate.set()
            assert [values(await each) for each in asking] == [{"a": True}] * 100

    asyncio.run(main())


def test_asyncio_a_question_waits_for_room_without_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with aio.Rpc(cluster(), lambda question: question, name="a", **SETTINGS) as requests:
            send, tries = requests.sync.group.send, list[float | None]()

            def full_at_first(payload: bytes, *, timeout: float | None, **rest: Any) -> None:
                tries.append(timeout)
                if len(tries) == 1:
                    raise seqcast.SendTimeout("full")
                send(payload, timeout=timeout, **rest)

            monkeypatch.setattr(requests.sync.group, "send", full_at_first)
            assert values(await requests.ask(5, timeout=LIMIT_S)) == {"a": 5}
            assert tries[0] == 0 and tries[1] is not None and tries[1] > 1
            monkeypatch.undo()

    asyncio.run(main())


def test_asyncio_asks_and_answers_on_the_loop() -> None:
    async def main() -> None:
        refused: list[seqcast.UsageError] = []

        async def handle(question: int) -> int:
            await asyncio.sleep(0)
            try:
                await requests.ask(1)
            except seqcast.UsageError as error:
                refused.append(error)
            return question * 2

        async with aio.Rpc(cluster(), handle, name="a", **SETTINGS) as requests:
            answers = await asyncio.gather(*(requests.ask(number, timeout=LIMIT_S) for number in range(5)))
            assert [values(each) for each in answers] == [{"a": 2 * number} for number in range(5)]
            assert len(refused) == 5 and requests.sync.counters.answered == 5

    asyncio.run(main())
