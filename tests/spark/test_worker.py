"""The work of tasks for the workers of Spark that they run in."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from journal_data import Row, journal, member, view

import seqcast.spark
from seqcast.spark import worker

A = member("a")


def test_the_garbage_that_spark_collects_after_each_task_has_no_modules(spark: Any, tmp_path: Path) -> None:
    """Else each task ends with a look at every object of every module."""
    journal(tmp_path, A, [(view(1, [A]), [Row(A, 1, 0, 1, b"one")])])
    assert seqcast.spark.audit(spark, tmp_path).holds
    tasks = spark.sparkContext.parallelize(range(8), 8)
    found = tasks.map(lambda _: (gc.get_freeze_count(), len(gc.get_objects()))).collect()
    assert any(frozen > others for frozen, others in found), found


def test_other_processes_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    worker.settle.cache_clear()
    worker.settle()
    assert not frozen


def test_workers_import_sparks_modules_from_files(spark: Any) -> None:
    """From an archive each kind of worker would compile them anew."""

    def places(_: int) -> list[str]:
        import py4j
        import pyspark

        return [py4j.__file__, pyspark.__file__]

    (found,) = spark.sparkContext.parallelize([0], 1).map(places).collect()
    assert all(Path(place).is_file() for place in found), found
