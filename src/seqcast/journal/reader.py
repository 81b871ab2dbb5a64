"""Finding and reading journals. After a crash a journal is read to its last complete batch; other files are refused."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast._native.engine import Message
from seqcast.files import open_file, read_file
from seqcast.journal import seals
from seqcast.journal.events import read_events
from seqcast.journal.gaps import Gap, gap_of, kept_parts
from seqcast.journal.live import live_schema
from seqcast.journal.manifest import Manifest, Rolled, load
from seqcast.journal.schema import (
    ADDED,
    FAILED,
    FORMAT,
    HEADER_BYTES_MAX,
    HEADER_FILE,
    MANIFEST_FILE,
    PAYLOAD_MODES,
    READ_VERSIONS,
    SCHEMA_VERSION,
    VERSION_KEY,
    VIEWS_BYTES_MAX,
    VIEWS_FILE,
    JournalDamaged,
    JournalError,
    JournalGone,
    arrow_schema,
    segment_name,
    signed,
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
from seqcast.types import Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa


WHOLE_BYTES_MAX = 8 << 20
"""A rolled segment up to this size is read into memory in one step, which takes the least time."""
READ_BYTES = 64 << 10
"""The bytes of each column that are read at a time, if no more than a batch is to be in memory."""
COMPARED_MAX = 1024
"""A process remembers this many rolled segments whose checksums were compared."""

MESSAGE_COLUMNS = ("view_tag", "sender", "seqno", "index", "global_seqno", "sent_ns", "transitional", "payload")


@dataclass(frozen=True, slots=True)
class ViewEnd:
    """How a member closed a view: by the next one, or by leaving.

    Args:
        idx: position after the last row of the view.
        global_seqno: of the last message that the member delivered in the view; 0: none, or there is no total order.
            The same on every member with the same next view that delivers its own messages.
        stable: up to this global seqno *every* member of the view, even one that crashed or was cut off, delivered the
            same messages, as far as it delivered any: another journal of the view can be continued from any position up
            to here in this one, at the same global seqno. For a member that was cut off and closed the view apart, only
            up to the lower of its ``stable`` and this.
        clocks: (id of a sender, lowest difference between delivery and sending of its messages in the view, ns, by the
            clocks of sender and member). From it, two members' journals show how far their clocks differ.
        successor: tag of the view in which the group continued: the one that the member installed next, or that it left
            by; 0: not known.
    """

    idx: int
    global_seqno: int
    stable: int
    clocks: tuple[tuple[int, int], ...] = ()
    successor: int = 0


@dataclass(frozen=True, slots=True)
class Installed:
    """A view that a member installed, as its journal says."""

    view_id: ViewId
    tag: int
    members: tuple[Member, ...]
    order: str
    sequencer: int
    mechanism: str
    at_ns: int
    idx: int
    """Position of the first row of the view."""
    owner: int
    """Id of its member; 0: not in the view."""
    subgroups: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """If the view merged others: the tag of each, and the ids of its members that came along."""
    closes: int = 0
    """Tag of the view that the member closed to install this one; 0: in none."""
    end: ViewEnd | None = None
    """How the member closed the view; None: still there, crashed, excluded, or the journal ended before."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of rows, as of the reading of the journal: later rows are left out.

    Args:
        number: of the segment; of the first one, if several were rolled into the file.
        live: a stream that was not rolled by then (the member crashed, or still writes).
        size: bytes of the file; of a stream, those of its whole messages.
        first_ns, last_ns: the earliest and the latest time at which a row of a rolled segment was delivered, ns since
            1970; 0 for a live one, and the first in journals of a version before 10.
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


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one member.

    Args:
        first_idx: position of the first row that retention has kept; 0: all are there.
        closed: reason of the closing record, or None: the member crashed or still writes, or the journal ``failed``.
        closed_idx: number of rows written, from the closing record; -1 without one.
        torn_records: number of view records with an incomplete line.
        version: of the journal's format.
        safe: the group delivers safely (``safe=True``); False if an older journal does not say.
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
    failed: str = ""
    """The write error that ended the journal while the member continued."""
    first_idx: int = 0
    version: int = SCHEMA_VERSION
    safe: bool = False
    gaps: tuple[Gap, ...] = ()
    """Rows that are missing because the disk was full, in their order."""
    locked: str = ""
    """The machine on which its writer holds a lock as long as the process is there; empty: there is none."""
    previous: int = 0
    """Id of the incarnation before, whose journal this one continues (``rejoin``); 0: none."""

    @property
    def rows(self) -> int:
        """Rows that can be read."""
        return sum(segment.rows for segment in self.segments)

    @property
    def end_idx(self) -> int:
        """Position after the last row that can be read, or that is in a gap."""
        return self.first_idx + self.rows + sum(gap.rows for gap in self.gaps if gap.end > self.first_idx)

    def kept(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The positions ``first`` to ``end`` - 1 without those in gaps, in ranges."""
        return kept_parts(self.gaps, first, end)

    def gap_in(self, first: int, end: int) -> Gap | None:
        """The first gap with some of the positions ``first`` to ``end`` - 1."""
        return next((gap for gap in self.gaps if gap.idx < end and first < gap.end), None)

    @property
    def torn(self) -> int:
        """Torn tails that were skipped."""
        return sum(segment.torn for segment in self.segments) + self.torn_records

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, in journal order."""
        for segment in self.segments:
            yield from segment_batches(segment, columns)

    def events(self) -> Iterator[dict[str, Any]]:
        """Events besides the messages, oldest first; see `seqcast.journal.events`.

        Raises:
            JournalDamaged: a line differs from the written one.
        """
        return read_events(self.path)

    def messages(self) -> Iterator[Message]:
        """All messages as the application received them, in journal order.

        Raises:
            JournalError: the journal keeps no payloads.
            JournalDamaged: a segment differs from the written one, or the record of a view is lost.
        """
        if self.payload != "full":
            raise JournalError(
                f"{self.path} keeps hashes of the payloads only: join with journal_payload='full' to keep payloads"
            )
        views = {signed(view.tag): view for view in self.views}
        senders = {signed(each.id): each for view in self.views for each in view.members}
        for batch in self.batches(MESSAGE_COLUMNS):
            for tag, sender, seqno, index, position, sent_ns, transitional, payload in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                if tag not in views:
                    raise JournalDamaged(f"{self.path / VIEWS_FILE} lacks the record of a view that rows are of")
                member = senders.get(sender) or Member(f"{sender & (1 << 64) - 1:016x}", sender & (1 << 64) - 1)
                yield Message(
                    payload, member, views[tag].view_id, seqno, index, position or None, sent_ns,
                    transitional=bool(transitional),
                )  # fmt: skip


def find(paths: Sequence[str | Path], *, open_segments: bool = True) -> list[Journal]:
    """Journals in the given directories: each directory is a member's own, or holds members' directories.

    Args:
        open_segments: as of `read`.

    Raises:
        JournalError: no journal there, or one that cannot be read; one line that names it and the remedy.
    """
    directories: dict[Path, None] = {}
    for given in map(Path, paths):
        try:
            if not stat.S_ISDIR(given.stat().st_mode):  # `exists` of Python 3.14 does not tell why not
                raise JournalError(f"{given} is a file; give the directory of a member's journal, or its parent")
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # the last: of a NUL in the path
            raise JournalError(
                f"{given}: no such directory; give the directory that the members journaled to"
            ) from error
        except OSError as error:
            raise JournalError(f"{given} cannot be read: {error.strerror}") from error
        inside = _journals_in(given)
        if not inside:
            raise JournalError(f"{given} holds no journal (no {HEADER_FILE} there or one directory below)")
        directories.update(dict.fromkeys(_place(path, given) for path in inside))
    return [read(path, open_segments=open_segments) for path in sorted(directories)]


def journal_files(paths: Sequence[str | Path], *, strict: bool = False) -> dict[int, Path]:
    """The journals in the given directories now: id of the member -> its directory. Leaves out missing parts,
    directories that may not be read, journals that this version cannot read, and copies of one before, by name.

    Raises:
        JournalError: if ``strict``, instead of leaving out unreadable journals, or those found twice.
    """
    found: dict[int, Path] = {}
    unreadable = contextlib.nullcontext() if strict else contextlib.suppress(JournalError)
    for given in map(Path, paths):
        with unreadable:
            for path in _journals_in(given) if os.path.isdir(given) else ():
                with unreadable:
                    member, place = _member_at(path, given)
                    if found.setdefault(member, place) != place:
                        raise same_member(found[member], place)
    return found


def _member_at(path: Path, given: Path) -> tuple[int, Path]:
    """Of a journal found in a given directory: the id of its member, and its place.

    Raises:
        JournalError: its header cannot be read.
    """
    try:
        of = os.stat(f"{path}/{HEADER_FILE}")
    except OSError:
        return _member_of(path, given)  # raises with the reason
    return _member_known(path, given, of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns)


@functools.lru_cache(maxsize=1024)  # a follower asks for all of them once a second, and a header is written once
def _member_known(path: Path, given: Path, *_: int) -> tuple[int, Path]:
    """As `_member_of`, once for each identity of the header's file."""
    return _member_of(path, given)


def _member_of(path: Path, given: Path) -> tuple[int, Path]:
    return int(_header(_header_text(path), path)["member"]["id"], 16), _place(path, given)


def same_member(one: Path, other: Path) -> JournalError:
    """The error that two directories are journals of one member."""
    return JournalError(f"{one} and {other} are journals of the same member: give one of them")


def read(path: str | Path, *, open_segments: bool = True) -> Journal:
    """The journal of one member; reads the header, the views and the schema of each segment, but not the rows.

    Args:
        open_segments: False: skip the schemas too, for frequent calls. Reading a segment checks its schema anyway.

    Raises:
        JournalError: unreadable, foreign, of another version, or a segment is missing.
    """
    path = Path(path)
    header = _header_text(path)
    fields = _header(header, path)
    kind = fields["payload"], fields["schema_version"]
    schema, stream = arrow_schema(*kind), live_schema(*kind)
    # The writer may be at work: a view is written before its rows, and the closing record after all of them.
    closed = _views(_views_data(path), path)[2][0] is not None
    check = (
        (lambda segment: _check_schema(segment, stream if segment.live else schema))
        if open_segments
        else (lambda segment: None)
    )
    first_idx, found = _look(path, check)
    return assemble(path, header, _views_data(path), first_idx, tuple(found), closed=closed)


_last_read: dict[Path, tuple[tuple[Any, ...], Journal]] = {}
LAST_READ_MAX = 1024
"""A process remembers the last reading of this many journals."""


def read_again(path: Path) -> Journal:
    """A journal at present. With unchanged files nothing is read again: an idle stream asks many times a
    second.

    Raises:
        JournalError: unreadable.
    """
    before = _last_read.get(path)
    identity = _identity(path, before[1] if before is not None else None)
    if before is not None and identity == before[0]:
        return before[1]
    journal = read(path, open_segments=False)
    if before is None and len(_last_read) >= LAST_READ_MAX:
        _last_read.clear()
    _last_read[path] = identity, journal
    return journal


def _identity(path: Path, journal: Journal | None) -> tuple[Any, ...]:
    """The state of the files that the writer replaces or appends to: if the journal changes, so does this. The newest
    segment is that of the last reading of the journal; one that begins since then changes the manifest."""
    files = [f"{path}/{name}" for name in (HEADER_FILE, VIEWS_FILE, MANIFEST_FILE)]
    for segment in journal.segments[-1:] if journal is not None else ():
        if segment.live:
            name = os.fspath(segment.path)
            files += [name, f"{os.path.splitext(name)[0]}{SUMS_SUFFIX}"]
    found: list[Any] = []
    for file in files:
        try:
            of = os.stat(file)
            found.append((file, of.st_ino, of.st_size, of.st_mtime_ns, of.st_ctime_ns))
        except OSError:
            found.append((file, None))
    return tuple(found)


def assemble(
    path: Path, header: str, views_data: bytes, first_idx: int, segments: tuple[Segment, ...], *, closed: bool
) -> Journal:
    """A journal from its parts, which may come from another machine.

    Args:
        path: the name that errors give.
        header, views_data: contents of the two files, the second read after the segments were looked at.
        closed: whether the closing record was there before the segments were looked at.

    Raises:
        JournalError: one of the parts is not a journal's.
    """
    fields = _header(header, path)
    views, gaps, (reason, closed_idx), torn_records = _views(views_data, path)
    if not closed:
        reason, closed_idx = None, -1
    failed = reason.removeprefix(FAILED) if reason and reason.startswith(FAILED) else ""
    if any(view.owner not in (0, int(fields["member"]["id"], 16)) for view in views):
        raise JournalDamaged(f"{path / VIEWS_FILE} is of another member")
    if not views and any(segment.rows for segment in segments):
        raise JournalError(
            f"{path} has rows and no view that they were delivered in: restore its {VIEWS_FILE}, or leave out the "
            "journal"
        )
    placed, gaps = _placed(path, segments, first_idx, gaps)
    return Journal(
        path=path,
        cluster=fields["cluster"],
        member=Member(fields["member"]["name"], int(fields["member"]["id"], 16)),
        payload=fields["payload"],
        deliver_own=fields["deliver_own"],
        views=views,
        segments=placed,
        closed=None if failed else reason,
        failed=failed,
        closed_idx=closed_idx,
        torn_records=torn_records,
        first_idx=first_idx,
        version=fields["schema_version"],
        safe=fields.get("safe", False),
        locked=fields.get("locked", ""),
        previous=int(fields.get("previous", "0"), 16),
        gaps=gaps,
    )


def _placed(
    path: Path, segments: Sequence[Segment], first_idx: int, gaps: Sequence[Gap]
) -> tuple[tuple[Segment, ...], tuple[Gap, ...]]:
    """The segments with the positions of their first rows, and the gaps between them: a later gap is newer than the
    look at the segments.

    Raises:
        JournalDamaged: the segments have rows that a gap says are lost.
    """
    placed, at = list[Segment](), first_idx
    left = [gap for gap in gaps if gap.end > first_idx]
    known = len(gaps) - len(left)
    for segment in (*segments, None):
        while left and left[0].idx <= at and (segment is None or segment.rows):
            if left[0].idx < at:
                raise JournalDamaged(f"{path} has rows from {left[0].idx} on, which {VIEWS_FILE} says are lost")
            at, known = left.pop(0).end, known + 1
        if segment is not None:
            placed.append(replace(segment, first_idx=at))
            at += segment.rows
    return tuple(placed), tuple(gaps[:known])


def segment_batches(
    segment: Segment,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = 1 << 16,
    batch_bytes: int = 0,
    first: int = 0,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of one segment, with only the given columns; a column that the journal's version lacks is null. Checksums
    are compared before the rows that they cover are given out, for a rolled segment that of the whole file.

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
            yield _with_columns(batch.slice(begin - at, stop - begin), columns)


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
            kept = None if columns is None else [name for name in columns if name in names or name not in ADDED]
            if missing := sorted({*(kept or ())} - {*names}):
                raise JournalDamaged(f"{segment.path} has no column {missing[0]!r}")
            at, groups = _row_groups(file.metadata, first, end)
            together = _rows_together(file.metadata, groups, batch_rows, batch_bytes)
            # Threads would take twice the CPU time, and tasks of Spark have one processor each.
            for batch in file.iter_batches(together, groups, kept, use_threads=False):
                yield at, batch
                at += batch.num_rows
                if at >= end:
                    return
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: of a damaged name
        raise JournalDamaged(f"{path} cannot be read: {_line(error)}") from error


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


def _with_columns(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """The given columns of a batch, or all columns of a journal of this version."""
    import pyarrow as pa

    there = batch.schema.names
    lacking = {*(ADDED if columns is None else columns)} & {*ADDED} - {*there}
    if not lacking:
        return batch if columns is None or there == [*columns] else batch.select([*columns])
    of = arrow_schema("full" if "payload" in there else "hash")
    wanted = [of.field(name) for name in (of.names if columns is None else columns)]
    arrays = [pa.nulls(batch.num_rows, each.type) if each.name in lacking else batch[each.name] for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(wanted, of.metadata))


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
        if size != segment.size or seals.digest_of_file(file) != (segment.size, segment.hash):
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
        raise JournalDamaged(f"{segment.path} cannot be read: {_line(error)}") from error
    if contents.size != segment.size or seals.digest(contents) != segment.hash:
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


def _of_manifest(directory: Path, rolled: Rolled) -> Segment:
    path = directory / segment_name(rolled.number, "parquet")
    return Segment(
        rolled.number, path, False, rolled.rows, rolled.size, rolled.hash,
        last_ns=rolled.last_ns, first_idx=rolled.first_idx, first_ns=rolled.first_ns,
    )  # fmt: skip


def _journals_in(top: Path) -> list[Path]:
    """The directory itself, if of a journal, or those in it that are.

    Raises:
        JournalError: permission denied.
    """
    try:
        if _is_journal(top):
            return [top]
        with os.scandir(top) as entries:
            inside = sorted(each.path for each in entries if each.is_dir() or each.is_symlink())
        return [Path(path) for path in inside if _is_journal(path)]
    except OSError as error:
        raise JournalError(f"{top} cannot be read: {error.strerror}") from error


def _place(path: Path, given: Path) -> Path:
    """Where the journal is that was found in a given directory, under any name of the way there.

    Raises:
        JournalError: a link in that directory leads out, perhaps to files that others must not read.
    """
    place = path.resolve()
    if not place.is_relative_to(given.resolve()):
        raise JournalError(f"{path} is a link to {place}, which is not followed: give that directory")
    return place


def _is_journal(path: str | Path) -> bool:
    """The views are written after the header: a missing header was lost, and its journal must not be left out."""
    return os.path.exists(f"{path}/{HEADER_FILE}") or os.path.exists(f"{path}/{VIEWS_FILE}")


def _header_text(path: Path) -> str:
    try:
        return read_file(path / HEADER_FILE, HEADER_BYTES_MAX).decode()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (path / VIEWS_FILE).exists():
            raise JournalDamaged(f"{path / HEADER_FILE} is missing") from error
        raise JournalError(f"{path / HEADER_FILE} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _damaged_header(path, "not text") from error


def _header(text: str, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise JournalError(
                f"{path} is not a seqcast journal: its {HEADER_FILE} was not written by seqcast; give the directory "
                "of a member's journal"
            )
        if header["schema_version"] not in READ_VERSIONS:
            raise JournalError(
                f"{path} has journal version {header['schema_version']}, this seqcast reads "
                f"{' and '.join(map(str, READ_VERSIONS))}: use the seqcast that wrote it"
            )
        seals.unseal(text)
        for name in (header["cluster"], header["member"]["name"]):
            seals.typed(name, str)
        unknown = not int(header["member"]["id"], 16) or header["payload"] not in PAYLOAD_MODES
        if unknown or not isinstance(header["deliver_own"], bool):
            raise ValueError
        safe = header["safe"] if header["schema_version"] >= 7 else False
        if not isinstance(safe, bool) or int(header.get("previous", "0"), 16) < 0:
            raise ValueError
        seals.typed(header.get("locked", ""), str)
    except KeyError as error:
        raise _damaged_header(path, f"no {error}") from error
    except json.JSONDecodeError as error:
        raise _damaged_header(path, "not JSON") from error
    except seals.SealError as error:
        raise _damaged_header(path, str(error)) from error
    except (ValueError, TypeError) as error:
        raise _damaged_header(path, "a field has a value that cannot be") from error
    return dict(header)


def _damaged_header(path: Path, why: str) -> JournalDamaged:
    return JournalDamaged(f"{path / HEADER_FILE}, if it is of a seqcast journal: {why}")


def read_texts(path: Path) -> tuple[str, str]:
    """The header and the views of a journal now.

    Raises:
        JournalError: they cannot be read.
    """
    return _header_text(path), _views_data(path).decode()


def _views_data(path: Path) -> bytes:
    file = path / VIEWS_FILE
    try:
        return read_file(file, VIEWS_BYTES_MAX) if file.exists() else b""
    except OSError as error:
        raise JournalError(f"{file} cannot be read: {error.strerror}") from error


@functools.lru_cache(maxsize=16)  # a follower asks many times a second; views change rarely
def _views(data: bytes, path: Path) -> tuple[tuple[Installed, ...], tuple[Gap, ...], tuple[str | None, int], int]:
    lines = data.split(b"\n")
    views: list[Installed] = []
    gaps: list[Gap] = []
    closed: tuple[str | None, int] = (None, -1)
    tail = lines.pop()  # after the last newline: empty, or a record that was torn
    for number, line in enumerate(lines, 1):
        try:
            record = seals.unseal(line)
            if (closes := record["closes"]) and not views:
                raise ValueError("the record closes a view, and none stands before")
            if closes and views[-1].tag == int(closes["tag"], 16):
                clocks = tuple((int(sender, 16), seals.typed(least_ns, int)) for sender, least_ns in closes["clocks"])
                place = seals.typed(closes["end"], int), seals.typed(closes["stable"], int)
                successor = record["tag"] if record["event"] == "view" else closes.get("successor", "0")
                end = ViewEnd(seals.typed(record["idx"], int), *place, clocks, int(successor, 16))
                views[-1] = replace(views[-1], end=end)
            elif closes and record["event"] == "close":
                raise ValueError("the record closes another view than the last one")
            if seals.typed(record["idx"], int) < 0:
                raise ValueError("its position is below 0")
            if record["event"] == "gap":
                gap = gap_of(record)
                if closes:
                    raise ValueError("a gap closes no view")
                if gap.idx < max([0, *(each.end for each in gaps[-1:]), *(view.idx for view in views[-1:])]):
                    raise ValueError("the position is below that of the previous record")
                gaps.append(gap)
            elif record["event"] == "close":
                closed = str(record["reason"]), int(record["idx"])
            else:
                views.append(_installed(record))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalDamaged(f"{path / VIEWS_FILE}, line {number}, is not a view record: {_line(error)}") from error
    if tail and _is_sealed(tail[:-1]):  # a torn record has no more than a part of its line
        raise JournalDamaged(f"{path / VIEWS_FILE}, line {len(lines) + 1}, has an altered end")
    return tuple(views), tuple(gaps), closed, int(bool(tail))


def _is_sealed(line: bytes) -> bool:
    try:
        seals.unseal(line)
    except ValueError:
        return False
    return True


def _installed(record: dict[str, Any]) -> Installed:
    identity = record["view_id"]
    attempt, initiator = identity["flush"]
    view_id = ViewId(identity["counter"], int(identity["coordinator"], 16), (attempt, int(initiator, 16)))
    if f"{view_id.tag:016x}" != record["tag"]:
        raise ValueError("the tag is not that of the view id")
    members = tuple(Member(seals.typed(name, str), int(key, 16)) for name, key in record["members"])
    if (rank := seals.typed(record["rank"], int)) >= len(members):
        raise ValueError("the rank is not one of its members'")
    return Installed(
        view_id=view_id,
        tag=view_id.tag,
        members=members,
        order=seals.typed(record["order"], str),
        sequencer=seals.typed(record["sequencer"], int),
        mechanism=seals.typed(record["mechanism"], str),
        at_ns=seals.typed(record["at_ns"], int),
        idx=record["idx"],
        owner=members[rank].id if rank >= 0 else 0,
        subgroups=tuple((int(tag, 16), tuple(int(key, 16) for key in ids)) for tag, ids in record["subgroups"]),
        closes=int(record["closes"]["tag"], 16) if record["closes"] else 0,
    )


def _look(path: Path, check: Callable[[Segment], None]) -> tuple[int, list[Segment]]:
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


def _check_schema(segment: Segment, expected: pa.Schema) -> None:
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
    return JournalDamaged(f"{path} is not a segment of a journal: {_line(error)}")


def _was_written(path: Path) -> bool:
    """Whether checksums say that a stream had more than its schema."""
    sums = path.with_suffix(SUMS_SUFFIX)
    return sums.exists() and sums.stat().st_size > SUM_BYTES


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
