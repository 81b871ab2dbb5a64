"""The control frames: JSON objects with a ``kind`` and declared fields, checked in full before use.

Every frame is idempotent and repeated until it is answered, so frames need no reliability below them. A frame that does
not have its declared shape raises ``RemoteProtocolError``; the endpoint counts and drops it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from seqcast.errors import RemoteProtocolError
from seqcast.types import Member, ViewId

PROTOCOL_VERSION = 1
"""Version of these frames and of the rules behind them; a joiner of another version is refused."""
FRAME_BYTES_MAX = 60_000
MEMBERS_MAX = 128
NAME_BYTES_MAX = 128
RANGES_MAX = 64
"""Ranges a member reports of a lost member's stream; naming fewer than it holds is safe, it only shortens the cut."""
RANGES_ALL_MAX = 1000
"""And of all streams of lost members together."""
FETCH_MAX = 900
SHARED_MAX = 32
SUBGROUPS_MAX = 16
SHORTFALLS_MAX = 48
"""Shortfalls that one frame carries; of older ones nobody is told any more."""
ORDERS = ("fifo", "sequencer", "total")

Attempt = tuple[int, int]
"""Id of one attempt to close a view: (attempt, rank of the initiator). Totally ordered (the cut, step 1)."""


MergeId = tuple[int, int]
"""Id of one merge: (id of its leader, number). Made by the leader after the election alone (E-11)."""


class Held(NamedTuple):
    """What a member holds of one stream: the end of the prefix, and the ranges beyond it."""

    prefix: int
    ranges: tuple[tuple[int, int], ...] = ()


class Fetch(NamedTuple):
    """A range of one stream, and who has it. Streams and holders are ranks of the closing view."""

    rank: int
    lo: int
    hi: int
    holder: int


class Provision(NamedTuple):
    """Who gives the state to a member that lacks it, by id, and at the beginning of which view (its tag)."""

    joiner: int
    provider: int
    boundary: int


class Subgroup(NamedTuple):
    """A view that was merged, and the ids of its members that came along."""

    view_id: ViewId
    ids: tuple[int, ...]


class Shortfall(NamedTuple):
    """Who went on from ``view`` (its tag) to ``successor`` delivered of ``member``'s packets up to ``last`` only."""

    view: int
    successor: ViewId
    member: int
    last: int


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What a member tells of itself in its JOIN, and the VIEW tells everyone.

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
        shared: settings that are the same at all members, by name.
    """

    version: int
    cluster: str
    order: str
    info: MemberInfo
    tries: int
    shared: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A JOIN of another protocol version; only its version is understood."""

    version: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Member to joiner: a group exists, do not form one."""

    view: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Coordinator to joiner: you cannot be taken in, and why; ``again``: a new incarnation can. In all versions."""

    reason: str
    again: bool


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
    """Survivor to initiator: my block callback returned, or there is none, or it is waited for no longer."""

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
    """Survivor to initiator: my gate is closed after ``last``; this I hold, by rank; I lack the state, or null.

    ``lacks``: the members that I have passed over; None: I have the state, or take no part.
    """

    view: int
    attempt: Attempt
    last: int
    held: tuple[Held, ...]
    lacks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Promised:
    """Survivor to initiator: your attempt is below the one I promised."""

    view: int
    attempt: Attempt
    promise: Attempt


