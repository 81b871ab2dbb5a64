"""``deliver`` returns a message that nothing takes away any more, or reports its state; ``fence`` grows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from members import LIMIT_S, LOOPBACK, cluster, join, script, wait_until

import seqcast
import seqcast.aio

FIRM = {"safe": True, "partition": "primary", "found": 2}
STAYS = """
import sys, seqcast
cluster, name, interface = sys.argv[1:]
with seqcast.join(cluster, name=name, interface=interface, safe=True, partition="primary", found=2) as group:
    print("there", flush=True)
    for message in group:
        pass
"""


@contextlib.contextmanager
def receiving(group: seqcast.Group) -> Iterator[list[bytes]]:
    """Another thread receives; gives the taken messages."""
    taken: list[bytes] = []

    def receive() -> None:
        with contextlib.suppress(seqcast.NotMember):
            for message in group:
                taken.append(message.payload)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield taken
    finally:
        group.leave()
        thread.join()


@pytest.mark.parametrize("settings", [{}, {"safe": True}], ids=["default", "safe"])
def test_one_thread_delivers_and_then_receives_all_in_order(settings) -> None:
    with join(cluster(), "a", **settings) as group:
        group.send(b"same")
        first, second = group.deliver(b"same", timeout=LIMIT_S), group.deliver(b"other", timeout=LIMIT_S)
        assert (first.payload, first.global_seqno, second.global_seqno) == (b"same", 2, 3)
        assert [group.recv(LIMIT_S).payload for _ in range(3)] == [b"same", b"same", b"other"]
        assert not first.transitional and not second.transitional


def test_another_thread_receives_and_each_call_gets_its_own() -> None:
    name = cluster()
    with join(name, "a", safe=True) as one, join(name, "b", safe=True) as two, receiving(two), receiving(one) as taken:
        places: list[int] = []

        def deliver(number: int) -> None:
            for k in range(50):
                message = one.deliver(b"%d/%d" % (number, k), timeout=LIMIT_S)
                assert message.payload == b"%d/%d" % (number, k)
                places.append(message.global_seqno or 0)

        threads = [threading.Thread(target=deliver, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(places) == list(range(1, 201))
        one.leave()
    assert len(taken) == 200


def test_messages_that_a_member_has_not_taken_are_undecided_without_safe_and_the_error_says_so() -> None:
    name = cluster()
    with join(name, "a", min_members=1) as one, join(name, "b") as two:
        with pytest.raises(seqcast.Undecided, match="not known to be everywhere") as caught:
            one.deliver(b"x", timeout=0.2)
        assert caught.value.sent == 1
        assert caught.value.message is not None and caught.value.message.payload == b"x"
        assert two.recv(LIMIT_S).payload == b"x"
        with receiving(two):
            assert one.deliver(b"y", timeout=LIMIT_S).payload == b"y"


@contextlib.contextmanager
def of_three() -> Iterator[tuple[seqcast.Group, list[int]]]:
    """A member of a primary group of three, and the processes of the other two."""
    name = cluster()
    with contextlib.ExitStack() as stack:
        others = [script(STAYS, name, who, LOOPBACK) for who in ("b", "c")]
        for other in others:
            stack.callback(other.communicate)
            stack.callback(other.kill)
        group = stack.enter_context(join(name, "a", **FIRM, min_members=3))
        yield group, [other.pid for other in others]
        group.leave(0.05)  # nobody answers


@pytest.mark.long
def test_a_view_change_decides_messages_that_waited_for_a_member_that_stopped() -> None:
    with of_three() as (group, (b, _)):
        assert group.deliver(b"all", timeout=LIMIT_S).payload == b"all"
        before, fence = group.view, group.fence
        os.kill(b, signal.SIGSTOP)
        late = group.deliver(b"late", timeout=LIMIT_S)
        assert late.payload == b"late" and not late.transitional
        assert late.view_id == before.view_id and group.fence > fence
        assert [group.recv(LIMIT_S).payload for _ in range(2)] == [b"all", b"late"]


@pytest.mark.long
def test_a_minority_decides_nothing_and_sends_nothing_once_it_knows() -> None:
    with of_three() as (group, others):
        for other in others:
            os.kill(other, signal.SIGSTOP)
        with pytest.raises(seqcast.Undecided, match="not delivered here") as caught:
            group.deliver(b"under way", timeout=0.1)
        assert caught.value.sent == 1
        while group.status != "blocked":
            group.wait_deliverable(0.01)
        with pytest.raises(seqcast.Undecided, match="not sent") as caught:
            group.deliver(b"nobody", timeout=0.1)
        assert caught.value.sent == 0 and caught.value.message is None


@pytest.mark.parametrize(
    "settings",
    [{"deliver_own": False}, {"receive": False}, {"send_while_blocked": "queue"}, {"partition": "primary", "found": 1}],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_settings_that_leave_nothing_that_decides_are_refused(settings) -> None:
    with join(cluster(), "a", **settings) as group, pytest.raises(seqcast.UsageError, match="deliver"):
        group.deliver(b"x", timeout=1)


def test_a_member_that_left_delivers_nothing() -> None:
    group = join(cluster(), "a")
    group.leave()
    with pytest.raises(seqcast.NotMember):
        group.deliver(b"x", timeout=1)


def test_the_fence_grows_with_each_view_and_is_the_same_at_all_members() -> None:
    name = cluster()
    with join(name, "a") as one:
        first = one.fence
        with join(name, "b") as two:
            second = two.fence
            wait_until(lambda: len(one.view) == 2)
            assert one.fence == second == two.view.fence > first
        wait_until(lambda: len(one.view) == 1)
        assert one.fence > second


def test_asyncio_delivers_while_another_task_receives() -> None:
    async def main() -> list[bytes]:
        taken: list[bytes] = []
        async with seqcast.aio.join(cluster(), name="a", interface=LOOPBACK) as group:

            async def receive() -> None:
                async for message in group:
                    taken.append(message.payload)

            task = asyncio.create_task(receive())
            messages = await asyncio.gather(*(group.deliver(b"%d" % n, timeout=LIMIT_S) for n in range(10)))
            assert [message.payload for message in messages] == [b"%d" % n for n in range(10)]
            assert group.fence == group.sync.fence
            while len(taken) < 10:
                await asyncio.sleep(0.01)
            task.cancel()
        return taken

    assert sorted(asyncio.run(main())) == [b"%d" % n for n in range(10)]
