"""Threads of one process on one group: none waits for the GIL with the engine's lock, none keeps others waiting."""

import subprocess
import sys

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
time.sleep(1)
after = dict(turns)
stop.set()
for thread in threads:
    thread.join()
group.leave()
assert all(after[name] > before[name] for name in turns), (before, after)
print("ok")
"""


def test_senders_readers_and_watchers_of_one_group_all_go_on():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr
