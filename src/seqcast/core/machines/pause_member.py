"""One member's part in the pauses of its view (FLU-04; of FLU-05 and FLU-06 the stop).

The owner of a pause sends SUSPEND in rounds; ``pause_owner.py`` tells which. A member answers a round when its request
is done. Each pause has a number (E-18: a SUSPEND that was under way when its pause ended stops nobody), and a lease: a
member that does not hear from the owner continues by itself (the cut, step 6: only a pause may lapse). Several pauses
can hold together; sending continues when the last one has ended.

A view change ends every pause of its view: START at once, BLOCK by asking the owners for release. The engine's gate,
which only a view opens, is not the pause.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context
from seqcast.core.frames.pausing import Resume, Resumed, Suspend, Suspended
from seqcast.core.machines.blocker import Blocker
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import OpenPause, TellBlocked, Warn
from seqcast.errors import RemoteProtocolError

_POLL_NS = 2_000_000  # a delayed answer is tried again at least this often


class PauseMemberState(Enum):
    OPEN = auto()
    ASKED = auto()
    PAUSED = auto()
    CLOSING = auto()


class PauseMemberEvent(Enum):
    SUSPEND = auto()
    RESUME = auto()
    LAPSE = auto()
    BLOCK = auto()
    START = auto()


S, E = PauseMemberState, PauseMemberEvent
ANY = tuple(S)


@dataclass(slots=True)
class Known:
    """A pause that holds here, or is about to."""

    frame: Suspend
    lease_ns: int
    waits: bool = True  # not answered yet


class PauseMember(TableMachine):
    def __init__(self, context: Context, blocker: Blocker) -> None:
        super().__init__(S.OPEN, context.edges)
        self.context = context
        self.blocker = blocker
        self.known: dict[int, Known] = {}  # by owner: each has one at a time
        self.ended: dict[int, int] = {}  # by owner: the highest number of a pause that has ended
        self.poll_ns = NEVER

    # ---- inputs

    def suspend(self, frame: Suspend, sender: int) -> None:
        """A SUSPEND of our view, by one of its members.

        Raises:
            RemoteProtocolError: its cut is not by rank.
        """
        if len(frame.cut) != (len(self.context.members) if frame.phase == "hold" else 0):
            raise RemoteProtocolError("SUSPEND: the cut is not by rank")
        self.fire(E.SUSPEND, frame, sender)

    def resume(self, frame: Resume, sender: int) -> None:
        """A RESUME of our view, by one of its members."""
        known = self.known.get(sender)
        self.ended[sender] = max(self.ended.get(sender, 0), frame.pause)
        if known is not None and known.frame.pause <= frame.pause:
            self.fire(E.RESUME, sender)
        self.context.send(Resumed(frame.view, frame.pause), sender)

    def close(self, by_start: bool) -> None:
        """The view begins to close: START was answered, or BLOCK accepted."""
        self.fire(E.START if by_start else E.BLOCK)

    def due(self) -> int:
        return min([self.poll_ns, *(known.lease_ns for known in self.known.values())])

    def run_timers(self) -> None:
        now = self.context.now
        if now >= self.poll_ns:
            self.poll_ns = NEVER
            for sender in list(self.known):
                self._try_answer(sender)
        for sender in [sender for sender, known in self.known.items() if now >= known.lease_ns]:
            self.fire(E.LAPSE, sender)

    # ---- guards

    def has_ended(self, frame: Suspend, sender: int) -> bool:
        """This pause is over, or its owner has begun another one since."""
        known = self.known.get(sender)
        return self.is_over(frame, sender) or (known is not None and frame.pause < known.frame.pause)

    def is_over(self, frame: Suspend, sender: int) -> bool:
        return frame.pause <= self.ended.get(sender, 0)

    def was_overtaken(self, frame: Suspend, sender: int) -> bool:
        known = self.known.get(sender)
        return known is not None and frame.pause == known.frame.pause and frame.repeat < known.frame.repeat

    def asks_for_callbacks(self, frame: Suspend, _sender: int) -> bool:
        return frame.phase == "block"

    def was_last(self, sender: int) -> bool:
        return self.known.keys() == {sender}

    # ---- actions

    def note(self, frame: Suspend, sender: int) -> None:
        self.known[sender] = Known(frame, self.context.now + self.context.settings.lease_ns)

    def run_callback(self, *_: object) -> None:
        self.blocker.ask()

    def stop(self, _frame: Suspend, sender: int) -> None:
        self.context.plane.pause()
        self.context.emit(TellBlocked("pause", f"{self.context.infos[sender].name} paused the group"))

    def answer(self, _frame: Suspend, sender: int) -> None:
        self._try_answer(sender)

    def _try_answer(self, sender: int) -> None:
        """Answers, if the round's request is done; else tries again soon."""
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
            done = all(have >= seqno for have, seqno in zip(held, frame.cut, strict=True)) and plane.unordered() == 0
        if not done:
            self.poll_ns = self.context.now + _POLL_NS
            return
        known.waits = False
        self.context.send(
            Suspended(frame.view, frame.pause, frame.repeat, frame.phase, held if frame.phase == "stop" else ()), sender
        )

    def refuse(self, frame: Suspend, sender: int) -> None:
        self.context.send(Resumed(frame.view, frame.pause), sender)

    def forget(self, sender: int) -> None:
        pause = self.known.pop(sender).frame.pause
        self.ended[sender] = max(self.ended.get(sender, 0), pause)

    def warn(self, sender: int) -> None:
        name = self.context.infos[sender].name
        self.context.emit(Warn(codes.NOT_PAUSED(f"{name} paused the group and is silent: this member continues")))

    def open(self, _sender: int) -> None:
        self.poll_ns = NEVER
        self.context.emit(OpenPause("the pause has ended"))
        self.blocker.opened()

    def ask_release(self) -> None:
        """The pause still holds: until its release or the end of its lease, the owner may rely on that."""
        self.poll_ns = NEVER
        for sender, known in self.known.items():
            self.context.send(Resumed(known.frame.view, known.frame.pause), sender)

    def let_send(self, *_: object) -> None:
        self.context.emit(OpenPause("a view change ended the pause"))

    def forget_all(self) -> None:
        self.known.clear()
        self.poll_ns = NEVER

    TABLE: ClassVar[Table] = table(
        "pause member",
        S,
        E,
        (ANY, (E.SUSPEND, has_ended), None, refuse, "this pause has ended (E-18)"),
        (ANY, (E.SUSPEND, was_overtaken), None, IGNORED, "a later SUSPEND of this pause arrived earlier"),
        (S.CLOSING, E.SUSPEND, None, refuse, "the view change goes first"),
        (
            (S.OPEN, S.ASKED),
            (E.SUSPEND, asks_for_callbacks),
            S.ASKED,
            (note, run_callback, answer),
            "the block callback runs; sending stays open",
        ),
        ((S.OPEN, S.ASKED), E.SUSPEND, S.PAUSED, (note, stop, answer), "nothing new is sent"),
        (S.PAUSED, E.SUSPEND, None, (note, answer), "repeated, the next round, or another pause: sending has stopped"),
        ((S.ASKED, S.PAUSED), (E.RESUME, was_last), S.OPEN, (forget, open), "no pause is left"),
        (S.CLOSING, (E.RESUME, was_last), None, (forget, let_send), "no pause is left, and the callbacks can send"),
        (S.OPEN, E.RESUME, None, ILLEGAL, "no pause is known"),
        (None, E.RESUME, None, forget, "another pause holds"),
        (
            (S.ASKED, S.PAUSED),
            (E.LAPSE, was_last),
            S.OPEN,
            (forget, warn, open),
            "the owner is silent; no member takes over its pause (E-18)",
        ),
        (S.CLOSING, (E.LAPSE, was_last), None, (forget, warn, let_send), "the owner is silent; the callbacks can send"),
        (S.OPEN, E.LAPSE, None, ILLEGAL, "no lease runs"),
        (None, E.LAPSE, None, (forget, warn), "the owner is silent; another pause holds"),
        (None, E.BLOCK, S.CLOSING, ask_release, "callbacks must send: ask the owners for release, or wait"),
        (None, E.START, S.CLOSING, (forget_all, let_send), "the gate is closed, which ends all pauses (step 6)"),
    )
