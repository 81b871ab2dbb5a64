"""The rows of journals as a table, with names in place of ids and times in place of numbers.

Columns: ``member``, whose journal it is, and those of the journal (docs/journal.md); ``sender`` is a name, and
``sender_id``, ``view_tag`` and ``payload_hash`` are 64 unsigned bits kept as signed. ``payload`` is null if the journal
keeps hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqcast._native.columns import texts
from seqcast.errors import UsageError
from seqcast.journal.live import values_of
from seqcast.journal.places import find
from seqcast.journal.reader import Journal
from seqcast.journal.schema import COLUMNS, signed

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = (
    "member", "idx", "view_counter", "view_tag", "global_seqno", "sender", "sender_id", "seqno", "index", "length",
    "sent_at", "delivered_at", "payload_hash", "transitional", "payload",
)  # fmt: skip
MADE_OF = {"sender_id": "sender", "sent_at": "sent_ns", "delivered_at": "delivered_ns"}
"""Column of a table -> column of the journal, if the names differ."""


def table(path: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a journal, or of each journal in a directory, one after the other; rolled and live segments alike,
    and of a journal that is being written its present rows.

    Args:
        columns: names of `TABLE`, in the order wanted; only the stored columns behind them are read. None: all.

    Raises:
        UsageError: there is no such column.
        JournalError: no journal is there, or one that cannot be read.
    """
    import pyarrow as pa

    names = list(TABLE if columns is None else columns)
    if unknown := [name for name in names if name not in TABLE]:
        raise UsageError(f"columns: there is no {unknown[0]!r}; give some of {', '.join(TABLE)}")
    batches = []
    for journal in find([path]):
        has_payload = journal.payload == "full"
        for batch in journal.batches(journal_columns(names, has_payload)):
            arrays = [column(name, batch, journal.member.name, names_in(journal), has_payload, "ns") for name in names]
            batches.append(pa.RecordBatch.from_arrays(arrays, names=names))
    return pa.Table.from_batches(batches, _schema(names))


def journal_columns(names: Sequence[str], has_payload: bool) -> list[str]:
    """Columns of a journal from which columns of a table are made, at least one."""
    needed = {MADE_OF.get(name, name) for name in names if name != "member" and (has_payload or name != "payload")}
    return [name for name in (*COLUMNS, "payload") if name in (needed or {"idx"})]


def names_in(journal: Journal) -> dict[int, str]:
    """The names of members by their signed ids."""
    return {signed(member.id): member.name for view in journal.views for member in view.members}


def column(
    name: str, batch: pa.RecordBatch, member: str, names: dict[int, str], has_payload: bool, unit: str
) -> pa.Array:
    """A column of a table, made of a journal's batch.

    Args:
        names: of senders.
        unit: of times, "us" or "ns".
    """
    import pyarrow as pa

    match name:
        case "member":
            return pa.repeat(member, batch.num_rows)
        case "sender":
            return names_of(values_of(batch["sender"], "int64"), names)
        case "sent_at" | "delivered_at":
            times = values_of(batch[MADE_OF[name]], "int64") // (1000 if unit == "us" else 1)
            return pa.Array.from_buffers(pa.timestamp(unit, tz="UTC"), len(times), [None, pa.py_buffer(times)])
        case "payload" if not has_payload:
            return pa.nulls(batch.num_rows, pa.binary())
        case _:
            return batch[MADE_OF.get(name, name)]


def names_of(ids: Any, names: dict[int, str]) -> pa.Array:
    """The names of senders. One that is in no view of the journal is named by its id."""
    import pyarrow as pa

    try:
        offsets, letters = texts(ids, names)
    except KeyError:
        unknown = {each: f"{each & (1 << 64) - 1:016x}" for each in set(ids.tolist()) - names.keys()}
        offsets, letters = texts(ids, {**names, **unknown})
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _schema(names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    time = pa.timestamp("ns", tz="UTC")
    of = {"member": "string", "sender": "string", "sender_id": "int64", "payload": "binary"}
    kinds = {**COLUMNS, **of}
    return pa.schema([(name, pa.type_for_alias(kinds[name]) if name in kinds else time) for name in names])
