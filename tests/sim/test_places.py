"""Members whose addresses are translated on the way to others (NAT)."""

from __future__ import annotations

import pytest
from sim_worlds import quiet

from seqcast.core.machines.lifecycle import NO_ECHO
from seqcast.sim import World
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.world import simulate


@pytest.mark.parametrize(("what", "keyed"), [("hosts", False), ("hosts", True), ("ports", True)])
def test_members_behind_a_translator_are_in_one_group_with_the_others(what, keyed):
    """One to one each takes the address at which others see it; anything else passes with a key and ``advertise``."""
    world = World(quiet(members=4, transport="unicast", translated=what, keyed=keyed, rate=20))
    world.plan()
    world.clock.run(3 * SECOND)
    assert {len(node.view.members) for node in world.nodes} == {4}
    assert {node.endpoint.context.me.address for node in world.nodes} == {node.public for node in world.nodes}
    assert not world.settle() and not list(check_safety(world.records))


@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_one_that_founded_a_group_alone_learns_its_address_and_merges(membership):
    settings = {"transport": "unicast", "translated": "hosts", "membership": membership, "apart_ns": SECOND}
    world = World(quiet(members=2, rate=20, **settings))
    world.plan()
    world.clock.run(SECOND)
    assert [len(node.view.members) for node in world.nodes] == [1, 1]
    world.clock.run(3 * SECOND)
    assert [len(node.view.members) for node in world.nodes] == [2, 2]


def test_nobody_believes_an_advertised_address_without_a_key_and_such_a_member_founds_nothing():
    world = World(quiet(members=2, transport="unicast", translated="ports", rate=1))
    world.plan()
    world.clock.run(3 * SECOND)
    plain, translated = world.nodes
    assert len(plain.view.members) == 1
    assert translated.view is None
    assert translated.endpoint.lacks.endswith("(SC4301)") and "with key=" in translated.endpoint.lacks


def test_an_address_is_adopted_only_if_all_say_the_same_and_the_port_is_ours():
    world = World(quiet(members=1, transport="unicast", found=2, rate=1))
    world.plan()
    world.clock.run(1)
    (node,) = world.nodes
    lifecycle, own = node.endpoint.machines.lifecycle, node.address

    def told(*places):
        world.clock.run(world.clock.now + 2 * SECOND)  # earlier statements are void
        lifecycle.places = dict.fromkeys(places, node.now)
        world.clock.run(world.clock.now + 300 * MS)
        return node.endpoint.context.me.address

    assert told(b"simAA", b"simBB") == own, "they do not agree"
    assert "at 73696d4141 and at 73696d4242" in node.endpoint.lacks
    assert told(b"simAA", own) == own, "one sees us where we are"
    assert told(b"sXXAA") == own, "another port"
    assert told(b"simAA") == b"simAA"
    assert told(b"simBB") == b"simAA", "once only"


@pytest.mark.parametrize("seed", range(3))
def test_storms_of_translated_members_violate_nothing(seed):
    assert not simulate(Options.draw(seed + 1, family="translated")).violations


def test_a_member_that_nobody_reaches_at_its_address_founds_nothing_beside_the_group_and_says_so():
    world = World(quiet(members=1, transport="unicast", translated="ports", keyed=True, unpublished=True, rate=1))
    world.plan()
    world.clock.run(SECOND)
    world.start_node("silent")
    world.clock.run(SECOND + SECOND // 2)
    plain, silent = world.nodes
    assert not silent.endpoint.lacks, "datagrams may have been lost"
    world.clock.run(4 * SECOND)
    assert len(plain.view.members) == 1 and silent.view is None
    assert silent.endpoint.lacks.endswith("correct advertise= (SC4302)")
    assert [text for text in silent.record.warnings if "SC4302" in text] == [silent.endpoint.lacks]
    assert not world.settle() and not list(check_safety(world.records))


def test_one_that_founded_a_group_alone_is_told_that_nobody_reaches_it():
    world = World(
        quiet(members=2, transport="unicast", translated="ports", keyed=True, unpublished=True, rate=1, apart_ns=SECOND)
    )
    world.plan()
    world.clock.run(SECOND)
    assert [len(node.view.members) for node in world.nodes] == [1, 1]
    world.clock.run(8 * SECOND)
    plain, silent = world.nodes
    assert [len(node.view.members) for node in world.nodes] == [1, 1]
    assert any("SC4302" in text for text in silent.record.warnings)
    assert not any("SC4302" in text for text in plain.record.warnings)
    assert not world.settle() and not list(check_safety(world.records))


def test_a_member_whose_group_went_away_after_one_answer_does_not_say_that_nobody_reaches_its_address():
    """SEEN comes after WAIT, which is the last datagram to its address."""
    world = World(quiet(members=1, transport="unicast", translated="ports", keyed=True, unpublished=True, rate=1))
    world.plan()
    world.clock.run(SECOND)
    world.start_node("other")
    plain, other = world.nodes
    lifecycle = other.endpoint.machines.lifecycle
    while lifecycle.echo is NO_ECHO:
        world.clock.run(world.clock.now + MS)
    plain.crash()
    for _ in range(30):
        world.clock.run(world.clock.now + 100 * MS)
        assert "SC4302" not in other.endpoint.lacks
    assert not any("SC4302" in text for text in other.record.warnings)


def test_a_member_that_is_reached_at_its_address_never_says_otherwise():
    """Each answer comes there, and as a copy to the port from which the member was heard."""
    world = World(quiet(members=2, transport="unicast", translated="ports", keyed=True, rate=20, found=3))
    world.plan()
    for _ in range(10):
        world.clock.run(world.clock.now + 300 * MS)
        _, node = world.nodes
        node.endpoint.machines.lifecycle.heard_place(b"some port")
    assert node.view is None and "SC4302" not in node.endpoint.lacks
    assert not any("SC4302" in text for text in node.record.warnings)
