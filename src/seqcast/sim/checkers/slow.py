"""Members are put out as too slow, or skip messages, only by the setting ``slow``, and only after they took nothing
for long."""

from __future__ import annotations

from collections.abc import Iterator

from seqcast.config.derive import to_ns
from seqcast.sim.record import Record
from seqcast.sim.settings import config

PART = 0.8
"""Of ``slow_s`` a member has taken nothing when it is put out, in the last ``2 * slow_s``: senders look now and then,
and evidence of before counts for a while."""


def check_slow(record: Record) -> Iterator[str]:
    """Each violation, in words."""
    settings = config(record.options)
    limit_ns = to_ns(settings.slow_s)
    if end := record.put_out_ns:
        if settings.slow != "exclude":
            yield f"slow: {record} was put out with slow={settings.slow}"
        idle_ns = _idle_ns(record, end - 2 * limit_ns, end)
        if idle_ns < PART * limit_ns:
            yield f"slow: {record} was put out, and took nothing for {idle_ns / 1e6:.0f} ms only"
    if record.skips_ns:
        if settings.slow != "skip":
            yield f"slow: {record} skips messages with slow={settings.slow}"
        # It is told when it takes again, of messages that it missed long before.
        idle_ns = _idle_ns(record, 0, record.skips_ns[0])
        if idle_ns < PART * limit_ns:
            yield f"slow: {record} skips messages, and took nothing for {idle_ns / 1e6:.0f} ms only"


def _idle_ns(record: Record, begin: int, end: int) -> int:
    """For how long its application took nothing, in this time."""
    return sum(max(0, min(to, end) - max(since, begin)) for since, to in spells(record))


def spells(record: Record) -> list[tuple[int, int]]:
    """The times in which its application took nothing; spells that overlap are one."""
    found: list[tuple[int, int]] = []
    for since, to in sorted(record.slow_spells):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], to)
        else:
            found.append((since, to))
    return found
