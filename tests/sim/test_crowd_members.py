"""Crowds of production members with their real datagrams, on a simulated network."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from crowd_net import GOSSIP, TAG, CrowdNet, MemoryStore
from halves import first_quick

from seqcast.core.gossip import GossipMessage, Request, Shuffle, Span
from seqcast.core.gossip.size import MEMBERS_MAX, NUMBERS
from seqcast.crowd.datagrams import DataPacket, dump
from seqcast.crowd.streams import StreamSettings


def talk(net: CrowdNet, senders: list[int], n: int, gap_s: float = 0.01, first: int = 0) -> list[bytes]:
    """``n`` messages, each of the next sender."""
    sent = [b"%d" % i for i in range(first, first + n)]
    for i, payload in enumerate(sent):
        net.send(senders[i % len(senders)], payload)
        net.run(gap_s)
    return sent


def crowd(n: int, loss: float, seed: int = 1) -> CrowdNet:
    """``n`` members that know each other after two seconds."""
    net = CrowdNet(seed, loss)
    for number in range(1, n + 1):
        net.join(number)
    net.run(2.0)
    return net


@pytest.mark.parametrize("loss", first_quick([0.0, 0.05, 0.2]))
def test_members_find_each_other_and_deliver_everything_in_order(loss: float) -> None:
    net = crowd(12, loss)
    sent = talk(net, [1, 2, 3], 300)
    net.run(10.0)
    net.judge()
    for number in net.members:
        assert sorted(net.payloads(number)) == sorted(sent) and net.missed(number) == 0
    if loss:
        assert sum(each.counters()["packets_again"] for each in net.members.values()) > 300 * 12 * loss / 2


def test_without_requests_lost_packets_are_told_as_missed_or_never_known() -> None:
    """Shows that the previous test can fail."""
    with mock.patch("seqcast.crowd.member.CrowdMember._answer", lambda *_: None):
        net = crowd(6, 0.2)
        sent = talk(net, [1], 200)
        net.run(15.0)
    net.judge()
    missed = sum(net.missed(number) for number in net.members)
    assert missed > 100 and any(len(net.payloads(number)) < len(sent) for number in net.members)


def test_messages_that_nobody_keeps_any_more_are_reported() -> None:
    """The lag is 50 messages, and a member is cut off for 200."""
    net = crowd(6, 0.0)
    talk(net, [1], 20)
    net.run(2.0)
    net.cut = lambda sender, to: 6 in (sender, to)
    talk(net, [1], 200, first=20)
    net.cut = lambda sender, to: False
    talk(net, [1], 20, first=220)
    net.run(20.0)
    net.judge()
    assert net.missed(6) > 100
    assert net.missed(6) + len(net.payloads(6)) == 240


def test_a_member_that_was_cut_off_for_long_keeps_up_again() -> None:
    """The member gives up at once packets for which there is no room, and not more slowly than the sender
    sends."""
    with mock.patch("seqcast.crowd.streams.AHEAD_MAX", 300):
        net = crowd(4, 0.0)
        talk(net, [1], 20)
        net.cut = lambda sender, to: 4 in (sender, to)
        talk(net, [1], 3000, 0.002, first=20)
        net.cut = lambda sender, to: False
        talk(net, [1], 1000, 0.002, first=3020)
    assert net.payloads(4)[-1] == b"4019" and net.missed(4) + len(net.payloads(4)) == 4020
    assert len(net.payloads(4)) >= 1000 and net.members[4].counters()["packets_lost"] == net.missed(4)
    net.judge()


def test_large_messages_do_not_keep_a_member_behind_either() -> None:
    net = CrowdNet()
    for number in (1, 2, 3):
        net.join(number, bounds=StreamSettings(held_bytes=100_000))
    net.run(2.0)
    talk(net, [1], 20)
    net.cut = lambda sender, to: 3 in (sender, to)
    talk(net, [1], 1000, 0.002, first=20)
    net.cut = lambda sender, to: False
    for _ in range(400):
        net.send(1, bytes(1000))
        net.run(0.01)
    net.judge()
    assert net.payloads(3)[-1] == bytes(1000) and net.missed(3) + len(net.payloads(3)) == 1420


def test_a_sender_that_leaps_ahead_costs_the_others_no_time() -> None:
    net = crowd(3, 0.0)
    talk(net, [1], 10)
    liar = net.members[1].id
    for seqno in range((1 << 62) - 2, (1 << 62) + 1):
        assert net.missed(2) == 0, "one packet proves nothing, nor do two"
        net.inject(2, dump(TAG, liar, DataPacket(liar, seqno, seqno, b"far")), 1)
    net.judge()
    assert net.payloads(2)[-1] == b"far" and net.missed(2) == (1 << 62) - 11
    net.inject(2, dump(TAG, liar, Request({liar: ((1, 1 << 62),)})), 1)
    net.run(1.0)
    assert net.members[2].counters()["packets_again"] == 11, "what is in memory, and nothing is looked for in between"
    net.inject(
        2, dump(TAG, liar, GossipMessage(liar, 1 << 20, 0, {liar: Span(1, 1 << 62, 1 << 62, 0)}, (liar,), ())), 1
    )
    net.run(1.0)
    net.inject(2, dump(TAG, liar, Request({liar: ((1, 1 << 62),)})), 1)
    net.run(1.0)
    assert net.members[2].counters()["packets_again"] == 12, "all but the last were collected"


def test_parts_that_a_partition_separated_find_each_other_again() -> None:
    net = crowd(8, 0.0)
    side = {1, 2, 3, 4}
    net.cut = lambda sender, to: (sender in side) != (to in side)
    talk(net, [1, 5], 20, 0.1)
    net.cut = lambda sender, to: False
    net.run(20.0)
    sent = talk(net, [1, 5], 20, first=20)
    net.run(10.0)
    net.judge()
    for number in net.members:
        assert set(sent) <= set(net.payloads(number)) and len(net.payloads(number)) + net.missed(number) == 40


# ---- late-join handlers


def test_a_joiner_gets_all_that_a_late_join_handler_keeps() -> None:
    """PB-04, PB-05: also from a sender that is gone, and without a gap to messages sent meanwhile."""
    net = CrowdNet(3, 0.1)
    net.join(9, store=MemoryStore())
    for number in range(1, 6):
        net.join(number)
    net.run(2.0)
    sent = talk(net, [1, 2], 400)
    net.run(5.0)
    net.crash(2)
    net.run(1.0)
    net.join(7, history=True)
    sent += talk(net, [1], 100, first=400)
    net.run(15.0)
    net.judge()
    assert sorted(net.payloads(7)) == sorted(sent) and net.missed(7) == 0
    assert net.history(7) == [1]


def test_a_large_lag_alone_makes_a_late_join_handler() -> None:
    """PB-04: a joiner gets the messages in its memory, also of senders that were silent for long."""
    net = CrowdNet(3, 0.1)
    net.join(9, replace(GOSSIP, lag=1 << 30), bounds=StreamSettings(serves=True, active_ns=5_000_000_000))
    for number in (1, 2, 3):
        net.join(number)
    net.run(2.0)
    sent = talk(net, [1, 2], 400)
    net.run(10.0)
    sent += talk(net, [1], 1, first=400)
    net.run(2.0)
    net.join(7, history=True)
    net.run(15.0)
    net.judge()
    assert sorted(net.payloads(7)) == sorted(sent) and net.missed(7) == 0
    assert net.history(7) == [1]


@pytest.mark.long
@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_messages_sent_while_a_joiner_catches_up_come_too(loss: float) -> None:
    """The joiner has no room for a message on arrival, and only the handler still keeps that message when the joiner
    gets there."""
    with mock.patch("seqcast.crowd.streams.AHEAD_MAX", 300):
        net, gossip = CrowdNet(3, loss), replace(GOSSIP, lag=400)
        net.join(9, gossip, store=MemoryStore())
        for number in (1, 2):
            net.join(number, gossip)
        net.run(2.0)
        sent = talk(net, [1], 6000, 0.004)
        net.join(7, gossip, history=True)
        sent += talk(net, [1], 1500, 0.004, first=6000)
        net.run(5.0)
    net.judge()
    assert net.payloads(7) == sent and net.missed(7) == 0 and net.history(7) == [1]


def test_a_joiner_whose_application_is_slow_gets_the_history_all_the_same() -> None:
    net = CrowdNet(3)
    net.join(9, store=MemoryStore())
    net.join(1)
    net.run(2.0)
    sent = talk(net, [1], 1500, 0.002)
    net.join(7, history=True)
    net.run(0.45)
    net.members[7].streams.full = True
    net.run(20.0)
    assert len(net.payloads(7)) < 1500 and net.history(7) == []
    net.members[7].streams.full = False
    net.run(5.0)
    net.judge()
    assert net.payloads(7) == sent and net.missed(7) == 0 and net.history(7) == [1]


def test_without_a_handler_a_joiner_gets_the_messages_that_members_still_keep() -> None:
    net = crowd(5, 0.0)
    talk(net, [1], 400)
    net.run(1.0)
    net.join(7, history=True)
    net.run(4.0)
    talk(net, [1], 10, first=400)
    net.run(5.0)
    net.judge()
    assert net.history(7) == [0]
    assert 10 <= len(net.payloads(7)) < 100 and net.payloads(7)[-1] == b"409"


def test_a_joiner_that_wants_no_history_gets_none() -> None:
    net = CrowdNet()
    net.join(9, store=MemoryStore())
    net.join(1)
    net.run(2.0)
    talk(net, [1], 40)
    net.join(7)
    net.run(2.0)
    sent = talk(net, [1], 10, first=40)
    net.run(3.0)
    net.judge()
    assert net.payloads(7) == sent and net.history(7) == []


def test_when_one_of_two_handlers_dies_the_other_serves_on() -> None:
    net = CrowdNet(5)
    for number in (8, 9):
        net.join(number, store=MemoryStore())
    net.join(1)
    net.run(2.0)
    sent = talk(net, [1], 1500, 0.002)
    net.run(2.0)
    net.join(7, history=True)
    net.run(0.45)
    net.crash(8)
    net.run(20.0)
    net.judge()
    assert net.payloads(7) == sent and net.missed(7) == 0 and net.history(7) == [2]


def test_when_the_only_handler_dies_the_rest_is_told_as_missed() -> None:
    net = CrowdNet(5)
    net.join(9, store=MemoryStore())
    net.join(1)
    net.run(2.0)
    talk(net, [1], 1500, 0.002)
    net.run(2.0)
    net.crash(1)
    net.join(7, history=True)
    net.run(0.45)
    net.crash(9)
    net.run(400.0)
    net.judge()
    assert 0 < len(net.payloads(7)) < 1500 and len(net.payloads(7)) + net.missed(7) == 1500
    assert net.history(7) == [1]


def test_a_handler_that_begins_again_continues_where_its_store_ends() -> None:
    net = CrowdNet(4, 0.05)
    store = MemoryStore()
    net.join(9, store=store)
    for number in (1, 2, 3):
        net.join(number)
    net.run(2.0)
    sent = talk(net, [1], 30)
    net.run(2.0)
    net.crash(9)
    sent += talk(net, [1], 30, first=30)
    net.join(9, store=store)
    net.run(2.0)
    sent += talk(net, [1], 30, first=60)
    net.run(10.0)
    net.judge()
    assert net.payloads(9) == sent
    assert [store.rows[key] for key in sorted(store.rows)] == sent


# ---- bounds, and faulty members


def test_an_application_that_is_behind_loses_nothing_in_silence() -> None:
    net = crowd(4, 0.0)
    net.members[4].streams.full = True
    talk(net, [1], 40)
    net.run(1.0)
    assert net.payloads(4) == [] and net.members[4].counters()["packets_dropped"] >= 40
    net.members[4].streams.full = False
    talk(net, [1], 10, first=40)
    net.run(10.0)
    net.judge()
    assert len(net.payloads(4)) + net.missed(4) == 50


def test_memory_is_bounded() -> None:
    net = CrowdNet()
    bounds = StreamSettings(keep_bytes=2000)
    for number in (1, 2):
        net.join(number, replace(GOSSIP, lag=10_000), bounds=bounds)
    net.run(1.0)
    for _ in range(100):
        net.send(1, bytes(100))
        net.run(0.01)
    for member in net.members.values():
        held = list(member.streams.find(net.members[1].id, 1, 100))
        assert len(held) == 10 and held[-1][0] == 100


def test_one_wrong_digest_takes_no_packets_away() -> None:
    """A member that claims more packets of another one than were sent is asked for these; but packets that nobody
    else confirms are not reported as missed, so the sender's next messages are delivered."""
    net = crowd(5, 0.0)
    sent = talk(net, [1], 10)
    net.run(1.0)
    victim, liar = net.members[1].id, net.members[5].id
    for counter in range(500, 520):
        gossip = GossipMessage(liar, counter, 0, {victim: Span(1, 100, 100, 100)}, (liar,), ())
        net.inject(2, dump(TAG, liar, gossip), 5)
        net.run(0.5)
    sent += talk(net, [1], 30, first=10)
    net.run(10.0)
    net.judge()
    assert net.payloads(2) == sent and net.missed(2) == 0


