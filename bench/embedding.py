"""A hop between two programs in C, beside one in plain C without a protocol: ``python bench/embedding.py --pairs 15``.

Two members of a group, each a process on a core of its own, play ping-pong over loopback, spinning, in the order
"fifo": in C by the table of functions of ``seqcast/embed.h``, and in Python by ``send`` and ``recv``. A hop is half a
round trip. Between these runs the same by bare sockets in C. Other load on the machine changes all of them, so each
pair of neighbouring runs gives a ratio, of which the median counts; runs are short, so that the neighbours meet the
same load. Prints one line of JSON: medians of the 50th percentiles, µs, and of the ratios, with the quartiles of these.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

from seqcast.perf.arguments import usable_cores
from seqcast.perf.paths import open_path
from seqcast.perf.processes import RunFailed
from seqcast.perf.report import machine
from seqcast.perf.runs import Latency, bare_latency, group_latency

KINDS = ("c", "plain")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15, help="of runs, of each kind (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3000, help="round trips of a run (%(default)s)")
    parser.add_argument("--size", type=int, default=64, metavar="BYTES", help="of a message (%(default)s)")
    options = parser.parse_args()
    cores = usable_cores()
    if len(cores) < 2:
        print("this machine has one core, and two sides spin", file=sys.stderr)
        return 2
    hops: dict[str, list[float]] = {kind: [] for kind in ("bare", *KINDS)}
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with open_path("loopback", 2) as path:
        for pair in range(options.pairs):
            for kind in KINDS:
                what = Latency(options.size, "fifo", options.rounds, True, kind, (cores[0], cores[1]))
                try:
                    before = bare_latency(path, what)["p50"]
                    hop = group_latency(path, what, f"embedding-{os.getpid()}-{pair}-{kind}")["p50"]
                except RunFailed as error:  # such as a false suspicion, if members get no core for long
                    print(f"pair {pair + 1}, {kind}: does not count: {error}", file=sys.stderr, flush=True)
                    continue
                hops["bare"].append(before)
                hops[kind].append(hop)
                ratios[kind].append(hop / before)
                print(f"pair {pair + 1}, {kind}: {hop:.2f} µs, bare {before:.2f} µs", file=sys.stderr, flush=True)
    figures = {
        "machine": machine(),
        "hop_us": {kind: round(statistics.median(each), 2) for kind, each in hops.items()},
        "ratio": {kind: round(statistics.median(each), 3) for kind, each in ratios.items()},
        "quartiles": {kind: [round(at, 3) for at in statistics.quantiles(each, n=4)] for kind, each in ratios.items()},
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
