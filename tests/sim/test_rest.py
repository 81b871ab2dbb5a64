"""The simulator's verdict on a group at rest, and on single messages in such a group."""

import pytest
from halves import first_quick

from seqcast._native.engine import Engine
from seqcast.core.context import NEVER
from seqcast.core.machines.coordinated import CoordinatedMembership
from seqcast.core.machines.pause_member import PauseMember
from seqcast.core.machines.pause_owner import PauseOwner
from seqcast.sim import Options, World
from seqcast.sim.checkers import rest
from seqcast.sim.network import Network
from seqcast.sim.options import MS
from seqcast.sim.wire import ACK, PROBE, kind
from seqcast.sim.world import simulate


def test_a_group_at_rest_sends_heartbeats_and_frames_and_keeps_nothing():
    quiet = {7: 10, 8: 5, 10: 1}
    assert not [*rest.check_rest("a", quiet, 1.0, 10)]
    assert not [*rest.check_memory("a", {"slabs_in_use": 3}, 0, 0)]
    assert ["sends {4: 9}" in text for text in rest.check_rest("a", {**quiet, 4: 9}, 1.0, 10)] == [True]
    assert ["19 heartbeats" in text for text in rest.check_rest("a", {7: 19}, 1.0, 10)] == [True]
    assert ["61 control frames" in text for text in rest.check_rest("a", {8: 61}, 1.0, 10)] == [True]
    for slabs, unsent, deliverable in (30, 0, 0), (0, 1, 0), (0, 0, 1):
        assert [*rest.check_memory("a", {"slabs_in_use": slabs}, unsent, deliverable)]
    assert [*rest.check_needless("a", {5: 1}, 0)] and not [*rest.check_needless("a", {1: 1}, 0)]
    assert ["sends 2 packets again" in text for text in rest.check_needless("a", {1: 1}, 2)] == [True]
    assert not [*rest.check_streams({"a": [(3, 3, 3), (1, 1, 1)], "b": [(3, 3, 3), (1, 1, 1)]})]
    for odd in (2, 3, 3), (3, 4, 3), (3, 3, 2):
        assert ["of rank 1" in text for text in rest.check_streams({"a": [(3, 3, 3)] * 2, "b": [(3, 3, 3), odd]})]
    assert [*rest.check_probes("a", {6: 6}, False)] and not [*rest.check_probes("a", {6: 6}, True)]
    assert not [*rest.check_probes("a", {6: 5}, False)]
    assert ["takes 7.0 ms" in text for text in rest.check_delays({"a": 0.004, "b": 0.007}, 0.005)] == [True]


def test_the_checkers_see_a_control_plane_that_does_something_for_nothing():
    assert not [*rest.check_machines("a", {"Initiator": "IDLE", "StateTaker": "HELD"}, [])]
    assert ["Initiator of a is SERVING" in text for text in rest.check_machines("a", {"Initiator": "SERVING"}, [])] == [
        True
    ]
    assert ["a timer of Informer" in text for text in rest.check_machines("a", {}, ["Informer"])] == [True]
    assert not [*rest.check_counters("a", {"bytes_sent": 9, "naks_sent": 0})]
    assert ["{'naks_sent': 1}" in text for text in rest.check_counters("a", {"bytes_sent": 9, "naks_sent": 1})] == [
        True
    ]
    assert not [*rest.check_troubles("a", {"acks_sent": 5, "drop_repeated": 1})]
    for trouble in "drop_field", "packets_duplicate":
        assert [trouble in text for text in rest.check_troubles("a", {trouble: 1})] == [True]
    assert not [*rest.check_frames("a", {"Beacon": 3})]
    assert ["{'InfoTold': 1}" in text for text in rest.check_frames("a", {"InfoTold": 1})] == [True]
    assert not [*rest.check_wakes("a", 50, 10)] and [*rest.check_wakes("a", 51, 10)]


class Lazy(Engine):
    """Names deadlines that are up to 50 ms late."""

    def deadline(self):
        due = super().deadline()
        return due if due >= (1 << 62) else -(-due // (50 * MS)) * 50 * MS


@pytest.mark.parametrize("make_engine", [Engine, Lazy])
def test_a_message_that_waits_for_a_timer_which_is_not_set_is_late(make_engine):
    """Safety and liveness hold all the same."""
    options = Options(seed=1, members=3, order="records", safe=True, duration_ns=300 * MS, loss=0.0)
    found = World(options, make_engine=make_engine).run().violations
    assert {text.partition(":")[0] for text in found} == (set() if make_engine is Engine else {"deadline", "delay"})


@pytest.mark.parametrize("named", [True, False])
def test_a_machine_that_does_not_name_the_time_of_its_timers_is_found(named, monkeypatch):
    """Any other event would run them."""
    if not named:
        monkeypatch.setattr(PauseOwner, "due", lambda _: NEVER)
    found = simulate(Options(seed=4, members=3, order="records", duration_ns=300 * MS, loss=0.0)).violations
    assert any(text.startswith("deadline: PauseOwner of") for text in found) != named == (not found)


class WithoutProbes(Engine):
    """Hears no probe: that the last packet of a row is missing is told by a heartbeat alone."""

    def receive(self, datagram, *more):
        return super().receive(datagram, *more) if kind(datagram) != PROBE else 0


@pytest.mark.parametrize("make_engine", [Engine, WithoutProbes])
def test_a_lost_datagram_whose_repair_waits_for_a_heartbeat_is_late(make_engine):
    """Of each type one is lost, while nothing else is on its way."""
    options = Options(seed=1, members=2, order="fifo", duration_ns=200 * MS, loss=0.0, unicasts=0, bytes_max=100)
    found = World(options, make_engine=make_engine).run().violations
    assert any("of type 1 was lost" in text for text in found) != (make_engine is Engine) == (not found)


@pytest.mark.parametrize("heard", first_quick([True, False]))
def test_a_leave_that_nobody_hears_of_is_found_by_its_delay(heard, monkeypatch):
    if not heard:
        monkeypatch.setattr(CoordinatedMembership, "leave", lambda *_: None)
    found = simulate(Options(seed=4, members=3, order="records", duration_ns=300 * MS, loss=0.0)).violations
    assert [text.partition(" of ")[0] for text in found[:1]] == ([] if heard else ["delay: the leave"])


@pytest.mark.parametrize("acked", [True, False])
def test_acks_that_come_with_heartbeats_alone_are_late(acked, monkeypatch):
    carry = Network.carry

    def without_acks(network, source, target, receive, datagram, address):
        if not (network.healed and kind(datagram) == ACK):
            carry(network, source, target, receive, datagram, address)

    if not acked:
        monkeypatch.setattr(Network, "carry", without_acks)
    found = simulate(Options(seed=4, members=3, order="fifo", duration_ns=300 * MS, loss=0.0, unicasts=0)).violations
    assert any(text.startswith("delay: the acks of") for text in found) != acked == (not found)


@pytest.mark.parametrize("heard", [True, False])
def test_a_pause_that_nobody_answers_is_found_by_its_delay(heard, monkeypatch):
    if not heard:
        monkeypatch.setattr(PauseMember, "suspend", lambda *_: None)
    found = simulate(Options(seed=4, members=3, order="records", duration_ns=300 * MS, loss=0.0)).violations
    assert [text.partition(" of ")[0] for text in found[:1]] == ([] if heard else ["delay: a pause"])
