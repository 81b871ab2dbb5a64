"""``seqcast report JOURNAL...``: latency, throughput and what happened meanwhile, from members' journals, on Spark."""

from __future__ import annotations

import base64
import html
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.commandline import Parser
from seqcast.errors import UsageError
from seqcast.journal.reader import Journal
from seqcast.spark.auditing import journals_of
from seqcast.spark.members import Names
from seqcast.spark.session import add_job_options, for_a_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

STEPS = 32
"""Buckets of a power of two of latency: a percentile is at most 1/32, 3 %, too high."""
WINDOWS = 200
PERCENTILES = (0.5, 0.9, 0.99, 0.999)
TROUBLE = {
    "retransmissions": ("packets_retransmitted",),
    "requests for repeats": ("naks_sent",),
    "stalls for credit": ("credit_stalls",),
    "suspicions": ("suspicions",),
    "dropped for want of memory": ("slabs_exhausted", "drop_slabs"),
}
"""What the time line shows: a name, and the counters that it sums."""

Histogram = Counter[int]
"""Bucket -> messages."""


@dataclass(slots=True)
class Timed:
    """What a report is made of.

    Args:
        begin_ns, end_ns: first and last delivery, ns since 1970.
        pairs: (member, sender) -> latencies.
        windows: (member, number of the window) -> (messages, bytes, latencies).
        window_ns: length of a window.
        trouble: (member, ns since 1970, name as in ``TROUBLE``, how many).
        marks: (ns since 1970, text) of view changes and of what applications were told.
    """

    begin_ns: int
    end_ns: int
    window_ns: int
    pairs: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    windows: dict[tuple[str, int], tuple[int, int, Histogram]] = field(default_factory=dict)
    trouble: list[tuple[str, int, str, int]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)


def bucket_top(bucket: int) -> int:
    """Highest latency of a bucket, ns."""
    if bucket < 2 * STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket % STEPS + STEPS + 1) << shift) - 1


def percentile(histogram: Mapping[int, int], share: float) -> int:
    """The latency that a share of the messages does not exceed, ns, at most 1/``STEPS`` too high."""
    left = share * sum(histogram.values())
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 0:
            return bucket_top(bucket)
    return bucket_top(max(histogram)) if histogram else 0


