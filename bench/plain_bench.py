"""The loops that people write first, beside the same loops of pyzmq in the same run.

    python bench/plain_bench.py --size 64 1024 --pairs 5 --kinds plain aio
    python bench/plain_bench.py --tree ../before            # another checkout instead of this one
    python bench/plain_bench.py --json                      # one object, as docs/figures.jsonl has it

One process sends, three receive. Kinds:

- ``plain``: ``group.send(b)`` in a loop, and ``for message in group`` in three receivers. All settings are defaults, so
  the order is total and the sender also receives its own messages, which a thread of its process takes in the same
  loop.
- ``aio``: ``await group.send(b)`` and ``async for message in group``, also with all defaults; in the sender a task
  takes its own messages.
- ``at-once``: ``plain`` with ``flush_s_min=0``, so that each message leaves at once. With ``--work-us`` it shows the
  gain of gathering if an application works between its sends.
- ``pyzmq``: ``socket.send(b)`` of a PUB socket and ``socket.recv()`` of three SUB sockets over TCP, with high-water
  marks of 10,000 messages and XPUB_NODROP: by default PUB drops messages that do not fit, and nothing may be lost here.

Runs are interleaved: each pair measures every kind once, after the other. A rate is that of the slowest receiver, from
the first send to its last message. Each receiver must have counted as many messages as were sent. The ratios
printed are medians over the pairs, with minimum and maximum. Needs pyzmq (``pip install 'seqcast[bench]'``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RECEIVERS = 3
CHUNK = 1000
"""Messages between two looks at the clock."""
JOIN_S = 30.0
END = b"the last"
LAST = len(END)
"""Ends a run; all other messages are larger."""


def say(**values: Any) -> None:
    """One line to the parent."""
    print(json.dumps(values), flush=True)


def wait_for_parent() -> None:
    """Waits for one line of the parent."""
    if not sys.stdin.readline():
        sys.exit(1)


class Count:
    """A receiver's counts."""

    def __init__(self) -> None:
        self.n = 0
        self.cpu = time.process_time()

    def take(self, messages: Iterable[Any]) -> None:
        """Receives from a group until the message that ends the run."""
        n = 0
        for message in messages:
            if len(message.payload) == LAST:
                break
            n += 1
        self.n = n

    async def take_async(self, messages: Any) -> None:
        """The same from an asyncio group."""
        n = 0
        async for message in messages:
            if len(message.payload) == LAST:
                break
            n += 1
        self.n = n

    def take_calls(self, recv: Callable[[], bytes]) -> None:
        """The same from a function that returns the next payload."""
        n = 0
        while True:
            if len(recv()) == LAST:
                break
            n += 1
        self.n = n

    def report(self) -> None:
        """Reports to the parent: how many, when the last one came, this process's use of resources."""
        say(n=self.n, at=time.monotonic(), cpu=time.process_time() - self.cpu)


def messages_until(size: int, seconds: float) -> Iterable[list[bytes]]:
    """Chunks of payloads for this many seconds; the sender loops over each."""
    chunk, until = [bytes(size)] * CHUNK, time.monotonic() + seconds
    while time.monotonic() < until:
        yield chunk


def loops_for(us: float) -> range:
    """Turns of an empty loop that take this many µs of CPU time: the work between two sends. Measured with loops as
    short as those that are wanted, since the interpreter keeps small numbers and has to make large ones."""
    count = 256
    for _ in range(4):
        loops, best = range(count), 1e9
        for _ in range(20):
            cpu = time.process_time()
            for _ in range(200):
                for _ in loops:
                    pass
            best = min(best, (time.process_time() - cpu) / 200)
        count = max(1, round(count * us / 1e6 / best))
    return range(count)


def complete(group: Any) -> None:
    """Waits until all members are in the view."""
    until = time.monotonic() + JOIN_S
    while len(group.view.members) < RECEIVERS + 1:
        if time.monotonic() > until:
            raise TimeoutError("the group did not become complete")
        time.sleep(0.01)


