"""What each member delivered, as one fingerprint a bucket: Spark SQL over the columns, no shuffle of rows.

Formulation F4 of the audit. A bucket is 65,536 global seqnos, or 4,096 packet seqnos of a sender where there is no
total order. A fingerprint is the sums of both halves of a 64-bit hash over (position, message id, payload hash), so it
does not depend on the order of rows; sums of halves, because SQL's arithmetic refuses to overflow.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from seqcast.journal.reader import Journal, Segment, segment_batches
from seqcast.journal.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ORDERED_SHIFT = 16
FIFO_SHIFT = 12 + 16
"""From a message's key, ``seqno << 16 | index``, to its bucket."""

TASK_BYTES = 512 << 20
"""About what one task reads of segments where they are many."""

_SEQNO_SHIFT = FIFO_SHIFT - 16
_BUCKET = f"if(global_seqno > 0, shiftright(global_seqno, {ORDERED_SHIFT}), shiftright(seqno, {_SEQNO_SHIFT}))"
_LOW = f"(shiftleft(seqno & {(1 << _SEQNO_SHIFT) - 1}, 16) + index)"
"""A message's key without its bucket: whole keys of seqnos from 2^47 on have no room in 64 bits."""
_HASH = "xxhash64(global_seqno, sender, seqno, index, length, payload_hash)"

EVERYTHING = 1 << 62
"""As the last position of a part: to the end of the bucket."""

GroupKey = tuple[int, int, int, int]
"""(journal, view tag, sender, bucket); ids and tags as signed integers."""


Content = tuple[int, int]
"""Hash and length of a payload."""


@dataclass(frozen=True, slots=True)
class Group:
    """One member's messages of one sender in one bucket of one view."""

    rows: int
    highest: int
    """Global seqno; 0 where there is no total order."""
    highest_key: int
    """Under total order of the highest packet, its first message."""
    fingerprint: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member delivered a message."""

    tag: int
    idx: int
    global_seqno: int
    sender: int
    key: int


def journal_rows(spark: SparkSession, journals: Sequence[Journal]) -> DataFrame:
    """The rows of all journals, with the column ``journal`` (position in the list) and without payloads.

    Rolled segments are read where they are by Spark, the live ones of members that crashed or still write by a task
    each.
    """
    from pyspark.sql import functions as f

    types = {"int64": "bigint", "int32": "int"}
    schema = ", ".join(f"`{name}` {types[kind]}" for name, kind in COLUMNS.items())
    frames = []
    live = []
    for number, journal in enumerate(journals):
        rolled = [segment.path.as_uri() for segment in journal.segments if not segment.live]
        if rolled:
            rows = spark.read.schema(schema).parquet(*rolled)
            frames.append(rows.select(f.lit(number).alias("journal"), *COLUMNS))
        live += [(number, segment) for segment in journal.segments if segment.live]
    if live or not frames:
        packed = [(number, pickle.dumps(segment)) for number, segment in live]
        slices = slices_of(spark, [segment for _, segment in live])
        tasks = spark.createDataFrame(
            spark.sparkContext.parallelize(packed, slices), "journal int, segment binary", verifySchema=False
        )
        frames.append(tasks.mapInArrow(_live_rows, f"journal int, {schema}"))
    return reduce(lambda one, other: one.unionAll(other), frames)


def _live_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of live segments."""
    import pyarrow as pa

    for batch in batches:
        for number, packed in zip(batch["journal"].to_pylist(), batch["segment"].to_pylist(), strict=True):
            for rows in segment_batches(pickle.loads(packed), [*COLUMNS]):
                journal = pa.array(np.full(rows.num_rows, number, np.int32))
                yield pa.RecordBatch.from_arrays([journal, *rows.columns], names=["journal", *COLUMNS])


