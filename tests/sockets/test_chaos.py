"""Groups of real processes under loss, cuts, SIGKILL and SIGSTOP; their journals audited. Longer: ``make chaos``."""

import contextlib
import io
import math
import random
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from chaos.member import watch
from chaos.runner import LEAVE_S, RECENT_S, STUCK_S, Failed, Process, Run, Stalled, completed, judge, place_for
from chaos.scenarios import DIRECTED, NEWER, ORDERS, SIZES, TRANSPORTS, Scenario, Step, draw
from chaos.soak import figures, grown_in, slope, steep

from seqcast.cli.fault import plant
from seqcast.perf.paths import why_no_namespaces

SEEDS = (1, 2, 3, 4)
SECONDS_MAX = 300.0
"""On a slow machine no more scenarios are begun after this."""
_begin: list[float] = []


@pytest.fixture
def in_time():
    _begin.append(time.monotonic())
    if _begin[-1] - _begin[0] > SECONDS_MAX:
        pytest.skip(f"the scenarios before it took more than {SECONDS_MAX:g} s here: make chaos runs them all")


@pytest.fixture(scope="module")
def namespaces():
    if reason := why_no_namespaces():
        pytest.skip(reason)


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.spark
@pytest.mark.parametrize("scenario", [*DIRECTED, *map(draw, SEEDS)], ids=lambda scenario: scenario.name)
def test_all_guarantees_hold(scenario, namespaces, in_time, spark):
    """A failure prints the whole story, where journals and logs are kept, and how to run the scenario again."""
    print(scenario)
    with place_for(scenario.name) as directory:
        run = completed(scenario, directory)
        print(run.summary())
        assert not judge(spark, run.journals)


@pytest.mark.parametrize(
    ("kind", "later", "grows"), [("memory", 60 << 20, True), ("fds", 12, False), ("fds", 14, True)]
)
def test_a_process_that_grows_in_a_soak_is_found(kind, later, grows):
    flat = {"memory": 40 << 20, "fds": 10, "slabs": 100, "threads": 9, "segments": 1}
    used = [{**flat, "age_s": float(age), **({kind: later} if age >= 80 else {})} for age in range(121)]
    told = grown_in(SimpleNamespace(name="a", used=used), 120.0)
    assert [text.split(":")[1].split()[0] for text in told] == ([kind] if grows else [])
    assert not grown_in(SimpleNamespace(name="a", used=used[:50]), 120.0), "it did not live for long"


@pytest.mark.parametrize("rolled_at", [50, 85, 200], ids=["early", "late", "never"])
@pytest.mark.parametrize("leaks", [False, True])
def test_memory_that_rolling_a_journal_takes_once_is_not_growth_and_a_leak_beside_it_is(rolled_at, leaks):
    flat = {"fds": 10, "slabs": 100, "threads": 9}
    used = [
        {
            **flat,
            "age_s": float(age),
            "segments": 1 + (age >= rolled_at),
            "memory": (40 << 20) + (60 << 20) * (age >= rolled_at) + (age << 20) * leaks,
        }
        for age in range(121)
    ]
    process = SimpleNamespace(name="a", used=used)
    assert bool(grown_in(process, 120.0)) == leaks
    assert slope([process], "memory") == pytest.approx((3600 << 20) * leaks)


def life(seed, per_hour):
    """Four minutes of a process, whose memory goes up and down with its batches, and its descriptors with its peers."""
    rng, flat = random.Random(seed), {"memory": 40 << 20, "fds": 10, "slabs": 100, "threads": 9}
    ups = {"memory": 6 << 20, "fds": 2, "slabs": 30, "threads": 1}
    used = [
        {name: int(of + rng.randint(0, ups[name]) + per_hour.get(name, 0) * age / 3600) for name, of in flat.items()}
        | {"age_s": float(age), "segments": 1}
        for age in range(0, 241, 2)
    ]
    return SimpleNamespace(name="a", used=used)


