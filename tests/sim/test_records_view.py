"""A message, even one from a block callback, is delivered in the view in which it was sent, whichever members crash."""

import pytest

from seqcast.core import orders
from seqcast.sim import Options, World


def run(order: str, seed: int) -> list[str]:
    """Violations of a run in which members crash under load, the sequencer among them."""
    faults = {"crashes": 2, "restarts": 1, "blocks": 1.0, "loss": 0.02}
    world = World(Options(seed=seed, order=order, members=4, rate=400, duration_ns=10**9, **faults))
    return [violation for violation in world.run().violations if violation.startswith("sending view")]


@pytest.mark.long
def test_with_records_all_that_survivors_sent_is_delivered_in_its_view():
    """TOT-02: messages sent in a view are received in that view only."""
    assert not [violation for seed in range(1, 5) for violation in run("records", seed)]


def test_with_a_sequencer_that_falls_some_of_it_is_not(monkeypatch: pytest.MonkeyPatch):
    """If forwards are sent again, the checker does not require this: here it does."""
    monkeypatch.setattr(type(orders.by_name("sequencer")), "resends", False)
    assert any(run("sequencer", seed) for seed in range(1, 5))
