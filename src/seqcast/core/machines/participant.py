"""One member's part in the cut that closes its view (design: the cut, steps 1 to 6).

BLOCK, where some application has a block callback, only asks: sending and stamping stay open, and nothing is promised.
A member promises the highest attempt that it answered, and takes CUT and VIEW under that one only. From its OK on the
gate is closed and nothing from outside the survivors is accepted; after CUT nothing is delivered until VIEW.

In a primary partition (step 9) DONE also *accepts* the VIEW that the initiator proposes beside its CUT, and the next
OK tells of it. A VIEW that was served is then the only one there can be, under whatever attempt: it is installed as
soon as everything up to its cut is here. For that to be possible nothing is delivered from the OK on: another attempt,
with other survivors, may end elsewhere.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.kinds import (
    RANGES_ALL_MAX,
    RANGES_MAX,
    Accepted,
    Attempt,
    Block,
    BlockOk,
    Cut,
    Done,
    Held,
    NewView,
    Ok,
    Promised,
    Propose,
    Start,
)
from seqcast.core.machines.blocker import Blocker
from seqcast.core.rules.cut import with_table
from seqcast.core.table import IGNORED, ILLEGAL, Machine, Table, table
from seqcast.core.vocabulary import TellBlocked
from seqcast.errors import RemoteProtocolError

NO_PROMISE: Attempt = (0, -1)
ATTEMPT_STEP_MAX = 1 << 20
"""An attempt may be so far above the last that was seen: a member that missed some was cut off, and they cost their
initiators milliseconds each. Without it one frame with the last of all numbers would leave none for those after it."""


class Part(Enum):
    OPEN = auto()
    BLOCKING = auto()
    BLOCKED = auto()
    PROMISED = auto()
    FETCHING = auto()
    DONE = auto()


class PartInput(Enum):
    BLOCK = auto()
    BLOCK_PASS = auto()
    BLOCK_BELOW = auto()
    RETURNED = auto()
    START = auto()
    START_AGAIN = auto()
    START_BELOW = auto()
    CUT = auto()
    CUT_OTHER = auto()
    CUT_WITHOUT = auto()
    REACHED = auto()
    LEASE = auto()
    REPEAT = auto()


P, I = Part, PartInput  # noqa: E741
TABLE: Table = table(
    "participant",
    P,
    I,
    (P.OPEN, I.BLOCK, P.BLOCKING, "heed", "the application's callback runs; sending and stamping stay open (step 2)"),
    (P.BLOCKING, I.BLOCK, None, "heed", "repeated, or by another initiator: the callback still runs"),
    (P.BLOCKED, I.BLOCK, None, ILLEGAL, "the callback is waited for no longer"),
    ((P.OPEN, P.BLOCKED), I.BLOCK_PASS, P.BLOCKED, "heed say_blocked", "there is no callback, or it has run"),
    (P.BLOCKING, I.BLOCK_PASS, None, ILLEGAL, "the callback is waited for"),
    (None, I.BLOCK, None, "say_blocked", "the gate is closed: its sends would wait for the VIEW"),
    (None, I.BLOCK_PASS, None, "say_blocked", "the gate is closed"),
    ((P.OPEN, P.BLOCKING, P.BLOCKED), I.BLOCK_BELOW, None, ILLEGAL, "nothing was promised"),
    (None, I.BLOCK_BELOW, None, "refuse", "promised to a higher attempt; its initiator learns so"),
    (P.BLOCKING, I.RETURNED, P.BLOCKED, "say_returned", "the callback returned, or its deadline is over"),
    (None, I.RETURNED, None, IGNORED, "the round is over, or it ran for a pause"),
    (None, I.START, P.PROMISED, "promise_it close_gate answer", "an attempt above the promise, with us as a survivor"),
    ((P.OPEN, P.BLOCKING, P.BLOCKED), I.START_AGAIN, None, ILLEGAL, "nothing was promised"),
    (None, I.START_AGAIN, None, "answer", "our OK was lost: the same OK again"),
    ((P.OPEN, P.BLOCKING, P.BLOCKED), I.START_BELOW, None, ILLEGAL, "nothing was promised"),
    (None, I.START_BELOW, None, "refuse", "promised to a higher attempt; its initiator learns so"),
    (P.PROMISED, I.CUT, P.FETCHING, "fetch", "everyone answered"),
    (P.FETCHING, I.CUT, None, IGNORED, "repeated: still fetching"),
    (P.DONE, I.CUT, None, "say_done", "our DONE was lost"),
    ((P.OPEN, P.BLOCKING, P.BLOCKED), I.CUT, None, ILLEGAL, "nothing was promised"),
    (None, I.CUT_OTHER, None, IGNORED, "of an attempt that is not promised"),
    (P.PROMISED, I.CUT_WITHOUT, P.DONE, "accept say_done await_view", "an earlier proposal, which leaves us out"),
    (P.DONE, I.CUT_WITHOUT, None, "say_done", "our DONE was lost"),
    (None, I.CUT_WITHOUT, None, ILLEGAL, "nothing was promised; an attempt proposes one VIEW"),
    (P.FETCHING, I.REACHED, P.DONE, "accept say_done await_view", "everything up to the cut is here"),
    (P.DONE, I.REACHED, None, IGNORED, "known"),
    (None, I.REACHED, None, ILLEGAL, "no cut is set: a START makes the one before it stale"),
    (P.OPEN, I.LEASE, None, ILLEGAL, "no lease runs"),
    (None, I.LEASE, None, "lapse", "the initiator is silent; the gate stays closed (step 6)"),
    (P.DONE, I.REPEAT, None, "ask_all", "the VIEW may be lost with its initiator; who has it serves it"),
    (None, I.REPEAT, None, ILLEGAL, "the timer runs only in DONE"),
)


class Participant(Machine):
    TABLE: ClassVar[Table] = TABLE

    def __init__(self, context: Context, blocker: Blocker) -> None:
        super().__init__(Part.OPEN, context.edges)
        self.context = context
        self.blocker = blocker
        self.promise = NO_PROMISE
        self.heeded = NO_PROMISE  # the highest attempt whose BLOCK was heard
        self.highest = 0  # attempt seen, of whomever
        self.ok: Ok | None = None
        self.named: Cut | None = None  # of the attempt that is promised; in a primary partition:
        self.proposal: NewView | None = None  # what is proposed under it
        self.accepted: tuple[Attempt, NewView] | None = None  # what we answered with DONE last, under which attempt
        self.survivors: tuple[int, ...] = ()
        self.lease_ns = NEVER
        self.asks = Repeat(context.settings.repeat_ns_max, context.settings.repeat_ns_max)
        self.lapsed: set[int] = set()  # initiators, and survivors of ours, that did not answer in time; perhaps we too

    @property
    def initiator(self) -> int:
        """Id of the member whose attempt is promised, or, before that, whose BLOCK is heeded."""
        attempt = self.heeded if self.promise == NO_PROMISE else self.promise
        return self.context.members[attempt[1]].id

    @property
    def blocked(self) -> str:
        """Why our view cannot be closed by those who can be reached, and what to do; "" where it can, or none tries."""
        gated = self.promise != NO_PROMISE and not self.context.enough(self.survivors)
        return self._few(self.survivors) if gated else ""

    # ---- inputs

    def block(self, frame: Block, sender: int) -> None:
        """A BLOCK: START for our view will follow."""
        if not self._may_start(frame, sender):
            return
        if frame.attempt < self.promise:
            self.fire(PartInput.BLOCK_BELOW, frame)
        elif self.state in (Part.OPEN, Part.BLOCKING, Part.BLOCKED):
            self.blocker.ask()
            self.fire(PartInput.BLOCK_PASS if self.blocker.done else PartInput.BLOCK, frame)
        else:
            self.fire(PartInput.BLOCK, frame)

    def returned(self) -> None:
        """The callback returned, or is waited for no longer."""
        self.fire(PartInput.RETURNED)

    def _may_start(self, frame: Block | Start, sender: int) -> bool:
        """Is it for us?

        Raises:
            RemoteProtocolError: nobody may send it.
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
            RemoteProtocolError: there cannot be so many.
        """
        if attempt[0] > max(self.highest, self.promise[0]) + ATTEMPT_STEP_MAX:
            raise RemoteProtocolError("an attempt that is far above all others")
        self.highest = max(self.highest, attempt[0])

    def start(self, frame: Start, sender: int) -> None:
        """A START that closes our view."""
        if not self._may_start(frame, sender):
            return
        if frame.attempt == self.promise:
            self.renew()
            self.fire(PartInput.START_AGAIN, frame)
        else:
            self.fire(PartInput.START if frame.attempt > self.promise else PartInput.START_BELOW, frame)

    def show_life(self, frame: Start, sender: int) -> None:
        """A START of too few, that leaves us out: they may take us for dead."""
        self.saw(frame.attempt)
        self.context.send(Promised(frame.view, frame.attempt, self.promise), sender)

    def cut(self, frame: Cut, sender: int) -> None:
        """A CUT that closes our view."""
        if frame.attempt != self.promise:
            self.fire(PartInput.CUT_OTHER)
            return
        if sender != self.initiator or len(frame.cut) != len(self.context.members):
            raise RemoteProtocolError("CUT: not by the initiator, or not by rank")
        self.renew()
        self.named = frame
        if self.proposal is not None or not self.context.primary:
            self._take_cut(frame)

    def propose(self, frame: Propose, sender: int) -> None:
        """What comes of it when the present attempt to close our view ends well."""
        context, proposal = self.context, frame.proposal
        if frame.attempt != self.promise:
            self.fire(PartInput.CUT_OTHER)
            return
        rightful = sender == self.initiator and context.primary and context.view is not None
        if not rightful or proposal.closes != context.view.view_id or len(proposal.cut) != len(context.members):  # type: ignore[union-attr]
            raise RemoteProtocolError("PROPOSE: not by the initiator, or of another view")
        if self.proposal is None:
            self.proposal = proposal
            if self.named is not None:
                self._take_cut(self.named)

    def _take_cut(self, frame: Cut) -> None:
        if self.proposal is not None and frame.cut != self.proposal.cut:
            raise RemoteProtocolError("PROPOSE: another cut than that of the CUT")
        if self.proposal is not None and self.context.me.id not in self.proposal.survivors:
            self.fire(PartInput.CUT_WITHOUT, frame)
        else:
            self.fire(PartInput.CUT, frame)
            self.reached()

    def reached(self) -> None:
        """The engine may have everything up to the cut."""
        if self.context.plane.cut_reached():
            self.fire(PartInput.REACHED)

    def may_install(self, frame: NewView) -> bool:
        """Is this VIEW under our promise, and is everything up to its cut here?

        An adopted VIEW (step 1) may come where we are not DONE under this promise; we were under an earlier one.

        Raises:
            RemoteProtocolError: it is under our promise, and cannot be right.
        """
        if self.promise == NO_PROMISE:
            return False
        if frame.attempt != self.promise:
            return self.context.primary and self.holds(frame)
        self.check_held(frame)
        return True

    def holds(self, frame: NewView) -> bool:
        """Do we hold everything up to the cut of a VIEW?"""
        return all(self.context.plane.held(rank)[0] >= seqno for rank, seqno in enumerate(frame.cut))

    def check_held(self, frame: NewView) -> None:
        """Raises RemoteProtocolError where we do not hold everything up to the cut of a VIEW that has us."""
        if not self.holds(frame):
            raise RemoteProtocolError("VIEW: its cut names what was never asked for")

    def renew(self) -> None:
        self.lease_ns = self.context.now + self.context.settings.lease_ns

    def due(self) -> int:
        return min(self.lease_ns, self.asks.due)

    def run_timers(self) -> None:
        if self.asks.take(self.context.now):
            self.fire(PartInput.REPEAT)
        if self.context.now >= self.lease_ns:
            self.renew()
            self.fire(PartInput.LEASE)

    # ---- actions

    def heed(self, frame: Block) -> None:
        self.heeded = max(self.heeded, frame.attempt)
        self.lapsed.discard(self.initiator)
        self.renew()
        # What callbacks send must not wait for the credit of members that crashed.
        context = self.context
        context.plane.uncount([member.id for member in context.members if member.id not in frame.survivors])

    def say_blocked(self, frame: Block) -> None:
        self.context.send(BlockOk(frame.view, frame.attempt), self.context.members[frame.attempt[1]].id)

    def say_returned(self) -> None:
        self.context.send(BlockOk(self.context.tag, self.heeded), self.initiator)

    def promise_it(self, frame: Start) -> None:
        self.promise = frame.attempt
        self.survivors = frame.survivors
        self.named = self.proposal = None
        self.asks.stop()
        self.lapsed.discard(self.initiator)
        self.renew()

    def close_gate(self, frame: Start) -> None:
        """Gate and last seqno in one step (E-15), then the freeze, then what is held: nothing can come in between."""
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
            # Only of lost members do ranges beyond the prefix matter: a survivor has all of its own.
            held.append(Held(prefix, tuple(ranges[:most]) if rank in lost else ()))
        accepted = self.accepted and self.accepted[0]
        self.ok = Ok(frame.view, frame.attempt, last, tuple(held), context.lacks, accepted)

    def _few(self, survivors: tuple[int, ...]) -> str:
        names = {member.id: member.name for member in self.context.members}
        return (
            f"only [{', '.join(names[each] for each in survivors)}] of [{', '.join(names.values())}] can be reached, "
            "which is no majority: the group goes on when more are back. Where they are gone for good, an operator can "
            f"say so: seqcast unblock {self.context.cluster}"
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
        if context.me.id in proposal.survivors:  # else it is complete: somebody has accepted it before
            assert context.view is not None
            proposal = with_table(proposal, context.view, context.plane.received_table())
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
