"""The application's state at the beginning of a view: giving it to joiners, and making one of the states of several
parts.

At the beginning of each view the application of a provider gives its state to the provider's joiners. If states are
merged, all applications stop at this boundary until they have the merged state; the merger gives that to its joiners.
If states cannot be merged, the applications of the other parts stop until they have taken over the chosen state.

``taker.py`` agrees with the group on the plan: one member, the merger, gets the states of the other parts and merges
them into its own, and all others take over the result; or all others take over that of one part. This machine decides
where a receiving application stops, which bytes belong to which state, when a provider is given up, and when the
application continues. If a later view replaces the plan, the application continues with its own state. Messages of the
group wait in the engine meanwhile, and senders wait for credit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Protocol

from seqcast.core.context import NEVER
from seqcast.core.state.chunks import Incoming
from seqcast.core.table import IGNORED, ILLEGAL, Edge, Table, TableMachine, table
from seqcast.core.vocabulary import LeaveGroup, StateArrived, StatePlan, StateRefused
from seqcast.errors import RemoteProtocolError, without_code


class Boundaries(Protocol):
    """The endpoint's interface for the beginnings of views; see ``Endpoint``."""

    @property
    def edges(self) -> set[Edge]: ...
    def joiners_of(self, tag: int) -> tuple[int, ...]: ...
    def plan_at(self, tag: int) -> StatePlan | None: ...


@dataclass(frozen=True, slots=True)
class GiveState:
    """Take the application's state now, and send that to these joiners as the state of the beginning of the view with
    this tag."""

    boundary: int
    joiners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromiseState:
    """These joiners wait until states are merged: tell them so. ``GiveState`` follows, for those that still wait."""

    boundary: int
    joiners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BreakPromise:
    """No ``GiveState`` follows the last ``PromiseState``: tell those joiners nothing more."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Drop the states received so far, and begin to read the first provider's."""


@dataclass(frozen=True, slots=True)
class Part:
    """The next bytes of the state of ``provider``."""

    provider: int
    data: bytearray


@dataclass(frozen=True, slots=True)
class Reconcile:
    """All states are here: the application merges them into its own (``merges``), or takes over the one that came.
    ``read``, then ``loaded`` or ``failed``, follow."""

    merges: bool


@dataclass(frozen=True, slots=True)
class GoOn:
    """The application continues to receive; ``reconciled``: with the merged state."""

    reconciled: bool


@dataclass(frozen=True, slots=True)
class GiveUpMerge:
    """The application cannot have the merged state; this member leaves. ``error``: why."""

    error: str


StateMergeEffect = (
    GiveState
    | PromiseState
    | BreakPromise
    | Gather
    | Part
    | StateArrived
    | StateRefused
    | Reconcile
    | GoOn
    | GiveUpMerge
    | LeaveGroup
)
"""Effects for the runner. ``StateArrived``, ``StateRefused``, ``LeaveGroup``: as inputs of the endpoint."""


class StateMergeState(Enum):
    GOING = auto()
    GATHERING = auto()
    REPORTED = auto()
    RECONCILING = auto()
    OUT = auto()


class StateMergeEvent(Enum):
    REACHED = auto()
    LOOK = auto()
    NEXT = auto()
    COMPLETE = auto()
    UNFIT = auto()
    DUE = auto()
    READ = auto()
    LOADED = auto()
    FAILED = auto()
    OVER = auto()


S, E = StateMergeState, StateMergeEvent


