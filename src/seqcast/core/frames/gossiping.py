"""The frame of reliability by gossip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from seqcast.core.frames.codec import listed, shape_of
from seqcast.core.frames.fields import Count, Id, Rank, Ranks, Seqno
from seqcast.types import MEMBERS_MAX


class Has(NamedTuple):
    """What a member has of the group stream of the member with this rank; see ``core.gossip.Span``."""

    rank: Rank
    kept: Seqno
    delivered: Seqno
    received: Seqno
    consumed: Seqno


class Least(NamedTuple):
    """The least that some members have of the group stream of the member with this rank."""

    rank: Rank
    delivered: Seqno
    consumed: Seqno


Leasts = Annotated[tuple[Least, ...], listed(shape_of(Least), MEMBERS_MAX)]


@dataclass(frozen=True, slots=True)
class Gossip:
    """Member to some others, which pass it on: what I have of each sender (ranks), and in whoever sends it what all
    members have: of those counted in this round, and of all in the round before. Neither repeated nor answered."""

    view: Id
    origin: Rank
    counter: Count
    hops: Count
    digest: Annotated[tuple[Has, ...], listed(shape_of(Has), MEMBERS_MAX)]
    seen: Ranks
    not_seen: Ranks
    round: Count
    counted: Ranks
    least: Leasts
    result: Leasts
