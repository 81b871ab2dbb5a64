"""The control frames: JSON objects with a ``kind`` and declared fields, checked in full before use.

Every frame is idempotent and repeated until it is answered, so frames need no reliability below them. A frame that does
not fit its schema raises ``RemoteProtocolError``; the endpoint counts and drops it.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from seqcast.core.frames.asking import Ask, Asking, Told
from seqcast.core.frames.closing import Accepted, Block, BlockOk, Closing, Cut, Done, Ok, Promised, Propose, Start
from seqcast.core.frames.codec import ID, Schema, dump_fields, fields_of, load_fields, need
from seqcast.core.frames.gossiping import Gossip
from seqcast.core.frames.joining import PROTOCOL_VERSION, Join, Joining, Leave, OtherVersion, Refused, Wait
from seqcast.core.frames.merging import (
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
    Merging,
    Met,
)
from seqcast.core.frames.pausing import Pausing, Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.ring import Confirm, Confirmed, RingFrame, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import BlockedSide, Unblock, Unblocking
from seqcast.core.frames.view import Declined, Installed, NewView, StateWanted, ViewFrame
from seqcast.errors import RemoteProtocolError

FRAME_BYTES_MAX = 60_000
WRITTEN_BYTES_MAX = 100_000
"""Of a frame as it is written. One longer than ``FRAME_BYTES_MAX`` is compressed: a VIEW of many."""

Frame = Joining | Closing | ViewFrame | Pausing | Merging | Unblocking | RingFrame | Gossip | Asking

_KINDS: dict[str, type[Any]] = {
    "join": Join,
    "wait": Wait,
    "refused": Refused,
    "leave": Leave,
    "block": Block,
    "block_ok": BlockOk,
    "start": Start,
    "ok": Ok,
    "promised": Promised,
    "cut": Cut,
    "done": Done,
    "view": NewView,
    "propose": Propose,
    "accepted": Accepted,
    "installed": Installed,
    "declined": Declined,
    "suspend": Suspend,
    "suspended": Suspended,
    "resume": Resume,
    "resumed": Resumed,
    "state_wanted": StateWanted,
    "beacon": Beacon,
    "met": Met,
    "unblock": Unblock,
    "blocked": BlockedSide,
    "merge_ask": MergeAsk,
    "merge_refused": MergeRefused,
    "merge_ready": MergeReady,
    "merge_go": MergeGo,
    "merge_taken": MergeTaken,
    "merge_cancel": MergeCancel,
    "token": Token,
    "token_held": TokenHeld,
    "confirm": Confirm,
    "confirmed": Confirmed,
    "unconfirmed": Unconfirmed,
    "gossip": Gossip,
    "ask": Ask,
    "told": Told,
}
SCHEMAS: dict[str, tuple[type[Any], dict[str, Schema]]] = {
    kind: (make, fields_of(make)) for kind, make in _KINDS.items()
}
_KIND_OF = {make: kind for kind, make in _KINDS.items()}
OUTSIDE = frozenset({
    Join, OtherVersion, Wait, Refused, NewView, Installed, Declined, Beacon, Met, Unblock, BlockedSide,
    MergeAsk, MergeRefused, MergeReady, MergeGo, MergeTaken, MergeCancel,
})  # fmt: skip
"""Frames between those who are in no view, or in different ones. With a key they are sealed with the secret of its
file, and all others with that of the view."""


def dump(frame: Frame) -> bytes:
    """The bytes of a frame.

    Raises:
        AssertionError: it is too long even if it is compressed; the bounds of the schemas exclude that.
    """
    kind = _KIND_OF[type(frame)]
    value = {"kind": kind, **dump_fields(frame, SCHEMAS[kind][1])}
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > FRAME_BYTES_MAX:
        assert len(data) <= WRITTEN_BYTES_MAX, f"{kind} frame of {len(data)} bytes"
        data = zlib.compress(data)
    assert len(data) <= FRAME_BYTES_MAX, f"{kind} frame of {len(data)} bytes"
    return data


def load(data: bytes) -> Frame:
    """Reads and checks a frame.

    Raises:
        RemoteProtocolError: not a frame, or a field is missing, unknown or out of its bounds.
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
    version = value.get("version")
    if kind == "join" and type(version) is int and version != PROTOCOL_VERSION:
        try:
            return OtherVersion(version, ID.load(value.get("nonce")))
        except RemoteProtocolError:
            return OtherVersion(version)
    make, schemas = SCHEMAS[kind]
    frame: Frame = load_fields(make, value, schemas, kind)
    if isinstance(frame, NewView | Ok | Cut):
        frame.check()
    return frame
