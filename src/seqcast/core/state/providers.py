"""Which member gives the application's state to which joiner (the cut, step 10), also after a merge of several states.

A VIEW gives each member a *label*: ``NONE`` for members that lack the state or take no part; ``WHOLE`` for those that
have the group's state; or a number from ``PART`` on. Members with the same number have the state of the same part of
the group; different numbers are different states, because the parts were separated and have not merged their states
yet. The state of a member that lacks its part's merged one was *merged into* that, and does not count while a member
here has the merged one, but does again if no member has, so that nothing is lost with the merger. The label of the
merged state is the lower one.

If not every member that has a state can merge states, the state that most members have becomes the group's: they are
``WHOLE``, and all others take that state over, but keep their numbers until then, so that one of theirs becomes the
group's if those members crash first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NONE, PART, PARTS_MAX, WHOLE, NewView, Provision, Subgroup

STATE_MERGES = 2
"""``MemberInfo.state`` of a member whose application merges states."""
Lacking = Mapping[int, Collection[int]]
"""Members that lack the group's state, each with the providers already passed over."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A VIEW's fields about the state.

    Args:
        labels: by rank.
        merged_into: by rank; see ``NewView``.
        providers: see ``Provision``.
        merger: rank of the member that merges the states of the parts, for all; -1: there is nothing to merge.
    """

    labels: tuple[int, ...]
    providers: tuple[Provision, ...] = ()
    merger: int = -1
    merged_into: tuple[int, ...] = ()


def plan(members: Sequence[MemberInfo], lacking: Lacking, before: NewView | None, boundary: int) -> Plan:
    """The plan of a view that continues the one before.

    Args:
        members: of the view.
        lacking: joiners too.
        before: the VIEW that is closed; None: the first one.
        boundary: tag of the view.
    """
    known = labels_of(before) if before is not None else {}
    all_labels = {info.id: _label(info, lacking, known) for info in members}
    into = _merged_into(all_labels, before)
    labels = _counted(all_labels, into)
    if _states(labels) > 1 and WHOLE not in labels.values() and can_merge(_with_state(members, all_labels)):
        made = _merge(members, labels, lacking, before, boundary)
    else:
        made = _from_whole(members, _chosen(labels), lacking, _earlier(before), boundary)
    return _with_merged(made, members, all_labels, into)


def merged_plan(members: Sequence[MemberInfo], parts: Sequence[NewView], boundary: int) -> Plan:
    """The plan of a merged view.

    Args:
        members: of the view.
        parts: the VIEW that each subgroup would install alone.
        boundary: tag of the view.
    """
    labels = {info.id: NONE for info in members}
    into: dict[int, int] = {}
    number = PART
    for part in parts:
        own = {member: label for member, label in labels_of(part).items() if label and member in labels}
        own_above, held = _above(part), sorted(set(own.values()))
        numbers = {label: number + place for place, label in enumerate(held)}
        number += len(held)
        whole = numbers.get(WHOLE, NONE)  # into which all other states of the part were merged
        for member, label in own.items():
            labels[member] = numbers[label]
            above = numbers.get(own_above.get(label, NONE), whole if label > WHOLE else NONE)
            if above:
                into[member] = above
    counted = _counted(labels, into)
    if _states(counted) > 1 and can_merge(_with_state(members, labels)):
        lacking: Lacking = {info.id: () for info in members if info.state}
        made = _merge(members, counted, lacking, None, boundary)
    else:
        made = _from_whole(members, _chosen(counted), {}, _transfers(parts, boundary), boundary)
    return _with_merged(made, members, labels, into)


def _transfers(parts: Sequence[NewView], boundary: int) -> dict[int, Provision]:
    """By joiner: transfers continue; those that would begin with a subgroup's own view begin with the merged one."""
    alone = {part.view_id.tag for part in parts}
    return {
        each.joiner: each._replace(boundary=boundary) if each.boundary in alone else each
        for part in reversed(parts)
        for each in part.providers
    }


def _states(labels: Mapping[int, int]) -> int:
    """How many states there are."""
    return len(set(labels.values()) - {NONE})


def can_merge(members: Iterable[MemberInfo]) -> bool:
    """Can each of them that takes part merge states? If one cannot, one state is chosen."""
    return all(info.state == STATE_MERGES for info in members if info.state)


def _with_state(members: Sequence[MemberInfo], labels: Mapping[int, int]) -> list[MemberInfo]:
    return [info for info in members if labels[info.id]]


def _chosen(labels: Mapping[int, int]) -> dict[int, int]:
    """If nobody has the group's state: the one that most members have is the group's; of several, the first part's."""
    held = [label for label in labels.values() if label]
    if not held or WHOLE in held:
        return dict(labels)
    chosen = min(set(held), key=lambda label: (-held.count(label), label))
    return {member: WHOLE if label == chosen else label for member, label in labels.items()}


def labels_of(frame: NewView) -> dict[int, int]:
    return {info.id: label for info, label in zip(frame.members, frame.labels, strict=True)}


def subgroup_kept(frame: NewView) -> Subgroup | None:
    """Of a merged view: the subgroup whose state all others take over in place of their own; None: none is."""
    labels = labels_of(frame)
    kept = next((group for group in frame.subgroups if any(labels[each] == WHOLE for each in group.ids)), None)
    return kept if subgroups_replaced(frame) else None


