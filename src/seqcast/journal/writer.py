"""The journal of one member's deliveries, written by a thread of its own beside delivery."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import seqcast.codes as codes
from seqcast._native import columns
from seqcast.errors import ConfigError, JournalWriteError, UsageError
from seqcast.journal import seals
from seqcast.journal.events import EventsWriter
from seqcast.journal.gaps import OpenGap, scratch
from seqcast.journal.hold import hold
from seqcast.journal.live import live_schema, record_batch
from seqcast.journal.manifest import ManifestWriter
from seqcast.journal.records import RecordsFile
from seqcast.journal.roll import TOGETHER_ROWS, Roller
from seqcast.journal.schema import (
    FAILED,
    FORMAT,
    HEADER_FILE,
    PAYLOAD_MODES,
    SCHEMA_VERSION,
    VIEWS_FILE,
    directory_name,
    segment_name,
    signed,
)
from seqcast.journal.stream import StreamWriter
from seqcast.types import Member, MergeView, View, ViewId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from seqcast._native.columns import DeliveredBatch

log = logging.getLogger("seqcast.journal")

GROUP_RUNS, GROUP_MESSAGES, GROUP_BYTES = 8192, 32768, 1 << 20
"""Messages are gathered to this many runs, messages or bytes of payload, or for ``flush_s``, and written as one."""
BLOCK_ROOM = 2 * GROUP_RUNS, 2 * GROUP_MESSAGES, 2 * GROUP_BYTES
"""Room in a block: a batch of the usual size fits even into a nearly full one."""
FOREVER = float("inf")
RETRY_S = 1.0
"""How often a journal that a write error ended tries to write its closing record, and one that resumes to go on."""
ROOM_BYTES = 1 << 20
"""A journal goes on when the disk has this much room again: with less, the next rows would end the journal at once."""
GAP_VIEWS_MAX = 4096
"""A journal that waits for room keeps at most this many views, and ends with the next one."""
SPARE_BLOCKS = 4
"""Blocks kept for reuse: their memory is mapped, and in the processor's cache."""


