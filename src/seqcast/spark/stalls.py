"""Streams that stand still while others go on: the next row may never come, and the query shows no error.

A member whose disk is full journals nothing, and cannot say so in its journal. Two groups that were founded apart have
nothing in common until they merge, also if their journals are in one place: the stream of one that dies does not go on
in the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import seqcast.codes as codes
from seqcast.spark.branches import is_counted
from seqcast.spark.groups import apart
from seqcast.spark.sides import is_over
from seqcast.spark.stores import Found

log = logging.getLogger("seqcast.spark")


class Stalls:
    """Tells once, by a warning, why a stream may wait in vain.

    Args:
        after_s: a stream stands still after this long without anything new.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._offset: Mapping[str, Any] = {}
        self._since = 0.0
        self._ends: dict[int, int] = {}
        self._ahead: dict[int, float] = {}  # member -> since when its journal has more than at the beginning
        self._apart = 0.0  # since when another group is seen beside the stream's; 0: none is
        self._seen: Sequence[Found] = ()
        self._why = ""
        self._told = ""

    def why(self, offset: Mapping[str, Any], found: Sequence[Found]) -> str:
        """Why the stream at an offset, which brings nothing new, may wait in vain. Empty: nothing tells, or the
        wait was not long enough."""
        now = time.monotonic()
        if offset != self._offset:
            self._offset, self._since, self._seen, self._why = offset, now, (), ""
            self._ends, self._ahead = {each.id: each.journal.end_idx for each in found}, {}
        if found is not self._seen:  # once for each look at the journals
            self._seen = found
            for each in found:
                if each.journal.end_idx > self._ends.setdefault(each.id, each.journal.end_idx):
                    self._ahead.setdefault(each.id, now)
            others = apart(offset, found)
            self._apart = (self._apart or now) if others else 0.0
            long = now >= self._since + self._after_s
            self._why = self._find(offset, found, others, now - self._after_s) if long else ""
            if self._why and self._why != self._told:
                self._told = self._why
                log.warning(codes.SOURCE_STALLS("%s"), self._why)
        return self._why

    def _find(self, offset: Mapping[str, Any], found: Sequence[Found], others: Sequence[Found], since: float) -> str:
        """``others``: journals of groups apart. ``since``: a condition that held by then held for long enough."""
        followed = next((each for each in found if f"{each.id:016x}" == offset["member"]), None)
        if others and self._apart <= since:
            return (
                f"nothing new comes of the group that this query follows (member {offset['member']}), and "
                f"{others[0].journal.path} is of another group {others[0].journal.cluster!r}, founded apart from it, "
                "whose rows come only if both merge: give that group a directory and a query of its own, and found one "
                "group the next time (found=N)"
            )
        if followed is None:
            return (
                f"the journal of member {offset['member']}, which this query follows, cannot be read, and no other one "
                "tells what comes next: bring that journal back, or start the query with a new checkpoint"
            )
        ahead = [
            each.journal.member.name
            for each in found
            if self._ahead.get(each.id, since + 1) <= since
            and any(member.id == followed.id for member in each.journal.views[-1].members)
        ]
        if followed.journal.member.name in ahead or followed.ended or not ahead:
            return _open_view(offset, followed, found)
        return (
            f"{followed.journal.path}, which this query follows, gets no rows, while {', '.join(ahead[:3])} of the "
            "same view journal more: free space on its disk, or restart that member; when the others go on without it, "
            "or its journal ends, the query goes on in theirs"
        )


def _open_view(offset: Mapping[str, Any], followed: Found, found: Sequence[Found]) -> str:
    """That others have delivered more in a view that nobody closed; empty: they have not. Without total order the
    number of rows only tells that there is a difference."""
    last = next(iter(followed.journal.views[-1:]), None)
    views = [(each, view) for each in found for view in each.journal.views if last and view.tag == last.tag]
    if last is None or any(view.end is not None for _, view in views):
        return ""
    rows = followed.journal.end_idx - last.idx
    differ = [
        each.journal.path
        for each, view in views
        if (more := each.journal.end_idx - view.idx - rows) > 0 or (more and not is_counted(each.journal, view))
    ]
    if not differ or is_over(offset, found):
        return ""
    return (
        f"nothing new comes of {followed.journal.path}, and {differ[0]} has other rows of the same view, of which no "
        "journal shows the end: they come when a member installs the next view or leaves, or when all members of the "
        "view are known to be gone: load the journals of all of them, and end those that hang"
    )
