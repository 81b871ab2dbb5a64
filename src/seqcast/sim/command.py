"""``seqcast sim``: run or replay simulated schedules."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from seqcast.commandline import Parser, whole
from seqcast.config.fields import MEMBERSHIPS, RELIABILITIES
from seqcast.sim import families
from seqcast.types import ORDERS

NEEDS = ("seqcast.sim.runs",)
DRAWN = ("members", "order", "partition", "membership", "reliability", "family", "duration")
"""Options of a run that its seed draws unless they are given."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command's arguments; ``given``: those options of a run that are not drawn, by name."""
    result = Parser(
        "sim",
        "Run or replay simulated groups: the real engine and policies in virtual time, all faults from one seed.",
        "exit status: 0 all guarantees hold, 1 one does not (a line says how to replay the run), 2 bad input",
    )
    which = result.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="run one seed, the same each time")
    which.add_argument("--seeds", type=span, metavar="A..B", help="run the seeds A to B")
    which.add_argument(
        "--starts", type=span, metavar="A..B", help="run only first starts, of these seeds: do all end in one group?"
    )
    which.add_argument(
        "--heals", type=span, metavar="A..B", help="run only partitions that heal: how soon have all one view again?"
    )
    which.add_argument(
        "--rings", type=span, metavar="A..B",
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
    arguments = result.parse_args(argv)
    arguments.given = {name: value for name in DRAWN if (value := getattr(arguments, name))}
    only = [name for name in ("starts", "heals", "rings") if getattr(arguments, name)]
    if only and (ignored := [f"--{name}" for name in (*DRAWN, "trace") if getattr(arguments, name)]):
        result.error(f"--{only[0]} draws its own groups: leave out {', '.join(ignored)}")
    return arguments


def span(text: str) -> range:
    """Argument type: seeds."""
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


def main(arguments: argparse.Namespace) -> int:
    """The command; returns the exit status."""
    from seqcast.sim import heals, rings, runs, starts

    if arguments.starts:
        return starts.report(arguments.starts)
    if arguments.heals:
        return heals.report(arguments.heals)
    if arguments.rings:
        return rings.report(arguments.rings)
    return runs.report(arguments)
