"""Streams of real groups into tables, while members are killed, paused and started, and the query is restarted:
``PYTHONPATH=tests:tests/helpers python -m chaos.streams --seeds 1 100``.

At the end the members stop sending, or are killed or leave one after the other, all of them. Then the table is compared
with the journals: every message that a remaining member delivered, or one in the last view, must be there, none twice,
none that nobody delivered, and those of each sender in the order sent. A query may fail instead, saying that a member
that crashed delivered messages that no other has, but may not stand still. If all members were killed, those that are
started then found a new group, with which the query goes on; and also with one that was founded apart and merges later.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from seqcast.journal.places import find
from seqcast.journal.reader import Journal

ORDERS = ("total", "sequencer", "grant", "fifo", "causal")
COLUMNS = ("view_tag", "sender_id", "seqno", "index", "payload")
ACTIONS_S = 8.0
"""The time for which faults are drawn."""
LIMIT_S = 180.0
"""For members to be in one view, and for the stream to have everything, on a busy machine."""
MEMBERS_MAX = 5
AGAIN = "failed to connect back", "CANNOT_OPEN_SOCKET"
"""The query is started again: Spark's own processes did not start in time."""
TOLD = "known to have the same only up to"
SOURCE = Path(__file__).resolve().parents[2] / "src"
MEMBER = """
import signal, sys, threading
import seqcast
cluster, name, journal, order, interface = sys.argv[1:]
over, leaves = threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: over.set())
signal.signal(signal.SIGTERM, lambda *_: leaves.set())
with seqcast.join(cluster, name=name, order=order, journal=journal, interface=interface) as group:
    print("joined", flush=True)
    number = 0
    while not leaves.is_set():
        if not over.is_set():
            group.send_many([b"%d" % each for each in range(number, number + 5)])
            number += 5
        while group.recv_batch(0.05) is not None:
            pass
"""


class Wrong(AssertionError):
    """The table is wrong."""


