"""Rolling: a finished Arrow IPC segment becomes a Parquet file with zstd, a fraction of the size and read in columns.

A stream survives a crash up to its last complete batch, which a Parquet file, whose index stands at its end, does not;
hence the live segment is a stream and only a finished one is rolled.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES = 64 << 20

_DICTIONARY = ("sender", "view_tag", "view_counter")
_DELTA = ("idx", "global_seqno", "seqno", "index", "length", "sent_ns", "delivered_ns")
"""Integers that grow: delta coding brings them from 8 bytes to a fraction of one. Hashes and payloads stay plain."""


def roll(stream: Path) -> Path:
    """Writes the Parquet file of a finished stream segment and removes the stream. Returns the new file.

    The new file appears under its name only when it is whole, and before the stream goes: a crash in between leaves
    both, and the reader takes the Parquet file.

    Raises:
        OSError, pyarrow.ArrowInvalid: no space, no permission, or the stream is not whole; it is left as it was.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = stream.with_suffix(".parquet")
    partial = target.with_suffix(".parquet.part")
    try:
        with pa.memory_map(str(stream)) as source:
            # The whole segment in one call: a thread of the lowest priority must not hold the interpreter's lock when
            # others take the processor from it.
            table = pa.ipc.open_stream(source).read_all()
            rows = max(1, table.num_rows * ROW_GROUP_BYTES // max(1, table.nbytes))
            pq.write_table(table, partial, row_group_size=rows, **_options(table.schema))
            del table
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    stream.unlink()
    return target


def _options(schema: pa.Schema) -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": list(_DICTIONARY),
        "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in schema.names if name not in ("payload", "payload_hash")],
    }


class Roller:
    """Rolls finished segments, in a thread that gets a processor when nobody else wants it: the files wait on disk,
    delivery does not."""

    def __init__(self, counters: dict[str, int]) -> None:
        self._counters = counters
        self._waiting: deque[Path] = deque()
        self._condition = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, path: Path) -> None:
        with self._condition:
            self._waiting.append(path)
            self._condition.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_idle, name="journal-roll", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Rolls what still waits, in the calling thread too, and returns when all is rolled."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread is not None and self._thread.native_id is not None:
            _schedule(self._thread.native_id, "SCHED_OTHER")  # from now on somebody waits for it
        self._run()
        if self._thread is not None:
            self._thread.join()

    def _run_idle(self) -> None:
        _schedule(threading.get_native_id(), "SCHED_IDLE")
        self._run()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                path = self._waiting.popleft()
            try:
                roll(path)
                name = "rolled"
            except Exception:
                name = "roll_errors"  # the stream segment stays and is as good to read; the counter tells
            with self._condition:
                self._counters[name] += 1


def _schedule(thread: int, policy: str) -> None:
    """Gives one thread a scheduling policy, where the system has such."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
