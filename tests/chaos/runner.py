"""Plays a scenario on a group, waits for its recovery, and judges the outcome.

Judged are: the views at the end, that nothing sent is missing at its own sender, that the members of a view were
delivered the same there (from their own sums), and, by ``seqcast audit`` on Spark, all guarantees on all journals.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NoReturn

from chaos.scenarios import SIZES, Scenario, Step
from seqcast.config import keys
from seqcast.perf.paths import Place, bridged

START_S = 20.0
"""Processes are up and in one view within this, on a busy machine."""
SETTLE_S = 20.0
"""And so is everything after the last fault: suspicion, a flush deadline and a back-off, with room."""
STUCK_S = 20.0
"""Members that leave make some progress within this."""
LEAVE_S = 300.0
"""And are gone within this, however slow the machine."""
CALM_S = 1.0
"""The views are those at the end when none came for this long."""
TOLD_S = 0.5
"""A member that runs again has reported its pause by then."""
RUNS_MAX = 3
"""Runs of a scenario during which the machine stalls."""
RECENT_S = 5.0
"""If a member was taken for dead because the system did not run its process, the group says so within this time."""
TESTS, SOURCE = Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[2] / "src"

TABLE = """
add table inet seqcast_chaos
add set inet seqcast_chaos cut { type ipv4_addr; }
add set inet seqcast_chaos deaf { type ipv4_addr; }
add chain inet seqcast_chaos loss
add chain inet seqcast_chaos input { type filter hook input priority 0; }
add rule inet seqcast_chaos input ip saddr @cut drop
add rule inet seqcast_chaos input ip daddr 224.0.0.0/4 ip saddr @deaf drop
add rule inet seqcast_chaos input jump loss
add table netdev seqcast_chaos
add chain netdev seqcast_chaos input { type filter hook ingress device "eth0" priority 0; }
""" + "".join(
    f"add set netdev seqcast_chaos narrow{size} {{ type ipv4_addr; }}\n"
    f"add rule netdev seqcast_chaos input ip saddr @narrow{size} meta length > {size} drop\n"
    for size in SIZES
)
"""Fragments are looked at as they come, before the kernel joins them."""
NOBODY = tuple(f"10.99.0.{number}" for number in (201, 202))
"""Addresses at which nobody is."""
REFRESH_S = 0.5
"""How often members look at their seeds."""


@dataclass
class Process:
    """A member's process and its last reports, by event."""

    name: str
    place: Place
    popen: subprocess.Popen[str]
    log: IO[str]
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: list[dict[str, Any]] = field(default_factory=list)  # its own reports before its death
    joined: bool = False
    stopped: bool = False
    leaving: bool = False
    killed: bool = False

    @property
    def alive(self) -> bool:
        """Is this member to be in a view at the end?"""
        return not (self.killed or self.leaving)

    @property
    def members(self) -> tuple[str, ...]:
        """Of its view."""
        return tuple(self.told["view"]["members"]) if "view" in self.told else ()

    @property
    def tag(self) -> str:
        """Of its view, or empty."""
        return str(self.told["view"]["view"][2]) if "view" in self.told else ""

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            print(line, file=self.popen.stdin, flush=True)


