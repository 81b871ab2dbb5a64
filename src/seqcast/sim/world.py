"""A simulated group: processes, faults, a safety phase and then a liveness phase, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from seqcast._native.engine import Engine
from seqcast.core.endpoint import Endpoint
from seqcast.core.table import Edge
from seqcast.sim import checkers
from seqcast.sim.desk import Desk
from seqcast.sim.network import Clock, Network
from seqcast.sim.node import Delivered, Node
from seqcast.sim.options import MS, SECOND, Options
from seqcast.types import View

LIVENESS_NS_MAX = 30 * SECOND
SPLIT_NS_MAX = 20 * SECOND
FILTERED_NS_MAX = 20 * SECOND
VIOLATIONS_MAX = 10
HOUR = 3600 * SECOND


@dataclass
class Result:
    """What a run came to."""

    options: Options
    violations: list[str]
    digest: str
    packets: int
    messages: int
    views: int
    virtual_ns: int
    edges: set[Edge] = field(default_factory=set)


class World:
    """One run.

    Args:
        options: the run.
        write: where each traced event goes, as a line; None: nowhere.
        make_engine, make_endpoint: other ones in tests that must be seen to fail.
    """

    def __init__(
        self,
        options: Options,
        write: Callable[[str], None] | None = None,
        make_engine: Callable[..., Engine] = Engine,
        make_endpoint: Callable[..., Endpoint] = Endpoint,
    ) -> None:
        self.options, self.write = options, write
        self.make_engine, self.make_endpoint = make_engine, make_endpoint
        self.rng = random.Random(f"world {options.seed}")
        self.clock = Clock()
        self.network = Network(options, self.clock, random.Random(f"network {options.seed}"))
        self.nodes: list[Node] = []
        self.by_address: dict[bytes, Node | Desk] = {}
        self.rejoins = options.rejoins
        self.state_refusals = options.state_refusals
        self.ambushes: list[bytes] = []  # what a datagram holds when the next one strikes
        self.leader_falls = options.falling_leader
        self.doubted = False  # a member was told to take another for dead
        self.needless: list[str] = []  # changes of a view for which there was no reason
        self.settling = False  # the liveness phase: who starts now sends nothing
        self.sides: list[set[int]] = []  # into which the network has fallen: the end of another fault heals nothing
        self.desks: list[Desk] = []  # of operators
        self.ended = False  # an operator has chosen between groups that were founded apart
        self.allowed: set[int] = set()  # tags of views whose minority an operator let go on

    def trace(self, node: Node | Desk | None, text: str) -> None:
        if self.write:
            self.write(f"{self.clock.now / 1e6:10.3f} ms  {node or 'network'} {text}")

    def name(self, member_id: int) -> str:
        return next((node.name for node in self.nodes if node.id == member_id), "a stranger")

    def changed(self, node: Node, old: View, view: View) -> None:
        """In a calm run a view changes only because somebody comes, leaves or falls, or lacks the state."""
        if self.doubted or not self.options.calm:
            return
        by_id = {other.id: other for other in self.nodes}
        kept = [by_id[member.id] for member in old.members if view.rank(member.id) < 0 and member.id in by_id]
        for other in kept:
            if other.up and not other.leaving and not other.endpoint.over:
                self.needless.append(f"needless: {node} installs {view} after {old}, and {other} is there and well")
        same = {member.id for member in old.members} == {member.id for member in view.members}
        if same and not self.options.state:
            self.needless.append(f"needless: {node} installs {view} after {old}: nobody came, left or fell")

    def refuses(self) -> bool:
        """Is this one of the times that a handler fails to give the state?"""
        self.state_refusals -= 1
        return self.state_refusals >= 0

    # ---- datagrams

    def multicast(self, source: Node | Desk, datagram: bytes) -> None:
        if isinstance(source, Node) and self.ambushes and self.ambushes[-1] in datagram:
            self.ambush(source, datagram)
            return
        for node in self.nodes:
            if node is not source and self.network.multicasts(source.index, node.index):
                self.network.carry(source.index, node.index, node.receive, datagram, source.address)

    def unicast(self, source: Node, to: bytes, datagram: bytes) -> None:
        node = self.by_address.get(to)
        if node is None:
            return
        if self.leader_falls and isinstance(node, Node) and b'"kind":"merge_ready"' in datagram:
            self.leader_falls = False
            node.crash()
        if node.up:
            self.network.carry(source.index, node.index, node.receive_unicast, datagram, source.address)
        elif not self.options.hosts and (source.index, node.index) not in self.network.cut:
            self.network.carry(node.index, source.index, source.refused, b"", to)

    # ---- the run

    def start_node(self, name: str) -> None:
        node = Node(self, len(self.nodes), name, self.options, self.make_engine, self.make_endpoint)
        self.nodes.append(node)
        self.by_address[node.address] = node
        for number, side in enumerate(self.sides):  # who starts late is on the first side
            if number:
                self.network.partition({node.index}, side)
            else:
                side.add(node.index)
        node.sending = not self.settling
        node.start()
        node.service()

    def excluded(self, node: Node) -> None:
        """Its process starts a new incarnation."""
        if self.rejoins and not self.network.healed:
            self.rejoins -= 1
            self.clock.at(self.clock.now + self.rng.randrange(50 * MS), self.start_node, f"{node.name}'")

    def run(self) -> Result:
        self.plan()
        self.clock.run(self.options.duration_ns)
        primary = self.options.partition == "primary"
        violations = self.lose_multicast() if self.options.filtered else []
        violations += self.fall_apart() if primary and self.options.split else []
        violations += self.settle()
        violations += islice(checkers.check_safety(self.nodes), VIOLATIONS_MAX)
        violations += self.needless[:VIOLATIONS_MAX]
        violations += self.network.repairs.check() if self.network.repairs else ()
        if primary:
            violations += islice(checkers.check_primary(self.nodes, self.allowed), VIOLATIONS_MAX)
            violations += islice(checkers.check_histories(self.nodes), VIOLATIONS_MAX)
        nodes = self.nodes
        return Result(
            options=self.options,
            violations=violations,
            digest=checkers.digest(nodes, self.network.packets),
            packets=self.network.packets,
            messages=sum(isinstance(entry, Delivered) for node in nodes for entry in node.log),
            views=len({stay.view.view_id for node in nodes for stay in checkers.stays(node)}),
            virtual_ns=self.clock.now,
            edges=set().union(*(node.endpoint.edges for node in nodes)),
        )

    def plan(self) -> None:
        """Schedules the processes and the faults of the safety phase."""
        options, rng, at = self.options, self.rng, self.clock.at
        end = options.duration_ns
        if options.apart_ns:
            middle = options.members // 2
            self.network.partition(set(range(middle)), set(range(middle, options.members)))
            at(options.apart_ns, self.heal)
        for number in range(options.members):
            at(rng.randrange(options.spread_ns + 1), self.start_node, f"m{number}")

        def when() -> int:
            return rng.randrange(end // 5, end)

        together = rng.random() < 0.3  # several members fall at the same time
        moment = when()
        for number in range(options.crashes):
            crash_ns = moment if together else when()
            at(crash_ns, self.some, Node.crash)
            if number < options.restarts:
                at(crash_ns + rng.randrange(2 * SECOND), self.start_node, f"r{number}")
        moment = when()
        for _ in range(options.leaves):
            at(moment if together else when(), self.some, Node.leave)
        for _ in range(options.hasty):
            at(rng.randrange(end), self.hurry)
        disks = (Node.slow_disk, options.slow_disks)
        for what, count in ((Node.pause, options.pauses), (Node.stall, options.stalls), disks):
            for _ in range(count):
                begin = when()
                at(begin, self.some, what, begin + rng.randrange(1, options.pause_ns))
        if options.starving_ns:
            at(end // 4, self.starve)
        for _ in range(options.stops):
            begin = when()
            at(begin, self.some, rng.choice((Node.pause, Node.stall)), begin + rng.randrange(SECOND, options.stop_ns))
        for _ in range(options.flaps):
            at(when(), self.begin_flapping, rng.randrange(2, 6))
        for _ in range(options.partitions):
            begin = when()
            at(begin, self.partition)
            at(begin + rng.randrange(1500 * MS), self.heal)
        for _ in range(options.deaf):
            at(when(), self.deafen)
        for _ in range(options.doubts):
            begin = when()
            at(begin, rng.choice((self.doubt, self.duel)))
        for _ in range(options.duels):
            at(when(), self.doubt_each_other)
        for _ in range(options.ambushes):
            kinds: tuple[bytes, ...] = (b"start", b"cut", b"cut", b"view", b"view")
            kinds += (b"block", b"block") if options.blocks else ()
            kinds += (b"suspend", b"resume") if options.suspends else ()
            kinds += (b"propose",) if options.partition == "primary" else ()
            kind = rng.choice(kinds)
            at(when(), self.ambushes.append, b'"kind":"%b"' % kind)
        for _ in range(options.one_way):
            begin = when()
            at(begin, self.cut_one_way)
            at(begin + rng.randrange(1500 * MS), self.heal)
        for _ in range(options.jumps):
            at(when(), self.some, Node.jump, rng.randrange(options.jump_ns), rng.randrange(-HOUR, HOUR))
        for _ in range(options.suspends):
            at(when(), self.some, Node.suspend, rng.randrange(SECOND))

    def starve(self) -> None:
        """There are too few processors for some members, until the safety phase ends; the same for all of them."""
        options = self.options
        rng = random.Random(f"starved {options.seed}")
        alive = [node for node in self.nodes if node.up]
        chosen = rng.sample(alive, round(options.starved * len(alive)))
        self.trace(None, f"has too few processors: {[node.name for node in chosen]} wait for them")
        for node in chosen:
            node.starve(options.duration_ns, options.starving_ns, whole=rng.random() < 0.7)

    def paused(self, node: Node) -> None:
        """A pause is held: all members have delivered the same in this view, and are told that they are blocked."""
        view = node.endpoint.view
        if view is None:  # it left, or was excluded, in the same step
            node.pauses[-1].held_ns = 0
            return
        node.pauses[-1].view_id = view.view_id
        self.trace(node, "holds the pause")
        seen: set[frozenset[tuple[int, int]]] = set()
        for other in self.nodes:
            if other.up and other.endpoint.view == view and other.inside and self.clock.now >= other.slow_until:
                if not other.blocked:
                    node.violations.append(f"pause: {node} holds it at {self.clock.now}, and {other} may send")
                entries = [entry for entry in other.log if isinstance(entry, Delivered)]
                seen.add(frozenset((e.sender, e.counter) for e in entries if e.tag == view.view_id.tag and not e.to))
        if len(seen) > 1:
            odd = sorted(frozenset.union(*seen) - frozenset.intersection(*seen))[:3]
            node.violations.append(f"pause: {node} holds it, and members have not delivered the same: {odd}")

    def some(self, fault: Callable[..., None], *args: object) -> None:
        """Does something to one living member; preferably to the coordinator, which is the hardest to lose."""
        alive = [node for node in self.nodes if node.up and not node.leaving and not node.endpoint.over]
        if len(alive) > 1:
            coordinators = [node for node in alive if node.endpoint.view and node.endpoint.view.rank(node.id) == 0]
            fault(self.rng.choice(coordinators if coordinators and self.rng.random() < 0.5 else alive), *args)

    def hurry(self) -> None:
        """An application leaves or closes, whether it is in, on its way, or out; one goes on."""
        alive = [node for node in self.nodes if node.up and not node.leaving and not node.endpoint.over]
        nodes = [node for node in self.nodes if node.up and (len(alive) > 1 or node not in alive)]
        if nodes:
            self.rng.choice(nodes).end(leaves=self.rng.random() < 0.6)

    def doubt(self) -> None:
        """One member takes another for dead, often the one before it, so that it starts a flush of its own."""
        inside = [node for node in self.nodes if node.up and node.endpoint.view and len(node.endpoint.view.members) > 1]
        if inside:
            node = self.rng.choice(inside)
            assert node.endpoint.view is not None
            others = [member.id for member in node.endpoint.view.members if member.id != node.id]
            node.doubt(others[0] if self.rng.random() < 0.5 else self.rng.choice(others))

    def duel(self) -> None:
        """Rank 1 takes rank 0 and perhaps another for dead, rank 0 somebody else: both start a flush."""
        rng = self.rng
        views = [node.endpoint.view for node in self.nodes if node.up and node.endpoint.view]
        members = rng.choice(views).members if views else ()
        nodes = [node for member in members for node in self.nodes if node.id == member.id and node.up]
        if len(nodes) < 3:
            return
        doubts = [(nodes[1], nodes[0]), (nodes[0], rng.choice(nodes[1:]))]
        doubts += [(nodes[1], node) for node in nodes[2:] if rng.random() < 0.3]
        for node, other in doubts:
            self.clock.at(self.clock.now + rng.randrange(20 * self.options.delay_ns), node.doubt, other.id)

    def doubt_each_other(self) -> None:
        """Rank 0 and rank 1 take each other for dead, and go on with the others, at nearly the same time."""
        views = [node.endpoint.view for node in self.nodes if node.up and node.endpoint.view]
        if views:
            members = max(views, key=lambda view: len(view.members)).members
            nodes = [node for member in members[:2] for node in self.nodes if node.id == member.id]
            for node, other in zip(nodes, nodes[::-1], strict=True):
                self.clock.at(self.clock.now + self.rng.randrange(4 * MS), node.doubt, other.id)

    def ambush(self, source: Node, datagram: bytes) -> None:
        """The control frame reaches some members only, and then a fault strikes its sender."""
        rng, frame = self.rng, self.ambushes.pop().decode()
        others = [node for node in self.nodes if node is not source]
        reached = rng.sample(others, rng.randrange(len(others) + 1))
        for node in reached:
            if self.network.multicasts(source.index, node.index):
                self.network.carry(source.index, node.index, node.receive, datagram, source.address)
        fault = rng.choice(("crash", "pause", "stall", "cut"))
        self.trace(source, f"is struck in the middle of {frame}: {fault}; reached {[node.name for node in reached]}")
        if fault == "crash" and sum(node.up and not node.endpoint.over for node in self.nodes) > 1:
            source.crash()
        elif fault == "pause":
            source.pause(self.clock.now + rng.randrange(1, 2 * self.options.pause_ns))
        elif fault == "stall":
            source.stall(self.clock.now + rng.choice((300, 1500, 6000)) * MS)
        else:
            self.network.partition({source.index}, {node.index for node in others if node not in reached})
            self.clock.at(self.clock.now + rng.randrange(2 * SECOND), self.heal)

    def partition(self) -> None:
        indices = [node.index for node in self.nodes]
        self.rng.shuffle(indices)
        if len(indices) > 1:
            middle = self.rng.randrange(1, len(indices))
            self.trace(None, f"splits: {[self.nodes[index].name for index in indices[:middle]]} from the others")
            self.network.partition(set(indices[:middle]), set(indices[middle:]))

    def begin_flapping(self, times: int) -> None:
        """A link between two members, or what joins two parts of the network, goes down and up so many times."""
        indices = [node.index for node in self.nodes]
        self.rng.shuffle(indices)
        if len(indices) > 1:
            link = self.rng.random() < 0.5
            middle = self.rng.randrange(1, len(indices))
            one, other = (indices[:1], indices[1:2]) if link else (indices[:middle], indices[middle:])
            self.flap(set(one), set(other), times)

    def flap(self, one: set[int], other: set[int], times: int) -> None:
        if self.network.healed:
            return
        sides = [[self.nodes[index].name for index in sorted(side)] for side in (one, other)]
        self.trace(None, f"flaps between {sides[0]} and {sides[1]}")
        self.network.partition(one, other)
        up = self.clock.now + self.rng.randrange(1, self.options.flap_ns)
        self.clock.at(up, self.heal)
        if times > 1:
            self.clock.at(up + self.rng.randrange(1, self.options.flap_ns), self.flap, one, other, times - 1)

    def cut_one_way(self) -> None:
        if len(self.nodes) > 1:
            source, target = self.rng.sample(self.nodes, 2)
            self.trace(None, f"carries nothing from {source} to {target}")
            self.network.cut.add((source.index, target.index))

    def deafen(self) -> None:
        """Two members that do not coordinate: one does not hear the other any more."""
        inside = [node for node in self.nodes if node.up and node.endpoint.view and node.endpoint.view.rank(node.id)]
        if len(inside) > 1:
            source, target = self.rng.sample(inside, 2)
            self.trace(None, f"carries nothing from {source} to {target} any more")
            self.network.cut.add((source.index, target.index))

    def heal(self) -> None:
        if not self.sides:
            self.trace(None, "is whole")
            self.network.heal()

    def fall_apart(self) -> list[str]:
        """The last fault: the network falls into sides, until each has gone on or knows that it is blocked."""
        self.end_faults()
        indices = [node.index for node in self.nodes if node.up and not node.endpoint.over]
        self.rng.shuffle(indices)
        sides = self.sides = [set(indices[number :: self.options.split]) for number in range(self.options.split)]
        for number, side in enumerate(sides):
            self.network.partition(side, set().union(*sides[number + 1 :]))
        self.trace(None, f"falls apart: {[sorted(self.nodes[index].name for index in side) for side in sides]}")
        limit = self.clock.now + SPLIT_NS_MAX
        while any(checkers.check_sides(self.nodes, sides)) and self.clock.now < limit:
            self.clock.run(self.clock.now + 100 * MS)
        return list(islice(checkers.check_sides(self.nodes, sides), VIOLATIONS_MAX))

    def lose_multicast(self) -> list[str]:
        """One member, as likely as not the coordinator, loses multicast alone, until the others have gone on for
        a while without it."""
        self.end_faults()
        self.clock.run(self.clock.now + SECOND)  # what is under way first
        inside = [node for node in self.nodes if node.up and not node.endpoint.over and node.endpoint.view]
        inside = [node for node in inside if len(node.endpoint.view.members) > 1 and not node.leaving]  # type: ignore[union-attr]
        if not inside:
            return []
        inside.sort(key=lambda node: node.endpoint.view.rank(node.id))  # type: ignore[union-attr]
        deaf = inside[0] if self.rng.random() < 0.5 else self.rng.choice(inside)
        self.trace(None, f"carries no multicast of {deaf} any more: {self.options.filtered}")
        if self.options.filtered != "out":
            self.network.filtered_in.add(deaf.index)
        if self.options.filtered != "in":
            self.network.filtered_out.add(deaf.index)
        limit, quiet = self.clock.now + FILTERED_NS_MAX, 0
        found: list[str] = []
        while quiet < 10 and self.clock.now < limit:
            packets = {node: node.packets_sent for node in self.nodes if node.up}
            self.clock.run(self.clock.now + 100 * MS)
            found = list(islice(checkers.check_filtered(self.nodes, deaf, packets), VIOLATIONS_MAX))
            quiet = 0 if found else quiet + 1
        return found

    def end_faults(self) -> None:
        self.sides = []
        self.heal()
        self.network.filtered_in.clear()
        self.network.filtered_out.clear()
        self.ambushes.clear()
        self.network.healed = True

    def end_one_of_two(self) -> None:
        """Members warn that of groups that were founded apart none gives way: an operator ends all but one, once, and
        starts their processes again."""
        alive = [node for node in self.nodes if node.up and not node.endpoint.over and node.endpoint.view]
        told = any("neither gives way" in text for node in alive for text in node.warnings)
        if self.ended or not told or len({node.endpoint.view for node in alive}) < 2:
            return
        self.ended = True
        stays = self.rng.choice(alive).endpoint.view
        self.trace(None, f"an operator ends all members that are not in {stays}")
        for node in alive:
            if node.endpoint.view != stays:
                node.crash()
                self.start_node(f"{node.name}#")

    def settle(self) -> list[str]:
        """The liveness phase: no new faults; waits until all is as it must be, and a little longer."""
        self.end_faults()
        self.settling = True
        for node in self.nodes:
            node.sending = False
        # What is under way first (restarts, pauses, suspicion), then one more message of each member.
        awake = [max(node.paused_until, node.stalled_until) for node in self.nodes if node.up]
        self.clock.run(max(self.clock.now + 3 * SECOND, max(awake, default=0) + SECOND))
        limit = self.clock.now + LIVENESS_NS_MAX
        for node in self.nodes:
            if node.up and not node.endpoint.over and not node.leaving:
                node.say_last()
                node.service()
        quiet = 0
        while self.clock.now < limit:
            self.clock.run(self.clock.now + 100 * MS)
            quiet = quiet + 1 if not any(checkers.check_liveness(self.nodes)) else 0
            if quiet == 8:
                break
            if quiet == 0 and self.options.partition == "primary":
                self.end_one_of_two()
            if checkers.lost_majority(self.nodes) and all(desk.over for desk in self.desks):
                self.desks.append(Desk(self, len(self.desks)))
        late = list(islice(checkers.check_liveness(self.nodes), VIOLATIONS_MAX))
        return late or list(islice(checkers.check_delivered(self.nodes), VIOLATIONS_MAX))


def simulate(options: Options, write: Callable[[str], None] | None = None) -> Result:
    """Runs one simulated group."""
    return World(options, write).run()
