"""The guarantees (design, section 4), checked on what the applications saw; knows nothing of the code under test."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from seqcast.core.vocabulary import Left
from seqcast.events import Excluded, Lost
from seqcast.sim import losses
from seqcast.sim.node import DRAINS_NS, Delivered, Entry, Node
from seqcast.sim.policies import BAD
from seqcast.types import MergeView, View, ViewId


@dataclass(frozen=True, slots=True)
class Stay:
    """What one member delivered in one view, and what came after: a view id, or None (crash, exclusion, the end)."""

    node: Node
    view: View
    delivered: tuple[Delivered, ...]
    successor: ViewId | None


def stays(node: Node) -> list[Stay]:
    result: list[Stay] = []
    view: View | None = None
    delivered: list[Delivered] = []
    for entry in [*node.log, None]:
        if isinstance(entry, Delivered):
            delivered.append(entry)
            continue
        if isinstance(entry, Lost):
            continue
        if view is not None:
            after = entry.view_id if isinstance(entry, View) else None
            if isinstance(entry, Left) and entry.view is not None:
                after = entry.view.view_id
            result.append(Stay(node, view, tuple(delivered), after))
        delivered = []
        view = entry if isinstance(entry, View) else None
    return result


def check_safety(nodes: Sequence[Node]) -> Iterator[str]:
    """Each violation, in words."""
    by_id = {node.id: node for node in nodes}
    ordered = nodes[0].options.order != "fifo"
    everywhere = [stay for node in nodes for stay in stays(node)]
    for node in nodes:
        yield from node.violations
        if bad := node.endpoint.counters["frames_bad"]:
            yield f"frames: {node} was sent {bad} frames that no member may send"
        yield from _check_callbacks(node)
        yield from _check_queue(node)
        yield from _check_order_of_members(node)
        if node.options.flush_unicasts:
            yield from _check_flushed(node, by_id)
        yield from _check_views(node)
        yield from _check_integrity(node, by_id)
        yield from _check_fifo(node, by_id)
    yield from _check_pauses(nodes)
    yield from _check_view_agreement(everywhere)
    yield from _check_states(nodes)
    for stay in everywhere:
        yield from _check_stay(stay, ordered, by_id)
    yield from _check_agreement(everywhere, ordered)
    yield from _check_excluded(everywhere)
    yield from losses.check_told(nodes, everywhere)
    yield from losses.check_ends(nodes, everywhere)
    yield from losses.check_unicasts(nodes, everywhere)


def _check_views(node: Node) -> Iterator[str]:
    last: ViewId | None = None
    for entry in node.log:
        if isinstance(entry, View):
            if last is not None and not entry.view_id > last:
                yield f"growing view ids: {node} installs {entry.view_id} after {last}"
            if entry.rank(node.id) < 0:
                yield f"view: {node} installs a view without itself"
            last = entry.view_id


def _check_integrity(node: Node, by_id: dict[int, Node]) -> Iterator[str]:
    for entry in node.log:
        if not isinstance(entry, Delivered):
            continue
        sender = by_id.get(entry.sender)
        if not entry.intact or sender is None or entry.claimed != entry.sender:
            yield f"integrity: {node} delivers what nobody sent: {entry}"
        elif entry.to:
            if entry.to != node.id or (entry.to, entry.counter) not in sender.sent_to:
                yield f"integrity: {node} delivers a unicast that {sender} did not send to it: {entry}"
        elif sender.sent.get(entry.counter, (0, None))[0] != entry.length:
            yield f"integrity: {node} delivers what {sender} did not send: {entry}"


def _check_fifo(node: Node, by_id: dict[int, Node]) -> Iterator[str]:
    """Per sender, without a gap while both are together, and nothing twice; unicasts from the first on."""
    seen: dict[tuple[int, bool], int] = {}
    seqnos: dict[tuple[int, bool], int] = {}
    known: set[int] = set()
    apart: set[tuple[int, bool]] = set()  # with whom the node was not together since it delivered the last of them
    # Unicasts from before the state that the node took over come behind it, and the views between them are void.
    voided = [{member.id for member in _together(node, view).members} for view in node.voided]
    unclear = {member for at, view in enumerate(voided) for later in voided[at:] for member in view - later}
    for entry in node.log:
        if isinstance(entry, View):
            if known:
                unclear.clear()
            together = {member.id for member in _together(node, entry).members}
            known |= {member.id for member in entry.members}
            apart |= {(sender, unicast) for sender in known - together for unicast in (False, True)}
        elif isinstance(entry, Delivered):
            key = (entry.sender, bool(entry.to))
            expected, before = seen.get(key, -1) + 1, seqnos.get(key, 0)
            gap_is_wrong = key not in apart and (entry.to or key in seen)
            gap_is_wrong = gap_is_wrong and not (entry.to and entry.sender in unclear)
            gap = entry.counter > expected and gap_is_wrong and not _unordered(by_id, entry, before)
            if entry.counter < expected or gap:
                what = "duplicate" if entry.counter < expected else "FIFO"
                yield f"{what}: {node} delivers number {entry.counter} of {entry.sender:x}, not {expected}: {entry}"
            seen[key], seqnos[key] = entry.counter, entry.seqno
            apart.discard(key)


def _unordered(by_id: dict[int, Node], entry: Delivered, before: int) -> bool:
    """The sender was told that what came between packet ``before`` and this one was never ordered."""
    return any(_never_ordered(each) and before <= each.first_seqno <= entry.seqno for each in by_id[entry.sender].log)


def _never_ordered(entry: Entry) -> TypeGuard[Lost]:
    """Packets of messages to the group that nobody delivered."""
    return isinstance(entry, Lost) and entry.missed_by is None and entry.last_seqno > 0


def _together(node: Node, view: View) -> View:
    """Those of a view with whom the node was in its last view."""
    if isinstance(view, MergeView):
        return next((group for group in view.subgroups if group.rank(node.id) >= 0), view)
    return view


def _check_pauses(nodes: Sequence[Node]) -> Iterator[str]:
    """While a pause was held, and its owner was told so at its end, nobody sent."""
    for owner in nodes:
        for pause in owner.pauses:
            for node in nodes if pause.over_ns else ():
                for when, view_id in node.accepted:
                    if view_id == pause.view_id and pause.held_ns < when < pause.over_ns:
                        yield f"pause: {owner} held it from {pause.held_ns} to {pause.over_ns}, {node} sent at {when}"


def _check_callbacks(node: Node) -> Iterator[str]:
    """What a block callback sent before it returned in time is delivered before the next view (FLU-13, FLU-15)."""
    for run in node.runs:
        for number in run.sent if run.returned and not run.late else ():
            if number not in node.sent:
                continue  # the member lost the state meanwhile, and gave up sending it
            view_id = node.sent[number][1]
            if view_id != run.view_id:
                yield f"block callback: {node} sent number {number} in it, and in view {view_id}, not {run.view_id}"


def _check_flushed(node: Node, by_id: dict[int, Node]) -> Iterator[str]:
    """No unicast that was sent before its sender's gate closed comes in a later view (E-16).

    Unless its receiver took over a state that is of that view; and in a primary partition a view that was proposed
    again may have members that took no part in the last attempt.
    """
    view_id: ViewId | None = None
    for entry in node.log:
        if isinstance(entry, View):
            view_id = entry.view_id
        elif isinstance(entry, Delivered) and entry.to and view_id is not None:
            sender, key = by_id[entry.sender], (entry.to, entry.counter)
            sent_in = sender.sent_to[key]
            again = node.options.partition == "primary" and any(
                sent_in < each <= view_id for each in node.repeated | sender.repeated
            )
            late = view_id > sent_in and key not in sender.sent_late and not again
            if late and (entry.sender, entry.counter) not in node.kept_over:
                yield f"unicast flush: {node} delivers in {view_id} what was sent in {sender.sent_to[key]}: {entry}"


def _check_order_of_members(node: Node) -> Iterator[str]:
    """A good policy is heeded, in each view; after a bad one those who stay are in their old order, in front."""
    last: View | None = None
    for view in (entry for entry in node.log if isinstance(entry, View)):
        names = [(member.name, member.id) for member in view.members]
        if node.options.partition == "primary":  # whose first member may have to be one that stays
            names = names[1:]
        if node.options.policy == "by_name" and names != sorted(names):
            yield f"membership policy: {view}, as {node} has it, is not in the order of the names"
        if node.options.policy in BAD and last is not None and not isinstance(view, MergeView):
            stay = [member for member in last.members if member in view.members]
            if list(view.members[: len(stay)]) != stay:
                yield f"membership policy: a wrong one has changed {last} to {view}"
        last = view


def _check_queue(node: Node) -> Iterator[str]:
    """Of what was queued and never sent, because its membership ended, a member was told."""
    told = sum(entry.unsent for entry in node.log if isinstance(entry, Lost))
    if node.up and node.endpoint.over and told != len(node.queued):
        yield f"queue: {node} was over with {len(node.queued)} messages queued, and was told of {told}"


def _check_view_agreement(everywhere: Sequence[Stay]) -> Iterator[str]:
    views: dict[ViewId, View] = {}
    for stay in everywhere:
        known = views.setdefault(stay.view.view_id, stay.view)
        if known != stay.view:
            yield f"view agreement: {stay.view.view_id} is {known} and, at {stay.node}, {stay.view}"


def _check_states(nodes: Sequence[Node]) -> Iterator[str]:
    """At the beginning of a view all its members' applications have one state, taken over or not."""
    first: dict[int, tuple[Node, str]] = {}
    for node in nodes:
        for tag, state in node.states.items():
            other, expected = first.setdefault(tag, (node, state))
            if state != expected:
                yield f"state: at the beginning of the view with tag {tag:x} {node} has another state than {other}"


