"""A group as its boards show it: as a table for people, and as a JSON object."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqcast.board.judge import STALL_S, groups, name_at, spokesman, troubles, troubles_here, way
from seqcast.board.read import Board
from seqcast.codes import Finding

MATRIX_MAX = 24
"""Columns of the matrix of who hears whom; with more members only the rows with trouble are named."""
HISTORY = 8
TERSE = {"links changed", "cut reached", "senders begin or cease to wait", "suspected"}
"""Reports of the engine that are followed by a line of the log, with names and reasons, unless Python hangs."""
RATES = (("sent/s", "messages_sent"), ("got/s", "messages_delivered"), ("resent/s", "packets_retransmitted"))

NOBODY = "no member of a group runs here as this user, or all have board=False"


class NotAsked(Exception):
    """The member on this machine cannot be asked."""


def table(board: Board, found: Sequence[Board], before: Mapping[Path, Board], wrong: Sequence[Finding]) -> list[str]:
    """The lines that `probe` prints.

    Args:
        board: of the member by which the group is seen.
        found: the boards of the group on this machine.
        before: the same, a moment ago.
        wrong: findings, which follow the table.
    """
    cells = [headings(board), *rows(board, found, before)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [summary(board), *("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)]
    return lines + [each.line() for each in wrong]


def rows(board: Board, found: Sequence[Board], before: Mapping[Path, Board]) -> list[list[str]]:
    """The cells of each member."""
    return [_row(board, rank, _rates(board, rank, found, before)) for rank in range(len(board.members))]


def of_groups(found: Sequence[Board]) -> list[Board]:
    """The boards that show the groups: for each group that of a running member, and those of members that have
    ended."""
    shown: list[Board] = []
    for group in groups(found):
        living = [board for board in group if board.alive]
        shown += [spokesman(living)] if living else []
        shown += [board for board in group if not board.alive]
    return shown


def wrong_in(board: Board, found: Sequence[Board]) -> list[Finding]:
    """The faults under the table of one of ``of_groups``; for a running member also those of the others here."""
    group = [each for each in found if each.cluster == board.cluster]
    return troubles_here(board, group, STALL_S) if board.alive else troubles(board, STALL_S)


def summary(board: Board) -> str:
    """The first line."""
    about, view = board.about, board.about["view"]
    if not view["members"]:
        return f"{board.cluster}: {board.name} is {about['status']['name']}: {about['status']['reason']}"
    members = view["members"]
    by_rank = {rank: f", sequencer {member['name']}" for rank, member in enumerate(members)}
    sequencer = by_rank.get(view["sequencer"], "")
    status = about["status"]["name"]
    here = f"{board.name} (here)" if board.alive else f"{board.name} (ended)"
    return (
        f"{board.cluster}  view {view['counter']}  {counted(members)}  order {view['order']} ({view['mechanism']}"
        f"{sequencer})  {about['transport']} on {about['interface']}{_since(board)}{_sealed(board)}  seen by {here}, "
        f"{status}"
    )


def _since(board: Board) -> str:
    """The age of the view, of a member that runs."""
    since = board.about["view"]["since"]
    if not since or not board.alive:
        return ""
    seconds = max(0, board.read_ns + board.about["clock"] - since) // 10**9
    (hours, minutes), seconds = divmod(seconds // 60, 60), seconds % 60
    return f"  since {hours} h {minutes} min" if hours else f"  since {minutes} min {seconds} s"


def _sealed(board: Board) -> str:
    """With a key: the cipher of the view, the age of its secret, and the ids of the keys."""
    seal = board.about["seal"]
    if not (seal["cipher"] and seal["keys"]):
        return ""
    first, *others = seal["keys"]
    opens = f", opens {', '.join(others)} too" if others else ""
    return (
        f"  {seal['cipher']} with a secret {max(0, board.read_ns - seal['since']) // 10**9} s old, key {first}{opens}"
    )


def counted(members: Sequence[object]) -> str:
    """How many there are, in words."""
    return f"{len(members)} member{'s' if len(members) != 1 else ''}"


def letters(names: Sequence[str]) -> list[str]:
    """A character for each name: the first ones, or the last ones if only these differ, as for node-1 and node-2."""
    first, last = ([name[i : i + 1 or None] or "?" for name in names] for i in (0, -1))
    return last if len(set(first)) < len(names) == len(set(last)) else first


def headings(board: Board) -> list[str]:
    """The headings of the columns."""
    n = len(board.members)
    names = [name_at(board, rank) for rank in range(n)]
    hears = f"hears {' '.join(letters(names))}" if n <= MATRIX_MAX else "hears all"
    measured = ["rtt ms", "path", "lag", "lag ms", "untaken", "silent ms"]
    return ["member", "address", hears, *measured, *(name for name, _ in RATES), "state"]


def _row(board: Board, rank: int, rates: Sequence[float | None]) -> list[str]:
    row, mine = board.members[rank], rank == board.gauges["rank"]
    ways = [way(board, rank, other) if other != rank else "-" for other in range(len(board.members))]
    if len(ways) > MATRIX_MAX:
        hears = "no" if "." in ways else "yes"
    else:
        hears = "      " + " ".join(ways)
    last = board.gauges["last"]
    lag, untaken = ("-", "-") if mine else (str(last - row["delivered"]), str(last - row["consumed"]))
    silent = "-" if mine or not row["heard"] else str(max(0, board.gauges["posted"] - row["heard"]) // 10**6)
    rtt = f"{row['rtt'] / 1e6:.2f}" if row["rtt"] else "-" if mine else ""
    path = str(row["path_bytes"]) if row["path_bytes"] else "-" if mine else ""
    late = "-" if mine else f"{row['lag_ns'] / 1e6:.0f}"
    seen = (hears, rtt, path, lag, late, untaken, silent)
    shown = ["" if rate is None else short(rate) for rate in rates]
    return [name_at(board, rank), _address(board, row["id"]), *seen, *shown, _state(board, row)]


def _address(board: Board, member: int) -> str:
    return str(_said(board, member, "address", "?"))


def _said(board: Board, member: int, field: str, unknown: Any) -> Any:
    """A field of a member, as the board shows it."""
    members = board.about["view"]["members"]
    return next((each[field] for each in members if each["id"] == member), unknown)


def _state(board: Board, row: Mapping[str, int]) -> str:
    words = ["observes"] if _said(board, row["id"], "observer", False) else []
    words += [word for word in ("suspected", "doubted", "slow") if row[word]]
    if board.gauges["held_by"] == row["id"]:
        words.append(f"holds up {board.name}")
    if not row["present"]:
        words.append("enters")
    return ", ".join(words)


def _rates(board: Board, rank: int, found: Sequence[Board], before: Mapping[Path, Board]) -> list[float | None]:
    """Rates of a member, by its board; None: the board is not here, or there was no look before."""
    own = next((each for each in found if each.about["id"] == board.members[rank]["id"]), None)
    old = before.get(own.path) if own is not None else None
    if own is None or old is None or own.read_ns <= old.read_ns:
        return [None] * len(RATES)
    seconds = (own.read_ns - old.read_ns) / 1e9
    return [(own.counters.get(name, 0) - old.counters.get(name, 0)) / seconds for _, name in RATES]


def short(rate: float) -> str:
    """A rate in few characters."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f}"


