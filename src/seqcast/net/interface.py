"""Looks now and then at the network interface of a member, for ``core/machines/interface.py``."""

from __future__ import annotations

import errno
import os

from seqcast._native.driver import ADDRESS_GONE, ADDRESS_OTHER, DOWN, GONE, NO_CARRIER, REMADE, Driver, describe_address
from seqcast.core.machines.interface import LOOK_NS, Interface, Look, MendSockets, Sight
from seqcast.core.table import Edge
from seqcast.core.vocabulary import InterfaceNews

_CAUSES = {
    errno.EPERM: "a firewall of this machine drops them",
    errno.EACCES: "a firewall of this machine drops them",
    errno.ENETUNREACH: "there is no route: see `ip route`",
    errno.EHOSTUNREACH: "a member cannot be reached: see `ip route` and `ip neighbour`",
    errno.ENODEV: "the interface is gone: see `ip link`",
    errno.ENETDOWN: "the interface is down: see `ip link`",
    errno.EADDRNOTAVAIL: "the address is gone: see `ip address`",
}


class InterfaceWatch:
    """
    Args:
        driver: whose sockets are mended.
        edges: of the endpoint.
    """

    def __init__(self, driver: Driver, edges: set[Edge]) -> None:
        self.driver, self.machine, self.due_ns = driver, Interface(driver.interface, edges), 0

    @property
    def fault(self) -> str:
        """What is wrong with the interface now, in words; "" for nothing."""
        return self._see(self.driver.look())[1]

    def look(self, now_ns: int) -> list[InterfaceNews]:
        """Looks, if it is time, and mends what can be mended; returns what is to be reported."""
        if now_ns < self.due_ns:
            return []
        self.due_ns = now_ns + LOOK_NS
        seen, code = self.driver.look(), self.driver.last_send_error
        sight, fault = self._see(seen)
        refusal = f"({os.strerror(code)}): {_CAUSES.get(code, 'see `ip route`, the firewall and the system log')}"
        errors = self.driver.counters()["io_send_errors"]
        news: list[InterfaceNews | MendSockets] = []
        for effect in self.machine.look(Look(sight, fault, bool(seen & REMADE), errors, refusal)):
            news += self.machine.mended(self._mend()) if isinstance(effect, MendSockets) else [effect]
        return [each for each in news if isinstance(each, InterfaceNews)]

    def _mend(self) -> str:
        """Returns why the sockets cannot be mended; "": they are."""
        try:
            self.driver.mend()
        except OSError as error:
            return f"{error.args[1]}: {os.strerror(error.errno or 0)}"
        return ""

    def _see(self, seen: int) -> tuple[Sight, str]:
        name = self.driver.interface
        address = describe_address(self.driver.address).rpartition(":")[0]
        other = Sight.REPLACED if seen & ADDRESS_OTHER else Sight.BROKEN
        if seen & GONE:
            return other, f"interface {name} is gone"
        if seen & DOWN:
            return other, f"{name} is down: ip link set {name} up"
        if seen & ADDRESS_OTHER:
            return other, f"{name} has another address than {address}, the one of this member"
        if seen & ADDRESS_GONE:
            return other, f"{name} has lost the address {address}"
        if seen & NO_CARRIER:
            return Sight.NO_CARRIER, f"{name} has no carrier: is its cable in, and what is at the other end up?"
        return Sight.WELL, ""
