"""Members on a transport that nothing in native/io knows of: tests/cross/hop.c, built for this system."""

import shutil
import subprocess
import tomllib

import pytest
from project import ROOT


@pytest.mark.long
def test_two_members_talk_through_a_transport_of_their_own(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["seqcast"]["engine"]
    sources = [path for room in [*rooms, "io"] for path in sorted((ROOT / "native" / room).glob("*.c"))]
    hop = tmp_path / "hop"
    flags = ["-std=c11", "-O0", "-D_GNU_SOURCE", f"-I{ROOT / 'native'}", "-pthread"]
    subprocess.run([compiler, *flags, ROOT / "tests/cross/hop.c", *sources, "-lm", "-o", hop], check=True)
    done = subprocess.run([hop], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == 2 * ["multicast", "unicast", "pipe"]
