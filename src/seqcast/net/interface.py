"""Looks now and then at the network interface of a member: an interface that is made anew, or loses its address, leaves
sockets behind that send and hear nothing, while every send seems to succeed."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from seqcast._native.driver import ADDRESS_GONE, ADDRESS_OTHER, DOWN, GONE, NO_CARRIER, REMADE, Driver, describe_address
from seqcast.core.vocabulary import InterfaceNews
from seqcast.events import InterfaceChanged

LOOK_NS = 500_000_000
"""Between two looks, which cost a few system calls each."""
PATIENCE = 4
"""So many looks in turn: an address that another one has replaced is gone for good, and sends that fail are told of."""
_CAUSES = {
    errno.EPERM: "a firewall of this machine drops them",
    errno.EACCES: "a firewall of this machine drops them",
    errno.ENETUNREACH: "there is no route: see `ip route`",
    errno.EHOSTUNREACH: "a member cannot be reached: see `ip route` and `ip neighbour`",
    errno.ENODEV: "the interface is gone: see `ip link`",
    errno.ENETDOWN: "the interface is down: see `ip link`",
    errno.EADDRNOTAVAIL: "the address is gone: see `ip address`",
}


@dataclass(slots=True)
class Interface:
    """What is known of the interface of one driver, and what was told of it.

    Args:
        driver: whose sockets are mended.
    """

    driver: Driver
    due_ns: int = 0
    trouble: str = ""  # told; "" while all is well
    seen: int = 0
    replaced: int = 0  # looks in turn that found another address in the place of ours
    failing: int = 0  # looks in turn in which sends failed
    errors: int = 0  # send errors up to the last look

    @property
    def fault(self) -> str:
        """What is wrong with the interface now, in words; "" for nothing."""
        return self._words(self.driver.look())

    def look(self, now_ns: int) -> list[InterfaceNews]:
        """Looks, if it is time, and mends what can be mended; returns what is to be told."""
        if now_ns < self.due_ns:
            return []
        self.due_ns = now_ns + LOOK_NS
        name, before, self.seen = self.driver.interface, self.seen, self.driver.look()
        lost = self.seen & ADDRESS_OTHER
        self.replaced = self.replaced + 1 if lost else 0
        if self.replaced == PATIENCE:
            reason = f"{self._words(self.seen)}: nobody reaches this member there any more; join again"
            return [InterfaceNews(InterfaceChanged(name, reason), lost=True)]
        broken = GONE | DOWN | ADDRESS_GONE
        if self.seen & broken:
            return self._tell(self._words(self.seen))
        if self.seen & REMADE or before & broken:
            what = "was made anew" if self.seen & REMADE else "is back, and so is its address"
            try:
                self.driver.mend()
            except OSError as error:
                self.seen |= REMADE  # again at the next look
                return self._tell(f"{name} {what}, and the group cannot be joined on it ({error.args[1]}: "
                                  f"{os.strerror(error.errno or 0)}): leave, and join again")  # fmt: skip
            self.seen &= ~REMADE
            self.trouble, self.failing = "", 0
            return [InterfaceNews(InterfaceChanged(name, f"{name} {what}: the group is joined on it again"))]
        if self.seen & NO_CARRIER:
            return self._tell(self._words(self.seen))
        return self._sends()

    def _sends(self) -> list[InterfaceNews]:
        """Sends that the system refuses, though the interface looks well."""
        errors = self.driver.counters()["io_send_errors"]
        self.failing, self.errors = (self.failing + 1 if errors > self.errors else 0), errors
        if self.failing >= PATIENCE:
            code = self.driver.last_send_error
            cause = _CAUSES.get(code, "see `ip route`, the firewall and the system's log")
            name = self.driver.interface
            return self._tell(f"datagrams of this member are not sent by {name} ({os.strerror(code)}): {cause}")
        if self.trouble and not self.failing:
            self.trouble = ""
            said = f"{self.driver.interface} is well again"
            return [InterfaceNews(InterfaceChanged(self.driver.interface, said))]
        return []

    def _tell(self, trouble: str) -> list[InterfaceNews]:
        """Once for each trouble."""
        if trouble == self.trouble:
            return []
        self.trouble = trouble
        return [InterfaceNews(InterfaceChanged(self.driver.interface, trouble))]

    def _words(self, seen: int) -> str:
        name = self.driver.interface
        address = describe_address(self.driver.address).rpartition(":")[0]
        if seen & GONE:
            return f"interface {name} is gone"
        if seen & DOWN:
            return f"{name} is down: ip link set {name} up"
        if seen & ADDRESS_OTHER:
            return f"{name} has another address than {address}, the one of this member"
        if seen & ADDRESS_GONE:
            return f"{name} has lost the address {address}"
        return f"{name} has no carrier: is its cable in, and what is at the other end up?" if seen & NO_CARRIER else ""
