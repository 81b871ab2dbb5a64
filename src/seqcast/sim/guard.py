"""Simulated guard connections: the signs of two processes' kernels to each other, true or misleading.

Connections break while both processes live, and a firewall refuses some calls of a living one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from seqcast._native.engine import Engine
from seqcast.core.context import NEVER
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.guard import CallMember, CloseLine, Greet, GuardEffect, GuardLines, MemberGone
from seqcast.sim.network import Clock, Network
from seqcast.sim.options import MS, Options
from seqcast.types import View

NO_ANSWER_NS = 3000 * MS
BREAKS = 0.3
"""Fraction of the connections that break."""
BREAK_NS_MAX = 1000 * MS
FIREWALL = 0.1
"""Fraction of the calls that are refused for a living process."""


class GuardedProcess(Protocol):
    """The interface of the process whose kernel holds guard connections."""

    index: int
    id: int
    public: bytes
    options: Options
    clock: Clock
    engine: Engine
    endpoint: Endpoint
    lines: Lines

    @property
    def world(self) -> Wires: ...
    @property
    def up(self) -> bool: ...
    @property
    def inside(self) -> bool: ...
    @property
    def now(self) -> int: ...
    @property
    def busy_until(self) -> int: ...
    def poke(self) -> None: ...
    def service(self) -> None: ...
    def trace(self, text: str) -> None: ...


class Wires(Protocol):
    """The interface of the world to them."""

    network: Network

    @property
    def nodes(self) -> Sequence[GuardedProcess]: ...


class Lines:
    """The guard connections of one simulated process; none if the run has no guards."""

    def __init__(self, node: GuardedProcess) -> None:
        self.node = node
        self.rng = random.Random(f"guard {node.options.seed} {node.index}")
        self.guard = GuardLines(node.id, 1, node.endpoint.edges)
        self.ends: dict[int, tuple[Lines, int]] = {}  # by our number: the other side of each connection

    # ---- the process

    def view(self, view: View) -> None:
        if self.node.options.guard:
            self.do(self.guard.view([member.id for member in view.members], self.node.now))

    def due(self) -> int:
        return self.guard.due() if self.listening else NEVER

    def step(self) -> None:
        if self.listening:
            self.do(self.guard.run_timers(self.node.now))

    def stop(self) -> None:
        """The process ends, or closes its group; if its machine crashes too, nobody is told."""
        ends, self.ends = self.ends, {}
        if self.node.up or not self.node.options.hosts:
            for other, line in ends.values():
                self.later(other.over, line, self)

    @property
    def listening(self) -> bool:
        return self.node.options.guard and self.node.up and not self.node.endpoint.over

    def do(self, effects: list[GuardEffect]) -> None:
        for effect in effects:
            match effect:
                case CallMember(line, member):
                    self.call(line, next(node for node in self.node.world.nodes if node.id == member))
                case Greet(line, data):  # the line may have broken, of which we hear when we run
                    if end := self.ends.get(line):
                        self.later(end[0].tell, GuardLines.heard, end[1], data)
                case CloseLine(line):
                    if end := self.ends.pop(line, None):
                        self.later(end[0].over, end[1], self)
                case MemberGone(member):
                    node = next(node for node in self.node.world.nodes if node.id == member)
                    self.node.trace(f"hears that the process of {node} has ended")
                    self.node.engine.refused(node.public, self.node.now, guard=True)
                    self.node.poke()

    # ---- between processes

    def later(self, call: Callable[..., None], *args: Any) -> None:
        """Calls after the delay, in the order of sending, as kernels do."""
        clock = self.node.clock
        clock.at(clock.now + self.node.options.delay_ns, call, *args)

    def cut_off(self, other: Lines) -> bool:
        network, one, two = self.node.world.network, self.node.index, other.node.index
        return not (network.connects(one, two) and network.connects(two, one))

    def call(self, line: int, target: GuardedProcess) -> None:
        other, clock = target.lines, self.node.clock
        dead = not target.up and self.node.options.hosts
        if dead or self.cut_off(other):
            clock.at(clock.now + NO_ANSWER_NS, self.tell, GuardLines.failed, line)
        elif not other.listening or self.rng.random() < FIREWALL:
            self.later(self.tell, GuardLines.refused, line)
        else:
            number, effects = other.guard.accepted(target.now)
            self.ends[line], other.ends[number] = (other, number), (self, line)
            other.do(effects)
            self.later(self.tell, GuardLines.connected, line)
            if self.rng.random() < BREAKS:
                self.later(clock.at, clock.now + self.rng.randrange(BREAK_NS_MAX), self.tear, line)

    def tear(self, line: int) -> None:
        """The connection breaks, which both ends see."""
        if line in self.ends:
            other, number = self.ends[line]
            self.over(line, other)
            other.over(number, self)

    def over(self, line: int, other: Lines) -> None:
        """The other side has closed the connection; across a cut network, nobody hears of that."""
        if not self.cut_off(other):
            self.ends.pop(line, None)
            self.tell(GuardLines.ended, line)

    def tell(self, what: Callable[..., list[GuardEffect]], line: int, *args: object) -> None:
        """The process learns of this when it runs."""
        clock = self.node.clock
        if not self.listening:
            return
        runs = self.node.busy_until
        if clock.now < runs:
            clock.at(runs, self.tell, what, line, *args)
            return
        self.do(what(self.guard, line, *args, self.node.now))
        self.node.service()
