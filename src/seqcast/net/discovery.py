"""The seeds of a member: resolved on a thread of its own, again and again, as names may get other
addresses at any time, and may not exist yet when the first members start."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import seqcast.codes as codes
from seqcast.config import Config
from seqcast.config.check import other_version, split_seed, version_of
from seqcast.core.machines.book import BOOK_MAX
from seqcast.errors import ConfigError
from seqcast.net.interface import only_interface
from seqcast.net.seeds import Asked, hosts_of

FIRST_S = 2.0
"""How long a member waits for the first answer before opening its socket, whose interface the seeds decide."""
FAILURES_TOLD = 3
"""A seed that could not be resolved this many times in a row is warned of, once."""
NAMED_MAX = 8
"""Addresses and seeds that a board names."""
ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses that nobody has: by which interface would a datagram to the world leave?"""
MULTICAST = {4: "239.255.0.1", 6: "ff15::1"}
"""By which interface would a multicast leave? A network may have a route for these alone."""
LOOPBACK = {4: "127.0.0.1", 6: "::1"}

NOT_OF_THIS_VERSION = (getattr(socket, "EAI_NODATA", None), getattr(socket, "EAI_ADDRFAMILY", None))
"""Errors of a resolver that knows the name."""

T = TypeVar("T")
log = logging.getLogger("seqcast")


