"""The datagrams that the engine takes from each sender, and how many: forged datagrams against one engine, time by
hand."""

import struct

import pytest
from engines import MS, Net, make_engine, reports_of
from hostile import forge
from hostile.forge import SEQNO_MAX, Forger

from seqcast._native.engine import SENT
from seqcast.core.orders import by_name
from seqcast.reports import FrameReceived, MemberStarved, SlabsExhausted

F = Forger(7)
STRANGER = b"\x63"
A, B, C = bytes([1]), bytes([2]), bytes([3])  # addresses of the members 100, 101 and 102


def counters(net, rank=0):
    return net.engines[rank].counters()


@pytest.mark.parametrize(
    "datagram",
    [
        F.packet(forge.DATA, 101, 1, 1, rank=1),
        F.packet(forge.UNICAST, 101, 1, 1),
        F.packet(forge.FORWARD, 101, 1, 1, rank=1),
        F.packet(forge.STATE, 101, 1, 1),
        F.ack(101, 1, 0, 0, 0, 0),
        F.nak(101, 1, 100, 0, [(1, 1)]),
        F.probe(101, 1, 0, 10, 0),
        F.heartbeat(101, 1, 10, 0, [(0, 0)] * 3),
        F.ping(forge.PING, 101, 1, 100, 101),
        F.ping(forge.PONG, 101, 1, 102, 100),
        F.control(101, b"{}", 1),
    ],
    ids="data unicast forward state ack nak probe heartbeat ping pong control".split(),
)
def test_a_member_is_believed_only_from_its_own_address(datagram):
    net = Net(3)
    net.engines[0].transmit(net.now)
    assert net.engines[0].receive(datagram, STRANGER, net.now) == 0
    assert counters(net)["drop_address"] == 1
    assert net.engines[0].reports() == [] and net.engines[0].transmit(net.now) == []
    net.engines[0].receive(datagram, B, net.now)
    assert counters(net)["drop_address"] == 1


def test_another_member_serves_only_requested_packets():
    net = Net(3)
    ahead = F.packet(forge.DATA, 101, 1, 1, rank=1)
    net.engines[0].receive(ahead, C, net.now)
    net.take(0)
    assert net.got[0] == [] and counters(net)["drop_address"] == 1
    net.drop = lambda src, dst, lane, datagram: src == 1 and dst == 0 and datagram[2] == forge.DATA
    assert net.engines[1].send(b"real") == SENT
    net.run(60)  # 100 asks 101 in vain, and then 102, which has the packet
    assert net.got[0] == [(101, b"real")]


def test_a_packet_that_no_sequencer_can_have_stamped_is_dropped_and_the_real_one_requested():
    net = Net(3, sequencer=0)
    net.run(5)
    forged = F.packet(forge.DATA, 100, 1, 1, origin=SEQNO_MAX, rank=2, place=1)
    net.engines[1].receive(forged, A, net.now)
    for rank in range(3):
        assert net.engines[rank].send(b"%d" % rank) == SENT
        net.run(20)
    net.run(60)
    assert net.got[0] == net.got[1] == net.got[2] and len(net.got[1]) == 3
    assert counters(net, 1)["drop_field"] == 1


def test_messages_that_the_sequencer_stamps_again_are_delivered_once():
    """SEQ-09, SEQ-10, SEQ-18, SEQ-21: the message comes twice in the sequencer's broadcast, with its sender's own
    number, and the receiver drops the second one as a duplicate, by the highest seqno seen of each original sender."""
    net = Net(3, sequencer=0)
    for seqno in (1, 2):
        stamped = F.packet(forge.DATA, 100, 1, seqno, origin=1, rank=2, place=seqno)
        net.engines[1].receive(stamped, A, net.now)
    net.take(1)
    assert net.got[1] == [(102, b"forged")] and counters(net, 1)["packets_duplicate"] == 1


def test_a_packet_beyond_the_ring_takes_no_slot_of_a_packet_before_it():
    net = Net(2, ring_packets=64)
    net.engines[0].receive(F.packet(forge.DATA, 101, 1, 1 + 64, rank=1), B, net.now)
    assert counters(net)["drop_window"] == 1
    assert net.engines[1].send(b"real") == SENT
    net.run(20)
    assert net.got[0] == [(101, b"real")]


