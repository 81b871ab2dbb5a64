"""The simulated network and the virtual clock: an ordered heap of events."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from typing import Any

from seqcast.config.derive import to_ns
from seqcast.sim.options import SECOND, Options
from seqcast.sim.settings import config
from seqcast.sim.stranger import Stranger
from seqcast.sim.wire import CONTROL, NAK, REPAIRED, kind, packet

NAKS_MAX = 1.5
"""Requests for each lost packet: some are lost, and one asks for several packets."""
REPEATS_MAX = 1.3
"""Repeats of each lost packet: some are lost, too, and some are asked for when they are on their way."""
REPAIR_PAUSES_MAX = 5
"""How long a repair may take, in the longest pauses between two requests."""


class Clock:
    """Virtual time: runs callbacks in the order of (time, order of scheduling)."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: int, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._count, call, args))

    def run(self, until: int) -> None:
        """Runs all that is due up to ``until``, and sets the time to ``until``."""
        while self.step(until):
            pass
        self.now = until

    def step(self, until: int) -> bool:
        """Runs the next event; False: nothing is due up to ``until``."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, call, args = heapq.heappop(self._heap)
        call(*args)
        return True


class Repairs:
    """Packets lost on their way to a member, and how much time and how many requests their repair took."""

    def __init__(self, pause_ns: int) -> None:
        self.pause_ns = pause_ns
        self.open: dict[tuple[int, bytes], int] = {}  # (to whom, which packet): lost when
        self.packets = 0
        self.naks = 0
        self.longest_ns = 0

    def lost(self, target: int, datagram: bytes, now: int) -> None:
        """On its way to ``target``; empty: the notice of a closed port."""
        if kind(datagram) == NAK:
            self.naks += 1
        elif kind(datagram) in REPAIRED:
            self.packets += (target, packet(datagram)) not in self.open
            self.open.setdefault((target, packet(datagram)), now)

    def comes(self, target: int, datagram: bytes, then: int) -> None:
        """Arrives, perhaps as a repair of one that was lost; empty: the notice of a closed port."""
        if kind(datagram) == NAK:
            self.naks += 1
        elif self.open and kind(datagram) in REPAIRED:
            since = self.open.pop((target, packet(datagram)), None)
            if since is not None:
                self.longest_ns = max(self.longest_ns, then - since)

    def check(self, repeats: int) -> Iterator[str]:
        """Too many requests or repeats, or too slow an answer: a performance bound, far from the usual.

        Args:
            repeats: packets that all members have sent again.
        """
        if repeats > REPEATS_MAX * self.packets + 20:
            yield f"repair: {self.packets} packets were lost, and packets were sent again {repeats} times"
        if self.naks > NAKS_MAX * self.packets + 20:
            yield f"repair: {self.packets} packets were lost, and asked for {self.naks} times"
        if self.longest_ns > REPAIR_PAUSES_MAX * self.pause_ns:
            yield f"repair: a packet that was lost came {self.longest_ns / 1e6:.0f} ms later"


UPLINK = -1
"""In place of the target: the one link by which everything leaves a member."""
SHOWN = 4
"""Packets on their way, of which three that come show that one did not."""
TIMEOUT_NS = 200_000_000


class Rival:
    """A stream of others on the uplink of a member: as TCP (Reno), the stream sends a window of packets in each
    round trip, one more in the next, and half as many after a loss; or one, after ``TIMEOUT_NS``, if too few were on
    their way to show the loss.

    Args:
        source: whose uplink.
    """

    def __init__(self, network: Network, source: int) -> None:
        self._network, self._link = network, (source, UPLINK)
        self._window, self._lost, self._waited = 2.0, False, 0
        self._threshold = float("inf")
        self.bytes_sent = 0  # that came through

    def round(self) -> None:
        network, options = self._network, self._network.options
        if network.healed:
            return
        if self._lost and self._window < SHOWN:
            self._window, self._lost = 1.0, False
            network.clock.at(network.clock.now + TIMEOUT_NS, self.round)
            return
        if self._lost:
            self._window = self._threshold = self._window / 2
        else:
            self._window = (
                min(2 * self._window, self._threshold) if self._window < self._threshold else self._window + 1
            )
        self._lost = False
        trip_ns = 2 * options.delay_ns + self._waited
        packets = int(self._window)
        for k in range(packets):
            network.clock.at(network.clock.now + k * trip_ns // packets, self._send)
        network.clock.at(network.clock.now + trip_ns, self.round)

    def _send(self) -> None:
        size = self._network.options.packet_bytes
        waits = self._network.queue(self._link, size)
        if waits < 0:
            self._lost = True
        else:
            self._waited, self.bytes_sent = waits, self.bytes_sent + size


class Network:
    """Loses, alters, duplicates, delays and reorders datagrams; links can be cut in one or both directions, and a
    member can lose multicast alone, as behind a switch whose IGMP snooping forgot that member."""

    def __init__(self, options: Options, clock: Clock, rng: random.Random) -> None:
        self.options, self.clock, self.rng = options, clock, rng
        self.cut: set[tuple[int, int]] = set()  # (from, to): nothing comes through
        self.filtered_in: set[int] = set()  # no multicast reaches these, and
        self.filtered_out: set[int] = set()  # no multicast leaves those; unicasts pass
        self.off: set[int] = set()  # nothing comes to these or leaves them: their interfaces are broken
        self.mute: set[tuple[int, int]] = set()  # (from, to): no unicast comes through, as by a firewall
        self.deaf: set[tuple[int, int]] = set()  # (from, to): no multicast comes through
        self.narrow: dict[tuple[int, int], int] = {}  # (from, to): larger datagrams vanish
        self.behind: dict[int, int] = {}  # extra delay of datagrams to these, in ns
        self.busy: dict[tuple[int, int], int] = {}  # by link: when all that waits has been sent
        self.overflows = 0  # datagrams that found the queue before their link full
        self.forgotten: set[int] = set()  # no multicast comes or leaves: their kernels forgot the group
        self.steady = False  # each datagram takes as long as another one
        self.stranger: Stranger | None = None
        self.damaged: set[int] = set()  # hashes of datagrams that were altered
        self.doomed = 0  # of this type a datagram is lost,
        self.dies: tuple[bytes, int] | None = None  # this one, at this time
        self.healed = False  # the liveness phase: no loss, no duplicates, no tail
        self.packets = 0  # that arrived
        self.train: dict[tuple[int, int], int] | None = None  # (from, to): jitter of datagrams that stay together
        pause_ns = to_ns(config(options).nak_backoff_s_max)
        self.repairs = Repairs(pause_ns) if options.watches_repairs else None
        self.rivals = [Rival(self, source) for source in range(options.members if options.rivals else 0)]
        for rival in self.rivals:
            clock.at(clock.now, rival.round)

    def carry(self, source: int, target: int, receive: Callable[..., None], datagram: bytes, address: bytes) -> None:
        options, random_, sent = self.options, self.rng.random, datagram
        waits = self.waits(source, target, datagram)
        if waits < 0:
            return
        copies = 1
        delay = options.delay_ns + waits + self.behind.get(target, 0)
        if not self.healed:
            if options.loss and random_() < options.loss:
                if self.repairs:
                    self.repairs.lost(target, datagram, self.clock.now)
                return
            if options.duplicate and random_() < options.duplicate:
                copies = 2
            if options.tail and random_() < options.tail:
                delay += int(options.tail_ns * random_())
            if (options.late or options.echoes) and kind(datagram) == CONTROL:
                delay += self._late(receive, datagram, address)
            if options.flips and random_() < options.flips:
                if self.repairs:
                    self.repairs.lost(target, datagram, self.clock.now)
                datagram = self.altered(datagram)
            elif self.repairs:
                self.repairs.comes(target, datagram, self.clock.now + delay)
        for copy in range(copies):
            extra = 0 if self.steady else int(self.rng.expovariate(1.0) * options.jitter_ns)
            if self.train is not None and not copy:
                extra = self.train.setdefault((source, target), extra)
            self.packets += 1
            self.clock.at(self.clock.now + delay + extra, receive, datagram, address)
        if self.stranger is not None:
            self._overhear(self.stranger, target, sent, address, delay)

    def lose(self, doomed: int) -> None:
        """The next datagram of this type reaches nobody; 0: nothing more is lost."""
        self.doomed, self.dies = doomed, None

    def _loses(self, target: int, datagram: bytes) -> bool:
        if self.dies is None and kind(datagram) == self.doomed:
            self.dies = datagram, self.clock.now
        lost = self.dies == (datagram, self.clock.now)
        if lost and self.repairs:
            self.repairs.lost(target, datagram, self.clock.now)
        return lost

    def _late(self, receive: Callable[..., None], datagram: bytes, address: bytes) -> int:
        """How much later a control frame comes; perhaps once more."""
        options, random_ = self.options, self.rng.random
        late_ns = int(options.late_ns * random_()) if random_() < options.late else 0
        if random_() < options.echoes:
            self.clock.at(self.clock.now + int(options.late_ns * random_()), receive, datagram, address)
        return late_ns

    def _overhear(self, stranger: Stranger, target: int, datagram: bytes, address: bytes, delay: int) -> None:
        if not self.healed and (sent := stranger.heard(target, datagram, address)):
            later_ns, node, forged, sender = sent
            self.clock.at(self.clock.now + delay + later_ns, node.receive, forged, sender)

    def waits(self, source: int, target: int, datagram: bytes) -> int:
        """How long a datagram waits before its link, and is on the link, in ns; -1: lost."""
        if not self.connects(source, target) or self.vanishes(source, target, datagram):
            return -1
        if self.doomed and self._loses(target, datagram):
            return -1
        if not self.options.link_bytes_per_s:
            return 0
        return self.queue((source, UPLINK if self.options.uplinks else target), len(datagram))

    def queue(self, link: tuple[int, int], size: int) -> int:
        """How long a datagram of ``size`` bytes waits before a link and is on its way, in ns; -1: the queue is full."""
        options, now = self.options, self.clock.now
        full_ns = options.link_packets * options.packet_bytes * SECOND // options.link_bytes_per_s
        waits = max(self.busy.get(link, 0) - now, 0)
        if waits > full_ns and not self.healed:
            self.overflows += 1
            return -1
        waits += size * SECOND // options.link_bytes_per_s
        self.busy[link] = now + waits
        return waits

    def altered(self, datagram: bytes) -> bytes:
        """With one to three bits flipped, which a CRC always detects: such a datagram counts as lost."""
        data = bytearray(datagram)
        for place in self.rng.sample(range(8 * len(data)), min(self.rng.randrange(1, 4), 8 * len(data))):
            data[place // 8] ^= 1 << place % 8
        self.damaged.add(hash(bytes(data)))
        return bytes(data)

    def is_sound(self, target: int, datagram: bytes) -> bool:
        """Has a member sent this datagram, as is, to ``target``?"""
        forged = self.stranger.forged if self.stranger is not None else ()
        return hash(datagram) not in self.damaged and (target, hash(datagram)) not in forged

    def connects(self, source: int, target: int) -> bool:
        """Do links and interfaces let a datagram through from one to the other?"""
        if self.off and (source in self.off or target in self.off):
            return False
        return not self.cut or (source, target) not in self.cut

    def vanishes(self, source: int, target: int, datagram: bytes) -> bool:
        """Is the datagram too large for the path, which says nothing?"""
        return bool(self.narrow) and len(datagram) > self.narrow.get((source, target), len(datagram))

    def multicasts(self, source: int, target: int) -> bool:
        """Do filters, and the kernels' group memberships, let a multicast through from one to the other?"""
        assert self.options.transport != "unicast", "a multicast in a group without multicast"
        if self.forgotten and (source in self.forgotten or target in self.forgotten):
            return False
        if self.deaf and (source, target) in self.deaf:
            return False
        return source not in self.filtered_out and target not in self.filtered_in

    def unicasts(self, source: int, target: int) -> bool:
        """Do firewalls let a unicast through from one to the other?"""
        return not self.mute or (source, target) not in self.mute

    def partition(self, one: set[int], other: set[int]) -> None:
        self.cut |= {(a, b) for a in one for b in other} | {(b, a) for a in one for b in other}

    def heal(self) -> None:
        self.cut.clear()
        self.mute.clear()
