"""Measures the way to another machine, on which ``seqcast doctor --listen`` runs."""

from __future__ import annotations

import errno
import secrets
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any

import seqcast.codes as codes
from seqcast.doctor.datagrams import (
    BYTES_MAX,
    HELLO_BYTES,
    SINGS_MAX,
    address_towards,
    group_of,
    is_ipv6,
    mtu_of,
    multicast_receiver,
    multicast_sender,
    pack,
    readable,
    unicast_socket,
    unpack,
    whole_only,
)
from seqcast.doctor.lines import FAIL, NOTE, OK, WARN, Line

ANSWER_S, TRIES = 0.5, 6
PINGS, PING_S = 500, 0.001
SONGS, SONG_S = SINGS_MAX, 0.005
BURST, BURST_S, BURST_EACH = 2000, 1.0, 20
SIZES = (1472, 1444, 1422, 1372, 1252, 996, 548)
HEADERS, HEADERS6 = 28, 48
LOST_MAX = 2
"""Pings that may be lost without a finding."""
LONG_EVERY_S, SILENT_S = 2.0, 12.0


class Path:
    """The way to a listener.

    Raises:
        OSError: there is no route to it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = str(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][4][0]), port
        self.here = address_towards(self.host, port)
        self.mtu = mtu_of(self.here)
        self.group = group_of(self.here)
        self._headers = HEADERS6 if is_ipv6(self.here) else HEADERS
        self._token = secrets.token_hex(8)
        self._unicast = unicast_socket(self.here, 0)
        whole_only(self._unicast, ask_path=False)
        self._receiver = multicast_receiver(self.here, port)
        self._sender = multicast_sender(self.here)
        self._proof = ""

    def close(self) -> None:
        """Closes the sockets."""
        for each in (self._unicast, self._receiver, self._sender):
            each.close()

    def look(self, long_s: float) -> Iterator[Line]:
        """The lines about the path; ``long_s``: repeat multicasts for this many seconds."""
        if not self._hello():
            fact = f"{self.host} does not answer on UDP port {self.port}"
            yield Line(FAIL, "unicast", fact, codes.NO_ANSWER)
            return
        pings = self._pings()
        yield pings
        passes = yield from self._multicasts()
        best, size = self._size()
        yield size
        if pings.code is None:
            yield self._burst(best)
        if passes:
            yield (
                self._long(long_s)
                if long_s
                else Line(NOTE, "igmp", "whether multicast goes on beyond 260 s was not tried (--long)")
            )

    # ---- questions and answers

    def _send(self, datagram: bytes) -> bool:
        """False: larger than the path is known to carry."""
        try:
            self._unicast.sendto(datagram, (self.host, self.port))
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                return False
            if error.errno not in (errno.EPERM, errno.ECONNREFUSED, errno.ENOBUFS):
                raise
        return True

    def _received(self, of: socket.socket, seconds: float) -> Iterator[dict[str, Any]]:
        """The fields of our datagrams that come within a time; more may have come already."""
        end = time.monotonic() + seconds
        while readable([of], max(0.0, end - time.monotonic())):
            try:
                datagram = of.recv(BYTES_MAX)
            except OSError:  # a closed port
                continue
            fields = unpack(datagram)
            if fields.get("token") == self._token:
                yield {**fields, "size": len(datagram)}

    def _asked(self, answer: str, **question: Any) -> dict[str, Any]:
        """The answer to a question, which is repeated; {}: none came."""
        for i in range(TRIES):
            self._send(pack(HELLO_BYTES, token=self._token, i=i, **question))
            for fields in self._received(self._unicast, ANSWER_S):
                if fields.get("t") == answer:
                    return fields
        return {}

    def _hello(self) -> bool:
        said = self._asked("hi", t="hello")
        self._proof = str(said.get("proof", ""))
        return bool(said)

    def _count(self, kind: str) -> int:
        """How many of a kind the other end has."""
        counts = self._asked("told", t="ask").get("counts")
        value = counts.get(kind, 0) if isinstance(counts, dict) else 0
        return value if isinstance(value, int) else 0

    # ---- looks

    def _pings(self) -> Line:
        times: list[float] = []
        sent: dict[int, float] = {}

        def take(seconds: float) -> None:
            for fields in self._received(self._unicast, seconds):
                if fields.get("t") == "ping" and (then := sent.pop(fields["i"], None)) is not None:
                    times.append(time.monotonic() - then)

        for i in range(PINGS):
            sent[i] = time.monotonic()
            self._send(pack(64, t="ping", token=self._token, i=i))
            take(PING_S)
        take(ANSWER_S)
        there = self._count("ping")
        lost = f"{PINGS - there} of {PINGS} lost there, {there - len(times)} on the way back"
        if PINGS - len(times) > LOST_MAX:
            return Line(WARN, "unicast", lost, codes.UNICAST_LOSS)
        times.sort()
        marks = "/".join(f"{1000 * times[at]:.2f}" for at in (0, len(times) // 2, len(times) * 99 // 100))
        return Line(OK, "unicast", f"both ways, {lost}; round trip {marks} ms (min/p50/p99)")

    def _multicasts(self) -> Generator[Line, None, bool]:
        """Returns whether they pass both ways."""
        before = self._count("heard")
        self._sing(SONGS)
        there = self._count("heard") - before
        here = self._songs(SONGS)
        said = f"{self.group}: {there} of {SONGS} arrive there, {here} of {SONGS} here"
        if not there and not here:
            yield Line(FAIL, "multicast", said, codes.NO_MULTICAST)
        elif not there:
            yield Line(FAIL, "multicast", f"{said}: {self.host} does not hear us", codes.MULTICAST_NOT_THERE)
        elif not here:
            yield Line(FAIL, "multicast", f"{said}: we do not hear {self.host}", codes.MULTICAST_NOT_HERE)
        else:
            yield Line(OK, "multicast", said)
        return bool(there and here)

    def _sing(self, n: int) -> None:
        for i in range(n):
            try:
                self._sender.sendto(pack(t="song", token=self._token, i=i), (self.group, self.port + 1))
            except OSError:  # a firewall here: not heard then
                pass
            time.sleep(SONG_S)

    def _songs(self, n: int) -> int:
        """How many of the other end's multicasts come."""
        self._send(pack(HELLO_BYTES, t="sing", token=self._token, proof=self._proof, n=n))
        return len({fields.get("i") for fields in self._received(self._receiver, ANSWER_S)})

    def _size(self) -> tuple[int, Line]:
        """The largest UDP payload that passes both ways, and the line about it."""
        most = min(self.mtu - self._headers, BYTES_MAX)
        sizes = [most, *(size for size in SIZES if size < most)]
        for size in sizes:
            for i in range(3):
                self._send(pack(size, t="size", token=self._token, i=i))
        passed = {fields["size"] for fields in self._received(self._unicast, ANSWER_S) if fields.get("t") == "size"}
        best = max(passed, default=0)
        if best == most:
            return best, Line(OK, "path", f"{best} bytes of payload pass, as the MTU {self.mtu} promises")
        fails = min(size for size in sizes if size > best)
        why = "as ICMP says" if self._icmp(most) else "and no ICMP says so"
        fact = f"{best} bytes pass, {fails} do not, {why}"
        return best, Line(
            WARN, "path", fact, codes.PATH_SMALL, f"packet_bytes={best & ~7} on all members" if best else ""
        )

    def _icmp(self, size: int) -> bool:
        """Does the kernel know that this size does not pass?"""
        whole_only(self._unicast, ask_path=True)
        try:
            return not all(self._send(pack(size, t="size", token=self._token, i=9)) for _ in range(3))
        finally:
            whole_only(self._unicast, ask_path=False)

    def _burst(self, size: int) -> Line:
        before, drops = self._count("burst"), self._count("drops")
        datagram, began = pack(size or 512, t="burst", token=self._token, i=0), time.monotonic()
        for i in range(BURST):
            self._send(datagram)
            if i % BURST_EACH == 0:
                time.sleep(max(0.0, began + BURST_S * i / BURST - time.monotonic()))
        took = time.monotonic() - began
        lost, at_socket = BURST - (self._count("burst") - before), self._count("drops") - drops
        fact = (
            f"{BURST * len(datagram) * 8 / took / 1e6:.0f} Mb/s for {took:.1f} s: {lost} of {BURST:,} lost, "
            f"{at_socket} of them at the receiving socket"
        )
        if lost - at_socket > BURST // 1000:
            return Line(WARN, "burst", fact, codes.NETWORK_LOSS)
        return Line(OK, "burst", fact)

    def _long(self, seconds: float) -> Line:
        """Do multicasts still pass after minutes?"""
        began = heard_there = heard_here = time.monotonic()
        before = self._count("heard")
        while (now := time.monotonic()) < began + seconds:
            self._sing(3)
            if (count := self._count("heard")) > before:
                before, heard_there = count, now
            if self._songs(3):
                heard_here = now
            if now - min(heard_there, heard_here) > min(SILENT_S, seconds / 2):
                whom = "there" if heard_there < heard_here else "here"
                fact = (
                    f"multicasts no longer arrive {whom}, {min(heard_there, heard_here) - began:.0f} s after the first"
                )
                return Line(FAIL, "igmp", fact, codes.MULTICAST_STOPS)
            time.sleep(max(0.0, min(LONG_EVERY_S, seconds / 10) - (time.monotonic() - now)))
        return Line(OK, "igmp", f"multicasts have passed both ways for {seconds:.0f} s")
