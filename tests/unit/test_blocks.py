"""The machines of the blocks: dictionary, lock, parts, codecs."""

from __future__ import annotations

import asyncio
import io
import json
import math
import pickle
import random
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from counting import Counting
from members import wait_until

import seqcast
import seqcast.blocks.outbox
import seqcast.blocks.replica
import seqcast.net.threads as threads
from seqcast.blocks import ABSENT, Change, Lock, Machine, Parts, ReplicatedDict, aio
from seqcast.blocks.codec import codec_of
from seqcast.blocks.leader import Leader
from seqcast.blocks.lock import ACQUIRE, ANSWER, OPERATION
from seqcast.errors import ConfigError, NotReady, Undecided, UsageError
from seqcast.events import Unblocked
from seqcast.types import Member, View, ViewId

SECOND = 10**9
VIEW = View(ViewId(9, 1), (Member("a", 1),))


class Direct:
    """In place of a replica: applies calls at once."""

    def __init__(self, machine: Any, me: int = 1) -> None:
        self.machine, self._me = machine, me
        machine.bind(self)

    def call(self, operation: bytes, *, timeout: float | None) -> bytes:
        answer: bytes = self.machine.apply(operation)
        return answer

    def add_callback(self, callback: Any) -> None:
        pass

    def read(self, query: Any, *, guarantee: str, timeout: float | None) -> Any:
        return query(self.machine)


def moved(machine: Any, other: Any) -> Any:
    """Another machine with this one's state."""
    written = io.BytesIO()
    machine.snapshot(written.write)
    written.seek(0)
    other.restore(written.read)
    assert written.read() == b""
    return other


def a_dict(**settings: Any) -> ReplicatedDict:
    made = ReplicatedDict(**settings)
    Direct(made)
    return made


def test_a_dictionary_behaves_as_a_dict() -> None:
    rng, made, plain = random.Random(1), a_dict(), dict[str, Any]()
    for number in range(2000):
        key, value = rng.choice("abcdé"), rng.choice([None, number, "x" * number, [1, {"a": 2}]])
        match rng.randrange(5):
            case 0:
                made[key] = plain[key] = value
            case 1:
                assert made.pop(key) == plain.pop(key, ABSENT)
            case 2:
                assert made.set(key, value) == plain.get(key, ABSENT)
                plain[key] = value
            case 3:
                expected = rng.choice([plain.get(key, ABSENT), ABSENT, 7])
                assert made.compare_and_set(key, expected, value) == (plain.get(key, ABSENT) == expected)
                if plain.get(key, ABSENT) == expected:
                    plain[key] = value
            case 4:
                assert made.get(key, "none") == plain.get(key, "none") and (key in made) == (key in plain)
    assert made.copy() == plain and len(made) == len(plain) and list(made) == list(plain)
    assert a_dict().copy() == {} and moved(made, a_dict()).copy() == plain
    with pytest.raises(KeyError):
        del a_dict()["x"]
    with pytest.raises(KeyError):
        a_dict()["x"]


def test_a_value_that_was_read_is_a_copy() -> None:
    made = a_dict()
    made["a"] = [1]
    made["a"].append(2)
    assert made["a"] == [1]


def test_compare_and_set_deletes_and_creates() -> None:
    made = a_dict()
    assert made.compare_and_set("a", ABSENT, {"x": 1, "y": 2}) and not made.compare_and_set("a", ABSENT, 2)
    assert made.compare_and_set("a", {"y": 2, "x": 1}, ABSENT) and "a" not in made


def test_entries_end_by_the_time_of_the_group_at_the_same_place_everywhere() -> None:
    made = a_dict()
    made.heard(5 * SECOND)
    made.set("a", 1, ttl_s=1.0)
    made.set("b", 2, ttl_s=2.0)
    made.set("c", 3, ttl_s=1.0)
    made["c"] = 4  # set again, without an end
    assert made.due() == 6 * SECOND
    other = moved(made, a_dict())
    for each in (made, other):
        each.heard(6 * SECOND - 1)
        assert each.copy() == {"a": 1, "b": 2, "c": 4}
        each.heard(6 * SECOND)
        assert each.copy() == {"b": 2, "c": 4} and each.due() == 7 * SECOND
        each.heard(10 * SECOND)
        assert each.copy() == {"c": 4} and each.due() is None


def test_memory_of_ends_is_bounded() -> None:
    made = a_dict()
    for _ in range(1000):
        made.set("a", 1, ttl_s=5.0)
    assert len(made._heap) < 20


