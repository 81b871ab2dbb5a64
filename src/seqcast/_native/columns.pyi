"""Journal columns, compiled (see columns.pyx)."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

def payload_hash(payload: bytes | memoryview | npt.NDArray[np.uint8], *, plain: bool = False) -> int:
    """XXH3 (64 bits, seed 0) of a payload, signed. ``plain``: without the processor's vectors, for tests.

    Gives up the GIL where it takes long.
    """

class DeliveredBatch(Protocol):
    """What a journal needs of ``seqcast._native.engine.Batch``, which is taken without making these arrays."""

    @property
    def data(self) -> npt.NDArray[np.uint8]: ...
    @property
    def offsets(self) -> npt.NDArray[np.int32]: ...
    @property
    def runs(self) -> npt.NDArray[Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def view_tag(self) -> int: ...
    @property
    def delivered_ns(self) -> int: ...
    def __len__(self) -> int: ...

class Block:
    """Rows of a journal that are gathered until they are written as one Arrow batch: a buffer for each column of
    `seqcast.journal.schema.COLUMNS`, and with payloads ``offsets`` and ``payload``. Not thread-safe.

    Args:
        capacity: most rows.
        payload_capacity: most bytes of payloads; -1: payloads are not kept.
    """

    def __init__(self, capacity: int, payload_capacity: int = -1) -> None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def payload_capacity(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def payload_bytes(self) -> int: ...
    def add(self, batch: DeliveredBatch, *, idx: int, view_counter: int, view_tag: int) -> int:
        """Copies the rows of one batch, the first with position ``idx``; unicasts are skipped.

        Args:
            view_tag: tag of the view, its 64 bits as a signed integer.

        Returns:
            How many rows; -1 where the block has not as much room as the whole batch needs: nothing was added.

        Raises:
            ValueError: runs or offsets point outside the batch; nothing was added.
        """

    def address(self, column: str) -> int:
        """Where a column begins in memory; valid as long as the block lives."""

    def clear(self) -> None:
        """Forgets the rows and keeps the memory, which is warm in the processor's cache."""

def hash_payloads(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], out: npt.NDArray[np.int64]) -> None:
    """Writes the hash of each message of an Arrow binary array into ``out``, which has one element a message."""