@pytest.mark.parametrize(
    ("kind", "per_hour"), [("memory", 300e6), ("fds", 120), ("threads", 60), ("slabs", 600), ("", 0)]
)
def test_a_leak_that_no_round_shows_by_itself_is_found_by_the_slope_of_all_lives(kind, per_hour):
    """300 MB or 120 descriptors an hour are less, in a round, than what goes up and down."""
    lives = [life(seed, {kind: per_hour}) for seed in range(40)]
    assert not any(grown_in(each, 240.0) for each in lives)
    assert [text.split()[0] for text in steep(lives)] == [kind] * bool(kind)
    assert not steep(lives[:10]) and "not judged" in figures(lives[:10]) and "not judged" not in figures(lives)


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.spark
def test_a_falsified_journal_is_found(namespaces, spark, tmp_path):
    run = completed(Scenario("calm", (), members=3), tmp_path / "calm")
    assert not judge(spark, run.journals)
    plant("swap", run.journals, "a")
    assert "total order" in judge(spark, run.journals)


@pytest.mark.long
@pytest.mark.netns
def test_a_group_that_cannot_recover_fails_with_the_faults(namespaces, tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.runner.SETTLE_S", 2.0)
    monkeypatch.setattr("chaos.runner.CALM_S", 60.0)  # no calm before both know of the split
    endless = Scenario("endless", (Step(0.2, "split", ("a",), ("b",), seconds=0.8),), members=2)
    monkeypatch.setattr("chaos.runner.Network.heal", lambda self, what, pairs: None)
    with pytest.raises(Failed, match=r"one view on every live member, with none blocked .*: not within .* s; a in"):
        Run(endless, tmp_path).run()


@pytest.mark.parametrize(
    ("ago_s", "before", "expected"),
    [(1.0, True, Stalled), (1.0, False, Stalled), (RECENT_S + 1, True, Failed), (None, True, Failed)],
    ids=["stalled", "told of it later", "stalled long before", "not stalled"],
)
def test_a_calm_group_in_which_a_member_was_excluded_fails_unless_the_machine_stalled(
    tmp_path, monkeypatch, ago_s, before, expected
):
    monkeypatch.setattr("chaos.runner.TOLD_S", 0.0)
    run = Run(Scenario("calm", ()), tmp_path, lambda line: None)
    a, b = (Process(name, *[None] * 3) for name in "ab")
    now_ns = time.monotonic_ns()
    if ago_s is not None:
        stalled = {"event": "stalled", "at_ns": now_ns - int(ago_s * 1e9), "seconds": 0.5}
        run.take(a, stalled) if before else run.inbox.put((a, stalled))
    with pytest.raises(Failed, match="b was excluded, and nothing made it look dead") as failed:
        run.take(b, {"event": "excluded", "at_ns": now_ns, "text": "as it was silent"})
    assert failed.type is expected
    assert ("but the machine did not run a for 0.50 s" in str(failed.value)) == (expected is Stalled)


@pytest.mark.parametrize(
    ("ends", "raised"), [([None, Stalled, Stalled], None), ([Stalled] * 3, Stalled), ([None, Failed], Failed)]
)
def test_a_scenario_is_run_again_if_the_machine_stalled_but_not_for_ever(ends, raised, tmp_path, monkeypatch):
    left = list(ends)

    def run(self):
        self.directory.mkdir()
        if end := left.pop():
            raise end("so")

    monkeypatch.setattr(Run, "run", run)
    calm = Scenario("calm", ())
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        completed(calm, tmp_path / "run", lambda line: None)


class Slow(Run):
    """Two members that leave at their own pace, in virtual time: each later than the time in which a member must get
    on, some reporting or writing to their journals meanwhile."""

    def __init__(self, directory, monkeypatch, writes=0.0, reports=0.0, gone=math.inf):
        super().__init__(Scenario("slow", (), members=2), directory, lambda line: None)
        self.now, self.begun, self.gone, self.paces = 0.0, 0.0, gone, {"write": writes, "report": reports}
        self.journals.mkdir()
        self.processes = [Process(name, None, SimpleNamespace(stdin=io.StringIO()), None) for name in "ab"]
        monkeypatch.setattr("chaos.runner.time", SimpleNamespace(monotonic=lambda: self.now))

    def pump(self, timeout_s):
        before, self.now = self.now, self.now + 1.0
        leaving = [process for process in self.processes if process.leaving and "gone" not in process.told]
        for what, pace in self.paces.items():
            if pace and int(self.now / pace) > int(before / pace):
                if what == "write":
                    with open(self.journals / "a", "ab") as file:
                        file.write(b"row")
                else:
                    self.take(leaving[0], {"event": "delivering", "delivered": 1})
        if self.now - self.begun >= self.gone:
            self.begun = self.now
            for process in leaving:
                self.take(process, {"event": "ended", "graceful": True, "at_ns": 0})
                self.take(process, {"event": "gone", "status": 0})


@pytest.mark.parametrize("how", ["writes", "reports"])
def test_members_that_get_on_with_leaving_may_take_long(how, tmp_path, monkeypatch):
    run = Slow(tmp_path, monkeypatch, gone=5 * STUCK_S, **{how: STUCK_S / 2})
    run.leave_all()
    assert run.now >= 10 * STUCK_S


@pytest.mark.parametrize(
    ("slow", "told", "at_s"),
    [
        ({"reports": 2 * STUCK_S}, f"not within {STUCK_S:g} s of the last progress; b in", STUCK_S),
        ({"reports": 1.0, "writes": 1.0}, f"not within {LEAVE_S:g} s; b in", LEAVE_S),
    ],
    ids=["stuck", "endless"],
)
def test_members_that_do_not_get_on_with_leaving_or_never_end_fail(slow, told, at_s, tmp_path, monkeypatch):
    run = Slow(tmp_path, monkeypatch, **slow)
    with pytest.raises(Failed, match=f"all to leave: {told}"):
        run.leave_all()
    assert at_s < run.now <= at_s + 2


def test_a_process_tells_when_it_was_not_run_and_not_when_it_computed(monkeypatch):
    """Slept for, used of that by its threads."""
    sleeps, told, clock = iter([(0.05, 0.0), (0.24, 0.0), (0.9, 0.88), (0.9, 0.1)]), [], [0.0, 0.0]

    def sleep(_):
        for each, took in enumerate(next(sleeps)):
            clock[each] += took

    timed = SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: clock[1], sleep=sleep)
    monkeypatch.setattr("chaos.member.time", timed)
    monkeypatch.setattr("chaos.member.say", lambda event, seconds: told.append((event, round(seconds, 3))))
    with pytest.raises(StopIteration):
        watch()
    assert told == [("stalled", 0.75)]


