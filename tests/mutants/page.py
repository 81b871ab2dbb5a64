"""docs/mutants.md: each break, and the test or seed that caught it when it was last tried."""

from __future__ import annotations

import re

from mutants.breaks import BREAKS
from mutants.tree import ROOT

PAGE = ROOT / "docs" / "mutants.md"
HEAD = """# Breaks of the protocol, and what catches each

Made by `make mutants`: one break after the other is made in a copy of the tree, and the first test that fails, or the
first seed of `seqcast sim` with the guarantee that it violates, is named here. Next time that is run first; if it no
longer catches the break, `make mutants` says so. Breaks that *nothing* catches are holes in the tests. A new break gets
its row from `make mutants ARGS="--new"`.

`make mutants ARGS="--power"` runs the default seeds alone, and counts what falls to them; with `--sample 60` of so many
breaks, drawn from all. Of the first 20 that are drawn, 3 fall to the seeds 1 to 60. Most of the others are in parts
that default seeds do not run, as files, ciphers, the driver's threads and limits of the wire: most rows name a test.

| what is wrong | caught by |
|---|---|
"""
NOTHING = "*nothing*"


def read() -> dict[str, str]:
    """By name of a break: the test or seed that caught it; "": nothing."""
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
