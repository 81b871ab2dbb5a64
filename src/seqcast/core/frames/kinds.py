"""The control frames: JSON objects with a ``kind`` and declared fields, checked in full before use.

Every frame is idempotent and repeated until it is answered, so frames need no reliability below them. A frame that does
not have its declared shape raises ``RemoteProtocolError``; the endpoint counts and drops it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqcast.arguments import NAME_BYTES_MAX
from seqcast.core import orders
from seqcast.core.frames.codec import (
    ADDRESS,
    FLAG,
    ID,
    Shape,
    choice,
    integer,
    listed,
    need,
    optional,
    prose,
    record,
    text,
)
from seqcast.errors import RemoteProtocolError
from seqcast.types import MEMBERS_MAX, Member, ViewId

PROTOCOL_VERSION = 3
"""Version of these frames and of the rules behind them; a joiner of another version is refused."""
FRAME_BYTES_MAX = 60_000
REFUSALS = ("name", "settings", "version", "full", "incarnation")
"""Causes of a refusal; see ``Refused``."""
RANGES_MAX = 64
"""Ranges a member reports of a lost member's stream; naming fewer than it holds is safe, it only shortens the cut."""
RANGES_ALL_MAX = 1000
"""And of all streams of lost members together."""
FETCH_MAX = 900
WAIT_BYTES_MAX = 1000
SHARED_MAX = 32
SUBGROUPS_MAX = 16
SHORTFALLS_MAX = 47
"""Shortfalls that one frame carries; older ones are no longer reported."""
MECHANISMS_MAX = 64

Attempt = tuple[int, int]
"""Id of one attempt to close a view: (attempt, rank of the initiator). Totally ordered (the cut, step 1)."""


MergeId = tuple[int, int]
"""Id of one merge: (id of its leader, number). Made by the leader after the election alone (E-11)."""


class Side(NamedTuple):
    """Members that are blocked together: they answered this attempt to close this view (its tag)."""

    view: int
    attempt: Attempt


class Held(NamedTuple):
    """What a member holds of one stream: the end of the prefix, and the ranges beyond it."""

    prefix: int
    ranges: tuple[tuple[int, int], ...] = ()


class Fetch(NamedTuple):
    """A range of one stream, and its holders. Streams and holders are ranks of the closing view."""

    rank: int
    lo: int
    hi: int
    holder: int


class Provision(NamedTuple):
    """Which member gives its state to one that lacks it, by id, taken at the beginning of which view (its tag)."""

    joiner: int
    provider: int
    boundary: int


class Subgroup(NamedTuple):
    """A view that was merged, and the ids of its members that came along."""

    view_id: ViewId
    ids: tuple[int, ...]


class Shortfall(NamedTuple):
    """Members that went from ``view`` (a tag) to ``successor`` delivered ``member``'s packets up to ``last`` only."""

    view: int
    successor: ViewId
    member: int
    last: int


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What a member says about itself in its JOIN, and the VIEW repeats to everyone.

    Args:
        name, id, address: see ``Member``.
        capacity: charged bytes its receive buffer holds.
        packet_bytes: the largest datagram that its path carries whole.
        window_bytes: the largest window it is configured for.
        gro: it receives runs of datagrams in one buffer (UDP_GRO).
        state: it takes part in state transfer.
        blocks: it has a block callback, for which the cut has a round of its own (step 2).
    """

    name: str
    id: int
    address: bytes
    capacity: int
    packet_bytes: int
    window_bytes: int
    gro: bool = False
    state: bool = False
    blocks: bool = False

    @property
    def member(self) -> Member:
        return Member(self.name, self.id, self.address)


@dataclass(frozen=True, slots=True)
class Join:
    """Joiner to all: take me in. Repeated until a view has the joiner.

    Args:
        version: of the protocol; the only field that another version must find in its place.
        mechanisms: numbers of the orders' mechanisms that the joiner knows.
        shared: settings that are the same at all members, by name.
        nonce: the answers carry it: a stranger that has not heard the question cannot give one.
    """

    version: int
    cluster: str
    order: str
    mechanisms: tuple[int, ...]
    info: MemberInfo
    tries: int
    shared: tuple[tuple[str, str], ...] = ()
    nonce: int = 1


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A JOIN of another protocol version; only its version is understood, and its nonce, if it has one."""

    version: int
    nonce: int = 1


