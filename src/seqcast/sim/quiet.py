"""A group in which all is right, and nobody sends: a second of rest, then one message after the other, then changes.

All bounds here are of performance, in timers: see ``checkers/rest.py``.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from seqcast.config import Config
from seqcast.config.derive import BEACON_NS_MIN
from seqcast.core.context import NEVER
from seqcast.core.machines.book import TRIED_NS_MAX
from seqcast.core.machines.merge import MergerState
from seqcast.sim.checkers import rest
from seqcast.sim.network import Clock, Network
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.process import Process
from seqcast.sim.settings import config, largest
from seqcast.sim.wire import ACK, DATA, FORWARD, GRANT, RECORD, TOTAL, UNICAST, WANT
from seqcast.types import OrderPolicy, View

PAUSE_NS = SECOND
REST_NS = SECOND
HOPS_MAX = 6
"""To the sequencer, from there to all, the acknowledgements of all, and the packets that all others acknowledged, with
room."""
LOST = (DATA, FORWARD, ACK, RECORD, TOTAL, WANT, GRANT)
"""Types of datagrams of which one is lost, each time while a single message is on its way."""
BURST_MAX = 400
"""Messages of a burst: of more than that a run would take too long."""
GAUGES = ("slabs_in_use", "own_closed_bytes", "congestion_bytes", "window_bytes")
INFO = 1000
IDLE_NS_MAX = 20 * SECOND
"""A VIEW is served for some seconds to members that crashed before."""
MERGE_BEACONS = 6
"""Until two coordinators have heard each other, and one of them leads."""
WINDOWS = 3
"""Of messages, in a burst: the last ones need credit for the first ones, once taken."""


class QuietWorld(Protocol):
    """The interface of the world to its quiet group."""

    options: Options
    clock: Clock
    network: Network
    nodes: list[Process]
    resting: bool
    doubted: bool

    def start_node(self, name: str) -> None: ...


class SoFar(NamedTuple):
    """The datagrams and counts of a member up to a moment; see ``Record``."""

    view: View | None
    datagrams: Counter[int]
    counters: Counter[str]
    frames: Counter[str]
    wakes: int


def so_far(node: Process) -> SoFar:
    record = node.record
    return SoFar(node.view, Counter(record.datagrams), counters(node), Counter(record.frames), record.wakes)


def repeated(node: Process) -> int:
    """Packets that a member has sent again."""
    return node.engine.counters()["packets_retransmitted"]


def counters(node: Process) -> Counter[str]:
    """The counters of a member's engine and of its control plane, without those of a present state."""
    counted = Counter(node.engine.counters()) + Counter(node.endpoint.counters)
    for gauge in GAUGES:
        del counted[gauge]
    return counted


def is_acknowledged(node: Process) -> bool:
    """Does a member know that all others have its packets to the group?"""
    view = node.view
    members = () if view is None else view.members
    return not any(node.engine.stream(rank)[3] for rank, member in enumerate(members) if member.id != node.id)


def hop(options: Options) -> float:
    """How long a datagram is on its way, in s, behind a copy to each member that waits for the same link."""
    wire_s = options.members * options.packet_bytes / options.link_bytes_per_s if options.link_bytes_per_s else 0.0
    return options.delay_ns / SECOND + 2 * wire_s


def most_delay(options: Options) -> float:
    """How long, at most, a message may take in a quiet group, in s: hops, and the timers of acknowledgements if
    delivery waits for them, and of an order policy that has just begun with another batch."""
    settings = config(options)
    timers_s = (2 if options.safe else 1) * settings.ack_delay_s + settings.flush_s_max + options.corked_ns / SECOND
    policy_s = 2 * OrderPolicy.limit_s if options.orderer else 0.0
    return HOPS_MAX * hop(options) + timers_s + policy_s + 0.001


