"""Journals of simulated runs with crashes, partitions, merges and joins give no alarm."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from sim_journals import journaled

from seqcast.journal.places import find
from seqcast.sim.options import Options
from seqcast.sim.world import World
from seqcast.spark.auditing import audit_journals

pytestmark = pytest.mark.spark
KEYED = 123
"""Of the seeds behind this one many have a key, and some of those identities; the first hundred have none."""


def written(top: Path, seeds: Iterable[int], patch: pytest.MonkeyPatch) -> int:
    """Journals of the runs of these seeds, each run a cluster of its own. Returns how many messages were delivered."""
    messages = 0
    for seed in seeds:
        if ("slow", "skip") in Options.draw(seed).settings:
            continue  # without journals
        result = journaled(lambda seed=seed: World(Options.draw(seed)), top / f"{seed}", f"seed {seed}", patch)
        assert not result.violations, (seed, result.violations)
        messages += result.messages
    return messages


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "last"), [(1, 5), pytest.param(6, 25, marks=pytest.mark.long)])
def test_simulated_runs_give_no_alarm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, last: int
) -> None:
    seeds = [begin + seed for begin in (0, KEYED) for seed in range(first, last + 1)]
    assert {Options.draw(seed).keyed for seed in seeds} == {False, True}
    written(tmp_path, seeds, monkeypatch)
    tops = [top for top in tmp_path.iterdir() if any(top.iterdir())]
    audit = audit_journals(spark, find(tops))
    assert audit.holds, [report.as_text() for report in audit.reports if not report.holds]
    assert len(audit.reports) == len(tops) > 0.8 * len(seeds), "a run of few seeds is over before anything is sent"
    assert sum(report.rows for report in audit.reports) > 300 * len(seeds)
