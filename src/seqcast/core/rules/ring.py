"""The order of a ring, and who leads it: pure functions of the members' places in the absolute order (NBC-03).

A member's *place* is a number that every member of the ring gives it alike; the lowest one leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

Place = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class RingView:
    """A membership that was agreed on.

    Args:
        generation: of the token that found it.
        leader: whose token it was.
        members: ids, in absolute order.
    """

    generation: int
    leader: int
    members: tuple[int, ...]

    def key(self, place: Place) -> tuple[int, int]:
        """Views are ordered by generation, and those of one generation by leader (E-22): the greater key is newer."""
        return self.generation, -place(self.leader)


def ordered(members: Iterable[int], place: Place) -> tuple[int, ...]:
    """The members in absolute order, each once."""
    return tuple(sorted(set(members), key=place))


def leader_of(members: Collection[int], place: Place) -> int:
    """The first member in absolute order (NBC-05)."""
    return min(members, key=place)


def next_after(me: int, members: Iterable[int], skipped: Collection[int], place: Place) -> int | None:
    """The member that ``me`` gives the token to: the next in the ring, less the skipped; None: nobody is left (E-19).

    Without a rule for all, a member sends the token on to whom it likes: in S4, D passes E over and sends to A.
    """
    left = ordered((member for member in members if member != me and member not in skipped), place)
    after = [member for member in left if place(member) > place(me)]
    return (after or left or (None,))[0]
