"""Journals as a table and as a stream in Spark."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from journal_data import Row, as_live, batch_of, journal, member, view, wait_for_rows
from members import SHORT_LIVED_JAVA
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import seqcast.spark
from seqcast.journal import manifest, places, segments
from seqcast.journal.manifest import ManifestWriter
from seqcast.journal.reader import read
from seqcast.journal.roll import roll
from seqcast.journal.schema import JournalError
from seqcast.journal.tables import names_of
from seqcast.journal.tap import Tap
from seqcast.journal.writer import JournalWriter
from seqcast.spark.follow import _behind, offset_at
from seqcast.spark.options import Following
from seqcast.spark.source import JournalReader, JournalSource, JournalStream
from seqcast.spark.stores import Folders, Found, Taps, last_cut, pieces
from seqcast.spark.wanted import Wanted

A, B, C = (member(name) for name in "abc")
V1, V2 = view(1, [A, B]), view(2, [A, B, C])
FIRST = [Row((A, B)[at % 2], 1 + at, 0, 1 + at, b"one %d" % at) for at in range(300)]
SECOND = [Row((A, B, C)[at % 3], 1000 + at, 0, 1 + at, b"two %d" % at) for at in range(200)]


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    seqcast.spark.register(spark)
    return spark


def load(session: Any, path: Path) -> Any:
    return session.read.format("seqcast").load(str(path))


def test_journals_are_a_table_with_all_rows(session: Any, tmp_path: Path) -> None:
    first = journal(tmp_path, A, [(V1, FIRST), (V2, SECOND)], payload="full", segment_rows=100)
    second = journal(tmp_path, B, [(V1, FIRST)], payload="hash")
    as_live(second)
    rows = load(session, tmp_path).orderBy("member", "idx").collect()
    own = [row for row in rows if row["member"] == "a"]
    assert [row["payload"] for row in own] == [row.payload for row in FIRST + SECOND]
    assert [(row["sender"], row["seqno"], row["global_seqno"]) for row in own] == [
        (row.sender.name, row.seqno, row.global_seqno) for row in FIRST + SECOND
    ]
    assert [row["idx"] for row in own] == list(range(500))
    assert {row["view_counter"] for row in own[:300]} == {1} and {row["view_counter"] for row in own[300:]} == {2}
    assert {row["payload"] for row in rows if row["member"] == "b"} == {None} and len(rows) == 800
    assert first != second


def test_options_say_which_rows_are_read(session: Any, tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, FIRST), (V2, SECOND)], payload="hash", segment_rows=100)

    def count(**options: str) -> int:
        return int(session.read.format("seqcast").options(**options).load(str(tmp_path)).count())

    assert count(view="2", sender="c") == sum(row.sender == C for row in SECOND)
    assert count(view="1, 2", sender="b,c") == sum(row.sender != A for row in FIRST + SECOND)
    assert (count(since="2033-01-01"), count(until="2033-01-01T00:00:00+00:00")) == (0, 500)
    assert (count(view="7"), count(sender="nobody")) == (0, 0)
    table = load(session, tmp_path)
    assert table.where("view_counter = 2 and idx < 400").count() == 100
    assert table.count() == 500  # the columns of one query do not stay with the table


def test_only_the_columns_that_are_wanted_are_read_and_given(session: Any, tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, FIRST), (V2, SECOND)], payload="full", segment_rows=100)

    def table(**options: str) -> Any:
        return session.read.format("seqcast").options(**options).load(str(path)).toArrow()

    whole = table()
    for columns in ("payload,index", "sent_at, sender,member", "member"):
        names = [name.strip() for name in columns.split(",")]
        by = [(name, "ascending") for name in names]
        assert table(columns=columns).sort_by(by).equals(whole.select(names).sort_by(by))
    some = table(columns="idx", view="2", sender="c", since="2001-01-01")
    assert some.num_rows == sum(row.sender == C for row in SECOND)
    planned = JournalReader([Folders([str(path)])], Wanted.of({"columns": "sent_at,sender", "view": "2"}))
    assert {tuple(part.columns) for part in planned.partitions()} == {("view_counter", "sender", "sent_ns")}


@pytest.mark.parametrize("live", [False, True])
def test_a_part_of_a_segment_is_read_without_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    monkeypatch.setattr("seqcast.journal.roll.ROW_GROUP_ROWS", 100)
    path = journal(tmp_path, A, [(V1, FIRST * 3)], payload="full")
    if live:
        as_live(path, chunk=100)
    (segment,) = read(path).segments
    whole = pa.Table.from_batches(segments.segment_batches(segment))
    decoded: list[int] = []
    around = segments._batches_around

    def counted(*given: Any) -> Any:
        for at, batch in around(*given):
            decoded.append(batch.num_rows)
            yield at, batch

    monkeypatch.setattr(segments, "_batches_around", counted)
    ranges = (0, 900), (0, 1), (899, 900), (150, 250), (200, 300), (100, 105), (7, 7), (-5, 2000), (900, 950)
    for first, end in ranges:
        decoded.clear()
        found = list(segments.segment_batches(segment, first=first, end=end))
        kept = whole.slice(max(0, first), max(0, min(end, 900) - max(0, first)))
        assert [batch.num_rows for batch in found if not batch.num_rows] == []
        assert pa.Table.from_batches(found, whole.schema).equals(kept)
        assert sum(decoded) <= kept.num_rows + 198


def test_a_batch_of_a_stream_is_cut_where_segments_and_row_groups_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqcast.spark.stores.PARTITION_ROWS", 100)
    rows = (30, 250, 40, 40, 500)
    segments = tuple(SimpleNamespace(first_idx=1000 + sum(rows[:at]), rows=n) for at, n in enumerate(rows))
    told: Any = SimpleNamespace(first_idx=1000, segments=segments)
    assert list(pieces(told, 1000, 1860)) == [
        (1000, 1030), (1030, 1130), (1130, 1230), (1230, 1320), (1320, 1360), (1360, 1460), (1460, 1560), (1560, 1660),
        (1660, 1760), (1760, 1860),
    ]  # fmt: skip
    assert list(pieces(told, 1010, 1050)) == [(1010, 1050)]
    assert list(pieces(told, 1500, 1500)) == []
    ends = [last_cut(told, first, end) for first, end in ((1000, 1250), (1030, 1100), (1360, 1550), (1360, 1859))]
    assert ends == [1230, 1100, 1460, 1760]
    assert [last_cut(told, 1131, 1229), last_cut(told, 1230, 1400)] == [1229, 1360]


def test_names_of_senders_are_those_of_their_ids() -> None:
    rng = np.random.default_rng(7)
    names = {-(1 << 63): "a", -5: "", 0: "member-b", 17: "é" * 30, (1 << 63) - 1: "z"}
    for size in (0, 1, 1000):
        ids = rng.choice(np.array(list(names), np.int64), size)
        assert names_of(ids, names).to_pylist() == [names[each] for each in ids.tolist()]
    told = names_of(np.array([17, 3, 3, -2, 0], np.int64), names)
    told.validate(full=True)
    assert told.to_pylist() == ["é" * 30, f"{3:016x}", f"{3:016x}", "f" * 15 + "e", "member-b"]
    assert names_of(np.array([3], np.int64), {}).to_pylist() == [f"{3:016x}"]
    strangers = np.arange(-30_000, 30_000)
    assert names_of(strangers, names).to_pylist() == [
        names.get(each, f"{each & (1 << 64) - 1:016x}") for each in strangers.tolist()
    ]


def test_rolled_row_groups_are_whole_whatever_was_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqcast.journal.roll.ROW_GROUP_ROWS", 100)
    path = journal(tmp_path, A, [(V1, FIRST * 3)], payload="hash")
    stream, rows = as_live(path, chunk=70), len(FIRST * 3)
    writer = ManifestWriter(tmp_path)
    with pq.ParquetFile(roll([stream], writer)) as file:
        groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    assert groups == [100] * (rows // 100) + [rows % 100] * bool(rows % 100) and len(groups) > 2


@pytest.mark.parametrize(
    ("options", "opened"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"view": "2"}, [3, 4]),
        ({"view": "1,3"}, [1, 2, 5, 6]),
        ({"view": "7"}, []),
        ({"since": "2001-01-01T00:00:04"}, [4, 5, 6]),
        ({"until": "2001-01-01T00:00:03"}, [1, 2]),
        ({"since": "2001-01-01T00:00:02", "until": "2001-01-01T00:00:05"}, [2, 3, 4]),
        ({"view": "1,3", "until": "2001-01-01T00:00:05"}, [1, 2]),
    ],
)
@pytest.mark.parametrize("kind", ["files", "tap"])
@pytest.mark.parametrize("rows_max", [0, 30, None])
def test_segments_that_no_row_can_come_from_are_not_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    opened: list[int],
    kind: str,
    rows_max: int | None,
) -> None:
    """By a table (None), and by a stream with batches of this many rows."""
    path = in_seconds(tmp_path)
    read_files: list[int] = []
    of_reader = segments._contents
    monkeypatch.setattr(
        segments, "_contents", lambda segment, **part: read_files.append(segment.number) or of_reader(segment, **part)
    )
    with Tap(tmp_path, ("127.0.0.1", 0), b"t" * 16) as tap:
        tapped = Taps(f"127.0.0.1:{tap.address[1]}", b"t" * 16, "")
        stores, wanted = [tapped if kind == "tap" else Folders([str(path)])], Wanted.of(options)
        planned: Any = JournalReader(stores, wanted)
        parts = planned.partitions()
        if rows_max is not None:
            planned, parts = JournalStream(stores, Following(), wanted), []
            at, limit = planned.initialOffset(), ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()
            while (end := planned.latestOffset(at, limit)) != at:
                parts += planned.partitions(at, end)
                at = end
            assert at["idx"] == 60
        times = [each for part in parts for batch in planned.read(part) for each in batch["idx"].to_pylist()]
    assert (read_files, len(times)) == (opened, 10 * len(opened))


def test_a_stream_is_behind_by_the_time_of_its_next_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a rolled segment, which counts as if the rows had come evenly."""
    second = 978_307_200
    monkeypatch.setattr(time, "time", lambda: second + 100.0)
    path = in_seconds(tmp_path)
    journal = read(path)

    def behind(*spans: tuple[int, int], idx: int) -> float:
        """With the segments' first and last second."""
        segments = [
            dataclasses.replace(each, first_ns=(second + first) * 10**9, last_ns=(second + last) * 10**9)
            for each, (first, last) in zip(journal.segments, spans, strict=False)
        ]
        return _behind(Found(Folders([]), dataclasses.replace(journal, segments=tuple(segments))), idx)["seconds"]

    spans = (1, 1), (2, 12), (13, 20)
    assert behind(*spans, idx=0) == 99 and behind(*spans, idx=9) == 99
    assert [behind(*spans, idx=each) for each in (10, 15, 19)] == [98, 93, 89]
    assert behind(*spans, idx=20) == 87


