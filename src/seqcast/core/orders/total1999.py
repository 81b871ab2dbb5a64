"""total-1999: the TOTAL protocol of S1. Members send requests to one, which multicasts them in the order of arrival.

The sequencer is implied by the list of members: the first one (TOT-04). When it is lost, or another one becomes
the first, the next view starts its own numbering (TOT-10), and requests that were not multicast are made again to the
new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqcast.core.orders.order import Choose, first
from seqcast.core.orders.sequencer import Sequencer
from seqcast.types import Member


class Total1999(Sequencer):
    name: ClassVar[str] = "total-1999"
    number: ClassVar[int] = 5

    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        return first(members)

    def allows(self, sequencer: int, n: int) -> bool:
        return sequencer == 0 < n
