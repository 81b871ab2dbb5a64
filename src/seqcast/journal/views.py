"""The views of a journal: one sealed JSON line for each that the member installed, for each gap, and for the end."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqcast.files import read_file
from seqcast.journal import seals
from seqcast.journal.gaps import Gap, gap_of
from seqcast.journal.schema import VIEWS_BYTES_MAX, VIEWS_FILE, JournalDamaged, JournalError, line_of
from seqcast.types import Member, ViewId


@dataclass(frozen=True, slots=True)
class ViewEnd:
    """How a member closed a view: by the next one, or by leaving.

    Args:
        idx: position after the last row of the view.
        global_seqno: of the last message that the member delivered in the view; 0: none, or there is no total order.
            The same on every member with the same next view that delivers its own messages.
        stable: up to this global seqno *every* member of the view, even one that crashed or was cut off, delivered the
            same messages, as far as it delivered any: another journal of the view can be continued from any position up
            to here in this one, at the same global seqno. For a member that was cut off and closed the view apart, only
            up to the lower of its ``stable`` and this.
        clocks: (id of a sender, lowest difference between delivery and sending of its messages in the view, ns, by the
            clocks of sender and member). From it, two members' journals show how far their clocks differ.
        successor: tag of the view in which the group continued: the one that the member installed next, or that it left
            by; 0: not known.
    """

    idx: int
    global_seqno: int
    stable: int
    clocks: tuple[tuple[int, int], ...] = ()
    successor: int = 0


@dataclass(frozen=True, slots=True)
class Installed:
    """A view that a member installed, as its journal says."""

    view_id: ViewId
    tag: int
    members: tuple[Member, ...]
    order: str
    sequencer: int
    mechanism: str
    at_ns: int
    idx: int
    """Position of the first row of the view."""
    owner: int
    """Id of its member; 0: not in the view."""
    subgroups: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """If the view merged others: the tag of each, and the ids of its members that came along."""
    closes: int = 0
    """Tag of the view that the member closed to install this one; 0: in none."""
    end: ViewEnd | None = None
    """How the member closed the view; None: still there, crashed, excluded, or the journal ended before."""


def views_data(path: Path) -> bytes:
    """The records of the journal in directory ``path``; none if it has no such file yet.

    Raises:
        JournalError: unreadable.
    """
    file = path / VIEWS_FILE
    try:
        return read_file(file, VIEWS_BYTES_MAX) if file.exists() else b""
    except OSError as error:
        raise JournalError(f"{file} cannot be read: {error.strerror}") from error


@functools.lru_cache(maxsize=16)  # a follower asks many times a second; views change rarely
def parse_views(data: bytes, path: Path) -> tuple[tuple[Installed, ...], tuple[Gap, ...], tuple[str | None, int], int]:
    """The views, the gaps, the closing record as (reason or None, rows or -1), and the number of torn records (0 or 1).

    Raises:
        JournalDamaged: a line differs from the written one, or does not fit those before.
    """
    lines = data.split(b"\n")
    views: list[Installed] = []
    gaps: list[Gap] = []
    closed: tuple[str | None, int] = (None, -1)
    tail = lines.pop()  # after the last newline: empty, or a record that was torn
    for number, line in enumerate(lines, 1):
        try:
            record = seals.unseal(line)
            if (closes := record["closes"]) and not views:
                raise ValueError("the record closes a view, and none stands before")
            if closes and views[-1].tag == int(closes["tag"], 16):
                clocks = tuple((int(sender, 16), seals.typed(least_ns, int)) for sender, least_ns in closes["clocks"])
                place = seals.typed(closes["end"], int), seals.typed(closes["stable"], int)
                successor = record["tag"] if record["event"] == "view" else closes.get("successor", "0")
                end = ViewEnd(seals.typed(record["idx"], int), *place, clocks, int(successor, 16))
                views[-1] = replace(views[-1], end=end)
            elif closes and record["event"] == "close":
                raise ValueError("the record closes another view than the last one")
            if seals.typed(record["idx"], int) < 0:
                raise ValueError("its position is below 0")
            if record["event"] == "gap":
                gap = gap_of(record)
                if closes:
                    raise ValueError("a gap closes no view")
                if gap.idx < max([0, *(each.end for each in gaps[-1:]), *(view.idx for view in views[-1:])]):
                    raise ValueError("the position is below that of the previous record")
                gaps.append(gap)
            elif record["event"] == "close":
                closed = str(record["reason"]), int(record["idx"])
            else:
                views.append(_installed(record))
        except (ValueError, KeyError, TypeError) as error:
            why = line_of(error)
            raise JournalDamaged(f"{path / VIEWS_FILE}, line {number}, is not a view record: {why}") from error
    if tail and _is_sealed(tail[:-1]):  # a torn record has no more than a part of its line
        raise JournalDamaged(f"{path / VIEWS_FILE}, line {len(lines) + 1}, has an altered end")
    return tuple(views), tuple(gaps), closed, int(bool(tail))


def _is_sealed(line: bytes) -> bool:
    try:
        seals.unseal(line)
    except ValueError:
        return False
    return True


def _installed(record: dict[str, Any]) -> Installed:
    identity = record["view_id"]
    attempt, initiator = identity["flush"]
    view_id = ViewId(identity["counter"], int(identity["coordinator"], 16), (attempt, int(initiator, 16)))
    if f"{view_id.tag:016x}" != record["tag"]:
        raise ValueError("the tag is not that of the view id")
    members = tuple(Member(seals.typed(name, str), int(key, 16)) for name, key in record["members"])
    if (rank := seals.typed(record["rank"], int)) >= len(members):
        raise ValueError("the rank is not one of its members'")
    return Installed(
        view_id=view_id,
        tag=view_id.tag,
        members=members,
        order=seals.typed(record["order"], str),
        sequencer=seals.typed(record["sequencer"], int),
        mechanism=seals.typed(record["mechanism"], str),
        at_ns=seals.typed(record["at_ns"], int),
        idx=record["idx"],
        owner=members[rank].id if rank >= 0 else 0,
        subgroups=tuple((int(tag, 16), tuple(int(key, 16) for key in ids)) for tag, ids in record["subgroups"]),
        closes=int(record["closes"]["tag"], 16) if record["closes"] else 0,
    )
