"""The audit: a sound group passes, and each fault is named by its own verdict, and by no other."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from audit_story import A, B, C, D, E, Script, failed, relabel
from commands import call
from journal_data import Row, as_live, journal, view

import seqcast.spark
from seqcast.errors import SparkFailed, UsageError
from seqcast.journal import manifest, seals
from seqcast.journal.places import find
from seqcast.journal.roll import rewrite
from seqcast.journal.schema import JournalDamaged, JournalError
from seqcast.spark import command
from seqcast.spark.auditing import audit_journals, check_cluster, journals_of
from seqcast.spark.session import open_session, told_in_a_line
from seqcast.spark.verdicts import CHECKS
from seqcast.types import Member


def test_a_sound_group_with_join_crash_and_leave_passes(spark: Any, tmp_path: Path) -> None:
    stages: list[str] = []
    report = check_cluster(spark, find([Script().write(tmp_path)]), tell=stages.append)
    assert len(stages) == 3 and f"judging {report.rows} rows" in stages[-1]
    assert failed(report) == set(), report.as_text()
    assert {check: verdict.result for check, verdict in report.verdicts.items()} == {
        check: None if check == "causal" else True for check in CHECKS
    }
    assert report.rows == sum(len(rows) for story in Script().stories.values() for _, rows in story)
    assert "without a closing record (crashed, or still writing): a" in report.notes
    # v1: A, B, C, D went on together; v2: B, C, D, E; v3: B, C, E. A in v2, D in v3; and in v4 C, E against B.
    assert report.verdicts["agreement"].compared == "8 pairs of members with the same successor view, 4 as prefixes"


def swap_deliveries(script: Script) -> None:
    rows = script.at(C, script.v2)
    assert rows[20].sender != rows[21].sender
    rows[20], rows[21] = rows[21], rows[20]


def swap_and_relabel(script: Script) -> None:
    swap_deliveries(script)
    relabel(script.at(C, script.v2))


def lose_one(script: Script) -> None:
    del script.at(B, script.v3)[7]


def lose_one_and_relabel(script: Script) -> None:
    rows = script.at(B, script.v3)
    del rows[next(at for at in range(6, 99) if rows[at + 1].index == 0)]  # the last of its packet: b cannot tell
    relabel(rows)


def lose_one_of_a_packet_and_relabel(script: Script) -> None:
    rows = script.at(B, script.v3)
    del rows[next(at for at, row in enumerate(rows) if at > 5 and rows[at + 1].index == row.index + 1)]
    relabel(rows)


def deliver_twice(script: Script) -> None:
    rows = script.at(D, script.v1)
    rows.insert(12, rows[11])


def deliver_twice_and_relabel(script: Script) -> None:
    deliver_twice(script)
    relabel(script.at(D, script.v1))


def deliver_again_in_the_next_view(script: Script) -> None:
    for who in (A, B, C, D, E):
        rows = script.at(who, script.v2)
        rows.insert(0, replace(script.at(B, script.v1)[30], global_seqno=1))
        relabel(rows)


def other_payload(script: Script) -> None:
    rows = script.at(E, script.v2)
    rows[30] = replace(rows[30], payload=b"something else")


def same_wrong_fifo_everywhere(script: Script) -> None:
    sample = script.at(B, script.v2)
    one = next(at for at, row in enumerate(sample) if row.sender is D and at > 10)
    other = next(at for at in range(one + 3, len(sample)) if sample[at].sender is D and sample[at].index == 0)
    assert sample[one].index == 0
    for who in (A, B, C, D, E):
        rows = script.at(who, script.v2)
        rows[one : one + 1], rows[other : other + 1] = rows[other : other + 1], rows[one : one + 1]
        relabel(rows)


def miss_the_tail_and_install_the_next(script: Script) -> None:
    script.at(B, script.v1)[-5:] = []


def deliver_in_the_wrong_view(script: Script) -> None:
    before, after = script.at(C, script.v1), script.at(C, script.v2)
    after[:0] = before[-3:]
    before[-3:] = []
    relabel(after)


def alien_order_at_the_crashed_one(script: Script) -> None:
    rows = script.at(A, script.v2)
    at = next(at for at in range(10, 30) if rows[at].sender != rows[at + 1].sender)
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    relabel(rows)


def leaver_delivered_what_nobody_else_did(script: Script) -> None:
    rows = script.at(D, script.v3)
    rows[:] = script.at(B, script.v3)
    rows.append(Row(C, 10_000, 0, len(rows) + 1, b"only d"))


def message_of_a_stranger(script: Script) -> None:
    for who in (B, C, E):
        rows = script.at(who, script.v4)
        rows.append(Row(D, 10_000, 0, len(rows) + 1, b"D has left"))


def another_idea_of_the_view(script: Script) -> None:
    script.stories[C][2] = (replace(script.v3, members=(B, C, D)), script.stories[C][2][1])


def views_go_back(script: Script) -> None:
    story = script.stories[E]
    story[1], story[2] = story[2], story[1]


@pytest.mark.parametrize(
    ("fault", "named", "example"),
    [
        (swap_deliveries, {"total order"}, r"c delivered global seqno 21 after 22 in view 2 .* \(row"),
        (
            swap_and_relabel,
            {"total order"},
            r"view 2 .*b delivered .* as global seqnos 21 and 22, c as 22 and 21|a del",
        ),
        (lose_one, {"gaps", "agreement"}, r"b delivered no global seqno 8 in view 3"),
        (lose_one_and_relabel, {"agreement"}, r"c delivered .* in view 3 .*, b did not \(both closed the view"),
        (lose_one_of_a_packet_and_relabel, {"gaps", "agreement"}, r"b did not deliver .* before"),
        (deliver_twice, {"duplicates"}, r"d delivered .* twice, in view 1 .* \(rows 11 and 12\)"),
        (deliver_twice_and_relabel, {"duplicates"}, r"d delivered .* twice, in view 1"),
        (deliver_again_in_the_next_view, {"duplicates"}, r"delivered .* twice, in view 1 .* and in view 2"),
        (other_payload, {"integrity"}, r"one payload at b and another at e"),
        (same_wrong_fifo_everywhere, {"fifo"}, r"delivered d's message .* after d's message"),
        (miss_the_tail_and_install_the_next, {"agreement"}, r"a delivered .* in view 1 .*, b did not"),
        (deliver_in_the_wrong_view, {"sending view"}, r"a delivered it in view 1 .*, c in view 2"),
        (alien_order_at_the_crashed_one, {"total order"}, r"view 2 .*b delivered .*, a as 1\d and 1\d"),
        (leaver_delivered_what_nobody_else_did, {"agreement"}, r"d delivered c's message 10000\.0 .* b did not"),
        (message_of_a_stranger, {"sending view"}, r"b delivered d's message 10000\.0 in view 4 .*not a member"),
        (another_idea_of_the_view, {"views"}, r"view 3 .* other members"),
        (views_go_back, {"views"}, r"e installed view 3 .* after view 4"),
    ],
)
def test_each_fault_is_named(
    here: Any,
    tmp_path: Path,
    fault: Callable[[Script], None],
    named: set[str],
    example: str,
) -> None:
    script = Script()
    fault(script)
    report = check_cluster(here, find([script.write(tmp_path)]))
    if fault is views_go_back:  # the succession of views is then another question too
        assert "views" in failed(report)
    else:
        assert failed(report) == named, report.as_text()
    assert re.search(example, report.as_text()), report.as_text()


def test_a_crashed_sequencer_may_have_delivered_messages_that_nobody_else_saw(here: Any, tmp_path: Path) -> None:
    script = Script()
    rows = script.at(A, script.v2)
    rows[:] = script.at(B, script.v2)
    rows.append(Row(C, 10_000, 0, len(rows) + 1, b"stamped, and then the process died"))
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == set(), report.as_text()


def interleave(script: Script) -> None:
    """Each member delivers each sender's messages in order, and the senders in an order of its own."""
    for who, story in script.stories.items():
        for of, rows in story:
            turn = {sender.id: (at * 7 + len(who.name)) % 5 for at, sender in enumerate(of.members)}
            if who in (B, D):
                rows.sort(key=lambda row: turn[row.sender.id])


