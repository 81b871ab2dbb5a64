"""Members as processes of their own in network namespaces, which send all the time and report their events, and each
message of a sender that did not come ("gap")."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from members import LIMIT_S, cluster
from netns import python

from seqcast.perf.paths import Place

QUICK = {"heartbeat_s": 0.05, "suspect_s": 0.4, "suspect_s_max": 0.8}
"""Failure detection in half a second, so that a test is quick; that is still enough for machines under load."""

PROGRAM = """
import json, logging, sys, threading, time
import seqcast

cluster, name, interface, settings = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])

lock = threading.Lock()

def say(**what):
    with lock:  # print writes a line in two parts
        print(json.dumps(what), flush=True)

class Handler(logging.Handler):
    def emit(self, record):
        say(kind="log", level=record.levelname, text=record.getMessage())

logging.getLogger("seqcast").addHandler(Handler())
logging.getLogger("seqcast").setLevel(settings.pop("level", "WARNING"))
large = bytes(settings.pop("bytes", 0))
group = seqcast.join(cluster, name=name, interface=interface, **settings)

def listen():
    got, last = {}, {}
    while True:
        event = group.next_event(timeout=1.0)
        if isinstance(event, seqcast.Message):
            got[event.sender.name] = got.get(event.sender.name, 0) + 1
            number = int.from_bytes(event.payload[:8], "big")
            if number != (due := last.get(event.sender.id, number - 1) + 1):
                say(kind="gap", text=f"{event.sender.name}: {due}, then {number}")
            last[event.sender.id] = number
            if got[event.sender.name] % 20 == 0:
                say(kind="got", sender=event.sender.name, n=got[event.sender.name])
        elif isinstance(event, seqcast.View):
            say(kind="view", members=[member.name for member in event.members], address=group.member.address.hex())
        elif event is not None:
            say(kind=type(event).__name__, text=str(event))
            if isinstance(event, seqcast.Excluded) and not settings.get("rejoin"):
                return

def talk():
    number = 0
    while True:
        try:
            group.send(number.to_bytes(8, "big") + large, timeout=0.5)
            number += 1
        except seqcast.SendTimeout as error:
            say(kind="SendTimeout", text=str(error))
        except seqcast.SeqcastError as error:
            say(kind="SendError", text=str(error))
            if not settings.get("rejoin"):
                return
            time.sleep(0.1)
        time.sleep(0.005)

for run in (listen, talk):
    threading.Thread(target=run, daemon=True).start()
sys.stdin.readline()
group.leave(timeout=2.0)
"""


class Talker:
    """One process; ``said`` has its output."""

    def __init__(self, place: Place, cluster: str, name: str, **settings: Any) -> None:
        self.place, self.cluster, self.name = place, cluster, name
        arguments = "-c", PROGRAM, cluster, name, place.interface, json.dumps(QUICK | settings)
        self.process = python(
            place, *arguments, ip_version=settings.get("ip_version", 4), stdin=subprocess.PIPE
        )
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [said for said in list(self.said) if said["kind"] == kind]

    def members(self) -> list[str]:
        views = self.of("view")
        return views[-1]["members"] if views else []

    def got(self, sender: str) -> int:
        return max((said["n"] for said in self.of("got") if said["sender"] == sender), default=0)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5.0)


@contextlib.contextmanager
def talkers(places: Sequence[Place], names: str, at_once: bool = False, **settings: Any) -> Iterator[list[Talker]]:
    """One member at each place, all in one view, which they join one by one, or all at once."""
    name = cluster()
    with contextlib.ExitStack() as stack:
        made = []
        for place, member in zip(places, names, strict=False):
            made.append(Talker(place, name, member, **settings))
            stack.callback(made[-1].end)
            if not at_once:
                await_(made, lambda: sorted(made[-1].members()) == sorted(names[: len(made)]))
        await_(made, lambda: all(sorted(each.members()) == sorted(names) for each in made))
        yield made


def await_(talkers: Sequence[Talker], condition: Any, timeout: float = LIMIT_S) -> None:
    """Waits until ``condition()`` is true; fails with the last report of each."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            last = "\n".join(f"{each.name}: {said}" for each in talkers for said in each.said if said["kind"] != "got")
            raise AssertionError(f"waited in vain; said last:\n{last}")
        time.sleep(0.01)
