"""First starts: processes that start at about the same time and find no group must form one, not two that merge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from seqcast.commandline import Progress
from seqcast.sim.options import MS, SECOND, Options
from seqcast.sim.world import World
from seqcast.types import View, ViewId

SPREAD_NS = 150 * MS
"""They start within this time: as long as a joiner looks for a group."""
LIMIT_NS = 3 * SECOND
STABLE_NS = 200 * MS


@dataclass(frozen=True, slots=True)
class Started:
    """The outcome of one start.

    Args:
        options: how many started, within which time, and the loss.
        formed: ids of the first views that were formed; one is right.
        groups: views at the end.
        took_ns: virtual time until all were in one view, counted from when the first could start; -1: they never were.
    """

    options: Options
    formed: frozenset[ViewId]
    groups: frozenset[View | None]
    took_ns: int


def draw(seed: int) -> Options:
    """2 to 8 members that start within 0 to 150 ms of each other, with a loss of up to 5 %."""
    rng = random.Random(f"starts {seed}")
    return Options(
        seed=seed,
        members=rng.randrange(2, 9),
        order=rng.choice(("fifo", "total")),
        spread_ns=rng.choice((0, rng.randrange(SPREAD_NS), SPREAD_NS)),
        loss=rng.choice((0.0, 0.01, 0.05)),
        delay_ns=rng.choice((50_000, 500_000)),
        jitter_ns=rng.choice((20_000, 500_000)),
        rate=1,
    )


def start_together(seed: int) -> Started:
    """Runs the start of a seed until all are in one view, and a little longer."""
    options = draw(seed)
    world = World(options)
    world.plan()
    clock, nodes = world.clock, world.nodes
    took = -1
    while clock.now < LIMIT_NS and (took < 0 or clock.now < took + STABLE_NS):
        clock.run(clock.now + 5 * MS)
        views = {node.view for node in nodes}
        whole = len(nodes) == options.members and len(views) == 1 and None not in views
        if not whole:
            took = -1
        elif took < 0:
            took = clock.now
    first = (node.record.log[0] for node in nodes if node.record.log)
    return Started(
        options,
        formed=frozenset(view.view_id for view in first if isinstance(view, View) and len(view.members) == 1),
        groups=frozenset(node.view for node in nodes),
        took_ns=took,
    )


def report(seeds: Sequence[int]) -> int:
    """Runs starts and prints their outcome; returns the exit status."""
    times: list[int] = []
    twice = apart = 0
    with Progress() as progress:
        for done, seed in enumerate(seeds):
            progress.show(f"{done} of {len(seeds)} starts, {twice + apart} failed")
            started = start_together(seed)
            if len(started.formed) == 1 and started.took_ns >= 0:
                times.append(started.took_ns)
                continue
            twice += len(started.formed) > 1
            apart += started.took_ns < 0
            progress.clear()
            print(f"FAILED: {len(started.formed)} formed, {len(started.groups)} at the end; {started.options}")
            print(f"        replay: seqcast sim --starts {seed}..{seed}")
    times.sort()
    took = [f"{times[len(times) * part // 100 - 1] / MS:.0f}" for part in (50, 99, 100)] if len(times) > 1 else []
    print(
        f"starts of 2 to 8 members: {len(times)} in one group, {twice} formed more than one at first, {apart} end in "
        f"more than one; ms to one view of all, p50, p99 and longest: {', '.join(took) or 'too few'}"
    )
    return 1 if twice or apart else 0