def in_seconds(top: Path) -> Path:
    """A journal with six segments of ten rows, of three views; the rows of segment n are from second n of 2001."""
    settings = {"payload": "hash", "segment_rows": 10, "together_rows": 1}
    writer = JournalWriter(top, cluster="test", member=A, flush_s=0.001, **settings)
    for at in range(6):
        of = (V1, V2, view(3, [A]))[at // 2]
        if at % 2 == 0:
            writer.view(of, at_ns=1, prefix=True, total=True)
        rows = [Row(A, 1 + 10 * at + n, 0, 1 + 10 * (at % 2) + n, b"x") for n in range(10)]
        writer.batch(batch_of(rows, of, (978_307_200 + 1 + at) * 1_000_000_000), of)
        wait_for_rows(writer, 10 * (at + 1))
    writer.close("leave")
    return writer.path


def test_a_journal_that_does_not_say_when_a_file_begins_is_read_up_to_any_time(tmp_path: Path) -> None:
    path = in_seconds(tmp_path)
    before = manifest.load(path)
    unknown = {number: dataclasses.replace(rolled, first_ns=0) for number, rolled in before.rolled.items()}
    manifest.save(path, dataclasses.replace(before, rolled=unknown))
    planned = JournalReader([Folders([str(path)])], Wanted.of({"until": "2001-01-01T00:00:03"}))
    assert [len(part.segments) for part in planned.partitions()] == [6]
    assert sum(batch.num_rows for part in planned.partitions() for batch in planned.read(part)) == 20


def test_rows_before_a_clock_was_set_back_are_found_by_their_time(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, payload="hash")
    writer.view(V1, at_ns=1, prefix=True, total=True)
    for at, year in enumerate((2023, 2022)):
        writer.batch(batch_of(FIRST[10 * at : 10 * at + 10], V1, (year - 1970) * 31_556_952_000_000_000), V1)
    writer.close("leave")
    planned = JournalReader([Folders([str(tmp_path)])], Wanted.of({"since": "2022-10-01"}))
    assert sum(batch.num_rows for part in planned.partitions() for batch in planned.read(part)) == 10


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"until": "1970-01-01"}, 0),
        ({"until": "0001-01-01"}, 0),
        ({"until": "9999-12-31"}, 300),
        ({"since": "0001-01-01"}, 300),
        ({"since": "9999-12-31"}, 0),
    ],
)
def test_any_time_may_be_a_bound(tmp_path: Path, options: dict[str, str], rows: int) -> None:
    path = journal(tmp_path, A, [(V1, FIRST)], payload="hash")
    planned = JournalReader([Folders([str(path)])], Wanted.of(options))
    assert sum(batch.num_rows for part in planned.partitions() for batch in planned.read(part)) == rows


