"""How journals end: by several threads, before all is received, in children of ``fork``, and with the interpreter."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")

from members import LIMIT_S, LOOPBACK, cluster, environment, join, payloads, troubles, wait_until

import seqcast
import seqcast.aio
import seqcast.journal
from seqcast.errors import JournalWriteError, UsageError
from seqcast.journal import writer as journal_writer
from seqcast.journal.places import find

MESSAGES = 400


def only_journal(top: Path) -> seqcast.journal.Journal:
    (found,) = find([top])
    return found


@pytest.mark.parametrize("required", [False, True])
def test_closing_a_journal_waits_for_another_thread_that_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    gate = threading.Event()
    write = journal_writer._Segment.write
    with join(cluster(), "a", journal=str(tmp_path), journal_required=required) as group:
        for number in range(MESSAGES):
            group.send(b"%d" % number)
        monkeypatch.setattr(
            journal_writer._Segment, "write", lambda self, *given: (gate.wait(LIMIT_S), write(self, *given))
        )
        payloads(group, MESSAGES)
        first = threading.Thread(target=group.close_journal)
        first.start()
        wait_until(lambda: group._journal is not None and group._journal._closed)
        over = threading.Event()
        second = threading.Thread(target=lambda: (group.close_journal(), over.set()))
        second.start()
        assert not over.wait(0.1)
        gate.set()
        assert over.wait(LIMIT_S)
        found = only_journal(tmp_path)
        assert (found.rows, found.closed) == (MESSAGES, "leave")
        first.join()
        second.join()


@pytest.mark.parametrize("by", ["message", "batch", "event"])
@pytest.mark.parametrize("order", ["records", "fifo"])
def test_a_thread_that_receives_gets_all_that_was_delivered_when_another_one_leaves(
    tmp_path: Path, order: Any, by: str
) -> None:
    received: list[bytes] = []
    begun, left = threading.Event(), threading.Event()

    def receive(group: seqcast.Group) -> None:
        received.append(bytes(next(iter(group)).payload))
        begun.set()
        left.wait(LIMIT_S)
        if by == "message":
            received.extend(bytes(message.payload) for message in group)
        elif by == "event":
            events = (event for event in group.events() if isinstance(event, seqcast.Message))
            received.extend(bytes(message.payload) for message in events)
        else:
            with pytest.raises(seqcast.NotMember):
                while (batch := group.recv_batch(LIMIT_S)) is not None:
                    received.extend(batch.tolist())

    with join(cluster(), "a", order=order, journal=str(tmp_path), batch_bytes=1024) as group:
        thread = threading.Thread(target=receive, args=(group,))
        thread.start()
        for number in range(MESSAGES):
            group.send(b"%d" % number)
        assert begun.wait(LIMIT_S)
    found = only_journal(tmp_path)
    left.set()
    thread.join()
    assert received == [b"%d" % number for number in range(MESSAGES)]
    assert (found.rows, found.closed) == (MESSAGES, "leave") and found.views[-1].end is not None
    assert next(iter(group), None) is None
    assert [bytes(message.payload) for message in only_journal(tmp_path).messages()] == received


def test_a_task_that_receives_gets_all_that_was_delivered_when_another_one_leaves(tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        received = []

        async def receive(group: seqcast.aio.Group) -> None:
            async for message in group:
                received.append(bytes(message.payload))
                await asyncio.sleep(0)

        settings: Any = {"interface": LOOPBACK, "journal": str(tmp_path), "batch_bytes": 1024}
        async with seqcast.aio.join(cluster(), name="a", **settings) as group:
            task = asyncio.create_task(receive(group))
            for number in range(MESSAGES):
                await group.send(b"%d" % number)
        await asyncio.wait_for(task, LIMIT_S)
        return received

    assert asyncio.run(run()) == [b"%d" % number for number in range(MESSAGES)]
    assert (only_journal(tmp_path).rows, only_journal(tmp_path).closed) == (MESSAGES, "leave")


def test_deliveries_can_be_received_behind_with(tmp_path: Path) -> None:
    """Views, too, and each is journaled once."""
    name = cluster()
    with join(name, "a", journal=str(tmp_path)) as group:
        with join(name, "b") as other:
            other.send(b"from b")
            payloads(other, 1)
        wait_until(lambda: len(group.view.members) == 1)
        group.send(b"from a")
    events = list(group.events())
    found = only_journal(tmp_path)
    assert [bytes(each.payload) for each in events if isinstance(each, seqcast.Message)] == [b"from b", b"from a"]
    assert [each.view_id for each in found.views] == [e.view_id for e in events if isinstance(e, seqcast.View)]
    assert (found.rows, found.closed) == (2, "leave")


@pytest.mark.parametrize("required", [False, True])
def test_a_journal_that_lacks_the_end_of_a_stream_which_another_thread_keeps_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    """As while it waits in the midst of a take."""
    gate, inside = threading.Event(), threading.Event()
    settings: Any = {"journal": str(tmp_path), "journal_required": required, "leave_timeout_s": 0.3}
    group = join(cluster(), "a", **settings)
    group.send(b"first")
    group.send(b"second")
    thread = threading.Thread(target=lambda: group._under_lock(lambda: (inside.set(), gate.wait(LIMIT_S)), 0))
    thread.start()
    assert inside.wait(LIMIT_S)
    group.leave()
    said = "the journal is closed, and another thread kept the stream for leave_timeout_s=0.3 s: the rest is missing"
    try:
        if required:
            with pytest.raises(JournalWriteError, match=said):
                group.close_journal()
        else:
            group.close_journal()
    finally:
        gate.set()
        thread.join()
    assert f"{said} (SC6005)" in caplog.text
    assert (only_journal(tmp_path).rows, only_journal(tmp_path).closed) == (0, said.partition(", and ")[2])


def test_with_a_required_journal_nothing_is_received_that_could_not_be_journaled_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, failing = journal_writer.JournalWriter.batch, 3
    group = join(cluster(), "a", journal=str(tmp_path), journal_required=True, batch_bytes=1024)
    for number in range(MESSAGES):
        group.send(b"%d" % number + bytes(500))

    def fail(self: Any, delivered: Any, view: Any) -> None:
        nonlocal failing
        failing -= 1
        if failing == 0:
            with self._lock:
                self._fail("no room")
        batch(self, delivered, view)

    monkeypatch.setattr(journal_writer.JournalWriter, "batch", fail)
    group.leave()
    with pytest.raises(JournalWriteError):
        group.close_journal()
    received = [group.recv_batch(1.0), group.recv_batch(1.0)]
    for _ in range(2):
        with pytest.raises((JournalWriteError, UsageError)):
            group.recv_batch(1.0)
    assert all(received)


# ---- processes -------------------------------------------------------------------------------------------------------

BEGIN = """
import os, sys, threading, time
import seqcast, seqcast.aio