def measure(
    spark: SparkSession, journals: Sequence[Journal], tell: Callable[[str], None] = lambda stage: None
) -> Timed:
    """One pass over the rows: the latencies of each member and sender, and of each member and window of time.

    Raises:
        JournalError: a segment cannot be read.
        UsageError: there are no rows.
    """
    from pyspark.sql import functions as f

    from seqcast.spark.fingerprints import journal_rows

    tell(f"reading {sum(journal.rows for journal in journals)} rows of {len(journals)} journals")
    rows = journal_rows(spark, journals)
    begin, end = rows.agg(f.min("delivered_ns"), f.max("delivered_ns")).collect()[0]
    if begin is None:
        raise UsageError("the journals hold no messages: nothing was delivered, or nothing was written yet")
    timed = Timed(begin, end, max(1, -(-(end - begin + 1) // WINDOWS)))
    tell("measuring latency")
    names = Names(journals)
    for number, sender, window, bucket, count, size in _histograms(rows, timed).collect():
        member, by = names.journal(number), names.member(sender)
        timed.pairs.setdefault((member, by), Counter())[bucket] += count
        before = timed.windows.get((member, window), (0, 0, Counter()))
        before[2][bucket] += count
        timed.windows[member, window] = (before[0] + count, before[1] + size, before[2])
    for number, journal in enumerate(journals):
        _note_events(journal, names.journal(number), timed)
    timed.marks.sort()
    return timed


def _histograms(rows: DataFrame, timed: Timed) -> DataFrame:
    from pyspark.sql import functions as f

    latency = rows.select(
        "journal", "sender", "length",
        f.expr(f"(delivered_ns - {timed.begin_ns}L) div {timed.window_ns}L").alias("window"),
        f.expr("greatest(delivered_ns - sent_ns, 0L)").alias("ns"),
    )  # fmt: skip
    # Of a value of more than log2(2 * STEPS) bits, the first log2(STEPS) + 1 are kept.
    bits = f"(length(bin(ns)) - {STEPS.bit_length()})"
    shift = latency.withColumn("shift", f.expr(f"cast(greatest({bits}, 0) as int)"))
    bucket = shift.withColumn("bucket", f.expr(f"shift * {STEPS} + cast(shiftright(ns, shift) as int)"))
    keys = ["journal", "sender", "window", "bucket"]
    return bucket.groupBy(*keys).agg(f.count("*"), f.sum(f.col("length").cast("long")))


def _note_events(journal: Journal, member: str, timed: Timed) -> None:
    for event in journal.events():
        at = int(event["at_ns"])
        if event["event"] == "counters":
            for name, counters in TROUBLE.items():
                if count := sum(event["rose"].get(counter, 0) for counter in counters):
                    timed.trouble.append((member, at, name, count))
        elif event["event"] == "view":
            changed = [f"+{name}" for name in event["joined"]] + [f"-{name}" for name in event["left"]]
            timed.marks.append((at, f"{member}: view {event['counter']} ({' '.join(changed) or 'no change'})"))
        else:
            timed.marks.append((at, f"{member}: {event['kind']}: {event['text']}"))


def table(timed: Timed) -> list[dict[str, Any]]:
    """A row for each member and sender, and one for all: messages, and latency percentiles in microseconds."""
    together: Histogram = Counter()
    for histogram in timed.pairs.values():
        together.update(histogram)
    return [
        {
            "member": member,
            "sender": sender,
            "messages": sum(histogram.values()),
            **{f"p{share * 100:g}_us": round(percentile(histogram, share) / 1e3, 1) for share in PERCENTILES},
            "max_us": round(bucket_top(max(histogram)) / 1e3, 1),
        }
        for (member, sender), histogram in [*sorted(timed.pairs.items()), (("all", "all"), together)]
    ]


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table, for a terminal."""
    lines = [[str(name).removesuffix("_us") for name in rows[0]]]
    lines += [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*text, "latency from send to delivery in microseconds, by the clocks of sender and member"])


# ---- plots and the page


def plots(timed: Timed) -> dict[str, Figure]:
    """Name -> figure: latency by sender, latency and throughput over time, and what happened meanwhile."""
    return {"latency": _plot_latency(timed), "timeline": _plot_timeline(timed)}


def _plot_latency(timed: Timed) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    by_sender: dict[str, Histogram] = defaultdict(Counter)
    for (_, sender), histogram in sorted(timed.pairs.items()):
        by_sender[sender].update(histogram)
    for sender, histogram in by_sender.items():
        total, below, xs, ys = sum(histogram.values()), 0, [], []
        for bucket in sorted(histogram):
            below += histogram[bucket]
            xs.append(max(bucket_top(bucket), 1) / 1e3)
            ys.append(100 * below / total)
        axes.step(xs, ys, where="post", label=f"from {sender}")
    axes.set(xscale="log", xlabel="latency, µs", ylabel="messages, %", title="Latency from send to delivery, by sender")
    axes.legend()
    return figure


def _plot_timeline(timed: Timed) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 9), layout="constrained")
    rate, latency, trouble = figure.subplots(3, sharex=True)
    second = timed.window_ns / 1e9
    members = sorted({member for member, _ in timed.windows})
    for member in members:
        windows = sorted(window for who, window in timed.windows if who == member)
        xs = [window * second for window in windows]
        found = [timed.windows[member, window] for window in windows]
        rate.step(xs, [count / second for count, _, _ in found], where="post", label=member)
        latency.step(xs, [percentile(each, 0.99) / 1e3 for _, _, each in found], where="post", label=member)
    for name in TROUBLE:
        at = [((ns - timed.begin_ns) / 1e9, count) for _, ns, kind, count in timed.trouble if kind == name]
        if at:
            trouble.scatter(*zip(*at, strict=True), label=name, s=14)
    for axes in (rate, latency, trouble):
        for ns, _ in timed.marks:
            axes.axvline((ns - timed.begin_ns) / 1e9, color="0.7", linewidth=0.8, zorder=0)
    rate.set(ylabel="delivered, messages/s", title="Throughput, latency and trouble; grey lines: views and events")
    latency.set(ylabel="p99 latency, µs", yscale="log")
    trouble.set(ylabel="counted in a second", xlabel="seconds", yscale="symlog")
    for axes in (rate, trouble):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    return figure


def page(timed: Timed, rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes], title: str) -> str:
    """One HTML page, its images within."""
    head = "".join(f"<th>{html.escape(str(name).removesuffix('_us'))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    pictures = "".join(
        f'<p><img alt="{html.escape(name)}" src="data:image/png;base64,{base64.b64encode(data).decode()}"></p>'
        for name, data in images.items()
    )
    marks = "".join(f"<li>{_clock(at)} {html.escape(text)}</li>" for at, text in timed.marks[:1000])
    span = f"{_clock(timed.begin_ns)} to {_clock(timed.end_ns)} UTC"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}"
        "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}img{max-width:100%}</style>"
        f"<h1>{html.escape(title)}</h1><p>{span}. Latency from send to delivery in microseconds, by the clocks of "
        f"sender and member.</p><table><tr>{head}</tr>{body}</table>{pictures}"
        f"<h2>Views and events</h2><ul>{marks}</ul></html>\n"
    )


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _clock(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def write(timed: Timed, rows: Sequence[Mapping[str, Any]], directory: Path, title: str) -> Iterable[Path]:
    """Writes ``report.html`` and a PNG for each plot. Returns their paths.

    Raises:
        UsageError: they cannot be written.
    """
    images = {}
    for name, figure in plots(timed).items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=120)
        images[name] = buffer.getvalue()
    files = {"report.html": page(timed, rows, images, title).encode()}
    files |= {f"{name}.png": data for name, data in images.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}; name another folder with --out") from error
    return [directory / name for name in files]


def main(argv: Sequence[str] | None = None) -> int:
    """The command.

    Raises:
        UsageError: bad input, a damaged journal, or a folder that cannot be written.
        SparkFailed: Spark does not start, or fails.
    """
    parser = Parser(
        "report",
        "Latency by sender and member, throughput, and what happened meanwhile, from members' journals, on Spark.",
        "exit status: 0, 2 bad input or damage, 3 Spark failed",
    )
    add_job_options(parser)
    folder = "folder for report.html and the plots (%(default)s)"
    parser.add_argument("--out", metavar="DIR", default="report", help=folder)
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    arguments = parser.parse_args(argv)
    journals = journals_of(arguments.journals)

    for module in ("pyspark", "matplotlib"):  # where it is missing, that is the only line
        import_module(module)
    with for_a_command(arguments.master, "seqcast report", ship=arguments.ship) as (spark, tell):
        timed = measure(spark, journals, tell)
    rows = table(timed)
    clusters = ", ".join(sorted({journal.cluster for journal in journals}))
    paths = write(timed, rows, Path(arguments.out), f"seqcast: {clusters}")
    print(json.dumps(rows, indent=2) if arguments.json else as_text(rows))
    if not arguments.json:
        print("written:", *paths)
    return 0
