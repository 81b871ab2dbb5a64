"""Each order beside FIFO and the raw limit of the same run: ``make bench-order``.

    python bench/orders.py                                  # 12 minutes; writes docs/orders.json, .md and .png
    python bench/orders.py --orders fifo records --sizes 1024 --pairs 3 --kills 0 --into orders.json
    python bench/orders.py --only-kills --kills 2           # a minute; the other figures of the file stay
    python bench/orders.py --only-latency                   # the same, for as many pairs as the file has

Four members send arrays of messages as ``seqcast perf`` does; their processes stay for all runs of a pair on the same
path, as most of a short run would be their start. The first to join is the sequencer and does not send, unless all do.
In a pair every order runs once, one after the other, and another one begins in each pair; with and without loss
(netfilter drops datagrams at each receiver; needs root). Then follow the two baselines in plain C, then the next pair,
so that a change of load affects all alike. Latency is half a round trip of two members, blocking; a third one is the
sequencer. No pair begins that would not end in time; a run that fails has no figure, and the others continue. At the
end the sequencer of each order is killed a few times (bench/failover.py). The exit status is 1 if a message was lost or
wrong.

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
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import failover
from pages import table

from seqcast.perf.arguments import usable_cores
from seqcast.perf.paths import dropping, open_path, why_no_namespaces
from seqcast.perf.processes import Crew
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
PERCENTILES = ("p50", "p99")
RATES = {"records": (0.9, 0.85), "sequencer": (0.6, 0.6), "total-1999": (0.5, 0.5), "grant": (0.7, 0.7)}
"""Targets: the rate as a share of FIFO's, with one member that sends and with several."""
TIMES = {"p50": 2.2, "p99": 3.0}
"""Targets: the latency of a total order as a multiple of FIFO's."""
LOSSY = 0.5
"""Target: the rate with loss as a share of that without."""
LATENCY_MEMBERS = 3
"""A ping-pong of two, and the sequencer: if one of the two were the sequencer, no message would wait for its place."""
KILL_S = 4.5
"""A kill, with the start of its members, takes about this long."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All pairs; each list of a cell has one figure per pair."""
    cells: dict[tuple[Any, ...], list[float | None]] = {}
    losses = losses_of(options)
    wrong: list[str] = []
    begin = before = time.monotonic()
    until, longest, pairs = begin + 60 * options.minutes - KILL_S * options.kills * len(options.orders), 0.0, 0
    while pairs < options.pairs and (not pairs or before + longest < until):
        for loss in losses:
            with open_path("loopback", MEMBERS, own_namespace=loss > 0) as path, Crew() as crew:
                for size in options.sizes:
                    for senders in options.senders:
                        wrong += throughput(options, path, crew, Column(size, senders, loss), pairs, cells)
            latency(options, pairs, loss, cells)
        pairs += 1
        now = time.monotonic()
        longest, before = max(longest, now - before), now
        say(f"{pairs} of at most {options.pairs} pairs, {(now - begin) / 60:.1f} of {options.minutes:g} minutes")
    results = {
        "machine": machine(),
        "pairs": pairs,
        "seconds": options.seconds,
        "loss_percent": losses[-1],
        "orders": options.orders,
        "cells": listed(cells),
        "wrong": wrong,
    }
    if options.kills:
        results["failover"] = failover.measure(options.orders, options.kills)
    return results


def losses_of(options: argparse.Namespace) -> list[float]:
    """Percent of datagrams dropped: the loss of each measurement."""
    if reason := why_no_namespaces() if options.loss else "":
        say(f"not measured with loss: {reason}")
    return [0.0] if reason or not options.loss else [0.0, options.loss]


