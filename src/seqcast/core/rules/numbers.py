"""Numbers that change with time: one of them, heard again, shows that its sender has heard us lately."""

from __future__ import annotations

import hashlib


def numbers(purpose: str, seed: int, period: int) -> tuple[int, int]:
    """The number of this period, and that of the one before.

    Args:
        purpose: each has numbers of its own; at most 16 letters.
        seed: of one process.
    """
    return _number(purpose, seed, period), _number(purpose, seed, period - 1)


def _number(purpose: str, seed: int, period: int) -> int:
    said = seed.to_bytes(8, "little") + period.to_bytes(8, "little", signed=True)
    digest = hashlib.blake2b(said, digest_size=8, person=purpose.encode()).digest()
    return int.from_bytes(digest, "little") | 2  # never `NOBODY`, nor 0
