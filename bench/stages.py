"""Where the CPU time of a packet goes, stage by stage, beside plain C: ``python bench/stages.py``.

    python bench/stages.py --pairs 5                 # writes docs/stages.md
    python bench/stages.py --sizes 1024 --into -     # prints the table of one size

One member sends arrays of messages as ``seqcast perf`` does, over loopback and in the order "fifo"; the others receive
batches. Each member is a process of its own, and the system says how much CPU time it used in the kernel and outside;
so does each process of the two baselines in plain C, in the same pair of runs. The cost of the engine, a copy and a CRC
of a packet is then measured in this process, on one thread, with engines that have no sockets. No such part explains
the rest of the time outside the kernel.

CPU time and not duration: with fewer cores than processes they take turns, and other load on the machine changes when a
process runs more than what it uses.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from test_kernels import RECEIVER, SENDER, engine

from seqcast._native import bare
from seqcast._native.engine import SendingArray
from seqcast.perf.messages import BATCH_BYTES
from seqcast.perf.paths import Path as NetPath
from seqcast.perf.paths import open_path
from seqcast.perf.report import machine
from seqcast.perf.runs import Load, bare_run, group_throughput

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEADER = 96
"""Bytes of a packet besides messages: header and the first offsets."""
GATHERED = 8
"""Packets that a receiver takes at once: as many as it lets accumulate under load (half a MiB)."""
ROUNDS, WARM = 24, 8
HUGE_BYTES_MIN = 8 << 20
"""NumPy asks the system for huge pages from a size below this; the memory of the engine is on them too."""
ROWS = (
    ("kernel, as in plain C", "sending and receiving the packets: system time of the baseline without a protocol"),
    (
        "kernel, beyond it",
        "acks, wake-ups, naps, and what colder buffers cost there; below zero where the baseline's sender, which "
        "yields while it waits for credit, spends more on that",
    ),
    ("copy", "messages into the send ring; out of the received packets into the batch"),
    ("CRC", "over the whole packet"),
    ("engine", "packing and framing; checks, receive ring, order, delivery queue, offsets of the batch"),
    ("rest", "Python, locks, clocks, and what the three stages above lose where other work empties the caches"),
)


# ---- parts, measured in this process -------------------------------------------------------------------------------


def cpu_ns(work: Callable[[], Any]) -> int:
    """CPU time that this thread needs for ``work``."""
    start = time.thread_time_ns()
    work()
    return time.thread_time_ns() - start


def each_ns(work: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """CPU time of ``work`` for one item: the least of several rounds over all."""

    def over_all() -> None:
        for item in items:
            work(item)

    return min(cpu_ns(over_all) for _ in range(9)) / len(items)


def slots(memory_bytes: int, bytes_each: int) -> list[Any]:
    """``bytes_each`` of each packet in memory of this size, on huge pages if the system has them."""
    memory = np.ones(max(memory_bytes, HUGE_BYTES_MIN), dtype=np.uint8)
    return [memory[at + HEADER : at + HEADER + bytes_each] for at in range(0, memory_bytes - 65535, 65536)]


def copy_ns(bytes_each: int, source_bytes: int, target_bytes: int) -> float:
    """A copy of ``bytes_each``, from place to place of memory of these sizes."""

    def timed(n: int) -> float:
        sources, targets = slots(source_bytes, n), slots(target_bytes, n)
        pairs = [(target, sources[i % len(sources)]) for i, target in enumerate(targets)]
        return each_ns(lambda pair: np.copyto(*pair), pairs)

    return timed(bytes_each) - timed(1)


def crc_ns(bytes_each: int, memory_bytes: int) -> float:
    """The CRC of ``bytes_each``."""
    return each_ns(bare.crc32c, slots(memory_bytes, bytes_each)) - each_ns(bare.crc32c, slots(memory_bytes, 1))


class Plain:
    """The necessary work on the bytes of packets, and nothing else, in memory like the engine's."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self.packets = [np.frombuffer(packet, dtype=np.uint8) for packet in packets]
        memory = np.zeros(HUGE_BYTES_MIN, dtype=np.uint8)
        places = [memory[i << 16 : (i << 16) + len(packet)] for i, packet in enumerate(packets)]
        self.received = list(zip(places, self.packets, strict=True))
        self.delivered = [(memory[HUGE_BYTES_MIN // 2 + (i << 16) :][: len(p)], p) for i, p in enumerate(places)]

    def send(self) -> None:
        """Copies and sums each."""
        for pair in self.received:
            np.copyto(*pair)
        for place, _ in self.received:
            bare.crc32c(place)

    def receive(self) -> None:
        """Copies each, as the call from Python does, and sums it; then copies all into a batch."""
        for place, packet in self.received:
            np.copyto(place, packet)
            bare.crc32c(place)
        for pair in self.delivered:
            np.copyto(*pair)


def engine_ns(size: int, packet_bytes: int) -> tuple[float, float]:
    """The cost of a packet beyond its copies and its CRC: in the sender's engine, in the receiver's."""
    sender = engine(SENDER, [RECEIVER, SENDER], packet=packet_bytes, deliver_own=False)
    receiver = engine(RECEIVER, [RECEIVER, SENDER], packet=packet_bytes)
    receiver.deliver()  # the marker of the view
    payloads = [bytes(size)] * max(1, GATHERED * (packet_bytes - HEADER) // (size + 4))
    rounds: list[tuple[float, float]] = []
    now = 1
    for _ in range(WARM + ROUNDS):
        now += 50_000_000  # acks are due
        array = SendingArray(sender, payloads)
        out: list[tuple[int, bytes, bytes]] = []
        sent = cpu_ns(array.step)
        assert array.sent == len(payloads), "the messages must fit the window"
        sent += cpu_ns(lambda out=out, now=now: out.extend(sender.transmit(now, runs_max=64)))
        sent -= cpu_ns(sender.lent)  # the copies that transmit made for Python
        packets = [datagram for _, _, datagram in out if len(datagram) > packet_bytes // 2]

        def receive(packets: list[bytes] = packets, now: int = now) -> None:
            for packet in packets:
                receiver.receive(packet, b"\x02", now)
            receiver.deliver(1 << 20, now)

        received = cpu_ns(receive)
        plain = Plain(packets)
        plain.receive()
        rounds.append(((sent - cpu_ns(plain.send)) / len(packets), (received - cpu_ns(plain.receive)) / len(packets)))
        receiver.tick(now + 40_000_000)
        for _, _, datagram in receiver.transmit(now + 40_000_000):
            sender.receive(datagram, b"\x01", now + 41_000_000, 1)
    sent_ns, received_ns = (max(0.0, statistics.median(side)) for side in zip(*rounds[WARM:], strict=True))
    return sent_ns, received_ns


def parts(size: int, packet_bytes: int, window_bytes: int) -> dict[str, tuple[float, float]]:
    """Copy, CRC and engine of a packet: at the sender, at a receiver; ns."""
    body = packet_bytes - HEADER
    crc = crc_ns(body, GATHERED << 16)
    copies = copy_ns(body, BATCH_BYTES, window_bytes), copy_ns(body, GATHERED << 16, GATHERED << 16)
    return {"copy": copies, "CRC": (crc, crc), "engine": engine_ns(size, packet_bytes)}


# ---- processes -----------------------------------------------------------------------------------------------------


def of_each(used: Sequence[Mapping[str, float]], sender: int, packets: float) -> list[dict[str, float]]:
    """CPU use for one packet: of the sender, and of a receiver on average."""
    others = [use for index, use in enumerate(used) if index != sender]
    return [
        {key: used[sender][key] / packets for key in used[sender]},
        {key: statistics.mean(use[key] for use in others) / packets for key in used[sender]},
    ]


def run_pair(path: NetPath, load: Load, number: int) -> dict[str, list[dict[str, float]]]:
    """One run of the group and of both baselines: by name, of the sender and of a receiver."""
    run = group_throughput(path, load, f"stages-{os.getpid()}-{number}")
    window = int(run["window_bytes"])
    pair = {"seqcast": of_each(run["used"], 1, run["packets"]), "window": [{"bytes": window}]}
    for name, limit in (("raw", False), ("limit", True)):
        done = bare_run(path, load, limit=limit, window_bytes=window)
        used = [{key: each[key] for key in ("user_s", "system_s", "waits")} for each in done]
        pair[name] = of_each(used, 0, done[0]["sent"] / path.packet_bytes)
    return pair


def measure(path: NetPath, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """The stages of one message size: medians over the pairs."""
    load = Load(members=options.members, senders=1, size=size, order="fifo", seconds=options.seconds)
    pairs = []
    for number in range(options.pairs):
        pairs.append(run_pair(path, load, number))
        print(f"{size} B: pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)

    def middle(name: str, side: int, *keys: str) -> float:
        return statistics.median(sum(pair[name][side][key] for key in keys) for pair in pairs)

    alone = parts(size, path.packet_bytes, int(middle("window", 0, "bytes")))
    result: dict[str, Any] = {"size": size, "packet_bytes": path.packet_bytes, "sides": []}
    for side in range(2):
        kernel = middle("raw", side, "system_s") * 1e9
        user = middle("seqcast", side, "user_s") * 1e9
        known = {name: ns[side] for name, ns in alone.items()}
        stages = {
            "kernel, as in plain C": kernel,
            "kernel, beyond it": middle("seqcast", side, "system_s") * 1e9 - kernel,
            **known,
            "rest": user - sum(known.values()),
        }
        result["sides"].append(
            {
                "stages": stages,
                "seqcast": sum(stages.values()),
                "raw": middle("raw", side, "user_s", "system_s") * 1e9,
                "limit": middle("limit", side, "user_s", "system_s") * 1e9,
                "waits": middle("seqcast", side, "waits"),
            }
        )
    return result


# ---- the page ------------------------------------------------------------------------------------------------------


def page(results: Sequence[Mapping[str, Any]], options: argparse.Namespace, load: float) -> str:
    """docs/stages.md. ``load`` is the average number of runnable threads before the runs."""
    lines = [
        "# Where the CPU time of a packet goes",
        "",
        f"Made by `python bench/stages.py --pairs {options.pairs}` on {machine()}; other work on it before: a "
        f"load average of {load:.1f}.",
        "",
        f"One sender and {options.members - 1} receivers, each in a process of its own, over loopback, in the order "
        "`fifo`, with arrays of messages. CPU time of the sender and of each receiver for one packet of "
        f"{results[0]['packet_bytes']:,} bytes, in ns; medians of {options.pairs} pairs of runs. The system says what "
        "each process used in the kernel and outside; copy, CRC and engine are measured alone, on one thread.",
        "",
    ]
    lines += [f"- *{name}*: {what}." for name, what in ROWS]
    lines += [
        "- *plain C*: the baseline without a protocol; *the limit*: the one with acks, CRC and copies.",
        "- *waits*: how often the process blocked, for one packet.",
        "",
        "| | " + " | ".join(f"{result['size']:,} B: sender | receiver" for result in results) + " |",
        "| --- |" + " ---: | ---: |" * len(results),
    ]

    def row(name: str, value: Callable[[Mapping[str, Any]], float], form: str = "{:,.0f}") -> str:
        cells = [form.format(value(side)) for result in results for side in result["sides"]]
        return f"| {name} | " + " | ".join(cells) + " |"

    lines += [row(name, lambda side, name=name: side["stages"][name]) for name, _ in ROWS]
    lines.append(row("**all**", lambda side: side["seqcast"]))
    lines.append(row("plain C", lambda side: side["raw"]))
    lines.append(row("the limit", lambda side: side["limit"]))
    lines.append(row("waits", lambda side: side["waits"], "{:.2f}"))
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and writes the page."""
    parser = argparse.ArgumentParser(description="the CPU time of a packet, stage by stage")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 8192], metavar="BYTES")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--into", default=str(DOCS / "stages.md"), metavar="FILE", help="-: print it (%(default)s)")
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    with open_path("loopback", options.members) as path:
        text = page([measure(path, size, options) for size in options.sizes], options, load)
    if options.into == "-":
        print(text, end="")
    else:
        Path(options.into).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
