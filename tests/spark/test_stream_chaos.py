"""Streams of real groups into tables while members are killed and paused. Longer: ``python -m chaos.streams``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from chaos.streams import run
from members import LOOPBACK, why_no_multicast

import seqcast.spark

SEEDS = (12, 46)
"""Without a total order, and with the default one; they have merges, kills, pauses and restarts."""


@pytest.mark.long
@pytest.mark.timeout(900)  # of a machine that has other work, too
@pytest.mark.skipif(bool(why_no_multicast()), reason="no multicast on loopback here")
def test_each_table_has_the_deliveries_of_any_remaining_member(spark: Any, tmp_path: Path) -> None:
    seqcast.spark.register(spark)
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda seed: run(spark, seed, LOOPBACK, tmp_path)[0], SEEDS))
    assert "whole" in told
