"""The network interface of a member: what follows from what its runner sees of it.

An interface that is recreated, or loses its address, leaves sockets behind that send and hear nothing, while every send
seems to succeed. So the runner looks now and then, and mends its sockets when the interface is back. An address that
another one has replaced is gone for good: the others reach nobody there, and this member is out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.table import IGNORED, ILLEGAL, Edge, Machine, Table, table
from seqcast.core.vocabulary import InterfaceNews
from seqcast.events import InterfaceChanged

LOOK_NS = 500_000_000
"""Between two looks, which cost a few system calls each."""
PATIENCE = 4
"""This many looks in turn: a replaced address is gone for good, and sends that fail are reported."""


class Sight(Enum):
    """What the runner sees of the interface."""

    WELL = auto()
    NO_CARRIER = auto()
    BROKEN = auto()  # it is gone or down, or has lost the address
    REPLACED = auto()  # it has another address in place of the member's


@dataclass(frozen=True, slots=True)
class Look:
    """
    Args:
        sight: what is seen; ``fault``: in words, or empty.
        remade: another interface has the name since the sockets were opened or mended.
        send_errors: how many sends have failed so far; ``refusal``: the last of them, in words.
    """

    sight: Sight
    fault: str = ""
    remade: bool = False
    send_errors: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MendSockets:
    """Open the sockets anew on the interface; ``Interface.mended`` takes the result."""


class InterfaceState(Enum):
    SOUND = auto()
    BROKEN = auto()
    OUT = auto()


class InterfaceEvent(Enum):
    LOOK = auto()
    MENDED = auto()
    FAILED = auto()


S, E = InterfaceState, InterfaceEvent


class Interface(Machine):
    """
    Args:
        name: of the interface.
        edges: of the endpoint.
    """

    def __init__(self, name: str, edges: set[Edge]) -> None:
        super().__init__(S.SOUND, edges)
        self.name = name
        self.trouble = ""  # reported; "" while all is well
        self.replaced = 0  # looks in turn that found another address
        self.failing = 0  # looks in turn in which sends failed
        self.errors = 0  # failed sends up to the last look
        self.back = ""  # what became of the interface whose sockets are mended
        self._effects: list[InterfaceNews | MendSockets] = []

    # ---- inputs

    def look(self, look: Look) -> list[InterfaceNews | MendSockets]:
        """Returns what is to be done: news are inputs of the endpoint."""
        self.replaced = self.replaced + 1 if look.sight is Sight.REPLACED else 0
        self.failing = self.failing + 1 if look.send_errors > self.errors else 0
        self.errors = look.send_errors
        self.fire(E.LOOK, look)
        return self._take()

    def mended(self, error: str = "") -> list[InterfaceNews | MendSockets]:
        """The sockets are mended, or could not be: ``error``."""
        if error:
            self.fire(E.FAILED, error)
        else:
            self.fire(E.MENDED)
        return self._take()

    def _take(self) -> list[InterfaceNews | MendSockets]:
        effects, self._effects = self._effects, []
        return effects

    # ---- guards

    def is_replaced(self, _look: Look) -> bool:
        return self.replaced >= PATIENCE

    def is_broken(self, look: Look) -> bool:
        return look.sight in (Sight.BROKEN, Sight.REPLACED)

    def is_remade(self, look: Look) -> bool:
        return look.remade

    def has_no_carrier(self, look: Look) -> bool:
        return look.sight is Sight.NO_CARRIER

    def refuses_sends(self, _look: Look) -> bool:
        return self.failing >= PATIENCE

    def has_recovered(self, _look: Look) -> bool:
        return bool(self.trouble) and not self.failing

    # ---- actions

    def give_up(self, look: Look) -> None:
        reason = f"{look.fault}: nobody reaches this member there any more; join again"
        self._effects.append(InterfaceNews(InterfaceChanged(self.name, reason), lost=True))

    def tell_fault(self, look: Look) -> None:
        self._tell(look.fault)

    def tell_refusal(self, look: Look) -> None:
        self._tell(f"datagrams of this member are not sent by {self.name} {look.refusal}")

    def tell_recovery(self, _look: Look) -> None:
        self._tell_end(f"{self.name} is well again")

    def mend(self, look: Look) -> None:
        self.back = f"{self.name} {'was made anew' if look.remade else 'is back, and so is its address'}"
        self._effects.append(MendSockets())

    def tell_mended(self) -> None:
        self._tell_end(f"{self.back}: the group is joined on it again")

    def tell_failure(self, error: str) -> None:
        self._tell(f"{self.back}, and the group cannot be joined on it ({error}): leave, and join again")

    def _tell(self, trouble: str) -> None:
        """Once for each trouble."""
        if trouble != self.trouble:
            self.trouble = trouble
            self._effects.append(InterfaceNews(InterfaceChanged(self.name, trouble)))

    def _tell_end(self, words: str) -> None:
        self.trouble, self.failing = "", 0
        self._effects.append(InterfaceNews(InterfaceChanged(self.name, words)))

    TABLE: ClassVar[Table] = table(
        "interface",
        S,
        E,
        (
            (S.SOUND, S.BROKEN),
            (E.LOOK, is_replaced),
            S.OUT,
            give_up,
            "the address is gone for good: this member is out",
        ),
        ((S.SOUND, S.BROKEN), (E.LOOK, is_broken), S.BROKEN, tell_fault, "its sockets send and hear nothing"),
        (S.BROKEN, E.LOOK, None, mend, "the interface is back, and the sockets are not"),
        (S.SOUND, (E.LOOK, is_remade), S.BROKEN, mend, "recreated between two looks: the sockets are the old one's"),
        (S.SOUND, (E.LOOK, has_no_carrier), None, tell_fault, "the sockets stay good"),
        (S.SOUND, (E.LOOK, refuses_sends), None, tell_refusal, "the interface looks well, and the system refuses"),
        (S.SOUND, (E.LOOK, has_recovered), None, tell_recovery, "what was reported is over"),
        (None, E.LOOK, None, IGNORED, "all is well, or this member is out"),
        (S.BROKEN, E.MENDED, S.SOUND, tell_mended, "the group is joined again"),
        (S.BROKEN, E.FAILED, None, tell_failure, "tried again at the next look"),
        (None, E.MENDED, None, ILLEGAL, "nothing was to be mended"),
        (None, E.FAILED, None, ILLEGAL, "nothing was to be mended"),
    )
