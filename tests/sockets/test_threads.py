"""Threads of one process on one group: none waits for the GIL with the engine's lock, none keeps others waiting."""

import subprocess
import sys

import pytest
from halves import quick
from members import LIMIT_S

SCRIPT = """
import secrets, threading, time
import seqcast

group = seqcast.join("threads-" + secrets.token_hex(4), name="a", interface="127.0.0.1")
turns = dict.fromkeys(("send_many", "send", "counters", "view", "take"), 0)
stop = threading.Event()

def repeat(name, work):
    while not stop.is_set():
        work()
        turns[name] += 1

lines = [b"x" * 30] * 100
works = [
    ("send_many", lambda: group.send_many(lines)),
    ("send", lambda: group.send(b"y")),
    ("counters", group.counters),
    ("counters", group.counters),
    ("view", lambda: group.view),
    ("take", lambda: group.recv_batch(timeout=0.01)),
]
threads = [threading.Thread(target=repeat, args=work, daemon=True) for work in works]
for thread in threads:
    thread.start()
time.sleep(2)
before = dict(turns)
until = time.monotonic() + 60
while any(turns[name] == before[name] for name in turns) and time.monotonic() < until:
    time.sleep(0.01)
after = dict(turns)
stop.set()
for thread in threads[:-1]:
    while thread.is_alive():  # a sender may still wait for credit
        group.recv_batch(timeout=0.01)
threads[-1].join()
group.leave()
assert all(after[name] > before[name] for name in turns), (before, after)
print("ok")
"""


@pytest.mark.long
def test_senders_readers_and_watchers_of_one_group_all_go_on():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=LIMIT_S)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


HOSTILE = """
import secrets, sys, threading, time
import numpy as np
import seqcast

settings = dict(interface="127.0.0.1", window_bytes=1 << 17, ring_bytes=1 << 18)
group = seqcast.join("threads-" + secrets.token_hex(4), name="a", **settings)

def start(work):
    outcome = []
    def run():
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome

def wait_until_it_stalls():
    before = -1
    while group.counters()["credit_stalls"] == 0 or group.counters()["messages_sent"] != before:
        before = group.counters()["messages_sent"]
        time.sleep(0.05)

def take(thread):
    taken, batch = [], None
    while thread.is_alive() or batch is not None:
        batch = group.recv_batch(timeout=0.05)
        taken += batch.tolist() if batch is not None else []
    return taken
"""

OFFSETS = (
    HOSTILE
    + """
kind, shift = sys.argv[1:]
n = 100_000
words = [b"%09d" % i for i in range(n)]
data = np.frombuffer(b"".join(words), np.uint8)
offsets = np.arange(0, 9 * n + 1, 9, dtype=kind)
thread, outcome = start(lambda: group.send_batch(data, offsets, timeout=60))
wait_until_it_stalls()
offsets += int(shift)  # while the sender waits for credit
taken = take(thread)
thread.join()
error = outcome[0]
assert type(error) is seqcast.UsageError, error
assert "changed" in str(error) and 0 < error.sent < n, (error, error.sent)
assert taken == words[:error.sent], (len(taken), error.sent)
group.send(b"still well")
assert group.recv(timeout=60).payload == b"still well"
group.leave()
print("ok")
"""
)

SHORTENED = (
    HOSTILE
    + """
class Payload(bytearray):
    def __del__(self):  # Python code: it must not run under the engine's lock
        group.counters()

words = [b"%09d" % i + bytes(200) for i in range(20_000)]
for i in range(5, len(words), 100):
    words[i] = Payload(words[i])
sent = [bytes(word) for word in words]
thread, outcome = start(lambda: group.send_many(words, timeout=60))
wait_until_it_stalls()
del words[:]
taken = take(thread)
thread.join()
error = outcome[0]
assert type(error) is seqcast.UsageError and "shortened" in str(error), error
assert 0 < error.sent < len(sent) and taken == sent[:error.sent], (len(taken), error.sent)
group.leave()
print("ok")
"""
)


def hostile(script: str, *arguments: str) -> None:
    result = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=LIMIT_S)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


SHIFTS = {"far away": 2_000_000_000, "behind the data": 900_000, "before it": -900_000}


@pytest.mark.parametrize(
    ("where", "kind"), quick([("far away", "int32"), ("before it", "int64")], SHIFTS, ["int32", "int64"])
)
def test_offsets_that_another_thread_changes_while_they_are_sent_send_no_bytes_from_elsewhere(where, kind):
    shift = SHIFTS[where]
    hostile(OFFSETS, kind, str(min(shift, 1_200_000_000) if kind == "int32" else shift))


def test_a_list_that_another_thread_shortens_while_it_is_sent_raises_and_hangs_nobody():
    hostile(SHORTENED)


TURNS = """
import secrets, threading
import numpy as np
import seqcast

cluster = "threads-" + secrets.token_hex(4)
settings = dict(interface="127.0.0.1", order="fifo", window_bytes=1 << 17, ring_bytes=1 << 18)
reader = seqcast.join(cluster, name="b", **settings)
group = seqcast.join(cluster, name="a", min_members=2, deliver_own=False, **settings)
ROUNDS, SIZE = 1000, 100_000
data = np.zeros(SIZE, np.uint8)
offsets = np.arange(0, SIZE + 1, 1000, dtype=np.int64)

def repeat(send):
    for _ in range(ROUNDS):
        send()

works = [lambda: group.send(bytes(SIZE)), lambda: group.send_batch(data, offsets)]
threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
for thread in threads:
    thread.start()
left = 2 * ROUNDS * SIZE
while left:
    left -= reader.recv_batch().nbytes
for thread in threads:
    thread.join()
group.leave()
reader.leave()
print("ok")
"""


@pytest.mark.long
def test_an_array_that_waits_for_another_senders_turn_does_not_keep_it_from_receiving_acks():
    hostile(TURNS)
