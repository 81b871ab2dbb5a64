"""Members on several hosts, reached by a command such as ``ssh -T HOST``: no daemon, no port, no clock in common.

A worker speaks lines of JSON on its standard input and output, so whatever starts a process elsewhere and connects
these two will do. When the connection is lost the input of the worker closes, and the worker ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shlex
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path as File
from typing import Any

from seqcast.perf.paths import DATAGRAM_MAX, SEGMENTS_MAX, Path, PathError, Place
from seqcast.system import cgroups, cpu_stat, number, read

VIA = "ssh -T {host}"
SIOCETHTOOL, ETHTOOL_GDRVINFO, ETHTOOL_GRINGPARAM, ETHTOOL_BYTES = 0x8946, 0x3, 0x10, 256
"""From Linux's ethtool.h; the last one is room for either answer."""
BUSY_MAX = 0.1
"""The part of a core that other programs may use on a host that is measured."""
GROUP_ADDRESS = "239.255.77.77"
"""Multicast address of the baselines; seqcast chooses its own."""


def places(hosts: Sequence[str], via: str, python: str, members: int, interface: str) -> tuple[Place, ...]:
    """One place for each member, on the hosts in turn.

    Args:
        hosts: names, for which ``{host}`` stands in ``via``.
        via: command that runs another one on a host.
        python: of the hosts.
        members: how many places.
        interface: network interface on every host; "": as its system routes.

    Raises:
        PathError: a mistake in ``hosts`` or ``via``.
    """
    if not all(hosts) or len(set(hosts)) != len(hosts):
        raise PathError(f"--hosts {','.join(hosts)} must name each host once, separated by commas")
    if "{host}" not in via:
        raise PathError(f"--via {via!r} must have {{host}} in it, as {VIA!r} has")
    try:
        prefixes = [tuple(shlex.split(via.replace("{host}", shlex.quote(host)))) for host in hosts]
    except ValueError as error:
        raise PathError(f"--via {via!r}: {error}") from None
    return tuple(
        Place(prefixes[i % len(hosts)], interface, "", host=hosts[i % len(hosts)], python=python or sys.executable)
        for i in range(members)
    )


def machines(places: Sequence[Place]) -> str:
    """One line about the machines of other hosts; "": all members are on this one."""
    with_each: dict[str, list[str]] = {}
    for host, machine in dict.fromkeys((place.host, place.machine) for place in places if place.host):
        with_each.setdefault(machine, []).append(host)
    return "; ".join(f"{', '.join(names)}: {machine}" for machine, names in with_each.items())


def as_used(path: Path, used: Mapping[str, Any]) -> Path:
    """The path with the sizes that a group used there."""
    packet = int(used["packet_bytes"])
    segments = min(SEGMENTS_MAX, DATAGRAM_MAX // packet) if used["gso"] else 1
    return replace(path, packet_bytes=packet, segments=segments, gro=bool(used["gro"]) and segments > 1)


def about(interface: str) -> dict[str, Any]:
    """A worker's report of itself and its host, when it has started."""
    from seqcast.core.frames.fields import PROTOCOL_VERSION

    own = _own_address(interface)
    used = interface or _interface_with(own)
    return {
        "version": metadata.version("seqcast"),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "speed_mbit": number(File("/"), f"sys/class/net/{used}/speed") if used else 0,
        "nic": nic(used),
        "address": own,
    }


def nic(interface: str) -> str:
    """An interface in words: name, driver, MTU and speed, and receive and send rings if any."""
    if not interface:
        return "an unknown card"
    folder = f"sys/class/net/{interface}"
    mtu, speed = number(File("/"), f"{folder}/mtu"), number(File("/"), f"{folder}/speed")
    said = [interface, _ethtool(interface, ETHTOOL_GDRVINFO)[4:36].split(b"\0")[0].decode("ascii", "replace")]
    said += [f"MTU {mtu}", f"{speed:,} Mb/s" if speed else ""]
    rings = struct.unpack("=9I", _ethtool(interface, ETHTOOL_GRINGPARAM)[:36])
    said.append(f"rings {rings[5]} and {rings[8]}" if rings[5] or rings[8] else "")
    return ", ".join(filter(None, said))


def _ethtool(interface: str, question: int) -> bytes:
    """An answer of the driver, as ethtool(8) asks; zeros if there is none."""
    import fcntl  # absent on Windows

    room = bytearray(struct.pack("=I", question) + bytes(ETHTOOL_BYTES))
    held = (ctypes.c_char * len(room)).from_buffer(room)
    request = struct.pack("16sP", os.fsencode(interface)[:15], ctypes.addressof(held))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, SIOCETHTOOL, request)
        return bytes(room)
    return bytes(len(room))


def busy_cores(seconds: float, root: File = File("/"), sleep: Callable[[float], None] = time.sleep) -> float:
    """How many cores all processes of this host keep busy, over a time in which this one does nothing; 0 if the
    system does not say."""

    def ticks() -> int:
        user, nice, system, _, _, irq, softirq, *_ = map(int, read(root, "proc/stat").split("\n", 1)[0].split()[1:])
        return user + nice + system + irq + softirq

    try:
        before = ticks()
        sleep(seconds)
        return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds
    except ValueError:
        return 0.0


def _interface_with(own: str) -> str:
    """The name of the interface that has an address."""
    from seqcast._native.driver import interface_of

    try:
        return str(interface_of(own)[0]) if own else ""
    except OSError:
        return ""


def _own_address(interface: str) -> str:
    """Where the other hosts find this one; "" without an IPv4 address there, or a route."""
    try:
        return address(interface, GROUP_ADDRESS)
    except OSError:
        return ""


def check(host: str, said: Mapping[str, Any]) -> None:
    """
    Raises:
        PathError: the host has another release than this machine.
    """
    own = about("")
    for key in ("version", "protocol"):
        if said.get(key) != own[key]:
            raise PathError(f"{host} has seqcast of {key} {said.get(key)}, this machine {own[key]}: install the same")


def throttled_s(root: File = File("/")) -> float:
    """For how long CPU quotas have stopped the cgroup of this process and those around it, in sum, s; 0: never, or the
    system does not say."""
    return sum(cpu_stat(folder).get("throttled_usec", 0) for folder in cgroups(root)) / 1e6  # each without those within


def address(interface: str, group: str) -> str:
    """The IPv4 address of an interface; ``interface`` "": of the one that the system chooses for ``group``."""
    from seqcast.net.interface import ipv4_of

    if interface:
        return ipv4_of(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((group, 9))
        return str(asked.getsockname()[0])