def test_a_member_whose_gossips_another_one_forges_is_heard_again() -> None:
    net = crowd(4, 0.0)
    victim, liar = net.members[1].id, net.members[4].id
    forged = GossipMessage(victim, 10**9, 0, {}, (liar,), tuple(each.id for each in net.members.values()))
    for number in (1, 2, 3):
        net.inject(number, dump(TAG, liar, forged), 4)
    assert net.members[1].counters()["gossips_forged"] == 1
    net.run(1.0)
    assert net.members[2].gossiper._known.add(victim, 10**9 + 1) is False, "the next one of member 1 was taken as new"


def test_a_datagram_from_another_address_than_its_id_is_dropped() -> None:
    net = crowd(3, 0.0)
    before = net.members[2].counters()["datagrams_other"]
    data = dump(TAG, net.members[1].id, DataPacket(net.members[1].id, 1, 1, b"not mine"))
    net.inject(2, data, 3)
    net.run(1.0)
    assert net.members[2].counters()["datagrams_other"] == before + 1 and net.payloads(2) == []


def heard_again(net: CrowdNet, sent: list[bytes]) -> None:
    """Member 2 delivers member 1's messages from now on, and earlier ones are repaired."""
    sent += talk(net, [1], 200, first=len(sent))
    net.run(10.0)
    assert [each for each in net.payloads(2) if each != b"forged"] == sent
    assert [each for each in net.payloads(3) if each != b"forged"] == sent
    assert net.members[2].counters()["streams_restored"] <= 1


