"""Journals of simulated runs with crashes, partitions, merges and joins give no alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from sim_journals import journaled

from seqcast.journal.reader import find
from seqcast.sim.options import Options
from seqcast.sim.world import World
from seqcast.spark.auditing import audit_journals

pytestmark = pytest.mark.spark


def written(top: Path, seeds: range, patch: pytest.MonkeyPatch) -> int:
    """Journals of the runs of these seeds, each run a cluster of its own. Returns how many messages were delivered."""
    messages = 0
    for seed in seeds:
        result = journaled(lambda seed=seed: World(Options.draw(seed)), top / f"{seed}", f"seed {seed}", patch)
        assert not result.violations, (seed, result.violations)
        messages += result.messages
    return messages


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", [range(1, 11), pytest.param(range(11, 51), marks=pytest.mark.long)])
def test_simulated_runs_give_no_alarm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    written(tmp_path, seeds, monkeypatch)
    journals = find([top for top in tmp_path.iterdir() if any(top.iterdir())])
    audit = audit_journals(spark, journals)
    assert audit.holds, [report.as_text() for report in audit.reports if not report.holds]
    assert len(audit.reports) == len(seeds) and sum(report.rows for report in audit.reports) > 300 * len(seeds)
