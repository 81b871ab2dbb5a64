"""A toy application whose state tells what it was delivered, and its transfer from one simulated member to another."""

from __future__ import annotations

import hashlib
import json

from seqcast._native.engine import AGAIN, SENT, Engine
from seqcast.core.rules.chunks import CHUNK_BYTES_MAX, Incoming, Outgoing

SILENCE_NS_MAX = 2_000_000_000
"""A joiner passes over a provider of which nothing came for so long."""


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


class Giving:
    """State on its way to one joiner."""

    def __init__(self, joiner: int, boundary: int, data: bytes | None) -> None:
        self.joiner, self.boundary = joiner, boundary
        outgoing = Outgoing(boundary)
        if data is None:
            self.rest = outgoing.refusal("the handler failed")
            return
        chunks = [data[at : at + CHUNK_BYTES_MAX // 64] for at in range(0, len(data), CHUNK_BYTES_MAX // 64)]
        self.rest = b"".join(outgoing.data(chunk) + chunk for chunk in chunks) + outgoing.end()

    def step(self, engine: Engine, now: int) -> bool:
        """Sends what there is credit for; False when it is done, or the joiner is gone."""
        if not self.rest:
            return False
        result, taken = engine.state_send(self.rest, self.joiner, now)
        self.rest = self.rest[taken:]
        if result == SENT:
            engine.state_end(self.joiner)
        return bool(self.rest) and result in (SENT, AGAIN)


class Taking:
    """State on its way from the provider."""

    def __init__(self, provider: int, boundary: int, now: int) -> None:
        self.provider, self.boundary = provider, boundary
        self.incoming = Incoming(boundary)
        self.data = bytearray()
        self.heard = now
        self.told = False

    def step(self, engine: Engine, now: int) -> None:
        """Takes what has come."""
        while not self.incoming.over and self.incoming.refusal is None:
            got = engine.state_read(self.provider, len(self.incoming.room), now)
            if not got:
                return
            self.heard = now
            self.incoming.room[: len(got)] = got
            self.data += self.incoming.filled(len(got)) or b""