def plain(task: dict[str, Any]) -> None:
    """A member with plain loops."""
    import seqcast

    with seqcast.join(task["cluster"], name=task["name"], interface="lo", **task["settings"]) as group:
        complete(group)
        count = Count()
        say(ready=True)
        if not task["sends"]:
            count.take(group)
            count.report()
            wait_for_parent()
            return
        wait_for_parent()
        receiver = threading.Thread(target=count.take, args=(group,))
        if group.config.deliver_own:
            receiver.start()
        work = loops_for(task["work_us"])
        view, cpu, begun = group.view, time.process_time(), time.monotonic()
        sent = 0
        for chunk in messages_until(task["size"], task["seconds"]):
            if work:
                for payload in chunk:
                    group.send(payload)
                    for _ in work:
                        pass
            else:
                for payload in chunk:
                    group.send(payload)
            sent += len(chunk)
        ended = time.monotonic()
        group.send(END)
        if group.config.deliver_own:
            receiver.join()
        packets = group.counters()["packets_sent"]
        say(
            sent=sent, begun=begun, ended=ended, cpu=time.process_time() - cpu, view_changed=group.view != view,
            packets=packets, own=count.n if group.config.deliver_own else sent,
        )  # fmt: skip
        wait_for_parent()


def aio(task: dict[str, Any]) -> None:
    """A member with the loops of asyncio."""
    import seqcast.aio

    async def run() -> None:
        async with seqcast.aio.join(task["cluster"], name=task["name"], interface="lo", **task["settings"]) as group:
            complete(group)
            count = Count()
            say(ready=True)
            if not task["sends"]:
                await count.take_async(group)
                count.report()
                await asyncio.to_thread(wait_for_parent)
                return
            await asyncio.to_thread(wait_for_parent)
            receiver = asyncio.create_task(count.take_async(group))
            view, cpu, begun = group.view, time.process_time(), time.monotonic()
            sent = 0
            for chunk in messages_until(task["size"], task["seconds"]):
                for payload in chunk:
                    await group.send(payload)
                sent += len(chunk)
            ended = time.monotonic()
            await group.send(END)
            await receiver
            say(
                sent=sent, begun=begun, ended=ended, cpu=time.process_time() - cpu, view_changed=group.view != view,
                packets=group.counters()["packets_sent"], own=count.n,
            )  # fmt: skip
            await asyncio.to_thread(wait_for_parent)

    asyncio.run(run())


def pyzmq(task: dict[str, Any]) -> None:
    """A PUB or a SUB socket with plain loops."""
    import zmq

    context = zmq.Context()
    if task["sends"]:
        socket = context.socket(zmq.XPUB)  # like PUB; also shows when all have subscribed
        socket.setsockopt(zmq.SNDHWM, 10_000)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        socket.bind(f"tcp://127.0.0.1:{task['port']}")
        for _ in range(RECEIVERS):
            socket.recv()
        say(ready=True)
        wait_for_parent()
        cpu, begun, sent = time.process_time(), time.monotonic(), 0
        for chunk in messages_until(task["size"], task["seconds"]):
            for payload in chunk:
                socket.send(payload)
            sent += len(chunk)
        ended = time.monotonic()
        socket.send(END)
        say(sent=sent, begun=begun, ended=ended, cpu=time.process_time() - cpu, view_changed=False, packets=0, own=sent)
        wait_for_parent()
        return
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, 10_000)
    socket.connect(f"tcp://127.0.0.1:{task['port']}")
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    say(ready=True)
    count = Count()
    count.take_calls(socket.recv)
    count.report()
    wait_for_parent()


def at_once(task: dict[str, Any]) -> None:
    """``plain``, and each message leaves at once."""
    plain({**task, "settings": task["settings"] | {"flush_s_min": 0}})


KINDS: dict[str, Callable[[dict[str, Any]], None]] = {"plain": plain, "aio": aio, "at-once": at_once, "pyzmq": pyzmq}
BESIDE = ("pyzmq", "at-once")
"""The base of comparison in the JSON object."""


