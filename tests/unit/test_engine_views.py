"""Gate, freeze, cut and install of the engine, driven by hand: the base of the policies."""

from __future__ import annotations

import ctypes
import random

import pytest
from engines import HOP_NS, Net, Traffic, change_view, feed, make_engine, messages, of_sender

from seqcast._native.engine import AGAIN, SENT, Engine, Sending
from seqcast.core.orders import by_name

DATA = 1


def test_survivors_deliver_the_same_set_of_a_crashed_sender() -> None:
    """FLU-01, FLU-02."""
    net = Net(4)
    rng = random.Random(2)
    net.drop = lambda src, dst, lane, datagram: src == 0 and rng.random() < 0.5
    sent = messages(1, 200)
    for message in sent:
        net.engines[0].send(message)
        net.step(1000)
    crashed = {0}
    net.drop = lambda src, dst, lane, datagram: src in crashed or dst in crashed
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=-1, tag=2)
    net.run(20)
    got = of_sender(net, 1, 0)
    assert got == of_sender(net, 2, 0) == of_sender(net, 3, 0)
    assert got == sent[: len(got)]
    assert all(2 in net.markers[i] for i in (1, 2, 3))


def test_sequencer_failover_resends_unstamped_messages() -> None:
    """SEQ-08, SEQ-20 to SEQ-22, E-02, E-03: C's messages 5 and 6 reached only some members when the sequencer died. C
    kept those that were not in order, and they are resent to the new sequencer, by increasing seqno."""
    net = Net(4, sequencer=0)
    for k in range(1, 5):
        net.engines[2].send(b"m%d" % k)
        net.run(3)
    net.drop = lambda src, dst, lane, datagram: src == 0 and dst != 3  # only D hears the sequencer now
    net.engines[2].send(b"m5")
    net.run(3)
    net.drop = lambda src, dst, lane, datagram: dst == 0  # and now nobody: m6 is never stamped
    net.engines[2].send(b"m6")
    net.run(3)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2)
    net.engines[2].send(b"m7")
    net.run(50)
    for i in (1, 2, 3):
        assert of_sender(net, i, 2) == [b"m1", b"m2", b"m3", b"m4", b"m5", b"m6", b"m7"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [400, 6000])
def test_nothing_of_a_survivor_is_lost_or_doubled_when_the_sequencer_crashes(seed: int, size: int) -> None:
    """FLU-02: messages that are split at the edge of the stamped part are sent again whole."""
    net = Net(4, sequencer=0, window=30_000)
    traffic = Traffic(net, random.Random(seed), size)
    traffic.until_crash()
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=0, tag=2, steps=2000)
    traffic.after_crash()
    assert net.got[1] == net.got[2] == net.got[3]
    for i in (1, 2, 3):
        assert of_sender(net, 1, i) == traffic.sent[i]


def test_the_gate_stays_closed_until_a_view_is_installed() -> None:
    """E-15: after the last seqno was given away nothing more can be sent in this view."""
    net = Net(2)
    assert net.engines[0].send(b"a") == SENT
    last = net.engines[0].gate_close()
    assert net.engines[0].send(b"b") == AGAIN
    assert net.engines[0].gate_close() == last == 1
    net.engines[1].gate_close()
    for engine in net.engines:
        engine.freeze([])
        engine.cut([1, 0], [(0, 1, 1, 0)] if engine is net.engines[1] else [])
    net.run(5)
    net.install([0, 1], sequencer=-1, tag=2, marker=2, base=[1, 0], cuts={0: [1, 0], 1: [1, 0]})
    assert net.engines[0].send(b"b") == SENT
    net.run(5)
    assert of_sender(net, 1, 0) == [b"a", b"b"]


def test_after_the_freeze_nothing_of_a_lost_member_is_taken() -> None:
    net = Net(3)
    net.engines[1].freeze([net.ids[0]])
    net.engines[0].send(b"late")
    net.run(20)
    assert of_sender(net, 1, 0) == []
    assert net.engines[1].counters()["drop_frozen"] > 0
    assert of_sender(net, 2, 0) == [b"late"]