def test_a_packet_behind_a_gap_that_comes_again_holds_no_more_slabs():
    net = Net(2, slabs_max=64, window=64 << 10)
    first, second = (F.packet(forge.DATA, 101, 1, seqno, [bytes(1300)], rank=1, stable=0) for seqno in (1, 2))
    for _ in range(1000):
        net.engines[0].receive(second, B, net.now)
    assert counters(net)["packets_duplicate"] == 999 and counters(net)["slabs_in_use"] < 4
    net.engines[0].receive(first, B, net.now)
    net.take(0)
    assert net.got[0] == [(101, bytes(1300))] * 2 and counters(net)["drop_share"] == 0


def test_an_acknowledgement_of_another_view_is_none():
    """STA-07: votes of the view before, or of another set of members, do not count: its packets may be others."""
    net = Net(2)
    net.drop = lambda src, dst, lane, datagram: dst == 1
    assert net.engines[0].send(b"first") == SENT
    net.step()
    net.engines[0].receive(F.ack(101, 2, 0, 1, 1, 1), B, net.now)
    net.step()
    assert net.engines[0].stream(0)[2] == 0 and counters(net)["drop_view"] == 1
    net.drop = lambda src, dst, lane, datagram: False
    net.run(50)
    assert net.got[1] == [(100, b"first")] and net.engines[0].stream(0)[2] == 1


def test_only_the_sequencer_acknowledges_forwards():
    """Otherwise a member's ack ends the probes that show the sequencer its gaps."""
    net = Net(3, sequencer=0)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == forge.FORWARD
    assert net.engines[1].send(b"forwarded") == SENT
    net.step()
    net.engines[1].receive(F.ack(102, 1, 2, 1, 1, 0), C, net.now)
    net.drop = lambda src, dst, lane, datagram: False
    net.run(200)
    assert net.got[2] == [(101, b"forwarded")] and counters(net, 1)["drop_field"] == 1


def test_packets_in_slots_that_are_never_stable_leave_slabs_for_others():
    """One in each slab that datagrams are received into: they hold half of all slabs, and then only the part that they
    fill."""
    net = Net(3, slabs_max=64, window=512 << 10, ring_packets=8192)
    for number in range(300):
        packet = F.packet(forge.DATA, 101, 1, 1 + number, [bytes(800)], rank=1)
        net.engines[0].receive(packet, B, net.now, in_slot=True)
        for other in range(70):
            seqno = 70 * number + other + 1
            packet = F.packet(forge.DATA, 102, 1, seqno, [bytes(800)], rank=2, stable=seqno - 1)
            net.engines[0].receive(packet, C, net.now, in_slot=True)
            net.take(0)
    assert counters(net)["drop_slabs"] == 0 and 30 < counters(net)["slabs_in_use"] < 48
    assert net.got[0].count((101, bytes(800))) == 300 and net.got[0].count((102, bytes(800))) == 21_000


def test_unicasts_beyond_a_gap_leave_slabs_for_everybody_else():
    net = Net(3, slabs_max=64, unicast_bytes=1 << 20, window=256 << 10, packet=65_000)
    for number in range(2000):
        packet = F.packet(forge.UNICAST, 101, 1, 2 + number, [bytes(60_000 if number % 2 else 10)])
        net.engines[0].receive(packet, B, net.now)
    assert counters(net)["drop_share"] > 1000 and counters(net)["slabs_in_use"] < 20
    for number in range(200):
        assert net.engines[2].send(b"%d" % number) == SENT
        net.step()
    net.run(20)
    assert net.got[0] == [(102, b"%d" % number) for number in range(200)]
    assert counters(net)["drop_slabs"] == 0


def test_small_packets_that_are_never_stable_hold_no_slabs_of_others():
    """One packet in each slab that all share would hold all slabs."""
    net = Net(3, slabs_max=64, window=64 << 10, ring_packets=8192)
    for number in range(3000):
        net.engines[0].receive(F.packet(forge.DATA, 101, 1, 1 + number, [b"x"], rank=1), B, net.now)
        for other in range(8):
            packet = F.packet(forge.DATA, 102, 1, 8 * number + other + 1, [bytes(1300)], rank=2, stable=8 * number)
            net.engines[0].receive(packet, C, net.now)
        net.take(0)
    assert counters(net)["drop_slabs"] == 0 and counters(net)["slabs_in_use"] < 16
    assert sum(sender == 102 for sender, _ in net.got[0]) == 24_000