def test_changes_are_told_in_order_and_after_a_restore_the_differences() -> None:
    made, told = a_dict(), list[Change]()
    made.on_change(lambda _: 1 / 0)  # disturbs nobody
    made.on_change(told.append)
    made["a"] = 1
    made["a"] = 1  # no change
    made["a"] = 2
    made.set("b", 3, ttl_s=1.0)
    made.heard(2 * SECOND)
    del made["a"]
    assert told == [("a", 1, ABSENT), ("a", 2, 1), ("b", 3, ABSENT), ("b", ABSENT, 3), ("a", ABSENT, 2)]
    made["x"] = made["y"] = 1
    told.clear()
    others = a_dict()
    others["y"] = others["z"] = 2
    moved(others, made)
    assert told == [("x", ABSENT, 1), ("y", 2, 1), ("z", 2, ABSENT)]


def test_a_value_that_the_codec_cannot_read_changes_the_state_though_somebody_watches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched, told = a_dict(), list[Change]()
    watched.on_change(told.append)
    machines = watched, a_dict()
    foreign = a_dict(codec=SimpleNamespace(dumps=lambda _: b"\xff", loads=bytes))
    operations = [foreign._operation("a", 1, 1.0), foreign._operation("b", 1, None), watched._operation("b", 2, None)]
    assert [[each.apply(operation) for operation in operations] for each in machines] == [
        [b"\1\0", b"\1\0", b"\1\1\xff"]
    ] * 2
    for each in machines:
        each.heard(2 * SECOND)
    assert [each._data for each in machines] == [{"b": b"2"}] * 2 and told == []
    assert caplog.text.count("(SC4002)") == 4
    moved(a_dict(), watched)
    assert [change[:2] for change in told] == [("b", ABSENT)]


def test_wrong_keys_and_times_are_refused() -> None:
    for wrong in (1, None, b"a"):
        with pytest.raises(UsageError, match="a key is text"):
            a_dict()[wrong] = 1
    for ttl_s in (0, -1.0, float("nan"), 1e-10, 1e9, "1"):
        with pytest.raises(UsageError, match=r"ttl_s=.* must be a number of seconds from 1e-9 to below 1e9, or None"):
            a_dict().set("a", 1, ttl_s=ttl_s)


def test_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codec_of(json_bytes := codec_of("json")) is json_bytes
    assert json_bytes.dumps({"b": 1, "a": [None]}) == b'{"a":[null],"b":1}'
    for refused in ("pickle", pickle):
        with pytest.raises(ConfigError, match="run code in every member"):
            codec_of(refused)
    for wrong in ("yaml", json.dumps):
        with pytest.raises(ConfigError, match="must be 'json'"):
            codec_of(wrong)
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ConfigError, match=r"pip install 'seqcast\[msgpack\]'"):
        codec_of("msgpack")


def test_msgpack_keeps_its_own_types_and_equal_values_of_a_dictionary_are_the_same_bytes() -> None:
    msgpack: Any = pytest.importorskip("msgpack")
    plain, packed = codec_of("msgpack"), a_dict(codec="msgpack")._codec
    of_msgpack = [msgpack.ExtType(5, b"x"), {1: msgpack.ExtType(6, b"")}, msgpack.Timestamp(7, 8)]
    for value in ([b"x", 1], {"a": {1: None, -1: [{}]}}, of_msgpack, *of_msgpack):
        assert packed.loads(packed.dumps(value)) == value == plain.loads(plain.dumps(value))
    assert type(packed.loads(packed.dumps(of_msgpack[0]))) is msgpack.ExtType
    one, two = {"a": 1, "b": [({2: 3, 1: 2},)]}, {"b": [({1: 2, 2: 3},)], "a": 1}
    assert packed.dumps(one) == packed.dumps(two) and plain.dumps(one) != plain.dumps(two)


def lock_of(me: int, *present: int) -> Lock:
    made = Lock()
    Direct(made, me)
    made.entered(present)
    return made


def ask(lock: Lock, member: int, number: int, kind: bytes = b"A") -> int:
    from seqcast.blocks.lock import ANSWER, OPERATION

    answer: int = ANSWER.unpack(lock.apply(OPERATION.pack(kind, member, number)))[0]
    return answer


def test_a_lock_goes_to_those_who_asked_in_their_order_and_fences_grow() -> None:
    lock = lock_of(1, 1, 2, 3)
    assert [ask(lock, 2, 20), ask(lock, 3, 30), ask(lock, 1, 10), ask(lock, 2, 21)] == [1, 0, 0, 0]
    assert ask(lock, 2, 20, b"R") == 0 and lock._queue[0] == (3, 30) and lock._fence == 2
    assert ask(lock, 2, 20, b"R") == -1  # not held any more
    other = moved(lock, lock_of(1))
    for each in (lock, other):
        each.entered([1, 2])  # the holder crashed
        assert each._queue == [(1, 10), (2, 21)] and each._fence == 3 and each._own == {10: 3}
        assert ask(each, 3, 31) == -1  # of a member that is gone
        assert ask(each, 2, 21, b"R") == 0 and each._fence == 3  # the lock waits no more
        assert each.release(3) and not each.release(3) and each._queue == []
        assert ask(each, 2, 22) == 4


