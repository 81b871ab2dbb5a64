"""Primary partitions that were founded apart: which one gives way, and the answers to a restarted member."""

import pytest
from sim_stage import Stage, names

from seqcast.core.frames.codec import clipped
from seqcast.core.frames.joining import WAIT_BYTES_MAX, Wait
from seqcast.core.frames.kinds import dump, load
from seqcast.events import Excluded
from seqcast.sim.operator import OperatorProcess


def spoken(stage, name, count=1):
    """``name`` sends to the group, and all members that are with it deliver the message."""
    node = stage.node(name)
    node.record.pending += [(0, 100)] * count
    node.service()
    stage.until(stage.clock.now // 1_000_000 + 100)


def last_holder(*restarted, order="fifo", alone=300):
    """a, b and c have delivered messages; a and b crash, and c is blocked. Others start while they do not hear c."""
    stage = Stage(order, partition="primary")
    stage.group("a", "b", "c")
    spoken(stage, "a")
    a, b, c = stage.nodes
    a.crash()
    b.crash()
    stage.until(3000)
    assert c.record.blocked.kind == "minority"
    stage.network.partition({c.index}, set(range(3, 3 + len(restarted))))
    for name in restarted:
        stage.named(name, 3000)
    stage.until(3000 + alone)
    return stage, c


@pytest.mark.parametrize("order", ["fifo", "total"])
def test_the_last_holder_of_a_history_does_not_give_way_to_a_founding(order):
    """c was excluded before: "another group of this cluster, which was founded separately, is larger"."""
    stage, c = last_holder("d", order=order)
    d = stage.node("d")
    assert names(d) == [["d"]]
    stage.network.heal()
    stage.until(6000)
    assert not c.endpoint.over and c.record.blocked.kind == "minority" and names(c)[-1] == ["a", "b", "c"]
    assert isinstance(d.record.log[-1], Excluded) and "has a history" in d.record.log[-1].reason


def test_a_history_of_one_member_alone_yields_to_that_of_several():
    """d sends as soon as it is in its own group: that is a history, too, but a lesser one."""
    stage, c = last_holder("d")
    spoken(stage, "d", 10)
    stage.network.heal()
    stage.until(6000)
    assert not c.endpoint.over and isinstance(stage.node("d").record.log[-1], Excluded)


def test_if_both_have_a_history_that_members_shared_both_wait_for_an_operator():
    stage, c = last_holder("d", "e", alone=600)
    d, e = stage.node("d"), stage.node("e")
    spoken(stage, "d")
    stage.network.heal()
    stage.until(10_000)
    assert not any(node.endpoint.over for node in (c, d, e))
    assert c.record.blocked.kind == "minority" and d.record.blocked is None
    assert sorted(names(d)[-1]) == sorted(names(e)[-1]) == [*"de"]
    warned = [line for line in stage.lines if "neither gives way by itself" in line and "SC3213" in line]
    assert sorted(line.split(" warns")[0][-1] for line in warned) == ["c", "d", "e"]
    c.crash()  # the operator's choice


def test_a_group_of_one_that_has_delivered_does_not_give_way_to_an_empty_founding():
    """Both groups have one member, in a view with counter 1."""
    for first, second in ("ab", "ba"):
        stage = Stage(partition="primary")
        stage.network.partition({0}, {1})
        stage.named(first)
        stage.named(second)
        stage.until(1000)
        spoken(stage, "a")
        stage.network.heal()
        stage.until(4000)
        assert not stage.node("a").endpoint.over and stage.node("b").endpoint.over


def test_a_history_outlives_those_who_made_it():
    """b sent all messages, and left: a and its joiner sent none, but theirs is still no new group."""
    stage = Stage(partition="primary")
    stage.group("a", "b")
    a, b = stage.nodes
    spoken(stage, "b")
    b.leave()
    stage.until(1500)
    stage.named("c", 1500)
    stage.until(2000)
    c = stage.node("c")
    assert names(c)[-1] == ["a", "c"]
    a.crash()
    stage.network.partition({c.index}, {3})
    stage.named("d", 3000)
    stage.until(3500)
    stage.network.heal()
    stage.until(6000)
    assert not c.endpoint.over and stage.node("d").endpoint.over


def test_a_joiner_of_a_blocked_group_is_told_whom_it_lacks_and_not_that_its_name_is_taken():
    """a starts again, and c, which is blocked without the old a and b, answers: before, "the name 'a' is taken"."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.crash()
    b.crash()
    stage.until(2000)
    stage.named("a", 2000)
    stage.until(6000)
    again = stage.nodes[-1]
    assert not again.endpoint.over and not again.record.error and names(again) == []
    waiting = again.record.waiting
    assert "only [c] of [a, b, c] can be reached" in waiting and "seqcast unblock sim" in waiting
    OperatorProcess(stage, 0)
    stage.until(8000)
    assert names(again)[-1] == names(c)[-1] == ["c", "a"]


def test_the_longest_list_of_names_fits_into_a_wait():
    reason = ", ".join('"' * 120 for _ in range(128))
    frame = load(dump(Wait(1, clipped(reason, WAIT_BYTES_MAX))))
    assert 200 < len(frame.blocked) < 1000 and frame.blocked.endswith("…")
    assert clipped("short", WAIT_BYTES_MAX) == "short"
