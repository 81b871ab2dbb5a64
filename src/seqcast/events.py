"""What ``group.events()`` yields beside messages and views, in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.types import ViewId


@dataclass(frozen=True, slots=True)
class Blocked:
    """From here on a ``send`` to the group waits, until ``Unblocked``; unicasts go on.

    Args:
        kind: why: "flush" (a view change), "pause" (a member called ``suspend``), "minority" (a partition that is not
            the primary one).
        reason: the same for people.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """A ``send`` to the group goes on. Follows each ``Blocked``; after a flush, behind the view that ended it.

    Args:
        kind: of the ``Blocked`` that it ends.
        reason: what ended it, and what went wrong meanwhile, such as a block callback that raised.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """The group went on without this member; to come back it joins again, as a new incarnation."""

    view_id: ViewId
    reason: str
