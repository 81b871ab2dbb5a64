"""Literal readings of the rules, each wrong in one sentence: the simulator must be seen to catch them.

Each is a context manager that yields keyword arguments for ``World`` while its rule is out of force. They live here and
not in the product: a protocol change comes with a simulated run that needs the change.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import sim_literal_order
from hostile.forge import MAGIC, VERSION
from rewired import replaced, rewired
from sim_literal_order import ACK, sealed

import seqcast.core.machines.initiator
import seqcast.core.wiring
import seqcast.sim.sending
from seqcast._native.engine import AGAIN, SENT, Engine, Sending
from seqcast.core.context import NEVER, Context
from seqcast.core.frames.closing import Cut, Start
from seqcast.core.frames.fields import Attempt
from seqcast.core.frames.merging import MergeAsk
from seqcast.core.frames.pausing import Suspend
from seqcast.core.frames.view import NewView
from seqcast.core.installer import Installer
from seqcast.core.losses import Losses
from seqcast.core.machines.blocker import Blocker
from seqcast.core.machines.initiator import Initiator
from seqcast.core.machines.lifecycle import Lifecycle
from seqcast.core.machines.merge import Merger
from seqcast.core.machines.participant import Participant
from seqcast.core.machines.pause_member import PauseMember
from seqcast.core.machines.pause_owner import PauseOwner, PauseOwnerState
from seqcast.core.state.merging import GiveState
from seqcast.core.state.transfer import BeginState, StateChunk, TransferEffect
from seqcast.core.wiring import Machines
from seqcast.sim import Options, World, families
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process
from seqcast.sim.state import StateKeeper
from seqcast.types import MembershipChange, ViewId

PROBE, HEARTBEAT = 6, 7  # types of datagrams: docs/wire.md


def storm(seed: int, order: str = "fifo") -> Options:
    """A short run in which view changes hit each other: false suspicions, ambushes, slow links, much traffic."""
    return Options(seed=seed, order=order, **families.STORM)


def turnover(seed: int, order: str = "fifo") -> Options:
    """A short run in which members join and take over a large state, and their providers crash."""
    return Options(seed=seed, order=order, **families.TURNOVER)


Variant = Callable[[], "contextlib.AbstractContextManager[dict[str, Any]]"]


@contextlib.contextmanager
def as_built() -> Iterator[dict[str, Any]]:
    yield {}


class _NoFreeze(Engine):
    """After its OK a member still accepts packets of members outside the survivors."""

    def freeze(self, lost: Any, still: bool = False) -> None:
        pass


@contextlib.contextmanager
def no_freeze() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _NoFreeze}


class _NoPromise(Participant):
    """Attempts are ordered by their number alone: a member answers two with the same number, and takes the CUT and the
    VIEW of either."""

    answered: frozenset[Attempt] = frozenset()

    def start(self, frame: Start, sender: int) -> None:
        again = frame.attempt[0] == self.promise[0] and frame.attempt != self.promise
        if again and self.context.me.id in frame.survivors:
            self.promise = (frame.attempt[0], -1)  # so that the other initiator's START is above
        super().start(frame, sender)

    def promise_it(self, frame: Start) -> None:
        Participant.promise_it(self, frame)
        self.answered = frozenset({each for each in self.answered if each[0] == frame.attempt[0]} | {frame.attempt})

    TABLE = rewired(Participant, promise_it=promise_it)

    def cut(self, frame: Cut, sender: int) -> None:
        if frame.attempt in self.answered:
            self.promise = frame.attempt
        super().cut(frame, sender)

    def may_install(self, frame: NewView) -> bool:
        return frame.attempt in self.answered


_NoPromise.__name__ = Participant.__name__  # of its states at rest


@contextlib.contextmanager
def no_promise() -> Iterator[dict[str, Any]]:
    with mock.patch.object(seqcast.core.wiring, "Participant", _NoPromise):
        yield {}


@contextlib.contextmanager
def no_adoption() -> Iterator[dict[str, Any]]:
    """The VIEW that answers a START is not adopted: the initiator continues with its own proposal."""
    with mock.patch.object(Initiator, "newer", lambda self, frame: None):
        yield {}


@contextlib.contextmanager
def short_tag() -> Iterator[dict[str, Any]]:
    """Packets carry the view's counter alone, so that messages of another view are received in this one (TOT-02)."""
    with mock.patch.object(ViewId, "tag", property(lambda self: self.counter)):
        yield {}