@pytest.mark.parametrize("deliver_own", [True, False])
def test_in_the_last_view_of_all_members_are_compared_beyond_a_sequencer_that_has_less(
    here: Any, tmp_path: Path, deliver_own: bool
) -> None:
    for kind in ("sound", "swapped"):
        script = Script()
        last = script.v4  # B is its sequencer
        del script.at(B, last)[20:]
        rows = script.at(C, last)
        at = next(at for at in range(40, 60) if rows[at].sender is B and rows[at + 1].sender is C)
        if kind == "swapped":
            if deliver_own:
                rows[at], rows[at + 1] = rows[at + 1], rows[at]
                relabel(rows)
            else:  # the sequencer's own messages, which its own journal lacks
                rows[at] = replace(rows[at], payload=b"something else")
        for who, story in script.stories.items():
            for _, own in story if not deliver_own else ():
                own[:] = [row for row in own if row.sender != who]
            journal(tmp_path / kind, who, story, closed=None, deliver_own=deliver_own)
        report = check_cluster(here, find([tmp_path / kind]))
        named = {"total order" if deliver_own else "integrity"} if kind == "swapped" else set()
        assert failed(report) == named, report.as_text()


def test_without_total_order_each_sender_is_audited(here: Any, tmp_path: Path) -> None:
    script = Script("fifo")
    interleave(script)
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == set(), report.as_text()
    assert report.verdicts["total order"].result is None
    assert report.verdicts["agreement"].result is True


