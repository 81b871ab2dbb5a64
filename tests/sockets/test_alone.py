"""A member that founds its group alone: right for the first one, and the only sign of a network without multicast."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
from types import SimpleNamespace
from typing import Any

import members
import pytest
from members import LIMIT_S, LOOPBACK, cluster, group_of, join, script, wait_until, why_no_multicast
from netns import lonely, network  # noqa: F401

import seqcast
from seqcast import ConfigError, JoinRefused, JoinTimeout
from seqcast.core.context import Vote
from seqcast.core.vocabulary import ExcludedBy
from seqcast.net import votes
from seqcast.net.joining import Joining
from seqcast.net.opening import group_address
from seqcast.net.standing import Standing
from seqcast.types import Member

ONE, OTHER = (b"\4\xb8\xce\12\0\0" + bytes([last]) for last in (7, 8))


def founded(caplog):
    return [record for record in caplog.records if "founded the group alone" in record.getMessage()]


@pytest.mark.multicast
def test_a_member_that_founds_a_group_alone_says_so_in_one_line(caplog):
    caplog.set_level(logging.INFO, "seqcast")
    with group_of(2):
        (record,) = founded(caplog)
        assert record.levelno == logging.INFO
        assert record.getMessage().startswith("a: ") and "`seqcast doctor`" in record.getMessage()
        assert record.getMessage().endswith(" (SC4005)") and "\n" not in record.getMessage()


def test_a_join_waits_for_as_many_members_as_it_is_told_to():
    name = cluster()
    views = {}

    def come(member):
        with join(name, member, min_members=3) as group:
            views[member] = len(group.view.members)
            wait_until(lambda: len(views) == 3)

    threads = [threading.Thread(target=come, args=(member,)) for member in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert views == {"a": 3, "b": 3, "c": 3}


@pytest.mark.multicast
def test_a_join_that_waits_in_vain_leaves_and_says_how_many_came_and_which_things_to_check():
    name = cluster()
    with join(name, "a") as first:
        with pytest.raises(JoinTimeout, match=r"2 of min_members=3 members \(a, b\) after 2 s") as info:
            join(name, "b", min_members=3, join_timeout_s=2)
        assert all(word in str(info.value) for word in ("cluster name", "firewall", "IGMP snooping", "interface lo"))
        wait_until(lambda: len(first.view.members) == 1)


def test_an_asyncio_join_waits_for_members_too():
    async def run():
        with pytest.raises(JoinTimeout, match="has 1 of min_members=2"):
            await seqcast.aio.join(cluster(), interface=LOOPBACK, min_members=2, join_timeout_s=0.5)

    asyncio.run(run())


@pytest.mark.parametrize("n", [0, -1, 129, 2.0, True, "2"])
def test_an_impossible_number_of_members_is_refused(n):
    with pytest.raises(ConfigError, match=r"min_members=.* must be a whole number from 1 to 128"):
        join(cluster(), "a", min_members=n)


FOUND = """
import sys, seqcast
cluster, name, interface, found, timeout_s = sys.argv[1:]
try:
    waits = {"found": int(found), "join_timeout_s": float(timeout_s)}
    with seqcast.join(cluster, name=name, interface=interface, **waits) as group:
        print("joined", len(group.view.members), flush=True)
        sys.stdin.readline()
except seqcast.JoinTimeout as error:
    print(error)
