"""``found=N``: a group is founded only with the votes of N joiners, and one vote never counts for two."""

from dataclasses import replace

import pytest
from sim_stage import Stage, names

from seqcast.core.endpoint import Endpoint
from seqcast.core.vocabulary import CloseGroup, LeaveGroup
from seqcast.reports import ForeignVersion, OtherKey
from seqcast.sim import Options, World
from seqcast.sim.checkers.primary import check_founded
from seqcast.sim.options import MS, SECOND


def founded(stage):
    """The views that began groups."""
    logs = [node.record.log[0] for node in stage.nodes if node.record.log]
    return [view for view in logs if view.view_id.counter == 1]


def applications(stage):
    """The names of those whose application is in a group."""
    return sorted(node.name for node in stage.nodes if node.record.alive and node.record.may_send)


def joiners(n, found, apart=()):
    """Processes that join, by id, the lowest first; ``apart``: pairs, by that order, that do not hear each other."""
    stage = Stage(partition="primary", found=found)
    for number in range(n):
        stage.named("abcde"[number])
    stage.refuse = lambda *_: True  # the first JOIN of each
    stage.until(0)
    stage.refuse = lambda *_: False
    nodes = sorted(stage.nodes, key=lambda node: node.id)
    for one, other in apart:
        stage.network.partition({nodes[one].index}, {nodes[other].index})
    return stage, nodes


def in_one_view(nodes):
    return len({node.endpoint.view for node in nodes}) == 1 and names(nodes[0])[-1]


@pytest.mark.parametrize(("n", "found"), [(1, 2), (2, 3), (3, 4)])
def test_too_few_joiners_wait_and_say_how_many_are_missing(n, found):
    stage, nodes = joiners(n, found)
    stage.until(5000)
    assert not founded(stage)
    for node in nodes:
        heard = ", ".join(sorted(other.name for other in nodes if other is not node)) or "none"
        assert f"it hears {heard}; 1 more must start" in node.endpoint.lacks
        assert [text for text in node.record.warnings if "the join waits" in text and "(SC3103)" in text]
    stage.named("z", 5000)
    stage.until(6500)
    assert len(in_one_view(stage.nodes)) == found and len(founded(stage)) == 1


@pytest.mark.parametrize(("n", "found"), [(2, 2), (3, 2), (5, 3), (5, 5)])
def test_enough_joiners_that_start_together_found_one_group_at_once(n, found):
    stage, nodes = joiners(n, found)
    stage.until(700)
    assert len(in_one_view(nodes)) == n and len(founded(stage)) == 1
    assert not any(node.record.warnings or node.endpoint.lacks for node in nodes)


def test_two_incarnations_of_one_process_have_one_vote():
    stage, _ = joiners(2, 3)
    for at_ms in (300, 600, 900):
        stage.until(at_ms)
        stage.nodes[-1].crash()
        stage.named("b", at_ms)
    stage.until(4000)
    assert not founded(stage)


@pytest.mark.parametrize("middle", [0, 1, 2])
def test_two_that_do_not_hear_each_other_never_both_found_with_one_that_hears_both(middle):
    one, other = (number for number in range(3) if number != middle)
    stage, _ = joiners(3, 2, [(one, other)])
    stage.until(6000)
    assert len(founded(stage)) == 1


