"""The events and actions of one simulated application, in order: all that the checkers know."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeGuard

from seqcast._native.engine import TakenWait
from seqcast.core.vocabulary import Left, MemberTold
from seqcast.events import Blocked, CoordinatorChanged, Excluded, Lost, Unblocked
from seqcast.sim.chain import Chain
from seqcast.sim.options import MS, Options
from seqcast.types import MergeView, View, ViewId


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivered message, as seen by the application."""

    sender: int
    counter: int
    to: int
    tag: int
    global_seqno: int
    length: int
    intact: bool
    claimed: int  # the sender that the engine names
    seqno: int = 0
    transitional: bool = False


@dataclass(slots=True)
class PauseRun:
    """One pause of the group; ``over_ns`` is set only if the application was told that the pause held until then."""

    number: int
    view_id: ViewId | None = None
    held_ns: int = 0
    over_ns: int = 0


@dataclass(slots=True)
class Run:
    """One run of the block callback.

    Args:
        view_id: of the view that is being closed.
        sent: numbers of the messages that the callback sends.
        late: the group was closed for sending before the callback returned, or the deadline passed first.
        begin_ns: when the callback began.
        returned: the callback has returned; if in time, its messages must be sent in its view.
        closed_ns: when its application was told that the group is closed for sending, after the return; 0: never.
    """

    view_id: ViewId | None
    sent: list[int]
    begin_ns: int
    late: bool = False
    returned: bool = False
    closed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Together:
    """A view that a member installed: its members, and those that entered with this member, from the same side of a
    partition."""

    view_id: ViewId
    members: frozenset[int]
    together: frozenset[int]


LEAVES_NS = (0, 66_666_667, 1_333_333_334, 10_000 * MS)
"""Patience of an application that leaves: three quarters are for the drain."""
Entry = Delivered | View | Lost | Excluded | Left