def test_packets_that_a_lost_member_lacks_do_not_count_as_delivered_by_all() -> None:
    """Its sender may leave before the view is closed, and names then the packets that others lack; or the lost member
    comes back."""
    net = Net(3, sequencer=0)
    net.drop = lambda src, dst, lane, datagram: 2 in (src, dst)
    assert net.engines[1].send(b"ordered") == SENT
    net.run(20)
    net.engines[0].freeze([net.ids[2]])
    net.run(2000)
    assert net.engines[0].send(b"says what is stable") == SENT
    net.run(20)
    assert of_sender(net, 1, 1) == [b"ordered"]
    own = net.engines[1].own()
    assert (own.last, own.any, own.all) == (1, 1, 0)
    net.drop = lambda src, dst, lane, datagram: False
    net.engines[0].freeze([])
    net.run(2000)
    assert of_sender(net, 2, 1) == [b"ordered"] and net.engines[1].own().all == 1


def test_after_the_cut_nothing_is_delivered_before_the_view() -> None:
    net = Net(3)
    net.drop = lambda src, dst, lane, datagram: src == 0 and dst == 1
    assert net.engines[0].send(b"fetched") == SENT
    net.step()
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    for engine in net.engines[1:]:
        engine.gate_close()
        engine.freeze([net.ids[0]])
        engine.cut([1, 0, 0], [(0, 1, 1, 2)])
    net.run(20)
    assert net.engines[1].cut_reached() and net.got[1] == []
    net.install([1, 2], sequencer=-1, tag=2, marker=2, cuts={1: [1, 0, 0], 2: [1, 0, 0]}, fell=[True, False, False])
    net.take(1)
    assert net.got[1] == net.got[2] == [(net.ids[0], b"fetched")]


def test_in_a_primary_partition_nothing_is_delivered_after_the_ok_that_an_earlier_attempt_may_leave_out() -> None:
    """The VIEW that comes may be of an attempt in which the sender was not counted."""
    net = Net(3)
    net.engines[1].gate_close()
    net.engines[1].freeze([], still=True)
    assert net.engines[0].send(b"not of the view") == SENT
    net.run(20)
    assert net.got[1] == [] and net.engines[1].held(0) == (1, [])
    net.install([1, 2], sequencer=-1, tag=2, marker=2, cuts={1: [0, 0, 0]}, fell=[True, False, False])
    net.take(1)
    assert net.got[1] == []


def test_the_cut_is_reached_when_survivors_have_the_unicasts_that_were_sent_to_them() -> None:
    net = Net(2)
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (0, 1)
    assert net.engines[0].send(b"to one", to=net.ids[1]) == SENT
    net.step()
    for engine in net.engines:
        engine.gate_close(unicasts=True)
        engine.freeze([])
        engine.cut([0, 0], [])
    net.run(20)
    assert [engine.cut_reached() for engine in net.engines] == [False, True]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(50)
    assert all(engine.cut_reached() for engine in net.engines) and of_sender(net, 1, 0) == [b"to one"]


def test_a_joiner_starts_at_the_cut() -> None:
    """DIG-01, E-09: a joiner is given the highest seqno of each sender, and expects the next one first."""
    net = Net(3)
    feed(net, {0: messages(1, 20)}, steps=50)
    for engine in net.engines[:2]:
        engine.gate_close()
    # The third engine plays the joiner, which has no view before.
    joiner = net.engines[2]
    joiner.close_view(None, 9)
    net.got[2].clear()
    base = net.engines[0].stream(0)[0]
    for engine in net.engines[:2]:
        engine.freeze([net.ids[2]])
        engine.cut([base, 0, 0], [])
    net.install(
        [0, 1, 2], sequencer=-1, tag=2, marker=2, base=[base, 0, 0], cuts={0: [base, 0, 0], 1: [base, 0, 0], 2: None}
    )
    net.engines[0].send(b"first for the joiner")
    net.run(10)
    assert net.got[2] == [(net.ids[0], b"first for the joiner")]


def test_a_message_that_is_given_up_is_dropped_by_receivers() -> None:
    net = Net(2, window=20_000)
    large = random.Random(1).randbytes(500_000)
    assert net.engines[0].send(large) == AGAIN  # the window is full; this call gives the message up
    net.run(20)
    net.engines[0].send(b"next")
    net.run(20)
    assert of_sender(net, 1, 0) == [b"next"]
    assert net.engines[1].counters()["drop_partial_message"] == 1


