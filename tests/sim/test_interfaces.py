"""Interfaces that break under simulated members: sockets are mended, and a member that lost its address is out."""

from __future__ import annotations

from typing import Any

import pytest
from halves import first_quick
from rewired import replaced

from seqcast.core.machines.interface import Interface
from seqcast.core.vocabulary import GiveWay
from seqcast.events import Excluded
from seqcast.sim import Options, World, simulate
from seqcast.sim.interface import KINDS
from seqcast.sim.options import MS, SECOND


class Fails(World):
    """The interface of the second member fails once, and nothing else does."""

    def __init__(self, kind: str, lasts_ns: int, at_ns: int = SECOND, **more: Any) -> None:
        super().__init__(Options(seed=1, members=3, duration_ns=3 * SECOND, rate=50, interfaces=1, **more))
        self.kind, self.lasts_ns, self.at_ns = kind, lasts_ns, at_ns
        self.faults.break_interface = lambda *_: None

    def plan(self) -> None:
        super().plan()
        self.clock.at(self.at_ns, lambda: self.nodes[1].interface.fail(self.kind, self.lasts_ns))


@pytest.mark.parametrize("kind", first_quick(KINDS))
def test_a_member_whose_interface_comes_back_is_with_the_others_again(kind):
    world = Fails(kind, 1200 * MS)
    assert world.run().violations == []
    assert len({node.view for node in world.nodes}) == 1 and len(world.nodes[0].view.members) == 3
    assert any("eth0" in said for said in world.nodes[1].record.warnings) or kind == "refusing"


@pytest.mark.parametrize("kind", ["gone", "remade"])
def test_a_member_that_does_not_mend_its_sockets_stays_apart(kind):
    with replaced(Interface, mend=lambda self, _seen: None):
        assert "several views" in " ".join(Fails(kind, 1200 * MS).run().violations)


def test_a_member_whose_address_is_gone_for_good_is_told_so_and_the_others_continue():
    world = Fails("replaced", 0)
    assert world.run().violations == []
    end = world.nodes[1].record.log[-1]
    assert isinstance(end, Excluded) and "eth0 has another address" in end.reason
    assert len(world.nodes[0].view.members) == 2


def test_a_member_that_keeps_on_at_an_address_that_is_gone_stays_apart():
    with replaced(Interface, is_replaced=lambda self, _seen: False):
        assert "several views" in " ".join(Fails("replaced", 0).run().violations)


DISCOVERS = {"at_ns": 300 * MS, "settings": (("discovery_s", 4.0),), "spread_ns": 0}


def test_a_joiner_whose_address_is_gone_for_good_fails_at_once():
    world = Fails("replaced", 0, **DISCOVERS)
    assert world.run().violations == []
    assert "no member can reach this one there; join again" in world.nodes[1].record.error


def test_a_joiner_that_keeps_on_at_an_address_that_is_gone_is_alone_for_ever():
    def give_up(self: Interface, _seen: object) -> None:
        if self.context.view is not None:
            self.context.emit(GiveWay(None, "gone"))

    with replaced(Interface, give_up=give_up):
        assert "several views" in " ".join(Fails("replaced", 0, **DISCOVERS).run().violations)


@pytest.mark.parametrize("seed", [2, 3])
def test_all_guarantees_hold_while_interfaces_break_all_the_time(seed):
    result = simulate(Options.draw(seed, family="interfaces"))
    assert result.violations == [], result.violations[0]
