"""Breaks the protocol on purpose, in a copy, and lists the test or seed that catches each break.

PYTHONPATH=tests:tests/helpers python -m mutants [OPTIONS]

python -m mutants                  all breaks, 40 minutes on two cores; docs/mutants.md has the result
python -m mutants --new            those that docs/mutants.md says nothing of: an interrupted run goes on
python -m mutants --match lease    those whose name has this word
python -m mutants --tenth 3        every tenth one, from the third on; docs/mutants.md is not written. CI takes each day
                                   the next tenth

python -m mutants --power          breaks that default seeds find by themselves (--seeds 50: only the first;
                                   --seeds 101..160: those; --sample 60: of so many breaks, drawn from all)

For each break only the test or seed named in docs/mutants.md is run. If that no longer catches the break, this is said
(MOVED), and others are run, to name one that does; the exit status is 1 then if the page names a test. The findings of
a seed may change with any frame.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import queue
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import page, parts
from mutants.breaks import BREAKS, Break
from mutants.tree import ROOT, Copy, NoVerdict, python
from seqcast.sim.command import span

STEP = 10
FAMILY_SEEDS = 40
SEEDS_CPU_S = 200
"""Ten seeds take a few seconds of processor time; a run that takes this much has no end."""
TESTS_CPU_S = 300

UNFIT = re.compile(r"^(?:E +)?((?:Import|ModuleNotFound|Syntax|Indentation|Name|UnboundLocal)Error\b.*)", re.M)
"""Python's message for a break that is not a program: no rule is broken, so a failure then catches nothing."""
EXCEPTION = re.compile(r"^(\w+(?:Error|Exception)\b.*)\nFAILED: an exception; ", re.M)
ALWAYS_THE_SAME = ("tests/unit/", "tests/protocol/", "tests/sim/")
"""Others run once more: on a busy machine a test may fail, or see nothing of a break, for want of processor time."""
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-o", "timeout=0")


def stale(each: Break) -> str:
    """Why a break no longer applies, or ""."""
    for file, old, _ in each.edits:
        found = (ROOT / file).read_text(encoding="utf-8").count(old)
        if found != 1:
            return f"{file} has its text {found} times: {old.splitlines()[0]}"
    return ""


@functools.cache
def fails_anyway(*command: str) -> bool:
    """Does this test fail without any break, too? Then no break counts as caught."""
    status, _ = python(ROOT, dict(os.environ, PYTHONPATH=str(ROOT / "src")), *command, cpu_s=TESTS_CPU_S)
    if status:
        print(f"FAILS WITHOUT A BREAK: {' '.join(command)}", flush=True)
    return status != 0


def run(copy: Copy, *command: str, cpu_s: float) -> tuple[int, str]:
    """(exit status, output) in the copy.

    Raises:
        NoVerdict: the broken code is not a program, or did not get the processor.
    """
    status, output = copy.run(*command, cpu_s=cpu_s)
    if status and (unfit := UNFIT.search(output)):
        raise NoVerdict(unfit[1])
    return status, output


def killed(status: int) -> str:
    """The verdict on a break of a process that was killed by a signal."""
    return "no end" if -status == signal.SIGXCPU else f"killed by {signal.Signals(-status).name}"


