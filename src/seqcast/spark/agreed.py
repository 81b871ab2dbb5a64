"""The agreed stream of all members as a table: each message of a view once, whichever journals have it.

Members that closed a view by the same successor delivered the same in it, so one of their journals stands for all. A
view that was closed in several ways was split by a partition: of each further way only the messages come that no other
one has. Rows of members that crashed in a view come only if no journal shows how the view was closed: else no remaining
member may have delivered them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqcast.journal.live import values_of
from seqcast.journal.schema import JournalError
from seqcast.journal.views import Installed
from seqcast.spark.members import order_of
from seqcast.spark.stores import Found
from seqcast.spark.wanted import Last

Source = tuple[Found, Installed]
"""A journal that has a view, and the view as told there."""
_MESSAGE = ("sender", "seqno", "index")


@dataclass(frozen=True, slots=True)
class Once:
    """The rows at positions ``first`` to ``end`` - 1 of a journal, all of one view.

    Args:
        behind: only messages behind these come; other journals have the rest.
    """

    found: Found
    first: int
    end: int
    behind: Last


def once(found: Sequence[Found], counters: Collection[int] = ()) -> list[Once]:
    """Rows of journals that together are each message of each view once.

    Args:
        counters: of the wanted views; empty: all.

    Raises:
        JournalError: a journal cannot be read, or retention removed rows that would say which messages were there.
    """
    views: dict[int, list[Source]] = {}
    came: dict[int, dict[int, set[int]]] = {}  # view -> merged view -> the members that came along
    for each in found:
        for view in each.journal.views:
            views.setdefault(view.tag, []).append((each, view))
            for tag, ids in view.subgroups:
                came.setdefault(tag, {})[view.tag] = set(ids)
    rows: list[Once] = []
    for sources in sorted(views.values(), key=lambda each: (each[0][1].view_id.counter, each[0][1].tag)):
        if not counters or sources[0][1].view_id.counter in counters:
            rows += _of_view(_different(sources, came.get(sources[0][1].tag, {})))
    return rows


def _different(sources: Sequence[Source], came: dict[int, set[int]]) -> list[Source]:
    """Of the journals that have a view: those that may have different messages of that view, the first one with the
    most.

    Args:
        came: merged view -> the members that came there from this view.
    """
    ways: dict[Any, list[Source]] = {}
    for found, view in sources:
        if view.end is None:
            agreed = next((into for into, ids in came.items() if found.id in ids), 0)
            ways.setdefault(agreed or (None if _is_prefix(found, view) else found.id, "open"), []).append((found, view))
        else:
            ways.setdefault(view.end.successor or (found.id, "left"), []).append((found, view))
    if any(isinstance(way, int) for way in ways):
        ways = {way: those for way, those in ways.items() if isinstance(way, int) or way[1] != "open"}
    kept = []
    for those in ways.values():
        those.sort(key=_completeness)
        kept += those[:1] if those[0][0].journal.deliver_own else those
    return sorted(kept, key=_completeness)


def _of_view(sources: Sequence[Source]) -> list[Once]:
    rows: list[Once] = []
    for at, (found, view) in enumerate(sources):
        begin, end = view.idx, _end(found, view)
        behind: Last = ()
        if at:
            same = min(_stable(*each) for each in sources[: at + 1])
            begin += same
            behind = _last(sources[:at], same) if begin < end else ()
        if (begin := max(begin, found.journal.first_idx)) < end:
            rows.append(Once(found, begin, end, behind))
    return rows


def _last(sources: Sequence[Source], first: int) -> Last:
    """The last message of each sender that journals have from a place in a view on: each has them in the sender's
    order.

    Raises:
        JournalError: a journal cannot be read, or retention removed the messages.
    """
    last: dict[int, tuple[int, int]] = {}
    for found, view in sources:
        begin, end = view.idx + first, _end(found, view)
        if begin < min(end, found.journal.first_idx) or found.journal.gap_in(begin, end):
            raise JournalError(
                f"{found.journal.path}: retention or a full disk took rows of view {view.tag:016x}, so the messages "
                "that only the other side of a partition has cannot be told: read them with copies=all, or keep more "
                "(journal_keep_s, journal_keep_bytes)"
            )
        for batch in found.store.rows(found.journal, begin, end, _MESSAGE):
            senders, seqnos, places = (
                values_of(batch[name], kind) for name, kind in zip(_MESSAGE, ("int64", "int64", "int32"), strict=True)
            )
            ids, back = np.unique(senders[::-1], return_index=True)
            at = len(senders) - 1 - back
            for sender, seqno, index in zip(ids.tolist(), seqnos[at].tolist(), places[at].tolist(), strict=True):
                last[sender] = max(last.get(sender, (0, 0)), (seqno, index))
    return tuple((sender, *message) for sender, message in sorted(last.items()))


def _completeness(source: Source) -> tuple[Any, ...]:
    """Sorts the most complete first."""
    found, view = source
    journal = found.journal
    gone = max(0, journal.first_idx - view.idx) + sum(
        max(0, min(gap.end, _end(*source)) - max(gap.idx, view.idx)) for gap in journal.gaps
    )
    return gone, not journal.deliver_own, view.idx - _end(*source), journal.member.name


def _end(found: Found, view: Installed) -> int:
    return found.journal.end_idx if view.end is None else min(view.end.idx, found.journal.end_idx)


def _is_prefix(found: Found, view: Installed) -> bool:
    """Whether members' deliveries before they close the view are prefixes of one sequence."""
    return found.journal.deliver_own and order_of(view).total and order_of(view).prefix


def _stable(found: Found, view: Installed) -> int:
    """Up to this place all journals of the view have the same messages at the same places."""
    counted = found.journal.deliver_own and order_of(view).total
    return view.end.stable if view.end is not None and counted else 0
