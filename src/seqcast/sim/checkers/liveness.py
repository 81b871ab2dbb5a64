"""Liveness: once the faults have ended, all living members are in one view, have delivered the same, and can send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seqcast.core import orders
from seqcast.events import Excluded, Lost
from seqcast.sim.checkers.safety import check_same
from seqcast.sim.record import LEAVES_NS, Delivered, Record, never_ordered, stays
from seqcast.types import View, ViewId


def check_liveness(records: Sequence[Record]) -> Iterator[str]:
    """The defects that remain after the faults have ended; empty: the run is done."""
    alive = [record for record in records if record.alive]
    views = {}
    for record in alive:
        view = record.view
        if view is None:
            if not record.observer or any(not other.observer for other in alive):
                yield f"liveness: {record} is in no view"
            continue
        views[view.view_id] = view
        if not record.inside:
            yield f"liveness: {record} has not got the state"
        if record.stopped:
            yield f"liveness: {record} still waits for the state of all"
        for member in view.members:
            other = next((other for other in alive if other.id == member.id), None)
            if other is None:
                yield f"liveness: {record} still has {member} in {view}"
            elif other.view != view:
                yield f"liveness: {record} is in {view}, {other} in {other.view}"
        if record.pending:
            yield f"liveness: {record} cannot send {len(record.pending)} messages"
        if record.waits:
            yield f"liveness: {record} still waits until the others have taken its messages"
    if len(views) > 1:
        yield f"liveness: several views remain: {', '.join(map(str, views.values()))}"


def check_delivered(records: Sequence[Record]) -> Iterator[str]:
    """At the end: each member delivered its own messages, if it wants these, and members of one view the same."""
    options = records[0].options
    alive = [record for record in records if record.alive and (record.view or not record.observer)]
    if options.calm:
        # One that closes without leaving, and whose machine is gone with it, may be suspected later than any patience.
        vanish = options.crashes or (options.hasty and options.hosts)
        for record in records:
            if record.up and any(isinstance(entry, Excluded) and not entry.cause for entry in record.log):
                yield f"liveness: {record} was excluded, and nothing made that member look dead"
            if record.error:
                yield f"liveness: {record} could not join: {record.error}"
            was_in = any(isinstance(entry, View) for entry in record.log)
            patient = was_in and record.leave_ns == max(LEAVES_NS) and not vanish
            if record.left is not None and not record.left.complete and record.inside and patient:
                yield f"liveness: {record} left with much patience, and was told that not all is delivered"
    if options.state:
        for view_id in {record.view.view_id for record in alive if record.view}:
            states = {record.chain.digest() for record in alive if record.view and record.view.view_id == view_id}
            if len(states) > 1:
                yield f"state: the members of {view_id} end with {len(states)} states"
    receiving = [record for record in alive if record.receives]
    last = [stays(record)[-1] for record in receiving]
    yield from check_same(((stay.view.view_id, stay) for stay in last), orders.resolve(options.order).total)
    for record, stay in zip(receiving, last, strict=True):
        own = sum(isinstance(entry, Delivered) and entry.sender == record.id and not entry.to for entry in record.log)
        unordered = any(never_ordered(entry) for entry in record.log)
        if own > record.counter or (own < record.counter and record.receives_own and not unordered):
            yield f"liveness: {record} sent {record.counter} messages, and delivered {own} of them itself"
        for member in stay.view.members:
            peer = next(other for other in alive if other.id == member.id)
            yield from _check_unicasts(record, peer)
            yield from _check_lost(record, peer)


def check_named(records: Sequence[Record]) -> Iterator[str]:
    """If no receiver is slow, no member is told that senders wait for one."""
    names = {record.id: record.name for record in records}
    for record in records:
        for member, how in record.named:
            yield f"needless: {record} is told that senders wait for {names.get(member)}, which is {how}"


def _check_unicasts(record: Record, peer: Record) -> Iterator[str]:
    """All that ``peer`` sent to ``record`` since both are together was delivered."""
    begin = 0
    views: set[ViewId] = set()
    for index, entry in enumerate(record.log):
        if isinstance(entry, View):
            if record.together(entry).rank(peer.id) < 0:
                begin = index
                views.clear()
            if entry.rank(peer.id) >= 0:
                views.add(entry.view_id)
    sent = sum(1 for (to, _), view_id in peer.sent_to.items() if to == record.id and view_id in views)
    late = record.log[begin:]
    got = sum(isinstance(entry, Delivered) and entry.sender == peer.id and bool(entry.to) for entry in late)
    if got < sent:
        yield f"liveness: {peer} sent {sent} unicasts to {record}, which delivered {got}"


def _check_lost(record: Record, peer: Record) -> Iterator[str]:
    """``peer`` was told which of its messages ``record``, while they were together, did not deliver."""
    lost = [entry for entry in peer.log if isinstance(entry, Lost)]
    for there in stays(peer):
        here = next((stay for stay in stays(record) if stay.view.view_id == there.view.view_id), None)
        if here is None:
            continue
        delivered = {entry.counter for entry in here.delivered if entry.sender == peer.id and not entry.to}
        for entry in there.delivered:
            if entry.sender != peer.id or entry.to or entry.counter in delivered:
                continue
            if not any(
                each.view_id == there.view.view_id and each.first_seqno <= entry.seqno <= each.last_seqno
                for each in lost
            ):
                yield f"lost: {record} did not deliver {entry} in {there.view}, and {peer} was not told so"
                return
