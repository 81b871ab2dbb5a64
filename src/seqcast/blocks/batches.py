"""Atomic batches: the rows of a batch are delivered together or not delivered, and never twice.

A writer that may fail half way and start over, such as a streaming query of Spark, multicasts each batch as BEGIN, its
rows, END. A receiver keeps the rows until END arrives, and then delivers them unless the writer's *table* says that
this batch, or a later one, was delivered before. The table is replicated: each receiver makes the same entries from the
same ordered stream, and a joiner takes the table over as part of the application's state, so a restarted writer, which
is a new member, cannot be delivered twice by anyone.
"""

from __future__ import annotations

import itertools
import json
import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import seqcast.codes as codes
from seqcast._native.engine import Batch, Message
from seqcast.arguments import nanoseconds
from seqcast.core.orders import by_name
from seqcast.errors import ConfigError, NotMember, UsageError
from seqcast.net.spool import Spool
from seqcast.net.state import SubgroupState
from seqcast.types import View

if TYPE_CHECKING:
    import numpy.typing as npt

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
_PIECE = struct.Struct("<QQ")
"""Head of rows that arrived together: how many, and bytes. Then come their offsets (int32, one more than rows), and
their messages."""
_SINGLE = struct.Struct("<QQii")
"""The same of one row, up to its message."""
_MARK = int.from_bytes(ROW, "little")
_ORDERED_ROW = 5
"""Marks of messages: 4 with a global seqno, 2 for a unicast, 1 for a row."""


def begin(writer: str, batch: int, rows: int) -> bytes:
    """The message that begins a batch.

    Args:
        writer: who writes, the same after a restart; up to 256 bytes.
        batch: its number, 0 or more; grows from batch to batch.
        rows: how many rows follow.
    """
    return BEGIN + json.dumps({"writer": writer, "batch": batch, "rows": rows}).encode()


def end(writer: str, batch: int) -> bytes:
    """The message that ends a batch: from now on receivers deliver the batch. It also tells the time (`Clock`)."""
    return END + json.dumps({"writer": writer, "batch": batch, "sent_ns": time.monotonic_ns()}).encode()


_Entries = dict[str, tuple[int, int]]


class Clock:
    """Time that passes with the batches of a stream, the same on every member, as the messages that carry that time are
    the same.

    A writer may only send, and so know of no time but its own. Each END carries the monotonic time of its sender, which
    nobody sets: two of these have nothing in common, but the time between two messages of one sender is right. So the
    first message of a sender says how far its time is from this clock's, and its later messages advance this clock.
    While nobody sends, no time passes. (With wall clocks, one that is set an hour ahead would end all that was to last
    less than that.)

    Args:
        now_ns: its reading.
        apart: id of a sender in the view -> how far this clock is ahead of the sender's, ns.
    """

    def __init__(self, now_ns: int = 0, apart: Mapping[int, int] | None = None) -> None:
        self.now_ns = now_ns
        self.apart = dict(apart or {})

    def hear(self, sender: int, sent_ns: int) -> None:
        """Takes the time of a message, ns by its sender's monotonic clock."""
        self.now_ns = max(self.now_ns, sent_ns + self.apart.setdefault(sender, self.now_ns - sent_ns))

    def keep(self, present: Iterable[int]) -> None:
        """Drops the entries of senders that are not present."""
        self.apart = {sender: self.apart[sender] for sender in present if sender in self.apart}


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

    def add(self, data: Any, offsets: Any) -> None:
        """Adds rows that arrived together, each with its mark, in Arrow's binary layout."""
        begin, end = int(offsets[0]), int(offsets[-1])
        self.spool.write(_PIECE.pack(len(offsets) - 1, end - begin))
        self.spool.write(np.asarray(offsets - begin, "<i4"))
        self.spool.write(data[begin:end])
        self.came += len(offsets) - 1

    def add_one(self, marked: bytes) -> None:
        """Adds one row, with its mark."""
        self.spool.write(_SINGLE.pack(1, len(marked), 0, len(marked)) + marked)
        self.came += 1

    def payloads(self) -> Iterator[bytes]:
        """The rows, without their marks."""
        read, left, mark = self.spool.reader(), self.rows, len(ROW)
        while left:
            rows, size = _PIECE.unpack(read(_PIECE.size))
            piece = read(4 * (rows + 1) + size)
            first = 4 * (rows + 1)
            offsets = (0, size) if rows == 1 else np.frombuffer(piece, "<i4", rows + 1).tolist()
            for begin, end in itertools.pairwise(offsets):
                yield piece[first + begin + mark : first + end]
            left -= rows


