"""The compiled engine without any I/O: a network of lists, time by hand."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys

import pytest
from engines import MS, Net, feed, forged, messages

from seqcast._native.engine import AGAIN, SENT, TOO_LARGE, Batch, Message, Sending, SendingArray
from seqcast.reports import MemberSuspected
from seqcast.types import Member, ViewId


def test_credit_of_a_part_that_was_taken_before_a_marker_is_given() -> None:
    net = Net(2, window=16 << 10)
    net.run(5)
    sending = Sending(net.engines[0], bytes(100_000))
    assert sending.step() == AGAIN
    for _ in range(100):
        net.step(take=False)
        net.take(1)
    net.engines[0].mark(9)
    net.take(0)
    assert net.markers[0] == [1, 9]
    for _ in range(1000):
        net.step()
        if sending.step() == SENT:
            break
    net.run(50)
    assert [len(payload) for _, payload in net.got[0] + net.got[1]] == [100_000] * 2


COLLECTED = """
import gc
from engines import Net

engine = Net(3).engines[0]
gc.callbacks.append(lambda phase, info: engine.counters())  # as an application's finalizer may
gc.set_threshold(1)
kept = []  # each object needs memory of its own
for _ in range(100):
    kept += engine.gossip_marks(), engine.gossip_lacks(1, 1, 5, 5), engine.held(1), engine.received_table()
    kept += engine.reports(), engine.offers(), engine.own(), engine.own_messages(1, 5), engine.stream(1), engine.links()
    kept += engine.unacknowledged(), engine.doubted(), engine.transmit(1), engine.deliver()
print("ok")
"""


def test_no_object_is_made_under_the_lock() -> None:
    """Else the garbage collector may run there, and run code that waits for the lock."""
    result = subprocess.run(
        [sys.executable, "-c", COLLECTED],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("packet", [1472, 65000])
def test_every_member_delivers_each_senders_messages_in_order(loss: float, packet: int) -> None:
    net = Net(3, packet=packet)
    rng = random.Random(5)
    net.drop = lambda src, dst, lane, datagram: rng.random() < loss
    sent = {i: messages(i, 300) for i in range(3)}
    feed(net, sent)
    for got in net.got:
        for i in range(3):
            assert [payload for sender, payload in got if sender == net.ids[i]] == sent[i]


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
def test_a_sequencer_gives_all_members_one_order(loss: float) -> None:
    """SEQ-03: lost forwards are sent again, and gaps in the sequencer's multicast stream are filled."""
    net = Net(4, sequencer=0)
    rng = random.Random(6)
    net.drop = lambda src, dst, lane, datagram: rng.random() < loss
    sent = {i: messages(10 + i, 200) for i in range(4)}
    feed(net, sent)
    assert all(got == net.got[0] for got in net.got)
    for i in range(4):
        assert [payload for sender, payload in net.got[0] if sender == net.ids[i]] == sent[i]


def test_the_last_message_is_recovered_by_the_tail_probe() -> None:
    """NAK-01, NAK-02: the last message is lost and nothing is sent afterwards."""
    net = Net(2, heartbeat_ns=10**12, suspect_ns=10**15)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == 1
    net.engines[0].send(b"last")
    net.step()
    net.drop = lambda src, dst, lane, datagram: False
    net.run(50)
    assert (net.ids[0], b"last") in net.got[1]


def test_probes_quiesce_when_everything_is_consumed() -> None:
    """NAK-03."""
    net = Net(2)
    net.engines[0].send(b"x")
    net.run(300)
    before = net.engines[0].counters()["probes_sent"]
    net.run(1000)
    assert net.engines[0].counters()["probes_sent"] == before


def test_a_member_serves_the_packets_of_a_sender_that_is_gone() -> None:
    net = Net(3, suspect_ns=50 * MS)
    net.drop = lambda src, dst, lane, datagram: dst == 2 and datagram[2] in (1, 6, 7)
    net.engines[0].send(b"only at 1")
    net.run(3)
    net.drop = lambda src, dst, lane, datagram: 0 in (src, dst)
    net.run(500)
    assert (net.ids[0], b"only at 1") in net.got[2]


def test_credit_stops_a_sender_whose_receiver_does_not_take_its_messages() -> None:
    net = Net(2, window=20_000)
    payload = bytes(1000)
    packed = 0
    for _ in range(500):
        while net.engines[0].send(payload) == SENT:
            packed += 1
        net.now += MS
        net.step(take=False)
    assert 10 < packed < 40
    net.take(1)
    net.take(0)
    net.run(100)
    assert net.engines[0].send(payload) == SENT


def test_unicasts_arrive_in_order_at_one_member_only() -> None:
    net = Net(3)
    rng = random.Random(3)
    net.drop = lambda src, dst, lane, datagram: rng.random() < 0.2
    sent = messages(4, 100)
    for message in sent:
        while net.engines[0].send(message, to=net.ids[1]) == AGAIN:
            net.step()
    net.run(600)
    assert [payload for _, payload in net.got[1]] == sent
    assert net.got[0] == net.got[2] == []


