"""``make chaos``: scenarios for as long as there is time; the first that fails ends it, with its journals kept."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from chaos.runner import Failed, audited
from chaos.scenarios import DIRECTED, SECONDS, Scenario, draw
from seqcast.config.fields import MEMBERSHIPS, RELIABILITIES
from seqcast.perf.paths import why_no_namespaces
from seqcast.spark.session import open_session


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos",
        description="Groups of processes in network namespaces, with loss, cuts, SIGKILL and SIGSTOP; their journals "
        "are audited. Without --seed and --scenario: all directed scenarios, then seeds, until the time is over.",
        epilog="Exit status 0: all guarantees hold; 1: one does not; 2: bad arguments, or no namespaces here.",
    )
    which = parser.add_mutually_exclusive_group()
    names = [one.name for one in DIRECTED]
    which.add_argument("--seed", type=int, metavar="N", help="run the scenario of one seed")
    which.add_argument("--scenario", choices=names, metavar="NAME", help=f"run one of {', '.join(names)}")
    which.add_argument("--from", type=int, dest="first", metavar="N", help="only seeds, from N on")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="begin nothing after S (%(default)g)")
    parser.add_argument("--faults", type=float, default=SECONDS, metavar="S", help="s of faults a seed (%(default)g)")
    parser.add_argument("--runs", type=int, metavar="N", help="end after so many scenarios")
    parser.add_argument("--membership", choices=MEMBERSHIPS, help="of all groups (default: as each scenario has it)")
    parser.add_argument("--reliability", choices=RELIABILITIES, help="of all groups (default: as each scenario has it)")
    parser.add_argument("--keep", metavar="DIR", default="", help="keep all journals and logs in this folder")
    parser.add_argument("--quiet", action="store_true", help="one line a scenario")
    arguments = parser.parse_args()
    if reason := why_no_namespaces():
        print(f"make chaos: {reason}", file=sys.stderr)
        return 2

    spark = open_session("local[2]", name="seqcast chaos")
    begin, passed = time.monotonic(), 0
    try:
        for scenario in chosen(arguments):
            if time.monotonic() - begin > arguments.seconds or passed == arguments.runs:
                break
            choose_kind(scenario, arguments)
            if not arguments.quiet:
                print(f"\n{scenario}")
            lines: list[str] = []
            try:
                run = audited(spark, scenario, arguments.keep, lines.append if arguments.quiet else print)
            except Failed as error:
                print(*lines, f"FAILED: {error}", sep="\n")
                print(f'replay: make chaos ARGS="{replay(scenario, arguments)}"', flush=True)
                return 1
            passed += 1
            print(run.summary(), flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(f"{passed} scenarios, all guarantees hold")
    return 0


def choose_kind(scenario: Scenario, arguments: argparse.Namespace) -> None:
    """Gives the group the settings that were asked for."""
    for name in ("membership", "reliability"):
        if value := getattr(arguments, name):
            scenario.settings[name] = value
    if scenario.settings.get("reliability") == "gossip":
        scenario.settings.pop("safe", None)  # which it has not


def replay(scenario: Scenario, arguments: argparse.Namespace) -> str:
    """The arguments that run a scenario again."""
    kind = f" --membership {arguments.membership}" if arguments.membership else ""
    kind += f" --reliability {arguments.reliability}" if arguments.reliability else ""
    if not scenario.name.startswith("seed-"):
        return f"--scenario {scenario.name}{kind}"
    faults = f" --faults {arguments.faults:g}" if arguments.faults != SECONDS else ""
    return f"--seed {scenario.name[5:]}{faults}{kind}"


def chosen(arguments: argparse.Namespace) -> Iterator[Scenario]:
    """The scenarios to run, in order."""
    if arguments.seed is not None:
        yield draw(arguments.seed, arguments.faults)
        return
    directed = [one for one in DIRECTED if arguments.scenario in (None, one.name)]
    if arguments.first is None:
        yield from directed
    if arguments.scenario is None:
        seed = arguments.first if arguments.first is not None else int(time.time())
        while True:
            yield draw(seed, arguments.faults)
            seed += 1


if __name__ == "__main__":
    sys.exit(main())
