"""The cost of the source on Spark: as a table, as a backlog, and the latency of a stream from a send to a sink.

    python bench/spark_stream.py [--rows 10000000] [--size 100] [--rate 100000] [--seconds 30]
    python bench/spark_stream.py --idle 100 [--seconds 60]

First one member's journal is written, and read as a table into Spark's noop sink, twice (the second time without the
warming up of the JVM), once more with a few columns (option ``columns``), and as a stream of these in batches of a
million rows: the whole, with the start of the query, and the median of the micro-batches after the first.

Then a process with two members multicasts at a rate and journals its deliveries; a query follows the journal into a
sink that takes Arrow batches and compares each row's time of sending with its own clock, in the task: so the latency is
from ``send_batch`` to the sink's task, and leaves out the commit of the micro-batch. The time of the stream begins when
the query has written a few micro-batches; the first third of the following ones is dropped. Rates are rows per second
of wall time; CPU seconds are those of all processes that took part. No network is measured.

Each of these is measured for Spark alone, too: a source that reads nothing gives out batches made before, of the same
columns, rows and sizes, by a clock if rows come at a rate. ``floor`` is that: no source in Python can be faster.

With ``--idle`` only a stream of this many journals, of which nothing new comes, is measured: CPU seconds of the process
that looks for new rows, and of Java, per second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from journal_bench import batches, member, view
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from spark_audit import TICKS, cpu_s, family

from seqcast.journal.writer import JournalWriter
from seqcast.spark.stores import PARTITION_ROWS
from seqcast.spark.wanted import SCHEMA, columns_of
from seqcast.types import Member


class LatencySink(DataSource):
    """Writes a line to the file ``out`` for each micro-batch: its number of rows, and percentiles of their latency."""

    @classmethod
    def name(cls) -> str:
        return "latency"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return LatencyWriter(self.options["out"])


@dataclass
class Latencies(WriterCommitMessage):
    took_us: list[Any]


class LatencyWriter(DataSourceStreamArrowWriter):
    def __init__(self, out: str) -> None:
        self._out = out

    def write(self, iterator: Iterator[Any]) -> Latencies:
        times = [(time.time_ns(), batch["sent_at"].cast("int64").to_numpy()) for batch in iterator]
        return Latencies([now_ns // 1000 - sent_us for now_ns, sent_us in times])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [part for each in messages if isinstance(each, Latencies) for part in each.took_us]
        if parts:
            took = np.concatenate(parts)
            line = {"rows": len(took), "p50_ms": np.percentile(took, 50) / 1e3, "p99_ms": np.percentile(took, 99) / 1e3}
            with open(self._out, "a") as file:
                file.write(json.dumps(line) + "\n")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class Prepared(DataSource):
    """Rows of the same columns as the format ``seqcast``, which are made once in each task and not read: the time of
    Spark itself. Options: ``columns``; ``size`` of a payload, bytes; ``rows`` of the table, or of the stream's backlog;
    ``rate``: the stream's rows come by the clock, per second; ``maxRowsPerBatch``."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return ", ".join(f"`{name}` {SCHEMA[name]}" for name in columns_of(self.options))

    def reader(self, schema: Any) -> PreparedTable:
        return PreparedTable(self.options)

    def streamReader(self, schema: Any) -> PreparedStream:
        return PreparedStream(self.options)


@dataclass
class Range(InputPartition):
    first: int
    end: int
    begin_ns: int = 0
    """When row 0 was due, ns since 1970."""


