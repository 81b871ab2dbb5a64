"""The endpoint's interface, and corner cases of the protocol that random runs seldom reach."""

import itertools
from dataclasses import replace

import pytest
from engines import make_engine
from sim_literal import VARIANTS
from sim_stage import Stage, names, one_view, send, views
from transcript import play, read

from seqcast._native.engine import SENT, Engine
from seqcast.config import Config
from seqcast.config.derive import core_settings
from seqcast.core.context import COUNTERS, EndpointSettings
from seqcast.core.endpoint import Endpoint
from seqcast.core.frames.closing import Block, Cut, Done, Fetch, Ok, Promised, Start
from seqcast.core.frames.fields import PROTOCOL_OLDEST, PROTOCOL_VERSION
from seqcast.core.frames.joining import Join, Wait
from seqcast.core.frames.kinds import dump
from seqcast.core.frames.merging import Beacon
from seqcast.core.frames.pausing import Resumed, Suspend, Suspended
from seqcast.core.frames.view import NewView
from seqcast.core.state.providers import STATE_MERGES
from seqcast.core.state.taker import StateTakerEvent, StateTakerState
from seqcast.core.table import Edge
from seqcast.core.vocabulary import (
    CloseGroup,
    JoinFailed,
    JoinGroup,
    LeaveGroup,
    Left,
    Log,
    Send,
    Stand,
    StateArrived,
    StateHeld,
    StateLost,
    StatePlan,
    StateRefused,
    ViewInstalled,
    Warn,
)
from seqcast.events import Blocked, Excluded, Unblocked
from seqcast.reports import MemberAlive
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.settings import largest
from seqcast.types import Member, MergeView, View

NEVER = (1 << 63) - 1
SETTINGS = Config(transport="multicast", message_bytes_max=largest(Options(seed=1)))
SHARED = core_settings(SETTINGS, mtu=1500, rcvbuf=1 << 20)["shared"]  # heartbeat_s first


def lone(name="a", order="fifo", member_id=7, **settings):
    return endpoint_of(make_engine(member_id), name, order, member_id, **settings)


def endpoint_of(engine, name="a", order="fifo", member_id=7, **settings):
    settings = core_settings(Config(), mtu=1500, rcvbuf=1 << 20) | settings
    return Endpoint(engine, Member(name, member_id, b"addr"), "c", EndpointSettings(order=order, **settings))


def told(endpoint, now, *inputs):
    """The effects of a step, except frames and log lines."""
    effects = endpoint.step(inputs, now)
    while endpoint.pending:
        effects += endpoint.step((), now)
    return [effect for effect in effects if not isinstance(effect, Send | Stand | Log)]


def test_a_lone_member_is_in_a_view_of_its_own_in_less_than_300_ms_and_leaves_it():
    endpoint = lone()
    assert endpoint.deadline() == NEVER and endpoint.view is None
    assert told(endpoint, 0, JoinGroup()) == []
    now, effects = 0, []
    while not effects:
        now = endpoint.deadline()
        effects = told(endpoint, now)
    assert now < 300 * MS
    assert effects == [ViewInstalled(endpoint.view)] and endpoint.view.members == (Member("a", 7, b"addr"),)
    engine = endpoint.context.plane
    marker = engine.deliver()
    assert endpoint.marker(marker) == (endpoint.view,)
    with pytest.raises(KeyError):
        endpoint.marker(marker)  # each is asked for once
    effects = told(endpoint, now, LeaveGroup(0))
    while not effects:
        now = endpoint.deadline()
        effects = told(endpoint, now)
    (left,) = effects
    assert isinstance(left, Left) and left.view.members == () and endpoint.over and endpoint.deadline() == NEVER
    assert endpoint.marker(engine.deliver()) == (left,)
    assert told(endpoint, now, LeaveGroup(0)) == told(endpoint, now, CloseGroup()) == []


def joins_of(config, until):
    """When a lone joiner asks."""
    endpoint, now, asked = lone(**core_settings(config, mtu=1500, rcvbuf=1 << 20)), 0, []
    effects = endpoint.step((JoinGroup(),), now)
    while now < until:
        asked += [now for each in effects if isinstance(each, Send) and b'"kind":"join"' in each.payload]
        now = endpoint.deadline()
        effects = endpoint.step((), now)
    return asked


@pytest.mark.parametrize("join_ms", [20, 45])
def test_a_joiner_that_discovers_asks_as_often_as_its_setting_says(join_ms):
    asked = joins_of(Config(join_s_min=join_ms / 1000, discovery_s=0.2), 200 * MS)
    assert asked == [at * MS for at in range(0, 200, join_ms)]


@pytest.mark.parametrize("most_ms", [400, 1000])
def test_a_joiner_that_may_not_found_a_group_asks_ever_more_rarely_up_to_its_setting(most_ms):
    config = Config(join_s_max=most_ms / 1000, discovery_s=0.1, partition="primary", found=2)
    asked = joins_of(config, 8 * SECOND)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps == sorted(gaps) and gaps[-3:] == [most_ms * MS] * 3


