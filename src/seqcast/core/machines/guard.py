"""Guard connections: a TCP connection between every two members, which the kernel closes when a process ends (NBC-16).

A closed UDP port also reveals a killed process, but through ICMP, which firewalls drop. Here the member with the higher
id connects to the other one and sends one greeting; afterwards only the end of the connection carries information.

That end proves nothing: a router may drop a connection, or a process run out of descriptors. So the member is called
once more, and counts as gone only if its kernel refuses that call. This is as strong as a refused UDP port: a firewall
may answer for a living member, so its heartbeats must be missing too. Silence proves nothing and is left to the
heartbeats.

Without the second call, every broken connection would cause a living member to be suspected.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from seqcast.core.context import NEVER
from seqcast.core.table import ILLEGAL, Edge, Table, TableMachine, table

GREETING = struct.Struct("<4sIQ")  # "scg1", tag of the group, id of the member that calls
MAGIC = b"scg1"
RETRY_NS = 1_000_000_000
"""Time between two unanswered calls of one member, ns."""
LINES_MAX = 4
"""Connections that one member may have with us: two if both ends call again at the same time."""
STRANGERS_MAX = 64
"""Connections of unknown processes; beyond this the oldest is closed."""


@dataclass(frozen=True, slots=True)
class CallMember:
    """Connect to a member; ``connected``, ``refused`` or ``failed`` follows for this line."""

    line: int
    member: int


@dataclass(frozen=True, slots=True)
class Greet:
    """Send this on a line."""

    line: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseLine:
    """Close a line, of which nothing more will be reported."""

    line: int


@dataclass(frozen=True, slots=True)
class MemberGone:
    """A member's process has ended."""

    member: int


GuardEffect = CallMember | Greet | CloseLine | MemberGone


class LineState(Enum):
    NEW = auto()
    CALLING = auto()
    CHECKING = auto()
    STANDING = auto()
    STRANGE = auto()
    CLOSED = auto()


class LineEvent(Enum):
    CALL = auto()
    CHECK = auto()
    ACCEPTED = auto()
    CONNECTED = auto()
    REFUSED = auto()
    FAILED = auto()
    GREETED = auto()
    RUBBISH = auto()
    ENDED = auto()
    EVICTED = auto()


class Line(TableMachine):
    """One connection.

    Args:
        guard: its owner.
        number: identifies it to the runner.
        member: the other end; 0: an incoming call without a greeting yet.
    """

    def __init__(self, guard: GuardLines, number: int, member: int) -> None:
        super().__init__(LineState.NEW, guard.edges)
        self.guard, self.number, self.member = guard, number, member
        self.heard = b""

    @property
    def connected(self) -> bool:
        return self.state in (LineState.STANDING, LineState.STRANGE)

    # ---- guards

    def of_member(self, *_: object) -> bool:
        return self.member in self.guard.members

    def crowded(self, member: int) -> bool:
        return self.guard.held(member) >= LINES_MAX

    # ---- actions

    def dial(self) -> None:
        self.guard.effects.append(CallMember(self.number, self.member))

    def greet(self) -> None:
        self.guard.effects.append(Greet(self.number, GREETING.pack(MAGIC, self.guard.tag, self.guard.me)))

    def know(self, member: int) -> None:
        self.member = member

    def close(self, *_: object) -> None:
        self.guard.effects.append(CloseLine(self.number))
        del self.guard.lines[self.number]

    def check(self) -> None:
        self.guard.call(self.member, LineEvent.CHECK)

    def tell_gone(self) -> None:
        self.guard.counters["gone"] += 1
        self.guard.effects.append(MemberGone(self.member))

    def count_stranger(self, *_: object) -> None:
        self.guard.counters["strangers"] += 1

    S, E = LineState, LineEvent
    CALLS = (S.CALLING, S.CHECKING)
    TABLE: ClassVar[Table] = table(
        "guard line",
        S,
        E,
        (S.NEW, E.CALL, S.CALLING, dial, "a member that is not connected"),
        (S.NEW, E.CHECK, S.CHECKING, dial, "its connection ended"),
        (S.NEW, E.ACCEPTED, S.STRANGE, (), "somebody calls us"),
        (None, E.CALL, None, ILLEGAL, "only new"),
        (None, E.CHECK, None, ILLEGAL, "only new"),
        (None, E.ACCEPTED, None, ILLEGAL, "only new"),
        (CALLS, E.CONNECTED, S.STANDING, greet, "its kernel takes calls, so the process exists"),
        (None, E.CONNECTED, None, ILLEGAL, "only a call connects"),
        (S.CHECKING, (E.REFUSED, of_member), S.CLOSED, (close, tell_gone), "connected before, and its port is closed"),
        (CALLS, E.REFUSED, S.CLOSED, close, "the other may have guard=False, or have left the view"),
        (None, E.REFUSED, None, ILLEGAL, "only a call is refused"),
        (CALLS, E.FAILED, S.CLOSED, close, "silence proves nothing"),
        (None, E.FAILED, None, ILLEGAL, "only a call fails"),
        (S.STRANGE, (E.GREETED, crowded), S.CLOSED, (close, count_stranger), "more than a member needs"),
        (S.STRANGE, E.GREETED, S.STANDING, know, "perhaps its view is newer than ours: not checked"),
        (None, E.GREETED, None, ILLEGAL, "heard once, on lines that called us"),
        ((S.STRANGE, S.STANDING), E.RUBBISH, S.CLOSED, (close, count_stranger), "a member greets once, and no more"),
        (None, E.RUBBISH, None, ILLEGAL, "nothing is read from this connection"),
        (S.STANDING, (E.ENDED, of_member), S.CLOSED, (close, check), "its process ended, or the connection broke"),
        ((S.STANDING, S.STRANGE), E.ENDED, S.CLOSED, close, "of no member"),
        (None, E.ENDED, None, ILLEGAL, "the connection does not stand"),
        ((S.NEW, S.CLOSED), E.EVICTED, None, ILLEGAL, "the member is not known yet, or no longer"),
        (None, E.EVICTED, S.CLOSED, close, "its member has left the view, or there are too many strangers"),
    )


