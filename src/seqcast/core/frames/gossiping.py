"""The frame of reliability by gossip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from seqcast.core.frames.codec import integer, list_of, schema_of
from seqcast.core.frames.fields import Count, Id, Rank, Ranks, Seqno
from seqcast.core.frames.traits import control
from seqcast.types import MEMBERS_MAX

Window = Annotated[int, integer("bytes, or 0", 0, (1 << 53) - 1)]
Claim = Annotated[int, integer("0 to 65535", 0, (1 << 16) - 1)]


class Has(NamedTuple):
    """A member's position in the group stream of the member with this rank; see ``core.gossip.Span``."""

    rank: Rank
    kept: Seqno
    delivered: Seqno
    received: Seqno
    consumed: Seqno
    window: Window
    claim: Claim


class Least(NamedTuple):
    """The least that some members have of the group stream of the member with this rank."""

    rank: Rank
    delivered: Seqno
    consumed: Seqno
    window: Window
    claim: Claim


Leasts = Annotated[tuple[Least, ...], list_of(schema_of(Least), MEMBERS_MAX)]


@control("gossip", "gossip")
@dataclass(frozen=True, slots=True)
class Gossip:
    """Member to others, which forward this: my position in each stream, and the tally. Neither repeated nor answered.

    Senders and members are ranks. The tally is that of whoever sends the gossip or passes it on: the least that the
    members ``counted`` in this ``round`` have, and as ``result`` the least that all members had in the round before.
    """

    view: Id
    origin: Rank
    counter: Count
    hops: Count
    digest: Annotated[tuple[Has, ...], list_of(schema_of(Has), MEMBERS_MAX)]
    seen: Ranks
    not_seen: Ranks
    round: Count
    counted: Ranks
    least: Leasts
    result: Leasts
