"""A simulated group: processes on a network, a safety phase and then a liveness phase, all from one seed."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from seqcast._native.engine import Engine
from seqcast.config import Config
from seqcast.config.derive import SEALINGS_MAX
from seqcast.core.endpoint import Endpoint
from seqcast.core.frames.merging import MergeReady
from seqcast.core.frames.recalling import Kept
from seqcast.core.frames.view import NewView
from seqcast.core.machines.beacons import NEITHER_GIVES_WAY
from seqcast.core.secrets import CIPHERS
from seqcast.core.table import Edge
from seqcast.core.vocabulary import Effect, ExcludedBy, JoinFailed
from seqcast.sim.checkers import infos, liveness, observers, pauses, primary, safety, secrecy, taken, views
from seqcast.sim.checkers.digest import digest
from seqcast.sim.faults import Faults
from seqcast.sim.network import Clock, Network
from seqcast.sim.operator import OperatorProcess
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.process import Process
from seqcast.sim.quiet import Quiet, repeated
from seqcast.sim.record import Delivered, Record, Together, stays
from seqcast.sim.seal import Sealings
from seqcast.sim.stranger import Stranger
from seqcast.sim.wire import frame
from seqcast.types import View

LIVENESS_NS_MAX = 30 * SECOND
SPLIT_NS_MAX = 20 * SECOND
FILTERED_NS_MAX = 20 * SECOND
"""Limits of the phases of a run with the default preset; with one that suspects later they are longer (`patience`)."""
VIOLATIONS_MAX = 10


def patience(options: Options) -> int:
    """How many times longer than by default a run's phases may take: with a longer suspicion time, and with gossip,
    which repairs a window of packets per round, so that large messages take long through small rings. So do windows of
    large packets if retransmission is limited in rate."""
    limited = options.packet_bytes > 60_000 and "retransmit_bytes_per_s" in dict(options.settings)
    slower = 4 if options.reliability == "gossip" or limited else 1
    return slower * max(1, round(Config(preset=options.preset).suspect_s / Config().suspect_s))


@dataclass
class Result:
    """The result of a run."""

    options: Options
    violations: list[str]
    digest: str
    packets: int
    messages: int
    views: int
    virtual_ns: int
    edges: set[Edge] = field(default_factory=set)
    paths: Counter[str] = field(default_factory=Counter)


class World:
    """One run.

    Args:
        options: the run.
        write: where each traced event goes, as a line; None: nowhere.
        make_engine, make_endpoint: other ones, in tests that must fail.
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
        self.sealings = Sealings()
        self.made: dict[int, NewView] = {}  # VIEWs that were sent, by tag
        self.disks: dict[str, Kept] = {}  # the votes that members kept, by name
        self.old_disks: dict[str, Kept] = {}  # the same, of the view before
        self.nodes: list[Process] = []
        self.by_address: dict[bytes, Process | OperatorProcess] = {}
        self.faults = Faults(self)
        self.rejoins = options.rejoins
        self.state_refusals = options.state_refusals
        self.doubted = False  # a member was told to take another for dead
        if options.strangers:
            rng = random.Random(f"stranger {options.seed}")
            self.network.stranger = Stranger(self.nodes, self.sealings, options.strangers, rng)
        self.needless: list[str] = []  # view changes without a reason
        self.settling = False  # the liveness phase: processes that start now send nothing
        self.operators: list[OperatorProcess] = []
        self.resting = False  # only the checks of a quiet group do anything
        self.ended = False  # an operator has chosen between groups founded apart
        self.more = False  # processes were started, as too few were left to found the group
        self.allowed: set[int] = set()  # tags of views whose minority an operator let continue

    @property
    def records(self) -> Sequence[Record]:
        """The evidence for the checkers."""
        return [node.record for node in self.nodes]

    def trace(self, node: Process | OperatorProcess | None, text: str) -> None:
        if self.write:
            self.write(f"{self.clock.now / 1e6:10.3f} ms  {node or 'network'} {text}")

    def name(self, member_id: int) -> str:
        return next((node.name for node in self.nodes if node.id == member_id), "a stranger")

    def record(self, member_id: int) -> Record:
        return next(node.record for node in self.nodes if node.id == member_id)

    # ---- reports of processes

    def told(self, node: Process, effect: Effect) -> None:
        """An application was told this; if its member is out, a new incarnation may start."""
        match effect:
            case ExcludedBy() if self.rejoins and not self.network.healed:
                self.rejoins -= 1
                self.clock.at(self.clock.now + self.rng.randrange(50 * MS), self.start_node, f"{node.name}'")
            case JoinFailed(_, "incarnation"):
                self.start_node(f"{node.name}+")

    def changed(self, node: Process, old: View, view: View) -> None:
        """In a calm run a view changes only because a member joins, leaves, crashes or lacks the state."""
        if self.doubted or not self.options.calm:
            return
        by_id = {record.id: record for record in self.records}
        kept = [by_id[member.id] for member in old.members if view.rank(member.id) < 0 and member.id in by_id]
        if self.options.islands or len(self._founders()) > 1:  # two groups may take in one, who declines one of them
            kept = [each for each in kept if old in [stay.view for stay in stays(each)]]
        out = dict(self.options.settings).get("slow") == "exclude"  # those that took nothing for a while
        for other in kept:
            if other.alive and not other.leaving and not (out and other.slow_spells):
                self.needless.append(f"needless: {node} installs {view} after {old}, and {other} is there and well")
        same = {(member.id, member.about) for member in old} == {(member.id, member.about) for member in view}
        often = self.options.sealings_max < SEALINGS_MAX
        renewed = self.options.keyed and (often or self.options.rotates or "rekey_s" in dict(self.options.settings))
        founded = old.view_id.tag in node.record.founding  # no application is inside before a view of all is closed
        if same and not (self.options.state or renewed or self.options.narrows or founded):
            self.needless.append(f"needless: {node} installs {view} after {old}: nobody came, left or fell")

    def _founders(self) -> list[Record]:
        """Whoever founded a group alone."""
        return [record for record in self.records for stay in stays(record)[:1] if len(stay.view.members) == 1]

    def on_disk(self, name: str) -> tuple[int, int]:
        """How far the state goes that the application of this member has on disk."""
        return 0, 0

    def keep(self, node: Process, kept: Kept) -> None:
        """A member writes to its disk."""
        kept = Kept.load(kept.dump())
        if self.faults.breaks_write():  # before the write is done, or after
            done = self.rng.random() < 0.5
            self.trace(node, f"is struck at a write, which is {'' if done else 'not '}done")
            if kept.view.founding:  # its application is not told of this view any more
                node.record.founding.add(kept.view.view_id.tag)
            self.faults.strike(node)
            if not done:
                return
        before = self.disks.get(node.name, kept)
        if before.view.view_id != kept.view.view_id:
            self.old_disks[node.name] = before
        self.disks[node.name] = kept

    def held(self, node: Process) -> None:
        """A pause is held."""
        pause, view = node.record.pauses[-1], node.view
        if view is None:  # the member left, or was excluded, in the same step
            pause.held_ns = 0
            return
        pause.view_id = view.view_id
        self.trace(node, "holds the pause")
        node.record.violations += pauses.check_held(node.record, self.records, self.clock.now)

    def taken(self, node: Process, numbers: Sequence[int], since: Sequence[Together]) -> None:
        """A wait has ended: others have taken these messages."""
        node.record.violations += taken.check_taken(node.record, self.records, numbers, since)

    def marks(self, name: str) -> tuple[int, ...]:
        """Of the keys in the key file of this process now, in its order; none: all, in a drawn order."""
        return self.faults.marks(name) if self.options.rotates else ()

    def refuses(self) -> bool:
        """Does the handler fail to give the state this time?"""
        self.state_refusals -= 1
        return self.state_refusals >= 0

    # ---- datagrams

    def multicast(self, source: Process | OperatorProcess, datagram: bytes) -> None:
        if isinstance(source, Process) and self.faults.awaits(datagram):
            self.faults.ambush(source, datagram)
            return
        for node in self.nodes:
            if node is not source and self.network.multicasts(source.index, node.index):
                self.network.carry(source.index, node.index, node.receive, datagram, source.source(node.index))

    def _is_unpublished(self, node: Process | OperatorProcess, to: bytes) -> bool:
        if not self.options.unpublished or self.network.healed or not isinstance(node, Process):
            return False
        return to == node.public and node.endpoint.context.settings.advertised

    def unicast(self, source: Process | OperatorProcess, to: bytes, datagram: bytes) -> None:
        node = self.by_address.get(to) or self.by_address.get(b"sim" + to[3:])  # the port of a pair leads back
        if node is None or self._is_unpublished(node, to):
            return
        ready = self.faults.leader_falls and isinstance(frame(datagram, self.sealings), MergeReady)
        if ready and isinstance(node, Process):
            self.faults.leader_falls = False
            node.crash()
        if not self.network.unicasts(source.index, node.index):
            return
        if node.up:
            self.network.carry(source.index, node.index, node.receive_unicast, datagram, source.source(node.index))
        elif not self.options.hosts and self.network.connects(source.index, node.index):
            self.network.carry(node.index, source.index, source.refused, b"", to)

    # ---- the run

    def start_node(self, name: str) -> None:
        node = Process(self, len(self.nodes), name, self.options, self.make_engine, self.make_endpoint)
        self.nodes.append(node)
        self.by_address[node.public] = node
        self.faults.place(node)
        node.application.sender.on = not self.settling
        node.start()
        node.service()

    def plan(self) -> None:
        """Schedules the processes and the faults of the safety phase."""
        self.faults.plan()

    def run(self, changes: bool = False) -> Result:
        """``changes``: in the group at rest somebody joins, and somebody leaves or crashes."""
        self.plan()
        self.clock.run(self.options.duration_ns)
        in_primary = self.options.partition == "primary"
        violations = self.lose_multicast() if self.options.filtered else []
        violations += self.fall_apart() if in_primary and self.options.split else []
        violations += self.settle()
        at_rest = [] if violations else self.rest()
        at_rest += Quiet(self).changes() if changes and not (violations or at_rest) else []
        records = self.records
        violations += first(safety.check_safety(records))
        violations += first(infos.check_infos(records))
        violations += first(observers.check_observers(records))
        violations += first(views.check_made(self.made.values(), CIPHERS))
        violations += self.needless[:VIOLATIONS_MAX]
        repeats = sum(map(repeated, self.nodes))
        violations += self.network.repairs.check(repeats) if self.network.repairs else ()
        violations += self.sealings.violations[:VIOLATIONS_MAX]
        if self.options.keyed:
            names, members = {node.id: node.name for node in self.nodes}, self._members()
            violations += first(secrecy.check_secrets(self.sealings, members, names))
            violations += first(secrecy.check_recorded({str(node): node for node in self.nodes}, members))
        violations += first(liveness.check_named(records)) if self.options.none_is_slow else ()
        if in_primary:
            violations += first(primary.check_primary(records, self.allowed))
            violations += first(primary.check_histories(records))
            violations += first(primary.check_founded(records)) if self.options.found > 1 else []
            violations += first(primary.check_fences(records)) if self.options.stable else []
        return Result(
            options=self.options,
            violations=violations + at_rest,
            digest=digest(records, self.network.packets),
            packets=self.network.packets,
            messages=sum(isinstance(entry, Delivered) for record in records for entry in record.log),
            views=len({stay.view.view_id for record in records for stay in stays(record)}),
            virtual_ns=self.clock.now,
            edges=set().union(*(node.endpoint.edges for node in self.nodes)),
            paths=self._paths(),
        )

    def _paths(self) -> Counter[str]:
        paths = sum((record.paths for record in self.records), Counter())
        paths["queued messages"] = sum(node.engine.counters()["blocked_queued"] for node in self.nodes)
        return paths

    def _members(self) -> dict[int, frozenset[int]]:
        """Ids of those for whom a view is, by its tag."""
        views = [stay.view for record in self.records for stay in stays(record)]
        named = {view.view_id.tag: frozenset(member.id for member in view.members) for view in views}
        return named | {tag: frozenset(info.id for info in frame.members) for tag, frame in self.made.items()}

    def fall_apart(self) -> list[str]:
        """The last fault: the network splits into sides, until each has continued or knows of its block."""
        sides = self.faults.fall_apart()
        limit = self.clock.now + SPLIT_NS_MAX * patience(self.options)
        while any(primary.check_sides(self.records, sides)) and self.clock.now < limit:
            self.clock.run(self.clock.now + 100 * MS)
        return first(primary.check_sides(self.records, sides))

    def lose_multicast(self) -> list[str]:
        """One member, as likely as not the coordinator, loses multicast only, until the others have continued alone
        for a while."""
        self.faults.end()
        self.clock.run(self.clock.now + SECOND)  # changes under way first
        deaf = self.faults.filter_one()
        if deaf is None:
            return []
        limit, quiet = self.clock.now + FILTERED_NS_MAX * patience(self.options), 0
        found: list[str] = []
        sent: deque[dict[int, int]] = deque(maxlen=10)  # packets; large messages in small packets go in steps
        while quiet < 10 and self.clock.now < limit:
            sent.append({record.id: record.packets_sent for record in self.records if record.up})
            self.clock.run(self.clock.now + 100 * MS)
            found = first(primary.check_filtered(self.records, deaf.record, sent[0]))
            quiet = 0 if found else quiet + 1
        return found

    def settle(self) -> list[str]:
        """The liveness phase: no new faults; waits until all is right, and a little longer."""
        self.faults.end()
        self.settling = True
        for node in self.nodes:
            node.application.sender.on = False
        # First changes under way (restarts, pauses, suspicion), then one more message from each member.
        awake = [node.busy_until for node in self.nodes if node.up]
        self.clock.run(max(self.clock.now + 3 * SECOND, max(awake, default=0) + SECOND))
        limit = self.clock.now + LIVENESS_NS_MAX * patience(self.options)
        for node in self.nodes:
            if node.alive and not node.record.leaving:
                node.application.say_last()
                node.service()
        quiet = 0
        while self.clock.now < limit:
            self.clock.run(self.clock.now + 100 * MS)
            quiet = quiet + 1 if not any(self._unfinished()) else 0
            if quiet == 8:
                break
            if quiet == 0 and self.options.partition == "primary":
                self.end_one_of_two()
                if self.clock.now > limit - LIVENESS_NS_MAX * patience(self.options) // 2:
                    self.start_more()
            if quiet == 0 and self.options.namesakes:
                self.end_one_namesake()
            if (
                not self.options.stable
                and primary.lost_majority(self.records)
                and all(each.over for each in self.operators)
            ):
                self.operators.append(OperatorProcess(self, len(self.operators)))
        late = first(self._unfinished())
        return late or first(liveness.check_delivered(self.records))

    def _unfinished(self) -> Iterator[str]:
        yield from liveness.check_liveness(self.records)
        yield from infos.check_shown(self.records)

    def rest(self) -> list[str]:
        """All is right, and nobody sends; then one message after the other."""
        if self.options.reliability == "gossip":
            return []  # members gossip about streams at rest, too
        return Quiet(self).rest()[:VIOLATIONS_MAX]

    def end_one_of_two(self) -> None:
        """If members warn that none of the groups founded apart gives way, an operator ends all but one, once, and
        starts their processes again."""
        alive = [node for node in self.nodes if node.up and node.view]
        told = any(NEITHER_GIVES_WAY in text for node in alive for text in node.record.warnings)
        if self.ended or not told or len({node.record.view for node in alive}) < 2:
            return
        self.ended = True
        chosen = self.rng.choice(alive).record.view
        self.trace(None, f"an operator ends all members that are not in {chosen}")
        for node in alive:
            if node.record.view != chosen:
                node.crash()
                self.start_node(f"{node.name}#")

    def start_more(self) -> None:
        """A group waits for ``found`` members, and too few processes are left: somebody starts others, once."""
        inside = [node for node in self.nodes if node.inside and node.view is not None]
        waits = any(node.view is not None and node.view.view_id.tag in node.record.founding for node in inside)
        for number in range(self.options.found - len(inside) if waits and not self.more else 0):
            self.more = True
            self.start_node(f"more{number}")

    def end_one_namesake(self) -> None:
        """Members warn that two living ones of one name keep their groups apart: somebody ends one of the two."""
        alive = [node for node in self.nodes if node.inside]
        by_name: dict[str, list[Process]] = {}
        for node in alive:
            said = f"a member of the same name, {node.name!r}"
            if any(said in text for other in alive for text in other.record.warnings):
                by_name.setdefault(node.name, []).append(node)
        for nodes in by_name.values():
            if len(nodes) > 1:
                self.rng.choice(nodes).leave()


def first(violations: Iterable[str]) -> list[str]:
    """The first violations, as many as a report shows."""
    return list(islice(violations, VIOLATIONS_MAX))


def simulate(options: Options, write: Callable[[str], None] | None = None) -> Result:
    """Runs one simulated group."""
    return World(options, write).run(changes=True)
