"""causal: a message is delivered after every message that its sender had delivered before the send.

Each member multicasts its messages. Concurrent ones are delivered in any order, which may differ from member to member.
A packet's dependencies travel before it in its sender's stream, so the VIEW need not carry anything for them.
"""

from __future__ import annotations

from typing import ClassVar

from seqcast.core.orders.fifo import Fifo


class Causal(Fifo):
    name: ClassVar[str] = "causal"
    number: ClassVar[int] = 7
    causal: ClassVar[bool] = True
