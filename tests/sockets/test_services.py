"""The services of ``examples/`` under kills, stops and cuts. Longer: ``make services``."""

import pytest
from chaos.services import EXAMPLES, SERVICES, run

FAULTS = 8


@pytest.mark.netns
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_keeps_its_promises_under_faults(name: str) -> None:
    assert run(name, FAULTS, seed=11) == []  # of each: a kill, and a stop and a cut of a second


def test_the_services_are_short() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    most = {"key_value": 40, "scheduler": 45, "feed": 60, "chat": 99}
    assert {name for name in SERVICES if lengths[name] > most[name]} == set(), lengths
