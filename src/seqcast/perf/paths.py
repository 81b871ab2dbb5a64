"""Paths that packets can take on one machine: loopback, or network namespaces joined by veth pairs and a bridge.

``loopback``        the machine's own ``lo``: packets of 65 000 bytes, one kernel, nothing is segmented.
``veth``            one namespace a member, MTU 1500; a burst of packets crosses as one buffer (UDP_SEGMENT to UDP_GRO).
``veth-segmented``  the same, but the sender's interface segments: each packet crosses on its own, as behind a network
                    card without segmentation offload.

The first two measure one kernel; only the third shows the capacity of a network. Alternatively all members share one
interface of the machine (``on_interface``), and the kernel loops its multicasts back.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import seqcast.codes as codes
from seqcast.errors import SeqcastError, without_code

PATHS = ("loopback", "veth", "veth-segmented")
LOOPBACK_PACKET = 65000
MTU = 1500
UDP_HEADERS = 28
DATAGRAM_MAX = 65507
SIOCGIFMTU = 0x8921  # of Linux, netdevice(7)
SEGMENTS_MAX = 44
"""Packets of one UDP_SEGMENT send: 44 x 1472 bytes are the most that fit 65 507."""

NO_BRIDGE_FIREWALL = 'for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e "$f" ] || echo 0 > "$f"; done'
"""If br_netfilter is loaded (Docker loads it), frames between ports would pass the machine's firewall hooks, as in no
real network."""

NEIGHBOURS_MAX = 30
"""Up to this many members find each other's Ethernet addresses by ARP. All namespaces share one table of 1,024 such
entries (the kernel's gc_thresh3), beyond which sends fail with ENOBUFS; static entries do not count."""

_numbers = itertools.count()


class PathError(SeqcastError):
    """The path cannot be made on this machine, or by this user."""

    code = codes.NOT_MEASURED.number


@dataclass(frozen=True, slots=True)
class Place:
    """Where one member runs.

    Args:
        prefix: goes before a command that runs there.
        interface: name of its network interface.
        address: IPv4 address of that interface.
        namespace: name of its network namespace, or "" on the machine itself.
        bridge: name of the namespace that has the bridge to the others, or "".
        port: name of the bridge's port to this place, or "".
        host: name of the host that the prefix leads to, or "" for this one.
        python: of that host.
        machine: the host's, in words, once the host was asked.
    """

    prefix: tuple[str, ...]
    interface: str
    address: str
    namespace: str = ""
    bridge: str = ""
    port: str = ""
    host: str = ""
    python: str = ""
    machine: str = ""

    def run(self, *command: str) -> str:
        """Runs a command there and returns its output.

        Raises:
            PathError: the command cannot be run, or fails.
        """
        return call(*self.prefix, *command)


@dataclass(frozen=True, slots=True)
class Path:
    """One path: the places of its members, and the addresses of a bare sender there.

    Args:
        name: one of PATHS, or an interface.
        places: one for each member.
        packet_bytes: UDP payload of a full packet.
        segments: packets of one send; more than 1 are cut by UDP_SEGMENT.
        gro: packets sent as one buffer arrive as one buffer.
    """

    name: str
    places: tuple[Place, ...]
    packet_bytes: int
    segments: int
    gro: bool


def call(*command: str) -> str:
    """Runs a command and returns its output. Raises PathError with its message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        package = {"ip": "iproute2", "nft": "nftables"}.get(command[0], command[0])
        raise PathError(f"the command {command[0]!r} is missing here: install {package}") from None
    if done.returncode:
        raise PathError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def why_no_namespaces() -> str:
    """Why network namespaces cannot be made here, or "" if they can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if shutil.which("ip") is None:
        return "network namespaces need the command 'ip': install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: run this as root, or use --path loopback"
    try:
        with namespace():
            return ""
    except PathError as error:
        return f"network namespaces cannot be made here: {without_code(error)}"


@contextmanager
def namespace() -> Iterator[Place]:
    """One network namespace with nothing but ``lo``; gone at the end."""
    name = f"seqcast-{os.getpid()}-{next(_numbers)}"
    call("ip", "netns", "add", name)
    try:
        place = Place(("ip", "netns", "exec", name), "lo", "127.0.0.1", name)
        call("ip", "-n", name, "link", "set", "lo", "up")
        yield place
    finally:
        call("ip", "netns", "delete", name)


@contextmanager
def bridged(members: int, *, segmented: bool = False) -> Iterator[tuple[Place, ...]]:
    """One namespace for each member, with ``eth0`` (10.99.0.1, .2 ...), on one bridge in a namespace of its own.

    Args:
        members: how many.
        segmented: interfaces take no packet larger than their MTU, so that the kernel segments before them.

    Raises:
        PathError: namespaces or interfaces cannot be made.
    """
    with ExitStack() as stack:
        bridge = stack.enter_context(namespace()).namespace
        call("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        call("ip", "-n", bridge, "link", "set", "bridge", "up")
        call("ip", "netns", "exec", bridge, "sh", "-c", NO_BRIDGE_FIREWALL)
        places = []
        for number in range(1, members + 1):
            name = stack.enter_context(namespace()).namespace
            far = f"member{number}"
            eth0 = ("name", "eth0", "address", mac(number), "netns", name)
            call("ip", "-n", bridge, "link", "add", far, "type", "veth", "peer", *eth0)
            call("ip", "-n", bridge, "link", "set", far, "master", "bridge", "up")
            address = f"10.99.0.{number}"
            call("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "eth0", "up", "mtu", str(MTU))
            if segmented:
                call("ip", "-n", name, "link", "set", "eth0", "gso_max_segs", "1")
            call("ip", "-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")
            places.append(Place(("ip", "netns", "exec", name), "eth0", address, name, bridge, far))
        if members > NEIGHBOURS_MAX:
            for place in places:
                lines = [
                    f"neighbour replace {other.address} lladdr {mac(number)} dev eth0 nud permanent\\n"
                    for number, other in enumerate(places, 1)
                    if other is not place
                ]
                call("sh", "-c", f"printf '{''.join(lines)}' | ip -n {place.namespace} -batch -")
        yield tuple(places)


def mac(number: int) -> str:
    """The Ethernet address of a member's interface."""
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


@contextmanager
def dropping(places: Sequence[Place], percent: float) -> Iterator[None]:
    """Drops this share of the UDP datagrams that arrive in the namespaces of ``places``, at random, in the kernel.

    Raises:
        PathError: without nft, or outside a namespace (the machine's own traffic is left alone).
    """
    if not 0 < percent <= 50:
        raise PathError(f"a loss of {percent} % makes no sense: more than 0, at most 50")
    namespaces = {place.namespace for place in places}
    if "" in namespaces:
        raise PathError("datagrams are dropped in network namespaces only")
    with ExitStack() as stack:
        for name in sorted(namespaces):
            rules = (
                "add table inet seqcast_loss; "
                "add chain inet seqcast_loss input { type filter hook input priority 0; }; "
                "add rule inet seqcast_loss input meta l4proto udp "
                f"numgen random mod 100000 < {round(percent * 1000)} counter drop"
            )
            call("ip", "netns", "exec", name, "nft", rules)
            stack.callback(call, "ip", "netns", "exec", name, "nft", "delete table inet seqcast_loss")
        yield


def on_interface(interface: str, members: int) -> Path:
    """The path on an interface of this machine, which all members share.

    Args:
        interface: its name or its IPv4 address.
        members: how many places the path has.

    Raises:
        PathError: no interface has this name, or this address; or the interface has no IPv4 address.
    """
    import fcntl  # absent on Windows, where this command refuses to run

    from seqcast.net.interface import ipv4_of  # here: not for `--help`

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                address = ipv4_of(name)
            except OSError:
                continue  # without one
            if interface in (name, address):
                request = struct.pack("16s240x", name.encode())
                mtu: int = struct.unpack_from("i", fcntl.ioctl(asked, SIOCGIFMTU, request), 16)[0]
                packet = min(mtu - UDP_HEADERS, LOOPBACK_PACKET)
                segments = min(SEGMENTS_MAX, DATAGRAM_MAX // packet)
                return Path(interface, (Place((), interface, address),) * members, packet, segments, segments > 1)
    raise PathError(f"no interface of this machine with an IPv4 address is called, or has the address, {interface!r}")


@contextmanager
def open_path(name: str, members: int, *, own_namespace: bool = False) -> Iterator[Path]:
    """Makes a path for ``members`` members, and removes it at the end.

    Args:
        name: one of PATHS.
        members: number of places.
        own_namespace: loopback in its own namespace instead of the machine's, so that ``dropping`` may be used.

    Raises:
        PathError: the path cannot be made here; the message says why.
    """
    if name == "loopback":
        with ExitStack() as stack:
            place = stack.enter_context(namespace()) if own_namespace else Place((), "lo", "127.0.0.1")
            yield Path(name, (place,) * members, LOOPBACK_PACKET, 1, False)
        return
    reason = why_no_namespaces()
    if reason:
        raise PathError(reason)
    segmented = name == "veth-segmented"
    with bridged(members, segmented=segmented) as places:
        yield Path(name, places, MTU - UDP_HEADERS, SEGMENTS_MAX, not segmented)
