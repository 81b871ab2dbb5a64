"""Rolling: a finished Arrow IPC segment becomes a Parquet file with zstd, a fraction of the size and read in columns.

A stream survives a crash up to its last complete batch. A Parquet file, with its index at the end, does not. So the
live segment is a stream, and only a finished one is rolled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.journal import seals
from seqcast.journal.live import rows_schema, values_of
from seqcast.journal.manifest import ManifestWriter, Rolled, load, save
from seqcast.journal.schema import JournalError, segment_name, segment_number
from seqcast.journal.stream import SUMS_SUFFIX, Message, read_sums, stream_batches, stream_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

ROW_GROUP_BYTES, ROW_GROUP_ROWS = 64 << 20, 1 << 18
"""A row group ends at either bound: to read a part of a segment, only the row groups with that part are decoded."""
WAITING_MAX, WAITING_FEW = 256 << 20, 64 << 20
"""Bytes of segments that wait: above the first number rolling makes no pauses, until the second is reached."""
PAUSE = 19
"""A pause is this many times as long as the work before it, so rolling takes a twentieth of a processor."""

EXPIRE_EVERY_S = 60.0
"""How often old segments are looked for while none is rolled, seconds."""

_DICTIONARY = ("sender", "view_tag", "view_counter")
_DELTA = ("idx", "global_seqno", "seqno", "index", "length", "sent_ns", "delivered_ns")
"""Integers that grow: delta coding brings them from 8 bytes to a fraction of one. Hashes and payloads stay plain."""
_COMPRESSION = {"payload": "lz4", "payload_hash": "none"}
"""Columns without zstd: for payloads lz4 takes half the time and saves nearly as much, hashes do not compress."""
SMALL_ROWS = 1 << 13
"""Segments with fewer rows have snappy in place of zstd, of which each column of a file costs a reader 15 microseconds,
however few its rows: a third of the time that reading 960 rows takes."""


def roll(stream: Path, manifest: ManifestWriter, pause: Callable[[], None] = lambda: None) -> Path:
    """Writes the Parquet file of a finished stream segment and removes the stream. Returns the new file.

    The new file gets its name when it is whole, then the manifest lists it, and then the stream is removed: a crash in
    between leaves both, and the manifest says which one is read.

    Args:
        pause: is called after each row group.

    Raises:
        OSError, pyarrow.ArrowInvalid, JournalError: no space, no permission, or the stream is not whole; it is left as
            it was.
    """
    target = stream.with_suffix(".parquet")
    partial = target.with_suffix(".parquet.part")
    try:
        messages, torn = read_sums(stream)
        if torn:
            raise JournalError(f"{stream} is not whole")
        rolled = _write(stream, messages, partial, pause)
        partial.replace(target)
        try:
            manifest.roll(rolled)
        except OSError:
            target.unlink(missing_ok=True)
            raise
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    stream.unlink()
    stream.with_suffix(SUMS_SUFFIX).unlink(missing_ok=True)
    return target


def rewrite(journal: Path, number: int, table: pa.Table) -> None:
    """Replaces the rows of a rolled segment and its entry in the manifest, to plant faults and for tests.

    Raises:
        OSError, JournalError: the journal cannot be read or written.
    """
    import pyarrow.parquet as pq

    path = journal / segment_name(number, "parquet")
    pq.write_table(table, path, **_options(table.schema, table.num_rows))
    before = load(journal)
    first_idx = table["idx"][0].as_py() if table.num_rows else 0
    last_ns = max(table["delivered_ns"].to_pylist(), default=0)
    rolled = describe(path, number, table.num_rows, first_idx, last_ns)
    save(journal, dataclasses.replace(before, rolled={**before.rolled, number: rolled}))


def _write(stream: Path, messages: list[Message], path: Path, pause: Callable[[], None]) -> Rolled:
    """Writes the rows of a stream as a Parquet file, one row group after the other, so that no more is in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = rows_schema(stream_schema(stream, messages))
    total = sum(message.rows for message in messages)
    limit = max(1, min(ROW_GROUP_ROWS, total * ROW_GROUP_BYTES // sum(message.size for message in messages)))
    first_idx = last_ns = rows = 0
    group: list[pa.RecordBatch] = []
    with pq.ParquetWriter(path, schema, **_options(schema, total)) as writer:

        def write_group() -> None:
            """The first ``limit`` rows of those that wait: readers cut their work at multiples of it."""
            table = pa.Table.from_batches(group)
            writer.write_table(table[:limit], row_group_size=limit)
            group[:] = [batch for batch in table[limit:].to_batches() if batch.num_rows]
            pause()

        for batch in stream_batches(stream, messages):
            first_idx = first_idx if rows else batch["idx"][0].as_py()
            last_ns = max(last_ns, int(values_of(batch["delivered_ns"], "int64").max()))  # clocks can be set back
            rows += batch.num_rows
            group.append(batch)
            while sum(each.num_rows for each in group) >= limit:
                write_group()
        if group:
            write_group()
    return describe(path, segment_number(stream), rows, first_idx, last_ns)


def describe(path: Path, number: int, rows: int, first_idx: int, last_ns: int) -> Rolled:
    """What the manifest says of a rolled segment with these rows."""
    # Mapped, so that a member takes no memory for a whole file. It is the member's own: nobody truncates it.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        return Rolled(number, rows, first_idx, last_ns, len(contents), seals.digest(contents))


def _options(schema: pa.Schema, rows: int) -> dict[str, Any]:
    columns: list[str] = schema.names
    numbers = "snappy" if rows < SMALL_ROWS else "zstd"
    return {
        "compression": {name: _COMPRESSION.get(name, numbers) for name in columns},
        "write_page_checksum": True,
        "use_dictionary": list(_DICTIONARY),
        "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in columns if name not in _COMPRESSION],
    }


class Roller:
    """Rolls finished segments beside delivery, with pauses as long as no more than ``WAITING_MAX`` bytes wait; beyond
    that it makes none until few are left, so that streams do not pile up. Also removes segments that retention no
    longer keeps.

    Its thread has normal priority: one at idle priority that is preempted while it has the GIL, or is about to take it,
    would stop delivery until a processor is idle.

    Args:
        keep_s: highest age of rows that are kept, seconds; 0: any age.
        keep_bytes: bound of the rolled segments together, bytes; 0: none.
    """

    def __init__(
        self, directory: Path, counters: dict[str, int], manifest: ManifestWriter, keep_s: float, keep_bytes: int
    ) -> None:
        self._directory = directory
        self._counters = counters
        self._manifest = manifest
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._waiting: deque[tuple[Path, int]] = deque()  # with their bytes
        self._condition = threading.Condition()
        self._closed = False
        self._hurry = False
        self._resumed = 0.0  # when the last pause ended
        self._thread: threading.Thread | None = None

    def add(self, path: Path, size: int) -> None:
        with self._condition:
            self._waiting.append((path, size))
            self._condition.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal-roll", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Returns when all waiting segments are rolled."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def waiting(self) -> int:
        """Finished segments that are not rolled yet."""
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._condition:
                look_again = min(EXPIRE_EVERY_S, self._keep_s / 4) if self._keep_s else None
                self._condition.wait_for(lambda: self._waiting or self._closed, look_again)
                if self._closed and not self._waiting:
                    return
                path = self._waiting[0][0] if self._waiting else None
            if path is not None:
                self._resumed = time.monotonic()
                try:
                    roll(path, self._manifest, self._pause)
                    name = "rolled"
                except Exception:
                    name = "roll_errors"  # the stream segment stays and reads as well; the counter shows it
                with self._condition:
                    self._waiting.popleft()
                    self._counters[name] += 1
            with contextlib.suppress(OSError):  # of a full disk: tried again with the next segment
                self._expire()

    def _expire(self) -> None:
        if not self._keep_s and not self._keep_bytes:
            return
        before_ns = time.time_ns() - int(self._keep_s * 1e9) if self._keep_s else 0
        gone = self._manifest.expire(before_ns=before_ns, bytes_max=self._keep_bytes or 1 << 62)
        for number in gone:
            path = self._directory / segment_name(number, "parquet")
            for suffix in (".parquet", ".arrows", SUMS_SUFFIX):  # the last two: of one that could not be rolled
                path.with_suffix(suffix).unlink(missing_ok=True)
        with self._condition:
            self._counters["expired"] += len(gone)

    def _pause(self) -> None:
        with self._condition:
            self._hurry = self._size() > (WAITING_FEW if self._hurry else WAITING_MAX)
            if not self._hurry:
                worked_s = time.monotonic() - self._resumed
                self._condition.wait_for(lambda: self._closed or self._size() > WAITING_MAX, PAUSE * worked_s)
                self._hurry = self._size() > WAITING_MAX
        self._resumed = time.monotonic()

    def _size(self) -> int:
        """Bytes of the segments that wait for the one that is being rolled."""
        return sum(size for _, size in self._waiting) - self._waiting[0][1]
