"""Times of members on one machine: no message is delivered before it was sent."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from members import LIMIT_S, group_of

import seqcast
from seqcast.journal.places import find

ROUNDS = 400


def talk(group: seqcast.Group, receives: threading.Thread) -> None:
    for number in range(ROUNDS):
        time.sleep(0.001)  # so that receivers wait, for datagrams and for other threads' messages
        group.send(b"%d" % number)
        if number % 3 == 0:
            group.send_many([b"many"] * 5)
    receives.join(LIMIT_S)


@pytest.mark.parametrize("order", ["records", "fifo", "sequencer"])
def test_no_message_is_delivered_before_it_was_sent(tmp_path: Path, order: str) -> None:
    """Neither a member's own, which another thread sends meanwhile, nor those of other members on the same clock."""
    each = ROUNDS + 5 * ((ROUNDS + 2) // 3)
    with group_of(3, order=order, journal=str(tmp_path), journal_payload="hash") as groups:

        def receive(group: seqcast.Group) -> None:
            left = 3 * each
            while left:
                batch = group.recv_batch(LIMIT_S)
                assert batch is not None
                left -= len(batch)

        receivers = [threading.Thread(target=receive, args=(group,)) for group in groups]
        senders = [
            threading.Thread(target=talk, args=(group, receives))
            for group, receives in zip(groups, receivers, strict=True)
        ]
        for thread in (*receivers, *senders):
            thread.start()
        for thread in (*receivers, *senders):
            thread.join(LIMIT_S)
    for journal in find([tmp_path]):
        rows = pa.Table.from_batches(journal.batches(["sent_ns", "delivered_ns"])).to_pydict()
        took = [after - before for before, after in zip(rows["sent_ns"], rows["delivered_ns"], strict=True)]
        assert len(took) == 3 * each and min(took) >= 0, (min(took), sum(ns < 0 for ns in took))
