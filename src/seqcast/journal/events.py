"""Events of a member besides its messages: ``events.jsonl``, sealed JSON lines, for reports on one time line.

``counters``: how far the member's counters rose since the line before, at most one line a second; ``view``: an
installed view; ``event``: the application's other events (`Lost`, `Blocked`, ...).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from seqcast.files import read_file
from seqcast.journal import seals
from seqcast.journal.records import RecordsFile
from seqcast.journal.schema import JournalDamaged

EVENTS_FILE: Final = "events.jsonl"
OLDER_FILE: Final = "events-older.jsonl"
EVERY_S: Final = 1.0
FILE_BYTES: Final = 16 << 20
"""A file of this size replaces the older one: together they hold the events of months on a quiet network."""
GAUGES: Final = frozenset({"blocked_queued_bytes", "own_closed_bytes", "slabs_in_use", "window_bytes"})
"""Levels, which also fall: a difference of them says nothing."""
AT_REST: Final = frozenset(
    {
        "bytes_received",
        "bytes_sent",
        "datagrams_received",
        "datagrams_sent",
        "drop_own",
        "drop_repeated",
        "heartbeats_sent",
        "late",
    }
)
"""Counters that rise at rest, as do those of sockets and of the control plane (``io_``, ``control_frames``): alone they
are not worth a line."""

Counters = Mapping[str, int]


_FIELDS: Final[dict[str, dict[str, type]]] = {
    "counters": {"rose": dict},
    "view": {"counter": int, "joined": list, "left": list},
    "event": {"kind": str, "text": str},
}
"""The fields of a line besides ``event`` and ``at_ns``, as far as they are read here."""


class EventsWriter:
    """Writes the events of one journal. Called by the journal's thread alone.

    Args:
        sample: returns the member's counters; None once they cannot be had any more.

    Raises:
        OSError: the file cannot be made or written.
    """

    def __init__(self, directory: Path, sample: Callable[[], Counters | None] | None) -> None:
        self._path, self._older = directory / EVENTS_FILE, directory / OLDER_FILE
        self._sample = sample
        self._before: Counters = {}
        self._file = RecordsFile(self._path)
        self.due = time.monotonic() + EVERY_S if sample else float("inf")

    def write(self, record: dict[str, Any]) -> None:
        """Writes one line."""
        if self._file.size >= FILE_BYTES:
            self._file.close()
            self._path.replace(self._older)
            self._file = RecordsFile(self._path)
        self._file.write(record)

    def look(self) -> None:
        """Writes how far the counters rose, if a line is due."""
        now = time.monotonic()
        if now < self.due or self._sample is None:
            return
        self.due = now + EVERY_S
        counters = self._sample()
        if counters is None:
            self.due = float("inf")
            return
        rose = {
            name: value - self._before.get(name, 0)
            for name, value in sorted(counters.items())
            if value > self._before.get(name, 0) and name not in GAUGES
        }
        if any(name not in AT_REST and not name.startswith(("io_", "control_frames")) for name in rose):
            self._before = dict(counters)
            self.write({"event": "counters", "at_ns": time.time_ns(), "rose": rose})

    def close(self) -> None:
        self._file.close()


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """The events of a journal, oldest first. A torn last line is skipped.

    Raises:
        JournalDamaged: a line differs from the written one.
    """
    for path in (directory / OLDER_FILE, directory / EVENTS_FILE):
        try:
            lines = read_file(path, 2 * FILE_BYTES).split(b"\n") if path.exists() else [b""]
        except OSError as error:
            raise JournalDamaged(f"{path} cannot be read: {error.strerror}") from error
        for number, line in enumerate(lines[:-1], 1):
            try:
                event = _checked(seals.unseal(line))
            except (ValueError, KeyError, TypeError) as error:
                raise JournalDamaged(f"{path}, line {number}, is not an event: {error}") from error
            yield event


def _checked(event: dict[str, Any]) -> dict[str, Any]:
    seals.typed(event["at_ns"], int)
    for name, kind in _FIELDS[event["event"]].items():
        seals.typed(event[name], kind)
    for name in (*event.get("joined", ()), *event.get("left", ()), *event.get("rose", ())):
        seals.typed(name, str)
    for rose in event.get("rose", {}).values():
        seals.typed(rose, int)
    return event
