"""Urgent orders, and orders near their deadline, are delivered first: an order policy.

A message begins with its priority, one byte (0 is the most urgent), and its deadline, 8 bytes, ns since 1970. Messages
that wait at the sequencer together are ordered by priority, but late ones come before all others.

    python examples/urgent_first.py
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Sequence

import seqcast

HEAD = struct.Struct(">Bq")
MARGIN_NS = 50_000_000
"""A message whose deadline is nearer than this is late."""


class UrgentFirst(seqcast.OrderPolicy):
    """Late messages by deadline, then the rest by priority; equal ones in the order of arrival."""

    def order(self, batch: Sequence[seqcast.WaitingPacket]) -> Sequence[int]:
        late = time.time_ns() + MARGIN_NS

        def key(position: int) -> tuple[int, int]:
            head = batch[position].head
            if len(head) < HEAD.size:  # no message begins here: the middle of a large one
                return 256, 0
            priority, deadline = HEAD.unpack_from(head)
            return (-1, deadline) if deadline < late else (priority, 0)

        return sorted(range(len(batch)), key=key)


def message(priority: int, text: str, within_s: float = 60.0) -> bytes:
    return HEAD.pack(priority, time.time_ns() + int(within_s * 1e9)) + text.encode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Three members send; the first one orders by urgency.")
    parser.add_argument("--cluster", default="urgent-first")
    parser.add_argument("--interface", default="")
    options = parser.parse_args()
    names = ("desk", "shop", "alarm")
    groups = [
        seqcast.join(options.cluster, name=name, order=UrgentFirst(), interface=options.interface or None)
        for name in names
    ]
    desk, shop, alarm = groups
    for number in range(3):
        shop.send(message(9, f"newsletter {number}"))
        alarm.send(message(0, f"alarm {number}"))
        shop.send(message(9, f"order that leaves in 10 ms {number}", within_s=0.01))
    desk.send(message(5, "the end"))
    received = [[item.payload[HEAD.size :].decode() for item in take(group, 10)] for group in groups]
    assert received[0] == received[1] == received[2], "one order, whatever it is"
    print("\n".join(received[0]))
    print(f"the policy ordered {desk.counters()['policy_batches']} batches")
    for group in groups:
        group.leave()


def take(group: seqcast.Group, n: int) -> list[seqcast.Message]:
    found: list[seqcast.Message] = []
    while len(found) < n:
        item = group.recv(timeout=30)
        assert item is not None, "no message within 30 s"
        found.append(item)
    return found


if __name__ == "__main__":
    main()
