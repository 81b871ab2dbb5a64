"""Writes a group's ordered stream into a table, each message once, whatever is killed.

There are three machines (here: three directories), each with a member that is under load and journals its deliveries,
and a tap that serves the journal. A streaming Spark query reads the taps and appends to a Parquet table. Then, in turn,
Spark, the member that is followed and the tap that is followed are killed with SIGKILL. At the end the table must hold
exactly the messages in the members' journals.

    pip install 'seqcast[spark]'
    python examples/stream_into_table.py

The cells (``# %%``) can be run one by one in an editor that supports them; `docs/spark.md` explains the steps.
"""

# %% Processes of their own, so that they can be killed: members and the query

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import seqcast
import seqcast.journal


def member(cluster: str, name: str, directory: str, interface: str) -> None:
    """A member that sends 200 messages a second, receives those of all, and leaves on SIGTERM."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    journal = {"journal": directory, "journal_payload": "full"}
    with seqcast.join(cluster, name=name, interface=interface or None, **journal) as group:

        def receive() -> None:
            for _ in group:
                pass

        receiver = threading.Thread(target=receive)
        receiver.start()
        number = 0
        while not over.wait(0.1):
            group.send_many([b"%s %d" % (name.encode(), number + at) for at in range(20)])
            number += 20
        group.leave()
        receiver.join()


def query(top: Path, taps: str) -> None:
    """The streaming query. Once the file ``drain`` exists, the query takes the rest and ends."""
    import pyarrow.parquet

    import seqcast.spark

    spark = seqcast.spark.open_session("local[2]", name="stream into table")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    seqcast.spark.register(spark)
    (top / "java.pid").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    source = spark.readStream.format("seqcast").option("tap", taps).option("tokenFile", str(top / "token"))
    rows = source.option("failoverAfter", "1").load()
    rows = rows.selectExpr("view_counter", "view_tag", "global_seqno", "sender", "cast(payload as string) as text")
    table = rows.writeStream.format("parquet").option("checkpointLocation", str(top / "checkpoint"))
    running = table.trigger(processingTime="500 milliseconds").start(str(top / "table"))
    while not (top / "drain").exists():
        if running.exception() is not None:
            raise running.exception()
        time.sleep(0.2)
    running.processAllAvailable()  # if stopped in the middle of a batch, Spark would print the interrupted call
    running.stop()
    table.trigger(availableNow=True).start(str(top / "table")).awaitTermination()
    found = spark.read.parquet(str(top / "table")).orderBy("view_counter", "global_seqno")
    pyarrow.parquet.write_table(found.toArrow(), top / "result.parquet")
    spark.stop()


# %% Helpers: starting, killing, and the query's progress


class Scene:
    """The three machines and the query."""

    def __init__(self, top: Path, cluster: str, interface: str) -> None:
        self.top, self.cluster, self.interface = top, cluster, interface
        self.members: dict[str, subprocess.Popen[str]] = {}
        self.taps: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        self.spark: subprocess.Popen[str] | None = None
        (top / "token").write_text(secrets.token_hex(32))

    def start_member(self, machine: str, name: str) -> None:
        directory = self.top / machine
        directory.mkdir(exist_ok=True)
        self.members[machine] = run(__file__, "member", self.cluster, name, str(directory), self.interface)
        wait(f"{name} to join", lambda: any(directory.glob(f"{name}-*/views.jsonl")))

    def start_tap(self, machine: str) -> None:
        listen = self.addresses.get(machine, "127.0.0.1:0")  # after a restart: the same address as before
        tap = ("-m", "seqcast", "tap", "--journal", str(self.top / machine), "--token-file", str(self.top / "token"))
        self.taps[machine] = run(*tap, "--listen", listen, stdout=subprocess.PIPE)
        told = self.taps[machine].stdout
        assert told is not None
        self.addresses[machine] = told.readline().split()[-1]

    def start_spark(self) -> None:
        self.spark = run(__file__, "query", str(self.top), ",".join(self.addresses.values()))

    def kill_spark(self) -> None:
        """Kills Python and its Java."""
        assert self.spark is not None
        os.kill(int((self.top / "java.pid").read_text()), signal.SIGKILL)
        kill(self.spark)

    def offset(self) -> dict[str, Any]:
        """The end of the last batch that Spark has committed; empty: none yet."""
        done = sorted((int(each.name) for each in (self.top / "checkpoint" / "commits").glob("[0-9]*")), reverse=True)
        if not done:
            return {}
        return dict(json.loads((self.top / "checkpoint" / "offsets" / str(done[0])).read_text().splitlines()[-1]))

    def batches(self) -> int:
        return len(list((self.top / "checkpoint" / "commits").glob("[0-9]*")))

    def wait_batches(self, n: int) -> None:
        wanted = self.batches() + n
        wait(f"{n} more batches", lambda: self.alive() and self.batches() >= wanted)

    def followed(self) -> str:
        """The machine with the journal that the query reads."""
        member_id = self.offset().get("member", "none")
        return next((path.parent.name for path in self.top.glob(f"*/*-{member_id}")), "")

    def wait_other_or_end(self, machine: str) -> bool:
        """Has the query ended?"""
        assert self.spark is not None
        spark = self.spark
        wait(
            f"another machine than {machine}", lambda: spark.poll() is not None or self.followed() not in ("", machine)
        )
        return spark.poll() is not None

    def alive(self) -> bool:
        assert self.spark is not None
        if self.spark.poll() is not None:
            raise SystemExit(f"the query ended with status {self.spark.returncode}")
        return True

    def close(self) -> None:
        for process in (*self.members.values(), *self.taps.values(), *([self.spark] if self.spark else [])):
            kill(process)


def run(*command: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *command], text=True, **options)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()  # SIGKILL: nothing is flushed, and nobody is told
    process.wait()


def wait(what: str, condition: Any, timeout: float = 300.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {timeout:g} s in vain for {what}")
        time.sleep(0.05)


def say(text: str) -> None:
    print(text, flush=True)


# %% The contents of the journals: for each view, the messages that its members agreed on


def agreed(top: Path) -> list[tuple[int, int, int, str, str]]:
    """(view counter, view tag, global seqno, sender, text) of all messages of all views, in order."""
    views: dict[int, tuple[bool, list[Any]]] = {}
    for journal in seqcast.journal.find([path for path in sorted(top.iterdir()) if path.name.startswith("machine")]):
        closed = {view.view_id.tag for view in journal.views if view.end is not None}
        rows: dict[int, list[Any]] = {view.view_id.tag: [] for view in journal.views}
        for message in journal.messages():
            tag = message.view_id.tag
            rows[tag].append(
                (message.view_id.counter, tag - (tag >> 63 << 64), message.global_seqno, message.sender.name,
                 message.payload.decode())
            )  # fmt: skip
        for tag, found in rows.items():
            # A member that was killed may lack the end of its last view: members that closed the view have it.
            views[tag] = max(
                views.get(tag, (False, [])), (tag in closed, found), key=lambda each: (each[0], len(each[1]))
            )
    return sorted(row for _, rows in views.values() for row in rows)


# %% The play


def main(top: Path, cluster: str, interface: str) -> None:
    scene = Scene(top, cluster, interface)
    try:
        for number in (1, 2, 3):
            scene.start_member(f"machine{number}", f"member{number}")
            scene.start_tap(f"machine{number}")
        scene.start_spark()
        scene.wait_batches(2)
        say(f"the table grows; the stream follows {scene.followed()}")

        scene.kill_spark()
        scene.start_spark()
        scene.wait_batches(2)
        say("Spark was killed; started again, it goes on from its checkpoint")

        lost = scene.followed()
        kill(scene.members[lost])
        if scene.wait_other_or_end(lost):
            raise SystemExit("the query ended when the followed member was killed")
        scene.start_member(lost, "member4")
        say(f"the member on {lost} was killed; the stream follows {scene.followed()}, and a new member has joined")

        lost = scene.followed()
        kill(scene.taps[lost])
        ended = scene.wait_other_or_end(lost)
        scene.start_tap(lost)
        if ended:  # a task was reading from the tap; in production a supervisor would restart the query, too
            scene.start_spark()
        scene.wait_batches(2)
        say(f"the tap of {lost} was killed and started again; the stream follows {scene.followed()}")

        for process in scene.members.values():
            process.terminate()
            process.wait()
        (top / "drain").touch()
        assert scene.spark is not None
        if scene.spark.wait() != 0:
            raise SystemExit("the query failed")
    finally:
        scene.close()

    import pyarrow.parquet

    table = [tuple(row.values()) for row in pyarrow.parquet.read_table(top / "result.parquet").to_pylist()]
    wanted = agreed(top)
    if sorted(table) != wanted:
        doubled, lacking, foreign = len(table) - len(set(table)), set(wanted) - set(table), set(table) - set(wanted)
        raise SystemExit(f"the table differs: {doubled} twice, {len(lacking)} lacking, {len(foreign)} not agreed on")
    say(f"the table has the {len(table):,} messages of the journals, each once")


# %% From the command line

if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        member(*sys.argv[2:])
    elif sys.argv[1:2] == ["query"]:
        query(Path(sys.argv[2]), sys.argv[3])
    else:
        parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
        parser.add_argument("--directory", help="where journals, checkpoint and table go (default: a temporary one)")
        parser.add_argument("--cluster", default=f"example-{secrets.token_hex(4)}", help="name of the group")
        parser.add_argument("--interface", default="", help="network interface (default: as the system routes)")
        arguments = parser.parse_args()
        if arguments.directory:
            main(Path(arguments.directory), arguments.cluster, arguments.interface)
        else:
            with tempfile.TemporaryDirectory(prefix="seqcast-example-") as made:
                main(Path(made), arguments.cluster, arguments.interface)
