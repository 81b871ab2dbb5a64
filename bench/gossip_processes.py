"""A whole group as processes of this machine: ``python bench/gossip_processes.py [--members 64]`` (root, ip, nft).

Each member is a process in a network namespace of its own, on one bridge, and nftables drop a part of the datagrams
that arrive. The same load runs over the default reliability, over reliability by gossip, and over a crowd, one after
the other: five members (all of a smaller group) multicast 20 messages of 1000 bytes a second together. Prints one
line of JSON for each: messages delivered, the time, and a member's packets sent and received and its CPU while the
senders sent. Loss begins when the group has formed. Members start in groups, so that those that have joined can run
beside those that start.

Each member hears the heartbeats of all others, so their number grows with the square of the members. Two processors
cannot take those of 64 members at the default interval: from 16 members on, ``heartbeat_s`` grows with the group, for
both kinds of reliability alike. Members of a large group also wait longer for each other, as they share the processors
during a view change.

``--write`` replaces docs/gossip_processes.json and the table in docs/gossip.md. 64 members take about three minutes of
two processors.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import seqcast
from seqcast.perf.paths import Place, bridged, dropping
from seqcast.perf.processes import Process, RunFailed
from seqcast.perf.report import machine

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "gossip.md", ROOT / "docs" / "gossip_processes.json"
BEGIN, END = "<!-- made by bench/gossip_processes.py --write -->\n", "<!-- end -->\n"
KINDS = ("nak", "gossip", "crowd")
SENDERS, PER_S, BYTES = 5, 20, 1000
FORM_S, DRAIN_S = 300.0, 30.0
STARTING = 4
"""Processes that start at the same time: more only slow each other down, and those that already run."""


def heartbeat_s(members: int) -> float:
    """Long enough that a member hears no more heartbeats than in a group of 16 with the default interval."""
    return round(0.05 * max(members / 16, 1), 3)


def patience(members: int) -> dict[str, float]:
    """The settings for how long members wait for each other."""
    waits = {"discovery_s": 2.0, "lease_s": 10.0, "flush_deadline_s": 30.0} if members > 16 else {}
    return {"heartbeat_s": heartbeat_s(members), **waits}


# ---- a member


class Joined:
    """A group or a crowd, with the calls that the measurement needs."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.members, self.crowd = task["members"], task["kind"] == "crowd"
        if self.crowd:
            self.group: Any = seqcast.join_crowd(
                task["cluster"], interface=task["address"], average_s=task["average_s"], lost_s=DRAIN_S
            )
        else:
            settings: dict[str, Any] = {"gossip_average_s": task["average_s"]} if task["kind"] == "gossip" else {}
            settings |= patience(self.members)
            self.group = seqcast.join(
                task["cluster"],
                name=task["name"],
                interface="eth0",
                order="fifo",
                reliability=task["kind"],
                join_timeout_s=FORM_S,
                **settings,
            )

    def formed(self) -> bool:
        if self.crowd:
            return bool(self.group.counters()["known"] >= min(self.members - 1, 16))
        return len(self.group.view.members) == self.members

    def payloads(self, timeout_s: float) -> list[bytes]:
        if not self.crowd:
            batch = self.group.recv_batch(timeout_s)
            return [] if batch is None else batch.tolist()
        event = self.group.recv(timeout_s)
        return [event.payload] if isinstance(event, seqcast.CrowdMessage) else []