def test_a_member_that_comes_back_does_not_hold_the_lock_of_its_last_life() -> None:
    """The joiner may take over a state of before the others entered a view without that one."""
    lock = lock_of(1, 1, 2)
    ask(lock, 1, 10)
    state: list[bytes] = []
    lock.snapshot(state.append)
    assert lock.holds(1)
    lock._follow(None)
    lock.restore(io.BytesIO(b"".join(state)).read)
    assert not lock.holds(1)


def test_a_replica_that_fails_as_soon_as_it_is_in_its_group_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    me = SimpleNamespace(id=1)
    status = SimpleNamespace(reason="")
    group = SimpleNamespace(member=me, status=status, leave=left.append, close_journal=lambda: left.append(-1.0))
    monkeypatch.setattr(seqcast.blocks.replica, "join", lambda *_, **__: group)
    monkeypatch.setattr(seqcast.blocks.outbox.Outbox, "rejoined", lambda *_: 1 / 0)
    with pytest.raises(NotReady, match="ZeroDivisionError"):
        seqcast.replicate("failing", Counting(), name="a", partition="primary")
    assert left == [0, -1.0]


def test_parts_are_called_by_their_index_and_keep_their_states_apart() -> None:
    def parts() -> Parts:
        return Parts(ReplicatedDict(), Counting(), Lock())

    one, two = parts(), parts()
    direct = Direct(one)
    one.machines[0]["a"] = 1
    one.entered([1])
    one.heard(SECOND)
    one.machines[0].set("b", 1, ttl_s=1.0)
    assert direct.call(b"\x015", timeout=1) == b"5" and one.due() == 2 * SECOND
    Direct(two)
    moved(one, two)
    assert two.machines[0].copy() == {"a": 1, "b": 1}
    assert two.machines[1].total == 5 and two.machines[2]._present == {1}
    for wrong in (b"", b"\x03"):
        with pytest.raises(UsageError, match="does not have"):
            one.apply(wrong)
    with pytest.raises(UsageError):
        Parts()
    with pytest.raises(UsageError, match="has a replica already"):
        Direct(one)
    with pytest.raises(UsageError, match="has no replica"):
        ReplicatedDict()["a"] = 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: Parts(ReplicatedDict()), lambda: Parts(ReplicatedDict(), ReplicatedDict())),
        (lambda: Parts(ReplicatedDict(), Lock()), lambda: Parts(Lock(), ReplicatedDict())),
        (ReplicatedDict, lambda: Parts(ReplicatedDict())),
        (Lock, ReplicatedDict),
    ],
)
def test_a_state_of_other_machines_is_refused(ours: Callable[[], Machine], theirs: Callable[[], Machine]) -> None:
    for one, two in ((ours(), theirs()), (theirs(), ours())):
        with pytest.raises(UsageError, match=r"the state of the group is one of .* give all members the same machines"):
            moved(one, two)


def test_a_release_that_the_group_did_not_answer_is_sent_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock()
    group = Direct(lock)
    lock.entered([1])
    (fence,) = ANSWER.unpack(group.call(OPERATION.pack(ACQUIRE, 1, 42), timeout=None))
    answers, apply = [Undecided("not sent")], group.call

    def call(operation: bytes, *, timeout: float | None) -> bytes:
        if answers:
            raise answers.pop()
        return apply(operation, timeout=timeout)

    monkeypatch.setattr(group, "call", call)
    with pytest.raises(Undecided):
        lock.release(fence)
    for thread in threading.enumerate():
        if thread.name == "seqcast-lock":
            thread.join()
    assert lock._queue == [] and not lock.holds(fence)