@pytest.mark.long
def test_a_table_of_several_paths_and_of_patterns_has_them_all_and_nothing_is_an_error(
    session: Any, tmp_path: Path
) -> None:
    first = journal(tmp_path / "of a [x]", A, [(V1, FIRST)], payload="hash")
    second = journal(tmp_path / "of b", B, [(V1, FIRST[:7])], payload="hash")

    def rows(*paths: Path | str) -> int:
        given = [str(path) for path in paths]
        return int(session.read.format("seqcast").load(given if len(given) > 1 else given[0]).count())

    assert rows(first, second) == rows(tmp_path / "of*") == rows(first.parent, tmp_path / "*b" / "*") == 307
    assert rows(first.parent) == 300
    for nothing, says in ((tmp_path / "off*", "no journal matches this pattern"), (tmp_path / "off", "no such dir")):
        with pytest.raises(PySparkException, match=says):
            rows(first, nothing)


def test_a_copy_of_a_journal_does_not_count_twice_and_does_not_replace_it(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, FIRST)], payload="hash")
    copy = tmp_path / f"{path.name}-older"
    shutil.copytree(path, copy)
    (tmp_path / "link").symlink_to(path)
    assert places.journal_files([tmp_path]) == {A.id: path.resolve()}
    with pytest.raises(JournalError, match=f"{copy.name} are journals of the same member"):
        JournalReader([Folders([str(tmp_path)])], Wanted()).partitions()
    shutil.rmtree(copy)
    assert len(JournalReader([Folders([str(tmp_path)])], Wanted()).partitions()) == 1


