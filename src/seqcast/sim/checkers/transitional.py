"""What members agree on although some of them fell: all that is not transitional, the more where delivery is safe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from seqcast.sim.record import Delivered, Stay
from seqcast.types import ViewId


def check_transitional(everywhere: Sequence[Stay]) -> Iterator[str]:
    """In a total order: what a member that closed a view delivered before the first transitional message is, as far as
    both reach, what every other member of that view delivered: also one that crashed, was excluded, or was cut off and
    closed the view apart (of whose messages the transitional ones do not count either)."""
    in_view: dict[ViewId, list[Stay]] = {}
    for stay in everywhere:
        yield from _check_end(stay)
        in_view.setdefault(stay.view.view_id, []).append(stay)
    for together in in_view.values():
        for one, other in combinations(together, 2):
            if one.successor is not None or other.successor is not None:
                yield from _check_pair(one, other)
            if one.record.options.safe:
                yield from _check_safe(one, other)
                yield from _check_safe(other, one)


def _check_end(stay: Stay) -> Iterator[str]:
    """The transitional messages are the last ones of the view that have a place in the order."""
    late = [entry.transitional for entry in stay.delivered if entry.global_seqno]
    if late != sorted(late):
        yield f"transitional: {stay.record} delivers in {stay.view} what is not, behind what is"
    if any(entry.transitional for entry in stay.delivered if not entry.global_seqno):
        yield f"transitional: {stay.record} delivers in {stay.view} one without a place in the order that is"


def agreed(stay: Stay) -> list[Delivered]:
    """The messages with a place in the order that are not transitional; all of them where it did not close the view."""
    return [entry for entry in stay.delivered if entry.global_seqno and not (entry.transitional and stay.successor)]


def _check_pair(one: Stay, other: Stay) -> Iterator[str]:
    a, b = ([(entry.sender, entry.counter) for entry in agreed(each)] for each in (one, other))
    both = min(len(a), len(b))
    if a[:both] != b[:both]:
        index = next(index for index in range(both) if a[index] != b[index])
        where = f"in {one.view} ({one.view.view_id})"
        yield f"transitional: {where}: at {index} {one.record} has {a[index]}, {other.record} {b[index]}"


def _check_safe(one: Stay, other: Stay) -> Iterator[str]:
    """With safe delivery: what is not transitional at ``one``, whatever became of it, ``other`` delivers in the same
    places; all of it if it closed the view, else as far as it came."""
    safe = [(entry.sender, entry.counter) for entry in one.delivered if entry.global_seqno and not entry.transitional]
    got = [(entry.sender, entry.counter) for entry in other.delivered if entry.global_seqno]
    if other.successor is None:
        got = [(each.sender, each.counter) for each in other.delivered if each.global_seqno and not each.transitional]
        safe = safe[: len(got)]
    if got[: len(safe)] != safe:
        yield f"safe: in {one.view} ({one.view.view_id}) {one.record} delivers {len(safe)}, {other.record} others"
