"""A member that receives too slowly is put out of a simulated group: by one view, after all that is agreed on."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from halves import first_quick

from seqcast.events import Excluded
from seqcast.sim import Options, World
from seqcast.sim.checkers.slow import check_slow, spells
from seqcast.sim.options import MS, SECOND
from seqcast.sim.record import Delivered
from seqcast.types import View

SLOW = (("slow", "exclude"), ("slow_s", 0.4), ("window_bytes", 64 << 10))
SKIPS = (3, 8, 17, 135)
FAST = Options(members=4, order="total", spread_ns=0, duration_ns=3 * SECOND, rate=400, bytes_max=5000, unicasts=0.0)


def run(options, at):
    """A run in which ``at(world)`` happens after 500 ms."""
    world = World(replace(options, settings=SLOW + options.settings))
    world.doubted = True  # not every change of the view has a reason in the options
    world.clock.at(500 * MS, at, world)
    return world, world.run()


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({"partition": "primary"}, 2),
        ({"membership": "token-ring"}, 0),
        pytest.param({}, 0, marks=pytest.mark.long),
        pytest.param({}, 2, marks=pytest.mark.long),
        pytest.param({"order": "sequencer"}, 0, marks=pytest.mark.long),
        pytest.param({"partition": "primary"}, 0, marks=pytest.mark.long),
        pytest.param({"membership": "token-ring"}, 2, marks=pytest.mark.long),
        pytest.param({"order": "sequencer"}, 2, marks=pytest.mark.long),
    ],
)
def test_one_that_takes_nothing_is_put_out_by_one_view_and_delivered_all_that_was_agreed_on(settings, stops):
    """The coordinator as well as another one."""
    options = replace(FAST, **settings)
    world, result = run(options, lambda world: world.nodes[stops].slow_disk(world.clock.now + 2500 * MS))
    assert not result.violations, result.violations[0]
    out = world.nodes[stops].record
    assert 850 * MS < out.put_out_ns < 2500 * MS
    assert any("is excluded (slow=)" in text and "SC2204" in text for text in world.nodes[1].record.warnings)
    assert isinstance(out.log[-1], Excluded) and out.log[-1].cause == "slow"
    others = [node.record for node in world.nodes if node.record is not out]
    assert [each.put_out_ns for each in others] == [0, 0, 0]
    views = [entry for entry in others[0].log if isinstance(entry, View)]
    assert out.log[-1].view_id in {view.view_id for view in views}
    view = next(view for view in views if view.view_id == out.log[-1].view_id)
    assert len(view) == 3
    before = others[0].log[: others[0].log.index(view)]
    last = next(place for place in reversed(range(len(out.log))) if isinstance(out.log[place], View))
    mine = [(each.sender, each.counter) for each in out.log[last:] if isinstance(each, Delivered)]
    theirs = [(each.sender, each.counter) for each in before if isinstance(each, Delivered)]
    assert mine == theirs[-len(mine) :] and len(mine) > 100, "up to the cut, not only what it had when it stopped"


@pytest.mark.parametrize("order", first_quick(["fifo", "records", "total-1999", "grant", "sequencer"]))
def test_if_half_of_the_members_take_nothing_the_sender_is_fast_and_nobody_is_put_out(order):
    def stop(world):
        for node in world.nodes[1:3]:
            node.slow_disk(world.clock.now + 2000 * MS)

    world, result = run(replace(FAST, order=order), stop)
    wrong = [text for text in result.violations if "is told that senders wait" not in text]
    assert not wrong, wrong[0]
    assert [node.record.put_out_ns for node in world.nodes] == [0, 0, 0, 0]
    assert {len(node.record.view) for node in world.nodes} == {4}


def test_waits_that_overlap_are_one():
    """The application takes nothing until the last one ends, and the checker counts no time twice."""
    world = World(replace(FAST, settings=SLOW))
    world.plan()
    world.clock.run(SECOND)
    node, now = world.nodes[2], world.clock.now
    for length in (600, 100):
        node.slow_disk(now + length * MS)
    world.clock.run(now + 200 * MS)
    assert not node.takes and spells(node.record) == [(now, now + 600 * MS)]
    node.record.slow_spells = [(now, now + 200 * MS), (now + MS, now + 200 * MS)]
    node.record.put_out_ns = now + 300 * MS
    assert [text.split("nothing for ")[1] for text in check_slow(node.record, [node.record])] == ["200 ms only"]


def test_an_exclusion_while_half_of_the_members_took_nothing_is_a_violation():
    world = World(replace(FAST, settings=SLOW))
    world.plan()
    world.clock.run(SECOND)
    records, now = [node.record for node in world.nodes], world.clock.now
    out, other, *_ = records
    out.put_out_ns, out.slow_spells = now, [(now - 700 * MS, now)]
    assert list(check_slow(out, records)) == []
    other.slow_spells = [(now - 360 * MS, now)]
    assert list(check_slow(out, records)) == []  # the first 340 ms suffice
    other.slow_spells = [(now - 600 * MS, now)]
    assert [text.partition("too, but for ")[2] for text in check_slow(out, records)] == ["100 ms"]


def test_an_idle_sequencer_without_its_own_messages_is_put_out_and_no_idle_member_beside_it():
    """Its own messages counted as taken before the forwards ahead of them: the member never held anybody up, and
    another member that stopped 850 ms later was put out in its place."""
    world = World(Options.draw(130, family="slow"))
    result = world.run()
    assert not result.violations, result.violations[0]
    assert {node.name for node in world.nodes if node.record.put_out_ns} == {"m2", "m2'"}


def test_a_member_without_which_the_others_are_not_a_majority_is_not_put_out():
    """One of three does not answer, and is not known to be dead; then one of the others is slow."""
    world = World(replace(FAST, members=3, partition="primary", settings=SLOW))
    world.plan()
    world.clock.run(SECOND)
    membership = world.nodes[0].endpoint.machines.membership
    _, b, c = (node.id for node in world.nodes)
    plane = world.nodes[0].endpoint.context.plane
    world.nodes[0].endpoint.context.plane = Calls(plane, [b])
    membership.slow_changed()
    assert membership.put_out() == b and membership.leaving() == {b}
    membership.suspect(c, "silent")
    membership.slow_changed()
    assert membership.put_out() == 0 and membership.spared == {b} and membership.leaving() == set()


class Calls:
    """The engine's interface, which calls these members too slow."""

    def __init__(self, plane, slow):
        self.plane, self.slow = plane, slow

    def __getattr__(self, name):
        return getattr(self.plane, name)

    def too_slow(self):
        return self.slow


