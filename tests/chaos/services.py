"""The services of ``examples/`` under real faults:
``PYTHONPATH=tests:tests/helpers python -m chaos.services --faults 200``.

Three members, each in a network namespace of its own (this needs root), are killed and started again, stopped for a
while, or cut off, one after the other, while clients use the service:

    key_value   no answered write is lost, and no read is stale: each key has one writer, who counts
    scheduler   no job runs twice, and fences grow with the jobs
    feed        no change that follows a snapshot is missing, and in the end all watchers have the same values
    chat        after each fault everyone sees the lines of all, and those who are in one view see them in one order
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from netns import cut_off, python

from seqcast.board.read import boards
from seqcast.perf.paths import Place, bridged

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_S = 120.0
"""For a service to answer after a fault, on a busy machine."""
CLIENT = """
import http.client, itertools, json, sys, time
mine, *keys = sys.argv[1:]
def ask(method, key, body=None):
    begun = time.monotonic()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=20)
        connection.request(method, "/" + key, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        found = {200: int(text or 0) if answer.status == 200 else 0, 204: body, 404: 0}.get(answer.status)
    except (OSError, http.client.HTTPException):
        found = None
        time.sleep(0.05)
    value = body if method == "PUT" else found
    print(json.dumps([method, key, value, found is not None, begun, time.monotonic()]), flush=True)
for number in itertools.count(1):
    ask("PUT", mine, str(number))
    for key in keys:
        ask("GET", key)
"""


class Service(ABC):
    """An example on three members.

    Args:
        places: of the members.
    """

    name: str
    cluster: str
    sign = ""
    """Text in each line that shows that the service is there."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self.lines: list[tuple[int, float, str]] = []  # that members and clients printed: place, time, text
        self.readers: list[threading.Thread] = []
        self.members = [self.start(at) for at in range(len(places))]

    @abstractmethod
    def arguments(self, at: int) -> list[str]: ...

    @abstractmethod
    def wrong(self) -> list[str]:
        """The broken promises, after the end."""

    def start(self, at: int) -> subprocess.Popen[str]:
        return self.run(at, str(EXAMPLES / f"{self.name}.py"), *self.arguments(at))

    def run(self, at: int, *command: str) -> subprocess.Popen[str]:
        process = python(self.places[at], *command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self.lines.append((at, time.monotonic(), line))

        self.readers.append(threading.Thread(target=read, daemon=True))
        self.readers[-1].start()
        return process

    def whole(self) -> bool:
        """Are all members in one view?"""
        pids = {process.pid for process in self.members}
        here = [board.about for board in boards(self.cluster) if board.about["pid"] in pids]
        views = {(about["view"]["counter"], len(about["view"]["members"]), about["status"]["name"]) for about in here}
        return len(here) == len(pids) and {each[1:] for each in views} == {(len(pids), "member")} and len(views) == 1

    def settle(self) -> None:
        """Waits until all members are in one view, and each place has printed something since."""
        end = time.monotonic() + LIMIT_S
        while not self.whole():
            assert time.monotonic() < end, f"{self.name}: not all members are in one view"
            time.sleep(0.05)
        begun = len(self.lines)
        while not self.heard({at for at, _, line in self.lines[begun:] if self.sign in line}):
            assert time.monotonic() < end, f"{self.name}: a member does not answer"
            time.sleep(0.02)

    def heard(self, places: set[int]) -> bool:
        return len(places) == len(self.places)

    def fault(self, rng: random.Random) -> None:
        at = rng.randrange(len(self.places))
        kind = rng.choice(("kill", "stop", "cut"))
        if kind == "kill":
            self.members[at].kill()
            self.members[at].wait()
            self.members[at] = self.start(at)
        elif kind == "stop":
            self.members[at].send_signal(signal.SIGSTOP)
            time.sleep(rng.choice((0.05, 0.3, 1.0)))
            self.members[at].send_signal(signal.SIGCONT)
        else:
            with cut_off([self.places[at]]):
                time.sleep(rng.choice((0.05, 0.3, 1.0)))

    def close(self) -> None:
        for process in self.members:
            process.kill()
            process.wait()
        for thread in self.readers:
            thread.join(5.0)


class KeyValue(Service):
    name, cluster = "key_value", "key-value"

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(places)
        self.clients = [self.run(at, "-c", CLIENT, *sorted("abc", key=lambda key: key != "abc"[at])) for at in range(3)]

    def arguments(self, at: int) -> list[str]:
        return ["abc"[at], "8000"]

    def heard(self, places: set[int]) -> bool:
        return all(json.loads(self.last(at))[3] for at in range(3)) and super().heard(places)

    def last(self, at: int) -> str:
        return next((line for place, _, line in reversed(self.lines) if place == at), "[0, 0, 0, false]")

    def close(self) -> None:
        for client in self.clients:
            client.kill()
            client.wait()
        super().close()

    def wrong(self) -> list[str]:
        asked = [json.loads(line) for _, _, line in self.lines if line.endswith("]\n")]
        found = []
        for key in "abc":
            puts = [each for each in asked if each[:2] == ["PUT", key]]  # in the order of their numbers and times
            begins = [each[4] for each in puts]
            gets = [each for each in asked if each[:2] == ["GET", key] and each[3]]
            known = sorted((each[5], int(each[2])) for each in [*gets, *(put for put in puts if put[3])])
            at = least = 0
            for _, _, value, _, begun, ended in sorted(gets, key=lambda each: each[4]):
                while at < len(known) and known[at][0] < begun:
                    least, at = max(least, known[at][1]), at + 1
                if value < least:
                    found.append(f"a read of {key} gave {value} after {least} was known")
                if value > bisect(begins, ended) + 1:  # one more, that is under way: its line comes at its end
                    found.append(f"a read of {key} gave {value}, which nobody had written")
        return found


class Scheduler(Service):
    name = cluster = "scheduler"
    sign = " runs job "

    def arguments(self, at: int) -> list[str]:
        return ["abc"[at]]

    def heard(self, places: set[int]) -> bool:
        return bool(places)  # the leader alone prints

    def wrong(self) -> list[str]:
        runs = [line.split() for _, _, line in self.lines if self.sign in line and line.endswith("\n")]
        jobs = sorted((int(words[3]), int(words[6])) for words in runs)
        numbers, fences = [number for number, _ in jobs], [fence for _, fence in jobs]
        found = [f"job {number} ran twice" for number in {each for each in numbers if numbers.count(each) > 1}]
        return found + ([] if fences == sorted(set(fences)) else [f"fences do not grow: {fences}"])


class Feed(Service):
    name = cluster = "feed"

    def arguments(self, at: int) -> list[str]:
        return [["publish", "a", "tea", "milk"], ["watch", "b"], ["watch", "c", "0.002"]][at]

    def heard(self, places: set[int]) -> bool:
        return {1, 2} <= places

    def close(self) -> None:
        self.members[0].kill()
        end = time.monotonic() + LIMIT_S
        while self.lines and time.monotonic() - self.lines[-1][1] < 2.0 and time.monotonic() < end:
            time.sleep(0.1)
        super().close()

    def wrong(self) -> list[str]:
        found, last = [], []
        for at in (1, 2):
            number, values = -1, {}
            for _, _, line in (each for each in self.lines if each[0] == at and each[2].endswith("\n")):
                kind, place, *words = line.split(maxsplit=3)
                if kind == "snapshot":
                    values = json.loads(words[1])
                elif int(place) != number + 1:
                    found.append(f"watcher {at}: change {place} follows {number}")
                else:
                    values[words[0]] = [int(words[1].split()[0]), float(words[1].split()[1])]
                number = int(place)
            last.append(values)
        return found + ([] if last[0] == last[1] else [f"the watchers have {last}"])


class Chat(Service):
    name = cluster = "chat"
    AGAIN_S = 3.0

    def __init__(self, places: Sequence[Place]) -> None:
        self.round = 0
        self.marks = [0]  # where the lines of each round begin
        super().__init__(places)

    def arguments(self, at: int) -> list[str]:
        return ["abc"[at]]

    def settle(self) -> None:
        """All say something, again if a view change took that from some."""
        end = time.monotonic() + LIMIT_S
        while True:
            while not self.whole():
                assert time.monotonic() < end, "chat: not all members are in one view"
                time.sleep(0.05)
            begun, self.round = len(self.lines), self.round + 1
            self.marks.append(begun)
            for member in self.members:
                assert member.stdin is not None
                member.stdin.write(f"{self.round}\n")
                member.stdin.flush()
            patience = time.monotonic() + self.AGAIN_S
            while time.monotonic() < patience:
                if all(len(self.said(at, begun)) == 3 for at in range(3)):
                    return
                time.sleep(0.02)
            assert time.monotonic() < end, f"chat: {self.lines[begun:]} is all that was seen of round {self.round}"

    def said(self, at: int, begun: int) -> list[str]:
        """The lines of this round that were seen at this place."""
        return [line for place, _, line in self.lines[begun:] if place == at and line.endswith(f": {self.round}\n")]

    def wrong(self) -> list[str]:
        found = []
        for begun, ended in zip(self.marks, [*self.marks[1:], len(self.lines)], strict=True):
            lines = self.lines[begun:ended]
            if any(line.startswith("--") for _, _, line in lines):
                continue  # a view changed meanwhile: not all were together
            seen = {tuple(line for place, _, line in lines if place == at) for at in range(3)}
            if len(seen) > 1:
                found.append(f"lines in several orders: {seen}")
        return found


SERVICES = {service.name: service for service in (KeyValue, Scheduler, Feed, Chat)}


def run(name: str, faults: int, seed: int) -> list[str]:
    """The broken promises of one run."""
    rng = random.Random(f"{name} {seed}")
    with contextlib.ExitStack() as stack:
        places = stack.enter_context(bridged(3))
        stack.enter_context(patch.dict(os.environ, {"SEQCAST_INTERFACE": "eth0"}))
        service = SERVICES[name](places)
        try:
            for number in range(faults):
                service.settle()
                time.sleep(rng.random() * 0.2)
                service.fault(rng)
                if number % 20 == 19:
                    print(f"{name}: {number + 1} faults, {len(service.lines)} lines", file=sys.stderr, flush=True)
            service.settle()
        finally:
            service.close()
        return service.wrong()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20, help="of each service (20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--services", nargs="+", choices=sorted(SERVICES), default=sorted(SERVICES))
    options = parser.parse_args()
    bad = 0
    for name in options.services:
        problems = run(name, options.faults, options.seed)
        print(f"{name}: {options.faults} faults:", *(problems or ["holds"]), flush=True)
        bad += bool(problems)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
