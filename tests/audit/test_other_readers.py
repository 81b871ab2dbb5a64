"""What docs/journal.md says that Polars and DuckDB read: rolled segments, and the live one beside its writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from journal_data import Row, batch_of, journal, member, view
from members import wait_until

from seqcast.journal.writer import JournalWriter

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
