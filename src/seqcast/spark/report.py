"""``seqcast report JOURNAL...``: latency, throughput and events meanwhile, from members' journals, on Spark."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal
from seqcast.journal.schema import signed
from seqcast.spark import latency, page
from seqcast.spark.latency import Timing, bucket_top
from seqcast.spark.lookup import Task, run_tasks, runs_of
from seqcast.spark.losses import Loss, fallen_apart, losses
from seqcast.spark.members import Names

if TYPE_CHECKING:
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

LATENCY = "Latency: from send to delivery, by the clocks of sender and member, corrected if they are known to differ"
CLOCKS = (
    "Clock: how far that of the member is ahead of the sender's, as the fastest messages in both directions tell, and "
    "by how much that may be wrong."
)
TITLES = {
    "messages": "messages", "transitional": "transitional", "before_sent": "delivered before sent",
    "max_us": "max, µs", "clock_us": "clock ahead, µs", "clock_error_us": "clock error, µs",
    **{f"p{share * 100:g}_us": f"p{share * 100:g}, µs" for share in PERCENTILES},
}  # fmt: skip
"""Column of the table -> its title."""
NOTHING = (
    "Nothing was wrong: no member went without leaving, no message was sent again, nobody waited for credit or was "
    "suspected, no memory ran out, and applications were told of nothing."
)
MEMBERS = 5
"""The number of members named with their part of a total."""
MARKS = 1000
"""At most this many views and events are on the page."""

Clock = tuple[float, float]
"""How far the clock of a member is ahead of a sender's, and the error of that estimate, both ns."""
Histogram = Counter[int]
"""Bucket -> messages."""


