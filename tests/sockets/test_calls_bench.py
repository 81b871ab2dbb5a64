"""bench/calls.py: the calls of replicas, counted."""

from __future__ import annotations

import pytest
from members import why_no_multicast
from project import ROOT


@pytest.mark.long
def test_a_counter_is_the_sum_of_the_calls_that_were_answered(monkeypatch):
    """`rates` compares the counters of all members with the calls; the failover ends when a call is answered."""
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import calls

    (row,) = calls.measure(0.2, 1, ["seqcast"])["calls"]
    assert row["kind"] == "seqcast" and all(row[key] > 0 for key in row if key != "kind")
    ask = calls.Member.ask

    def with_one_more(member, do, **values):
        said = ask(member, do, **values)
        return said | {"total": said["total"] + 1} if "total" in said else said

    monkeypatch.setattr(calls.Member, "ask", with_one_more)
    with pytest.raises(calls.RunFailed, match="calls of 1 were answered"):
        calls.rates("seqcast", 1, 0.1)
