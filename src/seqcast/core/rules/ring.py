"""The order of a ring, and its leader: pure functions of the members' places in the absolute order (NBC-03).

A member's *place* is a number, the same for every member of the ring; the lowest one leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

Place = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class RingView:
    """An agreed membership.

    Args:
        generation: of the token that established it.
        leader: source of that token.
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
    """The member that ``me`` passes the token to: the next in the ring not skipped; None: nobody is left (E-19).

    All members need the same rule. S4 has none: there, D passes over E and sends to A.
    """
    left = ordered((member for member in members if member != me and member not in skipped), place)
    after = [member for member in left if place(member) > place(me)]
    return (after or left or (None,))[0]
