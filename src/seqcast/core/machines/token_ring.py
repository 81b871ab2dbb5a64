"""Membership by a token ring: all members agree on the next membership before the acting member closes the view.

Doubts, joiners, leavers and the acting member are as in `coordinated.py`. But before the acting member closes the view,
its token goes round the view's members (`ring.py`) and collects joiners unknown to itself (NBC-04, NBC-07). The cut,
which closes the gate, begins only when all members have agreed on the membership (NBC-02): a member whose process hangs
delays the token, but no messages. A member that knows of a change on which the acting one does not act calls that one
with a token of its own (NBC-14).

A token passes through members that did not make it, and cannot announce that a member leaves: a member that wants to
leave announces that itself, together with its agreement to the membership.

The absolute order is that of the view's members (NBC-03): the same everywhere, with joiners last, and chosen by the
application's membership policy. The VIEW of the cut is the confirmation that the group sees, and is acknowledged and
repeated (NBC-11, E-22). A survivor that crashes during the cut needs no new agreement: the next attempt leaves that one
out.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.ring import Confirm, Confirmed, RingFrame, Token, Unconfirmed
from seqcast.core.machines.coordinated import CoordinatedMembership, MembershipEvent, Review
from seqcast.core.machines.participant import Participant
from seqcast.core.machines.ring import Ring, RingSettings
from seqcast.core.membership import Joiner, Membership
from seqcast.core.rules.ring import RingView
from seqcast.core.table import IGNORED, Table, table
from seqcast.core.vocabulary import TokenRemade
from seqcast.errors import RemoteProtocolError
from seqcast.types import MEMBERS_MAX


class TokenRingState(Enum):
    QUIET = auto()
    BUNDLING = auto()
    AGREEING = auto()
    CHANGING = auto()


LEASE_PART = 4
"""A token's lease is that of a view change divided by this: another token costs little, and the gate is open."""
S, E = TokenRingState, MembershipEvent
M = CoordinatedMembership


