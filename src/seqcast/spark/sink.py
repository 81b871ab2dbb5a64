"""A sink that multicasts rows: ``df.writeStream.format("seqcast").option("cluster", "orders")``.

Tasks hand the payloads of their rows to the driver, and the driver's process for commits multicasts the batch, as one
member of the group. Tasks may run again, or twice at a time, and members that join and leave with every task would
change the view each time. The batch is an atomic one (`seqcast.blocks.batches`): the receivers deliver it whole, and
once, however often Spark repeats it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

import seqcast
from seqcast.blocks import batches
from seqcast.config import PARTITIONS, PRESETS, Config
from seqcast.core.orders import resolve
from seqcast.errors import JoinTimeout, NotMember, SendTimeout, UsageError
from seqcast.events import Lost
from seqcast.spark import worker
from seqcast.types import ORDERS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from seqcast.api.group import Group

QUERY_ID = "sql.streaming.queryId"
"""Property of a task: the id of its streaming query, which stays the same after a restart from its checkpoint."""
SEND_BYTES = 8 << 20
TOTAL_ORDERS = tuple(order for order in ORDERS if resolve(order).total)


@dataclass(frozen=True)
class Rows(WriterCommitMessage):
    """The result of a task: the payloads as an Arrow IPC stream."""

    query: str
    rows: int
    size: int
    payloads: bytes


@dataclass(frozen=True)
class Target:
    """Where a sink sends, by its options.

    Args:
        cluster: name of the group.
        settings: of ``seqcast.join``.
        members: a batch is sent only to a view with at least this many members, including the sink.
        timeout_s: for a batch: to join, to send, and until every member's application has taken the batch.
        batch_bytes: bound of a batch, which the driver holds in memory.
    """

    cluster: str
    settings: tuple[tuple[str, Any], ...]
    members: int
    timeout_s: float
    batch_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Target:
        """
        Raises:
            UsageError: an option is missing, or its value is invalid.
        """
        if not options.get("cluster"):
            raise UsageError('no cluster: .option("cluster", "orders") names the group that the rows are sent to')
        settings: dict[str, Any] = {name: options[name] for name in ("interface",) if options.get(name)}
        for name, values in (("preset", PRESETS), ("partition", PARTITIONS), ("order", TOTAL_ORDERS)):
            if (value := options.get(name)) is not None:
                if value not in values:
                    raise UsageError(f"{name}={value!r}: give one of {', '.join(values)}")
                settings[name] = value
        if "port" in options:
            settings["port"] = _positive(options, "port", 0)
        return cls(
            options["cluster"],
            tuple(sorted(settings.items())),
            _positive(options, "members", 2),
            float(_positive(options, "timeout", 60)),
            _positive(options, "maxBatchBytes", 256 << 20),
        )


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    value = options.get(name, str(default))
    if not (value.isdecimal() and int(value)):
        raise UsageError(f"{name}={value!r}: give a positive whole number")
    return int(value)


class Sink(DataSourceStreamArrowWriter):
    """Writes the column ``payload`` (binary or string), or the only column, of each row as a message."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._target = Target.of(options)
        names = schema.fieldNames()
        if "payload" not in names and len(names) != 1:
            raise UsageError(f"no column payload among {', '.join(names)}: select the bytes to send as payload")
        self._column = "payload" if "payload" in names else names[0]
        kind = schema[self._column].dataType.typeName()
        if kind not in ("binary", "string"):
            raise UsageError(f"column {self._column} is {kind}: a payload is binary or string; use to_json")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """In a task."""
        import pyarrow as pa

        worker.settle()
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        if not query:
            raise UsageError("the task belongs to no streaming query: use this sink with writeStream")
        out = pa.BufferOutputStream()
        rows = size = 0
        schema = pa.schema([("payload", pa.binary())])
        with pa.ipc.new_stream(out, schema) as stream:
            for batch in iterator:
                column = batch.column(batch.schema.get_field_index(self._column))
                if column.null_count:
                    raise UsageError(f"column {self._column} has a row without a value: there is nothing to send")
                column = column.cast(pa.binary())
                rows += len(column)
                size += column.nbytes
                self._check_size(size)
                stream.write_batch(pa.record_batch([column], schema=schema))
        return Rows(query, rows, size, out.getvalue().to_pybytes())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver's process for commits, which stays for as long as the query commits often."""
        parts = [message for message in messages if isinstance(message, Rows) and message.rows]
        if not parts:
            return
        self._check_size(sum(part.size for part in parts))
        with _lock:
            self._commit(parts, batchId, time.monotonic() + self._target.timeout_s)

    def _commit(self, parts: list[Rows], batch: int, deadline: float) -> None:
        while not self._sent(parts, batch, deadline):
            if time.monotonic() >= deadline:
                raise SendTimeout(
                    f"batch {batch} was not taken by every member of {self._target.cluster} within "
                    f"{self._target.timeout_s:g} s: a receiver is slow or stopped: look there, or raise timeout"
                )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was sent."""

    def _check_size(self, size: int) -> None:
        if size > self._target.batch_bytes:
            raise UsageError(
                f"a batch is larger than maxBatchBytes={self._target.batch_bytes}, and the driver holds it in memory: "
                "lower the rows of a batch at the source (maxRowsPerBatch), or raise maxBatchBytes"
            )

    def _sent(self, parts: list[Rows], batch: int, deadline: float) -> bool:
        """Sends the batch. False: a member may lack part of the batch; if sent again, members that have the batch drop
        it."""
        group = _member(self._target, parts[0].query, deadline)
        try:
            _events(group)
            _multicast(group, parts, batch, deadline)
            taken = group.wait_consumed(max(0.0, deadline - time.monotonic()))
            # wait_consumed does not wait for a member that crashed: enough members must be left.
            enough = len(group.sending_view.members) >= self._target.members
            return taken and enough and not any(isinstance(event, Lost) for event in _events(group))
        except NotMember:
            return False
        finally:
            _leave_when_idle(self._target)


# ---- this process's members. They stay between batches, so that a batch need not join and change the view twice.

IDLE_S = 30.0
"""A member that sends nothing for this long leaves: Spark kills a process not used for a minute."""
_groups: dict[Target, Group] = {}
_timers: dict[Target, threading.Timer] = {}
_lock = threading.RLock()  # a batch is being sent, or a member leaves


def _member(target: Target, query: str, deadline: float) -> Group:
    """The member that sends, in a view with enough members.

    Raises:
        JoinTimeout: there is none by the deadline.
    """
    if (group := _groups.get(target)) is None or not _still_member(group):
        name = f"spark-{query[:8]}-{uuid.uuid4().hex[:8]}"
        settings: dict[str, Any] = {"join_timeout_s": max(1.0, deadline - time.monotonic()), **dict(target.settings)}
        order = settings.pop("order", ORDERS[0])
        settings["receive"] = False
        config = Config.for_command(**settings).for_guest(**settings)
        group = seqcast.join(target.cluster, name=name, order=order, min_members=target.members, config=config)
        _groups[target] = group
    while len(group.view.members) < target.members:
        if time.monotonic() >= deadline:
            raise JoinTimeout(
                f"{group.view} of {target.cluster} has fewer than members={target.members}: start the receivers, or "
                "lower members"
            )
        time.sleep(0.02)
    return group


def _still_member(group: Group) -> bool:
    try:
        return bool(group.sending_view)
    except NotMember:
        group.leave(0)
        return False


def _leave_when_idle(target: Target) -> None:
    def leave() -> None:
        with _lock:
            if _timers.get(target) is timer and (group := _groups.pop(target, None)) is not None:
                group.leave()

    if (before := _timers.get(target)) is not None:
        before.cancel()
    timer = _timers[target] = threading.Timer(IDLE_S, leave)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # the interpreter shuts down, and leaves all groups itself
        timer.start()


def _events(group: Group) -> list[Any]:
    """Events since then that are not messages: views, and losses."""
    told = []
    while (event := group.next_event(0)) is not None:
        told.append(event)
    return told


def _multicast(group: Group, parts: list[Rows], batch: int, deadline: float) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    writer = parts[0].query
    group.send(batches.begin(writer, batch, sum(part.rows for part in parts)), timeout=left())
    mark = pa.scalar(batches.ROW, pa.binary())
    for part in parts:
        for rows in pa.ipc.open_stream(part.payloads):
            step = max(1, rows.num_rows * SEND_BYTES // max(1, rows.nbytes))
            for at in range(0, rows.num_rows, step):
                marked = pc.binary_join_element_wise(mark, rows["payload"].slice(at, step), pa.scalar(b"", pa.binary()))
                _, offsets, data = marked.buffers()
                group.send_batch(data, memoryview(offsets).cast("i")[: len(marked) + 1], timeout=left())
    group.send(batches.end(writer, batch), timeout=left())
