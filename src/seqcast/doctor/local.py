"""Looks at this machine: the interface and the sockets as a member would open them, and the system's CPUs,
clock and network."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import seqcast.codes as codes
from seqcast._native.driver import Driver, describe_address
from seqcast._native.engine import Engine
from seqcast.config import Config
from seqcast.config.derive import engine_settings
from seqcast.doctor import keys
from seqcast.doctor.datagrams import UDP_SEGMENT
from seqcast.doctor.lines import FAIL, NOTE, OK, WARN, Line
from seqcast.errors import ConfigError, without_code
from seqcast.net.discovery import Discovery, advertised
from seqcast.net.errors import clipped_buffers
from seqcast.net.interface import fault
from seqcast.net.opening import group_tag, open_driver
from seqcast.system import cgroups, cpu_stat, drops, number, read

CLUSTER = "seqcast doctor"
MEMBER = 1  # any id: no datagram is sent in its name
MTU_MIN = 1280
SEGMENTS = 4
QUICK_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen", "riscv_clocksource"}
CORES_MIN = 1.0
FIRST_PROCESSES = "pid:[4026531836]"
"""The namespace of the machine's own processes, whose number is a constant of Linux (PROC_PID_INIT_INO)."""


def look(
    config: Config, root: Path = Path("/"), discovery: Discovery | None = None
) -> Generator[Line, None, tuple[bytes, bytes]]:
    """The lines about this machine.

    Args:
        config: settings of the member that would run here.
        root: of the file systems of the system: another one in tests.
        discovery: the seeds, if there are any.

    Returns:
        The address of the member's own port, as members have it, and the one at which others would be told to reach
        this member; empty: there is none.
    """
    own = public = b""
    engine = Engine(member_id=MEMBER, group_tag=group_tag(CLUSTER), seed=1, **engine_settings(config))
    try:
        driver = open_driver(engine, CLUSTER, MEMBER, config, discovery)
    except ConfigError as error:
        yield Line(FAIL, "interface", without_code(error), codes.NO_SOCKETS)
    else:
        try:
            yield from _sockets(driver, config, root, discovery)
            own = driver.address
            public = yield from _advertised(config, own)
        finally:
            driver.close()
    yield from _cpus(root)
    yield clock(root)
    yield from _container(root)
    if config.key:
        yield from keys.look(config, root)
    return own, public


def _advertised(config: Config, own: bytes) -> Generator[Line, None, bytes]:
    """The address at which others would be told to reach a member; empty: there is none."""
    try:
        public = advertised(config, own)
    except ConfigError as error:
        yield Line(FAIL, "advertise", without_code(error), codes.WRONG_SETTING)
        return b""
    if public != own:
        said = f"others are told {describe_address(public)}, and this machine has {describe_address(own)}"
        fact = f"{said}: without key= they believe so only if the datagrams of this member come from there"
        if config.key:
            yield Line(OK, "advertise", said)
        elif public[1:3] == own[1:3]:  # addresses may be translated one to one
            yield Line(NOTE, "advertise", f"{fact}, which --with tries")
        else:
            yield Line(WARN, "advertise", fact, codes.TRANSLATED)
    return public


def _sockets(driver: Driver, config: Config, root: Path, discovery: Discovery | None) -> Iterator[Line]:
    unicast = config.transport == "unicast"
    meant = unicast and discovery is not None and bool(discovery.addresses) and not discovery.is_elsewhere()
    name, address = driver.interface, describe_address(driver.address).rpartition(":")[0]
    said = f"{name} {address}, MTU {driver.mtu}{_speed(root, name)}"
    if trouble := fault(driver):
        yield Line(FAIL, "interface", trouble, codes.INTERFACE_FAULT, codes.filled(codes.INTERFACE_FAULT, NAME=name))
    elif driver.loopback and config.interface not in ("lo", name, address) and not meant:
        remedy = "Give interface=, or start when the network is up." if unicast else ""
        fact = f"{said}: only members on this machine can be reached"
        yield Line(WARN, "interface", fact, codes.ONLY_LOOPBACK, remedy)
    else:
        yield Line(OK, "interface", said)
    if driver.mtu < MTU_MIN:
        remedy = codes.filled(codes.SMALL_MTU, NAME=name)
        yield Line(WARN, "mtu", f"{name} carries {driver.mtu} bytes", codes.SMALL_MTU, remedy)
    if clipped := clipped_buffers(config, driver.rcvbuf_granted, driver.sndbuf_granted):
        fact, _, remedy = clipped.partition(". Raise the limit: ")
        yield Line(WARN, "buffers", fact, codes.CLIPPED_BUFFERS, remedy)
    else:
        given = driver.rcvbuf_granted >> 10, driver.sndbuf_granted >> 10
        yield Line(OK, "buffers", f"{given[0]} KiB to receive, {given[1]} KiB to send")
    if sys.platform.startswith("linux"):
        yield segments(address, name)
        if driver.gro:
            yield Line(OK, "gro", "the kernel can take packets of one burst together; --with tries that")
        elif not driver.loopback:  # there the kernel joins nothing
            remedy = codes.filled(codes.NO_GRO, NAME=name)
            yield Line(WARN, "gro", "each packet is received by itself", codes.NO_GRO, remedy)
        yield from _network(root, name, unicast)


