"""Acknowledgements by the number of members: ``python bench/acks.py [--members 2 4 ...] [--senders 1]``.

Engines with production's settings, without sockets: virtual time, a link of a given rate for each sender, and receivers
that look at arrived datagrams once in a turn, like threads that share cores. The first members send as fast as credit
allows. Prints, by the number of members: packets sent; acks that a sender received for each of its packets, and the
same for each receiver; a sender's rate as a share of its link's; the largest volume in flight to one receiver, from all
senders together, as a share of the expected room in the receivers' buffers. Nothing here depends on the speed of
this machine: two runs print the same.
"""

from __future__ import annotations

import argparse
import heapq
from dataclasses import dataclass, field

from seqcast._native.engine import SENT, Engine
from seqcast.config import Config
from seqcast.config.derive import core_settings, engine_settings
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.orders import by_name
from seqcast.core.rules.cut import first_view

LATENCY_NS = 30_000
MESSAGE = bytes(8000)
DATA_BYTES_MIN = 500  # acks, probes and heartbeats of small groups are smaller than data packets under full load


@dataclass
class Net:
    """Engines, and datagrams on the way between them."""

    engines: list[Engine]
    link_bytes_per_s: float
    turn_ns: int
    now: int = 0
    link_free: dict[int, float] = field(default_factory=dict)
    on_the_way: list[tuple[float, int, int, int, int, bytes]] = field(default_factory=list)
    inbox: list[list[tuple[int, bytes]]] = field(default_factory=list)
    sent: int = 0

    def transmit(self, source: int) -> None:
        for _, address, datagram in self.engines[source].transmit(self.now):
            at = max(self.link_free.get(source, 0.0), self.now) + len(datagram) / self.link_bytes_per_s * 1e9
            if len(datagram) > DATA_BYTES_MIN:
                self.link_free[source] = at
            targets = [address[0] - 1] if address else [i for i in range(len(self.engines)) if i != source]
            for target in targets:
                self.sent += 1
                heapq.heappush(self.on_the_way, (at + LATENCY_NS, self.sent, source, target, datagram))

    def arrive(self) -> None:
        while self.on_the_way and self.on_the_way[0][0] <= self.now:
            _, _, source, target, datagram = heapq.heappop(self.on_the_way)
            self.inbox[target].append((source, datagram))

    def turn(self, member: int) -> None:
        """One turn of a member's thread."""
        engine = self.engines[member]
        for source, datagram in self.inbox[member]:
            engine.receive(datagram, bytes([source + 1]), self.now)
        self.inbox[member].clear()
        while engine.deliver(now_ns=self.now) is not None:
            pass
        if engine.deadline() <= self.now:
            engine.tick(self.now)
        self.transmit(member)


def group(n: int, rcvbuf: int, mtu: int) -> tuple[list[Engine], int]:
    """The engines of one view, as members on this kind of network install it, and its window in bytes."""
    config = Config()
    core = core_settings(config, mtu=mtu, rcvbuf=rcvbuf)
    infos = [
        MemberInfo(f"m{i}", i + 1, bytes([i + 1]), core["capacity"], core["packet_bytes"], core["window_bytes"])
        for i in range(n)
    ]
    fifo = by_name("fifo")
    view = first_view(infos, "fifo", fifo, 1)
    engines = []
    for rank in range(n):
        settings = engine_settings(config)
        del settings["deliver_own"]
        engine = Engine(member_id=rank + 1, group_tag=7, deliver_own=False, seed=rank + 1, **settings)
        engine.install(
            tag=1, ids=[info.id for info in infos], addresses=[info.address for info in infos], rank=rank,
            mechanism=fifo.number, sequencer=-1, window_bytes=view.window, share_bytes=view.share,
            room_bytes=view.room, forward_window_bytes=view.forward_window,
            unicast_window_bytes=view.unicast_window, state_window_bytes=view.state_window,
            packet_bytes=view.packet_bytes, base=view.base, origin_base=view.origin_base, cut=None, marker=1, now_ns=0,
        )  # fmt: skip
        engines.append(engine)
    return engines, view.window


def run(n: int, senders: int, options: argparse.Namespace) -> str:
    """One line of the table."""
    engines, window = group(n, options.rcvbuf, options.mtu)
    net = Net(engines, options.megabytes_per_s * 1e6, options.turn_us * 1000, inbox=[[] for _ in range(n)])
    due = [net.turn_ns * i // n for i in range(n)]
    messages = 0
    before: list[dict[str, int]] = []
    warm = options.ms * 1_000_000 // 2
    while net.now < options.ms * 1_000_000:
        if not before and net.now >= warm:
            before, messages = [engine.counters() for engine in engines[:senders]], 0
        net.arrive()
        for i in range(n):
            if due[i] > net.now and i >= senders:
                continue
            due[i] += net.turn_ns
            net.turn(i)
        for i in range(senders):
            # Packets that the link has not taken yet wait in the send ring, not in the kernel.
            while net.link_free.get(i, 0.0) < net.now + net.turn_ns and engines[i].send(MESSAGE) == SENT:
                messages += i == 0
                if messages % 8 == 0:
                    net.transmit(i)
            net.transmit(i)
        net.now += 20_000
    after = [engine.counters() for engine in engines[:senders]]
    got = {name: sum(a[name] - b[name] for a, b in zip(after, before, strict=True)) for name in after[0]}
    packets = max(got["packets_sent"], 1)
    acks = got["acks_received"] / packets
    rate = messages * len(MESSAGE) / ((net.now - warm) / 1e9) / net.link_bytes_per_s
    return (
        f"{n:7} {window >> 10:9} {packets:8} {acks:9.3f} {acks / (n - 1):9.4f} {rate:6.2f} {got['probes_sent']:7} "
        f"{got['packets_retransmitted']:7}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--senders", type=int, default=1)
    parser.add_argument("--megabytes-per-s", type=float, default=1000.0)
    parser.add_argument("--turn-us", type=int, default=200, help="how often a receiver looks at its arrivals")
    parser.add_argument("--mtu", type=int, default=65536)
    parser.add_argument("--rcvbuf", type=int, default=8 << 20, help="bytes granted by the kernel")
    parser.add_argument("--ms", type=int, default=200, help="of virtual time; the first half warms up")
    options = parser.parse_args()
    print("members window/KB  packets acks/pack per recv.   rate  probes  again")
    for n in options.members:
        print(run(n, min(options.senders, n), options), flush=True)


if __name__ == "__main__":
    main()
