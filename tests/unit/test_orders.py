"""The registry of orders: the control plane's knowledge of each mechanism."""

import pytest

from seqcast._native import engine
from seqcast.core import orders
from seqcast.core.orders.order import NOBODY, first
from seqcast.types import ORDERS, Member

MEMBERS = [Member(name, number) for number, name in enumerate("abc", 1)]


def test_each_order_that_a_user_can_ask_for_has_a_mechanism_that_brings_it_about():
    for order in ORDERS:
        mechanism = orders.resolve(order)
        assert mechanism.serves(order) and orders.by_name(mechanism.name) is orders.by_number(mechanism.number)
        assert mechanism.number in orders.numbers()
    assert orders.resolve("total").total


def test_the_engine_knows_each_mechanism_by_the_same_number():
    natively = {number: name for number in range(256) if (name := engine.order_name(number))}
    assert natively == {number: orders.by_number(number).name for number in orders.numbers()}


def test_an_order_is_not_brought_about_by_a_mechanism_that_promises_less():
    assert [order for order in ORDERS if orders.by_name("fifo").serves(order)] == ["fifo"]
    assert [order for order in ORDERS if orders.by_name("sequencer").serves(order)] == ["total", "sequencer"]
    assert [order for order in ORDERS if orders.by_name("records").serves(order)] == ["total", "records"]
    assert [order for order in ORDERS if orders.by_name("grant").serves(order)] == ["total", "grant"]


@pytest.mark.parametrize("name", ["fifo", "sequencer", "records", "total-1999", "grant", "causal"])
def test_a_mechanism_allows_whom_it_may_have_chosen_and_nobody_else(name):
    mechanism = orders.by_name(name)
    chosen = {mechanism.sequencer(MEMBERS, lambda members, rank=rank: rank) for rank in range(3)}
    assert {rank for rank in range(-1, 5) if mechanism.allows(rank, 3)} == chosen
    assert mechanism.sequencer(MEMBERS, first) in (0, NOBODY)


def test_a_name_and_a_number_are_given_once():
    class Other(type(orders.by_name("fifo"))):
        name, number = "other", orders.by_name("sequencer").number

    with pytest.raises(ValueError, match="taken"):
        orders.register(Other())
    Other.number = 256
    with pytest.raises(ValueError, match="0 to 255"):
        orders.register(Other())
    Other.name, Other.number = "total", 200
    with pytest.raises(ValueError, match="taken"):
        orders.register(Other())
    assert orders.numbers() == (0, 1, 2, 5, 6, 7)
