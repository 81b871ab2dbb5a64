"""The blocks for asyncio: ``async with seqcast.blocks.aio.ReplicatedDict("settings", name="a", found=2) as settings``.

Each has the methods of the block for threads as coroutines, and that block itself as ``sync``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import secrets
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import seqcast.blocks.closing
import seqcast.blocks.dictionary
import seqcast.blocks.feed
import seqcast.blocks.leader
import seqcast.blocks.lock
import seqcast.blocks.replica
import seqcast.blocks.rpc
from seqcast.api.group import Group
from seqcast.api.own_thread import on_own_thread
from seqcast.arguments import deadline_of, left_until, nanoseconds
from seqcast.blocks.block import Block
from seqcast.blocks.codec import Codec
from seqcast.blocks.dictionary import ABSENT, Change
from seqcast.blocks.feed import Snapshot, Update
from seqcast.blocks.lock import ACQUIRE, ANSWER, HELD, OPERATION, QUEUED, RELEASE_S
from seqcast.blocks.log import Counters, Machine
from seqcast.blocks.outbox import READ, Call
from seqcast.blocks.replica import GUARANTEES, Guarantee
from seqcast.blocks.rpc import Reply
from seqcast.config import Config
from seqcast.errors import NotReady, SendTimeout, Undecided, UsageError
from seqcast.types import Member

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.config.keywords import Settings

M = TypeVar("M", bound=Machine)
B = TypeVar("B", bound=Block)
C = TypeVar("C", bound=seqcast.blocks.closing.Closing)
T = TypeVar("T")

BUSY_S = 0.001
"""Pause between two checks of whether the machine of a replica is free."""
YIELD_S = 0.001
"""A subscriber that always has an item lets other tasks run this often."""


class Closing(ABC):
    """Something that ``async with`` closes."""

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _made(make: Callable[[], C]) -> C:
    """Makes a block that joins a group; after a cancellation, the block is closed."""
    made: list[C] = []
    lock, cancelled = threading.Lock(), False

    def start() -> C:
        each = make()
        with lock:
            made.append(each)
            late = cancelled
        if late:
            each.close()
        return each

    try:
        return await on_own_thread(start)
    except BaseException:
        with lock:
            cancelled = True
            unwanted = made.copy()
        for each in unwanted:
            threading.Thread(target=each.close, name="seqcast-close", daemon=True).start()
        raise


# ---- replicate


def replicate(
    cluster: str,
    machine: M,
    *,
    name: str | None = None,
    config: Config | None = None,
    info: Mapping[str, Any] | None = None,
    ready_s: float = 5.0,
    **settings: Unpack[Settings],
) -> Starting[M]:
    """Joins a group of replicas. Await the call, or use it in ``async with``, which leaves the group. Arguments and
    errors are those of ``seqcast.replicate``. The machine's functions run on a thread of the replica."""
    start = functools.partial(
        seqcast.blocks.replica.replicate,
        cluster,
        machine,
        name=name,
        config=config,
        info=info,
        ready_s=ready_s,
        **settings,
    )
    return Starting(start)


class Starting(Generic[M]):
    """A replica that is being started."""

    def __init__(self, start: Callable[[], seqcast.blocks.replica.Replica[M]]) -> None:
        self._start = start
        self._replica: Replica[M] | None = None

    def __await__(self) -> Generator[Any, None, Replica[M]]:
        return self._run().__await__()

    async def _run(self) -> Replica[M]:
        return Replica(await _made(self._start))

    async def __aenter__(self) -> Replica[M]:
        self._replica = await self._run()
        return self._replica

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._replica is not None
        await self._replica.close()


