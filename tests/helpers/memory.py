"""The memory of a process, as shown by the system: the places of a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

needs_smaps = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="nothing shows the memory here")
FORGOTTEN = "wf"
"""Flag of memory that is zeros in a child process."""


def mappings(pid: int | str = "self") -> Iterator[tuple[int, int, set[str]]]:
    """(begin, end, flags) of the memory that a process can write."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    for begin, end, flags in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw.*?^VmFlags: ([^\n]*)", text, re.M | re.S):
        yield int(begin, 16), int(end, 16), set(flags.split())


def contents(pid: int | str = "self", flag: str = "") -> Iterator[tuple[int, int, set[str], bytes]]:
    """The same, and the bytes there; of memory with this flag alone, if one is given."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end, flags in mappings(pid):
            if flag and flag not in flags:
                continue
            memory.seek(begin)
            try:
                yield begin, end, flags, memory.read(end - begin) or b""
            except OSError:  # freed by another thread since, or of a device
                continue
