"""The cost of the audit on Spark, beside DuckDB doing the same checks on the same Parquet files.

    python bench/spark_audit.py [--rows 10000000] [--members 4] [--segment-rows 1000000] [--small-rows N [N ...]]
                                [--full SIZE] [--no-duckdb]

It writes sound journals, audits them twice in one session (the second is without the warming up of the JVM), and has
DuckDB compute, with as many threads as there are processors: the fingerprints by member, view, sender and bucket; where
positions and global seqnos are not dense; and where a sender's messages are out of order or a packet lacks one.
The audit also compares the checksum of each file and, with ``--full``, hashes the payloads again; DuckDB does not. With
``--small-rows`` the same rows are audited in small segments of each size too, in the same session, each rolled into a
file of its own: the cost of a file, and how many rows cost as much (``as_rows``). DuckDB reads those of the first size
too. Segments of the last size are also written as members write them, rolled together (``together``).

CPU seconds are those of all processes that took part (driver, JVM, Python workers), so they hold on a busy machine too;
``ratio`` is the second run's to DuckDB's. Peak memory is that of the driver, of its JVM, and of the largest Python
worker.
DuckDB comes with ``pip install 'seqcast[bench,spark]'``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from journal_bench import batches, member, view

from seqcast.journal import writer as writer_of_journals
from seqcast.journal.manifest import load
from seqcast.journal.roll import TOGETHER_ROWS
from seqcast.journal.writer import JournalWriter

DUCKDB_MEMORY = "8GB"
TICKS = os.sysconf("SC_CLK_TCK")
DUCKDB = {
    "fingerprints": """
        select filename, view_tag, sender, global_seqno >> 16 as bucket, count(*), max(global_seqno),
               sum((hash(global_seqno, sender, seqno, index, length, payload_hash) & 4294967295)::ubigint),
               sum(hash(global_seqno, sender, seqno, index, length, payload_hash) >> 32)
        from rows group by all""",
    "gaps": """
        select count(*) filter (idx <> idx_before + 1), count(*) filter (global_seqno <> before + 1)
        from (select idx, global_seqno, lag(idx) over journal as idx_before, lag(global_seqno) over sight as before
              from rows window journal as (partition by member order by idx),
                               sight as (partition by member, view_tag order by idx))""",
    "fifo": """
        select count(*) filter (key <= before), count(*) filter (key > before + 1 and index <> 0)
        from (select index, (seqno << 16) | index as key, lag((seqno << 16) | index) over sent as before
              from rows window sent as (partition by member, sender order by idx))""",
}


def family() -> list[int]:
    """This process and all its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended
            continue
    found = [os.getpid()]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def cpu_s() -> float:
    """CPU seconds of these processes, including those that have ended."""
    total = 0
    for pid in family():
        try:
            total += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return total / TICKS


