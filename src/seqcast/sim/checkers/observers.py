"""Observers receive, and decide nothing: they coordinate no view, make none, and order none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqcast.sim.record import Record
from seqcast.types import View


def check_observers(records: Sequence[Record]) -> Iterator[str]:
    """The views in which an observer has a part that only others may have."""
    observers = {record.id: record for record in records if record.observer}
    for record in records:
        for view in (entry for entry in record.log if isinstance(entry, View)):
            if view.coordinator.id in observers:
                yield f"observers: {view.coordinator} coordinates {view}"
            if view.sequencer >= 0 and view.members[view.sequencer].id in observers:
                yield f"observers: {view.members[view.sequencer]} orders the messages of {view}"
            if (maker := observers.get(view.view_id.flush[1])) is not None:
                yield f"observers: {maker} made {view}"
