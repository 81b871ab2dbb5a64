"""The columns of a live segment: one row for each run of messages, and the rows of messages made from those.

Messages of one packet that are delivered together share their sender, seqno, view and times, and their positions,
global seqnos and indices follow each other. So a live segment has one row for such a run, with the values of its first
message, and with ``messages``, a list of each message's own values. Writing costs 12 bytes a message and 72 a
run, while a row for each message would cost 80. Readers are given one row for each message, as in rolled segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from seqcast._native.columns import spread
from seqcast.journal.schema import COLUMNS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from seqcast._native.columns import Block

MESSAGES: Final = "messages"
OF_MESSAGE: Final = ("length", "payload_hash")
OF_RUN: Final = tuple(name for name in COLUMNS if name not in OF_MESSAGE)
COUNTING: Final = ("idx", "global_seqno", "index")
"""These grow by one from message to message of a run, but a ``global_seqno`` of 0 stays 0: there is no total order."""


def live_schema(payload: str) -> pa.Schema:
    """Schema of the live segments of a journal that keeps ``payload`` ("full" or "hash")."""
    import pyarrow as pa

    rows = arrow_schema(payload)
    message = pa.struct([field for field in rows if field.name not in OF_RUN])
    return pa.schema([*(rows.field(name) for name in OF_RUN), pa.field(MESSAGES, pa.list_(message))], rows.metadata)


def record_batch(block: Block, schema: pa.Schema) -> pa.RecordBatch:
    """The block's own memory as a batch of a live segment with this schema."""
    import pyarrow as pa

    runs, messages = block.runs, block.messages

    def array(field: pa.Field, rows: int) -> Any:
        size = (rows + 7) // 8 if COLUMNS[field.name] == "bool" else rows * np.dtype(COLUMNS[field.name]).itemsize
        return pa.Array.from_buffers(field.type, rows, [None, buffer(field.name, size)])

    def buffer(name: str, size: int) -> Any:
        return pa.foreign_buffer(block.address(name), size, block)

    kind = schema.field(MESSAGES).type
    parts = [array(kind.value_type.field(name), messages) for name in OF_MESSAGE]
    if kind.value_type.num_fields > len(OF_MESSAGE):
        payload = [None, buffer("offsets", 4 * (messages + 1)), buffer("payload", block.payload_bytes)]
        parts.append(pa.Array.from_buffers(pa.binary(), messages, payload))
    values = pa.Array.from_buffers(kind.value_type, messages, [None], children=parts)
    lists = pa.Array.from_buffers(kind, runs, [None, buffer("starts", 4 * (runs + 1))], children=[values])
    return pa.RecordBatch.from_arrays([*(array(schema.field(name), runs) for name in OF_RUN), lists], schema=schema)


def count_messages(batch: pa.RecordBatch) -> int:
    """Messages in a batch of a live segment."""
    return len(batch[MESSAGES].values)


def rows_schema(schema: pa.Schema) -> pa.Schema:
    """Schema of the rows that readers make of a live segment with this schema."""
    payload = "full" if schema.field(MESSAGES).type.value_type.get_field_index("payload") >= 0 else "hash"
    return arrow_schema(payload)


def message_rows(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """A batch of a live segment as rows of messages: at least its part of the given columns; None: all.

    Raises:
        ValueError: its runs are not made of its messages.
    """
    import pyarrow as pa

    lists, rows = batch[MESSAGES], rows_schema(batch.schema)
    wanted = [field for field in rows if columns is None or field.name in columns] or [rows.field("idx")]
    starts = values_of(lists.offsets, "int32")
    if starts[0] or starts[-1] != len(lists.values):
        raise ValueError("the runs have other messages than there are")

    def array(field: pa.Field) -> Any:
        if field.name not in OF_RUN:
            return lists.values.field(field.name)
        of_runs = values_of(batch[field.name], COLUMNS[field.name])
        if COLUMNS[field.name] == "bool":
            values = np.packbits(np.repeat(of_runs, np.diff(starts)), bitorder="little")
        else:
            values = spread(of_runs, starts, counting=field.name in COUNTING, zeros=field.name == "global_seqno")
        return pa.Array.from_buffers(field.type, len(lists.values), [None, pa.py_buffer(values)])

    return pa.RecordBatch.from_arrays([array(field) for field in wanted], schema=pa.schema(wanted, rows.metadata))


def values_of(array: pa.Array, kind: str) -> Any:
    """The values of an array without nulls. ``to_numpy``, and ``pa.array`` for the way back, would import pandas:
    half a second of work, which rolling does beside delivery, and each Python worker of Spark once."""
    data, end = array.buffers()[1], array.offset + len(array)
    if kind == "bool":
        return np.unpackbits(np.frombuffer(data, np.uint8), count=end, bitorder="little")[array.offset :]
    return np.frombuffer(data, kind, end)[array.offset :]
