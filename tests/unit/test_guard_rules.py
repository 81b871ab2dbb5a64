"""The proof by the end of a guard connection, and the times of calls, fed by hand."""

import pytest

from seqcast.core.context import NEVER
from seqcast.core.machines.guard import (
    GREETING,
    LINES_MAX,
    MAGIC,
    RETRY_NS,
    STRANGERS_MAX,
    CallMember,
    CloseLine,
    Greet,
    GuardLines,
    MemberGone,
)
from seqcast.core.table import IllegalEvent

ME, LOW, HIGH, TAG = 50, 10, 90, 7


def guard(*members):
    result = GuardLines(ME, TAG, set())
    return result, result.view(members or (LOW, ME, HIGH), 0)


def standing():
    """A guard with a line to LOW that stands, and one of HIGH, which greeted."""
    made, (call,) = guard()
    assert made.connected(call.line, 1) == [Greet(call.line, GREETING.pack(MAGIC, TAG, ME))]
    line, _ = made.accepted(1)
    assert made.heard(line, GREETING.pack(MAGIC, TAG, HIGH), 1) == []
    return made, call.line, line


def test_the_member_with_the_higher_id_calls_and_both_are_linked():
    made, calls = guard()
    assert calls == [CallMember(1, LOW)]
    made, _, _ = standing()
    assert made.due() == NEVER


def test_an_end_is_checked_by_a_call_and_only_its_refusal_proves_anything():
    for end in (0, 1):
        made, *lines = standing()
        member = (LOW, HIGH)[end]
        close, call = made.ended(lines[end], 2)
        assert close == CloseLine(lines[end]) and call == CallMember(call.line, member)
        assert made.refused(call.line, 3) == [CloseLine(call.line), MemberGone(member)]
        assert made.counters["gone"] == 1


@pytest.mark.parametrize("answer", ["connected", "failed"])
def test_a_member_that_takes_the_call_or_is_silent_is_not_gone(answer):
    made, line, _ = standing()
    _, call = made.ended(line, 2)
    effects = getattr(made, answer)(call.line, 3)
    assert not any(isinstance(effect, MemberGone) for effect in effects) and made.counters["gone"] == 0


def test_the_refusal_of_a_first_call_or_by_one_that_left_the_view_proves_nothing():
    made, (call,) = guard()
    assert made.refused(call.line, 1) == [CloseLine(call.line)]
    made, line, _ = standing()
    _, call = made.ended(line, 2)
    assert made.view((HIGH,), 3) == [CloseLine(call.line)]
    made, _, line = standing()
    _, call = made.ended(line, 2)
    made.view((LOW,), 3)
    assert made.refused(call.line, 4) == [CloseLine(call.line)] and not made.counters["gone"]


def test_a_member_that_refuses_is_called_once_a_second_and_no_more():
    made, (call,) = guard(LOW)
    calls, now = 1, 0
    while now < 5 * RETRY_NS:
        effects = made.refused(call.line, now)
        now = made.due()
        (call,) = [*effects[1:], *made.run_timers(now)]
        calls += 1
    assert calls == 6


def test_a_view_change_keeps_the_lines_of_its_members_and_calls_none_of_them_sooner():
    made, _, _ = standing()
    assert made.view((LOW, HIGH), 2) == []
    made, (call,) = guard(LOW)
    assert made.refused(call.line, 1) == [CloseLine(call.line)]
    assert made.view((LOW, HIGH), 2) == [] and made.due() == RETRY_NS


def test_a_line_that_says_anything_but_one_greeting_of_this_group_is_closed():
    for data in (b"\xff" * 16, GREETING.pack(MAGIC, TAG + 1, HIGH), GREETING.pack(MAGIC, TAG, ME), b"x" * 17):
        made, _ = guard()
        line, _ = made.accepted(1)
        assert made.heard(line, data[:5], 1) == []
        assert made.heard(line, data[5:], 1) == [CloseLine(line)] and made.counters["strangers"] == 1
    made, called, line = standing()
    assert made.heard(called, b"x", 2)[0] == CloseLine(called)
    assert made.heard(line, b"x", 2) == [CloseLine(line)] and made.counters["strangers"] == 2


def test_lines_of_one_member_and_of_strangers_are_bounded():
    made, _, _ = standing()
    for number in range(LINES_MAX):
        line, _ = made.accepted(2)
        closed = made.heard(line, GREETING.pack(MAGIC, TAG, HIGH), 2)
        assert closed == ([CloseLine(line)] if number == LINES_MAX - 1 else [])
    first, _ = made.accepted(3)
    for _ in range(STRANGERS_MAX - 1):
        assert made.accepted(3)[1] == []
    assert made.accepted(3)[1] == [CloseLine(first)]
    assert made.heard(first, b"x", 4) == [] and first not in made.lines


def test_nothing_is_read_of_a_call_that_is_not_answered():
    made, (call,) = guard()
    with pytest.raises(IllegalEvent):
        made.ended(call.line, 1)