class JournalWriter:
    """Journals the views and batches that a member delivers, in order.

    ``batch`` copies the rows, and payloads if they are kept, into a block and returns; a thread writes the blocks.
    Payloads are hashed in the caller's thread because delivery has just put them in its cache. Another thread would
    fetch them again from memory and hold the batch's buffer meanwhile, so delivery would continue in memory that is in
    no cache. Nothing is lost silently: when the queue is full ``batch`` waits (``waits``). After a write error the
    journal stops: the error is logged once, rows that are not kept are counted (``rows_lost``), and rows written before
    stay readable. With ``resume`` the journal goes on once there is room, and records the gap (`seqcast.journal.gaps`).

    Args:
        directory: top directory; the member's own is made there.
        payload: "full" keeps each payload and its hash, "hash" the hash only (XXH3, 64 bits).
        deliver_own: whether the member delivers its own messages (DIG-08); the audit must know.
        safe: whether the group delivers safely: the audit then expects more.
        queue_bytes: bound of the rows that wait to be written, bytes.
        flush_s: longest time that a delivered message waits for others before it is written, seconds. Written rows
            survive a crash of the process; for a crash of the machine the journal does not wait (no fsync).
        required: after a write error every call raises `JournalWriteError`, so that nothing is delivered that is not
            journaled. Otherwise delivery continues without a journal.
        resume: after a write error the journal goes on when rows can be written again. Not with ``required``.
        segment_rows, segment_bytes, segment_s: a live segment that reaches any of these (seconds: the age of its first
            row) is finished and rolled to Parquet.
        together_rows: finished segments with fewer rows together wait for the next ones, to be rolled into one file.
        sample: returns the member's counters, or None once they cannot be had any more: once a second the journal's
            thread notes those that rose (`seqcast.journal.events`).
        previous: id of the incarnation before of the same member, whose journal this one continues; 0: none.
        keep_s, keep_bytes: retention. Rolled segments older than this many seconds, or beyond this many bytes together,
            are removed, whole and oldest first; 0: no limit.

    Raises:
        UsageError: a setting is invalid, or this member already has a journal there.
        ConfigError: pyarrow is not installed, or the directory cannot be written.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        cluster: str,
        member: Member,
        payload: str = "full",
        deliver_own: bool = True,
        safe: bool = False,
        queue_bytes: int = 64 << 20,
        flush_s: float = 0.05,
        required: bool = False,
        resume: bool = False,
        segment_rows: int = 1_000_000,
        segment_bytes: int = 256 << 20,
        segment_s: float = 3600.0,
        together_rows: int = TOGETHER_ROWS,
        keep_s: float = 0.0,
        keep_bytes: int = 0,
        sample: Callable[[], Mapping[str, int] | None] | None = None,
        previous: int = 0,
    ) -> None:
        if payload not in PAYLOAD_MODES:
            raise UsageError(f"payload={payload!r}: a journal keeps {' or '.join(PAYLOAD_MODES)}")
        if min(queue_bytes, segment_rows, segment_bytes, segment_s) <= 0 or min(flush_s, keep_s, keep_bytes) < 0:
            raise UsageError(
                "queue_bytes, segment_rows, segment_bytes and segment_s must be positive, flush_s, keep_s and "
                "keep_bytes not negative"
            )
        if required and resume:
            raise UsageError("required=True takes no message without a journal, so resume=True has nothing to record")
        try:
            import pyarrow.parquet  # noqa: F401  # now, as rolling would load this beside delivery, with the GIL
        except ImportError as error:
            raise ConfigError("a journal needs pyarrow: pip install 'seqcast[journal]'") from error
        self.path = Path(directory) / directory_name(member)
        self._schema = live_schema(payload)
        self._room = BLOCK_ROOM if payload == "full" else (*BLOCK_ROOM[:2], -1)
        self._member = member
        self._process = os.getpid()
        self._required, self._resume = required, resume
        self._queue_bytes, self._flush_s = queue_bytes, flush_s
        self._segment_rows, self._segment_bytes, self._segment_s = segment_rows, segment_bytes, segment_s
        self._sample = sample
        self._write_header(cluster, payload, deliver_own, safe, previous)
        # Shared with the writer thread, under the lock:
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._queue: deque[columns.Block | dict[str, Any]] = deque()
        self._block: columns.Block | None = None  # the last one, which takes new rows
        self._since = 0.0  # when its first row came
        self._spare: list[columns.Block] = []
        self._queued = 0
        self._idx = 0
        self._closed = False
        self._error: str | None = None
        self._gap: OpenGap | None = None  # while the disk is full
        self._counters = dict.fromkeys(
            (
                "rows",
                "batches",
                "bytes",
                "views",
                "waits",
                "skipped",
                "segments",
                "rolled",
                "expired",
                "rows_lost",
                "gaps",
                "roll_errors",
            ),
            0,
        )
        # Of the caller only:
        self._view: View | None = None
        self._tag = 0
        self._prefix, self._total = True, False
        self._global_seqno = 0  # of the last message of the view
        self._transitional = 0  # of the first transitional message; 0: none
        # Of the writer thread only:
        self._unwritten: list[dict[str, Any]] = []  # a record that the disk did not take
        self._end_idx = 0  # after the last row that was written, or lost in a gap
        self._behind_gap = False  # the live segment is
        self._clocks: dict[int, int] = {}  # sender -> lowest difference between delivery and sending in the view, ns
        self._segment = self._segment_of(1)
        self._roller = Roller(
            self.path, self._counters, self._manifest, together_rows=together_rows, keep_s=keep_s, keep_bytes=keep_bytes
        )
        self._thread = threading.Thread(target=self._run, name=f"journal-{member.name}", daemon=True)
        self._thread.start()

    # ---- the group's calls -----------------------------------------------------------------------------------

    def view(self, view: View, at_ns: int, *, prefix: bool = True, total: bool = False) -> None:
        """Journals a view at its delivery to the application.

        Args:
            at_ns: wall clock, ns since 1970.
            prefix: a lost member has delivered a prefix of the others' deliveries in this view, even of transitional
                messages.
            total: the view has a total order: only messages with a place in it are journaled.

        Raises:
            JournalWriteError: an earlier write failed, and the journal is ``required``.
            UsageError: the journal is closed.
        """
        record = _view_record(view, self._view, self._member, at_ns)
        with self._lock:
            admitted, closes = self._admit(0, 0), self._view_end()
            self._view, self._tag, self._prefix, self._total = view, view.view_id.tag, prefix, total
            self._global_seqno = self._transitional = 0
            if not admitted:
                return  # its batches are counted as lost
            self._hand_over()
            record = {**record, "idx": self._idx, "closes": closes}
            if self._gap is None:
                self._queue.append(record)
            elif len(self._gap.views) < GAP_VIEWS_MAX:
                self._gap.views.append(record)
            else:
                self._fail(f"{self._gap.why}, while {GAP_VIEWS_MAX} views were installed")

    def batch(self, batch: DeliveredBatch, view: View) -> None:
        """Journals a delivered batch of ``view``; waits while the queue is full.

        Raises:
            JournalWriteError: an earlier write failed, and the journal is ``required``; the batch is the caller's.
            UsageError: the journal is closed, or ``view`` is not the last one that was journaled.
        """
        if (view is not self._view and view != self._view) or batch.view_tag != self._tag:
            raise UsageError(f"batch of {view}, but the last view journaled is {self._view}: call view() first")
        rows = len(batch)
        size = rows * (columns.RUN_BYTES + columns.MESSAGE_BYTES) + (batch.nbytes if self._room[2] >= 0 else 0)
        with self._lock:
            if self._closed or self._error is not None or self._queued + size > self._queue_bytes:
                if not self._admit(rows, size):
                    return
            try:
                added = self._add(batch, view) if self._gap is None else self._lose(self._gap, batch, view)
            except (ValueError, MemoryError) as error:
                self._counters["rows_lost"] += rows
                self._fail(str(error))
                if self._required:
                    raise JournalWriteError(self._error) from error
                return
            self._idx += added
            self._counters["skipped"] += rows - added

    def event(self, kind: str, text: str, at_ns: int) -> None:
        """Records the application's events besides messages and views.

        Args:
            kind: the event's class: "Lost", "Blocked", ...
            text: its contents, one line.
            at_ns: wall clock, ns since 1970.
        """
        with self._lock:
            if not self._closed and self._error is None and self._gap is None:
                self._hand_over()
                self._queue.append({"event": "event", "at_ns": at_ns, "kind": kind, "text": text})

    def close(self, reason: str, *, at_view_end: bool = False, successor: View | None = None) -> None:
        """Writes the waiting rows and a closing record, rolls the last segment, ends the thread. A later call waits
        until the first one has done that.

        Args:
            reason: why the member stopped journaling: "leave", "excluded", an error's text.
            at_view_end: everything that the cut of the last view delivers was journaled.
            successor: the view in which the group continued; with ``at_view_end`` only.

        Raises:
            JournalWriteError: the journal is ``required``, and something could not be written; `counters` says how
                much.
        """
        if os.getpid() != self._process:
            return  # in a child of `fork`: the journal is the parent's, whose threads may hold the lock for ever here
        with self._lock:
            if not self._closed:
                self._hand_over()
                record = {"event": "close", "reason": reason, "at_ns": time.time_ns(), "idx": self._idx}
                closes = self._view_end() if at_view_end else None
                if closes and successor is not None:
                    closes["successor"] = f"{successor.view_id.tag:016x}"
                self._queue.append({**record, "closes": closes})
                self._closed = True
                self._condition.notify_all()
        threads = self._thread, self._roller.thread
        if threading.current_thread() in threads:  # the group was collected as garbage; the rest is its own work
            return
        for thread in threads:
            thread.join()
        self._views_file.close()
        if self._error is not None and self._required:
            raise JournalWriteError(self._error)

    def state(self) -> dict[str, Any]:
        """Its place, its fault, and its counters."""
        return {"path": str(self.path), "error": self._error or "", **self.counters()}

    def counters(self) -> dict[str, int]:
        """rows, batches (Arrow), bytes (live segments), views, waits (queue full), skipped (unicasts, and messages
        beside the total order), segments, rolled, expired (segments that retention removed), rows_lost, gaps (after
        which the journal went on), roll_errors, and the current queued_bytes and unrolled (finished segments that wait
        to be rolled, small ones for others)."""
        with self._lock:
            return {**self._counters, "queued_bytes": self._queued, "unrolled": self._roller.waiting()}

    # ---- the queue, under the lock -------------------------------------------------------------------------

    def _admit(self, rows: int, size: int) -> bool:
        """Waits while there is no room for ``size`` bytes, or raises. False: the journal has stopped."""
        if self._queued and self._queued + size > self._queue_bytes and self._error is None and not self._closed:
            self._counters["waits"] += 1
            self._hand_over()
            self._condition.wait_for(
                lambda: (
                    not self._queued
                    or self._queued + size <= self._queue_bytes
                    or self._error is not None
                    or self._closed
                )
            )
        if self._closed:
            self._counters["rows_lost"] += rows
            raise UsageError("the journal is closed")
        if self._error is not None:
            if self._required:  # the caller keeps them
                raise JournalWriteError(self._error)
            self._counters["rows_lost"] += rows
            return False
        return True

    def _add(self, batch: DeliveredBatch, view: View) -> int:
        """Adds the messages of a batch to the open block, or to a new one; returns how many."""
        added, counter, tag = -1, view.view_id.counter, signed(self._tag)
        if self._block is not None:
            before = self._block.nbytes
            added = self._block.add(batch, idx=self._idx, view_counter=counter, view_tag=tag, total=self._total)
            if added < 0:
                self._hand_over()
        if self._block is None:
            runs, messages, payload_bytes = self._room
            rows = len(batch)
            room = max(runs, rows), max(messages, rows), max(payload_bytes, batch.nbytes) if payload_bytes >= 0 else -1
            self._block = self._spare.pop() if self._spare and room == self._room else columns.Block(*room)
            self._since, before = time.monotonic(), 0
            self._condition.notify_all()  # the writer waits no longer than flush_s
            added = self._block.add(batch, idx=self._idx, view_counter=counter, view_tag=tag, total=self._total)
        block = self._block
        self._queued += block.nbytes - before
        if added:
            self._delivered(block, batch)
        if block.runs >= GROUP_RUNS or block.messages >= GROUP_MESSAGES or block.payload_bytes >= GROUP_BYTES:
            self._hand_over()
        return added

    def _delivered(self, block: columns.Block, batch: DeliveredBatch) -> None:
        """For the record of the view's end."""
        self._global_seqno = block.last_global_seqno
        self._transitional = self._transitional or batch.transitional

    def _lose(self, gap: OpenGap, batch: DeliveredBatch, view: View) -> int:
        """As `_add`, while the disk is full."""
        block = scratch(batch, self._room[2] >= 0)
        counter, tag = view.view_id.counter, signed(self._tag)
        if added := block.add(batch, idx=self._idx, view_counter=counter, view_tag=tag, total=self._total):
            self._delivered(block, batch)
            gap.lose(block, self._schema)
            self._counters["rows_lost"] += added
        return added

    def _view_end(self) -> dict[str, Any] | None:
        """Where the closing view ended, for its successor's record. Up to ``stable`` a lost member can have delivered
        nothing else: everything if the order makes its stream a prefix of ours, otherwise all before the first
        transitional message."""
        if self._view is None:
            return None
        end = self._global_seqno
        stable = end if self._prefix or not self._transitional else self._transitional - 1
        return {"tag": f"{self._tag:016x}", "end": end, "stable": stable}

    def _hand_over(self) -> None:
        """Queues the open block for writing."""
        if self._block is not None:
            self._queue.append(self._block)
            self._block = None
        self._condition.notify_all()

    def _fail(self, why: str) -> None:
        """Stops the journal; waiting rows are counted as lost."""
        self._hand_over()
        self._counters["rows_lost"] += sum(item.messages for item in self._queue if not isinstance(item, dict))
        self._error = (
            f"journal {self.path}: {why}; nothing is journaled from row {self._end_idx} on: free space, or "
            "make the directory writable, then join again"
        )
        if not self._required:  # else the caller is told
            text = codes.JOURNAL_LACKS("%s; delivery continues, and rows_lost counts the rows that the journal lacks")
            log.error(text, self._error)
        self._queue.clear()
        self._queued = 0
        self._condition.notify_all()

    def _open_gap(self, why: str) -> None:
        """The disk takes no rows."""
        log.error(
            codes.JOURNAL_LACKS(
                "journal %s: %s; rows from %d on are not journaled, and counted in rows_lost, until there is room "
                "again: free space, or make the directory writable"
            ),
            self.path, why, self._end_idx,
        )  # fmt: skip
        self._unwritten = []
        self._fill(OpenGap(self._end_idx, why))

    def _fill(self, gap: OpenGap) -> None:
        """Waiting rows are lost in a gap, but for views and the end."""
        self._hand_over()
        self._gap = gap
        for item in self._queue:
            if not isinstance(item, dict):
                gap.lose(item, self._schema)
                self._counters["rows_lost"] += item.messages
            elif item["event"] == "view":
                gap.views.append(item)
        left = [item for item in self._queue if isinstance(item, dict) and item["event"] == "close"]
        self._queue.clear()
        self._queue.extend(left)
        self._queued = 0
        self._condition.notify_all()

    # ---- the writer thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._goes_on():
                pass
        except Exception as error:
            with self._lock:
                self._gap = None
                if self._error is None:
                    self._fail(str(error))
            with contextlib.suppress(Exception):
                self._segment.abandon()
            with contextlib.suppress(Exception):
                self._tell_failed(f"{FAILED}{str(error) or type(error).__name__}")
            with contextlib.suppress(Exception):
                self._events.close()  # the other file is locked as long as the member goes on
        finally:
            self._roller.close()

    def _goes_on(self) -> bool:
        """A step, and after a write error the wait for room."""
        try:
            return self._step()
        except OSError as error:
            if not self._resume or self._error is not None:
                raise
            self._keep_whole()
            with self._lock:
                self._open_gap(str(error))
            while not self._resumed():
                pass
            return True

    def _keep_whole(self) -> None:
        """Cuts off a record that the disk took in part."""
        segment = self._segment
        rows, size = segment.rows, segment.bytes
        segment.cut()
        if rows:
            self._segment = self._segment_of(segment.number + 1)
            self._ended(segment, rows, size)

    def _resumed(self) -> bool:
        """Whether there was room for a record of the gap, perhaps after a while."""
        with self._lock:
            self._condition.wait_for(lambda: self._closed or self._error is not None, RETRY_S)
            closed = self._closed
        if not closed and not self._has_room():
            return False
        with self._lock:
            if self._error is not None:
                raise JournalWriteError(self._error)
            gap, end = self._gap, self._idx
            assert gap is not None
            self._gap = None  # rows delivered from now on wait until the record is written
        lost = end - gap.idx
        try:
            if lost:
                self._views_file.write(gap.record(end))
        except OSError:
            with self._lock:
                self._fill(gap)
            if closed:
                raise
            return False
        with self._lock:
            self._end_idx = end
            self._behind_gap = self._behind_gap or lost > 0
            self._counters["gaps"] += lost > 0
            self._queue.extendleft(reversed(gap.views))
        text = codes.JOURNAL_LACKS("journal %s goes on with row %d, as there is room again: %d rows are missing")
        log.warning(text, self.path, end, lost)
        return True

    def _has_room(self) -> bool:
        """Whether rows can be written again, as far as the disk says."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize >= ROOM_BYTES

    def _tell_failed(self, reason: str) -> None:
        """Writes the closing record of a journal that a write error ended, as soon as there is room."""
        close = {"event": "close", "reason": reason, "at_ns": time.time_ns(), "idx": self._end_idx, "closes": None}
        left = deque([*self._unwritten, close])
        while left:
            closed = self._closed
            try:
                self._views_file.write(left[0])
                left.popleft()
            except OSError:
                if closed:
                    raise
                with self._lock:
                    self._condition.wait_for(lambda: self._closed, RETRY_S)

    def _step(self) -> bool:
        item = self._next_item()
        with self._unless_resumed():
            self._events.look()
        written = 0
        if isinstance(item, dict):
            if item["event"] == "close":
                self._finish_segment()  # first: a journal is not closed before
            self._write_record(item)
        elif item is not None and item.messages:  # none: there were only unicasts
            for sender, least_ns in item.clocks().items():
                self._clocks[sender] = min(least_ns, self._clocks.get(sender, least_ns))
            written = item.nbytes
            self._segment.write(record_batch(item, self._schema), item.messages)
        with self._lock:
            if self._error is None and item is not None:
                self._written(item, written)
        if isinstance(item, dict) and item["event"] == "close":
            self._views_file.close()
            self._events.close()
            return False
        segment = self._segment
        if (
            segment.rows >= self._segment_rows
            or segment.bytes >= self._segment_bytes
            or time.monotonic() >= segment.due
        ):
            self._finish_segment()
        return True

    def _next_item(self) -> columns.Block | dict[str, Any] | None:
        """Waits for the next item to write; None: something else is due. The item stays queued until written, and is
        lost in a failure."""
        with self._lock:
            while not self._queue and self._error is None:
                now = time.monotonic()
                if self._block is not None and now >= self._since + self._flush_s:
                    self._hand_over()
                elif now >= min(self._segment.due, self._events.due):
                    break
                else:
                    due = min(self._segment.due, self._events.due)
                    if self._block is not None:
                        due = min(due, self._since + self._flush_s)
                    self._condition.wait(due - now if due < FOREVER else None)
            if self._error is not None:
                raise JournalWriteError(self._error)
            return self._queue[0] if self._queue else None

    def _write_record(self, record: dict[str, Any]) -> None:
        if record["event"] != "event":
            clocks = self._clocks
            record = self._with_clocks(record)
            self._unwritten = [record]
            try:
                self._views_file.write(record)
            except OSError:
                self._clocks = clocks  # a journal that resumes does so later
                raise
            self._unwritten = []
        if record["event"] == "view":
            kept = ("event", "at_ns", "tag", "members", "joined", "left")
            record = {"counter": record["view_id"]["counter"], **{name: record[name] for name in kept}}
        if record["event"] != "close":
            with self._unless_resumed():
                self._events.write(record)

    def _unless_resumed(self) -> contextlib.AbstractContextManager[None]:
        """For events: they end no journal that goes on without rows."""
        return contextlib.suppress(OSError) if self._resume else contextlib.nullcontext()

    def _with_clocks(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record that ends a view, with the estimates of the clocks in that view."""
        clocks = [[f"{sender & (1 << 64) - 1:016x}", self._clocks[sender]] for sender in sorted(self._clocks)]
        self._clocks = {}
        return {**record, "closes": {**record["closes"], "clocks": clocks}} if record["closes"] else record

    def _written(self, item: columns.Block | dict[str, Any], written: int) -> None:
        """Under the lock."""
        self._queue.popleft()
        if isinstance(item, dict):
            self._counters["views"] += item["event"] == "view"
            return
        self._counters["rows"] += item.messages
        self._end_idx += item.messages
        self._counters["batches"] += item.messages > 0
        self._counters["bytes"] += written
        self._queued -= item.nbytes
        if len(self._spare) < SPARE_BLOCKS and item.room == self._room:
            item.clear()
            self._spare.append(item)
        self._condition.notify_all()

    def _segment_of(self, number: int) -> _Segment:
        return _Segment(self.path, number, self._manifest, self._schema, self._segment_s)

    def _finish_segment(self) -> None:
        finished = self._segment
        ended, rows, size = finished.finish(), finished.rows, finished.bytes
        self._segment = self._segment_of(finished.number + 1)
        if ended:
            self._ended(finished, rows, size)

    def _ended(self, segment: _Segment, rows: int, size: int) -> None:
        with self._lock:
            self._counters["segments"] += 1
        self._roller.add(segment.path, rows, size, behind_gap=self._behind_gap)
        self._behind_gap = False

    def _write_header(self, cluster: str, payload: str, deliver_own: bool, safe: bool, previous: int) -> None:
        header = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "cluster": cluster,
            "member": {"name": self._member.name, "id": f"{self._member.id:016x}"},
            "payload": payload,
            "deliver_own": deliver_own,
            "safe": safe,
            "created_ns": time.time_ns(),
            "locked": "",
            **({"previous": f"{previous:016x}"} if previous else {}),
        }
        try:
            self.path.mkdir(parents=True)
            self._manifest = ManifestWriter(self.path)
            seals.replace(self.path / HEADER_FILE, header)
            self._views_file = RecordsFile(self.path / VIEWS_FILE)
            if locked := hold(self._views_file):
                seals.replace(self.path / HEADER_FILE, {**header, "locked": locked})
            self._events = EventsWriter(self.path, self._sample)
        except FileExistsError as error:
            raise UsageError(f"{self.path} exists: a journal is written once, choose another directory") from error
        except OSError as error:
            raise ConfigError(f"the journal directory {self.path} cannot be written: {error.strerror}") from error


