"""The examples of docs/blocks.md run as they stand, and the store over HTTP keeps its answered writes under kills."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from members import LIMIT_S, LOOPBACK
from project import ROOT

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "blocks.md").read_text(encoding="utf-8"), re.S)


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "SEQCAST_INTERFACE": LOOPBACK, "SEQCAST_PORT": str(20000 + os.getpid() % 6000 * 2)}


def test_the_examples_of_the_page_run_as_they_stand(environment: dict[str, str]) -> None:
    python = [sys.executable, "-W", "ignore", "-c"]
    options = {"env": environment, "capture_output": True, "text": True, "timeout": LIMIT_S}
    said = [subprocess.run([*python, text], **options) for text in EXAMPLES]
    assert [each.returncode for each in said] == [0] * 6, said
    assert said[0].stdout == "b'5'\n5\n"
    assert said[1].stdout in ("10\n", "11\n")  # on a busy machine 0.1 s may pass
    lines = said[2].stdout.splitlines()
    assert "True seqcast.blocks.ABSENT" in lines and "holds the lock with fence 1" in lines
    assert lines[-2:] == ["leads", "leads no more"]
    assert said[3].stdout.splitlines() == ["red 1", "leads", "leads no more"]
    assert "Snapshot" in said[4].stdout and "tea" in said[4].stdout
    assert said[5].stdout == "a answered 42\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http(port: int, data: bytes | None = None) -> str:
    """Asks until an answer comes, as a client does."""
    end = time.monotonic() + LIMIT_S
    while True:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/key", data, method="PUT" if data else "GET")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.mark.long
def test_the_store_over_http_keeps_answered_writes_under_any_kill_or_stop(environment: dict[str, str]) -> None:
    ports = [free_port() for _ in "abc"]

    def start(at: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "examples" / "key_value.py"), "abc"[at], str(ports[at])]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    processes = [start(at) for at in range(3)]
    try:
        http(ports[0], b"first")
        assert [http(port) for port in ports] == ["first"] * 3
        processes[0].kill()
        http(ports[1], b"second")
        assert http(ports[2]) == "second"
        processes[0] = start(0)
        assert http(ports[0]) == "second"
        processes[1].send_signal(signal.SIGSTOP)
        http(ports[0], b"third")
        processes[1].send_signal(signal.SIGCONT)
        assert [http(port) for port in ports] == ["third"] * 3
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.long
def test_the_scheduler_runs_each_job_once_with_fences_that_grow_when_its_leader_is_killed(
    environment: dict[str, str],
) -> None:
    command = [sys.executable, str(ROOT / "examples" / "scheduler.py")]
    there = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = {who: subprocess.Popen([*command, who], **there) for who in "abc"}
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    for process in processes.values():
        threading.Thread(target=lambda of=process: [said.put(line) for line in of.stdout], daemon=True).start()
    try:
        runs: list[tuple[str, int, int]] = []
        while len(runs) < 4 or len({who for who, _, _ in runs}) < 2:
            words = said.get(timeout=LIMIT_S).split()
            if words[1] == "runs":
                runs.append((words[0], int(words[3]), int(words[6])))
                if len(runs) == 2:
                    processes[words[0]].kill()
        numbers, fences = [number for _, number, _ in runs], [fence for _, _, fence in runs]
        assert numbers == sorted(set(numbers)) and fences == sorted(set(fences))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@pytest.mark.long
def test_the_chat_shows_everyone_the_same_lines(environment: dict[str, str]) -> None:
    def start(who: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "examples" / "chat.py"), who]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, env={**environment, "SEQCAST_DISCOVERY_S": "1"}, text=True, **pipes)

    ann = start("ann")
    assert ann.stdout is not None and ann.stdin is not None
    assert ann.stdout.readline() == "-- here: ann\n"
    bob = start("bob")
    assert bob.stdout is not None and bob.stdin is not None
    assert ann.stdout.readline() == bob.stdout.readline() == "-- here: ann, bob\n"
    for who, line in ((ann, "hello"), (bob, "hi")):
        assert who.stdin is not None
        who.stdin.write(f"{line}\n")
        who.stdin.flush()
    assert sorted(ann.stdout.readline() for _ in range(2)) == ["ann: hello\n", "bob: hi\n"]
    bob.kill()
    assert ann.stdout.readline() == "-- here: ann\n"
    ann.communicate()
    bob.communicate()


@pytest.mark.long
def test_late_and_slow_watchers_of_the_feed_get_snapshots_and_miss_no_change_after_them(
    environment: dict[str, str],
) -> None:
    def start(*task: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "examples" / "feed.py"), *task]
        there = {**environment, "SEQCAST_DISCOVERY_S": "1"}
        return subprocess.Popen(command, env=there, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    class Watcher:
        """Follows the lines that a watcher prints: each change is the next one of the feed, and of its symbol."""

        def __init__(self, *task: str) -> None:
            self.process = start("watch", *task)
            self.number, self.last = 0, dict[str, int]()
            self.skipped = list[int]()  # by each snapshot

        def follow(self, lines: int) -> None:
            assert self.process.stdout is not None
            for _ in range(lines):
                kind, number, *words = self.process.stdout.readline().split(maxsplit=3)
                if kind == "snapshot":
                    self.skipped.append(int(words[0]))
                    self.last = {symbol: each[0] for symbol, each in json.loads(words[1]).items()}
                else:
                    count = int(words[1].split()[0])
                    assert int(number) == self.number + 1 and count == self.last.get(words[0], 0) + 1
                    self.last[words[0]] = count
                self.number = int(number)

    processes = [start("publish", "a", "tea", "milk")]
    try:
        early = Watcher("b")
        processes.append(early.process)
        early.follow(50)
        late, slow = Watcher("c"), Watcher("d", "0.02")
        processes += [late.process, slow.process]
        late.follow(200)
        slow.follow(60)
        assert late.number > 200 and late.last.keys() == {"tea", "milk"} and len(late.skipped) == 1
        assert len(slow.skipped) > 1 and max(slow.skipped) > 100 and slow.number > 500
        for process in processes[:2]:
            process.kill()
        processes.append(start("publish", "e", "tea", "milk"))  # goes on where the one before ended
        late.follow(late.number + 500)
    finally:
        for process in processes:
            process.kill()
            process.wait()
