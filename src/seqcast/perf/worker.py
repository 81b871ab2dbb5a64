"""One process of a measurement: ``python -m seqcast.perf.worker TASK``, the task as JSON.

Each reports in lines of JSON on standard output and takes commands on standard input; when the input closes, the member
leaves. The first kind of member takes one task after another, as the command ``{"task": TASK}``.
"""

from __future__ import annotations

import asyncio
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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqcast.errors import SendTimeout, SeqcastError, without_code
from seqcast.perf import hosts
from seqcast.perf.loops import END, Payloads, Tally
from seqcast.perf.messages import SLICE_S, BatchSource, Check
from seqcast.perf.report import PERCENTILES
from seqcast.system import drops

NAP_NS = 100_000
"""A sleep may end this much too late."""
LOOK_S = 0.5
"""For this long a host is asked how busy it is, s."""
QUIET_S = 10.0
"""After this long without a message a receiver counts the rest as lost, s."""


def say(event: str, **values: Any) -> None:
    """One line to the parent."""
    print(json.dumps({"event": event, **values}), flush=True)


class Commands:
    """The parent's commands; ``None`` once the parent is gone."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.none = self._queue.empty
        """Is there no command? The parent's end counts as one."""
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


def usage() -> dict[str, float]:
    """The resources that this process has used: CPU time outside and in the kernel, s, and the number of times that a
    thread blocked; for how long CPU quotas have stopped it, s; and when, by the monotonic clock."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "waits": used.ru_nvcsw,
        "throttled_s": hosts.throttled_s(),
        "at_ns": time.monotonic_ns(),
    }


def usage_since(start: dict[str, float]) -> dict[str, float]:
    """The resources that this process, ``pid``, has used from ``begun_ns`` to ``ended_ns``."""
    now = usage()
    begun_ns, ended_ns = start["at_ns"], now.pop("at_ns")
    used = {key: value - start[key] for key, value in now.items()}
    return {**used, "pid": os.getpid(), "begun_ns": begun_ns, "ended_ns": ended_ns}


def resident_mb() -> float:
    """Resident memory of this process now, MB."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 1e6
    except OSError:  # no /proc: the highest so far
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def pin(core: int | None) -> None:
    """Keeps this process, and its later threads, on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


# ---- the plain C baselines ------------------------------------------------------------------------------------------


def bare(task: dict[str, Any]) -> None:
    """A sender, receiver, ping or pong in plain C."""
    from seqcast._native import bare as kernel

    pin(task.get("core"))
    apart, role = "shared_fd" not in task, task["role"]
    with mmap.mmap(-1 if apart else task["shared_fd"], kernel.SHARED_BYTES) as shared:
        given = task["settings"]
        if apart:
            given = {**given, "interface": hosts.address(given["interface"], given["group"])}
        settings = kernel.Settings(**given, apart=apart)
        if apart:
            threading.Thread(target=stand_in, args=(task, shared), daemon=True).start()
        if not apart or role != "receive":
            say("ready")
        spin, start = task.get("spin", False), usage()
        if role == "send":
            sent = kernel.send(settings, shared, warm_ns=task["warm_ns"], measure_ns=task["measure_ns"])
            say("done", **sent, **usage_since(start))
        elif role == "receive":
            say("done", **kernel.receive(settings, shared, index=task["index"]), **usage_since(start))
        elif role == "ping":
            trips = kernel.ping(settings, shared, spin=spin, warm_rounds=task["warm_rounds"], rounds=task["rounds"])
            say("done", **halves(trips))
        else:
            kernel.pong(settings, shared, spin=spin)
            say("done")


def stand_in(task: dict[str, Any], shared: mmap.mmap) -> None:
    """Sets the flags that processes of several hosts cannot share: the controller starts the sender when the receivers
    are ready, and tells them when the run is over. If the controller is gone, the process ends at once."""
    from seqcast._native.bare import READY_AT, READY_STRIDE

    for index, port in enumerate(task.get("ports", ())):  # of the receivers, which the sender is told
        at = READY_AT + index * READY_STRIDE
        shared[at : at + 4] = port.to_bytes(4, sys.byteorder)
    if task["role"] == "receive":
        at = READY_AT + task["index"] * READY_STRIDE
        while not (port := int.from_bytes(shared[at : at + 4], sys.byteorder)):
            time.sleep(0.001)
        say("ready", port=port)
    if not sys.stdin.readline():
        os._exit(0)
    with contextlib.suppress(ValueError):  # ended already
        shared[0:4] = (1).to_bytes(4, sys.byteorder)


def halves(round_trips_ns: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, float]:
    """Percentiles of half the round trip, and the longest, µs."""
    return dict(zip(PERCENTILES, (np.percentile(round_trips_ns, [50, 99, 99.9, 100]) / 2000).tolist(), strict=True))


# ---- a member of a group -------------------------------------------------------------------------------------------


def join(task: dict[str, Any], commands: Commands, **settings: Any) -> Any:
    """Joins, and waits until the group is complete."""
    import seqcast

    pin(task.get("core"))
    group = seqcast.join(task["cluster"], name=task["name"], **settings, **task["settings"])
    say("joined")
    until = time.monotonic() + 30
    while len(group.view.members) < task["members"]:
        if time.monotonic() > until:
            group.leave()
            raise SeqcastError(f"the group has {len(group.view.members)} of {task['members']} members after 30 s")
        commands.poll()
        time.sleep(0.005)
    return group


def path_of(group: Any) -> dict[str, Any]:
    """How the group's datagrams travel, for the baselines to do the same."""
    return {name: group.path[name] for name in ("packet_bytes", "gso", "gro")}


