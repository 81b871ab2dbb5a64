"""The merged view of subgroups: which of them fit, its contents, and the checks of an offered one (the cut,
step 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import SHORTFALLS_MAX, NewView, Shortfall, Subgroup
from seqcast.core.orders.order import Choose, first
from seqcast.core.rules.cut import Arrange, as_they_are, first_view, order_of, with_plan
from seqcast.core.state.providers import merged_plan
from seqcast.errors import RemoteProtocolError
from seqcast.types import MEMBERS_MAX, Member, View, ViewId

COUNTER_STEP_MAX = 1 << 32
"""How far a view's counter may be above ours: more than any group reaches, and far from the last number."""
NUMBERS_AHEAD_MAX = 1 << 20
"""The most packets of a member that a lost sequencer can have ordered unknown to that member's side: its ring is full
then."""


def why_apart(members: Sequence[Member], part: NewView, most: int = MEMBERS_MAX) -> str:
    """Why the members of ``part`` cannot be in one view with ``members``; "" if they can."""
    names = {member.name: member.id for member in members}
    for info in part.members:
        if names.get(info.name, info.id) != info.id:
            return f"a member of the same name, {info.name!r}: end one of the two, or give it another name"
    if len(names.keys() | {info.name for info in part.members}) > most:
        return f"so many members that the two have more than {most} together: stop some"
    return ""


def merged_view(
    parts: Sequence[NewView],
    shortfalls: Sequence[Shortfall],
    arrange: Arrange = as_they_are,
    choose: Choose = first,
) -> NewView:
    """The merged view of subgroups; ``parts``: the VIEW that each would install alone, the leader's first.

    The fields that close a view (``closes``, ``attempt``, ``survivors``, ``cut``, ``table``) differ by subgroup and are
    left out. The id is above each subgroup's, and no other attempt of the leader's makes the same.

    A process may have asked several parts to take it in, and be a member of one by now: it comes from that one, and its
    streams continue from that one's cut.
    """
    places: dict[int, tuple[MemberInfo, int, int]] = {}
    subgroups = []
    stay = {info.id for part in parts for info in part.members if info.id in part.survivors}
    for part in parts:
        assert part.closes is not None
        ours = {info.id for info in part.members if info.id in part.survivors or info.id not in stay}
        come = [info for info in part.members if info.id in ours - places.keys()]
        rank = {info.id: rank for rank, info in enumerate(part.members)}
        places.update((info.id, (info, part.base[rank[info.id]], part.origin_base[rank[info.id]])) for info in come)
        if come:
            subgroups.append(Subgroup(part.closes, tuple(info.id for info in come)))
    members = arrange([info for info, _, _ in places.values()], subgroups)
    leader = parts[0].view_id
    order = order_of(parts[0])  # of all parts: only views of one mechanism merge
    origin_base = [_unused(info.id, places[info.id][2], shortfalls if order.resends else ()) for info in members]
    frame = first_view(members, parts[0].order, order, leader.flush[1], choose)
    view_id = ViewId(max(part.view_id.counter for part in parts) + 1, members[0].id, leader.flush)
    # The VIEW also says how each subgroup closed its view, in case a member turns out not to have come.
    alone = {part.view_id for part in parts}
    known = [
        each._replace(successor=view_id) if each.successor in alone else each for each in dict.fromkeys(shortfalls)
    ]
    for part in parts:
        lasts = order.own(part.base, part.origin_base)
        assert part.closes is not None
        known += [Shortfall(part.closes.tag, view_id, info.id, lasts[rank]) for rank, info in enumerate(part.members)]
    return replace(
        with_plan(replace(frame, view_id=view_id), merged_plan(members, parts, view_id.tag)),
        base=tuple(places[info.id][1] for info in members),
        origin_base=tuple(origin_base),
        stateful=any(part.stateful for part in parts),
        subgroups=tuple(subgroups),
        history=max(part.history for part in parts),
        shortfalls=tuple(known[-SHORTFALLS_MAX:]),
    )


def _unused(member: int, last: int, shortfalls: Sequence[Shortfall]) -> int:
    """The last number used in a member's own numbering. A sequencer that its side lost may have ordered more packets,
    whose messages that side packed and numbered again (the maximum of the received tables: the cut, step 11)."""
    used = [each.last for each in shortfalls if each.member == member and each.last <= last + NUMBERS_AHEAD_MAX]
    return max([last, *used])


def check_part(part: NewView, view: View, mechanism: int) -> None:
    """Checks the view that another subgroup would install alone.

    Args:
        view, mechanism: our view, and the number of our group's mechanism.

    Raises:
        RemoteProtocolError: the view is invalid.
    """
    if part.closes is None:
        raise RemoteProtocolError("MERGE_READY: closes no view")
    if (part.order, part.mechanism) != (view.order, mechanism):
        raise RemoteProtocolError("MERGE_READY: another order or order mechanism than the group's")
    if part.view_id.counter > view.view_id.counter + COUNTER_STEP_MAX:
        raise RemoteProtocolError("MERGE_READY: its counter is far above that of our view")


def continues(template: NewView, own: NewView, me: int) -> bool:
    """Does a merged view continue from our cut? It may be based on an earlier cut, which is no longer held: then it has
    other bases, or members that we have lost since.

    Args:
        own: the view that our subgroup would install alone.
    """
    group = _subgroup_of(template, me)
    if group is not None and not {info.id for info in own.members}.issuperset(group.ids):
        return False
    places = {info.id: rank for rank, info in enumerate(template.members)}
    for rank, info in enumerate(own.members):
        there = places.get(info.id)
        if there is None:
            return False
        if group is not None and info.id not in group.ids and info.id not in own.survivors:
            continue  # a joiner here is a member there
        if template.base[there] != own.base[rank]:
            return False
        if not 0 <= template.origin_base[there] - own.origin_base[rank] <= NUMBERS_AHEAD_MAX:
            return False
    return True


def checked(template: NewView, own: NewView, me: int) -> NewView:
    """The merged view, which continues from our cut, as our subgroup installs it.

    Args:
        own: the view that our subgroup would install alone.

    Raises:
        RemoteProtocolError: the merged view is invalid.
    """
    group = _subgroup_of(template, me)
    if group is None or group.view_id != own.closes:
        raise RemoteProtocolError("MERGE_GO: this subgroup is not among those to be merged")
    if (template.order, template.mechanism) != (own.order, own.mechanism):
        raise RemoteProtocolError("MERGE_GO: another order or order mechanism than the group's")
    if template.view_id.counter > own.view_id.counter + COUNTER_STEP_MAX:
        raise RemoteProtocolError("MERGE_GO: its counter is far above that of our view")
    if not template.view_id > own.view_id:
        raise RemoteProtocolError("MERGE_GO: the merged view is not newer")
    return replace(template, closes=None, answers=None)


def _subgroup_of(template: NewView, member: int) -> Subgroup | None:
    return next((group for group in template.subgroups if member in group.ids), None)
