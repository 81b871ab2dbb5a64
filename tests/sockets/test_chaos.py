"""Groups of real processes under loss, cuts, SIGKILL and SIGSTOP; their journals audited. Longer: ``make chaos``."""

import time

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from chaos.runner import Failed, Run, judge, place_for
from chaos.scenarios import DIRECTED, NEWER, ORDERS, Scenario, Step, draw

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
    """A failure prints the whole story, where journals and logs are kept, and how to run it again."""
    print(scenario)
    with place_for(scenario.name) as directory:
        run = Run(scenario, directory)
        run.run()
        print(run.summary())
        assert not judge(spark, run.journals)


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.spark
def test_a_falsified_journal_is_found(namespaces, spark, tmp_path):
    run = Run(Scenario("calm", (), members=3), tmp_path)
    run.run()
    assert not judge(spark, run.journals)
    plant("swap", run.journals, "a")
    assert "total order" in judge(spark, run.journals)


@pytest.mark.netns
def test_a_group_that_cannot_recover_fails_with_what_is_wrong(namespaces, tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.runner.SETTLE_S", 2.0)
    monkeypatch.setattr("chaos.runner.CALM_S", 60.0)  # it is not calm before both know of the split
    endless = Scenario("endless", (Step(0.2, "split", ("a",), ("b",), seconds=0.8),), members=2)
    monkeypatch.setattr("chaos.runner.Network.heal", lambda self, pairs: None)
    with pytest.raises(Failed, match=r"one view on every live member, with none blocked .*: not within .* s; a in"):
        Run(endless, tmp_path).run()


def test_a_seed_draws_the_same_scenario_each_time_and_every_kind_of_fault_is_drawn():
    assert draw(5) == draw(5) != draw(6)
    drawn = [draw(seed) for seed in range(40)]
    steps = [step for one in drawn for step in one.steps]
    assert {step.what for step in steps} == {"loss", "cut", "split", "kill", "stop", "leave", "start"}
    assert {step.percent for step in steps if step.what == "loss"} == {1, 5, 20}
    assert {one.order for one in drawn} == {*ORDERS, *NEWER}
    assert {value for one in drawn for value in one.settings.values()} == {"token-ring", "gossip", True}
    assert len({one.name for one in DIRECTED}) == len(DIRECTED)
