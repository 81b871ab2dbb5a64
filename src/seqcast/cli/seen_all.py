"""A group by all its members: each speaks for itself, asked by way of one member on this machine."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import seqcast.codes as codes
from seqcast.board.judge import host_of, troubles, unheard, way
from seqcast.board.place import socket_of
from seqcast.board.read import Board, BoardError, plain
from seqcast.board.told import UNKNOWN, Peer, Told, heard, joined
from seqcast.cli.seen import MATRIX_MAX, RATES, NotAsked, letters, short, summary
from seqcast.codes import Finding, finding
from seqcast.commandline import count
from seqcast.core.frames.asking import KNOWN, NO_BOARD, PAGES_MAX

WAIT_S = 5.0
ANSWER_MAX = 16 << 20
MUTE = (codes.ENDED, codes.EXCLUDED, codes.NOT_MEMBER, codes.NOT_RUNNING, codes.PYTHON_HANGS)
"""Faults of a member that explain why a question is not answered."""
TRIES = 3
"""How often one page is asked for if answers are missing."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The reports on one member.

    Args:
        age: ns since the answer; 0: now.
        told: the answer; None: there is none.
        boardless: the answer is that there is no board.
    """

    age: int
    told: Told | None
    boardless: bool = False


def ask(board: Board) -> dict[int, Seen]:
    """By id: the reports of the members of the view, asked by the board's owner, which adds its own.

    Raises:
        NotAsked: this member itself did not answer.
    """
    found = {each["id"]: Seen(0, None) for each in board.about["view"]["members"]}
    for member, (age, _, text) in _asked(board, 0).items():
        try:
            found[member] = Seen(age, heard(text))
        except BoardError:
            found[member] = Seen(age, None, text == NO_BOARD)
    return found


def whole(board: Board) -> dict[int, tuple[dict[str, Any], bytes] | None]:
    """By id: the knowledge of each member of the view, and its board; None: it does not answer, or has none.

    Raises:
        NotAsked: this member itself did not answer.
    """
    pages: dict[int, list[str]] = {each["id"]: [] for each in board.about["view"]["members"]}
    most = dict.fromkeys(pages, 1)
    for page in range(1, PAGES_MAX + 1):
        for _ in range(TRIES):
            wanted = {each for each in pages if len(pages[each]) == page - 1 < most[each]}
            told = _asked(board, page) if wanted else {}
            for each in wanted & told.keys():
                _, most[each], text = told[each]
                pages[each] += [text] * (most[each] >= page)
    return {each: _joined(pages[each]) for each in pages}


def _joined(pages: Sequence[str]) -> tuple[dict[str, Any], bytes] | None:
    try:
        return joined(pages)
    except BoardError:
        return None


def _asked(board: Board, page: int) -> dict[int, tuple[int, int, str]]:
    """By id: the age of an answer in ns, the number of pages, and the text.

    Raises:
        NotAsked: this member itself did not answer.
    """
    try:
        told = _answer(board, page)["told"]
        return {int(member): (int(age), int(pages), str(text)) for member, (age, pages, text) in told.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _silent(board, error) from None


def _answer(board: Board, page: int) -> Any:
    """The answer of the board's owner to a question."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(WAIT_S)
        asked.connect(str(socket_of(board.path)))
        asked.sendall(json.dumps({"page": page}).encode() + b"\n")
        with asked.makefile("rb") as answer:
            return json.loads(answer.readline(ANSWER_MAX))


def _silent(board: Board, error: Exception) -> NotAsked:
    return NotAsked(
        f"{board.name} (process {board.about['pid']}) does not answer on {socket_of(board.path)}: {error}. `seqcast "
        f"probe {board.cluster}` without --all and --known shows its board"
    )


def known(board: Board) -> dict[str, Any]:
    """The knowledge of the member's process: its settings and their origins, its last views and warnings, the states of
    its protocol machines, and its journal.

    Raises:
        NotAsked: it did not answer.
    """
    try:
        said = _answer(board, KNOWN)["known"]
        for name, kind in (("settings", dict), ("origins", dict), ("views", list), ("warnings", list),
                           ("states", dict), ("journal", dict)):  # fmt: skip
            if not isinstance(said[name], kind):
                raise ValueError(f"in the answer, {name} is of another kind")
        return dict(said)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _silent(board, error) from None


