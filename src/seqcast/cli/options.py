"""Options that several commands have, and how they become ``seqcast.join``'s settings."""

from __future__ import annotations

import argparse
from typing import Any

from seqcast.commandline import Parser, seconds

ORDERS = ("total", "sequencer", "fifo")


def parser(command: str, text: str, epilog: str) -> Parser:
    """The parser of a command that has the settings of ``seqcast.join``, and where else they may stand."""
    everywhere = "all settings: SEQCAST_<SETTING>=... in the environment, or SEQCAST_CONFIG=file.toml"
    return Parser(command, text, f"{epilog}\n{everywhere}")


def add_group_options(target: argparse.ArgumentParser) -> None:
    """Adds what every command that joins a group has."""
    target.add_argument("cluster", metavar="CLUSTER", help="name of the group, the same at all its members")
    target.add_argument("--name", help="name of this member, unique in the group (default: host name and process id)")
    target.add_argument("--interface", help="network interface, by name or address (default: chosen by the routes)")
    target.add_argument(
        "--order", choices=ORDERS, default="total", help="total order, or order per sender (%(default)s)"
    )
    target.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds to wait for the group (default: join_timeout_s, 10)"
    )


def group_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of ``seqcast.join`` that ``add_group_options`` stands for."""
    settings: dict[str, Any] = {"order": arguments.order}
    if arguments.name:
        settings["name"] = arguments.name
    if arguments.interface:
        settings["interface"] = arguments.interface
    if arguments.timeout is not None:
        settings["join_timeout_s"] = arguments.timeout
    return settings