class Replica(Closing, Generic[M]):
    """A replica for the running event loop; made by ``replicate``.

    Attributes:
        sync: the same replica, for other threads.
    """

    def __init__(self, replica: seqcast.blocks.replica.Replica[M]) -> None:
        self.sync = replica
        self._loop = asyncio.get_running_loop()
        self._answered: deque[asyncio.Future[None]] = deque()
        self._wakes = False  # the loop is to look there

    @property
    def machine(self) -> M:
        """As ``seqcast.Replica.machine``."""
        return self.sync.machine

    @property
    def ready(self) -> bool:
        """As ``seqcast.Replica.ready``."""
        return self.sync.ready

    @property
    def why(self) -> str:
        """As ``seqcast.Replica.why``."""
        return self.sync.why

    @property
    def failed(self) -> BaseException | None:
        """As ``seqcast.Replica.failed``."""
        return self.sync.failed

    def on_failed(self, callback: Callable[[BaseException], object]) -> None:
        """Calls a function on the loop, as ``seqcast.Replica.on_failed`` does on a thread."""
        self.sync.on_failed(functools.partial(_call_soon, self._loop, callback))

    @property
    def group(self) -> Group:
        """As ``seqcast.Replica.group``."""
        return self.sync.group

    @property
    def counters(self) -> Counters:
        """As ``seqcast.Replica.counters``."""
        return self.sync.counters

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits for readiness, as ``seqcast.Replica.wait_ready``."""
        return await on_own_thread(functools.partial(self.sync.wait_ready, timeout))

    async def call(self, operation: bytes, *, timeout: float | None = 5.0) -> bytes:
        """Has every replica apply an operation, as ``seqcast.Replica.call``. The operation of a cancelled call may be
        applied."""
        return self.sync._result(await self._wait_for(self.sync._checked(operation), False, timeout))

    async def call_many(self, operations: Sequence[bytes], *, timeout: float | None = 5.0) -> list[bytes]:
        """Calls several operations, as ``seqcast.Replica.call_many``. The operations of a cancelled call may be
        applied."""
        answered: asyncio.Future[None] = self._loop.create_future()
        calls = self.sync._many(operations, lambda last: Call(last, functools.partial(self._wake_with, answered)))
        if not calls:
            return []
        await self._wait(answered, calls, timeout)
        return self.sync._results(calls)

    async def read(
        self, query: Callable[[M], T], *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0
    ) -> T:
        """Reads the machine, as ``seqcast.Replica.read``."""
        if guarantee not in GUARANTEES:
            return self.sync.read(query, guarantee=guarantee)  # which refuses it
        end = deadline_of(timeout)
        while True:
            if guarantee != "local":
                self.sync._check_read(await self._wait_for(None, guarantee == "read-your-writes", left_until(end)))
            while (found := self.sync._read_now(query, 0.0)) is None:  # the loop goes on meanwhile
                left = left_until(end)
                if left is not None and left <= 0:
                    raise self.sync._is_busy()
                await asyncio.sleep(BUSY_S)
            value, seen = found
            if guarantee != "linearizable" or not seen:
                return value
            call = await self._wait_for(None, False, left_until(end), seen)
            self.sync._check_read(call)
            if call.answer is READ:
                return value

    async def _wait_for(self, operation: bytes | None, own: bool, timeout: float | None, seen: int = 0) -> Call:
        answered: asyncio.Future[None] = self._loop.create_future()
        call = Call(operation, functools.partial(self._wake_with, answered), own, seen)
        await self._wait(answered, [call], timeout)
        return call

    async def _wait(self, answered: asyncio.Future[None], calls: list[Call], timeout: float | None) -> None:
        """Begins calls, and waits for the last."""
        wait_s = None if timeout is None else nanoseconds(timeout) / 1e9
        waits = None
        try:
            if not self.sync._begin(*calls):
                if wait_s is not None:
                    waits = self._loop.call_later(wait_s, _end, answered)
                await answered
        finally:
            if waits is not None:
                waits.cancel()
            if calls[-1].answer is None:
                self.sync._give_up(*calls)

    def _wake_with(self, answered: asyncio.Future[None]) -> None:
        """On the replica's thread. The calls that one message answers wake the loop once."""
        self._answered.append(answered)
        if not self._wakes:
            self._wakes = True
            _call_soon(self._loop, self._woken)

    def _woken(self) -> None:
        self._wakes = False
        while self._answered:
            _end(self._answered.popleft())

    def set_info(self, info: Mapping[str, Any]) -> None:
        """Gives this member another info, as ``seqcast.Replica.set_info``."""
        self.sync.set_info(info)

    async def close(self) -> None:
        """Leaves the group, as ``seqcast.Replica.close``."""
        await on_own_thread(self.sync.close)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Has a loop call this, from any thread; a loop that is closed does not."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _end(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


