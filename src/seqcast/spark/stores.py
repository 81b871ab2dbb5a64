"""Where a source's journals are: in directories of this machine, or behind taps. Both have one interface."""

from __future__ import annotations

import glob
import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from pyspark.sql.datasource import InputPartition

from seqcast.errors import UsageError
from seqcast.files import NAMED_BYTES_MAX, read_file
from seqcast.journal.hold import is_written
from seqcast.journal.places import journal_files
from seqcast.journal.reader import Journal, read, read_again
from seqcast.journal.roll import ROW_GROUP_ROWS
from seqcast.journal.schema import COLUMNS, JournalError
from seqcast.journal.segments import Segment, segment_batches
from seqcast.journal.tables import names_in
from seqcast.journal.tap import TapClient, TapGone, read_token, rows_between
from seqcast.spark.wanted import Wanted, joined

if TYPE_CHECKING:
    import pyarrow as pa


PARTITION_BYTES = 128 << 20
"""A task reads segments of a journal on disk up to about this size."""
PARTITION_ROWS = ROW_GROUP_ROWS
"""Rows of a stream's batch, or of a tap's journal, for a task."""


class JournalStore(Protocol):
    """Journals by the ids of their members."""

    def members(self) -> list[int]:
        """Ids of members with journals that can be read now."""

    def journal(self, member: int) -> Journal | None:
        """The present journal; None if unreadable from here.

        Raises:
            JournalError: the journal is damaged, or of another version.
        """

    def all(self) -> Iterator[Journal]:
        """Every journal, in its present state.

        Raises:
            JournalError: the store cannot be reached, or one of its journals cannot be read.
        """

    def rows(self, journal: Journal, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows at positions ``first`` to ``end`` - 1."""

    def ranges(self, journal: Journal, spans: Sequence[tuple[int, int]], wanted: Wanted) -> Iterator[tuple[int, int]]:
        """The rows of spans, each the positions from the first to that before the second, in ranges that suit a task
        and may have others between. May leave out ranges without rows of the wanted time."""

    def is_written(self, journal: Journal) -> bool | None:
        """Whether the process that writes a journal is there; None: nothing tells."""

    def part(self, journal: Journal, wanted: Wanted, first: int, end: int) -> Part:
        """Data that a task needs to read these rows."""


class Reserve(Protocol):
    """Where a task goes on if its journal goes away."""

    def rest(self, part: Part, at: int) -> Part | None:
        """The rows of a part from a position on, to be read elsewhere. None: they are nowhere.

        Raises:
            JournalError: a journal is damaged.
        """


@dataclass(frozen=True)
class Found:
    """A journal, and the place where it was found."""

    store: JournalStore
    journal: Journal

    @property
    def id(self) -> int:
        return self.journal.member.id

    @property
    def ended(self) -> bool:
        return self.journal.closed is not None or bool(self.journal.failed)

    @property
    def over(self) -> bool:
        """The member delivers nothing more: its journal was closed, or its process is known to have ended."""
        return self.journal.closed is not None or self.store.is_written(self.journal) is False

    @property
    def held(self) -> bool:
        """The member's process is known to go on."""
        return self.journal.closed is None and self.store.is_written(self.journal) is True


@dataclass(frozen=True)
class Part(InputPartition):
    """The rows that one task reads of a member's journal: ``first`` to ``end`` - 1."""

    member: str
    names: dict[int, str]
    has_payload: bool
    wanted: Wanted
    first: int
    end: int
    reserve: Reserve | None = field(default=None, kw_only=True)

    @property
    def columns(self) -> list[str]:
        """Columns of the journal from which the wanted columns are made."""
        needed = self.wanted.needed - (set() if self.has_payload else {"payload"})
        return [name for name in (*COLUMNS, "payload") if name in needed]

    def piece(self, first: int, end: int) -> Part:
        """The rows ``first`` to ``end`` - 1 of these."""
        return replace(self, first=first, end=end)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In a task: the rows.

        Raises:
            JournalGone: the journal went away meanwhile; also after some rows.
            JournalDamaged: the journal has been altered.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class FilePart(Part):
    """Rows of segments that the task opens, each with the position of its first row."""

    segments: tuple[tuple[int, Segment], ...] = ()

    def piece(self, first: int, end: int) -> Part:
        kept = [(at, segment) for at, segment in self.segments if at < end and at + segment.rows > first]
        return replace(self, first=first, end=end, segments=tuple(kept))

    def batches(self) -> Iterator[pa.RecordBatch]:
        for at, segment in self.segments:
            yield from segment_batches(segment, self.columns, first=self.first - at, end=self.end - at)


@dataclass(frozen=True)
class TapPart(Part):
    """Rows that the task asks a tap for."""

    tap: TapClient | None = None
    journal: Journal | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        assert self.tap is not None and self.journal is not None
        try:
            yield from self.tap.rows(self.journal, self.first, self.end, self.columns)
        finally:
            self.tap.close()


class PartFields(TypedDict):
    """The fields of ``Part``."""

    member: str
    names: dict[int, str]
    has_payload: bool
    wanted: Wanted
    first: int
    end: int


def part_fields(journal: Journal, wanted: Wanted, first: int, end: int) -> PartFields:
    """The fields of each kind of part."""
    return {
        "member": journal.member.name,
        "names": names_in(journal),
        "has_payload": journal.payload == "full",
        "wanted": wanted,
        "first": first,
        "end": end,
    }


class Folders:
    """Journals under the given paths: directories of members, those above them, or patterns such as ``journals/*``."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._found: dict[int, Path] = {}

    def members(self) -> list[int]:
        self._found = journal_files(given(self._paths))
        return sorted(self._found)

    def all(self) -> Iterator[Journal]:
        for path in journal_files(given(self._paths), strict=True).values():
            yield read(path, open_segments=False)

    def journal(self, member: int) -> Journal | None:
        if not (member in self._found and os.path.exists(self._found[member])):
            self.members()
        path = self._found.get(member)
        if path is None:
            return None
        try:
            return read_again(path)
        except JournalError:
            if path.exists():
                raise
            return None

    def is_written(self, journal: Journal) -> bool | None:
        return is_written(journal.path, journal.locked)

    def rows(self, journal: Journal, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return rows_between(journal, first, end, columns)

    def ranges(self, journal: Journal, spans: Sequence[tuple[int, int]], wanted: Wanted) -> Iterator[tuple[int, int]]:
        begin = stop = size = 0
        begins, ends = [first for first, _ in spans], [end for _, end in spans]
        for position, segment in _positions(journal, journal.first_idx, journal.end_idx):
            own = slice(bisect_right(ends, position), bisect_left(begins, position + segment.rows))
            if not begins[own] or not wanted.holds(segment):
                continue
            first, end = max(position, begins[own][0]), min(position + segment.rows, ends[own][-1])
            if size and (first != stop or size + segment.size > PARTITION_BYTES):
                yield begin, stop
                size = 0
            begin = begin if size else first
            stop, size = end, size + segment.size
        if size:
            yield begin, stop

    def part(self, journal: Journal, wanted: Wanted, first: int, end: int) -> Part:
        return FilePart(**part_fields(journal, wanted, first, end), segments=tuple(_positions(journal, first, end)))


def _positions(journal: Journal, first: int, end: int) -> Iterator[tuple[int, Segment]]:
    """Each segment with some of the rows ``first`` to ``end`` - 1, with the position of its own first row."""
    for segment in journal.segments:
        position = segment.first_idx
        if segment.rows and position < end and position + segment.rows > first:
            yield position, segment


class Taps:
    """The journals behind a tap."""

    def __init__(self, address: str, token: bytes, certificates: str) -> None:
        self._client = TapClient(address, token, certificates)

    def members(self) -> list[int]:
        try:
            return self._client.members()
        except TapGone:
            return []

    def all(self) -> Iterator[Journal]:
        for member in self._client.members(strict=True):
            yield self._client.journal(member)

    def journal(self, member: int) -> Journal | None:
        try:
            return self._client.journal(member)
        except TapGone:
            return None

    def is_written(self, journal: Journal) -> bool | None:
        return self._client.is_written(journal.member.id)

    def rows(self, journal: Journal, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._client.rows(journal, first, end, columns)

    def ranges(self, journal: Journal, spans: Sequence[tuple[int, int]], wanted: Wanted) -> Iterator[tuple[int, int]]:
        for first, end in _held(journal, spans, wanted):
            for at in range(first, end, PARTITION_ROWS):
                yield at, min(at + PARTITION_ROWS, end)

    def part(self, journal: Journal, wanted: Wanted, first: int, end: int) -> Part:
        return TapPart(**part_fields(journal, wanted, first, end), tap=self._client, journal=journal)


def pieces(journal: Journal, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The rows at positions ``first`` to ``end`` - 1 of a stream's batch in ranges for a task each, cut where segments
    and their row groups begin, so that no two tasks decode the same rows."""
    cuts = _cuts(journal, first, end)
    begin = first
    for cut, following in pairwise([*cuts, end, 1 << 62]):
        if begin < cut and following - begin > PARTITION_ROWS:
            yield begin, cut
            begin = cut


def useful(journal: Journal, wanted: Wanted, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The rows at positions ``first`` to ``end`` - 1 that the journal has, in ranges, without those of views that are
    not wanted, and those of rolled segments that have no rows of the wanted time."""
    spans = ((max(first, begin), min(end, stop)) for begin, stop in wanted.spans(journal))
    return _held(journal, [(begin, stop) for begin, stop in spans if begin < stop], wanted)


def _held(journal: Journal, spans: Sequence[tuple[int, int]], wanted: Wanted) -> Iterator[tuple[int, int]]:
    """The rows of spans, in ranges, without those of rolled segments that have no rows of the wanted time."""
    if not spans:
        return
    segments = _positions(journal, spans[0][0], spans[-1][1])
    held = joined([(at, at + segment.rows) for at, segment in segments if wanted.holds(segment)])
    for (first, end), (begin, stop) in product(spans, held):
        if max(first, begin) < min(end, stop):
            yield max(first, begin), min(end, stop)


def divided(parts: Sequence[Part], tasks: int) -> Sequence[Part]:
    """The same rows in this many parts at least, or one for each row."""
    if len(parts) >= tasks:
        return parts
    size = max(1, sum(part.end - part.first for part in parts) // tasks)
    return [part.piece(at, min(at + size, part.end)) for part in parts for at in range(part.first, part.end, size)]


def last_cut(journal: Journal, first: int, end: int) -> int:
    """Where a batch of a stream ends that may have the rows at positions ``first`` to ``end`` - 1: where the last row
    group in its second half begins, so that the next batch does not decode rows of this one again."""
    return next((cut for cut in reversed(_cuts(journal, first, end)) if 2 * cut >= first + end), end)


def _cuts(journal: Journal, first: int, end: int) -> list[int]:
    """The positions between the two at which segments and their row groups begin."""
    cuts = []
    for segment in journal.segments:
        at = segment.first_idx
        cuts += [cut for cut in range(at, at + segment.rows, PARTITION_ROWS) if first < cut < end]
    return cuts


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The argument of ``load``: one path, or a list, which Spark passes as JSON."""
    several: list[str] = json.loads(options.get("paths", "[]"))
    return [path for path in (options.get("path"), *several) if path]


def given(paths: Sequence[str]) -> list[str]:
    """The paths, with the present matches in place of each pattern."""
    return [found for path in paths for found in ([path] if os.path.exists(path) else glob.glob(path))]


def stores_of(options: Mapping[str, str]) -> list[JournalStore]:
    """The stores that the options ``path``, ``paths``, ``tap``, ``token``, ``tokenFile`` and ``certificateFile`` name.

    Raises:
        UsageError: there is no store, a tap has no token, or a file cannot be read.
    """
    stores: list[JournalStore] = []
    if paths := paths_of(options):
        stores.append(Folders(paths))
    if taps := options.get("tap"):
        token, trusted = _token(options), _certificates(options)
        stores += [Taps(address.strip(), token, trusted) for address in taps.split(",") if address.strip()]
    if not stores:
        raise UsageError(
            'no journals: .load("journals") names a member\'s journal or a directory of journals, '
            '.option("tap", "host:port") a tap that serves some'
        )
    return stores


def _certificates(options: Mapping[str, str]) -> str:
    """As text: workers do not have the driver's files."""
    if not (file := options.get("certificateFile")):
        return ""
    try:
        return read_file(file, NAMED_BYTES_MAX, links=True).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"certificateFile={file!r} cannot be read as PEM text: {error}") from error


def _token(options: Mapping[str, str]) -> bytes:
    if token := options.get("token"):
        return token.encode()
    if file := options.get("tokenFile"):
        return read_token(file)
    raise UsageError('a tap needs its token: .option("token", ...) or .option("tokenFile", file)')