def test_a_stream_follows_a_journal_while_it_is_written(session: Any, tmp_path: Path) -> None:
    settings = {"segment_rows": 300, "together_rows": 1000, "payload": "full"}
    writer = JournalWriter(tmp_path / "j", cluster="test", member=A, flush_s=0.001, **settings)
    writer.view(V1, 1)
    rows = [Row(A, 1 + at, 0, 1 + at, b"%d" % at) for at in range(4000)]

    def write() -> None:
        for at in range(0, len(rows), 50):
            writer.batch(batch_of(rows[at : at + 50], V1), V1)
            threading.Event().wait(0.02)
        writer.close("leave")

    writer.batch(batch_of(rows[:0] or [Row(B, 1, 0, 1, b"first")], V1), V1)
    thread = threading.Thread(target=write)
    stream = session.readStream.format("seqcast").option("maxRowsPerBatch", "700").load(str(writer.path))
    query = stream.writeStream.format("memory").queryName("followed").start()
    try:
        thread.start()
        thread.join()
        query.processAllAvailable()
    finally:
        query.stop()
    found = session.sql("select idx, payload from followed order by idx").collect()
    assert [row["idx"] for row in found] == list(range(4001))
    assert [row["payload"] for row in found[1:]] == [row.payload for row in rows]
    assert max(progress["numInputRows"] for progress in query.recentProgress) <= 700


