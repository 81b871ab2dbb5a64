"""A toy application whose state tells what it was delivered, and its transfer from one simulated member to another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Protocol

from seqcast._native.engine import AGAIN, SENT, Engine
from seqcast.config.derive import nanoseconds
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.backlog import Item
from seqcast.core.machines.transfer import (
    BeginState,
    Deliver,
    Giver,
    GiveUp,
    LoadState,
    StateChunk,
    Transfer,
    TransferEffect,
)
from seqcast.core.vocabulary import Input, LeaveGroup, StateArrived, StateHeld, StateLost, StateRefused, TakeState
from seqcast.sim.record import Record
from seqcast.sim.settings import config
from seqcast.types import View

CHUNK_BYTES = 4096


class Chain:
    """Per sender, how many of its messages were delivered and a hash over them: where two members deliver the same
    set, each sender's in order, their states are equal."""

    def __init__(self, padding: int) -> None:
        self.padding = padding  # so that a transfer takes its time
        self.chains: dict[int, tuple[int, str]] = {}

    def take(self, sender: int, counter: int) -> None:
        count, chain = self.chains.get(sender, (0, ""))
        self.chains[sender] = count + 1, hashlib.blake2b(f"{chain}/{counter}".encode(), digest_size=8).hexdigest()

    def reconcile(self, tag: int) -> None:
        """What an application does at a MergeView, in the simplest way on which all agree: it begins anew."""
        self.chains = {0: (0, f"{tag:x}")}

    def dump(self) -> bytes:
        text = json.dumps(sorted(self.chains.items())).encode()
        return text + b" " * (self.padding - len(text))

    def load(self, data: bytes) -> None:
        self.chains = {sender: (count, chain) for sender, (count, chain) in json.loads(data)}

    def digest(self) -> str:
        return hashlib.blake2b(repr(sorted(self.chains.items())).encode(), digest_size=8).hexdigest()


class Machine(Protocol):
    """What a transfer needs of the process in which it is."""

    engine: Engine
    endpoint: Endpoint

    @property
    def now(self) -> int: ...
    def step(self, *inputs: Input) -> None: ...
    def name_of(self, member_id: int) -> str: ...


class Handler(Protocol):
    """The application whose state it is."""

    def load_state(self, data: bytes) -> None: ...
    def enter(self, items: Collection[Item]) -> None: ...
    def give_up(self, error: str) -> None: ...


class StateKeeper:
    """Gives an application's state, and takes that of others."""

    def __init__(self, machine: Machine, record: Record, handler: Handler) -> None:
        self.machine, self.record, self.handler = machine, record, handler
        settings = config(record.options)
        silence_ns = nanoseconds(settings.state_timeout_s)
        self.transfer = Transfer(silence_ns, settings.state_backlog_bytes, machine.name_of, machine.endpoint.edges)
        self.data = bytearray()
        """What came of the state."""
        self.entered: list[View] = []  # delivered, before the application had the state
        self._giving: list[Giver] = []

    def told(self, effect: TakeState | StateHeld | StateLost) -> None:
        """By the endpoint."""
        self.feed(self.transfer.told(effect, self.machine.now))

    def over(self) -> None:
        """This member has left, or was excluded."""
        if self.record.options.state:
            self.feed(self.transfer.over(self.machine.now))

    def feed(self, effects: list[TransferEffect]) -> None:
        machine, handler = self.machine, self.handler
        self.record.inside = not self.record.options.state or self.transfer.inside
        for effect in effects:
            match effect:
                case BeginState():
                    self.data.clear()
                case StateChunk(data):
                    self.data += data
                case StateArrived() | StateRefused() | LeaveGroup():
                    machine.step(effect)
                case LoadState():
                    handler.load_state(bytes(self.data))
                case Deliver(items):
                    self.record.voided = [view for view in self.entered if view not in items]
                    handler.enter(items)
                case GiveUp(error):
                    handler.give_up(error)

    # ---- what comes

    def due(self) -> int:
        return self.transfer.due()

    def step(self) -> None:
        """Sends and reads what there is credit for and what has come, and looks at the time."""
        machine = self.machine
        self._giving = [giver for giver in self._giving if self._give(giver)]
        while self.transfer.receiving:
            incoming = self.transfer.incoming
            got = machine.engine.state_read(self.transfer.provider, len(incoming.room), machine.now)
            if not got:
                break
            incoming.room[: len(got)] = got
            self.feed(self.transfer.filled(incoming, len(got), machine.now))
        self.feed(self.transfer.run_timers(machine.now))

    def delivered(self, item: Item) -> None:
        """While the application lacks the state."""
        if isinstance(item, View):
            self.entered.append(item)
        self.feed(self.transfer.delivered(item, self.machine.now))

    # ---- what goes

    def give(self, boundary: int, joiners: tuple[int, ...], data: bytes | None) -> None:
        """``data``: None: the application's handler failed."""
        refusal = "the handler failed" if data is None else ""
        pieces = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] if data else []
        self._giving += [Giver(boundary, joiner, pieces, refusal) for joiner in joiners]

    def _give(self, giver: Giver) -> bool:
        """False: it is done, or the joiner does not await it any more."""
        engine, endpoint = self.machine.engine, self.machine.endpoint
        while rest := giver.rest:
            result, taken = engine.state_send(bytes(rest), giver.joiner, self.machine.now)
            giver.sent(taken)
            if result not in (SENT, AGAIN) or not giver.wanted(endpoint.joiners_of(giver.boundary)):
                return False
            if result == AGAIN:
                return True
        engine.state_end(giver.joiner)
        return False
