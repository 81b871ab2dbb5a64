"""Membership policies: an application orders a view's members."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from dataclasses import replace

import pytest
from halves import quick
from members import LOOPBACK, cluster, group_of, join, payloads, wait_until
from sim_literal import storm, turnover
from sim_stage import Stage

import seqcast
from seqcast import Lost, MembershipChange, MergeView
from seqcast.sim import Options, World
from seqcast.sim.options import MS, SECOND


def last_in_front(change):
    """The member that joined last coordinates."""
    return change.members[::-1]


def names(view):
    return "".join(member.name for member in view.members)


# ---- simulated groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "policy"),
    quick(
        [("total", "mixed"), ("total", "raises")],
        ["fifo", "total"],
        ["by_name", "reversed", "joiners_first", "shuffled", "mixed", "raises", "rubbish"],
    ),
)
def test_all_guarantees_hold_under_every_policy(policy, order):
    """Also if the sequencer changes in each view, and its predecessor stays."""
    for kind, seed, partition in ((storm, 1, "merge"), (storm, 6, "primary"), (turnover, 6, "merge")):
        world = World(replace(kind(seed, order), policy=policy, partition=partition))
        result = world.run()
        assert not result.violations, f"{kind.__name__}({seed}, {order!r}), {partition}: {result.violations[0]}"
        failed = sum(node.endpoint.counters["membership_policy_failed"] for node in world.nodes)
        assert policy == "mixed" or (failed > 0) is (policy in ("raises", "rubbish"))


def test_a_policy_is_told_who_joins_leaves_and_was_lost_and_who_merges():
    world = World(Options(members=4, order="total", spread_ns=0, duration_ns=3 * SECOND, policy="by_name"))
    world.doubted = True  # the network is cut by hand: not every change of the view has a reason in the options
    world.clock.at(800 * MS, lambda: world.nodes[3].leave())
    world.clock.at(1200 * MS, lambda: world.nodes[2].crash())
    world.clock.at(1800 * MS, world.network.partition, {0}, {1})
    world.clock.at(2600 * MS, world.network.heal)
    told: list[MembershipChange] = []
    start_node = world.start_node

    def started(name):
        start_node(name)
        context = world.nodes[-1].endpoint.context
        by_name = context.settings.membership_policy

        def policy(change):
            told.append(change)
            return by_name(change)

        context.settings = replace(context.settings, membership_policy=policy)

    world.start_node = started
    assert not world.run().violations

    def said(*fields):
        return [tuple("".join(m.name[1] for m in getattr(change, field)) for field in fields) for change in told]

    assert len({number for _, joiners in said("members", "joiners") for number in joiners}) == 3  # but the first
    assert [change for change in said("leavers", "members") if change[0]] == [("3", "012")]
    assert ("2", "01") in said("lost", "members")
    merges = [[sorted(m.name for m in group) for group in change.subgroups] for change in told if change.subgroups]
    assert merges and all(sorted(groups) == [["m0"], ["m1"]] for groups in merges)
    merged = [entry for entry in world.nodes[0].record.log if isinstance(entry, MergeView)]
    assert merged and names(merged[0]) == "m0m1"


# ---- real sockets ------------------------------------------------------------------------------------------------


def preferred(change):
    """As in docs/protocol.md: the member "big" coordinates whenever present."""
    return sorted(change.members, key=lambda member: member.name != "big")


def test_a_preferred_member_becomes_coordinator_and_sequencer_when_it_joins():
    name = cluster()
    settings = {"membership_policy": preferred, "order": "total"}
    with join(name, "a", **settings) as a, join(name, "b", **settings) as b:
        wait_until(lambda: names(a.view) == names(b.view) == "ab")
        a.send(b"1")
        with join(name, "big", **settings) as big:
            wait_until(lambda: all(names(group.view) == "bigab" for group in (a, b, big)))
            assert a.view.coordinator == big.member and a.view.members[a.view.sequencer] == big.member
            for number, group in enumerate((a, b, big)):
                group.send(b"%d" % number)
            assert payloads(a, 4)[1:] == payloads(b, 4)[1:] == payloads(big, 3)
        wait_until(lambda: names(a.view) == names(b.view) == "ab")


def test_a_joiner_that_speaks_for_its_group_knows_which_messages_the_others_did_not_deliver():
    """b continues without a's last message; c joins b and comes before b when the sides merge."""
    stage = Stage(policy="joiners_first")
    stage.group("a", "b")
    a, b = stage.nodes
    view = a.endpoint.view
    stage.network.partition({a.index}, {b.index})
    a.record.pending.append((0, 100))
    a.service()
    stage.until(2000)
    stage.network.partition({a.index}, {2})
    stage.named("c", 2000)
    stage.until(2500)
    assert [member.name for member in b.endpoint.view.members] == ["c", "b"]
    stage.network.heal()
    stage.until(4000)
    assert len(a.endpoint.view.members) == 3
    (lost,) = [entry for entry in a.record.log if isinstance(entry, Lost)]
    assert (lost.view_id, lost.first_seqno, lost.last_seqno) == (view.view_id, 1, 1) and lost.missed_by is not None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda change: 1 / 0, "raised ZeroDivisionError"),
        (lambda change: sys.exit("no"), "raised SystemExit"),
        (lambda change: change.members[1:], "did not return each of change.members once"),
        (lambda change: [*change.members[1:], "a"], "did not return each"),
        (lambda change: itertools.cycle(change.members), "did not return each"),
        (lambda change: None, "raised TypeError"),
    ],
)
def test_a_policy_that_fails_is_warned_of_and_counted_and_harms_nobody(policy, words, caplog):
    with caplog.at_level(logging.WARNING, "seqcast"), group_of(2, membership_policy=policy) as (a, b):
        assert names(a.view) == names(b.view) == "ab"
        a.send(b"goes on")
        assert payloads(b, 1) == [b"goes on"]
        assert a.counters()["control_membership_policy_failed"] == 1
    assert any(f"a: membership_policy {words}" in record.getMessage() for record in caplog.records)


