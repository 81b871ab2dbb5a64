"""Policies of simulated applications, of membership, sequencer and order, good ones and bad ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from seqcast.types import Member, MembershipChange, MembershipPolicy, OrderPolicy, SequencerPolicy, WaitingPacket

SEQUENCERS = ("first", "last", "any")
GOOD = ("by_name", "reversed", "joiners_first", "shuffled")
BAD = ("raises", "rubbish")
ORDERERS = ("shuffled", "raises", "late", "rubbish")


def _by_name(change: MembershipChange, _rng: random.Random) -> list[Member]:
    return sorted(change.members, key=lambda member: (member.name, member.id))


def _reversed(change: MembershipChange, _rng: random.Random) -> list[Member]:
    return list(change.members[::-1])


def _joiners_first(change: MembershipChange, _rng: random.Random) -> list[Member]:
    return [*change.joiners, *(member for member in change.members if member not in change.joiners)]


def _shuffled(change: MembershipChange, rng: random.Random) -> list[Member]:
    return rng.sample(change.members, len(change.members))


def _raises(_change: MembershipChange, _rng: random.Random) -> list[Member]:
    raise ArithmeticError("a membership policy that is wrong")


def _rubbish(change: MembershipChange, rng: random.Random) -> list[Member]:
    """In another order, and leaves a member out, names one twice, or names a stranger, a leaver or a lost member."""
    members = list(change.members[::-1])
    others = [*change.leavers, *change.lost, Member("stranger", rng.getrandbits(63))]
    return rng.choice((members[1:], members * 2, [*members, rng.choice(others)], [*members[1:], rng.choice(others)]))


_POLICIES: dict[str, Callable[[MembershipChange, random.Random], list[Member]]] = {
    "by_name": _by_name,
    "reversed": _reversed,
    "joiners_first": _joiners_first,
    "shuffled": _shuffled,
    "raises": _raises,
    "rubbish": _rubbish,
}


def policy(name: str, rng: random.Random) -> MembershipPolicy | None:
    """The policy of this name; "mixed": each member has one of its own; "": none."""
    if name == "mixed":
        name = rng.choice((*GOOD, *BAD))
    call = _POLICIES.get(name)
    return None if call is None else lambda change: call(change, rng)


def sequencer_policy(name: str, rng: random.Random) -> SequencerPolicy | None:
    """ "first": none; the "last" member of each view (so each joiner), or "any"; "wrong": a stranger at times."""
    if name == "first":
        return None
    if name == "last":
        return lambda members: members[-1]
    strangers = [Member("stranger", 1)] if name == "wrong" else []
    return lambda members: rng.choice([*members, *strangers])


class Orderer(OrderPolicy):
    """Orders at random; a bad one sometimes fails.

    Args:
        name: one of ``ORDERERS``.
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng

    def order(self, batch: Sequence[WaitingPacket]) -> Sequence[int]:
        order = self.rng.sample(range(len(batch)), len(batch))
        if self.name == "raises" and self.rng.random() < 0.2:
            raise ArithmeticError("an order policy that is wrong")
        return order[1:] if self.name == "rubbish" and self.rng.random() < 0.2 else order

    def takes_ns(self) -> int:
        """How long the policy takes this time."""
        limit_ns = int(self.limit_s * 1e9)
        most = 2 * limit_ns if self.name == "late" and self.rng.random() < 0.3 else limit_ns // 20
        return self.rng.randrange(most)