class TokenRingMembership(CoordinatedMembership):
    """The members of one view, as they agree on them.

    Args:
        context: of the endpoint.
        participant: of the same view.
        before: the membership of the view before; its joiners and leavers are not settled yet.
    """

    def __init__(self, context: Context, participant: Participant, before: Membership | None = None) -> None:
        super().__init__(context, participant, before)
        self.state = S.QUIET
        settings, me = context.settings, context.me.id
        ids = tuple(member.id for member in context.members) or (me,)
        places = {member: rank for rank, member in enumerate(ids)}
        times = RingSettings(
            settings.repeat_ns_min,
            settings.repeat_ns_max,
            settings.flush_deadline_ns,
            settings.lease_ns // LEASE_PART,
        )
        view = RingView(0, ids[0], ids)
        self.ring = Ring(
            me, places.__getitem__, times, self._send, context.edges, view, context.tag, self._remade, self._leaves
        )
        self.ring.hold_back()
        self.agreed_before = view  # the membership agreed on when this member began to ask
        self.called = False  # another member asked for a view, for a reason unknown here

    def _send(self, frame: RingFrame, member: int) -> None:
        self.context.send(frame, member)

    def _remade(self, generation: int) -> None:
        self.context.emit(TokenRemade(generation))

    def _leaves(self) -> bool:
        return self.context.me.id in self.leavers

    # ---- knowledge

    def doubted(self) -> set[int]:
        return super().doubted() | self.ring.mute

    def reasons(self) -> dict[int, str]:
        why = dict.fromkeys(self.ring.mute, "did not answer a token, or did not agree to the membership, in time")
        return why | super().reasons()

    # ---- inputs

    def receive(self, frame: RingFrame, sender: int) -> None:
        """A frame of the ring, by a member of the view.

        Raises:
            RemoteProtocolError: processes outside the view, or the ring refuses the frame.
        """
        named: set[int] = set()
        match frame:
            case Token():
                named = {frame.source, frame.leader, *frame.members, *frame.visited, *frame.lost}
            case Confirm():
                named = {frame.leader, *frame.members, *frame.lost}
            case Unconfirmed():
                named = {*frame.members}
        if not named <= self.context.infos.keys():
            raise RemoteProtocolError("token ring: the frame names processes that are not in the view")
        self.ring.receive(frame, sender, self.context.now)
        match frame:
            case Token():
                for info in frame.joiners:
                    self._hear_of(info)
                self.called |= frame.asked and frame.source != self.context.me.id and self.acting()
            case Confirmed(leaves=True):
                self.leave(sender)

    def _hear_of(self, info: MemberInfo) -> None:
        """Another member noted a joiner, and has checked the settings."""
        context = self.context
        addresses = {each.address for each in context.infos.values()}
        if info.id in context.infos or info.id in context.departed or info.address in addresses:
            return
        known = self.joiners.get(info.id)
        if known is not None:
            known.last_ns = context.now
        elif len(self.joiners) < MEMBERS_MAX:
            self.joiners[info.id] = Joiner(info, context.now, context.now)

    def _reason(self, doubted: set[int]) -> bool:
        return self.called or super()._reason(doubted)

    def trust(self, member_id: int) -> None:
        super().trust(member_id)
        self.ring.trust(member_id)

    def lives(self, member_id: int) -> None:
        super().lives(member_id)
        self.ring.trust(member_id)

    # ---- time, and the next view

    def review(self, runs: bool, survivors: tuple[int, ...], backing_off: bool, too_few: bool = False) -> Review:
        doubted = super().doubted()  # perhaps members of other views, too
        members = {member.id for member in self.context.members}
        self.ring.lose(members & doubted)
        self.ring.know(members - doubted)
        self.ring.review(self.context.now)
        return super().review(runs, survivors, backing_off, too_few)

    def due(self) -> int:
        return min(super().due(), self.ring.due())

    # ---- guards

    def must_call(self, review: Review) -> bool:
        """There is something to agree on, and the acting member does not begin."""
        waits = self.leaving() or (self.joiners and self.joining()) or self.wanting or self.has_news()
        return bool(waits) and not review.ours and not self.participant.closing

    def has_agreed(self, review: Review) -> bool:
        """Since this member asked, all agreed on a membership that has all its trusted members."""
        agreed = self.ring.view
        trusted = {member.id for member in self.context.members} - review.doubted
        ours = agreed is not self.agreed_before and agreed.leader == self.context.me.id
        return ours and trusted.issubset(agreed.members)

    def was_called_in_vain(self, review: Review) -> bool:
        """They agreed, and nobody wants to leave: the reason that a member had is gone, or never was."""
        return self.called and self.has_agreed(review) and not super()._reason(review.doubted)

    def waits_for_agreement(self, _review: Review) -> bool:
        return self.ring.view is self.agreed_before

    # ---- actions

    def ask(self, review: Review) -> None:
        """A token, about all that is known now."""
        self.bundle_due_ns = NEVER
        self.agreed_before = self.ring.view
        self.ring.release()
        self.ask_ring(review)
        if self.has_agreed(review):  # alone: nobody has to be asked
            self.fire(E.REVIEW, review)

    def ask_ring(self, review: Review) -> None:
        """A token: round the ring, or towards the acting member."""
        self.add(review)
        self.ring.review(self.context.now)

    def add(self, _review: Review) -> None:
        """The token carries all that is known now."""
        self.ring.ask(self.joining())

    def rest(self, *_: object) -> None:
        super().rest()
        self.ring.hold_back()

    def initiate(self, review: Review) -> None:
        super().initiate(review)
        self.ring.hold_back()

    def end_call(self, review: Review) -> None:
        self.called = False
        self.rest(review)

    TABLE: ClassVar[Table] = table(
        "ring membership",
        S,
        E,
        (
            tuple(S),
            (E.REVIEW, must_call),
            S.QUIET,
            (rest, ask_ring),
            "a change, and the acting member does nothing: a token calls that one (NBC-14)",
        ),
        (S.QUIET, (E.REVIEW, M.rests), None, IGNORED, "nothing to do, or another member's turn"),
        (
            (S.BUNDLING, S.AGREEING, S.CHANGING),
            (E.REVIEW, M.rests),
            S.QUIET,
            rest,
            "the reason is gone, or another member's turn",
        ),
        (
            tuple(S),
            (E.REVIEW, M.must_begin_again),
            S.CHANGING,
            initiate,
            "a survivor is doubted, or more can take part: the gate is closed, so without another token",
        ),
        (S.CHANGING, (E.REVIEW, M.attempt_runs), None, IGNORED, "joiners and leavers count when the VIEW is made"),
        (tuple(S), (E.REVIEW, M.attempt_runs), S.CHANGING, rest, "our attempt still runs"),
        (S.QUIET, E.REVIEW, S.BUNDLING, M.bundle, "our turn: more requests may follow (FLU-11)"),
        (S.BUNDLING, (E.REVIEW, M.may_bundle_more), None, IGNORED, "no member is suspected: requests may follow"),
        (S.BUNDLING, (E.REVIEW, M.verifies_others), None, M.wait, "others may have failed too: one view for all"),
        (S.BUNDLING, E.REVIEW, S.AGREEING, ask, "the bundling delay is over: the token"),
        (S.AGREEING, (E.REVIEW, was_called_in_vain), S.QUIET, end_call, "no member leaves: the view stays"),
        (
            S.AGREEING,
            (E.REVIEW, has_agreed),
            S.CHANGING,
            initiate,
            "all agree (NBC-10): the cut confirms that",
        ),
        (
            S.AGREEING,
            (E.REVIEW, waits_for_agreement),
            None,
            add,
            "the token is under way, and messages flow (NBC-02)",
        ),
        (
            S.AGREEING,
            E.REVIEW,
            None,
            ask,
            "they agreed with another member, or a member is trusted again",
        ),
        (S.CHANGING, E.REVIEW, None, initiate, "our attempt was given up, and the reason persists"),
        (None, E.VIEW, S.QUIET, rest, "a new view"),
    )
