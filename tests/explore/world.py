"""A small world: a group of two or three on a network whose control frames arrive when, and in which order, a search
chooses. Time stands still while one is on its way, so that every order is possible, whatever the timers are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sim_stage import Stage

from explore.digest import Remembering, Walk
from seqcast.core.frames.kinds import load
from seqcast.core.frames.merging import Beacon
from seqcast.sim.checkers import liveness, safety
from seqcast.sim.options import MS, SECOND
from seqcast.sim.process import Process
from seqcast.sim.wire import CONTROL, REPAIRED, kind
from seqcast.sim.world import first

SETTLED_NS = 300 * MS
"""A world in which nothing has been on its way for this long, and that is sound, has come to its end."""
LIMIT_NS = 60 * SECOND
"""Virtual time within which each world must come to its end."""
SCENES = {
    "crash": "one of three members crashes",
    "crash-coordinator": "the first of three members crashes",
    "join": "a third member joins",
    "leave": "one of three members leaves",
    "leave-coordinator": "the first of three members leaves",
    "pause": "one of three members pauses the group",
    "merge-1-1": "two members that were apart hear each other",
    "merge-2-1": "two members and a third that were apart hear each other",
    "crash-of-2": "one of two members crashes",
    "join-to-1": "a second member joins",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """A control frame on its way."""

    source: int
    target: int
    datagram: bytes
    address: bytes
    receive: Callable[[bytes, bytes], None]

    @property
    def key(self) -> tuple[int, int, bytes]:
        """Two frames that are equal in this are one choice."""
        return self.source, self.target, self.datagram


class SmallWorld(Stage):
    """One scene.

    Args:
        scene: a name of ``SCENES``.
        losses: this many control frames may be lost, at any moment.
        crashes: this many members may crash, at any moment, beside the scene's own crash.
        options: of the simulator.
    """

    def __init__(self, scene: str, losses: int, crashes: int, **options: Any) -> None:
        super().__init__(**options)
        self.make_engine = Remembering
        self.scene, self.losses, self.crashes = scene, losses, crashes
        self.flight: list[Frame] = []
        self.chosen: list[str] = []
        self.open = False  # control frames wait until they are chosen
        self.withheld = False  # the last member gets no messages until the first control frame is on its way
        self.still_ns = 0  # nothing has been on its way since then
        self._carry, self.network.carry = self.network.carry, self._carry_or_keep

    # ---- the network

    def _carry_or_keep(
        self, source: int, target: int, receive: Callable[..., None], datagram: bytes, address: bytes
    ) -> None:
        if self.withheld and target == len(self.nodes) - 1 and kind(datagram) in REPAIRED:
            return
        if not self.open or kind(datagram) != CONTROL or self._idle_beacon(datagram):
            self._carry(source, target, receive, datagram, address)
        elif self.network.connects(source, target):
            self.flight.append(Frame(source, target, datagram, address, receive))

    def _idle_beacon(self, datagram: bytes) -> bool:
        """A beacon among members of one view tells nobody anything."""
        return isinstance(load(datagram[40:]), Beacon) and self.whole()

    # ---- the search

    def advance(self) -> None:
        """Time passes until a control frame is on its way, or the world has come to its end."""
        while not self._waiting() and not self.ended_well and self.clock.now < LIMIT_NS:
            if not self.clock.step(LIMIT_NS):
                return

    def _waiting(self) -> bool:
        """Control frames wait for somebody."""
        self.flight = [frame for frame in self.flight if self.nodes[frame.target].alive]
        if self.flight:
            self.still_ns, self.withheld = self.clock.now, False
        return bool(self.flight)

    @property
    def ended_well(self) -> bool:
        """Nothing has been on its way for a while, and the living are in one view."""
        return self.clock.now >= self.still_ns + SETTLED_NS and not any(liveness.check_liveness(self.records))

    def choices(self) -> list[tuple[str, Callable[[], None]]]:
        """All that can happen next: in words, and the act."""
        found: list[tuple[str, Callable[[], None]]] = []
        frames = list({frame.key: frame for frame in self.flight}.values())
        found += [(f"{self._words(frame)} arrives", lambda frame=frame: self._arrive(frame)) for frame in frames]
        if self.losses:
            found += [(f"{self._words(frame)} is lost", lambda frame=frame: self._lose(frame)) for frame in frames]
        if self.crashes:
            found += [(f"{node} crashes", lambda node=node: self._crash(node)) for node in self.nodes if node.alive]
        return found

    def take(self, choice: tuple[str, Callable[[], None]]) -> None:
        words, act = choice
        self.chosen.append(words)
        self.note(f"{self.clock.now / 1e6:10.3f} ms  chosen: {words}")
        act()

    def _words(self, frame: Frame) -> str:
        said = self.words(load(frame.datagram[40:]))
        return f"{self.nodes[frame.source]} → {self.nodes[frame.target]}: {said}"

    def _arrive(self, frame: Frame) -> None:
        self.flight.remove(frame)
        frame.receive(frame.datagram, frame.address)

    def _lose(self, frame: Frame) -> None:
        self.losses -= 1
        self.flight.remove(frame)

    def _crash(self, node: Process) -> None:
        self.crashes -= 1
        node.crash()

    def digest(self) -> bytes:
        """Of all that decides the future, and the checkers' verdict on the past."""
        parts = [str((self.clock.now, self.losses, self.crashes))]
        for node in self.nodes:
            walk = Walk(node.now)
            for each in (node.up, node.endpoint, node.application, node.record, node.sockets.backlog):
                walk.add(each)
            engine = node.engine
            parts += (*walk.parts, repr((engine.past, engine.heard, engine.deadline() - node.now)))
        parts += sorted(repr(frame.key) for frame in self.flight)
        parts += sorted(repr(event) for event in self._events())
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()

    def _events(self) -> Iterator[tuple[int, str, Any]]:
        """The clock's tasks."""
        for when, _, call, args in self.clock._heap:
            yield when, getattr(call, "__qualname__", str(call)), [str(each) for each in args]

    # ---- the end

    def violations(self) -> list[str]:
        """Lets the world run to its end without faults, with a last message of each member, and judges the outcome."""
        self.open, self.losses, self.crashes = False, 0, 0
        for node in self.nodes:
            if node.alive and not node.record.leaving:
                node.application.say_last()
                node.service()
        until, quiet_ns = self.clock.now + 10 * SECOND, 0
        while quiet_ns < SETTLED_NS and self.clock.now < until:
            self.clock.run(self.clock.now + 50 * MS)
            quiet_ns = 0 if any(liveness.check_liveness(self.records)) else quiet_ns + 50 * MS
        found = first(safety.check_safety(self.records))
        found += first(liveness.check_liveness(self.records)) or first(liveness.check_delivered(self.records))
        merges = self.scene.startswith("merge")  # one that comes to nothing leaves a view without a change
        return found if merges else [*found, *self.needless]

    # ---- the scenes

    def begin(self) -> None:
        """The group before the event, and the event. From here on frames arrive as chosen."""
        getattr(self, "_begin_" + self.scene.replace("-", "_"))()
        self.still_ns = self.clock.now

    def _talk(self) -> None:
        """Each member has sent a message that the last member has not got."""
        self.open = self.withheld = True
        for node in self.nodes:
            node.application.say_last()
            node.service()
        self.until(self.clock.now // MS + 1)

    def _crash_of(self, name: str, *names: str) -> None:
        self.group(*names)
        self._talk()
        self.node(name).crash()

    def _begin_crash(self) -> None:
        self._crash_of("b", "a", "b", "c")

    def _begin_crash_coordinator(self) -> None:
        self._crash_of("a", "a", "b", "c")

    def _begin_crash_of_2(self) -> None:
        self._crash_of("b", "a", "b")

    def _join_to(self, name: str, *names: str) -> None:
        self.group(*names)
        self._talk()
        self.named(name, self.clock.now // MS + 1)

    def _begin_join(self) -> None:
        self._join_to("c", "a", "b")

    def _begin_join_to_1(self) -> None:
        self._join_to("b", "a")

    def _leave_of(self, name: str) -> None:
        self.group("a", "b", "c")
        self._talk()
        self.node(name).leave()

    def _begin_leave(self) -> None:
        self._leave_of("b")

    def _begin_leave_coordinator(self) -> None:
        self._leave_of("a")

    def _begin_pause(self) -> None:
        self.group("a", "b", "c")
        self._talk()
        self.node("b").suspend(5 * MS)

    def _apart(self, *sides: tuple[str, ...]) -> None:
        """Sides that founded groups of their own, and hear each other from now on."""
        names = [name for side in sides for name in side]
        of = {names.index(name): number for number, side in enumerate(sides) for name in side}
        for one in of:
            for other in of:
                if of[one] != of[other]:
                    self.network.cut.add((one, other))
        self.quiet = True
        for number, name in enumerate(names):
            self.named(name, 100 * number)
        self.until(1000)
        self.quiet = False
        self._talk()
        self.network.heal()

    def _begin_merge_1_1(self) -> None:
        self._apart(("a",), ("b",))

    def _begin_merge_2_1(self) -> None:
        self._apart(("a", "b"), ("c",))
