"""Simulated groups with a key: only the members of a view can read its messages, or the checkers say so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halves import first_quick
from sim_stage import Stage

from seqcast.core.frames.closing import Start
from seqcast.core.frames.kinds import dump
from seqcast.core.secrets import CIPHERS
from seqcast.reports import FrameReceived, SecretWorn
from seqcast.sim.families import calm
from seqcast.sim.options import MS, Options
from seqcast.sim.seal import SimulatedExchange
from seqcast.sim.world import simulate

TURNOVER = Options(
    seed=1, keyed=True, **calm(members=3, crashes=1, restarts=1, leaves=1, doubts=4, rejoins=4, partitions=1)
)


def violations(**changes: object) -> list[str]:
    return simulate(replace(TURNOVER, **changes)).violations


@pytest.mark.parametrize(
    ("partition", "order"), first_quick([("merge", "records"), ("primary", "records"), ("primary", "sequencer")])
)
def test_members_come_leave_and_are_excluded_and_nobody_reads_a_view_in_which_it_is_not(partition, order):
    results = [simulate(replace(TURNOVER, seed=seed, partition=partition, order=order)) for seed in (1, 2)]
    assert [result.violations for result in results] == [[], []]
    assert max(result.views for result in results) > 3


@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_a_view_that_lasts_for_long_is_followed_by_one_with_a_new_secret(membership):
    stage = Stage(keyed=True, membership=membership, settings=(("rekey_s", 1.0),))
    stage.group("a", "b", "c")
    first = stage.nodes[0].endpoint.view
    stage.until(5500)
    views = {node.endpoint.view for node in stage.nodes}
    assert len(views) == 1 and {member.id for member in first.members} == {node.id for node in stage.nodes}
    (last,) = views
    assert last.members == first.members
    assert 3 <= last.view_id.counter - first.view_id.counter <= 5
    known = [stage.sealings.views[node.id] for node in stage.nodes]
    assert len(set.intersection(*known)) >= 4, "one for each view"
    without = Stage(membership=membership, settings=(("rekey_s", 1.0),))
    without.group("a", "b")
    before = without.nodes[0].endpoint.view
    without.until(4000)
    assert without.nodes[0].endpoint.view == before, "there is nothing to renew"


def test_a_view_that_follows_a_long_one_has_its_secret_though_the_io_thread_runs_while_it_begins():
    """Secrets of views that nobody has entered for long are forgotten by the engine's timer."""
    settings = {"rekey_s": 1.0, "flush_deadline_s": 0.4, "block_deadline_s": 0.3}
    stage = Stage(keyed=True, settings=tuple(settings.items()))
    stage.group("a", "b")
    first = stage.nodes[0].endpoint.view
    stage.until(2500)
    assert all(node.endpoint.view.view_id.counter > first.view_id.counter for node in stage.nodes)


@pytest.mark.parametrize("membership", ["coordinated", "token-ring"])
def test_a_secret_that_has_sealed_many_datagrams_of_one_member_is_followed_by_another(membership):
    """Any member, not only the one that makes views. A repeated request asks for one view."""
    stage = Stage(keyed=True, membership=membership)
    stage.group("a", "b", "c")
    first = stage.nodes[0].endpoint.view
    stage.until(3000)
    assert {node.endpoint.view for node in stage.nodes} == {first}, "few datagrams"
    worn = stage.nodes[2]
    for _ in range(3):
        worn.step(SecretWorn(worn.endpoint.context.tag))
    stage.until(4000)
    (last,) = {node.endpoint.view for node in stage.nodes}
    assert last.members == first.members and last.view_id.counter == first.view_id.counter + 1
    worn.step(SecretWorn(first.view_id.tag))  # late
    stage.until(5000)
    assert {node.endpoint.view for node in stage.nodes} == {last}


@pytest.mark.long
def test_views_follow_each_other_by_the_count_of_sealed_datagrams():
    options = Options(seed=3, keyed=True, sealings_max=300, **calm(members=3))
    often, seldom = simulate(options), simulate(replace(options, sealings_max=1 << 31))
    assert often.violations == seldom.violations == []
    assert often.views > seldom.views + 3


