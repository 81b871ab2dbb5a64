"""The thread of a crowd's member, without sockets: the order of its reads."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

from seqcast.crowd.runner import CrowdRunner


def test_multicasts_are_read_before_the_unicasts_that_bring_gossips() -> None:
    """PB-09: whatever the order in which the kernel names the sockets; one that is not ready is not read."""
    read: list[str] = []
    wake: Any = SimpleNamespace(recv=lambda n: read.append("wake"))
    runner: Any = SimpleNamespace(_wake_in=wake, _multicast="multicast", _unicast="unicast", _receive=read.append)
    for ready in permutations((wake, "multicast", "unicast")):
        CrowdRunner._read(runner, ready)
        assert read == ["wake", "multicast", "unicast"]
        read.clear()
    CrowdRunner._read(runner, ["unicast"])
    assert read == ["unicast"]
