"""Simulated groups whose members agree on the membership by a token ring (``membership="token-ring"``)."""

import pytest
from halves import first_quick
from sim_stage import Stage

from seqcast.core.frames.joining import Join, Leave
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.ring import Confirmed, Token
from seqcast.reports import FrameReceived
from seqcast.sim import Options, simulate
from seqcast.sim.options import MS

RING = "token-ring"


@pytest.mark.parametrize("seed", first_quick(range(1, 9)))
def test_all_guarantees_hold(seed):
    options = Options.draw(seed, membership=RING)
    result = simulate(options)
    assert not result.violations, f"{options}: {result.violations[0]}"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_all_guarantees_hold_in_many_seeds():
    found = [(seed, simulate(Options.draw(seed, membership=RING)).violations) for seed in range(100, 140)]
    assert not [each for each in found if each[1]]


@pytest.mark.parametrize("membership", ["coordinated", RING])
def test_a_joiner_that_only_one_member_hears_is_taken_in_if_a_token_names_the_joiner(membership):
    """NBC-04, NBC-14: the coordinator alone cannot know of that member."""
    stage = Stage(membership=membership)
    stage.group("a", "b", "c")
    stage.refuse = lambda source, node, frame: isinstance(frame, Join) and str(node) != "c"
    stage.named("d", 1000)
    stage.until(2500)
    views = {str(node): len(node.endpoint.view.members) if node.endpoint.view else 0 for node in stage.nodes}
    assert views == (dict.fromkeys("abcd", 4) if membership == RING else {"a": 3, "b": 3, "c": 3, "d": 0})


@pytest.mark.parametrize("membership", ["coordinated", RING])
def test_messages_flow_while_a_member_that_hangs_delays_the_token(membership):
    """NBC-02: with a coordinator the gate of all members is closed until that member has answered."""
    stage = Stage(membership=membership)
    stage.group("a", "b", "c")
    stage.until(1000)
    a, b, _ = stage.nodes
    stage.refuse = lambda source, node, frame: "b" in (str(source), str(node))  # its engine lives, and beats
    stage.named("d", 1000)
    stage.until(1500)
    a.record.pending.append((0, 100))
    before = [node.record.counter for node in (a,)]
    a.service()
    stage.until(1600)
    sent = a.record.counter - before[0]
    assert b.endpoint.view.members == a.endpoint.view.members and len(a.endpoint.view.members) == 3
    assert sent == (1 if membership == RING else 0)


def test_one_round_of_the_token_makes_one_view_of_several_joiners():
    """FLU-11, NBC-10: requests within the bundling delay are in one token, and nothing is agreed on twice."""
    stage, tokens = Stage(membership=RING), []
    stage.group("a", "b", "c")
    stage.refuse = lambda source, node, frame: (isinstance(frame, Token) and tokens.append(frame)) or False
    stage.named("d", 1000)
    stage.named("e", 1001)
    stage.until(1300)
    assert {len(node.endpoint.view.members) for node in stage.nodes} == {5}
    assert len({(frame.source, frame.generation) for frame in tokens}) == 1


@pytest.mark.parametrize("membership", ["coordinated", RING])
def test_a_member_whose_leave_the_coordinator_does_not_hear_leaves_all_the_same(membership):
    """NBC-07, NBC-14: the leaver calls the coordinator by a token, and announces its leave when it agrees."""
    stage = Stage(membership=membership)
    stage.group("a", "b", "c")
    a, _, c = stage.nodes
    stage.refuse = lambda source, node, frame: isinstance(frame, Leave) and node is a
    c.leave()
    stage.until(1900)
    left = [member.name for member in a.endpoint.view.members] == ["a", "b"]
    assert (left, c.endpoint.over) == ((True, True) if membership == RING else (False, False))


def test_a_member_that_asks_for_a_view_without_a_reason_costs_a_round_and_changes_no_view():
    """A faulty member cannot name another as a leaver: each leaver says so itself."""
    stage, agreed = Stage(membership=RING), []
    stage.group("a", "b", "c")
    a, b, _ = stage.nodes
    stage.refuse = lambda source, node, frame: (isinstance(frame, Confirmed) and agreed.append(str(source))) or False
    view, ids = a.endpoint.view, tuple(node.id for node in stage.nodes)
    for generation in (1, 4):
        token = Token(view.view_id.tag, generation, b.id, a.id, ids, (b.id,), (), (), True)
        a.step(FrameReceived(b.id, view.members[1].address, dump(token)))
        stage.until(stage.clock.now // MS + 500)
        assert agreed == ["b", "c"] * 2, "PREPARE, COMMIT"
        assert {node.endpoint.view for node in stage.nodes} == {view}
        agreed.clear()
