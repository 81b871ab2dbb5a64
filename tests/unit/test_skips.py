"""A receiver that is too slow skips messages (`slow="skip"`), and its application is told of them, in the engine."""

from __future__ import annotations

import random

import pytest
from engines import reports_of
from helpers.engines import MS, Net, change_view

from seqcast._native.engine import SENT, Batch
from seqcast.reports import SlowChanged

SECOND = 1000
"""In steps of 1 ms."""
SLOW_NS = 500 * MS


class Group:
    """Members of which the first sends all that its credit allows, in messages of these lengths, each with its
    number."""

    def __init__(self, n: int = 4, lengths: tuple[int, ...] = (1000,), **settings: object) -> None:
        self.net = Net(n, window=1 << 16, **{"slow_ns": SLOW_NS, "skips": True, **settings})
        self.rng, self.lengths, self.length = random.Random(1), lengths, lengths[0]
        self.sent = 0
        self.got: list[list[int]] = [[] for _ in range(n)]  # numbers, delivered or, below 0, how many were skipped
        self.told: list[list[tuple[int, int, int]]] = [[] for _ in range(n)]
        self.seqnos: list[list[int]] = [[] for _ in range(n)]

    def run(self, ms: int, stopped: tuple[int, ...] = (), sends: bool = True) -> int:
        """How many messages are sent meanwhile."""
        before = self.sent
        for _ in range(ms):
            while sends and self.send():
                pass
            self.net.step(take=False)
            for i in range(len(self.net.engines)):
                if i not in stopped:
                    self.take(i)
        return self.sent - before

    def send(self) -> bool:
        if self.net.engines[0].send(self.sent.to_bytes(8, "little") + bytes(self.length)) != SENT:
            return False
        self.sent += 1
        self.length = self.rng.choice(self.lengths)
        return True

    def take(self, i: int, most: int = 1 << 30) -> None:
        engine = self.net.engines[i]
        while most and (item := engine.deliver(1 << 16)) is not None:
            most -= 1
            self.net.stirred.add(i)
            if isinstance(item, Batch):
                for run in item.runs:
                    self.seqnos[i] += [int(run["seqno"])] * int(run["n"])
                self.got[i] += [int.from_bytes(each[:8], "little") for each in item.tolist()]
            elif isinstance(item, tuple):
                sender, first, last, messages = item
                assert sender == self.net.ids[0] and first <= last and messages > 0
                assert all(seqno <= last for seqno in self.seqnos[i][-1:])
                self.got[i].append(-messages)
                self.told[i].append((first, last, messages))
        engine.taken()

    def check(self, i: int) -> int:
        """Each message was delivered, or is one of those skipped in its place. Returns how many were skipped."""
        place = skipped = 0
        for each in self.got[i]:
            assert each < 0 or each == place, f"{each} is delivered in the place of {place}"
            place += -each if each < 0 else 1
            skipped += max(-each, 0)
        assert place == self.sent
        assert skipped == self.net.engines[i].counters()["messages_skipped"]
        return skipped


MIXED = (0, 20, 100, 1000, 1300, 5000, 20_000)
SPLIT = (1600, 2900)
"""Most packets end a message that began in the one before."""


