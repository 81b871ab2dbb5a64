"""Journals on Spark: ``audit(spark, paths)`` checks the guarantees, ``register(spark)`` makes journals a format that
Spark reads, ``open_session()`` starts Spark on this machine.

Needs PySpark: ``pip install 'seqcast[spark]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqcast.lazy import lazily

if TYPE_CHECKING:
    from seqcast.spark.auditing import audit
    from seqcast.spark.session import open_session
    from seqcast.spark.source import register
    from seqcast.spark.verdicts import Audit, Report

__all__ = ["Audit", "Report", "audit", "open_session", "register"]
__getattr__ = lazily(
    globals(),
    {
        "audit": "seqcast.spark.auditing",
        "open_session": "seqcast.spark.session",
        "register": "seqcast.spark.source",
        "Audit": "seqcast.spark.verdicts",
        "Report": "seqcast.spark.verdicts",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