def test_one_whose_vote_may_have_founded_a_group_votes_for_no_other():
    """c votes for b, which founds a group; c hears nothing more of b, but a, with a lower id."""
    stage, (a, b, c) = joiners(3, 2, [(0, 1), (0, 2), (1, 2)])
    stage.until(1500)
    stage.network.heal()
    stage.network.partition({a.index}, {b.index, c.index})
    while not b.endpoint.machines.lifecycle.peers or b.endpoint.machines.lifecycle.peers[c.name].founder != b.id:
        stage.until(stage.clock.now // MS + 1)
    stage.network.heal()
    stage.network.partition({b.index}, {a.index, c.index})
    stage.until(7000)
    assert [view.members[0].id for view in founded(stage)] == [b.id]
    assert f"it has voted that {b.name} founds a group" in c.endpoint.lacks
    stage.network.heal()
    stage.until(9500)
    assert len(in_one_view([a, b])) == 3 and len(founded(stage)) == 1


def test_a_vote_for_one_that_is_gone_is_free_again_when_it_starts_anew():
    stage, (a, b, _) = joiners(3, 4)
    stage.until(500)
    assert b.endpoint.vote.founder == a.id
    a.crash()
    stage.until(3000)
    assert b.endpoint.vote.founder == a.id
    assert "start it again under the same name; if it is gone for good, restart this one" in b.endpoint.lacks
    stage.named(a.name, 3000)
    stage.named("z", 3000)
    stage.until(6000)
    assert len(in_one_view([node for node in stage.nodes if node is not a])) == 4


@pytest.mark.parametrize("ends", [LeaveGroup(0), CloseGroup()])
def test_a_vote_for_one_that_gave_up_is_free_again_under_whichever_name_that_comes_back(ends):
    stage, (a, b) = joiners(2, 3)
    stage.until(500)
    assert b.endpoint.vote.founder == a.id
    a.step(ends)
    a.service()
    stage.until(510)
    assert b.endpoint.vote.founder != a.id and not b.endpoint.machines.lifecycle.peers
    stage.named("y", 600)
    stage.named("z", 600)
    stage.until(2000)
    assert len(in_one_view(stage.nodes[1:] if stage.nodes[0] is a else [b, *stage.nodes[2:]])) == 3


def test_a_vote_binds_the_next_join_of_the_same_process():
    """b votes for a, which founds a group; b gives up, and joins again. b hears c, and would found another one."""
    stage, (a, b) = joiners(2, 3)
    stage.until(500)
    vote = b.endpoint.vote
    assert vote.founder == a.id
    stage.network.partition({a.index}, {b.index, *range(2, 5)})
    b.step(LeaveGroup(0))
    b.service()
    stage.make_endpoint = lambda *args: Endpoint(*args[:3], replace(args[3], vote=vote))
    stage.named(b.name, 600)
    stage.until(600)
    stage.make_endpoint = Endpoint
    for name in "yz":
        stage.named(name, 700)
    stage.until(4000)
    assert not founded(stage)
    stage.network.heal()
    stage.until(6000)
    assert len(in_one_view([node for node in stage.nodes if node is not b])) == 4 and len(founded(stage)) == 1


def test_a_joiner_that_gives_up_is_not_taken_in():
    stage = Stage()
    stage.group("a")
    stage.named("b", 1000)
    stage.until(1001)
    assert stage.node("a").endpoint.machines.membership.joiners
    stage.node("b").step(LeaveGroup(0))
    stage.node("b").service()
    stage.until(2000)
    assert names(stage.node("a")) == [["a"]]


def with_founds(*founds):
    """Joiners that start together, each with its own ``found``, the lowest id first."""
    order = [node.index for node in joiners(len(founds), 1)[1]]
    stage = Stage(partition="primary")
    for index in range(len(founds)):
        stage.options = replace(stage.options, found=founds[order.index(index)])
        stage.named("abcde"[index])
        stage.until(0)
    return stage, sorted(stage.nodes, key=lambda node: node.id)


def test_joiners_that_found_nothing_have_no_vote_and_are_waited_for_by_nobody():
    stage, nodes = with_founds(0, 2, 2, 0)
    stage.until(700)
    assert len(in_one_view(nodes)) == 4
    assert [view.members[0].id for view in founded(stage)] == [nodes[1].id]
    stage, nodes = with_founds(0, 2, 0)
    stage.until(4000)
    assert not founded(stage)
    assert "it hears none; 1 more must start" in nodes[1].endpoint.lacks
    assert "with found=0 this process founds none" in nodes[0].endpoint.lacks


def test_a_joiner_with_another_found_has_no_vote_and_whoever_founds_a_group_refuses_the_other():
    stage, nodes = with_founds(3, 2, 3)
    stage.until(4000)
    assert not founded(stage) and not nodes[1].endpoint.machines.lifecycle.peers
    stage, (a, b) = with_founds(2, 1)
    stage.until(8000)
    assert names(b)[-1] == [b.name] and a.endpoint.over


@pytest.mark.parametrize(
    ("partition", "found", "admitted"), [("merge", 5, True), ("primary", 5, False), ("primary", 0, True)]
)
def test_a_running_primary_group_refuses_another_found_by_name_and_admits_one_that_founds_nothing(
    partition, found, admitted
):
    stage = Stage(partition=partition)
    stage.group("a")
    stage.options = replace(stage.options, found=found)
    stage.named("b", 1000)
    stage.until(4000)
    if admitted:
        assert len(in_one_view(stage.nodes)) == 2
    else:
        assert stage.node("b").endpoint.over and names(stage.node("a")) == [["a"]]
        assert "the group has found=1, not 5: join with the same" in stage.node("b").record.error


def founder_cut_off(n, found):
    """One of n joiners begins a group, and the network cuts that one off before another is in."""
    stage, nodes = joiners(n, found)
    while not nodes[0].endpoint.view:
        stage.until(stage.clock.now // MS + 1)
    stage.network.partition({nodes[0].index}, set(range(1, 16)) | {0} - {nodes[0].index})
    return stage, nodes


@pytest.mark.parametrize(("n", "found"), [(2, 2), (3, 3)])
def test_no_application_is_in_a_group_whose_founder_is_cut_off_before_those_that_voted_are_in(n, found):
    """They restart, have forgotten for whom they voted, and found another group with others."""
    stage, (a, *others) = founder_cut_off(n, found)
    for node in others:
        node.crash()
        stage.named(node.name, 1000)
    stage.named("z", 1000)
    stage.until(3000)
    assert a.endpoint.view and len(founded(stage)) == 2
    assert applications(stage) == sorted([*(node.name for node in others), "z"])
    assert f"a group is founded once {found} members are in it" in a.endpoint.lacks
    assert not list(check_founded([node.record for node in stage.nodes]))
    stage.network.heal()
    stage.until(8000)
    assert a.endpoint.over and "which was founded separately, is larger" in str(a.record.log[-1])


def test_a_group_is_founded_when_so_many_are_in_it_though_one_that_voted_dies_before():
    stage, (a, b, c) = joiners(3, 3)
    while not b.endpoint.view:
        stage.until(stage.clock.now // MS + 1)
    c.crash()
    stage.until(4000)
    assert names(a)[-1] == names(b)[-1] and len(names(a)[-1]) == 2 and not applications(stage)
    stage.named(c.name, 4000)
    stage.until(6000)
    assert applications(stage) == sorted([a.name, b.name, c.name]) and len(founded(stage)) == 1


def test_one_that_founds_nothing_does_not_count_towards_a_founding():
    stage, nodes = with_founds(2, 0)
    stage.options = replace(stage.options, found=2)
    stage.until(1000)
    assert not founded(stage)
    stage.named("y", 1000)
    while not any(node.endpoint.view for node in stage.nodes):
        stage.until(stage.clock.now // MS + 1)
    began = next(node for node in stage.nodes if node.endpoint.view)
    other = next(node for node in stage.nodes if node not in (began, nodes[1]))
    stage.network.partition({other.index}, {began.index, nodes[1].index})
    stage.until(3000)
    assert not applications(stage) and not nodes[1].endpoint.view
    stage.network.heal()
    stage.until(6000)
    assert len(applications(stage)) == 3


@pytest.mark.parametrize("odd", ["of another version", "with another key"])
@pytest.mark.parametrize(
    ("n", "found", "settings", "founds"),
    [
        (2, 2, {"keyed": True}, True),
        (2, 1, {"keyed": True, "identities": True}, True),
        (1, 1, {"keyed": True, "identities": True}, False),
        (2, 1, {"keyed": True}, False),
        (2, 2, {}, False),
    ],
)
def test_datagrams_that_anybody_can_send_keep_no_process_from_founding_that_hears_enough_with_the_key(
    odd, n, found, settings, founds
):
    """Three of these were enough to make all processes of a group give up, again and again. A process that hears
    nobody with its key gives up, as a group with another key may exist."""
    stage = Stage(found=found, **settings)
    for number in range(n):
        stage.named("ab"[number])
    stage.until(0)
    for node in stage.nodes:
        for sign in range(3):
            node.step(ForeignVersion() if odd == "of another version" else OtherKey(node.address, "lacks", sign == 2))
    stage.until(4000)
    assert [node.endpoint.view is not None for node in stage.nodes] == [founds] * n
    assert [node.endpoint.over for node in stage.nodes] == [not founds] * n


def test_one_with_another_key_that_went_away_keeps_nobody_from_founding():
    """It was heard while another group kept the joiner waiting."""
    stage = Stage(keyed=True)
    stage.named("a")
    stage.until(0)
    (a,) = stage.nodes
    a.step(OtherKey(b"sim9", "other", True))
    for ms in range(100, 6000, 100):
        stage.until(ms)
        a.endpoint.machines.lifecycle.heard_group()
    stage.until(10_000)
    assert a.endpoint.view is not None


def test_one_with_another_key_is_warned_of_once():
    stage = Stage(keyed=True)
    stage.named("a")
    stage.until(2000)
    (a,) = stage.nodes
    for number in range(3):
        for source in range(20):
            a.step(OtherKey(bytes([source]), "other", True))
        assert len(a.record.warnings) == 20 * (number > 0), "a joiner may have more keys, and tries them all"
        stage.until(4000 + 2000 * number)
    assert len(a.record.warnings) == 20


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 4, 6])
def test_members_that_start_again_while_cut_off_found_no_second_group(seed):
    """With the default, they do."""
    options = Options.draw(seed, family="founders")
    assert options.alone and 2 * options.found > options.members and options.duration_ns == 4 * SECOND
    result = World(options).run()
    assert not result.violations, result.violations[0]
    world = World(replace(options, found=1))
    world.run()
    assert list(check_founded(world.records))
