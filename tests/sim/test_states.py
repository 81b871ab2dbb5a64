"""The fate of the states of a group's sides, in the simulator, if their applications cannot merge them."""

from dataclasses import replace

import pytest
from sim_stage import Stage

from seqcast.core.frames.view import NONE, WHOLE
from seqcast.core.state import providers
from seqcast.sim import Options, simulate
from seqcast.sim.checkers.safety import check_safety
from seqcast.sim.options import MS
from seqcast.types import MergeView

ORDERS = ("fifo", "causal", "records", "sequencer", "total-1999", "grant")


def sides(seed: int, order: str) -> Options:
    """Groups fall apart and merge again and again, and merge leaders crash."""
    drawn = Options.draw(seed, family="merges", order=order)
    return replace(drawn, state=True, merges=False, state_bytes=20_000, without_own=0.0, deaf_applications=0.0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seeds", [(3,), pytest.param(range(4, 10), marks=pytest.mark.long)], ids=str)
def test_all_that_have_a_state_end_with_the_same(order, seeds):
    for seed in seeds:
        result = simulate(sides(seed, order))
        assert not result.violations, f"seed {seed}: {result.violations[0]}"


def test_if_each_side_keeps_its_own_state_members_end_with_different_ones(monkeypatch):
    def keep(labels):
        return {member: WHOLE if label else NONE for member, label in labels.items()}

    monkeypatch.setattr(providers, "_chosen", keep)
    assert any("end with 2 states" in each for each in simulate(sides(6, "fifo")).violations)


def apart(stage: Stage, sender: int) -> MergeView:
    """c is apart from a and b, and delivers its own messages meanwhile; returns the view that merges the two sides."""
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({c.index}, {a.index, b.index})
    stage.until(3000)
    stage.nodes[sender].application.sender.say_last()
    stage.until(3200)
    assert len({node.application.chain.digest() for node in stage.nodes}) == 2
    stage.network.heal()
    for ms in range(3200, 6000):
        stage.until(ms)
        if isinstance(c.endpoint.view, MergeView):
            break
    return c.endpoint.view


def states(stage: Stage) -> set[str]:
    return {node.application.chain.digest() for node in stage.nodes if node.up}


def names(view) -> list[str]:
    return [member.name for member in view.members]


@pytest.mark.parametrize("sender", [0, 2])
def test_the_smaller_side_takes_the_state_of_the_larger_and_both_say_so(sender):
    stage = Stage(state=True)
    view = apart(stage, sender)
    larger = stage.nodes[0].application.chain.digest()
    stage.until(5000)
    assert names(view.state_from) == ["a", "b"] and states(stage) == {larger}


def test_a_member_keeps_its_own_state_if_those_that_had_the_other_one_crash_before_it_came():
    stage = Stage(state=True, state_bytes=2_000_000)
    apart(stage, 2)
    own = stage.nodes[2].application.chain.digest()
    stage.nodes[0].crash()
    stage.nodes[1].crash()
    stage.until(6000)
    c = stage.nodes[2]
    assert states(stage) == {own} and not c.endpoint.over and len(c.endpoint.view.members) == 1
    assert any("that of this member holds (SC3201)" in warning for warning in c.record.warnings)


@pytest.mark.parametrize(
    ("state", "words"),
    [(True, "no member that has the state is left"), (False, "no member of the group was joined with a state handler")],
)
def test_a_joiner_is_told_whether_the_group_had_a_state(state, words):
    """The view that admits the joiner names only members that stay; the last one with the state leaves."""
    stage = Stage()
    for name, has, at_ms in (("a", state, 0), ("b", False, 300), ("c", True, 2000)):
        stage.options = replace(stage.options, state=has)
        stage.named(name, at_ms)
        stage.until(at_ms + 2)
    a, b, _ = stage.nodes
    a.application.leave()  # in the view that admits c
    stage.until(2050)
    assert all(member.name != "a" for member in b.endpoint.view.members)
    assert any(f"c gives up: no state: {words}" in line for line in stage.lines)


@pytest.mark.parametrize("lost", [0, 1], ids=["the first", "the second"])
def test_the_merger_of_three_states_that_loses_a_provider_merges_the_other_and_no_part_of_the_lost_one(lost):
    """The provider crashes in the middle of its state; the first one's is whole when the second crashes."""
    stage = Stage(state=True, merges=True, state_bytes=1_000_000)
    stage.group("a", "b", "c")
    one, two, three = ({node.index} for node in stage.nodes)
    stage.network.partition(one, two | three)
    stage.network.partition(two, three)
    stage.until(3000)
    for node in stage.nodes:
        node.application.sender.say_last()
    stage.until(3200)
    apart = {node.name: node.application.chain.digest() for node in stage.nodes}
    assert len(set(apart.values())) == 3
    stage.network.heal()
    merger = merging(stage, 3200)
    keeper, merge = merger.application.keeper, merger.application.keeper.merge
    providers = [stage.node(stage.name(member)) for member in merge.plan.providers]
    assert len(providers) == 2
    gone, stays = providers[lost], providers[1 - lost]
    while len(keeper.parts.get(gone.id, b"")) < 100_000:
        stage.until(stage.clock.now // MS + 1)
    assert merge.receiving and merge.provider == gone.id and len(keeper.parts[gone.id]) < 900_000
    assert len(keeper.parts.get(stays.id, b"")) == (lost and 1_000_000)
    gone.crash()
    stage.until(stage.clock.now // MS + 1500)
    assert not merger.record.passed_over, "the other provider began again with the plan, and was not refused"
    ((_, _, _, parts),) = merger.record.merges
    assert list(parts) == [stays.id] and not merge.stopped
    assert len(states(stage)) == 1 and not states(stage) & set(apart.values())
    assert names(merger.endpoint.view) == names(stays.endpoint.view) and len(merger.endpoint.view.members) == 2
    assert not list(check_safety(stage.records))


def merging(stage: Stage, ms: int):
    """The member that merges others' states into its own, as soon as it begins."""
    while True:
        for node in stage.nodes:
            if node.application.keeper.merge.plan.merges:
                return node
        ms += 1
        stage.until(ms)