def test_a_policy_that_takes_long_is_warned_of(caplog):
    def slow(change):
        time.sleep(0.05)
        return last_in_front(change)

    with caplog.at_level(logging.WARNING, "seqcast"), group_of(2, membership_policy=slow) as (a, b):
        wait_until(lambda: names(a.view) == names(b.view) == "ba")
    assert any("membership_policy took " in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("order", ["total", "sequencer"])
def test_the_sequencer_is_the_member_that_the_policy_chooses(order):
    name = cluster()
    settings = {"sequencer_policy": lambda members: members[-1], "order": order}
    with join(name, "a", **settings) as a, join(name, "b", **settings) as b:
        wait_until(lambda: names(a.view) == names(b.view) == "ab")
        assert a.view.sequencer == b.view.sequencer == 1 and a.view.coordinator == a.member
        for group in (a, b):
            group.send(group.member.name.encode())
        assert payloads(a, 2) == payloads(b, 2)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (lambda members: 1 / 0, "raised ZeroDivisionError"),
        (lambda members: sys.exit("no"), "raised SystemExit"),
        (lambda members: seqcast.Member("stranger", 5), "did not return one of the members"),
        (lambda members: 1, "did not return one of the members"),
    ],
)
def test_a_wrong_choice_of_the_sequencer_is_warned_of_and_counted(policy, words, caplog):
    with caplog.at_level(logging.WARNING, "seqcast"), group_of(2, order="total", sequencer_policy=policy) as (a, b):
        assert a.view.sequencer == b.view.sequencer == 0
        assert a.counters()["control_sequencer_policy_failed"] == 1
    assert any(f"a: sequencer_policy {words}" in record.getMessage() for record in caplog.records)


def test_an_order_without_a_choice_of_the_sequencer_refuses_a_policy():
    for order in ("fifo", "causal", "grant", "total-1999"):
        with pytest.raises(seqcast.ConfigError, match="any member can be the sequencer"):
            join(cluster(), "a", order=order, sequencer_policy=lambda members: members[0])
    with pytest.raises(seqcast.ConfigError, match="must be a function from a view's members"):
        join(cluster(), "a", order="total", sequencer_policy="last")


def test_asyncio_groups_have_one_too():
    async def main():
        name = cluster()
        settings = {"interface": LOOPBACK, "membership_policy": last_in_front}
        async with seqcast.aio.join(name, name="a", **settings) as a, seqcast.aio.join(name, name="b", **settings):
            while len(a.view.members) < 2:
                await asyncio.sleep(0.005)
            assert names(a.view) == "ba"

    asyncio.run(main())


def test_a_policy_that_is_not_a_function_is_refused():
    with pytest.raises(seqcast.ConfigError, match="must be a function from a MembershipChange"):
        join(cluster(), "a", membership_policy="by name")
