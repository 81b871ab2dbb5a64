"""The other end of a path: ``seqcast doctor --listen``."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqcast.doctor.datagrams import (
    BYTES_MAX,
    MAPPED,
    SINGS_MAX,
    TRAIN,
    TRAIN_BYTES,
    UDP_SEGMENT,
    address_towards,
    group_of,
    is_ipv6,
    join,
    multicast_receiver,
    multicast_sender,
    name_with,
    pack,
    plain,
    readable,
    unicast_socket,
    unpack,
    whole_only,
)
from seqcast.system import drops

CLIENTS_MAX = 16
SLICE_S = 0.2
BATCH = 256
"""Datagrams that are taken at once."""


@dataclass
class _Client:
    """The datagrams of a client."""

    address: tuple[Any, ...]
    proof: str
    interface: str
    counts: dict[str, int] = field(default_factory=dict)


class Listener:
    """Answers doctors on other machines.

    Args:
        address: of this machine, "" for all.
        port: UDP port; multicasts come to the next one.

    Raises:
        OSError: a port is in use.
    """

    def __init__(self, address: str, port: int) -> None:
        self.port = port
        self._unicast = unicast_socket(address, port)
        self._unicast.setblocking(False)
        whole_only(self._unicast, ask_path=False)
        self._multicast: dict[bool, socket.socket] = {}  # by "is of IPv6"
        self._joined: set[str] = set()
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def close(self) -> None:
        """Closes the sockets."""
        self._unicast.close()
        for each in self._multicast.values():
            each.close()

    def run(self, seconds: float) -> None:
        """Answers for this long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for ready in readable([self._unicast, *self._multicast.values()], min(left, SLICE_S)):
                with contextlib.suppress(OSError):  # no more, or of an earlier answer: that port is closed now
                    for _ in range(BATCH):
                        datagram, source = ready.recvfrom(BYTES_MAX)
                        self._take(datagram, source, multicast=ready is not self._unicast)

    def _take(self, datagram: bytes, source: tuple[Any, ...], *, multicast: bool) -> None:
        fields = unpack(datagram)
        token, kind = fields.get("token", ""), str(fields.get("t"))
        if not token or len(token) > 64:
            return
        if kind == "hello" and not multicast:
            self._hello(datagram, token, source)
        elif (client := self._clients.get(token)) is not None:
            if multicast or source == client.address:
                self._count(client, "heard" if multicast else kind, fields, datagram)

    def _hello(self, datagram: bytes, token: str, source: tuple[Any, ...]) -> None:
        client = self._clients.get(token)
        if client is None:
            client = self._clients[token] = _Client(source, secrets.token_hex(8), interface_to(source))
            while len(self._clients) > CLIENTS_MAX:
                self._clients.popitem(last=False)
        self._listen_towards(source)
        seen = plain(str(source[0])), source[1]  # others would see a member there, too
        answer = pack(t="hi", token=token, proof=client.proof, host=socket.gethostname()[:64], seen=seen)
        if len(answer) <= len(datagram):
            self._unicast.sendto(answer, source)

    def _listen_towards(self, source: tuple[Any, ...]) -> None:
        here = address_towards(*source[:2])
        if here not in self._joined and len(self._joined) < CLIENTS_MAX:
            self._joined.add(here)
            with contextlib.suppress(OSError):  # no multicast on that interface
                if (of := is_ipv6(here)) in self._multicast:
                    join(self._multicast[of], here)
                else:
                    self._multicast[of] = multicast_receiver(here, self.port)
                    self._multicast[of].setblocking(False)

    def _count(self, client: _Client, kind: str, fields: dict[str, Any], datagram: bytes) -> None:
        if kind in ("heard", "ping", "size", "burst"):
            client.counts[kind] = client.counts.get(kind, 0) + 1
        if kind in ("ping", "size"):
            self._unicast.sendto(datagram, client.address)
        elif kind == "ask":
            places = drops(client.interface)
            lost = {"drops": socket_drops(self._unicast), "softnet": places["softnet"], "nic": places["nic"]}
            answer = pack(t="told", token=fields["token"], i=fields.get("i"), counts=client.counts | lost)
            if len(answer) <= len(datagram):
                self._unicast.sendto(answer, client.address)
        elif kind == "train" and fields.get("proof") == client.proof:
            self._train(client, str(fields["token"]), fields.get("each"))
        elif kind == "reach" and fields.get("proof") == client.proof:
            self._reach(fields)
        elif kind == "sing" and fields.get("proof") == client.proof:
            self._sing(client, str(fields["token"]), fields.get("n"))

    def _train(self, client: _Client, token: str, each: object) -> None:
        """A burst for a client that has shown its address, as members send theirs: in one call, if the kernel can."""
        size = min(each, TRAIN_BYTES) if isinstance(each, int) else 0
        datagram = pack(size, t="train", token=token)
        try:
            segment = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", len(datagram)))]
            self._unicast.sendmsg([datagram * TRAIN], segment, 0, client.address)
        except (AttributeError, OSError):  # AttributeError: on Windows
            for _ in range(TRAIN):
                self._unicast.sendto(datagram, client.address)

    def _reach(self, fields: dict[str, Any]) -> None:
        """To the address at which the client would be told to others."""
        with contextlib.suppress(ValueError):
            host = ipaddress.ip_address(str(fields.get("host")))
            if not host.is_multicast and self._unicast.family == socket.AF_INET6 and host.version == 4:
                host = ipaddress.ip_address(f"{MAPPED}{host}")
            port = fields.get("port")
            if isinstance(port, int) and 0 < port < 65536 and not host.is_multicast:
                self._unicast.sendto(pack(t="reached", token=fields["token"]), (str(host), port))

    def _sing(self, client: _Client, token: str, n: object) -> None:
        """Multicasts for a client that has shown its address."""
        here = address_towards(*client.address[:2])
        with contextlib.suppress(OSError), multicast_sender(here) as sender:
            for i in range(min(n, SINGS_MAX) if isinstance(n, int) else 0):
                sender.sendto(pack(t="song", token=token, i=i), (group_of(here), self.port + 1))
                time.sleep(0.002)


def interface_to(source: tuple[Any, ...]) -> str:
    """The interface by which datagrams to an address go; "" if that is not known here."""
    with contextlib.suppress(OSError):
        return name_with(address_towards(*source[:2]))
    return ""


def socket_drops(of: socket.socket) -> int:
    """Datagrams that the kernel dropped as the socket's buffer was full; 0 if that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = os.fstat(of.fileno()).st_ino
        table = "udp6" if of.family == socket.AF_INET6 else "udp"
        for line in Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            row = line.split()
            if int(row[9]) == inode:
                return int(row[12])
    return 0
