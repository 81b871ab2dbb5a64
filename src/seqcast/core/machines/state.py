"""Which member gives the state to which joiner (the cut, step 10), and how one member gets it.

A member that takes part and is not the first of its group lacks the state until a provider has handed it over. The
VIEW names for each such member its provider and the *boundary*: the view at whose beginning the provider takes its
state. The transfer goes on over later views as long as provider and boundary stay the same; where the provider is gone,
or was passed over, the VIEW names another, with a new boundary, and the transfer starts from nothing. Members tell in
their OK whether they lack the state, so the one who makes the VIEW knows of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import Context, Repeat
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.view import NewView, Provision, StateWanted
from seqcast.core.table import IGNORED, ILLEGAL, Machine, Table, table
from seqcast.core.vocabulary import StateHeld, StateLost, TakeState


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
    NOBODY = auto()
    ARRIVED = auto()
    REFUSED = auto()
    REPEAT = auto()


S, E = StateTakerState, StateTakerEvent


def name_providers(
    members: Sequence[MemberInfo],
    lacking: Mapping[int, Collection[int]],
    before: Sequence[Provision],
    boundary: int,
) -> tuple[Provision, ...]:
    """The providers of the state in a view: the first member that has it, unless an earlier provider continues.

    Args:
        members: of the view.
        lacking: the members that lack the state, joiners too, and the providers that each of them has passed over.
        before: the providers of the view that is closed.
        boundary: tag of the view.
    """
    earlier = {provision.joiner: provision for provision in before}
    holders = [info.id for info in members if info.state and info.id not in lacking]
    result = []
    for info in members:
        if info.id not in lacking:
            continue
        fit = [holder for holder in holders if holder not in lacking[info.id]]
        provision = earlier.get(info.id)
        if provision is not None and provision.provider in fit:
            result.append(provision)
        elif fit:
            result.append(Provision(info.id, fit[0], boundary))
    return tuple(result)


class StateTaker(Machine):
    def __init__(self, context: Context) -> None:
        super().__init__(S.OUT, context.edges)
        self.context = context
        self.provision: Provision | None = None
        self.passed: tuple[int, ...] = ()
        self.reasons: list[str] = []
        self.asks = Repeat(context.settings.repeat_ns_min, context.settings.repeat_ns_max)

    # ---- inputs

    def view(self, frame: NewView) -> None:
        """A VIEW that we are about to install."""
        me = self.context.me
        if not me.state:
            return
        mine = next((provision for provision in frame.providers if provision.joiner == me.id), None)
        if frame.closes is None:
            self.fire(E.FORMED, None)
        elif mine is None:
            had = self.provision is not None or any(info.state and info.id != me.id for info in frame.members)
            self.fire(
                E.NOBODY,
                "no member that has the state is left: join again"
                if had
                else "no member of the group was joined with a state handler: join without one, or give them one",
            )
        else:
            self.fire(E.SAME if mine == self.provision else E.NAMED, mine)

    def arrived(self, boundary: int) -> None:
        """All of the state of this boundary is here."""
        if self.provision is not None and boundary == self.provision.boundary:
            self.fire(E.ARRIVED, self.provision)

    def refused(self, boundary: int, reason: str) -> None:
        """The provider of this boundary has said that it cannot give the state, or nothing came of it in time."""
        if self.provision is None or boundary != self.provision.boundary:
            return
        self.fire(E.REFUSED, reason)

    def due(self) -> int:
        return self.asks.due

    def run_timers(self) -> None:
        if self.asks.take(self.context.now):
            self.fire(E.REPEAT)

    # ---- guards

    def another_is_left(self, _reason: str) -> bool:
        """A further member may have the state."""
        assert self.provision is not None
        tried = {self.context.me.id, self.provision.provider, *self.passed}
        return any(info.state and info.id not in tried for info in self.context.infos.values())

    # ---- actions

    def take(self, provision: Provision) -> None:
        self.asks.stop()
        if self.provision is not None and self.provision.provider != provision.provider:
            self.context.plane.state_void(self.provision.provider)
        self.provision = provision
        self.context.lacks = self.passed
        self.context.emit(TakeState(provision.provider, provision.boundary))

    def have(self, provision: Provision | None) -> None:
        self.context.plane.state_void(0)
        self.context.lacks = None
        self.context.emit(StateHeld(provision.boundary if provision else 0))

    def pass_over(self, reason: str) -> None:
        assert self.provision is not None
        self.passed += (self.provision.provider,)
        self.reasons.append(reason)
        self.context.lacks = self.passed
        self.context.plane.state_void(self.provision.provider)

    def begin_asking(self, _reason: str) -> None:
        self.asks.start(self.context.now)

    def ask(self, *_: object) -> None:
        if self.context.view is None:  # excluded, or left, meanwhile: there is nobody to ask
            self.asks.stop()
            return
        self.context.multicast(StateWanted(self.context.tag))

    def lose(self, reason: str) -> None:
        self.asks.stop()
        self.context.plane.state_void(0)
        self.context.lacks = self.passed
        self.context.lost = True
        self.context.emit(StateLost("; ".join(dict.fromkeys([*self.reasons, reason]))))

    TABLE: ClassVar[Table] = table(
        "state",
        S,
        E,
        (S.OUT, E.FORMED, S.HELD, have, "the first member of a group: its state is the group's"),
        (None, E.FORMED, None, ILLEGAL, "a first view is formed once"),
        (S.OUT, E.NAMED, S.LACKING, take, "admitted: the VIEW names a provider"),
        ((S.LACKING, S.ASKING), E.NAMED, S.LACKING, take, "another provider, and a new boundary: from nothing"),
        (None, E.NAMED, None, IGNORED, "it arrived, or was given up, while the cut was agreed"),
        (S.OUT, E.SAME, None, ILLEGAL, "no provider was named before"),
        (None, E.SAME, None, IGNORED, "the transfer goes on; or we passed the provider over after our OK"),
        ((S.OUT, S.LACKING, S.ASKING), E.NOBODY, S.LOST, lose, "no member has the state, or is left to give it"),
        (None, E.NOBODY, None, IGNORED, "the VIEW names providers only for members that lack the state"),
        (S.LACKING, E.ARRIVED, S.HELD, have, "all of it is here, and its checksum is right"),
        (S.OUT, E.ARRIVED, None, ILLEGAL, "nothing was awaited"),
        (None, E.ARRIVED, None, IGNORED, "of a provider that was passed over"),
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
        (S.ASKING, E.REPEAT, None, ask, "no VIEW that names another yet"),
        (None, E.REPEAT, None, ILLEGAL, "the timer runs only while asking"),
    )
