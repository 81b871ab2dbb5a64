"""The disks of replicas (``replicate(stable=PATH)``): an operation is answered once on the disks of a majority.

Each replica appends the messages that change its state to a log, which one thread syncs; the operations that come
during a sync share the next one. After it, the replica tells those whose messages it has synced how far its disk goes,
by unicast. A position in the log means the same operations on every replica, so the positions of a majority of the view
decide: nothing before the lowest of them is lost as long as the disks of a majority last.

Timeline without this: a, b and c have an operation in memory, and a's caller is answered. All three lose power, and the
operation is gone.

A linearizable read waits, too, until the state that its query has seen is on those disks: otherwise a loss of power
could undo a value that somebody has read. The query may see later operations than the message of the read.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import seqcast.codes as codes
from seqcast.blocks.disk import DiskLog
from seqcast.blocks.log import Applied, Entered, Log, Mark, Told
from seqcast.blocks.outbox import READ, READ_AGAIN, Call
from seqcast.errors import NotInView, NotMember, SendTimeout, SeqcastError, StableFailed

if TYPE_CHECKING:
    from seqcast.api.group import Group
    from seqcast.types import Member, View

log = logging.getLogger("seqcast")

_ACK = struct.Struct("<Q")
AGAIN_S = 0.01
"""Pause before an acknowledgement is sent that could not be sent at once."""


def position_of_majority(voters: list[int], positions: dict[int, int]) -> int:
    """The highest position that a strict majority of the voters has reached."""
    reached = sorted((positions.get(each, 0) for each in voters), reverse=True)
    return reached[len(voters) // 2] if voters else 0


class Durable:
    """The disk of one replica, and the known positions of the others.

    Args:
        disk: its log.
        log: the state. Records go to the disk from the first view of a membership on.
        settle: called when more may be answered, by the thread that syncs.
        fail: called by that thread with the error that ends the replica.
    """

    def __init__(
        self, disk: DiskLog, log: Log, settle: Callable[[], object], fail: Callable[[SeqcastError], object]
    ) -> None:
        self._disk, self._log, self._settle, self._fail = disk, log, settle, fail
        self._whole = False  # the state in memory is one that was on the disk, or is a later one
        self._changed = threading.Condition()
        # Under `_changed`:
        self._group: Group | None = None
        self._me = 0
        self._voters: list[int] = []  # of the view
        self._positions: dict[int, int] = {}  # by id: how far the disks of the members go
        self._told: dict[int, int] = {}  # by id: the position that we told the member
        self._owed: dict[int, tuple[Member, int]] = {}  # by id: members to tell that our disk has this position
        self._held: deque[tuple[int, Applied]] = deque()  # own messages that are not on enough disks
        self._readers: list[Call] = []  # that have a value, and wait for the disks
        self._closing = False
        self._synced = Mark(0, 0)  # of the thread that syncs

    # ---- the state on disk

    def load(self) -> None:
        """Takes the state from disk, unless that in memory is as good.

        Raises:
            ConfigError, StableFailed: the log cannot be read; or there was none, and the disk fails.
            Exception: raised by the machine.
        """
        if self._whole:
            return
        if not self._disk.read(self._log.restore, self._log.replay):
            self._disk.begin(self._log.mark, self._log.write)
            self._disk.sync()
        self._whole, self._synced = True, self._log.mark

    def replaces(self, restore: Callable[[], object]) -> None:
        """Takes over a state in place of the one in memory."""
        self._whole = False
        restore()
        self._whole = True

    @property
    def mark(self) -> Mark:
        """How far the file goes; the state in memory may be far ahead of that."""
        return self._synced

    # ---- the thread that applies

    def entered(self, group: Group, view: View) -> None:
        """The log has entered this view."""
        if self._log.record is None:  # the first view of this membership
            if self._log.mark.position < self._synced.position:  # not while the disks of a majority last
                kept = self._disk.keep_aside()
                log.warning(
                    codes.STATE_OLDER(
                        f"the state that was taken over has {self._log.mark.position:,} operations and views, and the "
                        f"one on disk had {self._synced.position:,}: it is kept in {kept}"
                    )
                )
            self._disk.begin(self._log.mark, self._log.write)
            self._log.record = self._record
        with self._changed:
            self._group, self._me = group, group.member.id
            self._voters = [member.id for member in view.members if not member.observer]
            for known in (self._positions, self._told):
                for member in known.keys() - set(self._voters):
                    del known[member]
            position = self._log.mark.position
            self._owed = {member.id: (member, position) for member in view.members if member.id != self._me}
            self._changed.notify_all()

    def _record(self, what: Entered | Told) -> None:
        self._disk.append(what, self._log.mark)
        with self._changed:  # at once, as the next record may wait for the disk
            self._changed.notify_all()

    def applied(self, sender: Member) -> None:
        """A message of this member was applied."""
        if self._disk.outgrown:
            self._disk.begin(self._log.mark, self._log.write)
        with self._changed:
            if sender.id != self._me:
                self._owed[sender.id] = sender, self._log.mark.position
            self._changed.notify_all()

    def heard(self, sender: int, payload: bytes) -> bool:
        """A message to this replica alone. Returns whether that is an acknowledgement."""
        if len(payload) != _ACK.size:
            return False
        (position,) = _ACK.unpack(payload)
        with self._changed:
            if sender in self._voters:
                self._positions[sender] = max(position, self._positions.get(sender, 0))
        return True

    def parted(self) -> None:
        """The membership has ended. Held messages are sent again in the next one."""
        self._log.record = None
        with self._changed:
            self._group = None
            self._voters, self._positions, self._told, self._owed = [], {}, {}, {}
            self._held.clear()
            readers, self._readers = self._readers, []
            for call in readers:
                call.answer = READ_AGAIN
        for call in readers:
            call.done()

    def hold(self, applied: Applied) -> None:
        """A message of this replica was applied."""
        with self._changed:
            self._held.append((self._log.mark.position, applied))

    def take(self) -> list[Applied]:
        """This replica's messages that are on enough disks now. Answers the reads that waited for that, too."""
        served: list[Call] = []
        with self._changed:
            decided, found = position_of_majority(self._voters, self._positions), list[Applied]()
            while self._held and self._held[0][0] <= decided:
                found.append(self._held.popleft()[1])
            if self._readers:
                served = [call for call in self._readers if call.seen <= decided]
                self._readers = [call for call in self._readers if call.seen > decided]
                for call in served:
                    call.answer = READ
        for call in served:
            call.done()
        return found

    def add(self, call: Call) -> bool:
        """Takes a read that has a value; True: answered already."""
        with self._changed:
            if self._group is None:
                call.answer = READ_AGAIN
            elif call.seen <= position_of_majority(self._voters, self._positions):
                call.answer = READ
            else:
                self._readers.append(call)
            return call.answer is not None

    def give_up(self, call: Call) -> None:
        """Nobody waits for this read any more."""
        with self._changed:
            if call in self._readers:
                self._readers.remove(call)

    def lacks(self) -> str:
        """The members whose disks are waited for; "": nothing waits."""
        with self._changed:
            waiting = [call.seen for call in self._readers] + [position for position, _ in self._held]
            if not waiting or self._group is None:
                return ""
            position = min(waiting)
            behind = {each for each in self._voters if self._positions.get(each, 0) < position}
            names = [member.name for member in self._group.view.members if member.id in behind]
        return f"not yet on the disks of {', '.join(names)} (stable= on each member; or they are slow)"

    def stop(self) -> None:
        """Ends ``run``."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """After the end of both threads."""
        self._disk.close()

    # ---- the thread that syncs

    def run(self) -> None:
        """Syncs and tells, until ``stop``."""
        late = False
        while True:
            with self._changed:
                if late:
                    self._changed.wait(AGAIN_S)
                self._changed.wait_for(lambda: self._closing or self._must_work())
                if self._closing:
                    return
            try:
                late = self.work()
            except StableFailed as error:
                self._fail(error)
                return

    def _must_work(self) -> bool:
        return self._group is not None and (self._disk.mark != self._synced or bool(self._owed))

    def work(self) -> bool:
        """Syncs, and tells the others. Returns whether some could not be told yet.

        Raises:
            StableFailed: the disk is full, or reports an error.
        """
        with self._changed:
            group, me = self._group, self._me
        if group is None:
            return False
        if self._disk.mark != self._synced:
            self._synced = self._disk.sync()
        late = self._tell(group, me, self._synced.position)
        self._settle()
        return late

    def _tell(self, group: Group, me: int, position: int) -> bool:
        """Tells those that wait; True: some could not be told yet."""
        with self._changed:
            if group is not self._group:
                return False
            self._positions[me] = position
            owed = [member for member, _ in self._owed.values() if self._told.get(member.id, 0) < position]
        told, gone, late = list[int](), list[int](), False
        for member in owed:
            try:
                group.send(_ACK.pack(position), to=member, timeout=0.0)
            except SendTimeout:
                late = True
            except (NotMember, NotInView):
                gone.append(member.id)
            else:
                told.append(member.id)
        with self._changed:
            if group is self._group:
                self._told.update(dict.fromkeys(told, position))
                for key, (_, position) in list(self._owed.items()):
                    if key in gone or self._told.get(key, 0) >= position:
                        del self._owed[key]
        return late