def test_a_member_that_cannot_get_the_merged_state_leaves_by_itself():
    endpoint = lone(state=STATE_MERGES)
    now, effects = 0, told(endpoint, 0, JoinGroup())
    while endpoint.view is None:
        now = endpoint.deadline()
        effects += told(endpoint, now)
    tag = endpoint.view.view_id.tag
    assert StateHeld(0) in effects
    endpoint.machines.taker.fire(StateTakerEvent.NAMED, StatePlan(tag, (9,)))
    effects = told(endpoint, now, StateRefused(tag, "its handler failed", 9))
    for _ in range(20):
        now = max(now, min(endpoint.deadline(), now + SECOND))
        effects += told(endpoint, now)
    lost = next(effect for effect in effects if isinstance(effect, StateLost))
    assert lost.inside and "its handler failed" in lost.error and isinstance(effects[-1], Left)


def test_a_member_that_was_never_in_leaves_at_once_and_one_that_closes_says_nothing():
    endpoint = lone()
    endpoint.step([JoinGroup()], 0)
    assert told(endpoint, 1, LeaveGroup(0)) == [Left(None)]
    endpoint = lone()
    endpoint.step([JoinGroup()], 0)
    assert told(endpoint, 1, CloseGroup()) == [] and endpoint.over


def test_an_incarnation_begins_once():
    """E-06."""
    endpoint = lone()
    endpoint.step([JoinGroup()], 0)
    with pytest.raises(AssertionError, match="E-06"):
        endpoint.step([JoinGroup()], 1)


def test_the_meaning_of_a_marker_is_known_before_the_engine_has_the_marker():
    seen = []

    class Watching(Engine):
        def install(self, **arguments):
            seen.extend(endpoint.marker(arguments["marker"]))
            super().install(**arguments)

    endpoint = endpoint_of(make_engine(7, Watching), discovery_ns=0)
    endpoint.step([JoinGroup()], 0)
    told(endpoint, endpoint.deadline())
    assert seen == [endpoint.view]


@pytest.mark.parametrize("payload", [b"{", b'{"kind":"start"}', b"\xff" * 100, b""])
def test_anything_but_a_frame_is_counted_and_dropped(payload):
    stage = Stage()
    stage.group("a", "b")
    a, b = stage.nodes
    before = a.endpoint.counters["frames_bad"]
    send(stage, b, payload)
    assert a.endpoint.counters["frames_bad"] == before + 1 and len(views(a)) == 2


def test_a_frame_that_its_sender_may_not_send_is_counted_and_dropped():
    stage = Stage()
    stage.group("a", "b", "c")
    a, _, c = stage.nodes
    tag = a.endpoint.view.view_id.tag
    ids = tuple(member.id for member in a.endpoint.view.members)
    bad = [
        Start(tag, (1, 0), ids),  # c is not rank 0
        Start(tag, (1, 2), ids),  # the initiator is not the first survivor
        Start(tag, (1, 2), (ids[2], 99)),  # a stranger survives
        Start(tag, (1, 100), ids),
    ]
    for number, frame in enumerate(bad):
        send(stage, c, dump(frame), a)
        assert a.endpoint.counters["frames_bad"] == number + 1
    send(stage, c, dump(Cut(tag, (0, 2), (9, 9, 9), (Fetch(1, 1, 9, 2),))), a)  # of no attempt: ignored
    send(stage, c, dump(Ok(tag, (1, 2), 5, ())), a)
    stage.until(3000)
    assert all(node.endpoint.view.view_id.tag == tag for node in stage.nodes)


def test_a_done_of_another_attempt_ends_none():
    """EVT-02."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    tag = a.endpoint.view.view_id.tag
    stage.refuse = lambda source, node, frame: isinstance(frame, Cut) and node is c
    b.leave()
    stage.until(1010)  # all promised (1, 0), and only c does not hold the cut yet
    for attempt in ((2, 0), (1, 1)):
        send(stage, c, dump(Done(tag, attempt)), a)
    assert a.endpoint.view.view_id.tag == tag
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert [member.name for member in a.endpoint.view.members] == ["a", "c"] and a.endpoint.view == c.endpoint.view


def test_an_ok_of_another_attempt_ends_none():
    """EVT-02: c's OK is lost, and an OK that c gave to somebody else comes in its place."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    oks, cuts = [], []

    def refuse(source, node, frame):
        oks.extend([frame] * (isinstance(frame, Ok) and source is c))
        cuts.extend([frame] * isinstance(frame, Cut))
        return isinstance(frame, Ok) and source is c and frame.attempt == (1, 0)

    stage.refuse = refuse
    b.leave()
    stage.until(1010)
    assert oks[0].attempt == (1, 0)
    for attempt in ((2, 0), (1, 1)):
        send(stage, c, dump(replace(oks[0], attempt=attempt)), a)
    assert not cuts
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert [member.name for member in a.endpoint.view.members] == ["a", "c"] and a.endpoint.view == c.endpoint.view


