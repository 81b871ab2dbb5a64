"""The command ``seqcast perf``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from seqcast.commandline import Parser, whole
from seqcast.config import PARTITIONS, PRESETS
from seqcast.errors import SeqcastError
from seqcast.journal.schema import PAYLOAD_MODES
from seqcast.perf import report
from seqcast.perf.messages import SIZE_MIN
from seqcast.perf.paths import PATHS, Path, PathError, dropping, open_path, why_no_namespaces
from seqcast.perf.runs import Latency, Load, bare_latency, bare_throughput, group_latency, group_throughput
from seqcast.types import ORDERS

MEMBERS_MAX = 64
JOURNALED = {"hash": "hashes", "full": "whole payloads"}

DESCRIPTION = """throughput and latency, beside the raw limit measured in the same run

Starts the members as processes of their own. Each pair of runs has a seqcast group and two bare C baselines with the
same packets on the same path: "raw" has no protocol but a free credit in shared memory; "limit" has the same credit
window and acks, a CRC32C on both sides, one copy in and one copy out. Figures are medians over the pairs, with the
least and the most beside them. Both a path inside one kernel and, where network namespaces can be made, one on which
each packet is segmented are measured, so that nobody takes the one for the other.
"""

EPILOG = """exit status: 0; 1 when a message was lost, doubled or out of order, a member failed, or it was
interrupted, or a message is missing in a journal; 2 for bad input

figures of --json:
  sent_msgs_per_s, delivered_msgs_per_s (per receiver, the slowest, until its last message), delivered_mb_per_s,
  lost (by all receivers, all runs), retransmitted_packets, cpu_us_per_msg (of all members, per message sent),
  rss_mb (of the largest member, after the run), raw_mb_per_s, limit_mb_per_s (whole packets), ratio_to_raw,
  ratio_to_limit, spread (least and most of each); with --loss also loss_free_msgs_per_s and ratio_to_loss_free;
  with --journal journal_free_msgs_per_s, journal_ratio and journal_missing (delivered, and not in a journal);
  with --latency latency_us and raw_latency_us (p50, p99, p999 of half the round trip);
  other_paths: the same figures on the other paths
