"""A non-member that hears the datagrams of a group with a key, and may have the key file: sends them otherwise
sealed, and those for one member to another one.

The engine must not take in any of these; else ``Sockets`` reports a violation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from seqcast._native.engine import crc32c
from seqcast.sim.seal import HEADER, SECRETS, Sealings, sealed_outside
from seqcast.sim.wire import FOR_OUTSIDE, MESSAGES, RECORD, header, kind

LATER_NS = 50_000_000
FILE, FOR_ONE = 0x4000, 0x0100
"""Of a key's number in a datagram: of a key file, with its mark in bits 9 to 13; for only one member."""
NUMBER = 1 << 40
"""More than a member has sealed."""


class Stranger:
    """One such process.

    Args:
        nodes: the receivers, once they are in a view: a joiner believes more.
        sealings: of the run.
        share: of the heard datagrams, how many lead to one.
        rng: of its choices.
    """

    def __init__(self, nodes: Sequence[Any], sealings: Sealings, share: float, rng: random.Random) -> None:
        self.nodes, self.sealings, self.share, self.rng = nodes, sealings, share, rng
        self.forged: set[tuple[int, int]] = set()  # (to whom, hash) of datagrams that may not be taken in
        self.sent = 0

    def heard(self, target: int, datagram: bytes, address: bytes) -> tuple[int, Any, bytes, bytes] | None:
        """Its own datagram after one to ``target``: how much later, to whom, the datagram, as if from where."""
        rng = self.rng
        if not datagram or rng.random() >= self.share:
            return None
        for_one = bool(header(datagram).key_id & FOR_ONE)
        how = rng.choice((self._plain, self._by_file, None))
        node = self.nodes[target]
        if how is not None:
            datagram = how(datagram)
        elif for_one:
            node = rng.choice([other for other in self.nodes if other is not node] or [node])
        if node.view is None or (node is self.nodes[target] and how is None) or node.public == address:
            return None
        if not datagram:
            return None
        self.forged.add((node.index, hash(datagram)))
        self.sent += 1
        return 1 + int(LATER_NS * rng.random() ** 4), node, datagram, address

    def _plain(self, datagram: bytes) -> bytes:
        """As in a group without a key."""
        plain = self.sealings.opened(datagram)
        head = plain[:4] + bytes(4) + plain[8:12] + bytes(2) + plain[14:]
        return head[:4] + crc32c(head).to_bytes(4, "little") + head[8:]

    def _by_file(self, datagram: bytes) -> bytes:
        """As whoever has the key file seals datagrams between views; empty: this one may be sent there."""
        if kind(datagram) in FOR_OUTSIDE:
            return b""
        plain, mark = self.sealings.opened(datagram), self.rng.choice(sorted(SECRETS))
        is_packet = kind(datagram) in (*MESSAGES, RECORD)
        number = (NUMBER + self.sent | is_packet << 63).to_bytes(8, "little")
        head = plain[:4] + b"rand" + plain[8:12] + (FILE | mark << 9).to_bytes(2, "little") + plain[14:HEADER]
        return head + sealed_outside(plain[HEADER:], head, SECRETS[mark], number + b"rand" + bytes(4)) + number
