"""Which receiver senders call too slow to stay in the group (`slow="exclude"`), and when, in the engine."""

from __future__ import annotations

from collections import deque

import pytest
from engines import reports_of
from helpers.engines import MS, Net

from seqcast._native.engine import SENT, Batch
from seqcast.reports import SlowChanged

SECOND_MS = 1000
SLOW_NS = 2 * 10**9
LOADS = -1
DATA, HEARTBEAT = 1, 7


class Group:
    """Members among which the first sends all that its credit allows. Each application takes this many bytes in each
    ms; None: all at once; LOADS: work on the state."""

    def __init__(self, n: int, **settings: object) -> None:
        settings = {"slow_ns": SLOW_NS, **settings}
        self.net = Net(n, window=1 << 16, **settings)
        self.told: list[list[tuple[int, list[int]]]] = [[] for _ in range(n)]
        self.kept: list[deque[object]] = [deque() for _ in range(n)]

    def run(self, ms: int, takes: dict[int, int | None], senders: tuple[int, ...] = (0,)) -> None:
        net = self.net
        debts = dict.fromkeys(takes, 0)
        for _ in range(ms):
            net.send_all(senders, MS)
            for i, engine in enumerate(net.engines):
                rate = takes.get(i)
                if rate == LOADS:
                    pass
                elif rate is None:
                    net.take(i)
                else:
                    debts[i] += rate
                    while debts[i] > 0 and (item := engine.deliver(1024, net.now)) is not None:
                        debts[i] -= item.nbytes if isinstance(item, Batch) else 0
                    debts[i] = min(debts[i], rate)
                    engine.taken()
                self.hear(i)

    def hear(self, i: int) -> None:
        for _ in reports_of(self.net.engines[i], SlowChanged):
            self.told[i].append((self.net.now // MS, self.slow()[i]))

    def work(self, ms: int, rates: dict[int, int], keepers: tuple[int, ...] = ()) -> None:
        """The first sends all that its credit allows. Each application takes all that waits, number 2 a KB at a time,
        and then works on that: on so many bytes in each ms; those without a rate take no time. ``keepers``: these
        answer in the thread that receives, so all that comes is kept for them."""
        net, free = self.net, dict.fromkeys(rates, 0)
        for _ in range(ms):
            net.send_all((0,), MS)
            for i, engine in enumerate(net.engines):
                most = 1024 if i == 2 else 1 << 16
                while i in keepers and (item := engine.deliver(most, net.now, keeps=True)) is not None:
                    self.kept[i].append(item)
                while net.now >= free.get(i, 0) and (item := self.take(i, most)) is not None:
                    if i in rates and isinstance(item, Batch):
                        free[i] = net.now + item.nbytes * MS // rates[i]
                engine.taken()
                self.hear(i)

    def take(self, i: int, most: int) -> object:
        engine, now = self.net.engines[i], self.net.now
        if not self.kept[i]:
            return engine.deliver(most, now)
        item = self.kept[i].popleft()
        engine.takes(item, now)
        return item

    def slow(self) -> list[list[int]]:
        return [[self.net.ids.index(member) for member in engine.too_slow()] for engine in self.net.engines]


@pytest.mark.long
def test_a_receiver_that_holds_a_sender_is_too_slow_after_slow_s_and_all_members_hear_it():
    group = Group(4)
    group.run(1900, {2: 0})
    assert group.slow() == [[], [], [], []]
    group.run(300, {2: 0})
    assert group.slow() == [[2], [2], [2], [2]], "itself too"
    assert [len(told) for told in group.told] == [1, 1, 1, 1]
    group.run(2 * SECOND_MS, {})
    assert group.slow() == [[], [], [], []], "it takes again"


@pytest.mark.parametrize(("rate", "slow"), [(0, [2]), (40, [2]), (1000, [])])
def test_only_a_member_below_a_sixteenth_of_the_rate_of_most_is_too_slow(rate, slow):
    """The others take 4 KB in a ms: a hundredth of that, or a quarter."""
    group = Group(4)
    group.run(6 * SECOND_MS, {0: 4000, 1: 4000, 2: rate, 3: 4000})
    assert group.slow()[0] == slow


@pytest.mark.parametrize(("rate", "slow"), [(10, [2]), (100, []), (250, []), (750, [])])
def test_nor_is_one_though_the_others_take_all_at_once_and_then_work(rate, slow):
    """Nothing is left to take for them, but they are busy: with a quarter of the rate, for a quarter of the time."""
    group = Group(4)
    group.work(4 * SECOND_MS, {0: 1000, 1: 1000, 2: rate, 3: 1000})
    assert group.slow()[0] == slow


def test_nor_though_the_others_wait_for_longer_than_slow_s_between_two_times_of_work():
    """They get a quarter of the window at once, on which this one works four times as long."""
    group = Group(4, slow_ns=100 * MS)
    group.work(4 * SECOND_MS, {0: 100, 1: 100, 2: 25, 3: 100})
    assert group.told == [[], [], [], []]


@pytest.mark.parametrize(("every", "named"), [(12, False), (40, True)])
def test_nor_if_each_of_two_others_has_much_left_to_take_now_and_then(every, named):
    """They take all at once, but for a pause of 60 ms: at one look in 16 that is company, and at one in 50 none."""
    group = Group(4, slow_ns=400 * MS)
    for number in range(40):
        paused = {each: 0 for each, place in ((1, 0), (3, every // 2)) if number % every == place}
        group.run(60, {2: 200, **paused})
    assert bool(group.told[0]) == named


@pytest.mark.parametrize(("working", "slow"), [({3: 1000}, [2]), ({1: 1000, 3: 1000}, [])])
def test_the_work_of_half_of_the_members_counts_and_that_of_fewer_does_not(working, slow):
    group = Group(5)
    group.work(4 * SECOND_MS, {2: 250, **working})
    assert group.slow()[0] == slow


def test_the_work_on_kept_messages_counts_as_that_on_others():
    """Members that answer in the thread that receives take all that comes at once, long before they work on it."""
    group = Group(5)
    group.work(4 * SECOND_MS, {1: 1000, 2: 250, 3: 1000}, keepers=(1, 3))
    assert group.told[0] == []


def works_of(net: Net, member: int) -> list[tuple[int, int]]:
    """The bytes taken and the times of work that its heartbeats will report."""
    reported: list[tuple[int, int]] = []

    def note(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if src == member and datagram[2] == HEARTBEAT:
            taken, worked = (int.from_bytes(datagram[at : at + 8], "little") for at in (120, 128))
            reported.append((taken, worked))
        return False

    net.drop = note
    return reported


def test_an_application_that_waits_in_a_send_does_not_work_and_works_on_afterwards():
    group = Group(2)
    net, answers = group.net, group.net.engines[1]
    reported = works_of(net, 1)
    assert isinstance(group.take(1, 1), int), "the marker of the view"
    net.send_all((0,), MS)
    assert isinstance(group.take(1, 1 << 16), Batch)

    def run(ms: int) -> None:
        for _ in range(ms):
            net.step(take=False)
            net.take(0)

    run(100)
    taken = reported[-1][0]
    rest = answers.rests(net.now)
    assert rest > 0
    net.send_all((0,), MS)
    run(150)
    while (item := answers.deliver(1 << 16, net.now, keeps=True)) is not None:
        group.kept[1].append(item)
    assert answers.rests(net.now) == rest, "it waits still"
    run(150)
    answers.works_on(rest, net.now)
    run(100)
    assert reported[-1][0] == taken > 0 and 190 * MS < reported[-1][1] < 260 * MS
    assert isinstance(group.take(1, 1), Batch), "a kept one"
    run(100)
    assert reported[-1][0] > taken and 290 * MS < reported[-1][1] < 370 * MS


def test_the_end_of_a_wait_is_not_that_of_another_thread_that_has_taken_since():
    group = Group(2)
    net, answers = group.net, group.net.engines[1]
    reported = works_of(net, 1)
    group.take(1, 1)
    rests = []
    for _ in range(2):
        net.send_all((0,), MS)
        assert isinstance(group.take(1, 1024), Batch)
        rests.append(answers.rests(net.now))
    answers.works_on(rests[0], net.now)
    net.run(100, take=False)
    assert reported[-1][1] < 10 * MS, "the thread that took last waits"
    answers.works_on(rests[1], net.now)
    answers.works_on(rests[1], net.now)
    net.run(100, take=False)
    assert 40 * MS < reported[-1][1] < 110 * MS


def test_all_packets_of_a_large_message_count_though_each_is_kept_by_itself():
    group = Group(3)
    net, taken = group.net, {}

    def hold(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if datagram[2] == HEARTBEAT:
            taken[src] = int.from_bytes(datagram[120:128], "little")
        return datagram[2] == DATA and int.from_bytes(datagram[32:40], "little") > number

    number = batches = 0
    net.drop = hold
    assert net.engines[0].send(bytes(5000)) == SENT
    for number in range(6):  # noqa: B007 (`hold` reads it)
        net.run(60, take=False)
        net.take(2)
        while (item := net.engines[1].deliver(1 << 20, net.now, keeps=True)) is not None:
            group.kept[1].append(item)
            batches += isinstance(item, Batch)
    assert batches == 1 and taken[1] == 0 and taken[2] > 5000
    while group.kept[1]:
        group.take(1, 1)
    net.run(60, take=False)
    assert taken[1] == taken[2]


def test_a_message_of_which_a_part_was_kept_counts_whole_though_the_rest_is_not():
    group = Group(2)
    net, engine = group.net, group.net.engines[1]
    reported = works_of(net, 1)
    note, most = net.drop, 2

    def hold(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        return note(src, dst, lane, datagram) or (
            datagram[2] == DATA and int.from_bytes(datagram[32:40], "little") > most
        )

    net.drop = hold
    assert net.engines[0].send(bytes(5000)) == SENT
    net.run(60, take=False)
    assert isinstance(engine.deliver(1 << 20, net.now, keeps=True), int), "the marker of the view"
    assert engine.deliver(1 << 20, net.now, keeps=True) is None
    most = 9
    net.run(60, take=False)
    assert isinstance(engine.deliver(1 << 20, net.now), Batch)
    net.run(60, take=False)
    assert reported[-1][0] > 5000


@pytest.mark.parametrize("keeps", [False, True])
def test_a_batch_that_is_put_back_counts_once_and_the_work_on_it_each_time(keeps):
    """As after each error of the journal."""
    group = Group(2)
    net, engine = group.net, group.net.engines[1]
    reported = works_of(net, 1)
    group.take(1, 1)
    net.send_all((0,), MS)
    batch = engine.deliver(1024, net.now, keeps=keeps)
    net.run(60, take=False)
    for _ in range(3):
        engine.takes(batch, net.now)
        net.run(60, take=False)
    taken, worked = reported[-1]
    assert 0 < taken < 2 * batch.nbytes and worked > 130 * MS


def test_heartbeats_report_the_work_on_the_batch_that_the_application_still_has():
    group = Group(2)
    reported = works_of(group.net, 1)
    group.work(500, {0: 1000, 1: 100})
    times = [worked for _, worked in reported]
    assert max(times) > 400 * MS
    assert times == sorted(times) and len({*times[2:]}) == len(times[2:]), "it works all the time"


def test_heartbeats_that_come_late_make_nobody_fast():
    group, late = Group(4, slow_ns=500 * MS), []
    net = group.net

    def note(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if src == 2 and datagram[2] == HEARTBEAT and not late:
            late.append(datagram)
        return False

    net.drop = note
    group.run(500, dict.fromkeys(range(4), 500))
    group.run(1300, {2: 0})
    assert group.slow()[0] == [2]
    for _ in range(120):
        group.run(1, {2: 0})
        net.engines[0].receive(late[0], bytes([3]), net.now)
    assert len(group.told[0]) == 1, "it stays named"


def test_the_slowest_for_long_is_too_slow_soon_after_it_stops():
    group, rates = Group(4, slow_ns=200 * MS), {0: 1000, 1: 1000, 2: 250, 3: 1000}
    group.work(2 * SECOND_MS, rates)
    assert group.slow()[0] == []
    group.work(500, {**rates, 2: 1})
    assert group.slow()[0] == [2]


def test_nor_is_the_slowest_for_that_once_this_member_did_not_run():
    group, rates = Group(4), {0: 1000, 1: 1000, 2: 250, 3: 1000}
    group.work(5 * SECOND_MS, rates)
    group.net.now += 20 * 10**9
    group.work(200, rates)
    assert group.slow()[0] == []


def test_one_that_could_take_a_quarter_skips():
    group = Group(4, skips=True)
    group.work(3 * SECOND_MS, {0: 1000, 1: 1000, 2: 250, 3: 1000})
    assert [engine.counters()["packets_skipped"] > 0 for engine in group.net.engines] == [False, False, True, False]


@pytest.mark.parametrize(("n", "stopped"), [(2, (1,)), (3, (1, 2)), (4, (1, 2)), (4, (1, 2, 3)), (4, (0, 1))])
def test_nobody_is_too_slow_if_half_of_the_members_are(n, stopped):
    group = Group(n)
    group.run(6 * SECOND_MS, dict.fromkeys(stopped, 0))
    assert group.slow() == [[] for _ in range(n)]


@pytest.mark.parametrize("deliver_own", [True, False])
def test_two_senders_of_four_that_take_nothing_themselves_do_not_name_each_other(deliver_own):
    """Without its own messages a sender has nothing left to take of its own stream, but much of the other's."""
    group = Group(4, deliver_own=deliver_own)
    group.run(4 * SECOND_MS, {0: 0, 1: 0}, senders=(0, 1))
    assert group.slow() == [[], [], [], []]
    group.run(3 * SECOND_MS, {1: 0}, senders=(0, 1))
    assert group.slow()[0] == [1], "alone it is named by a sender that takes all"


@pytest.mark.parametrize(("takes", "slow"), [({1: 40, 2: 40}, []), ({1: 4000, 2: 40}, [2])])
def test_other_members_that_only_send_count_for_nobody(takes, slow):
    group = Group(6, only_send=(3, 4, 5))
    group.run(6 * SECOND_MS, {0: 4000, **takes})
    assert group.slow()[0] == slow


def test_a_sender_that_takes_nothing_is_one_as_any_other_sender():
    group = Group(4, only_send=(0, 1))
    group.run(3 * SECOND_MS, {3: 0})
    assert group.slow()[0] == [3], "its receivers are 2 and 3"


def test_a_sender_in_bursts_calls_nobody_slow():
    group = Group(4)
    for _ in range(20):
        group.run(20, {1: 2000, 2: 1000, 3: 2000})
        group.run(300, {1: 2000, 2: 1000, 3: 2000}, senders=())
    assert group.slow() == [[], [], [], []]


def test_one_that_stops_after_a_time_of_full_load_is_too_slow_as_soon_as_any_other():
    """As long as the sender is the fastest, all receivers have something left at each look."""
    group, rates = Group(4), {1: 1500, 2: 1500, 3: 1500}
    group.run(6 * SECOND_MS, rates)
    assert group.slow()[0] == []
    group.run(2200, {**rates, 2: 0})
    assert group.slow()[0] == [2]


@pytest.mark.long
def test_pauses_of_half_the_time_exclude_nobody():
    group = Group(4)
    for _ in range(4):
        group.run(SECOND_MS, {2: 0})
        group.run(SECOND_MS, {})
    assert group.slow() == [[], [], [], []]


def test_with_block_nobody_is_called_too_slow():
    group = Group(4, slow_ns=0)
    group.run(6 * SECOND_MS, {2: 0})
    assert group.slow() == [[], [], [], []] and group.told == [[], [], [], []]


def test_one_receiver_is_named_at_a_time():
    group = Group(6)
    group.run(3 * SECOND_MS, {2: 0, 4: 0})
    assert group.slow()[0] == [4], "the last in rank"


def test_no_time_counts_in_which_the_gate_is_closed():
    group = Group(4)
    group.run(SECOND_MS, {2: 0})
    group.net.engines[0].gate_close()
    group.run(3 * SECOND_MS, {2: 0}, senders=())
    assert group.slow() == [[], [], [], []]


def test_no_time_counts_in_which_this_member_did_not_run():
    group = Group(4)
    group.run(SECOND_MS, {2: 0})
    group.net.now += 3 * 10**9
    group.run(200, {2: 0})
    assert group.slow()[0] == []


def test_a_member_that_takes_over_the_state_is_not_slow():
    group = Group(4)
    group.net.engines[2].state_want(group.net.ids[0])
    group.run(4 * SECOND_MS, {2: 0})
    assert group.slow() == [[], [], [], []]
    group.net.engines[2].state_void(0)
    group.run(3 * SECOND_MS, {2: LOADS})
    assert group.slow()[0] == [], "it has the state, and its application loads it"
    group.run(3 * SECOND_MS, {2: 0})
    assert group.slow()[0] == [2], "it has taken over the state, and takes nothing"


@pytest.mark.parametrize(("stay", "named"), [([0, 1, 2, 3, 4], True), ([0, 1, 2, 3], False)])
def test_a_view_that_has_lost_a_member_begins_without_evidence_and_any_other_goes_on(stay, named):
    """So a network that makes all receivers slow in turn does not empty the group."""
    group = Group(5)
    group.run(1900, {2: 0})
    net = group.net
    for engine in net.engines:
        engine.gate_close()
    net.run(300)
    cut = [engine.last_sent() for engine in net.engines]
    net.install(stay, sequencer=-1, tag=2, marker=2, base=[cut[i] for i in stay], cuts=dict.fromkeys(stay, cut))
    net.engines = net.engines[: len(stay)]
    group.run(SECOND_MS, {2: 0})
    assert (group.slow()[0] == [2]) == named
