"""A message of this member that a call of ``deliver`` waits for."""

from __future__ import annotations

import threading

from seqcast._native.engine import Batch, Message
from seqcast.core.vocabulary import Left, Meaning
from seqcast.events import Excluded, Lost
from seqcast.types import View

Place = tuple[int, int]
"""Where a message is in its sender's stream: counter of the view, packet seqno."""


class Sought:
    """A message of this member that a call of ``deliver`` waits for. The message is one of those with the same bytes
    that this member sent between two places of its stream; if other threads sent the same bytes at the same time,
    nothing tells them apart, so they count as decided when all of them are.

    Args:
        payload: its bytes.
        me: id of this member.
        first: its place, or an earlier one.
        firm: a delivery that is not transitional decides it.
        primary: the next view of this member decides messages that it delivered before.
    """

    def __init__(self, payload: bytes, me: int, first: Place, *, firm: bool, primary: bool) -> None:
        self._payload, self._me, self._first, self._firm, self._primary = payload, me, first, firm, primary
        self._last: Place | None = None  # its place, or a later one; None: not sent yet
        self._passed: Place = (0, 0)  # how far the deliveries of this member's own messages are
        self._found: list[Message] = []
        self.message: Message | None = None  # delivered here
        self.decided: Message | None = None
        self.why = ""  # why there will be no decision
        self.changed = threading.Event()  # set when any of the above changes

    def sent(self, last: Place) -> None:
        """The message was sent, at this place or before."""
        self._last = last
        self._look()

    def saw_batch(self, batch: Batch) -> None:
        """These messages are delivered here. Under the stream's lock."""
        counter = batch.view.view_id.counter
        for message in batch.messages():
            if message.sender.id != self._me or message.unicast:
                continue
            self._passed = max(self._passed, (counter, message.seqno))
            if (counter, message.seqno) >= self._first and message.payload == self._payload:
                self._found.append(message)
        self._look()

    def saw(self, event: Meaning) -> None:
        """This event comes after earlier deliveries in the stream. Under the stream's lock."""
        if isinstance(event, View):
            self._passed = max(self._passed, (event.view_id.counter, 0))
            self._look()
            if self.message is not None and self.decided is None:
                self._close_view(event)
        elif isinstance(event, Lost) and self.decided is None and self._names(event):
            self.why = str(event)
        elif isinstance(event, Excluded | Left) and self.decided is None:
            self.why = self.why or (event.reason if isinstance(event, Excluded) else "this member has left the group")
        else:
            return
        self.changed.set()

    def _close_view(self, view: View) -> None:
        assert self.message is not None
        if self._primary:
            self.decided = settled(self.message)
        else:
            self.why = self.why or f"the view in which it was delivered ended: the members of the {view} have it"

    def _names(self, lost: Lost) -> bool:
        if lost.to is not None or self._last is None:
            return False
        counter = lost.view_id.counter
        begin, end = (counter, lost.first_seqno), (counter, lost.last_seqno)
        return not lost.last_seqno or (begin <= self._last and self._first <= end)

    def _look(self) -> None:
        """Delivered here?"""
        if self._last is None or self.message is not None or self._passed < self._last:
            return
        if not self._found:
            return
        # The packet that was open then may have got a higher number than its lowest, `_last`.
        behind = [each for each in self._found if (each.view_id.counter, each.seqno) >= self._last]
        seqno = (behind[0] if behind else self._found[-1]).seqno
        self.message = next(each for each in reversed(self._found) if each.seqno == seqno)
        if self._firm and not self.message.transitional:
            self.decided = self.message
        self.changed.set()


def settled(message: Message) -> Message:
    """The message without the flag ``transitional``: a later item has decided it."""
    if not message.transitional:
        return message
    return Message(
        message.payload, message.sender, message.view_id, message.seqno, message.index, message.global_seqno,
        message.sent_ns,
    )  # fmt: skip
