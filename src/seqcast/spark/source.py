"""Journals as a table and as a stream: ``spark.read.format("seqcast")`` and ``spark.readStream.format("seqcast")``.

``seqcast.spark.register(spark)`` makes the format known to a session. Rows are read in tasks, as Arrow batches, from
the files of the journals: the workers need the package ``seqcast[journal]`` and the files under the same path.

A stream follows one member's journal, also while it is written. Its offsets are positions in that journal, and the row
at a position never changes, so a batch that is read again after a crash has the same rows: with an idempotent sink each
message arrives exactly once. Positions in the journals of two members differ (each counts what its member was
delivered), so an offset names its member, and a stream does not continue with the journal of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal, Segment, extent, find, read, segment_batches
from seqcast.journal.schema import COLUMNS, JournalError, signed
from seqcast.spark.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT = "seqcast"
SCHEMA = (
    "member string, idx bigint, view_counter bigint, view_tag bigint, global_seqno bigint, sender string, "
    "sender_id bigint, seqno bigint, `index` int, length int, sent_at timestamp, delivered_at timestamp, "
    "payload_hash bigint, payload binary"
)
"""``member``: whose journal it is; ``sender_id``, ``view_tag`` and ``payload_hash``: 64 unsigned bits kept as signed;
``payload``: null where the journal keeps hashes. Else as in docs/journal.md."""

PARTITION_BYTES = 128 << 20
"""Segments are gathered to this much for a task."""
PARTITION_ROWS = 1 << 20
"""Rows of a stream's batch for a task."""


def register(spark: SparkSession) -> None:
    """Makes the format ``seqcast`` known to a session."""
    spark.dataSource.register(JournalSource)


