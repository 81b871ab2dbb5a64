"""What people call: ``join`` and ``Group``."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from seqcast._native import driver
from seqcast._native.engine import Batch, Message
from seqcast.arguments import check_min_members, check_name, check_policy, id_of, listed, nanoseconds
from seqcast.config import Config
from seqcast.core.vocabulary import Left, Meaning
from seqcast.errors import (
    ConfigError,
    JournalWriteError,
    NotInView,
    NotMember,
    SendTimeout,
    SeqcastError,
    SuspendTimeout,
    UsageError,
)
from seqcast.events import Blocked, Excluded, InterfaceChanged, Lost, Unblocked
from seqcast.net.host import Host
from seqcast.net.state import Item, StateHandler, check_handler, give_state, take_state
from seqcast.types import ORDERS, Member, MembershipPolicy, View

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    from seqcast.journal.writer import JournalWriter
    from seqcast.settings import Order, Settings

Event = Message | View | Lost | Blocked | Unblocked | InterfaceChanged | Excluded
"""What ``Group.events`` yields."""

_open: dict[int, Group] = {}
_numbers = itertools.count(1)


def join(
    cluster: str,
    *,
    name: str | None = None,
    order: Order = "total",
    state: StateHandler | None = None,
    config: Config | None = None,
    on_block: Callable[[Group], object] | None = None,
    on_unblock: Callable[[Group], object] | None = None,
    membership_policy: MembershipPolicy | None = None,
    min_members: int = 1,
    **settings: Unpack[Settings],
) -> Group:
    """Joins a group, or forms it, and returns when the first view is installed, and the state taken over.

    Args:
        cluster: name of the group, the same at all its members.
        name: what others see of this member, unique in the group. Default: host name and process id.
        order: "total" (default) or "sequencer": one order for all; "fifo": order per sender only. The same at all.
        state: the application's state, by ``get_state(write)`` and ``set_state(read)``: a member that has it hands it
            to who joins, exactly as it is at the beginning of the view that takes the joiner in. ``set_state`` is
            called before this returns, and what the group sent from that view on is received afterwards; it is not
            called at the group's first member. See ``StateHandler``.
        config: settings. Default: those of the environment (``Config.from_environment``).
        on_block: called before a view change closes the group for sending (FLU-13), so that the application can bring
            to an end what must not span two views. It may send; what it sends is delivered by all before the next
            view, except where a sequencer orders and falls before it has stamped it: then it is delivered in a later
            view. It runs on a thread of its own, and is waited for until it returns, but at most ``block_deadline_s``.
            A send that comes later, or in ``on_unblock``, waits like any other.
        on_unblock: called on the same thread when the group is open again, after each ``on_block``.
        membership_policy: gives the order of the members in each view that this member makes, and so its coordinator
            and sequencer; see ``MembershipPolicy``. Where it fails, the order is the one without it, with a warning.
        min_members: returns only when a view has so many members, this one counted. Where multicast does not pass
            between two machines, each would found a group of its own: so that is an error. Messages that others send
            meanwhile wait; a group of fast senders waits with them.
        settings: settings by keyword, which win over ``config``; see docs/config.md.

    Raises:
        ConfigError: a setting that cannot be right, or cannot be here: no such interface, no multicast route, ...
        NameTaken: a living member of the group has this name.
        JoinRefused: the group does not take this member in: other settings, another release, or it is full.
        JoinTimeout: no view came within ``join_timeout_s``, or none with ``min_members``, or no member could give the
            state; the group is left. Base of the two above.
        UsageError: a journal that exists already; a ``state`` without the two functions.
        Exception: what ``set_state`` raised; the group is left.
    """
    check_name("cluster", cluster)
    if order not in ORDERS:
        raise ConfigError(f"order={order!r} must be one of {', '.join(ORDERS)}")
    config = Config.from_environment() if config is None else config
    if settings:
        config = config.replace(**settings)
    if name is None:
        same = sum(group.cluster == cluster for group in open_groups())
        name = f"{socket.gethostname()[:96]}-{os.getpid()}" + (f"-{same + 1}" if same else "")
    check_name("name", name)
    if on_unblock is not None and on_block is None:
        raise ConfigError("on_unblock needs on_block; to be told only, use block_events=True and `events`")
    if state is not None:
        check_handler(state)
        if not config.receive:
            raise ConfigError("state= needs receive=True: a member that takes no messages has no state to give")
    check_policy(membership_policy)
    check_min_members(min_members)
    group = Group(cluster, name, order, config, on_block, on_unblock, state, membership_policy)
    try:
        group._host.start()
        try:
            group._host.join()
            if state is not None:
                group._backlog = take_state(group._host, state, config)
            if min_members > 1:
                group._host.wait_members(min_members)
        except BaseException:  # also Ctrl-C, when the others have this member in their view already
            group._host.leave(config.leave_timeout_s)
            raise
    except BaseException:
        group._give_up()
        raise
    return group


def too_early(reason: str) -> SuspendTimeout:
    """The error at the end of ``suspended`` where the pause did not hold as long."""
    return SuspendTimeout(f"the pause ended too early: {reason}")


def open_groups() -> list[Group]:
    """The groups of this process that were joined, or are being joined, and not left."""
    return list(_open.values())


class _Ended(Exception):
    """The stream's last event was taken."""


