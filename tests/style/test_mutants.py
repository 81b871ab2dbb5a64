"""The table of breaks and its page: all apply, and a test or seed that catches each is known. ``make mutants`` runs
them."""

import os
import py_compile
import signal
from pathlib import Path

import pytest
from mutants import __main__ as tool
from mutants import page, parts
from mutants.breaks import BREAKS, Break
from mutants.tree import Copy, NoVerdict, python


def test_the_text_that_each_break_replaces_occurs_once():
    assert [(each.name, why) for each in BREAKS if (why := tool.stale(each))] == []


def test_the_page_has_a_row_for_each_break_and_no_other_and_something_catches_each():
    known = page.read()
    assert sorted(known) == sorted(each.name for each in BREAKS)
    assert [name for name, found in known.items() if not found] == []


def test_each_test_that_the_page_names_exists():
    named = {page.command(found) for found in page.read().values()}
    tests = [name.partition("[")[0].split("::") for name in named if "::" in name]
    missing = [test for test in tests if f"def {test[-1]}(" not in (tool.ROOT / test[0]).read_text(encoding="utf-8")]
    assert len(tests) > 200 and missing == []


@pytest.mark.long
def test_each_parameter_of_a_test_that_the_page_names_exists():
    named = {page.command(found) for found in page.read().values()}
    named = {name for name in named if "[" in name}
    files = sorted({name.partition("::")[0] for name in named})
    _, told = python(tool.ROOT, dict(os.environ), *tool.PYTEST, "--collect-only", "-n0", *files, cpu_s=100)
    assert len(named) > 100 and sorted(named - set(told.splitlines())) == []


def test_three_of_four_breaks_are_in_reach_of_simulated_runs():
    """As the page says."""
    simulated = parts.simulated()
    assert sum(parts.is_simulated(each, simulated) for each in BREAKS) / len(BREAKS) == pytest.approx(0.75, abs=0.03)


def test_ten_tenths_are_all_breaks_and_each_is_run_on_another_day(monkeypatch, capsys):
    monkeypatch.setattr(tool, "Copy", lambda folder: None)
    tried = []
    monkeypatch.setattr(tool, "verdict", lambda copy, each, seeds, known: tried.append(each.name) or known)
    for day in range(20_000, 20_010):
        monkeypatch.setattr(tool.sys, "argv", ["mutants", "--tenth", str(day)])
        assert tool.main() == 0
    assert sorted(tried) == sorted(each.name for each in BREAKS)


class Said:
    """In place of a copy of the tree: the output of the commands that run there, in turn."""

    def __init__(self, *said):
        self.said = list(said)

    def run(self, *command, cpu_s):
        return self.said.pop(0)


LOGGED = "ERROR    seqcast.journal:writer.py:394 no space\n"
"""pytest's part of the log, too."""
FAILED = (1, f"{LOGGED}FAILED tests/unit/test_x.py::test_y[a b] - assert 1 == 2\n1 failed in 0.1s")
PASSED = (0, "1 passed in 0.1s")
NAMED = "tests/unit/test_x.py"
TWENTY = range(1, 21)


def test_a_test_that_fails_again_and_only_with_the_break_catches_it(monkeypatch):
    monkeypatch.setattr(tool, "fails_anyway", lambda *command: False)
    on_sockets = 1, FAILED[1].replace("unit", "sockets")
    assert tool.by_tests(Said(FAILED), NAMED) == "`tests/unit/test_x.py::test_y[a b]`"
    assert tool.by_tests(Said(on_sockets, on_sockets), NAMED) == "`tests/sockets/test_x.py::test_y[a b]`"
    assert tool.by_tests(Said(on_sockets, PASSED), NAMED) == ""
    monkeypatch.setattr(tool, "fails_anyway", lambda *command: True)
    assert tool.by_tests(Said(FAILED), NAMED) == ""


@pytest.mark.parametrize(
    ("status", "output"),
    [
        (1, "E   ImportError: cannot import name 'x'"),
        (1, "NameError: name 'x' is not defined"),
        (2, "ERROR collecting tests/unit/test_x.py"),
        (4, "ERROR: not found: tests/unit/test_x.py"),
        (5, "no tests ran"),
    ],
)
def test_broken_programs_and_missing_tests_catch_nothing(status, output):
    with pytest.raises(NoVerdict):
        tool.by_tests(Said((status, output)), NAMED)