class Start(NamedTuple):
    """The start of a run: usage so far, monotonic ns, the counter of the view, and datagrams dropped on this host."""

    used: dict[str, float]
    at_ns: int
    view: int
    dropped: dict[str, int]


def report_done(group: Any, check: Check | Tally, start: Start, expected: int | None) -> None:
    """The messages that a member received, and their cost.

    Args:
        group: the member's.
        check: counts its messages.
        start: of the run, from ``begin``.
        expected: messages that should have been received; None if the member receives none.
    """
    used, start_ns, view, before = start
    say(
        "done",
        **usage_since(used),
        received=check.count,
        lost=0 if expected is None else max(0, expected - check.count),
        wrong=check.wrong,
        seconds=(check.last_ns - start_ns) / 1e9,
        dropped={place: n - before[place] for place, n in drops(group.path["interface"]).items()},
        views=group.view.view_id.counter - view,
        rss_mb=resident_mb(),
        counters=group.counters(),
    )


def begin(group: Any) -> Start:
    """The start of a run."""
    dropped = drops(group.path["interface"])
    return Start(usage(), time.monotonic_ns(), group.view.view_id.counter, dropped)


def member(task: dict[str, Any]) -> None:
    """A member that sends, receives or both, at full speed; then a member of the next group, until its input closes."""
    commands = Commands()
    while True:
        one_run(task, commands)
        say("over")
        task = commands.next()["task"]


def one_run(task: dict[str, Any], commands: Commands) -> None:
    """From joining a group to leaving it."""
    group = join(task, commands, deliver_own=False)
    check = Check(task["size"])
    sent = 0
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters(), path=path_of(group))
        seconds = commands.next()["seconds"]
        start = begin(group)
        if task["sends"]:
            source = BatchSource(task["size"], task["sender"])
            receiver = threading.Thread(target=receive_beside, args=(group, check, commands.closed), daemon=True)
            if task["receives"]:
                receiver.start()
            sent = send_for(group, source, start[1] + int(seconds * 1e9), commands)
            say("sent", sent=sent)
        else:
            check.receive(group, commands.none)
        expected, since_ns = commands.next()["messages"] - sent, time.monotonic_ns()

        def is_missing() -> bool:
            quiet_ns = time.monotonic_ns() - max(check.last_ns, since_ns)
            return check.count < expected and quiet_ns < QUIET_S * 1e9

        if not task["sends"]:
            check.receive(group, is_missing)
        while task["receives"] and is_missing():
            time.sleep(SLICE_S / 4)
        report_done(group, check, start, expected if task["receives"] else None)
        with contextlib.suppress(SystemExit):
            commands.next()  # no member leaves before all are done
    finally:
        group.leave()
        group.close_journal()


def leave_when_parent_ends(group: Any, commands: Commands) -> None:
    """Ends the loops of a member, which do not read commands, when the parent is gone."""

    def wait() -> None:
        commands.closed.wait()
        group.leave()

    threading.Thread(target=wait, daemon=True).start()


def plain(task: dict[str, Any]) -> None:
    """A member that sends and receives in plain loops; a sender receives its own messages in a second thread."""
    commands = Commands()
    group = join(task, commands)
    leave_when_parent_ends(group, commands)
    tally = Tally(task["size"])
    receiver = threading.Thread(target=tally.take, args=(group,), daemon=True)
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters(), path=path_of(group))
        seconds = commands.next()["seconds"]
        start = begin(group)
        if task["sends"]:
            receiver.start()
            source = Payloads(task["size"])
            for payloads in source.until(start[1] + int(seconds * 1e9)):
                for payload in payloads:
                    group.send(payload)
            group.send(END)
            say("sent", sent=source.count)
            receiver.join()
        else:
            tally.take(group)
        report_done(group, tally, start, commands.next()["messages"])
        with contextlib.suppress(SystemExit):
            commands.next()
    finally:
        group.leave()
        group.close_journal()


