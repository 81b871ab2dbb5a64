"""The network interface of a simulated machine, which goes away, comes back as another one, or gets another address."""

from __future__ import annotations

import random
from typing import Protocol

from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.interface import LOOK_NS
from seqcast.core.vocabulary import Input, InterfaceSeen, SocketsMended
from seqcast.sim.network import Clock, Network

DEAD = ("gone", "down", "carrier", "address", "replaced")
"""Faults during which nothing leaves and nothing comes."""
FORGETS = ("gone", "remade")
"""Faults after which another interface has the name: the sockets must join the group again."""
KINDS = (*DEAD, "remade", "refusing")
"""All faults. ``remade`` is over between two looks; while sends are refused, datagrams still come."""
NOT_MENDED = 0.2
"""Fraction of the attempts to mend the sockets that fail while there are faults."""


class AttachedProcess(Protocol):
    """The interface of a process to its network interface."""

    index: int
    name: str
    clock: Clock

    @property
    def up(self) -> bool: ...
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def can_run(self) -> bool: ...
    @property
    def busy_until(self) -> int: ...
    @property
    def network(self) -> Network: ...
    def trace(self, text: str) -> None: ...
    def step(self, *inputs: Input) -> None: ...
    def service(self) -> None: ...


class Interface:
    """The interface of one machine.

    Args:
        machine: its process.
        rng: of the times of its looks, and whether its sockets can be mended.
    """

    def __init__(self, machine: AttachedProcess, rng: random.Random) -> None:
        self.machine, self.rng = machine, rng
        self.fault = ""  # of KINDS; "" while the interface is well
        self.for_good = False
        self.remade = False
        self.send_errors = self.errors_seen = 0

    def start(self) -> None:
        """From now on the process looks at its interface periodically."""
        self.machine.clock.at(self.machine.clock.now + self.rng.randrange(LOOK_NS), self.look)

    def look(self) -> None:
        machine, clock = self.machine, self.machine.clock
        if not machine.up:
            return
        if not machine.can_run:
            clock.at(machine.busy_until, self.look)
            return
        clock.at(clock.now + LOOK_NS, self.look)
        wrong = self.fault or self.remade or self.send_errors != self.errors_seen
        self.errors_seen = self.send_errors
        if wrong or not machine.endpoint.machines.interface.sound:  # as Driver.wait_control tells the runner
            machine.step(self.seen())
            machine.service()

    def seen(self) -> InterfaceSeen:
        return InterfaceSeen(
            name="eth0",
            address=self.machine.name,
            gone=self.fault == "gone",
            down=self.fault == "down",
            no_carrier=self.fault == "carrier",
            address_gone=self.fault in ("address", "replaced"),
            address_other=self.fault == "replaced",
            remade=self.remade,
            send_errors=self.send_errors,
            refusal="(not permitted): a firewall drops them",
        )

    def mend(self) -> None:
        """The process joins the group again, as soon as the process runs."""
        machine, network = self.machine, self.machine.network
        if not machine.up:
            return
        if not machine.can_run:
            machine.clock.at(machine.busy_until, self.mend)
            return
        error = "no route" if self.fault or (self.rng.random() < NOT_MENDED and not network.healed) else ""
        if not error:
            network.forgotten.discard(machine.index)
            self.remade = False
        machine.step(SocketsMended(error))
        machine.service()

    # ---- faults

    def fail(self, fault: str, lasts_ns: int) -> None:
        """
        Args:
            fault: of KINDS.
            lasts_ns: until the interface comes back; 0: for ever.
        """
        machine, network = self.machine, self.machine.network
        machine.trace(f"has trouble with its network interface: {fault}")
        if fault in FORGETS:
            network.forgotten.add(machine.index)
        if fault in DEAD:
            network.off.add(machine.index)
        if fault == "remade":
            self.remade = True
            return
        self.fault, self.for_good = fault, not lasts_ns
        if lasts_ns:
            machine.clock.at(machine.clock.now + lasts_ns, self.recover)

    def recover(self) -> None:
        if not self.fault:
            return
        self.machine.trace(f"has its network interface back, after {self.fault}")
        self.remade |= self.fault == "gone"
        self.fault = ""
        self.machine.network.off.discard(self.machine.index)

    def end(self) -> None:
        """There are no faults from now on, except those that last for ever."""
        if not self.for_good:
            self.recover()

    @property
    def refuses(self) -> bool:
        """The kernel refuses to send. (Without an address, or a carrier, every send seems to succeed.)"""
        return self.fault in ("gone", "down", "refusing")
