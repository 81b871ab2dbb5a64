"""The agreement that holds even if some members crash: all that is not transitional, and more if delivery is safe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, permutations

from seqcast.core.vocabulary import Left
from seqcast.events import Excluded
from seqcast.sim.record import Delivered, Record, Stay, comparable
from seqcast.types import View, ViewId


def check_undecided(everywhere: Sequence[Stay]) -> Iterator[str]:
    """A member that is in no successor of a view delivers nothing there that only the successor would have decided:
    ``Lost`` alone reports this. (An application that answers on delivery would have answered, and learned then that the
    message is lost.)"""
    for stay in everywhere:
        if stay.successor is not None or not isinstance(stay.record.log[-1], Excluded | Left):
            continue
        if late := [entry for entry in stay.delivered if entry.transitional]:
            yield f"undecided: {stay.record} is in no successor of {stay.view}, and delivered {late[0]}"


def check_transitional(everywhere: Sequence[Stay]) -> Iterator[str]:
    """In a total order: the deliveries of a member that closed a view, before the first transitional message, are, as
    far as both reach, those of every other member of that view, even of one that crashed, was excluded, or was cut off
    and closed the view apart (whose transitional messages do not count either)."""
    for stay in everywhere:
        yield from _check_end(stay)
    for together in _by_view(everywhere):
        for one, other in combinations(together, 2):
            if one.successor is not None or other.successor is not None:
                yield from _check_pair(one, other)


def _check_end(stay: Stay) -> Iterator[str]:
    """The transitional messages are the last ones of the view that have a place in the order."""
    late = [entry.transitional for entry in stay.delivered if entry.global_seqno]
    if late != sorted(late):
        yield f"transitional: {stay.record} delivers in {stay.view} a message that is not, after one that is"
    beside = any(entry.transitional for entry in stay.delivered if not entry.global_seqno)
    if beside and not stay.record.options.safe:
        yield f"transitional: {stay.record} delivers in {stay.view} one without a place in the order that is"


def check_needless(record: Record) -> Iterator[str]:
    """Nothing is transitional in a view of which nobody was lost."""
    view: View | None = None
    late: Delivered | None = None
    for entry in record.log:
        if isinstance(entry, View):
            stay = {member.id for member in record.together(entry).members}
            if view is not None and late is not None and all(member.id in stay for member in view.members):
                yield f"transitional: {record} went on from {view} to {entry} with all, and {late} is transitional"
            view, late = entry, None
        elif isinstance(entry, Delivered) and entry.transitional:
            late = entry


def agreed(entries: Sequence[Delivered], *, closed: bool) -> list[tuple[int, int]]:
    """The messages with a place in the order that are not transitional; all if the member did not close the view."""
    return [(each.sender, each.counter) for each in entries if each.global_seqno and not (each.transitional and closed)]


def _check_pair(one: Stay, other: Stay) -> Iterator[str]:
    mine, theirs = comparable(one, other)
    a, b = agreed(mine, closed=bool(one.successor)), agreed(theirs, closed=bool(other.successor))
    both = min(len(a), len(b))
    if a[:both] != b[:both]:
        index = next(index for index in range(both) if a[index] != b[index])
        where = f"in {one.view} ({one.view.view_id})"
        yield f"transitional: {where}: at {index} {one.record} has {a[index]}, {other.record} {b[index]}"


def check_safe(everywhere: Sequence[Stay]) -> Iterator[str]:
    """With safe delivery: messages that are not transitional at one member, even one that crashed, are delivered in the
    same place by every other member of the view: all if the member closed the view, else as far as delivered there."""
    for together in _by_view(everywhere):
        for one, other in permutations(together, 2):
            mine, theirs = comparable(one, other)
            got = _streams(theirs, undecided=other.successor is not None)
            for stream, safe in _streams(mine, undecided=False).items():
                there = got.get(stream, [])
                due = safe if other.successor is not None else safe[: len(there)]
                if there[: len(due)] != due:
                    where = f"in {one.view} ({one.view.view_id})"
                    yield f"safe: {where} {one.record} delivers {len(safe)} of {stream:x}, {other.record} others"


def _streams(entries: Sequence[Delivered], *, undecided: bool) -> dict[int, list[tuple[int, int]]]:
    """Messages to the group, by sender; under 0 those with a place in a total order.

    Args:
        entries: the deliveries of one member in one view.
        undecided: with those that are transitional.
    """
    streams: dict[int, list[tuple[int, int]]] = {}
    for entry in entries:
        if entry.transitional and not undecided:
            continue
        for stream in (entry.sender, 0) if entry.global_seqno else (entry.sender,):
            streams.setdefault(stream, []).append((entry.sender, entry.counter))
    return streams


def _by_view(everywhere: Sequence[Stay]) -> Iterable[list[Stay]]:
    in_view: dict[ViewId, list[Stay]] = {}
    for stay in everywhere:
        in_view.setdefault(stay.view.view_id, []).append(stay)
    return in_view.values()
