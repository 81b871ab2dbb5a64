"""The packets that all members have, without a list for each of them: by rounds that gossips add up (E-10).

A round collects from each member, once, its position in each stream. Members tell each other the sum: who is in it,
and the least that any of these has. Sums of one round may be added in any order and as often as they come, so the
members in a sum double with each message. When all are in it, all have at least its packets, and the next round
begins; a member that hears of a later round takes over the result of the one before.

So a result takes a few times log N messages that a member receives. Without the sums, each member would have to hear a
gossip of every other one, and gossips of one member are rarer the larger the group is, so as not to burden the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqcast.core.gossip.messages import Floor, Span, Sum


class Agreed(NamedTuple):
    """All members have at least this of this sender. So packets up to ``least.delivered`` may be dropped."""

    sender: int
    least: Floor


class Tally:
    """The rounds of one member.

    Args:
        me: this member.
        others: the other members. All members have the same list.
        round_ns: no round is shorter, so that the number of rounds says nothing that time does not.
        now_ns: the time.
    """

    def __init__(self, me: int, others: Sequence[int], round_ns: int, now_ns: int) -> None:
        self._me, self._all, self._round_ns = me, frozenset((me, *others)), round_ns
        self._round = 0
        self._began_ns = now_ns
        self._members: frozenset[int] = self._all  # round 0 is over, and said nothing
        self._least: dict[int, Floor] = {}  # by sender
        self._result: dict[int, Floor] = {}  # of the round before
        self._told: dict[int, Floor] = {}

    def say(self, digest: dict[int, Span], now_ns: int) -> Sum:
        """The sum as of now, for a message. Begins the next round if this one is over.

        Args:
            digest: this member's position in each active stream.
        """
        if self._members == self._all and now_ns - self._began_ns >= self._round_ns:
            self._result = self._least
            self._enter(self._round + 1, digest, now_ns)
        members = tuple(sorted(self._members))
        return Sum(self._round, members, dict(self._least), dict(self._result))

    def heard(self, heard: Sum, digest: dict[int, Span], now_ns: int) -> list[Agreed]:
        """Adds a sum that another member said; returns the newly agreed positions.

        Args:
            digest: this member's position in each active stream.
        """
        if heard.round < self._round or (heard.round == self._round and self._members == self._all):
            return []
        agreed: list[Agreed] = []
        if heard.round > self._round:
            self._result = dict(heard.result)
            agreed += self._news(self._result)
            self._enter(heard.round, digest, now_ns)
        self._members |= self._all.intersection(heard.members)
        self._least = _lesser(self._least, heard.least)
        if self._members == self._all:
            agreed += self._news(self._least)
        return agreed

    def _enter(self, number: int, digest: dict[int, Span], now_ns: int) -> None:
        self._round, self._began_ns = number, now_ns
        self._members = frozenset((self._me,))
        self._least = {
            sender: Floor(span.delivered, span.consumed, span.window, span.claim) for sender, span in digest.items()
        }

    def _news(self, result: dict[int, Floor]) -> list[Agreed]:
        news = [Agreed(sender, least) for sender, least in result.items() if least != self._told.get(sender)]
        self._told.update(result)
        return news


def _lesser(one: dict[int, Floor], other: dict[int, Floor]) -> dict[int, Floor]:
    """The packets that both have. A sender that one of them does not name is one of which it has nothing."""
    return {sender: _least(least, other[sender]) for sender, least in one.items() if sender in other}


def _least(one: Floor, other: Floor) -> Floor:
    """The lesser window is promised by both only if they mean the same claim: else the sender has only its share."""
    window = min(one.window, other.window) if one.claim == other.claim else 0
    return Floor(
        min(one.delivered, other.delivered), min(one.consumed, other.consumed), window, max(one.claim, other.claim)
    )
