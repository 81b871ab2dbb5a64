"""Dispatches control frames to machines: a table of routes, and decision tables for frames that need more.

A row of ``ROUTES`` says to which view a frame must belong, who may send it, and which machine handles it. The first
matching row is used; a frame that matches none is late or not for us, and is dropped. If the handling depends on more,
such as whether this member is in a view and whose turn it is, ``DECISIONS`` has a row for each case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import seqcast.codes as codes
from seqcast.core.context import Context
from seqcast.core.frames.asking import Ask, Told
from seqcast.core.frames.closing import Accepted, Block, BlockOk, Cut, Done, Ok, Promised, Propose, Start
from seqcast.core.frames.codec import clipped
from seqcast.core.frames.fields import PROTOCOL_VERSION
from seqcast.core.frames.gossiping import Gossip
from seqcast.core.frames.joining import WAIT_BYTES_MAX, Challenge, Join, Leave, OtherVersion, Refused, Seen, Wait
from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.merging import (
    Beacon,
    MergeAsk,
    MergeCancel,
    MergeGo,
    MergeReady,
    MergeRefused,
    MergeTaken,
    Met,
)
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.frames.recalling import Recall, Recalled
from seqcast.core.frames.ring import Confirm, Confirmed, RingFrame, Token, TokenHeld, Unconfirmed
from seqcast.core.frames.unblocking import BlockedSide, Side, Unblock
from seqcast.core.frames.view import Declined, InfoTold, Installed, NewView, ViewWanted
from seqcast.core.log import LogLines
from seqcast.core.machines.beacons import WENT_ON
from seqcast.core.machines.lifecycle import HEARS_MAX, HISTORY, LifecycleEvent
from seqcast.core.rules.cookies import NO_COOKIE, cookie
from seqcast.core.rules.merged import COUNTER_STEP_MAX
from seqcast.core.rules.quorum import Allowance
from seqcast.core.table import IGNORED, DecisionTable, decision
from seqcast.core.vocabulary import GiveWay, Warn
from seqcast.core.wiring import Machines
from seqcast.errors import RemoteProtocolError

OLDER = (
    "the group that runs is not the one of this member's file (stable=): another was founded, by members whose files "
    "were lost. Remove the file to enter that group, or end its members and start those that have their files"
)


class Of(Enum):
    """The view that a frame must belong to."""

    OURS = "our view"
    LEFT = "a view that we left, in which its sender was"
    ANY = "any, or none"
    INSIDE = "any, while we are in one"
    ACTING = "any, while the turn to close our view is ours"
    OUTSIDE = "none: we are in no view"
    SOUGHT = "any, while we seek a group"


class By(Enum):
    """Who may send a frame."""

    ANYONE = "anyone"
    OTHERS = "anyone but ourselves"
    MEMBERS = "a member of our view"
    NAMED = "the joiner named in the frame"
    ASKED = "those that heard our JOIN"
    SEALED = "those that heard our JOIN or BEACON, and have the key"
    AWAITED = "a joiner that our VIEW names, and that has not entered our view"


class Route(NamedTuple):
    frame: type[Frame]
    of: Of
    by: By
    handler: Callable[[Machines, Any, int, bytes], None] | DecisionTable
    does: str = ""  # the machine, and its part; a table says it itself


class Router:
    def __init__(self, context: Context, machines: Machines, log: LogLines) -> None:
        self.context, self.machines, self.log = context, machines, log

    def route(self, frame: Frame, sender: int, address: bytes) -> None:
        """Hands a frame to its handler.

        Raises:
            RemoteProtocolError: the frame cannot be right.
        """
        self.log.received(frame, sender)
        if isinstance(frame, Join | Beacon):
            self.machines.challenges.note(frame, sender, address)
            shows = self._shows_presence(frame, sender, address)
            self.machines.keys.note(frame, sender, shows)
            self.machines.lifecycle.heard_key(address, shows)
        for route in _BY_FRAME[type(frame)]:
            if self._is_of(route.of, frame, sender, address) and self._is_by(route.by, frame, sender):
                if isinstance(route.handler, DecisionTable):
                    route.handler.take(self, self.context.edges, frame, sender, address)
                else:
                    route.handler(self.machines, frame, sender, address)
                return

    def _is_of(self, of: Of, frame: Any, sender: int, address: bytes) -> bool:
        match of:
            case Of.OURS:
                return self.context.tag != 0 and frame.view == self.context.tag
            case Of.LEFT:
                return self.machines.lineage.was_in(frame.view, sender, address)
            case Of.INSIDE:
                return self.context.view is not None
            case Of.ACTING:
                return self.machines.membership.acting()
            case Of.OUTSIDE:
                return self.context.view is None
            case Of.SOUGHT:
                return self.machines.lifecycle.seeking
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
                return self._answers_us(frame.nonce)
            case By.SEALED:
                return self.context.settings.exchange is not None and self._answers_us(frame.nonce)
            case By.AWAITED:
                return self.machines.initiator.awaits_joiner(sender)
        return True

    def _shows_presence(self, frame: Join | Beacon, sender: int, address: bytes) -> bool:
        if isinstance(frame, Join) and self.context.view is not None:
            return not self.lacks_cookie(frame, sender, address)
        return not self.machines.challenges.lacks_answer(frame, sender, address)

    def _answers_us(self, nonce: int) -> bool:
        """Has its sender heard our JOIN, or in a view our BEACON?"""
        context = self.context
        return nonce in (context.nonces() if self.machines.lifecycle.seeking else (context.settings.nonce,))

    # ---- JOIN: guards

    def names_another_address(self, frame: Join, _sender: int, address: bytes) -> bool:
        """the JOIN names an address other than its source"""
        return frame.info.address != address

    def is_to_be_told(self, frame: Join, sender: int, address: bytes) -> bool:
        """the JOIN names an address other than its source, and we also seek a group, or have to answer"""
        asks = self.names_another_address(frame, sender, address) and not frame.withdrawn
        return asks and (self.machines.lifecycle.seeking or self.is_to_answer(frame, None))

    def is_over(self, _frame: Join, _sender: int, _address: bytes) -> bool:
        """we have left, or are out"""
        return self.machines.lifecycle.over

    def is_own_outside(self, _frame: Join, sender: int, _address: bytes) -> bool:
        """the JOIN comes from us, and we are in no view"""
        return self.context.view is None and sender == self.context.me.id

    def is_withdrawn(self, frame: Join, _sender: int, _address: bytes) -> bool:
        """its sender gives up"""
        return frame.withdrawn

    def is_unproven(self, frame: Join, _sender: int, _address: bytes) -> bool:
        """the JOIN shows no identity that may be a member, and we are in no view or the JOIN withdraws a joiner"""
        return (self.context.view is None or frame.withdrawn) and bool(self.context.identities.fault(frame.info))

    def is_barred(self, frame: Join, _sender: int, _address: bytes) -> bool:
        """the JOIN shows no identity that may be a member"""
        return bool(self._barred(frame))

    def _barred(self, frame: Join) -> str:
        identities = self.context.identities
        if (fault := identities.fault(frame.info)) or not identities.used or frame.cookie == frame.info.cookie:
            return fault
        return f"{frame.info.name} brings back a number that it has not signed"

    def is_outside_and_lacks_answer(self, frame: Join, sender: int, address: bytes) -> bool:
        """we are in no view, and the JOIN does not show that its sender hears us"""
        return self.context.view is None and self.machines.challenges.lacks_answer(frame, sender, address)

    def is_outside(self, _frame: Join, _sender: int, _address: bytes) -> bool:
        """we are in no view"""
        return self.context.view is None

    def lacks_our_view(self, frame: Join, sender: int, _address: bytes) -> bool:
        """our view has just admitted the joiner, which is not us, and we have to answer"""
        entered = self.context.entered
        took = entered is not None and entered.has(sender) and sender not in entered.survivors
        return took and sender != self.context.me.id and self._answers_this_try(frame)

    def is_member(self, _frame: Join, sender: int, _address: bytes) -> bool:
        """our view has the joiner"""
        return sender in self.context.infos

    def lacks_cookie(self, frame: Join, _sender: int, _address: bytes) -> bool:
        """the JOIN does not show that its sender hears us"""
        entered = self.context.entered
        closed = entered.closes if entered is not None else None
        tags = (self.context.tag, closed.tag if closed is not None else 0)
        known = [each for tag in tags for each in self._cookies(frame, tag)]
        return bool(known) and frame.cookie not in known

    def founds_nothing(self, frame: Join, _refusal: Refused | None) -> bool:
        """the JOIN founds no group"""
        return frame.found == 0

    def does_not_fit(self, _frame: Join, refusal: Refused | None) -> bool:
        """membership refuses the joiner"""
        return refusal is not None

    def hears_us(self, frame: Join, _refusal: Refused | None) -> bool:
        """its sender hears us"""
        return self.context.me.address in frame.hears

    def is_refused(self, _frame: Join, refusal: Refused | None) -> bool:
        """membership refuses the joiner, and we have to close the view"""
        return refusal is not None and self.machines.membership.acting()

    def is_to_answer(self, frame: Join, _refusal: Refused | None) -> bool:
        """we have to close the view, or to answer"""
        inside = self.context.view is not None
        return inside and (self.machines.membership.acting() or self._answers_this_try(frame))

    def is_held_back(self, frame: Join, refusal: Refused | None) -> bool:
        """we have to answer, and membership does not take the joiner in yet"""
        return self.is_to_answer(frame, refusal) and bool(self.machines.membership.held_back(frame.info))

    def _answers_this_try(self, frame: Join) -> bool:
        return frame.tries % len(self.context.members) == self.context.rank

    # ---- JOIN: actions

    def echo(self, frame: Frame, sender: int, source: bytes) -> None:
        """The sender names another address than the source of its frame, and shows that it may. If an answer to that
        address is due, the source is told, too: nothing else would show the sender that its address is wrong."""
        context = self.context
        if context.view is None or sender in context.infos:
            return
        match frame:
            case Join() if self.is_to_answer(frame, None):
                context.send(Seen(source, frame.nonce), sender, source)
            case Beacon() if context.settings.unicast:  # elsewhere multicasts may be all that its sender gets
                context.send(Seen(source, frame.nonce), sender, source)

    def say_seen(self, frame: Join, sender: int, address: bytes) -> None:
        self.context.send(Seen(address, frame.nonce), sender, address)

    def forget_joiner(self, _frame: Join, sender: int, _address: bytes) -> None:
        self.machines.lifecycle.heard_withdrawal(sender)
        self.machines.membership.withdraw(sender)

    def challenge(self, frame: Join | Beacon, sender: int, address: bytes) -> None:
        self.machines.challenges.ask(frame, sender, address)

    def keep_joiner(self, frame: Join, sender: int, address: bytes) -> None:
        self.challenge(frame, sender, address)
        PEER.take(self, self.context.edges, frame, self.machines.membership.join(frame))

    def heed_peer(self, frame: Join, _refused: object) -> None:
        self.machines.book.named([frame.info.address], self.context.now)
        self._heed_others(frame)

    def heed_hearer(self, frame: Join, _refused: object) -> None:
        self.machines.book.heard_by(frame.info.address, self.context.now)
        self._heed_others(frame)

    def _heed_others(self, frame: Join) -> None:
        """Joiners that its sender hears, and we do not, are told of us."""
        self.machines.lifecycle.heard_peer(frame)
        heard = {peer.address for peer in self.machines.lifecycle.peers.values()}
        self.machines.book.named([each for each in frame.hears[:HEARS_MAX] if each not in heard], self.context.now)

    def repeat_view(self, _frame: Join, sender: int, _address: bytes) -> None:
        assert self.context.entered is not None
        self.context.send(self.context.secrets.shown(self.context.entered), sender)

    def note_and_answer(self, frame: Join, _sender: int, _address: bytes) -> None:
        ANSWER.take(self, self.context.edges, frame, self.machines.membership.join(frame))

    def bar(self, frame: Join, _sender: int, _address: bytes) -> None:
        ANSWER.take(
            self, self.context.edges, frame, Refused(clipped(self._barred(frame), 1000), "identity", frame.nonce)
        )

    def ask_back(self, frame: Join, sender: int, _address: bytes) -> None:
        self.machines.membership.expect(sender)
        ANSWER.take(self, self.context.edges, frame, None)

    def note_rival(self, frame: Join, _refused: object) -> None:
        self.machines.lifecycle.heard_joiner(frame.info.id)

    def say_refused(self, frame: Join, refusal: Refused) -> None:
        self.context.send(refusal, frame.info.id, frame.info.address)

    def say_wait(self, frame: Join, _refusal: Refused | None) -> None:
        self.context.send(self._wait(frame), frame.info.id, frame.info.address)

    def say_held_back(self, frame: Join, _refusal: Refused | None) -> None:
        self.context.multicast(self._wait(frame))

    def _wait(self, frame: Join) -> Wait:
        context, doubted = self.context, self.machines.membership.doubted()
        minority = self.machines.participant.minority
        why = f"it is blocked: {minority}" if minority else self.machines.membership.held_back(frame.info)
        members = context.addresses(doubted) if context.settings.book else ()
        cookie = next(self._cookies(frame, context.tag), NO_COOKIE)
        seen = frame.info.address
        return Wait(context.tag, clipped(why, WAIT_BYTES_MAX), frame.nonce, members, cookie, seen)

    def _cookies(self, frame: Join, tag: int) -> Iterator[int]:
        """The cookies that its sender may bring back; the first is the one to give out."""
        for secret in self.machines.keys.cookies():
            yield cookie(secret, frame.info.id, frame.info.address, tag)

    # ---- START, and DONE of a view that we left: guards

    def calls_us(self, frame: Start, _sender: int, _address: bytes) -> bool:
        """the START leaves us out, and its survivors are too few"""
        return self.context.me.id not in frame.survivors and not self.context.enough(frame.survivors)

    def is_in_primary(self, _frame: Start, _sender: int, _address: bytes) -> bool:
        """only a majority may close the view"""
        return self.context.primary

    def is_ours_to_serve(self, frame: Done, sender: int, _address: bytes) -> bool:
        """its attempt closed that view, and we made the VIEW, or are the first of that view's members not suspected"""
        me, closed = self.context.me.id, self.machines.lineage.closed[frame.view]
        silent = {*self.machines.membership.suspected, sender}
        first = next((info.id for info in closed.members if info.id not in silent), 0) == me
        return frame.attempt == closed.attempt and (first or closed.view_id.flush[1] == me)

    # ---- START, and DONE of a view that we left: actions

    def note_life(self, _frame: Start, sender: int, _address: bytes) -> None:
        self.machines.membership.lives(sender)

    def promise(self, frame: Start, sender: int, _address: bytes) -> None:
        self.machines.participant.start(frame, sender)
        self.machines.end_pauses()

    def show_life(self, frame: Start, sender: int, _address: bytes) -> None:
        self.machines.participant.show_life(frame, sender)
        self.machines.membership.call(sender)

    def serve(self, frame: Done, sender: int, address: bytes) -> None:
        self.context.send(self.machines.lineage.closed[frame.view], sender, address)

    # ---- BEACON: guards

    def is_of_our_view(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        """the BEACON is of our view"""
        return frame.view_id.tag == self.context.tag

    def is_ours_to_tell(self, frame: Beacon, sender: int, address: bytes) -> bool:
        """the BEACON is of a view that we left, which its sender was in, and we have to close ours"""
        known = self.machines.lineage.was_in(frame.view_id.tag, sender, address)
        return known and self.machines.membership.acting()

    def is_of_a_view_we_left(self, frame: Beacon, _sender: int, _address: bytes) -> bool:
        """the BEACON is of a view that we left"""
        return self.machines.lineage.entered(frame.view_id.tag)

    def joining_and_lacks_answer(self, frame: Beacon, sender: int, address: bytes) -> bool:
        """we seek a group, and the BEACON does not show that its sender hears us"""
        return self.machines.lifecycle.seeking and self.machines.challenges.lacks_answer(frame, sender, address)

    def is_inside_and_lacks_answer(self, frame: Beacon, sender: int, address: bytes) -> bool:
        """we are in a view, and the BEACON does not show that its sender hears us"""
        return self.context.view is not None and self.machines.challenges.lacks_answer(frame, sender, address)

    def is_inside(self, _frame: Beacon, _sender: int, _address: bytes) -> bool:
        """we are in a view"""
        return self.context.view is not None

    # ---- BEACON: actions

    def doubt_group(self, _frame: Beacon, _sender: int, _address: bytes) -> None:
        self.machines.lifecycle.heard_doubtful_group()

    def note_group(self, frame: Beacon, sender: int, address: bytes) -> None:
        self.challenge(frame, sender, address)
        self.machines.book.named([address, *frame.members], self.context.now)
        self.machines.lifecycle.heard_beacon(address)

    def note_member(self, _frame: Beacon, sender: int, _address: bytes) -> None:
        self.machines.membership.seen_here(sender)

    def tell_successor(self, frame: Beacon, sender: int, address: bytes) -> None:
        self.context.send(self.machines.lineage.closed[frame.view_id.tag], sender, address)

    def find_other(self, frame: Beacon, sender: int, address: bytes) -> None:
        self.challenge(frame, sender, address)
        self.machines.merger.beacon(frame, sender, address)

    # ---- a token ring's frames

    def has_no_ring(self, _frame: RingFrame, _sender: int, _address: bytes) -> bool:
        """our group has another kind of membership"""
        return self.machines.ring is None

    def reject_ring(self, _frame: RingFrame, _sender: int, _address: bytes) -> None:
        raise RemoteProtocolError("token ring: this group has another kind of membership")

    def pass_to_ring(self, frame: RingFrame, sender: int, _address: bytes) -> None:
        assert self.machines.ring is not None
        self.machines.ring.receive(frame, sender)

    # ---- UNBLOCK: guards

    def is_for_another_cluster(self, frame: Unblock, _sender: int, _address: bytes) -> bool:
        """the UNBLOCK is for another cluster"""
        return frame.cluster != self.context.cluster

    def is_open(self, _frame: Unblock, _sender: int, _address: bytes) -> bool:
        """our gate is open"""
        return not self.machines.participant.promised

    def has_majority(self, _frame: Unblock, _sender: int, _address: bytes) -> bool:
        """the members that are reached can close the view without an operator"""
        return self.context.allowed is None and self.context.enough(self.machines.participant.survivors)

    def is_for_our_side(self, frame: Unblock, _sender: int, _address: bytes) -> bool:
        """the UNBLOCK allows our side, which is too small"""
        return frame.side == self._side() and not self.context.enough(self.machines.participant.survivors)

    def _side(self) -> Side:
        return Side(self.context.tag, self.machines.participant.promise)

    # ---- UNBLOCK: actions

    def allow(self, _frame: Unblock, _sender: int, _address: bytes) -> None:
        """A side that was allowed once and lost its majority can be allowed again, with the members reached now."""
        context, participant = self.context, self.machines.participant
        voters = tuple(member for member in context.voters if member in participant.survivors)
        context.allowed = Allowance(participant.promise, voters)
        text = "an operator allowed this side of the group to continue without the others"
        context.emit(Warn(codes.UNBLOCKED(text)))

    def show_side(self, frame: Unblock, sender: int, address: bytes) -> None:
        context, survivors = self.context, self.machines.participant.survivors
        reached = [member for member in context.members if member.id in survivors]
        names = tuple(member.name for member in reached)
        missing = tuple(member.name for member in context.members if member.id not in survivors)
        allowed = context.allowed is not None and context.enough(survivors)
        places = tuple(context.infos[member.id].address for member in reached)
        answer = BlockedSide(frame.request, self._side(), context.me.name, names, missing, allowed, places)
        context.send(answer, sender, address)

    # ---- VIEW: guards

    def known_and_own(self, frame: NewView, sender: int, address: bytes) -> bool:
        """the VIEW comes from us, and began our view, or one that we were in"""
        return sender == self.context.me.id and self.known(frame, sender, address)

    def known(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW began our view, or one that we were in"""
        closed = self.machines.lineage.closed.values()
        return frame.view_id.tag in (self.context.tag, *(each.view_id.tag for each in closed))

    def joining_and_older(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """we seek a group, and it has us, though it is older than the view that our file knows"""
        machines = self.machines
        return machines.lifecycle.seeking and frame.has(self.context.me.id) and machines.keeper.is_older(frame)

    def joining_and_known(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """we seek a group, and the VIEW closes the view that we were in before we started again, without us as we are
        now or without its sender, who started again"""
        machines = self.machines
        return machines.lifecycle.seeking and not self._is_in(frame, sender) and machines.keeper.closes(frame)

    def _is_in(self, frame: NewView, sender: int) -> bool:
        """Does the VIEW include us, from a sender in that view, or one who closed the view before? (Some that started
        again may have chosen us to begin a view.)"""
        inside = frame.closes is None or frame.has(sender) or sender in frame.survivors
        return inside and frame.has(self.context.me.id)

    def joining_and_named(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """we seek a group, and the VIEW includes us and its sender, who has not started again"""
        named = self.machines.lifecycle.seeking and self._is_in(frame, sender)
        return named and self.context.secrets.admits(frame) and not self._unfit(frame)

    def _unfit(self, frame: NewView) -> str:
        """Why we cannot be in this view, as far as identities are concerned."""
        identities, known = self.context.identities, self.context.infos
        return identities.forged(frame, known.values()) or identities.strangers(frame, known)

    def joining(self, _frame: NewView | Beacon, _sender: int, _address: bytes) -> bool:
        """we seek a group"""
        return self.machines.lifecycle.seeking

    def elsewhere_and_named(self, frame: NewView, sender: int, address: bytes) -> bool:
        """the VIEW closes another view than ours, and admits us as a joiner"""
        me = self.context.me.id
        # (In a merged view we may be as a member of another subgroup: its VIEW is to come.)
        named = frame.has(me) and me not in frame.survivors and not frame.subgroups
        return self.context.view is not None and named and self.elsewhere(frame, sender, address)

    def elsewhere(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW closes another view than ours"""
        return self.context.view is None or frame.closes != self.context.view.view_id

    def invalid(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """its sender, counter or cut cannot be right"""
        return bool(self._fault(frame, sender))

    def _fault(self, frame: NewView, sender: int) -> str:
        context = self.context
        assert context.view is not None
        if sender not in context.infos and not self._has_returned(frame, sender):
            return "from a stranger"  # a member that serves a VIEW was in the view that it closes
        if frame.view_id.counter > context.view.view_id.counter + COUNTER_STEP_MAX:
            return "its counter is far above that of the closed view"
        if len(frame.cut) != len(context.members):
            return "the cut is not by rank of the closed view"
        return context.secrets.fault(frame, context.infos)

    def _has_returned(self, frame: NewView, sender: int) -> bool:
        """We lack a majority, and its sender was in this view before it started again (``stable=``)."""
        joiner = self.machines.membership.joiners.get(sender)
        was = joiner.was if joiner is not None and self.machines.participant.minority else None
        return was is not None and was.view == frame.view_id.tag

    def went_on_long_ago(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """we lack a majority, and its sender, who started again, was in this view, which others began after ours"""
        view = self.context.view
        if view is None or frame.closes == view.view_id or frame.lineage != self.context.root:
            return False
        later = 0 < frame.view_id.counter - view.view_id.counter <= COUNTER_STEP_MAX
        return later and self._has_returned(frame, sender) and self._is_credible(frame, sender)

    def _is_credible(self, frame: NewView, sender: int) -> bool:
        """May the sender's claim end this member? The secret of our view proves nothing about a later one. With
        identities its maker's signature does; else its sender is observed first, for as long as a rival
        (``beacons.py``)."""
        context, joiner = self.context, self.machines.membership.joiners[sender]
        if joiner.was is None or not frame.has(joiner.was.member):
            return False
        if context.identities.used:
            return not context.identities.forged(frame, context.infos.values())
        return context.now - joiner.first_ns >= 2 * context.settings.elsewhere_ns

    def has_strangers(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW has a member that is not on our list of allowed members"""
        return bool(self.context.identities.strangers(frame, self.context.infos))

    def answers_this_and_lacking(self, frame: NewView, sender: int, address: bytes) -> bool:
        """in a primary partition, the VIEW answers our newest attempt and includes us, and we lack a part of its cut"""
        return frame.answers == self.machines.initiator.attempt and self.answers_and_lacking(frame, sender, address)

    def answers_and_lacking(self, frame: NewView, sender: int, address: bytes) -> bool:
        """in a primary partition, the VIEW answers an attempt of ours and includes us, and we lack a part of its cut"""
        named = frame.answers is not None and frame.has(self.context.me.id)
        return self.context.primary and named and not self.machines.participant.holds(frame)

    def answers_and_named(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW answers an attempt to close our view, and includes us"""
        return frame.answers is not None and frame.has(self.context.me.id)

    def answers(self, frame: NewView, sender: int, _address: bytes) -> bool:
        """the VIEW answers an attempt of ours, comes from one of its survivors, and does not include us"""
        return frame.answers is not None and sender in self.machines.initiator.survivors

    def put_out(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW does not include us, although we survive its cut and did not ask to leave: we observe, or the group
        excludes slow members or those no longer on the list"""
        context, me = self.context, self.context.me.id
        out = me in frame.survivors and not frame.has(me) and not self.machines.lifecycle.leaving
        unled = context.me.observer and not frame.members
        return out and (unled or context.settings.puts_out or context.identities.used)

    def left_out_for_good(self, frame: NewView, sender: int, address: bytes) -> bool:
        """the VIEW does not include us, and either we asked to leave, and do not survive, or only a majority
        continues"""
        final = self.context.primary or self.machines.lifecycle.leaving
        return final and self.left_out(frame, sender, address)

    def left_out_by_answer(self, frame: NewView, sender: int, address: bytes) -> bool:
        """the VIEW answers an attempt and does not include us, and we did not ask to leave"""
        return frame.answers is not None and self.left_out(frame, sender, address)

    def left_out(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW does not include us, and we did not ask to leave"""
        me = self.context.me.id
        leaves = me in frame.survivors and self.machines.lifecycle.leaving
        return not frame.has(me) and not leaves

    def promised_and_named(self, frame: NewView, sender: int, address: bytes) -> bool:
        """the VIEW is of the attempt that we promised, includes us, and everything up to its cut is here"""
        return frame.has(self.context.me.id) and self.promised_and_held(frame, sender, address)

    def promised_and_held(self, frame: NewView, _sender: int, _address: bytes) -> bool:
        """the VIEW is of the attempt that we promised, and everything up to its cut is here"""
        return self.machines.participant.may_install(frame)

    # ---- VIEW: actions

    def say_installed(self, frame: NewView, sender: int, address: bytes) -> None:
        self.context.send(Installed(frame.view_id.tag), sender, address)

    def learn(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.machines.keeper.learn(frame)

    def refuse_older(self, frame: NewView, sender: int, address: bytes) -> None:
        self.context.send(Declined(frame.view_id.tag), sender, address)
        self.machines.lifecycle.fire(LifecycleEvent.REFUSED, Refused(codes.OTHER_HISTORY(OLDER), HISTORY))

    def enter(self, frame: NewView, sender: int, address: bytes) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.VIEW, frame)
        self.context.send(Installed(frame.view_id.tag), sender, address)

    def leave_with_it(self, frame: NewView, sender: int, address: bytes) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.LEFT, frame)
        self.context.send(Installed(frame.view_id.tag), sender, address)

    def decline(self, frame: NewView, sender: int, address: bytes) -> None:
        self.context.send(Declined(frame.view_id.tag), sender, address)

    def reject(self, frame: NewView, sender: int, _address: bytes) -> None:
        raise RemoteProtocolError(f"VIEW: {self._fault(frame, sender)}")

    def adopt(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.machines.participant.check_held(frame)
        self.machines.initiator.newer(frame)

    def adopt_without_us(self, frame: NewView, sender: int, address: bytes) -> None:
        """Whatever becomes of us, the sender is not in our position: another attempt does without that member."""
        self.note_sender_gone(frame, sender, address)
        self.machines.initiator.newer(frame)

    def leave_strangers(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.context.emit(Warn(codes.COMPANY(self.context.identities.strangers(frame, self.context.infos))))
        self.machines.lifecycle.fire(LifecycleEvent.EXCLUDED, frame)

    def go_out(self, frame: NewView, sender: int, address: bytes) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.EXCLUDED, frame)
        self.context.send(Installed(frame.view_id.tag), sender, address)

    def be_excluded(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.machines.lifecycle.fire(LifecycleEvent.EXCLUDED, frame)

    def give_way(self, frame: NewView, _sender: int, _address: bytes) -> None:
        self.context.emit(GiveWay(frame.view_id, WENT_ON))

    def note_sender_gone(self, _frame: NewView, sender: int, _address: bytes) -> None:
        self.machines.membership.went_on([sender])

    def stay_behind(self, frame: NewView, sender: int, address: bytes) -> None:
        """On with those in the same position, until both merge."""
        context, machines = self.context, self.machines
        assert context.view is not None
        machines.membership.went_on([*frame.survivors, *(info.id for info in frame.members)])
        machines.lineage.went_on(context.view, frame)
        context.send(Installed(frame.view_id.tag), sender, address)


R = Router
JOIN: DecisionTable = decision(
    "JOIN",
    (R.is_over, IGNORED, "a process that seeks a group must not wait for us"),
    (R.is_own_outside, IGNORED, "we hear our own multicasts"),
    (R.is_to_be_told, R.say_seen, "its address is translated on the way, or forged: only others can tell its sender"),
    (R.names_another_address, IGNORED, "answers would not reach its sender"),
    (R.is_unproven, IGNORED, "such a joiner has no say in founding the group"),
    (R.is_withdrawn, R.forget_joiner, "the joiner founds nothing, and no view need include it"),
    (R.is_outside_and_lacks_answer, R.challenge, "the JOIN may be a recorded one whose sender is gone"),
    (R.is_outside, R.keep_joiner, "the joiner with the lowest id forms the first view: perhaps that is us"),
    (R.lacks_our_view, R.repeat_view, "the member has not received our VIEW"),
    (R.is_member, IGNORED, "another member sends our VIEW"),
    (R.lacks_cookie, R.ask_back, "the JOIN may be a recorded one whose sender is gone"),
    (R.is_barred, R.bar, "its identity is not on the list of allowed members, or is not its own"),
    (None, R.note_and_answer, "the joiner asks our group"),
)
PEER: DecisionTable = decision(
    "JOIN beside ours",
    (R.founds_nothing, IGNORED, "the joiner waits for a group, as we do"),
    (R.does_not_fit, R.note_rival, "the joiner cannot be in one group with us, but may form the first view, and refuse "
                                   "us"),
    (R.hears_us, (R.note_rival, R.heed_hearer), "our JOINs arrive there directly; otherwise as below"),
    (None, (R.note_rival, R.heed_peer), "the joiner may form the first view, or leave that to us"),
)
ANSWER: DecisionTable = decision(
    "answer to JOIN",
    (R.is_refused, R.say_refused, "one member speaks for the group"),
    (R.is_held_back, R.say_held_back, "unicasts to or from the joiner were lost: a multicast may still arrive"),
    (R.is_to_answer, R.say_wait, "there is a group: form none; we take turns, as the acting member may be dead"),
    (None, IGNORED, "another member answers"),
)
START: DecisionTable = decision(
    "START",
    (R.calls_us, (R.note_life, R.promise, R.show_life), "they and we can close the view only together"),
    (R.is_in_primary, (R.note_life, R.promise), "its sender is alive, whatever we suspected"),
    (None, R.promise, "the attempt is promised, if we are included and no attempt is higher"),
)
DONE: DecisionTable = decision(
    "DONE of a view that we left",
    (R.is_ours_to_serve, R.serve, "its sender waits for the VIEW"),
    (None, IGNORED, "another member serves the VIEW"),
)
VIEW: DecisionTable = decision(
    "VIEW",
    (R.known_and_own, IGNORED, "we know that"),
    (R.known, R.say_installed, "the sender repeats its VIEW until we confirm"),
    (R.joining_and_older, R.refuse_older, "that group was founded apart, without the files of most members"),
    (R.joining_and_known, R.learn, "its members decided without us as we are now, or before we started again"),
    (R.joining_and_named, R.enter, "our first view"),
    (R.joining, IGNORED, "the view admitted others"),
    (R.elsewhere_and_named, R.decline, "two groups admitted us"),
    (R.went_on_long_ago, R.give_way, "we are behind by more than one view, which nobody has any more"),
    (R.elsewhere, IGNORED, "the VIEW is late, or of a subgroup that merges with ours"),
    (R.invalid, R.reject, "nobody may send this"),
    (R.put_out, R.go_out, "the others exclude us, because we are too slow or not on their list: we go after its cut"),
    (R.has_strangers, R.leave_strangers, "its members admitted somebody with whom we may not share a view"),
    (R.answers_this_and_lacking, R.be_excluded, "decided without us, by members that have the packets that we lack"),
    (R.answers_and_lacking, IGNORED, "a newer attempt of ours may still end well"),
    (R.answers_and_named, R.adopt, "a survivor has left the view: its VIEW takes the place of our proposal (step 1)"),
    (R.answers, R.adopt_without_us, "a survivor has left the view, and we stay behind"),
    (R.left_out_for_good, R.be_excluded, "others closed our view without us (step 8)"),
    (R.left_out_by_answer, (R.note_sender_gone, R.stay_behind), "its sender has left our view, too"),
    (R.left_out, R.stay_behind, "others closed our view without us (step 8): we continue, and merge with them"),
    (R.promised_and_named, R.enter, "the end of the attempt that we promised (step 5)"),
    (R.promised_and_held, R.leave_with_it, "the end of the attempt that we promised, and we asked to leave"),
    (None, IGNORED, "we promised another attempt, or none: that one's VIEW will come, or ours is asked for"),
)
BEACON: DecisionTable = decision(
    "BEACON",
    (
        R.joining_and_lacks_answer,
        (R.doubt_group, R.challenge),
        "the BEACON may be a recorded one, of a view that has ended",
    ),
    (R.joining, R.note_group, "there is a group: form none"),
    (R.is_of_our_view, R.note_member, "its sender is with us"),
    (R.is_ours_to_tell, R.tell_successor, "its sender is behind, or was left out, and learns this from us"),
    (R.is_of_a_view_we_left, IGNORED, "another member tells its sender, or none should"),
    (R.is_inside_and_lacks_answer, R.challenge, "the BEACON may be a recorded one, of a view that has ended"),
    (R.is_inside, R.find_other, "another view of this cluster, or a group of another one"),
    (None, IGNORED, "we are on our way in or out"),
)
RING: DecisionTable = decision(
    "frame of the ring",
    (R.has_no_ring, R.reject_ring, "nobody may send this"),
    (None, R.pass_to_ring, "the ring's table decides"),
)
UNBLOCK: DecisionTable = decision(
    "UNBLOCK",
    (R.is_for_another_cluster, IGNORED, "the other cluster uses the same multicast address"),
    (R.is_open, IGNORED, "our side is not blocked"),
    (R.has_majority, IGNORED, "our side does not lack a majority"),
    (R.is_for_our_side, (R.allow, R.show_side), "an operator knows that the others are gone for good"),
    (None, R.show_side, "the operator sees all sides before one is allowed"),
)
DECISIONS = (JOIN, PEER, ANSWER, START, DONE, VIEW, BEACON, RING, UNBLOCK)
"""The meaning of a frame to this member, and its effect."""

# ---- routes ------------------------------------------------------------------------------------------------------


def _refuse_version(machines: Machines, frame: OtherVersion, sender: int, address: bytes) -> None:
    reason = f"the group speaks protocol version {PROTOCOL_VERSION}, not {frame.version}: use one release, or two "
    reason += "that follow each other"
    machines.context.send(Refused(reason, "version", frame.nonce), sender, address)


def _heed_wait(machines: Machines, frame: Wait, _: int, address: bytes) -> None:
    machines.book.named(frame.members, machines.context.now)
    machines.lifecycle.heard_by(address)
    machines.lifecycle.admits = next(iter(frame.members), b"")
    machines.lifecycle.heard_answer(frame.blocked)
    machines.lifecycle.heard_cookie(frame.cookie)
    machines.lifecycle.heard_place(frame.seen)


def _block(machines: Machines, frame: Block, sender: int, _: bytes) -> None:
    machines.participant.block(frame, sender)
    machines.end_pauses()


def _answer_with_view(machines: Machines, frame: Block | Start, sender: int, address: bytes) -> None:
    closed = machines.lineage.closed[frame.view]
    machines.context.send(replace(closed, answers=frame.attempt), sender, address)


def _installed(machines: Machines, frame: Installed, sender: int, _: bytes) -> None:
    machines.initiator.installed(frame, sender)
    machines.end_lingering()


ROUTES = (
    Route(Join, Of.ANY, By.NAMED, JOIN),
    Route(OtherVersion, Of.ACTING, By.ANYONE, _refuse_version, "membership: refuses the joiner"),
    Route(OtherVersion, Of.OUTSIDE, By.ANYONE, lambda m, _, who, __: m.lifecycle.heard_joiner(who),
          "lifecycle: the joiner with the lower id forms the group, and refuses the other"),
    Route(Wait, Of.ANY, By.ASKED, _heed_wait, "lifecycle: a group exists, so none is formed"),
    Route(Seen, Of.ANY, By.ASKED, lambda m, f, _, __: m.lifecycle.heard_place(f.seen),
          "lifecycle: others see us at another address than ours, which we may take"),
    Route(Challenge, Of.SOUGHT, By.SEALED, lambda m, f, who, at: m.challenges.answer(f, who, at, m.lifecycle.own_join),
          "lifecycle: a JOIN shows its sender that we are there"),
    Route(Challenge, Of.INSIDE, By.SEALED,
          lambda m, f, who, at: m.challenges.answer(f, who, at, m.merger.beacons.own_beacon),
          "merge: a BEACON shows its sender that our view is there"),
    Route(Refused, Of.ANY, By.ASKED, lambda m, f, _, __: m.lifecycle.fire(LifecycleEvent.REFUSED, f),
          "lifecycle: the join fails, unless a VIEW takes us in soon"),
    Route(Leave, Of.OURS, By.ANYONE, lambda m, _, who, __: m.membership.leave(who), "membership: notes the leaver"),
    Route(Block, Of.OURS, By.ANYONE, _block, "participant: runs the block callback; pauses end"),
    Route(Block, Of.LEFT, By.ANYONE, _answer_with_view,
          "lineage: answers with the closing VIEW (the cut, step 1)"),
    Route(BlockOk, Of.OURS, By.ANYONE, lambda m, f, who, _: m.initiator.block_ok(f, who),
          "initiator: counts the answer"),
    Route(Start, Of.OURS, By.ANYONE, START),
    Route(Start, Of.LEFT, By.ANYONE, _answer_with_view,
          "lineage: answers with the closing VIEW (the cut, step 1)"),
    Route(Ok, Of.OURS, By.ANYONE, lambda m, f, who, _: m.initiator.ok(f, who), "initiator: counts the answer"),
    Route(Accepted, Of.OURS, By.ANYONE, lambda m, f, who, _: m.initiator.note_accepted(f, who),
          "initiator: notes the VIEW that its sender accepted before"),
    Route(Promised, Of.OURS, By.ANYONE, lambda m, f, who, _: m.initiator.promised(f, who),
          "initiator: backs off if a survivor promised a higher attempt"),
    Route(Cut, Of.OURS, By.ANYONE, lambda m, f, who, _: m.participant.cut(f, who),
          "participant: fetches missing packets up to the cut"),
    Route(Propose, Of.OURS, By.ANYONE, lambda m, f, who, _: m.participant.propose(f, who),
          "participant: accepts the proposal with its DONE"),
    Route(Recall, Of.SOUGHT, By.OTHERS, lambda m, f, who, at: m.keeper.recall(f, who, at),
          "keeper: votes as the member that we were before we started again"),
    Route(Recalled, Of.SOUGHT, By.OTHERS, lambda m, f, who, _: m.lifecycle.begin_with(m.keeper.recalled(f, who)),
          "keeper: counts the vote of one that started again, as we did"),
    Route(Recalled, Of.OURS, By.OTHERS, lambda m, f, who, at: m.initiator.recalled(f, who, at),
          "initiator: counts the vote of a member that started again"),
    Route(Done, Of.OURS, By.ANYONE, lambda m, f, who, _: m.initiator.done(f, who), "initiator: counts the answer"),
    Route(Done, Of.LEFT, By.ANYONE, DONE),
    Route(NewView, Of.ANY, By.ANYONE, VIEW),
    Route(Installed, Of.ANY, By.ANYONE, _installed,
          "initiator: counts the answer; a leaver that waited for INSTALLED is done"),
    Route(Declined, Of.OURS, By.AWAITED, lambda m, _, who, __: m.membership.decline(who),
          "membership: excludes the joiner, which entered another view"),
    Route(Suspend, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.pause_member.suspend(f, who),
          "pause member: stops sending"),
    Route(Suspended, Of.OURS, By.ANYONE, lambda m, f, who, _: m.pause_owner.suspended(f, who),
          "pause owner: counts the answer"),
    Route(Resume, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.pause_member.resume(f, who), "pause member: continues"),
    Route(Resumed, Of.OURS, By.ANYONE, lambda m, f, who, _: m.pause_owner.resumed(f, who),
          "pause owner: counts the answer"),
    Route(ViewWanted, Of.OURS, By.ANYONE, lambda m, _, who, __: m.membership.want(who),
          "membership: a VIEW is needed, for another provider of the state or a new secret"),
    Route(InfoTold, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.membership.inform(who, f),
          "membership: a VIEW is needed with this info, or these keys"),
    Route(Gossip, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.gossip.received(f, who),
          "gossip: asks the sender for missing packets, and passes the gossip on"),
    Route(Ask, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.asking.asked(f, who),
          "asking: answers with the board, unless the last answer was a moment ago"),
    Route(Told, Of.OURS, By.MEMBERS, lambda m, f, who, _: m.asking.told(f, who),
          "asking: reports an answer to the last question"),
    Route(Beacon, Of.ANY, By.OTHERS, BEACON),
    Route(Met, Of.INSIDE, By.OTHERS, lambda m, f, who, at: m.merger.beacons.met(f, who, at),
          "book: we, or the acting member, try the addresses in the frame"),
    Route(Unblock, Of.INSIDE, By.ANYONE, UNBLOCK),
    Route(BlockedSide, Of.ANY, By.ANYONE, lambda *_: None, "nobody: the answer is for an operator"),
    *(Route(frame, Of.OURS, By.MEMBERS, RING) for frame in (Token, TokenHeld, Confirm, Confirmed, Unconfirmed)),
    *(
        Route(frame, Of.ANY, By.ANYONE, lambda m, f, who, at: m.merger.receive(f, who, at), "merge: see its table")
        for frame in (MergeAsk, MergeRefused, MergeReady, MergeGo, MergeTaken, MergeCancel)
    ),
)
_BY_FRAME = {frame: tuple(route for route in ROUTES if route.frame is frame) for frame in {r.frame for r in ROUTES}}
