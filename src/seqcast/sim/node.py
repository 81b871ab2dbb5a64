"""One simulated process: the compiled engine, the endpoint, and an application that sends and records."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqcast._native.engine import AGAIN, ENDED, LANE_DATA, LANE_UNICAST, NO_VIEW, SENT, Batch, Engine, Sending
from seqcast.core.context import NEVER, EndpointSettings
from seqcast.core.endpoint import Endpoint
from seqcast.core.machines.backlog import Item
from seqcast.core.port import reports, transmit
from seqcast.core.vocabulary import (
    CallbackReturned,
    CallBlock,
    CallUnblock,
    CloseGroup,
    Effect,
    ExcludedBy,
    Input,
    JoinFailed,
    JoinGroup,
    LeaveGroup,
    Left,
    Log,
    Meaning,
    MemberSuspected,
    Minority,
    PauseGroup,
    PauseHeld,
    PauseOver,
    ResumeGroup,
    Send,
    StateHeld,
    StateLost,
    TakeState,
    ViewInstalled,
    Waiting,
)
from seqcast.events import Blocked, Excluded, InterfaceChanged, Lost, Unblocked
from seqcast.sim.guard import Lines
from seqcast.sim.options import MS, Options
from seqcast.sim.policies import choice, policy
from seqcast.sim.state import Chain, StateKeeper
from seqcast.sim.taken import Waits
from seqcast.types import Member, MergeView, View, ViewId

if TYPE_CHECKING:
    from seqcast.sim.world import World

_HEAD = struct.Struct("<QQQ")  # sender, its counter, destination or 0
BACKLOG_MAX = 2000
DRAINS_NS = (0, 50 * MS, 1000 * MS, 7500 * MS)
BLOCK_DEADLINE_NS = 400 * MS
PAUSE_TIMEOUT_NS = 3000 * MS


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivered message, as the application saw it."""

    sender: int
    counter: int
    to: int
    tag: int
    global_seqno: int
    length: int
    intact: bool
    claimed: int  # the sender that the engine names
    seqno: int = 0


@dataclass(slots=True)
class PauseRun:
    """One pause of the group; ``over_ns`` is set only where the application was told that it held until then."""

    number: int
    wanted: bool = True
    view_id: ViewId | None = None
    held_ns: int = 0
    over_ns: int = 0


@dataclass(slots=True)
class Run:
    """One run of the block callback.

    Args:
        view_id: of the view that is being closed.
        sent: numbers of the messages that it sends.
        late: the group was closed for sending before it returned, or it took longer than it has time.
        begin_ns: when it began.
        returned: it has; if it was not late, what it sent must be delivered in its view.
        unblocked: the unblock callback followed.
    """

    view_id: ViewId | None
    sent: list[int]
    begin_ns: int
    late: bool = False
    returned: bool = False
    unblocked: bool = False


Entry = Delivered | View | Lost | Excluded | Left


def payload(sender: int, counter: int, to: int, length: int) -> bytes:
    """A message that can be checked byte by byte: its filler follows from its counter."""
    return _HEAD.pack(sender, counter, to) + _filler(counter, length - _HEAD.size)


