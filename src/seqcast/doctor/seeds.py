"""Looks at this machine, and at the hosts by which a member finds others: where they lead, and whether datagrams get
there."""

from __future__ import annotations

import errno
import ipaddress
import os
import selectors
import socket
import sys
import time
from collections.abc import Generator, Iterator, Sequence

import seqcast.codes as codes
from seqcast.commandline import count
from seqcast.config import Config
from seqcast.doctor import local
from seqcast.doctor.lines import NOTE, OK, WARN, Line
from seqcast.net.discovery import Discovery

IP_RECVERR, IPV6_RECVERR = 11, 25  # of Linux, ip(7), ipv6(7): also tells that there is no such machine on the network
QUESTION = b"?"  # no member's datagram is as short
ANSWER_S, GONE_S = 0.3, 3.5
"""How long a closed port may take to say so, and a kernel to give up the search for a machine on its network."""
NAMED_MAX = 8
TRIED_MAX = 40
"""Hosts that are tried: each takes a socket for each port."""
CLOSED = errno.ECONNREFUSED


def look_around(config: Config) -> Generator[Line, None, tuple[bytes, bytes]]:
    """The lines about this machine, and about the seeds if the member that would run here has any; returns the same as
    ``local.look``."""
    if config.transport != "unicast" and not config.seeds:
        return (yield from local.look(config))
    discovery = Discovery(config, "doctor", lambda _: None)
    discovery.look()
    found = yield from local.look(config, discovery=discovery)
    yield from look(discovery)
    return found


def look(discovery: Discovery) -> Iterator[Line]:
    """The lines about the seeds, which were looked up."""
    if not discovery.seeds:
        fact = "none: this member is found only by those that have it as a seed, or by others on this machine"
        yield Line(NOTE, "seeds", f"{fact}, if seeds= of theirs lead here")
        return
    for name, why in list(discovery.failed.items())[:NAMED_MAX]:
        yield Line(WARN, "seeds", f"{name} cannot be resolved ({why[1]})", codes.NOBODY_HEARD)
    yield from _reached(discovery.places[:TRIED_MAX])
    if len(discovery.places) > TRIED_MAX:
        yield Line(NOTE, "seeds", f"{count(len(discovery.places) - TRIED_MAX, 'more host')}, not tried")


def _reached(places: Sequence[tuple[str, frozenset[bytes]]]) -> Iterator[Line]:
    """The lines about addresses: by the errors that come back, those without a way to them, those whose ports are all
    closed, and the others."""
    errors = _errors([address for _, each in places for address in each])
    lost: dict[str, list[str]] = {}
    closed: list[str] = []
    taken: list[str] = []
    for name, each in places:
        said = [errors.get(address, 0) for address in each]
        away = next((error for error in said if error not in (0, CLOSED)), 0)
        if away:
            lost.setdefault(os.strerror(away), []).append(name)
        else:
            (closed if all(said) else taken).append(name)
    if taken:
        vanish = "a member is there, or datagrams vanish on the way (`seqcast doctor --with` tells)"
        yield Line(OK, "seeds", f"{_named(taken)}: datagrams are not refused, so {vanish}")
    if closed:
        none = "the machine answers: no member runs there now, or a firewall refuses"
        yield Line(NOTE, "seeds", f"{_named(closed)}: {none}")
    for why, names in lost.items():
        yield Line(WARN, "seeds", f"{_named(names)} cannot be reached: {why}", codes.NO_ROUTE)


def _named(names: Sequence[str]) -> str:
    more = f" and {count(len(names) - NAMED_MAX, 'other')}" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _errors(addresses: Sequence[bytes]) -> dict[bytes, int]:
    """By address: the error with which a datagram comes back."""
    found: dict[bytes, int] = {}
    waiting: dict[socket.socket, bytes] = {}
    for address in addresses:
        asked = socket.socket(socket.AF_INET if address[0] == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
        try:
            asked.setblocking(False)
            if sys.platform.startswith("linux"):
                v4 = address[0] == 4
                level, option = (socket.IPPROTO_IP, IP_RECVERR) if v4 else (socket.IPPROTO_IPV6, IPV6_RECVERR)
                asked.setsockopt(level, option, 1)
            asked.connect((str(ipaddress.ip_address(address[3:])), int.from_bytes(address[1:3], "big")))
            asked.send(QUESTION)
        except OSError as error:
            found[address] = error.errno or CLOSED
            asked.close()
        else:
            waiting[asked] = address
    _await(waiting, found)
    for asked in waiting:
        asked.close()
    return found


def _await(waiting: dict[socket.socket, bytes], found: dict[bytes, int]) -> None:
    """Takes the errors that come. Of a machine with a closed port none comes late."""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for asked in waiting:
            selector.register(asked, selectors.EVENT_READ)
        while selector.get_map():
            answered = {address[3:] for address in found}
            silent = any(address[3:] not in answered for address in waiting.values())
            left = began + (GONE_S if silent else ANSWER_S) - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(min(left, ANSWER_S)):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                try:
                    ready.recv(1)  # from somebody else than a member
                except OSError as error:
                    found[waiting[ready]] = error.errno or CLOSED
                selector.unregister(ready)
