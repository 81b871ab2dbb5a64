"""The packets of all senders at one member of a crowd: their order of delivery, and the kept ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from seqcast.core.gossip.messages import Catalog, Span

AHEAD_MAX = 8192
"""Packets of one sender beyond the next one to deliver: later ones are dropped, and repaired once there is room. If
their sender no longer keeps the next ones, these are given up instead."""
PROOFS = 3
"""Packets of a sender, one after the other, that show that its stream is elsewhere than this member believes. One,
which anybody may have forged, must not skip all that the sender says from then on."""
SENDERS_MAX = 4096
PAST_MAX = 65_536
"""Senders whose packets are held or kept, and silent ones of which only the last seqno is remembered, so that none of
their packets is delivered twice."""

PACKET_BYTES = 100
"""Memory of a packet beside its payload, about: without this, empty messages would cost nothing."""


class LateJoinStore(Protocol):
    """Where a late-join handler keeps packets (PB-05)."""

    def put(self, sender: int, seqno: int, payload: bytes) -> None:
        """Keeps a packet."""

    def find(self, sender: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """The kept ones of these packets, with their seqnos."""

    def kept(self) -> dict[int, tuple[int, int]]:
        """By sender, the first and the last seqno that are kept."""

    def ends(self) -> dict[int, int]:
        """By sender, the last seqno that was ever put, even if no longer kept."""


class Delivered(NamedTuple):
    """A message, in the order of its sender."""

    sender: int
    seqno: int
    payload: bytes


class Missed(NamedTuple):
    """In place of messages that this member will not get."""

    sender: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Times are ns.

    Args:
        keep_bytes: of the packets that are kept in memory for others, of all senders together.
        held_bytes: of the packets that wait for earlier ones.
        active_ns: a sender that is silent for this long leaves the digest, and none of its packets is kept in memory.
            Much longer than a repair takes.
        serves: packets kept in memory are kept for joiners, too, also those of silent senders (PB-04). A store serves
            them in any case.
        digest_max, catalog_max: entries of one digest, and of one part of a catalog.
        settled, settle_ns: after this many gossips, or this long, this member knows all active senders. A later sender
            was silent until then: all its kept packets were sent since, and are delivered. Of an earlier one, the next
            packets are delivered.
    """

    keep_bytes: int = 64 << 20
    held_bytes: int = 64 << 20
    active_ns: int = 60_000_000_000
    serves: bool = False
    digest_max: int = 30
    catalog_max: int = 40
    settled: int = 3
    settle_ns: int = 2_000_000_000


class _Elsewhere:
    """Packets of a sender, each later than the one before, that came one after the other where none is expected."""

    __slots__ = ("count", "first", "last")

    def __init__(self, seqno: int) -> None:
        self.first = self.last = seqno
        self.count = 1


class _Stream:
    __slots__ = (
        "active_ns", "apart", "began", "delivered", "elsewhere", "highest", "in_memory", "kept", "least", "rejoins",
        "skipped",
    )  # fmt: skip

    def __init__(self, first: int, least: int, now_ns: int) -> None:
        self.delivered = self.highest = first - 1
        self.began = first  # where this member joined in
        self.kept = first  # lowest seqno that may be in memory
        self.in_memory: deque[int] = deque()  # those that are, ascending: a sender may leap ahead by any number
        self.least = least  # earlier ones were delivered before
        self.apart: dict[int, bytes | None] = {}  # came out of order; None: lost
        self.active_ns = now_ns
        self.elsewhere: _Elsewhere | None = None
        self.skipped = (least, first - 1)  # the range before `delivered` that was passed over last, perhaps wrongly
        self.rejoins = (0, 0)  # when the first of these is delivered, so is everything up to the second

    @property
    def received(self) -> int:
        """The highest that came; lost ones did not."""
        return max((seqno for seqno, payload in self.apart.items() if payload is not None), default=self.delivered)


