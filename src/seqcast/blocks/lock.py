"""A lock that one thread of one member of a group holds at a time."""

from __future__ import annotations

import contextlib
import secrets
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seqcast.abandoned import still_wanted
from seqcast.arguments import deadline_of, left_until
from seqcast.blocks.block import Block, check_kind, write_kind
from seqcast.blocks.replica import Guarantee, Replica
from seqcast.errors import NotReady, SeqcastError, Undecided
from seqcast.net.threads import on_thread_or_here

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from seqcast.api.receiving import Event
    from seqcast.config.keywords import Settings

OPERATION = struct.Struct("<cQQ")
"""Kind, id of the member, number of the request."""
ACQUIRE, _RELEASE = b"A", b"R"
ANSWER = struct.Struct("<q")
_GONE, QUEUED = -1, 0
_HEAD = struct.Struct("<QQI")
_REQUEST = struct.Struct("<QQ")
RELEASE_S = 5.0
HELD = "another member holds the lock: wait longer, or find out why it does"

_Request = tuple[int, int]
"""Id of the member, number."""


class Lock(Block):
    """A lock with a queue: whoever asked first, by the order of the group, is the next holder. Each holder has a
    *fence*, a number above those of all holders before. (Fences begin again when all members have ended, unless
    ``stable=`` is set.) The protected resource must refuse a lower fence than before: only that helps if a holder is
    cut off, or stalls, and does not know that the lock is lost.

    A member that leaves, crashes or is excluded loses the lock, and its places in the queue. As ``Block`` says, a lock
    joins by itself, or is passed to ``replicate``::

        with Lock("nightly", name="a", found=2) as lock, lock.hold() as fence:
            table.write(rows, fence=fence)
    """

    def __init__(
        self,
        cluster: str | None = None,
        *,
        name: str | None = None,
        info: Mapping[str, Any] | None = None,
        ready_s: float = 5.0,
        **settings: Unpack[Settings],
    ) -> None:
        self._fence = 0
        self._queue: list[_Request] = []  # the first one holds the lock
        self._present: frozenset[int] = frozenset()
        self._changed = threading.Condition()
        # Under `_changed`:
        self._own: dict[int, int] = {}  # requests of this process that hold the lock -> fence
        self._parted = 0  # id of this member, whose membership has ended
        self._tasks: dict[_Request, Callable[[], object]] = {}  # requests of asyncio that wait -> to be called once
        super().__init__(cluster, name=name, info=info, ready_s=ready_s, **settings)

    def bind(self, replica: Replica[Any], prefix: bytes = b"") -> None:
        """For the replica."""
        super().bind(replica, prefix)
        replica.add_callback(self._follow)

    # ---- the public interface

    def acquire(self, timeout: float | None = None) -> int:
        """Waits for the lock, and returns its fence. Give the lock back with ``release(fence)``.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            NotReady: not within ``timeout``; this process is not the holder.
            Undecided: the same, but the group does not answer. The request is withdrawn as soon as possible.
        """
        end = deadline_of(timeout)
        while True:
            request = self._member(end), secrets.randbits(62)
            try:
                (answer,) = ANSWER.unpack(self._call(OPERATION.pack(ACQUIRE, *request), left_until(end)))
                if answer == QUEUED:
                    answer = self._wait(request, end)
            except BaseException:
                self._withdraw(request)
                raise
            if answer > 0:
                return int(answer)

    def release(self, fence: int, *, timeout: float | None = RELEASE_S) -> bool:
        """Gives the lock back.

        Returns:
            False: the lock was lost before, as this member was excluded.

        Raises:
            Undecided: the group did not answer within ``timeout``. The lock is given back as soon as possible.
        """
        end = deadline_of(timeout)
        with self._changed:
            request = next((number for number, held in self._own.items() if held == fence), None)
            if request is None:
                return False
            del self._own[request]
            holder = self._queue[0]
        try:
            (answer,) = ANSWER.unpack(self._call(OPERATION.pack(_RELEASE, *holder), left_until(end)))
        except BaseException:
            self._withdraw(holder)
            raise
        return bool(answer != _GONE)

    @contextlib.contextmanager
    def hold(self, timeout: float | None = None) -> Iterator[int]:
        """``with lock.hold() as fence:`` holds the lock.

        Raises:
            NotReady: as for ``acquire``; or, at the end, the lock was lost meanwhile.
            Undecided: as for ``acquire`` and ``release``.
        """
        fence = self.acquire(timeout)
        try:
            yield fence
        except BaseException:
            with contextlib.suppress(Undecided, NotReady):
                self.release(fence)
            raise
        self._check_held(fence, self.release(fence))

    def _check_held(self, fence: int, released: bool) -> None:
        if not released:
            why = "this member was excluded or closed"
            raise NotReady(f"the lock was lost while it was held, with fence {fence}: {why}")

    def holds(self, fence: int) -> bool:
        """Does this process hold the lock with this fence, to its knowledge? For a loop that is to end soon; only a
        fence protects."""
        with self._changed:
            return fence in self._own.values()

    def fence(self, *, guarantee: Guarantee = "linearizable", timeout: float | None = 5.0) -> int:
        """The fence of the last holder."""
        return self._read(lambda: self._fence, guarantee, timeout)

    # ---- waiting

    def _member(self, end: float | None) -> int:
        replica = self.replica
        if not replica.wait_ready(left_until(end)):
            raise NotReady(f"the lock cannot be had: {replica.why}")
        return replica.group.member.id

    def _wait(self, request: _Request, end: float | None) -> int:
        """Waits until the request is the first one; `_GONE`: no longer in the queue, like its member.

        Raises:
            NotReady: not the first one in time, and out of the queue.
        """
        while still_wanted():
            with self._changed:
                if (found := self._look(request)) is not None:
                    return found
                left = left_until(end)
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
        raise NotReady(HELD)

    def _look(self, request: _Request) -> int | None:
        """The fence of this request; `_GONE`: no longer in the queue; None: others hold the lock. Under `_changed`."""
        if (fence := self._own.get(request[1])) is not None:
            return fence
        return _GONE if request not in self._queue or request[0] == self._parted else None

    def _tell(self) -> None:
        """Has all that wait look again. Under `_changed`."""
        self._changed.notify_all()
        for request in [each for each in self._tasks if self._look(each) is not None]:
            self._tasks.pop(request)()

    def _follow(self, event: Event | None) -> None:
        if event is None:  # the membership has ended, and with it each request, whether this replica comes back or not
            with self._changed:
                self._parted, self._own = self.replica._me, {}
                self._tell()

    def _withdraw(self, request: _Request) -> None:
        """Takes back a request that may have been applied, or may yet be. The group applies the withdrawal after the
        request, or never applies the request."""

        def withdraw() -> None:
            with contextlib.suppress(SeqcastError):
                self._call(OPERATION.pack(_RELEASE, *request), None)

        on_thread_or_here(withdraw, "seqcast-lock")

    # ---- the machine

    def apply(self, operation: bytes) -> bytes:
        """As in ``Machine``."""
        kind, member, number = OPERATION.unpack(operation)
        request = member, number
        with self._changed:
            if kind == _RELEASE:
                found = request in self._queue
                self._keep([each for each in self._queue if each != request])
                return ANSWER.pack(QUEUED if found else _GONE)
            if member not in self._present:
                return ANSWER.pack(_GONE)
            self._keep([*self._queue, request])
            return ANSWER.pack(self._fence if self._queue[0] == request else QUEUED)

    def entered(self, ids: Sequence[int]) -> None:
        """As in ``Machine``."""
        with self._changed:
            self._present = frozenset(ids)
            self._keep([each for each in self._queue if each[0] in self._present])

    def _keep(self, queue: list[_Request]) -> None:
        """This is the queue now. Under `_changed`."""
        before, self._queue = self._queue[:1], queue
        if queue and queue[:1] != before:
            self._fence += 1
        self._note()

    def _note(self) -> None:
        """Notes which request of this process holds the lock, and wakes those that wait. Under `_changed`."""
        holder = self._queue[0] if self._queue else None
        mine = holder is not None and self._is_mine(holder[0])
        self._own = {holder[1]: self._fence} if holder is not None and mine else {}
        self._tell()

    def _is_mine(self, member: int) -> bool:
        """Is this the id of the present membership, not of one that has ended?"""
        return self._of is not None and member == self._of._me != self._parted

    def snapshot(self, write: Callable[[bytes], None]) -> None:
        """As in ``Machine``."""
        write_kind("Lock", write)
        write(_HEAD.pack(self._fence, len(self._present), len(self._queue)))
        write(struct.pack(f"<{len(self._present)}Q", *sorted(self._present)))
        for request in self._queue:
            write(_REQUEST.pack(*request))

    def restore(self, read: Callable[..., bytes]) -> None:
        """As in ``Machine``."""
        check_kind("Lock", read)
        with self._changed:
            self._fence, present, requests = _HEAD.unpack(read(_HEAD.size))
            self._present = frozenset(struct.unpack(f"<{present}Q", read(8 * present) if present else b""))
            self._queue = [_REQUEST.unpack(read(_REQUEST.size)) for _ in range(requests)]
            self._note()