def test_one_forged_packet_from_another_port_of_the_same_host_is_dropped() -> None:
    net = crowd(3, 0.0)
    sent = talk(net, [1], 10)
    victim = net.members[1].id
    other = net.members[2].counters()["datagrams_other"]
    for _ in range(10):
        net.inject(2, dump(TAG, victim, DataPacket(victim, 1 << 62, 1 << 62, b"forged")), 1, port=6000)
    assert net.members[2].counters()["datagrams_other"] == other + 10
    heard_again(net, sent)
    net.judge()
    assert net.missed(2) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_a_sender_whose_packets_another_one_forges_is_heard_again(n: int) -> None:
    """Even with the address and the port of the sender: one of its own packets refutes those that claim to be
    elsewhere, and three of them the earlier belief."""
    net = crowd(3, 0.0)
    sent = talk(net, [1], 10)
    victim = net.members[1].id
    for seqno in range(1 << 62, (1 << 62) + n):
        net.inject(2, dump(TAG, victim, DataPacket(victim, seqno, seqno, b"forged")), 1)
    counters = net.members[2].counters()
    assert counters["packets_doubted"] == min(n, 2) and (net.missed(2) > 0) == (n >= 3)
    heard_again(net, sent)
    assert net.members[2].counters()["streams_restored"] == (n >= 3)


