"""Observes the network interface for the control thread, and rejoins the sockets on it; ``core/machines/interface.py``
decides."""

from __future__ import annotations

import errno
import os
import socket
import struct

from seqcast._native.driver import ADDRESS_GONE, ADDRESS_OTHER, DOWN, GONE, NO_CARRIER, REMADE, Driver, describe_address
from seqcast.core.machines.interface import fault_of
from seqcast.core.vocabulary import InterfaceSeen, SocketsMended

SIOCGIFADDR = 0x8915  # of Linux, netdevice(7)
_CAUSES = {
    errno.EPERM: "a firewall of this machine drops them",
    errno.EACCES: "a firewall of this machine drops them",
    errno.ENETUNREACH: "there is no route: see `ip route`",
    errno.EHOSTUNREACH: "a member cannot be reached: see `ip route` and `ip neighbour`",
    errno.ENODEV: "the interface is gone: see `ip link`",
    errno.ENETDOWN: "the interface is down: see `ip link`",
    errno.EADDRNOTAVAIL: "the address is gone: see `ip address`",
}


def see(driver: Driver) -> InterfaceSeen:
    """The current state of the interface of a driver's sockets."""
    seen, code = driver.look(), driver.last_send_error
    return InterfaceSeen(
        name=driver.interface,
        address=describe_address(driver.address).rpartition(":")[0],
        gone=bool(seen & GONE),
        down=bool(seen & DOWN),
        no_carrier=bool(seen & NO_CARRIER),
        address_gone=bool(seen & ADDRESS_GONE),
        address_other=bool(seen & ADDRESS_OTHER),
        remade=bool(seen & REMADE),
        send_errors=driver.counters()["io_send_errors"],
        refusal=f"({os.strerror(code)}): {_CAUSES.get(code, 'see `ip route`, the firewall and the system log')}",
    )


def fault(driver: Driver) -> str:
    """What is wrong with the interface now, in words; "" for nothing."""
    return fault_of(see(driver))


def mend(driver: Driver) -> SocketsMended:
    """Makes the sockets use the interface that has the name now."""
    try:
        driver.mend()
    except OSError as error:
        return SocketsMended(f"{error.args[1]}: {os.strerror(error.errno or 0)}")
    return SocketsMended()


def ipv4_of(name: str) -> str:
    """The IPv4 address of an interface of this machine, on Linux.

    Raises:
        OSError: it has none, or there is no such interface.
    """
    import fcntl  # absent on Windows

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("256s", os.fsencode(name)[:15])
        return socket.inet_ntoa(fcntl.ioctl(asked, SIOCGIFADDR, request)[20:24])
