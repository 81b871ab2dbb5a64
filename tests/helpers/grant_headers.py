"""A datagram's fields about places, for transcripts of ``order="grant"``."""

from __future__ import annotations

import struct

DATA, RECORD, WANT, GRANT = 1, 14, 20, 21


def header(datagram: bytes) -> str | None:
    """None for a datagram that says nothing about them."""
    kind = datagram[2]
    if kind in (DATA, RECORD):
        place, seqno = (struct.unpack_from("<Q", datagram, at)[0] for at in (64, 32))
        if kind == RECORD:
            return f"RECORD {seqno}: {places(place, struct.unpack_from('<H', datagram, 82)[0])} void"
        return f"DATA {seqno}: " + (f"place {place}" if place else "no place")
    if kind in (WANT, GRANT):
        number, place, count = struct.unpack_from("<QQI", datagram, 40)
        return f"WANT {number}: {count}" if kind == WANT else f"GRANT {number}: {places(place, count)}"
    return None


def places(first: int, count: int) -> str:
    return f"place {first}" if count == 1 else f"places {first} to {first + count - 1}"
