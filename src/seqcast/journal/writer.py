"""The journal of what one member delivered, written by a thread of its own beside delivery."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from seqcast.errors import ConfigError, JournalWriteError, UsageError
from seqcast.journal.roll import Roller
from seqcast.journal.schema import (
    COLUMNS,
    FORMAT,
    HEADER_FILE,
    PAYLOAD_MODES,
    SCHEMA_VERSION,
    VIEWS_FILE,
    arrow_schema,
    directory_name,
    segment_name,
    signed,
)
from seqcast.types import Member, View, ViewId

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 8192
GROUP_BYTES = 256 << 10
"""Batches are gathered to this many rows or bytes, or for ``flush_s``, before they are written as one."""


class DeliveredBatch(Protocol):
    """What the journal needs of ``seqcast._native.engine.Batch``."""

    @property
    def data(self) -> npt.NDArray[np.uint8]: ...
    @property
    def offsets(self) -> npt.NDArray[np.int32]: ...
    @property
    def runs(self) -> npt.NDArray[Any]: ...
    @property
    def view_tag(self) -> int: ...
    @property
    def delivered_ns(self) -> int: ...


class JournalWriter:
    """Journals the views and batches that a member delivers, in their order.

    ``batch`` keeps a reference and returns; a thread writes. Nothing is lost silently: when the queue is full ``batch``
    waits (``waits``), and after a write error every call raises `JournalWriteError` and counts what is not kept.

    Args:
        directory: top directory; the member's own is made inside it.
        payload: "full" keeps each payload and its hash, "hash" the hash only (XXH64, seed 42).
        deliver_own: whether the member delivers its own messages (DIG-08); the audit must know.
        queue_bytes: bound of what waits to be written, bytes.
        flush_s: longest time that a delivered message waits for others before it is written, seconds. What was written
            survives a crash of the process; for a crash of the machine the journal does not wait (no fsync).
        segment_rows, segment_bytes: a live segment that reaches either is finished and rolled to Parquet.

    Raises:
        UsageError: a setting that cannot be, or this member already has a journal there.
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
        queue_bytes: int = 64 << 20,
        flush_s: float = 0.05,
        segment_rows: int = 1_000_000,
        segment_bytes: int = 256 << 20,
    ) -> None:
        if payload not in PAYLOAD_MODES:
            raise UsageError(f"payload={payload!r}: a journal keeps {' or '.join(PAYLOAD_MODES)}")
        if min(queue_bytes, segment_rows, segment_bytes) <= 0 or flush_s < 0:
            raise UsageError("queue_bytes, segment_rows and segment_bytes must be positive, flush_s not negative")
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ConfigError("a journal needs pyarrow: pip install 'seqcast[journal]'") from error
        self.path = Path(directory) / directory_name(member)
        self._pa = pa
        self._schema = arrow_schema(payload)
        self._payload = payload == "full"
        self._member = member
        self._queue_bytes, self._flush_s = queue_bytes, flush_s
        self._segment_rows, self._segment_bytes = segment_rows, segment_bytes
        self._write_header(cluster, payload, deliver_own)
        # Shared with the writer thread, under the condition:
        self._condition = threading.Condition()
        self._queue: deque[DeliveredBatch | dict[str, Any]] = deque()
        self._queued = 0
        self._closed = False
        self._error: str | None = None
        self._counters = dict.fromkeys(
            (
                "rows",
                "batches",
                "bytes",
                "views",
                "waits",
                "unicasts_skipped",
                "segments",
                "rolled",
                "rows_lost",
                "roll_errors",
            ),
            0,
        )
        # Of the caller only:
        self._view: View | None = None
        self._tag = 0
        # Of the writer thread only:
        self._idx = 0
        self._segment = _Segment(self, 1)
        self._pending: list[tuple[DeliveredBatch, int, int]] = []
        self._pending_rows = self._pending_bytes = 0
        self._since = 0.0
        self._in_view = (0, 0)
        self._roller = Roller(self._counters)
        self._thread = threading.Thread(target=self._run, name=f"journal-{member.name}", daemon=True)
        self._thread.start()

    # ---- what the group calls -----------------------------------------------------------------------------------

    def view(self, view: View, at_ns: int) -> None:
        """Journals a view that is delivered to the application. ``at_ns``: wall clock, ns since 1970.

        Raises:
            JournalWriteError: an earlier write failed.
            UsageError: the journal is closed.
        """
        record = _view_record(view, self._view, self._member, at_ns)
        self._view, self._tag = view, view.view_id.tag
        self._put(record, 0, 0)

    def batch(self, batch: DeliveredBatch, view: View) -> None:
        """Journals a delivered batch of ``view``, kept by reference until it is written; waits while the queue is full.

        Raises:
            JournalWriteError: an earlier write failed; this batch is counted in ``rows_lost``.
            UsageError: the journal is closed, or ``view`` is not the last one that was journaled.
        """
        if (view is not self._view and view != self._view) or batch.view_tag != self._tag:
            raise UsageError(f"batch of {view}, but the last view journaled is {self._view}: call view() first")
        self._put(batch, batch.data.nbytes + batch.offsets.nbytes + batch.runs.nbytes, len(batch.offsets) - 1)

    def close(self, reason: str) -> None:
        """Writes what waits and a closing record, rolls the last segment and ends the thread. Again: does nothing.

        Args:
            reason: why the member stopped journaling: "leave", "excluded", an error's text.

        Raises:
            JournalWriteError: something could not be written; `counters` says how much.
        """
        with self._condition:
            if self._closed:
                return
            self._queue.append({"event": "close", "reason": reason, "at_ns": time.time_ns()})
            self._closed = True
            self._condition.notify_all()
        self._thread.join()
        self._roller.close()
        if self._error is not None:
            raise JournalWriteError(self._error)

    def counters(self) -> dict[str, int]:
        """rows, batches (Arrow), bytes (live segments), views, waits (queue full), unicasts_skipped, segments, rolled,
        rows_lost, roll_errors, and queued_bytes (now)."""
        with self._condition:
            return {**self._counters, "queued_bytes": self._queued}

    # ---- the queue ----------------------------------------------------------------------------------------------

    def _put(self, item: DeliveredBatch | dict[str, Any], size: int, rows: int) -> None:
        with self._condition:
            if self._closed:
                raise UsageError("the journal is closed")
            if self._queued and self._queued + size > self._queue_bytes and self._error is None:
                self._counters["waits"] += 1
                self._condition.wait_for(
                    lambda: not self._queued or self._queued + size <= self._queue_bytes or self._error is not None
                )
            if self._error is not None:
                self._counters["rows_lost"] += rows
                raise JournalWriteError(self._error)
            self._queue.append(item)
            self._queued += size
            self._condition.notify_all()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except Exception as error:
            with self._condition:
                lost = self._pending_rows + sum(
                    len(item.offsets) - 1 for item in self._queue if not isinstance(item, dict)
                )
                self._counters["rows_lost"] += lost
                self._error = (
                    f"journal {self.path}: {error}; nothing is journaled from row {self._idx} on: free space or mend "
                    "the directory, then join again"
                )
                self._queue.clear()
                self._queued = 0
                self._condition.notify_all()
            with contextlib.suppress(Exception):
                self._segment.abandon()
                self._views_file.close()

    def _step(self) -> bool:
        with self._condition:
            if not self._queue:
                left = max(0.0, self._since + self._flush_s - time.monotonic()) if self._pending else None
                self._condition.wait_for(lambda: self._queue, timeout=left)
            item = self._queue.popleft() if self._queue else None
        if item is None:
            self._flush()
        elif isinstance(item, dict):
            self._flush()
            self._views_file.write(json.dumps({**item, "idx": self._idx}) + "\n")
            self._views_file.flush()
            if item["event"] == "close":
                self._finish_segment()
                self._views_file.close()
                return False
            self._counters["views"] += 1
            self._in_view = (item["view_id"]["counter"], signed(int(item["tag"], 16)))
        else:
            self._take(item)
        return True

    # ---- the writer thread --------------------------------------------------------------------------------------

    def _take(self, batch: DeliveredBatch) -> None:
        from seqcast._native import columns

        multicast, unicast = columns.count(batch.runs.view(np.uint8))
        if not self._pending:
            self._since = time.monotonic()
        self._pending.append((batch, multicast, unicast))
        self._pending_rows += multicast
        self._pending_bytes += batch.data.nbytes
        if (
            self._pending_rows >= GROUP_ROWS
            or self._pending_bytes >= GROUP_BYTES
            or time.monotonic() - self._since >= self._flush_s
        ):
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        record = self._record_batch() if self._pending_rows else None
        if record is not None:
            self._segment.write(record)
        pending, self._pending = self._pending, []
        self._idx += self._pending_rows
        with self._condition:
            for batch, _, unicast in pending:
                self._queued -= batch.data.nbytes + batch.offsets.nbytes + batch.runs.nbytes
                self._counters["unicasts_skipped"] += unicast
            self._counters["rows"] += self._pending_rows
            self._counters["batches"] += record is not None
            self._counters["bytes"] += record.nbytes if record is not None else 0
            self._condition.notify_all()
        self._pending_rows = self._pending_bytes = 0
        if self._segment.rows >= self._segment_rows or self._segment.bytes >= self._segment_bytes:
            self._finish_segment()

    def _record_batch(self) -> pa.RecordBatch:
        from seqcast._native import columns

        pa = self._pa
        arrays: dict[str, npt.NDArray[Any]] = {
            name: np.empty(self._pending_rows, kind) for name, kind in COLUMNS.items()
        }
        counter, tag = self._in_view
        at = 0
        for batch, _, _ in self._pending:
            at += columns.fill(
                arrays, at, self._idx + at, batch.data, batch.offsets, batch.runs.view(np.uint8),
                view_counter=counter, view_tag=tag, delivered_ns=batch.delivered_ns,
            )  # fmt: skip
        built = [
            pa.Array.from_buffers(self._schema.field(name).type, at, [None, pa.py_buffer(array)])
            for name, array in arrays.items()
        ]
        if self._payload:
            parts = [part for batch, _, unicast in self._pending for part in self._payloads(batch, unicast)]
            built.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
        return pa.RecordBatch.from_arrays(built, schema=self._schema)

    def _payloads(self, batch: DeliveredBatch, unicast: int) -> list[pa.Array]:
        """The batch's own memory as Arrow arrays; without the unicasts, where there are any."""
        pa = self._pa
        whole = pa.Array.from_buffers(
            pa.binary(), len(batch.offsets) - 1, [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.data)]
        )
        if not unicast:
            return [whole]
        return [whole.slice(int(run["first"]), int(run["n"])) for run in batch.runs if not run["unicast"]]

    def _finish_segment(self) -> None:
        finished, number = self._segment, self._segment.number
        self._segment = _Segment(self, number + 1)
        if finished.finish():
            with self._condition:
                self._counters["segments"] += 1
            self._roller.add(finished.path)

    def _write_header(self, cluster: str, payload: str, deliver_own: bool) -> None:
        header = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "cluster": cluster,
            "member": {"name": self._member.name, "id": f"{self._member.id:016x}"},
            "payload": payload,
            "deliver_own": deliver_own,
            "created_ns": time.time_ns(),
        }
        try:
            self.path.mkdir(parents=True)
            part = self.path / (HEADER_FILE + ".part")
            part.write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
            part.replace(self.path / HEADER_FILE)
            self._views_file = (self.path / VIEWS_FILE).open("a", encoding="utf-8")
        except FileExistsError as error:
            raise UsageError(f"{self.path} exists: a journal is written once, choose another directory") from error
        except OSError as error:
            raise ConfigError(f"the journal directory {self.path} cannot be written: {error.strerror}") from error