class StateMerge(TableMachine):
    """
    Args:
        timeout_ns: how long a provider may be silent, and how long the application may work on a state without a read.
        name_of: the name of a member, for errors.
        endpoint: of this member.
    """

    def __init__(self, timeout_ns: int, name_of: Callable[[int], str], endpoint: Boundaries) -> None:
        super().__init__(S.GOING, endpoint.edges)
        self._endpoint = endpoint
        self.plan = StatePlan(0, ())
        self.incoming = Incoming(0)
        """Where the next bytes of the provider go; another one after each ``Gather``, and for each provider."""
        self._timeout_ns = timeout_ns
        self._name_of = name_of
        self._left: list[int] = []
        self._promised = False
        self._now = 0
        self._deadline_ns = NEVER
        self._effects: list[StateMergeEffect] = []

    # ---- inputs, each of which returns effects

    def reached(self, tag: int, now_ns: int) -> list[StateMergeEffect]:
        """The application has come to the beginning of the view with this tag."""
        return self._take(now_ns, E.REACHED, self._endpoint.plan_at(tag), tag)

    def look(self, now_ns: int) -> list[StateMergeEffect]:
        """To be called whenever the plan may have changed, or the timer is due."""
        effects = self._take(now_ns, E.LOOK, self._endpoint.plan_at(self.plan.boundary))
        return effects + (self._take(now_ns, E.DUE) if now_ns >= self._deadline_ns else [])

    def given(self, now_ns: int) -> None:
        """The application has given its state, and reads again; that may have taken longer than a provider may be
        silent."""
        if self.receiving:
            self._now = now_ns
            self.extend_deadline()

    def filled(self, incoming: Incoming, count: int, now_ns: int) -> list[StateMergeEffect]:
        """``count`` bytes of the provider are in ``incoming.room``."""
        if incoming is not self.incoming:  # the plan has changed meanwhile
            return []
        try:
            chunk = incoming.filled(count)
        except RemoteProtocolError as error:
            return self._take(now_ns, E.UNFIT, without_code(error))
        if incoming.begun:
            self._deadline_ns = now_ns + self._timeout_ns
        if incoming.refusal is not None:
            return self._take(now_ns, E.UNFIT, incoming.refusal)
        if incoming.over:
            return self._take(now_ns, E.NEXT if len(self._left) > 1 else E.COMPLETE)
        return [Part(self.provider, chunk)] if chunk else []

    def read(self, now_ns: int) -> list[StateMergeEffect]:
        """The application reads from a state while at work."""
        return self._take(now_ns, E.READ)

    def loaded(self, now_ns: int) -> list[StateMergeEffect]:
        """The application has the merged state."""
        return self._take(now_ns, E.LOADED)

    def failed(self, error: str, now_ns: int) -> list[StateMergeEffect]:
        """The application cannot merge the states, or take over the merged one."""
        return self._take(now_ns, E.FAILED, error)

    def over(self, now_ns: int) -> list[StateMergeEffect]:
        """This member has left, or was excluded."""
        return self._take(now_ns, E.OVER)

    def _take(self, now_ns: int, event: StateMergeEvent, *args: object) -> list[StateMergeEffect]:
        self._now = now_ns
        self.fire(event, *args)
        effects, self._effects = self._effects, []
        return effects

    # ---- queries

    @property
    def stopped(self) -> bool:
        """The application receives nothing."""
        return self.state in (S.GATHERING, S.REPORTED, S.RECONCILING)

    @property
    def ended(self) -> bool:
        """This member is out of the group, or about to leave."""
        return self.state is S.OUT

    @property
    def receiving(self) -> bool:
        """Bytes of ``provider`` are to be read into ``incoming``."""
        return self.state is S.GATHERING

    @property
    def provider(self) -> int:
        return self._left[0]

    def due(self) -> int:
        """When ``look`` is needed at the latest."""
        return self._deadline_ns

    # ---- guards

    def makes_merger(self, plan: StatePlan | None, _tag: int) -> bool:
        return plan is not None and plan.merges

    def is_planned(self, plan: StatePlan | None, _tag: int) -> bool:
        return plan is not None

    def has_changed(self, plan: StatePlan | None) -> bool:
        return plan is None or (plan.providers, plan.merges) != (self.plan.providers, self.plan.merges)

    def is_held(self, plan: StatePlan | None) -> bool:
        return plan is not None and plan.held

    # ---- actions

    def give(self, _plan: StatePlan | None, tag: int) -> None:
        if joiners := self._endpoint.joiners_of(tag):
            self._effects.append(GiveState(tag, joiners))

    def promise(self, _plan: StatePlan, tag: int) -> None:
        if joiners := self._endpoint.joiners_of(tag):
            self._promised = True
            self._effects.append(PromiseState(tag, joiners))

    def begin(self, plan: StatePlan, _tag: int) -> None:
        self.plan, self._left = plan, list(plan.providers)
        self._effects.append(Gather())
        self.begin_next()

    def take_next(self) -> None:
        del self._left[0]
        self.begin_next()

    def begin_next(self) -> None:
        self.incoming = Incoming(self.plan.boundary)
        self.extend_deadline()

    def report_arrival(self) -> None:
        self._effects.append(StateArrived(self.plan.boundary))
        self.rest()

    def report_refusal(self, reason: str) -> None:
        provider = self.provider
        self._effects.append(StateRefused(self.plan.boundary, f"{self._name_of(provider)}: {reason}", provider))
        self.rest()

    def report_silence(self) -> None:
        self.report_refusal(
            f"nothing came for state_timeout_s={self._timeout_ns / 1e9:g} s; its application has to receive, and "
            "get_state to return, for its state to be taken"
        )

    def reconcile(self, plan: StatePlan) -> None:
        self.plan = plan
        self.extend_deadline()
        self._effects.append(Reconcile(plan.merges))

    def extend_deadline(self) -> None:
        self._deadline_ns = self._now + self._timeout_ns

    def go_on(self, *_: object) -> None:
        self.rest()
        self.give_promised()
        self._effects.append(GoOn(reconciled=False))

    def go_on_reconciled(self) -> None:
        self.rest()
        self.give_promised()
        self._effects.append(GoOn(reconciled=True))

    def give_promised(self) -> None:
        """Joiners of the merger wait for its state: merged, or unchanged, if nothing is merged at this boundary."""
        boundary = self.plan.boundary
        if self._promised and (joiners := self._endpoint.joiners_of(boundary)):
            self._promised = False
            self._effects.append(GiveState(boundary, joiners))
        self.break_promise()

    def break_promise(self, *_: object) -> None:
        """This member gives no state: joiners that are told of its work would ask nobody else."""
        if self._promised:
            self._promised = False
            self._effects.append(BreakPromise())

    def leave(self, *_: object) -> None:
        self._effects.append(LeaveGroup(0))

    def give_up(self, error: str) -> None:
        self.rest()
        self._effects.append(GiveUpMerge(error))

    def give_up_late(self) -> None:
        what = "merge_state" if self.plan.merges else "set_state"
        self.give_up(
            f"{what} took longer than state_timeout_s={self._timeout_ns / 1e9:g} s after its last read, and the group "
            "was left, so that it is not held up: join again with a longer one"
        )

    def rest(self) -> None:
        """Nothing is read and no deadline runs."""
        self.incoming = Incoming(0)
        self._deadline_ns = NEVER

    TABLE: ClassVar[Table] = table(
        "state_merge",
        S,
        E,
        (
            S.GOING,
            (E.REACHED, makes_merger),
            S.GATHERING,
            (promise, begin),
            "its joiners get the merged state, and nothing is delivered before that",
        ),
        (
            S.GOING,
            (E.REACHED, is_planned),
            S.GATHERING,
            (give, begin),
            "its part's state goes to the merger, and nothing is delivered before the merged one is here",
        ),
        (S.GOING, E.REACHED, None, give, "its state is the group's, for joiners, too"),
        (S.OUT, E.REACHED, None, IGNORED, "a leaver's state may be incomplete: another member gives one"),
        (None, E.REACHED, None, ILLEGAL, "a stopped application reaches nothing"),
        (
            (S.GATHERING, S.REPORTED),
            (E.LOOK, has_changed),
            S.GOING,
            go_on,
            "a later view has another plan, or none: keep the present state",
        ),
        (S.REPORTED, (E.LOOK, is_held), S.RECONCILING, reconcile, "the group goes by this state"),
        (None, E.LOOK, None, IGNORED, "its plan is unchanged, or the member waits for nothing"),
        (S.GATHERING, E.NEXT, None, take_next, "the state of one part is here; the next one's"),
        (None, E.NEXT, None, ILLEGAL, "state is read only while gathering"),
        (S.GATHERING, E.COMPLETE, S.REPORTED, report_arrival, "all parts have come, and the checksums are right"),
        (None, E.COMPLETE, None, ILLEGAL, "state is read only while gathering"),
        (S.GATHERING, E.UNFIT, S.REPORTED, report_refusal, "refused by the provider, or not of this transfer"),
        (None, E.UNFIT, None, ILLEGAL, "state is read only while gathering"),
        (S.GATHERING, E.DUE, S.REPORTED, report_silence, "the provider, or its application, is silent"),
        (
            S.RECONCILING,
            E.DUE,
            S.OUT,
            (break_promise, leave, give_up_late),
            "this application must not hold up the group any longer",
        ),
        (None, E.DUE, None, ILLEGAL, "the timer runs only while gathering and reconciling"),
        (S.RECONCILING, E.READ, None, extend_deadline, "the application is at work"),
        (None, E.READ, None, IGNORED, "the reader goes on past the end"),
        (S.RECONCILING, E.LOADED, S.GOING, go_on_reconciled, "the application has the merged state"),
        (S.OUT, E.LOADED, None, IGNORED, "too late"),
        (None, E.LOADED, None, ILLEGAL, "once"),
        (
            S.RECONCILING,
            E.FAILED,
            S.OUT,
            (break_promise, leave, give_up),
            "the application cannot have the merged state",
        ),
        (S.OUT, E.FAILED, None, IGNORED, "known"),
        (None, E.FAILED, None, ILLEGAL, "only the application's handler fails"),
        (None, E.OVER, S.OUT, (break_promise, rest), "this member left, or was excluded"),
    )
