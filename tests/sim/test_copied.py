"""A process whose memory is copied in its life, as when a virtual machine is resumed twice from one snapshot."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from seqcast.core.secrets import about
from seqcast.sim.families import calm
from seqcast.sim.options import MS, Options
from seqcast.sim.process import Process
from seqcast.sim.seal import Sealings, SimulatedExchange, simulated_seal
from seqcast.sim.world import World

OPTIONS = Options(seed=1, keyed=True, **calm(members=3, loss=0.05, duplicate=0.02))
COPIED_NS = 250 * MS


class Notes(Sealings):
    """The sealings of the copy: from its first moment, they count as those of the original."""

    def __init__(self, of_all: Sealings) -> None:
        super().__init__()
        self.of_all = of_all
        self.apart = False
        self.since: set[tuple[bytes, bytes]] = set()
        self.wraps: list[tuple[bytes, bytes]] = []

    def derived(self, *args: Any) -> None:
        super().derived(*args)
        if self.apart:
            self.of_all.derived(*args)

    def sealed(self, owner: int, key: bytes, nonce: bytes) -> None:
        super().sealed(owner, key, nonce)
        if self.apart:
            self.of_all.sealed(owner, key, nonce)
            self.since.add((key, nonce))

    def wrapped(self, public: bytes, key: bytes, nonce: bytes) -> None:
        super().wrapped(public, key, nonce)
        if self.apart:
            self.of_all.wrapped(public, key, nonce)
            self.wraps.append((key, nonce))


class Beside:
    """The world of the copy, in which nobody sees the copy before its time."""

    def __init__(self, world: Copied) -> None:
        self.real, self.sealings = world, Notes(world.sealings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def multicast(self, source: Process, datagram: bytes) -> None:
        for node in self.real.nodes if self.sealings.apart else ():
            if node is not self.real.original:
                self.real.network.carry(source.index, node.index, node.receive, datagram, source.address)

    def unicast(self, source: Process, to: bytes, datagram: bytes) -> None:
        if self.sealings.apart:
            self.real.unicast(source, to, datagram)

    def told(self, *_: object) -> None: ...
    def changed(self, *_: object) -> None: ...
    def taken(self, *_: object) -> None: ...


class Copy(Process):
    def _exchange(self) -> SimulatedExchange:
        self.chance_of_wraps = random.Random(f"exchange {self.options.seed} {self.index}")
        return SimulatedExchange(self.chance_of_wraps, self.world.sealings)

    def _seal(self) -> Any:
        self.chance = random.Random(f"seal {self.options.seed} {self.index}")
        return simulated_seal(self.chance, owner=self.id, sealings=self.world.sealings)


class Copied(World):
    """Two processes that begin alike, and get the same datagrams at the same times, stay alike. So the copy exists from
    the start, with the memory of the original, and sends nothing before ``COPIED_NS``. From then on, the random numbers
    of the copy are others, and both send, with one address."""

    which = "m1"

    def start_node(self, name: str) -> None:
        super().start_node(name)
        if name != self.which:
            return
        self.original = node = self.nodes[-1]
        self.beside = Beside(self)
        self.copy = Copy(self.beside, node.index, name, self.options, self.make_engine, self.make_endpoint)
        receive = node.receive

        def both(*datagram: Any) -> None:
            receive(*datagram)
            self.copy.receive(*datagram)

        node.receive = both
        self.copy.application.sender.on = node.application.sender.on
        self.copy.start()
        self.copy.service()
        self.clock.at(COPIED_NS, self.part)

    def part(self) -> None:
        notes = self.beside.sealings
        assert notes._nonces == {each for each in self.sealings._nonces if self.of_original(each[0])}, "no copy"
        self.before = len(notes._nonces)
        notes.apart = True
        notes.of_all.origin |= notes.origin
        self.copy.chance.seed(f"copy {self.options.seed}")
        self.copy.chance_of_wraps.seed(f"wraps of the copy {self.options.seed}")

    def of_original(self, key: bytes) -> bool:
        return self.sealings.origin[key].sealer == self.original.id


def numbers(pairs: set[tuple[bytes, bytes]]) -> set[tuple[bytes, bytes]]:
    return {(key, nonce[:8]) for key, nonce in pairs}


@pytest.mark.parametrize(
    ("seed", "then_ms"), [(1, 40), *(pytest.param(seed, 3000, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_two_processes_with_one_memory_seal_nothing_under_one_nonce(seed, then_ms):
    world = Copied(replace(OPTIONS, seed=seed, duration_ns=COPIED_NS + then_ms * MS))
    world.plan()
    world.clock.run(COPIED_NS + 20 * MS)
    world.nodes[2].crash()
    world.clock.run(world.options.duration_ns)
    assert world.sealings.violations == []
    copy = world.beside.sealings.since
    original = {each for each in world.sealings._nonces if world.of_original(each[0])} - copy
    assert world.before > 20 and len(copy) > 20
    assert len(numbers(original) & numbers(copy)) > 10, "their counts go on from one number"


class CopiedMaker(Copied):
    """The copied process is the one that makes the views."""

    which = "m0"


def test_two_processes_with_one_memory_make_one_view_with_two_secrets_and_wrap_nothing_under_one_nonce():
    world = CopiedMaker(replace(OPTIONS, duration_ns=COPIED_NS + 400 * MS))
    world.plan()
    world.clock.run(COPIED_NS + MS)
    world.nodes[2].crash()
    world.clock.run(world.options.duration_ns)
    original, copy = (node.endpoint.context for node in (world.original, world.copy))
    assert original.entered.view_id == copy.entered.view_id and about(original.entered) == about(copy.entered)
    assert original.secrets._current != copy.secrets._current
    of_copy = {key for key, _ in world.beside.sealings.wraps}
    of_both = [key for key, _ in world.sealings._wraps if key in of_copy]
    assert len(of_copy) == 2 and len(of_both) == 4, "each key wraps two secrets"
    assert world.sealings.violations == []
