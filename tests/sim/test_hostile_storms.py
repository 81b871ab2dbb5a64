"""In the simulator: after an attacker's forged datagrams of every kind a group is as if there had been none."""

import pytest
from halves import first_quick
from hostile.forge import sealed_inside, sealed_outside
from hostile.storm import WHO, Storm, calm

from seqcast.core.frames import kinds as frames
from seqcast.core.frames.merging import Beacon, MergeAsk
from seqcast.core.frames.traits import TRAITS
from seqcast.sim.options import MS, SECOND
from seqcast.sim.seal import SECRETS
from seqcast.sim.world import World
from seqcast.types import ViewId

SEEDS = [range(1, 3), pytest.param(range(3, 7), marks=pytest.mark.long)]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
@pytest.mark.parametrize("who", WHO)
def test_after_a_storm_of_forged_datagrams_all_guarantees_hold(who, seeds):
    kinds = set()
    for seed in seeds:
        storm = Storm(calm(seed, who), who)
        result = storm.run()
        assert not result.violations, f"{who}, seed {seed}: {result.violations[0]}"
        assert result.messages > 0 and storm.sent > 10
        # More would let a stranger multiply its datagrams against a third party.
        assert who != "stranger" or storm.evil.heard < storm.sent_bytes, f"seed {seed}: {storm.evil.heard} bytes heard"
        kinds |= storm.kinds
    assert {"start", "join", "beacon", "merge_ask", "heartbeat", "nak", "rubbish"} <= kinds


OTHERS = [
    {"order": "grant"}, {"order": "causal"}, {"order": "total-1999"}, {"membership": "token-ring"},
    {"reliability": "gossip"},
]  # fmt: skip


