"""Where a stream begins and ends if options say so, and not by journals' contents."""

from __future__ import annotations

import contextlib
from typing import Any

from seqcast.errors import UsageError
from seqcast.journal.schema import JournalError
from seqcast.spark.follow import Follower, NotYet, branches_left
from seqcast.spark.groups import groups_of
from seqcast.spark.stores import Found


def check_start(follower: Follower, offset: dict[str, Any]) -> None:
    """
    Raises:
        UsageError: no journal shows the place of an offset that a stream is to begin with.
    """
    member, idx = int(offset["member"], 16), int(offset["idx"])
    if (found := follower.find(member)) is not None:
        if idx > found.journal.end_idx:
            raise UsageError(
                f"startingOffset is behind row {idx} of {found.journal.path}, which has {found.journal.end_idx}: it is "
                "of another journal, or a crash of the machine took the tail of this one"
            )
        return
    for each in follower.all():
        with contextlib.suppress(NotYet):
            follower.position(each, offset)
            return
    raise UsageError(
        f"startingOffset is in the journal of member {offset['member']}, which is not there, and no other one has its "
        "place: load the directory that has that journal"
    )


def since(follower: Follower, time_ns: int) -> tuple[Found, int]:
    """A journal for a stream that begins with the first row delivered at a time or later, and that row's position: of
    the journal with the longest history, or if that one has none, of the one with the newest row; of several groups the
    first one that has rows of that time.

    Args:
        time_ns: since 1970.

    Raises:
        UsageError, JournalError: as of `Follower.first`.
    """
    found = follower.first(latest=False)
    at = first_since(found, time_ns)
    if at < found.journal.end_idx:
        return found, at
    for group in sorted(groups_of(follower.all()), key=lambda group: group[0].journal.views[0].at_ns):
        for latest in False, True:
            each = follower.first(latest=latest, of=group)
            if (first := first_since(each, time_ns)) < each.journal.end_idx:
                return each, first
    newest = follower.first(latest=True)
    return newest, newest.journal.end_idx


def first_since(found: Found, time_ns: int) -> int:
    """Position of the first row that was delivered at a time or later."""
    for segment in found.journal.segments:
        at = segment.first_idx
        if segment.live or segment.last_ns >= time_ns:
            row = at
            for batch in found.store.rows(found.journal, at, at + segment.rows, ["delivered_ns"]):
                times = batch["delivered_ns"].to_pylist()
                if (later := next((n for n, each in enumerate(times) if each >= time_ns), None)) is not None:
                    return row + later
                row += len(times)
    return found.journal.end_idx


class Ending:
    """Where a stream ends.

    Args:
        follower: finds the journals.
        offset: that of the end.
    """

    def __init__(self, follower: Follower, offset: dict[str, Any]) -> None:
        self._follower = follower
        self._offset = offset

    def before(self, end: dict[str, Any]) -> dict[str, Any]:
        """An offset, or that of the end if it is not before that."""
        return self._offset if self.is_reached(end) else end

    def is_reached(self, offset: dict[str, Any]) -> bool:
        """Whether an offset is not before that of the end.

        Raises:
            JournalError: the stream went on without the place of the end.
        """
        if offset == self._offset:
            return True
        found = self._follower.find(int(offset["member"], 16))
        if found is None:
            return False
        try:
            at = self._follower.position(found, self._offset)
        except NotYet:
            if self._is_passed(found, int(offset["idx"])):
                raise JournalError(
                    f"endingOffset is in view {self._offset.get('view', 'of no name')} of the journal of member "
                    f"{self._offset['member']}, and the stream, in {found.journal.path}, went on without that view: "
                    "load the journals of that member's side, or begin with its offset"
                ) from None
            return False
        return _place(offset, int(offset["idx"])) >= _place(self._offset, at)

    def _is_passed(self, found: Found, idx: int) -> bool:
        """Whether a journal that does not show the place has later views before a position."""
        if "view" not in self._offset:
            return True
        counter = int(self._offset["view"].partition("@")[0])
        return any(view.view_id.counter > counter and view.idx < idx for view in found.journal.views)


def _place(offset: dict[str, Any], idx: int) -> tuple[int, int, int]:
    """Sorts places in one journal: the position, and there how much of the branches before a view is given out."""
    merged = offset.get("merged")
    if merged is None:
        return idx, 0, 0
    return (idx, 1, int(merged["done"])) if branches_left(offset) else (idx, 2, 0)
