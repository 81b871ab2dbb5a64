"""docs/mutants.md: each break, and the test or seed that caught the break at the last try."""

from __future__ import annotations

import re

from mutants.breaks import BREAKS
from mutants.tree import ROOT

PAGE = ROOT / "docs" / "mutants.md"
HEAD = """# Deliberate breaks, and the test or seed that catches each

Made by `make mutants`: one break after the other is made in a copy of the tree, and the first test that fails, or the
first seed of `seqcast sim` with the guarantee that it violates, is named here. Next time that is run first; if it no
longer catches the break, `make mutants` says so. Breaks that *nothing* catches are holes in the tests. A new break gets
its row from `make mutants ARGS="--new"`.

`make mutants ARGS="--power"` runs the default seeds alone, and counts the breaks that fall to them; with `--sample 40`
of so many breaks, drawn from all. A simulated run executes the kernels of the engine and the modules that
`seqcast.sim` imports (`tests/mutants/parts.py`): three of four breaks change one of these, and the others (of
sockets, blocks, journals, the command line and Spark) cannot fall. Before the seeds from 101 on drew each family, and
before a quiet group was judged so strictly, 3 of 20 breaks, drawn from all, fell to the 60 seeds 1 to 60 (15 %, with
95 % confidence between 5 and 36 %). Since then 13 of 36, drawn from those in reach, fall to the 60 seeds that CI runs
(`--power --seeds 101..160`): 36 %, with 95 % confidence between 22 and 52 %, which is 27 % of all breaks. The goal is
60 % with 200 seeds; more than 60 were tried neither before nor after. They fall by liveness (4), deadline (3), lost
messages (2), delay, order, observers and changes. Of the 23 that survive, 3 need an attacker or a faulty member; the
effect of 6 is fairness, memory, the use of the processor or a secret in memory, which no verdict of the simulator
sees; 2 are repaired in time by other means; and 12 need frames that come late in a way that few seeds draw, two events
at once, or a setting that few seeds have (for 4 of these at most eleven of the 60 seeds execute the changed lines).
The checks of a group at rest that came last, by the state of its machines, counters and frames, and the merge of a
quiet group, did not raise this share. A step in which timers run before their time, added after that, finds a
forgotten timer that no test had found. Tried, and left out: two of five seeds draw a kind of control frame, of which
every second one comes up to 1.5 s late. None of nine breaks about answers to an earlier attempt, pause or merge fell to
those of the seeds 101 to 400 that draw its kind (1 to 12 seeds). Next would be a draw of the same question twice
within such a time. Most rows name a test, as tests are tried first.

| fault | caught by |
|---|---|
"""
NOTHING = "*nothing*"


def read() -> dict[str, str]:
    """By name of a break: the test or seed that caught the break; "": nothing."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", text, re.M)
    return {name: "" if found == NOTHING else found for name, found in rows[1:]}


def command(found: str) -> str:
    """The test, or the run of the simulator, that a row names."""
    named = re.match(r"`(.+?)`", found)
    return named[1] if named else ""


def note(name: str, found: str) -> None:
    """Writes the page, with a row for each break that was tried, in the order of breaks.py."""
    known = read() | {name: found}
    rows = [f"| {each.name} | {_cell(known[each.name])} |\n" for each in BREAKS if each.name in known]
    PAGE.write_text(HEAD + "".join(rows), encoding="utf-8")


def _cell(found: str) -> str:
    return " ".join(found.replace("|", "/").split())[:200] or NOTHING
