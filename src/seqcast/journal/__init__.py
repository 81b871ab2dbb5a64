"""Journals of what members delivered: written beside delivery, read after crashes, audited on Spark.

``seqcast.journal.read(directory)`` returns one member's journal, ``find`` those of several; see `Journal`. Reading
needs pyarrow: ``pip install 'seqcast[journal]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqcast.lazy import lazily

if TYPE_CHECKING:
    from seqcast.journal.reader import Installed, Journal, ViewEnd, find, read
    from seqcast.journal.schema import JournalDamaged, JournalError

__all__ = ["Installed", "Journal", "JournalDamaged", "JournalError", "ViewEnd", "find", "read"]
__getattr__ = lazily(
    globals(),
    {
        "Installed": "seqcast.journal.reader",
        "Journal": "seqcast.journal.reader",
        "JournalDamaged": "seqcast.journal.schema",
        "JournalError": "seqcast.journal.schema",
        "ViewEnd": "seqcast.journal.reader",
        "find": "seqcast.journal.reader",
        "read": "seqcast.journal.reader",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