def test_members_that_depart_in_the_middle_of_a_message_to_one_leave_its_place_to_others() -> None:
    """The table of open messages has two places for each member that a view can have."""
    net = Net(3, window=20_000)
    large, places = random.Random(1).randbytes(100_000), 2 * 128
    for i in range(places):
        net.ids[2] = 1000 + i
        net.engines[2] = make_engine(net.ids[2])
        net.install([0, 1, 2], sequencer=-1, tag=10 + 2 * i, marker=1)
        assert net.engines[2].send(large, to=net.ids[0]) == AGAIN
        net.step()
        net.install([0, 1], sequencer=-1, tag=11 + 2 * i, marker=1)
        net.step()
    assert net.engines[0].counters()["drop_partial_message"] == places
    sending = Sending(net.engines[1], large)
    while sending.step() != SENT:
        net.step()
    net.run(20)
    assert of_sender(net, 0, 1) == [large]


def test_a_message_to_one_ends_after_view_changes_that_its_receiver_is_late_to_learn() -> None:
    """Its sender has departed since, and the rest of the message waits behind the views."""
    net = Net(3, window=20_000)
    large = random.Random(1).randbytes(30_000)
    sending = Sending(net.engines[2], large, to=net.ids[0])
    assert sending.step() == AGAIN
    net.step()
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    while sending.step() != SENT:
        net.step(take=False)
    net.step(take=False)
    net.install([0, 1], sequencer=-1, tag=3, marker=3)
    net.run(5)
    assert of_sender(net, 0, 2) == [large] and net.markers[0] == [1, 2, 3]


@pytest.mark.parametrize("sequencer", [-1, 0])
@pytest.mark.parametrize("before", [0, 1, 3, 10, 200])
@pytest.mark.parametrize("length", [12_000, 200_000])
def test_a_view_change_in_the_middle_of_a_message_sends_it_again_whole(
    sequencer: int, before: int, length: int
) -> None:
    """The gate may close inside a split message: receivers drop the part, the sender starts again. One of 12,000 bytes
    is packed at once, and waits as a whole to be ordered: the view change leaves that message to its sender."""
    net = Net(4, sequencer=sequencer, window=20_000)
    large = random.Random(1).randbytes(length)
    sending = Sending(net.engines[2], large)
    done = False
    for _ in range(before):
        done = done or sending.step() == SENT
        net.step(HOP_NS // 2)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=sequencer, tag=2)
    for _ in range(1000):
        done = done or sending.step() == SENT
        net.step()
    assert done
    net.engines[2].send(b"next")
    net.run(50)
    for i in (1, 2, 3):
        assert of_sender(net, i, 2) == [large, b"next"]


def test_many_gaps_of_a_lost_member_are_fetched_from_their_holders() -> None:
    """More ranges than the table of gaps holds, each held by one survivor only."""
    net = Net(6, ring_packets=1024, suspect_ns=10**15)

    def drop(src: int, dst: int, lane: int, datagram: bytes) -> bool:
        if src == 5 and datagram[2] == 1:
            return int.from_bytes(datagram[32:40], "little") % 4 + 1 != dst
        return datagram[2] in (5, 6, 7)

    net.drop = drop
    for i in range(260):
        net.engines[5].send(b"%d" % i)
        net.step(1000)
    net.drop = lambda src, dst, lane, datagram: 5 in (src, dst)
    change_view(net, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], sequencer=-1, tag=2, steps=3000)
    net.run(5)
    for i in range(5):
        assert of_sender(net, i, 5) == [b"%d" % k for k in range(260)]


def test_a_member_that_missed_news_of_stability_has_place_for_packets_in_the_cut() -> None:
    """B has acknowledged 40 packets. C alone receives the next ring, which says that they are stable, and A crashes."""
    net = Net(3, ring_packets=64)
    sent = [b"%d" % k for k in range(100)]
    net.drop = lambda src, dst, lane, datagram: src == 2  # no acknowledgement of C: nothing is stable
    for message in sent[:40]:
        assert net.engines[0].send(message) == SENT
        net.step(1000)
    net.run(4)
    net.drop = lambda src, dst, lane, datagram: (src, dst) == (0, 1)
    net.run(20)
    for message in sent[40:]:
        assert net.engines[0].send(message) == SENT
        net.step(1000)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    assert [net.engines[i].held(0) for i in (1, 2)] == [(40, []), (100, [])]
    change_view(net, [1, 2], [1, 2], sequencer=-1, tag=2)
    net.run(5)
    assert of_sender(net, 1, 0) == of_sender(net, 2, 0) == sent


