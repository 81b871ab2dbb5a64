"""The audit of causal order: an effect before its cause is named; concurrent messages in any order raise no alarm."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from audit_story import A, B, C, D, E, Script, failed
from journal_data import Row, journal
from sim_journals import journaled

from seqcast.journal.places import find
from seqcast.sim.options import Options
from seqcast.sim.world import World
from seqcast.spark import causal
from seqcast.spark.auditing import audit_journals, check_cluster
from seqcast.types import Member


def concurrent(script: Script) -> Script:
    """Each member delivers its own messages ahead of nine others', as while those are on their way."""
    for who, story in script.stories.items():
        for _, rows in story:
            place = {id(row): (at // 10, row.sender != who) for at, row in enumerate(rows)}
            rows.sort(key=lambda row: place[id(row)])
    return script


def overtaken(rows: list[Row], who: Member, since: int = 20) -> tuple[Row, Row]:
    """A message of another member comes before the one before it, of a third. Returns both, as they were."""
    at = next(
        at
        for at in range(since, len(rows))
        if len({rows[at].sender, rows[at + 1].sender, who}) == 3 and rows[at + 1].index == 0 == rows[at + 2].index
    )
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    return rows[at + 1], rows[at]


def named(row: Row) -> str:
    return f"{row.sender.name}'s message {row.seqno}.{row.index}"


@pytest.mark.parametrize("segment_rows", [1000, 20])
def test_concurrent_messages_in_any_order_raise_no_alarm(here: Any, tmp_path: Path, segment_rows: int) -> None:
    top = concurrent(Script("causal")).write(tmp_path, segment_rows=segment_rows, step=20)
    report = check_cluster(here, find([top]))
    assert failed(report) == set(), report.as_text()
    verdict = report.verdicts["causal"]
    assert verdict.result is True and int(verdict.compared.split()[0]) > 100


@pytest.mark.parametrize("segment_rows", first_quick([1000, 20]))
@pytest.mark.parametrize("base", [0, (1 << 61) + 5])
def test_an_effect_before_its_cause_is_named(here: Any, tmp_path: Path, segment_rows: int, base: int) -> None:
    script = Script("causal")
    for story in script.stories.values():
        for _, rows in story:
            rows[:] = [replace(row, seqno=base + row.seqno) for row in rows]
    cause, effect = overtaken(script.at(C, script.v2), C)
    report = check_cluster(here, find([script.write(tmp_path, segment_rows=segment_rows, step=20)]))
    assert failed(report) == {"causal"}, report.as_text()
    what = re.escape(f"{named(effect)} before {named(cause)} in view 2 [a, b, c, d, e]")
    who = effect.sender.name
    assert re.search(
        rf"c delivered {what} \(rows \d+ and \d+\), and {who} had delivered .* when it sent", report.as_text()
    )


def test_a_cause_in_another_segment_counts_and_all_are_counted(here: Any, tmp_path: Path) -> None:
    """The one question comes last at C, far behind the answers of D and of E."""
    script = Script("causal")
    rows = script.at(C, script.v2)
    moved = next(at for at, row in enumerate(rows) if row.sender is A and at > 30 and rows[at + 1].sender is not A)
    gone = [row for row in rows[moved:] if row.sender is A]
    rows[:] = [row for row in rows if row not in gone] + gone
    report = check_cluster(here, find([script.write(tmp_path, segment_rows=20, step=20)]))
    assert failed(report) == {"causal"}, report.as_text()
    assert report.verdicts["causal"].violations > 10


def test_messages_that_a_crashed_member_alone_had_are_not_causes(here: Any, tmp_path: Path) -> None:
    """A and B delivered messages that nobody else saw, and both fell; survivors have B's message without its cause."""
    script = Script("causal")
    cause = Row(A, 10_000, 0, 0, b"only a and b had it")
    effect = Row(B, 10_000, 0, 0, b"all had it")
    script.at(A, script.v2)[:] = [*script.at(C, script.v2), cause, effect]
    for who in (C, D, E):
        script.at(who, script.v2).append(effect)
    script.at(B, script.v2)[:] = [*script.at(C, script.v2)[:-1], cause, effect]
    for who in (A, B, C, D, E):
        journal(tmp_path, who, script.stories[who][:2] if who is B else script.stories[who], closed=None)
    report = check_cluster(here, find([tmp_path]))
    assert report.verdicts["causal"].result is True, report.as_text()


def without(rows: list[Row], sender: Member, since: int = 20) -> Row:
    """Takes the sender's messages from some row on; returns the first of them."""
    gone = [row for row in rows[since:] if row.sender == sender]
    rows[since:] = [row for row in rows[since:] if row.sender != sender]
    return gone[0]


def test_an_effect_without_its_cause_is_named_at_a_member_that_crashed(here: Any, tmp_path: Path) -> None:
    """By its journal the member lacks messages of a sender, as members that crash may; but it has later ones."""
    script = Script("causal")
    cause = without(script.at(A, script.v2), C)
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == {"causal"}, report.as_text()
    first = report.verdicts["causal"].first or ""
    assert re.search(rf"a delivered .* without {named(cause)} in view 2 \[.*\] \(row \d+\)", first), first


@pytest.mark.parametrize("deliver_own", [True, False])
def test_an_effect_without_its_cause_is_named_in_a_view_that_nobody_closed(
    here: Any, tmp_path: Path, deliver_own: bool
) -> None:
    script = Script("causal")
    without(script.at(E, script.v4), B)
    for who, story in script.stories.items():
        own = deliver_own or who is not E
        kept = [(of, [row for row in rows if own or row.sender is not E]) for of, rows in story]
        journal(tmp_path, who, kept, closed=None, deliver_own=own)
    report = check_cluster(here, find([tmp_path]))
    assert failed(report) == {"causal"}, report.as_text()


def test_a_prefix_in_a_view_that_nobody_closed_raises_no_alarm(here: Any, tmp_path: Path) -> None:
    script = Script("causal")
    script.at(E, script.v4)[25:] = []
    for who, story in script.stories.items():
        journal(tmp_path, who, story, closed=None)
    report = check_cluster(here, find([tmp_path]))
    assert failed(report) == set() and report.verdicts["causal"].result is True, report.as_text()


def test_windows_and_batches_do_not_hide_a_cause(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers far behind their question, in other windows of the senders' packets than the vectors before."""
    monkeypatch.setattr(causal, "WINDOW_SHIFT", 16)  # one packet
    script = Script("causal")
    overtaken(script.at(E, script.v3), E)
    assert failed(check_cluster(here, find([script.write(tmp_path)]))) == {"causal"}


@pytest.mark.parametrize("order", ["fifo", "sequencer"])
def test_other_orders_are_not_checked(here: Any, tmp_path: Path, order: str) -> None:
    stages: list[str] = []
    report = check_cluster(here, find([Script(order).write(tmp_path)]), tell=stages.append)
    assert report.verdicts["causal"].result is None and len(stages) == 3


def test_without_the_own_messages_nothing_is_known_and_said(here: Any, tmp_path: Path) -> None:
    script = Script("causal")
    for who, story in script.stories.items():
        for _, rows in story:
            rows[:] = [row for row in rows if row.sender != who]
    report = check_cluster(here, find([script.write(tmp_path, deliver_own=False)]))
    assert failed(report) == set() and report.verdicts["causal"].result is None, report.as_text()


def test_lost_messages_are_not_told_as_a_broken_causal_order(here: Any, tmp_path: Path) -> None:
    script = Script("causal")
    rows = script.at(B, script.v3)
    gone = {row.seqno for row in rows[10:30] if row.sender is C}
    rows[:] = [row for row in rows if row.sender is not C or row.seqno not in gone]
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == {"agreement"}, report.as_text()


def test_rows_that_retention_removed_raise_no_alarm_and_the_rest_is_compared(here: Any, tmp_path: Path) -> None:
    script = Script("causal")
    many = script.rows_of(script.v4, 600)
    for who in (B, C, E):
        script.at(who, script.v4)[:] = many
    report = check_cluster(here, find([script.write(tmp_path / "sound", segment_rows=100, keep_bytes=1)]))
    assert failed(report) == set(), report.as_text()
    overtaken(script.at(C, script.v4), C, since=len(many) - 40)
    report = check_cluster(here, find([script.write(tmp_path / "broken", segment_rows=100, keep_bytes=1)]))
    assert failed(report) == {"causal"}, report.as_text()


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [range(1, 5), pytest.param(range(5, 51), marks=pytest.mark.long)])
def test_simulated_runs_give_no_alarm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    for seed in seeds:
        result = journaled(
            lambda seed=seed: World(Options.draw(seed, order="causal")), tmp_path / f"{seed}", f"seed {seed}",
            monkeypatch,
        )  # fmt: skip
        assert not result.violations, (seed, result.violations)
    audit = audit_journals(spark, find([top for top in tmp_path.iterdir() if any(top.iterdir())]))
    assert audit.holds, [report.as_text() for report in audit.reports if not report.holds]
    assert sum(report.verdicts["causal"].result is True for report in audit.reports) > len(seeds) * 2 // 3


@pytest.mark.spark
def test_an_effect_before_its_cause_is_named_by_spark(spark: Any, tmp_path: Path) -> None:
    script = Script("causal")
    overtaken(script.at(C, script.v2), C)
    report = check_cluster(spark, find([script.write(tmp_path)]))
    assert failed(report) == {"causal"}, report.as_text()
