"""A member's journal. After a crash it is read to its last complete batch; other files are refused."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast._native.engine import Message
from seqcast.journal.events import read_events
from seqcast.journal.gaps import Gap, kept_parts
from seqcast.journal.header import header_text, parse_header
from seqcast.journal.live import live_schema
from seqcast.journal.schema import (
    FAILED,
    HEADER_FILE,
    MANIFEST_FILE,
    VIEWS_FILE,
    JournalDamaged,
    JournalError,
    arrow_schema,
    signed,
)
from seqcast.journal.segments import Segment, check_schema, look, segment_batches
from seqcast.journal.stream import SUMS_SUFFIX
from seqcast.journal.views import Installed, parse_views, views_data
from seqcast.types import Member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


LAST_READ_MAX = 1024
"""A process remembers the last reading of this many journals."""
MESSAGE_COLUMNS = ("view_tag", "sender", "seqno", "index", "global_seqno", "sent_ns", "transitional", "payload")


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one member.

    Args:
        first_idx: position of the first row that retention has kept; 0: all are there.
        closed: reason of the closing record, or None: the member crashed or still writes, or the journal ``failed``.
        closed_idx: number of rows written, from the closing record; -1 without one.
        torn_records: number of view records with an incomplete line.
        safe: the group delivers safely (``safe=True``).
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


def read(path: str | Path, *, open_segments: bool = True) -> Journal:
    """The journal of one member; reads the header, the views and the schema of each segment, but not the rows.

    Args:
        open_segments: False: skip the schemas too, for frequent calls. Reading a segment checks its schema anyway.

    Raises:
        JournalError: unreadable, foreign, of another version, or a segment is missing.
    """
    path = Path(path)
    header = header_text(path)
    fields = parse_header(header, path)
    schema, stream = arrow_schema(fields["payload"]), live_schema(fields["payload"])
    # The writer may be at work: a view is written before its rows, and the closing record after all of them.
    closed = parse_views(views_data(path), path)[2][0] is not None
    check = (
        (lambda segment: check_schema(segment, stream if segment.live else schema))
        if open_segments
        else (lambda segment: None)
    )
    first_idx, found = look(path, check)
    return assemble(path, header, views_data(path), first_idx, tuple(found), closed=closed)


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
    fields = parse_header(header, path)
    views, gaps, (reason, closed_idx), torn_records = parse_views(views_data, path)
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
        safe=fields["safe"],
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


def read_texts(path: Path) -> tuple[str, str]:
    """The header and the views of a journal now.

    Raises:
        JournalError: they cannot be read.
    """
    return header_text(path), views_data(path).decode()


_last_read: dict[Path, tuple[tuple[Any, ...], Journal]] = {}


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