def tell(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def traffic() -> list[int]:
    """Bytes and datagrams that eth0 sent and received."""
    line = next(each for each in Path("/proc/self/net/dev").read_text().splitlines() if "eth0:" in each)
    fields = line.split(":")[1].split()
    return [int(fields[at]) for at in (8, 9, 0, 1)]


def member(task: dict[str, Any]) -> None:
    joined = Joined(task)
    tell(event="joined")
    while not joined.formed():
        time.sleep(0.1)
    tell(event="formed")
    sys.stdin.readline()
    seconds, number = task["seconds"], task["number"]
    senders = min(SENDERS, task["members"])
    count = int(seconds * PER_S / senders)
    before, cpu, start = traffic(), time.process_time(), time.monotonic()
    window: list[Any] = []

    def send() -> None:
        gap = seconds / count
        for i in range(count):
            time.sleep(max(start + (i + number / senders) * gap - time.monotonic(), 0))
            joined.group.send(b"%20d%4d" % (time.monotonic_ns(), number) + bytes(BYTES - 24), timeout=FORM_S)

    def measure() -> None:
        time.sleep(max(start + seconds - time.monotonic(), 0))
        now, passed = traffic(), time.monotonic() - start
        window[:] = [(b - a) / passed for a, b in zip(before, now, strict=True)]
        window.append((time.process_time() - cpu) / passed)

    threads = [threading.Thread(target=measure)] + ([threading.Thread(target=send)] if number < senders else [])
    for each in threads:
        each.start()
    got, late_us, end = 0, [], start + seconds + DRAIN_S
    while got < senders * count and time.monotonic() < end:
        for payload in joined.payloads(0.1):
            got += 1
            if int(payload[20:24]) != number:
                late_us.append((time.monotonic_ns() - int(payload[:20])) // 1000)
    for each in threads:
        each.join()
    tell(event="done", got=got, expected=senders * count, late_us=late_us, window=window)
    sys.stdin.readline()  # the others may need this member to repair, until all are done
    os._exit(0)


# ---- the run


def start(place: Place, task: dict[str, Any]) -> Process:
    command = [*place.prefix, sys.executable, __file__, "--member", json.dumps(task)]
    return Process(command, task["name"], env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def expect(child: Process, event: str, until: float) -> dict[str, Any]:
    return child.expect(event, max(until - time.monotonic(), 0.1))


def run(kind: str, places: tuple[Place, ...], arguments: argparse.Namespace) -> dict[str, Any]:
    """One row."""
    task = {
        "kind": kind,
        "members": len(places),
        "seconds": arguments.seconds,
        "average_s": arguments.average,
        "cluster": f"processes-{secrets.token_hex(4)}",
    }
    with ExitStack() as stack:
        children: list[Process] = []
        begin = time.monotonic()
        for number, place in enumerate(places):
            if number >= STARTING:
                expect(children[number - STARTING], "joined", begin + FORM_S)
            child = start(place, task | {"name": f"m{number}", "number": number, "address": place.address})
            stack.callback(child.kill)
            children.append(child)
        for child in children[-STARTING:]:
            expect(child, "joined", begin + FORM_S)
        for child in children:
            expect(child, "formed", begin + FORM_S)
        formed = time.monotonic() - begin
        if arguments.loss:
            stack.enter_context(dropping(places, arguments.loss))
        for child in children:
            child.tell(do="go")
        end = time.monotonic() + arguments.seconds + 2 * DRAIN_S
        rows = [expect(child, "done", end) for child in children]
        for child in children:
            child.tell(do="go")
    late = sorted(each for row in rows for each in row["late_us"])
    sent, sent_n, received, received_n, cpu = (
        sum(row["window"][at] for row in rows) / len(rows) for at in range(len(rows[0]["window"]))
    )
    return {
        "reliability": kind,
        "members": len(places),
        "loss_percent": arguments.loss,
        "average_s": arguments.average if kind != "nak" else None,
        "heartbeat_s": heartbeat_s(len(places)) if kind != "crowd" else None,
        "seconds": arguments.seconds,
        "expected": sum(row["expected"] for row in rows),
        "delivered": sum(row["got"] for row in rows),
        "p50_ms": round(late[len(late) // 2] / 1000, 2),
        "p99_ms": round(late[len(late) * 99 // 100] / 1000, 2),
        "max_ms": round(late[-1] / 1000, 2),
        "sent_bytes_per_s": round(sent),
        "sent_datagrams_per_s": round(sent_n, 1),
        "received_bytes_per_s": round(received),
        "received_datagrams_per_s": round(received_n, 1),
        "cpu_ms_per_s": round(1000 * cpu, 2),
        "formed_s": round(formed, 1),
        "machine": machine(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The text for docs/gossip.md."""
    base = next(row for row in rows if row["reliability"] == "nak")
    first = rows[0]
    command = f"python bench/gossip_processes.py --members {first['members']} --loss {first['loss_percent']:g}"
    text = (
        f"`{command} --seconds {first['seconds']:g} --write`: {first['members']} processes, {first['machine']}, "
        f"{first['loss_percent']:g} % of the datagrams lost at each receiver, one gossip in "
        f"{max(row['average_s'] or 0 for row in rows):g} s, one heartbeat in {base['heartbeat_s']:g} s. Per member and "
        "second in the seconds of sending; in brackets: compared with the default reliability in the same run."
    )
    heads = (
        "reliability",
        "delivered",
        "p50, p99, max (ms)",
        "sent (datagrams, bytes)",
        "received (bytes)",
        "CPU (ms)",
    )
    out = [textwrap.fill(text, 120, break_on_hyphens=False), "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        ratio = {key: row[key] / base[key] for key in ("sent_bytes_per_s", "received_bytes_per_s", "cpu_ms_per_s")}
        out.append(
            f"| {row['reliability']} | {row['delivered']:,} of {row['expected']:,} "
            f"| {row['p50_ms']:g}, {row['p99_ms']:g}, {row['max_ms']:g} "
            f"| {row['sent_datagrams_per_s']:g}, {row['sent_bytes_per_s']:,} ({ratio['sent_bytes_per_s']:.2f}) "
            f"| {row['received_bytes_per_s']:,} ({ratio['received_bytes_per_s']:.2f}) "
            f"| {row['cpu_ms_per_s']:g} ({ratio['cpu_ms_per_s']:.2f}) |"
        )
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=64, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--loss", type=float, default=1.0, metavar="P", help="percent of datagrams (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of sending (%(default)s)")
    parser.add_argument("--average", type=float, default=0.1, metavar="S", help="between two gossips (%(default)s)")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="what to run (%(default)s)")
    parser.add_argument("--write", action="store_true", help="replace docs/gossip_processes.json and the table")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        member(json.loads(arguments.member))
        return 0
    rows = []
    with bridged(arguments.members) as places:
        for kind in arguments.kinds:
            rows.append(run(kind, places, arguments))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.write:
        DATA.write_text(json.dumps(rows, separators=(",", ":")) + "\n", encoding="utf-8")
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(head + BEGIN + table(rows) + END + rest.split(END)[1], encoding="utf-8")
    return 0 if all(row["delivered"] == row["expected"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunFailed as error:
        sys.exit(f"bench: {error}")
