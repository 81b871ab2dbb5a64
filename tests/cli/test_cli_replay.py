"""``seqcast replay``: the messages of a journal are sent again, in its order and at its pace."""

import secrets
import subprocess
import sys
from types import SimpleNamespace

import pytest
from halves import first_quick

pytest.importorskip("pyarrow")

import pyarrow as pa
from journal_data import Row, journal, member, view
from members import LIMIT_S, join

from seqcast.cli import replay
from seqcast.journal import seals

A, B = member("a"), member("b")
V1 = view(1, [A, B])
ROWS = [Row(A if at % 3 else B, 1 + at, 0, 1 + at, b"message %d" % at) for at in range(400)]


def run(*arguments):
    command = [sys.executable, "-m", "seqcast", "replay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("gap", first_quick([False, True]))
def test_a_journal_is_sent_to_another_group_in_its_order(tmp_path, gap):
    path = journal(tmp_path, A, [(V1, ROWS)], closed=None, payload="full")
    if gap:
        lacking = {"idx": 400, "rows": 7, "senders": [], "why": "No space left on device", "at_ns": 1, "closes": None}
        with (path / "views.jsonl").open("a") as views:
            views.write(seals.seal({"event": "gap", **lacking}) + "\n")
    cluster = f"test-{secrets.token_hex(6)}"
    with join(cluster, "receiver") as group:
        command = [sys.executable, "-m", "seqcast", "replay", str(path), "--to", cluster, "--interface", "lo"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            payloads = [group.recv(timeout=LIMIT_S).payload for _ in ROWS]
            said = process.communicate(timeout=LIMIT_S)[1]
    assert payloads == [row.payload for row in ROWS]
    assert process.returncode == 0 and "400 messages" in said and ("lacks 7 messages" in said) == gap


@pytest.mark.long
def test_journals_that_cannot_be_sent_again_are_refused_before_a_group_is_joined(tmp_path):
    journal(tmp_path / "two", A, [(V1, ROWS[:3])], payload="full")
    journal(tmp_path / "two", B, [(V1, ROWS[:3])], payload="full")
    done = run(tmp_path / "two", "--to", "nobody")
    assert done.returncode == 2 and "holds 2 journals: give the directory of one member" in done.stderr
    done = run(journal(tmp_path / "hash", A, [(V1, ROWS[:3])]), "--to", "nobody")
    assert done.returncode == 2 and "keeps hashes of the payloads only" in done.stderr
    done = run(tmp_path / "two", "--to", "nobody", "--speed", "fast")
    assert done.returncode == 2 and "'fast' is not a speed" in done.stderr


def test_messages_are_sent_at_the_pace_of_their_delivery(monkeypatch):
    now = [100.0]
    # The clock of this module alone: threads of other tests may still sleep.
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(replay, "time", clock)
    times = [10**9, 10**9, 3 * 10**9, 4 * 10**9]
    payloads = [b"a", b"b", b"c", b"d"]
    batches = [
        pa.record_batch({"delivered_ns": times[:3], "payload": payloads[:3]}),
        pa.record_batch({"delivered_ns": times[3:], "payload": payloads[3:]}),
    ]
    sent = [(now[0], given) for given in replay.paced(batches, 2.0)]
    assert sent == [(100.0, [b"a", b"b"]), (101.0, [b"c"]), (101.5, [b"d"])]
    assert list(replay.paced(batches, 0)) == [[b"a", b"b", b"c"], [b"d"]]
