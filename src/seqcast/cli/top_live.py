"""The live table of ``seqcast top``: colours, and keys."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seqcast.api.counters import COUNTERS
from seqcast.board.judge import unreadable
from seqcast.board.read import Board, boards, pid_namespace, threads
from seqcast.cli.seen import NOBODY, RATES, headings, history, number, of_groups, rows, summary, wrong_in
from seqcast.codes import Finding

EVENTS = 40
HELP = "q quit   e events   s sort by the next column   m threads and counters of the next member"
SPARED = ["silent ms", "path", "lag ms", "resent/s", "rtt ms", "untaken", "address"]
"""Columns that a narrow screen does without, the first one first: others would be cut, and with them who hears whom."""
GAP = 2
"""Spaces between two columns."""
SEQUENCE = re.compile("\x1b(\\[[0-?]*[ -/]*[@-~]|O.)?")
"""The characters that a terminal sends for an arrow or another key without a letter."""
READ_MAX = 1024
SORTED = ["", "rtt ms", "lag", "lag ms", "untaken", "silent ms", *(name for name, _ in RATES)]
"""The columns by which members are sorted, the largest first; "": by rank."""


def live(cluster: str, every_s: float) -> int:
    """Shows the groups until q or Ctrl-C."""
    before, page, shown, by = boards(cluster), "", 0, 0
    with _keys() as pressed, Live(screen=True, auto_refresh=False) as screen, contextlib.suppress(KeyboardInterrupt):
        while True:
            found = boards(cluster)
            width = screen.console.width
            screen.update(drawn(found, before, page, shown, unreadable(cluster), SORTED[by], width), refresh=True)
            before, end = found, time.monotonic() + every_s
            keys = pressed(every_s)
            while not keys and (left := end - time.monotonic()) > 0:
                keys = pressed(left)
            for key in keys:
                if key == "q":
                    return 0
                if key == "s":
                    page, by = "", (by + (page == "")) % len(SORTED)
                elif key == "e":
                    page = "" if page == "events" else "events"
                elif key == "m":
                    page, shown = "member", shown + (page == "member")
    return 0


def drawn(
    found: Sequence[Board],
    before: Sequence[Board],
    page: str,
    shown: int,
    others: Sequence[Finding],
    by: str = "",
    width: int = sys.maxsize,
) -> Group:
    """One look.

    Args:
        page: "events": the flight recorders; "member": the threads and the counters of the board number ``shown``, with
            their meanings; "": a table for each group.
        others: the members that cannot be shown.
        by: the column of the table by which members are sorted.
        width: of the screen.
    """
    if page == "member" and found:
        board = found[shown % len(found)]
        return Group(Text(summary(board), style="bold"), *_threads(board), _counters(board), Text(HELP, style="dim"))
    parts: list[Text | Table] = []
    for board in of_groups(found):
        parts.append(Text(summary(board), style="bold"))
        if page == "events":
            parts += [Text(line) for line in history(board, EVENTS)]
            continue
        table = Table(box=None, pad_edge=False)
        names = headings(board)
        members = rows(board, found, {each.path: each for each in before})
        if by:
            members.sort(key=lambda row: number(row[names.index(by)]), reverse=True)
        columns = _fitting(names, members, by, width)
        for at in columns:
            table.add_column(f"{names[at]} ▼" if names[at] == by else names[at], no_wrap=True)
        for row in members:
            table.add_row(*(Text(row[at], style="red" if "." in row[at].split() else "") for at in columns))
        parts.append(table)
        parts += [Text(each.line(), style="red") for each in wrong_in(board, found)]
        parts.append(Text(""))
    parts += [Text(each.line(), style="red") for each in others]
    return Group(*(parts or [Text(NOBODY)]), Text(HELP, style="dim"))


def _fitting(names: Sequence[str], members: Sequence[Sequence[str]], by: str, width: int) -> list[int]:
    """The columns for which a screen has room."""
    wide = [max(len(row[at]) for row in (names, *members)) + GAP for at in range(len(names))]
    columns = list(range(len(names)))
    for spared in SPARED:
        if sum(wide[at] for at in columns) <= width:
            break
        if spared != by:
            columns.remove(names.index(spared))
    return columns


def _threads(board: Board) -> list[Table]:
    here = board.alive and board.about["pids"] == pid_namespace()
    if not here or not (found := threads(board.about["pid"])):
        return []
    table = Table("thread", "may run on cores", "ran on", "CPU s", box=None, pad_edge=False)
    for each in found:
        table.add_row(*each)
    return [table]


def _counters(board: Board) -> Table:
    table = Table(box=None, pad_edge=False)
    for counters in COUNTERS.values():
        for name, text in counters.items():
            if board.counters.get(name):
                table.add_row(name, f"{board.counters[name]:,}", text)
    return table


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, at most this many seconds, and returns all that were pressed, or ""."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield lambda seconds: _read(number) if select.select([number], [], [], seconds)[0] else ""
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _read(number: int) -> str:
    """The keys that wait at a terminal, "q" if there is none any more. They are read without a buffer: ``select`` would
    not see those that wait in one."""
    text = os.read(number, READ_MAX).decode("latin-1")
    return SEQUENCE.sub("", text) if text else "q"
