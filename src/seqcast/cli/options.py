"""Options that several commands have, and how they become ``seqcast.join``'s settings."""

from __future__ import annotations

import argparse
from typing import Any

ORDERS = ("total", "sequencer", "fifo")


def parser(command: str, text: str, epilog: str = "") -> argparse.ArgumentParser:
    """An argument parser in the style of all commands: the first line of ``text`` is what it does."""
    return argparse.ArgumentParser(
        prog=f"seqcast {command}",
        description=text,
        epilog=epilog
        and f"{epilog}\nall settings: SEQCAST_<SETTING>=... in the environment, or SEQCAST_CONFIG=file.toml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_group_options(target: argparse.ArgumentParser) -> None:
    """Adds what every command that joins a group has."""
    target.add_argument("cluster", metavar="CLUSTER", help="name of the group, the same at all its members")
    target.add_argument("--name", help="name of this member, unique in the group (default: host name and process id)")
    target.add_argument("--interface", help="network interface, by name or address (default: chosen by the routes)")
    target.add_argument(
        "--order", choices=ORDERS, default="total", help="total order, or order per sender (%(default)s)"
    )
    target.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="seconds to wait for the group (%(default)g)"
    )


def group_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings of ``seqcast.join`` that ``add_group_options`` stands for."""
    settings: dict[str, Any] = {"order": arguments.order, "join_timeout_s": arguments.timeout}
    if arguments.name:
        settings["name"] = arguments.name
    if arguments.interface:
        settings["interface"] = arguments.interface
    return settings


def seconds(text: str) -> float:
    """An argument that is a time in seconds, not negative."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError("must be a number of seconds, 0 or more")
    return value


def positive(text: str) -> int:
    """An argument that is a whole number, 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