def fifo_swap(script: Script) -> None:
    rows = script.at(B, script.v3)
    mine = [at for at, row in enumerate(rows) if row.sender is C and row.index == 0]
    rows[mine[1]], rows[mine[2]] = rows[mine[2]], rows[mine[1]]


def fifo_loss(script: Script) -> None:
    rows = script.at(B, script.v3)
    gone = next(row.seqno for row in rows[10:] if row.sender is C)
    rows[:] = [row for row in rows if (row.sender, row.seqno) != (C, gone)]


def fifo_hole_at_the_crashed_one(script: Script) -> None:
    rows = script.at(A, script.v2)
    gone = next(row.seqno for row in rows[10:] if row.sender is C)
    rows[:] = [row for row in rows if (row.sender, row.seqno) != (C, gone)]


@pytest.mark.parametrize(
    ("fault", "named", "example"),
    [
        (fifo_swap, {"fifo"}, r"b delivered c's message .* after c's message"),
        (fifo_loss, {"agreement"}, r"c delivered c's message .*, b did not"),
        (
            fifo_hole_at_the_crashed_one,
            {"agreement"},
            r"b delivered c's message .*, a did not \(a delivered later ones",
        ),
    ],
)
def test_each_fault_is_named_without_total_order(
    here: Any,
    tmp_path: Path,
    fault: Callable[[Script], None],
    named: set[str],
    example: str,
) -> None:
    script = Script("fifo")
    interleave(script)
    fault(script)
    report = check_cluster(here, find([script.write(tmp_path)]))
    assert failed(report) == named, report.as_text()
    assert re.search(example, report.as_text()), report.as_text()


@pytest.mark.parametrize("loses", [False, True])
def test_members_that_do_not_deliver_their_own_are_compared_on_the_rest(
    here: Any,
    tmp_path: Path,
    loses: bool,
) -> None:
    script = Script()
    for who, story in script.stories.items():
        for _, rows in story:
            rows[:] = [row for row in rows if row.sender != who]
    if loses:
        rows = script.at(D, script.v2)
        assert rows[9].sender is not D
        del rows[9]
    report = check_cluster(here, find([script.write(tmp_path, deliver_own=False)]))
    assert ("agreement" in failed(report)) == loses, report.as_text()
    assert failed(report) <= {"agreement", "gaps"}, report.as_text()


def test_a_member_that_is_set_to_deliver_none_of_its_own_messages_delivers_none(here: Any, tmp_path: Path) -> None:
    report = check_cluster(here, find([Script().write(tmp_path, deliver_own=False)]))
    assert failed(report) == {"agreement"}, report.as_text()
    assert re.search(r"a delivered a's message .* in view 1 .* set to deliver none", report.as_text())


def test_a_payload_that_was_altered_on_disk_is_found(here: Any, tmp_path: Path) -> None:
    top = Script().write(tmp_path, payload="full")
    assert failed(check_cluster(here, find([top]))) == set()
    victim = next(found for found in find([top]) if found.member == D).path
    table = pq.read_table(victim / "segment-000001.parquet")
    payloads = table["payload"].to_pylist()
    payloads[33] = b"forged"
    rewrite(victim, 1, changed(table, "payload", payloads))
    report = check_cluster(here, find([top]))
    assert failed(report) == {"integrity"}
    assert "d's journal, row 33" in report.as_text()
    assert failed(check_cluster(here, find([top]), payloads=False)) == set()