class Network:
    """The faults of the namespaces' network; each namespace drops the datagrams to be lost."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self.kept: Counter[tuple[str, int, int]] = Counter()  # (set of sources, from, to): by how many faults
        self._run(dict.fromkeys(range(len(places)), TABLE))

    def _run(self, rules: dict[int, str]) -> None:
        """Changes several namespaces, all at once."""
        running = [
            subprocess.Popen([*self.places[i].prefix, "nft", "-f", "-"], stdin=subprocess.PIPE, text=True)
            for i in rules
        ]
        for popen, text in zip(running, rules.values(), strict=True):
            popen.communicate(text, timeout=30)
            assert popen.returncode == 0, text

    def loss(self, percent: float) -> None:
        """Each member loses this many of its datagrams, at random."""
        rules = "flush chain inet seqcast_chaos loss\n"
        if percent:
            share = f"numgen random mod 100000 < {round(percent * 1000)}"
            rules += f"add rule inet seqcast_chaos loss meta l4proto udp {share} drop\n"
        self._run(dict.fromkeys(range(len(self.places)), rules))

    def keep(self, what: str, pairs: Collection[tuple[int, int]]) -> None:
        """From the first to the second of each pair nothing gets (``what``: "inet cut"), no multicast ("inet deaf"),
        or nothing that is larger than so many bytes ("netdev narrow1400")."""
        fresh = [pair for pair in pairs if not self.kept[(what, *pair)]]
        self.kept.update((what, *pair) for pair in pairs)
        self._elements("add", what, fresh)

    def heal(self, what: str, pairs: Collection[tuple[int, int]]) -> None:
        self.kept.subtract((what, *pair) for pair in pairs)
        self._elements("delete", what, [pair for pair in pairs if not self.kept[(what, *pair)]])

    def _elements(self, verb: str, what: str, pairs: Sequence[tuple[int, int]]) -> None:
        rules: dict[int, str] = {}
        family, name = what.split()
        for source, target in pairs:
            address = self.places[source].address
            rules[target] = rules.get(target, "") + f"{verb} element {family} seqcast_chaos {name} {{ {address} }}\n"
        self._run(rules)


class Failed(Exception):
    """The group broke a rule; the text says which."""


class Stalled(Failed):
    """A member of a calm scenario was taken for dead, and the machine had not run one: this says nothing of the group,
    and the scenario is to be run again."""


class Run:
    """One scenario, from the first start to the last leave.

    Args:
        scenario: the faults.
        directory: journals and logs are left there.
        write: takes lines about events.
    """

    def __init__(self, scenario: Scenario, directory: Path, write: Callable[[str], None] = print) -> None:
        self.scenario, self.directory, self.write = scenario, directory, write
        self.journals = directory / "journals"
        self.cluster = f"chaos-{secrets.token_hex(4)}"
        self.processes: list[Process] = []  # of all that were ever started
        self.inbox: queue.Queue[tuple[Process, dict[str, Any]]] = queue.Queue()
        self.views: set[str] = set()
        self.kinds: Counter[str] = Counter()  # of the events that processes told
        self.stalls: list[tuple[float, str]] = []  # when they ended; whom the machine did not run, and for how long
        self.view_at = 0.0  # when the last view came
        self.changed_at = 0.0  # when a view, the end of a block or a quiet sender was last told of
        self.missing = 0  # messages that nobody was delivered, and that their senders know of
        self.begin = time.monotonic()
        self.settled_s = 0.0
        self.network: Network
        self.places: dict[str, int] = {}
        self.lied_to: Counter[str] = Counter()  # whose seeds are wrong: by how many faults
        self.keys: list[str] = []  # lines of key files, by their numbers
        self.ended = False  # the faults have ended
        self.rng = random.Random(scenario.name)

    # ---- the run

    def run(self) -> None:
        """Runs the scenario.

        Raises:
            Failed: something that must hold does not. The journals are not looked at here.
        """
        scenario = self.scenario
        names = sorted({name for step in scenario.steps for name in (*step.who, *step.whom) if name[0] != "#"})
        first = [chr(ord("a") + i) for i in range(scenario.members)]
        self.journals.mkdir(parents=True)
        (self.directory / "scenario.txt").write_text(f"{scenario}\n")
        everyone = sorted({*first, *names})
        with bridged(len(everyone), segmented=scenario.segmented) as places, contextlib.ExitStack() as stack:
            stack.callback(self.end_all)
            self.places = {name: i for i, name in enumerate(everyone)}
            self.network = Network(places)
            self.write_seeds(everyone)
            if scenario.settings.get("keyed") and find_spec("nacl"):  # the library of the cipher
                self.keys = [self.new_key()]
                for name in everyone:
                    self.write_keys(name, self.keys)
            if scenario.forming:
                self.play(first)
            else:
                for name in first:
                    self.start(name)
                self.wait(lambda: self.one_view(self.living()), START_S, "one view of all that were started")
                self.play(())
            self.settle()
            self.check_tallies()
            self.leave_all()
            self.check_keys()

    def play(self, first: Sequence[str]) -> None:
        """Does the steps at their times, each to its end."""
        self.begin = time.monotonic()
        due: list[tuple[float, int, Callable[[], None]]] = []
        for name in first:
            due.append((0.0, -1, partial(self.start, name)))
        for number, step in enumerate(self.scenario.steps):
            due.append((step.at, number, partial(self.do, step, due)))
        while due:
            due.sort(key=lambda item: item[:2])
            at, _, action = due.pop(0)
            self.pump_until(self.begin + at)
            action()

    def do(self, step: Step, due: list[tuple[float, int, Callable[[], None]]]) -> None:
        """Begins a fault, and puts its end among the due steps."""
        who, whom = ([self.resolve(name) for name in names] for names in (step.who, step.whom))
        self.say(f"{step}" + (f" ({' '.join(who)})" if list(step.who) != who else ""))
        end: Callable[[], None] | None = None
        match step.what:
            case "loss":
                self.network.loss(step.percent)
                end = partial(self.network.loss, 0)
            case "cut" | "split" | "deafen" | "narrow":
                pairs = {(self.places[a], self.places[b]) for a in who for b in whom if a != b}
                if step.what == "split":
                    pairs |= {(b, a) for a, b in pairs}
                what = {"deafen": "inet deaf", "narrow": f"netdev narrow{step.most}"}.get(step.what, "inet cut")
                self.network.keep(what, pairs)
                end = partial(self.network.heal, what, pairs)
            case "lie":
                self.lied_to.update(who)
                self.write_seeds(who)
                end = partial(self.end_lie, who)
            case "rotate":
                self.rotate(step, due)
            case "kill":
                for process in self.named(who):
                    process.killed = True
                    process.popen.kill()
            case "stop":
                stopped = [process for process in self.named(who) if not process.stopped]
                for process in stopped:
                    process.stopped = True
                    process.popen.send_signal(signal.SIGSTOP)
                end = partial(self.resume, stopped)
            case "leave":
                for process in self.named(who):
                    process.leaving = True
                    process.tell("leave")
            case "start":
                self.start_those(who)
        if end is not None:
            due.append((step.at + step.seconds, len(due), end))

    def end_lie(self, who: Sequence[str]) -> None:
        self.lied_to.subtract(who)
        self.write_seeds(who)

    def seeds_of(self, name: str) -> Path:
        """The file with the seeds of a process."""
        return self.directory / f"{name}.seeds"

    def write_seeds(self, names: Sequence[str]) -> None:
        """The seeds of these: all places; one, once the faults have ended; or, for those that are lied to, addresses
        without a process, an empty file, or their own place and those of processes that have ended."""
        all_places = [place.address for place in self.network.places]
        for name in names:
            own = all_places[self.places[name]]
            gone = [all_places[i] for other, i in self.places.items() if not self.named([other])]
            lies = (NOBODY, (), (own, *gone))
            one = [all_places[self.places[process.name]] for process in self.living()[:1]]
            seeds = self.rng.choice(lies) if self.lied_to[name] > 0 else one if self.ended else all_places
            fresh = self.seeds_of(name).with_suffix(".new")
            fresh.write_text("".join(f"{seed}\n" for seed in seeds), encoding="utf-8")
            fresh.replace(self.seeds_of(name))

    def keys_of(self, name: str) -> Path:
        """The file with the keys of a process."""
        return self.directory / f"{name}.key"

    def new_key(self) -> str:
        return keys.line(len(self.keys), self.rng.randbytes(keys.SECRET_BYTES))

    def rotate(self, step: Step, due: list[tuple[float, int, Callable[[], None]]]) -> None:
        """The three steps, each of which begins when members have completed the one before."""
        if not self.keys:
            return
        old, new = self.keys[-1], self.new_key()
        self.keys.append(new)
        for number, lines in enumerate(([old, new], [new, old], [new])):
            for name in self.places:
                at = step.at + (number + self.rng.uniform(0.0, 0.5)) * step.seconds / 3
                due.append((at, len(due), partial(self.write_keys, name, lines)))

    def write_keys(self, name: str, lines: Sequence[str]) -> None:
        fresh = self.keys_of(name).with_suffix(".fresh")
        keys.written(str(fresh), "".join(f"{text}\n" for text in lines).encode())
        fresh.replace(self.keys_of(name))

    def resume(self, processes: Sequence[Process]) -> None:
        for process in processes:
            process.stopped = False
            if not process.killed:
                process.popen.send_signal(signal.SIGCONT)

    def resolve(self, name: str) -> str:
        """A member's name of "#rank": in the view of the first that lives, at this moment."""
        if name[0] != "#":
            return name
        self.pump(0)
        views = [process.members for process in self.living() if not process.stopped and process.members]
        members = views[0] if views else tuple(process.name for process in self.living())
        rank = int(name[1:])
        return members[rank] if -len(members) <= rank < len(members) else members[-1]

    def start_those(self, names: Sequence[str]) -> None:
        """Unless they live."""
        for name in names:
            if not self.named([name]):
                self.start(name)

    def named(self, names: Sequence[str]) -> list[Process]:
        return [process for process in self.living() if process.name in names]

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    # ---- processes

    def _settings(self, name: str) -> dict[str, Any]:
        """Of a member."""
        settings = {setting: value for setting, value in self.scenario.settings.items() if setting != "keyed"}
        if self.keys:
            settings["key"] = str(self.keys_of(name))
        if settings.get("transport") == "unicast":
            settings |= {"seeds": f"file:{self.seeds_of(name)}", "discovery_refresh_s": REFRESH_S}
        return settings

    def start(self, name: str) -> None:
        # A member that joins a running group searches for longer: else it could form its own on a busy machine.
        patient = {"discovery_s": 1.0} if self.processes and not self.scenario.forming else {}
        task = {
            "cluster": self.cluster,
            "name": name,
            "order": self.scenario.order,
            "journal": str(self.journals),
            "rate": self.scenario.rate,
            "settings": patient | self._settings(name),
        }
        place = self.network.places[self.places[name]]
        number = sum(process.name == name for process in self.processes)
        log = open(self.directory / f"{name}{number or ''}.log", "w", encoding="utf-8")
        path = os.pathsep.join([str(TESTS), str(TESTS / "helpers"), str(SOURCE), os.environ.get("PYTHONPATH", "")])
        popen = subprocess.Popen(
            [*place.prefix, sys.executable, "-m", "chaos.member", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**self._environment(), "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for this process, which ends them
        )
        process = Process(name, place, popen, log)
        self.processes.append(process)
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    @staticmethod
    def _environment() -> dict[str, str]:
        """Without settings: the scenario has them all."""
        return {name: text for name, text in os.environ.items() if not name.startswith("SEQCAST_")}

    def _read(self, process: Process) -> None:
        assert process.popen.stdout is not None
        for line in process.popen.stdout:
            with contextlib.suppress(ValueError):  # the end of a line is missing if the process was killed
                self.inbox.put((process, json.loads(line)))
            process.log.write(line)
            process.log.flush()
        self.inbox.put((process, {"event": "gone", "status": process.popen.wait()}))

    def end_all(self) -> None:
        """Kills the remaining processes."""
        for process in self.processes:
            process.popen.kill()  # a stopped one, too
            process.popen.wait()

    # ---- reports

    def pump(self, timeout_s: float) -> None:
        """Takes in the waiting lines, waiting at most this long for the first."""
        try:
            process, told = self.inbox.get(timeout=timeout_s) if timeout_s > 0 else self.inbox.get_nowait()
            while True:
                self.take(process, told)
                process, told = self.inbox.get_nowait()
        except queue.Empty:
            pass

    def pump_until(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            self.pump(left)

    def take(self, process: Process, told: dict[str, Any]) -> None:
        event = told["event"]
        process.told[event] = told
        self.kinds[event] += 1
        match event:
            case "view":
                self.view_at = self.changed_at = time.monotonic()
                self.views.add(process.tag)
                self.say(f"  {process.name}: {told['kind']} {told['view'][0]} [{' '.join(process.members)}]", told)
                if told["kind"] == "MergeView" and self.scenario.together and not self.scenario.forming:
                    text = f"{process.name} was apart from the others, and nothing separated them"
                    self.not_calm(text, told["at_ns"])
            case "quiet":
                self.changed_at = time.monotonic()
            case "used":
                process.used.append(told)
            case "unblocked":
                process.told.pop("blocked", None)
                self.changed_at = time.monotonic()
            case "excluded" | "ended":
                process.told.pop("view", None)
                process.told.pop("blocked", None)
                self.say(f"  {process.name}: {event} {told.get('text', '')}", told)
                if event == "excluded" and self.scenario.calm:
                    text = f"{process.name} was excluded, and nothing made it look dead: {told['text']}"
                    self.not_calm(text, told["at_ns"])
            case "not_joined":
                self.say(f"  {process.name}: {told['text']}", told)
                if self.scenario.calm:
                    text = f"{process.name} could not join, and nothing was in its way: {told['text']}"
                    self.not_calm(text, told["at_ns"])
            case "stalled":
                self.stalls.append((told["at_ns"] / 1e9, f"{process.name} for {told['seconds']:.2f} s"))
            case "wrong":
                raise Failed(f"{process.name} was delivered a message that nobody sent: {told['text']}")
            case "gone" if process.alive:
                raise Failed(f"the process of {process.name} ended with status {told['status']}: {self.error(process)}")

    def not_calm(self, text: str, at_ns: int) -> NoReturn:
        """Events that must not occur in a calm scenario."""
        time.sleep(TOLD_S)
        while not self.inbox.empty():
            process, told = self.inbox.get()
            if told["event"] == "stalled":
                self.take(process, told)
        if recent := [who for ended, who in self.stalls if ended > at_ns / 1e9 - RECENT_S]:
            raise Stalled(f"{text}; but the machine did not run {', '.join(recent)}")
        raise Failed(text)

    def error(self, process: Process) -> str:
        lines = Path(process.log.name).read_text(encoding="utf-8").strip().splitlines()
        return next((line for line in reversed(lines) if not line.startswith("{")), "it wrote no error")

    def say(self, text: str, told: dict[str, Any] | None = None) -> None:
        now = told["at_ns"] / 1e9 if told else time.monotonic()  # monotonic ns are the same in all processes
        self.write(f"{now - self.begin:8.3f} s  {text}")

    # ---- waiting and judging

    def wait(
        self, done: Callable[[], bool], timeout_s: float, what: str, progress: Callable[[], object] | None = None
    ) -> float:
        """Waits until the condition holds; returns how long, in seconds.

        Args:
            progress: the timeout begins anew whenever this value changes, but not after ``LEAVE_S``.
        """
        begin = moved_at = time.monotonic()
        before = progress and progress()
        while not done():
            now = time.monotonic()
            if progress and now - begin > LEAVE_S:
                raise Failed(f"{what}: not within {LEAVE_S:g} s; {self.where()}")
            if progress and (after := progress()) != before:
                before, moved_at = after, now
            if now - moved_at > timeout_s:
                stuck = " of the last progress" if progress else ""
                raise Failed(f"{what}: not within {timeout_s:g} s{stuck}; {self.where()}")
            self.pump(0.05)
        return time.monotonic() - begin

    def where(self) -> str:
        """Who is in which view."""
        return "; ".join(f"{p.name} in [{' '.join(p.members)}]" for p in self.living())

    def groups(self) -> list[list[Process]]:
        """The living by their views; those that are in none each by themselves."""
        by_tag: dict[str, list[Process]] = {}
        for process in self.living():
            by_tag.setdefault(process.tag or process.name, []).append(process)
        return list(by_tag.values())

    @staticmethod
    def one_view(processes: Sequence[Process]) -> bool:
        """All are in one view, without anybody else."""
        names = sorted(process.name for process in processes)
        return bool(processes) and all(p.tag == processes[0].tag and sorted(p.members) == names for p in processes)

    def recovered(self) -> bool:
        """All live members are in one view, none of them blocked or sending. Blocked members on the two sides of a
        partition are still in the view from before."""
        groups = self.groups()
        waiting = any("blocked" in process.told or "quiet" not in process.told for process in self.living())
        return len(groups) == 1 and self.one_view(groups[0]) and not waiting

    def settle(self) -> None:
        """The faults have ended: waits for the last view, stops the senders, and has each send a last message."""
        self.ended = True
        self.write_seeds([process.name for process in self.living()])
        for process in self.living():
            process.tell("quiet")
        ended = self.changed_at = time.monotonic()
        what = "one view on every live member, with none blocked and no sender stuck"
        while True:
            self.wait(self.recovered, SETTLE_S - (time.monotonic() - ended), what)
            if (left := self.changed_at + CALM_S - time.monotonic()) <= 0:
                break
            self.pump(left)
        self.settled_s = max(0.0, self.view_at - ended)
        for process in self.living():
            process.tell("mark")
        self.wait(
            lambda: all(p.told.get("tally", {}).get("tag") == p.tag for p in self.living()),
            SETTLE_S,
            "the last message of each member at every other",
        )

    def check_tallies(self) -> None:
        """Nothing that a member sent is missing at itself, and members of one view were delivered the same there."""
        for group in self.groups():
            first = group[0].told["tally"]
            for process in group:
                tally = process.told["tally"]
                if tally["own"] + tally["missing"] != tally["sent"] or tally["unreported"]:
                    raise Failed(
                        f"{process.name} sent {tally['sent']} messages, and {tally['own']} of them were delivered to "
                        f"itself; no Lost event tells of those missing between the packets {tally['unreported']}"
                    )
                self.missing += tally["missing"]
                same = ("streams", "order") if self.scenario.order not in ("fifo", "causal") else ("streams",)
                if any(tally[key] != first[key] for key in same):
                    raise Failed(f"{group[0].name} and {process.name} were delivered something else: {first}, {tally}")

    def leave_all(self) -> None:
        """One member leaves first: those that stay close the view together, so that the audit can compare them whole,
        whatever the order promises of members that left. A busy machine leaves work for the end (deliveries,
        the rest of the journals), which may take long; a member that does none of that for a while is stuck."""
        living = self.living()
        for leaving in living[:1], living[1:]:
            for process in leaving:
                process.leaving = True
                process.tell("leave")
            self.wait(
                lambda leaving=leaving: all("gone" in each.told for each in leaving),
                STUCK_S,
                "all to leave",
                progress=self.worked_off,
            )
        for process in living:
            if status := process.told["gone"]["status"]:
                raise Failed(f"{process.name} ended with status {status}: {self.error(process)}")
            if not process.told["ended"]["graceful"]:
                raise Failed(f"{process.name} left, and was not sure that all have its messages")

    def check_keys(self) -> None:
        """All that lived to the end sealed with the newest key."""
        for process in self.processes:
            if not self.keys or "tally" not in process.told:
                continue
            sealed = process.told["ended"]["counters"]["key_id"] % keys.IDS
            if sealed != len(self.keys) - 1:
                raise Failed(f"{process.name} sealed with key {sealed} at the end, and not with {len(self.keys) - 1}")

    def worked_off(self) -> tuple[int, int]:
        """Grows while processes deliver, end, and write to their journals: their reports, and the journals' bytes."""
        sizes = []
        for file in self.journals.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # renamed meanwhile
                sizes.append(file.stat().st_size)
        return self.kinds.total(), sum(sizes)

    def summary(self) -> str:
        delivered = sum(process.told.get("ended", {}).get("delivered", 0) for process in self.processes)
        return (
            f"{self.scenario.name}: {len(self.views)} views, {delivered:,} messages delivered, {self.missing} lost and "
            f"reported, {self.kinds['excluded']} excluded, {self.kinds['not_joined']} joins failed; "
            f"{len(self.groups_at_end())} group(s), the last view {self.settled_s:.2f} s after the last fault"
        )

    def groups_at_end(self) -> set[str]:
        return {str(process.told["tally"]["tag"]) for process in self.processes if "tally" in process.told}


def completed(scenario: Scenario, directory: Path, write: Callable[[str], None] = print) -> Run:
    """Runs a scenario, and again if the machine stalled: see ``Stalled``.

    Raises:
        Failed: something that must hold does not.
    """
    for left in reversed(range(RUNS_MAX)):
        run = Run(scenario, directory, write)
        try:
            run.run()
        except Stalled as stalled:
            if not left:
                raise
            write(f"once more: {stalled}")
            shutil.rmtree(directory)
        else:
            break
    return run


def judge(spark: Any, journals: Path) -> str:
    """The audit's verdict on the journals of a run: empty if all that was checked holds, else the report."""
    from seqcast.journal.places import find
    from seqcast.spark.auditing import check_cluster

    report = check_cluster(spark, find([journals]))
    unchecked = [name for name in ("views", "agreement", "fifo") if report.verdicts[name].result is None]
    if unchecked:
        return f"the audit found nothing to check for {', '.join(unchecked)}\n{report.as_text()}"
    return "" if report.holds else report.as_text()


def audited(
    spark: Any,
    scenario: Scenario,
    keep: str,
    write: Callable[[str], None] = print,
    also: Callable[[Run], str] = lambda run: "",
) -> Run:
    """As `completed`, in a directory of its own (`place_for`); then the audit judges the journals. Raises the same.

    Args:
        also: names further faults of the run; empty: none.
    """
    with place_for(scenario.name, keep) as directory:
        run = completed(scenario, directory, write)
        if verdict := judge(spark, run.journals) or also(run):
            raise Failed(verdict)
    return run


@contextlib.contextmanager
def place_for(name: str, keep: str = "") -> Iterator[Path]:
    """A folder for journals and logs: in ``keep``, or a temporary one, which stays only if the run fails."""
    directory = Path(keep) / name if keep else Path(tempfile.mkdtemp(prefix=f"seqcast-chaos-{name}-"))
    try:
        yield directory
    except BaseException:
        print(f"journals and logs are kept: {directory}     (seqcast audit {directory / 'journals'})", flush=True)
        raise
    if not keep:
        shutil.rmtree(directory)
