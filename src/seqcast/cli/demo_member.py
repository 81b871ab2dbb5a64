"""One member of the demo, a process of its own: ``python -m seqcast.cli.demo_member``.

It joins, sends its share of the input at a steady rate at the demo's request, journals its deliveries, and reports
events as JSON lines on standard output. Its commands are lines on standard input: ``send``,
``stop``, ``leave``; the end of its input means ``leave`` too, so that no member outlives the demo.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import seqcast
from seqcast.commandline import plain_messages

REPORT_S = 0.5
BURST_S = 0.01  # lines are sent in bursts of this length


class DemoMember:
    """A member, its sender and its reports. The threads share ``group``, which is thread-safe, and plain flags."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.lines = share(arguments.input, arguments.share, arguments.shares)
        self.sending = threading.Event()
        self.idle = threading.Event()
        self.leaving = threading.Event()
        self.sent = self.delivered = 0
        self.output = threading.Lock()

    def run(self) -> int:
        """Runs the member from its join to its leave."""
        with seqcast.join(
            self.arguments.cluster,
            name=self.arguments.name,
            **self.arguments.settings,
        ) as group:
            self.report("joined", address=group.path["address"])
            threads = [
                threading.Thread(target=work, args=(group,), daemon=True) for work in (self.obey, self.send, self.count)
            ]
            for thread in threads:
                thread.start()
            excluded = self.receive(group)
            self.report("totals", **self.totals(group))
        self.report("left")
        return 1 if excluded else 0

    def receive(self, group: seqcast.Group) -> bool:
        """Takes events until the group is left; true when this member was excluded."""
        for event in group.events():
            if isinstance(event, seqcast.Message):
                self.delivered += 1
            elif isinstance(event, seqcast.View):
                self.report(
                    "view",
                    view=event.view_id.counter,
                    members=[member.name for member in event.members],
                    sequencer=event.members[event.sequencer].name if event.sequencer >= 0 else None,
                    merged=isinstance(event, seqcast.MergeView),
                    at_ns=time.time_ns(),
                )
            elif isinstance(event, seqcast.Excluded):
                self.report("excluded", reason=event.reason)
                return True
        return False

    def send(self, group: seqcast.Group) -> None:
        """Sends the share, round and round, at the rate asked for, while ``sending`` is set."""
        burst = max(1, round(self.arguments.rate * BURST_S))
        at = 0
        due = time.monotonic()
        while not self.leaving.is_set():
            if not self.sending.is_set():
                self.idle.set()
                self.sending.wait(BURST_S)
                due = time.monotonic()
                continue
            self.idle.clear()
            lines = [self.lines[(at + i) % len(self.lines)] for i in range(burst)]
            try:
                group.send_many(lines)
            except seqcast.NotMember:
                break
            at += burst
            self.sent += burst
            due += burst / self.arguments.rate
            time.sleep(max(0.0, due - time.monotonic()))
        self.idle.set()

    def count(self, group: seqcast.Group) -> None:
        """Reports the counters now and then."""
        while not self.leaving.wait(REPORT_S):
            self.report("counters", **self.totals(group))

    def obey(self, group: seqcast.Group) -> None:
        """Carries out the commands from standard input."""
        for line in sys.stdin:
            match line.strip():
                case "send":
                    self.sending.set()
                case "stop":
                    self.sending.clear()
                    self.idle.wait()
                    self.report("stopped", sent=self.sent)
                case "leave":
                    break
        self.sending.clear()
        self.leaving.set()
        self.idle.wait()
        group.leave()

    def totals(self, group: seqcast.Group) -> dict[str, int]:
        """Messages sent and delivered, and packets retransmitted, so far."""
        counters = group.counters()
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "sent_again": counters["packets_retransmitted"],
            "asked_again": counters["naks_sent"],
            "stamped": counters["stamped"],
        }

    def report(self, event: str, **row: Any) -> None:
        """Writes one JSON line."""
        with self.output:
            print(json.dumps({"event": event, **row}), flush=True)


def share(path: str, number: int, of: int) -> list[bytes]:
    """Every ``of``-th line of a file, from line ``number`` on, without empty ones; all lines if there would be none."""
    with open(path, "rb") as file:
        lines = [line for line in file.read().split(b"\n") if line]
    return lines[number::of] or lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one member; started by ``seqcast demo``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--settings", type=json.loads, required=True, help="of seqcast.join, as JSON")
    parser.add_argument("--input", required=True)
    parser.add_argument("--share", type=int, required=True)
    parser.add_argument("--shares", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="lines per second")
    seqcast.leave_on_signals()  # sent to this process; our parent closes our input
    member = DemoMember(parser.parse_args(argv))
    try:
        with plain_messages(lambda text: member.report("warned", text=text)):
            return member.run()
    except seqcast.SeqcastError as error:
        print(json.dumps({"event": "failed", "reason": str(error)}), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
