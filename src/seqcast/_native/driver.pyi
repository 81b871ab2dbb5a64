"""The socket driver for Python: sockets, clock and threads around one engine.

The C contracts are native/io/sockets.h and native/io/driver.h. Every method may be called from any thread; methods that
wait release the GIL and check for signals every 100 ms. Times are monotonic ns of ``now_ns()``.
"""

from asyncio import AbstractEventLoop, Future, Task
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from seqcast._native.engine import Batch, Engine, Message
from seqcast.events import Skipped
from seqcast.types import Member, View

SENT: int
AGAIN: int
NO_VIEW: int
NO_MEMBER: int
OBSERVER: int
TOO_LARGE: int
BAD_OFFSETS: int
GONE: int
REMADE: int
DOWN: int
NO_CARRIER: int
ADDRESS_GONE: int
ADDRESS_OTHER: int
ROUTED: int
LIST_CHANGED: int
NOT_BYTES: int
ENDED: int
UNSURE: int
KEPT_FULL: int
ELSEWHERE: int
BY_TASK: int
KEEPS: int
FULL: int
HOLD_NS: int
EMBED_TABLE: object
KINDS: dict[str, int]

def now_ns() -> int: ...
def interface_of(address: str) -> tuple[str, int]:
    """Name and index of the interface that has this IPv4 address, which need not be its first one.

    Raises:
        OSError: no such interface.
    """

def look_at(interface: str, index: int, address: bytes, unrouted: bytes = b"") -> int:
    """As ``Driver.look``, for sockets that belong to no driver.

    Args:
        index: of the interface when they were opened.
        address: theirs, as members' addresses are.
        unrouted: the address of the group, if they are on loopback because no other interface had a route there.
    """

def describe_address(address: bytes) -> str:
    """ "192.0.2.1:5000" of a member's address."""

class Refused(Exception):
    """A message was not sent; ``args``: (AGAIN, NO_VIEW, NO_MEMBER, ENDED, OBSERVER, TOO_LARGE, BAD_OFFSETS,
    LIST_CHANGED, NOT_BYTES, or UNSURE: this member is out, and others may deliver the message; messages sent
    before; for NOT_BYTES, its type and why it is not a message)."""

