"""transport="auto" where multicast passes between some members only, with nft in network namespaces."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest
from netns import _or_skip, network  # noqa: F401
from talkers import await_, talkers

from seqcast.perf.paths import bridged

pytestmark = pytest.mark.netns

HEARD = {"a": "bcd", "b": "ac", "c": "de", "d": "abce", "e": "acd"}
"""The incomplete discovery of NBC-04: by member, whose multicasts are heard."""


@pytest.fixture
def five():
    yield from _or_skip(bridged(5))


@contextlib.contextmanager
def deaf(places, pairs):
    """The first member of each pair does not hear the multicasts of the second one."""
    with contextlib.ExitStack() as stack:
        for listener, of in itertools.groupby(sorted(pairs), key=lambda pair: pair[0]):
            place = places["abcde".index(listener)]
            hosts = ", ".join(f"10.99.0.{'abcde'.index(speaker) + 1}" for _, speaker in of)
            place.run(
                "nft",
                "add table inet seqcast_deaf; add chain inet seqcast_deaf input { type filter hook input priority 0; };"
                f" add rule inet seqcast_deaf input ip saddr {{ {hosts} }} ip daddr 224.0.0.0/4 ip protocol udp drop",
            )
            stack.callback(place.run, "nft", "delete table inet seqcast_deaf")
        yield


def in_one_view(made):
    return all(sorted(each.members()) == sorted(one.name for one in made) for each in made)


def all_hear_all(made):
    """Messages of everyone arrive everywhere, from now on."""
    marks = {(one.name, other.name): one.got(other.name) for one in made for other in made}
    await_(made, lambda: all(one.got(other.name) > marks[one.name, other.name] + 60 for one in made for other in made))


@pytest.mark.long
@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_members_with_incomplete_discovery_end_in_one_view_and_stay(five, membership):
    """NBC-04, with both kinds of membership."""
    pairs = {(one, other) for one in HEARD for other in HEARD if one != other and other not in HEARD[one]}
    assert ("a", "e") in pairs and ("e", "a") not in pairs
    settings = {"transport": "auto", "membership": membership}
    with deaf(five, pairs), talkers(five, "abcde", at_once=True, **settings) as made:
        await_(made, lambda: in_one_view(made))
        all_hear_all(made)
        views = [len(each.of("view")) for each in made]
        time.sleep(1.5)
        all_hear_all(made)
        assert in_one_view(made) and [len(each.of("view")) for each in made] == views


@pytest.mark.long
def test_founders_of_which_two_are_deaf_to_each_other_become_one_group(network):  # noqa: F811
    pairs = {("a", "b"), ("b", "a")}
    with deaf(network, pairs), talkers(network, "abc", at_once=True, transport="auto") as made:
        await_(made, lambda: in_one_view(made))
        all_hear_all(made)


@pytest.mark.long
def test_a_link_that_becomes_deaf_under_load_costs_nobody_its_membership(network):  # noqa: F811
    with talkers(network, "abc", transport="auto", level="INFO") as made:
        await_(made, lambda: in_one_view(made))
        views = [len(each.of("view")) for each in made]
        with deaf(network, {("a", "b"), ("a", "c"), ("c", "b")}):
            await_(made, lambda: said(made[1], "a does not hear its multicasts: messages go there by unicast (SC4201)"))
            all_hear_all(made)
        await_(made, lambda: said(made[1], "a hears its multicasts again: messages go there by multicast (SC4201)"))
        all_hear_all(made)
        assert in_one_view(made) and [len(each.of("view")) for each in made] == views


@pytest.mark.long
def test_seeds_bring_members_together_that_hear_nobodys_multicasts(network):  # noqa: F811
    pairs = {(one, other) for one in "abc" for other in "abc" if one != other}
    settings = {"transport": "auto", "seeds": network[1].address}
    with deaf(network, pairs), talkers(network, "abc", at_once=True, **settings) as made:
        await_(made, lambda: in_one_view(made))
        all_hear_all(made)


def said(talker, text):
    return any(text in line["text"] for line in talker.of("log"))
