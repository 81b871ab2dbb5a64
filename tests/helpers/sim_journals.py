"""Journals of simulated members: a simulated application's items, written like a real member's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqcast._native.engine import Batch
from seqcast.core.orders import by_name
from seqcast.core.vocabulary import Left
from seqcast.events import Excluded
from seqcast.journal.writer import JournalWriter
from seqcast.sim.application import Application
from seqcast.sim.world import Result, World
from seqcast.types import Member, View


class Journals:
    """Writes the journals of all members of a run."""

    def __init__(self, top: Path, cluster: str, payload: str = "hash") -> None:
        self._top, self._cluster, self._payload = top, cluster, payload
        self._writers: dict[int, JournalWriter] = {}
        self._views: dict[int, View] = {}
        self._ended: set[int] = set()

    def note(self, application: Application, item: Any) -> None:
        """An application is given an item of its stream."""
        record = application.record
        if not record.receives:  # a journal has the items of its member
            return
        writer = self._writers.get(record.id)
        if writer is None:
            writer = self._writers[record.id] = JournalWriter(
                self._top,
                cluster=self._cluster,
                member=Member(record.name, record.id),
                payload=self._payload,
                deliver_own=record.receives_own,
                safe=record.options.safe,
            )
        if isinstance(item, Batch):
            writer.batch(item, self._views[record.id])
        elif isinstance(item, View):
            self._views[record.id], order = item, by_name(item.mechanism)
            writer.view(item, application.machine.wall, prefix=order.prefix, total=order.total)
        elif isinstance(item, Excluded | Left):
            self._ended.add(record.id)
            view = item.view if isinstance(item, Left) else None
            reason = "excluded" if isinstance(item, Excluded) else "leave"
            writer.close(reason, at_view_end=view is not None, successor=view)

    def close(self) -> None:
        """For members that crashed or still run, only the closing record is missing."""
        for member, writer in self._writers.items():
            if member not in self._ended:
                writer.close("crash")
                views = writer.path / "views.jsonl"
                lines = views.read_bytes().splitlines(True)
                views.write_bytes(b"".join(line for line in lines if b'"event": "close"' not in line))


def journaled(make: Callable[[], World], top: Path, cluster: str, patch: Any, payload: str = "hash") -> Result:
    """A run whose members journal their items. ``patch``: pytest's ``monkeypatch``."""
    journals, accept = Journals(top, cluster, payload), Application.accept

    def accepting(application: Application, item: Any) -> None:
        journals.note(application, item)
        accept(application, item)

    with patch.context() as patched:
        patched.setattr(Application, "accept", accepting)
        try:
            return make().run()
        finally:
            journals.close()
