"""Does ``seqcast perf --hosts`` measure only the network? ``python bench/hosts.py --pairs 11``; needs root.

Each pair is two runs between the same network namespaces that follow each other, the first of them in turn: one as
``--path veth`` starts the members, and one as ``--hosts a,b --via "ip netns exec {host}"`` does, which knows nothing of
this machine. The ratio within a pair counts, so both meet the same load. Prints one line of JSON: medians of the rates,
messages/s at the slowest receiver, and of the ratios, with the quartiles of these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from seqcast.perf import hosts
from seqcast.perf.paths import PathError, open_path
from seqcast.perf.processes import addressed
from seqcast.perf.report import machine
from seqcast.perf.runs import Load, group_throughput


def measure(members: int, size: int, pairs: int, seconds: float) -> dict[str, object]:
    """One size of messages."""
    load = Load(members, 1, size, "fifo", seconds)
    rates: dict[str, list[float]] = {"hosts": [], "veth": []}
    with open_path("veth", members) as veth:
        names = [place.namespace for place in veth.places]
        apart = hosts.places(names, "ip netns exec {host}", sys.executable, members, veth.places[0].interface)
        paths = [("hosts", replace(veth, name="hosts", places=addressed(apart))), ("veth", veth)]
        for number in range(pairs):
            for name, path in paths if number % 2 == 0 else paths[::-1]:
                run = group_throughput(path, load, f"hosts-{size}-{number}-{name}")
                rates[name].append(float(run["delivered_msgs_per_s"]))
    ratios = [apart / veth for apart, veth in zip(rates["hosts"], rates["veth"], strict=True)]
    quartiles: Sequence[float] = statistics.quantiles(ratios, n=4) if pairs > 1 else ratios * 3
    return {
        "members": members,
        "size": size,
        "msgs_per_s": round(statistics.median(rates["hosts"])),
        "veth_msgs_per_s": round(statistics.median(rates["veth"])),
        "ratio": round(statistics.median(ratios), 3),
        "quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
    }


def main() -> int:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2, help="processes, one of which sends (%(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=(64, 1024), help="bytes of a message (%(default)s)")
    parser.add_argument("--pairs", type=int, default=11, help="of runs for each size (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of each run (%(default)g)")
    wanted = parser.parse_args()
    try:
        rows = [measure(wanted.members, size, wanted.pairs, wanted.seconds) for size in wanted.sizes]
    except PathError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"between_hosts": rows, "pairs": wanted.pairs, "machine": machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
