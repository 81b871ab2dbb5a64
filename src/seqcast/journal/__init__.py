"""Journals of members' deliveries: written beside delivery, read after crashes, audited on Spark.

``seqcast.journal.read(directory)`` returns one member's journal, ``find`` those of several; see `Journal`.
``table(path)`` is all rows as an Arrow table, with names and times. Reading needs pyarrow:
``pip install 'seqcast[journal]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqcast.lazy import lazily

if TYPE_CHECKING:
    from seqcast.journal.places import find
    from seqcast.journal.reader import Journal, read
    from seqcast.journal.schema import JournalDamaged, JournalError
    from seqcast.journal.tables import table
    from seqcast.journal.views import Installed, ViewEnd

__all__ = ["Installed", "Journal", "JournalDamaged", "JournalError", "ViewEnd", "find", "read", "table"]
__getattr__ = lazily(
    globals(),
    {
        "Installed": "seqcast.journal.views",
        "Journal": "seqcast.journal.reader",
        "JournalDamaged": "seqcast.journal.schema",
        "JournalError": "seqcast.journal.schema",
        "ViewEnd": "seqcast.journal.views",
        "find": "seqcast.journal.places",
        "read": "seqcast.journal.reader",
        "table": "seqcast.journal.tables",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
