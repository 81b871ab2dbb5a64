"""Batches and journals made by hand, for the tests of the journal and of the audit."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from members import LIMIT_S

from seqcast.core.orders import by_name
from seqcast.journal import manifest, seals
from seqcast.journal.live import MESSAGES, OF_RUN, live_schema
from seqcast.journal.schema import HEADER_FILE, segment_name
from seqcast.journal.stream import StreamWriter
from seqcast.journal.writer import JournalWriter
from seqcast.types import Member, View, ViewId

RUN_DTYPE = np.dtype(
    [("sender", "u8"), ("seqno", "u8"), ("global_seqno", "u8"), ("sent_ns", "i8"),
     ("first", "u4"), ("n", "u4"), ("index", "u4"), ("unicast", "u2"), ("transitional", "u2")]
)  # fmt: skip


@dataclass(frozen=True)
class Delivered:
    """A batch with the attributes of the engine's."""

    data: Any
    offsets: Any
    runs: Any
    view_tag: int
    delivered_ns: int

    @property
    def transitional(self) -> int:
        late = self.runs[self.runs["transitional"] > 0]
        return int(late["global_seqno"][0]) if len(late) else 0

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Row:
    """One delivered message."""

    sender: Member
    seqno: int
    index: int
    global_seqno: int
    payload: bytes
    unicast: bool = False
    transitional: bool = False


def member(name: str, incarnation: int = 1) -> Member:
    # the high bit is set in some ids, as in random ones: the columns keep them as signed integers
    return Member(
        name, (0xF000 + incarnation << 48 | ord(name[0])) if ord(name[0]) % 2 else incarnation << 8 | ord(name[0])
    )


def view(counter: int, members: list[Member], order: str = "sequencer", attempt: int = 1) -> View:
    sequencer = -1 if order in ("fifo", "causal") else 0
    return View(ViewId(counter, members[0].id, (attempt, members[0].id)), tuple(members), order, sequencer, order)


def batch_of(rows: list[Row], of: View, delivered_ns: int = 1_700_000_000_000_000_000) -> Delivered:
    data = np.frombuffer(b"".join(row.payload for row in rows), np.uint8)
    offsets = np.cumsum([0, *(len(row.payload) for row in rows)]).astype(np.int32)
    runs: list[list[Any]] = []
    for at, row in enumerate(rows):
        last = runs[-1] if runs else None
        follows = last is not None and (
            (last[0], last[1], *last[7:]) == (row.sender.id, row.seqno, int(row.unicast), int(row.transitional))
            and last[6] + last[5] == row.index
            and (last[2] + last[5] if last[2] else 0) == row.global_seqno
        )
        if last is not None and follows:
            last[5] += 1
        else:
            runs.append([row.sender.id, row.seqno, row.global_seqno, 1_600_000_000_000_000_000 + row.seqno, at, 1,
                         row.index, int(row.unicast), int(row.transitional)])  # fmt: skip
    return Delivered(data, offsets, np.array([tuple(run) for run in runs], RUN_DTYPE), of.view_id.tag, delivered_ns)


def wait_for_rows(writer: JournalWriter, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while writer.counters()["rows"] < count:
        assert time.monotonic() < deadline, writer.counters()
        time.sleep(0.002)


def journal(
    top: Path,
    who: Member,
    story: list[tuple[View, list[Row]]],
    *,
    closed: str | None = "leave",
    successor: View | None = None,
    cluster: str = "test",
    step: int = 1000,
    **settings: Any,
) -> Path:
    """Journals a member's story: each view and its deliveries. ``closed=None``: it crashed, or goes on, which
    nothing tells; "killed": its process is known to have ended. ``successor``: the view by which a member left.
    With ``segment_rows`` each ``step`` rows are written by themselves, so that segments end at the same rows under any
    load, and each segment has a file of its own."""
    settings = {"payload": "hash", "together_rows": 1, **settings}
    writer = JournalWriter(top, cluster=cluster, member=who, flush_s=0.001, **settings)
    count = 0
    for at, (of, rows) in enumerate(story):
        order = by_name(of.mechanism)
        writer.view(of, at_ns=1_700_000_000_000_000_000 + at, prefix=order.prefix, total=order.total)
        for first in range(0, len(rows), step):
            writer.batch(batch_of(rows[first : first + step], of), of)
            count += len(rows[first : first + step])
            if "segment_rows" in settings:  # else the load decides where segments end
                wait_for_rows(writer, count)
    writer.close(closed or "crash", at_view_end=closed == "leave", successor=successor)
    if closed in (None, "killed"):  # as after SIGKILL: no closing record
        views = writer.path / "views.jsonl"
        views.write_bytes(b"".join(line for line in views.read_bytes().splitlines(True) if b'"close"' not in line))
    if closed is None:
        header = seals.unseal((writer.path / HEADER_FILE).read_text())
        seals.replace(writer.path / HEADER_FILE, {**header, "locked": ""})
    return writer.path


def _runs(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of messages as a live segment has them, each message as a run of its own."""
    messages = pa.StructArray.from_arrays(
        [batch[field.name] for field in schema.field(MESSAGES).type.value_type],
        fields=list(schema.field(MESSAGES).type.value_type),
    )
    lists = pa.ListArray.from_arrays(pa.array(range(batch.num_rows + 1), pa.int32()), messages)
    return pa.RecordBatch.from_arrays([*(batch[name] for name in OF_RUN), lists], schema=schema)


def as_live(path: Path, number: int = 1, *, chunk: int = 500) -> Path:
    """Makes a rolled segment the stream that a crash leaves, with ``chunk`` rows a batch. Returns the file."""
    rolled = path / segment_name(number, "parquet")
    table = pq.read_table(rolled)
    live = rolled.with_suffix(".arrows")
    schema = live_schema("full" if "payload" in table.schema.names else "hash")
    stream = StreamWriter(live, schema)
    for batch in table.to_batches(max_chunksize=chunk):
        stream.write(_runs(batch, schema) if MESSAGES in schema.names else batch, batch.num_rows)
    stream.close()
    rolled.unlink()
    before = manifest.load(path)
    left = {key: value for key, value in before.rolled.items() if key != number}
    manifest.save(path, replace(before, rolled=left))
    return live
