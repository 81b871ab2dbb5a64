"""The votes of this process for founders of primary groups, which outlive the joins that gave up."""

from __future__ import annotations

from seqcast.core.context import NO_VOTE, Vote

VOTES_MAX = 256
_votes: dict[tuple[str, str], Vote] = {}


def vote_of(cluster: str, name: str) -> Vote:
    """For whom a join of this process voted that gave up. The next one is bound by that."""
    return _votes.get((cluster, name), NO_VOTE)


def keep_vote(cluster: str, name: str, vote: Vote) -> None:
    """``NO_VOTE``: forgets the last one, as one that was used up."""
    _votes.pop((cluster, name), None)
    if vote != NO_VOTE:
        _votes[cluster, name] = vote
    while len(_votes) > VOTES_MAX:
        del _votes[next(iter(_votes))]
