"""Which rows and columns are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from seqcast.config.check import closest
from seqcast.errors import UsageError
from seqcast.journal.live import values_of
from seqcast.journal.reader import Journal
from seqcast.journal.segments import Segment
from seqcast.journal.tables import journal_columns
from seqcast.spark.options import comma_separated, time_ns
from seqcast.spark.payload import BYTES, Payload

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SCHEMA = {
    "member": "string", "idx": "bigint", "view_counter": "bigint", "view_tag": "bigint", "global_seqno": "bigint",
    "sender": "string", "sender_id": "bigint", "seqno": "bigint", "index": "int", "length": "int",
    "sent_at": "timestamp", "delivered_at": "timestamp", "payload_hash": "bigint", "transitional": "boolean",
    "payload": "binary",
}  # fmt: skip
"""The columns and their types. ``member``: owner of the journal; ``sender_id``, ``view_tag`` and ``payload_hash``: 64
unsigned bits kept as signed; ``payload``: null if the journal keeps hashes. Otherwise as in
docs/journal.md."""

Last = tuple[tuple[int, int, int], ...]
"""The last message of each sender: its id, signed, with seqno and index."""


@dataclass(frozen=True)
class Wanted:
    """Which rows are read, by the options of a source. Spark's own push-down of filters is not used: as of 4.3 a
    DataFrame keeps the filters pushed for one query and applies it to the next one that has no such filter.

    Args:
        views: counters; empty: all.
        senders: names; empty: all.
        since_ns, until_ns: time of delivery, the second exclusive, ns since 1970.
        columns: of ``SCHEMA``.
    """

    views: frozenset[int] = frozenset()
    senders: frozenset[str] = frozenset()
    since_ns: int = 0
    until_ns: int = (1 << 63) - 1
    columns: tuple[str, ...] = tuple(SCHEMA)
    arrow: pa.Schema | None = None
    """Spark's requirements on a batch, if given."""
    payload: Payload = BYTES
    behind: Last = ()
    """Only messages after these are wanted, of a sender that is named."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wanted:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        counters = comma_separated(options.get("view", ""))
        if not all(counter.isascii() and counter.isdecimal() for counter in counters):
            raise UsageError(f"view={options['view']!r}: give counters of views, separated by commas")
        return cls(
            frozenset(map(int, counters)),
            frozenset(comma_separated(options.get("sender", ""))),
            time_ns("since", options.get("since"), 0),
            time_ns("until", options.get("until"), (1 << 63) - 1),
            columns_of(options),
            payload=Payload.of(options.get("payload"), options.get("payloadSchema")),
        )

    @property
    def ddl(self) -> str:
        """The schema of the table or stream."""
        kinds = {**SCHEMA, "payload": self.payload.ddl()}
        return ", ".join(f"`{name}` {kinds[name]}" for name in self.columns)

    def given_as(self, schema: StructType, chosen: bool) -> Wanted:
        """With the columns of a schema, which the user may have given.

        Args:
            chosen: whether option ``columns`` names columns, too.

        Raises:
            UsageError: there are no such columns.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        names = tuple(schema.fieldNames())
        check_columns("schema", names)
        if chosen and names != self.columns:
            raise UsageError(f"schema has the columns {', '.join(names)}, and option columns others: give only one")
        kinds = {**SCHEMA, "payload": self.payload.ddl(quote="")}
        for field in schema:
            if (kind := field.dataType.simpleString()) != kinds[field.name]:
                raise UsageError(
                    f"schema: column {field.name} is {kinds[field.name]}, not {kind}: cast the column in the query"
                )
            if not field.nullable and field.name == "payload":
                raise UsageError("schema: column payload may be null: leave out NOT NULL")
        arrow = to_arrow_schema(schema, timezone="UTC")
        return replace(self, columns=names, arrow=arrow)

    @property
    def needed(self) -> set[str]:
        """Columns of a journal from which the wanted rows and columns are made."""
        needed = {*journal_columns(self.columns, True)}
        if self.views:
            needed.add("view_counter")
        if self.senders:
            needed.add("sender")
        if self.since_ns or self.until_ns < (1 << 63) - 1:
            needed.add("delivered_ns")
        if self.behind:
            needed.update(("sender", "seqno", "index"))
        return needed

    def spans(self, journal: Journal) -> list[tuple[int, int]]:
        """The positions of the rows of the wanted views, as ranges: the first, and the one after the last."""
        ends = [*(view.idx for view in journal.views[1:]), journal.end_idx]
        views = zip(journal.views, ends, strict=False)
        kept = [(view.idx, end) for view, end in views if not self.views or view.view_id.counter in self.views]
        return joined([(max(begin, journal.first_idx), min(end, journal.end_idx)) for begin, end in kept])

    def holds(self, segment: Segment) -> bool:
        """Whether a segment can have rows that were delivered in the wanted time: known only for rolled segments."""
        return segment.live or (segment.last_ns >= self.since_ns and segment.first_ns < self.until_ns)

    def among(self, batch: pa.RecordBatch, names: Mapping[int, str]) -> pa.RecordBatch:
        """The wanted rows of a journal's batch. ``names``: of senders, by id."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kept = []
        if self.views:
            kept.append(pc.is_in(batch["view_counter"], pa.array(sorted(self.views), pa.int64())))
        if self.senders:
            ids = sorted(sender for sender, name in names.items() if name in self.senders)
            kept.append(pc.is_in(batch["sender"], pa.array(ids, pa.int64())))
        if self.since_ns:
            kept.append(pc.greater_equal(batch["delivered_ns"], self.since_ns))
        if self.until_ns < (1 << 63) - 1:
            kept.append(pc.less(batch["delivered_ns"], self.until_ns))
        if self.behind:
            kept.append(pa.array(_behind(batch, self.behind)))
        for mask in kept[1:]:
            kept[0] = pc.and_(kept[0], mask)
        return batch.filter(kept[0]) if kept else batch


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, without empty ones, and those that follow each other as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], max(begin, end)
        elif begin < end:
            found.append((begin, end))
    return found


def _behind(batch: pa.RecordBatch, last: Last) -> Any:
    """Which rows are behind the last message of their sender, or of a sender that has none."""
    ids, seqnos, places = (np.array(each, np.int64) for each in zip(*last, strict=True))
    senders, seqno = values_of(batch["sender"], "int64"), values_of(batch["seqno"], "int64")
    at = np.minimum(np.searchsorted(ids, senders), len(ids) - 1)
    later = (seqno > seqnos[at]) | ((seqno == seqnos[at]) & (values_of(batch["index"], "int32") > places[at]))
    return later | (ids[at] != senders)


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """
    Raises:
        UsageError: there is no such column, or one is named twice.
    """
    names = tuple(comma_separated(options.get("columns", ""))) or tuple(SCHEMA)
    check_columns(f"columns={options.get('columns')!r}", names)
    return names


def check_columns(where: str, names: Sequence[str]) -> None:
    """
    Raises:
        UsageError: there is no such column, or one is named twice.
    """
    for name in names:
        if name not in SCHEMA:
            close = closest(name, list(SCHEMA))
            hint = f"did you mean {close}?" if close else f"give some of {', '.join(SCHEMA)}"
            raise UsageError(f"{where}: there is no column {name!r}; {hint}")
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: give each column once")
