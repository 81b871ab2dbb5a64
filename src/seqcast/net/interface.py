"""Observes the network interface for the control thread, and rejoins the sockets there; ``core/machines/interface.py``
decides."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from seqcast._native.driver import (
    ADDRESS_GONE,
    ADDRESS_OTHER,
    DOWN,
    GONE,
    NO_CARRIER,
    REMADE,
    ROUTED,
    Driver,
    describe_address,
    interface_of,
    look_at,
)
from seqcast.core.machines.interface import Interface, fault_of
from seqcast.core.table import Edge
from seqcast.core.vocabulary import GiveWay, InterfaceSeen, MendSockets, SocketsMended, TellInterface, Warn
from seqcast.system import read

SIOCGIFADDR = 0x8915  # of Linux, netdevice(7)
NET = Path("/sys/class/net")  # of Linux
UP, LOOPBACK, MULTICAST = 0x1, 0x8, 0x1000  # flags of an interface, netdevice(7)
_CAUSES = {
    errno.EAGAIN: "their buffer stayed full: is the link slow, or stopped?",
    errno.EWOULDBLOCK: "their buffer stayed full: is the link slow, or stopped?",  # on Windows another number
    errno.EPERM: "a firewall of this machine drops them",
    errno.EACCES: "a firewall of this machine drops them",
    getattr(errno, "WSAEACCES", errno.EACCES): "a firewall of this machine drops them",
    errno.ENETUNREACH: "there is no route: see `ip route`",
    errno.EHOSTUNREACH: "a member cannot be reached: see `ip route` and `ip neighbour`",
    errno.ENODEV: "the interface is gone: see `ip link`",
    errno.ENETDOWN: "the interface is down: see `ip link`",
    errno.EADDRNOTAVAIL: "the address is gone: see `ip address`",
}


def see(driver: Driver) -> InterfaceSeen:
    """The current state of the interface of a driver's sockets."""
    address = describe_address(driver.address).rpartition(":")[0]
    errors = driver.counters()["io_send_errors"]
    return _seen(driver.interface, address, driver.look(), errors, driver.last_send_error)


def _seen(name: str, address: str, seen: int, send_errors: int, code: int) -> InterfaceSeen:
    return InterfaceSeen(
        name=name,
        address=address,
        gone=bool(seen & GONE),
        down=bool(seen & DOWN),
        no_carrier=bool(seen & NO_CARRIER),
        address_gone=bool(seen & ADDRESS_GONE),
        address_other=bool(seen & ADDRESS_OTHER),
        remade=bool(seen & REMADE),
        routed=bool(seen & ROUTED),
        send_errors=send_errors,
        refusal=f"({os.strerror(code)}): {_CAUSES.get(code, 'see `ip route`, the firewall and the system log')}",
    )


def fault(driver: Driver) -> str:
    """The interface's fault now, in words; "" for nothing."""
    return fault_of(see(driver))


def mend(driver: Driver) -> SocketsMended:
    """Makes the sockets use the interface that has the name now."""
    try:
        driver.mend()
    except OSError as error:
        return SocketsMended(f"{error.args[1]}: {os.strerror(error.errno or 0)}")
    return SocketsMended()


class InterfaceObserver:
    """Observes the interface of a crowd's sockets, as a group's member does that of its own.

    Args:
        address: of the sockets, IPv4.
        port: of the one that receives unicasts.
        warn: called with a line for the log.
        give_up: called with the reason when the address is gone for good.
        mend: makes the sockets use the interface that has the name now, and leaves the group on the one that had it and
            this index; the kernel bounds how often a socket can join.
        unrouted: the group's address and port, if it is on loopback because no other interface had a route to it.
    """

    def __init__(
        self,
        address: str,
        port: int,
        warn: Callable[[str], None],
        give_up: Callable[[str], None],
        mend: Callable[[int], None],
        unrouted: tuple[str, int] | None = None,
    ) -> None:
        self.edges: set[Edge] = set()
        self.send_errors = self.error = 0
        """Datagrams that the system refused, and the reason for the last one."""
        self._address, self._raw = address, _raw(address, port)
        self._unrouted = _raw(*unrouted) if unrouted else b""
        self._warn, self._give_up, self._mend = warn, give_up, mend
        self.interface, self._index = _interface_of(address)
        """Its name, "" if that cannot be told here, and its index."""
        self._machine = Interface(self)

    def look(self) -> None:
        """Looks, and carries out the result."""
        if not self.interface:
            return
        seen = look_at(self.interface, self._index, self._raw, self._unrouted)
        self._machine.look(_seen(self.interface, self._address, seen, self.send_errors, self.error))

    def emit(self, what: GiveWay | MendSockets | TellInterface | Warn) -> None:
        """The machine's decision."""
        match what:
            case Warn(text):
                self._warn(text)
            case GiveWay(reason=reason):
                self._give_up(reason)
            case MendSockets():
                self._mending()

    def _mending(self) -> None:
        try:
            self._mend(self._index)
            self._index = socket.if_nametoindex(self.interface)
        except OSError as error:
            self._machine.mended(str(error.strerror or error))
        else:
            self._machine.mended("")


def _raw(address: str, port: int) -> bytes:
    """As members' addresses are (``sc_address`` of native/io/sockets.h)."""
    return b"\4" + port.to_bytes(2, "big") + socket.inet_aton(address)


def _interface_of(address: str) -> tuple[str, int]:
    """Name and index of the interface that has an IPv4 address; "" if that cannot be told here."""
    if not sys.platform.startswith("linux"):
        return "", 0
    with contextlib.suppress(OSError):
        return interface_of(address)
    return "", 0


def only_interface(ip_version: int) -> str:
    """The network interface of this machine that is up and has an address, if there is just one besides loopback, on
    Linux; else ""."""
    names = [name for _, name in socket.if_nameindex() if flags_of(name) & (UP | LOOPBACK) == UP]
    found = [name for name in names if _has_address(name, ip_version)]
    return found[0] if len(found) == 1 else ""


def flags_of(name: str) -> int:
    """The flags of an interface; 0: not known."""
    return int(read(NET, f"{name}/flags") or "0", 16)


def _has_address(name: str, ip_version: int) -> bool:
    with contextlib.suppress(OSError):
        if ip_version == 4:
            return bool(ipv4_of(name))
        return any(line.split()[-1] == name for line in read(Path("/proc/net"), "if_inet6").splitlines())
    return False


def ipv4_of(name: str) -> str:
    """The IPv4 address of an interface of this machine, on Linux.

    Raises:
        OSError: no address, or no such interface.
    """
    import fcntl  # absent on Windows

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("256s", os.fsencode(name)[:15])
        return socket.inet_ntoa(fcntl.ioctl(asked, SIOCGIFADDR, request)[20:24])