def by_tests(copy: Copy, *tests: str) -> str:
    """Which of these tests catches the break, or "". Long ones run only if they are named themselves."""
    some = () if any("::" in test for test in tests) else ("-m", "not long")
    status, output = run(copy, *PYTEST, *some, *tests, cpu_s=TESTS_CPU_S)
    if status < 0:
        return f"`{' '.join(tests)}`: {killed(status)}"
    if status > 1:
        raise NoVerdict(f"pytest ends with status {status}: {output.strip()[-200:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.M) if status else None
    if not failed:
        return ""
    test = failed[1]
    if not test.startswith(ALWAYS_THE_SAME) and not run(copy, *PYTEST, test, cpu_s=TESTS_CPU_S)[0]:
        return ""
    return "" if fails_anyway(*PYTEST, test) else f"`{test}`"


def by_seeds(copy: Copy, each: Break, seeds: range) -> str:
    """The seed that catches the break, and the violation; or ""."""
    steps: list[tuple[range, tuple[str, ...]]] = [(seeds[at : at + STEP], ()) for at in range(0, len(seeds), STEP)]
    if each.drawn:
        steps[:0] = [(range(at, at + STEP), each.drawn) for at in range(1, FAMILY_SEEDS + 1, STEP)]
    for some, drawn in steps:
        told = f"{some[0]}..{some[-1]}"
        status, output = run(copy, "-m", "seqcast", "sim", "--seeds", told, *drawn, cpu_s=SEEDS_CPU_S)
        if status < 0:
            return f"`sim {' '.join(('--seeds', told, *drawn))}`: {killed(status)}"
        for words, seed in re.findall(r"^FAILED: (.*?); replay: seqcast sim --seed (\d+)", output, re.M):
            options = ("--seed", seed, *drawn)
            if not fails_anyway("-m", "seqcast", "sim", *options):
                raised = EXCEPTION.search(output)
                what = raised[1] if raised and words == "an exception" else words.partition(":")[0]
                return f"`sim {' '.join(options)}`: {what}"
        if status and "\nFAILED: " not in f"\n{output}":
            raise NoVerdict(f"the simulator ends with status {status}: {output.strip()[-200:]}")
    return ""


def again(copy: Copy, known: str) -> str:
    """The test or seed that caught the break last time, by its row of docs/mutants.md, if the same one still does; else
    ""."""
    named = page.command(known)
    if named.startswith("sim "):
        status, output = run(copy, "-m", "seqcast", *named.split(), cpu_s=SEEDS_CPU_S)
        caught = status < 0 or (status and "\nFAILED: " in f"\n{output}")  # else by_seeds says the reason
        return known if caught and not fails_anyway("-m", "seqcast", *named.split()) else ""
    tests = [named] if "::" in named else named.split()
    try:
        return by_tests(copy, *tests) or ("" if named.startswith(ALWAYS_THE_SAME) else by_tests(copy, *tests))
    except NoVerdict:
        return ""  # perhaps there is no such test any more; else the search says so, too


def verdict(copy: Copy, each: Break, seeds: range, known: str = "") -> str:
    """The test or seed that catches the break, or ""; ``known``: see ``again``.

    Raises:
        NoVerdict: nothing can be said of the break.
    """
    copy.edit(each)
    try:
        if each.native:
            copy.build()
        found = again(copy, known) if known else ""
        return found or (by_tests(copy, *each.tests.split()) if each.tests else "") or by_seeds(copy, each, seeds)
    finally:
        copy.mend()


def power(chosen: Sequence[Break], jobs: int, seeds: range) -> int:
    """Prints how many of these breaks fall to default seeds, and by which kind of violation. Those in parts that no
    simulated run executes stand."""
    kinds: Counter[str] = Counter()
    unsaid, simulated = 0, parts.simulated()
    inside = [each for each in chosen if parts.is_simulated(each, simulated)]
    alone = [dataclasses.replace(each, family="", options="", tests="") for each in inside]
    for each, found, error, _ in beside(alone, jobs, seeds, {}):
        unsaid += bool(error)
        kinds[found.rpartition("`: ")[2].partition(":")[0]] += bool(found)
        print(f"{'UNSAID' if error else 'falls ' if found else 'STANDS'}  {each.name}: {error or found}", flush=True)
    falls, words = kinds.total(), ", ".join(f"{count} by {kind}" for kind, count in kinds.most_common() if count)
    print(
        f"{falls} of {len(chosen) - unsaid} breaks, of which {len(inside) - unsaid} are in parts that a simulated run "
        f"executes, fall to the seeds {seeds[0]} to {seeds[-1]}: {words or 'none'}"
    )
    if unsaid:
        print(f"nothing can be said of {unsaid} others, with which the simulator does not run")
    return 0


def beside(
    chosen: Sequence[Break], jobs: int, seeds: range, rows: dict[str, str]
) -> Iterator[tuple[Break, str, str, float]]:
    """The verdict on each break, or why there is none, and the seconds; this many are tried beside each other,
    each in a copy of its own."""
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def one(each: Break) -> tuple[Break, str, str, float]:
        copy, begin, found, error = copies.get(), time.monotonic(), "", ""
        try:
            found = verdict(copy, each, seeds, rows.get(each.name, ""))
        except NoVerdict as why:
            error = str(why)[-300:]
        finally:
            copies.put(copy)
        return each, found, error, time.monotonic() - begin

    with tempfile.TemporaryDirectory(prefix="seqcast-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            copies.put(Copy(Path(folder, str(number))))
        yield from pool.map(one, chosen)


def seeds_of(text: str) -> range:
    """Argument type: a number of seeds, or a span of them."""
    return span(text if ".." in text else f"1..{text}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tenth", type=int, metavar="N", help="every tenth one, from the Nth on")
    parser.add_argument("--power", action="store_true", help="run default seeds alone; docs/mutants.md stays as it is")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="with --power: this many, always the same")
    parser.add_argument("--new", action="store_true", help="those that docs/mutants.md says nothing of")
    parser.add_argument("--match", default="", metavar="WORDS", help="those whose name has these, or of several by |")
    parser.add_argument(
        "--seeds", type=seeds_of, default="200", metavar="N", help="the default seeds 1 to N (200), or A..B"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many at a time (all cores)")
    parser.add_argument("--list", action="store_true", help="list them, and whether they still apply")
    arguments = parser.parse_args()
    of: Sequence[Break] = BREAKS
    if arguments.sample:
        of = random.Random("sample").sample(BREAKS, min(arguments.sample, len(BREAKS)))
    chosen = [
        each
        for each in of[slice(None) if arguments.tenth is None else slice(arguments.tenth % 10, None, 10)]
        if any(words in each.name for words in arguments.match.split("|"))
    ]
    # All of them, so that CI notices: a break that no longer applies tests nothing.
    old = {each.name: words for each in (chosen if arguments.match else BREAKS) if (words := stale(each))}
    for name, words in old.items():
        print(f"STALE   {name}: {words}")
    if arguments.sample and not arguments.power:
        parser.error("--sample N is a sample for --power: give both, or neither")
    if arguments.list or old:
        tried = len(page.read().keys() & {each.name for each in BREAKS})
        print(f"{len(BREAKS)} breaks, {len(old)} of which no longer apply; docs/mutants.md has {tried}")
        return 1 if old else 0
    if arguments.power:
        return power(sorted(chosen, key=lambda each: each.native), arguments.jobs, arguments.seeds)
    rows = page.read()
    chosen = sorted((each for each in chosen if not (arguments.new and rows.get(each.name))), key=lambda e: e.native)
    missed = moved = errors = 0
    for each, found, error, took_s in beside(chosen, arguments.jobs, arguments.seeds, rows):
        known = rows.get(each.name, "")
        words = "ERROR " if error else "caught" if found else "MISSED"
        errors += bool(error)
        missed += not (found or error)
        if not error and known and page.command(found) != page.command(known):
            print(f"MOVED   {each.name}: no longer caught by {page.command(known)}")
            moved += not page.command(known).startswith("sim ")
        if not error and arguments.tenth is None:
            page.note(each.name, found)
        print(f"{words}  {each.name} ({took_s:.0f} s): {error or found or 'by nothing'}", flush=True)
    print(
        f"{missed} breaks caught by nothing, {moved} no longer by the test that docs/mutants.md names, "
        f"{errors} of which nothing can be said"
    )
    return 1 if missed or moved or errors else 0


if __name__ == "__main__":
    sys.exit(main())
