"""Groups on a narrow link that they share: with each other, with a TCP stream, with random loss, with a smaller MTU.

    python bench/shared_link.py --only alone shared

Two bridges are joined by a link of --mbit Mb/s with a queue of 20 ms and a round trip of --round-trip-ms, which a
process emulates between two tap interfaces: the rate, the queue and the delay need no part of the kernel that may be
missing. Each group sends by unicast from one side to two members on the other, so two copies of each packet cross the
link. Prints one line of JSON. A run in which a member was suspected is an error. Needs root and a
C compiler.

    alone   one group: the share of the link that its messages have, and the share of the packets that the queue drops
    lossy   the same with 1 % of all packets dropped at random, besides
    shared  two groups and a TCP stream (CUBIC): their rates, and Jain's index of these
    narrow  one group; then packets above 1,400 bytes vanish without a word: its rate from 3 s later, of that before
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from seqcast.perf.paths import PathError, Place, bridged, mac, why_no_namespaces

CASES = ("alone", "lossy", "shared", "narrow")
QUEUE_S, ROUND_TRIP_MS = 0.02, 5.0
SIZE, WARM_S = 1024, 3.0
ETHERNET, NARROW = 14, 1400
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # of Linux, if_tun.h

MEMBER = """
import json, sys, threading, time
import seqcast

cluster, name, interface, seeds, size, warm, seconds = sys.argv[1:]
sends, warm, seconds = name == "a", float(warm), float(seconds)
group = seqcast.join(
    cluster, name=name, order="fifo", interface=interface, transport="unicast", seeds=seeds, min_members=3,
    deliver_own=False, receive=not sends,
)
print("ready", flush=True)
sys.stdin.readline()
begin, payload, marks = time.monotonic(), bytes(int(size)), [0] * int(warm + seconds + 2)
while (at := time.monotonic() - begin) < warm + seconds:
    if sends:
        for _ in range(16):
            group.send(payload)
    elif (batch := group.recv_batch(timeout=0.1)) is not None:
        marks[int(at)] += len(batch) * int(size)
said = {"members": len(group.view.members), "suspicions": group.counters()["suspicions"]}
print(json.dumps({"bytes": marks, **said}), flush=True)
sys.stdin.readline()
"""
STREAM = """
import json, socket, sys, time

role, address, warm, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
if role == "take":
    with socket.create_server((address, 5001)) as server:
        print("ready", flush=True)
        stream, _ = server.accept()
else:
    stream = socket.socket()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    stream.connect((address, 5001))
    print("ready", flush=True)
sys.stdin.readline()
begin, marks = time.monotonic(), [0] * int(warm + seconds + 2)
stream.settimeout(0.5)
while (at := time.monotonic() - begin) < warm + seconds:
    try:
        if role == "take":
            marks[int(at)] += len(stream.recv(1 << 16))
        else:
            stream.send(bytes(1 << 16))
    except TimeoutError:
        pass
