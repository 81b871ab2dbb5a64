"""The code for reading journals in docs/journal.md and docs/spark.md runs as printed; and Polars and DuckDB read rolled
segments, and the live one beside its writer."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from journal_data import Row, batch_of, journal, member, view
from members import wait_until
from project import ROOT

import seqcast
import seqcast.journal
from seqcast.journal.tables import TABLE
from seqcast.journal.writer import JournalWriter
from seqcast.types import Member

A, B = member("a"), member("b")
V1 = view(1, [A, B])
ROWS = [Row((A, B)[at % 2], 1 + at, 0, 1 + at, b"payload %d" % at, transitional=at >= 890) for at in range(900)]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """The live segment of a member that still writes: no end of the stream, and no statistics."""
    writer = JournalWriter(tmp_path, cluster="test", member=A, flush_s=0.001, payload="full")
    writer.view(V1, 1, total=True)
    for at in range(0, 900, 300):
        writer.batch(batch_of(ROWS[at : at + 300], V1), V1)
        wait_until(lambda rows=at + 300: writer.counters()["rows"] == rows)
    yield writer.path / "segment-000001.arrows"
    writer.close("leave")


@pytest.fixture
def rolled(tmp_path: Path) -> str:
    return str(journal(tmp_path, A, [(V1, ROWS)], payload="full", segment_rows=400) / "segment-*.parquet")


def test_polars_reads_the_live_segment_beside_its_writer(live: Path) -> None:
    polars = pytest.importorskip("polars")
    table = polars.read_ipc_stream(live).explode("messages").unnest("messages")
    assert table["payload"].to_list() == [row.payload for row in ROWS]
    assert table["transitional"].to_list() == [row.transitional for row in ROWS]


def test_polars_reads_rolled_segments(rolled: str) -> None:
    polars = pytest.importorskip("polars")
    counts = polars.scan_parquet(rolled).group_by("sender").len().collect()
    assert counts["len"].to_list() == [450, 450]


def test_duckdb_reads_the_live_segment_beside_its_writer(live: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    runs = duckdb.from_arrow(pa.ipc.open_stream(live).read_all())
    rows = runs.project(
        "*, unnest(messages, recursive := true), idx + generate_subscripts(messages, 1) - 1 as position"
    )
    found = rows.aggregate("count(*), sum(length), count(*) filter (transitional), max(position)").fetchall()
    assert found == [(900, sum(len(row.payload) for row in ROWS), 10, 899)]


def test_duckdb_reads_rolled_segments(rolled: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    query = f"select sender, count(*), count(*) filter (transitional) from '{rolled}' group by all"
    found = duckdb.sql(query).fetchall()
    assert sorted(row[1:] for row in found) == [(450, 5), (450, 5)]


@pytest.mark.parametrize("payload", ["full", "hash"])
def test_a_table_has_all_rows_of_rolled_and_live_segments_with_names_and_times(
    documented: Path, tmp_path: Path, payload: str
) -> None:
    journal(documented.parent, B, [(V1, ROWS[:70])], payload=payload, segment_rows=40)
    table = seqcast.journal.table(documented.parent)
    own, other = (table.filter(pc.equal(table["member"], name)) for name in "ab")
    assert own["payload"].to_pylist() == [row.payload for row in ROWS[:800]]
    assert own["idx"].to_pylist() == [*range(800)] and set(own["sender"].to_pylist()) == {"a", "b"}
    assert other["sender"].to_pylist() == [row.sender.name for row in ROWS[:70]]
    assert other["payload"].to_pylist() == [row.payload if payload == "full" else None for row in ROWS[:70]]
    assert table["sender_id"].to_pylist()[0] == 0x0123456789ABCDEF and table["sent_at"].type == pa.timestamp(
        "ns", "UTC"
    )
    (segment, *_) = seqcast.journal.read(documented).segments
    raw = pq.read_table(segment.path)
    assert own["delivered_at"].cast("int64").to_pylist()[:500] == raw["delivered_ns"].to_pylist()
    some = ["length", "member", "delivered_at"]
    assert seqcast.journal.table(documented.parent, some).equals(table.select(some))
    assert seqcast.journal.table(str(documented), ["member"]).num_rows == 800
    with pytest.raises(seqcast.UsageError, match="there is no 'sent_ns'; give some of member, idx"):
        seqcast.journal.table(documented, ["sent_ns"])


def test_a_journal_without_rows_is_a_table_without_rows(tmp_path: Path) -> None:
    empty = seqcast.journal.table(journal(tmp_path, A, [(V1, [])], payload="hash"))
    assert (empty.num_rows, *empty.schema.names) == (0, *TABLE)
    assert empty.schema == seqcast.journal.table(journal(tmp_path, B, [(V1, ROWS)], payload="full")).schema


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)


def run_query(spark: Any, code: str, names: dict[str, Any]) -> None:
    """Runs the code of a page until its query has taken all rows."""
    exec(code, names)
    (query,) = spark.streams.active
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The journals that the pages name, in the current directory: one segment rolled, one live."""
    who = Member("a", 0x0123456789ABCDEF)
    of = view(3, [who, B])
    monkeypatch.chdir(tmp_path)
    settings = {"payload": "full", "segment_rows": 400, "together_rows": 1}
    writer = JournalWriter("journals", cluster="test", member=who, flush_s=0.001, **settings)
    assert writer.path.name == "a-0123456789abcdef"
    writer.view(of, 1, total=True)
    writer.batch(batch_of([Row(who, row.seqno, 0, row.global_seqno, row.payload) for row in ROWS[:500]], of), of)
    wait_until(lambda: (writer.path / "segment-000001.parquet").exists())
    rest = [Row(B, row.seqno, 0, row.global_seqno, row.payload) for row in ROWS[500:800]]
    writer.batch(batch_of(rest, of), of)
    wait_until(lambda: writer.counters()["rows"] == 800)
    yield writer.path
    writer.close("leave")


