"""No wake-up of the driver is lost: tests/interleave runs its threads in drawn orders, and looks who still waits."""

import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "interleave" / "run"
LEFT_OUT = 77


@pytest.mark.long
def test_every_wait_is_woken():
    done = subprocess.run([RUN, "16000"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == LEFT_OUT:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-20000:]
    assert "every wait was woken" in done.stdout
