"""The faults of a simulated run, and their times: all drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from seqcast.core.frames.closing import Block, Cut, Propose, Start
from seqcast.core.frames.kinds import Frame
from seqcast.core.frames.pausing import Resume, Suspend
from seqcast.core.frames.recalling import Kept
from seqcast.core.frames.view import NewView
from seqcast.sim import interface
from seqcast.sim.network import Clock, Network
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.process import Process
from seqcast.sim.seal import Sealings
from seqcast.sim.settings import config
from seqcast.sim.wire import frame

HOUR = 3600 * SECOND
BROKEN_NS_MAX = 3 * SECOND
"""An interface comes back after this long at most; one whose address was replaced may keep the other one."""

NARROW_BYTES = (1240, 1372, 1422, 1472)
"""The largest UDP payloads of narrow paths."""
ISLANDS_MAX = 32
"""Processes of a run that may not hear each other's multicasts."""
RANKED_LATER = 8
"""Processes that start later and have a rank, too."""
RANKED_OF_SUSPICION = 8
"""The lowest rank delays datagrams by this part of the suspicion time at most, for which nobody is suspected."""
FILES = (3,), (3, 20), (20, 3), (20,)
"""Marks of the keys in a file, before and after each step of a replacement."""
LOOKS = 64
"""Looks at the key files during the safety phase, and many more after that, for machines that stood still."""
AGAIN = "*'+#"
"""Marks that are added to the name of a process each time that the process starts again."""
NAMESAKE_NS_MAX = 2 * SECOND
"""Two processes have the same name, apart from all others, for this long at most."""


class Afflicted(Protocol):
    """The interface of the world to faults."""

    options: Options
    rng: random.Random
    clock: Clock
    network: Network
    nodes: list[Process]
    sealings: Sealings
    disks: dict[str, Kept]
    old_disks: dict[str, Kept]

    def start_node(self, name: str) -> None: ...
    def trace(self, node: Process | None, text: str) -> None: ...