class Driver:
    """Opens the sockets.

    Raises:
        OSError: ``errno`` and, as text, the step that failed: interface, socket, bind, join, multicast, route, ...
    """

    def __init__(
        self,
        engine: Engine,
        *,
        member_id: int,
        family: int,
        interface: str,
        group: bytes,
        port: int,
        ttl: int,
        unicast_port: int,
        port_range: int,
        unicast: bool,
        dscp: int,
        rcvbuf: int,
        sndbuf: int,
        send_batch: int,
        receive_batch: int,
        packet_bytes: int,
        gso: bool,
        gro: bool,
        mmsg: bool,
        busy_poll_ns: int,
        flush_bytes: int,
        flush_ns_min: int,
        flush_ns_max: int,
        tick_ns: int,
        nap_ns: int,
        look_ns: int,
    ) -> None: ...
    @property
    def address(self) -> bytes:
        """This member's unicast address."""
    @property
    def interface(self) -> str: ...
    @property
    def loopback(self) -> bool: ...
    @property
    def mtu(self) -> int: ...
    @property
    def rcvbuf_granted(self) -> int:
        """Bytes of socket memory that the data socket may hold, as the kernel charges them."""
    @property
    def sndbuf_granted(self) -> int:
        """The same for the sending socket."""
    @property
    def gso(self) -> bool: ...
    @property
    def looped(self) -> bool:
        """Packets of the group's streams are looped back to this machine, where another member may be."""
    @property
    def gro(self) -> bool: ...
    @property
    def apart(self) -> bool:
        """Without multicast: packets have a socket of their own at the port, so that they hold up nothing else."""
    @property
    def last_send_error(self) -> int: ...
    def look(self) -> int:
        """Changes of the interface since the sockets were opened, as bits: GONE, REMADE ..."""
    def mend(self) -> None:
        """Makes the same sockets use the interface that has the name now. Raises OSError(errno, step)."""
    def counters(self) -> dict[str, int]: ...
    def use_board(self) -> None:
        """The counters are on the engine's board from now on. Called before any thread uses the driver."""
    def run(self) -> None:
        """The I/O thread: returns after ``stop``."""
    def wait_control(self, until_ns: int, each_look: bool = False) -> bool:
        """Waits for events of the engine, ``kick_control`` or ``until_ns``. Every ``look_ns`` it looks, without the
        GIL, for faults that nobody reports: the interface, refused sends. Returns whether a fault was seen; with
        ``each_look`` whether a look took place."""
    def kick_control(self) -> None: ...
    def callback(self, runs: bool) -> None:
        """The calling thread runs a block callback from now on, or no longer: its sends do not wait for messages of
        other threads that have not begun."""
    def poke(self) -> None:
        """The control plane changed the engine: transmits, and wakes all waiting threads."""
    @property
    def stopped(self) -> bool:
        """``stop`` was called: nothing more comes."""
    def stop(self) -> None:
        """Ends ``run`` and every wait."""
    def close(self) -> None:
        """Closes the sockets, after ``stop`` and once ``run`` has returned. Received messages remain deliverable."""
    def after_fork(self) -> None:
        """In a child process: closes its copies of the sockets and touches nothing else."""
    def send(self, payload: Any, to: int = 0, timeout_ns: int = -1, ordered: bool = True, group: object = None) -> None:
        """If ``group`` is a ``Receiver`` from which this thread receives, messages that come while the call waits are
        kept."""
    def send_many(
        self, messages: Any, to: int = 0, timeout_ns: int = -1, ordered: bool = True, group: object = None
    ) -> None: ...
    def deliver(
        self, bytes_max: int, timeout_ns: int, view: View | None, later: bool = False
    ) -> Batch | Skipped | int | None:
        """The next batch, gap or marker, waiting ``timeout_ns`` (< 0: without limit); None: nothing, or stopped.
        ``view`` is that of the last marker, to which a batch belongs. ``later``: the item is kept for the application,
        and does not count as taken."""
    def taken(self) -> None:
        """The application has received everything that ``deliver`` returned; a batch of one message needs no call."""
    def wait_taken(self, timeout_ns: int) -> bool:
        """Waits until the applications of all others have taken the messages sent to the group before; < 0: without
        limit.
        False: not in time, or never, as a merge dropped some.

        Raises:
            Refused: NO_VIEW.
        """
    def wait_deliverable(self, timeout_ns: int) -> bool:
        """Waits until something is deliverable or the driver is stopped; False: neither happened in time."""
    def state_send(self, data: Any, to: int, timeout_ns: int) -> int:
        """Packs state for the member ``to``, waiting at most ``timeout_ns`` for credit; returns the number of
        bytes packed.

        Raises:
            Refused: NO_VIEW or NO_MEMBER.
        """
    def state_end(self, to: int) -> None:
        """Nothing follows for now: sends packed messages."""
    def state_read(self, sender: int, data: Any, timeout_ns: int) -> int:
        """Fills ``data`` with state that the member ``sender`` has sent, waiting at most ``timeout_ns`` for the first
        byte; returns the number of bytes read."""
    def watch_open(self) -> int:
        """A descriptor for an event loop; open until ``watch_close``, even if the driver is closed.

        Raises:
            OSError: the process has too many descriptors.
        """
    def watch(self) -> bool:
        """Makes the descriptor readable once something is deliverable or the driver stops. True: something already is,
        and the driver does not watch."""
    def watched(self) -> bool:
        """To be called whenever the descriptor is readable: the event loop may have to receive. True: something is
        deliverable, or the driver has stopped."""
    def watch_close(self) -> None: ...

class Sender:
    """The part of a group that sends single messages."""

    _driver: Driver
    def send(
        self, payload: Buffer, *, to: Member | str | None = None, timeout: float | None = None, ordered: bool = True
    ) -> None:
        """Sends one message, to the group or to one member, reliably and in order per sender.

        Args:
            payload: bytes, or an object with a contiguous buffer.
            to: a member of the view, or its name; None: the group. Messages that this member sends to itself need
                credit too: beyond ``unicast_bytes`` the call waits until some of them are received.
            timeout: seconds to wait for credit or for the end of a view change; None: no limit. A message larger than
                half the window that travels by way of the sequencer also waits for its order, and beyond the timeout
                once all its packets are on their way; with 0, such a message is not begun. With
                ``send_while_blocked="queue"`` the call does not wait for a view change or a pause: the message is
                copied and sent afterwards. If the membership ends first, ``Lost`` reports the message.
            ordered: False: the message has no place in the total order and no global seqno, and waits only for this
                member's earlier messages. Every member of the view delivers the message before the view ends, but
                not necessarily at the same place among the messages of others. Without a total order, with the order
                "grant", and for a message to one member, the argument has no effect. With "sequencer" and
                "total-1999" the message still travels by way of the sequencer: if the sequencer crashes before
                multicasting, every member delivers the message in the next view instead.

        Raises:
            SendTimeout: the message was not sent; no part of it will be delivered.
            SendWouldBlock: as SendTimeout, if only this thread could end the wait, by receiving: while the thread
                that receives waits in a send, arriving messages are kept for it, up to ``kept_bytes``, and that limit
                is reached.
            NotMember: this member left, is leaving, or was excluded. If ``leave`` is called while a send waits,
                either the whole message is accepted, or this error is raised and no part is delivered. The exception
                is a message that waits for its order (see ``timeout``): members that this one was cut off from may
                still deliver all of it, and then the error says so.
            NotInView: ``to`` is not in the view.
            UsageError: ``payload`` is not bytes-like or is larger than ``message_bytes_max``, ``to`` is neither a
                Member nor a name, or two members have this name, or ``timeout`` is not a number of seconds.
        """
    def send_batch(
        self,
        data: Buffer | npt.NDArray[np.uint8],
        offsets: Buffer | npt.NDArray[np.signedinteger[Any]] | Sequence[int],
        *,
        timeout: float | None = None,
        ordered: bool = True,
    ) -> None:
        """Sends the messages of an Arrow binary array to the group.

        Args:
            data: the bytes of all messages, an array of uint8 or an object with a contiguous buffer.
            offsets: n + 1 ascending offsets into ``data``, int32 or int64: message i is
                ``data[offsets[i]:offsets[i + 1]]``.
            timeout: seconds to wait for credit; None: no limit.
            ordered: as for ``send``.

        The arrays must not be changed until the call returns. If another thread changes them, other bytes of ``data``
        are sent, or the call raises.

        Raises:
            SendTimeout: the first ``error.sent`` messages were sent, the others were not.
            UsageError: the arrays have other types, or the offsets descend or lie outside ``data``. ``error.sent`` is 0
                unless another thread changed the offsets during the call.
            NotMember: as for ``send``; the first ``error.sent`` messages were sent.
        """
    def _send_batch(self, data: Any, offsets: Any, timeout: float | None, ordered: bool, done: int) -> None:
        """``done``: how many of the messages this call has already sent."""

