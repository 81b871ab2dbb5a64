"""Every input and every effect of ``Endpoint.step``; those from the engine are in ``reports.py``.

*Inputs* come from the application (which joins, leaves, pauses the group), from the runner (a callback returned, the
interface was looked at) and from the engine (a frame came, a member is suspected). *Effects* are for the runner: it
transmits frames, calls callbacks and tells the application. Decisions of the machines about this member's view are
*commands*, which the core itself carries out, in order with the effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.recalling import Kept
from seqcast.core.frames.view import NewView
from seqcast.core.identities import Allowed
from seqcast.core.rules.keys import FileKey
from seqcast.events import Blocked, CoordinatorChanged, Excluded, InterfaceChanged, Lost, Skipped, Unblocked
from seqcast.reports import Report
from seqcast.types import View, ViewId

# ---- inputs: the application -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """The application joins the cluster."""


@dataclass(frozen=True, slots=True)
class CloseGroup:
    """The application closes without leaving: leaves the view at once, without telling the others."""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """The application sends nothing more, and leaves gracefully; ``Left`` follows.

    Args:
        timeout_ns: how long leaving may take: until accepted messages are ordered and acknowledged, and then until the
            closing VIEW has come.
    """

    timeout_ns: int


@dataclass(frozen=True, slots=True)
class SetInfo:
    """The application gives its member this info: ``MemberInfo.about``. A view with it follows."""

    about: str


@dataclass(frozen=True, slots=True)
class PauseGroup:
    """The application stops the group from sending. ``PauseHeld`` follows within ``timeout_ns``, or ``PauseOver``."""

    request: int
    timeout_ns: int


@dataclass(frozen=True, slots=True)
class ResumeGroup:
    """The application ends the pause of this request. ``PauseOver`` follows, unless already reported."""

    request: int


@dataclass(frozen=True, slots=True)
class AskMembers:
    """Somebody on this machine asks for the others' boards. ``MemberTold`` follows for each that answers.

    Args:
        page: of the whole board, or 0: the board in short.
    """

    request: int
    page: int


# ---- inputs: the runner ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallbackReturned:
    """The block callback of this run returned, or raised ``trouble``."""

    run: int
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class StateArrived:
    """All of the state of this boundary is here. ``StateHeld`` follows, or ``TakeState`` if a view came in between
    that names another provider."""

    boundary: int


@dataclass(frozen=True, slots=True)
class StateRefused:
    """The provider of this boundary cannot give the state, or none came in time; 0: the only one."""

    boundary: int
    reason: str
    provider: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceSeen:
    """The runner looked at the network interface of this member, as happens every ``machines.interface.LOOK_NS``.

    Args:
        name: of the interface.
        address: of this member, as text.
        gone: no interface has this name.
        down: the interface is down.
        no_carrier: nothing is connected to the interface.
        address_gone: the interface no longer has the address; ``address_other``: has another one instead.
        remade: another interface has the name since the sockets were opened or mended.
        routed: the interface is loopback, taken as no other one had a route for multicast, and another one has now.
        send_errors: how many sends have failed so far; ``refusal``: the last error, as text.
    """

    name: str
    address: str = ""
    gone: bool = False
    down: bool = False
    no_carrier: bool = False
    address_gone: bool = False
    address_other: bool = False
    remade: bool = False
    routed: bool = False
    send_errors: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class SocketsMended:
    """``MendSockets`` was carried out, or failed with this error."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class KeysRead:
    """The key file has other keys now, or another order."""

    keys: tuple[FileKey, ...]


@dataclass(frozen=True, slots=True)
class ListRead:
    """The list of those who may be members has changed, or one of its lines has run out."""

    allowed: tuple[Allowed, ...]


@dataclass(frozen=True, slots=True)
class SeedsFound:
    """The seeds are at these addresses now; reported when that changes."""

    addresses: tuple[bytes, ...]


Input = (
    JoinGroup
    | AskMembers
    | CloseGroup
    | LeaveGroup
    | SetInfo
    | PauseGroup
    | ResumeGroup
    | CallbackReturned
    | StateArrived
    | StateRefused
    | InterfaceSeen
    | SocketsMended
    | SeedsFound
    | KeysRead
    | ListRead
    | Report
)
"""Inputs of a step."""

