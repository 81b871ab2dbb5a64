"""The receiving side of a replicated state machine: applies decided operations, each once.

No I/O, no clock: messages and views come as arguments, in the group's order, so every replica does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

from seqcast.blocks.formats import BYTES, check_format
from seqcast.errors import OtherRelease, UsageError

ORIGINS_MAX = 4096
"""The most replicas whose unacknowledged answers are kept; those that were silent longest are forgotten."""
RETRIED = 1
"""Flag of a message: its operations may have been in an earlier one, of another incarnation of its sender."""
HEAD = struct.Struct("<4sBQQQQqI")
"""Head of a message: format, flags, origin, number, floor, first operation, time, operations. Then come the operations'
lengths (u32), and the operations."""
VERSION = 1
"""Version of messages and of the state. A later one is sent, and given to joiners, only in views in which all members
know it."""
MESSAGE, STATE = (kind + bytes([VERSION]) for kind in (b"SqO", b"SqS"))
"""Formats."""
_COUNT = struct.Struct("<I")
_TABLE = struct.Struct("<I?")
_ORIGIN = struct.Struct("<QQI")
_ANSWER = struct.Struct("<Q?I")
_TIME = struct.Struct("<qq")
_MARK = struct.Struct("<QQ")


class Mark(NamedTuple):
    """How far a log goes.

    Args:
        reached: counter of the last view; 0: none.
        position: views, and messages that may change the state, since the group was founded, from 1: the same on all
            replicas.
    """

    reached: int = 0
    position: int = 1


class Entered(NamedTuple):
    """A view: its counter, and the ids of its members."""

    counter: int
    ids: tuple[int, ...]


class Told(NamedTuple):
    """A message that may change the state, and the time of the group then."""

    now_ns: int
    payload: bytes


class Machine(Protocol):
    """A state machine: equal states that apply equal operations become equal, and give equal answers.

    A machine may also have ``entered(ids)``, which is called with the ids of the members of each view, in the group's
    order; ``heard(now_ns)``, which is called before each message with the group's time (`Estimate`); and ``due()``, the
    time at which the machine must be told the time even if nobody sends, or None. A machine that changes in
    ``heard`` changes only at the time of ``due``: only such times are kept on disk (``stable=``).
    """

    def apply(self, operation: bytes, /) -> bytes:
        """Applies an operation, and gives its answer. A machine decides by its arguments and the state alone: no clock,
        no random numbers. After an ``Exception`` the caller is told, and the state must be as before."""

    def snapshot(self, write: Callable[[bytes], None], /) -> object:
        """Writes the state, in pieces of any size."""

    def restore(self, read: Callable[..., bytes], /) -> object:
        """Takes over the state in place of its own: ``read(n)`` gives the next n bytes, ``read()`` all that is left."""


class Answer(NamedTuple):
    """The answer to an operation.

    Args:
        ok: the machine's answer; otherwise its error, with the text as the data.
        data: its bytes.
    """

    ok: bool
    data: bytes


FORGOTTEN = Answer(False, b"forgotten")
"""The answer of an operation that is sent again when nothing is known of its sender any more: perhaps the operation was
applied."""


@dataclass
class Counters:
    """The fate of operations here."""

    applied: int = 0
    """Operations."""
    failed: int = 0
    """Operations that the machine refused with an error."""
    repeated: int = 0
    """Operations that were sent again, and had been applied."""
    forgotten: int = 0
    """Operations that were sent again, and not applied, because nothing was known of their sender any more."""
    origins_dropped: int = 0
    """Replicas whose answers were dropped, as there were more than `ORIGINS_MAX`."""
    malformed: int = 0
    """Messages that no replica sends."""
    held_back: int = 0
    """With ``stable=``: times that this replica sent nothing, as too much of its own waited for the disks of others."""


class _Origin:
    """Operations that one replica may still send again.

    Attributes:
        floor: all before are answered.
        answers: of the operations from the floor on.
    """

    __slots__ = ("answers", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.answers: dict[int, Answer] = {}

    def raise_floor(self, floor: int) -> None:
        if floor > self.floor:
            if floor - self.floor > len(self.answers):
                self.answers = {seq: answer for seq, answer in self.answers.items() if seq >= floor}
            else:
                for seq in range(self.floor, floor):
                    self.answers.pop(seq, None)
            self.floor = floor


class Malformed(ValueError):
    """No message of a replica."""


class Entry(NamedTuple):
    """A message of a replica.

    Args:
        flags: RETRIED.
        origin: the replica, the same in each of its incarnations.
        number: of the message, of this origin.
        floor: all operations of the origin before this one are answered.
        first: number of its first operation.
        operations: in order.
        told_ns: the group's time when the message was made, by the sender's `Estimate`.
    """

    flags: int
    origin: int
    number: int
    floor: int
    first: int
    operations: Sequence[bytes]
    told_ns: int = 0

    def encode(self) -> bytes:
        operations = self.operations
        lengths = struct.pack(f"<{len(operations)}I", *map(len, operations))
        flags, origin, number, floor, first = self[:5]
        head = HEAD.pack(MESSAGE, flags, origin, number, floor, first, self.told_ns, len(operations))
        return b"".join((head, lengths, *operations))

    @staticmethod
    def decode(data: bytes) -> Entry:
        """
        Raises:
            Malformed: this is no message of a replica.
            OtherRelease: another release made this.
        """
        try:
            check_format(data, MESSAGE)
        except ValueError as error:
            raise Malformed(str(error)) from None
        if len(data) < HEAD.size:
            raise Malformed("too short")
        _, flags, origin, number, floor, first, told_ns, count = HEAD.unpack_from(data)
        begin = HEAD.size + 4 * count
        if begin > len(data):
            raise Malformed("too short")
        lengths = struct.unpack_from(f"<{count}I", data, HEAD.size)
        marks = list(accumulate(lengths, initial=begin))
        if marks[-1] != len(data):
            raise Malformed("the length is not the one in the header")
        operations = [data[at:to] for at, to in pairwise(marks)]
        return Entry(flags, origin, number, floor, first, operations, told_ns)


class Applied(NamedTuple):
    """A message whose operations were applied.

    Args:
        entry: the message.
        sender: id of its sender.
        answers: of its operations.
    """

    entry: Entry
    sender: int
    answers: list[Answer]


class Log:
    """Applies the group's messages to a machine.

    A ``transitional`` message waits for the view that decides it: if this member is not in that view, others may have
    another order, or not have the message at all.

    Args:
        machine: the application's.

    Attributes:
        now_ns: the group's time.
        estimate_ns: the same by the estimate of the member that gave the state.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.counters = Counters()
        self.now_ns = self.estimate_ns = 0
        self.view: tuple[int, ...] = ()  # ids of the members
        self.mark = Mark()
        self.record: Callable[[Entered | Told], object] | None = None  # told of each step of `mark`
        self._origins: dict[int, _Origin] = {}  # those heard longest ago first
        self._ended: OtherRelease | None = None  # by a message that this release does not know
        self._dropped = False  # nothing is known of a replica that is missing here; else never heard
        self._waiting: list[tuple[bytes, int]] = []
        self._entered: Callable[[tuple[int, ...]], object] | None = getattr(machine, "entered", None)
        self._heard: Callable[[int], object] | None = getattr(machine, "heard", None)
        self._due: Callable[[], int | None] = getattr(machine, "due", lambda: 0)

    def take(self, payload: bytes, sender: int, transitional: bool) -> Applied | None:
        """The next message.

        Returns:
            The effect of the message; None: none yet, or this is no message of a replica.

        Raises:
            OtherRelease: of another release. The state goes no further, and is given to nobody.
        """
        if transitional or self._waiting:
            self._waiting.append((payload, sender))
            return None
        return self._apply(payload, sender)

    def enter(self, ids: Sequence[int], counter: int = 0) -> list[Applied]:
        """The next view, with this member, and its counter. Returns the calls that waited for it."""
        applied = self.settle()
        self._enter(Entered(counter, tuple(ids)))
        return applied

    def _enter(self, view: Entered) -> None:
        self.view = view.ids
        if self._entered is not None:
            self._entered(self.view)
        self._step(view)

    def _step(self, what: Entered | Told) -> None:
        reached = what.counter if isinstance(what, Entered) else self.mark.reached
        self.mark = Mark(reached, self.mark.position + 1)
        if self.record is not None:
            self.record(what)

    def replay(self, what: Entered | Told) -> None:
        """Repeats a recorded step.

        Raises:
            Malformed, OtherRelease: as for ``Entry.decode``.
        """
        if isinstance(what, Entered):
            self._enter(what)
            return
        entry = Entry.decode(what.payload)
        self.now_ns = max(self.now_ns, what.now_ns)
        self._step(what)
        self._perform(entry, 0)

    def settle(self) -> list[Applied]:
        """A view with this member is reached: applies the operations that waited for that.

        Raises:
            OtherRelease: as for ``take``.
        """
        if self._ended is not None:
            raise self._ended
        waiting, self._waiting = self._waiting, []
        applied = (self._apply(*each) for each in waiting)
        return [each for each in applied if each is not None]

    def leave(self) -> None:
        """The membership ended without a view: nothing is known of the fate of waiting operations."""
        self._waiting = []

    def answer(self, origin: int, seq: int) -> Answer | None:
        """The answer of an operation that was applied and may be sent again; None: not so."""
        known = self._origins.get(origin)
        return known.answers.get(seq) if known is not None else None

    # ---- one message

    def _apply(self, payload: bytes, sender: int) -> Applied | None:
        if self._ended is not None:
            raise self._ended
        try:
            entry = Entry.decode(payload)
        except Malformed:
            self.counters.malformed += 1
            return None
        except OtherRelease as other:
            self._ended = other
            raise
        self.now_ns = max(self.now_ns, entry.told_ns)
        if entry.operations or self._is_due():
            self._step(Told(self.now_ns, payload))
        return self._perform(entry, sender)

    def _is_due(self) -> bool:
        due = self._due() if self._heard is not None else None
        return due is not None and due <= self.now_ns

    def _perform(self, entry: Entry, sender: int) -> Applied:
        if self._heard is not None:
            self._heard(self.now_ns)
        if not entry.operations and entry.origin not in self._origins:
            return Applied(entry, sender, [])
        origin = self._origins.pop(entry.origin, None)
        if origin is None:
            if entry.flags & RETRIED and self._dropped:
                self.counters.forgotten += len(entry.operations)
                return Applied(entry, sender, [FORGOTTEN] * len(entry.operations))
            origin = _Origin(entry.floor)
        self._origins[entry.origin] = origin  # the last of the dict
        origin.raise_floor(entry.floor)
        answers = [self._once(origin, seq, each) for seq, each in enumerate(entry.operations, entry.first)]
        while len(self._origins) > ORIGINS_MAX:
            del self._origins[next(iter(self._origins))]
            self._dropped = True
            self.counters.origins_dropped += 1
        return Applied(entry, sender, answers)

    def _once(self, origin: _Origin, seq: int, operation: bytes) -> Answer:
        if seq < origin.floor or seq in origin.answers:
            self.counters.repeated += 1
            return origin.answers.get(seq, FORGOTTEN)
        try:
            data = self.machine.apply(operation)
            if type(data) is not bytes:
                raise TypeError(f"apply must return bytes, and returned {type(data).__name__}")
            answer = Answer(True, data)
            self.counters.applied += 1
        except Exception as error:
            answer = Answer(False, f"{type(error).__name__}: {error}".encode())
            self.counters.failed += 1
        origin.answers[seq] = answer
        return answer

    # ---- the state of joiners

    def snapshot(self, write: Callable[[bytes], None], estimate_ns: int = 0) -> list[Applied]:
        """Writes the state at the beginning of a view, before the view itself is taken. Returns the decided
        operations.

        Args:
            estimate_ns: an estimate of the group's time, for the joiner to begin with: perhaps nobody has sent for
                hours.
        """
        applied = self.settle()
        self.write(write, estimate_ns)
        return applied

    def write(self, write: Callable[[bytes], None], estimate_ns: int = 0) -> None:
        """Writes the state, without operations that wait for a view."""
        write(STATE + _MARK.pack(*self.mark))
        write(_TABLE.pack(len(self._origins), self._dropped))
        for uid, origin in self._origins.items():
            write(_ORIGIN.pack(uid, origin.floor, len(origin.answers)))
            for seq, (ok, data) in origin.answers.items():
                write(_ANSWER.pack(seq, ok, len(data)) + data)
        write(_TIME.pack(self.now_ns, max(self.now_ns, estimate_ns)))
        write(_COUNT.pack(len(self.view)) + struct.pack(f"<{len(self.view)}Q", *self.view))
        self.machine.snapshot(write)

    def restore(self, read: Callable[..., bytes]) -> None:
        """Takes over a state in place of its own.

        Raises:
            UsageError: this is not the state of a replica.
            OtherRelease: another release made this.
        """
        self._waiting = []
        refused = "the group's state is not that of a replica: give all members the same kind"
        found = read(BYTES)
        try:
            check_format(found, STATE)
        except ValueError:
            raise UsageError(refused) from None

        def unpack(of: struct.Struct) -> tuple[Any, ...]:
            data = read(of.size)
            if len(data) != of.size:
                raise UsageError(refused)
            return of.unpack(data)

        self.mark = Mark(*unpack(_MARK))
        self._origins = {}
        count, self._dropped = unpack(_TABLE)
        for _ in range(count):
            uid, floor, answers = unpack(_ORIGIN)
            origin = self._origins[uid] = _Origin(floor)
            for seq, ok, size in (unpack(_ANSWER) for _ in range(answers)):
                origin.answers[seq] = Answer(ok, read(size) if size else b"")
        self.now_ns, self.estimate_ns = unpack(_TIME)
        (count,) = unpack(_COUNT)
        self.view = unpack(struct.Struct(f"<{count}Q"))
        self.machine.restore(read)
