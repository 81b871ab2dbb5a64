"""The sending side of a replicated state machine: gathers calls and reads of all threads into messages.

No I/O, no clock. While a message is on its way, new operations are gathered for the next one, which leaves when the
first is back, or when the next one is full. So a single call leaves at once, and under load a message carries the
operations of a round. A read needs no message of its own: the next one that this replica sends will do, whatever that
carries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from seqcast.blocks.log import RETRIED, Answer, Applied, Counters, Entry, Log

IN_FLIGHT_MAX = 2
"""The most messages of one replica that are on their way; those after the first are full ones."""
MESSAGE_BYTES = 128 << 10
"""A message gathers operations up to this size, or up to the largest that a message may have."""
SETTLING_MAX = 256
"""The most messages of one replica that were applied, and are not on the disks of a majority."""


class Call:
    """An operation that somebody waits for, or a read that waits until this replica knows all that was decided before.

    Args:
        operation: its bytes; None: a read.
        done: called once, when there is an answer.
        own: a read that waits only for the operations that this replica has taken before.
        seen: with ``stable=``: for a read that has a value, the position that was seen, which must be on enough disks;
            0: for others.

    Attributes:
        room: bytes that a message must have left for this one: the size; of several operations that go together, the
            first needs room for all.
        whole: the last of several operations that go together, for all but that one. A signal may come at any place in
            this file, so only what happens to the last one, in one step, happens to all.
        answer: None: there is none yet.
        was_sent: a message has carried this one; see ``sent``.
    """

    __slots__ = ("answer", "done", "operation", "own", "room", "seen", "seq", "was_sent", "whole")

    def __init__(self, operation: bytes | None, done: Callable[[], object], own: bool = False, seen: int = 0) -> None:
        self.operation, self.done, self.own, self.seen = operation, done, own, seen
        self.answer: Answer | None = None
        self.seq = 0
        self.was_sent = False
        self.whole: Call | None = None
        self.room = self.size

    @property
    def size(self) -> int:
        """Bytes in a message, with the field of the length."""
        return len(self.operation or b"") + 4

    @property
    def sent(self) -> bool:
        """A message has carried the operation."""
        return (self.whole or self).was_sent


READ = Answer(True, b"")
"""The answer of a read."""
READ_AGAIN = Answer(False, b"again")
"""The answer of a read whose membership ended before the position seen was on enough disks."""


class Outbox:
    """The outbox of one replica; its methods are called under one lock.

    Args:
        origin: id of the replica, the same in each of its incarnations.
        now_ns: gives the group's time, for messages to tell (`Estimate`).
        counters: of the replica.
        message_bytes: a message gathers operations up to this size; a single larger operation has one of its own.
    """

    def __init__(
        self,
        origin: int,
        now_ns: Callable[[], int],
        counters: Counters | None = None,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.origin = origin
        self._now_ns = now_ns
        self._message_bytes = message_bytes
        self._counters = counters or Counters()
        self.pending: dict[int, Call] = {}  # operations without an answer, in their order
        self._next = 1
        self._number = 0
        self._queue: deque[Call] = deque()  # operations that are in no message, and
        self._queued = 0  # their bytes
        self._again: deque[Call] = deque()  # operations that may have been in a message of an earlier incarnation
        self._readers: list[Call] = []  # that no message on its way serves
        self._followers: list[Call] = []  # reads that wait for the operations before them
        self._in_flight: dict[int, list[Call]] = {}  # by the number of the message: the reads served
        self._settling: dict[int, list[Call]] = {}  # the same for messages that are back, and not on enough disks

    def add_all(self, calls: Sequence[Call]) -> None:
        """Takes operations that one message is to carry, one directly after the other."""
        for call in calls[:-1]:
            call.whole = calls[-1]
        for call in calls[1:]:
            call.room = 0
        calls[0].room = sum(call.size for call in calls)
        for call in calls:
            self.add(call)

    def add(self, call: Call) -> bool:
        """Takes a call; True: a read that need not wait."""
        if call.own:
            call.seq = self._next - 1
            self._followers.append(call)
            return call in self._followed()
        if call.operation is None:
            self._readers.append(call)
            return False
        call.seq = self._next
        self._next += 1
        self.pending[call.seq] = call
        self._queue.append(call)
        self._queued += call.size
        return False

    def give_up(self, *calls: Call) -> list[Call]:
        """Nobody waits for these any more. If unsent, they stay so; otherwise reads of own writes still wait for them.
        Returns the reads that are answered."""
        gone = set(calls)
        for call in reversed(calls):  # without the last of several, none is sent
            if not call.sent and self.pending.get(call.seq) is call:
                del self.pending[call.seq]
        for waiting in (self._readers, self._followers, *self._served()):
            for call in gone.intersection(waiting):
                waiting.remove(call)
        if not gone.isdisjoint(self._queue):
            self._queue = deque(call for call in self._queue if call not in gone)
            self._queued = sum(call.size for call in self._queue)
        return self._followed()

    def _served(self) -> list[list[Call]]:
        return [*self._in_flight.values(), *self._settling.values()]

    def _followed(self) -> list[Call]:
        """The reads for which all operations before them are answered."""
        floor = next(iter(self.pending), self._next)
        served = [call for call in self._followers if call.seq < floor]
        if served:
            self._followers = [call for call in self._followers if call.seq >= floor]
            for call in served:
                call.answer = READ
        return served

    def compose(self, *, empty: bool = False) -> bytes | None:
        """The next message to send, if there is a need and room for one.

        Args:
            empty: there is a need anyway, for the time that a message tells.
        """
        if self._in_flight and (self._queued < self._message_bytes or len(self._in_flight) >= IN_FLIGHT_MAX):
            return None
        if not (self._queue or self._again or self._readers or empty):
            return None
        if len(self._settling) >= SETTLING_MAX:
            self._counters.held_back += 1
            return None
        calls = self._gathered()
        self._number += 1
        self._in_flight[self._number] = self._readers
        self._readers = []
        flags = RETRIED if calls and calls[0].sent else 0
        for call in calls:
            (call.whole or call).was_sent = True
        floor = next(iter(self.pending), self._next)
        first = calls[0].seq if calls else 0
        operations = [call.operation for call in calls if call.operation is not None]
        return Entry(flags, self.origin, self._number, floor, first, operations, self._now_ns()).encode()

    def _gathered(self) -> list[Call]:
        """Operations with consecutive numbers; those that are sent again come first, and by themselves."""
        queue, calls, size = self._again or self._queue, list[Call](), 0
        fresh = queue is self._queue
        while queue and (not calls or queue[0].seq == calls[-1].seq + 1):
            call = queue[0]
            last = call.whole or call
            if self.pending.get(last.seq) is not last:  # without anybody waiting
                queue.popleft()
                continue
            if calls and size + call.room > self._message_bytes:
                break
            size += call.size
            calls.append(queue.popleft())
            if fresh:
                self._queued -= call.size
        return calls

    def back(self, number: int) -> None:
        """This message is back, and leaves room for another one; ``applied`` follows."""
        if number in self._in_flight:  # otherwise it comes a second time
            self._settling[number] = self._in_flight.pop(number)

    def applied(self, applied: Applied) -> list[Call]:
        """An own message was applied. Returns the calls that are answered."""
        entry, answered = applied.entry, list[Call]()
        for seq, answer in enumerate(applied.answers, entry.first):
            call = self.pending.pop(seq, None)
            if call is not None:
                call.answer = answer
                answered.append(call)
        where = self._settling if entry.number in self._settling else self._in_flight
        for call in where.pop(entry.number, ()):
            call.answer = READ
            answered.append(call)
        return answered + self._followed() if self._followers else answered

    def rejoined(self, log: Log | None) -> list[Call]:
        """This replica is in the group again, as a new incarnation, and has its state. Returns the calls that had been
        applied there; the others are sent again, and reads need a new message.

        Args:
            log: with the state; None: to be applied is not enough, so all that were sent are sent again.
        """
        answered = []
        for call in list(self.pending.values()) if log is not None else ():
            if log is not None and call.sent and (answer := log.answer(self.origin, call.seq)) is not None:
                call.answer = answer
                answered.append(self.pending.pop(call.seq))
        self._again = deque(call for call in self.pending.values() if call.sent)
        self._queue = deque(call for call in self.pending.values() if not call.sent)
        self._queued = sum(call.size for call in self._queue)
        for readers in self._served():
            self._readers += readers
        self._in_flight.clear()
        self._settling.clear()
        return answered + self._followed()

    def rest(self) -> list[Call]:
        """Takes out all that wait, for the end of the replica."""
        waiting = [*self.pending.values(), *self._readers, *self._followers]
        for readers in self._served():
            waiting += readers
        for emptied in (self.pending, self._queue, self._again, self._in_flight, self._settling):
            emptied.clear()
        self._queued, self._readers, self._followers = 0, [], []
        return waiting
