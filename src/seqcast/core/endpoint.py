"""The one door to the control plane of one member: ``step(inputs, now_ns)`` gives what is to be done.

The endpoint owns the engine's control side and the machines of ``machines/``: it takes control frames from the engine,
hands each to the machine that it is for, and does what they order. It does no I/O: after a step the world transmits
what the engine has. All its methods but ``marker`` are called by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from seqcast.core.context import NEVER, Context, EndpointSettings
from seqcast.core.frames.codec import clipped
from seqcast.core.frames.kinds import (
    PROTOCOL_VERSION,
    WAIT_BYTES_MAX,
    Accepted,
    Beacon,
    Block,
    BlockedSide,
    BlockOk,
    Cut,
    Declined,
    Done,
    Frame,
    Installed,
    Join,
    Leave,
    MemberInfo,
    MergeAsk,
    MergeCancel,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
    NewView,
    Ok,
    OtherVersion,
    Promised,
    Propose,
    Refused,
    Resume,
    Resumed,
    Side,
    Start,
    StateWanted,
    Suspend,
    Suspended,
    Unblock,
    Wait,
    dump,
    load,
)
from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.initiator import Attempting, AttemptInput, Initiator
from seqcast.core.machines.lifecycle import Lifecycle, LifecycleEvent
from seqcast.core.machines.membership import Membership
from seqcast.core.machines.merge import COUNTER_STEP_MAX, Merger
from seqcast.core.machines.participant import Participant
from seqcast.core.machines.pause_member import PauseMember
from seqcast.core.machines.pause_owner import PauseOwner
from seqcast.core.machines.state import StateTaker
from seqcast.core.orders import by_name
from seqcast.core.port import EnginePort
from seqcast.core.rules.cut import apart, view_of
from seqcast.core.rules.lineage import Lineage, last_delivered
from seqcast.core.rules.quorum import Allowance
from seqcast.core.story import Story
from seqcast.core.table import Edge
from seqcast.core.vocabulary import (
    CallbackOver,
    CallbackReturned,
    CloseGroup,
    CloseView,
    CutReached,
    Effect,
    ExcludedBy,
    FrameReceived,
    GiveWay,
    Input,
    Install,
    InterfaceNews,
    JoinFailed,
    JoinGroup,
    LeaveGroup,
    Left,
    LinksChanged,
    Meaning,
    MemberAlive,
    MemberStarved,
    MemberSuspected,
    Minority,
    Multicast,
    OpenPause,
    Over,
    PauseGroup,
    PauseOver,
    ResumeGroup,
    Send,
    SendsDrained,
    SlabsExhausted,
    StateArrived,
    StateRefused,
    TellBlocked,
    ViewInstalled,
    Warn,
)
from seqcast.errors import RemoteProtocolError
from seqcast.events import Blocked, Excluded, Lost, Unblocked
from seqcast.types import Member, View, ViewId

_DEPARTED_MAX = 1024
STARVED = (
    "datagrams are dropped, as all slabs are in use: what was delivered is not taken for a long time, or slabs_max is "
    "too small for so many members. Take messages faster, or raise slabs_max: while it lasts everyone waits for this "
    "member, which is excluded when it takes nothing for suspect_s_max"
)
_TO_ONE = BlockOk | Ok | Accepted | Promised | Installed | Declined | Wait | Refused | Suspended | Resumed | BlockedSide
_TIMED = ("_lifecycle", "_blocker", "_pause_member", "_pause_owner", "_participant", "_initiator", "_merger", "_taker")


class Endpoint:
    """The control plane of one incarnation of one member.

    Args:
        engine: made for ``me.id``.
        me: name, id and unicast address.
        cluster: the group's name.
        settings: times and what this member tells of itself.
    """

    def __init__(self, engine: EnginePort, me: Member, cluster: str, settings: EndpointSettings) -> None:
        info = MemberInfo(
            me.name,
            me.id,
            me.address,
            settings.capacity,
            settings.packet_bytes,
            settings.window_bytes,
            settings.gro,
            settings.state,
            settings.blocks,
        )
        self.engine = engine
        self.context = Context(info, cluster, settings, engine)
        self.counters = self.context.counters
        """``COUNTERS``, all from the start: frames_received, frames_sent, frames_bad (dropped), frames_unsent (the
        engine's queue was full), callbacks_failed (raised), callbacks_late (returned after their deadline),
        members_slow (members excluded because they had no room left for what they receive),
        members_lost (members that did not come along into the next view), membership_policy_failed (its order was not
        used), links_cut (links that carry no multicast and were warned of), merges_unheard (requests to merge by a
        coordinator whose beacon was not heard: not answered), joiners_declined (joiners that our view names and that
        entered another view before)."""
        self._lifecycle = Lifecycle(self.context)
        self.story = Story(self.context)
        self._taker = StateTaker(self.context)
        self._blocker = Blocker(self.context)
        self._pause_owner = PauseOwner(self.context)
        self._lineage = Lineage(me.id)
        self._initiator: Initiator
        self._merger: Merger
        self._reset()
        self._effects: list[Effect] = []
        self._markers: dict[int, tuple[Meaning, ...]] = {}
        self._marker = 0
        self._blocked = ""  # kind of the `Blocked` that the application was told last, until `Unblocked`
        self._left = Left()
        self._unshared: list[Lost] | None = None  # since the others fell: what nobody else is known to have delivered
        self._entering: dict[int, View] = {}  # by tag: the view that the engine is in, and the one before
        self._entered: NewView | None = None  # the VIEW frame of our view

    # ---- the door

    @property
    def view(self) -> View | None:
        return self.context.view

    @property
    def over(self) -> bool:
        """The endpoint has left, was excluded or refused, or is closed."""
        return self._lifecycle.over

    @property
    def edges(self) -> set[Edge]:
        """The rows of the machines' tables that were taken so far."""
        return self.context.edges

    def closed_by(self, view: View) -> NewView | None:
        """The VIEW that closed one of the last views of this member; None: it is open, or forgotten."""
        return self._lineage.closed.get(view.view_id.tag)

    def marker(self, marker_id: int) -> tuple[Meaning, ...]:
        """What a marker of ``engine.deliver`` means, in order; asked for once. May be called from any thread."""
        return self._markers.pop(marker_id)

    def view_tagged(self, tag: int) -> View | None:
        """The view that the engine is in, by its tag, or the one before. May be called from any thread."""
        return self._entering.get(tag)

    def joiners_of(self, tag: int) -> tuple[int, ...]:
        """To whom this member has to give the state that it has at the beginning of the view with this tag. May be
        called from any thread."""
        me = self.context.me.id
        return tuple(p.joiner for p in self.context.providers if p.provider == me and p.boundary == tag)

    def deadline(self) -> int:
        """Monotonic ns at which a step is due though nothing came; 2**63 - 1: none is."""
        machines = [getattr(self, name) for name in (*_TIMED, "_membership")]
        return NEVER if self.over else min(machine.due() for machine in machines)

    def step(self, inputs: Sequence[Input], now_ns: int) -> list[Effect]:
        """Takes what came since the last step, in order; returns what is to be done about it, in order.

        Args:
            inputs: none, where only time has passed.
            now_ns: monotonic ns, never less than before.
        """
        self.context.now = now_ns
        if not inputs and now_ns < self.deadline():
            return []
        for each in inputs:
            _TAKES[type(each)](self, each)
            self._obey()
        for name in _TIMED:
            machine = getattr(self, name)  # looked up late: one may install a view, which has machines of its own
            if not self.over and now_ns >= machine.due():
                machine.run_timers()
                self._obey()
        self._lifecycle.review()
        self._obey()
        self._review()
        effects, self._effects = self._effects + self.story.take(), []
        return effects

    # ---- inputs: the application, and the runner

    def _join_group(self, _: JoinGroup) -> None:
        self._lifecycle.fire(LifecycleEvent.BEGIN)

    def _close_group(self, _: CloseGroup) -> None:
        self._lifecycle.fire(LifecycleEvent.CLOSE)
        self._abandon()

    def _leave_group(self, leave: LeaveGroup) -> None:
        self._lifecycle.fire(LifecycleEvent.LEAVE, leave.drain_ns)

    def _resume_group(self, resume: ResumeGroup) -> None:
        self._pause_owner.resume(resume.request)

    def _callback_returned(self, returned: CallbackReturned) -> None:
        self._blocker.returned(returned.run, returned.trouble)

    def _state_arrived(self, arrived: StateArrived) -> None:
        self._taker.arrived(arrived.boundary)

    def _state_refused(self, refused: StateRefused) -> None:
        self._taker.refused(refused.boundary, refused.reason)

    def _pause_group(self, event: PauseGroup) -> None:
        if self.context.view is None:
            self._effects.append(PauseOver(event.request, "this member is in no view"))
        else:
            self._pause_owner.suspend(event.request, event.timeout_ns)

    def _interface(self, event: InterfaceNews) -> None:
        """Told in the stream, between what was delivered before and after."""
        if self.context.view is None:
            return
        self.engine.mark(self._next_marker(event.change))
        if event.lost:
            self._give_way(self.context.view.view_id, event.change.reason)

    # ---- inputs: the engine

    def _member_suspected(self, report: MemberSuspected) -> None:
        self.story.suspected(report.member)
        self._membership.suspect(report.member)

    def _member_alive(self, report: MemberAlive) -> None:
        self.story.alive(report.member)
        self._membership.trust(report.member)

    def _links_changed(self, _: LinksChanged) -> None:
        self._membership.links_changed()

    def _slabs_exhausted(self, _: SlabsExhausted) -> None:
        self.context.emit(Warn(STARVED))

    def _member_starved(self, report: MemberStarved) -> None:
        self._membership.starves(report.member)

    def _cut_reached(self, _: CutReached) -> None:
        self._participant.reached()

    def _sends_drained(self, _: SendsDrained) -> None:
        """The lifecycle looks at the end of each step: a view change may have come in between."""

    # ---- frames in

    def _receive(self, received: FrameReceived) -> None:
        self.counters["frames_received"] += 1
        try:
            frame = load(received.payload)
            self._dispatch(frame, received.sender, received.address)
        except RemoteProtocolError:
            self.counters["frames_bad"] += 1

    def _dispatch(self, frame: Frame, sender: int, address: bytes = b"") -> None:
        tag = self.context.tag
        self.story.received(frame, sender)
        match frame:
            case Join() if sender == frame.info.id:
                if frame.info.address != address:
                    raise RemoteProtocolError("JOIN: it names another address than that from which it comes")
                self._join(frame)
            case OtherVersion() if tag and self._membership.acting():
                reason = f"the group speaks protocol version {PROTOCOL_VERSION}, not {frame.version}: use one release"
                self.context.send(Refused(reason, "version", frame.nonce), sender, address)
            case OtherVersion() if not tag:
                self._lifecycle.heard_joiner(sender)  # the one with the lower id forms the group, and refuses the other
            case Wait() if frame.nonce == self.context.settings.nonce:
                self._lifecycle.heard_group(frame.blocked)
            case Refused() if frame.nonce == self.context.settings.nonce:
                self._lifecycle.fire(LifecycleEvent.REFUSED, frame)
            case Leave() if frame.view == tag:
                self._membership.leave(sender)
            case Block() if tag and frame.view == tag:
                self._participant.block(frame, sender)
                self._end_pauses()
            case BlockOk():
                self._initiator.block_ok(frame, sender)
            case Start() if tag and frame.view == tag:
                if self.context.primary:
                    self._membership.lives(sender)
                self._participant.start(frame, sender)
                self._end_pauses()
                if self.context.me.id not in frame.survivors and not self.context.enough(frame.survivors):
                    self._participant.show_life(frame, sender)
                    self._membership.call(sender)
            case Suspend() if tag and frame.view == tag and sender in self.context.infos:
                self._pause_member.suspend(frame, sender)
            case Suspended() if tag and frame.view == tag:
                self._pause_owner.suspended(frame, sender)
            case Resume() if tag and frame.view == tag and sender in self.context.infos:
                self._pause_member.resume(frame, sender)
            case Resumed() if tag and frame.view == tag:
                self._pause_owner.resumed(frame, sender)
            case Block() | Start() if self._lineage.was_in(frame.view, sender, address):
                self.context.send(replace(self._lineage.closed[frame.view], answers=frame.attempt), sender, address)
            case Ok():
                self._initiator.ok(frame, sender)
            case Accepted():
                self._initiator.note_accepted(frame, sender)
            case Promised():
                self._initiator.promised(frame, sender)
            case Cut() if tag and frame.view == tag:
                self._participant.cut(frame, sender)
            case Propose() if tag and frame.view == tag:
                self._participant.propose(frame, sender)
            case Done() if tag and frame.view == tag:
                self._initiator.done(frame, sender)
            case Done() if self._lineage.was_in(frame.view, sender, address):
                self._serve(frame, sender, address)
            case NewView():
                self._new_view(frame, sender, address)
            case StateWanted() if tag and frame.view == tag:
                self._membership.want(sender)
            case Installed():
                self._initiator.installed(frame, sender)
                if self._initiator.state is Attempting.IDLE:
                    self._lifecycle.fire(LifecycleEvent.SERVED)
            case Declined() if tag and frame.view == tag and self._initiator.awaits_joiner(sender):
                self._membership.decline(sender)
            case Beacon() if sender != self.context.me.id:
                self._beacon(frame, sender, address)
            case Unblock() if frame.cluster == self.context.cluster:
                self._unblock(frame, sender, address)
            case MergeAsk() | MergeRefused() | MergeReady() | MergeGo() | MergeTaken() | MergeCancel():
                self._merger.receive(frame, sender, address)

    def _beacon(self, frame: Beacon, sender: int, address: bytes) -> None:
        tag = frame.view_id.tag
        if self._lifecycle.seeking:
            self._lifecycle.heard_group()
        elif tag == self.context.tag:
            self._membership.seen_here(sender)
        elif self._lineage.entered(tag):  # it is behind, or was left out: it can learn so
            if self._membership.acting() and self._lineage.was_in(tag, sender, address):
                self.context.send(self._lineage.closed[tag], sender, address)
        elif self.context.view is not None:
            self._merger.beacon(frame, sender, address)

    def _unblock(self, frame: Unblock, sender: int, address: bytes) -> None:
        """An operator asks who is blocked as a minority, or allows one side to go on (the cut, step 9)."""
        context, participant = self.context, self._participant
        gated = context.view is not None and not self.over and participant.promised
        if not gated or (context.enough(participant.survivors) and context.allowed is None):
            return
        side = Side(context.tag, participant.promise)
        # Who was allowed once, and lost the majority of those, can be allowed again, with whom it reaches now.
        if frame.side == side and not context.enough(participant.survivors):
            context.allowed = Allowance(participant.promise, participant.survivors)
            self._effects.append(Warn("an operator allowed this side of the group to go on without the others"))
        reached = [member.name for member in context.members if member.id in participant.survivors]
        missing = [member.name for member in context.members if member.id not in participant.survivors]
        allowed = context.allowed is not None and context.enough(participant.survivors)
        answer = BlockedSide(frame.request, side, context.me.name, tuple(reached), tuple(missing), allowed)
        context.send(answer, sender, address)

    def _end_pauses(self) -> None:
        """The view begins to close, which ends its pauses (the cut, step 6)."""
        closed = self._participant.promised
        if self._participant.closing:
            self._pause_member.close(closed)
        if closed:
            self._pause_owner.close()

    def _join(self, frame: Join) -> None:
        """A joiner: served the view if it is in, else noted; the answer comes from one member after the other."""
        context, joiner = self.context, frame.info
        if self.over:  # whoever seeks a group must not wait for us
            return
        if context.view is None:
            if joiner.id != context.me.id:
                self._lifecycle.heard_joiner(joiner.id)
                self._membership.join(frame)  # in case the first view is ours
            return
        turn = frame.tries % len(context.members) == context.rank
        if joiner.id in context.infos:
            if turn and self._entered is not None and joiner.id != context.me.id:
                context.send(self._entered, joiner.id)
            return
        refusal = self._membership.join(frame)
        acting = self._membership.acting()
        if acting and refusal:
            context.send(refusal, joiner.id, joiner.address)
        elif acting or turn:
            blocked = clipped(self._participant.minority, WAIT_BYTES_MAX)
            context.send(Wait(context.tag, blocked, frame.nonce), joiner.id, joiner.address)

    def _serve(self, frame: Done, sender: int, address: bytes) -> None:
        """Somebody waits for a VIEW that we have: the first member that can serves it."""
        closed = self._lineage.closed[frame.view]
        others = (info.id for info in closed.members if info.id not in self._membership.suspected and info.id != sender)
        first = next(others, 0) == self.context.me.id
        if frame.attempt == closed.attempt and (first or closed.view_id.flush[1] == self.context.me.id):
            self.context.send(closed, sender, address)

    def _new_view(self, frame: NewView, sender: int, address: bytes) -> None:
        context, me = self.context, self.context.me.id
        closed = self._lineage.closed.values()
        if frame.view_id.tag in (context.tag, *(each.view_id.tag for each in closed)):
            if sender != me:
                context.send(Installed(frame.view_id.tag), sender, address)
        elif self._lifecycle.seeking:
            if frame.has(me):
                self._lifecycle.fire(LifecycleEvent.VIEW, frame)
                context.send(Installed(frame.view_id.tag), sender, address)
        elif context.view is None or frame.closes != context.view.view_id:
            # Two groups took us in. (In a merged view we may be as a member of another subgroup: its VIEW is to come.)
            if context.view is not None and frame.has(me) and me not in frame.survivors and not frame.subgroups:
                context.send(Declined(frame.view_id.tag), sender, address)
        elif sender not in context.infos:  # a member that serves a VIEW was in the view that it closes
            raise RemoteProtocolError("VIEW: from a stranger")
        elif frame.view_id.counter > context.view.view_id.counter + COUNTER_STEP_MAX:
            raise RemoteProtocolError("VIEW: its counter is far above that of the view that it closes")
        elif len(frame.cut) != len(context.members):
            raise RemoteProtocolError("VIEW: the cut is not by rank of the view it closes")
        elif frame.answers is not None and (frame.has(me) or sender in self._initiator.survivors):
            if context.primary and frame.has(me) and not self._participant.holds(frame):
                if frame.answers == self._initiator.attempt:  # decided without us, and what we lack is with them
                    self._left_out(frame, sender, address)
                return
            if frame.has(me):
                self._participant.check_held(frame)
            else:  # whatever becomes of us, it is not in our position: another attempt does without it
                self._membership.went_on([sender])
            self._initiator.newer(frame)
        elif not frame.has(me) and not (me in frame.survivors and self._lifecycle.leaving):
            self._left_out(frame, sender, address)
        elif self._participant.may_install(frame):
            self._lifecycle.fire(LifecycleEvent.VIEW if frame.has(me) else LifecycleEvent.LEFT, frame)
            context.send(Installed(frame.view_id.tag), sender, address)

    def _left_out(self, frame: NewView, sender: int, address: bytes) -> None:
        """Others closed our view without us (the cut, step 8): on with those in the same position, until both merge."""
        context = self.context
        if context.primary or self._lifecycle.leaving:
            self._lifecycle.fire(LifecycleEvent.EXCLUDED, frame)
            return
        assert context.view is not None
        self._membership.went_on([*frame.survivors, *(info.id for info in frame.members)])
        if frame.answers is not None:  # its sender has left the view
            self._membership.went_on([sender])
        self._lineage.went_on(context.view, frame)
        context.send(Installed(frame.view_id.tag), sender, address)

    # ---- the coordinator's duty

    def _review(self) -> None:
        while self.context.view is not None:
            initiator, membership = self._initiator, self._membership
            initiator.review()
            if initiator.state is not Attempting.IDLE and self._participant.promise > initiator.attempt:
                initiator.fire(AttemptInput.OVERTAKEN)
            backing_off = initiator.state is Attempting.BACKING_OFF
            waited_for, passing_on = initiator.waited_for, initiator.passing_on
            if passing_on:  # of those that are gone or silent nobody waits
                doubted = membership.doubted()
                waited_for = tuple(member for member in waited_for if member not in doubted)
                passing_on = bool(waited_for)
            review = membership.review(
                initiator.running or passing_on, waited_for, backing_off, initiator.too_few
            )
            self._obey()
            if not review.begins:
                self._merger.review()
                self._obey()
                return
            initiator.initiate(review.survivors)
            self._obey()

    # ---- what the machines emit

    def _obey(self) -> None:
        """Carries out what the machines emitted, in that order; frames for ourselves are dispatched here."""
        emitted = self.context.emitted
        while emitted:
            what = emitted.popleft()
            match what:
                case Send():
                    if what.member_id == self.context.me.id:
                        self._dispatch(what.frame, what.member_id, what.address)
                    else:
                        self._transmit(what.frame, what.address)
                case Multicast():
                    self._transmit(what.frame, b"")
                    self._dispatch(what.frame, self.context.me.id, self.context.me.address)
                case Install():
                    self._install(what.frame, what.first)
                case CloseView():
                    self._close_view(what.frame, what.left)
                case GiveWay():
                    self._give_way(what.view_id, what.reason)
                case Over():
                    self._abandon()
                    self._effects.append(JoinFailed(what.error, what.cause) if what.error else self._left)
                case TellBlocked():
                    self._tell_blocked(what.kind, what.reason)
                case OpenPause():
                    self._open_pause(what.reason)
                case CallbackOver():
                    self._participant.returned()
                case _:
                    self.story.effect(what)
                    self._effects.append(what)

    def _transmit(self, frame: Frame, address: bytes) -> None:
        assert address or not isinstance(frame, _TO_ONE), "no address"
        self.counters["frames_sent"] += 1
        self.story.sent(frame, address)
        if not self.engine.control_send(dump(frame), address):
            self.counters["frames_unsent"] += 1

    def _install(self, frame: NewView, first: bool) -> None:
        context, old = self.context, self.context.view
        view, why = view_of(frame), self._membership.reasons()
        assert old is None or view.view_id > old.view_id, f"{view.view_id} after {old.view_id}"
        lost = self._leave_behind(frame)
        marker = self._next_marker(view, *self._unblocked("the view was installed"), *lost)
        self._entering = dict([*list(self._entering.items())[-1:], (view.view_id.tag, view)])
        context.providers = frame.providers  # before the marker can be delivered
        self._taker.view(frame)
        self.engine.install(
            tag=view.view_id.tag,
            ids=[member.id for member in view.members],
            addresses=[member.address for member in view.members],
            rank=view.rank(context.me.id),
            mechanism=frame.mechanism,
            sequencer=view.sequencer,
            window_bytes=frame.window,
            forward_window_bytes=frame.forward_window,
            unicast_window_bytes=frame.unicast_window,
            state_window_bytes=frame.state_window,
            packet_bytes=frame.packet_bytes,
            base=frame.base,
            origin_base=frame.origin_base,
            cut=None if first else frame.cut,
            marker=marker,
            now_ns=context.now,
            apart=apart(frame, context.me.id),
        )
        context.view, context.allowed, context.history = view, None, frame.history
        context.departed.update(dict.fromkeys(frame.departed))
        context.departed.update(dict.fromkeys(context.infos))
        for info in frame.members:
            context.departed.pop(info.id, None)
        while len(context.departed) > _DEPARTED_MAX:
            del context.departed[next(iter(context.departed))]
        context.infos = {info.id: info for info in frame.members}
        self._entered = frame
        machine = self._initiator
        self._reset(machine, self._membership)
        self._membership.installed()
        machine.fire(AttemptInput.VIEW)
        lost_members = [member.id for member in old.members if member.id not in frame.survivors] if old else []
        self._merger.installed(merged=bool(frame.subgroups), lost=lost_members)
        self._effects.append(ViewInstalled(view))
        self.story.installed(old, view, frame, why)
        self._blocker.opened()
        self._pause_owner.view()

    def _reset(self, initiator: Initiator | None = None, before: Membership | None = None) -> None:
        """Fresh machines for a new view; the initiator stays, it may be serving the VIEW.

        Args:
            before: the membership of the view before, whose joiners and leavers stay.
        """
        self._participant = Participant(self.context, self._blocker)
        self._pause_member = PauseMember(self.context, self._blocker)
        self._membership = Membership(self.context, self._participant, before)
        if initiator is None:
            self._initiator = Initiator(self.context, self._participant, self._membership, self._lineage)
            self._merger = Merger(self.context, self._initiator, self._lineage)
        else:
            initiator.participant, initiator.membership = self._participant, self._membership
        self._merger.membership = self._membership

    def _close_view(self, frame: NewView, left: bool) -> None:
        view = view_of(frame)
        assert self.context.view is not None
        self.engine.gate_close()  # the open packet counts
        lost = self._undelivered(last_delivered(self.context.view, frame, self.context.rank), view.view_id)
        if left and frame.survivors == (self.context.me.id,):  # there is nobody else, by now or for long
            lost = self._alone(frame, True)
        self._leave_behind(frame)
        if left:
            self._left = self._stop(frame.cut, lost, Left(view, complete=True))
            self.story.left(view)
            if self._initiator.state is Attempting.IDLE:
                self._lifecycle.fire(LifecycleEvent.SERVED)
        else:
            names = ", ".join(member.name for member in view.members)
            self._exclude(view.view_id, f"the group went on as [{names}]: join again", lost)

    def _give_way(self, view_id: ViewId, reason: str) -> None:
        self._lifecycle.fire(LifecycleEvent.GIVE_WAY)
        if self.context.view is not None:
            self._exclude(view_id, reason, self._uncertain())

    def _exclude(self, view_id: ViewId, reason: str, lost: list[Lost]) -> None:
        self._stop(None, lost, Excluded(view_id, reason))
        self._effects.append(ExcludedBy(view_id, reason))
        self.story.excluded(reason)

    def _abandon(self) -> None:
        """Out of the view without the others' knowledge, if we are in one."""
        if self.context.view is not None:
            self._left = self._stop(None, self._uncertain(), Left())

    def _stop(self, cut: tuple[int, ...] | None, lost: list[Lost], end: Excluded | Left) -> Left:
        """Closes the view for good; the stream ends with what is lost, and ``end``, which is returned if we left."""
        assert self.context.view is not None
        view_id = self.context.view.view_id
        self._blocked = ""
        self._pause_owner = PauseOwner(self.context)
        lost = lost + self._unacknowledged(())
        if unsent := self.engine.blocked_end():
            lost.append(Lost(view_id, 0, 0, None, unsent, unsent))
        if isinstance(end, Left) and lost:
            end = replace(end, complete=False)
        self.engine.close_view(cut, self._next_marker(*lost, end))
        self.context.view = self.context.allowed = None
        self.context.providers = ()
        self._entered = None
        self._initiator.fire(AttemptInput.VIEW)
        self._reset(self._initiator)
        return end if isinstance(end, Left) else Left()

    # ---- what became of the messages that were sent here

    def _undelivered(
        self, after: int, missed_by: ViewId | None, last: int | None = None, waiting: bool = False
    ) -> list[Lost]:
        """Of the messages that were sent to the group in our view: those in own packets behind ``after``, up to
        ``last`` or the last one; with ``waiting`` also the large one whose send waits until it is ordered."""
        assert self.context.view is not None
        own = self.engine.own()
        last = own.last if last is None else min(last, own.last)
        begin = max(after, own.first)  # `after` is what a frame says
        count = self.engine.own_messages(begin + 1, last, waiting)[-1] if last > begin else 0
        return [Lost(self.context.view.view_id, after + 1, last, missed_by, messages=count)] if count else []

    def _uncertain(self) -> list[Lost]:
        """All that was sent in our view and that not all others are known to have, as we go without asking them."""
        self.engine.gate_close()  # the open packet counts
        return self._undelivered(self.engine.own().all, None)

    def _unacknowledged(self, stay: Collection[int]) -> list[Lost]:
        """What was sent to each member of our view alone and not acknowledged, but for those who ``stay`` with us."""
        view = self.context.view
        assert view is not None
        return [
            Lost(view.view_id, 0, 0, None, messages=count, to=member)
            for member, count in zip(view.members, self.engine.unacknowledged(), strict=True)
            if count and member.id not in stay
        ]

    def _alone(self, frame: NewView, leaves: bool) -> list[Lost]:
        """What nobody else is known to have delivered when a VIEW ends our view without anybody else: of all that was
        sent since others fell, which may live behind a cut network. Where they all left nobody lacks anything. What
        no sequencer has put in order is sent again in the next view, unless this member leaves."""
        view = self.context.view
        assert view is not None
        own = self.engine.own()
        if len(view.members) == 1:
            return [] if self._unshared is None else self._unshared + self._undelivered(own.first, None)
        last = last_delivered(view, frame, self.context.rank)
        return self._undelivered(min(own.any, last), None, None if leaves else last)

    def _next_marker(self, *meaning: Meaning) -> int:
        """Registered before the engine has it: another thread delivers."""
        self._marker += 1
        self._markers[self._marker] = meaning
        return self._marker

    # ---- what the application is told of its gate

    def _tell_blocked(self, kind: str, reason: str) -> None:
        """Of a minority everyone is told, also who is told of another block already."""
        minority = kind == "minority" and self._blocked != kind
        if minority:
            self._effects.append(Minority(reason))
        if minority or (self.context.settings.block_events and not self._blocked):
            self._blocked = kind
            self.engine.mark(self._next_marker(Blocked(kind, reason)))

    def _open_pause(self, reason: str) -> None:
        """Before the engine goes on: nothing is sent before the application can know that it may."""
        if not self._participant.promised and (told := self._unblocked(reason)):
            self.engine.mark(self._next_marker(*told))
        self.engine.resume()

    def _unblocked(self, reason: str) -> tuple[Unblocked, ...]:
        """What follows the last ``Blocked``; to be put into the stream before the gate opens, or with the view."""
        kind, self._blocked = self._blocked, ""
        if trouble := self._blocker.take_trouble():
            reason = f"{reason}; {trouble}"
        return (Unblocked(kind, reason),) if kind else ()

    def _leave_behind(self, frame: NewView) -> list[Lost]:
        """Remembers how our view was closed; what of ours others did not get."""
        view, me = self.context.view, self.context.me.id
        if view is None or frame.closes is None:
            self._lineage.learn(frame.shortfalls)
            return []
        fell = sum(member.id not in frame.survivors for member in view.members)
        self.counters["members_lost"] += fell
        own, merges = self.engine.own(), bool(frame.subgroups)
        counts = self.engine.own_messages(own.first + 1, own.last, waiting=merges) if fell else []
        self._lineage.close(view, frame, own.first, counts)
        lost = self._lineage.lost()
        # What no sequencer has ordered is not sent again across a merge: one on the other side may have delivered it.
        last = last_delivered(view, frame, view.rank(me))
        if frame.subgroups and by_name(view.mechanism).resends:
            lost += self._undelivered(last, None, waiting=True)
        if frame.has(me):
            strangers = apart(frame, me) or [False] * len(frame.members)
            together = {info.id for info, new in zip(frame.members, strangers, strict=True) if not new}
            lost += self._unacknowledged(together)
        alone = [info.id for info in frame.members] == [me] and (fell or len(view.members) == 1)
        self._unshared = self._alone(frame, False) if alone and (fell or self._unshared is not None) else None
        return lost


_TAKES: dict[type[Input], Callable[[Endpoint, Any], None]] = {
    JoinGroup: Endpoint._join_group,
    CloseGroup: Endpoint._close_group,
    LeaveGroup: Endpoint._leave_group,
    PauseGroup: Endpoint._pause_group,
    ResumeGroup: Endpoint._resume_group,
    CallbackReturned: Endpoint._callback_returned,
    StateArrived: Endpoint._state_arrived,
    StateRefused: Endpoint._state_refused,
    InterfaceNews: Endpoint._interface,
    FrameReceived: Endpoint._receive,
    MemberSuspected: Endpoint._member_suspected,
    MemberAlive: Endpoint._member_alive,
    LinksChanged: Endpoint._links_changed,
    SlabsExhausted: Endpoint._slabs_exhausted,
    MemberStarved: Endpoint._member_starved,
    CutReached: Endpoint._cut_reached,
    SendsDrained: Endpoint._sends_drained,
}
"""Who takes which input."""
