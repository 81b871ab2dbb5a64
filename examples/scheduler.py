"""Jobs that run once a second on one of several machines: the leader runs them, each under a lock with a fence.

python examples/scheduler.py a        and in two more terminals: b, c; then kill the leader
"""

import sys
import threading
import time

import seqcast
from seqcast.blocks import Lock, Parts, ReplicatedDict, on_leader

name = sys.argv[1]
done, turn = ReplicatedDict(), Lock()
leads = threading.Event()


def start(fence):
    print(f"{name} leads with fence {fence}", flush=True)
    leads.set()


def run_job(number, fence):
    """A real job sends the fence along, so that the changed resource can refuse a lower one."""
    print(f"{name} runs job {number} with fence {fence}", flush=True)


with seqcast.replicate("scheduler", Parts(done, turn), name=name, found=2) as replica:
    with on_leader(replica, start, leads.clear):
        while replica.failed is None:
            if not leads.wait(1):
                continue
            try:
                with turn.hold(timeout=5) as fence:
                    number = done.get("next", 0)
                    if leads.is_set() and done.compare_and_set("next", number or seqcast.blocks.ABSENT, number + 1):
                        run_job(number, fence)
            except seqcast.SeqcastError as error:
                print(f"{name} waits: {error}", flush=True)
            time.sleep(1)
