"""The options of the format: which rows and columns are read, and how a stream follows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal
from seqcast.journal.tables import journal_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

WHERE = ("path", "paths", "tap", "token", "tokenFile", "certificateFile")
ROWS = ("view", "sender", "since", "until", "columns")
STREAM = ("startingOffset", "maxRowsPerBatch", "failoverAfter", "failOnDataLoss", "onNewGroup")
SINK = (
    "cluster", "interface", "port", "order", "preset", "partition", "members", "timeout", "maxBatchBytes",
    "path", "checkpointLocation", "queryName",
)  # fmt: skip
"""Names of options; the last three are Spark's own."""
SCHEMA = {
    "member": "string", "idx": "bigint", "view_counter": "bigint", "view_tag": "bigint", "global_seqno": "bigint",
    "sender": "string", "sender_id": "bigint", "seqno": "bigint", "index": "int", "length": "int",
    "sent_at": "timestamp", "delivered_at": "timestamp", "payload_hash": "bigint", "transitional": "boolean",
    "payload": "binary",
}  # fmt: skip
"""The columns and their types. ``member``: owner of the journal; ``sender_id``, ``view_tag`` and ``payload_hash``: 64
unsigned bits kept as signed; ``payload``: null if the journal keeps hashes; ``transitional``: null in journals of a
version before 7. Otherwise as in docs/journal.md."""

NULLABLE = ("transitional", "payload")


@dataclass(frozen=True)
class Wanted:
    """Which rows are read, by the options of a source. Spark's own push-down of filters is not used: as of 4.3 a
    DataFrame keeps what was pushed for one query and applies it to the next one that has no such filter.

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
    """What Spark expects of a batch, if it said."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wanted:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        counters = _listed(options.get("view", ""))
        if not all(counter.isascii() and counter.isdecimal() for counter in counters):
            raise UsageError(f"view={options['view']!r}: give counters of views, separated by commas")
        return cls(
            frozenset(map(int, counters)),
            frozenset(_listed(options.get("sender", ""))),
            _time_ns("since", options.get("since"), 0),
            _time_ns("until", options.get("until"), (1 << 63) - 1),
            columns_of(options),
        )

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
            raise UsageError(f"schema has the columns {', '.join(names)}, and option columns others: give one of both")
        for field in schema:
            if (kind := field.dataType.simpleString()) != SCHEMA[field.name]:
                raise UsageError(
                    f"schema: column {field.name} is {SCHEMA[field.name]}, not {kind}: cast it in the query"
                )
            if not field.nullable and field.name in NULLABLE:
                raise UsageError(f"schema: column {field.name} may be null: leave out NOT NULL")
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
        return needed

    def span(self, journal: Journal) -> tuple[int, int]:
        """First position of the rows of the wanted views, and the one behind the last."""
        ends = [*(view.idx for view in journal.views[1:]), 1 << 62]
        kept = [
            (view.idx, end)
            for view, end in zip(journal.views, ends, strict=False)
            if not self.views or view.view_id.counter in self.views
        ]
        return min((begin for begin, _ in kept), default=0), max((end for _, end in kept), default=0)

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
        for mask in kept[1:]:
            kept[0] = pc.and_(kept[0], mask)
        return batch.filter(kept[0]) if kept else batch


@dataclass(frozen=True)
class Following:
    """How a stream follows, by its options.

    Args:
        starting: "earliest" or "latest", if there is no checkpoint.
        max_rows: of a batch; 0: no limit.
        fail_on_data_loss: whether it is an error if retention removed rows before they were read, or if the stream gave
            out rows that no other member has.
        failover_s: a member that seems lost for this long counts as lost.
        on_new_group: "fail" or "continue", behind the last row of the old one, where the whole group is started again.
    """

    starting: str = "earliest"
    max_rows: int = 0
    fail_on_data_loss: bool = True
    failover_s: float = 5.0
    on_new_group: str = "fail"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Following:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        return cls(
            _one_of(options, "startingOffset", ("earliest", "latest")),
            _positive(options, "maxRowsPerBatch"),
            _one_of(options, "failOnDataLoss", ("true", "false")) == "true",
            _seconds(options, "failoverAfter", 5.0),
            _one_of(options, "onNewGroup", ("fail", "continue")),
        )


def check_names(options: Mapping[str, str], known: Sequence[str], of: str) -> None:
    """
    Args:
        known: the names that mean something here; Spark ignores their case.
        of: what has these options.

    Raises:
        UsageError: an option has another name.
    """
    names = {name.lower(): name for name in known}
    for option in options:
        if option.lower() not in names:
            close = difflib.get_close_matches(option.lower(), names, 1)
            hint = f"did you mean {names[close[0]]}?" if close else f"it has {', '.join(sorted(known, key=str.lower))}"
            raise UsageError(f"{of} has no option {option!r}: {hint}")


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """
    Raises:
        UsageError: there is no such column, or one is named twice.
    """
    names = tuple(_listed(options.get("columns", ""))) or tuple(SCHEMA)
    check_columns(f"columns={options.get('columns')!r}", names)
    return names


def check_columns(where: str, names: Sequence[str]) -> None:
    """
    Raises:
        UsageError: there is no such column, or one is named twice.
    """
    for name in names:
        if name not in SCHEMA:
            close = difflib.get_close_matches(name, SCHEMA, 1)
            hint = f"did you mean {close[0]}?" if close else f"give some of {', '.join(SCHEMA)}"
            raise UsageError(f"{where}: there is no column {name!r}; {hint}")
    if len(set(names)) != len(names):
        raise UsageError(f"{where}: give each column once")


def _one_of(options: Mapping[str, str], name: str, values: Sequence[str]) -> str:
    """The value of an option; the first one is the default."""
    value = options.get(name, values[0])
    if value.lower() not in values:
        raise UsageError(f"{name}={value!r}: give {' or '.join(map(repr, values))}")
    return value.lower()


def _positive(options: Mapping[str, str], name: str) -> int:
    """0: not given."""
    value = options.get(name)
    if value is None:
        return 0
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise UsageError(f"{name}={value!r}: give a positive whole number")
    return int(value)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise UsageError(f"{name}={options[name]!r}: give a number of seconds")
    return value


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _time_ns(name: str, text: str | None, default: int) -> int:
    """ns since 1970, of a time from then to 2262: 64 bits have no others."""
    if text is None:
        return default
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        how = "give a time such as 2026-11-22T10:00:00+00:00 (UTC without a zone)"
        raise UsageError(f"{name}={text!r}: {how}") from None
    since_1970 = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return min(max(0, since_1970 // timedelta(microseconds=1) * 1000), (1 << 63) - 1)
