"""The example runs as printed, and its table equals the journals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from members import LOOPBACK, SHORT_LIVED_JAVA, cluster, why_no_multicast
from project import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.skipif(bool(why_no_multicast()), reason="no multicast on loopback here")
def test_the_stream_into_a_table_survives_every_kill(tmp_path: Path) -> None:
    example = ROOT / "examples" / "stream_into_table.py"
    command = [sys.executable, str(example), "--directory", str(tmp_path), "--interface", LOOPBACK]
    done = subprocess.run(
        [*command, "--cluster", cluster()],
        capture_output=True, text=True, timeout=580, env={**os.environ, **SHORT_LIVED_JAVA},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    said = done.stdout.splitlines()
    assert len(said) == 5 and said[-1].endswith("messages of the journals, each once"), said
