"""A sequencer in a conversation polls for a moment before it blocks, as long as that pays."""

import threading
import time

import pytest
from members import LIMIT_S, group_of

STEPS = 400


def polls_in_a_conversation(order, pause_s=0.0):
    """Polls and rounds of each of three members: the first one takes, and orders, what the other two say in turn."""
    with group_of(3, order=order, deliver_own=False, heartbeat_s=10.0, suspect_s=60.0) as (founder, a, b):

        def listen():
            for _ in range(STEPS):
                assert founder.recv(LIMIT_S) is not None

        listener = threading.Thread(target=listen)
        listener.start()
        before = [each.counters() for each in (founder, a, b)]
        for i in range(STEPS):
            says, hears = (a, b) if i % 2 else (b, a)
            says.send(b"%d" % i)
            assert hears.recv(LIMIT_S).payload == b"%d" % i
            time.sleep(pause_s)
        listener.join()
        after = [each.counters() for each in (founder, a, b)]
    return [[y[key] - x[key] for x, y in zip(before, after, strict=True)] for key in ("io_polls", "io_rounds")]


@pytest.mark.parametrize("order", ["records", "sequencer", "total-1999", "grant"])
def test_the_sequencer_polls_and_the_others_do_not(order):
    (founder, *others), _ = polls_in_a_conversation(order)
    assert founder >= STEPS // 50 and others == [0, 0]


def test_without_a_sequencer_nobody_polls():
    assert polls_in_a_conversation("fifo")[0] == [0, 0, 0]


def test_polls_in_vain_are_rare():
    """Where messages are far apart, blocking costs less."""
    (founder, *_), (rounds, *_) = polls_in_a_conversation("records", pause_s=0.002)
    assert rounds >= STEPS // 2 and founder < rounds // 8, (founder, rounds)
