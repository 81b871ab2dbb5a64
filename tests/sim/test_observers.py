"""Observers in simulated groups: they receive all, and coordinate, order and decide nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_worlds import quiet

from seqcast.events import Excluded
from seqcast.sim import World
from seqcast.sim.checkers.observers import check_observers
from seqcast.sim.options import SECOND, Options
from seqcast.sim.record import Delivered
from seqcast.sim.world import simulate
from seqcast.types import Member, View


def made(*observers, members=4, **settings):
    """A world whose processes with these numbers are observers, in one view."""
    world = World(quiet(members=members, **{"order": "total", "rate": 100, "observers": 1.0, **settings}))
    real = world.start_node

    def start(name):
        number = len(world.nodes)
        world.options = replace(world.options, observers=1.0 if number in observers else 0.0)
        real(name)

    world.start_node = start
    world.plan()
    world.clock.run(SECOND)
    return world


def names(world):
    """Of the members of each living process's view; None: of one in no view."""
    return {node.name: [member.name for member in node.view] if node.view else None for node in world.nodes if node.up}


@pytest.mark.parametrize("partition", ["merge", "primary"])
def test_observers_come_last_whoever_joins_after_them_and_receive_everything(partition):
    world = made(1, 2, partition=partition)
    assert [member.observer for member in world.nodes[0].view] == [False, False, True, True]
    world.clock.run(2 * SECOND)
    assert not world.settle()
    took = [
        [(each.sender, each.counter) for each in node.record.log if isinstance(each, Delivered) and not each.to]
        for node in world.nodes
    ]
    assert all(set(took[1][-200:]) <= set(each) for each in took) and len(took[1]) > 200
    assert not any(node.record.counter for node in world.nodes if node.record.observer)
    assert not list(check_observers(world.records))


@pytest.mark.long
def test_an_observer_does_not_count_for_the_majority_of_a_primary_partition():
    """Three members and four observers: two members are a majority, though five of seven processes are gone."""
    world = made(3, 4, 5, 6, members=7, partition="primary")
    for node in world.nodes[2:]:
        node.crash()
    world.clock.run(4 * SECOND)
    assert names(world) == {"m0": ["m0", "m1"], "m1": ["m0", "m1"]}
    world = made(3, 4, 5, 6, members=7, partition="primary")
    world.nodes[0].crash()
    world.nodes[1].crash()
    world.clock.run(4 * SECOND)
    assert all(node.record.told_minority for node in world.nodes if node.up), "one of three, and all observers"


@pytest.mark.parametrize("partition", ["merge", "primary"])
@pytest.mark.parametrize("crashes", [False, True])
def test_observers_whose_last_member_is_gone_are_excluded_and_come_back_when_another_one_is_there(partition, crashes):
    world = made(1, 2, 3, 4, members=3, partition=partition)
    world.rejoins = 2
    if crashes:
        world.nodes[0].crash()
    else:
        world.nodes[0].leave()
    world.clock.run(4 * SECOND)
    ends = [node.record.log[-1] for node in world.nodes[1:3]]
    assert [type(end) for end in ends] == [Excluded] * 2 and {end.cause for end in ends} == {"unled"}
    assert all(node.record.observer and node.view is None for node in world.nodes[3:5]), "they found no group"
    world.start_node("n")
    world.clock.run(8 * SECOND)
    assert world.nodes[-1].view.coordinator.name == "n" and len(world.nodes[-1].view) == 3


def test_an_observer_that_is_cut_off_makes_no_view_of_its_own():
    world = made(2, 3)
    world.network.partition({0, 1}, {2, 3})
    world.clock.run(4 * SECOND)
    assert names(world)["m0"] == ["m0", "m1"]
    assert all(isinstance(node.record.log[-1], Excluded) for node in world.nodes[2:4])


def test_a_sequencer_policy_that_chooses_an_observer_is_not_followed():
    world = made(1, 2, sequencer="last", order="records")
    assert all(node.view.sequencer == 0 for node in world.nodes)
    assert any("sequencer_policy" in text for node in world.nodes for text in node.record.warnings)


def test_observers_stand_last_whatever_a_policy_says():
    world = made(1, members=4, policy="reversed")
    assert [member.name for member in world.nodes[0].view][-1] == "m1" and len(world.nodes[0].view) == 4


def test_the_checker_sees_an_observer_that_coordinates_orders_or_makes_a_view():
    world = made(1, members=2)
    record = world.records[0]
    view = record.view
    assert not list(check_observers(world.records))
    one, other = view.members
    record.log.append(replace(view, members=(Member(other.name, other.id), one)))
    assert len(list(check_observers(world.records))) == 2, "it coordinates and orders"
    record.log[-1] = View(replace(view.view_id, flush=(1, other.id)), view.members)
    assert len(list(check_observers(world.records))) == 1


@pytest.mark.parametrize("seed", [4, 7])
def test_observers_in_storms(seed):
    assert not simulate(replace(Options.draw(seed, family="roles"), observers=0.6, membership="coordinated")).violations
