"""Which control frame goes to which machine: a table of frames, and the decision on a VIEW.

A row of ``ROUTES`` says of which view a frame must be, who may send it, and who handles it; the first row that fits is
taken, and a frame that fits none is dropped: it is late, or not for us.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from seqcast.core.context import Context
from seqcast.core.frames.closing import Accepted, Block, BlockOk, Cut, Done, Ok, Promised, Propose, Start
from seqcast.core.frames.codec import clipped
from seqcast.core.frames.gossiping import Gossip
from seqcast.core.frames.joining import PROTOCOL_VERSION, WAIT_BYTES_MAX, Join, Leave, OtherVersion, Refused, Wait
from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.merging import (
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeFrame,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
)
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.ring import Confirm, Confirmed, RingFrame, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import BlockedSide, Side, Unblock
from seqcast.core.frames.view import Declined, Installed, NewView, StateWanted
from seqcast.core.machines.lifecycle import LifecycleEvent
from seqcast.core.rules.merged import COUNTER_STEP_MAX
from seqcast.core.rules.quorum import Allowance
from seqcast.core.story import Story
from seqcast.core.table import IGNORED, DecisionTable, decision
from seqcast.core.vocabulary import Warn
from seqcast.core.wiring import Machines
from seqcast.errors import RemoteProtocolError


class Of(Enum):
    """The view that a frame must be of."""

    OURS = "our view"
    LEFT = "a view that we left, in which its sender was"
    ANY = "any, or none"
    INSIDE = "any, while we are in one"
    OUTSIDE = "none: we are in no view"


class By(Enum):
    """Who may send a frame."""

    ANYONE = "anyone"
    OTHERS = "anyone but ourselves"
    MEMBERS = "a member of our view"
    NAMED = "the joiner that it names"
    ASKED = "those that heard our JOIN"


class Route(NamedTuple):
    frame: type[Frame]
    of: Of
    by: By
    handler: Callable[[Router, Any, int, bytes], None]


class Router:
    def __init__(self, context: Context, machines: Machines, story: Story) -> None:
        self.context, self.machines, self.story = context, machines, story

    def route(self, frame: Frame, sender: int, address: bytes) -> None:
        """Hands a frame to its handler.

        Raises:
            RemoteProtocolError: it cannot be right.
        """
        self.story.received(frame, sender)
        for route in _BY_FRAME[type(frame)]:
            if self._is_of(route.of, frame, sender, address) and self._is_by(route.by, frame, sender):
                route.handler(self, frame, sender, address)
                return

    def _is_of(self, of: Of, frame: Any, sender: int, address: bytes) -> bool:
        match of:
            case Of.OURS:
                return self.context.tag != 0 and frame.view == self.context.tag
            case Of.LEFT:
                return self.machines.lineage.was_in(frame.view, sender, address)
            case Of.INSIDE:
                return self.context.view is not None
            case Of.OUTSIDE:
                return self.context.view is None
        return True

    def _is_by(self, by: By, frame: Any, sender: int) -> bool:
        match by:
            case By.OTHERS:
                return sender != self.context.me.id
            case By.MEMBERS:
                return sender in self.context.infos
            case By.NAMED:
                return bool(sender == frame.info.id)
            case By.ASKED:
                return bool(frame.nonce == self.context.settings.nonce)
        return True

    # ---- joining and leaving

    def join(self, frame: Join, _sender: int, address: bytes) -> None:
        """membership: notes the joiner; members answer WAIT by turns, the acting one refuses"""
        context, machines, joiner = self.context, self.machines, frame.info
        if joiner.address != address:
            raise RemoteProtocolError("JOIN: it names another address than that from which it comes")
        if machines.lifecycle.over:  # whoever seeks a group must not wait for us
            return
        if context.view is None:
            if joiner.id != context.me.id:
                machines.lifecycle.heard_joiner(joiner.id)
                machines.membership.join(frame)  # in case the first view is ours
            return
        turn = frame.tries % len(context.members) == context.rank
        if joiner.id in context.infos:
            if turn and context.entered is not None and joiner.id != context.me.id:
                context.send(context.entered, joiner.id)
            return
        refusal = machines.membership.join(frame)
        acting = machines.membership.acting()
        if acting and refusal:
            context.send(refusal, joiner.id, joiner.address)
        elif acting or turn:
            blocked = clipped(machines.participant.minority, WAIT_BYTES_MAX)
            context.send(Wait(context.tag, blocked, frame.nonce), joiner.id, joiner.address)

    def refuse_version(self, frame: OtherVersion, sender: int, address: bytes) -> None:
        """membership: the acting member refuses"""
        if self.machines.membership.acting():
            reason = f"the group speaks protocol version {PROTOCOL_VERSION}, not {frame.version}: use one release"
            self.context.send(Refused(reason, "version", frame.nonce), sender, address)

    def note_joiner(self, _: OtherVersion, sender: int, __: bytes) -> None:
        """lifecycle: the joiner with the lower id forms the group, and refuses the other"""
        self.machines.lifecycle.heard_joiner(sender)

    def wait(self, frame: Wait, _: int, __: bytes) -> None:
        """lifecycle: a group exists, so none is formed"""
        self.machines.lifecycle.heard_group(frame.blocked)

    def refused(self, frame: Refused, _: int, __: bytes) -> None:
        """lifecycle: the join fails, unless a VIEW takes us in soon"""
        self.machines.lifecycle.fire(LifecycleEvent.REFUSED, frame)

    def leave(self, _: Leave, sender: int, __: bytes) -> None:
        """membership: notes the leaver"""
        self.machines.membership.leave(sender)

    # ---- closing a view

    def block(self, frame: Block, sender: int, _: bytes) -> None:
        """participant: runs the block callback; pauses end"""
        self.machines.participant.block(frame, sender)
        self.machines.end_pauses()

    def block_ok(self, frame: BlockOk, sender: int, _: bytes) -> None:
        """initiator: counts it"""
        self.machines.initiator.block_ok(frame, sender)

    def start(self, frame: Start, sender: int, _: bytes) -> None:
        """participant: promises the attempt and closes the gate; pauses end"""
        context, machines = self.context, self.machines
        if context.primary:
            machines.membership.lives(sender)
        machines.participant.start(frame, sender)
        machines.end_pauses()
        if context.me.id not in frame.survivors and not context.enough(frame.survivors):
            machines.participant.show_life(frame, sender)
            machines.membership.call(sender)

    def answer_with_view(self, frame: Block | Start, sender: int, address: bytes) -> None:
        """lineage: answers with the VIEW that closed it (the cut, step 1)"""
        closed = self.machines.lineage.closed[frame.view]
        self.context.send(replace(closed, answers=frame.attempt), sender, address)

    def ok(self, frame: Ok, sender: int, _: bytes) -> None:
        """initiator: counts it"""
        self.machines.initiator.ok(frame, sender)

    def accepted(self, frame: Accepted, sender: int, _: bytes) -> None:
        """initiator: notes what its sender accepted before"""
        self.machines.initiator.note_accepted(frame, sender)

    def promised(self, frame: Promised, sender: int, _: bytes) -> None:
        """initiator: backs off where a survivor promised a higher attempt"""
        self.machines.initiator.promised(frame, sender)

    def cut(self, frame: Cut, sender: int, _: bytes) -> None:
        """participant: fetches what is missing up to the cut"""
        self.machines.participant.cut(frame, sender)

    def propose(self, frame: Propose, sender: int, _: bytes) -> None:
        """participant: accepts the proposal with its DONE"""
        self.machines.participant.propose(frame, sender)

    def done(self, frame: Done, sender: int, _: bytes) -> None:
        """initiator: counts it"""
        self.machines.initiator.done(frame, sender)

    def serve(self, frame: Done, sender: int, address: bytes) -> None:
        """lineage: its sender waits for the VIEW that closed it, and the first member that has it serves it"""
        me = self.context.me.id
        closed = self.machines.lineage.closed[frame.view]
        silent = self.machines.membership.suspected | {sender}
        first = next((info.id for info in closed.members if info.id not in silent), 0) == me
        if frame.attempt == closed.attempt and (first or closed.view_id.flush[1] == me):
            self.context.send(closed, sender, address)

    def view(self, frame: NewView, sender: int, address: bytes) -> None:
        """see below"""
        VIEW.take(self, self.context.edges, frame, sender, address)

    def installed(self, frame: Installed, sender: int, _: bytes) -> None:
        """initiator: counts it; a leaver that waited for it is done"""
        machines = self.machines
        machines.initiator.installed(frame, sender)
        if machines.initiator.idle:
            machines.lifecycle.fire(LifecycleEvent.SERVED)

    def declined(self, _: Declined, sender: int, __: bytes) -> None:
        """membership: excludes the joiner, which entered another view"""
        if self.machines.initiator.awaits_joiner(sender):
            self.machines.membership.decline(sender)

    def ring(self, frame: RingFrame, sender: int, _: bytes) -> None:
        """ring membership: see the ring's table"""
        if self.machines.ring is None:
            raise RemoteProtocolError("token ring: this group has another kind of membership")
        self.machines.ring.receive(frame, sender)

    # ---- pauses, state

    def suspend(self, frame: Suspend, sender: int, _: bytes) -> None:
        """pause member: stops sending"""
        self.machines.pause_member.suspend(frame, sender)

    def suspended(self, frame: Suspended, sender: int, _: bytes) -> None:
        """pause owner: counts it"""
        self.machines.pause_owner.suspended(frame, sender)

    def resume(self, frame: Resume, sender: int, _: bytes) -> None:
        """pause member: continues"""
        self.machines.pause_member.resume(frame, sender)

    def resumed(self, frame: Resumed, sender: int, _: bytes) -> None:
        """pause owner: counts it"""
        self.machines.pause_owner.resumed(frame, sender)

    def state_wanted(self, _: StateWanted, sender: int, __: bytes) -> None:
        """membership: a VIEW is needed that names another provider"""
        self.machines.membership.want(sender)

    def gossip(self, frame: Gossip, sender: int, _: bytes) -> None:
        """gossip: asks its sender for what is missing, and passes it on"""
        self.machines.gossip.received(frame, sender)

    # ---- other groups, operators

    def beacon(self, frame: Beacon, sender: int, address: bytes) -> None:
        """merge: finds other views; a joiner learns of the group; whoever is behind is served the VIEW"""
        machines, tag = self.machines, frame.view_id.tag
        if machines.lifecycle.seeking:
            machines.lifecycle.heard_group()
        elif tag == self.context.tag:
            machines.membership.seen_here(sender)
        elif machines.lineage.entered(tag):  # it is behind, or was left out: it can learn so
            if machines.membership.acting() and machines.lineage.was_in(tag, sender, address):
                self.context.send(machines.lineage.closed[tag], sender, address)
        elif self.context.view is not None:
            machines.merger.beacon(frame, sender, address)

    def merge(self, frame: MergeFrame, sender: int, address: bytes) -> None:
        """merge: see its table"""
        self.machines.merger.receive(frame, sender, address)

    def unblock(self, frame: Unblock, sender: int, address: bytes) -> None:
        """participant: a blocked minority answers the operator, and continues where that one allows it"""
        context, participant = self.context, self.machines.participant
        gated = context.view is not None and not self.machines.lifecycle.over and participant.promised
        few = not context.enough(participant.survivors)
        if frame.cluster != context.cluster or not gated or not (few or context.allowed):
            return
        side = Side(context.tag, participant.promise)
        # A side that was allowed once and lost its majority can be allowed again, with the members it reaches now.
        if frame.side == side and few:
            context.allowed = Allowance(participant.promise, participant.survivors)
            context.effects.append(Warn("an operator allowed this side of the group to go on without the others"))
        reached = [member.name for member in context.members if member.id in participant.survivors]
        missing = [member.name for member in context.members if member.id not in participant.survivors]
        allowed = context.allowed is not None and context.enough(participant.survivors)
        answer = BlockedSide(frame.request, side, context.me.name, tuple(reached), tuple(missing), allowed)
        context.send(answer, sender, address)

    def pass_over(self, _frame: BlockedSide, _sender: int, _address: bytes) -> None:
        """nobody: it answers an operator"""

    # ---- the decision on a VIEW: guards

    def known(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """we are in it, or were"""
        closed = self.machines.lineage.closed.values()
        return frame.view_id.tag in (self.context.tag, *(each.view_id.tag for each in closed))

    def joining_and_named(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """we seek a group, and it has us"""
        return self.machines.lifecycle.seeking and frame.has(self.context.me.id)

    def joining(self, _frame: NewView, _sender: int, _address: bytes) -> bool:
        """we seek a group"""
        return self.machines.lifecycle.seeking

    def elsewhere_and_named(self, frame: NewView, sender: int, address: bytes) -> bool:
        """it closes another view than ours, and takes us in as a joiner"""
        me = self.context.me.id
        # (In a merged view we may be as a member of another subgroup: its VIEW is to come.)
        named = frame.has(me) and me not in frame.survivors and not frame.subgroups
        return self.context.view is not None and named and self.elsewhere(frame, sender, address)

    def elsewhere(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """it closes another view than ours"""
        return self.context.view is None or frame.closes != self.context.view.view_id

    def invalid(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """its sender, counter or cut cannot be right"""
        return bool(self._fault(frame, sender))

    def _fault(self, frame: NewView, sender: int) -> str:
        context = self.context
        assert context.view is not None
        if sender not in context.infos:  # a member that serves a VIEW was in the view that it closes
            return "from a stranger"
        if frame.view_id.counter > context.view.view_id.counter + COUNTER_STEP_MAX:
            return "its counter is far above that of the view that it closes"
        if len(frame.cut) != len(context.members):
            return "the cut is not by rank of the view it closes"
        return ""

    def answers_and_lacking(self, frame: NewView, sender: int, address: bytes) -> bool:
        """in a primary partition it answers our attempt, has us, and we lack a part of its cut"""
        named = frame.answers is not None and frame.has(self.context.me.id)
        return self.context.primary and named and not self.machines.participant.holds(frame)

    def answers_and_named(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """it answers an attempt to close our view, and has us"""
        return frame.answers is not None and frame.has(self.context.me.id)

    def answers(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """it answers an attempt of ours, by a survivor of it, and does not have us"""
        return frame.answers is not None and sender in self.machines.initiator.survivors

    def left_out(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """it does not have us, and we did not ask to leave"""
        me = self.context.me.id
        leaves = me in frame.survivors and self.machines.lifecycle.leaving
        return not frame.has(me) and not leaves

    def promised_and_held(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """it is of the attempt that we promised, and everything up to its cut is here"""
        return self.machines.participant.may_install(frame)

    # ---- the decision on a VIEW: actions

    def say_installed(self, frame: NewView, sender: int, address: bytes) -> None:
        if sender != self.context.me.id:
            self.context.send(Installed(frame.view_id.tag), sender, address)

    def enter(self, frame: NewView, sender: int, address: bytes) -> None:
        inside = frame.has(self.context.me.id)
        self.machines.lifecycle.fire(LifecycleEvent.VIEW if inside else LifecycleEvent.LEFT, frame)
        self.context.send(Installed(frame.view_id.tag), sender, address)

    def decline(self, frame: NewView, sender: int, address: bytes) -> None:
        self.context.send(Declined(frame.view_id.tag), sender, address)

    def reject(self, frame: NewView, sender: int, _address: bytes) -> None:
        raise RemoteProtocolError(f"VIEW: {self._fault(frame, sender)}")

    def give_up_lacking(self, frame: NewView, sender: int, address: bytes) -> None:
        if frame.answers == self.machines.initiator.attempt:
            self.stay_behind(frame, sender, address)

    def adopt(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.machines.participant.check_held(frame)
        self.machines.initiator.newer(frame)

    def adopt_without_us(self, frame: NewView, sender: int, _address: bytes) -> None:
        """Whatever becomes of us, the sender is not in our position: another attempt does without it."""
        self.machines.membership.went_on([sender])
        self.machines.initiator.newer(frame)

    def stay_behind(self, frame: NewView, sender: int, address: bytes) -> None:
        """Out, or on with those in the same position, until both merge."""
        context, machines = self.context, self.machines
        if context.primary or machines.lifecycle.leaving:
            machines.lifecycle.fire(LifecycleEvent.EXCLUDED, frame)
            return
        assert context.view is not None
        machines.membership.went_on([*frame.survivors, *(info.id for info in frame.members)])
        if frame.answers is not None:  # its sender has left the view
            machines.membership.went_on([sender])
        machines.lineage.went_on(context.view, frame)
        context.send(Installed(frame.view_id.tag), sender, address)


R = Router
ROUTES = (
    Route(Join, Of.ANY, By.NAMED, R.join),
    Route(OtherVersion, Of.INSIDE, By.ANYONE, R.refuse_version),
    Route(OtherVersion, Of.OUTSIDE, By.ANYONE, R.note_joiner),
    Route(Wait, Of.ANY, By.ASKED, R.wait),
    Route(Refused, Of.ANY, By.ASKED, R.refused),
    Route(Leave, Of.OURS, By.ANYONE, R.leave),
    Route(Block, Of.OURS, By.ANYONE, R.block),
    Route(Block, Of.LEFT, By.ANYONE, R.answer_with_view),
    Route(BlockOk, Of.OURS, By.ANYONE, R.block_ok),
    Route(Start, Of.OURS, By.ANYONE, R.start),
    Route(Start, Of.LEFT, By.ANYONE, R.answer_with_view),
    Route(Ok, Of.OURS, By.ANYONE, R.ok),
    Route(Accepted, Of.OURS, By.ANYONE, R.accepted),
    Route(Promised, Of.OURS, By.ANYONE, R.promised),
    Route(Cut, Of.OURS, By.ANYONE, R.cut),
    Route(Propose, Of.OURS, By.ANYONE, R.propose),
    Route(Done, Of.OURS, By.ANYONE, R.done),
    Route(Done, Of.LEFT, By.ANYONE, R.serve),
    Route(NewView, Of.ANY, By.ANYONE, R.view),
    Route(Installed, Of.ANY, By.ANYONE, R.installed),
    Route(Declined, Of.OURS, By.ANYONE, R.declined),
    Route(Suspend, Of.OURS, By.MEMBERS, R.suspend),
    Route(Suspended, Of.OURS, By.ANYONE, R.suspended),
    Route(Resume, Of.OURS, By.MEMBERS, R.resume),
    Route(Resumed, Of.OURS, By.ANYONE, R.resumed),
    Route(StateWanted, Of.OURS, By.ANYONE, R.state_wanted),
    Route(Gossip, Of.OURS, By.MEMBERS, R.gossip),
    Route(Beacon, Of.ANY, By.OTHERS, R.beacon),
    Route(Unblock, Of.INSIDE, By.ANYONE, R.unblock),
    Route(BlockedSide, Of.ANY, By.ANYONE, R.pass_over),
    *(Route(frame, Of.OURS, By.MEMBERS, R.ring) for frame in (Token, TokenHeld, Confirm, Confirmed, Unconfirmed)),
    *(
        Route(frame, Of.ANY, By.ANYONE, R.merge)
        for frame in (MergeAsk, MergeRefused, MergeReady, MergeGo, MergeTaken, MergeCancel)
    ),
)
_BY_FRAME = {frame: tuple(route for route in ROUTES if route.frame is frame) for frame in {r.frame for r in ROUTES}}

VIEW: DecisionTable = decision(
    "VIEW",
    (R.known, R.say_installed, "its sender repeats it until it knows that we have it"),
    (R.joining_and_named, R.enter, "our first view"),
    (R.joining, IGNORED, "it took in others"),
    (R.elsewhere_and_named, R.decline, "two groups admitted us"),
    (R.elsewhere, IGNORED, "it is late, or of a subgroup that merges with ours"),
    (R.invalid, R.reject, "nobody may send it"),
    (R.answers_and_lacking, R.give_up_lacking, "decided without us, and what we lack is with those who decided"),
    (R.answers_and_named, R.adopt, "a survivor has left the view: its VIEW takes the place of our proposal (step 1)"),
    (R.answers, R.adopt_without_us, "a survivor has left the view, and we stay behind"),
    (R.left_out, R.stay_behind, "others closed our view without us (step 8)"),
    (R.promised_and_held, R.enter, "it ends the attempt that we promised (step 5)"),
    (None, IGNORED, "we promised another attempt, or none: that one's VIEW will come, or ours is asked for"),
)
"""What a VIEW means to this member, and what it does with it."""
