"""The decision of an order policy, in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Sequence

from seqcast.types import Member, OrderPolicy, WaitingPacket

Offers = Sequence[tuple[int, int, int, int, int, bytes]]
"""For each packet the sender's rank, seqno, sent_ns, messages, bytes and head, as ``Engine.offers`` returns them."""


def ranks_in_order(policy: OrderPolicy, offers: Offers, members: Sequence[Member]) -> list[int]:
    """Calls the policy; returns for each place the rank whose packet takes it.

    A place given to a packet belongs to its sender, whose packets fill its places in sequence: so each sender's
    messages stay in order, whatever the policy decides.

    Raises:
        ValueError: the policy did not return each position once.
        Exception: what the policy raised.
    """
    batch = [WaitingPacket(members[offer[0]], *offer[1:]) for offer in offers]
    order = list(policy.order(batch))
    if sorted(order) != list(range(len(batch))):
        raise ValueError(f"order returned {order}, which is not each of the positions 0 to {len(batch) - 1} once")
    return [offers[position][0] for position in order]