@pytest.mark.parametrize("lengths", [(1000,), (60,), MIXED, (40_000,)], ids=["1 KB", "small", "mixed", "large"])
def test_missing_messages_are_told_as_skipped_in_their_place_and_no_others(lengths):
    group = Group(lengths=lengths)
    group.run(SECOND, stopped=(2,))
    group.run(SECOND // 5)
    group.run(SECOND // 5, sends=False)
    assert group.check(2) > 0, "it skips"
    assert [group.check(i) for i in (0, 1, 3)] == [0, 0, 0], "others miss nothing"


@pytest.mark.parametrize("lengths", [(1000,), MIXED[:-1]], ids=["1 KB", "mixed"])
def test_a_sender_waits_for_slow_s_and_then_never_again(lengths):
    whole = Group(lengths=lengths).run(SECOND)
    group = Group(lengths=lengths)
    group.run(SLOW_NS // MS + 300, stopped=(2,))
    rates = [group.run(SECOND // 5, stopped=(2,)) for _ in range(10)]
    assert min(rates) >= 0.9 * whole / 5


def test_a_stopped_application_leaves_half_of_the_senders_share_at_most():
    group = Group()
    group.run(2 * SECOND, stopped=(2,))
    engine = group.net.engines[2]
    assert engine.counters()["packets_skipped"] > 1000
    assert engine.deliverable() <= group.net.window // 2
    group.take(2)
    assert len(group.told[2]) == 1, "one gap, however long it lasts"


def test_a_receiver_that_keeps_up_again_skips_nothing_more_and_holds_the_sender_like_any_other():
    group = Group()
    group.run(SECOND, stopped=(2,))
    group.run(SECOND)
    before = group.net.engines[2].counters()["packets_skipped"]
    assert group.run(SLOW_NS // MS // 2, stopped=(2,)) < 1000, "the sender waits"
    group.run(SECOND // 5)
    assert group.net.engines[2].counters()["packets_skipped"] == before
    group.run(SECOND // 5, sends=False)
    group.check(2)


def test_one_that_takes_now_and_then_does_not_cost_slow_s_each_time():
    group = Group()
    whole = group.run(SECOND // 4)
    group.run(SECOND, stopped=(2,))
    for _ in range(5):
        assert group.run(SECOND // 4, stopped=(2,)) >= 0.5 * whole
        group.take(2)
    group.run(SECOND // 5, sends=False)
    group.check(2)


@pytest.mark.parametrize("stopped", [(1, 2), (1, 2, 3)])
def test_nobody_skips_if_half_of_the_members_are_as_slow(stopped):
    group = Group()
    group.run(2 * SECOND, stopped=stopped)
    assert [engine.counters()["packets_skipped"] for engine in group.net.engines] == [0] * 4


def test_two_of_six_skip_one_after_the_other():
    group = Group(6)
    group.run(2 * SECOND, stopped=(2, 4))
    assert [engine.counters()["packets_skipped"] > 0 for engine in group.net.engines] == [i in (2, 4) for i in range(6)]


def test_a_message_between_two_gaps_that_its_application_takes_one_by_one_is_told_once():
    group = Group(lengths=SPLIT)
    group.run(SECOND, stopped=(2,))
    for _ in range(20):
        group.take(2, 1)
        group.run(40, stopped=(2,))
    group.run(SECOND // 5)
    group.run(SECOND // 5, sends=False)
    assert group.check(2) > 0 and len(group.told[2]) > 5


def test_nobody_is_called_too_slow_to_stay():
    group = Group()
    group.run(SECOND, stopped=(2,))
    assert not any(reports_of(engine, SlowChanged) for engine in group.net.engines)


def test_a_view_change_ends_the_gap_with_the_view_and_skipping_goes_on_in_the_next():
    group = Group(lengths=MIXED)
    group.run(SECOND, stopped=(2,))
    change_view(group.net, [0, 1, 2, 3], [0, 1, 2, 3], sequencer=-1, tag=2, take=False)
    assert group.net.engines[2].counters()["packets_skipped"] > 0
    rates = [group.run(SECOND // 5, stopped=(2,)) for _ in range(3)]
    assert min(rates) > 50, "no second wait of slow_s"
    group.run(SECOND // 5)
    group.run(SECOND // 5, sends=False)
    assert group.check(2) > 0 and len(group.told[2]) >= 2, "one gap for each view"


def test_a_sender_learns_that_all_have_taken_its_messages_once_the_gap_is_told():
    group = Group()
    group.run(SECOND, stopped=(2,))
    sender = group.net.engines[0]
    last = sender.last_sent()
    for _ in range(100):
        consumed = sender.consumed(group.net.now)
        group.run(10, stopped=(2,), sends=False)
    assert consumed < last
    for _ in range(100):
        consumed = sender.consumed(group.net.now)
        group.run(10, sends=False)
    assert consumed == last
