"""In the simulator: after an attacker's forged datagrams of every kind a group is as if there had been none."""

import pytest
from hostile.storm import WHO, Storm, calm

SEEDS = [range(1, 3), pytest.param(range(3, 7), marks=pytest.mark.long)]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("who", WHO)
def test_after_a_storm_of_forged_datagrams_all_guarantees_hold(who, seeds):
    kinds = set()
    for seed in seeds:
        storm = Storm(calm(seed, who), who)
        result = storm.run()
        assert not result.violations, f"{who}, seed {seed}: {result.violations[0]}"
        assert result.messages > 0 and storm.sent > 20
        # More would let a stranger make the group send more to a third party than it sends itself.
        assert who != "stranger" or storm.evil.heard < storm.sent_bytes, f"seed {seed}: {storm.evil.heard} bytes heard"
        kinds |= storm.kinds
    assert {"start", "join", "beacon", "merge_ask", "heartbeat", "nak", "rubbish"} <= kinds


OTHERS = [
    {"order": "grant"}, {"order": "causal"}, {"order": "total-1999"}, {"membership": "token-ring"},
    {"reliability": "gossip"},
]  # fmt: skip


@pytest.mark.parametrize("changes", OTHERS, ids=lambda changes: " ".join(changes.values()))
@pytest.mark.parametrize("who", WHO)
def test_other_orders_memberships_and_reliabilities_weather_a_storm_too(who, changes):
    for seed in range(11, 13):
        result = Storm(calm(seed, who, **changes), who).run()
        assert not result.violations, f"{who}, seed {seed}: {result.violations[0]}"
