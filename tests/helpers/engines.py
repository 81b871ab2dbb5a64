"""Compiled engines without any I/O: a network of lists, time by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from hostile.forge import Forger

from seqcast._native.engine import LANE_DATA, LANE_UNICAST, SENT, Batch, Engine
from seqcast.config import Config
from seqcast.config.derive import engine_settings
from seqcast.reports import FrameReceived, MemberSuspected, Report

R = TypeVar("R", bound=Report)
CIPHER = 1
"""Number of the cipher of a `Net` whose members have a key: native/seal/seal.h."""
MS = 1_000_000
HOP_NS = 200_000
"""Until a member answers a datagram."""
HEARTBEAT_MS, SUSPECT_MS = 50, 400
"""The engine's heartbeat interval, and when it suspects a silent member, by its default settings."""


def make_engine(member_id: int = 1, make: Callable[..., Engine] = Engine, **settings: object) -> Engine:
    """An engine with the default settings except those given, for multicast alone; acks and probes are quick, as time
    goes by hand."""
    quick = {"ack_delay_ns": 2 * MS, "probe_ns_min": 4 * MS, "slabs_max": 1024}
    default = engine_settings(Config(transport="multicast"))
    return make(member_id=member_id, **{"group_tag": 7, "seed": 1, **default, **quick, **settings})


def secret_of(tag: int) -> bytes:
    """The secret of a view of a ``Net`` whose members have a key."""
    return bytes([tag]) * 32


