"""Rows looked up by their values: beside a plain search, on any columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from journal_data import Row, journal, member, view

from seqcast.journal.places import find
from seqcast.journal.reader import read
from seqcast.journal.schema import signed
from seqcast.spark import lookup

VALUES = st.sampled_from([-(1 << 63), -1, 0, 1, 2, 3, (1 << 63) - 1])
TUPLES = st.tuples(VALUES, VALUES, VALUES)


@given(st.lists(TUPLES, max_size=60), st.sets(TUPLES, min_size=1, max_size=30))
def test_rows_that_match_are_those_of_a_plain_search(rows: list[tuple[int, ...]], among: set[tuple[int, ...]]) -> None:
    wanted = list(among)
    columns = (
        [np.array(column, np.int64) for column in zip(*rows, strict=True)] if rows else [np.zeros(0, np.int64)] * 3
    )
    at, which = lookup.matches(columns, wanted)
    plain = [(place, wanted.index(row)) for place, row in enumerate(rows) if row in among]
    assert list(zip(at.tolist(), which.tolist(), strict=True)) == plain


A, B = member("a"), member("b")
V1, V2 = view(1, [A, B]), view(2, [A, B])
ROWS = [Row((A, B)[at % 3 == 0], 1 + at, at % 2, 1 + at, b"%d" % at) for at in range(3000)]


@pytest.mark.parametrize(("segment_rows", "together_rows"), [(1 << 20, 1), (1000, 1), (1000, 2000)])
def test_a_run_of_segments_gives_the_wanted_rows_and_parts_of_buckets(
    tmp_path: Path, segment_rows: int, together_rows: int
) -> None:
    story = [(V1, ROWS), (V2, ROWS[:500])]
    found = read(journal(tmp_path, A, story, segment_rows=segment_rows, together_rows=together_rows))
    run = found.segments
    tag, other, sender = signed(V1.view_id.tag), signed(V2.view_id.tag), signed(B.id)

    some = lookup._positions(run, frozenset({(tag, 7), (tag, 2999), (other, 500), (other, 501), (1, 7)}))
    assert [(row[0], row[2]) for row in some] == [(tag, 7), (tag, 2999), (other, 500)]
    keys = frozenset({(sender, 4 << 16 | 1), (sender, 4 << 16), (sender, 5 << 16 | 1), (sender, 1 << 78)})
    assert [row[1] for row in lookup._messages(run, keys)] == [3, 3003]
    assert len(lookup._in_buckets(run, frozenset({(other, 0), (tag, 9)}))) == 500

    whole = (tag, sender, 0, 0, lookup.EVERYTHING)
    halves = (tag, sender, 0, 0, 1500), (tag, sender, 0, 1501, lookup.EVERYTHING)
    elsewhere = (other, sender, 0, 0, 100)
    parts = {part: (rows, total) for part, rows, total in lookup._parts(
        run, frozenset({whole, *halves, elsewhere, (tag, sender, 7, 0, 5), (tag, 99, 0, 0, 5)})
    )}  # fmt: skip
    assert set(parts) == {whole, *halves, elsewhere}
    assert parts[whole][0] == sum(row.sender == B for row in ROWS) and parts[elsewhere][0] == 34
    rows, total = (parts[halves[0]][at] + parts[halves[1]][at] - parts[whole][at] for at in (0, 1))
    assert rows == 0 and total % (1 << 64) == 0


def test_small_segments_share_a_run_and_no_run_is_more_than_a_tasks_share(tmp_path: Path, here: Any) -> None:
    top = tmp_path / "journals"
    large = journal(top, A, [(V1, ROWS)])
    journal(top, B, [(V1, ROWS)], segment_rows=50, step=50)
    found = find([top])
    runs = lookup.runs_of(here, found)
    assert [segment for _, run in runs for segment in run] == [each for of in found for each in of.segments]
    assert [run for number, run in runs if found[number].path == large] == [found[0].segments]
    small = [run for number, run in runs if found[number].path != large]
    share = sum(segment.size for of in found for segment in of.segments) / (4 * here.defaultParallelism)
    assert len(found[1].segments) >= 30 > 10 >= len(small)
    assert all(sum(segment.size for segment in run) <= share for run in small)
