"""The effect on senders when the sequencer is killed under full load: ``python bench/failover.py`` (about 2 minutes).

    python bench/failover.py --orders records grant --rounds 10 --into failover.json

Four members, each its own process on loopback, send arrays of 1 KB messages without a pause, and receive everything,
including their own messages. Then the sequencer gets SIGKILL (in orders without one: the coordinator). Times are
CLOCK_MONOTONIC, one clock for all processes, from before the signal:

    detection  until the member that closes the view suspects the killed one
    stall      the longest ``send_batch`` of a survivor that had not returned before the kill, and that began before
               this survivor was delivered the first message of the next view; of one that began before the kill, the
               part after the kill, as full load makes sends take milliseconds without any failure
    before     the longest one in the half second before the kill, and
    after      the longest one that began in the half second after that delivery: the time that credit and the scheduler
               take anyway, with four, or three, busy processes on few cores

The bench also counts the survivors' messages that were lost, came twice or out of their sender's order; checks that all
survivors delivered the same in each view (with a total order, in one sequence); and counts messages that *moved*: their
``send_batch`` had returned before the kill, but they were delivered in the next view. With "sequencer" and "total-1999"
messages that the sequencer had not stamped move (docs/protocol.md); with all other orders none may.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import logging
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import table

import seqcast
from seqcast.core.orders import resolve
from seqcast.perf.messages import BatchSource
from seqcast.perf.processes import Process, RunFailed
from seqcast.perf.report import machine, shown
from seqcast.types import ORDERS

MEMBERS = 4
SIZE = 1024
LOAD_S = 0.6
"""The members send for this long before the kill, and again after the survivors have a view."""
LIMIT_S = 30.0
BESIDE_S = 0.5
"""Sends that are shown beside the stall begin or end within this time before and after it."""
STALL = (
    "the longest send of any survivor that had not returned before the kill and that began before it was delivered a "
    "message of the next view, counted from the kill"
)
"""The definition of a stall, for the page made from the figures."""
STALL_MS = 20.0
"""Target: a stall is no longer than detection and this."""
NUMBER_BITS = 48
NONE: dict[str, Any] = {"rounds": 0, "stall": STALL, "orders": {}}


def longest_sends(returns: Sequence[int], killed_ns: int, resumed_ns: int) -> dict[str, float]:
    """The longest sends of one member, ms: the stall, and the one before and after it.

    Args:
        returns: when each send returned, which is when the next began.
        killed_ns: when the other member was killed.
        resumed_ns: when this one was delivered the first message of the next view.
    """
    beside_ns = BESIDE_S * 1e9
    found = {"stall_ms": 0.0, "before_ms": 0.0, "after_ms": 0.0}
    for begin, end in itertools.pairwise(returns):
        if end <= killed_ns:
            what = "before_ms" if begin > killed_ns - beside_ns else ""
        elif begin < resumed_ns:
            what = "stall_ms"
        else:
            what = "after_ms" if begin < resumed_ns + beside_ns else ""
        if what:
            since = max(begin, killed_ns) if what == "stall_ms" else begin
            found[what] = max(found[what], (end - since) / 1e6)
    return found


# ---- one member, a process of its own -------------------------------------------------------------------------------


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


class Suspicions(logging.Handler):
    """When this member suspected another, monotonic ns."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.at_ns: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "suspects" in record.getMessage():
            self.at_ns.append(time.monotonic_ns())

    def first_after(self, killed_ns: int) -> float | None:
        """Milliseconds after the kill. On busy cores a live member may have been suspected for a moment before it."""
        return next(((at - killed_ns) / 1e6 for at in self.at_ns if at >= killed_ns), None)


