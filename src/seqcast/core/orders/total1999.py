"""total-1999: the TOTAL protocol of S1. Members send requests to one, which multicasts them in the order of arrival.

The sequencer is implied by the list of members: the first one (TOT-04). When it is lost, or another one becomes
the first, the next view starts its own numbering (TOT-10), and requests that were not multicast are made again to the
new one.
"""

from __future__ import annotations

from typing import ClassVar

from seqcast.core.orders.order import SequencedByFirst
from seqcast.core.orders.sequencer import Sequencer


class Total1999(SequencedByFirst, Sequencer):
    name: ClassVar[str] = "total-1999"
    number: ClassVar[int] = 5
