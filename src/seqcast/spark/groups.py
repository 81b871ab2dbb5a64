"""Groups whose journals are in one place: those of one group have views in common, directly or by others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqcast.spark.stores import Found
from seqcast.types import ViewId


def view_text(view_id: ViewId) -> str:
    """The whole id of a view, for an offset."""
    attempt, initiator = view_id.flush
    return f"{view_id.counter}@{view_id.coordinator:016x}.{attempt}.{initiator:016x}"


def groups_of(found: Sequence[Found]) -> Iterator[list[Found]]:
    """Journals that have views in common, directly or by others; of each group the longest history first."""
    left = [each for each in found if each.journal.views]
    while left:
        side, views = [left.pop(0)], set[int]()
        for each in side:
            for view in each.journal.views:
                views |= {view.tag, view.closes, *(tag for tag, _ in view.subgroups)} - {0}
            joined = [
                other
                for other in left
                if any(view.tag in views or view.closes in views for view in other.journal.views)
                or any(tag in views for view in other.journal.views for tag, _ in view.subgroups)
            ]
            left = [other for other in left if other not in joined]
            side += joined
        yield sorted(side, key=lambda each: (each.journal.views[0].at_ns, each.id))


def _knows(side: Sequence[Found], offset: Mapping[str, Any]) -> bool:
    """Whether one of the journals has the view of an offset, or one in which its member was."""
    member = int(offset["member"], 16)
    views = [view for each in side for view in each.journal.views]
    return any(view_text(view.view_id) == offset.get("view") for view in views) or any(
        each.id == member for view in views for each in view.members
    )


def newer(offset: Mapping[str, Any], found: Sequence[Found]) -> list[tuple[int, Found]]:
    """Of each group that was founded after that of an offset: when, and its journal with the longest history."""
    sides = [*groups_of(found)]
    ours = next((side for side in sides if _knows(side, offset)), [])
    over_ns = max((view.at_ns for each in ours for view in each.journal.views), default=0)
    clusters = {each.journal.cluster for each in ours} or {each.journal.cluster for each in found}
    return [
        (side[0].journal.views[0].at_ns, side[0])
        for side in sides
        if side is not ours and side[0].journal.views[0].at_ns > over_ns and side[0].journal.cluster in clusters
    ]


def apart(offset: Mapping[str, Any], found: Sequence[Found]) -> list[Found]:
    """The journals of each group of the same name that was there at the same time as that of an offset, and has nothing
    in common with it."""
    sides = [*groups_of(found)]
    ours = next((side for side in sides if _knows(side, offset)), None)
    if ours is None:
        return []
    cluster, begin_ns = ours[0].journal.cluster, ours[0].journal.views[0].at_ns
    end_ns = max(view.at_ns for each in ours for view in each.journal.views)
    others = [side for side in sides if side is not ours and side[0].journal.views[0].at_ns <= end_ns]
    return [
        each
        for side in others
        for each in side
        if each.journal.cluster == cluster and each.journal.views[-1].at_ns >= begin_ns
    ]
