"""A stream of journals as under Spark, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from seqcast.spark import follow
from seqcast.spark.options import Following
from seqcast.spark.source import JournalStream
from seqcast.spark.wanted import Wanted


class Query:
    """Spark's handling of a stream: plans batches, and reads each in tasks. ``again`` is a restart from the
    checkpoint, with which the last batch is read once more."""

    def __init__(self, *stores: Any, **settings: Any) -> None:
        self.stores = stores
        self.settings = {"failover_s": 0.0, **settings}
        self.log: list[Any] = []
        self.out: list[list[bytes]] = []
        self.again()

    def again(self, *stores: Any) -> None:
        self.stream = pickle.loads(
            pickle.dumps(JournalStream(stores or self.stores, Following(**self.settings), Wanted()))
        )
        self.stream.idle_s = 0.0
        if not self.log:
            self.log.append(self.stream.initialOffset())
        elif self.out:
            assert self._read(*self.log[-2:]) == self.out[-1]

    def step(self, rows_max: int = 0) -> int:
        """Rows of one batch."""
        end = self.stream.latestOffset(self.log[-1], ReadMaxRows(rows_max) if rows_max else ReadAllAvailable())
        if end == self.log[-1]:
            return 0
        self.out.append(self._read(self.log[-1], end))
        self.log.append(end)
        return len(self.out[-1])

    def run(self, rows_max: int = 0) -> list[bytes]:
        empty = 0
        while True:
            before = self.log[-1]
            empty = 0 if self.step(rows_max) else empty + 1
            if self.log[-1] == before:
                return self.rows
            assert empty < 4, "it goes round among journals"  # each without rows may go to another one

    @property
    def rows(self) -> list[bytes]:
        return [payload for batch in self.out for payload in batch]

    def _read(self, start: Any, end: Any) -> list[bytes]:
        parts = pickle.loads(pickle.dumps(self.stream.partitions(start, end)))
        return [row for part in parts for batch in self.stream.read(part) for row in batch["payload"].to_pylist()]


class Tagged(Query):
    """Takes the identities of the rows in place of their payloads."""

    def _read(self, start: Any, end: Any) -> list[Any]:
        parts = pickle.loads(pickle.dumps(self.stream.partitions(start, end)))
        names = "view_tag", "sender_id", "seqno", "index"
        of_parts = [batch for part in parts for batch in self.stream.read(part)]
        mask = (1 << 64) - 1
        return [
            (tag & mask, sender & mask, seqno, index)
            for batch in of_parts
            for tag, sender, seqno, index in zip(*(batch[name].to_pylist() for name in names), strict=True)
        ]


def followed_by(name: str, kind: Any, *stores: Any, **settings: Any) -> Any:
    """A query that begins with the journal of a member."""
    query = kind(*stores, **settings)
    found = next(each for each in query.stream._follower.all() if each.journal.member.name == name)
    query.log[:] = [follow.offset_of(found, 0)]
    return query
