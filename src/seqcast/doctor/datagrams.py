"""The datagrams of the doctor, and the sockets at both ends of a path.

A datagram is one line of JSON with padding after it: ``t`` is its kind, ``token`` the client's, ``i`` a number. The
listener answers with no more bytes than came. Only for a client that has shown that answers reach its address
(``proof``) does it multicast, or send to another address.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from seqcast._native.driver import interface_of
from seqcast.config.derive import ETHERNET_MTU
from seqcast.net.opening import group_address

PORT = 47320
"""UDP port of the listener; multicasts use the next one."""
GROUP, GROUP6 = group_address("seqcast doctor", 4), group_address("seqcast doctor", 6)
MAPPED = "::ffff:"
"""An IPv6 address that begins so stands for an IPv4 address."""
HELLO_BYTES = 300
"""As large as the answer may be."""
SINGS_MAX = 20
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_DO, PMTUDISC_PROBE = 10, 23, 2, 3  # of Linux, ip(7), ipv6(7)
BYTES_MAX = 65_507
UDP_SEGMENT, UDP_GRO = 103, 104  # of Linux, udp(7)
TRAIN, TRAIN_BYTES = 40, 1472
"""Datagrams that are sent in one call, and the most bytes of each: together less than ``BYTES_MAX``."""


def pack(size: int = 0, **fields: Any) -> bytes:
    """A datagram of ``size`` bytes, or of more if its fields need them."""
    line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    return line + bytes(max(0, size - len(line)))


def unpack(datagram: bytes) -> dict[str, Any]:
    """The fields of a datagram; {} for none of ours."""
    try:
        fields = json.loads(datagram.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) and isinstance(fields.get("token"), str) else {}


def is_ipv6(address: str) -> bool:
    """An IPv6 address, other than one that stands for an IPv4 address."""
    return ":" in address and not address.startswith(MAPPED)


def is_loopback(address: str) -> bool:
    """An address that stays on this machine."""
    return plain(address).startswith("127.") or address == "::1"


def plain(address: str) -> str:
    """The IPv4 address for which an IPv6 address stands, or the address itself."""
    return address.removeprefix(MAPPED)


def group_of(address: str) -> str:
    """The multicast group, by the kind of this machine's address."""
    return GROUP6 if is_ipv6(address) else GROUP


def unicast_socket(address: str, port: int) -> socket.socket:
    """A socket that sends to other machines whole datagrams only; ``address`` "": to those of both IP versions."""
    both = not address and socket.has_dualstack_ipv6()
    made = socket.socket(socket.AF_INET6 if both or is_ipv6(address) else socket.AF_INET, socket.SOCK_DGRAM)
    if both:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    made.bind((address, port))
    return made


def whole_only(sender: socket.socket, *, ask_path: bool) -> None:
    """Datagrams are not cut into fragments, which would hide the size that passes.

    Args:
        ask_path: obey the ICMP messages about the path; otherwise try all the same.
    """
    if not sys.platform.startswith("linux"):
        return
    how = PMTUDISC_DO if ask_path else PMTUDISC_PROBE
    sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, how)
    if sender.family == socket.AF_INET6:
        sender.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, how)


def multicast_sender(address: str) -> socket.socket:
    """A socket that multicasts by the interface with this address."""
    if is_ipv6(address):
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.bind((address, 0))
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface_with(address)[1])
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        return made
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 1))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return made


def multicast_receiver(address: str, port: int) -> socket.socket:
    """A socket that receives the group's datagrams by the interface with this address."""
    made = socket.socket(socket.AF_INET6 if is_ipv6(address) else socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((group_of(address), port + 1))
    join(made, address)
    return made


def join(receiver: socket.socket, address: str) -> None:
    """
    Raises:
        OSError: the socket has joined already, or the interface has no multicast.
    """
    if is_ipv6(address):
        member = socket.inet_pton(socket.AF_INET6, GROUP6) + struct.pack("@I", interface_with(address)[1])
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
    else:
        member = socket.inet_aton(GROUP) + socket.inet_aton(address)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)


def interface_with(address: str) -> tuple[str, int]:
    """Name and index of the interface with this address.

    Raises:
        OSError: none has it, or that is not known here.
    """
    if not is_ipv6(address):
        return interface_of(address)
    wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
    for row in map(str.split, Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()):
        if row[0] == wanted:
            return row[5], int(row[1], 16)
    raise OSError(f"no interface has the address {address}")


def name_with(address: str) -> str:
    """The name of the interface with this address; "": not known here."""
    with contextlib.suppress(OSError):
        return interface_with(address)[0]
    return ""


def mtu_of(address: str) -> int:
    """The MTU of the interface with this address; Ethernet's if that is not known."""
    with contextlib.suppress(OSError, ValueError):
        return int((Path("/sys/class/net") / interface_with(address)[0] / "mtu").read_text(encoding="ascii"))
    return ETHERNET_MTU


def address_towards(host: str, port: int) -> str:
    """The address of this machine from which datagrams to a host go.

    Raises:
        OSError: there is no route, or no such host.
    """
    with socket.socket(socket.AF_INET6 if is_ipv6(host) else socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((plain(host), port))
        return str(asked.getsockname()[0])


def readable(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Those of the sockets that have a datagram within a time. (``select`` takes no descriptor beyond 1,023.)"""
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds) if isinstance(key.fileobj, socket.socket)]
