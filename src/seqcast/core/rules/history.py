"""The deliveries of a group, which would be lost with its members, and decide between groups that were founded apart.

Neither the number of members nor the counter of the view can decide. The last member of an old group is as alone as the
founder of a new one; and the counter of a first view is 1, however much was delivered there.
"""

from __future__ import annotations

from enum import IntEnum

from seqcast.core.context import Context


class History(IntEnum):
    """A group's history never falls from a view to its successor."""

    NONE = 0
    """Nothing was delivered, and nobody has a state."""
    ALONE = 1
    """Something was delivered, but only in views of one member: nobody else has relied on it."""
    SHARED = 2
    """Something was delivered, and several members shared it."""


def history_of(context: Context) -> History:
    """The history of our group up to now."""
    before, members = context.history, context.members
    if context.founding:  # no application is in it yet
        return History.NONE
    something = (
        before != History.NONE
        or any(info.state for info in context.infos.values())
        or any(context.plane.held(rank)[0] for rank in range(len(members)))
    )
    if not something:
        return History.NONE
    return History.SHARED if before == History.SHARED or len(members) > 1 else History.ALONE