@pytest.mark.parametrize("what", ["group", "unicast", "forward"])
def test_few_small_packets_hold_few_slabs_when_each_comes_alone(what):
    """The stream is idle after each one, and the delivery queue, or the sequencer's own stream, holds on to the
    rest."""
    net = Net(3, slabs_max=64, sequencer=0 if what == "forward" else -1)
    net.step()
    before = counters(net)["slabs_in_use"]
    for number in range(300):  # more than there are slabs
        stable = {"stable": number} if what == "group" else {}
        kind, rank = {"group": (forge.DATA, 1), "unicast": (forge.UNICAST, 0), "forward": (forge.FORWARD, 1)}[what]
        packet = F.packet(kind, 101, 1, 1 + number, [b"x"], rank=rank, **stable)
        net.engines[0].receive(packet, B, net.now)
        if what == "forward":
            net.engines[0].transmit(net.now)
    assert counters(net)["drop_slabs"] == 0 and counters(net)["slabs_in_use"] <= before + 4
    net.run(100)
    net.take(0)
    assert len(net.got[0]) == 300
    net.run(200)  # a few heartbeats, after which nobody holds anything
    assert counters(net)["slabs_in_use"] <= before + 1


def test_packets_that_a_sequencer_multicasts_for_others_hold_no_slab_once_stable():
    net = Net(3, sequencer=0)
    net.step()
    before = counters(net)["slabs_in_use"]
    for number in range(300):
        packet = F.packet(forge.FORWARD, 101, 1, 1 + number, [bytes(1000)], rank=1)
        net.engines[0].receive(packet, B, net.now)
    net.take(0)
    assert counters(net)["slabs_in_use"] > before + 4
    net.run(300)
    assert counters(net)["slabs_in_use"] <= before + 1
    assert len(net.got[0]) == len(net.got[2]) == 300


def test_a_sender_that_ignores_its_credit_fills_its_own_share_only():
    net = Net(3, slabs_max=64, window=256 << 10, packet=65_000)
    for number in range(500):
        packet = F.packet(forge.DATA, 101, 1, 1 + number, [bytes(60_000)], rank=1, stable=number)
        net.engines[0].receive(packet, B, net.now)  # and its application takes nothing
    assert counters(net)["drop_share"] > 400 and counters(net)["slabs_in_use"] < 20


def test_a_nak_costs_no_more_than_a_ring_and_draws_nothing_that_was_acknowledged():
    net = Net(2, ring_packets=8192)
    for number in range(2000):
        assert net.engines[0].send(bytes(300)) == SENT
        if number % 20 == 0:
            net.step()
    net.run(50)
    before = counters(net)["packets_retransmitted"]
    nak = F.nak(101, 1, 100, 0, [(1, SEQNO_MAX)] * 64)
    for _ in range(100):
        net.engines[0].receive(nak, B, net.now)
        net.engines[0].transmit(net.now)
    assert counters(net)["packets_retransmitted"] == before, "all of it was acknowledged"


def test_retransmissions_to_a_member_are_bounded_by_the_volume_sent_to_it():
    """Of one that acknowledges nothing, and asks for everything each millisecond for a second."""
    net = Net(3, ring_bytes=1 << 20, window=1 << 20)
    sent = 0
    while net.engines[0].send(bytes(1300)) == SENT:
        sent += 1
    net.engines[0].transmit(net.now)
    nak = F.nak(101, 1, 100, 0, [(1, SEQNO_MAX)])
    again = 0
    for _ in range(1000):
        net.now += MS
        net.engines[0].receive(nak, B, net.now)
        again += sum(len(datagram) for _, to, datagram in net.engines[0].transmit(net.now) if to == B)
    assert 0 < again < (4 << 20) + 500_000_000 / 64 + 1e5
    assert counters(net)["retransmit_limited"] > 0
    net.engines[0].receive(F.nak(102, 1, 100, 0, [(1, 3)]), C, net.now)
    assert sum(to == C for _, to, _ in net.engines[0].transmit(net.now)) == 3, "another has its own share"


def test_a_flood_of_frames_costs_its_source_its_share_and_nobody_else():
    net = Net(3)
    engine = net.engines[0]
    flood = F.control(999, b"x" * 1000)
    taken = 0
    for _ in range(1000):  # for a second, 50 frames a millisecond
        net.now += MS
        for _ in range(50):
            engine.receive(flood, STRANGER, net.now)
        engine.receive(F.control(101, b"{}", 1), B, net.now)
        heard = [each.sender for each in reports_of(engine, FrameReceived)]
        assert 101 in heard
        taken += heard.count(999)
    assert 100 < taken < 800
    assert engine.receive(F.control(998, b"{}"), b"\x64", net.now) == 1, "another stranger"
    assert counters(net)["drop_rate"] > 49_000


