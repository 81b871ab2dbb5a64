"""The compiled engine for Python. One object per member; every method may be called from any thread.

The C contract is native/engine/engine.h, whose terms are used here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from seqcast.config.keys import Seal
from seqcast.reports import Report
from seqcast.types import Member, OwnPackets, Secret, View, ViewId

SENT: int
AGAIN: int
NO_VIEW: int
NO_MEMBER: int
TOO_LARGE: int
ENDED: int
OLDEST_NOT_PACKED: int
OLDEST_PACKED: int
OLDEST_PACKED_BEFORE: int

LANE_DATA: int
LANE_CONTROL: int
SLAB_BYTES: int
LANE_UNICAST: int
SEQNO_MAX: int
SEAL_ROOM: int
"""Bytes by which sealing makes a datagram longer."""

RUN_DTYPE: np.dtype[Any]
"""sender u8, seqno u8, global_seqno u8, sent_ns i8, first u4, n u4, index u4, unicast u2, transitional u2 (sc_run)."""

def charges(packet_bytes: int) -> tuple[int, int]: ...
def order_name(mechanism: int) -> str | None:
    """The order that this build has under a number."""

def crc32c(data: Any, crc: int = 0) -> int:
    """CRC32C of a buffer; ``crc``: of the bytes before."""

def locked(n: int) -> memoryview:
    """``n`` zeros to be a secret, in pages of their own: if the system can, neither swapped out nor dumped, and zeros
    in a child process; overwritten when nobody refers to them any more."""

class Message:
    """One delivered message, identified by (sender, seqno, index). Frozen; equal to another with the same values."""

    def __init__(
        self,
        payload: bytes,
        sender: Member,
        view_id: ViewId,
        seqno: int,
        index: int,
        global_seqno: int | None,
        sent_ns: int,
        unicast: bool = False,
        transitional: bool = False,
    ) -> None: ...
    @property
    def payload(self) -> bytes:
        """The bytes that were sent."""
    @property
    def sender(self) -> Member:
        """The member that sent the message, perhaps this one."""
    @property
    def view_id(self) -> ViewId:
        """The view in which the message was sent and delivered."""
    @property
    def seqno(self) -> int:
        """Seqno of the sender's packet in which the message ends."""
    @property
    def index(self) -> int:
        """Position among the messages that end in that packet."""
    @property
    def global_seqno(self) -> int | None:
        """Position among the ordered messages of the view, from 1, dense; None without total order, for unicasts and
        for messages sent with ``ordered=False``."""
    @property
    def ordered(self) -> bool:
        """The message has a place in the total order."""
    @property
    def sent_ns(self) -> int:
        """Wall clock of the sender, ns since 1970, when the packet was opened."""
    @property
    def unicast(self) -> bool:
        """The message was sent to this member only."""
    @property
    def transitional(self) -> bool:
        """The message was delivered by a view change after members were lost, which may have delivered another
        message in this place."""

