"""The command ``seqcast perf``: interleaved runs on each path, and their output."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from seqcast.errors import SeqcastError, without_code
from seqcast.perf import hosts, matrix, report
from seqcast.perf.arguments import parse as parse
from seqcast.perf.arguments import pinned, settings
from seqcast.perf.paths import Path, PathError, dropping, on_interface, open_path, why_no_namespaces
from seqcast.perf.processes import RunFailed, addressed
from seqcast.perf.runs import Latency, Load, bare_latency, bare_throughput, group_latency, group_throughput

NEEDS = ()
AGREE = 0.02
"""Between hosts: see ``Load``."""
KIND_NAMES = {"plain": "plain loops", "aio": "loops in asyncio"}
JOURNALED = {"hash": "hashes", "full": "whole payloads"}


def main(arguments: argparse.Namespace) -> int:
    """Runs ``seqcast perf`` with these arguments, which ``parse`` has checked.

    Returns:
        The exit status.
    """
    if not sys.platform.startswith("linux"):
        print("seqcast perf: needs Linux, because its baselines in plain C do", file=sys.stderr)
        return 2
    stop = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        if arguments.matrix:
            return of_matrix(arguments)
        results = measure(arguments)
    except PathError as error:
        print(f"seqcast perf: {error}", file=sys.stderr)
        return 2
    except SeqcastError as error:
        print(f"seqcast perf: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, stop)
    return shown(arguments, results)


def of_matrix(arguments: argparse.Namespace) -> int:
    """Runs each combination of ``--matrix`` that is not measured yet; returns the exit status."""
    rows = matrix.run(arguments, measure)
    if arguments.json:
        print(json.dumps(rows))
        return max(status(row["results"]) for row in rows)
    statuses = [shown(argparse.Namespace(**{**vars(arguments), **row["combination"]}), row["results"]) for row in rows]
    return max(statuses)


def shown(arguments: argparse.Namespace, results: list[dict[str, Any]]) -> int:
    """Prints figures; returns the exit status."""
    if arguments.json:
        print(json.dumps({**results[0], "other_paths": results[1:]}))
    else:
        print(heading(arguments, results[0]["machine"]))
        print(report.table(results))
        for host, places in results[0].get("dropped", {}).items():
            lost = ", ".join(f"{n:,} at the {place}" for place, n in places.items() if n)
            print(f"{host}: {results[0]['hosts'][host]}; {results[0]['nics'][host]}; dropped: {lost or 'nothing'}")
        for line in filter(None, map(report.throttled, results)):
            print(line)
        if between := results[0].get("dropped_between"):
            print(f"about {between:,} packets were repeated that no host has dropped: lost between the hosts, or late")
    return status(results)


def status(results: list[dict[str, Any]]) -> int:
    """1 if messages are missing."""
    faults = ("lost", "wrong", "journal_missing")
    return 1 if any(result.get(key) for result in results for key in faults) else 0


def heading(arguments: argparse.Namespace, machine: str) -> str:
    """The measurement and its place, in two lines."""
    if arguments.latency:
        cores = pinned(arguments)
        where = f"on cores {cores[0]} and {cores[1]}" if cores else "not pinned to cores"
        loops = {"aio": ", in asyncio", "c": ", in C"}.get(arguments.kind, "")
        members = "two members" if arguments.members == 2 else f"two of {arguments.members} members"
        rate = f" at {arguments.rate:,} messages/s" if arguments.rate else ""
        what = f"ping-pong{rate} between {members}{loops}, {arguments.size} bytes, {arguments.wait}, {where}"
    else:
        what = (
            f"{arguments.members} members, {arguments.senders} sending, messages of {arguments.size} bytes, "
            f"{arguments.seconds:g} s a run"
        )
        if arguments.kind != "batches":
            what += f", {KIND_NAMES[arguments.kind]}"
        if arguments.loss:
            what += f", {arguments.loss:g} % of datagrams dropped"
        if arguments.journal:
            what += f", journals of {JOURNALED[arguments.journal]} in {arguments.journal_folder}"
    medians = "one pair" if arguments.pairs == 1 else f"medians of {arguments.pairs} pairs (minimum to maximum)"
    return f"{what}, order {arguments.order}; {medians}\n{machine}\n"


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of each requested path; with ``both``, a path that cannot be created here says why."""
    if arguments.hosts:
        return [measure_path(arguments, across(arguments))]
    if arguments.interface is not None:
        return [measure_path(arguments, on_interface(arguments.interface, arguments.members))]
    names = ["loopback", "veth-segmented"] if arguments.path == "both" else [arguments.path]
    needs_namespaces = arguments.loss is not None or names != ["loopback"]
    reason = why_no_namespaces() if needs_namespaces else ""
    results = []
    for name in names:
        if reason and (name != "loopback" or arguments.loss is not None):
            if arguments.path != "both" or arguments.loss is not None:
                raise PathError(reason)
            results.append({"path": name, "unavailable": reason})
            continue
        with open_path(name, arguments.members, own_namespace=arguments.loss is not None) as path:
            results.append(measure_path(arguments, path))
    return results


