"""A view ends while applications have not taken waiting messages: once they have, everybody can send again."""

from __future__ import annotations

import pytest
from engines import Net, change_view, of_sender

from seqcast._native.engine import SENT
from seqcast.core import orders

ORDERS = ["records", "sequencer", "grant", "total-1999", "causal", "fifo"]
SIZE, WINDOW = 1000, 20_000


class Full(Net):
    """Members that send to the group, and to one another, all that they may; and know their own messages."""

    def __init__(self, order: str, **settings: object) -> None:
        mechanism = orders.by_name(order)
        self.sequencer = 0 if mechanism.total else -1
        super().__init__(3, sequencer=self.sequencer, mechanism=mechanism.number, window=WINDOW, **settings)
        self.run(5)
        self.sent: dict[tuple[int, int | None], list[bytes]] = {}

    def send_all(self, members: list[int]) -> dict[tuple[int, int | None], int]:
        """Until nobody may send more, as nobody takes anything: how many messages by sender and target (None: all)."""
        before = {way: len(sent) for way, sent in self.sent.items()}
        for _ in range(30):
            for i in members:
                for to in (None, *(j for j in members if j != i)):
                    sent = self.sent.setdefault((i, to), [])
                    while self.engines[i].send(message(i, to, len(sent)), to=0 if to is None else self.ids[to]) == SENT:
                        sent.append(message(i, to, len(sent)))
            self.step(take=False)
        return {way: len(sent) - before.get(way, 0) for way, sent in self.sent.items()}

    def lacks(self, members: list[int]) -> list[tuple[int, int | None, int]]:
        """Messages not delivered as sent: by whom, to whom, and where."""
        return [
            (i, to, at)
            for (i, to), sent in self.sent.items()
            for at in (members if to is None else [to])
            if [text for text in of_sender(self, at, i) if text.startswith(head(i, to))] != sent
        ]


def head(i: int, to: int | None) -> bytes:
    return f"{i} to {to}:".encode()


def message(i: int, to: int | None, number: int) -> bytes:
    return (head(i, to) + b"%d" % number).ljust(SIZE)


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("how", ["one falls", "nobody falls", "two views", "merge"])
@pytest.mark.parametrize("order", ORDERS)
def test_queues_that_nobody_takes_outlive_changes_of_view_and_stop_nobody_for_good(
    order: str, how: str, safe: bool
) -> None:
    net = Full(order, safe=safe)
    members = [0, 1] if how == "one falls" else [0, 1, 2]
    first = net.send_all(members)
    assert min(first.values()) >= 3
    net.drop = lambda src, dst, lane, datagram: how == "one falls" and 2 in (src, dst)
    for tag in (2, 3) if how == "two views" else (2,):
        merge = how == "merge"
        change_view(net, members, members, sequencer=net.sequencer, tag=tag, take=False, merge=merge)
        net.send_all(members)
    net.run(300)
    if how == "merge":  # unordered messages are lost, and so are unicasts on their way
        net.sent.clear()
        net.got[:] = [[], [], []]
    assert net.lacks(members) == []
    last = net.send_all(members)
    net.run(300)
    assert net.lacks(members) == []
    assert last.keys() == first.keys() and all(last[way] >= first[way] - 3 for way in first), (first, last)
