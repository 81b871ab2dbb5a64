"""The views that this member has left: how their members continued, and which messages of others they did not deliver.

A member that others excluded (a partition, a pause) continues with a view of its own side. Its last messages may never
have reached the other side; when the sides merge, the VIEW reports that (the cut, steps 8 and 11).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seqcast.core.frames.view import SHORTFALLS_MAX, NewView, Shortfall
from seqcast.core.orders import by_name
from seqcast.events import Lost
from seqcast.types import View, ViewId

CLOSED_VIEWS_MAX = 16


def last_delivered(view: View, frame: NewView, rank: int) -> int:
    """Last of ``rank``'s own seqnos that the members which closed ``view`` by ``frame`` delivered."""
    return by_name(view.mechanism).own(frame.cut, frame.table)[rank]


class Own(NamedTuple):
    """The messages that this member sent in a closed view.

    Args:
        view_id: of the view.
        last: the last own packet that our side delivered.
        first: packets after this one are counted.
        ends: for each of those, how many messages have ended so far; empty if nobody was left behind.
    """

    view_id: ViewId
    last: int
    first: int
    ends: array[int]

    def messages(self, after: int) -> int:
        """How many ended after the packet ``after``, up to the last."""

        def ended(seqno: int) -> int:
            return self.ends[seqno - self.first - 1] if 0 < seqno - self.first <= len(self.ends) else 0

        return ended(self.last) - ended(after)


class Lineage:
    """The closed views of one member, and its known shortfalls; both bounded, the oldest go first."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.closed: dict[int, NewView] = {}  # closed view's tag -> our closing VIEW
        self._own: dict[int, Own] = {}  # the same -> our messages there
        self._members: dict[int, dict[int, bytes]] = {}  # the same -> its members and their addresses
        self._known: dict[tuple[int, ViewId, int], int] = {}
        # By member of our view, how its previous view was closed: this counts if that member never entered ours.
        self._arrivals: dict[int, Shortfall] = {}
        self._told: dict[tuple[int, ViewId], None] = {}

    def entered(self, view_tag: int) -> bool:
        """Did we enter and leave this view?"""
        return view_tag in self.closed

    def was_in(self, view_tag: int, member: int, address: bytes) -> bool:
        """Did we leave this view, and was ``member`` there, at ``address``? Only such members are sent its closing
        VIEW, which is larger than the request: a stranger could have it sent to a third party."""
        return self._members.get(view_tag, {}).get(member) == address

    def close(self, view: View, frame: NewView, first: int = 0, ends: Sequence[int] = ()) -> None:
        """``view`` is closed for us by ``frame``; ``first`` and ``ends``: see ``Own``."""
        tag, last = view.view_id.tag, last_delivered(view, frame, view.rank(self.me))
        if ends:
            last = min(last, first + len(ends))  # a sequencer's records may follow its last own packet
        self.closed[tag] = frame
        self._own[tag] = Own(view.view_id, last, first, array("L", ends))
        self._members[tag] = {member.id: member.address for member in view.members}
        for each in (self.closed, self._own, self._members):
            while len(each) > CLOSED_VIEWS_MAX:
                del each[next(iter(each))]
        # The survivors of this view were there, and so got all knowledge of that time.
        told = set(frame.survivors)
        self._known = {key: last for key, last in self._known.items() if key[2] not in told or key[2] == self.me}
        self.went_on(view, frame)
        if frame.subgroups:
            home = {member: group.view_id.tag for group in frame.subgroups for member in group.ids}
            arrivals = [
                each
                for each in frame.shortfalls
                if (each.successor, each.view) == (frame.view_id, home.get(each.member))
            ]
            self.learn(each for each in frame.shortfalls if each not in arrivals)
            self._arrivals = {each.member: each for each in arrivals}
        else:
            self._arrivals = {
                member.id: Shortfall(tag, frame.view_id, member.id, last_delivered(view, frame, rank))
                for rank, member in enumerate(view.members)
                if member.id in frame.survivors
            }

    def went_on(self, view: View, frame: NewView) -> None:
        """The survivors of ``frame`` continued from ``view``: of the others they delivered no more than its cut."""
        self.learn(self._of_lost(view, frame))

    def _of_lost(self, view: View, frame: NewView) -> list[Shortfall]:
        tag, result = view.view_id.tag, []
        for rank, member in enumerate(view.members):
            if member.id not in frame.survivors:
                result.append(Shortfall(tag, frame.view_id, member.id, last_delivered(view, frame, rank)))
                if member.id in self._arrivals:  # perhaps never in `view`
                    result.append(self._arrivals[member.id])
        return result

    def learn(self, shortfalls: Iterable[Shortfall]) -> None:
        for view, successor, member, last in shortfalls:
            self._known[view, successor, member] = last
        while len(self._known) > SHORTFALLS_MAX:
            del self._known[next(iter(self._known))]

    def shortfalls(self, view: View, plain: NewView) -> tuple[Shortfall, ...]:
        """The shortfalls known once ``plain`` closes ``view``, for a VIEW that merges or admits joiners."""
        known = [Shortfall(*key, last) for key, last in self._known.items()]
        return tuple((known + self._of_lost(view, plain))[-SHORTFALLS_MAX:])

    def lost(self) -> list[Lost]:
        """Our messages that others did not deliver, each reported once."""
        result = []
        for (view, successor, member), last in self._known.items():
            own = self._own.get(view)
            if member == self.me and own and last < own.last and (view, successor) not in self._told:
                self._told[view, successor] = None
                # 0: pieces alone, of a message that ends in a later view and is sent again there.
                if count := own.messages(last):
                    result.append(Lost(own.view_id, last + 1, own.last, successor, messages=count))
        self._known = {key: last for key, last in self._known.items() if key[2] != self.me}
        while len(self._told) > SHORTFALLS_MAX:
            del self._told[next(iter(self._told))]
        return result
