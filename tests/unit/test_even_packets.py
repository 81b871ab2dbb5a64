"""Packets of messages that are equally long carry no offsets."""

import random

import pytest
from engines import Net, feed
from hostile import forge
from hostile.forge import CONT_IN, CONT_OUT, EVEN, Forger

from seqcast._native.engine import SENT, Batch, Engine, SendingArray

F = Forger(7)
B = bytes([2])  # the address of member 101
HEADER, TABLE = 80, 4
"""Bytes of a packet's header, and of the replacement of offsets."""


def packets_of(net: Net) -> list[bytes]:
    return [datagram for lane, _, datagram in net.engines[0].transmit(net.now) if datagram[2] == forge.DATA]


def send_array(engine: Engine, sent: list[bytes]) -> None:
    assert SendingArray(engine, sent).step() == SENT


def send_singly(engine: Engine, sent: list[bytes]) -> None:
    assert all(engine.send(message) == SENT for message in sent)


@pytest.mark.parametrize("send", [send_array, send_singly])
@pytest.mark.parametrize("size", [1, 64, 1000, 1388, 5000])
def test_messages_of_one_length_fill_packets_that_are_even(send, size):
    net, n = Net(2), 20_000 // size
    send(net.engines[0], [bytes([k % 251]) * size for k in range(n)])
    packets = packets_of(net)
    assert all(packet[3] & EVEN for packet in packets)
    room = 1472 - HEADER - TABLE - 3 - 32  # alignment, and a part that is too small to be split off
    assert len(packets) <= n * size // room + 1


def test_one_message_of_another_length_brings_offsets_and_a_part_of_one_does_not():
    net = Net(2)
    send_singly(net.engines[0], [bytes(64)] * 10 + [bytes(65)])
    assert [packet[3] & EVEN for packet in packets_of(net)] == [0]
    send_singly(net.engines[0], [bytes(64)] * 10 + [bytes(65_000)] + [bytes(64)] * 10)
    packets = packets_of(net)
    assert len(packets) > 40 and all(packet[3] & EVEN for packet in packets)
    send_singly(net.engines[0], [b"", bytes(64)])
    assert [packet[3] & EVEN for packet in packets_of(net)] == [0], "an empty one has no length that says how many"


@pytest.mark.parametrize("packet", [512, 1472, 65_000])
@pytest.mark.parametrize("seed", range(8))
def test_runs_of_equal_messages_between_others_arrive_as_they_were_sent(packet, seed):
    """A message that would fit but for the offsets that come with it is split."""
    rng = random.Random(seed)
    sizes = [
        size for _ in range(120) for size in [rng.choice((0, 1, 8, 64, 65, 300, packet - 90))] * rng.randrange(1, 30)
    ]
    sent = [rng.randbytes(size) for size in sizes]
    net = Net(2, packet=packet)
    if seed % 2:
        array = SendingArray(net.engines[0], sent)
        while array.step() != SENT:
            net.run(5)
        net.run(50)
    else:
        feed(net, {0: sent})
    assert [payload for _, payload in net.got[1]] == sent
    assert not net.engines[1].counters()["drop_field"]


def test_a_packet_is_full_though_its_last_message_made_offsets_necessary():
    """20 messages leave 99 bytes: a message of 90 would fit without offsets. Part of it goes."""
    net = Net(2)
    send_singly(net.engines[0], [bytes(64)] * 20 + [bytes(90)])
    first, second = packets_of(net)
    assert first[3] & EVEN and first[3] & CONT_OUT and second[3] & CONT_IN


@pytest.mark.parametrize(
    ("pattern", "ordered"), [([61] * 10 + [41], 7), ([62] * 7 + [45], 6), ([60] * 8 + [39], 6), ([38] * 10 + [46], 3)]
)
def test_messages_that_a_view_change_sends_again_take_no_more_packets_than_before(pattern, ordered):
    """The ring has no room for more. A packet that begins with another message than before may need offsets, or none:
    where messages were split early, it was ten packets more."""
    net = Net(2, sequencer=0, packet=512)
    net.drop = lambda src, dst, lane, datagram: datagram[2] == forge.FORWARD and datagram[32] > ordered
    sent = [bytes(size) for size in pattern * 200]
    send_singly(net.engines[1], sent)
    net.run(5)
    net.engines[1].gate_close()
    own = net.engines[1].own()
    assert own.any == ordered < own.last
    cut = [net.engines[1].held(0)[0], 0]
    net.install([1], sequencer=0, tag=2, marker=2, cuts={1: cut}, fell=[True, False])
    net.engines[1].gate_close()
    # (The first of these messages began in a packet that was ordered.)
    assert net.engines[1].own().last <= own.last - ordered + 1
    net.take(1)
    assert [payload for _, payload in net.got[1]] == sent