"""


def main(argv: Sequence[str]) -> int:
    """Runs ``seqcast perf`` with these arguments.

    Returns:
        The exit status.
    """
    arguments = parse(argv)
    if not sys.platform.startswith("linux"):
        print("seqcast perf: needs Linux, as the bare C baselines do that it compares with", file=sys.stderr)
        return 2
    stop = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        results = measure(arguments)
    except PathError as error:
        print(f"seqcast perf: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("seqcast perf: interrupted; all members have left", file=sys.stderr)
        return 1
    except SeqcastError as error:
        print(f"seqcast perf: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, stop)
    if arguments.json:
        print(json.dumps({**results[0], "other_paths": results[1:]}))
    else:
        print(heading(arguments))
        print(report.table(results))
    faults = ("lost", "wrong", "journal_missing")
    return 1 if any(result.get(key) for result in results for key in faults) else 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; ends the process with status 2 where they cannot be right."""
    parser = Parser("perf", DESCRIPTION, EPILOG)
    parser.add_argument("--members", type=int, default=4, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--senders", type=int, default=1, metavar="N", help="how many of them send (%(default)s)")
    parser.add_argument("--size", type=int, metavar="BYTES", help="of a message (1024; with --latency 64)")
    parser.add_argument("--order", choices=ORDERS, default="fifo", help="order of delivery (%(default)s)")
    parser.add_argument("--port", type=port, metavar="N", help="UDP port of the groups (47310)")
    parser.add_argument("--preset", choices=PRESETS, help="what the times are made for (lan)")
    parser.add_argument("--partition", choices=PARTITIONS, help="what becomes of a group that falls apart (merge)")
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="each run sends so long (%(default)g)")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="runs of each kind, in turn (%(default)s)")
    parser.add_argument(
        "--path", choices=("both", *PATHS), default="both", help="both: loopback and, where possible, veth-segmented"
    )
    parser.add_argument(
        "--loss", type=float, metavar="PERCENT", help="drop this share of datagrams in the kernel, after a run without"
    )
    parser.add_argument(
        "--journal",
        choices=PAYLOAD_MODES,
        help="all members journal what they are delivered, after a run without: payloads too (full), or their hashes; "
        "the journals are counted and removed after each run",
    )
    parser.add_argument(
        "--journal-folder", metavar="FOLDER", help="where the journals are made (where temporary files are)"
    )
    parser.add_argument("--latency", action="store_true", help="a ping-pong of two members instead")
    parser.add_argument("--rounds", type=int, metavar="N", help="round trips of a ping-pong (5000 a second)")
    parser.add_argument(
        "--wait", choices=("blocking", "spinning"), default="blocking", help="how a ping-pong waits (%(default)s)"
    )
    parser.add_argument(
        "--cores",
        choices=("same", "different", "any"),
        default="different",
        help="on which cores the two sides of a ping-pong run; any: as the kernel likes (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    check(parser, arguments)
    return arguments


def check(parser: Parser, arguments: argparse.Namespace) -> None:
    """Refuses what cannot be right, and fills in the defaults that depend on another option."""
    from seqcast.config import Config

    if arguments.size is None:
        arguments.size = 64 if arguments.latency else 1024
    size_max = 65000 if arguments.latency else Config().message_bytes_max
    if not SIZE_MIN <= arguments.size <= size_max:
        parser.error(f"--size must be from {SIZE_MIN} to {size_max} bytes: a message carries its number")
    if arguments.latency:
        for name in ("members", "senders", "loss", "journal"):
            if getattr(arguments, name) != parser.get_default(name):
                parser.error(f"--latency is a ping-pong of two members: leave --{name} out")
        arguments.members = 2
        if arguments.rounds is None:
            arguments.rounds = max(1, int(arguments.seconds * 5000))
        if not 1 <= arguments.rounds <= 10_000_000:
            parser.error("--rounds must be from 1 to 10000000")
        cores = usable_cores()
        if arguments.wait == "spinning" and (len(cores) < 2 or arguments.cores == "same"):
            parser.error("--wait spinning needs a core for each side")
        if arguments.cores == "different" and len(cores) < 2:
            parser.error("there is only one core here: give --cores same")
    elif arguments.rounds is not None:
        parser.error("--rounds goes with --latency")
    if not 2 <= arguments.members <= MEMBERS_MAX:
        parser.error(f"--members must be from 2 to {MEMBERS_MAX}")
    if not 1 <= arguments.senders <= arguments.members:
        parser.error("--senders must be from 1 to the number of members")
    if not 0.05 <= arguments.seconds <= 3600:
        parser.error("--seconds must be from 0.05 to 3600")
    if not 1 <= arguments.pairs <= 1000:
        parser.error("--pairs must be from 1 to 1000")
    if arguments.loss is not None and not 0 < arguments.loss <= 50:
        parser.error("--loss must be more than 0 and at most 50 percent")
    check_journal(parser, arguments)


def check_journal(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """The same of the options of journals."""
    if arguments.journal is None:
        if arguments.journal_folder is not None:
            parser.error("--journal-folder goes with --journal")
        return
    if arguments.loss is not None:
        parser.error("--journal and --loss are measured one at a time")
    if importlib.util.find_spec("pyarrow") is None:
        parser.error("--journal needs pyarrow: pip install 'seqcast[journal]'")
    arguments.journal_folder = arguments.journal_folder or tempfile.gettempdir()
    if not os.access(arguments.journal_folder, os.W_OK | os.X_OK) or not os.path.isdir(arguments.journal_folder):
        parser.error(f"--journal-folder {arguments.journal_folder}: no folder that can be written to; name another")


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def heading(arguments: argparse.Namespace) -> str:
    """What the figures are of, in a line or two."""
    if arguments.latency:
        cores = pinned(arguments)
        where = f"on cores {cores[0]} and {cores[1]}" if cores else "not pinned to cores"
        what = f"ping-pong of two members, {arguments.size} bytes, {arguments.wait}, {where}"
    else:
        what = (
            f"{arguments.members} members, {arguments.senders} sending, messages of {arguments.size} bytes, "
            f"{arguments.seconds:g} s a run"
        )
        if arguments.loss:
            what += f", {arguments.loss:g} % of datagrams dropped"
        if arguments.journal:
            what += f", journals of {JOURNALED[arguments.journal]} in {arguments.journal_folder}"
    return f"{what}, order {arguments.order}; medians of {arguments.pairs} pairs (least to most)\n{report.machine()}\n"


def pinned(arguments: argparse.Namespace) -> tuple[int, int] | None:
    """The cores of the two sides of a ping-pong."""
    cores = usable_cores()
    if arguments.cores == "any" or not hasattr(os, "sched_setaffinity"):
        return None
    return cores[0], cores[0] if arguments.cores == "same" else cores[1]


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of each path that was asked for; of ``both`` what cannot be made here says why."""
    names = ["loopback", "veth-segmented"] if arguments.path == "both" else [arguments.path]
    needs_namespaces = arguments.loss is not None or names != ["loopback"]
    reason = why_no_namespaces() if needs_namespaces else ""
    measure_path = measure_latency if arguments.latency else measure_throughput
    results = []
    for name in names:
        if reason and (name != "loopback" or arguments.loss is not None):
            if arguments.path != "both" or arguments.loss is not None:
                raise PathError(reason)
            results.append({"path": name, "unavailable": reason})
            continue
        with open_path(name, arguments.members, own_namespace=arguments.loss is not None) as path:
            results.append({**measure_path(arguments, path), "machine": report.machine()})
    return results


def measure_throughput(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Interleaved pairs of a group and its two baselines on one path."""
    plain = Load(
        arguments.members, arguments.senders, arguments.size, arguments.order, arguments.seconds,
        settings=settings(arguments),
    )  # fmt: skip
    load = replace(plain, journal=arguments.journal or "", journal_folder=arguments.journal_folder or "")
    burden = "loss" if arguments.loss is not None else "journal" if load.journal else ""
    raw: list[float] = []
    limit: list[float] = []
    runs, without = [], []
    for pair in range(1, arguments.pairs + 1):
        with ExitStack() as stack:
            if burden:
                without.append(group_throughput(path, plain, cluster(f"{path.name}-plain", pair)))
                progress(path, pair, arguments, f"seqcast without {burden}", without[-1]["delivered_mb_per_s"])
            if arguments.loss is not None:
                stack.enter_context(dropping(path.places, arguments.loss))
            runs.append(group_throughput(path, load, cluster(path.name, pair)))
        progress(path, pair, arguments, "seqcast", runs[-1]["delivered_mb_per_s"])
        window = int(runs[-1]["window_bytes"])
        for limited, rates, label in ((False, raw, "raw"), (True, limit, "limit")):
            rates.append(bare_throughput(path, load, limit=limited, window_bytes=window))
            progress(path, pair, arguments, label, rates[-1])
    result = {
        "members": arguments.members,
        "senders": arguments.senders,
        "size": arguments.size,
        "order": arguments.order,
        "seconds": arguments.seconds,
        "path": path.name,
        **report.throughput(raw, limit, runs),
    }
    if burden:
        ratio = "ratio_to_loss_free" if burden == "loss" else "journal_ratio"
        compared = report.beside(f"{burden}_free_msgs_per_s", ratio, without, runs)
        result |= {**compared, "spread": result["spread"] | compared["spread"]}
        for key in ("lost", "wrong"):
            result[key] += sum(int(run[key]) for run in without)
    if arguments.loss is not None:
        result["loss_percent"] = arguments.loss
    if load.journal:
        result |= {"journal": load.journal, "journal_missing": sum(int(run["journal_missing"]) for run in runs)}
    return result


def measure_latency(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Interleaved pairs of a group's ping-pong and the bare one on one path."""
    spin = arguments.wait == "spinning"
    cores = pinned(arguments)
    latency = Latency(arguments.size, arguments.order, arguments.rounds, spin, cores, settings(arguments))
    raw, runs = [], []
    for pair in range(1, arguments.pairs + 1):
        runs.append(group_latency(path, latency, cluster(path.name, pair)))
        progress(path, pair, arguments, "seqcast", runs[-1]["p50"])
        raw.append(bare_latency(path, latency))
        progress(path, pair, arguments, "raw", raw[-1]["p50"])
    return {
        "members": 2,
        "size": arguments.size,
        "order": arguments.order,
        "rounds": arguments.rounds,
        "wait": arguments.wait,
        "cores": list(latency.cores) if latency.cores else None,
        "path": path.name,
        **report.latency(raw, runs),
    }


def port(text: str) -> int:
    """An argument that is a port whose next one is a port too."""
    return whole(text, 1, 65534)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those of the members that were given."""
    return {name: value for name in ("port", "preset", "partition") if (value := getattr(arguments, name)) is not None}


def cluster(name: str, pair: int) -> str:
    """The name of a run's group, which no other run has."""
    return f"perf-{os.getpid()}-{name}-{pair}"


def progress(path: Path, pair: int, arguments: argparse.Namespace, what: str, value: float) -> None:
    """One line on standard error."""
    unit = "µs p50" if arguments.latency else "MB/s"
    number = f"{value:,.1f}" if arguments.latency else f"{value:,.0f}"
    print(f"{path.name}, pair {pair} of {arguments.pairs}: {what} {number} {unit}", file=sys.stderr, flush=True)
