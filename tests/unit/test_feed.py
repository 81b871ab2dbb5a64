"""The table and the subscribers of a feed, on a group of the test's own making."""

import io
from types import SimpleNamespace

import pytest

import seqcast
from seqcast.blocks import ABSENT, Snapshot, Update, feed


class Group:
    """Delivers each message at once."""

    def __init__(self, state):
        self.of = state

    def send(self, payload, timeout=None):
        self.of._take(payload)

    def events(self):
        return iter(())

    def leave(self, timeout=None):
        pass


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(feed, "join", lambda cluster, *, state, **_: Group(state))
    return lambda: feed.Feed("prices")


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
    with pytest.raises(seqcast.UsageError, match="none of a feed"):
        two.set_state(io.BytesIO(b"x" * 20).read)


def test_other_messages_are_counted_and_change_nothing(make):
    made = make()
    for payload in (
        b"",
        b"1234567",
        feed._HEAD.pack(2, 1, 0),
        feed._HEAD.pack(1, 1, 9),
        feed._HEAD.pack(1, 1, 1) + b"\xff",
    ):
        made._take(payload)
    assert made.counters == feed.Counters(malformed=5) and made.snapshot().number == 0
    with pytest.raises(seqcast.UsageError):
        made.publish(1, 1)


def test_a_closed_subscriber_ends_and_one_of_a_closed_feed_gets_the_rest_first(make):
    made = make()
    one, two = made.subscribe(), made.subscribe()
    made.publish("tea", 1)
    one.close()
    assert list(one) == []
    made._thread.join()  # this group has no more events
    assert list(two) == [Snapshot(1, {"tea": 1}, 1)]
    with pytest.raises(seqcast.NotReady):
        two.recv(0)


def test_a_value_that_the_codec_cannot_read_is_counted_and_is_absent(make):
    made = make()
    made.publish("milk", 1)
    made._take(feed._HEAD.pack(1, True, 3) + b"tea" + b"{no json")
    subscriber = made.subscribe()
    assert subscriber.recv(0) == Snapshot(2, {"milk": 1}, 0)
    made._take(feed._HEAD.pack(1, True, 4) + b"milk" + b"{no json")
    made.publish("tea", 2)
    assert [subscriber.recv(0), subscriber.recv(0)] == [Update(3, "milk", ABSENT), Update(4, "tea", 2)]
    assert made.counters.malformed == 2