@dataclass(slots=True)
class Timed:
    """The material of a report.

    Args:
        begin_ns, end_ns: first and last delivery, ns since 1970.
        pairs: (member, sender) -> latencies, those that are known.
        windows: (member, number of the window) -> (messages, bytes, latencies).
        window_ns: length of a window.
        trouble: (member, ns since 1970, name as in ``TROUBLE``, how many).
        marks: (ns since 1970, text) of view changes and of applications' events.
        told: (member, kind) of the latter -> how many.
        clocks: (member, sender) -> how their clocks differ, by the best estimate of any view.
        transitional: (member, sender) -> messages that only a view change ordered.
        before_sent: (member, sender) -> messages that were delivered before they were sent, by the clocks.
        lost: members that went without leaving.
        apart: views that fell apart, each with its sides.
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
    before_sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: Sequence[Loss] = ()
    apart: Sequence[str] = ()

    @property
    def every(self) -> Histogram:
        """All latencies that are known."""
        return sum(self.pairs.values(), Counter())


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
            histogram = timed.pairs.setdefault((member, names.member(sender)), Counter())
            before = timed.windows.setdefault((member, window - (begin >> shift)), (0, 0, Counter()))
            if bucket == latency.EARLIER:
                timed.before_sent[member, names.member(sender)] += count
            else:
                histogram[bucket] += count
                before[2][bucket] += count
            timed.windows[member, window - (begin >> shift)] = (before[0] + count, before[1] + size, before[2])
    timed.clocks = _clocks(journals, names, recorded, timings)
    for number, journal in enumerate(journals):
        _note_events(journal, names.journal(number), timed)
    timed.marks.sort()
    timed.lost, timed.apart = losses(journals, names), list(fallen_apart(journals, names))
    return timed


def clock_ahead(there_ns: int | None, back_ns: int | None) -> Clock | None:
    """How two clocks differ; None if messages went in one direction only.

    Args:
        there_ns, back_ns: lowest difference between delivery and sending, by the two clocks: of the messages to the
            member whose clock may be ahead, and of those that it sent.

    If the fastest message of each direction took equally long, the clocks differ by half the difference of the two. The
    error is at most half of their total time.
    """
    if there_ns is None or back_ns is None:
        return None
    return (there_ns - back_ns) / 2, (there_ns + back_ns) / 2


def recorded_clocks(journals: Sequence[Journal]) -> dict[tuple[int, int, int], Clock]:
    """(member, sender, view tag) -> how their clocks differ, by both journals' records when they closed the view.
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
    """Corrections for the latencies of a journal: (sender, view tag) -> ns, if the difference of two clocks is more
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
            timed.told[member, event["kind"]] += 1


def table(timed: Timed) -> list[dict[str, Any]]:
    """A row for each member and sender, and one for all: messages, those of them that only a view change ordered or
    whose latency is not known, and latency percentiles in microseconds."""
    late = {**timed.transitional, ("all", "all"): timed.transitional.total()}
    early = {**timed.before_sent, ("all", "all"): timed.before_sent.total()}
    return [
        {
            "member": member,
            "sender": sender,
            "messages": histogram.total() + early.get((member, sender), 0),
            "transitional": late.get((member, sender), 0),
            "before_sent": early.get((member, sender), 0),
            **_percentiles(histogram),
            "max_us": round(bucket_top(max(histogram)) / 1e3, 1) if histogram else None,
            **_clock_columns(timed, member, sender),
        }
        for (member, sender), histogram in [*sorted(timed.pairs.items()), (("all", "all"), timed.every)]
    ]


def summary(timed: Timed) -> str:
    """The measurement, in a sentence."""
    every = timed.every
    members, senders = (_number(len({pair[at] for pair in timed.pairs}), ("member", "sender")[at]) for at in (0, 1))
    messages = _number(every.total() + timed.before_sent.total(), "delivery", "deliveries")
    text = f"{messages} of messages from {senders} to {members} in {page.span(timed.end_ns - timed.begin_ns)}"
    if not every:
        return f"{text}."
    half, most = (page.span(percentile(every, share)) for share in (0.5, 0.99))
    return f"{text}: half within {half}, 99 % within {most}, the slowest {page.span(bucket_top(max(every)))}."


def findings(timed: Timed) -> list[str]:
    """Faults and delays, each in a sentence; empty: nothing."""
    found = []
    if timed.lost:
        of = _some(f"{loss.member} ({loss.how}, in view {loss.view})" for loss in timed.lost)
        found.append(f"{_number(len(timed.lost), 'member')} went without leaving: {of}.")
    if timed.apart:
        found.append(f"{_number(len(timed.apart), 'view')} fell apart: {_some(timed.apart, '; ')}.")
    for kind in dict.fromkeys(kind for _, kind in sorted(timed.told)):
        told = {member: n for (member, each), n in timed.told.items() if each == kind}
        found.append(f"Applications were told {kind}: {_by_member(told)}.")
    for name in TROUBLE:
        counted = Counter[str]()
        for member, _, each, count in timed.trouble:
            counted[member] += count if each == name else 0
        if counted.total():
            found.append(f"{name[:1].upper()}{name[1:]}: {_by_member(counted)}.")
    if late := timed.transitional.total():
        found.append(f"Only a view change ordered {_number(late, 'delivery', 'deliveries')} (transitional).")
    if early := timed.before_sent.total():
        found.append(
            f"{_number(early, 'delivery', 'deliveries')} came before the message was sent, by the clocks of sender and "
            "member: no latency is known of these, and they are not in the percentiles."
        )
    return found


def _number(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def _some(texts: Iterable[str], between: str = ", ") -> str:
    """The first of them."""
    every = [*texts]
    return between.join([*every[:MEMBERS], *["..."][: len(every) > MEMBERS]])


def _by_member(counts: Mapping[str, int]) -> str:
    """The total, and of which members it is, most first."""
    most = sorted(((n, member) for member, n in counts.items() if n), key=lambda each: (-each[0], each[1]))
    of = ", ".join(f"{member} {n:,}" for n, member in most[:MEMBERS])
    return f"{sum(counts.values()):,} ({of}{', ...' if len(most) > MEMBERS else ''})"


def as_json(timed: Timed, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that the page shows: in words, the table, throughput and latency by member and window of time, and events."""
    seconds = timed.window_ns / 1e9
    return {
        "summary": summary(timed),
        "findings": findings(timed),
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


def _percentiles(histogram: Histogram) -> dict[str, float | None]:
    """In microseconds; None: no latency is known."""
    return {
        f"p{share * 100:g}_us": round(percentile(histogram, share) / 1e3, 1) if histogram else None
        for share in PERCENTILES
    }


def _clock_columns(timed: Timed, member: str, sender: str) -> dict[str, Any]:
    ahead = timed.clocks.get((member, sender))
    if ahead is None:
        return {"clock_us": None, "clock_error_us": None}
    return {"clock_us": round(ahead[0] / 1e3, 1), "clock_error_us": round(ahead[1] / 1e3, 1)}


def as_text(timed: Timed, rows: Sequence[Mapping[str, Any]]) -> str:
    """Summary, table and findings, for a terminal."""
    lines = [[TITLES.get(name, name) for name in _columns(rows)]]
    lines += [[page.cell(row[name]) for name in _columns(rows)] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([summary(timed), "", *text, "", _about(rows), *(findings(timed) or [NOTHING])])


def _about(rows: Sequence[Mapping[str, Any]]) -> str:
    """The meaning of the columns."""
    return f"{LATENCY}. {CLOCKS}" if "clock_us" in _columns(rows) else f"{LATENCY}."


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of the table that have something to say."""
    optional = ("transitional", "before_sent", "clock_us", "clock_error_us")
    return [name for name in rows[0] if name not in optional or any(row[name] for row in rows)]


# ---- plots and the page


def plots(timed: Timed) -> dict[str, Figure]:
    """Name -> figure: latency by sender, latency and throughput over time, and events meanwhile."""
    return {"latency": _plot_latency(timed), "timeline": _plot_timeline(timed)}


def _plot_latency(timed: Timed) -> Figure:
    figure, (axes,) = page.figure_of(4)
    by_sender: dict[str, Histogram] = defaultdict(Counter)
    for (_, sender), histogram in sorted(timed.pairs.items()):
        by_sender[sender].update(histogram)
    every = []
    for sender, histogram in by_sender.items():
        total, below, xs, ys = histogram.total(), 0, [], []
        for bucket in sorted(histogram):
            below += histogram[bucket]
            xs.append(max(bucket_top(bucket), 1) / 1e9)
            ys.append(100 * below / total)
        every += xs
        axes.step([*xs[:1], *xs], [*(0 for _ in ys[:1]), *ys], where="post", label=f"from {sender}", marker=_marker(xs))
    page.log_axis(axes, "x", every, "s")
    axes.set(xlabel="latency", ylabel="messages, %", ylim=(0, 102), title="Latency from send to delivery, by sender")
    axes.legend(fontsize="small")
    return figure


def _plot_timeline(timed: Timed) -> Figure:
    names = [name for name in TROUBLE if any(kind == name for _, _, kind, _ in timed.trouble)]
    figure, (rate, slow, *trouble) = page.figure_of(9 if names else 6, 3 if names else 2)
    second, every = timed.window_ns / 1e9, []
    for member in sorted({member for member, _ in timed.windows}):
        known = [window for who, window in timed.windows if who == member]
        windows = range(min(known), max(known) + 1)  # with those in which nothing came
        xs = [max(0, _begin_of(timed, window) - timed.begin_ns) / 1e9 for window in windows]
        found = [timed.windows.get((member, window), (0, 0, Counter())) for window in windows]
        rate.step(xs, [count / second for count, _, _ in found], where="post", label=member, marker=_marker(known))
        ys = [max(1, percentile(each, 0.99)) / 1e9 if each else math.nan for _, _, each in found]
        slow.step(xs, ys, where="post", label=member, marker=_marker(known))
        every += [y for y in ys if not math.isnan(y)]
    for axes in trouble:
        for name in names:
            at = [((ns - timed.begin_ns) / 1e9, count) for _, ns, kind, count in timed.trouble if kind == name]
            axes.scatter([when for when, _ in at], [count for _, count in at], label=name, s=18)
        axes.set(ylabel="counted in a second")
        page.counting_axis(axes)
        axes.legend(fontsize="small")
    for axes in (rate, slow, *trouble):
        for ns, _ in timed.marks:
            axes.axvline((ns - timed.begin_ns) / 1e9, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    rate.legend(fontsize="small")
    rate.set(ylabel="messages/s", title="Deliveries, latency and trouble over time; dotted: views and events")
    page.counting_axis(rate)
    slow.set(ylabel="p99 latency")
    page.log_axis(slow, "y", every, "s")
    seconds = max((timed.end_ns - timed.begin_ns) / 1e9, second)
    last = [rate, slow, *trouble][-1]
    last.set(xlabel="seconds since the first delivery", xlim=(-0.02 * seconds, 1.02 * seconds))
    return figure


def _marker(points: Sequence[Any]) -> str | None:
    return "o" if len(points) <= page.FEW else None


def page_of(timed: Timed, rows: Sequence[Mapping[str, Any]], images: Mapping[str, bytes], title: str) -> str:
    """One HTML page, its images within."""
    found, every = findings(timed), timed.every
    seconds = max(timed.end_ns - timed.begin_ns, 1) / 1e9
    figures = {"deliveries": f"{every.total() + timed.before_sent.total():,}", "time": page.span(seconds * 1e9)}
    if every:
        figures |= {f"p{share * 100:g} latency": page.span(percentile(every, share)) for share in PERCENTILES[::2]}
        figures["slowest"] = page.span(bucket_top(max(every)))
    names = _columns(rows)
    return page.page(
        title,
        f"seqcast report: {page.clock(timed.begin_ns)} to {page.clock(timed.end_ns)} UTC",
        page.paragraph(summary(timed)),
        page.verdict(NOTHING if not found else f"{_number(len(found), 'thing')} to look at:", good=not found),
        page.items(found),
        page.cards(figures),
        page.heading("Latency by member and sender"),
        page.table(
            [TITLES.get(name, name) for name in names], [[row[name] for name in names] for row in rows], kind="total"
        ),
        page.paragraph(f"{_about(rows)} Percentiles are at most 3 % too high.", "small"),
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