# ---- blocks over a replica


class _Over(Closing, Generic[B]):
    """A block for asyncio. Alone, a block joins in ``async with``; or give its ``sync`` to ``replicate``, alone or in
    ``Parts``.

    Attributes:
        sync: the same block, for other threads.
    """

    def __init__(self, sync: B, cluster: str | None, join: dict[str, Any]) -> None:
        self.sync = sync
        self._start = None if cluster is None else functools.partial(replicate, cluster, cast("Machine", sync), **join)
        self._owned: Replica[Any] | None = None
        self._of: Replica[Any] | None = None

    async def __aenter__(self) -> Self:
        if self._start is None:
            raise UsageError("this block has no cluster to join: give its `sync` to replicate")
        self._owned = self._of = await self._start()
        return self

    async def close(self) -> None:
        """Leaves the group, if the block has joined by itself."""
        if self._owned is not None:
            await self._owned.close()

    @property
    def replica(self) -> Replica[Any]:
        """The replica, for ``ready``, ``why`` and ``group``.

        Raises:
            UsageError: there is none yet.
        """
        if self._of is None:
            self._of = Replica(self.sync.replica)
        return self._of

    async def _call(self, operation: bytes, timeout: float | None) -> bytes:
        return await self.replica.call(self.sync._prefix + operation, timeout=timeout)

    async def _read(self, query: Callable[[], T], guarantee: Guarantee, timeout: float | None) -> T:
        return await self.replica.read(lambda _: query(), guarantee=guarantee, timeout=timeout)


class ReplicatedDict(_Over[seqcast.blocks.dictionary.ReplicatedDict]):
    """A dictionary that all members share, as ``seqcast.blocks.ReplicatedDict``, whose arguments it takes."""

    def __init__(
        self,
        cluster: str | None = None,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        ready_s: float = 5.0,
        **settings: Unpack[Settings],
    ) -> None:
        join = {"name": name, "info": info, "ready_s": ready_s, **settings}
        super().__init__(seqcast.blocks.dictionary.ReplicatedDict(codec=codec), cluster, join)

    async def get(
        self, key: str, default: Any = None, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0
    ) -> Any:
        """The value of a key, or ``default``."""
        found = await self._read(lambda: self.sync._data.get(key), guarantee, timeout)
        return default if found is None else self.sync._codec.loads(found)

    async def copy(self, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0) -> dict[str, Any]:
        """All keys and values at one moment."""
        found = await self._read(lambda: dict(self.sync._data), guarantee, timeout)
        return {key: self.sync._codec.loads(value) for key, value in found.items()}

    async def set(self, key: str, value: Any, *, ttl_s: float | None = None, timeout: float | None = 5.0) -> Any:
        """Sets a key; returns the value before, or ABSENT."""
        return self.sync._old(await self._call(self.sync._operation(key, value, ttl_s), timeout))

    async def pop(self, key: str, *, timeout: float | None = 5.0) -> Any:
        """Deletes a key; returns its value, or ABSENT if there was none."""
        return await self.set(key, ABSENT, timeout=timeout)

    async def compare_and_set(
        self, key: str, expected: Any, value: Any, *, ttl_s: float | None = None, timeout: float | None = 5.0
    ) -> bool:
        """Sets a key, or deletes it (``value=ABSENT``), if its value is the expected one. False: nothing was
        changed."""
        return self.sync._was_done(await self._call(self.sync._condition(key, expected, value, ttl_s), timeout))

    def on_change(self, callback: Callable[[Change], object]) -> None:
        """Calls a function with each change from now on, in the order in which all members have them, on the loop."""
        loop = asyncio.get_running_loop()
        self.sync.on_change(functools.partial(_call_soon, loop, callback))


