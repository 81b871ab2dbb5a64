"""Two machines with one IP address, as when a virtual machine is cloned: the two are named, and no switch is blamed."""

from __future__ import annotations

import contextlib

import pytest
from netns import network  # noqa: F401
from talkers import Talker, await_, talkers

pytestmark = pytest.mark.netns

PORT = 47399
SAME = "have the same address, 10.99.0.2"


def clone(place, of):
    """The machine has the IP address and the MAC address of the other one."""
    hardware = of.run("ip", "-brief", "link", "show", "dev", "eth0").split()[2]
    place.run("ip", "address", "flush", "dev", "eth0")
    place.run("ip", "link", "set", "dev", "eth0", "address", hardware)
    place.run("ip", "address", "add", "10.99.0.2/24", "dev", "eth0")
    place.run("ip", "route", "replace", "224.0.0.0/4", "dev", "eth0")


@contextlib.contextmanager
def cloned(places, **settings):
    """a, b, and c on a clone of the machine of b."""
    clone(places[2], places[1])
    with talkers(places[:2], "ab", **settings) as made:
        made.append(Talker(places[2], made[0].cluster, "c", **settings))
        try:
            yield made
        finally:
            made[2].end()


def warnings(talker):
    return [said["text"] for said in talker.of("log") if said["level"] == "WARNING"]


@pytest.mark.long
@pytest.mark.multicast
def test_members_of_two_machines_with_one_address_are_named_once(network):  # noqa: F811
    with cloned(network) as made:
        await_(made, lambda: any(SAME in text for text in warnings(made[0])), 60.0)
        views = len(made[0].of("view"))
        await_(made, lambda: len(made[0].of("view")) >= views + 3, 60.0)
        said = [text for text in warnings(made[0]) if SAME in text]
        assert len(said) <= 2 and all("a MAC address of its own if one is a clone" in text for text in said), said
        assert not any("switches on the way" in text for text in warnings(made[0]))


@pytest.mark.long
@pytest.mark.multicast
def test_a_joiner_with_the_address_and_port_of_a_living_member_is_refused(network):  # noqa: F811
    with cloned(network, unicast_port=PORT) as made:
        await_(made, lambda: any(SAME in text for text in warnings(made[0])))
        said = [text for text in warnings(made[0]) if SAME in text]
        assert said[0].startswith("a: b and c ") and "and the same port, so they run on two machines" in said[0]
        assert made[0].members() == ["a", "b"]
