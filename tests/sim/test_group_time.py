"""An entry of a dictionary lasts as long as asked, whoever has sent before, is silent, starts, or ends meanwhile."""

from __future__ import annotations

import pytest
from sim_blocks import FOUNDED_MS, Served, simulated

from seqcast.sim.options import MS

TTL_MS = 500
MARGIN_MS = 30
"""Of a message or two, TICK_S, and the simulated threads, which look every few milliseconds."""


@pytest.fixture
def town(monkeypatch):
    town = simulated(monkeypatch, Served(1, pace_ms=2))
    town.using = False
    town.until(FOUNDED_MS)
    town.later(1, town.step)
    (view,) = town.views()
    town.names = [member.name for member in view.members]  # the coordinator first
    return town


def put(town, rank, key="x", ttl_s=None):
    host = town.hosts[town.names[rank]]
    host.call(host.table, host.table._operation(key, 1, ttl_s), lambda _: None)


def wait(town, ms):
    town.clock.run(town.clock.now + ms * MS)


def lasts_ms(town, begun):
    """Until no member that runs has the key; all are to drop it at one place of the order."""
    while any("key" in host.table._data for host in town.hosts.values() if host.runs):
        wait(town, 2)
        assert town.clock.now < begun + 4 * TTL_MS * MS, "the entry does not end"
    return (town.clock.now - begun) / MS


def starts(town, rank):
    put(town, rank, "key", TTL_MS / 1000)
    begun = town.clock.now
    wait(town, 4)
    assert all("key" in host.table._data for host in town.hosts.values() if host.runs)
    return begun


def near(town, begun):
    took = lasts_ms(town, begun)
    assert abs(took - TTL_MS) < MARGIN_MS, f"{took} ms"
    assert len({(host.replica._log.now_ns, host.table._now_ns) for host in town.hosts.values() if host.runs}) == 1


def test_after_a_pause_of_all_the_first_entry_of_a_member_outlasts_a_message_of_an_older_sender(town):
    put(town, 0)
    wait(town, 3 * TTL_MS)
    begun = starts(town, 1)
    put(town, 0)
    near(town, begun)


def test_an_entry_that_ends_in_a_pause_and_one_that_ends_before_it_end_in_their_time(town):
    put(town, 0)
    wait(town, 3 * TTL_MS)
    put(town, 1)
    wait(town, TTL_MS)
    begun = starts(town, 1)
    put(town, 1, "short", 0.05)
    near(town, begun)


def test_an_entry_ends_in_its_time_though_no_other_member_ever_sends(town):
    near(town, starts(town, 4))


def test_an_entry_ends_in_its_time_though_two_coordinators_end_meanwhile(town):
    begun = starts(town, 4)
    for rank in (0, 1):
        town.hosts[town.names[rank]].depart()
        wait(town, 100)
        assert town.hosts[town.names[4]].view.coordinator.name == town.names[rank + 1]
    near(town, begun)


def test_an_entry_of_a_member_that_joined_in_a_pause_lasts_as_long_as_any(town):
    put(town, 0)
    wait(town, 3 * TTL_MS)
    town.hosts[town.names[3]].crash()
    wait(town, 3 * TTL_MS)
    assert len(town.views()) == 1
    begun = starts(town, 3)
    put(town, 0)
    near(town, begun)
