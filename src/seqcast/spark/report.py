"""``seqcast report JOURNAL...``: latency, throughput and what happened meanwhile, from members' journals, on Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal
from seqcast.journal.schema import signed
from seqcast.spark import latency, page
from seqcast.spark.latency import Timing, bucket_top
from seqcast.spark.lookup import Task, run_tasks, runs_of
from seqcast.spark.members import Names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

PERCENTILES = (0.5, 0.9, 0.99, 0.999)
TROUBLE = {
    "retransmissions": ("packets_retransmitted",),
    "requests for repeats": ("naks_sent",),
    "stalls for credit": ("credit_stalls",),
    "suspicions": ("suspicions",),
    "dropped for lack of memory": ("slabs_exhausted", "drop_slabs"),
}
"""Marks on the time line: a name, and the counters that it sums."""

CLOCKS = (
    "Latency from send to delivery in microseconds, by the clocks of sender and member, corrected where they are "
    "known to differ. Clock: how far that of the member is ahead, as the fastest messages in both directions "
    "tell, and by how much that may be wrong"
)
MARKS = 1000
"""At most this many views and events are on the page."""

Clock = tuple[float, float]
"""How far the clock of a member is ahead of a sender's, and the error of that estimate, both ns."""
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
        clocks: (member, sender) -> how their clocks differ, by the best estimate of any view.
        transitional: (member, sender) -> messages that only a view change ordered.
    """

    begin_ns: int
    end_ns: int
    window_ns: int
    pairs: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    windows: dict[tuple[str, int], tuple[int, int, Histogram]] = field(default_factory=dict)
    trouble: list[tuple[str, int, str, int]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    clocks: dict[tuple[str, str], Clock] = field(default_factory=dict)
    transitional: Counter[tuple[str, str]] = field(default_factory=Counter)


def percentile(histogram: Mapping[int, int], share: float) -> int:
    """The latency that this share of the messages does not exceed, ns, at most 1/``latency.STEPS`` too high."""
    left = share * sum(histogram.values())
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 0:
            return bucket_top(bucket)
    return bucket_top(max(histogram)) if histogram else 0


def measure(
    spark: SparkSession, journals: Sequence[Journal], tell: Callable[[str], None] = lambda stage: None
) -> Timed:
    """One pass over the rows: latencies by member and sender, and by member and window of time.

    Raises:
        JournalError: a segment cannot be read.
        UsageError: there are no rows.
    """
    tell(f"reading {sum(journal.rows for journal in journals)} rows of {len(journals)} journals")
    timings: dict[int, Timing] = {}
    recorded = recorded_clocks(journals)
    ahead = [corrections(journal, recorded) for journal in journals]
    tasks: list[Task] = [(number, run, latency.measure, (ahead[number],)) for number, run in runs_of(spark, journals)]
    for number, timing in run_tasks(spark, tasks):
        timings.setdefault(number, Timing()).add(timing)
    if not any(timing.counts for timing in timings.values()):
        raise UsageError("the journals hold no messages: nothing was delivered, or nothing was written yet")
    begin = min(timing.begin_ns for timing in timings.values())
    end = max(timing.end_ns for timing in timings.values())
    shift = latency.fitting(begin, end)
    timed = Timed(begin, end, 1 << shift)
    names = Names(journals)
    for number, timing in timings.items():
        timing.coarsen(shift)
        member = names.journal(number)
        timed.transitional.update({(member, names.member(sender)): n for sender, n in timing.transitional.items()})
        for (sender, window, bucket), (count, size) in timing.counts.items():
            timed.pairs.setdefault((member, names.member(sender)), Counter())[bucket] += count
            before = timed.windows.setdefault((member, window - (begin >> shift)), (0, 0, Counter()))
            before[2][bucket] += count
            timed.windows[member, window - (begin >> shift)] = (before[0] + count, before[1] + size, before[2])
    timed.clocks = _clocks(journals, names, recorded, timings)
    for number, journal in enumerate(journals):
        _note_events(journal, names.journal(number), timed)
    timed.marks.sort()
    return timed


def clock_ahead(there_ns: int | None, back_ns: int | None) -> Clock | None:
    """How two clocks differ; None if messages went in one direction only.

    Args:
        there_ns, back_ns: lowest difference between delivery and sending, by the two clocks: of the messages to the
            member whose clock may be ahead, and of those that it sent.

    If the fastest message of each direction took equally long, the clocks differ by half the difference of the two. The
    error is at most half of what both took together.
    """
    if there_ns is None or back_ns is None:
        return None
    return (there_ns - back_ns) / 2, (there_ns + back_ns) / 2


def recorded_clocks(journals: Sequence[Journal]) -> dict[tuple[int, int, int], Clock]:
    """(member, sender, view tag) -> how their clocks differ, by what both journals recorded when they closed the view.
    Ids and tags are signed, as in the columns."""
    least = {
        (signed(journal.member.id), signed(sender), signed(view.tag)): least_ns
        for journal in journals
        for view in journal.views
        for sender, least_ns in (view.end.clocks if view.end is not None else ())
    }
    found = {}
    for (member, sender, tag), there_ns in least.items():
        clock = clock_ahead(there_ns, least.get((sender, member, tag)))
        if clock is not None and member != sender:
            found[member, sender, tag] = clock
    return found


def corrections(journal: Journal, recorded: Mapping[tuple[int, int, int], Clock]) -> dict[tuple[int, int], int]:
    """Corrections for the latencies of a journal: (sender, view tag) -> ns, where the difference of two clocks is more
    than the error of its estimate: the fastest message of one direction arrived before it was sent. A view without an
    estimate, such as the last view of a member that crashed, takes that of the view before."""
    found: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    member = signed(journal.member.id)
    for view in journal.views:
        for sender in (signed(each.id) for each in view.members):
            if (clock := recorded.get((member, sender, signed(view.tag)))) is not None:
                last[sender] = round(clock[0]) if abs(clock[0]) > clock[1] else 0
            if last.get(sender):
                found[sender, signed(view.tag)] = last[sender]
    return found


def _clocks(
    journals: Sequence[Journal],
    names: Names,
    recorded: Mapping[tuple[int, int, int], Clock],
    timings: Mapping[int, Timing],
) -> dict[tuple[str, str], Clock]:
    """(member, sender) -> how their clocks differ: the best recorded estimate. Without one (the member crashed in its
    first view) the estimate from all rows."""
    numbers = {signed(journal.member.id): number for number, journal in enumerate(journals)}
    best: dict[tuple[int, int], Clock] = {}
    for (member, sender, _), clock in recorded.items():
        best[member, sender] = min(clock, best.get((member, sender), clock), key=lambda each: each[1])
    least = {
        (member, sender): least_ns
        for member, number in numbers.items()
        for sender, least_ns in (timings[number].least.items() if number in timings else ())
    }
    for (member, sender), there_ns in least.items():
        by_rows = clock_ahead(there_ns, least.get((sender, member)))
        if by_rows is not None and member != sender:
            best.setdefault((member, sender), by_rows)
    return {(names.journal(numbers[member]), names.member(sender)): clock for (member, sender), clock in best.items()}


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
    """A row for each member and sender, and one for all: messages, transitional messages, and latency percentiles in
    microseconds."""
    together: Histogram = Counter()
    for histogram in timed.pairs.values():
        together.update(histogram)
    late = {**timed.transitional, ("all", "all"): timed.transitional.total()}
    return [
        {
            "member": member,
            "sender": sender,
            "messages": sum(histogram.values()),
            "transitional": late.get((member, sender), 0),
            **_percentiles(histogram),
            "max_us": round(bucket_top(max(histogram)) / 1e3, 1),
            **_clock_columns(timed, member, sender),
        }
        for (member, sender), histogram in [*sorted(timed.pairs.items()), (("all", "all"), together)]
    ]


def as_json(timed: Timed, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that the page shows: the table, throughput and latency by member and window of time, and what happened."""
    seconds = timed.window_ns / 1e9
    return {
        "latency": rows,
        "windows": [
            {
                "member": member,
                "begin_ns": _begin_of(timed, window),
                "seconds": seconds,
                "messages_per_s": round(messages / seconds, 1),
                "bytes_per_s": round(size / seconds, 1),
                **_percentiles(histogram),
            }
            for (member, window), (messages, size, histogram) in sorted(timed.windows.items())
        ],
        "trouble": [
            {"member": member, "at_ns": at, "what": what, "count": count} for member, at, what, count in timed.trouble
        ],
        "events": [{"at_ns": at, "text": text} for at, text in timed.marks],
    }


