"""The deliveries of a group that fell apart and came together again, for journals of a test."""

import dataclasses
from typing import Any

from journal_data import Row, member, view

from seqcast.types import Member, MergeView, View, ViewId

A, B, C, D = (member(name) for name in "abcd")


def rows(text: str, n: int, senders: Any = (A, B, C)) -> list[Row]:
    return [Row(senders[at % len(senders)], 1 + at, 0, 1 + at, b"%s %d" % (text.encode(), at)) for at in range(n)]


APART, OTHER = view(2, [A], "records"), view(2, [B, C], "records", attempt=2)
OLD = view(1, [A, B, C], "records")


def merged(counter: int, *subgroups: View) -> View:
    members = tuple(each for group in subgroups for each in group.members)
    made_by = subgroups[0].members[0].id
    return MergeView(ViewId(counter, made_by, (9, made_by)), members, "records", 0, "records", subgroups)


BOTH = merged(5, OTHER, APART)


def late(rows_of_view: list[Row], first: int) -> list[Row]:
    """As a view change gives messages their places: behind ``first`` of them all are transitional."""
    return [
        dataclasses.replace(row, transitional=at >= first, global_seqno=at + 1) for at, row in enumerate(rows_of_view)
    ]


def partitioned(*, again: bool = False) -> dict[Member, list[tuple[View, list[Row]]]]:
    """A was paused, lacks the end of the first view, has sent messages of its own meanwhile, and merges again."""
    start = rows("old", 100)
    tail_b = [Row(B, 1000 + at, 0, 0, b"tail of b %d" % at) for at in range(30)]
    tail_a = [Row(A, 1000 + at, 0, 0, b"tail of a %d" % at) for at in range(20)]
    at_a, at_b = late([*start, *tail_a], 100), late([*start, *tail_b[:10], *tail_a[:5], *tail_b[10:]], 100)
    apart, other, both = rows("apart", 40, (A,)), rows("other", 60, (B, C)), rows("both", 50)
    stories = {
        A: [(OLD, at_a), (APART, apart), (BOTH, both)],
        B: [(OLD, at_b), (OTHER, other), (BOTH, both)],
        C: [(OLD, at_b), (OTHER, other), (BOTH, both)],
    }
    if again:
        more, away = view(6, [B, C], "records"), view(7, [A], "records")
        back = merged(9, away, more)
        stories[A] += [(away, rows("away", 15, (A,))), (back, rows("back", 10))]
        for who in (B, C):
            stories[who] += [(more, rows("more", 25, (B, C))), (back, rows("back", 10))]
    return stories


def union(stories: dict[Member, list[tuple[View, list[Row]]]]) -> list[tuple[int, int, int, int]]:
    """Each message of each view that a member delivered."""
    views = [each for story in stories.values() for each in story]
    return sorted({(of.view_id.tag, row.sender.id, row.seqno, row.index) for of, of_view in views for row in of_view})
