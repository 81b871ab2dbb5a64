"""Who coordinates, as an application was told."""

from __future__ import annotations

from collections.abc import Iterator

from seqcast.events import CoordinatorChanged
from seqcast.sim.record import Record
from seqcast.types import Member, MergeView, View


def check_coordinators(record: Record) -> Iterator[str]:
    """A change is told right after each view that has another coordinator than the one before, and after no other.
    Within a view each change begins with the member that was told last, and a member that closed a view in the place of
    its coordinator was told of its turn. Of a joiner that waited for the state the first view may be followed by one,
    as its member was in a view before."""
    view: View | None = None
    due: tuple[Member, Member] | None = None  # the new one, and the one before
    acted: list[Member] = []  # in this view, in order
    first = False  # nothing came since the first view
    for told in record.coordinators:
        if isinstance(told, CoordinatorChanged) and told.agreed:
            late = view is not None and first and told.coordinator == view.coordinator
            known = late or (told.coordinator, told.previous) == due
            if view is None or not known or told.view_id != view.view_id:
                yield f"coordinators: {record} is told {told} after {view}"
            due, first = None, False
            continue
        if due:
            yield f"coordinators: {record} is not told that {due[0]} coordinates {view}"
            due = None
        if isinstance(told, CoordinatorChanged):
            if view is None or told.view_id != view.view_id or told.coordinator not in view.members:
                yield f"coordinators: {record} is told {told} in {view}"
            elif told.previous != acted[-1] or told.coordinator == acted[-1]:
                yield f"coordinators: {record} is told {told} after {acted[-1]}"
            acted.append(told.coordinator)
        elif isinstance(told, View):
            closer = told.view_id.flush[1]
            if view and closer == record.id and not isinstance(told, MergeView) and record.id not in _ids(acted):
                yield f"coordinators: {record} closed {view} and was not told that it acts"
            if view and view.coordinator != told.coordinator:
                due = told.coordinator, view.coordinator
            first, view, acted = view is None, told, [told.coordinator]
        else:
            view = None


def _ids(members: list[Member]) -> set[int]:
    return {member.id for member in members}