start = threading.Thread.start

def refuse(self):
    if not threading.main_thread().is_alive():
        raise RuntimeError("can't create new thread at interpreter shutdown")  # as of Python 3.12 does
    start(self)

threading.Thread.start = refuse
name, journal = sys.argv[1:3]
settings = dict(name="a", interface=sys.argv[3], journal=journal)

def until_main_has_ended():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    time.sleep(0.1)
"""

ENDS = {
    "exit": """
group = seqcast.join(name, **settings)
group.send(b"x")
group.recv()
""",
    "collected": """
group = seqcast.join(name, **settings)
group.send(b"x")
group.recv()
group.leave()
""",
    "raise": """
group = seqcast.join(name, **settings)
group.send(b"x")
group.recv()
raise SystemExit(0)
""",
    "thread": """
def work(group):
    with group:
        until_main_has_ended()
        group.send(b"x")
        group.recv()
threading.Thread(target=work, args=(seqcast.join(name, **settings),)).start()
""",
    "not received": """
group = seqcast.join(name, **settings)
group.send(b"x")
""",
    "asyncio": """
import asyncio
ready = threading.Event()
async def run():
    async with seqcast.aio.join(name, window_bytes=65536, **settings) as group:
        ready.set()
        while threading.main_thread().is_alive():
            await asyncio.sleep(0.01)
        async def receive():
            async for message in group:
                if message.payload[:1] == b"x":
                    return
        task = asyncio.create_task(receive())
        for size in (20000,) * 20:
            await group.send(bytes(size))
        await group.send(b"x")
        await task
        async with group.suspended(): pass