def test_the_cipher_of_a_view_is_one_that_all_its_members_have():
    stage = Stage(keyed=True, without_aes=1.0)
    stage.group("slow")
    stage.options = replace(stage.options, without_aes=0.0)
    for name in "ab":
        stage.named(name, 1000)
    stage.until(2500)
    ciphers = [{CIPHERS[node.endpoint.context.entered.cipher] for node in stage.nodes}]
    slow, a, _ = stage.nodes
    assert len(a.endpoint.view.members) == 3
    slow.leave()
    stage.until(4000)
    assert len(a.endpoint.view.members) == 2
    ciphers.append({CIPHERS[node.endpoint.context.entered.cipher] for node in stage.nodes[1:]})
    assert ciphers == [{"xchacha20-poly1305"}, {"aegis-128l"}]


def test_a_view_with_another_cipher_than_its_members_have_is_refused():
    """One that makes a VIEW cannot choose it."""
    stage = Stage(keyed=True)
    stage.group("a", "b")
    a, b = (node.endpoint.context for node in stage.nodes)
    assert b.secrets.fault(a.secrets.given(a.entered), b.infos) == ""
    a.secrets._cipher = "aegis-256"
    frame = a.secrets.given(a.entered)
    assert frame.cipher == CIPHERS.index("aegis-256") and b.secrets.of(frame) is None
    assert "another cipher" in b.secrets.fault(frame, b.infos)
    altered = replace(a.secrets.given(a.entered), cipher=CIPHERS.index("aegis-128l"))
    assert b.secrets.of(altered) is None, "the secret is wrapped for that cipher alone"


def test_the_checkers_see_a_secret_that_two_views_have(monkeypatch):
    monkeypatch.setattr(SimulatedExchange, "draw", lambda self: bytes(32))
    assert any("views have one secret" in each for each in violations())


def test_the_checkers_see_a_secret_that_is_wrapped_so_that_others_can_open_it(monkeypatch):
    monkeypatch.setattr(SimulatedExchange, "unwrap", lambda self, of, about, wrapped: about)
    assert any("can open what it recorded" in each for each in violations())


def test_frames_of_a_view_are_taken_from_its_members_alone():
    """One that has the key file can seal as a member would that is in no view."""
    stage = Stage(keyed=True)
    stage.group("a", "b")
    a, b = stage.nodes
    frame = dump(Start(a.endpoint.context.tag, (9, 1), (b.id,)))
    before = a.endpoint.counters["frames_bad"]
    a.step(FrameReceived(b.id, b.address, frame, outside=True))
    assert a.endpoint.counters["frames_bad"] == before + 1
    assert not a.endpoint.machines.participant.highest >= 9


def test_a_joiner_that_must_show_itself_first_joins_as_soon_as_others():
    """The group waits for further requests from its first JOIN on, as without a key: the round trip is part of that."""
    took = []
    for keyed in (False, True):
        stage = Stage(keyed=keyed, delay_ns=2 * MS)
        stage.group("a", "b")
        begin = stage.clock.now
        stage.named("c", begin // MS)
        while len(stage.node("a").endpoint.view.members) < 3:
            stage.clock.run(stage.clock.now + MS // 10)
        took.append(stage.clock.now - begin)
    assert took[1] - took[0] < MS, took


def test_a_request_of_another_joiner_that_shows_nothing_ends_no_wait_for_further_ones():
    """It may be a recorded one, and come again and again. Each joiner would get a view of its own."""
    stage = Stage(keyed=True, delay_ns=2 * MS)
    stage.group("a", "b")
    a = stage.node("a")
    membership, join, bundle_ns = a.endpoint.machines.membership, a.endpoint.machines.lifecycle._join(1), 5 * MS
    assert a.endpoint.context.settings.bundle_ns == bundle_ns
    now = a.endpoint.context.now
    membership.expect(77)
    for joiner, wait_ns in ((78, bundle_ns), (77, bundle_ns - MS)):
        a.endpoint.context.now = now + MS
        info = replace(join.info, id=joiner, name=f"j{joiner}", address=b"sim%d" % joiner)
        assert membership.join(replace(join, info=info)) is None
        membership.bundle(None)
        assert membership.bundle_due_ns == now + MS + wait_ns
    a.endpoint.context.now = now + MS + bundle_ns
    membership.bundle(None)
    assert membership.bundle_due_ns == a.endpoint.context.now + bundle_ns, "it asked long ago"