def test_wrong_times_are_refused_before_anything_is_sent_or_made() -> None:
    async def main(wrong: Any) -> None:
        begun: list[Any] = []
        sync: Any = SimpleNamespace(_result=bytes, _checked=bytes, _give_up=lambda *_: None)
        sync._begin = lambda *calls: begun.append(calls)
        sync._many = lambda operations, last: [last(each) for each in operations]
        replica = aio.Replica(sync)
        for work in (replica.call(b"1", timeout=wrong), replica.call_many([b"1"], timeout=wrong)):
            with pytest.raises(UsageError, match="timeout="):
                await work
        assert begun == []

    for wrong in (-1, "soon", math.nan):
        asyncio.run(main(wrong))
        lock = Lock()
        with pytest.raises(UsageError, match="ready_s="):
            seqcast.replicate("wrong", lock, name="a", partition="primary", found=2, ready_s=wrong)
        Direct(lock)
        lock.entered([1])
        (fence,) = ANSWER.unpack(lock.apply(OPERATION.pack(ACQUIRE, 1, 42)))
        with pytest.raises(UsageError, match="timeout="):
            lock.release(fence, timeout=wrong)
        assert lock.holds(fence) and lock._queue == [(1, 42)]


def test_a_function_of_on_failed_may_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr("os._exit", ends.append)
    monkeypatch.setattr("_thread.interrupt_main", lambda: ends.append(-2))
    replica = seqcast.blocks.replica.Replica("failing", Counting(), "a", seqcast.Config())
    told: list[BaseException] = []

    def interrupt(_: BaseException) -> None:
        raise KeyboardInterrupt

    functions = {
        3: lambda _: sys.exit(3), 0: lambda _: sys.exit(), 1: lambda _: sys.exit("the disk is full"), -2: interrupt,
    }  # fmt: skip
    for wanted, function in functions.items():
        replica._tell_failed([function, told.append], ZeroDivisionError())
        wait_until(lambda: bool(ends))
        assert ends.pop() == wanted
    wait_until(lambda: len(told) == len(functions))
    never = threading.Event()
    replica._tell_failed([functions[3], lambda _: never.wait()], ZeroDivisionError())
    wait_until(lambda: bool(ends))
    never.set()
    assert ends == [3], "another function is not waited for"


@pytest.mark.parametrize("fault", [ValueError, None])
def test_an_exit_waits_for_no_stream(monkeypatch: pytest.MonkeyPatch, fault: type[Exception] | None) -> None:
    """The standard error is closed; or another thread holds its lock, in a write to a full pipe."""
    ends, never = list[int](), threading.Event()

    def write(_: str = "") -> None:
        if fault is not None:
            raise fault
        never.wait()

    monkeypatch.setattr("os._exit", ends.append)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=write, flush=write))
    monkeypatch.setattr(threads, "FLUSHED_S", 0.02)
    thread = threading.Thread(target=threads.exit_now, args=[SystemExit("the disk is full")], daemon=True)
    thread.start()
    wait_until(lambda: bool(ends))
    never.set()
    assert ends == [1]


def test_a_closed_leader_leads_no_more_and_watches_no_more() -> None:
    callbacks: list[Any] = []
    replica: Any = SimpleNamespace(_me=1, add_callback=callbacks.append, remove_callback=callbacks.remove)
    started: list[int] = []
    leader = Leader(replica, started.append, lambda: None)
    wait_until(lambda: bool(callbacks))
    (callback,) = callbacks
    leader.close()
    assert callbacks == []
    leader._view = VIEW
    callback(Unblocked.__new__(Unblocked))  # a call that was under way
    assert leader.fence == 0 and started == []


def test_a_leader_that_exits_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr("os._exit", ends.append)
    callbacks: list[Any] = []
    replica: Any = SimpleNamespace(_me=1, add_callback=callbacks.append, remove_callback=callbacks.remove)
    with Leader(replica, lambda _: sys.exit(4), lambda: None):
        wait_until(lambda: bool(callbacks))
        callbacks[0](VIEW)
        wait_until(lambda: bool(ends))
    assert ends == [4]


def test_a_dictionary_of_a_loop_that_is_closed_tells_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> aio.ReplicatedDict:
        made = aio.ReplicatedDict()
        made.on_change(print)
        return made

    made = asyncio.run(main())
    Direct(made.sync)
    made.sync["a"] = 1
    assert not caplog.records


@pytest.mark.parametrize("late", [False, True])
def test_a_replica_whose_start_is_cancelled_is_closed(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def start(*_: Any, **__: Any) -> Any:
        begun.set()
        go_on.wait()
        return SimpleNamespace(close=closed.set)

    async def main() -> None:
        task = asyncio.ensure_future(aio.replicate("k", Counting())._run())
        await asyncio.to_thread(begun.wait)
        if not late:
            go_on.set()
            threads = [thread for thread in threading.enumerate() if thread.name == "seqcast-aio"]
            for thread in threads:
                thread.join()  # the result waits for the loop
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 5)

    monkeypatch.setattr("seqcast.blocks.replica.replicate", start)
    asyncio.run(asyncio.wait_for(main(), 10))
