"""Explores small worlds to the end.

PYTHONPATH=tests:tests/helpers python -m explore [SCENE ...] [OPTIONS]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time

from sim_literal import VARIANTS

from explore.search import Search, replay
from explore.world import SCENES, SmallWorld

LITERAL = {name: VARIANTS[name] for name in ("no_reconciliation",)}


def main() -> int:
    scenes = "".join(f"\n  {name:20} {words}" for name, words in SCENES.items())
    parser = argparse.ArgumentParser(
        "explore", description=f"{__doc__}\n{scenes}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help="see above (all)")
    parser.add_argument("--losses", type=int, default=1, help="control frames that may be lost (%(default)s)")
    parser.add_argument("--crashes", type=int, default=1, help="further members that may crash (%(default)s)")
    parser.add_argument("--order", default="fifo", help="order of delivery (%(default)s)")
    parser.add_argument("--membership", default="coordinated", help="membership policy (%(default)s)")
    parser.add_argument("--partition", default="merge", help="behaviour in a partition (%(default)s)")
    parser.add_argument("--depth", type=int, default=0, help="choices; beyond, frames arrive as sent (0: all)")
    parser.add_argument("--states", type=int, default=1 << 30, help="stop after so many")
    parser.add_argument("--literal", choices=sorted(LITERAL), help="a rule as a document has it: found to be wrong")
    parser.add_argument("--replay", metavar="JSON", help="the choices of a violation: prints the run")
    args = parser.parse_args()
    if unknown := [name for name in args.scenes if name not in SCENES]:
        parser.error(f"no such scene: {', '.join(unknown)}; there are {', '.join(SCENES)}")
    options = {name: getattr(args, name) for name in ("order", "membership", "partition")}
    with LITERAL[args.literal]() if args.literal else contextlib.nullcontext():
        return explore(args, options)


def explore(args: argparse.Namespace, options: dict[str, str]) -> int:
    """Explores the scenes, and prints its findings; 1: a violation."""
    failed = False
    for scene in args.scenes or SCENES:

        def make(scene: str = scene) -> SmallWorld:
            return SmallWorld(scene, args.losses, args.crashes, **options)

        if args.replay:
            world = make()
            violations = replay(world, json.loads(args.replay))
            print(*world.lines, *violations, sep="\n")
            return bool(violations)
        begin = time.monotonic()
        found = Search(make, args.depth, args.states).run()
        failed |= bool(found.violations)
        print(
            f"{scene}: {found.states:,} states, {found.ends:,} ends, at most {found.longest} choices; "
            f"{'complete' if found.complete else 'not complete'}"
            f"{f' to a depth of {args.depth}' if args.depth else ''}; {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        for violation in found.violations:
            print(*violation["violations"], f"--replay '{json.dumps(violation['choices'])}'", sep="\n  ")
    return failed


sys.exit(main())
