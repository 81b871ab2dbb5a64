"""Which members may close a view of a primary partition (the cut, step 9).

A strict majority, or exactly half of the members if it includes rank 0: any two such sets share a member, which
remembers the agreement of the other one. So a view has one successor, whatever the network does. An operator can let
the remaining members act for all, once the others are gone for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from seqcast.core.frames.closing import Ok
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.view import NewView


def is_quorum(of: Sequence[int], members: Collection[int]) -> bool:
    """Are ``members`` a quorum of ``of``, which is in order of rank?"""
    twice = 2 * sum(member in members for member in of)
    return twice > len(of) or (twice == len(of) and of[0] in members)


@dataclass(frozen=True, slots=True)
class Allowance:
    """An operator's permission in a view: ``members`` (by rank), which were blocked in ``attempt``, act for all."""

    attempt: Attempt
    members: tuple[int, ...]


def to_repeat(
    oks: dict[int, Ok],
    proposals: dict[Attempt, NewView],
    survivors: Collection[int],
    allowed: Allowance | None,
    others: Iterable[Attempt] = (),
) -> NewView | None:
    """The VIEW that must be proposed again: the one that survivors accepted under the highest attempt.

    If an operator let the survivors act for all, a VIEW accepted before does not bind them if it leaves one of them
    out, or its cut is out of their reach: the members that it suited are gone.

    Args:
        oks: the survivors' answers, by rank.
        proposals: the accepted VIEWs, by attempt.
        others: the attempts under which those accepted one that vote and do not survive, as they started again.
    """
    under = max((*others, *(ok.accepted for ok in oks.values() if ok.accepted is not None)), default=None)
    if under is None:
        return None
    proposal = proposals[under]
    if allowed is not None and under <= allowed.attempt:
        reached = all(any(ok.held[rank].prefix >= end for ok in oks.values()) for rank, end in enumerate(proposal.cut))
        if not reached or not set(survivors) <= set(proposal.survivors):
            return None
    return proposal