class Received:
    """A member's deliveries: the last number by view and sender, and a digest of the whole sequence by view."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}
        self.wrong = 0
        self.ends: dict[int, dict[int, int]] = {}
        self.first_ns: dict[int, int] = {}  # by view: when its first message came, monotonic
        self.sequences: dict[int, Any] = {}

    def take(self, batch: seqcast.Batch) -> None:
        numbers = np.ndarray((len(batch),), np.dtype("<u8"), batch.data, 0, (SIZE,)).copy()
        tag = batch.view_tag
        self.first_ns.setdefault(tag, time.monotonic_ns())
        self.sequences.setdefault(tag, hashlib.blake2b(digest_size=8)).update(numbers.tobytes())
        senders = numbers >> np.uint64(NUMBER_BITS)
        for sender in np.unique(senders).tolist():
            mine = (numbers[senders == sender] & np.uint64((1 << NUMBER_BITS) - 1)).astype(np.int64)
            due = np.arange(len(mine)) + self.next.get(sender, 0)
            self.wrong += int(np.count_nonzero(mine != due))
            self.next[sender] = int(mine[-1]) + 1
            self.ends.setdefault(tag, {})[sender] = int(mine[-1]) + 1


class Worker:
    def __init__(self, cluster: str, number: int, order: Any, interface: str) -> None:
        self.suspicions = Suspicions()
        logger = logging.getLogger("seqcast")
        logger.setLevel(logging.INFO)
        logger.addHandler(self.suspicions)
        self.number = number
        self.group = seqcast.join(cluster, name=f"member-{number}", order=order, interface=interface)
        self.received = Received()
        self.tag = 0  # of the last view that was complete
        self.returns: list[tuple[int, int]] = []  # monotonic ns, messages sent by then
        self.stop = threading.Event()
        self.sender = threading.Thread(target=self._send, daemon=True)
        threading.Thread(target=self._receive, daemon=True).start()

    def _send(self) -> None:
        source = BatchSource(SIZE, self.number)

        def note() -> bool:
            self.returns.append((time.monotonic_ns(), source.count))
            return not self.stop.is_set()

        source.send(self.group, None, note)

    def _receive(self) -> None:
        while True:
            try:
                batch = self.group.recv_batch(timeout=0.2)
            except seqcast.SeqcastError:
                return
            if batch is not None and len(batch):
                self.received.take(batch)

    def _wait(self, what: str, done: Any) -> None:
        until = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > until:
                raise seqcast.SeqcastError(f"waited {LIMIT_S:g} s for {what}")
            time.sleep(0.005)

    def run(self) -> None:
        say("joined")
        for line in sys.stdin:
            command = json.loads(line)
            getattr(self, command.pop("do"))(**command)

    def complete(self, members: int) -> None:
        self._wait(f"a view of {members}", lambda: len(self.group.view.members) == members)
        view = self.group.view
        self.tag = view.view_id.tag
        say("complete", tag=view.view_id.tag, rank=view.rank(self.group.member.id), sequencer=view.sequencer)

    def go(self) -> None:
        self.sender.start()

    def end(self) -> None:
        self.stop.set()
        self.sender.join(LIMIT_S)
        say("sent", sent=self.returns[-1][1])

    def check(self, sent: dict[str, int], killed_ns: int) -> None:
        """Waits until everything that the survivors sent is delivered here, as far as it comes, and reports."""
        due = {int(sender): count for sender, count in sent.items()}

        def is_here() -> bool:
            return all(self.received.next.get(sender, 0) >= count for sender, count in due.items())

        try:
            self._wait("the survivors' messages", is_here)
        except seqcast.SeqcastError:
            pass  # counted as lost
        resumed_ns = self.received.first_ns.get(self.tag, sys.maxsize)
        say(
            "checked",
            **longest_sends([at for at, _ in self.returns], killed_ns, resumed_ns),
            detection_ms=self.suspicions.first_after(killed_ns),
            returned=max((count for at, count in self.returns if at <= killed_ns), default=0),
            lost=sum(max(0, count - self.received.next.get(sender, 0)) for sender, count in due.items()),
            wrong=self.received.wrong,
            ends=self.received.ends,
            sequences={tag: each.hexdigest() for tag, each in self.received.sequences.items()},
        )

    def leave(self) -> None:
        self.group.leave()
        raise SystemExit(0)


# ---- the group, as seen by the parent ------------------------------------------------------------------------------


class Member(Process):
    def __init__(self, cluster: str, number: int, order: str, interface: str) -> None:
        self.number = number
        task = json.dumps({"cluster": cluster, "number": number, "order": order, "interface": interface})
        super().__init__([sys.executable, __file__, "--worker", task], f"member {number}")

    def answer(self, event: str) -> dict[str, Any]:
        """Its next line. A worker answers or fails within its own, shorter limits."""
        return self.expect(event, 3 * LIMIT_S)


def one_round(order: str, number: int, interface: str) -> dict[str, Any]:
    """One kill.

    Raises:
        RunFailed: a member failed, or a view did not come.
    """
    members: list[Member] = []
    try:
        for rank in range(MEMBERS):
            members.append(Member(f"failover-{os.getpid()}-{order}-{number}", rank, order, interface))
            if rank == 0:
                members[0].answer("joined")
        for member in members[1:]:
            member.answer("joined")
        seen = ask(members, "complete", members=MEMBERS)
        at = next(i for i, each in enumerate(seen) if each["rank"] == max(each["sequencer"], 0))
        victim, closing = members[at], seen[0]["tag"]
        survivors = [member for member in members if member is not victim]
        for member in members:
            member.tell(do="go")
        time.sleep(LOAD_S)
        killed_ns = time.monotonic_ns()
        victim.signal(signal.SIGKILL)
        after = ask(survivors, "complete", members=MEMBERS - 1)
        time.sleep(LOAD_S)
        sent = {each.number: told["sent"] for each, told in zip(survivors, ask(survivors, "end", "sent"), strict=True)}
        told = ask(survivors, "check", "checked", sent=sent, killed_ns=killed_ns)
        acting = told[min(range(len(after)), key=lambda i: after[i]["rank"])]
        for member in survivors:
            member.tell(do="leave")
        return judge(order, survivors, told, closing, acting["detection_ms"])
    finally:
        for member in members:
            member.kill()


def ask(asked: Sequence[Member], do: str, event: str = "", **values: Any) -> list[dict[str, Any]]:
    for member in asked:
        member.tell(do=do, **values)
    return [member.answer(event or do) for member in asked]


def judge(
    order: str, survivors: Sequence[Member], told: Sequence[dict[str, Any]], closing: int, detection_ms: float | None
) -> dict[str, Any]:
    stalls = [each["stall_ms"] for each in told]
    last = "sequences" if resolve(order).total else "ends"
    moved = [
        max(0, each["returned"] - min(other["ends"].get(str(closing), {}).get(str(member.number), 0) for other in told))
        for member, each in zip(survivors, told, strict=True)
    ]
    return {
        "detection_ms": detection_ms,
        "stall_ms": max(stalls),
        "before_ms": max(each["before_ms"] for each in told),
        "after_ms": max(each["after_ms"] for each in told),
        "lost": sum(each["lost"] for each in told),
        "wrong": sum(each["wrong"] for each in told),
        "differing": sum(each[last] != told[0][last] for each in told),
        "moved": sum(moved),
    }


def measure(orders: Sequence[str], rounds: int, interface: str = "lo") -> dict[str, Any]:
    """All rounds; the orders take turns.

    Returns:
        By order, one dict for each round (``one_round``), with ``failed`` if it failed.
    """
    found: dict[str, list[dict[str, Any]]] = {order: [] for order in orders}
    for number in range(rounds):
        for order in orders:
            try:
                found[order].append(one_round(order, number, interface))
            except (RunFailed, OSError) as error:
                found[order].append({"failed": str(error)})
            print(f"failover {number + 1} of {rounds}: {order}: {found[order][-1]}", file=sys.stderr, flush=True)
    return {"rounds": rounds, "stall": STALL, "orders": found}


def held(results: dict[str, Any]) -> bool:
    """No round failed, lost, doubled or reordered a message, or moved one against its order's promise."""
    return not any(
        each.get("failed") or each["lost"] or each["wrong"] or each["differing"] or (each["moved"] and not moves(order))
        for order, rounds in results["orders"].items()
        for each in rounds
    )


