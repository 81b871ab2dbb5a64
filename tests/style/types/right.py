"""Code that callers write, and type checkers must accept (tests/style/test_types.py)."""

import asyncio
from array import array
from pathlib import Path

import numpy as np

import seqcast


def plain(member: seqcast.Member) -> None:
    with seqcast.join("c", name="a", order="fifo", interface="lo", journal=Path("j"), heartbeat_s=1) as group:
        group.send(b"bytes")
        group.send(bytearray(b"more"), to=member, timeout=1)
        group.send(memoryview(b"view"))
        group.send(array("d", [1.0]))
        group.send_many([b"a", b"b"])
        group.send_batch(np.zeros(3, np.uint8), np.array([0, 1, 3]), timeout=0.5)
        group.send_batch(b"abc", [0, 1, 3])
        done: bool = group.wait_consumed(timeout=1.0)
        how_far: int = group.consumed
        message = group.recv()
        if message is not None:
            payload: bytes = message.payload
            print(payload, message.sender.name, done, how_far)
        for event in group.events():
            match event:
                case seqcast.Message(payload=payload):
                    print(payload)
                case seqcast.View():
                    print(event.members)
    settings = seqcast.Config(partition="primary")
    seqcast.join("c", config=settings, order="total").leave()


async def awaited() -> None:
    task = asyncio.create_task(seqcast.aio.join("c", name="a", preset="fast"))
    group: seqcast.aio.Group = await task
    async with seqcast.aio.join("c", name="b") as other:
        await other.send(b"x", timeout=1.0)
        done: bool = await other.wait_consumed(1.0)
        async with group.suspended():
            print(other.view.members[0].name, done, await other.next_event())


def refusals() -> None:
    try:
        seqcast.join("c")
    except seqcast.NameTaken:
        pass
    except seqcast.JoinRefused:
        pass
    except seqcast.JoinTimeout:
        pass
