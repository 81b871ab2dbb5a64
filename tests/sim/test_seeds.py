"""Members that find each other by seeds, which need not be complete, right or there in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from sim_worlds import after_formation, quiet, view_sizes

from seqcast.core.vocabulary import SeedsFound
from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.process import NOBODY, SEEDS_NS, Process
from seqcast.sim.world import simulate

Named = Callable[[Process], Iterable[bytes]]


@pytest.fixture
def seeded(monkeypatch):
    """Makes a group in which the seeds of each process are at the addresses that a function names when they are looked
    up; None: they cannot be resolved."""

    def make(named: Named, members: int = 2, **settings: object) -> World:
        def seeds(process: Process) -> tuple[SeedsFound, ...]:
            found = named(process)
            return () if found is None else (SeedsFound(tuple(each for each in found if each != process.public)),)

        monkeypatch.setattr(Process, "_seeds", seeds)
        made = World(quiet(members=members, transport="unicast", rate=20, **settings))
        made.plan()
        return made

    return make


def public(world: World, *indices: int) -> list[bytes]:
    return [world.nodes[index].public for index in indices if index < len(world.nodes)]


def are_one(world: World, *names: str) -> bool:
    """Are these in one view, and nobody else?"""
    views = {node.view for node in world.nodes if node.alive}
    return len(views) == 1 and None not in views and sorted(each.name for each in views.pop().members) == sorted(names)


def ends_well(world: World) -> bool:
    return not world.settle() and not list(check_safety(world.records))


def test_a_seed_that_is_down_delays_nobody(seeded):
    def join_ns(down: list[bytes]) -> int:
        world = seeded(lambda process: [*down, *public(world, 0)], members=1)
        world.clock.run(SECOND)
        world.start_node("m1")
        began = world.clock.now
        while not are_one(world, "m0", "m1"):
            assert world.clock.now < began + SECOND
            world.clock.run(world.clock.now + MS)
        took = world.clock.now - began
        assert ends_well(world)
        return took

    assert join_ns([NOBODY]) <= join_ns([]) + 2 * MS


def test_two_that_start_at_once_with_each_other_as_seed_are_one_group_from_the_first_view_on(seeded):
    world = seeded(lambda process: public(world, 0, 1))
    world.clock.run(SECOND)
    assert are_one(world, "m0", "m1")
    assert after_formation(world) == [2] and view_sizes(world)[0] == 1, "no group of one's own, and no merge"
    assert {len(node.record.log[0].members) for node in world.nodes} <= {1, 2}
    assert ends_well(world)


@pytest.mark.parametrize("found", [1, 2])
def test_two_that_start_before_their_names_have_addresses_are_one_group_once_they_have(seeded, found):
    known_ns = 3 * SECOND
    world = seeded(lambda process: public(world, 0, 1) if world.clock.now >= known_ns else None, found=found,
                   partition="primary" if found > 1 else "merge")  # fmt: skip
    world.clock.run(known_ns - MS)
    assert [len(node.view.members) if node.view else 0 for node in world.nodes] == [2 - found] * 2
    world.clock.run(known_ns + SEEDS_NS + 200 * MS)
    assert are_one(world, "m0", "m1") and ends_well(world)


@pytest.mark.long
def test_members_that_all_restart_one_by_one_elsewhere_stay_one_group_though_seeds_are_stale(seeded):
    """Each newcomer's seed is the one that came before; nobody's seeds are looked up again."""
    asked: set[int] = set()

    def named(process: Process) -> list[bytes] | None:
        if process.index in asked:
            return None
        asked.add(process.index)
        return [NOBODY, *public(world, *range(max(process.index - 1, 0), process.index))]

    world = seeded(named, members=3)
    world.clock.run(2 * SECOND)
    assert are_one(world, "m0", "m1", "m2")
    for number in range(3):
        world.start_node(f"n{number}")
        world.clock.run(world.clock.now + SECOND)
        world.nodes[number].crash()
        world.clock.run(world.clock.now + 2 * SECOND)
    assert are_one(world, "n0", "n1", "n2")
    halves = {3, 4}, {5}
    world.network.partition(*halves)
    world.clock.run(world.clock.now + 3 * SECOND)
    world.network.heal()
    world.clock.run(world.clock.now + 6 * SECOND)
    assert are_one(world, "n0", "n1", "n2") and ends_well(world), "the seeds of none lead anywhere now"


def test_a_group_that_restarts_elsewhere_as_a_whole_is_one_once_its_names_lead_there(seeded):
    def named(process: Process) -> list[bytes]:
        moved = world.clock.now >= 5 * SECOND
        return public(world, *(range(3, 6) if moved else range(3)))

    world = seeded(named, members=3)
    world.clock.run(2 * SECOND)
    assert are_one(world, "m0", "m1", "m2")
    for node in list(world.nodes):
        node.crash()
    for number in range(3):
        world.start_node(f"n{number}")
    world.clock.run(4 * SECOND)
    assert not are_one(world, "n0", "n1", "n2"), "their seeds are where nobody is any more"
    world.clock.run(5 * SECOND + SEEDS_NS + 500 * MS)
    assert are_one(world, "n0", "n1", "n2") and ends_well(world)


def test_the_sides_of_a_partition_meet_again_though_no_seed_leads_there(seeded):
    world = seeded(lambda process: public(world, 0, 1, 2, 3) if world.clock.now < SECOND else [], members=4)
    world.clock.run(2 * SECOND)
    assert are_one(world, "m0", "m1", "m2", "m3")
    world.network.partition({0, 1}, {2, 3})
    world.clock.run(6 * SECOND)
    assert [len(node.view.members) for node in world.nodes] == [2, 2, 2, 2]
    world.network.heal()
    world.clock.run(14 * SECOND)
    assert are_one(world, "m0", "m1", "m2", "m3") and ends_well(world)


def test_a_member_whose_seeds_name_only_itself_founds_a_group_and_is_found_by_others(seeded):
    world = seeded(lambda process: public(world, 0), members=1)
    world.clock.run(SECOND)
    assert are_one(world, "m0")
    world.start_node("m1")
    world.clock.run(2 * SECOND)
    assert are_one(world, "m0", "m1") and ends_well(world)


@pytest.mark.parametrize("seed", range(1, 4))
def test_seeds_that_lie_for_a_while_keep_nobody_apart_in_the_end(seed):
    assert not simulate(Options.draw(seed, family="seeds")).violations


def test_a_joiner_knows_who_hears_it_and_that_the_member_that_admits_others_does_not(seeded):
    world = seeded(lambda process: public(world, max(process.index - 1, 0)))
    world.clock.run(2 * SECOND)
    assert are_one(world, "m0", "m1")
    world.network.mute.add((2, 0))
    world.start_node("m2")
    world.clock.run(world.clock.now + SECOND)
    first, second = public(world, 0, 1)
    joiner = world.nodes[2].endpoint
    assert joiner.view is None and joiner.hearers == (second,) and joiner.admits == first
    world.network.heal()
    world.clock.run(world.clock.now + 2 * SECOND)
    assert are_one(world, "m0", "m1", "m2") and joiner.hearers == (second, first) and ends_well(world)
