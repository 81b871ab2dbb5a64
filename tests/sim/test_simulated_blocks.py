"""Blocks in simulated groups under crashes, cuts and pauses: fences only grow and one member holds a lock, each count
by compare-and-set succeeds once, an answered question was taken once, and no subscriber has a gap."""

from __future__ import annotations

import pytest
from sim_blocks import Asks, Feeds, Served, Writes, simulated

pytestmark = pytest.mark.parametrize(
    ("seed", "ms", "faults", "pace_ms"),
    [(3, 1000, 4, 8), *(pytest.param(seed, 3000, 9, 4, marks=pytest.mark.long) for seed in range(10, 20))],
)


def test_one_member_holds_a_lock_and_counts_by_compare_and_set_are_linear(seed, ms, faults, pace_ms, monkeypatch):
    town = simulated(monkeypatch, Served(seed, pace_ms))
    town.use(ms, faults)
    hosts = town.hosts.values()
    assert town.wrong == []
    assert len(town.fences) > 50 and len(town.counted) > 50 and town.reads > 50
    assert len(town.views()) == 1 and all(host.replica.ready for host in hosts)
    assert {(host.wish, host.held, host.counts) for host in hosts} == {(None, 0, False)}, "something waits for ever"
    (table,) = {tuple(host.table._data.items()) for host in hosts}
    ((key, count),) = table  # the others were to live shortly
    assert key == "count" and town.count <= int(count) <= len(town.counted) + town.unknown
    whole = [host.told for host in hosts if not (host.parted or host.crashed)]
    assert all(told == whole[0] for told in whole) and (not whole or len(whole[0]) > 50)


def test_each_member_takes_a_question_once_and_all_in_one_order(seed, ms, faults, pace_ms, monkeypatch):
    town = simulated(monkeypatch, Asks(seed, pace_ms))
    town.use(ms, faults)
    town.orders()
    assert town.wrong == []
    assert town.asks > 100 and town.gone and len(town.views()) == 1
    assert [host.open for host in town.hosts.values()] == [{}] * 5, "a question waits for ever"


@pytest.mark.parametrize("partition", ["primary", "merge"])
def test_a_subscriber_has_no_gap_and_all_have_the_values_last_published(
    partition, seed, ms, faults, pace_ms, monkeypatch
):
    town = simulated(monkeypatch, Feeds(seed, partition, pace_ms))
    town.use(ms, faults)
    hosts = town.hosts.values()
    for host in hosts:
        host.follow()
    assert town.wrong == []
    assert town.updates > 500 and len(town.views()) == 1
    assert partition == "merge" or not town.merges
    (values,) = {str(host.feed.snapshot()) for host in hosts}
    kept = [host for host in hosts if host.last and not host.parted]
    assert [host.feed.snapshot().values[host.name] for host in kept] == [host.last for host in kept], values


@pytest.mark.long
def test_each_batch_is_delivered_once_and_whole_though_its_writers_stop_half_way(
    seed, ms, faults, pace_ms, monkeypatch
):
    town = simulated(monkeypatch, Writes(seed, pace_ms))
    town.use(ms, faults)
    hosts = list(town.hosts.values())
    for host in hosts:
        town.judge(host.rows)
    assert town.wrong == []
    assert len(town.views()) == 1 and len({tuple(host.rows) for host in hosts}) == 1
    assert all(batch > 10 for batch in town.batch.values()), town.batch
    counted = [host.block.counters for host in hosts]
    assert sum(each.repeated for each in counted) > 0
