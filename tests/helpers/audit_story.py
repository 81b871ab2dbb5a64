"""A group's deliveries, as journals in which the tests of the audit plant faults."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from journal_data import Row, journal, member, view

from seqcast.spark.verdicts import Report
from seqcast.types import Member, View

A, B, C, D, E = (member(name) for name in "abcde")
Story = list[tuple[View, list[Row]]]


class Script:
    """A group's deliveries: four members, then E joins, then A, the sequencer, crashes, then D leaves."""

    def __init__(self, order: str = "sequencer", counter: int = 0) -> None:
        self.order = order
        self.v1 = view(counter + 1, [A, B, C, D], order)
        self.v2 = view(counter + 2, [A, B, C, D, E], order)
        self.v3 = view(counter + 3, [B, C, D, E], order)
        self.v4 = view(counter + 4, [B, C, E], order)
        self.seqnos: dict[Member, int] = defaultdict(int)
        rows = {of: self.rows_of(of, 60) for of in (self.v1, self.v2, self.v3, self.v4)}
        lives = {
            A: [self.v1, self.v2],
            B: [self.v1, self.v2, self.v3, self.v4],
            C: [self.v1, self.v2, self.v3, self.v4],
            D: [self.v1, self.v2, self.v3],
            E: [self.v2, self.v3, self.v4],
        }
        self.stories: dict[Member, Story] = {who: [(of, list(rows[of])) for of in life] for who, life in lives.items()}
        self.at(A, self.v2)[40:] = []  # A crashed before the others delivered the rest
        self.at(D, self.v3)[50:] = []  # D left after so many deliveries

    def rows_of(self, of: View, packets: int) -> list[Row]:
        rows: list[Row] = []
        for packet in range(packets):
            sender = of.members[packet % len(of.members)]
            self.seqnos[sender] += 1 + packet % 2  # a packet in which no message ends skips a seqno
            for index in range(1 + packet % 3):
                seqno = 0 if self.order in ("fifo", "causal") else len(rows) + 1
                rows.append(Row(sender, self.seqnos[sender], index, seqno, b"%d/%d" % (packet, index)))
        return rows

    def at(self, who: Member, of: View) -> list[Row]:
        return next(rows for other, rows in self.stories[who] if other == of)

    def write(self, top: Path, **settings: Any) -> Path:
        for who, story in self.stories.items():
            journal(top, who, story, closed=None if who is A else "leave", **settings)
        return top


def relabel(rows: list[Row]) -> None:
    rows[:] = [replace(row, global_seqno=at) for at, row in enumerate(rows, 1)]


def failed(report: Report) -> set[str]:
    return {verdict.check for verdict in report.verdicts.values() if verdict.result is False}
