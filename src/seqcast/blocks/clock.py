"""Time that the members of a group share, whatever their wall clocks say."""

from __future__ import annotations

from collections.abc import Callable


class Estimate:
    """A replica's estimate of the group's time, which goes on while nobody sends.

    The group's time is the same on every member at the same message: the highest that a message has carried, and each
    message carries its sender's estimate. Between messages each member goes by its monotonic clock, which nobody sets.
    The least difference between that clock and the group's time is that of the message that was under way for the
    shortest time. So no estimate is ahead of all those from which it comes, and the group's time passes as fast as the
    clocks do. (With wall clocks, one that is set an hour ahead would end, on every member, all that was to last less
    than that.)

    Args:
        monotonic_ns: gives the time of that clock.
    """

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._ahead_ns: int | None = None  # how far the clock is ahead of the group's time; None: not in the group

    def now_ns(self) -> int:
        """The estimate; 0 outside of a group."""
        return 0 if self._ahead_ns is None else self._monotonic_ns() - self._ahead_ns

    def hear(self, now_ns: int) -> None:
        """The group's time is at least this now."""
        ahead_ns = self._monotonic_ns() - now_ns
        self._ahead_ns = ahead_ns if self._ahead_ns is None else min(self._ahead_ns, ahead_ns)

    def forget(self) -> None:
        """The membership has ended: the group that this replica joins next may be at an earlier time."""
        self._ahead_ns = None
