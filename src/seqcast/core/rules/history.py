"""The deliveries of a group, which would be lost with its members, and decide between groups that were founded apart.

Neither the number of members nor the counter of the view can decide. The last member of an old group is as alone as the
founder of a new one; and the counter of a first view is 1, however much was delivered there.
"""

from __future__ import annotations

from enum import IntEnum


class History(IntEnum):
    """A group's history never falls from a view to its successor."""

    NONE = 0
    """Nothing was delivered, and nobody has a state."""
    ALONE = 1
    """Something was delivered, but only in views of one member: nobody else has relied on it."""
    SHARED = 2
    """Something was delivered, and several members shared it."""


def grown(before: int, members: int, delivered: bool) -> History:
    """The history of a group up to now.

    Args:
        before: up to the beginning of its view.
        members: of the view.
        delivered: something was delivered in the view, or a member came into it with a state.
    """
    if before == History.NONE and not delivered:
        return History.NONE
    return History.SHARED if before == History.SHARED or members > 1 else History.ALONE
