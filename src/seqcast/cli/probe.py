"""``seqcast probe``: a group as its members on this machine know it, read from their boards."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqcast.board.judge import groups, readiness, spokesman, strays, troubles_here, unreadable
from seqcast.board.place import folders
from seqcast.board.read import Board, BoardError, boards, read
from seqcast.cli import complain
from seqcast.cli.seen import NotAsked, history, sketch, table
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
        why = readiness(found, arguments.members or 1, arguments.stall)
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
    before = {board.path: board for board in found}
    if not arguments.all:
        time.sleep(BETWEEN_S)
        found = [board for board in boards(arguments.cluster) if board.path in before] or found
    shown, silent = list[Shown](), False
    for group, wrong in _with_the_last(_living(found), others):
        try:
            one = _of_all(group, wrong, arguments) if arguments.all else _of_boards(group, before, wrong, arguments)
        except (NotAsked, OSError, BoardError) as error:
            silent = True
            for line in (str(error), *(each.line() for each in wrong)):
                say(line)
        else:
            shown.append(one)
    if not shown:
        return 1
    if arguments.json:
        first, *rest = (said for said, _ in shown)
        print(json.dumps(first | ({"beside": rest} if rest else {})))
    else:
        print("\n\n".join("\n".join(lines) for _, lines in shown))
    return 1 if silent or any(said["findings"] for said, _ in shown) else 0


Shown = tuple[dict[str, Any], list[str]]
"""A group as an object, and as lines."""


def _living(found: Sequence[Board]) -> list[list[Board]]:
    """The boards of each group of which a member runs here, the spokesman's group first; if none does, those of the
    group that ran last."""
    first = spokesman(found)
    parts = sorted(groups(found), key=lambda part: all(board is not first for board in part))
    return [part for part in parts if any(board.alive for board in part)] or parts[:1]


def _with_the_last(parts: Sequence[list[Board]], others: list[Finding]) -> Iterator[tuple[list[Board], list[Finding]]]:
    """The members that cannot be shown are named with the last group."""
    for number, part in enumerate(parts, 1):
        yield part, others if number == len(parts) else []


def _of_boards(
    group: Sequence[Board], before: Mapping[Path, Board], others: Sequence[Finding], arguments: argparse.Namespace
) -> Shown:
    """The group as the boards here show it.

    Raises:
        NotAsked: with ``--known``, the member's process did not answer.
    """
    board = spokesman(group)
    wrong = [*troubles_here(board, group, arguments.stall), *others]
    said, lines = sketch(board, group, before, wrong), table(board, group, before, wrong)
    if arguments.known:
        from seqcast.cli import seen_all

        known = seen_all.known(board)
        return said | {"known": known}, lines + seen_all.known_lines(known)
    return said, lines + history(board)


def _of_all(group: Sequence[Board], others: Sequence[Finding], arguments: argparse.Namespace) -> Shown:
    """The group as the reports of all members show it.

    Raises:
        NotAsked, OSError, BoardError: the member here did not answer.
    """
    from seqcast.cli import seen_all

    board = spokesman(group)
    before = seen_all.ask(board)
    seen = seen_all.ask(read(board.path))
    wrong = [*seen_all.findings(board, seen, arguments.stall, group), *strays(board, group, arguments.stall), *others]
    return seen_all.sketch(board, seen, wrong), seen_all.table(board, seen, before, wrong)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "probe",
        "Show a group as its members on this machine see it: who hears whom (m by multicast, u by unicast, . not at\n"
        "all), how many packets of this member each one lacks (lag) and has not taken (untaken), rates, and the last\n"
        "views and warnings with their reasons. The command reads the members' boards and asks no process, so\n"
        "members that hang are shown too, and those that were killed within the last hour.",
        "exit status: 0; 1 if a member does not hear another one, is blocked, waits to join, or holds senders up;\n"
        "with --ready, 0 if the members here are ready\n"
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
    result.add_argument("--members", type=positive, metavar="N", help="with --ready: the view has N members (1)")
    result.add_argument(
        "--stall",
        type=seconds,
        default=1.0,
        metavar="S",
        help="longest wait of senders for one member that still passes (%(default)g s)",
    )
    result.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = result.parse_args(argv)
    if arguments.members and not arguments.ready:
        result.error("--members is the number that --ready waits for: give --ready, too, or leave --members out")
    return arguments
