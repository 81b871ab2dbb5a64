"""State transfer in the real world: the handler's bytes on their way from one process to another.

The provider's bytes are taken on its application's receiving thread, between two messages, and sent by a thread of
their own. At the joiner the calling thread of ``join`` receives them, while another thread takes what the group sends
meanwhile out of the engine, so that the group is not held.
"""

from __future__ import annotations

import inspect
import logging
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

from seqcast._native.driver import Refused
from seqcast._native.engine import Batch
from seqcast.config import Config
from seqcast.core.rules.chunks import CHUNK_BYTES_MAX, Incoming, Outgoing
from seqcast.core.vocabulary import LeaveGroup, Left, Meaning, StateArrived, StateRefused
from seqcast.errors import JoinTimeout, NotMember, RemoteProtocolError, UsageError
from seqcast.events import Excluded
from seqcast.net.host import Host
from seqcast.types import View

log = logging.getLogger("seqcast")

SLICE_NS = 50_000_000
"""How long a wait goes on before the rest of the world is looked at."""
BACKLOG_SLICE_NS = 5_000_000
"""The same where the end of ``join`` waits for it."""
BATCH_OVERHEAD = 1024

Item = Batch | Meaning


class StateHandler(Protocol):
    """What an application's state is taken and set by. Plain functions; both may raise."""

    def get_state(self, write: Callable[[Any], None], /) -> object:
        """Writes the state, in pieces of any size (bytes or another buffer). Runs on the thread that receives, between
        the messages before a view and those after it: what was received before belongs to the state, nothing else does.
        """

    def set_state(self, read: Callable[..., bytes], /) -> object:
        """Takes over the state: ``read(n)`` gives the next n bytes, ``read()`` all that is left, b"" is the end. Runs
        on the thread that joins, before ``join`` returns."""


def check_handler(handler: Any) -> None:
    """
    Raises:
        UsageError: it has not the two functions.
    """
    for name in ("get_state", "set_state"):
        function = getattr(handler, name, None)
        if not callable(function):
            raise UsageError(f"state={handler!r} must have the functions get_state(write) and set_state(read)")
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} of state= must be a plain function, not a coroutine")


class Spool:
    """Bytes in memory up to a bound, and what is more in a temporary file. Written first, then read, by any number of
    readers."""

    def __init__(self, memory_bytes: int) -> None:
        self.length = 0
        self.failure: Exception | None = None
        self._left = memory_bytes
        self._parts: list[Any] = []  # bytes of at least a chunk, but the last
        self._small = bytearray()  # what is not enough for one
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def write(self, data: Any) -> None:
        """
        Raises:
            UsageError: it has no bytes.
            OSError: the temporary file cannot be written.
        """
        if not isinstance(data, bytes):
            try:
                data = memoryview(data).tobytes()
            except (TypeError, BufferError) as error:
                raise UsageError(f"state is written as bytes, not {type(data).__name__}; encode it first") from error
        self.append(data)

    def append(self, data: bytes | bytearray) -> None:
        """As ``write``; ``data`` is kept as it is."""
        self.length += len(data)
        if self._file is not None or self.length > self._left:
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="seqcast-state-")
                self._file.write(data)
            except Exception as error:
                self.failure = error
                raise
        elif len(data) >= CHUNK_BYTES_MAX and not self._small:
            self._parts.append(data)
        else:
            self._small += data
            if len(self._small) >= CHUNK_BYTES_MAX:
                self._parts.append(self._small)
                self._small = bytearray()

    def chunks(self, size: int = CHUNK_BYTES_MAX) -> Iterator[Any]:
        """All of it, in pieces of at most ``size``."""
        for part in (*self._parts, self._small):
            view = memoryview(part)
            for at in range(0, len(view), size):
                yield view[at : at + size]
        at = 0
        while self._file is not None:
            with self._lock:
                self._file.seek(at)
                piece = self._file.read(size)
            if not piece:
                return
            at += len(piece)
            yield piece

    def reader(self) -> Callable[..., bytes]:
        """``read`` of ``set_state``."""
        chunks = self.chunks()
        rest: Any = b""

        def read(size: int | None = -1, /) -> bytes:
            nonlocal rest
            wanted = self.length if size is None or size < 0 else size
            pieces = []
            while wanted:
                if not rest:
                    rest = next(chunks, b"")
                    if not rest:
                        break
                pieces.append(rest[:wanted])
                rest = rest[wanted:]
                wanted -= len(pieces[-1])
            return b"".join(pieces)

        return read

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._parts.clear()
        self._small = bytearray()


