"""The sockets of a simulated process: datagrams in its kernel and the socket driver."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from seqcast._native.engine import LANE_DATA, LANE_UNICAST, SLAB_BYTES, Engine
from seqcast.core.endpoint import Endpoint
from seqcast.sim.network import Clock, Network
from seqcast.sim.options import MS, Options
from seqcast.sim.record import Record
from seqcast.sim.wire import GROUP, MESSAGES, REPAIRED, header, kind
from seqcast.types import ViewId

BACKLOG_MAX = 2000
"""Datagrams that a socket's buffer holds while its process is paused."""
MERGED_MAX = 64
"""Datagrams that a kernel merges into one buffer (UDP_GRO)."""
KEPT_BYTES = SLAB_BYTES // 4
"""From this size on the engine keeps the buffer instead of a copy of the part it needs."""
RUNS = 8
"""Runs of datagrams that the driver takes from the engine at a time."""
FULL_NS_MAX = 20 * MS
"""How long the kernel has no room for datagrams, at most; mostly much shorter."""

Datagram = tuple[int, bytes, bytes]
"""Lane, address, bytes."""


class SocketProcess(Protocol):
    """The interface of a process to its sockets."""

    clock: Clock
    endpoint: Endpoint
    engine: Engine
    record: Record
    paused_until: int

    @property
    def now(self) -> int: ...
    @property
    def network(self) -> Network: ...
    def service(self) -> None: ...
    def leave_for(self, lane: int, to: bytes, datagram: bytes) -> None:
        """On the wire."""


def runs(datagrams: Sequence[Datagram]) -> Iterator[list[Datagram]]:
    """Consecutive datagrams of one address and size, of which the last may be shorter: UDP_SEGMENT sends, and UDP_GRO
    receives, such a run in one call."""
    run: list[Datagram] = []
    room = 0
    for each in datagrams:
        lane, address, datagram = each
        fits = run and len(datagram) <= room and len(run) < MERGED_MAX
        if not fits or run[0][:2] != (lane, address) or not len(run[-1][2]) == len(run[0][2]) >= len(datagram):
            if run:
                yield run
            run, room = [], SLAB_BYTES - 1
        run.append(each)
        room -= len(datagram)
    if run:
        yield run