def subgroups_replaced(frame: NewView) -> list[int]:
    """The places of those subgroups of which a state is given up for that one. Others had none."""
    labels = labels_of(frame)
    if WHOLE not in labels.values():
        return []
    return [
        place
        for place, group in enumerate(frame.subgroups)
        if any(labels[each] >= PART for each in group.ids) and not any(labels[each] == WHOLE for each in group.ids)
    ]


def _above(frame: NewView) -> dict[int, int]:
    """By label of a state that was merged into another one: the label of that one."""
    return {label: into for label, into in zip(frame.labels, frame.merged_into, strict=False) if into}


def _merged_into(labels: Mapping[int, int], before: NewView | None) -> dict[int, int]:
    """Of each state that was merged into one that a member still has, the label of that one."""
    if before is None:
        return {}
    above = _above(before)
    held, result = set(labels.values()), {}
    for member, label in labels.items():
        into = above.get(label, NONE)
        while into and into not in held:
            into = above.get(into, NONE)
        if into:
            result[member] = into
    return result


def _counted(labels: Mapping[int, int], into: Mapping[int, int]) -> dict[int, int]:
    return {member: NONE if member in into else label for member, label in labels.items()}


def _with_merged(plan: Plan, members: Sequence[MemberInfo], labels: Mapping[int, int], into: Mapping[int, int]) -> Plan:
    """The plan, which was made by the states that count, with those that were merged into one of them."""
    if not into:
        return plan
    return replace(
        plan,
        labels=tuple(label or labels[info.id] for info, label in zip(members, plan.labels, strict=True)),
        merged_into=tuple(into.get(info.id, NONE) for info in members),
    )


def _label(info: MemberInfo, lacking: Lacking, known: Mapping[int, int]) -> int:
    if not info.state:
        return NONE
    if info.id not in lacking:
        return WHOLE
    return known.get(info.id, NONE) if known.get(info.id, NONE) >= PART else NONE


def _earlier(before: NewView | None) -> dict[int, Provision]:
    """By joiner: who gave the state in the view before, or was to."""
    if before is None:
        return {}
    merger = before.members[before.merger].id if before.merger >= 0 else 0
    return {each.joiner: each for each in before.providers if each.joiner != merger}


def _from_whole(
    members: Sequence[MemberInfo],
    labels: Mapping[int, int],
    lacking: Lacking,
    earlier: Mapping[int, Provision],
    boundary: int,
) -> Plan:
    """The first member that has the state is the provider, unless an earlier one continues."""
    holders = [info.id for info in members if labels[info.id] == WHOLE]
    result = []
    for info in members:
        if not info.state or labels[info.id] == WHOLE:
            continue
        fit = [holder for holder in holders if holder not in lacking.get(info.id, ())]
        provision = earlier.get(info.id)
        if provision is not None and provision.provider in fit:
            result.append(provision)
        elif fit:
            result.append(Provision(info.id, fit[0], boundary))
    return Plan(tuple(labels[info.id] for info in members), tuple(result))


def _merge(
    members: Sequence[MemberInfo],
    labels: Mapping[int, int],
    lacking: Lacking,
    before: NewView | None,
    boundary: int,
) -> Plan:
    """One member gets the state of every other part, merges them, and gives the result to all others. The plan of the
    view before stays as long as all members needed are here; else everything starts over at this view."""
    kept = _kept(members, labels, lacking, before)
    if kept:
        assert before is not None
        merger, planned = before.members[before.merger].id, {each.joiner for each in kept}
        kept += [Provision(info.id, merger, boundary) for info in members if info.state and info.id not in planned]
        return _planned(members, labels, kept, merger)
    passed = [each for ids in lacking.values() for each in ids]
    parted = [info.id for info in members if labels[info.id] >= PART]
    merger = min(parted, key=passed.count)  # the first of those that nobody, or the fewest, passed over
    given = [
        Provision(merger, fit[0], boundary)
        for label in sorted({labels[member] for member in parted} - {labels[merger]})
        if (fit := [each for each in parted if labels[each] == label and each not in lacking[merger]])
    ][: PARTS_MAX - 1]
    if not given:  # it can get no other part's state: its own is the group's
        return _from_whole(members, {**labels, merger: WHOLE}, lacking, {}, boundary)
    given += [
        Provision(info.id, merger, boundary)
        for info in members
        if info.state and info.id != merger and merger not in lacking[info.id]
    ]
    return _planned(members, labels, given, merger)


def _kept(
    members: Sequence[MemberInfo], labels: Mapping[int, int], lacking: Lacking, before: NewView | None
) -> list[Provision]:
    """The rest of the plan of the view before; nothing: the plan no longer holds."""
    if before is None or before.merger < 0:
        return []
    merger = before.members[before.merger].id
    here = {info.id for info in members}
    providers = [each.provider for each in before.providers if each.joiner == merger]
    parts = {label for label in labels.values() if label >= PART}
    whole_plan = parts == {labels.get(each, NONE) for each in (merger, *providers)}
    passed = any(each.provider in lacking[each.joiner] for each in before.providers if each.joiner in lacking)
    if merger not in here or not whole_plan or passed or not here.issuperset(providers):
        return []
    return [each for each in before.providers if each.joiner in here]


def _planned(
    members: Sequence[MemberInfo], labels: Mapping[int, int], providers: Sequence[Provision], merger: int
) -> Plan:
    rank = next(rank for rank, info in enumerate(members) if info.id == merger)
    return Plan(tuple(labels[info.id] for info in members), tuple(providers), rank)
