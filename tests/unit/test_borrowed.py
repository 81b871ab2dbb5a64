"""Batches borrow the memory of received packets: their contents do not change, is bounded, and is given back."""

import itertools

import pytest
from engines import Net, messages

from seqcast._native.engine import AGAIN, SENT, Batch

ACKS = 300
"""Steps after which a packet that all have is stable, so that no receive ring keeps it."""


def counters(net, rank=1):
    return net.engines[rank].counters()


def batches_of(net, rank=1, bytes_max=1 << 20):
    while (item := net.engines[rank].deliver(bytes_max)) is not None:
        if isinstance(item, Batch):
            yield item


def sent(net, payloads, burst=1):
    """The batches that member 1 is delivered, one after the other, while member 0 sends this many messages at a
    time."""
    left = list(payloads)
    for _ in range(len(left) + 4 * ACKS):
        for _ in range(burst):
            if left and net.engines[0].send(left[0]) == SENT:
                left.pop(0)
        net.step(take=False)
        net.take(0)
        yield from batches_of(net)
    assert not left


def by_offsets(batch):
    data, offsets = batch.data, batch.offsets
    assert offsets[0] == 0 and offsets[-1] == len(data) and len(offsets) == len(batch) + 1
    return [data[begin:end].tobytes() for begin, end in itertools.pairwise(offsets)]


@pytest.mark.parametrize("packet", [1472, 9000, 65_000])
@pytest.mark.parametrize("seed", range(6))
def test_messages_are_the_same_before_and_after_they_are_copied(packet, seed):
    payloads, got = messages(seed, 400, 70_000 if seed % 2 else 5000), []
    for batch in sent(Net(2, packet=packet), payloads, burst=1 + 7 * seed):
        listed, nbytes = batch.tolist(), batch.nbytes
        assert nbytes == sum(map(len, listed))
        if len(got) % 3:
            assert batch[-1] == listed[-1]
        assert by_offsets(batch) == listed == batch.tolist() == [batch[i] for i in range(len(batch))]
        assert batch.nbytes == nbytes
        got += listed
    assert got == payloads


def test_a_batch_keeps_its_limit_of_bytes_though_it_copies_nothing():
    net = Net(2, packet=65_000, window=8 << 20)
    for _ in range(20):
        assert net.engines[0].send(bytes(30_000)) == SENT
    net.step(take=False)
    sizes = [batch.nbytes for batch in batches_of(net, bytes_max=200_000)]
    assert sum(sizes) == 600_000 and max(sizes) <= 200_000 and len(sizes) < 10


def test_kept_batches_keep_their_contents_and_not_more_than_their_share_of_the_memory():
    net, payloads = Net(2, packet=65_000), [bytes([i]) * 60_000 for i in range(200)]
    kept = list(sent(net, payloads))
    held = counters(net)["slabs_in_use"]
    assert 64 <= held < 80, "those that batches may keep, and those to receive into"
    assert counters(net)["batch_copies"] > 100
    assert [payload for batch in kept for payload in batch.tolist()] == payloads
    del kept
    assert [batch.tolist() for batch in sent(net, [b"x"])] == [[b"x"]]
    assert counters(net)["slabs_in_use"] < 10
    before = counters(net)["batch_copies"]
    assert [payload for batch in sent(net, payloads) for payload in batch.tolist()] == payloads
    assert counters(net)["batch_copies"] == before


def test_with_few_slabs_few_are_borrowed():
    net, payloads = Net(2, packet=65_000, slabs_max=32), [bytes([i]) * 60_000 for i in range(50)]
    kept = list(sent(net, payloads))
    assert counters(net)["slabs_in_use"] < 8 and counters(net)["batch_copies"] > 40
    assert [payload for batch in kept for payload in batch.tolist()] == payloads


def test_small_packets_are_copied_and_hold_no_slab():
    net = Net(2)
    kept = list(sent(net, [bytes([i]) * 900 for i in range(100)]))
    assert len(kept) > 10 and counters(net)["slabs_in_use"] < 3 and counters(net)["batch_copies"] == 0
    assert [payload for batch in kept for payload in batch.tolist()] == [bytes([i]) * 900 for i in range(100)]


def test_own_messages_are_borrowed_as_well():
    net, payloads = Net(2, packet=65_000), [bytes([i]) * 60_000 for i in range(10)]
    kept = []
    for payload in payloads:
        assert net.engines[0].send(payload) == SENT
        net.step(take=False)
        kept += batches_of(net, 0)
        net.take(1)
    net.run(ACKS)
    assert counters(net, 0)["slabs_in_use"] >= 9
    assert [payload for batch in kept for payload in batch.tolist()] == payloads


def test_the_unicasts_of_a_batch_are_a_copy():
    net = Net(2, packet=65_000)
    for i in range(4):
        assert net.engines[0].send(bytes([i]) * 20_000, to=net.ids[1] if i % 2 else 0) == SENT
    net.step(take=False)
    (batch,) = batches_of(net)
    only = batch.unicasts()
    assert sorted(batch.tolist()) == [bytes([i]) * 20_000 for i in range(4)]
    del batch
    assert only.tolist() == by_offsets(only) == [bytes([i]) * 20_000 for i in (1, 3)]


@pytest.mark.parametrize("packet", [1472, 9000, 65_000])
@pytest.mark.parametrize("bytes_max", [1, 100_000, 1 << 20])
def test_large_messages_of_two_senders_are_whole_though_batches_end_inside_them(packet, bytes_max):
    net, got = Net(3, packet=packet), {100: [], 101: []}
    wanted = {100 + i: messages(i, 120, 150_000) for i in range(2)}
    left = {i: list(wanted[100 + i]) for i in range(2)}
    for step in range(6000):
        for i, payloads in left.items():
            if payloads and net.engines[i].send(payloads[0]) == SENT:
                payloads.pop(0)
        net.step(take=False)
        net.take(0), net.take(1)
        for batch in batches_of(net, 2, bytes_max):
            payloads = batch.tolist() if step % 2 else by_offsets(batch)
            for run in batch.runs:
                got[int(run["sender"])] += payloads[run["first"] : run["first"] + run["n"]]
        if got == wanted:
            break
    assert got == wanted
    del batch
    net.run(ACKS)
    assert counters(net, 2)["slabs_in_use"] < 3


def test_a_message_that_is_not_whole_stays_in_its_packets_until_it_is_dropped():
    net = Net(2, packet=65_000, window=200_000)
    assert net.engines[0].send(bytes(400_000)) == AGAIN  # the window is full; this call gives the message up
    net.run(ACKS)
    held = counters(net)["slabs_in_use"]
    assert held >= 3, "all have these packets, so only the message holds them"
    assert net.engines[0].send(b"next") == SENT
    net.run(ACKS)
    assert net.got[1] == [(100, b"next")] and counters(net)["drop_partial_message"] == 1
    assert counters(net)["slabs_in_use"] < 2


def test_while_all_that_may_be_borrowed_is_a_message_that_is_not_whole_is_copied():
    net, payloads = Net(2, packet=65_000), [bytes([i]) * 150_000 for i in range(60)]
    kept = list(sent(net, payloads))
    assert counters(net)["batch_copies"] > 20 and 64 <= counters(net)["slabs_in_use"] < 80
    assert [payload for batch in kept for payload in batch.tolist()] == payloads
    assert all(by_offsets(batch) == batch.tolist() for batch in kept)