def test_a_forged_packet_or_digest_before_a_sender_s_first_one_silences_it_for_nobody() -> None:
    for forge in (
        lambda victim, _: (dump(TAG, victim, DataPacket(victim, 1 << 62, 1 << 62, b"forged")), 1),
        lambda victim, liar: (
            dump(TAG, liar, GossipMessage(liar, 9000, 0, {victim: Span(1 << 62, 1 << 62, 1 << 62, 0)}, (liar,), ())),
            4,
        ),
    ):
        net = crowd(4, 0.0)
        data, source = forge(net.members[1].id, net.members[4].id)
        net.inject(2, data, source)
        net.run(1.0)
        heard_again(net, [])


@pytest.mark.parametrize("seed", range(8))
def test_a_joiner_that_hears_a_sender_s_packets_out_of_order_delivers_none_of_them_late(seed: int) -> None:
    """Messages sent before the first one heard are late, even if many come in a row."""
    net = CrowdNet(seed)
    net.join(1)
    net.run(1.0)
    net.join(2)
    sent = [b"%d" % i for i in range(30)]
    for payload in sent:
        net.send(1, payload)  # all at once: they come in any order
    net.run(3.0)
    net.judge()
    assert sent[-1] in net.payloads(2) and net.members[2].counters()["streams_restored"] == 0


