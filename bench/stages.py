"""Where the CPU time of a packet goes, stage by stage, beside plain C: ``python bench/stages.py``.

    python bench/stages.py --pairs 5                 # writes docs/stages.md
    python bench/stages.py --sizes 1024 --into -     # prints the table of one size

One member sends arrays of messages as ``seqcast perf`` does, in the order "fifo", over loopback and where each packet
arrives by itself; the others receive batches. Each member is a process of its own, and the system says how much CPU
time it used; so does each process of the two baselines in plain C, in the same pair of runs. ``perf`` of Linux
interrupts all processes some thousand times a second, and the function in which it finds one tells the use of its time.
It needs the right to look at the kernel (root, or ``kernel.perf_event_paranoid`` below 0).

CPU time and not duration: with fewer cores than processes they take turns, and other load on the machine changes when a
process runs more than its CPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqcast.perf.paths import Path as NetPath
from seqcast.perf.paths import open_path
from seqcast.perf.report import machine
from seqcast.perf.runs import Load, bare_run, group_throughput

DOCS = Path(__file__).resolve().parent.parent / "docs"
SAMPLES_PER_S = 3999
"""Not a divisor of the kernel's timers, with which a round number would beat."""
STAGES = {
    "copy": "into the send ring; out of the received packets into the batch",
    "CRC": "over the whole packet",
    "engine": "our C: packing and framing; checks, receive ring, order, delivery queue; sockets",
    "Python": "the interpreter, NumPy, the code between Python and C; the loops and the checks of the measurement",
    "locks": "taking and giving back mutexes, without waiting for them",
    "clock": "reading the time",
    "system calls": "into the kernel and back",
    "kernel: copy": "between the sockets and our memory",
    "kernel: network": "the rest of sending and receiving: buffers, routing, queues of sockets",
    "kernel: waits": "polls, naps and futexes, waking others and being woken, switching between processes",
    "kernel: other": "interrupts, page faults",
}
RUNS = ("seqcast", "limit", "raw")
TITLES = {"seqcast": "seqcast", "limit": "the limit", "raw": "plain C"}
READING = """\
- **The kernel takes more than half of the time**, more than four fifths of a sender's if each packet arrives by itself,
  and nearly all of plain C's time, mostly for its copy and its network. Other sizes of packets, windows and naps change
  little.
- **Copies.** A message is copied once into the send ring. Receivers lend the memory of received packets (*copy* is
  next to nothing there), while the limit copies; so over loopback receivers of messages of 1 KB and more need less time
  than the limit's.
- **CRC and copy in one pass** are not built. A receiver that lends memory has no copy to merge the CRC with. A sender
  has, but the CRC reads bytes that the copy has just brought into the cache; over loopback the CRC takes a third to a
  half of the copy's time there, and would not become free. With AVX-512 the CRC of a large packet takes less than a
  tenth of a sender's time.
- **Locks, clocks and system calls** are some percent together: one lock and one clock for each array, one `sendmsg`
  for each packet or run of packets, one `recvmmsg` for all that have gathered.
- A prototype of the data plane without views, order, delivery to Python or flow control beyond one window once
  reached 1.7 times our rate at 1 KB. The difference was: a copy out of each packet, a slower CRC, more locks and
  hand-overs between the thread of the caller and the I/O thread, small receives, and offsets on the wire. The rest
  beyond the limit is *engine* (views, order, flow control, delivery) and *Python*, with the loops and checks of the
  measurement.
- **If each packet arrives by itself** (veth-segmented), all work for each packet counts: its slab, its place in the
  receive ring, its source address.
"""
"""Below the tables; look at it again when they are made again."""

COPIES = ("_copy_to_iter", "_copy_from_iter", "rep_movs_alternative", "__memcpy", "memcpy_orig")
ENTRIES = ("entry_SYSCALL", "do_syscall_64", "syscall_", "x64_sys_call", "srso_alias_", "arch_exit_to_user")
WAITS = (
    "do_sys_poll", "do_poll", "do_epoll", "ep_poll", "__x64_sys_poll", "__x64_sys_ppoll", "do_futex",
    "schedule", "try_to_wake_up", "sock_def_readable", "__x64_sys_sched_yield", "hrtimer_nanosleep",
    "__x64_sys_clock_nanosleep",
)  # fmt: skip
OUTSIDE = ("[vdso]", "[vsyscall]", "[unknown]", "[heap]", "[stack]")
"""Of the names in brackets, those that are not the kernel or a module of it."""
MERGED = ("_6Driver_", "_4bare_")
"""In the names of Cython's functions that call our C, or that of the baselines, and do little else: the compiler puts
most of it into them."""
MEASURING = ("sc_numbers", "_4bare_7Numbers_", "_4bare_5Check_")
"""In the names of functions that number and check the messages of a measurement."""
CALLS = ("__x64_sys_send", "__x64_sys_recv", "__sys_send", "__sys_recv", "do_recvmmsg", "net_rx_action")