class Ended(Exception):
    """The last event of the stream was taken."""

class Receiver(Sender):
    """The part of a group that receives. A subclass sets the attributes of the contents page (driver.pxd), and has
    the methods called for a marker (``_marked``, ``_reached``, ``_event``), for the journal (``_write``), while states
    are merged (``_wait_merged``), if nothing came (``_refuse_over``), for an event that a call for messages passes over
    (``_skipped``), for the log when the application has missed messages (``_tell_missed``), before it waits for the
    lock (``_refuse_handler``), and while a send waits (``_keep``, ``_waits_for_itself``; ``_unkeep`` when the kept
    messages are taken); ``_ends_quietly`` says how."""

    _begun: Batch | None
    _taker: int
    _kept: int
    _stuck_ns: int
    _missed: int
    _missed_due: int
    _embedded: bool
    def __iter__(self) -> Iterator[Message]:
        """The messages, until this member has left.

        Raises:
            NotMember: this member was excluded.
            JournalWriteError: as for ``recv``.
        """
    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember: this member left or was excluded, and the application has received every message delivered here.
            UsageError: ``timeout`` is not a number of seconds.
            JournalWriteError: with ``journal_required=True``, the journal cannot be written. Later items stay in the
                stream, and nothing more is received.
        """
    def recv_batch(self, timeout: float | None = None) -> Batch | None:
        """The next messages, as many as are there, up to ``batch_bytes``. Views and other events are skipped.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            None if no message came within ``timeout``.

        Raises:
            NotMember, UsageError, JournalWriteError: as for ``recv``.
        """
    def _take_rest(self) -> Batch | None:
        """The rest of the batch from which ``next_event`` took a message, or None. Counts as taken at the next call for
        an event."""
    def _under_lock(self, call: Callable[[], object], wait: int) -> bool:
        """Calls a function with the lock of the stream; False: the lock was not free within ``wait`` ns."""
    def _next_event(self, wait: int) -> Any:
        """The next message or other event; None after ``wait`` ns (< 0: no limit).

        Raises:
            Ended: the stream has ended.
        """

class AsyncSender:
    """The part of an asyncio group that sends and receives single messages. A subclass has ``_send_waiting`` and
    ``_next_waiting``, coroutine functions that wait."""

    sync: Any
    _waiting_sends: int
    _loop: AbstractEventLoop
    _watched: int | None
    _waiters: list[Future[None]]
    _turned_ns: int
    _current_task: Callable[[], Task[Any] | None]
    _receiver: Task[Any] | None
    async def send(
        self, payload: Buffer, *, to: Member | str | None = None, timeout: float | None = None, ordered: bool = True
    ) -> None:
        """Sends one message; waits for credit. Arguments and errors are those of ``seqcast.Group.send``.

        The message of a cancelled call may still be sent, even after the message of a later call.
        """
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def _next_message(self) -> Awaitable[Message]:
        """Takes the next message. Errors are those of ``seqcast.Group.recv``."""
    def _on_watch(self) -> None:
        """For the event loop, whose descriptor is readable."""
    def _wake(self) -> None:
        """Makes the calls that wait look again."""
