"""Members on several hosts, reached by a command such as ``ssh -T HOST``: no daemon, no port, no clock in common.

A worker speaks lines of JSON on its standard input and output, so whatever starts a process elsewhere and connects
these two will do. When the connection is lost its input closes, which ends it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path as File
from typing import Any

from seqcast.perf.paths import PathError, Place

VIA = "ssh -T {host}"
NIC = ("rx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_dropped")


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


def about(interface: str) -> dict[str, Any]:
    """What a worker says of itself and its host, when it has started."""
    from seqcast.core.frames.joining import PROTOCOL_VERSION

    return {
        "version": metadata.version("seqcast"),
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "speed_mbit": _number(File("/sys/class/net") / interface / "speed") if interface else 0,
    }


def check(host: str, said: Mapping[str, Any]) -> None:
    """
    Raises:
        PathError: the host has another release than this machine.
    """
    own = about("")
    for key in ("version", "protocol"):
        if said.get(key) != own[key]:
            raise PathError(f"{host} has seqcast of {key} {said.get(key)}, this machine {own[key]}: install the same")


def drops(interface: str) -> dict[str, int]:
    """Datagrams that this host has dropped since it was booted: at full receive buffers of sockets, in the kernel
    before them (softnet), and at the card (nic)."""
    found = {"socket": 0, "softnet": 0, "nic": 0}
    with contextlib.suppress(OSError, ValueError, IndexError):
        rows = [
            line.split() for line in File("/proc/net/snmp").read_text("ascii").splitlines() if line.startswith("Udp:")
        ]
        found["socket"] = int(dict(zip(rows[0], rows[1], strict=True))["RcvbufErrors"])
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = File("/proc/net/softnet_stat").read_text("ascii").splitlines()
        found["softnet"] = sum(int(line.split()[1], 16) for line in lines)
    if interface:
        found["nic"] = sum(_number(File("/sys/class/net") / interface / "statistics" / name) for name in NIC)
    return found


def _number(path: File) -> int:
    try:
        return max(0, int(path.read_text("ascii")))
    except (OSError, ValueError):
        return 0
