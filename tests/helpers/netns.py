"""Network namespaces for tests: ``from netns import lonely, network, segmented`` gives the fixtures.

seqcast.perf.paths makes them. A test that uses one carries the mark ``netns`` (``pytestmark = pytest.mark.netns``), so
that it is left out without root, ``ip`` or ``nft``; if the kernel forbids namespaces anyway, the fixtures skip it with
the reason.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqcast.perf.paths import PathError, Place, bridged, dropping, namespace

MEMBERS = 4
PREFIXES = {4: ("10.99.0.",), 6: ("fd99::", "fe80::99:")}
"""By version: how the addresses of places begin, before their numbers; those of IPv6 are given by ``with_ipv6``."""
SOURCE = Path(__file__).resolve().parents[2] / "src"


def seeds(ip_version: int = 4) -> str:
    """Where members at the places may be, for those that use no multicast."""
    return ",".join(f"{prefix}{number}" for prefix in PREFIXES[ip_version] for number in range(1, MEMBERS + 1))


def there(environment: dict[str, str], ip_version: int = 4) -> dict[str, str]:
    """The environment of a process at a place, where the ports are free: the seeds of tests/conftest.py, which lead to
    loopback, lead to the other places, too."""
    if environment.get("SEQCAST_SEEDS") != "127.0.0.1":
        return environment
    kept = {name: text for name, text in environment.items() if name not in ("SEQCAST_PORT", "SEQCAST_PORT_RANGE")}
    return {**kept, "SEQCAST_SEEDS": f"{'127.0.0.1' if ip_version == 4 else '::1'},{seeds(ip_version)}"}


def python(place: Place, *arguments: str, ip_version: int = 4, **options: Any) -> subprocess.Popen[str]:
    """Starts this Python at ``place``, with text pipes for its output.

    Args:
        ip_version: of its group, by which its seeds are chosen if members use no multicast.
    """
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    environment = there(environment, ip_version)
    return subprocess.Popen([*place.prefix, sys.executable, *arguments], text=True, env=environment, **options)


@contextlib.contextmanager
def cut_off(places: Sequence[Place]) -> Iterator[None]:
    """A partition: the interfaces of ``places`` carry nothing (the links are up, but packets are dropped)."""
    with contextlib.ExitStack() as stack:
        for place in places:
            rules = (
                "add table inet seqcast_cut; "
                "add chain inet seqcast_cut input { type filter hook input priority 0; }; "
                "add chain inet seqcast_cut output { type filter hook output priority 0; }; "
                f"add rule inet seqcast_cut input iifname {place.interface} drop; "
                f"add rule inet seqcast_cut output oifname {place.interface} drop"
            )
            place.run("nft", rules)
            stack.callback(place.run, "nft", "delete table inet seqcast_cut")
        yield


def with_ipv6(place: Place, scope: str = "global") -> None:
    """The interface has one IPv6 address that a member can use, of this scope ("global", "link-local")."""
    number = place.port.removeprefix("member")
    prefix = dict(zip(("global", "link-local"), PREFIXES[6], strict=True))[scope]
    place.run("ip", "link", "set", "eth0", "addrgenmode", "none")  # the kernel adds no link-local address by itself
    place.run("ip", "-6", "address", "flush", "dev", "eth0")
    place.run("ip", "address", "add", f"{prefix}{number}/64", "dev", "eth0", "nodad")


def _or_skip(manager: Any) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(manager)
        except PathError as error:
            pytest.skip(f"namespaces cannot be made here: {error}")
        yield made


@pytest.fixture
def lonely() -> Iterator[Place]:
    """One namespace with nothing but ``lo``, which is up."""
    yield from _or_skip(namespace())


@pytest.fixture
def network() -> Iterator[tuple[Place, ...]]:
    """Four namespaces on one bridge, MTU 1500, each with ``eth0`` (10.99.0.1 to .4)."""
    yield from _or_skip(bridged(MEMBERS))


@pytest.fixture
def segmented() -> Iterator[tuple[Place, ...]]:
    """The same, but no packet larger than the MTU passes an interface."""
    yield from _or_skip(bridged(MEMBERS, segmented=True))


__all__ = ["MEMBERS", "cut_off", "dropping", "lonely", "network", "python", "seeds", "segmented", "with_ipv6"]


def remake(place, seconds="", hardware="the same"):
    """The interface is deleted and made again with the same name and address, as by a restarted VPN or container."""
    number = place.port.removeprefix("member")
    same = ["address", place.run("ip", "-brief", "link", "show", "dev", "eth0").split()[2]]
    place.run("ip", "link", "delete", "eth0")
    if seconds:
        place.run("sleep", seconds)
    made = ["link", "add", place.port, "type", "veth", "peer", "name", "eth0", "netns", place.namespace]
    place.run("ip", "-n", place.bridge, *made, *(same if hardware == "the same" else ()))
    place.run("ip", "-n", place.bridge, "link", "set", place.port, "master", "bridge", "up")
    place.run("ip", "address", "add", f"10.99.0.{number}/24", "dev", "eth0")
    place.run("ip", "link", "set", "eth0", "up")
    place.run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
