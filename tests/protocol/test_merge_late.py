"""Frames and timers of a merge that is over do not affect the next one: they name the merge they belong to (E-12)."""

import pytest
from sim_stage import Stage, names, send

from seqcast.core.frames.kinds import dump
from seqcast.core.frames.merging import Beacon, MergeAsk, MergeCancel, MergeGo, MergeReady
from seqcast.core.machines.merge import MergerState
from seqcast.core.orders.order import first
from seqcast.core.rules.merged import merged_view
from seqcast.sim.record import Delivered
from seqcast.types import MergeView


class Asked:
    """Two groups that hear each other; ``leader`` asks ``follower``, coordinator of the other, by hand."""

    def __init__(self):
        self.stage = stage = Stage()
        stage.group("a", "b", "c", "d")
        sides = [stage.nodes[:2], stage.nodes[2:]]
        stage.network.partition(*({node.index for node in side} for side in sides))
        stage.until(3000)
        assert [names(side[0])[-1] for side in sides] == [["a", "b"], ["c", "d"]]
        self.leader, self.follower = sorted((side[0] for side in sides), key=lambda node: node.id)
        stage.refuse = self.refuse
        stage.network.heal()
        self.wait(250)

    def refuse(self, source, node, frame):
        """The leader is heard but hears nobody: the test asks in its name, and the leader has no merge to end."""
        beacon = isinstance(frame, Beacon) and (source, node) != (self.leader, self.follower)
        return beacon or isinstance(frame, MergeReady)

    def ask(self, number):
        tag = self.follower.endpoint.view.view_id.tag
        send(self.stage, self.leader, dump(MergeAsk((self.leader.id, number), tag)), self.follower)

    def cancel(self, number):
        send(self.stage, self.leader, dump(MergeCancel((self.leader.id, number), "")), self.follower)

    def wait(self, ms):
        self.stage.until(self.stage.clock.now // 1_000_000 + ms)

    @property
    def follows(self):
        """The number of the merge that the follower follows, or 0."""
        merger = self.follower.endpoint.machines.merger
        return merger.merge[1] if merger.state is MergerState.FOLLOWING else 0


@pytest.mark.parametrize("number", [1, 3])
def test_a_cancel_of_another_merge_ends_none(number):
    """EVT-02."""
    asked = Asked()
    asked.ask(2)
    assert asked.follows == 2
    asked.cancel(number)
    assert asked.follows == 2
    asked.cancel(2)
    assert asked.follows == 0


def test_a_member_that_does_not_coordinate_follows_no_merge():
    """MRG-03: only coordinators react."""
    asked = Asked()
    view = asked.follower.endpoint.view
    other = next(node for node in asked.stage.nodes if node.endpoint.view == view and node is not asked.follower)
    tag = other.endpoint.view.view_id.tag
    send(asked.stage, asked.leader, dump(MergeAsk((asked.leader.id, 1), tag)), other)
    assert other.endpoint.machines.merger.state is MergerState.APART and asked.follows == 0


def test_messages_sent_while_groups_merge_are_delivered_in_the_merged_view():
    """MRG-09: between its cut and the view a subgroup's gate is closed, and its members' messages are kept."""
    asked = Asked()
    asked.ask(1)
    asked.wait(10)
    sender = asked.follower
    assert sender.endpoint.machines.initiator.holding
    sender.record.pending.append((0, 24))
    sender.service()
    asked.stage.refuse = lambda source, node, frame: False
    asked.wait(3000)
    for node in asked.stage.nodes:
        merged = max(k for k, entry in enumerate(node.record.log) if isinstance(entry, MergeView))
        assert [entry.sender for entry in node.record.log[merged:] if isinstance(entry, Delivered)] == [sender.id]
        assert len(node.record.log[merged].members) == 4


def test_the_view_of_another_merge_is_not_taken():
    """MRG-07."""
    asked = Asked()
    asked.ask(2)
    asked.wait(10)
    initiator = asked.follower.endpoint.machines.initiator
    assert asked.follows == 2 and initiator.holding
    leader = asked.leader.endpoint
    template = merged_view([leader.context.entered, initiator.plain], [], leader.machines.initiator.arrange, first)
    for number, follows in ((1, 2), (3, 2), (2, 0)):
        send(asked.stage, asked.leader, dump(MergeGo((asked.leader.id, number), template)), asked.follower)
        assert asked.follows == follows


def test_the_timer_of_a_merge_that_was_cancelled_does_not_end_the_next():
    """MRG-08, E-12: the first one's lease would end in the middle of the second, which its leader renews."""
    asked = Asked()
    asked.ask(1)
    asked.cancel(1)
    asked.wait(350)  # how long it rests
    asked.ask(2)
    assert asked.follows == 2
    for _ in range(5):
        asked.wait(100)
        asked.ask(2)
        assert asked.follows == 2
    asked.wait(650)
    assert asked.follows == 0  # its own lease has ended
    asked.stage.refuse = lambda source, node, frame: False
    asked.wait(3000)
    assert {node.endpoint.view for node in asked.stage.nodes} == {asked.leader.endpoint.view}


def test_a_merged_view_of_a_cut_before_a_member_was_lost_is_late_and_not_wrong():
    asked = Asked()
    follower, leader = asked.follower.endpoint, asked.leader.endpoint
    other = next(node for node in asked.stage.nodes if node.id in follower.context.infos and node is not asked.follower)
    asked.ask(1)
    asked.wait(10)
    initiator = follower.machines.initiator
    assert initiator.holding and len(initiator.plain.members) == 2
    parts = [leader.context.entered, initiator.plain]
    template = merged_view(parts, [], leader.machines.initiator.arrange, first)
    asked.follower.doubt(other.id)
    asked.wait(300)
    assert asked.follows == 1 and initiator.holding and len(initiator.plain.members) == 1
    send(asked.stage, asked.leader, dump(MergeGo((asked.leader.id, 1), template)), asked.follower)
    assert asked.follows == 1 and not follower.counters["frames_bad"]
