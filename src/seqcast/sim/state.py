"""A toy application whose state tells what it was delivered, and its transfer from one simulated member to another."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from seqcast._native.engine import AGAIN, SENT
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
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StateHeld, StateLost, StateRefused, TakeState
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.sim.node import Node

SILENCE_NS_MAX = 2_000_000_000
"""``state_timeout_s`` of simulated members."""
BACKLOG_BYTES = 1 << 20
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


class StateKeeper:
    """The part of a simulated process that gives its application's state and takes that of others."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.transfer = Transfer(SILENCE_NS_MAX, BACKLOG_BYTES, node.world.name, node.endpoint.edges)
        self.data = bytearray()
        """What came of the state."""
        self.entered: list[View] = []  # delivered, before the application had the state
        self.voided: list[View] = []  # of those: from before the state
        self._giving: list[Giver] = []

    @property
    def inside(self) -> bool:
        """The application has the state, and takes what is delivered."""
        return not self.node.options.state or self.transfer.inside

    def told(self, effect: TakeState | StateHeld | StateLost) -> None:
        """By the endpoint."""
        self.feed(self.transfer.told(effect, self.node.now))

    def over(self) -> None:
        """This member has left, or was excluded."""
        if self.node.options.state:
            self.feed(self.transfer.over(self.node.now))

    def feed(self, effects: list[TransferEffect]) -> None:
        node = self.node
        for effect in effects:
            match effect:
                case BeginState():
                    self.data.clear()
                case StateChunk(data):
                    self.data += data
                case StateArrived() | StateRefused() | LeaveGroup():
                    node.step(effect)
                case LoadState():
                    node.load_state(bytes(self.data))
                case Deliver(items):
                    self.voided = [view for view in self.entered if view not in items]
                    node.enter(items)
                case GiveUp(error):
                    node.give_up(error)

    # ---- what comes

    def due(self) -> int:
        return self.transfer.due()

    def step(self) -> None:
        """Sends and reads what there is credit for and what has come, and looks at the time."""
        node = self.node
        self._giving = [giver for giver in self._giving if self._give(giver)]
        while self.transfer.receiving:
            incoming = self.transfer.incoming
            got = node.engine.state_read(self.transfer.provider, len(incoming.room), node.now)
            if not got:
                break
            incoming.room[: len(got)] = got
            self.feed(self.transfer.filled(incoming, len(got), node.now))
        self.feed(self.transfer.run_timers(node.now))

    def delivered(self, item: Item) -> None:
        """While the application lacks the state."""
        if isinstance(item, View):
            self.entered.append(item)
        self.feed(self.transfer.delivered(item, self.node.now))

    # ---- what goes

    def give(self, boundary: int, joiners: tuple[int, ...], data: bytes | None) -> None:
        """``data``: None: the application's handler failed."""
        refusal = "the handler failed" if data is None else ""
        pieces = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] if data else []
        self._giving += [Giver(boundary, joiner, pieces, refusal) for joiner in joiners]

    def _give(self, giver: Giver) -> bool:
        """False: it is done, or the joiner does not await it any more."""
        engine, endpoint = self.node.engine, self.node.endpoint
        while rest := giver.rest:
            result, taken = engine.state_send(bytes(rest), giver.joiner, self.node.now)
            giver.sent(taken)
            if result not in (SENT, AGAIN) or not giver.wanted(endpoint.joiners_of(giver.boundary)):
                return False
            if result == AGAIN:
                return True
        engine.state_end(giver.joiner)
        return False
