"""Calls of a replicated state machine, beside PySyncObj: ``python bench/calls.py`` (about 2 minutes).

    python bench/calls.py --seconds 3 --rounds 5

Three replicas of a counter, each its own process on loopback: ``seqcast.replicate``, and PySyncObj, which is Raft in
Python (``pip install 'seqcast[bench]'``), both at their defaults, measured in turn:

    one        calls/s of one thread that calls and waits for the answer, and the times of these calls
    threads    calls/s of eight threads at one member
    many       of seqcast: operations/s of eight threads, each with call_many of 16
    tasks      of seqcast: calls/s of 128 tasks of asyncio
    failover   the leader is killed with SIGKILL while another member calls: from the kill until a call that began
               after it has its answer
    start      in the same runs, of seqcast: from the first suspicion of the killed leader until ``start`` of
               ``on_leader`` is called at the next one

PySyncObj's calls are made at its leader, where they are fastest, those of seqcast at a member that neither coordinates
nor orders. Of seqcast alone: an ordered message's round (``Group.deliver``, with the same settings), and reads
of eight threads, linearizable and local. In the end each counter must be the sum of all calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from failover import Suspicions

import seqcast
import seqcast.blocks
import seqcast.blocks.aio
from seqcast.blocks.replica import ACK_DELAY_S, NEEDED
from seqcast.perf.processes import Process, RunFailed
from seqcast.perf.report import machine

MEMBERS = 3
THREADS = 8
MANY = 16
TASKS = 128
LIMIT_S = 30.0
KINDS = ("ordered", "seqcast", "pysyncobj")


def say(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


class Counter:
    """The machine that seqcast replicates."""

    total = 0

    def apply(self, operation: bytes) -> bytes:
        self.total += int(operation)
        return str(self.total).encode()

    def snapshot(self, write: Callable[[bytes], None]) -> None:
        write(str(self.total).encode())

    def restore(self, read: Callable[[], bytes]) -> None:
        self.total = int(read())


class Seqcast:
    """A replica of seqcast."""

    def __init__(self, cluster: str, number: int, ports: Sequence[int]) -> None:
        settings: dict[str, Any] = {"interface": "lo", "found": MEMBERS}
        self.replica = seqcast.replicate(cluster, Counter(), name=f"member-{number}", ready_s=LIMIT_S, **settings)
        self.close = self.replica.close
        self.suspicions = Suspicions()
        log = logging.getLogger("seqcast")
        log.addHandler(self.suspicions)
        log.setLevel(logging.INFO)
        self.led_ns: list[int] = []  # when this member began to lead
        seqcast.blocks.on_leader(self.replica, lambda _: self.led_ns.append(time.monotonic_ns()))

    def call(self) -> int:
        return int(self.replica.call(b"1", timeout=LIMIT_S))

    def many(self) -> int:
        return int(self.replica.call_many([b"1"] * MANY, timeout=LIMIT_S)[-1])

    def total(self) -> int:
        return self.replica.read(lambda counter: counter.total)

    def local(self) -> int:
        return self.replica.read(lambda counter: counter.total, guarantee="local")

    def leads(self) -> bool | None:
        """None: there is no leader yet, or not all members are there."""
        view = self.replica.group.view if self.replica.ready else None
        if view is None or len(view.members) < MEMBERS:
            return None
        return view.rank(self.replica.group.member.id) == 0


class Ordered:
    """A member of a group with the settings of a replica, and no replica."""

    def __init__(self, cluster: str, number: int, ports: Sequence[int]) -> None:
        settings = {**NEEDED, "ack_delay_s": ACK_DELAY_S, "interface": "lo", "found": MEMBERS}
        self.group = seqcast.join(cluster, name=f"member-{number}", **settings)
        self.close = self.group.leave
        self.count = 0
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        for _ in self.group:
            self.count += 1

    def call(self) -> int:
        return len(self.group.deliver(b"1", timeout=LIMIT_S).payload)

    def total(self) -> int:
        return self.count

    def leads(self) -> bool | None:
        view = self.group.view
        return None if len(view.members) < MEMBERS else view.rank(self.group.member.id) == 0


class PySyncObj:
    """A replica of PySyncObj."""

    def __init__(self, cluster: str, number: int, ports: Sequence[int]) -> None:
        from pysyncobj import SyncObj, replicated

        class Replicated(SyncObj):
            def __init__(self, mine: str, others: list[str]) -> None:
                super().__init__(mine, others)
                self.total = 0

            @replicated
            def add(self, amount: int) -> int:
                self.total += amount
                return self.total

        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.replica = Replicated(addresses[number], [each for each in addresses if each != addresses[number]])
        self.close = self.replica.destroy

    def call(self) -> int:
        return int(self.replica.add(1, sync=True, timeout=LIMIT_S))

    def total(self) -> int:
        return int(self.replica.total)

    def leads(self) -> bool | None:
        status = self.replica.getStatus()
        if status["leader"] is None or not self.replica.isReady():
            return None
        return bool(status["leader"] == status["self"])


MEMBER = {"seqcast": Seqcast, "ordered": Ordered, "pysyncobj": PySyncObj}


class Worker:
    """One member, which follows lines of JSON."""

    def __init__(self, kind: str, cluster: str, number: int, ports: Sequence[int]) -> None:
        self.member = MEMBER[kind](cluster, number, ports)
        self.calls = 0
        self.times: list[tuple[int, int]] = []  # ns: when each call of `until_told` began and ended

    def run(self) -> None:
        say("started")
        for line in sys.stdin:
            command = json.loads(line)
            getattr(self, command.pop("do"))(**command)

    def role(self) -> None:
        until = time.monotonic() + LIMIT_S
        while (leads := self.member.leads()) is None and time.monotonic() < until:
            time.sleep(0.01)
        say("role", leads=leads)

    def loops(self, what: str, threads: int, seconds: float) -> None:
        """Threads that call, or read, one after the other."""
        work: Callable[[], int] = getattr(self.member, what)
        times: list[list[int]] = [[] for _ in range(threads)]
        begin = time.perf_counter_ns()
        end = begin + int(seconds * 1e9)

        def loop(into: list[int]) -> None:
            now = time.perf_counter_ns()
            while now < end:
                work()
                after = time.perf_counter_ns()
                into.append(after - now)
                now = after

        running = [threading.Thread(target=loop, args=(into,)) for into in times]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        spent = time.perf_counter_ns() - begin
        every = sorted(ns for into in times for ns in into)
        done = len(every) * (MANY if what == "many" else 1)
        self.calls += done if what in ("call", "many") else 0
        say("loops", per_s=done / spent * 1e9, p50_us=statistics.median(every) / 1e3)

    def tasks(self, seconds: float) -> None:
        """Tasks that call, one after the other."""
        replica = seqcast.blocks.aio.Replica

        async def run() -> int:
            each, end = replica(self.member.replica), time.monotonic() + seconds

            async def loop() -> int:
                calls = 0
                while time.monotonic() < end:
                    await each.call(b"1", timeout=LIMIT_S)
                    calls += 1
                return calls

            return sum(await asyncio.gather(*(loop() for _ in range(TASKS))))

        begin = time.monotonic()
        calls = asyncio.run(run())
        self.calls += calls
        say("tasks", per_s=calls / (time.monotonic() - begin))

    def counted(self) -> None:
        say("counted", calls=self.calls)

    def check(self, calls: int) -> None:
        """Waits until this member has applied all calls, and not one more."""
        until = time.monotonic() + LIMIT_S
        while (total := self.member.total()) < calls and time.monotonic() < until:
            time.sleep(0.01)
        say("check", total=total)

    def begin(self) -> None:
        """Calls until ``end``, on a thread of its own."""
        self.stop = threading.Event()

        def loop() -> None:
            while not self.stop.is_set():
                began = time.monotonic_ns()
                with contextlib.suppress(Exception):  # a call lost in the failover; the next one counts
                    self.member.call()
                    self.times.append((began, time.monotonic_ns()))

        self.caller = threading.Thread(target=loop, daemon=True)
        self.caller.start()
        say("begin")

    def end(self, killed_ns: int) -> None:
        """The time from the kill to the answer of the first call that began after it."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            found = next((ended for began, ended in self.times[:] if began > killed_ns), None)
            if found is not None:
                self.stop.set()
                say("end", ms=(found - killed_ns) / 1e6)
                return
            time.sleep(0.001)
        say("failed", text=f"no call was answered within {LIMIT_S:g} s of the kill")

    def led(self, killed_ns: int) -> None:
        """ms from the kill until this member suspected the killed one, and until it led; None: not so."""
        led = next(((at - killed_ns) / 1e6 for at in self.member.led_ns if at > killed_ns), None)
        say("led", led_ms=led, detection_ms=self.member.suspicions.first_after(killed_ns))

    def leave(self) -> None:
        self.member.close()
        os._exit(0)