def _begin_of(timed: Timed, window: int) -> int:
    """When a window begins, ns since 1970; the first one begins at the first delivery or before."""
    return (timed.begin_ns // timed.window_ns + window) * timed.window_ns


def _percentiles(histogram: Histogram) -> dict[str, float]:
    """In microseconds."""
    return {f"p{share * 100:g}_us": round(percentile(histogram, share) / 1e3, 1) for share in PERCENTILES}


def _clock_columns(timed: Timed, member: str, sender: str) -> dict[str, Any]:
    ahead = timed.clocks.get((member, sender))
    if ahead is None:
        return {"clock_us": None, "clock_error_us": None}
    return {"clock_us": round(ahead[0] / 1e3, 1), "clock_error_us": round(ahead[1] / 1e3, 1)}


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table, for a terminal."""
    lines = [[str(name).removesuffix("_us") for name in rows[0]]]
    lines += [[page.cell(value) for value in row.values()] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*text, CLOCKS])


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
    rate, slow, trouble = figure.subplots(3, sharex=True)
    second = timed.window_ns / 1e9
    for member in sorted({member for member, _ in timed.windows}):
        windows = sorted(window for who, window in timed.windows if who == member)
        xs = [(_begin_of(timed, window) - timed.begin_ns) / 1e9 for window in windows]
        found = [timed.windows[member, window] for window in windows]
        rate.step(xs, [count / second for count, _, _ in found], where="post", label=member)
        slow.step(xs, [percentile(each, 0.99) / 1e3 for _, _, each in found], where="post", label=member)
    _plot_trouble(timed, trouble)
    for axes in (rate, slow, trouble):
        for ns, _ in timed.marks:
            axes.axvline((ns - timed.begin_ns) / 1e9, color="0.7", linewidth=0.8, zorder=0)
    rate.legend(fontsize="small")
    rate.set(ylabel="delivered, messages/s", title="Throughput, latency and trouble; grey lines: views and events")
    slow.set(ylabel="p99 latency, µs", yscale="log")
    return figure


def _plot_trouble(timed: Timed, axes: Axes) -> None:
    for name in TROUBLE:
        at = [((ns - timed.begin_ns) / 1e9, count) for _, ns, kind, count in timed.trouble if kind == name]
        if at:
            axes.scatter([when for when, _ in at], [count for _, count in at], label=name, s=14)
    axes.set(ylabel="counted in a second", xlabel="seconds", yscale="symlog")
    if timed.trouble:
        axes.legend(fontsize="small")


def page_of(timed: Timed, rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes], title: str) -> str:
    """One HTML page, its images within."""
    return page.page(
        title,
        page.paragraph(f"{page.clock(timed.begin_ns)} to {page.clock(timed.end_ns)} UTC. {CLOCKS}."),
        page.table([name.removesuffix("_us") for name in rows[0]], [list(row.values()) for row in rows]),
        page.pictures(images),
        page.heading("Views and events"),
        page.items(f"{page.clock(at)} {text}" for at, text in timed.marks[:MARKS]),
    )


def write(timed: Timed, rows: Sequence[Mapping[str, Any]], directory: Path, title: str) -> list[Path]:
    """Writes ``report.html`` and a PNG for each plot. Returns their paths.

    Raises:
        UsageError: they cannot be written.
    """
    images = {name: page.png(figure) for name, figure in plots(timed).items()}
    files = {"report.html": page_of(timed, rows, images, title).encode()}
    return page.write(directory, files | {f"{name}.png": data for name, data in images.items()}, "--out")
