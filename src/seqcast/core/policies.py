"""Asks the application's policies for a view: the order of its members, and its sequencer. If a policy fails, the
application is warned, and the rule without a policy holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

import seqcast.codes as codes
from seqcast.core.context import Context
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import Subgroup
from seqcast.core.orders.order import first
from seqcast.core.vocabulary import Warn
from seqcast.types import Member, MembershipChange


def arranged(
    context: Context,
    infos: Sequence[MemberInfo],
    survivors: Collection[int],
    leavers: Collection[int],
    subgroups: Sequence[Subgroup],
) -> list[MemberInfo]:
    """The members of the next view in the order of the policy; unchanged if there is none or it fails.

    A policy decides the order only, not the membership; and observers come last, so that none coordinates.

    Args:
        infos: the members, in the order that they have without a policy.
        survivors, leavers: of our view.
        subgroups: in a merge; our own first.
    """
    infos = sorted(infos, key=lambda info: info.observer)
    policy = context.settings.membership_policy
    if policy is None:
        return infos
    by_id = {info.id: info for info in infos}
    elsewhere = {member for group in subgroups[1:] for member in group.ids}
    change = MembershipChange(
        members=tuple(info.member for info in infos),
        joiners=tuple(info.member for info in infos if info.id not in context.infos and info.id not in elsewhere),
        leavers=tuple(member for member in context.members if member.id in leavers),
        lost=tuple(member for member in context.members if member.id not in survivors),
        subgroups=tuple(tuple(by_id[member].member for member in group.ids) for group in subgroups),
    )
    try:
        answer = islice(policy(change), len(infos) + 1)  # an iterator may have no end
        order = [member.id if isinstance(member, Member) else 0 for member in answer]
        trouble = "did not return each of change.members once"
    except BaseException as error:  # SystemExit, too, must not end the group
        order, trouble = [], f"raised {error!r}"
    if sorted(order) == sorted(by_id):
        return sorted((by_id[member] for member in order), key=lambda info: info.observer)
    context.counters["membership_policy_failed"] += 1
    text = f"membership_policy {trouble}: the view has its members in the order without a policy"
    context.emit(Warn(codes.POLICY_UNUSED(text)))
    return infos


def chosen(context: Context, members: Sequence[Member]) -> int:
    """The rank of the sequencer by the policy; the coordinator's if there is none or it fails."""
    policy = context.settings.sequencer_policy
    if policy is None:
        return first(members)
    try:
        sequencer = policy(tuple(members))
        if sequencer in members and not members[members.index(sequencer)].observer:
            return members.index(sequencer)
        trouble = "did not return one of the members that are not observers"
    except BaseException as error:  # SystemExit, too, must not end the group
        trouble = f"raised {error!r}"
    context.counters["sequencer_policy_failed"] += 1
    text = f"sequencer_policy {trouble}: the coordinator of the view is its sequencer"
    context.emit(Warn(codes.POLICY_UNUSED(text)))
    return first(members)
