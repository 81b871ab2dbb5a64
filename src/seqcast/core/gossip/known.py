"""Which gossips a member has seen: in bounded memory, and without ever taking an old one for new (E-10)."""

from __future__ import annotations


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
        """True if it was not seen before."""
        if counter <= self._marks.get(origin, 0) or (origin, counter) in self._cache:
            return False
        self._cache[origin, counter] = None
        if len(self._cache) > self._cache_max:
            oldest = next(iter(self._cache))
            del self._cache[oldest]
            self._raise(*oldest)
        return True

    def _raise(self, origin: int, counter: int) -> None:
        mark = max(self._marks.pop(origin, 0), counter)
        self._marks[origin] = mark
        if len(self._marks) > self._origins_max:
            del self._marks[next(iter(self._marks))]