def slices_of(spark: SparkSession, segments: Sequence[Segment]) -> int:
    """How many tasks read the given segments: a few a processor, or as many as keep a task small."""
    few = 4 * spark.sparkContext.defaultParallelism
    return max(1, min(len(segments), max(few, sum(segment.size for segment in segments) // TASK_BYTES)))


def fingerprints(rows: DataFrame) -> dict[GroupKey, Group]:
    """The groups of all journals: their number grows with members, views, senders and buckets, not with rows."""
    from pyspark.sql import functions as f

    named = rows.select("journal", "view_tag", "sender", "global_seqno", "seqno", f.expr(_BUCKET).alias("bucket"),
                        f.expr(_LOW).alias("low"), f.expr(_HASH).alias("hash"))  # fmt: skip
    return _groups(named, ["journal", "view_tag", "sender", "bucket"])


def part_fingerprints(
    rows: DataFrame, wanted: Iterable[tuple[int, int, int, int, int, int]]
) -> dict[tuple[int, ...], Group]:
    """Groups of buckets of which a part is looked at.

    Args:
        wanted: (journal, view tag, sender, bucket, first, last), the positions inside the bucket: global seqnos, or
            without total order ``inside`` of keys; ``EVERYTHING`` as last: to the end.

    Returns:
        The same tuples -> the group of the rows in the part; those without any are left out.
    """
    from pyspark.sql import functions as f

    tuples = sorted(set(wanted))
    if not tuples:
        return {}
    keys = ["journal", "view_tag", "sender", "bucket"]
    limits = rows.sparkSession.createDataFrame(
        tuples, "journal int, view_tag long, sender long, bucket long, since long, `limit` long"
    )
    named = rows.withColumn("bucket", f.expr(_BUCKET)).withColumn("low", f.expr(_LOW))
    within = named.join(f.broadcast(limits), keys).where(
        "if(global_seqno > 0, global_seqno, low) between since and `limit`"
    )
    return _groups(within.withColumn("hash", f.expr(_HASH)), [*keys, "since", "limit"])


def inside(key: int) -> int:
    """A key without the part that its bucket has."""
    return key & ((1 << FIFO_SHIFT) - 1)


def _groups(rows: DataFrame, keys: list[str]) -> dict[Any, Group]:
    from pyspark.sql import functions as f

    groups = (
        rows.groupBy(*keys)
        .agg(
            f.max("global_seqno").alias("highest"),
            f.max("seqno").alias("seqno"),
            f.max("low").alias("within"),
            f.count("*").alias("rows"),
            f.sum(f.expr("hash & 4294967295")).alias("low"),
            f.sum(f.expr("shiftrightunsigned(hash, 32)")).alias("high"),
        )
        .toArrow()
    )
    columns = {name: groups[name].to_pylist() for name in groups.column_names}
    halves = zip(columns["low"], columns["high"], strict=True)
    places = zip(columns["bucket"], columns["highest"], columns["seqno"], columns["within"], strict=True)
    highest_keys = [seqno << 16 if highest else bucket << FIFO_SHIFT | low for bucket, highest, seqno, low in places]
    values = map(Group, columns["rows"], columns["highest"], highest_keys, halves)
    return dict(zip(zip(*(columns[key] for key in keys), strict=True), values, strict=True))


def bucket_rows(
    rows: DataFrame, wanted: Iterable[tuple[int, int, int]]
) -> dict[tuple[int, int], list[tuple[Place, Content]]]:
    """The rows of the given (journal, view tag, bucket), as (journal, tag) -> [(place, content)], in order."""
    from pyspark.sql import functions as f

    named = rows.withColumn("bucket", f.expr(_BUCKET))
    found: dict[tuple[int, int], list[tuple[Place, Content]]] = defaultdict(list)
    for row in _among(named, wanted, ["journal", "view_tag", "bucket"]):
        found[row["journal"], row["view_tag"]].append((_place(row), (row["payload_hash"], row["length"])))
    for places in found.values():
        places.sort(key=lambda pair: pair[0].idx)
    return found


def find_messages(rows: DataFrame, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
    """Where journals have the messages with the given (journal, sender, key); those not found are left out."""

    found = defaultdict(list)
    messages = [(journal, sender, key >> 16, key & 0xFFFF) for journal, sender, key in wanted]
    for row in _among(rows, messages, ["journal", "sender", "seqno", "index"]):
        place = _place(row)
        found[row["journal"], row["sender"], place.key].append(place)
    return found


def find_positions(rows: DataFrame, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
    """Where journals have the given (journal, view tag, global seqno); those not found are left out."""

    found = defaultdict(list)
    for row in _among(rows, wanted, ["journal", "view_tag", "global_seqno"]):
        found[row["journal"], row["view_tag"], row["global_seqno"]].append(_place(row))
    return found


def _among(rows: DataFrame, wanted: Iterable[tuple[int, ...]], names: list[str]) -> list[dict[str, Any]]:
    """Rows whose columns ``names`` hold one of the wanted tuples: a broadcast join."""
    from pyspark.sql import functions as f

    tuples = sorted(set(wanted))
    if not tuples:
        return []
    schema = ", ".join(f"`{name}` {'int' if name in ('journal', 'index') else 'bigint'}" for name in names)
    keys = rows.sparkSession.createDataFrame(tuples, schema)
    found: list[dict[str, Any]] = rows.join(f.broadcast(keys), names).toArrow().to_pylist()
    return found


def _place(row: dict[str, Any]) -> Place:
    return Place(row["view_tag"], row["idx"], row["global_seqno"], row["sender"], row["seqno"] << 16 | row["index"])
