"""Scenarios as transcripts: each control frame that crosses the network, and each view, in ``transcripts/``.

After a wanted change of the protocol: ``SEQCAST_TRANSCRIPTS=write pytest tests/protocol``, and review the
difference as code.
"""

import os
from pathlib import Path

import pytest
from sim_stage import Stage

from seqcast.core.frames.kinds import Block, BlockOk, Cut, Done, MergeReady, NewView, Ok, Start, Suspend
from seqcast.sim.desk import Desk
from seqcast.sim.options import MS
from seqcast.types import View

FOLDER = Path(__file__).parent / "transcripts"
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


@scenario
def join():
    """The first member waits out discovery; one joins; then two at once make one view (FLU-11)."""
    stage = Stage()
    stage.named("a", 0)
    stage.named("b", 300)
    stage.named("c", 400)
    stage.named("d", 402)
    stage.until(600)
    return stage


@scenario
def concurrent_first_start():
    """Three first members at once: the lowest id forms the view, the others are taken in (MBR-01)."""
    stage = Stage()
    for name in "abc":
        stage.named(name)
    stage.until(300)
    return stage


@scenario
def leave():
    """The coordinator leaves: it is a survivor of its own cut, and serves the closing VIEW before it goes (E-17)."""
    stage = Stage()
    stage.group("a", "b", "c")
    stage.node("a").leave()
    stage.until(1500)
    return stage


@scenario
def everyone_leaves_at_once():
    """The closing view has no members, and everyone gets it."""
    stage = Stage()
    stage.group("a", "b")
    stage.node("a").leave()
    stage.node("b").leave()
    stage.until(1500)
    return stage


@scenario
def crash():
    """A member crashes with a packet that only one survivor has: the cut names its holder (E-14)."""
    stage = Stage()
    stage.group("a", "b", "c")
    c = stage.node("c")
    stage.network.cut.add((c.index, stage.node("a").index))
    c.pending.append((0, 100))
    c.service()
    stage.until(1001)
    c.crash()
    stage.network.heal()
    stage.until(2000)
    assert [len(node.sent) for node in stage.nodes] == [0, 0, 1]
    return stage


@scenario
def name_taken():
    """A second "b" is refused once the first can no longer be a crashed incarnation."""
    stage = Stage()
    stage.group("a", "b")
    stage.named("b", 1000)
    stage.until(1001)
    stage.nodes[-1].name = "second b"
    stage.until(2500)
    return stage


@scenario
def coordinator_crash_during_flush():
    """a crashes after its CUT reached b alone; b starts from scratch, with a higher attempt (E-18)."""
    stage = Stage()
    stage.group("a", "b", "c", "d")
    a = stage.node("a")

    def refuse(source, node, frame):
        if source is a and isinstance(frame, Cut):
            if a.up:
                a.crash()
            return node.name != "b"
        return False

    stage.refuse = refuse
    stage.node("d").leave()
    stage.until(2000)
    return stage


@scenario
def view_reached_one_member_only():
    """a's VIEW reaches c alone, a crashes. b starts for the old view; c serves the VIEW, and b adopts it (step 1)."""
    stage = Stage()
    stage.group("a", "b", "c", "d")
    a = stage.node("a")

    def refuse(source, node, frame):
        if source is a and isinstance(frame, NewView):
            if a.up:
                a.crash()
            return node.name != "c"
        return isinstance(frame, Done) and source.name == "b" and not a.up and stage.clock.now < 1500 * MS

    stage.refuse = refuse
    stage.node("d").leave()
    stage.until(2500)
    return stage


@scenario
def left_out_and_merged():
    """c is paused. It learns that the others went on (step 8), closes its view alone, and both merge (step 11)."""
    stage = Stage()
    stage.group("a", "b", "c")
    stage.node("c").pause(stage.clock.now + 700 * MS)
    stage.until(2500)
    assert {str(node.endpoint.view) for node in stage.nodes} == {"view 7 [c, a, b] of [c] and [a, b]"}
    return stage


@scenario
def excluded_but_alive():
    """With a primary partition c is excluded: it learns so, and its process would join again (step 8)."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    c = stage.node("c")
    c.pause(stage.clock.now + 700 * MS)
    stage.until(2500)
    assert c.endpoint.over
    return stage


@scenario
def minority():
    """c is cut off: a and b go on, c is blocked. When they meet it learns of their view, and is excluded (step 9)."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({a.index, b.index}, {c.index})
    stage.until(2000)
    assert c.blocked.kind == "minority" and c.endpoint.view != a.endpoint.view == b.endpoint.view
    stage.network.heal()
    stage.until(2500)
    assert c.endpoint.over and not a.endpoint.over and not b.endpoint.over
    return stage


