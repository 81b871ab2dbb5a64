"""Breaks the protocol on purpose, in a copy, and lists what catches each break.

python -m mutants                  all breaks (PYTHONPATH=tests; two to three quarters of an hour)
python -m mutants --quick          those that CI runs: a minute or two
python -m mutants --match lease    those whose name has this word
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants.breaks import BREAKS, Break

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "native", "tests", "setup.py", "pyproject.toml", "README.md", "docs", "Makefile")
STEP = 10
FAMILY_SEEDS = 40
HANGS_S = 600
"""Ten seeds take a few seconds; a run that takes this long has no end."""


UNFIT = re.compile(r"^(?:E +)?((?:Import|ModuleNotFound|Syntax|Indentation|Name|UnboundLocal)Error\b.*)", re.M)
"""What Python says of a break that is no program: it breaks no rule, so whatever fails then catches nothing."""


class Unfit(Exception):
    """The break is no program."""


class Copy:
    """A copy of the tree in which one break after the other is made, and mended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
            else:
                shutil.copy(source, folder / name)
        path = f"{folder / 'src'}:{folder / 'tests'}:{folder / 'tests' / 'helpers'}"
        self.environment = dict(os.environ, PYTHONPATH=path, SEQCAST_EXTENSIONS="engine")

    def run(self, *command: str, seconds: float) -> tuple[int, str]:
        """(exit status, output); a command that takes too long has failed, too."""
        try:
            done = subprocess.run(
                [sys.executable, *command], cwd=self.folder, env=self.environment, timeout=seconds, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"FAILED: no end within {seconds:.0f} s"
        if done.returncode and (unfit := UNFIT.search(done.stdout)):
            raise Unfit(unfit[1])
        return done.returncode, done.stdout

    def build(self) -> str:
        """What went wrong, or ""."""
        status, output = self.run("setup.py", "-q", "build_ext", "--inplace", seconds=600)
        return output if status else ""

    def edit(self, each: Break, back: bool = False) -> None:
        for file, old, new in each.edits[:: -1 if back else 1]:
            path = self.folder / file
            if back:
                shutil.copy(ROOT / file, path)
            else:
                path.write_text(path.read_text().replace(old, new))


def stale(each: Break) -> str:
    """Why a break no longer applies, or ""."""
    for file, old, _ in each.edits:
        found = (ROOT / file).read_text().count(old)
        if found != 1:
            return f"{file} has its text {found} times: {old.splitlines()[0]}"
    return ""


def fails_anyway(failure: str) -> bool:
    """Does the run, or the test, of which this is the line fail without any break, too? Then it catches nothing."""
    _, run, options = failure.partition("replay: seqcast sim ")
    test = failure.removeprefix("FAILED ").partition(" - ")[0]
    if not run and "::" not in test:
        return False
    command = ["seqcast", "sim", *options.split()] if run else ["pytest", "-q", "-p", "no:cacheprovider", test]
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, timeout=HANGS_S
    )
    if done.returncode:
        print(f"FAILS WITHOUT A BREAK: {failure}", flush=True)
    return done.returncode != 0


def caught(copy: Copy, each: Break, seeds: int, seconds: float) -> str:
    """What catches it: a seed, a test, or "" if nothing does.

    Raises:
        Unfit: the broken code cannot be run.
    """
    if each.tests:  # a test is quicker than seeds
        pytest = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
        status, output = copy.run(*pytest, *each.tests.split(), seconds=300)
        if status == 1:
            failed = next((line for line in output.splitlines() if line.startswith("FAILED")), output[-200:])
            if not fails_anyway(failed):
                return failed
    end = time.monotonic() + seconds
    steps = [(first, ()) for first in range(1, seeds + 1, STEP)]
    if each.family:
        steps[:0] = [(first, ("--family", each.family)) for first in range(1, FAMILY_SEEDS + 1, STEP)]
    for first, family in steps:
        span = ("--seeds", f"{first}..{first + STEP - 1}")
        status, output = copy.run("-m", "seqcast", "sim", *span, *family, seconds=HANGS_S)
        failed = [line for line in output.splitlines() if line.startswith("FAILED")]
        found = next((line for line in failed if not fails_anyway(line)), "")
        if found or (status and not failed):
            return found.replace("FAILED: ", "").replace("replay: seqcast sim --", "") or (
                output.strip()[-200:] or f"ended with status {status}"
            )
        if time.monotonic() >= end:
            break
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="those that CI runs")
    parser.add_argument("--match", default="", metavar="WORDS", help="those whose name has these, or of several by |")
    parser.add_argument("--seeds", type=int, default=200, metavar="N", help="the default seeds 1 to N (200)")
    parser.add_argument("--seconds", type=float, default=180, metavar="S", help="for the seeds of one break (180)")
    parser.add_argument("--list", action="store_true", help="list them, and whether they still apply")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in BREAKS
        if any(words in each.name for words in arguments.match.split("|")) and (each.quick or not arguments.quick)
    ]
    # All of them, so that CI notices: a break that no longer applies tests nothing.
    old = {each.name: words for each in (chosen if arguments.match else BREAKS) if (words := stale(each))}
    for name, words in old.items():
        print(f"STALE   {name}: {words}")
    if arguments.list or old:
        print(f"{len(BREAKS)} breaks, {len(old)} of which no longer apply")
        return 1 if old else 0
    missed = unfit = 0
    with tempfile.TemporaryDirectory(prefix="seqcast-mutants-") as folder:
        copy = Copy(Path(folder))
        for each in sorted(chosen, key=lambda each: each.native):
            begin = time.monotonic()
            copy.edit(each)
            found = trouble = ""
            try:
                trouble = copy.build() if each.native else ""
                found = trouble or caught(copy, each, arguments.seeds, arguments.seconds)
            except Unfit as error:
                trouble = str(error)
            unfit += bool(trouble)
            missed += not (trouble or found)
            verdict = "ERROR " if trouble else "caught" if found else "MISSED"
            took = time.monotonic() - begin
            print(f"{verdict}  {each.name} ({took:.0f} s): {trouble[-300:] or found or 'by nothing'}", flush=True)
            copy.edit(each, back=True)
    print(f"{len(chosen)} breaks, {missed} caught by nothing, {unfit} that cannot be run")
    return 1 if missed or unfit else 0


if __name__ == "__main__":
    sys.exit(main())