def test_a_seed_draws_the_same_scenario_each_time_and_every_kind_of_fault_is_drawn():
    assert draw(5) == draw(5) != draw(6)
    drawn = [draw(seed) for seed in range(40)]
    steps = [step for one in drawn for step in one.steps]
    assert {step.what for step in steps} == {
        "loss", "cut", "split", "kill", "stop", "leave", "start", "deafen", "narrow", "lie", "rotate",
    }  # fmt: skip
    assert {step.percent for step in steps if step.what == "loss"} == {1, 5, 20}
    assert {step.most for step in steps if step.what == "narrow"} == set(SIZES)
    assert {one.order for one in drawn} == {*ORDERS, *NEWER}
    assert {one.settings.get("transport", "auto") for one in drawn} == set(TRANSPORTS)
    others = {"token-ring", "gossip", True, "multicast", "unicast"}
    assert {value for one in drawn for value in one.settings.values()} == others
    assert len({one.name for one in DIRECTED}) == len(DIRECTED)


def test_a_member_that_still_seals_with_a_replaced_key_is_found(tmp_path):
    run = Run(next(each for each in DIRECTED if each.name.startswith("key-replaced")), tmp_path)
    run.keys = [run.new_key(), run.new_key()]
    counters = {"key_id": 1 + 32 * 7}
    told = {"tally": {}, "ended": {"counters": counters}}
    run.processes.append(SimpleNamespace(name="a", told=told))
    run.check_keys()
    counters["key_id"] = 32 * 7
    with pytest.raises(Failed, match="a sealed with key 0 at the end, and not with 1"):
        run.check_keys()
