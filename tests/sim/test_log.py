"""A member's log has lines only of those parts that somebody reads (TRC-01)."""

from unittest import mock

import pytest
from sim_stage import Stage

from seqcast.core import log
from seqcast.core.frames.closing import Start
from seqcast.core.frames.ring import Token
from seqcast.core.vocabulary import Log, ViewInstalled
from seqcast.reports import MemberSuspected
from seqcast.sim.options import MS, SECOND


def told(parts=log.PARTS, debugged=()):
    """The lines of one member of a token ring that loses a member and gains another, when these parts are read."""
    stage = Stage(membership="token-ring")
    stage.group("a", "b", "c")
    lines = []
    a = stage.nodes[0].endpoint
    a.log.told, a.log.debugged = parts, debugged
    step = a.step
    a.step = lambda *arguments: [lines.append(each) if isinstance(each, Log) else each for each in step(*arguments)]
    stage.node("c").crash()
    stage.named("d", 1300)
    stage.until(1600)
    assert len(a.view.members) == 3
    return lines


def test_nothing_is_made_of_fields_that_nobody_reads():
    """TRC-01."""
    with mock.patch.object(log, "Log", side_effect=AssertionError("a line was made")):
        stage = Stage(membership="token-ring")
        quiet = mock.patch.object(log, "PARTS", ())
        with quiet:
            stage.group("a", "b", "c")
            stage.node("a").leave()  # a crash is a warning
            stage.until(1500)
    assert {len(node.endpoint.view.members) for node in stage.nodes[1:]} == {2}


def test_a_healthy_view_change_has_one_line():
    lines = [line for line in told() if line.part == "membership"]
    assert [line.debug for line in lines] == [False, False]
    assert [line.text.split(": ", 1)[1] for line in lines] == [
        "%s: %s; took %.0f ms (SC3105)",
        "%s: %s; took %.0f ms",
    ]
    assert [line.warning for line in lines] == [True, False]
    assert [line.args[2] for line in lines] == [
        "c was excluded (its port refuses datagrams: its process has ended)",
        "d joined",
    ]


def with_lines(stage, name):
    """The node of this name, and the lines of its log from now on."""
    node, lines = stage.node(name), []
    step = node.endpoint.step

    def stepped(*arguments):
        effects = step(*arguments)
        lines.extend(line.text % line.args for line in effects if isinstance(line, Log))
        return effects

    node.endpoint.step = stepped
    return node, lines


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        ("silence", "it was silent: crashed, stopped or cut off"),
        ("port", "its port refuses datagrams: its process has ended"),
        ("guard", "its guard connection closed: its process has ended"),
    ],
)
def test_a_suspicion_and_the_exclusion_that_follows_say_why(evidence, why):
    stage = Stage()
    stage.group("a", "b", "c")
    a, lines = with_lines(stage, "a")
    stage.node("c").crash()
    a.step(MemberSuspected(stage.node("c").id, evidence))
    stage.until(1300)
    assert lines[0] == f"a: suspects c: {why}"
    assert [line for line in lines if f"[a, b]: c was excluded ({why}); took" in line], lines


def changed(stage, name):
    """The words for why the member of this name changes views, from now on."""
    node, words = stage.node(name), []
    step = node.endpoint.step

    def stepped(*arguments):
        effects = step(*arguments)
        words.extend(effect.change for effect in effects if isinstance(effect, ViewInstalled))
        return effects

    node.endpoint.step = stepped
    return words


def leaves_as_another_joins(stage):
    """Both in one view."""
    stage.node("a").stall(stage.clock.now + 300 * MS)
    stage.named("d", 1000)
    stage.node("c").leave()


def falls_apart_and_heals(stage):
    stage.network.partition({0, 1}, {2})
    stage.clock.at(2500 * MS, stage.network.heal)


def gets_a_narrow_path(stage):
    """Which shows with packets of full size."""
    stage.network.narrow = {(0, 2): 1372}
    a = stage.node("a")
    for ms in range(1000, 2000, 50):
        stage.clock.at(ms * MS, a.record.pending.append, (0, 5000))
        stage.clock.at(ms * MS, a.service)


@pytest.mark.parametrize(
    ("happens", "words", "members"),
    [
        (lambda stage: stage.node("c").leave(), ["leave"], "ab"),
        (lambda stage: stage.named("d", 1000), ["join"], "abcd"),
        (lambda stage: stage.node("c").crash(), ["loss"], "ab"),
        (leaves_as_another_joins, ["leave"], "abd"),
        (falls_apart_and_heals, ["loss", "merge"], "abc"),
        (gets_a_narrow_path, ["other"], "abc"),
    ],
)
def test_a_view_change_has_one_word_for_the_gravest_reason(happens, words, members):
    """The board counts them, and `seqcast metrics` shows them as view_changes_total{why}."""
    stage = Stage(packet_bytes=1472, narrows=1)
    stage.group("a", "b", "c")
    told = changed(stage, "a")
    happens(stage)
    stage.until(5000)
    assert told == words and sorted(member.name for member in stage.node("a").endpoint.view.members) == [*members]


def test_sends_that_wait_for_long_for_a_view_change_are_told_once_with_who_is_awaited():
    """The Python of b is busy while c leaves: its engine lives, so b is not excluded for long."""
    stage = Stage()
    stage.group("a", "b", "c")
    (_, of_a), (_, of_c) = with_lines(stage, "a"), with_lines(stage, "c")
    stage.node("b").stall(stage.clock.now + 3 * SECOND)
    stage.node("c").record.leave_ns = 10 * SECOND
    stage.node("c").leave()
    stage.until(3900)
    said = "sends have waited for 1 s: the view is being closed"
    assert [line for line in of_a if "waited" in line] == [f"a: {said}, and no answer has come from b (SC3206)"]
    assert [line for line in of_c if "waited" in line] == [f"c: {said} by a (SC3206)"]


