"""Enters and leaves views: for the engine, the machines and the application, in one step."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from seqcast.core.context import Context
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import ITSELF, NewView
from seqcast.core.log import LogLines
from seqcast.core.losses import Losses
from seqcast.core.machines.initiator import InitiatorEvent
from seqcast.core.machines.lifecycle import LifecycleEvent
from seqcast.core.machines.pause_owner import PauseOwner
from seqcast.core.markers import Markers
from seqcast.core.rules.cut import apart, view_of
from seqcast.core.vocabulary import (
    CONTINUED,
    UNLED,
    Abandon,
    CloseView,
    ExcludedBy,
    GiveWay,
    Install,
    JoinFailed,
    Keep,
    Left,
    Over,
    ViewChange,
    ViewInstalled,
)
from seqcast.core.wiring import Machines
from seqcast.events import Excluded, Lost
from seqcast.types import View, ViewId

DEPARTED_MAX = 1024
SLOW = (
    "slow: the application of this member took messages much slower than most others, and held senders up for slow_s; "
    "the group continued as [{}]: take messages faster (recv_batch), and join again"
)


UNLISTED = (
    "identity: the line for this member's identity is gone from the list of members (authorized=), or has run out; the "
    "group continued as [{}]"
)


class Out(NamedTuple):
    """Why the others excluded this member: for people, with room for their names, and for programs."""

    text: str
    cause: str


class Installer:
    def __init__(self, context: Context, machines: Machines, markers: Markers, log: LogLines) -> None:
        self.context, self.machines, self.markers, self.log = context, machines, markers, log
        self.losses = Losses(context, machines.lineage)
        self._left = Left()
        self._entered: dict[int, View] = {}  # by tag: the view that the engine is in, and the one before

    def view_tagged(self, tag: int) -> View | None:
        """The view that the engine is in, by its tag, or the one before. May be called from any thread."""
        return self._entered.get(tag)

    def carry_out(self, command: ViewChange) -> None:
        match command:
            case Install():
                self.install(command.frame, command.first)
            case CloseView():
                self._close_view(command.frame, command.left)
            case GiveWay():
                self._give_way(command.view_id, command.reason, command.cause)
            case Abandon():
                self._abandon()
            case Over(error, cause):
                self._abandon()
                self.context.hand_out(JoinFailed(error, cause) if error else self._left)

    # ---- into a view

    def install(self, frame: NewView, first: bool) -> None:
        context, machines, old = self.context, self.machines, self.context.view
        view, why = view_of(frame), machines.membership.reasons()
        assert old is None or view.view_id > old.view_id, f"{view.view_id} after {old.view_id}"
        lost = self.losses.leave_behind(frame)
        told = self.markers.new_coordinator(view, old)
        marker = self.markers.add(view, *told, *self.markers.unblocked("the view was installed"), *lost)
        self._entered = dict([*list(self._entered.items())[-1:], (view.view_id.tag, view)])
        context.providers = frame.providers  # before the marker can be delivered
        machines.taker.view(frame)
        self._install_engine(frame, view, first, marker)
        if frame.root == ITSELF:  # nobody else can have gone on from there
            context.severed = ITSELF
        elif context.allowed is not None:  # a VIEW that was accepted before: the others may have entered that, too
            context.severed = view.view_id.tag
        context.view, context.allowed, context.history = view, None, frame.history
        before, context.entered = context.entered, frame
        self._note_departed(frame)
        gone = [info for info in context.infos.values() if not frame.has(info.id)]
        machines.book.former([info.address for info in gone if self.enters_book(info)], context.now)
        context.infos = {info.id: info for info in frame.members}
        self._renew_machines(frame, old)
        if context.settings.stable:
            context.hand_out(Keep(machines.keeper.entered(frame)))
        change, took_ns = self.log.installed(old, view, frame, why)
        context.hand_out(ViewInstalled(view, frame.founding > 0, change, took_ns))
        if before is not None and before.packet_bytes != frame.packet_bytes:
            self.log.resized(frame.packet_bytes, before.packet_bytes)
        machines.blocker.opened()
        machines.pause_owner.view()

    def enters_book(self, member: MemberInfo) -> bool:
        """Is the address of this member of our view remembered after its end?"""
        settings = self.context.settings
        return settings.book and (settings.unicast or member.id in self.context.alone)

    def _install_engine(self, frame: NewView, view: View, first: bool, marker: int) -> None:
        me, secrets = self.context.me.id, self.context.secrets
        if secret := secrets.of(frame) or b"":
            secrets.entered(secret)
        self.context.plane.install(
            tag=view.view_id.tag,
            ids=[member.id for member in view.members],
            addresses=[member.address for member in view.members],
            rank=view.rank(me),
            mechanism=frame.mechanism,
            sequencer=view.sequencer,
            window_bytes=frame.window,
            share_bytes=frame.share,
            room_bytes=frame.room,
            forward_window_bytes=frame.forward_window,
            unicast_window_bytes=frame.unicast_window,
            state_window_bytes=frame.state_window,
            packet_bytes=frame.packet_bytes,
            path_bytes=self.context.settings.path_bytes,
            base=frame.base,
            origin_base=frame.origin_base,
            cut=None if first else frame.cut,
            marker=marker,
            now_ns=self.context.now,
            safe=self.context.settings.safe,
            apart=apart(frame, me),
            fell=None if first else self._fell(frame),
            secret=secret,
            cipher=frame.cipher,
        )

    def _fell(self, frame: NewView) -> list[bool]:
        """By rank in our view: did the member fall?"""
        return [member.id not in frame.survivors for member in self.context.members]

    def _note_departed(self, frame: NewView) -> None:
        departed = self.context.departed
        departed.update(dict.fromkeys(frame.departed))
        departed.update(dict.fromkeys(self.context.infos))
        for info in frame.members:
            departed.pop(info.id, None)
        while len(departed) > DEPARTED_MAX:
            del departed[next(iter(departed))]

    def _renew_machines(self, frame: NewView, old: View | None) -> None:
        machines = self.machines
        fell = [member.id for member in old.members if member.id not in frame.survivors] if old else []
        mute = machines.membership.estranged(fell)
        estranged = [member for member in old.members if member.id in mute] if old else []
        machines.renew(keep=True)
        machines.membership.installed()
        machines.initiator.fire(InitiatorEvent.VIEW)
        machines.informer.installed()
        machines.merger.installed(merged=bool(frame.subgroups), lost=fell, estranged=estranged)

    # ---- outside

    def _close_view(self, frame: NewView, left: bool) -> None:
        view, machines = view_of(frame), self.machines
        lost = self.losses.closed_without_us(frame, left)
        names = ", ".join(member.name for member in view.members)
        if left:
            self._left = self._stop(frame, lost, Left(view, complete=True))
            self.log.left(view)
            machines.end_lingering()
        elif self.context.me.observer and not frame.members:
            self._exclude(
                view.view_id, UNLED, lost, "unled", frame if machines.participant.may_install(frame) else None
            )
        elif out := self._why_out(frame):
            whole = machines.participant.may_install(frame)
            self._exclude(view.view_id, out.text.format(names), lost, out.cause, frame if whole else None)
        else:
            self._exclude(view.view_id, CONTINUED.format(names), lost)

    def _why_out(self, frame: NewView) -> Out | None:
        """Why we survive the cut of a VIEW that does not have us, without having asked to leave; None: that is not
        so."""
        context, me = self.context, self.context.me.id
        if me not in frame.survivors or frame.has(me):
            return None
        if context.settings.puts_out and not context.identities.bars(context.me):
            return Out(SLOW, "slow")
        return Out(UNLISTED, "identity") if context.identities.used else None

    def _give_way(self, view_id: ViewId | None, reason: str, cause: str) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.GIVE_WAY, reason)
        if self.context.view is not None:
            self._exclude(view_id or self.context.view.view_id, reason, self.losses.uncertain(), cause)

    def _exclude(
        self, view_id: ViewId, reason: str, lost: list[Lost], cause: str = "", frame: NewView | None = None
    ) -> None:
        """``frame``: the VIEW up to whose cut we have everything, if we survive that."""
        self._stop(frame, lost, Excluded(view_id, reason, cause))
        self.context.hand_out(ExcludedBy(view_id, reason, cause))
        self.log.excluded(reason)

    def _abandon(self) -> None:
        """Leaves the view, if we are in one, without telling the others."""
        if self.context.view is not None:
            self._left = self._stop(None, self.losses.uncertain(), Left())

    def _stop(self, frame: NewView | None, lost: list[Lost], end: Excluded | Left) -> Left:
        """Closes the view for good; the stream ends with the losses, and ``end``, which is returned if we left.

        Args:
            frame: the VIEW up to whose cut messages are delivered; None: no more are.
        """
        context, machines = self.context, self.machines
        self.markers.forget_block()
        machines.pause_owner = PauseOwner(context)
        lost = lost + self.losses.unsent()
        if isinstance(end, Left) and lost:
            end = replace(end, complete=False)
        cut, fell = (frame.cut, self._fell(frame)) if frame else (None, None)
        context.plane.close_view(cut, self.markers.add(*lost, end), fell)
        context.view = context.allowed = context.entered = None
        context.severed = ITSELF
        context.providers = ()
        machines.initiator.fire(InitiatorEvent.VIEW)
        machines.renew()
        return end if isinstance(end, Left) else Left()