@dataclass(frozen=True, slots=True)
class Cut:
    """Initiator to all: the last seqno of each stream, and who holds what somebody lacks."""

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
        view_id, members, order, sequencer: the new view; no members: everyone left.
        cut, table: by rank of the closed view: the last seqno of each stream, and the received table at it.
        base, origin_base: by rank of the new view, where each stream and each sender's own numbering go on.
        window, forward_window, unicast_window, state_window: charged bytes of each stream.
        packet_bytes: size of a full packet.
        providers: of the members that lack the state.
        subgroups: of a merged view, else none.
        shortfalls: of a merged view: what some of its members did not deliver of others.
    """

    closes: ViewId | None
    attempt: Attempt
    answers: Attempt | None
    survivors: tuple[int, ...]
    view_id: ViewId
    members: tuple[MemberInfo, ...]
    order: str
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

    def has(self, member_id: int) -> bool:
        return any(info.id == member_id for info in self.members)


@dataclass(frozen=True, slots=True)
class Installed:
    """Member to whoever sent the VIEW: I have it. ``view`` is the tag of the new view."""

    view: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Who pauses the group to all: run your callback, send no more, or have all up to the cut. Renews the lease."""

    view: int
    pause: int
    turn: int
    phase: str
    cut: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Suspended:
    """Member to who pauses the group: done, by the SUSPEND of this turn; after "stop": this I hold, by rank."""

    view: int
    pause: int
    turn: int
    phase: str
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Who paused the group to all: go on. Repeated until all have said so."""

    view: int
    pause: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Member to who pauses the group: I go on, as you said, by myself, or because a view change begins."""

    view: int
    pause: int


@dataclass(frozen=True, slots=True)
class StateWanted:
    """Member that lacks the state to all: my provider cannot give it, name another. Repeated until a VIEW does."""

    view: int


@dataclass(frozen=True, slots=True)
class Beacon:
    """Acting coordinator to all, periodically: this view lives. Other views learn so that there are several."""

    cluster: str
    order: str
    view_id: ViewId


@dataclass(frozen=True, slots=True)
class MergeAsk:
    """Leader of a merge to another coordinator: make your cut, and hold it. Repeated; it renews the lease too."""

    merge: MergeId
    view: int


@dataclass(frozen=True, slots=True)
class MergeRefused:
    """Coordinator to leader: not now (another merge is under way, or it is no coordinator any more)."""

    merge: MergeId


@dataclass(frozen=True, slots=True)
class MergeReady:
    """Coordinator to leader: my subgroup is cut and holds; ``view`` is what it would install alone."""

    merge: MergeId
    view: NewView
    shortfalls: tuple[Shortfall, ...]


@dataclass(frozen=True, slots=True)
class MergeGo:
    """Leader to each coordinator that is ready: the merged view, but for what it closes in your subgroup."""

    merge: MergeId
    view: NewView


@dataclass(frozen=True, slots=True)
class MergeTaken:
    """Coordinator to leader: the merged view is being installed in my subgroup."""

    merge: MergeId


@dataclass(frozen=True, slots=True)
class MergeCancel:
    """Leader to coordinator: no merge; go on alone. ``reason`` is empty where there is nothing to mend."""

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
    | Done
    | NewView
    | Installed
    | StateWanted
    | Beacon
    | Merging
    | Suspend
    | Suspended
    | Resume
    | Resumed
)


# ---- shapes ----------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """How one field is written, and how it is read and checked."""

    text: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise RemoteProtocolError(f"control frame: {what}")


def _integer(text: str, lowest: int, highest: int) -> Shape:
    def load(value: Any) -> int:
        _need(type(value) is int and lowest <= value <= highest, f"{text} expected")
        return int(value)

    return Shape(text, lambda value: value, load)


_HEX = frozenset("0123456789abcdef")


def _load_id(value: Any) -> int:
    _need(isinstance(value, str) and 0 < len(value) <= 16 and _HEX.issuperset(value), "64-bit id in hex expected")
    number = int(value, 16)
    _need(number > 0, "0 is no id")
    return number


def _text(bytes_max: int, bytes_min: int = 1) -> Shape:
    def load(value: Any) -> str:
        _need(isinstance(value, str), "text expected")
        written = json.dumps(value, ensure_ascii=False).encode(
            "utf-8", "replace"
        )  # as a frame that passes it on has it
        _need(bytes_min <= len(written) - 2 <= bytes_max, "text expected")
        return str(value)

    return Shape(f"text of at most {bytes_max} bytes", lambda value: value, load)


