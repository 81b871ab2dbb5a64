"""The cost of journaling for the member; `spark_audit.py` measures the audit.

    python bench/journal_bench.py [--size 1024] [--messages 2000000] [--payload hash|full]

One member's journal gets batches of about 1 MB, as delivery gives them, and the benchmark measures the caller's time in
``batch`` while nothing waits, and the writer's from the first batch to the last byte handed to the system (not to the
disk: the journal does not wait for it). CPU time is of the whole process, and so holds on a busy machine too; rolling
to Parquet, which takes little of a processor meanwhile, is measured afterwards. The network is not measured.
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
from seqcast.types import View

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


def batches(of: View, size: int, messages: int, most: int = 1 << 60) -> list[Delivered]:
    """Batches of about 1 MB, or of ``most`` messages."""
    count = max(PACKET, min(most, (1 << 20) // max(size, 16)) // PACKET * PACKET)
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
    target = roll([copy], manifest)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="bytes a message")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--payload", choices=("hash", "full"), default="hash")
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="seqcast-bench-"))
    try:
        print(json.dumps(write(arguments, top)))
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
