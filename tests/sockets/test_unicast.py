"""Groups without multicast, on real sockets: their members find each other by seeds."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from engines import make_engine
from members import LIMIT_S, cluster, environment, join, payloads, wait_until
from netns import lonely, network, python  # noqa: F401

import seqcast
from seqcast import ConfigError, JoinTimeout, NameTaken
from seqcast._native.driver import describe_address
from seqcast.net.opening import open_driver

RANGE = 8  # as in MEMBER
MEMBER = """
import sys, seqcast
cluster, name, port, seeds = sys.argv[1:]
with seqcast.join(cluster, name=name, transport="unicast", port=int(port), port_range=8, seeds=seeds) as group:
    print("in", flush=True)
    while (batch := group.recv_batch()) is not None:
        print(*[payload.decode() for payload in batch.tolist()], sep=chr(10), flush=True)
"""


def free_port() -> int:
    """A UDP port of loopback that is free, as are the ``RANGE`` ports after it."""
    while True:
        with contextlib.ExitStack() as asked, contextlib.suppress(OSError, OverflowError):
            first = 0
            for number in range(RANGE + 1):
                each = asked.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                each.bind(("127.0.0.1", first + number))
                first = first or int(each.getsockname()[1])
            return first


HERE = ("127.0.0.1",)


def alone(name: str, member: str, port: int, seeds: Sequence[str] = HERE, **settings: object) -> seqcast.Group:
    """Joins without multicast on loopback."""
    place = {"transport": "unicast", "port": port, "port_range": RANGE, "interface": "127.0.0.1"}
    return seqcast.join(name, name=member, **{**place, "seeds": list(seeds), "join_timeout_s": LIMIT_S, **settings})


def settled(*groups: seqcast.Group) -> None:
    """Waits until these are in one view, alone."""
    wait_until(lambda: all(len(each.view.members) == len(groups) for each in groups))


def packets_by_multicast(name: str, said: str, groups: list[seqcast.Group]) -> int:
    """Packets with messages that a socket that listens to the group's multicasts receives while each member sends."""
    from seqcast.net.opening import group_address

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        group = group_address(name, 4)
        heard.bind((group, 47310))
        member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
        heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        heard.setblocking(False)
        for number, each in enumerate(groups):
            each.send(f"{said} {number}".encode())
        for each in groups:
            assert len(payloads(each, len(groups))) == len(groups)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                count += heard.recv(65_536)[2] in (1, 14)
        return count


@pytest.mark.multicast
def test_with_multicast_two_members_send_each_other_unicasts_and_three_multicast():
    name = cluster()
    with join(name, "a") as a, join(name, "b") as b:
        settled(a, b)
        assert packets_by_multicast(name, "two", [a, b]) == 0
        with join(name, "c") as c:
            settled(a, b, c)
            assert packets_by_multicast(name, "three", [a, b, c]) > 0


@pytest.mark.parametrize("order", ["total", "fifo", "causal", "grant", "sequencer", "total-1999"])
def test_messages_of_a_group_without_multicast_reach_all_members_in_one_order(order):
    name, port = cluster(), free_port()
    with alone(name, "a", port, order=order) as a, alone(name, "b", port, order=order) as b:
        with alone(name, "c", port, order=order) as c:
            settled(a, b, c)
            for number in range(100):
                for member, each in zip("abc", (a, b, c), strict=True):
                    each.send(f"{member} {number}".encode())
            came = [payloads(each, 300) for each in (a, b, c)]
            assert sorted(came[0]) == sorted(came[1]) == sorted(came[2])
            if order not in ("fifo", "causal"):
                assert came[0] == came[1] == came[2]
        settled(a, b)  # c has left


@pytest.mark.long
def test_a_member_that_is_killed_is_noticed_and_one_that_knows_a_single_seed_comes_back():
    name, port = cluster(), free_port()
    arguments = [sys.executable, "-c", MEMBER, name]
    with alone(name, "a", port) as a, alone(name, "b", port) as b:
        settled(a, b)
        for _ in range(2):
            with subprocess.Popen(
                [*arguments, "c", str(port), f"127.0.0.1:{port + 1}"],
                stdout=subprocess.PIPE, text=True, env=environment(),
            ) as c:  # fmt: skip
                try:
                    assert c.stdout is not None
                    assert c.stdout.readline() == "in\n"
                    wait_until(lambda: len(a.view.members) == 3)
                    a.send(b"hello")
                    assert c.stdout.readline() == "hello\n"
                finally:
                    os.kill(c.pid, signal.SIGKILL)
            settled(a, b)


