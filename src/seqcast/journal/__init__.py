"""Journals of what members delivered: written beside delivery, read after crashes, audited on Spark.

``seqcast.journal.read(directory)`` gives one member's journal, ``find`` those of several; see `Journal`. Reading needs
pyarrow: ``pip install 'seqcast[journal]'``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqcast.journal.reader import Installed, Journal, find, read
    from seqcast.journal.schema import JournalDamaged, JournalError

_HOMES = {
    "seqcast.journal.reader": ("Installed", "Journal", "find", "read"),
    "seqcast.journal.schema": ("JournalDamaged", "JournalError"),
}
__all__ = ["Installed", "Journal", "JournalDamaged", "JournalError", "find", "read"]


def __getattr__(name: str) -> object:
    """Loads what is public on first use: importing the writer must not load the reader."""
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
