"""What a group has behind it, and would lose with its members: this decides between groups that were founded apart.

Neither the number of members nor the counter of the view can decide. The last member that is left of a group is as
alone as a process that founded a new one; and a founding's counter is 1, whatever was delivered since.
"""

from __future__ import annotations

from enum import IntEnum

from seqcast.core.context import Context


class History(IntEnum):
    """It never falls from a view to its successor."""

    NONE = 0
    """Nothing was delivered, and nobody has a state."""
    ALONE = 1
    """Something was, in views of one member only: nobody else has relied on it."""
    SHARED = 2
    """Something was, and several members had it together."""


def history_of(context: Context) -> History:
    """The history of our group up to now."""
    before, members = context.history, context.members
    something = (
        before != History.NONE
        or any(info.state for info in context.infos.values())
        or any(context.plane.held(rank)[0] for rank in range(len(members)))
    )
    if not something:
        return History.NONE
    return History.SHARED if before == History.SHARED or len(members) > 1 else History.ALONE
