"""The datagrams of the doctor, and the sockets at both ends of a path.

A datagram is one line of JSON with padding behind it: ``t`` is its kind, ``token`` the client's, ``i`` a number. The
listener answers with no more bytes than came, and multicasts only for a client that has shown that answers reach its
address (``proof``).
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
from seqcast.net.runner import group_address

PORT = 47320
"""UDP port of the listener; multicasts use the next one."""
GROUP = group_address("seqcast doctor", 4)
HELLO_BYTES = 300
"""As large as the answer may be."""
SINGS_MAX = 20
IP_MTU_DISCOVER, PMTUDISC_DO, PMTUDISC_PROBE = 10, 2, 3  # of Linux, ip(7)
BYTES_MAX = 65_507


def pack(size: int = 0, **fields: Any) -> bytes:
    """A datagram of ``size`` bytes, or of more if its fields need them."""
    line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    return line + bytes(max(0, size - len(line)))


def unpack(datagram: bytes) -> dict[str, Any]:
    """Its fields; {} if it is none of ours."""
    try:
        fields = json.loads(datagram.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) and isinstance(fields.get("token"), str) else {}


def unicast_socket(address: str, port: int) -> socket.socket:
    """A socket that sends to other machines whole datagrams only."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    made.bind((address, port))
    return made


def whole_only(sender: socket.socket, *, ask_path: bool) -> None:
    """Datagrams are not cut into fragments, which would hide what passes.

    Args:
        ask_path: obey the ICMP messages about the path; otherwise try all the same.
    """
    if sys.platform.startswith("linux"):
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_DO if ask_path else PMTUDISC_PROBE)


def multicast_sender(address: str) -> socket.socket:
    """A socket that multicasts by the interface with this address."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack("b", 1))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return made


def multicast_receiver(address: str, port: int) -> socket.socket:
    """A socket that receives the group's datagrams by the interface with this address."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((GROUP, port + 1))
    join(made, address)
    return made


def join(receiver: socket.socket, address: str) -> None:
    """
    Raises:
        OSError: it has joined already, or the interface has no multicast.
    """
    receiver.setsockopt(
        socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(address)
    )


def mtu_of(address: str) -> int:
    """The MTU of the interface with this address; Ethernet's if that is not known."""
    with contextlib.suppress(OSError, ValueError):
        return int((Path("/sys/class/net") / interface_of(address)[0] / "mtu").read_text(encoding="ascii"))
    return ETHERNET_MTU


def address_towards(host: str, port: int) -> str:
    """The address of this machine from which datagrams to a host go.

    Raises:
        OSError: there is no route, or no such host.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((host, port))
        return str(asked.getsockname()[0])


def readable(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Those of the sockets that have a datagram within a time. (``select`` takes no descriptor beyond 1,023.)"""
    with selectors.DefaultSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds) if isinstance(key.fileobj, socket.socket)]
