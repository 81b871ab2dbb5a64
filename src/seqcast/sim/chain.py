"""A toy state that shows its application's deliveries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from seqcast.types import ViewId


class Chain:
    """Per sender, how many of its messages were delivered and a hash over them: if two members deliver the same set,
    each sender's in order, their states are equal.

    ``branch`` distinguishes the states of a group's parts until they are one again; ``past`` has its branches since its
    last merge, and ``merged`` the branches merged then.
    """

    def __init__(self) -> None:
        self.padding = 0  # bytes, so that a transfer takes its time
        self.chains: dict[int, tuple[int, str]] = {}
        self.branch = ""
        self.past = [""]
        self.merged: list[str] = []

    def take(self, sender: int, counter: int) -> None:
        count, chain = self.chains.get(sender, (0, ""))
        self.chains[sender] = count + 1, hashlib.blake2b(f"{chain}/{counter}".encode(), digest_size=8).hexdigest()

    def part(self, tag: int, subgroup: ViewId) -> None:
        """The MergeView with this tag begins; until all have one state, each member has that of its subgroup."""
        self.branch = _hash(f"{self.branch} {subgroup.tag:x} in {tag:x}")
        self.past.append(self.branch)

    def merge(self, others: Collection[bytes]) -> None:
        """Merges into one state that depends on each of them exactly."""
        mine = self.dump()
        merged = _hash(" ".join(sorted(data.decode().strip() for data in [mine, *others])))
        for data in others:
            other = Chain()
            other.load(data)
            self.merged += other.merged + other.past
        self.merged += self.past
        self.chains, self.branch = {0: (0, merged)}, f"merged {merged}"
        self.past = [self.branch]

    def dump(self) -> bytes:
        text = json.dumps([self.branch, self.past, self.merged, sorted(self.chains.items())]).encode()
        return text + b" " * (self.padding - len(text))

    def load(self, data: bytes) -> None:
        self.branch, self.past, self.merged, chains = json.loads(data)
        self.chains = {sender: (count, chain) for sender, (count, chain) in chains}

    def digest(self) -> str:
        return _hash(repr(sorted(self.chains.items())))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
