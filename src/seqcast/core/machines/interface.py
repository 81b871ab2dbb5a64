"""Reacts to changes of a member's network interface, as its runner observes them.

When an interface is recreated or loses its address, its sockets neither send nor receive, while every send seems to
succeed. So the runner checks regularly, and rejoins its sockets when the interface is back. An address that was
replaced by another one is gone for good: the others cannot reach this member any more, so it leaves the group.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar, Protocol

import seqcast.codes as codes
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.core.vocabulary import GiveWay, InterfaceSeen, MendSockets, TellInterface, Warn
from seqcast.events import InterfaceChanged

LOOK_NS = 500_000_000
"""Time between two looks of the runner, ns; each costs a few system calls."""
PATIENCE = 4
"""After this many checks in a row, a replaced address counts as gone for good, and failing sends are reported."""

OFFER = (
    "this member is on loopback, and reaches members on this machine only, as its join found no route for multicast; "
    "another network interface has one now: leave, and join again"
)


def fault_of(seen: InterfaceSeen) -> str:
    """The fault of an interface, as text; "" if nothing is."""
    if seen.gone:
        return f"interface {seen.name} is gone"
    if seen.down:
        return f"{seen.name} is down: ip link set {seen.name} up"
    if seen.address_other:
        return f"{seen.name} has another address than {seen.address}, the one of this member"
    if seen.address_gone:
        return f"{seen.name} has lost the address {seen.address}"
    if seen.no_carrier:
        return f"{seen.name} has no carrier: is its cable in, and is the device at the other end up?"
    return ""


class InterfaceState(Enum):
    SOUND = auto()
    BROKEN = auto()
    MENDING = auto()
    OUT = auto()


class InterfaceEvent(Enum):
    LOOK = auto()
    MENDED = auto()
    FAILED = auto()


S, E = InterfaceState, InterfaceEvent


class Around(Protocol):
    """The context of a group's member, or a crowd's member."""

    edges: set[Edge]

    def emit(self, what: GiveWay | MendSockets | TellInterface | Warn) -> None: ...


class Interface(TableMachine):
    def __init__(self, context: Around) -> None:
        super().__init__(S.SOUND, context.edges)
        self.context = context
        self.name = ""
        self.trouble = ""  # reported; "" while all is well
        self.replaced = 0  # checks in a row that found another address
        self.failing = 0  # checks in a row in which sends had failed
        self.errors = 0  # failed sends up to the last check
        self.back = ""  # the change of the interface whose sockets are being mended
        self.offered = False  # another interface, instead of loopback

    @property
    def sound(self) -> bool:
        """Nothing is wrong, neither now nor at the last look: a look that sees nothing wrong would change nothing."""
        return self.state is S.SOUND and not (self.trouble or self.failing or self.replaced)

    # ---- inputs

    def look(self, seen: InterfaceSeen) -> None:
        """The runner checked the interface."""
        self.name = seen.name
        self.replaced = self.replaced + 1 if seen.address_other else 0
        self.failing = self.failing + 1 if seen.send_errors > self.errors else 0
        self.errors = seen.send_errors
        self.fire(E.LOOK, seen)

    def mended(self, error: str) -> None:
        """The sockets are mended, or could not be: ``error``."""
        if error:
            self.fire(E.FAILED, error)
        else:
            self.fire(E.MENDED)

    # ---- guards

    def is_replaced(self, _seen: InterfaceSeen) -> bool:
        return self.replaced >= PATIENCE

    def is_broken(self, seen: InterfaceSeen) -> bool:
        return seen.gone or seen.down or seen.address_gone

    def is_remade(self, seen: InterfaceSeen) -> bool:
        return seen.remade

    def has_no_carrier(self, seen: InterfaceSeen) -> bool:
        return seen.no_carrier

    def refuses_sends(self, _seen: InterfaceSeen) -> bool:
        return self.failing >= PATIENCE

    def has_recovered(self, _seen: InterfaceSeen) -> bool:
        return bool(self.trouble) and not self.failing

    def is_offered(self, seen: InterfaceSeen) -> bool:
        return seen.routed and not self.offered

    # ---- actions

    def give_up(self, seen: InterfaceSeen) -> None:
        reason = f"{fault_of(seen)}: no member can reach this one there; join again"
        self._report(reason)
        self.context.emit(GiveWay(None, reason))

    def tell_fault(self, seen: InterfaceSeen) -> None:
        self._tell(fault_of(seen))

    def tell_refusal(self, seen: InterfaceSeen) -> None:
        self._tell(f"datagrams of this member are not sent by {self.name} {seen.refusal}")

    def tell_recovery(self, _seen: InterfaceSeen) -> None:
        self._tell_end(f"{self.name} is well again")

    def tell_offer(self, _seen: InterfaceSeen) -> None:
        self.offered = True
        self._report(OFFER)

    def mend(self, seen: InterfaceSeen) -> None:
        self.back = f"{self.name} {'was recreated' if seen.remade else 'is back, and so is its address'}"
        self.context.emit(MendSockets())

    def tell_mended(self) -> None:
        self._tell_end(f"{self.back}: the group is joined there again")

    def tell_failure(self, error: str) -> None:
        self._tell(f"{self.back}, and the group cannot be joined on it ({error}): leave, and join again")

    def _tell(self, trouble: str) -> None:
        """Warns once for each trouble."""
        if trouble != self.trouble:
            self.trouble = trouble
            self._report(trouble)

    def _tell_end(self, words: str) -> None:
        self.trouble, self.failing = "", 0
        self._report(words)

    def _report(self, words: str) -> None:
        self.context.emit(Warn(codes.INTERFACE_FAULT(words)))
        self.context.emit(TellInterface(InterfaceChanged(self.name, words)))

    TABLE: ClassVar[Table] = table(
        "interface",
        S,
        E,
        (S.BROKEN, (E.LOOK, is_replaced), S.OUT, give_up, "the address is gone for good: this member is out"),
        ((S.SOUND, S.BROKEN), (E.LOOK, is_broken), S.BROKEN, tell_fault, "its sockets send and hear nothing"),
        (S.BROKEN, E.LOOK, S.MENDING, mend, "the interface is back, and the sockets are not"),
        (S.SOUND, (E.LOOK, is_remade), S.MENDING, mend, "recreated between two looks: the sockets are the old one's"),
        (S.SOUND, (E.LOOK, has_no_carrier), None, tell_fault, "the sockets stay good"),
        (S.SOUND, (E.LOOK, refuses_sends), None, tell_refusal, "the interface looks well, and the system refuses"),
        (S.SOUND, (E.LOOK, is_offered), None, tell_offer, "the group has members on this machine only: told once"),
        (S.SOUND, (E.LOOK, has_recovered), None, tell_recovery, "the reported fault is over"),
        (None, E.LOOK, None, IGNORED, "all is well, the sockets are being mended, or this member is out"),
        (S.MENDING, E.MENDED, S.SOUND, tell_mended, "the group is joined again"),
        (S.MENDING, E.FAILED, S.BROKEN, tell_failure, "tried again at the next look"),
        (None, E.MENDED, None, ILLEGAL, "nothing was to be mended"),
        (None, E.FAILED, None, ILLEGAL, "nothing was to be mended"),
    )
