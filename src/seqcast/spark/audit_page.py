"""The audit as one HTML page: verdicts, counter-examples, and plots of each member's views and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqcast.journal.reader import Journal
from seqcast.spark import page
from seqcast.spark.members import Names
from seqcast.spark.verdicts import CHECKS, WORDS, Audit, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = 20
"""At most this many counter-examples of a check are on the page."""
VIEWS = 500
"""At most this many views of a member are in the picture, the first ones."""


def audit_page(audit: Audit, journals: Sequence[Journal]) -> str:
    """The page. ``journals``: the audited ones."""
    rows = sum(report.rows for report in audit.reports)
    seconds = sum(report.seconds for report in audit.reports)
    of = ", ".join(repr(report.cluster) for report in audit.reports)
    about = f"seqcast audit: {rows:,} rows in the journals of {len(journals)} members, read in {seconds:.1f} s"
    parts = [page.verdict(_headline(audit), good=audit.holds)]
    for report in audit.reports:
        own = [journal for journal in journals if journal.cluster == report.cluster]
        if len(audit.reports) > 1:
            parts.append(page.heading(f"Cluster {report.cluster}"))
        parts += _cluster(report, own)
    return page.page(f"Did the guarantees hold in {of}?", about, *parts)


def _headline(audit: Audit) -> str:
    """Which guarantees are broken, or that none is, and how many were not checked."""
    broken = [
        f"{verdict.check} ({verdict.violations:,})"
        for report in audit.reports
        for verdict in report.verdicts.values()
        if verdict.violations
    ]
    unchecked = {
        verdict.check for report in audit.reports for verdict in report.verdicts.values() if verdict.result is None
    }
    text = f"{audit.summary[:1].upper()}{audit.summary[1:]}"
    if broken:
        text += f": violations of {', '.join(broken)}"
    return f"{text}. Not checked: {', '.join(sorted(unchecked))}." if unchecked else f"{text}."


def _cluster(report: Report, journals: Sequence[Journal]) -> list[str]:
    verdicts = report.verdicts.values()
    counts = {"members' journals": report.journals, "rows": report.rows, "torn tails skipped": report.torn}
    parts = [page.cards({name: f"{count:,}" for name, count in counts.items()})]
    rows = [(verdict.check, WORDS[verdict.result], verdict.compared, CHECKS[verdict.check]) for verdict in verdicts]
    marked = {WORDS[True]: page.GOOD, WORDS[False]: page.BAD}
    parts.append(page.table(("check", "result", "compared", "statement"), rows, kind="words", marked=marked))
    for verdict in verdicts:
        if verdict.violations:
            parts.append(page.heading(f"{verdict.check}: {verdict.violations:,} found, the first of them"))
            parts.append(page.items(verdict.examples[:EXAMPLES]))
    if report.notes:
        parts += [page.heading("Notes"), page.items(report.notes)]
    names = Names(journals)
    figures = {"views": _plot_views(journals, names), "delivered": _plot_delivered(report)}
    parts.append(page.heading("Views and deliveries"))
    return [*parts, page.pictures({name: page.png(figure) for name, figure in figures.items()})]


def _plot_views(journals: Sequence[Journal], names: Names) -> Figure:
    """Members one below the other; a bar for each view while the member was in it. Views that are there at the same
    time, such as those of the sides of a partition, or follow each other have different colours."""
    figure, (axes,) = page.figure_of(1.5 + 0.35 * len(journals))
    begin = min((view.at_ns for journal in journals for view in journal.views), default=0)
    end = max((view.at_ns for journal in journals for view in journal.views), default=0)
    bars = []
    for journal in journals:
        views = journal.views[:VIEWS]
        since = [(view.at_ns - begin) / 1e9 for view in views]
        until = [*since[1:], (end - begin) / 1e9 + 0.05 * max((end - begin) / 1e9, 0.1)]
        bars.append([(view.tag, *span) for view, span in zip(views, zip(since, until, strict=False), strict=True)])
    colours = _colours([bar for of in bars for bar in of])
    for number, of in enumerate(bars):
        axes.barh(number, [until - since for _, since, until in of], left=[since for _, since, _ in of],
                  color=[page.colour(colours[tag]) for tag, *_ in of], edgecolor="white")  # fmt: skip
    axes.set_yticks(range(len(journals)), [names.journal(number) for number in range(len(journals))])
    axes.invert_yaxis()
    axes.set(xlabel="seconds since the first view", title="Views: members in one view have one colour at one time")
    return figure


def _colours(bars: Sequence[tuple[int, float, float]]) -> dict[int, int]:
    """Number of a colour for each view: the least that no view has whose time meets its own.

    Args:
        bars: tag of a view, and since when and until when a member was in it.
    """
    spans: dict[int, tuple[float, float]] = {}
    for tag, since, until in bars:
        low, high = spans.get(tag, (since, until))
        spans[tag] = min(low, since), max(high, until)
    colours: dict[int, int] = {}
    there: list[tuple[float, int]] = []  # when views end that may meet the next one, and their colours
    for tag, (since, until) in sorted(spans.items(), key=lambda each: (each[1], each[0])):
        there = [(end, colour) for end, colour in there if end >= since]
        taken = {colour for _, colour in there}
        colours[tag] = next(colour for colour in range(len(taken) + 1) if colour not in taken)
        there.append((until, colours[tag]))
    return colours


def _plot_delivered(report: Report) -> Figure:
    figure, (axes,) = page.figure_of(4)
    members = sorted({member for member, _ in report.delivered})
    below = [0] * len(members)
    for sender in sorted({sender for _, sender in report.delivered}):
        counts = [report.delivered.get((member, sender), 0) for member in members]
        axes.bar(members, counts, bottom=below, label=f"from {sender}")
        below = [one + other for one, other in zip(below, counts, strict=True)]
    axes.set(ylabel="messages", title="Deliveries of each member, by sender")
    page.counting_axis(axes)
    if members:
        axes.legend(fontsize="small")
    return figure
