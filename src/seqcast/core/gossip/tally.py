"""What all members have, without a list of what each of them has: by rounds that gossips add up (E-10).

A round collects from each member, once, what it has of each sender. Members tell each other the sum: who is in it,
and the least that any of these has. Sums of one round may be added in any order and as often as they come, so the
members in a sum double with each message. When all are in it, all have at least what it says, and the next round
begins; a member that hears of a later round takes over the result of the one before.

So a result takes a few times log N messages that a member receives. Without the sums, each member would have to hear a
gossip of every other one, and gossips of one member are rarer the larger the group is, so that they do not burden it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqcast.core.gossip.messages import Span, Sum


class Agreed(NamedTuple):
    """All members have delivered at least ``delivered`` of this sender, and their applications have taken
    ``consumed``. So packets up to ``delivered`` may be dropped."""

    sender: int
    delivered: int
    consumed: int


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
        self._least: dict[int, tuple[int, int]] = {}  # by sender: delivered, consumed
        self._result: dict[int, tuple[int, int]] = {}  # of the round before
        self._told: dict[int, tuple[int, int]] = {}

    def say(self, digest: dict[int, Span], now_ns: int) -> Sum:
        """The sum as of now, for a message. Begins the next round if this one is over.

        Args:
            digest: what this member has of each active sender.
        """
        if self._members == self._all and now_ns - self._began_ns >= self._round_ns:
            self._result = self._least
            self._enter(self._round + 1, digest, now_ns)
        members = tuple(sorted(self._members))
        return Sum(self._round, members, dict(self._least), dict(self._result))

    def heard(self, heard: Sum, digest: dict[int, Span], now_ns: int) -> list[Agreed]:
        """Adds a sum that another member said; returns what is agreed now and was not before.

        Args:
            digest: what this member has of each active sender.
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
        self._least = {sender: (span.delivered, span.consumed) for sender, span in digest.items()}

    def _news(self, result: dict[int, tuple[int, int]]) -> list[Agreed]:
        news = [Agreed(sender, *marks) for sender, marks in result.items() if marks != self._told.get(sender)]
        self._told.update(result)
        return news


def _lesser(one: dict[int, tuple[int, int]], other: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """What both have. A sender that one of them does not name is one of which it has nothing."""
    return {
        sender: (min(delivered, other[sender][0]), min(consumed, other[sender][1]))
        for sender, (delivered, consumed) in one.items()
        if sender in other
    }
