"""The simulator's view of a datagram: its header, as ``native/wire/wire.h`` lays it out, and the frame in it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from seqcast.core.frames.kinds import Frame, load
from seqcast.core.identities import taken_apart
from seqcast.errors import RemoteProtocolError
from seqcast.sim.seal import HEADER, Sealings

_HEADER = struct.Struct("<xxB9xHxxQQQ")
DATA, UNICAST, FORWARD, ACK, NAK = 1, 2, 3, 4, 5  # types of datagrams
PROBE, HEARTBEAT, CONTROL, STATE, RECORD, TOTAL = 6, 7, 8, 9, 14, 15
PING, PONG, PIECE, WANT, GRANT = 10, 11, 18, 20, 21
MESSAGES = (DATA, UNICAST, FORWARD, STATE)
GROUP = (DATA, FORWARD)  # with messages to the group
FOR_OUTSIDE = (CONTROL, PING, PONG, PIECE)  # whoever has the key file may send them
REPAIRED = (*MESSAGES, RECORD)  # sent again on request


class Header(NamedTuple):
    """Fields of the common header.

    Args:
        kind: the datagram's type.
        key_id: 0: no key.
    """

    kind: int
    key_id: int
    sender: int
    view_tag: int
    seqno: int


def header(datagram: bytes) -> Header:
    """Of a whole datagram."""
    return Header(*_HEADER.unpack_from(datagram))


def kind(datagram: bytes) -> int:
    """The type of a datagram; 0: an empty one, the notice of a closed port."""
    return datagram[2] if datagram else 0


def is_sealed_inside(datagram: bytes) -> bool:
    """Did the secret of a view seal it?"""
    return header(datagram).key_id >> 14 == 2


def packet(datagram: bytes) -> bytes:
    """The identity of a packet of messages: sender, view, seqno."""
    return datagram[16:HEADER]


def frame(datagram: bytes, sealings: Sealings) -> Frame | None:
    """The frame of the control plane in a datagram; None: there is none, or one that nobody could read."""
    if kind(datagram) != CONTROL:
        return None
    plain = sealings.opened(datagram) if header(datagram).key_id else datagram
    try:
        return load(taken_apart(plain[HEADER:]).payload)
    except RemoteProtocolError:
        return None
