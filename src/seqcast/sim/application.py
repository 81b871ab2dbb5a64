"""A simulated application: it sends and records what it is told, pauses the group, has callbacks and a state."""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from seqcast._native.engine import AGAIN, ENDED, NO_VIEW, SENT, Batch, Engine, Sending
from seqcast.config.derive import nanoseconds
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.backlog import Item
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.vocabulary import (
    CallbackReturned,
    CallBlock,
    CallUnblock,
    CloseGroup,
    Effect,
    ExcludedBy,
    Input,
    JoinFailed,
    LeaveGroup,
    Left,
    Meaning,
    Minority,
    PauseHeld,
    PauseOver,
    StateHeld,
    StateLost,
    TakeState,
    ViewInstalled,
    Waiting,
    Warn,
)
from seqcast.events import Blocked, InterfaceChanged, Lost, Unblocked
from seqcast.sim.network import Clock
from seqcast.sim.options import MS
from seqcast.sim.record import Delivered, Entry, PauseRun, Record, Run, Together
from seqcast.sim.settings import config
from seqcast.sim.state import Chain, StateKeeper
from seqcast.sim.taken import Waits
from seqcast.types import MergeView, View

_HEAD = struct.Struct("<QQQ")  # sender, its counter, destination or 0
PENDING_MAX = 20
PAUSE_TIMEOUT_NS = 3000 * MS


class Machine(Protocol):
    """What an application needs of the process that it runs in."""

    clock: Clock
    engine: Engine
    endpoint: Endpoint

    @property
    def now(self) -> int: ...
    @property
    def wall(self) -> int: ...
    @property
    def busy_until(self) -> int:
        """Virtual time before which the application does not run."""

    @property
    def takes(self) -> bool:
        """Nothing keeps the application from taking what is delivered."""

    def step(self, *inputs: Input) -> None: ...
    def service(self) -> None: ...
    def trace(self, text: str) -> None: ...
    def name_of(self, member_id: int) -> str: ...
    def start_again(self) -> None:
        """Another process of its kind tries again."""

    def may_give(self) -> bool:
        """Its handler gives the state this time."""

    def taken(self, numbers: Sequence[int], since: Sequence[Together]) -> None:
        """A wait has ended: the application is told that all others have taken its messages with these numbers."""


def payload(sender: int, counter: int, to: int, length: int) -> bytes:
    """A message that can be checked byte by byte: its filler follows from its counter."""
    return _HEAD.pack(sender, counter, to) + _filler(counter, length - _HEAD.size)


