"""One pass over segments for reports: latencies by sender and window of time, in buckets of bounded width.

Runs in the Python workers of Spark. Windows begin at multiples of a power of two of nanoseconds, counted from 1970, so
those of different segments can be made coarser and added up: nothing need be known about the rows before they are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from seqcast.spark.segments import Run, run_batches

STEPS = 32
"""Buckets per power of two of latency: a percentile is at most 1/32, 3 %, too high."""
WINDOWS = 256
SHIFT = 20
"""The finest windows have 2^20 ns, about a millisecond."""
EARLIER = -1
"""In place of a bucket: by the clocks the message was delivered before it was sent, so its latency is not known."""
_STEP_BITS = STEPS.bit_length()
_COLUMNS = ("sender", "view_tag", "sent_ns", "delivered_ns", "length")

Ahead = Mapping[tuple[int, int], int]
"""(sender, view tag) -> how far the clock of the member is ahead of the sender's, ns; 0 for missing keys."""
Key = tuple[int, int, int]
"""(sender, window, bucket of latency, or ``EARLIER``)."""


@dataclass(slots=True)
class Timing:
    """Totals of the rows of one member, or a part of them.

    Args:
        shift: windows have 2^shift ns.
        counts: key -> (messages, bytes).
        begin_ns, end_ns: first and last delivery, ns since 1970.
        least: sender -> lowest difference between delivery and sending, ns, by two clocks: it may be negative. Not
            corrected by the clocks' estimates.
        transitional: sender -> messages that only a view change ordered.
    """

    shift: int = SHIFT
    counts: dict[Key, tuple[int, int]] = field(default_factory=dict)
    begin_ns: int = 1 << 62
    end_ns: int = 0
    least: dict[int, int] = field(default_factory=dict)
    transitional: Counter[int] = field(default_factory=Counter)

    def add(self, other: Timing) -> None:
        self.begin_ns, self.end_ns = min(self.begin_ns, other.begin_ns), max(self.end_ns, other.end_ns)
        for sender, least in other.least.items():
            self.least[sender] = min(least, self.least.get(sender, least))
        self.transitional.update(other.transitional)
        self.coarsen(other.shift)
        self.count(((sender, window >> self.shift - other.shift, bucket), each)
                   for (sender, window, bucket), each in other.counts.items())  # fmt: skip
        self.coarsen(fitting(self.begin_ns, self.end_ns))

    def count(self, found: Iterable[tuple[Key, tuple[int, int]]]) -> None:
        for key, (messages, size) in found:
            before = self.counts.get(key, (0, 0))
            self.counts[key] = before[0] + messages, before[1] + size

    def coarsen(self, shift: int) -> None:
        """Makes the windows at least this wide."""
        if shift > self.shift:
            finer, self.counts = self.counts, {}
            self.count(((sender, window >> shift - self.shift, bucket), each)
                       for (sender, window, bucket), each in finer.items())  # fmt: skip
            self.shift = shift


def fitting(begin_ns: int, end_ns: int) -> int:
    """The shift with which a span has at most ``WINDOWS`` windows."""
    return max(SHIFT, ((end_ns - begin_ns) // (WINDOWS - 1)).bit_length())


def measure(run: Run, ahead: Ahead) -> Timing:
    """Reads segments that follow each other, once.

    Args:
        ahead: the corrections of latencies.

    Raises:
        JournalError: one cannot be read.
    """
    timing = Timing()
    for batch in run_batches(run, (*_COLUMNS, "transitional")):
        if batch.num_rows:
            timing.add(_timing(ahead, *(batch[name].to_numpy() for name in _COLUMNS)))
            if batch["transitional"].true_count:
                timing.transitional.update(batch["sender"].filter(batch["transitional"]).to_pylist())
    return timing


def _timing(ahead: Ahead, senders: Any, tags: Any, sent_ns: Any, delivered_ns: Any, lengths: Any) -> Timing:
    begin_ns, end_ns = int(delivered_ns.min()), int(delivered_ns.max())
    timing = Timing(fitting(begin_ns, end_ns), {}, begin_ns, end_ns)
    took = delivered_ns - sent_ns
    ids, codes = np.unique(senders, return_inverse=True)
    lowest = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(lowest, codes, took)
    timing.least = dict(zip(ids.tolist(), lowest.tolist(), strict=True))
    if ahead:
        views, places = np.unique(tags, return_inverse=True)
        by = np.array([[ahead.get((sender, tag), 0) for tag in views.tolist()] for sender in ids.tolist()])
        took = took - by[codes, places]
    first = begin_ns >> timing.shift
    windows = (delivered_ns >> timing.shift) - first
    spread = int(windows.max()) + 1
    mixed = (codes * spread + windows) * (64 * STEPS) + np.where(took < 0, 64 * STEPS - 1, buckets(took))
    found, places = np.unique(mixed, return_inverse=True)
    counts, sizes = np.bincount(places), np.bincount(places, weights=lengths)
    for code, messages, size in zip(found.tolist(), counts.tolist(), sizes.tolist(), strict=True):
        rest, bucket = divmod(code, 64 * STEPS)
        bucket = EARLIER if bucket == 64 * STEPS - 1 else bucket
        sender, window = divmod(rest, spread)
        timing.counts[int(ids[sender]), window + first, bucket] = messages, int(size)
    return timing


def buckets(took_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each latency; a negative one counts as 0. A value of more than log2(2 * STEPS) bits keeps the first
    log2(STEPS) + 1."""
    value = np.maximum(took_ns, 0)
    _, bits = np.frexp(value)  # beyond 2^53 a value may round up, and have one bit too many
    bits = bits.astype(np.int64)
    bits -= (value >> np.maximum(bits - 1, 0)) == 0
    shift = np.maximum(bits - _STEP_BITS, 0)
    found: npt.NDArray[np.int64] = shift * STEPS + (value >> shift)
    return found


def bucket_top(bucket: int) -> int:
    """Highest latency of a bucket, ns."""
    if bucket < 2 * STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket % STEPS + STEPS + 1) << shift) - 1