# ---- samples -------------------------------------------------------------------------------------------------------


def stage_of(chain: Sequence[tuple[str, str]]) -> str:
    """The stage to which a sample belongs. ``chain``: (function, file) from the innermost call outwards."""
    function, file = chain[0]
    if not file.startswith("[") or file in OUTSIDE:
        return user_stage(function, file)
    names = [name for name, _ in chain]
    if function.startswith(COPIES):
        return "kernel: copy"
    if any(name.startswith(WAITS) for name in names):
        return "kernel: waits"
    if function.startswith(ENTRIES):
        return "system calls"
    return "kernel: network" if any(name.startswith(CALLS) for name in names) else "kernel: other"


def user_stage(function: str, file: str) -> str:
    """The stage of a sample outside the kernel."""
    if function.startswith("crc32c"):
        return "CRC"
    if "clock_gettime" in function or "vdso" in file:
        return "clock"
    if "libc" in file:
        if "memmove" in function or "memcpy" in function:
            return "copy"
        if "pthread" in function or "lll_" in function:
            return "locks"
        calls = ("send", "recv", "poll", "nanosleep", "syscall", "futex", "sched_yield")
        return "system calls" if any(call in function for call in calls) else "engine"
    if "/_native/" not in file or any(name in function for name in MEASURING):
        return "Python"
    return "engine" if not function.startswith("__pyx") or any(name in function for name in MERGED) else "Python"