def most_repair(options: Options, members: int) -> float:
    """How long, at most, a message may take of which a datagram is lost, in s: until a probe, and then the repair."""
    settings = config(options)
    probe_s = settings.probe_s_min * (1 + members / 8)
    return most_delay(options) + HOPS_MAX * hop(options) + probe_s + settings.nak_delay_s + settings.nak_backoff_s_min


def most_change(options: Options) -> float:
    """How long, at most, a change of the members may take in a quiet group to show in all views, in s, without the time
    of the detection: hops, and the timers for which the acting member waits."""
    settings = config(options)
    callbacks_s = 2 * settings.block_deadline_s if options.blocks else 0  # of a leaver, and then of all
    return 2 * HOPS_MAX * hop(options) + 2 * settings.bundle_s + callbacks_s + 0.02


def most_merge(options: Options) -> float:
    """The longest time until two views of a network that is whole again are one, in s."""
    settings = config(options)
    beacon_s = max(2 * settings.heartbeat_s, BEACON_NS_MIN / SECOND)
    tries_s = TRIED_NS_MAX * beacon_s if options.transport != "multicast" else 0  # of the addresses that are known
    return MERGE_BEACONS * beacon_s + tries_s + 2 * most_change(options)


def said(node: Process) -> list[str]:
    """The infos that a member finds in its view."""
    return [member.about for member in node.view.members] if node.view is not None else []


def has_ended(node: Process) -> bool:
    """Has a process crashed, or does its application leave?"""
    return not node.up or node.record.leaving


def is_one(nodes: Sequence[Process]) -> bool:
    """Are these members in one view, and nobody else?"""
    views = {node.view for node in nodes}
    view = views.pop()
    return not views and view is not None and {member.id for member in view.members} == {node.id for node in nodes}


