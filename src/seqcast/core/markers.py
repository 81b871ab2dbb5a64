"""The markers in this member's delivery stream, and the meaning of each to the application.

A marker stands between two packets, so that the application learns of a view or a block in its true place among the
messages. Its meaning is registered before the engine gets it, because another thread delivers.
"""

from __future__ import annotations

import seqcast.codes as codes
from seqcast.core.context import NEVER, Context
from seqcast.core.log import LogLines
from seqcast.core.vocabulary import Meaning, Minority
from seqcast.core.wiring import Machines
from seqcast.events import Blocked, CoordinatorChanged, InterfaceChanged, Unblocked
from seqcast.types import Member, MergeView, View

LONG_NS = 1_000_000_000
"""If sending is closed for this long, a warning names those that are waited for."""


class Markers:
    def __init__(self, context: Context, machines: Machines, log: LogLines) -> None:
        self.context, self.machines, self.log = context, machines, log
        self.long_ns = NEVER  # time at which sending is long closed
        self._meanings: dict[int, tuple[Meaning, ...]] = {}
        self._last = 0
        self._blocked = ""  # kind of the last reported `Blocked`, until `Unblocked`
        self._acts: Member | None = None  # who the application knows to act in this view; None: its coordinator
        self.closed = ""  # why sends to the group wait, whether that is reported or not; "": they do not

    def add(self, *meaning: Meaning) -> int:
        """Registers a marker with these meanings, in order; returns it for the engine."""
        self._last += 1
        self._meanings[self._last] = meaning
        return self._last

    def take(self, marker: int) -> tuple[Meaning, ...]:
        """The meaning of a marker. Call once for each marker, from any thread."""
        return self._meanings.pop(marker)

    def tell_interface(self, change: InterfaceChanged) -> None:
        """Reports a change of the interface; outside a view there is no stream for that."""
        if self.context.view is not None:
            self.context.plane.mark(self.add(change))

    # ---- who coordinates

    def tell_coordinator(self) -> None:
        """Within a view: the acting member."""
        context, membership = self.context, self.machines.membership
        if context.view is None or not context.settings.coordinator_events:
            return
        view = context.view
        acting, before = membership.acting_member(), self._acts or view.coordinator
        if acting in (0, before.id):
            return
        acts = self._acts = next(member for member in view.members if member.id == acting)
        if view.members.index(acts) < view.members.index(before):
            reason = f"{acts.name} is no longer doubted"
        else:
            reason = f"{before.name} is doubted: {membership.reasons().get(before.id, 'the reason is gone')}"
        context.plane.mark(self.add(CoordinatorChanged(acts, before, view.view_id, False, reason)))

    def new_coordinator(self, view: View, old: View | None) -> tuple[CoordinatorChanged, ...]:
        """The event that follows a view, if the coordinator is not that of the view before."""
        self._acts = None
        if old is None or not self.context.settings.coordinator_events or view.coordinator.id == old.coordinator.id:
            return ()
        if old.coordinator not in view.members:
            reason = f"{old.coordinator.name} is not in the view"
        elif isinstance(view, MergeView):
            reason = "separated groups merged"
        else:
            reason = "the order of the members changed"
        return (CoordinatorChanged(view.coordinator, old.coordinator, view.view_id, True, reason),)

    # ---- reports of the gate to the application

    def tell_blocked(self, kind: str, reason: str) -> None:
        """Reports a block, unless one was reported already; always reports a minority."""
        if not self.closed:
            self.long_ns = self.context.now + LONG_NS
        self.closed = reason
        minority = kind == "minority" and self._blocked != kind
        if minority:
            self.context.hand_out(Minority(reason))
        if minority or (self.context.settings.block_events and not self._blocked):
            self._blocked = kind
            self.context.plane.mark(self.add(Blocked(kind, reason)))

    def open_pause(self, reason: str) -> None:
        """Reports the end of a pause before the engine continues: the application learns of the end before anything is
        sent."""
        if not self.machines.participant.promised and (told := self.unblocked(reason)):
            self.context.plane.mark(self.add(*told))
        self.context.plane.resume()

    def unblocked(self, reason: str) -> tuple[Unblocked, ...]:
        """The ``Unblocked`` for the last ``Blocked``, if any; goes into the stream before the gate opens, or with the
        view."""
        kind, self._blocked = self._blocked, ""
        self.closed, self.long_ns = "", NEVER
        if trouble := self.machines.blocker.take_trouble():
            reason = f"{reason}; {trouble}"
        return (Unblocked(kind, reason),) if kind else ()

    def forget_block(self) -> None:
        """The membership ends: ``Unblocked`` does not follow."""
        self._blocked, self.closed, self.long_ns = "", "", NEVER

    # ---- sending is closed for long

    def due(self) -> int:
        return self.long_ns

    def run_timers(self) -> None:
        """A minority was told with all its names before."""
        self.long_ns = NEVER
        if not self.machines.participant.minority:
            me, seconds = self.context.me.name, LONG_NS / 1e9
            text = codes.LONG_WAIT("%s: sends have waited for %g s: %s%s")
            self.log.warn("flush", text, me, seconds, self.closed, self._awaited())

    def _awaited(self) -> str:
        """Who holds up the view change that runs, as far as this member knows."""
        initiator, infos = self.machines.initiator, self.context.infos
        if initiator.running:
            names = sorted(infos[each].name for each in initiator.missing if each in infos)
            return f", and no answer has come from {', '.join(names)}" if names else ""
        if self.machines.participant.promised:
            return f" by {self.log.name(self.machines.participant.initiator)}"
        return ""