def test_a_member_with_a_smaller_ring_than_a_lost_sender_keeps_packets_that_the_cut_has_another_fetch() -> None:
    """A's last packet lies more than B's ring behind the packets that B alone has."""
    net = Net(3)
    net.engines[1] = make_engine(net.ids[1], ring_packets=64)
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    sent = [b"%d" % k for k in range(200)]
    net.drop = lambda src, dst, lane, datagram: src == 2 or (src, dst) == (0, 2)
    for message in sent[:40]:
        assert net.engines[0].send(message) == SENT
        net.step(1000)
    net.step()
    net.drop = lambda src, dst, lane, datagram: src == 2 or (src, dst) == (0, 1)
    for message in sent[40:]:
        assert net.engines[0].send(message) == SENT
        net.step(1000)
    net.step()
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    assert [net.engines[i].held(0) for i in (1, 2)] == [(40, []), (0, [(41, 200)])]
    cut = [200, net.engines[1].gate_close(), net.engines[2].gate_close()]
    for i in (1, 2):
        net.engines[i].freeze([net.ids[0]])
    for i in (1, 2):
        net.engines[i].cut(cut, [(0, 1, 40, 1), (0, 41, 200, 2)])
    net.run(20)
    assert net.engines[2].cut_reached()


def test_a_new_sequencer_does_not_probe_its_old_forward_stream() -> None:
    net = Net(3, sequencer=0)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    net.engines[1].send(b"x")
    net.run(3)
    change_view(net, [1, 2], [1, 2], sequencer=0, tag=2)
    net.run(500)
    before = net.engines[1].counters()["probes_sent"]
    net.run(1000)
    assert net.engines[1].counters()["probes_sent"] == before
    assert of_sender(net, 2, 1) == [b"x"]


def test_unstamped_messages_are_sent_again_in_any_new_window() -> None:
    net = Net(3, sequencer=0, window=1 << 20)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    large = [bytes([i]) * 240_000 for i in range(3)]
    for message in large:
        assert net.engines[1].send(message) == SENT
    net.run(3)
    net.window = 20_000
    change_view(net, [1, 2], [1, 2], sequencer=0, tag=2)
    for _ in range(3000):
        net.step()
    assert net.engines[1].send(b"next") == SENT
    net.run(50)
    assert of_sender(net, 2, 1) == [*large, b"next"] == of_sender(net, 1, 1)


def test_messages_of_one_byte_that_take_more_memory_than_the_ring_are_sent_again_at_each_view_change() -> None:
    net = Net(3, sequencer=0, window=20_000)
    net.drop = lambda src, dst, lane, datagram: True
    sent: list[bytes] = []
    while net.engines[2].send(b"%c" % (len(sent) % 256)) == SENT:
        sent.append(b"%c" % (len(sent) % 256))
    assert len(sent) > 2000
    net.drop = lambda src, dst, lane, datagram: 2 in (src, dst)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=1, tag=2)  # the first one forwards again
    net.drop = lambda src, dst, lane, datagram: 1 in (src, dst)
    change_view(net, [0, 2], [0, 2], sequencer=1, tag=3)  # the first one is the sequencer itself
    net.run(200)
    assert of_sender(net, 0, 2) == sent == of_sender(net, 2, 2)


class Allocated(ctypes.Structure):
    """``mallinfo2`` of the GNU C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated() -> int:
    """Bytes that this process has from ``malloc``."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("this C library does not tell what is allocated")
    mallinfo2.restype = Allocated
    told = mallinfo2()
    return int(told.uordblks + told.hblkhd)


