"""The cost of boards: ``python bench/board_bench.py --pairs 11``.

Each pair is two runs on loopback that follow each other, one with ``board=True`` on all members and one with
``board=False``, the first of them in turn: the ratio within a pair counts, so both meet the same load. Between these
pairs are as many of two runs with ``board=False``, whose ratios show how far runs of the same differ. Prints one line
of JSON: medians of the rates, messages/s at the slowest receiver, and of the ratios, with the quartiles of these.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Sequence

from seqcast.board import place
from seqcast.perf.paths import Path, open_path
from seqcast.perf.report import machine
from seqcast.perf.runs import Load, group_throughput

SIZES = (64, 1024)
"""Bytes of a message: many messages in a packet, and one of the usual size."""


def measure(path: Path, members: int, size: int, pairs: int, seconds: float) -> dict[str, object]:
    """One size of messages."""

    def rate(board: bool) -> float:
        load = Load(members, 1, size, "fifo", seconds, settings={"board": board})
        return float(group_throughput(path, load, f"board-{size}-{next(number)}")["delivered_msgs_per_s"])

    number, compared, same = itertools.count(), list[tuple[float, float]](), list[tuple[float, float]]()
    for pair in range(pairs):
        first = rate(pair % 2 == 0)
        second = rate(pair % 2 == 1)
        compared.append((first, second) if pair % 2 == 0 else (second, first))
        same.append((rate(False), rate(False)))
    ratios = [one / other for one, other in compared]
    return {
        "members": members,
        "size": size,
        "msgs_per_s": round(statistics.median(one for one, _ in compared)),
        "without_msgs_per_s": round(statistics.median(other for _, other in compared)),
        "ratio": round(statistics.median(ratios), 3),
        "quartiles": quartiles(ratios),
        "same_ratio": round(statistics.median(one / other for one, other in same), 3),
        "same_quartiles": quartiles([one / other for one, other in same]),
    }


def quartiles(ratios: Sequence[float]) -> list[float]:
    """The lower and the upper one."""
    found = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else list(ratios) * 3
    return [round(found[0], 3), round(found[2], 3)]


def main() -> int:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4, help="processes, one of which sends (%(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a message (%(default)s)")
    parser.add_argument("--pairs", type=int, default=11, help="of runs for each size (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of each run (%(default)g)")
    wanted = parser.parse_args()
    try:
        place.make("board_bench", "none", 1).remove()
    except OSError as error:
        print(f"no board can be made here, so there is nothing to compare: {error}", file=sys.stderr)
        return 2
    with open_path("loopback", wanted.members) as path:
        rows = [measure(path, wanted.members, size, wanted.pairs, wanted.seconds) for size in wanted.sizes]
    print(json.dumps({"board": rows, "pairs": wanted.pairs, "machine": machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