@contextlib.contextmanager
def stale_answer() -> Iterator[dict[str, Any]]:
    """A member reports in each attempt the packets held in the first, whoever the survivors are now."""

    def close_gate(self: Participant, frame: Start) -> None:
        first = self.ok
        original(self, frame)
        if first is not None:
            self.ok = replace(first, attempt=frame.attempt)

    original = Participant.close_gate
    with replaced(Participant, close_gate=close_gate):
        yield {}


@contextlib.contextmanager
def bump_of_joiner() -> Iterator[dict[str, Any]]:
    """The joiner's digest is one too high for each sender (DIG-05, E-09)."""
    original = Installer.install

    def install(self: Any, frame: NewView, first: bool) -> None:
        if first and len(frame.members) > 1:
            frame = replace(frame, base=tuple(base + 1 for base in frame.base[:-1]) + frame.base[-1:])
        original(self, frame, first)

    with mock.patch.object(Installer, "install", install):
        yield {}


class _LateGate(Engine):
    """OK names the last seqno, and the gate closes when the CUT comes (FLU-15, E-15)."""

    rank = 0

    def install(self, **arguments: Any) -> None:
        self.rank = arguments["rank"]
        super().install(**arguments)

    def gate_close(self, unicasts: bool = False) -> int:
        return self.held(self.rank)[0]

    def cut(self, cut: Any, fetch: Any) -> None:
        super().gate_close()
        super().cut(cut, fetch)


@contextlib.contextmanager
def late_gate() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _LateGate}


@contextlib.contextmanager
def no_reconciliation() -> Iterator[dict[str, Any]]:
    """The digests are collected, and no member levels its messages with the others before the view (FLU-01, FLU-05 to
    FLU-07, E-14)."""

    def fetch(self: Participant, frame: Cut) -> None:
        held = [self.context.plane.held(rank)[0] for rank in range(len(frame.cut))]
        self.context.plane.cut([min(pair) for pair in zip(held, frame.cut, strict=True)], ())

    def held(self: Participant, frame: NewView) -> bool:
        return frame.attempt == self.promise

    with replaced(Participant, fetch=fetch), mock.patch.object(Participant, "may_install", held):
        yield {}


@contextlib.contextmanager
def no_deadline() -> Iterator[dict[str, Any]]:
    """A block callback is waited for without limit (E-17)."""
    call, initiate = Blocker.call, Initiator.initiate

    def forever(self: Blocker) -> None:
        call(self)
        self.due_ns = NEVER

    def patient(self: Initiator, survivors: tuple[int, ...]) -> None:
        self.block_until_ns = self.context.tag, NEVER
        initiate(self, survivors)

    with replaced(Blocker, call=forever), mock.patch.object(Initiator, "initiate", patient):
        yield {}


@contextlib.contextmanager
def late_state() -> Iterator[dict[str, Any]]:
    """The provider takes its state late, some messages behind the boundary."""

    def feed(self: StateKeeper, effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, GiveState):
                clock = self.machine.clock
                clock.at(clock.now + 20 * MS, original, self, [effect])
            else:
                original(self, [effect])

    original = StateKeeper.feed
    with mock.patch.object(StateKeeper, "feed", feed):
        yield {}


@contextlib.contextmanager
def resumed_elsewhere() -> Iterator[dict[str, Any]]:
    """Chunks continue where they were, even with another provider."""

    def feed(self: StateKeeper, effects: list[TransferEffect]) -> None:
        if any(isinstance(effect, BeginState) for effect in effects):
            self.skipped = len(self.data)
        for effect in effects:
            if isinstance(effect, StateChunk):
                behind = min(self.skipped, len(effect.data))
                self.skipped -= behind
                self.data += effect.data[behind:]
        original(self, [effect for effect in effects if not isinstance(effect, BeginState | StateChunk)])

    original = StateKeeper.feed
    with mock.patch.object(StateKeeper, "feed", feed):
        yield {}


