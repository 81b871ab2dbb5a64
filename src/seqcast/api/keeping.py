"""Messages that arrive while nobody can receive: they are kept for the next ``recv`` or ``events``, within a bound."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from seqcast._native import driver
from seqcast._native.driver import now_ns
from seqcast._native.engine import Batch
from seqcast.api.receiving import Receiving
from seqcast.arguments import nanoseconds
from seqcast.config import Config
from seqcast.core.state.backlog import BATCH_OVERHEAD, Item
from seqcast.net.runner import Runner
from seqcast.net.state import StateHandler
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.config.keywords import Order


STUCK = 3
"""A send that may keep no more gives up after this many times ``suspect_s_max`` without progress: a dead member is
excluded by then."""


def cost(item: Item) -> int:
    """Its size as a kept message, bytes."""
    return BATCH_OVERHEAD + (item.nbytes + 4 * len(item) if isinstance(item, Batch) else 0)


class Keeping(Receiving):
    """A program that answers in the thread that receives takes nothing while its ``send`` waits, and the ``send`` may
    wait for just that: for this member's own messages to be taken, or for another member that waits for this one in
    the same way. So such a ``send`` takes arriving messages, and keeps them in their place in the stream."""

    def __init__(self, cluster: str, order: Order, config: Config, runner: Runner, state: StateHandler | None) -> None:
        super().__init__(cluster, order, config, runner, state)
        self._stuck_ns = nanoseconds(STUCK * config.suspect_s_max)
        self._kept_max = config.kept_bytes
        self._kept = 0  # bytes; under the lock of the stream
        self._kept_view: View | None = None  # the last one in the backlog
        self._stand_ins: dict[int, Callable[[], bool]] = {}
        """By the id of a thread that sends for a task: whether the task that receives waits for a send, too."""

    def _begin_with(self, items: deque[Item]) -> None:
        """These were delivered before the application receives."""
        self._backlog = items
        self._kept_view = next((each for each in reversed(items) if isinstance(each, View)), None)

    # ---- for the driver, while a send of this thread waits

    def _keep(self) -> int:
        """Keeps the messages that have arrived, if otherwise nobody receives before this send returns. Returns
        ``driver.KEEPS``; ``FULL`` if no more may be kept; ``ELSEWHERE`` if another thread receives, or may do so
        soon; ``BY_TASK`` if another task does, or works on messages, which may come to wait for a send, too."""
        me = threading.get_ident()
        stands_in = self._stand_ins.get(me)
        if not (stands_in() if stands_in is not None else me == self._taker):
            return driver.ELSEWHERE if stands_in is None else driver.BY_TASK
        if self._embedded or self._stop is not None or not self._under_lock(self._keep_all, 0):
            return driver.ELSEWHERE
        return driver.FULL if self._is_full() else driver.KEEPS

    def _waits_for_itself(self) -> bool:
        """Do sends to the group wait for this member alone?"""
        return [member for member, _ in self._runner.engine.stalls(now_ns())] == [self.member.id]

    def _unkeep(self, item: Item) -> None:
        """This item is taken now. Under the stream's lock."""
        self._kept = max(0, self._kept - cost(item)) if self._backlog else 0

    # ---- under the lock of the stream

    def _put_back(self, batch: Batch) -> None:
        super()._put_back(batch)
        self._kept += cost(batch)  # taken off again at the next call

    def _is_full(self) -> bool:
        return self._kept >= self._kept_max

    def _keep_all(self) -> None:
        while self._keep_next(0):
            pass

    def _keep_next(self, wait: int) -> bool:
        """Takes and keeps the next entry of the stream; False: none came within ``wait`` ns, or none may be kept."""
        if self._end is not None or self._stop is not None or self._is_full():
            return False
        if not self._backlog:
            self._kept_view = None
        waiting = next((each for each in reversed(self._meanings) if isinstance(each, View)), self._delivered_view)
        item = self._driver.deliver(self._batch_bytes, wait, self._kept_view or waiting, True)
        if item is None:
            return False
        if isinstance(item, Batch):
            self._append(item)
            self._saw_batch(item)
            return True
        meanings = self._runner.endpoint.marker(item) if isinstance(item, int) else (item,)
        for each in meanings:
            self._append(each)
        self._saw(meanings)
        return True

    def _append(self, item: Item) -> None:
        self._backlog.append(item)
        self._kept += cost(item)
        if isinstance(item, View):
            self._kept_view = item
