"""The losses that ``Lost`` reports and ``leave`` returns, compared with the deliveries of the applications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from seqcast.core.machines.beacons import WENT_ON
from seqcast.core.vocabulary import Left
from seqcast.events import Excluded, Lost
from seqcast.sim.record import Delivered, Entry, Record, Stay
from seqcast.types import MergeView, View, ViewId


def check_told(records: Sequence[Record], everywhere: Sequence[Stay]) -> Iterator[str]:
    """``Lost`` names nothing that the members in question delivered, and comes after the view in question."""
    in_view: Mapping[ViewId, list[Stay]] = _by_view(everywhere)
    for record in records:
        yield from _check_place(record)
        told = {entry for entry in record.log if isinstance(entry, Lost) and not entry.unsent}
        for lost in sorted(told, key=lambda lost: (lost.view_id, lost.first_seqno)):
            if lost.first_seqno > lost.last_seqno:
                yield f"lost: {record} is told of nothing: {lost}"
            own = next((stay.successor for stay in in_view[lost.view_id] if stay.record is record), None)
            # The members that continued with this one did not deliver unordered messages, either.
            went_on = own if lost.missed_by is None else lost.missed_by
            for stay in in_view[lost.view_id]:
                if went_on is None or stay.successor != went_on:
                    continue
                if stay.record is record and isinstance(record.log[-1], Left):
                    continue  # nobody else delivered the messages of a member that was cut off
                wrong = [each for each in stay.delivered if _names(lost, record, each)]
                if wrong:
                    yield f"lost: {record} is told {lost}, and {stay.record}, which went on so, delivered {wrong[0]}"
                    break


def _by_view(everywhere: Sequence[Stay]) -> Mapping[ViewId, list[Stay]]:
    result: defaultdict[ViewId, list[Stay]] = defaultdict(list)
    for stay in everywhere:
        result[stay.view.view_id].append(stay)
    return result


def _names(lost: Lost, sender: Record, entry: Delivered) -> bool:
    mine = entry.sender == sender.id and not entry.to
    return mine and lost.first_seqno <= entry.seqno <= lost.last_seqno


def _check_place(record: Record) -> Iterator[str]:
    """``Lost`` is about a view that has ended for its application, or ends right after."""
    entered = {view.view_id for view in record.voided}
    current: ViewId | None = None
    for place, entry in enumerate(record.log):
        if isinstance(entry, View):
            current = entry.view_id
            entered.add(current)
        elif isinstance(entry, Lost) and not entry.unsent:
            rest = record.log[place:]
            ends = isinstance(rest[-1], (Excluded, Left)) and all(isinstance(each, Lost) for each in rest[:-1])
            if entry.view_id not in entered:
                yield f"lost: {record} is told {entry}, and never was in that view"
            elif entry.view_id == current and not ends:
                yield f"lost: {record} is told {entry} before the view with which others went on"


def check_ends(records: Sequence[Record], everywhere: Sequence[Stay]) -> Iterator[str]:
    """A member that left or was excluded knows the fate of all that ``send`` accepted for the group.

    If a leaver was told True, all members of its last view that continued to the closing one delivered everything. If
    the leaver was told False, or was excluded, ``Lost`` names those that they did not deliver, as the number of last
    messages. If the members that continued are known, ``Lost`` names no more than that.
    """
    in_view = _by_view(everywhere)
    unseen = not all(record.receives for record in records)  # those that continued may be delivered no messages
    for record in records:
        told = bool(record.log) and isinstance(record.log[-1], Left | Excluded)
        mine = [stay for stay in everywhere if stay.record is record]
        if told and _continued_in_vain(record, records):
            continue
        if told and record.up:
            yield from _check_nowhere(record, records)
        if told and record.up and mine:
            yield from _check_end(record, mine[-1], in_view[mine[-1].view.view_id], unseen)
            if record.left is not None and record.left.complete:
                yield from _check_alone(record, mine, records)


def _continued_in_vain(record: Record, records: Sequence[Record]) -> bool:
    """The member was excluded by a view that was decided, and nobody installed: those of its members that accepted the
    view, and hold the packets to be delivered before, crashed first."""
    end = record.log[-1]
    if not isinstance(end, Excluded):
        return False
    return not any(isinstance(entry, View) and entry.view_id == end.view_id for each in records for entry in each.log)


def _check_nowhere(record: Record, records: Sequence[Record]) -> Iterator[str]:
    """Of the messages that ``send`` accepted, ``Lost`` names at least as many as no application delivered, its own
    included: even if no member is known to have continued."""
    if not record.receives_own or not all(other.receives for other in records):
        return  # members that are not delivered them may have ordered them
    log = (entry for other in records for entry in other.log)
    got = {entry.counter for entry in log if _own(entry, record)}
    nowhere = record.counter - len(got & set(range(record.counter)))
    named = sum(entry.messages for entry in record.log if isinstance(entry, Lost) and not entry.to)
    if nowhere > named:
        yield f"leave: {nowhere} messages of {record} were delivered nowhere, and it was told of {named}"


def _check_end(record: Record, last: Stay, together: Sequence[Stay], unseen: bool) -> Iterator[str]:
    """``last``: of the record; ``together``: all of that view; ``unseen``: others may have continued."""
    end, told = record.log[-1], [entry for entry in record.log if isinstance(entry, Lost) and not entry.to]
    ends = [entry for entry in told if entry.unsent or entry.view_id == last.view.view_id]
    named = sum(entry.messages for entry in ends)
    if named and record.left is not None and record.left.complete:
        yield f"leave: {record} was told that all is delivered, and {ends}"
    # Numbers of messages that were delivered, or told to be lost by a merge, before the last view.
    late = set(last.delivered)
    own = ((at, entry) for at, entry in enumerate(record.log) if _own(entry, record) and entry not in late)
    earlier = [(at, entry.counter) for at, entry in own]
    begin, floor = (earlier[-1][0], earlier[-1][1] + 1) if earlier else (0, 0)
    floor += sum(
        entry.messages
        for entry in record.log[begin:]
        if isinstance(entry, Lost) and entry not in ends and entry.missed_by is None and not entry.to
    )
    after = last.successor or (end.view_id if isinstance(end, Excluded) else None)
    # By a BEACON, which says nothing of deliveries.
    heard_of = isinstance(end, Excluded) and end.reason == WENT_ON
    stayers = [stay for stay in together if stay.record is not record and stay.successor is not None]
    stayers = [stay for stay in stayers if after in (None, stay.successor)]
    for stay in stayers or [last] * (after is not None and not unseen and record.receives_own):
        got = [entry.counter for entry in stay.delivered if entry.sender == record.id and not entry.to]
        if not got and not record.receives_own:
            continue  # its messages of earlier views are not known
        # A message whose call had not returned when the member ended may have got through.
        missed = max(record.counter - (max(got) + 1 if got else floor), 0)
        if missed > named:
            yield f"leave: {stay.record} lacks the last {missed} messages of {record}, told of {named} ({end})"
        elif missed < named and after is not None and stayers and not heard_of:
            yield f"lost: {record} was told that its last {named} are lost, and {stay.record} lacks {missed} ({end})"


def _own(entry: Entry, record: Record) -> TypeGuard[Delivered]:
    return isinstance(entry, Delivered) and entry.sender == record.id and not entry.to


def _check_alone(record: Record, mine: Sequence[Stay], records: Sequence[Record]) -> Iterator[str]:
    """A member that was cut off, sent, and left alone was not told that all is delivered: nobody else delivered its
    messages."""
    alone = next((at for at in range(len(mine)) if all(len(stay.view.members) == 1 for stay in mine[at:])), 0)
    fellows = {member.id for member in mine[alone - 1].view.members} - {record.id} if alone else set()
    others = [other for other in records if other.id in fellows]
    if not any(other.alive for other in others):  # they crashed, or left
        return
    if not all(other.receives for other in others):  # one that is delivered nothing may have taken them
        return
    got = {entry.counter for other in others for entry in other.log if isinstance(entry, Delivered) and not entry.to
           and entry.sender == record.id}  # fmt: skip
    for stay in mine[alone - 1 :]:
        for entry in stay.delivered:
            if entry.sender == record.id and not entry.to and entry.counter not in got:
                yield f"leave: {record}, cut off, was told that all is delivered, and nobody else delivered {entry}"
                return


def check_unicasts(records: Sequence[Record], everywhere: Sequence[Stay]) -> Iterator[str]:
    """Messages of a member that left or was excluded to one that continued were delivered, or reported lost."""
    in_view = _by_view(everywhere)
    for record in records:
        end = record.log[-1] if record.log else None
        views = [entry for entry in record.log if isinstance(entry, View)]
        if not isinstance(end, Left | Excluded) or not views:
            continue
        after = end.view_id if isinstance(end, Excluded) else end.view.view_id if end.view else None
        for stay in in_view[views[-1].view_id]:
            if after is None or stay.successor != after or stay.record is record:
                continue
            told = [
                entry for entry in record.log if isinstance(entry, Lost) and entry.to and entry.to.id == stay.record.id
            ]
            missed = _missed(record, stay.record, after)
            if len(missed) > sum(entry.messages for entry in told):
                yield f"unicast: {record} is out ({end}), and {stay.record} lacks {missed[:3]} of it: {told}"


def _missed(sender: Record, receiver: Record, until: ViewId) -> list[int]:
    """Numbers of the unicasts of ``sender`` that ``receiver`` lacks, sent since both were together."""
    got: set[int] = set()
    views: set[ViewId] = set()
    for entry in receiver.log:
        if isinstance(entry, View) and entry.view_id >= until:
            break
        if isinstance(entry, View):
            groups = entry.subgroups if isinstance(entry, MergeView) else (entry,)
            mine = next((group for group in groups if group.rank(receiver.id) >= 0), entry)
            if mine.rank(sender.id) < 0:
                views.clear()
            if entry.rank(sender.id) >= 0:
                views.add(entry.view_id)
    # Unicasts that came while a state was awaited are delivered after the state.
    got = {entry.counter for entry in receiver.log if isinstance(entry, Delivered) and entry.to == receiver.id
           and entry.sender == sender.id}  # fmt: skip
    return sorted(
        counter
        for (to, counter), view_id in sender.sent_to.items()
        if to == receiver.id and view_id in views and counter not in got
        and counter < sender.counters_to.get(to, 0)
    )  # fmt: skip
