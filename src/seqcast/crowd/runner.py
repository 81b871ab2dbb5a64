"""A member of a crowd on real sockets: one thread that receives, runs timers, stores and sends."""

from __future__ import annotations

import contextlib
import errno
import logging
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence

import seqcast.codes as codes
from seqcast.config.derive import to_ns
from seqcast.core.gossip import GossipSettings
from seqcast.core.gossip.inbox import Budget
from seqcast.core.machines.interface import LOOK_NS
from seqcast.crowd.datagrams import DATAGRAM_MAX, address_of, make_id
from seqcast.crowd.member import CrowdMember, Event
from seqcast.crowd.settings import HANDLER_LAG, CrowdSettings
from seqcast.crowd.store import PacketStore
from seqcast.crowd.streams import Delivered, StreamSettings
from seqcast.errors import ConfigError, NotMember, SendTimeout, SeqcastError
from seqcast.net.errors import empty_bridge, no_unicast_port
from seqcast.net.forks import forked, in_child
from seqcast.net.interface import InterfaceObserver, ipv4_of
from seqcast.net.opening import group_address, group_tag

log = logging.getLogger("seqcast.gossip")

BUFFER_BYTES = 4 << 20
BATCH = 256
"""How many datagrams of one socket are read before timers run."""
EVENT_BYTES = 100
"""Approximate memory of an event beside its payload, bytes."""
SENDS_MAX = 1024
"""Messages that wait for the thread to send them."""
ROOM_S = 0.05
"""A sender without room looks again after this time, in seconds."""
IDLE_S = 0.1
"""The thread wakes at least this often, s."""


