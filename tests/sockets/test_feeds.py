"""Feeds in groups on real sockets: subscribers of a member that was excluded, of sides that merge, and in a pause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, PATIENT_JOINER, cluster, founded, script, wait_until

from seqcast.blocks import Feed, Snapshot, Update, aio

pytestmark = pytest.mark.filterwarnings("ignore:partition=:RuntimeWarning")
SETTINGS: dict[str, Any] = {"interface": LOOPBACK, "join_timeout_s": LIMIT_S}
FOLLOWER = """
import json, sys, threading
from seqcast.blocks import Feed
cluster, interface, partition = sys.argv[1:]
with Feed(cluster, name="stopped", interface=interface, partition=partition) as feed:
    def publish():
        for line in sys.stdin:
            feed.publish("stopped", int(line))
    threading.Thread(target=publish, daemon=True).start()
    for item in feed.subscribe(behind_s=None):
        print(json.dumps([type(item).__name__, *item]), flush=True)
"""


@contextlib.contextmanager
def stopped(*others: str, partition: str) -> Iterator[tuple[list[Feed], subprocess.Popen[str]]]:
    """Feeds here, whose group goes on without a process that is stopped; that one had published 1."""
    name = cluster()
    process = script(FOLLOWER, name, LOOPBACK, partition)
    assert process.stdin is not None and process.stdout is not None
    assert json.loads(process.stdout.readline()) == ["Snapshot", 0, {}, 0]
    founded(name)
    with contextlib.ExitStack() as stack:
        stack.callback(process.communicate)
        stack.callback(process.kill)
        settings = {**SETTINGS, **PATIENT_JOINER, "partition": partition}
        feeds = [stack.enter_context(Feed(name, name=other, **settings)) for other in others]
        wait_until(lambda: all(len(feed.group.view) == len(feeds) + 1 for feed in feeds))
        process.stdin.write("1\n")
        process.stdin.flush()
        wait_until(lambda: all(feed.snapshot().values == {"stopped": 1} for feed in feeds))
        assert json.loads(process.stdout.readline()) == ["Update", 1, "stopped", 1]
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: all(len(feed.group.view) == len(feeds) for feed in feeds))
        yield feeds, process


def until_values(process: subprocess.Popen[str], values: dict[str, Any]) -> list[list[Any]]:
    """The items that the process prints, until its values are these."""
    assert process.stdout is not None
    items, seen = list[list[Any]](), {"stopped": 1}
    while seen != values:
        kind, number, *rest = json.loads(process.stdout.readline())
        items.append([kind, number])
        seen = dict(rest[0]) if kind == "Snapshot" else {**seen, rest[0]: rest[1]}
    return items


def test_subscribers_of_an_excluded_member_get_a_snapshot_when_it_is_back() -> None:
    with stopped("b", "c", partition="primary") as (feeds, process):
        for number in range(3):
            feeds[0].publish("here", number)
        wait_until(lambda: feeds[1].snapshot().number == 4)
        os.kill(process.pid, signal.SIGCONT)
        assert until_values(process, {"stopped": 1, "here": 2})[0] == ["Snapshot", 4]


def test_sides_that_merge_have_the_values_of_both_and_their_subscribers_get_a_snapshot() -> None:
    with stopped("b", partition="merge") as ((feed,), process), feed.subscribe(behind_s=None) as subscriber:
        feed.publish("here", 1)
        wait_until(lambda: feed.snapshot().values == {"stopped": 1, "here": 1})
        assert isinstance(subscriber.recv(LIMIT_S), Snapshot)
        assert process.stdin is not None
        process.stdin.write("2\n")  # read when the process goes on: before or after the sides meet
        process.stdin.flush()
        os.kill(process.pid, signal.SIGCONT)
        kinds = [kind for kind, _ in until_values(process, {"stopped": 2, "here": 1})]
        assert kinds.count("Snapshot") == 1
        wait_until(lambda: feed.snapshot().values == {"stopped": 2, "here": 1})
        items = iter(lambda: subscriber.recv(0.0), None)
        assert [type(item) for item in items].count(Snapshot) == 1


def test_in_a_pause_all_members_give_the_same_snapshot() -> None:
    """FLU-05: with the group stopped no message is under way anywhere."""
    name = cluster()
    with Feed(name, name="a", **SETTINGS) as one, Feed(name, name="b", **SETTINGS, **PATIENT_JOINER) as two:
        wait_until(lambda: len(one.group.view) == 2)
        with one.subscribe() as subscriber:
            subscriber.recv(LIMIT_S)
            for number in range(100):
                (one, two)[number % 2].publish("tea", number)
            with one.group.suspended(LIMIT_S):
                subscriber.resync()
                item = subscriber.recv(LIMIT_S)
                assert isinstance(item, Snapshot) and item.number == 100
                wait_until(lambda: two.snapshot()[:2] == item[:2])
            one.publish("tea", 100)
            assert subscriber.recv(LIMIT_S) == Update(101, "tea", 100)


def test_asyncio_a_feed_and_its_subscriber() -> None:
    async def main() -> None:
        async with aio.Feed(cluster(), name="a", **SETTINGS) as feed, feed.subscribe() as subscriber:
            assert await subscriber.recv() == Snapshot(0, {}, 0)
            for number in range(100):
                await feed.publish("tea", number)
            numbers = [item.value async for _, item in limited(subscriber, 100)]
            assert numbers == list(range(100)) and await feed.snapshot() == Snapshot(100, {"tea": 99}, 0)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


async def limited(items: Any, count: int) -> Any:
    for number in range(count):
        yield number, await anext(items)
