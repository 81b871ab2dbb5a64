"""A datagram in the words of the TOTAL document (S1), for transcripts of ``order="total-1999"``."""

from __future__ import annotations

import struct

DATA, UNICAST, FORWARD, ACK, NAK, TOTAL = 1, 2, 3, 4, 5, 15
GROUP_STREAM = 0
OWN = {1: "TOTAL_NEW_VIEW {id}", 2: "TOTAL_NEW_VIEW_ACK", 3: "TOTAL_SEQ_ACK {id}"}
"""Headers that a datagram of type TOTAL carries."""


def header(datagram: bytes) -> str | None:
    """The header with its sequence id, or None for a datagram that has no place in that document."""
    kind = datagram[2]
    if kind == DATA:
        seqno, rank = number(datagram, 32), struct.unpack_from("<H", datagram, 78)[0]
        return f"TOTAL_BCAST {seqno} for rank {rank}"
    if kind in (UNICAST, FORWARD):
        return "TOTAL_UNICAST" if kind == UNICAST else "TOTAL_REQUEST"
    if kind == ACK and number(datagram, 40) == GROUP_STREAM:
        return f"TOTAL_CUM_SEQ_ACK {number(datagram, 48)}"
    if kind == NAK and struct.unpack_from("<I", datagram, 48)[0] == GROUP_STREAM:
        ranges = [struct.unpack_from("<QQ", datagram, at) for at in range(56, len(datagram), 16)]
        return "TOTAL_RESEND " + " ".join(f"{lo}" if lo == hi else f"{lo}-{hi}" for lo, hi in ranges)
    if kind == TOTAL:
        return OWN[struct.unpack_from("<I", datagram, 48)[0]].format(id=number(datagram, 40))
    return None


def number(datagram: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", datagram, at)[0])
