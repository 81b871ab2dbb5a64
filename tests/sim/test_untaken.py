"""The list of rows that seeds do not take has only existing rows; ``test_sim.py`` runs the seeds."""

from collections import Counter

from seqcast.core.table import Edge, edges_of
from seqcast.sim.runs import COUNTED, never_taken
from seqcast.sim.untaken import UNTAKEN

LISTED = Counter(row for rows in UNTAKEN.values() for row in rows)


def test_each_listed_row_exists_and_is_listed_once():
    assert set(LISTED) <= {str(edge) for edge in edges_of(COUNTED)}
    assert [row for row, times in LISTED.items() if times > 1] == []


def test_most_rows_are_not_listed():
    assert len(edges_of(COUNTED)) - len(LISTED) >= 350


def test_runs_name_the_rows_that_are_neither_taken_nor_listed_and_those_that_are_both():
    listed = next(edge for edge in sorted(edges_of(COUNTED)) if str(edge) in LISTED)
    said = list(never_taken(edges_of(COUNTED)))
    assert f"taken, though sim/untaken.py lists it: {listed}" in said and len(said) == len(LISTED)
    open_row = Edge("participant", "PROMISED", "START", "is_below_promise")
    assert f"never taken: {open_row}" in never_taken(set())
    assert not any(line.endswith(str(listed)) for line in never_taken(set()))
