"""The same group for asyncio: ``async with seqcast.aio.join("orders") as group``.

Deliveries make one file descriptor readable, which the event loop watches; nothing is queued per message. Event loops
without ``add_reader`` (the default on Windows) wait in a thread instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import seqcast.api.group
from seqcast._native import driver
from seqcast._native.engine import Batch, Message
from seqcast.api.base import Uncopied
from seqcast.api.own_thread import on_own_thread
from seqcast.api.pausing import too_early
from seqcast.api.receiving import Event
from seqcast.arguments import as_list, deadline_of, left_until
from seqcast.config import Config
from seqcast.errors import NotMember, SendTimeout
from seqcast.net.state import StateHandler
from seqcast.net.threads import is_ending, on_thread_or_here
from seqcast.types import Marks, Member, MembershipPolicy, OrderPolicy, SequencerPolicy, Status, View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from seqcast.config.keywords import Order, Settings
    from seqcast.crowd.aio import JoiningCrowd
    from seqcast.crowd.settings import CrowdSettings
    from seqcast.events import Excluded

T = TypeVar("T")

POLL_S = 0.005
THREAD_WAIT_S = 0.1
_received: ContextVar[int] = ContextVar("seqcast-received", default=0)
"""Id of the task that has received: also in the tasks that it starts afterwards, for which it may wait."""


def join(
    cluster: str,
    *,
    name: str | None = None,
    order: Order | OrderPolicy = "total",
    state: StateHandler | None = None,
    config: Config | None = None,
    on_block: Callable[[Group], Any] | None = None,
    on_unblock: Callable[[Group], Any] | None = None,
    membership_policy: MembershipPolicy | None = None,
    sequencer_policy: SequencerPolicy | None = None,
    min_members: int = 1,
    rejoin: bool | Callable[[Excluded], object] = False,
    info: Mapping[str, Any] | None = None,
    **settings: Unpack[Settings],
) -> Joining:
    """Joins a group. Await the call, pass it to ``asyncio.create_task``, or use it in ``async with``, which leaves the
    group. Arguments and errors are those of ``seqcast.join``; ``on_block`` and ``on_unblock`` get the asyncio group,
    may be coroutine functions, and run on the event loop."""
    others: dict[str, Any] = {
        "name": name, "order": order, "state": state, "config": config, "membership_policy": membership_policy,
        "sequencer_policy": sequencer_policy, "min_members": min_members, "rejoin": rejoin,
        "info": info,
    }  # fmt: skip
    return Joining(cluster, {**others, **settings}, on_block, on_unblock)


def join_crowd(cluster: str, *, settings: CrowdSettings | None = None, **changes: Any) -> JoiningCrowd:
    """Joins a crowd. Await the call, or use it in ``async with``, which leaves the crowd. Arguments and errors are
    those of ``seqcast.join_crowd``."""
    from seqcast.crowd.aio import JoiningCrowd  # here: groups need none of it

    return JoiningCrowd(cluster, settings, changes)


class Joining(Coroutine[Any, Any, "Group"]):
    """A join in progress: a coroutine to await or to pass to ``asyncio.create_task``, and a context manager."""

    def __init__(
        self,
        cluster: str,
        settings: dict[str, Any],
        on_block: Callable[[Group], Any] | None,
        on_unblock: Callable[[Group], Any] | None,
    ) -> None:
        for name, callback in (("on_block", on_block), ("on_unblock", on_unblock)):
            if callback is not None:
                settings[name] = functools.partial(self._on_loop, callback)
        self._join = functools.partial(seqcast.api.group.join, cluster, **settings)
        self._group: Group | None = None
        self._running = self._run()
        self._loop: asyncio.AbstractEventLoop
        self._made: asyncio.Future[Group]  # callbacks may come before this is awaited to its end

    def _on_loop(self, callback: Callable[[Group], Any], _group: seqcast.api.group.Group) -> object:
        """On the thread of callbacks: runs the callback on the event loop, and waits for the result."""

        async def call() -> object:
            result = callback(await asyncio.shield(self._made))
            return await result if inspect.isawaitable(result) else result

        if not self._loop.is_running():  # nobody can run it: the program ends
            return None
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def __await__(self) -> Generator[Any, None, Group]:
        return self._running.__await__()

    def send(self, value: Any) -> Any:
        """For the event loop: the next step."""
        return self._running.send(value)

    def throw(self, *error: Any) -> Any:
        """For the event loop: raises in the join."""
        return self._running.throw(*error)

    def close(self) -> None:
        """For the event loop: gives up a join that has not begun or is no longer awaited."""
        self._running.close()

    async def _run(self) -> Group:
        self._loop = asyncio.get_running_loop()
        self._made = self._loop.create_future()
        join = self._join
        del self._join  # its callbacks refer to this object: a group that was left is then freed at once
        lock = threading.Lock()
        cancelled = False
        joined: seqcast.api.group.Group | None = None

        def work() -> seqcast.api.group.Group:
            nonlocal joined
            group = join()
            with lock:
                joined = group
                leaves = cancelled
            if leaves:
                group.leave()
            return group

        try:
            group = Group(await on_own_thread(work))
            self._made.set_result(group)
            return group
        except BaseException:  # cancelled (the join may be complete: whichever ends last leaves), or no descriptor left
            with lock:
                cancelled = True
                left = joined
            if left is not None:
                on_thread_or_here(left.leave, "seqcast-leave")
            raise

    async def __aenter__(self) -> Group:
        self._group = await self._running
        return await self._group.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._group is not None
        await self._group.__aexit__(kind, error, traceback)


class Group(driver.AsyncSender, Uncopied):
    """A group for the running event loop; made by ``join``.

    Attributes:
        sync: the same group, for other threads.
    """

    sync: seqcast.api.group.Group

    def __init__(self, group: seqcast.api.group.Group) -> None:
        self.sync = group
        self._driver = group._driver
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiters = []
        self._current_task = asyncio.current_task
        self._senders: Counter[int] = Counter()  # sends that wait, by the task that received last before they began
        self._slow = asyncio.Lock()  # held while a send waits for credit: later ones wait for the lock
        self._watch_driver()
        group._turned = _weakly(weakref.WeakMethod(self._follow))  # `self` keeps the group: a reference cycle otherwise

    def _watch_driver(self) -> None:
        self._watched = self._driver.watch_open()
        try:
            self._loop.add_reader(self._watched, self._on_watch)
        except NotImplementedError:
            self._watch_no_more()

    def _follow(self) -> None:
        """Another incarnation of this member took over (``rejoin=True``), perhaps on another thread."""
        if threading.get_ident() == self._thread:
            self._watch_again()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._watch_again)

    def _watch_again(self) -> None:
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._watch_no_more()
        self._driver = self.sync._driver
        self._watch_driver()
        self._wake()

    @property
    def cluster(self) -> str:
        """Name of the group."""
        return self.sync.cluster

    @property
    def order(self) -> Order:
        """As ``seqcast.Group.order``."""
        return self.sync.order

    @property
    def config(self) -> Config:
        """The settings in use, with computed defaults."""
        return self.sync.config

    @property
    def member(self) -> Member:
        """This member."""
        return self.sync.member

    @property
    def view(self) -> View:
        """The newest installed view, as ``seqcast.Group.view``."""
        return self.sync.view

    @property
    def fence(self) -> int:
        """As ``seqcast.Group.fence``."""
        return self.sync.fence

    @property
    def sending_view(self) -> View:
        """The view to which a message sent now belongs, as ``seqcast.Group.sending_view``."""
        return self.sync.sending_view

    @property
    def status(self) -> Status:
        """As ``seqcast.Group.status``."""
        return self.sync.status

    def digest(self) -> dict[Member, Marks]:
        """As ``seqcast.Group.digest``."""
        return self.sync.digest()

    @property
    def path(self) -> dict[str, Any]:
        """As ``seqcast.Group.path``."""
        return self.sync.path

    @property
    def board(self) -> Path | None:
        """As ``seqcast.Group.board``."""
        return self.sync.board

    def counters(self) -> dict[str, int]:
        """As ``seqcast.Group.counters``."""
        return self.sync.counters()

    def __repr__(self) -> str:
        return f"<seqcast.aio.Group {self.cluster!r} member {self.member.name!r}>"

    # ---- sending

    async def _send_waiting(
        self, payload: Buffer, to: Member | str | None, timeout: float | None, ordered: bool
    ) -> None:
        """The rest of ``send``: there is no credit, or other sends wait."""
        await self._sent(lambda wait, _: self.sync.send(payload, to=to, timeout=wait, ordered=ordered), timeout)

    async def send_many(
        self,
        payloads: Iterable[Buffer],
        *,
        to: Member | str | None = None,
        timeout: float | None = None,
        ordered: bool = True,
    ) -> None:
        """Sends messages one after the other, as ``seqcast.Group.send_many``."""
        messages = list(as_list(payloads))  # a copy: a thread may send the rest later
        await self._sent(lambda wait, done: self.sync._send_many(messages, to, wait, ordered, done), timeout)

    async def send_batch(
        self,
        data: Buffer | npt.NDArray[np.uint8],
        offsets: Buffer | npt.NDArray[np.signedinteger[Any]] | Sequence[int],
        *,
        timeout: float | None = None,
        ordered: bool = True,
    ) -> None:
        """Sends the messages of an Arrow binary array, as ``seqcast.Group.send_batch``."""
        await self._sent(lambda wait, done: self.sync._send_batch(data, offsets, wait, ordered, done), timeout)

    async def _sent(self, send: Callable[[float | None, int], None], timeout: float | None) -> None:
        """Sends at once if there is credit, otherwise in a thread, after the sends that already wait.

        Args:
            send: function of the seconds to wait, and of the number of messages that this call has sent before.
            timeout: seconds for the whole call; None: no limit.
        """
        deadline = deadline_of(timeout)
        done = 0
        if not self._waiting_sends:
            try:
                return send(0.0, 0)
            except SendTimeout as full:
                if timeout == 0:
                    raise
                done = full.sent
        self._waiting_sends += 1
        received = _received.get()
        self._senders[received] += 1
        try:
            await self._turn(timeout, done)
            try:
                await self._send_rest(send, deadline, done)
            finally:
                self._slow.release()
        finally:
            self._waiting_sends -= 1
            self._senders -= Counter([received])

    async def _send_rest(self, send: Callable[[float | None, int], None], deadline: float | None, done: int) -> None:
        """Sends on a thread of its own. While the interpreter shuts down, and no thread can be started, tries again and
        again, so that other tasks can receive meanwhile, which gives credit."""
        while is_ending():
            try:
                return send(0.0, done)
            except SendTimeout as full:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                done = full.sent
            await asyncio.sleep(POLL_S)
        left = left_until(deadline)

        def stand_in() -> None:
            """On a thread: if the receiving task waits, too, arriving messages are kept for that task."""
            thread = threading.get_ident()
            self.sync._stand_ins[thread] = self._receives_nothing
            try:
                send(left, done)
            finally:
                del self.sync._stand_ins[thread]

        await on_own_thread(stand_in)

    def _receives_nothing(self) -> bool:
        """Asked by a thread that sends for a task: does the task that receives wait for a send, so that no task
        receives?"""
        if not self._waiters:
            receiver = self._receiver
            return receiver is not None and (receiver.done() or id(receiver) in self._senders)
        if self.sync._backlog:  # kept just before these began to wait
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)
        return False

    def _receives(self, task: asyncio.Task[Any] | None) -> None:
        """This task takes, or waits for, the next item."""
        self._receiver = task
        _received.set(id(task))

    async def _turn(self, timeout: float | None, done: int) -> None:
        """Waits behind earlier sends. ``done``: messages that this call has sent."""
        if not await _in_time(self._slow.acquire(), timeout):
            error = SendTimeout(
                f"no turn within {timeout:g} s ({done} messages of this call were sent): earlier sends wait for "
                "credit: wait longer, or send less"
            )
            error.sent = done
            raise error

    async def deliver(self, payload: Buffer, *, timeout: float | None = None) -> Message:
        """Sends a message, and returns that message once decided, as ``seqcast.Group.deliver``. The message of a
        cancelled call may be delivered."""
        call = asyncio.ensure_future(on_own_thread(functools.partial(self.sync.deliver, payload, timeout=timeout)))
        try:
            while not (await asyncio.wait([call], timeout=POLL_S))[0]:
                if self.sync._backlog or self.sync._meanings:
                    self._wake()  # the thread has taken items that others wait for
            return await call
        finally:
            call.cancel()
            self._wake()

    # ---- messages that the other members have received

    @property
    def sent_seqno(self) -> int:
        """As ``seqcast.Group.sent_seqno``."""
        return self.sync.sent_seqno

    def stalls(self) -> list[tuple[Member, float]]:
        """As ``seqcast.Group.stalls``."""
        return self.sync.stalls()

    @property
    def consumed(self) -> int:
        """As ``seqcast.Group.consumed``."""
        return self.sync.consumed

    async def wait_consumed(self, timeout: float | None = None) -> bool:
        """Waits until all other members have taken the messages sent, as ``seqcast.Group.wait_consumed``."""
        return await on_own_thread(functools.partial(self.sync.wait_consumed, timeout))

    # ---- receiving

    async def recv(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none came within ``timeout``. Errors are those of ``seqcast.Group.recv``."""
        if timeout is None:
            return await self._next_message()
        return await self._taken(lambda: self.sync.recv(0.0), timeout)

    async def recv_batch(self, timeout: float | None = None) -> Batch | None:
        """The next messages; None if none came within ``timeout``. Errors are those of ``seqcast.Group.recv_batch``."""
        return await self._taken(lambda: self.sync.recv_batch(0.0), timeout)

    async def _next_waiting(self) -> Message | None:
        """The rest of ``_next_message``: other tasks are to run first, or the loop cannot watch for messages."""
        return await self._taken(lambda: self.sync.recv(0.0), None)

    async def events(self) -> AsyncIterator[Event]:
        """Everything in its true order, as ``seqcast.Group.events``."""
        while True:
            try:
                event: Event | None = await self._taken(lambda: self.sync.next_event(0.0), None)
            except NotMember:
                return
            if event is not None:
                yield event

    async def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event; None if none came within ``timeout``. Errors are those of ``seqcast.Group.next_event``."""
        return await self._taken(lambda: self.sync.next_event(0.0), timeout)

    async def wait_deliverable(self, timeout: float) -> bool:
        """Waits until there is something to receive, as ``seqcast.Group.wait_deliverable``."""
        return await self._taken(lambda: self.sync.wait_deliverable(0.0) or None, timeout) or False

    async def _taken(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        """The result of ``take``, as soon as there is one; None after ``timeout`` seconds."""
        deadline = deadline_of(timeout)
        if (task := asyncio.current_task()) is not self._receiver:
            self._receives(task)
        if time.monotonic_ns() - self._turned_ns > driver.HOLD_NS:
            await asyncio.sleep(0)
            self._turned_ns = time.monotonic_ns()
        while True:
            item = take()
            if item is not None:
                return item
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            await self._deliverable(left)

    async def _deliverable(self, timeout: float | None) -> None:
        """Waits until there may be something to take, for at most ``timeout`` seconds."""
        if self.sync._merging:  # its condition does not show in the stream
            await asyncio.sleep(POLL_S)
            return
        if self._watched is None:
            wait = THREAD_WAIT_S if timeout is None else min(timeout, THREAD_WAIT_S)
            if is_ending():
                await asyncio.sleep(POLL_S)
            else:
                await on_own_thread(functools.partial(self.sync.wait_deliverable, wait))
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            if not self._driver.watch():
                await _in_time(waiter, timeout)
                self._turned_ns = time.monotonic_ns()
        finally:
            self._waiters.remove(waiter)

    def _watch_no_more(self) -> None:
        self._watched = None
        self._driver.watch_close()

    # ---- pausing the group, and the answer of its block callback

    async def suspend(self, timeout: float | None = None) -> None:
        """Pauses the group, as ``seqcast.Group.suspend``. After a cancellation the group is not paused."""
        pausing = asyncio.ensure_future(on_own_thread(functools.partial(self.sync.suspend, timeout)))
        try:
            await asyncio.shield(pausing)
        except asyncio.CancelledError:  # the thread cannot be cancelled
            pausing.add_done_callback(self._not_wanted)
            raise

    def _not_wanted(self, pausing: asyncio.Future[None]) -> None:
        """Ends a pause whose caller was cancelled."""
        if not pausing.cancelled() and pausing.exception() is None:
            on_thread_or_here(self.sync.resume, "seqcast-resume")

    def block_ok(self) -> None:
        """Lets the view change continue, as ``seqcast.Group.block_ok``."""
        self.sync.block_ok()

    async def resume(self) -> bool:
        """Ends the pause, as ``seqcast.Group.resume``."""
        return await on_own_thread(self.sync.resume)

    @contextlib.asynccontextmanager
    async def suspended(self, timeout: float | None = None) -> AsyncIterator[None]:
        """``async with group.suspended():`` pauses the group until the end of the block, as
        ``seqcast.Group.suspended``."""
        await self.suspend(timeout)
        try:
            yield
        finally:
            reason = await on_own_thread(self.sync._resume)
        if reason:
            raise too_early(reason)

    # ---- the info of this member

    def set_info(self, info: Mapping[str, Any]) -> None:
        """Gives this member another info, as ``seqcast.Group.set_info``."""
        self.sync.set_info(info)

    # ---- leaving

    async def leave(self, timeout: float | None = None) -> bool:
        """Leaves the group, as ``seqcast.Group.leave``. Waiting sends raise ``NotMember`` unless they are accepted."""
        graceful = await on_own_thread(functools.partial(self.sync.leave, timeout))
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._watch_no_more()
        self._wake()
        return graceful

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()
        await self.close_journal()

    async def close_journal(self) -> None:
        """Closes the journal, as ``seqcast.Group.close_journal``."""
        await on_own_thread(self.sync.close_journal)


async def _in_time(awaited: Awaitable[object], timeout: float | None) -> bool:
    """Awaits the task for at most ``timeout`` seconds; False: not in time, and cancelled."""
    if timeout is None:
        await awaited
        return True
    try:
        async with asyncio.timeout(timeout):
            await awaited
    except TimeoutError:
        return False
    return True


def _weakly(method: weakref.WeakMethod[Callable[[], None]]) -> Callable[[], None]:
    """Calls a method of an object as long as that object lives, without keeping it alive."""

    def call() -> None:
        if (found := method()) is not None:
            found()

    return call
