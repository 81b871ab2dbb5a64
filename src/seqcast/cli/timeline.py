"""``seqcast timeline``: the last events of all members, from their boards in archives of ``seqcast debug``."""

from __future__ import annotations

import argparse
import re
import tarfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seqcast.board.place import BYTES
from seqcast.board.read import Board, BoardError, kept
from seqcast.cli import complain
from seqcast.commandline import Parser
from seqcast.errors import UsageError

NEEDS = ()
BOARDS_MAX = 256
"""The most boards of one archive."""
ENTERED = re.compile(r"(?:joined: )?view (\d+) \[")
"""The line of a member that enters a view."""


class Moment(NamedTuple):
    """An event in the order of all.

    Args:
        view: number of the member's view then: views order events, whatever the clocks say.
        wall_ns: by the clock of its machine, which orders those of one view.
        member: whose board has the event.
        text: of the event.
    """

    view: int
    wall_ns: int
    member: str
    text: str


def main(arguments: argparse.Namespace) -> int:
    """Prints a line for each event."""
    found = [board for name in arguments.archives for board in _boards(Path(name))]
    if not found:
        return complain("the archives have no boards", 1)
    for moment in in_order(found):
        seconds, ns = divmod(moment.wall_ns, 10**9)
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        print(f"{at}.{ns // 10**6:03}  view {moment.view:<4} {moment.member}: {moment.text}")
    return 0


def in_order(found: Sequence[Board]) -> list[Moment]:
    """The events of boards in one order, in which each member's keep theirs; each event once, however many boards are
    copies of one member's."""
    copies = dict[int, list[Board]]()
    for number, board in enumerate(found, 1):
        copies.setdefault(board.about["id"] or -number, []).append(board)  # 0: the text about the member is torn
    moments = [moment for each in copies.values() for moment in _of_member(each)]
    return sorted(moments, key=lambda moment: (moment.view, moment.wall_ns))


def _of_member(copies: Sequence[Board]) -> Iterator[Moment]:
    """The events of one member, from copies of its board.

    Where events are missing, as the ring keeps the last ones only, the view is the one before that of the next line of
    a view, or that of the board if there is no such line.
    """
    copies = sorted(copies, key=lambda board: board.gauges["posted"])
    last = copies[-1]
    events = {event.number: event for board in copies for event in board.events}
    entered = {number: int(line[1]) for number, event in events.items() if (line := ENTERED.match(event.text))}
    view, before = 0, 0
    for number, event in sorted(events.items()):
        if number != before + 1:
            later = (entered[each] - 1 for each in sorted(entered) if each >= number)
            view = max(view, next(later, last.about["view"]["counter"]))
        view, before = max(view, entered.get(number, 0)), number
        whom = f" ({last.name_of(event.member)})" if event.member else ""
        yield Moment(view, event.at + last.about["clock"], last.name, event.text + whom)


def _boards(path: Path) -> Iterator[Board]:
    """The boards in an archive.

    Raises:
        UsageError: unreadable.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            seen = 0
            for entry in archive:
                if not entry.isreg() or not entry.name.endswith(".board"):
                    continue
                seen += 1
                file = archive.extractfile(entry)
                if file is None or seen > BOARDS_MAX:
                    break
                try:
                    yield kept(Path(entry.name), file.read(BYTES + 1))
                except BoardError as error:
                    complain(f"{path}, {entry.name}: {error}")
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read as an archive of `seqcast debug`: {error}") from None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = Parser(
        "timeline",
        "Print the last events of all members in one order: the views that members enter order them, whatever the\n"
        "clocks of their machines say, and within a view the clocks do.",
        "example: seqcast timeline orders-*.tar.gz",
    )
    result.add_argument("archives", metavar="OUT.tar.gz", nargs="+", help="archive that `seqcast debug` wrote")
    return result.parse_args(argv)