class GuardLines:
    """The guard connections of one member.

    The runner carries out the effects and reports their results for each line. Each input returns effects. Reports of a
    line that was closed meanwhile change nothing.

    Args:
        me: id of this member.
        tag: of the group.
        edges: of the endpoint.
    """

    def __init__(self, me: int, tag: int, edges: set[Edge]) -> None:
        self.me, self.tag, self.edges = me, tag, edges
        self.members: frozenset[int] = frozenset()  # the other members of the view that can be called
        self.lines: dict[int, Line] = {}  # by number, the oldest first
        self.effects: list[GuardEffect] = []
        self.counters = {"gone": 0, "strangers": 0}
        """gone: members whose process ended; strangers: lines closed that were of no member, or one too many."""
        self._now = 0
        self._numbers = 0
        self._called: dict[int, int] = {}  # member -> time of the last call

    # ---- inputs

    def view(self, members: Collection[int], now_ns: int) -> list[GuardEffect]:
        """A view was installed; ``members``: the ids of those that can be called."""
        self._now = now_ns
        self.members = frozenset(members) - {self.me}
        self._called = {member: when for member, when in self._called.items() if member in self.members}
        for line in list(self.lines.values()):
            # A caller may have installed this view before us, so lines that called us stay.
            if line.member and line.member < self.me and line.member not in self.members:
                line.fire(LineEvent.EVICTED)
        return self.run_timers(now_ns)

    def accepted(self, now_ns: int) -> tuple[int, list[GuardEffect]]:
        """A process called. Also returns the new line's number."""
        strangers = [line for line in self.lines.values() if line.connected and line.member not in self.members]
        if len(strangers) >= STRANGERS_MAX:
            self.counters["strangers"] += 1
            strangers[0].fire(LineEvent.EVICTED)
        return self._add(0, LineEvent.ACCEPTED), self.run_timers(now_ns)

    def connected(self, line: int, now_ns: int) -> list[GuardEffect]:
        return self._tell(line, LineEvent.CONNECTED, now_ns)

    def refused(self, line: int, now_ns: int) -> list[GuardEffect]:
        """The other kernel refused the call: no process listens on that port."""
        return self._tell(line, LineEvent.REFUSED, now_ns)

    def failed(self, line: int, now_ns: int) -> list[GuardEffect]:
        """The call failed for another reason."""
        return self._tell(line, LineEvent.FAILED, now_ns)

    def ended(self, line: int, now_ns: int) -> list[GuardEffect]:
        """The connection was closed by the other side, or broke."""
        return self._tell(line, LineEvent.ENDED, now_ns)

    def heard(self, number: int, data: bytes, now_ns: int) -> list[GuardEffect]:
        line = self.lines.get(number)
        if line is None:
            return self.run_timers(now_ns)
        line.heard += data
        if line.member or len(line.heard) > GREETING.size:
            return self._tell(number, LineEvent.RUBBISH, now_ns)
        if len(line.heard) < GREETING.size:
            return self.run_timers(now_ns)
        magic, tag, member = GREETING.unpack(line.heard)
        if magic != MAGIC or tag != self.tag or member in (0, self.me):
            return self._tell(number, LineEvent.RUBBISH, now_ns)
        return self._tell(number, LineEvent.GREETED, now_ns, member)

    def due(self) -> int:
        """When ``run_timers`` has a member to call; 2**63 - 1: never."""
        return min((self._called.get(member, -RETRY_NS) + RETRY_NS for member in self._missing()), default=NEVER)

    def run_timers(self, now_ns: int) -> list[GuardEffect]:
        """Calls the members that are not connected, each not more often than every ``RETRY_NS``."""
        self._now = now_ns
        for member in self._missing():
            if now_ns >= self._called.get(member, now_ns - RETRY_NS) + RETRY_NS:
                self.call(member, LineEvent.CALL)
        effects, self.effects = self.effects, []
        return effects

    # ---- for lines

    def call(self, member: int, event: LineEvent) -> None:
        self._called[member] = self._now
        self._add(member, event)

    def held(self, member: int) -> int:
        return sum(line.member == member for line in self.lines.values())

    def _tell(self, number: int, event: LineEvent, now_ns: int, *args: object) -> list[GuardEffect]:
        self._now = now_ns
        if line := self.lines.get(number):
            line.fire(event, *args)
        return self.run_timers(now_ns)

    def _add(self, member: int, event: LineEvent) -> int:
        self._numbers += 1
        line = self.lines[self._numbers] = Line(self, self._numbers, member)
        line.fire(event)
        return self._numbers

    def _missing(self) -> list[int]:
        """The members that this one is to call, and has no connection with."""
        linked = {line.member for line in self.lines.values()}
        return sorted(member for member in self.members if member < self.me and member not in linked)