def known_lines(said: Mapping[str, Any]) -> list[str]:
    """The lines that ``probe --known`` prints."""
    lines = ["settings that are not the usual ones:" if said["origins"] else "settings: the usual ones"]
    lines += [f"  {name}={said['settings'].get(name)!r}  ({origin})" for name, origin in said["origins"].items()]
    lines.append("views:")
    lines += [f"  {_at(each)}  {_of_view(each)}" for each in said["views"] if isinstance(each, dict)]
    lines.append("warnings:" if said["warnings"] else "warnings: none")
    lines += [f"  {_at(each)}  {each.get('text')}" for each in said["warnings"] if isinstance(each, dict)]
    lines.append("states: " + ", ".join(f"{name} {state}" for name, state in said["states"].items()))
    journal = [f"{name} {value}" for name, value in said["journal"].items() if value not in (0, "")]
    lines.append(f"journal: {', '.join(journal) or 'none'}")
    return [plain(line) for line in lines]


def _at(moment: Mapping[str, Any]) -> str:
    at = moment.get("at")
    return time.strftime("%H:%M:%S", time.localtime(at / 1e9)) if type(at) is int and 0 <= at < 1 << 63 else "?"


def _of_view(each: Mapping[str, Any]) -> str:
    """A view, and the reason for it."""
    changes = [f"{word} {', '.join(map(str, names))}" for word in ("came", "gone")
               if isinstance(names := each.get(word), list) and names]  # fmt: skip
    if isinstance(took := each.get("took_ns"), int) and took:
        changes.append(f"took {took / 1e6:.0f} ms")
    members = each.get("members")
    counted = count(members, "member") if isinstance(members, int) else "?"
    why = each.get("change") or "the first"
    return f"view {each.get('view')}, {counted}, {why}: {'; '.join(changes) or 'the same members'}"


def findings(board: Board, seen: Mapping[int, Seen], stall_s: float, here: Sequence[Board] = ()) -> list[Finding]:
    """The faults, from all reports; for a member that does not answer, also from its board if that is among those
    ``here``."""
    members, found = board.about["view"]["members"], []
    boards = {each.about["id"]: each for each in here}
    for each in members:
        known = seen[each["id"]]
        if known.told is None:
            own = troubles(boards[each["id"]], stall_s) if each["id"] in boards else []
            found += own
            if any(fault.code in MUTE for fault in own):
                continue
            what = "has no board to show" if known.boardless else f"has not answered {board.name}{_last(board, each)}"
            found.append(finding(codes.UNANSWERED, f"{each['name']} {what}", HOST=host_of(each["address"])))
            continue
        told, name = known.told, each["name"]
        if told.status == "blocked":
            found.append(finding(codes.BLOCKED, f"{name} is blocked: {told.reason}"))
        if told.held_by and told.held is not None and told.held > stall_s * 1e9:
            text = f"senders of {name} have waited for {board.name_of(told.held_by)} for {told.held / 1e9:.1f} s"
            found.append(finding(codes.SLOW_RECEIVER, text))
        for other, how in zip(members, told.hears, strict=False):
            found += unheard(name, other["name"], how, board.about["transport"], host_of(other["address"]))
    return found


def _last(board: Board, member: Mapping[str, Any]) -> str:
    """The age of the last report of a member that does not answer."""
    row = next((row for row in board.members if row["id"] == member["id"]), None)
    if row is None or not row["heard"]:
        return ""
    return f", which heard it {max(0, board.read_ns - row['heard']) / 1e9:.1f} s ago"


