"""When receivers vote for stability by their acknowledgements, and the packets purged by them."""

from __future__ import annotations

from collections import Counter

import pytest
from engines import MS, Net
from members import group_of, payloads, wait_until

from seqcast._native.engine import SENT

ACK = 4


def acks_of(net: Net, sends: int, size: int) -> int:
    """How many acknowledgements the receiver sends for this many packets that come within no time."""
    net.step()  # each knows that the other is in the view
    for _ in range(sends):
        net.engines[0].send(bytes(size))
        net.step(0)
    return net.engines[1].counters()["acks_sent"]


@pytest.mark.parametrize(
    ("settings", "acks"),
    [
        ({}, 4),  # a packet of 1375 bytes is 2304 in a receive buffer; a quarter of the window is 50 000
        ({"ack_bytes": 1500}, 100),
        ({"ack_bytes": 16_000}, 14),
        ({"ack_bytes": 1 << 30}, 2),  # half a window, not more: the sender would have no credit
        ({"ack_packets": 10}, 10),
    ],
)
def test_an_acknowledgement_is_sent_by_bytes_and_by_packets(settings: dict[str, int], acks: int) -> None:
    """STA-02."""
    net = Net(2, window=200_000, ack_delay_ns=10**12, **settings)
    assert acks_of(net, 100, 1375) == acks
    assert net.engines[0].stream(0)[2] >= 100 - 100 // acks - 1


def test_without_either_it_is_sent_by_time() -> None:
    """STA-02."""
    net = Net(2, ack_delay_ns=3 * MS)
    assert acks_of(net, 1, 10) == 0
    net.step(2 * MS)
    assert net.engines[1].counters()["acks_sent"] == 0
    net.step(1 * MS)
    net.step(0)
    assert net.engines[1].counters()["acks_sent"] == 1 and net.engines[0].stream(0)[2] == 1


def test_the_receivers_of_a_multicast_do_not_answer_all_at_once() -> None:
    """40 members: 39 acknowledgements for one message, in the second half of the delay (STA-04), which is an
    eighth of the setting for each receiver."""
    net, step = Net(40, ack_delay_ns=4 * MS, probe_ns_min=10**11, heartbeat_ns=10**12, suspect_ns=10**15), MS // 10
    when: Counter[int] = Counter()

    def see(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        when[net.now - sent] += datagram[2] == ACK
        return False

    net.run(2)
    sent, net.drop = net.now, see
    net.engines[0].send(b"x")
    net.run(210, step)
    delays = sorted(delay for delay, acks in when.items() if acks)
    assert sum(when.values()) == 39 and max(when.values()) <= 8
    assert 39 * MS // 4 <= delays[0] and delays[-1] <= 39 * MS // 2 + step
    assert net.engines[0].stream(0)[2] == 1


def test_nobody_purges_a_packet_that_one_member_lacks() -> None:
    """STA-01, STA-03: each member votes by its deliveries, and the minimum of all is stable: one that is cut off
    holds up every purge, and gets everything later."""
    net = Net(3)
    net.drop = lambda src, dst, lane, datagram: dst == 2
    for i in range(50):
        net.engines[0].send(b"%d" % i)
        net.step()
    net.run(100)
    assert net.engines[0].stream(0)[2] == 0 and net.engines[1].stream(0)[0] == 50
    net.drop = lambda src, dst, lane, datagram: False
    net.run(200)
    assert [payload for _, payload in net.got[2]] == [b"%d" % i for i in range(50)]
    assert net.engines[0].stream(0)[2] == 50 and sum(e.counters()["retransmit_missing"] for e in net.engines) == 0


def test_a_packet_is_asked_of_a_member_that_received_it_though_that_one_lacks_an_earlier_one() -> None:
    """DIG-07: the sender is gone, and nobody has its first packet: nobody delivers the second, and members still repair
    it."""
    net = Net(3, suspect_ns=50 * MS)
    for number, reached in enumerate(((), (1,), (1, 2)), 1):
        net.drop = lambda src, dst, lane, datagram, reached=reached: dst not in reached
        assert net.engines[0].send(b"%d" % number) == SENT
        net.step(1000)
    assert [net.engines[i].held(0) for i in (1, 2)] == [(0, [(2, 3)]), (0, [(3, 3)])]
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    net.run(500)
    assert [net.engines[i].held(0) for i in (1, 2)] == [(0, [(2, 3)]), (0, [(2, 3)])]


def test_the_settings_reach_the_engine() -> None:
    """Each message is acknowledged by itself, and none of the acks waits for ``ack_delay_s``."""
    with group_of(2, order="fifo", ack_packets=1, ack_delay_s=1.0, probe_s_min=1.0, probe_s_max=2.0) as (a, b):
        before = b.counters()["acks_sent"]
        for i in range(20):
            a.send(b"%d" % i)
            assert payloads(b, 1) == [b"%d" % i]
        # A probe, which is answered by an ack, goes to a member that enters the view after this one has sent.
        assert 20 <= b.counters()["acks_sent"] - before <= 20 + a.counters()["probes_sent"]
        wait_until(lambda: a._runner.engine.stream(0)[2] == 20)