"""


@pytest.mark.long
def test_with_found_one_process_waits_and_says_who_is_missing_and_two_form_a_group():
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    name = cluster()
    alone, _ = script(FOUND, name, "a", LOOPBACK, "2", "1.5").communicate(timeout=LIMIT_S)
    assert "no group is heard, and found=2 joiners must hear each other to found one: it hears none" in alone
    assert "1 more must start" in alone and "firewalls" in alone
    two = [script(FOUND, name, member, LOOPBACK, "2", str(LIMIT_S), stdin=subprocess.PIPE) for member in "bc"]
    assert {process.stdout.readline().split()[0] for process in two} == {"joined"}
    with join(name, "d", found=3) as group:  # sides that merge admit the process
        assert {member.name for member in group.view.members} == {"b", "c", "d"}
        for process in two:
            process.communicate("\n", timeout=LIMIT_S)


@pytest.mark.multicast
def test_a_misspelt_name_on_the_address_of_another_group_is_told(caplog):
    """The datagrams that come do not show that the network works: they are of the other group."""
    name = cluster()
    address = group_address(name, 4)
    with join(name, "a", address=address), join(name + "x", "b", address=address) as alone:
        counted = alone.counters()
        assert counted["drop_group"] and len(alone.view.members) == 1
    (said,) = [record for record in caplog.records if "no datagram of another member" in record.getMessage()]
    assert said.levelname == "WARNING" and f"is the name of this one, '{name}x', right?" in said.getMessage()


def test_a_joiner_that_is_excluded_while_it_waits_for_members_says_so():
    """Cut off, the process founded a group, which gave way to the running one when they met."""
    reason = "another group of this cluster is larger: join again"
    cut_off = Standing(Member("c", 1, b""), None)
    cut_off.take(ExcludedBy(None, reason))
    cut_off.end()
    with pytest.raises(JoinTimeout, match=f"was excluded while it waited for min_members=2: {reason}"):
        Joining(cut_off, seqcast.Config(), None, None, None, None).wait_members(2)


@pytest.mark.parametrize(
    ("answered", "hearers", "admits", "said"),
    [
        ((), (), b"", "this member has heard nobody"),
        ((ONE,), (), b"", "those at 10.0.0.7:47310, and nothing shows that they hear it"),
        ((ONE,), (ONE,), ONE, "those at 10.0.0.7:47310, and is heard at 10.0.0.7:47310"),
        ((ONE,), (ONE,), OTHER, "others is at 10.0.0.8:47310, and does not answer: datagrams to there or from there"),
        ((ONE, OTHER), (ONE,), OTHER, "others is at 10.0.0.8:47310, and does not answer: datagrams to there are lost"),
    ],
)
def test_a_join_that_times_out_says_who_has_heard_whom(answered, hearers, admits, said):
    endpoint: Any = SimpleNamespace(
        answered=dict.fromkeys(answered), hearers=hearers, admits=admits, joiners_are_silent=False
    )
    joining = Joining(Standing(Member("a", 1, b""), None), seqcast.Config(), endpoint, None, None, None)
    assert said in joining._directions()


@pytest.mark.multicast
def test_a_joiner_suspects_no_loss_because_others_do_not_say_whom_they_hear():
    name, begun = cluster(), threading.Barrier(2)

    def come(member):
        begun.wait()
        with pytest.raises(JoinTimeout) as late:
            join(name, member, partition="primary", found=3, transport="multicast", join_timeout_s=1.0)
        said.append(str(late.value))

    said: list[str] = []
    both = [threading.Thread(target=come, args=(member,)) for member in "ab"]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(LIMIT_S)
    assert len(said) == 2 and any("this member hears those at" in each for each in said)
    assert not any("may be lost" in each for each in said)


def test_no_join_returns_before_so_many_are_in_a_primary_group_as_found_it():
    name, views = cluster(), {}

    def come(member):
        with join(name, member, partition="primary", found=3) as group:
            views[member] = len(group.view.members)
            wait_until(lambda: len(views) == 3)

    threads = [threading.Thread(target=come, args=(member,)) for member in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert views == {"a": 3, "b": 3, "c": 3}


@pytest.mark.multicast
def test_a_member_with_another_found_is_refused_by_a_primary_group_and_one_that_founds_nothing_is_not():
    name = cluster()
    with pytest.warns(RuntimeWarning, match="Set found="):
        group = join(name, "a", partition="primary")
    with group:
        with pytest.raises(JoinRefused, match="the group has found=1, not 2: join with the same"):
            join(name, "b", partition="primary", found=2)
        with join(name, "c", partition="primary", found=0) as other:
            assert len(other.view.members) == 2


@pytest.mark.multicast
def test_a_primary_group_that_anybody_may_found_is_warned_of(recwarn, caplog):
    with pytest.warns(RuntimeWarning, match="Set found= to a majority of the intended members") as caught:
        join(cluster(), "a", partition="primary").leave()
    assert [warning.filename for warning in caught] == [members.__file__]
    assert [
        record.levelname for record in caplog.records if "founded the group alone; partition=" in record.getMessage()
    ]
    assert "(SC3104)" in caplog.text
    recwarn.clear()
    with pytest.raises(JoinTimeout, match=r"found=2 joiners must hear each other"):
        join(cluster(), "a", partition="primary", found=2, join_timeout_s=0.3)
    assert not recwarn.list


def test_a_vote_outlives_the_join_in_which_it_was_given(monkeypatch):
    name = cluster()
    kept = {(name, "b"): Vote(1 << 62, "gone", 0)}
    monkeypatch.setattr(votes, "_votes", kept)
    for _ in range(2):
        with pytest.raises(JoinTimeout, match="it has voted that gone founds a group"):
            join(name, "b", partition="primary", found=2, join_timeout_s=0.2)
    with join(name, "b", found=1):
        pass
    assert not kept


JOIN = """
import logging, sys, seqcast
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
try:
    name, members, interface, *seeds = sys.argv[1:]
    seqcast.join("x", name=name, interface=interface, seeds=seeds, min_members=int(members), join_timeout_s=1.5).leave()
    print("joined")