class Lock(_Over[seqcast.blocks.lock.Lock]):
    """A lock that one task of one member holds at a time, as ``seqcast.blocks.Lock``, whose arguments it takes."""

    def __init__(
        self,
        cluster: str | None = None,
        *,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        ready_s: float = 5.0,
        **settings: Unpack[Settings],
    ) -> None:
        join = {"name": name, "info": info, "ready_s": ready_s, **settings}
        super().__init__(seqcast.blocks.lock.Lock(), cluster, join)

    async def acquire(self, timeout: float | None = None) -> int:
        """Waits for the lock, and returns its fence. A cancelled task leaves the queue, and gives back a lock that
        comes all the same."""
        end, sync = deadline_of(timeout), self.sync
        while True:
            if not self.replica.ready and not await self.replica.wait_ready(left_until(end)):
                raise NotReady(f"the lock cannot be had: {self.replica.why}")
            request = self.replica.group.member.id, secrets.randbits(62)
            try:
                (answer,) = ANSWER.unpack(await self._call(OPERATION.pack(ACQUIRE, *request), left_until(end)))
                if answer == QUEUED:
                    answer = await self._wait(request, end)
            except BaseException:
                sync._withdraw(request)
                raise
            if answer > 0:
                return int(answer)

    async def _wait(self, request: tuple[int, int], end: float | None) -> int:
        """As ``_wait`` of the block for threads."""
        loop, sync = asyncio.get_running_loop(), self.sync
        told: asyncio.Future[None] = loop.create_future()

        with sync._changed:
            if (found := sync._look(request)) is not None:
                return found
            sync._tasks[request] = functools.partial(_call_soon, loop, _end, told)
        try:
            await asyncio.wait([told], timeout=left_until(end))
        finally:
            with sync._changed:
                sync._tasks.pop(request, None)
                found = sync._look(request)
        if found is None:
            raise NotReady(HELD)
        return found

    async def release(self, fence: int, *, timeout: float | None = RELEASE_S) -> bool:
        """Gives the lock back; False: the lock was lost before, as this member was excluded."""
        return await on_own_thread(functools.partial(self.sync.release, fence, timeout=timeout))

    @contextlib.asynccontextmanager
    async def hold(self, timeout: float | None = None) -> AsyncIterator[int]:
        """``async with lock.hold() as fence:`` holds the lock, with the errors of ``seqcast.blocks.Lock.hold``."""
        fence = await self.acquire(timeout)
        try:
            yield fence
        except BaseException:
            with contextlib.suppress(Undecided, NotReady):
                await self.release(fence)
            raise
        self.sync._check_held(fence, await self.release(fence))

    def holds(self, fence: int) -> bool:
        """Does this process hold the lock with this fence, to its knowledge?"""
        return self.sync.holds(fence)

    async def fence(self, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0) -> int:
        """The fence of the last holder."""
        return await self._read(lambda: self.sync._fence, guarantee, timeout)


# ---- leader, requests


def _on_loop(function: Callable[..., object]) -> Callable[..., Any]:
    """Makes a function or coroutine function callable from another thread, which waits for the result."""
    loop = asyncio.get_running_loop()

    async def run(*arguments: object) -> object:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    return lambda *arguments: asyncio.run_coroutine_threadsafe(run(*arguments), loop).result()


def on_leader(
    replica: Replica[Any], start: Callable[[int], object], stop: Callable[[], object] | None = None
) -> Leader:
    """Has this member lead while it is the coordinator, as ``seqcast.blocks.on_leader``. ``start(fence)`` and
    ``stop()`` run on the loop, and may be coroutine functions; each waits for the end of the call before."""

    def on_loop(function: Callable[..., object]) -> Callable[..., object]:
        call = _on_loop(function)

        def run(*arguments: object) -> None:
            with contextlib.suppress(SystemExit):  # which ends the loop
                call(*arguments)

        return run

    sync = seqcast.blocks.leader.on_leader(replica.sync, on_loop(start), None if stop is None else on_loop(stop))
    return Leader(sync)


