"""Reading boards. Their bytes are checked: the file may be damaged, of another release, or no board at all."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqcast.board.place import BYTES, ended, files, named, of_cluster, old, process_state, runs
from seqcast.files import open_file

MAGIC = b"seqcast\n"
VERSION = 1
_LAYOUT = struct.Struct("=8sI")
_HEAD = struct.Struct("=8sIIII")
_PART = struct.Struct("=16sIIIIIIqQ")
PARTS_MAX = 8
FIELDS_MAX = 256
TRIES = 200
PAUSE_S = 0.0005
"""A part that is being written is read again this many times, after a pause of this many seconds; a process killed
meanwhile leaves such a part for ever."""
THREADS = "seqcast-"
"""Prefix of the names of the threads of seqcast."""
ELSEWHERE_NS = 60 * 10**9
"""A process of another PID namespace runs if the board was written within this time."""
COUNTED = ("counters", "sockets", "threads")
"""Parts that hold counters."""


class BoardError(ValueError):
    """A file that is not a board, or one that this release cannot read."""


class OtherLayout(BoardError):
    """A board of a release that lays boards out differently.

    Args:
        version: of its layout.
    """

    def __init__(self, version: int) -> None:
        super().__init__(f"a board of layout {version}, and this release reads {VERSION}")
        self.version = version


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the flight recorder.

    Args:
        number: of the event, from 1.
        at: monotonic ns.
        member: id of the member concerned, or 0.
        text: one line.
    """

    number: int
    at: int
    member: int
    text: str


@dataclass(frozen=True, slots=True)
class Board:
    """The contents of a board.

    Args:
        path: of its file.
        about: of the member: cluster, name, id, pid, version, net, interface, port, transport, order, status, view
            ...
        counters: by name.
        gauges: by name; see native/engine/posts.c.
        members: a row for each member of the view, by rank.
        events: the last ones, oldest first.
        read_ns: monotonic ns, of reading.
        torn: parts that were being written whenever they were read: their process was killed while it wrote them.
        names: of members, by id, that the other boards beside this one know.
    """

    path: Path
    about: dict[str, Any]
    counters: dict[str, int]
    gauges: dict[str, int]
    members: tuple[dict[str, int], ...]
    events: tuple[Event, ...]
    read_ns: int
    torn: frozenset[str]
    names: dict[int, str] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        return str(self.about["cluster"])

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def alive(self) -> bool:
        """Its process runs. In another PID namespace (a container) the last write decides."""
        pid = self.about["pid"]
        if self.about["pids"] == pid_namespace():
            return pid > 0 and runs(pid) and self.about["started"] in ("", started(pid))
        return self.read_ns - self.gauges["posted"] < ELSEWHERE_NS

    def name_of(self, member_id: int) -> str:
        """The name of a member, or its id in hexadecimal digits."""
        return self.knows().get(member_id) or self.names.get(member_id) or f"{member_id:016x}"

    def knows(self) -> dict[int, str]:
        """Names of members, by id: events may be about those of no view, and this one itself before its first view."""
        others = (*self.about["gone"], *self.about["view"]["members"])
        return {self.about["id"]: self.name, **{each["id"]: str(each["name"]) for each in others}}


def boards(cluster: str = "") -> list[Board]:
    """The boards on this machine, of this cluster or of all, those of one name from the last one on. Left out
    are old ones of processes that have ended, files that are no boards, and those that ``of_other_releases`` names."""
    found = []
    for path in files():
        try:
            board = read(path)
            over = old(path) and not board.alive
        except (OSError, BoardError):
            continue
        if not over and cluster in ("", board.cluster):
            found.append(board)
    together: dict[str, dict[int, str]] = {}
    for board in found:
        together.setdefault(board.cluster, {}).update(board.knows())
    for board in found:
        board.names.update(together[board.cluster])
    return sorted(found, key=lambda board: (board.cluster, board.name, -board.gauges["posted"], board.path))


def of_other_releases(cluster: str = "") -> dict[Path, int]:
    """The layouts of the boards on this machine that this release cannot read, of processes that run."""
    found = {}
    for path in files():
        if not of_cluster(path, cluster) or ended(path):
            continue
        try:
            with open_file(path) as file:
                _version(os.pread(file.fileno(), _HEAD.size, 0))
        except OtherLayout as other:
            found[path] = other.version
        except (OSError, BoardError):
            continue
    return found


def read(path: Path) -> Board:
    """Reads a board.

    Raises:
        OSError: the file cannot be read.
        BoardError: this is no board of a layout that this release knows.
    """
    with open_file(path) as file:
        return _board(path, *_copy(file.fileno()))


def kept(path: Path, data: bytes) -> Board:
    """The board of a copy of its file.

    Raises:
        BoardError: as for ``read``.
    """
    return _board(path, data, frozenset(name for name, part in _parts(data).items() if part.lock & 1))