def test_two_groups_merge_once_a_seed_of_one_names_the_other():
    """As after two starts of which neither knew the other: the second member of one has a seed, not its coordinator."""
    name, port, other = cluster(), free_port(), free_port()
    quick = {"discovery_s": 0.2}
    with alone(name, "a", port, (), **quick) as a, alone(name, "b", other, (), **quick) as b:
        assert len(a.view.members) == len(b.view.members) == 1
        with alone(name, "c", port, [f"127.0.0.1:{port}", f"127.0.0.1:{other}"]) as c:
            settled(a, b, c)


def test_a_joiner_whose_seeds_do_not_answer_says_which():
    name, port = cluster(), free_port()
    settings = {"found": 2, "join_timeout_s": 1.0}
    with pytest.raises(JoinTimeout) as error:
        alone(name, "a", port, ["127.0.0.1:9", "no-such-host.invalid"], **settings)
    assert "127.0.0.1:9" in str(error.value) and "no-such-host.invalid cannot be resolved" in str(error.value)
    assert f"ports {port} to {port + 8}" in str(error.value) and "this member has heard nobody" in str(error.value)


def test_one_line_names_the_seeds_that_answer_and_those_that_do_not_within_two_seconds(caplog):
    name, port = cluster(), free_port()
    seeds = [f"127.0.0.1:{port}", "127.0.0.1:9", "no-such-host.invalid"]
    lone = [sys.executable, "-c", MEMBER, name, "b", str(port), "127.0.0.1:9"]
    with subprocess.Popen(lone, env={**environment(), "SEQCAST_FOUND": "3"}, stderr=subprocess.DEVNULL) as b:
        try:
            wait_until(lambda: is_bound(port))
            with pytest.raises(JoinTimeout, match=f"hears those at 127.0.0.1:{port}, and is heard at 127.0.0.1:{port}"):
                alone(name, "a", port, seeds, found=3, join_timeout_s=2.0)  # so the line was there before this was over
        finally:
            b.kill()
    (line,) = (each for each in caplog.records if "join waits, and somebody answers" in each.getMessage())
    assert f"somebody answers at 127.0.0.1:{port}; nobody answers at 127.0.0.1:9; no-such-host" in line.getMessage()


def test_a_member_whose_seeds_are_all_down_founds_a_group_names_them_and_merges_later(caplog):
    name, port, other = cluster(), free_port(), free_port()
    seeds = [f"127.0.0.1:{other}", "no-such-host.invalid"]
    with caplog.at_level(logging.INFO, "seqcast"), alone(name, "a", port, seeds, discovery_s=0.3) as a:
        (line,) = (each for each in caplog.records if "founded the group alone" in each.getMessage())
        assert f"nobody answers at 127.0.0.1:{other}; no-such-host.invalid cannot be resolved" in line.getMessage()
        assert line.levelname == "WARNING"
        with alone(name, "b", other, ()) as b:
            settled(a, b)


@pytest.mark.netns
def test_a_member_that_no_interface_leads_to_its_seeds_is_told_that_it_is_on_loopback(lonely):  # noqa: F811
    text = 'import seqcast; seqcast.join("x", transport="unicast", seeds="10.77.0.1").leave()'
    _, err = python(lonely, "-c", text).communicate(timeout=LIMIT_S)
    assert "RuntimeWarning: no network interface leads to the seeds" in err and "(SC1002)" in err


@pytest.mark.netns
def test_seeds_that_resolve_late_on_a_network_without_a_default_route_are_found(network):  # noqa: F811
    text = """
import socket, sys, time, seqcast
begun, real = time.monotonic(), socket.getaddrinfo
def late(host, *more):
    if host == "orders" and time.monotonic() < begun + 3.0:
        raise socket.gaierror(-3, "Temporary failure in name resolution")
    return [each for ip in ("10.99.0.1", "10.99.0.2") for each in real(ip if host == "orders" else host, *more)]
socket.getaddrinfo = late
with seqcast.join("t1", transport="unicast", seeds="orders", discovery_refresh_s=0.5, discovery_s=0.3) as group:
    while len(group.view.members) < 2:
        time.sleep(0.05)
    print(sorted(member.address[3] for member in group.view.members), flush=True)
    sys.stdin.readline()
"""
    for place in network[:2]:
        place.run("ip", "route", "del", "224.0.0.0/4")
    both = [python(place, "-c", text, stdin=subprocess.PIPE) for place in network[:2]]
    try:
        assert [each.stdout.readline() for each in both] == ["[10, 10]\n"] * 2
    finally:
        for each in both:
            each.communicate("\n", timeout=LIMIT_S)


