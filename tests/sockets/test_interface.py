"""An interface that is recreated, goes down or changes its address under a member: noticed, told, and mended."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest
from halves import quick
from members import wait_until
from netns import PREFIXES, lonely, network, python, remake, with_ipv6  # noqa: F401
from talkers import await_, talkers

from seqcast.core.machines.interface import OFFER

pytestmark = pytest.mark.netns


ADDRESSES = dict(zip(("global", "link-local"), PREFIXES[6], strict=True))
SCOPES = [pytest.param("global", marks=pytest.mark.long), "link-local"]


def told(talker, text):
    return any(text in said["text"] for said in talker.of("InterfaceChanged")) and any(
        text in said["text"] and said["level"] == "WARNING" for said in talker.of("log")
    )


def all_together(made):
    """All are in one view, and deliver each other's messages from now on."""
    names = sorted(each.name for each in made)
    await_(made, lambda: all(sorted(each.members()) == names for each in made))
    before = {(one.name, other): one.got(other) for one in made for other in names}
    await_(made, lambda: all(one.got(other) > before[one.name, other] + 60 for one in made for other in names))


@pytest.mark.parametrize(
    ("seconds", "rank", "hardware"),
    quick([("2", 0, "the same")], ["", "2"], [0, 1], ["the same", "another"]),
)
def test_an_interface_that_is_made_anew_is_used_again(network, rank, seconds, hardware):  # noqa: F811
    with talkers(network[:3], "abc") as made:
        remake(made[rank].place, seconds, hardware)
        await_(made, lambda: told(made[rank], "eth0 was recreated: the group is joined there again"))
        all_together(made)
        assert told(made[rank], "interface eth0 is gone") or not seconds
        assert not any(each.of("Excluded") for each in made)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_member_whose_interface_has_another_hardware_address_is_soon_with_the_others_again(network, rank):  # noqa: F811
    """The others' kernels know the old one, and would use it for up to a minute, if the member did not send to them."""
    with talkers(network[:3], "abc") as made:
        place = made[rank].place
        remake(place, "2", "another")
        await_(made, lambda: told(made[rank], "eth0 was recreated: the group is joined there again"))
        began = time.monotonic()
        all_together(made)
        assert time.monotonic() - began < 2.0


def without_capabilities(place):
    """Programs that run there have none, as most that do not run as root."""
    return replace(place, prefix=(*place.prefix, "setpriv", "--bounding-set=-all", "--inh-caps=-all"))


@pytest.mark.long
@pytest.mark.parametrize("address", ["", pytest.param("ff12::5:4", marks=pytest.mark.multicast)])
@pytest.mark.parametrize("scope", SCOPES)
def test_an_interface_that_is_made_anew_is_used_again_by_ipv6(network, scope, address):  # noqa: F811
    """Its number changes: IPv6 sockets are bound to the number, and link-local addresses used with it. Binding them to
    another one needs a capability."""
    if scope == "link-local" and os.environ.get("SEQCAST_TRANSPORT") == "unicast":
        pytest.skip("the one socket for all keeps the old number (docs/unicast.md)")
    for place in network[:3]:
        with_ipv6(place, scope)
    places = [network[0], without_capabilities(network[1]), network[2]]
    with talkers(places, "abc", ip_version=6, address=address) as made:
        place = network[1]
        remake(place)
        with_ipv6(place, scope)
        await_(made, lambda: told(made[1], "eth0 was recreated: the group is joined there again"))
        all_together(made)
        assert not any(each.of("Excluded") for each in made)


@pytest.mark.long
@pytest.mark.parametrize("scope", SCOPES)
def test_a_member_whose_ipv6_address_was_replaced_is_told_that_it_is_out(network, scope):  # noqa: F811
    for place in network[:3]:
        with_ipv6(place, scope)
    with talkers(network[:3], "abc", ip_version=6) as made:
        place = made[0].place
        place.run("ip", "address", "delete", f"{ADDRESSES[scope]}1/64", "dev", "eth0")
        place.run("ip", "address", "add", "fd99::9/64", "dev", "eth0", "nodad")
        await_(made, lambda: bool(made[0].of("Excluded")))
        assert f"another address than [{ADDRESSES[scope]}1]" in made[0].of("Excluded")[0]["text"]
        all_together(made[1:])


@pytest.mark.long
def test_an_address_that_comes_back_is_used_again(network):  # noqa: F811
    with talkers(network[:3], "abc") as made:
        place = made[1].place
        place.run("ip", "address", "delete", "10.99.0.2/24", "dev", "eth0")
        await_(made, lambda: told(made[1], "eth0 has lost the address 10.99.0.2"))
        place.run("ip", "address", "add", "10.99.0.2/24", "dev", "eth0")
        await_(made, lambda: told(made[1], "eth0 is back, and so is its address"))
        all_together(made)


