"""The cost of a key: ``python bench/keyed.py [WHAT ...] [--pairs 5] [--seconds 0.5]``.

Each case is measured with a key and without, in turn. Rates and latency by ``seqcast perf``, each time in a group of
its own; where there is no root for the segmented path, its cases are left out. A join and a view change in two groups
that stand side by side, one with a key: a guest joins one of them, leaves it, and does the same at the other.

For 64 members, each with cores of its own, one machine is too small. Of their view change this script measures the part
that a key changes, in one process: the frame's way from its maker to a member, between whose making and checking there
is only the network. All pairs of keys have met before, as in a group that loses a member. Prints one line of JSON; on
standard error, a line a pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from membership import HERE, Bench, Late, Member

from seqcast.config import keys
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.kinds import dump, load
from seqcast.core.frames.view import NewView
from seqcast.core.identities import Identities
from seqcast.core.orders import resolve
from seqcast.core.rules.cut import first_view
from seqcast.core.secrets import Exchange, Secrets
from seqcast.net.secure import KeyPair
from seqcast.perf.report import machine


class Case(NamedTuple):
    """One comparison.

    Args:
        what: for readers. ``options``: of perf, with and without a key.
        target: at least this much of the rate without a key; of a latency, at most so many µs more.
        more: options with a key.
    """

    what: str
    options: str
    target: float
    more: str = ""

    @property
    def latency(self) -> bool:
        """Compared by difference, not by ratio."""
        return "--latency" in self.options


CASES = (
    Case("batches", "--size 1024 --path loopback", 0.60),
    Case("batches", "--size 64 --path loopback", 0.85),
    Case("batches", "--size 1024 --path veth-segmented", 0.85),
    Case("batches", "--size 64 --path veth-segmented", 0.85),
    Case("plain loops", "--kind plain --size 1024 --path loopback", 0.9),
    Case("batches, XChaCha20", "--size 1024 --path loopback", 0.4, "--cipher xchacha20-poly1305"),
    Case("batches, unicast to 8", "--size 1024 --members 9 --transport unicast --path loopback", 0.9),
    Case("a hop, p50", "--latency --rounds 5000 --order fifo --path loopback", 1.0),
)

CHANGES = {"join": 2.0, "view change": 1.0}
"""At most so many ms more, of a guest's ``join`` as the guest sees it; and from its ``leave`` until the last of the
others has the next view."""
MANY, MANY_MS = 64, 5.0


def perf(case: Case, seconds: float, key: str) -> dict[str, Any] | None:
    """The output of one run; None: its path is not available here."""
    options = case.options.split() + (["--key", key, *case.more.split()] if key else [])
    options += [] if case.latency else ["--seconds", str(seconds)]
    command = [sys.executable, "-m", "seqcast", "perf", "--pairs", "1", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    lines = done.stdout.splitlines()
    found: dict[str, Any] | None = json.loads(lines[-1]) if lines else None
    if found is None or "unavailable" in found:
        return None
    assert not done.returncode, f"{' '.join(command)}: exit status {done.returncode}"
    return found


def measured(case: Case, pairs: int, seconds: float, key: str) -> dict[str, Any] | None:
    """A row; None: the path is not available here."""
    value: Callable[[dict[str, Any]], float]
    value = (lambda run: run["latency_us"]["p50"]) if case.latency else (lambda run: run["delivered_msgs_per_s"])
    of_plain, of_keyed, run = [], [], None
    for number in range(pairs):
        plain, run = (perf(case, seconds, each) for each in ("", key))
        if plain is None or run is None:
            return None
        of_plain.append(value(plain))
        of_keyed.append(value(run))
        print(f"{case.what}, pair {number + 1}: {of_plain[-1]:,.1f}, {of_keyed[-1]:,.1f}", file=sys.stderr, flush=True)
    assert run is not None
    unit = "us" if case.latency else "messages"
    return {"what": case.what, "size": run["size"], "path": run["path"], "target": case.target} | compared(
        of_plain, of_keyed, unit
    )


def compared(of_plain: list[float], of_keyed: list[float], unit: str) -> dict[str, Any]:
    """The result of pairs: rates by their ratio, times by their difference."""
    both = list(zip(of_keyed, of_plain, strict=True))
    change = [keyed / plain if unit == "messages" else keyed - plain for keyed, plain in both]
    return {
        "without": statistics.median(of_plain),
        "with": statistics.median(of_keyed),
        "unit": unit,
        "change": round(statistics.median(change), 3),
        "spread": [round(min(change), 3), round(max(change), 3)],
    }


def change(bench: Bench, guest: Member) -> dict[str, float]:
    """A guest comes and goes: ms of each."""
    bench.rest()
    bench.join(guest)
    bench.complete()
    joined = bench.answer(guest, "joined")
    bench.rest()
    guest.tell(do="leave")
    bench.group.remove(guest)
    at = bench.complete()
    return {"join": joined["took_ns"] / 1e6, "view change": (at - bench.answer(guest, "left")["begin_ns"]) / 1e6}


def changes(members: int, pairs: int, key: str) -> list[dict[str, Any]]:
    """The rows of a group of so many processes."""
    times: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in CHANGES}
    with Bench([HERE]) as plain, Bench([HERE], key=key) as keyed:
        for bench in (plain, keyed):
            bench.form(members)
        guests = [bench.spare() for bench in (plain, keyed)]
        for number in range(pairs + 1):
            pair = [change(bench, guest) for bench, guest in zip((plain, keyed), guests, strict=True)]
            for what, of_both in times.items() if number else ():  # a guest's first join loads modules
                for of_one, each in zip(of_both, pair, strict=True):
                    of_one.append(each[what])
    return [timed(what, members, CHANGES[what], *of_both) for what, of_both in times.items()]


def computed(members: int, pairs: int) -> dict[str, Any]:
    """The row of a group of so many, whose members are key pairs."""
    both = [Made(members, pair) for pair in (lambda: None, KeyPair)]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs + 1):
        for made, of_one in zip(both, times, strict=True):
            ms = made.next()
            if number:  # in the first one, pairs of keys meet for the first time
                of_one.append(ms)
    return timed("view change", members, MANY_MS, *times)


class Made:
    """VIEWs of one member, as another one takes them."""

    def __init__(self, members: int, pair: Callable[[], Exchange | None]) -> None:
        nobody = Identities(None, (), "bench")
        self.secrets = [Secrets(pair(), number, nobody) for number in range(1, members + 1)]
        infos = [
            MemberInfo(f"member {number}", number, bytes(6), 1 << 20, 1472, 1 << 20, key=each.public)
            for number, each in enumerate(self.secrets, start=1)
        ]
        self.known = {info.id: info for info in infos}
        self.last = self.secrets[0].given(first_view(infos, "fifo", resolve("fifo"), 1))

    def next(self) -> float:
        """Makes one, and returns after how many ms another member has checked it and has its secret."""
        maker, taker = self.secrets[0], self.secrets[-1]
        for each in (maker, taker):
            each.entered(each.of(self.last) or b"")
        closes = self.last.view_id
        frame = replace(self.last, closes=closes, view_id=replace(closes, counter=closes.counter + 1))
        begin = time.perf_counter_ns()
        came = load(dump(maker.given(frame)))
        assert isinstance(came, NewView) and not taker.fault(came, self.known) and taker.of(came) is not None
        took = time.perf_counter_ns() - begin
        self.last = came
        return took / 1e6


def timed(what: str, members: int, target: float, of_plain: list[float], of_keyed: list[float]) -> dict[str, Any]:
    """A row of times, which are told, too."""
    for number, (plain, keyed) in enumerate(zip(of_plain, of_keyed, strict=True), start=1):
        print(f"{what}, {members} members, pair {number}: {plain:.2f} ms, {keyed:.2f} ms", file=sys.stderr, flush=True)
    what = f"{what}, {members} members"
    return {
        "what": what,
        "size": None,
        "path": "computed" if members == MANY else "loopback",
        "target": target,
    } | compared(of_plain, of_keyed, "ms")


def main() -> None:
    """Measures all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help="cases that begin so, and 'changes'; default: all")
    parser.add_argument("--pairs", type=int, default=5, help="of each case (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run of a rate (0.5)")
    arguments = parser.parse_args()
    wanted = tuple(arguments.what) or ("",)
    with tempfile.TemporaryDirectory() as folder:
        keys.make(key := str(Path(folder) / "key"))
        cases = [case for case in CASES if case.what.startswith(wanted)]
        rows = [measured(case, arguments.pairs, arguments.seconds, key) for case in cases]
        if "changes".startswith(wanted):
            rows += [*changes(4, arguments.pairs, key), computed(MANY, arguments.pairs)]
    print(json.dumps({"keyed": [row for row in rows if row], "pairs": arguments.pairs, "machine": machine()}))


if __name__ == "__main__":
    try:
        main()
    except Late as error:
        sys.exit(f"bench: {error}")