# ---- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Transmit a control frame, by ``Engine.control_send``.

    Args:
        payload: see ``frames``.
        address: of one member or stranger; empty: to everyone who listens.
        outside: the frame is for those outside our view, too.
        anybody: for whoever has the address now, not only for the member that had it in our view: a process that
            starts again may have the port of its former self.
    """

    payload: bytes
    address: bytes
    outside: bool = False
    anybody: bool = False


@dataclass(frozen=True, slots=True)
class Stand:
    """Let the engine send this control frame to those outside our view, at intervals, by ``Engine.stand``.

    Args:
        payload: see ``frames``; empty: the last one is no longer repeated.
        every_ns, times: the interval, and how often.
    """

    payload: bytes
    every_ns: int = 0
    times: int = 0


@dataclass(frozen=True, slots=True)
class ViewInstalled:
    """The engine is in this view.

    Args:
        founding: no application may be in that view yet.
        change: why there is another view: "join", "leave", "loss", "merge", or "other" (the same members); "": there
            was no view before.
        took_ns: since this member learned that its view closes; 0: not known.
    """

    view: View
    founding: bool = False
    change: str = ""
    took_ns: int = 0


@dataclass(frozen=True, slots=True)
class JoinFailed:
    """The group refused this member, or nobody can reach it; the endpoint is over.

    Args:
        error: why, and the remedy.
        cause: "name", "settings", "version", "full" or "identity"; "key": others use the cluster with another key, or
            without;
            "address": this member has lost the address with which it joins; or "incarnation": a new one (a new endpoint
            and engine) can join at once.
    """

    error: str
    cause: str


@dataclass(frozen=True, slots=True)
class Left:
    """This member has left; the endpoint is over. Also the meaning of a leaver's last marker.

    Args:
        view: the view in which the others continue, if known.
        complete: the remaining members deliver everything that was accepted, and no ``Lost`` came before.
    """

    view: View | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True)
class ExcludedBy:
    """The group continues without this member (the cut, step 8), or gave way to another one; the endpoint is over.
    ``cause``: as ``Excluded.cause``."""

    view_id: ViewId
    reason: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Minority:
    """Blocked because there is no majority (the cut, step 9), until a view is installed or the endpoint is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The group that this member wants to join answers but does not admit joiners now, because the group is blocked
    without a majority, or unicasts between the two were lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakeState:
    """This member lacks the state: a provider sends that of the beginning of the view with tag ``boundary``. Data of
    another provider or boundary is void, and so are group messages from before that view."""

    provider: int
    boundary: int


@dataclass(frozen=True, slots=True)
class StateHeld:
    """The state that arrived is complete; boundary 0: this member is the group's first, and its own state holds."""

    boundary: int


@dataclass(frozen=True, slots=True)
class StateLost:
    """Nobody can give this member the state: all that is left is to leave.

    Args:
        error: why, and the remedy.
        inside: its application is already receiving, and cannot get the state of a merged group: the endpoint leaves
            by itself. Otherwise the application that joins leaves once told.
    """

    error: str
    inside: bool = False


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A receiving application stops at the beginning of a view until the state of the whole group is here.

    Args:
        boundary: tag of the view; 0: none, the application continues with its own state.
        providers: the members whose states this member takes.
        merges: this member merges them into its own, for all; else the state of the one provider replaces its own.
        held: the state is complete and valid, and can be merged or taken over.
    """

    boundary: int
    providers: tuple[int, ...]
    merges: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class CallBlock:
    """Run the application's block callback; ``CallbackReturned`` with the same number tells its end."""

    run: int


@dataclass(frozen=True, slots=True)
class CallUnblock:
    """Run the application's unblock callback, after the block callback that was called before."""


@dataclass(frozen=True, slots=True)
class PauseHeld:
    """The pause that this application asked for holds: all members have delivered the same messages, and none sends."""

    request: int


