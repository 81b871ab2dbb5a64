"""An operator in the simulated world: somewhere on the network, in no group."""

from __future__ import annotations

import random
from collections.abc import MutableMapping, Sequence
from typing import Any, Protocol

from seqcast._native.engine import Engine
from seqcast.config.derive import engine_settings
from seqcast.core.frames.kinds import dump
from seqcast.core.identities import Identities, taken_apart
from seqcast.core.machines.operator import Operator
from seqcast.errors import SeqcastError
from seqcast.reports import FrameReceived
from seqcast.sim.network import Clock
from seqcast.sim.options import MS, Options
from seqcast.sim.seal import FIRST_DESK, Sealings, SimulatedSigner, simulated_list, simulated_seal
from seqcast.sim.settings import config

ASK_NS = 300 * MS
ALLOW_NS = 1700 * MS


class World(Protocol):
    """The interface of the world to an operator."""

    options: Options
    clock: Clock
    allowed: set[int]
    sealings: Sealings

    @property
    def by_address(self) -> MutableMapping[bytes, Any]: ...
    @property
    def nodes(self) -> Sequence[Any]: ...
    def multicast(self, source: OperatorProcess, datagram: bytes) -> None: ...
    def unicast(self, source: OperatorProcess, to: bytes, datagram: bytes) -> None: ...
    def trace(self, node: None, text: str) -> None: ...


class OperatorProcess:
    """Runs the command ``unblock`` once, as the command line does: asks, chooses, and allows."""

    up = True

    def __init__(self, world: World, number: int) -> None:
        self.world, self.index, self.address = world, FIRST_DESK + number, b"oper" + number.to_bytes(2, "big")
        self.rng = random.Random(f"desk {world.options.seed} {number}")
        own, settings = self.rng.getrandbits(63) | 1, engine_settings(config(world.options))
        if world.options.keyed:
            settings["seal"] = simulated_seal(
                random.Random(f"seal of desk {world.options.seed} {number}"), owner=own, sealings=world.sealings
            )
        self.keys = list(settings["seal"].secrets) if world.options.keyed else []
        self.engine = Engine(member_id=own, group_tag=1, seed=1, **settings)
        signer = SimulatedSigner(world.options.seed, self.index) if world.options.identities else None
        self.id, self.identities = own, Identities(signer, simulated_list(world.options.seed) if signer else (), "sim")
        self.operator = Operator("sim", self.rng.getrandbits(32), ASK_NS, ALLOW_NS, world.clock.now)
        self.unicast = world.options.transport == "unicast"
        self.over = False
        world.by_address[self.address] = self
        self.wake()

    def __str__(self) -> str:
        return "operator"

    def wake(self) -> None:
        """Sends due commands, chooses when asked to, and notes the end."""
        world, operator = self.world, self.operator
        now = world.clock.now
        frames = operator.run_timers(now)
        if operator.asked:
            self.choose()
            frames += operator.run_timers(now)
        if frames and self.keys:  # as net/operator.py
            self.engine.refile(self.keys)
            self.keys.append(self.keys.pop(0))
        for frame in frames:
            for address in dict.fromkeys((*self._audience(), *operator.places)):
                self.engine.control_send(self.identities.with_signature(self.id, dump(frame)), address)
        for _, to, datagram in self.engine.transmit(now):
            if to:
                world.unicast(self, to, datagram)
            else:
                world.multicast(self, datagram)
        self.over = self.over or operator.over
        if not self.over:
            world.clock.at(operator.due(), self.wake)

    def source(self, _target: int) -> bytes:
        return self.address

    def _audience(self) -> list[bytes]:
        return [node.public for node in self.world.nodes if node.up] if self.unicast else [b""]

    def choose(self) -> None:
        operator, world = self.operator, self.world
        sides = {answer.side for answer in operator.answers.values()}
        founded_apart = len(sides) > 1 and len({side.view for side in sides}) == len(sides)
        try:  # of groups that were founded apart one is as good as the other
            operator.choose(self.rng.choice(sorted(operator.answers)) if founded_apart else "")
        except SeqcastError as error:
            world.trace(None, f"an operator does nothing: {error}")
            self.over = True
            return
        assert operator.side is not None
        world.trace(None, f"an operator lets {operator.reached} continue without {operator.missing}")
        world.allowed.add(operator.side.view)

    def receive(self, datagram: bytes, address: bytes) -> None:
        self.engine.receive(datagram, address, self.world.clock.now)
        for report in self.engine.reports():
            if isinstance(report, FrameReceived):
                came = taken_apart(report.payload)
                if not self.identities.doubt(None, report.sender, came, {}):
                    self.operator.heard(came.payload)
        self.over = self.over or self.operator.over

    def receive_unicast(self, datagram: bytes, address: bytes) -> None:
        self.receive(datagram, address)

    def refused(self, datagram: bytes, address: bytes) -> None:
        """A datagram to a closed port is lost."""
