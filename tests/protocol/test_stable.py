"""``stable=PATH``: the votes of members that ended count when they start again, and numbers of views grow."""

import json
import signal
import sys
from dataclasses import replace

import pytest
from halves import quick
from members import LOOPBACK, cluster, founded, join, script, wait_until, why_no_multicast
from sim_stage import Stage, names

from seqcast.config import Config
from seqcast.core.frames.closing import Done, Ok
from seqcast.core.frames.joining import NOBODY, Past
from seqcast.core.frames.recalling import Recall, Recalled, Taken
from seqcast.core.frames.view import Installed, NewView
from seqcast.core.installer import Installer
from seqcast.core.machines.keeper import TOLD_MAX, TOLD_NS, KeeperState, Returned
from seqcast.errors import ConfigError, RemoteProtocolError
from seqcast.sim.checkers.primary import check_fences, check_primary

# ---- on the simulated network ----------------------------------------------------------------------------------------


def three(**options):
    stage = Stage(partition="primary", found=2, stable=True, **options)
    stage.group("a", "b", "c")
    assert names(stage.nodes[0])[-1] and len(names(stage.nodes[0])[-1]) == 3
    return stage, [stage.node(name) for name in "abc"]


def again(stage, *members, at_ms):
    for name in members:
        stage.named(name, at_ms)
    stage.until(at_ms)
    return stage.nodes[-len(members) :]


def fence(node):
    return node.endpoint.view.view_id.counter if node.endpoint.view else 0


def sound(stage):
    return not [*check_fences(stage.records), *check_primary(stage.records, ())]


@pytest.mark.parametrize("stable", [True, False])
def test_two_of_three_that_start_again_complete_the_majority_without_an_operator(stable):
    stage, (a, b, c) = three()
    before = fence(a)
    b.crash()
    c.crash()
    stage.until(3000)
    assert fence(a) == before and a.record.blocked is not None
    if not stable:
        stage.disks.clear()
    b, c = again(stage, "b", "c", at_ms=3000)
    stage.until(7000)
    if stable:
        assert fence(a) == fence(b) == fence(c) > before and set(names(a)[-1]) == set("abc")
        assert sound(stage)
    else:
        assert fence(a) == before and not fence(b) and not fence(c)


def test_one_that_starts_again_is_enough_if_it_makes_the_majority():
    stage, (a, b, c) = three()
    b.crash()
    c.crash()
    stage.until(3000)
    again(stage, "c", at_ms=3000)
    stage.until(6000)
    assert set(names(a)[-1]) == set("ac") and sound(stage)


def test_a_whole_group_that_starts_again_goes_on_above_its_last_view():
    stage, nodes = three()
    before = fence(nodes[0])
    for node in nodes:
        node.crash()
    nodes = again(stage, "a", "b", "c", at_ms=2000)
    stage.until(5000)
    assert {fence(node) for node in nodes} == {fence(nodes[0])} and fence(nodes[0]) > before
    assert sound(stage) and all(not node.record.warnings for node in nodes)


@pytest.mark.parametrize("apart_ms", [0, 1, 1000])
def test_a_group_whose_members_all_left_starts_again_above_its_last_view(apart_ms):
    stage, nodes = three()
    for number, node in enumerate(nodes):
        stage.clock.at(1_000_000_000 + number * apart_ms * 1_000_000, node.application.leave)
    stage.until(6000)
    assert all(node.endpoint.over for node in nodes)
    before = max(kept.view.view_id.counter for kept in stage.disks.values())
    for at in (6000, 9000):
        nodes = again(stage, "a", "b", "c", at_ms=at)
        stage.until(at + 2000)
        assert {fence(node) for node in nodes} == {fence(nodes[0])} and fence(nodes[0]) > before
        before = fence(nodes[0])
        for node in nodes:
            node.application.leave()
    assert sound(stage)


def test_a_group_waits_for_one_that_may_still_have_messages_and_names_it():
    stage, (a, b, c) = three()
    stage.network.partition({a.index}, {b.index, c.index, 3, 4})
    for node in (b, c):
        node.crash()
    b, c = again(stage, "b", "c", at_ms=2000)
    stage.until(8000)
    assert not fence(b) and not fence(c)
    assert "a may still be in view" in b.endpoint.lacks and "remove the files" in b.endpoint.lacks
    stage.network.heal()
    stage.until(12000)
    assert fence(a) == fence(b) == fence(c) and set(names(a)[-1]) == set("abc") and sound(stage)


