"""Derives the configuration of engine, core and sockets from the settings, for production, simulator and tests.

A setting keeps its name; times in seconds (``*_s``, ``*_s_min``, ``*_s_max``) are converted to ns. The functions below
add values that need more than that.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable
from typing import Any

from seqcast.config.fields import PACKET_BYTES_MAX, PACKET_BYTES_MIN, Config

ENGINE = (
    "deliver_own", "receive", "observer", "ring_bytes", "unicast_bytes", "ring_packets", "message_bytes_max",
    "control_bytes_max", "nak_delay_s", "nak_backoff_s_min", "nak_backoff_s_max", "retransmit_hold_s",
    "retransmit_bytes_per_s", "send_bytes_per_s", "ack_delay_s", "ack_bytes", "ack_packets", "probe_s_min",
    "probe_s_max", "heartbeat_s", "suspect_s", "suspect_s_max",
)  # fmt: skip
CORE = (
    "window_bytes", "found", "discovery_s", "join_s_min", "join_s_max", "name_taken_s", "bundle_s", "lease_s",
    "flush_deadline_s", "back_off_s", "leave_deadline_s", "linger_s", "block_deadline_s", "pause_s_max",
    "flush_unicasts", "safe", "membership", "partition", "rekey_s", "cipher", "observer",
)  # fmt: skip
DRIVER = (
    "interface", "port", "ttl", "dscp", "rcvbuf", "sndbuf", "send_batch", "receive_batch",
    "packet_bytes", "gso", "gro", "mmsg", "busy_poll_s", "flush_bytes", "flush_s_min", "flush_s_max", "nap_s",
)  # fmt: skip
NETWORK = (
    "interface", "port", "address", "ip_version", "ttl", "transport", "seeds", "port_range", "key", "identity",
    "authorized", "cipher",
)  # fmt: skip
"""Settings that decide whom a member, or a command, can reach; all but ``interface`` and ``identity`` are the same at
all members."""
SHARED = (
    "heartbeat_s", "message_bytes_max", "partition", "membership", "flush_unicasts", "safe", "reliability", "transport",
    "slow", "slow_s", "cipher",
)  # fmt: skip
"""Settings that every member must set to the same value: a member that sends or hears no multicasts would be excluded
from a group that needs them; a slower heartbeat would trigger suspicion; a member that
accepts only smaller messages would miss the large ones; a group must not merge with a partition that a majority
excluded; a token that some members do not pass on never comes back; either all members end a view with its unicasts or
none does; a member that acknowledges nothing would stop those that wait for it; one slow receiver
would be excluded by some senders and not by others; and all members must open the datagrams that one seals.
A joiner with another value is
refused, and groups with different values do not merge."""
SLAB_BYTES = 64 << 10
"""Unit of ``slabs_max``: the engine's ``SC_SLAB_BYTES``."""
SMALL_BUFFER_BYTES = 1 << 20
SEALINGS_MAX = 1 << 31
"""Datagrams that a member seals with the secret of one view, before it asks for another."""
BEACON_NS_MIN = 100_000_000
GOSSIPS_PER_S = 2000
"""Gossips that a member of a group handles per second, and a tenth of it at once: most of them are copies of earlier
ones, and Python reads one in about 0.1 ms. Those that come faster wait, which is the load that the policy measures."""
ETHERNET_MTU = 1500
PACKETS_PER_S = 50
"""With ``send_bytes_per_s``, at least this many packets may leave in a second if possible: a view change waits for
those that are on their way."""
PIECE_BYTES = 1232
"""Each path carries UDP payloads of this size, which IPv6 guarantees."""
JUMBO_BYTES = 9216
"""Larger packets travel within one machine, on paths that are not measured."""
SECONDS = re.compile(r"(?<!_per)_s(?=$|_min$|_max$)")


def to_ns(seconds: float) -> int:
    """A time in seconds, as settings have it, in nanoseconds."""
    return round(seconds * 1e9)


def engine_settings(config: Config) -> dict[str, Any]:
    """The keyword arguments of ``Engine``."""
    return _named(config, ENGINE) | {
        "unicast": config.transport == "unicast",
        "mixed": config.transport == "auto",
        "pulled": config.reliability == "gossip",
        "piece_bytes": PIECE_BYTES,
        "congestion": congestion(config),
        "slabs_max": config.slabs_max + 2 * config.receive_batch,  # the driver's buffers are slabs, or lie in others
        "blocked_bytes_max": config.blocked_queue_bytes if config.send_while_blocked == "queue" else 0,
        "install_ns": to_ns(config.flush_deadline_s),
        "policy_ns": 0,
        "sealings_max": SEALINGS_MAX,
        "slow_ns": to_ns(config.slow_s) if config.slow != "block" else 0,
        "skips": config.slow == "skip",
    }


def core_settings(config: Config, *, mtu: int, rcvbuf: int, blocks: bool = False, room: int = 0) -> dict[str, Any]:
    """The keyword arguments of ``EndpointSettings``.

    Args:
        config: the settings in use.
        mtu: largest IP packet of the interface, in bytes.
        rcvbuf: bytes that the kernel granted for the socket's receive buffer.
        blocks: the application has a block callback.
        room: bytes by which sealing makes each datagram longer; 0: there is no key.
    """
    largest = max(PACKET_BYTES_MIN, packet_bytes(config, mtu, rcvbuf) - room)
    return (
        _named(config, CORE)
        | _meeting_times(config)
        | {
            "found": 0 if config.observer else config.found,
            "stable": bool(config.stable),
            "capacity": capacity(config, rcvbuf),
            "packet_bytes": largest,
            "path_bytes": largest if largest <= JUMBO_BYTES else 0,
            "reach": reach(config),
            "unicast": config.transport == "unicast",
            "book": config.transport != "multicast",
            "advertised": bool(config.advertise),
            "shared": tuple((name, str(getattr(config, name))) for name in SHARED) + _listed(config),
            "verify_ns": 2 * to_ns(config.heartbeat_s),
            "link_ns": 2 * to_ns(config.suspect_s),
            "blocks": blocks,
            "block_events": config.block_events or blocks,
            "coordinator_events": config.coordinator_events,
            "gossip": gossip_settings(config) if config.reliability == "gossip" else None,
        }
    )


