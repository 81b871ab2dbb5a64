"""What goes in and out by the endpoint's door: inputs of ``Endpoint.step``, its effects, and what its markers mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from seqcast.core.context import CallBlock, CallUnblock, PauseHeld, PauseOver
from seqcast.core.story import Logged
from seqcast.events import Blocked, Excluded, InterfaceChanged, Lost, Unblocked
from seqcast.types import View, ViewId


class Event(Enum):
    """What the world tells the endpoint."""

    START = auto()
    """Join the cluster."""
    WAKE = auto()
    """The engine has events, or ``deadline()`` is due."""
    CLOSE = auto()
    """Stop at once; nothing follows."""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """From the world: send nothing more, and leave gracefully; ``Left`` follows.

    Args:
        drain_ns: how long to wait at most until what was accepted is ordered and acknowledged, before LEAVE is said.
    """

    drain_ns: int


@dataclass(frozen=True, slots=True)
class StateArrived:
    """From the world: all of the state of this boundary is here. ``StateHeld`` follows, or ``StateFrom`` where a view
    came in between."""

    boundary: int


@dataclass(frozen=True, slots=True)
class StateRefused:
    """From the world: the provider of this boundary cannot give the state, or it did not come in time."""

    boundary: int
    reason: str


@dataclass(frozen=True, slots=True)
class PauseGroup:
    """From the world: stop the group from sending. ``PauseHeld`` follows, within ``timeout_ns``, or ``PauseOver``."""

    request: int
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class ResumeGroup:
    """From the world: the pause of this request has served. ``PauseOver`` follows, if it has not come yet."""

    request: int


@dataclass(frozen=True, slots=True)
class InterfaceNews:
    """From the world: something became of the network interface. ``lost``: this member cannot be reached at its address
    any more, so it is out, and its application joins again."""

    change: InterfaceChanged
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """What the world tells the endpoint: the block callback of this run returned, or raised ``trouble``."""

    run: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ViewInstalled:
    view: View


@dataclass(frozen=True, slots=True)
class JoinFailed:
    """The group refused this member; the endpoint is over.

    Args:
        error: why, and what to do.
        cause: "name", "settings", "version" or "full"; or "incarnation": a new one (a new endpoint and engine) can
            join at once.
    """

    error: str
    cause: str


@dataclass(frozen=True, slots=True)
class Left:
    """Left; the endpoint is over. Also what the last marker means for who left.

    Args:
        view: the view the others went on with, if known.
        complete: all that was accepted is delivered by those who stay: ``Lost`` before it tells of nothing.
    """

    view: View | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True)
class ExcludedBy:
    """The group went on without this member (the cut, step 8), or gave way to another one; the endpoint is over."""

    view_id: ViewId
    reason: str


@dataclass(frozen=True, slots=True)
class Minority:
    """Blocked for want of a majority (the cut, step 9), until a view is installed or the endpoint is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The group that this member seeks answers, and takes nobody in now: it is blocked for want of a majority."""

    reason: str


@dataclass(frozen=True, slots=True)
class StateFrom:
    """This member lacks the state: a provider sends it, as it is at the beginning of the view with tag ``boundary``.
    What came of another one, and group messages from before that view, are void."""

    provider: int
    boundary: int


@dataclass(frozen=True, slots=True)
class StateHeld:
    """The state that arrived holds; boundary 0: this member is the group's first, its own state does."""

    boundary: int


@dataclass(frozen=True, slots=True)
class StateLost:
    """Nobody can give this member the state: it can only leave.

    Args:
        error: why, and what to do.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Warned:
    text: str


Effect = (
    ViewInstalled
    | Logged
    | JoinFailed
    | Left
    | ExcludedBy
    | Minority
    | Waiting
    | Warned
    | StateFrom
    | StateHeld
    | StateLost
    | CallBlock
    | CallUnblock
    | PauseHeld
    | PauseOver
)
Meaning = View | Lost | Blocked | Unblocked | InterfaceChanged | Excluded | Left
"""Of a marker in the stream of what is delivered."""

Input = Event | LeaveGroup | Returned | PauseGroup | ResumeGroup | StateArrived | StateRefused | InterfaceNews
"""What a step takes."""
