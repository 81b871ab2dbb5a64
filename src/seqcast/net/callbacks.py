"""The application's block and unblock callbacks, on a thread of their own: the protocol waits for them only up to
``block_deadline_s``."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import seqcast.codes as codes
from seqcast._native.driver import now_ns
from seqcast.types import LATER

log = logging.getLogger("seqcast")

POLICY_NS_MAX = 20_000_000
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def timed(setting: str, policy: Callable[[Asked], Answer] | None, name: str) -> Callable[[Asked], Answer] | None:
    """Wraps the policy given as ``setting`` so that a slow call is warned of: the group of member ``name`` waits."""
    if policy is None:
        return None

    def call(asked: Asked) -> Answer:
        begin = now_ns()
        try:
            return policy(asked)
        finally:
            took = now_ns() - begin
            if took > POLICY_NS_MAX:
                text = codes.CALLBACK_LATE("%s: %s took %.3f s, during which no member could send")
                log.warning(text, name, setting, took / 1e9)

    return call


class Callbacks:
    """Runs callbacks one after the other.

    Args:
        name: of the member, for logs and the thread.
        on_block, on_unblock: of the application; None: nothing to run.
        runs: called on the thread before each run of ``on_block`` with True, and after it with False.
        returned: told the number of each run of ``on_block``, and its error ("" if none), at its end: its
            return or, if the result was ``LATER``, ``answer``.

    Attributes:
        joined: the application has its group. Before, it can have begun nothing, and no callback is called.
    """

    def __init__(
        self,
        name: str,
        on_block: Callable[[], object],
        on_unblock: Callable[[], object] | None,
        runs: Callable[[bool], None],
        returned: Callable[[int, str], None],
    ) -> None:
        self.name, self.on_block, self.on_unblock = name, on_block, on_unblock
        self.runs, self.returned = runs, returned
        self.joined = False
        self._blocked = False  # `on_block` was called last
        self._lock = threading.Lock()
        # Under the lock:
        self._open = 0  # the last run, until its answer
        self._waits = False  # LATER was returned before that
        self._calls: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # a run of on_block; 0: on_unblock; None: end
        self.thread = threading.Thread(target=self._run, name=f"seqcast-callbacks-{name}", daemon=True)

    def block(self, run: int) -> None:
        self._blocked = self.joined
        if self.joined:
            self._calls.put(run)
        else:
            self.returned(run, "")

    def unblock(self) -> None:
        if self._blocked:
            self._calls.put(0)

    def stop(self) -> None:
        """Begins no further callback, and does not wait for a running one."""
        self._calls.put(None)

    @property
    def inside(self) -> bool:
        """Does a callback make this call?"""
        return threading.current_thread() is self.thread

    def _run(self) -> None:
        while (run := self._calls.get()) is not None:
            if run:
                self._block(run)
            elif self.on_unblock is not None:
                self._call(self.on_unblock, "on_unblock")
        # Breaks the reference cycle with the group and its runner, so that a group that was left is freed at once.
        del self.on_block, self.on_unblock, self.runs, self.returned

    def _block(self, run: int) -> None:
        with self._lock:
            self._open, self._waits = run, False
        self.runs(True)
        result, trouble = self._call(self.on_block, "on_block")
        self.runs(False)
        with self._lock:
            if result is LATER and self._open:
                self._waits = True
                return
            self._open = 0
        self.returned(run, trouble)

    def answer(self) -> None:
        """The application has finished the work that a run of ``on_block`` that returns ``LATER`` left to others."""
        with self._lock:
            run, self._open = self._open, 0
            waits, self._waits = self._waits, False
        if waits:
            self.returned(run, "")

    def _call(self, callback: Callable[[], object], what: str) -> tuple[object, str]:
        """Its result, and its error; "": nothing."""
        try:
            return callback(), ""
        except BaseException as error:  # SystemExit, too: the next callback needs this thread
            log.exception(codes.CALLBACK_FAILED("%s: %s raised; the group continues"), self.name, what)
            return None, f"{what} raised {error!r}"
