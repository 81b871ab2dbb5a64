"""The manifest of a journal: the list of its segments, written in one step, so that a reader beside the writer finds
every row exactly once, even while a segment is rolled."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.files import read_file
from seqcast.journal import seals
from seqcast.journal.schema import MANIFEST_BYTES_MAX, MANIFEST_FILE, JournalDamaged, JournalGone

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Rolled:
    """A rolled segment, or several that were rolled into one file.

    Args:
        number: of the segment, or of the first of several.
        first_idx: position of its first row.
        first_ns, last_ns: the earliest and the latest time at which one of its rows was delivered, ns since 1970.
            (Of another row than the first and the last, maybe: clocks can be set back.)
        size: bytes of the file.
        hash: XXH3 of the file, 16 hexadecimal digits.
        last: number of the last segment in the file.
    """

    number: int
    rows: int
    first_idx: int
    last_ns: int
    size: int
    hash: str
    last: int
    first_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parts of a journal.

    Args:
        started: number of the newest segment whose file was made; 0: none yet.
        rolled: by (first) number. The other segments from ``first`` to ``started`` are streams.
        first: number of the oldest segment that retention has kept.
        first_idx: position of the first row that is kept.
    """

    started: int
    rolled: Mapping[int, Rolled]
    first: int = 1
    first_idx: int = 0

    def holding(self, number: int) -> Rolled | None:
        """The rolled file that has the rows of a segment."""
        before = (first for first in self.rolled if first <= number)
        found = self.rolled.get(max(before, default=0))
        return found if found is not None and number <= found.last else None


class ManifestWriter:
    """Keeps the manifest of one journal. Called by several threads.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / MANIFEST_FILE
        self._lock = threading.Lock()
        self._manifest = Manifest(0, {})
        self._save(self._manifest)

    def start(self, number: int) -> None:
        """A stream begins. Call before its file is made."""
        with self._lock:
            self._save(replace(self._manifest, started=number))

    def roll(self, segment: Rolled) -> None:
        """A rolled segment is whole, under its name. Call before its streams are removed."""
        with self._lock:
            self._save(replace(self._manifest, rolled={**self._manifest.rolled, segment.number: segment}))

    def expire(self, *, before_ns: int, bytes_max: int) -> list[int]:
        """Drops the oldest rolled segments: those delivered before a time, and those beyond a total size. With them go
        older streams, which could not be rolled.

        Args:
            before_ns: rows delivered earlier are not kept, ns since 1970.
            bytes_max: of all rolled segments; the newest rolled one is always kept.

        Returns:
            Their numbers. The caller removes their files now: no later reader looks for them.
        """
        with self._lock:
            manifest = self._manifest
            total = sum(segment.size for segment in manifest.rolled.values())
            last: Rolled | None = None
            for number in sorted(manifest.rolled)[:-1]:
                oldest = manifest.rolled[number]
                if oldest.last_ns >= before_ns and total <= bytes_max:
                    break
                last = oldest
                total -= oldest.size
            if last is None:
                return []
            first, first_idx = last.last + 1, last.first_idx + last.rows
            rolled = {key: value for key, value in manifest.rolled.items() if key >= first}
            self._save(replace(manifest, rolled=rolled, first=first, first_idx=first_idx))
            return list(range(manifest.first, first))

    def _save(self, manifest: Manifest) -> None:
        save(self._path.parent, manifest)
        self._manifest = manifest


def save(directory: Path, manifest: Manifest) -> None:
    """Writes a manifest in one step.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    rolled = [asdict(manifest.rolled[number]) for number in sorted(manifest.rolled)]
    record = {"started": manifest.started, "first": manifest.first, "first_idx": manifest.first_idx, "rolled": rolled}
    seals.replace(directory / MANIFEST_FILE, record)


def load(directory: Path) -> Manifest:
    """
    Raises:
        JournalGone: the journal is not there any more.
        JournalDamaged: missing or altered.
    """
    path = directory / MANIFEST_FILE
    try:
        record: dict[str, Any] = seals.unseal(read_file(path, MANIFEST_BYTES_MAX))
        rolled = {entry["number"]: _rolled(entry) for entry in record["rolled"]}
        return Manifest(_number(record["started"]), rolled, _number(record["first"]), _number(record["first_idx"]))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not directory.exists():
            raise JournalGone(f"{directory} is not there any more") from error
        raise JournalDamaged(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise JournalDamaged(f"{path} is damaged: {error}") from error


def _rolled(entry: dict[str, Any]) -> Rolled:
    found = Rolled(**entry)
    for value in (found.number, found.rows, found.first_idx, found.size, found.last):
        _number(value)
    if found.last < found.number:
        raise ValueError(f"a file of the segments {found.number} to {found.last}")
    for time in (found.first_ns, found.last_ns):
        seals.typed(time, int)
    seals.typed(found.hash, str)
    return found


def _number(value: Any) -> int:
    if seals.typed(value, int) < 0:
        raise ValueError(f"{value} in place of a number that is not negative")
    return int(value)
