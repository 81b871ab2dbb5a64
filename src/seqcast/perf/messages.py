"""The messages of a measurement: each carries its sender and a number, so that the receiver finds lost, duplicated and
reordered ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from seqcast._native import bare

SLICE_S = 0.2
"""Waits are cut into slices of this length, so that commands are noticed, s."""
BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 16384


class BatchSource:
    """One sender's batches: a buffer that is filled once; before each send the messages' numbers are written into it.

    Args:
        size: bytes of a message, at least 8.
        sender: number of the sender, below 65,536.
    """

    def __init__(self, size: int, sender: int) -> None:
        n = max(1, min(BATCH_MESSAGES, BATCH_BYTES // size))
        pattern = np.arange(n * size, dtype=np.uint64) * 2654435761 >> 13
        self._data: npt.NDArray[np.uint8] = pattern.astype(np.uint8)
        self._offsets = np.arange(n + 1, dtype=np.int64) * size
        self._numbers = bare.Numbers(self._data.data, size, sender)
        self._n = n
        self.count = 0
        """Messages sent."""

    def send(self, group: Any, timeout: float | None, goes_on: Callable[[], bool]) -> None:
        """Sends batches while ``goes_on()``, each within ``timeout`` seconds (None: no limit).

        Raises:
            SendTimeout: as ``Group.send_batch``.
        """
        data, offsets, write, send_batch = self._data, self._offsets, self._numbers.write, group.send_batch
        while goes_on():
            write(self.count)
            send_batch(data, offsets, timeout=timeout)
            self.count += self._n


class Check(bare.Check):
    """Counts the messages that a receiver got (``count``), and those of a wrong size, or that are not the next of their
    sender (``wrong``).

    Args:
        size: bytes of each message, at least 8.
    """

    def __init__(self, size: int) -> None:
        self.last_ns = time.monotonic_ns()
        """Monotonic time of the last message, ns."""

    def receive(self, group: Any, goes_on: Callable[[], bool]) -> None:
        """Receives batches while ``goes_on()``, which is asked after each batch, and every 0.2 s without one."""
        take, recv_batch = self.take, group.recv_batch
        while goes_on():
            if take(recv_batch(SLICE_S)):
                self.last_ns = time.monotonic_ns()