@contextlib.contextmanager
def no_pause_id() -> Iterator[dict[str, Any]]:
    """A SUSPEND that comes after its pause has ended stops each member reached; there is no lease either (E-18)."""

    def due(self: PauseMember) -> int:
        return self.poll_ns

    def is_over(self: PauseMember, frame: Suspend, sender: int) -> bool:
        return False

    with mock.patch.object(PauseMember, "is_over", is_over), mock.patch.object(PauseMember, "due", due):
        yield {}


@contextlib.contextmanager
def pause_done_over() -> Iterator[dict[str, Any]]:
    """If the owner of a pause crashes, the next member repeats the pause (FLU-08, E-18)."""
    install, close = Installer.install, Machines.end_pauses
    pausing: dict[Machines, set[int]] = {}

    def end(self: Machines) -> None:
        pausing[self] = pausing.get(self, set()) | set(self.pause_member.known)
        close(self)

    def literal(self: Installer, frame: NewView, first: bool) -> None:
        paused = pausing.pop(self.machines, set())
        install(self, frame, first)
        if paused - {info.id for info in frame.members} and frame.members[0].id == self.context.me.id:
            self.machines.pause_owner.rest()
            self.machines.pause_owner.state = PauseOwnerState.IDLE
            self.machines.pause_owner.suspend(-1, SECOND)

    def hold(self: PauseOwner, *_: object) -> None:
        original(self)
        if self.request == -1:
            self.deadline_ns = NEVER
            self.context.emitted.pop()  # there is no application that asked

    original = PauseOwner.hold
    patches = (Installer, "install", literal), (Machines, "end_pauses", end)
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        stack.enter_context(replaced(PauseOwner, hold=hold))
        yield {}


class _Forgotten(Engine):
    """A view drops messages queued while the view before was closed."""

    def install(self, **arguments: Any) -> None:
        if self.blocked():
            self.blocked_end()
        super().install(**arguments)


@contextlib.contextmanager
def queue_forgotten() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Forgotten}


class _Queueing(Engine):
    """Has a queue of its own, beside that of the engine."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.later: list[Sending] = []
        self.closed = False

    def gate_close(self, unicasts: bool = False) -> int:
        self.closed = True
        return super().gate_close(unicasts)

    def install(self, **arguments: Any) -> None:
        self.closed = False
        super().install(**arguments)

    def blocked(self) -> int:
        return len(self.later)


class _NewerFirst:
    """A message that meets a closed gate is put aside, and is sent after the next one that finds the gate open."""

    def __init__(self, engine: _Queueing, payload: bytes, to: int = 0, ordered: bool = True) -> None:
        self.engine, self.to, self.inner = engine, to, Sending(engine, payload, to, ordered)

    @property
    def packed(self) -> bool:
        return self.inner.packed

    def step(self, wall_ns: int = 0) -> int:
        result, later = self.inner.step(wall_ns), self.engine.later
        if result == AGAIN and not self.to and self.engine.closed:
            later.append(self.inner)
            return SENT
        while result == SENT and not self.to and later and later[0].step(wall_ns) == SENT:
            del later[0]
        return result


@contextlib.contextmanager
def newer_first() -> Iterator[dict[str, Any]]:
    with mock.patch.object(seqcast.sim.sending, "Sending", _NewerFirst):
        yield {"make_engine": _Queueing}


@contextlib.contextmanager
def no_quorum() -> Iterator[dict[str, Any]]:
    """Each side of a partition considers itself primary."""
    with mock.patch.object(Context, "enough", lambda self, survivors: True):
        yield {}


@contextlib.contextmanager
def done_forgotten() -> Iterator[dict[str, Any]]:
    """DONE does not accept: an initiator proposes any VIEW, whatever the others have accepted before."""
    with mock.patch.object(seqcast.core.machines.initiator, "to_repeat", lambda *arguments: None):
        yield {}


class _NotStill(Engine):
    """In a primary partition, too, members continue to deliver between their OK and the CUT."""

    def freeze(self, lost: Any, still: bool = False) -> None:
        super().freeze(lost)


@contextlib.contextmanager
def not_still() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _NotStill}


class _OneVector(Engine):
    """Of each stream one mark is reported, the least that was delivered, for the purge and the last message (NAK-02,
    E-13)."""

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        return [(lane, to, self.retold(datagram)) for lane, to, datagram in super().transmit(now_ns, all, runs_max)]

    def retold(self, datagram: bytes) -> bytes:
        told = bytearray(datagram)
        if datagram[2] == PROBE and datagram[40] == 0:  # of the group's stream
            told[48:56] = told[56:64]
        elif datagram[2] == HEARTBEAT:
            told[40:48] = told[48:56]
            for rank, at in enumerate(range(136, len(told), 16)):
                told[at + 8 : at + 16] = self.stream(rank)[2].to_bytes(8, "little")
        return sealed(told)


class _Silent(World):
    """Nobody sends a last message: a loss at the end stays, unless revealed by something else."""

    def start_node(self, name: str) -> None:
        super().start_node(name)
        self.nodes[-1].application.say_last = lambda: None


@contextlib.contextmanager
def one_vector() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _OneVector}


class _Voting(Engine):
    """Others' votes for stability are made up here, as far as ``votes`` says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.me: int = settings["member_id"]
        self.members: dict[int, bytes] = {}
        self.newcomers: list[int] = []
        self.tag = self.rank = 0

    def install(self, **arguments: Any) -> None:
        before, self.members = self.members, dict(zip(arguments["ids"], arguments["addresses"], strict=True))
        self.newcomers = [member for member in self.members if before and member not in before]
        self.tag, self.rank = arguments["tag"], arguments["rank"]
        super().install(**arguments)

    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        out = super().transmit(now_ns, all, runs_max)
        for member, stable in self.votes(self.held(self.rank)[0]):
            head = struct.pack("<BBBBIIHHQQQ", MAGIC, VERSION, ACK, 0, 0, 1, 0, 0, member, self.tag, 0)
            vote = sealed(bytearray(head + struct.pack("<6Q", 0, stable, stable, stable, 0, 0)))
            self.receive(vote, self.members[member], now_ns)
        return out

    def votes(self, sent: int) -> list[tuple[int, int]]:
        """(member, up to which seqno of our stream others say that this member has delivered)."""
        raise NotImplementedError