@dataclass(frozen=True, slots=True)
class Wait:
    """Member to joiner: a group exists, do not form one; ``blocked``: why it admits nobody now, or empty."""

    view: int
    blocked: str = ""
    nonce: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """Coordinator to joiner: you are refused, and why; ``cause``: the same for programs. In all versions.

    Causes: "name" (another member has it), "settings" (not those of the group), "version", "full", or "incarnation"
    (it lost a view before it was in: a new one can join at once).
    """

    reason: str
    cause: str
    nonce: int = 1


@dataclass(frozen=True, slots=True)
class Leave:
    """Leaver to all, until it has the closing VIEW."""

    view: int


@dataclass(frozen=True, slots=True)
class Block:
    """Initiator to all: run your block callback; START with this attempt follows."""

    view: int
    attempt: Attempt
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockOk:
    """Survivor to initiator: my block callback returned or timed out, or there is none."""

    view: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Start:
    """Initiator to all: close view ``view`` with these survivors (leavers are survivors)."""

    view: int
    attempt: Attempt
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ok:
    """Survivor to initiator: my gate is closed after ``last``; what I hold, by rank; whether I lack the state.

    Args:
        lacks: the members that I have passed over; None: I have the state, or take no part.
        accepted: of a primary partition: the highest attempt that I answered with DONE; ACCEPTED says what it was.
    """

    view: int
    attempt: Attempt
    last: int
    held: tuple[Held, ...]
    lacks: tuple[int, ...] | None = None
    accepted: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Promised:
    """Member to initiator: I promised another attempt; or you are too few and left me out, and I am alive."""

    view: int
    attempt: Attempt
    promise: Attempt


