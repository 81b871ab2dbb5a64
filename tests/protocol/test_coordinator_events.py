"""Who coordinates, as applications are told: at views, and within them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_stage import Stage

from seqcast.events import CoordinatorChanged
from seqcast.sim.checkers.coordinators import check_coordinators
from seqcast.types import Member, View, ViewId


def told(node):
    """(new, previous, agreed) of each change that the application of this member was told."""
    changes = [each for each in node.record.coordinators if isinstance(each, CoordinatorChanged)]
    assert not list(check_coordinators(node.record))
    return [(each.coordinator.name, each.previous.name, each.agreed) for each in changes]


def test_the_next_member_acts_when_the_coordinator_is_dead_and_coordinates_the_next_view():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.crash()
    stage.until(6000)
    assert told(b) == told(c) == [("b", "a", False), ("b", "a", True)]
    doubted, gone = b.record.coordinators[-3], b.record.coordinators[-1]
    assert "a is doubted: " in doubted.reason and gone.reason == "a is not in the view"


def test_a_coordinator_that_is_heard_again_acts_again():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.refuse = lambda source, node, frame: True
    b.doubt(a.id)
    stage.until(1010)
    assert told(b) == [("b", "a", False)] and told(c) == []
    b.endpoint.machines.membership.suspected.clear()
    b.step()
    b.service()
    stage.until(1020)
    assert told(b) == [("b", "a", False), ("a", "b", False)]
    assert b.record.coordinators[-1].reason == "a is no longer doubted"


def test_a_coordinator_that_leaves_is_followed_by_the_next_with_the_view():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.leave()
    stage.until(3000)
    assert told(a) == [] and told(b) == told(c) == [("b", "a", True)]


def test_both_sides_of_a_partition_are_told_and_the_merged_view_tells_one_of_them():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({a.index}, {b.index, c.index})
    stage.until(8000)
    assert told(a) == [] and told(b)[-1] == ("b", "a", True)
    stage.network.heal()
    stage.until(20_000)
    merged = b.endpoint.view
    assert len(merged) == 3
    sides = {"a": told(a), "b": told(b)}
    side = sides["b" if merged.coordinator.name == "a" else "a"]
    assert side[-1][0] == merged.coordinator.name and side[-1][2]
    assert all(each.record.coordinators[-1].reason == "separated groups merged" for each in (b, c))


A, B, C = (Member(name, number) for number, name in enumerate("abc", 1))
ONE, TWO = View(ViewId(1, 1), (A, B, C)), View(ViewId(2, 2), (B, C))
ACTS = CoordinatorChanged(B, A, ONE.view_id, False, "")
AGREED = CoordinatorChanged(B, A, TWO.view_id, True, "")


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ((ONE, ACTS, TWO, AGREED), ""),
        ((ONE, TWO, AGREED, TWO), ""),
        ((ONE, TWO, ONE), "is not told that"),
        ((ONE, AGREED), "is told"),
        ((TWO, AGREED), ""),
        ((TWO, AGREED, AGREED), "is told"),
        ((ONE, TWO, replace(AGREED, coordinator=C)), "after"),
        ((ONE, ACTS, ACTS), "after"),
        ((ONE, replace(ACTS, view_id=TWO.view_id)), "in view"),
        ((ONE, replace(ACTS, coordinator=Member("d", 4))), "in view"),
        ((ONE, View(ViewId(2, 1, (1, B.id)), (A, B))), "was not told that it acts"),
    ],
)
def test_the_checker_sees_losses_not_reported_or_reported_wrongly(events, wrong):
    stage = Stage()
    stage.start_node("x")
    record = stage.nodes[0].record
    record.id = B.id
    record.coordinators[:] = events
    found = list(check_coordinators(record))
    assert (not found and not wrong) or wrong in found[0], found