class Member(Process):
    def __init__(self, kind: str, cluster: str, number: int, ports: Sequence[int]) -> None:
        task = json.dumps({"kind": kind, "cluster": cluster, "number": number, "ports": list(ports)})
        super().__init__([sys.executable, __file__, "--worker", task], f"{kind} {number}")

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        self.tell(do=do, **values)
        return self.expect(do, 3 * LIMIT_S)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in made:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in made]


@contextlib.contextmanager
def replicas(kind: str, name: str) -> Iterator[tuple[Member, Member, list[Member]]]:
    """Three members: the leader, the one that calls, and all of them."""
    ports = free_ports(MEMBERS)
    members = [Member(kind, f"calls-{os.getpid()}-{name}", number, ports) for number in range(MEMBERS)]
    try:
        for member in members:
            member.expect("started", 2 * LIMIT_S)
        until = time.monotonic() + LIMIT_S
        while (leading := [member.ask("role")["leads"] for member in members]).count(True) != 1:
            if time.monotonic() > until:  # an election that ends between two answers shows none, or two
                raise RunFailed(f"{kind} has no single leader within {LIMIT_S:g} s: {leading}")
            time.sleep(0.05)
        leader = members[leading.index(True)]
        caller = leader if kind == "pysyncobj" else members[leading.index(False)]
        yield leader, caller, members
    finally:
        for member in members:
            member.kill()