async def aio(task: dict[str, Any]) -> None:
    """The same in asyncio; a sender receives its own messages in a second task."""
    import seqcast.aio

    commands = Commands()
    group = seqcast.aio.Group(await asyncio.to_thread(join, task, commands))
    leave_when_parent_ends(group.sync, commands)
    tally = Tally(task["size"])
    async with group:
        say("ready", rss_mb=resident_mb(), counters=group.counters(), path=path_of(group.sync))
        seconds = (await asyncio.to_thread(commands.next))["seconds"]
        start = begin(group)
        receiver = asyncio.create_task(tally.take_async(group))
        if task["sends"]:
            source = Payloads(task["size"])
            for payloads in source.until(start[1] + int(seconds * 1e9)):
                for payload in payloads:
                    await group.send(payload)
            await group.send(END)
            say("sent", sent=source.count)
        await receiver
        report_done(group, tally, start, (await asyncio.to_thread(commands.next))["messages"])
        with contextlib.suppress(SystemExit):
            await asyncio.to_thread(commands.next)


def receive_beside(group: Any, check: Check, closed: threading.Event) -> None:
    """Receives in its own thread, beside the sending one."""
    with contextlib.suppress(SeqcastError):  # the group was left
        check.receive(group, lambda: not closed.is_set())


def send_for(group: Any, source: BatchSource, until_ns: int, commands: Commands) -> int:
    """Sends batches until ``until_ns`` (monotonic), or the parent's end; returns how many messages."""
    none, clock_ns = commands.none, time.monotonic_ns
    try:
        source.send(group, QUIET_S, lambda: clock_ns() < until_ns and none())
    except SendTimeout:
        raise SeqcastError(f"no credit for {QUIET_S:g} s after {source.count} messages") from None
    return source.count


