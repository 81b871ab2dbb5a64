"""Faults that the demo can plant in one member's journal, to show that the audit finds them.

Each leaves a journal that is consistent in itself (rows are numbered densely, views begin where their rows do), so that
only the guarantees show the fault. Needs pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqcast.errors import UsageError
from seqcast.files import read_file
from seqcast.journal import seals
from seqcast.journal.places import find
from seqcast.journal.reader import Journal
from seqcast.journal.roll import rewrite
from seqcast.journal.schema import VIEWS_BYTES_MAX, VIEWS_FILE, signed
from seqcast.types import Member


def plant(fault: str, directory: Path, name: str) -> str:
    """Falsifies the journal of member ``name``.

    Args:
        fault: "swap" (two neighbouring messages of one sender change places), "drop" (one message is gone) or
            "duplicate" (one message is there twice), in the middle of the longest segment.
        directory: holds the members' journals.

    Returns:
        One line that describes the change.

    Raises:
        UsageError: the journal is too short, or its member did not leave in order.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    journal = next(found for found in find([directory]) if found.member.name == name)
    if journal.closed is None or not journal.segments:
        raise UsageError(f"{journal.path} holds no finished segment to plant a fault in; run longer (--seconds)")
    victim = max(journal.segments, key=lambda segment: segment.rows)
    table = pq.read_table(victim.path)
    row = _neighbours(table["sender"].to_numpy(), table["view_tag"].to_numpy())
    if row < 0:
        raise UsageError(f"{victim.path} has no two neighbouring messages of one sender; run longer (--seconds)")
    order = np.arange(table.num_rows)
    shift = 0
    match fault:
        case "swap":
            order[[row, row + 1]] = order[[row + 1, row]]
        case "drop":
            order, shift = np.delete(order, row), -1
        case "duplicate":
            order, shift = np.insert(order, row, order[row]), 1
        case _:
            raise AssertionError(f"no fault is called {fault!r}")
    idx = table["idx"][row].as_py()
    sender = next((known for known in _members(journal) if signed(known.id) == table["sender"][row].as_py()), None)
    whose = sender.name if sender else "an unknown member"
    what = f"{whose}'s message {table['seqno'][row].as_py()}.{table['index'][row].as_py()}"
    first = table["idx"][0].as_py()
    rewrite(journal.path, victim.number, _renumbered(table.take(pa.array(order)), first))
    if shift:
        for segment in journal.segments:
            if segment.number > victim.number:
                later = pq.read_table(segment.path)
                rewrite(journal.path, segment.number, _renumbered(later, later["idx"][0].as_py() + shift))
        _shift_views(journal.path / VIEWS_FILE, idx, shift)
    return f"planted in {journal.path.name}, row {idx}: {fault} of {what}"


def _neighbours(sender: Any, view_tag: Any) -> int:
    """The row nearest to the middle whose next row is of the same sender and view, or -1."""
    import numpy as np

    rows = np.flatnonzero((sender[1:] == sender[:-1]) & (view_tag[1:] == view_tag[:-1]))
    return int(rows[np.abs(rows - len(sender) // 2).argmin()]) if len(rows) else -1


def _renumbered(table: Any, first: int) -> Any:
    import numpy as np
    import pyarrow as pa

    place = table.schema.get_field_index("idx")
    numbers = pa.array(np.arange(first, first + table.num_rows, dtype=np.int64))
    return table.set_column(place, table.schema.field(place), numbers)


def _members(journal: Journal) -> list[Member]:
    return [member for view in journal.views for member in view.members]


def _shift_views(path: Path, idx: int, shift: int) -> None:
    """Moves the beginnings of the views after row ``idx``, and the end."""
    records = [seals.unseal(line) for line in read_file(path, VIEWS_BYTES_MAX).decode().splitlines()]
    for record in records:
        if record["idx"] > idx:
            record["idx"] += shift
    path.write_text("".join(seals.seal(record) + "\n" for record in records), encoding="utf-8")
