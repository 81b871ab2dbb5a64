"""The items of ``group.events()`` beside messages and views, in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.types import Member, View, ViewId


@dataclass(frozen=True, slots=True)
class Blocked:
    """From now on a ``send`` to the group waits, or is queued (``send_while_blocked``), until ``Unblocked``. Messages
    to single members still pass.

    Args:
        kind: the cause: "flush" (a view change), "pause" (a member called ``suspend``), or "minority" (with
            ``partition="primary"``: too few members can be reached). "minority" may follow another kind, and lasts
            longer: until members return, until it turns out that the group continued without this member
            (``Excluded``), or until an operator declares that the missing members are gone for good.
        reason: the cause as text for people, with the remedy.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """A ``send`` to the group no longer waits. Ends the last ``Blocked``, and follows the new view after a view change.

    Args:
        kind: that of the ended ``Blocked``.
        reason: why the block ended, and failures meanwhile, such as a block callback that raised.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Excluded:
    """The group continued without this member, which may join again as a new incarnation.

    Args:
        view_id: id of the view with which the others continued.
        reason: why, as text for people, with the remedy.
        cause: "slow": too slow in taking messages (the setting ``slow``); "identity": no longer on the list of members
            (the setting ``authorized``); in both cases this member was delivered everything agreed on before; "unled":
            this member is an observer, and no other members are left; "": any other.
    """

    view_id: ViewId
    reason: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Rejoined:
    """With ``join(rejoin=True)``, after ``Excluded``: this member is in the group again, as a new incarnation under the
    same name. Its earlier messages that ``lost`` names did not reach all others; messages sent in the group in between
    are not delivered here. The first view of the new incarnation follows.

    Args:
        member: the new incarnation.
        view: the newest view with it.
        lost: the losses that its earlier incarnation was told of since its last view.
    """

    member: Member
    view: View
    lost: tuple[Lost, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorChanged:
    """With ``coordinator_events=True``: another member coordinates the group from now on.

    Args:
        coordinator: the member that coordinates now.
        previous: the member that coordinated before, as this member was last told.
        view_id: the coordinator's view; unless ``agreed``, the view in which the member acts.
        agreed: True: the first member of a new view, which this event follows, and every member of that view
            knows the same. False: within a view, this member holds the coordinator for dead, unreachable or late, and
            ``coordinator`` for the one to act in its place; other members may not know yet. This role ends with the
            next view, or with an event that the coordinator is heard again.
        reason: why, as text for people.
    """

    coordinator: Member
    previous: Member
    view_id: ViewId
    agreed: bool
    reason: str

    def __str__(self) -> str:
        what = "coordinates" if self.agreed else "acts as the coordinator"
        return f"{self.coordinator.name} {what} instead of {self.previous.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class InterfaceChanged:
    """The network interface of this member changed, or cannot send. An interface that was created again, or that came
    back with the same address, is used again automatically, and this member merges with the others if they continued
    alone. If this member's address was replaced by another one, ``Excluded`` follows.

    Args:
        interface: its name.
        reason: the change, as text for people, with the remedy.
    """

    interface: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of this member that some members did not deliver: messages to the group that ended in this member's
    packets ``first_seqno`` to ``last_seqno``, or messages to one member.

    When this member's membership ends, by leaving or exclusion, the messages of all ``Lost`` for the last view are its
    last ones to the group: the sum of their ``messages`` says how many.

    Args:
        view_id: the view in which they were sent; for messages to one member, the last view with both members.
        first_seqno, last_seqno: range of this member's packet seqnos, both inclusive (``Message.seqno``); 0 for
            messages that were in no packet of this view, or were sent to one member.
        missed_by: the view of the members that continued without delivering them; None: no other member is known to
            have delivered all of them (they were on their way to the sequencer or to the receiver, they were never
            sent, or this member was cut off from all others).
        unsent: number of messages that were still in the queue of ``send_while_blocked`` when this member's membership
            ended, and were never sent: the last ones that this member sent to the group.
        messages: number of messages: each is an accepted ``send``, or one message of a ``send_many`` or ``send_batch``.
            Known for the last two rings of packets (``ring_packets``) of a view. If ``missed_by`` is None, at most that
            many are lost: the others may have delivered some without this member having learned of it.
        to: the one member to which they were sent, and which had not acknowledged them when the receiver, or this
            member, was gone; None: the group.
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
            return f"lost: {self.to} did not acknowledge {self.messages} messages"
        by = "other members" if self.missed_by is None else f"the members of view {self.missed_by.counter}"
        if not self.last_seqno:
            return f"lost: {self.messages} queued messages, sent before view {self.view_id.counter}, did not reach {by}"
        most = "at most " if self.missed_by is None else ""
        return (
            f"lost: {most}{self.messages} messages in packets {self.first_seqno} to {self.last_seqno} of view "
            f"{self.view_id.counter} did not reach {by}"
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """With ``slow="skip"``: this member took messages too slowly, and missed some of one sender's, at this place in the
    stream. All other messages of this sender are delivered.

    Args:
        sender: whose messages they are.
        first, last: range of the sender's packets in which they end, both inclusive (``Message.seqno``).
        messages: how many they are.
    """

    sender: Member
    first: int
    last: int
    messages: int

    def __str__(self) -> str:
        return f"skipped: {self.messages} messages of {self.sender.name}, in its packets {self.first} to {self.last}"