class Group:
    """An open group. Made by ``join``. Every method may be called from several threads.

    Use one of the ways to receive: messages (``for``, ``recv``), batches (``recv_batch``) or everything in its true
    order (``events``). They all take from the one stream.

    Attributes:
        cluster: name of the group.
        order: "total", "sequencer" or "fifo".
        config: the settings in use, defaults computed.
    """

    cluster: str
    order: Order
    config: Config

    def __init__(
        self,
        cluster: str,
        name: str,
        order: Order,
        config: Config,
        on_block: Callable[[Group], object] | None = None,
        on_unblock: Callable[[Group], object] | None = None,
        state: StateHandler | None = None,
        membership_policy: MembershipPolicy | None = None,
    ) -> None:
        self.cluster = cluster
        self.order = order
        self.config = config
        self._state = state
        on_block, on_unblock = (call and functools.partial(call, self) for call in (on_block, on_unblock))
        self._host = Host(cluster, name, order, config, on_block, on_unblock, state is not None, membership_policy)
        self._driver = self._host.driver
        self._send = self._driver.send
        self._batch_bytes = config.batch_bytes
        self._forked = False
        self._number = next(_numbers)
        self._leaving = threading.Lock()
        self._graceful = False  # how it left
        self._taking = threading.Lock()
        self._giving = 0  # the thread that is in get_state
        # Under `_taking`:
        self._backlog: deque[Item] = deque()  # delivered before `join` returned
        self._delivered_view: View | None = None
        # Begun by `recv`, and looked at without `_taking`: all its messages but the last are taken without the lock.
        self._begun: Batch | None = None
        self._untaken = False  # senders who wait are not told yet that a batch is taken
        self._meanings: deque[Meaning] = deque()  # of the marker that was taken last
        self._end: Excluded | Left | None = None
        self._journal: JournalWriter | None = None
        if config.journal:
            try:
                self._journal = self._open_journal()
                # One that is left without `with`, and not read to its end, gets its closing record too.
                weakref.finalize(self, _end_journal, self._journal)
            except BaseException:
                self._driver.stop()
                self._driver.close()
                raise
        _open[self._number] = self

    # ---- who and where

    @property
    def member(self) -> Member:
        """This member."""
        return self._host.member

    @property
    def view(self) -> View:
        """The newest view that is installed; messages of older ones may still wait to be delivered.

        It is noted a moment after the view was installed, so it may lag behind ``send``: see ``sending_view``.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        view = self._host.view
        assert view is not None, "join returned without a view"
        return view

    @property
    def sending_view(self) -> View:
        """The view of a message that is sent to the group now; never behind ``send``, which costs nothing for it.

        Where it is the same before and after a ``send`` in one thread, and nothing closed the group between, that send
        was accepted in it. The view in which it is *delivered* is ``Message.view_id``: a later one where the message
        was queued (``send_while_blocked``), or was still on its way to the sequencer when the view closed.

        Raises:
            NotMember: this member left or was excluded, or in a child process after ``fork``.
        """
        self._refuse_forked()
        while tag := self._host.engine.view():
            if (view := self._host.endpoint.view_tagged(tag)) is not None:
                return view
        raise self._not_member()

    @property
    def path(self) -> dict[str, Any]:
        """How datagrams travel: interface, mtu, packet_bytes, gso, gro, rcvbuf_granted, address.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        used = self._driver
        return {
            "interface": used.interface,
            "mtu": used.mtu,
            "packet_bytes": self._host.packet_bytes,
            "gso": used.gso,
            "gro": used.gro,
            "rcvbuf_granted": used.rcvbuf_granted,
            "address": driver.describe_address(used.address),
        }

    def counters(self) -> dict[str, int]:
        """What was counted since the join: of the engine (native/engine/engine.h), ``io_*`` of sockets and threads,
        ``control_*`` of the control plane, ``guard_*`` of guard connections, ``journal_*``."""
        self._refuse_forked()
        counters = self._host.engine.counters() | self._driver.counters()
        counters |= {f"control_{key}": value for key, value in self._host.endpoint.counters.items()}
        if self._host.guard is not None:
            counters |= {f"guard_{key}": value for key, value in self._host.guard.counters.items()}
        if self._journal is not None:
            counters |= {f"journal_{key}": value for key, value in self._journal.counters().items()}
        return counters

    def __repr__(self) -> str:
        return f"<seqcast.Group {self.cluster!r} member {self.member.name!r}>"

    # ---- sending

    def send(self, payload: Buffer, *, to: Member | None = None, timeout: float | None = None) -> None:
        """Sends one message, to the group or to one member; both are reliable and in order per sender.

        Args:
            payload: bytes, or an object with a contiguous buffer.
            to: a member of the view; None: the group. What this member sends to itself waits for credit like anything
                else: beyond ``unicast_bytes`` until another thread has received of it.
            timeout: seconds to wait for credit or a view change; None: without limit. With
                ``send_while_blocked="queue"`` a view change or a pause is not waited for, and the message, which is
                copied, is sent when it has ended, unless this member's membership ends first: then ``Lost`` tells.

        Raises:
            SendTimeout: the message was not sent, no part of it is delivered.
            NotMember: this member left, is leaving, or was excluded. A send that waits when ``leave`` is called is
                either accepted whole or gets this error, and then no part of the message is delivered.
            NotInView: ``to`` is not in the view.
            UsageError: ``payload`` is not bytes-like, or larger than ``message_bytes_max``; ``to`` is not a Member, or
                ``timeout`` not seconds.
        """
        try:
            self._send(payload, 0 if to is None else id_of(to), -1 if timeout is None else nanoseconds(timeout))
        except driver.Refused as refused:
            raise self._refusal(refused, to, timeout) from None

    def send_many(self, payloads: Iterable[Buffer], *, to: Member | None = None, timeout: float | None = None) -> None:
        """Sends messages one after the other; quicker than as many ``send``. A list must not be changed before it
        returns.

        Raises:
            SendTimeout: ``error.sent`` messages were sent, the rest not.
            NotMember, NotInView, UsageError: as ``send``; ``error.sent`` messages were sent before it.
        """
        self._send_many(listed(payloads), to, timeout)

    def _send_many(self, payloads: list[Any], to: Member | None, timeout: float | None, done: int = 0) -> None:
        """``done``: how many were sent before by the same call."""
        wait, receiver = -1 if timeout is None else nanoseconds(timeout), 0 if to is None else id_of(to)
        try:
            self._driver.send_many(payloads[done:] if done else payloads, receiver, wait)
        except driver.Refused as refused:
            raise self._refusal(refused, to, timeout, done, "payloads[{}]") from None

    def send_batch(
        self,
        data: Buffer | npt.NDArray[np.uint8],
        offsets: Buffer | npt.NDArray[np.signedinteger[Any]] | Sequence[int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sends the messages of an Arrow binary array to the group.

        Args:
            data: the bytes of all messages, an array of uint8 or an object with a contiguous buffer.
            offsets: n + 1 offsets into ``data``, int32 or int64, not falling: message i is
                ``data[offsets[i]:offsets[i + 1]]``.
            timeout: seconds to wait for credit; None: without limit.

        The arrays must not be changed before it returns; what another thread does to them all the same sends other
        bytes of ``data``, or raises.

        Raises:
            SendTimeout: ``error.sent`` messages were sent, the rest not.
            UsageError: arrays of other types, or offsets that fall or lie outside ``data``; ``error.sent`` messages
                were sent, which is 0 unless another thread changed the offsets meanwhile.
            NotMember: as ``send``; ``error.sent`` messages were sent before it.
        """
        self._send_batch(data, offsets, timeout)

    def _send_batch(self, data: Any, offsets: Any, timeout: float | None, done: int = 0) -> None:
        import numpy as np  # here, because it takes a tenth of a second

        wait = -1 if timeout is None else nanoseconds(timeout)
        try:
            flat = np.frombuffer(data, dtype=np.uint8) if not isinstance(data, np.ndarray) else data
            marks = np.ascontiguousarray(offsets)
            if flat.dtype != np.uint8 or marks.dtype not in (np.int32, np.int64):
                raise ValueError(f"data is {flat.dtype}, offsets {marks.dtype}; wanted: uint8, and int32 or int64")
            self._driver.send_batch(flat, marks[done:], wait)
        except driver.Refused as refused:
            raise self._refusal(refused, None, timeout, done) from None
        except (TypeError, AttributeError, BufferError, ValueError) as error:
            usage = UsageError(f"send_batch: {error}")
            usage.sent = done
            raise usage from None

    # ---- what the others have taken

    @property
    def sent_seqno(self) -> int:
        """Seqno (``Message.seqno``) of the packet in which the last message ends that this member sent to the group, as
        far as it is packed (``send_while_blocked``); 0 once it is out."""
        self._refuse_forked()
        return self._host.engine.last_sent()

    @property
    def consumed(self) -> int:
        """How far the applications of all other members have taken what this member sent to the group: everything in
        its packets up to this seqno (``Message.seqno``), as far as is known here. Where that is not ``sent_seqno``, the
        others are asked, so that it grows from one reading to the next. 0 once this member is out.

        What taken means, and what it costs: see ``wait_consumed``.
        """
        self._refuse_forked()
        consumed = self._host.engine.consumed(driver.now_ns())
        self._driver.poke()
        return consumed

    def wait_consumed(self, timeout: float | None = None) -> bool:
        """Waits until the applications of all other members have taken everything that this member had sent to the
        group when this was called, from any thread; also across view changes. ``send`` alone says only that a message
        will be delivered.

        A message is taken when ``recv``, ``for`` or ``events`` return it, or ``recv_batch`` the batch that has it.
        Where messages of one batch are returned one by one, all of them count when the last one is. What the
        application does with it then is not known: if that matters, let it answer by a message. A member with
        ``receive=False`` has taken everything. Members that leave, crash or are excluded are waited for no longer;
        those that joined later, or were on another side of a partition, not for what was sent before they came.

        It costs a datagram to each other member and one or two back, and more while the wait lasts: after 8 ms
        (``probe_s_min``), then less and less often, to each 100 ms (``probe_s_max``). Where nobody waits it costs
        nothing. It takes a round trip more than the slowest application: wait once for many messages, not after each.
        A receiver that is stuck, but whose process lives, is never excluded: the wait lasts until its application goes
        on, or ``timeout``.

        Args:
            timeout: seconds; None: without limit.

        Returns:
            True: taken. False: not within ``timeout``; or the group merged with another part of it before some of the
            messages were in any order: ``Lost`` tells which.

        Raises:
            NotMember: this member left or was excluded.
            UsageError: ``timeout`` is not seconds.
        """
        try:
            return self._driver.wait_taken(-1 if timeout is None else nanoseconds(timeout))
        except driver.Refused:
            raise self._not_member() from None

    def _refusal(
        self,
        refused: driver.Refused,
        to: Member | None,
        timeout: float | None,
        done: int = 0,
        which: str = "the payload",
    ) -> SeqcastError:
        """``which``: names a payload; ``{}`` stands for its number."""
        result, sent, *what = refused.args
        sent += done
        error: SeqcastError
        if result == driver.AGAIN:
            why = "a receiver is slower than this sender, or a view change takes long; wait longer, or send less"
            error = SendTimeout(
                f"no credit within {timeout:g} s ({sent} messages of this call were sent): {self._host.minority or why}"
            )
        elif result == driver.TOO_LARGE:
            error = UsageError(
                f"the message is larger than message_bytes_max={self.config.message_bytes_max}: split it, or raise "
                "that at all members"
            )
        elif result == driver.NO_MEMBER:
            error = NotInView(
                f"{to} is not in the {self.view}: send to one of its members; one that was restarted is another member"
            )
        elif result == driver.ENDED:
            error = NotMember("this member is leaving the group, and sends nothing more: join again to send")
        elif result == driver.NOT_BYTES:
            error = UsageError(
                f"a message is bytes or an object with a contiguous buffer, and {which.format(sent)} is {what[0]}; "
                "encode text, and copy slices of an array"
            )
        elif result == driver.LIST_CHANGED:
            error = UsageError(
                f"send_many: another thread shortened the list while it was sent, after {sent} messages; leave it "
                "alone until send_many returns, or pass a copy"
            )
        elif result == driver.BAD_OFFSETS:
            error = UsageError(
                f"send_batch: another thread changed the offsets while they were sent: they fall, or lie outside data, "
                f"after {sent} messages; leave the array alone until send_batch returns"
            )
        else:
            error = self._not_member()
        error.sent = sent
        return error

    # ---- receiving

    def __iter__(self) -> Iterator[Message]:
        """Messages until this member has left.

        Raises:
            NotMember: this member was excluded.
            JournalWriteError: as ``recv``.
        """
        while True:
            begun = self._begun
            if begun is not None:
                while (message := begun._take()) is not None:
                    yield message
                begun = None  # its memory is used again
            try:
                message = self.recv()
            except NotMember:
                if self.was_left:
                    return
                raise
            if message is not None:
                yield message

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message; views are passed over.

        Args:
            timeout: seconds; None: without limit.

        Returns:
            None when ``timeout`` is over.

        Raises:
            NotMember: this member left or was excluded, and all that it was delivered is taken.
            UsageError: ``timeout`` is not seconds.
            JournalWriteError: with ``journal_required=True`` the journal cannot be written; what comes next stays in
                the stream, and nothing more is received.
        """
        wait = -1 if timeout is None else nanoseconds(timeout)
        begun = self._begun
        if begun is not None and (message := begun._take()) is not None:
            return message
        begun = None  # its memory is used again
        if not self._begin_taking(wait):
            return None
        try:
            batch = self._begun if self._begun is not None else self._next_batch(wait)
            return None if batch is None else self._message_of(batch)
        finally:
            self._taking.release()

    def recv_batch(self, timeout: float | None = None) -> Batch | None:
        """The next messages, as many as there are up to ``batch_bytes``; views are passed over.

        Args:
            timeout: seconds; None: without limit.

        Returns:
            None when ``timeout`` is over.

        Raises:
            NotMember: this member left or was excluded, and all that it was delivered is taken.
            UsageError: ``timeout`` is not seconds.
            JournalWriteError: with ``journal_required=True`` the journal cannot be written; what comes next stays in
                the stream, and nothing more is received.
        """
        wait = -1 if timeout is None else nanoseconds(timeout)
        if not self._begin_taking(wait):
            return None
        try:
            batch: Batch | None
            if self._begun is not None:
                batch, self._begun = self._begun._rest(), None
            else:
                batch = self._next_batch(wait)
            if self._untaken:
                self._tell_taken()
            return batch
        finally:
            self._taking.release()

    def events(self) -> Iterator[Event]:
        """Everything in its true order: messages, views, and, where asked for, ``Blocked`` and ``Unblocked``; ends when
        this member has left, or after ``Excluded``.

        Raises:
            NotMember: in a child process after ``fork``.
            JournalWriteError: as ``recv``.
        """
        while True:
            try:
                event = self._next_event(-1)
            except _Ended:
                return
            if event is not None:
                yield event

    def next_event(self, timeout: float | None = None) -> Event | None:
        """The next of ``events``; None when ``timeout`` is over.

        Raises:
            NotMember: this member left, or ``Excluded`` was the last event.
            UsageError: ``timeout`` is not seconds.
            JournalWriteError: as ``recv``.
        """
        try:
            return self._next_event(-1 if timeout is None else nanoseconds(timeout))
        except _Ended:
            raise self._not_member() from None

    def _next_event(self, wait: int) -> Event | None:
        begun = self._begun
        if begun is not None and (message := begun._take()) is not None:
            return message
        begun = None
        if not self._begin_taking(wait):
            return None
        try:
            if self._begun is not None:
                return self._message_of(self._begun)
            if self._end is not None:
                raise _Ended
            item = self._next(wait)
            if isinstance(item, Batch):
                return self._message_of(item)
            if isinstance(item, Left):
                raise _Ended
            return item
        finally:
            self._taking.release()

    def wait_deliverable(self, timeout: float) -> bool:
        """Waits until there is something to receive, or the group has ended, without taking it.

        Args:
            timeout: seconds.

        Returns:
            True: there is (a view, too), or it has. False: ``timeout`` is over.

        Raises:
            UsageError: ``timeout`` is not seconds.
        """
        self._refuse_forked()
        wait = nanoseconds(timeout)
        if self._begun is not None or self._backlog or self._meanings or self._end is not None:
            return True
        return self._driver.wait_deliverable(wait)

    @property
    def was_left(self) -> bool:
        """This member left by itself, and all that it was delivered is taken.

        Raises:
            NotMember: in a child process after ``fork``.
        """
        self._refuse_forked()
        return isinstance(self._end, Left)

    def _begin_taking(self, wait: int) -> bool:
        """One thread at a time takes from the stream, and waits for it; the others wait for their turn. False: it did
        not come within ``wait`` ns."""
        if self._forked:
            raise self._not_member()
        if self._taking.acquire(False):
            return True
        if self._giving == threading.get_ident():
            raise UsageError("get_state cannot receive: it is called between two messages, which is where the state is")
        return wait != 0 and self._taking.acquire(timeout=-1 if wait < 0 else min(wait / 1e9, threading.TIMEOUT_MAX))

    def _message_of(self, batch: Batch) -> Message:
        """The next message of a batch that is begun, or is the next one."""
        message = batch._take_any()
        if batch._left:
            self._begun = batch
        else:
            self._begun = None
            if self._untaken:
                self._tell_taken()
        return message

    def _tell_taken(self) -> None:
        """The application has all messages of the last batch."""
        if not self._backlog:
            self._untaken = False
            self._driver.taken()

    def _next_batch(self, wait: int) -> Batch | None:
        """The next batch; None after ``wait`` ns (< 0: without limit). Under `_taking`."""
        deadline = driver.now_ns() + wait
        while True:
            item = self._next(wait)
            if item is None or isinstance(item, Batch):
                return item
            if wait > 0:  # a view, or the like: what is left of the time
                wait = max(0, deadline - driver.now_ns())

    def _next(self, wait: int) -> Batch | Meaning | None:
        """What is next in the stream: a batch or what a marker means; None after ``wait`` ns. Under `_taking`."""
        if self._end is not None:
            raise self._not_member()
        if self._meanings:
            return self._reached(self._meanings.popleft())
        item: Item | int | None
        if self._backlog:
            item = self._backlog.popleft()
            self._untaken = True
        else:
            item = self._driver.deliver(self._batch_bytes, wait, self._delivered_view)
        if isinstance(item, Batch):
            if len(item) > 1:
                self._untaken = True
            if self._journal is not None:
                try:
                    self._journal.batch(item, item.view)
                except JournalWriteError:  # it stays in the stream, unread
                    self._backlog.appendleft(item)
                    raise
            return item
        if item is None:
            self._refuse_forked()
            if self._host.over and not self._host.engine.deliverable():
                raise self._not_member()
            return None
        if not isinstance(item, int):
            return self._reached(item)
        self._meanings.extend(self._host.endpoint.marker(item))
        return self._reached(self._meanings.popleft())

    def _reached(self, meaning: Meaning) -> Meaning:
        """Under `_taking`."""
        if isinstance(meaning, View):
            self._delivered_view = meaning
            if self._journal is not None:
                try:
                    self._journal.view(meaning, time.time_ns())
                except JournalWriteError:
                    self._meanings.appendleft(meaning)
                    raise
            if self._state is not None and (joiners := self._host.endpoint.joiners_of(meaning.view_id.tag)):
                self._give_state(self._state, meaning, joiners)
        elif isinstance(meaning, Excluded | Left):
            self._end = meaning
            if self._journal is not None:
                self._journal.close("excluded" if isinstance(meaning, Excluded) else "leave")
        return meaning

    def _give_state(self, handler: StateHandler, view: View, joiners: tuple[int, ...]) -> None:
        self._giving = threading.get_ident()
        try:
            give_state(self._host, handler, view, joiners, self.config.state_memory_bytes)
        finally:
            self._giving = 0

    # ---- pausing the group

    def suspend(self, timeout: float | None = None) -> None:
        """Pauses the group (FLU-04): when it returns, all members have delivered the same messages, and nobody can send
        to the group until ``resume``. Block callbacks run before. Unicasts go on.

        A view change ends the pause, and so does the silence of this member for ``lease_s``, or ``pause_s_max``:
        ``resume`` tells. Pauses of several members hold together.

        Args:
            timeout: seconds. Default: ``flush_deadline_s``.

        Raises:
            SuspendTimeout: not all members stopped in time; the group goes on.
            NotMember: this member left or was excluded.
            UsageError: this member has paused the group already; ``timeout`` is not seconds; or called by a block or
                unblock callback.
        """
        self._refuse_forked()
        self._refuse_callback("suspend")
        self._host.suspend(self.config.flush_deadline_s if timeout is None else nanoseconds(timeout) / 1e9)

    def resume(self) -> bool:
        """Lets the group go on after ``suspend``.

        Returns:
            True: the pause has held until now: nobody has sent meanwhile. False: it ended before; ``events`` says why.

        Raises:
            UsageError: the group is not paused by this member.
        """
        return not self._resume()

    def _resume(self) -> str:
        """Ends the pause; why it had ended before, "" where it had not."""
        self._refuse_forked()
        return self._host.resume()

    @contextlib.contextmanager
    def suspended(self, timeout: float | None = None) -> Iterator[None]:
        """``with group.suspended():`` pauses the group as ``suspend`` does, and resumes it at the end.

        Raises:
            SuspendTimeout: also at the end, where the pause did not hold as long.
        """
        self.suspend(timeout)
        try:
            yield
        finally:
            reason = self._resume()
        if reason:
            raise too_early(reason)

    # ---- leaving

    def leave(self, timeout: float | None = None) -> bool:
        """Leaves the group: returns when the others have all that was sent. Again: does nothing.

        It ends all sends first, those of other threads and to single members too: one that comes later gets
        ``NotMember``, and so does one that waits, unless it is accepted whole. Then it waits for what was accepted,
        three quarters of the time at most: what is queued (``send_while_blocked``) is sent, a sequencer puts all in
        order, receivers acknowledge what was sent to them alone. Then this member leaves. What is delivered to it until
        then can still be received; ``Lost`` tells what did not make it, through ``events`` after this returned, too.

        Args:
            timeout: seconds; then it leaves as if it had crashed. Default: ``leave_timeout_s``.

        Returns:
            True: all that ``send`` accepted is delivered by those who stay, but for what ``Lost`` told before. False:
            it is not, or nobody knows, and ``Lost`` names what: the time was over, this member was excluded, or it was
            cut off from all others when it sent. Again: the same. False in a child process.

        Raises:
            UsageError: ``timeout`` is not seconds; or called by a block or unblock callback.
        """
        if self._forked:
            return False
        self._refuse_callback("leave")
        wait_s = self.config.leave_timeout_s if timeout is None else nanoseconds(timeout) / 1e9
        with self._leaving:
            if self._number in _open:
                self._host.leave(wait_s)
                self._graceful = self._host.left
                self._give_up()
        return self._graceful

    def _refuse_callback(self, what: str) -> None:
        """For what cannot end before the callback that calls it."""
        if self._host.callbacks is not None and self._host.callbacks.inside:
            raise UsageError(f"{what} waits for the group, which waits for this callback: call it from another thread")

    def _give_up(self) -> None:
        self._host.close()
        _open.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()
        self.close_journal()

    def close_journal(self) -> None:
        """Ends the journal, if there is one, where the stream was not taken to its end. Leaving by ``with`` does it.

        Raises:
            JournalWriteError: with ``journal_required=True`` something could not be written; the counters say how much.
        """
        if self._journal is not None and not self._forked:
            self._journal.close("leave")

    def _open_journal(self) -> JournalWriter:
        from seqcast.journal.writer import JournalWriter

        config = self.config
        return JournalWriter(
            config.journal,
            cluster=self.cluster,
            member=self.member,
            payload=config.journal_payload,
            required=config.journal_required,
            deliver_own=config.deliver_own,
        )

    def _not_member(self) -> SeqcastError:
        if self._forked:
            return NotMember(
                "this group was opened before fork() and belongs to the parent process: join in the child, or start "
                "processes with multiprocessing's 'spawn' method"
            )
        if self._host.excluded:
            return NotMember("the group went on without this member (it was silent too long): join again")
        if self._host.error is not None:
            return self._host.error
        return NotMember("the group was left: join again")

    def _refuse_forked(self) -> None:
        if self._forked:
            raise self._not_member()

    def _after_fork(self) -> None:
        """In a child process: no lock may be touched, a thread that does not exist here may hold it."""
        self._forked = True
        self._begun = None
        self._host.after_fork()


def _end_journal(journal: JournalWriter) -> None:
    """When its group is collected, or the interpreter ends."""
    with contextlib.suppress(JournalWriteError):
        journal.close("leave")


def _close_in_child() -> None:
    for group in open_groups():
        group._after_fork()
    _open.clear()


def _leave_all() -> None:
    """Leaving the interpreter leaves the groups."""
    for group in open_groups():
        with contextlib.suppress(Exception):
            group.leave()
        with contextlib.suppress(Exception):
            group.close_journal()


atexit.register(_leave_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