def test_an_interface_that_was_down_is_used_again(network):  # noqa: F811
    with talkers(network[:3], "abc") as made:
        place = made[2].place
        place.run("ip", "link", "set", "eth0", "down")
        await_(made, lambda: told(made[2], "eth0 is down"))
        place.run("ip", "link", "set", "eth0", "up")
        place.run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        all_together(made)


@pytest.mark.long
@pytest.mark.parametrize("partition", ["merge", "primary"])
def test_a_member_whose_address_was_replaced_is_told_that_it_is_out(network, partition):  # noqa: F811
    with talkers(network[:3], "abc", partition=partition, found=1) as made:
        place = made[0].place
        place.run("ip", "address", "delete", "10.99.0.1/24", "dev", "eth0")
        place.run("ip", "address", "add", "10.99.0.9/24", "dev", "eth0")
        await_(made, lambda: bool(made[0].of("Excluded")))
        await_(made, lambda: any("a: was excluded from the group: " in said["text"] for said in made[0].of("log")))
        lines = [said for said in made[0].of("log") if "was excluded from" in said["text"]]
        assert [(said["level"], said["text"][-8:]) for said in lines] == [("WARNING", "(SC3101)")]
        if partition == "merge":  # else the view without this member may come first, as multicasts still arrive
            assert "another address than 10.99.0.1" in made[0].of("Excluded")[0]["text"]
            assert told(made[0], "join again")
        all_together(made[1:])


@pytest.mark.long
def test_a_member_whose_address_was_replaced_joins_again_with_the_new_one(network):  # noqa: F811
    with talkers(network[:3], "abc", rejoin=True) as made:
        place = made[0].place
        place.run("ip", "address", "delete", "10.99.0.1/24", "dev", "eth0")
        place.run("ip", "address", "add", "10.99.0.9/24", "dev", "eth0")
        place.run("ip", "route", "replace", "224.0.0.0/4", "dev", "eth0")
        await_(made, lambda: bool(made[0].of("Rejoined")))
        assert "another address than 10.99.0.1" in made[0].of("Excluded")[0]["text"]
        all_together(made)
        views = [said for said in made[0].said if said["kind"] == "view"]
        assert bytes([10, 99, 0, 9]).hex() in views[-1]["address"]


@pytest.mark.long
@pytest.mark.multicast
def test_sends_that_a_firewall_refuses_are_told_of_once(network):  # noqa: F811
    with talkers(network[:2], "ab") as made:
        place = made[0].place
        place.run("nft", "add table inet filter; add chain inet filter output { type filter hook output priority 0; }; "
                  "add rule inet filter output ip daddr 224.0.0.0/4 drop")  # fmt: skip
        refused = "datagrams of this member are not sent by eth0 (Operation not permitted): a firewall"
        await_(made, lambda: told(made[0], refused))
        place.run("nft", "delete table inet filter")
        await_(made, lambda: told(made[0], "eth0 is well again"))
        all_together(made)
        assert sum(refused in said["text"] for said in made[0].of("InterfaceChanged")) == 1


@pytest.mark.multicast
def test_a_member_on_loopback_is_told_once_that_another_interface_has_come(network):  # noqa: F811
    """The member started before the network, and reaches members on its machine only."""
    place = replace(network[0], interface="")
    place.run("ip", "route", "delete", "224.0.0.0/4")
    with talkers([place], "a") as (member,):
        place.run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        await_([member], lambda: told(member, OFFER))
        place.run("sleep", "1.2")
        assert sum(OFFER in said["text"] for said in member.of("log")) == 1


def test_a_member_that_asked_for_loopback_is_offered_no_other_interface(network):  # noqa: F811
    with talkers([replace(network[0], interface="lo")], "a") as (member,):
        network[0].run("sleep", "1.2")
        assert not any(OFFER in said["text"] for said in member.of("log"))


def an_address_each(place, *kinds):
    """IPv6 addresses of the interface, in this order; a temporary one is preferred by the kernel as a source."""
    number = place.port.removeprefix("member")
    place.run("ip", "link", "set", "eth0", "addrgenmode", "none")
    place.run("ip", "-6", "address", "flush", "dev", "eth0")
    for kind, prefix, more in kinds:
        place.run("ip", "address", "add", f"{prefix}{number}/64", "dev", "eth0", "nodad", *more)
        assert kind