def _board(path: Path, data: bytes, torn: frozenset[str]) -> Board:
    parts = _parts(data)
    about = _about(_bytes(data, parts["about"]), torn="about" in torn)
    if not about["cluster"] and (known := named(path)) is not None:
        about |= known._asdict()
    counters = about.pop("counters")
    for name in COUNTED:
        counters |= next(iter(_rows(data, parts, name)), {})
    return Board(
        path,
        about,
        counters,
        next(iter(_rows(data, parts, "gauges")), defaultdict(int)),
        tuple(_rows(data, parts, "members")),
        tuple(_events(data, parts)),
        time.monotonic_ns(),
        torn,
    )


def pid_namespace() -> str:
    """Which process numbers are meant here; "": there is only one kind."""
    return _namespace("pid")


def net_namespace() -> str:
    """Which network is meant here; "": there is only one."""
    return _namespace("net")


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def started(pid: int) -> str:
    """When a process began, in a unit of the system's: its number may be given to another one later; "": unknown."""
    return next(iter(process_state(pid)[19:]), "")


def threads(pid: int) -> list[list[str]]:
    """The threads of members in a process: the name of each, its allowed cores and its last one, and its CPU time, s.
    The system tells, not the process; nothing on a system that does not."""
    found = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError, IndexError):  # it has ended
            name, _, rest = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            if (name := name.partition("(")[2]).startswith(THREADS):
                fields = rest.split()
                status = (task / "status").read_text(encoding="utf-8", errors="replace").partition("Cpus_allowed_list:")
                seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                found.append([name, status[2].split()[0], fields[36], f"{seconds:.2f}"])
    return found


# ---- the layout


@dataclass(frozen=True, slots=True)
class _Part:
    at: int
    entry: int
    n: int
    fields: tuple[str, ...]
    lock: int
    used: int


def _copy(number: int) -> tuple[bytes, frozenset[str]]:
    """The bytes of a file, with each part as of one moment, except the named ones."""
    for _ in range(TRIES):
        data = os.pread(number, BYTES, 0)
        before, after = _parts(data), _parts(os.pread(number, BYTES, 0), fields=False)
        torn = frozenset(name for name, part in before.items() if part.lock & 1 or after[name].lock != part.lock)
        if not torn:
            break
        time.sleep(PAUSE_S)
    return data, torn


def _version(head: bytes) -> None:
    """Every layout begins with the magic and its version; all else, also the size, may differ.

    Raises:
        OtherLayout: this release does not know the layout.
        BoardError: not a board.
    """
    if len(head) < _LAYOUT.size:
        raise BoardError("not a seqcast board")
    magic, version = _LAYOUT.unpack_from(head)
    if magic != MAGIC:
        raise BoardError("not a seqcast board")
    if version != VERSION:
        raise OtherLayout(version)


def _parts(data: bytes, *, fields: bool = True) -> dict[str, _Part]:
    _version(data)
    if len(data) != BYTES:
        raise BoardError(f"a board has {BYTES:,} bytes, and this file has {len(data):,}")
    _, _, size, n, _ = _HEAD.unpack_from(data)
    if size != BYTES or n > PARTS_MAX:
        raise BoardError("not a seqcast board")
    parts = {}
    for i in range(n):
        part = _PART.unpack_from(data, _HEAD.size + i * _PART.size)
        name, at, entry, entries, names_at, names_len, _, lock, used = part
        names = data[names_at : names_at + names_len].decode("ascii", "replace").split() if fields else []
        fits = entry and not (at % 8 or entry % 8) and at + entry * entries <= BYTES
        if not fits or 8 * len(names) > entry or len(names) > FIELDS_MAX:
            raise BoardError(f"part {name!r} does not fit the board")
        parts[name.rstrip(b"\0").decode("ascii", "replace")] = _Part(at, entry, entries, tuple(names), lock, used)
    if missing := {"about", "gauges", "members", "events", "counters"} - parts.keys():
        raise BoardError(f"the board has no {', '.join(sorted(missing))}")
    return parts


def _rows(data: bytes, parts: dict[str, _Part], name: str) -> list[dict[str, int]]:
    part = parts.get(name)
    if part is None:
        return []
    unpack = struct.Struct(f"={len(part.fields)}Q").unpack_from
    used = min(part.used, part.n)
    return [
        # A field that an older release lacks is 0.
        defaultdict(int, zip(part.fields, unpack(data, part.at + i * part.entry), strict=True))
        for i in range(used)
    ]


def _bytes(data: bytes, part: _Part) -> bytes:
    return data[part.at : part.at + min(part.used, part.n * part.entry)]


def _events(data: bytes, parts: dict[str, _Part]) -> list[Event]:
    part = parts["events"]
    found = []
    for i, row in enumerate(_rows(data, parts, "events")):
        at = part.at + i * part.entry + 8 * len(part.fields)
        room = part.entry - 8 * len(part.fields)
        text = data[at : at + min(row.get("length", 0), room)].decode("utf-8", "replace")
        if row.get("number"):
            found.append(Event(row["number"], row.get("at", 0), row.get("member", 0), plain(text)))
    return sorted(found, key=lambda event: event.number)