@scenario
def no_majority_anywhere():
    """Each of three is alone, and blocked; nobody went on, so all do when they meet again."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({a.index}, {b.index, c.index})
    stage.network.partition({b.index}, {c.index})
    stage.until(2000)
    assert [node.blocked.kind for node in stage.nodes] == ["minority"] * 3
    stage.network.heal()
    stage.until(4000)
    assert {str(node.endpoint.view) for node in stage.nodes} == {"view 5 [a, b, c]"}
    assert not any(node.blocked for node in stage.nodes)
    return stage


@scenario
def last_holder_meets_a_founding():
    """c alone has what a, b and c delivered; d has founded a group that is not blocked, and gives way (step 9)."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c")
    stage.quiet = True
    a, b, c = stage.nodes
    a.pending.append((0, 100))
    a.service()
    stage.until(1100)
    a.crash()
    b.crash()
    stage.network.partition({c.index}, {c.index + 1})
    stage.named("d", 2000)
    stage.until(2500)
    stage.quiet = False
    stage.network.heal()
    stage.until(3900)
    assert stage.node("d").endpoint.over and not c.endpoint.over and c.blocked.kind == "minority"
    stage.named("d", 3900)
    stage.until(4000)
    return stage


@scenario
def operator_unblocks():
    """a, b and c crash. d and e are blocked, until an operator says that they may go on."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c", "d", "e")
    for node in stage.nodes[:3]:
        node.crash()
    stage.until(2000)
    desk = Desk(stage, 0)
    stage.until(3000)
    assert desk.operator.accepted == ["d", "e"]
    assert str(stage.node("d").endpoint.view).endswith("[d, e]")
    return stage


@scenario
def accepted_view_is_proposed_again():
    """d leaves. a is cut off with its VIEW, which all have accepted: b must propose just that one, with a in it."""
    stage = Stage(partition="primary")
    stage.group("a", "b", "c", "d")
    a = stage.node("a")

    def refuse(source, node, frame):
        return a in (source, node) and a.endpoint.view is not None and a.endpoint.view.rank(stage.node("d").id) < 0

    stage.refuse = refuse
    stage.node("d").leave()
    stage.until(1010)
    stage.network.partition({a.index}, {1, 2, 3})
    stage.until(2000)
    assert [len(view.members) for view in stage.node("b").log if isinstance(view, View)][-3:] == [4, 3, 2]
    assert a.blocked.kind == "minority"
    return stage


@scenario
def block_round():
    """d leaves; b and c have a block callback, which runs while everyone may still send (step 2)."""
    stage = Stage(callbacks={"b": 10, "c": 30})
    stage.group("a", "b", "c", "d")
    stage.node("d").leave()
    stage.until(1500)
    return stage


@scenario
def block_callback_that_never_returns():
    """c's callback never returns: it is waited for until its deadline, and the view comes without it (E-17)."""
    stage = Stage(callbacks={"b": 10, "c": None})
    stage.group("a", "b", "c", "d")
    stage.node("d").leave()
    stage.until(2500)
    return stage


@scenario
def pause():
    """b pauses the group: callbacks, the stop, then all have delivered the same. The leases are renewed meanwhile."""
    stage = Stage(callbacks={"c": 10})
    stage.group("a", "b", "c")
    stage.node("b").suspend(300 * MS)
    stage.until(1500)
    return stage


@scenario
def pause_whose_owner_crashes():
    """b crashes while it holds a pause: nobody does it over (E-18), the view without b ends it."""
    stage = Stage()
    stage.group("a", "b", "c")
    stage.node("b").suspend(900 * MS)
    stage.until(1100)
    stage.node("b").crash()
    stage.until(2000)
    assert not any(node.blocked for node in stage.nodes if node.up)
    return stage


@scenario
def pause_and_a_view_change():
    """c leaves while b holds a pause: the view change goes first, and b is told."""
    stage = Stage()
    stage.group("a", "b", "c")
    stage.node("b").suspend(900 * MS)
    stage.until(1100)
    stage.node("c").leave()
    stage.until(1500)
    return stage


@scenario
def late_suspend():
    """A SUSPEND of b's pause reaches c when the pause has ended: it stops nobody (E-18)."""
    stage = Stage()
    stage.group("a", "b", "c")
    late = []

    def refuse(source, node, frame):
        if isinstance(frame, Suspend) and node.name == "c" and frame.phase == "stop":
            late.append(frame)
        return False

    stage.refuse = refuse
    stage.node("b").suspend(50 * MS)
    stage.until(1200)
    b = stage.node("b")
    stage.note("              (the same SUSPEND again)")
    b.endpoint.context.send(late[0], stage.node("c").id)
    b.endpoint._obey()
    b.service()
    stage.until(1300)
    assert stage.node("c").blocked is None
    return stage


