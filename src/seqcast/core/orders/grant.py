"""grant: each member multicasts its messages, each with a place in one order, which the sequencer grants (SEQ-01).

This is S0's older scheme, with a failover: the cut closes the places that a crashed member left unused, and orders
packets without a place by rank and seqno. So nothing is sent again, and a message is delivered in the view of its
sending.

A member that crashes may have delivered packets that only it received; the cut then closes that place, so no prefix is
promised.

Only the sequencer knows whose the next place is. As the coordinator, the sequencer can exclude a member that
keeps its places.
"""

from __future__ import annotations

from typing import ClassVar

from seqcast.core.orders.order import SequencedByFirst
from seqcast.core.orders.records import Records


class Grant(SequencedByFirst, Records):
    name: ClassVar[str] = "grant"
    number: ClassVar[int] = 6
    beside: ClassVar[bool] = False
