"""Storm families: runs with many faults that belong together, which would rarely meet otherwise.

Each finds in a few seeds the faults that mixed runs would find in thousands. ``tests/helpers/sim_literal.py`` and
``tests/mutants`` show the purpose of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

MS = 1_000_000
SECOND = 1000 * MS

Drawn = dict[str, Any]

STORM: Drawn = {
    "members": 4, "duration_ns": SECOND, "spread_ns": 0, "rate": 400, "bytes_max": 3000,
    "loss": 0.02, "duplicate": 0.05, "delay_ns": 500_000, "jitter_ns": 1_000_000, "tail": 0.02,
    "partitions": 1, "crashes": 1, "doubts": 12, "rejoins": 8, "ambushes": 3,
}  # fmt: skip
"""View changes hit each other: false suspicions, ambushes, slow links, much traffic."""
TURNOVER: Drawn = {
    "members": 4, "duration_ns": SECOND, "spread_ns": 500 * MS, "rate": 300, "bytes_max": 2000,
    "loss": 0.02, "delay_ns": 200_000, "jitter_ns": 500_000, "crashes": 2, "restarts": 2, "doubts": 4, "rejoins": 6,
    "leaves": 1, "state": True, "state_bytes": 1_000_000, "state_refusals": 1,
}  # fmt: skip
"""Members join and take over a large state, and their providers crash."""


def calm(**faults: Any) -> Drawn:
    """A storm with no faults but these."""
    names = ("loss", "duplicate", "tail", "partitions", "crashes", "doubts", "rejoins", "ambushes")
    return STORM | dict.fromkeys(names, 0) | faults


def _storm(rng: random.Random) -> Drawn:
    return STORM | {"blocks": rng.choice((0.0, 0.5, 1.0)), "queue_bytes": rng.choice((0, 1 << 20))}


def _turnover(rng: random.Random) -> Drawn:
    return TURNOVER | {"partition": rng.choice(("merge", "merge", "primary"))}


def _disagreeing(rng: random.Random) -> Drawn:
    """The VIEW of each initiator often misses the others: different views with the same counter and common members."""
    return calm(
        members=3, duration_ns=SECOND // 2, bytes_max=50, delay_ns=5 * MS, jitter_ns=1000, loss=0.1, tail=0.1,
        tail_ns=100 * MS, doubts=30, rejoins=8, unicasts=0,
    )  # fmt: skip


def _overlapping(rng: random.Random) -> Drawn:
    """Attempts to close a view overlap for long, and each of their frames may come when a later one runs."""
    return calm(
        members=rng.choice((3, 4, 5)), bytes_max=200, delay_ns=5 * MS, jitter_ns=5 * MS,
        loss=rng.choice((0.02, 0.2)), tail=0.1, tail_ns=100 * MS, crashes=1, doubts=30, rejoins=20, unicasts=0,
        late=rng.choice((0.0, 0.05)), echoes=rng.choice((0.0, 0.5)), late_ns=rng.choice((100 * MS, SECOND)),
        blocks=rng.choice((0.0, 0.0, 0.5)), partition=rng.choice(("merge", "primary")),
    )  # fmt: skip


def _duels(rng: random.Random) -> Drawn:
    """Two initiators at a time, with common survivors and slow frames; and much traffic."""
    return calm(
        duration_ns=600 * MS, bytes_max=50, rate=1000, delay_ns=5 * MS, jitter_ns=5 * MS, unicasts=0, duels=6,
        loss=rng.choice((0.0, 0.1)), echoes=rng.choice((0.0, 0.5)), late_ns=100 * MS, rejoins=8,
    )  # fmt: skip


def _deaf(rng: random.Random) -> Drawn:
    """Links that are cut in one direction until the faults end, and others for a while."""
    return calm(
        members=rng.choice((3, 4, 5)), deaf=rng.choice((1, 2)), one_way=2, duration_ns=4 * SECOND, rate=100,
        loss=rng.choice((0.0, 0.05)),
    )  # fmt: skip


def _majorities(rng: random.Random) -> Drawn:
    """A primary partition, whose initiators are struck in the middle of a multicast."""
    faults = {"ambushes": 6, "doubts": 4, "rejoins": 8} if rng.random() < 0.5 else {"partitions": 2, "flaps": 1}
    return STORM | faults | {"members": rng.choice((3, 4, 5)), "partition": "primary", "split": rng.choice((0, 2, 3))}


def _acceptances(rng: random.Random) -> Drawn:
    """A primary partition in which proposals are accepted but not decided, and DONEs and VIEWs come late."""
    return calm(
        partition="primary", members=5, ambushes=6, doubts=rng.choice((4, 20)), rejoins=8,
        late=rng.choice((0.0, 0.1)), echoes=rng.choice((0.0, 0.5)), late_ns=300 * MS,
    )  # fmt: skip


def _pauses(rng: random.Random) -> Drawn:
    """Members pause the group, their SUSPENDs come late, and they stop for longer than a lease."""
    return calm(
        suspends=6, tail=rng.choice((0.0, 0.5)), tail_ns=400 * MS, stalls=rng.choice((0, 6)), pause_ns=2 * SECOND,
        crashes=rng.choice((0, 1)), blocks=rng.choice((0.0, 0.5)), doubts=rng.choice((0, 4)), duration_ns=2 * SECOND,
        late=rng.choice((0.0, 0.2)), echoes=rng.choice((0.0, 0.5)), late_ns=1500 * MS, leaves=rng.choice((0, 1)),
    )  # fmt: skip


def _unicasts(rng: random.Random) -> Drawn:
    """Unicasts of members to each other must arrive before a view closes, or before its sender has left."""
    return calm(
        flush_unicasts=rng.random() < 0.5, unicasts=0.9, doubts=rng.choice((0, 12)), loss=0.15, delay_ns=5 * MS,
        jitter_ns=5 * MS, leaves=rng.choice((0, 2)),
    )  # fmt: skip


def _merges(rng: random.Random) -> Drawn:
    """Groups fall apart and merge again and again, and merge leaders crash."""
    return calm(
        members=rng.choice((3, 4, 5)), partitions=rng.choice((1, 3)), flaps=rng.choice((0, 2)), crashes=1,
        duration_ns=3 * SECOND, rate=50, late=rng.choice((0.0, 0.1)), echoes=rng.choice((0.0, 0.5)),
        falling_leader=rng.random() < 0.5, leaves=rng.choice((0, 1)), doubts=rng.choice((0, 4)),
        apart_ns=rng.choice((0, 800 * MS)), split=0,
    )  # fmt: skip


def _repair(rng: random.Random) -> Drawn:
    """Nothing but loss: how many requests, and how much time, a repair takes."""
    return calm(
        loss=rng.choice((0.01, 0.05, 0.1)), delay_ns=rng.choice((50_000, 500_000)), jitter_ns=1000,
        rate=rng.choice((20, 400, 1000)), leaves=rng.choice((0, 0, 1)),
    )  # fmt: skip


def _starved(rng: random.Random) -> Drawn:
    """There are too few processors for a while: members step late, at times later than every lease."""
    return calm(
        members=rng.choice((3, 4, 6)), duration_ns=rng.choice((4, 8)) * SECOND, rate=20, bytes_max=200,
        starving_ns=rng.choice((300 * MS, SECOND, 3 * SECOND)), starved=rng.choice((0.3, 1.0)),
        crashes=rng.choice((0, 1)), restarts=1, rejoins=8, partition=rng.choice(("merge", "merge", "primary")),
    )  # fmt: skip


def _interfaces(rng: random.Random) -> Drawn:
    """Network interfaces break, some for good, while the members look at them now and then."""
    return calm(
        members=rng.choice((3, 4, 5)), interfaces=rng.choice((1, 3, 6)), duration_ns=6 * SECOND, rate=50,
        crashes=rng.choice((0, 1)), leaves=rng.choice((0, 1)), rejoins=8, partition=rng.choice(("merge", "primary")),
        split=0, state=rng.random() < 0.3,
    )  # fmt: skip


def _mute(rng: random.Random) -> Drawn:
    """Firewalls between some members drop unicasts and pass multicasts."""
    return calm(
        members=rng.choice((2, 3, 4, 5)), mutes=rng.choice((1, 2, 4)), duration_ns=8 * SECOND, rate=50,
        loss=rng.choice((0.0, 0.05)), crashes=rng.choice((0, 1)), leaves=rng.choice((0, 1)),
        partition=rng.choice(("merge", "primary")), split=0, state=rng.random() < 0.3,
    )  # fmt: skip


def _namesakes(rng: random.Random) -> Drawn:
    """Two processes have one name, so that their groups stay apart until one of them is gone."""
    return calm(
        members=rng.choice((3, 4, 5)), namesakes=rng.choice((1, 1, 2)), duration_ns=4 * SECOND, rate=50, unicasts=0,
        partitions=rng.choice((0, 1)), leaves=rng.choice((0, 1)), crashes=rng.choice((0, 1)), rejoins=8,
        partition=rng.choice(("merge", "merge", "merge", "primary")), split=0,
    )  # fmt: skip


def _founders(rng: random.Random) -> Drawn:
    """A majority founds a primary group, perhaps in a network that is cut in two; then members start again alone."""
    members = rng.choice((3, 3, 4, 5))
    return calm(
        members=members, found=members // 2 + 1, partition="primary", split=0, alone=rng.choice((1, 2, 3)),
        apart_ns=rng.choice((0, 800 * MS, 2 * SECOND)), spread_ns=rng.choice((0, 300 * MS)), duration_ns=4 * SECOND,
        rate=50, loss=rng.choice((0.0, 0.05)), one_way=rng.choice((0, 1)), leaves=0, rejoins=8,
    )  # fmt: skip


def _stable(rng: random.Random) -> Drawn:
    """Most members, or all, lose their power, also in the middle of a write, and go on with the data on their disks."""
    members = rng.choice((3, 3, 4, 5))
    return calm(
        stable=True, members=members, found=members // 2 + 1, partition="primary", split=0,
        outages=rng.choice((0, 1, 2)), writes=rng.choice((0, 1, 2, 6)), partitions=rng.choice((0, 0, 1, 2)),
        duration_ns=4 * SECOND, rate=50, loss=rng.choice((0.0, 0.05)), leaves=0, rejoins=8,
        transport=rng.choice(("multicast", "auto", "unicast")),
    )  # fmt: skip


def _fanout(rng: random.Random) -> Drawn:
    """No multicast anywhere: members find each other by given, exchanged and remembered addresses."""
    return calm(
        transport="unicast", members=rng.choice((2, 3, 4, 5)), duration_ns=rng.choice((1, 3)) * SECOND, rate=100,
        spread_ns=rng.choice((0, 500 * MS)), loss=rng.choice((0.0, 0.02, 0.1)), crashes=rng.choice((0, 1)),
        restarts=rng.choice((0, 1)), leaves=rng.choice((0, 1)), partitions=rng.choice((0, 1, 2)), rejoins=8,
        one_way=rng.choice((0, 0, 1)), doubts=rng.choice((0, 3)), apart_ns=rng.choice((0, 0, 800 * MS)),
        partition=rng.choice(("merge", "merge", "primary")), state=rng.random() < 0.3,
    )  # fmt: skip


def _seeds(rng: random.Random) -> Drawn:
    """Seeds are down, late, wrong, stale or few, processes start at random moments, and others elsewhere later."""
    return calm(
        transport="unicast", lies=rng.choice((0.3, 0.7, 1.0)), members=rng.choice((1, 2, 3, 4, 5)), rate=100,
        duration_ns=rng.choice((2, 6)) * SECOND, spread_ns=rng.choice((0, 500 * MS, 2 * SECOND)),
        loss=rng.choice((0.0, 0.02, 0.1)), crashes=rng.choice((0, 1, 3)), restarts=rng.choice((0, 1, 3)),
        leaves=rng.choice((0, 1)), partitions=rng.choice((0, 0, 1)), rejoins=8, partition="merge", split=0,
        state=rng.random() < 0.3,
    )  # fmt: skip


def _islands(rng: random.Random) -> Drawn:
    """Some members do not hear the multicasts of some others, as time goes by of others than before."""
    return calm(
        transport="auto", islands=rng.choice((1, 1, 2, 4)), members=rng.choice((3, 3, 4, 5)),
        duration_ns=rng.choice((2, 4)) * SECOND, rate=100, spread_ns=rng.choice((0, 500 * MS)),
        loss=rng.choice((0.0, 0.02, 0.1)), crashes=rng.choice((0, 0, 1)), restarts=rng.choice((0, 1)),
        leaves=rng.choice((0, 0, 1)), partition="merge", split=0, state=rng.random() < 0.3,
    )  # fmt: skip


def _translated(rng: random.Random) -> Drawn:
    """Addresses of every second member are translated on the way to others."""
    what = rng.choice(("hosts", "ports"))
    drawn = calm(
        transport="unicast", translated=what, keyed=what == "ports", members=rng.choice((2, 3, 4, 5)),
        duration_ns=rng.choice((1, 3)) * SECOND, rate=100, spread_ns=rng.choice((0, 500 * MS)),
        loss=rng.choice((0.0, 0.02, 0.1)), crashes=rng.choice((0, 1)), restarts=rng.choice((0, 1)),
        leaves=rng.choice((0, 1)), partitions=rng.choice((0, 1, 2)), rejoins=8,
        partition=rng.choice(("merge", "merge", "primary")), state=rng.random() < 0.3,
    )  # fmt: skip
    drawn["unpublished"] = what == "ports" and rng.random() < 0.3
    return drawn


def _paths(rng: random.Random) -> Drawn:
    """Paths drop datagrams that are too large for them without a word, and other paths do as time goes by."""
    return calm(
        narrows=rng.choice((1, 1, 2, 3)), members=rng.choice((2, 3, 3, 4, 5)), packet_bytes=rng.choice((1472, 8968)),
        duration_ns=rng.choice((1, 2, 4)) * SECOND, rate=rng.choice((100, 400)), bytes_max=rng.choice((3000, 30_000)),
        spread_ns=rng.choice((0, 500 * MS)), loss=rng.choice((0.0, 0.02, 0.05)), crashes=rng.choice((0, 0, 1)),
        restarts=rng.choice((0, 1)), leaves=rng.choice((0, 1)), partition=rng.choice(("merge", "primary")), split=0,
        state=rng.random() < 0.3, transport=rng.choice(("multicast", "auto", "unicast")), unicasts=0.1,
    )  # fmt: skip


def _narrow(rng: random.Random) -> Drawn:
    """Members send more than the links between them carry, before which there are queues, long ones or none; some share
    one link with all copies of their packets, and with streams of others."""
    drawn = calm(
        link_bytes_per_s=rng.choice((500_000, 2_000_000)), link_packets=rng.choice((2, 5, 20, 50)),
        members=rng.choice((2, 3, 4)), rate=rng.choice((400, 1500)), bytes_max=3000, duration_ns=SECOND,
        delay_ns=rng.choice((500_000, 5 * MS, 25 * MS)), jitter_ns=1000, loss=rng.choice((0.0, 0.0, 0.01)),
        packet_bytes=1472, transport=rng.choice(("unicast", "unicast", "auto")), split=0, unicasts=0.1,
        crashes=rng.choice((0, 0, 1)), leaves=rng.choice((0, 0, 1)), state=rng.random() < 0.3,
        partition=rng.choice(("merge", "primary")),
    )  # fmt: skip
    if drawn["transport"] == "unicast" and rng.random() < 0.5:
        drawn |= {"uplinks": True, "rivals": rng.random() < 0.5}
    return drawn


def _slow(rng: random.Random) -> Drawn:
    """Applications take nothing for a while, half of them for longer than senders wait for them; in some runs
    others are slow all the time (``Options.draw``)."""
    return calm(
        members=rng.choice((3, 4, 4)), duration_ns=3 * SECOND, rate=400, bytes_max=5000, unicasts=0.02,
        slow_disks=rng.choice((1, 2, 4)), pause_ns=rng.choice((300 * MS, 4 * SECOND)), rejoins=8,
        loss=rng.choice((0.0, 0.0, 0.02)), crashes=rng.choice((0, 0, 1)), leaves=rng.choice((0, 0, 1)),
        partition=rng.choice(("merge", "primary")), split=0, state=rng.random() < 0.3,
        settings=(("slow", rng.choice(("block", "exclude", "exclude"))), ("slow_s", 0.4), ("window_bytes", 64 << 10)),
    )  # fmt: skip


def _roles(rng: random.Random) -> Drawn:
    """Some members only observe, and infos change, while members come and go, and parts of the group."""
    return calm(
        members=rng.choice((3, 4, 5)), infos=rng.choice((0, 2, 12)), observers=rng.choice((0.0, 0.4, 0.7)),
        duration_ns=2 * SECOND, rate=100, rejoins=8, loss=rng.choice((0.0, 0.05, 0.2)), crashes=rng.choice((0, 1, 2)),
        restarts=rng.choice((0, 1)), leaves=rng.choice((0, 1)), partitions=rng.choice((0, 1, 2)),
        doubts=rng.choice((0, 4)), ambushes=rng.choice((0, 2)), late=rng.choice((0.0, 0.1)),
        partition=rng.choice(("merge", "primary")),
    )  # fmt: skip


def _skip(rng: random.Random) -> Drawn:
    """The same, but applications that take nothing skip messages."""
    drawn = _slow(rng)
    settings = (*drawn["settings"], ("slow", "skip"))  # the last one counts
    return drawn | {"order": "fifo", "safe": False, "state": False, "slow_disks": rng.choice((1, 2, 4)),
                    "pause_ns": rng.choice((300 * MS, 4 * SECOND, 4 * SECOND)), "settings": settings}  # fmt: skip


FAMILIES: Mapping[str, Callable[[random.Random], Drawn]] = {
    "storm": _storm,
    "turnover": _turnover,
    "disagreeing": _disagreeing,
    "overlapping": _overlapping,
    "duels": _duels,
    "deaf": _deaf,
    "majorities": _majorities,
    "acceptances": _acceptances,
    "pauses": _pauses,
    "unicasts": _unicasts,
    "merges": _merges,
    "repair": _repair,
    "starved": _starved,
    "interfaces": _interfaces,
    "mute": _mute,
    "namesakes": _namesakes,
    "founders": _founders,
    "stable": _stable,
    "fanout": _fanout,
    "seeds": _seeds,
    "islands": _islands,
    "translated": _translated,
    "slow": _slow,
    "roles": _roles,
    "paths": _paths,
    "skip": _skip,
    "narrow": _narrow,
}
LATER = (
    "interfaces", "mute", "namesakes", "founders", "stable",
    "fanout", "seeds", "islands", "translated", "slow", "roles", "paths", "skip", "narrow",
)  # fmt: skip
"""Families that the first seeds do not draw: they were added later, and those seeds must not change."""
TURNS = (*sorted(FAMILIES), *LATER)
"""The families of the seeds that came later, in turn: those that the first seeds do not draw come twice."""


def of_later(number: int) -> str:
    """The family of a later seed, by its number from 1 on; "": each third one is drawn as the first seeds are. So a row
    of seeds that is long enough has each family."""
    before = number - 1
    return "" if before % 3 == 2 else TURNS[(before - before // 3) % len(TURNS)]


def draw(rng: random.Random, engine: Drawn, name: str = "") -> Drawn:
    """The options of one run of a family, which is drawn if not named; ``engine``: the options that are not faults."""
    drawn = rng.choice(sorted(FAMILIES.keys() - set(LATER)))
    name = name or drawn
    return engine | {"partition": "merge"} | FAMILIES[name](rng) | {"family": name}
