"""Verdicts: what was checked, whether it holds, how much was compared, and the first counter-example."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

CHECKS = {
    "views": "members agree on each view, and view ids grow at each member",
    "total order": "a global seqno is the same message everywhere, delivered in that order",
    "agreement": "members with the same successor view delivered the same messages; others a prefix",
    "fifo": "each sender's messages were delivered in the order sent",
    "duplicates": "no message was delivered twice",
    "gaps": "no global seqno and no message of a packet is left out",
    "sending view": "a message was delivered in one view only, of which its sender is a member",
    "integrity": "a message has the same payload everywhere, and the one that was delivered",
}


@dataclass(slots=True)
class Verdict:
    """One line of the table.

    Args:
        compared: what was looked at, with how many; empty: there was nothing to compare.
        violations: how many were found; a lower bound where only examples were examined.
        first: the first counter-example: who, where, what.
    """

    check: str
    compared: str = ""
    violations: int = 0
    first: str | None = None

    @property
    def result(self) -> bool | None:
        """True, false, or None: not checked."""
        if self.violations:
            return False
        return True if self.compared else None


@dataclass(slots=True)
class Report:
    """All verdicts of one audit."""

    journals: int
    rows: int
    torn: int
    verdicts: dict[str, Verdict] = field(default_factory=lambda: {check: Verdict(check) for check in CHECKS})
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    unexamined: int = 0
    """Buckets that differ and were not compared row by row; what is not refuted by others is then not checked."""

    def violation(self, check: str, what: str, count: int = 1) -> None:
        verdict = self.verdicts[check]
        verdict.violations += count
        verdict.first = verdict.first or what

    @property
    def holds(self) -> bool:
        return all(verdict.result is not False for verdict in self.verdicts.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "journals": self.journals,
            "rows": self.rows,
            "torn_tails": self.torn,
            "seconds": round(self.seconds, 3),
            "checks": [{**asdict(verdict), "result": verdict.result} for verdict in self.verdicts.values()],
            "notes": self.notes,
        }

    def as_text(self) -> str:
        words = {True: "true", False: "FALSE", None: "not checked"}
        lines = [f"{'check':14}{'result':13}compared", "-" * 78]
        for verdict in self.verdicts.values():
            lines.append(f"{verdict.check:14}{words[verdict.result]:13}{verdict.compared}")
        for verdict in self.verdicts.values():
            if verdict.first:
                lines += ["", f"{verdict.check} does not hold: {CHECKS[verdict.check]}"]
                lines.append(f"  first of {verdict.violations}: {verdict.first}")
        lines += ["", f"{self.journals} journals, {self.rows:,} rows, torn tails skipped: {self.torn}"]
        lines += [f"note: {note}" for note in self.notes]
        lines.append("every guarantee that was checked holds" if self.holds else "NOT every guarantee holds")
        return "\n".join(lines)
