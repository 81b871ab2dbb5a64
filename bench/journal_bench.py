"""What journaling and the audit cost.

    python bench/journal_bench.py write [--size 1024] [--messages 2000000] [--payload hash|full]
    python bench/journal_bench.py audit [--rows 4000000] [--members 4] [--master local[*]] [--full SIZE]

``write`` gives one member's journal batches of about 1 MB, as delivery does, and measures the caller's time in
``batch`` while nothing waits, and the writer's from the first batch to the last byte handed to the system (not to the
disk: the journal does not wait for it). CPU time is of the whole process, so it holds on a busy machine too; rolling to
Parquet, which runs at the lowest priority beside it, is measured after it. ``audit`` writes sound journals and audits
them twice in one session; the second run is without the JVM's warming up. Neither measures the network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from journal_data import RUN_DTYPE, Delivered, member, view

from seqcast.journal.manifest import ManifestWriter
from seqcast.journal.roll import roll
from seqcast.journal.stream import SUMS_SUFFIX
from seqcast.journal.writer import JournalWriter
from seqcast.types import Member, View

PACKET = 60


def batch(of: View, size: int, count: int, first: int, data: Any) -> Delivered:
    """``count`` messages of ``size`` bytes, 60 a packet, senders in turn; global seqnos from ``first``."""
    offsets = np.arange(count + 1, dtype=np.int32) * size
    starts = np.arange(0, count, PACKET)
    runs = np.zeros(len(starts), RUN_DTYPE)
    packets = (first - 1) // PACKET + np.arange(len(starts))
    runs["sender"] = np.array([one.id for one in of.members], np.uint64)[packets % len(of.members)]
    runs["seqno"] = packets // len(of.members) + 1
    runs["global_seqno"] = first + starts
    runs["sent_ns"] = 1_700_000_000_000_000_000 + packets * 1000
    runs["first"] = starts
    runs["n"] = np.minimum(PACKET, count - starts)
    return Delivered(data, offsets, runs, of.view_id.tag, 1_700_000_000_000_000_000 + first * 20)


def batches(of: View, size: int, messages: int) -> list[Delivered]:
    count = max(PACKET, (1 << 20) // max(size, 16) // PACKET * PACKET)
    rng = np.random.default_rng(1)
    blocks = [rng.integers(0, 256, count * size, np.uint8) for _ in range(16)]  # more than the caches hold
    return [
        batch(of, size, min(count, messages - first), first + 1, blocks[first // count % len(blocks)])
        for first in range(0, messages, count)
    ]


def write(arguments: argparse.Namespace, top: Path) -> dict[str, Any]:
    who = [member("a"), member("b")]
    of = view(1, who)
    given = batches(of, arguments.size, arguments.messages)
    writer = JournalWriter(
        top, cluster="bench", member=who[0], payload=arguments.payload, queue_bytes=1 << 40,
        segment_rows=1 << 60, segment_bytes=1 << 60,
    )  # fmt: skip
    writer.view(of, time.time_ns())
    begin, cpu = time.perf_counter_ns(), time.process_time_ns()
    for one in given:
        writer.batch(one, of)
    called = time.perf_counter_ns()
    while writer.counters()["rows"] < arguments.messages:
        time.sleep(0.0005)
    end, cpu = time.perf_counter_ns(), time.process_time_ns() - cpu
    live = writer.path / "segment-000001.arrows"
    apart = writer.path.parent / "rolled"
    apart.mkdir()
    manifest = ManifestWriter(apart)
    manifest.start(1)
    copy = apart / live.name
    shutil.copy(live, copy)
    shutil.copy(live.with_suffix(SUMS_SUFFIX), copy.with_suffix(SUMS_SUFFIX))
    rolled, roll_cpu = time.perf_counter_ns(), time.process_time_ns()
    target = roll(copy, manifest)
    rolled, roll_cpu = time.perf_counter_ns() - rolled, time.process_time_ns() - roll_cpu
    n = arguments.messages
    return {
        "what": "write", "payload": arguments.payload, "size": arguments.size, "messages": n,
        "caller_ns_per_message": round((called - begin) / n, 2),
        "writer_ns_per_message": round((end - begin) / n, 1),
        "writer_cpu_ns_per_message": round(cpu / n, 1),
        "writer_messages_per_s": round(n / (end - begin) * 1e9),
        "payload_gb_per_s": round(n * arguments.size / (end - begin), 2),
        "roll_ns_per_message": round(rolled / n, 1),
        "roll_cpu_ns_per_message": round(roll_cpu / n, 1),
        "stream_bytes_per_message": round(live.stat().st_size / n, 1),
        "parquet_bytes_per_message": round(target.stat().st_size / n, 1),
    }  # fmt: skip


def audit(arguments: argparse.Namespace, top: Path) -> dict[str, Any]:
    from seqcast.spark import audit as audit_journals
    from seqcast.spark import open_session

    who: list[Member] = [member(chr(ord("a") + number)) for number in range(arguments.members)]
    of, last = view(1, who), view(2, who)
    each = arguments.rows // arguments.members
    given = batches(of, arguments.full or 64, each)
    for one in who:
        writer = JournalWriter(top, cluster="bench", member=one, payload="full" if arguments.full else "hash")
        writer.view(of, 1)
        for delivered in given:
            writer.batch(delivered, of)
        writer.view(last, 2)
        writer.close("leave")
    begin = time.perf_counter()
    spark = open_session(arguments.master)
    started = time.perf_counter() - begin
    try:
        runs = [audit_journals(spark, top).reports[0] for _ in range(2)]
    finally:
        spark.stop()
    return {
        "what": "audit", "rows": runs[0].rows, "members": arguments.members, "holds": runs[1].holds,
        "payload_bytes": arguments.full or 0, "session_s": round(started, 1),
        "seconds": [round(run.seconds, 2) for run in runs],
        "mrows_per_s": [round(run.rows / run.seconds / 1e6, 2) for run in runs],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("write")
    one.add_argument("--size", type=int, default=1024, help="bytes a message")
    one.add_argument("--messages", type=int, default=2_000_000)
    one.add_argument("--payload", choices=("hash", "full"), default="hash")
    one.set_defaults(run=write)
    one = commands.add_parser("audit")
    one.add_argument("--rows", type=int, default=4_000_000, help="of all members together")
    one.add_argument("--members", type=int, default=4)
    one.add_argument("--master")
    one.add_argument("--full", type=int, metavar="SIZE", help="keep payloads of this size, and hash them again")
    one.set_defaults(run=audit)
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="seqcast-bench-"))
    try:
        print(json.dumps(arguments.run(arguments, top)))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