def test_a_live_segment_with_a_torn_tail_is_read_and_counted(here: Any, tmp_path: Path) -> None:
    top = Script().write(tmp_path)
    crashed = next(found for found in find([top]) if found.member == A)
    live = as_live(crashed.path, chunk=50)
    with live.open("r+b") as file:
        file.truncate(live.stat().st_size - 500)
    report = check_cluster(here, find([top]))
    assert failed(report) == set(), report.as_text()
    assert (report.rows, report.torn) == (sum(found.rows for found in find([top])), 1)
    assert crashed.rows - 50 <= find([crashed.path])[0].rows < crashed.rows
    live.unlink()
    sums = live.with_suffix(".sums")
    sums.write_bytes(sums.read_bytes()[:20])  # not even the schema
    report = check_cluster(here, find([top]))
    assert (failed(report), report.torn) == (set(), 1), report.as_text()
    assert any("rows of a's journal went with its tail" in note for note in report.notes)


def test_a_journal_that_was_closed_and_ends_early_is_not_whole(here: Any, tmp_path: Path) -> None:
    top = Script().write(tmp_path)
    victim = next(found for found in find([top]) if found.member == C).path
    table = pq.read_table(victim / "segment-000001.parquet")
    rewrite(victim, 1, table.slice(0, table.num_rows - 3))
    report = check_cluster(here, find([top]))
    assert "gaps" in failed(report)
    assert re.search(r"c's journal ends before row \d+, and was closed at row \d+", report.as_text())


def test_many_segments_are_stitched(here: Any, tmp_path: Path) -> None:
    script = Script()
    assert failed(check_cluster(here, find([script.write(tmp_path / "sound", segment_rows=20, step=20)]))) == set()
    rows = script.at(B, script.v2)
    del rows[-30:-10]
    report = check_cluster(here, find([script.write(tmp_path / "gap", segment_rows=20, step=20)]))
    assert failed(report) == {"gaps", "agreement"}, report.as_text()