def _check_stay(stay: Stay, ordered: bool, by_id: dict[int, Node]) -> Iterator[str]:
    members = {member.id for member in stay.view.members}
    place = 0
    for entry in stay.delivered:
        if not entry.to and entry.sender not in members:
            yield f"sending view: {stay.node} delivers in {stay.view} from a stranger: {entry}"
        sender = by_id.get(entry.sender)
        sent_in = sender.sent.get(entry.counter, (0, None))[1] if sender else None
        if not ordered and not entry.to and sent_in not in (None, stay.view.view_id):
            yield f"sending view: {stay.node} delivers in {stay.view} what was sent in another view: {entry}"
        if ordered and not entry.to:
            place += 1
            if entry.global_seqno != place:
                yield f"global seqno: {stay.node} in {stay.view}: {entry.global_seqno}, not {place}: {entry}"


def _check_agreement(everywhere: Sequence[Stay], ordered: bool) -> Iterator[str]:
    """Who installs a view and the same successor delivers the same in it; with an order, in the same order."""
    first: dict[tuple[ViewId, ViewId], Stay] = {}
    for stay in everywhere:
        if stay.successor is None:
            continue
        other = first.setdefault((stay.view.view_id, stay.successor), stay)
        if other is not stay:
            yield from same(stay, other, ordered)