@dataclass
class Life:
    """A member's process."""

    name: str
    process: subprocess.Popen[str]
    paused: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class Scene:
    """A group, its journals, and a query that is written into a table."""

    spark: Any
    top: Path
    rng: random.Random
    interface: str
    cluster: str = field(default_factory=lambda: f"streams-{secrets.token_hex(6)}")
    lives: list[Life] = field(default_factory=list)
    query: Any = None
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.order = self.rng.choice(ORDERS)
        self.rows_max = self.rng.choice((0, 0, 200, 1000))
        (self.top / "table").mkdir()

    def start(self) -> None:
        name = f"m{len(self.lives)}"
        task = self.cluster, name, str(self.top / "journals"), self.order, self.interface
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "SEQCAST_JOIN_TIMEOUT_S": "60"}
        with (self.top / f"{name}.log").open("w") as log:
            self.lives.append(
                Life(
                    name,
                    subprocess.Popen(
                        [sys.executable, "-c", MEMBER, *task],
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        env=environment,
                    ),
                )
            )

    def joined(self) -> None:
        told = self.lives[-1].process.stdout
        assert told is not None
        if told.readline() != "joined\n":
            raise Wrong(f"{self.lives[-1].name} did not join: {(self.top / f'{self.lives[-1].name}.log').read_text()}")

    def run_query(self, *, last: bool = False) -> None:
        source = self.spark.readStream.format("seqcast").options(failoverAfter="1", onNewGroup="continue")
        if self.rows_max:
            source = source.option("maxRowsPerBatch", str(self.rows_max))
        rows = source.load(str(self.top / "journals")).selectExpr(*(f"`{name}`" for name in COLUMNS))
        stream = rows.writeStream.option("checkpointLocation", str(self.top / "checkpoint")).foreachBatch(self._take)
        self.query = stream.trigger(
            **({"availableNow": True} if last else {"processingTime": "100 milliseconds"})
        ).start()

    def _take(self, batch: Any, number: int) -> None:
        """Writes a batch under its number: one that comes again takes the place of the one before."""
        path = self.top / "table" / f"{number:08d}.parquet"
        pq.write_table(batch.toArrow(), path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)

    def failed(self) -> str:
        """Why the query ended; empty while running."""
        why = self.query.exception()
        if why is not None and any(each in str(why) for each in AGAIN):
            self.done["again"] += 1
            self.run_query()
            return ""
        return "" if why is None else str(why)

    def act(self) -> None:
        """The next draw."""
        free = [life for life in self.lives if life.alive and not life.paused]
        paused = [life for life in self.lives if life.alive and life.paused]
        kinds = ["kill"] * (len(free) > 1) + ["pause"] * 3 * (len(free) > 1) + ["go on"] * 2 * bool(paused)
        kinds += ["start"] * (sum(life.alive for life in self.lives) < MEMBERS_MAX) + ["restart"]
        kind = self.rng.choice(kinds)
        self.done[kind] += 1
        if kind == "kill":
            self.rng.choice(free).process.kill()
        elif kind == "pause":
            for life in self.rng.sample(free, self.rng.randint(1, len(free) - 1)):
                life.process.send_signal(signal.SIGSTOP)
                life.paused = True
        elif kind == "go on":
            self.go_on(self.rng.sample(paused, self.rng.randint(1, len(paused))))
        elif kind == "start":
            self.start()
        elif not self.failed():
            self.query.stop()
            self.run_query()

    @staticmethod
    def go_on(lives: list[Life]) -> None:
        for life in lives:
            life.process.send_signal(signal.SIGCONT)
            life.paused = False

    def journals(self) -> list[Journal]:
        return [each for each in find([self.top / "journals"], open_segments=False) if each.views]

    def in_one_view(self) -> bool:
        names = {life.name for life in self.lives if life.alive}
        of = [each for each in self.journals() if each.member.name in names]
        members = {each.views[-1].tag: {member.name for member in each.views[-1].members} for each in of}
        return len(of) == len(names) and list(members.values()) == [names]

    def quiet(self) -> bool:
        """The members that are left have journaled the same."""
        names = {life.name for life in self.lives if life.alive}
        of = [each for each in self.journals() if each.member.name in names]
        return len({each.end_idx - each.views[-1].idx for each in of}) == 1

    def end_all(self) -> None:
        """Kills the members, or has them leave, within a second, in which the others may notice or not."""
        living = [life for life in self.lives if life.alive]
        for life in self.rng.sample(living, len(living)):
            how = self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            self.done["end by " + how.name] += 1
            life.process.send_signal(how)
            time.sleep(self.rng.choice((0.0, 0.0, 0.02, 1.0)))
        for life in living:
            life.process.wait(LIMIT_S)

    def last(self) -> set[str]:
        """Of members that have all ended: those whose deliveries in the last view count. If one of them closed that
        view as a leaver, a member that was killed may have delivered messages without agreement."""
        of = self.journals()
        last = max((each.views[-1] for each in of), key=lambda view: (view.view_id.counter, view.at_ns)).tag
        there = [each for each in of if each.views[-1].tag == last]
        closed = [each for each in there if each.views[-1].end is not None]
        return {each.member.name for each in closed or there}

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.query.stop()
        for life in self.lives:
            life.process.kill()
            life.process.communicate()


def wait(what: str, condition: Callable[[], Any]) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise Wrong(f"waited in vain: {what}")
        time.sleep(0.1)


def play(scene: Scene) -> str:
    """A run: "whole", or the reason for an allowed failure of the query.

    Raises:
        Wrong: the table is not as it must be.
    """
    for _ in range(scene.rng.randint(2, 4)):
        scene.start()
        scene.joined()
    scene.run_query()
    until = time.monotonic() + ACTIONS_S
    while time.monotonic() < until:
        time.sleep(scene.rng.uniform(0.2, 1.5))
        scene.act()
    scene.go_on([life for life in scene.lives if life.alive and life.paused])
    wait("the members that are left are in one view", scene.in_one_view)
    time.sleep(scene.rng.uniform(0.0, 1.0))
    if scene.rng.random() < 0.5:
        scene.end_all()
        left = scene.last()
    else:
        for life in scene.lives:
            if life.alive:
                life.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        wait("the members that are left have journaled the same", scene.quiet)
        left = {life.name for life in scene.lives if life.alive}
    journals = scene.journals()
    caught_up(scene, journals, left)
    if why := scene.failed():
        if TOLD not in why:
            raise Wrong(f"the query failed: {why[-1500:]}")
        return "told"
    compare(scene, journals, left)
    return "whole"


