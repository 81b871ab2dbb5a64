"""seqcast beside Aeron in the same run, on loopback: ``python bench/aeron_bench.py``.

    python bench/aeron_bench.py                             # 4 minutes
    python bench/aeron_bench.py --sizes 1024 --pairs 3
    python bench/aeron_bench.py --json                      # one object, as docs/figures.jsonl has it

One member sends and three receive, each a process of its own. In each pair every kind runs once, one after the other,
and each second pair has them in the opposite order:

    fifo                  seqcast in the order "fifo", arrays of messages, as ``seqcast perf``
    total                 the default order, the same; the sender is not the sequencer
    total, four senders   all four send; a member receives the messages of the other three, and its rate is theirs
    fifo, plain loops     ``send`` in a loop, ``for message in group``; the sender receives its own messages, too
    Aeron                 in C++: ``offer`` for each message in a publisher, ``poll`` in a loop in three subscribers

A rate is that of the slowest receiver, from the start of the sender to the receiver's last message. The CPU time is
that of all processes for one message, Aeron's drivers among them. Printed are medians over the pairs, and of the ratios
of each pair also the least and the most. A run in which a message was lost or wrong does not count, which is said; the
exit status is 1 if that was a run of seqcast, or if a kind has no run that counts.

seqcast checks a CRC of each packet, and its members agree on who is in the group. Aeron's stream has neither, and no
total order. The Aeron is 1.11.3, its driver in C and its client in C++: of all Aerons only this one is in a package
registry, in the sources of the Python package aeron-python 1.0.0. pip downloads Aeron, and cmake builds it, in the
folder ``--aeron``, once. The build needs Linux, cmake, make and a C++ compiler (``apt-get install cmake g++ make``).

Aeron has its best conditions here: a driver for each member, as on a network, with one thread each; the largest
packets; sockets of 4 MB; a window of 2 MB; terms of 16 MB; and flow control by the slowest receiver, which its newer
drivers have (bench/aeron/min_flow_control.c). Windows of 512 KB, 1 MB and 4 MB, drivers that only sleep or only yield
when there is nothing to do, and flow control by the fastest receiver are no faster by more than the noise; one driver
for all four members is slower.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqcast.perf.hosts import GROUP_ADDRESS
from seqcast.perf.paths import Path as NetPath
from seqcast.perf.paths import open_path
from seqcast.perf.processes import Crew, Process, Processes, RunFailed
from seqcast.perf.report import machine
from seqcast.perf.runs import START_S, Load, everyone, group_throughput, port

HERE = Path(__file__).resolve().parent / "aeron"
CACHE = Path.home() / ".cache" / "seqcast" / "aeron"
PROJECT, VERSION = "aeron-python", "1.0.0"
ARCHIVE = f"aeron_python-{VERSION}"
TOOLS = ("setuptools>=66.1,<67", "wheel")
INSTALL = "on Debian: apt-get install cmake g++ make"
MEMBERS = 4
QUIET_S = 10.0
"""Subscribers wait this long for missing data."""
SETTLE_S = 0.2
"""Until the publisher's driver knows the windows of all subscribers."""
ROOM_BYTES = 512 << 20
"""Each of four drivers keeps three terms, and less than that beside them."""
FLOW_CONTROL = "seqcast_bench_min_flow_control"
DRIVER = {
    "AERON_THREADING_MODE": "SHARED",
    "AERON_MTU_LENGTH": "65504",
    "AERON_SOCKET_SO_RCVBUF": str(4 << 20),
    "AERON_SOCKET_SO_SNDBUF": str(4 << 20),
    "AERON_RCV_INITIAL_WINDOW_LENGTH": str(2 << 20),
    "AERON_TERM_BUFFER_LENGTH": str(16 << 20),
    "AERON_PUBLICATION_TERM_WINDOW_LENGTH": str(8 << 20),
    "AERON_MULTICAST_FLOWCONTROL_SUPPLIER": FLOW_CONTROL,
}
CONFIGURE = (
    "-DBUILD_AERON_DRIVER=ON", "-DAERON_TESTS=OFF", "-DAERON_BUILD_SAMPLES=OFF", "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS=-fcommon", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",
)  # fmt: skip
"""Its C has variables in headers, and its lists are for cmake 3.0."""


