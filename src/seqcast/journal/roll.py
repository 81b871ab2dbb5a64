"""Rolling: a finished Arrow IPC segment becomes a Parquet file with zstd, a fraction of the size and read in columns.

A stream survives a crash up to its last complete batch. A Parquet file, with its index at the end, does not. So the
live segment is a stream, and only a finished one is rolled.

Small segments that follow each other become one file: to open a file and decode a few rows of each of its columns takes
a reader as long as thousands of rows do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
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
    from collections.abc import Callable, Sequence

    import pyarrow as pa

ROW_GROUP_BYTES, ROW_GROUP_ROWS = 64 << 20, 1 << 18
"""A row group ends at either bound: to read a part of a segment, only the row groups with that part are decoded."""
WAITING_MAX, WAITING_FEW = 256 << 20, 64 << 20
"""Bytes of segments that wait: above the first number rolling makes no pauses, until the second is reached."""
PAUSE = 19
"""A pause is this many times as long as the preceding work, so rolling takes a twentieth of a processor."""

TOGETHER_ROWS, TOGETHER_BYTES, TOGETHER_SEGMENTS = 1 << 16, 16 << 20, 64
"""Finished segments wait until together they have this many rows, or this many bytes as streams, or are this many. Then
they are rolled into one file. While they wait they are read as streams."""

EXPIRE_EVERY_S = 60.0
"""How often old segments are looked for while none is rolled, seconds."""

_DICTIONARY = ("sender", "view_tag", "view_counter")
_DELTA = ("idx", "global_seqno", "seqno", "index", "length", "sent_ns", "delivered_ns")
"""Integers that grow: delta coding brings them from 8 bytes to a fraction of one. Hashes and payloads stay plain."""
_COMPRESSION = {"payload": "lz4", "payload_hash": "none"}
"""Columns without zstd: for payloads lz4 takes half the time and saves nearly as much, hashes do not compress."""
SMALL_ROWS = 1 << 13
"""Segments with fewer rows have snappy in place of zstd, which costs a reader 15 µs for each column of a file, however
few its rows: a third of the time that reading 960 rows takes."""


def roll(streams: Sequence[Path], manifest: ManifestWriter, pause: Callable[[], None] = lambda: None) -> Path:
    """Writes one Parquet file, named like the first, of finished stream segments that follow each other, and removes
    the streams. Returns the new file.

    The new file gets its name once whole, then the manifest lists it, and then the streams are removed: a crash
    in between leaves both, and the manifest says which one is read.

    Args:
        pause: is called after each row group.

    Raises:
        OSError, pyarrow.ArrowInvalid, JournalError: no space, no permission, or a stream is not whole; they are left as
            they were.
    """
    target = streams[0].with_suffix(".parquet")
    partial = target.with_suffix(".parquet.part")
    try:
        rolled = _write([(stream, _whole(stream)) for stream in streams], partial, pause)
        partial.replace(target)
        try:
            manifest.roll(rolled)
        except OSError:
            target.unlink(missing_ok=True)
            raise
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    for stream in streams:
        with contextlib.suppress(OSError):  # nobody reads the stream any more
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
    times = table["delivered_ns"].to_pylist() or [0]
    numbers = number, before.rolled[number].last
    rolled = describe(path, numbers, table.num_rows, first_idx, (min(times), max(times)))
    save(journal, dataclasses.replace(before, rolled={**before.rolled, number: rolled}))


def _whole(stream: Path) -> list[Message]:
    messages, torn = read_sums(stream)
    if torn:
        raise JournalError(f"{stream} is not whole")
    return messages


def _write(parts: list[tuple[Path, list[Message]]], path: Path, pause: Callable[[], None]) -> Rolled:
    """Writes the rows of streams as a Parquet file, one row group after the other, so that no more is in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = rows_schema(stream_schema(*parts[0]))
    total = sum(message.rows for _, messages in parts for message in messages)
    size = sum(message.size for _, messages in parts for message in messages)
    limit = max(1, min(ROW_GROUP_ROWS, total * ROW_GROUP_BYTES // size))
    first_idx = last_ns = rows = waiting = 0
    first_ns = (1 << 63) - 1
    group: list[pa.RecordBatch] = []
    with pq.ParquetWriter(path, schema, **_options(schema, total)) as writer:

        def write_group() -> None:
            """The first ``limit`` rows of those that wait: readers cut their work at multiples of that."""
            nonlocal waiting
            table = pa.Table.from_batches(group)
            writer.write_table(table[:limit], row_group_size=limit)
            group[:] = [batch for batch in table[limit:].to_batches() if batch.num_rows]
            waiting = max(waiting - limit, 0)
            pause()

        for batch in itertools.chain.from_iterable(itertools.starmap(stream_batches, parts)):
            first_idx = first_idx if rows else batch["idx"][0].as_py()
            times = values_of(batch["delivered_ns"], "int64")  # clocks can be set back
            first_ns, last_ns = min(first_ns, int(times.min())), max(last_ns, int(times.max()))
            rows += batch.num_rows
            group.append(batch)
            waiting += batch.num_rows  # counted, as a group may have many thousands of small batches
            while waiting >= limit:
                write_group()
        if group:
            write_group()
    numbers = segment_number(parts[0][0]), segment_number(parts[-1][0])
    return describe(path, numbers, rows, first_idx, (first_ns, last_ns))


def describe(path: Path, numbers: tuple[int, int], rows: int, first_idx: int, times_ns: tuple[int, int]) -> Rolled:
    """The manifest's entry for a rolled file with these rows, given the numbers of its first and last segment, and the
    earliest and latest time at which one was delivered."""
    # Mapped, so that a member takes no memory for a whole file. The file is the member's own: nobody truncates it.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        return Rolled(
            numbers[0], rows, first_idx, times_ns[1], len(contents), seals.hash_of(contents), numbers[1], times_ns[0]
        )


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Finished:
    """A finished segment that waits to be rolled.

    Args:
        size: bytes of its stream.
        since: time of its end, monotonic seconds.
        behind_gap: earlier rows are missing, so that the segment has a file of its own.
    """

    path: Path
    rows: int
    size: int
    since: float
    behind_gap: bool


class Roller:
    """Rolls finished segments beside delivery, with pauses as long as no more than ``WAITING_MAX`` bytes wait; beyond
    that without any until few are left, so that streams do not pile up. Also removes segments that retention no longer
    keeps.

    Its thread has normal priority: one at idle priority that is preempted with the GIL, or is about to take it,
    would stop delivery until a processor is idle.

    Args:
        together_rows: as many rows are rolled without waiting for more.
        keep_s: highest age of rows that are kept, seconds; 0: any age. As retention removes whole files, small segments
            wait for others no longer than a quarter of this time.
        keep_bytes: bound of the rolled segments together, bytes; 0: none.
    """

    def __init__(
        self,
        directory: Path,
        counters: dict[str, int],
        manifest: ManifestWriter,
        *,
        together_rows: int,
        keep_s: float,
        keep_bytes: int,
    ) -> None:
        self._directory = directory
        self._counters = counters
        self._manifest = manifest
        self._together_rows = together_rows
        self._keep_s, self._keep_bytes = keep_s, keep_bytes
        self._waiting: deque[_Finished] = deque()
        self._taken = 0  # of those, how many are being rolled
        self._condition = threading.Condition()
        self._closed = False
        self._hurry = False
        self._resumed = 0.0  # when the last pause ended
        # Started now: a journal may be closed while the interpreter shuts down, when no thread can be started.
        self.thread = threading.Thread(target=self._run, name="journal-roll", daemon=True)
        self.thread.start()

    def add(self, path: Path, rows: int, size: int, *, behind_gap: bool = False) -> None:
        """A segment is finished, with this many rows in a stream of this many bytes. ``behind_gap``: as of
        `_Finished`."""
        with self._condition:
            self._waiting.append(_Finished(path, rows, size, time.monotonic(), behind_gap))
            self._condition.notify()

    def close(self) -> None:
        """No segment is added any more: its thread rolls all that wait, and ends."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def waiting(self) -> int:
        """Finished segments that are not rolled yet."""
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._condition:
                look_again = min(EXPIRE_EVERY_S, self._keep_s / 4) if self._keep_s else None
                self._condition.wait_for(lambda: self._due() or self._closed, look_again)
                streams = self._due()
                if self._closed and not streams:
                    return
                self._taken = len(streams)
            if streams:
                self._resumed = time.monotonic()
                rolled = self._roll(streams)
                with self._condition:
                    for _ in streams:
                        self._waiting.popleft()
                    self._counters["rolled"] += rolled
                    self._counters["roll_errors"] += len(streams) - rolled
            with contextlib.suppress(OSError):  # of a full disk: tried again with the next segment
                self._expire()

    def _due(self) -> list[Path]:
        """The streams that are to become one file now. Under the lock."""
        rows = size = 0
        for n, finished in enumerate(self._waiting, 1):
            if finished.behind_gap and n > 1:
                return [each.path for each in itertools.islice(self._waiting, n - 1)]
            rows, size = rows + finished.rows, size + finished.size
            if rows >= self._together_rows or size >= TOGETHER_BYTES or n == TOGETHER_SEGMENTS:
                return [each.path for each in itertools.islice(self._waiting, n)]
        old = self._keep_s and self._waiting and time.monotonic() >= self._waiting[0].since + self._keep_s / 4
        return [each.path for each in self._waiting] if old or self._closed else []

    def _roll(self, streams: list[Path]) -> int:
        """How many of the streams were rolled: if they cannot be together, each by itself, as one that is damaged must
        not keep the others back. One that was not rolled stays, and is read as well."""
        try:
            roll(streams, self._manifest, self._pause)
        except Exception:
            return sum(self._roll([stream]) for stream in streams) if len(streams) > 1 else 0
        return len(streams)

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
        """Bytes of the segments that wait for those that are being rolled."""
        return sum(finished.size for finished in itertools.islice(self._waiting, self._taken, None))