def _filler(counter: int, length: int) -> bytes:
    unit = counter.to_bytes(8, "little")
    return (unit * (length // 8 + 1))[: max(length, 0)]


class Application:
    """What runs in one process, and its record.

    Args:
        machine: the process.
        record: where it writes what it does and is told.
        rng: of what it sends.
        callbacks: of what its callbacks do.
    """

    def __init__(self, machine: Machine, record: Record, rng: random.Random, callbacks: random.Random) -> None:
        self.machine, self.record, self.options = machine, record, record.options
        self.rng, self.callbacks = rng, callbacks
        settings = config(self.options)
        self.block_deadline_ns = nanoseconds(settings.block_deadline_s)
        self.state_timeout_ns = nanoseconds(settings.state_timeout_s)
        self.sending = True
        self.sending_now: Sending | None = None  # the first that is pending, if a part of it is packed
        self.refused_sends = False  # the engine takes nothing more, as this member leaves
        self.packed_before = 0  # messages that were in packets whole by then, and are yet to be noted
        self.tag = 0  # of the view that the application is in
        self.waits = Waits(machine, record)
        self.chain = Chain(self.options.state_bytes)
        self.pause = PauseRequest(machine.endpoint.edges)
        self.keeper = StateKeeper(machine, record, self)
        self.loads = random.Random(f"loads {self.options.seed} {record.index}")

    @property
    def view(self) -> View | None:
        """The newest view, while the membership lasts."""
        return None if self.record.over else self.record.view

    @property
    def can_run(self) -> bool:
        return self.machine.clock.now >= self.machine.busy_until

    # ---- what it is told by the control plane

    def told(self, effect: Effect) -> None:
        """Takes an effect of a step, as the world of a process hands it on."""
        record = self.record
        match effect:
            case ViewInstalled(view):
                record.view, record.minority = view, ""
                self.waits.note_view(view)
            case Waiting(reason):
                record.waiting = reason
            case Minority(reason):
                record.minority = reason
            case ExcludedBy():
                self.keeper.over()
                record.over = True
            case JoinFailed(error, cause):
                record.over = True
                if cause != "incarnation":
                    record.error = error
            case Left() as left:
                self.keeper.over()
                record.over, record.left = True, left
            case TakeState() | StateHeld() | StateLost():
                self.keeper.told(effect)
            case PauseHeld() | PauseOver():
                self.pause_told(effect)
            case CallBlock(run):
                self.call_block(run)
            case CallUnblock():
                self.call_unblock()
            case Warn(text):
                record.warnings.append(text)

    def run(self) -> None:
        """Does what it does whenever it gets the processor."""
        machine = self.machine
        if machine.takes:
            self.consume()
            self.waits.look(self.view is not None, self.under_way())
        self.look_at_queue()

    def work_on(self) -> None:
        """State and messages on their way."""
        self.keeper.step()
        if self.record.pending:
            self.send_pending()

    def deadline(self) -> int:
        """When it has to run at the latest, on the clock of its machine."""
        return self.keeper.due()

    # ---- what it sends

    def produce(self) -> None:
        """Wants to send now, and again after a while."""
        record, rng, clock = self.record, self.rng, self.machine.clock
        if not record.alive or not self.sending:
            return
        if len(record.pending) < PENDING_MAX and record.inside:
            for _ in range(rng.choice((1, 1, 1, 1, 8))):
                length = _HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.05 else 200)
                view, to = self.view, 0
                if view is not None and len(view.members) > 1 and rng.random() < self.options.unicasts:
                    to = rng.choice([member.id for member in view.members if member.id != record.id])
                record.pending.append((to, length))
            if self.can_run:
                self.machine.service()
        clock.at(clock.now + int(rng.expovariate(self.options.rate) * 1e9), self.produce)

    def say_last(self) -> None:
        """In the liveness phase: something that must still get through."""
        self.sending = False
        self.record.pending.append((0, _HEAD.size))
        if self.view is not None:
            self.waits.begin(self.under_way())

    def leave(self) -> None:
        if not self.record.over and self.can_run and self.record.up:
            self.machine.trace("leaves")
            self.record.leaving = True
            self.send_on()
            self.machine.step(LeaveGroup(self.record.leave_ns))
            self.machine.service()

    def send_on(self) -> None:
        """One thread of the application leaves; others have just begun to send, to the group and to single members, and
        go on until they are told that they may not."""
        rng, view, record = random.Random(f"leaver {self.options.seed} {self.record.index}"), self.view, self.record
        if view is None or not record.inside or not self.sending:
            return
        others = [member.id for member in view.members if member.id != record.id]
        for _ in range(rng.choice((0, 3, 12))):
            length = _HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.2 else 200)
            record.pending.append((rng.choice(others) if others and rng.random() < 0.3 else 0, length))
        if rng.random() < 0.7:  # some of it is accepted before the others know that this member leaves
            self.send_pending()

    def end(self, leaves: bool) -> None:
        """Leaves or closes, whatever it has done before."""
        if self.record.up and self.can_run:
            self.machine.trace("leaves, as it is" if leaves else "closes")
            self.record.leaving, self.sending = True, False
            self.machine.step(LeaveGroup(self.record.leave_ns) if leaves else CloseGroup())
            self.record.over |= not leaves
            self.machine.service()

    def send_pending(self) -> None:
        view, record = self.view, self.record
        if view is None or not record.inside:
            return
        while record.pending:
            to, length = record.pending[0]
            counter = record.counters_to.get(to, 0) if to else record.counter
            if self.sending_now is None:
                self.sending_now = Sending(self.machine.engine, payload(record.id, counter, to, length), to)
                # From here on others may deliver it, even if we crash before the engine says SENT.
                if to:
                    record.sent_to[to, counter] = view.view_id
                else:
                    record.sent[counter] = (length, None)
            packed = self.sending_now.packed
            result = self.sending_now.step(self.machine.wall)
            if result in (AGAIN, NO_VIEW):
                return
            self.sending_now = None
            if result == SENT and self.refused_sends and not packed:
                record.violations.append(f"leave: {self} sends number {counter} to {to}, after it was refused one")
            if result == SENT:
                self._accepted(view, to, counter)
            else:
                self._refused(result, to, counter)
            del record.pending[0]

    def _accepted(self, view: View, to: int, counter: int) -> None:
        record = self.record
        if to:
            record.counters_to[to] = counter + 1
            record.sent_to[to, counter] = view.view_id
            if record.blocked:
                record.sent_late.add((to, counter))
        else:
            record.counter += 1
            record.queued.append(counter)
            self.look_at_queue()

    def _refused(self, result: int, to: int, counter: int) -> None:
        if result == ENDED:
            assert self.record.leaving, f"{self} may not send, and does not leave"
            self.refused_sends, self.sending = True, False
        assert to or result == ENDED, f"send to the group in a view gives {result}"
        if to:
            del self.record.sent_to[to, counter]
        else:
            del self.record.sent[counter]

    def under_way(self) -> int:
        """The number of the message to the group of which only a part is packed; -1: there is none."""
        return self.record.counter if self.sending_now is not None and not self.record.pending[0][0] else -1

    def look_at_queue(self) -> None:
        """What the engine has packed since: at once, or when the gate opened. Asked wherever the application has taken
        all that it was delivered, so that it knows whether it is blocked."""
        record, engine = self.record, self.machine.engine
        view, waiting = record.view, engine.blocked()
        if record.queued and not engine.view():  # out of the view, though a leaver may be told so only later
            waiting += engine.counters()["blocked_queue_lost"]
        while view is not None and len(record.queued) > waiting:
            counter = record.queued.popleft()
            record.sent[counter] = (record.sent[counter][0], view.view_id)
            record.accepted.append((self.machine.clock.now, view.view_id))
            # (Where the application waits for its disk, it has yet to hear that it may send.)
            if record.blocked and not self.packed_before and self.machine.takes:
                record.violations.append(f"gate: {self} sends number {counter} after {record.blocked}")
            self.packed_before = max(self.packed_before - 1, 0)

    # ---- what it is delivered

    def consume(self) -> None:
        machine = self.machine
        while self.record.inside or self.keeper.transfer.holds:
            item = machine.engine.deliver(1 << 20, machine.now, machine.wall)
            if item is None:
                break
            for each in machine.endpoint.marker(item) if isinstance(item, int) else (item,):
                if self.record.inside:
                    self.accept(each)
                else:
                    self.keeper.delivered(each)
        if self.record.inside:
            machine.engine.taken()

    def accept(self, item: Item) -> None:
        """It is delivered an item."""
        if isinstance(item, Batch):
            for entry in self._read(item, self.tag):
                self.take(entry)
        else:
            self._reach(item)

    def _reach(self, meaning: Meaning) -> None:
        record = self.record
        if isinstance(meaning, Blocked):
            record.gate.append(meaning)
            record.blocked = meaning
            # A view may have opened the gate in the same step, for all that was queued; and a send may still return.
            self.packed_before = len(record.queued) - self.machine.engine.blocked()
            self.packed_before += self.sending_now is not None and self.sending_now.packed
            if record.runs and not record.runs[-1].returned:
                record.runs[-1].late = True
        elif isinstance(meaning, Unblocked):
            record.gate.append(meaning)
            record.blocked = None
        elif isinstance(meaning, Lost):
            self.take(meaning)
        elif not isinstance(meaning, InterfaceChanged):
            record.gate.append(meaning)
            self.tag = meaning.view_id.tag if isinstance(meaning, View) else 0
            self.take(meaning)

    def take(self, entry: Entry) -> None:
        record = self.record
        record.log.append(entry)
        if isinstance(entry, Delivered) and not entry.to:
            self.chain.take(entry.sender, entry.counter)
        elif isinstance(entry, View):
            tag = entry.view_id.tag
            if isinstance(entry, MergeView):
                self.chain.reconcile(tag)
            if self.options.state:
                record.states[tag] = self.chain.digest()
            if joiners := self.machine.endpoint.joiners_of(tag):
                self.give_state(tag, joiners)

    def _read(self, batch: Batch, tag: int) -> Iterator[Delivered]:
        messages = batch.tolist()
        assert tag == batch.view_tag, f"{self}: a batch of view {tag:x} in view {self.tag:x}"
        for sender, seqno, global_seqno, _sent, first, n, _index, unicast in batch.runs.tolist():
            for number in range(n):
                data = messages[first + number]
                intact = len(data) >= _HEAD.size
                origin, counter, to = _HEAD.unpack_from(data) if intact else (0, 0, 0)
                intact = intact and data[_HEAD.size :] == _filler(counter, len(data) - _HEAD.size)
                place = global_seqno + number if global_seqno else 0
                intact = intact and bool(unicast) == bool(to)
                yield Delivered(origin, counter, to, tag, place, len(data), intact, sender, seqno)

    # ---- pauses and callbacks

    def suspend(self, hold_ns: int) -> None:
        """Pauses the group for so long."""
        record, clock = self.record, self.machine.clock
        if self.view is None or not self.can_run or not self.pause.free:
            return
        self.machine.trace("pauses the group")
        wish = self.pause.ask(PAUSE_TIMEOUT_NS)
        record.pauses.append(PauseRun(wish.request))
        clock.at(clock.now + hold_ns, self.unsuspend)
        self.machine.step(wish)
        self.machine.service()

    def unsuspend(self) -> None:
        if not self.record.alive:
            return
        if not self.can_run:
            self.machine.clock.at(self.machine.busy_until, self.unsuspend)
            return
        self.machine.step(self.pause.resume())
        self.pause.end()
        self.machine.service()

    def pause_told(self, effect: PauseHeld | PauseOver) -> None:
        now, run = self.machine.clock.now, self.record.pauses[effect.request - 1]
        self.pause.told(effect)
        if isinstance(effect, PauseHeld):
            run.held_ns = now
        elif effect.reason:
            run.held_ns = 0
        else:
            run.over_ns = now

    def call_block(self, run: int) -> None:
        """The block callback: takes its time, sends some messages, or never returns."""
        view, rng, clock, runs = self.view, self.callbacks, self.machine.clock, self.record.runs
        self.record.callbacks.append(True)
        late = not self.machine.takes or not self.record.inside  # it cannot see that the gate closes
        runs.append(Run(view.view_id if view else None, [], clock.now, late))
        self.machine.trace(f"runs its block callback, run {run}")
        if rng.random() < 0.15:  # never returns
            return
        messages = rng.choice((0, 0, 1, 5))
        due = clock.now + rng.choice((0, rng.randrange(20 * MS), rng.randrange(2 * self.block_deadline_ns)))
        clock.at(clock.now, self.callback_sends, run, messages, due)

    def callback_sends(self, run: int, messages: int, due: int) -> None:
        """As a callback that calls ``send`` for each, and then takes its time until ``due``."""
        clock, record = self.machine.clock, self.record
        if not record.alive:
            return
        if not self.can_run:
            clock.at(self.machine.busy_until, self.callback_sends, run, messages, due)
            return
        self.send_pending()
        if messages and not record.pending:
            length = _HEAD.size + self.callbacks.randrange(200)
            number = record.counter
            record.pending.append((0, length))
            self.send_pending()
            record.runs[-1].sent.append(number)
            messages -= 1
            self.machine.service()
        if messages or record.pending or clock.now < due:
            again = due if not messages and not record.pending else 0
            clock.at(max(clock.now + MS, again), self.callback_sends, run, messages, due)
            return
        # (What a pause had closed before may not open in that time: its application hears of no second block.)
        record.runs[-1].late |= clock.now - record.runs[-1].begin_ns >= self.block_deadline_ns
        record.runs[-1].returned = True
        self.machine.step(CallbackReturned(run, "an error" if self.callbacks.random() < 0.2 else ""))
        self.machine.service()

    def call_unblock(self) -> None:
        self.record.callbacks.append(False)

    # ---- its state

    def give_state(self, boundary: int, joiners: tuple[int, ...]) -> None:
        self.machine.trace(f"gives its state to {', '.join(map(self.machine.name_of, joiners))}")
        self.keeper.give(boundary, joiners, self.chain.dump() if self.machine.may_give() else None)

    def load_state(self, data: bytes) -> None:
        """Loads it at once, or takes its time, with a read now and then; it may take too long, or fail."""
        if self.loads.random() >= self.options.slow_loads:
            self.loaded(data, fails=False)
        else:
            self.load_slowly(data, self.loads.randrange(4))

    def load_slowly(self, data: bytes, reads: int) -> None:
        clock = self.machine.clock
        if not self.record.alive:
            return
        if not self.can_run:
            clock.at(self.machine.busy_until, self.load_slowly, data, reads)
        elif reads < 0:
            self.loaded(data, fails=self.loads.random() < 0.2)
            self.machine.service()
        else:
            self.keeper.feed(self.keeper.transfer.read(self.machine.now))
            took_ns = self.loads.choice((MS, 300 * MS, 300 * MS, self.state_timeout_ns + MS))
            clock.at(clock.now + took_ns, self.load_slowly, data, reads - 1)

    def loaded(self, data: bytes, fails: bool) -> None:
        transfer, now = self.keeper.transfer, self.machine.now
        if fails:
            self.keeper.feed(transfer.failed("set_state raised", now))
        else:
            self.chain.load(data)
            self.keeper.feed(transfer.loaded(now))

    def enter(self, items: Collection[Item]) -> None:
        """It has the state, and is delivered what came meanwhile."""
        views = 0
        for item in items:
            views += isinstance(item, View)
            if isinstance(item, Batch) and item.view_tag != self.tag and views == 1:  # from before the boundary
                for entry in self._read(item, item.view_tag):
                    assert entry.to, f"{self} is delivered {entry}, which is void"
                    self.record.kept_over.add((entry.sender, entry.counter))
                    self.take(entry)
            else:
                self.accept(item)
        self.machine.engine.taken()

    def give_up(self, error: str) -> None:
        """It cannot get the state."""
        self.machine.trace(f"gives up: {error}")
        self.record.pending.clear()
        self.leave()
        self.machine.start_again()

    def __str__(self) -> str:
        return self.record.name
