"""The single entry to one member's control plane: ``step(inputs, now_ns)`` returns the effects to carry out.

A step hands each input to its machine (``router`` dispatches frames), runs the timers that are due, and begins a view
change on this member's turn. The effects that machines emit are carried out in order: frames become effects, and
frames to this member itself are handled at once; the ``installer`` enters and leaves views. The endpoint does no I/O.
Its methods are called by one thread at a time, unless they say otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import seqcast.codes as codes
from seqcast.core.context import Context, EndpointSettings, Vote
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import Join, Seen
from seqcast.core.frames.kinds import Frame, dump, load_from
from seqcast.core.frames.merging import Beacon, Met
from seqcast.core.frames.traits import TRAITS
from seqcast.core.frames.view import NewView, ViewWanted
from seqcast.core.holdups import Holdups
from seqcast.core.identities import Identities, Signed, taken_apart
from seqcast.core.installer import Installer
from seqcast.core.log import LogLines
from seqcast.core.machines.book import BOOK_MAX, Source
from seqcast.core.machines.lifecycle import LifecycleEvent
from seqcast.core.markers import Markers
from seqcast.core.port import EnginePort
from seqcast.core.router import Router
from seqcast.core.secrets import Secrets
from seqcast.core.table import Edge, TableMachine
from seqcast.core.vocabulary import (
    Abandon,
    Announce,
    AskMembers,
    CallbackOver,
    CallbackReturned,
    CloseGroup,
    Effect,
    Input,
    InterfaceSeen,
    JoinGroup,
    Keep,
    KeysRead,
    LeaveGroup,
    ListRead,
    Meaning,
    Multicast,
    OpenPause,
    PauseGroup,
    PauseOver,
    ResumeGroup,
    SeedsFound,
    Send,
    SetInfo,
    SocketsMended,
    Stand,
    StateArrived,
    StatePlan,
    StateRefused,
    TellBlocked,
    TellInterface,
    TokenRemade,
    Unicast,
    ViewChange,
    Warn,
)
from seqcast.core.wiring import Machines
from seqcast.errors import RemoteProtocolError
from seqcast.reports import (
    EVIDENCE,
    CutReached,
    ForeignVersion,
    FrameReceived,
    LinksChanged,
    MemberAlive,
    MemberStarved,
    MemberSuspected,
    OtherKey,
    PacketsLost,
    PathsMeasured,
    SecretWorn,
    SendersHeld,
    SendsDrained,
    SlabsExhausted,
    SlowChanged,
    StrangerHeard,
    WayChanged,
)
from seqcast.types import Member, View

STARVED = (
    "datagrams are dropped because all slabs are in use: the application has not taken its messages for a long time, "
    "or slabs_max is too small for this many members. Take messages faster, or raise slabs_max: meanwhile all members "
    "wait for this one, and exclude it if it takes nothing for suspect_s_max"
)


class Endpoint:
    """The control plane of one incarnation of one member.

    Args:
        engine: made for ``me.id``.
        me: name, id and unicast address.
        cluster: the group's name.
        settings: times, and this member's announcements of itself.
    """

    def __init__(self, engine: EnginePort, me: Member, cluster: str, settings: EndpointSettings) -> None:
        identities = Identities(settings.signer, settings.allowed, cluster)
        secrets = Secrets(settings.exchange, me.id, identities, settings.cipher)
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
            secrets.public,
            settings.about,
            settings.observer,
            settings.aes,
            opens=tuple(key.id for key in settings.keys),
        )
        self.context = Context(identities.signed(info), cluster, settings, engine, secrets, identities)
        self.context.keys = settings.keys
        self.counters = self.context.counters
        """``COUNTERS``, all from the start: frames_received, frames_sent, frames_bad (dropped), frames_unsent (the
        engine's queue was full), frames_unproven (by somebody who does not show an identity that is on the
        list), callbacks_failed (raised), callbacks_late (returned after their deadline),
        members_slow (members excluded because they had no room for received packets, or kept places unused),
        members_lost (members that did not continue into the next view), membership_policy_failed (its order was not
        used), sequencer_policy_failed (its choice was not used), links_cut (links that carry no multicast and were
        warned of), merges_unheard (requests to merge by a coordinator whose beacon was not heard: not answered),
        joiners_declined (joiners named in our view that had already entered another view), asks_too_soon (questions of
        members that were not answered); those of one kind of reliability are explained in its room."""
        self.log = LogLines(self.context)
        self.holdups = Holdups(self.context, self.log)
        self.machines = Machines(self.context)
        self._markers = Markers(self.context, self.machines, self.log)
        self._router = Router(self.context, self.machines, self.log)
        self.installer = Installer(self.context, self.machines, self._markers, self.log)
        self.answered: dict[bytes, None] = {}
        """Addresses from which others were heard before this member was in its first view; read by any thread."""
        self._inputs: deque[Input] = deque()
        self._due = self.machines.due()  # timers change in steps only

    # ---- the interface

    @property
    def view(self) -> View | None:
        return self.context.view

    @property
    def over(self) -> bool:
        """The endpoint has left, was excluded or refused, or is closed."""
        return self.machines.lifecycle.over and not self.pending

    @property
    def pending(self) -> bool:
        """The last step ended early: the next one is due as soon as the effects have been carried out."""
        return bool(self.context.emitted or self._inputs)

    @property
    def edges(self) -> set[Edge]:
        """The rows of the machines' tables that were taken so far."""
        return self.context.edges

    def states(self) -> dict[str, str]:
        """The state of each machine, by its name."""
        machines = [each for each in self.machines.timed() if isinstance(each, TableMachine)]
        return {type(machine).__name__: machine.state.name for machine in machines}

    def marker(self, marker_id: int) -> tuple[Meaning, ...]:
        """The meaning of a marker of ``engine.deliver``, in order. Call once for each marker, from any thread."""
        return self._markers.take(marker_id)

    def view_tagged(self, tag: int) -> View | None:
        """The view that the engine is in, by its tag, or the one before. May be called from any thread."""
        return self.installer.view_tagged(tag)

    @property
    def closed(self) -> str:
        """Why sends to the group wait; "": they do not. May be read from any thread."""
        return self._markers.closed

    @property
    def lacks(self) -> str:
        """Why there are too few to found a group; "": this joiner does not wait for that. May be read from any
        thread."""
        return self.machines.lifecycle.lacks

    @property
    def vote(self) -> Vote:
        """This joiner's vote for another one, which may have founded a group by that."""
        return self.machines.lifecycle.vote

    @property
    def others(self) -> tuple[bytes, ...]:
        """Where others may be, for the next incarnation: as in the book, and the members of the last view, which enter
        the book at the end of a view."""
        context, places = self.context, self.machines.book.places
        former = [info.address for info in context.infos.values() if self.installer.enters_book(info)]
        known = [address for address, place in places.items() if place.source is not Source.SEED]
        return tuple(dict.fromkeys((*former, *known)))[:BOOK_MAX]

    @property
    def hearers(self) -> tuple[bytes, ...]:
        """The addresses of those that have shown that they hear this joiner. May be read from any thread."""
        return tuple(self.machines.lifecycle.hearers)

    @property
    def joiners_are_silent(self) -> bool:
        """Joiners do not say whom they hear, so only members can be among ``hearers``."""
        return not self.machines.lifecycle.says_whom_it_hears

    @property
    def admits(self) -> bytes:
        """The address at which joiners are admitted, as a member has said; empty: none has. May be read from any
        thread."""
        return self.machines.lifecycle.admits

    @property
    def sealing(self) -> int:
        """Number of the key that seals outside views; -1: there is no key."""
        return self.machines.keys.sealing

    def joiners_of(self, tag: int) -> tuple[int, ...]:
        """The joiners to which this member gives its state as of the beginning of the view with this tag. May be called
        from any thread."""
        me = self.context.me.id
        return tuple(p.joiner for p in self.context.providers if p.provider == me and p.boundary == tag)

    def plan_at(self, tag: int) -> StatePlan | None:
        """The reason for which a receiving application that has reached the beginning of the view with this tag waits
        there; None: no end. May be called from any thread."""
        plan = self.context.plan
        return plan if plan is not None and plan.boundary == tag else None

    def deadline(self) -> int:
        """Monotonic ns at which a step is due without input; 2**63 - 1: never."""
        return self.context.now if self.pending else self._due

    def step(self, inputs: Sequence[Input], now_ns: int) -> list[Effect]:
        """Takes the inputs since the last step, in order; returns the effects, in order.

        A view is entered or left only when earlier frames have been sent, and votes kept: if there are any, the step
        ends there, and the next one continues (``pending``).

        Args:
            inputs: empty if only time has passed.
            now_ns: monotonic ns, never less than before.
        """
        self.context.now = now_ns
        self._inputs.extend(inputs)
        if self.pending or now_ns >= self._due:
            self._run()
            self._look_at_keys()
            self._due = min(self.machines.due(), self._markers.due())
        effects = self.context.effects + self.log.take()
        self.context.effects.clear()
        return effects

    def _run(self) -> None:
        if not self._carry_out():
            return
        while self._inputs:
            each = self._inputs.popleft()
            _TAKES[type(each)](self, each)
            if not self._carry_out():
                return
        for machine in self.machines.timed():
            if not self.machines.lifecycle.over and self.context.now >= machine.due():
                machine.run_timers()
                if not self._carry_out():
                    return
        if self.context.now >= self._markers.due():
            self._markers.run_timers()
        self.machines.lifecycle.review(bool(self.machines.participant.minority))
        if self._carry_out():
            self._review()

    # ---- inputs: the application, and the runner

    def _join_group(self, _: JoinGroup) -> None:
        if self.context.settings.book:
            self.machines.book.former(self.context.settings.former, self.context.now)
        self.machines.lifecycle.fire(LifecycleEvent.BEGIN)

    def _close_group(self, _: CloseGroup) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.CLOSE)
        self.context.emit(Abandon())

    def _sockets_mended(self, mended: SocketsMended) -> None:
        self.machines.interface.mended(mended.error)
        if not mended.error:
            self.machines.merger.beacons.mended()

    def _keys_read(self, read: KeysRead) -> None:
        self.context.keys = read.keys
        self.machines.informer.opens(tuple(key.id for key in read.keys))

    def _look_at_keys(self) -> None:
        """Before the frames of a step are sealed."""
        machines = self.machines
        machines.keys.review(machines.membership.informed(), machines.lifecycle.tries)

    def _list_read(self, read: ListRead) -> None:
        self.context.identities.read(read.allowed)

    def _pause_group(self, pause: PauseGroup) -> None:
        if self.context.view is None:
            self.context.emit(PauseOver(pause.request, "this member is in no view"))
        else:
            self.machines.pause_owner.suspend(pause.request, pause.timeout_ns)

    # ---- inputs: the engine

    def _frame_received(self, received: FrameReceived) -> None:
        self.context.counters["frames_received"] += 1
        try:
            came = taken_apart(received.payload)
            frame, at = load_from(came.payload)
            if received.outside and not TRAITS[type(frame)].outside:
                raise RemoteProtocolError("a frame of a view, whose sender does not show that it is in one")
            # A holder of the key may name its address, as its frames come from elsewhere if addresses are translated.
            known = at if at and self.context.settings.exchange is not None else received.address
            if self._is_proven(frame, received, came):
                context = self.context
                self.machines.book.heard(known)
                if context.view is None and received.sender != context.me.id and len(self.answered) < BOOK_MAX:
                    self.answered[known] = None
                if received.sender != context.me.id and self._shows_address(frame):
                    self.machines.lifecycle.reached()
                self._router.route(frame, received.sender, known)
                if known != received.address:
                    self._router.echo(frame, received.sender, received.address)
        except RemoteProtocolError:
            self.context.counters["frames_bad"] += 1

    def _shows_address(self, frame: Frame) -> bool:
        """Has this frame come because the address that we state leads here? Some frames go to where we were heard, and
        where multicast may work, others go to everyone."""
        elsewhere = (Seen, Met) if self.context.settings.unicast else (Seen, Met, Join, Beacon)
        return not isinstance(frame, elsewhere)

    def _is_proven(self, frame: Frame, received: FrameReceived, came: Signed) -> bool:
        """Does the sender of a frame show its identity, if there are any and the frame needs one?"""
        context = self.context
        doubt = context.identities.doubt(frame, received.sender, came, context.infos) if _signed(frame) else ""
        if doubt:
            context.counters["frames_unproven"] += 1
            self.machines.lifecycle.heard_unproven(received.address, doubt)
        return not doubt

    def _member_suspected(self, report: MemberSuspected) -> None:
        why = EVIDENCE[report.evidence]
        self.log.suspected(report.member, why)
        self.machines.membership.suspect(report.member, why)

    def _member_alive(self, report: MemberAlive) -> None:
        self.log.alive(report.member)
        self.machines.membership.trust(report.member)

    def _way_changed(self, report: WayChanged) -> None:
        self.log.way_changed(report.member, report.multicast)
        context = self.context
        context.alone = {member: None for member in context.alone if member != report.member}
        if not report.multicast:
            context.alone[report.member] = None

    def _paths_measured(self, report: PathsMeasured) -> None:
        entered = self.context.entered
        if entered is not None and self.machines.membership.resize():
            self.log.path_measured(report.member, report.size, entered.packet_bytes)

    def _secret_worn(self, report: SecretWorn) -> None:
        if report.tag == self.context.tag:
            self.machines.membership.want(self.context.me.id)
            self.context.multicast(ViewWanted(report.tag))

    def _stranger_heard(self, report: StrangerHeard) -> None:
        """Timeline without the first lines: c hears the multicasts of a member, but not those of the coordinator, and
        nobody hears c, which founds no group, as ``found`` is more than 1. So c would seek one for ever."""
        if self.machines.lifecycle.seeking:
            self.machines.book.named([report.address], self.context.now)
        elif report.tag not in self.machines.lineage.closed:
            self.machines.merger.beacons.meet_stranger(report.address)

    def _sends_drained(self, _: SendsDrained) -> None:
        """Nothing to do: the lifecycle checks at the end of each step, since a view change may have come in between."""

    # ---- the coordinator's duty

    def _review(self) -> None:
        """Begins a view change if there is a reason, on this member's turn; repeats if the change completes at
        once: a member alone does everything in one step."""
        while self.context.view is not None:
            machines = self.machines
            initiator, membership = machines.initiator, machines.membership
            initiator.review()
            waited_for, passing_on = initiator.waited_for, initiator.passing_on
            if passing_on:  # nobody waits for members that are gone or silent
                doubted = membership.doubted()
                waited_for = tuple(member for member in waited_for if member not in doubted)
                passing_on = bool(waited_for)
            running = initiator.running or passing_on
            review = membership.review(running, waited_for, initiator.backing_off, initiator.too_few)
            self._carry_out()  # warnings: without a change of view
            self._markers.tell_coordinator()
            if not review.begins:
                machines.merger.review()
                self._carry_out()
                return
            initiator.initiate(review.survivors)
            if not self._carry_out():
                return

    # ---- effects that the machines emit

    def _carry_out(self) -> bool:
        """Carries out the effects that the machines emitted, in order. False: the runner must first carry out the
        effects so far."""
        context, emitted, me = self.context, self.context.emitted, self.context.me
        while emitted:
            what = emitted[0]
            if isinstance(what, ViewChange) and any(isinstance(each, Send | Stand | Keep) for each in context.effects):
                return False
            del emitted[0]
            if isinstance(what, ViewChange):
                self.installer.carry_out(what)
                continue
            match what:
                case Unicast() if what.member_id == me.id:
                    self._router.route(what.frame, me.id, what.address)
                case Unicast():
                    known = self.context.infos.get(what.member_id)
                    anybody = known is None or known.address != what.address
                    self._transmit(what.frame, self._written(what.frame), what.address, anybody)
                case Multicast():
                    payload = self._written(what.frame)  # signed once, for all
                    for address in self._audience(what.frame):
                        self._transmit(what.frame, payload, address, True)
                    self._router.route(what.frame, me.id, me.address)
                case Announce():
                    self._announce(what)
                case TellBlocked():
                    self._markers.tell_blocked(what.kind, what.reason)
                case OpenPause():
                    self._markers.open_pause(what.reason)
                case TellInterface():
                    self._markers.tell_interface(what.change)
                case CallbackOver():
                    self.machines.participant.returned()
                case TokenRemade():
                    self.log.token_remade(what.generation)
                case LeaveGroup():
                    self._inputs.append(what)  # after the view change that may be under way
                case _:
                    self.log.effect(what)
                    context.hand_out(what)
        return True

    def _audience(self, frame: Frame) -> list[bytes]:
        """Where a frame for all goes: to everyone who listens; without multicast to the members of our view, and to
        others whom it concerns. (The members of the view that a VIEW closes are ours until we enter the new one. To
        those that hear no multicast the engine sends a copy.)"""
        context = self.context
        asked: list[bytes] = []
        if isinstance(frame, Join) and context.settings.book:
            asked = self.machines.book.ask(context.now, frame.tries, frame.withdrawn)
        if not context.settings.unicast:
            return [b"", *sorted(asked)]
        addresses = {info.address for info in context.infos.values()}.union(asked)
        if isinstance(frame, NewView):
            addresses.update(info.address for info in frame.members)
        return sorted(addresses - {context.me.address})

    def _transmit(self, frame: Frame, payload: bytes, address: bytes, anybody: bool) -> None:
        traits = TRAITS[type(frame)]
        assert address or not traits.to_one, "no address"
        self.context.counters["frames_sent"] += 1
        self.log.sent(frame, address)
        self.context.hand_out(Send(payload, address, traits.outside, traits.outside and anybody))

    def _written(self, frame: Frame) -> bytes:
        payload = dump(frame, self._at())
        return self.context.identities.with_signature(self.context.me.id, payload) if _signed(frame) else payload

    def _at(self) -> bytes:
        """The address that our frames name as ours; empty if they come from there, or would not be believed."""
        settings = self.context.settings
        return self.context.me.address if settings.advertised and settings.exchange is not None else b""

    def _announce(self, what: Announce) -> None:
        payload = b""
        if what.frame is not None:
            self.context.counters["frames_sent"] += 1
            self.log.sent(what.frame, b"")
            payload = self._written(what.frame)
        self.context.hand_out(Stand(payload, what.every_ns, what.times))


