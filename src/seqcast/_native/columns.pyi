"""Journal columns, compiled (see columns.pyx)."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

def payload_hash(payload: bytes | memoryview | npt.NDArray[np.uint8], *, plain: bool = False) -> int:
    """XXH3 (64 bits, seed 0) of a payload, signed. ``plain``: without vector instructions, for tests.

    Releases the GIL for large payloads.
    """

class Hash:
    """XXH3 of data in pieces: ``value`` is the `payload_hash` of all pieces in a row."""

    def add(self, piece: bytes | bytearray | memoryview) -> None: ...
    @property
    def value(self) -> int: ...

class DeliveredBatch(Protocol):
    """A journal's requirements on a batch. A ``seqcast._native.engine.Batch`` is read without making these arrays."""

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
    def transitional(self) -> int: ...
    @property
    def delivered_ns(self) -> int: ...
    def __len__(self) -> int: ...

RUN_BYTES: int
"""The size of a run in the columns of `Block`, bytes, about."""
MESSAGE_BYTES: int
"""The further size of a message there, without its payload."""

class Block:
    """The journaled fields of messages: a buffer for each column of a live segment (`seqcast.journal.live`), those of
    runs (messages that came in one packet) and those of messages. ``starts`` has the place of each run's first message
    and, with payloads, ``offsets`` that of each payload's first byte in ``payload``. Not thread-safe.

    Args:
        runs, messages: maximum numbers.
        payload_capacity: maximum bytes of payloads; -1: payloads are not kept.
    """

    def __init__(self, runs: int, messages: int, payload_capacity: int = -1) -> None: ...
    @property
    def room(self) -> tuple[int, int, int]:
        """Maximum numbers of runs, messages and bytes of payloads, as given."""

    @property
    def runs(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def payload_bytes(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """The size of the runs, messages and payloads, bytes."""

    @property
    def last_global_seqno(self) -> int:
        """Of the last message; 0 without messages, or without total order."""

    def add(self, batch: DeliveredBatch, *, idx: int, view_counter: int, view_tag: int, total: bool = False) -> int:
        """Copies the journaled fields of one batch, whose first message has position ``idx``; unicasts are skipped.

        Args:
            view_tag: tag of the view, its 64 bits as a signed integer.
            total: the view has a total order: messages without a place are skipped too.

        Returns:
            The number of messages; -1 if the block has no room for the whole batch: nothing was added then.

        Raises:
            ValueError: runs or offsets point outside the batch; nothing was added.
        """

    def address(self, column: str) -> int:
        """Address of a column; valid as long as the block lives."""

    def clocks(self) -> dict[int, int]:
        """Sender -> lowest difference between delivery and sending of its messages, ns, by the clocks of both members,
        perhaps negative. Of the first 128 senders; a view has no more. Without the GIL."""

    def clear(self) -> None:
        """Drops its contents but keeps the memory, which is warm in the cache."""

def spread(
    values: npt.NDArray[Any], starts: npt.NDArray[np.int32], *, counting: bool = False, zeros: bool = False
) -> npt.NDArray[Any]:
    """Values of runs (32 or 64 bits, signed) for each message: run ``i`` has the messages from ``starts[i]`` on up to
    ``starts[i + 1]``. Without the GIL.

    Args:
        counting: the value is that of the run's first message, and grows by one from message to message.
        zeros: but zeros stay.

    Raises:
        ValueError: ``starts`` does not begin with 0, falls, or has not one element more than ``values``.
    """

def texts(keys: npt.NDArray[np.int64], known: dict[int, str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The text of each key, as the offsets and the UTF-8 bytes of an Arrow string array; a byte that belongs to none
    follows.

    Raises:
        KeyError: a key is not known.
        ValueError: the texts together are longer than 2 GiB.
    """

def hash_payloads(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], out: npt.NDArray[np.int64]) -> None:
    """Writes the hash of each message of an Arrow binary array into ``out``, which has one element per message."""

Found = tuple[int, list[tuple[int, tuple[int, int], tuple[int, int]]]]
"""How many rows do not follow the ones before, and the first of them: position, the highest before, and this one, both
as (seqno, index); index is 0 for positions and global seqnos."""

class Scan:
    """One pass over the rows of a segment, for the audit: where they do not follow each other, and fingerprints."""

    def add(
        self,
        *,
        idx: npt.NDArray[np.int64],
        view_counter: npt.NDArray[np.int64],
        view_tag: npt.NDArray[np.int64],
        global_seqno: npt.NDArray[np.int64],
        sender: npt.NDArray[np.int64],
        seqno: npt.NDArray[np.int64],
        payload_hash: npt.NDArray[np.int64],
        index: npt.NDArray[np.int32],
        length: npt.NDArray[np.int32],
        transitional: npt.NDArray[np.uint8],
    ) -> None:
        """The next rows: columns of `seqcast.journal.schema.COLUMNS`, booleans as bytes. Releases the GIL.

        Raises:
            ValueError: the columns differ in length.
            MemoryError: no memory.
        """

    @property
    def rows(self) -> int: ...
    @property
    def ends(self) -> tuple[int, int]:
        """Positions of the first and last rows."""

    @property
    def breaks(self) -> Found:
        """Positions that are not one higher than the one before."""

    def views(self) -> list[tuple[int, int, int, int, int, int, tuple[int, int], int, Found, Found, Found]]:
        """Runs of rows of one view: tag, idx, rows, first and highest global seqno, rows without one, lowest and
        highest view counter, the first global seqno that is transitional (0: none is), global seqnos that are not
        higher than one before, those that leave some out, and those that are not transitional after one that is."""

    def senders(self) -> list[tuple[int, int, int, tuple[int, int], tuple[int, int], Found, Found]]:
        """sender, idx, rows, first and highest (seqno, index), those not higher than one before, and those that leave
        out an index of a packet."""

    def groups(self) -> list[tuple[tuple[int, int, int], tuple[int, int, int, int, int, int]]]:
        """(view tag, sender, bucket) -> rows, highest global seqno, highest seqno, highest (seqno, index) without the
        bits of the bucket, the sum of a hash of each row, modulo 2^64, and one more than the highest (seqno, index) of
        those that are not transitional, 0 if all are."""
