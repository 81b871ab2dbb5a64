"""The memory of this process across its joins: votes for founders of primary groups, and addresses of others."""

from __future__ import annotations

from typing import TypeVar

from seqcast.core.context import NO_VOTE, Vote

KEPT_MAX = 256
_votes: dict[tuple[str, str], Vote] = {}
_others: dict[tuple[str, str], tuple[bytes, ...]] = {}

T = TypeVar("T")


def vote_of(cluster: str, name: str) -> Vote:
    """The joiner for which a join of this process voted before giving up. The next join is bound by that vote."""
    return _votes.get((cluster, name), NO_VOTE)


def keep_vote(cluster: str, name: str, vote: Vote) -> None:
    """``NO_VOTE``: forgets the last one, which was used up."""
    _keep(_votes, (cluster, name), None if vote == NO_VOTE else vote)


def others_of(cluster: str, name: str) -> tuple[bytes, ...]:
    """The addresses in the book of the last incarnation, if it was excluded: the next one needs them if its seeds are
    stale. One that has left may join another group of that name."""
    return _others.get((cluster, name), ())


def keep_others(cluster: str, name: str, addresses: tuple[bytes, ...]) -> None:
    """For the next incarnation."""
    _keep(_others, (cluster, name), addresses or None)


def _keep(of: dict[tuple[str, str], T], key: tuple[str, str], value: T | None) -> None:
    of.pop(key, None)
    if value is not None:
        of[key] = value
    while len(of) > KEPT_MAX:
        del of[next(iter(of))]
