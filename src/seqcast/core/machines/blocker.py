"""The application's block callback: one run before the gate closes, until a deadline (the cut, step 2).

The callback runs on a separate thread; the machine knows only whether a run is under way, and how long others wait. A
view change and a pause that come together share one run: once the callback has run, no further call comes until the
gate has opened. A member that leaves runs the callback once more if due, with sends still open, and then never again. A
view that did not wait for this last run does not end that.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import CallbackOver, CallBlock, CallUnblock, Warn


class BlockerState(Enum):
    IDLE = auto()
    RUNNING = auto()
    BLOCKED = auto()
    OVER = auto()


class BlockerEvent(Enum):
    ASK = auto()
    RETURNED = auto()
    DEADLINE = auto()
    OPENED = auto()
    END = auto()


S, E = BlockerState, BlockerEvent


class Blocker(TableMachine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.IDLE, context.edges)
        self.context = context
        self.run = 0  # the number of the last run
        self.due_ns = NEVER
        self.trouble = ""  # of the last run, until the application is told
        self.leaves = False
        self.queued = 0  # messages that had ever waited for the gate when the last run was over

    @property
    def running(self) -> bool:
        return self.state is S.RUNNING

    @property
    def done(self) -> bool:
        """No wait is needed: the callback has run since the gate opened, or none exists, or sends are over."""
        return not self.context.settings.blocks or self.state in (S.BLOCKED, S.OVER)

    # ---- inputs

    def ask(self) -> None:
        """Runs the callback, if the application has one."""
        if self.context.settings.blocks:
            self.fire(E.ASK)

    def ask_last(self) -> None:
        """The same, for the last time: the application leaves."""
        self.leaves = True
        self.ask()

    def returned(self, run: int, trouble: str) -> None:
        """The run of this number returned; ``trouble``: its error."""
        self.context.counters["callbacks_failed"] += bool(trouble)
        self.fire(E.RETURNED, run, trouble)

    def opened(self) -> None:
        """The gate opened, or no pause is left."""
        self.fire(E.OPENED)

    def end(self) -> None:
        """The application sends nothing more."""
        self.fire(E.END)

    def take_trouble(self) -> str:
        """The error of the last run, once; "" if nothing did."""
        trouble, self.trouble = self.trouble, ""
        return trouble

    def due(self) -> int:
        return self.due_ns

    def run_timers(self) -> None:
        self.fire(E.DEADLINE)

    # ---- guards

    def of_this_run(self, run: int, _trouble: str) -> bool:
        return run == self.run

    def is_last(self) -> bool:
        return self.leaves

    # ---- actions

    def call(self) -> None:
        self.run += 1
        self.trouble = ""
        self.due_ns = self.context.now + self.context.settings.block_deadline_ns
        self.context.emit(CallBlock(self.run))

    def note_trouble(self, run: int, trouble: str) -> None:
        if run == self.run and trouble:
            self.trouble = trouble

    def count_late(self, _run: int, _trouble: str) -> None:
        self.context.counters["callbacks_late"] += 1

    def stop(self, *_: object) -> None:
        self.due_ns = NEVER

    def note_queued(self, *_: object) -> None:
        self.queued = self.context.plane.queued()

    def warn(self) -> None:
        seconds = self.context.settings.block_deadline_ns / 1e9
        self.trouble = f"on_block did not return within {seconds:g} s, and the group continued"
        self.context.emit(Warn(codes.CALLBACK_LATE(f"{self.trouble}; make it quicker, or raise block_deadline_s")))

    def tell_done(self, *_: object) -> None:
        self.context.emit(CallbackOver())

    def unblock(self) -> None:
        self.context.emit(CallUnblock())

    TABLE: ClassVar[Table] = table(
        "blocker",
        S,
        E,
        (S.IDLE, E.ASK, S.RUNNING, call, "the initiator of a view change, or the owner of a pause, asks"),
        (S.RUNNING, E.ASK, None, IGNORED, "asked again, or by another member: one run serves both"),
        (S.BLOCKED, E.ASK, None, IGNORED, "the callback has run, and the gate has not opened since"),
        (S.OVER, E.ASK, None, IGNORED, "the callback could send nothing"),
        (
            S.RUNNING,
            (E.RETURNED, of_this_run),
            S.BLOCKED,
            (note_trouble, stop, note_queued, tell_done),
            "the callback returned or raised",
        ),
        (S.RUNNING, E.RETURNED, None, IGNORED, "a run before this one, whose deadline had passed"),
        (None, E.RETURNED, None, (count_late, note_trouble), "after its deadline"),
        (
            S.RUNNING,
            E.DEADLINE,
            S.BLOCKED,
            (stop, note_queued, warn, tell_done),
            "the group continues without the callback (E-17)",
        ),
        (None, E.DEADLINE, None, ILLEGAL, "the deadline runs only with the callback"),
        (
            (S.IDLE, S.OVER),
            E.OPENED,
            None,
            IGNORED,
            "the gate opens, and no callback had run, or the application leaves",
        ),
        (S.RUNNING, (E.OPENED, is_last), None, IGNORED, "a leaver's run, for which the view did not wait, goes on"),
        (None, E.OPENED, S.IDLE, (stop, unblock), "the gate opens"),
        (S.RUNNING, E.END, S.OVER, (stop, note_queued, tell_done), "the application leaves, and its time is up"),
        (None, E.END, S.OVER, (stop, note_queued), "the application leaves"),
    )