class Quiet:
    """The checks of a world in which all is right.

    Args:
        world: the run.
    """

    def __init__(self, world: QuietWorld) -> None:
        self.world, self.options = world, world.options
        self.clock, self.network = world.clock, world.network
        self.settings: Config = config(world.options)
        self.nodes = [node for node in world.nodes if node.inside]
        self.rng = random.Random(f"changes {world.options.seed}")
        world.resting = self.network.steady = True

    def rest(self) -> list[str]:
        """A second of rest; then a message of each member, one after the other, to all and to one; then some of which
        datagrams are lost; then as many as fill windows."""
        found = self._silence() if self.nodes else []
        senders = [node for node in self.nodes if not node.record.observer]
        before = {node.id: Counter(node.record.datagrams) for node in self.nodes}
        counted, views = {node.id: counters(node) for node in self.nodes}, {node.view for node in self.nodes}
        again = {node.id: repeated(node) for node in self.nodes}
        found += self._single(senders)
        copied = self.options.transport != "multicast" and len(self.nodes) > 1
        for node in self.nodes if not copied else ():
            sent, repeats = node.record.datagrams - before[node.id], repeated(node) - again[node.id]
            if self._probed:
                repeats = 0  # a sequencer may repeat its last packet in place of a probe
            found += rest.check_needless(node.name, sent, repeats)
            found += rest.check_probes(node.name, sent, self._probed)
        for node in self.nodes:
            grown = counters(node) - counted[node.id]
            if self._probed:  # with the last packet
                del grown["packets_duplicate"]
            if {each.view for each in self.nodes} == views:  # no secret was renewed
                found += rest.check_troubles(node.name, grown)
        if senders and not found:
            found += self._lost(senders)
            found += self._burst(self.rng.choice(senders)) + self._largest(self.rng.choice(senders))
        return found

    @property
    def _probed(self) -> bool:
        """May a sender probe before an acknowledgement could come?"""
        policy_s = 2 * OrderPolicy.limit_s if self.options.orderer else 0.0  # applications take only ordered messages
        return 4 * hop(self.options) + self.settings.ack_delay_s + policy_s >= self.settings.probe_s_min

    def _silence(self) -> list[str]:
        nodes, found = self.nodes, list[str]()
        copies = 1 if self.options.transport == "multicast" else len(nodes)
        heartbeats = copies * REST_NS / SECOND / self.settings.heartbeat_s
        self.clock.run(self.clock.now + REST_NS)  # packets in flight
        self._time(lambda: not any(map(self._idle, nodes)), IDLE_NS_MAX)
        before = {node.id: so_far(node) for node in nodes}
        self.clock.run(self.clock.now + REST_NS)
        found += rest.check_streams({node.name: self._streams(node) for node in nodes if node.view == nodes[0].view})
        trips = {node.name: self._trip(node) for node in nodes}
        found += rest.check_delays(trips, 2 * hop(self.options) + self.settings.heartbeat_s, "a round trip of")
        for node in nodes:
            if not self.options.looks_ns and node.view is not None and node.view == before[node.id].view:
                found += self._silent(node, node.view, before[node.id], heartbeats)  # its secret was not renewed
            engine = node.engine
            found += rest.check_memory(node.name, engine.counters(), engine.unsent(), engine.deliverable())
        return found

    def _silent(self, node: Process, view: View, before: SoFar, heartbeats: float) -> list[str]:
        """The datagrams and counts of a member while nobody sent a message."""
        after, speaks = so_far(node), self.options.transport != "multicast" or view.rank(node.id) == 0
        sent, intervals = after.datagrams - before.datagrams, REST_NS / SECOND / self.settings.heartbeat_s
        return [
            *rest.check_rest(node.name, sent, REST_NS / SECOND, heartbeats, speaks),
            *rest.check_counters(node.name, after.counters - before.counters),
            *rest.check_frames(node.name, after.frames - before.frames),
            *rest.check_wakes(node.name, after.wakes - before.wakes, intervals),
            *self._idle(node),
        ]

    def _idle(self, node: Process) -> list[str]:
        """Has the control plane of a member nothing to do, and does no timer run for nothing?"""
        machines = node.endpoint.machines
        timed = {type(each).__name__: each.due() for each in machines.timed()}
        timed[type(machines.membership).__name__] = machines.membership.due()
        timed["Merger"] = min(machines.merger.repeats.due, machines.merger.deadline_ns, machines.merger.lead_ns)
        running = [name for name, due in timed.items() if due != NEVER and not self._lasts(name)]
        return [*rest.check_machines(node.name, node.endpoint.states(), running)]

    def _lasts(self, machine: str) -> bool:
        """Do timers of this machine run for ever?"""
        if machine == "Gossiping":
            return True
        return "Membership" in machine and bool(self.network.deaf or self.options.keyed)  # links; a new secret

    def _streams(self, node: Process) -> list[tuple[int, int, int]]:
        """Of each group stream of its view: the last seqno delivered, received, and known to be everywhere."""
        members = () if node.view is None else node.view.members
        return [node.engine.stream(rank)[:3] for rank in range(len(members))]

    def _trip(self, node: Process) -> float:
        """The longest of a member's known round trips, in s."""
        members = () if node.view is None else node.view.members
        return max((node.engine.stream(rank)[4] / SECOND for rank in range(len(members))), default=0.0)

    def _single(self, senders: Sequence[Process]) -> list[str]:
        """One message of each member, to all and to one, and a pause."""
        delays, acks, unicasts = dict[str, float](), dict[str, float](), dict[str, float]()
        for node in senders:
            delays[node.name] = self.delay(node)
            acks[node.name] = self._time(functools.partial(is_acknowledged, node), SECOND)
        for node, other in zip(self.nodes, self.nodes[1:] + self.nodes[:1], strict=True):
            if node is not other and node.view == other.view:
                unicasts[node.name] = self.unicast(node, other)
        most_s = most_delay(self.options)
        if not self.nodes:
            return []
        return [
            *rest.check_delays(delays, most_s),
            *rest.check_delays(acks, most_s, "the acks of a message of"),
            *rest.check_delays(unicasts, most_s, "a unicast of"),
            *rest.check_delays(
                {self.nodes[0].name: self.pause(self.nodes[0])}, most_change(self.options), "a pause of"
            ),
        ]

    def _lost(self, senders: Sequence[Process]) -> list[str]:
        """A message, and a unicast, of which one datagram reaches nobody."""
        delays = dict[str, float]()
        for number, kind in enumerate(LOST):
            node = senders[number % len(senders)]
            self.network.lose(kind)
            delays[f"{node.name}, of which a datagram of type {kind} was lost,"] = self.delay(node)
        node = senders[0]
        others = [other for other in self.nodes if other is not node and other.view == node.view]
        for kind in (UNICAST, ACK) if others else ():
            self.network.lose(kind)
            delays[f"{node.name} to one, of which a datagram of type {kind} was lost,"] = self.unicast(node, others[0])
        self.network.lose(0)
        return [*rest.check_delays(delays, most_repair(self.options, len(self.nodes)))]

    def _burst(self, node: Process) -> list[str]:
        """A member sends several windows of messages at once."""
        options = self.options
        room = min(self.settings.window_bytes, options.capacity, options.ring_packets * options.packet_bytes)
        number = max(WINDOWS * room // options.packet_bytes, 1)
        if number > BURST_MAX:
            return []
        counter = node.record.counter
        before = {each.id: Counter(each.record.datagrams) for each in self.nodes}
        node.record.pending += [(0, min(options.packet_bytes, largest(options)))] * number
        node.service()
        took_s = self._time(lambda: self._delivered(node, counter + number - 1), 20 * SECOND)
        found = [*rest.check_delays({node.name: took_s}, 20, "a burst of")]
        for each in self.nodes:
            found += rest.check_probes(each.name, each.record.datagrams - before[each.id], self._probed)
        return found

    def _largest(self, node: Process) -> list[str]:
        """A message that is just as large as messages may be."""
        number = node.record.counter
        node.record.pending.append((0, largest(self.options)))
        node.service()
        took_s = self._time(lambda: self._delivered(node, number), 20 * SECOND)
        return [*rest.check_delays({node.name: took_s}, 20, "the largest message of")]

    def delay(self, node: Process) -> float:
        """How long one message of a member takes to the last application, in s."""
        number = node.record.counter
        node.application.sender.say_last()
        node.service()
        return self._time(lambda: self._delivered(node, number), SECOND)

    def _delivered(self, node: Process, number: int) -> bool:
        """Has every member that takes messages taken this one?"""
        takers = [other.record for other in self.nodes if other.record.receives]
        takers = [taker for taker in takers if taker.receives_own or taker is not node.record]
        return all(number in taker.delivered_of(node.id) for taker in takers)

    def unicast(self, node: Process, other: Process) -> float:
        """How long a message to one member takes until its sender has the acknowledgement, in s."""
        node.application.sender.say_to(other.id)
        node.service()
        return self._time(lambda: not (node.record.pending or any(node.engine.unacknowledged())), SECOND)

    def pause(self, node: Process) -> float:
        """The time until the group pauses for a member, in s."""
        pause = node.application.pause
        node.suspend(PAUSE_NS)
        took_s = 0.0 if pause.free else self._time(lambda: pause.held, SECOND)
        self._time(lambda: pause.free, 2 * SECOND)
        return took_s

    def changes(self) -> list[str]:
        """One more process joins; then a member leaves or crashes, unless the others would be too few."""
        world, nodes = self.world, self.nodes
        if self.network.deaf or not nodes:  # a change waits until deaf members are noticed, after a time of suspicion
            return []
        if any(node.endpoint.machines.merger.state is not MergerState.APART for node in nodes):
            return []  # nor is a group quiet that waits for a merge whose leader has crashed just now
        rng, settings, most_s = self.rng, self.settings, most_change(self.options)
        if rng.random() < 0.5 and not self.options.blocks:  # a view change goes first
            nodes[0].suspend(PAUSE_NS)
            self._time(lambda: nodes[0].application.pause.held, SECOND)
        by_unicast = self.options.keyed or self.options.transport != "multicast"
        world.start_node("late")
        joiner = world.nodes[-1]
        joined = {joiner.name: self._time(lambda: self._shows(joiner, joiner), 20 * SECOND)}
        again_s = settings.join_s_max if by_unicast else 0  # a JOIN must be heard first, or proven
        if self.options.lies:  # its seeds may lead nowhere: then it founds a group, which is found and merged
            again_s += settings.discovery_s + most_merge(self.options)
        found = [*rest.check_delays(joined, most_s + again_s, "the join of")]
        view = joiner.view
        if len(nodes) < 3 or found or view is None or sum(not member.observer for member in view.members) < 3:
            return found
        if self.options.infos:
            found += self._say(rng.choice(nodes), most_s)
        first = next((node for node in nodes if node.id == view.coordinator.id), nodes[0])
        leaver = first if rng.random() < 0.5 else rng.choice(nodes)
        crashes = rng.random() < 0.5
        (leaver.crash if crashes else leaver.leave)()
        gone = {leaver.name: self._time(lambda: self._shows(joiner, leaver, False), 20 * SECOND)}
        detected_s = settings.suspect_s_max + 3 * settings.heartbeat_s if crashes else 0  # by those that were late
        found += rest.check_delays(gone, most_s + detected_s, "the crash of" if crashes else "the leave of")
        return found or self._parted(most_s)

    def _say(self, node: Process, most_s: float) -> list[str]:
        """A member's application gives another info."""
        node.say(INFO)
        about, inside = node.record.about, [other for other in self.world.nodes if other.inside]
        took_s = self._time(lambda: all(about in said(other) for other in inside), 20 * SECOND)
        return [*rest.check_delays({node.name: took_s}, most_s, "an info of")]

    def _parted(self, most_s: float) -> list[str]:
        """The network is cut in two until each side has a view of its own; then there is one view again."""
        nodes = [node for node in self.world.nodes if node.inside]
        voters = [node for node in nodes if not node.record.observer]
        if self.options.partition != "merge" or len(voters) < 2:
            return []
        one = {node.index for node in voters[::2]}
        sides = [node for node in nodes if node.index in one], [node for node in nodes if node.index not in one]
        self.world.doubted = True  # views change now, though nobody comes, leaves or falls
        self.network.partition(one, {node.index for node in nodes} - one)
        settings, names = self.settings, " and ".join(voter.name for voter in voters[:2])
        parted_s = self._time(lambda: all(map(is_one, sides)), 20 * SECOND)
        detected_s = settings.suspect_s_max + 3 * settings.heartbeat_s
        found = [*rest.check_delays({names: parted_s}, 2 * most_s + detected_s, "a cut between")]
        self.network.heal()
        backing_off_s = 2 * max(node.endpoint.machines.merger.pause_ns for node in nodes) / SECOND

        def ends() -> bool:
            return any(map(has_ended, nodes))

        merged_s = self._time(lambda: is_one(nodes) or ends(), 20 * SECOND)
        found += rest.check_delays({names: merged_s}, most_merge(self.options) + backing_off_s, "a merge of")
        self._time(lambda: not any(map(self._idle, nodes)) or ends(), IDLE_NS_MAX)
        if ends():  # over the states that are merged, and joins again as another process
            return found
        return found + [each for node in nodes for each in self._idle(node)]

    def _shows(self, observer: Process, member: Process, there: bool = True) -> bool:
        """Is there one view, with that member, or without it?"""
        views = {node.view for node in self.world.nodes if node.inside}
        view = observer.view
        return views == {view} and view is not None and (view.rank(member.id) >= 0) == there

    def _time(self, done: Callable[[], bool], most_ns: int) -> float:
        """The time until then, in s; infinite: longer than ``most_ns``."""
        begin = self.clock.now
        while self.clock.now < begin + most_ns:
            if done():
                return (self.clock.now - begin) / SECOND
            self.clock.run(self.clock.now + MS // 4)
        return float("inf")