class Batch:
    """Messages of one view, in order, in Arrow's binary layout. Iterating yields their payloads.

    The arrays are views of memory that lives as long as they or the batch do. Large packets are not copied before an
    array, or a message by its index, is asked for: the first such call copies the batch once.
    """

    @property
    def view(self) -> View:
        """The view in which the messages were delivered."""
    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of the messages."""
    @property
    def offsets(self) -> npt.NDArray[np.int32]:
        """``len(self) + 1`` offsets into ``data``: message i is ``data[offsets[i]:offsets[i + 1]]``."""
    @property
    def runs(self) -> npt.NDArray[Any]:
        """Runs: one row (RUN_DTYPE) for the messages of one packet: sender's id, seqno, global_seqno, sent_ns,
        first, n, index, unicast, transitional; ``first`` is the index of its first message here."""
    @property
    def transitional(self) -> int:
        """Global seqno of the first message that has one and is transitional (see ``Message``); 0 if none is."""
    @property
    def nbytes(self) -> int:
        """Bytes of all messages."""
    @property
    def view_tag(self) -> int:
        """Tag of the view's id, in the form of packets."""
    @property
    def delivered_ns(self) -> int:
        """Wall clock at delivery, ns since 1970."""
    def unicasts(self) -> Batch | None:
        """A batch of only the unicasts."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> bytes: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def tolist(self) -> list[bytes]:
        """The payloads."""
    def to_arrow(self) -> Any:
        """A ``pyarrow.BinaryArray`` over the same memory. Needs pyarrow."""
    def messages(self, begin: int = 0, end: int | None = None) -> list[Message]:
        """The messages with sender and position, or those of a slice."""
    def _rest(self) -> Batch:
        """Takes all messages that have not been taken yet."""

class Engine:
    def __init__(
        self,
        *,
        member_id: int,
        group_tag: int,
        deliver_own: bool,
        receive: bool,
        observer: bool,
        unicast: bool,
        mixed: bool,
        pulled: bool,
        piece_bytes: int,
        slabs_max: int,
        ring_bytes: int,
        unicast_bytes: int,
        ring_packets: int,
        message_bytes_max: int,
        control_bytes_max: int,
        blocked_bytes_max: int,
        nak_delay_ns: int,
        nak_backoff_ns_min: int,
        nak_backoff_ns_max: int,
        retransmit_hold_ns: int,
        retransmit_bytes_per_s: int,
        congestion: int,
        send_bytes_per_s: int,
        ack_delay_ns: int,
        ack_bytes: int,
        ack_packets: int,
        probe_ns_min: int,
        probe_ns_max: int,
        heartbeat_ns: int,
        suspect_ns: int,
        suspect_ns_max: int,
        install_ns: int,
        slow_ns: int,
        skips: bool,
        policy_ns: int,
        sealings_max: int,
        seed: int,
        seal: Seal | None = None,
    ) -> None:
        """``seal``: the secrets that seal datagrams; None: each has its CRC."""
    # The world (the simulator; the socket driver calls the C functions).
    def receive(self, datagram: bytes, address: bytes, now_ns: int, segment: int = 0, in_slot: bool = False) -> int:
        """Takes in one received buffer; returns how many of its datagrams were accepted.

        Args:
            segment: size in bytes of each datagram in the buffer, the last of which may be shorter, as UDP_GRO gives
                them; 0: the buffer is one datagram.
            in_slot: its memory is shared with other datagrams, as the driver does with small ones.
        """
    def refused(self, address: bytes, now_ns: int, guard: bool = False) -> None:
        """The port at ``address`` is closed, or its guard connection (``guard``): evidence against the member there."""
    def tick(self, now_ns: int) -> None: ...
    def deadline(self) -> int:
        """Monotonic ns at which ``tick`` is due; 2**63 - 1: never."""
    def transmit(self, now_ns: int, all: bool = True, runs_max: int = 0) -> list[tuple[int, bytes, bytes]]:
        """(lane, address, datagram) of each datagram to send now; the address is b"" for those to the group.

        Args:
            all: closes open packets and sends them too; otherwise they stay open for later messages.
            runs_max: at most this many runs, as in one round of the socket driver; 0: everything.
        """
    def lent(self) -> list[tuple[int, bytes, bytes]]:
        """Copies again the result of the last ``transmit``: its memory must not change until the next one."""
    def targets(self) -> tuple[list[bytes], bool]:
        """Members that packets to the group reach by unicast: their addresses, first that of the one whose message came
        last; and whether others hear multicasts."""
    def unsent(self) -> int:
        """Bytes that are packed and not yet transmitted."""
    def urgent(self) -> bool:
        """Does something wait for a transmission that no ``unsent`` byte stands for: an ack, a repeat, a window?"""
    # The control plane.
    def control_send(
        self, payload: bytes, address: bytes = b"", outside: bool = False, anybody: bool = False
    ) -> bool:
        """Sends a control frame to the group's control lane, or to one address. False if the queue is full.

        Args:
            outside: for those who are in no view, or in another one, too.
            anybody: such a frame is for whoever is at the address, even if a member of our view has that address, too.
        """
    def refile(self, secrets: Sequence[tuple[int, Secret]]) -> None:
        """The key file has changed: these take the place of ``Seal.secrets``."""
    def know(self, tag: int, secret: Secret, cipher: int) -> None:
        """The secret of a view with this tag that others may be in, 32 bytes, and the number of its cipher: kept for a
        while. ``install`` takes that of the view which this member enters."""
    def stand(self, payload: bytes, every_ns: int, times: int, now_ns: int) -> bool:
        """Multicasts a standing control frame, which is meant for processes outside our view: the members of our view
        report only the first of a row. False if the queue is full.

        Args:
            every_ns: the engine repeats the frame after each such time, within the view and until another one.
            times: how often in all; 0: only the last one ends.
        """
    def reports(self) -> list[Report]:
        """Takes all reports that wait, in order. See ``seqcast/reports.py``."""
    # The application's order policy.
    def offers(self) -> tuple[int, list[tuple[int, int, int, int, int, bytes]]] | None:
        """The packets that wait for the policy, at most 128: number of the batch, and for each packet the sender's
        rank, seqno, sent_ns, messages, bytes and head. None: none waits, or a batch is with the policy."""
    def decide(self, batch: int, ranks: Sequence[int] | None, now_ns: int) -> bool:
        """The policy has ordered a batch: for each place, the rank whose next packet takes it. None: the policy has
        failed. Returns False if too late: everything was ordered by arrival."""
    def doubted(self) -> list[int]:
        """Ids of members under verification: not heard, but not suspected yet."""
    def links(self, unicast: bool = False) -> list[tuple[int, int]]:
        """(listener, speaker): the listener has not heard the speaker for its suspicion time; neither is suspected.
        ``unicast``: the speaker is heard, but none of its unicasts."""
    def too_slow(self) -> list[int]:
        """Ids of the members, also this one, that a sender calls too slow to stay."""
    def path_bytes(self) -> int:
        """Size of the largest packet that reaches every member from every other one, as far as is known; 0: unknown."""
    def measure(self, now_ns: int) -> None:
        """Asks at once how large packets may be on the way to each member."""
    def strangers(self, tag: int) -> int:
        """Number of addresses from which heartbeats of the view with this tag came within the last suspicion time."""
    def greet(self, member: int, address: bytes) -> None:
        """Pings a member, or a stranger, at once."""
    def beat(self, now_ns: int) -> None:
        """Sends the next heartbeat now, so that other views learn that this one has members."""
    def show(self, address: bytes) -> None:
        """Sends a heartbeat to somebody outside the view."""
    def gate_close(self, unicasts: bool = False) -> int:
        """Closes the send gate and returns the last own seqno. ``unicasts``: the cut is reached only when survivors
        have the unicasts that were sent to them."""
    def pause(self) -> None:
        """Sends nothing new to the group until ``resume`` or the next view; sent messages are still ordered."""
    def resume(self) -> None: ...
    def mark(self, marker: int) -> None:
        """Puts a marker into the delivery queue, between two packets."""
    def uncount(self, lost: Sequence[int]) -> None:
        """Credit no longer waits for the ``lost`` members, which are about to be given up; packets that they lack are
        kept."""
    def freeze(self, lost: Sequence[int], still: bool = False) -> None: ...
    def held(self, rank: int) -> tuple[int, list[tuple[int, int]]]:
        """(end of the prefix, ranges held beyond), of the group stream of ``rank``."""
    def cut(self, cut: Sequence[int], fetch: Sequence[tuple[int, int, int, int]]) -> None:
        """``cut`` by rank; ``fetch``: (rank, lo, hi, rank of the holder)."""
    def cut_reached(self) -> bool: ...
    def gossip_marks(self) -> list[tuple[int, int, int, int, int, int]]:
        """By rank, of each group stream: the first seqno kept, the last delivered, received and consumed, and the
        window in bytes for the sender's claim, which is promised too."""
    def gossip_lacks(self, rank: int, first: int, last: int, most: int) -> list[tuple[int, int]]:
        """Ranges in ``first`` to ``last`` of the group stream of ``rank`` that did not arrive, of ``most`` packets."""
    def gossip_ask(self, rank: int, lo: int, hi: int, holder: int, now_ns: int) -> None:
        """Requests missing packets around ``lo`` to ``hi`` of the group stream of ``rank`` from another member."""
    def gossip_vote(
        self, rank: int, delivered: int, received: int, consumed: int, window: int, claim: int, now_ns: int
    ) -> None:
        """A member has reported this about this member's group stream: this counts as an acknowledgement."""
    def gossip_stable(self, rank: int, seqno: int) -> None:
        """All members have delivered the group stream of ``rank`` up to ``seqno``."""
    def gossip_vouch(self, rank: int, now_ns: int) -> None:
        """Another member has heard the member ``rank``."""
    def received_table(self) -> list[int]: ...
    def install(
        self,
        *,
        tag: int,
        ids: Sequence[int],
        addresses: Sequence[bytes],
        rank: int,
        mechanism: int,
        sequencer: int,
        window_bytes: int,
        forward_window_bytes: int,
        unicast_window_bytes: int,
        state_window_bytes: int,
        packet_bytes: int,
        base: Sequence[int],
        origin_base: Sequence[int],
        cut: Sequence[int] | None,
        marker: int,
        now_ns: int,
        apart: Sequence[bool] | None = None,
        fell: Sequence[bool] | None = None,
        share_bytes: int = 0,
        room_bytes: int = 0,
        safe: bool = False,
        path_bytes: int = 0,
        secret: Secret = b"",
        cipher: int = 0,
    ) -> None:
        """Installs a view.

        Args:
            window_bytes: limit of one group stream's bytes in flight, in charged bytes, like all windows.
            share_bytes: the part of ``window_bytes`` that each group stream always has; 0: all.
            room_bytes: for all group streams together, at each receiver; needed only with ``share_bytes``.
            mechanism: number of the order of `core/orders`.
            fell: by rank in the view that is closed: the member did not survive it.
            safe: messages are delivered when all members have them in order, or the view ends.
            path_bytes: size of the largest packet that paths are asked for; 0: they are not.
            secret: with a seal: that of the view, 32 bytes; ``cipher``: the number of its cipher.
            sequencer: rank of the member that orders messages, if the mechanism has one; otherwise ignored.
            apart: if subgroups merge: by rank, whether the member comes from another subgroup.
        """
    def close_view(self, cut: Sequence[int] | None, marker: int, fell: Sequence[bool] | None = None) -> None: ...
    # The application.
    def send(self, payload: bytes, *, to: int = 0, wall_ns: int = 0, ordered: bool = True) -> int:
        """Packs one message that fits the credit; SENT, AGAIN (nothing is packed in part: the caller repeats the whole
        call), NO_VIEW, NO_MEMBER, ENDED or TOO_LARGE. For the simulator and tests; the driver streams large ones."""
    def deliver(
        self, bytes_max: int = 1 << 20, now_ns: int = 0, wall_ns: int = 0, keeps: bool = False
    ) -> Batch | tuple[int, int, int, int] | int | None:
        """The next batch, the next marker (an int), None; or a gap: its sender, the first and the last
        of its packets, and the number of its messages that are missed. ``keeps``: for the application, which takes the
        item later."""
    def paced(self, to: int = 0) -> bool:
        """Do sends to the group, or to a member, wait for packets to leave, whose rate ``send_bytes_per_s`` or
        congestion bounds?"""
    def takes(self, item: object, now_ns: int) -> None:
        """The application takes a kept item, or again one that was put back."""
    def rests(self, now_ns: int) -> int:
        """The thread that works on the last batch waits in a send; returns the beginning of this wait, or 0 if nothing
        is worked on."""
    def works_on(self, rest: int, now_ns: int) -> None:
        """That wait is over."""
    # State for a joiner.
    def state_send(self, payload: bytes, to: int, wall_ns: int = 0) -> tuple[int, int]:
        """(SENT, AGAIN, NO_VIEW or NO_MEMBER; how many bytes were packed)."""
    def state_end(self, to: int) -> None:
        """Nothing follows for now."""
    def state_want(self, sender: int) -> None:
        """Keeps state of ``sender`` from now on until read."""
    def state_void(self, sender: int) -> None:
        """Drops state that ``sender`` sends from now on; 0: from every member."""
    def state_read(self, sender: int, bytes_max: int, now_ns: int = 0) -> bytes:
        """Reads state that ``sender`` has sent."""
    def blocked(self) -> int:
        """Number of messages that were sent to the group while sending was closed, and wait here."""
    def queued(self) -> int:
        """How many have ever waited so."""
    def blocked_oldest(self) -> int:
        """The fate of the oldest of them: OLDEST_NOT_PACKED, OLDEST_PACKED as a whole in this view, or
        OLDEST_PACKED_BEFORE, in an earlier one."""
    def blocked_end(self) -> int:
        """Drops them, accepts no more, and returns how many were never packed as a whole."""
    def unordered(self) -> int:
        """Packets with own messages that the sequencer has not ordered yet (SEQ-24)."""
    def end_sends(self) -> None:
        """The application sends nothing more: later sends return ENDED. ``SendsDrained`` follows in ``reports`` when
        every accepted message is ordered (SEQ-24), or, for a unicast, acknowledged."""
    def drained(self) -> bool:
        """Is everything ordered or acknowledged now, as ``end_sends`` says?"""
    def own(self) -> OwnPackets: ...
    def own_messages(self, first: int, last: int, waiting: bool = False) -> list[int]:
        """For each packet up to ``last``: the number of own messages that ended from ``first`` to that one, in this
        view.

        Args:
            waiting: also count a large message whose send waits for its order.
        """
    def unacknowledged(self) -> list[int]:
        """By rank: the number of unicast messages that the member has not acknowledged."""
    def stalls(self, now_ns: int) -> list[tuple[int, int]]:
        """(id, ns) of each member for which senders to the group wait now, and for how long, as of the heartbeats; none
        while they wait for a view change or a pause."""
    def view(self) -> int:
        """Tag of the view to which messages sent now belong; 0 outside a view."""
    def deliverable(self) -> int: ...
    # Messages that applications have taken.
    def taken(self) -> None:
        """The application has received everything that ``deliver`` returned."""
    def consumed(self, now_ns: int) -> int:
        """Own seqno up to which all others are known to have taken everything; asks those that may lack something."""
    def last_sent(self) -> int:
        """The last own seqno that contains anything; 0 outside a view."""
    def stream(self, rank: int) -> tuple[int, int, int, int, int]:
        """(highest delivered, highest received, stable) of the group stream of ``rank``; how many of our packets that
        member lacks, and the ns of a round trip there, 0 if none is known."""
    def counters(self) -> dict[str, int]: ...
    # The board.
    def use_board(self, memory: Any) -> None:
        """From now on the counters are in ``memory``, a writable buffer of zeros, which shows the state of the engine.
        Called before the driver is made. The buffer is kept until the engine is gone."""
    def board_note(self, text: bytes, member: int, now_ns: int) -> None:
        """An event for the flight recorder; ``text`` is cut. Without a board nothing."""
    def board_about(self, text: bytes) -> bool:
        """Replaces the board's text about the member; False: too long, or without a board."""

