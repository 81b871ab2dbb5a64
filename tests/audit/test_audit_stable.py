"""The audit in an order that promises no prefix (``records``): the messages that every member has up to the stable
point of a closed view, also one that crashed, left or was cut off, transitional ones behind it, and the promise of safe
delivery."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from audit_story import A, B, C, D, E, Script, failed, relabel
from journal_data import Row, journal, view

from seqcast.journal import seals
from seqcast.journal.places import find
from seqcast.spark.auditing import check_cluster
from seqcast.types import View

FIRST = 45
"""Global seqno of the first message of view 2 that is transitional: its sequencer A crashed."""


class Recorded(Script):
    """A crashes in view 2, where the others agree on an order of their own from 45 on. D leaves by view 4."""

    def __init__(self) -> None:
        super().__init__("records")
        for who in (B, C, D, E):
            self.mark(who, FIRST)
        self.at(D, self.v3)[:] = self.at(B, self.v3)
        rows = self.at(A, self.v2)
        rows[:] = self.at(B, self.v2)[: FIRST - 1]
        rows += [self.alien(at) for at in range(FIRST, FIRST + 5)]
        self.ends: dict[Any, View] = {D: self.v4}

    def mark(self, who: Any, first: int) -> None:
        rows = self.at(who, self.v2)
        rows[:] = [replace(row, transitional=row.global_seqno >= first) for row in rows]

    def alien(self, at: int) -> Row:
        return Row(A, 10_000 + at, 0, at, b"only a delivered it")

    def write(self, top: Path, **settings: Any) -> Path:
        for who, story in self.stories.items():
            journal(top, who, story, closed=None if who is A else "leave", successor=self.ends.get(who), **settings)
        return top


def test_behind_the_stable_point_a_crashed_member_may_have_delivered_something_else(here: Any, tmp_path: Path) -> None:
    report = check_cluster(here, find([Recorded().write(tmp_path)]))
    assert failed(report) == set(), report.as_text()
    # View 1: A, B, C, D together; 2: B, C, D, E, and A as far as is stable; 3: B, C, E, and D, which left by view 4;
    # 4: B, C and E, which left later.
    told = report.verdicts["agreement"].compared
    assert told == "9 pairs of members with the same successor view, 3 as prefixes"
    assert report.verdicts["transitional"].result is True


def crashed_swapped(script: Recorded) -> None:
    rows = script.at(A, script.v2)
    at = next(at for at in range(20, 40) if rows[at].sender != rows[at + 1].sender)
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    relabel(rows)


def crashed_lost_one(script: Recorded) -> None:
    rows = script.at(A, script.v2)
    del rows[next(at for at in range(20, 40) if rows[at + 1].index == 0)]
    relabel(rows)


def crashed_had_another(script: Recorded) -> None:
    rows = script.at(A, script.v2)
    rows[FIRST - 2] = script.alien(FIRST - 1)


def crashed_had_another_payload(script: Recorded) -> None:
    rows = script.at(A, script.v2)
    rows[30] = replace(rows[30], payload=b"something else")


def leaver_lacks_the_end(script: Recorded) -> None:
    script.at(D, script.v3)[-3:] = []


def leaver_has_more(script: Recorded) -> None:
    rows = script.at(D, script.v3)
    rows.append(Row(C, 10_000, 0, len(rows) + 1, b"only d"))


def decided_behind_transitional(script: Recorded) -> None:
    for who in (B, C, D, E):
        rows = script.at(who, script.v2)
        rows[60] = replace(rows[60], transitional=False)


def another_first(script: Recorded) -> None:
    script.mark(C, FIRST + 6)


@pytest.mark.parametrize("swapped", [False, True])
def test_members_that_crash_before_they_record_how_a_view_ended_agree_on_messages_that_are_not_transitional(
    here: Any, tmp_path: Path, swapped: bool
) -> None:
    script = Recorded()
    if swapped:
        crashed_swapped(script)
    for who in (A, C):
        story = [(of, rows) for of, rows in script.stories[who] if of in (script.v1, script.v2)]
        journal(tmp_path, who, story, closed=None)
    report = check_cluster(here, find([tmp_path]))
    assert failed(report) == ({"total order"} if swapped else set()), report.as_text()


@pytest.mark.parametrize(
    ("fault", "named", "example"),
    [
        (crashed_swapped, {"total order"}, r"view 2 .*b delivered .*, a as \d\d and \d\d"),
        (crashed_lost_one, {"agreement"}, r"b delivered .* in view 2 .*, a did not \(a delivered later ones"),
        (crashed_had_another, {"agreement"}, r"b delivered c's message .* at global seqno 44, a did not"),
        (crashed_had_another_payload, {"integrity"}, r"one payload at b and another at a"),
        (leaver_lacks_the_end, {"agreement"}, r"b delivered .* in view 3 .*, d did not \(both closed"),
        (leaver_has_more, {"agreement"}, r"d delivered c's message 10000.0 in view 3 .*, b did not"),
        (
            decided_behind_transitional,
            {"transitional"},
            r"b delivered global seqno 61 in view 2 .*, which is not transitional, after 45, which is \(row \d+\)",
        ),
        (another_first, {"transitional"}, r"view 2 .* is stable up to global seqno 44 at b, and up to 50 at c"),
    ],
)
def test_each_fault_up_to_the_stable_point_is_named(
    here: Any, tmp_path: Path, fault: Callable[[Recorded], None], named: set[str], example: str
) -> None:
    script = Recorded()
    fault(script)
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == named, report.as_text()
    assert re.search(example, report.as_text()), report.as_text()


def test_a_stable_point_that_the_rows_do_not_have_is_found(here: Any, tmp_path: Path) -> None:
    top = Recorded().write(tmp_path)
    for found in find([top]):
        views = found.path / "views.jsonl"
        records = [seals.unseal(line) for line in views.read_text().splitlines()]
        for record in records:
            if record["closes"] and record["closes"]["stable"] == FIRST - 1:
                record["closes"]["stable"] += 3
        views.write_text("".join(seals.seal(record) + "\n" for record in records))
    report = check_cluster(here, find([top]))
    assert "transitional" in failed(report), report.as_text()
    assert re.search(r"b closed view 2 .* as stable up to global seqno 47, and by its rows .* 44", report.as_text())


@pytest.mark.parametrize(("swapped", "named"), [(False, set()), (True, {"total order"})])
def test_a_member_that_was_cut_off_agrees_up_to_the_lower_stable_point(
    here: Any, tmp_path: Path, swapped: bool, named: set[str]
) -> None:
    """D and E close view 2 apart from B and C, in an order of their own from 41 on."""
    script = Recorded()
    apart = view(3, [D, E], "records", attempt=2)
    rows = script.at(D, script.v2)
    rows[40:] = sorted(rows[40:], key=lambda row: (row.sender.id, row.seqno, row.index))
    relabel(rows)
    if swapped:
        at = next(at for at in range(20, 39) if rows[at].sender != rows[at + 1].sender)
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
        relabel(rows)
    for who, before in ((D, script.stories[D][:1]), (E, [])):
        script.stories[who] = [*before, (script.v2, list(rows)), (apart, [])]
        script.mark(who, 41)
    script.stories[B][2:] = script.stories[C][2:] = [(view(3, [B, C], "records"), [])]
    script.ends = {}
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == named, report.as_text()


@pytest.mark.parametrize(("rows", "named"), [(5, {"agreement"}), (0, set())], ids=["broken", "sound"])
def test_with_safe_delivery_all_have_the_deliveries_of_one_that_crashed(
    here: Any, tmp_path: Path, rows: int, named: set[str]
) -> None:
    script = Recorded()
    script.at(A, script.v2)[FIRST - 1 + rows :] = []
    report = check_cluster(here, find([script.write(tmp_path, safe=True)]))
    assert failed(report) == named, report.as_text()


@pytest.mark.parametrize(
    ("safe", "transitional", "named"),
    [(True, False, {"agreement"}), (True, True, set()), (False, False, set())],
    ids=["broken", "transitional", "not safe"],
)
def test_with_safe_delivery_in_each_senders_own_order_all_have_the_same_too(
    here: Any, tmp_path: Path, safe: bool, transitional: bool, named: set[str]
) -> None:
    """A has delivered messages of its own that nobody else has, and crashed. Unless all acknowledged them, that is
    allowed."""
    script = Script("fifo")
    script.at(D, script.v3)[:] = script.at(B, script.v3)
    rows = script.at(A, script.v2)
    rows[:] = script.at(B, script.v2)
    rows += [Row(A, 10_000 + at, 0, 0, b"only a has it", transitional=transitional) for at in range(5)]
    report = check_cluster(here, find([script.write(tmp_path, safe=safe)]))
    assert failed(report) == named, report.as_text()
    if named:
        assert re.search(r"a delivered a's message 10000\.0 in view 2 .*, b did not", report.as_text())


def test_a_message_of_a_journal_is_transitional_as_it_was_delivered(tmp_path: Path) -> None:
    script = Recorded()
    path = journal(tmp_path, B, script.stories[B], payload="full")
    (found,) = find([path])
    told = [message.transitional for message in found.messages()]
    assert told == [row.transitional for _, rows in script.stories[B] for row in rows] and any(told)
