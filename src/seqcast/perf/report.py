"""From runs to figures: medians with their spread, the JSON object and the table."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import seqcast.codes as codes

PERCENTILES = ("p50", "p99", "p999", "max")


def median(values: Sequence[float], digits: int = 3) -> float:
    """The median, rounded."""
    return round(float(statistics.median(values)), digits)


def spread(values: Sequence[float], digits: int = 3) -> list[float]:
    """The minimum and the maximum, rounded."""
    return [round(float(min(values)), digits), round(float(max(values)), digits)]


def machine() -> str:
    """One line about the machine that was measured."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    system = f"{platform.system()} {platform.release()}, CPython {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {system}"


def throughput(raw: Sequence[float], limit: Sequence[float], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one path from its pairs: MB/s of the baselines and ``group_throughput`` of each run.

    Rates are medians over the pairs, ratios are medians of the ratios of each pair; ``spread`` gives the minimum
    and the maximum of each. Losses and retransmissions are sums. Across hosts there are no baselines.
    """
    to_raw = [run["delivered_mb_per_s"] / mb for run, mb in zip(runs, raw, strict=False)]
    to_limit = [run["delivered_mb_per_s"] / mb for run, mb in zip(runs, limit, strict=False)]

    def column(key: str) -> list[float]:
        return [float(run[key]) for run in runs]

    rates: dict[str, tuple[list[float], int]] = {
        "sent_msgs_per_s": (column("sent_msgs_per_s"), 0),
        "delivered_msgs_per_s": (column("delivered_msgs_per_s"), 0),
        "delivered_mb_per_s": (column("delivered_mb_per_s"), 1),
        "cpu_us_per_msg": (column("cpu_us_per_msg"), 4),
        "acks_per_packet": (column("acks_per_packet"), 3),
        "drained": (column("drained"), 4),
    }
    if raw:
        rates |= {
            "raw_mb_per_s": (list(raw), 1),
            "limit_mb_per_s": (list(limit), 1),
            "ratio_to_raw": (to_raw, 3),
            "ratio_to_limit": (to_limit, 3),
        }
    return {
        **{key: median(values, digits) for key, (values, digits) in rates.items()},
        "lost": sum(int(run["lost"]) for run in runs),
        "wrong": sum(int(run["wrong"]) for run in runs),
        "messages": sum(int(run["messages"]) for run in runs),
        "retransmitted_packets": sum(int(run["retransmitted_packets"]) for run in runs),
        "throttled_s": round(sum(column("throttled_s")), 3),
        "rss_mb": round(max(column("rss_mb")), 1),
        "rss_rest_mb": round(max(column("rss_rest_mb")), 1),
        "window_bytes": int(runs[0]["window_bytes"]),
        "pairs": len(runs),
        "spread": {key: spread(values, digits) for key, (values, digits) in rates.items()},
    }


def across(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of several hosts: each with its machine, its drops, and the seconds for which a CPU quota stopped the
    member there; how many packets had to be repeated that no host has dropped, and the part of the slowest line that
    the payload takes."""
    said: Mapping[str, Mapping[str, Any]] = runs[0]["hosts"]
    speeds = [each["speed_mbit"] for each in said.values() if each["speed_mbit"]]
    line = min(speeds) / 8 if len(speeds) == len(said) else 0.0  # MB/s
    ratios = [float(run["delivered_mb_per_s"]) / line for run in runs] if line else []
    dropped = {
        host: {place: sum(int(run["dropped"][host][place]) for run in runs) for place in runs[0]["dropped"][host]}
        for host in said
    }
    known = sum(n for places in dropped.values() for n in places.values())
    between = max(0, sum(int(run["retransmitted_packets"]) for run in runs) - known)
    throttled = {host: round(sum(float(run["throttled"][host]) for run in runs), 3) for host in said}
    found: dict[str, Any] = {"hosts": {host: each["machine"] for host, each in said.items()}, "dropped": dropped}
    found["throttled"] = throttled
    found["nics"] = {host: each["nic"] for host, each in said.items()}
    found["dropped_between"] = between
    return found | ({"ratio_to_line": median(ratios)} if line else {})


def beside(
    name: str, ratio: str, without: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Figures of pairs in which one run is without the measured load (loss, a journal): messages/s of those runs as
    ``name``, the median of the pairs' ratios as ``ratio``, and the spread of both."""
    before = [float(run["delivered_msgs_per_s"]) for run in without]
    ratios = [run["delivered_msgs_per_s"] / rate for run, rate in zip(runs, before, strict=True)]
    return {
        name: median(before, 0),
        ratio: median(ratios),
        "spread": {name: spread(before, 0), ratio: spread(ratios)},
    }


def latency(
    raw: Sequence[Mapping[str, float]],
    runs: Sequence[Mapping[str, float]],
    recv: Sequence[Mapping[str, float]] = (),
) -> dict[str, Any]:
    """The figures of a ping-pong from its pairs: medians over the pairs, µs; ratios are medians of each pair's.

    Args:
        raw: of the plain C ping-pong.
        runs: of the group.
        recv: of the same group without asyncio, if ``runs`` are in asyncio.
    """
    columns = {"latency_us": runs, **({"raw_latency_us": raw} if raw else {})}
    compared = {"ratio_to_raw": raw} if raw else {}
    if recv:
        columns["recv_latency_us"] = compared["ratio_to_recv"] = recv
    values = {name: {key: [run[key] for run in column] for key in PERCENTILES} for name, column in columns.items()}
    values |= {
        name: {key: [run[key] / other[key] for run, other in zip(runs, others, strict=True)] for key in PERCENTILES}
        for name, others in compared.items()
    }
    return {
        **{name: {key: median(each[key], 2) for key in PERCENTILES} for name, each in values.items()},
        "pairs": len(runs),
        "spread": {name: {key: spread(each[key], 2) for key in PERCENTILES} for name, each in values.items()},
    }


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The figures as a table: a row each, a column for each path, with the spread in brackets."""
    measured = [result for result in results if "unavailable" not in result]
    keys = ROWS_LATENCY if any("latency_us" in result for result in measured) else ROWS_THROUGHPUT
    head = ["", *(str(result["path"]) for result in measured)]
    rows = [head]
    for key, label in keys:
        if any(lookup(result, key) is not None for result in measured):
            rows.append([label, *(cell(result, key) for result in measured)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines += [
        f"{result['path']}: not measured: {result['unavailable']}" for result in results if result not in measured
    ]
    return "\n".join(line.rstrip() for line in lines)


ROWS_THROUGHPUT = (
    ("delivered_msgs_per_s", "messages/s delivered, slowest receiver"),
    ("delivered_mb_per_s", "MB/s delivered"),
    ("sent_msgs_per_s", "messages/s sent"),
    ("drained", "last message after the run's end, as a part of the run's length"),
    ("raw_mb_per_s", "plain C without a protocol, MB/s"),
    ("limit_mb_per_s", "plain C with acks, CRC and copies, MB/s"),
    ("ratio_to_raw", "ratio to the first"),
    ("ratio_to_limit", "ratio to the second"),
    ("journal_free_msgs_per_s", "messages/s without the journal"),
    ("journal_ratio", "ratio to that"),
    ("journal_missing", "delivered but not in a journal"),
    ("loss_free_msgs_per_s", "messages/s without the loss"),
    ("ratio_to_loss_free", "ratio to that"),
    ("ratio_to_line", "of the line rate"),
    ("lost", "messages lost"),
    ("retransmitted_packets", "packets retransmitted"),
    ("acks_per_packet", "acknowledgements per packet"),
    ("cpu_us_per_msg", "CPU of all members per message, µs"),
    ("rss_mb", "resident memory of a member, MB"),
    ("rss_rest_mb", "resident memory before the first message, MB"),
)
ROWS_LATENCY = tuple(
    (f"{group}.{key}", f"{label} {key.replace('p999', 'p99.9')}")
    for group, label in (
        ("latency_us", "half round trip, µs,"),
        ("raw_latency_us", "plain C, µs,"),
        ("ratio_to_raw", "ratio,"),
        ("recv_latency_us", "without asyncio, µs,"),
        ("ratio_to_recv", "ratio to that,"),
    )
    for key in PERCENTILES
)


def lookup(tree: Mapping[str, Any], key: str) -> Any:
    """``tree["a"]["b"]`` for "a.b", or None."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def throttled(result: Mapping[str, Any]) -> str:
    """A line about quotas that stopped members, with the hosts; "": none did."""
    if not result.get("throttled_s"):
        return ""
    hosts = ", ".join(f"{host} {seconds:g} s" for host, seconds in result.get("throttled", {}).items() if seconds)
    where = f" ({hosts})" if hosts else ""
    text = f"a CPU quota stopped members for {result['throttled_s']:g} s{where}: these figures are those of the quota"
    return codes.THROTTLED(f"{result['path']}: {text}")


def cell(result: Mapping[str, Any], key: str) -> str:
    """A figure and its spread."""
    value, between = lookup(result, key), lookup(result.get("spread", {}), key)
    if value is None:
        return "-"
    return shown(value) if between is None else f"{shown(value)} ({shown(between[0])} to {shown(between[1])})"


def shown(value: float) -> str:
    """A number rounded to its significant digits."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