def congestion(config: Config) -> int:
    """The setting as the engine knows it: never (0), for a group with unicast ways (1), always (2)."""
    if config.congestion == "auto" and config.preset == "wan":
        return 2
    return ("off", "auto", "on").index(config.congestion)


def _listed(config: Config) -> tuple[tuple[str, str], ...]:
    """Only whether there is a list of members: its content may differ for a while."""
    return (("authorized", "a list"),) if config.authorized else ()


def reach(config: Config) -> str:
    """Options of a command, each after a space, that put the command in the network of a group with these settings."""
    default = {field.name: field.default for field in dataclasses.fields(config)}
    given = [name for name in NETWORK if getattr(config, name) != default[name]]
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(getattr(config, name)))}" for name in given)


def gossip_settings(config: Config) -> dict[str, Any]:
    """The keyword arguments of ``GossipSettings``. A view is a membership that all agree on, so members vote.

    The budget is for gossips alone, as the engine answers requests. The budget allows four times the rate of
    ``gossip_average_s``: more than that counts as load.
    """
    per_s = max(GOSSIPS_PER_S, round(4 / config.gossip_average_s))
    return {
        "dynamic": config.gossip_dynamic,
        "interval_ns": to_ns(config.gossip_interval_s),
        "average_ns": to_ns(config.gossip_average_s),
        "subset_percent": config.gossip_subset_percent,
        "multicast": config.gossip_multicast,
        "ask_again_ns": to_ns(config.nak_backoff_s_min),
        "work_per_s": per_s,
        "work_max": per_s // 10,
    }


def _meeting_times(config: Config) -> dict[str, int]:
    """How soon joiners and other views are noticed, and how long they are waited for: by how often they say that they
    are there. Python answers beacons and merges views, so the preset "fast" makes neither quicker."""
    join_ns, beacon_ns = to_ns(config.join_s_max), max(2 * to_ns(config.heartbeat_s), BEACON_NS_MIN)
    return {
        "joiner_seen_ns": 5 * join_ns,
        "group_seen_ns": 10 * join_ns,
        "beacon_ns": beacon_ns,
        "elsewhere_ns": 5 * beacon_ns,
        "merge_deadline_ns": 10 * beacon_ns,
        "merge_lease_ns": 6 * beacon_ns,
        "merge_back_off_ns": 3 * beacon_ns,
        "merge_back_off_ns_max": 100 * beacon_ns,
    }


def driver_settings(config: Config) -> dict[str, Any]:
    """The keyword arguments of ``Driver``, without the group's address."""
    unicast = config.transport == "unicast"
    seeded = config.transport == "auto" and bool(config.seeds) and not config.unicast_port  # its ports
    return _named(config, DRIVER) | {
        "family": config.ip_version,
        "tick_ns": to_ns(config.standby_s),
        "unicast": unicast,
        "unicast_port": config.port if seeded else config.unicast_port,
        "port_range": config.port_range if unicast or seeded else 0,
    }


def capacity(config: Config, rcvbuf: int) -> int:
    """Charged bytes that senders can rely on: the room in the socket's buffer and in the slabs.

    A received packet may keep a slab of 64 KiB in use, until half of the slabs are; then packets are copied together,
    and fill at least half of each slab. The senders' windows fill the buffer at most twice, once with multicasts and
    once with the other streams (among two in one of twice the size). So an eighth of the slabs' memory suffices:
    while senders keep to their credit, packets are dropped for lack of slabs only if nearly every slab that is kept
    holds a single small packet.

    Args:
        config: the settings in use.
        rcvbuf: bytes that the kernel granted for the socket's receive buffer.
    """
    return min(rcvbuf, config.slabs_max * SLAB_BYTES // 8)


def packet_bytes(config: Config, mtu: int, rcvbuf: int) -> int:
    """Payload of a full datagram: as much as the MTU carries unfragmented, but no more than Ethernet carries if the
    receive buffer is small, because a small one would hold only a few large datagrams; and less if few may be sent.

    Args:
        config: the settings in use.
        mtu: largest IP packet of the interface, in bytes.
        rcvbuf: bytes that the kernel granted for the socket's receive buffer.
    """
    if config.packet_bytes:
        return config.packet_bytes
    if rcvbuf < SMALL_BUFFER_BYTES:
        mtu = min(mtu, ETHERNET_MTU)
    headers = 28 if config.ip_version == 4 else 48
    largest = PACKET_BYTES_MAX
    if config.send_bytes_per_s:
        largest = min(largest, max(PIECE_BYTES, config.send_bytes_per_s // PACKETS_PER_S))
    return max(PACKET_BYTES_MIN, min(mtu - headers, largest) & ~7)


def _named(config: Config, names: Iterable[str]) -> dict[str, Any]:
    """The settings with these names; times are in ns."""
    result: dict[str, Any] = {}
    for name in names:
        in_ns = SECONDS.sub("_ns", name)
        value = getattr(config, name)
        result[in_ns] = value if in_ns == name else to_ns(value)
    return result