def _check_excluded(everywhere: Sequence[Stay]) -> Iterator[str]:
    """Who was excluded was told which of its messages those did not deliver that went on."""
    first: dict[tuple[ViewId, ViewId | None], Stay] = {}
    for stay in everywhere:
        first.setdefault((stay.view.view_id, stay.successor), stay)
    for stay in everywhere:
        log = stay.node.log
        end = log[-1] if log and stay.successor is None else None
        other = first.get((stay.view.view_id, end.view_id)) if isinstance(end, Excluded) else None
        if other is None:
            continue
        got = {(entry.sender, entry.counter) for entry in other.delivered if not entry.to}
        told = [entry for entry in log if isinstance(entry, Lost) and entry.view_id == stay.view.view_id]
        for entry in stay.delivered:
            if entry.sender == stay.node.id and not entry.to and (entry.sender, entry.counter) not in got:
                if not any(each.first_seqno <= entry.seqno <= each.last_seqno for each in told):
                    yield f"lost: {stay.node} was excluded from {stay.view}, and not told that {entry} is lost"
                    return


def same(one: Stay, other: Stay, ordered: bool) -> Iterator[str]:
    """Did both deliver the same?"""
    a = [(entry.sender, entry.counter) for entry in one.delivered if not entry.to]
    b = [(entry.sender, entry.counter) for entry in other.delivered if not entry.to]
    if a == b or (not ordered and sorted(a) == sorted(b)):
        return
    where = f"in {one.view} ({one.view.view_id}) before {one.successor}"
    if sorted(a) == sorted(b):
        index = next(index for index in range(len(a)) if a[index] != b[index])
        yield f"total order: {where}: at {index} {one.node} has {a[index]}, {other.node} {b[index]}"
    else:
        odd = sorted(set(a) ^ set(b))[:3]
        yield f"agreement: {where}: {one.node} delivers {len(a)}, {other.node} {len(b)}; one of them only {odd}"


