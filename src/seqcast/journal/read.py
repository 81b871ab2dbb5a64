"""Finding and reading journals. What a crash left is read to its last complete batch; what is no journal is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.journal.schema import (
    FORMAT,
    HEADER_FILE,
    PAYLOAD_MODES,
    SCHEMA_VERSION,
    VIEWS_FILE,
    JournalError,
    arrow_schema,
    segment_of,
)
from seqcast.types import Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Installed:
    """A view that a member installed, as its journal says."""

    view_id: ViewId
    tag: int
    members: tuple[Member, ...]
    order: str
    sequencer: int
    at_ns: int
    idx: int
    """Position of the first row of the view."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of rows; ``live`` where it is a stream that was not rolled (the member crashed, or still writes)."""

    number: int
    path: Path
    live: bool
    rows: int
    torn: bool = False
    """A stream whose last batch is incomplete."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What one member left.

    Args:
        closed: reason of the closing record, or None: the member crashed or still writes.
        closed_idx: how many rows were written, by the closing record; -1 without one.
        torn_records: view records whose line is incomplete.
    """

    path: Path
    cluster: str
    member: Member
    payload: str
    deliver_own: bool
    views: tuple[Installed, ...]
    segments: tuple[Segment, ...]
    closed: str | None
    closed_idx: int
    torn_records: int

    @property
    def rows(self) -> int:
        """Rows that can be read."""
        return sum(segment.rows for segment in self.segments)

    @property
    def torn(self) -> int:
        """Torn tails that were skipped."""
        return sum(segment.torn for segment in self.segments) + self.torn_records

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, in journal order."""
        for segment in self.segments:
            yield from segment_batches(segment.path, columns)


def find(paths: Sequence[str | Path]) -> list[Journal]:
    """Journals in the given directories: each is a member's own, or one that holds members' directories.

    Raises:
        JournalError: no journal there, or one that cannot be read; one line that says which and what to do.
    """
    directories: dict[Path, None] = {}
    for given in map(Path, paths):
        if not given.exists():
            raise JournalError(f"{given}: no such directory; give the directory that the members journaled to")
        if not given.is_dir():
            raise JournalError(f"{given} is a file; give the directory of a member's journal, or the one above it")
        inside = [given] if (given / HEADER_FILE).exists() else _journals_in(given)
        if not inside:
            raise JournalError(f"{given} holds no journal (no {HEADER_FILE} in it or in the directories in it)")
        directories.update(dict.fromkeys(path.resolve() for path in inside))
    return [read(path) for path in sorted(directories)]


def read(path: Path) -> Journal:
    """The journal of one member; reads the header, the views and the schema of each segment, but not the rows.

    Raises:
        JournalError: unreadable, foreign, of another version, or a segment is missing.
    """
    header = _header(path)
    expected = arrow_schema(header["payload"])
    views, (closed, closed_idx), torn_records = _views(path / VIEWS_FILE)
    segments = tuple(_segments(path, expected))
    if not views and any(segment.rows for segment in segments):
        raise JournalError(
            f"{path} has rows and no view that they were delivered in: restore its {VIEWS_FILE}, or leave it out"
        )
    return Journal(
        path=path,
        cluster=header["cluster"],
        member=Member(header["member"]["name"], int(header["member"]["id"], 16)),
        payload=header["payload"],
        deliver_own=header["deliver_own"],
        views=tuple(views),
        segments=segments,
        closed=closed,
        closed_idx=closed_idx,
        torn_records=torn_records,
    )


def segment_batches(
    path: Path, columns: Sequence[str] | None = None, *, batch_rows: int = 1 << 16
) -> Iterator[pa.RecordBatch]:
    """Batches of one segment, rolled or live, with only the given columns; a torn tail ends it.

    Args:
        batch_rows: bound of a batch of a rolled segment; those of a live one are as they were written.

    Raises:
        JournalError: not a segment, or a rolled one that is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(columns=columns, batch_size=batch_rows)
            return
        for batch in _complete(path)[0]:
            yield batch if columns is None else batch.select(list(columns))
    except (OSError, pa.ArrowException) as error:
        raise JournalError(f"{path} cannot be read: {_line(error)}; restore it, or leave this journal out") from error


