"""The state of a simulated application, on its way from one member to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from seqcast._native.engine import AGAIN, SENT, Engine
from seqcast.config.derive import to_ns
from seqcast.core.endpoint import Endpoint
from seqcast.core.state.backlog import Item
from seqcast.core.state.merging import (
    BreakPromise,
    Gather,
    GiveState,
    GiveUpMerge,
    GoOn,
    Part,
    PromiseState,
    Reconcile,
    StateMerge,
    StateMergeEffect,
)
from seqcast.core.state.transfer import (
    BeginState,
    Deliver,
    Giver,
    GiveUp,
    LoadState,
    ProviderSilent,
    StateChunk,
    Transfer,
    TransferEffect,
)
from seqcast.core.vocabulary import (
    Input,
    LeaveGroup,
    StateArrived,
    StateHeld,
    StateLost,
    StatePlan,
    StateRefused,
    TakeState,
)
from seqcast.sim.record import Record
from seqcast.sim.settings import config
from seqcast.types import View

CHUNK_BYTES = 4096


class TransferringProcess(Protocol):
    """The interface of a process to a transfer."""

    engine: Engine
    endpoint: Endpoint

    @property
    def now(self) -> int: ...
    def poke(self) -> None: ...
    def step(self, *inputs: Input) -> None: ...
    def name_of(self, member_id: int) -> str: ...


class Handler(Protocol):
    """The application that has the state."""

    def load_state(self, data: bytes) -> None: ...
    def reconcile(self, parts: Mapping[int, bytes], merges: bool) -> None: ...
    def go_on(self, reconciled: bool) -> None: ...
    def dump_state(self, joiners: tuple[int, ...]) -> bytes | None:
        """Its state, for these joiners; None: the application fails to give one."""

    def enter(self, items: Collection[Item]) -> None: ...
    def give_up(self, error: str, leaves: bool) -> None:
        """The member cannot get the state. ``leaves``: the application has to leave; else the member does so itself."""


class StateKeeper:
    """Gives an application's state, and takes that of others."""

    def __init__(self, machine: TransferringProcess, record: Record, handler: Handler) -> None:
        self.machine, self.record, self.handler = machine, record, handler
        settings = config(record.options)
        self._timeout_ns = timeout_ns = to_ns(settings.state_timeout_s)
        self.transfer = Transfer(timeout_ns, settings.state_backlog_bytes, machine.name_of, machine.endpoint.edges)
        self.merge = StateMerge(timeout_ns, machine.name_of, machine.endpoint)
        self.parts: dict[int, bytearray] = {}
        """The bytes received of other members' states, to be merged or taken over."""
        self.data = bytearray()
        """The bytes received of the state."""
        self.entered: list[View] = []  # delivered, before the application had the state
        self._giving: list[Giver] = []

    def told(self, effect: TakeState | StateHeld | StateLost | StatePlan) -> None:
        """Takes an effect of the endpoint."""
        if isinstance(effect, StatePlan):
            self.look()
        elif isinstance(effect, StateLost) and effect.inside:
            self.handler.give_up(effect.error, leaves=False)
        else:
            self.feed(self.transfer.told(effect, self.machine.now))

    def look(self) -> None:
        self.feed(self.merge.look(self.machine.now))

    def over(self) -> None:
        """This member has left, or was excluded."""
        if self.record.options.state:
            self.feed(self.transfer.over(self.machine.now))
            self.feed(self.merge.over(self.machine.now))

    def feed(self, effects: Sequence[TransferEffect | StateMergeEffect]) -> None:
        machine, handler = self.machine, self.handler
        self.record.inside = not self.record.options.state or self.transfer.inside
        self.record.paths["joiners that were told of a silent provider"] += ProviderSilent in map(type, effects)
        for effect in effects:
            match effect:
                case BeginState():
                    self.data.clear()
                case StateChunk(data):
                    self.data += data
                case StateArrived() | StateRefused() | LeaveGroup():
                    self.record.passed_over += isinstance(effect, StateRefused)
                    machine.step(effect)
                case LoadState():
                    handler.load_state(bytes(self.data))
                case Deliver(items):
                    self.record.voided = [view for view in self.entered if view not in items]
                    handler.enter(items)
                case Gather():
                    self.parts.clear()
                case Part(provider, data):
                    self.parts.setdefault(provider, bytearray()).extend(data)
                case Reconcile(merges):
                    handler.reconcile({provider: bytes(data) for provider, data in self.parts.items()}, merges)
                case PromiseState(boundary, joiners):
                    self._giving += [self._giver(boundary, joiner) for joiner in joiners]
                case BreakPromise():
                    self._giving = [giver for giver in self._giving if giver.boundary != self.merge.plan.boundary]
                case GiveState(boundary, joiners):
                    self._prepare(boundary, joiners, handler.dump_state(joiners))
                case GoOn(reconciled):
                    handler.go_on(reconciled)
                case GiveUp(error) | GiveUpMerge(error):
                    handler.give_up(error, leaves=isinstance(effect, GiveUp))

    # ---- input

    def due(self) -> int:
        return min(self.transfer.due(), self.merge.due(), *(giver.due() for giver in self._giving))

    def step(self) -> None:
        """Sends as credit allows, reads waiting datagrams, and runs timers."""
        machine = self.machine
        self._send()
        self._read(self.transfer)
        self._read(self.merge)
        self.feed(self.transfer.run_timers(machine.now))
        self.look()

    def _read(self, machine: Transfer | StateMerge) -> None:
        while machine.receiving:
            incoming = machine.incoming
            got = self.machine.engine.state_read(machine.provider, len(incoming.room), self.machine.now)
            if not got:
                break
            incoming.room[: len(got)] = got
            self.feed(machine.filled(incoming, len(got), self.machine.now))

    def delivered(self, item: Item) -> None:
        """Takes a delivery while the application lacks the state."""
        if isinstance(item, View):
            self.entered.append(item)
        self.feed(self.transfer.delivered(item, self.machine.now))

    # ---- output

    def _prepare(self, boundary: int, joiners: tuple[int, ...], data: bytes | None) -> None:
        promised = {(giver.boundary, giver.joiner): giver for giver in self._giving}
        for joiner in joiners:
            giver = promised.get((boundary, joiner))
            if giver is None:
                giver = self._giver(boundary, joiner)
                self._giving.append(giver)
            if data is None:
                giver.refuse("the handler failed")
            else:
                giver.give([data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)])

    def _giver(self, boundary: int, joiner: int) -> Giver:
        return Giver(boundary, joiner, self._timeout_ns, self.machine.now)

    def _send(self) -> None:
        """One transfer after the other to each joiner."""
        busy = set[int]()
        for giver in list(self._giving):
            giver.run_timers(self.machine.now, self.merge.due())
            if giver.joiner in busy or self._give(giver):
                busy.add(giver.joiner)
            else:
                self._giving.remove(giver)

    def _give(self, giver: Giver) -> bool:
        """False: all was given, or the joiner no longer awaits the state."""
        engine = self.machine.engine

        def send(rest: memoryview) -> int:
            result, taken = engine.state_send(bytes(rest), giver.joiner, self.machine.now)
            if result == AGAIN:
                self.machine.poke()
            return taken if result in (SENT, AGAIN) else -1

        def end() -> None:
            engine.state_end(giver.joiner)
            self.machine.poke()

        return giver.go_on(send, end, self.machine.endpoint.joiners_of)
