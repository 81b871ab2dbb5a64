"""``seqcast demo``: a whole group on this machine. The group gets real input, loses its coordinator to SIGKILL, admits
a new member, and leaves; then Spark checks the guarantees in the members' journals.

Each member is a process (``demo_member``). This process starts and controls them, kills one and prints the events; and
is not a member.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import queue
import re
import secrets
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqcast.cli import complain
from seqcast.cli.options import add_shared_options, parser, shared_settings
from seqcast.commandline import count, positive, seconds, whole
from seqcast.config import Config

NEEDS = ("pyspark", "pyarrow", "seqcast.spark.auditing", "seqcast.cli.fault")  # a missing one is reported at once
MEMBERS_MAX = 16
FAULTS = ("swap", "drop", "duplicate")
"""The faults that ``fault.plant`` can put into a journal."""
STEP_TIMEOUT_S = 30.0  # for one step of the demo: a start, a view, a leave


class DemoFailed(Exception):
    """The demo waited in vain for the group."""


@dataclass
class Process:
    """One member's process, and its last report."""

    name: str
    popen: subprocess.Popen[str]
    killed: bool = False
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)

    def total(self, what: str) -> int:
        """A counter of the member's, as last reported."""
        return int((self.reports.get("totals") or self.reports.get("counters") or {}).get(what, 0))

    def tell(self, line: str) -> None:
        """Gives the member a command."""
        assert self.popen.stdin is not None
        try:
            print(line, file=self.popen.stdin, flush=True)
        except BrokenPipeError:
            pass  # ended, which the reader thread reports


