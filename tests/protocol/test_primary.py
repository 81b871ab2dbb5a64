"""Primary partitions: which members may close a view, which VIEW is proposed again, which group gives way, and
operators."""

import itertools
import signal
import sys
import time
from dataclasses import replace
from unittest import mock

import pytest
from members import LIMIT_S, LOOPBACK, cluster, founded, join, script, wait_until, why_no_multicast
from sim_stage import Stage, names, send, views

import seqcast
from seqcast.cli import main as command
from seqcast.core import orders
from seqcast.core.frames.closing import Accepted, Fetch, Held, Ok, Propose, Start
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.unblocking import BlockedSide, Side, Unblock
from seqcast.core.frames.view import NewView
from seqcast.core.machines.operator import Operator
from seqcast.core.markers import Markers
from seqcast.core.rules.cut import fetch_up_to, first_view
from seqcast.core.rules.quorum import Allowance, is_quorum, to_repeat
from seqcast.core.table import Edge
from seqcast.errors import SeqcastError, UsageError
from seqcast.events import Blocked, Excluded, Lost, Unblocked
from seqcast.sim import Options, World, simulate
from seqcast.sim.operator import OperatorProcess
from seqcast.sim.options import MS, SECOND
from seqcast.sim.record import Delivered

# ---- who may close a view -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 8))
def test_any_two_quorums_have_a_member_in_common_and_of_two_sides_at_most_one_is_one(n):
    members = list(range(10, 10 + n))
    quorums = [
        set(chosen)
        for size in range(n + 1)
        for chosen in itertools.combinations(members, size)
        if is_quorum(members, chosen)
    ]
    assert all(one & other for one in quorums for other in quorums)
    assert {min(map(len, quorums))} == {(n + 1) // 2}  # exactly half is enough with the first member
    for chosen in quorums:
        assert not is_quorum(members, set(members) - chosen)
        assert is_quorum(members, chosen | {99}), "a stranger counts for nothing, and does no harm"
    assert not is_quorum(members, {members[-1], 98, 99}) or n == 1


# ---- proposals repeated
# -----------------------------------------------------------------------------------------------

INFOS = [MemberInfo(name, number, b"x", 1 << 20, 1472, 1 << 20) for number, name in enumerate("abc", 1)]
FIRST = first_view(INFOS, "fifo", orders.resolve("fifo"), 1)


def proposal(survivors, cut, counter=2):
    return replace(
        FIRST,
        closes=FIRST.view_id,
        view_id=replace(FIRST.view_id, counter=counter),
        survivors=survivors,
        cut=cut,
        table=(0,) * len(cut),
    )


def ok(accepted=None, held=(5, 5, 5)):
    return Ok(1, (9, 0), 5, tuple(Held(prefix) for prefix in held), None, accepted)


def test_the_proposal_of_the_highest_attempt_that_one_accepted_is_repeated():
    old, new = proposal((1, 2), (5, 5, 3)), proposal((2, 3), (4, 5, 5), 3)
    proposals = {(1, 0): old, (2, 1): new}
    assert to_repeat({0: ok(), 1: ok()}, {}, (1, 2), None) is None
    assert to_repeat({0: ok((1, 0)), 1: ok((2, 1)), 2: ok()}, proposals, (1, 2, 3), None) is new
    assert to_repeat({0: ok((1, 0)), 1: ok()}, proposals, (1, 2), None) is old


def test_by_an_operators_leave_a_proposal_is_repeated_only_within_reach_and_if_it_leaves_nobody_out():
    allowed = Allowance((3, 0), (1, 2))
    for survivors, cut, held, repeated in [
        ((1, 2), (5, 5, 3), (5, 5, 5), True),
        ((1, 2), (5, 5, 6), (5, 5, 5), False),  # no survivor has the sixth
        ((2, 3), (5, 5, 3), (5, 5, 5), False),  # the view leaves the first one out
    ]:
        made = proposal(survivors, cut)
        found = to_repeat({0: ok((1, 0), held), 1: ok(None, held)}, {(1, 0): made}, (1, 2), allowed)
        assert found is (made if repeated else None)
    late = proposal((2, 3), (9, 9, 9))  # from after the operator's leave: those that had it accepted it
    assert to_repeat({0: ok((4, 0))}, {(4, 0): late}, (1, 2), allowed) is late


def test_for_a_proposal_that_is_repeated_all_survivors_fetch_and_only_up_to_its_cut():
    oks = {0: ok(held=(9, 2, 7)), 1: ok(held=(4, 6, 7))}
    assert fetch_up_to((6, 5, 7), oks) == (Fetch(0, 5, 6, 0), Fetch(1, 3, 5, 1))
    oks[2] = ok(held=(9, 6, 4))  # whether the proposal has that one or not
    assert fetch_up_to((6, 5, 7), oks) == (Fetch(0, 5, 6, 0), Fetch(1, 3, 5, 1), Fetch(2, 5, 7, 0))


# ---- on the simulated network ----------------------------------------------------------------------------------------


def test_of_two_the_first_goes_on_and_the_other_is_blocked_until_they_meet():
    stage = Stage(partition="primary")
    stage.group("a", "b")
    a, b = stage.nodes
    stage.network.partition({a.index}, {b.index})
    stage.until(3000)
    assert names(a)[-1] == ["a"] and names(b)[-1] == ["a", "b"]
    assert (
        "[b] of [a, b]" in b.record.blocked.reason
        and "seqcast unblock sim" in b.record.blocked.reason
        and a.record.blocked is None
    )
    stage.network.heal()
    stage.until(4000)
    assert isinstance(b.record.log[-1], Excluded) and b.record.log[-1].view_id == a.endpoint.view.view_id


@pytest.mark.parametrize("order", ["fifo", "total"])
@pytest.mark.parametrize("name", ["a", "c"])
def test_an_excluded_member_is_told_which_messages_the_others_did_not_deliver(order, name):
    """The member is cut off, and sends before it hears of that; in "total" a is the sequencer."""
    stage = Stage(order, partition="primary")
    stage.group("a", "b", "c")
    node = stage.node(name)
    stage.network.partition({node.index}, {other.index for other in stage.nodes if other is not node})
    node.record.pending += [(0, 100)] * 3
    node.service()
    stage.until(2500)
    stage.network.heal()
    stage.until(3000)
    lost, excluded = node.record.log[-2:]
    assert isinstance(excluded, Excluded) and excluded.view_id == stage.node("b").endpoint.view.view_id
    # All three are in one packet.
    assert lost == Lost(views(node)[-1].view_id, 1, 1, excluded.view_id, messages=3)


def test_leavers_shrink_the_view_and_count_until_they_are_gone():
    stage = Stage(partition="primary")
    stage.group("a", "b", "c", "d", "e")
    for at_ms, name in ((1000, "a"), (1000, "b"), (1300, "c")):
        stage.until(at_ms)
        stage.node(name).leave()
    stage.until(2000)
    assert names(stage.node("e"))[-1] == ["d", "e"]
    stage.node("e").crash()
    stage.until(4000)
    assert names(stage.node("d"))[-1] == ["d"] and stage.node("d").record.blocked is None


def test_joiners_that_die_at_once_block_nobody():
    """Five ask a to be admitted, and are gone before their view. In a view with all of them, a would be too few."""
    stage = Stage(partition="primary", hosts=True)
    stage.named("a")
    stage.until(500)
    for name in "bcdef":
        stage.named(name, 500)
    stage.until(501)
    for node in stage.nodes[1:]:
        node.crash()
    stage.until(5000)
    assert names(stage.node("a"))[-1] == ["a"] and stage.node("a").record.blocked is None
    settings = stage.node("a").endpoint.context.settings  # not even if a policy puts the joiner first
    reverse = replace(settings, membership_policy=lambda change: list(reversed(change.members)))
    stage.node("a").endpoint.context.settings = reverse
    stage.named("g", 5000)
    stage.until(5001)
    stage.nodes[-1].crash()
    stage.until(5900)
    assert names(stage.node("a"))[-2:] == [["a", "g"], ["a"]] and stage.node("a").record.blocked is None
    stage.node("a").endpoint.context.settings = settings
    for name in "vwxyz":
        stage.named(name, 6000)
    stage.until(6300)
    assert [len(each) for each in names(stage.node("a"))][-4:] == [1, 2, 4, 6]


def test_one_that_takes_all_others_for_dead_is_heard_and_taken_in_again():
    """c doubts a and b, for good: only a view change with all three opens its gate."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    c.doubt(a.id)
    c.doubt(b.id)
    stage.until(1004)
    assert c.record.blocked.kind == "minority"
    stage.until(1500)
    assert [names(node)[-1] for node in stage.nodes] == [["a", "b", "c"]] * 3 and len(views(c)) == 2
    assert c.record.blocked is None


def test_one_that_was_seen_elsewhere_counts_again_when_it_closes_our_view():
    """The member entered the view late, by an operator's leave: until then its beacons told of the view before."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    c.endpoint.machines.membership.gone |= {a.id, b.id}
    c.step()
    c.service()
    stage.until(2000)
    assert [names(node)[-1] for node in stage.nodes] == [["a", "b", "c"]] * 3 and c.record.blocked is None


@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_a_member_that_missed_its_own_cut_acts_again_when_the_next_one_is_too_few_without_it(membership):
    """a lacks a packet of b, which crashed, and does not get the packet until its deadline. Without a, c and d are too
    few."""
    stage = Stage(partition="primary", membership=membership)
    stage.group("a", "b", "c", "d")
    a, b, c, d = stage.nodes
    deaf = stage.deafen(a)
    b.record.pending += [(0, 100)]
    b.service()
    stage.until(1010)
    b.crash()
    a.doubt(b.id)
    while a.id not in a.endpoint.machines.participant.lapsed:
        stage.until(stage.clock.now // MS + 10)
        assert stage.clock.now < 10 * SECOND
    deaf.clear()
    stage.until(stage.clock.now // MS + 5000)
    assert [names(node)[-1] for node in (a, c, d)] == [["a", "c", "d"]] * 3
    assert all(node.record.blocked is None for node in (a, c, d))


def apart(stage, first, second):
    """Two groups that were founded apart, each member 200 ms behind the one before."""
    stage.network.partition(set(range(len(first))), set(range(len(first), len(first + second))))
    for number, name in enumerate(first + second):
        stage.named(name, 200 * number)
    stage.until(2000)
    assert names(stage.node(first[0]))[-1] == [*first] and names(stage.node(second[0]))[-1] == [*second]


@pytest.mark.parametrize(("first", "second"), [("ab", "cde"), ("abc", "de"), ("a", "bcd")])
def test_of_two_groups_that_were_founded_apart_the_smaller_gives_way(first, second):
    stage = Stage(partition="primary")
    apart(stage, first, second)
    stage.network.heal()
    stage.until(4000)
    larger, smaller = sorted((first, second), key=len, reverse=True)
    for name in smaller:
        assert stage.node(name).endpoint.over and "larger: join again" in stage.node(name).record.log[-1].reason
    assert names(stage.node(larger[0]))[-1] == [*larger]


def test_packets_that_a_repeated_proposal_delivers_outlive_their_first_holder():
    """a proposes [a, b] and proposes this again with c, which is left out; b has not had a's packet when a crashes."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    deaf = stage.deafen(b, c)
    a.record.pending += [(0, 100)]
    a.service()
    a.doubt(c.id)
    stage.until(1006)
    assert a.endpoint.machines.participant.accepted is not None
    deaf.remove(c.index)
    a.doubt(b.id)
    stage.until(1500)
    assert c.endpoint.machines.participant.accepted is not None
    a.crash()
    deaf.clear()
    stage.until(4000)
    assert names(b)[-1] == ["a", "b"] and c.endpoint.over
    assert sum(isinstance(entry, Delivered) for entry in b.record.log) == 1


def test_a_blocked_group_gives_way_to_a_smaller_one_that_is_not():
    stage = Stage(partition="primary")
    apart(stage, "abcde", "xy")
    for name in "abcy":
        stage.node(name).crash()
    stage.until(4000)
    assert stage.node("d").record.blocked.kind == stage.node("e").record.blocked.kind == "minority"
    stage.network.heal()
    stage.until(6000)
    assert stage.node("d").endpoint.over and stage.node("e").endpoint.over and names(stage.node("x"))[-1] == ["x"]


def test_a_group_that_lacks_a_joiner_that_another_one_took_in_too_gives_way_to_it():
    """j is named by a's view and by c's, and enters the first one. When d crashes, c lacks j for good."""
    stage = Stage(partition="primary")
    stage.network.partition({0}, {1, 2})
    for number, name in enumerate("acd"):
        stage.named(name, 200 * number)
    stage.until(1000)
    a, c, d = stage.nodes
    stage.refuse = lambda source, node, frame: source in (c, d) and node.name == "j" and isinstance(frame, NewView)
    stage.named("j", 1000)
    stage.until(1100)
    j = stage.nodes[-1]
    assert names(j) == [["a", "j"]] and names(c)[-1] == ["c", "d", "j"]
    d.crash()
    a.leave()
    stage.until(5000)
    assert names(j)[-1] == ["j"] and c.endpoint.over and "larger: join again" in c.record.log[-1].reason


def test_groups_of_another_setting_are_left_alone():
    stage = Stage()
    stage.network.partition({0}, {1})
    for at_ms, (name, partition) in enumerate((("a", "merge"), ("b", "primary"))):
        stage.options = replace(stage.options, partition=partition)
        stage.named(name, at_ms)
        stage.until(at_ms + 1)
        settings = stage.nodes[-1].endpoint.context.settings
        stage.nodes[-1].endpoint.context.settings = replace(settings, shared=(("partition", partition),))
    stage.until(1000)
    stage.network.heal()
    stage.until(10_000)
    assert [names(node) for node in stage.nodes] == [[["a"]], [["b"]]]
    assert sum("other settings: the group has partition=" in line for line in stage.lines) == 2


# ---- operators -------------------------------------------------------------------------------------------------------


def fallen_apart(sides):
    """Members split into sides, none of which has a majority."""
    stage = Stage(partition="primary")
    stage.group(*"".join(sides))
    for number, side in enumerate(sides):
        others = {stage.node(name).index for other in sides[number + 1 :] for name in other}
        stage.network.partition({stage.node(name).index for name in side}, others)
    stage.until(2500)
    assert all(node.record.blocked.kind == "minority" for node in stage.nodes)
    return stage


def test_an_operator_that_reaches_several_sides_must_name_one():
    stage = fallen_apart(["ab", "cd", "e"])
    process = OperatorProcess(stage, 0)
    stage.until(6000)
    assert process.over and process.operator.side is None and not stage.allowed
    with pytest.raises(SeqcastError, match=r"several sides are blocked.*\[a, b\].*--member"):
        process.operator.choose()
    with pytest.raises(UsageError, match="'z' is not blocked as a minority; these are: a, b, c, d, e"):
        process.operator.choose("z")
    process.operator.choose("d")
    assert process.operator.reached == ("c", "d") and process.operator.missing == ("a", "b", "e")


@pytest.mark.parametrize("known", "ab")
def test_an_operator_that_knows_one_member_gets_the_addresses_of_its_side(known):
    stage = fallen_apart(["ab", "c", "de"])
    with mock.patch.object(OperatorProcess, "_audience", lambda self: [stage.node(known).public]):
        process = OperatorProcess(stage, 0)
        stage.until(6000)
    assert process.operator.accepted == ["a", "b"]
    assert names(stage.node("a"))[-1] == names(stage.node("b"))[-1] == ["a", "b"]


def test_an_operators_permission_holds_for_one_side_whose_minorities_are_blocked_again():
    stage = fallen_apart(["abc", "def", "x", "y"])
    with mock.patch.object(Operator, "choose", lambda self, member: original(self, "f")):
        OperatorProcess(stage, 0)
        stage.refuse = lambda source, node, frame: isinstance(frame, Propose)  # no step after that
        stage.until(3000)
    d, e, f = (stage.node(name) for name in "def")
    assert [bool(node.endpoint.context.allowed) for node in stage.nodes] == [n.name in "def" for n in stage.nodes]
    stage.refuse = lambda source, node, frame: False
    stage.network.partition({d.index}, {e.index, f.index})
    d.crash()
    stage.until(5000)
    assert names(e)[-1] == names(f)[-1] == ["e", "f"], "two of the three that were allowed"
    assert all(names(stage.node(name))[-1] == [*"abcdefxy"] for name in "abcxy")


def test_a_side_that_was_allowed_and_loses_the_others_again_can_be_allowed_again():
    stage = Stage(partition="primary")
    stage.group(*"abcde")
    for name in "abc":
        stage.node(name).crash()
    stage.until(3000)
    stage.refuse = lambda source, node, frame: isinstance(frame, Propose)
    OperatorProcess(stage, 0)
    stage.until(3500)
    d, e = stage.node("d"), stage.node("e")
    assert [len(node.endpoint.context.allowed.members) for node in (d, e)] == [2, 2]
    d.crash()
    stage.until(6000)
    assert names(e)[-1] == [*"abcde"] and e.record.blocked.kind == "minority"
    OperatorProcess(stage, 1)
    stage.until(8000)
    assert names(e)[-1] == ["e"] and e.record.blocked is None


def test_a_leaver_that_gave_up_keeps_nobody_from_forming_a_group():
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.crash()
    b.crash()
    stage.until(2000)
    c.leave()
    stage.named("d", 2500)
    stage.until(3000)
    assert c.endpoint.over and names(stage.nodes[-1]) == []
    stage.until(20_000)
    assert names(stage.nodes[-1]) == [["d"]]


original = Operator.choose


def test_a_leave_for_another_side_or_an_older_attempt_is_not_heeded():
    stage = fallen_apart(["ab", "cd", "e"])
    a, *_, e = stage.nodes
    tag = e.endpoint.view.view_id.tag
    attempt = e.endpoint.machines.participant.promise
    for side in (Side(tag, (attempt[0], 0)), Side(tag, (attempt[0] + 1, attempt[1])), Side(tag + 1, attempt)):
        send(stage, a, dump(Unblock("sim", 1, side)), e)
        assert e.endpoint.context.allowed is None
    stage.network.heal()
    send(stage, a, dump(Unblock("another", 1, Side(tag, attempt))), e)
    assert e.endpoint.context.allowed is None


def test_answers_to_another_command_or_too_many_of_them_are_not_heeded():
    operator = Operator("c", 7, 10, 10, 0)
    answer = BlockedSide(7, Side(5, (1, 0)), "a", ("a",), ("b",), False)
    operator.heard(dump(replace(answer, request=8)))
    with pytest.raises(SeqcastError, match="no member of 'c'"):
        operator.choose()
    for number in range(2000):
        operator.heard(dump(replace(answer, name=f"n{number}")))
    assert len(operator.answers) == 1024
    operator.heard(dump(replace(answer, name="n0", side=Side(6, (1, 0)))))  # of another side by now
    with pytest.raises(SeqcastError, match="several"):
        operator.choose()


def test_a_proposal_that_its_sender_may_not_make_is_counted_and_dropped():
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    view, tag = a.endpoint.view, a.endpoint.view.view_id.tag
    ids = tuple(member.id for member in view.members)
    stage.refuse = lambda source, node, frame: source is a and not isinstance(frame, Start)
    a.doubt(c.id)
    stage.until(1010)
    promise = b.endpoint.machines.participant.promise
    assert promise == (1, 0)
    infos = list(a.endpoint.context.infos.values())
    first = first_view(infos, "fifo", orders.resolve("fifo"), a.id)
    made = replace(first, closes=view.view_id, cut=(0, 0, 0), table=(0, 0, 0), survivors=ids)
    made = replace(made, view_id=replace(view.view_id, counter=99))
    before = b.endpoint.counters["frames_bad"]
    bad = [Propose(tag, promise, made), Propose(tag, promise, replace(made, cut=(0, 0), table=(0, 0)))]
    for number, frame in enumerate(bad):  # by a member that is not the initiator
        send(stage, c, dump(frame), b)
        assert b.endpoint.counters["frames_bad"] == before + number + 1
    before = a.endpoint.counters["frames_bad"]
    elsewhere = replace(made, closes=replace(view.view_id, counter=1))
    send(stage, b, dump(Accepted(tag, a.endpoint.machines.initiator.attempt, (1, 0), elsewhere)), a)
    assert a.endpoint.counters["frames_bad"] == before + 1
    assert len(a.endpoint.machines.initiator.accepted) == 0


# ---- the checkers ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_minority_that_is_not_told_so_is_found():
    tell = Markers.tell_blocked

    def silent(self, kind, reason):
        tell(self, "flush", reason)

    options = Options(seed=1, members=3, partition="primary", split=3, order="fifo")
    assert not World(options).run().violations
    with mock.patch.object(Markers, "tell_blocked", silent):
        assert any("was not told so" in words for words in World(options).run().violations)


@pytest.mark.parametrize(
    "seeds", [(1, 7, 15), pytest.param((*range(2, 7), *range(16, 31)), marks=pytest.mark.long)], ids=str
)
def test_all_guarantees_hold_in_a_primary_partition(seeds):
    edges, operators = set(), 0
    for seed in seeds:
        world = World(replace(Options.draw(seed, partition="primary"), duration_ns=SECOND))
        result = world.run()
        assert not result.violations, f"seqcast sim --seed {seed} --partition primary --duration 1: {result.violations}"
        edges |= result.edges
        operators += len(world.operators)
    wanted = [
        Edge("initiator", "STARTING", "OK", "is_last_ok_of_too_few"),
        Edge("initiator", "TOO_FEW", "REVIEW", "is_enough"),
        Edge("lifecycle", "IN", "EXCLUDED"),
    ]
    for edge in wanted:
        assert edge in edges, f"the runs no longer take {edge}"
    assert operators, "no majority was lost"


def test_a_run_with_an_operator_replays_exactly():
    options = replace(Options.draw(3, partition="primary"), members=4, crashes=3, restarts=0, split=0)
    assert simulate(options).digest == simulate(options).digest


# ---- on real sockets -------------------------------------------------------------------------------------------------

MEMBER = """
import sys, seqcast
with seqcast.join(sys.argv[1], name=sys.argv[2], interface=sys.argv[3], partition="primary", suspect_s=2.0) as group:
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def minority():
    """A group of three on loopback, two of which were killed."""
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    name = cluster()
    others = [script(MEMBER, name, member, LOOPBACK) for member in "ab"]
    try:
        for process in others:
            assert process.stdout.readline() == "in\n"
        founded(name)
        group = join(name, "c", partition="primary", suspect_s=2.0)
        wait_until(lambda: len(group.view.members) == 3)
        for process in others:
            process.send_signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        yield name, group
        group.leave(0.1)
    finally:
        for process in others:
            process.kill()
            process.communicate()


def told(group, kind):
    """The next event of this kind."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        event = group.next_event(0.2)
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} in {LIMIT_S:g} s")


@pytest.mark.long
def test_a_minority_names_its_missing_members_and_goes_on_when_an_operator_says_so(minority, capsys):
    name, group = minority
    blocked = told(group, Blocked)
    assert blocked.kind == "minority" and blocked.reason.endswith(f"seqcast unblock {name} --interface {LOOPBACK}")
    with pytest.raises(seqcast.SendTimeout, match=r"only \[c\] of .*which is not a majority"):
        for _ in range(100):
            group.send(b"x" * 1000, timeout=0.2)
    assert command(["unblock", name, "--interface", LOOPBACK, "--list"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("blocked: c; out of reach: ") and set(said.strip()[-4:]) == set("a, b")
    assert command(["unblock", name, "--interface", LOOPBACK, "--member", "z"]) == 2
    assert "'z' is not blocked as a minority; these are: c" in capsys.readouterr().err
    assert command(["unblock", name, "--interface", LOOPBACK, "--timeout", str(LIMIT_S)]) == 0
    assert "accepted by c: the group continues without 2 members" in capsys.readouterr().out
    assert told(group, Unblocked).kind == "minority" and [str(member) for member in group.view.members] == ["c"]
    group.send(b"on", timeout=LIMIT_S)
    assert told(group, seqcast.Message) is not None
    assert command(["unblock", name, "--interface", LOOPBACK]) == 1
    assert "is blocked as a minority" in capsys.readouterr().err


@pytest.mark.long
def test_join_times_out_with_the_answer_of_a_blocked_group(minority):
    name, group = minority
    told(group, Blocked)
    with pytest.raises(seqcast.JoinTimeout, match=r"is blocked: only \[c\] of .* seqcast unblock") as error:
        join(name, "a", partition="primary", suspect_s=2.0, join_timeout_s=2.5)
    assert not isinstance(error.value, seqcast.JoinRefused)


def test_unblock_names_the_fault_of_its_input(capsys):
    for argv in ([], ["", "--interface", LOOPBACK], ["c", "--interface", "nosuch0"], ["c", "--timeout", "x"]):
        assert command(["unblock", *argv]) == 2
        assert capsys.readouterr().err.strip()
    assert command(["unblock", "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "is not authenticated" in help_text and "really ended" in help_text


def test_a_joiner_with_the_other_setting_is_told_so():
    name = cluster()
    refusal = pytest.raises(seqcast.JoinTimeout, match="has partition=primary, not merge")
    with join(name, "a", partition="primary"), refusal:
        join(name, "b")


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.spark
def test_a_member_that_is_cut_off_is_blocked_and_excluded_and_joins_again_and_the_audit_holds(spark, tmp_path):
    pytest.importorskip("pyarrow")
    from chaos.runner import Run, judge
    from chaos.scenarios import DIRECTED

    from seqcast.perf.paths import why_no_namespaces

    if why := why_no_namespaces():
        pytest.skip(why)
    run = Run(next(one for one in DIRECTED if one.name == "primary-one-cut-off"), tmp_path)
    seen, take = [], run.take
    run.take = lambda process, said: (seen.append((process.name, said)), take(process, said))
    run.run()
    (blocked,) = (name for name, said in seen if "kind='minority'" in said.get("text", ""))
    (excluded,) = (name for name, said in seen if said["event"] == "excluded")
    assert blocked == excluded and run.kinds["joined"] == 4
    assert not judge(spark, run.journals)


def test_members_deliver_nothing_between_their_ok_and_the_next_view():
    """Else one could deliver a message that the majority, which goes on without that member, never has."""
    stage = Stage(partition="primary", found=2)
    stage.group("a", "b", "c")
    context = stage.nodes[0].endpoint.context
    context.plane = mock.Mock(wraps=context.plane)
    stage.nodes[2].crash()
    stage.until(4000)
    assert len(stage.nodes[0].endpoint.view.members) == 2
    assert context.plane.freeze.call_args_list == [mock.call([stage.nodes[2].id], True)]
