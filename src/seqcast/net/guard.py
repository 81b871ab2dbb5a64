"""The sockets and the thread of a member's guard connections; ``core/machines/guard.py`` decides."""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import seqcast.codes as codes
from seqcast._native.driver import describe_address, now_ns
from seqcast.core.context import NEVER
from seqcast.core.machines import guard as core
from seqcast.core.machines.guard import STRANGERS_MAX, CallMember, CloseLine, Greet, GuardEffect, MemberGone
from seqcast.core.table import Edge
from seqcast.types import Member

log = logging.getLogger("seqcast")

PAUSE_S = 0.1
"""Pause after a failure that would otherwise come again at once."""

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_TAKEN = (errno.ECONNRESET, errno.EPIPE)
"""The call was taken, and its connection has ended since; that is read next."""
_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)


def listen(address: bytes) -> socket.socket:
    """A listener on the TCP port of a UDP address, where other members call.

    Raises:
        OSError: the port cannot be listened on, with ``EADDRINUSE`` if taken.
    """
    own = _where(address)
    if own is None:
        raise OSError(errno.EADDRNOTAVAIL, "this member's address is not a TCP address")
    family, where = own
    listener = socket.create_server(where, family=family, backlog=STRANGERS_MAX)
    listener.setblocking(False)
    return listener


class GuardThread:
    """The guard connections of one member, and the thread that serves them.

    Args:
        me: this member.
        tag: of the group.
        listener: the result of ``listen`` for this member's address; closed when the thread ends.
        gone: called, on the guard's thread, with a member whose process has ended.
        edges: of the endpoint.
    """

    def __init__(
        self,
        me: Member,
        tag: int,
        listener: socket.socket,
        gone: Callable[[Member], None],
        edges: set[Edge] | None = None,
    ) -> None:
        self.me, self.gone = me, gone
        self._guard = core.GuardLines(me.id, tag, set() if edges is None else edges)
        self._counters = {"addresses_bad": 0, "failed": 0}
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._waking = threading.Lock()  # no descriptor is closed, and its number given away, during a send
        self._views: deque[tuple[Member, ...]] = deque(maxlen=1)
        self._members: dict[int, Member] = {}  # the other members that can be called
        self._lines: dict[int, socket.socket] = {}  # by the guard's number
        self._calling: set[int] = set()  # those not connected yet
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=f"seqcast-guard-{me.name}", daemon=True)

    # ---- from other threads

    @property
    def counters(self) -> dict[str, int]:
        """connections: open now; gone: members whose process ended; strangers: connections that were closed because
        they belonged to no member of this group, or were one too many; addresses_bad: members whose address cannot be
        called; failed: errors."""
        connections = len(self._lines) - len(self._calling)
        return {"connections": max(0, connections)} | self._guard.counters | self._counters

    def view(self, members: tuple[Member, ...]) -> None:
        """A view was installed."""
        self._views.append(members)
        self._wake()

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with self._waking, contextlib.suppress(OSError):  # the thread has ended, or enough bytes wait
            self._wake_out.send(b"\0")

    def after_fork(self) -> None:
        """In a child process: its copies of the descriptors would keep the connections open when the parent ends."""
        self._waking = threading.Lock()  # a thread that the child does not have may have held this
        for sock in (self._listener, self._wake_in, self._wake_out, *list(self._lines.values())):
            sock.close()

    # ---- the guard's thread

    def _run(self) -> None:
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while not self._stopping:
                due = self._guard.due()
                ready = self._selector.select(None if due == NEVER else max(0.0, (due - now_ns()) / 1e9))
                try:
                    self._look(ready)
                except Exception:  # input from outside must not end the thread
                    if not self._counters["failed"]:
                        text = codes.BUG("the guard connections of %s failed; heartbeats continue")
                        log.exception(text, self.me.name)
                    self._counters["failed"] += 1
                    time.sleep(PAUSE_S)
        finally:
            for sock in (*self._lines.values(), self._listener, self._wake_in):
                sock.close()
            with self._waking:
                self._wake_out.close()
            self._lines.clear()
            self._calling.clear()
            self._selector.close()
            del self.gone  # breaks the cycle with the runner, so that a group that was left is freed at once

    def _look(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            if key.fileobj is self._wake_in:
                self._wake_in.recv(4096)
            elif key.fileobj is self._listener:
                self._accept()
            elif key.data in self._calling:
                self._called(key.data)
            elif key.data in self._lines:
                self._read(key.data)
        if self._views:
            self._enter(self._views.popleft())
        self._do(self._guard.run_timers(now_ns()))

    def _enter(self, members: tuple[Member, ...]) -> None:
        others = [member for member in members if member.id != self.me.id]
        self._members = {member.id: member for member in others if _where(member.address) is not None}
        self._counters["addresses_bad"] += len(others) - len(self._members)
        self._do(self._guard.view(self._members.keys(), now_ns()))

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:  # the caller stays in the queue, and would be reported again at once
                time.sleep(PAUSE_S)
            return  # or has closed
        line, effects = self._guard.accepted(now_ns())
        self._add(line, sock, selectors.EVENT_READ)
        self._do(effects)

    def _called(self, line: int) -> None:
        """A call is answered, or fails."""
        sock = self._lines[line]
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error and error not in _TAKEN:
            self._failed(line, error)
            return
        self._calling.discard(line)
        self._selector.modify(sock, selectors.EVENT_READ, line)
        self._do(self._guard.connected(line, now_ns()))

    def _failed(self, line: int, error: int) -> None:
        refused = error == errno.ECONNREFUSED
        self._do((self._guard.refused if refused else self._guard.failed)(line, now_ns()))

    def _read(self, line: int) -> None:
        try:
            data = self._lines[line].recv(64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._do(self._guard.heard(line, data, now_ns()) if data else self._guard.ended(line, now_ns()))

    # ---- effects

    def _do(self, effects: list[GuardEffect]) -> None:
        for effect in effects:
            match effect:
                case CallMember(line, member):
                    self._call(line, member)
                case Greet(line, data):
                    with contextlib.suppress(OSError):  # then its end is read next
                        self._lines[line].send(data)
                case CloseLine(line):
                    self._close(line)
                case MemberGone(member):
                    self.gone(self._members[member])

    def _call(self, line: int, member: int) -> None:
        called = _where(self._members[member].address)
        assert called is not None
        family, where = called
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no descriptors are left
            self._do(self._guard.failed(line, now_ns()))
            return
        # A call that is over keeps its port for a minute; without this, no member could listen on that number then.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._calling.add(line)
        self._add(line, sock, selectors.EVENT_WRITE)
        try:
            error = sock.connect_ex(where)
        except (OSError, OverflowError, ValueError):
            error = errno.EINVAL
        if error and error not in _UNDER_WAY:
            self._failed(line, error)

    def _add(self, line: int, sock: socket.socket, events: int) -> None:
        sock.setblocking(False)
        self._lines[line] = sock
        self._selector.register(sock, events, line)

    def _close(self, line: int) -> None:
        self._calling.discard(line)
        sock = self._lines.pop(line, None)
        if sock is not None:  # None: no socket could be opened for the call
            self._selector.unregister(sock)
            sock.close()


def _where(address: bytes) -> tuple[socket.AddressFamily, tuple[Any, ...]] | None:
    """Family and address of the listener of a member with this UDP address; None if invalid."""
    host, _, port = describe_address(address).rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return None
    return found[0][0], found[0][4]
