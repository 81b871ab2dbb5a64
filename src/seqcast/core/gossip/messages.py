"""The messages of gossip. Members are known by their incarnations."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A member's position in one stream: all packets up to ``delivered`` are here, those from ``kept`` on are still
    kept, and some of those up to ``received`` are here, too. Its application has taken those up to ``consumed``. If
    members vote, there is room for ``window`` bytes beyond that, as long as the sender's claim is ``claim``."""

    kept: int
    delivered: int
    received: int
    consumed: int
    window: int = 0
    claim: int = 0


class Floor(NamedTuple):
    """The least that some members have of one sender; the fields are those of ``Span``."""

    delivered: int
    consumed: int
    window: int = 0
    claim: int = 0


class Sum(NamedTuple):
    """How far a round of the tally is; see ``tally.py``.

    Args:
        round: its number.
        members: those that are counted.
        least: of each sender of which all of them have something: the least that any of them has delivered, and the
            least that the application of any of them has taken and has room for.
        result: the same over all members, from the round before.
    """

    round: int
    members: tuple[int, ...]
    least: dict[int, Floor]
    result: dict[int, Floor]


class GossipMessage(NamedTuple):
    """A digest on its way through the group (PB-01).

    Args:
        origin, counter: the member that made the gossip, and the number among that member's gossips: together its
            identity.
        hops: how often the gossip was passed on before.
        digest: its origin's position in each active stream.
        seen: members that have seen the gossip, in this order; if membership is partial, only the last ones.
        not_seen: members that have not, as far as those that have seen it know.
        sum: of the member that passes the gossip on, if members vote.
    """

    origin: int
    counter: int
    hops: int
    digest: dict[int, Span]
    seen: tuple[int, ...]
    not_seen: tuple[int, ...]
    sum: Sum | None = None


class Request(NamedTuple):
    """Send me these again: by sender, ranges of seqnos (first, last)."""

    missing: dict[int, tuple[tuple[int, int], ...]]

    @property
    def packets(self) -> int:
        """How many are asked for."""
        return sum(last - first + 1 for ranges in self.missing.values() for first, last in ranges)


class Shuffle(NamedTuple):
    """Entries of a partial view that two members exchange.

    Args:
        entries: (member, how many exchanges ago that member was known to live).
        answer: this message answers another, and is not answered.
        epoch, minima: of the estimate of the group's size; see ``size.py``.
    """

    entries: tuple[tuple[int, int], ...]
    answer: bool
    epoch: int
    minima: tuple[float, ...]


class Hello(NamedTuple):
    """A member that knows few others or none multicasts this, so that they answer. Unicast to a late-join handler, this
    asks for new packets.

    Args:
        history: wants the messages sent before its arrival: late-join handlers answer with a ``Catalog``.
    """

    history: bool


class Catalog(NamedTuple):
    """The packets of a late-join handler, or a part of them: by sender, the first and the last seqno."""

    kept: dict[int, tuple[int, int]]


Message = GossipMessage | Request | Shuffle | Hello | Catalog