def changed(table: pa.Table, column: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(column)
    field = table.schema.field(column)
    return table.set_column(place, field, pa.array(values, field.type))


class Unstopped:
    """The tests' session, which a command must not end."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        pass


def test_the_command_prints_the_table_or_json_and_returns_the_status(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("seqcast.spark.session.open_session", lambda master, name, ship: Unstopped(spark))
    assert call(command, [str(Script().write(tmp_path / "sound"))]) == 0
    assert re.search(r"total order +true +\d", capsys.readouterr().out)
    script = Script()
    lose_one(script)
    assert call(command, [str(script.write(tmp_path / "false")), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is False
    pytest.importorskip("matplotlib")
    target = tmp_path / "new" / "audit.html"
    assert call(command, [str(tmp_path / "false"), "--html", str(target)]) == 1
    page = target.read_text()
    assert page.count("data:image/png;base64,") == 2 and "NOT every guarantee holds" in page
    assert "b delivered no global seqno 8 in view 3" in page and "hold in &#x27;test&#x27;?" in page
    assert "violations of agreement" in page and 'class="bad">FALSE' in page
    assert {check["check"]: check["result"] for check in told["checks"]}["gaps"] is False
    path = journal(tmp_path / "again" / "x", B, script.stories[B])
    with pytest.raises(UsageError, match="of the same member"):
        call(command, [str(path), str(tmp_path / "false")])


def test_ctrl_c_while_java_starts_is_kept_until_it_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = []

    class Started:
        def stop(self) -> None:
            done.append("stopped")

    def start(builder: object) -> Started:
        signal.raise_signal(signal.SIGINT)
        done.append("started")
        logging.error("KeyboardInterrupt while sending command.")  # as Py4J does, with a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark sets one of its own
        return Started()

    monkeypatch.setattr("seqcast.spark.session._start_java", lambda settings: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", start)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        open_session("local[1]")
    assert done == ["started", "stopped"]
    assert not caplog.records
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_to_our_process_group_does_not_reach_java(spark: Any) -> None:
    """Its end in the middle of a call would come out as a failure of Spark, and not as an interrupt."""
    java = spark.sparkContext._gateway.proc.pid
    assert os.getsid(java) != os.getsid(0) and os.getpgid(java) != os.getpgid(0)


def test_a_member_that_ended_before_its_first_view_does_not_stop_the_audit(here: Any, tmp_path: Path) -> None:
    v1 = view(1, [A, B])
    for who in (A, B):
        journal(tmp_path, who, [(v1, [Row(A, 1, 0, 1, b"x")])])
    (journal(tmp_path, C, [], closed=None) / "views.jsonl").unlink()
    report = check_cluster(here, find([tmp_path]))
    assert failed(report) == set() and report.journals == 3, report.as_text()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "status", "told"),
    first_quick([
        ("local[none]", 2, "'local[none]' is not a Spark master"),
        ("nonsense", 2, "'nonsense' is not a Spark master"),
    ]),
)
def test_spark_that_does_not_start_is_one_line_and_no_verdict(
    tmp_path: Path, master: str, status: int, told: str
) -> None:
    command = [sys.executable, "-m", "seqcast", "audit", str(Script().write(tmp_path)), "--master", master]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"seqcast: {told}")
    assert "Traceback" not in done.stderr


def test_a_task_that_fails_is_one_line(spark: Any) -> None:
    def fail(_: int) -> int:
        raise MemoryError("none left")

    with pytest.raises(SparkFailed, match=r"^Spark failed: .*none left") as caught, told_in_a_line():
        spark.sparkContext.parallelize([1], 1).map(fail).collect()
    assert "\n" not in str(caught.value)


def test_bad_input_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        call(command, [str(tmp_path / "none")])
    with pytest.raises(UsageError, match="neither messages nor views"):
        call(command, [str(journal(tmp_path, A, []))])


def test_views_are_audited_even_if_no_message_is_journaled(here: Any, tmp_path: Path) -> None:
    """A group may send nothing, or unicasts only, which are in no journal."""
    first, second = view(1, [A, B]), view(2, [A])
    for who, story in ((A, [(first, []), (second, [])]), (B, [(first, [])])):
        journal(tmp_path / "sound", who, story, successor=None if who is A else second)
        journal(tmp_path / "broken", who, [(of if who is A else view(1, [A, B], "fifo"), []) for of, _ in story])
    audit = audit_journals(here, journals_of(tmp_path / "sound"))
    assert audit.holds and audit.reports[0].verdicts["views"].result is True, audit.as_text()
    assert failed(audit_journals(here, journals_of(tmp_path / "broken")).reports[0]) == {"views"}


@pytest.mark.parametrize("more", [5, -5])
def test_a_manifest_that_claims_other_rows_than_there_are_is_damage(here: Any, tmp_path: Path, more: int) -> None:
    top = Script().write(tmp_path)
    path = find([top])[0].path
    before = manifest.load(path)
    last = max(before.rolled)
    rolled = {**before.rolled, last: replace(before.rolled[last], rows=before.rolled[last].rows + more)}
    manifest.save(path, replace(before, rolled=rolled))
    with pytest.raises(JournalError, match=r"has \d+ rows, and segments.json says \d+"):
        check_cluster(here, find([top]))
    with pytest.raises(JournalDamaged, match=r"has \d+ rows, and segments.json says \d+"):
        list(find([top])[0].batches())


def test_a_damaged_segment_is_bad_input(spark: Any, tmp_path: Path) -> None:
    top = Script().write(tmp_path, payload="full")
    victim = find([top])[0].segments[0].path
    data = bytearray(victim.read_bytes())
    data[100:2000] = bytes(1900)
    victim.write_bytes(data)
    with pytest.raises(UsageError, match=r"^damage: .* its checksum is not that of") as caught:
        check_cluster(spark, find([top]))
    assert "\n" not in str(caught.value)
    victim.unlink()
    with pytest.raises(JournalDamaged, match="is missing"):
        find([top])


def test_a_view_record_that_is_torn_or_lost_before_its_rows_is_damage_and_no_broken_guarantee(
    here: Any, tmp_path: Path
) -> None:
    top = Script().write(tmp_path)
    views = next(found for found in find([top]) if found.member == A).path / "views.jsonl"  # A crashed
    whole = views.read_bytes()
    for cut in (20, len(whole.splitlines(keepends=True)[-1])):  # a part of the last record, the whole record
        views.write_bytes(whole[:-cut])
        with pytest.raises(
            JournalDamaged, match=r"views.jsonl lacks its end: row \d+ is of a view after the last one"
        ):
            check_cluster(here, find([top]))


def test_a_journal_whose_first_views_are_gone_is_damaged(here: Any, tmp_path: Path) -> None:
    """With their rows gone too, nothing else tells: a member may begin with any view."""
    top = Script().write(tmp_path)
    path = next(found for found in find([top]) if found.member == C).path
    table, views = pq.read_table(path / "segment-000001.parquet"), path / "views.jsonl"
    records = [seals.unseal(line) for line in views.read_text().splitlines()[1:]]
    gone = records[0]["idx"]
    rewrite(path, 1, changed(table.slice(gone), "idx", range(table.num_rows - gone)))
    views.write_text("".join(seals.seal({**record, "idx": record["idx"] - gone}) + "\n" for record in records))
    with pytest.raises(
        JournalDamaged, match=r"views.jsonl, line 1, .* the record closes a view, and none stands before"
    ):
        check_cluster(here, find([top]))


@pytest.mark.long
def test_segments_are_read_in_tasks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that went through the driver would have to fit into its memory."""
    script = Script()
    lose_one(script)
    top = script.write(tmp_path)
    for found in find([top]):
        as_live(found.path, chunk=50)
    calls: list[Any] = []
    monkeypatch.setattr("seqcast.spark.segments.segment_batches", lambda *given: calls.append(given))
    report = check_cluster(spark, find([top]))
    assert (failed(report), calls) == ({"gaps", "agreement"}, []), report.as_text()
    assert report.rows == sum(found.rows for found in find([top]))


@pytest.mark.parametrize(
    "fault",
    [
        lose_one,
        swap_and_relabel,
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (deliver_twice, lose_one_of_a_packet_and_relabel, other_payload)
        ),
    ],
)
def test_many_small_segments_say_the_same_as_one(here: Any, tmp_path: Path, fault: Callable[[Script], None]) -> None:
    script = Script()
    fault(script)
    few, many, together = (
        find([script.write(tmp_path / f"{rows} {least}", segment_rows=rows, together_rows=least, step=20)])
        for rows, least in ((1000, 1), (20, 1), (20, 60))
    )
    segments = [sum(len(each.segments) for each in journals) for journals in (few, together, many)]
    assert 5 * segments[0] < segments[2] and 2 * segments[1] < segments[2]
    one, *others = (check_cluster(here, journals).as_text() for journals in (few, together, many))
    assert others == [one, one] and failed(check_cluster(here, few))


