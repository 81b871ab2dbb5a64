"""Rows that the disk did not take, of a journal that goes on once there is room again (``journal_resume``).

They keep their positions, so ``idx`` counts the member's deliveries, and the segments before and after the gap are
apart. ``views.jsonl`` tells of a gap in a record of its own, before the views that the member installed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seqcast._native import columns
from seqcast.journal import seals
from seqcast.journal.live import record_batch, values_of

if TYPE_CHECKING:
    import pyarrow as pa

    from seqcast._native.columns import Block, DeliveredBatch


ID_DIGITS = 16
"""Hexadecimal, of a member's id."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that a journal lacks because they could not be written.

    Args:
        idx: position of the first.
        rows: how many they are.
        senders: (id of a sender, seqnos of the packets of its first and its last message among them), by id.
        why: the error of the write.
        at_ns: when the journal went on, ns since 1970.
    """

    idx: int
    rows: int
    senders: tuple[tuple[int, int, int], ...]
    why: str
    at_ns: int

    @property
    def end(self) -> int:
        """Position after the last."""
        return self.idx + self.rows


def gap_of(record: Mapping[str, Any]) -> Gap:
    """The gap that a record of ``views.jsonl`` tells of.

    Raises:
        KeyError, ValueError, TypeError: no such record.
    """
    gap = Gap(
        idx=seals.typed(record["idx"], int),
        rows=seals.typed(record["rows"], int),
        senders=tuple(_sender(*each) for each in record["senders"]),
        why=seals.typed(record["why"], str),
        at_ns=seals.typed(record["at_ns"], int),
    )
    if gap.idx < 0 or gap.rows <= 0 or gap.end >= 1 << 63:
        raise ValueError(f"a gap of {gap.rows} rows from {gap.idx} on")
    ids = [sender for sender, *_ in gap.senders]
    if len(ids) > gap.rows or any(one >= other for one, other in pairwise(ids)):
        raise ValueError("its senders cannot be")
    return gap


def _sender(sender: str, first: int, last: int) -> tuple[int, int, int]:
    if len(sender) != ID_DIGITS or not 0 < seals.typed(first, int) <= seals.typed(last, int):
        raise ValueError(f"a gap of packets {first} to {last} of sender {sender!r}")
    return int.from_bytes(bytes.fromhex(sender)), first, last


def kept_parts(gaps: Sequence[Gap], first: int, end: int) -> Iterator[tuple[int, int]]:
    """The positions ``first`` to ``end`` - 1 without those in gaps, in ranges."""
    for gap in gaps:
        if first < min(gap.idx, end):
            yield first, min(gap.idx, end)
        first = max(first, gap.end)
    if first < end:
        yield first, end


class OpenGap:
    """A gap that grows: the disk is still full.

    Args:
        idx: position of its first row.
        why: the error of the write.
    """

    def __init__(self, idx: int, why: str) -> None:
        self.idx, self.why = idx, why
        self.views: list[dict[str, Any]] = []
        """Records of the views that were installed meanwhile: few, and without them no later row can be read."""
        self._senders: dict[int, tuple[int, int]] = {}

    def lose(self, block: Block, schema: pa.Schema) -> None:
        """Notes the messages of a block that is not written."""
        if not block.runs:
            return
        batch = record_batch(block, schema)
        senders, seqnos = (values_of(batch[name], "int64") for name in ("sender", "seqno"))
        for sender in np.unique(senders).tolist():
            own = seqnos[senders == sender]
            first, last = self._senders.get(sender, (int(own[0]), 0))
            self._senders[sender] = first, max(last, int(own[-1]))

    def record(self, end: int) -> dict[str, Any]:
        """For ``views.jsonl``, when rows can be written again from a position on."""
        senders = [
            [f"{sender & (1 << 64) - 1:016x}", *self._senders[sender]]
            for sender in sorted(self._senders, key=lambda sender: sender & (1 << 64) - 1)
        ]
        rows = {"idx": self.idx, "rows": end - self.idx, "senders": senders, "why": self.why}
        return {"event": "gap", "at_ns": time.time_ns(), **rows, "closes": None}


def scratch(batch: DeliveredBatch, payload: bool) -> Block:
    """A block that takes one batch, whatever its size."""
    rows = max(1, len(batch))
    return columns.Block(rows, rows, batch.nbytes if payload else -1)