def test_strangers_fill_at_most_half_of_the_queue_of_frames():
    net = Net(2, control_bytes_max=100_000)
    engine = net.engines[0]
    for number in range(200):
        engine.receive(F.control(999, bytes(1000)), bytes([200, number]), net.now)
    for _ in range(20):
        assert engine.receive(F.control(101, bytes(1000), 1), B, net.now) == 1
    heard = [each.sender for each in reports_of(engine, FrameReceived)]
    assert heard.count(101) == 20 and 0 < heard.count(999) < 60


def test_pings_of_strangers_are_answered_in_bounded_rate():
    net = Net(2)
    engine = net.engines[0]
    for _ in range(5000):
        engine.receive(F.ping(forge.PING, 999, 0, 100, 999), STRANGER, net.now)
    assert 0 < sum(to == STRANGER for _, to, _ in engine.transmit(net.now)) < 1500


def test_a_member_without_slabs_says_so_and_if_it_lasts_the_others_are_told():
    times = {"heartbeat_ns": 50 * MS, "suspect_ns": 400 * MS, "suspect_ns_max": 800 * MS}
    net = Net(3, **times)
    net.engines[0] = make_engine(100, slabs_max=8, **times)
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    told = [set() for _ in range(3)]
    for number in range(1500):
        net.engines[1].send(bytes(1300))
        net.step(take=False)
        net.take(1)
        net.take(2)  # the application of 100 takes nothing: 100 receives from both, and its pool is full
        for rank, engine in enumerate(net.engines):
            told[rank] |= {each for each in engine.reports() if isinstance(each, SlabsExhausted | MemberStarved)}
        if number == 500:
            assert MemberStarved(100) not in told[2], "not before it lasts"
    assert told[0] == {SlabsExhausted()} and told[2] == {MemberStarved(100)}
    assert counters(net)["drop_slabs"] > 0


def test_heartbeats_of_another_view_are_counted_by_their_addresses():
    net = Net(2)
    engine = net.engines[0]
    for number in range(5):
        beat = F.heartbeat(900 + number, 77, 0, 0, [(0, 0)] * 5)
        engine.receive(beat, bytes([90 + number % 3]), net.now)
    assert engine.strangers(77) == 3 and engine.strangers(78) == 0
    net.run(1000)
    assert engine.strangers(77) == 0


@pytest.mark.parametrize("order", ["fifo", "sequencer", "records", "total-1999", "grant", "causal"])
def test_a_cut_below_earlier_deliveries_delivers_nothing_twice(order):
    """A VIEW of a faulty coordinator."""
    sequencer = -1 if order in ("fifo", "causal") else 0
    net = Net(3, sequencer=sequencer, mechanism=by_name(order).number)
    for number in range(20):
        for rank in range(3):
            assert net.engines[rank].send(b"%d of %d" % (number, rank)) == SENT
        net.run(5)
    net.run(60)
    before = net.got[1][:]
    assert len(before) == 60
    cuts: dict[int, list[int] | None] = {rank: [1, 1, 1] for rank in range(3)}
    net.install([0, 1, 2], sequencer=sequencer, tag=2, marker=2, cuts=cuts, fell=[False] * 3)
    net.run(5)
    assert net.got[1] == before


@pytest.mark.parametrize(
    ("later", "more", "by", "dropped"), [(0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 2, 1), (1, 0, 0, 1), (1 << 32, 0, 0, 1)]
)
def test_a_member_takes_as_many_places_as_it_asked_for_and_of_the_sequencer_only(later, more, by, dropped):
    net, asked = Net(3, sequencer=0, mechanism=by_name("grant").number), []

    def drop(src, dst, lane, datagram):
        if datagram[2] == forge.WANT:
            number, _, count = struct.unpack_from("<QQI", datagram, 40)
            asked.append((number, count))
        return datagram[2] == forge.GRANT

    net.drop = drop
    for _ in range(3):
        net.engines[1].send(bytes(1000))
    net.run(3)
    number, count = asked[0]
    assert net.engines[1].unordered() == 3
    datagram = F.grant(forge.GRANT, net.ids[by], 1, number + later, count + more, 1)
    net.engines[1].receive(datagram, bytes([by + 1]), net.now)
    assert net.engines[1].counters()["drop_field"] == dropped
    assert (net.engines[1].unordered() < 3) == (dropped == 0)


