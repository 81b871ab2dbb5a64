"""Time that the members of a group share, whatever their wall clocks say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Clock:
    """Time that passes in an ordered stream, the same on every member: from the same messages.

    Messages carry the monotonic time of their senders, which nobody sets: two of these have nothing in common, but
    the time between two messages of one sender is right. So the first message of a sender tells how far its time is
    from this one, and its later messages advance this one. While nobody sends, no time passes. (With wall clocks, one
    that is set an hour ahead would end, on every member, all that lasts less.)

    Args:
        now_ns: its reading.
        apart: id of a sender in the view -> how far this clock is ahead of the sender's, ns.
    """

    def __init__(self, now_ns: int = 0, apart: Mapping[int, int] | None = None) -> None:
        self.now_ns = now_ns
        self.apart = dict(apart or {})

    def hear(self, sender: int, sent_ns: int) -> None:
        """Takes the time of a message, ns by its sender's monotonic clock."""
        self.now_ns = max(self.now_ns, sent_ns + self.apart.setdefault(sender, self.now_ns - sent_ns))

    def keep(self, present: Iterable[int]) -> None:
        """Drops the entries of senders that are not present."""
        self.apart = {sender: self.apart[sender] for sender in present if sender in self.apart}
