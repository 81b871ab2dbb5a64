"""A flood of packets at a member without multicast that receives slowly: heartbeats reach the member all the same."""

from __future__ import annotations

import os
import signal
import time

import pytest
from netns import network, python  # noqa: F401
from talkers import await_, talkers

pytestmark = [pytest.mark.netns, pytest.mark.long]

FLOOD = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
packet, end = bytes([0xC5, 2, 1]) + bytes(1400), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(100):
        out.sendto(packet, (sys.argv[1], 47310))
    time.sleep(0.002)
"""
FLOOD_S = 3.0
STOPPED_S, RUNS_S = 0.08, 0.008


def dropped(place):
    """Datagrams that the sockets there dropped for want of room: of the first and the second one at the port."""
    rows = sorted(line.split() for line in place.run("cat", "/proc/net/udp").splitlines() if ":B8CE 00000000:" in line)
    return [int(row[-1]) for row in sorted(rows, key=lambda row: int(row[9]))]


def test_a_flood_of_packets_at_a_slow_member_makes_nobody_suspected(network):  # noqa: F811
    seeds = [f"10.99.0.{number}" for number in (1, 2, 3)]
    settings = {"transport": "unicast", "seeds": seeds, "rcvbuf": 65_536}
    with talkers(network[:3], "abc", **settings) as made:
        views = [len(each.of("view")) for each in made]
        slow = made[0].process.pid
        with python(network[3], "-c", FLOOD, "10.99.0.1", str(FLOOD_S)) as flood:
            while flood.poll() is None:
                os.kill(slow, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(slow, signal.SIGCONT)
                time.sleep(RUNS_S)
        packets, others = dropped(network[0])
        assert packets > 10_000 and others == 0
        assert [len(each.of("view")) for each in made] == views
        marks = [each.got("a") for each in made]
        await_(made, lambda: all(each.got("a") > mark + 20 for each, mark in zip(made, marks, strict=True)))
