"""The processes of one run: started together, controlled by lines of JSON, ended together."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias

import seqcast.codes as codes
from seqcast.errors import SeqcastError, without_code
from seqcast.perf import hosts
from seqcast.perf.paths import PathError, Place

HELLO_S = 30.0
"""Limit for a process on another host to start."""
LEAVE_S = 10.0
"""A process that does not end by itself within this time is killed."""
LOOK_S = 0.5
"""How often the others are looked at while one is waited for."""
NOTES = 20
"""Lines of a process that are not reports, of which the last ones are kept."""


class RunFailed(SeqcastError):
    """A process of the measurement failed; the message is its own."""

    code = codes.NOT_MEASURED.number


Inbox: TypeAlias = "queue.Queue[tuple[Process, str | None]]"


class Process:
    """One process that takes commands, and answers, in lines of JSON. Other lines, such as the greeting of a host, are
    kept for messages about faults.

    When this process dies, the other's standard input closes, which ends that one, too.

    Args:
        command: starts the process.
        name: of the process, for messages.
        inbox: takes its lines, and None at their end; several processes may share one. None: one of its own, for
            ``expect``.
        options: of ``subprocess.Popen``.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str], name: str, inbox: Inbox | None = None, **options: Any) -> None:
        self.name = name
        self.said: dict[str, Any] = {}  # of its host
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the parent, which ends them in order
            **options,
        )
        self._inbox: Inbox = inbox or queue.Queue()
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._inbox.put((self, line))
        self._inbox.put((self, None))

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        self._notes.extend(iter(self._child.stderr.readline, ""))

    def tell(self, **message: Any) -> None:
        """Sends one line; if the process is gone, the next ``expect`` raises."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()

    def expect(self, event: str, timeout_s: float, beside: Sequence[Process] = ()) -> dict[str, Any]:
        """Waits for its next report, which must be this event; ``{"event": "failed", "text": ...}`` names the fault.

        Args:
            event: that is waited for.
            timeout_s: how long at most.
            beside: processes without which it may never come.

        Raises:
            RunFailed: the process failed, ended, sent another event, or sent nothing within ``timeout_s``; or one of
                the others failed or ended.
        """
        until = time.monotonic() + timeout_s
        while True:
            try:
                _, line = self._inbox.get(timeout=max(0.0, min(LOOK_S, until - time.monotonic())))
            except queue.Empty:
                for each in beside:
                    each.check()
                if time.monotonic() < until:
                    continue
                late = f"{self.name} did not report {event!r} within {timeout_s:g} s"
                raise RunFailed(f"{late}: the process, or the way there, hangs{self._noted()}") from None
            if line is None:
                raise self._ended()
            message = self._report_in(line)
            if message is not None and message["event"] != event:
                raise self._failed(message)
            if message is not None:
                return message

    def check(self) -> None:
        """
        Raises:
            RunFailed: the process has failed, or was killed.
        """
        if self._child.poll() in (None, 0):
            return
        until = time.monotonic() + LOOK_S  # a process that it has started may hold its output open
        with contextlib.suppress(queue.Empty):
            while (left := until - time.monotonic()) > 0 and (line := self._inbox.get(timeout=left)[1]) is not None:
                message = self._report_in(line)
                if message is not None and message["event"] == "failed":
                    raise self._failed(message)
        raise self._ended()

    def _report_in(self, line: str) -> dict[str, Any] | None:
        """The report in a line; None: the line has none, and is noted."""
        message = report_of(line)
        if message is None:
            self._notes.append(line)
        return message

    def _failed(self, message: dict[str, Any]) -> RunFailed:
        return RunFailed(f"{self.name}: {message.get('text', message)}")

    def _ended(self) -> RunFailed:
        """The error about a process whose output has ended."""
        try:
            status = self._child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return RunFailed(f"{self.name} closed its output, but goes on{self._noted()}")
        self._errors.join(LOOK_S)
        return RunFailed(f"{self.name} ended with status {status}{self._noted() or ': no message'}")

    def _noted(self) -> str:
        text = "".join(self._notes).strip()
        return f": {text}" if text else ""

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        """Kills the process, and those that it has started, as a command that leads to another host may have."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        """Asks the process to end by closing its standard input; ``wait`` waits for the end."""
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()

    def wait(self, until: float) -> None:
        """Waits until the monotonic time ``until`` for the process to end, then kills it; of one that failed, those
        that it has started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._child.wait(max(0.0, until - time.monotonic())) == 0:
                return
        self.kill()


