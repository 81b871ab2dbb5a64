"""Gossip in groups of 10 to 10,000 simulated members: ``python bench/gossip_scale.py [--members N ...]``.

The policy is the production one, with partial membership; the members are light (``seqcast/sim/crowd.py``). Five of
them multicast 20 packets a second together, 10 % crash, and each datagram and each copy of a multicast is lost with the
same probability. One row of CSV for each group: messages delivered, the time of repair, the cost for each member, and
the prediction of theory. 10,000 members take about two minutes of one processor for each loss, and about 1 GB.

Theory: gossips begin at random, ``rate`` a second in the whole group. One reaches a given member with the probability c
= 1 - exp(-f c (1 - p) a), where f is the number of members that it is passed on to, p the loss, and a the share of
members that live; a packet that the member lacks then comes if neither the request nor the answer is lost. So the share
that is still missing t after its multicast is p exp(-rate c (1 - p)^2 t): ``residual_*`` in the table, and
``theory_residual_*``.

``--joiners N``: N members join a group that has already sent for 40 s, and want everything that was sent: two late-join
handlers have it, the other members only the newest 80 packets of each sender. Further columns say how long after its
join a joiner had everything.

``--write`` replaces docs/gossip.csv and the plot docs/gossip.png (needs matplotlib: the extra ``report``).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

from seqcast.core.gossip.tempo import subset_size
from seqcast.sim.crowd import SECOND, Crowd, CrowdOptions

DOCS = Path(__file__).resolve().parent.parent / "docs"
SIZES, LOSSES = (10, 100, 1000, 10_000), (0.01, 0.05, 0.2)
AFTER_S = (2, 5, 10, 20)
"""How long after its multicast a packet may still be missing."""


def expected_rate(options: CrowdOptions) -> tuple[float, float]:
    """By theory: gossips begun per second, and how often per second one of them repairs a packet that a given member
    lacks."""
    n, live, kept = options.members, 1 - options.crashed, 1 - options.loss
    copies = subset_size(n - 1, n, options.gossip.subset_percent, 1)
    rate = live * SECOND / (options.gossip.average_ns * copies)
    reached = 1.0
    for _ in range(200):
        reached = 1 - exp(-copies * reached * kept * live)
    return rate, rate * reached * kept**2


def quantile(ascending: Sequence[int], part: float) -> float:
    """Seconds."""
    return ascending[min(int(part * len(ascending)), len(ascending) - 1)] / SECOND if ascending else 0.0


def late(options: CrowdOptions, joiners: int) -> CrowdOptions:
    """The same group, with joiners that need late-join handlers."""
    gossip = replace(options.gossip, lag=80)
    return replace(options, joiners=joiners, handlers=2, sending_ns=60 * SECOND, gossip=gossip)


def measured(members: int, loss: float, seed: int, joiners: int = 0) -> dict[str, Any]:
    """One row."""
    options = CrowdOptions(seed=seed, members=members, loss=loss)
    if joiners:
        options = late(options, joiners)
    begin = time.process_time()
    result = Crowd(options).run()
    hops: Counter[int] = sum(result.reached.values(), Counter())
    live = members * (1 - options.crashed)
    repaired = result.repaired_ns
    rate, repairs = expected_rate(options)
    caught_up = sorted(result.caught_up_ns)
    never = result.expected - result.delivered
    residual: dict[str, str] = {}
    for after in AFTER_S:
        missing = never + len(repaired) - bisect_right(repaired, after * SECOND)
        residual[f"residual_{after}s"] = f"{missing / result.expected:.3g}"
        residual[f"theory_residual_{after}s"] = f"{loss * exp(-repairs * after):.3g}"
    late_joiners = {
        "joiners": joiners,
        "caught_up": len(caught_up),
        "caught_up_p50_s": round(quantile(caught_up, 0.5), 2),
        "caught_up_max_s": round(quantile(caught_up, 1), 2),
    }
    return {
        "members": members,
        "loss": loss,
        "crashed": options.crashed,
        "seed": seed,
        "expected": result.expected,
        "lacking": never,
        "ratio": f"{result.ratio:.7f}",
        "repaired": len(repaired),
        "repair_p50_s": round(quantile(repaired, 0.5), 2),
        "repair_p99_s": round(quantile(repaired, 0.99), 2),
        "repair_max_s": round(quantile(repaired, 1), 2),
        "theory_p50_s": round(log(2) / repairs, 2),
        "theory_p99_s": round(log(100) / repairs, 2),
        **({} if joiners else residual),  # joiners get older ones
        "gossips": len(result.reached),
        "theory_gossips": round(rate * options.sending_ns / SECOND, 1),
        "passed_on_by": round(sum(hops.values()) / max(len(result.reached), 1) / live, 3),
        "hops_mean": round(sum(hop * n for hop, n in hops.items()) / max(sum(hops.values()), 1), 2),
        "hops_max": max(hops, default=0),
        "datagrams_per_member_s": round(sum(result.datagrams.values()) / result.member_s, 2),
        "bytes_per_member_s": round(sum(result.bytes.values()) / result.member_s),
        "gossip_bytes_per_member_s": round(result.bytes["GossipMessage"] / result.member_s),
        "repair_bytes_per_member_s": round((result.bytes["Resent"] + result.bytes["Request"]) / result.member_s),
        "view_entries": result.member_state,
        "size_estimated": result.sizes[len(result.sizes) // 2],
        "cpu_s": round(time.process_time() - begin, 1),
        **(late_joiners if joiners else {}),
    }


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.2), layout="constrained")
    (times, residual), (rounds, traffic) = figure.subplots(2, 2)
    largest = max(row["members"] for row in rows)
    for loss in sorted({row["loss"] for row in rows}):
        mine = sorted((row for row in rows if row["loss"] == loss), key=lambda row: row["members"])
        members = [row["members"] for row in mine]
        (line,) = times.plot(members, [row["repair_p99_s"] for row in mine], "o", label=f"{loss:.0%} loss")
        times.plot(members, [row["theory_p99_s"] for row in mine], "--", color=line.get_color())
        rounds.plot(members, [row["hops_mean"] for row in mine], "o-", label=f"{loss:.0%} loss")
        traffic.plot(members, [row["bytes_per_member_s"] for row in mine], "o-", label=f"{loss:.0%} loss")
        for kind, style, label in (("residual", "o", f"{loss:.0%} loss"), ("theory_residual", "--", None)):
            missing = [float(mine[-1][f"{kind}_{after}s"]) for after in AFTER_S]
            residual.plot((0, *AFTER_S), [loss, *missing], style, color=line.get_color(), label=label)
    sizes = sorted({row["members"] for row in rows})
    rounds.plot(sizes, [log(size) for size in sizes], "k--", label="ln N")
    titles = (
        "99 % of the losses are repaired (s)\ndashed: theory",
        "hops of a gossip, mean",
        "bytes per member and s",
        f"share of deliveries still missing, {largest:,} members\ndashed: theory",
    )
    for axes, title in zip((times, rounds, traffic, residual), titles, strict=True):
        if axes is residual:
            axes.set_yscale("log")
            axes.set_xlabel("s after the multicast")
        else:
            axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("members")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=80)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, nargs="+", default=SIZES, metavar="N", help="sizes of groups")
    parser.add_argument("--loss", type=float, nargs="+", default=LOSSES, metavar="P", help="probabilities of loss")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the runs (%(default)s)")
    parser.add_argument("--joiners", type=int, default=0, metavar="N", help="members that join late (%(default)s)")
    parser.add_argument("--write", action="store_true", help="replace docs/gossip.csv and docs/gossip.png")
    arguments = parser.parse_args()
    if arguments.write and arguments.joiners:
        parser.error("--write is without --joiners")
    rows: list[dict[str, Any]] = []
    out = csv.writer(sys.stdout, lineterminator="\n")
    for members in arguments.members:
        for loss in arguments.loss:
            rows.append(measured(members, loss, arguments.seed, arguments.joiners))
            if len(rows) == 1:
                out.writerow(rows[0])
            out.writerow(rows[-1].values())
            sys.stdout.flush()
    if arguments.write:
        with (DOCS / "gossip.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        plot(rows, DOCS / "gossip.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
