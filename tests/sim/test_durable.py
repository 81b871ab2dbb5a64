"""Replicas with disks in a simulated group that loses its power, also in the middle of a write: all that was answered
or read comes back."""

from __future__ import annotations

import functools
import io
import random
from types import SimpleNamespace

import pytest
from counting import Counting
from halves import first_quick
from sim_stage import Stage

from seqcast._native.engine import AGAIN, SENT, Batch
from seqcast.blocks import durable
from seqcast.blocks.disk import NEW, DiskLog
from seqcast.blocks.durable import Durable
from seqcast.blocks.log import Log
from seqcast.blocks.outbox import READ, Call, Outbox
from seqcast.errors import NotMember, SendTimeout
from seqcast.sim.options import MS
from seqcast.types import View


class Replica:
    """On one simulated process, in place of its application; its disk is a real file."""

    def __init__(self, power: Power, name: str) -> None:
        self.power, self.name = power, name
        self.path = str(power.directory / name)
        self.log, self.disk = Log(Counting()), DiskLog(self.path, "k", name)
        self.durable = Durable(self.disk, self.log, self.settle, lambda _: None)
        self.durable.load()
        self.unsent: list[bytes] = []

    def attach(self, node) -> None:
        self.node, self.outbox = node, Outbox(node.id, lambda: node.now)
        application, chain = node.application, node.application.chain
        application.accept, self.accept = self.take, application.accept
        application.enter = lambda items: [self.take(item) for item in items]
        chain.dump = self.dump
        chain.load = lambda data: self.durable.replaces(functools.partial(self.log.restore, io.BytesIO(data).read))
        self.work()

    def dump(self) -> bytes:
        written = io.BytesIO()
        self.own(self.log.snapshot(written.write))
        return written.getvalue()

    # ---- the group

    member = property(lambda self: SimpleNamespace(id=self.node.id))

    def send(self, payload: bytes, *, to, timeout: float) -> None:
        """Of ``Group``, for `Durable`."""
        if not self.runs:
            raise NotMember("it has crashed, or was excluded")
        if self.node.engine.send(payload, to=to.id, wall_ns=self.node.wall) == AGAIN:
            raise SendTimeout("the window is full")
        self.node.poke()
        self.node.service()

    @property
    def runs(self) -> bool:
        return self.node.up and not self.node.endpoint.over and self.node.can_run

    def take(self, item) -> None:
        if isinstance(item, Batch):
            payloads = item.tolist()
            for sender, _, _, _, first, n, _, unicast, late in item.runs.tolist():
                for payload in payloads[first : first + n]:
                    self.message(sender, payload, bool(unicast), bool(late))
            return
        self.accept(item)  # the simulated application gives its state here
        if isinstance(item, View):
            applied = self.log.enter([member.id for member in item.members], item.view_id.counter)
            self.durable.entered(self, item)
            self.own(applied)

    def message(self, sender: int, payload: bytes, unicast: bool, late: bool) -> None:
        if unicast:
            if self.durable.heard(sender, payload):  # not a message of the simulated application
                self.settle()
            return
        applied = self.log.take(payload, sender, late)
        self.durable.applied(SimpleNamespace(id=sender))
        self.own([applied] if applied is not None else [])

    def own(self, applied) -> None:
        for each in applied:
            if each.entry.origin == self.outbox.origin:
                self.outbox.back(each.entry.number)
                self.durable.hold(each)
        self.settle()

    def settle(self) -> None:
        for each in self.durable.take():
            for call in self.outbox.applied(each):
                call.done()

    # ---- calls, reads, and the disk

    def call(self) -> None:
        call = Call(b"1", lambda: self.power.answers.append(int(call.answer.data)))
        self.outbox.add(call)

    def read(self) -> None:
        least = max(self.power.answers, default=0)

        def query() -> None:
            total, call = self.log.machine.total, Call(None, lambda: None, seen=self.log.mark.position)
            call.done = functools.partial(done, call, total)
            if self.durable.add(call):
                call.done()
            else:
                self.outbox.add(Call(None, lambda: None))

        def done(call: Call, total: int) -> None:
            if call.answer is not READ:
                return
            self.power.reads += 1
            self.power.seen = max(self.power.seen, total)
            if total < max(least, self.power.read_before):
                self.power.wrong.append(f"{self.name} read {total} after {least} and {self.power.read_before}")

        self.outbox.add(Call(None, query))

    def pass_on(self) -> None:
        """Sends waiting messages; tries again later while the group is closed for sending."""
        if not self.runs or self.node.endpoint.view is None:
            return
        while message := self.unsent.pop(0) if self.unsent else self.outbox.compose():
            if self.node.engine.send(message, wall_ns=self.node.wall) != SENT:
                self.unsent.insert(0, message)
                break
        self.node.poke()
        self.node.service()

    def work(self) -> None:
        """The thread that syncs: each sync takes its time."""
        clock, rng = self.power.stage.clock, self.power.dice
        if self.node.up:
            if self.runs and not self.power.strikes_log(self):
                self.durable.work()
            clock.at(clock.now + rng.randrange(1, self.power.sync_ms + 1) * MS, self.work)

    @property
    def writes(self) -> bool:
        """The next ``work`` writes to the disk."""
        return self.durable._group is not None and self.disk.mark != self.durable.mark

    def lose_power(self) -> None:
        """Unsynced records are on the disk in part: of the log, or of its successor."""
        rng, disk = self.power.dice, self.disk
        rest = b"".join(disk._pending)
        torn = bytearray(rest[: rng.randrange(len(rest) + 1)])
        if torn and rng.random() < 0.5:
            begin = rng.randrange(len(torn))
            torn[begin : begin + 8] = bytes(len(torn[begin : begin + 8]))
        with open(self.path + ".log" + (NEW if disk._fresh else ""), "ab") as file:
            file.write(torn)
        self.durable.close()


