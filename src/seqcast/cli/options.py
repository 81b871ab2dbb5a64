"""Options that several commands share, and the settings of ``seqcast.join`` that they become."""

from __future__ import annotations

import argparse
from typing import Any

from seqcast.commandline import Parser, add_key, add_pace, positive, seconds, whole
from seqcast.config import (
    CIPHERS,
    CONGESTIONS,
    MEMBERSHIPS,
    PARTITIONS,
    PRESETS,
    RELIABILITIES,
    SLOWS,
    TRANSPORTS,
    Config,
    derive,
)
from seqcast.errors import UsageError
from seqcast.types import ORDERS

SHARED = ("order", "preset", "congestion", "send_bytes_per_s", *derive.NETWORK[1:], *derive.SHARED)


def parser(command: str, text: str, epilog: str) -> Parser:
    """The parser of a command that takes settings of ``seqcast.join``; its help says where else they may be set."""
    everywhere = (
        "every setting can also be given as SEQCAST_<SETTING> in the environment, or in SEQCAST_CONFIG=file.toml"
    )
    return Parser(command, text, f"{epilog}\n{everywhere}")


def add_group_options(target: argparse.ArgumentParser) -> None:
    """Adds the group's name and the options of every command that joins a group."""
    target.add_argument("cluster", metavar="CLUSTER", help="name of the group, the same at every member")
    add_member_options(target)


def add_member_options(target: argparse.ArgumentParser) -> None:
    """Adds the options of every command that joins a group."""
    target.add_argument("--name", help="name of this member, unique in the group (default: host name and process id)")
    target.add_argument("--interface", help="network interface, by name or address (default: as the system routes)")
    add_shared_options(target)
    target.add_argument(
        "--found",
        type=positive,
        metavar="N",
        help="found a group only once this many are joining, this one included (1; with partition=primary: found none)",
    )
    target.add_argument("--journal", metavar="DIR", help="journal deliveries in this directory, for `seqcast audit`")
    target.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds to wait for the group (default: join_timeout_s, 10)"
    )


def add_members_awaited(target: argparse.ArgumentParser) -> None:
    """Adds the number of members that a command waits for before sending."""
    target.add_argument(
        "--members",
        type=positive,
        default=2,
        metavar="N",
        help="start sending when the group has N members, this one included (%(default)s)",
    )


def add_shared_options(target: argparse.ArgumentParser) -> None:
    """Adds the settings that members of a group share, and those for how much of the network each takes."""
    target.add_argument(
        "--order", choices=ORDERS, default="total", help="order of delivery; total means records (%(default)s)"
    )
    add_group_network(target)
    add_pace(target, CONGESTIONS)
    target.add_argument(
        "--preset", choices=PRESETS, help="kind of network: sets the timeouts, and so how soon a failure is noticed"
    )
    target.add_argument("--partition", choices=PARTITIONS, help="behaviour in a network partition (merge)")
    target.add_argument("--membership", choices=MEMBERSHIPS, help="how members agree on a view (coordinated)")
    target.add_argument(
        "--safe", action="store_const", const=True, help="deliver a message once all members have it in order"
    )
    target.add_argument(
        "--flush-unicasts", action="store_const", const=True, help="end a view once unicasts have arrived"
    )
    target.add_argument("--reliability", choices=RELIABILITIES, help="how lost packets are repaired (nak)")
    target.add_argument("--slow", choices=SLOWS, help="treatment of receivers that are too slow (block)")
    target.add_argument("--slow-s", type=seconds, metavar="S", help="for how long they may hold senders up (preset's)")
    target.add_argument(
        "--heartbeat-s", type=seconds, metavar="S", help="time between heartbeats, in seconds (preset's)"
    )
    target.add_argument(
        "--message-bytes-max", type=positive, metavar="N", help="bytes of the largest message (268435456)"
    )


def add_group_network(target: argparse.ArgumentParser) -> None:
    """Adds the settings that name the group's place in the network, without the interface."""
    target.add_argument(
        "--port", type=port, metavar="N", help="UDP port of the group, which also uses the next one (47310)"
    )
    target.add_argument("--address", help="multicast address of the group (default: derived from its name)")
    target.add_argument("--ip-version", type=int, choices=(4, 6), help="version of IP (4)")
    target.add_argument("--transport", choices=TRANSPORTS, help="how messages to the group travel (auto)")
    target.add_argument(
        "--seeds", metavar="HOST,...", help="not with multicast alone: addresses of possible members, HOST or HOST:PORT"
    )
    target.add_argument(
        "--port-range",
        type=lambda text: whole(text, 0, 1000),
        metavar="N",
        help="without multicast, or with --seeds: ports after --port that members may have (4)",
    )
    target.add_argument("--ttl", type=lambda text: whole(text, 0, 255), metavar="N", help="networks to cross (1)")
    add_key(target, CIPHERS)


def group_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of ``seqcast.join`` behind ``add_group_options``, or a part of that."""
    settings = {name: getattr(arguments, name, None) for name in ("interface", "journal", "found")}
    settings["join_timeout_s"] = getattr(arguments, "timeout", None)
    if settings["journal"] == "":  # from a shell variable without a value: no journal would be kept
        raise UsageError("--journal is empty: give a directory, or leave the option out")
    given = {name: value for name, value in settings.items() if value is not None} | shared_settings(arguments)
    order, name = given.pop("order"), getattr(arguments, "name", None)
    config = Config.for_command(**given).for_guest(**given)
    return {"name": name, "order": order, "config": config}


def shared_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that ``add_shared_options`` stands for; those that were not given are left out."""
    settings = {name: getattr(arguments, name, None) for name in SHARED}
    return {name: value for name, value in settings.items() if value is not None}


def network_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that ``--interface`` and ``add_group_network`` stand for."""
    settings = {name: getattr(arguments, name) for name in derive.NETWORK}
    return {name: value for name, value in settings.items() if value is not None}


def port(text: str) -> int:
    """A port number whose successor is a port number too."""
    return whole(text, 1, 65534)