class Net:
    """Members whose datagrams go from one to another at once, unless `drop` says otherwise."""

    def __init__(
        self, n: int, *, sequencer: int = -1, mechanism: int | None = None, window: int = 1 << 20, share: int = 0,
        room: int = 0, packet: int = 1472, path: int = 0, safe: bool = False, only_send: tuple[int, ...] = (),
        **settings: object,
    ) -> None:  # fmt: skip
        self.only_send = only_send
        self.now, self.mixed = 0, bool(settings.get("mixed"))
        self.drop: Callable[[int, int, int, bytes], bool] = lambda src, dst, lane, datagram: False
        self.ids = [100 + i for i in range(n)]
        self.settings = settings
        self.engines = [self.make(i) for i in range(n)]
        self.stirred: set[int] = set()  # these transmit in the next round
        self.unsent: Counter[int] = Counter()  # bytes that the last transmission of each left
        self.got: list[list[tuple[int, bytes]]] = [[] for _ in range(n)]
        self.markers: list[list[int]] = [[] for _ in range(n)]
        self.transitional: list[list[int]] = [[] for _ in range(n)]  # places in `got`
        self.window, self.share, self.room = window, share, room
        self.packet, self.path, self.mechanism, self.safe = packet, path, mechanism, safe
        self.sealed = "seal" in settings
        self.install(list(range(n)), sequencer=sequencer, tag=1, marker=1)

    def make(self, i: int, **other: object) -> Engine:
        """A new engine for member i, with these settings in place of the group's."""
        return make_engine(self.ids[i], **{"receive": i not in self.only_send, **self.settings, **other})

    def install(
        self,
        members: list[int],
        *,
        sequencer: int,
        tag: int,
        marker: int,
        base: list[int] | None = None,
        origin: list[int] | None = None,
        cuts: dict[int, list[int] | None] | None = None,
        fell: list[bool] | None = None,
        merge: bool = False,
    ) -> None:
        """``merge``: every member was apart from all others."""
        for rank, i in enumerate(members):
            self.engines[i].install(
                tag=tag,
                ids=[self.ids[m] for m in members],
                addresses=[bytes([m + 1]) for m in members],
                rank=rank,
                mechanism=int(sequencer >= 0) if self.mechanism is None else self.mechanism,
                sequencer=sequencer,
                window_bytes=self.window,
                share_bytes=self.share,
                room_bytes=self.room,
                forward_window_bytes=self.window,
                unicast_window_bytes=self.window,
                state_window_bytes=self.window,
                packet_bytes=self.packet,
                path_bytes=self.path,
                base=base or [0] * len(members),
                origin_base=origin or [0] * len(members),
                cut=(cuts or {}).get(i),
                marker=marker,
                now_ns=self.now,
                fell=fell if cuts else None,
                apart=[other != i for other in members] if merge else None,
                safe=self.safe,
                secret=secret_of(tag) if self.sealed else b"",
                cipher=CIPHER,
            )

    def step(self, ns: int = MS, take: bool = True) -> int:
        """Lets `ns` pass, from deadline to deadline, as drivers do: an engine runs at its own deadline, when a
        datagram comes, and after calls of its application, and transmits if asked to. Moves every datagram,
        takes all deliveries."""
        end, moved, restless = self.now + ns, 0, 0
        self.stirred.update(range(len(self.engines)))
        while True:
            moved += self.move()
            if take:
                for i in range(len(self.engines)):
                    self.take(i)
            due = max(min(engine.deadline() for engine in self.engines), self.now)
            if self.stirred:
                due = min(due, self.now + HOP_NS)
            if due > end:
                self.now = end
                return moved
            restless = restless + 1 if due == self.now else 0
            assert restless < 100, f"engines would run for ever at {self.now}"
            self.now = due

    def send_all(self, senders: tuple[int, ...], ns: int) -> None:
        """Lets `ns` pass while these members send as much as they may. They use credit before the next heartbeat, which
        looks for who holds them up."""
        for part in (ns - 1000, 1000):
            for sender in senders:
                while self.engines[sender].send(bytes(1000)) == SENT:
                    pass
            self.step(part, take=False)

    def move(self) -> int:
        """One round of every engine that has to run."""
        moved = 0
        for src, engine in enumerate(self.engines):
            if engine.deadline() <= self.now:
                engine.tick(self.now)
            elif src not in self.stirred:
                continue
            self.stirred.discard(src)
            if not (engine.urgent() or engine.unsent() > self.unsent[src]):
                continue  # nor would a driver
            for lane, address, datagram in engine.transmit(self.now):
                for way, dst in self._aimed(src, lane, address):
                    if not self.drop(src, dst, way, datagram):
                        self.engines[dst].receive(datagram, bytes([src + 1]), self.now)
                        self.stirred.add(dst)
                        moved += 1
            self.unsent[src] = engine.unsent()
        return moved

    def _aimed(self, src: int, lane: int, address: bytes) -> list[tuple[int, int]]:
        """Lane and receiver of each copy, as transports aim: among two a packet keeps its lane here."""
        if address:
            return [(lane, address[0] - 1)]
        alone, together = self.engines[src].targets() if self.mixed and lane == LANE_DATA else ([], True)
        others = [(lane, i) for i in range(len(self.engines)) if i != src]
        return (others if together else []) + [(LANE_UNICAST, each[0] - 1) for each in alone]

    def take(self, i: int) -> None:
        while (item := self.engines[i].deliver()) is not None:
            self.stirred.add(i)
            if isinstance(item, Batch):
                payloads = item.tolist()
                for run in item.runs:
                    if run["transitional"]:
                        self.transitional[i] += range(len(self.got[i]), len(self.got[i]) + int(run["n"]))
                    for k in range(run["n"]):
                        self.got[i].append((int(run["sender"]), payloads[int(run["first"]) + k]))
            else:
                self.markers[i].append(item)

    def run(self, steps: int = 400, ns: int = MS, take: bool = True) -> None:
        for _ in range(steps):
            self.step(ns, take)


def feed(net: Net, sent: dict[int, list[bytes]], steps: int = 4000) -> None:
    """Sends each member's list in order, as credit allows."""
    todo = {i: list(messages) for i, messages in sent.items()}
    for _ in range(steps):
        for i, messages in todo.items():
            while messages and net.engines[i].send(messages[0]) == SENT:
                messages.pop(0)
        net.step()
        if not any(todo.values()):
            break
    net.run(600)


def messages(seed: int, n: int, most: int = 5000) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice([0, 1, 20, 100, 1000, most])) + i.to_bytes(4, "little") for i in range(n)]


