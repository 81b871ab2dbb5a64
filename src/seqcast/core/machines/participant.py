"""One member's part in the cut that closes its view (the cut, steps 1 to 6).

BLOCK, sent if some application has a block callback, only asks: sending and stamping stay open, and nothing is
promised. The answer follows when the callback has run and its messages have their places in the order, so that they are
delivered in the view that closes. A member promises the highest attempt of its answers, and accepts CUT and VIEW
under that one only. From its OK on the gate is closed and nothing from outside the survivors is accepted; after CUT
nothing is delivered until VIEW.

In a primary partition (step 9) DONE also *accepts* the VIEW that the initiator proposes beside its CUT, and the next OK
reports that. A VIEW that was served is then the only possible one, under any attempt: installed as soon as everything
up to its cut is here. To make that possible, nothing is delivered from the OK on: another attempt, with other
survivors, may have another cut.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.closing import (
    RANGES_ALL_MAX,
    RANGES_MAX,
    Accepted,
    Block,
    BlockOk,
    Cut,
    Done,
    Held,
    Ok,
    Promised,
    Propose,
    Start,
)
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.recalling import Kept, Taken
from seqcast.core.frames.view import NewView
from seqcast.core.machines.blocker import Blocker
from seqcast.core.orders import by_name
from seqcast.core.orders.order import NOBODY
from seqcast.core.rules.cut import with_table
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import Keep, TellBlocked
from seqcast.errors import RemoteProtocolError

NO_PROMISE: Attempt = (0, -1)
ATTEMPT_STEP_MAX = 1 << 20
"""How far an attempt may exceed the last one seen: a member that was cut off may have missed some, and each takes its
initiator milliseconds. Without a limit, one frame with the highest number would leave none for later attempts."""


class ParticipantState(Enum):
    OPEN = auto()
    BLOCKING = auto()
    SETTLING = auto()
    BLOCKED = auto()
    PROMISED = auto()
    FETCHING = auto()
    DONE = auto()


class ParticipantEvent(Enum):
    BLOCK = auto()
    RETURNED = auto()
    POLL = auto()
    START = auto()
    CUT = auto()
    REACHED = auto()
    LEASE = auto()
    REPEAT = auto()


S, E = ParticipantState, ParticipantEvent
_BEFORE = (S.OPEN, S.BLOCKING, S.SETTLING, S.BLOCKED)
_BOUND = (S.PROMISED, S.FETCHING, S.DONE)
_POLL_NS = 2_000_000  # between two looks at unordered messages


class Participant(TableMachine):
    def __init__(self, context: Context, blocker: Blocker) -> None:
        super().__init__(S.OPEN, context.edges)
        self.context = context
        self.blocker = blocker
        self.promise = NO_PROMISE
        self.heeded = NO_PROMISE  # the highest attempt whose BLOCK was heard
        self.asked: tuple[int, ...] = ()  # its named survivors
        self.sent: int | None = None  # own seqno up to which messages of the callback may be; None: still running
        self.poll_ns = NEVER
        self.highest = 0  # highest attempt seen, of any initiator
        self.ok: Ok | None = None
        self.named: Cut | None = None  # of the attempt that is promised; in a primary partition:
        self.proposal: NewView | None = None  # the VIEW proposed under it
        self.accepted: tuple[Attempt, NewView] | None = None  # the VIEW we answered with DONE last, and its attempt
        self.survivors: tuple[int, ...] = ()
        self.lease_ns = NEVER
        self.asks = Repeat(context.settings.repeat_ns_max, context.settings.repeat_ns_max)
        # Initiators, and survivors of our attempts, that did not answer in time; may include us.
        self.lapsed: set[int] = set()

    @property
    def closing(self) -> bool:
        """A member has begun to close our view."""
        return self.state is not S.OPEN

    @property
    def promised(self) -> bool:
        """We answered a START: our gate is closed until the next view."""
        return self.promise != NO_PROMISE

    @property
    def initiator(self) -> int:
        """Id of the member whose attempt is promised, or, before that, whose BLOCK is heeded."""
        attempt = self.promise if self.promised else self.heeded
        return self.context.members[attempt[1]].id

    @property
    def minority(self) -> str:
        """Why the members that can be reached cannot close our view, and the remedy; "" if they can, or none tries."""
        few = self.promised and not self.context.enough(self.survivors)
        return self._few(self.survivors) if few else ""

    # ---- inputs

    def block(self, frame: Block, sender: int) -> None:
        """A BLOCK: START for our view will follow."""
        if self._may_start(frame, sender):
            self.fire(E.BLOCK, frame)

    def returned(self) -> None:
        """The callback returned, or its deadline is over."""
        self.fire(E.RETURNED)

    def trust(self, member: int) -> None:
        """A member that did not answer in time is alive."""
        self.lapsed.discard(member)

    def give_up(self, members: Iterable[int]) -> None:
        """Survivors of our attempt did not answer in time."""
        self.lapsed.update(members)

    def _may_start(self, frame: Block | Start, sender: int) -> bool:
        """Says whether this member is addressed.

        Raises:
            RemoteProtocolError: forbidden for all members.
        """
        members = self.context.members
        rank = frame.attempt[1]
        if rank >= len(members) or members[rank].id != sender:
            raise RemoteProtocolError("START: the sender is not the initiator that the attempt names")
        by_rank = [member.id for member in members if member.id in frame.survivors]
        if by_rank != list(frame.survivors) or frame.survivors[:1] != (sender,):
            raise RemoteProtocolError("START: the survivors are not members by rank, the initiator first")
        self.saw(frame.attempt)
        return self.context.me.id in frame.survivors

    def saw(self, attempt: Attempt) -> None:
        """Notes an attempt: the next one of ours must be above it.

        Raises:
            RemoteProtocolError: the number is too far above all known ones.
        """
        if attempt[0] > max(self.highest, self.promise[0]) + ATTEMPT_STEP_MAX:
            raise RemoteProtocolError("an attempt that is far above all others")
        self.highest = max(self.highest, attempt[0])

    def start(self, frame: Start, sender: int) -> None:
        """A START that closes our view."""
        if self._may_start(frame, sender):
            self.fire(E.START, frame)

    def show_life(self, frame: Start, sender: int) -> None:
        """A START by too few members, which leaves us out: they may believe us dead."""
        self.saw(frame.attempt)
        self.context.send(Promised(frame.view, frame.attempt, self.promise), sender)

    def cut(self, frame: Cut, sender: int) -> None:
        """A CUT that closes our view.

        Raises:
            RemoteProtocolError: under our promise, and cannot be right.
        """
        if frame.attempt == self.promise:
            if sender != self.initiator or len(frame.cut) != len(self.context.members):
                raise RemoteProtocolError("CUT: not by the initiator, or not by rank")
            self.renew()
            self.named = frame
            if self.proposal is None and self.context.primary:
                return
        self._take_cut(frame)

    def propose(self, frame: Propose, sender: int) -> None:
        """The result if the present attempt to close our view ends well.

        Raises:
            RemoteProtocolError: under our promise, and cannot be right.
        """
        context, proposal = self.context, frame.proposal
        if frame.attempt != self.promise:
            return
        rightful = sender == self.initiator and context.primary
        ours = context.view is not None and proposal.closes == context.view.view_id
        if not rightful or not ours or len(proposal.cut) != len(context.members):
            raise RemoteProtocolError("PROPOSE: not by the initiator, or of another view")
        if self.proposal is None:
            self.proposal = proposal
            if self.named is not None:
                self._take_cut(self.named)

    def _take_cut(self, frame: Cut) -> None:
        if frame.attempt == self.promise and self.proposal is not None and frame.cut != self.proposal.cut:
            raise RemoteProtocolError("PROPOSE: another cut than that of the CUT")
        self.fire(E.CUT, frame)
        if frame.attempt == self.promise:
            self.reached()

    def reached(self) -> None:
        """The engine may have everything up to the cut."""
        if self.context.plane.cut_reached():
            self.fire(E.REACHED)

    def may_install(self, frame: NewView) -> bool:
        """Is this VIEW under our promise, and is everything up to its cut here?

        An adopted VIEW (step 1) may come when we are not DONE under this promise; we were under an earlier one.

        Raises:
            RemoteProtocolError: under our promise, and cannot be right.
        """
        if not self.promised:
            return False
        if frame.attempt != self.promise:
            return self.context.primary and self.holds(frame)
        self.check_held(frame)
        return True

    def holds(self, frame: NewView) -> bool:
        """Do we hold everything up to the cut of a VIEW?"""
        return all(self.context.plane.held(rank)[0] >= seqno for rank, seqno in enumerate(frame.cut))

    def check_held(self, frame: NewView) -> None:
        """Raises RemoteProtocolError if we do not hold everything up to the cut of a VIEW that has us."""
        if not self.holds(frame):
            raise RemoteProtocolError("VIEW: its cut names packets that were never requested")

    def renew(self, *_: object) -> None:
        self.lease_ns = self.context.now + self.context.settings.lease_ns

    def due(self) -> int:
        return min(self.lease_ns, self.asks.due, self.poll_ns)

    def run_timers(self) -> None:
        if self.context.now >= self.poll_ns:
            self.fire(E.POLL)
        if self.asks.take(self.context.now):
            self.fire(E.REPEAT)
        if self.context.now >= self.lease_ns:
            self.fire(E.LEASE)

    # ---- guards

    def callback_is_done(self, frame: Block) -> bool:
        return self.blocker.done and self._settled(frame.survivors)

    def callback_has_run(self, _frame: Block) -> bool:
        return self.blocker.done

    def is_settled(self) -> bool:
        return self._settled(self.asked)

    def _settled(self, survivors: tuple[int, ...]) -> bool:
        """Have the callback's messages their places in the order, or can they have none in this view?

        Other threads may go on sending, so only messages sent before this is first asked count; and of those that wait
        for the gate, only those that came before the callback had returned.

        Timeline without the latter: a owns a pause and crashes. Messages of b wait for the end of the pause, which may
        come a lease later, and so b would answer BLOCK only then.
        """
        context, plane, view = self.context, self.context.plane, self.context.view
        assert view is not None
        if not context.settings.blocks:
            return True
        if plane.queued() - plane.blocked() < self.blocker.queued:
            return False
        orders = by_name(view.mechanism).forwards_to(view.sequencer)
        if orders in (NOBODY, context.rank) or view.members[orders].id not in survivors:
            return True
        if self.sent is None:
            self.sent = plane.last_sent()
        return plane.own().any >= self.sent

    def is_below_promise(self, frame: Block | Start) -> bool:
        return frame.attempt < self.promise

    def is_promised(self, frame: Start) -> bool:
        return frame.attempt == self.promise

    def is_not_promised(self, frame: Cut) -> bool:
        return frame.attempt != self.promise

    # ---- actions

    def run_callback(self, _frame: Block) -> None:
        self.blocker.ask()

    def heed(self, frame: Block) -> None:
        self.heeded = max(self.heeded, frame.attempt)
        self.asked = frame.survivors
        self.lapsed.discard(self.initiator)
        self.renew()
        # Messages of callbacks must not wait for credit of crashed members.
        context = self.context
        context.plane.uncount([member.id for member in context.members if member.id not in frame.survivors])

    def say_blocked(self, frame: Block) -> None:
        self.context.send(BlockOk(frame.view, frame.attempt), self.context.members[frame.attempt[1]].id)

    def say_returned(self) -> None:
        self.context.send(BlockOk(self.context.tag, self.heeded), self.initiator)

    def await_order(self, *_: object) -> None:
        self.poll_ns = self.context.now + _POLL_NS

    def end_poll(self, *_: object) -> None:
        self.poll_ns = NEVER

    def promise_it(self, frame: Start) -> None:
        self.promise = frame.attempt
        self.poll_ns = NEVER
        self.survivors = frame.survivors
        self.named = self.proposal = None
        self.asks.stop()
        self.lapsed.discard(self.initiator)
        self.renew()

    def keep(self, *_: object) -> None:
        """Our answer binds whoever takes our place, too."""
        context = self.context
        if context.settings.stable:
            assert context.entered is not None
            accepted = Taken(*self.accepted) if self.accepted is not None else None
            context.emit(Keep(Kept(context.entered, self.promise, accepted, views=context.views)))

    def close_gate(self, frame: Start) -> None:
        """Gate and last seqno in one step (E-15), then the freeze, then the list of packets held: nothing can come in
        between."""
        context, plane = self.context, self.context.plane
        last = plane.gate_close(context.settings.flush_unicasts)
        if context.enough(frame.survivors):
            context.emit(TellBlocked("flush", "the view is being closed"))
        else:
            context.emit(TellBlocked("minority", self._few(frame.survivors)))
        lost = [rank for rank, member in enumerate(context.members) if member.id not in frame.survivors]
        plane.freeze([context.members[rank].id for rank in lost], context.primary)
        most = min(RANGES_MAX, RANGES_ALL_MAX // max(len(lost), 1))
        held = []
        for rank in range(len(context.members)):
            prefix, ranges = plane.held(rank)
            # Ranges beyond the prefix matter only for lost members: a survivor has all of its own.
            held.append(Held(prefix, tuple(ranges[:most]) if rank in lost else ()))
        accepted = self.accepted and self.accepted[0]
        context.answered = frame.view
        self.ok = Ok(frame.view, frame.attempt, last, tuple(held), context.lacks, accepted)

    def _few(self, survivors: tuple[int, ...]) -> str:
        names = {member.id: member.name for member in self.context.members}
        return (
            f"only [{', '.join(names[each] for each in survivors)}] of [{', '.join(names.values())}] can be reached, "
            "which is not a majority: the group continues when more are back (processes started again count only with "
            "stable=). If they are gone for good, an operator "
            f"can unblock it: seqcast unblock {shlex.quote(self.context.cluster)}{self.context.settings.reach}"
        )

    def answer(self, frame: Start) -> None:
        assert self.ok is not None
        if self.accepted is not None:
            self.context.send(Accepted(frame.view, frame.attempt, *self.accepted), self.initiator)
        self.context.send(self.ok, self.initiator)

    def refuse(self, frame: Block | Start) -> None:
        member = self.context.members[frame.attempt[1]].id
        self.context.send(Promised(frame.view, frame.attempt, self.promise), member)

    def fetch(self, frame: Cut) -> None:
        self.context.plane.cut(frame.cut, frame.fetch)

    def accept(self, *_: object) -> None:
        if self.proposal is None:
            return
        context, proposal = self.context, self.proposal
        if context.me.id in proposal.survivors:  # otherwise complete: another member accepted it before
            assert context.view is not None
            proposal = with_table(proposal, context.view, context.plane.received_table())
            proposal = context.secrets.proven(proposal)
        self.accepted = self.promise, proposal

    def say_done(self, *_: object) -> None:
        self.context.send(Done(self.context.tag, self.promise), self.initiator)

    def await_view(self, *_: object) -> None:
        self.asks.start(self.context.now)

    def ask_all(self) -> None:
        self.context.multicast(Done(self.context.tag, self.promise))

    def lapse(self) -> None:
        """Gives up the initiator, and at each further lease the next in rank that could have started."""
        waiting = [member.id for member in self.context.members if member.id not in self.lapsed]
        for member in (self.initiator, *waiting):
            if member not in self.lapsed and member != self.context.me.id:
                self.lapsed.add(member)
                return

    TABLE: ClassVar[Table] = table(
        "participant",
        S,
        E,
        (S.BLOCKED, E.BLOCK, None, (heed, say_blocked), "its callback has run, for another attempt"),
        (
            (S.OPEN, S.SETTLING),
            (E.BLOCK, callback_is_done),
            S.BLOCKED,
            (heed, end_poll, say_blocked),
            "no callback is needed",
        ),
        (
            (S.OPEN, S.SETTLING),
            (E.BLOCK, callback_has_run),
            S.SETTLING,
            (heed, await_order),
            "its messages have no place in the order yet",
        ),
        ((S.OPEN, S.BLOCKING), E.BLOCK, S.BLOCKING, (run_callback, heed), "callbacks send: all stays open (step 2)"),
        (S.SETTLING, E.BLOCK, None, ILLEGAL, "its callback has run"),
        (_BOUND, (E.BLOCK, is_below_promise), None, refuse, "a higher attempt was promised; the initiator is told"),
        (_BOUND, E.BLOCK, None, say_blocked, "the gate is closed: messages of the callback would wait for the VIEW"),
        (
            S.BLOCKING,
            (E.RETURNED, is_settled),
            S.BLOCKED,
            say_returned,
            "the callback returned, or its deadline is over",
        ),
        (S.BLOCKING, E.RETURNED, S.SETTLING, await_order, "its messages have no place in the order yet (FLU-13)"),
        (None, E.RETURNED, None, IGNORED, "the round is over, or the callback ran for a pause"),
        (S.SETTLING, (E.POLL, is_settled), S.BLOCKED, (end_poll, say_returned), "the sequencer has ordered everything"),
        (S.SETTLING, E.POLL, None, await_order, "not yet"),
        (None, E.POLL, None, ILLEGAL, "the timer runs only while settling"),
        (_BOUND, (E.START, is_promised), None, (renew, answer), "our OK was lost: the same OK again"),
        (_BOUND, (E.START, is_below_promise), None, refuse, "a higher attempt was promised; the initiator is told"),
        (None, E.START, S.PROMISED, (promise_it, keep, close_gate, answer), "above the promise, with us as a survivor"),
        (_BEFORE, (E.CUT, is_not_promised), None, IGNORED, "of an attempt that left us out, or whose START was lost"),
        (_BEFORE, E.CUT, None, ILLEGAL, "nothing was promised"),
        (_BOUND, (E.CUT, is_not_promised), None, IGNORED, "of another attempt"),
        (S.PROMISED, E.CUT, S.FETCHING, fetch, "every survivor answered"),
        (S.FETCHING, E.CUT, None, IGNORED, "repeated: still fetching"),
        (S.DONE, E.CUT, None, say_done, "our DONE was lost"),
        (S.FETCHING, E.REACHED, S.DONE, (accept, keep, say_done, await_view), "everything up to the cut has arrived"),
        (S.DONE, E.REACHED, None, IGNORED, "known"),
        (None, E.REACHED, None, ILLEGAL, "no cut is set: a START makes an earlier one stale"),
        (S.OPEN, E.LEASE, None, ILLEGAL, "no lease runs"),
        (None, E.LEASE, None, (renew, lapse), "the initiator is silent; the gate stays closed (step 6)"),
        (S.DONE, E.REPEAT, None, ask_all, "the VIEW may be lost with its initiator; any holder serves it"),
        (None, E.REPEAT, None, ILLEGAL, "the timer runs only in DONE"),
    )