def _journals_in(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if path.is_dir() and (path / HEADER_FILE).exists())


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads((path / HEADER_FILE).read_text(encoding="utf-8"))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise JournalError(
                f"{path} is not a seqcast journal: its {HEADER_FILE} was not written by seqcast; give the directory "
                "of a member's journal"
            )
        if header["schema_version"] != SCHEMA_VERSION:
            raise JournalError(
                f"{path} has journal version {header['schema_version']}, this seqcast reads {SCHEMA_VERSION}: use the "
                "seqcast that wrote it"
            )
        kinds = (str(header["cluster"]), int(header["member"]["id"], 16), header["member"]["name"])
        if header["payload"] not in PAYLOAD_MODES or not isinstance(header["deliver_own"], bool) or not kinds[1]:
            raise ValueError
    except OSError as error:
        raise JournalError(f"{path / HEADER_FILE} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise _damaged_header(path, f"it has no {error}") from error
    except json.JSONDecodeError as error:
        raise _damaged_header(path, "it is not JSON") from error
    except UnicodeDecodeError as error:
        raise _damaged_header(path, "it is not text") from error
    except (ValueError, TypeError) as error:
        raise _damaged_header(path, "a field has a value that cannot be") from error
    return dict(header)


def _damaged_header(path: Path, why: str) -> JournalError:
    return JournalError(
        f"{path} is not a seqcast journal, or a damaged one: {HEADER_FILE}: {why}; restore it, or "
        "leave this journal out"
    )


def _views(path: Path) -> tuple[list[Installed], tuple[str | None, int], int]:
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    views: list[Installed] = []
    closed: tuple[str | None, int] = (None, -1)
    tail = lines.pop() if lines else b""  # after the last newline: empty, or a record that was torn
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if record["event"] == "close":
                closed = str(record["reason"]), int(record["idx"])
            else:
                views.append(_installed(record))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{path}, line {number}, is not a view record: {_line(error)}") from error
    return views, closed, int(bool(tail))


def _installed(record: dict[str, Any]) -> Installed:
    identity = record["view_id"]
    attempt, initiator = identity["flush"]
    view_id = ViewId(identity["counter"], int(identity["coordinator"], 16), (attempt, int(initiator, 16)))
    if f"{view_id.tag:016x}" != record["tag"]:
        raise ValueError("the tag is not that of the view id")
    return Installed(
        view_id=view_id,
        tag=view_id.tag,
        members=tuple(Member(name, int(key, 16)) for name, key in record["members"]),
        order=record["order"],
        sequencer=record["sequencer"],
        at_ns=record["at_ns"],
        idx=record["idx"],
    )


def _segments(path: Path, expected: pa.Schema) -> Iterator[Segment]:
    found: dict[int, Path] = {}
    for file in sorted(path.iterdir()):  # .arrows before .parquet: where a crash left both, the rolled one counts
        if parsed := segment_of(file.name):
            found[parsed[0]] = file
    last = max(found, default=0)
    for number, (key, file) in enumerate(sorted(found.items()), 1):
        if key != number:
            raise JournalError(f"{path}: segment {number} is missing; restore it, or leave this journal out")
        segment = _segment(number, file, expected)
        if segment.torn and number != last:
            raise JournalError(f"{file} is torn, and it is not the last segment; restore it, or leave this journal out")
        yield segment


def _segment(number: int, path: Path, expected: pa.Schema) -> Segment:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                found, segment = file.schema_arrow, Segment(number, path, False, file.metadata.num_rows)
        else:
            batches, found, torn = _complete(path)
            segment = Segment(number, path, True, sum(batch.num_rows for batch in batches), torn)
    except (OSError, pa.ArrowException) as error:
        raise JournalError(f"{path} is not a segment of a journal: {_line(error)}") from error
    if found is not None and not found.equals(expected):
        differs = sorted(set(expected) ^ set(found), key=str)[0]
        raise JournalError(f"{path} does not have the columns of journal version {SCHEMA_VERSION}: see {differs}")
    return segment


def _complete(path: Path) -> tuple[list[pa.RecordBatch], pa.Schema | None, bool]:
    """(complete batches, mapped and not copied; schema; whether the tail is torn) of a stream."""
    import pyarrow as pa

    if not path.stat().st_size:
        return [], None, True
    source = pa.memory_map(str(path))
    batches: list[pa.RecordBatch] = []
    try:
        reader = pa.ipc.open_stream(source)
    except (pa.ArrowInvalid, OSError):
        if path.stat().st_size < 4096 and b"\xff\xff\xff\xff".startswith(path.read_bytes()[:4]):
            return [], None, True  # torn inside the schema, before any row
        raise
    while True:
        try:
            batches.append(reader.read_next_batch())
        except StopIteration:
            return batches, reader.schema, False
        except (pa.ArrowInvalid, OSError):
            return batches, reader.schema, True


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
