"""The cost of reaching members by unicast, and of being ready to: ratios of throughput to multicast alone.

    python bench/transports.py --pairs 7 --seconds 0.5

Runs of one path, number of members and size of a message follow each other, one of each transport: the ratio to the
neighbouring run with transport="multicast" counts, so both meet the same load. All members hear each other, so
transport="auto" sends the same datagrams as "multicast". Beside the run by unicast there is one of a sender in plain C
that gives each packet to the kernel once for each receiver, with acks, CRC and copies. Prints one line of JSON: medians
of the rates, MB/s, and of the ratios, with the quartiles of these; and of half the round trip of a message of 64 bytes
between two of four members, µs. Needs root for the segmented path.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from seqcast.perf.paths import PathError, open_path
from seqcast.perf.runs import Latency, Load, bare_throughput, group_latency, group_throughput

TRANSPORTS = ("multicast", "auto", "unicast")
CASES = (
    ("loopback", 4, 64),
    ("loopback", 4, 1024),
    ("loopback", 4, 8192),
    ("loopback", 8, 1024),
    ("veth-segmented", 4, 1024),
    ("veth-segmented", 8, 1024),
)
"""Path, members, bytes of a message."""


def measure(path: str, members: int, size: int, pairs: int, seconds: float) -> dict[str, object]:
    """One case."""
    rates: dict[str, list[float]] = {transport: [] for transport in TRANSPORTS}
    fan_out: list[float] = []
    with open_path(path, members) as place:
        for _ in range(pairs):
            for transport, each in rates.items():
                load = Load(members, 1, size, "fifo", seconds, settings={"transport": transport})
                run = group_throughput(place, load, "transports")
                each.append(run["delivered_msgs_per_s"] * size / 1e6)
            fan_out.append(bare_throughput(place, load, limit=True, window_bytes=int(run["window_bytes"])))
    row: dict[str, object] = {"path": path, "members": members, "size": size}
    row["mb_per_s"] = {transport: round(statistics.median(each), 1) for transport, each in rates.items()}
    ratios = {
        transport: [rate / beside for rate, beside in zip(rates[transport], rates["multicast"], strict=True)]
        for transport in TRANSPORTS[1:]
    }
    ratios["of_fan_out"] = [rate / beside for rate, beside in zip(rates["unicast"], fan_out, strict=True)]
    row["ratio"] = {name: round(statistics.median(each), 3) for name, each in ratios.items()}
    quartiles = {name: statistics.quantiles(each, n=4) for name, each in ratios.items() if len(each) > 1}
    row["quartiles"] = {name: [round(at, 3) for at in each] for name, each in quartiles.items()}
    return row


def measure_latency(path: str, members: int, size: int, pairs: int, rounds: int) -> dict[str, object]:
    """Half a round trip of a message to the group by unicast, at p50, and its ratio to the neighbouring run by
    multicast."""
    p50: dict[str, list[float]] = {"multicast": [], "unicast": []}
    with open_path(path, members) as place:
        for _ in range(pairs):
            for transport, each in p50.items():
                settings = {"transport": transport}
                latency = Latency(size, "fifo", rounds, False, "plain", None, settings, members)
                each.append(group_latency(place, latency, "transports")["p50"])
    ratios = [unicast / multicast for multicast, unicast in zip(p50["multicast"], p50["unicast"], strict=True)]
    row: dict[str, object] = {
        "path": path,
        "members": members,
        "size": size,
        "ratio": round(statistics.median(ratios), 3),
    }
    row["p50_us"] = {transport: round(statistics.median(each), 1) for transport, each in p50.items()}
    row["quartiles"] = [round(at, 3) for at in statistics.quantiles(ratios, n=4)]
    return row


def main() -> int:
    """Measures all cases; one that this machine cannot run is named on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="runs of each transport (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of each run (%(default)g)")
    parser.add_argument("--rounds", type=int, default=3000, help="round trips of a run; 0: none (%(default)s)")
    parser.add_argument("--only", type=int, nargs="+", choices=range(len(CASES)), help="numbers of cases (all)")
    wanted = parser.parse_args()
    rows = []
    for number, (path, members, size) in enumerate(CASES):
        if wanted.only is None or number in wanted.only:
            try:
                rows.append(measure(path, members, size, wanted.pairs, wanted.seconds))
            except PathError as error:
                print(f"{path} with {members} members is not measured: {error}", file=sys.stderr)
                continue
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    latency = [measure_latency("loopback", 4, 64, wanted.pairs, wanted.rounds)] if wanted.rounds else []
    run = {"transports_latency": latency, "pairs": wanted.pairs, "seconds": wanted.seconds, "rounds": wanted.rounds}
    print(json.dumps({"transports": rows, **run}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
