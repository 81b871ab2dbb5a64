"""False suspicions under full load: ``python bench/suspicion.py [--preset fast] [--transport unicast] [--seconds 60]``.

Four members on this machine, each a process, on loopback; all send messages of 1 KB as fast as they can and take their
deliveries. Nobody crashes, so each view after the first of all four comes from a false suspicion. Prints one line of
JSON, with the engine's count of doubts and of suspicions that other members withdrew; exit status 1 if a view changed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import secrets
import sys
import threading
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

import seqcast
from seqcast.perf.report import machine

MEMBERS = 4
FORM_S = 30.0
BURST = [bytes(1024)] * 64


def member(
    cluster: str, preset: str, transport: str, seconds: float, results: Queue[dict[str, Any]], over: Event
) -> None:
    network: dict[str, Any] = {"interface": "lo", "transport": transport}
    if transport == "unicast":
        network["seeds"] = ["127.0.0.1"]
    with seqcast.join(cluster, preset=preset, order="fifo", **network) as group:
        begin = time.monotonic()
        while len(group.view.members) < MEMBERS:
            if time.monotonic() - begin > FORM_S:
                raise SystemExit(f"not {MEMBERS} members within {FORM_S:g} s")
            time.sleep(0.01)
        first, end = group.view, time.monotonic() + seconds

        def send() -> None:
            while time.monotonic() < end:
                group.send_many(BURST)

        sender = threading.Thread(target=send)
        sender.start()
        messages, views = 0, set()
        while sender.is_alive():
            messages += len(group.recv_batch(timeout=0.1) or ())
            views.add(group.view.view_id)
        counters = group.counters()
        changes = sorted(view.counter for view in views - {first.view_id})
        counted = {key: counters[key] for key in ("doubts", "suspicions", "late")}
        results.put({"messages": messages, "changes": changes, **counted})
        while not over.wait(0.0):  # the others' last messages need credit, and our leaving must not be their last view
            group.recv_batch(timeout=0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="lan", choices=("lan", "fast", "wan"), help="times (%(default)s)")
    parser.add_argument("--transport", default="auto", choices=("auto", "multicast", "unicast"), help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="of load (%(default)s)")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results: Queue[dict[str, Any]] = context.Queue()
    over = context.Event()
    cluster = f"suspicion-{secrets.token_hex(4)}"
    given = (cluster, arguments.preset, arguments.transport, arguments.seconds)
    processes = [context.Process(target=member, args=(*given, results, over)) for _ in range(MEMBERS)]
    for process in processes:
        process.start()
    rows = [results.get(timeout=FORM_S + 2 * arguments.seconds + 30) for _ in processes]
    over.set()
    for process in processes:
        process.join()
    row = {
        "preset": arguments.preset,
        "transport": arguments.transport,
        "seconds": arguments.seconds,
        "members": MEMBERS,
        "delivered_msgs_per_s": round(min(each["messages"] for each in rows) / arguments.seconds),
        "view_changes": max(len(each["changes"]) for each in rows),
        "suspicions": sum(each["suspicions"] for each in rows),
        "doubts": sum(each["doubts"] for each in rows),
        "late": sum(each["late"] for each in rows),
        "machine": machine(),
    }
    print(json.dumps(row))
    return 1 if row["view_changes"] else 0


if __name__ == "__main__":
    sys.exit(main())
