"""Which member gives its state to which, after a merge of several states."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NONE, PART, WHOLE, NewView, Provision, Subgroup
from seqcast.core.log import LogLines
from seqcast.core.rules.cut import first_view, view_of
from seqcast.core.state.providers import STATE_MERGES, merged_plan, plan
from seqcast.errors import RemoteProtocolError
from seqcast.types import MergeView, ViewId

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


def test_a_state_counts_again_when_nobody_is_left_with_its_merged_result():
    """a has merged its state with b's, which lacks the result, and comes with that to c."""
    merged = merged_plan([C, A, B], [view({C: WHOLE}), view({A: WHOLE, B: PART})], NEXT)
    assert merged.merger == 0 and sources(merged, C) == {A.id}
    before = replace(view({C: NONE, A: NONE, B: NONE}), labels=merged.labels, merged_into=merged.merged_into)
    before.check()
    later = plan([C, B], lacking(C, B), before, NEXT + 1)
    assert later.merger == 0 and sources(later, C) == {B.id}


def test_a_state_does_not_count_beside_its_merged_result():
    merged = merged_plan([C, A, B, D], [view({C: WHOLE}), view({A: WHOLE, B: PART, D: WHOLE})], NEXT)
    before = replace(view({C: NONE, A: NONE, B: NONE, D: NONE}), labels=merged.labels, merged_into=merged.merged_into)
    later = plan([C, B, D], lacking(C, B, D), before, NEXT + 1)  # d has the same state as a
    assert sources(later, C) == {D.id}


def test_states_merged_twice_do_not_count_while_the_later_result_is_here():
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


# ---- states that cannot all be merged: one is chosen

E, F = (MemberInfo(name, number, b"x", 1 << 20, 1472, 1 << 20, state=1) for number, name in enumerate("ef", 5))
"""Without ``merge_state``."""
OBSERVER = replace(D, state=0)


def test_the_state_that_most_members_have_is_the_groups_and_the_others_take_it_over():
    parts = [view({E: WHOLE}), view({F: WHOLE, C: WHOLE})]
    made = merged_plan([E, F, C], parts, NEXT)
    assert made.labels == (PART, WHOLE, WHOLE) and made.merger == -1
    assert made.providers == (Provision(E.id, F.id, NEXT),)


def test_of_states_that_as_many_have_that_of_the_first_part_is_chosen():
    made = merged_plan([E, F, C, OBSERVER], [view({E: WHOLE}), view({F: WHOLE, OBSERVER: NONE})], NEXT)
    assert made.labels == (WHOLE, PART + 1, NONE, NONE)  # one that has no state does not count
    assert [each.joiner for each in made.providers] == [F.id, C.id] and {E.id} == {p.provider for p in made.providers}


def test_one_handler_that_cannot_merge_suffices_but_not_that_of_a_joiner():
    both = [view({A: WHOLE}), view({C: WHOLE, F: NONE})]
    assert merged_plan([A, C, F], both, NEXT).merger == 0
    assert merged_plan([A, C, F], [both[0], view({C: WHOLE, F: WHOLE})], NEXT).merger == -1


def test_a_joiner_whose_provider_lacks_the_chosen_state_begins_anew_with_another():
    left = replace(view({E: WHOLE, C: NONE}), providers=(Provision(C.id, E.id, 5),))
    right = replace(view({F: WHOLE, A: WHOLE, D: NONE}), providers=(Provision(D.id, A.id, 6),))
    made = merged_plan([E, C, F, D], [left, right], NEXT)  # a has not come: the first side's state is chosen
    assert made.providers == (Provision(C.id, E.id, 5), Provision(F.id, E.id, NEXT), Provision(D.id, E.id, NEXT))
    made = merged_plan([E, C, F, A, D], [left, right], NEXT)
    assert made.providers == (Provision(E.id, F.id, NEXT), Provision(C.id, F.id, NEXT), Provision(D.id, A.id, 6))


def test_if_all_that_have_the_chosen_state_crash_one_of_the_others_is_chosen():
    e, f, c, d = (replace(info, state=1) for info in (A, B, C, D))
    made = merged_plan([e, f, c, d], [view({e: WHOLE}), view({f: WHOLE, c: WHOLE}), view({d: WHOLE})], NEXT)
    before = replace(view({e: NONE, f: NONE, c: NONE, d: NONE}), labels=made.labels, providers=made.providers)
    before.check()
    later = plan([e, d], lacking(e, d), before, NEXT + 1)
    assert later.labels[0] == WHOLE and later.providers == (Provision(d.id, e.id, NEXT + 1),)
    had_it = plan([e, f, d], lacking(d), before, NEXT + 1)  # e has taken the state over
    assert had_it.labels[:2] == (WHOLE, WHOLE) and had_it.providers[0].joiner == d.id


def test_a_merged_view_names_the_side_whose_state_is_taken_over():
    e, f, c = (replace(info, state=1) for info in (A, B, C))
    sides = (Subgroup(ViewId(3, e.id), (e.id,)), Subgroup(ViewId(4, f.id), (f.id, c.id)))
    made = merged_plan([e, f, c], [view({e: WHOLE}), view({f: WHOLE, c: WHOLE})], NEXT)
    frame = replace(view({e: NONE, f: NONE, c: NONE}), labels=made.labels, subgroups=sides)
    merged = view_of(frame)
    assert isinstance(merged, MergeView) and merged.state_from is merged.subgroups[1]
    for labels in ((WHOLE, NONE, NONE), (PART, PART + 1, PART + 1), (NONE, NONE, NONE)):
        assert view_of(replace(frame, labels=labels)).state_from is None  # nobody gives up a state, or all merge theirs


def test_the_warning_names_only_sides_that_give_up_a_state():
    e, f, c = (replace(info, state=1) for info in (A, B, C))
    sides = tuple(Subgroup(ViewId(place, info.id), (info.id,)) for place, info in enumerate((D, e, f, c), 3))
    parts = [view({D: NONE}), view({e: WHOLE}), view({f: WHOLE}), view({c: WHOLE})]
    made = merged_plan([D, e, f, c], parts, NEXT)
    frame = replace(view({D: NONE, e: NONE, f: NONE, c: NONE}), labels=made.labels, subgroups=sides)
    merged = view_of(frame)
    assert merged.state_from is merged.subgroups[1], "of sides of one size that of the first"
    lines = LogLines(SimpleNamespace(me=e, now=0, settings=SimpleNamespace(unicast=False)))
    lines.installed(None, merged, frame, {})
    (said,) = [line for line in lines.lines if line.warning]
    assert said.args[1:] == (f"[{e.name}]", f"[{f.name}] and [{c.name}]")