def change_view(
    net: Net, survivors: list[int], members: list[int], *, sequencer: int, tag: int, steps: int = 200,
    take: bool = True, merge: bool = False,
) -> None:  # fmt: skip
    """The cut (design, steps 3 to 5) by an observer that sees everything: survivors of the whole first view."""
    n = len(net.engines)
    lost = [net.ids[i] for i in range(n) if i not in survivors]
    last = {i: net.engines[i].gate_close() for i in survivors}
    for i in survivors:
        net.engines[i].freeze(lost)
    cut, fetch = [], []
    for rank in range(n):
        held = {i: net.engines[i].held(rank) for i in survivors}
        if rank in survivors:
            cut.append(last[rank])
            continue
        have = {
            i: set(range(1, prefix + 1)) | {s for lo, hi in ranges for s in range(lo, hi + 1)}
            for i, (prefix, ranges) in held.items()
        }
        union, end = set().union(*have.values()), 0
        while end + 1 in union:
            end += 1
        cut.append(end)
        fetch += [(rank, s, s, next(i for i in survivors if s in have[i])) for s in range(1, end + 1)]
    for rank in survivors:
        fetch.append((rank, 1, max(last[rank], 1), rank))
    for i in survivors:
        net.engines[i].cut(cut, [f for f in fetch if f[3] != i and f[0] != i])
    for _ in range(steps):
        net.step(take=take)
        if all(net.engines[i].cut_reached() for i in survivors):
            break
    assert all(net.engines[i].cut_reached() for i in survivors)
    tables = [net.engines[i].received_table() for i in survivors]
    assert all(table == tables[0] for table in tables) or sequencer < 0
    net.install(
        members,
        sequencer=sequencer,
        tag=tag,
        marker=tag,
        base=[cut[i] if i < n else 0 for i in members],
        origin=[tables[0][i] if i < n else 0 for i in members],
        cuts=dict.fromkeys(survivors, cut),
        fell=[i not in survivors for i in range(n)],
        merge=merge,
    )


class Traffic:
    """Three members send messages of random length while a fifth of all datagrams is lost; the first member will crash
    later.

    Args:
        net: four members.
        rng: decides the senders, messages, pauses and losses.
        size: a message has 5 bytes and fewer than this many more.
    """

    def __init__(self, net: Net, rng: random.Random, size: int) -> None:
        self.net, self.rng, self.size = net, rng, size
        self.sent: dict[int, list[bytes]] = {1: [], 2: [], 3: []}

    def send(self, i: int) -> None:
        number = len(self.sent[i]).to_bytes(4, "little")
        message = i.to_bytes(1, "little") + number + self.rng.randbytes(self.rng.randrange(self.size))
        if self.net.engines[i].send(message) == SENT:
            self.sent[i].append(message)

    def until_crash(self, of_first: bytes = b"") -> None:
        """A few hundred messages, each followed by one of the first member, if given; then nothing from that one
        arrives."""
        self.net.drop = lambda src, dst, lane, datagram: self.rng.random() < 0.2
        for _ in range(self.rng.randrange(100, 300)):
            self.send(self.rng.choice([1, 2, 3]))
            if of_first:
                self.net.engines[0].send(of_first)
            if self.rng.random() < 0.3:
                self.net.step(self.rng.randrange(5 * MS))
        self.net.drop = lambda src, dst, lane, datagram: 0 in (src, dst) or self.rng.random() < 0.1

    def after_crash(self) -> None:
        """A few messages more, until all are there."""
        for _ in range(50):
            self.send(self.rng.choice([1, 2, 3]))
            self.net.step()
        self.net.run(1500)


def of_sender(net: Net, i: int, sender: int) -> list[bytes]:
    return [payload for who, payload in net.got[i] if who == net.ids[sender]]


def reports_of(engine: Engine, kind: type[R]) -> list[R]:
    """The reports of this kind; those of other kinds are taken, too."""
    return [report for report in engine.reports() if isinstance(report, kind)]


def count_reports(net: Net, i: int) -> Counter[Report]:
    """The reports of member i that are not frames. Suspicions have no evidence here."""
    reports = [each for each in net.engines[i].reports() if not isinstance(each, FrameReceived)]
    return Counter(MemberSuspected(each.member) if isinstance(each, MemberSuspected) else each for each in reports)


def deaf(source: int, target: int):
    """Nothing comes from one member to another."""
    return lambda src, dst, lane, datagram: (src, dst) == (source, target)


def forged(type_: int, sender: int, body: bytes) -> bytes:
    """A datagram with a right CRC."""
    return Forger(7).datagram(type_, sender, 1, body)
