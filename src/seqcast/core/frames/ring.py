"""The frames of the token ring, by which members agree on a membership (``machines/ring.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from seqcast.core.frames.codec import choice, fields_of, list_of, record
from seqcast.core.frames.fields import Count, Flag, Id, Ids, MemberInfo
from seqcast.core.frames.traits import control

TOKEN_JOINERS_MAX = 32
"""A token carries at most this many joiners; the next one carries the others."""
TokenJoiners = Annotated[tuple[MemberInfo, ...], list_of(record(MemberInfo, fields_of(MemberInfo)), TOKEN_JOINERS_MAX)]
ConfirmPhase = Annotated[str, choice("prepare", "commit")]


@control("token", "ring")
@dataclass(frozen=True, slots=True)
class Token:
    """Member to the next in the ring, until the acknowledgement: the members that its holders so far know.

    ``source`` made it, under ``generation``; ``leader``: the first of these members in absolute order; ``visited`` were
    its holders; ``lost``: gone, as the source knows; nobody adds these again. ``joiners``: those heard of. ``asked``:
    the source knows a reason for a new view, perhaps a member that leaves; that one says so itself (``Confirmed``).
    """

    view: Id
    generation: Count
    source: Id
    leader: Id
    members: Ids
    visited: Ids
    lost: Ids
    joiners: TokenJoiners = ()
    asked: Flag = False


@control("token_held", "ring")
@dataclass(frozen=True, slots=True)
class TokenHeld:
    """Member to the previous one in the ring: I have the token."""

    view: Id
    generation: Count
    source: Id


@control("confirm", "ring")
@dataclass(frozen=True, slots=True)
class Confirm:
    """Leader to each member, until its answer: this is the membership ("prepare"), and all agree to it ("commit")."""

    view: Id
    phase: ConfirmPhase
    generation: Count
    leader: Id
    members: Ids
    lost: Ids


@control("confirmed", "ring")
@dataclass(frozen=True, slots=True)
class Confirmed:
    """Member to leader, after "prepare": I agree, and to nothing older from now on; after "commit": received.
    ``leaves``: I want to leave."""

    view: Id
    phase: ConfirmPhase
    generation: Count
    leaves: Flag = False


@control("unconfirmed", "ring")
@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Member to leader, after "prepare": I do not agree: I know these members, and promised this generation."""

    view: Id
    generation: Count
    promised: Count
    members: Ids


RingFrame = Token | TokenHeld | Confirm | Confirmed | Unconfirmed
