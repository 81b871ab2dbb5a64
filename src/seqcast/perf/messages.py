"""The messages of a measurement: each carries its sender and a number, so that the receiver finds lost, duplicated and
reordered ones."""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np
import numpy.typing as npt

SENDERS_MAX = 1 << 16
BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 16384
FULL_CHECK_EVERY = 16
"""In one of this many batches every message is checked, in the others only the first and the last: a receiver that
looked into each 64-byte message would measure the check."""

_NUMBER_BITS = 48
_NUMBER = (1 << _NUMBER_BITS) - 1
_DTYPE = np.dtype("<u8")
_read = struct.Struct("<Q").unpack_from


class BatchSource:
    """One sender's batches: a buffer that is filled once; before each send the messages' numbers are written into it.

    Args:
        size: bytes of a message.
        sender: number of the sender, below SENDERS_MAX.
    """

    def __init__(self, size: int, sender: int) -> None:
        n = max(1, min(BATCH_MESSAGES, BATCH_BYTES // size))
        pattern = np.arange(n * size, dtype=np.uint64) * 2654435761 >> 13
        self._data: npt.NDArray[np.uint8] = pattern.astype(np.uint8)
        self._offsets = np.arange(n + 1, dtype=np.int64) * size
        self._numbers: npt.NDArray[np.uint64] = np.ndarray((n,), np.dtype("<u8"), self._data.data, 0, (size,))
        self._steps = np.arange(n, dtype=np.uint64)
        self._base = sender << _NUMBER_BITS
        self.count = 0
        """Messages sent."""

    def next(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """The next batch: data and offsets, valid until the next call."""
        np.add(self._steps, np.uint64(self._base + self.count), out=self._numbers)
        return self._data, self._offsets

    def sent(self) -> None:
        """The batch was sent."""
        self.count += len(self._steps)


class Check:
    """Counts the messages that a receiver got, and those that are not the next of their sender.

    Args:
        size: bytes of each message.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._batches = 0
        self._next: dict[int, int] = {}
        self.count = 0
        self.wrong = 0
        """Messages of a wrong size, or that are not the next of their sender."""
        self.last_ns = time.monotonic_ns()
        """Monotonic time of the last message, ns."""

    def take(self, batch: Any) -> None:
        """Checks one batch of ``recv_batch``; ``None`` is no batch."""
        if batch is None or len(batch) == 0:
            return
        self._batches += 1
        n, data = len(batch), batch.data
        self.count += n
        self.last_ns = time.monotonic_ns()
        if len(data) != n * self._size:
            self.wrong += n
            return
        (first,), (last,) = _read(data, 0), _read(data, (n - 1) * self._size)
        sender, number = first >> _NUMBER_BITS, first & _NUMBER
        if number == self._next.get(sender, 0) and last == first + n - 1:
            whole = self._batches % FULL_CHECK_EVERY == 0
            if not whole or np.array_equal(self._numbers(data, n), np.arange(first, last + 1, dtype=np.uint64)):
                self._next[sender] = number + n
                return
        self._check_each(self._numbers(data, n).copy())

    def _numbers(self, data: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint64]:
        return np.ndarray((n,), _DTYPE, data, 0, (self._size,))

    def _check_each(self, numbers: npt.NDArray[np.uint64]) -> None:
        senders = numbers >> np.uint64(_NUMBER_BITS)
        for sender in np.unique(senders).tolist():
            mine = (numbers[senders == sender] & np.uint64(_NUMBER)).astype(np.int64)
            expected = np.empty_like(mine)
            expected[0] = self._next.get(sender, 0)
            expected[1:] = mine[:-1] + 1
            self.wrong += int(np.count_nonzero(mine != expected))
            self._next[sender] = int(mine[-1]) + 1
