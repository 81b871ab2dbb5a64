"""A pause for its application: one at a time, from `suspend` to `resume`.

`pause_owner.py` carries out the pause. Its reports may arrive after the application has stopped waiting; the number of
the pause tells them apart.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core.table import IGNORED, Edge, Table, TableMachine, table
from seqcast.core.vocabulary import PauseGroup, PauseHeld, PauseOver, ResumeGroup
from seqcast.errors import UsageError


class PauseRequestState(Enum):
    FREE = auto()
    ASKED = auto()
    HELD = auto()
    OVER = auto()


class PauseRequestEvent(Enum):
    ASK = auto()
    HELD = auto()
    OVER = auto()
    RESUME = auto()
    END = auto()


class PauseRequest(TableMachine):
    """
    Args:
        edges: of the endpoint.
    """

    def __init__(self, edges: set[Edge]) -> None:
        super().__init__(PauseRequestState.FREE, edges)
        self.number = 0
        self._reason = ""

    # ---- inputs

    def ask(self, timeout_ns: int) -> PauseGroup:
        """The application pauses the group. Returns the input of the endpoint.

        Raises:
            UsageError: this member pauses the group already.
        """
        self.fire(PauseRequestEvent.ASK)
        return PauseGroup(self.number, timeout_ns)

    def told(self, effect: PauseHeld | PauseOver) -> None:
        """The endpoint reports that the pause holds, or is over."""
        if effect.request != self.number:  # of one that the application gave up
            return
        if isinstance(effect, PauseHeld):
            self.fire(PauseRequestEvent.HELD)
        else:
            self.fire(PauseRequestEvent.OVER, effect.reason)

    def resume(self) -> ResumeGroup:
        """The application resumes the group. Returns the input of the endpoint; ``end`` follows when ``held`` is false,
        or after the lease, by which the pause has ended in any case.

        Raises:
            UsageError: there is no pause.
        """
        self.fire(PauseRequestEvent.RESUME)
        return ResumeGroup(self.number)

    def end(self) -> str:
        """The application stops waiting. Returns why the pause had already ended; "": held until ``resume``."""
        self.fire(PauseRequestEvent.END)
        return self._reason

    # ---- waits of the application

    @property
    def free(self) -> bool:
        return self.state is PauseRequestState.FREE

    def is_open(self, pause: PauseGroup) -> bool:
        """Is this pause neither resumed nor given up?"""
        return self.number == pause.request and not self.free

    def awaits(self, pause: PauseGroup) -> bool:
        """Can this pause still come to hold?"""
        return self.number == pause.request and self.state is PauseRequestState.ASKED

    @property
    def held(self) -> bool:
        return self.state is PauseRequestState.HELD

    # ---- actions

    def begin(self) -> None:
        self.number += 1

    def note(self, reason: str) -> None:
        self._reason = reason

    def note_silence(self) -> None:
        self._reason = "this member was silent for too long, or is no longer in the group"

    def refuse_second(self) -> None:
        raise UsageError("this member has paused the group already: resume first")

    def refuse(self) -> None:
        raise UsageError("this member has not paused the group")

    S, E = PauseRequestState, PauseRequestEvent
    TABLE: ClassVar[Table] = table(
        "pause request",
        S,
        E,
        (S.FREE, E.ASK, S.ASKED, begin, "the application pauses the group"),
        (None, E.ASK, None, refuse_second, "only one pause at a time"),
        (S.ASKED, E.HELD, S.HELD, (), "all members have delivered the same, and nobody sends"),
        (None, E.HELD, None, IGNORED, "the application no longer waits"),
        ((S.ASKED, S.HELD), E.OVER, S.OVER, note, "resumed, not held in time, or ended by something else"),
        (None, E.OVER, None, IGNORED, "the application no longer waits"),
        (S.FREE, E.RESUME, None, refuse, "there is no pause"),
        (None, E.RESUME, None, (), "the pause was held, ended, or no longer awaited"),
        (S.OVER, E.END, S.FREE, (), "the owner reported the end"),
        (S.FREE, E.END, None, refuse, "there is no pause"),
        (None, E.END, S.FREE, note_silence, "no answer came before the lease ended"),
    )
