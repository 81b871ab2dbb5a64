"""Causal order: a packet waits for its sender's earlier deliveries, by the record before it."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from engines import MS, Net, change_view, feed, messages, of_sender
from hostile.forge import Forger

from seqcast._native.engine import SENT
from seqcast.core import orders

DATA, RECORD = 1, 14


def kind(datagram: bytes) -> int:
    return datagram[2]


def group(n: int = 3, **settings: Any) -> Net:
    return Net(n, mechanism=orders.by_name("causal").number, **settings)


def payloads(net: Net, i: int) -> list[bytes]:
    return [payload for _, payload in net.got[i]]


def check_causes(net: Net, causes: dict[bytes, list[bytes]]) -> None:
    for i in range(len(net.engines)):
        place = {payload: at for at, payload in enumerate(payloads(net, i))}
        for message, before in causes.items():
            late = [each for each in before if place.get(each, -1) > place.get(message, len(place))]
            assert not late, f"{i} has {late[:2]} behind {message!r}"


def test_an_answer_waits_for_the_question_if_that_comes_later() -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (0, 2)
    net.engines[0].send(b"question")
    net.run(2)
    net.engines[1].send(b"answer")
    net.run(2)
    assert payloads(net, 0) == payloads(net, 1) == [b"question", b"answer"] and not payloads(net, 2)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert payloads(net, 2) == [b"question", b"answer"]


def test_concurrent_messages_wait_for_nothing() -> None:
    net = group(3)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 0 and kind(datagram) == DATA
    net.engines[0].send(b"unheard")
    net.step()
    net.engines[1].send(b"of one")
    net.run(2)
    assert payloads(net, 1) == payloads(net, 2) == [b"of one"] and payloads(net, 0) == [b"unheard", b"of one"]


@pytest.mark.parametrize("seed", range(5))
def test_messages_come_after_their_causes_under_loss(seed: int) -> None:
    net, rng = group(4, window=30_000), random.Random(seed)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.2
    causes: dict[bytes, list[bytes]] = {}
    for k in range(200):
        i = rng.randrange(4)
        message = b"%d of %d " % (k, i) + bytes(rng.randrange(3000))
        known = payloads(net, i)
        if net.engines[i].send(message) == SENT:
            causes[message] = known
        net.step(rng.randrange(3 * MS))
    net.drop = lambda src, dst, lane, datagram: False
    net.run(600)
    assert all(sorted(net.got[i]) == sorted(net.got[0]) and len(net.got[i]) == len(causes) for i in range(4))
    check_causes(net, causes)
    assert net.got[0] != net.got[1], "concurrent messages differ in order: otherwise nothing was tried"


def test_windows_that_are_often_full_do_not_stop_it() -> None:
    net, rng = group(3, window=20_000, ring_packets=64), random.Random(1)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.1
    sent = {i: messages(i, 200) for i in range(3)}
    feed(net, sent)
    assert all(of_sender(net, i, j) == sent[j] for i in range(3) for j in range(3))


def test_a_record_names_only_changed_entries() -> None:
    net = group(64)
    net.run(3)
    sizes: list[int] = []

    def watch(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if src == 0 and kind(datagram) == RECORD:
            sizes.append(len(datagram))
        return False

    net.drop = watch
    for i in (1, 2, 3):
        net.engines[i].send(b"%d" % i)
    net.step()
    net.engines[0].send(b"after three")
    net.engines[0].send(b"and with it")
    net.step()
    assert set(sizes) == {80 + 3 * 4} and len(sizes) == 63, "one record, for 63 members"
    sizes.clear()
    net.engines[0].send(b"nothing new")
    net.step()
    assert not sizes


@pytest.mark.long
def test_all_sixty_four_members_may_be_causes() -> None:
    net = group(66)
    net.run(3)
    for i in range(1, 66):
        net.engines[i].send(b"%d" % i)
    net.step()
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (65, 1)
    net.engines[65].send(b"late")
    net.step()
    net.engines[0].send(b"after all")
    net.run(2)
    assert payloads(net, 2)[-2:] == [b"late", b"after all"] and b"after all" not in payloads(net, 1)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(25, 2 * MS)
    assert payloads(net, 1)[-2:] == [b"late", b"after all"] and len(payloads(net, 1)) == 67


def test_a_member_that_only_listens_reports_its_position_before_the_record_is_too_large() -> None:
    """A count has 16 bits, and the records before one packet are bounded."""
    net = group(2, ring_packets=256)
    net.run(3)
    sent = 0
    while sent < 40_000:
        while sent < 40_000 and net.engines[0].send(bytes(1300)) == SENT:
            sent += 1
        net.step(200_000)
    net.run(5)
    assert net.engines[1].counters()["records"] == 1 and len(net.got[1]) == 40_000
    net.engines[1].send(b"after them")
    net.run(5)
    assert payloads(net, 0)[-1] == b"after them" and net.engines[1].counters()["records"] == 2


@pytest.mark.parametrize("seed", range(6))
def test_survivors_messages_are_delivered_in_their_view_and_after_their_causes(seed: int) -> None:
    net, rng = group(4, window=30_000), random.Random(seed)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.3
    causes: dict[bytes, list[bytes]] = {}
    for k in range(150):
        i = rng.randrange(4)
        message, known = b"%d of %d" % (k, i), payloads(net, i)
        if net.engines[i].send(message) == SENT:
            causes[message] = known
        net.step(rng.randrange(2 * MS))
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst) or rng.random() < 0.1
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=-1, tag=2, steps=2000)
    for i in (1, 2, 3):
        net.take(i)
        assert sorted(net.got[i]) == sorted(net.got[1])
        assert [of_sender(net, i, j) for j in (1, 2, 3)] == [
            [message for message in causes if message.endswith(b"of %d" % j)] for j in (1, 2, 3)
        ]
    check_causes(net, causes)


def test_a_cause_that_no_survivor_has_is_not_waited_for() -> None:
    net = group(4)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: src == 3 and dst != 0 and kind(datagram) == DATA
    net.engines[3].send(b"question")
    net.run(2)
    net.engines[0].send(b"answer")
    net.run(2)
    assert payloads(net, 0) == [b"question", b"answer"] and not payloads(net, 1)
    net.drop = lambda src, dst, lane, datagram: bool({src, dst} & {0, 3})
    change_view(net, [1, 2], [1, 2], sequencer=-1, tag=2)
    net.run(10)
    assert payloads(net, 1) == payloads(net, 2) == [b"answer"]


def record(sender: int, *entries: tuple[int, int], seqno: int = 1) -> bytes:
    body = struct.pack("<QQQQIHH", 0, 0, 0, 0, 4 * len(entries), len(entries), sender - 100)
    body += b"".join(struct.pack("<HH", *each) for each in entries)
    return Forger(7).datagram(RECORD, sender, 1, body, seqno=seqno)


@pytest.mark.parametrize(("entry", "dropped"), [((2, 1), 0), ((1, 1), 1), ((3, 1), 1)])
def test_an_impossible_record_is_dropped(entry: tuple[int, int], dropped: int) -> None:
    net = group(3)
    net.engines[0].receive(record(101, entry), bytes([2]), net.now)
    assert net.engines[0].counters()["drop_field"] == dropped


def test_members_that_claim_to_wait_for_each_other_end_with_the_view() -> None:
    net = group(3)
    net.drop = lambda src, dst, lane, datagram: True
    for sender, other in ((101, 2), (102, 1)):
        datagram = record(sender, (other, 5))
        for dst in range(3):
            if 100 + dst != sender:
                net.engines[dst].receive(datagram, bytes([sender - 99]), net.now)
    cut = [0, 1, 1]
    for i, engine in enumerate(net.engines):
        engine.gate_close()
        engine.freeze([])
        assert i or engine.stream(1)[0] == 0
    net.engines[0].cut(cut, [])
    assert net.engines[0].cut_reached()
    net.install([0], sequencer=-1, tag=2, marker=2, base=[0], cuts={0: cut})
    assert net.engines[0].send(b"goes on") == SENT
    net.run(3)
    assert payloads(net, 0)[-1] == b"goes on"