@dataclass(frozen=True)
class Wanted:
    """Which rows are read, by the options of a source. Not by Spark's own push-down of filters: as of 4.3 a DataFrame
    keeps what was pushed for one query and applies it to the next one that has no such filter.

    Args:
        views: counters; empty: all.
        senders: names; empty: all.
        since_ns, until_ns: time of delivery, the second exclusive, ns since 1970.
    """

    views: frozenset[int] = frozenset()
    senders: frozenset[str] = frozenset()
    since_ns: int = 0
    until_ns: int = (1 << 63) - 1

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wanted:
        """
        Raises:
            UsageError: an option has a value that it cannot have.
        """
        counters = _listed(options.get("view", ""))
        if not all(counter.isdecimal() for counter in counters):
            raise UsageError(f"view={options['view']!r}: give counters of views, separated by commas")
        return cls(
            frozenset(map(int, counters)),
            frozenset(_listed(options.get("sender", ""))),
            _time_ns("since", options.get("since")) or 0,
            _time_ns("until", options.get("until")) or (1 << 63) - 1,
        )

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
        """The wanted rows of a batch of a journal, whose senders have these names."""
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


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _time_ns(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        how = "give a time such as 2026-11-22T10:00:00+00:00 (UTC without a zone)"
        raise UsageError(f"{name}={text!r}: {how}") from None
    since_1970 = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_1970 // timedelta(microseconds=1)) * 1000


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: of segments, each with the position of its first row, the rows ``first`` to ``end`` - 1."""

    member: str
    names: dict[int, str]
    has_payload: bool
    segments: tuple[tuple[int, Segment], ...]
    wanted: Wanted
    first: int
    end: int


class JournalSource(DataSource):
    """The format. Options: ``path`` (``load(path)``), a member's journal or a directory of journals; ``view``,
    ``sender``, ``since`` and ``until``, see `Wanted`; for streams also ``startingOffset`` ("earliest", "latest"),
    ``maxRowsPerBatch``, and ``failOnDataLoss`` ("false": begin with what retention has kept)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return JournalReader(self._path(), Wanted.of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return Sink(schema, self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        found = find([self._path()])
        if len(found) != 1:
            raise UsageError(
                f"{self._path()} holds {len(found)} journals, and a stream follows one: load one of "
                + ", ".join(str(journal.path) for journal in found)
            )
        starting = self.options.get("startingOffset", "earliest")
        if starting not in ("earliest", "latest"):
            raise UsageError(f"startingOffset={starting!r}: give 'earliest' or 'latest'")
        limit = self.options.get("maxRowsPerBatch")
        if limit is not None and not (limit.isdecimal() and int(limit)):
            raise UsageError(f"maxRowsPerBatch={limit!r}: give a positive number of rows")
        loss = self.options.get("failOnDataLoss", "true").lower()
        if loss not in ("true", "false"):
            raise UsageError(f"failOnDataLoss={loss!r}: give 'true' or 'false'")
        wanted = Wanted.of(self.options)
        return JournalStream(found[0], starting, int(limit) if limit else 0, loss == "true", wanted)

    def _path(self) -> str:
        path = self.options.get("path")
        if not path:
            raise UsageError('no path: .load("journals") names a member\'s journal, or a directory of journals')
        return str(path)


class JournalReader(DataSourceReader):
    """Reads journals as they are at the time of planning."""

    def __init__(self, path: str, wanted: Wanted) -> None:
        self._path = path
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        parts: list[Part] = []
        for journal in find([self._path]):
            first, end = self._wanted.span(journal)
            gathered: list[tuple[int, Segment]] = []
            for position, segment in [*_positions(journal), (end, None)]:
                size = sum(each.size for _, each in gathered)
                if gathered and (segment is None or size + segment.size > PARTITION_BYTES):
                    rest = journal.payload == "full", tuple(gathered), self._wanted, first, end
                    parts.append(Part(journal.member.name, _names(journal), *rest))
                    gathered = []
                if segment is not None and position < end and position + segment.rows > first:
                    if segment.live or segment.last_ns >= self._wanted.since_ns:
                        gathered.append((position, segment))
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Where there is no partition, Spark makes one of its own.
        return _rows(partition) if isinstance(partition, Part) else iter(())


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one member's journal.

    Args:
        journal: as it was found.
        starting: "earliest" or "latest", where there is no checkpoint.
        max_rows: of a batch; 0: all there is.
        fail_on_data_loss: whether rows that retention removed before they were read are an error.
        wanted: which rows are given out; offsets count all.
    """

    def __init__(
        self, journal: Journal, starting: str, max_rows: int, fail_on_data_loss: bool, wanted: Wanted = Wanted()
    ) -> None:
        self._path = journal.path
        self._starting = starting
        self._max_rows = max_rows
        self._fail_on_data_loss = fail_on_data_loss
        self._wanted = wanted
        self._member = f"{journal.member.id:016x}"
        self._target: int | None = None  # of Trigger.AvailableNow

    def initialOffset(self) -> dict[str, Any]:
        first, end = extent(self._path)
        return self._offset(end if self._starting == "latest" else first)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._position(start)
        first, end = extent(self._path)
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxRows):
            end = min(end, max(begin, first) + limit.max_rows)
        return self._offset(max(begin, end))

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._offset(extent(self._path)[1])

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = extent(self._path)[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = self._position(start), self._position(end)
        if begin >= until:
            return []
        journal = read(self._path)
        if begin < journal.first_idx and self._fail_on_data_loss:
            raise JournalError(
                f"{self._path}: rows {begin} to {journal.first_idx - 1} were removed by the journal's retention before "
                "this query read them: keep more (journal_keep_s, journal_keep_bytes), or set failOnDataLoss=false to "
                "go on without them"
            )
        if journal.end_idx < until:
            raise JournalError(
                f"{self._path} ends at row {journal.end_idx}, and this query has read up to row {until}: it is not the "
                "journal that the query's checkpoint belongs to, or a crash of the machine took its tail"
            )
        names, parts = _names(journal), []
        positions = list(_positions(journal))
        for at in range(max(begin, journal.first_idx), until, PARTITION_ROWS):
            end_at = min(at + PARTITION_ROWS, until)
            within = tuple(
                (first, segment) for first, segment in positions if first < end_at and first + segment.rows > at
            )
            rest = journal.payload == "full", within, self._wanted, at, end_at
            parts.append(Part(journal.member.name, names, *rest))
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return _rows(partition)

    def _offset(self, position: int) -> dict[str, Any]:
        return {"member": self._member, "idx": position}

    def _position(self, offset: dict[str, Any]) -> int:
        if offset["member"] != self._member:
            raise JournalError(
                f"{self._path} is the journal of member {self._member}, and the query's checkpoint is of member "
                f"{offset['member']}: positions of journals differ; start the query with a new checkpoint"
            )
        return int(offset["idx"])


def _positions(journal: Journal) -> Iterator[tuple[int, Segment]]:
    """Each segment with the position of its first row."""
    position = journal.first_idx
    for segment in journal.segments:
        if segment.rows:
            yield position, segment
        position += segment.rows


def _names(journal: Journal) -> dict[int, str]:
    return {signed(member.id): member.name for view in journal.views for member in view.members}


def _rows(part: Part) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of a part, in the columns of ``SCHEMA``."""
    columns = [*COLUMNS, "payload"] if part.has_payload else [*COLUMNS]
    for position, segment in part.segments:
        at = position
        for batch in segment_batches(segment, columns):
            begin, end = max(at, part.first), min(at + batch.num_rows, part.end)
            at += batch.num_rows
            if begin < end:
                kept = part.wanted.among(batch.slice(begin - at + batch.num_rows, end - begin), part.names)
                if kept.num_rows:
                    yield _as_row(kept, part)


def _as_row(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    def at(name: str) -> pa.Array:  # Spark's timestamps have microseconds
        micros = pc.divide(batch[name], 1000)
        return micros.cast(pa.timestamp("us", tz="UTC"))

    senders = batch["sender"].dictionary_encode()
    names = [part.names.get(sender, f"{sender & (1 << 64) - 1:016x}") for sender in senders.dictionary.to_pylist()]
    arrays = {
        "member": pa.repeat(part.member, batch.num_rows),
        "idx": batch["idx"],
        "view_counter": batch["view_counter"],
        "view_tag": batch["view_tag"],
        "global_seqno": batch["global_seqno"],
        "sender": pa.array(names, pa.string()).take(senders.indices),
        "sender_id": batch["sender"],
        "seqno": batch["seqno"],
        "index": batch["index"],
        "length": batch["length"],
        "sent_at": at("sent_ns"),
        "delivered_at": at("delivered_ns"),
        "payload_hash": batch["payload_hash"],
        "payload": batch["payload"] if part.has_payload else pa.nulls(batch.num_rows, pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