class _Unilateral(_Voting):
    """Members that joined with the last view are not asked: the others decide (STA-06, STA-07)."""

    def votes(self, sent: int) -> list[tuple[int, int]]:
        return [(member, sent) for member in self.newcomers]


class _Lagging(_Voting):
    """Packets far enough behind the newest are purged, whichever members have them (PB-03, E-10)."""

    LAG = 10

    def votes(self, sent: int) -> list[tuple[int, int]]:
        return [(member, sent - self.LAG) for member in self.members if member != self.me and sent > self.LAG]


@contextlib.contextmanager
def unilateral() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Unilateral}


@contextlib.contextmanager
def lag_for_votes() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _Lagging}


@contextlib.contextmanager
def own_merge_ids() -> Iterator[dict[str, Any]]:
    """Each coordinator that hears of another view makes an id, before any is elected, and refuses all others (MRG-04,
    E-11)."""
    original = Merger._ask

    def ask(self: Merger, frame: MergeAsk, sender: int, address: bytes) -> None:
        if sender in self.beacons.heard:
            self.refuse(frame, sender, address)
        else:
            original(self, frame, sender, address)

    with mock.patch.object(Merger, "_ask", ask):
        yield {}


@contextlib.contextmanager
def no_merge_timer() -> Iterator[dict[str, Any]]:
    """A follower of a merge has no timer, and waits until its leader goes or cancels, and no leader that dies does
    (MRG-06, E-12)."""
    with replaced(Merger, renew=lambda self, *_: None):
        yield {}


class _LeaderFalls(World):
    """The first leader to which a subgroup reports its cut crashes at that moment."""

    fallen = False

    def unicast(self, source: Process, to: bytes, datagram: bytes) -> None:
        if b'"kind":"merge_ready"' in datagram and not self.fallen:
            self.fallen = True
            self.by_address[to].crash()
        super().unicast(source, to, datagram)


class _MulticastsOnly(Engine):
    """A flush levels messages to the group, but not unicasts (FLU-16, E-16)."""

    def gate_close(self, unicasts: bool = False) -> int:
        return super().gate_close()


@contextlib.contextmanager
def multicasts_only() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _MulticastsOnly}


