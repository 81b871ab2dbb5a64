"""Literal readings of the rules of order, stability and merging: E-01 to E-07, and parts of E-10 and E-12.

A part of those in ``sim_literal``. Here an engine treats datagrams as one built by the words of the documents would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from rewired import replaced

import seqcast.core.machines.initiator
from seqcast._native.bare import crc32c
from seqcast._native.engine import Engine
from seqcast.core.frames.closing import Cut
from seqcast.core.frames.view import NewView
from seqcast.core.installer import Installer
from seqcast.core.machines.initiator import Initiator
from seqcast.core.machines.participant import Participant
from seqcast.core.rules.cut import fix_cut
from seqcast.sim import World, families
from seqcast.sim.checkers import liveness, safety
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process

DATA, FORWARD, ACK = 1, 3, 4  # types of datagrams: docs/wire.md


def sealed(datagram: bytearray) -> bytes:
    """A datagram that was changed, with its CRC."""
    datagram[4:8] = bytes(4)
    datagram[4:8] = crc32c(datagram).to_bytes(4, "little")
    return bytes(datagram)


def number(datagram: bytes, at: int) -> int:
    return int.from_bytes(datagram[at : at + 8], "little")


class _Overtaken(Engine):
    """The sequencer takes forwards as they come, and discards those not higher than the last (E-01, SEQ-07)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.tag = 0
        self.came: dict[int, list[int]] = {}  # member -> highest seqno that came, and its number here
        self.fresh = False

    def install(self, **arguments: Any) -> None:
        self.tag, self.fresh = arguments["tag"], True
        bases = zip(arguments["ids"], arguments["origin_base"], strict=True)
        self.came = {member: [base, base] for member, base in bases}
        super().install(**arguments)

    def receive(self, datagram: bytes, address: bytes, now_ns: int, *lane: int) -> int:
        sender = number(datagram, 16)
        if datagram[2] == FORWARD and number(datagram, 24) == self.tag and sender in self.came:
            taken, seqno = self.came[sender], number(datagram, 32)
            if seqno <= taken[0]:
                return 0
            taken[0], taken[1] = seqno, taken[1] + 1
            datagram = sealed(bytearray(datagram[:32] + taken[1].to_bytes(8, "little") + datagram[40:]))
        return super().receive(datagram, address, now_ns, *lane)


@contextlib.contextmanager
def overtaken() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Overtaken}


@contextlib.contextmanager
def order_not_levelled() -> Iterator[dict[str, Any]]:
    """Survivors continue with their own packets of the old sequencer's stream, and send the rest to the new one
    (E-02)."""

    def fetch(self: Participant, frame: Cut) -> None:
        assert self.context.view is not None
        cut, sequencer = list(frame.cut), self.context.view.sequencer
        if sequencer >= 0:
            cut[sequencer] = min(cut[sequencer], self.context.plane.held(sequencer)[0])
        self.context.plane.cut(cut, frame.fetch)

    def held(self: Participant, frame: NewView) -> bool:
        return frame.attempt == self.promise

    with replaced(Participant, fetch=fetch), mock.patch.object(Participant, "may_install", held):
        yield {}


@contextlib.contextmanager
def own_receipt() -> Iterator[dict[str, Any]]:
    """A sender forgets messages that came back to it; the cut ends at the prefix that all survivors have, and nobody
    sends the rest (E-03)."""

    def literal(n: int, oks: Any) -> Any:
        cut, fetch = fix_cut(n, oks)
        lowest = [min(ok.held[rank].prefix for ok in oks.values()) for rank in range(n)]
        ends = tuple(end if rank in oks else lowest[rank] for rank, end in enumerate(cut))
        return ends, tuple(each for each in fetch if each.rank in oks)

    with mock.patch.object(seqcast.core.machines.initiator, "fix_cut", literal):
        yield {}


class _Racing(_Overtaken):
    """Messages sent again after a failover race with new ones: the newest comes first (E-04)."""

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        out = super().transmit(now_ns, all, runs_max)
        forwards = [place for place, (_, _, datagram) in enumerate(out) if datagram[2] == FORWARD]
        if self.fresh and forwards:
            self.fresh = False
            turned = [out[place] for place in reversed(forwards)]
            for place, datagram in zip(forwards, turned, strict=True):
                out[place] = datagram
        return out


@contextlib.contextmanager
def racing_resend() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Racing}


