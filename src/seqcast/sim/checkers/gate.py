"""When an application was told that it may not send to the group, and that it may again; and its callbacks."""

from __future__ import annotations

from collections.abc import Iterator

from seqcast.events import Blocked, Unblocked
from seqcast.sim.record import Record
from seqcast.types import View


def check_gate(record: Record) -> Iterator[str]:
    """``Blocked`` and ``Unblocked`` alternate, and a view ends only when its members are blocked. A minority
    is reported even to a member that is blocked for another reason."""
    blocked: Blocked | None = None
    inside = False
    for told in record.gate:
        if isinstance(told, Blocked):
            if blocked and (told.kind != "minority" or blocked.kind == "minority"):
                yield f"gate: {record} is told {told} after {blocked}"
            blocked = told
        elif isinstance(told, Unblocked):
            if blocked is None or blocked.kind != told.kind:
                yield f"gate: {record} is told {told} after {blocked}"
            blocked = None
        else:
            if isinstance(told, View) and inside and not blocked:
                yield f"gate: {record} enters {told}, and was not told that the view before closes"
            inside = isinstance(told, View)


def check_callback_pairs(record: Record) -> Iterator[str]:
    """Block and unblock callbacks alternate."""
    blocked = False
    for blocks in record.callbacks:
        if blocks and blocked:
            yield f"callbacks: {record} is blocked twice"
        elif not blocks and not blocked:
            yield f"callbacks: {record} is unblocked, and was not blocked"
        blocked = blocks
