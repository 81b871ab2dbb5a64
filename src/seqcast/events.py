"""What ``group.events()`` yields beside messages and views, in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.types import ViewId


@dataclass(frozen=True, slots=True)
class Excluded:
    """The group went on without this member; to come back it joins again, as a new incarnation."""

    view_id: ViewId
    reason: str