def test_a_member_without_its_file_has_no_vote_and_counts_as_back():
    stage, nodes = three()
    for node in nodes:
        node.crash()
    lost = names(nodes[0])[-1][2]
    del stage.disks[lost]
    nodes = again(stage, "a", "b", "c", at_ms=2000)
    stage.until(5000)
    assert {fence(node) for node in nodes} == {fence(nodes[0])} and fence(nodes[0]) > 1 and sound(stage)


def test_the_rest_of_mostly_lost_files_is_not_a_majority_and_the_one_left_says_so():
    stage, nodes = three()
    for node in nodes:
        node.crash()
    first, second, third = names(nodes[0])[-1]
    del stage.disks[first], stage.disks[second]
    again(stage, "a", "b", "c", at_ms=2000)
    stage.until(5000)
    assert not any(fence(node) for node in stage.nodes[3:])
    assert "most of them without their files" in stage.nodes[-1 - "cba".index(third)].endpoint.lacks


def test_the_others_wait_for_the_one_whose_disk_is_lost_after_they_accepted_its_first_view_and_name_it():
    """Alone in that view, the member may have answered calls, which nobody else has on disk."""
    stage, nodes = three()
    for node in nodes:
        node.crash()
    nodes = again(stage, "a", "b", "c", at_ms=2000)
    while not any(map(fence, nodes)):
        stage.clock.run(stage.clock.now + 10_000)
    (first,) = filter(fence, nodes)
    assert names(first)[-1] == [first.name]
    for node in nodes:
        node.crash()
    del stage.disks[first.name]
    at_ms = stage.clock.now // 1_000_000 + 1000
    nodes = again(stage, "a", "b", "c", at_ms=at_ms)
    stage.until(at_ms + 3000)
    assert not any(map(fence, nodes))
    for node in nodes:
        if node.name != first.name:
            assert f"{first.name} may have gone on in view" in node.endpoint.lacks, node.endpoint.lacks


def test_one_with_its_file_does_not_enter_a_group_that_others_founded_anew():
    stage, nodes = three()
    for node in nodes:
        node.crash()
    stage.disks = {"c": stage.disks["c"]}
    again(stage, "a", "b", at_ms=2000)
    stage.until(4000)
    (c,) = again(stage, "c", at_ms=4000)
    stage.until(7000)
    assert set(names(stage.nodes[3])[-1]) == set("ab")
    assert c.endpoint.over and "(SC3109)" in c.endpoint.machines.lifecycle.refusal.reason


def test_an_old_file_has_no_vote_in_a_later_view():
    """Of four the first has lost its file, and another has an old one: its promises since are forgotten."""
    stage, (a, _, _) = three()
    olds = dict(stage.disks)
    again(stage, "d", at_ms=1000)
    stage.until(2000)
    first, *others = names(a)[-1]
    old = next(name for name in others if name in olds)
    for node in stage.nodes:
        node.crash()
    del stage.disks[first]
    stage.disks[old] = olds[old]
    again(stage, "a", "b", "c", "d", at_ms=3000)
    stage.until(6000)
    assert len(others) == 3 and not any(map(fence, stage.nodes[4:]))


def test_each_vote_is_on_disk_before_it_is_told_and_before_it_counts(monkeypatch):
    stage, told, entered = Stage(partition="primary", found=2, stable=True), set(), []

    def look(source, _node, frame):
        kept = stage.disks.get(source.name)
        if isinstance(frame, Ok):
            told.add("promise" if kept.promise == frame.attempt else f"{source}: {frame} after {kept.promise}")
        elif isinstance(frame, Done):
            told.add("accepted" if kept.accepted.under == frame.attempt else f"{source}: {frame} of {kept.accepted}")
        elif isinstance(frame, Installed):
            told.add("view" if kept.view.view_id.tag == frame.view else f"{source}: {frame} of {kept.view.view_id}")
        return False

    def enter(installer, frame, *rest):
        if installer.context.entered is not None:
            accepted = stage.disks[installer.context.me.name].accepted
            entered.append(accepted is not None and accepted.view.view_id == frame.view_id)
        install(installer, frame, *rest)

    install = Installer._install_engine
    monkeypatch.setattr(Installer, "_install_engine", enter)
    stage.refuse = look
    stage.group("a", "b", "c")
    stage.nodes[0].crash()
    stage.until(3000)
    assert told == {"promise", "accepted", "view"} and entered and all(entered)


