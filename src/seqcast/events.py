"""What ``group.events()`` yields beside messages and views, in their true order."""

from __future__ import annotations

from dataclasses import dataclass

from seqcast.types import ViewId


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
    """The group went on without this member; it may join again, as a new incarnation."""

    view_id: ViewId
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of this member that some did not get: those that ended in its packets ``first_seqno`` to ``last_seqno``.

    Args:
        view_id: the view in which they were sent.
        first_seqno, last_seqno: range of this member's packet seqnos, both inclusive (``Message.seqno``).
        missed_by: the view with which those went on that did not deliver them; None: nobody delivered them (they were
            on their way to the sequencer, or were never sent).
        unsent: so many messages waited in the queue of ``send_while_blocked`` when this member's membership ended, and
            were never sent: the last that this member sent to the group. They are in no packet: the seqnos are 0.
    """

    view_id: ViewId
    first_seqno: int
    last_seqno: int
    missed_by: ViewId | None
    unsent: int = 0

    def __str__(self) -> str:
        if self.unsent:
            return f"lost: {self.unsent} queued messages were never sent; the last view was {self.view_id.counter}"
        by = "all" if self.missed_by is None else f"those that went on to view {self.missed_by.counter}"
        return (
            f"lost: packets {self.first_seqno} to {self.last_seqno} of view {self.view_id.counter} did not reach {by}"
        )