INTERFACES = ["eth0", pytest.param("", marks=pytest.mark.multicast)]  # the second by the route for multicasts
OLD = ("deprecated", "fd99:1::", ("preferred_lft", "0", "valid_lft", "600"))
LINK = ("link-local", "fe80::99:", ())
LASTING = ("lasting", "fd99:2::", ())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("kinds", [(OLD, LINK, LASTING), (LASTING, OLD, LINK)])
def test_of_an_interfaces_ipv6_addresses_the_one_that_lasts_is_used(network, interface, kinds):  # noqa: F811
    place = network[0]
    an_address_each(place, *kinds)
    place.run("ip", "-6", "route", "replace", "ff00::/8", "dev", "eth0", "table", "local")
    assert "[fd99:2::1]" in joined_at(place, interface)


@pytest.mark.parametrize("interface", ["eth0", pytest.param("", marks=[pytest.mark.long, pytest.mark.multicast])])
def test_no_temporary_ipv6_address_is_used(network, interface):  # noqa: F811
    """Such an address expires within a day, and with that the membership; the kernel prefers such an address as a
    source."""
    place = network[0]
    place.run("sysctl", "-qw", "net.ipv6.conf.eth0.use_tempaddr=2", "net.ipv6.conf.eth0.accept_dad=0")
    an_address_each(place, (*LASTING[:2], ("mngtmpaddr", "preferred_lft", "86400", "valid_lft", "86400")))
    wait_until(lambda: "temporary" in place.run("ip", "-6", "address", "show", "dev", "eth0"))
    place.run("ip", "-6", "route", "replace", "ff00::/8", "dev", "eth0", "table", "local")
    assert "[fd99:2::1]" in joined_at(place, interface)


@pytest.mark.long
def test_an_ipv6_address_of_the_link_may_be_given_with_its_interface(network):  # noqa: F811
    place = network[0]
    an_address_each(place, LINK, LASTING)
    assert "[fe80::99:1]" in joined_at(place, "fe80::99:1%eth0")
    assert "no network interface that is up has the address" in joined_at(place, "fe80::99:1%lo")


@pytest.mark.long
@pytest.mark.multicast
def test_a_multicast_address_of_the_link_may_name_the_interface(network):  # noqa: F811
    place = network[0]
    an_address_each(place, LASTING)
    assert "[fd99:2::1]" in joined_at(place, address="ff02::1:2%eth0")
    assert "there is no network interface 'eth9'" in joined_at(place, address="ff02::1:2%eth9")


@pytest.mark.long
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_join_waits_while_the_kernel_tests_a_new_ipv6_address(network, interface):  # noqa: F811
    """The join does not take loopback meanwhile, where nobody would hear the member."""
    place = network[0]
    an_address_each(place)
    place.run("ip", "address", "add", "fd99:2::1/64", "dev", "eth0")
    assert "tentative" in place.run("ip", "-6", "address", "show", "dev", "eth0")
    assert "[fd99:2::1]" in joined_at(place, interface)


@pytest.mark.long
@pytest.mark.multicast
def test_an_ipv6_address_that_another_machine_has_too_is_named(network):  # noqa: F811
    for place in network[1], network[0]:
        an_address_each(place)
        place.run("ip", "address", "add", "fd99:2::1/64", "dev", "eth0", *(("nodad",) if place is network[1] else ()))
    wait_until(lambda: "dadfailed" in network[0].run("ip", "-6", "address", "show", "dev", "eth0"))
    assert "or another machine has the same" in joined_at(network[0], "")


@pytest.mark.multicast
def test_an_ipv6_address_that_the_kernel_cannot_test_is_not_waited_for(lonely):  # noqa: F811
    """Its interface never had a carrier, so nobody could be asked."""
    lonely.run("ip", "link", "add", "eth0", "type", "veth", "peer", "eth1")
    lonely.run("ip", "link", "set", "eth0", "up")
    lonely.run("ip", "address", "add", "fd99:2::1/64", "dev", "eth0")
    lonely.run("sleep", "2")
    assert "tentative" in lonely.run("ip", "-6", "address", "show", "dev", "eth0")
    out = joined_at(lonely)
    assert "no multicast route" in out and "tested" not in out


JOINED = """
import json, sys
import seqcast
from seqcast._native.driver import describe_address
try:
    with seqcast.join("six", name="a", ip_version=6, **json.loads(sys.argv[1])) as group:
        print(describe_address(group.member.address))
except seqcast.ConfigError as error:
    print(error)
"""


def joined_at(place, interface="", **settings):
    """The address of a member that joins there with these settings, or the error."""
    settings |= {"interface": interface}
    out, err = python(place, "-c", JOINED, json.dumps(settings), ip_version=6).communicate(timeout=60)
    return out + err