@pytest.mark.parametrize("even", [False, True])
def test_messages_of_packets_that_are_even_or_not_are_sent_again_in_the_next_view(even):
    """The sequencer fell before these were ordered."""
    net = Net(3, sequencer=0)
    net.drop = lambda src, dst, lane, datagram: src == 0 or dst == 0
    sent = [bytes([k]) * (64 if k < 20 or even else 65) for k in range(40)]
    send_singly(net.engines[1], sent)
    net.run(3)
    for engine in net.engines:
        engine.gate_close()
    net.install([1, 2], sequencer=0, tag=2, marker=2, cuts={1: [0, 0, 0], 2: [0, 0, 0]}, fell=[True, False, False])
    net.run(50)
    assert [payload for _, payload in net.got[2]] == sent == [payload for _, payload in net.got[1]]


WRONG = {
    "the first piece ends behind the data": ([b"x" * 60] * 3, (61, 60), 0),
    "the first whole message has another length": ([b"x" * 50, b"x" * 60, b"x" * 60], (50, 60), 0),
    "the last whole message has another length": ([b"x" * 60, b"x" * 60, b"x" * 50], (60, 60), 0),
    "more messages than there is data": ([b"x" * 60] * 3, (60, 61), CONT_OUT),
    "one message of another length": ([b"x" * 60], (60, 59), 0),
    "one piece that does not end with the data": ([b"x" * 60], (59, 60), CONT_IN),
    "messages without bytes": ([b""] * 60_000, (0, 0), 0),
    "one message without bytes": ([b""], (0, 0), 0),
    "messages without bytes between two parts": (
        [b"x" * 60] + [b""] * 60_000 + [b"x" * 60],
        (60, 0),
        CONT_IN | CONT_OUT,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_even_packet_that_cannot_be_is_dropped(what):
    pieces, even, flags = WRONG[what]
    net = Net(2)
    net.engines[0].receive(F.packet(forge.DATA, 101, 1, 1, pieces, rank=1, even=even, flags=flags), B, 0)
    net.take(0)
    assert net.engines[0].counters()["drop_field"] == 1 and not net.got[0]


def test_an_even_packet_without_room_for_its_stated_messages_is_dropped():
    net = Net(2)
    whole = F.packet(forge.DATA, 101, 1, 1, [b"x" * 60] * 3, rank=1, even=(60, 60))
    net.engines[0].receive(forge.sealed(whole[:-1]), B, 0)
    assert net.engines[0].counters()["drop_short"] == 1
    net.engines[0].receive(whole, B, 0)
    net.take(0)
    assert [payload for _, payload in net.got[0]] == [b"x" * 60] * 3


def test_parts_at_both_ends_of_an_even_packet_have_any_length():
    net = Net(2)
    for seqno, pieces, even, flags in (
        (1, [b"a" * 9, b"b" * 5], (9, 9), CONT_OUT),
        (2, [b"b" * 70, b"c" * 9, b"d" * 9, b"e" * 3], (70, 9), CONT_IN | CONT_OUT),
        (3, [b"e" * 100], (100, 0), CONT_IN | CONT_OUT),
        (4, [b"e", b"f"], (1, 0), CONT_IN | CONT_OUT),
        (5, [b"f" * 4], (4, 0), CONT_IN),
    ):
        packet = F.packet(forge.DATA, 101, 1, seqno, pieces, rank=1, even=even, flags=flags)
        net.engines[0].receive(packet, B, 0)
    net.take(0)
    expected = [b"a" * 9, b"b" * 75, b"c" * 9, b"d" * 9, b"e" * 104, b"f" * 5]
    assert [payload for _, payload in net.got[0]] == expected


def test_a_borrowed_even_packet_is_read_in_place_and_as_arrays():
    net = Net(2, packet=9000)
    send_array(net.engines[0], sent := [bytes([k]) * 64 for k in range(200)])
    net.step(take=False)
    batches = []
    while (item := net.engines[1].deliver()) is not None:
        batches += [item] if isinstance(item, Batch) else []
    assert [payload for batch in batches for payload in batch.tolist()] == sent
    assert b"".join(batch.data.tobytes() for batch in batches) == b"".join(sent)
    assert [batch[3] for batch in batches[:1]] == sent[3:4]
