"""Each order beside FIFO and the raw limit of the same run: ``make bench-order``.

    python bench/orders.py --pairs 10 --seconds 1            # writes docs/orders.json, .md and .svg
    python bench/orders.py --orders fifo records --sizes 1024 --pairs 3 --into orders.json

Four members, each a process of its own, send arrays of messages as ``seqcast perf`` does; the first to join is the
sequencer and does not send, unless all do. In a pair every order runs once, one after the other, with and without loss
(netfilter drops datagrams at each receiver; needs root), and then the two baselines in plain C; then comes the next
pair, so that a change of the machine's load meets all alike. Latency is half a round trip of two members, blocking.

The table (docs/orders.md) and the plot have medians over the pairs; a ratio is the median of the ratios of each pair,
and the interval beside it holds the true median with 95 % (from the ranks of the sorted values, with no assumption
about their distribution; with fewer than 6 pairs it is the range).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqcast.perf.paths import dropping, open_path, why_no_namespaces
from seqcast.perf.report import machine, shown
from seqcast.perf.runs import (
    Latency,
    Load,
    RunFailed,
    bare_latency,
    bare_throughput,
    group_latency,
    group_throughput,
)
from seqcast.types import ORDERS

DOCS = Path(__file__).resolve().parent.parent / "docs"
MEMBERS = 4
LATENCY_BYTES = 64


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All pairs; each list of a cell has one figure per pair."""
    cells: dict[tuple[Any, ...], list[float | None]] = {}
    reason = why_no_namespaces() if options.loss else ""
    if reason:
        print(f"not measured with loss: {reason}", file=sys.stderr, flush=True)
    losses = [0.0] if reason or not options.loss else [0.0, options.loss]
    for pair in range(options.pairs):
        for loss in losses:
            with open_path("loopback", MEMBERS, own_namespace=loss > 0) as path:
                for size in options.sizes:
                    for senders in options.senders:
                        throughput(options, path, loss, size, senders, pair, cells)
        with open_path("loopback", 2) as path:
            for order in [*options.orders, ""]:
                what = Latency(LATENCY_BYTES, order or "fifo", options.rounds, False, None)
                run = group_latency(path, what, name(pair)) if order else bare_latency(path, what)
                for percentile in ("p50", "p99"):
                    note(cells, (percentile, order or "raw"), run[percentile])
    return {
        "machine": machine(),
        "pairs": options.pairs,
        "seconds": options.seconds,
        "loss_percent": losses[-1],
        "orders": options.orders,
        "cells": [{"cell": list(key), "values": values} for key, values in cells.items()],
    }


def throughput(
    options: argparse.Namespace, path: Any, loss: float, size: int, senders: int, pair: int, cells: dict[Any, Any]
) -> None:
    """Every order once, and the baselines, which lose nothing."""
    with dropping(path.places, loss) if loss else nullcontext():
        for order in options.orders:
            load = Load(MEMBERS, senders, size, order, options.seconds)
            try:
                run = group_throughput(path, load, name(pair))
            except RunFailed as error:
                print(f"{order}, {size} bytes, {senders} sending: {error}", file=sys.stderr, flush=True)
                note(cells, ("rate", order, size, senders, loss), None)
                continue
            if run["lost"] or run["wrong"]:
                sys.exit(f"{order}, {size} bytes, {senders} sending: {run['lost']} lost, {run['wrong']} wrong")
            note(cells, ("rate", order, size, senders, loss), run["delivered_msgs_per_s"])
            window = int(run["window_bytes"])
            print(
                f"pair {pair + 1} of {options.pairs}: {order}, {size} bytes, {senders} sending, {loss:g} % loss: "
                f"{run['delivered_msgs_per_s']:,.0f} messages/s",
                file=sys.stderr,
                flush=True,
            )
    for limited in () if loss else (False, True):
        load = Load(MEMBERS, senders, size, "fifo", options.seconds)
        mb_per_s = bare_throughput(path, load, limit=limited, window_bytes=window)
        note(cells, ("rate", "limit" if limited else "raw", size, senders, loss), mb_per_s * 1e6 / size)


def note(cells: dict[Any, Any], key: tuple[Any, ...], value: float | None) -> None:
    """One more figure of a cell; None where the run failed."""
    cells.setdefault(key, []).append(None if value is None else round(value, 2))


def name(pair: int) -> str:
    """Of a group; no other run has it."""
    return f"orders-{os.getpid()}-{pair}"