def _load_address(value: Any) -> bytes:
    _need(isinstance(value, str) and 2 <= len(value) <= 56 and len(value) % 2 == 0, "address in hex expected")
    _need(_HEX.issuperset(value), "address in hex expected")
    return bytes.fromhex(value)


def _load_flag(value: Any) -> bool:
    _need(isinstance(value, bool), "true or false expected")
    return bool(value)


def _choice(*values: str) -> Shape:
    def load(value: Any) -> str:
        _need(isinstance(value, str) and value in values, f"one of {', '.join(values)} expected")
        return str(value)

    return Shape(" or ".join(values), lambda value: value, load)


def _list(item: Shape, most: int) -> Shape:
    def load(value: Any) -> tuple[Any, ...]:
        _need(isinstance(value, list) and len(value) <= most, f"list of at most {most} expected")
        return tuple(item.load(entry) for entry in value)

    return Shape(f"list of at most {most} × {item.text}", lambda value: [item.dump(entry) for entry in value], load)


def _record(make: Callable[..., Any], names: tuple[str, ...], *items: Shape) -> Shape:
    def load(value: Any) -> Any:
        _need(isinstance(value, list) and len(value) == len(items), f"[{', '.join(names)}] expected")
        return make(*(item.load(entry) for item, entry in zip(items, value, strict=True)))

    def dump(value: Any) -> list[Any]:
        return [item.dump(entry) for item, entry in zip(items, value, strict=True)]

    return Shape(f"[{', '.join(names)}]", dump, load)


def _optional(item: Shape) -> Shape:
    return Shape(
        f"{item.text}, or null",
        lambda value: None if value is None else item.dump(value),
        lambda value: None if value is None else item.load(value),
    )


_SEQNO = _integer("seqno", 0, (1 << 63) - 1)
_COUNT = _integer("count", 0, (1 << 53) - 1)
_BYTES = _integer("bytes", 1, (1 << 53) - 1)
_PACKET_BYTES = _integer("bytes, 512 to 65000", 512, 65_000)
_RANK = _integer("rank", 0, MEMBERS_MAX - 1)
_ID = Shape("64-bit id in hexadecimal", lambda value: f"{value:x}", _load_id)
_FLAG = Shape("true or false", lambda value: value, _load_flag)
_ADDRESS = Shape("address in hexadecimal", lambda value: value.hex(), _load_address)
_NAME = _text(NAME_BYTES_MAX)
_ORDER = _choice(*ORDERS)
_PHASE = _choice("block", "stop", "hold")
_ATTEMPT = _record(lambda *parts: tuple(parts), ("attempt", "rank"), _COUNT, _RANK)
_PROMISE = _record(
    lambda *parts: tuple(parts), ("attempt", "rank"), _COUNT, _integer("rank or -1", -1, MEMBERS_MAX - 1)
)
_FLUSH = _record(lambda *parts: tuple(parts), ("attempt", "initiator"), _COUNT, _ID)
_VIEW_ID = Shape(
    "[counter, coordinator, [attempt, initiator]]",
    lambda value: [value.counter, _ID.dump(value.coordinator), _FLUSH.dump(value.flush)],
    _record(ViewId, ("counter", "coordinator", "flush"), _COUNT, _ID, _FLUSH).load,
)
_INFO_NAMES = ("name", "id", "address", "capacity", "packet_bytes", "window_bytes", "gro", "state", "blocks")
_INFO_ITEMS = (_NAME, _ID, _ADDRESS, _BYTES, _PACKET_BYTES, _BYTES, _FLAG, _FLAG, _FLAG)
_INFO = Shape(
    f"[{', '.join(_INFO_NAMES)}]",
    lambda value: [item.dump(getattr(value, name)) for name, item in zip(_INFO_NAMES, _INFO_ITEMS, strict=True)],
    _record(MemberInfo, _INFO_NAMES, *_INFO_ITEMS).load,
)
_RANGE = _record(lambda *parts: tuple(parts), ("lo", "hi"), _SEQNO, _SEQNO)
_HELD = _record(Held, ("prefix", "ranges"), _SEQNO, _list(_RANGE, RANGES_MAX))
_FETCH = _record(Fetch, ("rank", "lo", "hi", "holder"), _RANK, _SEQNO, _SEQNO, _RANK)
_PROVISION = _record(Provision, ("joiner", "provider", "boundary"), _ID, _ID, _ID)
_SETTING = _record(lambda *parts: tuple(parts), ("name", "value"), _text(64), _text(64))
_IDS = _list(_ID, MEMBERS_MAX)
_SEQNOS = _list(_SEQNO, MEMBERS_MAX)