def plain(text: str) -> str:
    """Without characters that would move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


CUT_NS = tuple(int(ms * 1e6) for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000))
"""Bounds of the durations of view changes that are counted together; there is one more for longer ones."""
CHANGES = ("join", "leave", "loss", "merge", "other")


@dataclass(slots=True)
class ViewChanges:
    """The view changes of a member.

    Args:
        changes: how many there were, by their reason.
        within: how many took at most each time of ``CUT_NS``, and more than the one before; last: longer ones.
        sum_ns, last_ns: of all durations, and of the last one.
    """

    changes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANGES, 0))
    within: list[int] = field(default_factory=lambda: [0] * (len(CUT_NS) + 1))
    sum_ns: int = 0
    last_ns: int = 0

    def add(self, change: str, took_ns: int) -> None:
        """Counts one; ``took_ns`` 0: not known."""
        self.changes[change] += 1
        if not took_ns:
            return
        self.within[bisect_left(CUT_NS, took_ns)] += 1
        self.sum_ns += took_ns
        self.last_ns = took_ns

    def sketch(self) -> dict[str, Any]:
        """As a JSON object, which ``of`` reads."""
        return asdict(self)

    @classmethod
    def of(cls, said: dict[str, Any]) -> ViewChanges:
        """By the board of any release."""
        changes, within = _object(said, "changes"), said.get("within")
        counted = dict(enumerate(within)) if isinstance(within, list) else {}
        return cls(
            {name: _number(changes, name) for name in CHANGES},
            [_number(counted, i) for i in range(len(CUT_NS) + 1)],
            _number(said, "sum_ns"),
            _number(said, "last_ns"),
        )


_TEXTS = (
    "cluster", "name", "pids", "net", "started", "version", "interface", "address", "transport", "multicast", "order",
)  # fmt: skip
_NUMBERS = ("id", "pid", "began", "clock", "updated", "mtu", "rcvbuf", "port")


def _about(data: bytes, *, torn: bool) -> dict[str, Any]:
    """The text about the member, with all fields that readers expect, each of its type.

    Raises:
        BoardError: not a JSON object.
    """
    try:
        said = json.loads(data) if data and not torn else {}
    except (ValueError, RecursionError) as error:
        raise BoardError(f"the text about the member is damaged: {error}") from None
    if not isinstance(said, dict):
        raise BoardError("the member's description is not a JSON object")
    about: dict[str, Any] = {name: _text(said, name) for name in _TEXTS}
    about |= {name: _number(said, name) for name in _NUMBERS}
    status, view, counters = (_object(said, name) for name in ("status", "view", "counters"))
    about["status"] = {"name": _text(status, "name"), "reason": _text(status, "reason")}
    about["counters"] = {plain(name): value for name, value in counters.items() if type(value) is int}
    members = view.get("members")
    members = [each for each in members if isinstance(each, dict)] if isinstance(members, list) else []
    seeds = _object(said, "seeds")
    about["seeds"] = {name: _number(seeds, name) for name in ("addresses", "silent")}
    about["seeds"] |= {name: _texts(seeds, name) for name in ("first", "unresolved")}
    seal = _object(said, "seal")
    about["seal"] = {"cipher": _text(seal, "cipher"), "since": _number(seal, "since"), "keys": _texts(seal, "keys")}
    gone = said.get("gone")
    about["gone"] = [
        {"id": _number(each, "id"), "name": _text(each, "name")}
        for each in (gone if isinstance(gone, list) else [])
        if isinstance(each, dict)
    ]
    about["cuts"] = ViewChanges.of(_object(said, "cuts")).sketch()
    about["view"] = {
        "counter": _number(view, "counter"),
        "since": _number(view, "since"),
        "coordinator": _text(view, "coordinator"),
        "order": _text(view, "order"),
        "mechanism": _text(view, "mechanism"),
        "sequencer": _number(view, "sequencer"),
        "members": [
            {
                "id": _number(each, "id"),
                "name": _text(each, "name"),
                "address": _text(each, "address"),
                "observer": each.get("observer") is True,
                "info": _object(each, "info"),
            }
            for each in members
        ],
    }
    return about


def _text(of: dict[str, Any], name: str) -> str:
    value = of.get(name)
    return plain(value) if isinstance(value, str) else ""


def _texts(of: dict[str, Any], name: str) -> list[str]:
    value = of.get(name)
    return [plain(each) for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _number(of: dict[Any, Any], name: Any) -> int:
    value = of.get(name)
    return value if type(value) is int and abs(value) < 1 << 64 else 0


def _object(of: dict[str, Any], name: str) -> dict[str, Any]:
    value = of.get(name)
    return value if isinstance(value, dict) else {}