class CrowdRunner:
    """Runs one member until ``close``.

    Args:
        cluster: name of the crowd.
        settings: in use.

    Raises:
        ConfigError: the sockets or the store cannot be opened.
    """

    def __init__(self, cluster: str, settings: CrowdSettings) -> None:
        group = settings.address or group_address(cluster, 4)
        store = None
        if settings.store:
            store = PacketStore(settings.store, cluster, settings.store_bytes, settings.store_age_s)
        try:
            address = _address_of(settings.interface, group, settings.port)
            self._unicast, self._multicast = _open(settings, group, address)
        except BaseException:
            if store is not None:
                store.close()
            raise
        self._group = (group, settings.port)
        self._store, self._receives, self._receive_bytes = store, settings.receive, settings.receive_bytes
        host, port = self._unicast.getsockname()
        me = make_id(socket.inet_aton(host), port, secrets.randbits(32))
        self._member = CrowdMember(
            me,
            group_tag(cluster),
            GossipSettings(**settings.gossip()),
            StreamSettings(
                keep_bytes=settings.keep_bytes,
                settle_ns=to_ns(10 * settings.average_s),
                serves=settings.lag >= HANDLER_LAG,
            ),
            time.monotonic_ns(),
            secrets.randbits(63),
            store,
            settings.history,
        )
        self.id = me
        self.group = group
        """Its multicast address."""
        self.loopback = address.startswith("127.")
        """Only members on this machine are within reach."""
        self._cluster = cluster
        unrouted = self._group if self.loopback and not settings.interface else None
        self._interface = InterfaceObserver(host, port, self._warn, self._give_up, self._mend, unrouted)
        if empty := empty_bridge(self._interface.interface):
            self._warn(codes.NOBODY_HEARD(empty))
        self._look_ns = time.monotonic_ns() + LOOK_NS
        self._gone = ""  # why no member can reach this one any more
        self._budget = Budget(settings.send_bytes_per_s, max(settings.send_bytes_per_s // 10, 2 * DATAGRAM_MAX))
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._changed = threading.Condition()
        # Under `changed`:
        self._sends: deque[bytes] = deque()
        self._events: deque[Event] = deque()
        self._waiting_bytes = 0  # of the events
        self._counters = self._count()
        self._until_ns: int | None = None  # when the thread ends
        self._over = self._settled = self._forked = False
        self._error: Exception | None = None
        self._came: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=f"seqcast-crowd-{port}", daemon=True)
        self._thread.start()
        _running.add(self)

    # ---- for the application's threads

    def wait_settled(self) -> None:
        """Waits until everything sent from now on is delivered here or reported as lost."""
        with self._changed:
            self._changed.wait_for(lambda: self._settled or self._over)

    def send(self, payload: bytes, timeout_s: float | None) -> None:
        """Hands a message to the thread; waits for its turn.

        Raises:
            SendTimeout: not in time.
            NotMember: this member left, or failed.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while (wait_s := self.offer(payload)) > 0:
                if end is not None:
                    if time.monotonic() >= end:
                        raise SendTimeout(
                            f"waited for {timeout_s:g} s: more is sent than send_bytes_per_s allows, or messages wait "
                            "for this application to receive them (receive=False discards them)"
                        )
                    wait_s = min(wait_s, end - time.monotonic())
                self._changed.wait(max(wait_s, 0.0))

    def offer(self, payload: bytes) -> float:
        """Hands a message to the thread if that may be sent now, and returns 0; else seconds after which to ask again.

        Raises:
            NotMember: this member left, failed, or no longer has its address; or in a child process after ``fork``.
        """
        self._refuse_forked()
        with self._changed:
            if self._gone:
                raise NotMember(self._gone)
            if self._over:
                raise NotMember("this member has left the crowd: join again") from self._error
            if self._until_ns is not None:
                raise NotMember("this member is leaving the crowd: join again")
            if len(self._sends) >= SENDS_MAX or self._waiting_bytes > self._receive_bytes:
                return ROOM_S
            cost = len(payload) + EVENT_BYTES
            if not self._budget.spend(cost, time.monotonic_ns()):
                return self._budget.wait_ns(cost) / 1e9
            self._sends.append(payload)
        self._wake()
        return 0.0

    def take(self, timeout_s: float | None) -> Event | None:
        """The next event; None: none came within the timeout, or this member is over.

        Raises:
            SeqcastError: this member failed.
            NotMember: its address is gone; or in a child process after ``fork``.
        """
        self._refuse_forked()
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._over, timeout_s)
            if self._events:
                event = self._events.popleft()
                self._waiting_bytes -= _size(event)
                return event
            if self._gone:
                raise NotMember(self._gone)
            if self._error is not None:
                raise SeqcastError(f"the crowd's thread failed: {self._error!r}") from self._error
            return None

    def add_callback(self, came: Callable[[], None]) -> None:
        """Has this called on the crowd's thread whenever there is something to take, and when the member is over."""
        with self._changed:
            self._came = came
        came()

    @property
    def left(self) -> bool:
        """Closed, ended by itself, or a parent's."""
        return self._until_ns is not None or self._over or self._forked

    @property
    def over(self) -> bool:
        """No further event will come."""
        with self._changed:
            return self._over and not self._events

    def counters(self) -> dict[str, int]:
        self._refuse_forked()
        with self._changed:
            return dict(self._counters)

    def close(self, linger_s: float) -> None:
        """Ends the member after ``linger_s``, with answers until then. In a child process after ``fork`` nothing
        happens."""
        if self._forked:
            return
        with self._changed:
            if self._until_ns is None:
                self._until_ns = time.monotonic_ns() + to_ns(linger_s)
        self._wake()
        if self._thread is not threading.current_thread():  # which may drop the last reference to the crowd
            self._thread.join()

    def after_fork(self) -> None:
        """In a child process: takes no lock, and leaves the store's file to the parent."""
        self._forked = self._over = True
        self._changed = threading.Condition()
        for each in (self._unicast, self._multicast, self._wake_in, self._wake_out):
            each.close()
        if self._store is not None:
            self._store.after_fork()

    def _refuse_forked(self) -> None:
        if self._forked:
            raise forked("crowd")

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"!")
        except OSError:
            pass  # already being woken, or closed

    # ---- the thread

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for each in (self._unicast, self._multicast, self._wake_in):
                    selector.register(each, selectors.EVENT_READ, each)
                while self._round(selector):
                    pass
        except Exception as error:
            log.exception(codes.BUG("the thread of a crowd's member failed"))
            self._error = error
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
                self._came()
            for each in (self._unicast, self._multicast, self._wake_in, self._wake_out):
                each.close()
            if self._store is not None:
                self._store.close()

    def _round(self, selector: selectors.BaseSelector) -> bool:
        """One round; False: that was the last one."""
        member, now = self._member, time.monotonic_ns()
        with self._changed:
            until = self._until_ns
            waits = bool(self._sends)
        if (until is not None and now >= until and not waits) or self._gone:
            return False
        if now >= self._look_ns:
            self._look_ns = now + LOOK_NS
            self._interface.look()
        due = member.due() if until is None else min(member.due(), until)
        ready = selector.select(0 if waits else min(max(due - now, 0) / 1e9, IDLE_S))
        self._read([key.data for key, _ in ready])
        with self._changed:
            sends, self._sends = self._sends, deque()
        now = time.monotonic_ns()
        for payload in sends:
            member.send(payload, now)
            self._transmit()
        if now >= member.due():
            member.tick(now)
        self._transmit()
        if self._store is not None:
            self._store.flush()  # before its content is given to the application
        self._publish()
        return True

    def _read(self, ready: Sequence[socket.socket]) -> None:
        """Messages before gossips (PB-09): those come as unicasts, and each is handled at once."""
        if self._wake_in in ready:
            self._wake_in.recv(4096)
        for each in (self._multicast, self._unicast):
            if each in ready:
                self._receive(each)

    def _receive(self, sock: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                data, source = sock.recvfrom(DATAGRAM_MAX)
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # ICMP: the port of a member that has ended
            self._member.datagram(data, (socket.inet_aton(source[0]), source[1]), time.monotonic_ns())

    def _transmit(self) -> None:
        for to, data in self._member.take_datagrams():
            raw, port = address_of(to) if to else (b"", 0)
            try:
                self._unicast.sendto(data, (socket.inet_ntoa(raw), port) if to else self._group)
            except OSError as error:  # a full buffer, a firewall, no route: like a loss on the way
                self._interface.send_errors += 1
                self._interface.error = error.errno or 0

    def _warn(self, text: str) -> None:
        log.warning("%s: %s", self._cluster, text)

    def _give_up(self, reason: str) -> None:
        self._gone = reason

    def _mend(self, index: int) -> None:
        group, address = self._group[0], self._unicast.getsockname()[0]
        membership = struct.pack("=4s4si", socket.inet_aton(group), socket.inet_aton(address), index)  # ip_mreqn
        with contextlib.suppress(OSError):
            self._multicast.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, membership)
        _join_on(self._unicast, self._multicast, group, address)

    def _publish(self) -> None:
        events, counters = self._member.take_events(), self._count()
        if not self._receives:
            events = []
        with self._changed:
            self._events += events
            self._waiting_bytes += sum(map(_size, events))
            self._member.streams.full = self._waiting_bytes > self._receive_bytes
            self._counters = counters
            self._settled = self._member.settled
            self._changed.notify_all()
            if events:
                self._came()

    def _count(self) -> dict[str, int]:
        store = self._store.counters if self._store is not None else {}
        return {**self._member.counters(), "datagrams_refused": self._interface.send_errors, **store}