def listed(cells: dict[tuple[Any, ...], list[float | None]]) -> list[dict[str, Any]]:
    """The cells as the file has them."""
    return [{"cell": list(key), "values": values} for key, values in cells.items()]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the comparison: bytes of a message, members that send, percent of datagrams dropped."""

    size: int
    senders: int
    loss: float

    def __str__(self) -> str:
        return f"{self.size} bytes, {self.senders} sending, {self.loss:g} % loss"


def throughput(
    options: argparse.Namespace, path: Any, crew: Crew, at: Column, pair: int, cells: dict[Any, Any]
) -> list[str]:
    """Runs every order once, and the baselines, which lose nothing. Returns losses and faults."""
    wrong, window = [], 0
    with dropping(path.places, at.loss) if at.loss else nullcontext():
        first = pair % len(options.orders)
        for order in options.orders[first:] + options.orders[:first]:
            load = Load(MEMBERS, at.senders, at.size, order, options.seconds)
            try:
                run = group_throughput(path, load, f"{name(pair)}-{at.size}-{at.senders}-{order}", crew)
            except RunFailed as error:
                say(f"{order}, {at}: failed: {error}")
                note(cells, ("rate", order, *astuple(at)), None)
                continue
            if run["lost"] or run["wrong"]:
                wrong.append(f"{order}, {at}: {run['lost']} lost, {run['wrong']} wrong")
                say(wrong[-1])
            note(cells, ("rate", order, *astuple(at)), run["delivered_msgs_per_s"])
            window = int(run["window_bytes"])
            say(f"pair {pair + 1}: {order}, {at}: {run['delivered_msgs_per_s']:,.0f} messages/s")
    for limited in () if at.loss else (False, True):
        load = Load(MEMBERS, at.senders, at.size, "fifo", options.seconds)
        rate = None
        try:
            rate = bare_throughput(path, load, limit=limited, window_bytes=window) * 1e6 / at.size
        except RunFailed as error:
            say(f"bare C, {at}: failed: {error}")
        note(cells, ("rate", "limit" if limited else "raw", *astuple(at)), rate)
    return wrong


def latency(options: argparse.Namespace, pair: int, loss: float, cells: dict[Any, Any]) -> None:
    """Latency of every order once, and without loss of plain C, which repairs nothing."""
    cores = usable_cores()
    pinned = (cores[0], cores[1]) if len(cores) > 1 else None
    with (
        open_path("loopback", LATENCY_MEMBERS, own_namespace=loss > 0) as path,
        dropping(path.places, loss) if loss else nullcontext(),
    ):
        for order in [*options.orders, *([] if loss else [""])]:
            what = Latency(
                LATENCY_BYTES, order or "fifo", options.rounds, spin=False, kind="plain", cores=pinned,
                members=LATENCY_MEMBERS,
            )  # fmt: skip
            run: dict[str, float] = {}
            try:
                run = group_latency(path, what, name(pair)) if order else bare_latency(path, what)
            except RunFailed as error:
                say(f"{order or 'bare C'}, latency, {loss:g} % loss: failed: {error}")
            for percentile in PERCENTILES:
                note(cells, (percentile, order or "raw", loss), run.get(percentile))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def note(cells: dict[Any, Any], key: tuple[Any, ...], value: float | None) -> None:
    """Adds a figure to a cell; None if the run failed."""
    cells.setdefault(key, []).append(None if value is None else round(value, 2))


def name(pair: int) -> str:
    """A name for a group that no other run has."""
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
    """At least one value; the interval is between two of the sorted values (binomial distribution of ranks)."""
    ranked, n = sorted(values), len(values)
    outside, rank = 2 / 2**n, 0
    while outside + 2 * math.comb(n, rank + 1) / 2**n <= 0.05:
        rank += 1
        outside += 2 * math.comb(n, rank) / 2**n
    return Median(statistics.median(ranked), ranked[rank], ranked[n - 1 - rank])


def ratios(results: dict[str, Any]) -> dict[tuple[Any, ...], Median]:
    """(order, size, senders, loss): the rate as a share of FIFO's in the same pair and with the same loss."""
    rates = {tuple(c["cell"][1:]): c["values"] for c in results["cells"] if c["cell"][0] == "rate"}
    found = {}
    for (order, *column), values in rates.items():
        both = [(a, b) for a, b in zip(values, rates["fifo", *column], strict=True) if a and b] if column else []
        if order not in ("fifo", "raw", "limit") and both:
            found[order, *column] = median([a / b for a, b in both])
    return found