def test_the_first_seed_that_fails_only_with_the_break_catches_it(monkeypatch):
    monkeypatch.setattr(tool, "fails_anyway", lambda *command: "3" in command)
    line = "FAILED: {}; replay: seqcast sim --seed {} --members 3 --order fifo"
    wrong, raised = line.format("delivered twice", 4), line.format("an exception", 5)
    plain, storm = Break("x", ()), Break("x", (), family="storm")
    assert tool.by_seeds(Said((1, line.format("late", 3)), (0, "")), plain, TWENTY) == ""
    said = f"{line.format('late', 3)}\n{wrong}"
    assert tool.by_seeds(Said((0, ""), (1, said)), storm, TWENTY) == "`sim --seed 4 --family storm`: delivered twice"
    assert tool.by_seeds(Said((1, f"AssertionError: no\n{raised}")), plain, TWENTY).endswith("AssertionError: no")
    assert tool.by_seeds(Said((-signal.SIGSEGV, "")), plain, TWENTY) == "`sim --seeds 1..10`: killed by SIGSEGV"
    with pytest.raises(NoVerdict, match="status 2"):
        tool.by_seeds(Said((2, "no such family")), plain, TWENTY)


def test_the_test_that_caught_a_break_is_run_first_and_others_if_that_fails(monkeypatch):
    monkeypatch.setattr(tool, "fails_anyway", lambda *command: False)
    row = "`tests/unit/test_x.py::test_y[a b]`"
    assert tool.again(Said(FAILED), row) == row
    assert tool.again(Said(PASSED), row) == ""
    assert tool.again(Said((4, "ERROR: not found")), row) == ""
    row = "`sim --seed 4 --family storm`: lost"
    assert tool.again(Said((1, "FAILED: lost; replay: seqcast sim --seed 4")), row) == row
    assert tool.again(Said((-signal.SIGSEGV, "")), row) == row
    for status in (0, 2, 70):  # of the last two nothing is known yet
        assert tool.again(Said((status, "")), row) == ""


@pytest.mark.parametrize(("row", "status"), [("`tests/unit/test_x.py::test_z`", 1), ("`sim --seed 4`: lost", 0)])
def test_a_test_that_no_longer_catches_its_break_on_the_page_is_told_and_ends_in_1(row, status, monkeypatch, capsys):
    each = BREAKS[3]
    monkeypatch.setattr(tool.sys, "argv", ["mutants", "--tenth", "13", "--match", each.name])
    monkeypatch.setattr(tool, "Copy", lambda folder: None)
    monkeypatch.setattr(tool, "verdict", lambda *given: FAILED[1].split(" - ")[0].replace("FAILED ", "`") + "`")
    monkeypatch.setattr(page, "read", lambda: {each.name: row})
    assert tool.main() == status
    assert f"MOVED   {each.name}: no longer caught by {page.command(row)}" in capsys.readouterr().out


def test_bytecode_of_a_file_does_not_outlast_a_break_of_the_same_second_and_size(tmp_path):
    copy = object.__new__(Copy)  # without a copy of the tree
    copy.folder, copy._changed = tmp_path, set()
    source = tmp_path / "x.py"
    source.write_text("rule = 1\n")
    made = Path(py_compile.compile(str(source)))
    assert made.exists()
    copy._write("x.py", "rule = 2\n")
    assert not made.exists() and source.read_text() == "rule = 2\n"


def test_a_break_in_a_part_that_no_simulated_run_executes_stands_unseen(monkeypatch, capsys):
    monkeypatch.setattr(tool, "Copy", lambda folder: None)
    monkeypatch.setattr(tool, "verdict", lambda copy, each, seeds, known: f"`sim --seed {seeds[0]}`: total order: no")
    places = ("native/io/wake.c", "src/seqcast/spark/source.py", "native/order/grant.c", "src/seqcast/core/log.py")
    breaks = [Break(place, ((place, "a", "b"),)) for place in places]
    assert tool.power(breaks, 1, tool.seeds_of("101..160")) == 0
    assert "2 of 4 breaks, of which 2 are in parts" in (said := capsys.readouterr().out) and "101 to 160" in said
    assert tool.seeds_of("50") == range(1, 51)
