"""The receiving part of a group: one stream of messages, views and other events, in their true order."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from seqcast._native import driver
from seqcast._native.engine import Batch, Message, Messages
from seqcast.api.base import GroupBase
from seqcast.arguments import nanoseconds
from seqcast.config import Config
from seqcast.core.machines.backlog import Item
from seqcast.core.orders import by_name
from seqcast.core.vocabulary import Left, Meaning
from seqcast.errors import JournalWriteError, NotMember, UsageError
from seqcast.events import Blocked, Excluded, InterfaceChanged, Lost, Unblocked
from seqcast.net.runner import Runner
from seqcast.net.state import Gift, StateHandler, give_state
from seqcast.net.state_merge import Stop
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.config.keywords import Order
    from seqcast.journal.writer import JournalWriter

Event = Message | View | Lost | Blocked | Unblocked | InterfaceChanged | Excluded
"""What ``Group.events`` yields."""


class _Ended(Exception):
    """The last event of the stream was taken."""


class Receiving(GroupBase):
    """Takes deliveries, writes them to the journal, and sends the application's state to joiners."""

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        super().__init__(cluster, order, config, runner, state)
        self._batch_bytes = config.batch_bytes
        self._taking = threading.Lock()
        self._giving = 0  # id of the thread that may run the state handler; 0: none
        # Under `_taking`:
        self._backlog: deque[Item] = deque()  # delivered before `join` returned
        self._delivered_view: View | None = None
        # Set under `_taking` and read without it: all messages of this batch but the last are taken without the lock.
        self._begun: Batch | None = None
        self._untaken = False  # senders that wait in `wait_consumed` have not been told yet that a batch was taken
        self._meanings: deque[Meaning] = deque()  # of the marker that was taken last
        self._stop: tuple[Stop, View] | None = None  # until states are merged; and the view to yield afterwards
        self._end: Excluded | Left | None = None
        if config.journal:
            try:
                self._journal = self._open_journal()
                # If the group is neither left by `with` nor read to its end, the journal gets its closing record too.
                weakref.finalize(self, _end_journal, self._journal)
            except BaseException:
                self._driver.stop()
                self._driver.close()
                raise

    def __iter__(self) -> Iterator[Message]:
        """The messages, until this member has left.

        Raises:
            NotMember: this member was excluded.
            JournalWriteError: as for ``recv``.
        """
        return Messages(self)

    def _next_message(self) -> Message | None:
        """The next message; None at the end."""
        while True:
            try:
                message = self.recv()
            except NotMember:
                if self.was_left:
                    return None
                raise
            if message is not None:
                return message

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember: this member left or was excluded, and every message delivered to it has been received.
            UsageError: ``timeout`` is not a number of seconds.
            JournalWriteError: with ``journal_required=True``, the journal cannot be written. What comes next stays in
                the stream, and nothing more is received.
        """
        wait = -1 if timeout is None else nanoseconds(timeout)
        begun = self._begun
        if begun is not None and (message := begun._take()) is not None:
            return message
        begun = None  # so that its memory can be reused
        if not self._begin_taking(wait):
            return None
        try:
            batch = self._begun if self._begun is not None else self._next_batch(wait)
            return None if batch is None else self._message_of(batch)
        finally:
            self._taking.release()

    def recv_batch(self, timeout: float | None = None) -> Batch | None:
        """The next messages, as many as are there, up to ``batch_bytes``. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember, UsageError, JournalWriteError: as for ``recv``.
        """
        wait = -1 if timeout is None else nanoseconds(timeout)
        if not self._begin_taking(wait):
            return None
        try:
            batch = self._rest_of_begun() or self._next_batch(wait)
            if self._untaken:
                self._tell_taken()
            return batch
        finally:
            self._taking.release()

    def _take_rest(self) -> Batch | None:
        """What is left of the batch from which ``next_event`` took a message; None if nothing is. Counts as taken when
        the next event is asked for."""
        if self._begun is None or not self._begin_taking(-1):
            return None
        try:
            return self._rest_of_begun()
        finally:
            self._taking.release()

    def _rest_of_begun(self) -> Batch | None:
        """Under `_taking`."""
        begun, self._begun = self._begun, None
        return None if begun is None else begun._rest()

    def events(self) -> Iterator[Event]:
        """Everything in its true order: messages, views, ``Lost``, and, with ``block_events=True``, ``Blocked`` and
        ``Unblocked``. Ends when this member has left, or after ``Excluded``.

        Raises:
            NotMember: in a child process after ``fork``.
            JournalWriteError: as for ``recv``.
        """
        while True:
            try:
                event = self._next_event(-1)
            except _Ended:
                return
            if event is not None:
                yield event

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The next event of ``events``.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if nothing came within ``timeout``.

        Raises:
            NotMember: this member left, or ``Excluded`` was the last event.
            UsageError: ``timeout`` is not a number of seconds.
            JournalWriteError: as for ``recv``.
        """
        try:
            return self._next_event(-1 if timeout is None else nanoseconds(timeout))
        except _Ended:
            raise self._not_member() from None

    def _next_event(self, wait: int) -> Event | None:
        begun = self._begun
        if begun is not None and (message := begun._take()) is not None:
            return message
        begun = None
        if not self._begin_taking(wait):
            return None
        try:
            if self._begun is not None:
                return self._message_of(self._begun)
            if self._end is not None:
                raise _Ended
            if self._untaken:
                self._tell_taken()
            item = self._next(wait)
            if isinstance(item, Batch):
                return self._message_of(item)
            if isinstance(item, Left):
                raise _Ended
            return item
        finally:
            self._taking.release()

    def wait_deliverable(self, timeout: float) -> bool:
        """Waits until there is something to receive, without taking it.

        Args:
            timeout: seconds.

        Returns:
            True: there is a message or an event, or the stream has ended. False: nothing came within ``timeout``.

        Raises:
            NotMember: in a child process after ``fork``.
            UsageError: ``timeout`` is not a number of seconds.
        """
        self._refuse_forked()
        wait = nanoseconds(timeout)
        if self._begun is not None or self._backlog or self._meanings or self._end is not None:
            return True
        return self._driver.wait_deliverable(wait)

    @property
    def was_left(self) -> bool:
        """This member has left by itself, and every message delivered to it has been received.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        return isinstance(self._end, Left)

    def _begin_taking(self, wait: int) -> bool:
        """Takes the lock of the stream: one thread at a time takes from it or waits for it. ``wait`` is in ns, below 0
        for no limit; False: the lock was not free in time."""
        if self._forked:
            raise self._not_member()
        if self._taking.acquire(False):
            return True
        if self._giving == threading.get_ident():
            raise UsageError("get_state, set_state and merge_state cannot receive: they run between two messages")
        return wait != 0 and self._taking.acquire(timeout=-1 if wait < 0 else min(wait / 1e9, threading.TIMEOUT_MAX))

    def _message_of(self, batch: Batch) -> Message:
        """The next message of a batch, which is begun with it unless it was the only one."""
        message = batch._take_any()
        if batch._left:
            self._begun = batch
        else:
            self._begun = None
            if self._untaken:
                self._tell_taken()
        return message

    def _tell_taken(self) -> None:
        """Tells senders that wait in ``wait_consumed`` that the application has taken the last batch."""
        if not self._backlog:
            self._untaken = False
            self._driver.taken()

    def _next_batch(self, wait: int) -> Batch | None:
        """The next batch; None after ``wait`` ns (< 0: no limit). Under `_taking`."""
        deadline = driver.now_ns() + wait
        while True:
            item = self._next(wait)
            if item is None or isinstance(item, Batch):
                return item
            if wait > 0:  # it was a view or another event: wait for the rest of the time
                wait = max(0, deadline - driver.now_ns())

    def _next(self, wait: int) -> Batch | Meaning | None:
        """The next entry of the stream: a batch, or a marker's meaning; None after ``wait`` ns. Under `_taking`."""
        if self._end is not None:
            raise self._not_member()
        if self._stop is not None:
            return self._wait_merged(wait)
        if self._meanings:
            return self._reached(self._meanings.popleft(), wait)
        item: Item | int | None
        if self._backlog:
            item = self._backlog.popleft()
            self._untaken = True
        else:
            item = self._driver.deliver(self._batch_bytes, wait, self._delivered_view)
        if isinstance(item, Batch):
            if len(item) > 1:
                self._untaken = True
            if self._journal is not None:
                try:
                    self._journal.batch(item, item.view)
                except JournalWriteError:  # the batch stays in the stream
                    self._backlog.appendleft(item)
                    raise
            return item
        if item is None:
            self._refuse_forked()
            if self._runner.over and not self._runner.engine.deliverable():
                raise self._not_member()
            return None
        if not isinstance(item, int):
            return self._reached(item, wait)
        self._meanings.extend(self._runner.endpoint.marker(item))
        return self._reached(self._meanings.popleft(), wait)

    def _reached(self, meaning: Meaning, wait: int) -> Meaning | None:
        """An event that the stream has reached: writes it to the journal, gives the state to the joiners of a view, and
        stops at it until states are merged; None: that takes longer than ``wait`` ns. Under `_taking`."""
        if isinstance(meaning, View):
            self._delivered_view = meaning
            if self._journal is not None:
                try:
                    order = by_name(meaning.mechanism)
                    self._journal.view(meaning, time.time_ns(), prefix=order.prefix, total=order.total)
                except JournalWriteError:
                    self._meanings.appendleft(meaning)
                    raise
            if self._state is not None:
                self._at_boundary(self._state, meaning)
                if self._stop is not None:
                    return self._wait_merged(wait)
        elif self._journal is not None and not isinstance(meaning, Left):
            text = getattr(meaning, "reason", "") or str(meaning)
            self._journal.event(type(meaning).__name__, text, time.time_ns())
        if isinstance(meaning, Excluded | Left):
            self._end = meaning
            if self._journal is not None:
                view = meaning.view if isinstance(meaning, Left) else None
                reason = "excluded" if isinstance(meaning, Excluded) else "leave"
                self._journal.close(reason, at_view_end=view is not None, successor=view)
        return meaning

    def _at_boundary(self, handler: StateHandler, view: View) -> None:
        endpoint, tag = self._runner.endpoint, view.view_id.tag
        plan, joiners = endpoint.plan_at(tag), endpoint.joiners_of(tag)
        if plan is None and not joiners:
            return
        with self._in_handler():
            if plan is not None:
                self._stop = Stop(self._runner, handler, self.config, view, plan), view
            else:
                give_state(self._runner, handler, Gift(self._runner, view, joiners, self.config))

    def _wait_merged(self, wait: int) -> View | None:
        """The view at which the application stopped; None: states are not merged after ``wait`` ns (< 0: no limit)."""
        assert self._stop is not None
        stop, view = self._stop
        with self._in_handler():
            if not stop.step(wait):
                return None
        self._stop = None
        return view

    @contextlib.contextmanager
    def _in_handler(self) -> Iterator[None]:
        """The application's handler may run on this thread; it cannot receive."""
        self._giving = threading.get_ident()
        try:
            yield
        finally:
            self._giving = 0

    @property
    def _merging(self) -> bool:
        return self._stop is not None

    # ---- the journal

    def close_journal(self) -> None:
        """Closes the journal, if there is one. Needed only where the stream is not received to its end and the group is
        not left by ``with``, which does it.

        Raises:
            JournalWriteError: with ``journal_required=True``, some entries could not be written; the counters say how
                many.
        """
        if self._journal is not None and not self._forked:
            self._journal.close("leave")

    def _open_journal(self) -> JournalWriter:
        from seqcast.journal.writer import JournalWriter

        config = self.config
        return JournalWriter(
            config.journal,
            cluster=self.cluster,
            member=self.member,
            payload=config.journal_payload,
            required=config.journal_required,
            deliver_own=config.deliver_own,
            safe=config.safe,
            segment_bytes=config.journal_segment_bytes,
            segment_s=config.journal_segment_s,
            keep_bytes=config.journal_keep_bytes,
            keep_s=config.journal_keep_s,
            sample=_sampler(self._runner),
        )


def _sampler(runner: Runner) -> Callable[[], dict[str, int] | None]:
    """Reads a member's counters while the member exists; the journal must not keep it alive."""
    of_runner = weakref.ref(runner)

    def sample() -> dict[str, int] | None:
        member = of_runner()
        if member is None:
            return None
        return member.engine.counters() | {f"control_{key}": value for key, value in member.endpoint.counters.items()}

    return sample


def _end_journal(journal: JournalWriter) -> None:
    """When the group is garbage-collected, or the interpreter exits."""
    with contextlib.suppress(JournalWriteError):
        journal.close("leave")
