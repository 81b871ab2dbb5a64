"""The control plane's requirements on an order: the contract of the files beside this one.

A user asks for an *order* (``join(..., order=...)``); a *mechanism* implements it. A mechanism is one file here and one
in ``native/order/``, which share a number: the one here decides the mechanism's fields in a VIEW, the other one handles
each packet. No other file names a mechanism. To add one, write the two files and list each in the registry of its
folder (``core/orders/__init__.py``, ``native/order/orders.h``).

The first coordinator of a group chooses the mechanism, which stays as long as the group lives: each view has that of
the view before, and only views of one mechanism merge. The *sequencer* is chosen again with each VIEW.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from seqcast.types import Member

NOBODY = -1
"""Rank of the sequencer if a mechanism has none."""

Choose = Callable[[Sequence[Member]], int]
"""Chooses the sequencer of a view: a rank among its members, of which there is at least one. The member that makes the
VIEW asks its own choice; the others follow the VIEW."""


def first(_members: Sequence[Member]) -> int:
    """The coordinator orders."""
    return 0


class Order(ABC):
    """One mechanism. An instance has no state: changing values stand in the VIEW and in the engine."""

    name: ClassVar[str]
    """For people, and for ``order=``."""
    number: ClassVar[int]
    """On the wire and in ``native/order/``: 0 to 255, never reused."""
    total: ClassVar[bool]
    """All members deliver in one order, which serves those who ask for "total"."""
    beside: ClassVar[bool] = False
    """Messages sent with ``ordered=False`` have no place in the total order. If False, they are ordered like all
    others."""
    prefix: ClassVar[bool]
    """The deliveries of a member before it crashed or was cut off are a prefix of the others' in that view, by
    the one order or per sender. The audit checks it."""
    resends: ClassVar[bool]
    """Messages that were sent before the cut may have no place in the order yet. The engine sends them again in the
    next view, but not across a merge, where another subgroup may have ordered them: there they are lost."""

    causal: ClassVar[bool] = False
    """A message is delivered after every message that its sender had delivered before sending, even if members crash.
    (In a total order this holds except for transitional messages.)"""

    @abstractmethod
    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        """Rank of the sequencer of a view with these members, or ``NOBODY``."""

    @abstractmethod
    def allows(self, sequencer: int, n: int) -> bool:
        """Can a view of ``n`` members have this sequencer? Checked for each VIEW that arrives."""

    @abstractmethod
    def multicasters(self, n: int) -> int:
        """How many of ``n`` members multicast messages: they share the buffers of each receiver."""

    @abstractmethod
    def forwards_to(self, sequencer: int) -> int:
        """Rank of the member that gets the messages of all others before they are multicast, or ``NOBODY``. State that
        this member takes at the same time gets less of its receive buffer."""

    @abstractmethod
    def own(self, streams: Sequence[int], origins: Sequence[int]) -> Sequence[int]:
        """The seqnos by which each member's own messages are known to the others, by rank.

        Args:
            streams: of the member's group stream.
            origins: of the member's own numbering, which the received table counts.
        """

    def serves(self, order: str) -> bool:
        """Does this mechanism provide the order that the user asked for?"""
        return order == self.name or (order == "total" and self.total)


class Sequenced(Order):
    """An order in which any one member of the view is the sequencer."""

    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        return choose(members)

    def allows(self, sequencer: int, n: int) -> bool:
        return 0 <= sequencer < n


class SequencedByFirst(Sequenced):
    """An order in which the first member of the view, its coordinator, is the sequencer."""

    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        return first(members)

    def allows(self, sequencer: int, n: int) -> bool:
        return sequencer == 0 < n
