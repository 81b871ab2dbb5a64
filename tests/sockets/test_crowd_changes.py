"""Changes around a crowd's member: a fork, its address, its interface, no network. As for groups."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from members import LIMIT_S, LOOPBACK, cluster, output, script, wait_until
from netns import lonely, network, python, remake  # noqa: F401

from seqcast.core.machines.interface import OFFER

TALKER = """
import json, logging, sys, threading, time, seqcast

def say(**what):
    sys.stdout.write(json.dumps(what) + "\\n")  # in one step: several threads write
    sys.stdout.flush()

class Told(logging.Handler):
    def emit(self, record):
        say(log=record.getMessage(), level=record.levelname)

logging.getLogger("seqcast").addHandler(Told())
crowd = seqcast.join_crowd(sys.argv[1], interface=sys.argv[2], average_s=0.02)
say(id=str(crowd.id))

def talk():
    try:
        while True:
            crowd.send(b"x")
            time.sleep(0.02)
    except seqcast.NotMember as error:
        say(send=str(error))

talking = threading.Thread(target=talk, daemon=True)
talking.start()
try:
    for event in crowd:
        if isinstance(event, seqcast.CrowdMessage):
            say(got=str(event.sender))
except seqcast.NotMember as error:
    say(recv=str(error))
talking.join()
"""


class Talker:
    def __init__(self, place: Any, name: str) -> None:
        self.process = python(place, "-c", TALKER, name, place.interface)
        self.said: list[dict[str, str]] = []
        threading.Thread(target=self._read, daemon=True).start()
        wait_until(lambda: bool(self.of("id")), LIMIT_S)
        self.id = self.of("id")[0]

    def _read(self) -> None:
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def of(self, kind: str) -> list[str]:
        return [each[kind] for each in list(self.said) if kind in each]

    def got(self, other: Talker) -> int:
        return self.of("got").count(other.id)


@contextmanager
def talking(places: Any) -> Iterator[list[Talker]]:
    with ExitStack() as stack:
        talkers = []
        name = cluster()
        for place in places:
            talkers.append(Talker(place, name))
            stack.callback(talkers[-1].process.kill)
        hear_each_other(talkers)
        yield talkers


def hear_each_other(talkers: list[Talker]) -> None:
    before = {(one, other): one.got(other) for one in talkers for other in talkers}
    wait_until(lambda: all(one.got(other) > n + 20 for (one, other), n in before.items()), LIMIT_S)


@pytest.mark.long
@pytest.mark.netns
def test_a_member_whose_address_was_replaced_is_told_that_it_is_out(network: Any) -> None:  # noqa: F811
    with talking(network[:3]) as made:
        network[0].run("ip", "address", "delete", "10.99.0.1/24", "dev", "eth0")
        network[0].run("ip", "address", "add", "10.99.0.9/24", "dev", "eth0")
        wait_until(lambda: bool(made[0].of("send") and made[0].of("recv")), LIMIT_S)
        for told in (*made[0].of("send"), *made[0].of("recv")):
            assert "another address than 10.99.0.1" in told and "join again" in told
        assert any("another address than 10.99.0.1" in line for line in made[0].of("log"))
        hear_each_other(made[1:])


@pytest.mark.long
@pytest.mark.netns
def test_a_member_with_a_secondary_address_is_told_that_it_was_replaced(network: Any) -> None:  # noqa: F811
    network[0].run("ip", "address", "add", "10.99.0.7/24", "dev", "eth0", "label", "eth0:second")
    with talking([replace(network[0], interface="10.99.0.7"), network[1]]) as made:
        network[0].run("ip", "address", "delete", "10.99.0.7/24", "dev", "eth0")
        wait_until(lambda: bool(made[0].of("send")), LIMIT_S)
        assert "another address than 10.99.0.7" in made[0].of("send")[0]


@pytest.mark.netns
@pytest.mark.long
def test_an_interface_may_be_made_anew_any_number_of_times(network: Any) -> None:  # noqa: F811
    """A socket can join a group 20 times (net.ipv4.igmp_max_memberships), on interfaces that are gone too."""
    network[1].run("sysctl", "-qw", "net.ipv4.igmp_max_memberships=2")
    with talking(network[:2]) as made:
        for times in range(1, 4):
            remake(network[1])
            wait_until(
                lambda n=times: sum("joined there again" in line for line in made[1].of("log")) == n,
                LIMIT_S,
            )
        hear_each_other(made)


@pytest.mark.netns
def test_a_member_on_loopback_is_told_that_a_network_has_come(network: Any) -> None:  # noqa: F811
    network[0].run("ip", "route", "delete", "224.0.0.0/4")
    with talking([replace(network[0], interface="")]) as (member,):
        network[0].run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        wait_until(lambda: any(OFFER in line for line in member.of("log")), LIMIT_S)


@pytest.mark.long
@pytest.mark.netns
def test_an_interface_that_is_made_anew_is_used_again(network: Any) -> None:  # noqa: F811
    with talking(network[:2]) as made:
        remake(network[1], "2")
        wait_until(lambda: any("joined there again" in line for line in made[1].of("log")), LIMIT_S)
        hear_each_other(made)


@pytest.mark.netns
def test_a_bridge_without_ports_is_named(lonely: Any) -> None:  # noqa: F811
    lonely.run(*"ip link add docker0 type bridge".split())
    lonely.run(*"ip address add 10.98.0.1/24 dev docker0".split())
    lonely.run(*"ip link set docker0 up".split())
    lonely.run(*"ip route add default dev docker0".split())
    text = "import logging, sys; logging.basicConfig(); import seqcast; seqcast.join_crowd(sys.argv[1]).leave(0)"
    _, err = script(text, cluster(), prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    assert "docker0 is a bridge without ports: nobody can be reached there" in err


@pytest.mark.netns
def test_without_a_network_a_member_is_told_that_it_is_on_loopback(lonely: Any) -> None:  # noqa: F811
    text = """
