"""Token rings alone: many processes that each discover only some of the others agree on one view (NBC-04).

Only the ring is simulated (``core/machines/ring.py``), on a network that delays and loses frames, so that thousands of
discovery graphs run in a minute. A process discovers others in one direction: that A hears B does not mean that B hears
A. A process can send to all that are known to it. Below the ring is a failure detector, as S4 requires (NBC-16): each
process probes those, and learns of a crash after a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seqcast.commandline import Progress
from seqcast.core.frames.ring import RingFrame
from seqcast.core.machines.ring import Ring, RingSettings
from seqcast.core.rules.ring import RingView
from seqcast.core.table import Edge, edges_of
from seqcast.sim.network import Clock
from seqcast.sim.options import MS, SECOND

LIMIT_NS = 20 * SECOND
"""By then every run must have ended."""
DETECT_NS = 200 * MS
"""A crash is detected within this time."""
SETTINGS = RingSettings(repeat_ns_min=20 * MS, repeat_ns_max=160 * MS, answer_ns=1000 * MS, lease_ns=300 * MS)
Discovery = Mapping[int, Iterable[int]]
"""The processes that each process discovers, by id."""
MakeRing = Callable[..., Ring]


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of one graph.

    Args:
        seed: of the run.
        processes: how many there are.
        crashed: how many of those crash.
        took_ns: virtual time until every living process has the one view of its part of the graph, and no frame that
            could change that view is in flight; -1: not in time.
        frames: sent until then.
        edges: rows of the ring's table that were taken.
    """

    seed: int
    processes: int
    crashed: int
    took_ns: int
    frames: int
    edges: frozenset[Edge]


def place(member: int) -> int:
    """The absolute order of the simulated processes: by id."""
    return member