def across(arguments: argparse.Namespace) -> Path:
    """The path between several hosts."""
    names = arguments.hosts.split(",")
    found = hosts.places(names, arguments.via, arguments.python, arguments.members, arguments.interface or "")
    return Path("hosts", addressed(found, anyway=arguments.anyway), 0, 1, False)


def measure_path(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The figures of one path, and the machine where they were measured, or those of its hosts."""
    measured = measure_latency if arguments.latency else measure_throughput
    return {**measured(arguments, path), "machine": hosts.machines(path.places) or report.machine()}


def measure_throughput(arguments: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Interleaved pairs of a group and its two baselines on one path; their figures."""
    plain = Load(
        arguments.members, arguments.senders, arguments.size, arguments.order, arguments.seconds,
        kind=arguments.kind, settings=settings(arguments),
        agree=AGREE if arguments.hosts and not arguments.anyway else 0.0,
    )  # fmt: skip
    load = replace(plain, journal=arguments.journal or "", journal_folder=arguments.journal_folder or "")
    burden = "loss" if arguments.loss is not None else "journal" if load.journal else ""
    raw: list[float] = []
    limit: list[float] = []
    baselines = True
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
        used = hosts.as_used(path, runs[-1]["path"]) if arguments.hosts else path
        try:
            for limited, rates, label in ((False, raw, "raw"), (True, limit, "limit")):
                rates.append(bare_throughput(used, load, limit=limited, window_bytes=window))
                progress(path, pair, arguments, label, rates[-1])
        except RunFailed as error:
            if not arguments.hosts:
                raise
            print(f"{without_code(error)}, so there is no baseline", file=sys.stderr)
            baselines = False
    result = {
        "members": arguments.members,
        "senders": arguments.senders,
        "size": arguments.size,
        "order": arguments.order,
        "kind": arguments.kind,
        "seconds": arguments.seconds,
        "path": path.name,
        **report.throughput(raw if baselines else [], limit if baselines else [], runs),
        **(report.across(runs) if arguments.hosts else {}),
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
    """Interleaved pairs of a group's ping-pong and the bare one on one path; in asyncio also the blocking one."""
    spin = arguments.wait == "spinning"
    cores = pinned(arguments)
    latency = Latency(
        arguments.size,
        arguments.order,
        arguments.rounds,
        spin,
        arguments.kind,
        cores,
        settings(arguments),
        arguments.members,
        arguments.rate,
    )
    raw, runs, recv = [], [], []
    for pair in range(1, arguments.pairs + 1):
        runs.append(group_latency(path, latency, cluster(path.name, pair)))
        progress(path, pair, arguments, "seqcast", runs[-1]["p50"])
        if arguments.kind == "aio":
            recv.append(group_latency(path, replace(latency, kind="plain"), cluster(f"{path.name}-recv", pair)))
            progress(path, pair, arguments, "the same without asyncio", recv[-1]["p50"])
        if not arguments.rate:
            raw.append(bare_latency(path, latency))
            progress(path, pair, arguments, "raw", raw[-1]["p50"])
    return {
        "members": arguments.members,
        "size": arguments.size,
        "order": arguments.order,
        "rounds": arguments.rounds,
        "kind": arguments.kind,
        "wait": arguments.wait,
        "rate": arguments.rate,
        "cores": list(latency.cores) if latency.cores else None,
        "path": path.name,
        **report.latency(raw, runs, recv),
    }


def cluster(name: str, pair: int) -> str:
    """A name for a run's group that no other run has."""
    return f"perf-{os.getpid()}-{name}-{pair}"


def progress(path: Path, pair: int, arguments: argparse.Namespace, what: str, value: float) -> None:
    """One line on standard error."""
    unit = "µs p50" if arguments.latency else "MB/s"
    number = f"{value:,.1f}" if arguments.latency else f"{value:,.0f}"
    print(f"{path.name}, pair {pair} of {arguments.pairs}: {what} {number} {unit}", file=sys.stderr, flush=True)
