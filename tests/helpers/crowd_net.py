"""Members of a crowd on a simulated network: the production member with its datagrams, virtual time, one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from seqcast.core.gossip import GossipSettings
from seqcast.crowd.datagrams import make_id
from seqcast.crowd.member import CrowdMember, Event, HistoryEnd
from seqcast.crowd.streams import Delivered, Missed, StreamSettings

MS, SECOND = 1_000_000, 1_000_000_000
GOSSIP = GossipSettings(
    votes=False, average_ns=50 * MS, lost_ns=3 * SECOND, listed_max=16, shuffle_ns=SECOND, hello_ns=SECOND,
    history_ns=2 * SECOND, lag=50,
)  # fmt: skip
TAG = 7
PORT = 5000


class MemoryStore:
    """A late-join handler's store, without a file."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], bytes] = {}
        self._ends: dict[int, int] = {}

    def put(self, sender: int, seqno: int, payload: bytes) -> None:
        assert (sender, seqno) not in self.rows
        self.rows[sender, seqno] = payload
        self._ends[sender] = seqno

    def find(self, sender: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        for seqno in range(first, min(last, self._ends.get(sender, 0)) + 1):
            if (sender, seqno) in self.rows:
                yield seqno, self.rows[sender, seqno]

    def kept(self) -> dict[int, tuple[int, int]]:
        return {
            sender: (min(seqno for who, seqno in self.rows if who == sender), last)
            for sender, last in self._ends.items()
        }

    def ends(self) -> dict[int, int]:
        return dict(self._ends)


class CrowdNet:
    """A network that loses each datagram, and each copy of a multicast, with the same probability.

    Attributes:
        loss: probability; may be changed at any time.
        cut: (from, to) -> is such a datagram lost?
        members: by number, those that live.
        told: by number, the events of each member's application, in order, including members that are gone.
    """

    def __init__(self, seed: int = 1, loss: float = 0.0) -> None:
        self.random, self.loss, self.now = random.Random(seed), loss, 0
        self.cut: Callable[[int, int], bool] = lambda sender, to: False
        self.members: dict[int, CrowdMember] = {}
        self.told: dict[int, list[Event]] = {}
        self._queue: list[tuple[int, int, int, tuple[bytes, int], bytes]] = []
        self._n = 0

    def join(self, number: int, gossip: GossipSettings = GOSSIP, **more: Any) -> CrowdMember:
        """A member whose address is 10.0.0.``number``."""
        me = make_id(bytes([10, 0, 0, number]), PORT, self.random.getrandbits(32))
        bounds = more.pop("bounds", StreamSettings())
        seed = self.random.getrandbits(60)
        member = CrowdMember(me, TAG, gossip, bounds, self.now, seed, **more)
        self.members[number] = member
        self.told.setdefault(number, [])
        return member

    def crash(self, number: int) -> None:
        del self.members[number]

    def send(self, number: int, payload: bytes) -> None:
        self.members[number].send(payload, self.now)
        self._flush(number)

    def inject(self, number: int, data: bytes, source: int, port: int = PORT) -> None:
        """A datagram forged at 10.0.0.``source`` arrives at a member."""
        self.members[number].datagram(data, (bytes([10, 0, 0, source]), port), self.now)
        self._flush(number)

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while True:
            due = min((member.due() for member in self.members.values()), default=end)
            at = min(due, self._queue[0][0] if self._queue else end)
            if at >= end:
                break
            self.now = max(self.now, at)
            while self._queue and self._queue[0][0] <= self.now:
                _, _, to, (address, port), data = heappop(self._queue)
                if to in self.members:
                    self.members[to].datagram(data, (address, port), self.now)
                    self._flush(to)
            for number, member in list(self.members.items()):
                if member.due() <= self.now:
                    member.tick(self.now)
                    self._flush(number)
        self.now = end

    def _flush(self, number: int) -> None:
        member = self.members[number]
        for to, data in member.take_datagrams():
            there = [to.to_bytes(10)[3]] if to else [each for each in self.members if each != number]
            for each in there:
                if self.random.random() >= self.loss and not self.cut(number, each):
                    self._n += 1
                    at = self.now + self.random.randrange(MS // 10, 2 * MS)
                    heappush(self._queue, (at, self._n, each, (bytes([10, 0, 0, number]), PORT), data))
        self.told[number] += member.take_events()

    # ---- results

    def payloads(self, number: int) -> list[bytes]:
        return [each.payload for each in self.told[number] if isinstance(each, Delivered)]

    def missed(self, number: int) -> int:
        return sum(each.last - each.first + 1 for each in self.told[number] if isinstance(each, Missed))

    def history(self, number: int) -> list[int]:
        return [each.handlers for each in self.told[number] if isinstance(each, HistoryEnd)]

    def judge(self) -> None:
        """Each member was told consecutive seqnos of each sender: nothing comes twice or out of order, and nothing is
        skipped silently."""
        for number, told in self.told.items():
            last: dict[int, int] = {}
            for each in told:
                if isinstance(each, HistoryEnd):
                    continue
                first, end = (each.seqno, each.seqno) if isinstance(each, Delivered) else (each.first, each.last)
                assert last.get(each.sender, first - 1) == first - 1, (number, each, last[each.sender])
                last[each.sender] = end
