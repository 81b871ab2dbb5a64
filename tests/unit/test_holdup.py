"""Which receiver holds senders up: who is named, when, and that nobody is named without cause."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from engines import reports_of
from halves import first_quick
from helpers.engines import HEARTBEAT_MS, MS, Net

from seqcast._native.engine import SENT
from seqcast.board.place import BYTES
from seqcast.board.read import ViewChanges, kept
from seqcast.core.holdups import Holdups
from seqcast.core.log import LogLines
from seqcast.core.orders import by_name
from seqcast.reports import SendersHeld

SECOND_MS = 1000


class Stream:
    """Members among which the first sends all that its credit allows; each application's consumption is bounded."""

    def __init__(self, n: int, **settings: object) -> None:
        self.net = Net(n, window=1 << 16, **settings)
        self.reports: list[list[tuple[str, int]]] = [[] for _ in range(n)]
        self.rates: list[list[int]] = [[] for _ in range(n)]

    def run(self, ms: int, every_ms: dict[int, int], senders: tuple[int, ...] = (0,)) -> None:
        """``every_ms``: by member: its application takes one batch of 8 KB each time; others take all at once."""
        net = self.net
        for _ in range(ms // 2):
            net.send_all(senders, 2 * MS)
            for i, engine in enumerate(net.engines):
                if i not in every_ms:
                    net.take(i)
                elif every_ms[i] and net.now // MS % every_ms[i] == 0:
                    engine.deliver(8192)
                    engine.taken()
                for report in reports_of(engine, SendersHeld):
                    self.reports[i].append((report.how, net.ids.index(report.member)))
                    self.rates[i].append(report.rate)


@pytest.mark.long
def test_a_receiver_that_is_slower_than_the_others_is_named_and_learns_it():
    stream = Stream(4)
    stream.run(3 * SECOND_MS, {2: 4})
    assert stream.reports == [[("slow", 2)], [], [("slow", 2)], []]
    assert 1_000_000 < stream.rates[0][0] < 3_000_000, "8 KB in 4 ms"
    assert 1000 < stream.rates[2][0] < 3000, "8 messages in 4 ms"
    stream.run(3 * SECOND_MS, {})
    assert stream.reports == [[("slow", 2), ("over", 2)], [], [("slow", 2), ("over", 2)], []]


@pytest.mark.long
def test_evidence_of_less_than_a_second_names_nobody():
    stream = Stream(4)
    for _ in range(5):
        stream.run(SECOND_MS - 2 * HEARTBEAT_MS, {2: 4})
        stream.run(SECOND_MS, {})
    assert stream.reports == [[], [], [], []]


@pytest.mark.parametrize(("n", "slow"), [(2, (1,)), (3, (1, 2)), (4, (1, 2)), (4, (0, 1, 2, 3))])
def test_nobody_is_slow_if_half_of_the_members_are(n, slow):
    stream = Stream(n)
    stream.run(4 * SECOND_MS, dict.fromkeys(slow, 4))
    assert stream.reports == [[] for _ in range(n)]


@pytest.mark.parametrize(("slow", "named"), [((1, 2), []), ((2,), [("slow", 2)])])
def test_other_members_that_only_send_count_for_nobody(slow, named):
    stream = Stream(6, only_send=(3, 4, 5))
    stream.run(2 * SECOND_MS, dict.fromkeys(slow, 4))
    assert stream.reports[0] == named


def boards_of(stream: Stream) -> list[mmap.mmap]:
    memories = [mmap.mmap(-1, BYTES) for _ in stream.net.engines]
    for engine, memory in zip(stream.net.engines, memories, strict=True):
        engine.use_board(memory)
        engine.board_about(b"{}")
    return memories


def test_the_board_counts_the_time_that_senders_waited_for_each_member_through_views():
    stream = Stream(3)
    memory = boards_of(stream)[0]

    def rows(name: str) -> list[int]:
        return [row[name] for row in kept(Path("board"), bytes(memory)).members]

    stream.run(3 * SECOND_MS // 2, {1: 0})
    waited, lag = rows("waited"), rows("lag_ns")
    assert waited[0] == waited[2] == 0 and 1350 * MS < waited[1] <= 1500 * MS
    assert lag == [0, 0, 0], "taken or not, all is in order there"
    stream.net.drop = lambda source, target, lane, datagram: target == 2
    stream.run(SECOND_MS // 2, {})
    assert rows("lag_ns")[:2] == [0, 0] and 400 * MS < rows("lag_ns")[2] < 500 * MS
    assert rows("waited")[1] < waited[1] + 2 * HEARTBEAT_MS * MS
    stream.net.install([0, 1], sequencer=-1, tag=2, marker=2)
    stream.run(2 * HEARTBEAT_MS, {})
    assert len(rows("waited")) == 2 and rows("waited")[1] >= waited[1]


def test_a_sender_that_is_not_held_names_nobody():
    stream = Stream(4)
    stream.run(200, {})
    stream.run(4 * SECOND_MS, {2: 4}, senders=())
    assert stream.reports == [[], [], [], []]


@pytest.mark.parametrize("n", first_quick([2, 4]))
def test_a_receiver_that_takes_nothing_is_named_again_each_time_that_this_has_doubled(n):
    stream = Stream(n)
    stream.run(8 * SECOND_MS, {1: 0})
    assert stream.reports[0] == [("stuck", 1)] * 4  # after 0.9, 1.8, 3.6 and 7.2 s
    assert stream.reports[1] == [("slow", 1)] and stream.rates[1] == [0]
    stream.run(3 * SECOND_MS, {})
    assert stream.reports[0][4:] == [("over", 1)] and stream.reports[1][1:] == [("over", 1)]


def test_a_member_whose_own_application_takes_nothing_names_itself():
    stream = Stream(3)
    stream.run(2 * SECOND_MS, {0: 0})
    assert set(stream.reports[0]) == {("stuck", 0)} and stream.reports[1:] == [[], []]


def test_a_sender_by_way_of_the_sequencer_names_the_receiver_that_holds_the_sequencer_up():
    stream = Stream(4, sequencer=0)
    stream.run(4 * SECOND_MS, {2: 4}, senders=(0, 1))
    assert stream.reports[0] == stream.reports[2] == [("slow", 2)]
    assert stream.reports[1] == [("slow", 2)] and stream.reports[3] == []
    stream.run(4 * SECOND_MS, {2: 0}, senders=(0, 1))
    assert {member for each in stream.reports for _, member in each} == {2}
    assert ("stuck", 2) in stream.reports[0] and stream.reports[1] == [("slow", 2)]


@pytest.mark.parametrize("senders", [(1,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("sequencer", [0, 1])
def test_nobody_blames_the_sequencer_for_a_member_that_takes_nothing(sequencer, senders):
    """Nor does that member itself, whose messages go by way of the sequencer and wait there."""
    stream = Stream(4, sequencer=sequencer)
    stuck = 1 - sequencer
    stream.run(8 * SECOND_MS, {stuck: 0}, senders)
    assert {member for each in stream.reports for _, member in each} == {stuck}
    assert ("stuck", stuck) in stream.reports[sequencer] and ("slow", stuck) in stream.reports[stuck]


@pytest.mark.long
@pytest.mark.parametrize("heartbeat_s", [1, pytest.param(2, marks=pytest.mark.long)])
def test_with_rare_heartbeats_one_look_is_not_evidence_and_the_sequencer_is_not_blamed(heartbeat_s):
    rare = {"heartbeat_ns": heartbeat_s * 10**9, "suspect_ns": 60 * 10**9, "suspect_ns_max": 60 * 10**9}
    stream = Stream(3, sequencer=0, **rare)
    stream.run(heartbeat_s * SECOND_MS, {2: 4}, senders=(0, 1))  # one look, or two
    stream.run(4 * heartbeat_s * SECOND_MS, {}, senders=(0, 1))
    assert stream.reports == [[], [], []]
    stream.run(12 * heartbeat_s * SECOND_MS, {2: 0}, senders=(0, 1))
    assert {member for each in stream.reports for _, member in each} == {2}
    assert ("stuck", 2) in stream.reports[0] and "over" not in [how for each in stream.reports for how, _ in each]


def stalls(net, i):
    """(member, ms) as the engine of ``i`` says."""
    return [(net.ids.index(member), ns // MS) for member, ns in net.engines[i].stalls(net.now)]


@pytest.mark.parametrize("stuck", [(2,), (1, 2), (0,), (0, 3)])
def test_a_sender_names_all_that_have_not_taken_its_messages_and_for_how_long(stuck):
    stream = Stream(4)
    assert stalls(stream.net, 0) == []
    stream.run(2 * SECOND_MS, dict.fromkeys(stuck, 0))
    named = stalls(stream.net, 0)
    assert tuple(member for member, _ in named) == stuck
    assert all(2 * SECOND_MS - 4 * HEARTBEAT_MS < ms <= 2 * SECOND_MS for _, ms in named)
    assert [stalls(stream.net, i) for i in (1, 2, 3)] == [[], [], []], "they do not send"
    stream.net.engines[0].gate_close()
    assert stalls(stream.net, 0) == [], "now senders wait for the view"


@pytest.mark.parametrize("order", ["fifo", "causal"])
def test_a_sender_without_places_for_packets_names_who_lacks_them_though_there_is_credit(order: str):
    """If the order keeps some places for packets of its own, too."""
    net = Net(3, mechanism=by_name(order).number, ring_packets=64)
    net.drop = lambda src, dst, lane, datagram: dst == 2
    while net.engines[0].send(b"") == SENT:
        net.step(MS)
    net.run(3 * HEARTBEAT_MS)
    assert [member for member, _ in stalls(net, 0)] == [2]


def test_a_stall_is_over_when_its_member_takes_again():
    stream = Stream(3)
    stream.run(SECOND_MS, {2: 0})
    assert [member for member, _ in stalls(stream.net, 0)] == [2]
    stream.run(SECOND_MS, {}, senders=())
    assert stalls(stream.net, 0) == []
    stream.run(SECOND_MS // 2, {2: 0})
    ((member, ms),) = stalls(stream.net, 0)
    assert member == 2 and ms <= SECOND_MS // 2, "counted anew"


def test_a_sender_by_way_of_the_sequencer_waits_for_the_member_for_which_the_sequencer_waits():
    stream = Stream(4, sequencer=0)
    stream.run(4 * SECOND_MS, {2: 0}, senders=(0, 1))
    assert [[member for member, _ in stalls(stream.net, i)] for i in (0, 1)] == [[2], [2]]


def test_a_view_voids_earlier_reports():
    stream = Stream(3)
    stream.run(2 * SECOND_MS, {2: 4})
    assert stream.reports[0] == stream.reports[2] == [("slow", 2)]
    net = stream.net
    for engine in net.engines:
        engine.gate_close()
    net.run(500)
    cut = [net.engines[0].last_sent(), net.engines[1].last_sent(), net.engines[2].last_sent()]
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2, base=cut, cuts=dict.fromkeys((0, 1, 2), cut))
    stream.run(100, {})
    assert stream.reports[0][-1] == stream.reports[2][-1] == ("over", 2)


def next_view(net: Net, tag: int) -> None:
    for engine in net.engines:
        engine.gate_close()
    net.step(50 * MS, take=False)
    cut, members = [engine.last_sent() for engine in net.engines], range(len(net.engines))
    net.install([*members], sequencer=-1, tag=tag, marker=tag, base=cut, cuts=dict.fromkeys(members, cut))


def test_a_sender_that_takes_nothing_names_itself_in_the_next_views_too():
    """Credit ends with each view; its own untaken messages of earlier ones keep it from sending all the same."""
    stream = Stream(2, ring_bytes=1 << 16)
    for tag in (2, 3, 4):
        stream.run(200, {0: 0})
        next_view(stream.net, tag)
    assert stream.net.engines[0].send(bytes(1000)) != SENT
    stream.reports[0].clear()
    stream.run(3 * SECOND_MS, {0: 0})
    assert stream.reports[0] and set(stream.reports[0]) == {("stuck", 0)}


def test_a_receiver_that_still_takes_messages_of_the_last_view_is_slow_at_most():
    stream = Stream(4)
    stream.run(200, {2: 0})
    next_view(stream.net, 2)
    stream.reports[0].clear()
    engine = stream.net.engines[2]
    for _ in range(20):
        stream.run(100, {2: 0})
        assert engine.deliver(2000, stream.net.now) is not None
    assert stream.reports[0] == [("slow", 2)], "it is slow, and not stuck"


class Told:
    """A member's text for the engine's reports."""

    def __init__(self) -> None:
        names = {1: "a", 2: "b", 3: "c"}
        infos = {each: SimpleNamespace(id=each, name=name) for each, name in names.items()}
        self.context: Any = SimpleNamespace(me=infos[1], infos=infos, now=0)
        self.log = LogLines(self.context)
        self.holdups = Holdups(self.context, self.log)

    def hear(self, at_s: float, member: int, how: Literal["slow", "stuck", "over"], number: int = 0) -> list[str]:
        self.context.now = int(at_s * 1e9)
        rate, took_ns = (number, 0) if how == "slow" else (0, number * 10**9)
        self.holdups.heard(SendersHeld(member, how, rate, took_ns))
        return [("warning: " if line.warning else "info: ") + line.text % line.args for line in self.log.take()]


def test_the_events_of_a_member():
    told = Told()
    assert told.hear(1, 3, "slow", 1_230_000)[0].startswith(
        "warning: a: slow receiver: senders wait for c, which takes 1.23 MB/s of this member's messages, "
    )
    assert told.hear(9, 3, "over", 8) == [
        "info: a: senders no longer wait for c, after 8 s"
    ]
    assert "senders wait for this member: its application takes 14000 messages/s" in told.hear(10, 1, "slow", 14_000)[0]
    stuck = "warning: a: slow receiver: senders wait for b, which has taken nothing for 1 s"
    assert told.hear(11, 2, "stuck", 1)[0].startswith(stuck)
    assert told.hear(12, 2, "stuck", 2) and told.hear(14, 2, "stuck", 4), "the engine says it less and less often"
    assert told.hear(15, 9, "slow", 1) == [], "a member that is gone"
    assert "its application has taken nothing for 6 s" in told.hear(20, 1, "stuck", 6)[0]


def test_a_receiver_on_the_edge_is_told_of_less_and_less_often():
    told = Told()
    warned = [at for at in range(0, 6000, 2) if told.hear(at, 3, "slow", 5) + told.hear(at + 1, 3, "over", 1)]
    assert warned == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030, 3630, 4230, 4830, 5430]
    assert told.hear(6000, 3, "stuck", 1) == [] and told.hear(6005, 3, "stuck", 6), "for long: in any case"
    assert told.hear(8000, 3, "over", 1) and told.hear(9000, 3, "slow") and told.hear(9001, 3, "over")
    assert told.hear(9011, 3, "slow"), "after a long silence it begins with the shortest pause again"


def test_a_path_that_carries_less_is_told_with_the_size_to_set():
    log = Told().log
    for size in (1472, 1440, 9000, 512):
        log.packets_lost(3, size, 1_200_000_000)
    first, *others = [line.text % line.args for line in log.take() if line.warning]
    assert first == (
        "a: datagrams of 1472 bytes do not reach c, which has asked for one again and again for 1.2 s, though smaller "
        "ones pass both ways: the path carries less than the interfaces at its ends. Set packet_bytes=1440, or less, "
        "on all members (SC4306)"
    )
    for size, text in zip((1368, 1440, 1024), others, strict=True):
        assert f"packet_bytes={size}," in text


def test_the_time_of_view_changes_is_counted_by_its_bounds():
    cuts = ViewChanges()
    for change, ms in (("join", 1), ("loss", 1.5), ("merge", 9000), ("join", 0)):
        cuts.add(change, int(ms * MS))
    assert cuts.within == [1, 1, *[0] * 10, 1] and cuts.changes["join"] == 2
    assert cuts.sum_ns == 9002.5 * MS and cuts.last_ns == 9000 * MS
    assert ViewChanges.of(cuts.sketch()) == cuts
    assert ViewChanges.of({"within": "x", "changes": [], "sum_ns": "1"}) == ViewChanges()
