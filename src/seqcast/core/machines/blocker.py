"""The application's block callback: run once before the gate closes, answered for by a deadline (the cut, step 2).

The callback runs on a thread of the application's side; here is only whether it runs, and until when it is waited for.
A view change and a pause that come together share one run: who has run its callback is blocked, until the gate opens.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER, Context
from seqcast.core.table import IGNORED, ILLEGAL, Machine, Table, table
from seqcast.core.vocabulary import CallBlock, CallUnblock, Warn


class Blocking(Enum):
    IDLE = auto()
    RUNNING = auto()
    BLOCKED = auto()


class BlockInput(Enum):
    ASK = auto()
    RETURNED = auto()
    DEADLINE = auto()
    OPENED = auto()


B, I = Blocking, BlockInput  # noqa: E741
TABLE: Table = table(
    "blocker",
    B,
    I,
    (B.IDLE, I.ASK, B.RUNNING, "call", "an initiator, or who pauses the group, asks"),
    (B.RUNNING, I.ASK, None, IGNORED, "asked again, or by another one too: the one run serves both"),
    (B.BLOCKED, I.ASK, None, IGNORED, "it has run, and the gate has not opened since"),
    (B.RUNNING, I.RETURNED, B.BLOCKED, "stop", "it returned or raised"),
    (None, I.RETURNED, None, IGNORED, "after its deadline"),
    (B.RUNNING, I.DEADLINE, B.BLOCKED, "stop warn", "the group goes on without it (E-17)"),
    (None, I.DEADLINE, None, ILLEGAL, "the deadline runs with the callback"),
    (B.IDLE, I.OPENED, None, IGNORED, "the gate opens, and nobody had asked"),
    (None, I.OPENED, B.IDLE, "stop unblock", "the gate opens"),
)


class Blocker(Machine):
    TABLE: ClassVar[Table] = TABLE

    def __init__(self, context: Context) -> None:
        super().__init__(Blocking.IDLE, context.edges)
        self.context = context
        self.run = 0  # the number of the last run
        self.due_ns = NEVER
        self.trouble = ""  # of the last run, for the owner

    def ask(self) -> bool:
        """Has the callback run, if there is one. True: it need not be waited for."""
        if not self.context.settings.blocks:
            return True
        self.fire(BlockInput.ASK)
        return self.state is Blocking.BLOCKED

    def returned(self, run: int, trouble: str) -> None:
        """The run of this number returned; ``trouble``: what it raised."""
        if run == self.run and trouble:
            self.trouble = trouble
        if run == self.run:
            self.fire(BlockInput.RETURNED)

    def opened(self) -> None:
        self.fire(BlockInput.OPENED)

    def due(self) -> int:
        return self.due_ns

    def run_timers(self) -> None:
        self.fire(BlockInput.DEADLINE)

    # ---- actions

    def call(self) -> None:
        self.run += 1
        self.trouble = ""
        self.due_ns = self.context.now + self.context.settings.block_deadline_ns
        self.context.emit(CallBlock(self.run))

    def stop(self) -> None:
        self.due_ns = NEVER

    def warn(self) -> None:
        seconds = self.context.settings.block_deadline_ns / 1e9
        self.trouble = f"on_block did not return within {seconds:g} s, and the group went on"
        self.context.emit(Warn(f"{self.trouble}; make it quicker, or raise block_deadline_s"))

    def unblock(self) -> None:
        self.context.emit(CallUnblock())
