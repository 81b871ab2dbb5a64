"""The receiving part of a group: one stream of messages, views and other events, in their true order."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import seqcast.codes as codes
from seqcast._native import driver
from seqcast._native.engine import Batch, Message
from seqcast.api.base import GroupBase
from seqcast.api.sought import Sought
from seqcast.arguments import nanoseconds
from seqcast.config import Config
from seqcast.core.orders import by_name
from seqcast.core.state.backlog import Item
from seqcast.core.vocabulary import Left, Meaning
from seqcast.errors import JournalWriteError, UsageError
from seqcast.events import Blocked, CoordinatorChanged, Excluded, InterfaceChanged, Lost, Rejoined, Skipped, Unblocked
from seqcast.net.runner import Runner
from seqcast.net.state import StateHandler
from seqcast.net.state_merge import StateKeeper
from seqcast.types import MergeView, View

if TYPE_CHECKING:
    from seqcast.config.keywords import Order
    from seqcast.journal.writer import JournalWriter

journaling: weakref.WeakSet[Receiving] = weakref.WeakSet()
"""Groups of this process with a journal."""
log = logging.getLogger("seqcast")
SKIPS_NS = 60 * 10**9
"""Least time between two warnings that this application misses messages. In an event loop, a warning comes only with
the next item."""

Event = (
    Message | View | Lost | Skipped | Blocked | Unblocked | CoordinatorChanged | InterfaceChanged | Excluded | Rejoined
)
"""The items of ``Group.events``."""


class Receiving(driver.Receiver, GroupBase):
    """Takes deliveries, writes them to the journal, and sends the application's state to joiners.

    The work for each message and each batch is compiled: ``recv``, ``recv_batch`` and the iterator are those of
    ``Receiver``, which calls the methods here for everything else in the stream.
    """

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        super().__init__(cluster, order, config, runner, state)
        self._batch_bytes = config.batch_bytes
        self._giving = 0  # id of the thread that may run the state handler; 0: none
        # Under the lock of the stream:
        self._backlog: deque[Item] = deque()  # delivered before `join` returned, or journaled before the end
        self._journaled = 0  # how many of these, from the first on, are in the journal
        self._delivered_view: View | None = None
        self._meanings: deque[Meaning] = deque()  # of the marker that was taken last
        self._seekers: list[Sought] = []  # calls of `deliver` that wait
        self._keeper = StateKeeper(runner, state, config) if state is not None else None
        self._stop: View | Excluded | None = None  # where the application waits: for merged states, or to join again
        self._end: Excluded | Left | None = None
        self._sees_events = False  # the application takes events, too
        self._reconciles = state is not None
        if config.journal:
            try:
                self._journal = self._open_journal()
                # If the group is neither left by `with` nor read to its end, the journal gets its closing record too.
                weakref.finalize(self, end_journal, self._journal).atexit = False  # then the group is left first
                journaling.add(self)
            except BaseException:
                self._driver.stop()
                self._driver.close()
                raise

    def events(self) -> Iterator[Event]:
        """Everything in its true order: messages, views, ``Lost``, with ``slow="skip"`` ``Skipped``, with
        ``block_events=True`` ``Blocked`` and ``Unblocked``, and with ``coordinator_events=True``
        ``CoordinatorChanged``. Ends when this member has left, or after ``Excluded``; with ``rejoin=True``,
        ``Rejoined`` follows that.

        Raises:
            NotMember: in a child process after ``fork``.
            JournalWriteError: as for ``recv``.
        """
        self._sees_events = True
        while True:
            try:
                event = self._next_event(-1)
            except driver.Ended:
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
        self._sees_events = True
        try:
            event: Event | None = self._next_event(-1 if timeout is None else nanoseconds(timeout))
            return event
        except driver.Ended:
            raise self._not_member() from None

    def wait_deliverable(self, timeout: float) -> bool:
        """Waits until there is something to receive, without taking anything.

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

    # ---- for Receiver

    def _refuse_handler(self) -> None:
        """Called when the stream's lock is taken: raises UsageError if this thread holds the lock, in the state
        handler."""
        if self._giving == threading.get_ident():
            raise UsageError("get_state, set_state and merge_state cannot receive: they run between two messages")

    @property
    def _ends_quietly(self) -> bool:
        """This member left by itself, and its last message has been received: a loop over messages just
        ends."""
        return isinstance(self._end, Left)

    def _skipped(self, event: Event | Left) -> None:
        """A call for messages passes over an event: warns of one that the application has no other way to see. Under
        the stream's lock."""
        merged = isinstance(event, MergeView) and self._runner.callbacks is None
        if self._sees_events or not (isinstance(event, Lost | Skipped) or (merged and not self._reconciles)):
            return
        log.warning(
            codes.PASSED_OVER("%s: a loop over messages passed over %s; `for event in group.events()` yields it, too"),
            self.member.name,
            event,
        )

    def _write(self, batch: Batch) -> None:
        """Writes a batch to the journal. Under the stream's lock."""
        assert self._journal is not None
        if self._journaled:
            self._journaled -= 1
            return
        try:
            self._journal_one(self._journal, batch)
        except (JournalWriteError, UsageError):  # the batch stays in the stream
            self._put_back(batch)
            raise

    def _put_back(self, batch: Batch) -> None:
        """The next call takes this batch. Under the stream's lock."""
        self._backlog.appendleft(batch)

    def _refuse_over(self) -> None:
        """Nothing came: raises NotMember if nothing can come any more. Under the stream's lock."""
        self._refuse_forked()
        if (self._runner.standing.over or self._driver.stopped) and not self._runner.engine.deliverable():
            raise self._not_member()

    def _saw_batch(self, batch: Batch) -> None:
        """These messages were delivered: tells calls of ``deliver`` that wait. Under the stream's lock."""
        for sought in self._seekers:
            sought.saw_batch(batch)

    def _saw(self, meanings: Iterable[Meaning]) -> None:
        """The same for events."""
        for sought in self._seekers:
            for meaning in meanings:
                sought.saw(meaning)

    def _event(self, meaning: Meaning | Rejoined | None) -> Event | None:
        """This meaning as a result of ``next_event``. Raises ``Ended`` for ``Left``."""
        if isinstance(meaning, Left):
            raise driver.Ended
        return meaning

    def _marked(self, marker: int, wait: int) -> Meaning | Rejoined | None:
        """The first meaning of a marker of the stream. Under the stream's lock."""
        meanings = self._runner.endpoint.marker(marker)
        self._meanings.extend(meanings)
        self._saw(meanings)
        return self._reached(self._meanings.popleft(), wait)

    def _reached(self, meaning: Meaning, wait: int) -> Meaning | Rejoined | None:
        """An event that the stream has reached: writes the event to the journal, gives the state to the joiners of a
        view, and stops there until states are merged; None: that takes longer than ``wait`` ns. Under the stream's
        lock."""
        if self._journaled:
            self._journaled -= 1
        elif self._journal is not None:
            try:
                self._journal_one(self._journal, meaning)
            except (JournalWriteError, UsageError):
                self._meanings.appendleft(meaning)
                raise
        if isinstance(meaning, Skipped):
            self._missed += meaning.messages
            if driver.now_ns() >= self._missed_due:
                self._tell_missed()
        if isinstance(meaning, View):
            self._delivered_view = meaning
            self._runner.standing.enter(meaning)
            if self._keeper is not None:
                try:
                    with self._in_handler():
                        self._keeper.reached(meaning)
                finally:
                    self._stop = meaning if self._keeper.stopped else None
                if self._stop is not None:
                    return self._wait_merged(wait)
        if isinstance(meaning, Excluded | Left):
            self._end = meaning
            self._tell_missed()
        return meaning

    def _tell_missed(self) -> None:
        """Warns of the messages that this application has missed since the last such warning."""
        if missed := self._missed:
            self._missed, self._missed_due = 0, driver.now_ns() + SKIPS_NS
            text = codes.SKIPS('%s: the application of this member takes messages too slowly (slow="skip"): missed %d')
            log.warning(text, self.member.name, missed)

    @staticmethod
    def _journal_one(journal: JournalWriter, item: Item) -> None:
        """Writes a batch or an event to the journal, which the last event closes."""
        if isinstance(item, Batch):
            journal.batch(item, item.view)
        elif isinstance(item, View):
            order = by_name(item.mechanism)
            journal.view(item, time.time_ns(), prefix=order.prefix, total=order.total)
        elif not isinstance(item, Left):
            text = str(item) if isinstance(item, CoordinatorChanged) else getattr(item, "reason", "") or str(item)
            journal.event(type(item).__name__, text, time.time_ns())
        if isinstance(item, Left):
            journal.close("leave", at_view_end=item.view is not None, successor=item.view)
        elif isinstance(item, Excluded):
            journal.close("excluded")

    def _wait_merged(self, wait: int) -> View | Rejoined | None:
        """The view at which the application stopped; None: states are not merged after ``wait`` ns (< 0: no limit)."""
        assert self._keeper is not None
        with self._in_handler():
            if not self._keeper.step(wait):
                return None
        view, self._stop = self._stop, None
        assert not isinstance(view, Excluded)
        return view

    @contextlib.contextmanager
    def _in_handler(self) -> Iterator[None]:
        """The application's handler, which cannot receive, may run on this thread."""
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
        """Closes the journal, if there is one. Needed only if the stream is not received to its end and the group is
        not left by ``with``, which does this. After `leave`, everything that was delivered to this member is journaled
        first, and can still be received. A second call at the same time returns when the journal is closed.

        Raises:
            JournalWriteError: with ``journal_required=True``, some entries could not be written; the counters say how
                many.
        """
        if self._journal is None or self._forked:
            return
        end, patience_s = "leave", self.config.leave_timeout_s
        try:
            if self._runner.standing.over and self._giving != threading.get_ident():
                if not self._under_lock(self._journal_rest, nanoseconds(patience_s)):
                    end = f"another thread kept the stream for leave_timeout_s={patience_s:g} s: the rest is missing"
        finally:  # also if the rest cannot be written
            self._journal.close(end)
        if end != "leave":
            log.warning(codes.JOURNAL_LACKS("%s: the journal is closed, and %s"), self.member.name, end)
            if self.config.journal_required:
                raise JournalWriteError(f"the journal is closed, and {end}; end the call that holds that thread up")

    def _journal_rest(self) -> None:
        """Takes the rest of the stream, into the journal. Under the stream's lock."""
        assert self._journal is not None
        if self._end is not None:
            return
        taken: list[Item] = [*self._meanings, *self._backlog]
        view = self._delivered_view
        self._meanings.clear()
        self._journaled, done = 0, self._journaled
        try:
            for at in itertools.count():
                if at == len(taken):
                    item = self._driver.deliver(self._batch_bytes, 0, view, True)
                    if item is None:
                        break
                    taken += self._runner.endpoint.marker(item) if isinstance(item, int) else [item]
                each = taken[at]
                view = each if isinstance(each, View) else view
                if at >= done:
                    self._journal_one(self._journal, each)
                self._journaled = at + 1
        finally:
            self._backlog = deque(taken)

    def _open_journal(self, previous: int = 0) -> JournalWriter:
        """``previous``: id of the incarnation before, if there was one."""
        from seqcast.journal.writer import JournalWriter

        config = self.config
        journal = JournalWriter(
            config.journal,
            cluster=self.cluster,
            member=self.member,
            payload=config.journal_payload,
            required=config.journal_required,
            resume=config.journal_resume,
            deliver_own=config.deliver_own,
            safe=config.safe,
            segment_bytes=config.journal_segment_bytes,
            segment_s=config.journal_segment_s,
            keep_bytes=config.journal_keep_bytes,
            keep_s=config.journal_keep_s,
            sample=_sampler(self._runner),
            previous=previous,
        )
        self._runner.journal = journal.state
        return journal


def _sampler(runner: Runner) -> Callable[[], dict[str, int] | None]:
    """Reads a member's counters while the member exists; the journal must not keep the member alive."""
    of_runner = weakref.ref(runner)

    def sample() -> dict[str, int] | None:
        member = of_runner()
        if member is None:
            return None
        return member.engine.counters() | {f"control_{key}": value for key, value in member.endpoint.counters.items()}

    return sample


def end_journal(journal: JournalWriter) -> None:
    """When the group is garbage-collected."""
    with contextlib.suppress(JournalWriteError):
        journal.close("leave")