class Power(Stage):
    """Three machines that lose their power at the same time, or nearly so."""

    def __init__(self, seed: int, directory, sync_ms: int = 8) -> None:
        super().__init__("total", partition="primary", found=2, stable=True, state=True, safe=True)
        self.quiet, self.stage = True, self
        self.dice, self.directory, self.sync_ms = random.Random(seed), directory, sync_ms
        self.replicas: dict[str, Replica] = {}
        self.answers: list[int] = []
        self.wrong: list[str] = []
        self.reads = self.seen = self.read_before = 0

    def on_disk(self, name: str) -> tuple[int, int]:
        self.replicas[name] = Replica(self, name)
        return self.replicas[name].durable.mark

    def start_node(self, name: str) -> None:
        super().start_node(name)
        self.replicas[name].attach(self.nodes[-1])

    def use(self, ms: int) -> None:
        """All call and read, for this long."""
        now = self.clock.now // MS
        for at in range(now, now + ms, 2):
            replica = self.dice.choice(list(self.replicas.values()))
            self.clock.at(at * MS, replica.read if self.dice.random() < 0.3 else replica.call)
            for each in self.replicas.values():
                self.clock.at((at + 1) * MS, each.pass_on)
        self.until(now + ms)

    def fail(self) -> None:
        """All lose their power, within a moment; one may also lose its disk."""
        now = self.clock.now // MS
        order = self.dice.sample("abc", 3)
        spread = self.dice.choice((0, 0, 20, 400))
        for place, name in enumerate(order):
            self.clock.at((now + place * spread) * MS, self.strike, name)
        self.use(2 * spread + 1)
        if spread < 100 and self.dice.random() < 0.3:  # the last view has all three
            name = self.dice.choice("abc")
            self.disks.pop(name, None)
            (self.directory / f"{name}.log").unlink()
        self.read_before = self.seen

    def strikes_log(self, replica: Replica) -> bool:
        """Does the power of this one fail in the middle of its next write?"""
        return False

    def strike(self, name: str) -> None:
        replica = self.replicas[name]
        replica.node.crash()
        replica.lose_power()

    def start_all(self) -> None:
        now = self.clock.now // MS
        for name in self.dice.sample("abc", 3):
            self.named(name, now + self.dice.randrange(0, 300))
        self.until(now + 3000)

    def total(self) -> int:
        totals = {replica.log.machine.total for replica in self.replicas.values()}
        views = {replica.node.endpoint.view for replica in self.replicas.values()}
        assert len(views) == 1 and None not in views, [r.node.endpoint.lacks for r in self.replicas.values()]
        assert len(totals) == 1
        return totals.pop()


def run(seed: int, directory, rounds: int = 2) -> Power:
    power = Power(seed, directory)
    power.start_all()
    for _ in range(rounds):
        power.use(200)
        power.fail()
        power.start_all()
        if power.total() < max(power.answers, default=0):
            power.wrong.append(f"{max(power.answers)} was answered, and the total is {power.total()}")
        if len(set(power.answers)) != len(power.answers):
            power.wrong.append("two calls had one answer")
    return power


@pytest.mark.parametrize("seed", first_quick(range(1, 3)))
def test_answers_and_reads_outlast_a_loss_of_power(seed, tmp_path):
    power = run(seed, tmp_path)
    assert len(power.answers) > 50 and power.reads > 20
    assert power.wrong == []


def test_calls_that_are_answered_before_the_disks_of_a_majority_have_them_are_lost(tmp_path, monkeypatch):
    """The base of the guarantee, whose absence the test above would see."""
    monkeypatch.setattr(durable, "position_of_majority", lambda voters, positions: 1 << 60)
    assert run(1, tmp_path).wrong


