"""The types of fields that several control frames have, and a member's description of itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from seqcast.arguments import INFO_BYTES_MAX, NAME_BYTES_MAX
from seqcast.core.frames.codec import (
    ADDRESS,
    FLAG,
    ID,
    Schema,
    choice,
    integer,
    list_of,
    need,
    octets,
    pair,
    prose,
    record,
    text,
)
from seqcast.types import MEMBERS_MAX, Member, ViewId

SEQNO_MAX = 1 << 62
"""As on the wire (SC_SEQNO_MAX), so that sums of seqnos do not wrap in the engine."""
SHARED_MAX = 32
PROTOCOL_VERSION = 22
"""Version of the frames and of the rules behind them."""
PROTOCOL_OLDEST = 22
"""The oldest version that this release speaks too; never lowered."""

COUNT = integer("count", 0, (1 << 53) - 1)
MECHANISM = integer("0 to 255", 0, 255)
_SEQNO = integer("seqno", 0, SEQNO_MAX)
_BYTES = integer("bytes", 1, (1 << 53) - 1)
_RANK = integer("rank", 0, MEMBERS_MAX - 1)
_NAME = text(NAME_BYTES_MAX)
_FLUSH = pair(("attempt", "initiator"), COUNT, ID)

Id = Annotated[int, ID]
Ids = Annotated[tuple[int, ...], list_of(ID, MEMBERS_MAX)]
Seqno = Annotated[int, _SEQNO]
Seqnos = Annotated[tuple[int, ...], list_of(_SEQNO, MEMBERS_MAX)]
RANGE = pair(("lo", "hi"), _SEQNO, _SEQNO)
Rank = Annotated[int, _RANK]
Ranks = Annotated[tuple[int, ...], list_of(_RANK, MEMBERS_MAX)]
Count = Annotated[int, COUNT]
Bytes = Annotated[int, _BYTES]
PacketBytes = Annotated[int, integer("bytes, 512 to 65000", 512, 65_000)]
Flag = Annotated[bool, FLAG]
Address = Annotated[bytes, ADDRESS]
Addresses = Annotated[tuple[bytes, ...], list_of(ADDRESS, MEMBERS_MAX)]
Name = Annotated[str, _NAME]
Names = Annotated[tuple[str, ...], list_of(_NAME, MEMBERS_MAX)]
Cluster = Annotated[str, text(255)]
OrderName = Annotated[str, text(32)]
Mechanism = Annotated[int, MECHANISM]
StateField = Annotated[int, integer("0, 1 or 2", 0, 2)]
HistoryField = Annotated[int, integer("0, 1 or 2", 0, 2)]
Phase = Annotated[str, choice("block", "stop", "hold")]
Reason = Annotated[str, prose(1000)]
PublicKey = Annotated[bytes, octets(32)]
KEYS_MAX = 4
"""Keys in a file."""
KeyIds = Annotated[tuple[int, ...], list_of(integer("id of a key", 0, (1 << 16) - 1), KEYS_MAX)]
IDENTITY_BYTES, SIGNATURE_BYTES = 32, 64
"""Sizes of Ed25519."""
Signature = Annotated[bytes, octets(SIGNATURE_BYTES)]
Shared = Annotated[tuple[tuple[str, str], ...], list_of(pair(("name", "value"), text(64), text(64)), SHARED_MAX)]
_VERSION = integer("0 to 65535", 0, 65535)
Version = Annotated[int, _VERSION]
Speaks = Annotated[tuple[int, int], pair(("oldest", "newest"), _VERSION, _VERSION)]
Attempt = Annotated[tuple[int, int], pair(("attempt", "rank"), COUNT, _RANK)]
"""Id of one attempt to close a view: (attempt, rank of the initiator). Totally ordered (the cut, step 1)."""
Promise = Annotated[tuple[int, int], pair(("attempt", "rank"), COUNT, integer("rank or -1", -1, MEMBERS_MAX - 1))]
MergeId = Annotated[tuple[int, int], pair(("leader", "number"), ID, COUNT)]
"""Id of one merge: (id of its leader, number). Only the leader makes the id, after the election (E-11)."""


def _load_about(value: Any) -> str:
    about = str(_ABOUT.load(value))
    try:
        said = json.loads(about or "{}")
    except (ValueError, RecursionError):
        said = None
    need(isinstance(said, dict), "an object in JSON expected")
    return about


_ABOUT = text(2 * INFO_BYTES_MAX, 0)  # quotation marks count twice in the frame
About = Annotated[str, Schema(f"{_ABOUT.text}: an object in JSON, or empty", _ABOUT.dump, _load_about)]
_VIEW_ID = record(ViewId, {"counter": COUNT, "coordinator": ID, "flush": _FLUSH})
ViewIdField = Annotated[ViewId, _VIEW_ID._replace(text="[counter, coordinator, [attempt, initiator]]")]


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member's description of itself in its JOIN, which the VIEW repeats to everyone.

    Args:
        name, id, address: see ``Member``.
        capacity: charged bytes its receive buffer holds.
        packet_bytes: the largest datagram that its path carries whole.
        window_bytes: the largest configured window.
        gro: the member receives runs of datagrams in one buffer (UDP_GRO).
        state: 0: no part in state transfer; 1: takes part; 2: takes part, and its application merges states.
        blocks: the member has a block callback, for which the cut has a round of its own (step 2).
        key: with a key file: public half of the key pair of this incarnation, for which secrets of views are wrapped.
        about: the info that its application gave (``Member.info``), as JSON; "": none.
        observer: the member only receives: is never coordinator or sequencer, and has no vote.
        aes: with a key file: its processor has AES instructions.
        identity: with identities: its own. ``cookie``: of the JOIN that was taken in. ``signature``: of all this; see
            ``core/identities.py``.
        speaks: versions of the protocol: the oldest and the newest one that its release speaks. Each description has
            them, since the default differs by release.
        opens: with a key file: the ids of its keys, in its order; see ``core/rules/keys.py``.
    """

    name: Name
    id: Id
    address: Address
    capacity: Bytes
    packet_bytes: PacketBytes
    window_bytes: Bytes
    gro: Flag = False
    state: StateField = 0
    blocks: Flag = False
    key: PublicKey = b""
    about: About = ""
    observer: Flag = False
    aes: Flag = False
    identity: PublicKey = b""
    cookie: Id = 1
    signature: Signature = b""
    speaks: Speaks = field(default_factory=lambda: (PROTOCOL_OLDEST, PROTOCOL_VERSION))
    opens: KeyIds = ()

    @property
    def member(self) -> Member:
        return Member(self.name, self.id, self.address, self.about, self.observer)


def common(infos: Iterable[MemberInfo]) -> tuple[int, int]:
    """The oldest and the newest protocol version that all speak. If the first is the higher one, no version is spoken
    by all."""
    oldest, newest = zip(*(each.speaks for each in infos), strict=True)
    return max(oldest), min(newest)
