"""Primary partitions that were founded apart: which one gives way, and the answers to a restarted member."""

from dataclasses import replace

import pytest
from sim_stage import Stage, names

from seqcast.core.frames.closing import Accepted
from seqcast.core.frames.codec import clipped
from seqcast.core.frames.joining import WAIT_BYTES_MAX, Wait, Was
from seqcast.core.frames.kinds import dump, load
from seqcast.core.frames.view import ITSELF, NewView
from seqcast.core.lineage import CLOSED_VIEWS_MAX
from seqcast.core.membership import Joiner
from seqcast.core.rules.merged import COUNTER_STEP_MAX
from seqcast.core.vocabulary import GiveWay
from seqcast.events import Excluded
from seqcast.sim.operator import OperatorProcess
from seqcast.sim.options import SECOND


def spoken(stage, name, count=1):
    """``name`` sends to the group, and all members on its side deliver the message."""
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
    """d sends at once in its own group: that is a history, too, but a lesser one."""
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


def come_and_go(stage, count):
    """This many joiners come, one after the other, and leave: two views each."""
    for number in range(count):
        now = stage.clock.now // 1_000_000
        stage.named(f"joiner {number}", now)
        stage.until(now + 50)
        stage.nodes[-1].leave()
        stage.until(now + 100)


def test_one_that_was_cut_off_for_more_views_than_anybody_remembers_is_excluded_once_it_is_back():
    """c and the others waited for an operator before: each took the other for a group that was founded separately."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    spoken(stage, "a")
    a, _, c = stage.nodes
    stage.network.partition({c.index}, {*range(20)} - {c.index})
    stage.until(2000)
    come_and_go(stage, 9)
    assert a.endpoint.view.view_id.counter > c.endpoint.view.view_id.counter + CLOSED_VIEWS_MAX
    stage.network.heal()
    stage.until(stage.clock.now // 1_000_000 + 3000)
    assert isinstance(c.record.log[-1], Excluded) and "continued without this member" in c.record.log[-1].reason
    assert not any("neither gives way" in line for line in stage.lines) and not a.endpoint.over


@pytest.mark.parametrize(
    ("later", "heard_s", "claims", "forged", "goes"),
    [
        (3, 60, "a", None, True),
        (3, 0, "a", None, False),
        (3, 60, "stranger", None, False),
        (COUNTER_STEP_MAX + 1, 60, "a", None, False),
        (3, 0, "a", "", True),
        (3, 60, "a", "its maker has not signed the VIEW", False),
    ],
)
def test_a_blocked_member_does_not_go_by_a_later_view_that_anybody_may_have_made_up(
    monkeypatch, later, heard_s, claims, forged, goes
):
    """A joiner knows the lineage from any beacon. ``forged``: the verdict by identities; None: there are none."""
    stage, c = last_holder()
    context, view = c.endpoint.context, c.endpoint.context.entered
    if forged is not None:
        monkeypatch.setattr(type(context.identities), "used", True)
        monkeypatch.setattr(type(context.identities), "forged", lambda *_: forged)
    view_id = replace(view.view_id, counter=view.view_id.counter + later)
    others, before = (
        tuple(info for info in view.members if info.name != "c"),
        replace(view_id, counter=view_id.counter - 1),
    )
    frame = replace(view, view_id=view_id, closes=before, members=others, root=context.root)
    member = next((info.id for info in view.members if info.name == claims), 98)
    me = replace(context.me, id=99, name="joiner", address=b"simJJ")
    was = Was(view_id.counter, view_id.tag, member)
    context.now = stage.clock.now
    c.endpoint.machines.membership.joiners[99] = Joiner(me, context.now - heard_s * SECOND, context.now, was=was)
    context.emitted.clear()
    c.endpoint._router.route(frame, 99, me.address)
    assert any(isinstance(each, GiveWay) for each in context.emitted) == goes
    context.emitted.clear()
    c.crash()


def test_a_side_that_an_operator_let_go_on_does_not_give_way_to_the_others_once_it_is_blocked_again():
    """The others went on, too, and have had more views. But a lineage ends with an operator's command."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    spoken(stage, "a")
    c = stage.node("c")
    stage.network.partition({c.index, 3, 4}, {0, 1, *range(5, 20)})
    stage.until(2000)
    OperatorProcess(stage, 0)
    stage.until(4000)
    assert c.endpoint.context.entered.root == ITSELF, "joiners and the disk have the VIEW itself"
    for name in "de":
        stage.named(name, 4000)
    stage.until(5000)
    assert sorted(names(c)[-1]) == [*"cde"]
    come_and_go(stage, 3)
    spoken(stage, "c")
    for name in "de":
        stage.node(name).crash()
    stage.until(stage.clock.now // 1_000_000 + 2000)
    assert c.record.blocked.kind == "minority"
    assert stage.node("a").endpoint.view.view_id.counter > c.endpoint.view.view_id.counter
    stage.network.heal()
    stage.until(stage.clock.now // 1_000_000 + 4000)
    assert not any(stage.node(name).endpoint.over for name in "abc") and c.record.blocked.kind == "minority"
    assert any("neither gives way" in line for line in stage.lines)
    c.crash()  # the operator's choice


def test_a_side_that_an_operator_let_go_on_by_a_view_accepted_before_has_a_lineage_of_its_own():
    """The others may have entered that view, too, and had more since: neither side went on from the other one's."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    spoken(stage, "a")
    c = stage.node("c")
    stage.refuse = lambda _, node, frame: (node is not c and isinstance(frame, Accepted)) or isinstance(frame, NewView)
    stage.named("d", 1000)
    while c.endpoint.machines.participant.accepted is None:
        stage.until(stage.clock.now // 1_000_000 + 1)
    stage.network.partition({c.index}, {*range(20)} - {c.index})
    stage.refuse = lambda *_: False
    stage.until(4000)
    assert c.record.blocked.kind == "minority"
    root, proposed = c.endpoint.context.root, c.endpoint.machines.participant.accepted[1]
    assert proposed.root == root != stage.node("a").endpoint.view.view_id.tag
    OperatorProcess(stage, 0)
    stage.until(7000)
    context = c.endpoint.context
    assert context.view.view_id == proposed.view_id and context.root == context.tag != root
    c.crash()


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
