"""Verdicts: the check, whether it holds, how much was compared, and the first counter-example."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKS = {
    "views": "members agree on each view, and view ids grow at each member",
    "total order": "a global seqno is the same message everywhere, delivered in that order",
    "agreement": "members with the same successor view delivered the same messages; others as far as is promised",
    "transitional": "only the end of a view is transitional, from the same place on, and its stable point is before it",
    "fifo": "each sender's messages were delivered in the order sent",
    "causal": "a message comes after all that its sender had delivered when it sent it",
    "duplicates": "no message was delivered twice",
    "gaps": "no global seqno and no message of a packet is left out",
    "sending view": "a message was delivered in one view only, of which its sender is a member",
    "integrity": "a message has the same payload everywhere, and the one that was delivered",
}


WORDS = {True: "true", False: "FALSE", None: "not checked"}
"""How a verdict reads."""
EXAMPLES = 100
"""At most this many counter-examples of a check are kept; all are counted."""


@dataclass(slots=True)
class Verdict:
    """One line of the table.

    Args:
        compared: the kind compared, and how many; empty: there was nothing to compare.
        violations: how many were found; a lower bound if only examples were examined.
        examples: the first counter-examples: who, where, what.
    """

    check: str
    compared: str = ""
    violations: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def first(self) -> str | None:
        return self.examples[0] if self.examples else None

    @property
    def result(self) -> bool | None:
        """True, false, or None: not checked."""
        if self.violations:
            return False
        return True if self.compared else None


@dataclass(slots=True)
class Report:
    """All verdicts of one cluster."""

    cluster: str
    journals: int
    rows: int
    torn: int
    verdicts: dict[str, Verdict] = field(default_factory=lambda: {check: Verdict(check) for check in CHECKS})
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    delivered: dict[tuple[str, str], int] = field(default_factory=dict)
    """(member, sender) -> messages."""
    unexamined: int = 0
    """Buckets that differ and were not compared row by row. A check that no others refute is then not checked."""

    def violation(self, check: str, what: str, count: int = 1) -> None:
        verdict = self.verdicts[check]
        verdict.violations += count
        if len(verdict.examples) < EXAMPLES:
            verdict.examples.append(what)

    @property
    def holds(self) -> bool:
        return all(verdict.result is not False for verdict in self.verdicts.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "holds": self.holds,
            "journals": self.journals,
            "rows": self.rows,
            "torn_tails": self.torn,
            "seconds": round(self.seconds, 3),
            "checks": [
                {**asdict(verdict), "first": verdict.first, "result": verdict.result}
                for verdict in self.verdicts.values()
            ],
            "notes": self.notes,
        }

    def as_text(self) -> str:
        lines = [f"{'check':14}{'result':13}compared", "-" * 78]
        for verdict in self.verdicts.values():
            lines.append(f"{verdict.check:14}{WORDS[verdict.result]:13}{verdict.compared}")
        for verdict in self.verdicts.values():
            if verdict.first:
                lines += ["", f"{verdict.check} does not hold: {CHECKS[verdict.check]}"]
                lines.append(f"  first of {verdict.violations}: {verdict.first}")
        lines += ["", f"{self.journals} journals, {self.rows:,} rows, torn tails skipped: {self.torn}"]
        lines += [f"note: {note}" for note in self.notes]
        lines.append(_summary(self.holds))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdicts of one audit: a report for each cluster, in the order of their names."""

    reports: tuple[Report, ...]

    @property
    def holds(self) -> bool:
        """Whether every guarantee that was checked holds in every cluster."""
        return all(report.holds for report in self.reports)

    @property
    def summary(self) -> str:
        """The verdict in a sentence."""
        return _summary(self.holds)

    def as_json(self) -> dict[str, Any]:
        """``holds`` and ``clusters``; with a single cluster, its report's fields beside them."""
        clusters = [report.as_json() for report in self.reports]
        alone = clusters[0] if len(clusters) == 1 else {}
        return {**alone, "holds": self.holds, "clusters": clusters}

    def as_text(self) -> str:
        if len(self.reports) == 1:
            return self.reports[0].as_text()
        parts = [f"cluster {report.cluster!r}\n{report.as_text()}" for report in self.reports]
        return "\n\n".join([*parts, f"{len(self.reports)} clusters: {self.summary}"])

    def counterexamples(self, spark: SparkSession) -> DataFrame:
        """The counter-examples: ``cluster``, ``check``, ``number`` (from 1, in the check) and ``what``; at most
        `EXAMPLES` of a check."""
        rows = [
            (report.cluster, verdict.check, number, what)
            for report in self.reports
            for verdict in report.verdicts.values()
            for number, what in enumerate(verdict.examples, 1)
        ]
        return spark.createDataFrame(rows, "cluster string, `check` string, number int, what string")


def _summary(holds: bool) -> str:
    return "every guarantee that was checked holds" if holds else "NOT every guarantee holds"
