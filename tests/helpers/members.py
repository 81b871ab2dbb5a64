"""Groups on real sockets for tests: loopback, a cluster of its own for each test."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from netns import there

import seqcast

SOURCE = Path(__file__).resolve().parents[2] / "src"
_numbers = itertools.count()
CLUSTER = "test-"
"""The prefix of the names of clusters."""
_founded: set[str] = set()  # clusters that this process, or its scripts, have joined
SHORT_LIVED_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of a Java that runs for seconds: less compiling, and one thread for garbage collection."""
LOOPBACK = "lo" if sys.platform.startswith("linux") else "127.0.0.1"
LIMIT_S = 60.0
"""How long a test waits for an event, a message or the end of a process: much longer than on a busy machine,
so that only an event that never comes fails. Tests wait for events, not for times, so the length costs nothing."""
PATIENT = {"lease_s": LIMIT_S / 2}
"""Settings of members whose pauses must hold even if the test does not run for a while."""
PATIENT_JOINER = {"discovery_s": 1.0}
"""Settings of a joiner that finds a group."""


def cluster() -> str:
    """A name that no other test uses, so that its address and tag are not shared either."""
    return f"{CLUSTER}{os.getpid()}-{next(_numbers)}"


def join(name: str, member: str, **settings: Any) -> seqcast.Group:
    """Joins on loopback; skips the test if plain sockets have no multicast there, never because the join fails.

    If this process, or one of its scripts, has joined the cluster before, a group exists, so joiners wait longer
    before they form one: on a busy machine the members may not answer within the default ``discovery_s``, and two
    groups that merge have another coordinator, and other views, than the test expects.
    """
    if why := why_no_multicast():
        pytest.skip(f"no multicast on loopback here: {why}")
    settings.setdefault("interface", LOOPBACK)
    if "config" not in settings:
        settings = {**(PATIENT_JOINER if name in _founded else {}), "join_timeout_s": LIMIT_S, **settings}
    group = seqcast.join(name, name=member, **settings)
    founded(name)
    return group


def founded(*names: str) -> None:
    """Notes that a group of this name exists: see ``join``."""
    _founded.update(names)


def environment(*arguments: str) -> dict[str, str]:
    """Environment of a process with these arguments: as patient as ``join`` if one of them is a known group."""
    known = not _founded.isdisjoint(arguments)
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    patient = {f"SEQCAST_{key.upper()}": str(value) for key, value in PATIENT_JOINER.items()} if known else {}
    return {"SEQCAST_JOIN_TIMEOUT_S": str(LIMIT_S), **patient, **os.environ, "PYTHONPATH": path}


@functools.cache
def troubles(err: str) -> list[str]:
    """Lines that a program wrote to standard error, without the one of a lone founder, which members with seeds get."""
    return [line for line in err.splitlines() if "founded the group alone" not in line]


def why_no_multicast() -> str:
    """Why plain sockets cannot multicast on loopback; empty if they can. Uses nothing of seqcast."""
    here = socket.inet_aton("127.0.0.1")
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind(("", 0))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.77.77") + here)
            receiver.settimeout(2.0)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            sender.sendto(b"probe", ("239.255.77.77", receiver.getsockname()[1]))
            receiver.recv(16)
    except OSError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def group_of(n: int, **settings: Any) -> Iterator[list[seqcast.Group]]:
    """``n`` members of one new cluster, all in one view."""
    name = cluster()
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(join(name, "abcdefgh"[i], **settings)) for i in range(n)]
        wait_until(lambda: all(len(group.view.members) == n for group in groups))
        yield groups


def wait_until(condition: Any, timeout: float = LIMIT_S) -> None:
    """Waits until ``condition()`` is true; fails after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


async def until_all_wait(tasks: Sequence[asyncio.Task[Any]], waiting: Callable[[], int]) -> None:
    """Waits until ``waiting()``, the number of tasks that wait, is that of all; fails if one ends before."""
    deadline = time.monotonic() + LIMIT_S
    while waiting() < len(tasks):
        for each in tasks:
            assert not each.done(), each.result()
        assert time.monotonic() < deadline, f"{waiting()} of {len(tasks)} tasks wait"
        await asyncio.sleep(0.01)


def payloads(group: seqcast.Group, n: int, timeout: float = LIMIT_S) -> list[bytes]:
    """The next ``n`` payloads."""
    out: list[bytes] = []
    deadline = time.monotonic() + timeout
    while len(out) < n:
        batch = group.recv_batch(max(0.0, deadline - time.monotonic()))
        assert batch is not None, f"{len(out)} of {n} messages in {timeout} s"
        out += batch.tolist()
    return out


def script(
    text: str, *arguments: str, prefix: Sequence[str] = (), ip_version: int = 4, **options: Any
) -> subprocess.Popen[str]:
    """Runs Python text as a process of its own. Later joiners of a cluster among its arguments find a group there.

    Args:
        prefix: of a place, where the process runs; its members find those at other places, too.
        ip_version: of its group.
    """
    options.setdefault("stdin", subprocess.PIPE)
    known = environment(*arguments)
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=there(known, ip_version) if prefix else known,
        **options,
    )
    founded(*(each for each in arguments if each.startswith(CLUSTER)))
    return process


def sequencer(name: str, then: str, order: str = "sequencer") -> subprocess.Popen[str]:
    """A process that has founded a group as its sequencer, is not suspected soon, and runs ``then`` with ``group``."""
    text = """
import sys, seqcast
group = seqcast.join(sys.argv[1], name="sequencer", interface=sys.argv[2], order=sys.argv[3], suspect_s=600.0)
print("joined", flush=True)
"""
    process = script(text + then, name, LOOPBACK, order)
    assert process.stdout is not None and process.stdout.readline() == "joined\n"
    return process


def output(process: subprocess.Popen[str], timeout: float = LIMIT_S) -> str:
    """The output of a script that has ended well."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"not done after {timeout} s; printed {out!r}, {err!r}") from None
    assert process.returncode == 0, f"status {process.returncode}; printed {out!r}, {err!r}"
    return out
