"""Atomic batches: the rows of a batch are delivered together or not delivered, and never twice.

A writer that may fail half way and start over, such as a streaming query of Spark, multicasts each batch as BEGIN, its
rows, END. A receiver keeps the rows until END arrives, and then delivers them unless the writer's *table* says that
this batch, or a later one, was delivered before. The table is replicated: each receiver makes the same entries from the
same ordered stream, and a joiner takes it over as part of the application's state, so a restarted writer, which is a
new member, cannot be delivered twice by anyone.
"""

from __future__ import annotations

import json
import logging
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqcast._native.engine import Message
from seqcast.errors import NotMember, UsageError
from seqcast.net.spool import Spool
from seqcast.net.state import SubgroupState
from seqcast.types import View

if TYPE_CHECKING:
    from seqcast.api.group import Group
    from seqcast.api.receiving import Event
    from seqcast.net.state import StateHandler

log = logging.getLogger("seqcast")

MAGIC = b"\x00\xb5sqbat"
"""Begins every message of a batch; the kind follows. An application's own message does not begin like this."""
BEGIN, ROW, END = (MAGIC + kind for kind in (b"B", b"R", b"E"))
NAME_BYTES_MAX = 256
WRITERS_MAX = 10_000
_LENGTH = struct.Struct("<Q")


def begin(writer: str, batch: int, rows: int) -> bytes:
    """The message that begins a batch.

    Args:
        writer: who writes, the same after a restart; up to 256 bytes.
        batch: its number, 0 or more; grows from batch to batch.
        rows: how many rows follow.
    """
    return BEGIN + json.dumps({"writer": writer, "batch": batch, "rows": rows}).encode()


def end(writer: str, batch: int) -> bytes:
    """The message that ends a batch: from now on receivers deliver it. Carries the time, from which entries of the
    table age."""
    return END + json.dumps({"writer": writer, "batch": batch, "at_ns": time.time_ns()}).encode()


@dataclass
class _Staged:
    """The rows of a batch whose END has not arrived."""

    writer: str
    batch: int
    rows: int
    spool: Spool
    came: int = 0

    def head(self) -> dict[str, Any]:
        return {"writer": self.writer, "batch": self.batch, "rows": self.rows, "came": self.came}


@dataclass
class Counters:
    """What became of batches and of messages that look like parts of one."""

    delivered: int = 0
    """Batches."""
    repeated: int = 0
    """Batches that the writer's table had: not delivered again."""
    incomplete: int = 0
    """Batches whose rows did not all reach this member: it joined without state, or was cut off, in the middle."""
    abandoned: int = 0
    """Batches whose writer began anew, or left the group, before END."""
    malformed: int = 0
    """Messages with the mark of a batch that are none."""


