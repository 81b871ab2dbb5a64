"""Which gossips a member has seen: in bounded memory, and without ever taking an old one for new (E-10)."""

from __future__ import annotations

NUMBERS = 1 << 63
"""Numbers of gossips are compared modulo this, so that the next one is later whatever number somebody made up."""


def is_old(counter: int, mark: int) -> bool:
    """Whether a number is the mark, or lower."""
    return (mark - counter) % NUMBERS < NUMBERS // 2


class Known:
    """The last gossips one by one; of the older ones the highest number of each origin, below which all count as seen.

    Args:
        cache_max, origins_max: see ``GossipSettings``.
    """

    def __init__(self, cache_max: int, origins_max: int) -> None:
        self._cache_max, self._origins_max = cache_max, origins_max
        self._cache: dict[tuple[int, int], None] = {}  # oldest first
        self._marks: dict[int, int] = {}  # by origin; the one raised last is the last

    def add(self, origin: int, counter: int) -> bool:
        """True if new."""
        mark = self._marks.get(origin)
        if (mark is not None and is_old(counter, mark)) or (origin, counter) in self._cache:
            return False
        self._cache[origin, counter] = None
        if len(self._cache) > self._cache_max:
            oldest = next(iter(self._cache))
            del self._cache[oldest]
            self._raise(*oldest)
        return True

    def _raise(self, origin: int, counter: int) -> None:
        mark = self._marks.pop(origin, counter)
        self._marks[origin] = mark if is_old(counter, mark) else counter
        if len(self._marks) > self._origins_max:
            del self._marks[next(iter(self._marks))]
