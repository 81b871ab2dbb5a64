"""The memory of received packets: the packets that credit allows fit, and a passing want of memory only delays."""

import pytest
from engines import MS, Net, make_engine

from seqcast._native.engine import SENT
from seqcast.config import Config
from seqcast.config.derive import capacity
from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.rules.windows import windows
from seqcast.reports import MemberStarved, SlabsExhausted

SLAB = 64 << 10


def counters(net, rank=0):
    return net.engines[rank].counters()


def test_copies_of_own_packets_take_no_slab_from_others_packets():
    net = Net(2, slabs_max=16, window=4 << 20, packet=65_000)
    for _ in range(40):
        assert net.engines[0].send(bytes(60_000)) == SENT
        net.step(take=False)
        net.take(1)
    assert counters(net)["slabs_in_use"] >= 16, "it has not taken its own messages"
    for _ in range(100):
        assert net.engines[1].send(b"x") == SENT
        net.step(take=False)
    assert counters(net)["drop_slabs"] == 0
    net.take(0)
    assert net.got[0].count((101, b"x")) == 100


def starving(taking):
    """The events of a member with too few slabs, whose application takes its messages whenever `taking(step)`, and of
    another."""
    times = {"heartbeat_ns": 50 * MS, "suspect_ns": 400 * MS, "suspect_ns_max": 800 * MS}
    net = Net(3, **times)
    net.engines[0] = make_engine(100, slabs_max=8, **times)
    net.install([0, 1, 2], sequencer=-1, tag=2, marker=2)
    told = [set() for _ in range(3)]
    for step in range(3000):
        net.engines[1].send(bytes(1300))
        net.step(take=False)
        net.take(1)
        net.take(2)
        if taking(step):
            net.engines[0].deliver(bytes_max=100_000)
        for rank, engine in enumerate(net.engines):
            told[rank] |= {each for each in engine.reports() if isinstance(each, SlabsExhausted | MemberStarved)}
    assert counters(net)["drop_slabs"] > 100
    return told


def test_a_member_that_goes_on_taking_is_not_slow_though_it_wants_slabs():
    """Packets beyond its gaps do not take the slabs that would fill these, and the member gets everything in the
    end."""
    told = starving(lambda step: step % 200 == 0)
    assert told[0] == {SlabsExhausted()}, "it warns"
    assert told[2] == set(), "and nobody excludes it"


def test_a_member_that_wants_slabs_and_takes_nothing_is_slow():
    assert starving(lambda step: False)[2] == {MemberStarved(100)}


@pytest.mark.parametrize("slabs_max", [256, 1024, 4096])
@pytest.mark.parametrize("members", [2, 3, 20])
@pytest.mark.parametrize("order", ["fifo", "total"])
def test_the_windows_of_all_senders_fit_into_the_slabs(slabs_max, members, order):
    """However large the buffer of the socket is. A packet of 16 KiB and more stays in its slab."""
    config = Config(slabs_max=slabs_max, window_bytes=1 << 30)
    granted = capacity(config, 1 << 30)
    infos = [
        MemberInfo(name=f"m{i}", id=i + 1, address=b"", capacity=granted, packet_bytes=8972, window_bytes=1 << 30)
        for i in range(members)
    ]
    sizes = windows(infos, orders.resolve(order).multicasters(len(infos)))
    others = members - 1
    charged = sizes.room + others * (sizes.unicast + (sizes.forward if order == "total" else 0)) + sizes.state
    held = charged / (SLAB / 4)  # slabs of a quarter each, at worst
    assert held <= slabs_max * 7 / 8, "the last eighth is for what comes in order"
    assert capacity(config, 300_000) == 300_000, "a smaller buffer of the socket bounds it"