class Samples:
    """A context in which all processes of the machine are sampled."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __enter__(self) -> Samples:
        command = ["perf", "record", "-a", "-g", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-k", "CLOCK_MONOTONIC"]
        self._perf = subprocess.Popen(
            [*command, "-o", self.file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        time.sleep(0.5)
        if self._perf.poll() is not None:
            raise SystemExit(f"perf cannot sample: {self._perf.stderr.read()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._perf.send_signal(signal.SIGINT)
        self._perf.communicate()

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        """Process, monotonic ns and stage of each sample."""
        command = ["perf", "script", "-i", self.file, "--ns", "-F", "pid,time,ip,sym,dso"]
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
        for block in text.split("\n\n"):
            head, *frames = block.strip("\n").split("\n")
            if not frames:
                continue
            pid, seconds = head.split()
            whole, _, fraction = seconds.rstrip(":").partition(".")
            yield int(pid), int(whole) * 10**9 + int(fraction), stage_of([frame_of(line) for line in frames])


def frame_of(line: str) -> tuple[str, str]:
    """Function and file of a line of ``perf script``."""
    rest = line.split(maxsplit=1)[1]
    function, _, file = rest.rpartition(" (")
    return function, file.rstrip(")")


# ---- processes -----------------------------------------------------------------------------------------------------


def of_each(
    used: Sequence[Mapping[str, float]], sender: int, packets: float, samples: Counter[tuple[int, str]]
) -> list[dict[str, float]]:
    """CPU use for one packet, in all and by stage, ns: of the sender, and of a receiver on average."""
    each = []
    for use in used:
        total = (use["user_s"] + use["system_s"]) * 1e9 / packets
        seen = sum(samples[int(use["pid"]), stage] for stage in STAGES)
        shares = {stage: total * samples[int(use["pid"]), stage] / max(1, seen) for stage in STAGES}
        each.append({**shares, "all": total, "waits": use["waits"] / packets})
    others = [use for index, use in enumerate(each) if index != sender]
    return [each[sender], {key: statistics.mean(use[key] for use in others) for key in each[sender]}]


def counted(samples: Samples, used: Sequence[Mapping[str, float]]) -> Counter[tuple[int, str]]:
    """How many samples found a process of the run in a stage, while it was measured."""
    spans = {int(use["pid"]): (use["begun_ns"], use["ended_ns"]) for use in used}
    never = (0, 0)
    return Counter(
        (pid, stage) for pid, at_ns, stage in samples if spans.get(pid, never)[0] <= at_ns < spans.get(pid, never)[1]
    )


def run_pair(path: NetPath, load: Load, number: int) -> dict[str, list[dict[str, float]]]:
    """One run of the group and of both baselines: by name, of the sender and of a receiver."""
    pair = {}
    with tempfile.TemporaryDirectory(prefix="seqcast-stages-") as folder:
        with Samples(f"{folder}/samples") as samples:
            run = group_throughput(path, load, f"stages-{os.getpid()}-{number}")
        pair["seqcast"] = of_each(run["used"], 1, run["packets"], counted(samples, run["used"]))
        for name in ("limit", "raw"):
            with Samples(f"{folder}/samples") as samples:
                done = bare_run(path, load, limit=name == "limit", window_bytes=int(run["window_bytes"]))
            pair[name] = of_each(done, 0, done[0]["sent"] / path.packet_bytes, counted(samples, done))
    return pair


def measure(path: NetPath, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Medians over the pairs, of one message size: run -> side -> stage -> ns."""
    load = Load(members=options.members, senders=1, size=size, order="fifo", seconds=options.seconds)
    pairs = []
    for number in range(options.pairs):
        pairs.append(run_pair(path, load, number))
        print(f"{size} B: pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)

    def middle(run: str, side: int) -> dict[str, float]:
        return {key: statistics.median(pair[run][side][key] for pair in pairs) for key in pairs[0][run][side]}

    about = {"size": size, "path": path.name, "packet_bytes": path.packet_bytes}
    return {**about, **{run: [middle(run, 0), middle(run, 1)] for run in RUNS}}


# ---- the page ------------------------------------------------------------------------------------------------------


def page(results: Sequence[Mapping[str, Any]], options: argparse.Namespace, load: float) -> str:
    """docs/stages.md. ``load`` is the average number of runnable threads before the runs."""
    lines = [
        "# Where the CPU time of a packet goes",
        "",
        f"Made by `python bench/stages.py --pairs {options.pairs}` on {machine()}; other work before: a load "
        f"average of {load:.1f}.",
        "",
        f"One sender and {options.members - 1} receivers, each in a process of its own, in the order `fifo`, with "
        "arrays of messages. CPU time of the sender and of each receiver for one packet, in ns; medians of "
        f"{options.pairs} runs of each. CPU time per process is the system's; a profiler that samples "
        f"{SAMPLES_PER_S:,} times a second on each core attributes it to functions. *Plain C* is the baseline without "
        "a protocol; *the limit* the one with acks, CRC and copies.",
        "",
    ]
    lines += [f"- *{stage}*: {what}." for stage, what in STAGES.items()]
    lines.append("- *blocked*: how often the process waited in the kernel, for one packet.")
    for result in results:
        sides = [f"{side}: {TITLES[run]}" for side in ("sender", "receiver") for run in RUNS]
        title = f"## {result['path']}, messages of {result['size']:,} B, packets of {result['packet_bytes']:,} bytes"
        lines += ["", title, "", "| ns | " + " | ".join(sides) + " |"]
        lines.append("| --- |" + " ---: |" * len(sides))

        def row(name: str, key: str, form: str, result: Mapping[str, Any] = result) -> str:
            return f"| {name} | " + " | ".join(form.format(result[run][i][key]) for i in (0, 1) for run in RUNS) + " |"

        lines += [row(stage, stage, "{:,.0f}") for stage in STAGES]
        lines += [row("**all**", "all", "{:,.0f}"), row("blocked", "waits", "{:.2f}")]
    return "\n".join([*lines, "", "## Conclusions", "", READING])


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and writes the page."""
    parser = argparse.ArgumentParser(description="the CPU time of a packet, stage by stage")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 8192, 65536], metavar="BYTES")
    parser.add_argument("--paths", nargs="+", default=["loopback", "veth-segmented"])
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--into", default=str(DOCS / "stages.md"), metavar="FILE", help="-: print it (%(default)s)")
    options = parser.parse_args(argv)
    if not shutil.which("perf"):
        parser.error("perf of Linux is missing; on Debian: apt-get install linux-perf")
    load = os.getloadavg()[0]
    results = []
    for name in options.paths:
        with open_path(name, options.members) as path:
            results += [measure(path, size, options) for size in options.sizes]
    text = page(results, options, load)
    if options.into == "-":
        print(text, end="")
    else:
        Path(options.into).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