def rates(kind: str, number: int, seconds: float) -> dict[str, float]:
    """One run of the loops.

    Raises:
        RunFailed: a member failed, or its counter is not the sum of the calls.
    """
    with replicas(kind, f"{kind}-{number}") as (_, caller, members):
        caller.ask("loops", what="call", threads=1, seconds=0.2)  # loads the modules that a first call loads
        one = caller.ask("loops", what="call", threads=1, seconds=seconds)
        many = caller.ask("loops", what="call", threads=THREADS, seconds=seconds)
        found = {"one_per_s": one["per_s"], "one_p50_us": one["p50_us"], "threads_per_s": many["per_s"]}
        if kind == "seqcast":
            found["tasks_per_s"] = caller.ask("tasks", seconds=seconds)["per_s"]
            for what in ("many", "total", "local"):
                found[f"{what}_per_s"] = caller.ask("loops", what=what, threads=THREADS, seconds=seconds)["per_s"]
        calls = caller.ask("counted")["calls"]
        totals = [member.ask("check", calls=calls)["total"] for member in members]
        if totals != [calls] * MEMBERS:
            raise RunFailed(f"{kind}: {calls} calls of 1 were answered, and the counters have {totals}")
        return found


def failover(kind: str, number: int) -> dict[str, float]:
    """ms from the kill of the leader until a call that another member began after it is answered; of seqcast also from
    the first suspicion until the next leader has started.

    Raises:
        RunFailed: nobody leads, or nobody suspected the killed one.
    """
    with replicas(kind, f"{kind}-kill-{number}") as (leader, _, members):
        caller = next(member for member in members if member is not leader)
        caller.ask("begin")
        time.sleep(1.0)
        killed_ns = time.monotonic_ns()
        leader.signal(signal.SIGKILL)
        found = {"failover_ms": float(caller.ask("end", killed_ns=killed_ns)["ms"])}
        if kind == "seqcast":
            found["start_ms"] = started([member for member in members if member is not leader], killed_ns)
        return found


def started(members: Sequence[Member], killed_ns: int) -> float:
    """ms from the first suspicion of these members until one of them leads."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        told = [member.ask("led", killed_ns=killed_ns) for member in members]
        led, suspected = (
            [each[what] for each in told if each[what] is not None] for what in ("led_ms", "detection_ms")
        )
        if led and suspected:
            return float(min(led) - min(suspected))
        time.sleep(0.01)
    raise RunFailed(f"nobody leads within {LIMIT_S:g} s of the kill")


def measure(seconds: float, rounds: int, kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """All rounds; the kinds take turns.

    Returns:
        ``calls``: a row for each kind, with medians.
    """
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds:
            run = rates(kind, number, seconds)
            if kind != "ordered":
                run |= failover(kind, number)
            found[kind].append(run)
            print(f"calls {number + 1} of {rounds}: {kind}: {run}", file=sys.stderr, flush=True)
    rows = [
        {"kind": kind, **{key: statistics.median(run[key] for run in runs) for key in runs[0]}}
        for kind, runs in found.items()
    ]
    return {"machine": machine(), "rounds": rounds, "members": MEMBERS, "threads": THREADS, "calls": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each loop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(**json.loads(options.worker)).run()
        return 0
    print(json.dumps(measure(options.seconds, options.rounds, options.kinds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
