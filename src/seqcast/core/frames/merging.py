"""The frames by which separate views find each other and merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from seqcast.core.frames.codec import integer, prose
from seqcast.core.frames.fields import (
    PROTOCOL_OLDEST,
    PROTOCOL_VERSION,
    Addresses,
    Cluster,
    HistoryField,
    Id,
    KeyIds,
    Mechanism,
    MergeId,
    OrderName,
    Shared,
    Speaks,
    ViewIdField,
)
from seqcast.core.frames.joining import NOBODY
from seqcast.core.frames.traits import control
from seqcast.core.frames.view import ITSELF, Nested, Shortfalls
from seqcast.types import MEMBERS_MAX


@control("beacon", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class Beacon:
    """Acting coordinator to all, periodically: this view is alive. Separate views discover each other by this frame.

    ``primary``: of a primary partition: how many members are not doubted, 0 if they are not a majority; else None.
    ``mechanism``: as in a VIEW. ``shared``: settings that must be the same on every member, by name. ``history``: of
    the group, up to now; see ``core/rules/history.py``. ``members``: without multicast: addresses of some members of
    the view, first of its sender. ``nonce``: of its sender: an answer about the sender's address carries the nonce, and
    so shows that the beacon was heard.
    ``speaks``: the oldest and the newest protocol version that all members of the view speak. ``root``: of a primary
    partition, the lineage of its view; see `NewView`. ``answers``: as in a JOIN. ``opens``: with a key, ids of those
    that all members of the view open.
    """

    cluster: Cluster
    order: OrderName
    mechanism: Mechanism
    view_id: ViewIdField
    primary: Annotated[int, integer("count", 0, MEMBERS_MAX)] | None = None
    shared: Shared = ()
    history: HistoryField = 0
    members: Addresses = ()
    nonce: Id = 1
    speaks: Speaks = (PROTOCOL_OLDEST, PROTOCOL_VERSION)
    root: Id = ITSELF
    answers: Id = NOBODY
    opens: KeyIds = ()


@control("met", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class Met:
    """Member to one heard by it, or to its own view, without multicast: there are processes of this cluster at these
    addresses."""

    members: Addresses


@control("merge_ask", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeAsk:
    """Leader of a merge to another coordinator: make and hold your cut. Repeated; also renews the lease."""

    merge: MergeId
    view: Id


@control("merge_refused", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeRefused:
    """Coordinator to leader: not now (another merge is under way, or I am no longer a coordinator)."""

    merge: MergeId


@control("merge_ready", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeReady:
    """Coordinator to leader: my subgroup has made and holds its cut; ``view`` is its own VIEW if alone."""

    merge: MergeId
    view: Nested
    shortfalls: Shortfalls


@control("merge_go", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeGo:
    """Leader to each coordinator that is ready: the merged view, without the fields that close your subgroup's view."""

    merge: MergeId
    view: Nested


@control("merge_taken", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeTaken:
    """Coordinator to leader: the merged view is being installed in my subgroup."""

    merge: MergeId


@control("merge_cancel", "merge", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class MergeCancel:
    """Leader to coordinator: no merge; continue alone. ``reason`` is empty if there is nothing to fix."""

    merge: MergeId
    reason: Annotated[str, prose(1000, 0)]


MergeFrame = MergeAsk | MergeRefused | MergeReady | MergeGo | MergeTaken | MergeCancel
Merging = Beacon | Met | MergeFrame
