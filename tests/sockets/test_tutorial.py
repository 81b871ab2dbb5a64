"""The programs of docs/tutorial.md run as they stand, and print the page's text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from members import LIMIT_S, LOOPBACK
from project import ROOT
from test_blocks_examples import free_port

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.S))

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    environment = {**os.environ, "SEQCAST_INTERFACE": LOOPBACK, "SEQCAST_PORT": str(20000 + os.getpid() % 6000 * 2)}
    environment |= {"SEQCAST_DISCOVERY_S": "1", "SEQCAST_JOURNAL": str(tmp_path / "journals")}
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with ExitStack() as stack:

        def run(*command: str) -> subprocess.Popen[str]:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([sys.executable, *command], cwd=tmp_path, env=environment, text=True, **pipes)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield run


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip() for _ in range(count)]


def test_every_program_is_run() -> None:
    assert set(PROGRAMS) == {"watch.py", "words.py", "stock.py"}


@pytest.mark.long
def test_members_are_told_of_views_among_messages(start: Start) -> None:
    shown = re.search(r"`a` shows:\n\n```\n(.*?)```", PAGE, re.S)
    assert shown is not None
    expected = shown.group(1).splitlines()
    a = start("watch.py", "a")
    assert lines(a, 2) == expected[:2]
    b = start("watch.py", "b")
    assert lines(b, 2) == expected[2:] == lines(a, 2)
    b.kill()
    assert lines(a, 2) == ["view 3 ['a']", "a says 1 of us"]


def test_a_joiner_begins_with_the_state(start: Start) -> None:
    a = start("words.py", "a", "tea", "tea", "milk")
    assert lines(a, 4) == ["begins with {}", "tea 1", "tea 2", "milk 1"]
    b = start("words.py", "b", "milk")
    assert lines(b, 2) == ["begins with {'tea': 2, 'milk': 1}", "milk 2"]
    assert lines(a, 1) == ["milk 2"]


def sell(port: int) -> tuple[int, str]:
    """One sale, tried again while there is no server."""
    until = time.monotonic() + LIMIT_S
    while True:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/apples", b"", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode().rstrip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.long
def test_the_shop_sells_its_stock_while_members_are_killed_and_the_audit_finds_nothing_wrong(
    start: Start, tmp_path: Path
) -> None:
    ports = {name: free_port() for name in "abc"}
    running = {name: start("stock.py", name, str(port)) for name, port in ports.items()}
    assert [sell(ports[name]) for name in "ab"] == [(200, "sold, 9 left"), (200, "sold, 8 left")]
    running["a"].kill()
    assert sell(ports["b"]) == (200, "sold, 7 left")
    running["a"] = start("stock.py", "a", str(ports["a"]))
    assert sell(ports["a"]) == (200, "sold, 6 left")
    running["a"].kill()
    running["c"].kill()
    assert sell(ports["b"])[0] == 503
    running["b"].kill()
    running["b"].wait()
    audit = start("-m", "seqcast", "audit", str(tmp_path / "journals"))
    said, _ = audit.communicate(timeout=180)
    assert audit.returncode == 0, said