def test_a_pause_that_lasts_is_told_once_with_the_name_of_its_owner():
    stage = Stage()
    stage.group("a", "b")
    _, lines = with_lines(stage, "b")
    for begin, length in ((1000, 900), (2500, 1800)):
        stage.clock.at(begin * MS, stage.node("a").application.suspend, length * MS)
        stage.until(begin + length - 50)
        told = [line for line in lines if "waited" in line]
    assert told == ["b: sends have waited for 1 s: a paused the group (SC3206)"] and lines[0] == told[0]


def test_a_token_that_is_lost_has_one_line_and_one_that_comes_back_none():
    """The leader's token goes to b, which crashes then: c, which waits for b, hears of that from the leader."""
    stage = Stage(membership="token-ring")
    stage.group("a", "b", "c")
    lines = []
    for node in stage.nodes:
        step = node.endpoint.step
        node.endpoint.step = lambda *arguments, step=step: told_in(step(*arguments), lines)
    stage.named("d", 1000)
    stage.until(1500)
    assert not lines, "nothing was lost"
    b = stage.node("b")
    stage.refuse = lambda source, node, frame: isinstance(frame, Token) and node is b and (b.crash() or True)
    stage.named("e", 1600)
    stage.until(4000)
    assert [member.name for member in stage.node("a").endpoint.view.members] == ["a", "c", "d", "e"]
    assert lines == ["a: the token is late, or the member that had it is lost: sends another one, generation 2"]


def told_in(effects, lines):
    lines += [line.text % line.args for line in effects if isinstance(line, Log) and line.part == "ring"]
    return effects


def test_each_part_is_read_by_itself():
    """Warnings are read in any case."""
    assert {line.part for line in told(parts=("detector",)) if not line.warning} == {"detector"}
    lines = [line for line in told(parts=(), debugged=("ring",)) if not line.warning]
    kinds = {type(line.args[2]).__name__ for line in lines}
    assert {line.part for line in lines} == {"ring"} and kinds >= {"Token", "TokenHeld", "Confirm", "Confirmed"}


def test_every_part_has_lines_and_a_sequencer_that_takes_over_one():
    lines = []

    def make(*arguments, **more):
        lines.append(Log(*arguments, **more))
        return lines[-1]

    with mock.patch.object(log, "Log", side_effect=make):
        stage = Stage(order="records", membership="token-ring", reliability="gossip", state=True)
        stage.group("a", "b", "c")
        for node in stage.nodes:
            node.endpoint.log.debugged = log.PARTS
        stage.node("a").crash()
        stage.named("d", 1500)
        stage.until(2500)
    assert {line.part for line in lines} == {*log.PARTS}
    assert [line.text % line.args for line in lines if line.part == "order"] == [
        f"{name}: b puts the messages in order from view 4 on" for name in "bc"
    ]


def test_a_healthy_group_has_one_line_for_each_view_and_none_for_a_message():
    lines = []
    with mock.patch.object(log, "Log", side_effect=lambda *arguments: lines.append(arguments)):
        stage = Stage(order="records")
        stage.group("a", "b", "c")
        assert [text % args for _, text, args in lines if args[0] == "a"] == [
            "a: joined: view 1 [a]; a puts the messages in order",
            "a: view 2 [a, b]: b joined; took 0 ms",
            "a: view 3 [a, b, c]: c joined; took 0 ms",
        ]
        lines.clear()
        a = stage.node("a")
        a.record.pending.extend([(0, 100)] * 50)
        a.service()
        stage.until(1200)
        assert a.record.counter >= 50
    assert lines == []


def test_a_member_that_is_excluded_as_slow_is_named_with_that_reason():
    stage = Stage()
    stage.group("a", "b", "c")
    a, lines = with_lines(stage, "a")
    a.endpoint.machines.membership.starves(stage.node("c").id)
    a.step()
    a.service()
    stage.until(1900)
    assert any("c was excluded (held up everyone: it had no room left, or kept places in the order unused)" in each
               for each in lines)  # fmt: skip


def test_a_view_change_begins_with_a_members_datagram_and_not_with_a_strangers():
    stage = Stage()
    stage.group("a", "b")
    a, lines = with_lines(stage, "a")
    start = Start(a.endpoint.view.view_id.tag, (1, 0), tuple(member.id for member in a.endpoint.view.members))
    a.endpoint.log.received(start, 0xBAD)
    stage.named("c", 3000)
    stage.until(4000)
    (line,) = [each for each in lines if "c joined" in each]
    assert int(line.rpartition("took ")[2].removesuffix(" ms")) < 500


@pytest.mark.parametrize(("transport", "times"), [("unicast", 1), ("auto", 0)])
def test_a_group_by_unicast_that_grows_beyond_a_bound_is_told_of_once(monkeypatch, transport, times):
    monkeypatch.setattr(log, "COPIES_MAX", 2)
    stage = Stage(transport=transport)
    stage.group("a", "b", "c")
    _, lines = with_lines(stage, "a")
    for at_ms, name in ((1000, "d"), (2000, "e")):
        stage.named(name, at_ms)
        stage.until(at_ms + 900)
    assert len(stage.node("a").view.members) == 5
    told = [line for line in lines if "(SC4207)" in line]
    assert len(told) == times and all("goes to 3 members by unicast" in line for line in told)
