"""Members are put out as too slow only by the setting ``slow``, and only after they took nothing for long."""

from __future__ import annotations

from collections.abc import Iterator

from seqcast.config.derive import nanoseconds
from seqcast.sim.record import Record
from seqcast.sim.settings import config

PART = 0.8
"""Of ``slow_s`` a member has taken nothing when it is put out, in the last ``2 * slow_s``: senders look now and then,
and evidence of before counts for a while."""


def check_slow(record: Record) -> Iterator[str]:
    """Each violation, in words."""
    settings, end = config(record.options), record.put_out_ns
    if not end:
        return
    if settings.slow != "exclude":
        yield f"slow: {record} was put out with slow={settings.slow}"
    limit_ns = nanoseconds(settings.slow_s)
    begin = end - 2 * limit_ns
    idle_ns = sum(max(0, min(to, end) - max(since, begin)) for since, to in record.slow_spells)
    if idle_ns < PART * limit_ns:
        yield f"slow: {record} was put out, and took nothing for {idle_ns / 1e6:.0f} ms only"