class _Segment:
    """The live segment; its file is made with the first row. Without a reference to the journal, which is then freed
    right after its end."""

    def __init__(self, journal: Path, number: int, manifest: ManifestWriter, schema: pa.Schema, age_s: float) -> None:
        self._manifest, self._schema, self._age_s = manifest, schema, age_s
        self.number = number
        self.path = journal / segment_name(number, "arrows")
        self.due = FOREVER
        """When the segment must be finished, monotonic seconds."""
        self._stream: StreamWriter | None = None

    @property
    def rows(self) -> int:
        return self._stream.rows if self._stream else 0

    @property
    def bytes(self) -> int:
        return self._stream.bytes if self._stream else 0

    def write(self, batch: pa.RecordBatch, messages: int) -> None:
        if self._stream is None:
            self._manifest.start(self.number)
            self._stream = StreamWriter(self.path, self._schema)
            self.due = time.monotonic() + self._age_s
        self._stream.write(batch, messages)

    def finish(self) -> bool:
        """Ends the stream. False if nothing was written."""
        if self._stream is None:
            return False
        self._stream.finish()
        return True

    def cut(self) -> None:
        """After a write error: keeps the whole records, or restarts the file if there are none."""
        if self._stream is not None:
            self._stream.cut()
            self._stream = None
            self.due = FOREVER

    def abandon(self) -> None:
        """Closes the file unchanged, after a write error."""
        if self._stream is not None:
            self._stream.close()


