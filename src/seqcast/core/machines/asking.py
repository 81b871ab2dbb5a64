"""The boards of the members of a view: asked of all others for ``seqcast probe --all`` and ``seqcast debug``, and told
to those that ask.

Only members of the view are answered, at the addresses that the VIEW gives, and at a limited rate: so nobody outside
learns anything, and an answer goes only to an asker. Nothing is repeated: a command that keeps looking asks again.
"""

from __future__ import annotations

from seqcast.core.context import Context
from seqcast.core.frames.asking import NO_BOARD, SEES_BYTES_MAX, Ask, Told
from seqcast.core.vocabulary import MemberTold

ANSWER_NS = 200_000_000
"""The least time between two answers to one member."""


class Asking:
    def __init__(self, context: Context) -> None:
        self.context = context
        self._request = -1  # the last one
        self._answered: dict[int, int] = {}  # member -> when

    def ask(self, request: int, page: int) -> None:
        """Asks all other members; ``MemberTold`` follows for each that answers."""
        self._request = request
        for member in self.context.members:
            if member.id != self.context.me.id:
                self.context.send(Ask(self.context.tag, request, page), member.id)

    def asked(self, frame: Ask, sender: int) -> None:
        """A member of the view asks."""
        context, now = self.context, self.context.now
        self._answered = {each: at for each, at in self._answered.items() if now - at < ANSWER_NS}
        if sender == context.me.id or sender in self._answered:
            context.counters["asks_too_soon"] += 1
            return
        self._answered[sender] = now
        pages, sees = context.settings.sees(frame.page) if context.settings.sees is not None else (0, NO_BOARD)
        assert sees.isprintable() and 2 * len(sees.encode()) <= SEES_BYTES_MAX, "quotes count twice in the frame"
        context.send(Told(context.tag, frame.request, pages, sees), sender)

    def told(self, frame: Told, sender: int) -> None:
        """A member of the view answers the last question, or an earlier one."""
        if frame.request == self._request:
            self.context.emit(MemberTold(sender, frame.request, frame.pages, frame.sees))