class Leader(Closing):
    """The result of ``on_leader``.

    Attributes:
        sync: the same, for other threads.
    """

    def __init__(self, sync: seqcast.blocks.leader.Leader) -> None:
        self.sync = sync

    @property
    def fence(self) -> int:
        """The fence of this leader; 0 if this member does not lead, to its knowledge."""
        return self.sync.fence

    async def close(self) -> None:
        """Leads no more; returns when ``stop`` has returned."""
        await on_own_thread(self.sync.close)


class Rpc(Closing):
    """Requests in a group, as ``seqcast.blocks.Rpc``, whose arguments it takes. Joins in ``async with``. The handler
    runs on the loop, for one question after the other, and may be a coroutine function, which is cancelled when the
    asker leaves the group.

    Attributes:
        sync: the same, for other threads; only inside ``async with``.
    """

    sync: seqcast.blocks.rpc.Rpc

    def __init__(
        self,
        group: Group | str,
        handler: Callable[[Any], Any] | None = None,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        config: Config | None = None,
        info: Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self._handler = handler
        self._answering: asyncio.Task[Any] | None = None
        self._join = functools.partial(
            seqcast.blocks.rpc.Rpc, group, codec=codec, name=name, config=config, info=info, **settings
        )

    async def __aenter__(self) -> Self:
        handler = None if self._handler is None else _on_loop(self._answer)
        self.sync = await _made(functools.partial(self._join, handler=handler))
        loop = asyncio.get_running_loop()
        self.sync._on_gone = functools.partial(_call_soon, loop, self._cancel)
        return self

    def _cancel(self) -> None:
        """The asker has left, unless the handler has another question meanwhile."""
        if self._answering is not None and self.sync._is_needless():
            self._answering.cancel()

    async def _answer(self, question: Any) -> Any:
        assert self._handler is not None
        self._answering = asyncio.current_task()
        if hasattr(self, "sync"):  # else this is still being entered
            self._cancel()  # if the asker has left just now
        answer = self._handler(question)
        return await answer if inspect.isawaitable(answer) else answer

    async def ask(
        self, payload: Any, *, to: Member | str | int = "all", first: int | None = None, timeout: float | None = 5.0
    ) -> dict[Member, Reply]:
        """Asks members, and waits for their replies, as ``seqcast.blocks.Rpc.ask``."""
        if asyncio.current_task() is self._answering:
            raise UsageError("a handler cannot ask, as answers would wait behind it: ask in another task")
        end, done = deadline_of(timeout), _Done()
        try:
            with self.sync._asking(payload, to, first, 0.0, done) as ask:
                await asyncio.wait([done.told], timeout=left_until(end))
            return ask.result()
        except SendTimeout:  # there is no room just now: a thread waits for some
            return await on_own_thread(functools.partial(self.sync._ask, payload, to, first, left_until(end), done))
        finally:
            done.set()  # if cancelled, the thread ends, too

    async def close(self) -> None:
        """Leaves the group."""
        await on_own_thread(self.sync.close)


class _Done(threading.Event):
    """An event that tells the running loop, too.

    Attributes:
        told: has a result once this is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.told: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        if not self.is_set():
            super().set()
            _call_soon(self._loop, _end, self.told)


# ---- feed


class Feed(Closing):
    """The last value of each key, as ``seqcast.blocks.Feed``, whose arguments it takes. Joins in ``async with``::

        async with Feed("prices", name="a") as feed, feed.subscribe(behind_s=0.5) as subscriber:
            await feed.publish("tea", 100.5)
            async for item in subscriber:
                print(item)

    Attributes:
        sync: the same, for other threads; only inside ``async with``.
    """

    sync: seqcast.blocks.feed.Feed

    def __init__(
        self,
        cluster: str,
        *,
        codec: str | Codec = "json",
        name: str | None = None,
        config: Config | None = None,
        info: Mapping[str, Any] | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self._join = functools.partial(
            seqcast.blocks.feed.Feed, cluster, codec=codec, name=name, config=config, info=info, **settings
        )

    async def __aenter__(self) -> Self:
        self.sync = await _made(self._join)
        return self

    @property
    def group(self) -> Group:
        """As ``seqcast.blocks.Feed.group``."""
        return self.sync.group

    @property
    def counters(self) -> seqcast.blocks.feed.Counters:
        """As ``seqcast.blocks.Feed.counters``."""
        return self.sync.counters

    async def publish(self, key: str, value: Any, *, timeout: float | None = None) -> None:
        """Gives a key another value, as ``seqcast.blocks.Feed.publish``. The value of a cancelled call may be
        published."""
        end = deadline_of(timeout)
        try:
            return self.sync.publish(key, value, timeout=0.0)
        except SendTimeout:
            if timeout == 0:
                raise
        await on_own_thread(functools.partial(self.sync.publish, key, value, timeout=left_until(end)))

    async def snapshot(self) -> Snapshot:
        """All values now."""
        return await on_own_thread(self.sync.snapshot)

    def subscribe(self, *, behind_s: float | None = 1.0) -> Subscriber:
        """All values now, and each change from now on, as ``seqcast.blocks.Feed.subscribe``."""
        return Subscriber(self.sync.subscribe(behind_s=behind_s))

    async def close(self) -> None:
        """Leaves the group, as ``seqcast.blocks.Feed.close``."""
        await on_own_thread(self.sync.close)


class Subscriber(Closing, AsyncIterator[Snapshot | Update]):
    """Made by ``Feed.subscribe``: an iterator of one task, which begins with a snapshot.

    Attributes:
        sync: the same, for other threads.
    """

    def __init__(self, sync: seqcast.blocks.feed.Subscriber) -> None:
        self.sync = sync
        self._loop = asyncio.get_running_loop()
        self._yielded = self._loop.time()
        self._waiter: asyncio.Future[None] | None = None  # under the lock of the feed
        sync._on_news = self._wake

    async def recv(self, timeout: float | None = None) -> Snapshot | Update | None:
        """The next item, as ``seqcast.blocks.Subscriber.recv``. A cancelled call loses nothing.

        Raises:
            UsageError: another task waits for the next item.
        """
        end = deadline_of(timeout)
        if self._loop.time() - self._yielded > YIELD_S:
            await self._waited(asyncio.sleep(0))
        while True:
            with self.sync._feed._lock:
                if self.sync._has_next():
                    is_snapshot, read = self.sync._take()
                    break
                if self._waiter is not None:
                    raise UsageError("another task waits for the next item: give each task its own subscriber")
                left = left_until(end)
                if left is not None and left <= 0:
                    return None
                waiter = self._waiter = self._loop.create_future()
            await self._waited(self._news(waiter, left))
        if not is_snapshot:
            return read()
        try:
            return await self._waited(on_own_thread(read))  # many values take long
        except asyncio.CancelledError:
            self.resync()
            raise

    async def _waited(self, wait: Awaitable[T]) -> T:
        """Waits, while other tasks run."""
        try:
            return await wait
        finally:
            self._yielded = self._loop.time()

    async def _news(self, waiter: asyncio.Future[None], left: float | None) -> None:
        ends = None if left is None else self._loop.call_later(left, _end, waiter)
        try:
            await waiter
        finally:
            if ends is not None:
                ends.cancel()
            with self.sync._feed._lock:
                if self._waiter is waiter:
                    self._waiter = None

    def _wake(self) -> None:
        """Under the lock of the feed. All updates that come before the loop looks wake it once."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            _call_soon(self._loop, _end, waiter)

    def resync(self) -> None:
        """The next item is a snapshot, in place of all updates that wait."""
        self.sync.resync()

    async def close(self) -> None:
        """Ends the subscription. A loop in another task ends, too."""
        self.sync.close()

    async def __anext__(self) -> Snapshot | Update:
        try:
            return cast("Snapshot | Update", await self.recv())
        except NotReady:
            raise StopAsyncIteration from None