def test_the_journals_page_reads_journals_as_it_says(documented: Path) -> None:
    reading, tables, others = blocks("journal.md")
    names: dict[str, Any] = {}
    exec(reading, names)
    assert (names["journal"].member.name, names["journal"].rows, names["message"].seqno) == ("a", 800, ROWS[799].seqno)
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    exec(tables, names)
    exec("groups = duckdb.sql('select sender, count(*) from messages group by all').fetchall()", names)
    assert sorted(names["groups"]) == [("a", 500), ("b", 300)]
    exec(others, names)
    assert names["table"].num_rows == 500
    exec("found = runs.project('unnest(messages, recursive := true)').aggregate('count(*)').fetchall()", names)
    assert names["found"] == [(300,)]


@pytest.mark.long
def test_the_sparks_page_reads_journals_as_it_says(
    spark: Any, documented: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seqcast.spark.open_session", lambda: spark)
    top = documented.parents[1].resolve()  # a session resolves relative paths from where its Java was started
    pages = blocks("spark.md")[0], blocks("spark.md")[2], blocks("../README.md")[1]
    table, stream, readme = (re.sub(r'"(journals|checkpoint|table)"', rf'"{top}/\1"', code) for code in pages)
    names: dict[str, Any] = {}
    exec(table, names)
    assert re.search(r"\|\s*a\| +500\|", capsys.readouterr().out)
    for code in (stream, readme):
        run_query(spark, code, names)
        assert spark.read.parquet(f"{top}/table").count() == 800
        shutil.rmtree(f"{top}/table")
        shutil.rmtree(f"{top}/checkpoint")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_recipe_with_transaction_ids_runs_as_it_is_printed(spark: Any, documented: Path) -> None:
    """Into a stand-in for Delta, whose Java is in no package of Python: a table of plain files that drops a batch of a
    writer (``txnAppId``) whose number (``txnVersion``) it has."""
    spark.dataSource.register(stand_in_for_delta())
    top = documented.parents[1].resolve()
    seqcast.spark.register(spark)
    code = re.sub(r'"(checkpoint|table)"', rf'"{top}/\1"', blocks("spark.md")[3])
    assert "txnAppId" in code
    for run in range(2):
        names = {"stream": spark.readStream.format("seqcast").option("maxRowsPerBatch", "300").load(f"{top}/journals")}
        run_query(spark, code, names)
        numbers = sorted(int(each.name) for each in (top / "checkpoint" / "commits").iterdir() if each.name.isdigit())
        assert len(numbers) >= 2
        table = pa.concat_tables(map(pq.read_table, (top / "table").glob("*.parquet")))
        assert table.num_rows == 800 and len({*table["payload_hash"].to_pylist()}) == 800
        for each in (f"{numbers[-1]}", f".{numbers[-1]}.crc"):  # as if the driver was killed before
            (top / "checkpoint" / "commits" / each).unlink(missing_ok=True)
        assert json.loads((top / "table" / "versions.json").read_text())["seen"][-1] == [numbers[-1], run == 0], run


def stand_in_for_delta() -> type:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):
        def __init__(self, options: dict[str, str]) -> None:
            self.top, self.options = options["path"], dict(options)

        def write(self, iterator: Any) -> WriterCommitMessage:
            import uuid

            import pyarrow as pa
            import pyarrow.parquet as pq

            os.makedirs(self.top, exist_ok=True)
            message = WriterCommitMessage()
            message.files = []
            if batches := list(iterator):
                message.files.append(f"{self.top}/{uuid.uuid4()}.new")
                pq.write_table(pa.Table.from_batches(batches), message.files[0])
            return message

        def commit(self, messages: list[Any]) -> None:
            state = f"{self.top}/versions.json"
            known = json.load(open(state)) if os.path.exists(state) else {"apps": {}, "seen": []}
            writer, number = self.options["txnappid"], int(self.options["txnversion"])
            new = number > known["apps"].get(writer, -1)
            for file in (file for message in messages for file in message.files):
                os.rename(file, file.replace(".new", ".parquet")) if new else os.unlink(file)
            known["apps"][writer] = max(number, known["apps"].get(writer, -1))
            known["seen"].append([number, new])
            with open(state, "w") as file:
                json.dump(known, file)

    class Delta(DataSource):
        @classmethod
        def name(cls) -> str:
            return "delta"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer({name.lower(): value for name, value in self.options.items()})

    return Delta
