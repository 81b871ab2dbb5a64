"""Turns errors of the system, when sockets are opened, into a ``ConfigError`` that names the remedy."""

from __future__ import annotations

import errno
import os
import sys

from seqcast.config import Config
from seqcast.config.check import version_of
from seqcast.errors import ConfigError
from seqcast.net.interface import LOOPBACK, MULTICAST, NET, UP, flags_of


def explain(error: OSError, config: Config, address: str) -> ConfigError:
    """The error for a step of opening the sockets that failed.

    Args:
        error: of ``Driver``: errno, and the step as its text.
        config: the settings in use.
        address: the group's multicast address.
    """
    step, code = error.args[1], error.errno or 0
    reason = os.strerror(code)
    interface = config.interface or "the chosen interface"
    remedy = f"or add a route: ip route add {address}/32 dev {config.interface or 'INTERFACE'}"
    if config.ip_version == 6:
        remedy = "one that is up and has IPv6 (loopback has no IPv6 multicast on Linux), or ip_version=4"
    if code in (errno.EPERM, errno.EACCES):
        text = f"no permission ({step}: {reason}): allow UDP and multicast here (container, seccomp or firewall)"
    elif step == "interface" and not config.interface:
        text = (
            f"no network interface that is up has an IPv{config.ip_version} address and multicast, not even loopback: "
            "set one up (ip link set lo up), and give interface= if several exist"
        )
    elif step == "tentative":
        text = (
            f"the IPv6 address of {interface} is still being tested for a duplicate, or another machine has the same "
            "(`ip -6 address` says tentative or dadfailed): try again in a moment, or choose another address"
        )
    elif step == "interface" and (
        (given := version_of(config.interface.partition("%")[0])) not in (0, config.ip_version)
    ):
        text = (
            f"interface={config.interface!r} is an IPv{given} address and ip_version is {config.ip_version}: give an "
            f"IPv{config.ip_version} address or the interface's name, or ip_version={given} on every member"
        )
    elif step == "interface" and given:
        text = f"no network interface that is up has the address {config.interface}; `ip -brief address` lists them"
    elif step == "interface" and code == errno.ENODEV:
        text = f"there is no network interface {config.interface!r}; `ip -brief address` lists those of this machine"
    elif step == "interface" and code == errno.ENETDOWN:
        text = f"interface {interface} is down: ip link set {interface} up, or choose another interface="
    elif step == "interface":
        text = f"{interface} has no IPv{config.ip_version} address: give it one, or choose another interface="
    elif step == "bind" and code == errno.EADDRINUSE:
        text = (
            f"port {config.port} or {config.port + 1} is in use by another program that does not share; choose another "
            "port= on every member (`ss -ulpn` shows which one)"
        )
    elif step == "ports" or (step == "bind unicast" and code == errno.EADDRINUSE):
        text = no_unicast_port(0) if step == "ports" else _port_taken(config)
    elif step in ("route", "join", "multicast") and code in (errno.ENETUNREACH, errno.ENODEV, errno.EADDRNOTAVAIL):
        text = f"no multicast route to {address} by {interface}: choose another interface=, {remedy}"
    elif code in (errno.EMFILE, errno.ENFILE):
        text = "no more files can be opened (a group takes 6): close groups, or raise `ulimit -n`"
    elif code == errno.ENOBUFS and step == "join":
        text = "too many multicast groups are joined here: raise net.ipv4.igmp_max_memberships"
    else:
        text = f"the sockets could not be opened ({step}: {reason}) for {address} port {config.port} on {interface}"
    return ConfigError(text)


def _port_taken(config: Config) -> str:
    if config.transport != "unicast" and not config.seeds:
        return no_unicast_port(config.unicast_port)
    return (
        f"the ports {config.port} to {config.port + config.port_range} are in use on this address, by members or other "
        "programs (`ss -uanp` shows by which ones): raise port_range= on all members, or choose another port="
    )


