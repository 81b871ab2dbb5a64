"""The pause flush: a member stops the whole group from sending for a while, without a view change (FLU-04 to FLU-06).

Who pauses asks all members in up to three rounds: BLOCK, where one of them has a block callback, as before a view
change; STOP, after which nobody sends anything new, and what each sent before is in order; HOLD, with a cut, after
which all have delivered the same. Then it is held. Each pause has a number (E-18: a SUSPEND that was under way when its
pause ended stops nobody), a deadline, and a lease: a member that does not hear from who pauses goes on by itself (the
cut, step 6: only a pause may lapse). Who pauses knows when the first lease may end, counted from when it *sent* what
was answered, and never takes a pause for held after that. Several pauses hold together: the group goes on when the last
has ended.

A view change ends every pause of its view: START at once, BLOCK by asking who pauses to let go. The engine's gate,
which only a view opens, is another one than the pause's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.kinds import Resume, Resumed, Suspend, Suspended
from seqcast.core.machines.blocker import Blocker
from seqcast.core.table import IGNORED, ILLEGAL, Machine, Table, table
from seqcast.core.vocabulary import OpenPause, PauseHeld, PauseOver, TellBlocked, Warn
from seqcast.errors import RemoteProtocolError

_POLL_NS = 2_000_000  # what an answer waits for is looked at so often, at least
_TURNS_MAX = 64


# ---- every member --------------------------------------------------------------------------------------------------


class Gate(Enum):
    OPEN = auto()
    ASKED = auto()
    PAUSED = auto()
    CLOSING = auto()


class GateInput(Enum):
    BLOCK = auto()
    STOP = auto()
    STALE = auto()
    RESUME = auto()
    LAPSE = auto()
    LAST = auto()
    ROUND = auto()
    CLOSE = auto()


G, I = Gate, GateInput  # noqa: E741
TABLE: Table = table(
    "pause",
    G,
    I,
    (G.OPEN, I.BLOCK, G.ASKED, "note ask answer", "the block callback runs; sending stays open"),
    (G.ASKED, I.BLOCK, None, "note ask answer", "repeated, or another pause"),
    (G.PAUSED, I.BLOCK, None, "note answer", "another pause has stopped us: a callback could not send any more"),
    ((G.OPEN, G.ASKED), I.STOP, G.PAUSED, "note stop answer", "nothing new is sent"),
    (G.PAUSED, I.STOP, None, "note answer", "repeated, the next round, or another pause"),
    (G.CLOSING, I.BLOCK, None, "refuse", "the view change goes first"),
    (G.CLOSING, I.STOP, None, "refuse", "the view change goes first"),
    (None, I.STALE, None, "refuse", "that pause has ended (E-18)"),
    (G.OPEN, I.RESUME, None, ILLEGAL, "no pause is known"),
    (None, I.RESUME, None, "forget", "this pause has ended"),
    (G.OPEN, I.LAPSE, None, ILLEGAL, "no lease runs"),
    (None, I.LAPSE, None, "lapse", "who pauses is silent: released, not done over by another (E-18)"),
    ((G.ASKED, G.PAUSED), I.LAST, G.OPEN, "open", "no pause is left"),
    (G.CLOSING, I.LAST, None, "let_go", "no pause is left, and the callbacks can send"),
    (G.OPEN, I.LAST, None, ILLEGAL, "there was none"),
    (None, I.ROUND, G.CLOSING, "ask_release", "BLOCK: callbacks must send, so who pauses is to let go, or it lapses"),
    (None, I.CLOSE, G.CLOSING, "void", "START: the gate is closed, which ends all pauses of the view (step 6)"),
)


@dataclass(slots=True)
class Known:
    """A pause that holds here, or is about to."""

    frame: Suspend
    lease_ns: int
    waits: bool = True  # not answered yet


class Pause(Machine):
    """One member's part in the pauses of one view."""

    TABLE: ClassVar[Table] = TABLE

    def __init__(self, context: Context, blocker: Blocker) -> None:
        super().__init__(Gate.OPEN, context.edges)
        self.context = context
        self.blocker = blocker
        self.known: dict[int, Known] = {}  # by who pauses: each has one at a time
        self.ended: dict[int, int] = {}  # the highest number of a pause that has ended
        self.poll_ns = NEVER

    # ---- inputs

    def suspend(self, frame: Suspend, sender: int) -> None:
        """A SUSPEND of our view, by a member of it.

        Raises:
            RemoteProtocolError: its cut is not by rank.
        """
        if len(frame.cut) != (len(self.context.members) if frame.phase == "hold" else 0):
            raise RemoteProtocolError("SUSPEND: the cut is not by rank")
        known = self.known.get(sender)
        last = known.frame if known else None
        if self.is_over(frame, sender) or (last and frame.pause < last.pause):
            self.fire(GateInput.STALE, frame, sender)
        elif not (last and frame.pause == last.pause and frame.turn < last.turn):
            self.fire(GateInput.BLOCK if frame.phase == "block" else GateInput.STOP, frame, sender)

    def is_over(self, frame: Suspend, sender: int) -> bool:
        return frame.pause <= self.ended.get(sender, 0)

    def resume(self, frame: Resume, sender: int) -> None:
        """A RESUME of our view, by a member of it."""
        known = self.known.get(sender)
        self.ended[sender] = max(self.ended.get(sender, 0), frame.pause)
        if known is not None and known.frame.pause <= frame.pause:
            self.fire(GateInput.RESUME, sender)
            self._check_last()
        self.context.send(Resumed(frame.view, frame.pause), sender)

    def close(self, by_start: bool) -> None:
        """Somebody closes the view: BLOCK was heeded, or START answered."""
        self.fire(GateInput.CLOSE if by_start else GateInput.ROUND)

    def due(self) -> int:
        return min([self.poll_ns, *(known.lease_ns for known in self.known.values())])

    def run_timers(self) -> None:
        now = self.context.now
        if now >= self.poll_ns:
            self.poll_ns = NEVER
            for sender in list(self.known):
                self._try_answer(sender)
        for sender in [sender for sender, known in self.known.items() if now >= known.lease_ns]:
            self.fire(GateInput.LAPSE, sender)
            self._check_last()

    def _check_last(self) -> None:
        if not self.known:
            self.fire(GateInput.LAST)

    # ---- actions

    def note(self, frame: Suspend, sender: int) -> None:
        self.known[sender] = Known(frame, self.context.now + self.context.settings.lease_ns)

    def ask(self, *_: object) -> None:
        self.blocker.ask()

    def stop(self, *_: object) -> None:
        self.context.plane.pause()
        self.context.emit(TellBlocked("pause", "a member paused the group"))

    def answer(self, _frame: Suspend, sender: int) -> None:
        self._try_answer(sender)

    def _try_answer(self, sender: int) -> None:
        """Answers, if what the round is about is done; else looks again soon."""
        known, plane = self.known[sender], self.context.plane
        if not known.waits:
            return
        frame = known.frame
        held = tuple(plane.held(rank)[0] for rank in range(len(self.context.members)))
        if frame.phase == "block":
            done = not self.blocker.running
        elif frame.phase == "stop":
            done = plane.unordered() == 0
        else:
            done = all(have >= seqno for have, seqno in zip(held, frame.cut, strict=True))
        if not done:
            self.poll_ns = self.context.now + _POLL_NS
            return
        known.waits = False
        self.context.send(
            Suspended(frame.view, frame.pause, frame.turn, frame.phase, held if frame.phase == "stop" else ()), sender
        )

    def refuse(self, frame: Suspend, sender: int) -> None:
        self.context.send(Resumed(frame.view, frame.pause), sender)

    def forget(self, sender: int) -> None:
        pause = self.known.pop(sender).frame.pause
        self.ended[sender] = max(self.ended.get(sender, 0), pause)

    def lapse(self, sender: int) -> None:
        self.forget(sender)
        name = self.context.infos[sender].name
        self.context.emit(Warn(f"{name} paused the group and is silent: this member goes on"))

    def open(self) -> None:
        self.poll_ns = NEVER
        self.context.emit(OpenPause("the pause has ended"))
        self.blocker.opened()

    def ask_release(self) -> None:
        """The pause still holds: its owner may take it for held until it has let go, or its lease is over."""
        self.poll_ns = NEVER
        for sender, known in self.known.items():
            self.context.send(Resumed(known.frame.view, known.frame.pause), sender)

    def let_go(self) -> None:
        self.context.emit(OpenPause("a view change ended the pause"))

    def void(self) -> None:
        self.known.clear()
        self.poll_ns = NEVER
        self.let_go()


