"""Rows of a streaming query, multicast in batches: each arrives once at every member, whatever is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
from journal_data import Row, journal, member, view
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, SHORT_LIVED_JAVA, cluster, join, wait_until
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from tables import Table

import seqcast.spark
from seqcast.spark import sink
from seqcast.spark.sink import Rows, Sink

pytestmark = pytest.mark.spark

A = member("a")
V1 = view(1, [A])


@contextlib.contextmanager
def tables(name: str, *names: str) -> Iterator[list[Table]]:
    made: list[Table] = []
    try:
        for who in names:
            made.append(Table(name, who))
        yield made
    finally:
        for table in made:
            table.group.leave()


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    seqcast.spark.register(spark)
    return spark


def rows_of(n: int) -> list[Row]:
    return [Row(A, 1 + at, 0, 1 + at, b"row %d" % at) for at in range(n)]


def run(session: Any, source: Path, checkpoint: Path, rows_max: int = 100, **options: Any) -> Any:
    stream = session.readStream.format("seqcast").option("maxRowsPerBatch", rows_max).load(str(source))
    writer = stream.select("payload").repartition(3).writeStream.format("seqcast").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return query


@pytest.mark.long
def test_a_batch_that_spark_repeats_is_delivered_once_by_all_and_by_a_joiner(session: Any, tmp_path: Path) -> None:
    source = journal(tmp_path / "j", A, [(V1, rows_of(500))], payload="full")
    name, checkpoint = cluster(), tmp_path / "checkpoint"
    wanted = sorted(row.payload for row in rows_of(500))
    with tables(name, "a", "b") as (a, b):
        run(session, source, checkpoint, cluster=name, interface=LOOPBACK, members=3)
        wait_until(lambda: len(a.rows) == len(b.rows) == 500)
        assert a.rows == b.rows and sorted(a.rows) == wanted
        assert a.batches.counters.delivered == 5 and not a.batches.counters.incomplete
        with tables(name, "c") as (c,):
            # The remains of a driver that is killed between multicasting a batch and noting so.
            for log in (checkpoint / "commits").glob("*4*"):
                log.unlink()
            run(session, source, checkpoint, cluster=name, interface=LOOPBACK, members=4)
            wait_until(lambda: [each.batches.counters.repeated for each in (a, b, c)] == [1, 1, 1])
            assert a.rows == b.rows == c.rows and len(a.rows) == 500


def test_a_batch_waits_for_receivers_and_fails_without_them(session: Any, tmp_path: Path) -> None:
    source = journal(tmp_path / "j", A, [(V1, rows_of(10))], payload="full")
    with pytest.raises(StreamingQueryException, match="members"):
        run(session, source, tmp_path / "checkpoint", cluster=cluster(), interface=LOOPBACK, timeout=2)


KINDS = {"binary": BinaryType(), "string": StringType(), "long": LongType()}


def schema_of(columns: str) -> StructType:
    """ "payload binary, idx long" as Spark's schema, without a session."""
    fields = (column.split() for column in columns.split(","))
    return StructType([StructField(name, KINDS[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        ({}, "payload binary", r'option\("cluster"'),
        ({"cluster": "x", "order": "fifo"}, "payload binary", "give one of total, records, sequencer"),
        ({"cluster": "x", "members": "0"}, "payload binary", "give a positive whole number"),
        ({"cluster": "x"}, "idx long, value string", "no column payload among"),
        ({"cluster": "x"}, "idx long", "a payload is binary or string"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], columns: str, says: str) -> None:
    with pytest.raises(seqcast.UsageError, match=says):
        Sink(schema_of(columns), options)


def handed_over(*payloads: bytes, query: str = "0123456789") -> Rows:
    """A task's result for the driver."""
    schema = pa.schema([("payload", pa.binary())])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as stream:
        stream.write_batch(pa.record_batch([pa.array(payloads, pa.binary())], schema=schema))
    return Rows(query, len(payloads), sum(map(len, payloads)), out.getvalue().to_pybytes())


def sink_to(name: str, **options: str) -> Sink:
    given = {"cluster": name, "interface": LOOPBACK, **options}
    return Sink(schema_of("payload binary"), given)


def test_one_member_sends_all_batches_and_leaves_when_it_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "IDLE_S", LIMIT_S)
    monkeypatch.setenv("SEQCAST_DISCOVERY_S", str(PATIENT_JOINER["discovery_s"]))  # finds a, and forms no group
    name = cluster()
    with tables(name, "a") as (a,):
        for batch in (0, 1, 1, 2):
            sink_to(name).commit([handed_over(b"%d a" % batch, b""), None, handed_over(b"%d b" % batch)], batch)
            assert len(a.group.view.members) == 2 and a.group.view.view_id.counter == 2
        sink_to(name).commit([None, handed_over()], 3)  # a batch without rows
        wait_until(lambda: a.rows == [b"0 a", b"", b"0 b", b"1 a", b"", b"1 b", b"2 a", b"", b"2 b"])
        monkeypatch.setattr(sink, "IDLE_S", 0.1)
        sink_to(name).commit([handed_over(b"the last one for a while")], 4)
        wait_until(lambda: len(a.group.view.members) == 1)
        sink_to(name).commit([handed_over(b"after")], 5)
        wait_until(lambda: a.rows[-1] == b"after")
        assert a.batches.counters.repeated == 1
        wait_until(lambda: len(a.group.view.members) == 1)


def test_the_sink_founds_no_primary_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink's member is not one of the intended members."""
    given: dict[str, Any] = {}

    def refuse(_cluster: str, **settings: Any) -> None:
        given.update(settings)
        raise seqcast.JoinTimeout("nobody is there")

    monkeypatch.setattr(seqcast, "join", refuse)
    with pytest.raises(seqcast.JoinTimeout):
        sink_to(cluster(), partition="primary", order="sequencer").commit([handed_over(b"one")], 0)
    config = given["config"]
    assert (config.found, config.receive, config.partition, given["order"]) == (0, False, "primary", "sequencer")


def test_a_member_that_was_excluded_is_replaced() -> None:
    name = cluster()
    with tables(name, "a") as (a,):
        sink_to(name).commit([handed_over(b"one")], 0)
        (group,) = (group for target, group in sink._groups.items() if target.cluster == name)
        group.leave()
        sink_to(name).commit([handed_over(b"two")], 1)
        wait_until(lambda: a.rows == [b"one", b"two"])


def test_a_batch_counts_when_every_application_has_taken_it() -> None:
    name = cluster()
    with tables(name, "a") as (a,), join(name, "stuck") as stuck:
        with pytest.raises(seqcast.SendTimeout, match="a receiver is slow or stopped"):
            sink_to(name, timeout="2").commit([handed_over(b"one")], 0)
        taking = threading.Thread(target=lambda: list(stuck), daemon=True)
        taking.start()
        sink_to(name).commit([handed_over(b"one")], 0)
        wait_until(lambda: a.rows == [b"one"] and a.batches.counters.repeated >= 1)


def test_a_batch_that_is_too_large_for_the_driver_fails_the_query(session: Any, tmp_path: Path) -> None:
    source = journal(tmp_path / "j", A, [(V1, rows_of(100))], payload="full")
    with pytest.raises(StreamingQueryException, match="lower the rows of a batch at the source"):
        run(session, source, tmp_path / "checkpoint", cluster="x", maxBatchBytes=100)


QUERY = """
    import sys
    import seqcast.spark
    source, checkpoint, cluster, interface = sys.argv[1:]
    spark = seqcast.spark.open_session("local[2]")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    seqcast.spark.register(spark)
    rows = spark.readStream.format("seqcast").option("maxRowsPerBatch", "500").load(source).select("payload")
    query = rows.repartition(3).writeStream.format("seqcast").option("cluster", cluster).option("interface", interface)
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_and_restarted_delivers_every_row_once(session: Any, tmp_path: Path) -> None:
    wanted = rows_of(5_000)
    source = journal(tmp_path / "j", A, [(V1, wanted)], payload="full")
    name, checkpoint = cluster(), tmp_path / "checkpoint"
    command = [sys.executable, "-c", textwrap.dedent(QUERY), str(source), str(checkpoint), name, LOOPBACK]
    with tables(name, "a", "b") as (a, b), contextlib.ExitStack() as later:
        joined: list[Table] = []
        for kill_at in (1_000, 2_500):
            with subprocess.Popen(command, env={**os.environ, **SHORT_LIVED_JAVA}) as driver:
                wait_until(lambda at=kill_at: len(a.rows) >= at or driver.poll() is not None, 300)
                assert driver.poll() is None
                driver.kill()
            joined += later.enter_context(tables(name, f"joined at {kill_at}"))
        run(session, source, checkpoint, 500, cluster=name, interface=LOOPBACK)
        everyone = [a, b, *joined]
        wait_until(lambda: all(len(each.rows) == len(wanted) for each in everyone))
        assert all(each.rows == a.rows for each in everyone)
        assert sorted(a.rows) == sorted(row.payload for row in wanted)