def _view_id(view_id: ViewId) -> dict[str, Any]:
    attempt, initiator = view_id.flush
    return {
        "counter": view_id.counter,
        "coordinator": f"{view_id.coordinator:016x}",
        "flush": [attempt, f"{initiator:016x}"],
    }


def _view_record(view: View, previous: View | None, member: Member, at_ns: int) -> dict[str, Any]:
    """One line of views.jsonl; ids are hexadecimal text, as many readers give JSON numbers 53 bits."""
    before = {} if previous is None else {other.id: other.name for other in previous.members}
    now = {other.id: other.name for other in view.members}
    return {
        "event": "view",
        "at_ns": at_ns,
        "view_id": _view_id(view.view_id),
        "tag": f"{view.view_id.tag:016x}",
        "members": [[other.name, f"{other.id:016x}"] for other in view.members],
        "rank": view.rank(member.id),
        "order": view.order,
        "sequencer": view.sequencer,
        "mechanism": view.mechanism,
        "joined": [name for key, name in now.items() if key not in before],
        "left": [name for key, name in before.items() if key not in now],
        "subgroups": [
            [f"{group.view_id.tag:016x}", [f"{other.id:016x}" for other in group.members]]
            for group in (view.subgroups if isinstance(view, MergeView) else ())
        ],
    }