class PreparedTable(DataSourceReader):
    def __init__(self, options: Any) -> None:
        self._columns = columns_of(options)
        self._size = int(options["size"])
        self._rows = int(options.get("rows", "0"))

    def partitions(self) -> list[InputPartition]:
        return list(ranges(0, self._rows, -(-self._rows // (os.cpu_count() or 1))))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        yield from prepared(self._columns, self._size, partition.end - partition.first)


class PreparedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Any) -> None:
        self._columns = columns_of(options)
        self._size = int(options["size"])
        self._rows = int(options.get("rows", "0"))
        self._rate = int(options.get("rate", "0"))
        self._limit = int(options.get("maxRowsPerBatch", "0"))

    def initialOffset(self) -> dict[str, int]:
        return {"idx": 0, "begin_ns": time.time_ns()}  # tasks have another copy of this object

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit) if self._limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._rows or (time.time_ns() - start["begin_ns"]) * self._rate // 10**9
        return {**start, "idx": min(end, start["idx"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return list(ranges(start["idx"], end["idx"], PARTITION_ROWS, start["begin_ns"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        sent_us = None
        if self._rate:
            sent_us = partition.begin_ns // 1000 + np.arange(partition.first, partition.end) * 10**6 // self._rate
        yield from prepared(self._columns, self._size, partition.end - partition.first, sent_us)


def ranges(first: int, end: int, step: int, begin_ns: int = 0) -> Iterator[InputPartition]:
    for at in range(first, end, max(1, step)):
        yield Range(at, min(end, at + step), begin_ns)


def prepared(columns: Sequence[str], size: int, rows: int, sent_us: Any = None) -> Iterator[Any]:
    """Batches with this many rows, of one value in each column but for the times of sending."""
    import pyarrow as pa

    values = {"string": "a", "bigint": 1, "int": 1, "boolean": False, "binary": bytes(size)}
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
    }
    time_type = pa.timestamp("us", tz="UTC")
    count = min(rows, BATCH_ROWS)
    arrays = [
        pa.repeat(pa.scalar(values[SCHEMA[name]], types[SCHEMA[name]]), count)
        if SCHEMA[name] in values
        else pa.array(np.full(count, time.time_ns() // 1000), time_type)
        for name in columns
    ]
    for at in range(0, rows, BATCH_ROWS):
        kept = [array.slice(0, rows - at) for array in arrays]
        if sent_us is not None:
            kept[columns.index("sent_at")] = pa.array(sent_us[at : at + BATCH_ROWS], time_type)
        yield pa.RecordBatch.from_arrays(kept, list(columns))


BATCH_ROWS = 1 << 16
"""Rows of a prepared batch, as those that the format gives out."""
FEW = "view_counter,global_seqno,sender,sent_at,payload"
"""The columns that a query may need."""
WARMING, START_S = 3, 180.0
"""Micro-batches at the beginning of a query that are not measured, and the limit for them."""


def members(cluster: str, journals: str, size: int, rate: int) -> None:
    """In a process of its own: one member multicasts at a rate until standard input ends, the other one journals."""
    import threading

    import seqcast

    count = max(1, rate // 200)
    data, offsets = np.zeros(count * size, np.uint8), np.arange(count + 1, dtype=np.int32) * size
    with (
        seqcast.join(cluster, name="a", interface="lo", journal=journals, journal_payload="full") as a,
        seqcast.join(cluster, name="b", interface="lo", receive=False, min_members=2) as b,
    ):

        def receive() -> None:
            while a.recv_batch() is not None:
                pass

        over = threading.Event()
        threading.Thread(target=receive, daemon=True).start()
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
        print("joined", flush=True)
        begin, sent = time.monotonic(), 0
        while not over.is_set():
            if sent <= (time.monotonic() - begin) * rate:
                b.send_batch(data, offsets)
                sent += count
            else:
                time.sleep(0.001)
        print(round(sent / (time.monotonic() - begin)), flush=True)
        os._exit(0)  # the end of the journal is not measured


def latency(spark: Any, arguments: argparse.Namespace, top: Path) -> dict[str, Any]:
    """Of a member's messages."""
    command = [sys.executable, __file__, "members", f"bench-{os.getpid()}", str(top / "live")]
    command += [str(arguments.size), str(arguments.rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None and sender.stdin is not None and sender.stdout.readline() == "joined\n"
        stream = spark.readStream.format("seqcast").option("columns", FEW).load(str(top / "live"))
        try:
            told = followed(stream, arguments.seconds, top / "of-members")
        except SystemExit:
            sender.kill()
            raise
        sender.stdin.close()
        return {"sent_per_s": int(sender.stdout.readline()), **told}


def followed(stream: Any, seconds: float, top: Path) -> dict[str, Any]:
    """Latencies of a stream into the sink, for this many seconds behind its first micro-batches."""
    top.mkdir()
    out = top / "latencies"
    query = stream.writeStream.format("latency").option("out", str(out))
    query = query.option("checkpointLocation", str(top / "checkpoint")).start()
    deadline = time.monotonic() + START_S

    def written() -> int:
        return len(out.read_text().splitlines()) if out.exists() else 0

    while (warming := written()) < WARMING and query.isActive and time.monotonic() < deadline:
        time.sleep(0.05)
    if warming < WARMING:
        raise SystemExit(f"the query wrote {warming} micro-batches within {START_S:g} s: {query.exception()}")
    before = cpu_s()
    query.awaitTermination(seconds)
    used = cpu_s() - before
    progress = query.recentProgress[-len(query.recentProgress) // 2 :]
    query.stop()
    lines = [json.loads(line) for line in out.read_text().splitlines()[warming:]]
    if not (kept := lines[len(lines) // 3 :]):
        raise SystemExit(f"no micro-batch ended in {seconds:g} s: give the stream more --seconds")
    return {
        "batches": len(kept), "rows": sum(line["rows"] for line in kept), "cpu_s": round(used, 1),
        **{name: round(float(np.median([line[name] for line in kept])), 1) for name in ("p50_ms", "p99_ms")},
        "p99_ms_worst": round(max(line["p99_ms"] for line in kept), 1),
        "phases_ms": {
            name: round(float(np.median([each["durationMs"].get(name, 0) for each in progress])))
            for name in progress[-1]["durationMs"]
        },
    }  # fmt: skip


def backlog(stream: Any, rows: int, checkpoint: Path) -> dict[str, Any]:
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    started = []

    def run() -> None:
        started.append(query.trigger(availableNow=True).start())
        started[0].awaitTermination()

    told = measured(rows, run)
    later = [each["processedRowsPerSecond"] for each in started[0].recentProgress[1:] if each["numInputRows"]]
    return {**told, "steady_mrows_per_s": round(float(np.median(later)) / 1e6, 2) if later else told["mrows_per_s"]}


def measured(rows: int, action: Any) -> dict[str, Any]:
    before, begin = cpu_s(), time.perf_counter()
    action()
    seconds = time.perf_counter() - begin
    return {"mrows_per_s": round(rows / seconds / 1e6, 2), "cpu_us_per_row": round((cpu_s() - before) / rows * 1e6, 3)}


def both(ours: Callable[[], Any], floor: Callable[[], Any]) -> dict[str, Any]:
    """The time with the format, and beside it that of Spark alone."""
    return {**ours(), "floor": floor()}


def measure(spark: Any, arguments: argparse.Namespace, top: Path, journal: Path) -> dict[str, Any]:
    rows = arguments.rows

    def table(format: str, **options: Any) -> Any:
        frame = spark.read.format(format).options(size=arguments.size, rows=rows, **options).load(str(journal))
        return lambda: measured(rows, frame.write.format("noop").mode("overwrite").save)

    def stream(format: str, **options: Any) -> Any:
        return spark.readStream.format(format).options(size=arguments.size, columns=FEW, **options).load(str(journal))

    limit = {"maxRowsPerBatch": 1 << 20}
    told = {"size": arguments.size, "rows": rows, "few": FEW, "first": table("seqcast")()}
    told["table"] = both(table("seqcast"), table("prepared"))
    told["five"] = both(table("seqcast", columns=FEW), table("prepared", columns=FEW))
    told["backlog"] = both(
        lambda: backlog(stream("seqcast", **limit), rows, top / "backlog"),
        lambda: backlog(stream("prepared", rows=rows, **limit), rows, top / "prepared-backlog"),
    )
    told["stream"] = both(
        lambda: latency(spark, arguments, top),
        lambda: followed(stream("prepared", rate=arguments.rate), arguments.seconds / 2, top / "of-spark"),
    )
    return told


def idle(spark: Any, count: int, seconds: float, top: Path) -> dict[str, Any]:
    """CPU seconds a second, of the source and of Java, of a query that follows a group which sends nothing."""
    who = [Member(f"m{at}", 1000 + at) for at in range(count)]
    of = view(1, who)
    writers = [JournalWriter(top / "journals", cluster="bench", member=each, payload="full") for each in who]
    for writer in writers:
        writer.view(of, 1, total=True)
        writer.batch(batches(of, 100, 1000)[0], of)
    rows = spark.readStream.format("seqcast").load(str(top / "journals")).writeStream.format("noop")
    query = rows.option("checkpointLocation", str(top / "checkpoint")).start()
    query.processAllAvailable()
    time.sleep(20.0)  # longer than `failoverAfter`, and the JVM is warm
    before, began = cpu_of(), time.monotonic()
    time.sleep(seconds)
    after, took = cpu_of(), time.monotonic() - began
    query.stop()
    for writer in writers:
        writer.close("leave")
    return {"journals": count, **{name: round((after[name] - before[name]) / took, 4) for name in after}}


def cpu_of() -> dict[str, float]:
    """CPU seconds of the process of a stream's source, and of Java."""
    found = {"source": 0.0, "java": 0.0}
    for pid in family():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            ticks = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
        for name, word in (("java", "/java"), ("source", "source_runner")):
            if any(each.endswith(word) for each in command):
                found[name] += ticks / TICKS
    return found


def main() -> None:
    if sys.argv[1:2] == ["members"]:
        cluster, journals, size, rate = sys.argv[2:]
        return members(cluster, journals, int(size), int(rate))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table and of the backlog (%(default)s)")
    parser.add_argument("--size", type=int, default=100, help="bytes a message (%(default)s)")
    parser.add_argument("--rate", type=int, default=100_000, help="messages a second of the stream (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the stream (%(default)s)")
    parser.add_argument("--idle", type=int, default=0, metavar="N", help="only a stream of N journals, idle")
    arguments = parser.parse_args()
    import seqcast.spark

    top = Path(tempfile.mkdtemp(prefix="seqcast-bench-"))
    try:
        if arguments.idle:
            spark = seqcast.spark.open_session()
            seqcast.spark.register(spark)
            told = idle(spark, arguments.idle, arguments.seconds, top)
            print(json.dumps({**told, "load": os.getloadavg()[0], "cores": os.cpu_count()}))
            return spark.stop()
        of = view(1, [member("a"), member("b")])
        writer = JournalWriter(top, cluster="bench", member=member("a"), payload="full", segment_rows=500_000)
        writer.view(of, 1)
        for batch in batches(of, arguments.size, arguments.rows):
            writer.batch(batch, of)
        writer.close("leave")
        spark = seqcast.spark.open_session()
        seqcast.spark.register(spark)
        for each in (LatencySink, Prepared):
            spark.dataSource.register(each)
        try:
            told = measure(spark, arguments, top, writer.path)
            print(json.dumps({**told, "load": os.getloadavg()[0], "cores": os.cpu_count()}))
        finally:
            spark.stop()
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
