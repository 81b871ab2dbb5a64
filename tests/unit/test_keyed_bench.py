"""The cost of a key in a view change: bench/keyed.py, and its rows on the page of figures."""

from __future__ import annotations

import pytest
from project import ROOT

pytest.importorskip("nacl")


def test_the_members_of_a_view_are_compared_with_a_key_and_without_and_the_page_shows_the_time(monkeypatch):
    for folder in ("bench", "docs"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import keyed
    import measurements

    plain, sealed = (keyed.Made(4, pair) for pair in (lambda: None, keyed.KeyPair))
    for made in (plain, sealed):
        assert [made.next() > 0 for _ in range(2)] == [True, True]
        assert made.last.view_id.counter == 3 and len(made.last.members) == 4
    assert (len(plain.last.wraps), len(sealed.last.wraps)) == (0, 4)
    row = keyed.timed("view change", 64, 5.0, [1.0, 2.0, 4.0], [2.5, 3.0, 8.0])
    assert (row["without"], row["with"], row["change"], row["spread"]) == (2.0, 3.0, 1.5, [1.0, 4.0])
    shown = ["view change, 64 members", "–", "computed", "2.0 ms", "3.0 ms", "+1.5 ms (+1.0 to +4.0)"]
    assert measurements.keyed_row(row) == shown