def _size(event: Event) -> int:
    return EVENT_BYTES + (len(event.payload) if isinstance(event, Delivered) else 0)


def _address_of(interface: str, group: str, port: int) -> str:
    """The IPv4 address of an interface, given by name or address; "": of the interface that the route for multicast
    uses.

    Raises:
        ConfigError: the interface has no IPv4 address, or does not exist.
    """
    if not interface:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((group, port))
                return str(probe.getsockname()[0])
            except OSError:
                return "127.0.0.1"
    try:
        return socket.inet_ntoa(socket.inet_aton(interface))
    except OSError:
        pass
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"interface={interface!r} is not an IPv4 address: on this system, give its address")
    try:
        return ipv4_of(interface)
    except OSError as error:
        raise ConfigError(f"interface={interface!r} has no IPv4 address here: {error.strerror}") from error


def _bind_unicast(unicast: socket.socket, address: str, port: int) -> None:
    try:
        unicast.bind((address, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(no_unicast_port(port)) from error
        raise


def _open(settings: CrowdSettings, group: str, address: str) -> tuple[socket.socket, socket.socket]:
    """The socket that sends, and receives unicasts, and the one that receives multicasts.

    Raises:
        ConfigError: they cannot be opened.
    """
    unicast = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    multicast = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        _bind_unicast(unicast, address, settings.unicast_port)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, settings.ttl)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "darwin":
            multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        multicast.bind((group if sys.platform.startswith("linux") else "", settings.port))
        _join_on(unicast, multicast, group, address)
        for each in (unicast, multicast):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        return unicast, multicast
    except BaseException as error:
        unicast.close()
        multicast.close()
        if not isinstance(error, OSError):
            raise
        raise ConfigError(
            f"the sockets of the crowd cannot be opened ({group}:{settings.port} by {address}): {error}"
        ) from error


def _join_on(unicast: socket.socket, multicast: socket.socket, group: str, address: str) -> None:
    """Makes the sockets send to a group, and receive from there, on the interface that has this address now."""
    local = socket.inet_aton(address)
    unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
    multicast.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + local)


_running: weakref.WeakSet[CrowdRunner] = weakref.WeakSet()


def _close_in_child() -> None:
    for runner in list(_running):
        runner.after_fork()


in_child(_close_in_child)