@dataclass
class Counters:
    """The fate of batches and of messages that look like parts of one."""

    delivered: int = 0
    """Batches."""
    repeated: int = 0
    """Batches that the writer's table had: not delivered again."""
    incomplete: int = 0
    """Batches whose rows did not all reach this member, which joined without state or was cut off in the middle."""
    abandoned: int = 0
    """Batches whose writer began another one, left the group, or sent more rows than announced, before END."""
    malformed: int = 0
    """Messages with the mark of a batch, but malformed."""


class Batches:
    """The receiving side: gives the application every message of a group in its order, a batch at the place of its END.

    Pass this as the ``state`` of ``join``, so that joiners take over the table and the rows that wait, and receive
    through it, on every member::

        batches = seqcast.blocks.batches.Batches(handler)
        group = seqcast.join("orders", state=batches)
        for message in batches.receive(group):
            ...

    With asyncio, and wherever else a program receives by itself, each event goes through ``take``::

        async for event in group.events():
            for message in batches.take(event):
                ...

    A row is a ``Message`` with the row's payload, and with sender, view, seqnos and time of the batch's END.

    Args:
        state: the application's own state, which is transferred after the table; None: no state. The state is taken
            between two batches: an application's work on the rows of one is never cut in half. When a partition heals
            the tables are merged if the application's state can be, or if it has none: with a handler that has no
            ``merge_state`` all take over table and state of the larger side, and the others' deliveries meanwhile are
            lost.
        keep_s: entries of writers that ended no batch for this many seconds are dropped; the same on every member. Time
            passes as the messages that end batches say (`Clock`), the same on every member, and stands still between
            them. The last batch of a writer that comes back later and repeats the batch is delivered twice: so this
            must be longer than any two writers may pause, added up, as time passes late while one pauses.
        memory_bytes: rows of a batch beyond this wait in a temporary file.
    """

    def __init__(
        self, state: StateHandler | None = None, *, keep_s: float = 30 * 86400.0, memory_bytes: int = 64 << 20
    ) -> None:
        self._keep_ns = nanoseconds(keep_s, "keep_s")
        if keep_s <= 0 or memory_bytes < 0:
            raise UsageError("keep_s must be positive, memory_bytes not negative")
        self.counters = Counters()
        self._state = state
        self._memory_bytes = memory_bytes
        self._table: _Entries = {}  # writer -> (highest batch, when it ended by the clock)
        self._clock = Clock()
        self._staged: dict[int, _Staged] = {}  # by the sender's id
        self._delivering: Iterator[Message] = iter(())
        # Set only if the application can merge its state: the group checks whether the attribute exists.
        self.merge_state: Callable[[Sequence[SubgroupState]], None] | None = None
        if state is None or callable(getattr(state, "merge_state", None)):
            self.merge_state = self._merge_state

    @property
    def writers(self) -> dict[str, int]:
        """The highest delivered batch of each writer."""
        return {writer: batch for writer, (batch, _) in self._table.items()}

    def receive(self, group: Group, timeout: float | None = None) -> Iterator[Message]:
        """The messages of a group, until this member has left.

        Args:
            group: joined with ``state=`` this.
            timeout: seconds; ends when no event came for this long. None: no limit.

        Raises:
            NotMember: this member was excluded.
            ConfigError: the group has no total order.
            JournalWriteError: as for ``Group.recv``.
        """
        while True:
            # Not `yield from`: the rest of a batch stays for the next call if the caller gives up.
            while (message := next(self._delivering, None)) is not None:
                yield message
            try:
                event = group.next_event(timeout)
            except NotMember:
                if group.status == "left":
                    return
                raise
            if event is None:
                return
            self._delivering = self.take(event)
            if isinstance(event, Message) and (rest := group._take_rest()) is not None:
                self._delivering = itertools.chain(self._delivering, self.take_batch(rest))

    def take(self, event: Event) -> Iterator[Message]:
        """Takes the next event of a group's stream, and gives the messages to deliver, of which all must be taken
        before the next event: for applications that receive by other means than ``receive``.

        Raises:
            ConfigError: the view has no total order, in which members would not agree on earlier deliveries.
        """
        if isinstance(event, View):
            if not by_name(event.mechanism).total:
                raise ConfigError(
                    f"atomic batches need a total order, and this group's is {event.order!r}: join with order='total' "
                    "on every member, or receive without Batches"
                )
            present = {member.id for member in event.members}
            for sender in [sender for sender in self._staged if sender not in present]:
                self._abandon(sender)
            self._clock.keep(sorted(present))
        elif isinstance(event, Message):
            if event.unicast or not event.payload.startswith(MAGIC):
                yield event
            elif event.payload.startswith(ROW):
                if (staged := self._staged.get(event.sender.id)) is not None:
                    staged.add_one(event.payload)
                    self._check_rows(event.sender.id, staged)
            else:
                yield from self._mark(event)

    def take_batch(self, batch: Batch) -> Iterator[Message]:
        """As ``take``, for the messages of ``Group.recv_batch``, whose rows are not looked at one by one. Views must
        come through ``take``, in their place between the batches."""
        data, offsets, runs = batch.data, batch.offsets, batch.runs
        senders, kinds = (np.repeat(each, runs["n"]) for each in (
            runs["sender"], 2 * (runs["global_seqno"] > 0) + (runs["unicast"] > 0)
        ))  # fmt: skip
        kinds = 2 * kinds + (_marks(data, offsets) == _MARK)
        cuts = np.flatnonzero((kinds[1:] != kinds[:-1]) | (senders[1:] != senders[:-1])) + 1
        bounds = [0, *cuts.tolist(), len(batch)]
        for begin, end in itertools.pairwise(bounds):
            if kinds[begin] == _ORDERED_ROW:  # of one sender
                sender = int(senders[begin])
                if (staged := self._staged.get(sender)) is not None:
                    staged.add(data, offsets[begin : end + 1])
                    self._check_rows(sender, staged)
            else:
                for message in batch.messages(begin, end):
                    yield from self.take(message)

    # ---- state of joiners

    def get_state(self, write: Callable[[Any], None]) -> None:
        """As in ``StateHandler``."""
        staged = list(self._staged.items())
        head = {
            "table": self._table,
            "staged": [[sender, each.head(), each.spool.length] for sender, each in staged],
            "now_ns": self._clock.now_ns,
            "apart": list(self._clock.apart.items()),
        }
        text = json.dumps(head).encode()
        write(_LENGTH.pack(len(text)) + text)
        for _, each in staged:
            for chunk in each.spool.chunks():
                write(chunk)
        if self._state is not None:
            self._state.get_state(write)

    def set_state(self, read: Callable[..., bytes]) -> None:
        """As in ``StateHandler``."""
        for staged in self._staged.values():
            staged.spool.close()
        self._table, self._staged, self._clock = self._read_state(read)
        if self._state is not None:
            self._state.set_state(read)

    def _merge_state(self, others: Sequence[SubgroupState], /) -> None:
        """As in ``MergingHandler``: keeps the higher batch of each writer, and the rows that wait on any side, as a
        writer goes on at its place, in the merged view."""
        for other in others:
            table, staged, clock = self._read_state(other.read)
            # Entries keep their age, and in the merged view each sender's first message sets its clock apart again.
            now_ns = max(self._clock.now_ns, clock.now_ns)
            self._table = _moved(self._table, now_ns - self._clock.now_ns)
            for writer, (batch, at_ns) in _moved(table, now_ns - clock.now_ns).items():
                highest, when = self._table.get(writer, (-1, at_ns))
                self._table[writer] = max(batch, highest), max(at_ns, when)
            self._clock = Clock(now_ns)
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

    def _read_state(self, read: Callable[..., bytes]) -> tuple[_Entries, dict[int, _Staged], Clock]:
        """The table, the rows that wait, and the clock; the rest is the application's."""
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
        table = {writer: (batch, at_ns) for writer, (batch, at_ns) in head["table"].items()}
        return table, found, Clock(head["now_ns"], dict(head["apart"]))

    # ---- the parts of a batch

    def _mark(self, message: Message) -> Iterator[Message]:
        try:
            fields = json.loads(message.payload[len(BEGIN) :][:4096])
            writer, batch = fields["writer"], fields["batch"]
            number = fields["rows" if message.payload.startswith(BEGIN) else "sent_ns"]
            if not isinstance(writer, str) or not all(type(each) is int and each >= 0 for each in (batch, number)):
                raise ValueError
            if len(writer.encode()) > NAME_BYTES_MAX:
                raise ValueError
            if not message.payload.startswith((BEGIN, END)):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            self.counters.malformed += 1
            text = codes.BAD_PEER("%s sent a message that begins like a part of a batch but is not one")
            log.warning(text, message.sender)
            return
        if message.payload.startswith(BEGIN):
            self._abandon(message.sender.id)
            self._staged[message.sender.id] = _Staged(writer, batch, number, Spool(self._memory_bytes))
        else:
            self._clock.hear(message.sender.id, number)
            yield from self._end(message, writer, batch)

    def _end(self, message: Message, writer: str, batch: int) -> Iterator[Message]:
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
            self._enter(writer, batch)
            yield from self._rows(staged, message)
        finally:
            staged.spool.close()

    @staticmethod
    def _rows(staged: _Staged, of: Message) -> Iterator[Message]:
        for payload in staged.payloads():
            yield Message(payload, of.sender, of.view_id, of.seqno, of.index, of.global_seqno, of.sent_ns)

    def _enter(self, writer: str, batch: int) -> None:
        """Makes an entry, and drops old ones. The same on every member: by the messages alone."""
        self._table.pop(writer, None)
        self._table[writer] = batch, self._clock.now_ns  # the last of the dict
        self._drop_old()

    def _drop_old(self) -> None:
        oldest = self._clock.now_ns - self._keep_ns
        self._table = {each: entry for each, entry in self._table.items() if entry[1] >= oldest}
        while len(self._table) > WRITERS_MAX:
            del self._table[next(iter(self._table))]

    def _check_rows(self, sender: int, staged: _Staged) -> None:
        """A writer that sends more rows than announced would otherwise fill the disk of every member."""
        if staged.came > staged.rows:
            self._abandon(sender)

    def _abandon(self, sender: int) -> None:
        staged = self._staged.pop(sender, None)
        if staged is not None:
            self.counters.abandoned += 1
            staged.spool.close()


def _moved(entries: _Entries, by_ns: int) -> _Entries:
    return {writer: (batch, at_ns + by_ns) for writer, (batch, at_ns) in entries.items()}


def _marks(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """The first 8 bytes of each message as a number; 0 for shorter ones."""
    found = np.zeros(len(offsets) - 1, "<u8")
    long = np.flatnonzero(np.diff(offsets) >= len(ROW))
    found[long] = data[offsets[long][:, None] + np.arange(len(ROW))].view("<u8")[:, 0]
    return found