def check_liveness(nodes: Sequence[Node]) -> Iterator[str]:
    """What is not yet as it must be once the faults have ended; empty: the run is done."""
    alive = [node for node in nodes if node.up and not node.endpoint.over]
    views = {}
    for node in alive:
        view = node.endpoint.view
        if view is None:
            yield f"liveness: {node} is in no view"
            continue
        views[view.view_id] = view
        if not node.inside:
            yield f"liveness: {node} has not got the state"
        for member in view.members:
            other = next((other for other in alive if other.id == member.id), None)
            if other is None:
                yield f"liveness: {node} still has {member} in {view}"
            elif other.endpoint.view != view:
                yield f"liveness: {node} is in {view}, {other} in {other.endpoint.view}"
        if node.pending:
            yield f"liveness: {node} cannot send {len(node.pending)} messages"
        if node.engine.deliverable():
            yield f"liveness: {node} has not delivered everything"
        if node.waits.under_way:
            yield f"liveness: {node} still waits until the others have taken what it sent"
    if len(views) > 1:
        yield f"liveness: several views remain: {', '.join(map(str, views.values()))}"


# ---- primary partitions --------------------------------------------------------------------------------------------


def check_primary(nodes: Sequence[Node], allowed: Collection[int]) -> Iterator[str]:
    """A view has one successor, at whomever and whatever became of them, unless an operator let its minority go on.

    Args:
        allowed: tags of the views where one did.
    """
    successors: dict[ViewId, Stay] = {}
    for node in nodes:
        for stay in stays(node):
            if stay.successor is None or stay.view.view_id.tag in allowed:
                continue
            other = successors.setdefault(stay.view.view_id, stay)
            if other.successor != stay.successor:
                yield (
                    f"primary: {stay.view} ({stay.view.view_id}) has two successors: {other.successor} at {other.node} "
                    f"and {stay.successor} at {stay.node}"
                )


def check_histories(nodes: Sequence[Node]) -> Iterator[str]:
    """A member that shared a history with others never gives way to a group founded apart (the cut, step 9)."""
    for node in nodes:
        end = node.log[-1] if node.log else None
        if isinstance(end, Excluded) and "founded apart" in end.reason:
            delivered = any(isinstance(entry, Delivered) and not entry.to for entry in node.log)
            if delivered and any(isinstance(entry, View) and len(entry.members) > 1 for entry in node.log):
                yield f"history: {node} and others had delivered messages, and it gave way: {end.reason}"


def _majority(view: View, ids: Collection[int]) -> bool:
    twice = 2 * sum(member.id in ids for member in view.members)
    return twice > len(view.members) or (twice == len(view.members) and view.members[0].id in ids)


def check_sides(nodes: Sequence[Node], sides: Sequence[Collection[int]]) -> Iterator[str]:
    """What is not yet as it must be while the network has fallen into sides (of node indices) and nothing else happens:
    who has a majority of its view on its side goes on with those, who has none was told so."""
    for side in sides:
        inside = [node for node in nodes if node.index in side and node.up and not node.endpoint.over]
        for node in inside:
            view = node.endpoint.view
            if view is None:
                continue
            # A member may be in a view of another group: both took it in when it joined.
            alive = {other.id for other in inside if other.endpoint.view == view}
            if all(member.id in alive for member in view.members):
                if node.told_minority:
                    yield f"primary: {node} reaches all of {view}, and is blocked"
            elif _majority(view, alive):
                yield f"primary: {node} is in {view} still, and can reach a majority of it"
            elif not node.told_minority:
                yield f"primary: {node} in {view} reaches no majority, and was not told so"


def check_filtered(nodes: Sequence[Node], deaf: Node, packets: Mapping[Node, int]) -> Iterator[str]:
    """What is not yet as it must be while one member has lost multicast, and nothing else happens: it is in no view
    with another, and the others send, unless they are no majority of a primary view, and were told so.

    Args:
        packets: how many each had sent some time ago. Where that grows, what waits to be sent waits for its turn.
    """
    up = [node for node in nodes if node.up and not node.endpoint.over]
    for node in up:
        view = node.endpoint.view
        if view is None:  # a minority takes nobody in
            continue
        rest = {other.id for other in up if other is not deaf and other.endpoint.view == view}
        if node.told_minority:
            if node is not deaf and _majority(view, rest) and len(view.members) > 2:
                yield f"filtered: {node} is blocked, and can reach a majority of {view} without {deaf}"
        elif len(view.members) > 1 and view.rank(deaf.id) >= 0:
            yield f"filtered: {node} is in {view}, where {deaf} sends or gets no multicast"
        elif node.pending and node.packets_sent == packets.get(node):
            yield f"filtered: {node} in {view} cannot send {len(node.pending)} messages"


