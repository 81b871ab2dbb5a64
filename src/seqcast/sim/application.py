"""A simulated application, which sends, records its events, pauses the group, and has callbacks and a state."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from seqcast._native.engine import Batch, Engine
from seqcast.config.derive import to_ns
from seqcast.core.context import NEVER
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.pause_request import PauseRequest
from seqcast.core.state.backlog import Item
from seqcast.core.state.merging import StateMerge
from seqcast.core.state.transfer import Transfer
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
    SetInfo,
    StateHeld,
    StateLost,
    StatePlan,
    TakeState,
    ViewInstalled,
    Waiting,
    Warn,
)
from seqcast.events import Blocked, CoordinatorChanged, InterfaceChanged, Lost, Skipped, Unblocked
from seqcast.sim.network import Clock
from seqcast.sim.options import MS
from seqcast.sim.record import Delivered, Entry, PauseRun, Record, Run, Together
from seqcast.sim.sending import Sender, filler
from seqcast.sim.settings import HEAD, SMALL_MAX, config
from seqcast.sim.skips import Skips
from seqcast.sim.state import StateKeeper
from seqcast.sim.taken import Waits
from seqcast.types import Member, MergeView, View

PAUSE_TIMEOUT_NS = 3000 * MS


class ApplicationProcess(Protocol):
    """The interface of a process to its application."""

    clock: Clock
    engine: Engine
    endpoint: Endpoint

    @property
    def now(self) -> int: ...
    @property
    def wall(self) -> int: ...
    @property
    def can_run(self) -> bool: ...
    @property
    def busy_until(self) -> int:
        """Virtual time before which the application does not run."""

    @property
    def answered(self) -> bool:
        """Its member has answered an attempt to close the view, of which the application may not know yet."""

    @property
    def takes(self) -> bool:
        """Nothing keeps the application from taking deliveries."""

    @property
    def bite(self) -> int:
        """Bytes that the application takes at a time."""

    def took(self, n: int) -> None:
        """The application has taken so many bytes."""

    def poke(self) -> None: ...
    def step(self, *inputs: Input) -> None: ...
    def service(self) -> None: ...
    def trace(self, text: str) -> None: ...
    def name_of(self, member_id: int) -> str: ...
    def record_of(self, member_id: int) -> Record: ...
    def start_again(self) -> None:
        """Another process of its kind tries again."""

    def may_give(self) -> bool:
        """Its handler gives the state this time."""

    def taken(self, numbers: Sequence[int], since: Sequence[Together]) -> None:
        """A wait has ended: the application is told that all others have taken its messages with these numbers."""


class Application:
    """The application of one process, and its record.

    Args:
        machine: the process.
        record: of its actions and events.
        rng: of its messages.
        callbacks: of the choices of its callbacks.
    """

    def __init__(
        self, machine: ApplicationProcess, record: Record, rng: random.Random, callbacks: random.Random
    ) -> None:
        self.machine, self.record, self.options = machine, record, record.options
        self.callbacks = callbacks
        settings = config(self.options)
        self.block_deadline_ns = to_ns(settings.block_deadline_s)
        self.state_timeout_ns = to_ns(settings.state_timeout_s)
        self.sender = Sender(machine, record, rng)
        self.tag = 0  # of the application's view
        self.waits = Waits(machine, record)
        self.chain = record.chain
        self.chain.padding = self.options.state_bytes
        self.pause = PauseRequest(machine.endpoint.edges)
        self.skips = Skips(machine.record_of)
        self.keeper = StateKeeper(machine, record, self)
        self.backlog: deque[Item] = deque()  # to be taken before the engine's deliveries
        self.loads = random.Random(f"loads {self.options.seed} {record.index}")

    @property
    def view(self) -> View | None:
        return self.record.current

    @property
    def can_run(self) -> bool:
        return self.machine.clock.now >= self.machine.busy_until

    # ---- events of the control plane

    def told(self, effect: Effect) -> None:
        """Takes an effect of a step from the process."""
        record = self.record
        match effect:
            case ViewInstalled(view, founding):
                record.view, record.minority = view, ""
                if founding:
                    record.founding.add(view.view_id.tag)
                self.waits.note_view(view)
            case Waiting(reason):
                record.waiting = reason
            case Minority(reason):
                record.minority = reason
            case ExcludedBy(cause=cause):
                self.keeper.over()
                record.over = True
                record.put_out_ns = self.machine.clock.now if cause == "slow" else 0
            case JoinFailed(error, cause):
                record.over = True
                if cause != "incarnation":
                    record.error = error
            case Left() as left:
                self.keeper.over()
                record.over, record.left = True, left
            case TakeState() | StateHeld() | StateLost() | StatePlan():
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
        """Runs whenever the processor is free."""
        machine = self.machine
        if machine.takes:
            self.consume()
            self.waits.look(self.view is not None)

    def work_on(self) -> None:
        """Sends and reads state, and sends messages."""
        if self.record.options.state:
            self.keeper.step()
        if self.record.pending:
            self.sender.send_pending()

    def deadline(self) -> int:
        """When the application has to run at the latest, on the clock of its machine."""
        return self.keeper.due() if self.record.options.state else NEVER

    # ---- its own actions

    def say_last(self) -> None:
        """In the liveness phase: something that must still get through."""
        self.sender.say_last()
        if self.view is not None:
            self.waits.begin()

    def say(self, about: str) -> None:
        if self.can_run and self.record.alive and not self.record.leaving:
            self.machine.trace(f"says {about}")
            self.record.about = about
            self.machine.step(SetInfo(about))
            self.machine.service()

    def leave(self) -> None:
        if not self.record.over and self.can_run and self.record.up:
            self.machine.trace("leaves")
            self.record.leaving = True
            self.sender.send_on()
            self.machine.step(LeaveGroup(self.record.leave_ns))
            self.machine.service()

    def leave_soon(self) -> None:
        if self.can_run or not self.record.alive:
            self.leave()
        else:
            self.machine.clock.at(self.machine.busy_until, self.leave_soon)

    def end(self, leaves: bool) -> None:
        """Leaves or closes, whatever happened before."""
        if self.record.up and self.can_run:
            self.machine.trace("leaves, as it is" if leaves else "closes")
            self.record.leaving, self.sender.on = True, False
            self.machine.step(LeaveGroup(self.record.leave_ns) if leaves else CloseGroup())
            self.record.over |= not leaves
            self.machine.service()

    # ---- deliveries

    def consume(self) -> None:
        machine, keeper = self.machine, self.keeper
        if self.record.stopped and not keeper.merge.stopped:
            self.record.stopped = False
        while machine.takes and not keeper.merge.stopped and (self.record.inside or keeper.transfer.holds):
            if self.backlog:
                self.accept(self.backlog.popleft())
                continue
            item = machine.engine.deliver(machine.bite, machine.now, machine.wall)
            if item is None:
                break
            if isinstance(item, Batch):
                machine.took(item.nbytes)
            each = machine.endpoint.marker(item) if isinstance(item, int) else (self._gap(item),)
            if self.record.inside:
                self.backlog.extend(each)
            else:
                for one in each:
                    keeper.delivered(one)
        if self.record.inside and not self.backlog:
            machine.engine.taken()
            self._take_all(self.skips.settle())

    def _gap(self, item: Batch | tuple[int, int, int, int]) -> Batch | Skipped:
        if isinstance(item, Batch):
            return item
        sender, first, last, messages = item
        self.record.skips_ns.append(self.machine.clock.now)
        return Skipped(Member(self.machine.name_of(sender), sender), first, last, messages)

    def accept(self, item: Item) -> None:
        """The delivery of an item."""
        if isinstance(item, Batch):
            for entry in self._read(item, self.tag):
                self._take_all(self.skips.delivered(entry))
                self.take(entry)
        else:
            self._reach(item)

    def _take_all(self, missed: Iterator[Delivered]) -> None:
        for entry in missed:
            self.take(entry)

    def _reach(self, meaning: Meaning) -> None:
        record = self.record
        if isinstance(meaning, Blocked):
            record.gate.append(meaning)
            record.blocked = meaning
            self.sender.note_blocked()
            for run in record.runs:
                run.late |= not run.returned
                run.closed_ns = run.closed_ns or self.machine.clock.now
        elif isinstance(meaning, Unblocked):
            record.gate.append(meaning)
            record.blocked = None
        elif isinstance(meaning, Lost):
            self.take(meaning)
        elif isinstance(meaning, Skipped):
            self.machine.trace(f"is told: {meaning}")
            self.skips.missed(meaning)
        elif isinstance(meaning, CoordinatorChanged):
            record.coordinators.append(meaning)
        elif not isinstance(meaning, InterfaceChanged):
            record.gate.append(meaning)
            record.coordinators.append(meaning)
            self._take_all(self.skips.enter(meaning if isinstance(meaning, View) else None))
            self.tag = meaning.view_id.tag if isinstance(meaning, View) else 0
            self.take(meaning)

    def take(self, entry: Entry) -> None:
        record = self.record
        record.take(entry)
        if isinstance(entry, Delivered) and not entry.to:
            self.chain.take(entry.sender, entry.counter)
        elif isinstance(entry, View) and self.options.state:
            self.at_view(entry)

    def at_view(self, view: View) -> None:
        """Between two messages: gives its state, and stops before a merge of states, or to take over another one."""
        record, tag = self.record, view.view_id.tag
        if isinstance(view, MergeView):
            self.chain.part(tag, record.together(view).view_id)
        record.states[tag, self.chain.branch] = self.chain.digest()
        self.keeper.feed(self.keeper.merge.reached(tag, self.machine.now))
        if self.keeper.merge.stopped:
            self.machine.trace("stops until states are merged")
            record.stops.append((tag, tuple(self.chain.past)))
            record.stopped = True
            if record.runs:
                record.runs[-1].late = True  # an application that is stopped cannot see that the gate closes

    def _read(self, batch: Batch, tag: int) -> Iterator[Delivered]:
        messages = batch.tolist()
        assert tag == batch.view_tag, f"{self}: a batch of view {tag:x} in view {self.tag:x}"
        for sender, seqno, global_seqno, _sent, first, n, _index, unicast, late in batch.runs.tolist():
            for number in range(n):
                data = messages[first + number]
                intact = len(data) >= HEAD.size
                origin, counter, to = HEAD.unpack_from(data) if intact else (0, 0, 0)
                intact = intact and data[HEAD.size :] == filler(counter, len(data) - HEAD.size)
                place = global_seqno + number if global_seqno else 0
                intact = intact and bool(unicast) == bool(to)
                yield Delivered(origin, counter, to, tag, place, len(data), intact, sender, seqno, bool(late))

    # ---- pauses and callbacks

    def suspend(self, hold_ns: int) -> None:
        """Pauses the group for this long."""
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
        record = self.record
        late = not self.machine.takes or not record.inside or record.stopped  # then it sees no gate close
        this = Run(view.view_id if view else None, [], clock.now, late)
        runs.append(this)  # (an earlier one may still be sending)
        self.machine.trace(f"runs its block callback, run {run}")
        if rng.random() < 0.15:  # never returns
            return
        messages = rng.choice((0, 0, 1, 5)) if not record.observer else 0
        due = clock.now + rng.choice((0, rng.randrange(20 * MS), rng.randrange(2 * self.block_deadline_ns)))
        clock.at(clock.now, self.callback_sends, run, this, messages, due)

    def callback_sends(self, run: int, this: Run, messages: int, due: int) -> None:
        """Like a callback that calls ``send`` for each, and returns no earlier than ``due``."""
        clock, record = self.machine.clock, self.record
        if not record.alive:
            return
        if not self.can_run:
            clock.at(self.machine.busy_until, self.callback_sends, run, this, messages, due)
            return
        self.sender.send_pending()
        if messages and not record.pending:
            length = HEAD.size + self.callbacks.randrange(SMALL_MAX)
            number = record.counter
            record.pending.append((0, length))
            self.sender.send_pending()
            this.sent.append(number)
            messages -= 1
            self.machine.service()
        if messages or record.pending or clock.now < due:
            again = due if not messages and not record.pending else 0
            clock.at(max(clock.now + MS, again), self.callback_sends, run, this, messages, due)
            return
        # (A gate that a pause had closed before may not open in that time: its application hears of no second block.)
        this.late |= clock.now - this.begin_ns >= self.block_deadline_ns
        this.returned = True
        self.machine.step(CallbackReturned(run, "an error" if self.callbacks.random() < 0.2 else ""))
        self.machine.service()

    def call_unblock(self) -> None:
        self.record.callbacks.append(False)

    # ---- its state

    def dump_state(self, joiners: tuple[int, ...]) -> bytes | None:
        self.machine.trace(f"gives its state to {', '.join(map(self.machine.name_of, joiners))}")
        return self.chain.dump() if self.machine.may_give() else None

    def load_state(self, data: bytes) -> None:
        self.work(lambda: self.chain.load(data), self.keeper.transfer)

    def reconcile(self, parts: Mapping[int, bytes], merges: bool) -> None:
        self.work(lambda: self.apply(parts, merges), self.keeper.merge)

    def apply(self, parts: Mapping[int, bytes], merges: bool) -> None:
        """Merges the states of others into its own, or takes over the merged one."""
        record, tag = self.record, self.keeper.merge.plan.boundary
        if merges:
            self.machine.trace(f"merges the states of {', '.join(map(self.machine.name_of, parts))}")
            record.merges.append((tag, self.chain.branch, tuple(self.chain.merged), dict(parts)))
            self.chain.merge(parts.values())
        else:
            (data,) = parts.values()
            self.chain.load(data)

    def go_on(self, reconciled: bool) -> None:
        """Delivery continues."""
        if reconciled:
            tag = self.keeper.merge.plan.boundary
            self.record.states[tag, self.chain.branch] = self.chain.digest()
        self.machine.trace("goes on " + ("with the merged state" if reconciled else "as it is"))
        self.machine.clock.at(self.machine.clock.now, self.run_again)

    def run_again(self) -> None:
        if self.record.up and self.can_run:
            self.machine.service()

    def work(self, apply: Callable[[], None], machine: Transfer | StateMerge) -> None:
        """Works on a state at once, or takes its time, with a read now and then; may take too long, or fail."""
        if self.loads.random() >= self.options.slow_loads:
            self.loaded(apply, machine, fails=False)
        else:
            self.work_slowly(apply, machine, self.loads.randrange(4))

    def work_slowly(self, apply: Callable[[], None], machine: Transfer | StateMerge, reads: int) -> None:
        clock = self.machine.clock
        if not self.record.alive:
            return
        if not self.can_run:
            clock.at(self.machine.busy_until, self.work_slowly, apply, machine, reads)
        elif reads < 0:
            self.loaded(apply, machine, fails=self.loads.random() < 0.2)
            self.machine.service()
        else:
            self.keeper.feed(machine.read(self.machine.now))
            took_ns = self.loads.choice((MS, 300 * MS, 300 * MS, self.state_timeout_ns + MS))
            clock.at(clock.now + took_ns, self.work_slowly, apply, machine, reads - 1)

    def loaded(self, apply: Callable[[], None], machine: Transfer | StateMerge, fails: bool) -> None:
        if fails:
            self.keeper.feed(machine.failed("its handler raised", self.machine.now))
        elif not machine.ended:
            apply()
            self.keeper.feed(machine.loaded(self.machine.now))

    def enter(self, items: Collection[Item]) -> None:
        """The application has the state, and is delivered the messages that came meanwhile; another stop on the way is
        possible."""
        views = 0
        for item in items:
            views += isinstance(item, View)
            if isinstance(item, Batch) and item.view_tag != self.tag and views == 1:  # from before the boundary
                for entry in self._read(item, item.view_tag):
                    assert entry.to, f"{self} is delivered {entry}, which is void"
                    self.record.kept_over.add((entry.sender, entry.counter))
                    self.take(entry)
            elif self.keeper.merge.stopped:
                self.backlog.append(item)
            else:
                self.accept(item)
        if not self.backlog:
            self.machine.engine.taken()

    def give_up(self, error: str, leaves: bool) -> None:
        self.machine.trace(f"gives up: {error}")
        if leaves:
            self.sender.give_up()
            # A process takes all effects of a step before a request: among them may be the unblock callback.
            self.machine.clock.at(self.machine.clock.now, self.leave_soon)
        else:
            self.record.leaving, self.record.leave_ns = True, 0
        self.machine.start_again()

    def __str__(self) -> str:
        return self.record.name
