"""The simulator's view of a datagram: its header, as ``native/wire/wire.h`` lays it out, and the frame in it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from seqcast.core.frames.kinds import Frame, load
from seqcast.core.identities import taken_apart
from seqcast.errors import RemoteProtocolError
from seqcast.sim.seal import HEADER, Sealings

_HEADER = struct.Struct("<xxB9xHxxQQQ")
CONTROL = 8  # types of datagrams: with a frame of the control plane,
ACK = 4
NAK = 5
HEARTBEAT = 7
MESSAGES = (1, 2, 3, 9)  # with messages: DATA, UNICAST, FORWARD, STATE,
GROUP = (1, 3)  # and of those with messages to the group
REPAIRED = (*MESSAGES, 14)  # sent again on request: RECORD too


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
    """The type of a datagram; 0: it is empty, the notice of a closed port."""
    return datagram[2] if datagram else 0


def is_sealed_inside(datagram: bytes) -> bool:
    """Did the secret of a view seal it?"""
    return header(datagram).key_id >> 14 == 2


def packet(datagram: bytes) -> bytes:
    """The identity of a packet of messages: sender, view, seqno."""
    return datagram[16:HEADER]


def frame(datagram: bytes, sealings: Sealings) -> Frame | None:
    """The frame of the control plane in it; None: it has none, or one that nobody could read."""
    if kind(datagram) != CONTROL:
        return None
    plain = sealings.opened(datagram) if header(datagram).key_id else datagram
    try:
        return load(taken_apart(plain[HEADER:]).payload)
    except RemoteProtocolError:
        return None