def peaks_mb() -> dict[str, int]:
    """Peak memory of this process, which is the driver, of the JVM and of the largest Python worker, MB."""
    found = {"driver": 0, "jvm": 0, "worker": 0}
    for pid in family():
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        peak = next((int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM")), 0)
        kind = "driver" if pid == os.getpid() else "jvm" if name == "java" else "worker"
        found[kind] = max(found[kind], peak)
    return found


def write_apart(arguments: argparse.Namespace, top: Path, segment_rows: int, together_rows: int = 1) -> float:
    """Writes the journals in a process of its own: its memory would otherwise count as memory of the driver.
    Returns the CPU seconds of writing and rolling."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(write_journals, (arguments, top, segment_rows, together_rows))


def write_journals(arguments: argparse.Namespace, top: Path, segment_rows: int, together_rows: int) -> float:
    who = [member(chr(ord("a") + number)) for number in range(arguments.members)]
    of, last = view(1, who), view(2, who)
    given = batches(of, arguments.full or 64, arguments.rows // arguments.members, segment_rows)
    writer_of_journals.GROUP_MESSAGES = min(writer_of_journals.GROUP_MESSAGES, segment_rows)  # else segments have more
    begin = time.process_time()
    for one in who:
        writer = JournalWriter(
            top, cluster="bench", member=one, payload="full" if arguments.full else "hash",
            segment_rows=segment_rows, together_rows=together_rows,
        )  # fmt: skip
        writer.view(of, 1, total=True)
        for delivered in given:
            writer.batch(delivered, of)
        writer.view(last, 2, total=True)
        writer.close("leave")
    return time.process_time() - begin


def by_spark(arguments: argparse.Namespace, top: Path, smalls: list[Path]) -> dict[str, Any]:
    from seqcast.spark import open_session

    begin = time.perf_counter()
    spark = open_session(arguments.master)
    started = time.perf_counter() - begin
    try:
        told = {"session_s": round(started, 1), **audited(spark, top)}
        told["peak_mb"] = peaks_mb()
        told["small"] = [beside(told, audited(spark, small)) for small in smalls]
        return told
    finally:
        spark.stop()


def beside(few: dict[str, Any], many: dict[str, Any]) -> dict[str, Any]:
    """The audit in many segments, with its cost beside that in few."""
    more = many["files"] - few["files"]
    cpu = many["cpu_s"][1] - few["cpu_s"][1]
    return {
        **many,
        "ratio": round(many["cpu_s"][1] / few["cpu_s"][1], 2),
        "cpu_ms_per_file": round(cpu / max(1, more) * 1e3, 3),
        "as_rows": round(cpu / max(1, more) / few["cpu_s"][1] * few["rows"]),
    }


def audited(spark: Any, top: Path) -> dict[str, Any]:
    """Two audits, one after the other."""
    from seqcast.spark import audit

    seconds, cpu, reports = [], [], []
    for _ in range(2):
        before, begin = cpu_s(), time.perf_counter()
        reports.append(audit(spark, top).reports[0])
        seconds.append(round(time.perf_counter() - begin, 2))
        cpu.append(round(cpu_s() - before, 2))
    return {
        "rows": reports[1].rows, "files": len(list(top.glob("*/segment-*.parquet"))),
        "segments": sum(load(each).started for each in top.iterdir()), "holds": reports[1].holds,
        "seconds": seconds, "cpu_s": cpu, "mrows_per_s": round(reports[1].rows / seconds[1] / 1e6, 2),
    }  # fmt: skip


def by_duckdb(top: Path) -> dict[str, Any]:
    import duckdb

    settings = {"threads": os.cpu_count() or 1, "memory_limit": DUCKDB_MEMORY, "temp_directory": str(top / "duckdb")}
    database = duckdb.connect(config=settings)
    files = f"read_parquet('{top}/*/segment-*.parquet', filename = true)"
    database.execute(f"create view rows as select *, parse_dirpath(filename) as member from {files}")
    seconds, cpu = {}, {}
    for name, query in DUCKDB.items():
        before, begin = time.process_time(), time.perf_counter()
        found = database.execute(query).fetchall()
        cpu[name] = round(time.process_time() - before, 2)
        seconds[name] = round(time.perf_counter() - begin, 2)
        assert name == "fingerprints" or found == [(0, 0)], (name, found)
    return {"version": duckdb.__version__, "seconds": seconds, "cpu_s": cpu, "cpu_s_all": round(sum(cpu.values()), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of all members together (%(default)s)")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--segment-rows", type=int, default=1_000_000)
    parser.add_argument(
        "--small-rows", type=int, nargs="+", default=[], metavar="N", help="also in segments of this many rows"
    )
    parser.add_argument("--master")
    parser.add_argument("--full", type=int, metavar="SIZE", help="keep payloads of this size, and hash them again")
    parser.add_argument("--no-duckdb", action="store_true", help="Spark alone")
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="seqcast-bench-"))
    try:
        large, smalls = top / "large", [top / f"small-{rows}" for rows in arguments.small_rows]
        write_apart(arguments, large, arguments.segment_rows)
        written = [write_apart(arguments, *each) for each in zip(smalls, arguments.small_rows, strict=True)]
        several = []
        if smalls:
            several = [top / "together"]
            written.append(write_apart(arguments, *several, arguments.small_rows[-1], TOGETHER_ROWS))
        told = {"what": "audit", "members": arguments.members, **by_spark(arguments, large, [*smalls, *several])}
        for run, cpu_s in zip(told["small"], written, strict=True):
            run["write_cpu_s"] = round(cpu_s, 2)
        if several:
            told["together"] = told["small"].pop()
        if not arguments.no_duckdb:
            told["duckdb"] = by_duckdb(large)
            cpu_s = told["duckdb"]["cpu_s_all"]
            told["ratio"] = round(told["cpu_s"][1] / cpu_s, 2)
            if smalls:
                told["small"][0]["duckdb_ratio"] = round(by_duckdb(smalls[0])["cpu_s_all"] / cpu_s, 2)
        print(json.dumps(told))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
