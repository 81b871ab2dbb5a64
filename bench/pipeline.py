"""The cost of journals, and of Spark's work on them, on one page: ``make bench-pipeline``.

    python bench/pipeline.py                                 # 25 minutes; writes docs/pipeline.json and .md
    python bench/pipeline.py --only audit                    # these parts again; the others stay as they were
    python bench/pipeline.py --rows 200000 --more-rows --rate 10000 --stream-s 8 --pairs 1 --seconds 0.3 \\
        --into /tmp/pipeline.json                            # a small page, without the larger audits

It runs, one after the other, each with both sides of its comparison in one run:

- ``seqcast perf --journal``: delivery with a journal and without, in turn;
- ``bench/journal_bench.py``: the journal alone;
- ``bench/spark_audit.py``: the audit, beside DuckDB doing the same checks; in small segments too, and of more rows;
- ``bench/spark_stream.py``: the source as a table, as a backlog, and the latency of a stream at a rate.

Nothing else should run meanwhile: the page has the load of the machine before each part. Needs
``pip install 'seqcast[spark,bench]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from seqcast.perf.report import machine

BENCH = Path(__file__).resolve().parent
DOCS = BENCH.parent / "docs"
SIZES = (64, 1024)
SMALL_ROWS = (49_140, 4_980, 960)
"""Rows of small segments: 10 million rows are in about 200, 2,000 and 10,000 of them."""
MORE_ROWS = (10_000_000, 30_000_000, 100_000_000)
DUCKDB_ROWS_MAX = 100_000_000
"""DuckDB sorts all rows, and from here on takes longer than the rest of the page together."""


def parts(options: argparse.Namespace) -> dict[str, list[str]]:
    """Name -> command; its last line of output is one JSON object."""
    rows, rate = str(options.rows), str(options.rate)
    perf = [sys.executable, "-m", "seqcast", "perf", "--json", "--path", "loopback", "--pairs", str(options.pairs)]
    found = {}
    for size in SIZES:
        for kept in ("hash", "full"):
            run = ["--size", str(size), "--journal", kept, "--seconds", str(options.seconds)]
            found[f"delivery {kept} {size}"] = [*perf, *run]
            alone = ["--size", str(size), "--payload", kept, "--messages", str(options.rows // 5)]
            found[f"journal {kept} {size}"] = [sys.executable, str(BENCH / "journal_bench.py"), *alone]
    audit = [sys.executable, str(BENCH / "spark_audit.py"), "--rows"]
    found["audit"] = [*audit, rows, "--small-rows", *map(str, SMALL_ROWS)]
    for more in options.more_rows:
        found[f"audit {more}"] = [*audit, str(more), *(["--no-duckdb"] if more > DUCKDB_ROWS_MAX else [])]
    found["source"] = [
        sys.executable, str(BENCH / "spark_stream.py"), "--rows", rows, "--rate", rate,
        "--seconds", str(options.stream_s),
    ]  # fmt: skip
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {"parts": {}}
    if options.only:
        results = json.loads(options.into.read_text(encoding="utf-8"))
    results["machine"] = machine()
    commands = parts(options)
    if unknown := [each for each in options.only or () if not any(name.startswith(each) for name in commands)]:
        raise SystemExit(f"--only {unknown[0]!r}: there is no such part; there are {', '.join(commands)}")
    for name, command in commands.items():
        if not name.startswith(tuple(options.only or [""])):
            continue
        load, begin = os.getloadavg()[0], time.monotonic()
        print(f"{name}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=options.limit_s)
        if done.returncode != 0:
            raise SystemExit(f"{name} ended with status {done.returncode}")
        told = json.loads(done.stdout.splitlines()[-1])
        took = round(time.monotonic() - begin, 1)
        if name == "source":
            results["rate"] = options.rate
        results["parts"][name] = {**told, "load_before": round(load, 2), "took_s": took}
        # After each part: a later one may fail.
        options.into.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    return results


def rate(run: dict[str, Any], name: str = "mrows_per_s") -> float:
    """Rows per second."""
    return float(run[name]) * 1e6


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    found = results["parts"]
    audit, source = found["audit"], found["source"]
    duckdb, smalls, stream = audit["duckdb"], audit["small"], source["stream"]
    some, most, together = smalls[0], smalls[-1], audit["together"]
    columns = ", ".join(f"`{name}`" for name in source["few"].split(","))
    loads = [part["load_before"] for part in found.values()]
    lines = [
        "# Journals and Spark, measured",
        "",
        f"Made by `make bench-pipeline` on {results['machine']}. Load of the machine before the parts: {min(loads):g} "
        f"to {max(loads):g}.",
        "",
        "## What a journal costs delivery",
        "",
        "Four members, one of which sends; every member journals its deliveries. Runs with a journal and without",
        "alternate. `alone`: the journal without a group, nanoseconds of the calling thread a message,",
        "and messages/s that it writes.",
        "",
        "| kept | bytes | messages/s without | with | ratio | missing | alone, ns | alone, messages/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        for kept in ("hash", "full"):
            run, alone = found[f"delivery {kept} {size}"], found[f"journal {kept} {size}"]
            lines.append(
                f"| {kept} | {size:,} | {run['journal_free_msgs_per_s']:,.0f} | {run['delivered_msgs_per_s']:,.0f} | "
                f"{run['journal_ratio']:.2f} | {run['journal_missing']:,} | {alone['caller_ns_per_message']:,.0f} | "
                f"{alone['writer_messages_per_s']:,} |"
            )
    lines += [
        "",
        "## The audit",
        "",
        f"{audit['rows']:,} rows of {audit['members']} members, in segments of a million rows, and in small ones, each",
        "of them a file; the smallest also as journals keep them, rolled together.",
        "CPU seconds of all processes; the second audit of a session does not include Java's warm-up.",
        "",
        "| segments | files | CPU s, first | CPU s, second | of that in few | ms a file | seconds, second | rows/s |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {run['segments']:,} | {run['files']:,} | {run['cpu_s'][0]:g} | {run['cpu_s'][1]:g} | "
            f"{run['ratio']:g} | {max(0, run.get('cpu_ms_per_file', 0)) or ''} | {run['seconds'][1]:g} | "
            f"{run['mrows_per_s'] * 1e6:,.0f} |"
            for run in ({**audit, "ratio": 1}, *smalls, together)
        ),
        f"| {audit['segments']:,}, by DuckDB {duckdb['version']} | {audit['files']:,} | | "
        f"{duckdb['cpu_s_all']:g} | | | {sum(duckdb['seconds'].values()):.2g} | |",
        "",
        f"DuckDB's CPU seconds are {duckdb['cpu_s']['gaps']:g} for gaps, {duckdb['cpu_s']['fifo']:g} for the order of "
        f"each sender's messages, {duckdb['cpu_s']['fingerprints']:g} for the fingerprints.",
        f"The audit takes {audit['ratio']:g} of DuckDB's CPU time. DuckDB takes {some['duckdb_ratio']:g} times as",
        f"long in {some['files']:,} files. Each of {most['files']:,} files costs as much as {most['as_rows']:,} rows,",
        f"and files of {10 * most['as_rows']:,} rows or more cost a tenth at most, whatever their number.",
        "Writing segments and rolling them together takes "
        f"{together['write_cpu_s'] / most['write_cpu_s']:.2f} of the CPU time of writing a file for each.",
        "",
        *scale([run for name, run in found.items() if name.startswith("audit ")]),
        "## The source",
        "",
        f"{source['rows']:,} rows of {source['size']} bytes into Spark's noop sink: as a table of all columns, of five",
        f"({columns}), and as a backlog of these, read by a stream in batches of a million. `floor`",
        "is the cost of Spark itself: a source that reads nothing and gives out batches that it made before.",
        "",
        "| | rows/s | CPU µs a row | floor, rows/s | floor, CPU µs a row |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {rate(source[key]):,.0f} | {source[key]['cpu_us_per_row']:g} | "
            f"{rate(source[key]['floor']):,.0f} | {source[key]['floor']['cpu_us_per_row']:g} |"
            for name, key in (("all columns", "table"), ("five columns", "five"), ("backlog", "backlog"))
        ),
        f"| backlog, after its first batch | {rate(source['backlog'], 'steady_mrows_per_s'):,.0f} | | "
        f"{rate(source['backlog']['floor'], 'steady_mrows_per_s'):,.0f} | |",
        "",
        f"Then a stream of them at {results['rate']:,} messages/s (sent: {stream['sent_per_s']:,}), from a member's",
        "send to a sink's task, without the first third of the micro-batches. The clock generates the floor's rows.",
        "",
        "| | micro-batches | p50, ms | p99, ms | worst p99, ms | micro-batch, ms | of it log and commit, ms |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {name} | {run['batches']} | {run['p50_ms']:.0f} | {run['p99_ms']:.0f} | {run['p99_ms_worst']:.0f} | "
            f"{run['phases_ms']['triggerExecution']} | "
            f"{run['phases_ms'].get('walCommit', 0) + run['phases_ms'].get('commitOffsets', 0)} |"
            for name, run in (("stream", stream), ("floor", stream["floor"]))
        ),
        "",
        "p50 and p99 are medians over the micro-batches.",
    ]
    return "\n".join(lines) + "\n"


def scale(runs: list[dict[str, Any]]) -> list[str]:
    """How the audit grows with the rows, and the line through its sizes; nothing of fewer than two."""
    runs = sorted(runs, key=lambda run: int(run["rows"]))
    if len(runs) < 2:
        return []
    few, many = runs[0], runs[-1]
    slope = (many["cpu_s"][1] - few["cpu_s"][1]) / max(1, many["rows"] - few["rows"])
    all_s = few["cpu_s"][1] + slope * (10**9 - few["rows"])
    return [
        "More rows (`--more-rows`), each number in a session of its own, and its second audit:",
        "",
        "| rows | segments | load | CPU s | of DuckDB's | seconds | rows/s | driver, MB | Java, MB | worker, MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {run['rows']:,} | {run['segments']} | {run['load_before']:g} | {run['cpu_s'][1]:g} | "
            f"{run.get('ratio', '')} | {run['seconds'][1]:g} | {rate(run):,.0f} | "
            f"{run['peak_mb']['driver']} | {run['peak_mb']['jvm']} | {run['peak_mb']['worker']} |"
            for run in runs
        ),
        "",
        f"On the line through the first and the last, a million rows take {slope * 1e9:.0f} ms of CPU, and 10^9 rows "
        f"{all_s:.0f} s.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the audit; others have a share (%(default)s)")
    parser.add_argument("--rate", type=int, default=100_000, help="messages/s of the stream (%(default)s)")
    parser.add_argument("--stream-s", type=float, default=30.0, help="length of the stream, seconds (%(default)g)")
    parser.add_argument("--pairs", type=int, default=3, help="runs with and without a journal (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each of these (%(default)g)")
    parser.add_argument("--limit-s", type=float, default=900.0, help="longest time of a part (%(default)g)")
    parser.add_argument(
        "--more-rows", type=int, nargs="*", default=MORE_ROWS, metavar="N",
        help="of more audits: two or more numbers, or none (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="PART", help="parts whose names begin so: audit, delivery, ...")
    parser.add_argument("--into", type=Path, default=DOCS / "pipeline.json", help="the page stands beside it")
    options = parser.parse_args()
    results = measure(options)
    options.into.with_suffix(".md").write_text(page(results), encoding="utf-8")
    print(options.into.with_suffix(".md"))


if __name__ == "__main__":
    main()
