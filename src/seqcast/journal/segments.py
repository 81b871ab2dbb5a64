"""The files of a journal's rows: which ones there are now, and what they hold, compared with their checksums."""

from __future__ import annotations

import errno
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.files import open_file
from seqcast.journal import seals
from seqcast.journal.manifest import Manifest, Rolled, load
from seqcast.journal.schema import (
    MANIFEST_FILE,
    VERSION_KEY,
    JournalDamaged,
    JournalGone,
    line_of,
    segment_name,
)
from seqcast.journal.stream import (
    SUM_BYTES,
    SUMS_SUFFIX,
    arrow_file,
    messages_with,
    read_sums,
    stream_batches,
    stream_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa


WHOLE_BYTES_MAX = 8 << 20
"""A rolled segment up to this size is read into memory in one step, which takes the least time."""
READ_BYTES = 64 << 10
"""The bytes of each column that are read at a time, if no more than a batch is to be in memory."""
COMPARED_MAX = 1024
"""A process remembers this many rolled segments whose checksums were compared."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of rows, as of the reading of the journal: later rows are left out.

    Args:
        number: of the segment; of the first one, if several were rolled into the file.
        live: a stream that was not rolled by then (the member crashed, or still writes).
        size: bytes of the file; of a stream, those of its whole messages.
        first_ns, last_ns: the earliest and the latest time at which a row of a rolled segment was delivered, ns since
            1970; 0 for a live one.
        hash: XXH3 of a rolled file, from the manifest.
        torn: the last batch of the stream is incomplete.
        first_idx: position of its first row.
    """

    number: int
    path: Path
    live: bool
    rows: int
    size: int
    hash: str = ""
    torn: bool = False
    last_ns: int = 0
    first_idx: int = 0
    first_ns: int = 0


def look(path: Path, check: Callable[[Segment], None]) -> tuple[int, list[Segment]]:
    """Position of the first row, and the segments, of a journal that may be written meanwhile: looks again if a segment
    is rolled or removed between two looks."""
    while True:
        manifest = load(path)
        try:
            found = list(_segments(path, manifest))
            for segment in found:
                check(segment)
        except FileNotFoundError as error:
            if load(path) != manifest:
                continue
            raise JournalDamaged(f"{Path(error.filename)} is missing") from error
        for segment in found[:-1]:
            if segment.torn:
                raise JournalDamaged(f"{segment.path} is torn, and is not the last segment")
        return manifest.first_idx, found


def _segments(directory: Path, manifest: Manifest) -> Iterator[Segment]:
    """The segments, oldest first; raises as `_segment`."""
    number, idx = manifest.first, manifest.first_idx
    while number <= manifest.started:
        segment = _segment(directory, number, idx, manifest)
        yield segment
        idx += segment.rows
        number = 1 + (number if segment.live else manifest.rolled[number].last)


def _segment(directory: Path, number: int, idx: int, manifest: Manifest) -> Segment:
    """
    Args:
        idx: position of its first row.

    Raises:
        FileNotFoundError: a stream by the manifest, but missing.
        JournalDamaged: its checksums do not fit.
    """
    if rolled := manifest.rolled.get(number):
        return _of_manifest(directory, rolled)
    path = directory / segment_name(number, "arrows")
    if number == manifest.started and not path.exists() and not _was_written(path):
        if load(directory) != manifest:  # a segment was rolled meanwhile
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return Segment(number, path, True, 0, 0, torn=True, first_idx=idx)  # a crash came before the file was made
    try:
        messages, torn = read_sums(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _no_segment(path, error) from error
    end = messages[-1].offset + messages[-1].size if messages else 0
    return Segment(number, path, True, sum(message.rows for message in messages), end, torn=torn, first_idx=idx)


def _of_manifest(directory: Path, rolled: Rolled) -> Segment:
    path = directory / segment_name(rolled.number, "parquet")
    return Segment(
        rolled.number, path, False, rolled.rows, rolled.size, rolled.hash,
        last_ns=rolled.last_ns, first_idx=rolled.first_idx, first_ns=rolled.first_ns,
    )  # fmt: skip


def check_schema(segment: Segment, expected: pa.Schema) -> None:
    """
    Raises:
        FileNotFoundError: missing.
        JournalDamaged: other than the written one, or with other columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = segment.path
    schema: pa.Schema | None = None
    try:
        if not segment.live:
            if path.stat().st_size == segment.size:
                with pq.ParquetFile(arrow_file(path)) as file:
                    schema = file.schema_arrow
            else:
                _rolled(segment)
        elif segment.size:
            schema = stream_schema(path, read_sums(path)[0])
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a damaged name
        raise _no_segment(path, error) from error
    if schema is not None and not schema.equals(expected):
        differs = sorted(set(expected) ^ set(schema), key=str)
        version = expected.metadata[VERSION_KEY].decode()
        raise JournalDamaged(
            f"{path} does not have the columns of journal version {version}: see {(differs or [schema])[0]}"
        )


def _no_segment(path: Path, error: Exception) -> JournalDamaged:
    return JournalDamaged(f"{path} is not a segment of a journal: {line_of(error)}")


def _was_written(path: Path) -> bool:
    """Whether checksums say that a stream had more than its schema."""
    sums = path.with_suffix(SUMS_SUFFIX)
    return sums.exists() and sums.stat().st_size > SUM_BYTES


def segment_batches(
    segment: Segment,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = 1 << 16,
    batch_bytes: int = 0,
    first: int = 0,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of one segment, with only the given columns. Checksums are compared before the rows that they cover are
    given out, for a rolled segment that of the whole file.

    Args:
        batch_rows: bound of a batch of a rolled segment, which has no more than a row group; a batch of a live one has
            the rows written together.
        batch_bytes: about, of a batch of a rolled segment, of which no more is read at a time; a single row may be
            larger. 0: a row group may be in memory.
        first, end: only the rows in this range of the segment, ``end`` exclusive. Little else is read.

    Raises:
        JournalGone: retention removed the file, or the journal is not there any more.
        JournalDamaged: the file differs from the written one, or is missing; also after some batches.
    """
    first, end = max(0, first), segment.rows if end is None else min(end, segment.rows)
    if first >= end:
        return
    for at, batch in _batches_around(segment, columns, batch_rows, batch_bytes, first, end):
        begin, stop = max(at, first), min(at + batch.num_rows, end)
        if begin < stop:
            rows = batch.slice(begin - at, stop - begin)
            yield rows if columns is None or batch.schema.names == [*columns] else rows.select([*columns])


def _batches_around(
    segment: Segment, columns: Sequence[str] | None, batch_rows: int, batch_bytes: int, first: int, end: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of a segment, each with the place of its first row, that have its rows from ``first`` to ``end`` - 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = segment.path
    try:
        if segment.live:
            try:
                at, messages = messages_with(read_sums(path)[0], first, end)
                for batch in stream_batches(path, messages, columns):
                    yield at, batch
                    at += batch.num_rows
                return
            except FileNotFoundError:  # rolled meanwhile; nothing was given out yet
                rolled = _now_rolled(segment)
            skip = segment.first_idx - rolled.first_idx
            for at, batch in _batches_around(rolled, columns, batch_rows, batch_bytes, first + skip, end + skip):
                yield at - skip, batch
            return
        part = first > 0 or end < segment.rows
        at_once = {"pre_buffer": False, "buffer_size": min(batch_bytes, READ_BYTES)}
        with pq.ParquetFile(_contents(segment, part=part), page_checksum_verification=part, **at_once) as file:
            if (rows := file.metadata.num_rows) != segment.rows:
                raise JournalDamaged(f"{path} has {rows} rows, and {MANIFEST_FILE} says {segment.rows}")
            names = file.schema_arrow.names
            if missing := sorted({*(columns or ())} - {*names}):
                raise JournalDamaged(f"{segment.path} has no column {missing[0]!r}")
            at, groups = _row_groups(file.metadata, first, end)
            together = _rows_together(file.metadata, groups, batch_rows, batch_bytes)
            # Threads would take twice the CPU time, and tasks of Spark have one processor each.
            for batch in file.iter_batches(together, groups, columns, use_threads=False):
                yield at, batch
                at += batch.num_rows
                if at >= end:
                    return
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a damaged name
        raise JournalDamaged(f"{path} cannot be read: {line_of(error)}") from error


def _row_groups(metadata: Any, first: int, end: int) -> tuple[int, list[int]]:
    """The row groups that have the rows from ``first`` to ``end`` - 1, and the place of the first row in them."""
    begins = [0]
    for group in range(metadata.num_row_groups):
        begins.append(begins[-1] + metadata.row_group(group).num_rows)
    wanted = [group for group in range(metadata.num_row_groups) if begins[group] < end and begins[group + 1] > first]
    return begins[wanted[0]] if wanted else 0, wanted


def _rows_together(metadata: Any, groups: Sequence[int], rows: int, nbytes: int) -> int:
    """How many rows of these row groups a batch may have: ``rows`` and about ``nbytes`` at most, or 0 for no limit."""
    for group in map(metadata.row_group, groups):
        if nbytes:
            rows = min(rows, nbytes * group.num_rows // max(1, group.total_byte_size))
    return max(1, min(rows, max((metadata.row_group(group).num_rows for group in groups), default=1)))


def _contents(segment: Segment, *, part: bool) -> pa.NativeFile:
    """The file of a rolled segment, to read from, compared with its checksum: a small one is in memory then, and of a
    larger one no more than a row group is at a time. For a part, a process compares the whole file only once.
    Later reads take only the needed parts, as long as the file is unchanged; its pages have checksums, too.

    Raises:
        JournalDamaged, JournalGone: as of `_rolled`.
    """
    import pyarrow as pa

    if not part and segment.size <= WHOLE_BYTES_MAX:
        return pa.BufferReader(_rolled(segment))
    try:
        if part:
            found = segment.path.stat()
            _compare(segment, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        else:
            _check(segment)
        return arrow_file(segment.path)
    except OSError:
        return pa.BufferReader(_rolled(segment))  # raises with the reason


@functools.lru_cache(maxsize=COMPARED_MAX)
def _compare(segment: Segment, *_: int) -> None:
    """As `_check`, once for each identity of the file."""
    _check(segment)


def _check(segment: Segment) -> None:
    """Compares the file of a rolled segment with its checksum.

    Raises:
        OSError: unreadable.
        JournalDamaged: altered.
    """
    with open_file(segment.path) as file:
        size = os.fstat(file.fileno()).st_size  # first: to read a sparse file would take for ever
        if size != segment.size or seals.hash_of_file(file) != (segment.size, segment.hash):
            raise _altered(segment)


def _altered(segment: Segment) -> JournalDamaged:
    return JournalDamaged(f"{segment.path} is altered: its checksum is not that of {MANIFEST_FILE}")


def _rolled(segment: Segment) -> pa.Buffer:
    """The file of a rolled segment, compared with its checksum. Read, not mapped: a file that is truncated
    under a mapping ends the process.

    Raises:
        JournalGone: removed by retention, or the journal is gone.
        JournalDamaged: altered or missing.
    """
    import pyarrow as pa

    try:
        with arrow_file(segment.path) as file:
            contents = file.read_buffer(segment.size) if file.size() == segment.size else pa.py_buffer(b"")
    except FileNotFoundError as error:
        if load(segment.path.parent).first > segment.number:
            raise JournalGone(
                f"{segment.path} was removed by the journal's retention during a read: read the journal again, or "
                "keep more (journal_keep_s, journal_keep_bytes)"
            ) from error
        raise JournalDamaged(f"{segment.path} is missing") from error
    except OSError as error:
        raise JournalDamaged(f"{segment.path} cannot be read: {line_of(error)}") from error
    if contents.size != segment.size or seals.hash_of(contents) != segment.hash:
        raise _altered(segment)
    return contents


def _now_rolled(segment: Segment) -> Segment:
    """The rolled segment that has the rows of a segment that was a stream."""
    found = load(segment.path.parent).holding(segment.number)
    if found is None:
        _rolled(segment)  # raises with the reason of its absence
        raise JournalDamaged(f"{segment.path} is missing")
    if not found.first_idx <= segment.first_idx <= found.first_idx + found.rows - segment.rows:
        raise JournalDamaged(f"{segment.path.parent / MANIFEST_FILE} has segment {segment.number} at another position")
    return _of_manifest(segment.path.parent, found)
