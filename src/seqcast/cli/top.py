"""``seqcast top``: the groups of this machine, live."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec

from seqcast.board.judge import unreadable
from seqcast.board.read import Board, boards
from seqcast.cli import complain
from seqcast.cli.seen import NOBODY, history, of_groups, table, wrong_in
from seqcast.codes import Finding
from seqcast.commandline import Parser, positive, seconds

NEEDS = ()
CLEAR = "\x1b[H\x1b[2J"
DUMB = ("dumb", "unknown")
"""Values of TERM for terminals that cannot move the cursor."""


def main(arguments: argparse.Namespace) -> int:
    """Prints the tables until an interrupt, or ``--count`` times."""
    screen = sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in DUMB
    if screen and not arguments.plain and arguments.count is None:
        if find_spec("termios") is None:
            return complain("this Python has no termios, and so no keys of a terminal: give --plain")
        from seqcast.cli.top_live import live

        return live(arguments.cluster, arguments.every)
    before: list[Board] = boards(arguments.cluster)
    left = arguments.count or -1
    try:
        while left:
            time.sleep(arguments.every)
            found = boards(arguments.cluster)
            if screen:
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
    return lines or [NOBODY]


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
        "--plain",
        action="store_true",
        help="plain text without colours and keys (default if the output is no terminal, or one with TERM=dumb)",
    )
    result.add_argument("--every", type=seconds, default=1.0, metavar="S", help="seconds between looks (%(default)g)")
    result.add_argument("--count", type=positive, metavar="N", help="plain text, too; end after N looks")
    return result.parse_args(argv)
