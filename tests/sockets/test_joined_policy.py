"""An order policy on real sockets: the example, and policies that fail or never answer."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from members import LIMIT_S, LOOPBACK, SOURCE, cluster, join, why_no_multicast

import seqcast

EXAMPLE = Path(__file__).parents[2] / "examples" / "urgent_first.py"


class Raises(seqcast.OrderPolicy):
    def order(self, batch: Sequence[seqcast.WaitingPacket]) -> Sequence[int]:
        raise ArithmeticError("a policy that is wrong")


class NeverAnswers(seqcast.OrderPolicy):
    def __init__(self) -> None:
        self.over = threading.Event()

    def order(self, batch: Sequence[seqcast.WaitingPacket]) -> Sequence[int]:
        self.over.wait(2 * LIMIT_S)
        return range(len(batch))


def exchange(policy: seqcast.OrderPolicy, counter: str) -> None:
    """Messages of a member without the policy are delivered at both, until the sequencer has counted two."""
    name = cluster()
    with join(name, "a", order=policy) as sequencer, join(name, "b", order="records", min_members=2) as other:
        assert other.view.order == "records" and other.view.sequencer == 0
        for number in range(1000):
            if sequencer.counters()[counter] >= 2:
                return
            other.send(b"%d" % number)
            for group in (sequencer, other):
                message = group.recv(timeout=LIMIT_S)
                assert message is not None and message.payload == b"%d" % number and message.ordered
    raise AssertionError(f"a thousand messages, and {counter} is below 2")


def test_the_example_runs():
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--cluster", cluster(), "--interface", LOOPBACK],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("alarm") for line in done.stdout.splitlines()) == 3


def test_a_policy_that_raises_is_logged_once_and_messages_are_ordered_as_they_arrive(caplog):
    caplog.set_level(logging.ERROR, "seqcast")
    exchange(Raises(), "policy_failed")
    assert sum("the order policy failed" in record.getMessage() for record in caplog.records) == 1
    assert caplog.text.count("(SC3204)") == 1


def test_a_policy_that_never_answers_delays_messages_by_its_limit_only():
    policy = NeverAnswers()
    try:
        exchange(policy, "policy_late")
    finally:
        policy.over.set()


@pytest.mark.parametrize("limit_s", [0, -1, 1e-10, 2, "soon", True])
def test_an_invalid_limit_is_refused(limit_s):
    policy = Raises()
    policy.limit_s = limit_s
    with pytest.raises(seqcast.ConfigError, match="limit_s"):
        join(cluster(), "a", order=policy)