def lost_majority(nodes: Sequence[Node]) -> bool:
    """All that are left in a view have lost its majority for good, and were told so: only an operator can help."""
    together: dict[View, list[Node]] = {}
    for node in nodes:
        if node.up and not node.endpoint.over and node.endpoint.view is not None:
            together.setdefault(node.endpoint.view, []).append(node)
    return bool(together) and all(
        not _majority(view, {node.id for node in group}) and all(node.told_minority for node in group)
        for view, group in together.items()
    )


def check_delivered(nodes: Sequence[Node]) -> Iterator[str]:
    """At the end: each member delivered all that it sent itself, and members of one last view delivered the same."""
    options = nodes[0].options
    alive = [node for node in nodes if node.up and not node.endpoint.over]
    if options.calm:
        for node in nodes:
            if node.up and any(isinstance(entry, Excluded) for entry in node.log):
                yield f"liveness: {node} was excluded, and nothing made it look dead"
            if node.error:
                yield f"liveness: {node} could not join: {node.error}"
            was_in = any(isinstance(entry, View) for entry in node.log)
            patient = was_in and node.drain_ns == max(DRAINS_NS) and not options.crashes
            if node.left is not None and not node.left.complete and node.inside and patient:
                yield f"liveness: {node} left with much patience, and was told that not all is delivered"
    last: dict[ViewId, Stay] = {}
    for node in alive:
        own = sum(isinstance(entry, Delivered) and entry.sender == node.id and not entry.to for entry in node.log)
        unordered = any(_never_ordered(entry) for entry in node.log)
        if own > node.counter or (own < node.counter and not unordered):
            yield f"liveness: {node} sent {node.counter} messages, and delivered {own} of them itself"
        stay = stays(node)[-1]
        yield from same(stay, last.setdefault(stay.view.view_id, stay), options.order != "fifo")
        for member in stay.view.members:
            peer = next(other for other in alive if other.id == member.id)
            yield from _check_unicasts(node, peer)
            yield from _check_lost(node, peer)


def _check_unicasts(node: Node, peer: Node) -> Iterator[str]:
    """All that ``peer`` sent to ``node`` since both are together was delivered."""
    begin = 0
    views: set[ViewId] = set()
    for index, entry in enumerate(node.log):
        if isinstance(entry, View):
            if _together(node, entry).rank(peer.id) < 0:
                begin = index
                views.clear()
            if entry.rank(peer.id) >= 0:
                views.add(entry.view_id)
    sent = sum(1 for (to, _), view_id in peer.sent_to.items() if to == node.id and view_id in views)
    late = node.log[begin:]
    got = sum(isinstance(entry, Delivered) and entry.sender == peer.id and bool(entry.to) for entry in late)
    if got < sent:
        yield f"liveness: {peer} sent {sent} unicasts to {node}, which delivered {got}"


def _check_lost(node: Node, peer: Node) -> Iterator[str]:
    """What ``peer`` sent while ``node`` was with it, and ``node`` did not deliver, ``peer`` was told of."""
    lost = [entry for entry in peer.log if isinstance(entry, Lost)]
    for there in stays(peer):
        here = next((stay for stay in stays(node) if stay.view.view_id == there.view.view_id), None)
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
                yield f"lost: {node} did not deliver {entry} in {there.view}, and {peer} was not told so"
                return


def digest(nodes: Sequence[Node], packets: int) -> str:
    """A digest of all that happened: equal runs have equal digests."""
    total = hashlib.blake2b(digest_size=8)
    total.update(str(packets).encode())
    for node in nodes:
        total.update(f"\n{node.name}\n".encode())
        for entry in node.log:
            total.update(_words(entry).encode())
    return total.hexdigest()


def _words(entry: Entry) -> str:
    if isinstance(entry, Delivered):
        return f"{entry.sender} {entry.counter} {entry.to} {entry.tag} {entry.global_seqno}\n"
    return f"{type(entry).__name__} {entry}\n"
