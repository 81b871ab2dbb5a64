"""Crowds on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, cluster, output, script, wait_until, why_no_multicast

import seqcast
from seqcast import CrowdHistory, CrowdLost, CrowdMessage
from seqcast.crowd.datagrams import DataPacket, address_of, dump
from seqcast.net.opening import group_tag


@contextlib.contextmanager
def crowd_of(n: int, name: str, **settings: Any) -> Iterator[list[seqcast.Crowd]]:
    """``n`` members that know each other."""
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(joined(name, **settings)) for _ in range(n)]
        wait_until(lambda: all(each.counters()["known"] == n - 1 for each in members), LIMIT_S)
        yield members


def joined(name: str, **settings: Any) -> seqcast.Crowd:
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    settings.setdefault("average_s", 0.02)
    return seqcast.join_crowd(name, interface=LOOPBACK, **settings)


def messages(crowd: seqcast.Crowd, n: int) -> list[CrowdMessage]:
    """The next ``n`` messages; nothing is lost meanwhile."""
    got: list[CrowdMessage] = []
    end = time.monotonic() + LIMIT_S
    while len(got) < n:
        event = crowd.recv(end - time.monotonic())
        assert event is not None, f"{len(got)} of {n} messages in {LIMIT_S} s: {crowd.counters()}"
        assert not isinstance(event, CrowdLost), event
        if isinstance(event, CrowdMessage):
            got.append(event)
    return got


def test_all_members_get_each_sender_s_messages_in_order() -> None:
    with crowd_of(4, cluster()) as members:
        for i in range(200):
            for each in members[:2]:
                each.send(b"%d" % i)
        for each in members:
            got = messages(each, 400)
            for sender in members[:2]:
                assert [m.payload for m in got if m.sender == sender.id] == [b"%d" % i for i in range(200)]


def test_another_process_of_a_member_s_host_cannot_silence_it() -> None:
    """Under its id and from its address, but not from its port, whatever the datagram claims."""
    with crowd_of(3, name := cluster()) as members, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        victim, *others = members
        victim.send(b"before")
        for each in others:
            assert [m.payload for m in messages(each, 1)] == [b"before"]
        stranger.bind((socket.inet_ntoa(address_of(victim.id)[0]), 0))
        for far in range(1 << 62, (1 << 62) + 5):
            forged = dump(group_tag(name), victim.id, DataPacket(victim.id, far, far, b"forged"))
            for each in members:
                address, port = address_of(each.id)
                stranger.sendto(forged, (socket.inet_ntoa(address), port))
        wait_until(lambda: all(each.counters()["datagrams_other"] >= 5 for each in others), LIMIT_S)
        for i in range(50):
            victim.send(b"%d" % i)
        for each in others:
            assert [m.payload for m in messages(each, 50)] == [b"%d" % i for i in range(50)]


@pytest.mark.long
def test_a_late_join_handler_that_was_killed_serves_joiners_again(tmp_path: Path) -> None:
    """PB-05: a process of its own, which is killed and started again with the same file."""
    name, path = cluster(), str(tmp_path / "store")
    program = """
import sys, seqcast
with seqcast.join_crowd(sys.argv[1], interface=sys.argv[2], average_s=0.02, store=sys.argv[3]) as crowd:
    print("joined", crowd.counters()["store_packets"], flush=True)
    for event in crowd:
        print(event.payload.decode() if isinstance(event, seqcast.CrowdMessage) else event, flush=True)