def test_messages_that_were_told_as_missed_before_they_were_sent_are_delivered_all_the_same() -> None:
    """Two members that lie together can have the next packets of a third one given up; that third one is heard
    again."""
    net = crowd(5, 0.0)
    sent = talk(net, [1], 10)
    victim = net.members[1].id
    for at in range(12):
        for liar in (4, 5):
            me = net.members[liar].id
            gossip = GossipMessage(me, 9000 + at, 0, {victim: Span(1, 300, 300, 0)}, (me,), ())
            net.inject(2, dump(TAG, me, gossip), liar)
        net.run(0.5)
    assert net.missed(2) == 290
    heard_again(net, sent)


def test_packets_that_nobody_asked_for_are_not_taken_from_others() -> None:
    net = crowd(3, 0.0)
    sent = talk(net, [1], 10)
    victim, liar = net.members[1].id, net.members[3].id
    for seqno in range(11, 20):
        net.inject(2, dump(TAG, liar, DataPacket(victim, seqno, 0, b"forged")), 3)
    assert net.members[2].counters()["packets_unasked"] == 9
    sent += talk(net, [1], 20, first=10)
    net.run(5.0)
    net.judge()
    assert net.payloads(2) == sent


def test_a_made_up_digest_does_not_empty_the_memory_of_others() -> None:
    net = crowd(4, 0.0)
    sent = talk(net, [1], 40)
    net.run(1.0)
    net.cut = lambda sender, to: 3 in (sender, to)
    sent += talk(net, [1], 20, first=40)
    victim, liar = net.members[1].id, net.members[4].id
    for number in (1, 2, 4):
        gossip = GossipMessage(liar, 9000, 0, {victim: Span(1, 1 << 62, 1 << 62, 0)}, (liar,), ())
        net.inject(number, dump(TAG, liar, gossip), 4)
    net.cut = lambda sender, to: False
    net.run(10.0)
    net.judge()
    assert net.payloads(3) == sent and net.missed(3) == 0


@pytest.mark.parametrize("counter", [(1 << 62), (1 << 63) - 1])
def test_a_member_whose_gossips_were_forged_with_the_highest_numbers_is_heard_again(counter: int) -> None:
    net = crowd(4, 0.0)
    victim, liar = net.members[1].id, net.members[4].id
    forged = GossipMessage(victim, counter, 0, {}, (liar,), tuple(each.id for each in net.members.values()))
    for number in (1, 2, 3):
        net.inject(number, dump(TAG, liar, forged), 4)
    before = net.members[2].counters()
    net.run(2.0)
    after = counter % ((1 << 63) - 1) + 1
    assert net.members[2].gossiper._known.add(victim, after) is False, "the next one of member 1 was taken as new"
    assert net.members[2].counters()["datagrams_bad"] == before["datagrams_bad"]


@pytest.mark.parametrize("epoch", first_quick([5, (1 << 63) - 1, (1 << 64) - 1]))
@pytest.mark.parametrize("least", [5e-324, 999.0])
def test_made_up_numbers_of_an_estimate_stop_nobody(epoch: int, least: float) -> None:
    net = crowd(3, 0.0)
    liar = net.members[1].id
    net.inject(2, dump(TAG, liar, Shuffle(((liar, 0),), False, epoch, (least,) * NUMBERS)), 1)
    net.run(2 * GOSSIP.epoch_ns / 1e9)
    assert all(member.counters()["members"] <= MEMBERS_MAX for member in net.members.values())
    net.run(2 * GOSSIP.epoch_ns / 1e9)
    assert all(member.counters()["members"] < 10 for member in net.members.values()), "they have drawn anew"
    sent = talk(net, [1, 2], 20)
    net.run(5.0)
    assert net.payloads(3) == sent


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        net = crowd(6, 0.1, seed=9)
        talk(net, [1, 2], 50)
        net.run(3.0)
        runs.append((net.told, {number: member.counters() for number, member in net.members.items()}))
    assert runs[0] == runs[1]
