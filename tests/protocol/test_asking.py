"""Members ask each other for their boards: who is answered, how often, and the results for the asker."""

from __future__ import annotations

import pytest
from sim_stage import Stage

from seqcast.core.frames.asking import Ask, Told
from seqcast.core.frames.kinds import dump
from seqcast.core.machines.asking import ANSWER_NS
from seqcast.core.vocabulary import AskMembers
from seqcast.reports import FrameReceived
from seqcast.sim import Options, World, families
from seqcast.sim.options import MS, SECOND


def ask(node, request):
    node.step(AskMembers(request, 0))
    node.service()


def heard(node):
    """(who, request) of the answers."""
    return [(each.member, each.request) for each in node.record.told]


def group(*names):
    stage = Stage()
    stage.group(*names)
    return stage, stage.nodes


def test_all_others_answer_with_their_boards():
    stage, (a, b, c) = group("a", "b", "c")
    ask(a, 7)
    stage.until(1010)
    assert sorted(heard(a)) == sorted([(b.id, 7), (c.id, 7)]) and heard(b) == heard(c) == []
    assert {each.sees for each in a.record.told} == {str(b.id), str(c.id)}


def test_a_member_answers_each_other_one_only_so_often_and_only_the_last_question_counts():
    stage, (a, b, c) = group("a", "b", "c")
    for request in range(5):
        ask(a, request)
    ask(c, 1)
    stage.until(1010)
    assert heard(a) == [] and heard(c) == [(a.id, 1), (b.id, 1)]
    assert b.endpoint.counters["asks_too_soon"] == 4
    stage.until(1010 + ANSWER_NS // MS)
    ask(a, 9)
    stage.until(1020 + ANSWER_NS // MS)
    assert sorted(heard(a)) == sorted([(b.id, 9), (c.id, 9)])


@pytest.mark.parametrize("how", ["a stranger", "another view", "no view", "itself"])
def test_nobody_but_a_member_of_the_view_is_answered(how):
    stage, (a, b) = group("a", "b")
    told = []
    stage.refuse = lambda source, node, frame: isinstance(frame, Told) and bool(told.append(node))
    tag = a.endpoint.context.tag
    view = {"another view": tag ^ 1, "no view": 1}.get(how, tag)
    sender = {"a stranger": 77, "itself": a.id}.get(how, b.id)
    for request in range(10):
        a.step(FrameReceived(sender, b"elsewhere", dump(Ask(view, request, 0))))
        a.service()
    stage.until(1100)
    assert not told


def test_an_answer_goes_to_the_address_in_the_view_whoever_asked():
    stage, (a, b) = group("a", "b")
    sent = []
    stage.refuse = lambda source, node, frame: bool(isinstance(frame, Told) and sent.append((source, node)))
    b.endpoint.machines.asking.ask(3, 2)
    b.endpoint.context.emitted.clear()  # so that b waits for its question
    a.step(FrameReceived(b.id, b"elsewhere", dump(Ask(a.endpoint.context.tag, 3, 2))))
    a.service()
    stage.until(1100)
    assert sent == [(a, b)] and heard(b) == [(a.id, 3)] and b.record.told[0].pages == 2


def test_an_answer_to_nothing_that_was_asked_is_not_told():
    _, (a, b) = group("a", "b")
    a.step(FrameReceived(b.id, b.address, dump(Told(a.endpoint.context.tag, 5, 0, "x"))))
    assert heard(a) == []


@pytest.mark.parametrize("family", ["storm", "turnover"])
def test_in_a_storm_of_view_changes_only_members_of_the_view_send_their_boards(family):
    given = {**{"storm": families.STORM, "turnover": families.TURNOVER}[family], "duration_ns": SECOND}
    options = Options(seed=3, looks_ns=70 * MS, **given)
    world = World(options)
    result = world.run()
    assert not result.violations, result.violations[0]
    told = [each for record in world.records for each in record.told]
    assert len(told) > 10