def _speed(root: Path, name: str) -> str:
    speed = number(root, f"sys/class/net/{name}/speed")
    return f", {speed:,} Mb/s" if speed else ""


def segments(address: str, name: str) -> Line:
    """Does the kernel cut one send into packets (UDP_SEGMENT), and the device itself?"""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((address.strip("[]"), 0))
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)
            sender.sendto(bytes(100 * SEGMENTS), sender.getsockname()[:2])
    except OSError as error:
        return Line(WARN, "gso", f"UDP_SEGMENT does not work here: {error.strerror}", codes.NO_GSO)
    most = _gso_max_segs(name)
    if most == 1:
        return Line(WARN, "gso", f"{name} takes one packet at a time (gso_max_segs 1)", codes.NO_GSO)
    return Line(OK, "gso", "many packets are sent in one call")


def _gso_max_segs(name: str) -> int:
    """0: not known."""
    if shutil.which("ip") is None:
        return 0
    with contextlib.suppress(OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        said = subprocess.run(["ip", "-j", "-d", "link", "show", "dev", name], capture_output=True, timeout=10).stdout
        return int(json.loads(said)[0].get("gso_max_segs", 0))
    return 0


def _network(root: Path, name: str, unicast: bool) -> Iterator[Line]:
    device = root / "sys/class/net" / name
    wireless = (device / "wireless").exists() or (device / "phy80211").exists()
    if wireless and not unicast:
        yield Line(WARN, "wireless", f"{name} is wireless", codes.WIRELESS)
    bridge = name if (device / "bridge").exists() else ""
    with contextlib.suppress(OSError):
        bridge = bridge or os.path.basename(os.readlink(device / "master"))
    if bridge and not unicast:
        snoops = read(root, f"sys/class/net/{bridge}/bridge/multicast_snooping")
        asks = read(root, f"sys/class/net/{bridge}/bridge/multicast_querier")
        if snoops == "1" and asks == "0":
            remedy = f"echo 1 > /sys/class/net/{bridge}/bridge/multicast_querier"
            fact = f"bridge {bridge} snoops IGMP and asks for no membership itself"
            yield Line(WARN, "igmp", fact, codes.NO_QUERIER, remedy)
    lost = drops(name, root)["socket"]
    if lost:
        yield Line(
            NOTE, "drops", f"full receive buffers have dropped {lost:,} datagrams since boot", codes.SOCKET_DROPS
        )


def _cpus(root: Path) -> Iterator[Line]:
    quota, throttled = 0.0, 0
    for folder in cgroups(root):
        numbers = read(folder, "cpu.max").split()
        if len(numbers) == 2 and numbers[0].isdecimal() and numbers[1].isdecimal():
            quota = quota or int(numbers[0]) / max(int(numbers[1]), 1)
        throttled = throttled or cpu_stat(folder).get("nr_throttled", 0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if throttled:
        fact = f"a quota of {quota:g} cores has stopped this process {throttled:,} times"
        yield Line(WARN, "cpu", fact, codes.THROTTLED)
    elif 0 < quota < CORES_MIN:
        yield Line(WARN, "cpu", f"a quota of {quota:g} cores", codes.SMALL_QUOTA)
    else:
        yield Line(OK, "cpu", f"{cores} cores" + (f", a quota of {quota:g}" if quota else ""))


def clock(root: Path) -> Line:
    """Is the clock read without a system call?"""
    source = read(root, "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source and source not in QUICK_CLOCKS:
        return Line(WARN, "clock", f"the clock source is {source}", codes.SLOW_CLOCK)
    return Line(OK, "clock", source or "not known")


def _container(root: Path) -> Iterator[Line]:
    """By the files of Docker and Podman; others, as containerd, leave none, but have a namespace of processes."""
    inside = any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
    with contextlib.suppress(OSError):
        inside = inside or os.readlink(root / "proc/self/ns/pid") != FIRST_PROCESSES
    if inside:
        yield Line(NOTE, "container", "this is a container", codes.CONTAINER)
