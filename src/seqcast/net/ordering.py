"""The application's order policy, on a thread of its own: the engine waits no longer than its time limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import seqcast.codes as codes
from seqcast._native.driver import now_ns
from seqcast._native.engine import Engine
from seqcast.core.orders.policy import Batch, PolicyQuestions, next_batch
from seqcast.types import OrderPolicy, View

log = logging.getLogger("seqcast")


class Ordering:
    """Asks the policy for the order of each batch.

    Args:
        name: of the member, for logs and the thread.
        policy: of the application.
        engine: whose packets are ordered.
        decided: called after each decision, because the engine then has something to transmit.
    """

    def __init__(self, name: str, policy: OrderPolicy, engine: Engine, decided: Callable[[], None]) -> None:
        self.name, self.policy, self.engine, self.decided = name, policy, engine, decided
        self._changed = threading.Condition()
        self._questions = PolicyQuestions()
        self._stopped = False
        self._failed = False
        self.thread = threading.Thread(target=self._run, name=f"seqcast-order-{name}", daemon=True)

    def look(self, view_tagged: Callable[[int], View | None]) -> None:
        """Hands waiting packets to the policy. Runs on the control thread, which is woken when there are some.

        Args:
            view_tagged: see ``Endpoint.view_tagged``.
        """
        if (batch := next_batch(self.engine, view_tagged)) is not None:
            with self._changed:
                self._questions.offered(batch)
                self._changed.notify()

    def stop(self) -> None:
        """Orders no further batch, and does not wait for the current one."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _next(self) -> Batch | None:
        """Waits for a batch. None: stopped."""
        found: Batch | None = None
        with self._changed:
            self._questions.answered()
            while not self._stopped and (found := self._questions.ask()) is None:
                self._changed.wait()
            return None if self._stopped else found

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            ranks: list[int] | None = None
            try:
                ranks = batch.ranks(self.policy)
            except BaseException:  # SystemExit, too: the next batch needs this thread
                if not self._failed:
                    log.exception(
                        codes.POLICY_UNUSED(
                            "%s: the order policy failed; these messages are ordered as they arrived, and later "
                            "failures are only counted (policy_failed)"
                        ),
                        self.name,
                    )
                self._failed = True
            self.engine.decide(batch.number, ranks, now_ns())
            self.decided()
        del self.policy, self.decided  # they may refer to the group, which is then freed at once
