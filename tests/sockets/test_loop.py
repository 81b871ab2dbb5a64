"""Packets are looped back to the sender's own machine only if other members are there."""

import json
import time

import pytest
from members import LIMIT_S, cluster, output, script
from netns import network  # noqa: F401

pytestmark = pytest.mark.netns

PROGRAM = """
import json, sys, time
import seqcast
name, member, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with seqcast.join(name, name=member, interface="eth0", **settings) as group:
    def say():
        own = group.counters()["drop_own"]
        print(json.dumps({"looped": group.path["looped"], "own": own, "members": len(group.view.members)}), flush=True)
    say()
    for line in sys.stdin:
        what, n = line.split()
        if what == "send":
            for number in range(int(n)):
                group.send(b"%d of " % number + member.encode())
        else:
            got = []
            while len(got) < int(n):
                got.append(group.recv(60).payload.decode())
            print(json.dumps(got), flush=True)
            say()
"""
LISTEN = """
import collections, json, socket, sys, time
group, port, interface = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((group, port))
listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(interface))
print("listening", flush=True)
types = collections.Counter()
for line in sys.stdin:
    listener.settimeout(0.5)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        datagram, (host, _) = listener.recvfrom(65536)
        types[datagram[2]] += host == interface
    print(json.dumps(types), flush=True)
"""
HEARTBEAT = "7"
ADDRESS = {"address": "239.77.7.7", "port": 47910}


class Member:
    def __init__(self, name, member, place, **settings):
        settings = {"order": "fifo", "heartbeat_s": 0.05, "join_timeout_s": LIMIT_S, **ADDRESS, **settings}
        self.process = script(PROGRAM, name, member, json.dumps(settings), prefix=place.prefix)

    def tell(self, what, n):
        self.process.stdin.write(f"{what} {n}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, output(self.process)
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0, self.process.stderr.read()


def exchange(members):
    """All send and receive; whether each loops, afterwards."""
    for member in members.values():
        member.tell("send", 20)
    everything = sorted(f"{number} of {name}" for name in members for number in range(20))
    for member in members.values():
        member.tell("receive", len(everything))
    for member in members.values():
        assert sorted(member.answer()) == everything
    said = {name: member.answer() for name, member in members.items()}
    assert {each["members"] for each in said.values()} == {len(members)}
    assert {each["own"] for each in said.values()} == {0}, "the kernel drops what is looped back to its sender"
    return {name: each["looped"] for name, each in said.items()}


def group_of(places, **settings):
    """Members that are in one view."""
    name, settings = cluster(), {"min_members": len(places), **settings}
    members = {each: Member(name, each, place, **settings) for each, place in places.items()}
    for member in members.values():
        member.answer()
    return name, members


@pytest.mark.multicast
@pytest.mark.long
def test_members_that_are_alone_on_their_machines_loop_nothing_until_another_one_joins_there(network):  # noqa: F811
    a, b, c, _ = network
    name, members = group_of({"a": a, "b": b, "c": c})
    control = str(ADDRESS["port"] + 1)
    listener = script(LISTEN, ADDRESS["address"], control, a.address, prefix=a.prefix)
    assert listener.stdout.readline() == "listening\n", output(listener)
    assert exchange(members) == {"a": False, "b": False, "c": False}
    listener.stdin.write("\n")
    listener.stdin.flush()
    heard = json.loads(listener.stdout.readline() or output(listener))
    assert heard[HEARTBEAT] > 5, "whoever is in another view needs them, on this machine, too"
    listener.kill()
    members["d"] = Member(name, "d", a)
    members["d"].answer()
    until = time.monotonic() + LIMIT_S
    while exchange(members) != {"a": True, "b": False, "c": False, "d": True}:
        assert time.monotonic() < until
    members.pop("d").end()
    while exchange(members) != {"a": False, "b": False, "c": False}:
        assert time.monotonic() < until
    for member in members.values():
        member.end()


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.parametrize("version", [4, 6])
def test_members_of_one_machine_reach_each_other(network, version):  # noqa: F811
    here, there = network[:2]
    settings = {}
    if version == 6:
        settings = {"ip_version": 6, "address": "ff15::7:7"}
        for place, host in ((here, 1), (there, 2)):
            place.run(*f"ip -6 addr add fd99::{host}/64 dev eth0 nodad".split())
    _, members = group_of({"a": here, "b": here, "c": there}, **settings)
    assert exchange(members) == {"a": True, "b": True, "c": False}
    for member in members.values():
        member.end()


@pytest.mark.long
@pytest.mark.multicast
def test_packets_that_may_be_routed_are_looped_to_a_router_on_this_machine(network):  # noqa: F811
    here, there = network[:2]
    _, members = group_of({"a": here, "b": there}, ttl=2)
    assert exchange(members) == {"a": True, "b": True}
    for member in members.values():
        member.end()