@pytest.mark.parametrize("base", [pytest.param(1 << 47, marks=pytest.mark.long), (1 << 61) + 5])
def test_packet_seqnos_of_any_size_give_no_alarm(here: Any, tmp_path: Path, base: int) -> None:
    for order in ("fifo", "sequencer"):
        script = Script(order)
        for story in script.stories.values():
            for _, rows in story:
                rows[:] = [replace(row, seqno=base + row.seqno) for row in rows]
        report = check_cluster(here, find([script.write(tmp_path / f"{order}-sound")]))
        assert failed(report) == set(), report.as_text()
        rows = script.at(B, script.v2)
        del rows[7]
        report = check_cluster(here, find([script.write(tmp_path / f"{order}-gap")]))
        assert "agreement" in failed(report), report.as_text()


def damaged(top: Path, who: Member, change: Callable[[Path], None]) -> Path:
    change(next(found for found in find([top]) if found.member == who).path)
    return top


def renamed(path: Path) -> None:
    header = path / "journal.json"
    header.write_text(seals.seal({**seals.unseal(header.read_text()), "cluster": "another"}))


def without_view(path: Path) -> None:
    """The rows of the second view are there, as if they were of the first."""
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    table = pq.read_table(path / "segment-000001.parquet")
    kept = seals.unseal(lines[0]), seals.unseal(lines[2])
    rows = table.slice(0, seals.unseal(lines[1])["idx"]), table.slice(kept[1]["idx"])
    gone = table.num_rows - sum(part.num_rows for part in rows)
    table = pa.concat_tables(rows)
    rewrite(path, 1, changed(table, "idx", range(table.num_rows)))
    moved = [{**seals.unseal(line), "idx": seals.unseal(line)["idx"] - gone} for line in lines[2:]]
    views.write_text("".join(seals.seal(record) + "\n" for record in [kept[0], *moved]))


