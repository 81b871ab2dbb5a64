"""The messages that a simulated application sends: to the group and to single members, singly and as arrays."""

from __future__ import annotations

import random
from typing import Protocol

from seqcast._native.engine import AGAIN, ENDED, NO_VIEW, SENT, Engine, Sending, SendingArray
from seqcast.sim.network import Clock
from seqcast.sim.record import Record
from seqcast.sim.settings import HEAD, SMALL_MAX
from seqcast.types import View

PENDING_MAX = 20
ARRAYS = (2, 5, 30)
"""Lengths of arrays."""
CHUNKS = (0, 0, 1, 7)
"""How many messages of an array are handed to the engine at a time; 0: all."""


class SendingProcess(Protocol):
    """The interface of a process to its sender."""

    clock: Clock
    engine: Engine

    @property
    def wall(self) -> int: ...
    @property
    def takes(self) -> bool:
        """Nothing keeps the application from taking deliveries."""

    @property
    def answered(self) -> bool:
        """Its member has answered an attempt to close the view; the application may not know of that yet."""

    @property
    def can_run(self) -> bool: ...
    def service(self) -> None: ...


def payload(sender: int, counter: int, to: int, length: int) -> bytes:
    """A message that can be checked byte by byte: its filler follows from its counter."""
    return HEAD.pack(sender, counter, to) + filler(counter, length - HEAD.size)


