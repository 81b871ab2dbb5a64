"""One task a segment: its exact order, gaps, repeats and FIFO, as a summary whose size does not grow with its rows.

Runs in Spark's Python workers, on the columns as NumPy arrays; the driver stitches the summaries (`members.py`).
Formulation F6 of the audit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqcast.journal.reader import Segment, segment_batches

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = 8
"""Findings of one kind that a segment reports; all are counted."""
PAYLOAD_BYTES = 16 << 20
KEY_SPAN = 1 << 46
"""Packet seqnos of one sender in one segment that can be told apart; no segment spans as many."""

_COLUMNS = ["idx", "view_counter", "view_tag", "global_seqno", "sender", "seqno", "index", "length"]
_PAYLOAD_COLUMNS = ["idx", "length", "payload_hash", "payload"]

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class Found:
    """Findings of one kind: how many, and the first of them as (journal position, before, this)."""

    count: int = 0
    first: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, idx: int, before: int, this: int) -> None:
        self.count += 1
        if len(self.first) < EXAMPLES:
            self.first.append((idx, before, this))


@dataclass(slots=True)
class ViewRun:
    """Consecutive rows of one view."""

    tag: int
    idx: int
    rows: int
    first: int
    """Global seqno of the first row."""
    highest: int
    zeros: int
    """Rows without a global seqno."""
    counters: tuple[int, int]
    """Lowest and highest view counter."""
    back: Found
    """Global seqnos that are not higher than one before."""
    jumps: Found
    """Global seqnos more than one higher than the highest before."""


@dataclass(slots=True)
class SenderRun:
    """The messages of one sender in a segment; a message's key is ``seqno << 16 | index``, which may pass 64 bits."""

    sender: int
    idx: int
    rows: int
    first: int
    highest: int
    back: Found
    """Keys that are not higher than one before: repeated, or out of the sender's order."""
    jumps: Found
    """Keys that leave out an index of a packet."""


@dataclass(slots=True)
class Summary:
    number: int
    rows: int
    first_idx: int
    last_idx: int
    breaks: Found
    views: list[ViewRun]
    senders: list[SenderRun]
    payloads: int
    """Payloads whose hash was computed again."""
    altered: Found
    """Payloads that do not have the hash, or the length, that was taken at delivery."""


def follows(before: int, key: int) -> bool:
    """Whether a higher key may come next: the next index of the packet, or the beginning of a later packet.

    Packets in which no message ends (a long message is split over several) leave no key, so seqnos may skip.
    """
    return key == before + 1 or key & 0xFFFF == 0


def summarize(segment: Segment, with_payload: bool) -> Summary:
    """Reads one segment.

    Raises:
        JournalError: it cannot be read.
    """
    import pyarrow as pa

    batches = list(segment_batches(segment, _COLUMNS))
    if not batches or not sum(batch.num_rows for batch in batches):
        return Summary(segment.number, 0, 0, -1, Found(), [], [], 0, Found())
    table = pa.Table.from_batches(batches)
    columns = {name: table[name].to_numpy() for name in _COLUMNS}
    del table, batches
    idx = columns["idx"]
    views, senders = _views(columns), _senders(columns)
    ends = int(idx[0]), int(idx[-1])
    summary = Summary(segment.number, len(idx), *ends, _breaks(idx), views, senders, 0, Found())
    if with_payload:
        _check_payloads(summary, segment, max(1, PAYLOAD_BYTES // (int(columns["length"].mean()) + 1)))
    return summary


def _breaks(idx: Int64s) -> Found:
    return _found(idx, idx, np.flatnonzero(np.diff(idx) != 1) + 1, idx)


def _views(columns: dict[str, Any]) -> list[ViewRun]:
    tags, seqnos, idx = columns["view_tag"], columns["global_seqno"], columns["idx"]
    counters = columns["view_counter"]
    cuts = (np.flatnonzero(tags[1:] != tags[:-1]) + 1).tolist()
    runs = []
    for begin, end in zip([0, *cuts], [*cuts, len(tags)], strict=True):
        part = seqnos[begin:end]
        highest = np.maximum.accumulate(part)
        step = part[1:] - highest[:-1]
        back, jumps = np.flatnonzero(step <= 0) + 1, np.flatnonzero(step > 1) + 1
        zeros = int(np.count_nonzero(part == 0))
        runs.append(
            ViewRun(
                int(tags[begin]), int(idx[begin]), end - begin, int(part[0]), int(highest[-1]), zeros,
                (int(counters[begin:end].min()), int(counters[begin:end].max())),
                Found() if zeros == len(part) else _found(idx[begin:end], part, back, highest),
                _found(idx[begin:end], part, jumps, highest),
            )
        )  # fmt: skip
    return runs


def _senders(columns: dict[str, Any]) -> list[SenderRun]:
    senders, idx, seqnos = columns["sender"], columns["idx"], columns["seqno"]
    changes = np.flatnonzero(senders[1:] != senders[:-1]) + 1
    runs = []
    for sender in np.unique(senders[np.concatenate(([0], changes))]):
        rows = np.flatnonzero(senders == sender)
        # Keys beyond the sender's lowest seqno, as those of seqnos from 2^47 on have no room in 64 bits.
        base = int(seqnos[rows].min())
        beyond = np.minimum(seqnos[rows] - base, KEY_SPAN)
        part, at = (beyond << 16) + columns["index"][rows], idx[rows]
        highest = np.maximum.accumulate(part)
        step = part[1:] - highest[:-1]
        back = np.flatnonzero(step <= 0) + 1
        jumps = np.flatnonzero((step > 1) & (part[1:] & 0xFFFF != 0)) + 1
        shift = base << 16
        runs.append(
            SenderRun(
                int(sender), int(at[0]), len(rows), int(part[0]) + shift, int(highest[-1]) + shift,
                _found(at, part, back, highest, shift), _found(at, part, jumps, highest, shift),
            )
        )  # fmt: skip
    return runs


def _found(idx: Int64s, values: Int64s, rows: npt.NDArray[np.intp], highest: Int64s, shift: int = 0) -> Found:
    first = [(int(idx[row]), int(highest[row - 1]) + shift, int(values[row]) + shift) for row in rows[:EXAMPLES]]
    return Found(len(rows), first)


def _check_payloads(summary: Summary, segment: Segment, batch_rows: int) -> None:
    import pyarrow.compute as pc

    for batch in segment_batches(segment, _PAYLOAD_COLUMNS, batch_rows=batch_rows):
        hashes = payload_hashes(batch["payload"])
        kept = batch["payload_hash"].to_numpy()
        lengths = pc.binary_length(batch["payload"]).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((hashes != kept) | (lengths != batch["length"].to_numpy())):
            summary.altered.add(batch["idx"][row].as_py(), int(kept[row]), int(hashes[row]))
        summary.payloads += batch.num_rows


def payload_hashes(payloads: pa.BinaryArray) -> Int64s:
    """XXH3 of each payload."""
    from seqcast._native import columns

    hashes = np.empty(len(payloads), np.int64)
    _, offsets, data = payloads.buffers()
    at = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    columns.hash_payloads(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), at, hashes)
    return hashes
