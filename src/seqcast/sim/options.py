"""The options of a simulated run: one struct, drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

from seqcast.config.derive import SEALINGS_MAX
from seqcast.sim import families
from seqcast.sim.policies import BAD, GOOD, ORDERERS, SEQUENCERS

MS, SECOND = families.MS, families.SECOND
NEWER = ("total-1999", "grant", "causal")
"""Orders added after the first three: they have their share of the seeds, and all other seeds keep their faults."""

PINNED = 100
"""Runs of the seeds up to this one stay as they are: tests and docs/mutants.md name them. Options that came later, and
shift a run, are drawn only by the seeds beyond."""


@dataclass(frozen=True)
class Options:
    """One run. Times are virtual ns, probabilities are per datagram and receiver.

    Args:
        seed: of everything that is random in the run.
        members: processes that are started.
        order: "total", or the name of a mechanism.
        sequencer: sequencer policy of the members: "first" (none), "last", "any" or "wrong".
        duration_ns: the safety phase, with faults; the liveness phase, without, follows.
        loss, duplicate: probability that a datagram is lost, or comes twice.
        flips: probability that one to three bits of a datagram are flipped on its way.
        delay_ns: shortest delay of a datagram.
        jitter_ns: mean of the exponentially distributed addition to ``delay_ns``, which reorders datagrams.
        tail: probability that a datagram takes up to ``tail_ns`` longer.
        late: probability that a frame of the control plane takes up to ``late_ns`` longer: longer than an attempt to
            close a view, a merge or a pause lasts.
        echoes: probability that a frame of the control plane comes once more, up to ``late_ns`` later.
        partitions, one_way: how many times the network is cut in two, or one direction between two members.
        flaps: how many times a link, or the link between two parts of the network, goes down and up, several times in a
            row, each time for up to ``flap_ns``.
        deaf: how many times one direction between two members that are not coordinators is cut until the faults end.
        mutes: how many times unicasts, and no multicasts, between two members are lost, in one direction or in both.
        interfaces: how many times the network interface of a member breaks, see ``interface.KINDS``; members look at
            theirs periodically.
        ranks: the processes have priorities, in as many orders one after the other: datagrams come the later, the lower
            their receiver stands, and each next order has its first at the end. Rare interleavings need few of these
            changes, and evenly drawn delays hardly ever give them (probabilistic concurrency testing, Burckhardt et al.
            2010).
        link_bytes_per_s: capacity of the link from each member to each other; 0: no bound.
        uplinks: all that leaves a member goes by one such link, each copy of a message to the group for itself.
        rivals: on each of these links there is a stream of others, as TCP's.
        link_packets: packets that may wait before such a link; any further one is lost.
        narrows: how many times other paths than before carry only small datagrams, and lose the others.
        crashes, restarts: how many members crash, and how many of those come back as new incarnations.
        namesakes: how many times two processes have one name: a member is killed, and starts again while all others are
            stopped, which have its old incarnation in their view; or, while the network is cut in two, a process starts
            with the name of a member on the other side. If members warn that two living ones keep their groups apart,
            one of the two leaves in the end.
        alone: how many times a member is killed, and starts again while cut off from all others.
        found: see ``EndpointSettings``.
        stable: members keep their votes beyond their end.
        outages: how many times most members, or all, lose their power and start again; if all do, sometimes one of them
            without its disk, or with an old one.
        writes: how many writes of votes are struck: the member crashes before the write is done or after, and starts
            again.
        hosts: a crash takes the machine down, too, so that no closed port tells of the crash.
        rejoins: how many excluded members come back as new incarnations.
        pauses: how many times a whole process stops for up to ``pause_ns`` (its socket buffer is bounded).
        stops: like ``pauses``, for longer than any lease, up to ``stop_ns``; half of them stop only the Python.
        stalls: how many times the Python of a member is busy for up to ``pause_ns`` while its engine continues.
        slow_disks: how many times a member's journal waits for its disk for up to ``pause_ns``: its
            application takes no deliveries, while the engine and the control plane continue.
        looks_ns: how often each member asks all others for their boards; 0: never.
        jumps: how many times a member's monotonic clock jumps forward by up to ``jump_ns``, and its wall clock by up to
            an hour either way.
        doubts: how many times a member takes a living one for dead; half of the time two initiators clash.
        duels: how many times two initiators, each of which takes the other for dead, clash at nearly the same time.
        ambushes: how many times a fault strikes while a certain control frame is being multicast: the frame reaches
            some only, and its sender crashes, is paused, or is cut off from some.
        leaves: how many members leave.
        hasty: how many times an application leaves, or closes without leaving, at any moment: before the view, while
            leaving, or afterwards.
        spread_ns: the members start within this time.
        rate: messages per second and member.
        bytes_max: of the largest messages; most are small.
        unicasts: fraction of the messages that go to one member.
        state: the members' applications have a state, which joiners take over.
        state_bytes: its size, at least.
        state_refusals: how many times an application fails to give its state.
        merges: when parts of a group merge, so do the applications' states; else all take over that of one part.
        guard: members have guard connections (``guard=True``), some of which break or are refused without cause.
        rates: by process, the bytes that its application takes in a second; 0: none after the first ones; -1, and those
            behind: as they come.
        slow_loads: fraction of the joiners' applications that load the state slowly; some take too long, some fail.
        orderer: order policy of the members, with records: "shuffled", or one that also sometimes "raises", is "late"
            or returns "rubbish"; "": none.
        beside: fraction of the messages and arrays that travel beside the total order.
        arrays: how often an application sends an array of messages in one call.
        timeouts: how likely a send that cannot be completed times out there.
        together: fraction of the runs of datagrams that stay together on their way, so that they arrive merged into one
            buffer (UDP_GRO).
        corked_ns: open packets wait for more messages, for up to this long; 0: they leave at once.
        full: how likely the kernel has no room for the next run of datagrams, so that the rest waits.
        observers: fraction of the members, but the first, that only receive (the setting ``observer``).
        infos: how many times an application gives its member another info; see ``Member.info``.
        deaf_applications: fraction of the members that are delivered no messages (``receive=False``).
        without_own: fraction of the members that are not delivered their own messages (``deliver_own=False``).
        suspends: how many times an application pauses the group, for up to a second.
        blocks: fraction of the members that have a block callback; some of those send in it, some never return.
        policy: membership policy of the members: "by_name", "reversed", "joiners_first", "shuffled", or a wrong one:
            "raises", "rubbish"; "mixed": each has its own; "": none.
        waits: the probability that a member that runs begins to wait until others have taken its messages.
        flush_unicasts, safe: see ``EndpointSettings``.
        queue_bytes: messages sent during a view change or a pause are queued, up to this many bytes.
        starving_ns: from a quarter of the safety phase on some members are starved of processors until its end: they
            run for some ms, and wait for up to this long, mostly much shorter; 0: none. Leases are 0.6 and 1 s.
        starved: fraction of the members that are.
        ring_packets: packets that a ring of the engine holds.
        first_seqno: of all group streams, as if the group had lived for long.
        family: the storm family of the other options; "": none. See ``families``.
        falling_leader: the first merge leader to which a subgroup reports that it is ready crashes at that moment.
        packet_bytes, capacity: see ``EndpointSettings``; the members' capacities vary below this.
        membership, partition: see ``EndpointSettings``.
        reliability: "nak" or "gossip".
        keyed: datagrams are sealed.
        without_aes: if ``keyed``: fraction of the members whose processors have no AES instructions.
        sealings_max: if ``keyed``: a member asks for another view after this many datagrams.
        rotates: if ``keyed``: the key is replaced in three steps, machine after machine; some machines are forgotten in
            the first step, until long after the others have taken the second. Not drawn: the steps follow each other
            within a second, and a machine that stands still for as long, or a slow link, misses one.
        strangers: if ``keyed``: of the datagrams of members, how many somebody else sends otherwise sealed, or to
            others; see ``stranger``.
        identities: if ``keyed``: members have identities, and a list of those who may be members.
        transport: see ``Config``; without multicast each process is told, at its start and periodically, where all are
            that were ever started.
        lies: without multicast: how likely, each time, a process is told nothing new instead, or some of the places, or
            those of others that are gone; after the faults all are told the place of one that lives.
        translated: on the way from every second member to others "hosts" are translated, one to one, or "ports", newly
            for each pair, and this member says where it is reached; "": nothing is.
        unpublished: until the faults are over, nobody reaches a member there.
        apart_ns: the first half of the processes and the second do not hear each other for this long: two groups.
        split: of a primary partition: into how many sides the network splits after the other faults, until each member
            has continued or knows of its block; 0: no split.
        filtered: after the other faults one member loses all multicast, but no unicast, until the others have continued
            alone: "in" (none reaches it), "out" (none leaves it), "both"; "": none does.
        preset: of the members' settings.
        settings: names and values of further settings of every member.
        verify_ns, link_ns: see ``EndpointSettings``; -1: derived from the settings.
    """

    seed: int = 1
    members: int = 4
    order: str = "total"
    duration_ns: int = 2 * SECOND
    loss: float = 0.0
    duplicate: float = 0.0
    flips: float = 0.0
    delay_ns: int = 50_000
    jitter_ns: int = 20_000
    tail: float = 0.0
    tail_ns: int = 20 * MS
    late: float = 0.0
    echoes: float = 0.0
    late_ns: int = 3 * SECOND
    partitions: int = 0
    one_way: int = 0
    flaps: int = 0
    flap_ns: int = 600 * MS
    deaf: int = 0
    interfaces: int = 0
    mutes: int = 0
    islands: int = 0
    ranks: int = 0
    narrows: int = 0
    link_bytes_per_s: int = 0
    uplinks: bool = False
    rivals: bool = False
    link_packets: int = 50
    crashes: int = 0
    restarts: int = 0
    namesakes: int = 0
    alone: int = 0
    found: int = 1
    stable: bool = False
    outages: int = 0
    writes: int = 0
    hosts: bool = False
    guard: bool = False
    rejoins: int = 0
    pauses: int = 0
    stops: int = 0
    stop_ns: int = 7 * SECOND
    stalls: int = 0
    slow_disks: int = 0
    waits: float = 0.02
    looks_ns: int = 0
    jumps: int = 0
    jump_ns: int = 10 * SECOND
    pause_ns: int = 700 * MS
    doubts: int = 0
    duels: int = 0
    ambushes: int = 0
    leaves: int = 0
    hasty: int = 0
    spread_ns: int = 300 * MS
    rate: int = 200
    bytes_max: int = 20_000
    unicasts: float = 0.1
    arrays: float = 0.0
    timeouts: float = 0.0
    beside: float = 0.0
    orderer: str = ""
    together: float = 0.0
    corked_ns: int = 0
    full: float = 0.0
    observers: float = 0.0
    infos: int = 0
    deaf_applications: float = 0.0
    without_own: float = 0.0
    blocks: float = 0.0
    suspends: int = 0
    queue_bytes: int = 0
    flush_unicasts: bool = False
    safe: bool = False
    policy: str = ""
    sequencer: str = "first"
    packet_bytes: int = 1472
    capacity: int = 256 << 10
    starving_ns: int = 0
    starved: float = 1.0
    ring_packets: int = 2048
    first_seqno: int = 1
    state: bool = False
    state_bytes: int = 0
    state_refusals: int = 0
    merges: bool = False
    rates: tuple[int, ...] = ()
    slow_loads: float = 0.0
    preset: str = "lan"
    settings: tuple[tuple[str, Any], ...] = ()
    verify_ns: int = -1
    link_ns: int = -1
    membership: str = "coordinated"
    reliability: str = "nak"
    partition: str = "merge"
    apart_ns: int = 0
    split: int = 0
    falling_leader: bool = False
    transport: str = "multicast"
    keyed: bool = False
    without_aes: float = 0.0
    sealings_max: int = SEALINGS_MAX
    rotates: bool = False
    strangers: float = 0.0
    identities: bool = False
    lies: float = 0.0
    translated: str = ""
    unpublished: bool = False
    family: str = ""
    filtered: str = ""

    @property
    def calm(self) -> bool:
        """No fault of this run makes a living member look dead, so all members must end in one view."""
        faults = self.partitions + self.one_way + self.deaf + self.pauses + self.stalls + self.ambushes + self.doubts
        faults += self.flaps + self.stops + self.duels + bool(self.late) + self.falling_leader + bool(self.starving_ns)
        faults += self.apart_ns + (self.split if self.partition == "primary" else 0)
        faults += self.interfaces + self.mutes + bool(self.filtered) + self.namesakes + self.alone
        faults += self.outages + self.writes
        faults += self.jumps  # deadlines of a view change pass in them
        return not faults and self.loss <= 0.1

    @property
    def none_is_slow(self) -> bool:
        """No application, disk or link keeps a living receiver behind the others; nor does a receiver become deaf to
        a sender, which takes a time of suspicion to notice."""
        return self.calm and not (
            self.slow_disks or self.rates or self.state or self.full or self.crashes or self.hasty or self.narrows
            or self.islands
        )  # fmt: skip

    @property
    def watches_repairs(self) -> bool:
        """Nothing but loss, or not even that: repairs can be bounded."""
        others = self.crashes + self.leaves + self.duplicate + self.tail + self.slow_disks + self.full + self.ranks
        others += len(self.rates)
        settings = dict(self.settings)
        limited = "retransmit_bytes_per_s" in settings  # packets that wait for the limit are requested again
        hasty = self.jitter_ns and settings.get("nak_delay_s") == 0.0  # overtaken packets are requested at once
        quiet = self.calm and self.jitter_ns <= self.delay_ns // 10
        return quiet and not (others or limited or hasty or self.islands or self.narrows or self.link_bytes_per_s)

    @staticmethod
    def draw(
        seed: int,
        members: int = 0,
        order: str = "",
        duration_ns: int = 0,
        partition: str = "",
        family: str = "",
        membership: str = "",
        reliability: str = "",
    ) -> Options:
        """The run of a seed: which faults it has and how many; given options are not drawn.

        Two of three runs have a bit of everything; the third is of a storm family, with many faults that belong
        together. Of the seeds beyond ``PINNED`` two of three have their family by ``families.of_later``, unless options
        are given.
        """
        rng = random.Random(f"options {seed}")
        if seed > PINNED and not (family or members or partition or membership or reliability):
            family = families.of_later(seed - PINNED)
            family = "slow" if family == "skip" and order else family  # few orders can skip
        stormy = rng.random() < 1 / 3 or bool(family)
        wide = {} if stormy else _wide(rng)
        engine = _engine(rng)
        engine["order"] = random.Random(f"order {seed}").choice((*(engine["order"],) * 3, *NEWER))
        drawn = families.draw(rng, engine, family) if stormy else wide | engine
        given = {"members": members, "order": order, "duration_ns": duration_ns, "partition": partition}
        given |= {"membership": membership, "reliability": reliability}
        drawn["sequencer"] = random.Random(f"sequencer {seed}").choice(("first", *SEQUENCERS))
        if random.Random(f"wrong sequencer {seed}").random() < 0.1:
            drawn["sequencer"] = "wrong"
        drawn["slow_loads"] = random.Random(f"loads {seed}").choice((0.0, 0.0, 0.3))
        drawn["guard"] = random.Random(f"guard {seed}").random() < 0.25
        states = random.Random(f"merges {seed}")
        if drawn.get("family") == "merges" and states.random() < 0.5:
            drawn |= {"state": True, "state_bytes": states.choice((0, 20_000, 300_000))}
        drawn["merges"] = drawn.get("state", False) and states.random() < 0.7
        drawn["beside"] = random.Random(f"beside {seed}").choice((0.0, 0.0, 0.1, 0.5))
        drawn["orderer"] = random.Random(f"orderer {seed}").choice(("", "", *ORDERERS))
        own = drawn.get("settings", ())  # of the family
        drawn |= _settings(seed) | _drive(seed, drawn)
        drawn["settings"] += own
        drawn["membership"] = random.Random(f"membership {seed}").choice(("coordinated",) * 3 + ("token-ring",))
        drawn["reliability"] = random.Random(f"reliability {seed}").choice(("nak",) * 3 + ("gossip",))
        if (reliability or drawn["reliability"]) != "gossip":
            drawn["safe"] = random.Random(f"safe {seed}").random() < 0.3 and drawn.get("family") != "skip"
        if not drawn.get("state"):  # which is all that a member is delivered
            drawn["without_own"] = random.Random(f"without own {seed}").choice((0.0, 0.0, 0.3, 1.0))
        if "doubts" in drawn and not stormy:  # a member may look dead anyway
            drawn["interfaces"] = random.Random(f"interfaces {seed}").choice((0, 0, 1, 3))
        if seed > PINNED:
            drawn |= _rates(seed, drawn)
            drawn["keyed"] = drawn.get("keyed", False) or random.Random(f"keyed {seed}").random() < 1 / 3
            renewed = random.Random(f"renewed {seed}").random() < 0.3
            drawn["identities"] = drawn["keyed"] and random.Random(f"identities {seed}").random() < 0.5
            drawn["settings"] += (("rekey_s", 1.5),) if drawn["keyed"] and renewed else ()
            if drawn["keyed"]:
                drawn["without_aes"] = random.Random(f"aes {seed}").choice((0.0, 0.0, 0.2))
                drawn["strangers"] = random.Random(f"strangers {seed}").choice((0.0, 0.02))
                drawn["rotates"] = random.Random(f"rotates {seed}").random() < 0.1
                drawn["sealings_max"] = random.Random(f"sealings {seed}").choice((SEALINGS_MAX,) * 3 + (1000,))
            drawn["timeouts"] = random.Random(f"time out {seed}").choice((0.0, 0.0, 0.05, 0.3))
            drawn.setdefault("observers", random.Random(f"observers {seed}").choice((0.0, 0.0, 0.0, 0.4)))
            drawn.setdefault("infos", random.Random(f"infos {seed}").choice((0, 0, 0, 4)))
            drawn["looks_ns"] = random.Random(f"looks {seed}").choice((0, 0, 0, 50 * MS, 300 * MS))
            drawn["ranks"] = random.Random(f"ranks {seed}").choice((0, 0, 0, 1, 3))
            # Faults that take unicasts, or multicasts alone, away; and families that choose themselves.
            if not drawn.get("mutes") and not drawn.get("filtered") and "transport" not in drawn:
                way = random.Random(f"transport {seed}").random()
                drawn["transport"] = "unicast" if way < 0.25 else "auto" if way < 0.5 else "multicast"
                if drawn["transport"] == "auto":
                    drawn.setdefault("islands", random.Random(f"islands {seed}").choice((0, 1, 3)))
            if family == "islands" and random.Random(f"majority {seed}").random() < 0.4:
                drawn["partition"] = "primary"
        if drawn.get("transport") != "unicast":  # one datagram, and no copies, leaves a member
            drawn["uplinks"] = drawn["rivals"] = False
        if drawn.get("rivals"):  # they fill queues for longer than short timeouts
            drawn["preset"] = "wan"
        options = Options(seed=seed, **{**drawn, **{name: value for name, value in given.items() if value}})
        if options.islands and options.partition == "primary":  # else groups founded apart would all be primary
            options = replace(options, found=options.members // 2 + 1)
        # A pause is held by leases, which mean nothing to a clock that jumps.
        return replace(options, jumps=0) if options.suspends else options

    def __str__(self) -> str:
        """Only the options that differ from the defaults."""
        parts = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default]
        return " ".join(parts)


def _engine(rng: random.Random) -> dict[str, Any]:
    """Options that are not faults, and that the engine must get right at any value."""
    return {
        "order": rng.choice(("fifo", "sequencer", "records")),
        "packet_bytes": rng.choice((512, 1472, 9000)),
        "capacity": rng.choice((64 << 10, 1 << 20)),
        "ring_packets": rng.choice((64, 64, 256, 2048)),
        "first_seqno": rng.choice((1, 1, 2**32 - rng.randrange(1, 400), 2**62 - 10**6)),
        "flips": rng.choice((0.0, 0.001, 0.01)),
    }


def _rates(seed: int, drawn: dict[str, Any]) -> dict[str, Any]:
    rng = random.Random(f"rates {seed}")
    if drawn.get("family") not in ("slow", "skip") or rng.random() >= 0.25:
        return {}
    rates = tuple(rng.choice((-1, -1, 0, 5_000, 120_000, 480_000)) for _ in range(drawn["members"]))
    return {"rates": rates} | ({"slow_disks": 0} if rng.random() < 0.5 else {})


def _drive(seed: int, drawn: dict[str, Any]) -> dict[str, Any]:
    """How applications, socket driver and kernel use the engine, from a random source of its own."""
    rng = random.Random(f"drive {seed}")
    driven = {
        "arrays": rng.choice((0.0, 0.1, 0.3)),
        "together": rng.choice((0.0, 0.5, 1.0)),
        "corked_ns": rng.choice((0, 50_000, 2 * MS)),
        "full": rng.choice((0.0, 0.0, 0.02, 0.2)),
        "deaf_applications": rng.choice((0.0, 0.0, 0.0, 0.3)) if not drawn.get("state") else 0.0,
    }
    one_machine = rng.random() < 0.1 and not drawn.get("narrows")  # members with such packets measure no path
    if one_machine and drawn["capacity"] >= 1 << 20:  # each fills a receive buffer, which the engine keeps
        driven["packet_bytes"] = 65_000
    if drawn.get("islands"):  # a kernel that is full more often has no room for a copy to each
        driven["full"] = min(driven["full"], 0.02)
    if drawn.get("family") == "repair" and rng.random() < 0.4:  # nothing is lost: nothing may be asked for
        driven |= {"loss": 0.0, "flips": 0.0, "bytes_max": 20_000, "together": 1.0}
    return driven


def _settings(seed: int) -> dict[str, Any]:
    """Preset and other settings, from a random source of their own, so that the faults of a seed stay."""
    rng = random.Random(f"settings {seed}")
    preset = rng.choice(("lan", "lan", "lan", "fast", "wan"))
    choices: dict[str, tuple[Any, ...]] = {
        "ack_delay_s": (0.0005, 0.002),
        "ack_bytes": (2048, 1 << 20),
        "ack_packets": (1, 7, 1000),
        "nak_delay_s": (0.0, 0.003),
        "retransmit_hold_s": (0.0, 0.01),
        "retransmit_bytes_per_s": (100_000,),
        "window_bytes": (64 << 10, 8 << 20),
        "unicast_bytes": (64 << 10,),
        "ring_bytes": (256 << 10,),
        "slabs_max": (64,),
        "bundle_s": (0.0, 0.05),
        "flush_deadline_s": (1.5,),
        "lease_s": (0.5, 3.0),
        "pause_s_max": (0.5,),
        "linger_s": (0.0,),
        "control_bytes_max": (256 << 10,),
    }
    given = [(name, rng.choice(values)) for name, values in sorted(choices.items()) if rng.random() < 0.08]
    return {"preset": preset, "settings": tuple(given)}


def _wide(rng: random.Random) -> dict[str, Any]:
    """A bit of everything."""
    lossy, hostile = rng.random() < 0.6, rng.random() < 0.6
    bytes_max = rng.choice((200, 5_000, 200_000))
    faults: dict[str, Any] = {
        "partitions": rng.choice((0, 1, 2, 4)),
        "one_way": rng.choice((0, 0, 1)),
        "flaps": rng.choice((0, 0, 1)),
        "deaf": rng.choice((0, 0, 0, 1)),
        "rejoins": rng.choice((0, 4)),
        "pauses": rng.choice((0, 1, 2)),
        "stalls": rng.choice((0, 1, 2)),
        "stops": rng.choice((0, 0, 1)),
        "late": rng.choice((0.0, 0.0, 0.05)),
        "echoes": rng.choice((0.0, 0.2)),
        "doubts": rng.choice((0, 2, 6)),
        "ambushes": rng.choice((0, 1, 2)),
    }
    return {
        "members": rng.choice((2, 3, 3, 4, 5)),
        "loss": rng.choice((0.001, 0.01, 0.05, 0.2)) if lossy else 0.0,
        "duplicate": rng.choice((0.0, 0.01, 0.1)) if lossy else 0.0,
        "delay_ns": rng.choice((5_000, 50_000, 500_000)),
        "jitter_ns": rng.choice((1_000, 50_000, 500_000)),
        "tail": rng.choice((0.0, 0.001, 0.02)),
        "crashes": rng.choice((0, 1, 2)),
        "restarts": rng.choice((0, 1)),
        "leaves": rng.choice((0, 0, 1, 2)),
        "hasty": rng.choice((0, 0, 0, 1, 6)),
        "spread_ns": rng.choice((0, 20 * MS, 600 * MS)),
        "rate": rng.choice((20, 200, 600)) if bytes_max < 200_000 else 50,
        "bytes_max": bytes_max,
        "unicasts": rng.choice((0.0, 0.1, 0.3)),
        "state": rng.random() < 0.4,
        "state_bytes": rng.choice((0, 20_000, 300_000)),
        "state_refusals": rng.choice((0, 0, 0, 1, 3)),
        "hosts": rng.random() < 0.5,
        "blocks": rng.choice((0.0, 0.0, 0.3, 1.0)),
        "suspends": rng.choice((0, 0, 1, 4)),
        "queue_bytes": rng.choice((0, 0, 2_000, 1 << 20)),
        "partition": rng.choice(("merge", "merge", "merge", "primary")),
        "split": rng.choice((0, 2, 2, 3)),
        "apart_ns": rng.choice((0, 0, 0, 0, 800 * MS)),
        "flush_unicasts": rng.random() < 0.2,
        "slow_disks": rng.choice((0, 0, 1, 4)),
        "jumps": rng.choice((0, 0, 1, 4)),
        "policy": rng.choice(("", "", "", "", *GOOD, *BAD, "mixed", "mixed")),
        "filtered": rng.choice((*("",) * 9, "in", "out", "both")),
        **(faults if hostile else {}),
    }