def test_of_two_attempts_with_one_number_that_of_the_higher_rank_is_the_higher():
    """a and b both begin to close the view. Members that consider the attempts equal promise whichever came last, and
    both could end."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    ids = [node.id for node in stage.nodes]
    tag, said = a.endpoint.view.view_id.tag, []

    def refuse(source, node, frame):
        said.extend([frame] * (source is c and isinstance(frame, (Ok, Promised))))
        return source is c

    stage.refuse = refuse
    send(stage, b, dump(Start(tag, (1, 1), (ids[1], ids[2]))), c)
    send(stage, a, dump(Start(tag, (1, 0), tuple(ids))), c)
    assert said == [Ok(tag, (1, 1), said[0].last, said[0].held), Promised(tag, (1, 0), (1, 1))]
    stage.refuse = lambda source, node, frame: False
    stage.until(4000)
    assert len(a.endpoint.view.members) == 3 and one_view(a, b, c)


def test_a_view_of_an_attempt_that_was_not_promised_is_not_installed():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    tag = a.endpoint.view.view_id.tag
    kept = []

    def refuse(source, node, frame):
        kept.extend([frame] * isinstance(frame, NewView))
        return isinstance(frame, NewView)

    stage.refuse = refuse
    b.leave()
    stage.until(1010)  # c is DONE with (1, 0), and has no VIEW
    frame = kept[0]
    view_id = replace(frame.view_id, counter=frame.view_id.counter + 1, flush=(2, frame.view_id.flush[1]))
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView) and frame.attempt == (1, 0)
    send(stage, a, dump(replace(frame, attempt=(2, 0), view_id=view_id)), c)
    assert c.endpoint.view.view_id.tag == tag
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert c.endpoint.view.view_id == frame.view_id == a.endpoint.view.view_id


def test_the_lease_of_a_pause_runs_from_the_answered_frame_not_from_when_the_answer_came():
    """a no longer hears b, but b's answer to an old SUSPEND comes again and again: its lease is over."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, _ = stage.nodes
    answers = []

    def refuse(source, node, frame):
        answers.extend([frame] * (isinstance(frame, Suspended) and source is a))
        return False

    stage.refuse = refuse
    b.suspend(5000 * MS)
    stage.until(1050)
    assert b.record.pauses[-1].held_ns and answers
    stage.refuse = lambda source, node, frame: isinstance(frame, Suspend | Resumed) and a in (source, node)
    lease_ms = a.endpoint.context.settings.lease_ns // MS
    for _ in range(6):
        stage.until(stage.clock.now // MS + lease_ms // 4)
        send(stage, a, dump(answers[-1]), b)
    assert not b.record.pauses[-1].held_ns


def test_a_suspend_that_comes_when_its_pause_has_ended_stops_nobody():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, _ = stage.nodes
    heard = []

    def note(source, node, frame):
        heard.extend([frame] * (isinstance(frame, Suspend) and node is a))
        return False

    stage.refuse = note
    b.suspend(20 * MS)
    stage.until(2000)
    assert b.record.pauses[-1].held_ns and heard
    for frame in list(heard):
        send(stage, b, dump(frame), a)
        assert a.record.blocked is None and not a.endpoint.machines.pause_member.known


def test_the_group_is_open_again_when_the_last_of_two_pauses_ends():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.suspend(200 * MS)
    b.suspend(800 * MS)
    stage.until(1500)
    assert a.record.pauses[-1].over_ns and b.record.pauses[-1].held_ns and not b.record.pauses[-1].over_ns
    assert c.record.blocked is not None, "b's pause holds"
    stage.until(2500)
    assert b.record.pauses[-1].over_ns and c.record.blocked is None
    assert [type(each) for each in c.record.gate if not isinstance(each, View)] == [Blocked, Unblocked], "once"


def test_an_answer_of_another_round_does_not_hold_a_pause():
    """c has stopped, and never says that it holds the others' packets; its earlier answer comes again."""
    stage = Stage()
    stage.group("a", "b", "c")
    _, b, c = stage.nodes
    answers = []

    def refuse(source, node, frame):
        if source is c and isinstance(frame, Suspended):
            answers.append(frame)
        return source is c and isinstance(frame, Suspended) and frame.phase == "hold"

    stage.refuse = refuse
    b.suspend(100 * MS)
    stage.until(1010)
    stopped = next(frame for frame in answers if frame.phase == "stop")
    assert any(frame.phase == "hold" for frame in answers)
    send(stage, c, dump(stopped), b)
    assert not b.record.pauses[-1].held_ns
    stage.refuse = lambda source, node, frame: False
    stage.until(1500)
    assert b.record.pauses[-1].held_ns


def test_a_pause_is_held_only_when_every_member_has_the_earlier_messages():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    deaf = stage.deafen(c)
    a.record.pending += [(0, 100)]
    a.service()
    b.suspend(100 * MS)
    stage.until(1030)
    assert not b.record.pauses[-1].held_ns
    deaf.clear()
    stage.until(2000)
    assert b.record.pauses[-1].held_ns


def test_a_cut_by_another_than_the_initiator_is_refused():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    tag = a.endpoint.view.view_id.tag
    stage.refuse = lambda source, node, frame: isinstance(frame, Cut) and source is a
    b.leave()
    stage.until(1010)  # all promised (1, 0); a's CUT does not get through
    send(stage, b, dump(Cut(tag, (1, 0), (7, 7, 7), ())), c)
    assert c.endpoint.counters["frames_bad"] == 1
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert [member.name for member in c.endpoint.view.members] == ["a", "c"]


def test_a_survivors_late_join_is_not_answered_with_the_view_that_it_has_yet_to_install():
    """A joiner cannot be known to those that are still in the closed view: only its members may serve them the VIEW."""
    stage, joins = Stage(), []
    stage.refuse = lambda source, node, frame: isinstance(frame, Join) and bool(joins.append((source.name, frame)))
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView) and source.name == "a" and node.name == "b"
    stage.until(1100)
    _, b, c = stage.nodes
    assert names(c)[-1] == ["a", "b", "c"] and names(b)[-1] == ["a", "b"]
    join = next(frame for name, frame in joins if name == "b")
    send(stage, b, dump(replace(join, tries=c.endpoint.context.rank)), c)
    stage.refuse = lambda source, node, frame: False
    stage.until(2000)
    assert names(b)[-1] == ["a", "b", "c"] and b.endpoint.counters["frames_bad"] == 0


