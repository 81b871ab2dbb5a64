"""How long a group has no leader after its leader is killed or stopped: ``python bench/election.py [--signal STOP]``.

Four members on this machine, each a process, on loopback. The leader (the coordinator, or the leader of a token ring)
gets SIGKILL or SIGSTOP, and the time runs from before the signal to the moment at which the *last* of the other three
has a view of those three: CLOCK_MONOTONIC, which is one clock for all processes. A new member replaces the lost one,
and all is at rest before the next round. The kinds take turns, so that other load on the machine strikes all alike.

Compared, with the default settings, then with fast ones:

    coordinated    seqcast by default: the first member that is not suspected closes the view
    token ring     seqcast with ``membership="token-ring"``: a token goes round the survivors first
    Tribes         NonBlockingCoordinator of Apache Tribes over its TcpFailureDetector, in Java: a token goes round too.
                   Left out if ``apt-get install libtomcat10-java default-jdk-headless`` was not run. Fast: a beat
                   every 50 ms, and a member is dropped after 250 ms of silence (default: 500 ms and 3 s).

Tribes has no order and no flush, so its members have less to agree on; but Tribes learns of a killed process from
silence, and seqcast from the closed port, too. So Tribes' figures are mostly the time after which a member is dropped.
A stopped process keeps its ports open, so with SIGSTOP seqcast has only its silence. TcpFailureDetector asks a member
by TCP before dropping that one, and the kernel of a stopped process still answers a connection.

Prints one line of JSON; on standard error, a line a kind. An election that took more than 10 s is counted as missed,
and its group is made again.
"""

from __future__ import annotations

import argparse
import glob
import json
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from membership import FAST, HERE, Bench, Late

from seqcast.perf.report import machine

MEMBERS = 4
ELECTION_S = 10.0
FORMS_MAX = 5
"""Attempts to form a group: Tribes' sometimes do not form."""
JARS = ("/usr/share/java/tomcat10-{}.jar", "/usr/share/java/tomcat9-{}.jar")
JAVA = ("-Djava.net.preferIPv4Stack=true", "-Djava.util.logging.config.file=/dev/null", "-Xmx64m", "-XX:+UseSerialGC")
"""IPv4 sockets, as IPv4 has multicast on loopback; no log on our output."""
DROPS = {"default": (500, 3000), "fast": (50, 250)}
"""Tribes' settings: ms between two beats, and ms of silence after which a member is dropped."""


class Tribes(Bench):
    """A group of Apache Tribes.

    Args:
        path: of the classes.
        preset: "default" or "fast".
    """

    def __init__(self, path: str, preset: str) -> None:
        super().__init__([HERE])
        port = 20_000 + secrets.randbelow(20_000)
        self.path, self.times = path, [str(value) for value in (port, *DROPS[preset])]

    def command(self, name: str) -> list[str]:
        return ["java", *JAVA, "-cp", self.path, "Member", name, *self.times]


def tribes_path(folder: str) -> str:
    """The class path of Tribes and of our member, which is compiled into the folder.

    Raises:
        FileNotFoundError: a part is missing; the text names it.
    """
    for pattern in JARS:
        jars = [jar for name in ("tribes", "juli") for jar in glob.glob(pattern.format(name))]
        if len(jars) == 2:
            break
    else:
        raise FileNotFoundError("no libtomcat10-java is installed")
    if not (shutil.which("javac") and shutil.which("java")):
        raise FileNotFoundError("no default-jdk-headless is installed")
    path = ":".join((*jars, folder))
    source = Path(__file__).parent / "tribes" / "Member.java"
    subprocess.run(["javac", "-d", folder, "-cp", path, str(source)], check=True)
    return path


def elections(make: Callable[[], Bench], how: signal.Signals) -> Iterator[float | None]:
    """Elections without end, in ms; None: there was none within ``ELECTION_S``."""
    forms = 0
    while True:
        with make() as bench:
            try:
                bench.form(MEMBERS)
                forms = 0
                while (took := election(bench, how)) is not None:
                    yield took
                    bench.join(bench.spare())
                    bench.complete()
                yield None
            except Late:
                forms += 1
                if forms == FORMS_MAX:
                    raise


def election(bench: Bench, how: signal.Signals) -> float | None:
    bench.rest()
    victim = bench.coordinator
    bench.group.remove(victim)
    begin = time.monotonic_ns()
    victim.signal(how)
    try:
        return (bench.complete(seconds=ELECTION_S) - begin) / 1e6
    except Late:
        return None
    finally:
        victim.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--transport", default="auto", choices=("auto", "unicast"), help="of seqcast (%(default)s)")
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL", help="to the leader (%(default)s)")
    arguments = parser.parse_args()
    how, rows = signal.Signals[f"SIG{arguments.signal}"], []
    with tempfile.TemporaryDirectory() as folder:
        path = ""
        try:
            path = tribes_path(folder)
        except FileNotFoundError as error:
            print(f"Tribes: left out: {error}", file=sys.stderr)
        for preset, settings in (("default", {}), ("fast", FAST)):
            given, by = {**settings, "transport": arguments.transport}, ""
            if arguments.transport == "unicast":
                by = ", by unicast"
            kinds: dict[str, Callable[[], Bench]] = {
                f"seqcast, coordinated{by}": lambda given=given: Bench([HERE], **given),
                f"seqcast, token ring{by}": lambda given=given: Bench([HERE], membership="token-ring", **given),
            }
            if path and not by:
                kinds["Tribes"] = lambda preset=preset: Tribes(path, preset)
            rows += measure(kinds, preset, arguments.rounds, how)
    run = {"signal": how.name, "members": MEMBERS, "rounds": arguments.rounds, "machine": machine()}
    print(json.dumps({"election": rows, **run}))
    return 0


def measure(
    kinds: dict[str, Callable[[], Bench]], preset: str, rounds: int, how: signal.Signals
) -> list[dict[str, object]]:
    """One row for each kind."""
    running = {kind: elections(make, how) for kind, make in kinds.items()}
    took: dict[str, list[float | None]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, each in running.items():
            took[kind].append(next(each))
    rows = []
    for kind, values in took.items():
        running[kind].close()
        ended = [value for value in values if value is not None]
        row: dict[str, object] = {"what": kind, "settings": preset, "rounds": rounds, "missed": rounds - len(ended)}
        if ended:
            row |= {"p50_ms": round(statistics.median(ended), 1)}
            row |= {"low_ms": round(min(ended), 1), "high_ms": round(max(ended), 1)}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr)
    return rows


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Late as error:
        sys.exit(f"bench: {error}")