class Discovery:
    """Looks the seeds up.

    Args:
        config: its ``seeds``, ``discovery_refresh_s``, ``port``, ``port_range`` and ``ip_version``.
        name: of the member, for the log.
        tell: called by the thread with the addresses, as the engine has them, when they were found or have changed.
    """

    def __init__(self, config: Config, name: str, tell: Callable[[tuple[bytes, ...]], object]) -> None:
        self.config, self.name, self.tell = config, name, tell
        self.seeds: dict[str, Callable[[], list[str]]] = {}  # by name: gives its hosts
        seeds: Any = config.seeds
        if callable(seeds):
            self.seeds[f"the function {getattr(seeds, '__name__', seeds)}"] = Asked(seeds)
        elif seeds:
            self.seeds = {name: partial(hosts_of, name) for name in map(str.strip, seeds.split(","))}
        self.hosts: dict[str, list[str]] = {}  # by seed: its hosts at the last look
        self.found: dict[str, tuple[bytes, ...]] = {}  # by host: its last addresses
        self.failed: dict[str, tuple[int, str]] = {}  # by seed or host: the number of failures in a row, and why
        self.addresses: tuple[bytes, ...] = ()
        self.places: tuple[tuple[str, frozenset[bytes]], ...] = ()
        """By address of a host, in words: where a member may be there; replaced as a whole."""
        self._left_out = 0  # addresses for which a member has no room, as told last
        self._looked, self._stopped = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"seqcast-seeds-{name}", daemon=True)

    def start(self) -> None:
        """Begins, and waits a moment for the first answers."""
        self.thread.start()
        self._looked.wait(FIRST_S)

    def stop(self) -> None:
        """Ends the thread, which may be in the middle of a look; from now on nobody is told."""
        self._stopped.set()
        self.tell = bool  # the runner that was told refers to us: only the cyclic collector would free both

    def look(self) -> None:
        """Looks all seeds up once. A host that cannot be resolved now keeps its earlier address."""
        for seed, hosts in self.seeds.items():
            self._try(seed, self.hosts, hosts)
        wanted = dict.fromkeys(host for hosts in self.hosts.values() for host in hosts)
        for known in (self.found, self.failed):
            for host in known.keys() - wanted.keys() - self.seeds.keys():
                del known[host]
        for host in wanted:
            self._try(host, self.found, partial(_resolved, host, self.config))
        self.addresses = tuple(sorted({address for each in self.found.values() for address in each}))
        self._tell_left_out(max(0, len(self.addresses) - BOOK_MAX))
        places: dict[str, set[bytes]] = {}
        for host, found in self.found.items():
            port = split_seed(host)[1]
            for each in found:
                ip = str(ipaddress.ip_address(each[3:]))
                places.setdefault(_joined(ip, port), set()).add(each)
        self.places = tuple((name, frozenset(each)) for name, each in sorted(places.items()))

    def _try(self, seed: str, known: dict[str, T], look: Callable[[], T]) -> None:
        try:
            known[seed] = look()
        except OSError as error:
            self._note_failure(seed, error.strerror or str(error))
        else:
            self.failed.pop(seed, None)

    def _tell_left_out(self, n: int) -> None:
        if n > self._left_out:
            text = codes.NOBODY_HEARD(
                "%s: the seeds lead to %d addresses, more than the %d that are tried, those of the first ports first: "
                "%d are left out; give the ports (host:port), or a smaller port_range"
            )
            log.warning(text, self.name, n + BOOK_MAX, BOOK_MAX, n)
        self._left_out = n

    def host(self) -> str:
        """Our address on the way to the seeds, or the name of the interface: to the first one that is on another
        machine, if there is any. Seeds that have no address yet, or no way to them, are probably elsewhere, and once on
        loopback a member stays there."""
        version = self.config.ip_version
        away, here = list[str](), list[str]()
        for way in self._ways():
            (here if ipaddress.ip_address(way.partition("%")[0]).is_loopback else away).append(way)
        # The name of this machine itself may lead to loopback, as Debian's installer writes 127.0.1.1 into /etc/hosts.
        if not here or not self._is_whole():
            away += [ELSEWHERE[version], MULTICAST[version]]
        routed = next(filter(None, (_source(way, version) for way in away)), "")
        if not routed and not self._is_whole():  # without a default route, but seeds may yet lead to the own network
            routed = only_interface(version)
        return routed or next(filter(None, (_source(way, version) for way in here)), LOOPBACK[version])

    def _is_whole(self) -> bool:
        """Has each seed hosts, and each host an address?"""
        hosts = [self.hosts.get(seed) for seed in self.seeds]
        return all(each and all(host in self.found for host in each) for each in hosts)

    def _ways(self) -> Iterator[str]:
        """The addresses of the hosts, in the order of the seeds."""
        for host in dict.fromkeys(host for seed in self.seeds for host in self.hosts.get(seed, ())):
            zone = split_seed(host)[0].partition("%")[2]
            for ip in dict.fromkeys(ipaddress.ip_address(each[3:]) for each in self.found.get(host, ())):
                yield f"{ip}%{zone}" if zone and ip.is_link_local else str(ip)

    def said(self, answered: Iterable[bytes] = (), own: bytes = b"") -> str:
        """How the seeds fared, for an error or a warning.

        Args:
            answered: addresses from which somebody was heard.
            own: of this member.
        """
        if not self.seeds:
            return "there are no seeds: give seeds= with the hosts of other members"
        found, failed = dict(self.found), dict(self.failed)  # the thread that looks may change them meanwhile
        lost = [f"{seed} cannot be resolved ({why})" for seed, (_, why) in failed.items() if not self._known(seed)]
        heard = set(answered)
        silent = [host for host, known in found.items() if heard.isdisjoint(known)]
        some = [host for host in found if host not in silent]
        here = [host for host in silent if own in found[host]]
        silent = [host for host in silent if host not in here]
        said = [f"somebody answers at {', '.join(some)}"] if some else []
        said += [f"{', '.join(here)} is this member itself"] if here else []
        said += [f"nobody answers at {', '.join(silent)}"] if silent else []
        waits = [each for each in self.seeds if each not in self.hosts and each not in failed]
        said += [f"{', '.join(waits)} has not answered yet with hosts"] if waits else []
        return "; ".join([*said, *lost])

    def is_in_doubt(self, own: bytes, answered: Iterable[bytes]) -> bool:
        """Does a seed name nobody, or a host where somebody else than this member should be, and nobody was heard?"""
        here = {own, *answered}
        return bool(self.failed) or any(here.isdisjoint(known) for known in list(self.found.values()))

    def is_elsewhere(self) -> bool:
        """Are there seeds, and does none lead to this machine by loopback?"""
        return bool(self.seeds) and not any(ipaddress.ip_address(each[3:]).is_loopback for each in self.addresses)

    def fate(self, answered: Iterable[bytes]) -> dict[str, Any]:
        """The same for a board: how many addresses there are, how many are silent, the first ones of these, and seeds
        that cannot be resolved."""
        heard, places = set(answered), self.places
        silent = [name for name, each in places if heard.isdisjoint(each)]
        lost = [seed for seed in list(self.failed) if not self._known(seed)][:NAMED_MAX]
        return {"addresses": len(places), "silent": len(silent), "first": silent[:NAMED_MAX], "unresolved": lost}

    def _known(self, seed: str) -> bool:
        return seed in self.found or (seed in self.hosts and seed not in self.hosts[seed])

    def _note_failure(self, seed: str, why: str) -> None:
        times = self.failed.get(seed, (0, ""))[0] + 1
        self.failed[seed] = times, why
        if times == FAILURES_TOLD:
            kept = "its earlier addresses are tried" if self._known(seed) else "left out until then"
            text = codes.NOBODY_HEARD("%s: the seed %s cannot be resolved (%s): %s")
            log.warning(text, self.name, seed, why, kept)

    def _run(self) -> None:
        while not self._stopped.is_set():
            before = self.addresses
            self.look()
            if self.addresses != before:
                self.tell(self.addresses)
            self._looked.set()
            self._stopped.wait(self.config.discovery_refresh_s)


