"""Safe delivery between real members, in every order and with an order policy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from members import LIMIT_S, group_of

import seqcast
from seqcast.core.orders import resolve
from seqcast.types import ORDERS


class NewestFirst(seqcast.OrderPolicy):
    def order(self, batch: Sequence[seqcast.WaitingPacket]) -> Sequence[int]:
        return sorted(range(len(batch)), key=lambda place: -batch[place].sent_ns)


@pytest.mark.parametrize("order", [*ORDERS, NewestFirst()], ids=[*ORDERS, "newest first"])
def test_members_deliver_safely_each_its_own_messages_too(order: str | seqcast.OrderPolicy) -> None:
    """Without transitional messages; with fifo and causal each sender's are in its order, else all are in one."""
    sent = {name: [f"{name} {number}".encode() for number in range(20)] for name in "abc"}
    with group_of(3, safe=True, order=order) as groups:
        for number in range(20):
            for group in groups:
                group.send(sent[group.member.name][number])
        got: list[list[bytes]] = []
        for group in groups:
            got.append([])
            while len(got[-1]) < 60:
                message = group.recv(timeout=LIMIT_S)
                assert isinstance(message, seqcast.Message) and not message.transitional
                got[-1].append(message.payload)
        mechanism = resolve(groups[0].view.mechanism)
    for each in got:
        assert {name: [p for p in each if p.startswith(name.encode())] for name in "abc"} == sent
    assert not mechanism.total or got[0] == got[1] == got[2]
    assert mechanism.total == (order not in ("fifo", "causal"))