def test_an_older_view_does_not_replace_the_one_that_a_member_is_in():
    """MBR-02: of its coordinator neither, for which joiners wait meanwhile."""
    stage, views = Stage(), []
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView) and bool(views.append(frame))
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.until(1100)
    old = next(frame for frame in views if len(frame.members) == 2)
    stage.named("d", 1100)
    stage.until(1101)
    a, b, c, _ = stage.nodes
    for node in (a, b, c):
        send(stage, b if node is a else a, dump(old), node)
    stage.until(1200)
    grown = [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]]
    assert [names(node) for node in stage.nodes] == [grown, grown[1:], grown[2:], grown[3:]]


def refusal(stage, join, sender):
    """The coordinator's answer to a JOIN of a process that is not simulated further; which counts if nobody admitted
    the process meanwhile."""
    nonce = sender.endpoint.context.settings.nonce
    sender.engine.control_send(dump(replace(join, nonce=nonce)) if isinstance(join, Join) else join % nonce, b"")
    sender.service()
    stage.until(stage.clock.now // MS + 2 + sender.endpoint.context.settings.discovery_ns // MS)
    return sender.record.error


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": "total"}, "join with the same order"),
        ({"order": "of a later release"}, "join with the same order"),
        ({"mechanisms": (1, 2)}, "release of seqcast does not know: run the same release"),
        ({"info": {"speaks": (PROTOCOL_VERSION + 1, 65535)}}, "upgrade all members before a release after the next"),
        ({"info": {"speaks": (0, PROTOCOL_OLDEST - 1)}}, "upgrade all members before a release after the next joins"),
        ({"cluster": "other"}, "choose another address or port"),
        *(
            (
                {"shared": tuple((name, "9" if name == other else value) for name, value in SHARED)},
                f"the group has {other}={ours}, not 9: join with the same",
            )
            for other, ours in SHARED
        ),
        (
            {"shared": tuple((name, "9") for name, _ in SHARED)},
            f"the group has {', and '.join(f'{name}={ours}, not 9' for name, ours in sorted(SHARED))}: join",
        ),
        ({"shared": tuple((f"s{number}", "9" * 64) for number in range(12))}, "…: join with the same"),  # too many
    ],
)
def test_a_joiner_that_does_not_fit_is_told_why(changes, reason):
    stage = Stage()
    stage.group("a")
    stage.named("x", 1000)
    stage.refuse = lambda source, node, frame: isinstance(frame, Join)
    stage.until(1001)
    x = stage.nodes[-1]
    fields = {"version": PROTOCOL_VERSION, "cluster": "sim", "order": "fifo", "mechanisms": (0, 1), "tries": 0}
    fields["info"] = replace(x.endpoint.context.me, **changes.get("info", {}))
    fields["shared"] = SHARED
    stage.refuse = lambda source, node, frame: isinstance(frame, Join) and frame.tries > 0  # but this one
    refusal(stage, Join(**{**fields, **changes, "info": fields["info"]}), x)
    assert reason in x.record.error and x.endpoint.over


def test_a_joiner_that_did_not_run_looks_for_the_group_for_as_long_again():
    """As on a machine that runs neither of two processes for a while: the JOIN waits to be read, and its answer comes
    when discovery is over."""
    stage = Stage()
    stage.group("a")
    stage.named("b", 1000)
    stage.until(1000)
    a, b = stage.nodes
    b.pause(1500 * MS)
    a.pause(1501 * MS)
    stage.until(3000)
    assert names(b) == [["a", "b"]] and names(a) == [["a"], ["a", "b"]]