class Streams:
    """Implements ``core.gossip.Packets``, and delivers.

    Args:
        me: this member.
        settings: bounds.
        now_ns: the time.
        store: of a late-join handler: keeps everything that is delivered; else None.
        waits: nothing is delivered before ``begin_all``, as it is not known yet where messages begin.
    """

    def __init__(
        self, me: int, settings: StreamSettings, now_ns: int, store: LateJoinStore | None = None, waits: bool = False
    ) -> None:
        self._me, self._settings, self._store, self._waits = me, settings, store, waits
        self._streams: dict[int, _Stream] = {me: _Stream(1, 1, now_ns)}
        self._past: dict[int, int] = {}  # by sender: its last seqno here
        if store is not None:
            self._past.update(store.ends())
        self._kept: dict[tuple[int, int], bytes] = {}  # the oldest first
        self._kept_bytes = self._held_bytes = 0
        self._gossips = 0
        self._rotated = 0
        self._events: deque[Delivered | Missed] = deque()
        self.now_ns = self._began_ns = now_ns
        self._knows_all = waits  # waits for the beginnings of messages
        self.catching_up = waits
        """Late-join handlers still send packets that other members keep no longer."""
        self.missed = 0
        """Packets that were reported as missed."""
        self.full = False
        """The application is so far behind that new packets are dropped; they are repaired later."""
        self.dropped = 0
        """Packets that came when there was no room for them."""
        self.doubted = self.restored = 0
        """Packets far from where their sender's next one is, which were not believed yet; and streams that continued
        where such packets are, after packets that somebody had made this member skip."""

    # ---- arrivals

    def own(self, payload: bytes) -> int:
        """Delivers a message of this member; returns its seqno."""
        stream = self._streams[self._me]
        self._wake(self._me, stream)
        stream.delivered = stream.highest = seqno = stream.highest + 1
        self._deliver(self._me, seqno, payload)
        return seqno

    @property
    def settled(self) -> bool:
        """Nothing that is sent from now on is skipped silently."""
        if not self._knows_all:
            late = self.now_ns - self._began_ns >= self._settings.settle_ns
            self._knows_all = late or self._gossips > self._settings.settled
        return self._knows_all

    def first_kept(self) -> int:
        """The lowest seqno of this member that is in memory."""
        return self._streams[self._me].kept

    def came(self, sender: int, seqno: int, payload: bytes, kept: int) -> None:
        """A packet came.

        Args:
            kept: the lowest seqno that its sender keeps; 0: a repeat, so the packet was requested.
        """
        stream = self._streams.get(sender)
        if stream is None:
            if not kept:
                return
            stream = self._begin(sender, kept if self.settled else seqno)
        if sender == self._me:
            return
        if kept and not self._is_in_place(sender, stream, seqno, kept):
            return
        if seqno <= stream.delivered or seqno in stream.apart:
            return
        if self._is_too_far(stream, seqno, payload) and not self.catching_up and kept > stream.delivered + 1:
            self.lost(sender, 1, kept - 1)  # else all later packets would be dropped, without an end
        if self.full or self._is_too_far(stream, seqno, payload):
            self.dropped += 1
            return
        self._held_bytes += _size(payload)
        stream.apart[seqno] = payload
        stream.highest = max(stream.highest, seqno)
        self._wake(sender, stream)
        if not self._waits:
            self._advance(sender, stream)

    def heard(self, digest: dict[int, Span]) -> None:
        """A gossip came, with this digest."""
        self._gossips += 1
        for sender, span in digest.items():
            if sender not in self._streams and len(self._streams) < SENDERS_MAX:
                self._begin(sender, span.kept if self.settled else span.received + 1)

    def begin(self, sender: int, first: int) -> None:
        """Before ``begin_all``: the messages of this sender are delivered from here on, or from where a store ends."""
        if not self._waits or sender == self._me:
            return
        stream = self._streams.get(sender) or self._begin(sender, first)
        stream.delivered = max(first, stream.least) - 1
        stream.began = stream.delivered + 1
        stream.skipped = (stream.least, stream.delivered)
        stream.kept = stream.delivered + 1
        stream.highest = max(stream.highest, stream.delivered)
        for seqno in [each for each in stream.apart if each <= stream.delivered]:
            self._held_bytes -= _size(stream.apart.pop(seqno))

    def begin_all(self) -> None:
        """Delivery begins."""
        self._waits = False
        for sender, stream in list(self._streams.items()):
            self._advance(sender, stream)

    def lost(self, sender: int, first: int, last: int) -> None:
        """Those of these packets that have not come will not come."""
        stream = self._streams[sender]
        stream.highest = max(stream.highest, last)
        at = max(first, stream.delivered + 1)
        begins = at == stream.delivered + 1 and not self._waits  # else they are few: those that were asked for
        for seqno in [*sorted(each for each in stream.apart if at <= each <= last), last + 1]:
            if not begins:
                stream.apart.update(dict.fromkeys(range(at, seqno)))
            elif seqno > stream.delivered + 1:
                self._miss(sender, stream.delivered + 1, seqno - 1)
                stream.delivered = seqno - 1
            if begins:
                self._advance(sender, stream)
            at = seqno + 1

    def collect(self, sender: int, below: int) -> None:
        """Nobody is expected to need packets below, except from a store."""
        stream = self._streams.get(sender)
        if stream is None:
            return
        stream.kept = max(stream.kept, min(below, stream.delivered + 1))
        while stream.in_memory and stream.in_memory[0] < stream.kept:
            self._kept_bytes -= _size(self._kept.pop((sender, stream.in_memory.popleft())))

    def take(self) -> list[Delivered | Missed]:
        """The packets that must be delivered now, in order."""
        events = list(self._events)
        self._events.clear()
        return events

    # ---- requests

    def find(self, sender: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """This member's share of these packets, with their seqnos."""
        stream = self._streams.get(sender)
        in_memory = stream.kept if stream is not None else last + 1
        if self._store is not None and first < in_memory:
            yield from self._store.find(sender, first, min(last, in_memory - 1))
        if stream is None:
            return
        for seqno in islice(
            stream.in_memory, bisect_left(stream.in_memory, first), bisect_right(stream.in_memory, last)
        ):
            yield seqno, self._kept[sender, seqno]
        for seqno in range(max(first, stream.delivered + 1), min(last, stream.highest) + 1):
            if (payload := stream.apart.get(seqno)) is not None:
                yield seqno, payload

    def digest(self) -> dict[int, Span]:
        """The active senders; if they are too many for one gossip, the next ones in turn."""
        since = self.now_ns - self._settings.active_ns
        active = [
            (sender, stream)
            for sender, stream in self._streams.items()
            if stream.highest and (stream.active_ns >= since or stream.apart)
        ]
        most = self._settings.digest_max
        if len(active) > most:
            self._rotated = (self._rotated + most) % len(active)
            active = (active[self._rotated :] + active[: self._rotated])[:most]
        return {
            sender: Span(stream.kept, stream.delivered, stream.received, stream.delivered) for sender, stream in active
        }

    def lacks(self, sender: int, first: int, last: int, most: int) -> tuple[tuple[int, int], ...]:
        stream = self._streams.get(sender)
        if stream is None or sender == self._me or self._waits or self.full:
            return ()
        missing: list[tuple[int, int]] = []
        for seqno in range(max(first, stream.delivered + 1), min(last, stream.delivered + AHEAD_MAX) + 1):
            if seqno in stream.apart:
                continue
            if not most:
                break
            most -= 1
            if missing and missing[-1][1] == seqno - 1:
                missing[-1] = missing[-1][0], seqno
            else:
                missing.append((seqno, seqno))
        return tuple(missing)

    def received(self, sender: int) -> int:
        stream = self._streams.get(sender)
        return 0 if stream is None else stream.received

    def catalogs(self) -> Sequence[Catalog]:
        if self._store is None and not self._settings.serves:
            return ()
        kept = list(self._served().items())
        most = self._settings.catalog_max
        return [Catalog(dict(kept[at : at + most])) for at in range(0, len(kept), most)] or [Catalog({})]

    # ---- inside

    def _is_in_place(self, sender: int, stream: _Stream, seqno: int, kept: int) -> bool:
        """Whether a new packet of a sender is where its next ones are expected, or proves that they are there.

        Timeline without proofs: b delivers 1 to 10 of a. Somebody sends b the packet 2^62 in a's name: b tells all
        before it as missed, and drops 11, 12, ... as old, for ever.

        Timeline with proofs for packets that are merely late: b joins, and of a hears 14 first, then 15, 11, 12 and 13,
        which the network held up: they were sent before b began, and would come after 14.
        """
        ahead = seqno > stream.delivered + AHEAD_MAX and kept > stream.delivered + 1 and not self.catching_up
        first, last = stream.skipped
        late = stream.began - AHEAD_MAX <= seqno < stream.began
        behind = first <= seqno <= last and not late and not self._waits
        if not ahead and not behind:
            if seqno > stream.delivered:
                stream.elsewhere = None
            return True
        found = stream.elsewhere
        if found is None or not found.last <= seqno <= found.last + AHEAD_MAX:
            found = stream.elsewhere = _Elsewhere(seqno)
        elif seqno > found.last:
            found.last, found.count = seqno, found.count + 1
        if found.count < PROOFS:
            self.doubted += 1
            return False
        stream.elsewhere = None
        if behind:
            self._restore(sender, stream, max(found.first, first))
        return True

    def _restore(self, sender: int, stream: _Stream, seqno: int) -> None:
        """Continues with a packet that was passed over. Messages delivered after that range do not come again."""
        self.restored += 1
        self.collect(sender, stream.delivered + 1)
        self._held_bytes -= sum(map(_size, stream.apart.values()))
        stream.apart.clear()
        stream.rejoins = stream.skipped[1], stream.delivered
        stream.delivered = stream.highest = seqno - 1
        stream.kept = stream.began = seqno
        stream.skipped = stream.skipped[0], seqno - 1

    def _served(self) -> dict[int, tuple[int, int]]:
        """The catalog for joiners: of each sender, the first and the last seqno that is kept."""
        if self._store is not None:
            return dict(self._store.kept())
        streams = self._streams.items()
        return {sender: (each.in_memory[0], each.in_memory[-1]) for sender, each in streams if each.in_memory}

    def _is_too_far(self, stream: _Stream, seqno: int, payload: bytes) -> bool:
        """There is no room for this packet until earlier ones are delivered."""
        too_many = self._held_bytes + _size(payload) > self._settings.held_bytes
        return seqno > stream.delivered + AHEAD_MAX or too_many

    def _wake(self, sender: int, stream: _Stream) -> None:
        """A packet of this sender came. After a long silence of a sender only joiners lack any of its earlier
        packets."""
        if stream.active_ns < self.now_ns - self._settings.active_ns and not self._settings.serves:
            self.collect(sender, stream.delivered + 1)
        stream.active_ns = self.now_ns

    def _begin(self, sender: int, first: int) -> _Stream:
        if len(self._streams) >= SENDERS_MAX:
            self._forget()
        past = self._past.pop(sender, None)
        if past is not None:
            first = past + 1
        stream = self._streams[sender] = _Stream(first, 1 if past is None else first, self.now_ns)
        return stream

    def _forget(self) -> None:
        """Forgets the sender that was silent for longest, except its last seqno."""
        sender = min(
            (each for each in self._streams if each != self._me), key=lambda each: self._streams[each].active_ns
        )
        self.collect(sender, self._streams[sender].delivered + 1)
        stream = self._streams.pop(sender)
        self._held_bytes -= sum(map(_size, stream.apart.values()))
        self._past[sender] = stream.delivered  # the last one that came, so the last to be forgotten
        if len(self._past) > PAST_MAX:
            del self._past[next(iter(self._past))]

    def _advance(self, sender: int, stream: _Stream) -> None:
        while (seqno := stream.delivered + 1) in stream.apart:
            payload = stream.apart.pop(seqno)
            stream.delivered = stream.rejoins[1] if seqno == stream.rejoins[0] else seqno
            if payload is not None:
                self._held_bytes -= _size(payload)
                self._deliver(sender, seqno, payload)
            else:
                self._miss(sender, seqno, seqno)

    def _deliver(self, sender: int, seqno: int, payload: bytes) -> None:
        if self._store is not None:
            self._store.put(sender, seqno, payload)
        self._kept[sender, seqno] = payload
        self._streams[sender].in_memory.append(seqno)
        self._kept_bytes += _size(payload)
        while self._kept_bytes > self._settings.keep_bytes:
            sender_of, oldest = next(iter(self._kept))
            self.collect(sender_of, oldest + 1)
        self._events.append(Delivered(sender, seqno, payload))

    def _miss(self, sender: int, first: int, last: int) -> None:
        self.missed += last - first + 1
        stream = self._streams[sender]
        stream.skipped = (stream.skipped[0] if stream.skipped[1] == first - 1 else first, last)
        before = self._events[-1] if self._events else None
        if isinstance(before, Missed) and before.sender == sender and before.last == first - 1:
            self._events[-1] = before._replace(last=last)
        else:
            self._events.append(Missed(sender, first, last))


def _size(payload: bytes | None) -> int:
    return 0 if payload is None else len(payload) + PACKET_BYTES
