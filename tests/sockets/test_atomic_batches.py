"""Atomic batches in a group on real sockets: writers are killed, receivers join, and all deliver the same rows once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, cluster, join, script, wait_until
from tables import Table

import seqcast.aio
from seqcast import Message
from seqcast.blocks import batches
from seqcast.blocks.batches import Batches

ROWS = 400
BATCHES = 12
WRITER = f"""
import sys
import seqcast
from seqcast.blocks import batches

cluster, interface, first, last, stop_in, seed = sys.argv[1:]
import random
with seqcast.join(cluster, name=f"writer-{{seed}}", interface=interface, receive=False, min_members=2) as group:
    for batch in range(int(first), int(last) + 1):
        rows = [b"%d/%d" % (batch, row) for row in range({ROWS})]
        random.Random(seed).shuffle(rows)  # a repeated batch may have another order
        group.send(batches.begin("query", batch, len(rows)))
        if batch == int(stop_in):
            rows = rows[: {ROWS} // 2]
        group.send_many([batches.ROW + row for row in rows])
        if batch == int(stop_in):
            assert group.wait_consumed(60)
            print("in the middle", flush=True)
            sys.stdin.read()
        group.send(batches.end("query", batch))
    assert group.wait_consumed(60)
    print("done", flush=True)
"""


@pytest.mark.long
def test_writers_that_are_killed_in_the_middle_and_joiners_there_deliver_each_row_once() -> None:
    name = cluster()
    with contextlib.ExitStack() as stack:

        def receiver(who: str) -> Table:
            made = Table(name, who)
            stack.callback(made.group.leave)
            return made

        receivers = [receiver("a"), receiver("b")]
        first = 0
        for kill, last in enumerate((3, 7)):
            # A driver that is started again repeats the batch before, which may or may not have been sent.
            begin = max(0, first - 1)
            writer = script(WRITER, name, LOOPBACK, str(begin), str(last), str(last), str(kill))
            assert writer.stdout is not None and writer.stdout.readline() == "in the middle\n", writer.communicate()
            receivers.append(receiver(f"joined at {last}"))
            writer.kill()
            writer.communicate()
            first = last
        writer = script(WRITER, name, LOOPBACK, str(first - 1), str(BATCHES - 1), "-1", "2")
        assert writer.stdout is not None and writer.stdout.readline() == "done\n"
        writer.communicate("")
        wait_until(lambda: all(len(each.rows) == BATCHES * ROWS for each in receivers))
        assert all(each.rows == receivers[0].rows for each in receivers)
        assert sorted(receivers[0].rows) == sorted(b"%d/%d" % (at, row) for at in range(BATCHES) for row in range(ROWS))
        counters = receivers[0].batches.counters
        assert (counters.delivered, counters.repeated, counters.abandoned) == (BATCHES, 2, 2)


@pytest.mark.long
def test_two_writers_at_once_are_delivered_as_one() -> None:
    name = cluster()
    with contextlib.ExitStack() as stack:
        receivers = []
        for who in ("a", "b"):
            receivers.append(Table(name, who))
            stack.callback(receivers[-1].group.leave)
        writers = [script(WRITER, name, LOOPBACK, "0", str(BATCHES - 1), "-1", str(seed)) for seed in range(3)]
        for writer in writers:
            out, errors = writer.communicate("", timeout=LIMIT_S)
            assert out == "done\n", errors
        wait_until(lambda: all(sum(each.batches.counters.__dict__.values()) >= 3 * BATCHES for each in receivers))
        assert receivers[0].rows == receivers[1].rows
        assert sorted(receivers[0].rows) == sorted(b"%d/%d" % (at, row) for at in range(BATCHES) for row in range(ROWS))


def test_batches_of_messages_are_taken_as_the_messages_one_by_one() -> None:
    name, generator = cluster(), random.Random(3)
    whole, single = Batches(), Batches()
    sent: list[bytes] = []
    for number in range(40):
        rows = [batches.ROW + generator.randbytes(generator.choice((0, 3, 40, 5000))) for _ in range(100)]
        if number % 5 == 1:
            rows[50:50] = [b"", b"short", batches.ROW[:-1], b"an application's own message", batches.MAGIC + b"?"]
        batch, lost = number - number % 7 // 6, number % 11 // 10  # some are repeated, and some lack a row
        sent += [batches.begin("query", batch, 100), *rows[lost:], batches.end("query", batch)]
    out: list[list[Message]] = [[], []]

    def one_by_one(group: Any) -> Iterator[Message]:
        for event in group.events():
            yield from single.take(event)

    def take(messages: Iterator[Message], into: list[Message]) -> None:
        for message in messages:
            into.append(message)
            if message.payload == b"the end":
                return

    with join(name, "a") as a, join(name, "b") as b, join(name, "c", receive=False) as c:
        threads = [
            threading.Thread(target=take, args=each) for each in ((whole.receive(a), out[0]), (one_by_one(b), out[1]))
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(c.view.members) == 3)
        for at in range(0, len(sent), 57):
            c.send_many(sent[at : at + 57])
            c.send(batches.ROW + b"to one member: not of the stream", to=a.member)
        c.send(b"the end")
        for thread in threads:
            thread.join(LIMIT_S)
        assert [each for each in out[0] if not each.unicast] == out[1] and out[1][-1].payload == b"the end"
        assert len(out[0]) > len(out[1])  # unicasts, which come in no order with the rest
    assert whole.counters == single.counters == batches.Counters(delivered=32, repeated=5, incomplete=3, malformed=16)
    assert whole._clock.now_ns == single._clock.now_ns > 0


def test_a_batch_larger_than_memory_waits_in_a_file() -> None:
    name = cluster()
    generator = random.Random(7)
    rows = [generator.randbytes(generator.randrange(3000)) for _ in range(500)]
    receiver = Batches(memory_bytes=1000)
    with join(name, "a", state=receiver) as a, join(name, "b", receive=False) as b:
        b.send(batches.begin("query", 0, len(rows)))
        b.send_many([batches.ROW + row for row in rows])
        b.send(batches.end("query", 0))
        b.leave()
        assert [message.payload for message in receiver.receive(a, timeout=2.0)] == rows


def test_asyncio_gives_its_events_to_batches() -> None:
    async def main() -> list[bytes]:
        taking = Batches()
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK, state=taking) as group:
            for payload in (batches.begin("w", 1, 2), batches.ROW + b"x", batches.ROW + b"y", batches.end("w", 1)):
                await group.send(payload)
            async for event in group.events():
                if came := [message.payload for message in taking.take(event)]:
                    return came
        return []

    assert asyncio.run(main()) == [b"x", b"y"]