class Sockets:
    """The sockets of one process.

    Args:
        machine: the process.
        options: of the run.
        rng: of when the kernel has no room, and which runs of datagrams stay together.
    """

    def __init__(self, machine: SocketProcess, options: Options, rng: random.Random) -> None:
        self.machine, self.options, self.rng = machine, options, rng
        self.backlog: list[Datagram] = []  # datagrams that came while the process was paused
        self.arrived: list[Datagram] = []  # at this instant
        self.taken: set[int] = set()  # hashes of sealed datagrams that the engine has taken in
        self.taken_in: ViewId | None = None  # in this view
        self.rest: list[list[Datagram]] = []  # taken from the engine, but not handed to the kernel
        self.lent: list[Datagram] | None = None  # how the engine's memory looked, when the kernel first had no room
        self.all = False  # open packets are to be transmitted, too
        self.flush_asked = False
        self.unsent = 0  # bytes, at the end of the last event

    @property
    def _paused(self) -> bool:
        return self.machine.clock.now < self.machine.paused_until

    # ---- in

    def arrive(self, datagram: bytes, address: bytes, lane: int) -> None:
        """Comes from the network."""
        machine = self.machine
        if self._paused:
            if len(self.backlog) < BACKLOG_MAX:
                self.backlog.append((lane, address, datagram))
        elif self.options.together:
            if not self.arrived:
                machine.clock.at(machine.clock.now, self._receive_arrived)
            self.arrived.append((lane, address, datagram))
        else:
            self._receive([(lane, address, datagram)])
            machine.service()

    def _receive_arrived(self) -> None:
        """The datagrams that arrived at this instant, in one call of the kernel."""
        came, self.arrived = self.arrived, []
        if self.machine.record.up and not self._paused:
            self._receive(came)
            self.machine.service()

    def resume(self) -> None:
        """After a pause, with the contents of the socket buffer."""
        backlog, self.backlog = self.backlog, []
        self._receive(backlog)

    def _receive(self, datagrams: list[Datagram]) -> None:
        engine, now, paths = self.machine.engine, self.machine.now, self.machine.record.paths
        for run in runs(datagrams) if self.options.together else ([each] for each in datagrams):
            _, address, buffer = run[0]
            segment = 0
            if len(run) > 1:
                paths["merged datagrams"] += len(run)
                buffer, segment = b"".join(datagram for _, _, datagram in run), len(buffer)
            if len(buffer) >= KEPT_BYTES:
                paths["buffers that the engine may keep"] += 1
            took = engine.receive(buffer, address, now, segment)
            if took and not segment:
                self._judge(buffer)

    def _judge(self, datagram: bytes) -> None:
        """The engine has taken in this datagram: did a member send one so, and, if sealed, for the first time? (Seqnos
        tell packets apart, and who is in no view with us may repeat frames.)"""
        record, seen = self.machine.record, header(datagram)
        if not self.machine.network.is_sound(record.index, datagram):
            record.violations.append(f"seal: {record} takes in a datagram that nobody has sent, of type {seen.kind}")
        view = record.current if self.machine.endpoint.view else None  # a leaver is out before its application is
        if not self.options.keyed or seen.kind in REPAIRED or view is None or view.rank(seen.sender) < 0:
            return
        if self.taken_in != view.view_id:
            self.taken_in = view.view_id
            self.taken.clear()
        if hash(datagram) in self.taken:
            record.violations.append(f"seal: {record} takes in the same datagram twice, of type {seen.kind}")
        self.taken.add(hash(datagram))

    # ---- out

    def packed(self) -> None:
        """The application has sent: open packets leave at the end of the event, or later if the driver waits for
        more."""
        options, clock = self.options, self.machine.clock
        if not options.corked_ns:
            self.all = True
        elif not self.flush_asked:
            self.flush_asked = True
            clock.at(clock.now + options.corked_ns, self._flush)

    def transmit(self) -> None:
        """As at the end of an event of the driver, which transmits only if the event made something urgent, left more
        unsent bytes, or was a call that flushes. Nothing else would notice a wake-up that the engine forgot."""
        engine = self.machine.engine
        if self.all or engine.urgent() or engine.unsent() > self.unsent:
            self._transmit()
        self.unsent = engine.unsent()

    def _flush(self) -> None:
        """Nothing more is waited for."""
        machine = self.machine
        if not machine.record.up:
            return
        if self._paused:
            machine.clock.at(machine.paused_until, self._flush)
            return
        self.flush_asked, self.all = False, True
        machine.record.paths["flushes"] += 1
        self._transmit()
        machine.service()

    def _transmit(self) -> None:
        if self.rest:
            return  # one thread at a time; runs that the engine has now leave when that one is done
        if self.options.full:
            self._transmit_rounds()
            return
        machine = self.machine
        datagrams, self.all = self._aimed(machine.engine.transmit(machine.now, self.all)), False
        for run in runs(datagrams) if self.options.together else (datagrams,):
            self._leave(run)

    def _transmit_rounds(self) -> None:
        """In rounds of ``RUNS`` runs, as the driver does. The runs of one round do not change until the next."""
        machine = self.machine
        while machine.record.up:
            if not self.rest:
                self.lent = None
                self.rest = list(runs(self._aimed(machine.engine.transmit(machine.now, self.all, RUNS))))
            if not self.rest:
                self.all = False
                return
            if self.rng.random() < self.options.full and not machine.network.healed:
                self.lent = self.lent or machine.engine.lent()
                machine.record.paths["waits for the kernel"] += 1
                machine.clock.at(machine.clock.now + 1 + int(FULL_NS_MAX * self.rng.random() ** 4), self._go_on)
                return
            self._leave(self.rest.pop(0))

    def _aimed(self, datagrams: list[Datagram]) -> list[Datagram]:
        """As the transport does: to the group by multicast; packets to each target that gets them by unicast, also or
        alone; and everything without multicast."""
        targets, together = self.machine.engine.targets() if datagrams else ([], True)
        alone = self.options.transport == "unicast"
        if not alone and not targets:
            return datagrams
        aimed: list[Datagram] = []
        for run in runs(datagrams):
            copied = run[0][0] == LANE_DATA or (alone and run[0][0] != LANE_UNICAST)
            if not copied or together:
                aimed += run
            if copied:
                aimed += [(LANE_UNICAST, target, datagram) for target in targets for _, _, datagram in run]
        return aimed

    def _go_on(self) -> None:
        """The kernel has room again."""
        machine = self.machine
        if not machine.record.up:
            return
        if self._paused:
            machine.clock.at(machine.paused_until, self._go_on)
            return
        if machine.engine.lent() != self.lent:
            machine.record.violations.append(f"transmit: {machine} has changed a run whose transmission had begun")
        self._leave(self.rest.pop(0))
        self._transmit_rounds()
        machine.service()

    def _leave(self, run: Sequence[Datagram]) -> None:
        """Puts datagrams on the wire, perhaps all of them together."""
        machine, record = self.machine, self.machine.record
        if len(run) > 1 and self.options.together:
            machine.network.train = {} if self.rng.random() < self.options.together else None
        for lane, to, datagram in run:
            record.datagrams[kind(datagram)] += 1
            if kind(datagram) in MESSAGES:
                record.packets_sent += 1
                if self.options.suspends:
                    self._note_first(datagram)
            if lane == LANE_UNICAST or record.up:  # an ambush may crash the process in the middle
                machine.leave_for(lane, to, datagram)
        machine.network.train = None

    def _note_first(self, datagram: bytes) -> None:
        """A packet of the group's leaves for the first time."""
        record, seen = self.machine.record, header(datagram)
        stream = seen.kind, seen.view_tag
        if seen.kind in GROUP and seen.sender == record.id and seen.seqno > record.highest.get(stream, 0):
            record.highest[stream] = seen.seqno
            record.first_sent.append((self.machine.clock.now, seen.view_tag))
