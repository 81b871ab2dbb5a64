"""``make soak HOURS=8``: chaos in long rounds, whose members must not grow.

Each round is a group of some minutes: the faults of a seed, spread over this time, and settings of which each seed
draws some. A round is judged as chaos is, and by its processes' use of resources: of each that lived for most of the
round, memory, descriptors and slabs in the last third are compared with those in the third before: of the whole life,
or of the longer part before or after its journal began to be rolled. A leak that is too slow to be seen in one round
is one of the slopes of all these lives together, which have bounds, too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from chaos.runner import Failed, Process, Run, audited
from chaos.scenarios import Scenario, draw
from seqcast.perf.paths import why_no_namespaces
from seqcast.spark.session import open_session

ROUND_S = 240.0
FAULTS = 30
"""Of each round; chaos has as many in half a minute."""
GROWTH = {"memory": (1.05, 6 << 20), "fds": (1.0, 3), "slabs": (1.5, 64), "threads": (1.0, 2)}
"""By measurement: how many times as much, and how much more, the last third may have than the one before."""

STEEP = {"memory": 100e6, "fds": 6.0, "threads": 6.0, "slabs": 200.0}
"""Slopes, per hour of a process: the median of all lives may not be above."""
LIVED_H_MIN = 2.0
"""Hours of processes, half an hour of a soak: the slopes of fewer are noise, as memory goes up and down by some MB."""


def drawn(seed: int, seconds: float) -> Scenario:
    """The scenario of a seed of chaos, its faults over a longer time, with more of its settings drawn."""
    short = draw(seed, FAULTS / 1.2)
    scale = seconds / (FAULTS / 1.2)
    steps = [replace(step, at=step.at * scale) for step in short.steps if step.what != "loss"]
    steps += [replace(step, seconds=20.0) for step in short.steps if step.what == "loss"]
    rng = random.Random(f"soak {seed}")
    settings = {**short.settings, **_more(rng)}
    if settings.get("reliability") == "gossip":
        settings.pop("safe", None)
    return replace(short, name=f"soak-{seed}", steps=tuple(steps), settings=settings, rate=rng.choice((50, 200, 400)))


def _more(rng: random.Random) -> dict[str, Any]:
    """Settings that chaos leaves as they are."""
    choices = {
        "congestion": "on",
        "send_bytes_per_s": 20_000_000,
        "window_bytes": 128 << 10,
        "ring_bytes": 256 << 10,
        "send_while_blocked": "queue",
        "flush_unicasts": True,
        "gso": False,
        "gro": False,
        "latency": True,
        "packet_bytes": 1024,
        "journal_payload": "full",
        "journal_resume": True,
    }
    return {name: value for name, value in choices.items() if rng.random() < 0.25}


def grown(run: Run, seconds: float) -> str:
    """The figures that grew in the processes of a round; empty: none did."""
    return "; ".join(text for process in run.processes for text in grown_in(process, seconds))


def grown_in(process: Process, seconds: float) -> list[str]:
    """The figures that grew in a process that lived for most of a round."""
    told = process.used
    if not told or told[-1]["age_s"] - told[0]["age_s"] < 0.8 * seconds:
        return []
    told = steady(told)
    begin, end = told[0]["age_s"], told[-1]["age_s"]
    ages = [begin + (end - begin) * at / 3 for at in (1, 2, 3)]
    thirds = [[each for each in told if first <= each["age_s"] <= last] for first, last in pairwise(ages)]
    found = []
    for name, (times, more) in GROWTH.items():
        before, after = (statistics.median(each[name] for each in third) for third in thirds)
        if after > before * times + more:
            found.append(f"{process.name}: {name} {before:,.0f}, later {after:,.0f}")
    return found


def steady(told: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The reports before the first file of the journal was finished, or those after it, whichever are more: from then
    on files are rolled to Parquet, and what that needs is taken once and kept."""
    rolls = next((at for at, each in enumerate(told) if each["segments"] > 1), len(told))
    return max(told[:rolls], told[rolls:], key=len)


def slope(processes: Sequence[Process], name: str) -> float:
    """The growth per hour, over the last two thirds of each steady life of more than a minute: the median."""
    slopes = []
    for process in processes:
        used = steady(process.used)
        lived = used[-1]["age_s"] - used[0]["age_s"] if used else 0.0
        told = [each for each in used if each["age_s"] > used[0]["age_s"] + lived / 3]
        if len(told) > 10 and lived > 60:
            ages, values = zip(*((each["age_s"], each[name]) for each in told), strict=True)
            slopes.append(3600 * statistics.linear_regression(ages, values).slope)
    return statistics.median(slopes) if slopes else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make soak",
        description="Rounds of chaos of some minutes each, with settings drawn; each is audited, and processes that "
        "live through it must not grow.",
    )
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="begin nothing after H (%(default)g)")
    parser.add_argument("--from", type=int, dest="first", default=int(time.time()), metavar="N", help="seeds from N on")
    parser.add_argument("--round", type=float, default=ROUND_S, metavar="S", help="s of faults a round (%(default)g)")
    parser.add_argument("--keep", metavar="DIR", default="", help="keep all journals and logs in this folder")
    arguments = parser.parse_args()
    if reason := why_no_namespaces():
        print(f"make soak: {reason}", file=sys.stderr)
        return 2

    spark = open_session("local[2]", name="seqcast soak")
    begin, passed, lived = time.monotonic(), 0, []
    seed = arguments.first
    try:
        while time.monotonic() - begin < 3600 * arguments.hours:
            scenario = drawn(seed, arguments.round)
            print(f"{scenario.name}: {scenario.members} members, {scenario.order}, {scenario.settings}", flush=True)
            lines: list[str] = []
            try:
                run = audited(spark, scenario, arguments.keep, lines.append, lambda run: grown(run, arguments.round))
            except Failed as error:
                print(*lines, f"FAILED: {error}", sep="\n")
                print(f"replay: make soak ARGS='--from {seed} --round {arguments.round:g}'", flush=True)
                return 1
            lived += run.processes
            passed += 1
            seed += 1
            print(run.summary(), flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        spark.stop()
    if not passed:
        return 1
    found = steep(lived)
    print(f"{passed} rounds, all guarantees hold; {figures(lived)}")
    print(*(f"FAILED: {text}" for text in found), sep="\n", end="\n" if found else "")
    return 1 if found else 0


def hours(lived: Sequence[Process]) -> float:
    return sum(process.used[-1]["age_s"] for process in lived if process.used) / 3600


def steep(lived: Sequence[Process]) -> list[str]:
    """The slopes above their bounds; none, if too little is known."""
    if hours(lived) < LIVED_H_MIN:
        return []
    slopes = {name: slope(lived, name) for name in STEEP}
    return [
        f"{name} {each:+,.0f} an hour, at most {STEEP[name]:+,.0f} wanted"
        for name, each in slopes.items()
        if each > STEEP[name]
    ]


def figures(lived: Sequence[Process]) -> str:
    """The measurements, in a line."""
    known = hours(lived)
    mb = slope(lived, "memory") / 1e6
    others = ", ".join(f"{name} {slope(lived, name):+.1f}" for name in ("fds", "threads", "slabs"))
    judged = "" if known >= LIVED_H_MIN else f" (not judged: less than {LIVED_H_MIN:g} hours)"
    return f"{known:.1f} hours of processes; per hour{judged}: memory {mb:+.1f} MB, {others}"


if __name__ == "__main__":
    sys.exit(main())
