"""Journals as a table and as a stream: ``spark.read.format("seqcast")`` and ``spark.readStream.format("seqcast")``.

``seqcast.spark.register(spark)`` makes the format known to a session. Rows are read in tasks, as Arrow batches: from
the files of the journals, which the workers then see under the same path, or from a tap.

A stream follows one member's journal, even while it is written. Its offsets are positions in that journal, and the row
at a position never changes, so a batch that is read again after a crash has the same rows: with an idempotent sink each
message arrives exactly once. When the member is lost the stream continues in another one's journal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from seqcast.errors import UsageError
from seqcast.journal.places import find, journal_files
from seqcast.journal.schema import JournalError, JournalGone
from seqcast.journal.tables import column
from seqcast.journal.views import Installed
from seqcast.spark import worker
from seqcast.spark.agreed import once
from seqcast.spark.branches import Range, pending
from seqcast.spark.follow import (
    Follower,
    NotYet,
    Reserve,
    branches_left,
    merged_into,
    offset_at,
    offset_of,
)
from seqcast.spark.groups import view_text
from seqcast.spark.options import EVERY_COPY, SINK, STREAM, TABLE, Following, Tabled, check_names, names_of
from seqcast.spark.places import Ending, check_start, first_since, since
from seqcast.spark.sides import Way, has_begun, here_left, lefts, passed_over, still_left, told
from seqcast.spark.sink import Sink
from seqcast.spark.stores import (
    Found,
    JournalStore,
    Part,
    divided,
    given,
    last_cut,
    paths_of,
    pieces,
    stores_of,
    useful,
)
from seqcast.spark.wanted import Wanted, joined

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "seqcast"
T = TypeVar("T")
IDLE_S = 0.1
"""How long a stream waits for new rows before it tells Spark that there are none: Spark would ask again in 10 ms, which
takes both more time than a look."""
LOOK_S = 0.02
LOOK_SHARE = 0.01
"""Meanwhile the stream looks no more often, and for no larger share of its time."""
QUIET_S = 2.0
LOOK_QUIET_S = 0.05
"""After this long without a new row the stream looks less often."""
IN_VAIN_MAX = 8
"""A task gives up if this many journals in a row are found, and go away before they give a row."""


def register(spark: SparkSession) -> None:
    """Makes the format ``seqcast`` known to a session."""
    spark.dataSource.register(JournalSource)


class JournalSource(DataSource):
    """The format. Its options are in `seqcast.spark.options`, and in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        check_names(self.options, names_of(TABLE, STREAM), "the format seqcast")
        stores_of(self.options)  # refusals come before a query begins
        Following.of(self.options)
        Tabled.of(self.options)
        ddl = Wanted.of(self.options).ddl
        for path in paths_of(self.options):
            if not journal_files(given([path])):
                _check_path(path)  # says why
        return ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, names_of(TABLE), "a table of the format seqcast")
        if not self.options.get("tap"):
            for path in paths_of(self.options):
                _check_path(path)
        return JournalReader(stores_of(self.options), self._wanted(schema), Tabled.of(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        check_names(self.options, names_of(SINK), "the sink of the format seqcast")
        return Sink(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_names(self.options, names_of(STREAM), "a stream of the format seqcast")
            return JournalStream(stores_of(self.options), Following.of(self.options), self._wanted(schema))
        except UsageError as error:
            return _Refused(error)

    def _wanted(self, schema: StructType) -> Wanted:
        return Wanted.of(self.options).given_as(schema, bool(self.options.get("columns")))


class JournalReader(DataSourceReader):
    """Reads journals as they are at the time of planning.

    Args:
        stores: where journals are.
        wanted: the rows to give out.
        tabled: how often they come.
    """

    def __init__(self, stores: Sequence[JournalStore], wanted: Wanted, tabled: Tabled = EVERY_COPY) -> None:
        self._stores = stores
        self._wanted = wanted
        self._tabled = tabled

    def partitions(self) -> Sequence[InputPartition]:
        between = self._tabled.between
        return divided(self._parts() if between is None else self._between(between), self._tabled.tasks)

    def _between(self, following: Following) -> list[Part]:
        """The part of the present rows that a stream gives."""
        stream = JournalStream(self._stores, replace(following, tasks=0), self._wanted)
        stream.prepareForTriggerAvailableNow()
        parts: list[Part] = []
        at = stream.initialOffset()
        while (end := stream.latestOffset(at, ReadAllAvailable())) != at:
            parts += stream.partitions(at, end)
            at = end
        if following.end is not None and not stream.is_over(at):
            raise JournalError(
                f"the journals end at row {at['idx']} of member {at['member']}, before endingOffset: load the journals "
                "of that offset, or give an earlier one"
            )
        return parts

    def _parts(self) -> list[Part]:
        parts: list[Part] = []
        follower = Follower(self._stores, fail_on_data_loss=True, failover_s=0.0)
        found: dict[int, Found] = {}
        for store in self._stores:
            for journal in store.all():
                found.setdefault(journal.member.id, Found(store, journal))
        every = sorted(found.values(), key=lambda each: (each.journal.member.name, each.id))
        for each, wanted, spans in self._rows_of(every):
            kept = [part for span in spans for part in each.journal.kept(*span)]
            for first, last in each.store.ranges(each.journal, kept, wanted):
                part = each.store.part(each.journal, wanted, first, last)
                parts.append(replace(part, reserve=Reserve(follower, each.id)))
        return parts

    def _rows_of(self, found: Sequence[Found]) -> Iterator[tuple[Found, Wanted, list[tuple[int, int]]]]:
        """Which rows come of which journal, as spans of positions."""
        if not self._tabled.once:
            yield from ((each, self._wanted, self._wanted.spans(each.journal)) for each in found)
            return
        whole: dict[int, list[tuple[int, int]]] = {}
        others = []
        for rows in once(found, self._wanted.views):
            if rows.behind:
                others.append((rows.found, replace(self._wanted, behind=rows.behind), [(rows.first, rows.end)]))
            else:
                whole.setdefault(rows.found.id, []).append((rows.first, rows.end))
        for each in found:
            yield from ((each, self._wanted, [span]) for span in joined(whole.get(each.id, ())))
        yield from others

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Without a partition, Spark makes one of its own.
        return _rows(partition) if isinstance(partition, Part) else iter(())


class _Refused(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be: its first step says why. If `JournalSource.streamReader` raised the error, Spark would
    end with an error of its own, which hides this one."""

    def __init__(self, why: UsageError) -> None:
        self._why = why

    def getDefaultReadLimit(self) -> NoReturn:
        raise self._why

    def initialOffset(self) -> NoReturn:
        raise self._why

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        raise self._why

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._why

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        raise self._why

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._why


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one member's journal at a time; see `seqcast.spark.follow`.

    Args:
        stores: where journals are.
        following: how the stream is followed.
        wanted: the rows to give out; offsets count all rows.
    """

    def __init__(self, stores: Sequence[JournalStore], following: Following, wanted: Wanted) -> None:
        self._goes_on = following.on_new_group == "continue"
        self._follower = Follower(stores, following.fail_on_data_loss, following.failover_s)
        self._starting, self._begin, self._since_ns = following.starting, following.begin, following.since_ns
        self._ending = Ending(self._follower, following.end) if following.end is not None else None
        self._tasks = following.tasks
        self._max_rows = following.max_rows
        self._fail_on_data_loss = following.fail_on_data_loss
        self._wanted = wanted
        self._targets: dict[int, int] | None = None  # of Trigger.AvailableNow: member -> end of its journal then
        self._last: dict[str, Any] | None = None
        self._waits = ""  # why nothing new comes
        self._quiet_since = time.monotonic()
        self.idle_s = IDLE_S

    def initialOffset(self) -> dict[str, Any]:
        if (begin := self._begin) is not None:
            _twice(lambda: check_start(self._follower, begin))
            return begin
        time_ns, latest = self._since_ns, self._starting == "latest"

        def begin_of(found: Found) -> int:
            return found.journal.end_idx if time_ns is None else first_since(found, time_ns)

        def offset() -> dict[str, Any]:
            if time_ns is not None:
                found, at = since(self._follower, time_ns)
            else:
                found = self._follower.first(latest=latest)
                at = found.journal.end_idx if latest else found.journal.first_idx
            views = found.journal.views if at or latest or time_ns is not None else ()
            begun = [view.tag for view in views if view.subgroups and has_begun(view, at, time_ns)]
            sides = self._follower.all() if latest or time_ns is not None else ()
            beside = told(passed_over(found, at, sides, begin_of, time_ns))
            if not begun:
                return offset_of(found, at) | beside
            return {**offset_of(found, at, begun[-1]), "merged": {"into": f"{begun[-1]:016x}"}, **beside}

        return _twice(offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows) if self._max_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        until = time.monotonic() + (self.idle_s if self._targets is None else 0.0)
        while True:
            began = time.monotonic()
            end = _twice(lambda: self._next(start, limit))
            now = time.monotonic()
            if end != start:
                self._waits, self._quiet_since = "", now
            if end != start or now >= until:
                return end
            seldom = LOOK_S if now < self._quiet_since + QUIET_S else LOOK_QUIET_S
            time.sleep(min(max(seldom, (now - began) / LOOK_SHARE), until - now))

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._ending is None:
            return self._latest(start, limit)
        return start if self._ending.is_reached(start) else self._ending.before(self._latest(start, limit))

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if branches_left(start):
            return self._further(start, limit)
        found = self._follower.go_on(start, wait=self._targets is None)
        if found is None:
            return self._beside(start, limit)
        (followed, begin), end = found, found[0].journal.end_idx
        if self._targets is not None:
            end = min(end, self._targets.get(followed.id, begin))
        merged = merged_into(start)
        merge = pending(followed.journal, begin, merged)
        if merge is not None and merge.idx <= begin:
            return self._merge(start, followed, begin, merge, limit)
        if merge is not None:
            end = min(end, merge.idx)
        if (gap := followed.journal.gap_in(begin, end)) is not None:
            end = gap.idx
        first = max(begin, followed.journal.first_idx)
        if isinstance(limit, ReadMaxRows) and end > first + limit.max_rows:
            end = last_cut(followed.journal, first, first + limit.max_rows)
        if end <= begin and followed.id == int(start["member"], 16):
            return self._beside(start, limit)
        self._last = {**offset_of(followed, max(begin, end), merged), **told(lefts(start))}
        if merged and end <= begin:
            self._last["merged"] = {"into": start["merged"]["into"]}
        return self._last

    def _beside(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Nothing new comes of the member: others may have gone on alone."""
        beside = self._follower.beside(start, wait=self._targets is None, ends=self._targets)
        if beside is None:
            over = self._follower.over_gap(start, wait=self._targets is None)
            if over is None:
                return self._anew(start, limit)
            self._last = {**offset_of(*over), **told(lefts(start))}
            return self._last
        return self._along(*beside, limit)

    def _along(self, way: Way, ranges: Sequence[Range], limit: ReadLimit) -> dict[str, Any]:
        """The offset of a way on in another journal, and of the first rows before that way."""
        left = still_left(self._follower.all(), way.left, way.view.tag)
        offset = {**offset_of(way.other, way.idx, way.view.tag), **told(left)}
        if way.planned or way.gone:
            return self._further(self._before(way.view, offset, ranges), limit)
        self._last = self._before(way.view, offset, [])
        return self._last

    def _anew(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Nothing new comes: the offset as it was, with the same text, or Spark would see new data. If the whole group
        was started again, that of the new one.

        Raises:
            JournalError: the group was started again, and the query is not to go on with the new one.
        """
        found = self._follower.new_group(start, wait=self._targets is None)
        if found is None:
            self._waits, self._last = self._follower.waits(start), self._last or start
            return start
        if (rest := self._follower.rest(start, self._follower.all(), over=True)) is not None:
            return self._along(*rest, limit)
        if not self._goes_on:
            raise JournalError(
                f"the group {found.journal.cluster!r} was started again: {found.journal.path} has nothing in common "
                "with the rows that this query has read; set onNewGroup=continue to go on with the new group, or give "
                "the query a new checkpoint"
            )
        began = view_text(found.journal.views[0].view_id)
        # It may be that both were founded apart, and merge later: then all that was given out does not come again.
        before = told(here_left(start, self._follower.all()))
        self._last = {**offset_of(found, found.journal.first_idx), "began": began, **before}
        return self._last

    def _merge(
        self, start: dict[str, Any], followed: Found, begin: int, merge: Installed, limit: ReadLimit
    ) -> dict[str, Any]:
        """The stream is before a merged view: the branches come first."""
        views, left = followed.journal.views, lefts(start)
        base = views[views.index(merge) - 1].tag
        ranges = self._follower.branches(base, merge, left, leaves=False, wait=self._targets is None)
        if ranges is None:
            return start
        offset = dict(start) if followed.id == int(start["member"], 16) else offset_of(followed, begin)
        offset.pop("left", None)
        offset |= told(still_left(self._follower.all(), left, merge.tag))
        return self._further(self._before(merge, offset, ranges), limit)

    @staticmethod
    def _before(view: Installed, offset: dict[str, Any], ranges: Sequence[Range]) -> dict[str, Any]:
        """An offset before the branches that come before a view."""
        merged = {"into": f"{view.tag:016x}", "view": view_text(view.view_id), "done": 0}
        return {**offset, "merged": {**merged, "parts": [each.as_json() for each in ranges]}}

    def _further(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset after the next rows of the branches, or after all of them: at the beginning of the view."""
        left = branches_left(start)
        rows = min(left, limit.max_rows) if isinstance(limit, ReadMaxRows) else left
        merged = {**start["merged"], "done": start["merged"]["done"] + rows}
        end = {**start, "merged": merged}
        if rows == left:
            end = {"member": start["member"], "idx": start["idx"], "merged": merged, **told(lefts(start))}
            if "view" in start:  # at the end of the same view, if nobody installed the next one
                seqno = start["global_seqno"] if start["view"] == merged["view"] else 0
                end |= {"view": merged["view"], "global_seqno": seqno}
        self._last = end
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._last is None:
            return None
        found = self._follower.find(int(self._last["member"], 16))
        # For progress reports only, and asked of each trigger, so no rows are read to say how far the view is stable.
        waits = {"waits": self._waits} if self._waits else {}
        if found is None:
            return {**self._last, **waits}
        latest = offset_at(found.journal, found.journal.end_idx, merged_into(self._last))
        behind = self._follower.behind(self._last, now=self._targets is not None)  # which ends soon
        return {**latest, "behind": behind, **waits}

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {found.id: found.journal.end_idx for found in self._follower.all()}

    def is_over(self, offset: dict[str, Any]) -> bool:
        """Whether a stream that ends somewhere has given out all up to there."""
        return self._ending is not None and self._ending.is_reached(offset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Part]:
        return divided(self._parts(start, end), self._tasks)

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Part]:
        if start == end or end.get("began", start.get("began")) != start.get("began"):
            return []  # the second: a new group begins
        if "parts" in end.get("merged", {}) and start.get("merged") != end["merged"]:
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
                f"{journal.path} ends at row {journal.end_idx}, and this query has read up to row {until}: this is not "
                "the journal that the query's checkpoint belongs to, or a crash of the machine took its tail"
            )
        return [
            replace(
                found.store.part(journal, self._wanted, first, last),
                reserve=self._follower.reserve(found, first, until, end),
            )
            for at, end_at in useful(journal, self._wanted, max(begin, journal.first_idx), until)
            for first, last in pieces(journal, at, end_at)
        ]

    def _branch_parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        same = {**start.get("merged", {}), "done": 0} == {**end["merged"], "done": 0}
        first, until = start["merged"]["done"] if same else 0, end["merged"]["done"]
        parts: list[Part] = []
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
            gap = found.journal.gap_in(idx + begin, idx + stop)
            if gap is not None and self._fail_on_data_loss:
                raise JournalError(
                    f"{found.journal.path} lacks rows {gap.idx} to {gap.end - 1} ({gap.why}) of view "
                    f"{each.closing[0]:016x}, which another side of a partition delivered: load the journals of all "
                    "members, or set failOnDataLoss=false to go on without them"
                )
            for span in useful(found.journal, self._wanted, max(idx + begin, found.journal.first_idx), idx + stop):
                for at, last in pieces(found.journal, *span):
                    part = found.store.part(found.journal, self._wanted, at, last)
                    parts.append(replace(part, reserve=Reserve(self._follower, found.id)))
        return parts

    def _range(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Found, int, int]:
        """The journal that has the rows of a batch, and their positions in it. A batch that is read again may have to
        come from another member's journal, with the same messages."""
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
            f"one has the rows of {start.get('view', 'the batch')}: start the query with a new checkpoint, or bring "
            "the journal back"
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        return _rows(partition)


def _twice(look: Callable[[], T]) -> T:
    """Looks at the journals, and once more if one of them goes away, with its tap or directory, between two requests:
    the second look finds that journal gone, and goes by the others."""
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

    names, schema, payload = list(part.wanted.columns), part.wanted.arrow, part.wanted.payload
    columns = [column(name, batch, part.member, part.names, part.has_payload, "us") for name in names]
    columns = [payload.decoded(each) if name == "payload" else each for name, each in zip(names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema, names=None if schema is not None else names)