@contextlib.contextmanager
def policy_unchecked() -> Iterator[dict[str, Any]]:
    """The result of a membership policy is the next view, even if members are missing there."""

    def arrange(self: Initiator, infos: Any, subgroups: Any) -> Any:
        policy, by_id = self.context.settings.membership_policy, {info.id: info for info in infos}
        assert policy is not None
        order = policy(MembershipChange(tuple(info.member for info in infos)))
        arranged = [by_id[member.id] for member in dict.fromkeys(order) if member.id in by_id]
        return infos if subgroups else arranged or infos

    with mock.patch.object(Initiator, "arrange", arrange):
        yield {}


@contextlib.contextmanager
def larger_wins() -> Iterator[dict[str, Any]]:
    """Of two groups founded apart the larger one stays, and a blocked one gives way (no history)."""
    with mock.patch.object(Context, "history_so_far", lambda context: 0):
        yield {}


class _Refounded(World):
    """All but one crash halfway; others start while they do not hear the last one, and then the network heals."""

    def plan(self) -> None:
        super().plan()
        self.clock.at(self.options.duration_ns // 2, self.lose_majority)

    def lose_majority(self) -> None:
        alive = [node for node in self.nodes if node.up and node.endpoint.view]
        for node in alive[1:]:
            node.crash()
        begin, last = len(self.nodes), alive[0]
        self.network.partition({last.index}, set(range(begin, begin + 3)))
        for number in range(self.rng.randrange(1, 4)):
            self.clock.at(self.clock.now + self.rng.randrange(SECOND), self.start_node, f"s{number}")
        self.clock.at(self.clock.now + SECOND + self.rng.randrange(2 * SECOND), self.network.heal)


class _SendsGoOn(Engine):
    """A leaver's application may send until the closing VIEW comes."""

    def end_sends(self) -> None:
        pass


@contextlib.contextmanager
def sends_go_on() -> Iterator[dict[str, Any]]:
    yield {"make_engine": _SendsGoOn}


@contextlib.contextmanager
def no_drain() -> Iterator[dict[str, Any]]:
    """LEAVE is sent at once, whatever is on its way to the sequencer (without SEQ-24)."""
    with replaced(Lifecycle, drained=lambda self, minority: True):
        yield {}


@contextlib.contextmanager
def silent_loss() -> Iterator[dict[str, Any]]:
    """A member that is out does not learn which messages the others did not deliver."""
    with mock.patch.object(Losses, "undelivered", lambda self, *args, **named: []):
        yield {}


@contextlib.contextmanager
def alone_is_well() -> Iterator[dict[str, Any]]:
    """A member that was cut off counts itself as the whole group."""
    with mock.patch.object(Losses, "alone", lambda self, *args: []):
        yield {}


@contextlib.contextmanager
def lost_by_packets() -> Iterator[dict[str, Any]]:
    """`Lost` counts a packet as a message."""

    class Counts(Engine):
        def own_messages(self, first: int, last: int, waiting: bool = False) -> list[int]:
            return list(range(1, last - first + 2))

    yield {"make_engine": Counts}


VARIANTS: dict[str, Variant] = {
    "as_built": as_built,
    "no_freeze": no_freeze,
    "no_promise": no_promise,
    "no_adoption": no_adoption,
    "short_tag": short_tag,
    "stale_answer": stale_answer,
    "bump_of_joiner": bump_of_joiner,
    "late_gate": late_gate,
    "no_reconciliation": no_reconciliation,
    "no_deadline": no_deadline,
    "late_state": late_state,
    "resumed_elsewhere": resumed_elsewhere,
    "no_pause_id": no_pause_id,
    "pause_done_over": pause_done_over,
    "queue_forgotten": queue_forgotten,
    "newer_first": newer_first,
    "no_quorum": no_quorum,
    "done_forgotten": done_forgotten,
    "not_still": not_still,
    "one_vector": one_vector,
    "unilateral": unilateral,
    "lag_for_votes": lag_for_votes,
    "own_merge_ids": own_merge_ids,
    "no_merge_timer": no_merge_timer,
    "multicasts_only": multicasts_only,
    "policy_unchecked": policy_unchecked,
    "larger_wins": larger_wins,
    "sends_go_on": sends_go_on,
    "no_drain": no_drain,
    "silent_loss": silent_loss,
    "alone_is_well": alone_is_well,
    "lost_by_packets": lost_by_packets,
    **sim_literal_order.VARIANTS,
}


DISAGREEING = families.calm(
    members=3, duration_ns=SECOND // 2, bytes_max=50, delay_ns=5 * MS, jitter_ns=1000, loss=0.1, tail=0.1,
    tail_ns=100 * MS, doubts=30, rejoins=8, unicasts=0,
)  # fmt: skip
"""In a group of three the VIEW of each initiator often misses the other two: different views with the same counter and
common members."""
STORMS: dict[str, dict[str, Any]] = {
    "no_promise": families.calm(
        duels=1, duration_ns=450 * MS, bytes_max=50, rate=1000, delay_ns=5 * MS, jitter_ns=5 * MS, unicasts=0,
    ),
    "stale_answer": families.calm(
        members=5, bytes_max=200, delay_ns=5 * MS, jitter_ns=5 * MS, loss=0.02, tail=0.1, tail_ns=100 * MS, crashes=1,
        doubts=30, rejoins=20, unicasts=0,
    ),
    "short_tag": DISAGREEING,
    "no_deadline": {"blocks": 1.0},
    "late_state": {"state": True, "state_bytes": 100_000},
    "no_pause_id": families.calm(suspends=6, tail=0.5, tail_ns=400 * MS),
    "pause_done_over": families.calm(suspends=4, crashes=1),
    "queue_forgotten": {"queue_bytes": 1 << 20},
    "no_quorum": {"partition": "primary", "split": 2},
    "done_forgotten": families.calm(partition="primary", members=5, ambushes=6, doubts=4, rejoins=8),
    "not_still": {"partition": "primary"},
    "one_vector": families.calm(loss=0.2, rate=20),
    "unilateral": families.calm(loss=0.2, spread_ns=500 * MS),
    "lag_for_votes": families.calm(loss=0.1, tail=0.05, tail_ns=100 * MS),
    "multicasts_only": families.calm(
        flush_unicasts=True, unicasts=0.9, doubts=12, loss=0.15, delay_ns=5 * MS, jitter_ns=5 * MS
    ),
    "policy_unchecked": {"policy": "rubbish"},
    "larger_wins": families.calm(partition="primary", duration_ns=5 * SECOND, rate=50, bytes_max=200, doubts=1),
    "sends_go_on": families.calm(leaves=3, order="sequencer"),
    "no_drain": families.calm(leaves=3, order="sequencer", loss=0.1, delay_ns=5 * MS, jitter_ns=5 * MS),
    "silent_loss": {"partition": "primary", "leaves": 1},
    "alone_is_well": families.calm(members=2, partitions=1, leaves=1, duration_ns=2 * SECOND),
    "lost_by_packets": {"partition": "primary", "leaves": 1},
    "own_merge_ids": families.calm(partitions=1, duration_ns=2 * SECOND, rate=50),
    "no_merge_timer": families.calm(partitions=1, duration_ns=2 * SECOND, rate=50),
    **sim_literal_order.STORMS,
}  # fmt: skip
"""Options that make a rule's case common, if rare in ``storm``."""
WORLDS: dict[str, type[World]] = {
    "one_vector": _Silent,
    "no_merge_timer": _LeaderFalls,
    "larger_wins": _Refounded,
}


def violation(variant: str, seed: int, rules: str = "") -> str:
    """The first violation that the checkers see in one storm of a variant, or "".

    Args:
        rules: of another variant, in the same storm.

    Raises:
        AssertionError: the code under test noticed its own error. That is not a find: a wrong reading is a protocol
            that somebody could have built without our assertions.
    """
    with VARIANTS[rules or variant]() as arguments:
        options = replace(storm(seed), **STORMS.get(variant, {}))
        return next(iter(WORLDS.get(variant, World)(options, **arguments).run().violations), "")


def finds(variant: str, seed: int) -> str:
    """As ``violation``; a storm that ends in an assertion found nothing."""
    try:
        return violation(variant, seed)
    except AssertionError:
        return ""


if __name__ == "__main__":  # python tests/helpers/sim_literal.py VARIANT FIRST LAST: the storms that find the fault
    for number in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
        try:
            words = violation(sys.argv[1], number)
        except AssertionError as error:
            words = f"no find, an assertion: {error}"
        if words:
            print(number, words, flush=True)
