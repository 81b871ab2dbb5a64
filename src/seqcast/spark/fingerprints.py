"""What each member delivered, as one fingerprint a bucket: Spark SQL over the columns, no shuffle of rows.

Formulation F4 of the audit. A bucket is 65,536 global seqnos, or 4,096 packet seqnos of a sender where there is no
total order. A fingerprint is the sums of both halves of a 64-bit hash over (position, message id, payload hash), so it
does not depend on the order of rows; sums of halves, because SQL's arithmetic refuses to overflow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from seqcast.journal.read import Journal, segment_batches
from seqcast.journal.schema import COLUMNS, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ORDERED_SHIFT = 16
FIFO_SHIFT = 12 + 16
"""From a message's key, ``seqno << 16 | index``, to its bucket."""

_KEY = "(shiftleft(seqno, 16) + index)"
_BUCKET = f"if(global_seqno > 0, shiftright(global_seqno, {ORDERED_SHIFT}), shiftright({_KEY}, {FIFO_SHIFT}))"
_HASH = "xxhash64(global_seqno, sender, seqno, index, payload_hash)"

GroupKey = tuple[int, int, int, int]
"""(journal, view tag, sender, bucket); ids and tags as signed integers."""


@dataclass(frozen=True, slots=True)
class Group:
    """One member's messages of one sender in one bucket of one view."""

    rows: int
    highest: int
    """Global seqno; 0 where there is no total order."""
    highest_key: int
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

    Rolled segments are read where they are by Spark; the live segment of a crashed member, bounded by the size at
    which segments are rolled, goes through the driver.
    """
    from pyspark.sql import functions as f

    types = {"int64": "bigint", "int32": "int"}
    schema = ", ".join(f"`{name}` {types[kind]}" for name, kind in COLUMNS.items())
    frames = []
    for number, journal in enumerate(journals):
        rolled = [segment.path.as_uri() for segment in journal.segments if not segment.live]
        live = [
            batch for segment in journal.segments if segment.live for batch in segment_batches(segment.path, [*COLUMNS])
        ]
        parts = [spark.read.schema(schema).parquet(*rolled)] if rolled else []
        if live or not rolled:
            parts.append(spark.createDataFrame(_table(live)))
        frames += [part.select(f.lit(number).alias("journal"), *COLUMNS) for part in parts]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches(batches, schema=pa.schema(list(arrow_schema("hash"))))


def fingerprints(rows: DataFrame) -> dict[GroupKey, Group]:
    """The groups of all journals: their number grows with members, views, senders and buckets, not with rows."""
    from pyspark.sql import functions as f

    named = rows.select("journal", "view_tag", "sender", "global_seqno", f.expr(_BUCKET).alias("bucket"),
                        f.expr(_KEY).alias("key"), f.expr(_HASH).alias("hash"))  # fmt: skip
    return _groups(named, ["journal", "view_tag", "sender", "bucket"])


def prefix_fingerprints(
    rows: DataFrame, wanted: Iterable[tuple[int, int, int, int, int]]
) -> dict[tuple[int, ...], Group]:
    """Groups of buckets that are looked at up to a position only.

    Args:
        wanted: (journal, view tag, sender, bucket, limit), the limit a global seqno, or a key without total order.

    Returns:
        The same tuples -> the group of the rows up to the limit; those without any are left out.
    """
    from pyspark.sql import functions as f

    tuples = sorted(set(wanted))
    if not tuples:
        return {}
    keys = ["journal", "view_tag", "sender", "bucket"]
    limits = rows.sparkSession.createDataFrame(
        tuples, "journal int, view_tag long, sender long, bucket long, `limit` long"
    )
    named = rows.withColumn("bucket", f.expr(_BUCKET)).withColumn("key", f.expr(_KEY))
    within = named.join(f.broadcast(limits), keys).where("if(global_seqno > 0, global_seqno, key) <= `limit`")
    return _groups(within.withColumn("hash", f.expr(_HASH)), [*keys, "limit"])


def _groups(rows: DataFrame, keys: list[str]) -> dict[Any, Group]:
    from pyspark.sql import functions as f

    groups = (
        rows.groupBy(*keys)
        .agg(
            f.max("global_seqno").alias("highest"),
            f.max("key").alias("highest_key"),
            f.count("*").alias("rows"),
            f.sum(f.expr("hash & 4294967295")).alias("low"),
            f.sum(f.expr("shiftrightunsigned(hash, 32)")).alias("high"),
        )
        .toArrow()
    )
    columns = {name: groups[name].to_pylist() for name in groups.column_names}
    halves = zip(columns["low"], columns["high"], strict=True)
    values = map(Group, columns["rows"], columns["highest"], columns["highest_key"], halves)
    return dict(zip(zip(*(columns[key] for key in keys), strict=True), values, strict=True))


def bucket_rows(
    rows: DataFrame, wanted: Iterable[tuple[int, int, int]]
) -> dict[tuple[int, int], list[tuple[Place, int]]]:
    """The rows of the given (journal, view tag, bucket), as (journal, tag) -> [(place, payload hash)], in order."""
    from pyspark.sql import functions as f

    named = rows.withColumn("bucket", f.expr(_BUCKET)).withColumn("key", f.expr(_KEY))
    found: dict[tuple[int, int], list[tuple[Place, int]]] = defaultdict(list)
    for row in _among(named, wanted, ["journal", "view_tag", "bucket"]):
        found[row["journal"], row["view_tag"]].append((_place(row), row["payload_hash"]))
    for places in found.values():
        places.sort(key=lambda pair: pair[0].idx)
    return found


def find_messages(rows: DataFrame, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
    """Where journals have the messages with the given (journal, sender, key); those not found are left out."""
    from pyspark.sql import functions as f

    found = defaultdict(list)
    for row in _among(rows.withColumn("key", f.expr(_KEY)), wanted, ["journal", "sender", "key"]):
        found[row["journal"], row["sender"], row["key"]].append(_place(row))
    return found


def find_positions(rows: DataFrame, wanted: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int, int], list[Place]]:
    """Where journals have the given (journal, view tag, global seqno); those not found are left out."""
    from pyspark.sql import functions as f

    found = defaultdict(list)
    for row in _among(rows.withColumn("key", f.expr(_KEY)), wanted, ["journal", "view_tag", "global_seqno"]):
        found[row["journal"], row["view_tag"], row["global_seqno"]].append(_place(row))
    return found


def _among(rows: DataFrame, wanted: Iterable[tuple[int, ...]], names: list[str]) -> list[dict[str, Any]]:
    """Rows whose columns ``names`` hold one of the wanted tuples: a broadcast join."""
    from pyspark.sql import functions as f

    tuples = sorted(set(wanted))
    if not tuples:
        return []
    schema = ", ".join(f"{name} {'int' if name == 'journal' else 'bigint'}" for name in names)
    keys = rows.sparkSession.createDataFrame(tuples, schema)
    found: list[dict[str, Any]] = rows.join(f.broadcast(keys), names).toArrow().to_pylist()
    return found


def _place(row: dict[str, Any]) -> Place:
    return Place(row["view_tag"], row["idx"], row["global_seqno"], row["sender"], row["key"])
