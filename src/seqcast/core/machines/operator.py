"""The operator's command ``unblock``, which lets a minority continue without the majority (the cut, step 9).

First all members are asked. Blocked members answer for their side of the partition: the members that answered one
attempt to close one view. Then the operator chooses one side, which is allowed to continue; this is repeated until all
its members have accepted. If the operator reaches several sides, allowing each of them would split the group.

A frame may be lost, so each is repeated.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NEVER
from seqcast.core.frames.kinds import load
from seqcast.core.frames.unblocking import BlockedSide, Side, Unblock
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.errors import RemoteProtocolError, SeqcastError, UsageError

ANSWERS_MAX = 1024
REPEAT_NS = 100_000_000


class OperatorState(Enum):
    ASKING = auto()
    ASKED = auto()
    ALLOWING = auto()
    OVER = auto()


class OperatorEvent(Enum):
    REPEAT = auto()
    ANSWER = auto()
    DEADLINE = auto()
    CHOICE = auto()


def _no_side(text: str) -> SeqcastError:
    """The error for an operator who cannot let a side continue."""
    error = SeqcastError(text)
    error.code = codes.NO_SIDE.number
    return error


class Operator(TableMachine):
    """One command. The first question leaves at once.

    Args:
        cluster: the group's name.
        request: a number of this command; answers to another are ignored.
        ask_ns: answers are awaited for this long before a side can be chosen.
        allow_ns: and then, at most, until all of the side have accepted.
        now_ns: the time.
        tried: how those that are asked by unicast fare if nobody answers, in words.
    """

    def __init__(self, cluster: str, request: int, ask_ns: int, allow_ns: int, now_ns: int, tried: str = "") -> None:
        edges: set[Edge] = set()
        super().__init__(OperatorState.ASKING, edges)
        self.cluster, self.request, self.tried = cluster, request, tried
        self.side: Side | None = None  # which is allowed to continue
        self.strange = ""  # reports of members whose key is another one
        self.answers: dict[str, BlockedSide] = {}  # the newest of each member, by its name
        self._allow_ns = allow_ns
        self._now = now_ns
        self._repeat_ns = now_ns
        self._deadline_ns = now_ns + ask_ns
        self._frames: list[Unblock] = []

    # ---- inputs

    def heard(self, payload: bytes) -> None:
        """A control frame came; only answers to this command matter."""
        try:
            frame = load(payload)
        except RemoteProtocolError:
            return
        if isinstance(frame, BlockedSide) and frame.request == self.request:
            self.fire(OperatorEvent.ANSWER, frame)

    def due(self) -> int:
        return min(self._repeat_ns, self._deadline_ns)

    def run_timers(self, now_ns: int) -> list[Unblock]:
        """The frame to multicast now: the question, and once a side is chosen the permission."""
        self._now = now_ns
        if now_ns >= self._deadline_ns:
            self.fire(OperatorEvent.DEADLINE)
        elif now_ns >= self._repeat_ns:
            self.fire(OperatorEvent.REPEAT)
        frames, self._frames = self._frames, []
        return frames

    def choose(self, member: str = "") -> None:
        """Chooses the side that is allowed, once the answers are in.

        Args:
            member: the side of this one; "": the only one there is.

        Raises:
            SeqcastError: no member is blocked, or there are several sides.
            UsageError: ``member`` is on none.
        """
        if not self.answers and self.strange:
            raise _no_side(f"no member of {self.cluster!r} answers: {self.strange} (--key)")
        if not self.answers:
            tried = f" ({self.tried})" if self.tried else ""
            raise _no_side(
                f"no member of {self.cluster!r} that can be reached is blocked as a minority{tried}: if one is, check "
                "the cluster's name, --interface, --port and --seeds"
            )
        sides = {answer.side: answer for answer in self.answers.values() if not member or member in answer.reached}
        if not sides:
            known = sorted({name for answer in self.answers.values() for name in answer.reached})
            raise UsageError(f"{member!r} is not blocked as a minority; these are: {', '.join(known)}")
        if len(sides) > 1:
            several = " and ".join(f"[{', '.join(answer.reached)}]" for answer in sides.values())
            raise _no_side(
                f"several sides are blocked, and only one may continue: {several}. If they reach each other again, "
                "they merge by themselves: wait a moment. Otherwise name a member of the one to continue: --member"
            )
        self.fire(OperatorEvent.CHOICE, next(iter(sides)))

    # ---- the outcome

    @property
    def asked(self) -> bool:
        """The answers are in: ``choose`` is due."""
        return self.state is OperatorState.ASKED

    @property
    def over(self) -> bool:
        """All of the side have accepted, or the time is over."""
        return self.state is OperatorState.OVER

    @property
    def reached(self) -> tuple[str, ...]:
        """Names of the members on the chosen side."""
        return next((answer.reached for answer in self.answers.values() if answer.side == self.side), ())

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the members left behind."""
        return next((answer.missing for answer in self.answers.values() if answer.side == self.side), ())

    @property
    def places(self) -> tuple[bytes, ...]:
        """Addresses of members on the sides that have answered. One that is not asked itself does not continue."""
        return tuple(dict.fromkeys(place for answer in self.answers.values() for place in answer.places))

    @property
    def accepted(self) -> list[str]:
        """Names of those on that side that have accepted."""
        return sorted(name for name, answer in self.answers.items() if answer.side == self.side and answer.allowed)

    # ---- guards

    def too_many(self, frame: BlockedSide) -> bool:
        return frame.name not in self.answers and len(self.answers) >= ANSWERS_MAX

    def all_accepted(self, frame: BlockedSide) -> bool:
        accepted = {*self.accepted, frame.name} if frame.side == self.side and frame.allowed else set(self.accepted)
        return accepted >= set(self.reached)

    # ---- actions

    def note(self, frame: BlockedSide) -> None:
        self.answers[frame.name] = frame

    def say(self, *_: object) -> None:
        self._frames.append(Unblock(self.cluster, self.request, self.side))
        self._repeat_ns = self._now + REPEAT_NS

    def allow(self, side: Side) -> None:
        self.side = side
        self._deadline_ns = self._now + self._allow_ns
        self._repeat_ns = self._now

    def rest(self, *_: object) -> None:
        self._repeat_ns = self._deadline_ns = NEVER

    S, E = OperatorState, OperatorEvent
    TABLE: ClassVar[Table] = table(
        "operator",
        S,
        E,
        ((S.ASKING, S.ALLOWING), E.REPEAT, None, say, "frames may be lost, and more members may become blocked"),
        (None, E.REPEAT, None, ILLEGAL, "the timer does not run"),
        (S.OVER, E.ANSWER, None, IGNORED, "late"),
        (None, (E.ANSWER, too_many), None, IGNORED, "more than a group can have: some are forged"),
        (S.ALLOWING, (E.ANSWER, all_accepted), S.OVER, (note, rest), "the whole side continues"),
        (None, E.ANSWER, None, note, "the newest of each member counts"),
        (S.ASKING, E.DEADLINE, S.ASKED, rest, "the answers are in"),
        (S.ALLOWING, E.DEADLINE, S.OVER, rest, "some do not accept"),
        (None, E.DEADLINE, None, ILLEGAL, "the timer does not run"),
        (S.ASKED, E.CHOICE, S.ALLOWING, allow, "one side, and no other"),
        (None, E.CHOICE, None, ILLEGAL, "asked for once"),
    )
