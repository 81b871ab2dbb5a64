"""An order policy of the application, which is asked at the sequencer only, and never breaks an order per sender."""

from __future__ import annotations

import itertools
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from engines import Net, change_view, of_sender

from seqcast._native.engine import SENT
from seqcast.core import orders
from seqcast.core.orders.policy import Batch
from seqcast.net.ordering import Ordering
from seqcast.types import Member, OrderPolicy, View, WaitingPacket

MS = 1_000_000
RECORD = 14
LIMIT_MS = 10
MEMBERS = [Member(f"m{i}", 100 + i) for i in range(4)]


class Policy(OrderPolicy):
    """Orders by a key of each packet's first message."""

    def __init__(self, *answer: int) -> None:
        self.answer, self.seen = answer, [WaitingPacket(MEMBERS[0], 0, 0, 0, 0, b"")][:0]

    def order(self, batch: Sequence[WaitingPacket]) -> Sequence[int]:
        self.seen = list(batch)
        return self.answer or sorted(range(len(batch)), key=lambda at: batch[at].head[:1])


def group(**settings: Any) -> Net:
    net = Net(4, sequencer=0, mechanism=orders.by_name("records").number, policy_ns=LIMIT_MS * MS, **settings)
    net.run(2)
    return net


def urgent(net: Net) -> None:
    """Each member sends, the most urgent last."""
    for i, payload in ((1, b"3 low"), (2, b"2 middle"), (3, b"1 high")):
        assert net.engines[i].send(payload) == SENT
    net.run(2)


def payloads(net: Net, i: int) -> list[bytes]:
    return [payload for _, payload in net.got[i]]


def decide(net: Net, policy: OrderPolicy) -> bool:
    found = net.engines[0].offers()
    assert found is not None
    return net.engines[0].decide(found[0], Batch(*found, MEMBERS).ranks(policy), net.now)


def test_all_members_deliver_in_the_order_of_the_sequencers_policy() -> None:
    net, policy = group(), Policy()
    urgent(net)
    assert net.got == [[], [], [], []], "what waits for the policy is delivered nowhere"
    assert all(engine.offers() is None for engine in net.engines[1:]), "only the sequencer asks"
    assert decide(net, policy)
    net.run(5)
    assert all(payloads(net, i) == [b"1 high", b"2 middle", b"3 low"] for i in range(4))
    assert [(each.sender.name, each.messages, each.head) for each in policy.seen] == [
        ("m1", 1, b"3 low"), ("m2", 1, b"2 middle"), ("m3", 1, b"1 high"),
    ]  # fmt: skip
    assert net.engines[0].counters()["policy_batches"] == 1


def test_a_policy_cannot_put_a_senders_packet_before_an_earlier_one() -> None:
    net = group(packet=512)
    for payload in (b"3" * 400, b"1" * 400):
        assert net.engines[1].send(payload) == SENT
    assert net.engines[2].send(b"2" * 400) == SENT
    net.run(2)
    assert decide(net, Policy())
    net.run(5)
    for i in range(4):
        assert [payload[:1] for payload in payloads(net, i)] == [b"3", b"2", b"1"]
        assert [payload[:1] for payload in of_sender(net, i, 1)] == [b"3", b"1"]


def test_the_sequencers_own_messages_are_ordered_by_its_policy_too() -> None:
    """Whoever sent first: the least urgent message comes last, at every member."""
    net, policy = group(), Policy()
    assert net.engines[0].send(b"9 own") == SENT
    urgent(net)
    assert net.got == [[], [], [], []]
    assert decide(net, policy)
    net.run(5)
    assert [each.sender.name for each in policy.seen] == ["m0", "m1", "m2", "m3"]
    assert all(payloads(net, i) == [b"1 high", b"2 middle", b"3 low", b"9 own"] for i in range(4))


def test_a_sequencer_that_sends_alone_asks_its_policy_and_waits_no_longer_than_its_limit() -> None:
    net = group()
    assert net.engines[0].send(b"asked") == SENT
    net.run(2)
    assert not any(net.got) and decide(net, Policy())
    net.run(5)
    assert net.engines[0].send(b"late") == SENT
    net.run(2)
    assert [payloads(net, i) for i in range(4)] == [[b"asked"]] * 4
    net.run(LIMIT_MS + 3)
    assert [payloads(net, i) for i in range(4)] == [[b"asked", b"late"]] * 4
    assert net.engines[0].counters()["policy_late"] == 1


def test_a_sequencer_whose_ring_is_full_of_own_packets_that_wait_can_still_record_them() -> None:
    net = group(packet=512, ring_packets=64)
    sent = [bytes([k]) * 450 for k in range(60)]
    accepted = 0
    for _ in range(200):
        while accepted < 60 and net.engines[0].send(sent[accepted]) == SENT:
            accepted += 1
        net.step()
        if accepted > 50 and (found := net.engines[0].offers()) is not None:
            net.engines[0].decide(found[0], [offer[0] for offer in found[1]], net.now)
    assert [payloads(net, i) for i in range(4)] == [sent] * 4