def latency_ratios(
    cells: dict[tuple[Any, ...], list[float | None]], percentile: str, order: str, loss: float
) -> list[float]:
    """The latency as a multiple of FIFO's, of each pair in which neither run failed; none if not measured."""
    if order in ("fifo", "raw") or (percentile, order, loss) not in cells:
        return []
    pairs = zip(cells[percentile, order, loss], cells[percentile, "fifo", loss], strict=True)
    return [time / fifo for time, fifo in pairs if time and fifo]


def with_loss(results: dict[str, Any], column: tuple[Any, ...], loss: float) -> list[float]:
    """The rate with loss as a share of that without, of each pair in which neither run failed."""
    rates = {tuple(c["cell"]): c["values"] for c in results["cells"]}
    pairs = zip(rates["rate", *column, loss], rates.get(("rate", *column, 0.0), []), strict=False)
    return [lossy / free for lossy, free in pairs if lossy and free]


def missed(results: dict[str, Any]) -> list[list[str]]:
    """The targets that the medians do not reach: the figure, the target, and the result."""
    rows = []
    for (order, size, senders, loss), share in ratios(results).items():
        target = RATES[order][senders > 1] if order in RATES and not loss else 0.0
        if share.value < target:
            rows.append([f"`{order}`, {size:,} B, {senders} sending: of fifo", f"at least {target:g}", str(share)])
    for order, size, senders, loss in (c["cell"][1:] for c in results["cells"] if c["cell"][0] == "rate"):
        beside = with_loss(results, (order, size, senders), loss) if loss and order in ORDERS else []
        if beside and median(beside).value < LOSSY:
            what = f"`{order}`, {size:,} B, {senders} sending, {loss:g} % loss: of the rate without"
            rows.append([what, f"at least {LOSSY:g}", str(median(beside))])
    whole = {tuple(c["cell"]): c["values"] for c in results["cells"] if c["cell"][0] in PERCENTILES}
    for order in (order for order in results["orders"] if order in RATES):
        for percentile, target in TIMES.items():
            beside = latency_ratios(whole, percentile, order, 0.0)
            if beside and median(beside).value > target:
                rows.append([f"`{order}`, {percentile}: of fifo", f"at most {target:g}", str(median(beside))])
    for order, within, kills in failover.within(results.get("failover", failover.NONE)):
        if within < kills:
            what = f"`{order}`: kills with a stall of at most {failover.STALL_MS:g} ms beyond detection"
            rows.append([what, str(kills), str(within)])
    return rows


def latency_rows(
    results: dict[str, Any], cells: dict[Any, list[float]], whole: dict[Any, list[float | None]], loss: float
) -> list[list[str]]:
    """The rows of a table of latencies. ``cells`` leave out runs that failed, ``whole`` do not."""
    rows = []
    for order in [*results["orders"], "raw"]:
        row = [f"`{order}`" if order in ORDERS else order]
        for percentile in PERCENTILES:
            beside = latency_ratios(whole, percentile, order, loss)
            row += [str(median(values)) if (values := cells.get((percentile, order, loss))) else ""]
            row += [str(median(beside)) if beside else ""]
        if any(row[1:]):
            rows.append(row)
    return rows