def _filler(counter: int, length: int) -> bytes:
    unit = counter.to_bytes(8, "little")
    return (unit * (length // 8 + 1))[: max(length, 0)]


class Node:
    """A process: crashes, pauses, stalls, and never comes back under the same id."""

    def __init__(
        self,
        world: World,
        index: int,
        name: str,
        options: Options,
        make_engine: Callable[..., Engine],
        make_endpoint: Callable[..., Endpoint],
    ) -> None:
        self.world, self.index, self.name, self.options = world, index, name, options
        self.rng = random.Random(f"node {options.seed} {index}")
        self.id = self.rng.getrandbits(63) | 1
        self.address = b"sim" + index.to_bytes(2, "big")
        capacity = options.capacity >> self.rng.randrange(2)
        self.starving = random.Random(f"starving {options.seed} {index}")
        self.callbacks = random.Random(f"callbacks {options.seed} {index}")  # of its own: the other choices stay
        blocks = self.callbacks.random() < options.blocks
        self.engine = make_engine(
            member_id=self.id,
            group_tag=1,
            slabs_max=512,
            ring_bytes=1 << 20,
            unicast_bytes=256 << 10,
            blocked_bytes_max=options.queue_bytes,
            ring_packets=options.ring_packets,
            heartbeat_ns=options.heartbeat_ns,
            suspect_ns=options.suspect_ns,
            suspect_ns_max=options.suspect_ns_max,
            seed=self.rng.getrandbits(63),
        )
        self.endpoint = make_endpoint(
            self.engine,
            Member(name, self.id, self.address),
            "sim",
            EndpointSettings(
                options.order,
                choose_sequencer=choice(options.sequencer, random.Random(f"sequencer {options.seed} {index}")),
                capacity=capacity,
                packet_bytes=options.packet_bytes,
                window_bytes=1 << 20,
                nonce=random.Random(f"nonce {options.seed} {index}").getrandbits(63) | 1,
                state=options.state,
                first_seqno=options.first_seqno,
                verify_ns=options.verify_ns,
                link_ns=options.link_ns,
                blocks=blocks,
                block_deadline_ns=BLOCK_DEADLINE_NS,
                block_events=True,
                flush_unicasts=options.flush_unicasts,
                membership_policy=policy(options.policy, random.Random(f"policy {options.seed} {index}")),
                partition=options.partition,
            ),
        )
        self.up = True
        self.paused_until = 0
        self.stalled_until = 0
        self.slow_until = 0
        clocks = random.Random(f"clocks {options.seed} {index}")
        self.ahead_ns, self.wall_ahead_ns = clocks.randrange(1 << 50), clocks.randrange(1 << 60)
        self.backlog: list[tuple[bytes, bytes, int]] = []
        self.timer = NEVER
        self.log: list[Entry] = []
        self.violations: list[str] = []  # seen as they happened
        self.blocked: Blocked | None = None  # since the application was told so
        self.packed_before = 0  # messages that were in packets whole by then, and are yet to be noted
        self.pauses: list[PauseRun] = []
        self.accepted: list[tuple[int, ViewId]] = []  # (when, view) of each message that the engine took for the group
        self.runs: list[Run] = []  # of the block callback
        self.tag = 0  # of the view that the application is in
        self.view: View | None = None  # the last one that the control plane installed
        self.repeated: set[ViewId] = set()  # of those: which came under another attempt than that which made them
        self.counter = 0
        self.counters_to: dict[int, int] = {}
        self.sent: dict[int, tuple[int, ViewId | None]] = {}  # counter -> (length, view or None: under way)
        self.sent_to: dict[tuple[int, int], ViewId] = {}  # (to, counter) -> view
        self.sent_late: set[tuple[int, int]] = set()  # of those: while the application was blocked
        self.pending: list[tuple[int, int]] = []  # (to, length) not yet accepted by the engine
        self.sending_now: Sending | None = None  # the first of them, if a part of it is packed
        self.queued: deque[int] = deque()  # numbers of messages that the engine took while the gate was closed
        self.sending = True
        self.waits = Waits(self)
        self.error = ""
        self.warnings: list[str] = []
        self.minority = ""  # why this member is blocked for want of a majority
        self.waiting = ""  # why the group that it joins is blocked
        self.leaving = False
        self.refused_sends = False  # the engine takes nothing more, as this member leaves
        self.left: Left | None = None
        self.drain_ns = random.Random(f"drain {options.seed} {index}").choice(DRAINS_NS)
        self.chain = Chain(options.state_bytes)
        self.states: dict[int, str] = {}  # at the beginning of the view with this tag
        self.keeper = StateKeeper(self)
        self.lines = Lines(self)
        self.kept_over: set[tuple[int, int]] = set()  # (sender, counter) of the unicasts that came behind a state so

    def __str__(self) -> str:
        return self.name

    @property
    def now(self) -> int:
        """Its monotonic clock: no two machines' begin at the same time."""
        return self.world.clock.now + self.ahead_ns

    @property
    def wall(self) -> int:
        return self.world.clock.now + self.wall_ahead_ns

    # ---- the world

    def start(self) -> None:
        self.step(JoinGroup())
        self.world.clock.at(self.world.clock.now, self.produce)

    def receive(self, datagram: bytes, address: bytes, lane: int = LANE_DATA) -> None:
        if not self.up:
            return
        if self.world.clock.now < self.paused_until:
            if len(self.backlog) < BACKLOG_MAX:
                self.backlog.append((datagram, address, lane))
            return
        self.engine.receive(datagram, address, self.now, lane)
        self.look_at_queue()
        self.service()

    def receive_unicast(self, datagram: bytes, address: bytes) -> None:
        self.receive(datagram, address, LANE_UNICAST)

    def refused(self, _datagram: bytes, address: bytes) -> None:
        """What was sent to ``address`` met a closed port."""
        if self.up and self.world.clock.now >= self.paused_until:
            self.engine.refused(address, self.now)
            self.service()

    def wake(self, when: int) -> None:
        if self.up and when == self.timer:
            self.timer = NEVER
            if self.world.clock.now >= self.paused_until:
                self.service()

    def resume(self) -> None:
        """After a pause, with what waited in the socket buffer."""
        if self.up and self.world.clock.now >= self.paused_until:
            backlog, self.backlog = self.backlog, []
            for datagram, address, lane in backlog:
                self.engine.receive(datagram, address, self.now, lane)
            self.look_at_queue()
            self.service()

    def crash(self) -> None:
        self.up = False
        self.lines.stop()
        self.world.trace(self, "crashes")

    def pause(self, until: int) -> None:
        self.world.trace(self, f"is paused for {(until - self.world.clock.now) / 1e6:.0f} ms")
        self.paused_until = until
        self.world.clock.at(until, self.resume)

    def starve(self, until: int, longest_ns: int, whole: bool) -> None:
        """It gets a processor now and then only, for some ms, and waits for the next turn for up to ``longest_ns``:
        mostly much shorter. ``whole``: all of it, else its Python alone, while its engine goes on."""
        now, rng = self.world.clock.now, self.starving
        if not self.up or now >= until:
            return
        turn = min(now + int(longest_ns * rng.random() ** 3), until)
        if whole:
            self.paused_until = max(self.paused_until, turn)
        else:
            self.stalled_until = max(self.stalled_until, turn)
        self.world.clock.at(turn, self.resume)
        self.world.clock.at(turn + rng.randrange(1, 10 * MS), self.starve, until, longest_ns, whole)

    def stall(self, until: int) -> None:
        self.world.trace(self, f"is busy in Python for {(until - self.world.clock.now) / 1e6:.0f} ms")
        self.stalled_until = until
        self.world.clock.at(until, self.resume)

    def slow_disk(self, until: int) -> None:
        """Its journal holds the application up: nothing is taken from the stream, while the rest goes on."""
        if not self.inside:
            return
        if self.runs:
            self.runs[-1].late = True  # it cannot see that the gate closes
        self.world.trace(self, f"waits for its disk for {(until - self.world.clock.now) / 1e6:.0f} ms")
        self.slow_until = until
        self.world.clock.at(until, self.resume)

    def jump(self, monotonic_ns: int, wall_ns: int) -> None:
        """Its clocks jump: the monotonic one forward, as after a sleep of the machine; the wall clock either way."""
        self.world.trace(self, f"finds its clocks {monotonic_ns / 1e6:.0f} ms and {wall_ns / 1e6:.0f} ms ahead")
        self.ahead_ns += monotonic_ns
        self.wall_ahead_ns += wall_ns
        self.timer = NEVER  # what is under way is of the clock before
        self.resume()

    def leave(self) -> None:
        if self.up and not self.endpoint.over and self.world.clock.now >= max(self.paused_until, self.stalled_until):
            self.world.trace(self, "leaves")
            self.leaving = True
            self.send_on()
            self.step(LeaveGroup(self.drain_ns))
            self.service()

    def send_on(self) -> None:
        """One thread of the application leaves; others have just begun to send, to the group and to single members, and
        go on until they are told that they may not."""
        rng, view = random.Random(f"leaver {self.options.seed} {self.index}"), self.endpoint.view
        if view is None or not self.inside or not self.sending:
            return
        others = [member.id for member in view.members if member.id != self.id]
        for _ in range(rng.choice((0, 3, 12))):
            length = _HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.2 else 200)
            self.pending.append((rng.choice(others) if others and rng.random() < 0.3 else 0, length))
        if rng.random() < 0.7:  # some of it is accepted before the others know that this member leaves
            self.send_pending()

    def end(self, leaves: bool) -> None:
        """Its application leaves or closes, whatever it has done before."""
        if self.up and self.world.clock.now >= max(self.paused_until, self.stalled_until):
            self.world.trace(self, "leaves, as it is" if leaves else "closes")
            self.leaving, self.sending = True, False
            self.step(LeaveGroup(self.drain_ns) if leaves else CloseGroup())
            self.service()

    def doubt(self, member_id: int) -> None:
        if self.up and self.world.clock.now >= max(self.paused_until, self.stalled_until):
            self.world.trace(self, f"doubts {next(node.name for node in self.world.nodes if node.id == member_id)}")
            self.world.doubted = True
            self.step(MemberSuspected(member_id))
            self.service()

    def service(self) -> None:
        """What the I/O loop of a process does: timers, the control plane, the application, and out with the packets."""
        now, busy = self.now, self.world.clock.now < self.stalled_until
        engine = self.engine
        if engine.deadline() <= now:
            engine.tick(now)
        if not busy:
            self.step()
            if self.world.clock.now >= self.slow_until:
                self.consume()
                self.waits.look()
            self.look_at_queue()
            if self.pauses and self.pauses[-1].held_ns and self.pauses[-1].view_id is None:
                self.world.paused(self)
            self.keeper.step()
            self.lines.step()
            if self.pending:
                self.send_pending()
            assert self.endpoint.deadline() > now, f"{self} would wake for ever at {now}"
        for lane, to, datagram in engine.transmit(now):
            if lane == LANE_UNICAST:
                self.world.unicast(self, to, datagram)
            elif self.up:  # an ambush may crash it in the middle
                self.world.multicast(self, datagram)
        self.look_at_queue()
        due = engine.deadline()
        if not busy:
            due = min(due, self.endpoint.deadline(), self.keeper.due(), self.lines.due())
        due -= self.ahead_ns
        if due < self.timer:
            self.timer = max(due, self.world.clock.now + 1)
            self.world.clock.at(self.timer, self.wake, self.timer)

    def step(self, *inputs: Input) -> None:
        effects = self.endpoint.step([*inputs, *reports(self.engine.events())], self.now)
        self.carry_out(effects)
        while self.endpoint.pending:
            self.carry_out(self.endpoint.step((), self.now))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    transmit(self.engine, effect, self.endpoint.counters)
                case ViewInstalled(view):
                    self.note_view(view)
                    self.world.trace(self, f"installs {view} {view.view_id}")
                case ExcludedBy(view_id, reason):
                    self.keeper.over()
                    self.lines.stop()
                    self.world.trace(self, f"is excluded by view {view_id}: {reason}")
                    self.world.excluded(self)
                case Minority(reason):
                    self.minority = reason
                    self.world.trace(self, f"is blocked: {reason}")
                case Waiting(reason):
                    self.waiting = reason
                    self.world.trace(self, f"waits to join: {reason}")
                case JoinFailed(error, cause):
                    self.world.trace(self, f"cannot join: {error}")
                    if cause == "incarnation":
                        self.world.start_node(f"{self.name}+")
                    else:
                        self.error = error
                case Left() as left:
                    self.keeper.over()
                    self.lines.stop()
                    self.left = left
                    self.world.trace(self, "has left")
                case TakeState(provider):
                    self.world.trace(self, f"awaits the state of {self.world.name(provider)}")
                    self.keeper.told(effect)
                case StateHeld():
                    self.world.trace(self, "has the state")
                    self.keeper.told(effect)
                case StateLost():
                    self.keeper.told(effect)
                case PauseHeld():
                    self.pauses[-1].held_ns = self.world.clock.now
                case PauseOver(_, reason):
                    self.world.trace(self, f"pauses no more: {reason or 'as it said'}")
                    if reason:
                        self.pauses[-1].held_ns = 0
                    else:
                        self.pauses[-1].over_ns = self.world.clock.now
                case CallBlock(run):
                    self.call_block(run)
                case CallUnblock():
                    self.call_unblock()
                case Log():
                    pass
                case _:
                    self.warnings.append(effect.text)
                    self.world.trace(self, f"warns: {effect.text}")

    def note_view(self, view: View) -> None:
        """The control plane installed it."""
        old, self.view, self.minority = self.view, view, ""
        self.waits.note_view(view)
        self.lines.view(view)
        frame = self.endpoint.closed_by(old) if old else None
        if old and frame and frame.attempt != (view.view_id.flush[0], old.rank(view.view_id.flush[1])):
            self.repeated.add(view.view_id)
        if old is not None:
            self.world.changed(self, old, view)

    # ---- the application

    def produce(self) -> None:
        """Wants to send now, and again after a while."""
        if not self.up or not self.sending or self.endpoint.over:
            return
        rng = self.rng
        if len(self.pending) < 20 and self.inside:
            for _ in range(rng.choice((1, 1, 1, 1, 8))):
                length = _HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.05 else 200)
                view = self.endpoint.view
                to = 0
                if view is not None and len(view.members) > 1 and rng.random() < self.options.unicasts:
                    to = rng.choice([member.id for member in view.members if member.id != self.id])
                self.pending.append((to, length))
            if self.world.clock.now >= max(self.paused_until, self.stalled_until):
                self.service()
        self.world.clock.at(self.world.clock.now + int(rng.expovariate(self.options.rate) * 1e9), self.produce)

    def suspend(self, hold_ns: int) -> None:
        """The application pauses the group for so long."""
        view = self.endpoint.view
        if view is None or self.world.clock.now < max(self.paused_until, self.stalled_until):
            return
        if self.pauses and self.pauses[-1].wanted:
            return
        self.world.trace(self, "pauses the group")
        self.pauses.append(PauseRun(len(self.pauses) + 1))
        self.world.clock.at(self.world.clock.now + hold_ns, self.unsuspend, self.pauses[-1])
        self.step(PauseGroup(self.pauses[-1].number, PAUSE_TIMEOUT_NS))
        self.service()

    def unsuspend(self, pause: PauseRun) -> None:
        pause.wanted = False
        if not self.up or self.endpoint.over:
            return
        if self.world.clock.now < max(self.paused_until, self.stalled_until):
            self.world.clock.at(max(self.paused_until, self.stalled_until), self.unsuspend, pause)
            return
        self.step(ResumeGroup(pause.number))
        self.service()

    def call_block(self, run: int) -> None:
        """The block callback: takes its time, sends some messages, or never returns."""
        view, rng, clock = self.endpoint.view, self.callbacks, self.world.clock
        if self.runs and not self.runs[-1].unblocked:
            self.violations.append(f"callbacks: {self} is blocked twice")
        late = clock.now < self.slow_until or not self.inside  # it cannot see that the gate closes
        self.runs.append(Run(view.view_id if view else None, [], clock.now, late))
        self.world.trace(self, f"runs its block callback, run {run}")
        if rng.random() < 0.15:  # never returns
            return
        messages = rng.choice((0, 0, 1, 5))
        due = clock.now + rng.choice((0, rng.randrange(20 * MS), rng.randrange(2 * BLOCK_DEADLINE_NS)))
        clock.at(clock.now, self.callback_sends, run, messages, due)

    def callback_sends(self, run: int, messages: int, due: int) -> None:
        """As a callback that calls ``send`` for each, and then takes its time until ``due``."""
        clock = self.world.clock
        if not self.up or self.endpoint.over:
            return
        if clock.now < max(self.paused_until, self.stalled_until):
            clock.at(max(self.paused_until, self.stalled_until), self.callback_sends, run, messages, due)
            return
        self.send_pending()
        if messages and not self.pending:
            length = _HEAD.size + self.callbacks.randrange(200)
            number = self.counter
            self.pending.append((0, length))
            self.send_pending()
            self.runs[-1].sent.append(number)
            messages -= 1
            self.service()
        if messages or self.pending or clock.now < due:
            clock.at(max(clock.now + MS, due if not messages and not self.pending else 0), self.callback_sends, run,
                     messages, due)  # fmt: skip
            return
        # (What a pause had closed before may not open in that time: its application hears of no second block.)
        self.runs[-1].late |= clock.now - self.runs[-1].begin_ns >= BLOCK_DEADLINE_NS
        self.runs[-1].returned = True
        self.step(CallbackReturned(run, "an error" if self.callbacks.random() < 0.2 else ""))
        self.service()

    def call_unblock(self) -> None:
        if not self.runs or self.runs[-1].unblocked:
            self.violations.append(f"callbacks: {self} is unblocked, and was not blocked")
        self.runs[-1].unblocked = True

    def say_last(self) -> None:
        """In the liveness phase: something that must still get through."""
        self.sending = False
        self.pending.append((0, _HEAD.size))
        if self.endpoint.view is not None:
            self.waits.begin()

    @property
    def packets_sent(self) -> int:
        return self.engine.counters()["packets_sent"]

    def send_pending(self) -> None:
        view = self.endpoint.view
        if view is None or not self.inside:
            return
        while self.pending:
            to, length = self.pending[0]
            counter = self.counters_to.get(to, 0) if to else self.counter
            if self.sending_now is None:
                self.sending_now = Sending(self.engine, payload(self.id, counter, to, length), to)
                # From here on others may deliver it, even if we crash before the engine says SENT.
                if to:
                    self.sent_to[to, counter] = view.view_id
                else:
                    self.sent[counter] = (length, None)
            packed = self.sending_now.packed
            result = self.sending_now.step(self.wall)
            if result in (AGAIN, NO_VIEW):
                return
            self.sending_now = None
            if result == SENT and self.refused_sends and not packed:
                self.violations.append(f"leave: {self} sends number {counter} to {to}, after it was refused one")
            if result == SENT:
                if to:
                    self.counters_to[to] = counter + 1
                    self.sent_to[to, counter] = view.view_id
                    if self.blocked:
                        self.sent_late.add((to, counter))
                else:
                    self.counter += 1
                    self.queued.append(counter)
                    self.look_at_queue()
            elif result == ENDED:
                assert self.leaving, f"{self} may not send, and does not leave"
                self.refused_sends, self.sending = True, False
            if result != SENT:
                assert to or result == ENDED, f"send to the group in a view gives {result}"
                if to:
                    del self.sent_to[to, counter]
                else:
                    del self.sent[counter]
            del self.pending[0]

    def look_at_queue(self) -> None:
        """What the engine has packed since: at once, or when the gate opened. Asked wherever the application has taken
        all that it was delivered, so that it knows whether it is blocked."""
        view, waiting = self.view, self.engine.blocked()
        if self.queued and self.endpoint.view is None:  # also if the step that opened the gate ended the membership
            waiting += self.engine.counters()["blocked_queue_lost"]
        while view is not None and len(self.queued) > waiting:
            counter = self.queued.popleft()
            self.sent[counter] = (self.sent[counter][0], view.view_id)
            self.accepted.append((self.world.clock.now, view.view_id))
            # (Where the application waits for its disk, it has yet to hear that it may send.)
            if self.blocked and not self.packed_before and self.world.clock.now >= self.slow_until:
                self.violations.append(f"gate: {self} sends number {counter} after {self.blocked}")
            self.packed_before = max(self.packed_before - 1, 0)

    def consume(self) -> None:
        engine = self.engine
        while self.inside or self.keeper.transfer.holds:
            item = engine.deliver(1 << 20, self.now, self.wall)
            if item is None:
                break
            for each in self.endpoint.marker(item) if isinstance(item, int) else (item,):
                if self.inside:
                    self.accept(each)
                else:
                    self.keeper.delivered(each)
        if self.inside:
            engine.taken()

    @property
    def inside(self) -> bool:
        """Its application has the state, and takes what is delivered."""
        return self.keeper.inside

    @property
    def told_minority(self) -> bool:
        """It was told that it is blocked for want of a majority: its application, or its log while it joins."""
        if not self.inside:
            return bool(self.minority)
        return self.blocked is not None and self.blocked.kind == "minority"

    @property
    def voided(self) -> list[View]:
        """Views that it was in before the one whose state it took."""
        return self.keeper.voided

    def accept(self, item: Item) -> None:
        """The application is delivered an item."""
        if isinstance(item, Batch):
            for entry in self._read(item, self.tag):
                self.take(entry)
        else:
            self._reach(item)

    def _reach(self, meaning: Meaning) -> None:
        if isinstance(meaning, Blocked):
            if self.blocked and (meaning.kind != "minority" or self.blocked.kind == "minority"):
                self.violations.append(f"gate: {self} is told {meaning} after {self.blocked}")
            self.blocked = meaning
            # A view may have opened the gate in the same step, for all that was queued; and a send may still return.
            self.packed_before = len(self.queued) - self.engine.blocked()
            self.packed_before += self.sending_now is not None and self.sending_now.packed
            if self.runs and not self.runs[-1].returned:
                self.runs[-1].late = True
        elif isinstance(meaning, Unblocked):
            if self.blocked is None or self.blocked.kind != meaning.kind:
                self.violations.append(f"gate: {self} is told {meaning} after {self.blocked}")
            self.blocked = None
        elif isinstance(meaning, Lost):
            self.take(meaning)
        elif not isinstance(meaning, InterfaceChanged):
            if isinstance(meaning, View) and self.tag and not self.blocked:
                self.violations.append(f"gate: {self} enters {meaning}, and was not told that the view before closes")
            self.tag = meaning.view_id.tag if isinstance(meaning, View) else 0
            self.take(meaning)

    def take(self, entry: Entry) -> None:
        self.log.append(entry)
        if isinstance(entry, Delivered) and not entry.to:
            self.chain.take(entry.sender, entry.counter)
        elif isinstance(entry, View):
            tag = entry.view_id.tag
            if isinstance(entry, MergeView):
                self.chain.reconcile(tag)
            if self.options.state:
                self.states[tag] = self.chain.digest()
            if joiners := self.endpoint.joiners_of(tag):
                self.give_state(tag, joiners)

    def delivered_of(self, sender: int) -> dict[int, int]:
        """The numbers of the sender's messages to the group that the application has taken, and the tags of the views
        in which it did."""
        group = (entry for entry in self.log if isinstance(entry, Delivered) and not entry.to)
        return {entry.counter: entry.tag for entry in group if entry.sender == sender}

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

    # ---- the application's state

    def give_state(self, boundary: int, joiners: tuple[int, ...]) -> None:
        self.world.trace(self, f"gives its state to {', '.join(map(self.world.name, joiners))}")
        data = None if self.world.refuses() else self.chain.dump()
        self.keeper.give(boundary, joiners, data)

    def load_state(self, data: bytes) -> None:
        self.chain.load(data)
        self.keeper.feed(self.keeper.transfer.loaded(self.now))

    def enter(self, items: Collection[Item]) -> None:
        """The application has the state, and is delivered what came meanwhile."""
        views = 0
        for item in items:
            views += isinstance(item, View)
            if isinstance(item, Batch) and item.view_tag != self.tag and views == 1:  # from before the boundary
                for entry in self._read(item, item.view_tag):
                    assert entry.to, f"{self} is delivered {entry}, which is void"
                    self.kept_over.add((entry.sender, entry.counter))
                    self.take(entry)
            else:
                self.accept(item)
        self.engine.taken()

    def give_up(self, error: str) -> None:
        """It cannot get the state: another process of its kind tries again."""
        self.world.trace(self, f"gives up: {error}")
        self.pending.clear()
        self.leave()
        self.world.start_node(f"{self.name}*")
