"""Groups that repair by gossip: the production policy, light members. bench/gossip_scale.py makes larger ones."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import Any

import pytest
from benches import bench_of
from halves import first_quick
from project import ROOT

from seqcast.sim.crowd import Crowd, CrowdOptions, CrowdResult
from seqcast.sim.options import SECOND


def run(**given: Any) -> CrowdResult:
    return Crowd(replace(CrowdOptions(), **given)).run()


@pytest.mark.parametrize("loss", first_quick([0.01, 0.05, 0.2]))
def test_every_live_member_delivers_everything(loss: float) -> None:
    result = run(members=80, loss=loss, settling_ns=60 * SECOND)
    assert len(result.repaired_ns) > 0.5 * loss * result.expected
    assert (result.delivered, result.lost) == (result.expected, 0)


@pytest.mark.long
def test_a_members_traffic_does_not_grow_with_the_group() -> None:
    """PB-07: the same load in all, 5 % loss; a group twenty times as large costs each member no more than twice."""
    costs = [sum(r.bytes.values()) / r.member_s for r in (run(members=n) for n in (10, 200))]
    assert costs[1] < 2 * costs[0]


@pytest.mark.long
def test_a_member_knows_few_of_the_others_and_a_gossip_reaches_all() -> None:
    result = run(members=200, crashed=0.0)
    assert result.member_state == 32
    reached = [sum(hops.values()) for hops in result.reached.values()]
    assert len(reached) > 5 and sum(reached) / len(reached) > 0.99 * 200


def test_messages_that_nobody_keeps_any_more_are_reported_as_lost() -> None:
    """A lag of 2 packets is too little for this loss: permanent losses are reported, and nothing is missing
    silently."""
    gossip = replace(CrowdOptions().gossip, lag=2, lost_ns=10 * SECOND)
    result = run(members=50, loss=0.2, gossip=gossip)
    assert result.lost > 100
    assert result.delivered + result.lost == result.expected


# Members keep the newest 20 packets of each sender, and joiners come when each has sent 80.
LATE = {
    "members": 20, "crashed": 0.2, "packets_per_s": 30, "joiners": 5, "settling_ns": 10 * SECOND,
    "gossip": replace(CrowdOptions().gossip, lag=20, lost_ns=3 * SECOND, average_ns=20_000_000),
}  # fmt: skip


def test_joiners_get_from_late_join_handlers_messages_that_nobody_else_keeps() -> None:
    """PB-04: also if one in ten datagrams is lost."""
    result = run(handlers=2, loss=0.1, **LATE)
    assert (result.delivered, result.lost) == (result.expected, 0)
    assert len(result.caught_up_ns) == 5 and max(result.caught_up_ns) < 10 * SECOND


def test_without_late_join_handlers_joiners_are_told_which_messages_they_miss() -> None:
    result = run(handlers=0, loss=0.1, **LATE)
    assert result.lost > 1000 and result.caught_up_ns == []
    assert result.delivered + result.lost == result.expected


def test_a_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (run(members=40, seed=seed) for seed in (1, 1, 2))
    assert first == again and first.repaired_ns != other.repaired_ns


def test_the_table_of_processes_in_the_documents_is_made_from_the_figures_beside_it() -> None:
    bench = bench_of("gossip_processes")
    page = bench.PAGE.read_text(encoding="utf-8").partition(bench.BEGIN)[2].partition(bench.END)[0]
    assert page == bench.table(json.loads(bench.DATA.read_text(encoding="utf-8")))


def test_the_figures_in_the_documents_are_those_of_this_policy() -> None:
    """docs/gossip.csv takes six minutes to make; its smallest groups show whether the page still holds."""
    bench = bench_of("gossip_scale")
    with (ROOT / "docs" / "gossip.csv").open(newline="", encoding="utf-8") as file:
        written = [row for row in csv.DictReader(file) if row["members"] == "10"]
    assert len(written) == 3
    for row in written:
        made = bench.measured(10, float(row["loss"]), int(row["seed"]))
        assert {name: str(value) for name, value in made.items() if name != "cpu_s"} == {
            name: value for name, value in row.items() if name != "cpu_s"
        }
