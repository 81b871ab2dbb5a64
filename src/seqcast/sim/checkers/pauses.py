"""Pauses of the group, and callbacks around a view change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from seqcast.config.derive import to_ns
from seqcast.sim.record import Delivered, Record
from seqcast.sim.settings import config
from seqcast.types import View, ViewId


def check_pauses(records: Sequence[Record]) -> Iterator[str]:
    """If a pause's owner was told that the pause held to its end, no member put a new packet on the wire meanwhile,
    in a view with others. (A packet that a lone member packed before may leave later, as nobody else has to
    deliver that packet.)"""
    for owner in records:
        shared = {entry.view_id for entry in owner.log if isinstance(entry, View) and len(entry.members) > 1}
        for pause in owner.pauses:
            for record in records if pause.over_ns and pause.view_id in shared else ():
                for when, tag in record.first_sent:
                    if pause.view_id and tag == pause.view_id.tag and pause.held_ns < when < pause.over_ns:
                        yield f"pause: {owner} paused from {pause.held_ns} to {pause.over_ns}, {record} sent at {when}"


def check_held(owner: Record, records: Sequence[Record], now: int) -> Iterator[str]:
    """While ``owner`` holds a pause: all members whose applications take deliveries have delivered the same in
    its view, and are told that they are blocked."""
    view, seen = owner.view, list[tuple[Record, frozenset[tuple[int, int]]]]()
    assert view is not None
    for other in records:
        hears = now >= other.slow_until and not other.stopped
        if other.alive and other.view == view and other.inside and hears:
            if not other.blocked:
                yield f"pause: {owner} pauses the group at {now}, and {other} may send"
            if not other.receives:
                continue
            entries = [entry for entry in other.log if isinstance(entry, Delivered)]
            took = frozenset((e.sender, e.counter) for e in entries if e.tag == view.view_id.tag and not e.to)
            seen.append((other, took))
    for (one, mine), (other, theirs) in combinations(seen, 2):
        unknown = {record.id for record in (one, other) if not record.receives_own}
        if odd := sorted(each for each in mine ^ theirs if each[0] not in unknown)[:3]:
            yield f"pause: {owner} pauses the group, and {one} and {other} have not delivered the same: {odd}"


def check_callbacks(record: Record, records: Sequence[Record]) -> Iterator[str]:
    """Messages of a block callback that returned in time are sent and delivered in the view that closes
    (FLU-13, FLU-15), unless the member that orders did not go on with its sender, or time was up (by some clock)."""
    patience = to_ns(config(record.options).block_deadline_s)
    for run in record.runs:
        if run.late or not run.returned:
            continue
        ordered = not record.options.jumps and run.closed_ns - run.begin_ns < patience
        ordered = ordered and _keeps_sequencer(record, run.view_id)
        for number in run.sent:
            if number not in record.sent:
                continue  # the member lost the state meanwhile, and gave up
            view_id = record.sent[number][1]
            if view_id != run.view_id:
                yield f"block callback: {record} sent number {number} for {run.view_id} in view {view_id}"
            tags = {each.delivered_of(record.id).get(number, view_id.tag) for each in records}
            if ordered and tags != {view_id.tag}:
                yield f"block callback: number {number} of {record}'s callback is not delivered in {view_id}"


def _keeps_sequencer(record: Record, view_id: ViewId | None) -> bool:
    """The member that orders in this view went on with this one."""
    views = [entry for entry in record.log if isinstance(entry, View)]
    for view, after in pairwise(views):
        if view.view_id == view_id:
            sequencer = view.sequencer >= 0 and view.members[view.sequencer].id
            return not sequencer or record.together(after).rank(sequencer) >= 0
    return False
