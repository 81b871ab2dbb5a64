"""The faults of a group: scenarios written by hand, and scenarios drawn from a seed.

The seed decides the faults and their times; the reaction of processes, kernel and clock is not ours to repeat. A
failing seed is run again, and often fails again, but not always.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

NAMES = "abcdef"
ORDERS = ("total", "sequencer", "fifo")
NEWER = ("total-1999", "grant", "causal")
SECONDS = 6.0
ROTATES_S = 9.0
SIZES = (1280, 1400)
"""The most bytes of an IP packet that a narrow path carries."""
TRANSPORTS = ("auto", "multicast", "unicast")


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, or one wish of an application.

    Args:
        at: seconds after the group was complete (or, with ``Scenario.forming``, after the first start).
        what: loss, cut (nothing gets from ``who`` to ``whom``), split (nothing between them), deafen (no multicast gets
            from ``who`` to ``whom``), narrow (nothing larger than ``most`` gets from ``who`` to
            ``whom``), lie (the seeds of ``who`` are wrong), kill (SIGKILL), stop (SIGSTOP, then SIGCONT), leave,
            start (a process; under a name that was used: again), or rotate (the key is replaced in the three steps
            of docs/security.md, machine after machine).
        who, whom: members by name, or by rank in the view of that moment: "#0" is the coordinator, "#-1" the last.
        seconds: how long a loss, cut, split, deafness, narrowness, lie, stop or rotation lasts.
        percent: of loss.
        most: bytes of an IP packet, of ``SIZES``.
    """

    at: float
    what: str
    who: tuple[str, ...] = ()
    whom: tuple[str, ...] = ()
    seconds: float = 0.0
    percent: float = 0.0
    most: int = 0

    def __str__(self) -> str:
        parts = [f"{self.at:6.2f} s", self.what, " ".join(self.who)]
        if self.whom:
            parts.append(("from " if self.what == "split" else "to ") + " ".join(self.whom))
        if self.percent:
            parts.append(f"{self.percent:g} %")
        if self.most:
            parts.append(f"{self.most} bytes")
        if self.seconds:
            parts.append(f"for {self.seconds:.2f} s")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group and its faults.

    Args:
        name: a slug; "seed-7" is drawn from seed 7.
        steps: in any order.
        members: how many start.
        order: see ``seqcast.join``.
        segmented: each packet crosses the wire on its own, so that loss strikes packets and not whole bursts.
        forming: the steps begin with the start of the first process, not when the group is complete.
        rate: messages each member sends a second.
        settings: of ``seqcast.join``; ``keyed``: with a key. With ``transport="unicast"`` the seeds are in a file of
            each process: all places, or none that is right while a step lies.
    """

    name: str
    steps: tuple[Step, ...]
    members: int = 4
    order: str = "total"
    segmented: bool = False
    forming: bool = False
    rate: int = 300
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def calm(self) -> bool:
        """No fault of the scenario makes a living member look dead: nobody may be excluded, and no join may fail."""
        deaf = self.settings.get("transport") == "multicast"  # whoever is not heard so is taken for dead
        return not any(
            step.what in ("cut", "split", "stop", *(("deafen",) if deaf else ()))
            or (step.what == "loss" and step.percent > 10)
            for step in self.steps
        )

    @property
    def together(self) -> bool:
        """No fault of the scenario keeps living members in groups of their own."""
        return self.calm and not any(step.what == "lie" for step in self.steps)

    @property
    def seconds(self) -> float:
        """When the last fault has ended."""
        return max((step.at + step.seconds for step in self.steps), default=0.0)

    def __str__(self) -> str:
        about = f"{self.name}: {self.members} members, order {self.order}" + ", segmented" * self.segmented
        about += "".join(f", {name}={value}" for name, value in self.settings.items())
        return "\n".join([about, *map(str, sorted(self.steps, key=lambda step: step.at))])


def _loss(percent: float, order: str) -> Scenario:
    """Join, leave and the death of the coordinator, all under loss."""
    steps = (
        Step(0.0, "loss", percent=percent, seconds=3.0),
        Step(0.4, "start", ("e",)),
        Step(1.2, "leave", ("#-2",)),
        Step(1.8, "kill", ("#0",)),
    )
    return Scenario(f"loss-{percent:g}", steps, order=order, segmented=True)


DIRECTED = (
    _loss(1, "total"),
    _loss(5, "fifo"),
    _loss(20, "sequencer"),
    Scenario(
        "first-starts-under-loss",
        (Step(0.0, "loss", percent=5, seconds=1.5),),
        members=5,
        forming=True,
    ),
    Scenario("coordinator-killed", (Step(0.5, "kill", ("#0",)), Step(1.5, "kill", ("#0",))), order="sequencer"),
    Scenario(
        "token-ring-leader-killed",
        (Step(0.3, "start", ("e",)), Step(0.5, "kill", ("#0",)), Step(1.0, "stop", ("#1",), seconds=1.5)),
        order="sequencer",
        settings={"membership": "token-ring"},
    ),
    Scenario("two-killed-together", (Step(0.5, "kill", ("#0", "#2")),), members=5),
    Scenario(
        "killed-one-after-the-other",
        # The second falls while the view without the first is being agreed: about a suspicion time later.
        tuple(Step(at, "kill", ("#0",)) for at in (0.3, 0.71, 1.13)),
        members=5,
        order="fifo",
    ),
    Scenario(
        "restarted-under-its-name",
        (Step(0.3, "kill", ("b",)), Step(0.4, "start", ("b",)), Step(1.5, "kill", ("#0",)), Step(1.6, "start", ("a",))),
        order="fifo",
    ),
    Scenario(
        "coordinator-and-another-leave",
        (Step(0.5, "leave", ("#0", "#2")), Step(0.5, "start", ("e",)), Step(1.5, "leave", ("#0",))),
        order="sequencer",
    ),
    Scenario(
        "killed-while-one-joins-and-one-leaves",
        (Step(0.5, "start", ("e",)), Step(0.62, "kill", ("#0",)), Step(0.65, "leave", ("#2",))),
    ),
    Scenario("coordinator-stopped", (Step(0.5, "stop", ("#0",), seconds=2.0),)),
    Scenario("stopped-in-turn", tuple(Step(0.3 + 1.6 * i, "stop", ("abc"[i],), seconds=1.4) for i in range(3))),
    Scenario("briefly-stopped", tuple(Step(0.3 + i, "stop", (f"#{i}",), seconds=0.25) for i in range(3))),
    Scenario("one-way-from-the-coordinator", (Step(0.5, "cut", ("#0",), ("#1",), seconds=2.0),)),
    Scenario("one-way-to-the-coordinator", (Step(0.5, "cut", ("#2",), ("#0",), seconds=2.0),), order="sequencer"),
    Scenario("two-members-do-not-hear-each-other", (Step(0.5, "split", ("#1",), ("#2",), seconds=2.0),), order="fifo"),
    Scenario("coordinator-cut-off", (Step(0.5, "split", ("#0",), ("#1", "#2", "#3"), seconds=2.0),), order="sequencer"),
    Scenario("two-halves", (Step(0.5, "split", ("#0", "#1"), ("#2", "#3"), seconds=2.0),)),
    Scenario(
        "primary-one-cut-off",
        (Step(0.5, "split", ("#2",), ("#0", "#1"), seconds=2.0),),
        members=3,
        settings={"partition": "primary"},
    ),
    Scenario(
        "primary-coordinator-cut-off-one-killed",
        (Step(0.5, "split", ("#0",), ("#1", "#2", "#3", "#4"), seconds=2.0), Step(0.8, "kill", ("#1",))),
        members=5,
        order="sequencer",
        settings={"partition": "primary"},
    ),
    Scenario(
        "primary-nobody-has-a-majority",
        (
            Step(0.5, "split", ("a", "b"), ("c", "d", "e"), seconds=2.0),
            Step(0.5, "split", ("c", "d"), ("e",), seconds=2.0),
        ),
        members=5,
        order="fifo",
        settings={"partition": "primary"},
    ),
    Scenario(
        "halves-and-deaths",
        (
            Step(0.3, "split", ("a", "b"), ("c", "d", "e"), seconds=2.0),
            Step(1.2, "kill", ("b",)),
            Step(1.4, "start", ("f",)),
            Step(1.5, "leave", ("d",)),
        ),
        members=5,
        order="fifo",
    ),
    Scenario(
        "flapping",
        tuple(Step(0.2 + 0.7 * i, "split", ("a", "d"), ("b", "c"), seconds=0.45) for i in range(4)),
    ),
    Scenario(
        "ways-change-under-load",
        (
            Step(0.2, "deafen", ("#0",), ("#1", "#2"), seconds=1.5),
            Step(0.8, "deafen", ("#1", "#3"), ("#0", "#2"), seconds=2.0),
            Step(1.2, "start", ("e",)),
            Step(1.5, "deafen", ("a", "b", "c", "d"), ("e",), seconds=1.5),
            Step(2.0, "kill", ("#1",)),
        ),
        rate=1000,
    ),
    Scenario(
        "narrower-in-a-cut",
        (
            Step(0.5, "kill", ("#0",)),
            Step(0.9, "narrow", ("b", "c", "d"), ("b", "c", "d"), seconds=3.0, most=1400),
            Step(1.5, "start", ("a",)),
            Step(1.6, "narrow", ("b",), ("a", "d"), seconds=2.0, most=1280),
        ),
        order="fifo",
        segmented=True,
        settings={"transport": "unicast"},
    ),
    Scenario(
        "key-replaced-while-halves-are-apart",
        (
            Step(0.3, "rotate", seconds=ROTATES_S),
            Step(0.6, "kill", ("#0",)),
            Step(2.8, "split", ("a", "b"), ("c", "d"), seconds=2.5),
            Step(4.0, "start", ("a",)),
            Step(6.2, "stop", ("#1",), seconds=1.5),
            Step(8.0, "start", ("e",)),
        ),
        settings={"keyed": True},
    ),
    Scenario(
        "seeds-lie-while-halves-are-apart",
        (
            Step(0.1, "lie", ("a", "b", "c", "d", "e"), seconds=3.5),
            Step(0.5, "split", ("a", "b"), ("c", "d"), seconds=2.0),
            Step(0.7, "start", ("e",)),
            Step(1.0, "kill", ("b",)),
            Step(1.5, "start", ("b",)),
        ),
        settings={"transport": "unicast"},
    ),
)


def draw(seed: int, seconds: float = SECONDS) -> Scenario:
    """The scenario of a seed: the faults, for how many, and the kind of group."""
    rng = random.Random(f"chaos {seed}")
    members = rng.choice((3, 4, 4, 5))
    names = list(NAMES[:members])
    steps = []
    if percent := rng.choice((0, 0, 1, 5, 20)):
        steps.append(Step(0.0, "loss", percent=percent, seconds=seconds))
    kinds = rng.choices(
        ("kill", "stop", "cut", "split", "leave", "start"), (3, 2, 2, 3, 1, 2), k=max(3, round(seconds * 1.2))
    )
    spare = list(NAMES[members:])
    gone: list[str] = []  # may be started again
    for kind in kinds:
        at = round(rng.uniform(0.2, seconds), 2)
        lasts = round(rng.choice((0.1, 0.5, 1.0, 2.0)) * rng.uniform(0.5, 1), 2)
        if kind in ("kill", "leave"):
            if len(gone) < members - 2:
                name = rng.choice([name for name in names if name not in gone])
                gone.append(name)
                steps.append(Step(at, kind, (name,)))
                if rng.random() < 0.5:
                    steps.append(Step(round(at + rng.uniform(0.05, 1.5), 2), "start", (name,)))
        elif kind == "start":
            if spare:
                steps.append(Step(at, kind, (spare.pop(0),)))
        elif kind == "stop":
            steps.append(Step(at, kind, (rng.choice(("#0", "#1", "#-1")),), seconds=lasts))
        elif kind == "cut":
            one, other = rng.sample(names, 2)
            steps.append(Step(at, kind, (one,), (other,), seconds=lasts))
        else:
            rng.shuffle(names)
            middle = rng.randrange(1, members)
            steps.append(Step(at, kind, tuple(names[:middle]), tuple(names[middle:]), seconds=lasts))
    scenario = Scenario(
        f"seed-{seed}",
        tuple(sorted(steps, key=lambda step: step.at)),
        members=members,
        order=rng.choice(ORDERS),
        segmented=rng.random() < 0.5,
        rate=rng.choice((50, 300, 1000)),
    )
    order, settings = _kind(random.Random(f"chaos kind {seed}"), scenario.order)
    scenario = replace(scenario, order=order, settings=settings)
    scenario = _with_ways(random.Random(f"chaos ways {seed}"), scenario, seconds)
    return _with_rotation(random.Random(f"chaos rotation {seed}"), scenario, seconds)


def _with_ways(rng: random.Random, scenario: Scenario, seconds: float) -> Scenario:
    """A transport, and faults of the ways that members have to each other, for how many seconds. Of a random source of
    their own, too."""
    transport = rng.choice(TRANSPORTS)
    names, others, more = list(NAMES[: scenario.members]), scenario.steps, list[Step]()

    def when() -> tuple[float, float]:
        """At any time, or in the middle of a view change."""
        near = rng.choice(others).at + rng.uniform(0.0, 0.5) if rng.random() < 0.5 else rng.uniform(0.2, seconds)
        return round(near, 2), round(rng.choice((0.5, 1.0, 3.0)) * rng.uniform(0.5, 1), 2)

    def some() -> tuple[str, ...]:
        return tuple(sorted(rng.sample(names, rng.randrange(1, len(names) + 1))))

    scale = seconds / SECONDS
    for _ in range(round(scale * rng.choice((0, 1, 3))) if transport == "auto" else 0):
        at, lasts = when()
        more.append(Step(at, "deafen", some(), some(), seconds=lasts))
    for _ in range(round(scale * rng.choice((0, 0, 1, 2))) if scenario.segmented else 0):
        at, lasts = when()
        more.append(Step(at, "narrow", some(), some(), seconds=lasts, most=rng.choice(SIZES)))
    for _ in range(round(scale * rng.choice((0, 1, 2))) if transport == "unicast" else 0):
        at, lasts = when()
        more.append(Step(at, "lie", some(), seconds=lasts))
    settings = scenario.settings | ({"transport": transport} if transport != "auto" else {})
    steps = tuple(sorted((*others, *more), key=lambda step: step.at))
    return replace(scenario, steps=steps, settings=settings)


def _with_rotation(rng: random.Random, scenario: Scenario, seconds: float) -> Scenario:
    """Perhaps a new key, while the other faults last. Of a random source of its own, too."""
    if not scenario.settings.get("keyed") or rng.random() < 0.5:
        return scenario
    step = Step(round(rng.uniform(0.2, seconds / 2), 2), "rotate", seconds=ROTATES_S)
    return replace(scenario, steps=tuple(sorted((*scenario.steps, step), key=lambda step: step.at)))


def _kind(rng: random.Random, order: str) -> tuple[str, dict[str, Any]]:
    """Order and settings of a group, of a random source of their own, so that a seed keeps its faults."""
    order = rng.choice((order, order, *NEWER))
    drawn = {
        "membership": rng.choice(("coordinated", "coordinated", "token-ring")),
        "reliability": rng.choice(("nak", "nak", "nak", "gossip")),
        "safe": rng.random() < 0.5,
        "guard": rng.random() < 0.25,
    }
    drawn["keyed"] = not drawn["guard"] and rng.random() < 0.4
    if drawn["reliability"] == "gossip":
        drawn["safe"] = False  # the positions of all others must be known
    usual = {"membership": "coordinated", "reliability": "nak", "safe": False, "guard": False, "keyed": False}
    return order, {name: value for name, value in drawn.items() if value != usual[name]}