@pytest.mark.parametrize("deliver_own", [True, False])
def test_a_message_to_oneself_is_delivered(deliver_own: bool) -> None:
    """DIG-08: also to a member that is not delivered its own multicasts: a message to that member alone is none."""
    net = Net(1, deliver_own=deliver_own)
    large = random.Random(1).randbytes(200_000)
    assert net.engines[0].send(b"a", to=net.ids[0]) == SENT
    assert net.engines[0].send(large, to=net.ids[0]) == SENT
    net.step()
    assert [payload for _, payload in net.got[0]] == [b"a", large]


def test_a_single_member_goes_on_for_ever() -> None:
    net = Net(1, window=50_000)
    sent = messages(1, 500)
    feed(net, {0: sent})
    assert [payload for _, payload in net.got[0]] == sent


def test_a_message_over_the_limit_is_refused() -> None:
    net = Net(1, message_bytes_max=1000)
    assert net.engines[0].send(bytes(1001)) == TOO_LARGE


@pytest.mark.parametrize("packet", [1472, 65000])
def test_an_array_is_sent_up_to_the_message_over_the_limit(packet: int) -> None:
    net = Net(1, message_bytes_max=1000, packet=packet)
    sent = [bytes([k]) * size for k, size in enumerate([0, 10, 1000, 0, 500])]
    array = SendingArray(net.engines[0], [*sent, bytes(1001), b"behind it"])
    assert array.step() == TOO_LARGE and array.sent == len(sent)
    net.run(50)
    assert [payload for _, payload in net.got[0]] == sent


