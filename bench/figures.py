"""Measures the figures in README.md's tables: ``make bench-figures``.

    python bench/figures.py                    # writes docs/figures.jsonl, a line a command; a quarter of an hour
    python bench/figures.py --only latency     # measures these anew, and keeps the other lines
    make figures                               # makes the tables from it

Each command is in README.md beside its table, so that a reader can run any of them alone. Needs pyzmq (``pip
install 'seqcast[bench]'``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures.jsonl"
PERF = ["-m", "seqcast", "perf", "--json", "--pairs", "5"]
LOOPBACK = ["--path", "loopback"]
COMMANDS: dict[str, list[list[str]]] = {
    "plain": [["bench/plain_bench.py", "--json", "--pairs", "5", "--seconds", "1"]],
    "members": [
        [*PERF, "--kind", "plain", "--members", members, "--seconds", "1", *LOOPBACK]
        for members in ("2", "4", "8", "16")
    ],
    "batches": [
        [*PERF, "--order", order, "--size", size, "--seconds", "1"]
        for order in ("total", "fifo")
        for size in ("64", "1024", "8192", "65536")
    ],
    "loss": [
        [*PERF, "--order", order, "--size", size, "--seconds", "1", "--loss", "1", *LOOPBACK]
        for order in ("total", "fifo")
        for size in ("64", "1024")
    ],
    "journal": [
        [*PERF, "--order", "total", "--size", size, "--seconds", "1", "--journal", "hash", *LOOPBACK]
        for size in ("64", "1024", "8192")
    ],
    "latency": [
        [*PERF, "--latency", "--order", order, "--wait", wait, "--cores", cores, *LOOPBACK]
        for order in ("total", "fifo")
        for wait, cores in (("blocking", "different"), ("spinning", "different"), ("blocking", "same"))
    ],
    "membership": [["bench/membership.py", "--rounds", "10"]],
    "election": [["bench/election.py", "--rounds", "20"]],
}
"""Measurements by name: arguments of Python. Each prints one JSON object."""


def measure(command: list[str]) -> str:
    """Runs one command and returns the line that it printed."""
    run = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    lines = run.stdout.strip().splitlines()
    if run.returncode or not lines:
        sys.exit(f"python {' '.join(command)}: status {run.returncode}; docs/figures.jsonl stays as it was")
    return json.dumps(json.loads(lines[-1]))


def name_of(line: str) -> str:
    """The command of ``COMMANDS`` that measured a line."""
    run = json.loads(line)
    keys = {key: key for key in ("plain", "membership", "election", "journal")}
    keys |= {"latency_us": "latency", "loss_percent": "loss"}
    found = [name for key, name in keys.items() if key in run]
    return found[0] if found else "batches" if run.get("kind", "batches") == "batches" else "members"


def main() -> int:
    """Measures, and writes the lines when all have been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="default: all")
    wanted = parser.parse_args().only
    old = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
    lines: list[str] = []
    for name, commands in COMMANDS.items():
        if name in wanted:
            lines += [measure(command) for command in commands]
        else:
            lines += [line for line in old if name_of(line) == name]
    FIGURES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