_MERGE = _record(lambda *parts: tuple(parts), ("leader", "number"), _ID, _COUNT)
_SUBGROUPS = _list(_record(Subgroup, ("view_id", "ids"), _VIEW_ID, _IDS), SUBGROUPS_MAX)
_SHORTFALLS = _list(
    _record(Shortfall, ("view", "successor", "member", "last"), _ID, _VIEW_ID, _ID, _SEQNO), SHORTFALLS_MAX
)


def _view_dump(value: NewView) -> dict[str, Any]:
    return {name: shape.dump(getattr(value, name)) for name, shape in _VIEW.items()}


def _view_load(value: Any) -> NewView:
    _need(isinstance(value, dict) and value.keys() == _VIEW.keys(), "a VIEW's fields expected")
    frame = NewView(**{name: shape.load(value[name]) for name, shape in _VIEW.items()})
    _check_view(frame)
    return frame


_NESTED = Shape("an object with the fields of `view`", _view_dump, _view_load)
_VIEW: dict[str, Shape] = {
    "closes": _optional(_VIEW_ID),
    "attempt": _ATTEMPT,
    "answers": _optional(_ATTEMPT),
    "survivors": _IDS,
    "view_id": _VIEW_ID,
    "members": _list(_INFO, MEMBERS_MAX),
    "order": _ORDER,
    "sequencer": _integer("rank or -1", -1, MEMBERS_MAX - 1),
    "cut": _SEQNOS,
    "table": _SEQNOS,
    "base": _SEQNOS,
    "origin_base": _SEQNOS,
    "window": _BYTES,
    "forward_window": _BYTES,
    "unicast_window": _BYTES,
    "state_window": _BYTES,
    "packet_bytes": _PACKET_BYTES,
    "providers": _list(_PROVISION, MEMBERS_MAX),
    "subgroups": _SUBGROUPS,
    "shortfalls": _SHORTFALLS,
}