class Demo:
    """The group: its processes by name, their reports, and the printed events."""

    def __init__(self, arguments: argparse.Namespace, source: Path, journals: Path) -> None:
        self.arguments = arguments
        self.source = source
        self.journals = journals
        given = shared_settings(arguments)
        given.pop("order", None)
        self.config = Config.for_command(**given, journal=str(journals))
        self.interface = arguments.interface or ("::1" if self.config.ip_version == 6 else "127.0.0.1")
        self.cluster = f"demo-{secrets.token_hex(4)}"
        self.processes: dict[str, Process] = {}
        self.inbox: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.views: dict[tuple[int, tuple[str, ...]], dict[str, int]] = {}  # view -> its time at each member
        self.warned: set[str] = set()
        self.begin = time.monotonic()
        self.killed_ns = 0
        self.traffic_at = self.begin
        self.traffic: dict[str, int] = {}

    # ---- the acts ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs the group from its start to its end."""
        first, *others = list(string.ascii_lowercase[: self.arguments.members])
        joiner = string.ascii_lowercase[self.arguments.members]
        self.start(first, 0)
        self.wait_for_view({first})
        for number, name in enumerate(others, 1):
            self.start(name, number)
        self.wait_for_view({first, *others})
        self.tell_all("send")
        self.pass_time(self.arguments.seconds)

        coordinator = self.coordinator()
        self.say("KILL", f"SIGKILL to {coordinator}, the coordinator")
        self.kill(coordinator)
        self.wait_for_view({first, *others} - {coordinator})
        self.pass_time(self.arguments.seconds)

        self.start(joiner, 0)
        self.wait_for_view({first, *others, joiner} - {coordinator})
        self.processes[joiner].tell("send")
        self.pass_time(self.arguments.seconds)

        self.tell_all("stop")
        self.wait("all to stop sending", lambda: all("stopped" in p.reports for p in self.alive()))
        again = sum(process.total("sent_again") for process in self.alive())
        self.say("leave", f"all members leave; {count(again, 'packet')} retransmitted in total")
        self.leave()
        for process in self.alive():
            self.say("left", f"{process.name}: {count(process.total('delivered'), 'message')} delivered")

    def start(self, name: str, number: int) -> None:
        """Starts a member's process; the share of the input is the ``number``-th."""
        command = [sys.executable, "-m", "seqcast.cli.demo_member", "--cluster", self.cluster, "--name", name]
        settings = {
            **shared_settings(self.arguments),
            **self.places(),
            "interface": self.interface,
            "journal": str(self.journals),
            "join_timeout_s": STEP_TIMEOUT_S,
        }
        command += ["--settings", json.dumps(settings), "--input", str(self.source)]
        command += ["--share", str(number), "--shares", str(self.arguments.members), "--rate", str(self.arguments.rate)]
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # this process ends the members in order on a signal to its group
        )
        self.processes[name] = Process(name, popen)
        threading.Thread(target=self._read, args=(name, popen), daemon=True).start()
        self.say("start", f"{name} (process {popen.pid})")

    def places(self) -> dict[str, Any]:
        """Settings by which the next member finds the others without multicast, all on one machine; those that were
        not given. (Loopback carries no multicasts of IPv6.)"""
        if self.config.transport == "multicast" or (self.config.transport, self.config.ip_version) == ("auto", 4):
            return {}
        known = [process.reports["joined"]["address"] for process in self.alive() if "joined" in process.reports]
        seeds = {} if self.config.seeds or not known else {"seeds": known[:1]}
        return {"port_range": max(self.config.port_range, self.arguments.members), **seeds}

    def kill(self, name: str) -> None:
        """Kills a member's process with SIGKILL."""
        process = self.processes[name]
        process.killed = True
        self.killed_ns = time.time_ns()
        process.popen.kill()

    def leave(self) -> None:
        """Lets all members leave together and waits until their processes ended."""
        self.tell_all("leave")
        self.wait("all to leave", lambda: all("left" in p.reports for p in self.alive()))
        for process in self.processes.values():
            process.popen.wait(STEP_TIMEOUT_S)

    def close(self) -> None:
        """Ends the processes that still run: the end of its input makes a member leave; after 5 s the process is
        killed."""
        running = [process for process in self.processes.values() if process.popen.poll() is None]
        for process in running:
            assert process.popen.stdin is not None
            try:
                process.popen.stdin.close()
            except BrokenPipeError:
                pass
        deadline = time.monotonic() + 5
        for process in running:
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()

    # ---- reports -------------------------------------------------------------------------------------------------

    def _read(self, name: str, popen: subprocess.Popen[str]) -> None:
        assert popen.stdout is not None
        for line in popen.stdout:
            self.inbox.put((name, json.loads(line)))
        self.inbox.put((name, {"event": "ended", "status": popen.wait()}))

    def pump(self, timeout_s: float) -> None:
        """Handles one report, if one comes in time."""
        try:
            name, report = self.inbox.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return
        process = self.processes[name]
        process.reports[report["event"]] = report
        match report["event"]:
            case "view":
                self._view(name, report)
            case "failed":
                self.say(report["event"].upper(), f"{name}: {report['reason']}")
            case "warned":  # all members are on one machine: once is enough
                text = report["text"].removeprefix(f"{name}: ")
                same = re.sub(r"; took \d+ ms", "", text)  # each member has its own time
                if same not in self.warned:
                    self.warned.add(same)
                    self.say("warning", f"{name}: {text}")
            case "excluded":
                raise DemoFailed(
                    f"{name} was excluded though it is alive ({report['reason']}): this machine is too busy; try "
                    "fewer --members or a lower --rate"
                )
            case "ended" if not process.killed and "left" not in process.reports:
                raise DemoFailed(f"member {name} ended early, with status {report['status']}")
        if report["event"] == "counters":
            self._traffic()

    def _view(self, name: str, report: dict[str, Any]) -> None:
        members = tuple(report["members"])
        installed = self.views.setdefault((report["view"], members), {})
        installed[name] = report["at_ns"]
        if set(installed) != set(members):
            return
        text = f"[{', '.join(members)}] {members[0]} coordinates"
        if report["sequencer"]:
            text += f", {report['sequencer']} orders"
        if len(members) > 1:
            text += f"; installed by all within {(max(installed.values()) - min(installed.values())) / 1e6:.1f} ms"
        if self.killed_ns:
            text += f", {(max(installed.values()) - self.killed_ns) / 1e6:.0f} ms after the kill"
            self.killed_ns = 0
        if report["merged"]:
            text += "; a living member had been excluded, because this machine is busy, and has merged back"
        self.say(f"view {report['view']}", text)

    def _traffic(self) -> None:
        """Prints the group's throughput, once a second."""
        now = time.monotonic()
        if now - self.traffic_at < 1:
            return
        totals = {
            what: [process.total(what) for process in self.alive()] for what in ("sent", "delivered", "sent_again")
        }
        sent = sum(process.total("sent") for process in self.processes.values())
        delivered = max(totals["delivered"])
        again = sum(totals["sent_again"])
        past, self.traffic = self.traffic, {"sent": sent, "delivered": delivered, "again": again}
        took, self.traffic_at = now - self.traffic_at, now
        if past and sent > past["sent"]:
            self.say(
                "traffic",
                f"{(sent - past['sent']) / took:,.0f} messages/s sent, {(delivered - past['delivered']) / took:,.0f}/s "
                f"delivered at each, {count(max(0, again - past['again']), 'packet')} retransmitted",
            )

    # ---- waiting and printing ------------------------------------------------------------------------------------

    def pass_time(self, for_s: float) -> None:
        """Lets the group work for a while."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            self.pump(until - time.monotonic())

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        """Handles reports until ``done``.

        Raises:
            DemoFailed: ``done`` was still false after ``STEP_TIMEOUT_S``.
        """
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while not done():
            if time.monotonic() > deadline:
                raise DemoFailed(f"gave up after waiting {STEP_TIMEOUT_S:g} s for {what}")
            self.pump(0.2)

    def wait_for_view(self, names: set[str]) -> None:
        """Waits until every one of ``names`` has installed a view of exactly these members."""
        processes = [self.processes[name] for name in sorted(names)]

        def installed(process: Process) -> list[str]:
            return list(process.reports.get("view", {}).get("members", ()))

        try:
            self.wait(
                f"a view of {', '.join(sorted(names))}",
                lambda: all(set(installed(process)) == names for process in processes),
            )
        except DemoFailed as error:
            views = "; ".join(f"{process.name} is in [{', '.join(installed(process))}]" for process in processes)
            raise DemoFailed(f"{error}: {views}. `seqcast doctor --interface {self.interface}` looks why") from None

    def alive(self) -> list[Process]:
        """The processes that were not killed."""
        return [process for process in self.processes.values() if not process.killed]

    def coordinator(self) -> str:
        """Name of the member with rank 0."""
        return str(self.alive()[0].reports["view"]["members"][0])

    def tell_all(self, line: str) -> None:
        """Gives every member a command."""
        for process in self.alive():
            process.tell(line)

    def say(self, what: str, text: str) -> None:
        """Prints one event."""
        print(f"{time.monotonic() - self.begin:6.2f} s  {what:8} {text}", flush=True)


def default_input() -> Path:
    """A text that every Python comes with: the source of its decimal module, some 6,000 lines."""
    found = importlib.util.find_spec("_pydecimal")
    return Path(found.origin if found and found.origin else "_pydecimal.py")


def main(arguments: argparse.Namespace) -> int:
    """Runs the demo and the audit; the exit status is the audit's."""
    from seqcast.cli.fault import plant
    from seqcast.spark import command as audit

    source = Path(arguments.input) if arguments.input else default_input()
    try:
        lines = [len(line) for line in source.read_bytes().split(b"\n") if line]
    except OSError as error:
        return complain(f"cannot read {source}: {error.strerror}; give a text file with --input")
    if not lines:
        return complain(f"{source} has no lines to send; give another text file with --input")
    journals = Path(arguments.journal or f"journals/demo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    demo = Demo(arguments, source, journals)
    if max(lines) > (most := demo.config.message_bytes_max):
        return complain(
            f"{source} has a line of {max(lines)} bytes, and messages may have {most} (message_bytes_max): allow more, "
            "or give another text file with --input"
        )
    try:
        journals.mkdir(parents=True, exist_ok=True)
        if any(journals.iterdir()):
            return complain(f"{journals} is not empty; name a new folder with --journal")
    except OSError as error:
        return complain(f"cannot write to {journals}: {error.strerror}; name another folder with --journal")

    way = demo.config.transport
    if way == "auto":
        way = "multicast" if demo.config.ip_version == 4 else "multicast or unicast"
    print(
        f"{count(arguments.members, 'member')} by {way} on {demo.interface}, order {arguments.order}; each sends "
        f"{arguments.rate:,.0f} lines/s of {source.name} ({count(len(lines), 'line')})"
    )
    try:
        demo.run()
    except DemoFailed as error:
        return complain(str(error), 1)
    finally:
        demo.close()
    if arguments.plant_fault:
        demo.say("fault", plant(arguments.plant_fault, journals, demo.alive()[0].name))
    demo.say("audit", "Spark reads the journals (this takes some seconds)")
    status = int(audit.main(audit.parse([str(journals)])))
    print(f"journals: {journals}     (again: seqcast audit {journals})")
    return status


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments."""
    result = parser(
        "demo",
        "Start a group of processes on this machine, send lines of a file, kill the coordinator in the middle,\n"
        "let another member join, and let Spark check the members' journals: did all deliver the same messages\n"
        "in the same order? The exit status is that of the audit.",
        "example: seqcast demo --members 6 --input /usr/share/dict/words",
    )
    result.add_argument(
        "--input", metavar="FILE", help="text file, each line a message (default: the source of Python's decimal)"
    )
    result.add_argument(
        "--members", type=members, default=4, metavar="N", help="members at the start, 3 or more (%(default)s)"
    )
    add_shared_options(result)
    result.add_argument("--interface", help="network interface, by name or address (loopback)")
    result.add_argument(
        "--rate", type=positive, default=10_000, metavar="R", help="lines/s each member sends (%(default)s)"
    )
    result.add_argument(
        "--seconds", type=seconds, default=3.0, metavar="S", help="length of each of the three acts (%(default)g)"
    )
    result.add_argument("--journal", metavar="DIR", help="new folder for the journals (default: journals/demo-...)")
    result.add_argument(
        "--plant-fault",
        nargs="?",
        const=FAULTS[0],
        choices=FAULTS,
        help="falsify one member's journal after the run, to see the audit find the fault (if none is named: "
             "%(const)s)",
    )
    return result.parse_args(argv)


def members(text: str) -> int:
    """Argument type: how many members the demo starts; at least two must survive the crash."""
    return whole(text, 3, MEMBERS_MAX)
