"""Paths that carry smaller packets than the interfaces at their ends, and tell nobody, in network namespaces."""

from __future__ import annotations

import contextlib

import pytest
from halves import quick
from members import LIMIT_S, cluster
from netns import python, segmented  # noqa: F401
from talkers import await_, talkers

pytestmark = pytest.mark.netns


@contextlib.contextmanager
def narrow(places, most):
    """Packets larger than ``most`` bytes of IP vanish on the way to these, fragments too."""
    with contextlib.ExitStack() as stack:
        for place in places:
            place.run(
                "nft",
                "add table netdev seqcast_narrow; add chain netdev seqcast_narrow input "
                f"{{ type filter hook ingress device {place.interface} priority 0; }}; "
                f"add rule netdev seqcast_narrow input meta length > {most} drop",
            )
            stack.callback(place.run, "nft", "delete table netdev seqcast_narrow")
        yield


def all_hear_all(made):
    marks = {(one.name, other.name): one.got(other.name) for one in made for other in made}
    await_(made, lambda: all(one.got(other.name) > marks[one.name, other.name] + 60 for one in made for other in made))


def said(talker, text):
    return any(text in line["text"] for line in talker.of("log"))


def no_harm(made):
    """Nobody was excluded, and no send timed out."""
    assert not [said for each in made for kind in ("Excluded", "SendTimeout", "SendError") for said in each.of(kind)]


def resize(places, most):
    for place in places:
        place.run("ip", "link", "set", "eth0", "mtu", str(most))
        place.run("ip", "-n", place.bridge, "link", "set", place.port, "mtu", str(most))


@pytest.mark.parametrize(
    ("names", "transport"), quick([("ab", "auto"), ("abc", "unicast")], ["ab", "abc"], ["auto", "unicast"])
)
def test_a_path_that_loses_large_packets_from_the_start_on_gets_smaller_ones(segmented, transport, names):  # noqa: F811
    """To one of three members, and to one of two."""
    settings = {"transport": transport, "level": "INFO", "bytes": 5000}
    if transport == "unicast":
        settings["seeds"] = segmented[0].address
    with narrow(segmented[1:2], 1400), talkers(segmented, names, **settings) as made:
        all_hear_all(made)
        await_(made, lambda: said(made[0], "packets have 1372 bytes from now on, instead of 1472"))
        all_hear_all(made)
        assert all(sorted(each.members()) == sorted(names) for each in made)
        no_harm(made)


@pytest.mark.long
def test_a_path_that_shrinks_under_load_costs_nobody_its_membership(segmented):  # noqa: F811
    with talkers(segmented, "abc", level="INFO", bytes=5000) as made:
        all_hear_all(made)
        with narrow(segmented[1:2], 1400):
            await_(made, lambda: any(said(each, "(SC4307)") for each in made))
            all_hear_all(made)
        no_harm(made)


@pytest.mark.long
def test_jumbo_frames_at_the_hosts_and_none_in_the_switch(segmented):  # noqa: F811
    resize(segmented, 9000)
    with narrow(segmented[:3], 1500), talkers(segmented, "abc", level="INFO", bytes=20_000) as made:
        all_hear_all(made)
        await_(made, lambda: any(said(each, "packets have 1472 bytes from now on, instead of 8968") for each in made))
        all_hear_all(made)
        no_harm(made)


@pytest.mark.long
def test_an_interface_whose_mtu_is_lowered_sends_smaller_packets_soon(segmented):  # noqa: F811
    with talkers(segmented, "abc", level="INFO", bytes=20_000) as made:
        all_hear_all(made)
        segmented[0].run("ip", "link", "set", "eth0", "mtu", "1400")
        await_(made, lambda: any(said(each, "(SC4307)") for each in made))
        all_hear_all(made)
        no_harm(made)


def test_unicasts_and_the_state_pass_a_narrow_path(segmented):  # noqa: F811
    """100 kB of state to a joiner, and a message of 20 kB to it alone."""
    name, programs = cluster(), []
    with narrow(segmented[1:2], 1400), contextlib.ExitStack() as stack:
        for place, member in zip(segmented, "ab", strict=False):
            programs.append(python(place, "-c", JOINS, name, member, place.interface))
            stack.callback(programs[-1].kill)
            assert member == "b" or programs[0].stdout.readline() == "in\n"
        for program in programs:
            out, err = program.communicate(timeout=LIMIT_S)
            assert program.returncode == 0 and out.splitlines()[-1] == "done", err


JOINS = """
import sys, time, seqcast
cluster, name, interface = sys.argv[1:]

class Held:
    held = bytes(100_000) if name == "a" else b""
    def get_state(self, write): write(self.held)
    def set_state(self, read): self.held = read()

state = Held()
with seqcast.join(cluster, name=name, interface=interface, state=state, deliver_own=False) as group:
    print("in", flush=True)
    while len(group.view.members) < 2:
        time.sleep(0.01)
    assert len(state.held) == 100_000
    other, = (member for member in group.view.members if member != group.member)
    group.send(bytes(20_000), to=other)
    got = group.recv(30)
    assert len(got.payload) == 20_000
    time.sleep(0.5)
    print("done", flush=True)
"""
