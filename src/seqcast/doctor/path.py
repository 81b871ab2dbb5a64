"""Measures the way to another machine, on which ``seqcast doctor --listen`` runs."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import seqcast.codes as codes
from seqcast.doctor.datagrams import (
    BYTES_MAX,
    HELLO_BYTES,
    SINGS_MAX,
    TRAIN_BYTES,
    UDP_GRO,
    address_towards,
    group_of,
    is_ipv6,
    is_loopback,
    mtu_of,
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
from seqcast.doctor.lines import FAIL, NOTE, OK, WARN, Line
from seqcast.system import drops

ANSWER_S, TRIES = 0.5, 6
PINGS, PING_S = 500, 0.001
SONGS, SONG_S = SINGS_MAX, 0.005
TRAINS, TRAIN_S = 3, 0.2
BURST, BURST_BYTES, BURST_S = 2000, 1472, 1.0
"""Datagrams of this size, and seconds: smaller ones are more, and none is larger, so the rate is always the same."""
RATES_MBIT, RATE_S = (50, 100, 200, 400, 800, 1600, 3200), 0.2
FLOOD_NAP_S, FLOOD_LATE_S = 0.0005, 0.004
"""Between two runs of datagrams of a burst, and the most time that a run makes up for."""
LOST_OF, SLOWED = 0.001, 0.8
"""The part of a burst that may be lost, and of a rate that must be reached to try the next one."""
SIZES = (8972, 8922, 8872, 8472, 7972, 5972, 3972, 1972, 1472, 1444, 1422, 1372, 1252, 996, 548)
"""Bytes of payload that are tried below the MTU: of jumbo frames, of Ethernet, and of both behind tunnels."""
BLIND_BYTES = 512
HEADERS, HEADERS6 = 28, 48
LOST_MAX = 2
"""Pings that may be lost without a finding."""
LONG_EVERY_S, SILENT_S = 2.0, 12.0


@dataclass(frozen=True, slots=True)
class _Flood:
    """A burst: datagrams sent, Mb/s and seconds, and how many of them were lost at each place."""

    sent: int
    mbit: float
    took_s: float
    places: dict[str, int]

    @property
    def lost(self) -> int:
        return sum(self.places.values())

    @property
    def said(self) -> str:
        where = ", ".join(f"{n:,} {place}" for place, n in self.places.items() if n)
        return f"{self.lost:,} of {self.sent:,} lost" + (f": {where}" if where else "")


def places_of(lost: int, queue: int, *, drops: int, softnet: int, nic: int) -> dict[str, int]:
    """Shares out lost datagrams among the places whose counters grew; those that none counts, the network lost. The
    counters of a host include the datagrams of other programs, so the more exact ones go first."""
    found, rest = {}, max(0, lost)
    for place, counted in (
        ("at the receiving socket", drops),
        ("in its kernel before that", softnet),
        ("at its card", nic),
        ("in the queue here", queue),
        ("in the network", rest),
    ):
        found[place] = min(rest, max(0, counted))
        rest -= found[place]
    return found


class OwnAddress(NamedTuple):
    """Where a member would be: its address and port here, and those that others are told."""

    address: str
    port: int
    told: tuple[str, int]
    keyed: bool

    @property
    def apart(self) -> bool:
        """Are others told something else?"""
        return self.told != (self.address, self.port)

    def seen(self, host: str) -> OwnAddress:
        """As others have it who see this machine at another host, if it states nothing else."""
        return self if self.apart else self._replace(told=(host, self.port))


class Path:
    """The way to a listener.

    Args:
        host: its name or address.
        port: of its unicasts.
        member: the address of a member here, which is measured if routes lead to another interface; "": not known.

    Raises:
        OSError: there is no route to it.
    """

    def __init__(self, host: str, port: int, member: str = "") -> None:
        self.host, self.port = str(socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][4][0]), port
        self.here = address_towards(self.host, port)
        self.interface = name_with(self.here)
        self._apart = ""  # from the member's interface, if that is another one: in words
        self._stuck = False  # is that one the loopback?
        if member and (name := name_with(member)) and self.interface not in ("", name):
            self._apart = f"{self.host} is reached by {self.interface} {self.here}, a member here is on {name} {member}"
            self._stuck = is_loopback(member)
            if is_ipv6(member) == is_ipv6(self.here) and not is_loopback(self.here) and not self._stuck:
                self.here = member
        self.mtu = mtu_of(self.here)
        self.group = group_of(self.here)
        self._headers = HEADERS6 if is_ipv6(self.here) else HEADERS
        self._token = secrets.token_hex(8)
        self._number = 0  # of questions
        self._unicast = unicast_socket(self.here, 0)
        whole_only(self._unicast, ask_path=False)
        self._receiver = multicast_receiver(self.here, port)
        self._sender = multicast_sender(self.here)
        self._proof = ""
        self._seen = ""  # the host at which the other end sees us; "": not told, and
        self._same_port = True  # is that our port?

    def close(self) -> None:
        """Closes the sockets."""
        for each in (self._unicast, self._receiver, self._sender):
            each.close()

    def look(self, long_s: float, *, multicast: bool = True, member: OwnAddress | None = None) -> Iterator[Line]:
        """The lines about the path.

        Args:
            long_s: repeat multicasts for this many seconds.
            multicast: the group needs it, or may.
            member: the port of the member that would run here.
        """
        if self._stuck:
            yield Line(FAIL, "route", self._apart, codes.OTHER_INTERFACE)
            return
        if self._apart:  # unicasts may be routed on
            yield Line(WARN if multicast else NOTE, "route", self._apart, codes.OTHER_INTERFACE if multicast else None)
        if not self._hello():
            fact = f"{self.host} does not answer on UDP port {self.port}"
            yield Line(FAIL, "unicast", fact, codes.NO_ANSWER)
            return
        pings = self._pings()
        yield pings
        if member is not None:
            yield from self._translated(member)
            yield self._reach(member.seen(self._seen) if self._seen and self._same_port else member)
        passes = yield from self._multicasts(multicast)
        best, size = self._size()
        yield size
        if pings.code is None:
            yield from self._trains(best or BLIND_BYTES)
            yield from self._rates(best or BLIND_BYTES)
        if passes and multicast:
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
        first = self._number + 1
        for _ in range(TRIES):
            self._number += 1
            self._send(pack(HELLO_BYTES, token=self._token, i=self._number, **question))
            for fields in self._received(self._unicast, ANSWER_S):
                if fields.get("t") == answer and fields.get("i", first) in range(first, self._number + 1):
                    return fields
        return {}

    def _hello(self) -> bool:
        said = self._asked("hi", t="hello")
        self._proof = str(said.get("proof", ""))
        match said.get("seen"):
            case [str(host), int(port)]:
                self._seen, self._same_port = host.partition("%")[0], port == self._unicast.getsockname()[1]
        return bool(said)

    def _counts(self) -> dict[str, int]:
        """The counters of the other end: how many datagrams of each kind have come, and its drops by place."""
        counts = self._asked("told", t="ask").get("counts")
        counts = counts if isinstance(counts, dict) else {}
        return {name: value for name, value in counts.items() if isinstance(value, int)}

    def _count(self, kind: str) -> int:
        """How many of a kind the other end has."""
        return self._counts().get(kind, 0)

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
            remedy = codes.filled(codes.UNICAST_LOSS, NAME=self.interface)
            return Line(WARN, "unicast", lost, codes.UNICAST_LOSS, remedy)
        times.sort()
        marks = "/".join(f"{1000 * times[at]:.2f}" for at in (0, len(times) // 2, len(times) * 99 // 100))
        return Line(OK, "unicast", f"both ways, {lost}; round trip {marks} ms (min/p50/p99)")

    def _translated(self, member: OwnAddress) -> Iterator[Line]:
        """The line about the address at which the other end sees this machine, if that is another one."""
        here = self._seen == plain(self.here).partition("%")[0] and self._same_port
        if not self._seen or (here and not member.apart) or (member.keyed and member.apart):
            return
        said = f"{self.host} sees this machine at {self._seen}"
        if self._same_port and member.seen(self._seen).told == (self._seen, member.port):
            yield Line(OK, "advertise", f"{said}, where a member here would be")
        else:
            ports = "" if self._same_port else ", and its ports as others"
            yield Line(WARN, "advertise", f"{said}{ports}", codes.TRANSLATED)

    def _reach(self, member: OwnAddress) -> Line:
        """Does a datagram to the address of the member that would run here arrive at its port?"""
        at = f"UDP port {member.port} of {member.address}" + (f", as {member.told[0]}:{member.told[1]}" * member.apart)
        try:
            own = unicast_socket(member.address, member.port)
        except OSError as error:
            return Line(NOTE, "port", f"{at}: not tried ({error.strerror})")
        host, port = member.told
        question = pack(HELLO_BYTES, t="reach", token=self._token, proof=self._proof, host=host, port=port)
        with own:
            for _ in range(TRIES):
                self._send(question)
                if any(fields.get("t") == "reached" for fields in self._received(own, ANSWER_S)):
                    return Line(OK, "port", f"{self.host} reaches {at}")
        return Line(FAIL, "port", f"{self.host} does not reach {at}", codes.SILENT_ADDRESS)

    def _multicasts(self, needed: bool) -> Generator[Line, None, bool]:
        """Returns whether they pass both ways."""
        before = self._count("heard")
        self._sing(SONGS)
        there = self._count("heard") - before
        here = self._songs(SONGS)
        said = f"{self.group}: {there} of {SONGS} arrive there, {here} of {SONGS} here"
        if not needed:
            why = 'transport="auto" would send each message once for all' if there and here else "none is needed"
            yield Line(NOTE, "multicast", f"{said}: {why}")
        elif not there and not here:
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

    def _trains(self, size: int) -> Iterator[Line]:
        """Do packets that the other end sends in one call arrive together? No line if none arrives."""
        if not sys.platform.startswith("linux"):
            return
        each, packets, receives = min(size, TRAIN_BYTES), 0, 0
        with contextlib.suppress(OSError):  # of an old kernel, which the look at this machine names
            self._unicast.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        for _ in range(TRAINS):
            self._send(pack(HELLO_BYTES, t="train", token=self._token, proof=self._proof, each=each))
            for fields in self._received(self._unicast, TRAIN_S):
                if fields.get("t") == "train":
                    packets, receives = packets + fields["size"] // each, receives + 1
        with contextlib.suppress(OSError):
            self._unicast.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 0)
        fact = f"{packets} packets, sent in {TRAINS} calls there, arrive in {receives} receives"
        if packets > receives:
            yield Line(OK, "gro", fact)
        elif packets:  # a slow link has none to join
            yield Line(NOTE, "gro", fact, codes.NO_GRO, codes.filled(codes.NO_GRO, NAME=self.interface))

    def _flood(self, size: int, datagrams: int, seconds: float) -> _Flood:
        """Sends this many within a time, evenly, and asks which came. A thread that did not run for a while makes up
        for little of it: all that is late, sent at once, would be lost on a path that carries the rate."""
        before, here = self._counts(), drops("")["qdisc"]
        datagram, began = pack(size, t="burst", token=self._token, i=0), time.monotonic()
        each = seconds / datagrams
        sent, last = 0, began - each
        while sent < datagrams:
            at = time.monotonic()
            last = max(last, at - FLOOD_LATE_S - each)
            due = min(datagrams - sent, int((at - last) / each))
            for _ in range(due):
                self._send(datagram)
            sent, last = sent + due, last + due * each
            time.sleep(FLOOD_NAP_S)
        took = max(seconds, time.monotonic() - began)
        now = self._counts()
        more = {name: now.get(name, 0) - before.get(name, 0) for name in ("burst", "drops", "softnet", "nic")}
        queued = drops("")["qdisc"] - here
        rate = sent * len(datagram) * 8 / took / 1e6
        return _Flood(sent, rate, took, places_of(sent - more.pop("burst"), queued, **more))

    def _rates(self, size: int) -> Iterator[Line]:
        """A burst of a second, whose loss is a finding, and then ever quicker ones until one is lost in part."""
        each = min(size, BURST_BYTES)
        first = self._flood(each, BURST * BURST_BYTES // each, BURST_S)
        fact = f"{first.mbit:.0f} Mb/s for {first.took_s:.1f} s: {first.said}"
        if first.lost - first.places["at the receiving socket"] > first.sent * LOST_OF:
            remedy = codes.filled(codes.NETWORK_LOSS, NAME=self.interface)
            yield Line(WARN, "burst", fact, codes.NETWORK_LOSS, remedy)
            return
        yield Line(OK, "burst", fact)
        lossy = first.lost > first.sent * LOST_OF
        reached, why = (0.0, f"at {first.mbit:.0f} Mb/s {first.said}") if lossy else (first.mbit, "")
        for mbit in RATES_MBIT:
            if why:
                break
            flood = self._flood(size, max(1, int(mbit * 1e6 * RATE_S / size / 8)), RATE_S)
            if flood.lost > flood.sent * LOST_OF:
                why = f"at {flood.mbit:,.0f} Mb/s {flood.said}"
            else:
                reached = max(reached, flood.mbit)
                why = "this command sends no more" if flood.mbit < mbit * SLOWED else ""
        why = why or f"more than {RATES_MBIT[-1]:,} Mb/s is not tried"
        yield Line(OK, "rate", f"at least {reached:,.0f} Mb/s; {why}")

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