def entered_alone():
    """Others accept a view with a joiner, in which the first of the group is; nobody is told of it."""
    stage, nodes = three()
    view = nodes[0].endpoint.view
    first, *others = (stage.node(member.name) for member in view)
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView)
    stage.named("d", 1000)
    while first.endpoint.view == view:
        stage.until(stage.clock.now // 1_000_000 + 1)
    assert all(node.endpoint.view == view for node in others)
    return stage, first, *others, stage.nodes[-1]


def test_those_that_accepted_a_view_and_crashed_before_they_heard_of_it_have_votes_there():
    stage, first, second, third, joiner = entered_alone()
    for node in (second, third, joiner):
        node.crash()
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    before = fence(first)
    assert first.record.blocked is not None
    again(stage, second.name, third.name, at_ms=2000)
    stage.until(5000)
    assert fence(first) > before and set(names(first)[-1]) == {*"abc"} and sound(stage)


def test_one_that_has_entered_a_view_and_starts_again_tells_those_that_never_heard_of_it():
    stage, first, second, third, joiner = entered_alone()
    before = fence(first)
    for node in (first, third, joiner):
        node.crash()
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert fence(second) < before and second.record.blocked is not None
    again(stage, first.name, at_ms=2000)
    stage.until(5000)
    assert fence(second) > before and set(names(second)[-1]) == {first.name, second.name} and sound(stage)


def test_one_that_was_left_behind_by_several_views_gives_way_to_those_that_start_again():
    """They heard the joiner, and so waited for its group, and the joiner waited for them, whose votes are of a later
    view."""
    stage, nodes = three()
    behind, *others = nodes
    stage.network.partition({behind.index}, {node.index for node in others} | {3, 4, 5, 6})
    stage.until(2000)
    again(stage, "d", at_ms=2000)
    stage.until(3000)
    before = fence(others[0])
    assert before > fence(behind) + 1
    for node in stage.nodes[1:]:
        node.crash()
    stage.network.heal()
    b, c, d = again(stage, "b", "c", "d", at_ms=4000)
    stage.until(8000)
    assert behind.endpoint.over and "continued without this member" in behind.record.log[-1].reason
    assert fence(b) == fence(c) == fence(d) > before and sound(stage)


# ---- votes that outlast their member ---------------------------------------------------------------------------------


def blocked_alone():
    """a is alone in its view; b was in it, and starts again where a does not hear b."""
    stage, (a, b, c) = three()
    b.crash()
    c.crash()
    stage.network.partition({a.index}, {3})
    (b,) = again(stage, "b", at_ms=2000)
    stage.until(2500)
    return stage, a, b


@pytest.fixture
def votes(monkeypatch):
    stage, a, b = blocked_alone()
    sent = []
    monkeypatch.setattr(type(b.endpoint.context), "send", lambda _, frame, *to: sent.append(frame))

    def ask(number, rank=0, proposal=None):
        sent.clear()
        b.endpoint.machines.keeper.recall(Recall(a.endpoint.view.view_id.tag, (number, rank), proposal), a.id, b"sim")
        b.endpoint.context.emitted.clear()
        return sent[0] if sent else None

    return ask, stage, a, b


def test_a_promise_refuses_all_lower_attempts_also_after_a_restart(votes):
    ask, _, _, b = votes
    keeper = b.endpoint.machines.keeper
    assert ask(7, 1) == Recalled(keeper.kept.view.view_id.tag, (7, 1), keeper._me, (7, 1))
    assert ask(7, 0).promise == (7, 1) and ask(6, 2).promise == (7, 1)
    assert keeper.kept.promise == (7, 1)


def test_a_view_that_was_accepted_is_told_and_only_the_last_one(votes):
    ask, _, _, b = votes
    kept = b.endpoint.machines.keeper.kept
    view = kept.view
    proposals = [
        replace(view, closes=view.view_id, view_id=replace(view.view_id, counter=view.view_id.counter + each))
        for each in (1, 2)
    ]
    assert ask(7, 0, proposals[0]).done and ask(8, 0).accepted == ((7, 0), proposals[0])
    assert ask(8, 0, proposals[1]).done and ask(9, 1).accepted == ((8, 0), proposals[1])
    assert not ask(8, 0, proposals[0]).done


@pytest.mark.parametrize("accepted", [True, False])
def test_one_that_only_heard_of_a_view_has_no_vote_in_it(votes, accepted):
    ask, _, _, b = votes
    keeper = b.endpoint.machines.keeper
    view = keeper.kept.view
    later = replace(view, closes=view.view_id, view_id=replace(view.view_id, counter=view.view_id.counter + 1))
    if accepted:
        assert ask(7, 0, later).done
    keeper.learn(later)
    assert keeper.kept.view == later and keeper.kept.votes == accepted == (keeper.was.member != NOBODY)
    b.endpoint.context.emitted.clear()


def test_one_that_seeks_a_group_does_not_enter_a_view_of_which_somebody_who_has_left_it_tells(votes):
    """Timeline without this: c joins, and its VIEW is lost; a and b crash, start again, hear c as a joiner and begin a
    view. One of them has told c of the last one by then: c has entered, alone."""
    _, _, a, b = votes
    context, keeper = b.endpoint.context, b.endpoint.machines.keeper
    view = keeper.kept.view
    later = replace(
        view, closes=view.view_id, view_id=replace(view.view_id, counter=view.view_id.counter + 1),
        members=(*view.members, context.me), survivors=(a.id,),
    )  # fmt: skip
    b.endpoint._router.route(later, a.id + 1000, b"sim")
    assert keeper.kept.view == later and b.endpoint.machines.lifecycle.seeking
    b.endpoint._router.route(later, a.id, b"sim")  # the same, from a member that admitted us
    assert not b.endpoint.machines.lifecycle.seeking and b.endpoint.machines.lifecycle.refusal is None
    context.emitted.clear()


def test_a_member_goes_if_others_that_started_again_may_have_begun_a_view_without_that_member():
    stage, a, b = blocked_alone()
    context, initiator = a.endpoint.context, a.endpoint.machines.initiator
    view, me = a.endpoint.machines.keeper.kept.view, b.endpoint.context.me
    first = replace(view, closes=None, cut=(), members=(me,), view_id=replace(view.view_id, counter=99))
    then = next(info.id for info in view.members if info.name == "b")
    vote = Recalled(view.view_id.tag, initiator.attempt, then, initiator.attempt, Taken((1, 0), first))
    initiator.recalled(vote, b.id, b"sim")
    stage.until(stage.clock.now // 1_000_000 + 100)
    assert context.view is None and "the group continued as [b]" in a.record.gate[-1].reason


def test_a_recall_of_another_view_or_with_a_view_that_does_not_grow_does_not_count(votes):
    ask, _, _, b = votes
    view = b.endpoint.machines.keeper.kept.view
    with pytest.raises(RemoteProtocolError, match="does not grow"):
        ask(7, 0, view)
    with pytest.raises(RemoteProtocolError, match="names no member"):
        ask(7, 3)


def test_requests_that_name_a_past_view_bring_few_views_to_whoever_is_said_to_ask(votes, monkeypatch):
    """A VIEW is larger than the request: a stranger could have many sent to a third party."""
    _, _, a, b = votes
    context, keeper = b.endpoint.context, b.endpoint.machines.keeper
    past = keeper.kept.views[-1].closes
    sent = []
    monkeypatch.setattr(type(context), "send", lambda _, frame, *to: sent.append(frame))

    def told(senders):
        sent.clear()
        for sender in senders:
            keeper.recall(Recall(past, (7, 0), None), sender, b"sim")
        assert all(isinstance(frame, NewView) for frame in sent)
        return len(sent)

    assert told([a.id] * 3) == 1 and told(range(100)) == TOLD_MAX - 1
    context.now += TOLD_NS
    assert told([a.id] * 3) == 1
    context.emitted.clear()


def test_a_vote_counts_that_comes_from_the_one_that_was_asked():
    stage, nodes = three()
    for node in nodes:
        node.crash()
    stage.network.partition({3}, {4, 5})
    (a,) = again(stage, "a", at_ms=2000)
    stage.until(2500)
    keeper = a.endpoint.machines.keeper
    b_then = next(info for info in keeper.kept.view.members if info.name == "b")
    keeper.ask([Returned(replace(b_then, id=a.id + 1), keeper.was._replace(member=b_then.id))])
    vote = Recalled(keeper.kept.view.view_id.tag, keeper.attempt, b_then.id, keeper.attempt)
    keeper.state = KeeperState.ASKING
    for sender in (a.id + 2, a.id):
        keeper.recalled(vote, sender)
        assert keeper.state is KeeperState.ASKING
    keeper.recalled(vote, a.id + 1)
    assert keeper.state is KeeperState.PROPOSING
    a.endpoint.context.emitted.clear()


# ---- the state on disk -----------------------------------------------------------------------------------------------


def with_disks(on_disk, lost=()):
    """All crash, and start again with these positions on their disks: view (0: the last one, -1: the one before), and
    number."""
    stage, nodes = three()
    last = fence(nodes[0])
    for node in nodes:
        node.crash()
    for name in lost:
        del stage.disks[name]
    stage.on_disk = lambda name: (last + on_disk[name][0], on_disk[name][1]) if name in on_disk else (0, 0)
    nodes = again(stage, "a", "b", "c", at_ms=2000)
    stage.until(5000)
    return stage, nodes


@pytest.mark.parametrize("longest", "abc")
@pytest.mark.parametrize("reached", [True, False])
def test_the_member_with_the_longest_state_on_disk_founds_the_next_view(longest, reached):
    """A later view counts more than a higher position: decisions follow the order of views."""
    on_disk = dict.fromkeys("abc", (-1, 90) if reached else (0, 50))
    on_disk[longest] = (0, 70)
    stage, nodes = with_disks(on_disk)
    assert {fence(node) for node in nodes} == {fence(nodes[0])} and names(nodes[0])[-1][0] == longest and sound(stage)


FAR = -9  # before all views that the members remember


@pytest.mark.parametrize(
    ("lost", "second", "third", "opens"),
    [(False, FAR, FAR, 0), (False, -1, FAR, 1), (True, -1, FAR, 1), (True, 0, FAR, 1), (True, FAR, FAR, None)],
)
def test_a_group_waits_if_nobody_may_have_all_that_was_decided(lost, second, third, opens):
    """The first member has the beginning of the view that it had alone. One who has a later beginning has more; and
    if the disk of the first one is gone, nobody else knows of its answers in that view."""
    stage, nodes = three()
    last, order = fence(nodes[0]), names(nodes[0])[-1]
    views = stage.disks[order[0]].views
    assert [(last - past.counter, past.voters) for past in views] == [(3, 1), (2, 2), (1, 2), (0, 3)]
    reached = dict(zip(order, (-3, second, third), strict=True))
    for node in nodes:
        node.crash()
    if lost:
        del stage.disks[order[0]]
        reached[order[0]] = FAR
    stage.on_disk = lambda name: (max(last + reached[name], 0), 50)
    nodes = again(stage, "a", "b", "c", at_ms=2000)
    stage.until(5000)
    if opens is not None:
        assert {fence(node) for node in nodes} == {fence(nodes[0])} and names(nodes[0])[-1][0] == order[opens]
        assert sound(stage)
    else:
        assert not any(map(fence, nodes))
        text = f"{order[0]} came back without the files (stable=), and the others do not have all on disk"
        assert any(text in node.endpoint.lacks for node in nodes)


def test_members_wait_though_a_joiner_claims_that_their_views_followed_each_other_in_a_circle():
    """The joiner has a vote in no view of theirs, and the disk of the one that could say more is lost."""
    stage, nodes = three()
    order = names(nodes[0])[-1]
    kept = stage.disks[order[0]]
    first, last = kept.views[0], kept.views[-1]
    for node in nodes:
        node.crash()
    del stage.disks[order[0]]
    circle = Past(first.view, first.counter, 1, last.view, True)
    stage.disks["d"] = replace(kept, views=(circle, *(past._replace(voters=1) for past in kept.views[1:])))
    stage.on_disk = lambda name: (0, 50)
    nodes = again(stage, "a", "b", "c", "d", at_ms=2000)
    stage.until(4000)
    assert not any(map(fence, nodes))
    text = f"{order[0]} came back without the files (stable=), and the others do not have all on disk"
    assert any(text in node.endpoint.lacks for node in nodes)


# ---- one without a vote in the last view has the state


class Away(Stage):
    """The first of three crashes, the others go on, and end: only the first has a state on disk, in its last view."""

    def __init__(self):
        super().__init__(partition="primary", found=2, stable=True)
        self.group("a", "b", "c")
        self.first, *self.rest = names(self.nodes[0])[-1]
        reached = fence(self.nodes[0])
        self.node(self.first).crash()
        self.until(3000)
        for name in self.rest:
            assert names(self.node(name))[-1] == self.rest
            self.node(name).crash()
        self.before = max(fence(node) for node in self.nodes)
        self.on_disk = lambda name: (reached, 50) if name == self.first else (0, 1)
        self.frames = []  # of the votes, and VIEWs, until somebody is in a view
        self.refuse = self.look

    def look(self, source, node, frame):
        if isinstance(frame, Recall | Recalled | NewView) and not any(map(fence, self.living())):
            self.frames.append(frame)
            return self.strikes(source, node, len(self.frames))
        return False

    def strikes(self, source, node, number):
        """True: this frame is lost."""
        return False

    def living(self):
        return [node for node in self.nodes if node.up]

    def settled(self):
        """The view, once all are there."""
        views = {node.endpoint.view for node in self.living()}
        return next(iter(views)) if len(views) == 1 and len(self.living()) == 3 else None

    def end(self, at_ms):
        for number, name in enumerate("abc"):
            self.named(name, at_ms + 7 * number)
        self.until(at_ms + 6000)
        assert self.settled() is not None, [node.endpoint.lacks for node in self.living()]
        assert self.settled().view_id.counter > self.before and sound(self)
        return self.settled().coordinator.name


def test_the_others_let_the_one_with_the_state_open_the_next_view_after_a_last_one_without_that_member():
    stage = Away()
    assert stage.end(4000) == stage.first
    offers = [frame for frame in stage.frames if isinstance(frame, Recall) and frame.proposal is not None]
    assert [info.name for info in offers[0].proposal.members] == [stage.first]
    firsts = [frame for frame in stage.frames if isinstance(frame, NewView) and not frame.closes]
    assert firsts and all(frame == offers[0].proposal for frame in firsts)


@pytest.mark.parametrize(
    ("number", "who"), quick([(3, "frame"), (6, "node")], range(1, 15), ["source", "node", "frame"])
)
def test_the_one_with_the_state_goes_on_wherever_a_frame_is_lost_or_a_member_crashes(number, who):
    """Whoever crashes starts again a second later, from its disk."""
    stage = Away()

    def strikes(source, node, at):
        if at == number and who != "frame":
            crashed = source if who == "source" else node
            stage.clock.at(stage.clock.now, crashed.crash)
            stage.named(crashed.name, stage.clock.now // 1_000_000 + 1000)
        return at == number

    stage.strikes = strikes
    assert stage.end(4000) == stage.first or len(stage.frames) < number


def test_nobody_accepts_the_view_of_the_one_with_the_state_before_the_disk_of_that_one_has_the_view():
    """Else, if that one ends first, its own view, where it was alone, has no vote."""
    stage, early = Away(), []

    def strikes(source, node, at):
        frame = stage.frames[-1]
        if isinstance(frame, Recall) and frame.proposal is not None and node.name != stage.first:
            kept = stage.disks[stage.first]
            if kept.accepted is None or kept.accepted.view.view_id != frame.proposal.view_id:
                early.append(frame)
        return False

    stage.strikes = strikes
    assert stage.end(4000) == stage.first and not early


# ---- settings, and real sockets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "match"), [({}, "partition='primary'"), ({"partition": "primary", "observer": True}, "observer=True")]
)
def test_settings_that_have_no_votes_to_keep_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Config(stable="x", **settings)


MEMBER = """
import sys, seqcast
with seqcast.join(sys.argv[1], name=sys.argv[2], interface=sys.argv[3], partition="primary", found=2,
                  stable=sys.argv[4] + "/" + sys.argv[2]) as group:
    print(group.fence, flush=True)
    sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_majority_that_was_killed_starts_again_and_the_group_goes_on(tmp_path):
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    name, processes = cluster(), []

    def start(member):
        processes.append(script(MEMBER, name, member, LOOPBACK, str(tmp_path)))
        return processes[-1]

    try:
        others = [start(member) for member in "ab"]
        group = join(name, "c", partition="primary", found=2, stable=tmp_path / "c")
        founded(name)
        wait_until(lambda: len(group.view.members) == 3)
        for process in others:
            assert int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = group.fence
        group.send_many([b"decided later"])
        again = [int(start(member).stdout.readline()) for member in "ab"]
        assert min(again) > before
        wait_until(lambda: len(group.view.members) == 3)
        assert next(message.payload for message in group) == b"decided later"
        group.leave(1.0)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert (tmp_path / "a").read_bytes().split(b"\n")[1] == json.dumps([name, "a"]).encode()
