"""Guard connections: a TCP connection between each two members, which the kernel closes when a process ends (NBC-16).

A killed process is known by its closed UDP port too, but by way of ICMP, which firewalls drop. Here each member
listens on TCP, on the number of its UDP port, and the one with the higher id connects to the other. What is sent is one
greeting; afterwards only the end of a connection says something, and it is not believed by itself (a router may forget
a connection, a process may have been out of descriptors): the member is called once more, and only if its kernel
refuses that call it is gone. That counts as a refused UDP port does: a firewall may refuse for a living member, so its
heartbeats must be missing too. Silence proves nothing here, and is left to the heartbeats.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seqcast._native.driver import describe_address
from seqcast.types import Member

log = logging.getLogger("seqcast")

GREETING = struct.Struct("<4sIQ")  # "scg1", tag of the group, id of the member that calls
MAGIC = b"scg1"
RETRY_S = 1.0
LINES_MAX = 4
"""Connections that one member may have with us; it needs two, where both called again at the same time."""
STRANGERS_MAX = 64
"""Connections of which we do not know yet whose they are; the oldest is closed for one more."""


_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)


@dataclass(eq=False)
class _Line:
    """One connection."""

    sock: socket.socket
    member: int  # the other end; 0: it has not greeted yet
    calling: bool = False  # not connected yet
    again: bool = False  # it was connected before: a refusal says that the process is gone
    heard: bytearray = field(default_factory=bytearray)


class Guard:
    """The guard connections of one member, and the thread that looks after them.

    Args:
        me: this member; it listens on the TCP port of its UDP address.
        tag: of the group.
        gone: called, on the guard's thread, with a member whose process has ended.

    Raises:
        OSError: the port cannot be listened on.
    """

    def __init__(self, me: Member, tag: int, gone: Callable[[Member], None]) -> None:
        self.me, self.tag, self.gone = me, tag, gone
        # Connections that stand; members found gone; what was closed because it is not of this group, or too much;
        # members whose address cannot be called; what failed for another reason.
        self.counters = {"connections": 0, "gone": 0, "strangers": 0, "addresses_bad": 0, "failed": 0}
        own = _where(me)
        if own is None:
            raise OSError(errno.EADDRNOTAVAIL, "this member's address is none of TCP")
        family, where = own
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(where, family=family, backlog=STRANGERS_MAX)
        self._listener.setblocking(False)
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._views: deque[tuple[Member, ...]] = deque(maxlen=1)
        self._members: dict[int, Member] = {}  # the others
        self._lines: dict[_Line, None] = {}  # in the order in which they came
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=f"seqcast-guard-{me.name}", daemon=True)

    # ---- from other threads

    def view(self, members: tuple[Member, ...]) -> None:
        """A view was installed."""
        self._views.append(members)
        self._wake()

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the thread has ended
            self._wake_out.send(b"\0")

    def after_fork(self) -> None:
        """In a child process: its copies of the descriptors would keep the connections open when the parent ends."""
        for sock in (self._listener, self._wake_in, self._wake_out, *(line.sock for line in list(self._lines))):
            sock.close()

    # ---- the guard's thread

    def _run(self) -> None:
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while not self._stopping:
                ready = self._selector.select(RETRY_S if self._missing() else None)
                try:
                    self._look(ready)
                except Exception:  # what comes from outside must not end the thread
                    if not self.counters["failed"]:
                        log.exception("the guard connections of %s failed; heartbeats go on", self.me.name)
                    self.counters["failed"] += 1
                    time.sleep(RETRY_S / 10)
        finally:
            for line in list(self._lines):
                self._close(line)
            for sock in (self._listener, self._wake_in, self._wake_out):
                sock.close()
            self._selector.close()
            del self.gone  # it refers to the host, which refers to this guard: a group that was left is freed at once

    def _look(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            if key.fileobj is self._wake_in:
                self._wake_in.recv(4096)
            elif key.fileobj is self._listener:
                self._accept()
            elif key.data in self._lines:
                self._called(key.data) if key.data.calling else self._read(key.data)
        if self._views:
            self._enter(self._views.popleft())
        for member in self._missing():
            self._call(member, again=False)

    def _missing(self) -> list[int]:
        """Whom we are to call, and have no connection with."""
        linked = {line.member for line in self._lines}
        return [member for member in self._members if member < self.me.id and member not in linked]

    def _enter(self, members: tuple[Member, ...]) -> None:
        others = [member for member in members if member.id != self.me.id]
        self._members = {member.id: member for member in others if _where(member) is not None}
        self.counters["addresses_bad"] += len(others) - len(self._members)
        for line in list(self._lines):
            # Who calls may have installed this view before us, so those that we do not know yet stay.
            if line.member and line.member < self.me.id and line.member not in self._members:
                self._close(line)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it went again, or there are no descriptors left
            return
        strangers = [line for line in self._lines if not line.calling and line.member not in self._members]
        if len(strangers) >= STRANGERS_MAX:
            self.counters["strangers"] += 1
            self._close(strangers[0])
        self._add(_Line(sock, 0), selectors.EVENT_READ)

    def _call(self, member: int, again: bool) -> None:
        called = _where(self._members[member])
        if called is None:
            return
        family, where = called
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return
        # A call that is over keeps its port for a minute; without this, no member could listen on that number then.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line = _Line(sock, member, calling=True, again=again)
        self._add(line, selectors.EVENT_WRITE)
        try:
            error = sock.connect_ex(where)
        except (OSError, OverflowError, ValueError):
            error = errno.EINVAL
        if error and error not in _UNDER_WAY:
            self._failed(line, error)

    def _called(self, line: _Line) -> None:
        error = line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._failed(line, error)
            return
        line.calling = False
        self._count()
        try:
            line.sock.send(GREETING.pack(MAGIC, self.tag, self.me.id))
            self._selector.modify(line.sock, selectors.EVENT_READ, line)
        except OSError:
            self._ended(line)

    def _failed(self, line: _Line, error: int) -> None:
        self._close(line)
        if line.again and error == errno.ECONNREFUSED and line.member in self._members:
            self.counters["gone"] += 1
            self.gone(self._members[line.member])

    def _read(self, line: _Line) -> None:
        try:
            data = line.sock.recv(64)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended(line)
            return
        line.heard += data
        if line.member or len(line.heard) > GREETING.size:  # nobody says more than the greeting, and that only once
            self.counters["strangers"] += 1
            self._close(line)
        elif len(line.heard) == GREETING.size:
            magic, tag, member = GREETING.unpack(line.heard)
            held = sum(other.member == member for other in self._lines)
            if magic != MAGIC or tag != self.tag or member in (0, self.me.id) or held >= LINES_MAX:
                self.counters["strangers"] += 1
                self._close(line)
            else:
                line.member = member

    def _ended(self, line: _Line) -> None:
        """A connection that stood was closed by the other side, or broke: we ask its kernel."""
        self._close(line)
        if line.member in self._members:
            self._call(line.member, again=True)

    def _add(self, line: _Line, events: int) -> None:
        line.sock.setblocking(False)
        self._lines[line] = None
        self._selector.register(line.sock, events, line)
        self._count()

    def _close(self, line: _Line) -> None:
        if line in self._lines:
            del self._lines[line]
            self._selector.unregister(line.sock)
            line.sock.close()
            self._count()

    def _count(self) -> None:
        self.counters["connections"] = sum(not line.calling for line in self._lines)


def _where(member: Member) -> tuple[socket.AddressFamily, tuple[str, int]] | None:
    """Family and address of a member's listener; None where its address, which it chose itself, is none."""
    host, _, port = describe_address(member.address).rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return None
    return found[0][0], found[0][4]  # type: ignore[return-value]
