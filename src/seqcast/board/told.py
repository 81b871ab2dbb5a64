"""A member tells others of its board in a text, in short or the whole board in pages; reading one checks everything, as
another member wrote this."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqcast.board.judge import way
from seqcast.board.place import BYTES
from seqcast.board.read import Board, BoardError

COUNTED = ("messages_sent", "messages_delivered", "packets_retransmitted")
REASON_MAX = 200
UNKNOWN = "unknown"
PEER = 7
"""Numbers about a peer: its id, and the fields of ``Peer``. Later releases add theirs at the end."""
PAGE_BYTES = 24_000
KNOWN_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True)
class Peer:
    """One member's knowledge of another. None: its release does not report this.

    Args:
        rtt: ns of a round trip; 0: not known.
        lag, untaken: packets of the member that the other one has not put in order, and has not taken.
        silent: ns since the other one was heard; 0: never.
        path: bytes of the largest packet that reaches the other one whole; 0: not known.
        late: ns since the first of the packets that count as ``lag`` was sent.
    """

    rtt: int | None = None
    lag: int | None = None
    untaken: int | None = None
    silent: int | None = None
    path: int | None = None
    late: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A member's report of itself. Another release may tell more than this one knows, or less: a number that it does
    not tell is None, the status "unknown", and a counter or a peer is left out.

    Args:
        at: ns, by its clock, when its engine wrote this; ``age``: how long before the answer that was.
        status, reason: as ``Group.status``.
        held_by: id of the member that its senders wait for, or 0; ``held``: for how long, in ns.
        counters: by name.
        hears: by rank: "m", "u", ".", "?", "-" for itself; see ``judge.way``.
        peers: by id.
    """

    at: int | None
    age: int | None
    status: str
    reason: str
    held_by: int | None
    held: int | None
    counters: dict[str, int]
    hears: str
    peers: dict[int, Peer]


def said(board: Board) -> str:
    """A member's board in the form sent to others: printable, and at most 25,000 bytes."""
    gauges, now, mine = board.gauges, board.read_ns, board.gauges["rank"]
    rows = range(len(board.members))
    status = board.about["status"]
    value = {
        "at": gauges["posted"],
        "age": max(0, now - gauges["posted"]),
        "status": status["name"],
        "reason": status["reason"][:REASON_MAX],
        "held_by": gauges["held_by"],
        "held": max(0, now - gauges["held_since"]) if gauges["held_by"] else 0,
        "counters": {name: board.counters.get(name, 0) for name in COUNTED},
        "hears": "".join("-" if rank == mine else way(board, mine, rank) for rank in rows) if rows else "",
        "peers": [_peer(board, rank) for rank in rows if rank != mine],
    }
    return json.dumps(value, separators=(",", ":"))


def _peer(board: Board, rank: int) -> list[int]:
    row, last = board.members[rank], board.gauges["last"]
    silent = max(0, board.read_ns - row["heard"]) if row["heard"] else 0
    behind = (max(0, last - row["delivered"]), max(0, last - row["consumed"]))
    return [row["id"], row["rtt"], *behind, silent, row["path_bytes"], row["lag_ns"]]


def heard(text: str) -> Told:
    """
    Raises:
        BoardError: no member of any release gives such an answer.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BoardError("the answer is not a JSON object")
    counters, peers = value.get("counters", {}), value.get("peers", [])
    if not isinstance(counters, dict) or not isinstance(peers, list):
        raise BoardError("malformed counters or peers in the answer")
    status, reason, hears = (_text(value, name) for name in ("status", "reason", "hears"))
    at, age, held_by, held = (_number(value, name) for name in ("at", "age", "held_by", "held"))
    rows = [[_number(row, i) for i in range(PEER)] for row in map(_row, peers) if row]
    known = {name: n for name in COUNTED if (n := _number(counters, name)) is not None}
    told_of = {row[0]: Peer(*row[1:]) for row in rows if row[0] is not None}
    return Told(at, age, status or UNKNOWN, reason, held_by, held, known, hears, told_of)


def _row(values: object) -> dict[int, object]:
    if not isinstance(values, list):
        raise BoardError("malformed peer in the answer")
    return dict(enumerate(values))


def cut(known: Mapping[str, Any], board: bytes) -> list[str]:
    """The pages of a whole board.

    Args:
        known: further knowledge of the member, as an object of JSON.
        board: its bytes.
    """
    whole = zlib.compress(json.dumps(known).encode() + b"\n" + board)
    text = base64.b64encode(whole).decode()
    return [text[at : at + PAGE_BYTES] for at in range(0, len(text), PAGE_BYTES)]


def joined(pages: Sequence[str]) -> tuple[dict[str, Any], bytes]:
    """The knowledge and the board of which these are all pages.

    Raises:
        BoardError: no member of this release cut these, or not at one time.
    """
    unpacked = zlib.decompressobj()
    try:
        whole = unpacked.decompress(base64.b64decode("".join(pages), validate=True), KNOWN_BYTES_MAX + BYTES)
        known = json.loads(whole[:-BYTES])
    except (ValueError, RecursionError, zlib.error):
        known = None
    if not isinstance(known, dict) or not unpacked.eof:
        raise BoardError("the pages are not those of one board")
    return known, whole[-BYTES:]


def _text(value: Mapping[str, Any], name: str) -> str:
    """ "": there is none."""
    found = value.get(name, "")
    if not isinstance(found, str) or not found.isprintable():
        raise BoardError(f"in the answer, {name} is not a string")
    return found


def _number(value: Mapping[Any, Any], name: object) -> int | None:
    """None: there is none."""
    if name not in value:
        return None
    found = value[name]
    if type(found) is not int or not 0 <= found < 1 << 64:
        raise BoardError(f"in the answer, {name} is not a number")
    return found