def struck(who, kind, reached):
    """d leaves; ``who`` crashes as it sends this kind of frame, which reaches ``reached`` only."""
    stage = Stage(callbacks={"b": 10, "c": 30})
    stage.group("a", "b", "c", "d")
    node = stage.node(who)

    def refuse(source, other, frame):
        if source is node and isinstance(frame, kind):
            if node.up:
                node.crash()
            return other.name not in reached
        return False

    stage.refuse = refuse
    stage.node("d").leave()
    stage.until(3000)
    alive = [stage.node(name) for name in "abc" if stage.node(name).up]
    assert {node.endpoint.view for node in alive} == {alive[0].endpoint.view}
    return stage


@scenario
def join_with_state():
    """a gives its state to c, and crashes: b does it again, from the beginning of the next view (step 10)."""
    stage = Stage(state=True, state_bytes=2_000_000)
    stage.group("a", "b")
    stage.named("c", 1000)
    stage.until(1010)
    stage.node("a").crash()
    stage.until(2500)
    assert stage.node("c").inside and stage.node("c").chain.digest() == stage.node("b").chain.digest()
    return stage


@scenario
def initiator_crashes_at_block():
    """a's BLOCK reaches c alone, and a crashes. b begins anew; c, which has run its callback, answers at once."""
    return struck("a", Block, "c")


@scenario
def initiator_crashes_at_start():
    """All have run their callbacks; a's START reaches c alone, and a crashes. b begins anew, by another round."""
    return struck("a", Start, "c")


@scenario
def initiator_crashes_at_cut_after_a_block_round():
    """a's CUT reaches b alone, and a crashes: b's gate is closed, so it begins by START, and runs no callback again."""
    return struck("a", Cut, "b")


@scenario
def initiator_crashes_at_view_after_a_block_round():
    """a's VIEW reaches c alone, and a crashes: c, which has the view, answers b's START with it."""
    return struck("a", NewView, "c")


@scenario
def member_crashes_in_the_block_round():
    """c crashes as it says BLOCK_OK: the round goes on without it, under the next attempt."""
    return struck("c", BlockOk, "")


@scenario
def member_crashes_at_ok_after_a_block_round():
    """c crashes as it says OK: a begins anew without it. The gates are closed, so there is no other round."""
    return struck("c", Ok, "")


@scenario
def member_crashes_at_done_after_a_block_round():
    """c crashes as it says DONE: the same."""
    return struck("c", Done, "")


@scenario
def merge_of_three():
    """Each was alone; two coordinators follow the one with the lowest id; each installs the view in its subgroup."""
    stage = Stage()
    stage.group("a", "b", "c")
    a, b, c = stage.nodes
    stage.network.partition({a.index}, {b.index, c.index})
    stage.network.partition({b.index}, {c.index})
    stage.until(2000)
    stage.network.heal()
    stage.until(2500)
    assert len({node.endpoint.view for node in stage.nodes}) == 1
    return stage


@scenario
def merge_whose_leader_crashes():
    """The leader crashes when one side has made its cut: that side goes on alone when the lease is over."""
    stage = Stage()
    stage.group("a", "b", "c", "d")
    a, b, c, d = stage.nodes
    leader = min(a, c, key=lambda node: node.id)
    stage.network.partition({a.index, b.index}, {c.index, d.index})
    stage.until(2000)

    def refuse(source, node, frame):
        if isinstance(frame, MergeReady):
            leader.crash()
        return False

    stage.refuse = refuse
    stage.network.heal()
    stage.until(4000)
    assert len({node.endpoint.view for node in stage.nodes if node.up}) == 1
    return stage


@scenario
def join_with_state_that_the_first_cannot_give():
    """a's application fails to give its state: c asks for another provider, and a view names b."""
    stage = Stage(state=True, state_bytes=50_000)
    stage.group("a", "b")
    stage.state_refusals = 1
    stage.named("c", 1000)
    stage.until(2000)
    assert stage.node("c").inside
    return stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_scenario_goes_as_its_transcript_says(name):
    text = f"# {SCENARIOS[name].__doc__}\n\n" + "\n".join(SCENARIOS[name]().lines) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("SEQCAST_TRANSCRIPTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_every_transcript_has_its_scenario():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(SCENARIOS)
