"""``seqcast sim``: run or replay simulated schedules."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Iterator, Sequence

from seqcast.commandline import Parser, Progress, whole
from seqcast.config.fields import MEMBERSHIPS, RELIABILITIES
from seqcast.core.machines.beacons import Beacons
from seqcast.core.machines.every import MACHINES
from seqcast.core.machines.operator import Operator
from seqcast.core.router import DECISIONS
from seqcast.core.table import DecisionTable, Edge, Machine, edges_of
from seqcast.sim import families, heals, rings, starts
from seqcast.sim.options import SECOND, Options
from seqcast.sim.untaken import UNTAKEN
from seqcast.sim.world import simulate
from seqcast.types import ORDERS

COUNTED: tuple[type[Machine] | DecisionTable, ...] = (
    *(each for each in MACHINES if each is not Operator),
    Beacons.BEACON,
    *DECISIONS,
)
"""Tables whose taken rows runs report: an operator is no member."""


def parser() -> Parser:
    result = Parser(
        "sim",
        "Run or replay simulated groups: the real engine and policies in virtual time, all faults from one seed.",
        "exit status: 0 all guarantees hold, 1 one does not (a line says how to replay it), 2 bad input",
    )
    which = result.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="run one seed, the same each time")
    which.add_argument("--seeds", type=_span, metavar="A..B", help="run the seeds A to B")
    which.add_argument(
        "--starts", type=_span, metavar="A..B", help="run only first starts, of these seeds: do all end in one group?"
    )
    which.add_argument(
        "--heals", type=_span, metavar="A..B", help="run only partitions that heal: how soon is there one view again?"
    )
    which.add_argument(
        "--rings", type=_span, metavar="A..B",
        help="run only token rings: does every random graph of incomplete discovery end in one view?",
    )  # fmt: skip
    result.add_argument("--members", type=_members, default=0, metavar="N", help="processes, 2 to 32; default: by seed")
    result.add_argument("--order", choices=ORDERS, default="", help="default: by seed")
    result.add_argument("--partition", choices=("merge", "primary"), default="", help="default: by seed")
    result.add_argument("--membership", choices=MEMBERSHIPS, default="", help="default: by seed")
    result.add_argument("--reliability", choices=RELIABILITIES, default="", help="default: by seed")
    result.add_argument(
        "--family", choices=sorted(families.FAMILIES), default="", help="storm family; default: by seed"
    )
    result.add_argument("--duration", type=_seconds, default=0.0, metavar="S", help="virtual seconds with faults")
    result.add_argument("--trace", action="store_true", help="print views and faults as they happen")
    return result


def _span(text: str) -> range:
    first, dots, last = text.partition("..")
    if not (dots and first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"{text!r} is not A..B, such as 1..100")
    return range(int(first), int(last) + 1)


def _members(text: str) -> int:
    return whole(text, 2, 32)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    arguments = parser().parse_args(argv)
    if arguments.starts:
        return starts.report(arguments.starts)
    if arguments.heals:
        return heals.report(arguments.heals)
    if arguments.rings:
        return rings.report(arguments.rings)
    seeds = arguments.seeds or [arguments.seed]
    edges: set[Edge] = set()
    failed = packets = 0
    with Progress() as progress:
        for done, seed in enumerate(seeds):
            progress.show(f"{done} of {len(seeds)} seeds, {failed} failed")
            duration_ns = int(arguments.duration * SECOND)
            given = arguments.members, arguments.order, duration_ns, arguments.partition, arguments.family
            options = Options.draw(seed, *given, arguments.membership, arguments.reliability)
            try:
                result = simulate(options, print if arguments.trace else None)
            except Exception:  # an assertion of the code under test: a finding like any other
                progress.clear()
                traceback.print_exc()
                print(f"FAILED: an exception; replay: {replay(options, arguments.family)}")
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
                print(f"FAILED: {result.violations[0]}; replay: {replay(options, arguments.family)}")
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
    """A line for each row of the tables that no run took, unless it is known why; and for each that is listed as such,
    and was taken."""
    known = {row for rows in UNTAKEN.values() for row in rows}
    for edge in sorted(edges_of(COUNTED) - edges):
        if str(edge) not in known:
            yield f"never taken: {edge}"
    for row in sorted(known & {str(edge) for edge in edges}):
        yield f"taken, though sim/untaken.py lists it: {row}"


def replay(options: Options, family: str = "") -> str:
    """The line that replays a run; ``family``: it was named, and not drawn."""
    return (
        f"seqcast sim --seed {options.seed} --members {options.members} --order {options.order} "
        f"--duration {options.duration_ns / SECOND:g} --partition {options.partition} "
        f"--membership {options.membership} --reliability {options.reliability}"
        + (f" --family {family}" if family else "")
    )
