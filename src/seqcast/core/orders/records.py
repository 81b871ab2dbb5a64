"""records: each member multicasts its messages, and one multicasts records that say whose packets are delivered next.

The records travel in the sequencer's own stream, whose messages are ordered by their place among them. The cut orders
all packets: those that no record names are delivered at the end of the view, by rank and seqno. So nothing is sent
again, and a message is delivered in the view it was sent in, whichever members crash.

A sequencer that crashes may have delivered packets whose records no other member received, and the cut may order them
differently: no prefix is promised, and messages that the cut orders then are transitional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqcast.core.orders.order import NOBODY, Sequenced


class Records(Sequenced):
    name: ClassVar[str] = "records"
    number: ClassVar[int] = 2
    total: ClassVar[bool] = True
    beside: ClassVar[bool] = True
    prefix: ClassVar[bool] = False
    resends: ClassVar[bool] = False

    def multicasters(self, n: int) -> int:
        return n

    def forwards_to(self, sequencer: int) -> int:
        return NOBODY

    def own(self, streams: Sequence[int], origins: Sequence[int]) -> Sequence[int]:
        return streams
