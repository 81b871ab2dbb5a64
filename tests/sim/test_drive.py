"""Simulated members use the engine as sockets, kernels and applications do: each of these ways is drawn, and taken."""

from dataclasses import replace

import pytest

from seqcast.sim import Options, World, simulate
from seqcast.sim.checkers.liveness import check_delivered
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.families import FAMILIES
from seqcast.sim.options import MS, PINNED, SECOND
from seqcast.sim.record import Delivered
from seqcast.sim.sockets import MERGED_MAX, runs

DRIVE = {"arrays": 0.3, "together": 1.0, "corked_ns": 50_000, "full": 0.05, "queue_bytes": 1 << 20}
PATHS = {
    "messages of arrays", "merged datagrams", "flushes", "waits for the kernel", "buffers that the engine may keep",
    "queued messages",
}  # fmt: skip


@pytest.mark.parametrize("order", ["fifo", "sequencer"])
def test_every_path_of_production_is_taken_and_all_guarantees_hold(order):
    options = {"members": 3, "order": order, "spread_ns": 0, "duration_ns": SECOND, "crashes": 1, "loss": 0.01}
    result = simulate(Options(seed=2, bytes_max=60_000, suspends=2, **options, **DRIVE))
    assert not result.violations
    assert set(+result.paths) == PATHS


def test_buffers_that_the_kernel_has_begun_to_send_do_not_change():
    """Large packets, of which a sequencer sends on the memory in which they came."""
    options = {"members": 3, "order": "sequencer", "spread_ns": 0, "duration_ns": 700 * MS, "bytes_max": 60_000}
    driven = {**DRIVE, "full": 0.1, "packet_bytes": 9000, "capacity": 64 << 10}
    result = simulate(Options(seed=3, **options, **driven))
    assert not result.violations and result.paths["waits for the kernel"]


@pytest.mark.parametrize("order", ["fifo", "sequencer"])
def test_nothing_is_requested_if_nothing_is_lost(order):
    """However buffers are merged, and in however many rounds they leave."""
    options = {"members": 3, "order": order, "spread_ns": 0, "duration_ns": SECOND, "rate": 100, "bytes_max": 60_000}
    world = World(Options(seed=3, jitter_ns=1000, together=1.0, corked_ns=50_000, arrays=0.3, **options))
    assert not world.run().violations
    assert world.network.repairs.naks == 0


def test_members_that_receive_nothing_are_sent_to_and_send():
    result = simulate(Options(seed=2, members=3, order="total", duration_ns=SECOND, deaf_applications=0.4, leaves=1))
    assert not result.violations
    assert result.paths["members that receive nothing"] == 1 and result.messages > 100


@pytest.mark.parametrize("order", ["fifo", "sequencer", "total", "total-1999", "grant", "causal"])
def test_of_a_send_that_timed_out_nothing_is_delivered(order):
    """Large messages are given up half packed, while views change and the group is paused; then they are sent anew."""
    options = {"members": 3, "duration_ns": SECOND, "spread_ns": 0, "loss": 0.02, "crashes": 1, "suspends": 2}
    driven = {"arrays": 0.3, "beside": 0.3, "unicasts": 0.3, "queue_bytes": 2000, "safe": True, "timeouts": 0.2}
    size = {"bytes_max": 60_000, "rate": 100, "capacity": 64 << 10, "ring_packets": 64}
    result = simulate(Options(seed=2, order=order, **options, **driven, **size))
    assert not result.violations
    assert result.paths["sends that timed out"] > 20


@pytest.mark.parametrize("order", ["fifo", "sequencer", "total", "grant", "causal"])
def test_members_may_do_without_their_own_messages(order):
    """And are judged by the others' deliveries."""
    options = {"members": 3, "duration_ns": 700 * MS, "spread_ns": 0, "loss": 0.01}
    world = World(Options(seed=2, order=order, without_own=0.5, **options))
    result = world.run()
    assert not result.violations
    record, other, third = world.records
    assert [each.receives_own for each in world.records] == [False, True, False]
    assert result.paths["members without their own messages"] == 2
    for each in (record, third):
        assert not any(entry.sender == each.id for entry in each.log if isinstance(entry, Delivered))
    of_other = [entry.sender == other.id and not entry.to for entry in record.log if isinstance(entry, Delivered)]
    assert any(of_other) and found(world) == set()
    last = max(at for at, entry in enumerate(record.log) if getattr(entry, "sender", 0) == other.id and not entry.to)
    entry = record.log.pop(last)
    assert "agreement" in found(world)
    record.log[last:last] = [entry, entry]
    assert "duplicate" in found(world)
    record.log[last] = replace(entry, sender=record.id, claimed=record.id)
    assert "own messages" in found(world)


def found(world):
    """The kinds of violations."""
    return {each.partition(":")[0] for each in (*check_safety(world.records), *check_delivered(world.records))}


def test_the_seeds_draw_every_way_to_drive_the_engine():
    drawn = [Options.draw(seed) for seed in range(1, 41)]
    for name in (*DRIVE, "deaf_applications", "without_own"):
        used = sum(bool(getattr(options, name)) for options in drawn)
        assert 4 <= used <= 36, f"{name}: {used} of 40 seeds"
    later = [bool(Options.draw(PINNED + seed).timeouts) for seed in range(1, 41)]
    assert 4 <= sum(later) <= 36 and not any(options.timeouts for options in drawn)
    assert {Options.draw(PINNED + seed).family for seed in range(1, 61)} == {"", *FAMILIES}
    assert any(options.packet_bytes == 65_000 for options in drawn)
    assert {options.corked_ns for options in drawn} == {0, 50_000, 2 * MS}


def test_runs_are_of_one_address_and_one_size_but_for_the_last():
    a, b = (0, b"", bytes(100)), (2, b"x", bytes(100))
    short, long = (0, b"", bytes(60)), (0, b"", bytes(200))
    assert list(runs([a, a, b, b, a, short, a, long, a])) == [[a, a], [b, b], [a, short], [a], [long, a]]
    assert [len(run) for run in runs([a] * (MERGED_MAX + 1))] == [MERGED_MAX, 1]
    large = (0, b"", bytes(30_000))
    assert [len(run) for run in runs([large] * 3)] == [2, 1]
    assert list(runs([])) == []
