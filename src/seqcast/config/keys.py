"""With what datagrams are sealed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECRET_BYTES = 32
ROOM = 40
"""Bytes by which sealing makes a datagram longer: ``SC_SEAL_ROOM`` of native/seal/seal.h."""


@dataclass(frozen=True)
class Seal:
    """With what an engine seals datagrams; see native/seal/seal.h.

    Args:
        seal, open, hash, random: addresses of C functions.
        secret: 32 bytes, of this cluster alone.
        keeps: keeps the functions in memory.
    """

    seal: int
    open: int
    hash: int
    random: int
    secret: bytes = field(repr=False)
    keeps: Any = field(default=None, repr=False)
