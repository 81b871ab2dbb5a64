"""The application's order policy, on a thread of its own: the engine waits for it no longer than its time limit."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from seqcast._native.driver import now_ns
from seqcast._native.engine import Engine
from seqcast.core.rules.ordering import Offers, ranks_in_order
from seqcast.types import Member, OrderPolicy

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
        self._batches: queue.SimpleQueue[tuple[int, Offers, Sequence[Member]] | None] = queue.SimpleQueue()
        self._failed = False
        self.thread = threading.Thread(target=self._run, name=f"seqcast-order-{name}", daemon=True)

    def look(self, members: Sequence[Member]) -> None:
        """Hands waiting packets to the policy. Runs on the control thread, which is woken when there are some.

        Args:
            members: of the view that the engine is in, by rank.
        """
        if (offers := self.engine.offers()) is not None:
            self._batches.put((*offers, members))

    def stop(self) -> None:
        """Orders no further batch, and does not wait for the current one."""
        self._batches.put(None)

    def _newest(self) -> tuple[int, Offers, Sequence[Member]] | None:
        """Waits for a batch; skips those that timed out in the engine while the policy was busy. None: stopped."""
        found = self._batches.get()
        while found is not None and not self._batches.empty():
            found = self._batches.get()
        return found

    def _run(self) -> None:
        while (found := self._newest()) is not None:
            batch, offers, members = found
            ranks: list[int] | None = None
            try:
                ranks = ranks_in_order(self.policy, offers, members)
            except Exception:
                if not self._failed:
                    log.exception(
                        "%s: the order policy failed; these messages are ordered as they arrived, and later failures "
                        "are only counted (policy_failed)",
                        self.name,
                    )
                self._failed = True
            self.engine.decide(batch, ranks, now_ns())
            self.decided()
        del self.policy, self.decided  # they may refer to the group, which is then freed at once