class Faults:
    """Plans the faults of a run, and causes them."""

    def __init__(self, world: Afflicted) -> None:
        self.world, self.options, self.rng = world, world.options, world.rng
        self.clock, self.network, self.nodes = world.clock, world.network, world.nodes
        self.ambushes: list[type[Frame]] = []  # the last is the kind of frame at which the next ambush strikes
        self.leader_falls = self.options.falling_leader
        self.armed = 0  # writes that are to be struck
        self.lost = ""  # whose disk was lost: one alone, or those left are not a majority of the files
        self.sides: list[set[int]] = []  # into which the network is split: the end of another fault heals nothing

    def trace(self, node: Process | None, text: str) -> None:
        self.world.trace(node, text)

    def place(self, node: Process) -> None:
        """Puts a process that starts late on the first side."""
        for number, side in enumerate(self.sides):
            if number:
                self.network.partition({node.index}, side)
            else:
                side.add(node.index)
        if self.network.healed:
            self._connect()

    def plan(self) -> None:
        """Schedules the processes and the faults of the safety phase."""
        options = self.options
        if options.apart_ns:
            middle = options.members // 2
            self.network.partition(set(range(middle)), set(range(middle, options.members)))
            self.clock.at(options.apart_ns, self.heal)
        for number in range(options.members):
            self.clock.at(self.rng.randrange(options.spread_ns + 1), self.world.start_node, f"m{number}")
        self._plan_departures()
        self._plan_stops()
        self._plan_links()
        self._plan_frames()
        self._plan_interfaces()
        self._plan_firewalls()
        self._plan_namesakes()
        self._plan_alone()
        self._plan_islands()
        self._plan_ranks()
        self._plan_infos()
        self._plan_rotation()
        self._plan_narrows()
        self._plan_outages()

    def _when(self) -> int:
        """A moment of the safety phase, not too early."""
        return self.rng.randrange(self.options.duration_ns // 5, self.options.duration_ns)

    def _plan_departures(self) -> None:
        """Crashes and leaves."""
        options, rng, at, when = self.options, self.rng, self.clock.at, self._when
        together = rng.random() < 0.3  # several members crash, or leave, at the same time
        moment = when()
        for number in range(options.crashes):
            crash_ns = moment if together else when()
            at(crash_ns, self.some, Process.crash)
            if number < options.restarts:
                at(crash_ns + rng.randrange(2 * SECOND), self.world.start_node, f"r{number}")
        moment = when()
        for _ in range(options.leaves):
            at(moment if together else when(), self.some, Process.leave)
        for _ in range(options.hasty):
            at(rng.randrange(options.duration_ns), self.hurry)

    def _plan_stops(self) -> None:
        """Machines and applications that do not run for a while."""
        options, rng, at, when = self.options, self.rng, self.clock.at, self._when
        disks = (Process.slow_disk, options.slow_disks)
        for what, count in ((Process.pause, options.pauses), (Process.stall, options.stalls), disks):
            for _ in range(count):
                begin = when()
                at(begin, self.some, what, begin + rng.randrange(1, options.pause_ns))
        if options.starving_ns:
            at(options.duration_ns // 4, self.starve)
        for _ in range(options.stops):
            begin = when()
            stop = rng.choice((Process.pause, Process.stall))
            at(begin, self.some, stop, begin + rng.randrange(SECOND, options.stop_ns))

    def _plan_links(self) -> None:
        """Links that are cut, and members that doubt each other without cause."""
        options, rng, at, when = self.options, self.rng, self.clock.at, self._when
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

    def _plan_frames(self) -> None:
        """Ambushes of control frames, and other interruptions."""
        options, rng, at, when = self.options, self.rng, self.clock.at, self._when
        kinds: tuple[type[Frame], ...] = (Start, Cut, Cut, NewView, NewView)
        kinds += (Block, Block) if options.blocks else ()
        kinds += (Suspend, Resume) if options.suspends else ()
        kinds += (Propose,) if options.partition == "primary" else ()
        for _ in range(options.ambushes):
            kind = rng.choice(kinds)
            at(when(), self.ambushes.append, kind)
        for _ in range(options.one_way):
            begin = when()
            at(begin, self.cut_one_way)
            at(begin + rng.randrange(1500 * MS), self.heal)
        for _ in range(options.jumps):
            at(when(), self.some, Process.jump, rng.randrange(options.jump_ns), rng.randrange(-HOUR, HOUR))
        for _ in range(options.suspends):
            at(when(), self.some, Process.suspend, rng.randrange(SECOND))

    def _plan_interfaces(self) -> None:
        """From a random source of its own: the other faults stay the same."""
        rng, options = random.Random(f"interfaces {self.options.seed}"), self.options
        for _ in range(options.interfaces):
            begin = rng.randrange(options.duration_ns // 10, options.duration_ns)
            lasts_ns = rng.randrange(1, BROKEN_NS_MAX)
            self.clock.at(begin, self.break_interface, rng.choice(interface.KINDS), lasts_ns, rng.random())

    def _plan_firewalls(self) -> None:
        """From a random source of its own, too."""
        rng, options = random.Random(f"firewalls {self.options.seed}"), self.options
        for _ in range(options.mutes):
            begin = rng.randrange(options.duration_ns // 10, options.duration_ns)
            self.clock.at(begin, self.mute, rng.random(), rng.random() < 0.5)
            if rng.random() < 0.5:
                self.clock.at(begin + rng.randrange(5 * SECOND), self.network.mute.clear)

    def _plan_infos(self) -> None:
        """From a random source of its own, too."""
        rng, options = random.Random(f"infos of {self.options.seed}"), self.options
        for number in range(options.infos):
            self.clock.at(rng.randrange(options.duration_ns), self.inform, rng.random(), number + 1)

    def _plan_rotation(self) -> None:
        for look in range(8 * LOOKS if self.options.rotates else 0):
            self.clock.at(self.options.duration_ns * look // LOOKS, self._look_at_keys)

    def _look_at_keys(self) -> None:
        for node in self.nodes:
            if node.alive and node.can_run and node.marks != self.marks(node.name):
                node.read_keys(self.marks(node.name))

    def marks(self, name: str) -> tuple[int, ...]:
        """Of the keys in the file of this machine, where processes start again under the same name."""
        rng = random.Random(f"rotation {self.options.seed} {name.rstrip(AGAIN)}")
        late, forgotten = rng.random() / 8, rng.random() < 0.3
        part = 4 * (self.clock.now / self.options.duration_ns - late)
        if forgotten and 1 <= part < 2.4:
            part = 0
        return FILES[min(int(max(part, 0)), 3)]

    def inform(self, which: float, number: int) -> None:
        """An application gives its member another info."""
        alive = [node for node in self.nodes if node.alive]
        if alive:
            alive[int(which * len(alive))].say(number)

    def mute(self, which: float, both: bool) -> None:
        """Unicasts between two processes are lost from now on."""
        pairs = [(one.index, other.index) for one in self.nodes for other in self.nodes if one is not other]
        if not pairs or self.network.healed:
            return
        one, other = pairs[int(which * len(pairs))]
        self.trace(self.nodes[one], f"does not reach {self.nodes[other].name} by unicast{', nor back' * both}")
        self.network.mute |= {(one, other), (other, one)} if both else {(one, other)}

    def _plan_namesakes(self) -> None:
        """From a random source of its own: the other faults stay the same."""
        rng, options = random.Random(f"namesakes {self.options.seed}"), self.options
        for _ in range(options.namesakes):
            begin = rng.randrange(options.duration_ns // 5, options.duration_ns)
            fault = rng.choice((self.start_again_alone, self.start_namesake))
            self.clock.at(begin, fault, rng.randrange(200 * MS, NAMESAKE_NS_MAX), rng.random())

    def _plan_alone(self) -> None:
        """From a random source of its own, too."""
        rng, options = random.Random(f"alone {self.options.seed}"), self.options
        for _ in range(options.alone):
            begin = rng.randrange(options.duration_ns // 5, options.duration_ns)
            self.clock.at(begin, self.start_again_cut_off, rng.randrange(200 * MS, NAMESAKE_NS_MAX), rng.random())

    def _plan_islands(self) -> None:
        """From a random source of its own, too. The first are there from the start."""
        options = self.options
        rng = random.Random(f"islands {options.seed}")
        for number in range(options.islands):
            begin = rng.randrange(options.duration_ns) if number else 0
            self.clock.at(begin, self.deafen_pairs, rng.choice((0.2, 0.5, 0.9)), rng.random())

    def _plan_ranks(self) -> None:
        """From a random source of its own, too."""
        rng, options = random.Random(f"ranks {self.options.seed}"), self.options
        order = list(range(options.members + RANKED_LATER))
        rng.shuffle(order)
        hop_ns = options.delay_ns + 2 * options.jitter_ns
        most_ns = int(config(options).suspect_s * SECOND) // RANKED_OF_SUSPICION
        step_ns = min(rng.choice((1, 5)) * hop_ns, most_ns // len(order))
        for number in range(options.ranks):
            begin = rng.randrange(options.duration_ns) if number else 0
            self.clock.at(begin, self.rank, [*order[number:], *order[:number]], step_ns)

    def rank(self, order: Sequence[int], step_ns: int) -> None:
        """From now on datagrams come the later, the later their receiver stands in this order."""
        if not self.network.healed:
            self.network.behind = {index: place * step_ns for place, index in enumerate(order)}

    def deafen_pairs(self, share: float, which: float) -> None:
        """From now on this many pairs of processes, also of such as are to come, pass no multicast, and all others
        do."""
        rng, most = random.Random(which), range(ISLANDS_MAX)
        pairs = {(one, other) for one in most for other in most if one != other and rng.random() < share}
        both = rng.random() < 0.5
        self.network.deaf = pairs | {(other, one) for one, other in pairs} if both else pairs
        names = [node.name for node in self.nodes]
        told = [(one, other) for one, other in self.network.deaf if max(one, other) < len(names)]
        deaf = [f"{names[one]} to {names[other]}" for one, other in told]
        self.trace(None, f"passes no multicast from {', '.join(sorted(deaf))}")

    def _plan_narrows(self) -> None:
        """Paths that carry less from the start on, or from then on, perhaps in the middle of a view change."""
        options = self.options
        rng = random.Random(f"narrows {options.seed}")
        for number in range(options.narrows):
            begin = rng.randrange(options.duration_ns) if number or rng.random() < 0.5 else 0
            self.clock.at(begin, self.narrow_paths, rng.choice((0.2, 0.5, 1.0)), rng.random())
            if rng.random() < 0.5:  # the view changes at the same moment
                self.clock.at(begin, self.world.start_node, f"n{number}")

    def _plan_outages(self) -> None:
        """From a random source of its own, too."""
        options, rng = self.options, random.Random(f"outages {self.options.seed}")
        for _ in range(options.outages):
            begin = rng.randrange(options.duration_ns // 5, options.duration_ns)
            self.clock.at(begin, self.fail_power, rng.choice((0.5, 1.0, 1.0)), rng.random())
        for _ in range(options.writes):
            self.clock.at(rng.randrange(options.duration_ns // 10, options.duration_ns), self._arm)

    def _arm(self) -> None:
        self.armed += 1

    def breaks_write(self) -> bool:
        """Does the power fail in the middle of this write?"""
        breaks = self.armed > 0 and not self.network.healed
        self.armed -= breaks
        return breaks

    def strike(self, node: Process) -> None:
        """Crashes a process; its successor has the same disk."""
        node.crash()
        self.clock.at(self.clock.now + self.rng.randrange(SECOND), self.world.start_node, node.name)

    def fail_power(self, share: float, which: float) -> None:
        """Most members, or all, crash at once, and start again one after the other."""
        rng = random.Random(which)
        alive = [node for node in self.nodes if node.alive and not node.record.leaving]
        if self.network.healed or not alive:
            return
        struck = rng.sample(alive, min(len(alive), int(share * len(alive)) + 1))
        self.trace(None, f"loses power at {sorted(node.name for node in struck)}")
        views = {node.endpoint.view for node in alive}
        settled = len(views) == 1 and None not in views and not any(node.answered for node in alive)
        if len(struck) == len(alive) > 2 and settled and not self.lost and rng.random() < 0.5:
            self.lost = lost = rng.choice(struck).name
            old = self.world.old_disks.get(lost) if rng.random() < 0.5 else None
            self.trace(None, f"leaves {lost} {'an old disk' if old else 'no disk'}")
            self.world.disks.pop(lost, None)
            if old is not None:
                self.world.disks[lost] = old
        for node in struck:
            self.strike(node)

    def narrow_paths(self, share: float, which: float) -> None:
        """From now on this many pairs of processes, also of such as are to come, pass only smaller datagrams, and some
        that did pass more again."""
        rng, most = random.Random(which), range(ISLANDS_MAX)
        pairs = {(one, other) for one in most for other in most if one != other and rng.random() < share}
        self.network.narrow = {pair: rng.choice(NARROW_BYTES) for pair in sorted(pairs)}
        names = [node.name for node in self.nodes]
        told = [f"{names[a]} to {names[b]} {size}" for (a, b), size in self.network.narrow.items()
                if max(a, b) < len(names)]  # fmt: skip
        self.trace(None, f"passes datagrams of at most this many bytes: {', '.join(told)}")

    def _connect(self) -> None:
        """A process that neither hears multicasts nor is heard by others could not be found."""
        deaf, alive = self.network.deaf, [node.index for node in self.nodes if node.alive and not node.record.leaving]
        reached = set(alive[:1])
        while deaf and (left := [index for index in alive if index not in reached]):
            pairs = [(one, other) for a in reached for b in left for one, other in ((a, b), (b, a))]
            heard = [pair for pair in pairs if pair not in deaf]
            if not heard:
                deaf.discard(pairs[0])
            reached |= {index for pair in heard for index in pair}

    def start_again_cut_off(self, lasts_ns: int, which: float) -> None:
        """A member is killed, and starts again under its name where no other process hears it."""
        inside = [node for node in self.nodes if node.inside]
        if len(inside) < 2 or self.network.healed:
            return
        node = inside[int(which * len(inside))]
        node.crash()
        self.network.partition({len(self.nodes)}, {other.index for other in self.nodes})
        self.world.start_node(node.name)
        self.trace(self.nodes[-1], "starts again, cut off from the others")
        self.clock.at(self.clock.now + lasts_ns, self.heal)

    def start_again_alone(self, lasts_ns: int, which: float) -> None:
        """A member is killed, and starts again under its name while the others are stopped."""
        inside = [node for node in self.nodes if node.inside]
        if len(inside) < 2:
            return
        node = inside[int(which * len(inside))]
        for other in inside:
            if other is not node:
                other.pause(self.clock.now + lasts_ns)
        node.crash()
        self.world.start_node(node.name)

    def start_namesake(self, lasts_ns: int, which: float) -> None:
        """The network is cut in two, and a process starts with the name of a member on the other side."""
        inside = [node for node in self.nodes if node.inside]
        if len(inside) < 2 or self.network.healed:
            return
        node = inside[int(which * len(inside))]
        middle = len(inside) // 2
        side = {other.index for other in (inside[:middle] if node in inside[:middle] else inside[middle:])}
        others = {other.index for other in self.nodes} - side | {len(self.nodes)}
        self.network.partition(side, others)
        self.world.start_node(node.name)
        self.trace(self.nodes[-1], f"has the name of a member on the other side of a partition, {sorted(side)}")
        self.clock.at(self.clock.now + lasts_ns, self.heal)

    def break_interface(self, fault: str, lasts_ns: int, which: float) -> None:
        """Breaks the working interface of a member, a joiner or a leaver."""
        sound = [node for node in self.nodes if node.alive and not node.interface.fault]
        if not sound or self.network.healed:
            return
        node = sound[int(which * len(sound))]
        for_good = fault == "replaced" and lasts_ns > BROKEN_NS_MAX // 2 and len(sound) > 1
        node.interface.fail(fault, 0 if for_good else lasts_ns)

    def starve(self) -> None:
        """There are too few processors for some members, until the safety phase ends; the same for all of them."""
        options = self.options
        rng = random.Random(f"starved {options.seed}")
        alive = [node for node in self.nodes if node.up]
        chosen = rng.sample(alive, round(options.starved * len(alive)))
        self.trace(None, f"has too few processors: {[node.name for node in chosen]} wait for them")
        for node in chosen:
            node.starve(options.duration_ns, options.starving_ns, whole=rng.random() < 0.7)

    def some(self, fault: Callable[..., None], *args: object) -> None:
        """Does something to one living member, often the coordinator, whose loss is the hardest. If a majority founds
        the group, then not before that: joiners wait for the one they voted for until an operator declares its loss."""
        alive = [node for node in self.nodes if node.alive and not node.record.leaving]
        if self.options.found > 1:
            alive = [node for node in alive if node.record.may_send]
        if len(alive) > 1:
            coordinators = [node for node in alive if node.view and node.view.rank(node.id) == 0]
            fault(self.rng.choice(coordinators if coordinators and self.rng.random() < 0.5 else alive), *args)

    def hurry(self) -> None:
        """An application leaves or closes, whether in, joining or out; one stays."""
        alive = [node for node in self.nodes if node.alive and not node.record.leaving]
        nodes = [node for node in self.nodes if node.up and (len(alive) > 1 or node not in alive)]
        if nodes:
            self.rng.choice(nodes).application.end(leaves=self.rng.random() < 0.6)

    def doubt(self) -> None:
        """One member takes another, often the coordinator, for dead, and starts a flush of its own."""
        inside = [node for node in self.nodes if node.up and node.view and len(node.view.members) > 1]
        if inside:
            node = self.rng.choice(inside)
            assert node.view is not None
            others = [member.id for member in node.view.members if member.id != node.id]
            node.doubt(others[0] if self.rng.random() < 0.5 else self.rng.choice(others))

    def duel(self) -> None:
        """Rank 1 takes rank 0 and perhaps another for dead, rank 0 somebody else: both start a flush."""
        rng = self.rng
        views = [node.view for node in self.nodes if node.up and node.view]
        members = rng.choice(views).members if views else ()
        nodes = [node for member in members for node in self.nodes if node.id == member.id and node.up]
        if len(nodes) < 3:
            return
        doubts = [(nodes[1], nodes[0]), (nodes[0], rng.choice(nodes[1:]))]
        doubts += [(nodes[1], node) for node in nodes[2:] if rng.random() < 0.3]
        for node, other in doubts:
            self.clock.at(self.clock.now + rng.randrange(20 * self.options.delay_ns), node.doubt, other.id)

    def doubt_each_other(self) -> None:
        """Rank 0 and rank 1 take each other for dead, and continue with the others, at nearly the same time."""
        views = [node.view for node in self.nodes if node.up and node.view]
        if views:
            members = max(views, key=lambda view: len(view.members)).members
            nodes = [node for member in members[:2] for node in self.nodes if node.id == member.id]
            for node, other in zip(nodes, nodes[::-1], strict=True):
                self.clock.at(self.clock.now + self.rng.randrange(4 * MS), node.doubt, other.id)

    def awaits(self, datagram: bytes) -> bool:
        """Does the next ambush strike at this frame?"""
        return bool(self.ambushes) and isinstance(frame(datagram, self.world.sealings), self.ambushes[-1])

    def ambush(self, source: Process, datagram: bytes) -> None:
        """The control frame reaches only some members, and then a fault strikes its sender."""
        rng, kind = self.rng, self.ambushes.pop()
        others = [node for node in self.nodes if node is not source]
        reached = rng.sample(others, rng.randrange(len(others) + 1))
        for node in reached:
            if self.network.multicasts(source.index, node.index):
                self.network.carry(source.index, node.index, node.receive, datagram, source.source(node.index))
        fault = rng.choice(("crash", "pause", "stall", "cut"))
        self.trace(
            source, f"is struck in the middle of {kind.__name__}: {fault}; reached {[node.name for node in reached]}"
        )
        if fault == "crash" and sum(node.alive for node in self.nodes) > 1:
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
        """A link between two members, or between two parts of the network, goes down and up this many times."""
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
        """Of two members, neither the coordinator, one no longer hears the other."""
        inside = [node for node in self.nodes if node.up and node.view and node.view.rank(node.id)]
        if len(inside) > 1:
            source, target = self.rng.sample(inside, 2)
            self.trace(None, f"carries nothing from {source} to {target} any more")
            self.network.cut.add((source.index, target.index))

    def heal(self) -> None:
        if not self.sides:
            self.trace(None, "is whole")
            self.network.heal()

    def end(self) -> None:
        """From now on there are no faults."""
        self.sides = []
        self.heal()
        for node in self.nodes:
            node.interface.end()
        self.network.filtered_in.clear()
        self.network.filtered_out.clear()
        self.ambushes.clear()
        self.network.healed = True
        self.network.behind = {}
        self._connect()

    def fall_apart(self) -> list[set[int]]:
        """The network splits into sides, for good; returns the indices on each."""
        self.end()
        indices = [node.index for node in self.nodes if node.alive]
        self.rng.shuffle(indices)
        sides = self.sides = [set(indices[number :: self.options.split]) for number in range(self.options.split)]
        for number, side in enumerate(sides):
            self.network.partition(side, set().union(*sides[number + 1 :]))
        named = [sorted(self.nodes[index].name for index in side) for side in sides]
        self.trace(None, f"falls apart: {named}")
        return sides

    def filter_one(self) -> Process | None:
        """One member, as likely as not the coordinator, loses multicast, but no unicast; None: all are alone."""
        ranks = {
            node: node.view.rank(node.id)
            for node in self.nodes
            if node.up and node.view and not node.record.leaving
            and len(node.view.members) > 1
        }  # fmt: skip
        if not ranks:
            return None
        inside = sorted(ranks, key=lambda node: ranks[node])
        deaf = inside[0] if self.rng.random() < 0.5 else self.rng.choice(inside)
        self.trace(None, f"carries no multicast of {deaf} any more: {self.options.filtered}")
        if self.options.filtered != "out":
            self.network.filtered_in.add(deaf.index)
        if self.options.filtered != "in":
            self.network.filtered_out.add(deaf.index)
        return deaf
