"""One process of a measurement: ``python -m seqcast.perf.worker TASK``, the task as JSON.

It reports in lines of JSON on standard output and takes commands on standard input; when that closes, it leaves.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import queue
import resource
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

from seqcast.errors import SendTimeout, SeqcastError
from seqcast.perf.messages import BatchSource, Check

QUIET_S = 10.0
"""After so long without a message a receiver counts the rest as lost, s."""
SLICE_S = 0.2
"""Waits are cut into slices of this length, so that commands are noticed, s."""


def say(event: str, **values: Any) -> None:
    """One line to the parent."""
    print(json.dumps({"event": event, **values}), flush=True)


class Commands:
    """The parent's commands; ``None`` when the parent is gone."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.closed = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._queue.put(json.loads(line))
        self.closed.set()
        self._queue.put(None)

    def next(self) -> dict[str, Any]:
        """Waits for the next command. Raises SystemExit when the parent is gone."""
        command = self._queue.get()
        if command is None:
            raise SystemExit(0)
        return command

    def poll(self) -> dict[str, Any] | None:
        """The next command if there is one. Raises SystemExit when the parent is gone."""
        if self._queue.empty():
            return None
        return self.next()


def cpu_s() -> float:
    """CPU time of this process so far, s."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_mb() -> float:
    """Resident memory of this process now, MB."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:  # no /proc: the highest so far
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def pin(core: int | None) -> None:
    """Keeps this process, and the threads it will start, on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


# ---- the plain C baselines ------------------------------------------------------------------------------------------


def bare(task: dict[str, Any]) -> None:
    """A sender, receiver, ping or pong in plain C."""
    from seqcast._native import bare as kernel

    pin(task.get("core"))
    with mmap.mmap(task["shared_fd"], kernel.SHARED_BYTES) as shared:
        settings = kernel.Settings(**task["settings"])
        say("ready")
        spin = task.get("spin", False)
        if task["role"] == "send":
            say("done", **kernel.send(settings, shared, warm_ns=task["warm_ns"], measure_ns=task["measure_ns"]))
        elif task["role"] == "receive":
            say("done", **kernel.receive(settings, shared, index=task["index"]))
        elif task["role"] == "ping":
            trips = kernel.ping(settings, shared, spin=spin, warm_rounds=task["warm_rounds"], rounds=task["rounds"])
            say("done", **halves(trips))
        else:
            kernel.pong(settings, shared, spin=spin)
            say("done")


def halves(round_trips_ns: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    """Percentiles of half the round trip, µs."""
    p50, p99, p999 = np.percentile(round_trips_ns, [50, 99, 99.9]) / 2000
    return {"p50": float(p50), "p99": float(p99), "p999": float(p999)}


# ---- a member of a group -------------------------------------------------------------------------------------------


def join(task: dict[str, Any], commands: Commands) -> Any:
    """Joins, and waits until the group is complete."""
    import seqcast

    pin(task.get("core"))
    group = seqcast.join(task["cluster"], name=task["name"], deliver_own=False, **task["settings"])
    say("joined")
    until = time.monotonic() + 30
    while len(group.view.members) < task["members"]:
        if time.monotonic() > until:
            group.leave()
            raise SeqcastError(f"the group has {len(group.view.members)} of {task['members']} members after 30 s")
        commands.poll()
        group.recv_batch(timeout=0.02)
    return group


def member(task: dict[str, Any]) -> None:
    """A member that sends, receives or both, at full speed."""
    commands = Commands()
    group = join(task, commands)
    check = Check(task["size"])
    sent = 0
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        seconds = commands.next()["seconds"]
        cpu, start_ns = cpu_s(), time.monotonic_ns()
        if task["sends"]:
            source = BatchSource(task["size"], task["sender"])
            receiver = threading.Thread(target=receive_beside, args=(group, check, commands.closed), daemon=True)
            if task["receives"]:
                receiver.start()
            sent = send_for(group, source, start_ns + int(seconds * 1e9), commands)
            say("sent", sent=sent)
        expected, finished = None, False
        quiet_since = time.monotonic()
        while not finished:
            command = commands.poll()
            if command is not None:
                expected = command["messages"] - sent
            before = check.count
            if task["receives"] and not task["sends"]:
                check.take(group.recv_batch(timeout=SLICE_S))
            else:
                time.sleep(SLICE_S / 4)
            now = time.monotonic()
            if check.count != before:
                quiet_since = now
            finished = expected is not None and (
                not task["receives"] or check.count >= expected or now - quiet_since > QUIET_S
            )
        say(
            "done",
            cpu_s=cpu_s() - cpu,
            received=check.count,
            lost=max(0, expected - check.count) if task["receives"] and expected is not None else 0,
            wrong=check.wrong,
            seconds=(check.last_ns - start_ns) / 1e9,
            rss_mb=resident_mb(),
            counters=group.counters(),
        )
        with contextlib.suppress(SystemExit):
            commands.next()  # no member leaves before all are done
    finally:
        group.leave()
        group.close_journal()


def receive_beside(group: Any, check: Check, closed: threading.Event) -> None:
    """Receives in a thread of its own, beside the sending one."""
    while not closed.is_set():
        try:
            check.take(group.recv_batch(timeout=SLICE_S))
        except SeqcastError:  # the group was left
            return


def send_for(group: Any, source: BatchSource, until_ns: int, commands: Commands) -> int:
    """Sends batches until ``until_ns`` (monotonic); returns how many messages."""
    while time.monotonic_ns() < until_ns:
        data, offsets = source.next()
        try:
            group.send_batch(data, offsets, timeout=QUIET_S)
        except SendTimeout:
            raise SeqcastError(f"no credit for {QUIET_S:g} s after {source.count} messages") from None
        source.sent()
        commands.poll()
    return source.count


def latency(task: dict[str, Any]) -> None:
    """One side of a ping-pong: member 0 asks, member 1 answers until its input closes."""
    commands = Commands()
    group = join(task, commands)
    payload = bytearray(task["size"])
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        if task["sender"]:
            while not commands.closed.is_set():
                message = group.recv(timeout=SLICE_S)
                if message is not None:
                    group.send(message.payload)
            return
        commands.next()
        rounds, warm = task["rounds"], task["warm_rounds"]
        trips = np.zeros(rounds, dtype=np.int64)
        for number in range(-warm, rounds):
            payload[:8] = number.to_bytes(8, "little", signed=True)
            ping = bytes(payload)
            start = time.perf_counter_ns()
            group.send(ping)
            answer = group.recv(timeout=QUIET_S)
            end = time.perf_counter_ns()
            if answer is None or answer.payload != ping:
                raise SeqcastError(f"round {number}: no answer within {QUIET_S:g} s, or a wrong one")
            if number >= 0:
                trips[number] = end - start
        say("done", **halves(trips), counters=group.counters())
        with contextlib.suppress(SystemExit):
            commands.next()
    finally:
        group.leave()


def main() -> int:
    """Runs the task in argv; reports a failure to the parent in one line."""
    task = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        {"member": member, "latency": latency}.get(task["role"], bare)(task)
    except (SeqcastError, OSError, NotImplementedError) as error:
        say("failed", text=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
