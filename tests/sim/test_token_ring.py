"""Simulated groups whose members agree on the membership by a token ring (``membership="token-ring"``)."""

import pytest
from sim_stage import Stage

from seqcast.core.frames.joining import Join
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.ring import Token
from seqcast.core.vocabulary import FrameReceived
from seqcast.sim import Options, simulate

RING = "token-ring"


@pytest.mark.parametrize("seed", range(1, 9))
def test_all_guarantees_hold(seed):
    options = Options.draw(seed, membership=RING)
    result = simulate(options)
    assert not result.violations, f"{options}: {result.violations[0]}"


@pytest.mark.long
def test_all_guarantees_hold_in_many_seeds():
    found = [(seed, simulate(Options.draw(seed, membership=RING)).violations) for seed in range(100, 140)]
    assert not [each for each in found if each[1]]


@pytest.mark.parametrize("membership", ["coordinated", RING])
def test_a_joiner_that_only_one_member_hears_is_taken_in_where_a_token_tells_of_it(membership):
    """NBC-04, NBC-14: the coordinator alone cannot know of it."""
    stage = Stage(membership=membership)
    stage.group("a", "b", "c")
    stage.refuse = lambda source, node, frame: isinstance(frame, Join) and str(node) != "c"
    stage.named("d", 1000)
    stage.until(2500)
    views = {str(node): len(node.endpoint.view.members) if node.endpoint.view else 0 for node in stage.nodes}
    assert views == (dict.fromkeys("abcd", 4) if membership == RING else {"a": 3, "b": 3, "c": 3, "d": 0})


@pytest.mark.parametrize("membership", ["coordinated", RING])
def test_messages_flow_while_a_member_that_hangs_delays_the_token(membership):
    """NBC-02: with a coordinator the gate of all is closed until that member has answered."""
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
    """FLU-11, NBC-10: what comes within the bundling delay is in one token, and nothing is agreed on twice."""
    stage, tokens = Stage(membership=RING), []
    stage.group("a", "b", "c")
    stage.refuse = lambda source, node, frame: (isinstance(frame, Token) and tokens.append(frame)) or False
    stage.named("d", 1000)
    stage.named("e", 1001)
    stage.until(1300)
    assert {len(node.endpoint.view.members) for node in stage.nodes} == {5}
    assert len({(frame.source, frame.generation) for frame in tokens}) == 1


def test_a_token_that_says_that_its_receiver_leaves_does_not_make_it_leave():
    """A member gone wrong said so. Alone, the receiver then tried without end to make a view without any member."""
    stage = Stage(membership=RING)
    stage.group("a", "b")
    a, b = stage.nodes
    view, ids = b.endpoint.view, (a.id, b.id)
    token = Token(view.view_id.tag, 1, a.id, a.id, ids, (a.id,), (), (), (b.id,))
    b.step(FrameReceived(a.id, view.members[0].address, dump(token)))
    assert b.endpoint.machines.membership.ring.generation == 1, "the token was taken"
    assert not b.endpoint.machines.membership.leaving()
    a.crash()
    stage.until(4000)
    assert [member.name for member in b.endpoint.view.members] == ["b"]
