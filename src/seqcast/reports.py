"""The engine's reports: made in ``_native/engine.pyx``, read by whoever drives an engine, and inputs of the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A control frame arrived, complete and undamaged; nothing else has been checked.

    Args:
        sender: id of the member or stranger that sent the frame.
        address: the sender's, as the datagram shows.
        payload: see ``frames``.
        outside: in a group with a key: its sender has the key file, and does not show that it is in a view of ours.
    """

    sender: int
    address: bytes
    payload: bytes
    outside: bool = False


Evidence = Literal["silence", "port", "guard"]
EVIDENCE: dict[Evidence, str] = {
    "silence": "it was silent: crashed, stopped or cut off",
    "port": "its port refuses datagrams: its process has ended",
    "guard": "its guard connection closed: its process has ended",
}
"""Why a member is suspected, in words for the log."""


@dataclass(frozen=True, slots=True)
class MemberSuspected:
    """A member is taken for dead."""

    member: int
    evidence: Evidence = "silence"


@dataclass(frozen=True, slots=True)
class MemberAlive:
    """A suspected member is heard again."""

    member: int


@dataclass(frozen=True, slots=True)
class LinksChanged:
    """The set of members that do not hear each other's multicasts, ``Engine.links``, changed."""


@dataclass(frozen=True, slots=True)
class WayChanged:
    """The group's traffic to a member takes another way from now on.

    Args:
        member: the other one.
        multicast: multicasts of this member are heard there again; else none are, by its report.
    """

    member: int
    multicast: bool


@dataclass(frozen=True, slots=True)
class StrangerHeard:
    """Heartbeats of the view with this tag, which is not ours, have come from this address for a long time."""

    tag: int
    address: bytes


@dataclass(frozen=True, slots=True)
class PacketsLost:
    """A packet of this member does not reach another one, however often that one asks for a repeat.

    Args:
        member: the other one.
        size: of the packet as a datagram, in bytes.
        took_ns: since the first repeat.
    """

    member: int
    size: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class PathsMeasured:
    """Packets of another size than the view's reach all members: the view's are too large, or could be larger.

    Args:
        member: to or from which no larger ones pass.
        size: of those packets, in bytes.
    """

    member: int
    size: int


@dataclass(frozen=True, slots=True)
class SlabsExhausted:
    """This member drops datagrams because all its receive buffers are in use."""


@dataclass(frozen=True, slots=True)
class MemberStarved:
    """Another member has reported this of itself for a long time."""

    member: int


@dataclass(frozen=True, slots=True)
class SendersHeld:
    """Senders wait for a receiver: those of this member, or, if the receiver is this member itself, those of others.

    Args:
        member: the receiver.
        how: the receiver is slower than most, takes nothing, or the wait is over.
        rate: bytes of this member's packets that a slow one takes per second; of this member itself, messages that its
            application takes per second.
        took_ns: how long the receiver has taken nothing, or, when this is over, how long the wait lasted.
    """

    member: int
    how: Literal["slow", "stuck", "over"]
    rate: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class SlowChanged:
    """The set of receivers that senders call too slow to stay, ``Engine.too_slow``, changed."""


@dataclass(frozen=True, slots=True)
class ForeignVersion:
    """A datagram of another wire version was dropped: reported for the first ones only."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """Datagrams for this cluster come from a place that does not seal them as this member does.

    Args:
        address: the place.
        how: they are sealed with another key; the place has none, and this member has one; or the reverse.
        sure: several came in a row; else a single one, which may be damaged.
    """

    address: bytes
    how: Literal["other", "lacks", "has"]
    sure: bool


@dataclass(frozen=True, slots=True)
class CutReached:
    """Everything up to the cut is here."""


@dataclass(frozen=True, slots=True)
class SendsDrained:
    """All messages that were accepted before the leave are ordered and acknowledged."""


@dataclass(frozen=True, slots=True)
class SecretWorn:
    """The secret of the view with this tag has sealed as many datagrams of this member as one secret should."""

    tag: int


Report = (
    FrameReceived
    | MemberSuspected
    | MemberAlive
    | LinksChanged
    | WayChanged
    | StrangerHeard
    | PacketsLost
    | PathsMeasured
    | SlabsExhausted
    | MemberStarved
    | SendersHeld
    | SlowChanged
    | ForeignVersion
    | OtherKey
    | CutReached
    | SecretWorn
    | SendsDrained
)
"""Returned by ``Engine.reports``."""