class Missing(Exception):
    """Aeron cannot be had or built here; the text names the remedy."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: messages/s, CPU time of all processes for a message, and messages lost and wrong."""

    rate: float
    cpu_us: float
    lost: int
    wrong: int


@dataclass(frozen=True, slots=True)
class Kind:
    """How seqcast runs, and the least ratio to Aeron that is expected, from which message size on."""

    order: str
    senders: int = 1
    loops: str = "batches"
    target: float | None = None
    target_bytes: int = 0


KINDS: dict[str, Kind | None] = {
    "fifo": Kind("fifo", target=1.3, target_bytes=1024),
    "total": Kind("total", target=1.0),
    "Aeron": None,
    "total, four senders": Kind("total", senders=MEMBERS, target=0.8),
    "fifo, plain loops": Kind("fifo", loops="plain"),
}
"""In the order of the runs, with Aeron in the middle, near to each of the others; None: Aeron."""


# ---- Aeron ---------------------------------------------------------------------------------------------------------


class Aeron:
    """Aeron, built in a folder.

    Args:
        folder: holds the downloads and builds; missing ones are added.

    Raises:
        Missing: that cannot be done.
    """

    def __init__(self, folder: Path) -> None:
        if not sys.platform.startswith("linux"):
            raise Missing("Aeron is measured on Linux only")
        self._folder = folder.expanduser().resolve()
        self._driver = self._folder / "build" / "binaries" / "aeronmd"
        self._member = self._folder / "member"
        self._flow_control = self._folder / "min_flow_control.so"
        self._folder.mkdir(parents=True, exist_ok=True)
        client = self._folder / "build" / "lib" / "libaeron_client.a"
        source = self._folder / ARCHIVE / "external" / "aeron"
        if not (source.exists() and self._driver.exists() and client.exists()):
            self._build(source)
        part = source / "aeron-client" / "src" / "main" / "cpp"
        command = ["c++", "-O2", "-std=c++11", "-w", f"-I{part}", str(HERE / "member.cpp"), str(client), "-pthread"]
        self._make(self._member, HERE / "member.cpp", command)
        part = source / "aeron-driver" / "src" / "main" / "c"
        command = ["cc", "-O2", "-w", "-shared", "-fPIC", f"-I{part}", str(HERE / "min_flow_control.c")]
        self._make(self._flow_control, HERE / "min_flow_control.c", command)

    def _build(self, source: Path) -> None:
        """Downloads the sources if they are not there, and builds driver and client."""
        missing = [tool for tool in ("cmake", "make", "cc", "c++") if not shutil.which(tool)]
        if missing:
            raise Missing(f"no {', '.join(missing)} here; {INSTALL}")
        say(f"building Aeron in {self._folder}: once, a minute or two")
        if not source.exists():
            archive = self._folder / f"{ARCHIVE}.tar.gz"
            if not archive.exists():
                self._download()
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                whole = Path(folder) / "whole"
                try:
                    with tarfile.open(archive, "r:gz") as files:
                        files.extractall(whole, filter="data")
                except (tarfile.TarError, OSError, EOFError) as error:
                    raise Missing(f"{archive} cannot be read; remove the file: {error}") from None
                whole.rename(self._folder / ARCHIVE)
        build = str(self._folder / "build")
        self._call("cmake", "-S", str(source), "-B", build, *CONFIGURE)
        jobs = str(os.cpu_count() or 1)
        self._call("cmake", "--build", build, "--parallel", jobs, "--target", "aeronmd", "aeron_client")

    def _download(self) -> None:
        """Has pip fetch the sources. To learn the package's name pip runs its setup, which newer setuptools refuse to
        read."""
        pip, tools = [sys.executable, "-m", "pip", "--quiet"], str(self._folder / "tools")
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(self._folder)]
        try:
            self._call(*pip, "install", "--upgrade", "--target", tools, *TOOLS)
            self._call(*pip, "download", *options, f"{PROJECT}=={VERSION}", path=tools)
        except Missing as error:
            where = f"put {ARCHIVE}.tar.gz into {self._folder}"
            raise Missing(f"pip cannot download {PROJECT} {VERSION}, {where}: {error}") from None

    def _make(self, result: Path, source: Path, command: Sequence[str]) -> None:
        """Compiles a file unless its result is newer."""
        if not result.exists() or result.stat().st_mtime < source.stat().st_mtime:
            self._call(*command, "-o", str(result))

    def _call(self, *command: str, path: str = "") -> None:
        """Runs a command. Raises Missing with the last printed error if the command fails.

        Args:
            command: and its arguments.
            path: where Python looks for modules first.
        """
        log, environment = self._folder / "log", os.environ | ({"PYTHONPATH": path} if path else {})
        try:
            with log.open("w") as file:
                done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
        except FileNotFoundError:
            raise Missing(f"no {command[0]} here; {INSTALL}") from None
        if done.returncode:
            lines = log.read_text(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
            errors = [line for line in lines if "error" in line.lower() and not line.startswith("make")]
            last = (errors or lines)[-1].strip()
            raise Missing(f"{Path(command[0]).name} failed: {last} (full output: {log})")

    def run(self, size: int, seconds: float) -> Run:
        """One run; lost and wrong are sums over the subscribers.

        Raises:
            RunFailed: a process failed.
        """
        channel = f"aeron:udp?endpoint={GROUP_ADDRESS}:{port(4)}|interface=127.0.0.1"
        with tempfile.TemporaryDirectory(dir=memory()) as folder, self._drivers(Path(folder)) as drivers:
            with Processes() as processes:
                for number in range(MEMBERS):
                    what = "subscribe" if number else "publish"
                    command = [str(self._member), what, channel, str(size)]
                    place = {"AERON_DIR": f"{folder}/{number}"}
                    process = Process(command, f"Aeron, {what} {number}", env=os.environ | place)
                    processes.all.append(process)
                everyone(processes.all, "ready", START_S)
                time.sleep(SETTLE_S)
                cpu = cpu_s(drivers)
                publisher, *subscribers = processes.all
                publisher.tell(seconds=seconds)
                sent = publisher.expect("sent", START_S + seconds)
                for process in subscribers:
                    process.tell(messages=sent["sent"])
                done = everyone(processes.all, "done", START_S + QUIET_S)
                cpu = cpu_s(drivers) - cpu + sum(each["cpu_s"] for each in done)
        received = done[1:]
        return Run(
            rate=min(each["received"] * 1e9 / max(1, each["last_ns"] - sent["begun_ns"]) for each in received),
            cpu_us=cpu * 1e6 / max(1, sent["sent"]),
            lost=sum(sent["sent"] - each["received"] for each in received),
            wrong=sum(each["wrong"] for each in received),
        )

    @contextlib.contextmanager
    def _drivers(self, folder: Path) -> Iterator[list[int]]:
        """The process ids of the drivers, one for each member; their folders are called 0, 1 ... there."""
        running = []
        try:
            for number in range(MEMBERS):
                own = {"AERON_DIR": str(folder / str(number)), "LD_PRELOAD": str(self._flow_control)}
                running.append(
                    subprocess.Popen(
                        [str(self._driver)],
                        env=os.environ | DRIVER | own,
                        stdout=subprocess.DEVNULL,
                        start_new_session=True,  # Ctrl-C reaches only this process, which ends them
                    )
                )
            yield [driver.pid for driver in running]
        finally:
            for driver in running:
                driver.kill()
            for driver in running:
                driver.wait()


def memory() -> str | None:
    """A folder in memory with room for the drivers' files; None: the usual one for temporary files."""
    folder = "/dev/shm"
    return folder if os.path.isdir(folder) and shutil.disk_usage(folder).free > ROOM_BYTES else None


def cpu_s(pids: Sequence[int]) -> float:
    """CPU time that these processes have used, in and outside the kernel, s.

    Raises:
        RunFailed: one of them ended.
    """
    ticks = 0
    for pid in pids:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        if state == "Z":
            raise RunFailed("a driver of Aeron ended")
        ticks += int(fields[10]) + int(fields[11])
    return ticks / os.sysconf("SC_CLK_TCK")


# ---- pairs ---------------------------------------------------------------------------------------------------------


def run_seqcast(kind: Kind, size: int, seconds: float, path: NetPath, crew: Crew, cluster: str) -> Run:
    """One run of a group, whose name no other run has.

    Raises:
        RunFailed: a member failed, or membership changed.
    """
    load = Load(MEMBERS, kind.senders, size, kind.order, seconds, kind=kind.loops)
    run = group_throughput(path, load, cluster, crew if kind.loops == "batches" else None)
    return Run(run["delivered_msgs_per_s"], run["cpu_us_per_msg"], run["lost"], run["wrong"])


def measure(
    size: int, options: argparse.Namespace, aeron: Aeron, path: NetPath, crew: Crew
) -> dict[str, list[Run | None]]:
    """All pairs of one message size; None: the run failed."""
    runs: dict[str, list[Run | None]] = {name: [] for name in KINDS}
    for pair in range(options.pairs):
        for number, (name, kind) in enumerate(list(KINDS.items())[:: -1 if pair % 2 else 1]):
            run = None
            try:
                if kind is None:
                    run = aeron.run(size, options.seconds)
                else:
                    cluster = f"aeron-{os.getpid()}-{size}-{pair}-{number}"
                    run = run_seqcast(kind, size, options.seconds, path, crew, cluster)
            except RunFailed as error:
                say(f"{name}, {size} B: failed: {str(error).splitlines()[-1]}")
            if run and not counts(run):
                say(f"{name}, {size} B: {run.lost} lost, {run.wrong} wrong: this run does not count")
            runs[name].append(run)
    return runs


def counts(run: Run | None) -> bool:
    """Did all messages arrive as they were sent?"""
    return run is not None and not run.lost and not run.wrong


def figures(name: str, size: int, runs: dict[str, list[Run | None]]) -> dict[str, Any]:
    """Medians of the runs of one kind, and of its ratios to Aeron, with their spread. Empty if no pair counts."""
    both = [(a, b) for a, b in zip(runs[name], runs["Aeron"], strict=True) if a and b and counts(a) and counts(b)]
    if not both:
        return {}
    kind = KINDS[name]
    row: dict[str, Any] = {"what": name, "size": size, "pairs": len(both)}
    row |= {"rate": round(statistics.median(run.rate for run, _ in both))}
    row |= {"cpu_us": round(statistics.median(run.cpu_us for run, _ in both), 4)}
    if kind:
        ratios = [run.rate / beside.rate for run, beside in both]
        row |= {"ratio": round(statistics.median(ratios), 3)}
        row |= {"spread": [round(min(ratios), 3), round(max(ratios), 3)]}
        row |= {"target": kind.target if size >= kind.target_bytes else None}
    return row


def line(row: dict[str, Any]) -> str:
    """One row in words."""
    text = f"{row['size']:>6,} B  {row['what']:20} {row['rate']:>12,} msgs/s  CPU {row['cpu_us']:8.3f} us"
    if "ratio" not in row:
        return text
    text += "  {:.2f} ({:.2f} to {:.2f}) of Aeron".format(row["ratio"], *row["spread"])
    missed = row["target"] is not None and row["ratio"] < row["target"]
    return text + (f", target {row['target']:g} not reached" if missed else "")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Runs interleaved pairs and prints rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 1024, 8192, 65536], metavar="BYTES")
    parser.add_argument("--pairs", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (%(default)s)")
    parser.add_argument("--aeron", type=Path, default=CACHE, metavar="FOLDER", help="where it is built (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    if min(options.sizes) < 8 or options.pairs < 1:
        parser.error("a message has at least 8 bytes, and there is at least one pair")
    try:
        aeron = Aeron(options.aeron)
    except Missing as error:
        print(f"aeron_bench: Aeron cannot be measured here: {error}", file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    failed = False
    crew = Crew()
    with open_path("loopback", MEMBERS) as path, crew:
        for size in options.sizes:
            runs = measure(size, options, aeron, path, crew)
            failed |= any(run and not counts(run) for name, each in runs.items() if KINDS[name] for run in each)
            found = [figures(name, size, runs) for name in KINDS]
            failed |= not all(found)
            rows += [row for row in found if row]
            if not options.json:
                print("\n".join(line(row) for row in found if row), flush=True)
    if options.json:
        about = {"members": MEMBERS, "pairs": options.pairs, "seconds": options.seconds, "machine": machine()}
        print(json.dumps({"aeron": rows, **about}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
