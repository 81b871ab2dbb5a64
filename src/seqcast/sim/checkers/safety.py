"""Safety: views, order, agreement and integrity, in all that the applications were told up to the end of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import zip_longest

from seqcast.core import orders
from seqcast.events import Excluded, Lost
from seqcast.sim.chain import Chain
from seqcast.sim.checkers import causal, changes, coordinators, gate, losses, pauses, transitional
from seqcast.sim.checkers.slow import check_slow
from seqcast.sim.policies import BAD
from seqcast.sim.record import Delivered, Record, Stay, comparable, never_ordered, stays
from seqcast.types import MergeView, View, ViewId


def check_safety(records: Sequence[Record]) -> Iterator[str]:
    """Each violation, in words."""
    by_id = {record.id: record for record in records}
    order = orders.resolve(records[0].options.order)
    ordered = order.total
    # A member that is delivered no messages is judged by its views, and by its messages at others.
    everywhere = [stay for record in records if record.receives for stay in stays(record)]
    for record in records:
        yield from record.violations
        if bad := record.frames_bad:
            yield f"frames: {record} was sent {bad} frames that no member may send"
        yield from changes.check_changes(record, by_id)
        yield from gate.check_gate(record)
        yield from coordinators.check_coordinators(record)
        yield from gate.check_callback_pairs(record)
        yield from pauses.check_callbacks(record, records)
        yield from check_slow(record, records)
        yield from transitional.check_needless(record)
        yield from _check_queue(record, records)
        yield from _check_order_of_members(record)
        if record.options.flush_unicasts:
            yield from _check_flushed(record, by_id)
        yield from _check_views(record)
        yield from _check_integrity(record, by_id)
        yield from _check_fifo(record, by_id)
    yield from pauses.check_pauses(records)
    yield from _check_view_agreement([stay for record in records for stay in stays(record)])
    yield from _check_states(records)
    yield from _check_merges(records)
    for stay in everywhere:
        yield from _check_stay(stay, order, by_id)
    yield from _check_agreement(everywhere, ordered)
    yield from _check_excluded(everywhere)
    yield from transitional.check_undecided(everywhere)
    if ordered:
        yield from transitional.check_transitional(everywhere)
    if records[0].options.safe:
        yield from transitional.check_safe(everywhere)
    if order.causal:
        yield from causal.check_causal(records)
    yield from losses.check_told(records, everywhere)
    yield from losses.check_ends(records, everywhere)
    yield from losses.check_unicasts(records, everywhere)


def _check_views(record: Record) -> Iterator[str]:
    last: ViewId | None = None
    for entry in record.log:
        if isinstance(entry, View):
            if last is not None and not entry.view_id > last:
                yield f"growing view ids: {record} installs {entry.view_id} after {last}"
            if entry.rank(record.id) < 0:
                yield f"view: {record} installs a view without itself"
            last = entry.view_id


def _check_integrity(record: Record, by_id: dict[int, Record]) -> Iterator[str]:
    for entry in record.log:
        if not isinstance(entry, Delivered):
            continue
        sender = by_id.get(entry.sender)
        if not record.receives:
            yield f"receive: {record} is delivered a message, and wants none: {entry}"
        if not record.receives_own and entry.sender == record.id and not entry.to:
            yield f"own messages: {record} is delivered one, and wants none: {entry}"
        if not entry.intact or sender is None or entry.claimed != entry.sender:
            yield f"integrity: {record} delivers a message that nobody sent: {entry}"
        elif entry.to:
            if entry.to != record.id or (entry.to, entry.counter) not in sender.sent_to:
                yield f"integrity: {record} delivers a unicast that {sender} did not send to that member: {entry}"
        elif sender.sent.get(entry.counter, (0, None))[0] != entry.length:
            yield f"integrity: {record} delivers a message that {sender} did not send: {entry}"


def _check_fifo(record: Record, by_id: dict[int, Record]) -> Iterator[str]:
    """Per sender, without a gap while both are together, and nothing twice; unicasts from the first on."""
    last: dict[tuple[int, bool], Delivered] = {}
    known: set[int] = set()
    apart: set[tuple[int, bool]] = set()  # with whom the record was not together since the last of theirs
    # Unicasts from before the state that the record took over are delivered after that; the views in which they were
    # sent are void, but tell who was apart.
    for entry in (*record.voided, *record.log):
        if isinstance(entry, View):
            together = {member.id for member in record.together(entry).members}
            known |= {member.id for member in entry.members}
            apart |= {(sender, unicast) for sender in known - together for unicast in (False, True)}
        elif isinstance(entry, Delivered):
            key = (entry.sender, bool(entry.to))
            before = last.get(key)
            expected = before.counter + 1 if before else 0
            gap_is_wrong = key not in apart and (entry.to or before)
            gap = entry.counter > expected and gap_is_wrong and not _unordered(by_id, entry, before)
            if entry.counter < expected or gap:
                what = "duplicate" if entry.counter < expected else "FIFO"
                yield f"{what}: {record} delivers number {entry.counter} of {entry.sender:x}, not {expected}: {entry}"
            if before and entry.seqno < before.seqno and not entry.to:
                yield f"seqno: {record} delivered packet {before.seqno} of {entry.sender:x} before this: {entry}"
            last[key] = entry
            # (Messages kept over were sent in several views: the sender may have been apart more than once.)
            if not entry.to or (entry.sender, entry.counter) not in record.kept_over:
                apart.discard(key)


def _unordered(by_id: dict[int, Record], entry: Delivered, before: Delivered | None) -> bool:
    """The sender was told that its messages between ``before`` and this one were never ordered.

    Or they were of an older view, and the sender crashed before its application took that report, which comes after the
    view where the application stops until states are merged.
    """
    sender = by_id[entry.sender]
    told = any(isinstance(each, View) and each.view_id.tag == entry.tag for each in sender.log[:-1])
    if before and not entry.to and before.tag != entry.tag and not sender.up and not told:
        return True
    first = before.seqno if before else 0
    return any(never_ordered(each) and first <= each.first_seqno <= entry.seqno for each in sender.log)


def _check_flushed(record: Record, by_id: dict[int, Record]) -> Iterator[str]:
    """No unicast that was sent before its sender's gate closed comes in a later view (E-16).

    Unless its receiver took over a state of that view; and in a primary partition a view that was proposed again may
    have members that took no part in the last attempt.
    """
    view_id: ViewId | None = None
    for entry in record.log:
        if isinstance(entry, View):
            view_id = entry.view_id
        elif isinstance(entry, Delivered) and entry.to and view_id is not None:
            sender, key = by_id[entry.sender], (entry.to, entry.counter)
            sent_in = sender.sent_to[key]
            again = record.options.partition == "primary" and any(
                sent_in < each <= view_id for each in record.repeated | sender.repeated
            )
            late = view_id > sent_in and key not in sender.sent_late and not again
            if late and (entry.sender, entry.counter) not in record.kept_over:
                yield f"unicast flush: {record} delivers in {view_id} one sent in {sender.sent_to[key]}: {entry}"


def _check_order_of_members(record: Record) -> Iterator[str]:
    """A good policy is followed in each view; after a bad one, members that stay are in front, in their old order."""
    last: View | None = None
    for view in (entry for entry in record.log if isinstance(entry, View)):
        voters = [member for member in view.members if not member.observer]  # observers come last
        names = [(member.name, member.id) for member in voters]
        if record.options.partition == "primary":  # whose first member may have to be one that stays
            names = names[1:]
        if record.options.policy == "by_name" and names != sorted(names):
            yield f"membership policy: {view}, as {record} has it, is not in the order of the names"
        if record.options.policy in BAD and last is not None and not isinstance(view, MergeView):
            stay = [member for member in last.members if member in voters]
            if voters[: len(stay)] != stay:
                yield f"membership policy: a wrong one has changed {last} to {view}"
        last = view


def _check_queue(record: Record, records: Sequence[Record]) -> Iterator[str]:
    """Nobody delivered messages that their sender was told were queued, but never sent as its membership ended."""
    told = sum(entry.unsent for entry in record.log if isinstance(entry, Lost))
    if not told:
        return
    for other in records:
        late = [number for number in other.delivered_of(record.id) if number >= record.counter - told]
        if late:
            yield f"queue: {record} was told that its last {told} messages were not sent, and {other} has {late[:3]}"


def _check_view_agreement(everywhere: Sequence[Stay]) -> Iterator[str]:
    views: dict[ViewId, View] = {}
    for stay in everywhere:
        known = views.setdefault(stay.view.view_id, stay.view)
        if known != stay.view:
            yield f"view agreement: {stay.view.view_id} is {known} and, at {stay.record}, {stay.view}"


def _check_states(records: Sequence[Record]) -> Iterator[str]:
    """At the beginning of a view all its members' applications have one state, taken over or not; or, until their
    states are merged, those of one part of the group."""
    first: dict[tuple[int, str], tuple[Record, str]] = {}
    for record in records:
        for (tag, branch), state in record.states.items():
            other, expected = first.setdefault((tag, branch), (record, state))
            if state != expected:
                yield f"state: at the beginning of the view with tag {tag:x} {record} has another state than {other}"


def _check_merges(records: Sequence[Record]) -> Iterator[str]:
    """A merge takes the state that each part's members have where they stop; a part is left out only if a member
    was passed over."""
    by_id = {record.id: record for record in records}
    for record in records:
        for tag, branch, known, given in record.merges:
            merged = {branch, *known}
            for member, data in given.items():
                part = Chain()
                part.load(data)
                if by_id[member].states.get((tag, part.branch)) != part.digest():
                    yield f"merge: {record} merges another state than {by_id[member]} had where both stop, at {tag:x}"
                if part.branch in (branch, *known):
                    yield f"merge: {record} merges the state of {by_id[member]}'s part, at {tag:x}, twice"
                merged |= {part.branch, *part.merged}
            lacking = [each for each in records for at, past in each.stops if at == tag and merged.isdisjoint(past)]
            if lacking and not any(each.passed_over for each in records):
                yield f"merge: {record} merges at {tag:x} without the state of {lacking[0]}"


def _check_stay(stay: Stay, order: orders.Order, by_id: dict[int, Record]) -> Iterator[str]:
    members = {member.id for member in stay.view.members}
    place = 0
    for entry in stay.delivered:
        if not entry.to and entry.sender not in members:
            yield f"sending view: {stay.record} delivers in {stay.view} from a stranger: {entry}"
        sender = by_id.get(entry.sender)
        moves = order.resends or entry.to
        sent_in = sender.sent.get(entry.counter, (0, None))[1] if sender and not moves else None
        # (Where messages may be queued, a later view is right, too.)
        queued = bool(stay.record.options.queue_bytes) and sent_in is not None and sent_in < stay.view.view_id
        if sent_in not in (None, stay.view.view_id) and not queued:
            yield f"sending view: {stay.record} delivers in {stay.view} a message that was sent in {sent_in}: {entry}"
        if order.total and not entry.to:
            beside = sender is not None and entry.counter in sender.beside and order.beside
            place += not beside
            if place < entry.global_seqno and not stay.record.receives_own:
                place = entry.global_seqno  # other members show whether that is the right one
            expected = 0 if beside else place
            if entry.global_seqno != expected:
                yield f"global seqno: {stay.record} in {stay.view}: {entry.global_seqno}, not {expected}: {entry}"


def _check_agreement(everywhere: Sequence[Stay], ordered: bool) -> Iterator[str]:
    """Members that install a view and the same successor deliver the same there; with an order, in the same order."""
    closed = [stay for stay in everywhere if stay.successor is not None]
    yield from check_same((((stay.view.view_id, stay.successor), stay) for stay in closed), ordered)


def check_same(keyed: Iterable[tuple[Hashable, Stay]], ordered: bool) -> Iterator[str]:
    """Stays with the same key delivered the same; with an order, in the same order."""
    compared: dict[Hashable, list[Stay]] = {}
    for key, stay in keyed:
        others = compared.setdefault(key, [])
        for other in others:
            yield from _same(stay, other, ordered)
        if not any(other.record.receives_own for other in others):  # one that is delivered all, or each is compared
            others.append(stay)


def _check_excluded(everywhere: Sequence[Stay]) -> Iterator[str]:
    """An excluded member was told which of its messages the members that continued did not deliver."""
    first: dict[tuple[ViewId, ViewId | None], Stay] = {}
    for stay in everywhere:
        first.setdefault((stay.view.view_id, stay.successor), stay)
    for stay in everywhere:
        log = stay.record.log
        end = log[-1] if log and stay.successor is None else None
        other = first.get((stay.view.view_id, end.view_id)) if isinstance(end, Excluded) else None
        if other is None:
            continue
        got = {(entry.sender, entry.counter) for entry in other.delivered if not entry.to}
        told = [entry for entry in log if isinstance(entry, Lost) and entry.view_id == stay.view.view_id]
        for entry in stay.delivered:
            if entry.sender == stay.record.id and not entry.to and (entry.sender, entry.counter) not in got:
                if not any(each.first_seqno <= entry.seqno <= each.last_seqno for each in told):
                    yield f"lost: {stay.record} was excluded from {stay.view}, and not told that {entry} is lost"
                    return


def _same(one: Stay, other: Stay, ordered: bool) -> Iterator[str]:
    """Did both deliver the same?"""
    both = comparable(one, other)
    all_a, all_b = ([(entry.sender, entry.counter) for entry in each] for each in both)
    where = f"in {one.view} ({one.view.view_id}) before {one.successor}"
    if sorted(all_a) != sorted(all_b):
        odd = sorted(set(all_a) ^ set(all_b))[:3]
        counts = f"{one.record} delivers {len(all_a)}, {other.record} {len(all_b)}"
        yield f"agreement: {where}: {counts}; one of them only {odd}"
        return
    a, b = ([(each.global_seqno, each.sender, each.counter) for each in of if each.global_seqno] for of in both)
    if ordered and a != b:
        index, mine, theirs = next((at, *pair) for at, pair in enumerate(zip_longest(a, b)) if pair[0] != pair[1])
        yield f"total order: {where}: at {index} {one.record} has {mine}, {other.record} {theirs}"
