"""Journals as a table and as a stream: ``spark.read.format("seqcast")`` and ``spark.readStream.format("seqcast")``.

``seqcast.spark.register(spark)`` makes the format known to a session. Rows are read in tasks, as Arrow batches: from
the files of the journals, which the workers then see under the same path, or from a tap.

A stream follows one member's journal, even while it is written. Its offsets are positions in that journal, and the row
at a position never changes, so a batch that is read again after a crash has the same rows: with an idempotent sink each
message arrives exactly once. When the member is lost the stream continues in another one's journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seqcast._native.columns import texts
from seqcast.errors import UsageError
from seqcast.journal.live import values_of
from seqcast.journal.reader import Installed, Journal, find, journal_files
from seqcast.journal.schema import JournalError, JournalGone
from seqcast.spark import worker
from seqcast.spark.branches import Range, pending
from seqcast.spark.follow import (
    Follower,
    NotYet,
    Reserve,
    branches_left,
    merged_into,
    offset_at,
    offset_of,
    view_text,
)
from seqcast.spark.sink import Sink
from seqcast.spark.stores import Found, Part, Store, given, last_cut, paths_of, pieces, stores_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT = "seqcast"
T = TypeVar("T")
IN_VAIN_MAX = 8
"""A task gives up if so many journals in a row, each there when it was looked for, go away before they give a row."""
SCHEMA = {
    "member": "string", "idx": "bigint", "view_counter": "bigint", "view_tag": "bigint", "global_seqno": "bigint",
    "sender": "string", "sender_id": "bigint", "seqno": "bigint", "index": "int", "length": "int",
    "sent_at": "timestamp", "delivered_at": "timestamp", "payload_hash": "bigint", "transitional": "boolean",
    "payload": "binary",
}  # fmt: skip
"""The columns and their types. ``member``: owner of the journal; ``sender_id``, ``view_tag`` and ``payload_hash``: 64
unsigned bits kept as signed; ``payload``: null if the journal keeps hashes; ``transitional``: null in journals of a
version before 7. Otherwise as in docs/journal.md."""


MADE_OF = {"sender_id": "sender", "sent_at": "sent_ns", "delivered_at": "delivered_ns"}
"""Column of a source -> column of the journal, if the names differ."""


def register(spark: SparkSession) -> None:
    """Makes the format ``seqcast`` known to a session."""
    spark.dataSource.register(JournalSource)


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

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wanted:
        """
        Raises:
            UsageError: the value of an option is invalid.
        """
        counters = _listed(options.get("view", ""))
        if not all(counter.isdecimal() for counter in counters):
            raise UsageError(f"view={options['view']!r}: give counters of views, separated by commas")
        return cls(
            frozenset(map(int, counters)),
            frozenset(_listed(options.get("sender", ""))),
            _time_ns("since", options.get("since"), 0),
            _time_ns("until", options.get("until"), (1 << 63) - 1),
            columns_of(options),
        )

    @property
    def needed(self) -> set[str]:
        """Columns of a journal from which the wanted rows and columns are made."""
        needed = {MADE_OF.get(name, name) for name in self.columns if name != "member"} or {"idx"}
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


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """
    Raises:
        UsageError: there is no such column, or one is named twice.
    """
    names = tuple(_listed(options.get("columns", ""))) or tuple(SCHEMA)
    if unknown := [name for name in names if name not in SCHEMA]:
        given = options["columns"]
        raise UsageError(f"columns={given!r}: there is no {unknown[0]!r}; give some of {', '.join(SCHEMA)}")
    if len(set(names)) != len(names):
        raise UsageError(f"columns={options['columns']!r}: give each column once")
    return names


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


class JournalSource(DataSource):
    """The format. Options: ``path`` (``load(path)``), a member's journal, a directory of journals or a pattern, or
    several of them; ``tap``, addresses of taps, with ``token`` or ``tokenFile``, and ``certificateFile`` for TLS;
    ``view``, ``sender``, ``since``, ``until`` and ``columns``, see `Wanted`; for streams also ``startingOffset``
    ("earliest", "latest"), ``maxRowsPerBatch``, ``failoverAfter`` (seconds), ``failOnDataLoss`` ("false": continue
    without lost rows), and ``onNewGroup`` ("fail", "continue"). As a sink see `seqcast.spark.sink`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"`{name}` {SCHEMA[name]}" for name in columns_of(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        if not self.options.get("tap"):
            for path in paths_of(self.options) or _no_path():
                _check_path(path)
        return JournalReader(stores_of(self.options), Wanted.of(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return Sink(schema, self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        starting = self.options.get("startingOffset", "earliest")
        if starting not in ("earliest", "latest"):
            raise UsageError(f"startingOffset={starting!r}: give 'earliest' or 'latest'")
        limit = self.options.get("maxRowsPerBatch")
        if limit is not None and not (limit.isdecimal() and int(limit)):
            raise UsageError(f"maxRowsPerBatch={limit!r}: give a positive number of rows")
        loss = self.options.get("failOnDataLoss", "true").lower()
        if loss not in ("true", "false"):
            raise UsageError(f"failOnDataLoss={loss!r}: give 'true' or 'false'")
        new = self.options.get("onNewGroup", "fail").lower()
        if new not in ("fail", "continue"):
            raise UsageError(f"onNewGroup={new!r}: give 'fail' or 'continue'")
        after = self.options.get("failoverAfter", "5")
        if not after.replace(".", "", 1).isdecimal():
            raise UsageError(f"failoverAfter={after!r}: give a number of seconds")
        return JournalStream(
            stores_of(self.options),
            starting=starting,
            max_rows=int(limit) if limit else 0,
            fail_on_data_loss=loss == "true",
            failover_s=float(after),
            wanted=Wanted.of(self.options),
            on_new_group=new,
        )


class JournalReader(DataSourceReader):
    """Reads journals as they are at the time of planning."""

    def __init__(self, stores: Sequence[Store], wanted: Wanted) -> None:
        self._stores = stores
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        parts: list[Part] = []
        follower = Follower(self._stores, fail_on_data_loss=True, failover_s=0.0)
        found: dict[int, Found] = {}
        for store in self._stores:
            for journal in store.all():
                found.setdefault(journal.member.id, Found(store, journal))
        for each in sorted(found.values(), key=lambda each: (each.journal.member.name, each.id)):
            begin, end = self._wanted.span(each.journal)
            begin, end = max(begin, each.journal.first_idx), min(end, each.journal.end_idx)
            for first, last in each.store.ranges(each.journal, begin, end, self._wanted.since_ns):
                part = each.store.part(each.journal, self._wanted, first, last)
                parts.append(replace(part, reserve=Reserve(follower, each.id)))
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Where there is no partition, Spark makes one of its own.
        return _rows(partition) if isinstance(partition, Part) else iter(())


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one member's journal at a time; see `seqcast.spark.follow`.

    Args:
        stores: where journals are.
        starting: "earliest" or "latest", if there is no checkpoint.
        max_rows: of a batch; 0: no limit.
        fail_on_data_loss: whether it is an error if retention removed rows before they were read, or if the stream gave
            out rows that no other member has.
        failover_s: a member that seems lost for this long counts as lost.
        wanted: the rows to give out; offsets count all rows.
        on_new_group: "fail" or "continue", behind the last row of the old one, where the whole group is started again.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        starting: str = "earliest",
        max_rows: int = 0,
        fail_on_data_loss: bool = True,
        failover_s: float = 5.0,
        wanted: Wanted = Wanted(),
        on_new_group: str = "fail",
    ) -> None:
        self._goes_on = on_new_group == "continue"
        self._follower = Follower(stores, fail_on_data_loss, failover_s)
        self._starting = starting
        self._max_rows = max_rows
        self._fail_on_data_loss = fail_on_data_loss
        self._wanted = wanted
        self._targets: dict[int, int] | None = None  # of Trigger.AvailableNow: member -> end of its journal then
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        latest = self._starting == "latest"

        def offset() -> dict[str, Any]:
            found = self._follower.first(latest=latest)
            at = found.journal.end_idx if latest else found.journal.first_idx
            begun = [view.tag for view in found.journal.views if view.idx <= at and view.subgroups]
            if not begun or not (at or latest):
                return offset_of(found, at)
            return {**offset_of(found, at, begun[-1]), "merged": {"into": f"{begun[-1]:016x}"}}

        return _twice(offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return _twice(lambda: self._latest(start, limit))

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if branches_left(start):
            return self._further(start, limit)
        found = self._follower.go_on(start, wait=self._targets is None)
        if found is None:
            return self._anew(start)
        (followed, begin), end = found, found[0].journal.end_idx
        if self._targets is not None:
            end = min(end, self._targets.get(followed.id, begin))
        merged = merged_into(start)
        merge = pending(followed.journal, begin, merged)
        if merge is not None and merge.idx <= begin:
            return self._merge(start, followed, begin, merge, limit)
        if merge is not None:
            end = min(end, merge.idx)
        first = max(begin, followed.journal.first_idx)
        if isinstance(limit, ReadMaxRows) and end > first + limit.max_rows:
            end = last_cut(followed.journal, first, first + limit.max_rows)
        if end <= begin and followed.id == int(start["member"], 16):
            return self._anew(start)
        self._last = offset_of(followed, max(begin, end), merged)
        if merged and end <= begin:
            self._last["merged"] = {"into": start["merged"]["into"]}
        return self._last

    def _anew(self, start: dict[str, Any]) -> dict[str, Any]:
        """Nothing new comes: the offset as it was, with the same text, or Spark would see new data. If the whole group
        was started again, that of the new one.

        Raises:
            JournalError: it was, and the query is not to go on with it.
        """
        found = self._follower.new_group(start, wait=self._targets is None)
        if found is None:
            return start
        if not self._goes_on:
            raise JournalError(
                f"the group {found.journal.cluster!r} was started again: {found.journal.path} has nothing in common "
                "with what this query has read; set onNewGroup=continue to go on with the new group, or give the query "
                "a new checkpoint"
            )
        began = view_text(found.journal.views[0].view_id)
        self._last = {**offset_of(found, found.journal.first_idx), "began": began}
        return self._last

    def _merge(
        self, start: dict[str, Any], followed: Found, begin: int, merge: Installed, limit: ReadLimit
    ) -> dict[str, Any]:
        """The stream is before a merged view: the branches come first."""
        ranges = self._follower.branches(followed, merge, wait=self._targets is None)
        if ranges is None:
            return start
        offset = start if followed.id == int(start["member"], 16) else offset_of(followed, begin)
        merged = {"into": f"{merge.tag:016x}", "view": view_text(merge.view_id), "done": 0}
        parts = [each.as_json() for each in ranges]
        return self._further({**offset, "merged": {**merged, "parts": parts}}, limit)

    def _further(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset behind the next rows of the branches, or behind all of them: at the beginning of the view."""
        left = branches_left(start)
        rows = min(left, limit.max_rows) if isinstance(limit, ReadMaxRows) else left
        merged = {**start["merged"], "done": start["merged"]["done"] + rows}
        end = {**start, "merged": merged}
        if rows == left:
            end = {"member": start["member"], "idx": start["idx"], "merged": merged}
            if "view" in start:
                end |= {"view": merged["view"], "global_seqno": 0}
        self._last = end
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._last is None:
            return None
        found = self._follower.find(int(self._last["member"], 16))
        # For progress reports only, and asked of each trigger, so no rows are read to say how far the view is stable.
        return self._last if found is None else offset_at(found.journal, found.journal.end_idx, merged_into(self._last))

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {found.id: found.journal.end_idx for found in self._follower.all()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end or end.get("began", start.get("began")) != start.get("began"):
            return []  # the second: a new group begins
        if end.get("merged", {}).get("parts") and start.get("merged") != end["merged"]:
            return _twice(lambda: self._branch_parts(start, end))
        found, begin, until = _twice(lambda: self._range(start, end))
        journal = found.journal
        if begin < journal.first_idx and self._fail_on_data_loss:
            raise JournalError(
                f"{journal.path}: rows {begin} to {journal.first_idx - 1} were removed by the journal's retention "
                "before this query read them: keep more (journal_keep_s, journal_keep_bytes), or set "
                "failOnDataLoss=false to continue without them"
            )
        if journal.end_idx < until:
            raise JournalError(
                f"{journal.path} ends at row {journal.end_idx}, and this query has read up to row {until}: it is not "
                "the journal that the query's checkpoint belongs to, or a crash of the machine took its tail"
            )
        return [
            replace(
                found.store.part(journal, self._wanted, first, last),
                reserve=self._follower.reserve(found, first, until, end),
            )
            for first, last in pieces(journal, max(begin, journal.first_idx), until)
        ]

    def _branch_parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        same = start.get("merged", {}).get("into") == end["merged"]["into"]
        first, until = start["merged"]["done"] if same else 0, end["merged"]["done"]
        parts: list[InputPartition] = []
        for each in map(Range.of_json, end["merged"]["parts"]):
            begin, stop = max(first, 0) + each.first, min(until, each.end - each.first) + each.first
            first, until = first - (each.end - each.first), until - (each.end - each.first)
            if begin >= stop:
                continue
            found, idx = self._follower.closing(each)
            if idx + begin < found.journal.first_idx and self._fail_on_data_loss:
                raise JournalError(
                    f"{found.journal.path}: rows of view {each.closing[0]:016x}, which another side of a partition "
                    "delivered, were removed by the journal's retention before this query read them: keep more "
                    "(journal_keep_s, journal_keep_bytes), or set failOnDataLoss=false to continue without them"
                )
            for at, last in pieces(found.journal, max(idx + begin, found.journal.first_idx), idx + stop):
                part = found.store.part(found.journal, self._wanted, at, last)
                parts.append(replace(part, reserve=Reserve(self._follower, found.id)))
        return parts

    def _range(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Found, int, int]:
        """The journal that has the rows of a batch, and their positions in it. A batch that is read again may have to
        come from another member's journal; it has the same messages."""
        lost: JournalError | None = None
        found = self._follower.find(int(end["member"], 16))
        for each in [found] if found is not None else self._follower.all():
            try:
                before = self._follower.find(int(start["member"], 16)) if each is found else None
                begin = self._follower.position(each, start, before)
                return each, begin, self._follower.position(each, end)
            except NotYet:
                continue
            except JournalError as error:
                lost = error
        raise lost or JournalError(
            f"the journal of member {end['member']}, which this query's checkpoint names, is not there, and no other "
            f"one has the rows of {start.get('view', 'it')}: start the query with a new checkpoint, or bring it back"
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return _rows(partition)


def _twice(look: Callable[[], T]) -> T:
    """Looks at the journals, and once more if one of them goes away, with its tap or directory, between two requests:
    the second look finds it gone, and goes by the others."""
    try:
        return look()
    except JournalGone:
        return look()


def _check_path(path: str) -> None:
    """
    Raises:
        JournalError, UsageError: no journal is there, or one that cannot be read.
    """
    if os.path.exists(path) or not any(each in path for each in "*?["):
        find([path])
    elif not journal_files(given([path])):
        raise UsageError(f"{path}: no journal matches this pattern")


def _no_path() -> NoReturn:
    raise UsageError('no path: .load("journals") names a member\'s journal, or a directory of journals')


def _rows(part: Part) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of a part, in the wanted columns."""
    worker.settle()
    for source, batch in _batches(part):
        kept = source.wanted.among(batch, source.names)
        if kept.num_rows:
            yield _as_row(kept, source)


def _batches(part: Part) -> Iterator[tuple[Part, pa.RecordBatch]]:
    """The rows of a part, each batch with the part that it is read as: if a journal goes away meanwhile, the rest of
    the rows are read from where they are too."""
    in_vain = 0
    while True:
        at = part.first
        try:
            for batch in part.batches():
                at += batch.num_rows
                yield part, batch
            return
        except JournalGone:
            in_vain = in_vain + 1 if at == part.first else 0
            rest = part.reserve.rest(part, at) if part.reserve and in_vain <= IN_VAIN_MAX else None
            if rest is None:
                raise
            part = rest


def _as_row(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    import pyarrow as pa

    names = part.wanted.columns
    return pa.RecordBatch.from_arrays([_column(name, batch, part) for name in names], names=list(names))


def _column(name: str, batch: pa.RecordBatch, part: Part) -> pa.Array:
    import pyarrow as pa

    match name:
        case "member":
            return pa.repeat(part.member, batch.num_rows)
        case "sender":
            return _texts(values_of(batch["sender"], "int64"), part.names)
        case "sent_at" | "delivered_at":  # Spark's timestamps have microseconds
            times_us = values_of(batch[MADE_OF[name]], "int64") // 1000
            return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(times_us), [None, pa.py_buffer(times_us)])
        case "payload" if not part.has_payload:
            return pa.nulls(batch.num_rows, pa.binary())
        case _:
            return batch[MADE_OF.get(name, name)]


def _texts(ids: Any, names: dict[int, str]) -> pa.Array:
    """The names of senders. One that is in no view of the journal is named by its id."""
    import pyarrow as pa

    try:
        offsets, letters = texts(ids, names)
    except KeyError:
        unknown = {each: f"{each & (1 << 64) - 1:016x}" for each in set(ids.tolist()) - names.keys()}
        offsets, letters = texts(ids, {**names, **unknown})
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
