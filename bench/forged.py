"""A group with a key under forged datagrams: ``python bench/forged.py``.

In each pair one member sends messages of 1 KB to two others on loopback, once by themselves and once while a process
outside the group multicasts 100,000 forged datagrams a second to them, of 128 bytes. 32 leave in one call, as a network
card hands over those of one source; with ``--singly`` each takes a call, and most of a core goes to them, whatever the
members do.

- as if sealed with the key, each member having to open them in vain; those of one address beyond a budget are dropped
  unopened
- with the header of a packet that was overheard: a member opens each in vain
- of a group of another name, which members drop by their header: the cost of datagrams as such, as the process that
  forges takes CPU time, too
- to a group without a key, each datagram with a wrong CRC
- to a group without a key, a tenth as many questions (``ask``) of a non-member, with the right CRC and view

Told are, for each run, how many forged datagrams left a second and how many each member dropped. The last line is JSON:
the medians of the ratios to the first run, or to one without a key. With the key, the ratios to the run with datagrams
of another group show the cost of the opening: the loss of that run is that of the machine, which carries them.

    python bench/forged.py --pairs 4 --rate 100000      # four minutes
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import time
from multiprocessing import Event, Process, Value
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event as EventType
from typing import Any, NamedTuple

from seqcast._native.engine import crc32c
from seqcast.config import keys
from seqcast.core.frames.asking import Ask
from seqcast.core.frames.kinds import dump
from seqcast.net.opening import group_address, group_tag
from seqcast.perf.paths import open_path
from seqcast.perf.report import machine
from seqcast.perf.runs import Load, group_throughput

PORT = 47310
MAGIC, VERSION, DATA, CONTROL = 0xC5, 2, 1, 8
BY_FILE, MARK_SHIFT = 0x4000, 9
"""In ``key_id``: native/seal/seal.c."""
HEADER, BODY, NUMBER = 40, 88, 8
"""Bytes: the common header, the rest of a forged datagram, and the number at the end of one that is sealed."""
CRC_AT, VIEW_AT = 4, 24
"""Places of fields in the header."""
AT_ONCE, UDP_SEGMENT = 32, 103
"""Datagrams in one call; and the option of a socket by which the kernel makes datagrams of its bytes."""
KINDS = {
    "alone": "",
    "forged": "alone",
    "overheard": "alone",
    "of another group": "alone",
    "no key, alone": "",
    "no key, forged": "no key, alone",
    "no key, asked": "no key, alone",
}
"""And the kind with which each is compared."""
OPENED = ("forged", "overheard")
"""These members open in vain; compared, too, with as many that they drop by the header."""


def flood(
    cluster: str, kind: str, mark: int, rate: int, singly: bool, stop: EventType, reached: Synchronized[float]
) -> None:
    """Sends datagrams of this kind to the address of ``cluster`` until ``stop``; ``reached``: how many a second."""
    rng, to = random.Random(1), (group_address(cluster, 4), PORT + 1)
    key_id = 0 if kind.startswith("no key") else BY_FILE | mark << MARK_SHIFT
    named = f"{cluster}-other" if kind == "of another group" else cluster
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        forged = []
        for _ in range(64):
            head = (
                MAGIC,
                VERSION,
                CONTROL,
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
        heard = await_message(to[0], stop)
        if kind == "no key, asked":
            rate //= 10
            forged = [asked(each[:HEADER], heard) for each in forged]
        if kind == "overheard":
            forged = [heard[:HEADER] + rng.randbytes(BODY - NUMBER) + heard[-NUMBER:] for _ in forged]
        size = 1 if singly else AT_ONCE
        calls = [b"".join(forged[at : at + size]) for at in range(0, len(forged), size)]
        if not singly:
            out.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(forged[0]))
        begin, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - begin) * rate)
            while sent < due and not stop.is_set():
                out.sendto(calls[sent // size % len(calls)], to)
                sent += size
            time.sleep(0.001)
        reached.value = sent / (time.monotonic() - begin)


def asked(head: bytes, heard: bytes) -> bytes:
    """A question about the board, to the members of the view of a packet that was heard."""
    view = heard[VIEW_AT : VIEW_AT + 8]
    frame = dump(Ask(int.from_bytes(view, "little"), 1, 0))
    head = head[:CRC_AT] + bytes(4) + head[CRC_AT + 4 : VIEW_AT] + view + head[VIEW_AT + 8 :]
    return head[:CRC_AT] + crc32c(head + frame).to_bytes(4, "little") + head[CRC_AT + 4 :] + frame


def await_message(group: str, stop: EventType) -> bytes:
    """The first packet that the group multicasts: before, forged datagrams would keep it from being founded."""
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
                packet = heard.recv(65535)
                if packet[2] == DATA:
                    return packet
            except TimeoutError:
                continue
    return bytes(HEADER + NUMBER)


class Run(NamedTuple):
    """Messages a second; forged datagrams that left a second; and those that a member dropped, in all."""

    messages: float
    forged: float
    dropped: float


def run(kind: str, number: int, key: str, rate: int, seconds: float, singly: bool) -> Run:
    cluster, stop, reached = f"forged-{os.getpid()}-{number}", Event(), Value("d", 0.0)
    settings = {} if kind.startswith("no key") else {"key": key}
    sender = Process(target=flood, args=(cluster, kind, keys.read(key)[0].number, rate, singly, stop, reached))
    if KINDS[kind]:
        sender.start()
    try:
        with open_path("loopback", 3) as path:
            load = Load(members=3, senders=1, size=1024, order="fifo", seconds=seconds, settings=settings)
            measured = group_throughput(path, load, cluster)
    finally:
        stop.set()
        if KINDS[kind]:
            sender.join()
    return Run(float(measured["delivered_msgs_per_s"]), reached.value, measured["foreign"] / load.members)


def main() -> None:
    """Measures all kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4, help="runs of each kind (%(default)s)")
    parser.add_argument("--rate", type=int, default=100_000, help="forged datagrams a second (%(default)s)")
    parser.add_argument("--singly", action="store_true", help="each forged datagram in a call of its own")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (%(default)s)")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        keys.make(key := os.path.join(folder, "key"))
        for pair in range(arguments.pairs):
            for number, kind in list(enumerate(KINDS))[:: 1 if pair % 2 == 0 else -1]:
                one = run(kind, 10 * pair + number, key, arguments.rate, arguments.seconds, arguments.singly)
                rates[kind].append(one.messages)
                besides = f", {one.forged:,.0f} forged/s, {one.dropped:,.0f} dropped by each" if one.forged else ""
                print(f"{kind:18}{one.messages:12,.0f} messages/s{besides}", file=sys.stderr, flush=True)
    pairs = [(kind, alone) for kind, alone in KINDS.items() if alone]
    rows = [compared(rates, *each) for each in [*pairs, *((kind, "of another group") for kind in OPENED)]]
    about = {"pairs": arguments.pairs, "rate": arguments.rate, "singly": arguments.singly, "machine": machine()}
    print(json.dumps({"forged": rows, **about}))


def compared(rates: dict[str, list[float]], kind: str, beside: str) -> dict[str, Any]:
    """A row of the table: the rate under one kind of datagrams, of that under another or under none."""
    ratios = [one / two for one, two in zip(rates[kind], rates[beside], strict=True)]
    medians = [round(statistics.median(rates[each])) for each in (kind, beside)]
    return {
        "kind": kind, "beside": beside, "msgs_per_s": medians[0], "beside_msgs_per_s": medians[1],
        "ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)],
    }  # fmt: skip


if __name__ == "__main__":
    main()