def no_unicast_port(port: int) -> str:
    """The remedy if the port of unicasts cannot be had; 0: any would do."""
    if port:
        return (
            f"unicast_port={port} is in use on this address, perhaps by another member here: each needs its own (`ss "
            "-uanp` shows who has it)"
        )
    return (
        "no UDP port is free: programs use all ports that the system gives out (`ss -uanp` lists them, "
        "net.ipv4.ip_local_port_range has the bounds on Linux). Close some, widen the range, or set interface, and "
        "unicast_port to one outside it"
    )


def clipped_buffers(config: Config, rcvbuf: int, sndbuf: int) -> str:
    """The warning for socket buffers that the kernel made smaller than requested; "" if not.

    Args:
        config: the settings in use.
        rcvbuf, sndbuf: bytes granted.
    """
    given = 2 if sys.platform.startswith("linux") else 1  # Linux grants twice the request, for its bookkeeping
    said, limits = [], []
    if rcvbuf < given * config.rcvbuf:
        said.append(
            f"a receive buffer of {rcvbuf >> 10} KiB and not of {given * config.rcvbuf >> 10} KiB: senders to this "
            "member get small windows"
        )
        limits.append(f"net.core.rmem_max={config.rcvbuf}")
    if sndbuf < given * config.sndbuf:
        said.append(
            f"a send buffer of {sndbuf >> 10} KiB and not of {given * config.sndbuf >> 10} KiB: this member waits "
            "sooner for a slow link"
        )
        limits.append(f"net.core.wmem_max={config.sndbuf}")
    if not said:
        return ""
    remedy = f"sysctl -w {' '.join(limits)}" if given == 2 else "kern.ipc.maxsockbuf or the limit of this system"
    return f"the kernel gave {', and '.join(said)}. Raise the limit: {remedy}; or ask for less by rcvbuf=, sndbuf="


def only_loopback(address: str, what: str = "group") -> str:
    """The warning for a group, or crowd, without ``interface`` that ended up on loopback."""
    if mute := without_multicast():
        return (
            f"the {what} is on loopback and reaches members on this machine only: {', '.join(mute)} is up, but without "
            f"multicast (`ip link` does not show MULTICAST). If its other end passes multicast on, give it to this end "
            f"too: ip link set {mute[0]} multicast on; or give interface=; interface='lo' says that loopback is meant"
        )
    return (
        f"there is no route for multicast to {address} by a network interface, so the {what} is on loopback and "
        "reaches members on this machine only. Give interface=, or add a route: ip route add 224.0.0.0/4 dev "
        "INTERFACE; interface='lo' says that loopback is meant"
    )


NO_WAY_TO_SEEDS = (
    "no network interface leads to the seeds, so the group is on loopback and reaches members on this machine only. "
    "Give interface=, or start when the network is up; interface='lo' says that loopback is meant"
)


def without_multicast() -> list[str]:
    """The network interfaces that are up and without multicast, as tunnels often are; [] if none is, or the system
    does not say."""
    names = sorted(entry.name for entry in NET.glob("*"))
    return [name for name in names if flags_of(name) & (UP | LOOPBACK | MULTICAST) == UP]


def empty_bridge(interface: str) -> str:
    """The error text if this is a bridge without ports, with or without carrier, such as one of containers that do not
    run; "" if not."""
    try:
        ports = any((NET / interface / "brif").iterdir())
    except OSError:
        return ""
    if ports:
        return ""
    return (
        f"{interface} is a bridge without ports: nobody can be reached there. Give interface= as the network of "
        "the other members (`ip -brief address` lists them)"
    )


NO_SEGMENTS = (
    "the kernel or the network device does not support UDP_SEGMENT (GSO), so every datagram passes through the network "
    "stack separately, which costs CPU time. Use Linux 4.18 or later and a device that supports UDP_SEGMENT; gso=False "
    "silences this warning"
)