# ---- who pauses ----------------------------------------------------------------------------------------------------


class Pausing(Enum):
    IDLE = auto()
    BLOCKING = auto()
    STOPPING = auto()
    SETTLING = auto()
    HELD = auto()
    WAITING = auto()
    RESUMING = auto()


class PausingInput(Enum):
    SUSPEND = auto()
    SUSPEND_BLOCK = auto()
    ANSWER = auto()
    ANSWER_LAST = auto()
    BLOCK_DEADLINE = auto()
    REFUSED = auto()
    REPEAT = auto()
    DEADLINE = auto()
    RESUME = auto()
    RESUMED = auto()
    RESUMED_LAST = auto()
    CLOSE = auto()
    VIEW = auto()


P, J = Pausing, PausingInput
_ROUNDS = (P.BLOCKING, P.STOPPING, P.SETTLING)
PAUSER_TABLE: Table = table(
    "pauser",
    P,
    J,
    ((P.IDLE, P.WAITING, P.RESUMING), J.SUSPEND, P.STOPPING, "begin say_stop", "the application pauses the group"),
    ((P.IDLE, P.WAITING, P.RESUMING), J.SUSPEND_BLOCK, P.BLOCKING, "begin say_block", "some have a block callback"),
    (None, J.SUSPEND, None, ILLEGAL, "one at a time"),
    (None, J.SUSPEND_BLOCK, None, ILLEGAL, "one at a time"),
    ((*_ROUNDS, P.HELD), J.ANSWER, None, "note", "others are missing; a pause that is held is renewed"),
    (None, J.ANSWER, None, IGNORED, "late"),
    (P.BLOCKING, J.ANSWER_LAST, P.STOPPING, "note say_stop", "all have run their callbacks"),
    (P.STOPPING, J.ANSWER_LAST, P.SETTLING, "note say_hold", "nobody sends, and what was sent is in order"),
    (P.SETTLING, J.ANSWER_LAST, P.HELD, "note hold", "all have delivered the same"),
    (None, J.ANSWER_LAST, None, ILLEGAL, "only rounds count answers"),
    (P.BLOCKING, J.BLOCK_DEADLINE, P.STOPPING, "say_stop", "a callback takes too long"),
    (None, J.BLOCK_DEADLINE, None, ILLEGAL, "only callbacks have it"),
    (_ROUNDS, J.REFUSED, P.WAITING, "retreat", "a view change goes first, or a lease lapsed: all go on, then again"),
    (P.HELD, J.REFUSED, P.RESUMING, "lose release", "a view change begins, or a lease lapsed"),
    (None, J.REFUSED, None, IGNORED, "of an earlier try"),
    ((*_ROUNDS, P.HELD), J.REPEAT, None, "say", "an answer is missing, or the leases are renewed"),
    (P.RESUMING, J.REPEAT, None, "say_resume", "somebody has not said that it goes on"),
    (None, J.REPEAT, None, ILLEGAL, "the timer does not run"),
    ((*_ROUNDS, P.WAITING), J.DEADLINE, P.RESUMING, "fail release", "not held in time: all go on"),
    (P.HELD, J.DEADLINE, P.RESUMING, "expire release", "held for the longest time, or a lease may have lapsed"),
    (P.RESUMING, J.DEADLINE, P.IDLE, "rest", "who has not heard it goes on when its lease lapses"),
    (P.IDLE, J.DEADLINE, None, ILLEGAL, "no deadline runs"),
    (P.HELD, J.RESUME, P.RESUMING, "give release", "the application lets the group go on"),
    ((*_ROUNDS, P.WAITING), J.RESUME, P.RESUMING, "release", "the application waits no longer"),
    (None, J.RESUME, None, IGNORED, "it has ended already"),
    (P.RESUMING, J.RESUMED, None, "note_resumed", "others are missing"),
    (P.RESUMING, J.RESUMED_LAST, P.IDLE, "rest", "all go on"),
    (None, J.RESUMED, None, IGNORED, "late"),
    (None, J.RESUMED_LAST, None, ILLEGAL, "only RESUMING counts them"),
    (_ROUNDS, J.CLOSE, P.WAITING, "wait", "we answered a START: again, in the new view"),
    (P.HELD, J.CLOSE, P.IDLE, "lose rest", "we answered a START, which ended the pause (step 6)"),
    (P.RESUMING, J.CLOSE, P.IDLE, "rest", "all pauses of the view end by themselves"),
    (None, J.CLOSE, None, IGNORED, "no pause of ours in this view"),
    (_ROUNDS, J.VIEW, P.WAITING, "wait", "again, in the new view"),
    (P.WAITING, J.VIEW, None, "wait", "again, in the new view"),
    (P.HELD, J.VIEW, None, ILLEGAL, "a START was answered before"),
    (P.RESUMING, J.VIEW, P.IDLE, "rest", "the view ended the pause"),
    (P.IDLE, J.VIEW, None, IGNORED, "no pause of ours"),
)


