"""How many acknowledgements a sender gets, by the number of members: bench/acks.py, in virtual time."""

from __future__ import annotations

from argparse import Namespace

import pytest
from benches import bench_of
from halves import first_quick

bench = bench_of("acks")

SETTINGS = Namespace(rcvbuf=8 << 20, mtu=65536, megabytes_per_s=1000.0, turn_us=200, ms=40)


@pytest.mark.parametrize("members", first_quick([8, 32, 64]))
def test_a_sender_gets_at_most_one_ack_for_two_packets_however_many_receive(members: int) -> None:
    _, _, packets, acks, _, rate, probes, again = bench.run(members, 1, SETTINGS).split()
    assert int(packets) > 100 and float(acks) <= 0.5
    assert float(rate) > 0.9 and int(probes) == int(again) == 0, "so few acks keep nobody waiting"
