"""One simulated process on its machine: clocks, the wire, the compiled engine, the endpoint, and its faults."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from seqcast._native.engine import LANE_DATA, LANE_UNICAST, Engine
from seqcast.config.derive import core_settings, engine_settings, to_ns
from seqcast.config.keys import ROOM, Seal
from seqcast.core.context import NEVER, EndpointSettings
from seqcast.core.endpoint import Endpoint
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.kinds import load
from seqcast.core.frames.recalling import Kept
from seqcast.core.frames.view import NewView
from seqcast.core.identities import taken_apart
from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.gossip import Gossiping
from seqcast.core.orders.policy import PolicyQuestions, next_batch
from seqcast.core.port import transmit
from seqcast.core.secrets import about
from seqcast.core.state.providers import STATE_MERGES
from seqcast.core.vocabulary import (
    AskMembers,
    Effect,
    ExcludedBy,
    Input,
    JoinFailed,
    JoinGroup,
    Keep,
    KeysRead,
    Left,
    MemberTold,
    MendSockets,
    Minority,
    PauseOver,
    SeedsFound,
    Send,
    Stand,
    StateHeld,
    StatePlan,
    TakeState,
    ViewInstalled,
    Waiting,
    Warn,
)
from seqcast.errors import RemoteProtocolError
from seqcast.events import Blocked
from seqcast.reports import FrameReceived, MemberSuspected, SendersHeld
from seqcast.sim.application import Application
from seqcast.sim.between import ticked_between
from seqcast.sim.guard import GuardedProcess, Lines
from seqcast.sim.interface import Interface
from seqcast.sim.network import Clock, Network
from seqcast.sim.options import MS, PINNED, SECOND, Options
from seqcast.sim.policies import Orderer, policy, sequencer_policy
from seqcast.sim.record import LEAVES_NS, Record, Together
from seqcast.sim.seal import (
    SECRETS,
    Sealings,
    SimulatedExchange,
    SimulatedSigner,
    file_keys,
    simulated_list,
    simulated_seal,
)
from seqcast.sim.settings import MTU, config
from seqcast.sim.sockets import Sockets
from seqcast.sim.wire import MESSAGES, is_sealed_inside, kind
from seqcast.types import Member, View, ViewId

SEEDS_NS = 1000 * MS
"""Between two looks at where others are."""
NOBODY = b"sim\xff\xff"
"""An address at which nothing runs."""
TRANSLATED = 0x8000
"""In the address of a process that others see elsewhere."""
LOOKS = 8
"""One in so many steps, a process looks for timers that are forgotten."""
STEPS_MAX = 5
"""Steps that the control plane may request in a row without time between them."""
BITE_BYTES = 1024
"""The bytes that a slow application takes at a time."""


class Surroundings(Protocol):
    """The interface of the world to a process."""

    clock: Clock
    network: Network
    sealings: Sealings
    made: dict[int, NewView]
    disks: dict[str, Kept]
    doubted: bool  # a member was told to take another for dead
    resting: bool  # the group is quiet

    @property
    def nodes(self) -> Sequence[GuardedProcess]: ...
    def multicast(self, source: Process, datagram: bytes) -> None: ...
    def unicast(self, source: Process, to: bytes, datagram: bytes) -> None: ...
    def trace(self, process: Process | None, text: str) -> None: ...
    def name(self, member_id: int) -> str: ...
    def record(self, member_id: int) -> Record: ...
    def start_node(self, name: str) -> None: ...
    def marks(self, name: str) -> tuple[int, ...]: ...
    def refuses(self) -> bool: ...
    def told(self, process: Process, effect: Effect) -> None: ...
    def held(self, process: Process) -> None: ...
    def on_disk(self, name: str) -> tuple[int, int]: ...
    def keep(self, process: Process, kept: Kept) -> None: ...
    def taken(self, process: Process, numbers: Sequence[int], since: Sequence[Together]) -> None: ...
    def changed(self, process: Process, old: View, view: View) -> None: ...


def said_of(name: str, number: int) -> str:
    """An info, as JSON."""
    return f'{{"name":"{name}","number":{number}}}'


class Process:
    """One incarnation, which crashes, pauses and stalls, and never comes back under the same id."""

    def __init__(
        self,
        world: Surroundings,
        index: int,
        name: str,
        options: Options,
        make_engine: Callable[..., Engine],
        make_endpoint: Callable[..., Endpoint],
    ) -> None:
        self.world, self.index, self.name, self.options = world, index, name, options
        self.clock = world.clock
        rng = random.Random(f"node {options.seed} {index}")
        self.id = rng.getrandbits(63) | 1
        self.address = self.public = b"sim" + index.to_bytes(2, "big")  # as the process says, and where others reach it
        if options.translated and index % 2:
            self.public = b"sim" + (TRANSLATED | index).to_bytes(2, "big")
            self.address = self.public if options.translated == "ports" else self.address
        capacity = options.capacity >> rng.randrange(2)
        self.starving = random.Random(f"starving {options.seed} {index}")
        self._lies = random.Random(f"seeds {options.seed} {index}")
        callbacks = random.Random(f"callbacks {options.seed} {index}")  # of their own: the other choices stay
        blocks = callbacks.random() < options.blocks
        settings = config(options)
        drive = random.Random(f"drive {options.seed} {index}")
        if drive.random() < options.deaf_applications:
            settings = settings.replace(receive=False)
        if random.Random(f"without own {options.seed} {index}").random() < options.without_own:
            settings = settings.replace(deliver_own=False)
        if index and options.membership == "coordinated" and options.found == 1:
            observes = random.Random(f"observer {options.seed} {index}").random() < options.observers
            settings = settings.replace(observer=observes)
        self._bytes_per_s = options.rates[index] if index < len(options.rates) else -1
        self.orderer: Orderer | None = None
        self.questions = PolicyQuestions()
        wanted = engine_settings(settings)
        wanted["piece_bytes"] *= bool(options.narrows)  # else the runs of before would change
        if options.orderer:
            self.orderer = Orderer(options.orderer, random.Random(f"orderer {options.seed} {index}"))
            wanted["policy_ns"] = to_ns(self.orderer.limit_s)
        room = 0
        self.exchange: SimulatedExchange | None = None
        self.marks: tuple[int, ...] = ()  # of the keys in its file; none: as drawn
        if options.keyed:
            self.exchange = self._exchange()
            wanted["seal"], room = self._seal(), ROOM
            wanted["sealings_max"] = options.sealings_max
        self.engine = make_engine(member_id=self.id, group_tag=1, seed=rng.getrandbits(63), **wanted)
        core = core_settings(settings, mtu=MTU, rcvbuf=capacity, blocks=blocks, room=room)
        core["advertised"] = options.translated == "ports" and bool(index % 2)
        core["path_bytes"] *= bool(options.narrows)
        core |= {name: value for name in ("verify_ns", "link_ns") if (value := getattr(options, name)) >= 0}
        self.endpoint = make_endpoint(
            ticked_between(self.engine, lambda: self.now),
            Member(name, self.id, self.address),
            "sim",
            EndpointSettings(
                order=options.order,
                sees=lambda page: (page, str(self.id)),
                sequencer_policy=sequencer_policy(
                    options.sequencer, random.Random(f"sequencer {options.seed} {index}")
                ),
                keys=file_keys(wanted["seal"].secrets) if options.keyed else (),
                exchange=self.exchange,
                aes=options.keyed and wanted["seal"].aes,
                signer=SimulatedSigner(options.seed, index) if options.identities else None,
                allowed=simulated_list(options.seed) if options.identities else (),
                nonce=random.Random(f"nonce {options.seed} {index}").getrandbits(63) | 1,
                state=STATE_MERGES if options.merges else int(options.state),
                first_seqno=options.first_seqno,
                membership_policy=policy(options.policy, random.Random(f"policy {options.seed} {index}")),
                about=said_of(name, 0) if options.infos else "",
                kept=world.disks.get(name),
                on_disk=world.on_disk(name),
                **core,
            ),
        )
        self.restless = self.looks = 0
        self._offered_ns: dict[int, int] = {}  # batches that its order policy has: since when
        self._attempts: dict[ViewId, set[Attempt]] = {}  # under which each VIEW arrived or was sent
        self._changes: list[tuple[View, View]] = []  # of views, in this step
        self.paused_until = 0
        self.stalled_until = 0
        clocks = random.Random(f"clocks {options.seed} {index}")
        self.ahead_ns, self.wall_ahead_ns = clocks.randrange(1 << 50), clocks.randrange(1 << 60)
        self.timer = NEVER
        leave_ns = random.Random(f"drain {options.seed} {index}").choice(LEAVES_NS)
        inside = not options.state
        self.record = Record(index, name, self.id, options, leave_ns, inside=inside)
        self.record.observer = settings.observer
        self.record.paths["observers"] += settings.observer
        self.record.about = self.endpoint.context.me.about
        self.record.receives, self.record.receives_own = settings.receive, settings.deliver_own
        self.record.paths["members that receive nothing"] += not settings.receive
        self.record.paths["members without their own messages"] += not settings.deliver_own
        self.sockets = Sockets(self, options, drive)
        self.lines = Lines(self)
        self.interface = Interface(self, random.Random(f"interface {options.seed} {index}"))
        self.application = Application(self, self.record, rng, callbacks)

    def __str__(self) -> str:
        return self.name

    def source(self, target: int) -> bytes:
        """The address from which the process with this index hears this one."""
        if self.public != self.address or not self.endpoint.context.settings.advertised:
            return self.public
        return b"s" + (1 + target).to_bytes(2, "big") + self.public[3:]

    @property
    def up(self) -> bool:
        return self.record.up

    @property
    def alive(self) -> bool:
        """Does the process run, as a member or joining?"""
        return self.record.alive

    @property
    def view(self) -> View | None:
        """The newest view that its application was told of, while the membership lasts."""
        return self.application.view

    @property
    def inside(self) -> bool:
        """Is the process a member that stays?"""
        return self.alive and self.view is not None and not self.record.leaving

    @property
    def now(self) -> int:
        """Its monotonic clock: no two machines' begin at the same time."""
        return self.clock.now + self.ahead_ns

    @property
    def wall(self) -> int:
        return self.clock.now + self.wall_ahead_ns

    @property
    def busy_until(self) -> int:
        """Virtual time before which its Python does not run."""
        return max(self.paused_until, self.stalled_until)

    @property
    def can_run(self) -> bool:
        """Its Python runs now."""
        return self.record.up and self.clock.now >= self.busy_until

    @property
    def takes(self) -> bool:
        """Its application takes deliveries: its journal does not wait for the disk."""
        return self.clock.now >= self.record.slow_until

    @property
    def bite(self) -> int:
        return 1 << 20 if self._bytes_per_s < 0 else BITE_BYTES

    def took(self, n: int) -> None:
        """Its application is as slow as ``Options.rates`` says, as long as there are faults."""
        end = self.options.duration_ns
        if self._bytes_per_s >= 0 and self.clock.now < end:
            per_s = self._bytes_per_s
            self.slow_disk(min(self.clock.now + n * SECOND // per_s, end) if per_s else end)

    @property
    def answered(self) -> bool:
        return self.endpoint.machines.participant.promised

    @property
    def network(self) -> Network:
        return self.world.network

    def trace(self, text: str) -> None:
        self.world.trace(self, text)

    def name_of(self, member_id: int) -> str:
        return self.world.name(member_id)

    def record_of(self, member_id: int) -> Record:
        return self.world.record(member_id)

    def start_again(self) -> None:
        self.world.start_node(f"{self.name}*")

    def may_give(self) -> bool:
        return not self.world.refuses()

    def taken(self, numbers: Sequence[int], since: Sequence[Together]) -> None:
        self.world.taken(self, numbers, since)

    # ---- its key

    def _exchange(self) -> SimulatedExchange:
        rng = random.Random(f"exchange {self.options.seed} {self.index}")
        return SimulatedExchange(rng, self.world.sealings)

    def _seal(self) -> Seal:
        rng = random.Random(f"seal {self.options.seed} {self.index}")
        aes = random.Random(f"aes {self.options.seed} {self.index}").random() >= self.options.without_aes
        self.marks = self.world.marks(self.name)
        return simulated_seal(rng, *self.marks, owner=self.id, sealings=self.world.sealings, aes=aes)

    def read_keys(self, marks: tuple[int, ...]) -> None:
        """Its key file has these keys now."""
        self.marks = marks
        self.trace(f"reads its key file: {', '.join(map(str, marks))}")
        self.step(KeysRead(file_keys([(mark, SECRETS[mark]) for mark in marks])))
        self.service()

    def opens(self, tag: int) -> bool:
        """Can this member read the secret in the VIEW of this view, whoever that is for?"""
        frame = self.world.made.get(tag)
        if frame is None or self.exchange is None:
            return False
        wraps = (self.exchange.unwrap(frame.maker_key, about(frame), wrap) for wrap in frame.wraps)
        return any(wrap is not None for wrap in wraps)

    # ---- the wire

    def start(self) -> None:
        self.step(*self._seeds(), JoinGroup())
        if self.options.transport == "unicast":
            self.clock.at(self.clock.now + SEEDS_NS, self._look_for_seeds)
        self.clock.at(self.clock.now, self.application.sender.produce)
        if self.options.interfaces:
            self.interface.start()
        if self.options.looks_ns:
            self.clock.at(self.clock.now + self.options.looks_ns, self._look, 1)

    def _look(self, request: int) -> None:
        """Asks the others for their boards."""
        if not self.up:
            return
        if self.can_run:
            self.step(AskMembers(request, request % 2))
            self.service()
        self.clock.at(self.clock.now + self.options.looks_ns, self._look, request + 1)

    def _seeds(self) -> tuple[Input, ...]:
        """Where all are that were ever started, as a name says that stands for all of them."""
        if self.options.transport != "unicast":
            return ()
        others = [node for node in self.world.nodes if node is not self]
        if self.options.lies and self.network.healed:
            others = [node for node in others if node.inside][:1]
        elif self._lies.random() < self.options.lies:
            match self._lies.randrange(4):
                case 0:
                    return ()
                case 1:
                    others = [node for node in others if not node.up]
                case 2:
                    others = [node for node in others if self._lies.random() < 0.3]
                case _:
                    return (SeedsFound((NOBODY,)),)
        return (SeedsFound(tuple(sorted(node.public for node in others))),)

    def _look_for_seeds(self) -> None:
        if not self.up:
            return
        if self.can_run:
            self.step(*self._seeds())
            self.service()
        self.clock.at(self.clock.now + SEEDS_NS, self._look_for_seeds)

    def receive(self, datagram: bytes, address: bytes, lane: int = LANE_DATA) -> None:
        if self.up:
            self.sockets.arrive(datagram, address, lane)

    def receive_unicast(self, datagram: bytes, address: bytes) -> None:
        self.receive(datagram, address, LANE_UNICAST)

    def refused(self, _datagram: bytes, address: bytes) -> None:
        """A datagram to ``address`` met a closed port."""
        if self.up and self.clock.now >= self.paused_until:
            self.engine.refused(address, self.now)
            self.service()

    def wake(self, when: int) -> None:
        if self.up and when == self.timer:
            self.timer = NEVER
            self.record.wakes += 1
            if self.clock.now >= self.paused_until:
                self.service()

    def poke(self) -> None:
        """At the end of the event everything leaves, as after ``Driver.poke``."""
        self.sockets.all = True

    def service(self) -> None:
        """The I/O loop of a process: timers, the control plane, the application, and transmission."""
        now, busy, application = self.now, self.clock.now < self.stalled_until, self.application
        engine, due = self.engine, NEVER
        if engine.deadline() <= now:
            engine.tick(now)
        elif self.world.resting or self.options.seed > PINNED:
            self._tick_early()
        if not busy:
            self.step()
            self._step_early()
            self._order()
            application.run()
            pauses = self.record.pauses
            if pauses and pauses[-1].held_ns and pauses[-1].view_id is None:
                self.world.held(self)
            if self.options.guard:
                self.lines.step()
            unsent = engine.unsent()
            application.work_on()
            if engine.unsent() > unsent:
                self.sockets.packed()
            # A time of 0, such as bundle_s=0, is due in the step after.
            due = self.endpoint.deadline()
            self.restless = self.restless + 1 if due <= now else 0
            assert self.restless < STEPS_MAX, f"{self} would wake for ever at {now}"
        delivered = engine.deliverable()
        self.sockets.transmit()
        if engine.deliverable() and not delivered and not busy:  # own messages: a thread that receives is woken
            due = now
        due = engine.deadline() if busy else min(due, engine.deadline(), application.deadline(), self.lines.due())
        due -= self.ahead_ns
        if due < self.timer:
            self.timer = max(due, self.clock.now + 1)
            self.clock.at(self.timer, self.wake, self.timer)

    def _tick_early(self) -> None:
        """Before its deadline the engine has nothing to do: else the deadline is that of another timer, and this one
        would be late if no datagram came."""
        engine = self.engine
        if not engine.urgent() and dict(self.options.settings).get("slow") != "skip":  # those look at each tick
            engine.tick(self.now)
            if engine.urgent():
                self.record.violations.append(f"deadline: {self} has something to send at {self.now}, and said later")

    def _step_early(self) -> None:
        """The same for the control plane, now and then: a machine whose timers have to run names their time."""
        self.looks = (self.looks + 1) % LOOKS
        endpoint = self.endpoint
        if self.looks or endpoint.over or endpoint.deadline() <= self.now:
            return
        endpoint.context.now = self.now
        for machine in endpoint.machines.timed():
            if not isinstance(machine, Blocker | Gossiping):  # they have one timer, and look at no other time
                machine.run_timers()
                if endpoint.pending:
                    at = f"{type(machine).__name__} of {self} has something to do at {self.now}"
                    self.record.violations.append(f"deadline: {at}, and said later")
                    self.step()

    def _order(self) -> None:
        """Hands the waiting packets to its order policy, which takes a while."""
        if self.orderer is None:
            return
        if (offered := next_batch(self.engine, self.endpoint.view_tagged)) is not None:
            self.questions.offered(offered)
            self._offered_ns[offered.number] = self.clock.now
        if (batch := self.questions.ask()) is None:
            return
        ranks: list[int] | None = None
        try:
            ranks = batch.ranks(self.orderer)
        except (ArithmeticError, ValueError):
            self.record.paths["failures of order policies"] += 1
        self.clock.at(self.clock.now + self.orderer.takes_ns(), self._decided, batch.number, ranks)

    def _decided(self, batch: int, ranks: list[int] | None) -> None:
        assert self.orderer is not None
        if not self.can_run:
            if self.up:
                self.clock.at(self.busy_until, self._decided, batch, ranks)
            return
        self.questions.answered()
        in_time = self.engine.decide(batch, ranks, self.now)
        since = self._offered_ns.pop(batch)
        took_ns = self.clock.now - since
        closes = bool(self.record.gate) and isinstance(self.record.gate[-1], Blocked)  # the cut orders the packets
        if in_time and took_ns > to_ns(self.orderer.limit_s) and self.paused_until < since and not closes:
            took = took_ns / 1e6
            self.record.violations.append(f"order policy: {self} waited {took:.1f} ms for its answer")
        self.record.paths["batches that an order policy ordered" if in_time else "late order policies"] += 1
        self.poke()
        self.service()

    def leave_for(self, lane: int, to: bytes, datagram: bytes) -> None:
        """Puts a datagram on the wire."""
        if self.options.keyed and kind(datagram) in MESSAGES and not is_sealed_inside(datagram):
            self.record.violations.append(f"seal: {self} sends messages that whoever has the key file can read")
        if self.interface.refuses:
            self.interface.send_errors += 1
        elif lane == LANE_UNICAST:
            self.world.unicast(self, to, datagram)
        else:
            self.world.multicast(self, datagram)

    def step(self, *inputs: Input) -> None:
        """Hands the control plane these inputs and the engine's reports, and takes its effects."""
        came = self.engine.reports()
        for report in came:
            if isinstance(report, FrameReceived):
                self._note_view(report.payload)
            elif isinstance(report, SendersHeld) and report.how != "over":
                self.record.named.append((report.member, report.how))
                self.trace(f"names {self.name_of(report.member)} as {report.how}")
        if inputs or came or self.endpoint.deadline() <= self.now:
            self.poke()  # else the control thread would not have run
        self._carry_out(self.endpoint.step([*inputs, *came], self.now))
        while self.endpoint.pending and self.up:
            self._carry_out(self.endpoint.step((), self.now))
        self._note_repeated()
        self.record.frames_bad = self.endpoint.counters["frames_bad"]

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if not self.up:  # the process crashed at a write
                return
            if isinstance(effect, Keep):
                self.world.keep(self, effect.kept)
                continue
            if isinstance(effect, Send | Stand):
                if isinstance(effect, Send):
                    self._note_view(effect.payload, sent=True)
                    if self.world.resting:
                        self.record.frames[type(load(taken_apart(effect.payload).payload)).__name__] += 1
                transmit(self.engine, effect, self.endpoint.counters, self.now)
                continue
            if isinstance(effect, MendSockets):
                self.clock.at(self.clock.now, self.interface.mend)
                continue
            if isinstance(effect, MemberTold):
                self._note_told(effect)
                continue
            old = self.record.view
            if said := self._words(effect):
                self.trace(said)
            self.application.told(effect)
            if isinstance(effect, ViewInstalled):
                self.lines.view(effect.view)
            elif isinstance(effect, ExcludedBy | Left):
                self.lines.stop()
            if isinstance(effect, ViewInstalled) and old is not None:
                self.record.changes.append((old, effect.view, effect.change))
                self._changes.append((old, effect.view))
                self.world.changed(self, old, effect.view)
            self.world.told(self, effect)

    def _note_told(self, effect: MemberTold) -> None:
        """Another member sends its board, which is its id."""
        self.record.told.append(effect)
        if effect.member not in self.endpoint.context.infos or effect.sees != str(effect.member):
            self.record.violations.append(f"asking: {self.record} hears {effect.sees} of {effect.member}")

    def _note_view(self, payload: bytes, *, sent: bool = False) -> None:
        """Notes the attempt of a VIEW, received or sent. One that is received may be forged."""
        with contextlib.suppress(RemoteProtocolError):
            frame = load(taken_apart(payload).payload)
            if isinstance(frame, NewView):
                if sent:
                    self.world.made[frame.view_id.tag] = frame
                self._attempts.setdefault(frame.view_id, set()).add(frame.attempt)

    def _note_repeated(self) -> None:
        """After a step, which sends the VIEW to be installed."""
        for old, view in self._changes:
            made = view.view_id.flush[0], old.rank(view.view_id.flush[1])
            if self._attempts.get(view.view_id, {made}) != {made}:
                self.record.repeated.add(view.view_id)
        self._changes.clear()

    def _words(self, effect: Effect) -> str:
        """The line of the trace for an effect; "": there is none."""
        match effect:
            case ViewInstalled(view):
                return f"installs {view} {view.view_id}"
            case ExcludedBy(view_id, reason, _):
                return f"is excluded by view {view_id}: {reason}"
            case Minority(reason):
                return f"is blocked: {reason}"
            case Waiting(reason):
                return f"waits to join: {reason}"
            case JoinFailed(error):
                return f"cannot join: {error}"
            case Left():
                return "has left"
            case TakeState(provider):
                return f"awaits the state of {self.name_of(provider)}"
            case StateHeld():
                return "has the state"
            case StatePlan(held=True):
                return "may use the states that it has"
            case StatePlan(boundary, providers) if boundary:
                return f"is to stop for the states of {', '.join(map(self.name_of, providers))}"
            case PauseOver(_, reason):
                return f"pauses no more: {reason or 'as it said'}"
            case Warn(text):
                return f"warns: {text}"
        return ""

    # ---- faults

    def crash(self) -> None:
        self.record.up = False
        self.lines.stop()
        self.trace("crashes")

    def resume(self) -> None:
        """After a pause."""
        if self.up and self.clock.now >= self.paused_until:
            self.sockets.resume()
            self.service()

    def pause(self, until: int) -> None:
        self.trace(f"is paused for {(until - self.clock.now) / 1e6:.0f} ms")
        self.paused_until = until
        self.clock.at(until, self.resume)

    def stall(self, until: int) -> None:
        self.trace(f"is busy in Python for {(until - self.clock.now) / 1e6:.0f} ms")
        self.stalled_until = until
        self.clock.at(until, self.resume)

    def starve(self, until: int, longest_ns: int, whole: bool) -> None:
        """The process gets a processor only at times, for some ms, and waits for the next such time for up to
        ``longest_ns``, mostly much shorter. ``whole``: all of it; else its Python alone, while its engine continues."""
        now, rng = self.clock.now, self.starving
        if not self.up or now >= until:
            return
        runs = min(now + int(longest_ns * rng.random() ** 3), until)
        if whole:
            self.paused_until = max(self.paused_until, runs)
        else:
            self.stalled_until = max(self.stalled_until, runs)
        self.clock.at(runs, self.resume)
        self.clock.at(runs + rng.randrange(1, 10 * MS), self.starve, until, longest_ns, whole)

    def slow_disk(self, until: int) -> None:
        """Its journal holds the application up: nothing is taken from the stream, while the rest continues."""
        if not self.record.inside:
            return
        if self.record.runs:
            self.record.runs[-1].late = True  # meanwhile it sees no gate close
        self.trace(f"waits for its disk for {(until - self.clock.now) / 1e6:.0f} ms")
        self.record.slow_until = max(self.record.slow_until, until)  # two waits may overlap
        self.record.slow_spells.append((self.clock.now, until))
        self.clock.at(until, self.resume)

    def jump(self, monotonic_ns: int, wall_ns: int) -> None:
        """Its clocks jump: the monotonic one forward, as after a sleep of the machine; the wall clock either way."""
        self.trace(f"finds its clocks {monotonic_ns / 1e6:.0f} ms and {wall_ns / 1e6:.0f} ms ahead")
        self.ahead_ns += monotonic_ns
        self.wall_ahead_ns += wall_ns
        self.timer = NEVER  # pending events are of the old clock
        self.resume()

    def leave(self) -> None:
        self.application.leave()

    def say(self, number: int) -> None:
        """Its application gives another info."""
        self.application.say(said_of(self.name, number))

    def suspend(self, hold_ns: int) -> None:
        self.application.suspend(hold_ns)

    def doubt(self, member_id: int) -> None:
        """Makes this member take another one for dead."""
        if self.can_run:
            self.world.doubted = True
            self.trace(f"doubts {self.world.name(member_id)}")
            self.step(MemberSuspected(member_id))
            self.service()
