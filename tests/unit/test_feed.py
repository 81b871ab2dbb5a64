"""The table and the subscribers of a feed, on a group of the test's own making."""

import asyncio
import contextlib
import io
import threading
from types import SimpleNamespace

import pytest

import seqcast
from seqcast.blocks import ABSENT, Snapshot, Update, aio, feed


class Group:
    """Delivers each message at once."""

    config = SimpleNamespace(leave_timeout_s=10.0)

    def __init__(self, state):
        self.of, self.full, self.left = state, False, threading.Event()

    def send(self, payload, timeout=None):
        if self.full and timeout == 0:
            raise seqcast.SendTimeout("no credit")
        self.of._take(payload)

    def events(self):
        self.left.wait()
        return iter(())

    def leave(self, timeout=None):
        self.left.set()


@pytest.fixture
def make(monkeypatch):
    groups = []

    def join(cluster, *, state, **_):
        groups.append(Group(state))
        return groups[-1]

    monkeypatch.setattr(feed, "join", join)
    yield lambda: feed.Feed("prices")
    for group in groups:
        group.leave()


def state_of(made):
    written = io.BytesIO()
    made.get_state(written.write)
    return io.BytesIO(written.getvalue()).read


def test_a_subscriber_begins_with_a_snapshot_and_gets_each_change(make):
    made = make()
    made.publish("tea", 1)
    subscriber = made.subscribe()
    assert subscriber.recv(0) == Snapshot(1, {"tea": 1}, 0)
    made.publish("milk", [2])
    made.publish("tea", ABSENT)
    assert [subscriber.recv(0), subscriber.recv(0)] == [Update(2, "milk", [2]), Update(3, "tea", ABSENT)]
    assert made.snapshot() == Snapshot(3, {"milk": [2]}, 0)