@pytest.mark.parametrize("sequencer", [0, -1])
def test_a_view_with_fewer_members_and_larger_windows_takes_no_new_memory(sequencer: int) -> None:
    """All senders wait meanwhile, and writing to new memory for the first time may take most of a failover."""
    net = Net(4, sequencer=sequencer, window=3 << 19)
    before = allocated()
    net.window = net.window // 2 * 3
    change_view(net, [1, 2, 3], [1, 2, 3], sequencer=sequencer, tag=2)
    assert net.engines[2].counters()["window_bytes"] == net.window
    assert allocated() < before + (1 << 20)


@pytest.mark.parametrize("steps", range(1, 12, 2))
def test_messages_sent_again_in_a_smaller_window_outlive_the_next_view_change_too(steps: int) -> None:
    """Its sender has returned: nobody else can send the message again when the view closes with a part of it in
    order."""
    net = Net(3, sequencer=0, window=1 << 20)
    net.drop = lambda src, dst, lane, datagram: 2 in (src, dst)
    large = bytes(range(256)) * 800
    assert net.engines[2].send(large) == SENT
    net.run(3)
    net.drop = lambda src, dst, lane, datagram: False
    net.window = 20_000
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=2)
    net.run(steps)
    change_view(net, [0, 1, 2], [0, 1, 2], sequencer=0, tag=3)
    for _ in range(1000):
        net.step()
    assert net.engines[2].send(b"next") == SENT
    net.run(50)
    for i in range(3):
        assert of_sender(net, i, 2) == [large, b"next"]


class Idle(Net):
    """Its first member's application takes nothing while ``idle``."""

    idle = True

    def take(self, i: int) -> None:
        if i or not self.idle:
            super().take(i)