"""

    def handler_of(stack: contextlib.ExitStack) -> Any:
        child = script(program, name, LOOPBACK, path)
        stack.callback(child.communicate)
        stack.callback(child.kill)
        return child

    with contextlib.ExitStack() as stack, crowd_of(2, name) as (one, two):
        handler = handler_of(stack)
        assert handler.stdout is not None and handler.stdout.readline() == "joined 0\n"
        wait_until(lambda: one.counters()["known"] == 2 == two.counters()["known"], LIMIT_S)
        sent = [b"%d" % i for i in range(300)]
        for payload in sent[:200]:
            one.send(payload)
        for line in range(200):
            assert handler.stdout.readline().strip() == str(line)
        handler.send_signal(signal.SIGKILL)
        handler.wait(LIMIT_S)
        for payload in sent[200:250]:
            one.send(payload)  # nobody stores these now: the handler gets them after its return
        handler = handler_of(stack)
        assert handler.stdout is not None and 200 <= int(handler.stdout.readline().split()[1]) <= 250
        for line in range(200, 250):
            assert handler.stdout.readline().strip() == str(line), "delivered again, or left out"
        with joined(name, history=True, history_s=LIMIT_S) as late:
            for payload in sent[250:]:
                one.send(payload)
            assert [each.payload for each in messages(late, 300)] == sent
            wait_until(lambda: late.counters()["packets_lost"] == 0, LIMIT_S)


def test_a_joiner_gets_from_the_file_messages_of_members_that_are_gone(tmp_path: Path) -> None:
    """PB-05: nobody has the message in memory, as the handler began again with its file."""
    name, path = cluster(), str(tmp_path / "store")
    sent = [b"%d" % i for i in range(300)]
    with joined(name, store=path) as handler, joined(name) as sender:
        for payload in sent:
            sender.send(payload)
        assert [each.payload for each in messages(handler, 300)] == sent
    with joined(name, store=path) as handler, joined(name, history=True, history_s=LIMIT_S) as late:
        assert [each.payload for each in messages(late, 300)] == sent
        assert late.recv(LIMIT_S) == CrowdHistory(1)
        assert handler.counters()["packets_again"] >= 300


def test_without_a_handler_a_joiner_is_told_so() -> None:
    with crowd_of(2, cluster()) as (one, _), joined(one.cluster, history=True, history_s=0.5) as late:
        assert late.recv(LIMIT_S) == CrowdHistory(0)


def test_an_application_that_does_not_receive_is_told_its_losses() -> None:
    with (
        crowd_of(2, cluster(), lost_s=1.0, lag=20) as (one, _),
        joined(one.cluster, average_s=0.02, lost_s=1.0, lag=20, receive_bytes=1 << 20) as slow,
    ):
        wait_until(lambda: slow.counters()["gossips_received"] > 10, LIMIT_S)
        for _ in range(300):
            one.send(bytes(20_000))
        wait_until(lambda: slow.counters()["packets_dropped"] > 0, LIMIT_S)
        one.send(b"last")
        following, lost, end = 1, 0, time.monotonic() + LIMIT_S
        while following <= 301:
            event = slow.recv(end - time.monotonic())
            assert event is not None, slow.counters()
            if isinstance(event, CrowdMessage):
                assert event.seqno == following
                following += 1
            else:
                assert isinstance(event, CrowdLost) and event.first == following, event
                following, lost = event.last + 1, lost + event.last - event.first + 1
        assert lost > 0


def test_a_sender_that_does_not_receive_waits_unless_it_says_so() -> None:
    with joined(cluster(), receive_bytes=1 << 20) as crowd:
        with pytest.raises(seqcast.SendTimeout, match="receive=False"):
            for _ in range(100):
                crowd.send(bytes(60_000), timeout=1.0)
        assert isinstance(crowd.recv(LIMIT_S), CrowdMessage)
    with joined(cluster(), receive=False, receive_bytes=1 << 20) as crowd:
        for _ in range(100):
            crowd.send(bytes(60_000), timeout=LIMIT_S)
        wait_until(lambda: crowd.counters()["packets_sent"] == 100, LIMIT_S)
        assert crowd.recv(0.0) is None


def test_a_callers_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(seqcast.ConfigError, match="did you mean lag"):
        seqcast.join_crowd("crowd", lagg=5)
    with pytest.raises(seqcast.ConfigError, match="lost_s"):
        seqcast.join_crowd("crowd", average_s=2.0)
    with pytest.raises(seqcast.ConfigError, match="no IPv4 address"):
        seqcast.join_crowd("crowd", interface="nonesuch0")
    (tmp_path / "torn").write_bytes(b"no database" * 100)
    with pytest.raises(seqcast.ConfigError, match="damaged"):
        joined(cluster(), store=str(tmp_path / "torn"))
    crowd = joined(cluster(), send_bytes_per_s=1000)
    with pytest.raises(seqcast.UsageError, match="60000"):
        crowd.send(bytes(60_001))
    with pytest.raises(seqcast.UsageError, match="bytes"):
        crowd.send("text")
    with pytest.raises(seqcast.SendTimeout, match="send_bytes_per_s"):
        for _ in range(10):
            crowd.send(bytes(60_000), timeout=0.01)
    crowd.leave(0.0)
    assert crowd.recv(0.0) is not None, "what was delivered before can be received"
    with pytest.raises(seqcast.NotMember):
        crowd.send(b"late")


def test_a_program_ends_without_leaving() -> None:
    program = "import sys, seqcast\ncrowd = seqcast.join_crowd(sys.argv[1], interface=sys.argv[2])\nprint(crowd.id)"
    assert int(output(script(program, cluster(), LOOPBACK)))


def test_a_crowd_for_asyncio_sends_receives_and_leaves() -> None:
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    name = cluster()
    settings: dict[str, Any] = {"interface": LOOPBACK, "average_s": 0.02}

    async def run() -> list[bytes]:
        async with (
            seqcast.aio.join_crowd(name, **settings) as one,
            seqcast.aio.join_crowd(name, **settings) as two,
        ):
            assert await two.recv(0.0) is None
            taking = asyncio.create_task(take(two, 200))
            for i in range(200):
                await one.send(b"%d" % i)
            return await asyncio.wait_for(taking, LIMIT_S)

    async def take(crowd: Any, n: int) -> list[bytes]:
        got: list[bytes] = []
        async for event in crowd:
            assert isinstance(event, CrowdMessage), event
            got.append(event.payload)
            if len(got) == n:
                break
        return got

    assert asyncio.run(run()) == [b"%d" % i for i in range(200)]


def test_a_crowd_for_asyncio_tells_a_callers_mistakes_and_ends_waits() -> None:
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")

    async def run() -> None:
        settings: dict[str, Any] = {"interface": LOOPBACK, "average_s": 0.02}
        crowd = await seqcast.aio.join_crowd(cluster(), send_bytes_per_s=1000, **settings)
        with pytest.raises(seqcast.UsageError, match="60000"):
            await crowd.send(bytes(60_001))
        with pytest.raises(seqcast.SendTimeout, match="send_bytes_per_s"):
            for _ in range(10):
                await crowd.send(bytes(60_000), timeout=0.01)
        while await crowd.recv(0.5) is not None:
            pass
        waiting = asyncio.create_task(crowd.recv())
        await asyncio.sleep(0)
        await crowd.leave(0.0)
        assert await asyncio.wait_for(waiting, LIMIT_S) is None
        with pytest.raises(seqcast.NotMember):
            await crowd.send(b"late")

    asyncio.run(run())
