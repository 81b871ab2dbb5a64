"""``seqcast top``: the groups of this machine, live."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from seqcast.board.judge import unreadable
from seqcast.board.read import Board, boards
from seqcast.cli.seen import history, of_groups, table, wrong_in
from seqcast.codes import Finding
from seqcast.commandline import Parser, positive, seconds

NEEDS = ()
CLEAR = "\x1b[H\x1b[2J"


def main(arguments: argparse.Namespace) -> int:
    """Prints the tables until an interrupt, or ``--count`` times."""
    if not arguments.plain and sys.stdout.isatty():
        from seqcast.cli.top_live import live

        return live(arguments.cluster, arguments.every)
    before: list[Board] = boards(arguments.cluster)
    left = arguments.count
    try:
        while left:
            time.sleep(arguments.every)
            found = boards(arguments.cluster)
            if sys.stdout.isatty():
                print(CLEAR, end="")
            print("\n".join(page(found, before, unreadable(arguments.cluster))), flush=True)
            before, left = found, left - 1
    except KeyboardInterrupt:
        return 0
    return 0


def page(found: Sequence[Board], before: Sequence[Board], others: Sequence[Finding]) -> list[str]:
    """The lines of one look: a table for each group on this machine, and the members that cannot be shown."""
    old = {board.path: board for board in before}
    lines = []
    for board in of_groups(found):
        lines += [*table(board, found, old, wrong_in(board, found)), *history(board), ""]
    lines += [each.line() for each in others]
    return lines or ["no member of a group runs here as this user, or all have board=False"]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "top",
        "Show the groups of this machine, live, as `seqcast probe` shows one: from the members' boards, without\n"
        "asking any process. Members that were killed within the last hour are shown with their last state.",
        "example: seqcast top --plain --count 1",
    )
    result.add_argument("cluster", metavar="CLUSTER", nargs="?", default="", help="only this group")
    result.add_argument(
        "--plain", action="store_true", help="plain text without colours and keys, as where the output is no terminal"
    )
    result.add_argument("--every", type=seconds, default=1.0, metavar="S", help="seconds between looks (%(default)g)")
    result.add_argument("--count", type=positive, default=-1, metavar="N", help="with --plain: end after N looks")
    return result.parse_args(argv)