@dataclass(frozen=True, slots=True)
class Cut:
    """Initiator to all: the last seqno of each stream, and the holders of missing ranges."""

    view: int
    attempt: Attempt
    cut: tuple[int, ...]
    fetch: tuple[Fetch, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Survivor to initiator: I hold everything up to the cut, and deliver nothing until VIEW."""

    view: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class NewView:
    """The VIEW frame, identical for all.

    Args:
        closes: the view that it closes; None for the first view of a group.
        attempt: under which it is sent.
        answers: it is served in answer to a START of this attempt, by a member that has left that view already.
        survivors: who took part in the cut: members and leavers.
        view_id, members: of the new view; no members: everyone left.
        order: as given to ``join``.
        mechanism, sequencer: by which number of ``core/orders`` the order comes about, and which rank orders.
        cut, table: by rank of the closed view: the last seqno of each stream, and the received table at it.
        base, origin_base: by rank of the new view, where each stream and each sender's own numbering go on.
        window, forward_window, unicast_window, state_window: charged bytes of each stream.
        packet_bytes: size of a full packet.
        providers: of the members that lack the state.
        subgroups: of a merged view, else none.
        shortfalls: of a merged view, or one with joiners: what some of its members did not deliver of others.
        departed: of a view with joiners: incarnations that were in a view and are no more (E-06), newest last.
        history: of the group, up to the beginning of the view; see ``core/rules/history.py``.
    """

    closes: ViewId | None
    attempt: Attempt
    answers: Attempt | None
    survivors: tuple[int, ...]
    view_id: ViewId
    members: tuple[MemberInfo, ...]
    order: str
    mechanism: int
    sequencer: int
    cut: tuple[int, ...]
    table: tuple[int, ...]
    base: tuple[int, ...]
    origin_base: tuple[int, ...]
    window: int
    forward_window: int
    unicast_window: int
    state_window: int
    packet_bytes: int
    providers: tuple[Provision, ...] = ()
    subgroups: tuple[Subgroup, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    departed: tuple[int, ...] = ()
    history: int = 0

    def has(self, member_id: int) -> bool:
        return any(info.id == member_id for info in self.members)


@dataclass(frozen=True, slots=True)
class Propose:
    """Initiator to all, with its CUT, in a primary partition: DONE accepts this VIEW; ``table`` is filled in then."""

    view: int
    attempt: Attempt
    proposal: NewView


@dataclass(frozen=True, slots=True)
class Accepted:
    """Survivor to initiator, with its OK: the VIEW that I accepted last, under this attempt; propose it again."""

    view: int
    attempt: Attempt
    under: Attempt
    proposal: NewView


@dataclass(frozen=True, slots=True)
class Installed:
    """Member to the sender of the VIEW: I have it. ``view`` is the tag of the new view."""

    view: int


@dataclass(frozen=True, slots=True)
class Declined:
    """Joiner to the sender of a VIEW: I entered a view of another group, and will not enter ``view`` (its tag)."""

    view: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Pause owner to all: run your callback, stop sending, or fetch everything up to the cut. Renews the lease."""

    view: int
    pause: int
    turn: int
    phase: str
    cut: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Suspended:
    """Member to pause owner: acknowledges the SUSPEND of this turn; after "stop": what I hold, by rank."""

    view: int
    pause: int
    turn: int
    phase: str
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Pause owner to all: resume. Repeated until all have acknowledged it."""

    view: int
    pause: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Member to pause owner: I have resumed, as you said, by myself, or because a view change begins."""

    view: int
    pause: int


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Member that lacks the state to all: my provider cannot give it, name another. Repeated until a VIEW does."""

    view: int


@dataclass(frozen=True, slots=True)
class Beacon:
    """Acting coordinator to all, periodically: this view is alive. Views that hear each other learn of each other.

    ``primary``: of a primary partition: how many members are not doubted, 0 where those are no majority; else None.
    ``mechanism``: as in a VIEW.
    ``shared``: settings that are the same at all members, by name.
    ``history``: of the group, up to now; see ``core/rules/history.py``.
    """

    cluster: str
    order: str
    mechanism: int
    view_id: ViewId
    primary: int | None = None
    shared: tuple[tuple[str, str], ...] = ()
    history: int = 0


@dataclass(frozen=True, slots=True)
class Unblock:
    """Operator to all: which members are blocked as a minority? With ``side``: these continue without the others."""

    cluster: str
    request: int
    side: Side | None


@dataclass(frozen=True, slots=True)
class BlockedSide:
    """Blocked member to operator: I (``name``) am on this side; the names of its members, and of those it lacks.

    ``allowed``: the side may go on, as an operator said.
    """

    request: int
    side: Side
    name: str
    reached: tuple[str, ...]
    missing: tuple[str, ...]
    allowed: bool


@dataclass(frozen=True, slots=True)
class MergeAsk:
    """Leader of a merge to another coordinator: make your cut and hold it. Repeated; it renews the lease too."""

    merge: MergeId
    view: int


@dataclass(frozen=True, slots=True)
class MergeRefused:
    """Coordinator to leader: not now (another merge is under way, or it is no longer a coordinator)."""

    merge: MergeId


@dataclass(frozen=True, slots=True)
class MergeReady:
    """Coordinator to leader: my subgroup has made its cut and holds it; ``view`` is what it would install alone."""

    merge: MergeId
    view: NewView
    shortfalls: tuple[Shortfall, ...]


@dataclass(frozen=True, slots=True)
class MergeGo:
    """Leader to each coordinator that is ready: the merged view, without what it closes in your subgroup."""

    merge: MergeId
    view: NewView


@dataclass(frozen=True, slots=True)
class MergeTaken:
    """Coordinator to leader: the merged view is being installed in my subgroup."""

    merge: MergeId


@dataclass(frozen=True, slots=True)
class MergeCancel:
    """Leader to coordinator: no merge; continue alone. ``reason`` is empty if there is nothing to fix."""

    merge: MergeId
    reason: str


Merging = MergeAsk | MergeRefused | MergeReady | MergeGo | MergeTaken | MergeCancel
Frame = (
    Join
    | OtherVersion
    | Wait
    | Refused
    | Leave
    | Block
    | BlockOk
    | Start
    | Ok
    | Promised
    | Cut
    | Propose
    | Accepted
    | Done
    | NewView
    | Installed
    | Declined
    | StateWanted
    | Beacon
    | Unblock
    | BlockedSide
    | Merging
    | Suspend
    | Suspended
    | Resume
    | Resumed
)


# ---- shapes ----------------------------------------------------------------------------------------------------

SEQNO_MAX = 1 << 62
"""As on the wire (SC_SEQNO_MAX), so that sums of seqnos do not wrap in the engine."""
_SEQNO = integer("seqno", 0, SEQNO_MAX)
_COUNT = integer("count", 0, (1 << 53) - 1)
_BYTES = integer("bytes", 1, (1 << 53) - 1)
_PACKET_BYTES = integer("bytes, 512 to 65000", 512, 65_000)
_RANK = integer("rank", 0, MEMBERS_MAX - 1)
_HISTORY = integer("0, 1 or 2", 0, 2)
_NAME = text(NAME_BYTES_MAX)
_ORDER = text(32)
_MECHANISM = integer("0 to 255", 0, 255)
_PHASE = choice("block", "stop", "hold")
_ATTEMPT = record(lambda *parts: tuple(parts), ("attempt", "rank"), _COUNT, _RANK)
_PROMISE = record(lambda *parts: tuple(parts), ("attempt", "rank"), _COUNT, integer("rank or -1", -1, MEMBERS_MAX - 1))
_FLUSH = record(lambda *parts: tuple(parts), ("attempt", "initiator"), _COUNT, ID)
_VIEW_ID = Shape(
    "[counter, coordinator, [attempt, initiator]]",
    lambda value: [value.counter, ID.dump(value.coordinator), _FLUSH.dump(value.flush)],
    record(ViewId, ("counter", "coordinator", "flush"), _COUNT, ID, _FLUSH).load,
)
_INFO_NAMES = ("name", "id", "address", "capacity", "packet_bytes", "window_bytes", "gro", "state", "blocks")
_INFO_ITEMS = (_NAME, ID, ADDRESS, _BYTES, _PACKET_BYTES, _BYTES, FLAG, FLAG, FLAG)
_INFO = Shape(
    f"[{', '.join(_INFO_NAMES)}]",
    lambda value: [item.dump(getattr(value, name)) for name, item in zip(_INFO_NAMES, _INFO_ITEMS, strict=True)],
    record(MemberInfo, _INFO_NAMES, *_INFO_ITEMS).load,
)
_RANGE = record(lambda *parts: tuple(parts), ("lo", "hi"), _SEQNO, _SEQNO)
_HELD = record(Held, ("prefix", "ranges"), _SEQNO, listed(_RANGE, RANGES_MAX))
_FETCH = record(Fetch, ("rank", "lo", "hi", "holder"), _RANK, _SEQNO, _SEQNO, _RANK)
_PROVISION = record(Provision, ("joiner", "provider", "boundary"), ID, ID, ID)
_SETTING = record(lambda *parts: tuple(parts), ("name", "value"), text(64), text(64))
_SIDE = record(Side, ("view", "attempt"), ID, _ATTEMPT)
_IDS = listed(ID, MEMBERS_MAX)
_SEQNOS = listed(_SEQNO, MEMBERS_MAX)

_MERGE = record(lambda *parts: tuple(parts), ("leader", "number"), ID, _COUNT)
_SUBGROUPS = listed(record(Subgroup, ("view_id", "ids"), _VIEW_ID, _IDS), SUBGROUPS_MAX)
_SHORTFALLS = listed(
    record(Shortfall, ("view", "successor", "member", "last"), ID, _VIEW_ID, ID, _SEQNO), SHORTFALLS_MAX
)


def _view_dump(value: NewView) -> dict[str, Any]:
    return {name: shape.dump(getattr(value, name)) for name, shape in _VIEW.items()}


def _view_load(value: Any) -> NewView:
    need(isinstance(value, dict) and value.keys() == _VIEW.keys(), "a VIEW's fields expected")
    frame = NewView(**{name: shape.load(value[name]) for name, shape in _VIEW.items()})
    _check_view(frame)
    return frame


_NESTED = Shape("an object with the fields of `view`", _view_dump, _view_load)
_VIEW: dict[str, Shape] = {
    "closes": optional(_VIEW_ID),
    "attempt": _ATTEMPT,
    "answers": optional(_ATTEMPT),
    "survivors": _IDS,
    "view_id": _VIEW_ID,
    "members": listed(_INFO, MEMBERS_MAX),
    "order": _ORDER,
    "mechanism": _MECHANISM,
    "sequencer": integer("rank or -1", -1, MEMBERS_MAX - 1),
    "cut": _SEQNOS,
    "table": _SEQNOS,
    "base": _SEQNOS,
    "origin_base": _SEQNOS,
    "window": _BYTES,
    "forward_window": _BYTES,
    "unicast_window": _BYTES,
    "state_window": _BYTES,
    "packet_bytes": _PACKET_BYTES,
    "providers": listed(_PROVISION, MEMBERS_MAX),
    "subgroups": _SUBGROUPS,
    "shortfalls": _SHORTFALLS,
    "departed": _IDS,
    "history": _HISTORY,
}

SHAPES: dict[str, tuple[type[Any], dict[str, Shape]]] = {
    "join": (
        Join,
        {
            "version": _COUNT,
            "cluster": text(255),
            "order": _ORDER,
            "mechanisms": listed(_MECHANISM, MECHANISMS_MAX),
            "info": _INFO,
            "tries": _COUNT,
            "shared": listed(_SETTING, SHARED_MAX),
            "nonce": ID,
        },
    ),
    "wait": (Wait, {"view": ID, "blocked": prose(WAIT_BYTES_MAX, 0), "nonce": ID}),
    "refused": (Refused, {"reason": prose(1000), "cause": choice(*REFUSALS), "nonce": ID}),
    "leave": (Leave, {"view": ID}),
    "block": (Block, {"view": ID, "attempt": _ATTEMPT, "survivors": _IDS}),
    "block_ok": (BlockOk, {"view": ID, "attempt": _ATTEMPT}),
    "start": (Start, {"view": ID, "attempt": _ATTEMPT, "survivors": _IDS}),
    "ok": (
        Ok,
        {
            "view": ID,
            "attempt": _ATTEMPT,
            "last": _SEQNO,
            "held": listed(_HELD, MEMBERS_MAX),
            "lacks": optional(_IDS),
            "accepted": optional(_ATTEMPT),
        },
    ),
    "promised": (Promised, {"view": ID, "attempt": _ATTEMPT, "promise": _PROMISE}),
    "cut": (Cut, {"view": ID, "attempt": _ATTEMPT, "cut": _SEQNOS, "fetch": listed(_FETCH, FETCH_MAX)}),
    "done": (Done, {"view": ID, "attempt": _ATTEMPT}),
    "view": (NewView, _VIEW),
    "propose": (Propose, {"view": ID, "attempt": _ATTEMPT, "proposal": _NESTED}),
    "accepted": (Accepted, {"view": ID, "attempt": _ATTEMPT, "under": _ATTEMPT, "proposal": _NESTED}),
    "installed": (Installed, {"view": ID}),
    "declined": (Declined, {"view": ID}),
    "suspend": (
        Suspend,
        {"view": ID, "pause": _COUNT, "turn": _COUNT, "phase": _PHASE, "cut": _SEQNOS},
    ),
    "suspended": (
        Suspended,
        {"view": ID, "pause": _COUNT, "turn": _COUNT, "phase": _PHASE, "held": _SEQNOS},
    ),
    "resume": (Resume, {"view": ID, "pause": _COUNT}),
    "resumed": (Resumed, {"view": ID, "pause": _COUNT}),
    "state_wanted": (StateWanted, {"view": ID}),
    "beacon": (
        Beacon,
        {
            "cluster": text(255),
            "order": _ORDER,
            "mechanism": _MECHANISM,
            "view_id": _VIEW_ID,
            "primary": optional(integer("count", 0, MEMBERS_MAX)),
            "shared": listed(_SETTING, SHARED_MAX),
            "history": _HISTORY,
        },
    ),
    "unblock": (Unblock, {"cluster": text(255), "request": _COUNT, "side": optional(_SIDE)}),
    "blocked": (
        BlockedSide,
        {
            "request": _COUNT,
            "side": _SIDE,
            "name": _NAME,
            "reached": listed(_NAME, MEMBERS_MAX),
            "missing": listed(_NAME, MEMBERS_MAX),
            "allowed": FLAG,
        },
    ),
    "merge_ask": (MergeAsk, {"merge": _MERGE, "view": ID}),
    "merge_refused": (MergeRefused, {"merge": _MERGE}),
    "merge_ready": (MergeReady, {"merge": _MERGE, "view": _NESTED, "shortfalls": _SHORTFALLS}),
    "merge_go": (MergeGo, {"merge": _MERGE, "view": _NESTED}),
    "merge_taken": (MergeTaken, {"merge": _MERGE}),
    "merge_cancel": (MergeCancel, {"merge": _MERGE, "reason": prose(1000, 0)}),
}
_KINDS = {make: kind for kind, (make, _) in SHAPES.items()}


def dump(frame: Frame) -> bytes:
    """The bytes of a frame.

    Raises:
        AssertionError: it is longer than ``FRAME_BYTES_MAX``; the bounds of the shapes exclude that.
    """
    kind = _KINDS[type(frame)]
    value = {"kind": kind}
    value.update((name, shape.dump(getattr(frame, name))) for name, shape in SHAPES[kind][1].items())
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    assert len(data) <= FRAME_BYTES_MAX, f"{kind} frame of {len(data)} bytes"
    return data


def load(data: bytes) -> Frame:
    """Reads and checks a frame.

    Raises:
        RemoteProtocolError: not a frame, or a field is missing, unknown or out of its bounds.
    """
    need(len(data) <= FRAME_BYTES_MAX, f"longer than {FRAME_BYTES_MAX} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"control frame: not JSON: {error}") from None
    need(isinstance(value, dict), "not an object")
    kind = value.pop("kind", None)
    need(isinstance(kind, str) and kind in SHAPES, "unknown kind")
    version = value.get("version")
    if kind == "join" and type(version) is int and version != PROTOCOL_VERSION:
        try:
            return OtherVersion(version, ID.load(value.get("nonce")))
        except RemoteProtocolError:
            return OtherVersion(version)
    make, shapes = SHAPES[kind]
    need(value.keys() == shapes.keys(), f"{kind}: fields {', '.join(shapes)} expected")
    frame: Frame = make(**{name: shape.load(value[name]) for name, shape in shapes.items()})
    if isinstance(frame, NewView):
        _check_view(frame)
    elif isinstance(frame, Ok):
        for held in frame.held:
            last = held.prefix
            for lo, hi in held.ranges:
                need(last < lo <= hi, "ranges out of order")
                last = hi
    elif isinstance(frame, Cut):
        ranks = range(len(frame.cut))
        need(all(f.rank in ranks and f.holder in ranks and 0 < f.lo <= f.hi for f in frame.fetch), "fetch of no rank")
    return frame


def _check_view(frame: NewView) -> None:
    count = len(frame.members)
    need(len({info.id for info in frame.members}) == count, "a member twice")
    need(len({info.name for info in frame.members}) == count, "a name twice")
    need(len(frame.base) == len(frame.origin_base) == count, "base is not by rank")
    mechanism = orders.by_number(frame.mechanism)
    need(mechanism is not None, f"this release does not know order {frame.mechanism}")
    assert mechanism is not None
    need(mechanism.serves(frame.order), f"{mechanism.name} does not bring about order {frame.order!r}")
    need(mechanism.allows(frame.sequencer, max(count, 1)), f"a sequencer that {mechanism.name} cannot have")
    need(512 <= frame.packet_bytes <= 65_000 and frame.packet_bytes % 4 == 0, "packet_bytes that no stream can have")
    need(not count or frame.view_id.coordinator == frame.members[0].id, "the coordinator has not rank 0")
    members = {info.id for info in frame.members}
    joiners = [provision.joiner for provision in frame.providers]
    need(len(set(joiners)) == len(joiners) and members.issuperset(joiners), "a provider for no member, or two")
    need(all(provision.provider in members - {provision.joiner} for provision in frame.providers), "no such provider")
    need(frame.closes is None or frame.closes.counter < frame.view_id.counter, "view id does not grow")
    need(len(frame.cut) == len(frame.table), "cut and received table are not of one view")
    ids = {info.id for info in frame.members}
    grouped = [member for group in frame.subgroups for member in group.ids]
    need(
        not frame.subgroups or (len(grouped) == len(set(grouped)) and ids == set(grouped)),
        "subgroups are not the members",
    )
    need(all(group.ids for group in frame.subgroups), "a subgroup without members")
