"""Paths that carry smaller packets than the interfaces at their ends, and tell nobody, in network namespaces."""

from __future__ import annotations

import contextlib

import pytest
from halves import quick
from members import LIMIT_S, cluster
from netns import python, seeds, segmented, with_ipv6  # noqa: F401
from talkers import await_, talkers

from seqcast.perf.paths import PathError, Place, call, namespace

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


HARM = ("Excluded", "SendTimeout", "SendError", "gap")


def no_harm(made, kinds=HARM):
    """Nobody was excluded, no send timed out, and no message is missing."""
    assert not [said for each in made for kind in kinds for said in each.of(kind)]


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


@pytest.mark.parametrize("scope", ["global", pytest.param("link-local", marks=pytest.mark.long)])
def test_ipv6_members_that_seeds_bring_together_send_packets_as_small_as_the_path(segmented, scope):  # noqa: F811
    """No router makes fragments of IPv6: until packets are smaller, they come in pieces."""
    for place in segmented[:3]:
        with_ipv6(place, scope)
    settings = {"ip_version": 6, "transport": "unicast", "seeds": seeds(6), "level": "INFO", "bytes": 5000}
    with narrow(segmented[1:2], 1400), talkers(segmented, "abc", **settings) as made:
        all_hear_all(made)
        await_(made, lambda: said(made[0], "packets have 1232 bytes from now on, instead of 1448"))
        all_hear_all(made)
        no_harm(made)


@pytest.mark.long
@pytest.mark.parametrize("transport", ["auto", "unicast"])
def test_an_ipv6_path_that_shrinks_under_load_costs_nobody_its_membership(segmented, transport):  # noqa: F811
    for place in segmented[:3]:
        with_ipv6(place)
    settings = {"ip_version": 6, "transport": transport, "level": "INFO", "bytes": 20_000}
    settings |= {"seeds": seeds(6)} if transport == "unicast" else {}
    with talkers(segmented, "abc", **settings) as made:
        all_hear_all(made)
        with narrow(segmented[1:2], 1400):
            await_(made, lambda: any(said(each, "packets have 1232 bytes from now on") for each in made))
            all_hear_all(made)
        no_harm(made)


TOO_BIG = (
    "add table ip6 routed; add chain ip6 routed out { type filter hook output priority 0; }; "
    "add rule ip6 routed out icmpv6 type packet-too-big drop"
)


def six(address):
    """The IPv6 address beside this one."""
    _, _, net, host = address.split(".")
    return f"fd98:{net}::{host}"


@contextlib.contextmanager
def routed(icmp):
    """The places of a, b and c. A link between two routers, of 1,400 bytes, is on the way from a to the others; routers
    send ICMP messages, or a filter drops these. They count IPv4 datagrams that forbid fragments and are not questions
    about sizes (type 16)."""
    with contextlib.ExitStack() as stack:
        left, right, *ends = (stack.enter_context(namespace()).namespace for _ in range(5))
        links = [(left, "inner", right, "inner", "10.98.0.1", "10.98.0.2", 1400)] + [
            (router, f"to{number}", end, "eth0", f"10.98.{number}.254", f"10.98.{number}.1", 1500)
            for number, (router, end) in enumerate(zip((left, right, right), ends, strict=True), 1)
        ]
        for one, near, other, far, here, there, mtu in links:
            call("ip", "-n", one, "link", "add", near, "type", "veth", "peer", "name", far, "netns", other)
            for place, name, address in ((one, near, here), (other, far, there)):
                call("ip", "-n", place, "address", "add", f"{address}/24", "dev", name)
                call("ip", "-n", place, "address", "add", f"{six(address)}/64", "dev", name, "nodad")
                call("ip", "-n", place, "link", "set", name, "up", "mtu", str(mtu))
        for net, by, where in ("10.98.0.0/16", "10.98.0.2", left), ("10.98.1.0/24", "10.98.0.1", right):
            call("ip", "-n", where, "route", "add", net, "via", by)
        call("ip", "-n", left, "route", "add", "fd98::/16", "via", six("10.98.0.2"))
        call("ip", "-n", right, "route", "add", "fd98:1::/64", "via", six("10.98.0.1"))
        rules = (
            "add table ip routed; add chain ip routed over { type filter hook forward priority 0; }; "
            "add chain ip routed out { type filter hook output priority 0; }; "
            "add rule ip routed over ip protocol udp @nh,49,1 1 @th,80,8 != 16 counter"
        )
        for router in (left, right):
            forward = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            call("ip", "netns", "exec", router, "sysctl", "-qw", *forward)
            call("ip", "netns", "exec", router, "nft", rules)
            if not icmp:
                call("ip", "netns", "exec", router, "nft", "add rule ip routed out ip protocol icmp drop; " + TOO_BIG)
        places = []
        for number, end in enumerate(ends, 1):
            for router in f"10.98.{number}.254", six(f"10.98.{number}.254"):
                call("ip", "-n", end, "route", "add", "default", "via", router)
            places.append(Place(("ip", "netns", "exec", end), "eth0", f"10.98.{number}.1", end))
        yield places, [Place(("ip", "netns", "exec", router), "inner", "") for router in (left, right)]


@pytest.mark.long
@pytest.mark.parametrize("icmp", [True, False], ids=["ICMP", "ICMP filtered"])
@pytest.mark.parametrize("ip_version", [4, 6], ids=["IPv4", "IPv6"])
def test_data_forbids_no_fragments_and_nothing_depends_on_messages_of_routers(icmp, ip_version):
    """Routers make fragments at first, if the packets are of IPv4, and soon packets are as small as the path."""
    with contextlib.ExitStack() as stack:
        try:
            places, routers = stack.enter_context(routed(icmp))
        except PathError as error:
            pytest.skip(f"namespaces cannot be made here: {error}")
        seed, size, most = ("10.98.1.1", 1372, 1472) if ip_version == 4 else (six("10.98.1.1"), 1232, 1448)
        settings = {"transport": "unicast", "ip_version": ip_version, "seeds": seed, "level": "INFO", "bytes": 20_000}
        made = stack.enter_context(talkers(places, "abc", **settings))
        became = f"packets have {size} bytes from now on, instead of {most}"
        await_(made, lambda: any(said(each, became) for each in made))
        all_hear_all(made)
        for router in routers:
            assert " packets 0 bytes 0" in router.run("nft", "list", "chain", "ip", "routed", "over")
        # Of IPv6 no full packet passes until repeats have shown that, a second after the first one.
        no_harm(made, ("Excluded", "SendError", "gap") if ip_version == 6 else HARM)


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


@pytest.mark.long
def test_unicasts_and_the_state_pass_a_narrow_path(segmented):  # noqa: F811
    """100 kB of state to a joiner, and a message of 20 kB to that one alone."""
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