def with_column(name: str, row: int, add: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        table = pq.read_table(path / "segment-000001.parquet")
        values = table[name].to_pylist()
        values[row] += add
        rewrite(path, 1, changed(table, name, values))

    return change


def closed_early(path: Path) -> None:
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    record = seals.unseal(lines[-1])
    views.write_text("".join(lines[:-1]) + seals.seal({**record, "idx": record["idx"] - 4}) + "\n")


def closed_late(path: Path) -> None:
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    record = seals.unseal(lines[-1])
    views.write_text("".join(lines[:-1]) + seals.seal({**record, "idx": record["idx"] + 4}) + "\n")


def without_its_last_rows(path: Path) -> None:
    """Rows and closing record agree, and the view's end does not."""
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    table = pq.read_table(path / "segment-000001.parquet")
    rewrite(path, 1, table.slice(0, table.num_rows - 5))
    record = seals.unseal(lines[-1])
    views.write_text("".join(lines[:-1]) + seals.seal({**record, "idx": record["idx"] - 5}) + "\n")


def ended_later(path: Path) -> None:
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    record = seals.unseal(lines[1])
    record["closes"]["end"] += 3
    views.write_text("".join([lines[0], seals.seal(record) + "\n", *lines[2:]]))


def merged_others(path: Path) -> None:
    """The second view came of a merge, here alone."""
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    record = seals.unseal(lines[1])
    groups = [[record["closes"]["tag"], [key for _, key in record["members"][:3]]]]
    views.write_text("".join([lines[0], seals.seal({**record, "subgroups": groups}) + "\n", *lines[2:]]))


@pytest.mark.parametrize(
    ("change", "check", "says"),
    [
        (merged_others, "views", r"view 2 .* other subgroups at c than at a"),
        (closed_late, "gaps", r"c's journal ends before row \d+, and was closed at row \d+"),
        (
            without_its_last_rows,
            "gaps",
            r"c closed view 4 .* after global seqno \d+, and its rows of that view end at \d+",
        ),
        (with_column("idx", 70, 9), "gaps", r"c's journal goes from row 69 to row 79"),
        (with_column("view_tag", 70, 9), "sending view", r"c delivered row 70 in a view that is not in its journal"),
        (with_column("sender", 70, 1 << 40), "sending view", r"c delivered the unknown member .* in view 1"),
        (with_column("seqno", 70, 1 << 30), "fifo", r"c delivered \w's message .* after \w's message"),
        (with_column("global_seqno", 70, 1000), "total order", r"c delivered global seqno 72 after 1071"),
        (with_column("payload_hash", 70, 1), "integrity", r"one payload at"),
        (ended_later, "gaps", r"c closed view 1 .* after global seqno \d+, and its rows of that view end at \d+"),
        (renamed, "views", r"view 1 .* is one of cluster 'another' at c, and of 'test' at a"),
        (without_view, "views", r"c went from view 1 .* to view 3 .*: it skipped a view"),
        (with_column("view_counter", 70, 1), "views", r"c has rows of view 1 .* under the counter 2"),
        (with_column("length", 70, 1), "integrity", r"one length at \w and another at \w|one payload at"),
        (closed_early, "gaps", r"c's journal was closed at row \d+, but continues to row \d+"),
    ],
)
def test_the_claims_of_a_journal_are_compared_with_the_others(
    here: Any, tmp_path: Path, change: Callable[[Path], None], check: str, says: str
) -> None:
    audit = audit_journals(here, find([damaged(Script().write(tmp_path), C, change)]))
    assert all(check in failed(report) for report in audit.reports), audit.as_text()
    assert re.search(says, audit.as_text()), audit.as_text()


def test_views_are_compared_in_one_pass(here: Any, tmp_path: Path) -> None:
    """Looking each of them up in another journal took most of an audit of thousands of views."""

    class Counted(tuple[Any, ...]):
        passes = 0

        def __iter__(self) -> Iterator[Any]:
            Counted.passes += 1
            return super().__iter__()

    views = [view(counter, [A, B]) for counter in range(1, 101)]
    for who in (A, B):
        journal(tmp_path, who, [(of, [Row(A, at, 0, 1, b"x")]) for at, of in enumerate(views, 1)])
    journals = [replace(each, views=Counted(each.views)) for each in find([tmp_path])]
    assert audit_journals(here, journals).holds
    assert Counted.passes < 100


def test_a_member_that_left_by_a_view_that_lists_it_skipped_that_view(here: Any, tmp_path: Path) -> None:
    script = Script()
    script.stories[D][2] = (script.v3, list(script.at(B, script.v3)))
    for who in (B, C, D, E):
        left_by = script.v4 if who is D else None
        journal(tmp_path / "sound", who, script.stories[who], successor=left_by)
    assert failed(check_cluster(here, find([tmp_path / "sound"]))) == set()
    for who in (B, C, E):
        story = [(replace(of, members=(B, C, D, E)) if of == script.v4 else of, rows)
                 for of, rows in script.stories[who]]  # fmt: skip
        journal(tmp_path / "false", who, story)
    journal(tmp_path / "false", D, script.stories[D], successor=script.v4)
    report = check_cluster(here, find([tmp_path / "false"]))
    assert failed(report) == {"views"}, report.as_text()
    assert "d recorded that it left by view 4 [b, c, d, e], in which it is listed" in report.as_text()


def test_a_member_that_left_by_a_view_that_closes_another_skipped_a_view(here: Any, tmp_path: Path) -> None:
    script = Script()
    script.stories[D][2:] = []  # as if D had left in view 2, which lists D as view 3 does
    for who in (B, C, D, E):
        journal(tmp_path, who, script.stories[who], successor=script.v4 if who is D else None)
    script.at(D, script.v2)[:] = script.at(B, script.v2)
    report = check_cluster(here, find([tmp_path]))
    assert failed(report) == {"views"}, report.as_text()
    assert re.search(r"d left view 2 .*, as it recorded, by view 4 .*, which follows view 3 ", report.as_text())


def test_a_packet_that_begins_with_a_later_message_lacks_its_first(here: Any, tmp_path: Path) -> None:
    """Members that began with the sender's first packet all lack it, so a comparison does not show the loss."""
    for order in ("fifo", "sequencer"):
        script = Script(order)
        for who in (A, B, C, D):
            rows = script.at(who, script.v1)
            assert [(row.sender, row.index) for row in rows[1:3]] == [(B, 0), (B, 1)]
            del rows[1]
            if order == "sequencer":
                relabel(rows)
        report = check_cluster(here, find([script.write(tmp_path / order)]))
        assert failed(report) == {"gaps"}, report.as_text()
        assert re.search(r"a did not deliver b's message \d+\.0 before b's message \d+\.1", report.as_text())


@pytest.mark.long
def test_a_gap_behind_many_views_of_one_segment_is_found(here: Any, tmp_path: Path) -> None:
    """Formerly a bound of 10,000 runs of one view each ended the look at a segment."""
    views = [view(counter, [A]) for counter in range(1, 10_051)]
    story = [(of, [Row(A, at, 0, 1, b"x")]) for at, of in enumerate(views, 1)]
    last, (row,) = story[-1]
    story[-1] = (last, [row, replace(row, seqno=row.seqno + 1, global_seqno=3)])
    report = check_cluster(here, find([journal(tmp_path, A, story).parent]))
    assert failed(report) == {"gaps"}, report.as_text()


def test_two_clusters_are_audited_apart_each_with_its_verdict(spark: Any, tmp_path: Path) -> None:
    sound = Script().write(tmp_path / "sound")
    broken = Script(counter=100)
    lose_one(broken)
    other = broken.write(tmp_path / "broken", cluster="other")
    audit = seqcast.spark.audit(spark, [sound, other])
    verdicts = {report.cluster: failed(report) for report in audit.reports}
    assert verdicts["test"] == set() and "gaps" in verdicts["other"], audit.as_text()
    assert not audit.holds and [each["cluster"] for each in audit.as_json()["clusters"]] == ["other", "test"]
    rows = audit.counterexamples(spark).collect()
    assert {row["cluster"] for row in rows} == {"other"} and "gaps" in {row["check"] for row in rows}
    assert seqcast.spark.audit(spark, sound).as_json()["holds"] is True


@pytest.mark.parametrize("order", ["sequencer", "fifo"])
def test_rows_that_retention_removed_are_left_out_and_the_rest_compared(here: Any, tmp_path: Path, order: str) -> None:
    script = Script(order)
    many = script.rows_of(script.v4, 600)
    for who in (B, C, E):
        script.at(who, script.v4)[:] = many
    top = script.write(tmp_path / "sound", segment_rows=100, keep_bytes=1)  # the newest rolled segment is kept
    journals = find([top])
    assert all(journal.first_idx > 0 for journal in journals if journal.member != A)
    report = check_cluster(here, journals)
    assert failed(report) == set(), report.as_text()
    assert any("rows that retention removed are not checked" in note for note in report.notes)
    lost = next(at for at in range(len(many) - 40, len(many)) if many[at].index == 0 and many[at + 1].index == 0)
    script.at(C, script.v4)[:] = [*many[:lost], *many[lost + 1 :]]
    report = check_cluster(here, find([script.write(tmp_path / "broken", segment_rows=100, keep_bytes=1)]))
    assert failed(report), report.as_text()
