"""The control frames: JSON objects with a ``kind`` and declared fields, checked in full before use.

Every frame is idempotent and repeated until the answer, so frames need no reliability below them. A frame that does
not fit its schema raises ``RemoteProtocolError``; the endpoint counts and drops that.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from seqcast.core.frames.asking import Asking
from seqcast.core.frames.closing import Closing, Cut, Ok
from seqcast.core.frames.codec import ADDRESS, ID, Schema, dump_fields, fields_of, load_fields, need
from seqcast.core.frames.fields import PROTOCOL_OLDEST, PROTOCOL_VERSION
from seqcast.core.frames.gossiping import Gossip
from seqcast.core.frames.joining import Joining, OtherVersion
from seqcast.core.frames.merging import Merging
from seqcast.core.frames.pausing import Pausing
from seqcast.core.frames.recalling import Recalling
from seqcast.core.frames.ring import RingFrame
from seqcast.core.frames.traits import TRAITS
from seqcast.core.frames.unblocking import Unblocking
from seqcast.core.frames.view import NewView, ViewFrame
from seqcast.errors import RemoteProtocolError

FRAME_BYTES_MAX = 62_000
WRITTEN_BYTES_MAX = 160_000
"""The most bytes of a frame in written form. One longer than ``FRAME_BYTES_MAX`` is compressed: a VIEW of many."""

Frame = Joining | Closing | ViewFrame | Pausing | Merging | Unblocking | RingFrame | Gossip | Asking | Recalling

SCHEMAS: dict[str, tuple[type[Any], dict[str, Schema]]] = {
    traits.kind: (make, fields_of(make)) for make, traits in TRAITS.items() if traits.kind
}


def dump(frame: Frame, at: bytes = b"") -> bytes:
    """The bytes of a frame.

    Args:
        frame: its fields.
        at: the address of its sender, if that is not the one from which the frame comes; empty: left out.

    Raises:
        AssertionError: too long even in compressed form; the bounds of the schemas exclude that.
    """
    kind = TRAITS[type(frame)].kind
    value = {"kind": kind, **dump_fields(frame, SCHEMAS[kind][1])}
    if at:
        value["at"] = ADDRESS.dump(at)
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > FRAME_BYTES_MAX:
        assert len(data) <= WRITTEN_BYTES_MAX, f"{kind} frame of {len(data)} bytes"
        data = zlib.compress(data)
    assert len(data) <= FRAME_BYTES_MAX, f"{kind} frame of {len(data)} bytes"
    return data


def load(data: bytes) -> Frame:
    """As ``load_from``, without regard to its sender's stated address."""
    return load_from(data)[0]


def _is_spoken(newest: int, oldest: object) -> bool:
    """Does a joiner that speaks these versions speak one of ours?"""
    return newest >= PROTOCOL_OLDEST and (oldest if type(oldest) is int else newest) <= PROTOCOL_VERSION


def load_from(data: bytes) -> tuple[Frame, bytes]:
    """Reads and checks a frame; returns also the address of its sender, if stated there, or nothing.

    Raises:
        RemoteProtocolError: not a frame, or a field is missing or out of its bounds.
    """
    need(len(data) <= FRAME_BYTES_MAX, f"longer than {FRAME_BYTES_MAX} bytes")
    try:
        if not data.startswith(b"{"):
            data = zlib.decompressobj().decompress(data, WRITTEN_BYTES_MAX)
        value = json.loads(data)
    except (ValueError, RecursionError, zlib.error) as error:
        raise RemoteProtocolError(f"control frame: not JSON: {error}") from None
    need(isinstance(value, dict), "not an object")
    kind = value.pop("kind", None)
    need(isinstance(kind, str) and kind in SCHEMAS, "unknown kind")
    at = ADDRESS.load(value.pop("at")) if "at" in value else b""
    version = value.get("version")
    if kind == "join" and type(version) is int and not _is_spoken(version, value.get("oldest")):
        try:
            return OtherVersion(version, ID.load(value.get("nonce"))), at
        except RemoteProtocolError:
            return OtherVersion(version), at
    make, schemas = SCHEMAS[kind]
    frame: Frame = load_fields(make, value, schemas, kind)
    if isinstance(frame, NewView | Ok | Cut):
        frame.check()
    return frame, at