def number(cell: str) -> float:
    """The number in a cell, a short one too; -1 for none."""
    value, _, unit = cell.partition(" ")
    return float(value) * {"M": 1e6, "k": 1e3}.get(unit, 1.0) if value.strip("-") else -1.0


def history(board: Board, n: int = HISTORY) -> list[str]:
    """The last events, oldest first, with the time of day; the same one in the same second only once, and those of
    ``TERSE`` only since the last line of the log."""
    lines: list[str] = []
    logged = max((at for at, event in enumerate(board.events) if event.text not in TERSE), default=-1)
    for at, event in enumerate(board.events):
        if at < logged and event.text in TERSE:
            continue
        clock = time.strftime("%H:%M:%S", time.localtime((event.at + board.about["clock"]) / 1e9))
        whom = f" ({board.name_of(event.member)})" if event.member else ""
        line = f"{clock}  {event.text}{whom}"
        if lines[-1:] != [line]:
            lines.append(line)
    return lines[-n:]


def sketch(
    board: Board, found: Sequence[Board], before: Mapping[Path, Board], wrong: Sequence[Finding]
) -> dict[str, Any]:
    """The same as an object."""
    n = len(board.members)
    members = []
    for rank, row in enumerate(board.members):
        rates = _rates(board, rank, found, before)
        members.append(
            {
                "name": name_at(board, rank),
                "address": _address(board, row["id"]),
                "observer": _said(board, row["id"], "observer", False),
                "info": _said(board, row["id"], "info", {}),
                "hears": {name_at(board, other): way(board, rank, other) for other in range(n) if other != rank},
                "rates": {f"{name}_per_s": rate for (_, name), rate in zip(RATES, rates, strict=True)},
                **row,
            }
        )
    return {
        "about": board.about,
        "alive": board.alive,
        "gauges": board.gauges,
        "counters": board.counters,
        "members": members,
        "findings": [each.sketch() for each in wrong],
        "events": [{"at": each.at, "member": each.member, "text": each.text} for each in board.events],
    }
