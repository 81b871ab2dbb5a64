"""Replicas are killed, started again and stopped, from a seed, while all of them call and read; with a directory for
their disks, also all at once.

PYTHONPATH=src:tests/helpers python -m replica_chaos 1 200 [DIRECTORY]   as root in a network namespace, or on loopback
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from members import LIMIT_S, cluster
from replicas import Process


class Client(threading.Thread):
    """Calls and reads at one replica, one after the other, through all its processes.

    Attributes:
        calls, reads: (begun, answered, answer) of each.
        unknown: calls without an answer, as the process was killed.
    """

    def __init__(self, cluster_name: str, name: str, rng: random.Random, files: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.files = files
        self.cluster, self.who, self.rng = cluster_name, name, rng
        self.calls: list[tuple[float, float, int]] = []
        self.reads: list[tuple[float, float, int]] = []
        self.unknown = 0
        self.over = False
        self.process = Process(cluster_name, name, 2, *files)

    def run(self) -> None:
        self.process.ready()
        while not self.over:
            begun, word = time.monotonic(), self.rng.choice(("call", "read"))
            answer = ""
            with contextlib.suppress(OSError):
                self.process.ask(word, "1" if word == "call" else "linearizable")
                answer = self.process.answer()
            if answer:
                (self.calls if word == "call" else self.reads).append((begun, time.monotonic(), int(answer)))
                continue
            self.unknown += word == "call"
            self.process.process.communicate()
            self.process = Process(self.cluster, self.who, 2, *self.files).ready()

    @property
    def answers(self) -> int:
        return len(self.calls) + len(self.reads)


def run(seed: int, faults: int = 3, files: Sequence[str] = ()) -> list[str]:
    """The faults of a run.

    Args:
        files: the directory for the replicas' disks, if any.
    """
    rng, name = random.Random(seed), cluster()
    clients = [Client(name, who, random.Random(f"{seed} {who}"), files) for who in "abc"]
    for client in clients:
        client.start()

    def all_answer() -> None:
        """Each replica answers once more, so that the next fault leaves a majority."""
        before, end = [client.answers for client in clients], time.monotonic() + LIMIT_S
        while any(client.answers == had for client, had in zip(clients, before, strict=True)):
            assert time.monotonic() < end, f"seed {seed}: a replica does not answer any more"
            time.sleep(0.01)

    try:
        for _ in range(faults):
            all_answer()
            time.sleep(rng.random() * 0.1)
            client = rng.choice(clients)
            victim = client.process
            if files and rng.random() < 0.5:
                for each in clients:
                    each.process.tell(signal.SIGKILL)
                while client.process is victim:
                    time.sleep(0.01)
            elif rng.random() < 0.5:
                victim.tell(signal.SIGKILL)
                while client.process is victim:
                    time.sleep(0.01)
            else:
                victim.tell(signal.SIGSTOP)
                time.sleep(rng.choice((0.05, 0.3, 0.6, 1.5)))
                victim.tell(signal.SIGCONT)
        all_answer()
        for client in clients:
            client.over = True
        for client in clients:
            client.join(LIMIT_S)
        return wrong(clients, last(clients))
    finally:
        for client in clients:
            client.over = True
            client.process.process.kill()


def last(clients: list[Client]) -> list[int]:
    """The final reads of each replica."""
    found = []
    for client in clients:
        client.process.ask("read", "linearizable")
        found.append(int(client.process.answer()))
    return found


def wrong(clients: list[Client], totals: list[int]) -> list[str]:
    found = []
    calls = [each for client in clients for each in client.calls]
    reads = [each for client in clients for each in client.reads]
    sums = [answer for _, _, answer in calls]
    unknown = sum(client.unknown for client in clients)
    if len(sums) != len(set(sums)):
        found.append("two calls had one answer")
    if len(set(totals)) != 1 or not len(sums) <= totals[0] <= len(sums) + unknown:
        found.append(f"{len(sums)} calls were answered, {unknown} were not, and the totals are {totals}")
    known = sorted((answered, answer) for _, answered, answer in calls + reads)
    for begun, _, answer in reads:
        least = max((each for answered, each in known if answered < begun), default=0)
        if answer < least:
            found.append(f"a read gave {answer} after {least} was known")
    return found


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        with tempfile.TemporaryDirectory(dir=sys.argv[3]) if sys.argv[3:] else contextlib.nullcontext() as disks:
            problems = run(number, files=(disks,) if disks else ())
        print(number, *(problems or ["holds"]), flush=True)
        if problems:
            sys.exit(1)