def page(results: dict[str, Any]) -> str:
    """docs/orders.md."""
    cells = {tuple(c["cell"]): [v for v in c["values"] if v is not None] for c in results["cells"]}
    shares = ratios(results)
    between = "the interval that holds the true median with 95 % confidence" if results["pairs"] > 5 else "the range"
    parts = [
        "# Orders measured",
        "Made by `make bench-order` (bench/orders.py) from docs/orders.json; do not edit.",
        f"Measured on {results['machine']}: {MEMBERS} members as processes, {results['pairs']} interleaved pairs of "
        f"{results['seconds']:g} s; medians, and in brackets {between}. Ratios are those of each pair. *raw* is plain "
        "C without a protocol, *limit* plain C with acks, CRC and copies, each with one sender.",
        "![rates as a share of FIFO](orders.png)",
    ]
    columns = sorted({key[2:] for key in cells if key[0] == "rate"}, key=lambda key: (key[2], key[1], key[0]))
    for loss in sorted({column[2] for column in columns}):
        parts.append(f"## With {loss:g} % of datagrams dropped" if loss else "## Throughput")
        rows = []
        for size, senders, of in columns:
            for order in [*results["orders"], "limit", "raw"]:
                lossless = order in ("limit", "raw")  # they repair nothing
                if of == loss and (values := cells.get(("rate", order, size, senders, 0.0 if lossless else loss))):
                    beside = with_loss(results, (order, size, senders), loss) if loss and not lossless else []
                    share = shares.get((order, size, senders, loss))
                    label = f"`{order}`" if order in ORDERS else f"{order}, without loss" if loss else order
                    row = [f"{size:,} B", str(senders), label]
                    row += [str(median(values)), str(share or "")]
                    rows.append([*row, str(median(beside)) if beside else ""] if loss else row)
        head = ["message", "sending", "order", "messages/s", "of fifo"] + (["of the rate without loss"] if loss else [])
        parts.append(table(head, rows))
    parts.append("## Latency")
    parts.append(
        f"Half a round trip of two members on different cores, {LATENCY_BYTES} bytes, blocking, µs, in "
        f"{len(cells['p50', 'fifo', 0.0])} runs of each. A third member is the sequencer, so an ordered message "
        "needs a second hop; in every order the third member receives each message like the other two, but it "
        "[polls](latency.md#order) for a moment before it blocks. *raw* is a ping-pong of two processes."
    )
    whole = {tuple(c["cell"]): c["values"] for c in results["cells"] if c["cell"][0] in PERCENTILES}
    for loss in sorted({key[2] for key in whole}):
        if loss:
            parts.append(
                f"The same with {loss:g} % of datagrams dropped: the loss of a lone message is noticed when its sender "
                "asks, after `probe_s_min`, or when another message follows."
            )
        parts.append(table(["order", "p50", "of fifo", "p99", "of fifo"], latency_rows(results, cells, whole, loss)))
    if "failover" in results:
        parts.append(failover.section(results["failover"]))
    parts.append("## Targets not reached")
    rows = missed(results)
    parts.append(table(["what", "target", "reached"], rows) if rows else "None: all are reached in these measurements.")
    return "\n\n".join(parts) + "\n"


def draw(results: dict[str, Any], into: Path) -> None:
    """The ratios to FIFO as bars with their intervals, as a picture."""
    from matplotlib.figure import Figure

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
    figure.savefig(into, dpi=80)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", nargs="+", default=[order for order in ORDERS if order != "total"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 8192])
    parser.add_argument("--senders", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--loss", type=float, default=1.0, metavar="PERCENT", help="also with this loss; 0: without")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of each run (0.5)")
    parser.add_argument("--rounds", type=int, default=3000, help="round trips of each latency run (3000)")
    parser.add_argument("--pairs", type=int, default=20, help="at most this many (20)")
    parser.add_argument("--minutes", type=float, default=12.0, help="for all (12); one pair is measured in any case")
    parser.add_argument("--kills", type=int, default=5, help="of the sequencer, in each order (5); 0: none")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-kills", action="store_true", help="keep the other figures of the file")
    only.add_argument("--only-latency", action="store_true", help="keep the other figures of the file")
    parser.add_argument("--into", type=Path, default=DOCS / "orders.json", help="file of the results")
    options = parser.parse_args()
    if "fifo" not in options.orders:
        parser.error("--orders must name fifo: the others are compared with this one")
    if options.only_kills:
        results = json.loads(options.into.read_text(encoding="utf-8"))
        results["failover"] = failover.measure(results["orders"], options.kills)
    elif options.only_latency:
        results = json.loads(options.into.read_text(encoding="utf-8"))
        options.orders = results["orders"]
        cells: dict[tuple[Any, ...], list[float | None]] = {}
        losses = losses_of(options)
        for pair in range(results["pairs"]):
            for loss in losses:
                latency(options, pair, loss, cells)
        results["cells"] = [c for c in results["cells"] if c["cell"][0] not in PERCENTILES] + listed(cells)
    else:
        results = measure(options)
    options.into.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    options.into.with_suffix(".md").write_text(page(results), encoding="utf-8")
    draw(results, options.into.with_suffix(".png"))
    print(page(results))
    for what in results["wrong"]:
        say(f"WRONG: {what}")
    return 1 if results["wrong"] or not failover.held(results.get("failover", failover.NONE)) else 0


if __name__ == "__main__":
    sys.exit(main())
