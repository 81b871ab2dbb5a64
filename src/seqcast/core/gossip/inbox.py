"""The messages that wait, bounded and by urgency (PB-08, PB-09), and the budget for handling them."""

from __future__ import annotations

from collections import deque

from seqcast.core.gossip.messages import Catalog, GossipMessage, Hello, Message, Request, Shuffle

_URGENCY: dict[type[Message], int] = {Request: 0, Shuffle: 1, Hello: 1, Catalog: 1, GossipMessage: 2}
"""Messages of the application do not wait here, so they are handled before all of these."""


class Inbox:
    """A queue of (message, its sender).

    Args:
        most: messages that wait, all kinds together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues: tuple[deque[tuple[Message, int]], ...] = (deque(), deque(), deque())
        self.dropped = 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues)

    @property
    def load(self) -> float:
        """1: nothing waits; 8: full."""
        return 1 + 7 * len(self) / self._most

    def put(self, message: Message, via: int) -> bool:
        """Adds a message; False: dropped. When the queue is full, the newest of the least urgent is dropped."""
        urgency = _URGENCY[type(message)]
        if len(self) >= self._most:
            self.dropped += 1
            worst = max(at for at, queue in enumerate(self._queues) if queue)
            if worst <= urgency:
                return False
            self._queues[worst].pop()
        self._queues[urgency].append((message, via))
        return True

    def first(self) -> tuple[Message, int] | None:
        """The oldest of the most urgent."""
        return next((queue[0] for queue in self._queues if queue), None)

    def pop(self) -> None:
        """Removes ``first``."""
        next(queue for queue in self._queues if queue).popleft()


class Budget:
    """Work that may be done.

    Args:
        per_s, most: units of work per second, and at once.
    """

    def __init__(self, per_s: int, most: int) -> None:
        self._per_s, self._most = per_s, most
        self._left_ns = most * 1_000_000_000 // per_s  # the rest, as the time of its accrual
        self._at: int | None = None

    def spend(self, units: int, now_ns: int) -> bool:
        """False: there is not enough left. An item that costs more than ``most`` waits for the full budget."""
        full = self._cost(self._most)
        if self._at is not None:
            self._left_ns = min(self._left_ns + now_ns - self._at, full)
        self._at = now_ns
        if self._left_ns < min(self._cost(units), full):
            return False
        self._left_ns -= min(self._cost(units), full)
        return True

    def wait_ns(self, units: int) -> int:
        """After ``spend`` said no: how long until there is enough."""
        return max(min(self._cost(units), self._cost(self._most)) - self._left_ns, 1)

    def _cost(self, units: int) -> int:
        return units * 1_000_000_000 // self._per_s
