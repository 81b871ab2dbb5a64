"""causal: a message is delivered after all that its sender was delivered before it sent the message.

Each member multicasts its messages. Concurrent ones are delivered in any order, which may differ from member to member.
What a packet depends on travels before it in its sender's stream, so the VIEW has nothing to say for it.
"""

from __future__ import annotations

from typing import ClassVar

from seqcast.core.orders.fifo import Fifo


class Causal(Fifo):
    name: ClassVar[str] = "causal"
    number: ClassVar[int] = 7
    causal: ClassVar[bool] = True