def test_a_seed_that_another_cluster_or_program_has_is_as_one_where_nobody_is():
    name, port, other = cluster(), free_port(), free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program, alone(cluster(), "x", other) as stranger:
        program.bind(("127.0.0.1", 0))
        seeds = [f"127.0.0.1:{other}", f"127.0.0.1:{program.getsockname()[1]}"]
        with alone(name, "a", port, seeds, discovery_s=0.3) as a, alone(name, "b", port) as b:
            settled(a, b)
            program.settimeout(LIMIT_S)
            program.sendto(b"what is this?", program.recvfrom(65_536)[1])
            wait_until(lambda: a.counters()["drop_magic"] + a.counters()["drop_short"] > 0)
            wait_until(lambda: stranger.counters()["drop_group"] > 0)
            assert len(stranger.view.members) == 1 and len(a.view.members) == 2


def is_bound(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def test_a_name_that_is_taken_is_refused():
    name, port = cluster(), free_port()
    with alone(name, "a", port):
        with pytest.raises(NameTaken):
            alone(name, "a", port, name_taken_s=0.5, suspect_s=0.5, discovery_s=0.5)


def test_if_all_ports_are_taken_a_member_names_the_remedy():
    name, port = cluster(), free_port()
    with alone(name, "a", port, port_range=0):
        with pytest.raises(ConfigError, match="raise port_range="):
            alone(name, "b", port, port_range=0)


def test_a_crowd_without_multicast_is_refused_by_name():
    with pytest.raises(ConfigError, match="crowds need multicast"):
        seqcast.join_crowd(cluster(), transport="unicast")


PACKETS = {1, 2, 3, 9, 14, 18}
"""The types of datagrams that hold messages, or parts of them: see native/wire/wire.h."""
TYPES = set(range(1, 22)) - {19}


def filled(port: int) -> list[tuple[int, int]]:
    """Bytes that wait at each socket of loopback that receives at this port, in the order of their making, and how many
    datagrams it has dropped."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    here = [row for row in rows if row[1] == f"0100007F:{port:04X}" and row[2] == "00000000:0000"]
    here.sort(key=lambda row: int(row[9]))
    return [(int(row[4].partition(":")[2], 16), int(row[12])) for row in here]


def datagram(kind: int) -> bytes:
    return bytes([0xC5, 2, kind]) + bytes(1400)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a member has one socket for its port")
def test_packets_leave_heartbeats_and_all_else_their_own_buffer():
    place = {"interface": "127.0.0.1", "port": free_port(), "port_range": RANGE}
    config = seqcast.Config(transport="unicast", **place, rcvbuf=65_536)
    sockets = open_driver(make_engine(), cluster(), 1, config)  # nobody receives there
    with contextlib.closing(sockets), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        assert sockets.apart
        host, _, port = describe_address(sockets.address).rpartition(":")
        to = (host, int(port))
        for kind in sorted(TYPES):
            before = filled(to[1])
            stranger.sendto(datagram(kind), to)
            grown = [now[0] > was[0] for was, now in zip(before, filled(to[1]), strict=True)]
            assert grown == [kind in PACKETS, kind not in PACKETS], kind
        while filled(to[1])[0][1] == 0:
            for _ in range(100):
                stranger.sendto(datagram(1), to)
        waits, _ = filled(to[1])[1]
        stranger.sendto(datagram(7), to)
        assert filled(to[1])[1][0] > waits and filled(to[1])[1][1] == 0


def test_closed_ports_are_noticed_whichever_socket_the_kernel_tells():
    name, port = cluster(), free_port()
    seeds = [f"127.0.0.1:{port + 100 + number}" for number in range(12)]  # one of its sockets hears of each
    with alone(name, "a", port, seeds, discovery_s=0.1) as a:
        assert len(a.view.members) == 1

        def all_are_noticed() -> bool:
            counters = a.counters()
            return counters["io_refused"] >= counters["control_frames_sent"] >= 12

        wait_until(all_are_noticed, 10.0)
