"""The transfer of the application's state: one transfer at the joiner, and one at its provider (the cut, step 10).

`taker.py` agrees with the group on the provider for each joiner. This machine decides which bytes belong to the
transfer, when a provider is given up, how long the application may take to load the state, and when the messages
delivered meanwhile come. The runner moves the bytes, calls the application's handler, and carries out the effects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER
from seqcast.core.state.backlog import Backlog, Item
from seqcast.core.state.chunks import Incoming, Outgoing, Piece
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StateHeld, StateLost, StateRefused, TakeState
from seqcast.errors import RemoteProtocolError, without_code


@dataclass(frozen=True, slots=True)
class BeginState:
    """Drop the received part of the state, and begin to read another provider's."""

    provider: int


@dataclass(frozen=True, slots=True)
class StateChunk:
    """The next bytes of the state."""

    data: bytearray


@dataclass(frozen=True, slots=True)
class ProviderSilent:
    """Nothing has come from the provider: its application has not yet reached the view of the state."""

    provider: str


@dataclass(frozen=True, slots=True)
class LoadState:
    """The state is complete, and the application loads it. ``read``, then ``loaded`` or ``failed``, follow."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The application has the state: deliver these items next, and then the engine's."""

    items: deque[Item]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This member cannot get the state: the application learns why, and the member leaves."""

    error: str


TransferEffect = (
    BeginState | StateChunk | StateArrived | StateRefused | ProviderSilent | LoadState | Deliver | LeaveGroup | GiveUp
)
"""Effects for the runner. ``StateArrived``, ``StateRefused``, ``LeaveGroup``: as inputs of the endpoint."""


class TransferState(Enum):
    IDLE = auto()
    RECEIVING = auto()
    REPORTED = auto()
    LOADING = auto()
    CATCHING_UP = auto()
    INSIDE = auto()
    OUT = auto()


class TransferEvent(Enum):
    NAMED = auto()
    COMPLETE = auto()
    UNFIT = auto()
    OWN = auto()
    HELD = auto()
    READ = auto()
    DUE = auto()
    LOADED = auto()
    DELIVERED = auto()
    HELD_BACK = auto()
    LOST = auto()
    FAILED = auto()
    OVER = auto()


SILENCE_NS = 10**9
"""After this long without a byte of a provider the joiner says so. A provider that is at work says so at once."""
WITHOUT = (TransferState.IDLE, TransferState.RECEIVING, TransferState.REPORTED)


class Transfer(TableMachine):
    """The joiner's side.

    Args:
        timeout_ns: how long a provider may be silent, and how long the application may work on the state without a
        read.
        backlog_bytes: bound of the deliveries held meanwhile; see ``Backlog``.
        name_of: the name of a member, for errors.
        edges: of the endpoint.
    """

    def __init__(self, timeout_ns: int, backlog_bytes: int, name_of: Callable[[int], str], edges: set[Edge]) -> None:
        super().__init__(TransferState.IDLE, edges)
        self.backlog = Backlog(backlog_bytes, edges)
        self.provider = 0
        self.incoming = Incoming(0)
        """Where the next bytes of the provider go; another one after each ``BeginState``."""
        self._timeout_ns = timeout_ns
        self._name_of = name_of
        self._now = 0
        self._deadline_ns = NEVER
        self._silent_ns = NEVER  # when the provider has been silent for long, if nothing comes
        self._effects: list[TransferEffect] = []

    # ---- inputs, each of which returns effects

    def told(self, effect: TakeState | StateHeld | StateLost, now_ns: int) -> list[TransferEffect]:
        """The endpoint reports the group's agreement."""
        match effect:
            case TakeState(provider, boundary):
                return self._take(now_ns, TransferEvent.NAMED, provider, boundary)
            case StateHeld(boundary):
                return self._take(now_ns, TransferEvent.HELD if boundary else TransferEvent.OWN)
            case StateLost(error):
                return self._take(now_ns, TransferEvent.LOST, f"no state: {error}")

    def filled(self, incoming: Incoming, count: int, now_ns: int) -> list[TransferEffect]:
        """``count`` bytes of the provider are in ``incoming.room``."""
        if incoming is not self.incoming:  # another provider was named meanwhile, or this one was given up
            return []
        try:
            chunk = incoming.filled(count)
        except RemoteProtocolError as error:
            return self._take(now_ns, TransferEvent.UNFIT, without_code(error))
        if incoming.begun:
            self._silent_ns = NEVER
            self._deadline_ns = now_ns + self._timeout_ns
        if incoming.refusal is not None:
            return self._take(now_ns, TransferEvent.UNFIT, incoming.refusal)
        if incoming.over:
            return self._take(now_ns, TransferEvent.COMPLETE)
        return [StateChunk(chunk)] if chunk else []

    def read(self, now_ns: int) -> list[TransferEffect]:
        """The application reads from the state while loading."""
        return self._take(now_ns, TransferEvent.READ)

    def loaded(self, now_ns: int) -> list[TransferEffect]:
        """The application has loaded the state."""
        return self._take(now_ns, TransferEvent.LOADED)

    def failed(self, error: str, now_ns: int) -> list[TransferEffect]:
        """The application cannot load the state."""
        return self._take(now_ns, TransferEvent.FAILED, error)

    def delivered(self, item: Item, now_ns: int) -> list[TransferEffect]:
        """The next delivery of the engine, while ``holds`` is true."""
        return self._take(now_ns, TransferEvent.DELIVERED, item)

    def over(self, now_ns: int) -> list[TransferEffect]:
        """This member has left, or was excluded."""
        return self._take(now_ns, TransferEvent.OVER)

    def due(self) -> int:
        return min(self._deadline_ns, self._silent_ns)

    def run_timers(self, now_ns: int) -> list[TransferEffect]:
        """``due`` has come: the provider is silent, or the application takes too long."""
        if now_ns < self._deadline_ns:
            if now_ns < self._silent_ns:
                return []
            self._silent_ns = NEVER
            return [ProviderSilent(self._name_of(self.provider))]
        return self._take(now_ns, TransferEvent.DUE)

    def _take(self, now_ns: int, event: TransferEvent, *args: object) -> list[TransferEffect]:
        self._now = now_ns
        self.fire(event, *args)
        effects, self._effects = self._effects, []
        return effects

    # ---- queries

    @property
    def receiving(self) -> bool:
        """Bytes of ``provider`` are to be read into ``incoming``."""
        return self.state is TransferState.RECEIVING

    @property
    def inside(self) -> bool:
        """The application has the state and is receiving."""
        return self.state is TransferState.INSIDE

    @property
    def ended(self) -> bool:
        """The application is inside, or never will be."""
        return self.state in (TransferState.INSIDE, TransferState.OUT)

    @property
    def holds(self) -> bool:
        """Deliveries go to ``delivered``; False: they stay in the engine, or go to the application."""
        return self.state is not TransferState.IDLE and not self.ended and not self.backlog.full

    # ---- actions

    def begin(self, provider: int, boundary: int) -> None:
        self.provider, self.incoming = provider, Incoming(boundary)
        self.extend_deadline()
        self._silent_ns = self._now + SILENCE_NS
        self.backlog.restart(boundary)
        self._effects.append(BeginState(provider))

    def report_arrival(self) -> None:
        self._effects.append(StateArrived(self.incoming.boundary))
        self.stop()

    def report_refusal(self, reason: str) -> None:
        self._effects.append(StateRefused(self.incoming.boundary, f"{self._name_of(self.provider)}: {reason}"))
        self.stop()

    def report_silence(self) -> None:
        self.report_refusal(
            f"nothing came for state_timeout_s={self._timeout_ns / 1e9:g} s; its application has to receive, and "
            "get_state to return, for the state to be taken"
        )

    def load(self) -> None:
        self.extend_deadline()
        self._effects.append(LoadState())

    def extend_deadline(self) -> None:
        self._deadline_ns = self._now + self._timeout_ns

    def hold(self, item: Item) -> None:
        self.backlog.add(item)
        self.fire(TransferEvent.HELD_BACK)

    def pass_on(self, item: Item) -> None:
        self._effects.append(Deliver(deque([item])))

    def deliver(self) -> None:
        self.stop()
        self._effects.append(Deliver(self.backlog.release()))

    def deliver_nothing(self) -> None:
        self._effects.append(Deliver(deque()))

    def leave(self) -> None:
        self._effects.append(LeaveGroup(0))

    def give_up(self, error: str) -> None:
        self.stop()
        self._effects.append(GiveUp(error))

    def give_up_late(self) -> None:
        self.give_up(
            f"set_state took longer than state_timeout_s={self._timeout_ns / 1e9:g} s after its last read, and the "
            "group was left, so that it is not held up: join again with a longer one"
        )

    def stop(self) -> None:
        """Nothing is read and no deadline runs."""
        self.incoming = Incoming(0)
        self._deadline_ns = self._silent_ns = NEVER

    # ---- guards

    def too_early(self) -> bool:
        """The boundary is yet to be delivered."""
        return not self.backlog.behind_boundary

    S, E = TransferState, TransferEvent
    TABLE: ClassVar[Table] = table(
        "transfer",
        S,
        E,
        (WITHOUT, E.NAMED, S.RECEIVING, begin, "a provider and a boundary: start from nothing"),
        (S.OUT, E.NAMED, None, IGNORED, "given up meanwhile"),
        (None, E.NAMED, None, ILLEGAL, "the state is held: no provider is needed"),
        (S.RECEIVING, E.COMPLETE, S.REPORTED, report_arrival, "all parts have come, and the checksum is right"),
        (None, E.COMPLETE, None, ILLEGAL, "state is read only while receiving"),
        (S.RECEIVING, E.UNFIT, S.REPORTED, report_refusal, "refused by the provider, or not of this transfer"),
        (None, E.UNFIT, None, ILLEGAL, "state is read only while receiving"),
        (S.IDLE, E.OWN, S.INSIDE, deliver_nothing, "the group's first member: its own state is the group's"),
        (S.OUT, E.OWN, None, IGNORED, "given up meanwhile"),
        (None, E.OWN, None, ILLEGAL, "the first member takes no state"),
        (S.REPORTED, E.HELD, S.LOADING, load, "no view came in between: the state holds"),
        (S.OUT, E.HELD, None, IGNORED, "given up meanwhile"),
        (None, E.HELD, None, ILLEGAL, "follows a report"),
        (S.LOADING, E.READ, None, extend_deadline, "the application is at work"),
        (None, E.READ, None, IGNORED, "the reader goes on past the end"),
        (S.RECEIVING, E.DUE, S.REPORTED, report_silence, "the provider, or its application, is silent"),
        (S.LOADING, E.DUE, S.OUT, (leave, give_up_late), "this application must not hold up the group any longer"),
        (None, E.DUE, None, ILLEGAL, "the timer runs only while receiving and loading"),
        (S.LOADING, (E.LOADED, too_early), S.CATCHING_UP, stop, "nothing is delivered before the boundary"),
        (S.LOADING, E.LOADED, S.INSIDE, deliver, "the application has the state"),
        (S.OUT, E.LOADED, None, IGNORED, "too late"),
        (None, E.LOADED, None, ILLEGAL, "loaded once"),
        (S.IDLE, E.DELIVERED, None, ILLEGAL, "nothing is taken before a provider is named"),
        (S.INSIDE, E.DELIVERED, None, pass_on, "taken from the engine just before the application was let in"),
        (S.OUT, E.DELIVERED, None, IGNORED, "this application is out"),
        (None, E.DELIVERED, None, hold, "the application lacks the state"),
        (S.CATCHING_UP, (E.HELD_BACK, too_early), None, IGNORED, "the boundary is yet to be delivered"),
        (S.CATCHING_UP, E.HELD_BACK, S.INSIDE, deliver, "the state belongs to this point of the stream"),
        ((S.RECEIVING, S.REPORTED, S.LOADING), E.HELD_BACK, None, IGNORED, "the application lacks the state"),
        (None, E.HELD_BACK, None, ILLEGAL, "nothing is held then"),
        (WITHOUT, E.LOST, S.OUT, give_up, "no member can give the state"),
        (S.OUT, E.LOST, None, IGNORED, "given up meanwhile"),
        (None, E.LOST, None, ILLEGAL, "the state is held"),
        (S.LOADING, E.FAILED, S.OUT, give_up, "the application cannot load the state"),
        (S.OUT, E.FAILED, None, IGNORED, "known"),
        (None, E.FAILED, None, ILLEGAL, "only the application's handler fails"),
        (S.INSIDE, E.OVER, None, IGNORED, "the end of its stream tells the application"),
        (None, E.OVER, S.OUT, stop, "this member left, or was excluded"),
    )