@dataclass(frozen=True, slots=True)
class PauseOver:
    """The pause has ended; ``reason``: why, if not by the application."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class MendSockets:
    """Make the sockets use the interface that has the name now, and join the group there; ``SocketsMended`` reports the
    result."""


@dataclass(frozen=True, slots=True)
class MemberTold:
    """Another member of the view sends its board.

    Args:
        member: its id.
        request: of the ``AskMembers`` that is answered.
        pages: of its whole board; 0: the board is told in short, or there is none.
        sees: text made by the member, and not checked.
    """

    member: int
    request: int
    pages: int
    sees: str


@dataclass(frozen=True, slots=True)
class Keep:
    """With ``stable=``: writes this to disk, and syncs, before any effect that follows."""

    kept: Kept


@dataclass(frozen=True, slots=True)
class Warn:
    """A warning for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log.

    Args:
        part: of ``log.PARTS``.
        text, args: as for ``logging``, so that a line that is not written is never formatted.
        debug: of level DEBUG, not INFO.
        warning: of level WARNING, not INFO.
    """

    part: str
    text: str
    args: tuple[Any, ...] = ()
    debug: bool = False
    warning: bool = False


Effect = (
    Send
    | Stand
    | ViewInstalled
    | JoinFailed
    | Left
    | ExcludedBy
    | Minority
    | Waiting
    | TakeState
    | StateHeld
    | StateLost
    | StatePlan
    | CallBlock
    | CallUnblock
    | PauseHeld
    | PauseOver
    | MendSockets
    | MemberTold
    | Keep
    | Warn
    | Log
)
"""Effects that the runner carries out, or reports to the application, in order."""

Meaning = View | Lost | Skipped | Blocked | Unblocked | CoordinatorChanged | InterfaceChanged | Excluded | Left
"""The meaning of a marker in the delivery stream, or of a gap (``Skipped``)."""

# ---- commands to the core itself ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unicast:
    """A frame for one member."""

    frame: Frame
    member_id: int
    address: bytes


@dataclass(frozen=True, slots=True)
class Multicast:
    """A frame for everyone who listens, this member included."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Announce:
    """A frame for those outside our view, which the engine repeats (``Stand``); None: the last one is no longer
    repeated."""

    frame: Frame | None
    every_ns: int = 0
    times: int = 0


@dataclass(frozen=True, slots=True)
class Install:
    """Enter this view; ``first``: from outside, without a cut of our own."""

    frame: NewView
    first: bool


@dataclass(frozen=True, slots=True)
class CloseView:
    """Stay outside ``frame``'s view: as a leaver at its cut, or excluded."""

    frame: NewView
    left: bool


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Leave the view at once, or end the join.

    Args:
        view_id: of the other primary partition, to which this one gives way; None: nobody can reach this member.
        reason: as text.
        cause: of ``Excluded``.
    """

    view_id: ViewId | None
    reason: str
    cause: str = ""


CONTINUED = "the group continued as [{}]: join again"
UNLED = "all members that are not observers are gone or cannot be reached, and observers do not go on alone: join again"


@dataclass(frozen=True, slots=True)
class Over:
    """The lifecycle has ended: left, or the join failed; ``cause``: see ``Refused``."""

    error: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Leave the view at once, without telling the others."""


@dataclass(frozen=True, slots=True)
class TellBlocked:
    """From here on the application may not send to the group: "flush", "pause" or "minority", and why."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class OpenPause:
    """Sends that a pause stopped may continue, unless the gate is closed for a view."""

    reason: str


@dataclass(frozen=True, slots=True)
class TellInterface:
    """Report this to the application, in its place in the delivery stream."""

    change: InterfaceChanged


@dataclass(frozen=True, slots=True)
class CallbackOver:
    """The block callback returned, or its deadline is over: nobody waits any longer."""


@dataclass(frozen=True, slots=True)
class TokenRemade:
    """The ring's token was lost or is late: this member has sent one of a new generation (E-21)."""

    generation: int


ViewChange = Install | CloseView | GiveWay | Over | Abandon
"""Commands for the installer, which runs them once earlier frames have been sent."""

Command = (
    Unicast
    | Multicast
    | Announce
    | TellBlocked
    | OpenPause
    | TellInterface
    | CallbackOver
    | TokenRemade
    | LeaveGroup
    | ViewChange
)
"""Commands of the machines to the core itself. ``LeaveGroup``: as if given as the next input."""
