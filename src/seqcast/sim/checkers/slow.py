"""Members are put out as too slow, or skip messages, only by the setting ``slow``, and only after they took nothing
for long, while most members of their view took messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from seqcast.config.derive import to_ns
from seqcast.sim.record import Record, stays
from seqcast.sim.settings import config

PART = 0.8
"""A sender puts a member out only if the member has taken nothing for this part of ``slow_s`` during the last
``2 * slow_s``. The sender looks with each heartbeat, when a wait may just have begun, and counts earlier evidence for a
while."""
MUCH = 8
"""A member that takes at least one message for this many of another member is not too slow, whatever else happens."""


def check_slow(record: Record, records: Sequence[Record]) -> Iterator[str]:
    """Each violation by ``record``, in words.

    Args:
        records: of all members.
    """
    settings = config(record.options)
    limit_ns = to_ns(settings.slow_s)
    least_ns = min(PART * limit_ns, limit_ns - to_ns(settings.heartbeat_s))
    if end := record.put_out_ns:
        if settings.slow != "exclude":
            yield f"slow: {record} was put out with slow={settings.slow}"
        idle_ns = _idle_ns(record, end - 2 * limit_ns, end)
        if idle_ns < least_ns:
            yield f"slow: {record} was put out, and took nothing for {idle_ns / 1e6:.0f} ms only"
        elif (alone_ns := _alone_ns(record, records, end - 2 * limit_ns, end)) < least_ns:
            alone = f"{alone_ns / 1e6:.0f} ms"
            yield f"slow: {record} was put out, and half of the members took nothing, too, but for {alone}"
        elif not record.options.slow_disks and _keeps_up(record, records):
            yield f"slow: {record} was put out, and could take at least an {MUCH}th as much as half of the members"
    if record.skips_ns:
        if settings.slow != "skip":
            yield f"slow: {record} skips messages with slow={settings.slow}"
        # A member is told when it takes again, and of messages that were missed long before.
        idle_ns = _idle_ns(record, 0, record.skips_ns[0])
        if idle_ns < least_ns:
            yield f"slow: {record} skips messages, and took nothing for {idle_ns / 1e6:.0f} ms only"


def _keeps_up(record: Record, records: Sequence[Record]) -> bool:
    """Its application takes more than a sixteenth of the messages that half of its last view take, by a wide margin."""
    rates, view = record.options.rates, stays(record)[-1].view
    own = rates[record.index] if record.index < len(rates) else -1
    here = [each.index for each in records if view.rank(each.id) >= 0]
    near = sum(index < len(rates) and 0 <= rates[index] <= MUCH * own for index in here)
    return own >= 0 and 2 * near >= len(view.members)


def _idle_ns(record: Record, begin: int, end: int) -> int:
    """For how long its application took nothing, in this time."""
    return sum(max(0, min(to, end) - max(since, begin)) for since, to in spells(record))


def _alone_ns(record: Record, records: Sequence[Record], begin: int, end: int) -> int:
    """For how long the member took nothing while less than half of its last view did so, in this time."""
    view = stays(record)[-1].view
    idle = [spells(each) for each in records if view.rank(each.id) >= 0]
    times = sorted({begin, end, *(at for each in idle for spell in each for at in spell if begin < at < end)})
    mine, found = spells(record), 0
    for since, to in itertools.pairwise(times):
        n = sum(_covers(each, since) for each in idle)
        found += (to - since) * (_covers(mine, since) and 2 * n < len(view.members))
    return found


def _covers(found: Sequence[tuple[int, int]], at: int) -> bool:
    return any(since <= at < to for since, to in found)


def spells(record: Record) -> list[tuple[int, int]]:
    """The times in which its application took nothing; spells that overlap are one."""
    found: list[tuple[int, int]] = []
    for since, to in sorted(record.slow_spells):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], to)
        else:
            found.append((since, to))
    return found