@pytest.mark.parametrize("seeds", [range(11, 12), pytest.param(range(12, 14), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("changes", OTHERS, ids=lambda changes: " ".join(changes.values()))
@pytest.mark.parametrize("who", WHO)
def test_other_orders_memberships_and_reliabilities_weather_a_storm_too(who, changes, seeds):
    for seed in seeds:
        result = Storm(calm(seed, who, **changes), who).run()
        assert not result.violations, f"{who}, seed {seed}: {result.violations[0]}"


@pytest.mark.long
@pytest.mark.parametrize("who", WHO)
def test_without_the_key_an_attacker_is_nobody(who):
    """Whatever sender an attacker claims: each of its datagrams is dropped and counted, and no view changes because of
    them."""
    for seed in range(1, 3):
        storm = Storm(calm(seed, who, keyed=True), who)
        result = World.run(storm)
        assert not result.violations, f"{who}, seed {seed}: {result.violations[0]}"
        counters = [node.engine.counters() for node in storm.nodes]
        names = ("drop_key", "drop_own", "drop_magic", "drop_short", "drop_group", "drop_version")
        dropped = sum(each[name] for each in counters for name in names)
        assert 20 < storm.sent <= dropped + storm.lost and storm.evil.heard == 0
        assert not sum(each["drop_rate"] + each["drop_field"] + each["drop_address"] for each in counters)


class Replayer(Storm):
    """Hears and repeats everything, from its own address or as if from the sender's."""

    def __init__(self, seed: int, **changes: object) -> None:
        super().__init__(calm(seed, keyed=True, **changes), "stranger")
        self.recorded: list[tuple[bytes, bytes]] = []
        self.again = 0

    def multicast(self, source, datagram) -> None:
        self.recorded.append((datagram, source.address))
        super().multicast(source, datagram)

    def unicast(self, source, to, datagram) -> None:
        self.recorded.append((datagram, source.address))
        super().unicast(source, to, datagram)

    def strike(self) -> None:
        rng = self.draws
        for _ in range(20):
            datagram, address = rng.choice(self.recorded)
            address = rng.choice((self.evil.address, address))
            for node in self.nodes:
                if node.up and node.address != address:
                    self.again += 1
                    self.network.carry(2000, node.index, node.receive, datagram, address)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes", [{}, {"crashes": 1, "restarts": 1, "leaves": 1}], ids=["calm", "with changes"]
)
def test_one_who_repeats_overheard_datagrams_breaks_no_guarantee(changes):
    for seed in range(1, 3):
        storm = Replayer(seed, **changes)
        result = storm.run()
        assert not result.violations, f"seed {seed}: {result.violations[0]}"
        assert storm.again > 1000 and result.messages > 100
        assert sum(node.engine.counters()["drop_replay"] for node in storm.nodes) > 100


class Former(Storm):
    """One that left the group long ago, and has the key file: seals like a member that is in no view, from its address,
    with higher numbers than that one has used, and uses fields that only members may send."""

    def forge(self, drawer, sender, claimed, victim):
        kind, datagram = super().forge(drawer, sender, claimed, victim)
        if datagram is None or kind in OF_OUTSIDE or len(datagram) < 40:
            return kind, None
        self.number = getattr(self, "number", 1 << 40) + 1
        return kind, sealed_outside(datagram, self.number, self.draws.choice(sorted(SECRETS)))


OF_OUTSIDE = {kind for kind, (make, _) in frames.SCHEMAS.items() if TRAITS[make].outside}


@pytest.mark.long
def test_one_that_has_the_key_file_alone_is_nobody_in_a_view():
    for seed in range(1, 3):
        storm = Former(calm(seed, "impostor", keyed=True), "faulty")
        result = World.run(storm)
        theirs = [line for line in result.violations if not line.startswith("frames:")]
        assert not theirs, f"seed {seed}: {theirs[0]}"
        assert storm.sent > 20 and len(storm.kinds) > 8 and result.messages > 0
        assert sum(node.engine.counters()["drop_field"] for node in storm.nodes) > 5


class Keyholder(Storm):
    """A process with the key file and no identity, which says all that may be said between views, under the id of a
    member, from its address."""

    def forge(self, drawer, sender, claimed, victim):
        kind, datagram = super().forge(drawer, sender, claimed, victim)
        if datagram is None or len(datagram) < 40:
            return kind, None
        self.number = getattr(self, "number", 1 << 40) + 1
        return kind, sealed_outside(datagram, self.number, self.draws.choice(sorted(SECRETS)))


@pytest.mark.long
def test_one_that_has_the_key_file_and_no_identity_is_nobody_between_views_either():
    for seed in range(1, 3):
        storm = Keyholder(calm(seed, "impostor", keyed=True, identities=True), "impostor")
        result = World.run(storm)
        theirs = [line for line in result.violations if not line.startswith("frames:")]
        assert not theirs, f"seed {seed}: {theirs[0]}"
        assert storm.sent > 20 and {"beacon", "merge_ask", "join"} <= storm.kinds and result.messages > 0
        assert sum(node.endpoint.counters["frames_unproven"] for node in storm.nodes) > 10


class Excluded(Storm):
    """A former member with its memory, that seals as its successors do, with the secret of a view that is over, and
    names the present one."""

    def forge(self, drawer, sender, claimed, victim):
        kind, datagram = super().forge(drawer, sender, claimed, victim)
        now = victim.endpoint.view.view_id.tag
        olds = {each.tag: each.secret for each in self.sealings.origin.values() if each.tag not in (0, now)}
        if datagram is None or len(datagram) < 40 or not olds:
            return kind, None
        self.number = getattr(self, "number", 1 << 40) + 1
        tag = list(olds)[-1]
        return kind, sealed_inside(datagram, self.number, tag, olds[tag])


@pytest.mark.long
def test_a_former_member_with_its_old_memory_is_nobody_in_the_views_that_follow():
    for seed in range(1, 3):
        storm = Excluded(calm(seed, "impostor", keyed=True, settings=(("rekey_s", 0.5),)), "impostor")
        result = World.run(storm)
        theirs = [line for line in result.violations if not line.startswith("frames:")]
        assert not theirs, f"seed {seed}: {theirs[0]}"
        assert storm.sent > 20 and len(storm.kinds) > 8 and result.messages > 0 and result.views > 5
        assert sum(node.engine.counters()["drop_view"] for node in storm.nodes) > 10


@pytest.mark.long
@pytest.mark.parametrize("changes", OTHERS, ids=lambda changes: " ".join(changes.values()))
@pytest.mark.parametrize("attacker", [Storm, Former, Keyholder, Excluded, Replayer])
def test_other_orders_memberships_and_reliabilities_with_a_key_weather_such_storms_too(attacker, changes):
    if attacker is Replayer:
        storm = Replayer(11, **changes)
    else:
        keyed = {"keyed": True, "identities": attacker is Keyholder}
        settings = (("rekey_s", 0.5),) if attacker is Excluded else ()
        who = "faulty" if attacker is Former else "impostor"
        storm = attacker(calm(11, "impostor", settings=settings, **keyed, **changes), who)
    result = World.run(storm)
    theirs = [line for line in result.violations if not line.startswith("frames:")]
    assert not theirs, theirs[0]
    assert storm.sent + getattr(storm, "again", 0) > 20 and result.messages > 0


class Ghost(Storm):
    """A process ends in the middle of its join, and somebody who recorded the JOIN repeats that, from the same
    address."""

    def __init__(self, seed: int, keyed: bool) -> None:
        super().__init__(calm(seed, members=3, loss=0.0, blocks=0.0, keyed=keyed), "stranger")
        self.join: bytes | None = None
        self.took_in = False

    def plan(self) -> None:
        World.plan(self)
        self.clock.at(SECOND // 2, self.start_node, "ghost")
        for moment in range(SECOND // 2 + MS, self.options.duration_ns, 10 * MS):
            self.clock.at(moment, self.strike)

    def multicast(self, source, datagram) -> None:
        if source.name == "ghost" and self.join is None:
            self.join = datagram
            self.clock.at(self.clock.now, source.crash)
            return
        super().multicast(source, datagram)

    def strike(self) -> None:
        ghost = next(node for node in self.nodes if node.name == "ghost")
        for node in self.nodes:
            if node is not ghost:
                self.network.carry(2000, node.index, node.receive, self.join, ghost.address)
                self.took_in |= ghost.id in node.endpoint.context.infos


@pytest.mark.parametrize("keyed", first_quick([True, False]))
def test_with_a_key_a_join_that_was_recorded_takes_nobody_in(keyed):
    """Without a key a recorded JOIN is enough: the view is made, and made again when nobody answers."""
    storm = Ghost(1, keyed)
    result = storm.run()
    assert storm.join and not result.violations
    assert storm.took_in != keyed


class Asker(Storm):
    """A stranger that beacons ten times a second, and asks for a merge of which nothing comes.

    Args:
        beats: also sends heartbeats, as the members of a view do. renews: repeats one merge; False: each is another
            one.
    """

    def __init__(self, seed: int, beats: bool, renews: bool) -> None:
        super().__init__(calm(seed, partition="merge", duration_ns=12 * SECOND), "stranger")
        self.beats, self.renews = beats, renews
        self.asked = self.merging = 0

    def plan(self) -> None:
        World.plan(self)
        for moment in range(SECOND, self.options.duration_ns, 100 * MS):
            self.clock.at(moment, self.strike)

    def strike(self) -> None:
        inside = [node for node in self.nodes if node.up and node.endpoint.view is not None]
        if not inside:
            return
        context = inside[0].endpoint.context
        self.asked += 1
        self.merging += any(node.endpoint.context.merging for node in inside)
        view_id = ViewId(1 << 40, self.own, (1, self.own))
        order, shared = self.options.order, context.settings.shared
        beacon = Beacon("sim", order, context.mechanism, view_id, None, shared)
        ask = MergeAsk((self.own, 1 if self.renews else self.asked), context.tag)
        datagrams = [self.forger.control(self.own, frame) for frame in (beacon, ask)]
        if self.beats:
            datagrams.insert(0, self.forger.heartbeat(self.own, view_id.tag, 0, 0, [(0, 0)], 0))
        for node in inside:
            for datagram in datagrams:
                self.network.carry(2000, node.index, node.receive, datagram, self.evil.address)


@pytest.mark.long
@pytest.mark.parametrize("renews", [True, False])
def test_a_stranger_that_asks_for_merges_holds_up_no_send(renews):
    storm = Asker(1, beats=False, renews=renews)
    result = storm.run()
    assert not result.violations and result.messages > 100
    assert storm.asked > 90 and storm.merging == 0


@pytest.mark.long
@pytest.mark.parametrize("renews", [True, False])
def test_one_that_looks_like_a_group_is_believed_less_and_less(renews):
    storm = Asker(1, beats=True, renews=renews)
    result = storm.run()
    assert not result.violations and result.messages > 100
    assert 0 < storm.merging < storm.asked / 3, "each time for half a second, which is up to six strikes"