class Batches:
    """The receiving side: gives the application every message of a group in its order, a batch at the place of its END.

    Pass it as the ``state`` of ``join``, so that joiners take over the table and the rows that wait, and receive
    through it, on every member::

        batches = seqcast.batches.Batches(handler)
        group = seqcast.join("orders", state=batches)
        for message in batches.receive(group):
            ...

    A row is a ``Message`` with the row's payload, and with sender, view, seqnos and time of the batch's END.

    Args:
        state: the application's own state, which is transferred after the table; None: it has none. It is taken
            between two batches: what an application does with the rows of one is never cut in half. When a partition
            heals the tables are merged where the application's state can be, or there is none: with a handler that has
            no ``merge_state`` each side keeps its own table, and a writer that was on both may be delivered on one.
        keep_s: entries of writers that ended no batch for so many seconds, by the clocks of the writers, are dropped.
            The same on every member.
        memory_bytes: rows of a batch beyond this wait in a temporary file.
    """

    def __init__(
        self, state: StateHandler | None = None, *, keep_s: float = 30 * 86400.0, memory_bytes: int = 64 << 20
    ) -> None:
        if keep_s <= 0 or memory_bytes < 0:
            raise UsageError("keep_s must be positive, memory_bytes not negative")
        self.counters = Counters()
        self._state = state
        self._keep_ns = int(keep_s * 1e9)
        self._memory_bytes = memory_bytes
        self._table: dict[str, tuple[int, int]] = {}  # writer -> (highest batch, when it ended)
        self._staged: dict[int, _Staged] = {}  # by the sender's id
        self._delivering: Iterator[Message] = iter(())
        # Not a method: a group asks whether there is one, and this merges nothing that the application does not.
        self.merge_state: Callable[[Sequence[SubgroupState]], None] | None = None
        if state is None or callable(getattr(state, "merge_state", None)):
            self.merge_state = self._merge_state

    @property
    def writers(self) -> dict[str, int]:
        """Each writer's highest batch that was delivered."""
        return {writer: batch for writer, (batch, _) in self._table.items()}

    def receive(self, group: Group, timeout: float | None = None) -> Iterator[Message]:
        """The messages of a group, until this member has left.

        Args:
            group: joined with ``state=`` this.
            timeout: seconds; ends when no event came for so long. None: no limit.

        Raises:
            NotMember: this member was excluded.
            JournalWriteError: as for ``Group.recv``.
        """
        while True:
            # Not `yield from`: what is left of a batch when the caller gives up stays for the next call.
            while (message := next(self._delivering, None)) is not None:
                yield message
            try:
                event = group.next_event(timeout)
            except NotMember:
                if group.was_left:
                    return
                raise
            if event is None:
                return
            self._delivering = self.take(event)

    def take(self, event: Event) -> Iterator[Message]:
        """Takes the next event of a group's stream, and gives the messages to deliver, of which all must be taken
        before the next event: for applications that receive by other means than ``receive``."""
        if isinstance(event, View):
            present = {member.id for member in event.members}
            for sender in [sender for sender in self._staged if sender not in present]:
                self._abandon(sender)
        elif isinstance(event, Message):
            if event.unicast or not event.payload.startswith(MAGIC):
                yield event
            elif event.payload.startswith(ROW):
                self._row(event)
            else:
                yield from self._mark(event)

    # ---- state of joiners

    def get_state(self, write: Callable[[Any], None]) -> None:
        """Of ``StateHandler``."""
        staged = list(self._staged.items())
        head = {"table": self._table, "staged": [[sender, each.head(), each.spool.length] for sender, each in staged]}
        text = json.dumps(head).encode()
        write(_LENGTH.pack(len(text)) + text)
        for _, each in staged:
            for chunk in each.spool.chunks():
                write(chunk)
        if self._state is not None:
            self._state.get_state(write)

    def set_state(self, read: Callable[..., bytes]) -> None:
        """Of ``StateHandler``."""
        for staged in self._staged.values():
            staged.spool.close()
        self._table, self._staged = self._read_state(read)
        if self._state is not None:
            self._state.set_state(read)

    def _merge_state(self, others: Sequence[SubgroupState], /) -> None:
        """Of ``MergingHandler``: the higher batch of each writer, and the rows that wait on any side, as a writer goes
        on where it was, in the merged view."""
        for other in others:
            table, staged = self._read_state(other.read)
            for writer, (batch, at_ns) in table.items():
                highest, when = self._table.get(writer, (-1, 0))
                self._table[writer] = max(batch, highest), max(at_ns, when)
            for sender, each in staged.items():
                if sender in self._staged:  # begun since the sides met, so both have the same
                    each.spool.close()
                else:
                    self._staged[sender] = each
        self._table = dict(sorted(self._table.items(), key=lambda item: (item[1][1], item[0])))
        self._drop_old()
        merge = getattr(self._state, "merge_state", None)
        if merge is not None:
            merge(others)  # each is read up to the application's part

    def _read_state(self, read: Callable[..., bytes]) -> tuple[dict[str, tuple[int, int]], dict[int, _Staged]]:
        """The table, and the rows that wait; what follows is the application's."""
        (length,) = _LENGTH.unpack(read(_LENGTH.size))
        head = json.loads(read(length))
        found = {}
        for sender, fields, size in head["staged"]:
            staged = found[sender] = _Staged(**fields, spool=Spool(self._memory_bytes))
            while size:
                piece = read(min(size, 1 << 20))
                if not piece:
                    raise UsageError("the state ends in the middle of a batch: give all members the same state handler")
                staged.spool.write(piece)
                size -= len(piece)
        return {writer: (batch, at_ns) for writer, (batch, at_ns) in head["table"].items()}, found

    # ---- the parts of a batch

    def _row(self, message: Message) -> None:
        staged = self._staged.get(message.sender.id)
        if staged is not None:
            payload = message.payload[len(ROW) :]
            staged.spool.write(_LENGTH.pack(len(payload)) + payload)
            staged.came += 1

    def _mark(self, message: Message) -> Iterator[Message]:
        try:
            fields = json.loads(message.payload[len(BEGIN) :][:4096])
            writer, batch = fields["writer"], fields["batch"]
            number = fields["rows"] if message.payload.startswith(BEGIN) else fields["at_ns"]
            if not isinstance(writer, str) or not all(type(each) is int and each >= 0 for each in (batch, number)):
                raise ValueError
            if len(writer.encode()) > NAME_BYTES_MAX:
                raise ValueError
            if not message.payload.startswith((BEGIN, END)):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            self.counters.malformed += 1
            log.warning("%s sent a message that begins like a part of a batch and is none", message.sender)
            return
        if message.payload.startswith(BEGIN):
            self._abandon(message.sender.id)
            self._staged[message.sender.id] = _Staged(writer, batch, number, Spool(self._memory_bytes))
        else:
            yield from self._end(message, writer, batch, number)

    def _end(self, message: Message, writer: str, batch: int, at_ns: int) -> Iterator[Message]:
        staged = self._staged.pop(message.sender.id, None)
        if staged is None or (staged.writer, staged.batch) != (writer, batch) or staged.came != staged.rows:
            self.counters.incomplete += 1
            if staged is not None:
                staged.spool.close()
            return
        try:
            if batch <= self._table.get(writer, (-1, 0))[0]:
                self.counters.repeated += 1
                return
            self.counters.delivered += 1
            self._enter(writer, batch, at_ns)
            yield from self._rows(staged, message)
        finally:
            staged.spool.close()

    @staticmethod
    def _rows(staged: _Staged, of: Message) -> Iterator[Message]:
        read = staged.spool.reader()
        for _ in range(staged.rows):
            payload = read(_LENGTH.unpack(read(_LENGTH.size))[0])
            yield Message(payload, of.sender, of.view_id, of.seqno, of.index, of.global_seqno, of.sent_ns)

    def _enter(self, writer: str, batch: int, at_ns: int) -> None:
        """Makes an entry, and drops old ones. The same on every member: it depends on the messages alone."""
        self._table.pop(writer, None)
        self._table[writer] = batch, at_ns  # the last of the dict
        self._drop_old(writer)

    def _drop_old(self, kept: str = "") -> None:
        oldest = max((at for _, at in self._table.values()), default=0) - self._keep_ns
        self._table = {each: entry for each, entry in self._table.items() if entry[1] >= oldest or each == kept}
        while len(self._table) > WRITERS_MAX:
            del self._table[next(iter(self._table))]

    def _abandon(self, sender: int) -> None:
        staged = self._staged.pop(sender, None)
        if staged is not None:
            self.counters.abandoned += 1
            staged.spool.close()
