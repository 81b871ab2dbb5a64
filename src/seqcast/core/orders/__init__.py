"""The registry of orders: by the name that a user gives, and by the number that a VIEW carries."""

from __future__ import annotations

from seqcast.core.orders.causal import Causal
from seqcast.core.orders.fifo import Fifo
from seqcast.core.orders.grant import Grant
from seqcast.core.orders.order import Order
from seqcast.core.orders.records import Records
from seqcast.core.orders.sequencer import Sequencer
from seqcast.core.orders.total1999 import Total1999

__all__ = ["Order", "by_name", "by_number", "numbers", "register", "resolve"]

_TOTAL = "records"
"""The mechanism that a group with ``order="total"`` is founded with."""
_BY_NAME: dict[str, Order] = {}
_BY_NUMBER: dict[int, Order] = {}


def register(order: Order) -> None:
    """Makes a mechanism known to this process.

    Raises:
        ValueError: its name or its number is taken, or its number is not 0 to 255.
    """
    if order.name in _BY_NAME or order.name == "total" or order.number in _BY_NUMBER:
        raise ValueError(f"order {order.name!r} (number {order.number}): the name or the number is taken")
    if not 0 <= order.number < 256:
        raise ValueError(f"order {order.name!r}: its number {order.number} is not 0 to 255")
    _BY_NAME[order.name] = _BY_NUMBER[order.number] = order


def by_name(name: str) -> Order:
    """The mechanism of this name, as in ``View.mechanism``."""
    return _BY_NAME[name]


def by_number(number: int) -> Order | None:
    """The mechanism of this number, or None if this release does not know it."""
    return _BY_NUMBER.get(number)


def numbers() -> tuple[int, ...]:
    """The numbers of all mechanisms that this process knows, ascending."""
    return tuple(sorted(_BY_NUMBER))


def resolve(order: str) -> Order:
    """The mechanism that a group is founded with, by the order that its founder asks for.

    Raises:
        KeyError: no such order.
    """
    return _BY_NAME[_TOTAL if order == "total" else order]


for _order in (Fifo(), Sequencer(), Records(), Total1999(), Grant(), Causal()):
    register(_order)
