"""Simulated runs, seed by seed, and their report."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterator

from seqcast.commandline import Progress
from seqcast.core.machines.beacons import Beacons
from seqcast.core.machines.every import MACHINES
from seqcast.core.machines.operator import Operator
from seqcast.core.router import DECISIONS
from seqcast.core.table import DecisionTable, Edge, TableMachine, edges_of
from seqcast.sim.options import SECOND, Options
from seqcast.sim.untaken import UNTAKEN
from seqcast.sim.world import simulate

COUNTED: tuple[type[TableMachine] | DecisionTable, ...] = (
    *(each for each in MACHINES if each is not Operator),
    Beacons.BEACON,
    *DECISIONS,
)
"""Tables whose taken rows runs report: an operator is not a member."""


def report(arguments: argparse.Namespace) -> int:
    """Runs the seeds that the arguments name; returns the exit status of the command."""
    seeds = arguments.seeds or [arguments.seed]
    edges: set[Edge] = set()
    failed = packets = 0
    with Progress() as progress:
        for done, seed in enumerate(seeds):
            progress.show(f"{done} of {len(seeds)} seeds, {failed} failed")
            options = drawn(seed, arguments)
            try:
                result = simulate(options, print if arguments.trace else None)
            except Exception:  # an assertion of the code under test: a finding like any other
                progress.clear()
                traceback.print_exc()
                print(f"FAILED: an exception; replay: {replay(seed, arguments)}")
                failed += 1
                continue
            edges |= result.edges
            packets += result.packets
            if len(seeds) == 1:
                print(f"seed {seed}: {options}")
                print(
                    f"{result.views} views, {result.messages} messages delivered, {result.packets} packets, "
                    f"{result.virtual_ns / SECOND:.2f} s virtual, digest {result.digest}"
                )
            if result.violations:
                failed += 1
                progress.clear()
                print(f"FAILED: {result.violations[0]}; replay: {replay(seed, arguments)}")
                if arguments.trace or len(seeds) == 1:
                    for violation in result.violations[1:]:
                        print(f"        {violation}")
    if len(seeds) > 1:
        rows = edges_of(COUNTED)
        taken = f"{len(rows & edges)} of {len(rows)} table rows taken"
        print(f"{len(seeds)} seeds, {failed} failed, {packets} packets, {taken}")
        for line in never_taken(edges):
            print(line)
    sys.stdout.flush()
    return 1 if failed else 0


def never_taken(edges: set[Edge]) -> Iterator[str]:
    """A line for each row of the tables that no run took, unless ``UNTAKEN`` lists the row; and for each listed row
    that a run took."""
    known = {row for rows in UNTAKEN.values() for row in rows}
    for edge in sorted(edges_of(COUNTED) - edges):
        if str(edge) not in known:
            yield f"never taken: {edge}"
    for row in sorted(known & {str(edge) for edge in edges}):
        yield f"taken, though sim/untaken.py lists it: {row}"


def drawn(seed: int, arguments: argparse.Namespace) -> Options:
    """The run of a seed, with the options that are given."""
    given = dict(arguments.given)
    return Options.draw(seed, duration_ns=int(given.pop("duration", 0.0) * SECOND), **given)


def replay(seed: int, arguments: argparse.Namespace) -> str:
    """The line that replays a run. It gives only the options that were given: a given option changes how others are
    drawn."""
    return f"seqcast sim --seed {seed}" + "".join(f" --{name} {value}" for name, value in arguments.given.items())