def test_own_messages_beside_the_order_wait_for_earlier_own_ones_only() -> None:
    net = group()
    assert net.engines[0].send(b"first", ordered=False) == SENT
    net.run(2)
    assert [payloads(net, i) for i in range(4)] == [[b"first"]] * 4
    assert net.engines[0].send(b"2 own") == net.engines[0].send(b"last", ordered=False) == SENT
    assert net.engines[1].send(b"1 other") == SENT
    net.run(2)
    assert all(len(net.got[i]) == 1 for i in range(4)) and decide(net, Policy())
    net.run(5)
    assert [payloads(net, i) for i in range(4)] == [[b"first", b"1 other", b"2 own", b"last"]] * 4


def test_own_messages_that_the_policy_has_not_ordered_are_ordered_by_the_cut() -> None:
    """And a record that names a message which is not behind it waits for the end of the view, too."""
    net = group()
    net.drop = lambda src, dst, lane, datagram: src == 0 and datagram[2] == RECORD
    assert net.engines[0].send(b"2 own") == net.engines[1].send(b"1 other") == SENT
    net.run(2)
    assert decide(net, Policy())
    net.step()
    assert payloads(net, 0) == [b"1 other", b"2 own"] and not any(net.got[1:])
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.run(5)
    assert all(payloads(net, i) == [b"2 own", b"1 other"] for i in (1, 2, 3))
    assert all(net.transitional[i] == [0, 1] for i in (1, 2, 3)), "the sequencer had another order"


def test_without_an_answer_in_time_all_is_ordered_as_it_arrived_and_the_late_answer_is_void() -> None:
    net = group()
    urgent(net)
    found = net.engines[0].offers()
    assert found is not None
    net.run(LIMIT_MS + 3)
    assert all(payloads(net, i) == [b"3 low", b"2 middle", b"1 high"] for i in range(4))
    assert net.engines[0].counters()["policy_late"] == 1
    urgent(net)
    assert not net.engines[0].decide(found[0], [3, 2, 1], net.now)
    net.run(1)
    assert len(net.got[0]) == 3, "a late answer orders nothing of the next batch"
    assert decide(net, Policy())
    net.run(5)
    assert all(payloads(net, i)[3:] == [b"1 high", b"2 middle", b"3 low"] for i in range(4))


def test_a_policy_that_is_not_asked_at_all_delays_messages_by_its_limit_only() -> None:
    """The thread that would ask the policy is busy."""
    net = group()
    urgent(net)
    net.run(LIMIT_MS - 4)
    assert not net.got[0]
    net.run(6)
    assert all(len(net.got[i]) == 3 for i in range(4))


def test_if_the_policy_fails_the_batch_is_ordered_by_arrival() -> None:
    net = group()
    urgent(net)
    found = net.engines[0].offers()
    assert found is not None and net.engines[0].decide(found[0], None, net.now)
    net.run(3)
    assert all(payloads(net, i) == [b"3 low", b"2 middle", b"1 high"] for i in range(4))
    assert net.engines[0].counters()["policy_failed"] == 1


@pytest.mark.parametrize("answer", [(0, 1), (0, 1, 1), (1, 2, 3), (0, 1, 2, 3)])
def test_an_order_that_has_not_each_position_once_is_refused(answer: tuple[int, ...]) -> None:
    net = group()
    urgent(net)
    found = net.engines[0].offers()
    assert found is not None
    with pytest.raises(ValueError, match="each of the positions 0 to 2 once"):
        Batch(*found, MEMBERS).ranks(Policy(*answer))


def test_an_answer_without_end_is_refused() -> None:
    class Endless(OrderPolicy):
        def order(self, batch: Sequence[WaitingPacket]) -> Any:
            return itertools.count()

    net = group()
    urgent(net)
    found = net.engines[0].offers()
    assert found is not None
    with pytest.raises(ValueError, match="each of the positions 0 to 2 once"):
        Batch(*found, MEMBERS).ranks(Endless())


def test_the_cut_orders_messages_that_the_policy_has_not_ordered() -> None:
    """A view change does not wait for the policy, and an answer for the old view orders nothing in the new one."""
    net = group()
    urgent(net)
    found = net.engines[0].offers()
    assert found is not None
    change_view(net, [0, 1, 2, 3], [0, 1, 2, 3], sequencer=0, tag=2)
    assert not net.engines[0].decide(found[0], [3, 2, 1], net.now)
    net.run(5)
    assert all(payloads(net, i) == [b"3 low", b"2 middle", b"1 high"] for i in range(4))
    assert all(net.markers[i] == [1, 2] for i in range(4))


