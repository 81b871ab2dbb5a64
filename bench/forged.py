"""A group with a key under forged datagrams: ``python bench/forged.py``.

In each pair one member sends messages of 1 KB to two others on loopback, once by themselves and once while a process
outside the group multicasts 100,000 forged datagrams a second to them, of 128 bytes, that look as if sealed with the
key: each member opens all of them in vain. The process that forges takes CPU time too, so in a third run of each pair
it sends as many for a group of another name, which members drop by their header: that is the cost of datagrams as such.
Printed are the medians of the ratios to the first run.

    python bench/forged.py --pairs 4 --rate 100000      # a minute and a half
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import struct
import tempfile
import time
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as EventType

from seqcast.config import keys
from seqcast.net.runner import group_address, group_tag
from seqcast.perf.paths import open_path
from seqcast.perf.runs import Load, group_throughput

PORT = 47310
MAGIC, VERSION, DATA, HEARTBEAT = 0xC5, 2, 1, 7
BY_FILE, MARK_SHIFT = 0x4000, 9
"""In ``key_id``: native/seal/seal.c."""
BODY = 88
KINDS = ("alone", "forged", "of another group")


def flood(cluster: str, named: str, mark: int, rate: int, stop: EventType) -> None:
    """Sends datagrams of the group ``named`` to the address of ``cluster`` until ``stop``."""
    rng, to = random.Random(1), (group_address(cluster, 4), PORT + 1)
    key_id = BY_FILE | mark << MARK_SHIFT
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        forged = []
        for _ in range(64):
            head = (
                MAGIC,
                VERSION,
                HEARTBEAT,
                0,
                rng.getrandbits(32),
                group_tag(named),
                key_id,
                0,
                rng.getrandbits(63),
                0,
                0,
            )
            forged.append(struct.pack("<BBBBIIHHQQQ", *head) + rng.randbytes(BODY))
        await_messages(to[0], stop)
        begin, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - begin) * rate)
            for number in range(sent, due):
                out.sendto(forged[number % len(forged)], to)
            sent = due
            time.sleep(0.001)


def await_messages(group: str, stop: EventType) -> None:
    """Returns when the group multicasts packets: before, forged datagrams would keep it from being founded."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        heard.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_REUSEPORT", socket.SO_REUSEADDR), 1)
        heard.bind((group, PORT))
        heard.setsockopt(
            socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
        )
        heard.settimeout(0.1)
        while not stop.is_set():
            try:
                if heard.recv(2048)[2] == DATA:
                    return
            except TimeoutError:
                continue


def run(kind: str, number: int, key: str, rate: int, seconds: float) -> float:
    """Messages a second."""
    cluster, stop = f"forged-{os.getpid()}-{number}", Event()
    named = cluster if kind == "forged" else f"{cluster}-other"
    sender = Process(target=flood, args=(cluster, named, keys.read(key)[0].number, rate, stop))
    if kind != "alone":
        sender.start()
    try:
        with open_path("loopback", 3) as path:
            load = Load(members=3, senders=1, size=1024, order="fifo", seconds=seconds, settings={"key": key})
            return float(group_throughput(path, load, cluster)["delivered_msgs_per_s"])
    finally:
        stop.set()
        if kind != "alone":
            sender.join()


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4, help="runs of each kind (%(default)s)")
    parser.add_argument("--rate", type=int, default=100_000, help="forged datagrams a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (%(default)s)")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        keys.make(key := os.path.join(folder, "key"))
        for pair in range(arguments.pairs):
            for kind in KINDS if pair % 2 == 0 else KINDS[::-1]:
                rates[kind].append(run(kind, 10 * pair + KINDS.index(kind), key, arguments.rate, arguments.seconds))
                print(f"{kind:18}{rates[kind][-1]:12,.0f} messages/s", flush=True)
    for kind in KINDS[1:]:
        ratios = [one / other for one, other in zip(rates[kind], rates["alone"], strict=True)]
        print(f"{kind}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of the rate alone")


if __name__ == "__main__":
    main()
