"""The word with which a member is told why there is another view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seqcast.sim.record import Record
from seqcast.types import MergeView, View


def check_changes(record: Record, by_id: Mapping[int, Record]) -> Iterator[str]:
    """The word fits the members that are new and gone, and whether these had said that they leave."""
    for old, view, change in record.changes:
        if change not in fitting(old, view, by_id):
            yield f"changes: {record} is told of {change!r} between {old} and {view}"


def fitting(old: View, view: View, by_id: Mapping[int, Record]) -> set[str]:
    """Words that fit. A member that wanted to leave may have been lost before the others knew."""
    gone = [by_id[member.id] for member in old.members if view.rank(member.id) < 0 and member.id in by_id]
    if any(not each.leaving for each in gone):
        return {"loss"}
    lost = {"loss"} if gone else set()
    if isinstance(view, MergeView):
        return {"merge", *lost}
    if gone:
        return {"leave", *lost}
    return {"join"} if any(old.rank(member.id) < 0 for member in view.members) else {"other"}
