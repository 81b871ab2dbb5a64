"""The infos of members: one view has the same everywhere, and the last one has the infos that hold now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqcast.sim.record import Record
from seqcast.types import View, ViewId


def check_infos(records: Sequence[Record]) -> Iterator[str]:
    """Members that install one view find the same infos there."""
    first: dict[ViewId, tuple[Record, list[str]]] = {}
    for record in records:
        for view in (entry for entry in record.log if isinstance(entry, View)):
            said = [member.about for member in view.members]
            other, there = first.setdefault(view.view_id, (record, said))
            if said != there:
                yield f"infos: in {view} {record} finds {said}, and {other} {there}"


def check_shown(records: Sequence[Record]) -> Iterator[str]:
    """Once the faults have ended, each view has the infos that its members give now."""
    said = {record.id: record.about for record in records if record.alive}
    for record in records:
        for member in record.view.members if record.alive and record.view is not None else ():
            if member.about != said.get(member.id, member.about):
                yield f"liveness: {record} finds {member.about!r} of {member}, which says {said[member.id]!r}"
