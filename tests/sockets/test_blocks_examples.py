"""The examples of docs/blocks.md run as they stand, and the store over HTTP keeps what it answered under kills."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
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
    assert [each.returncode for each in said] == [0, 0], said
    assert said[0].stdout == "b'5'\n5\n"
    lines = said[1].stdout.splitlines()
    assert "True seqcast.blocks.ABSENT" in lines and "holds the lock with fence 1" in lines
    assert lines[-2:] == ["leads", "leads no more"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http(port: int, data: bytes | None = None) -> str:
    """Asks until it is answered, as a client does."""
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


def test_the_store_over_http_keeps_what_it_answered_whatever_is_killed_or_stopped(environment: dict[str, str]) -> None:
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
