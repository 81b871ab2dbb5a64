"""sequencer: members forward their messages to one, which multicasts them in the order of their arrival (TOT-04, S0).

The sequencer's group stream carries the messages of all, so they are known by their senders' own numbering, which the
sequencer keeps in each packet. A forward that the sequencer did not multicast before the cut goes to the next sequencer
in the next view, before anything newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqcast.core.orders.order import Sequenced


class Sequencer(Sequenced):
    name: ClassVar[str] = "sequencer"
    number: ClassVar[int] = 1
    total: ClassVar[bool] = True
    beside: ClassVar[bool] = True
    prefix: ClassVar[bool] = True
    resends: ClassVar[bool] = True

    def multicasters(self, n: int) -> int:
        return 1

    def forwards_to(self, sequencer: int) -> int:
        return sequencer

    def own(self, streams: Sequence[int], origins: Sequence[int]) -> Sequence[int]:
        return origins
