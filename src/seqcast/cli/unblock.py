"""``seqcast unblock``: let a minority go on whose majority is gone for good."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from seqcast.arguments import check_name
from seqcast.cli import complain
from seqcast.cli.options import parser, port
from seqcast.commandline import count, seconds
from seqcast.config import Config
from seqcast.net.operator import OperatorHost

ASK_S = 1.0
"""Answers are awaited for so long before a side is chosen: several sides may be blocked."""


def main(argv: Sequence[str]) -> int:
    """Asks which members are blocked, and lets them go on."""
    arguments = _parser().parse_args(argv)
    check_name("cluster", arguments.cluster)
    config = Config.from_environment()
    if arguments.interface:
        config = config.replace(interface=arguments.interface)
    if arguments.port:
        config = config.replace(port=arguments.port)
    with OperatorHost(arguments.cluster, config, ASK_S, arguments.timeout) as host:
        operator = host.operator
        host.ask()
        if arguments.list and operator.answers:
            for reached, missing in dict.fromkeys((each.reached, each.missing) for each in operator.answers.values()):
                print(f"blocked: {', '.join(reached)}; out of reach: {', '.join(missing)}")
            return 0
        operator.choose(arguments.member)
        host.allow()
    if not operator.accepted:
        return complain(f"none of {', '.join(operator.reached)} accepted: they are not blocked as they were", 1)
    silent = sorted(set(operator.reached) - set(operator.accepted))
    print(
        f"accepted by {', '.join(operator.accepted)}"
        + (f" (no answer of {', '.join(silent)})" if silent else "")
        + f": the group goes on without {count(len(operator.missing), 'member')}, {', '.join(operator.missing)}"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    result = parser(
        "unblock",
        'Let a minority of a group with partition="primary" go on, when the majority is gone for good.\n\n'
        "The members that are blocked and can be reached from here become the group. What only the others had is\n"
        "lost. If the others are alive after all, on the other side of a partition, there are two groups; when they\n"
        "meet, the members of the smaller one are excluded, and what they did meanwhile is lost. So make sure that\n"
        "the processes out of reach have really ended before you give this command.\n\n"
        "The command is not authenticated: any host that can send datagrams to the group's port can give it.",
        "exit status: 0 if a member accepted; 1 if no member is blocked, or several sides are; 2 for bad input\n"
        "example: seqcast unblock orders",
    )
    result.add_argument("cluster", metavar="CLUSTER", help="name of the group")
    result.add_argument("--interface", help="network interface, by name or address (default: chosen by the routes)")
    result.add_argument("--port", type=port, metavar="N", help="UDP port of the group (47310)")
    result.add_argument(
        "--member", default="", metavar="NAME", help="if several sides are blocked: that of this member"
    )
    result.add_argument("--list", action="store_true", help="only list the blocked members")
    result.add_argument(
        "--timeout", type=seconds, default=3.0, metavar="S", help="seconds to wait until all accept (%(default)g)"
    )
    return result
