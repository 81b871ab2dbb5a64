"""Journals on Spark: ``audit(spark, paths)`` checks the guarantees, ``register(spark)`` makes journals a format that
Spark reads, ``open_session()`` starts Spark on this machine.

Needs PySpark: ``pip install 'seqcast[spark]'``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqcast.spark.auditing import audit
    from seqcast.spark.session import open_session
    from seqcast.spark.source import register
    from seqcast.spark.verdicts import Audit, Report

_HOMES = {
    "audit": "seqcast.spark.auditing",
    "open_session": "seqcast.spark.session",
    "register": "seqcast.spark.source",
    "Audit": "seqcast.spark.verdicts",
    "Report": "seqcast.spark.verdicts",
}
__all__ = ["Audit", "Report", "audit", "open_session", "register"]


def __getattr__(name: str) -> object:
    """Loads what is public on first use: a command that fails early must not wait for PySpark."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