def _signed(frame: Frame) -> bool:
    return TRAITS[type(frame)].signed


_TAKES: dict[type[Input], Callable[[Endpoint, Any], None]] = {
    JoinGroup: Endpoint._join_group,
    CloseGroup: Endpoint._close_group,
    LeaveGroup: lambda e, each: e.machines.lifecycle.fire(LifecycleEvent.LEAVE, each.timeout_ns),
    SetInfo: lambda e, each: e.machines.informer.say(each.about),
    PauseGroup: Endpoint._pause_group,
    AskMembers: lambda e, each: e.machines.asking.ask(each.request, each.page),
    ResumeGroup: lambda e, each: e.machines.pause_owner.resume(each.request),
    CallbackReturned: lambda e, each: e.machines.blocker.returned(each.run, each.trouble),
    StateArrived: lambda e, each: e.machines.taker.arrived(each.boundary),
    StateRefused: lambda e, each: e.machines.taker.refused(each.boundary, each.reason, each.provider),
    InterfaceSeen: lambda e, each: e.machines.interface.look(each),
    SocketsMended: Endpoint._sockets_mended,
    KeysRead: Endpoint._keys_read,
    ListRead: Endpoint._list_read,
    SeedsFound: lambda e, each: e.machines.book.seeds(each.addresses, e.context.now),
    FrameReceived: Endpoint._frame_received,
    MemberSuspected: Endpoint._member_suspected,
    MemberAlive: Endpoint._member_alive,
    LinksChanged: lambda e, _: e.machines.membership.links_changed(),
    WayChanged: Endpoint._way_changed,
    StrangerHeard: Endpoint._stranger_heard,
    PacketsLost: lambda e, each: e.log.packets_lost(each.member, each.size, each.took_ns),
    PathsMeasured: Endpoint._paths_measured,
    SlowChanged: lambda e, _: e.machines.membership.slow_changed(),
    SlabsExhausted: lambda e, _: e.context.emit(Warn(codes.STARVED(STARVED))),
    SendersHeld: lambda e, each: e.holdups.heard(each),
    MemberStarved: lambda e, each: e.machines.membership.starves(each.member),
    ForeignVersion: lambda e, _: e.machines.lifecycle.fire(LifecycleEvent.FOREIGN),
    OtherKey: lambda e, each: e.machines.lifecycle.fire(LifecycleEvent.OTHER_KEY, each),
    CutReached: lambda e, _: e.machines.participant.reached(),
    SecretWorn: Endpoint._secret_worn,
    SendsDrained: Endpoint._sends_drained,
}
"""Input -> its handler."""
