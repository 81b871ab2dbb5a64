"""The deadline that an engine names: its driver sleeps until then, so an engine acts by time only with a deadline."""

from __future__ import annotations

import random

import pytest
from engines import MS, Net

from seqcast._native.engine import LANE_UNICAST, SENT
from seqcast.core import orders
from seqcast.reports import MemberStarved

DATA, TOTAL, WANT = 1, 15, 20
ORDERS = ["records", "sequencer", "grant", "total-1999", "causal", "fifo"]
SETTINGS: list[dict[str, object]] = [{}, {"safe": True}, {"share": 5_000, "room": 45_000}]
CASES = [*((order, each) for order in ORDERS for each in SETTINGS), ("records", {"policy_ns": 20 * MS})]


class Early(Net):
    """Engines that are ticked just before the next deadline, too, and then have nothing to do."""

    then = 0

    def move(self) -> int:
        due, moved = self.now, 0
        if due > self.then + 1:
            self.now = due - 1
            while more := super().move():  # datagrams that the application has caused
                moved += more
            for engine in self.engines:
                engine.reports()
                engine.tick(self.now)
                assert not engine.transmit(self.now) and not engine.reports(), "it acts before its deadline"
        self.now = self.then = due
        return moved + super().move()


@pytest.mark.parametrize(("order", "settings"), CASES)
def test_an_engine_has_nothing_to_do_before_its_deadline(order: str, settings: dict[str, object]) -> None:
    """Messages of all kinds, state, waits and silence, under loss; then one member's multicasts are lost, and then all
    that another one should hear."""
    rng, mechanism = random.Random(order), orders.by_name(order)
    sequencer = 0 if mechanism.total else -1
    net = Early(3, sequencer=sequencer, mechanism=mechanism.number, window=35_000, **settings)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.1
    net.engines[0].stand(b"standing", 70 * MS, 20, net.now)
    net.engines[1].state_want(net.ids[2])
    for _ in range(200):
        sender = rng.randrange(3)
        for _ in range(rng.choice([0, 1, 3, 40])):
            net.engines[sender].send(bytes(rng.choice([20, 1000])))
        if rng.random() < 0.3:
            net.engines[sender].send(b"one", to=net.ids[(sender + 1) % 3])
        if rng.random() < 0.1:
            net.engines[sender].consumed(net.now)
        if rng.random() < 0.2:
            net.engines[2].state_send(bytes(2000), net.ids[1])
            net.engines[1].state_read(net.ids[2], 1 << 20, net.now)
        net.step(rng.choice([0, MS // 10, 3 * MS, 100 * MS]))
    net.drop = lambda src, dst, lane, datagram: src == 1 and lane != LANE_UNICAST
    net.run(100, 20 * MS)
    net.drop = lambda src, dst, lane, datagram: dst == 2
    assert net.engines[0].send(b"more") == SENT
    net.run(100, 20 * MS)


def group(order: str, n: int = 3, **settings: object) -> Net:
    net = Net(n, sequencer=0, mechanism=orders.by_name(order).number, **settings)
    net.run(5)
    return net


def test_places_are_asked_for_again_after_the_back_off() -> None:
    net, asked = group("grant", nak_backoff_ns_min=8 * MS), []
    net.drop = lambda src, dst, lane, datagram: datagram[2] == WANT and not asked.append(net.now)
    net.engines[1].send(b"x")
    net.step(40 * MS, take=False)
    assert 8 * MS <= asked[1] - asked[0] <= 10 * MS


def test_a_member_that_keeps_a_place_is_reported_on_time() -> None:
    net = group("grant", suspect_ns_max=1111 * MS)
    net.drop = lambda src, dst, lane, datagram: src == 1 and datagram[2] == DATA
    net.engines[1].send(b"x")
    net.step(1110 * MS, take=False)
    net.engines[0].reports()
    net.step(MS, take=False)
    assert net.engines[0].reports() == [MemberStarved(net.ids[1])]


def test_a_packet_behind_a_gap_is_acknowledged_after_one_delay() -> None:
    net, heard = group("total-1999"), []
    net.drop = lambda src, dst, lane, datagram: dst == 2 and datagram[2] == DATA and datagram[32] == 2
    net.engines[0].send(b"1")
    net.run(5)

    def lose(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if src == 2 and datagram[2] == TOTAL:
            heard.append(net.now)
        return dst == 2 and datagram[2] == DATA and datagram[32] == 2

    net.drop, sent = lose, net.now
    net.engines[0].send(b"2")
    net.step(0)
    net.engines[0].send(b"3")
    net.step(30 * MS, take=False)
    assert heard and heard[0] == sent + 2 * MS


def test_a_silent_sender_keeps_only_its_share_after_one_delay() -> None:
    """The member has given the rest back, and may use none of those places."""
    net = group("fifo", window=80_000, share=10_000, room=90_000)

    def send() -> int:
        sent = 0
        while net.engines[0].send(bytes(1000)) == SENT:
            sent += 1
        return sent

    for _ in range(30):
        send()
        net.step()
    at_once = send()
    net.step(4 * MS)
    assert at_once > 3 * send() > 0