def test_a_joiner_that_hears_another_wire_version_forms_no_group():
    """Two signs are needed: a single one may be a damaged datagram, after which the joiner searches for longer, but
    joins."""
    seen = []
    for signs, later in ((0, 1000), (1, 1000), (1, 3000), (2, 1000)):
        stage = Stage()
        stage.named("a")
        stage.until(50)
        (a,) = stage.nodes
        for _ in range(signs):
            a.receive(b"\xc5\x63" + bytes(6) + (1).to_bytes(4, "little") + bytes(28), b"elsewhere")
        stage.until(later)
        seen.append((a.endpoint.view is not None, "another wire version" in a.record.error))
    assert seen == [(True, False), (False, False), (True, False), (False, True)]


def test_a_joiner_of_another_protocol_version_is_told_so():
    stage = Stage()
    stage.group("a")
    stage.named("x", 1000)
    stage.refuse = lambda source, node, frame: isinstance(frame, Join)
    stage.until(1001)
    said = refusal(stage, b'{"kind":"join","version":99,"nonce":"%x"}', stage.nodes[-1])
    assert f"speaks protocol version {PROTOCOL_VERSION}, not 99" in said


def test_a_state_of_another_boundary_is_not_the_groups():
    """EVT-01: an application's thread reports a complete state just as a VIEW names another provider and boundary."""
    stage = Stage(state=True, state_bytes=2_000_000)
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.until(1010)
    a, b, c = stage.nodes
    taker = c.endpoint.machines.taker
    old = taker.plan.boundary
    a.crash()
    while taker.plan.boundary == old:
        stage.until(stage.clock.now // MS + 1)
    c.step(StateArrived(old))
    assert taker.state is StateTakerState.LACKING
    stage.until(2500)
    assert taker.state is StateTakerState.HELD and c.application.chain.digest() == b.application.chain.digest()


def test_a_state_that_is_complete_between_ok_and_view_waits_for_the_view():
    """The OK said that c lacks the state, so the VIEW names a provider for c, which takes that one's state. The state
    that came before has another boundary, and a merge of states would use this one as that of c's part."""
    stage = Stage(state=True, state_bytes=2_000_000)
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.until(1010)
    a, b, c = stage.nodes
    taker = c.endpoint.machines.taker
    old = taker.plan.boundary
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView)
    a.crash()
    stage.until(1200)
    assert c.endpoint.context.answered == c.endpoint.context.tag
    c.step(StateArrived(old))
    assert taker.state is StateTakerState.LACKING and taker.plan.boundary == old
    stage.refuse = lambda source, node, frame: False
    while c.endpoint.view != b.endpoint.view:
        stage.until(stage.clock.now // MS + 1)
    assert taker.state is StateTakerState.LACKING and taker.plan.boundary != old
    stage.until(2500)
    assert taker.state is StateTakerState.HELD and c.application.chain.digest() == b.application.chain.digest()


def test_an_initiator_whose_python_is_silent_longer_than_the_lease_is_given_up():
    stage = Stage()
    stage.group("a", "b", "c", "d")
    a, b, c, d = stage.nodes
    stage.refuse = lambda source, node, frame: source is a and isinstance(frame, Cut)
    d.leave()
    stage.until(1006)
    a.stall(stage.clock.now + 4 * SECOND)  # its engine continues, so nobody suspects a
    stage.refuse = lambda source, node, frame: False
    stage.until(7000)
    assert ["b", "c"] in names(b) and ["b", "c"] in names(c) and isinstance(d.record.log[-1], Left)
    assert isinstance(a.endpoint.view, MergeView) and one_view(a, b, c)


def test_a_survivor_that_does_not_answer_within_the_flush_deadline_is_excluded():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    b.stall(stage.clock.now + 20 * SECOND)
    c.leave()
    stage.until(5800)
    assert len(a.endpoint.view.members) == 3  # the deadline is not over
    stage.until(8000)
    assert [member.name for member in a.endpoint.view.members] == ["a"]
    assert isinstance(c.record.log[-1], Left)
    stage.until(25_000)
    assert isinstance(b.endpoint.view, MergeView) and one_view(a, b)


def test_an_initiator_that_cannot_reach_its_own_cut_leaves_the_turn_to_the_next():
    class Lacking:
        """The others have purged packets that this member lacks."""

        def __init__(self, plane):
            self.plane = plane

        def __getattr__(self, name):
            return getattr(self.plane, name)

        def cut_reached(self):
            return False

    stage = Stage()
    stage.group("a", "b", "c", "d")
    a, b, c, d = stage.nodes
    a.endpoint.context.plane = Lacking(a.engine)
    d.leave()
    stage.until(9000)
    assert ["b", "c"] in names(b) and names(c)[-1] == names(b)[-1]
    a.endpoint.context.plane = a.engine
    stage.until(16_000)
    assert isinstance(a.endpoint.view, MergeView) and one_view(a, b, c)


@pytest.mark.parametrize("leave_deadline_s", [1.0, 3.0])
def test_a_leaver_that_nobody_answers_goes_at_its_deadline_and_says_so(leave_deadline_s):
    stage = Stage(settings=(("leave_deadline_s", leave_deadline_s),))
    stage.group("a", "b")
    a, b = stage.nodes
    a.stall(stage.clock.now + 30 * SECOND)
    b.leave()
    effects, deadline_ms = [], 1000 + round(1000 * leave_deadline_s)
    step = b.endpoint.step
    b.endpoint.step = lambda *arguments: effects.append(step(*arguments)) or effects[-1]
    stage.until(deadline_ms - 1)
    assert not b.endpoint.over
    stage.until(deadline_ms + 1)
    said = [effect for batch in effects for effect in batch if not isinstance(effect, Send | Stand)]
    assert [type(effect) for effect in said] == [Warn, Left] and b.endpoint.over


def test_a_leaver_may_send_until_its_block_callback_returns_though_a_view_that_did_not_wait_for_it_comes():
    """a's BLOCK is lost on its way to c, so that the view without b closes while c, which leaves, runs its callback."""
    stage = Stage(callbacks={"c": 400})
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    c.record.leave_ns = 10 * SECOND
    stage.refuse = lambda source, node, frame: isinstance(frame, Block) and node is c
    b.leave()
    stage.until(1600)
    assert names(c)[-1] == ["a", "b", "c"]
    c.leave()
    stage.until(1990)
    assert names(c)[-1] == ["a", "c"] and c.engine.send(b"the last word") == SENT
    c.service()
    stage.until(4000)
    assert c.endpoint.over and names(a)[-1] == ["a"]
    assert a.record.log[-2].length == len(b"the last word"), "it came before the view without c"


@pytest.mark.parametrize("linger_s", [0.2, 0.7])
def test_a_coordinator_that_leaves_serves_the_closing_view_for_as_long_as_the_setting_says(linger_s):
    """c hears of no VIEW: a, which made the VIEW, repeats that, and goes when the time is over."""
    stage = Stage(settings=(("linger_s", linger_s),))
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.refuse = lambda source, node, frame: isinstance(frame, NewView) and node is c
    a.leave()
    stage.until(990 + round(1000 * linger_s))
    assert not a.endpoint.over and names(b)[-1] == ["b", "c"]
    stage.until(1030 + round(1000 * linger_s))
    assert a.endpoint.over


def two_initiators(stage):
    """b's START reaches c alone; a, which b doubts, starts too, and c refuses that START. The OK for b never
    arrives."""
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.refuse = lambda source, node, frame: (source is b and node is a) or (source is c and isinstance(frame, Ok))
    b.doubt(a.id)
    stage.until(1010)
    a.doubt(b.id)
    stage.until(1020)
    return a, b, c


def test_two_initiators_the_refused_one_backs_off_and_all_stay_in():
    stage = Stage()
    a, _, c = two_initiators(stage)
    assert Edge("initiator", "STARTING", "PROMISED") in a.endpoint.edges
    stage.refuse = lambda source, node, frame: False
    stage.until(9000)
    assert {node.endpoint.view for node in stage.nodes if not node.endpoint.over} == {c.endpoint.view}


@pytest.mark.parametrize("back_off_s", [1.5, 2.5])
def test_an_initiator_that_was_refused_tries_again_after_its_back_off(back_off_s):
    stage = Stage(settings=(("back_off_s", back_off_s),))
    a, b, _ = two_initiators(stage)
    b.crash()  # and ends its attempt
    again = Edge("initiator", "BACKING_OFF", "DEADLINE")
    stage.until(1000 + round(1000 * back_off_s))
    assert Edge("initiator", "STARTING", "PROMISED") in a.endpoint.edges and again not in a.endpoint.edges
    stage.until(1030 + round(1000 * back_off_s))
    assert again in a.endpoint.edges


def test_those_that_were_left_out_go_on_together_and_all_merge():
    stage = Stage()
    stage.group("a", "b", "c", "d", "e")
    a, b, c, d, e = stage.nodes
    stage.network.partition({a.index, b.index}, {c.index, d.index, e.index})
    for node in (c, d, e):
        a.doubt(node.id)
    stage.until(1100)
    assert one_view(a, b) and names(a)[-1] == ["a", "b"] and len(c.endpoint.view.members) == 5
    stage.network.heal()  # before they missed a and b, whose beacon tells them
    stage.until(1300)
    assert ["c", "d", "e"] in names(c) and ["c", "d", "e"] in names(e)
    stage.until(2000)
    assert one_view(a, b, c, d, e) and len(a.endpoint.view.members) == 5


def test_if_not_all_hear_each_other_merges_become_rare():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({a.index}, {b.index})  # c hears both
    stage.until(31_000)
    late = stage.clock.now - 20 * SECOND
    stage.lines.clear()
    stage.until(51_000)
    changes = sum("installs" in line for line in stage.lines)
    assert changes < 30 and late
    stage.network.heal()
    stage.until(70_000)
    assert one_view(a, b, c)


def test_in_a_primary_partition_an_excluded_member_passes_the_view_on_to_others_in_its_position():
    stage = Stage(partition="primary")
    stage.group("a", "b", "c", "d", "e")
    a, b, c, d, e = stage.nodes
    stage.network.partition({a.index, b.index, c.index}, {e.index})
    a.doubt(d.id)
    a.doubt(e.id)
    stage.until(1200)
    assert len(a.endpoint.view.members) == 3 and d.endpoint.over and not e.endpoint.over
    stage.network.heal()
    stage.until(3000)
    assert isinstance(e.record.log[-1], Excluded) and e.record.log[-1].view_id == a.endpoint.view.view_id


def groups_of_same_name(stage):
    """[x p] and [x q], which hear each other again: two members of one name."""
    for at_ms, name, apart in ((0, "x", ()), (0, "x", (0,)), (300, "p", (1,)), (600, "q", (0, 2))):
        stage.named(name, at_ms)
        stage.until(at_ms + 1)
        stage.network.partition({len(stage.nodes) - 1}, set(apart))
    stage.until(1500)
    stage.network.heal()


def test_groups_that_cannot_merge_say_why_once_and_leave_each_other_alone():
    stage = Stage()
    groups_of_same_name(stage)
    stage.until(21_500)
    assert [names(node)[-1] for node in stage.nodes] == [["x", "p"], ["x", "q"], ["x", "p"], ["x", "q"]]
    assert sum("cannot be merged" in line for line in stage.lines) == 2
    assert sum("installs" in line for line in stage.lines if float(line.split()[0]) > 2000) == 0


def test_groups_with_other_settings_say_so_and_do_not_merge():
    stage = Stage()
    for name, at_ms in (("a", 0), ("b", 300)):
        stage.named(name, at_ms)
        stage.until(at_ms + 1)
        node = stage.nodes[-1]
        settings = replace(node.endpoint.context.settings, shared=(("flush_unicasts", str(name == "a")),))
        node.endpoint.context.settings = settings
        stage.network.partition({0}, {1})
    stage.until(1000)
    stage.network.heal()
    stage.until(5000)
    assert [names(node) for node in stage.nodes] == [[["a"]], [["b"]]]
    (one,) = (line for line in stage.lines if "a warns" in line)
    assert "flush_unicasts=True, not False" in one


def test_a_coordinator_that_hears_nobody_does_not_keep_the_others_apart():
    stage = Stage()
    stage.network.partition({0}, {1, 2})
    stage.network.partition({1}, {2})
    for name in "abc":
        stage.named(name)
    stage.until(1000)
    lowest, *others = sorted(stage.nodes, key=lambda node: node.id)
    deaf = {(node.index, lowest.index) for node in others}
    stage.network.cut = deaf | {(others[0].index, others[1].index), (others[1].index, others[0].index)}
    stage.until(1500)
    stage.network.cut = deaf
    stage.until(6000)
    assert one_view(*others) and len(others[0].endpoint.view.members) == 2
    stage.network.heal()
    stage.until(9000)
    assert one_view(*stage.nodes)


def test_a_joiner_learns_which_incarnations_are_over():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    c.crash()
    stage.until(3000)
    stage.named("d", 3000)
    stage.until(4000)
    d = stage.nodes[-1]
    assert one_view(a, b, d) and list(d.endpoint.context.departed) == [c.id]


@pytest.mark.parametrize("same_view", [False, True])
def test_a_member_does_not_admit_one_that_left_while_it_waited_itself(same_view):
    """The member heard the other's JOIN while joining itself. The other left before the view that admits this one, or
    with that view."""
    stage = Stage()
    for name in "abc":
        stage.named(name)
    stage.until(1)
    first, early, late = sorted(stage.nodes, key=lambda node: node.id)
    stage.refuse = lambda source, node, frame: source is late and isinstance(frame, Join)
    stage.until(250)
    assert names(first)[-1] == [first.name, early.name] and not late.endpoint.view
    if not same_view:
        early.leave()
        stage.until(300)
    stage.refuse = lambda source, node, frame: False
    while not first.endpoint.machines.membership.joiners:
        stage.clock.run(stage.clock.now + MS // 10)
    if same_view:
        early.leave()
    stage.clock.run(stage.clock.now + 50 * MS)
    assert names(late) == [[first.name, late.name]]
    first.leave()
    stage.until(2000)
    assert names(late)[1:] == [[late.name]]


def test_a_member_that_was_left_out_does_not_wait_for_those_that_continued():
    stage = Stage()
    stage.group("c", "a", "y")
    c, a, y = stage.nodes
    a.pause(stage.clock.now + 600 * MS)
    stage.until(1600)
    c.crash()
    stage.until(3000)
    assert one_view(a, y) and sorted(names(a)[-1]) == ["a", "y"]


def test_a_member_that_was_left_out_asks_a_leaver_that_was_left_out_too_only_once():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    a.stall(stage.clock.now + 200 * MS)
    b.leave()
    c.doubt(a.id)
    c.doubt(b.id)
    stage.until(1199)
    assert names(c)[-1] == ["c"] and b.endpoint.over and names(a)[-1] == ["a", "b", "c"]
    stage.until(1300)
    assert sum("a → all: START" in line for line in stage.lines) < 5
    stage.until(3000)
    assert one_view(a, c) and len(a.endpoint.view.members) == 2


@pytest.mark.parametrize("at_ms", range(0, 80, 4))
def test_members_that_leave_while_they_merge_leave(at_ms):
    stage = Stage()
    stage.group("a", "b")
    a, b = stage.nodes
    stage.network.partition({a.index}, {b.index})
    stage.until(2000)
    stage.network.heal()
    stage.until(2000 + at_ms)
    a.leave()
    b.leave()
    stage.until(15_000)
    assert a.endpoint.over and b.endpoint.over


def test_join_failed_names_whether_a_new_incarnation_may_come():
    stage = Stage()
    stage.group("a", "b")
    a, b = stage.nodes
    b.crash()
    stage.until(2000)
    stage.named("x", 2000)
    stage.refuse = lambda source, node, frame: isinstance(frame, Join | Wait)
    stage.until(2001)
    x = stage.nodes[-1]
    a.endpoint.context.departed[x.id] = None
    stage.refuse = lambda source, node, frame: False
    effects = []
    step = x.endpoint.step
    x.endpoint.step = lambda *arguments: effects.append(step(*arguments)) or effects[-1]
    stage.until(2400)
    failed = [effect for batch in effects for effect in batch if isinstance(effect, JoinFailed)]
    assert failed and failed[0].cause == "incarnation" and "new one" in failed[0].error
    assert stage.nodes[-1].name == "x+" and stage.nodes[-1].endpoint.view == a.endpoint.view


def test_without_adoption_a_view_that_reached_one_member_only_splits_the_group():
    stage = play(read("view_reached_one_member_only"))[0]
    assert not any(isinstance(view, MergeView) for view in views(stage.node("b")))
    assert one_view(stage.node("b"), stage.node("c"))
    with VARIANTS["no_adoption"]():
        stage = play(read("view_reached_one_member_only"))[0]
    assert not one_view(stage.node("b"), stage.node("c"))


def test_an_initiator_that_trusts_and_doubts_the_coordinator_in_turn_does_not_wake_for_ever():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.refuse = lambda source, node, frame: source is c and isinstance(frame, Ok)
    b.doubt(a.id)
    stage.until(1010)
    assert b.endpoint.machines.initiator.running
    b.endpoint.machines.membership.suspected.clear()  # a was heard again
    b.step()
    stage.until(1030)
    b.doubt(a.id)
    stage.until(1050)  # each step asserts that the next deadline lies ahead
    assert b.endpoint.deadline() > stage.clock.now
    stage.refuse = lambda source, node, frame: False
    stage.until(3000)
    assert ["b", "c"] in names(b) and one_view(a, b, c)


def beacons(stage, node, ms):
    """How many beacons a member multicasts from now on until then, and how many frames its core sends."""
    sent, multicast, before = [], stage.multicast, node.endpoint.counters["frames_sent"]

    def look(source, datagram):
        sent.extend([datagram] if source is node and isinstance(stage.control(datagram), Beacon) else ())
        multicast(source, datagram)

    stage.multicast = look
    stage.until(ms)
    stage.multicast = multicast
    return len(sent), node.endpoint.counters["frames_sent"] - before


def test_the_engine_repeats_the_beacon_of_a_coordinator_whose_core_sleeps():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, _ = stage.nodes
    stage.until(1500)
    assert beacons(stage, a, 21_500) == (200, 2)
    assert beacons(stage, b, 22_500) == (0, 0)


def test_a_member_whose_turn_is_over_beacons_no_longer():
    """Timeline: b doubts a, and begins; a, which lives, is heard again. Two coordinators of one view confuse others."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, _ = stage.nodes
    stage.refuse = lambda source, node, frame: not isinstance(frame, Beacon)
    b.doubt(a.id)
    assert beacons(stage, b, 1250)[0] == 2
    b.step(MemberAlive(a.id))
    b.service()
    assert beacons(stage, b, 1700)[0] == 0
    before = b.endpoint.counters["frames_sent"]
    b.doubt(a.id)
    assert b.endpoint.counters["frames_sent"] == before + 1, "its turn again"


def test_beacons_of_a_primary_partition_are_made_anew_each_time():
    """They say how many members are not doubted, and whether anything was delivered."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    stage.until(1500)
    assert beacons(stage, stage.nodes[0], 2500) == (10, 10)


def test_every_counter_exists_from_the_start():
    """Counters are read most while nothing was counted yet."""
    counters = lone().counters
    assert counters == dict.fromkeys(COUNTERS, 0)
    with pytest.raises(KeyError):  # one that is not listed cannot count
        counters["no such counter"] += 1


def test_a_member_that_has_no_room_left_is_excluded_by_name_unless_half_of_the_group_is_so():
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    for slow in (b, c):
        a.endpoint.machines.membership.starves(slow.id)
    assert not {b.id, c.id} & a.endpoint.machines.membership.doubted()
    a.endpoint.machines.membership.slow.discard(b.id)
    a.step()
    a.service()
    stage.until(1900)
    assert ["a", "b"] in names(a) and a.endpoint.counters["members_slow"] == 2
    assert any("b holds up everyone, so it is excluded" in line and "(SC2201)" in line for line in stage.lines)
    assert any("c holds up everyone, and stays, as half of the members or more do so" in line for line in stage.lines)