class _Once(Engine):
    """A forward that reaches the new sequencer before the view is refused, and never sent again (E-05)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.gone: set[tuple[int, int]] = set()

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        return [each for each in super().transmit(now_ns, all, runs_max) if self.first(each[2])]

    def first(self, datagram: bytes) -> bool:
        key = number(datagram, 24), number(datagram, 32)
        again = datagram[2] == FORWARD and key in self.gone
        if datagram[2] == FORWARD:
            self.gone.add(key)
        return not again


@contextlib.contextmanager
def forward_refused() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Once}


@contextlib.contextmanager
def same_incarnation() -> Iterator[dict[str, Any]]:
    """A process that starts again has the same id as before, and begins with the first seqno (E-06).

    Its application sees no difference, and continues its count. Checks that know processes, not ids, are left out.
    """
    install, start = Installer.install, World.start_node

    def forgetful(self: Installer, frame: NewView, first: bool) -> None:
        install(self, frame, first)
        self.context.departed.clear()

    def again(self: World, name: str) -> None:
        fallen = [node for node in self.nodes if not node.up and self.by_address[node.address] is node]
        if not name.startswith("r") or not fallen:
            start(self, name)
            return
        old = fallen[-1]
        node = Process(self, old.index, name, self.options, self.make_engine, self.make_endpoint)
        record, fallen_record = node.record, old.record
        record.sent, record.sent_to, record.counters_to = (
            fallen_record.sent,
            fallen_record.sent_to,
            fallen_record.counters_to,
        )
        node.record.counter = max(old.record.sent, default=-1) + 1
        node.application.sender.on = not self.settling
        self.nodes.append(node)
        self.by_address[node.address] = node
        node.start()
        node.service()

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Installer, "install", forgetful))
        stack.enter_context(mock.patch.object(World, "start_node", again))
        for module, name in ((safety, "_check_integrity"), (safety, "_check_excluded"), (liveness, "check_delivered")):
            stack.enter_context(mock.patch.object(module, name, lambda *_: iter(())))
        yield {}


class _OwnLost(Engine):
    """The sequencer's own messages are in nobody's table: a member that lacks them does not get them from another
    (E-07)."""

    me = sequencer = -1

    def install(self, **arguments: Any) -> None:
        self.me, self.sequencer = arguments["ids"][arguments["rank"]], arguments["sequencer"]
        super().install(**arguments)

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        return [each for each in super().transmit(now_ns, all, runs_max) if not self.served(each[2])]

    def served(self, datagram: bytes) -> bool:
        """A packet of the sequencer's own messages, sent by another member in its place."""
        own = int.from_bytes(datagram[78:80], "little") == self.sequencer
        return datagram[2] == DATA and number(datagram, 16) != self.me and own


@contextlib.contextmanager
def own_lost() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _OwnLost}


class _OneTooFar(Engine):
    """ "Lower" is read as "lower or equal": a vote names the packet that is expected next (E-10)."""

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        return [(lane, to, self.raised(datagram)) for lane, to, datagram in super().transmit(now_ns, all, runs_max)]

    def raised(self, datagram: bytes) -> bytes:
        if datagram[2] != ACK or number(datagram, 40):
            return datagram
        vote = bytearray(datagram)
        for at in (48, 56, 64):
            vote[at : at + 8] = (number(datagram, at) + 1).to_bytes(8, "little")
        return sealed(vote)


@contextlib.contextmanager
def one_too_far() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _OneTooFar}


class _NeverEmpty(Engine):
    """The list of members not heard keeps crashed ones: nothing becomes stable any more (E-10)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.known: set[int] = set()
        self.waits = False

    def install(self, **arguments: Any) -> None:
        self.known |= set(arguments["ids"])
        self.waits = self.known != set(arguments["ids"])
        super().install(**arguments)

    def receive(self, datagram: bytes, address: bytes, now_ns: int, *lane: int) -> int:
        if self.waits and datagram[2] == ACK and not number(datagram, 40):
            return 0
        return super().receive(datagram, address, now_ns, *lane)


@contextlib.contextmanager
def never_empty() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _NeverEmpty}


@contextlib.contextmanager
def hearsay() -> Iterator[dict[str, Any]]:
    """For a merge a coordinator reports *its own* position in each stream of its subgroup, and asks none of them
    (E-12)."""
    original = Initiator.send_cut

    def send_cut(self: Initiator, *arguments: object) -> None:
        if self.context.merging:
            own = self.oks[self.context.rank]
            self.oks = {rank: replace(own, last=own.held[rank].prefix) for rank in self.oks}
        original(self, *arguments)

    with replaced(Initiator, send_cut=send_cut):
        yield {}


_ORDERED = families.calm(order="sequencer", rate=1000, bytes_max=3000, duration_ns=SECOND, unicasts=0)
VARIANTS = {
    "overtaken": overtaken,
    "order_not_levelled": order_not_levelled,
    "own_receipt": own_receipt,
    "racing_resend": racing_resend,
    "forward_refused": forward_refused,
    "same_incarnation": same_incarnation,
    "own_lost": own_lost,
    "one_too_far": one_too_far,
    "never_empty": never_empty,
    "hearsay": hearsay,
}
STORMS: dict[str, dict[str, Any]] = {
    "overtaken": _ORDERED,
    "order_not_levelled": _ORDERED | {"crashes": 1, "loss": 0.1, "delay_ns": 2 * MS},
    "own_receipt": _ORDERED | {"crashes": 1, "loss": 0.1, "delay_ns": 2 * MS},
    "racing_resend": _ORDERED | {"crashes": 2, "jitter_ns": 0, "delay_ns": 5 * MS},
    "forward_refused": _ORDERED | {"policy": "joiners_first", "spread_ns": 500 * MS, "jitter_ns": 5 * MS},
    "same_incarnation": families.calm(crashes=1, restarts=1, jitter_ns=1000, hosts=True, unicasts=0),
    "own_lost": _ORDERED | {"crashes": 1, "loss": 0.1, "delay_ns": 2 * MS},
    "one_too_far": families.calm(loss=0.1, unicasts=0),
    "never_empty": families.calm(crashes=1, rate=600, bytes_max=20_000, capacity=64 << 10, unicasts=0),
    "hearsay": families.calm(partitions=1, duration_ns=2 * SECOND, delay_ns=2 * MS, loss=0.05),
}  # fmt: skip