@pytest.mark.parametrize("seed", range(4))
def test_under_loss_and_little_credit_all_members_deliver_one_order(seed: int) -> None:
    net, rng = group(window=20_000), random.Random(seed)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.1
    todo = {i: [b"%d %d %s" % (i, k, bytes(rng.randrange(2000))) for k in range(150)] for i in range(4)}
    sent = {i: list(of) for i, of in todo.items()}
    for _ in range(6000):
        for i, left in todo.items():
            while left and net.engines[i].send(left[0], ordered=rng.random() < 0.9) == SENT:
                left.pop(0)
        net.step()
        found = net.engines[0].offers() if rng.random() < 0.7 else None
        if found is not None:
            ranks = [offer[0] for offer in found[1]]
            net.engines[0].decide(found[0], rng.sample(ranks, len(ranks)), net.now)
        if all(len(net.got[i]) == 600 for i in range(4)):
            break
    for i in range(4):
        assert [of_sender(net, i, j) for j in range(4)] == [sent[j] for j in range(4)]
    assert net.engines[0].counters()["policy_batches"] > 20


class Slow(OrderPolicy):
    """Answers its first batch when allowed."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.asked: list[bytes] = []

    def order(self, batch: Sequence[WaitingPacket]) -> Sequence[int]:
        self.asked += [packet.head for packet in batch]
        self.begun.set()
        self.go_on.wait(60)
        return range(len(batch))


class Members(list[Member]):
    """A list that can be referred to weakly."""


def in_view(members: Sequence[Member]) -> Callable[[int], View | None]:
    """The answer of ``Endpoint.view_tagged`` for the engine's view."""
    view = SimpleNamespace(members=members)
    return lambda tag: view if tag == 7 else None  # type: ignore[return-value]  # only its members are read


class Offering:
    """The engine from an order policy's point of view: offers one packet at a time."""

    def __init__(self) -> None:
        self.batch = 0
        self.decided: list[int] = []

    def view(self) -> int:
        return 7

    def offers(self) -> tuple[int, list[tuple[int, int, int, int, int, bytes]]]:
        self.batch += 1
        return self.batch, [(1, self.batch, 0, 1, 1, b"%d" % self.batch)]

    def decide(self, batch: int, ranks: list[int] | None, now_ns: int) -> bool:
        self.decided.append(batch)
        return True


@pytest.mark.parametrize(("ends", "asked"), [(False, [b"1", b"4"]), (True, [b"1"])])
def test_a_policy_that_was_slow_is_asked_about_the_newest_batch_only(ends: bool, asked: list[bytes]) -> None:
    """The engine gives up a batch before it offers the next one; a policy that fell behind must not stay behind."""
    policy, engine, newest = Slow(), Offering(), threading.Event()
    ordering = Ordering("a", policy, engine, lambda: newest.set() if len(engine.decided) == 2 else None)
    ordering.thread.start()
    ordering.look(in_view(MEMBERS))
    assert policy.begun.wait(60)
    views = [Members(MEMBERS) for _ in range(3)]
    alive = [weakref.ref(each) for each in views]
    while views:
        ordering.look(in_view(views.pop()))
    assert sum(each() is not None for each in alive) == 1, "if the policy hangs, nothing heaps up"
    if ends:
        ordering.stop()
    policy.go_on.set()
    if not ends:
        assert newest.wait(60)
        ordering.stop()
    ordering.thread.join(60)
    assert not ordering.thread.is_alive() and policy.asked == asked


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_policy_that_raises_is_asked_about_the_next_batch(error: type[BaseException]) -> None:
    class Raising(Slow):
        def order(self, batch: Sequence[WaitingPacket]) -> Sequence[int]:
            super().order(batch)
            raise error("a mistake of the application")

    policy, engine, decided = Raising(), Offering(), threading.Semaphore(0)
    policy.go_on.set()
    ordering = Ordering("a", policy, engine, decided.release)
    ordering.thread.start()
    for _ in range(2):
        ordering.look(in_view(MEMBERS))
        assert decided.acquire(timeout=60)
    ordering.stop()
    ordering.thread.join(60)
    assert (policy.asked, engine.decided) == ([b"1", b"2"], [1, 2])


def test_a_member_that_is_alone_has_delivered_only_messages_that_its_policy_has_ordered() -> None:
    """A member that leaves at once is told that the rest is lost."""
    net = Net(1, sequencer=0, mechanism=orders.by_name("records").number, policy_ns=LIMIT_MS * MS)
    assert net.engines[0].send(b"first") == SENT
    net.engines[0].transmit(net.now)
    own = net.engines[0].own()
    assert (own.last, own.any, own.all) == (1, 0, 0)
    net.run(2 * LIMIT_MS)
    own = net.engines[0].own()
    assert payloads(net, 0) == [b"first"] and (own.any, own.all) == (own.last, own.last)
