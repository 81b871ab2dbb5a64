"""How long joins, leaves, crashes and merges take: ``python bench/membership.py [WHAT ...]``.

Four members on this machine, each a process, on loopback (the merge: in network namespaces, with a cut by nftables).
Times are CLOCK_MONOTONIC, which is one clock for all processes: from before the cause (the call of ``join``, the
signal) to the moment at which the *last* member's application has the new view from ``group.events()``. So they
include Python's share, on both sides. The group is at rest, except for "pause". Prints one line of JSON; on standard
error, a line for each figure.

With ``--transport auto unicast`` rounds by multicast and by unicast take turns, and each figure by unicast, by which
members find each other by a seed, comes with its ratio to the same by multicast.

Measured:

    first    ``join`` of the first member, on a network with no group
    starts   four processes that join at once, until all are in one view
    join     ``join`` of a fourth member, as the joiner sees it; and until all have the view
    leave    ``leave`` of a member, until the others have the view
    kill     SIGKILL of a member, and of the coordinator, with the default settings and with the fast ones
    stop     SIGSTOP of the coordinator, the same
    pause    the longest ``send`` of a member that sends small messages in a tight loop while another joins or leaves,
             beside the longest in an equal time without a view change, which is the scheduler's share
    merge    a group cut in two halves, from the command that ends the cut until all are in one view
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import queue
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import seqcast
from seqcast.perf.paths import Place, bridged, call, why_no_namespaces
from seqcast.perf.processes import Inbox, Process
from seqcast.perf.report import machine

HERE = Place((), "lo", "127.0.0.1")
FAST = {"preset": "fast"}
STEP_S = 30.0
PORTS = 16
"""By unicast: more than members that a machine has at a time, with those that were killed just before."""
_output = threading.Lock()
PAUSE_S = 0.1
"""A sender's longest send is looked for within this time around a view change."""

FIGURES = {
    "first": ("first member up: `join` on a network without a group", 300, "JGroups 1050"),
    "starts": ("four members join at once, until all are in one view", None, ""),
    "join": ("`join` of a running group of three", 20, "JGroups 94"),
    "join, view at all": ("the same, until all four have the view", None, ""),
    "leave": ("`leave`, until the other three have the view", None, ""),
    "kill member, default": ("SIGKILL of a member, default settings", 500, "Corosync 6240"),
    "kill coordinator, default": ("SIGKILL of the coordinator, default settings", 500, "JGroups 2596, Corosync 6240"),
    "kill member, fast": ("SIGKILL of a member, fast settings", 100, "Corosync 660"),
    "kill coordinator, fast": ("SIGKILL of the coordinator, fast settings", 100, "JGroups 215, Corosync 660"),
    "stop coordinator, default": ("SIGSTOP of the coordinator, default settings", None, ""),
    "stop coordinator, fast": ("SIGSTOP of the coordinator, fast settings", 400, "JGroups 675"),
    "pause": ("longest `send` of a busy sender while a member joins or leaves", 5, "JGroups 2 at rest: 38"),
    "pause, no view change": ("the same without a view change", None, ""),
    "merge": ("from healing a partition into halves until all share one view", 500, "JGroups 996"),
}
"""In words; the target, in ms at p50; the figures of peers on such a machine (JGroups 5.5.6 and Corosync 3.1, beside
"fast settings" tuned for it)."""
OF_MULTICAST = {"join": 1.3, "join, view at all": 1.3, "leave": 1.2} | {
    f"kill {who}, {preset}": 1.2 for who in ("member", "coordinator") for preset in ("default", "fast")
}
"""The most that a figure may be by unicast, of the same by multicast."""


# ---- one member, a process of its own -------------------------------------------------------------------------------