class RingWorld:
    """Processes with a ring each, and the network between them.

    Args:
        discovery: whom each process discovers.
        rng: decides delays, losses and when a crash is detected.
        loss: fraction of the frames that are lost; as many arrive twice.
        delays_ns: how long a frame takes, at least and at most.
        make: makes a process's ring.
        trace: called for each frame sent: sender, receiver, frame. False: the frame is dropped.
    """

    def __init__(
        self,
        discovery: Discovery,
        rng: random.Random,
        *,
        loss: float = 0.0,
        delays_ns: tuple[int, int] = (MS, MS),
        make: MakeRing = Ring,
        trace: Callable[[int, int, RingFrame], bool] | None = None,
    ) -> None:
        self.rng, self.loss, self.delays_ns, self.make, self.trace = rng, loss, delays_ns, make, trace
        self.discovery = {member: set(others) for member, others in discovery.items()}
        self.edges: set[Edge] = set()
        self.rings: dict[int, Ring] = {}
        self.crashed: dict[int, int] = {}  # when, by id
        self.clock = Clock()
        self.frames = self.flying = self.doubts = 0
        self.views: dict[tuple[int, int], tuple[int, ...]] = {}  # members, by generation and leader
        self._connected: tuple[int, list[list[int]]] = -1, []
        self._wakes: dict[int, int] = {}  # for when each ring's next review is on the agenda

    @property
    def now(self) -> int:
        return self.clock.now

    def start(self, member: int, review: bool = True) -> None:
        """A process begins alone; then all discover each other.

        Args:
            member: its id.
            review: False: those that discover another act at their next review.
        """

        def send(frame: RingFrame, to: int) -> None:
            self._send(member, to, frame)

        self.rings[member] = self.make(member, place, SETTINGS, send, self.edges, RingView(0, member, (member,)))
        for one, other in [(member, other) for other in self.rings] + [(other, member) for other in self.rings]:
            if other in self.discovery[one] and one in self.rings and one not in self.crashed:
                self.rings[one].know([other])
                if review:
                    self.review(one)

    def discover(self, member: int, other: int) -> None:
        """A process hears of another one, not discovered at first."""
        self.discovery[member].add(other)
        self._connected = -1, []
        self.rings[member].know([other])
        self.review(member)

    def crash(self, member: int) -> None:
        self.crashed[member] = self.now
        for other in [*self.rings]:
            self.clock.at(self.now + self.rng.randrange(DETECT_NS // 4, DETECT_NS), self._probe, other)

    def doubt(self, member: int, other: int, for_ns: int) -> None:
        """The failure detector of one process takes another one, which lives, for dead, and hears that one again
        later."""
        ring = self.rings[member]
        if member in self.crashed or other not in ring.known:
            return
        ring.lose([other])
        self.review(member)
        self.doubts += 1
        self.clock.at(self.now + for_ns, self._trust, member, other)

    def _trust(self, member: int, other: int) -> None:
        self.doubts -= 1
        if other not in self.crashed and member not in self.crashed:
            self.rings[member].know([other])
            self.review(member)

    def _probe(self, member: int) -> None:
        """The failure detector of one process watches the known ones."""
        if member in self.crashed:
            return
        ring = self.rings[member]
        gone = [other for other in sorted(ring.known) if other in self.crashed]
        if gone:
            ring.lose(gone)
            self.review(member)
        if any(ring.known & self.crashed.keys() for ring in self._living()):
            self.clock.at(self.now + DETECT_NS, self._probe, member)

    def _send(self, source: int, to: int, frame: RingFrame) -> None:
        if source in self.crashed:
            return
        self.frames += 1
        if self.trace is not None and not self.trace(source, to, frame):
            return
        chance = self.rng.random()
        for _ in range(0 if chance < self.loss else 2 if chance < 2 * self.loss else 1):
            self.flying += 1
            self.clock.at(self.now + self.rng.randint(*self.delays_ns), self._arrive, source, to, frame)

    def _arrive(self, source: int, to: int, frame: RingFrame) -> None:
        self.flying -= 1
        if to in self.rings and to not in self.crashed:
            self.rings[to].receive(frame, source, self.now)
            self.review(to)

    def review(self, member: int) -> None:
        """The end of a step of one process."""
        ring = self.rings[member]
        ring.review(self.now)
        view = ring.view
        known = self.views.setdefault((view.generation, view.leader), view.members)
        assert known == view.members, f"two views with one id: {known} and {view}"
        due = ring.due()
        if due != self._wakes.get(member) and due <= LIMIT_NS:
            self._wakes[member] = due
            self.clock.at(due, self._wake, member, due)

    def _wake(self, member: int, due: int) -> None:
        if self._wakes.get(member) == due and member not in self.crashed:
            del self._wakes[member]
            self.review(member)

    def run(self, until: Callable[[], bool], limit_ns: int = LIMIT_NS) -> bool:
        """Runs until a condition holds; False: not in time."""
        while not until():
            if not self.clock.step(limit_ns):
                return False
        return True

    # ---- goals

    def settled(self) -> bool:
        """Each part of the graph has one view of its living processes, led by the first of them, and nothing is
        unsettled."""
        if self.flying or self.doubts:
            return False
        for part in self._parts():
            views = [self.rings[member].view for member in part if member in self.rings]
            if len(views) != len(part) or any(view != views[0] for view in views):
                return False
            if views[0].members != tuple(part) or views[0].leader != part[0]:
                return False
        return not any(ring.unsettled for ring in self._living())

    def _living(self) -> Iterator[Ring]:
        return (ring for member, ring in self.rings.items() if member not in self.crashed)

    def _parts(self) -> list[list[int]]:
        if self._connected[0] != len(self.crashed):
            self._connected = len(self.crashed), parts(self.discovery, self.crashed)
        return self._connected[1]


def parts(discovery: Discovery, crashed: Iterable[int] = ()) -> list[list[int]]:
    """The parts of a graph between whose processes there is no edge, in either direction; each in order of ids.

    A crashed process connects others only if they learned of each other before: callers ensure that none has to.
    """
    gone = set(crashed)
    left = sorted(member for member in discovery if member not in gone)
    edges = {frozenset((one, other)) for one, others in discovery.items() for other in others}
    found: list[list[int]] = []
    while left:
        part, more = set(), {left[0]}
        while more:
            part |= more
            more = {other for other in left if other not in part and any(frozenset((other, m)) in edges for m in part)}
        found.append(sorted(part))
        left = [member for member in left if member not in part]
    return found


def draw(rng: random.Random) -> dict[int, set[int]]:
    """A random graph of 2 to 12 processes, sparse or dense, with edges in one direction or both; mostly connected."""
    processes = rng.randrange(2, 13)
    density = rng.choice((0.1, 0.2, 0.4, 0.8))
    members = range(1, processes + 1)
    graph = {one: {other for other in members if other != one and rng.random() < density} for one in members}
    if rng.random() < 0.8:
        for other in range(2, processes + 1):
            ends = rng.sample((other, rng.randrange(1, other)), 2)
            graph[ends[0]].add(ends[1])
    return graph


def run_graph(seed: int, make: MakeRing = Ring) -> Run:
    """Runs one random graph: started within 100 ms, with losses in two of three. In one of three, processes crash; in
    one of three, the failure detectors are wrong for a while."""
    rng = random.Random(f"ring {seed}")
    graph = draw(rng)
    slow = rng.choice((1, 10, 50)) * MS
    world = RingWorld(graph, rng, loss=rng.choice((0.0, 0.05, 0.2)), delays_ns=(slow // 10, slow), make=make)
    for member in graph:
        world.clock.at(rng.randrange(100 * MS), world.start, member)
    victims = _victims(graph, rng) if rng.random() < 0.34 else []
    for member in victims:
        world.clock.at(rng.randrange(100 * MS, 400 * MS), world.crash, member)
    doubts = rng.randrange(1, 4) if rng.random() < 0.34 else 0
    for _ in range(doubts if len(graph) > 1 else 0):
        one, other = rng.sample(sorted(graph), 2)
        for_ns = rng.randrange(400 * MS)
        world.clock.at(rng.randrange(100 * MS, 400 * MS), world.doubt, one, other, for_ns)
    everything = 400 * MS if victims or doubts else 100 * MS  # by then all has happened
    world.clock.at(everything, lambda: None)
    done = world.run(lambda: world.now >= everything and world.settled())
    took = world.now if done else -1
    return Run(seed, len(graph), len(victims), took, world.frames, frozenset(world.edges))


def _victims(graph: Discovery, rng: random.Random) -> list[int]:
    """Processes without which the parts of the graph stay connected."""
    chosen: list[int] = []
    whole = len(parts(graph))
    for member in rng.sample(sorted(graph), min(2, len(graph) - 1)):
        alone = not any(member in part and len(part) > 1 for part in parts(graph, chosen))
        if not alone and len(parts(graph, [*chosen, member])) == whole:
            chosen.append(member)
    return chosen


def report(seeds: Sequence[int]) -> int:
    """Runs graphs and prints how soon there was one view; returns the exit status."""
    runs: list[Run] = []
    with Progress() as progress:
        for done, seed in enumerate(seeds):
            progress.show(f"{done} of {len(seeds)} graphs")
            runs.append(run_graph(seed))
    failed = [each for each in runs if each.took_ns < 0]
    for each in failed:
        print(f"FAILED: not one view {LIMIT_NS // SECOND} s after the start")
        print(f"        replay: seqcast sim --rings {each.seed}..{each.seed}")
    for what, chosen in (
        ("without crashes", [each for each in runs if not each.crashed]),
        ("with crashes", [each for each in runs if each.crashed]),
    ):
        times = sorted(each.took_ns for each in chosen if each.took_ns >= 0)
        if times:
            took = ", ".join(f"{times[len(times) * part // 100 - 1] / MS:.0f}" for part in (50, 99, 100))
            frames = sum(each.frames for each in chosen) / sum(each.processes for each in chosen)
            said = f"ms to one view, p50, p99 and longest: {took}; {frames:.1f} frames a process"
            print(f"{len(times)} graphs {what}: {said}")
    rows = edges_of([Ring])
    taken = frozenset[Edge]().union(*[each.edges for each in runs])
    print(f"{len(runs)} graphs, {len(failed)} failed, {len(rows & taken)} of {len(rows)} table rows taken")
    return 1 if failed else 0
