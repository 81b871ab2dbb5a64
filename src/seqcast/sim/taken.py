"""Simulated waits until others have taken all sent messages (``Group.wait_consumed``)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from seqcast._native.engine import AGAIN, SENT, Engine, TakenWait
from seqcast.sim.record import Record, Together
from seqcast.types import View

WAITS_MAX = 3
NUMBERS_MAX = 100


class WaitingProcess(Protocol):
    """The interface of a process to waits."""

    engine: Engine

    @property
    def now(self) -> int: ...
    def poke(self) -> None: ...
    def taken(self, numbers: Sequence[int], since: Sequence[Together]) -> None: ...


class Waits:
    """The waits of one application: begins one at random times, and reports the end of each."""

    def __init__(self, machine: WaitingProcess, record: Record) -> None:
        self.machine, self.record = machine, record
        # A source of its own: the other choices stay.
        self.rng = random.Random(f"waits {record.options.seed} {record.index}")
        self.views: list[Together] = []  # that were installed
        self.ended = 0

    def note_view(self, view: View) -> None:
        members = frozenset(member.id for member in view.members)
        own = frozenset(member.id for member in self.record.together(view).members)
        self.views.append(Together(view.view_id, members, own))

    def begin(self) -> None:
        """Waits for all messages whose sends have returned."""
        sent, counter = self.record.sent, self.record.counter
        numbers = [number for number in range(max(counter - NUMBERS_MAX, 0), counter) if number in sent]
        self.record.waits.append((TakenWait(self.machine.engine, self.machine.now), numbers))
        self.machine.poke()

    def look(self, inside: bool) -> None:
        """Ends waits, and may begin one if the application is ``inside`` a view."""
        record = self.record
        for wait, numbers in list(record.waits):
            state = wait.state()
            if state == AGAIN:
                continue
            record.waits.remove((wait, numbers))
            if state == SENT and not wait.lost:
                self.ended += 1
                self.machine.taken(numbers, self.views)
        if inside and len(record.waits) < WAITS_MAX and self.rng.random() < record.options.waits:
            self.begin()
