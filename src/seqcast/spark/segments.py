"""One pass over segments that follow each other: exact order, gaps, repeats and FIFO, and a fingerprint of each bucket.

Runs in the Python workers of Spark; the pass itself is compiled (``native/columns/scan.c``). A summary grows
not with the rows but with views, senders and buckets; the driver stitches the summaries (`members.py`) and compares the
fingerprints of members (`compare.py`).

A bucket is 65,536 global seqnos, or 4,096 packet seqnos of a sender without a total order. A fingerprint is the
sum of a 64-bit hash over (position, message id, length, payload hash), so it does not depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqcast.journal.segments import Segment, segment_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from seqcast._native import columns

BATCH_ROWS = 1 << 16
PAYLOAD_BYTES = 16 << 20
"""About how many rows, or bytes of payload, a task holds at a time."""
EXAMPLES = 8
"""At most this many altered payloads of a run of segments are reported; all are counted."""
ORDERED_SHIFT = 16
FIFO_SHIFT = 12 + 16
"""From a message's key, ``seqno << 16 | index``, to its bucket."""

SCANNED = [
    "idx", "view_counter", "view_tag", "global_seqno", "sender", "seqno", "index", "length", "payload_hash",
    "transitional",
]  # fmt: skip

Int64s = npt.NDArray[np.int64]
Run = tuple[Segment, ...]
"""Segments of a journal that follow each other."""


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
    transitional: int
    """Global seqno of the first transitional row; 0: none."""
    back: Found
    """Global seqnos that are not higher than one before."""
    jumps: Found
    """Global seqnos more than one higher than the highest before."""
    decided: Found
    """Non-transitional rows after a transitional one: the global seqnos of that one and of the row."""


@dataclass(slots=True)
class SenderRun:
    """The messages of one sender in a run; a message's key is ``seqno << 16 | index``, which may pass 64 bits."""

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
class Group:
    """One member's messages of one sender in one bucket of one view."""

    rows: int
    highest: int
    """Global seqno; 0 without a total order."""
    highest_key: int
    """Under total order, the first message of the highest packet."""
    decided_key: int
    """Without total order, the highest key of a non-transitional message; 0: all are transitional."""
    fingerprint: int

    def add(self, other: Group) -> None:
        """Adds the rows of the same group in another run of segments."""
        self.rows += other.rows
        self.highest = max(self.highest, other.highest)
        self.highest_key = max(self.highest_key, other.highest_key)
        self.decided_key = max(self.decided_key, other.decided_key)
        self.fingerprint = self.fingerprint + other.fingerprint & (1 << 64) - 1


@dataclass(slots=True)
class Summary:
    number: int
    last: int
    """Numbers of the first and the last segment."""
    rows: int
    first_idx: int
    last_idx: int
    breaks: Found
    views: list[ViewRun]
    senders: list[SenderRun]
    payloads: int
    """Payloads that were hashed again."""
    altered: Found
    """Payloads without the hash, or the length, recorded at delivery."""
    groups: dict[tuple[int, int, int], Group]
    """By (view tag, sender, bucket)."""


def follows(before: int, key: int) -> bool:
    """Whether a higher key may come next: the next index of the packet, or the beginning of a later packet.

    Packets in which no message ends (a long message is split over several) leave no key, so seqnos may skip.
    """
    return key == before + 1 or key & 0xFFFF == 0


def run_batches(run: Run, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a run; raises as `segment_batches`."""
    for segment in run:
        yield from segment_batches(segment, columns)


def summarize(run: Run, with_payload: bool) -> Summary:
    """Reads the segments of a run, once.

    Raises:
        JournalError: one cannot be read.
    """
    from seqcast._native.columns import Scan

    scan, altered, payloads = Scan(), Found(), 0
    columns = [*SCANNED, "payload"] if with_payload else SCANNED
    for segment in run:
        rows = BATCH_ROWS * PAYLOAD_BYTES // max(1, segment.size) if with_payload else BATCH_ROWS
        for batch in segment_batches(segment, columns, batch_rows=max(1, min(BATCH_ROWS, rows))):
            scan.add(**scan_columns(batch))
            if with_payload:
                payloads += batch.num_rows
                _check_payloads(batch, altered)
    views = [ViewRun(*view[:8], *map(_found, view[8:])) for view in scan.views()]
    for view in views:
        if view.zeros == view.rows:  # there is no total order
            view.back = Found()
    senders = [
        SenderRun(sender, idx, rows, _key(first), _key(highest), _keys(back), _keys(jumps))
        for sender, idx, rows, first, highest, back, jumps in sorted(scan.senders())
    ]
    groups = {key: _group(key[2], *found) for key, found in scan.groups()}
    ends = scan.ends if scan.rows else (0, -1)
    return Summary(
        run[0].number, run[-1].number, scan.rows, *ends, _found(scan.breaks), views, senders, payloads, altered, groups
    )  # fmt: skip


def scan_columns(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns that are scanned, as arrays."""
    columns = {name: batch[name].to_numpy() for name in SCANNED if name != "transitional"}
    flags = batch["transitional"]
    if flags.null_count:  # of a journal that does not say
        flags = flags.fill_null(False)
    return {**columns, "transitional": flags.to_numpy(zero_copy_only=False).view(np.uint8)}


def _group(bucket: int, rows: int, highest: int, seqno: int, low: int, total: int, decided: int) -> Group:
    if highest:
        return Group(rows, highest, seqno << 16, 0, total)
    of_bucket = bucket << FIFO_SHIFT
    return Group(rows, highest, of_bucket | low, of_bucket | decided - 1 if decided else 0, total)


def _key(message: tuple[int, int]) -> int:
    return message[0] << 16 | message[1]


def _found(given: columns.Found) -> Found:
    """Faults of positions and global seqnos."""
    return Found(given[0], [(idx, before, this) for idx, (before, _), (this, _) in given[1]])


def _keys(given: columns.Found) -> Found:
    """Faults of a sender's messages."""
    return Found(given[0], [(idx, _key(before), _key(this)) for idx, before, this in given[1]])


def _check_payloads(batch: pa.RecordBatch, altered: Found) -> None:
    import pyarrow.compute as pc

    hashes = payload_hashes(batch["payload"])
    kept = batch["payload_hash"].to_numpy()
    lengths = pc.binary_length(batch["payload"]).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero((hashes != kept) | (lengths != batch["length"].to_numpy())):
        altered.add(batch["idx"][row].as_py(), int(kept[row]), int(hashes[row]))


def payload_hashes(payloads: pa.BinaryArray) -> Int64s:
    """XXH3 of each payload."""
    from seqcast._native.columns import hash_payloads

    hashes = np.empty(len(payloads), np.int64)
    _, offsets, data = payloads.buffers()
    at = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    hash_payloads(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), at, hashes)
    return hashes
