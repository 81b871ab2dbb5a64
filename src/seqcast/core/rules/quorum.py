"""Who may close a view where the partition is primary (design: the cut, step 9).

A strict majority, or of an even number half of them with the first in rank: any two such sets have a member in common,
which remembers what the other one agreed on. So a view has one successor, whatever the network does. An operator can
put those that are left in the place of all, once the others are gone for good.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seqcast.core.frames.closing import Ok
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.view import NewView


def is_quorum(of: Sequence[int], members: Collection[int]) -> bool:
    """Are ``members`` enough to speak for ``of``, which is in the order of rank?"""
    twice = 2 * sum(member in members for member in of)
    return twice > len(of) or (twice == len(of) and of[0] in members)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an operator allowed in a view: ``members`` by rank, who were blocked in ``attempt``, stand for all."""

    attempt: Attempt
    members: tuple[int, ...]


def to_repeat(
    oks: dict[int, Ok], proposals: dict[Attempt, NewView], survivors: Collection[int], allowed: Allowance | None
) -> NewView | None:
    """The VIEW that must be proposed again: of those that survivors accepted the one of the highest attempt.

    Where an operator has put the survivors in the place of all, what was accepted before does not bind them if it
    leaves one of them out, or ends where they cannot get: those for whom it was good are gone.

    Args:
        oks: the survivors' answers, by rank.
        proposals: what was accepted, by the attempt under which it was.
    """
    under = max((ok.accepted for ok in oks.values() if ok.accepted is not None), default=None)
    if under is None:
        return None
    proposal = proposals[under]
    if allowed is not None and under <= allowed.attempt:
        reached = all(any(ok.held[rank].prefix >= end for ok in oks.values()) for rank, end in enumerate(proposal.cut))
        if not reached or not set(survivors) <= set(proposal.survivors):
            return None
    return proposal
