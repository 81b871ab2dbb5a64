"""``seqcast probe``: a group as its members on this machine know it, read from their boards."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from seqcast.board.judge import readiness, spokesman, strays, troubles_here, unreadable
from seqcast.board.place import folders
from seqcast.board.read import Board, BoardError, boards, read
from seqcast.cli import complain
from seqcast.cli.seen import history, sketch, table
from seqcast.codes import Finding
from seqcast.commandline import Parser, positive, say, seconds

NEEDS = ()
BETWEEN_S = 0.25
"""Time between the two looks from which rates are computed, s."""


def main(arguments: argparse.Namespace) -> int:
    """Prints the group by a member on this machine."""
    found = [board for board in boards(arguments.cluster) if arguments.member in ("", board.name)]
    others = unreadable(arguments.cluster)
    if arguments.ready:
        why = readiness(found, arguments.members, arguments.stall)
        if arguments.json:
            print(json.dumps({"ready": not why, "why": why}))
        else:
            print(f"not ready: {why}" if why else "ready")
        for each in others:
            say(each.line())
        return 1 if why else 0
    if not found:
        whom = f"member {arguments.member} of " if arguments.member else ""
        return complain(
            f"no board of {whom}{arguments.cluster!r} in {' or '.join(map(str, dict.fromkeys(folders())))}: no member "
            "runs on this machine as this user, or only one with board=False or another "
            f"XDG_RUNTIME_DIR{''.join(f'; {each.line()}' for each in others)}",
            1,
        )
    if arguments.all:
        board = spokesman(found)
        return _of_all(board, [*strays(board, found, arguments.stall), *others], arguments)
    before = {board.path: board for board in found}
    time.sleep(BETWEEN_S)
    found = [board for board in boards(arguments.cluster) if board.path in before] or found
    seen_by = spokesman(found)
    wrong = troubles_here(seen_by, found, arguments.stall) + others
    more, lines = {}, history(seen_by)
    if arguments.known:
        from seqcast.cli import seen_all

        try:
            more = {"known": seen_all.known(seen_by)}
        except seen_all.NotAsked as error:
            return complain(str(error), 1)
        lines = seen_all.known_lines(more["known"])
    if arguments.json:
        print(json.dumps(sketch(seen_by, found, before, wrong) | more))
    else:
        for line in [*table(seen_by, found, before, wrong), *lines]:
            print(line)
    return 1 if wrong else 0


def _of_all(board: Board, others: Sequence[Finding], arguments: argparse.Namespace) -> int:
    """Prints the reports of all members."""
    from seqcast.cli import seen_all

    try:
        before = seen_all.ask(board)
        seen = seen_all.ask(read(board.path))
    except (seen_all.NotAsked, OSError, BoardError) as error:
        return complain(str(error), 1)
    wrong = [*seen_all.findings(board, seen, arguments.stall), *others]
    if arguments.json:
        print(json.dumps(seen_all.sketch(board, seen, wrong)))
    else:
        print("\n".join(seen_all.table(board, seen, before, wrong)))
    return 1 if wrong else 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "probe",
        "Show a group as its members on this machine see it: who hears whom (m by multicast, u by unicast, . not at\n"
        "all), how many packets of this member each one lacks (lag) and has not taken (untaken), rates, and the last\n"
        "views and warnings with their reasons. The command reads the members' boards and asks no process, so\n"
        "members that hang are shown too, and those that were killed within the last hour.",
        "exit status: 0; 1 if a member does not hear another one, is blocked, or holds senders up; with --ready, 0 if\n"
        "the members here are ready\n"
        "example: seqcast probe orders --ready --members 3",
    )
    result.add_argument("cluster", metavar="CLUSTER", help="name of the group")
    result.add_argument("--member", default="", metavar="NAME", help="show the view of this member on this machine")
    one = result.add_mutually_exclusive_group()
    one.add_argument(
        "--all",
        action="store_true",
        help="ask the members on other machines, too: the one here asks them, and they answer members only",
    )
    one.add_argument(
        "--known",
        action="store_true",
        help="ask the member's process, too: settings and their origins, views, warnings, states, journal",
    )
    one.add_argument(
        "--ready", action="store_true", help="only say in one line whether all members on this machine are ready"
    )
    result.add_argument(
        "--members", type=positive, default=1, metavar="N", help="with --ready: the view has N members (%(default)s)"
    )
    result.add_argument(
        "--stall",
        type=seconds,
        default=1.0,
        metavar="S",
        help="longest wait of senders for one member that still passes (%(default)g s)",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object")
    return result.parse_args(argv)
