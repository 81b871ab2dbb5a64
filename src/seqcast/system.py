"""The system's own figures, which the doctor, measurements and reports read."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

RTM_NEWQDISC, RTM_GETQDISC, NLM_F_REQUEST, NLM_F_DUMP, TC_H_ROOT, TCA_STATS = 36, 38, 1, 0x300, 0xFFFFFFFF, 3
NIC = ("rx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_dropped")


def read(root: Path, name: str) -> str:
    """A file of the system; "" if there is none.

    Args:
        root: of its file systems: another one in tests.
        name: relative to that.
    """
    try:
        return (root / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number(root: Path, name: str) -> int:
    """The number in such a file; 0 for none, or a negative one."""
    text = read(root, name)
    return int(text) if text.isdecimal() else 0


def cgroups(root: Path) -> list[Path]:
    """The folders of this process's cgroup (version 2) and of those around it, from the innermost on.

    Args:
        root: "/", or a copy of it for tests.
    """
    mount, lines = root / "sys/fs/cgroup", read(root, "proc/self/cgroup").splitlines()
    folder = mount / next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
    return [each for each in (folder, *folder.parents) if each.is_relative_to(mount)]


def cpu_stat(cgroup: Path) -> dict[str, int]:
    """The figures of ``cpu.stat``; {}: unknown."""
    rows = (line.split() for line in read(cgroup, "cpu.stat").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def drops(interface: str, root: Path = Path("/")) -> dict[str, int]:
    """Datagrams that this host has dropped since it was booted: at full receive buffers of sockets, in the kernel
    before them (softnet), at the card (nic), and in the queues of all interfaces (qdisc)."""
    found = {"socket": 0, "softnet": 0, "nic": 0, "qdisc": 0}
    rows = [line.split() for line in read(root, "proc/net/snmp").splitlines() if line.startswith("Udp:")]
    if len(rows) == 2:
        found["socket"] = int(dict(zip(*rows, strict=False)).get("RcvbufErrors", 0))
    with contextlib.suppress(ValueError, IndexError):
        found["softnet"] = sum(int(line.split()[1], 16) for line in read(root, "proc/net/softnet_stat").splitlines())
    if interface:
        found["nic"] = sum(number(root, f"sys/class/net/{interface}/statistics/{name}") for name in NIC)
    with contextlib.suppress(OSError, AttributeError, struct.error):
        found["qdisc"] = sum(_qdiscs())
    return found


def _qdiscs() -> Iterator[int]:
    """Packets dropped by the queue of each interface, as rtnetlink(7) tells."""
    ask = struct.pack("=IHHII", 36, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + bytes(20)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(1.0)
        kernel.send(ask)
        while True:
            data = kernel.recv(1 << 16)
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if kind != RTM_NEWQDISC:
                    return  # the end, or an error
                (parent,) = struct.unpack_from("=I", data, 16 + 12)
                if parent == TC_H_ROOT:  # and counts the drops of those below
                    yield _dropped(data[36:length])
                data = data[(length + 3) & ~3 :]


def _dropped(attributes: bytes) -> int:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == TCA_STATS:
            return int(struct.unpack_from("=QII", attributes, 4)[2])
        attributes = attributes[max(4, (length + 3) & ~3) :]
    return 0
