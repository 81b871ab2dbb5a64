"""The frames by which an operator lets a blocked minority continue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seqcast.core.frames.fields import Addresses, Attempt, Cluster, Count, Flag, Id, Name, Names
from seqcast.core.frames.traits import control


class Side(NamedTuple):
    """Members that are blocked together: they answered this attempt to close this view (its tag)."""

    view: Id
    attempt: Attempt


@control("unblock", outside=True, signed=True)
@dataclass(frozen=True, slots=True)
class Unblock:
    """Operator to all: which members are blocked as a minority? With ``side``: these continue without the others."""

    cluster: Cluster
    request: Count
    side: Side | None


@control("blocked", outside=True, to_one=True, signed=True)
@dataclass(frozen=True, slots=True)
class BlockedSide:
    """Blocked member to operator: I (``name``) am on this side; the names of its members, and of the missing ones.

    ``allowed``: an operator let the side continue. ``places``: addresses of the side's members: all must be asked.
    """

    request: Count
    side: Side
    name: Name
    reached: Names
    missing: Names
    allowed: Flag
    places: Addresses = ()


Unblocking = Unblock | BlockedSide