class _Segment:
    """The live segment; its file is made with the first row."""

    def __init__(self, journal: JournalWriter, number: int) -> None:
        self._journal = journal
        self.number = number
        self.path = journal.path / segment_name(number, "arrows")
        self.rows = self.bytes = 0
        self._sink: Any = None
        self._writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        pa = self._journal._pa
        if self._writer is None:
            self._sink = pa.OSFile(str(self.path), "wb")
            self._writer = pa.ipc.new_stream(self._sink, self._journal._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def finish(self) -> bool:
        """Ends the stream. False where nothing was written."""
        if self._writer is None:
            return False
        self._writer.close()
        self._sink.close()
        return True

    def abandon(self) -> None:
        """Closes the file as it is, after a write error."""
        if self._sink is not None:
            self._sink.close()


def _view_id(view_id: ViewId) -> dict[str, Any]:
    attempt, initiator = view_id.flush
    return {
        "counter": view_id.counter,
        "coordinator": f"{view_id.coordinator:016x}",
        "flush": [attempt, f"{initiator:016x}"],
    }


def _view_record(view: View, previous: View | None, member: Member, at_ns: int) -> dict[str, Any]:
    """One line of views.jsonl; ids are hexadecimal text, as JSON numbers have 53 bits for many readers."""
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
        "joined": [name for key, name in now.items() if key not in before],
        "left": [name for key, name in before.items() if key not in now],
    }
