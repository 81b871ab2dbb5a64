"""Replicas of a `Counting` in processes of their own, which answer lines."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from members import LOOPBACK, script

HELPERS = str(Path(__file__).resolve().parent)
REPLICA = """
import sys, seqcast
sys.path.insert(0, sys.argv[4])
from counting import Counting
cluster, name, interface, _, found, *files = sys.argv[1:]
settings = dict(zip(("stable", "key"), files))
if files:
    settings["stable"] += "/" + name
with seqcast.replicate(
    cluster, Counting(), name=name, interface=interface, found=int(found), ready_s=60, **settings
) as kv:
    print("ready", flush=True)
    for line in sys.stdin:
        word, what = line.split()
        if word == "call":
            print(int(kv.call(what.encode(), timeout=60)), flush=True)
        else:
            print(kv.read(lambda machine: machine.total, guarantee=what, timeout=60), flush=True)
"""


class Process:
    """A replica in a process of its own."""

    def __init__(self, name: str, who: str, found: int, *files: str) -> None:
        self.process = script(REPLICA, name, who, LOOPBACK, HELPERS, str(found), *files)

    def ready(self) -> Process:
        assert self.answer() == "ready"
        return self

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, word: str, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word} {what}\n")
        self.process.stdin.flush()

    def tell(self, number: int) -> None:
        os.kill(self.process.pid, number)


@contextlib.contextmanager
def processes(name: str, *names: str, found: int = 2, files: Sequence[str] = ()) -> Iterator[list[Process]]:
    """Of these names. ``files``: the directory of ``stable=``, and the key file."""
    made = [Process(name, who, found, *files) for who in names]
    try:
        yield [each.ready() for each in made]
    finally:
        for each in made:
            with contextlib.suppress(ProcessLookupError):
                each.tell(signal.SIGKILL)
            each.process.communicate()