def moves(order: str) -> bool:
    """May the next view deliver messages that were not stamped?"""
    return resolve(order).resends


def that_count(rounds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kills that did not fail."""
    return [each for each in rounds if "failed" not in each and each["detection_ms"] is not None]


def within(results: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Of each order: how many kills had a stall within the target, and how many kills there were."""
    found = []
    for order, rounds in results["orders"].items():
        excess = [each["stall_ms"] - each["detection_ms"] for each in that_count(rounds)]
        found.append((order, sum(each <= STALL_MS for each in excess), len(excess)))
    return found


def section(results: dict[str, Any]) -> str:
    """The part of docs/orders.md about failover."""
    rows = []
    inside = {order: few for order, few, _ in within(results)}
    for order, rounds in results["orders"].items():
        good = that_count(rounds)
        if not good:
            continue
        detection, stall, before, after = (
            shown(statistics.median(each[what] for each in good)) if what in good[0] else ""
            for what in ("detection_ms", "stall_ms", "before_ms", "after_ms")
        )
        excess = [each["stall_ms"] - each["detection_ms"] for each in good]
        broken = sum(each["lost"] + each["wrong"] + each["differing"] for each in good)
        row = [f"`{order}`", detection, stall, shown(statistics.median(excess)), f"{inside[order]} of {len(good)}"]
        rows.append([*row, before, after, str(broken), moved_text(order, good)])
    head = [
        "order", "detection, ms", "longest stall, ms", "stall beyond detection, ms",
        f"within {STALL_MS:g} ms", "longest send before, ms", "and after, ms", "lost, doubled, reordered", "moved",
    ]  # fmt: skip
    return "\n\n".join(
        [
            "## When the sequencer is killed",
            f"{MEMBERS} members send messages of {SIZE:,} B without a pause; the sequencer (in `fifo` and `causal` the "
            f"coordinator) gets SIGKILL. Medians of {results['rounds']} kills; a stall is {results['stall']} "
            f"(bench/failover.py). For comparison: the longest sends in the {BESIDE_S:g} s before and after, without a "
            "failover. *Moved*: messages whose send had returned before the kill and that were delivered in the next "
            "view, which happens only in orders in which messages travel by way of the sequencer.",
            table(head, rows),
        ]
    )


def moved_text(order: str, rounds: Sequence[dict[str, Any]]) -> str:
    moved = [each["moved"] for each in rounds]
    return f"{shown(statistics.median(moved))} in a kill" if moves(order) else str(sum(moved))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", nargs="+", default=[order for order in ORDERS if order != "total"])
    parser.add_argument("--rounds", type=int, default=5, help="kills in each order (5)")
    parser.add_argument("--interface", default="lo")
    parser.add_argument("--into", type=Path, help="file of the results; by default they are only shown")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(**json.loads(options.worker)).run()
        return 0
    results = {"machine": machine(), **measure(options.orders, options.rounds, options.interface)}
    if options.into:
        options.into.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    print(section(results))
    return 0 if held(results) else 1


if __name__ == "__main__":
    sys.exit(main())
