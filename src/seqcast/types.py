"""The nouns: members and views. Plain frozen values; no I/O, no clock."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ORDERS = ("total", "sequencer", "fifo")
"""Orders in which a group can deliver, the default first."""
MEMBERS_MAX = 128
"""A view has at most so many members: ``SC_MEMBERS_MAX`` of the wire."""


@dataclass(frozen=True, slots=True)
class Member:
    """One incarnation of a process (E-06): a restarted process is a new member with a new id.

    Args:
        name: what the user calls it; unique in a view.
        id: 64-bit incarnation, never 0, never reused.
        address: where its unicast datagrams go; opaque bytes for everyone but the world (sockets or simulator).
    """

    name: str
    id: int
    address: bytes = field(default=b"", compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class ViewId:
    """Identity of a view. Grows at every member: ``counter`` = closed counter + attempt (the cut, step 7).

    Args:
        counter: grows with each view that a member installs.
        coordinator: id of the member with rank 0.
        flush: (attempt, initiator id) of the cut that made it; two halves of a partition never share it.
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

    Args:
        view_id: tells views apart, and grows.
        members: by rank; ``members[0]`` is the coordinator.
        order: "total", "sequencer" or "fifo", as given to ``join``.
        sequencer: rank of the member that puts the messages in order, or -1 where the order is per sender.
    """

    view_id: ViewId
    members: tuple[Member, ...]
    order: str = "fifo"
    sequencer: int = -1

    @property
    def coordinator(self) -> Member:
        """The member with rank 0, which takes others in and begins what is to be done."""
        return self.members[0]

    def rank(self, member_id: int) -> int:
        """Rank of a member, or -1."""
        return next((rank for rank, member in enumerate(self.members) if member.id == member_id), -1)

    def __str__(self) -> str:
        return f"view {self.view_id.counter} [{', '.join(member.name for member in self.members)}]"


@dataclass(frozen=True, slots=True)
class MergeView(View):
    """A view in which groups that a partition separated are one again; each delivered its own messages meanwhile.

    Args:
        subgroups: the views that were merged, each with those of its members that came along; the leader's first.
    """

    subgroups: tuple[View, ...] = ()

    def __str__(self) -> str:
        groups = (", ".join(member.name for member in group.members) for group in self.subgroups)
        return f"{View.__str__(self)} of {' and '.join(f'[{group}]' for group in groups)}"


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What a membership policy is told of the view that is about to be made.

    Args:
        members: who will be in it, in the order that it has without a policy: those who stay, by rank, then those who
            join, by id; where groups merge, one group after the other.
        joiners: those of ``members`` who are new.
        leavers: members of the view that ends who leave.
        lost: members of it that crashed, or are excluded.
        subgroups: where groups merge, the members of each, this member's first; else empty.
    """

    members: tuple[Member, ...]
    joiners: tuple[Member, ...] = ()
    leavers: tuple[Member, ...] = ()
    lost: tuple[Member, ...] = ()
    subgroups: tuple[tuple[Member, ...], ...] = ()


class OwnPackets(NamedTuple):
    """Numbers of the packets in which a member's messages to the group are, in one view, as receivers see them.

    Args:
        first: the messages of those behind this one can be counted.
        last: the last one that is closed.
        all: up to here all members of the view are known to have delivered them.
        any: up to here at least one other member is.
    """

    first: int
    last: int
    all: int
    any: int


MembershipPolicy = Callable[[MembershipChange], Sequence[Member]]
"""Gives the order of the next view's members: each of ``change.members`` once. The first one is the coordinator, and
orders messages where a sequencer does.

It is a part of the protocol, as the group's own choice is: it is asked by the member that makes the view, which may be
any, so all members should have the same; and it is asked while the group is closed for sending. So it decides by its
argument alone, at once, and does nothing else: it waits for nothing, and calls no method of a group.
"""
