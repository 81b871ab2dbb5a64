"""The messages that an application was told to have missed (``slow="skip"``): which they are.

``Skipped`` names a place and a number; the sender's record has the messages. They are put into the log as if they had
been delivered, so whoever is told of one message too few, or too many, breaks the guarantees that all others keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from seqcast.events import Skipped
from seqcast.sim.record import Delivered, Record
from seqcast.types import View


class Skips:
    """The messages that one application missed and took in its present view.

    Args:
        record_of: the record of a member.
    """

    def __init__(self, record_of: Callable[[int], Record]) -> None:
        self.record_of = record_of
        self.view: View | None = None
        self.tag = 0
        self._last: dict[int, int] = {}  # number of the last message of each sender, missed or not
        self._open: dict[int, list[Skipped]] = {}  # by sender: not known yet where

    def enter(self, view: View | None) -> Iterator[Delivered]:
        """The application comes to another view, or to the end."""
        yield from self.settle()
        self.view, self.tag = view, view.view_id.tag if view is not None else 0
        self._last.clear()

    def missed(self, skipped: Skipped) -> None:
        """The application is told of a gap."""
        self._open.setdefault(skipped.sender.id, []).append(skipped)

    def settle(self) -> Iterator[Delivered]:
        """Nothing follows the gaps: the missed messages stand after the delivered ones."""
        for sender in list(self._open):
            yield from self._name(sender, self._first_after(sender))

    def delivered(self, entry: Delivered) -> Iterator[Delivered]:
        """The application is delivered a message: the missed ones come first."""
        if entry.to:
            return
        if gaps := self._open.get(entry.sender):
            yield from self._name(entry.sender, entry.counter - sum(gap.messages for gap in gaps))
        self._last[entry.sender] = entry.counter

    def _first_after(self, sender: int) -> int:
        if sender in self._last:
            return self._last[sender] + 1
        here = self.view.view_id if self.view is not None else None
        return min((each for each, (_, view_id) in self.record_of(sender).sent.items() if view_id == here), default=0)

    def _name(self, sender: int, first: int) -> Iterator[Delivered]:
        record = self.record_of(sender)
        for gap in self._open.pop(sender):
            for counter in range(first, first + gap.messages):
                length = record.sent.get(counter, (0, None))[0]
                yield Delivered(sender, counter, 0, self.tag, 0, length, True, sender, gap.first)
            first += gap.messages
            self._last[sender] = first - 1
