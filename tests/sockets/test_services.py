"""The services of ``examples/`` under kills, stops and cuts. Longer: ``make services``."""

import pytest
from chaos.services import SERVICES, run

pytestmark = [pytest.mark.netns, pytest.mark.long]
FAULTS = 8


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_keeps_its_promises_under_faults(name: str) -> None:
    assert run(name, FAULTS, seed=1) == []
