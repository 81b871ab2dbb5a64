"""Members and views, as plain frozen values; no I/O, no clock."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

ORDERS = ("total", "records", "sequencer", "total-1999", "grant", "causal", "fifo")
"""Orders in which a group can deliver, the default first."""
MEMBERS_MAX = 128
"""A view has at most this many members: ``SC_MEMBERS_MAX`` of the wire."""

Secret = bytes | memoryview
"""Bytes that nobody else may see. A member keeps its own in memory made for secrets: ``_native.engine.locked``."""


class Answer(Enum):
    """The result of a block callback that is not done yet; any other result lets the view change continue."""

    LATER = "later"


LATER: Final = Answer.LATER
"""Returned by ``on_block``: the view change waits for ``Group.block_ok``."""


class Marks(NamedTuple):
    """Where a stream is at one member, in seqnos of packets; see ``Group.digest``.

    Args:
        delivered: everything up to here is present, in order; the member's application may not have received everything
            yet.
        received: the highest known, perhaps beyond a gap.
        stable: all members are known to have everything up to here.
        lag: packets of this member that the other one has not put in order yet, as far as is known.
        rtt_s: smoothed round-trip time in seconds, measured by heartbeats; 0.0: not measured yet, or this member
            itself.
    """

    delivered: int
    received: int
    stable: int
    lag: int = 0
    rtt_s: float = 0.0


class Status(str):
    """A member's part in its group: "joining", "member", "blocked" (its sends to the group wait), "leaving", "left" or
    "excluded". A string with a reason.

    Args:
        name: one of these.
        reason: why, as text for people; "" if there is none.
    """

    __slots__ = ("reason",)
    reason: str

    def __new__(cls, name: str, reason: str = "") -> Status:
        status = super().__new__(cls, name)
        status.reason = reason
        return status


@dataclass(frozen=True, slots=True)
class Member:
    """One incarnation of a process: a restarted process is a new member with a new id.

    Args:
        name: chosen by the user; unique in a view.
        id: 64-bit number of the incarnation, never 0, never reused.
        address: target of its unicast datagrams; only sockets, or the simulator, know the meaning of the bytes.
        about: ``info``, as JSON.
        observer: the member only receives (the setting ``observer``).
    """

    name: str
    id: int
    address: bytes = field(default=b"", compare=False, repr=False)
    about: str = field(default="", compare=False, repr=False)
    observer: bool = field(default=False, compare=False, repr=False)

    @property
    def info(self) -> dict[str, Any]:
        """The info that its application gave (``join(info=...)``, ``Group.set_info``), as of the view from which this
        member was taken; a new dict at each call."""
        return dict(json.loads(self.about or "{}"))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class ViewId:
    """Identity of a view. Grows at every member: ``counter`` = closed counter + attempt (the cut, step 7).

    Args:
        counter: grows with each view that a member installs.
        coordinator: id of the member with rank 0.
        flush: (attempt, initiator id) of its cut; never the same in two halves of a partition.
    """

    counter: int
    coordinator: int
    flush: tuple[int, int] = (0, 0)

    @property
    def tag(self) -> int:
        """64-bit tag of the whole id, carried by packets; never 0."""
        text = f"{self.counter}/{self.coordinator}/{self.flush[0]}/{self.flush[1]}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1

    def __str__(self) -> str:
        return f"{self.counter}@{self.coordinator:016x}.{self.flush[0]}"


@dataclass(frozen=True, slots=True)
class View:
    """An agreed, ordered list of members.

    ``len(view)`` is the number of its members, ``for member in view`` goes over them by rank, and ``member in view``
    takes a member or a name.

    Args:
        view_id: identifies the view; ids grow.
        members: by rank; ``members[0]`` is the coordinator.
        order: "total", "records", "sequencer", "total-1999", "grant", "causal" or "fifo", as given to ``join``.
        sequencer: rank of the member that orders the messages, or -1 if none does ("fifo", "causal").
        mechanism: how the order comes about: "fifo", "sequencer", "records", "total-1999", "grant" or "causal".
    """

    view_id: ViewId
    members: tuple[Member, ...]
    order: str = "fifo"
    sequencer: int = -1
    mechanism: str = "fifo"

    @property
    def coordinator(self) -> Member:
        """The member with rank 0, which admits joiners and starts view changes."""
        return self.members[0]

    @property
    def fence(self) -> int:
        """The number of this view; see ``Group.fence``."""
        return self.view_id.counter

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __contains__(self, member: object) -> bool:
        """Is this member, or one of this name, in the view?"""
        return any(member in (each, each.name) for each in self.members)

    def rank(self, member_id: int) -> int:
        """Rank of a member, or -1."""
        return next((rank for rank, member in enumerate(self.members) if member.id == member_id), -1)

    def __str__(self) -> str:
        return f"view {self.view_id.counter} [{', '.join(member.name for member in self.members)}]"


@dataclass(frozen=True, slots=True)
class MergeView(View):
    """A view that merges groups which a partition had separated. Each delivered its own messages meanwhile.

    Args:
        subgroups: the views that were merged, each with those of its members that are in the merged view; the merge
            leader's first.
        state_from: the one of them whose application state all others take over, in place of their own, because not
            every state handler has ``merge_state``; the changes that these made to their states while apart are lost.
            None: no state is replaced.
    """

    subgroups: tuple[View, ...] = ()
    state_from: View | None = None

    def __str__(self) -> str:
        groups = (", ".join(member.name for member in group.members) for group in self.subgroups)
        return f"{View.__str__(self)} of {' and '.join(f'[{group}]' for group in groups)}"


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """The next view before its making, as given to a membership policy.

    Args:
        members: the members of the next view, in the order that they have without a policy: first those that stay, by
            rank, then those that join, by id; in a merge, one group after the other.
        joiners: those of ``members`` that are new.
        leavers: members of the current view that leave.
        lost: members of the current view that crashed or are excluded.
        subgroups: in a merge, the members of each group, this member's group first; otherwise empty.
    """

    members: tuple[Member, ...]
    joiners: tuple[Member, ...] = ()
    leavers: tuple[Member, ...] = ()
    lost: tuple[Member, ...] = ()
    subgroups: tuple[tuple[Member, ...], ...] = ()


class OwnPackets(NamedTuple):
    """Seqnos of the packets with a member's messages to the group, in one view, as receivers see them.

    Args:
        first: messages in packets after this one can be counted.
        last: the last packet that is complete.
        all: all members of the view are known to have delivered the packets up to this one.
        any: at least one other member is known to have delivered the packets up to this one.
    """

    first: int
    last: int
    all: int
    any: int


MembershipPolicy = Callable[[MembershipChange], Sequence[Member]]
"""Returns the members of the next view in their order: each of ``change.members`` once. The first one is the
coordinator.