@dataclass(frozen=True, slots=True)
class Median:
    """A median over the pairs, and the interval that holds the true one with 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{shown(self.value)} ({shown(self.low)} to {shown(self.high)})"


def median(values: Sequence[float]) -> Median:
    """Of at least one value; the interval lies between two of the sorted values (binomial distribution of ranks)."""
    ranked, n = sorted(values), len(values)
    outside, rank = 2 / 2**n, 0
    while outside + 2 * math.comb(n, rank + 1) / 2**n <= 0.05:
        rank += 1
        outside += 2 * math.comb(n, rank) / 2**n
    return Median(statistics.median(ranked), ranked[rank], ranked[n - 1 - rank])


def ratios(results: dict[str, Any]) -> dict[tuple[Any, ...], Median]:
    """(order, size, senders, loss): its rate as a share of FIFO's in the same pair and with the same loss."""
    rates = {tuple(c["cell"][1:]): c["values"] for c in results["cells"] if c["cell"][0] == "rate"}
    found = {}
    for (order, *column), values in rates.items():
        both = [(a, b) for a, b in zip(values, rates["fifo", *column], strict=True) if a and b] if column else []
        if order not in ("fifo", "raw", "limit") and both:
            found[order, *column] = median([a / b for a, b in both])
    return found


def page(results: dict[str, Any]) -> str:
    """docs/orders.md."""
    cells = {tuple(c["cell"]): [v for v in c["values"] if v is not None] for c in results["cells"]}
    shares = ratios(results)
    parts = [
        "# Orders measured",
        "Made by `make bench-order` (bench/orders.py) from docs/orders.json; do not edit.",
        f"Measured on {results['machine']}: {MEMBERS} members as processes, {results['pairs']} interleaved pairs of "
        f"{results['seconds']:g} s; medians, and in brackets the interval that holds the true median with 95 %. Ratios "
        "are those of each pair. *raw* is plain C without a protocol, *limit* plain C with acks, CRC and copies, each "
        "with one sender.",
        "![rates as a share of FIFO](orders.svg)",
    ]
    columns = sorted({key[2:] for key in cells if key[0] == "rate"}, key=lambda key: (key[2], key[1], key[0]))
    for loss in sorted({column[2] for column in columns}):
        parts.append(f"## With {loss:g} % of datagrams dropped" if loss else "## Throughput")
        rows = []
        for size, senders, of in columns:
            for order in [*results["orders"], "limit", "raw"]:
                if of == loss and (values := cells.get(("rate", order, size, senders, loss))):
                    free = cells.get(("rate", order, size, senders, 0.0), [])
                    beside = [a / b for a, b in zip(values, free, strict=False)] if loss else []
                    share = shares.get((order, size, senders, loss))
                    row = [f"{size:,} B", str(senders), f"`{order}`" if order in ORDERS else order]
                    row += [str(median(values)), str(share or "")]
                    rows.append([*row, str(median(beside)) if beside else ""] if loss else row)
        head = ["message", "sending", "order", "messages/s", "of fifo"] + (["of the rate without loss"] if loss else [])
        parts.append(table(head, rows))
    parts.append("## Latency")
    parts.append(f"Half a round trip of two members, {LATENCY_BYTES} bytes, blocking, µs.")
    rows = []
    for order in [*results["orders"], "raw"]:
        times = [cells.get((percentile, order), []) for percentile in ("p50", "p99")]
        if all(times):
            rows.append([f"`{order}`" if order in ORDERS else order, *(str(median(values)) for values in times)])
    parts.append(table(["order", "p50", "p99"], rows))
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def draw(results: dict[str, Any], into: Path) -> None:
    """The ratios to FIFO as bars with their intervals, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "seqcast"  # the same file from the same figures
    shares = ratios(results)
    columns = sorted({key[1:] for key in shares}, key=lambda key: (key[2], key[1], key[0]))
    orders = [order for order in results["orders"] if order != "fifo"]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(orders), 1)
    for at, order in enumerate(orders):
        bars = [(x + at * width, shares[order, *c]) for x, c in enumerate(columns) if (order, *c) in shares]
        errors = [[m.value - m.low for _, m in bars], [m.high - m.value for _, m in bars]]
        axes.bar([x for x, _ in bars], [m.value for _, m in bars], width, yerr=errors, label=order, capsize=2)
    axes.axhline(1, color="black", linewidth=0.8)
    labels = [
        f"{size:,} B\n{senders} sending" + (f"\n{loss:g} % loss" if loss else "") for size, senders, loss in columns
    ]
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(columns))], labels, fontsize=8)
    axes.set_ylabel("messages/s, as a share of fifo in the same pair")
    axes.legend(ncols=max(len(orders), 1), fontsize=8)
    figure.savefig(into, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", nargs="+", default=[order for order in ORDERS if order != "total"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 8192])
    parser.add_argument("--senders", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--loss", type=float, default=1.0, metavar="PERCENT", help="also with this loss; 0: without")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each run (1)")
    parser.add_argument("--rounds", type=int, default=3000, help="round trips of each latency run (3000)")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--into", type=Path, default=DOCS / "orders.json", help="file of the results")
    options = parser.parse_args()
    if "fifo" not in options.orders:
        parser.error("--orders must name fifo: it is what the others are compared with")
    results = measure(options)
    options.into.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")
    options.into.with_suffix(".md").write_text(page(results), encoding="utf-8")
    draw(results, options.into.with_suffix(".svg"))
    print(page(results))


if __name__ == "__main__":
    main()
