"""The infos that members give of themselves, in simulated groups: agreed on in each view, changed in order, kept by
merges."""

from __future__ import annotations

import pytest
from halves import first_quick
from sim_worlds import quiet

from seqcast.core.frames.view import InfoTold, NewView
from seqcast.sim import World
from seqcast.sim.checkers.infos import check_infos, check_shown
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.wire import frame
from seqcast.sim.world import simulate
from seqcast.types import View


def said(world, view):
    """The info of each member of a view, by name."""
    return {member.name: member.info.get("number") for member in view}


@pytest.mark.parametrize("membership", first_quick(["coordinated", "token-ring"]))
@pytest.mark.parametrize("order", ["fifo", "total"])
def test_a_change_makes_one_view_of_the_same_members_at_every_member(membership, order):
    world = World(quiet(members=3, order=order, membership=membership, rate=200, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    before = world.nodes[0].view
    assert said(world, before) == {"m0": 0, "m1": 0, "m2": 0}
    world.nodes[1].say(7)
    world.clock.run(2 * SECOND)
    views = {node.view.view_id for node in world.nodes}
    entered = [entry.view_id for node in world.nodes for entry in node.record.log if isinstance(entry, View)]
    assert {each for each in entered if each > before.view_id} == views and len(views) == 1, "one view"
    assert [said(world, node.view) for node in world.nodes] == [{"m0": 0, "m1": 7, "m2": 0}] * 3
    assert not world.settle() and not list(check_infos(world.records))


@pytest.mark.long
def test_with_identities_a_member_signs_its_new_info_and_nobody_else_can():
    world = World(quiet(members=3, order="fifo", infos=1, keyed=True, identities=True))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    context = world.nodes[1].endpoint.context
    for node in world.nodes:
        membership = node.endpoint.machines.membership
        membership.inform(context.me.id, InfoTold(1, '{"number": 9}', context.me.signature, context.me.opens))
        assert not membership.informed(), "all would refuse a view with that"
    world.nodes[1].say(7)
    world.clock.run(4 * SECOND)
    assert [said(world, node.view) for node in world.nodes] == [{"m0": 0, "m1": 7, "m2": 0}] * 3
    assert not world.settle()


def test_of_changes_that_come_together_the_last_one_holds():
    world = World(quiet(members=3, order="total", rate=200, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    for number in range(1, 6):
        world.nodes[2].say(number)
    world.clock.run(2 * SECOND)
    for node in world.nodes:
        seen = [said(world, entry)["m2"] for entry in node.record.log if isinstance(entry, View) and len(entry) == 3]
        assert seen == sorted(seen) and seen[-1] == 5, "no member goes back to what was said before"


def test_a_merge_keeps_the_infos_of_both_sides():
    world = World(quiet(members=4, order="total", rate=50, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    world.network.partition({0, 1}, {2, 3})
    world.clock.run(3 * SECOND)
    world.nodes[1].say(1)
    world.nodes[3].say(3)
    world.clock.run(4 * SECOND)
    assert said(world, world.nodes[0].view) == {"m0": 0, "m1": 1} and said(world, world.nodes[2].view)["m3"] == 3
    world.faults.heal()
    world.clock.run(8 * SECOND)
    assert [said(world, node.view) for node in world.nodes] == [{"m0": 0, "m1": 1, "m2": 0, "m3": 3}] * 4


def test_an_info_that_nobody_heard_is_told_again():
    world = World(quiet(members=3, order="total", rate=20, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    before = world.nodes[0].view
    last = next(node for node in world.nodes if node.name == before.members[-1].name)
    world.network.partition({node.index for node in world.nodes} - {last.index}, {last.index})
    last.say(5)
    world.clock.run(world.clock.now + 30 * MS)
    world.faults.heal()
    world.clock.run(2 * SECOND)
    assert before.members == world.nodes[0].view.members, "it was cut off too shortly to be suspected"
    assert said(world, world.nodes[0].view)[last.name] == 5


@pytest.mark.parametrize("who", ["a joiner", "a member that takes the last one back"])
def test_an_info_that_a_view_lost_is_told_again(who):
    """The VIEW with the info before is on its way while the application gives another one: that of a joiner, and one
    with which the member has told the others nothing, as the view before has the same."""
    world = World(quiet(members=3, order="total", rate=20, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    joins = who == "a joiner"
    changed, last = [], 8 if joins else 0

    def say_late(node, datagram, real=world.multicast):
        real(node, datagram)
        made = frame(datagram, world.sealings)
        abouts = [each.about for each in made.members] if isinstance(made, NewView) else []
        if not changed and (len(abouts) == 4 if joins else any('"number":8' in about for about in abouts)):
            changed.append(node)
            world.clock.at(world.clock.now + 1, teller.say, last)

    world.multicast = say_late
    if joins:
        world.start_node("m3")
        teller = world.nodes[-1]
    else:
        teller = next(node for node in world.nodes if node.view.rank(node.id) == 1)  # the first one makes the view
        teller.say(8)
    world.clock.run(3 * SECOND)
    assert changed and [said(world, node.view)[teller.name] for node in world.nodes] == [last] * len(world.nodes)
    assert not list(check_shown(world.records))


def test_an_info_from_before_the_first_view_stands_there():
    world = World(quiet(members=2, order="fifo", rate=20, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(5 * MS)
    world.nodes[0].say(9)
    world.clock.run(2 * SECOND)
    views = [entry for entry in world.nodes[0].record.log if isinstance(entry, View)]
    assert {said(world, view)["m0"] for view in views} == {9}


def test_the_checkers_see_views_that_differ_and_infos_that_no_view_has():
    world = World(quiet(members=2, order="fifo", rate=20, infos=1))
    world.faults.inform = lambda which, number: None
    world.plan()
    world.clock.run(SECOND)
    assert not list(check_infos(world.records)) and not list(check_shown(world.records))
    world.records[0].about = "{}"
    assert len(list(check_shown(world.records))) == 2
    log = world.records[1].log
    place = next(place for place, entry in enumerate(log) if isinstance(entry, View) and len(entry) == 2)
    members = tuple(type(each)(each.name, each.id, each.address, '{"x":1}') for each in log[place].members)
    log[place] = View(log[place].view_id, members)
    assert len(list(check_infos(world.records))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_changes_while_members_come_and_go(seed):
    assert not simulate(Options.draw(seed + 1, family="roles")).violations
