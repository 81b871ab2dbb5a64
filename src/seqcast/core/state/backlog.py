"""Holds a joiner's deliveries until its application has the state (the cut, step 10).

The state is taken at a boundary: the beginning of one view. Group messages from before are dropped, because the state
includes their effect. Unicasts are in nobody's state: those from before the boundary are kept and delivered after the
state. From the boundary on everything is held, in order, until the application has the state.

The backlog is bounded. While it is full, nothing is taken from the engine, and senders wait for credit.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import ClassVar

from seqcast._native.engine import Batch
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.core.vocabulary import Meaning
from seqcast.events import Blocked, Unblocked
from seqcast.types import View

BATCH_OVERHEAD = 1024
"""Overhead that is counted for each batch, bytes."""

Item = Batch | Meaning


class BacklogState(Enum):
    IDLE = auto()
    VOID = auto()
    OPEN = auto()
    BLOCKED = auto()


class BacklogEvent(Enum):
    RESTARTED = auto()
    BATCH = auto()
    BOUNDARY = auto()
    BLOCKED = auto()
    UNBLOCKED = auto()
    OTHER = auto()
    RELEASED = auto()


HELD = (BacklogState.OPEN, BacklogState.BLOCKED)


class Backlog(TableMachine):
    """
    Args:
        bytes_max: of held messages, with an overhead for each batch; then it is full.
        edges: of the endpoint.
    """

    def __init__(self, bytes_max: int, edges: set[Edge]) -> None:
        super().__init__(BacklogState.IDLE, edges)
        self.bytes_max = bytes_max
        self.items: deque[Item] = deque()
        self.kept: list[Batch] = []  # unicasts from before the boundary
        self._boundary = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._bytes >= self.bytes_max

    @property
    def behind_boundary(self) -> bool:
        """The boundary was delivered. Its view is installed before the boundary is named, so an end of the stream comes
        later."""
        return self.state in HELD

    def restart(self, boundary: int) -> None:
        """Input: the state is taken at the view with the tag ``boundary``."""
        items, self.items, self._bytes = self.items, deque(), 0
        self._boundary = boundary
        self.fire(BacklogEvent.RESTARTED)
        for item in items:
            self.add(item)

    def release(self) -> deque[Item]:
        """Input: the application has the state. Returns the items to deliver first, in order."""
        self.fire(BacklogEvent.RELEASED)
        items, self.items = self.items, deque()
        return items

    def add(self, item: Item) -> None:
        """Input: the next delivery."""
        match item:
            case Batch():
                event = BacklogEvent.BATCH
            case View() if item.view_id.tag == self._boundary:
                event = BacklogEvent.BOUNDARY
            case Blocked():
                event = BacklogEvent.BLOCKED
            case Unblocked():
                event = BacklogEvent.UNBLOCKED
            case _:
                event = BacklogEvent.OTHER
        self.fire(event, item)

    # ---- actions

    def hold(self, item: Item) -> None:
        self.items.append(item)
        if isinstance(item, Batch):
            self._bytes += item.data.nbytes + 4 * len(item) + BATCH_OVERHEAD

    def keep_unicasts(self, batch: Batch) -> None:
        unicasts = batch.unicasts()
        if unicasts is not None:
            self.kept.append(unicasts)

    def hold_unicasts(self, _item: Item) -> None:
        kept, self.kept = self.kept, []
        for batch in kept:
            self.hold(batch)

    S, E = BacklogState, BacklogEvent
    TABLE: ClassVar[Table] = table(
        "backlog",
        S,
        E,
        (None, E.RESTARTED, S.VOID, (), "a provider was named: all from before its boundary is void"),
        (S.VOID, E.BATCH, None, keep_unicasts, "the state has the effect of messages to the group, not of unicasts"),
        (HELD, E.BATCH, None, hold, "after the boundary"),
        (S.VOID, E.BOUNDARY, S.OPEN, (hold, hold_unicasts), "the view at whose beginning the state was taken"),
        (HELD, E.BOUNDARY, None, ILLEGAL, "a view is entered once"),
        (S.VOID, E.BLOCKED, None, IGNORED, "void: the application is not in that view"),
        (HELD, E.BLOCKED, S.BLOCKED, hold, "after the boundary"),
        (S.VOID, E.UNBLOCKED, None, IGNORED, "void"),
        (S.OPEN, E.UNBLOCKED, None, IGNORED, "its Blocked was void"),
        (S.BLOCKED, E.UNBLOCKED, S.OPEN, hold, "after the boundary"),
        (S.VOID, E.OTHER, None, IGNORED, "views before the boundary, and everything in them, are void"),
        (HELD, E.OTHER, None, hold, "after the boundary"),
        (HELD, E.RELEASED, S.IDLE, (), "the application has the state"),
        ((S.IDLE, S.VOID), E.RELEASED, None, ILLEGAL, "released once, after the boundary"),
        (S.IDLE, E.BATCH, None, ILLEGAL, "nothing is taken before a provider is named"),
        (S.IDLE, E.BOUNDARY, None, ILLEGAL, "nothing is taken before a provider is named"),
        (S.IDLE, E.BLOCKED, None, ILLEGAL, "nothing is taken before a provider is named"),
        (S.IDLE, E.UNBLOCKED, None, ILLEGAL, "nothing is taken before a provider is named"),
        (S.IDLE, E.OTHER, None, ILLEGAL, "nothing is taken before a provider is named"),
    )