SHAPES: dict[str, tuple[type[Any], dict[str, Shape]]] = {
    "join": (
        Join,
        {
            "version": _COUNT,
            "cluster": _text(255),
            "order": _ORDER,
            "info": _INFO,
            "tries": _COUNT,
            "shared": _list(_SETTING, SHARED_MAX),
        },
    ),
    "wait": (Wait, {"view": _ID}),
    "refused": (Refused, {"reason": _text(1000), "again": _FLAG}),
    "leave": (Leave, {"view": _ID}),
    "block": (Block, {"view": _ID, "attempt": _ATTEMPT, "survivors": _IDS}),
    "block_ok": (BlockOk, {"view": _ID, "attempt": _ATTEMPT}),
    "start": (Start, {"view": _ID, "attempt": _ATTEMPT, "survivors": _IDS}),
    "ok": (
        Ok,
        {
            "view": _ID,
            "attempt": _ATTEMPT,
            "last": _SEQNO,
            "held": _list(_HELD, MEMBERS_MAX),
            "lacks": _optional(_IDS),
        },
    ),
    "promised": (Promised, {"view": _ID, "attempt": _ATTEMPT, "promise": _PROMISE}),
    "cut": (Cut, {"view": _ID, "attempt": _ATTEMPT, "cut": _SEQNOS, "fetch": _list(_FETCH, FETCH_MAX)}),
    "done": (Done, {"view": _ID, "attempt": _ATTEMPT}),
    "view": (NewView, _VIEW),
    "installed": (Installed, {"view": _ID}),
    "suspend": (
        Suspend,
        {"view": _ID, "pause": _COUNT, "turn": _COUNT, "phase": _PHASE, "cut": _SEQNOS},
    ),
    "suspended": (
        Suspended,
        {"view": _ID, "pause": _COUNT, "turn": _COUNT, "phase": _PHASE, "held": _SEQNOS},
    ),
    "resume": (Resume, {"view": _ID, "pause": _COUNT}),
    "resumed": (Resumed, {"view": _ID, "pause": _COUNT}),
    "state_wanted": (StateWanted, {"view": _ID}),
    "beacon": (Beacon, {"cluster": _text(255), "order": _ORDER, "view_id": _VIEW_ID}),
    "merge_ask": (MergeAsk, {"merge": _MERGE, "view": _ID}),
    "merge_refused": (MergeRefused, {"merge": _MERGE}),
    "merge_ready": (MergeReady, {"merge": _MERGE, "view": _NESTED, "shortfalls": _SHORTFALLS}),
    "merge_go": (MergeGo, {"merge": _MERGE, "view": _NESTED}),
    "merge_taken": (MergeTaken, {"merge": _MERGE}),
    "merge_cancel": (MergeCancel, {"merge": _MERGE, "reason": _text(1000, 0)}),
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
    _need(len(data) <= FRAME_BYTES_MAX, f"longer than {FRAME_BYTES_MAX} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"control frame: not JSON: {error}") from None
    _need(isinstance(value, dict), "not an object")
    kind = value.pop("kind", None)
    _need(isinstance(kind, str) and kind in SHAPES, "unknown kind")
    version = value.get("version")
    if kind == "join" and type(version) is int and version != PROTOCOL_VERSION:
        return OtherVersion(version)
    make, shapes = SHAPES[kind]
    _need(value.keys() == shapes.keys(), f"{kind}: fields {', '.join(shapes)} expected")
    frame: Frame = make(**{name: shape.load(value[name]) for name, shape in shapes.items()})
    if isinstance(frame, NewView):
        _check_view(frame)
    elif isinstance(frame, Ok):
        for held in frame.held:
            last = held.prefix
            for lo, hi in held.ranges:
                _need(last < lo <= hi, "ranges out of order")
                last = hi
    elif isinstance(frame, Cut):
        ranks = range(len(frame.cut))
        _need(all(f.rank in ranks and f.holder in ranks and 0 < f.lo <= f.hi for f in frame.fetch), "fetch of no rank")
    return frame


def _check_view(frame: NewView) -> None:
    count = len(frame.members)
    _need(len({info.id for info in frame.members}) == count, "a member twice")
    _need(len({info.name for info in frame.members}) == count, "a name twice")
    _need(len(frame.base) == len(frame.origin_base) == count, "base is not by rank")
    _need(frame.sequencer < max(count, 1), "sequencer of no rank")
    _need(512 <= frame.packet_bytes <= 65_000 and frame.packet_bytes % 4 == 0, "packet_bytes that no stream can have")
    _need(not count or frame.view_id.coordinator == frame.members[0].id, "the coordinator has not rank 0")
    members = {info.id for info in frame.members}
    joiners = [provision.joiner for provision in frame.providers]
    _need(len(set(joiners)) == len(joiners) and members.issuperset(joiners), "a provider for no member, or two")
    _need(all(provision.provider in members - {provision.joiner} for provision in frame.providers), "no such provider")
    _need(frame.closes is None or frame.closes.counter < frame.view_id.counter, "view id does not grow")
    _need(len(frame.cut) == len(frame.table), "cut and received table are not of one view")
    ids = {info.id for info in frame.members}
    grouped = [member for group in frame.subgroups for member in group.ids]
    _need(
        not frame.subgroups or (len(grouped) == len(set(grouped)) and ids == set(grouped)),
        "subgroups are not the members",
    )
    _need(all(group.ids for group in frame.subgroups), "a subgroup without members")
