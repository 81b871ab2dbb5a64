"""fifo: each member multicasts its messages, which are delivered in the order of each sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqcast.core.orders.order import NOBODY, Choose, Order
from seqcast.types import Member


class Fifo(Order):
    name: ClassVar[str] = "fifo"
    number: ClassVar[int] = 0
    total: ClassVar[bool] = False
    prefix: ClassVar[bool] = True
    resends: ClassVar[bool] = False

    def sequencer(self, members: Sequence[Member], choose: Choose) -> int:
        return NOBODY

    def allows(self, sequencer: int, n: int) -> bool:
        return sequencer == NOBODY

    def multicasters(self, n: int) -> int:
        return n

    def forwards_to(self, sequencer: int) -> int:
        return NOBODY

    def own(self, streams: Sequence[int], origins: Sequence[int]) -> Sequence[int]:
        return streams
