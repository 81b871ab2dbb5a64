"""Journal columns, compiled (see columns.pyx)."""

from typing import Any

import numpy as np
import numpy.typing as npt

def payload_hash(payload: bytes | npt.NDArray[np.uint8], seed: int = 42) -> int:
    """XXH64 of a payload as a signed 64-bit integer; equals Spark SQL's ``xxhash64(payload)``."""

def count(runs: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """(multicast messages, unicast messages) of a batch. Give ``batch.runs.view(np.uint8)``."""

def fill(
    columns: dict[str, npt.NDArray[Any]],
    at: int,
    idx: int,
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32],
    runs: npt.NDArray[np.uint8],
    *,
    view_counter: int,
    view_tag: int,
    delivered_ns: int,
) -> int:
    """Writes the rows of one batch into ``columns`` from row ``at`` on and returns how many; unicasts are skipped."""

def hash_payloads(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], out: npt.NDArray[np.int64]) -> None:
    """Writes the hash of each message of an Arrow binary array into ``out``, which has one element a message."""
