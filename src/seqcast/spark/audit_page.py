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
    parts = [page.paragraph(audit.summary, str(audit.holds).lower())]
    for report in audit.reports:
        own = [journal for journal in journals if journal.cluster == report.cluster]
        parts += [page.heading(f"Cluster {report.cluster}"), *_cluster(report, own)]
    return page.page("seqcast audit", *parts)


def _cluster(report: Report, journals: Sequence[Journal]) -> list[str]:
    verdicts = report.verdicts.values()
    rows = [(verdict.check, WORDS[verdict.result], verdict.compared, CHECKS[verdict.check]) for verdict in verdicts]
    parts = [page.table(("check", "result", "compared", "what it says"), rows, words=True)]
    for verdict in verdicts:
        if verdict.violations:
            count = f"{verdict.check}: {verdict.violations:,} found, the first of them"
            parts += [page.paragraph(count, "false"), page.items(verdict.examples[:EXAMPLES])]
    parts.append(page.paragraph(f"{report.journals} journals, {report.rows:,} rows, torn tails skipped: {report.torn}"))
    parts.append(page.items(report.notes))
    names = Names(journals)
    figures = {"views": _plot_views(journals, names), "delivered": _plot_delivered(report)}
    return [*parts, page.pictures({name: page.png(figure) for name, figure in figures.items()})]


def _plot_views(journals: Sequence[Journal], names: Names) -> Figure:
    """Members one below the other; a bar for each view, in the colour of its id, while the member was in it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.35 * len(journals)), layout="constrained")
    axes = figure.subplots()
    begin = min((view.at_ns for journal in journals for view in journal.views), default=0)
    end = max((view.at_ns for journal in journals for view in journal.views), default=0)
    for number, journal in enumerate(journals):
        views = journal.views[:VIEWS]
        since = [(view.at_ns - begin) / 1e9 for view in views]
        until = [*since[1:], (end - begin) / 1e9 + 0.05 * max((end - begin) / 1e9, 0.1)]
        colours = [f"C{view.tag % 10}" for view in views]
        axes.barh(number, [b - a for a, b in zip(since, until[: len(since)], strict=True)], left=since, color=colours,
                  edgecolor="white")  # fmt: skip
    axes.set_yticks(range(len(journals)), [names.journal(number) for number in range(len(journals))])
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title="Views of each member; members in one view have one colour at one time")
    return figure


def _plot_delivered(report: Report) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    members = sorted({member for member, _ in report.delivered})
    below = [0] * len(members)
    for sender in sorted({sender for _, sender in report.delivered}):
        counts = [report.delivered.get((member, sender), 0) for member in members]
        axes.bar(members, counts, bottom=below, label=f"from {sender}")
        below = [one + other for one, other in zip(below, counts, strict=True)]
    axes.set(ylabel="messages", title="What each member delivered, by sender")
    if members:
        axes.legend(fontsize="small")
    return figure