class Worker:
    """Obeys lines of JSON on standard input: join, leave, send, longest; prints views and answers."""

    def __init__(self) -> None:
        self.group: seqcast.Group | None = None
        seqcast.Group  # noqa: B018 - the first use of a name imports all that a join needs
        self.longest_ns = 0

    def run(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            getattr(self, command.pop("do"))(**command)

    def join(self, cluster: str, name: str, settings: dict[str, Any]) -> None:
        begin = time.monotonic_ns()
        group = self.group = seqcast.join(cluster, name=name, **settings)
        tell("joined", begin_ns=begin, took_ns=time.monotonic_ns() - begin)
        threading.Thread(target=self.watch, args=(group,), daemon=True).start()

    def watch(self, group: seqcast.Group) -> None:
        for event in group.events():
            now = time.monotonic_ns()
            if isinstance(event, seqcast.View):
                names = [member.name for member in event.members]
                tell("view", tag=event.view_id.tag, members=names, at_ns=now)
            elif isinstance(event, seqcast.Excluded):
                tell("excluded")

    def leave(self) -> None:
        assert self.group is not None
        begin = time.monotonic_ns()
        self.group.leave()
        tell("left", begin_ns=begin)

    def send(self, size: int) -> None:
        """Sends in a tight loop, for ever."""
        assert self.group is not None
        threading.Thread(target=self.sender, args=(self.group, bytes(size)), daemon=True).start()

    def sender(self, group: seqcast.Group, payload: bytes) -> None:
        send, now = group.send, time.monotonic_ns
        before = now()
        while True:
            send(payload)
            after = now()
            if after - before > self.longest_ns:
                self.longest_ns = after - before
            before = after

    def longest(self) -> None:
        """Prints the longest send since the last request."""
        longest, self.longest_ns = self.longest_ns, 0
        tell("longest", ns=longest)


def tell(event: str, **values: Any) -> None:
    with _output:
        print(json.dumps({"event": event, **values}), flush=True)


# ---- the group, as seen by the parent ------------------------------------------------------------------------------


class Late(Exception):
    """An awaited event did not come in time."""


class Member(Process):
    """A worker's process, and the last printed event of each kind."""

    def __init__(self, command: Sequence[str], name: str, inbox: Inbox) -> None:
        super().__init__(command, name, inbox)
        self.told: dict[str, dict[str, Any]] = {}

    def take(self, line: str | None) -> None:
        with contextlib.suppress(ValueError):  # other programs may print something else
            told = json.loads(line or "")
            self.told[told["event"]] = told


class Bench:
    """A cluster of its own on ``places``, and operations there."""

    def __init__(self, places: Sequence[Place], **settings: Any) -> None:
        self.places = places
        self.settings = {"interface": places[0].interface, **settings}
        if settings.get("transport") == "unicast":
            self.settings |= {"seeds": list(dict.fromkeys(place.address for place in places)), "port_range": PORTS}
        self.cluster = f"bench-{secrets.token_hex(4)}"
        self.inbox: Inbox = queue.Queue()
        self.all: list[Member] = []
        self.group: list[Member] = []  # members that the view should have
        self.rng = random.Random(1)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.all:
            member.kill()

    def spare(self, place: Place | None = None) -> Member:
        """A process that has imported everything, but not joined."""
        name = f"m{len(self.all)}"
        member = Member([*(place or self.places[0]).prefix, *self.command(name)], name, self.inbox)
        self.all.append(member)
        return member

    def command(self, _name: str) -> list[str]:
        """The command of a member's process; which obeys and prints as ``Worker`` does."""
        return [sys.executable, __file__, "--worker"]

    def join(self, member: Member) -> None:
        """Begins a join; ``complete`` waits for its end."""
        member.told.pop("joined", None)
        member.told.pop("view", None)
        self.group.append(member)
        member.tell(do="join", cluster=self.cluster, name=member.name, settings=self.settings)

    def form(self, count: int) -> None:
        """A group: ranks are the positions in ``group``."""
        for i in range(count):
            self.join(self.spare(self.places[i % len(self.places)]))
            self.complete()

    def wait(self, done: Callable[[], bool], seconds: float = STEP_S) -> None:
        """Waits until the condition holds.

        Raises:
            Late: the condition does not hold in time.
        """
        until = time.monotonic() + seconds
        while not done():
            try:
                member, line = self.inbox.get(timeout=until - time.monotonic())
            except (queue.Empty, ValueError):
                views = {member.name: member.told.get("view", {}).get("members") for member in self.group}
                raise Late(f"waited {seconds:g} s in vain; views: {views}") from None
            assert isinstance(member, Member)
            member.take(line)

    def complete(self, group: Sequence[Member] | None = None, seconds: float = STEP_S) -> int:
        """Waits until all of ``group`` have the view of exactly these; returns when the last had it, monotonic ns."""
        group = self.group if group is None else group
        names = sorted(member.name for member in group)

        def done() -> bool:
            views = [member.told.get("view") for member in group]
            return all(view and sorted(view["members"]) == names and view["tag"] == views[0]["tag"] for view in views)

        self.wait(done, seconds)
        return max(member.told["view"]["at_ns"] for member in group)

    def answer(self, member: Member, event: str) -> dict[str, Any]:
        self.wait(lambda: event in member.told)
        return member.told.pop(event)

    def rest(self) -> None:
        """Lets everything come to rest, for a time out of step with heartbeats."""
        time.sleep(self.rng.uniform(0.1, 0.2))

    @property
    def coordinator(self) -> Member:
        names = self.group[0].told["view"]["members"]
        return next(member for member in self.group if member.name == names[0])

    @property
    def last(self) -> Member:
        names = self.group[0].told["view"]["members"]
        return next(member for member in self.group if member.name == names[-1])


# ---- the measured ways: each yields (figure, ms) --------------------------------------------------------------------

Figures = Iterator[tuple[str, float]]
Settings = dict[str, Any]


def first(rounds: int, settings: Settings) -> Figures:
    with Bench([HERE], **settings) as bench:
        member = bench.spare()
        for _ in range(rounds):
            bench.join(member)
            bench.complete()
            yield "first", bench.answer(member, "joined")["took_ns"] / 1e6
            member.tell(do="leave")
            bench.answer(member, "left")
            bench.group.clear()


def starts(rounds: int, settings: Settings) -> Figures:
    with Bench([HERE], **settings) as bench:
        members = [bench.spare() for _ in range(4)]
        for _ in range(rounds):
            bench.rest()
            for member in members:
                bench.join(member)
            at = bench.complete()
            yield "starts", (at - min(bench.answer(member, "joined")["begin_ns"] for member in members)) / 1e6
            for member in members:
                member.tell(do="leave")
            for member in members:
                bench.answer(member, "left")
            bench.group.clear()


def join(rounds: int, settings: Settings) -> Figures:
    """And ``leave``."""
    with Bench([HERE], **settings) as bench:
        bench.form(3)
        member = bench.spare()
        for _ in range(rounds):
            bench.rest()
            bench.join(member)
            at = bench.complete()
            joined = bench.answer(member, "joined")
            yield "join", joined["took_ns"] / 1e6
            yield "join, view at all", (at - joined["begin_ns"]) / 1e6
            bench.rest()
            member.tell(do="leave")
            bench.group.remove(member)
            at = bench.complete()
            yield "leave", (at - bench.answer(member, "left")["begin_ns"]) / 1e6


def kill(rounds: int, settings: Settings, who: str, preset: str) -> Figures:
    with Bench([HERE], **settings, **(FAST if preset == "fast" else {})) as bench:
        bench.form(4)
        for _ in range(rounds):
            spare = bench.spare()
            spare.tell(do="longest")
            bench.answer(spare, "longest")  # up now
            bench.rest()
            victim = bench.coordinator if who == "coordinator" else bench.last
            bench.group.remove(victim)
            begin = time.monotonic_ns()
            victim.signal(signal.SIGKILL)
            yield f"kill {who}, {preset}", (bench.complete() - begin) / 1e6
            victim.kill()
            bench.join(spare)
            bench.complete()


def stop(rounds: int, settings: Settings, preset: str) -> Figures:
    with Bench([HERE], **settings, **(FAST if preset == "fast" else {})) as bench:
        bench.form(4)
        for _ in range(rounds):
            bench.rest()
            victim = bench.coordinator
            bench.group.remove(victim)
            begin = time.monotonic_ns()
            victim.signal(signal.SIGSTOP)
            yield f"stop coordinator, {preset}", (bench.complete() - begin) / 1e6
            victim.kill()
            bench.join(bench.spare())
            bench.complete()


def pause(rounds: int, settings: Settings) -> Figures:
    """Members take no messages (``receive=False``): their Python is not busy, and nobody waits for credit."""
    with Bench([HERE], receive=False, **settings) as bench:
        bench.form(3)
        sender, member = bench.group[1], bench.spare()
        sender.tell(do="send", size=64)
        time.sleep(0.5)

        def longest(cause: Callable[[], None]) -> float:
            sender.tell(do="longest")
            bench.answer(sender, "longest")
            cause()
            time.sleep(PAUSE_S)
            sender.tell(do="longest")
            return bench.answer(sender, "longest")["ns"] / 1e6

        def come() -> None:
            bench.join(member)
            bench.complete()

        def go() -> None:
            member.tell(do="leave")
            bench.group.remove(member)
            bench.complete()
            bench.answer(member, "left")

        for _ in range(rounds):
            yield "pause, no view change", longest(lambda: None)
            yield "pause", longest(come)
            yield "pause, no view change", longest(lambda: None)
            yield "pause", longest(go)


def merge(rounds: int, settings: Settings) -> Figures:
    """The bridge drops packets between the halves: one command cuts all links, and one ends the cut.

    Each round has a new group: one that splits again soon after a merge waits longer before the next merge.
    """
    with bridged(4) as places:
        one, other = (", ".join(place.port for place in half) for half in (places[:2], places[2:]))
        nft = ["ip", "netns", "exec", places[0].bridge, "nft"]
        call(*nft, "add table bridge cut; add chain bridge cut forward { type filter hook forward priority 0; }")
        drop = "add rule bridge cut forward iifname { %s } oifname { %s } drop"
        for _ in range(rounds):
            with Bench(places, **settings) as bench:
                bench.form(4)
                bench.rest()
                call(*nft, f"{drop % (one, other)}; {drop % (other, one)}")
                for half in (bench.group[:2], bench.group[2:]):
                    bench.complete(half)
                bench.rest()
                begin = time.monotonic_ns()
                call(*nft, "flush chain bridge cut forward")
                yield "merge", (bench.complete() - begin) / 1e6


MEASURES: dict[str, Callable[[int, Settings], list[Figures]]] = {
    "first": lambda *given: [first(*given)],
    "starts": lambda *given: [starts(*given)],
    "join": lambda *given: [join(*given)],
    "kill": lambda *given: [
        kill(*given, who, preset) for preset in ("default", "fast") for who in ("member", "coordinator")
    ],
    "stop": lambda *given: [stop(*given, preset) for preset in ("default", "fast")],
    "pause": lambda *given: [pause(*given)],
    "merge": lambda *given: [merge(*given)],
}


def measured(what: Sequence[str], transports: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """By transport and figure the times, in ms: each transport has its turn before any has another one."""
    values: dict[str, dict[str, list[float]]] = {transport: {} for transport in transports}
    for each in what:
        beside = [MEASURES[each](rounds, {"transport": transport}) for transport in transports]
        for figures in zip(*beside, strict=True):
            for turn in zip(*figures, strict=True):
                for transport, (figure, ms) in zip(transports, turn, strict=True):
                    values[transport].setdefault(figure, []).append(ms)
    return values


def row_of(figure: str, transport: str, values: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """A figure of one transport; by unicast, if measured by multicast too, its ratio to that."""
    times = values[transport][figure]
    text, target, peers = FIGURES[figure]
    p50, p99 = round(percentile(times, 50), 2), round(percentile(times, 99), 2)
    row: dict[str, Any] = {"what": figure, "text": text, "p50_ms": p50, "p99_ms": p99, "rounds": len(times)}
    row |= {"target_ms": target, "peers_ms": peers}
    if transport == "unicast":
        row |= {"what": f"{figure}, unicast", "text": f"{text}, by unicast", "peers_ms": ""}
    if transport == "unicast" and "auto" in values:
        row["of_multicast"] = round(p50 / percentile(values["auto"][figure], 50), 3)
        row["of_multicast_target"] = OF_MULTICAST.get(figure)
    return row


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this share, in percent, does not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"{', '.join(MEASURES)}; default: all")
    parser.add_argument("--rounds", type=int, default=50, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--transport", nargs="+", default=["auto"], choices=("auto", "unicast"), help="in turn (auto)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        Worker().run()
        return 0
    wanted = arguments.what or list(MEASURES)
    if unknown := [what for what in wanted if what not in MEASURES]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(MEASURES)}")
    if "merge" in wanted and (reason := why_no_namespaces()):
        print(f"merge: left out: {reason}", file=sys.stderr)
        wanted.remove("merge")
    values = measured(wanted, arguments.transport, arguments.rounds)
    rows = []
    for transport, figure in itertools.product(arguments.transport, FIGURES):
        if figure in values[transport]:
            rows.append(row_of(figure, transport, values))
            row = rows[-1]
            beside = f"; {row['of_multicast']:.2f} of multicast" if "of_multicast" in row else ""
            print(
                f"{row['what']:34} p50 {row['p50_ms']:8.2f}  p99 {row['p99_ms']:8.2f} ms  "
                f"to reach {row['target_ms'] or '-'}; {row['peers_ms']}{beside}",
                file=sys.stderr,
            )
    print(json.dumps({"membership": rows, "members": 4, "rounds": arguments.rounds, "machine": machine()}))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Late as error:
        sys.exit(f"bench: {error}")
