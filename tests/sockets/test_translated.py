"""Members whose addresses are translated on the way to others, with nft in network namespaces."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

import pytest
from members import LIMIT_S, cluster
from netns import network, python  # noqa: F401
from talkers import Talker, await_

from seqcast.board.read import boards

pytestmark = pytest.mark.netns

INSIDE, OUTSIDE = "172.30.0.3", "10.99.0.1"
JOIN = """
import sys, seqcast
cluster, interface, settings = sys.argv[1], sys.argv[2], eval(sys.argv[3])
try:
    seqcast.join(cluster, name="a", interface=interface, **settings)
except seqcast.JoinTimeout as error:
    print(error)
"""


@contextlib.contextmanager
def translated(place, source):
    """Datagrams from the address INSIDE of this place go out by eth0 as ``source`` says, and its published port leads
    to it: as behind the bridge of a container runtime."""
    place.run("ip", "link", "add", "inside", "type", "veth", "peer", "name", "end")
    place.run("ip", "link", "set", "end", "up")
    place.run("ip", "address", "add", f"{INSIDE}/24", "dev", "inside")
    place.run("ip", "link", "set", "inside", "up")
    chains = (
        "add table ip seqcast_nat; "
        "add chain ip seqcast_nat out { type nat hook postrouting priority srcnat; }; "
        "add chain ip seqcast_nat in { type nat hook prerouting priority dstnat; }; "
        f"add rule ip seqcast_nat out ip saddr {INSIDE} oifname eth0 {source}; "
        f"add rule ip seqcast_nat in iifname eth0 udp dport 47310 dnat to {INSIDE}:47310"
    )
    place.run("nft", chains)
    try:
        yield
    finally:
        place.run("nft", "delete table ip seqcast_nat")
        place.run("ip", "link", "delete", "inside")


RANDOM = "masquerade random"
KEPT = f"ip protocol udp snat to {OUTSIDE}"


@contextlib.contextmanager
def pair(places, **settings):
    """Member b untranslated, then a behind the translator; neither needs multicast."""
    name, common = cluster(), {"transport": "unicast", "seeds": f"{OUTSIDE},10.99.0.2"}
    common |= {key: settings.pop(key) for key in ("key",) if key in settings}
    with contextlib.ExitStack() as stack:
        b = Talker(places[1], name, "b", **common)
        stack.callback(b.end)
        await_([b], lambda: b.members() == ["b"])
        a = Talker(replace(places[0], interface=INSIDE), name, "a", **common, **settings)
        stack.callback(a.end)
        yield a, b


def meet(a, b):
    await_([a, b], lambda: len(a.members()) == len(b.members()) == 2)
    await_([a, b], lambda: a.got("b") > 100 and b.got("a") > 100)


@pytest.mark.long
def test_with_translated_ports_the_error_says_which_to_publish(network):  # noqa: F811
    name = cluster()
    common = {"transport": "unicast", "seeds": "10.99.0.2"}
    b = Talker(network[1], name, "b", **common)
    try:
        with translated(network[0], RANDOM):
            await_([b], lambda: b.members() == ["b"])
            settings = repr(common | {"join_timeout_s": 2.0})
            with python(network[0], "-c", JOIN, name, INSIDE, settings) as a:
                said, _ = a.communicate(timeout=LIMIT_S)
            assert f"its own address is {INSIDE}:47310" in said and "(SC4301)" in said
            assert f"publish the port and give advertise={OUTSIDE}:47310 with key=" in said and "--network host" in said
            assert b.members() == ["b"]
    finally:
        b.end()


@pytest.mark.long
def test_with_a_key_a_member_is_at_its_stated_address_from_any_source_of_its_datagrams(network, tmp_path):  # noqa: F811
    pytest.importorskip("nacl")
    from seqcast.config.keys import make

    made = tmp_path / "key"
    make(made)
    with translated(network[0], RANDOM):
        with pair(network, key=str(made), advertise=f"{OUTSIDE}:47310") as (a, b):
            meet(a, b)


@pytest.mark.long
def test_with_a_key_the_error_says_that_nothing_comes_to_the_advertised_address(network, tmp_path):  # noqa: F811
    pytest.importorskip("nacl")
    from seqcast.config.keys import make

    name, made = cluster(), tmp_path / "key"
    make(made)
    common = {"transport": "unicast", "seeds": "10.99.0.2", "key": str(made)}
    b = Talker(network[1], name, "b", **common)
    try:
        with translated(network[0], RANDOM):
            await_([b], lambda: b.members() == ["b"])
            settings = repr(common | {"join_timeout_s": 3.0, "advertise": f"{OUTSIDE}:47999"})
            with python(network[0], "-c", JOIN, name, INSIDE, settings) as a:
                said, _ = a.communicate(timeout=LIMIT_S)
        assert f"members hear this one, from {OUTSIDE}:" in said and "(SC4302)" in said
        assert f"their datagrams to {OUTSIDE}:47999 (advertise=) do not arrive here" in said
        assert b.members() == ["b"]
    finally:
        b.end()


@pytest.mark.long
def test_a_member_takes_the_address_at_which_others_see_it_if_hosts_are_translated(network):  # noqa: F811
    with translated(network[0], KEPT), pair(network) as (a, b):
        meet(a, b)
        own = a.of("view")[-1]["address"]
        assert bytes.fromhex(own) == b"\x04" + (47310).to_bytes(2, "big") + socket.inet_aton(OUTSIDE)
        (board,) = (board for board in boards(a.cluster) if board.name == "a")
        assert board.about["address"] == f"{OUTSIDE}:47310"