class Pauser(Machine):
    """The pauses that this member's application asks for, one at a time; it lives across views."""

    TABLE: ClassVar[Table] = PAUSER_TABLE

    def __init__(self, context: Context) -> None:
        super().__init__(Pausing.IDLE, context.edges)
        self.context = context
        settings = context.settings
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.renewals = Repeat(max(settings.lease_ns // 4, 1), max(settings.lease_ns // 4, 1))
        self.request = 0  # the application's number
        self.number = 0  # of the last try; never used again (E-18)
        self.turn = 0
        self.sent: dict[int, int] = {}  # turn -> when
        self.answered: dict[int, int] = {}  # member -> when the SUSPEND was sent that it answered last
        self.missing: set[int] = set()
        self.prefixes: list[int] = []
        self.frame: Suspend | None = None
        self.deadline_ns = NEVER
        self.block_until_ns = NEVER
        self.retry_ns = NEVER

    # ---- inputs

    def suspend(self, request: int, timeout_ns: int) -> None:
        self.request = request
        self.deadline_ns = self.context.now + timeout_ns
        self._try()

    def resume(self, request: int) -> None:
        if request == self.request:
            if self.state is Pausing.HELD and self.context.now >= self.held_until_ns():
                self.fire(PausingInput.DEADLINE)
            self.fire(PausingInput.RESUME)

    def suspended(self, frame: Suspended, sender: int) -> None:
        """An answer to a SUSPEND of our view."""
        if frame.pause != self.number or self.frame is None or sender not in self.context.infos:
            return
        if frame.phase != self.frame.phase or frame.turn not in self.sent:
            return
        if len(frame.held) != (len(self.context.members) if frame.phase == "stop" else 0):
            raise RemoteProtocolError("SUSPENDED: what is held is not by rank")
        last = self.state in _ROUNDS and self.missing <= {sender}
        if last and self.state is Pausing.SETTLING:
            # Held only if each lease, counted from the sending of what was answered, still runs.
            self.answered[sender] = max(self.answered.get(sender, 0), self.sent[frame.turn])
            lapsed = {member for member in self.context.infos if self._lease_of(member) <= self.context.now}
            last = not lapsed
            self.missing |= lapsed
        self.fire(PausingInput.ANSWER_LAST if last else PausingInput.ANSWER, sender, frame)

    def resumed(self, frame: Resumed, sender: int) -> None:
        """A member goes on: as we said, or by itself."""
        if frame.pause != self.number or sender not in self.context.infos:
            return
        if self.state is not Pausing.RESUMING:
            self.fire(PausingInput.REFUSED)
        else:
            self.fire(PausingInput.RESUMED_LAST if self.missing <= {sender} else PausingInput.RESUMED, sender)

    def close(self) -> None:
        """We answered a START."""
        self.fire(PausingInput.CLOSE)

    def view(self) -> None:
        """A view was installed."""
        self.fire(PausingInput.VIEW)

    def held_until_ns(self) -> int:
        """Until then no lease of the pause that is held lapses."""
        return min(map(self._lease_of, self.context.infos))

    def _lease_of(self, member: int) -> int:
        return self.answered.get(member, -NEVER) + self.context.settings.lease_ns

    def due(self) -> int:
        held = self.held_until_ns() if self.state is Pausing.HELD else NEVER
        return min(
            held, self.repeats.due, self.renewals.due, self.deadline_ns, self.block_until_ns, self.retry_ns
        )  # fmt: skip

    def run_timers(self) -> None:
        now = self.context.now
        held = self.held_until_ns() if self.state is Pausing.HELD else NEVER
        if now >= min(self.deadline_ns, held):
            self.fire(PausingInput.DEADLINE)
        elif now >= self.retry_ns:
            self._try()
        elif now >= self.block_until_ns:
            self.fire(PausingInput.BLOCK_DEADLINE)
        elif self.repeats.take(now) or self.renewals.take(now):
            self.fire(PausingInput.REPEAT)

    def _try(self) -> None:
        asks = any(info.blocks for info in self.context.infos.values())
        self.fire(PausingInput.SUSPEND_BLOCK if asks else PausingInput.SUSPEND)

    # ---- actions

    def begin(self) -> None:
        self.retry_ns = NEVER
        self.number += 1
        self.sent = {}
        self.answered = {}

    def say_block(self) -> None:
        margin = 2 * self.context.settings.repeat_ns_max
        self._round("block")
        self.block_until_ns = self.context.now + self.context.settings.block_deadline_ns + margin

    def say_stop(self, *_: object) -> None:
        self.prefixes = [0] * len(self.context.members)
        self._round("stop")

    def say_hold(self, *_: object) -> None:
        self._round("hold", tuple(self.prefixes))

    def _round(self, phase: str, cut: tuple[int, ...] = ()) -> None:
        self.block_until_ns = NEVER
        self.missing = set(self.context.infos)
        self.repeats.start(self.context.now)
        self.frame = Suspend(self.context.tag, self.number, 0, phase, cut)
        self.say()

    def say(self) -> None:
        assert self.frame is not None
        self.turn += 1
        self.sent[self.turn] = self.context.now
        while len(self.sent) > _TURNS_MAX:
            del self.sent[next(iter(self.sent))]
        frame = self.frame
        self.context.multicast(Suspend(frame.view, frame.pause, self.turn, frame.phase, frame.cut))

    def note(self, sender: int, frame: Suspended) -> None:
        self.missing.discard(sender)
        self.answered[sender] = max(self.answered.get(sender, 0), self.sent[frame.turn])
        if frame.phase == "stop":
            self.prefixes = [max(pair) for pair in zip(self.prefixes, frame.held, strict=True)]

    def hold(self, *_: object) -> None:
        self.repeats.stop()
        self.renewals.start(self.context.now)
        self.deadline_ns = self.context.now + self.context.settings.pause_ns_max
        self.context.emit(PauseHeld(self.request))

    def retreat(self) -> None:
        self.context.multicast(Resume(self.context.tag, self.number))
        self.wait()
        self.retry_ns = self.context.now + self.context.settings.repeat_ns_max

    def wait(self) -> None:
        self.repeats.stop()
        self.frame = None
        self.block_until_ns = NEVER
        self.retry_ns = self.context.now + self.context.settings.repeat_ns_min

    def release(self) -> None:
        self.repeats.start(self.context.now)
        self.renewals.stop()
        self.frame = None
        self.retry_ns = self.block_until_ns = NEVER
        self.deadline_ns = self.context.now + self.context.settings.lease_ns
        self.missing = set(self.context.infos)
        self.say_resume()

    def say_resume(self) -> None:
        self.context.multicast(Resume(self.context.tag, self.number))

    def note_resumed(self, sender: int) -> None:
        self.missing.discard(sender)

    def give(self) -> None:
        self.context.emit(PauseOver(self.request, ""))

    def fail(self) -> None:
        names = ", ".join(sorted(info.name for member, info in self.context.infos.items() if member in self.missing))
        self.context.emit(PauseOver(self.request, f"not all members stopped in time; missing: {names}"))

    def lose(self) -> None:
        self.context.emit(PauseOver(self.request, "a view change, or the silence of this member, ended it"))

    def expire(self) -> None:
        longest = self.context.settings.pause_ns_max / 1e9
        self.context.emit(
            PauseOver(self.request, f"it lasted longer than pause_s_max={longest:g} s, or members were not heard")
        )

    def rest(self, *_: object) -> None:
        self.repeats.stop()
        self.renewals.stop()
        self.frame = None
        self.deadline_ns = self.block_until_ns = self.retry_ns = NEVER