@dataclass(slots=True, eq=False)
class Record:
    """One process's application.

    Args:
        index, name, id: of the process, and of its one incarnation.
        options: of the run.
        up: the process has not crashed.
        over: the membership is over, and the application was told so, or ended the membership itself.
        slow_until: the application takes no deliveries before this virtual time.
        slow_spells: (begin, end) of all times in which the application took none.
        skips_ns: when the application was told of missed messages.
        put_out_ns: when the application was told that its member was put out as too slow; 0: never.
        view: the newest view that was installed.
        log: deliveries and events, in order.
        took: sender -> (number -> tag of the view) of the messages to the group among them.
        violations: found while the run lasted.
        blocked: the application was told of a block, and not yet of its end.
        gate: its events about sending to the group, in order: not allowed, allowed, views, the end.
        coordinators: the coordinators of which the application was told, in order: views, changes, the end.
        told: answers of others that the application had asked.
        changes: its views, each with the one before, and the word for the change.
        callbacks: its callbacks, in order: True: block; False: unblock.
        minority: why the member is blocked without a majority, by its log.
        receives: the application is delivered messages (``receive=True``).
        receives_own: its own messages to the group are among them (``deliver_own=True``).
        highest: (type, view tag) -> highest seqno of the group's packets that its process has put on the wire.
        first_sent: (when, view tag) of each of them, the first time.
        paths: how many times the run took each of the paths of production that not every run takes.
        sent: number of each message to the group -> (length, the view in which ``send`` returned, or began). If the
            group may be closed for sending, and messages are queued, the message is sent in this view or a later one.
        knew: number of each message to the group -> length of the log when ``send`` was called.
        sent_to: (receiver, number) of each unicast -> the view in which the unicast was sent.
        beside: numbers of messages to the group that were sent with ``ordered=False``.
        sent_late: of those unicasts: after its member answered an attempt to close the view, which does not cover them.
        counter, counters_to: the next number, to the group and to each receiver.
        pending: (receiver or 0, length) of messages not yet accepted.
        waits: open waits until others have taken all sent messages, each with the numbers.
        states: digest of the state at the beginning of the view with this tag, by (tag, branch); see ``sim/state.py``.
        merges: (tag, branch, the branch's earlier merges, states) of each merge of others' states into its own.
        chain: its state.
        stopped: nothing is delivered until the application has the state of all.
        stops: (tag, past branches) of each such stop.
        passed_over: how many times the member gave up a provider.
        inside: the application has the state, and takes deliveries.
        founding: tags of views in which the group was not founded yet, so that no application was inside.
        voided: views from before the state that was taken over.
        kept_over: (sender, number) of unicasts from before a state that was taken over, and delivered after that.
        repeated: views that were installed under another attempt than the one that made them.
        error, waiting: why the member could not join, or cannot yet.
        leave_ns: patience of the application's ``leave``.
        about: its info now, as JSON.
        observer: the member only receives, and sends unicasts.
        named: (member, how) of each receiver that its engine has named as one for which senders wait.
        frames_bad: received frames that no member may send.
        packets_sent: datagrams with messages that its process has put on the wire, and datagrams: all of them, by type.
        frames: of a group at rest: control frames that the process sent, by their class.
        wakes: how many times its timers woke the process.
    """

    index: int
    name: str
    id: int
    options: Options
    leave_ns: int
    about: str = ""
    observer: bool = False
    up: bool = True
    over: bool = False
    slow_until: int = 0
    slow_spells: list[tuple[int, int]] = field(default_factory=list)
    skips_ns: list[int] = field(default_factory=list)
    put_out_ns: int = 0
    view: View | None = None
    log: list[Entry] = field(default_factory=list)
    took: dict[int, dict[int, int]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    blocked: Blocked | None = None
    told: list[MemberTold] = field(default_factory=list)
    coordinators: list[CoordinatorChanged | View | Excluded | Left] = field(default_factory=list)
    gate: list[Blocked | Unblocked | View | Excluded | Left] = field(default_factory=list)
    changes: list[tuple[View, View, str]] = field(default_factory=list)
    callbacks: list[bool] = field(default_factory=list)
    minority: str = ""
    receives: bool = True
    receives_own: bool = True
    highest: dict[tuple[int, int], int] = field(default_factory=dict)
    first_sent: list[tuple[int, int]] = field(default_factory=list)
    paths: Counter[str] = field(default_factory=Counter)
    sent: dict[int, tuple[int, ViewId]] = field(default_factory=dict)
    knew: dict[int, int] = field(default_factory=dict)
    sent_to: dict[tuple[int, int], ViewId] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)
    sent_late: set[tuple[int, int]] = field(default_factory=set)
    counter: int = 0
    counters_to: dict[int, int] = field(default_factory=dict)
    pending: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[TakenWait, list[int]]] = field(default_factory=list)
    pauses: list[PauseRun] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    states: dict[tuple[int, str], str] = field(default_factory=dict)
    merges: list[tuple[int, str, tuple[str, ...], dict[int, bytes]]] = field(default_factory=list)
    chain: Chain = field(default_factory=Chain)
    stopped: bool = False
    stops: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    passed_over: int = 0
    inside: bool = True
    founding: set[int] = field(default_factory=set)
    voided: list[View] = field(default_factory=list)
    kept_over: set[tuple[int, int]] = field(default_factory=set)
    repeated: set[ViewId] = field(default_factory=set)
    error: str = ""
    waiting: str = ""
    leaving: bool = False
    left: Left | None = None
    named: list[tuple[int, str]] = field(default_factory=list)
    frames_bad: int = 0
    packets_sent: int = 0
    datagrams: Counter[int] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    wakes: int = 0

    def __str__(self) -> str:
        return self.name

    @property
    def alive(self) -> bool:
        """Does the process run, as a member or joining?"""
        return self.up and not self.over

    @property
    def current(self) -> View | None:
        """The newest view, while the membership lasts."""
        return None if self.over else self.view

    @property
    def may_send(self) -> bool:
        """The application is in the group, as far as the application knows."""
        return self.inside and self.view is not None and self.view.view_id.tag not in self.founding

    @property
    def told_minority(self) -> bool:
        """The application, or the log of a joiner, was told of a block without a majority."""
        if not self.inside:
            return bool(self.minority)
        return self.blocked is not None and self.blocked.kind == "minority"

    def delivered_of(self, sender: int) -> dict[int, int]:
        """The numbers of the sender's messages to the group that the application has taken, each with the tag of the
        view then."""
        return self.took.get(sender, {})

    def take(self, entry: Entry) -> None:
        """The application takes a delivery or an event."""
        self.log.append(entry)
        if isinstance(entry, Delivered) and not entry.to:
            self.took.setdefault(entry.sender, {})[entry.counter] = entry.tag

    def together(self, view: View) -> View:
        """The part of a view that was with this member in its last view."""
        if isinstance(view, MergeView):
            return next((group for group in view.subgroups if group.rank(self.id) >= 0), view)
        return view


@dataclass(frozen=True, slots=True)
class Stay:
    """The deliveries of one member in one view, and its successor: a view id, or None (crash, exclusion, the end)."""

    record: Record
    view: View
    delivered: tuple[Delivered, ...]
    successor: ViewId | None


def comparable(one: Stay, other: Stay) -> tuple[list[Delivered], list[Delivered]]:
    """The messages to the group that each delivered, without those of a member that is not delivered its own."""
    unknown = {stay.record.id for stay in (one, other) if not stay.record.receives_own}
    mine, theirs = (
        [entry for entry in stay.delivered if not entry.to and entry.sender not in unknown] for stay in (one, other)
    )
    return mine, theirs


def never_ordered(entry: Entry) -> TypeGuard[Lost]:
    """Packets of messages to the group that nobody delivered."""
    return isinstance(entry, Lost) and entry.missed_by is None and entry.last_seqno > 0


def stays(record: Record) -> list[Stay]:
    result: list[Stay] = []
    view: View | None = None
    delivered: list[Delivered] = []
    for entry in [*record.log, None]:
        if isinstance(entry, Delivered):
            delivered.append(entry)
            continue
        if isinstance(entry, Lost):
            continue
        if view is not None:
            after = entry.view_id if isinstance(entry, View) else None
            if isinstance(entry, Left) and entry.view is not None:
                after = entry.view.view_id
            result.append(Stay(record, view, tuple(delivered), after))
        delivered = []
        view = entry if isinstance(entry, View) else None
    return result
