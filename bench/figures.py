"""Measures every figure of docs/figures.md: ``make bench-figures``.

    python bench/figures.py                    # writes docs/figures.jsonl, a line a command; about 25 minutes
    python bench/figures.py --only latency     # measures these anew, and keeps the other lines
    python docs/render.py                      # makes the tables of docs/figures.md from it

Each line holds the command that printed it, and docs/figures.md shows these commands below the tables, so that a reader
can run any of them alone. Measurements are kept even if a later command fails. Needs pyzmq and PySyncObj (``pip install
'seqcast[bench]'``), cmake and a C++ compiler for Aeron, and root for the segmented path and for loss.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures.jsonl"
PERF = "seqcast perf --pairs 5 --seconds 0.5"
PING = "seqcast perf --latency --pairs 5 --rounds 5000 --path loopback"
SEGMENTED = "--path veth-segmented"
LOOPBACK = "--path loopback"
COMMANDS: dict[str, list[str]] = {
    "plain": ["python bench/plain_bench.py --pairs 5 --seconds 0.5"],
    "work": ["python bench/plain_bench.py --kinds plain at-once --work-us 4 --size 64 --pairs 5 --seconds 0.5"],
    "members": [
        f"{PERF} --kind {kind} --members {members} {LOOPBACK}" for kind in ("plain", "aio") for members in (2, 8, 16)
    ],
    "batches": [
        *[
            f"{PERF} --order {order} --size {size} {LOOPBACK}"
            for order in ("total", "fifo")
            for size in (64, 1024, 8192, 65536)
        ],
        f"{PERF} --order total --size 1024 {SEGMENTED}",
        *[f"{PERF} --order fifo --size {size} {SEGMENTED}" for size in (64, 1024, 8192, 65536)],
        *[f"{PERF} --order fifo --size 1024 --members {members} {LOOPBACK}" for members in (2, 8, 16)],
    ],
    "aeron": ["python bench/aeron_bench.py --pairs 5 --seconds 1"],
    "loss": [
        *[f"{PERF} --order {order} --size 1024 --loss 1 {LOOPBACK}" for order in ("total", "sequencer")],
        f"{PERF} --order total --size 1024 --loss 1 {SEGMENTED}",
    ],
    "journal": [f"{PERF} --order total --size 1024 --journal {payload} {LOOPBACK}" for payload in ("hash", "full")],
    "latency": [
        f"{PING} --order {order} --wait {wait} --cores {cores}"
        for order in ("total", "fifo")
        for wait, cores in (("blocking", "different"), ("spinning", "different"), ("blocking", "same"))
    ]
    + [f"{PING} --kind aio --order fifo --wait blocking --cores different"],
    "keyed": [
        "python bench/keyed.py batches plain 'a hop' --pairs 5 --seconds 0.5",
        "python bench/keyed.py changes --pairs 41",
    ],
    "membership": [
        "python bench/membership.py --rounds 4",
        "python bench/membership.py join kill --transport auto unicast --rounds 8",
    ],
    "election": [f"python bench/election.py --rounds 3{transport}" for transport in ("", " --transport unicast")],
    "calls": ["python bench/calls.py --rounds 5"],
    "state": [f"python bench/state_bench.py --load {load} --runs 3" for load in (0, 100)],
    "shared_link": [
        "python bench/shared_link.py --seconds 8",
        "python bench/shared_link.py --seconds 8 --round-trip-ms 50 --only alone lossy shared",
    ],
    "board": ["python bench/board_bench.py --pairs 25 --seconds 0.5"],
    "transports": ["python bench/transports.py --pairs 7 --seconds 0.5"],
    "between_hosts": ["python bench/hosts.py --pairs 11 --seconds 0.5"],
    "forged": ["python bench/forged.py --pairs 4"],
    "slow": ["python bench/slow.py --pairs 9"],
}
"""Measurements by name. Each command prints one JSON object in its last line."""
JSON_OPTION = ("seqcast", "bench/plain_bench.py", "bench/aeron_bench.py")
"""Programs that print JSON only if asked to."""


def measure(command: str) -> str | None:
    """Runs one command and returns the line that it printed, with the command; None if it failed."""
    arguments = shlex.split(command)
    run = [sys.executable, "-m", *arguments] if arguments[0] == "seqcast" else [sys.executable, *arguments[1:]]
    if any(name in JSON_OPTION for name in arguments):
        run.append("--json")
    with tempfile.TemporaryDirectory() as compiled:  # each of hundreds of processes would compile the modules again
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(run, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return None
    return json.dumps(json.loads(lines[-1]) | {"command": command})


def name_of(line: str) -> str:
    """The command of ``COMMANDS`` that measured a line."""
    run = json.loads(line)
    same = ("plain", "work", "aeron", "keyed", "membership", "election", "calls", "journal", "shared_link", "board",
            "transports", "between_hosts", "forged", "slow")  # fmt: skip
    keys = {key: key for key in same}
    keys |= {"latency_us": "latency", "loss_percent": "loss", "load_mb_per_s": "state"}
    found = [name for key, name in keys.items() if key in run]
    return found[0] if found else "batches" if run.get("kind", "batches") == "batches" else "members"


def main() -> int:
    """Measures; the lines of a command that fails stay as they were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="default: all")
    wanted = parser.parse_args().only
    old = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
    lines = {name: [line for line in old if name_of(line) == name] for name in COMMANDS}
    failed = []
    begun = time.monotonic()
    for name in wanted:
        measured = [measure(command) for command in COMMANDS[name]]
        failed += [command for command, line in zip(COMMANDS[name], measured, strict=True) if line is None]
        if None not in measured:
            lines[name] = [line for line in measured if line is not None]
        FIGURES.write_text("".join(f"{line}\n" for each in lines.values() for line in each), encoding="utf-8")
        print(f"{name}: {time.monotonic() - begun:.0f} s since the start", file=sys.stderr, flush=True)
    for command in failed:
        print(f"failed, its table stays as it was: {command}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