@pytest.mark.parametrize("packet", [1472, 65000])
def test_an_array_arrives_as_it_was_sent(packet: int) -> None:
    """Sizes that end just before, at and behind the end of a packet, and messages without bytes."""
    net = Net(2, packet=packet)
    rng = random.Random(packet)
    sizes = [rng.choice([0, 1, 64, packet // 3, packet - 90, packet - rng.randrange(120), packet]) for _ in range(300)]
    sent = [rng.randbytes(size) for size in sizes]
    array = SendingArray(net.engines[0], sent)
    while array.step() != SENT:
        net.run(5)
    net.run(50)
    assert [payload for _, payload in net.got[1]] == sent


class Lying(list):
    """Its stated length is not the length of its bytes."""

    def __len__(self) -> int:
        return 1


def test_engine_counts_its_input_and_believes_no_length() -> None:
    many = Lying([0] * 100_000)
    net = Net(1)
    engine = net.engines[0]
    for call in (
        lambda: engine.freeze(many),
        lambda: engine.cut(many, []),
        lambda: engine.close_view(many, 2),
        lambda: net.install([0], sequencer=-1, tag=2, marker=2, cuts={0: many}),
        lambda: net.install([0], sequencer=-1, tag=2, marker=2, base=many),
        lambda: net.install([0], sequencer=-1, tag=2, marker=2, origin=many),
    ):
        with pytest.raises(ValueError, match="entries"):
            call()
    engine.cut(iter([0]), Lying([(0, 1, 1, 0)] * 100_000))
    assert engine.send(b"still well") == SENT


def test_a_batch_is_not_made_by_hand_and_an_empty_one_is_sound() -> None:
    with pytest.raises(TypeError, match="recv_batch"):
        Batch()
    empty = Batch.__new__(Batch)
    assert (len(empty), empty.tolist(), empty.messages(), empty.nbytes) == (0, [], [], 0)
    assert (empty.data.tolist(), empty.offsets.tolist(), len(empty.runs)) == ([], [0], 0)
    assert empty.to_arrow().to_pylist() == []
    with pytest.raises(IndexError):
        empty[0]


def test_global_seqnos_are_dense() -> None:
    net = Net(3, sequencer=1)
    feed(net, {i: messages(20 + i, 100) for i in range(3)})
    numbers = []
    net.engines[0].send(b"end")
    net2 = Net(3, sequencer=1)
    for i in range(3):
        for message in messages(30 + i, 50):
            while net2.engines[i].send(message) == AGAIN:
                net2.step(take=False)
    for _ in range(500):
        net2.step(take=False)
        while (item := net2.engines[2].deliver()) is not None:
            if isinstance(item, Batch):
                for run in item.runs:
                    numbers += range(int(run["global_seqno"]), int(run["global_seqno"]) + int(run["n"]))
    assert numbers == list(range(1, 151))


def test_a_sender_knows_which_packets_the_sequencer_has_not_put_in_order() -> None:
    """SEQ-08, SEQ-24: a member that stops keeps its own messages, by their seqno, until they have been put in
    order: this falls to 0."""
    net = Net(3, sequencer=0)
    net.drop = lambda src, dst, lane, datagram: dst == 0
    net.engines[1].send(b"a")
    net.run(3)
    net.engines[1].send(b"b")
    assert [engine.unordered() for engine in net.engines] == [0, 2, 0]
    net.drop = lambda src, dst, lane, datagram: False
    net.run(100)
    assert [engine.unordered() for engine in net.engines] == [0, 0, 0]
    assert net.got[2] == [(net.ids[1], b"a"), (net.ids[1], b"b")]


@pytest.mark.parametrize("hi", [2**64 - 1, 2**62 + 1, 2**62])
def test_a_nak_for_impossible_seqnos_is_answered_at_once(hi: int) -> None:
    net = Net(2)
    net.engines[0].receive(forged(5, 101, struct.pack("<QIIQQ", 100, 0, 1, hi - 2, hi)), bytes([2]), net.now)
    counters = net.engines[0].counters()
    assert counters["drop_field"] == (hi > 2**62)
    assert counters["packets_retransmitted"] == 0


def test_a_suspicion_is_raised_though_the_queue_of_frames_is_full() -> None:
    net = Net(2, control_bytes_max=1 << 16)
    net.run(10)
    net.engines[0].reports()
    net.drop = lambda src, dst, lane, datagram: True
    for _ in range(60):
        net.engines[0].receive(forged(8, 999, bytes(1400)), bytes([9]), net.now)
    net.run(500)
    assert net.engines[0].counters()["drop_control_full"] > 0
    assert MemberSuspected(101, "silence") in net.engines[0].reports()


def test_a_forward_waits_for_a_descriptor_beside_the_own_open_packet() -> None:
    net = Net(2, sequencer=0, ring_packets=8, heartbeat_ns=10**12, suspect_ns=10**15)
    a, b = net.engines
    net.drop = lambda src, dst, lane, datagram: True
    for k in range(7):
        assert a.send(b"own%d" % k) == SENT
        a.transmit(net.now)
    assert a.send(b"own7") == SENT
    assert b.send(b"forward") == SENT
    for _, _, datagram in b.transmit(net.now):
        a.receive(datagram, bytes([2]), net.now)
    assert a.stream(0)[0] == 8
    net.drop = lambda src, dst, lane, datagram: False
    net.run(3000)
    assert [payload for _, payload in net.got[1]] == [b"own%d" % k for k in range(8)] + [b"forward"]


def test_empty_frames_of_strangers_do_not_fill_the_memory() -> None:
    net = Net(2, control_bytes_max=1 << 16)
    datagram = forged(8, 999, b"")
    for _ in range(5000):
        net.engines[0].receive(datagram, bytes([9]), net.now)
    counters = net.engines[0].counters()
    assert counters["drop_control_full"] + counters["drop_rate"] > 3000 and counters["drop_control_full"] > 0


def test_a_forward_of_more_packets_than_the_ring_has_is_delivered() -> None:
    net = Net(2, sequencer=0, ring_packets=64)
    large = bytes(300_000)
    sending, done = Sending(net.engines[1], large), False
    for _ in range(2000):
        done = done or sending.step() == SENT
        net.step()
    assert done
    assert net.got[0] == [(net.ids[1], large)]


def test_a_message_is_a_frozen_value() -> None:
    member, view = Member("a", 7), ViewId(3, 7)
    message = Message(b"x", member, view, 5, 2, 11, 1_000)
    assert message == Message(b"x", member, view, 5, 2, 11, 1_000, unicast=False)
    assert message != Message(b"x", member, view, 5, 3, 11, 1_000) and message != "x"
    assert hash(message) == hash(pickle.loads(pickle.dumps(message))) and message.unicast is False
    assert repr(message).startswith("Message(payload=b'x', sender=Member(name='a'")
    match message:
        case Message(payload, sender, global_seqno=number):
            assert (payload, sender, number) == (b"x", member, 11)
    with pytest.raises(AttributeError):
        message.payload = b"y"


def test_messages_left_in_an_open_packet_count_as_unsent() -> None:
    """The driver transmits a rest only while there is one: else the last message of a burst would stay unsent."""
    net = Net(2, packet=512)
    net.run(1)
    engine = net.engines[0]
    for _ in range(5):
        assert engine.send(bytes(100)) == SENT
    assert sum(len(datagram) for lane, _, datagram in engine.transmit(net.now, all=False) if datagram[2] == 1) == 512
    assert engine.unsent() == 100, "the message that did not fit any more"
    assert engine.send(bytes(90)) == SENT and engine.unsent() == 100 + 90 + 2 * 4, "and offsets, as the two differ"
    assert engine.send(bytes(100), to=net.ids[1]) == SENT
    net.install([0, 1], sequencer=-1, tag=2, marker=2)
    assert engine.unsent() == 100, "what goes to one member lives on"
    engine.transmit(net.now)
    assert engine.unsent() == 0
    assert engine.send(bytes(100)) == SENT and engine.unsent() > 0
    engine.close_view(None, 3)
    assert engine.unsent() == 0, "nothing is transmitted outside a view"
