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


def tag_of(text: str) -> int:
    """The tag of a view whose whole id an offset has."""
    counter, _, rest = text.partition("@")
    coordinator, attempt, initiator = rest.split(".")
    return ViewId(int(counter), int(coordinator, 16), (int(attempt), int(initiator, 16))).tag


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
            known = {id(other) for other in joined}  # to compare them as they are would take long
            left = [other for other in left if id(other) not in known]
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
    """Of each group that was founded after the end of that of an offset, and in which the stream was not yet: when, and
    its journal with the longest history."""
    ours, others = _beside(offset, found)
    if any(each.held for each in ours):
        return []
    seen = {told[0] for told in offset.get("left", ())}
    new = [side for side in others if not any(f"{tag:016x}" in seen for tag in _tags(side))]
    return [(_begin_ns(side), side[0]) for side in new if _is_later(side, ours)]


def apart(offset: Mapping[str, Any], found: Sequence[Found]) -> list[Found]:
    """The journals of each group of the same name that was there at the same time as that of an offset, as far as
    clocks tell, and has nothing in common with it."""
    ours, others = _beside(offset, found)
    held = any(each.held for each in ours)
    return [
        each
        for side in others
        if ours and not _is_later(ours, side) and (held or not _is_later(side, ours))
        for each in side
    ]


def _beside(offset: Mapping[str, Any], found: Sequence[Found]) -> tuple[list[Found], list[list[Found]]]:
    """The journals of the group of an offset, and of each other one of the same name."""
    sides = [*groups_of(found)]
    ours = next((side for side in sides if _knows(side, offset)), [])
    clusters = {each.journal.cluster for each in ours} or {each.journal.cluster for each in found}
    return ours, [side for side in sides if side is not ours and side[0].journal.cluster in clusters]


def _is_later(side: Sequence[Found], than: Sequence[Found]) -> bool:
    """Whether a group was founded after another one was over. Members of both that have the same name were started
    again, and their times are of one clock. Other times count if they differ more than the clocks in a group do."""
    first = {each.journal.member.name: each.journal.views[0].at_ns for each in reversed(side)}
    last: dict[str, int] = {}
    for each in than:
        name = each.journal.member.name
        last[name] = max(last.get(name, 0), each.journal.views[-1].at_ns)
    if both := first.keys() & last.keys():
        return all(first[name] > last[name] for name in both)
    apart_ns = max((_differ_ns(each) for each in (side, than)), default=0)
    return _begin_ns(side) > max(last.values(), default=0) + apart_ns


def _tags(side: Sequence[Found]) -> Iterator[int]:
    """The tags of the views of journals."""
    return (view.tag for each in side for view in each.journal.views)


def _begin_ns(side: Sequence[Found]) -> int:
    return side[0].journal.views[0].at_ns


def _differ_ns(side: Sequence[Found]) -> int:
    """How far the members' clocks differ: of the times at which two members installed the same views, the least
    difference counts, as either may install a view late."""
    times = {each.id: {view.tag: view.at_ns for view in each.journal.views} for each in side}
    ahead: dict[int, int] = {}
    left = [*times]
    while left:  # one after the other by views that they have in common
        reached = [left.pop(0)]
        ahead[reached[0]] = 0
        while reached:
            one = reached.pop()
            for other in [*left]:
                if both := times[one].keys() & times[other].keys():
                    ahead[other] = ahead[one] + min((times[other][tag] - times[one][tag] for tag in both), key=abs)
                    reached.append(other)
                    left.remove(other)
    return max(ahead.values(), default=0) - min(ahead.values(), default=0)
