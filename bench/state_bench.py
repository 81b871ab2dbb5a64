"""State transfer: how fast a joiner of a running group on this machine receives a state, idle and while others send.

    python bench/state_bench.py --bytes 104857600 --members 4 --load 100 --runs 5

Each member is a process; the last one joins. Measured from the call of ``get_state`` at the provider to the return of
``set_state`` at the joiner (``mb_per_s``), and from the call of ``join`` to its return (``join_mb_per_s``): the first
compares to other systems' "get state", the second includes discovery and the view change. The handlers
write and read 1 MiB at a time and do nothing else. With ``--load`` another member multicasts this many MB/s all the
while, and ``load_mb_per_s`` says how many it reached. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import seqcast

PIECE = bytes(range(256)) * 4096
MESSAGE_BYTES = 8192


class State:
    """Counted bytes without meaning."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.begun = self.ended = 0.0

    def get_state(self, write: Any) -> None:
        self.begun = time.monotonic()
        for at in range(0, self.size, len(PIECE)):
            write(PIECE[: self.size - at])

    def set_state(self, read: Any) -> None:
        got = 0
        while piece := read(len(PIECE)):
            got += len(piece)
        self.ended = time.monotonic()
        assert got == self.size, f"{got} of {self.size} bytes"


def member(name: str, cluster: str, size: int, load: float) -> None:
    """A member: prints events as lines of JSON, until its input ends."""
    state = State(size)
    began = time.monotonic()
    group = seqcast.join(cluster, name=name, order="fifo", state=state, deliver_own=False, interface="lo")
    joined = time.monotonic()
    print(json.dumps({"joined": joined, "seconds": joined - began, "ended": state.ended}), flush=True)

    def receive() -> None:
        try:
            while True:
                group.recv_batch()
        except seqcast.NotMember:
            pass

    threading.Thread(target=receive, daemon=True).start()
    if load:
        threading.Thread(target=send, args=(group, load), daemon=True).start()
    for line in sys.stdin:
        assert line == "begun\n"
        print(json.dumps({"begun": state.begun, "sent": getattr(group, "_sent", 0)}), flush=True)
    group.leave()


def send(group: seqcast.Group, load: float) -> None:
    """Multicasts ``load`` MB/s in portions of a millisecond."""
    began, sent = time.monotonic(), 0
    message = bytes(MESSAGE_BYTES)
    group._sent = 0
    try:
        while True:
            due = int((time.monotonic() - began) * load * 1e6) // MESSAGE_BYTES
            if due > sent:
                group.send_many([message] * min(due - sent, 64))
                sent += min(due - sent, 64)
                group._sent = sent * MESSAGE_BYTES
            else:
                time.sleep(0.001)
    except seqcast.NotMember:
        pass


def run(size: int, members: int, load: float, number: int) -> dict[str, float]:
    """One joiner."""
    cluster = f"state-bench-{number}-{time.time_ns()}"
    processes = []

    def start(name: str, load: float) -> subprocess.Popen[str]:
        arguments = [sys.executable, __file__, "--member", name, cluster, str(size), str(load)]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    def ask(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("begun\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def said(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    try:
        for i in range(members - 1):
            said(start(f"m{i}", load if i == members - 2 else 0.0))
        time.sleep(0.5)
        sender = processes[-1]
        before, at = ask(sender)["sent"], time.monotonic()
        joiner = said(start("joiner", 0.0))
        after, seconds = ask(sender)["sent"], time.monotonic() - at
        begun = ask(processes[0])["begun"]
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait(20)
    return {
        "mb_per_s": size / (joiner["ended"] - begun) / 1e6,
        "join_mb_per_s": size / joiner["seconds"] / 1e6,
        "load_mb_per_s": (after - before) / seconds / 1e6,
    }


def main() -> None:
    if sys.argv[1:2] == ["--member"]:
        member(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description="How fast a joiner takes over the state of a group on this machine.")
    parser.add_argument("--bytes", type=int, default=100 << 20)
    parser.add_argument("--members", type=int, default=4, help="the joiner counted; at least 2")
    parser.add_argument("--load", type=float, default=0.0, help="MB/s that a member multicasts meanwhile")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    runs = [run(arguments.bytes, arguments.members, arguments.load, number) for number in range(arguments.runs)]
    result: dict[str, Any] = {"bytes": arguments.bytes, "members": arguments.members, "load": arguments.load}
    for key in runs[0]:
        values = sorted(each[key] for each in runs)
        result[key] = round(statistics.median(values), 1)
        result[f"{key}_range"] = [round(values[0], 1), round(values[-1], 1)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