import sys, warnings, seqcast
for settings in ({}, {"interface": "lo"}):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seqcast.join_crowd(sys.argv[1], average_s=0.02, **settings).leave(0.0)
    print(*[each.message for each in told])
"""
    said = output(script(text, cluster(), prefix=lonely.prefix)).splitlines()
    assert "the crowd is on loopback and reaches members on this machine only" in said[0] and said[1] == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_in_a_forked_child_the_crowd_is_closed_and_in_the_parent_it_goes_on(tmp_path: Any) -> None:
    text = """
import asyncio, os, sys, seqcast
a = seqcast.join_crowd(sys.argv[1], interface=sys.argv[2], average_s=0.02, store=sys.argv[3])
b = seqcast.join_crowd(sys.argv[1], interface=sys.argv[2], average_s=0.02)
a.send(b"before")
assert [each.recv(60).payload for each in (a, b)] == [b"before"] * 2
pid = os.fork()
if not pid:
    for call in (lambda: a.send(b"x"), lambda: a.recv(1), lambda: next(iter(a)), lambda: a.counters()):
        try:
            call()
        except seqcast.NotMember as error:
            assert "this crowd was opened before fork()" in str(error)
        else:
            os._exit(1)
    a.leave()
    with seqcast.join_crowd(sys.argv[1] + "-child", interface=sys.argv[2], average_s=0.02) as c:
        c.send(b"own crowd")
        assert c.recv(60).payload == b"own crowd"
    sys.exit(7)  # destroys objects: the store is the parent's
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
for i in range(100):
    a.send(b"%d" % i)
for each in (a, b):
    assert [each.recv(60).payload for _ in range(100)] == [b"%d" % i for i in range(100)]
assert a.counters()["store_errors"] == 0
a.leave(0.0)
with seqcast.join_crowd(sys.argv[1], interface=sys.argv[2], average_s=0.02, store=sys.argv[3]) as again:
    assert again.counters()["store_packets"] == 101
print("good")
"""
    assert output(script(text, cluster(), LOOPBACK, str(tmp_path / "store"))) == "good\n"
