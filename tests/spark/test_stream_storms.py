"""Streams of simulated groups that partition, merge, crash and restart: a survivor's deliveries, each row once."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from sim_journals import journaled
from stream_query import Tagged, followed_by

from seqcast.journal.places import find
from seqcast.journal.reader import Journal
from seqcast.journal.schema import JournalError
from seqcast.journal.views import Installed
from seqcast.sim.checkers import safety
from seqcast.sim.options import Options
from seqcast.sim.world import World
from seqcast.spark.stores import Folders

MASK = (1 << 64) - 1
TOLD = "known to have the same only up to"
"""A stream's report on a member that crashed and may have given out rows that no survivor has."""
NAMES = ("view_tag", "sender", "seqno", "index")
BATCHES = 60
"""A journal is read in about this many batches at most: those of a few rows are for short ones, or they would take
nearly all of the time, and tell nothing that the others do not."""


def delivered(journal: Journal) -> set[tuple[int, int, int, int]]:
    columns = [[batch[name].to_pylist() for name in NAMES] for batch in journal.batches(NAMES)]
    rows = itertools.chain.from_iterable(zip(*batch, strict=True) for batch in columns)
    return {(tag & MASK, sender & MASK, seqno, index) for tag, sender, seqno, index in rows}


def before(first: Installed, journals: list[Journal]) -> set[int]:
    """The views that lead to one."""
    found, left = set[int](), [first.tag]
    while left:
        tag = left.pop()
        same = [view for journal in journals for view in journal.views if view.tag == tag]
        more = {each for view in same for each in (view.closes, *(group for group, _ in view.subgroups))} - {0} - found
        found |= more
        left += more
    return found


def run(query: Tagged, rows_max: int) -> None:
    """Reads to the end, with restarts."""
    been = [json.dumps(query.log[-1], sort_keys=True)]
    for batch in itertools.count(1):
        query.step(rows_max)
        offset = json.dumps(query.log[-1], sort_keys=True)
        if offset == been[-1]:
            return
        assert offset not in been, f"the stream goes round: {offset}"
        been.append(offset)
        if batch % 5 == 0:
            query.again()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", ["total", "sequencer", "grant", "fifo", "causal"])
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(3, 6), id="few"),
        pytest.param(range(6, 21), id="many", marks=pytest.mark.long),
    ],
)
def test_a_stream_has_all_that_any_survivor_delivered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, seeds: range
) -> None:
    """Survivors are the members of the highest view. Each member is followed from its first view on, whatever became of
    it. The journals of all members are there, so no row is lost, and a stream that says so is wrong, unless it follows
    a member that crashed (`TOLD`)."""
    monkeypatch.setattr(safety, "check_safety", lambda _: ())  # other tests look at that; here nobody would
    merges = left = 0
    for seed in seeds:
        drawn = Options.draw(seed, partition="merge", order=order)
        options, top = dataclasses.replace(drawn, deaf_applications=0.0, without_own=0.0), tmp_path / str(seed)
        journaled(lambda options=options: World(options), top, f"seed {seed}", monkeypatch)
        journals = [each for each in find([top]) if each.views]
        everyone = {member.id for each in journals for view in each.views for member in view.members}
        if everyone != {each.member.id for each in journals}:
            continue  # a member was given nothing before its crash
        last = max((each.views[-1] for each in journals), key=lambda view: (view.view_id.counter, view.at_ns))
        merges += len({view.tag for each in journals for view in each.views if view.subgroups})
        survivors = [each for each in journals if each.views[-1].tag == last.tag]
        union = set[tuple[int, int, int, int]]().union(*map(delivered, survivors))
        group = before(last, journals) | {last.tag}
        for each in journals:
            if not group & {view.tag for view in each.views}:
                continue  # of a crash in a group that was founded apart
            query = followed_by(each.member.name, Tagged, Folders([str(top)]))
            try:
                rows_max = (0, 7, 40)[seed % 3]
                run(query, rows_max and max(rows_max, each.end_idx // BATCHES))
            except JournalError as error:
                if each in survivors or TOLD not in str(error):
                    raise AssertionError(f"seed {seed}, {each.member.name}: nothing is lost, but: {error}") from error
                continue
            left += any("left" in offset for offset in query.log)
            earlier = before(each.views[0], journals)
            lost = [row for row in (union | delivered(each)) - {*query.rows} if row[0] not in earlier]
            assert len(query.rows) == len({*query.rows}) and not lost, (seed, each.member.name, lost[:3])
    assert merges and (left or order not in ("fifo", "causal"))