except seqcast.SeqcastError as error:
    print(type(error).__name__, error)
"""


def joined(place, *arguments):
    out, err = script(JOIN, *arguments, prefix=place.prefix).communicate(timeout=LIMIT_S)
    assert not err
    return out


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_two_machines_without_multicast_between_them_find_out(network):  # noqa: F811
    a, b, *_ = network
    for place in (a, b):
        place.run("nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; }; "
                  "add rule inet filter input ip daddr 224.0.0.0/4 drop")  # fmt: skip
    running = [script(JOIN, name, "2", "eth0", prefix=place.prefix) for name, place in (("a", a), ("b", b))]
    for process in running:
        out, _ = process.communicate(timeout=LIMIT_S)
        assert "WARNING" in out and "founded the group alone" in out, "on an interface that others could use"
        assert "JoinTimeout the group has 1 of min_members=2 members" in out and "IGMP snooping" in out


@pytest.mark.multicast
@pytest.mark.netns
def test_a_member_in_another_network_namespace_is_not_on_this_machine(network):  # noqa: F811
    """Its board is seen, as namespaces of networks share the memory of boards."""
    name = cluster()
    with join(name, "a"):
        code = f"import logging; logging.basicConfig(); import seqcast; seqcast.join({name!r}).leave()"
        _, err = script(code, prefix=network[0].prefix).communicate(timeout=LIMIT_S)
    assert "founded the group alone" in err and "on this machine" not in err, err


@pytest.mark.long
@pytest.mark.multicast
@pytest.mark.netns
def test_members_of_one_machine_on_two_interfaces_of_a_network_are_told_the_cure_and_then_meet(network):  # noqa: F811
    """The kernel drops its own multicasts that come back by another interface."""
    place = network[0]
    place.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "second", "netns", place.bridge)
    place.run("ip", "-n", place.bridge, "link", "set", "second", "master", "bridge", "up")
    place.run("ip", "address", "add", "10.99.0.9/24", "dev", "eth1")
    place.run("ip", "link", "set", "eth1", "up")

    def said(*seeds):
        cards = {"a": "eth0", "b": "eth1"}.items()
        running = [script(JOIN, name, "2", card, *seeds, prefix=place.prefix) for name, card in cards]
        return [process.communicate(timeout=LIMIT_S)[0] for process in running]

    for out, other in zip(said(), ("b of this group is on this machine, on interface eth1",
                                   "a of this group is on this machine, on interface eth0"), strict=True):  # fmt: skip
        assert "JoinTimeout the group has 1 of min_members=2 members" in out and other in out, out
    assert any("WARNING" in line for line in out.splitlines() if "founded the group alone" in line)
    for out in said("10.99.0.1", "10.99.0.9"):
        assert out.endswith("joined\n"), out


@pytest.mark.long
@pytest.mark.netns
def test_an_interface_that_is_down_is_named_with_the_reason(network):  # noqa: F811
    a, *_ = network
    a.run("ip", "link", "set", "eth0", "down")
    assert "ConfigError interface eth0 is down" in joined(a, "a", "1", "eth0")
    a.run("ip", "link", "set", "eth0", "up")
    a.run("ip", "-n", a.bridge, "link", "set", a.port, "down")  # its cable is pulled
    out = joined(a, "a", "1", "eth0")
    assert "WARNING" in out and "eth0 has no carrier" in out, "alone, and it is known why"
    out = joined(a, "a", "2", "eth0")
    assert "JoinTimeout" in out and "eth0 has no carrier" in out


@pytest.mark.netns
def test_on_a_machine_without_a_network_a_member_with_seeds_elsewhere_is_on_loopback(lonely):  # noqa: F811
    """Multicasts have a route by loopback there, as `alone` and machines without a network have it."""
    lonely.run("ip", "route", "add", "224.0.0.0/4", "dev", "lo")
    out, err = script(JOIN, "a", "1", "", "10.9.9.9", prefix=lonely.prefix).communicate(timeout=LIMIT_S)
    assert out.endswith("joined\n") and "(SC1002)" in err, out