# ---- when the power goes at a bad moment


def restarted(power: Power, *names: str, lost: str = "") -> None:
    """These lose their power, some their disks, and start again."""
    for name in names:
        power.strike(name)
    for name in lost:
        power.disks.pop(name, None)
        (power.directory / f"{name}.log").unlink(missing_ok=True)
    power.read_before = power.seen
    now = power.clock.now // MS
    for name in power.dice.sample(names, len(names)):
        power.named(name, now + power.dice.randrange(1, 300))
    power.until(now + 4000)


def nothing_is_lost(power: Power) -> bool:
    return power.wrong == [] and power.total() >= max(power.answers, default=0)


@pytest.mark.parametrize("seed", range(1, 4))
def test_power_that_goes_within_50_ms_of_the_founding_loses_nothing(seed, tmp_path):
    power = Power(seed, tmp_path)
    for name in "abc":
        power.named(name, power.dice.randrange(100))
    while len(power.replicas) < 3 or not any(each.node.endpoint.view for each in power.replicas.values()):
        power.clock.run(power.clock.now + MS)
    power.use(power.dice.randrange(1, 50))
    restarted(power, *"abc")
    power.use(100)
    assert nothing_is_lost(power) and power.answers


def test_a_bare_majority_that_loses_its_power_goes_on_and_the_third_takes_over_its_state(tmp_path):
    power = Power(1, tmp_path)
    power.start_all()
    power.use(100)
    power.strike("b")
    power.until(power.clock.now // MS + 2000)
    late = power.replicas.pop("b")
    power.use(200)
    restarted(power, *"ac")
    assert nothing_is_lost(power) and power.total() > late.log.machine.total
    power.named("b", power.clock.now // MS + 10)
    power.until(power.clock.now // MS + 2000)
    power.use(100)
    assert nothing_is_lost(power) and len(set(power.answers)) == len(power.answers)


def started(power: Power, *names: str) -> None:
    """These start, and wait a moment for the others."""
    now = power.clock.now // MS
    for name in names:
        power.named(name, now + power.dice.randrange(1, 300))
    power.until(now + 5000)
    assert all(power.replicas[name].node.endpoint.view is not None for name in names)


@pytest.mark.parametrize("missing", first_quick("abc"))
def test_most_of_a_group_that_lost_its_power_go_on_without_the_one_that_is_gone(missing, tmp_path):
    power = Power(1, tmp_path)
    power.start_all()
    power.use(100)
    power.read_before = power.seen
    for name in "abc":
        power.strike(name)
    late = power.replicas.pop(missing)
    started(power, *power.replicas)
    power.use(60)
    assert nothing_is_lost(power) and power.total() > late.log.machine.total
    power.named(missing, power.clock.now // MS + 10)
    power.until(power.clock.now // MS + 1000)
    power.use(60)
    assert nothing_is_lost(power) and len(set(power.answers)) == len(power.answers)


@pytest.mark.parametrize(("seed", "cut_off"), first_quick([(seed, name) for seed in range(1, 4) for name in "abc"]))
def test_one_that_was_cut_off_gives_way_to_those_that_started_again_without_it(seed, cut_off, tmp_path):
    power = Power(seed, tmp_path)
    power.start_all()
    power.use(100)
    alone, others = power.replicas[cut_off], sorted({*"abc"} - {cut_off})
    power.network.partition({alone.node.index}, set(range(10)) - {alone.node.index})
    power.use(50)
    power.read_before = power.seen
    for name in others:
        power.strike(name)
    started(power, *others)
    power.use(60)
    assert not alone.node.endpoint.over
    power.read_before = power.seen
    power.network.heal()
    power.until(power.clock.now // MS + 2500)
    assert alone.node.endpoint.over
    alone.lose_power()
    power.named(cut_off, power.clock.now // MS + 10)
    power.until(power.clock.now // MS + 1000)
    power.use(60)
    assert nothing_is_lost(power) and len(set(power.answers)) == len(power.answers)


def test_one_that_was_cut_off_with_its_state_does_not_give_way_to_a_group_founded_apart(tmp_path):
    """The others were set up again without their disks: the answers of a day are on its disk alone."""
    power = Power(1, tmp_path)
    power.start_all()
    power.use(100)
    alone, others = power.replicas["a"], "bc"
    power.network.partition({alone.node.index}, set(range(10)) - {alone.node.index})
    for name in others:
        power.strike(name)
        power.replicas.pop(name)
        power.disks.pop(name)
        (tmp_path / f"{name}.log").unlink()
    started(power, *others)
    power.use(60)
    power.network.heal()
    power.until(power.clock.now // MS + 6000)
    assert not any(each.node.endpoint.over for each in power.replicas.values())  # an operator decides
    assert alone.node.endpoint.view is not None and len(power.replicas["b"].node.endpoint.view.members) == 2


@pytest.mark.parametrize("all_lose_power", [False, True])
@pytest.mark.parametrize(("members", "later_ms"), first_quick([(2, 0), (3, 0), (3, 20)]))
def test_two_empty_joiners_go_on_with_the_state_of_the_one_that_had_it(members, later_ms, all_lose_power, tmp_path):
    """One was alone, and its power goes as the others come in: at once, when these have no votes on disk, or later. Two
    may close its view without the state, and then that one has no vote in the last one, but its state is the one that
    all take over."""
    power = Power(1, tmp_path)
    power.start_all()
    power.use(100)
    (first,) = {each.node.endpoint.view.coordinator.name for each in power.replicas.values()}
    others = [name for name in "abc" if name != first]
    for name in others:
        power.strike(name)
        power.until(power.clock.now // MS + 1500)
        power.replicas.pop(name)
        power.disks.pop(name)
        (tmp_path / f"{name}.log").unlink()
    power.use(300)
    for name in others:
        power.named(name, power.clock.now // MS + 1)
    while len(power.replicas) < 3:
        power.clock.run(power.clock.now + MS // 4)
    alone = power.replicas[first].node.endpoint
    deaf = power.deafen(*(power.replicas[name].node for name in others))  # no packet of the state gets through
    while len(alone.view.members) < members:
        power.clock.run(power.clock.now + MS // 4)
    power.until(power.clock.now // MS + later_ms)
    deaf.clear()
    if not all_lose_power:
        power.strike(first)
        power.until(power.clock.now // MS + 300)
    restarted(power, *"abc")
    power.use(100)
    assert nothing_is_lost(power)


@pytest.mark.long
def test_disks_that_take_two_seconds_for_a_sync_lose_nothing(tmp_path):
    power = Power(1, tmp_path, sync_ms=2000)
    power.start_all()
    power.until(power.clock.now // MS + 8000)
    power.use(5000)
    restarted(power, *"abc")
    power.until(power.clock.now // MS + 8000)
    power.use(3000)
    assert nothing_is_lost(power) and len(power.answers) > 500


# ---- when the power goes in the middle of writes


class Struck(Power):
    """Each machine loses its power in the middle of some writes, of votes or of its log, and starts again."""

    def __init__(self, seed: int, directory) -> None:
        super().__init__(seed, directory)
        self.left, self.strikes = 10**9, {"votes": 0, "log": 0}  # writes before the next one that is struck
        self.faults.breaks_write = lambda: self.breaks("votes")
        self.faults.strike = lambda node: self.strike(node.name)

    def breaks(self, what: str) -> bool:
        self.left -= 1
        if self.left:
            return False
        self.left = self.dice.randrange(1, 40)
        self.strikes[what] += 1
        return True

    def strikes_log(self, replica: Replica) -> bool:
        if not replica.writes or not self.breaks("log"):
            return False
        if self.dice.random() < 0.5:  # the write is done, and nobody is told
            replica.disk.sync()
        self.strike(replica.name)
        return True

    def strike(self, name: str) -> None:
        super().strike(name)
        self.named(name, self.clock.now // MS + self.dice.randrange(1, 500))

    def ask(self, name: str) -> None:
        """One operation, or a read."""
        replica = self.replicas[name]
        self.start_excluded()
        (replica.read if self.dice.random() < 0.3 else replica.call)()
        for each in self.replicas.values():
            each.pass_on()

    def start_excluded(self) -> None:
        """The others went on without these."""
        for replica in self.replicas.values():
            if replica.node.up and replica.node.endpoint.over:
                self.strike(replica.name)

    def struck(self, ms: int) -> None:
        """All call and read, for this long, while machines are struck."""
        now, self.left = self.clock.now // MS, 1
        for at in range(now, now + ms, 4):
            self.clock.at(at * MS, self.ask, self.dice.choice("abc"))
        self.until(now + ms)
        self.left = 10**9
        self.until(now + ms + 5000)
        self.start_excluded()
        self.until(now + ms + 7000)


@pytest.mark.parametrize(("seed", "ms"), first_quick([(7, 300), *((seed, 4000) for seed in range(1, 9))]))
def test_power_that_goes_in_the_middle_of_any_write_loses_nothing(seed, ms, tmp_path):
    power = Struck(seed, tmp_path)
    power.start_all()
    power.struck(ms)
    power.use(50)
    assert nothing_is_lost(power) and len(set(power.answers)) == len(power.answers) > 20
    assert min(power.strikes.values()) > 0
