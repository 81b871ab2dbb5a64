"""Safe delivery: a message is delivered when all members of the view have it in order, or when the view ends."""

from __future__ import annotations

import random

import pytest
from engines import MS, Net, change_view, feed, messages, of_sender

from seqcast._native.engine import SENT
from seqcast.core import orders
from seqcast.types import Member

TOTAL = ["records", "sequencer", "grant", "total-1999"]
ORDERS = [*TOTAL, "causal", "fifo"]
DATA, RECORD = 1, 14


def group(order: str, n: int = 3, sequencer: int = 0, window: int = 1 << 20) -> Net:
    mechanism = orders.by_name(order)
    first = mechanism.sequencer([Member(str(rank), rank) for rank in range(n)], lambda members: sequencer)
    return Net(n, sequencer=first, mechanism=mechanism.number, safe=True, window=window)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sequencer", [0, 2])
def test_all_members_deliver_all_messages_in_one_order(order: str, sequencer: int) -> None:
    """Under loss, with windows that are often full: waiting messages must not stop the acks that release them."""
    net, rng = group(order, 3, sequencer, window=30_000), random.Random(1)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.1
    sent = {i: messages(i, 300) for i in range(3)}
    feed(net, sent)
    assert order not in TOTAL or net.got[0] == net.got[1] == net.got[2]
    for i in range(3):
        assert [of_sender(net, at, i) for at in range(3)] == [sent[i]] * 3
    assert net.transitional == [[]] * 3


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sender", [0, 1, 2])
def test_nothing_is_delivered_anywhere_before_every_member_has_it_in_order(order: str, sender: int) -> None:
    net = group(order)
    net.run(5)
    lacking = 1 if sender == 2 and order in ("grant", "causal", "fifo") else 2  # there, none lacks its own packet
    net.drop = lambda src, dst, lane, datagram: dst == lacking and datagram[2] in (DATA, RECORD)
    assert net.engines[sender].send(b"x") == SENT
    net.run(100)
    assert not any(net.got)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert net.got == [[(net.ids[sender], b"x")]] * 3


def test_a_sender_that_lacks_the_record_of_its_own_packet_holds_it_back_at_every_member() -> None:
    """A member that alone has the packet would deliver it in another place."""
    net = group("records")
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 1 and datagram[2] == RECORD
    net.engines[1].send(b"x")
    net.run(100)
    assert not any(net.got)


@pytest.mark.parametrize("order", ORDERS)
def test_an_idle_group_delivers_within_a_few_hops_and_half_a_delay_of_acks(order: str) -> None:
    net = group(order)
    net.run(5)
    net.engines[1].send(b"x")
    net.run(20, MS // 10)
    assert all(net.got)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(6))
def test_a_member_that_falls_has_delivered_nothing_that_survivors_do_not_deliver_in_its_place(
    order: str, seed: int
) -> None:
    """Whatever the verdict is, and whoever heard last. Undecided messages are transitional, and the same for
    survivors."""
    net, rng = group(order, 4, window=30_000), random.Random(seed)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.2
    for number in range(rng.randrange(50, 200)):
        sender = rng.randrange(4)
        net.engines[sender].send(bytes([sender]) + number.to_bytes(4, "little") + bytes(rng.randrange(3000)))
        if rng.random() < 0.3:
            net.step(rng.randrange(5 * MS))
    fallen = seed % 4
    survivors = [i for i in range(4) if i != fallen]
    net.drop = lambda src, dst, lane, datagram: fallen in (src, dst) or rng.random() < 0.1
    before = {i: len(net.got[i]) for i in survivors}
    change_view(net, survivors, survivors, sequencer=0 if order in TOTAL else -1, tag=2, steps=2000)
    net.run(5)
    first, *others = survivors
    late = net.transitional[first]
    assert orders.by_name(order).resends or late
    assert not late or before[first] <= late[0]
    streams = [None] if order in TOTAL else range(4)
    for stream in streams:
        most = of(net, first, stream)
        for i in others:
            both = min(len(of(net, i, stream)), len(most))
            assert of(net, i, stream)[:both] == most[:both]
            assert order not in TOTAL or both > max(late, default=0)
        assert of(net, fallen, stream) == most[: len(of(net, fallen, stream))]


def of(net: Net, i: int, stream: int | None) -> list[object]:
    """Member i's deliveries of one sender; None: of all."""
    return [each for each in net.got[i] if stream is None or each[0] == net.ids[stream]]


def test_a_view_that_ends_without_a_loss_leaves_nothing_undecided() -> None:
    """All members hold the cut."""
    net = group("records")
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: lane != 0 and datagram[2] == 4  # no acks
    net.engines[1].send(b"x")
    net.step(10_000)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(2)
    assert net.got == [[(net.ids[1], b"x")]] * 3 and net.transitional == [[]] * 3


def test_unicasts_and_events_inside_a_view_do_not_wait() -> None:
    net = group("records")
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 2
    net.engines[0].send(b"x")
    net.step()
    net.engines[0].send(b"to one", to=net.ids[1])
    net.engines[1].mark(9)
    net.run(20)
    assert net.got[1] == [(net.ids[0], b"to one")] and net.markers[1] == [1, 9]


def test_an_excluded_member_is_delivered_nothing_that_only_a_successor_of_its_view_would_decide() -> None:
    net = group("records")
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: dst == 2
    net.engines[0].send(b"x")
    net.run(3)
    assert not net.got[1]
    net.engines[1].close_view(None, 3)
    net.take(1)
    assert net.got[1] == [] and net.markers[1] == [1, 3]
