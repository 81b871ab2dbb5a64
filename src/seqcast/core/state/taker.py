"""Which provider a member gets the group's state from, as agreed by VIEW (the cut, step 10).

A member that takes part and is not the first of its group lacks the state until a provider has sent it. For each such
member the VIEW names its provider and the *boundary*: the view at whose beginning the provider takes its state. The
transfer continues over later views as long as provider and boundary stay the same. If the provider is gone or was
passed over, the VIEW names another one, with a new boundary, and the transfer starts again. Members report in their OK
whether they lack the state, so the initiator knows of all of them.

After a merge, members that had the state of their part lack the merged one, or that of the part whose state was chosen.
Their application is *inside*: it keeps its state, and stops at the boundary until the other one has come. Between its
OK and the VIEW a member does not take over a state that arrives: the VIEW relies on its OK, and may name another
provider, or none.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

import seqcast.codes as codes
from seqcast.core.context import Context, Repeat
from seqcast.core.frames.view import WHOLE, NewView, ViewWanted
from seqcast.core.state.providers import can_merge, labels_of
from seqcast.core.table import IGNORED, ILLEGAL, Table, TableMachine, table
from seqcast.core.vocabulary import LeaveGroup, StateHeld, StateLost, StatePlan, TakeState, Warn


class StateTakerState(Enum):
    OUT = auto()
    LACKING = auto()
    ASKING = auto()
    HELD = auto()
    LOST = auto()


class StateTakerEvent(Enum):
    FORMED = auto()
    NAMED = auto()
    SAME = auto()
    KEPT = auto()
    NOBODY = auto()
    ARRIVED = auto()
    REFUSED = auto()
    REPEAT = auto()


S, E = StateTakerState, StateTakerEvent


class StateTaker(TableMachine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.OUT, context.edges)
        self.context = context
        self.plan: StatePlan | None = None
        self.inside = False
        """Its application has a state and is receiving."""
        self.early = False
        """The state arrived after our OK; the VIEW decides whether this is the group's."""
        self.passed: tuple[int, ...] = ()
        self.reasons: list[str] = []
        self.asks = Repeat(context.settings.repeat_ns_min, context.settings.repeat_ns_max)

    # ---- inputs

    def view(self, frame: NewView) -> None:
        """A VIEW that we are about to install."""
        me = self.context.me
        if not me.state:
            return
        mine = [provision for provision in frame.providers if provision.joiner == me.id]
        if frame.closes is None:
            self.fire(E.FORMED)
        elif labels_of(frame)[me.id] == WHOLE:
            self.fire(E.KEPT, "by the VIEW this member has the state, but nobody gave any: join again", frame)
        elif not mine:
            # The VIEW names only those that stay, and the last members with a state may leave with it.
            self.fire(
                E.NOBODY,
                "no member that has the state is left: join again"
                if frame.stateful
                else "no member of the group was joined with a state handler: join without one, or give them one",
            )
        else:
            merges = frame.merger >= 0 and frame.members[frame.merger].id == me.id
            plan = StatePlan(mine[0].boundary, tuple(each.provider for each in mine), merges)
            self.fire(E.SAME if plan == self.plan else E.NAMED, plan)

    def arrived(self, boundary: int) -> None:
        """All of the state of this boundary is here."""
        if self.plan is not None and boundary == self.plan.boundary:
            self.fire(E.ARRIVED)

    def refused(self, boundary: int, reason: str, provider: int) -> None:
        """The provider of this boundary cannot give the state, or sent none in time."""
        if self.plan is None or boundary != self.plan.boundary:
            return
        self.fire(E.REFUSED, reason, provider or self.plan.providers[0])

    def due(self) -> int:
        return self.asks.due

    def run_timers(self) -> None:
        if self.asks.take(self.context.now):
            self.fire(E.REPEAT)

    # ---- guards

    def another_is_left(self, _reason: str, provider: int) -> bool:
        """Another member may have the state; or this one merges the states that are left."""
        assert self.plan is not None
        tried = {self.context.me.id, provider, *self.passed}
        return self.plan.merges or any(info.state and info.id not in tried for info in self.context.infos.values())

    def is_closing(self) -> bool:
        """We have answered a START: the VIEW goes by our OK. In a primary partition nothing is merged, and
        one state is as good as another."""
        return self.context.answered == self.context.tag and not self.context.primary

    def came_early(self, _: StatePlan | str) -> bool:
        return self.early

    def never_merges(self, _: StatePlan) -> bool:
        return self.context.primary

    # ---- actions

    def take(self, plan: StatePlan) -> None:
        self.asks.stop()
        self.early = False
        for provider in self.plan.providers if self.plan is not None else ():
            self.context.plane.state_void(provider)
        for provider in plan.providers:
            self.context.plane.state_want(provider)
        self.context.lacks = self.passed
        self._tell(plan)
        if not self.inside:
            self.context.emit(TakeState(plan.providers[0], plan.boundary))

    def note_early(self) -> None:
        self.early = True

    def have(self, *_: object) -> None:
        """The state that arrived is the group's, or ours is: we are the group's first."""
        plan = self._end()
        if not self.inside:
            self.context.emit(StateHeld(plan.boundary if plan is not None else 0))
        elif plan is not None:
            self._tell(replace(plan, held=True))
        self.inside = True

    def keep(self, _reason: str, frame: NewView) -> None:
        """The state of our part is the group's: no other is left, or all others take over this one."""
        self._end()
        if self.inside and not can_merge(frame.members):
            text = "the members whose state was to be taken over are gone: that of this member holds"
            self.context.emit(Warn(codes.STATE_LOST(text)))
        self._tell(None)

    def pass_over(self, reason: str, provider: int) -> None:
        self.passed += (provider,)
        self.reasons.append(reason)
        self.context.lacks = self.passed
        self.context.plane.state_void(provider)

    def begin_asking(self, *_: object) -> None:
        self.asks.start(self.context.now)

    def ask(self, *_: object) -> None:
        if self.context.view is None:  # excluded, or left, meanwhile: there is nobody to ask
            self.asks.stop()
            return
        self.context.multicast(ViewWanted(self.context.tag))

    def lose(self, reason: str, *_: object) -> None:
        self.asks.stop()
        self.context.plane.state_void(0)
        self.context.lacks = self.passed
        self.context.lost = True
        self.context.emit(StateLost("; ".join(dict.fromkeys([*self.reasons, reason])), self.inside))
        if self.inside:  # its application receives, and would not learn of it
            self.context.emit(LeaveGroup(0))

    def _end(self) -> StatePlan | None:
        plan, self.plan = self.plan, None
        self.asks.stop()
        self.early, self.passed, self.reasons = False, (), []
        self.context.plane.state_void(0)
        self.context.lacks = None
        return plan

    def _tell(self, plan: StatePlan | None) -> None:
        """For an application that is inside, on its receiving thread."""
        self.plan = plan if plan is None or not plan.held else None
        if self.inside:
            self.context.plan = plan
            self.context.emit(plan or StatePlan(0, ()))

    TABLE: ClassVar[Table] = table(
        "state",
        S,
        E,
        (S.OUT, E.FORMED, S.HELD, have, "the first member of a group: its state is the group's"),
        (None, E.FORMED, None, ILLEGAL, "a first view is formed once"),
        (S.OUT, E.NAMED, S.LACKING, take, "admitted: the VIEW names a provider"),
        ((S.LACKING, S.ASKING), E.NAMED, S.LACKING, take, "another provider and a new boundary: start again"),
        (S.HELD, (E.NAMED, never_merges), None, IGNORED, "the state arrived while the cut was agreed"),
        (S.HELD, E.NAMED, S.LACKING, take, "a merge: the state of its part alone is merged or replaced"),
        (S.LOST, E.NAMED, None, IGNORED, "the transfer was given up while the cut was agreed"),
        (S.OUT, E.SAME, None, ILLEGAL, "no provider was named before"),
        (S.LACKING, (E.SAME, came_early), S.HELD, have, "the state arrived while the cut was agreed"),
        (None, E.SAME, None, IGNORED, "the transfer continues, or we passed the provider over after our OK"),
        (S.OUT, E.KEPT, S.LOST, lose, "an invalid VIEW: no provider was ever named"),
        ((S.LACKING, S.ASKING), E.KEPT, S.HELD, keep, "nobody is left to merge with"),
        (None, E.KEPT, None, IGNORED, "the member has the state, or is about to leave"),
        (S.LACKING, (E.NOBODY, came_early), S.HELD, have, "the state arrived while the cut was agreed"),
        ((S.OUT, S.LACKING, S.ASKING), E.NOBODY, S.LOST, lose, "no member has the state, or is left to give one"),
        (None, E.NOBODY, None, IGNORED, "the VIEW names providers only for members that lack the state"),
        (S.LACKING, (E.ARRIVED, is_closing), None, note_early, "the VIEW follows our OK, and may name another one"),
        (S.LACKING, E.ARRIVED, S.HELD, have, "all parts have come, and the checksum is right"),
        (S.OUT, E.ARRIVED, None, ILLEGAL, "nothing was awaited"),
        (None, E.ARRIVED, None, IGNORED, "from a provider that was passed over"),
        (
            S.LACKING,
            (E.REFUSED, another_is_left),
            S.ASKING,
            (pass_over, begin_asking, ask),
            "the provider cannot, or nothing came: another one",
        ),
        (S.LACKING, E.REFUSED, S.LOST, (pass_over, lose), "the provider cannot, and there is no other"),
        (S.OUT, E.REFUSED, None, ILLEGAL, "nothing was awaited"),
        (None, E.REFUSED, None, IGNORED, "known"),
        (S.ASKING, E.REPEAT, None, ask, "no VIEW names another provider yet"),
        (None, E.REPEAT, None, ILLEGAL, "the timer runs only while asking"),
    )
