"""The pauses that one member's application asks for: the whole group stops sending, without a view change.

The owner asks all members in up to three rounds (FLU-04; of FLU-05 and FLU-06 the stop): BLOCK, if one of them has a
block callback, as before a view change; STOP, after which nobody sends anything new, and each member's earlier messages
are ordered; HOLD, with a cut, after which all have delivered the same. Then the pause is held. Each has a number (E-18)
and a deadline.

The owner knows when the first lease of a member may end, counted from when it *sent* the SUSPEND that was answered, and
does not consider the pause held after that. A pause that a view change interrupts before its hold is tried again in the
new view.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context, Repeat
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import PauseHeld, PauseOver
from seqcast.errors import RemoteProtocolError

_REPEATS_MAX = 64


class PauseOwnerState(Enum):
    IDLE = auto()
    BLOCKING = auto()
    STOPPING = auto()
    SETTLING = auto()
    HELD = auto()
    WAITING = auto()
    RESUMING = auto()


class PauseOwnerEvent(Enum):
    SUSPEND = auto()
    ANSWER = auto()
    BLOCK_DEADLINE = auto()
    RESUMED = auto()
    REPEAT = auto()
    DEADLINE = auto()
    RESUME = auto()
    CLOSE = auto()
    VIEW = auto()


S, E = PauseOwnerState, PauseOwnerEvent
_ROUNDS = (S.BLOCKING, S.STOPPING, S.SETTLING)


class PauseOwner(TableMachine):
    """One pause at a time; across views."""

    def __init__(self, context: Context) -> None:
        super().__init__(S.IDLE, context.edges)
        self.context = context
        settings = context.settings
        self.repeats = Repeat(settings.repeat_ns_min, settings.repeat_ns_max)
        self.renewals = Repeat(max(settings.lease_ns // 4, 1), max(settings.lease_ns // 4, 1))
        self.request = 0  # the application's number
        self.number = 0  # of the last try; never used again (E-18)
        self.repeat = 0  # number of the last SUSPEND, by which answers name it
        self.sent: dict[int, int] = {}  # repeat -> when
        self.answered: dict[int, int] = {}  # member -> sending time of the last SUSPEND with an answer
        self.missing: set[int] = set()
        self.prefixes: list[int] = []
        self.frame: Suspend | None = None
        self.deadline_ns = NEVER
        self.block_until_ns = NEVER
        self.retry_ns = NEVER
        self.held_until_ns = NEVER  # in a held pause: until then no member's lease ends

    # ---- inputs

    def suspend(self, request: int, timeout_ns: int) -> None:
        """The application pauses the group; ``request``: its number for this pause."""
        self.request = request
        self.deadline_ns = self.context.now + timeout_ns
        self.fire(E.SUSPEND)

    def resume(self, request: int) -> None:
        """The application resumes the group."""
        if request == self.request:
            self.fire(E.RESUME)

    def suspended(self, frame: Suspended, sender: int) -> None:
        """An answer to a SUSPEND of our view."""
        if frame.pause != self.number or self.frame is None or sender not in self.context.infos:
            return
        if frame.phase != self.frame.phase or frame.repeat not in self.sent:
            return
        if len(frame.held) != (len(self.context.members) if frame.phase == "stop" else 0):
            raise RemoteProtocolError("SUSPENDED: the held packets are not by rank")
        self.fire(E.ANSWER, sender, frame)

    def resumed(self, frame: Resumed, sender: int) -> None:
        """A member continues: on our RESUME, or by itself."""
        if frame.pause == self.number and sender in self.context.infos:
            self.fire(E.RESUMED, sender)

    def close(self) -> None:
        """We answered a START."""
        self.fire(E.CLOSE)

    def view(self) -> None:
        """A view was installed."""
        self.fire(E.VIEW)

    def due(self) -> int:
        ends = min(self.held_until_ns, self.deadline_ns)
        return min(ends, self.repeats.due, self.renewals.due, self.block_until_ns, self.retry_ns)

    def run_timers(self) -> None:
        now = self.context.now
        if now >= min(self.deadline_ns, self.held_until_ns):
            self.fire(E.DEADLINE)
        elif now >= self.retry_ns:
            self.fire(E.SUSPEND)
        elif now >= self.block_until_ns:
            self.fire(E.BLOCK_DEADLINE)
        elif self.repeats.take(now) or self.renewals.take(now):
            self.fire(E.REPEAT)

    # ---- guards

    def some_have_callbacks(self) -> bool:
        return any(info.blocks for info in self.context.infos.values())

    def all_answered(self, sender: int, _frame: Suspended) -> bool:
        return self.missing <= {sender}

    def all_leases_run(self, sender: int, frame: Suspended) -> bool:
        """All answered, and each lease, counted from the sending of the answered frame, still runs."""
        return self.missing <= {sender} and not self._lapsed(sender, frame)

    def lease_is_over(self) -> bool:
        return self.context.now >= self.held_until_ns

    def all_resumed(self, sender: int) -> bool:
        return self.missing <= {sender}

    def _lapsed(self, sender: int, frame: Suspended) -> set[int]:
        """Members whose lease may have ended, once this answer is noted."""
        answered = self._with(sender, frame)
        start = self.context.now - self.context.settings.lease_ns
        return {member for member in self.context.infos if answered.get(member, -NEVER) <= start}

    def _with(self, sender: int, frame: Suspended) -> dict[int, int]:
        return {**self.answered, sender: max(self.answered.get(sender, 0), self.sent[frame.repeat])}

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
        self.repeat += 1
        self.sent[self.repeat] = self.context.now
        while len(self.sent) > _REPEATS_MAX:
            del self.sent[next(iter(self.sent))]
        frame = self.frame
        self.context.multicast(Suspend(frame.view, frame.pause, self.repeat, frame.phase, frame.cut))

    def note(self, sender: int, frame: Suspended) -> None:
        self.missing.discard(sender)
        self.answered = self._with(sender, frame)
        if frame.phase == "stop":
            self.prefixes = [max(pair) for pair in zip(self.prefixes, frame.held, strict=True)]

    def renew(self, *_: object) -> None:
        lease_ns = self.context.settings.lease_ns
        self.held_until_ns = min(self.answered.get(member, -NEVER) for member in self.context.infos) + lease_ns

    def await_lapsed(self, sender: int, frame: Suspended) -> None:
        self.missing |= self._lapsed(sender, frame)

    def hold(self, *_: object) -> None:
        self.repeats.stop()
        self.renewals.start(self.context.now)
        self.deadline_ns = self.context.now + self.context.settings.pause_ns_max
        self.renew()
        self.context.emit(PauseHeld(self.request))

    def retreat(self, _sender: int) -> None:
        self.context.multicast(Resume(self.context.tag, self.number))
        self.wait()
        self.retry_ns = self.context.now + self.context.settings.repeat_ns_max

    def wait(self) -> None:
        self.repeats.stop()
        self.frame = None
        self.block_until_ns = NEVER
        self.retry_ns = self.context.now + self.context.settings.repeat_ns_min

    def release(self, *_: object) -> None:
        self.repeats.start(self.context.now)
        self.renewals.stop()
        self.frame = None
        self.retry_ns = self.block_until_ns = self.held_until_ns = NEVER
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

    def lose(self, *_: object) -> None:
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
        self.deadline_ns = self.block_until_ns = self.retry_ns = self.held_until_ns = NEVER

    TABLE: ClassVar[Table] = table(
        "pause owner",
        S,
        E,
        (
            (S.IDLE, S.WAITING, S.RESUMING),
            (E.SUSPEND, some_have_callbacks),
            S.BLOCKING,
            (begin, say_block),
            "the application pauses the group, and some members have a block callback",
        ),
        ((S.IDLE, S.WAITING, S.RESUMING), E.SUSPEND, S.STOPPING, (begin, say_stop), "the application pauses the group"),
        (None, E.SUSPEND, None, ILLEGAL, "only one pause at a time"),
        (S.BLOCKING, (E.ANSWER, all_answered), S.STOPPING, (note, say_stop), "all have run their callbacks"),
        (S.STOPPING, (E.ANSWER, all_answered), S.SETTLING, (note, say_hold), "nobody sends, and everything is ordered"),
        (S.SETTLING, (E.ANSWER, all_leases_run), S.HELD, (note, hold), "all have delivered the same"),
        (S.SETTLING, (E.ANSWER, all_answered), None, (await_lapsed, note), "some answered too long ago: ask again"),
        (S.HELD, E.ANSWER, None, (note, renew), "the leases of a pause that is held are renewed"),
        (_ROUNDS, E.ANSWER, None, note, "other answers are missing"),
        (None, E.ANSWER, None, IGNORED, "late"),
        (S.BLOCKING, E.BLOCK_DEADLINE, S.STOPPING, say_stop, "a callback takes too long"),
        (None, E.BLOCK_DEADLINE, None, ILLEGAL, "only a round of callbacks has this deadline"),
        (_ROUNDS, E.RESUMED, S.WAITING, retreat, "a view change goes first, or a lease lapsed: resume all, try again"),
        (S.HELD, E.RESUMED, S.RESUMING, (lose, release), "a view change begins, or a lease lapsed"),
        (S.RESUMING, (E.RESUMED, all_resumed), S.IDLE, rest, "all members resumed"),
        (S.RESUMING, E.RESUMED, None, note_resumed, "other answers are missing"),
        (None, E.RESUMED, None, IGNORED, "an answer to an earlier try"),
        ((*_ROUNDS, S.HELD), E.REPEAT, None, say, "an answer is missing, or the leases are renewed"),
        (S.RESUMING, E.REPEAT, None, say_resume, "some have not answered"),
        (None, E.REPEAT, None, ILLEGAL, "the timer does not run"),
        ((*_ROUNDS, S.WAITING), E.DEADLINE, S.RESUMING, (fail, release), "not held in time: all members resume"),
        (S.HELD, E.DEADLINE, S.RESUMING, (expire, release), "held for the longest time, or a lease may have ended"),
        (S.RESUMING, E.DEADLINE, S.IDLE, rest, "members that did not hear this resume when their lease ends"),
        (S.IDLE, E.DEADLINE, None, ILLEGAL, "no deadline runs"),
        (S.HELD, (E.RESUME, lease_is_over), S.RESUMING, (expire, release), "a lease has ended before that"),
        (S.HELD, E.RESUME, S.RESUMING, (give, release), "the application resumes the group"),
        ((*_ROUNDS, S.WAITING), E.RESUME, S.RESUMING, release, "the application no longer waits"),
        (None, E.RESUME, None, IGNORED, "the pause has ended already"),
        (_ROUNDS, E.CLOSE, S.WAITING, wait, "we answered a START: try again in the new view"),
        (S.HELD, E.CLOSE, S.IDLE, (lose, rest), "we answered a START, which ended the pause (step 6)"),
        (S.RESUMING, E.CLOSE, S.IDLE, rest, "all pauses of the view end by themselves"),
        (None, E.CLOSE, None, IGNORED, "this member owns no pause in this view"),
        ((*_ROUNDS, S.WAITING), E.VIEW, S.WAITING, wait, "try again in the new view"),
        (S.HELD, E.VIEW, None, ILLEGAL, "a START was answered before"),
        (S.RESUMING, E.VIEW, S.IDLE, rest, "the view ended the pause"),
        (S.IDLE, E.VIEW, None, IGNORED, "this member owns no pause"),
    )
