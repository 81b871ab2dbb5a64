"""The cost of the source on Spark: as a table, as a backlog, and the latency of a stream from a send to a sink.

    python bench/spark_stream.py [--rows 10000000] [--size 100] [--rate 100000] [--seconds 30]

First it writes one member's journal and reads it as a table into Spark's noop sink, twice (the second is without the
warming up of the JVM), once more with a few columns (option ``columns``), and as a stream of these in batches of a
million rows: the whole, with the start of the query, and the median of the micro-batches after the first.

Then a process with two members multicasts at a rate and journals what it delivers; a query follows the journal into a
sink that takes Arrow batches and compares each row's time of sending with its own clock, in the task: so the latency is
from ``send_batch`` to the sink's task, and leaves out the commit of the micro-batch. The time of the stream begins when
the query has written its first micro-batch; the first third of the following ones is dropped. Rates are rows per
second of wall time; CPU seconds are those of all processes that took part. It does not measure a network.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from journal_bench import batches, member, view
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from spark_audit import cpu_s

from seqcast.journal.writer import JournalWriter


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


FEW = "view_counter,global_seqno,sender,sent_at,payload"
"""The columns that a query may need."""
START_S = 180.0
"""Limit for the query's first micro-batch."""


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
    command = [sys.executable, __file__, "members", f"bench-{os.getpid()}", str(top / "live")]
    command += [str(arguments.size), str(arguments.rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None and sender.stdin is not None and sender.stdout.readline() == "joined\n"
        out = top / "latencies"
        stream = spark.readStream.format("seqcast").option("columns", FEW).load(str(top / "live"))
        query = stream.writeStream.format("latency").option("out", str(out))
        query = query.option("checkpointLocation", str(top / "checkpoint")).start()
        deadline = time.monotonic() + START_S
        while not out.exists() and query.isActive and time.monotonic() < deadline:
            time.sleep(0.05)
        if not out.exists():
            sender.kill()
            raise SystemExit(f"the query wrote no micro-batch within {START_S:g} s: {query.exception()}")
        warming, before = len(out.read_text().splitlines()), cpu_s()
        query.awaitTermination(arguments.seconds)
        used = cpu_s() - before
        progress = query.recentProgress[-len(query.recentProgress) // 2 :]
        query.stop()
        sender.stdin.close()
        rate = int(sender.stdout.readline())
    lines = [json.loads(line) for line in out.read_text().splitlines()[warming:]]
    if not (kept := lines[len(lines) // 3 :]):
        raise SystemExit(f"no micro-batch ended in {arguments.seconds:g} s: give the stream more --seconds")
    return {
        "sent_per_s": rate, "batches": len(kept), "rows": sum(line["rows"] for line in kept), "cpu_s": round(used, 1),
        **{name: round(float(np.median([line[name] for line in kept])), 1) for name in ("p50_ms", "p99_ms")},
        "p99_ms_worst": round(max(line["p99_ms"] for line in kept), 1),
        "phases_ms": {
            name: round(float(np.median([each["durationMs"].get(name, 0) for each in progress])))
            for name in progress[-1]["durationMs"]
        },
    }  # fmt: skip


def backlog(spark: Any, journal: Path, rows: int, top: Path) -> dict[str, Any]:
    stream = spark.readStream.format("seqcast").option("maxRowsPerBatch", 1 << 20).option("columns", FEW)
    query = stream.load(str(journal)).writeStream.format("noop").option("checkpointLocation", str(top / "backlog"))
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


def main() -> None:
    if sys.argv[1:2] == ["members"]:
        cluster, journals, size, rate = sys.argv[2:]
        return members(cluster, journals, int(size), int(rate))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table and of the backlog (%(default)s)")
    parser.add_argument("--size", type=int, default=100, help="bytes a message (%(default)s)")
    parser.add_argument("--rate", type=int, default=100_000, help="messages a second of the stream (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the stream (%(default)s)")
    arguments = parser.parse_args()
    import seqcast.spark

    top = Path(tempfile.mkdtemp(prefix="seqcast-bench-"))
    try:
        of = view(1, [member("a"), member("b")])
        writer = JournalWriter(top, cluster="bench", member=member("a"), payload="full", segment_rows=500_000)
        writer.view(of, 1)
        for batch in batches(of, arguments.size, arguments.rows):
            writer.batch(batch, of)
        writer.close("leave")
        spark = seqcast.spark.open_session()
        seqcast.spark.register(spark)
        spark.dataSource.register(LatencySink)
        try:
            table = spark.read.format("seqcast").load(str(writer.path))
            few = spark.read.format("seqcast").option("columns", FEW).load(str(writer.path))
            read = [
                measured(arguments.rows, of.write.format("noop").mode("overwrite").save) for of in (table, table, few)
            ]
            told = {"size": arguments.size, "rows": arguments.rows, "few": FEW, "table": read}
            told |= {"backlog": backlog(spark, writer.path, arguments.rows, top)}
            told |= {"stream": latency(spark, arguments, top), "load": os.getloadavg()[0], "cores": os.cpu_count()}
            print(json.dumps(told))
        finally:
            spark.stop()
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