def run(kind: str, arguments: argparse.Namespace, size: int, number: int, tree: str) -> dict[str, float] | None:
    """One run; None if membership changed while it sent."""
    environment = os.environ | ({"PYTHONPATH": str(Path(tree).resolve() / "src")} if tree else {})
    processes = []
    try:
        for index in range(RECEIVERS + 1):
            task = {
                "kind": kind, "name": f"m{index}", "cluster": f"plain-{os.getpid()}-{number}",
                "port": 47500 + number % 400, "sends": index == arguments.sender, "size": size,
                "seconds": arguments.seconds, "work_us": arguments.work_us,
                "settings": {"port": arguments.port} | json.loads(arguments.settings),
            }  # fmt: skip
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--task", json.dumps(task)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        for process in processes:
            line(process)
        sender = processes[arguments.sender]
        print("go", file=sender.stdin, flush=True)
        sent = line(sender)
        received = [line(process) for process in processes if process is not sender]
        for process in processes:
            print("end", file=process.stdin, flush=True)
    finally:
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    for answer in received:
        if answer["n"] != sent["sent"]:
            sys.exit(f"{kind}: sent {sent['sent']}, a receiver got {answer['n']}")
    if sent["own"] != sent["sent"]:
        sys.exit(f"{kind}: sent {sent['sent']}, the sender itself got {sent['own']}")
    if sent["view_changed"]:
        return None
    cpu = sent["cpu"] + sum(answer["cpu"] for answer in received)
    return {
        "rate": min(answer["n"] / (answer["at"] - sent["begun"]) for answer in received),
        "cpu_us": cpu * 1e6 / sent["sent"],
        "sender_cpu_us": sent["cpu"] * 1e6 / sent["sent"],
        "messages_a_packet": sent["sent"] / max(1, sent["packets"]),
    }


def line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of a process."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        sys.exit("a process ended early")
    answer: dict[str, Any] = json.loads(text)
    return answer


def spread(values: list[float], form: str = "{:,.0f}") -> str:
    """Median (minimum to maximum)."""
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def figures(these: list[dict[str, float]], beside: list[dict[str, float]] | None) -> dict[str, Any]:
    """Medians of the runs of one kind, and the ratios, with their spread, to the runs of another kind beside them."""
    keys = ("rate", "cpu_us", "messages_a_packet")
    values: dict[str, Any] = {key: statistics.median([each[key] for each in these]) for key in keys}
    if beside:
        ratios = [a["rate"] / b["rate"] for a, b in zip(these, beside, strict=True)]
        values |= {"ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)]}
    return values


def main() -> int:
    """Runs interleaved pairs and prints rates and ratios."""
    parser = argparse.ArgumentParser(description="plain loops beside pyzmq's")
    parser.add_argument("--size", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["plain", "aio", "pyzmq"])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--sender", type=int, default=1, help="0: the coordinator, which is also the sequencer")
    parser.add_argument("--work-us", type=float, default=0.0, help="work between two sends of the kind plain")
    parser.add_argument("--settings", default="{}", help="settings of the members, JSON")
    parser.add_argument("--port", type=int, default=47320)
    parser.add_argument("--tree", nargs="*", default=[""], help="other checkouts, built in place, for plain and aio")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        task = json.loads(arguments.task)
        KINDS[task["kind"]](task)
        return 0
    number = 0
    rows: list[dict[str, Any]] = []
    for size in arguments.size:
        columns = [(kind, tree) for kind in arguments.kinds for tree in (arguments.tree if kind != "pyzmq" else [""])]
        runs: dict[tuple[str, str], list[dict[str, float]]] = {column: [] for column in columns}
        for _ in range(arguments.pairs):
            for column in columns:
                number += 1
                while (result := run(column[0], arguments, size, number, column[1])) is None:
                    print(f"{column[0]}: membership changed during the run, which does not count", file=sys.stderr)
                    number += 1
                runs[column].append(result)
        for kind, tree in columns:
            these = runs[kind, tree]
            if arguments.json:
                beside = next((runs[kind, ""] for kind in BESIDE if (kind, "") in runs), None)
                rows.append({"kind": kind, "size": size, **figures(these, beside)})
                continue
            text = f"{size} B  {kind:6} {tree:20} {spread([each['rate'] for each in these])} msgs/s"
            text += f"  CPU {spread([each['cpu_us'] for each in these], '{:.2f}')} us"
            text += f" (sender {statistics.median([each['sender_cpu_us'] for each in these]):.2f})"
            text += f"  {statistics.median([each['messages_a_packet'] for each in these]):.1f} messages/packet"
            for other in columns:
                if other != (kind, tree) and (other[0] in ("pyzmq", "plain") or other[0] == kind):
                    ratios = [a["rate"] / b["rate"] for a, b in zip(these, runs[other], strict=True)]
                    text += f"  {spread(ratios, '{:.2f}')} of {' '.join(other).strip()}"
            print(text, flush=True)
    if arguments.json:
        from seqcast.perf.report import machine

        about = {"members": 1 + RECEIVERS, "pairs": arguments.pairs, "seconds": arguments.seconds}
        what = "work" if arguments.work_us else "plain"
        print(json.dumps({what: rows, "work_us": arguments.work_us, **about, "machine": machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
