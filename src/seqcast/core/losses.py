"""Computes ``Lost``: the fate of this member's messages when a view ends or this member leaves."""

from __future__ import annotations

from collections.abc import Collection

from seqcast._native.engine import OLDEST_PACKED, OLDEST_PACKED_BEFORE
from seqcast.core.context import Context
from seqcast.core.frames.view import NewView
from seqcast.core.lineage import Lineage, last_delivered
from seqcast.core.orders import by_name
from seqcast.core.rules.cut import apart
from seqcast.events import Lost
from seqcast.types import ViewId


class Losses:
    def __init__(self, context: Context, lineage: Lineage) -> None:
        self.context, self.lineage = context, lineage
        # Since the others crashed: messages that no other member is known to have delivered.
        self._unshared: list[Lost] | None = None

    # ---- a view ends

    def leave_behind(self, frame: NewView) -> list[Lost]:
        """Remembers how our view was closed; returns which of our messages others did not get."""
        context, view, me = self.context, self.context.view, self.context.me.id
        if view is None or frame.closes is None:
            self.lineage.learn(frame.shortfalls)
            return []
        fell = sum(member.id not in frame.survivors for member in view.members)
        context.counters["members_lost"] += fell
        own, merges = context.plane.own(), bool(frame.subgroups)
        counts = context.plane.own_messages(own.first + 1, own.last, waiting=merges) if fell else []
        self.lineage.close(view, frame, own.first, counts)
        lost = self.lineage.lost()
        # A message that no sequencer has ordered is not sent again across a merge: one on the other side may have
        # delivered it.
        last = last_delivered(view, frame, view.rank(me))
        if merges and by_name(view.mechanism).resends:
            lost += self.undelivered(last, None, waiting=True)
        if frame.has(me):
            strangers = apart(frame, me) or [False] * len(frame.members)
            together = {info.id for info, new in zip(frame.members, strangers, strict=True) if not new}
            lost += self.unacknowledged(together)
        alone = [info.id for info in frame.members] == [me] and (fell or len(view.members) == 1)
        self._unshared = self.alone(frame, False) if alone and (fell or self._unshared is not None) else None
        return lost

    def closed_without_us(self, frame: NewView, left: bool) -> list[Lost]:
        """Our messages that the members that closed our view did not deliver; ``left``: we survive the cut, and
        leave."""
        context = self.context
        assert context.view is not None
        context.plane.gate_close()  # the open packet counts
        last = last_delivered(context.view, frame, context.rank)
        lost = self.undelivered(last, frame.view_id, waiting=self._queue_waits())
        if left and frame.survivors == (context.me.id,):  # no other member is left
            lost = self.alone(frame, True)
        self.leave_behind(frame)
        return lost

    def uncertain(self) -> list[Lost]:
        """All messages of our view that not all others are known to have, because we leave without asking them."""
        self.context.plane.gate_close()  # the open packet counts
        return self.undelivered(self.context.plane.own().all, None, waiting=self._queue_waits())

    def unsent(self) -> list[Lost]:
        """The messages that still wait for their receivers, or for the gate, when we leave for good; nothing is sent
        afterwards."""
        assert self.context.view is not None
        lost, plane, view_id = self.unacknowledged(()), self.context.plane, self.context.view.view_id
        if plane.blocked_oldest() == OLDEST_PACKED_BEFORE:  # lost members may have the message
            lost.append(Lost(view_id, 0, 0, None, messages=1))
        if queued := plane.blocked_end():
            lost.append(Lost(view_id, 0, 0, None, queued, queued))
        return lost

    # ---- the parts

    def undelivered(
        self, after: int, missed_by: ViewId | None, last: int | None = None, waiting: bool = False
    ) -> list[Lost]:
        """Of the messages that were sent to the group in our view: those in own packets beyond ``after``, up to
        ``last`` or the last one; with ``waiting`` also the large one that waits for its order."""
        assert self.context.view is not None
        own = self.context.plane.own()
        last = own.last if last is None else min(last, own.last)
        begin = max(after, own.first)  # `after` comes from a frame
        count = self.context.plane.own_messages(begin + 1, last, waiting)[-1] if last > begin else 0
        return [Lost(self.context.view.view_id, after + 1, last, missed_by, messages=count)] if count else []

    def unacknowledged(self, stay: Collection[int]) -> list[Lost]:
        """Unacknowledged unicasts to members of our view, except to those that ``stay`` with us."""
        view = self.context.view
        assert view is not None
        return [
            Lost(view.view_id, 0, 0, None, messages=count, to=member)
            for member, count in zip(view.members, self.context.plane.unacknowledged(), strict=True)
            if count and member.id not in stay
        ]

    def alone(self, frame: NewView, leaves: bool) -> list[Lost]:
        """The messages that no other member is known to have delivered when our view ends with this member alone: of
        everything sent since the others crashed, as they may live on behind a network partition. If they all left,
        nobody lacks anything. Messages that no sequencer has ordered are sent again in the next view, unless this
        member leaves."""
        view = self.context.view
        assert view is not None
        own = self.context.plane.own()
        if len(view.members) == 1:
            return [] if self._unshared is None else self._unshared + self.undelivered(own.first, None)
        last = last_delivered(view, frame, self.context.rank)
        end = None if leaves else last
        return self.undelivered(min(own.any, last), None, end, waiting=leaves and self._queue_waits())

    def _queue_waits(self) -> bool:
        """Is the large message that waits to be ordered one of the queue? (No call of the application waits to learn
        its fate.)"""
        return self.context.plane.blocked_oldest() == OLDEST_PACKED