def filler(counter: int, length: int) -> bytes:
    """The body of a message."""
    unit = counter.to_bytes(8, "little")
    return (unit * (length // 8 + 1))[: max(length, 0)]


class Sender:
    """The sends of one application.

    Args:
        machine: the process.
        record: of the application.
        rng: of its messages.
    """

    def __init__(self, machine: SendingProcess, record: Record, rng: random.Random) -> None:
        self.machine, self.record, self.options, self.rng = machine, record, record.options, rng
        self.arrays = random.Random(f"arrays {self.options.seed} {record.index}")
        self.chunk = self.arrays.choice(CHUNKS)
        self.besides = random.Random(f"besides {self.options.seed} {record.index}")
        self.timeouts = random.Random(f"timeouts {self.options.seed} {record.index}")
        self.on = True  # has something to send
        self.refused = False  # sends are refused from now on, as the member leaves
        self.unsure = False  # others may deliver the message that was refused last, which has the next number
        self.call: Sending | SendingArray | None = None  # that has not returned yet
        self.calls = 0  # messages of this call not yet accepted
        self.rests = False  # after a time out, until there are more messages: each try leaves packets of a part
        self.excused = -1  # number of a message that was being sent when the group was closed for sending

    def produce(self) -> None:
        """Produces messages to send now, and again after a while."""
        record, rng, clock = self.record, self.rng, self.machine.clock
        if not record.alive or not self.on:
            return
        self.rests = False
        if len(record.pending) < PENDING_MAX and record.may_send:
            for _ in range(rng.choice((1, 1, 1, 1, 8))):
                length = HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.05 else SMALL_MAX)
                view, to = record.current, 0
                if view is not None and len(view.members) > 1 and rng.random() < self.options.unicasts:
                    to = rng.choice([member.id for member in view.members if member.id != record.id])
                if to or not record.observer:
                    record.pending.append((to, length))
            if not record.observer and self.arrays.random() < self.options.arrays:
                longest = self.options.bytes_max if self.arrays.random() < 0.05 else 80
                lengths = [self.arrays.randrange(longest) for _ in range(self.arrays.choice(ARRAYS))]
                record.pending += [(0, HEAD.size + length) for length in lengths]
            if self.machine.can_run:
                self.machine.service()
        clock.at(clock.now + int(rng.expovariate(self.options.rate) * 1e9), self.produce)

    def say_last(self) -> None:
        """In the liveness phase: one message that must still get through."""
        self.on = False
        if not self.record.observer:
            self.record.pending.append((0, HEAD.size))

    def say_to(self, member_id: int) -> None:
        """In a quiet group: one unicast."""
        self.record.pending.append((member_id, HEAD.size))

    def send_on(self) -> None:
        """One thread of the application leaves; others have just begun to send, to the group and to single members, and
        continue until they are told that they may not."""
        rng, view, record = random.Random(f"leaver {self.options.seed} {self.record.index}"), None, self.record
        view = record.current
        if view is None or not record.may_send or not self.on or record.observer:
            return
        others = [member.id for member in view.members if member.id != record.id]
        for _ in range(rng.choice((0, 3, 12))):
            length = HEAD.size + rng.randrange(self.options.bytes_max if rng.random() < 0.2 else SMALL_MAX)
            record.pending.append((rng.choice(others) if others and rng.random() < 0.3 else 0, length))
        if rng.random() < 0.7:  # some messages are accepted before the others know that this member leaves
            self.send_pending()

    def give_up(self) -> None:
        """Drops all pending messages, except those of a running call."""
        del self.record.pending[self.calls if self.call else 0 :]

    def note_blocked(self) -> None:
        """The application is told that the group is closed for sending; a send that began before may still return."""
        pending = self.record.pending  # empty if the application gave up in the middle of a call
        sends = self.call is not None and bool(pending) and not pending[0][0]
        self.excused = self.record.counter if sends else -1

    def send_pending(self) -> None:
        """Sends pending messages, as far as allowed."""
        record = self.record
        view = record.current
        if view is None or not record.may_send or (self.rests and self.on):
            return
        while record.pending:
            if self.unsure:
                record.pending.clear()
                return
            if self.call is None:
                self._begin(view)
            result = self._step(view)
            if result == AGAIN and self.on and self.timeouts.random() < self.options.timeouts:
                self._time_out()
            if result in (AGAIN, NO_VIEW):
                return
            if result != SENT:
                self._refuse(result)
            if not self.calls:
                self.call = None

    def _begin(self, view: View) -> None:
        """Calls ``send``, or ``send_batch`` for several consecutive messages.

        From here on others may deliver the messages, even if the process crashes before the engine says SENT.
        """
        record, engine = self.record, self.machine.engine
        to, length = record.pending[0]
        if to:
            counter = record.counters_to.get(to, 0)
            record.sent_to[to, counter] = view.view_id
            self.call, self.calls = Sending(engine, payload(record.id, counter, to, length), to), 1
            return
        lengths = [length]
        if self.options.arrays and self.arrays.random() < 0.7:
            lengths = [length for _, length in record.pending]
            lengths = lengths[: next((at for at, (to, _) in enumerate(record.pending) if to), None)]
        payloads = [payload(record.id, record.counter + at, 0, length) for at, length in enumerate(lengths)]
        for at, length in enumerate(lengths):
            record.sent[record.counter + at] = (length, view.view_id)
            record.knew[record.counter + at] = len(record.log)
        self.calls = len(payloads)
        ordered = self.besides.random() >= self.options.beside
        if not ordered:
            record.beside |= {record.counter + at for at in range(len(payloads))}
            record.paths["messages beside the order"] += len(payloads)
        if len(payloads) > 1:
            self.call = SendingArray(engine, payloads, ordered)
        else:
            self.call = Sending(engine, payloads[0], ordered=ordered)

    def _step(self, view: View) -> int:
        """Continues the call; returns its result, or AGAIN."""
        if isinstance(self.call, SendingArray):
            before = self.call.sent
            result, accepted = self.call.step(self.machine.wall, self.chunk), self.call.sent - before
            self.record.paths["messages of arrays"] += accepted
        else:
            assert self.call is not None
            result = self.call.step(self.machine.wall)
            accepted = result == SENT
        for _ in range(accepted):
            self._accept(view, *self.record.pending.pop(0))
        return result

    def _accept(self, view: View, to: int, length: int) -> None:
        record = self.record
        counter = record.counters_to.get(to, 0) if to else record.counter
        self.calls -= 1
        if self.refused:
            record.violations.append(f"leave: {record} sends number {counter} to {to}, after it was refused one")
        if to:
            record.counters_to[to] = counter + 1
            record.sent_to[to, counter] = view.view_id
            if self.machine.answered:
                record.sent_late.add((to, counter))
            return
        record.counter = counter + 1
        record.sent[counter] = (length, view.view_id)
        # (An application that waits for its disk, or for states to be merged, has not heard yet that the gate is open.)
        hears = self.machine.takes and not record.stopped
        if record.blocked and not self.options.queue_bytes and counter != self.excused and hears:
            record.violations.append(f"gate: {record} sends number {counter} after {record.blocked}")

    def _refuse(self, result: int) -> None:
        """The call returns with an error: the rest of its messages is not sent."""
        record, to = self.record, self.record.pending[0][0]
        if result == ENDED:
            assert record.leaving, f"{record} may not send, and does not leave"
            self.refused, self.on = True, False
        assert to or result == ENDED, f"send to the group in a view gives {result}"
        assert self.call is not None
        self.unsure = self.call.packed
        self._forget_unsent(to, int(self.unsure))
        del record.pending[: self.calls]
        self.calls = 0

    def _time_out(self) -> None:
        """The call gives up its unsent messages, unless they are packed; a later call begins again."""
        assert self.call is not None
        if not self.call.abort():
            return
        self._forget_unsent(self.record.pending[0][0])
        self.call, self.calls, self.rests = None, 0, True
        self.record.paths["sends that timed out"] += 1

    def _forget_unsent(self, to: int, first: int = 0) -> None:
        """``first``: place in the call of the first that is not sent."""
        record = self.record
        if to:
            del record.sent_to[to, record.counters_to.get(to, 0)]
        for at in range(first, 0 if to else self.calls):
            del record.sent[record.counter + at], record.knew[record.counter + at]
            record.beside.discard(record.counter + at)