class TakenWait:
    """A wait until the applications of all others have taken the messages sent to the group so far."""

    def __init__(self, engine: Engine, now_ns: int) -> None: ...
    def state(self) -> int:
        """SENT: all is taken, or ``lost``; AGAIN; NO_VIEW."""
    @property
    def lost(self) -> bool:
        """Some messages were not ordered when subgroups merged, and are not resent: ``Lost`` reports them."""

class Sending:
    """One message on its way into the send ring. ``step`` until the result SENT."""

    def __init__(self, engine: Engine, payload: bytes, to: int = 0, ordered: bool = True) -> None: ...
    def step(self, wall_ns: int = 0) -> int:
        """SENT, AGAIN (call again later), NO_VIEW, NO_MEMBER, ENDED or TOO_LARGE."""
    def abort(self) -> bool:
        """Gives the message up, as ``send`` does after its timeout. False: too late, already packed."""
    @property
    def packed(self) -> bool:
        """A message packed as a whole that waits for the sequencer: members may deliver it even if its send fails."""

class SendingArray:
    """Messages for the group on their way into the send ring, packed as one array (``Group.send_batch``)."""

    def __init__(self, engine: Engine, payloads: list[bytes], ordered: bool = True) -> None: ...
    sent: int
    """How many of them are packed, or queued."""
    def step(self, wall_ns: int = 0, chunk: int = 0) -> int:
        """Packs until credit ends; returns as ``Sending.step``, for the first message that is not sent.

        Args:
            chunk: at most this many messages; 0: all.
        """
    def abort(self) -> bool:
        """Gives up the messages that are not sent. False: too late, the next one is packed."""
    @property
    def packed(self) -> bool:
        """As in ``Sending``, of the next message."""
