"""What ``Lost`` tells, and ``leave`` returns, against what the applications were delivered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from seqcast.core.vocabulary import Left
from seqcast.events import Excluded, Lost
from seqcast.sim.node import Delivered, Entry, Node
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
                if stay.node is node and node.left is not None:
                    continue  # nobody else delivered what it sent when it was cut off
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


def check_ends(nodes: Sequence[Node], everywhere: Sequence[Stay]) -> Iterator[str]:
    """Whoever is out, by leaving or by exclusion, knows what became of all that ``send`` accepted for the group.

    A leaver that was told True: everything is delivered by all members of its last view that went on to the closing
    one. Told False, or excluded: what is not is named by ``Lost``, as the last so many messages. Where it is known who
    went on, ``Lost`` names no more than that.
    """
    in_view = _by_view(everywhere)
    for node in nodes:
        out = node.up and node.endpoint.over and node.world.clock.now >= max(node.paused_until, node.slow_until)
        mine = [stay for stay in everywhere if stay.node is node]
        if out and node.inside and mine and not node.engine.deliverable():
            yield from _check_end(node, mine[-1], in_view[mine[-1].view.view_id])
            if node.left is not None and node.left.complete:
                yield from _check_alone(node, mine, nodes)


def _check_end(node: Node, last: Stay, together: Sequence[Stay]) -> Iterator[str]:
    """``last``: of the node; ``together``: all of that view."""
    end, told = node.log[-1], [entry for entry in node.log if isinstance(entry, Lost) and not entry.to]
    ends = [entry for entry in told if entry.unsent or entry.view_id == last.view.view_id]
    named = sum(entry.messages for entry in ends)
    if named and node.left is not None and node.left.complete:
        yield f"leave: {node} was told that all is delivered, and {ends}"
    # Numbers of messages that were delivered, or told to be lost by a merge, before the last view.
    earlier = [at for at, entry in enumerate(node.log) if _own(node, entry) and entry not in last.delivered]
    floor = node.log[earlier[-1]].counter + 1 if earlier else 0  # type: ignore[union-attr]
    floor += sum(
        entry.messages
        for entry in node.log[earlier[-1] if earlier else 0 :]
        if isinstance(entry, Lost) and entry not in ends and entry.missed_by is None and not entry.to
    )
    after = last.successor or (end.view_id if isinstance(end, Excluded) else None)
    stayers = [stay for stay in together if stay.node is not node and stay.successor is not None]
    stayers = [stay for stay in stayers if after in (None, stay.successor)]
    for stay in stayers or [last] * (after is not None):
        got = [entry.counter for entry in stay.delivered if entry.sender == node.id and not entry.to]
        missed = node.counter - (max(got) + 1 if got else floor)
        if missed > named:
            yield f"leave: {stay.node} lacks the last {missed} messages of {node}, which was told of {named} ({end})"
        elif missed < named and after is not None and stayers:
            yield f"lost: {node} was told that its last {named} are lost, and {stay.node} lacks {missed} ({end})"


def _own(node: Node, entry: Entry) -> bool:
    return isinstance(entry, Delivered) and entry.sender == node.id and not entry.to


def _check_alone(node: Node, mine: Sequence[Stay], nodes: Sequence[Node]) -> Iterator[str]:
    """Whoever was cut off, sent, and left alone was not told that all is delivered: nobody else was delivered it."""
    alone = next((at for at in range(len(mine)) if all(len(stay.view.members) == 1 for stay in mine[at:])), 0)
    fellows = {member.id for member in mine[alone - 1].view.members} - {node.id} if alone else set()
    others = [other for other in nodes if other.id in fellows]
    if not any(other.up and not other.endpoint.over for other in others):  # they crashed, or left
        return
    got = {entry.counter for other in others for entry in other.log if isinstance(entry, Delivered) and not entry.to
           and entry.sender == node.id}  # fmt: skip
    for stay in mine[alone - 1 :]:
        for entry in stay.delivered:
            if entry.sender == node.id and not entry.to and entry.counter not in got:
                yield f"leave: {node}, cut off, was told that all is delivered, and nobody else delivered {entry}"
                return


def check_unicasts(nodes: Sequence[Node], everywhere: Sequence[Stay]) -> Iterator[str]:
    """What a member that left or was excluded sent to one of those that went on was delivered, or it was told so."""
    in_view = _by_view(everywhere)
    for node in nodes:
        end = node.log[-1] if node.log else None
        views = [entry for entry in node.log if isinstance(entry, View)]
        if not isinstance(end, Left | Excluded) or not views:
            continue
        after = end.view_id if isinstance(end, Excluded) else end.view.view_id if end.view else None
        for stay in in_view[views[-1].view_id]:
            if after is None or stay.successor != after or stay.node is node:
                continue
            told = [entry for entry in node.log if isinstance(entry, Lost) and entry.to and entry.to.id == stay.node.id]
            missed = _missed(node, stay.node, after)
            if len(missed) > sum(entry.messages for entry in told):
                yield f"unicast: {node} is out ({end}), and {stay.node} was never delivered {missed[:3]} of it: {told}"


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
        if to == receiver.id and view_id in views and counter not in got
        and counter < sender.counters_to.get(to, 0)
    )  # fmt: skip