def test_a_subscriber_that_is_behind_or_asks_gets_a_snapshot_and_the_next_change(make, monkeypatch):
    """FLU-05: state on request, at any time."""
    now = [0]
    monkeypatch.setattr(feed, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
    made = make()
    patient, other = made.subscribe(behind_s=None), made.subscribe(behind_s=1.0)
    patient.recv(0), other.recv(0)
    made.publish("tea", 1)
    now[0] = 10**9
    assert other.recv(0) == Update(1, "tea", 1)
    made.publish("tea", 2)
    made.publish("tea", 3)
    now[0] = 2 * 10**9 + 1
    assert other.recv(0) == Snapshot(3, {"tea": 3}, 2) and patient.recv(0) == Update(1, "tea", 1)
    made.publish("tea", 4)
    assert other.recv(0) == Update(4, "tea", 4)
    patient.resync()
    assert patient.recv(0) == Snapshot(4, {"tea": 4}, 3)
    assert made.counters == feed.Counters(updates=4, snapshots=2, skipped=5)


def test_updates_that_wait_are_bounded(make, monkeypatch):
    monkeypatch.setattr(feed, "UPDATES_MAX", 3)
    made = make()
    subscriber = made.subscribe(behind_s=None)
    subscriber.recv(0)
    for number in range(5):
        made.publish("tea", number)
    assert subscriber.recv(0) == Snapshot(5, {"tea": 4}, 5)


def test_a_state_from_the_group_comes_as_a_snapshot_and_sides_keep_the_values_published_last(make):
    one, two = make(), make()
    one.publish("tea", 1)
    two.set_state(state_of(one))
    subscriber = two.subscribe()
    assert subscriber.recv(0) == Snapshot(1, {"tea": 1}, 0)
    one.publish("tea", "one")
    one.publish("milk", "one")
    two.publish("oil", "two")
    two.publish("salt", "two")
    two.publish("tea", "two")
    two.merge_state([SimpleNamespace(read=state_of(one))])
    values = {"tea": "two", "milk": "one", "oil": "two", "salt": "two"}
    assert subscriber.recv(0) == Snapshot(5, values, 3)
    with pytest.raises(seqcast.UsageError, match="not that of a feed"):
        two.set_state(io.BytesIO(b"x" * 20).read)


def test_other_messages_are_counted_and_change_nothing(make):
    made = make()
    payloads = (
        b"",
        b"1234567",
        b"SqF",
        feed._HEAD.pack(feed._MESSAGE, 1, 9),
        feed._HEAD.pack(feed._MESSAGE, 1, 1) + b"\xff",
    )
    for payload in payloads:
        made._take(payload)
    assert made.counters == feed.Counters(malformed=5) and made.snapshot().number == 0
    with pytest.raises(seqcast.UsageError):
        made.publish(1, 1)


def test_an_update_or_a_state_of_another_release_is_not_passed_over(make):
    with pytest.raises(seqcast.OtherRelease, match=r"a later release .* upgrade this member"):
        make()._take(b"SqF\x02 in a format that nobody here knows")
    with pytest.raises(seqcast.OtherRelease, match="a later release"):
        make().set_state(io.BytesIO(b"SqG\x02").read)


def test_a_closed_subscriber_ends_and_one_of_a_closed_feed_gets_the_rest_first(make):
    made = make()
    one, two = made.subscribe(), made.subscribe()
    made.publish("tea", 1)
    one.close()
    assert list(one) == []
    made.close()
    assert list(two) == [Snapshot(1, {"tea": 1}, 1)]
    with pytest.raises(seqcast.NotReady):
        two.recv(0)


def test_a_value_that_the_codec_cannot_read_is_counted_and_is_absent(make):
    made = make()
    made.publish("milk", 1)
    made._take(feed._HEAD.pack(feed._MESSAGE, True, 3) + b"tea" + b"{no json")
    subscriber = made.subscribe()
    assert subscriber.recv(0) == Snapshot(2, {"milk": 1}, 0)
    made._take(feed._HEAD.pack(feed._MESSAGE, True, 4) + b"milk" + b"{no json")
    made.publish("tea", 2)
    assert [subscriber.recv(0), subscriber.recv(0)] == [Update(3, "milk", ABSENT), Update(4, "tea", 2)]
    assert made.counters.malformed == 2


def test_a_joiner_that_takes_the_state_slowly_holds_up_no_update(make):
    made = make()
    made.publish("tea", 1)
    pieces = []

    def write(piece):
        updating = threading.Thread(target=made.publish, args=("milk", 2), daemon=True)
        updating.start()
        updating.join(10.0)
        assert not updating.is_alive()
        pieces.append(piece)

    made.get_state(write)
    other = make()
    other.set_state(io.BytesIO(b"".join(pieces)).read)
    assert other.snapshot() == Snapshot(1, {"tea": 1}, 0)


def test_a_subscriber_that_waits_hears_of_a_wish_of_another_thread_for_a_snapshot(make):
    made, got = make(), []
    subscriber = made.subscribe()
    subscriber.recv(0)
    waiting = threading.Thread(target=lambda: got.append(subscriber.recv(10.0)))
    waiting.start()
    while not made._lock._waiters:
        pass
    subscriber.resync()
    waiting.join(5.0)
    assert got == [Snapshot(0, {}, 0)]


# ---- asyncio


def test_asyncio_a_subscriber_waits_on_the_loop_and_a_cancelled_wait_loses_nothing(make):
    async def main():
        async with aio.Feed("prices") as made, made.subscribe(behind_s=None) as subscriber:
            assert await subscriber.recv() == Snapshot(0, {}, 0)
            assert await subscriber.recv(0.001) is None and await subscriber.recv(0) is None
            waiting = asyncio.create_task(subscriber.recv(10.0))
            await asyncio.sleep(0)
            with pytest.raises(seqcast.UsageError, match="another task"):
                await subscriber.recv()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            waiting = asyncio.create_task(subscriber.recv())
            await asyncio.sleep(0)
            threading.Thread(target=made.sync.publish, args=("tea", 1)).start()
            assert await waiting == Update(1, "tea", 1)
            await made.publish("tea", ABSENT)
            assert await subscriber.recv() == Update(2, "tea", ABSENT)
            waiting = asyncio.create_task(subscriber.recv())
            await asyncio.sleep(0)
            subscriber.resync()
            assert await waiting == Snapshot(2, {}, 0) == await made.snapshot()
            assert made.counters.updates == 2 and made.group is made.sync.group
            waiting = asyncio.create_task(subscriber.recv())
            await asyncio.sleep(0)
            await subscriber.close()
            with pytest.raises(seqcast.NotReady):
                await waiting
            assert [item async for item in subscriber] == []

    asyncio.run(asyncio.wait_for(main(), 20.0))


def test_asyncio_a_snapshot_whose_reader_is_cancelled_comes_again(make):
    async def main():
        may, begun = threading.Event(), threading.Event()

        def loads(data):
            begun.set()
            may.wait(10.0)
            return data.decode()

        codec = SimpleNamespace(dumps=str.encode, loads=loads)
        async with aio.Feed("prices", codec=codec) as made:
            await made.publish("tea", "x")
            subscriber = made.subscribe()
            reading = asyncio.create_task(subscriber.recv())
            await asyncio.to_thread(begun.wait)  # the loop runs on
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            may.set()
            assert await subscriber.recv() == Snapshot(1, {"tea": "x"}, 0)

    asyncio.run(asyncio.wait_for(main(), 20.0))


def test_asyncio_a_loop_over_many_updates_lets_others_run_and_a_full_group_is_waited_for(make, monkeypatch):
    monkeypatch.setattr(aio, "YIELD_S", 0.0)

    async def main():
        turns, ran = 0, 0

        async def other():
            nonlocal ran
            while True:
                ran += 1
                await asyncio.sleep(0)

        async with aio.Feed("prices") as made:
            subscriber = made.subscribe()
            await subscriber.recv()
            made.group.full = True
            with pytest.raises(seqcast.SendTimeout):
                await made.publish("tea", 0, timeout=0)
            for number in range(50):
                made.sync.publish("tea", number)
            await made.publish("tea", 50)
            running = asyncio.create_task(other())
            async for item in subscriber:
                turns += 1
                if item == Update(51, "tea", 50):
                    break
            running.cancel()
            assert turns == 51 and ran >= 50

    asyncio.run(asyncio.wait_for(main(), 20.0))


@pytest.mark.parametrize("block", [aio.Feed, aio.Rpc])
def test_asyncio_a_join_that_was_cancelled_leaves_no_member(block, monkeypatch):
    begun, may, closed = threading.Event(), threading.Event(), threading.Event()

    def make(*_, **__):
        begun.set()
        may.wait(10.0)
        return SimpleNamespace(close=closed.set)

    async def main():
        joining = asyncio.create_task(made.__aenter__())
        await asyncio.to_thread(begun.wait)
        joining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await joining
        may.set()
        assert await asyncio.to_thread(closed.wait, 10.0)

    made = block("prices")
    made._join = make
    asyncio.run(main())
