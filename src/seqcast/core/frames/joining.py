"""The frames of joining and leaving a group."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from seqcast.core.frames.codec import choice, integer, list_of, need, prose, schema_of
from seqcast.core.frames.fields import (
    MECHANISM,
    PROTOCOL_OLDEST,
    Address,
    Addresses,
    Cluster,
    Count,
    Flag,
    Id,
    MemberInfo,
    OrderName,
    Reason,
    Shared,
    Version,
)
from seqcast.core.frames.traits import control
from seqcast.core.rules.cookies import NO_COOKIE
from seqcast.types import MEMBERS_MAX

REFUSALS = ("name", "settings", "version", "full", "incarnation", "identity")
"""Causes of a refusal; see ``Refused``."""
WAIT_BYTES_MAX = 1000
MECHANISMS_MAX = 64
NOBODY = 1
"""The vote of a JOIN that has none: no member has this id."""


VIEWS_MAX = 8
"""Views of which a member remembers how they followed each other."""


class Past(NamedTuple):
    """A view that was, as a member with ``stable=`` remembers: its tag and counter, the members with a vote, the tag
    of the view before (`NOBODY`: not known, or none), and whether the member had a vote in it."""

    view: Id
    counter: Count
    voters: Annotated[int, integer("voters", 1, MEMBERS_MAX)]
    closes: Id = NOBODY
    mine: Flag = False


_VIEWS = list_of(schema_of(Past), VIEWS_MAX)


def _load_views(value: Any) -> tuple[Past, ...]:
    views: tuple[Past, ...] = _VIEWS.load(value)
    tags = [NOBODY, *(past.view for past in views)]
    need(len(set(tags)) == len(tags), "a view twice, or one that is none")
    need(all(one.counter < other.counter for one, other in pairwise(views)), "counters of views that do not grow")
    return views


Views = Annotated[tuple[Past, ...], _VIEWS._replace(load=_load_views)]


class Was(NamedTuple):
    """The member that a joiner was before a restart: the counter and the tag of the last known view, and the id
    there; if the application keeps its state on disk, how far that goes: the counter of the last view there,
    and the position, from 1; and the last known views, from that one on, the newest last."""

    counter: Count
    view: Id
    member: Id
    reached: Count = 0
    position: Count = 0
    views: Views = ()


@control("join", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class Join:
    """Joiner to all: take me in. Repeated until a view has the joiner.

    Args:
        version: of the protocol, the newest that the joiner speaks. All versions find this one, ``oldest`` and
            ``nonce`` in their places.
        mechanisms: numbers of the orders' mechanisms that the joiner knows.
        shared: settings that must be the same on every member, by name.
        nonce: the answers carry it: a stranger that has not heard the JOIN cannot answer.
        founder: the joiner that is to form the first view, if there is no group. With ``found=N`` a founder needs N
            such votes.
        found: the joiner's setting; 0: the joiner founds no group, and votes for nobody.
        withdrawn: the last JOIN of a joiner that gives up, and founds nothing, so that the votes received are free
            again.
        cookie: with a key, that of the last WAIT; see ``core/rules/cookies.py``.
        oldest: version that the joiner speaks.
        hears: if multicast may not reach all: addresses of joiners that its sender hears, or some of them.
        was: with ``stable=``: the member before the restart. ``member`` is `NOBODY` without a vote in that view.
        answers: the number of the CHALLENGE that is answered; else `NOBODY`.
    """

    version: Version
    cluster: Cluster
    order: OrderName
    mechanisms: Annotated[tuple[int, ...], list_of(MECHANISM, MECHANISMS_MAX)]
    info: MemberInfo
    tries: Count
    shared: Shared = ()
    nonce: Id = 1
    founder: Id = NOBODY
    found: Count = 1
    withdrawn: Flag = False
    cookie: Id = NO_COOKIE
    hears: Addresses = ()
    was: Was | None = None
    oldest: Version = PROTOCOL_OLDEST
    answers: Id = NOBODY


@control("", outside=True)
@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A JOIN of a release that speaks no protocol version of ours; only its version is understood, and its nonce, if
    any."""

    version: int
    nonce: int = 1


@control("wait", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class Wait:
    """Member to joiner: a group exists, do not form one.

    Args:
        blocked: why the group does not admit the joiner now, or empty.
        members: without multicast: addresses of some members, first of the one that admits joiners.
        cookie: with a key: JOINs have to return the cookie.
        seen: the address from which the JOIN came.
    """

    view: Id
    blocked: Annotated[str, prose(WAIT_BYTES_MAX, 0)] = ""
    nonce: Id = 1
    members: Addresses = ()
    cookie: Id = NO_COOKIE
    seen: Address = b"\0"


@control("seen", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Seen:
    """To the sender of a JOIN or BEACON: the frame came from this address, and names another one. With a key it counts,
    and is answered there, too; otherwise it does not count."""

    seen: Address
    nonce: Id = 1


@control("challenge", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Challenge:
    """With a key, to the sender of a JOIN or BEACON with this nonce: return ``number``, as the frame may be a recorded
    one. Answered by a JOIN or BEACON."""

    nonce: Id
    number: Id


@control("refused", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class Refused:
    """Coordinator to joiner: you are refused, and why; ``cause``: the same for programs. In all versions.

    Causes: "name" (another member has it), "settings" (not those of the group), "version", "full", "incarnation" (this
    one lost a view before being in: a new one can join at once), or "identity" (not on the list of those who may be
    members).
    """

    reason: Reason
    cause: Annotated[str, choice(*REFUSALS)]
    nonce: Id = 1


@control("leave")
@dataclass(frozen=True, slots=True)
class Leave:
    """Leaver to all, until the closing VIEW."""

    view: Id


Joining = Join | OtherVersion | Wait | Seen | Challenge | Refused | Leave
