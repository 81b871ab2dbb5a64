"""Which member gives its state to which, after a state was merged into one that some members of its part lack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NONE, PART, WHOLE, NewView
from seqcast.core.rules.cut import first_view
from seqcast.core.rules.providers import STATE_MERGES, merged_plan, plan
from seqcast.errors import RemoteProtocolError

A, B, C, D = (
    MemberInfo(name, number, b"x", 1 << 20, 1472, 1 << 20, state=STATE_MERGES) for number, name in enumerate("abcd", 1)
)
NEXT = 77
"""Tag of the next view."""


def view(labels: dict[MemberInfo, int], merged_into: tuple[int, ...] = ()) -> NewView:
    """A VIEW with these labels."""
    frame = first_view(list(labels), "fifo", orders.by_name("fifo"), next(iter(labels)).id)
    return replace(frame, labels=tuple(labels.values()), merged_into=merged_into)


def sources(made, merger: MemberInfo) -> set[int]:
    """Whose states the merger gets."""
    return {each.provider for each in made.providers if each.joiner == merger.id}


def lacking(*members: MemberInfo) -> dict[int, tuple[int, ...]]:
    return {info.id: () for info in members}


def test_a_state_counts_again_when_nobody_is_left_that_has_what_it_was_merged_into():
    """a has merged its state with b's, which lacks the result, and comes with that to c."""
    merged = merged_plan([C, A, B], [view({C: WHOLE}), view({A: WHOLE, B: PART})], NEXT)
    assert merged.merger == 0 and sources(merged, C) == {A.id}
    before = replace(view({C: NONE, A: NONE, B: NONE}), labels=merged.labels, merged_into=merged.merged_into)
    before.check()
    later = plan([C, B], lacking(C, B), before, NEXT + 1)
    assert later.merger == 0 and sources(later, C) == {B.id}


def test_a_state_does_not_count_beside_what_it_was_merged_into():
    merged = merged_plan([C, A, B, D], [view({C: WHOLE}), view({A: WHOLE, B: PART, D: WHOLE})], NEXT)
    before = replace(view({C: NONE, A: NONE, B: NONE, D: NONE}), labels=merged.labels, merged_into=merged.merged_into)
    later = plan([C, B, D], lacking(C, B, D), before, NEXT + 1)  # d has the same state as a
    assert sources(later, C) == {D.id}


def test_what_was_merged_twice_does_not_count_while_the_later_result_is_here():
    """b's state was merged into c's, and that into a's; c, which lacks a's, is gone."""
    before = view({A: PART, C: PART + 1, B: PART + 2, D: PART + 3}, (NONE, PART, PART + 1, NONE))
    before.check()
    without_c = plan([A, B, D], lacking(A, B, D), before, NEXT)
    assert without_c.merger == 0 and sources(without_c, A) == {D.id}
    assert without_c.merged_into == (NONE, PART, NONE)
    without_a = plan([C, B, D], lacking(C, B, D), before, NEXT)
    assert sources(without_a, C) == {D.id}
    alone = plan([B, D], lacking(B, D), before, NEXT)
    assert sources(alone, B) == {D.id} and not alone.merged_into


def test_a_state_that_was_merged_into_a_later_one_is_refused():
    with pytest.raises(RemoteProtocolError, match="later one"):
        view({A: PART, B: PART + 1}, (PART + 1, NONE)).check()
    with pytest.raises(RemoteProtocolError, match="by rank"):
        view({A: PART, B: PART + 1}, (NONE,)).check()
