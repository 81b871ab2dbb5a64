"""Small worlds, explored to the end: whatever the order in which control frames arrive, whichever one is lost, and
whoever crashes meanwhile, members agree, and are in one view in the end."""

import os
import re
import subprocess
import sys

import pytest
from project import ROOT


def explore(*args):
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests/helpers")])
    run = subprocess.run(
        [sys.executable, "-m", "explore", *args],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    print(run.stdout, run.stderr)
    return run


def states(run):
    return int(re.search(r": ([\d,]+) states", run.stdout)[1].replace(",", ""))


@pytest.mark.parametrize(
    ("scene", "losses", "crashes", "least"),
    [
        ("crash-coordinator", 1, 0, 30),
        ("join-to-1", 0, 0, 30),
        pytest.param("crash", 1, 1, 100, marks=pytest.mark.long),
        pytest.param("crash-coordinator", 1, 1, 100, marks=pytest.mark.long),
        pytest.param("join-to-1", 0, 1, 50, marks=pytest.mark.long),
        pytest.param("join-to-1", 1, 1, 500, marks=pytest.mark.long),
        pytest.param("crash-of-2", 1, 1, 1, marks=pytest.mark.long),
        pytest.param("leave", 0, 0, 500, marks=pytest.mark.long),
        pytest.param("leave-coordinator", 0, 0, 500, marks=pytest.mark.long),
        pytest.param("pause", 0, 0, 300, marks=pytest.mark.long),
    ],
)
def test_every_order_of_control_frames_keeps_the_guarantees(scene, losses, crashes, least):
    run = explore(scene, "--losses", str(losses), "--crashes", str(crashes))
    assert run.returncode == 0, run.stdout
    assert "; complete; " in run.stdout
    assert states(run) >= least


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("scene", "losses", "crashes", "depth", "least"),
    [
        ("merge-2-1", 0, 0, 6, 300),
        ("merge-1-1", 1, 1, 6, 200),
        ("join", 1, 1, 3, 900),
        ("leave", 1, 1, 3, 600),
        ("leave-coordinator", 1, 1, 3, 600),
        ("pause", 1, 1, 3, 800),
        ("merge-2-1", 1, 1, 3, 1800),
    ],
)
def test_every_order_of_the_first_control_frames_keeps_the_guarantees(scene, losses, crashes, depth, least):
    run = explore(scene, "--losses", str(losses), "--crashes", str(crashes), "--depth", str(depth))
    assert run.returncode == 0, run.stdout
    assert f"; complete to a depth of {depth}; " in run.stdout
    assert states(run) >= least


def test_a_core_that_levels_no_messages_is_found_wrong_and_its_run_can_be_replayed():
    found = explore("crash", "--literal", "no_reconciliation")
    assert found.returncode == 1
    assert "which it has not" in found.stdout
    choices = re.search(r"--replay '(.*)'", found.stdout)[1]
    again = explore("crash", "--literal", "no_reconciliation", "--replay", choices)
    assert again.returncode == 1
    assert "which it has not" in again.stdout
    assert explore("crash", "--replay", choices).returncode == 0


def test_a_search_that_meets_its_limit_says_that_it_is_not_complete():
    run = explore("join", "--states", "20")
    assert run.returncode == 0
    assert "not complete" in run.stdout
    assert states(run) == 20


def test_a_scene_that_does_not_exist_is_refused():
    run = explore("earthquake")
    assert run.returncode == 2
    assert "no such scene: earthquake; there are crash" in run.stderr
