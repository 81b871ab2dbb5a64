"""``seqcast unblock``: let a blocked minority continue when the majority is gone for good."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from seqcast.arguments import check_name
from seqcast.cli import complain
from seqcast.cli.options import add_group_network, network_settings, parser
from seqcast.commandline import count, seconds
from seqcast.config import Config

NEEDS = ("seqcast.net.operator",)
ASK_S = 1.0
"""Time to collect answers before a side is chosen, s: several sides may be blocked."""


def main(arguments: argparse.Namespace) -> int:
    """Asks which members are blocked, and lets them continue."""
    from seqcast.net.operator import OperatorRunner

    check_name("cluster", arguments.cluster)
    config = Config.for_command(**network_settings(arguments))
    with OperatorRunner(arguments.cluster, config, ASK_S, arguments.timeout) as runner:
        operator = runner.operator
        runner.ask()
        if arguments.list and operator.answers:
            for reached, missing in dict.fromkeys((each.reached, each.missing) for each in operator.answers.values()):
                print(f"blocked: {', '.join(reached)}; out of reach: {', '.join(missing)}")
            return 0
        operator.choose(arguments.member)
        runner.allow()
    if not operator.accepted:
        return complain(
            f"none of {', '.join(operator.reached)} accepted: they are no longer blocked, or not as they were", 1
        )
    without = f"without {count(len(operator.missing), 'member')}, {', '.join(operator.missing)}"
    if silent := sorted(set(operator.reached) - set(operator.accepted)):
        print(
            f"accepted by {', '.join(operator.accepted)}, and not by {', '.join(silent)} so far: run the command again "
            f"if the group does not continue {without}"
        )
    else:
        print(f"accepted by {', '.join(operator.accepted)}: the group continues {without}")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = parser(
        "unblock",
        'Let a blocked minority of a group with partition="primary" continue when the majority is gone for good.\n\n'
        "Members are asked by multicast, at --seeds, and at addresses that members on this machine know; a blocked\n"
        "one names the others of its side. The blocked members that this machine can reach become the group.\n"
        "Messages that only the other members had are lost.\n"
        "If those are still alive, on the other side of a partition, there are now two groups, which never merge:\n"
        "one of them must end, and its work since then is lost. Before you run this command, make sure that the\n"
        "unreachable processes have really ended.\n\n"
        "Without a key the command is not authenticated: any host that can send datagrams to the group's port can run\n"
        "it. With one (--key), whoever has the key file can.",
        "exit status: 0 if a member accepted; 1 if no member is blocked, or several sides are; 2 for bad input\n"
        "example: seqcast unblock orders",
    )
    result.add_argument("cluster", metavar="CLUSTER", help="name of the group")
    result.add_argument("--interface", help="network interface, by name or address (default: as the system routes)")
    add_group_network(result)
    result.add_argument(
        "--member", default="", metavar="NAME", help="if several sides are blocked, choose that of this member"
    )
    result.add_argument("--list", action="store_true", help="only list the blocked members")
    result.add_argument(
        "--timeout",
        type=seconds,
        default=3.0,
        metavar="S",
        help="how long to wait for all to accept, in seconds (%(default)g)",
    )
    return result.parse_args(argv)
