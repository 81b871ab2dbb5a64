"""The cost of a key: ``python bench/keyed.py [--pairs 5] [--seconds 0.5]``.

Each case is measured with a key and without, in turn, by ``seqcast perf``, each time in a group of its own. Where there
is no root for the segmented path, its cases are left out. Prints one line of JSON; on standard error, a line a pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from seqcast.config import keys
from seqcast.perf.report import machine


class Case(NamedTuple):
    """One comparison.

    Args:
        what: for readers. ``options``: of perf, with and without a key.
        target: at least this much of the rate without a key; of a latency, at most so many µs more.
        more: options with a key.
    """

    what: str
    options: str
    target: float
    more: str = ""

    @property
    def latency(self) -> bool:
        """Compared by difference, not by ratio."""
        return "--latency" in self.options


CASES = (
    Case("batches", "--size 1024 --path loopback", 0.60),
    Case("batches", "--size 64 --path loopback", 0.85),
    Case("batches", "--size 1024 --path veth-segmented", 0.85),
    Case("batches", "--size 64 --path veth-segmented", 0.85),
    Case("plain loops", "--kind plain --size 1024 --path loopback", 0.9),
    Case("batches, XChaCha20", "--size 1024 --path loopback", 0.4, "--cipher xchacha20-poly1305"),
    Case("batches, unicast to 8", "--size 1024 --members 9 --transport unicast --path loopback", 0.9),
    Case("a hop, p50", "--latency --rounds 5000 --order fifo --path loopback", 1.0),
)


def perf(case: Case, seconds: float, key: str) -> dict[str, Any] | None:
    """What one run printed; None: its path is not available here."""
    options = case.options.split() + (["--key", key, *case.more.split()] if key else [])
    options += [] if case.latency else ["--seconds", str(seconds)]
    command = [sys.executable, "-m", "seqcast", "perf", "--pairs", "1", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    lines = done.stdout.splitlines()
    found: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
    if found is None or "unavailable" in found:
        return None
    assert not done.returncode, f"{' '.join(command)}: exit status {done.returncode}"
    return found


def measured(case: Case, pairs: int, seconds: float, key: str) -> dict[str, Any] | None:
    """A row; None: the path is not available here."""
    value: Callable[[dict[str, Any]], float]
    value = (lambda run: run["latency_us"]["p50"]) if case.latency else (lambda run: run["delivered_msgs_per_s"])
    of_plain, of_keyed, run = [], [], None
    for number in range(pairs):
        plain, run = (perf(case, seconds, each) for each in ("", key))
        if plain is None or run is None:
            return None
        of_plain.append(value(plain))
        of_keyed.append(value(run))
        print(f"{case.what}, pair {number + 1}: {of_plain[-1]:,.1f}, {of_keyed[-1]:,.1f}", file=sys.stderr, flush=True)
    assert run is not None
    both = list(zip(of_keyed, of_plain, strict=True))
    change = [keyed - plain if case.latency else keyed / plain for keyed, plain in both]
    return {
        "what": case.what,
        "size": run["size"],
        "path": run["path"],
        "without": statistics.median(of_plain),
        "with": statistics.median(of_keyed),
        "unit": "us" if case.latency else "messages",
        "change": round(statistics.median(change), 3),
        "spread": [round(min(change), 3), round(max(change), 3)],
        "target": case.target,
    }


def main() -> None:
    """Measures all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="of each case (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run (0.5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys.make(key := str(Path(folder) / "key"))
        rows = [measured(case, arguments.pairs, arguments.seconds, key) for case in CASES]
    print(json.dumps({"keyed": [row for row in rows if row], "pairs": arguments.pairs, "machine": machine()}))


if __name__ == "__main__":
    main()
