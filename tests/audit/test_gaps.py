"""A journal that goes on after a full disk: the gap is recorded, and readers, stream and audit know of that."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")

from journal_data import Row, batch_of, journal, member, view, wait_for_rows
from members import wait_until

import seqcast
from seqcast.config import Config
from seqcast.journal import manifest, reader, records, seals, stream, writer
from seqcast.journal.schema import JournalDamaged, JournalError
from seqcast.journal.tap import Tap, TapClient
from seqcast.journal.writer import JournalWriter
from seqcast.types import View

A, B, C = (member(name) for name in "abc")
WHY = os.strerror(errno.ENOSPC)


class Disk:
    """One that can be full: a write takes a part, and fails."""

    full = False

    def write(self, file: Any, data: Any) -> None:
        if not self.full:
            return REAL(file, data)
        file.write(memoryview(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, WHY)


REAL = stream.write_all


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(stream, "write_all", disk.write)
    monkeypatch.setattr(records, "write_all", disk.write)
    monkeypatch.setattr(writer, "RETRY_S", 0.01)
    yield disk
    disk.full = False


def rows(of: View, count: int, total: bool = True) -> list[Row]:
    senders, before = of.members, 1000 * of.view_id.counter
    return [
        Row(senders[at % len(senders)], before + at, 0, 1 + at if total else 0, b"%d of %d" % (at, before))
        for at in range(count)
    ]


ONE, TWO = view(1, [A, B, C]), view(2, [A, B])
STORY = [(ONE, rows(ONE, 150)), (TWO, rows(TWO, 100))]
LOST = range(100, 180)
"""Positions: the end of a view, and the beginning of the next."""


def turn(of_a: JournalWriter, disk: Disk, full: bool, at: int, gaps: int = 1) -> None:
    """The disk is full from row ``at`` on, when all before are written; or has room again, behind lost rows."""
    if full:
        wait_for_rows(of_a, at)
        disk.full = True
    else:
        wait_until(lambda: of_a.counters()["rows_lost"] > 0)
        disk.full = False
        wait_until(lambda: of_a.counters()["gaps"] == gaps)


def with_gap(top: Path, disk: Disk, story: Any = STORY, lost: range = LOST, **settings: Any) -> JournalWriter:
    """A's journal of a story, but for some rows: the disk is full when they come."""
    settings = {"payload": "full", "flush_s": 0.001, "resume": True, **settings}
    of_a = JournalWriter(top, cluster="test", member=A, **settings)
    at, views = 0, 0
    for of, content in story:
        for row in [None, *content]:
            full = lost.start <= at < lost.stop
            if row is not None and full != disk.full:
                turn(of_a, disk, full, at)
            if row is None:
                of_a.view(of, 1_700_000_000_000_000_000 + views, total=True)
                views += 1
            else:
                of_a.batch(batch_of([row], of), of)
                at += 1
    return of_a


def positions(found: reader.Journal) -> list[int]:
    return [idx for batch in found.batches(["idx"]) for idx in batch["idx"].to_pylist()]


@pytest.mark.parametrize("live", [False, True])
def test_a_journal_goes_on_when_there_is_room_and_names_its_gaps(
    tmp_path: Path, disk: Disk, live: bool, caplog: pytest.LogCaptureFixture
) -> None:
    of_a = with_gap(tmp_path, disk)
    wait_until(lambda: of_a.counters()["rows"] == 170)
    if not live:
        of_a.close("leave", at_view_end=True)
    found = reader.read(of_a.path)
    whole = [row for _, content in STORY for row in content]
    (gap,) = found.gaps
    assert (gap.idx, gap.rows, gap.why) == (100, 80, f"[Errno {errno.ENOSPC}] {WHY}")
    lacking = whole[100:180]
    for sender, first, last in gap.senders:
        own = [row.seqno for row in lacking if row.sender.id == sender]
        assert (first, last) == (own[0], own[-1])
    assert {sender for sender, *_ in gap.senders} == {row.sender.id for row in lacking}
    assert positions(found) == [at for at in range(250) if at not in LOST] and found.end_idx == 250
    assert [(each.view_id, each.idx) for each in found.views] == [(ONE.view_id, 0), (TWO.view_id, 150)]
    assert found.views[0].end is not None and found.views[0].end.global_seqno == 150
    assert [message.payload for message in found.messages()] == [
        row.payload for at, row in enumerate(whole) if at not in LOST
    ]
    counters = of_a.counters()
    assert (counters["rows_lost"], counters["gaps"], counters["rows"]) == (80, 1, 170)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert found.closed == (None if live else "leave") and not found.failed and not found.torn
    of_a.close("leave")


