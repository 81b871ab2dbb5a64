"""Primary partitions: each view has one successor, majorities continue, and minorities are told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from seqcast.core.machines.beacons import SEPARATE
from seqcast.events import Excluded
from seqcast.sim.record import Delivered, Record, Stay, stays
from seqcast.types import View, ViewId


def check_primary(records: Sequence[Record], allowed: Collection[int]) -> Iterator[str]:
    """A view has the same successor at every member, whatever became of the member, unless an operator let a minority
    continue.

    Args:
        allowed: tags of the views whose minority may continue.
    """
    successors: dict[ViewId, Stay] = {}
    for record in records:
        for stay in stays(record):
            if stay.successor is None or stay.view.view_id.tag in allowed:
                continue
            other = successors.setdefault(stay.view.view_id, stay)
            if other.successor != stay.successor:
                yield (
                    f"primary: {stay.view} ({stay.view.view_id}) has two successors: {other.successor} at "
                    f"{other.record} and {stay.successor} at {stay.record}"
                )


def check_founded(records: Sequence[Record]) -> Iterator[str]:
    """A group is founded once, as only a majority of the intended members may do so, and some always stayed."""
    founding = {tag for record in records for tag in record.founding}
    views = set()
    for record in records:
        before = 0
        for stay in stays(record):
            tag = stay.view.view_id.tag
            if tag not in founding and (before in founding or stay.view.view_id.counter == 1):
                views.add(stay.view)
            before = tag
    if len(views) > 1:
        yield f"primary: {len(views)} groups were founded: {', '.join(sorted(map(str, views)))}"


def check_fences(records: Sequence[Record]) -> Iterator[str]:
    """With ``stable=``: numbers of views grow for each member, also when all had ended, and one view has each."""
    founding = {tag for record in records for tag in record.founding}
    views: dict[int, View] = {}
    last: dict[str, int] = {}
    for record in records:  # in the order of their starts
        for stay in stays(record):
            counter = stay.view.view_id.counter
            if stay.view.view_id.tag in founding:
                continue
            if counter <= last.get(record.name, 0):
                yield f"fence: {record} is in view {counter}, after {last[record.name]}"
            if views.setdefault(counter, stay.view).view_id != stay.view.view_id:
                yield f"fence: two views have the number {counter}: {views[counter]} and {stay.view}"
            last[record.name] = counter


def check_histories(records: Sequence[Record]) -> Iterator[str]:
    """A member that shared a history with others never gives way to a group founded apart (the cut, step 9)."""
    for record in records:
        end = record.log[-1] if record.log else None
        if isinstance(end, Excluded) and end.reason.startswith(SEPARATE):
            alone = delivered = shared = False
            for entry in record.log:
                alone = len(entry.members) < 2 if isinstance(entry, View) else alone
                delivered |= isinstance(entry, Delivered) and not entry.to
                shared |= delivered and not alone
            if shared:
                yield f"history: {record} and others had delivered messages, and the group gave way: {end.reason}"


def _majority(view: View, ids: Collection[int]) -> bool:
    voters = [member.id for member in view.members if not member.observer]
    twice = 2 * sum(voter in ids for voter in voters)
    return twice > len(voters) or (twice == len(voters) and voters[0] in ids)


def check_sides(records: Sequence[Record], sides: Sequence[Collection[int]]) -> Iterator[str]:
    """The defects that remain while the network is split into sides (of indices) and all else is calm: a member with a
    majority of its view on its side must continue with these, and one without must be told."""
    for side in sides:
        inside = [record for record in records if record.index in side and record.alive]
        for record in inside:
            view = record.view
            if view is None:
                continue
            # A member may be in a view of another group: both admitted it as a joiner.
            alive = {other.id for other in inside if other.view == view}
            if all(member.id in alive for member in view.members):
                if record.told_minority:
                    yield f"primary: {record} reaches all of {view}, and is blocked"
            elif _majority(view, alive):
                yield f"primary: {record} is in {view} still, and can reach a majority of that view"
            elif not record.told_minority:
                yield f"primary: {record} in {view} reaches no majority, and was not told so"


def check_filtered(records: Sequence[Record], deaf: Record, packets: Mapping[int, int]) -> Iterator[str]:
    """The defects that remain while only one member has lost multicast: that one must be in no view with
    another, and the others must send, unless they are not a majority of a primary view, and were told so.

    Args:
        packets: how many each had sent some time ago. If that grows, the rest waits for its turn.
    """
    up = [record for record in records if record.alive]
    for record in up:
        view = record.view
        if view is None:  # a minority admits nobody
            continue
        rest = {other.id for other in up if other is not deaf and other.view == view}
        if record.told_minority:
            if record is not deaf and _majority(view, rest) and len(view.members) > 2:
                yield f"filtered: {record} is blocked, and can reach a majority of {view} without {deaf}"
        elif len(view.members) > 1 and view.rank(deaf.id) >= 0:
            yield f"filtered: {record} is in {view}, where {deaf} sends or gets no multicast"
        elif record.pending and record.packets_sent == packets.get(record.id):
            yield f"filtered: {record} in {view} cannot send {len(record.pending)} messages"


def lost_majority(records: Sequence[Record]) -> bool:
    """The remaining members of each view have lost its majority for good, and were told: only an operator can help."""
    together: dict[View, list[Record]] = {}
    for record in records:
        if record.alive and record.view is not None:
            together.setdefault(record.view, []).append(record)
    return bool(together) and all(
        not _majority(view, {record.id for record in group}) and all(record.told_minority for record in group)
        for view, group in together.items()
    )