LOAD = 420_000
"""Bytes a second that seven members send, unless they wait."""
ENOUGH = 10 * LOAD


@pytest.mark.long
@pytest.mark.parametrize(
    ("slow", "order", "rate"),
    [
        ("block", "total", ENOUGH),
        ("exclude", "total", ENOUGH),
        ("exclude", "fifo", ENOUGH),
        ("exclude", "sequencer", ENOUGH),
        ("skip", "fifo", ENOUGH),
        ("exclude", "total", LOAD // 2),
        ("skip", "fifo", LOAD // 2),
    ],
)
def test_of_receivers_at_no_rate_a_hundredth_and_a_quarter_at_once_those_go_that_hold_the_senders(slow, order, rate):
    """``rate``: of sound members. A member at a quarter stays, also if that does not suffice for the load; then it
    skips messages, if allowed to, after the others."""
    rates = tuple({1: 0, 3: rate // 4, 5: rate // 100}.get(index, rate) for index in range(7))
    settings = (("slow", slow), ("slow_s", 0.8), ("window_bytes", 64 << 10))
    options = replace(FAST, members=7, order=order, rate=200, rates=rates, duration_ns=6 * SECOND, settings=settings)
    world = World(options)
    world.doubted = True
    result = world.run()
    assert not result.violations, result.violations[0]
    records = {node.name: node.record for node in world.nodes}
    out = sorted((record.put_out_ns, name) for name, record in records.items() if record.put_out_ns)
    skips = {name for name, record in records.items() if record.skips_ns}
    behind = [] if rate == ENOUGH else ["m3"]
    assert [name for _, name in out] == (["m1", "m5"] if slow == "exclude" else [])
    assert all(later - one > 780 * MS for (one, _), (later, _) in itertools.pairwise(out)), "one at a time"
    assert skips in ([{"m1", "m5"}, {"m1", "m5", *behind}] if slow == "skip" else [set()])
    assert {len(record.view) for record in records.values() if not record.put_out_ns} == {7 - len(out)}
    sent = sum(length for record in records.values() for length, _ in record.sent.values())
    assert (sent > LOAD) == (slow != "block"), "with block all wait"


@pytest.mark.long
def test_storms_of_slow_receivers_keep_all_guarantees_and_put_out_nobody_else():
    out = 0
    for seed in (118, 121, 135):
        world = World(Options.draw(seed, family="slow"))
        result = world.run()
        assert not result.violations, result.violations[0]
        out += sum(node.record.put_out_ns > 0 for node in world.nodes)
    assert out > 0, "nobody was put out: draw other seeds"


@pytest.mark.long
def test_a_member_that_takes_nothing_skips_messages_and_stays():
    """The others have all messages that count as missed, and no others: the checkers compare."""
    options = replace(FAST, order="fifo", settings=(("slow", "skip"),))
    world, result = run(options, lambda world: world.nodes[2].slow_disk(world.clock.now + 2000 * MS))
    wrong = [text for text in result.violations if not text.startswith("needless: m2 is told that senders wait")]
    assert not wrong, wrong[0]
    told = [len(node.record.skips_ns) for node in world.nodes]
    assert told[2] > 0 and told == [0, 0, told[2], 0]
    assert len(world.nodes[2].record.view) == 4


@pytest.mark.long
def test_storms_of_slow_receivers_that_skip_keep_all_guarantees():
    skipped = 0
    for seed in SKIPS:
        world = World(Options.draw(seed, family="skip"))
        result = world.run()
        assert not result.violations, result.violations[0]
        skipped += sum(node.engine.counters()["messages_skipped"] for node in world.nodes)
    assert skipped > 0, "nobody skips: draw other seeds"