# ---- the provider's side ---------------------------------------------------------------------------------------------


def give_state(host: Host, handler: StateHandler, view: View, joiners: tuple[int, ...], memory_bytes: int) -> None:
    """Takes the state and sends it, in threads, to those who joined with ``view``."""
    spool = Spool(memory_bytes)
    refusal = ""
    taking = True

    def write(data: Any) -> None:
        if not taking:
            raise UsageError("get_state has returned: nothing can be written any more")
        spool.write(data)

    try:
        handler.get_state(write)
        if spool.failure is not None:  # the handler took no notice
            raise spool.failure
    except BaseException as error:
        refusal = f"{host.member.name}: its get_state raised {error!r}"
        log.error("%s: get_state failed; who joins is told so", host.member.name, exc_info=True)
        if not isinstance(error, Exception):
            raise
    finally:
        taking = False
        users = list(joiners)
        for joiner in joiners:
            threading.Thread(
                target=_send,
                args=(host, spool, refusal, joiner, view.view_id.tag, users),
                name=f"seqcast-state-{host.member.name}",
                daemon=True,
            ).start()


def _send(host: Host, spool: Spool, refusal: str, joiner: int, boundary: int, users: list[int]) -> None:
    driver, outgoing = host.driver, Outgoing(boundary)

    def send(data: Any) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[driver.state_send(rest, joiner, 4 * SLICE_NS) :]
            if rest and joiner not in host.endpoint.joiners_of(boundary):
                raise NotMember("another member gives the state now")

    try:
        if refusal:
            send(outgoing.refusal(refusal))
        else:
            for chunk in spool.chunks():
                send(outgoing.data(chunk))
                send(chunk)
            send(outgoing.end())
        driver.state_end(joiner)
    except (Refused, NotMember) as gone:
        log.info("%s: state for %x ends at %d bytes: %s", host.member.name, joiner, outgoing.offset, gone)
    except OSError as error:
        log.error("%s: the temporary file of the state cannot be read: %s", host.member.name, error)
    finally:
        users.remove(joiner)
        if not users:
            spool.close()


# ---- the joiner's side -----------------------------------------------------------------------------------------------