class Processes:
    """A context that ends its processes on exit; a process that does not end within ``leave_s`` is killed."""

    def __init__(self, leave_s: float = LEAVE_S) -> None:
        self.all: list[Process] = []
        self._leave_s = leave_s

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.all:
            process.close()
        until = time.monotonic() + self._leave_s
        for process in self.all:
            process.wait(until)

    def start(self, place: Place, task: dict[str, Any], pass_fds: Sequence[int] = ()) -> Process:
        """Starts ``python -m seqcast.perf.worker`` with its task as JSON, at its place. On another host the process
        first reports itself, and gets its task as a line: the arguments may go through a shell there.

        Raises:
            PathError: another host has another release, or cannot be reached.
            RunFailed: the process there does not answer.
        """
        command = [*place.prefix, place.python or sys.executable, "-m", "seqcast.perf.worker"]
        name = str(task.get("name", task["role"]))
        if not place.host:
            process = Process([*command, json.dumps(task)], name, pass_fds=tuple(pass_fds))
            self.all.append(process)
            return process
        shown = f"`{shlex.join([*command[:-1], 'seqcast', '--version'])}`"
        try:
            process = Process([*command, "-"], f"{name} on {place.host}")
        except OSError as error:
            fault = f"--via: {place.prefix[0]} cannot be started: {error.strerror}"
            raise PathError(f"{fault}; give one that leads to {place.host}") from None
        self.all.append(process)
        process.tell(task=task)
        try:
            process.said = process.expect("hello", HELLO_S)
        except RunFailed as error:
            remedy = f"{shown} must print seqcast's release and end, and pass on its standard input"
            raise RunFailed(f"{without_code(error)}. {remedy}: change --via or --python") from None
        hosts.check(place.host, process.said)
        return process


def report_of(line: str) -> dict[str, Any] | None:
    """The report in a line; None: it is something else, such as a greeting, or the echo of a terminal."""
    try:
        message = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return message if isinstance(message, dict) and "event" in message else None


def addressed(places: Sequence[Place], *, anyway: bool = True) -> tuple[Place, ...]:
    """Places on other hosts with their addresses, which each host is asked for: names that lead to a host from here,
    such as those of pods and containers, need not be known to the others.

    Args:
        anyway: other programs may keep the hosts busy.

    Raises:
        PathError: a host has another release, or is busy.
        RunFailed: a host cannot be reached.
    """
    with Processes() as processes:
        said: dict[str, dict[str, Any]] = {}
        for place in places:
            if place.host not in said:
                task = {"role": "hello", "name": "a worker", "settings": {"interface": place.interface}}
                about = processes.start(place, task).said
                if not anyway and about["busy"] > hosts.BUSY_MAX:
                    busy = f"other programs use {about['busy']:.2f} of a core on {place.host}"
                    raise PathError(f"{busy}, which falsifies figures: end them, or --anyway")
                said[place.host] = about
    return tuple(
        replace(place, address=said[place.host]["address"], machine=said[place.host]["machine"]) for place in places
    )


class Crew(Processes):
    """Processes of members that stay for several runs: most of a short run would be the start of its processes.

    All runs have the same places. After a run that failed the next one has new processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._busy = 0

    @contextlib.contextmanager
    def run(self) -> Iterator[Processes]:
        """A run: ``start`` gives each process of the run before a new task, in their order, before any others are
        started.

        Raises:
            RunFailed: at the end: a process did not end its task.
        """
        self._busy = 0
        try:
            yield self
            for process in self.all[: self._busy]:
                process.expect("over", LEAVE_S)
        except BaseException:
            for process in self.all:
                process.kill()
            self.all.clear()
            raise

    def start(self, place: Place, task: dict[str, Any], pass_fds: Sequence[int] = ()) -> Process:
        """``Processes.start``, or the next task of a process that stayed, at the same place."""
        self._busy += 1
        if self._busy > len(self.all):
            return super().start(place, task, pass_fds)
        process = self.all[self._busy - 1]
        process.tell(task=task)
        return process