print(json.dumps({"bytes": marks}), flush=True)
sys.stdin.readline()
"""


def open_tap(namespace: str) -> int:
    """A tap on the bridge of a namespace, which this process enters."""
    with open(f"/var/run/netns/{namespace}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"line", IFF_TAP | IFF_NO_PI))
    subprocess.run(["ip", "link", "set", "dev", "line", "master", "bridge", "up"], check=True)
    return tap


def carry(program: str, one: str, other: str, *numbers: str) -> None:
    """Becomes the process of the link, between taps in two namespaces."""
    taps = [open_tap(each) for each in (one, other)]
    for tap in taps:
        os.set_inheritable(tap, True)
    os.execv(program, [program, *map(str, taps), *numbers])


@contextlib.contextmanager
def compiled() -> Iterator[str]:
    """The program of the link."""
    with tempfile.TemporaryDirectory() as made:
        program = f"{made}/link"
        source = Path(__file__).with_name("link.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", str(source), "-o", program], check=True)
        yield program


class Program:
    """A process that says "ready", begins at a line, prints its result, and ends at the next line."""

    def __init__(self, *command: str) -> None:
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.popen.stdout is not None
        if line := self.popen.stdout.readline():
            return line
        raise PathError(f"{self.popen.args!r} ended early")

    def go(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


@contextlib.contextmanager
def programs() -> Iterator[list[Program]]:
    """Those that are put into the list are killed in the end."""
    made: list[Program] = []
    try:
        yield made
    finally:
        for each in made:
            each.popen.kill()
            each.popen.wait()


@contextlib.contextmanager
def sides(number: int) -> Iterator[tuple[tuple[Place, ...], tuple[Place, ...]]]:
    """Places on two bridges, with addresses of one network."""
    with bridged(number, segmented=True) as left, bridged(number, segmented=True) as right:
        for each, place in enumerate(right, 1):
            place.run("ip", "link", "set", "eth0", "address", mac(100 + each))
            place.run("ip", "address", "flush", "dev", "eth0")
            place.run("ip", "address", "add", f"10.99.0.{100 + each}/24", "dev", "eth0")
            place.run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        yield left, right


def run(
    mbit: float, seconds: float, trip_ms: float, groups: int, streams: int, loss: float = 0.0, narrow_s: float = 0.0,
    seed: int = 1,
) -> dict:
    """One run.

    Args:
        mbit: of the link.
        seconds: that are measured.
        trip_ms: the round trip of the link without its queue.
        groups, streams: that share the link.
        loss: part of the packets, at random by ``seed``.
        narrow_s: seconds after the begin; 0: the link has one MTU throughout.
    """
    with sides(groups + streams) as (left, right), compiled() as program, programs() as made:
        narrow_at = time.monotonic() + 10 + narrow_s if narrow_s else 0.0
        numbers = map(str, (mbit * 1e6 / 8, QUEUE_S, trip_ms / 2e3, loss, narrow_at, NARROW + ETHERNET, seed))
        link = Program(sys.executable, __file__, "--link", program, left[0].bridge, right[0].bridge, *numbers)
        made.append(link)
        link.line()
        takers: list[Program] = []
        times = (str(WARM_S), str(seconds))
        for number in range(groups):
            near, far = left[number], f"10.99.0.{101 + number}"
            for name, place in (("b", right[number]), ("c", right[number]), ("a", near)):
                arguments = (f"shared-{os.getpid()}-{number}", name, "eth0", f"{near.address},{far}", str(SIZE), *times)
                made.append(Program(*place.prefix, sys.executable, "-c", MEMBER, *arguments))
                takers += [made[-1]] if name == "b" else []
        for number in range(groups, groups + streams):
            for role, place in (("take", right[number]), ("send", left[number])):
                arguments = (role, f"10.99.0.{101 + number}", *times)
                made.append(Program(*place.prefix, sys.executable, "-c", STREAM, *arguments))
                if role == "take":
                    takers.append(made[-1])
                    made[-1].line()
        told = [each.line() for each in made[1:] if each not in takers[groups:]]
        assert all(line == "ready\n" for line in told)
        time.sleep(max(0.0, narrow_at - narrow_s - time.monotonic()))
        for each in made[1:]:
            each.go()
        results = {each: json.loads(each.line()) for each in made[1:]}
        link.popen.send_signal(signal.SIGTERM)
        of_link = json.loads(link.line())
    if any(result.get("members", 3) != 3 or result.get("suspicions") for result in results.values()):
        raise PathError("a member was suspected")
    marks = [results[each]["bytes"] for each in takers]
    copies = [2] * groups + [1] * streams
    warm = int(WARM_S)
    rates = [sum(each[warm : warm + int(seconds)]) / seconds * n for each, n in zip(marks, copies, strict=True)]
    return {"mbit": [round(rate * 8 / 1e6, 1) for rate in rates], "marks": marks[0], **of_link}


def measure(case: str, mbit: float, seconds: float, trip_ms: float, seed: int) -> dict[str, object]:
    """One case."""
    if case == "shared":
        row = run(mbit, seconds, trip_ms, 2, 1)
        rates = row["mbit"]
        index = sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates)
        return {"case": case, "mbit": rates, "jain": round(index, 3)}
    if case == "narrow":
        before, at = 6, int(WARM_S) + 6
        marks = run(mbit, before + 3 + seconds, trip_ms, 1, 0, narrow_s=at)["marks"]
        rates = [sum(marks[int(WARM_S) : at]) / before, sum(marks[at + 3 : at + 3 + int(seconds)]) / int(seconds)]
        mbit = [round(rate * 16 / 1e6, 1) for rate in rates]
        return {"case": case, "mbit": mbit, "of_before": round(rates[1] / rates[0], 3)}
    row = run(mbit, seconds, trip_ms, 1, 0, loss=0.01 if case == "lossy" else 0.0, seed=seed)
    share, lost = row["mbit"][0] / mbit, row["dropped"] / max(1, row["carried"])
    return {"case": case, "mbit": row["mbit"], "of_link": round(share, 3), "dropped": round(lost, 4)}


def main() -> int:
    """Measures all cases."""
    if sys.argv[1:2] == ["--link"]:
        carry(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, nargs="+", default=[100, 1000], help="rates of the link, Mb/s (100 1000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="that are measured (%(default)g)")
    parser.add_argument(
        "--round-trip-ms", type=float, default=ROUND_TRIP_MS, metavar="MS", help="of the link, 0 or more (%(default)g)"
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, help="cases (all)")
    parser.add_argument("--seed", type=int, default=1, help="of the frames that are dropped at random (%(default)s)")
    wanted = parser.parse_args()
    if not wanted.round_trip_ms >= 0:
        parser.error("--round-trip-ms must be 0 or more")
    if reason := why_no_namespaces():
        print(reason, file=sys.stderr)
        return 2
    rows = []
    for mbit in wanted.mbit:
        for case in wanted.only:
            link = {"link_mbit": mbit, "round_trip_ms": wanted.round_trip_ms}
            rows.append(link | measure(case, mbit, wanted.seconds, wanted.round_trip_ms, wanted.seed))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps({"shared_link": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
