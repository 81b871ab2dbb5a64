"""The operator's side of the unblocking of a minority (design: the cut, step 9); no I/O.

First everyone is asked. Who is blocked answers for its side of the partition: those that answered one attempt to close
one view. Only then one side is allowed to go on: where the operator's machine reaches several, allowing each would make
two groups of one.
"""

from __future__ import annotations

from seqcast.core.frames.kinds import BlockedSide, Side, Unblock
from seqcast.errors import SeqcastError, UsageError

ANSWERS_MAX = 1024


class Operator:
    """One command.

    Args:
        cluster: whose minority.
        request: a number of this command; answers to another are not heeded.
    """

    def __init__(self, cluster: str, request: int) -> None:
        self.cluster, self.request = cluster, request
        self.side: Side | None = None  # which is allowed to go on
        self.answers: dict[str, BlockedSide] = {}  # the newest, by the name of who answered

    def frame(self) -> Unblock:
        """To be multicast, again and again: the question first, and once a side is chosen the permission."""
        return Unblock(self.cluster, self.request, self.side)

    def heard(self, frame: BlockedSide) -> None:
        """An answer."""
        if frame.request == self.request and (frame.name in self.answers or len(self.answers) < ANSWERS_MAX):
            self.answers[frame.name] = frame

    def choose(self, member: str = "") -> None:
        """Chooses the side to be allowed.

        Args:
            member: the side of this one; "": the only one there is.

        Raises:
            SeqcastError: nobody is blocked, or there are several sides.
            UsageError: ``member`` is on none.
        """
        if not self.answers:
            raise SeqcastError(f"nobody of {self.cluster!r} that can be reached is blocked as a minority")
        sides = {answer.side: answer for answer in self.answers.values() if not member or member in answer.reached}
        if not sides:
            known = sorted({name for answer in self.answers.values() for name in answer.reached})
            raise UsageError(f"{member!r} is not blocked as a minority; these are: {', '.join(known)}")
        if len(sides) > 1:
            several = " and ".join(f"[{', '.join(answer.reached)}]" for answer in sides.values())
            raise SeqcastError(
                f"several sides are blocked, and only one may go on: {several}. If they reach each other again they "
                "become one by themselves: wait a moment. Else name a member of the one that is to go on, by --member"
            )
        self.side = next(iter(sides))

    @property
    def reached(self) -> tuple[str, ...]:
        """Who is on the side that was chosen."""
        return next((answer.reached for answer in self.answers.values() if answer.side == self.side), ())

    @property
    def missing(self) -> tuple[str, ...]:
        """Whom it goes on without."""
        return next((answer.missing for answer in self.answers.values() if answer.side == self.side), ())

    @property
    def accepted(self) -> list[str]:
        """Who of that side has taken the permission."""
        return sorted(name for name, answer in self.answers.items() if answer.side == self.side and answer.allowed)