A policy is part of the protocol. Any member may make the next view and call its policy, so all members should use the
same one. The call comes while the group cannot send, so a policy must decide by its argument alone, at once, and do
nothing else: no wait, and no call of methods of a group.
"""

SequencerPolicy = Callable[[Sequence[Member]], Member]
"""Returns which of the next view's members, given by rank, orders its messages: with "total", "records", "sequencer" or
an order policy, if that can be any member. Without a policy the coordinator does so.

The call comes after that of the membership policy, under the same rules: all members should use the same policy, which
must decide by its argument alone, at once, and do nothing else.
"""


class WaitingPacket(NamedTuple):
    """A packet that waits for its place in the order, for an order policy. A packet holds many small messages,
    or a part of a large one.

    Args:
        sender: its member.
        seqno: ``Message.seqno`` of the messages that end there.
        sent_ns: wall clock of the sender, ns since 1970, when the packet was opened.
        messages: how many messages end in the packet.
        nbytes: bytes of its messages.
        head: the first 32 bytes, at most, of the first message that begins in the packet; empty if none does, or that
            message is empty.
    """

    sender: Member
    seqno: int
    sent_ns: int
    messages: int
    nbytes: int
    head: bytes


class OrderPolicy(ABC):
    """Decides in which order the members deliver messages: ``join(cluster, order=MyPolicy())``.

    The group's order is then "records". Only the sequencer calls its policy, and the others follow its records: a
    member without a policy that becomes the sequencer orders messages as they arrive. So each member that may become
    the sequencer should have the same policy.

    The policy orders the packets that wait at the sequencer at the same time: while one batch is decided, the next one
    gathers. The policy orders packets, and each sender's packets keep their sequence. The sequencer's own messages are
    offered like those of the others, and wait for the policy.

    Attributes:
        limit_s: seconds that a batch may wait. When they are over, everything that waits is ordered by arrival
            (counted in ``policy_late``). The limit bounds a slow policy's share in the latency of a message.
    """

    limit_s: float = 0.01

    @abstractmethod
    def order(self, batch: Sequence[WaitingPacket]) -> Sequence[int]:
        """Returns the positions of the packets in ``batch``, 0 to ``len(batch) - 1``, in the order of delivery.

        If the policy puts a sender's packet before an earlier one of the same sender, the two change places. After an
        exception, or a result other than each position once, the batch is ordered by arrival (counted in
        ``policy_failed``, and logged the first time). The policy runs on a thread of its own, and must not call methods
        of the group that wait.

        Args:
            batch: 1 to 128 packets. The senders take turns, each with its packets in their sequence.
        """
