"""The frames that close a view: one attempt, from BLOCK to DONE (the cut)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from seqcast.core.frames.codec import list_of, need, schema_of
from seqcast.core.frames.fields import RANGE, Attempt, Id, Ids, Promise, Rank, Seqno, Seqnos
from seqcast.core.frames.traits import control
from seqcast.core.frames.view import Nested
from seqcast.types import MEMBERS_MAX

RANGES_MAX = 64
"""Ranges that a member reports of a lost member's stream; fewer than its real ones are safe, but shorten the cut."""
RANGES_ALL_MAX = 1000
"""The same, of the streams of all lost members together."""
FETCH_MAX = 900


class Held(NamedTuple):
    """The packets that a member holds of one stream: the end of the prefix, and the ranges beyond."""

    prefix: Seqno
    ranges: Annotated[tuple[tuple[int, int], ...], list_of(RANGE, RANGES_MAX)] = ()


class Fetch(NamedTuple):
    """A range of one stream, and its holder. ``rank`` (of the stream) and ``holder`` are ranks of the closing view."""

    rank: Rank
    lo: Seqno
    hi: Seqno
    holder: Rank


@control("block", "flush")
@dataclass(frozen=True, slots=True)
class Block:
    """Initiator to all: run your block callback; START with this attempt follows."""

    view: Id
    attempt: Attempt
    survivors: Ids


@control("block_ok", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class BlockOk:
    """Survivor to initiator: my block callback returned or timed out, or there is none."""

    view: Id
    attempt: Attempt


@control("start", "flush")
@dataclass(frozen=True, slots=True)
class Start:
    """Initiator to all: close view ``view`` with these survivors (leavers are survivors)."""

    view: Id
    attempt: Attempt
    survivors: Ids


@control("ok", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class Ok:
    """Survivor to initiator: my gate is closed after ``last``; the packets that I hold, by rank; whether I lack the
    state.

    Args:
        lacks: the members that I have passed over; None: I have the state, or take no part.
        accepted: of a primary partition: the highest attempt that I answered with DONE; ACCEPTED has that VIEW.
    """

    view: Id
    attempt: Attempt
    last: Seqno
    held: Annotated[tuple[Held, ...], list_of(schema_of(Held), MEMBERS_MAX)]
    lacks: Ids | None = None
    accepted: Attempt | None = None

    def check(self) -> None:
        """Raises RemoteProtocolError if ranges overlap or are not in order."""
        for held in self.held:
            last = held.prefix
            for lo, hi in held.ranges:
                need(last < lo <= hi, "ranges out of order")
                last = hi


@control("promised", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class Promised:
    """Member to initiator: I promised another attempt; or you are too few and left me out, and I am alive."""

    view: Id
    attempt: Attempt
    promise: Promise


@control("cut", "flush")
@dataclass(frozen=True, slots=True)
class Cut:
    """Initiator to all: the last seqno of each stream, and the holders of missing ranges."""

    view: Id
    attempt: Attempt
    cut: Seqnos
    fetch: Annotated[tuple[Fetch, ...], list_of(schema_of(Fetch), FETCH_MAX)]

    def check(self) -> None:
        """Raises RemoteProtocolError if a range names no member or no holder."""
        ranks = range(len(self.cut))
        need(all(f.rank in ranks and f.holder in ranks and 0 < f.lo <= f.hi for f in self.fetch), "fetch of no rank")


@control("done", "flush")
@dataclass(frozen=True, slots=True)
class Done:
    """Survivor to initiator: I hold everything up to the cut, and deliver nothing until VIEW."""

    view: Id
    attempt: Attempt


@control("propose", "flush")
@dataclass(frozen=True, slots=True)
class Propose:
    """Initiator to all, with its CUT, in a primary partition: DONE accepts this VIEW; ``table`` is filled in then."""

    view: Id
    attempt: Attempt
    proposal: Nested


@control("accepted", "flush", to_one=True)
@dataclass(frozen=True, slots=True)
class Accepted:
    """Survivor to initiator, with its OK: the VIEW that I accepted last, under this attempt; propose that again."""

    view: Id
    attempt: Attempt
    under: Attempt
    proposal: Nested


Closing = Block | BlockOk | Start | Ok | Promised | Cut | Propose | Accepted | Done
