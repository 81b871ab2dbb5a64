"""An order policy's batches: when it is asked about which packets, and its decision as the engine takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from seqcast.types import Member, OrderPolicy, View, WaitingPacket

Offer = tuple[int, int, int, int, int, bytes]
"""The sender's rank, seqno, sent_ns, messages, bytes and head of a packet, as ``Engine.offers`` returns them."""


class Offering(Protocol):
    """The engine of a sequencer with an order policy."""

    def view(self) -> int: ...
    def offers(self) -> tuple[int, Sequence[Offer]] | None: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Packets that wait for their order.

    Args:
        number: identifies the batch; see ``Engine.decide``.
        offers: the packets.
        members: of their view, by rank.
    """

    number: int
    offers: Sequence[Offer]
    members: Sequence[Member]

    def ranks(self, policy: OrderPolicy) -> list[int]:
        """Calls the policy; returns for each place the rank whose packet takes it.

        A place given to a packet belongs to its sender, whose packets fill its places in sequence: so each sender's
        messages stay in order, whatever the policy decides.

        Raises:
            ValueError: the policy did not return each position once.
            Exception: raised by the policy.
        """
        waiting = [WaitingPacket(self.members[offer[0]], *offer[1:]) for offer in self.offers]
        order = list(islice(policy.order(waiting), len(waiting) + 1))  # an iterator may have no end
        if sorted(order) != list(range(len(waiting))):
            last = len(waiting) - 1
            raise ValueError(f"order returned {order}, which is not each of the positions 0 to {last} once")
        return [self.offers[position][0] for position in order]


def next_batch(engine: Offering, view_tagged: Callable[[int], View | None]) -> Batch | None:
    """The packets that a policy is asked about next; None: none wait. To be called after each step.

    Args:
        view_tagged: see ``Endpoint.view_tagged``.
    """
    view = view_tagged(engine.view())
    found = engine.offers() if view is not None else None
    return Batch(*found, view.members) if view is not None and found is not None else None


class PolicyQuestions:
    """A policy is asked about one batch at a time. Of those that are offered meanwhile, the newest waits: the policy
    took too long, and the engine has given up the others."""

    def __init__(self) -> None:
        self._next: Batch | None = None
        self._busy = False

    def offered(self, batch: Batch) -> None:
        self._next = batch

    def ask(self) -> Batch | None:
        """The batch that the policy is to be asked about now; None: none waits, or the policy is busy."""
        if self._busy or self._next is None:
            return None
        found, self._next, self._busy = self._next, None, True
        return found

    def answered(self) -> None:
        """The policy has returned, or failed."""
        self._busy = False
