"""What ``Lost`` tells, against what the applications were delivered; and what a leaver sent before it left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from seqcast.endpoint import Left
from seqcast.events import Excluded, Lost
from seqcast.sim.node import Delivered, Node
from seqcast.types import MergeView, View, ViewId

if TYPE_CHECKING:
    from seqcast.sim.checkers import Stay


def check_told(nodes: Sequence[Node], everywhere: Sequence[Stay]) -> Iterator[str]:
    """``Lost`` names nothing that those delivered of whom it speaks, and stands behind the view that it is about."""
    in_view: Mapping[ViewId, list[Stay]] = _by_view(everywhere)
    for node in nodes:
        yield from _check_place(node)
        told = {entry for entry in node.log if isinstance(entry, Lost) and not entry.unsent}
        for lost in sorted(told, key=lambda lost: (lost.view_id, lost.first_seqno)):
            if lost.first_seqno > lost.last_seqno:
                yield f"lost: {node} is told of nothing: {lost}"
            own = next((stay.successor for stay in in_view[lost.view_id] if stay.node is node), None)
            # What nobody ordered those did not deliver either who went on with this member.
            went_on = own if lost.missed_by is None else lost.missed_by
            for stay in in_view[lost.view_id]:
                if went_on is None or stay.successor != went_on:
                    continue
                wrong = [each for each in stay.delivered if _names(lost, node, each)]
                if wrong:
                    yield f"lost: {node} is told {lost}, and {stay.node}, which went on so, delivered {wrong[0]}"
                    break


def _by_view(everywhere: Sequence[Stay]) -> Mapping[ViewId, list[Stay]]:
    result: defaultdict[ViewId, list[Stay]] = defaultdict(list)
    for stay in everywhere:
        result[stay.view.view_id].append(stay)
    return result


def _names(lost: Lost, sender: Node, entry: Delivered) -> bool:
    mine = entry.sender == sender.id and not entry.to
    return mine and lost.first_seqno <= entry.seqno <= lost.last_seqno


def _check_place(node: Node) -> Iterator[str]:
    """``Lost`` speaks of a view that has ended for its application, or ends right behind it."""
    entered = {view.view_id for view in node.voided}
    current: ViewId | None = None
    for place, entry in enumerate(node.log):
        if isinstance(entry, View):
            current = entry.view_id
            entered.add(current)
        elif isinstance(entry, Lost) and not entry.unsent:
            rest = node.log[place:]
            ends = isinstance(rest[-1], (Excluded, Left)) and all(isinstance(each, Lost) for each in rest[:-1])
            if entry.view_id not in entered:
                yield f"lost: {node} is told {entry}, and never was in that view"
            elif entry.view_id == current and not ends:
                yield f"lost: {node} is told {entry} before the view with which others went on"


def check_leavers(nodes: Sequence[Node], everywhere: Sequence[Stay]) -> Iterator[str]:
    """What a leaver sent to one of those that stay, before it was told that its view closes, was delivered."""
    in_view = _by_view(everywhere)
    for node in nodes:
        left = node.log[-1] if node.log else None
        views = [entry for entry in node.log if isinstance(entry, View)]
        if not isinstance(left, Left) or left.view is None or not views:
            continue
        for stay in in_view[views[-1].view_id]:
            again = left.view.view_id in node.repeated | stay.node.repeated
            if stay.successor != left.view.view_id or stay.node is node or again:
                continue  # (A view that was proposed again may not have waited for this leaver.)
            missed = _missed(node, stay.node, left.view.view_id)
            if missed:
                yield f"unicast: {node} left, and {stay.node} was never delivered {missed[:3]} of what it sent to it"


def _missed(sender: Node, receiver: Node, until: ViewId) -> list[int]:
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
    # Those that a state was waited for come behind it.
    got = {entry.counter for entry in receiver.log if isinstance(entry, Delivered) and entry.to == receiver.id
           and entry.sender == sender.id}  # fmt: skip
    return sorted(
        counter
        for (to, counter), view_id in sender.sent_to.items()
        if to == receiver.id and view_id in views and counter not in got and (to, counter) not in sender.sent_late
        and counter < sender.counters_to.get(to, 0)
    )  # fmt: skip
