"""Healing: how long members that a partition separated need to be in one view again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from seqcast.commandline import Progress
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.process import Process
from seqcast.sim.world import World

ROUNDS = 4
"""Partitions of one run, one after the other: a merge that failed may slow down the next."""
SETTLED_NS = 800 * MS
"""By then crashed members are suspected, so that the time to heal does not include detection."""
LIMIT_NS = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Healing:
    """One healing of the network.

    Args:
        seed: of the run.
        sides: into how many the network was split.
        crashes: members that had crashed in the run before.
        took_ns: virtual time from healing until all living members are in one view; -1: more than ``LIMIT_NS``.
    """

    seed: int
    sides: int
    crashes: int
    took_ns: int


def draw(seed: int) -> Options:
    """A group of 4 to 9 members, under a loss of up to 5 %."""
    rng = random.Random(f"heals {seed}")
    return Options(
        seed=seed,
        members=rng.randrange(4, 10),
        order=rng.choice(("fifo", "total")),
        spread_ns=100 * MS,
        loss=rng.choice((0.0, 0.01, 0.05)),
        delay_ns=rng.choice((50_000, 500_000)),
        jitter_ns=rng.choice((20_000, 500_000)),
        rate=5,
        bytes_max=200,
        hosts=rng.random() < 0.5,
    )


def heal_again_and_again(seed: int) -> list[Healing]:
    """Runs the partitions of a seed; in each, and in the calm afterwards, a member may crash, and another one start."""
    options, rng = draw(seed), random.Random(f"healing {seed}")
    world = World(options)
    world.plan()
    clock, found = world.clock, []
    clock.run(SECOND)
    for number in range(ROUNDS):
        if rng.random() < 0.5:  # shortly after the merge before
            clock.run(clock.now + rng.randrange(1000 * MS))
            _crash_one(world, rng, f"r{number}")
        clock.run(clock.now + SETTLED_NS)
        indices = [node.index for node in world.nodes if node.up]
        rng.shuffle(indices)
        parts = rng.choice((2, 3))
        sides = [set(indices[part::parts]) for part in range(parts)]
        for at, side in enumerate(sides):
            world.network.partition(side, set().union(*sides[at + 1 :]))
        clock.run(clock.now + SETTLED_NS + rng.randrange(2 * SECOND))
        if rng.random() < 0.5:
            _crash_one(world, rng, "")
            clock.run(clock.now + SETTLED_NS)
        world.network.heal()
        begin = clock.now
        while not _whole(world.nodes) and clock.now < begin + LIMIT_NS:
            clock.run(clock.now + 5 * MS)
        took = clock.now - begin if _whole(world.nodes) else -1
        found.append(Healing(seed, len(sides), sum(not node.up for node in world.nodes), took))
    return found


def _crash_one(world: World, rng: random.Random, successor: str) -> None:
    alive = [node for node in world.nodes if node.up]
    if len(alive) > 3:
        rng.choice(alive).crash()
        if successor:
            world.start_node(successor)


def _whole(nodes: Sequence[Process]) -> bool:
    alive = [node for node in nodes if node.alive]
    view = alive[0].view
    ids = {node.id for node in alive}
    return view is not None and {m.id for m in view.members} == ids and all(n.view == view for n in alive)


def report(seeds: Sequence[int]) -> int:
    """Runs healings and prints how long they took; returns the exit status."""
    healings: list[Healing] = []
    with Progress() as progress:
        for done, seed in enumerate(seeds):
            progress.show(f"{done} of {len(seeds)} runs")
            healings += heal_again_and_again(seed)
    failed = [each for each in healings if each.took_ns < 0]
    for each in failed:
        print(f"FAILED: several views {LIMIT_NS // SECOND} s after a healing")
        print(f"        replay: seqcast sim --heals {each.seed}..{each.seed}")
    for what, chosen in (
        ("of 2 sides", [each for each in healings if each.sides == 2]),
        ("of 3 sides", [each for each in healings if each.sides == 3]),
        ("without a crash in the run before", [each for each in healings if not each.crashes]),
        ("after a crash", [each for each in healings if each.crashes]),
    ):
        times = sorted(each.took_ns for each in chosen if each.took_ns >= 0)
        took = [f"{times[len(times) * part // 100 - 1] / MS:.0f}" for part in (50, 99, 100)] if len(times) > 1 else []
        said = ", ".join(took) or "too few"
        print(f"{len(times)} healings {what}: ms to one view of all, p50, p99 and longest: {said}")
    return 1 if failed else 0
