"""The arithmetic of the cut (steps 4 and 5): where streams end, the holders of missing ranges, and the next view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from seqcast.core.frames.closing import FETCH_MAX, Fetch, Held, Ok
from seqcast.core.frames.fields import Attempt, MemberInfo
from seqcast.core.frames.view import NONE, WHOLE, NewView, Subgroup
from seqcast.core.orders import Order, by_name, by_number
from seqcast.core.orders.order import NOBODY, Choose, first
from seqcast.core.rules.windows import windows
from seqcast.core.state.providers import Plan, plan, subgroup_kept
from seqcast.types import MEMBERS_MAX, MergeView, View, ViewId

Arrange = Callable[[Sequence[MemberInfo], Sequence[Subgroup]], list[MemberInfo]]


def as_they_are(members: Sequence[MemberInfo], _subgroups: Sequence[Subgroup]) -> list[MemberInfo]:
    """The order without a membership policy."""
    return list(members)


def fix_cut(n: int, oks: Mapping[int, Ok]) -> tuple[tuple[int, ...], tuple[Fetch, ...]]:
    """The cut by rank, and a holder for each range that some survivor lacks (E-14).

    A survivor holds its whole stream, so its cut is its last seqno. A lost member's cut is the longest prefix that the
    survivors hold together: a packet that nobody holds is lost, and nothing after a gap can be delivered.

    Args:
        n: members of the closing view.
        oks: the survivors' answers, by rank.
    """
    cut: list[int] = []
    fetch: list[Fetch] = []
    for rank in range(n):
        held = {survivor: ok.held[rank] for survivor, ok in oks.items()}
        lowest = min(each.prefix for each in held.values())
        if rank in oks:
            end = oks[rank].last
            parts: list[Fetch] = [Fetch(rank, lowest + 1, end, rank)] if lowest < end else []
        else:
            end, parts = _longest_prefix(rank, lowest, held)
        # Nobody has delivered anything beyond the first part, so the cut may end there. The first part always has room:
        # it reaches the longest single prefix, which its holder may have delivered.
        room = max(FETCH_MAX - MEMBERS_MAX - len(fetch), 1)
        if len(parts) > room:
            parts = parts[:room]
            end = parts[-1].hi
        cut.append(end)
        fetch += parts
    return tuple(cut), tuple(fetch)


def fetch_up_to(cut: Sequence[int], oks: Mapping[int, Ok]) -> tuple[Fetch, ...]:
    """A holder for each range up to a given cut that a survivor lacks and another holds.

    Args:
        oks: the survivors' answers, by rank.
    """
    fetch: list[Fetch] = []
    for rank, end in enumerate(cut):
        held = {survivor: ok.held[rank] for survivor, ok in oks.items()}
        lowest = min(each.prefix for each in held.values())
        if lowest < end:
            parts = [part._replace(hi=min(part.hi, end)) for part in _longest_prefix(rank, lowest, held)[1]]
            fetch += [part for part in parts if part.lo <= end]
    return tuple(fetch[:FETCH_MAX])


def _longest_prefix(rank: int, lowest: int, held: Mapping[int, Held]) -> tuple[int, list[Fetch]]:
    """Walks up from ``lowest``, each time with the survivor that reaches furthest."""
    end = lowest
    parts: list[Fetch] = []
    while True:
        reach, holder = max(((_reach(each, end + 1), -survivor) for survivor, each in held.items()))
        if reach <= end:
            return end, parts
        parts.append(Fetch(rank, end + 1, reach, -holder))
        end = reach


def _reach(held: Held, seqno: int) -> int:
    """The last seqno of the run held from ``seqno`` on, or 0."""
    if seqno <= held.prefix:
        return held.prefix
    return next((hi for lo, hi in held.ranges if lo <= seqno <= hi), 0)


def order_of(frame: NewView) -> Order:
    """The mechanism that a VIEW names; a frame that names an unknown one is refused when read."""
    order = by_number(frame.mechanism)
    assert order is not None
    return order


def next_view(
    view: View,
    infos: Mapping[int, MemberInfo],
    attempt: Attempt,
    survivors: Sequence[int],
    cut: Sequence[int],
    table: Sequence[int],
    leavers: Collection[int],
    joiners: Sequence[MemberInfo],
    lacking: Mapping[int, Collection[int]],
    before: NewView | None,
    arrange: Arrange = as_they_are,
    choose: Choose = first,
    first_seqno: int = 1,
    path_bytes: int = 0,
) -> NewView:
    """The VIEW frame that closes ``view``: survivors without leavers in their old order, then the joiners by id.

    Args:
        cut, table: by rank of ``view``: the cut, and the received table there.
        lacking: survivors that lack the state, each with the providers already passed over.
        before: the VIEW of ``view``, if anybody lacks the state.
        arrange: gives the members another order.
        choose: the sequencer.
        first_seqno: of the joiners' streams.
        path_bytes: see ``windows``.
    """
    members = [infos[member] for member in survivors if member not in leavers]
    members += sorted(joiners, key=lambda info: info.id)[: MEMBERS_MAX - len(members)]
    members = arrange(members, ()) if members else members
    initiator = view.members[attempt[1]].id
    ranks = [view.rank(info.id) for info in members]
    order = by_name(view.mechanism)
    frame = first_view(members or [infos[initiator]], view.order, order, initiator, choose if members else first,
                       path_bytes=path_bytes)  # fmt: skip
    view_id = ViewId(
        view.view_id.counter + attempt[0], members[0].id if members else initiator, (attempt[0], initiator)
    )
    lacking = {**lacking, **{info.id: () for info in joiners if info.state}}
    frame = replace(
        with_plan(frame, plan(members, lacking, before, view_id.tag)),
        closes=view.view_id,
        attempt=attempt,
        survivors=tuple(survivors),
        view_id=view_id,
        members=tuple(members),
        cut=tuple(cut),
        stateful=any(infos[member.id].state for member in view.members),
        base=tuple(cut[rank] if rank >= 0 else first_seqno - 1 for rank in ranks),
    )
    return with_table(frame, view, table)


def with_plan(frame: NewView, plan: Plan) -> NewView:
    """A VIEW frame with its state plan, and the state window that this leaves."""
    joiners = [each.joiner for each in plan.providers]
    at_once = max(map(joiners.count, joiners), default=1)  # most providers of one joiner
    window = max(frame.state_window // at_once, 2 * frame.packet_bytes)
    forwards_to = order_of(frame).forwards_to(frame.sequencer)
    if forwards_to != NOBODY and frame.members[forwards_to].id in joiners:
        window = 2 * frame.packet_bytes  # it needs its buffer for the forwards
    return replace(
        frame,
        state_window=window,
        labels=plan.labels,
        merged_into=plan.merged_into,
        providers=plan.providers,
        merger=plan.merger,
    )


def with_table(proposal: NewView, view: View, table: Sequence[int]) -> NewView:
    """A proposed VIEW that closes ``view``, with the received table at its cut."""
    ranks = [view.rank(info.id) for info in proposal.members]
    # All streams of a joiner begin with the same seqno.
    origin_base = tuple(table[rank] if rank >= 0 else base for rank, base in zip(ranks, proposal.base, strict=True))
    return replace(proposal, table=tuple(table), origin_base=origin_base)


def view_of(frame: NewView) -> View:
    """The view that a VIEW frame announces."""
    members = tuple(info.member for info in frame.members)
    mechanism = order_of(frame).name
    if not frame.subgroups:
        return View(frame.view_id, members, frame.order, frame.sequencer, mechanism)
    by_id = {member.id: member for member in members}
    subgroups = tuple(View(group.view_id, tuple(by_id[each] for each in group.ids)) for group in frame.subgroups)
    kept = subgroup_kept(frame)
    state_from = None if kept is None else subgroups[frame.subgroups.index(kept)]
    return MergeView(frame.view_id, members, frame.order, frame.sequencer, mechanism, subgroups, state_from)


def apart(frame: NewView, me: int) -> list[bool] | None:
    """By rank, whether the member comes from another subgroup than ours; None: no merge."""
    ours = next((group.ids for group in frame.subgroups if me in group.ids), None)
    return None if ours is None else [info.id not in ours for info in frame.members]


def first_view(
    members: Sequence[MemberInfo],
    order: str,
    mechanism: Order,
    initiator: int,
    choose: Choose = first,
    first_seqno: int = 1,
    path_bytes: int = 0,
) -> NewView:
    """The VIEW frame of a group's first view.

    Args:
        order: the one that the members asked for.
        mechanism: the one that implements it.
        initiator: id of the member that makes the view.
        choose: the sequencer.
        first_seqno: of every stream.
        path_bytes: see ``windows``.
    """
    sequencer = mechanism.sequencer([info.member for info in members], choose)
    assert mechanism.allows(sequencer, len(members)), f"{mechanism.name} cannot have sequencer {sequencer}"
    sizes = windows(members, mechanism.multicasters(len(members)), path_bytes)
    before = (first_seqno - 1,) * len(members)
    labels = tuple(WHOLE if info.state else NONE for info in members)
    return NewView(
        closes=None,
        attempt=(1, 0),
        answers=None,
        survivors=(),
        view_id=ViewId(1, members[0].id, (1, initiator)),
        members=tuple(members),
        order=order,
        mechanism=mechanism.number,
        sequencer=sequencer,
        cut=(),
        table=(),
        base=before,
        origin_base=before,
        window=sizes.window,
        share=sizes.share,
        room=sizes.room,
        forward_window=sizes.forward,
        unicast_window=sizes.unicast,
        state_window=sizes.state,
        packet_bytes=sizes.packet_bytes,
        labels=labels,
    )