def test_own_messages_of_closed_views_that_are_not_taken_are_bounded() -> None:
    """Each view gives new credit: who takes nothing would else be left with a window of its own messages for each."""
    ring = 64 << 10
    net = Idle(2, window=ring // 2, ring_bytes=ring)
    engine = net.engines[0]
    for tag in range(2, 30):
        while engine.send(bytes(1000)) == SENT:
            net.step()
        change_view(net, [0, 1], [0, 1], sequencer=-1, tag=tag)
    counters = engine.counters()
    assert counters["own_closed_stalls"] > 0 and engine.send(b"no") == AGAIN
    assert ring < counters["own_closed_bytes"] <= 2 * ring
    net.idle = False
    net.take(0)
    assert engine.counters()["own_closed_bytes"] == 0
    assert engine.send(b"yes") == SENT
    net.run(20)
    assert of_sender(net, 1, 0) == of_sender(net, 0, 0) and of_sender(net, 1, 0)[-1] == b"yes"


def test_a_view_with_a_member_twice_is_refused_and_changes_nothing() -> None:
    net = Net(2)
    net.engines[0].send(b"still in the view")
    with pytest.raises(ValueError, match="once"):
        net.engines[0].install(
            tag=2, ids=[100, 101, 101], addresses=[b"a", b"b", b"c"], rank=0, mechanism=0, sequencer=-1,
            packet_bytes=1472,
            window_bytes=1 << 20, forward_window_bytes=1 << 20, unicast_window_bytes=1 << 20,
            state_window_bytes=1 << 20, base=[0] * 3, origin_base=[0] * 3, cut=[1, 0], marker=2, now_ns=net.now,
        )  # fmt: skip
    net.run(5)
    assert of_sender(net, 1, 0) == [b"still in the view"]


@pytest.mark.parametrize("sequencer", [-1, 0])
def test_credit_does_not_wait_for_a_member_about_to_be_given_up_but_its_lacking_packets_stay(sequencer: int) -> None:
    net = Net(3, sequencer=sequencer, window=30_000)
    net.run(5)
    zero = net.engines[0]
    net.drop = lambda src, dst, lane, datagram: dst == 2
    while zero.send(bytes(1000)) == SENT:
        net.run(1)
    net.run(20)
    assert zero.send(bytes(1000)) == AGAIN
    zero.uncount([net.ids[2]])
    assert zero.send(b"last") == SENT
    zero.uncount([])
    net.drop = lambda src, dst, lane, datagram: False
    net.run(200)
    assert [payload for _, payload in net.got[2]][-1] == b"last"
    assert net.got[2] == net.got[1]


def test_unicast_streams_begin_anew_with_members_that_were_apart() -> None:
    """Packets in flight before they were separated are not delivered behind the merge, and hold nothing up."""
    net = Net(2)
    net.drop = lambda src, dst, lane, datagram: True
    assert net.engines[0].send(b"before", to=net.ids[1]) == SENT
    net.run(10)
    net.drop = lambda src, dst, lane, datagram: False
    net.install([0, 1], sequencer=-1, tag=2, marker=2, merge=True)
    assert net.engines[0].send(b"after", to=net.ids[1]) == SENT
    net.run(200)
    assert of_sender(net, 1, 0) == [b"after"]


class Late:
    """An engine that installs its next view when told to."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.wanted = engine, {}

    def install(self, **wanted: object) -> None:
        self.wanted = wanted

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)


@pytest.mark.parametrize(("order", "sequencer"), [("fifo", -1), ("records", 0), ("grant", 0), ("causal", -1),
                                                  ("sequencer", 0), ("sequencer", 2)])  # fmt: skip
def test_packets_dropped_before_a_member_installed_the_view_are_repaired_right_after(order, sequencer) -> None:
    """DIG-03, DIG-06: a joiner is left with a gap until then. Nobody waits for a tail probe, whose pauses have doubled
    as often as the member was late."""
    net = Net(3, sequencer=sequencer, mechanism=by_name(order).number)
    net.run(10)
    net.engines[2] = late = Late(net.engines[2])
    net.install([0, 1, 2], sequencer=sequencer, tag=2, marker=2)
    assert net.engines[0].send(b"early") == SENT
    net.run(70)  # its next heartbeat and its next probe are more than 20 ms away
    assert net.got[2] == []
    net.engines[2] = late.engine
    late.engine.install(**{**late.wanted, "now_ns": net.now})
    net.run(4)
    assert net.got == [[(net.ids[0], b"early")]] * 3


def test_a_joiner_with_too_low_an_entry_waits_for_packets_that_nobody_keeps() -> None:
    """DIG-02: so the VIEW has the entries of its own cut, and not those of another moment."""
    net = Net(3)
    feed(net, {0: messages(1, 20)}, steps=50)
    base = net.engines[0].stream(0)[0]
    net.engines[2] = late = Late(make_engine(net.ids[2]))
    net.got[2].clear()
    for engine in net.engines[:2]:
        engine.gate_close()
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2, base=[base, 0, 0], cuts={0: [base, 0, 0], 1: [base, 0, 0]})
    net.engines[2] = late.engine
    late.engine.install(**{**late.wanted, "base": [base - 1, 0, 0]})
    assert net.engines[0].send(b"first for the joiner") == SENT
    net.run(300)
    assert net.got[1][-1] == (net.ids[0], b"first for the joiner") and net.got[2] == []


@pytest.mark.parametrize("order", ["sequencer", "total-1999"])
def test_unordered_messages_are_not_sent_again_across_a_merge(order):
    """TOT-18, and the cut, 11: otherwise a merge is like the installation of any new view. Such a message is reported
    as lost; sent again, the message could be delivered twice."""
    net = Net(3, sequencer=0, mechanism=by_name(order).number)
    net.run(5)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    net.engines[1].send(b"not ordered")
    net.run(3)
    net.drop = lambda src, dst, lane, datagram: False
    for engine in net.engines:
        engine.gate_close()
    net.install([0, 1, 2], sequencer=0, tag=2, marker=2, merge=True, cuts={i: [0, 0, 0] for i in range(3)})
    net.run(100)
    assert net.got == [[], [], []]
    net.engines[1].send(b"of the merged view")
    net.run(20)
    assert net.got == [[(net.ids[1], b"of the merged view")]] * 3


def test_packets_go_to_a_group_by_multicast_and_to_one_that_is_alone_by_unicast() -> None:
    net = Net(3)
    assert [engine.targets() for engine in net.engines] == [([], True)] * 3
    change_view(net, [0, 2], [0, 2], sequencer=-1, tag=2)
    assert net.engines[0].targets() == ([b"\3"], False)  # the third alone has to get them
    assert net.engines[2].targets() == ([b"\1"], False)
    net.engines[2].close_view(None, 9)
    assert net.engines[2].targets() == ([], False)