class Giver:
    """The provider's side: the state of one boundary on its way to one joiner. Until ``give`` or ``refuse``, while the
    application prepares the state, the joiner is told from time to time that this member is at work, beginning at once:
    the joiner has been waiting since the view, which the application may reach late.

    Args:
        boundary: tag of the view at whose beginning the state is taken.
        joiner: the member that gets the state.
        timeout_ns: how long the joiner bears silence; see ``Transfer``.
    """

    def __init__(self, boundary: int, joiner: int, timeout_ns: int, now_ns: int) -> None:
        self.boundary, self.joiner = boundary, joiner
        self._reassure_ns, self._pause_ns = now_ns, timeout_ns // 4
        self.ready = False
        """Everything that will be sent is known."""
        self._outgoing = Outgoing(boundary)
        self._pieces: Iterator[Piece] = iter(())
        self._rest = memoryview(b"")
        self.bytes_sent = 0

    def give(self, chunks: Iterable[Piece]) -> Giver:
        """``chunks``: the state, in pieces of at most ``CHUNK_BYTES_MAX`` bytes; read as they are sent."""
        self.ready, self._pieces = True, self._outgoing.pieces(chunks)
        return self

    def refuse(self, reason: str) -> Giver:
        self.ready, self._pieces = True, iter((self._outgoing.refusal(reason),))
        return self

    def due(self) -> int:
        return NEVER if self.ready else self._reassure_ns

    def run_timers(self, now_ns: int, deadline_ns: int = NEVER) -> None:
        """``due`` has come: ``rest`` reassures the joiner, unless the application has passed its deadline for the work,
        in which case another provider is needed."""
        if now_ns < self.due():
            return
        self._reassure_ns = now_ns + self._pause_ns
        if now_ns < deadline_ns and not self._rest:
            self._rest = memoryview(self._outgoing.patience())

    @property
    def rest(self) -> memoryview:
        """The bytes to send next; empty at the end of the transfer, or before ``ready``."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest = memoryview(piece)
        return self._rest

    def sent(self, count: int) -> None:
        """This many bytes of ``rest`` were sent."""
        self._rest = self._rest[count:]
        self.bytes_sent += count

    def go_on(
        self,
        send: Callable[[memoryview], int],
        end: Callable[[], None],
        joiners: Callable[[int], Collection[int]],
    ) -> bool:
        """Sends the present data. False: the transfer is over, as everything was sent (``complete``), or the joiner no
        longer waits.

        Args:
            send: sends the beginning of these bytes, and returns how many; -1: they can reach nobody.
            end: the bytes sent last are not followed by others now, so they leave at once.
            joiners: see ``Endpoint.joiners_of``.
        """
        while rest := self.rest:
            taken = send(rest)
            self.sent(max(taken, 0))
            if taken < 0 or self.joiner not in joiners(self.boundary):
                return False
            if taken < len(rest):
                return True
        end()
        return not self.ready and self.joiner in joiners(self.boundary)

    @property
    def complete(self) -> bool:
        """Everything was sent."""
        return self.ready and not self.rest
