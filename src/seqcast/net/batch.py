"""A delivered batch, with the view it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from seqcast._native import driver
from seqcast._native.engine import Batch as RawBatch
from seqcast.types import Member, Message, View


class Batch:
    """Messages of one view, in their order, in Arrow's binary layout. Iterating gives their payloads.

    The arrays are views of memory that lives as long as they or the batch do; nothing is copied.
    """

    __slots__ = ("_first", "_raw", "view")

    def __init__(self, raw: RawBatch, view: View, first: int = 0) -> None:
        self._raw = raw
        self._first = first
        self.view = view
        """The view in which the messages were delivered."""

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of the messages."""
        return self._raw.data

    @property
    def offsets(self) -> npt.NDArray[np.int32]:
        """``len(self) + 1`` offsets into ``data``: message i is ``data[offsets[i]:offsets[i + 1]]``."""
        return self._raw.offsets[self._first :]

    @property
    def runs(self) -> npt.NDArray[Any]:
        """Who sent what: one row for the messages of one packet (sender's id, seqno, global_seqno, sent_ns, first, n,
        index, unicast); ``first`` is the index of its first message here."""
        runs: npt.NDArray[Any] = self._raw.runs
        if not self._first:
            return runs
        runs = runs[runs["first"] + runs["n"] > self._first].copy()
        taken = np.maximum(self._first - runs["first"].astype(np.int64), 0).astype(np.uint32)
        runs["index"] += taken
        runs["n"] -= taken
        runs["global_seqno"] += np.where(runs["global_seqno"] > 0, taken, 0).astype(np.uint64)
        runs["first"] = np.maximum(runs["first"], self._first) - self._first
        return runs

    @property
    def delivered_ns(self) -> int:
        """Wall clock at delivery, ns since 1970."""
        return self._raw.delivered_ns

    @property
    def view_tag(self) -> int:
        """Tag of the view's id, as packets carry it."""
        return self._raw.view_tag

    def __len__(self) -> int:
        return len(self._raw) - self._first

    def __getitem__(self, index: int) -> bytes:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("message index out of range")
        return self._raw[self._first + index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    def tolist(self) -> list[bytes]:
        """The payloads."""
        return self._raw.tolist()[self._first :]

    def to_arrow(self) -> Any:
        """A ``pyarrow.BinaryArray`` over the same memory. Needs pyarrow."""
        return self._raw.to_arrow()[self._first :]

    def messages(self) -> list[Message]:
        """The messages with their sender and place."""
        members = {member.id: member for member in self.view.members}
        made = driver.messages(self._raw, members, self.view.view_id, Message, _stranger)
        return made[self._first :] if self._first else made


def _stranger(member_id: int) -> Member:
    """A sender of a unicast that is not in the view any more."""
    return Member(f"{member_id:016x}", member_id)
