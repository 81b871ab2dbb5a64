"""The results that ``make bench-pipeline`` draws from its runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from benches import bench_of
from project import ROOT

pipeline = bench_of("pipeline")

OPTIONS = argparse.Namespace(
    rows=1000, rate=500, stream_s=8.0, pairs=3, seconds=1.0, limit_s=60.0, more_rows=(10**7, 10**8, 3 * 10**8)
)
RUN = {"cpu_s": [8.6, 2.0], "seconds": [5.0, 1.5], "mrows_per_s": 6.67}
TABLE = {"mrows_per_s": 3.5, "cpu_us_per_row": 0.4}
FLOOR = {"mrows_per_s": 4.25, "cpu_us_per_row": 0.3}
STREAM = {
    "batches": 60, "p50_ms": 291.4, "p99_ms": 407.5, "p99_ms_worst": 470.0,
    "phases_ms": {"triggerExecution": 280, "addBatch": 150, "walCommit": 40, "commitOffsets": 50},
}  # fmt: skip
SMALL = {**RUN, "cpu_ms_per_file": 0.5, "write_cpu_s": 6.0}
FOUND = {
    "delivery": {
        "journal_free_msgs_per_s": 10_000_000.0, "delivered_msgs_per_s": 4_100_000.0, "journal_ratio": 0.41,
        "journal_missing": 0,
    },
    "journal": {"caller_ns_per_message": 21.5, "writer_messages_per_s": 5_200_000},
    "audit": {
        **RUN, "rows": 10_000_000, "members": 4, "segments": 12, "files": 12, "ratio": 0.14,
        "peak_mb": {"driver": 130, "jvm": 600, "worker": 180},
        "small": [
            {**SMALL, "segments": 612, "files": 612, "ratio": 1.15, "duckdb_ratio": 1.25, "as_rows": 2500},
            {**SMALL, "segments": 10_012, "files": 10_012, "ratio": 3.5, "as_rows": 2400},
        ],
        "together": {**SMALL, "segments": 10_012, "files": 160, "ratio": 1.08, "write_cpu_s": 1.5},
        "duckdb": {
            "version": "2.0.0", "cpu_s_all": 14.1, "seconds": {"gaps": 3.0, "fifo": 5.0},
            "cpu_s": {"gaps": 9.5, "fifo": 4.0, "fingerprints": 0.6},
        },
    },
    "source": {
        "rows": 3_000_000, "size": 100, "few": "sender,payload", "table": {**TABLE, "floor": FLOOR},
        "five": {**TABLE, "mrows_per_s": 3.75, "floor": FLOOR},
        "backlog": {**TABLE, "steady_mrows_per_s": 1.5, "floor": {**FLOOR, "steady_mrows_per_s": 2.25}},
        "stream": {"sent_per_s": 99_871, **STREAM, "floor": {**STREAM, "p50_ms": 240.4}},
    },
}  # fmt: skip


def test_the_page_has_the_figures_of_every_part() -> None:
    commands = pipeline.parts(OPTIONS)
    found = {name: {**FOUND[name.split()[0]], "load_before": at / 10} for at, name in enumerate(commands)}
    found["delivery full 1024"] |= {"journal_ratio": 0.77, "journal_missing": 3}
    found["audit 100000000"] = {**FOUND["audit"], "rows": 10**8, "cpu_s": [9.0, 6.5], "load_before": 0}
    found["audit 300000000"] = {**FOUND["audit"], "rows": 3 * 10**8, "cpu_s": [18.0, 16.5], "load_before": 0}
    del found["audit 300000000"]["ratio"]  # without DuckDB
    text = pipeline.page({"machine": "2 cores", "rate": 100_000, "parts": found})
    assert "| hash | 64 | 10,000,000 | 4,100,000 | 0.41 | 0 | 22 | 5,200,000 |" in text
    assert "| full | 1,024 | 10,000,000 | 4,100,000 | 0.77 | 3 |" in text
    assert "| 12, by DuckDB 2.0.0 | 12 | | 14.1 | | | 8 | |" in text
    assert "9.5 for gaps, 4 for the order of each sender's messages, 0.6 for the fingerprints" in text
    assert "0.14 of DuckDB's CPU time. DuckDB takes 1.25 times as\nlong in 612 files" in text
    assert "| 12 | 12 | 8.6 | 2 | 1 |  | 1.5 | 6,670,000 |" in text
    assert "| 10,012 | 10,012 | 8.6 | 2 | 3.5 | 0.5 | 1.5 | 6,670,000 |" in text
    assert "Each of 10,012 files costs as much as 2,400 rows,\nand files of 24,000 rows" in text
    assert "| 10,012 | 160 | 8.6 | 2 | 1.08 | 0.5 |" in text and "together takes 0.25 of the CPU" in text
    assert "| 100,000,000 | 12 | 0 | 6.5 | 0.14 | 1.5 | 6,670,000 | 130 | 600 | 180 |" in text
    assert "| 300,000,000 | 12 | 0 | 16.5 |  | 1.5 |" in text
    assert "a million rows take 50 ms of CPU, and 10^9 rows 52 s" in text  # 2 s for 10^7, 16.5 s for 3 * 10^8
    assert "(`sender`, `payload`)" in text and "0 to 1.2" in text
    assert "| five columns | 3,750,000 | 0.4 | 4,250,000 | 0.3 |" in text
    assert "| backlog, after its first batch | 1,500,000 | | 2,250,000 | |" in text
    assert "| stream | 60 | 291 | 408 | 470 | 280 | 90 |" in text and "| floor | 60 | 240 |" in text


def test_the_page_in_the_documentation_is_made_from_the_figures_beside_it() -> None:
    figures = ROOT / "docs" / "pipeline.json"
    page = pipeline.page(json.loads(figures.read_text(encoding="utf-8")))
    assert page == figures.with_suffix(".md").read_text(encoding="utf-8")


def test_a_part_that_there_is_not_is_refused_before_the_page_is_made(tmp_path: Path) -> None:
    into = tmp_path / "pipeline.json"
    into.write_text('{"parts": {}}')
    options = argparse.Namespace(**{**vars(OPTIONS), "only": ["sauce"], "into": into})
    with pytest.raises(SystemExit, match=r"--only 'sauce': there is no such part; there are .*audit, .*source"):
        pipeline.measure(options)
    assert into.read_text() == '{"parts": {}}'


def test_every_part_is_an_existing_script() -> None:
    scripts = [command[1] for command in pipeline.parts(OPTIONS).values() if command[1] != "-m"]
    assert scripts and all(Path(script).is_file() for script in scripts)


def test_a_page_without_more_audits_leaves_their_table_out() -> None:
    options = argparse.Namespace(**{**vars(OPTIONS), "more_rows": ()})
    found = {name: {**FOUND[name.split()[0]], "load_before": 0} for name in pipeline.parts(options)}
    text = pipeline.page({"machine": "2 cores", "rate": 100_000, "parts": found})
    assert "More rows" not in text and "\n\n## The source" in text
