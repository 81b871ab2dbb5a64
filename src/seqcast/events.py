"""What ``group.events()`` yields beside messages and views, in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.types import Member, ViewId


@dataclass(frozen=True, slots=True)
class Blocked:
    """From here on a ``send`` to the group waits, or is queued (``send_while_blocked``), until ``Unblocked``. Unicasts
    go on.

    Args:
        kind: why: "flush" (a view change), "pause" (a member called ``suspend``), "minority" (with
            ``partition="primary"``: too few members can be reached). The last one may follow another, as it lasts
            longer: until members come back, the group turns out to have gone on without this one (``Excluded``), or
            an operator says that those missing are gone for good.
        reason: the same for people, with what to do.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """A ``send`` to the group goes on. Follows the last ``Blocked``; after a flush, behind the view that ended it.

    Args:
        kind: of the ``Blocked`` that it ends.
        reason: what ended it, and what went wrong meanwhile, such as a block callback that raised.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """The group went on without this member; it may join again, as a new incarnation.

    Args:
        view_id: of the view that the others went on with.
        reason: why, for people, with what to do.
    """

    view_id: ViewId
    reason: str


@dataclass(frozen=True, slots=True)
class InterfaceChanged:
    """The network interface of this member changed, or does not send. What can be mended is: an interface that was made
    anew, or came back with its address, is used again by itself, and this member goes on, or merges with the others if
    they went on without it. Where the address of this member was replaced by another one, ``Excluded`` follows.

    Args:
        interface: its name.
        reason: what happened, and what to do about it.
    """

    interface: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of this member that some did not get: to the group, those that ended in its packets ``first_seqno`` to
    ``last_seqno``, or messages to one member.

    At the end of this member's membership (it left, or was excluded) those of all ``Lost`` for the last view are the
    last messages that it sent to the group, so that the sum of their ``messages`` says from which one on they are lost.

    Args:
        view_id: the view in which they were sent; of messages to one member: the last one that had both.
        first_seqno, last_seqno: range of this member's packet seqnos, both inclusive (``Message.seqno``); 0 where the
            messages were in no packet, or went to one member.
        missed_by: the view with which those went on that did not deliver them; None: no other member is known to have
            delivered them all (they were on their way to the sequencer or to the receiver, were never sent, or this
            member was cut off from all others).
        unsent: so many messages waited in the queue of ``send_while_blocked`` when this member's membership ended, and
            were never sent: the last that this member sent to the group.
        messages: how many messages it is about: each is one ``send``, or one message of a ``send_many`` or
            ``send_batch``, that was accepted. Known of the last two rings of packets (``ring_packets``) of a view.
        to: they were sent to this member alone, which did not acknowledge them before it was gone, or this member was.
    """

    view_id: ViewId
    first_seqno: int
    last_seqno: int
    missed_by: ViewId | None
    unsent: int = 0
    messages: int = 0
    to: Member | None = None

    def __str__(self) -> str:
        if self.unsent:
            return f"lost: {self.unsent} queued messages were never sent; the last view was {self.view_id.counter}"
        if self.to is not None:
            return f"lost: {self.messages} messages to {self.to} were not acknowledged by it"
        by = "others" if self.missed_by is None else f"those that went on to view {self.missed_by.counter}"
        return (
            f"lost: {self.messages} messages in packets {self.first_seqno} to {self.last_seqno} of view "
            f"{self.view_id.counter} did not reach {by}"
        )