class Backlog:
    """What is delivered while the application has no state yet, taken by a thread, so that the group is not held;
    bounded: when it is full, credit holds the senders."""

    def __init__(self, host: Host, config: Config) -> None:
        self.items: deque[Item] = deque()
        self.full = 0
        """How many times it was full."""
        self._host, self._config = host, config
        self._bytes = 0
        self._boundary: int | None = 0  # tag of the view before which group messages are void
        self._kept: list[Item] = []  # unicasts of before, which are not
        self._changed = threading.Condition()
        self._stopping = False
        self._deadline: float | None = None
        self.late = False
        self._thread: threading.Thread | None = None

    def restart(self, boundary: int) -> None:
        """Group messages from before the view with this tag are void: the state has their effect."""
        with self._changed:
            self._boundary = boundary
            items, self.items, self._bytes = self.items, deque(), 0
            for item in items:
                self._add(item)
            self._changed.notify_all()
        if self._thread is None:
            name = f"seqcast-backlog-{self._host.member.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def watch(self, deadline: float | None) -> None:
        """The application works on the state, and the group is held for it no longer than up to ``deadline`` (monotonic
        seconds); None: it is done."""
        self._deadline = deadline

    def stop(self) -> deque[Item]:
        """Ends the thread; returns what the application gets first."""
        with self._changed:
            self._changed.wait_for(lambda: self._boundary is None or self._host.over)
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        return self.items

    def give_up(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        host = self._host
        view: View | None = None
        while True:
            with self._changed:
                full = self._bytes >= self._config.state_backlog_bytes
                self.full += full
                if full:
                    self._changed.wait(BACKLOG_SLICE_NS / 1e9)
                if self._stopping:
                    return
                full = self._bytes >= self._config.state_backlog_bytes
            if self._deadline is not None and time.monotonic() > self._deadline and not self.late:
                self.late = True
                host.request(LeaveGroup(0))
            if full:
                continue
            item = host.driver.deliver(self._config.batch_bytes, BACKLOG_SLICE_NS, view, True)
            if item is None:
                if host.over and not host.engine.deliverable():
                    return
                continue
            with self._changed:
                for each in (item,) if isinstance(item, Batch) else host.endpoint.marker(item):
                    if isinstance(each, View):
                        view = each
                    self._add(each)
                self._changed.notify_all()

    def _add(self, item: Item) -> None:
        if isinstance(item, Batch):
            if self._boundary is not None:
                only = item.unicasts()
                if only is not None:
                    self._kept.append(only)
                return
            self._bytes += item.data.nbytes + 4 * len(item) + BATCH_OVERHEAD
        elif self._boundary is not None and not isinstance(item, Excluded | Left):
            if not isinstance(item, View) or item.view_id.tag != self._boundary:
                return
        self.items.append(item)
        if self._boundary is not None:
            self._boundary = None
            self.items.extend(self._kept)
            self._kept = []


def take_state(host: Host, handler: StateHandler, config: Config) -> deque[Item]:
    """Waits for the state, and has the handler set it.

    Returns:
        What was delivered from the state's boundary on.

    Raises:
        JoinTimeout: no member could give it.
        NotMember: this member was excluded meanwhile.
        Exception: what ``set_state`` raised.
    """
    backlog = Backlog(host, config)
    spool: Spool | None = None
    try:
        spool = _receive(host, backlog, config)
        if spool is None:  # the first member
            return deque()
        backlog.watch(time.monotonic() + config.state_timeout_s)
        read = spool.reader()

        def watched(size: int | None = -1, /) -> bytes:
            backlog.watch(time.monotonic() + config.state_timeout_s)
            return read(size)

        handler.set_state(watched)
        backlog.watch(None)
        if backlog.late:
            raise JoinTimeout(
                f"set_state took longer than state_timeout_s={config.state_timeout_s:g} s after its last read, and the "
                "group was left, so that it is not held up: join again with a longer one"
            )
        return backlog.stop()
    finally:
        backlog.give_up()
        if spool is not None:
            spool.close()


def _receive(host: Host, backlog: Backlog, config: Config) -> Spool | None:
    """The whole state; None where this member is the group's first, and has it."""
    provider = boundary = 0
    spool, incoming = Spool(config.state_memory_bytes), Incoming(0)
    told = True  # there is nothing to wait for from the provider
    heard = 0.0
    complete = False
    try:
        while True:
            with host.changed:
                if host.state_from == (provider, boundary) and told:
                    host.changed.wait(SLICE_NS / 1e9)
                if host.error is not None:
                    raise host.error
                if host.over:
                    raise NotMember("the group went on without this member while its state was under way: join again")
                if host.state_held == boundary and host.state_held is not None:
                    complete = True
                    return spool if boundary else None
                named = host.state_from
            if named is None:
                continue
            if named != (provider, boundary):
                provider, boundary = named
                backlog.restart(boundary)
                spool.close()
                spool, incoming = Spool(config.state_memory_bytes), Incoming(boundary)
                heard, told = time.monotonic(), False
            if told:
                continue
            got = host.driver.state_read(provider, incoming.room, SLICE_NS)
            refusal = None
            if got:
                heard = time.monotonic()
                try:
                    chunk = incoming.filled(got)
                except RemoteProtocolError as error:
                    refusal = f"{host.name_of(provider)}: {error}"
                else:
                    if chunk:
                        spool.append(chunk)
                    refusal = incoming.refusal
            elif time.monotonic() - heard > config.state_timeout_s:
                refusal = (
                    f"{host.name_of(provider)}: nothing came for state_timeout_s={config.state_timeout_s:g} s; its "
                    "application has to receive, and get_state to return, for the state to be taken"
                )
            if incoming.over or refusal is not None:
                told = True
                host.request(StateArrived(boundary) if incoming.over else StateRefused(boundary, refusal or "refused"))
    finally:
        if not complete:
            spool.close()
