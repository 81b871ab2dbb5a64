"""Tables and sentences made from measurements: docs/figures.md, the headline of README.md, a part of docs/gossip.md."""

from __future__ import annotations

import csv
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = 4
"""Of the groups that are measured, unless a measurement says otherwise."""
HOPS = {"blocking": (0.4, 1.0), "asyncio": (0.6, 1.2), "spinning": (1.5, 3.0), "one core": (2.0, 3.0)}
"""Targets for half a round trip, at p50 and at p99, relative to bare C's, which waits in the same way: asyncio's
relative to blocking."""


def gossip_rows() -> list[dict[str, str]]:
    """docs/gossip.csv: a row for each size of a group and each loss."""
    with (ROOT / "docs" / "gossip.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def gossip(rows: list[dict[str, str]]) -> str:
    """The table of groups of many sizes, and the sentences about it."""

    def number(text: str) -> str:
        return f"{int(text):,}"

    cells = [
        [
            number(row["members"]),
            f"{float(row['loss']):.0%}",
            f"{int(row['expected']) - int(row['lacking']):,} of {number(row['expected'])}",
            f"{row['repair_p50_s']}, {row['repair_p99_s']}",
            f"{row['theory_p50_s']}, {row['theory_p99_s']}",
            f"{row['residual_5s']}, {row['theory_residual_5s']}",
            row["hops_mean"],
            f"{row['datagrams_per_member_s']}, {number(row['bytes_per_member_s'])}",
            number(row["size_estimated"]),
        ]
        for row in rows
    ]
    due, lacking = (sum(int(row[name]) for row in rows) for name in ("expected", "lacking"))
    hops = [float(row["hops_mean"]) / log(int(row["members"])) for row in rows]
    sent = sorted(int(row["bytes_per_member_s"]) for row in rows if row["loss"] == "0.05")
    largest = {row["loss"]: row for row in rows if row["members"] == rows[-1]["members"]}
    most, usual = largest["0.2"], largest["0.05"]
    beyond = max(float(most[f"residual_{at}s"]) / float(most[f"theory_residual_{at}s"]) for at in (2, 5, 10, 20))
    missing = exp(-40 * log(2) / float(usual["theory_p50_s"]))
    head = [
        "members", "loss", "delivered", "repair p50, p99 (s)", "theory p50, p99 (s)", "missing after 5 s, theory",
        "hops, mean", "datagrams and bytes per member and s", "size estimated",
    ]  # fmt: skip
    said = [
        f"Delivered.** Of {due:,} deliveries to live members that were due in all runs, "
        f"{f'{lacking:,} are' if lacking else 'none is'} missing. The target was 99.99 % at 5 % loss. By theory a "
        f"lost packet is still missing after 40 s with a probability of {missing:.0e} with "
        f"{number(usual['members'])} members and 5 % loss: exp(−40 s · ln 2 / p50).",
        'Residual.** "Missing" is the share of all deliveries that are still due 5 s after the multicast; the second '
        f"panel shows this share over time for {number(most['members'])} members. At 5 % loss the curve follows the "
        f"theory for 10 s, and is lower after that; at 20 % up to {beyond:.1f} times as high: few gossips begin in "
        f"so large a group ({most['gossips']} in 20 s), so each of them counts.",
        "Rounds.** The mean number of hops after which a member sees a gossip grows as the logarithm of the size of "
        f"the group: {min(hops):.2f} to {max(hops):.2f} times ln N in all rows.",
        f"Traffic.** A member sends, without the multicasts themselves, {sent[0]:,} to {sent[-1]:,} bytes a second "
        f"({sent[-1] / sent[0]:.2f} times) over a thousandfold growth at 5 % loss. Groups of ten send less because "
        "their gossips list fewer members.",
    ]
    items = "\n".join(fill(f"- **{each}", 120, subsequent_indent="  ") for each in said)
    return f"{table(head, cells)}\n\n{items}\n"


def headline(printed: list[dict[str, Any]]) -> str:
    """The one figure of README.md: the loops most people write first, beside those of pyzmq."""
    rows = [row for run in printed for row in run.get("plain", ()) if row["kind"] in ("plain", "pyzmq")]
    head = ["`send` in a loop, `for message in group`", "message", "messages/s", "ratio to pyzmq, per run"]
    names = {"plain": "seqcast, default settings", "pyzmq": "pyzmq PUB/SUB, with no order among senders"}
    shown = [[names[kind], *rest[:3]] for kind, *rest in ([row["kind"], *plain_row(row)[1:]] for row in rows)]
    said = "One sender and three receivers, each a process; medians of alternating runs, with the range of ratios:"
    return f"{said}\n\n{table(head, shown)}\n"


CALLS = ("ordered", "seqcast", "pysyncobj")
"""The kinds of rows of bench/calls.py."""


def figures(printed: list[dict[str, Any]]) -> str:
    """The tables of docs/figures.md, from the output of the commands of ``bench/figures.py``."""
    runs = [run for first in printed for run in (first, *first.get("other_paths", ())) if "unavailable" not in run]
    parts = [f"Measured on {' and on '.join(dict.fromkeys(str(run['machine']) for run in runs if 'machine' in run))}."]
    for text, head, row, rows in (
        (
            "The loops most people write first, with default settings: `send` in a loop and `for message in group` "
            "(plain), the same in asyncio (aio), and the same loops of pyzmq with PUB and SUB sockets, which order "
            "nothing among senders and repair nothing:",
            ["loops", "message", "messages/s", "of pyzmq", "CPU µs/message"],
            plain_row,
            rows_of(runs, "plain"),
        ),
        (
            "A service that works 4 µs between its sends, with 3 receivers: by default (plain), messages gather for up "
            "to 200 µs if others left shortly before; with `flush_s_min=0` (at-once), each gets a packet of its own:",
            ["loop", "message", "messages/s", "of at-once", "messages in a packet", "CPU µs/message"],
            work_row,
            rows_of(runs, "work"),
        ),
        (
            "The loops in groups of other sizes:",
            ["loops", "members", "order", "message", "messages/s", "MB/s", "CPU µs/message", "lost"],
            loops_row,
            [run for run in throughput_runs(runs) if run.get("kind", "batches") != "batches"],
        ),
        (
            "Batches, as arrays of messages; the sender does not receive its own:",
            ["order", "message", "path", "messages/s", "MB/s", "of the limit", "of bare C", "CPU µs/message", "lost"],
            throughput_row,
            [run for run in batches(runs) if run["members"] == MEMBERS],
        ),
        (
            "The same in groups of other sizes, one of which sends:",
            ["members", "order", "message", "messages/s", "of the limit", "of bare C", "acks/packet", "lost"],
            group_row,
            [run for run in batches(runs) if run["members"] != MEMBERS],
        ),
        (
            "Batches compared with Aeron 1.11.3 (driver in C, program in C++), in turn, in one run on loopback; its "
            "stream has no checksum, no agreement on members and no total order:",
            ["what", "message", "messages/s", "of Aeron", "CPU µs/message"],
            aeron_row,
            rows_of(runs, "aeron"),
        ),
        (
            "With datagrams dropped in the kernel:",
            ["order", "message", "path", "dropped", "messages/s", "relative to no loss", "lost"],
            loss_row,
            [run for run in runs if "loss_percent" in run],
        ),
        (
            "With a journal at every member, of the hashes of messages or of whole messages:",
            ["order", "message", "path", "journal", "messages/s", "relative to no journal", "lost"],
            journal_row,
            [run for run in runs if "journal" in run],
        ),
        (
            "With a key (AEGIS-128L if nothing else is said) and without, in turn, in one run; of a hop, the latency; "
            "of joins and view changes, the time (computed: that of the work for the frame, at maker and member):",
            ["what", "message", "path", "without", "with a key", "of the same without"],
            keyed_row,
            rows_of(runs, "keyed"),
        ),
        (
            "Half the round-trip time between two members, in µs, and that of a bare C ping-pong. With `total` one of "
            "the two is the sequencer; if a third member is, an ordered message needs a second hop "
            "([measured](orders.md#latency)):",
            ["order", "message", "path", "waiting", "p50", "p99", "p99.9", "bare C p50", "bare C p99", "p50 ratio"],
            latency_row,
            [run for run in runs if "latency_us" in run],
        ),
        (
            "Joins, leaves and crashes in a group of 4 on one machine: ms until the last member's application has the "
            "view, and the figures of peers on such a machine:",
            ["what", "p50", "slowest", "times", "peers (p50)"],
            membership_row,
            changes(runs),
        ),
        (
            "SIGKILL of the leader of 4 members, until the last survivor has the new view, in ms, in turn, in one run"
            + (TRIBES if any(row["what"] == "Tribes" for row in rows_of(runs, "election")) else "")
            + ":",
            ["", "settings", "p50", "range"],
            election_row,
            rows_of(runs, "election"),
        ),
        (
            "Calls of a replicated counter on three members, compared with PySyncObj (Raft in Python), both at their "
            "defaults; an ordered message is `Group.deliver` in a group with the settings of a replica. Failover: "
            "from SIGKILL of the leader until a call that another member began after it has its answer:",
            [
                "what",
                "calls/s, one thread",
                "p50 µs",
                "calls/s, 8 threads",
                "operations/s, 8 threads, call_many of 16",
                "calls/s, 128 tasks",
                "reads/s, linearizable, 8 threads",
                "reads/s, local",
                "failover ms",
                "start of the next leader beyond detection, ms",
            ],
            calls_row,
            rows_of(runs, "calls"),
        ),
        (
            "The state that a joiner of a group of 4 is sent, while another member multicasts:",
            ["state", "multicast meanwhile", "MB/s", "range"],
            state_row,
            [run for run in runs if "load_mb_per_s" in run],
        ),
        (
            "Groups by unicast on an emulated link, with a queue of 20 ms. Each "
            "sends to two members, so two copies of each packet cross the link; the rates are those of messages, all "
            "copies together:",
            ["the link, Mb/s", "round trip, ms", "on the link", "Mb/s", "result"],
            link_row,
            rows_of(runs, "shared_link"),
        ),
        (
            "The cost of [boards](operations.md): batches in fifo order on loopback, with `board=True` and "
            "`board=False` on every member, in turn; and the quartiles of as many pairs of two runs without, which "
            "show how far equal runs differ:",
            ["members", "message", "messages/s", "without boards", "of that", "quartiles", "of two runs without"],
            lambda row: [*board_row(row), noise(row)],
            rows_of(runs, "board"),
        ),
        (
            "Batches in fifo order by each [transport](unicast.md) in turn, where all members hear each other; of the "
            'rate with `transport="multicast"`:',
            ["members", "message", "path", "MB/s, multicast", "auto", "unicast", "unicast, of the same in C"],
            transports_row,
            rows_of(runs, "transports"),
        ),
        (
            "Half the round trip of a message to the group between two of its members, in µs at p50, by multicast and "
            "by unicast in turn:",
            ["members", "message", "path", "multicast", "unicast", "of multicast's"],
            transports_latency_row,
            rows_of(runs, "transports_latency"),
        ),
        (
            "`seqcast perf --hosts` by `ip netns exec {host}` and `--path veth` in turn, in the same namespaces; both "
            "measure the same network:",
            ["members", "message", "messages/s", "--path veth", "of that", "quartiles"],
            lambda row: board_row(row, "veth_msgs_per_s"),
            rows_of(runs, "between_hosts"),
        ),
        (
            "A group under datagrams of a process outside it, 100,000 a second on the same cores, compared "
            "with the run beside each ([kinds](security.md#how-it-works)); *asked*: a tenth as many, each a question "
            "that only members are answered:",
            ["datagrams", "messages/s", "beside", "messages/s", "of that"],
            forged_row,
            rows_of(runs, "forged"),
        ),
        (
            "A group of four on loopback, one of which stops taking messages of 1 KB "
            "([slow](config.md#failure-and-view-changes)); the rate of those that take all, relative to that of a "
            "group of three without it, and to that of a group of four that all take. (A member that skips still "
            "receives all packets: where members share cores, as here, it costs the others as much as one that takes "
            "all.) With either setting senders first wait for that member for `slow_s` once, which is not counted:",
            ["slow", "slow_s", "rate counted", "of that of three", "of that of four"],
            slow_row,
            rows_of(runs, "slow"),
        ),
    ):
        if rows:
            parts += [text, table(head, [row(each) for each in rows])]
    commands = dict.fromkeys(run["command"] for run in printed)
    parts.append("In parentheses: the lowest and the highest of the pairs. `make bench-figures` runs these commands:")
    parts.append("```\n" + "\n".join(commands) + "\n```")
    missed = targets(runs)
    if missed:
        parts += ["**Targets not reached** in these measurements:", table(["what", "target", "reached"], missed)]
    return "".join(f"\n{part}\n" for part in parts)


def rows_of(runs: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those of a script that prints several rows."""
    return [row for run in runs for row in run.get(name, ())]


TRIBES = ". Tribes is the NonBlockingCoordinator of Apache Tribes, which learns of crashes by silence alone"


def changes(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins, leaves and crashes, each once: a run that compares transports measures those by multicast again."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows_of(runs, "membership"):
        found.setdefault(row["what"], row)
    return list(found.values())


def throughput_runs(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of ``seqcast perf`` that measured neither latency nor the cost of loss or a journal."""
    return [run for run in runs if "ratio_to_limit" in run and not {"loss_percent", "journal"} & run.keys()]


def batches(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of them that sent and received arrays."""
    return [run for run in throughput_runs(runs) if run.get("kind", "batches") == "batches"]


def targets(runs: list[dict[str, Any]]) -> list[list[str]]:
    """The targets that these runs miss: the figure, the target, and the result."""
    rows: list[list[str]] = []

    def expect(what: str, least: float | None, reached: float, *, most: bool = False) -> None:
        if least is not None and (reached > least if most else reached < least):
            rows.append(
                [what, f"at {'most' if most else 'least'} {least:,g}", f"{reached:,.{2 if reached < 100 else 0}f}"]
            )

    for run in (run for run in batches(runs) if run["order"] == "fifo"):
        others = "" if run["members"] == MEMBERS else f", {run['members']} members"
        what = f"fifo, {run['size']:,} B, {run['path']}{others}, of the limit"
        expect(what, 0.8 if others else 0.85, run["ratio_to_limit"])
    for row in rows_of(runs, "plain"):
        if row["kind"] != "pyzmq":
            expect(f"{row['kind']}, {row['size']:,} B, of pyzmq", 2.0 if row["kind"] == "plain" else 1.0, row["ratio"])
    for row in (row for row in rows_of(runs, "aeron") if row.get("target")):
        expect(f"{row['what']}, {row['size']:,} B, of Aeron", row["target"], row["ratio"])
    for run in (run for run in runs if "latency_us" in run and run["order"] == "fifo"):
        same = run["cores"] is not None and run["cores"][0] == run["cores"][1]
        where = f"half a round trip, fifo, {wait(run)}{', one core' if same else ''}, of bare C at"
        for key, goal in zip(("p50", "p99"), HOPS["one core" if same else wait(run)], strict=True):
            expect(f"{where} {key}", goal, run["ratio_to_raw"][key], most=True)
    for run in runs:
        if run.get("journal") == "hash" and run["size"] == 1024:
            expect("a journal of hashes at every member, 1,024 B, relative to no journal", 0.8, run["journal_ratio"])
    for row in changes(runs):
        expect(f"{row['text']}: p50, ms", row["target_ms"], row["p50_ms"], most=True)
    for run in runs:
        targets_of_paths(run, expect)
        more_targets(run, expect)
    return rows


UNICAST = {("loopback", 4): 0.6, ("veth-segmented", 4): 0.78, ("veth-segmented", 8): 0.62}
"""By path and members: the least rate of unicast, of multicast's."""


def targets_of_paths(run: dict[str, Any], expect: Callable[..., None]) -> None:
    """Those of shared links and of transports."""
    for row in run.get("shared_link", ()):
        least = {"alone": 0.85, "lossy": 0.85 * 0.75, "shared": 0.7, "narrow": 0.9}[row["case"]]
        reached = next(row[key] for key in ("of_link", "jain", "of_before") if key in row)
        where = f"{row['link_mbit']:,.0f} Mb/s, {row.get('round_trip_ms', 5):g} ms"
        expect(f"{LINK_CASES[row['case']]}, on {where}", least, reached)
    for row in run.get("transports", ()):
        what = f"{row['path']}, {row['members']} members, {row['size']:,} B, of multicast"
        expect(f"transport=auto, {what}", 0.99, row["ratio"]["auto"])
        if least := UNICAST.get((row["path"], row["members"])):
            expect(f"transport=unicast, {what}", least, row["ratio"]["unicast"])
        if "of_fan_out" in row["ratio"]:
            expect(f"transport=unicast, {what.replace('multicast', 'the same in C')}", 0.85, row["ratio"]["of_fan_out"])
    for row in run.get("transports_latency", ()):
        what = f"half a round trip by unicast, {row['members']} members, of multicast's, p50"
        expect(what, 1.3, row["ratio"], most=True)


def more_targets(run: dict[str, Any], expect: Callable[..., None]) -> None:
    """Those of boards, of hosts, of keys, and of calls of a replica."""
    for row in run.get("keyed", ()):
        what = ", ".join([row["what"], *sent(row), row["path"], "with a key"])
        unit = "" if row["unit"] == "messages" else f", {UNITS[row['unit']]} more"
        expect(what + unit, row["target"], row["change"], most=row["unit"] != "messages")
    for row in run.get("board", ()):
        expect(f"with boards, {row['size']:,} B, of the rate without", 0.99, row["ratio"])
    for row in run.get("forged", ()):
        if row["kind"] not in ("no key, forged", "of another group"):
            expect(f"rate of a group, {row['kind']}, of that {row['beside']}", 0.98, row["ratio"])
    for row in run.get("slow", ()):
        least = {"exclude": 0.95, "skip": 0.9}[row["slow"]]
        expect(f"slow={row['slow']}, one of four stops, of the rate without that one", least, row["ratio"])
    for row in run.get("between_hosts", ()):
        expect(f"perf --hosts over namespaces, {row['size']:,} B, of --path veth", 0.95, row["ratio"])
    for row in run.get("membership", ()):
        expect(
            f"{row['text']}, of multicast's, p50",
            row.get("of_multicast_target"),
            row.get("of_multicast", 0.0),
            most=True,
        )
    if "calls" not in run:
        return
    ordered, seqcast, other = ({row["kind"]: row for row in run["calls"]}[kind] for kind in CALLS)
    ratio = seqcast["one_p50_us"] / ordered["one_p50_us"]
    expect("a call, of an ordered message's round, p50", 1.5, ratio, most=True)
    expect("calls/s of 8 threads", 50_000, seqcast["threads_per_s"])
    if "many_per_s" in seqcast:
        expect("operations/s of 8 threads, call_many of 16", 50_000, seqcast["many_per_s"])
    expect("linearizable reads/s of 8 threads, of local ones", 0.5, seqcast["total_per_s"] / seqcast["local_per_s"])
    expect("calls/s of one thread, of PySyncObj's", 100, seqcast["one_per_s"] / other["one_per_s"])
    expect("failover, of PySyncObj's", 0.2, seqcast["failover_ms"] / other["failover_ms"], most=True)
    if "start_ms" in seqcast:
        expect("start of the next leader beyond detection, ms", 10, seqcast["start_ms"], most=True)


def membership_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of membership."""
    return [row["text"], f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}", str(row["rounds"]), row["peers_ms"] or "–"]


def state_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of state transfer."""
    low, high = run["mb_per_s_range"]
    state, load = f"{run['bytes'] >> 20} MiB", f"{run['load']:.0f} MB/s" if run["load"] else "nothing"
    return [state, load, f"{run['mb_per_s']:.0f}", f"{low:.0f}–{high:.0f}"]


LINK_CASES = {
    "alone": "a group",
    "lossy": "a group; 1 % of the packets dropped at random",
    "shared": "two groups, and a TCP stream (CUBIC)",
    "narrow": "a group before, and 3 s after packets above 1,400 bytes vanish",
}
"""The load on the emulated link, by case of bench/shared_link.py."""


def link_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of links that groups share."""
    lost = f"{row['of_link']:.2f} of the link; its queue drops {100 * row['dropped']:.1f} %" if "of_link" in row else ""
    result = {"shared": f"Jain's index {row.get('jain')}", "narrow": f"{row.get('of_before')} of before"}
    link = [f"{row['link_mbit']:,.0f}", f"{row.get('round_trip_ms', 5):g}"]
    rates = ", ".join(f"{rate:.1f}" for rate in row["mbit"])
    return [*link, LINK_CASES[row["case"]], rates, result.get(row["case"], lost)]


def transports_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of transports."""
    ratios = []
    for name in ("auto", "unicast", "of_fan_out"):
        if name not in row["ratio"]:
            ratios.append("–")
            continue
        low, _, high = row["quartiles"][name]
        ratios.append(f"{row['ratio'][name]:.3f} ({low:.3f}–{high:.3f})")
    where = [str(row["members"]), f"{row['size']:,} B", row["path"]]
    return [*where, f"{row['mb_per_s']['multicast']:,.0f}", *ratios]


def transports_latency_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of latency by unicast."""
    low, _, high = row["quartiles"]
    times = [f"{row['p50_us'][name]:.1f}" for name in ("multicast", "unicast")]
    return [
        str(row["members"]),
        f"{row['size']:,} B",
        row["path"],
        *times,
        f"{row['ratio']:.3f} ({low:.3f}–{high:.3f})",
    ]


def board_row(row: dict[str, Any], beside: str = "without_msgs_per_s") -> list[str]:
    """One row of the table of boards, or of that of hosts."""
    rates = [f"{row[name]:,.0f}" for name in ("msgs_per_s", beside)]
    low, high = row["quartiles"]
    return [str(row["members"]), f"{row['size']:,} B", *rates, f"{row['ratio']:.3f}", f"{low:.3f}–{high:.3f}"]


def noise(row: dict[str, Any]) -> str:
    """The quartiles of pairs that measure the same."""
    return "–".join(f"{each:.3f}" for each in row["same_quartiles"]) if "same_quartiles" in row else "not measured"


def forged_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of forged datagrams."""
    low, high = row["spread"]
    rates = [f"{row[name]:,.0f}" for name in ("msgs_per_s", "beside_msgs_per_s")]
    return [row["kind"], rates[0], row["beside"], rates[1], f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})"]


def slow_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of receivers that stop."""
    rate = {
        "exclude": "in the second that begins `slow_s` + 1 s after the stop",
        "skip": "the lowest of any second from `slow_s` + 0.5 s after the stop on, of the lowest of those",
    }[row["slow"]]
    ratios = [
        f"{row[of]:.2f} ({row[spread][0]:.2f}–{row[spread][1]:.2f})"
        for of, spread in (("ratio", "spread"), ("all_ratio", "all_spread"))
    ]
    return [f"`{row['slow']}`", f"{row['slow_s']:g}", rate, *ratios]


def election_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of elections."""
    missed = f", none within 10 s in {row['missed']} of {row['rounds']}" if row["missed"] else ""
    if "p50_ms" not in row:
        return [row["what"], row["settings"], "–", missed.removeprefix(", ")]
    return [row["what"], row["settings"], f"{row['p50_ms']:.0f}", f"{row['low_ms']:.0f}–{row['high_ms']:.0f}{missed}"]


def calls_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of calls."""
    names = {"ordered": "an ordered message", "seqcast": "`seqcast.replicate`", "pysyncobj": "PySyncObj"}
    keys = (
        "one_per_s",
        "one_p50_us",
        "threads_per_s",
        "many_per_s",
        "tasks_per_s",
        "total_per_s",
        "local_per_s",
        "failover_ms",
        "start_ms",
    )
    return [names[row["kind"]], *(f"{row[key]:,.0f}" if key in row else "–" for key in keys)]


def with_spread(run: dict[str, Any], key: str) -> str:
    """A ratio, with the least and the most of the pairs."""
    low, high = run["spread"][key]
    return f"{run[key]:.2f} ({low:.2f}–{high:.2f})"


def throughput_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of throughput."""
    return [
        run["order"],
        f"{run['size']:,} B",
        run["path"],
        f"{run['delivered_msgs_per_s']:,.0f}",
        f"{run['delivered_mb_per_s']:,.0f}",
        with_spread(run, "ratio_to_limit"),
        with_spread(run, "ratio_to_raw"),
        f"{run['cpu_us_per_msg']:.2f}",
        str(run["lost"]),
    ]


def loops_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of loops over single messages."""
    order, size, _, *rates = throughput_row(run)
    return [run["kind"], str(run["members"]), order, size, *rates[:2], *rates[-2:]]


def group_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of throughput in groups of other sizes."""
    order, size, _, rate, _, limit, raw, _, lost = throughput_row(run)
    return [str(run["members"]), order, size, rate, limit, raw, f"{run['acks_per_packet']:.2f}", lost]


def work_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of sends with work between them."""
    kind, size, rate, ratio, cpu = plain_row(row)
    return [kind, size, rate, "" if kind == "at-once" else ratio, f"{row['messages_a_packet']:.1f}", cpu]


def plain_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of loops beside pyzmq's."""
    ratio = with_spread({**row, "spread": {"ratio": row["spread"]}}, "ratio") if row["kind"] != "pyzmq" else ""
    return [row["kind"], f"{row['size']:,} B", f"{row['rate']:,.0f}", ratio, f"{row['cpu_us']:.2f}"]


def aeron_row(row: dict[str, Any]) -> list[str]:
    """One row of the table beside Aeron."""
    ratio = with_spread({**row, "spread": {"ratio": row["spread"]}}, "ratio") if "ratio" in row else ""
    return [row["what"], f"{row['size']:,} B", f"{row['rate']:,.0f}", ratio, f"{row['cpu_us']:.2f}"]


UNITS = {"us": "µs", "ms": "ms"}


def sent(row: dict[str, Any]) -> list[str]:
    """The size of the messages that a row of the cost of a key is about, if it is about messages."""
    return [f"{row['size']:,} B"] if row["size"] is not None else []


def keyed_row(row: dict[str, Any]) -> list[str]:
    """One row of the table of the cost of a key."""
    low, high = row["spread"]
    if row["unit"] == "messages":
        values = [f"{row[key]:,.0f} messages/s" for key in ("without", "with")]
        values.append(f"{row['change']:.2f} ({low:.2f}–{high:.2f})")
    else:
        unit = UNITS[row["unit"]]
        values = [f"{row[key]:.1f} {unit}" for key in ("without", "with")]
        values.append(f"{row['change']:+.1f} {unit} ({low:+.1f} to {high:+.1f})")
    return [row["what"], "".join(sent(row)) or "–", row["path"], *values]


def loss_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of throughput under loss."""
    return [
        run["order"],
        f"{run['size']:,} B",
        run["path"],
        f"{run['loss_percent']:g} %",
        f"{run['delivered_msgs_per_s']:,.0f}",
        with_spread(run, "ratio_to_loss_free"),
        str(run["lost"]),
    ]


def journal_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of throughput with a journal."""
    return [
        run["order"],
        f"{run['size']:,} B",
        run["path"],
        {"hash": "hashes", "full": "whole"}[run["journal"]],
        f"{run['delivered_msgs_per_s']:,.0f}",
        with_spread(run, "journal_ratio"),
        str(run["lost"] + run["journal_missing"]),
    ]


def wait(run: dict[str, Any]) -> str:
    """How the members of a ping-pong wait."""
    return "asyncio" if run["kind"] == "aio" else str(run["wait"])


def latency_row(run: dict[str, Any]) -> list[str]:
    """One row of the table of latency."""
    bare = run["raw_latency_us"]
    return [
        run["order"],
        f"{run['size']:,} B",
        run["path"],
        wait(run) + ("" if run["cores"] is None else f", cores {run['cores'][0]} and {run['cores'][1]}"),
        *(f"{run['latency_us'][key]:.1f}" for key in ("p50", "p99", "p999")),
        *(f"{bare[key]:.1f}" for key in ("p50", "p99")),
        f"{run['ratio_to_raw']['p50']:.2f}",
    ]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a last column that is empty in all rows is left out."""
    if rows and not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
