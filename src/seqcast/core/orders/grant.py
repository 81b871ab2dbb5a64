"""grant: each member multicasts its messages, each with a place in one order, which the sequencer grants (SEQ-01).

What S0 calls the older scheme, with a failover: the cut closes the places that a crashed member left unused, and
orders by rank and seqno what has no place yet. So nothing is sent again, and a message is delivered in the view it was
sent in.

A member that crashes may have delivered what only it received; the cut then closes that place, so no prefix is
promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqcast.core.orders.order import NOBODY, Choose, Order
from seqcast.types import Member


class Grant(Order):
    name: ClassVar[str] = "grant"
    number: ClassVar[int] = 6
    total: ClassVar[bool] = True
    prefix: ClassVar[bool] = False
    resends: ClassVar[bool] = False

    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        return choose(members)

    def allows(self, sequencer: int, n: int) -> bool:
        return 0 <= sequencer < n

    def multicasters(self, n: int) -> int:
        return n

    def forwards_to(self, sequencer: int) -> int:
        return NOBODY

    def own(self, streams: Sequence[int], origins: Sequence[int]) -> Sequence[int]:
        return streams
