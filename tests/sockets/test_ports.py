"""The port of unicasts: chosen, taken by somebody else, or none is free."""

from __future__ import annotations

import socket

import pytest
from halves import first_quick
from members import cluster, join
from netns import lonely, python  # noqa: F401

from seqcast import ConfigError, join_crowd
from seqcast.config import Config


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.multicast
def test_unicast_port_is_the_port_of_a_member_and_a_second_member_there_is_told_who_has_it():
    name, port = cluster(), free_port()
    with join(name, "a", unicast_port=port) as group:
        assert int.from_bytes(group.member.address[1:3], "big") == port
        with pytest.raises(ConfigError, match=f"unicast_port={port} is in use on this address"):
            join(name, "b", unicast_port=port)
    with join(name, "a", unicast_port=port):
        pass  # the port is free again at once


def test_unicast_port_of_a_crowd():
    name, port = cluster(), free_port()
    with (
        join_crowd(name, interface="lo", unicast_port=port),
        pytest.raises(ConfigError, match=f"unicast_port={port} is in use on this address"),
    ):
        join_crowd(name, interface="lo", unicast_port=port)


def test_unicast_port_is_not_a_port_of_multicasts():
    for port in (5000, 5001):
        with pytest.raises(ConfigError, match="must be another one than port=5000"):
            Config(port=5000, unicast_port=port)


FULL = """
import socket, sys
import seqcast
taken = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for each, port in zip(taken, (40000, 40001)):
    each.bind(("127.0.0.1", port))
settings = {"unicast_port": 41000} if sys.argv[2] else {}
for join in (lambda: seqcast.join("full", name="a", interface=sys.argv[1], **settings),
             lambda: seqcast.join_crowd("full", interface=sys.argv[1], **settings)):
    try:
        join().leave()
        print("joined")
    except seqcast.ConfigError as error:
        print(error)
"""


@pytest.mark.multicast
@pytest.mark.netns
@pytest.mark.parametrize("interface", first_quick(["lo", ""]))
def test_if_no_port_is_free_the_error_says_so(lonely, interface):  # noqa: F811
    lonely.run("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40001")
    lonely.run("ip", "route", "add", "224.0.0.0/4", "dev", "lo")
    lonely.run("ip", "link", "set", "lo", "multicast", "on")
    out, err = python(lonely, "-c", FULL, interface, "").communicate(timeout=60)
    lines = out.splitlines()
    assert len(lines) == 2 and all("no UDP port is free" in line for line in lines), out + err


@pytest.mark.multicast
@pytest.mark.netns
def test_unicast_port_is_used_though_no_other_port_is_free(lonely):  # noqa: F811
    lonely.run("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40001")
    out, err = python(lonely, "-c", FULL, "lo", "given").communicate(timeout=60)
    assert out.splitlines() == ["joined", "joined"], out + err
