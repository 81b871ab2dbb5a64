"""Simulated waits until others have taken what was sent (``Group.wait_consumed``), and what such a wait promised."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from seqcast._native.engine import AGAIN, SENT, TakenWait
from seqcast.types import MergeView, View, ViewId

if TYPE_CHECKING:
    from seqcast.sim.node import Node

WAITS_MAX = 3
NUMBERS_MAX = 100


class Waits:
    """The waits of one node. It begins one now and then; when one ends, the logs of the others are looked at."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.rng = random.Random(f"waits {node.options.seed} {node.index}")  # of its own: the other choices stay
        self.under_way: list[tuple[TakenWait, list[int]]] = []
        # That were installed; who is in each; who came into it with this node, from the same side of a partition.
        self.views: list[tuple[ViewId, frozenset[int], frozenset[int]]] = []
        self.ended = 0

    def note_view(self, view: View) -> None:
        """The node's control plane installed it."""
        members = frozenset(member.id for member in view.members)
        groups = view.subgroups if isinstance(view, MergeView) else ()
        own = (frozenset(member.id for member in group.members) for group in groups)
        self.views.append((view.view_id, members, next((ids for ids in own if self.node.id in ids), members)))

    def begin(self) -> None:
        """Waits for what the engine has accepted until now."""
        node = self.node
        under_way = self.sending()
        numbers = [number for number in node.sent if number != under_way][-NUMBERS_MAX:]
        self.under_way.append((TakenWait(node.engine, node.now), numbers))

    def sending(self) -> int:
        """The number of the message to the group of which only a part is packed; -1: there is none."""
        node = self.node
        return node.counter if node.sending_now is not None and not node.pending[0][0] else -1

    def look(self) -> None:
        """Where the node's application runs: ends waits, and may begin one."""
        node = self.node
        for wait, numbers in list(self.under_way):
            state = wait.state()
            if state == AGAIN:
                continue
            self.under_way.remove((wait, numbers))
            if state == SENT and not wait.lost:
                self.ended += 1
                self.check(numbers)
        may = node.endpoint.view is not None and len(self.under_way) < WAITS_MAX
        if may and self.rng.random() < node.options.waits:
            self.begin()

    def check(self, numbers: list[int]) -> None:
        """Whoever was in all views since the one in which the sender itself took a message, and on its side of each
        partition, must have taken it. One that the sender has not taken is not judged: it may be on its way into
        another view."""
        node = self.node
        own = node.delivered_of(node.id)
        places = {view_id.tag: place for place, (view_id, *_) in enumerate(self.views)}
        for other in node.world.nodes:
            if other is node or not other.up:
                continue
            took = other.delivered_of(node.id)
            for number in numbers:
                if number in took or own.get(number) not in places:
                    continue
                since = self.views[places[own[number]] :]
                if any(view.view_id >= since[0][0] for view in other.voided):
                    continue  # it is in the state that this member took over
                if other.id in since[0][1] and all(other.id in together for _, _, together in since[1:]):
                    node.violations.append(f"taken: {node} was told that {other} has number {number}, which it has not")
                    return