threading.Thread(target=lambda: asyncio.run(run())).start()
ready.wait()
""",
    "signal": """
seqcast.leave_on_signals()
def work(group):
    until_main_has_ended()
    group.send(b"x")
    for message in group:
        os.kill(os.getpid(), 15)
    group.close_journal()
threading.Thread(target=work, args=(seqcast.join(name, **settings),)).start()
""",
    "spare time": """
import atexit
group = seqcast.join(name, **settings)
group.send(b"x")
group.recv()
atexit.register(lambda: (group.leave(), group.close_journal()))
""",
}


@pytest.mark.parametrize("end", first_quick(ENDS))
def test_no_end_of_a_process_starts_a_thread_at_shutdown(tmp_path: Path, end: str) -> None:
    name = cluster()
    done = run_script(BEGIN + ENDS[end], name, str(tmp_path), LOOPBACK)
    assert (done.returncode, troubles(done.stderr)) == (0, [])
    found = only_journal(tmp_path)
    (lines,) = ([line for line in path.read_text().splitlines() if '"close"' in line] for path in views_files(tmp_path))
    assert (found.closed, len(lines)) == ("leave", 1)
    assert found.rows >= 1 and [segment.live for segment in found.segments] == [False]


def test_a_member_gives_its_state_though_its_interpreter_shuts_down(tmp_path: Path) -> None:
    """Its main thread has ended, and another one still receives."""
    script = """
class State:
    def get_state(self, write): write(b"the state")
    def set_state(self, read): pass
def work(group):
    with group:
        until_main_has_ended()
        print("ready", flush=True)
        for event in group.events():
            if isinstance(event, seqcast.Message): break
threading.Thread(target=work, args=(seqcast.join(name, state=State(), **settings),)).start()
"""
    name, taken = cluster(), []

    class State:
        def get_state(self, write: Any) -> None:
            write(b"")

        def set_state(self, read: Any) -> None:
            taken.append(read())

    command = [sys.executable, "-c", textwrap.dedent(BEGIN + script), name, str(tmp_path), LOOPBACK]
    with subprocess.Popen(command, env=environment(name), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with join(name, "b", state=State(), discovery_s=1.0) as group:
            group.send(b"end")
            assert troubles(process.communicate(timeout=LIMIT_S)[1].decode()) == []
    assert (taken, process.returncode) == ([b"the state"], 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("end", first_quick(["sys.exit(0)", "del group", "pass"]))
def test_a_forked_child_ends_whatever_lock_of_the_journal_was_taken(tmp_path: Path, end: str) -> None:
    script = f"""
import os, sys, threading, seqcast
group = seqcast.join(sys.argv[1], name="a", interface=sys.argv[3], journal=sys.argv[2])
taken, ended = threading.Event(), threading.Event()
def hold():
    with group._journal._lock:
        taken.set()
        ended.wait()
threading.Thread(target=hold, daemon=True).start()
taken.wait()
child = os.fork()
if not child:
    {end}
else:
    status = os.waitpid(child, 0)[1]
    ended.set()
    group.leave()
    group.close_journal()
    print("child", status)
"""
    done = run_script(script, cluster(), str(tmp_path), LOOPBACK)
    assert (done.returncode, done.stdout) == (0, "child 0\n"), done.stderr
    assert only_journal(tmp_path).closed == "leave"


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    process = subprocess.Popen(
        command, env=environment(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=LIMIT_S / 2)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"the process hangs: {out} {err}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def views_files(top: Path) -> list[Path]:
    return sorted(top.glob("*/views.jsonl"))
