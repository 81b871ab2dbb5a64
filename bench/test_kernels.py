"""The cost of the compiled kernels, by pytest-benchmark: ``make bench``, or ``python -m pytest bench``.

One process, one thread, nothing else running: figures of a call, not of a group (for that: ``seqcast perf``). A figure
"of N" is for N calls or messages together; extra_info has bytes or messages, for rates.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import seqcast
from seqcast._native import bare
from seqcast._native.engine import SENT, Engine
from seqcast.config import Config
from seqcast.config.derive import engine_settings

PACKETS = {"1472": 1472, "65000": 65000}
WINDOW = 4 << 20
TAG = 77
SENDER, RECEIVER = 101, 102


def engine(member: int, members: list[int], *, packet: int, sequencer: int = -1, **settings: object) -> Engine:
    """An engine in a view."""
    made = Engine(
        member_id=member, group_tag=7, **{"seed": 1, **engine_settings(Config()), "slabs_max": 4096, **settings}
    )
    made.install(
        tag=TAG,
        ids=members,
        addresses=[bytes([number + 1]) for number in range(len(members))],
        rank=members.index(member),
        mechanism=int(sequencer >= 0),
        sequencer=sequencer,
        window_bytes=WINDOW,
        forward_window_bytes=WINDOW,
        unicast_window_bytes=WINDOW,
        state_window_bytes=WINDOW,
        packet_bytes=packet,
        base=[0] * len(members),
        origin_base=[0] * len(members),
        cut=None,
        marker=1,
        now_ns=0,
    )
    return made


def packed(size: int, count: int, *, packet: int, sequencer: int = -1) -> list[bytes]:
    """Data packets with ``count`` messages of ``size`` bytes, as a sender transmits them."""
    sender = engine(SENDER, [RECEIVER, SENDER], packet=packet, sequencer=sequencer, deliver_own=False)
    message = os.urandom(size)
    for _ in range(count):
        assert sender.send(message) == SENT, "the benchmark's messages must fit one window"
    return [datagram for _, _, datagram in sender.transmit(0) if len(datagram) > 200]


# ---- CRC -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 1472, 8192, 65000])
@pytest.mark.parametrize("kernel", range(len(bare.crc32c_kernels())), ids=bare.crc32c_kernels())
def test_crc32c(benchmark, kernel, size):
    """CRC32C of one buffer in cache, and about 0.3 µs of the call from Python."""
    data = np.frombuffer(os.urandom(size), dtype=np.uint8)
    benchmark.extra_info |= {"bytes": size}
    benchmark(bare.crc32c, data, 0, kernel)


# ---- frames --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
@pytest.mark.parametrize("size", [64, 1024])
def test_wire_check(benchmark, size, packet):
    """The validity function on one full data packet: header, lengths, offsets and CRC. The packet is a stranger's, so
    only a counter follows; includes one copy of the datagram by the Python wrapper."""
    datagram = packed(size, 2 * packet // size + 2, packet=packet)[0]
    other = engine(7, [7], packet=packet)
    benchmark.extra_info |= {"bytes": len(datagram), "messages": len(datagram) // size}
    benchmark(other.receive, datagram, b"\x09", 0)
    assert other.counters()["drop_stranger"] > 0


# ---- send window ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
@pytest.mark.parametrize("size", [64, 1024, 8192])
def test_pack_and_frame(benchmark, size, packet):
    """Packing messages into the send ring one by one, then framing (header, CRC) and handing out their packets: 256 KiB
    of messages. Includes a call from Python for each message, and a copy of each packet into a bytes object."""
    count, message = (256 << 10) // size, os.urandom(size)

    def fresh():
        return (engine(SENDER, [RECEIVER, SENDER], packet=packet, deliver_own=False),), {}

    def run(sender):
        for _ in range(count):
            sender.send(message)
        return sender.transmit(0)

    benchmark.extra_info |= {"messages": count, "bytes": count * size}
    out = benchmark.pedantic(run, setup=fresh, rounds=30)
    assert sum(len(datagram) for _, _, datagram in out) > count * size


# ---- receive window ------------------------------------------------------------------------------------------------

ARRIVALS = {
    "in order": lambda packets: packets,
    "last first": lambda packets: packets[::-1],
    "every tenth late": lambda packets: [p for i, p in enumerate(packets) if i % 10] + packets[::10],
    "each twice": lambda packets: [p for p in packets for _ in range(2)],
}


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize(("size", "packet"), [(64, 1472), (1024, 1472), (1024, 65000)])
def test_receive_and_deliver(benchmark, size, packet, arrival):
    """The receive path of 512 KiB of messages: check, seqno table (gaps included), delivery queue, one batch in Arrow
    layout per MiB. Datagrams come one by one from Python, each copied once by the wrapper."""
    count = (512 << 10) // size
    datagrams = ARRIVALS[arrival](packed(size, count, packet=packet))

    def fresh():
        receiver = engine(RECEIVER, [RECEIVER, SENDER], packet=packet)
        receiver.deliver()  # the marker of the view
        return (receiver,), {}

    def run(receiver):
        for datagram in datagrams:
            receiver.receive(datagram, b"\x02", 0)
        delivered = 0
        while (batch := receiver.deliver()) is not None:
            delivered += len(batch)
        return delivered

    benchmark.extra_info |= {"messages": count, "packets": len(datagrams), "bytes": count * size}
    assert benchmark.pedantic(run, setup=fresh, rounds=20) == count


@pytest.mark.parametrize("size", [64, 1024])
def test_stamp(benchmark, size):
    """The sequencer's work on 256 KiB of forwarded messages: check, rewrite of the headers in place, own delivery, and
    the multicast packets handed out as bytes objects."""
    count = (256 << 10) // size
    forwards = packed(size, count, packet=1472, sequencer=0)

    def fresh():
        sequencer = engine(RECEIVER, [RECEIVER, SENDER], packet=1472, sequencer=0)
        sequencer.deliver()
        return (sequencer,), {}

    def run(sequencer):
        for datagram in forwards:
            sequencer.receive(datagram, b"\x02", 0)
        return sequencer, sequencer.transmit(0)

    benchmark.extra_info |= {"messages": count, "packets": len(forwards), "bytes": count * size}
    sequencer, out = benchmark.pedantic(run, setup=fresh, rounds=20)
    assert sequencer.counters()["stamped"] == len(forwards)
    assert sum(len(datagram) for _, _, datagram in out) > count * size


# ---- delivery ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [64, 1024])
@pytest.mark.parametrize("form", ["arrays", "list of bytes"])
def test_take_a_batch(benchmark, form, size):
    """Cost of a batch of 512 KiB for the application: two NumPy views, or a bytes object for each message."""
    receiver = engine(RECEIVER, [RECEIVER, SENDER], packet=65000)
    receiver.deliver()
    for datagram in packed(size, (512 << 10) // size, packet=65000):
        receiver.receive(datagram, b"\x02", 0)
    batch = receiver.deliver()
    benchmark.extra_info |= {"messages": len(batch), "bytes": len(batch.data)}
    benchmark((lambda: (batch.data, batch.offsets)) if form == "arrays" else batch.tolist)


# ---- batch I/O -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet_bytes", [1472, 0], ids=["1472 by UDP_SEGMENT", "65000"])
@pytest.mark.parametrize("size", [64, 1024])
def test_batch_io(benchmark, size, packet_bytes):
    """Through the sockets: 256 KiB of messages from one member to another of the same process over loopback, sent by
    one ``send_batch`` and taken by ``recv_batch``; includes both I/O threads and their wake-ups."""
    count = (256 << 10) // size
    data = np.frombuffer(os.urandom(count * size), dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * size
    settings = {"order": "fifo", "interface": "lo", "deliver_own": False, "packet_bytes": packet_bytes}
    cluster = f"bench-{os.getpid()}"
    with seqcast.join(cluster, name="a", **settings) as a, seqcast.join(cluster, name="b", **settings) as b:

        def run():
            a.send_batch(data, offsets)
            taken = 0
            while taken < count:
                taken += len(b.recv_batch(timeout=10.0) or ())
            return taken

        benchmark.extra_info |= {"messages": count, "bytes": count * size, "path": str(a.path)}
        assert benchmark(run) == count