def advertised(config: Config, bound: bytes) -> bytes:
    """The address at which others reach a member whose socket has the address ``bound``.

    Raises:
        ConfigError: ``advertise`` cannot be resolved, or is not the address of a host.
    """
    if not config.advertise:
        return bound
    host, port = split_seed(config.advertise, "advertise")
    try:
        address = _located(host, [port or int.from_bytes(bound[1:3], "big")], config)[0]
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"advertise={config.advertise!r} cannot be resolved ({why}): give an address") from None
    found = ipaddress.ip_address(address[3:])
    if found.is_unspecified or found.is_multicast:
        raise ConfigError(f"advertise={config.advertise!r} is {found}, which is not the address of a host: give one")
    return address


def _resolved(seed: str, config: Config) -> tuple[bytes, ...]:
    """All addresses of a seed, as the engine has them.

    Raises:
        OSError: cannot be resolved.
    """
    host, port = split_seed(seed)
    ports = [port] if port else range(config.port, min(config.port + config.port_range, 65535) + 1)
    return _located(host, ports, config)


def _located(host: str, ports: Iterable[int], config: Config) -> tuple[bytes, ...]:
    """All addresses of a host, at these ports.

    Raises:
        OSError: it has none, or none of our version of IP.
    """
    try:
        found = _asked(host, config.ip_version)
    except socket.gaierror as error:
        other = 10 - config.ip_version
        if version_of(host) == other or (error.errno in NOT_OF_THIS_VERSION and _asked(host, other)):
            raise OSError(other_version(config.ip_version)) from None
        raise
    packed = [ipaddress.ip_address(str(each).partition("%")[0]).packed for each in found]
    version = bytes([config.ip_version])
    return tuple(sorted({version + each.to_bytes(2, "big") + address for address in packed for each in ports}))


def _asked(host: str, version: int) -> set[Any]:
    """The addresses of a host of a version of IP, as the resolver has them."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return {info[4][0] for info in socket.getaddrinfo(host, None, family, socket.SOCK_DGRAM)}


def _joined(host: str, port: int) -> str:
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if port else host


def _source(host: str, version: int) -> str:
    """Our address on the way to a host; "": there is no way, or only one on loopback by a route that gives no address,
    as for multicasts on a machine without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((host, 9))
            source, zone = str(asked.getsockname()[0]).partition("%")[0], host.partition("%")[2]
            if ipaddress.ip_address(source).is_unspecified:
                return ""
            return f"{source}%{zone}" if zone else source
        except OSError:
            return ""