def test_segments_before_and_behind_a_gap_are_not_rolled_together(tmp_path: Path, disk: Disk) -> None:
    of_a = with_gap(tmp_path, disk)
    of_a.close("leave")
    rolled = manifest.load(of_a.path).rolled
    assert [(each.first_idx, each.rows) for each in rolled.values()] == [(0, 100), (180, 70)]


def test_a_journal_that_is_closed_while_the_disk_is_full_is_a_failed_one(tmp_path: Path, disk: Disk) -> None:
    of_a = with_gap(tmp_path, disk, [(ONE, rows(ONE, 100))], lost=range(40, 1 << 30))
    of_a.close("leave")
    found = reader.read(of_a.path)
    assert found.rows == 40 and not found.gaps and found.closed is None
    assert of_a.counters()["rows_lost"] == 60


def test_a_disk_that_is_full_again_and_again_leaves_a_gap_each_time(tmp_path: Path, disk: Disk) -> None:
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    of_a.view(ONE, 1, total=True)
    given = rows(ONE, 70)
    for at in range(0, 70, 10):
        disk.full = at % 20 == 10
        if not disk.full:
            wait_until(lambda at=at: of_a.counters()["gaps"] == at // 20)
        of_a.batch(batch_of(given[at : at + 10], ONE), ONE)
        count = 10 * (at // 20 + 1)
        wait_until(lambda count=count: of_a.counters()["rows_lost" if disk.full else "rows"] == count)
    of_a.close("leave", at_view_end=True)
    found = reader.read(of_a.path)
    assert [(gap.idx, gap.rows) for gap in found.gaps] == [(10, 10), (30, 10), (50, 10)]
    assert positions(found) == [at for at in range(70) if at // 10 % 2 == 0] and found.end_idx == 70


def test_a_journal_that_must_have_all_does_not_go_on_without(tmp_path: Path) -> None:
    with pytest.raises(seqcast.ConfigError, match="choose one"):
        Config(journal_resume=True, journal_required=True)
    with pytest.raises(seqcast.UsageError, match="nothing to record"):
        JournalWriter(tmp_path, cluster="test", member=A, required=True, resume=True)


def with_record(path: Path, at: int, record: dict[str, Any]) -> None:
    """Puts a sealed record into ``views.jsonl`` as line ``at``."""
    views = path / "views.jsonl"
    lines = views.read_text().splitlines(True)
    views.write_text("".join([*lines[:at], seals.seal(record) + "\n", *lines[at:]]))


GAP = {"event": "gap", "at_ns": 5, "idx": 100, "rows": 80, "senders": [["00" * 8, 3, 9]], "why": WHY, "closes": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": (1 << 63) - 1}, {"rows": 1 << 63}, {"rows": 0}, {"rows": -1}, {"rows": True}, {"idx": -1}, {"idx": 99},
        {"senders": [["-1", 3, 9]]}, {"senders": [["-000000000000001", 3, 9]]}, {"senders": [[1, 3, 9]]},
        {"senders": [["00" * 8, 9, 3]]}, {"senders": [["00" * 8, -3, 9]]}, {"senders": [["00" * 8, 0, 9]]},
        {"senders": [["00" * 8, 3, 9]] * 2}, {"senders": [["00" * 8, 3]]}, {"senders": [["00" * 8, 3, 1 << 63]]},
        {"senders": 7}, {"rows": 1, "senders": [["00" * 8, 3, 9], ["11" * 8, 3, 9]]}, {"why": [WHY]}, {"why": "\ud800"},
        {"at_ns": None}, {"closes": {"tag": "1"}},
    ],
)  # fmt: skip
def test_a_record_of_a_gap_that_cannot_be_is_damage(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """Others may write into the directory: a seal does not say who wrote a record."""
    path = journal(tmp_path, A, [(ONE, rows(ONE, 100))], closed=None)
    with_record(path, 1, {**GAP, **wrong})
    with pytest.raises(JournalDamaged, match="damage"):
        reader.read(path)


@pytest.mark.parametrize("at", [180, 300])
def test_gaps_ascend_and_none_covers_present_rows(tmp_path: Path, at: int) -> None:
    path = journal(tmp_path, A, [(ONE, rows(ONE, 100))], closed=None)
    with_record(path, 1, GAP)
    with_record(path, 2, {**GAP, "idx": at})
    found = reader.read(path)  # the second, if it is behind rows that are not there yet, is newer than that look
    assert [gap.idx for gap in found.gaps] == ([100, 180] if at == 180 else [100])
    assert found.end_idx == (260 if at == 180 else 180) and positions(found) == [*range(100)]
    with_record(path, 3, {**GAP, "idx": at + 79})
    with pytest.raises(JournalDamaged, match="below that of the previous record"):
        reader.read(path)


def test_a_look_at_the_segments_that_was_before_a_gap_knows_no_gap(tmp_path: Path, disk: Disk) -> None:
    of_a = with_gap(tmp_path, disk)
    header, views = reader.read_texts(of_a.path)
    (before,) = (segment for segment in reader.read(of_a.path).segments if segment.first_idx == 0)
    early = dataclasses.replace(before, rows=80)
    found = reader.assemble(of_a.path, header, views.encode(), 0, (early,), closed=False)
    assert found.end_idx == 80 and not found.gaps and len(found.views) == 2
    of_a.close("leave")


class Stuck:
    """A disk that does not say how full it is, until the test lets go."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def __call__(self, path: Any) -> Any:
        self.asked.set()
        self.go_on.wait(60.0)
        return os.statvfs_result((1 << 20,) * 10)


def test_delivery_does_not_wait_for_a_disk_that_does_not_answer(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(writer.os, "statvfs", stuck)
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    of_a.view(ONE, 1, total=True)
    given = rows(ONE, 30)
    disk.full = True
    of_a.batch(batch_of(given[:10], ONE), ONE)
    assert stuck.asked.wait(60.0)
    delivering = threading.Thread(target=of_a.batch, args=(batch_of(given[10:20], ONE), ONE))
    delivering.start()
    delivering.join(30.0)
    assert not delivering.is_alive()
    disk.full = False
    stuck.go_on.set()
    wait_until(lambda: of_a.counters()["gaps"] == 1)
    of_a.batch(batch_of(given[20:], ONE), ONE)
    of_a.close("leave", at_view_end=True)
    assert positions(reader.read(of_a.path)) == [*range(20, 30)]


def test_rows_that_come_while_a_gap_is_recorded_are_in_the_journal_or_in_the_gap(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    of_a.view(ONE, 1, total=True)
    given, real = rows(ONE, 60), records.RecordsFile.write
    tries = iter((True, False))

    def write(file: Any, record: Any) -> None:
        if record["event"] == "gap":
            fails = next(tries)
            first = 20 if fails else 40
            of_a.batch(batch_of(given[first : first + 20], ONE), ONE)
            if fails:
                raise OSError(errno.ENOSPC, WHY)
        real(file, record)

    monkeypatch.setattr(records.RecordsFile, "write", write)
    wait_until(lambda: of_a.counters()["views"] == 1)
    disk.full = True
    of_a.batch(batch_of(given[:20], ONE), ONE)
    wait_until(lambda: of_a.counters()["rows_lost"] >= 20)
    disk.full = False
    wait_until(lambda: of_a.counters()["gaps"] == 1 and of_a.counters()["rows"] == 20)
    of_a.close("leave", at_view_end=True)
    found = reader.read(of_a.path)
    assert [(gap.idx, gap.rows) for gap in found.gaps] == [(0, 40)] and positions(found) == [*range(40, 60)]
    assert of_a.counters()["rows_lost"] == 40


def test_a_disk_that_is_full_at_the_very_end_ends_no_journal_that_it_can_close(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    of_a.view(ONE, 1, total=True)
    of_a.batch(batch_of(rows(ONE, 10), ONE), ONE)
    wait_for_rows(of_a, 10)
    finish = stream.StreamWriter.finish

    def once(self: Any) -> None:
        monkeypatch.setattr(stream.StreamWriter, "finish", finish)
        raise OSError(errno.ENOSPC, WHY)

    monkeypatch.setattr(stream.StreamWriter, "finish", once)
    closing = threading.Thread(target=of_a.close, args=("leave",), kwargs={"at_view_end": True}, daemon=True)
    closing.start()
    closing.join(30.0)
    found = reader.read(of_a.path)
    assert not closing.is_alive() and found.closed == "leave" and found.rows == 10 and not found.gaps


def test_views_that_wait_for_room_are_bounded(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GAP_VIEWS_MAX", 3)
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    disk.full = True
    for counter in range(1, 6):
        of_a.view(view(counter, [A, B]), counter, total=True)
        wait_until(lambda: of_a._gap is not None or of_a._error is not None)
    assert of_a._error is not None and "while 3 views were installed" in of_a._error
    disk.full = False
    of_a.close("leave")
    assert reader.read(of_a.path).failed


def test_a_tap_and_its_reader_know_the_rows_that_a_full_disk_took_back(tmp_path: Path, disk: Disk) -> None:
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    of_a.view(ONE, 1, total=True)
    wait_until(lambda: of_a.counters()["views"] == 1)
    with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as tap:
        client = TapClient(f"127.0.0.1:{tap.address[1]}", b"t" * 16)
        views = of_a.path / "views.jsonl"
        whole = views.read_bytes()
        views.write_bytes(whole + b'{"event": "view", "at')  # as if the disk were full in the midst of it
        assert client.journal(A.id).torn_records == 1
        os.truncate(views, len(whole))
        of_a.view(TWO, 2, total=True)
        wait_until(lambda: of_a.counters()["views"] == 2)
        assert [each.view_id for each in client.journal(A.id).views] == [ONE.view_id, TWO.view_id]
    of_a.close("leave")


# ---- streams and tables ----------------------------------------------------------------------------------------------


def store_of(top: Path, kind: str, stack: list[Any]) -> Any:
    from seqcast.spark.stores import Folders, Taps

    if kind == "files":
        return Folders([str(top)])
    stack.append(tap := Tap(top, ("127.0.0.1", 0), b"t" * 16))
    tap.__enter__()
    return Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, "")


@pytest.mark.parametrize("rows_max", first_quick([0, 7]))
@pytest.mark.parametrize("kind", ["files", "tap"])
def test_a_stream_takes_the_rows_of_a_gap_from_another_member_or_fails(
    tmp_path: Path, disk: Disk, kind: str, rows_max: int
) -> None:
    pytest.importorskip("pyspark")
    from stream_query import Query, followed_by

    payloads = [row.payload for _, content in STORY for row in content]
    with_gap(tmp_path / "a", disk).close("leave")
    taps: list[Any] = []
    try:
        alone = store_of(tmp_path / "a", kind, taps)
        query, lossy = Query(alone), Query(alone, fail_on_data_loss=False)
        with pytest.raises(JournalError, match="lacks rows 100 to 179"):
            query.run(rows_max)
        assert query.rows == payloads[:100]
        assert lossy.run(rows_max) == [row for at, row in enumerate(payloads) if at not in LOST]
        lossy.again()
        journal(tmp_path / "b", B, STORY, payload="full")
        both = Query(alone, store_of(tmp_path / "b", kind, taps))
        both = followed_by("a", Query, *both.stores)
        assert both.run(rows_max) == payloads
        both.again()
    finally:
        for tap in taps:
            tap.__exit__(None, None, None)


@pytest.mark.parametrize("order", ["sequencer", "records", "grant"])
def test_in_a_view_that_goes_on_the_rows_of_a_gap_come_from_another_member(
    tmp_path: Path, disk: Disk, order: str
) -> None:
    pytest.importorskip("pyspark")
    from stream_query import Query, followed_by

    from seqcast.spark.stores import Folders

    one = view(1, [A, B, C], order)
    given = rows(one, 150)
    of_a = with_gap(tmp_path, disk, [(one, given)], lost=range(40, 80))
    journal(tmp_path, B, [(one, given)], closed=None, payload="full")
    wait_for_rows(of_a, 110)
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    assert query.run(9) == [row.payload for row in given]
    query.again()
    of_a.close("leave")


def test_how_far_a_view_is_stable_is_not_known_of_the_rows_of_a_gap(tmp_path: Path, disk: Disk) -> None:
    """They may be transitional: the stream does not go on behind them, in a view that is not closed."""
    pytest.importorskip("pyspark")
    from stream_query import Query, followed_by

    from seqcast.spark.stores import Folders

    one = view(1, [A, B, C], "records")
    given = rows(one, 100)
    of_a = with_gap(tmp_path, disk, [(one, given)], lost=range(40, 1 << 30))
    turn(of_a, disk, False, 100)
    journal(tmp_path, B, [(one, given)], closed="failed: no space left", payload="full")
    query = followed_by("b", Query, Folders([str(tmp_path)]))
    assert query.run() == [row.payload for row in given] and query.log[-1]["member"] == f"{B.id:016x}"
    of_a.close("leave")


@pytest.mark.parametrize("kind", ["files", "tap"])
@pytest.mark.parametrize("more", [False, True])
def test_a_stream_in_a_gap_tells_how_far_it_is_behind(tmp_path: Path, disk: Disk, kind: str, more: bool) -> None:
    """Also if nothing is behind the gap yet."""
    pytest.importorskip("pyspark")
    from stream_query import Query

    of_a = with_gap(tmp_path, disk, [(ONE, rows(ONE, 100))], lost=range(40, 1 << 30))
    turn(of_a, disk, False, 100)
    if more:
        of_a.batch(batch_of(rows(ONE, 110)[100:], ONE), ONE)
        wait_for_rows(of_a, 50)
    taps: list[Any] = []
    try:
        query = Query(store_of(tmp_path, kind, taps), failover_s=60.0)
        assert query.step(1000) == 40
        told = query.stream.reportLatestOffset()
        assert told["behind"]["a"]["messages"] == (70 if more else 60)
        assert told["behind"]["a"]["seconds"] < 1e9 and (more or told["behind"]["a"]["seconds"] < 60.0)
        latest = Query(query.stores[0], starting="latest")
        assert latest.run() == [] and latest.log[0]["idx"] == (110 if more else 100)
    finally:
        for tap in taps:
            tap.__exit__(None, None, None)
        of_a.close("leave")


@pytest.mark.parametrize("order", ["fifo", "causal"])
def test_without_total_order_rows_of_a_gap_come_at_the_end_of_the_view(tmp_path: Path, disk: Disk, order: str) -> None:
    pytest.importorskip("pyspark")
    from stream_query import Query, followed_by

    from seqcast.spark.stores import Folders

    one, two = view(1, [A, B, C], order), view(2, [A, B], order)
    story = [(one, rows(one, 90, False)), (two, rows(two, 30, False))]
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="full", flush_s=0.001, resume=True)
    at = 0
    for of, content in story:
        of_a.view(of, 1, total=False)
        for row in content:
            if at in (40, 60):
                turn(of_a, disk, at == 40, at)
            of_a.batch(batch_of([row], of), of)
            at += 1
    of_a.close("leave", at_view_end=True)
    other = [(one, sorted(story[0][1], key=lambda row: (row.sender.name, row.seqno))), story[1]]
    journal(tmp_path, B, other, payload="full")
    query = followed_by("a", Query, Folders([str(tmp_path)]))
    whole = query.run(9)
    assert sorted(whole) == sorted(row.payload for _, content in story for row in content)


def test_a_table_leaves_a_gap_out_and_one_copy_of_all_is_of_a_journal_that_has_them(tmp_path: Path, disk: Disk) -> None:
    pytest.importorskip("pyspark")
    from seqcast.spark.options import Tabled
    from seqcast.spark.source import JournalReader
    from seqcast.spark.stores import Folders
    from seqcast.spark.wanted import Wanted

    with_gap(tmp_path, disk).close("leave", at_view_end=True)
    journal(tmp_path, B, STORY, payload="full")

    def found(**options: str) -> list[tuple[str, bytes]]:
        table = JournalReader([Folders([str(tmp_path)])], Wanted(), Tabled.of(options))
        batches = [batch for part in table.partitions() for batch in table.read(part)]
        return sorted((row["member"], row["payload"]) for batch in batches for row in batch.to_pylist())

    payloads = [row.payload for _, content in STORY for row in content]
    kept = [row for at, row in enumerate(payloads) if at not in LOST]
    assert found() == sorted([*(("a", row) for row in kept), *(("b", row) for row in payloads)])
    assert sorted(row for _, row in found(copies="one")) == sorted(payloads)


# ---- the audit -------------------------------------------------------------------------------------------------------


def audited(spark: Any, top: Path) -> Any:
    from seqcast.spark import audit

    return audit(spark, top).reports[0]


@pytest.mark.parametrize("lost", [LOST, range(20, 60), range(30), range(200, 249)])
@pytest.mark.parametrize("order", ["sequencer", "fifo", "causal"])
def test_the_audit_names_a_gap_and_no_loss(tmp_path: Path, disk: Disk, spark: Any, order: str, lost: range) -> None:
    views = [view(1, [A, B, C], order), view(2, [A, B], order)]
    total = order == "sequencer"
    story = [(of, rows(of, count, total)) for of, count in zip(views, (150, 100), strict=True)]
    of_a = JournalWriter(tmp_path, cluster="test", member=A, payload="hash", flush_s=0.001, resume=True)
    at = 0
    for n, (of, content) in enumerate(story):
        of_a.view(of, 1 + n, total=total)
        for row in content:
            if at in (lost.start, lost.stop):
                turn(of_a, disk, at == lost.start, at)
            of_a.batch(batch_of([row], of), of)
            at += 1
    of_a.close("leave", at_view_end=True)
    journal(tmp_path, B, story, payload="hash")
    journal(
        tmp_path,
        C,
        [
            (views[0], story[0][1]),
        ],
        closed=None,
        payload="hash",
    )
    report = audited(spark, tmp_path)
    assert report.holds, report.as_text()
    assert any(f"lacks {len(lost)} rows, in 1 gaps" in note for note in report.notes), report.notes
    shutil.rmtree(next(tmp_path.glob("b-*")))
    swapped = story[1][1][:90] + story[1][1][91:89:-1] + story[1][1][92:] if lost.stop < 240 else []
    if swapped and total:
        numbered = [dataclasses.replace(row, global_seqno=n) for n, row in enumerate(swapped, 1)]
        journal(tmp_path, B, [story[0], (views[1], numbered)], payload="hash")
        assert not audited(spark, tmp_path).holds  # rows behind the gap are compared