QUERY = """
    import sys
    import seqcast.spark
    journal, table, checkpoint = sys.argv[1:]
    spark = seqcast.spark.open_session("local[2]")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    seqcast.spark.register(spark)
    stream = spark.readStream.format("seqcast").option("maxRowsPerBatch", "500").load(journal)
    query = stream.select("idx", "payload").writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = query.start(table)
    print("started", flush=True)
    while True:
        query.processAllAvailable()
        print(query.lastProgress["numInputRows"] if query.lastProgress else 0, flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_query_that_is_killed_and_restarted_has_every_message_once(session: Any, tmp_path: Path) -> None:
    rows = [Row(A, 1 + at, 0, 1 + at, b"%d" % at) for at in range(20_000)]
    path = journal(tmp_path / "j", A, [(V1, rows)], payload="full")
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    command = [sys.executable, "-c", textwrap.dedent(QUERY), str(path), str(table), str(checkpoint)]
    for kills in range(2):
        environment = {**os.environ, **SHORT_LIVED_JAVA}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None and process.stdout.readline() == "started\n"
            committed = checkpoint / "commits"
            while not committed.exists() or len(list(committed.glob("[0-9]*"))) < 5 * (kills + 1):
                assert process.poll() is None
                threading.Event().wait(0.05)
            process.kill()
    stream = session.readStream.format("seqcast").load(str(path)).select("idx", "payload")
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start(str(table)).awaitTermination()
    found = session.read.parquet(str(table)).orderBy("idx").collect()
    assert [row["payload"] for row in found] == [row.payload for row in rows]


def test_available_now_ends_with_the_rows_of_its_start_and_heeds_the_limit(session: Any, tmp_path: Path) -> None:
    path = journal(tmp_path / "j", A, [(V1, FIRST)], payload="hash")
    stream = session.readStream.format("seqcast").option("maxRowsPerBatch", "100").load(str(path))
    query = stream.writeStream.format("memory").queryName("now").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert session.table("now").count() == 300
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [100] * 3


def test_offsets_name_the_member_and_rows_that_retention_removed_are_named(tmp_path: Path) -> None:
    path = journal(tmp_path, A, [(V1, FIRST), (V2, SECOND)], payload="hash", segment_rows=100)
    other = journal(tmp_path, B, [(V1, FIRST)], payload="hash")
    stream = JournalStream([Folders([str(path)])], Following(), Wanted())
    offset = stream.initialOffset()
    with pytest.raises(seqcast.UsageError, match="no other one has the rows of"):
        JournalStream([Folders([str(other)])], Following(), Wanted()).partitions(offset, offset_at(read(path), 310))
    end = stream.latestOffset(offset, ReadAllAvailable())
    assert end["idx"] == 500 and end["view"].startswith("2@") and end["global_seqno"] == 200
    before = manifest.load(path)
    left = {2: before.rolled[2]}
    manifest.save(path, manifest.Manifest(2, left, 2, left[2].first_idx))
    with pytest.raises(seqcast.UsageError, match="removed by the journal's retention before"):
        stream.partitions(offset, end)
    lenient = JournalStream([Folders([str(path)])], Following(fail_on_data_loss=False), Wanted())
    parts = lenient.partitions(offset, end)
    assert [(part.first, part.end) for part in parts] == [(300, 500)] and read(path).first_idx == 300
    assert lenient.initialOffset()["idx"] == 300


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "middle"}, "startingOffset='middle': give 'earliest', 'latest' or an offset"),
        ({"startingOffsets": "latest"}, "has no option 'startingoffsets': did you mean startingOffset"),
        ({"colums": "idx"}, "has no option 'colums': did you mean columns"),
        ({"senders": "a"}, "has no option 'senders': did you mean sender"),
        ({"cluster": "orders"}, "has no option 'cluster': it has certificateFile, columns,"),
        ({"maxRowsPerBatch": "0"}, "give a positive whole number"),
        ({"failOnDataLoss": "perhaps"}, "give 'true' or 'false'"),
        ({"onNewGroup": "stop"}, "give 'fail' or 'continue'"),
        ({"copies": "two"}, "copies='two': give 'all' or 'one'"),
        ({"startingOffset": '{"idx": 1}'}, "startingOffset: the offset has no member"),
        ({"payload": "json", "payloadSchema": "a decimal"}, "a cannot be decimal: give one of"),
        ({"failoverAfter": "."}, "failoverAfter='.': give a number of seconds"),
        ({"failoverAfter": "nan"}, "failoverAfter='nan': give a number of seconds"),
        ({"view": "last"}, "give counters of views"),
        ({"view": "²"}, "give counters of views"),
        ({"since": "yesterday"}, "give a time such as"),
        ({"columns": "idx, nothing"}, "there is no column 'nothing'; give some of member, idx,"),
        ({"columns": "idx,sentat"}, "there is no column 'sentat'; did you mean sent_at"),
        ({"columns": "idx,idx"}, "give each column once"),
        ({"tap": "127.0.0.1:1"}, "a tap needs its token"),
        ({"tap": "nowhere", "token": "t" * 16}, "nowhere"),
    ],
)
def test_wrong_options_are_refused_when_journals_are_loaded(tmp_path: Path, options: dict[str, str], says: str) -> None:
    """Spark asks for the schema, of tables and streams."""
    source = JournalSource(CaseInsensitiveDict({"path": str(tmp_path), **options}))
    with pytest.raises(seqcast.UsageError, match=re.escape(says)):
        source.schema()


def test_a_refusal_of_an_option_passes_through_spark(session: Any, tmp_path: Path) -> None:
    for source in (session.read, session.readStream):
        with pytest.raises(PySparkException, match="has no option 'colums': did you mean columns"):
            source.format("seqcast").option("colums", "idx").load(str(tmp_path))


@pytest.mark.long
def test_a_path_without_journals_is_refused_when_it_is_loaded(session: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, says in (
        ("nothing", "nothing: no such directory; give the directory that the members journaled to"),
        ("empty", "empty holds no journal"),
        ("no*", "no journal matches this pattern"),
    ):
        for source in (session.read, session.readStream):
            with pytest.raises(PySparkException, match=re.escape(says)):
                source.format("seqcast").load(str(tmp_path / path))


@pytest.mark.long
def test_a_stream_with_an_option_of_a_table_says_so(session: Any, tmp_path: Path) -> None:
    journal(tmp_path / "journals", A, [(V1, [Row(A, 1, 0, 1, b"x")])])
    stream = session.readStream.format("seqcast").option("copies", "one").load(str(tmp_path / "journals"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException) as failed:
        query.awaitTermination(60)
    lines = [line for line in str(failed.value).splitlines() if "Error: " in line]
    assert lines and "a stream of the format seqcast has no option 'copies'" in lines[-1], failed.value


@pytest.mark.long
def test_payloads_are_given_as_text_or_as_values_of_their_json(session: Any, tmp_path: Path) -> None:
    texts = [json.dumps({"id": at, "names": ["a", str(at)], "at": {"x": 1.5}}) for at in range(100)]
    rows_of = [Row(A, 1 + at, 0, 1 + at, text.encode()) for at, text in enumerate(texts)]
    journal(tmp_path, A, [(V1, rows_of)], payload="full")
    schema = "id bigint, names array<string>, at struct<`x`: double>"

    def load(source: Any, **options: str) -> Any:
        return source.format("seqcast").options(**options).load(str(tmp_path))

    table = load(session.read, payload="utf8", copies="one", minPartitions="3")
    assert [row["payload"] for row in table.orderBy("idx").collect()] == texts and table.rdd.getNumPartitions() >= 3
    rows = load(session.read, payload="json", payloadSchema=schema).where("payload.at.x = 1.5")
    found = rows.selectExpr("payload.id", "payload.names[1] as name").orderBy("id").collect()
    assert [(row["id"], row["name"]) for row in found] == [(at, str(at)) for at in range(100)]
    stream = load(session.readStream, payload="json", payloadSchema=schema, columns="payload,idx", minPartitions="2")
    query = stream.select("payload.*", "idx").writeStream.format("memory").queryName("read").trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    assert session.table("read").where("id = idx and size(names) = 2").count() == 100
    end = running.lastProgress["sources"][0]["endOffset"]
    table = load(session.read, startingOffset="earliest", endingOffset=end, columns="idx")
    assert table.count() == 100
    for given in ("payload struct<id: bigint>", "payload binary"):
        with pytest.raises(PySparkException, match="schema: column payload is struct<id:bigint,names:array<string>"):
            load(session.read.schema(given), payload="json", payloadSchema=schema).collect()


@pytest.mark.long
def test_a_table_and_a_sink_refuse_options_of_others(session: Any, tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, FIRST)], payload="hash")
    with pytest.raises(PySparkException, match="a table of the format seqcast has no option 'maxrowsperbatch'"):
        session.read.format("seqcast").option("maxRowsPerBatch", "7").load(str(tmp_path)).count()
    stream = session.readStream.format("seqcast").load(str(tmp_path)).select("payload")
    sink = stream.writeStream.format("seqcast").option("clutser", "orders").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match="has no option 'clutser': did you mean cluster"):
        sink.start().awaitTermination()


def test_a_schema_chooses_columns_and_is_else_refused_before_tasks(session: Any, tmp_path: Path) -> None:
    journal(tmp_path, A, [(V1, FIRST)], payload="full")

    def load(schema: str, **options: str) -> Any:
        return session.read.format("seqcast").schema(schema).options(**options).load(str(tmp_path))

    rows = load("payload binary, idx bigint not null").orderBy("idx").collect()
    assert [row.asDict() for row in rows] == [{"payload": row.payload, "idx": at} for at, row in enumerate(FIRST)]
    stream = session.readStream.format("seqcast").schema("sender string, idx bigint").load(str(tmp_path))
    stream.writeStream.format("memory").queryName("chosen").trigger(availableNow=True).start().awaitTermination()
    assert session.table("chosen").columns == ["sender", "idx"] and session.table("chosen").count() == 300
    for schema, options, says in (
        ("idx bigint, sendr string", {}, "schema: there is no column 'sendr'; did you mean sender"),
        ("idx int", {}, "schema: column idx is bigint, not int: cast the column in the query"),
        ("payload binary not null", {}, "schema: column payload may be null"),
        ("idx bigint", {"columns": "sender"}, "give only one"),
        ("idx bigint", {"colums": "sender"}, "did you mean columns"),
    ):
        with pytest.raises(PySparkException, match=says) as refused:
            load(schema, **options).collect()
        assert "TaskSetManager" not in str(refused.value) and "Job aborted" not in str(refused.value)