def table(board: Board, seen: Mapping[int, Seen], before: Mapping[int, Seen], wrong: Sequence[Finding]) -> list[str]:
    """The lines that ``probe --all`` prints."""
    members = board.about["view"]["members"]
    matrix = len(members) <= MATRIX_MAX
    initials = " ".join(letters([each["name"] for each in members]))
    head = ["member", "address", f"hears {initials}" if matrix else "hears all"]
    head += ["rtt ms", "path", "lag", "lag ms", "untaken"]
    cells = [[*head, *(name for name, _ in RATES), "state"]]
    for rank, each in enumerate(members):
        cells.append([each["name"], each["address"], *_row(board, rank, each["id"], seen, before, matrix)])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [f"{summary(board)}, all asked"]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    return lines + [each.line() for each in wrong]


def _row(
    board: Board, rank: int, member: int, seen: Mapping[int, Seen], before: Mapping[int, Seen], matrix: bool
) -> list[str]:
    told = seen[member].told
    others = {of: each.told for of, each in seen.items() if each.told is not None and of != member}
    by = {of: other.peers.get(member, Peer()) for of, other in others.items()}
    lag = _worst(board, {of: peer.lag for of, peer in by.items()})
    late = _worst(board, {of: peer.late if peer.late is None else peer.late // 10**6 for of, peer in by.items()})
    behind = [lag, late, _worst(board, {of: peer.untaken for of, peer in by.items()})]
    if told is None:
        state = "has no board" if seen[member].boardless else "does not answer"
        if rank < len(board.members) and way(board, board.gauges["rank"], rank) in "mu":
            state += f", heard by {board.name}"
        return ["      ?" if matrix else "?", "", "", *behind, "", "", "", state]
    hears = "      " + " ".join(told.hears) if matrix else "no" if "." in told.hears else "yes"
    hears = hears if told.hears else UNKNOWN
    peers = told.peers.values()
    rtt = _range([peer.rtt if peer.rtt is None else peer.rtt / 1e6 for peer in peers], "{:.2f}", len(others))
    path = _range([peer.path for peer in peers], "{}", len(others))
    rates = _rates(told, before[member].told if member in before else None)
    holds = [board.name_of(of) for of, other in others.items() if other.held_by == member]
    words = [told.status] * (told.status != "member") + [f"holds up {', '.join(holds)}"] * bool(holds)
    return [hears, rtt, path, *behind, *rates, ", ".join(words)]


def _range(values: Sequence[float | None], shown: str, others: int) -> str:
    """The range of the values that a member knows of the ``others``, the number of those that answered; 0: not known
    yet."""
    told = [value for value in values if value is not None]
    if not told:
        return UNKNOWN if others else ""
    known = [value for value in told if value]
    return " to ".join(dict.fromkeys(shown.format(end(known)) for end in (min, max) if known))


def _worst(board: Board, behind: Mapping[int, int | None]) -> str:
    """The most that a member is behind one other's packets, and whose those are."""
    if not behind:
        return ""
    told = {of: value for of, value in behind.items() if value is not None}
    if not told:
        return UNKNOWN
    of, most = max(told.items(), key=lambda each: each[1])
    return f"{most} of {board.name_of(of)}" if most else "0"


def _rates(told: Told, old: Told | None) -> list[str]:
    if old is None or told.at is None or old.at is None:
        return ["" if old is None else UNKNOWN] * len(RATES)
    if told.at <= old.at:
        return [""] * len(RATES)
    passed_s, both = (told.at - old.at) / 1e9, told.counters.keys() & old.counters.keys()
    return [
        short((told.counters[name] - old.counters[name]) / passed_s) if name in both else UNKNOWN for _, name in RATES
    ]


def sketch(board: Board, seen: Mapping[int, Seen], wrong: Sequence[Finding]) -> dict[str, Any]:
    """The same as an object."""
    members = [
        {
            "name": each["name"],
            "id": each["id"],
            "address": each["address"],
            "observer": each["observer"],
            "info": each["info"],
            "age_ns": seen[each["id"]].age,
            "told": asdict(told) if (told := seen[each["id"]].told) is not None else None,
        }
        for each in board.about["view"]["members"]
    ]
    return {
        "view": board.about["view"]["counter"],
        "asked": board.name,
        "members": members,
        "findings": [each.sketch() for each in wrong],
    }
