"""``reliability="gossip"`` on real sockets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from members import LIMIT_S, cluster, group_of, join, payloads

import seqcast


@pytest.mark.parametrize("order", ["fifo", "sequencer"])
def test_all_members_get_all_messages(order: str) -> None:
    """Enough of them that credit has to come back many times."""
    sent = [[f"{who} {i}".encode() + bytes(1000) for i in range(200)] for who in range(3)]
    with group_of(3, order=order, reliability="gossip", window_bytes=100_000, gossip_average_s=0.002) as groups:
        with ThreadPoolExecutor(3) as readers:
            reading = [readers.submit(payloads, group, 600) for group in groups]
            for group, messages in zip(groups, sent, strict=True):
                for message in messages:
                    group.send(message, timeout=LIMIT_S)
            got = [each.result() for each in reading]
        for each in got:
            for who, messages in enumerate(sent):
                assert [message for message in each if message.startswith(b"%d " % who)] == messages
        if order == "sequencer":
            assert got[0] == got[1] == got[2]
        else:
            assert sum(group.counters()["acks_sent"] for group in groups) == 0


def test_a_member_that_does_not_gossip_is_refused() -> None:
    name = cluster()
    with join(name, "a", reliability="gossip"), pytest.raises(seqcast.SeqcastError, match="reliability"):
        join(name, "b")
