"""Who leads, in a simulated group that loses its power as a whole, or whose operator lets a minority go on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from halves import first_quick
from sim_stage import Stage
from test_durable import Power

from seqcast.blocks import on_leader
from seqcast.events import Blocked, Unblocked
from seqcast.sim.operator import OperatorProcess
from seqcast.types import View


class Leads:
    """``on_leader`` on one simulated process.

    Args:
        node: of the simulation.
        told: all changes of this group: (member, fence); 0: this one leads no more.
    """

    def __init__(self, node, told) -> None:
        self.node, self.told, self.callbacks = node, told, []
        replica = SimpleNamespace(
            _me=node.id, add_callback=self.callbacks.append, remove_callback=self.callbacks.remove
        )
        self.calls: list[int] = []
        self.leader = on_leader(replica, self.calls.append, lambda: self.calls.append(0))
        while not self.callbacks:
            time.sleep(0.001)
        self.reach, node.application._reach = node.application._reach, self.take

    def take(self, event) -> None:
        self.reach(event)
        if not isinstance(event, View | Blocked | Unblocked):
            return
        before = self.leader.fence
        self.callbacks[0](event)
        if self.leader.fence != before:
            self.told.append((self.node.name, self.leader.fence))

    def crash(self) -> None:
        """As the end of the process: another one may lead from now on."""
        self.told.append((self.node.name, 0))


def leaders(told):
    """The fences, of which no two are held at a time."""
    fences, holder = [], ""
    for name, fence in told:
        if fence:
            assert holder in ("", name), f"{name} leads while {holder} does: {told}"
            fences.append(fence)
        holder = name if fence else "" if holder == name else holder
    return fences


class Led(Power):
    """Machines that lose their power, of which one leads at a time."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.led, self.leads = [], {}

    def start_node(self, name: str) -> None:
        super().start_node(name)
        self.leads[name] = Leads(self.nodes[-1], self.led)

    def strike(self, name: str) -> None:
        super().strike(name)
        self.leads[name].crash()


@pytest.mark.parametrize("seed", first_quick(range(1, 3)))
def test_after_a_loss_of_power_one_leads_with_a_higher_fence_than_all_before(seed, tmp_path):
    power = Led(seed, tmp_path)
    for _ in range(3):
        power.start_all()
        power.use(100)
        (leader,) = (name for name, each in power.leads.items() if each.leader.fence)
        assert power.leads[leader].node.endpoint.view.coordinator.name == leader
        power.fail()
    fences = leaders(power.led)
    assert len(fences) >= 3 and fences == sorted(set(fences))


def test_a_leader_in_a_minority_leads_again_with_a_higher_fence_once_an_operator_lets_it():
    stage, told = Stage(partition="primary"), list[tuple[str, int]]()
    stage.group(*"abc")
    leads = [Leads(node, told) for node in stage.nodes]
    for each in leads:
        each.callbacks[0](each.node.endpoint.view)
    assert [each.leader.fence for each in leads] == [3, 0, 0]
    for each in leads[1:]:
        each.node.crash()
    stage.until(2500)
    assert told == [("a", 0)]
    OperatorProcess(stage, 0)
    stage.until(5000)
    (again,) = leaders(told)
    leads[0].leader.close()
    assert again == leads[0].node.endpoint.view.fence > 3 and leads[0].calls == [3, 0, again, 0]