def caught_up(scene: Scene, journals: list[Journal], left: set[str]) -> None:
    """Waits until the table has the last rows of the members that are left, and then for one more look at nothing."""
    wanted = union(journals, left)

    def there() -> bool:
        return bool(scene.failed()) or not wanted - {*map(identity, rows(scene.top))}

    with contextlib.suppress(Wrong):
        wait("the table has all rows", there)
    if not scene.failed():
        scene.query.stop()
        for _ in range(3):
            scene.run_query(last=True)
            with contextlib.suppress(Exception):  # `failed` tells
                scene.query.awaitTermination(LIMIT_S)
            if not any(each in str(scene.query.exception()) for each in AGAIN):
                break


def rows(top: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of the table, in the order of the stream."""
    for path in sorted((top / "table").glob("*.parquet")):
        yield from zip(*(column.to_pylist() for column in pq.read_table(path).columns), strict=True)


def identity(row: tuple[Any, ...]) -> tuple[int, int, int, int]:
    return row[0], row[1], row[2], row[3]


def union(journals: list[Journal], names: set[str]) -> set[tuple[int, int, int, int]]:
    """Members' deliveries, by their journals."""
    of = [each for each in journals if each.member.name in names]
    found = set[tuple[int, int, int, int]]()
    for journal in of:
        for batch in journal.batches(["view_tag", "sender", "seqno", "index"]):
            found.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


def compare(scene: Scene, journals: list[Journal], left: set[str]) -> None:
    """
    Raises:
        Wrong: the table is not as it must be.
    """
    given = [*rows(scene.top)]
    table = [identity(row) for row in given]
    lost = union(journals, left) - {*table}
    more = {*table} - union(journals, {each.member.name for each in journals})
    twice = len(table) - len({*table})
    last: dict[int, int] = {}
    seen = set[tuple[int, int]]()
    late = 0
    for row in given:  # messages that one side delivered may have been sent again in the view of another one
        sender, number = row[1], int(row[4])
        late += number < last.get(sender, -1) and (sender, number) not in seen
        seen.add((sender, number))
        last[sender] = number
    if lost or more or twice or late:
        views = Counter(tag for tag, *_ in lost)
        raise Wrong(
            f"{len(lost)} rows are lost, {twice} doubled, {len(more)} of nobody, {late} out of their sender's order; "
            f"lost of views {dict(views)}; {scene.query.status}, {scene.query.lastProgress}"
        )


def run(spark: Any, seed: int, interface: str, keep: Path | None = None) -> tuple[str, Scene]:
    """The run of a seed, and its end.

    Raises:
        Wrong: as `play`; journals, checkpoint and table stay where the message says.
    """
    top = Path(tempfile.mkdtemp(prefix=f"streams-{seed}-", dir=keep))
    scene = Scene(spark, top, random.Random(seed), interface)
    try:
        told = play(scene)
    except Exception as error:
        raise Wrong(f"seed {seed}, order {scene.order}, {dict(scene.done)}, {top}: {error}") from error
    finally:
        scene.close()
    shutil.rmtree(top)
    return told, scene


def main() -> int:
    from seqcast.spark import open_session, register

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(1, 20), metavar=("FIRST", "LAST"))
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="runs beside each other (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, metavar="S", help="begin nothing after S (%(default)g)"
    )
    parser.add_argument("--interface", default="lo", help="of the members (%(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for what failing runs leave")
    arguments = parser.parse_args()
    spark = open_session("local[2]", name="seqcast streams")
    register(spark)
    begin, lock = time.monotonic(), threading.Lock()
    total: Counter[str] = Counter()

    def one(seed: int) -> None:
        if time.monotonic() - begin > arguments.seconds:
            return
        began, text = time.monotonic(), ""
        try:
            told, scene = run(spark, seed, arguments.interface, arguments.keep)
            text = f"seed {seed}: {told}, order {scene.order}, {dict(scene.done)}"
        except Wrong as error:
            told, text = "wrong", f"WRONG {error}"
        with lock:
            total[told] += 1
            print(f"{text}, {time.monotonic() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(one, range(arguments.seeds[0], arguments.seeds[1] + 1)))
    print(f"{sum(total.values())} runs: {dict(total)}")
    spark.stop()
    return int(bool(total["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
