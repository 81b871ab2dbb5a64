"""Rows looked up by what they have: beside a plain search, on any columns."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from journal_data import Row, journal, member, view

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


def test_a_segment_gives_the_wanted_rows_and_parts_of_buckets(tmp_path: Path) -> None:
    found = read(journal(tmp_path, A, [(V1, ROWS), (V2, ROWS[:500])]))
    (segment,) = found.segments
    tag, other, sender = signed(V1.view_id.tag), signed(V2.view_id.tag), signed(B.id)

    some = lookup._positions(segment, frozenset({(tag, 7), (tag, 2999), (other, 500), (other, 501), (1, 7)}))
    assert [(row[0], row[2]) for row in some] == [(tag, 7), (tag, 2999), (other, 500)]
    keys = frozenset({(sender, 4 << 16 | 1), (sender, 4 << 16), (sender, 5 << 16 | 1), (sender, 1 << 78)})
    assert [row[1] for row in lookup._messages(segment, keys)] == [3, 3003]
    assert len(lookup._in_buckets(segment, frozenset({(other, 0), (tag, 9)}))) == 500

    whole = (tag, sender, 0, 0, lookup.EVERYTHING)
    halves = (tag, sender, 0, 0, 1500), (tag, sender, 0, 1501, lookup.EVERYTHING)
    elsewhere = (other, sender, 0, 0, 100)
    parts = {part: (rows, total) for part, rows, total in lookup._parts(
        segment, frozenset({whole, *halves, elsewhere, (tag, sender, 7, 0, 5), (tag, 99, 0, 0, 5)})
    )}  # fmt: skip
    assert set(parts) == {whole, *halves, elsewhere}
    assert parts[whole][0] == sum(row.sender == B for row in ROWS) and parts[elsewhere][0] == 34
    rows, total = (parts[halves[0]][at] + parts[halves[1]][at] - parts[whole][at] for at in (0, 1))
    assert rows == 0 and total % (1 << 64) == 0