@pytest.mark.parametrize(("number", "count"), [(0, 1), (1, 0)])
def test_a_request_without_a_number_or_for_nothing_gets_no_answer(number, count):
    net = Net(3, sequencer=0, mechanism=by_name("grant").number)
    net.engines[0].receive(F.grant(forge.WANT, net.ids[2], 1, number, count), b"\3", net.now)
    assert net.engines[0].counters()["drop_field"] == 1
    assert not any(datagram[2] == forge.GRANT for _, _, datagram in net.engines[0].transmit(net.now))


@pytest.mark.parametrize(("reserved", "dropped"), [(0, 0), (1, 1)])
def test_a_request_whose_reserved_field_is_not_zero_gets_no_answer(reserved, dropped):
    net = Net(3, sequencer=0, mechanism=by_name("grant").number)
    body = struct.pack("<QQII", 1, 0, 1, reserved)
    net.engines[0].receive(F.datagram(forge.WANT, net.ids[2], 1, body), b"\3", net.now)
    assert net.engines[0].counters()["drop_field"] == dropped
    assert any(datagram[2] == forge.GRANT for _, _, datagram in net.engines[0].transmit(net.now)) == (not dropped)


def test_a_member_takes_no_places_that_are_past():
    """They would be delivered nowhere, and its stream would stand still."""
    net, asked = Net(3, sequencer=0, mechanism=by_name("grant").number), []
    for rank in range(3):
        net.engines[rank].send(b"one each")
        net.run(20)

    def drop(src, dst, lane, datagram):
        if datagram[2] == forge.WANT:
            number, _, count = struct.unpack_from("<QQI", datagram, 40)
            asked.append((number, count))
        return datagram[2] == forge.GRANT

    net.drop = drop
    net.engines[1].send(b"another")
    net.run(3)
    number, count = asked[0]
    before = net.engines[1].counters()["drop_field"]
    net.engines[1].receive(F.grant(forge.GRANT, net.ids[0], 1, number, count, 1), b"\1", net.now)
    assert net.engines[1].counters()["drop_field"] == before + 1
    net.drop = lambda src, dst, lane, datagram: False
    net.run(500)
    assert all(got[-1] == (net.ids[1], b"another") for got in net.got)


def test_a_member_that_keeps_its_places_without_using_them_is_reported_by_name():
    """The member asks twenty times. Another's message waits behind its places until its exclusion."""
    net = Net(3, sequencer=0, mechanism=by_name("grant").number, suspect_ns_max=800 * MS)
    for number in range(1, 21):
        net.engines[0].receive(F.grant(forge.WANT, net.ids[2], 1, number, 4096), b"\3", net.now)
    assert net.engines[0].counters()["drop_field"] == 0
    net.engines[1].send(b"waits")
    net.run(700)
    assert not reports_of(net.engines[0], MemberStarved)
    net.run(200)
    assert reports_of(net.engines[0], MemberStarved) == [MemberStarved(net.ids[2])]
    assert not net.got[0]


def test_a_request_is_not_answered_while_too_many_answers_are_open():
    net = Net(3, sequencer=0, mechanism=by_name("grant").number)
    for number in range(1, 600):
        net.engines[0].receive(F.grant(forge.WANT, net.ids[2], 1, number, 1), b"\3", net.now)
    assert net.engines[0].counters()["stamped"] == 512


@pytest.mark.parametrize(("ring_packets", "least"), [(16, 10), (2048, 400)], ids=["of packets", "of bytes"])
def test_a_member_gives_back_its_places_though_its_window_is_full(ring_packets, least):
    """Its receivers take nothing. They would wait for its places besides, and exclude that member."""
    net = Net(3, sequencer=0, mechanism=by_name("grant").number, suspect_ns_max=800 * MS, ring_packets=ring_packets)
    net.take = lambda i: None
    sent = 0
    for _ in range(40):
        while net.engines[1].send(bytes(1000)) == SENT:
            sent += 1
            net.step(200_000)
        net.step()
    assert sent >= least
    net.engines[2].send(b"another")
    net.run(2000)
    assert not reports_of(net.engines[0], MemberStarved)
