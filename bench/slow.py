"""The cost of a receiver that stops: ``python bench/slow.py --pairs 5``.

Four members on this machine, each a process, on loopback. One sends messages of 1 KB as fast as it can, two take all
that comes, and the fourth stops taking after a while. The rate is that of a member that takes all. Prints one line of
JSON, with ratios to the same seconds of a run of the three alone and of one of four that all take, between which these
runs are: for slow="exclude" the rate in the second that begins ``slow_s`` + 1 s after the stop, to the mean; for "skip"
the lowest rate of any second that begins ``slow_s`` + 0.5 s after the stop or later, to the lowest one. (By both
settings senders wait for the member for ``slow_s``, once.) A member that skips still receives all packets: where it
shares cores with the others, it costs them as much as one that takes all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import statistics
import sys
import threading
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

import seqcast
from seqcast.perf.report import machine

FORM_S, RUN_S, AFTER_S, SLOW_S, PART_S = 40.0, 1.5, 5.0, 1.0, 0.25
BURST = [bytes(1024)] * 64
SLOWS = ("exclude", "skip")


def member(cluster: str, role: str, slow: str, members: int, results: Queue[Any], begin: Event, over: Event) -> None:
    settings = {"order": "fifo", "slow": slow, "slow_s": SLOW_S, "suspect_s": 10.0, "discovery_s": 1.0}
    with seqcast.join(cluster, name=role, interface="lo", deliver_own=False, **settings) as group:
        until = time.monotonic() + FORM_S
        while len(group.view.members) < members and time.monotonic() < until:
            time.sleep(0.01)
        results.put((role, "ready"))
        begin.wait()
        began = time.monotonic()
        if role == "sender":
            threading.Thread(target=send, args=(group, over), daemon=True).start()
        stop = began + (RUN_S if role == "stops" else RUN_S + AFTER_S)
        counts = take(group, began, stop)
        if role == "takes0":
            results.put((role, counts))
        over.wait()


def send(group: seqcast.Group, over: Event) -> None:
    try:
        while not over.is_set():
            group.send_many(BURST)
    except seqcast.SeqcastError:
        pass


def take(group: seqcast.Group, began: float, stop: float) -> list[int]:
    """Messages taken in each ``PART_S``."""
    counts = [0] * int((RUN_S + AFTER_S) / PART_S + 1)
    while (now := time.monotonic()) < stop:
        counts[int((now - began) / PART_S)] += len(group.recv_batch(timeout=0.05) or ())
    return counts


def run(slow: str, others: list[str]) -> list[int]:
    """The counts of a member that takes all, beside the sender and the members with these roles."""
    context = multiprocessing.get_context("spawn")
    results: Queue[Any] = context.Queue()
    begin, over = context.Event(), context.Event()
    roles = ["sender", "takes0", *others]
    cluster = f"slow-{secrets.token_hex(4)}"
    made = [
        context.Process(target=member, args=(cluster, role, slow, len(roles), results, begin, over), daemon=True)
        for role in roles
    ]
    for process in made:
        process.start()
    for _ in roles:
        results.get(timeout=2 * FORM_S)
    begin.set()
    counts: list[int] = results.get(timeout=FORM_S)[1]
    over.set()
    for process in made:
        process.join(FORM_S)
    return counts


def ratio(slow: str, counts: list[int], without: list[int]) -> float:
    """Of two runs."""
    parts, stop = int(1 / PART_S), int(RUN_S / PART_S)
    late, same = (
        [sum(each[i : i + parts]) for i in range(stop + int(SLOW_S / PART_S), len(each) - parts)]
        for each in (counts, without)
    )
    if slow == "exclude":
        return late[parts] / (statistics.mean(without[stop:-1]) * parts)
    return min(late[parts // 2 :]) / min(same[parts // 2 :])


def main() -> int:
    """Measures runs with a stop and without, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="runs with a stop and without, of each kind (%(default)s)")
    wanted = parser.parse_args()
    kept: dict[str, dict[str, list[float]]] = {slow: {"three": [], "four": []} for slow in SLOWS}
    for _ in range(wanted.pairs):
        three = run("block", ["takes1"])
        stopped = {slow: run(slow, ["takes1", "stops"]) for slow in SLOWS}
        four = run("block", ["takes1", "takes2"])
        for slow, counts in stopped.items():
            kept[slow]["three"].append(round(ratio(slow, counts, three), 3))
            kept[slow]["four"].append(round(ratio(slow, counts, four), 3))
            print(f"{slow}: {kept[slow]['three'][-1]}, {kept[slow]['four'][-1]}", file=sys.stderr, flush=True)
    rows = [
        {
            "slow": slow,
            "slow_s": SLOW_S,
            "ratio": round(statistics.median(each["three"]), 3),
            "spread": [min(each["three"]), max(each["three"])],
            "all_ratio": round(statistics.median(each["four"]), 3),
            "all_spread": [min(each["four"]), max(each["four"])],
        }
        for slow, each in kept.items()
    ]
    print(json.dumps({"slow": rows, "pairs": wanted.pairs, "machine": machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