class Trips:
    """The messages of a ping-pong, and how long each took to come back."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._size, self._warm = task["size"], task["warm_rounds"]
        self._ns = np.zeros(task["rounds"], dtype=np.int64)
        self.number = 0
        """The number of the round that is under way."""

    def pings(self) -> Iterator[tuple[int, bytes]]:
        """Number and message of each round; those below 0 do not count."""
        rest = bytes(self._size - 8)
        for number in range(-self._warm, len(self._ns)):
            self.number = number
            yield number, number.to_bytes(8, "little", signed=True) + rest

    def back(self, number: int, ping: bytes, answer: Any, ns: int) -> None:
        """The answer of a round that took this long.

        Raises:
            SeqcastError: the answer is a wrong one.
        """
        if answer.payload != ping:
            raise SeqcastError(f"round {number}: a wrong answer")
        if number >= 0:
            self._ns[number] = ns

    def report(self, group: Any, commands: Commands) -> None:
        """Reports percentiles, and waits until the parent has read them."""
        say("done", **halves(self._ns), counters=group.counters())
        with contextlib.suppress(SystemExit):
            commands.next()


class LimitedWait:
    """Ends a ping-pong that cannot go on, by leaving the group: the view has changed, so that the other side may be in
    another one, or no answer comes. Its rounds wait without a limit.

    Args:
        group: of the side that asks; both sides are in its view.
        commands: the parent's; once the parent is gone, the ping-pong is over.
        number: of the round that is under way; None: not known.
    """

    def __init__(self, group: Any, commands: Commands, number: Callable[[], int] | None = None) -> None:
        self._group, self._closed, self._number = group, commands.closed, number or (lambda: 0)
        self._quiet_s = QUIET_S if number else float("inf")
        self._view, self.why = group.view, ""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        number, since = self._number(), time.monotonic()
        while not (self.why or self._closed.wait(SLICE_S)):
            now, view, before = time.monotonic(), self._group.view, number
            number = self._number()
            since = since if number == before else now
            if view.view_id != self._view.view_id:
                self.why = (
                    f"membership changed during the ping-pong, in which a process was suspected or ended: from "
                    f"{self._view} to {view}. Is another load on this machine?"
                )
            elif now - since >= self._quiet_s:
                self.why = f"round {number}: no answer within {self._quiet_s:g} s, though both sides are in {view}"
        if self.why:
            self._group.leave()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self.why:
            raise SeqcastError(self.why) from error


def latency(task: dict[str, Any]) -> None:
    """One side of a ping-pong: member 0 asks, member 1 answers until its input closes."""
    commands = Commands()
    group = join(task, commands, deliver_own=False)
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        if task["sender"]:
            while not commands.closed.is_set():
                message = group.recv(timeout=SLICE_S)
                if message is not None:
                    group.send(message.payload)
            return
        commands.next()
        trips = Trips(task)
        with LimitedWait(group, commands, lambda: trips.number):
            for number, ping in trips.pings():
                start_ns = time.perf_counter_ns()
                group.send(ping)
                answer = group.recv()
                trips.back(number, ping, answer, time.perf_counter_ns() - start_ns)
        trips.report(group, commands)
    finally:
        group.leave()


def latency_at_rate(task: dict[str, Any]) -> None:
    """The side that asks, at a fixed rate: each round trip begins when its question should have been sent, so that a
    stall counts for each delayed question, and not once (coordinated omission)."""
    commands = Commands()
    group = join(task, commands, deliver_own=False)
    every_ns, first = 1e9 / task["rate"], -task["warm_rounds"]
    trips = np.zeros(task["rounds"], dtype=np.int64)
    came = 0
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        commands.next()
        begun_ns = time.perf_counter_ns() - int(first * every_ns)

        def answers() -> None:
            nonlocal came
            for message in group:
                number = int.from_bytes(message.payload[:8], "little", signed=True)
                if number >= 0:
                    trips[number] = time.perf_counter_ns() - begun_ns - int(number * every_ns)
                came += 1

        threading.Thread(target=answers, daemon=True).start()
        rest = bytes(task["size"] - 8)
        with LimitedWait(group, commands, lambda: came):
            for number in range(first, len(trips)):
                until(begun_ns + int(number * every_ns))
                group.send(number.to_bytes(8, "little", signed=True) + rest)
            while came < len(trips) - first:
                group.send_many([])  # raises once the group is left
                time.sleep(SLICE_S / 4)
        say("done", **halves(trips), counters=group.counters())
        with contextlib.suppress(SystemExit):
            commands.next()
    finally:
        group.leave()


def until(ns: int) -> None:
    """Sleeps until this time of the performance counter; the last moment is waited for without sleeping."""
    while (left := ns - time.perf_counter_ns()) > 0:
        if left > NAP_NS:
            time.sleep((left - NAP_NS) / 1e9)


def latency_c(task: dict[str, Any]) -> None:
    """The same in C, by the table of functions."""
    from seqcast._native.bare import table_ping, table_pong

    commands = Commands()
    group = join(task, commands, deliver_own=False)
    leave_when_parent_ends(group, commands)
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        if task["sender"]:
            table_pong(group)
            return
        commands.next()
        with LimitedWait(group, commands):
            trips = table_ping(group, size=task["size"], warm_rounds=task["warm_rounds"], rounds=task["rounds"])
        say("done", **halves(trips), counters=group.counters())
        with contextlib.suppress(SystemExit):
            commands.next()
    finally:
        group.leave()


def listener(task: dict[str, Any]) -> None:
    """A member that takes no part in the ping-pong, but receives its messages until the input closes."""
    commands = Commands()
    group = join(task, commands)
    try:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        while not commands.closed.is_set():
            group.recv(timeout=SLICE_S)
    finally:
        group.leave()


async def latency_aio(task: dict[str, Any]) -> None:
    """The same in asyncio."""
    import seqcast.aio

    commands = Commands()
    group = seqcast.aio.Group(await asyncio.to_thread(join, task, commands, deliver_own=False))
    leave_when_parent_ends(group.sync, commands)
    async with group:
        say("ready", rss_mb=resident_mb(), counters=group.counters())
        if task["sender"]:
            async for message in group:
                await group.send(message.payload)
            return
        await asyncio.to_thread(commands.next)
        trips, messages = Trips(task), aiter(group)
        with LimitedWait(group.sync, commands, lambda: trips.number):
            for number, ping in trips.pings():
                start_ns = time.perf_counter_ns()
                await group.send(ping)
                answer = await anext(messages)
                trips.back(number, ping, answer, time.perf_counter_ns() - start_ns)
        trips.report(group, commands)


def main() -> int:
    """Runs the task in argv, or that of the first line of standard input (``-``); reports a failure to the parent in
    one line."""
    if sys.argv[1] != "-":
        task = json.loads(sys.argv[1])
    else:
        if not (line := sys.stdin.readline()):
            return 0
        task = json.loads(line)["task"]
        about = hosts.about(str(task.get("settings", {}).get("interface", "")))
        if task["role"] == "hello":
            say("hello", **about, busy=hosts.busy_cores(LOOK_S))
            return 0
        say("hello", **about)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        roles: dict[str, Callable[[dict[str, Any]], None]] = {
            "member": member, "plain": plain, "aio": lambda task: asyncio.run(aio(task)),
            "latency": latency, "latency_c": latency_c, "latency_aio": lambda task: asyncio.run(latency_aio(task)),
            "listener": listener, "latency_at_rate": latency_at_rate,
        }  # fmt: skip
        roles.get(task["role"], bare)(task)
    except (SeqcastError, OSError, NotImplementedError) as error:
        say("failed", text=without_code(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
