"""Metrics of members for Prometheus: ``Collector(group)`` in a program that has a registry of its own, and the text
format for ``seqcast metrics``, which reads the boards of all members on this machine.

Names begin with ``seqcast_``. Labels are cluster, member, and in rows about another member, peer. Members of one name
in two groups of one name on this machine have the label incarnation, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import seqcast.codes as codes
from seqcast.api.counters import COUNTERS
from seqcast.board.judge import groups, is_over, spokesman, way
from seqcast.board.read import CUT_NS, Board, ViewChanges, of_other_releases, read
from seqcast.errors import UsageError

if TYPE_CHECKING:
    from seqcast.api.group import Group

__all__ = ["Collector"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_DROPPED = "drop_"
_NOW = "Now: "


class Sample(NamedTuple):
    """A value with its labels.

    Args:
        suffix: of its name, in a histogram.
    """

    labels: dict[str, str]
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """A metric.

    Args:
        name: without "_total".
        kind: "counter", "gauge" or "histogram".
        help: one line.
        samples: of all members.
    """

    name: str
    kind: str
    help: str
    samples: list[Sample]


def families(boards: Iterable[Board]) -> list[Family]:
    """The metrics that boards show: of several of one name, such as one that was killed and its successor, those of the
    one that runs, or of the last one. (No reader takes a page that has the same labels twice.) If several run, in
    groups of one name that have nothing to do with each other, each has its incarnation for a label, too."""
    named: dict[tuple[str, str], list[Board]] = {}
    for board in boards:
        named.setdefault((board.cluster, board.name), []).append(board)
    found: dict[str, Family] = {}
    for board, several in ((each, len(shown) > 1) for shown in map(_shown, named.values()) for each in shown):
        labels = {"cluster": board.cluster, "member": board.name}
        if several:
            labels["incarnation"] = f"{board.about['id']:x}"
        for name, kind, text, more, value in _values(board):
            family = found.setdefault(name, Family(name, kind, text, []))
            family.samples.append(Sample({**labels, **more}, value, "_total" if kind == "counter" else ""))
        cuts = _cuts(board, labels)
        found.setdefault(cuts.name, cuts._replace(samples=[])).samples.extend(cuts.samples)
    return list(found.values())


def _shown(same: Sequence[Board]) -> list[Board]:
    """Chooses among boards of one name: for each group that of the running member; if none runs, the last one."""
    living = [board for board in same if board.alive]
    return [spokesman(group) for group in groups(living)] or [spokesman(same)]


def unreadable() -> Family:
    """The members on this machine whose metrics are missing, as their boards are another release's."""
    text = f"{codes.OTHER_LAYOUT.title}: {codes.OTHER_LAYOUT.remedy}"
    found = of_other_releases().items()
    samples = [Sample({"board": str(path), "layout": str(version)}, 1.0) for path, version in found]
    return Family("seqcast_board_unreadable", "gauge", text, samples)


def _values(board: Board) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    alive = board.alive
    yield "seqcast_up", "gauge", "1 if the member's process runs.", {}, float(alive)
    yield from _counted(board)
    about, gauges, now = board.about, board.gauges, board.read_ns
    status, view = about["status"]["name"], about["view"]
    yield "seqcast_blocked", "gauge", "1 if sends to the group wait.", {}, float(status == "blocked")
    yield "seqcast_view_members", "gauge", "Members of the view.", {}, float(len(view["members"]))
    yield "seqcast_view_counter", "gauge", "Number of the view; grows with each.", {}, float(view["counter"])
    if alive and view["since"]:
        age = max(0, now + about["clock"] - view["since"]) / 1e9
        yield "seqcast_view_age_seconds", "gauge", "Seconds since the member entered its view.", {}, age
    text = "View changes of this member, by the gravest reason."
    for why, n in about["cuts"]["changes"].items():
        yield "seqcast_view_changes", "counter", text, {"why": why}, float(n)
    text = "Seconds that the last view change took."
    yield "seqcast_last_cut_seconds", "gauge", text, {}, about["cuts"]["last_ns"] / 1e9
    text = "Bytes of messages that wait for the application."
    yield "seqcast_queue_bytes", "gauge", text, {}, float(gauges["waiting_bytes"])
    text = "1 if the member is in its group, 0 before and after that, as when it was excluded or has ended by an error."
    yield "seqcast_in_group", "gauge", text, {}, float(alive and status in ("member", "blocked", "leaving"))
    over = is_over(board)
    text = "Seconds since the engine wrote its state: more than a few heartbeats if the process does not run."
    yield "seqcast_engine_age_seconds", "gauge", text, {}, 0.0 if over else _since(now, gauges["posted"])
    text = "Seconds since Python wrote its state: it grows while the GIL is kept."
    yield "seqcast_python_age_seconds", "gauge", text, {}, 0.0 if over else _since(now, about["updated"])
    text = "Seconds for which others have waited for this member's application."
    yield "seqcast_awaited_seconds", "gauge", text, {}, 0.0 if over else _since(now, gauges["awaited_since"])
    if alive and not over:
        yield from _of_peers(board)


def _cuts(board: Board, labels: dict[str, str]) -> Family:
    """How long view changes took."""
    cuts = ViewChanges.of(board.about["cuts"])
    bounds = [f"{ns / 1e9:g}" for ns in CUT_NS] + ["+Inf"]
    samples = [
        Sample({**labels, "le": bound}, float(n), "_bucket")
        for bound, n in zip(bounds, accumulate(cuts.within), strict=True)
    ]
    samples += [Sample(labels, float(sum(cuts.within)), "_count"), Sample(labels, cuts.sum_ns / 1e9, "_sum")]
    text = "Seconds of view changes, from when the member learns that the view closes, and sends wait."
    return Family("seqcast_cut_seconds", "histogram", text, samples)


def _counted(board: Board) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    texts = {name: text for counters in COUNTERS.values() for name, text in counters.items()}
    for name, value in board.counters.items():
        text = texts.get(name, "")
        if not text:
            continue
        if text.startswith(_NOW):
            text = text.removeprefix(_NOW)
            yield f"seqcast_{name}", "gauge", text[:1].upper() + text[1:], {}, float(value)
        elif name.startswith(_DROPPED):
            why = {"why": name.removeprefix(_DROPPED)}
            yield "seqcast_dropped", "counter", "Datagrams, packets and messages dropped, by reason.", why, float(value)
        else:
            yield f"seqcast_{name}", "counter", text, {}, float(value)


def _of_peers(board: Board) -> Iterator[tuple[str, str, str, dict[str, str], float]]:
    gauges = board.gauges
    for rank, row in enumerate(board.members):
        peer = {"peer": board.name_of(row["id"])}
        text = "Seconds in which nothing could be sent to the group, because this peer had fallen behind."
        yield "seqcast_send_wait_seconds", "counter", text, peer, row["waited"] / 1e9
        if rank == gauges["rank"]:
            continue
        text = "Packets of this member that the peer has not put in order yet."
        yield "seqcast_lag_packets", "gauge", text, peer, float(max(0, gauges["last"] - row["delivered"]))
        text = "Seconds since the first of the packets that the peer has not put in order yet was sent."
        yield "seqcast_lag_seconds", "gauge", text, peer, row["lag_ns"] / 1e9
        if row["path_bytes"]:
            text = "Bytes of the largest packet that reaches the peer whole."
            yield "seqcast_path_bytes", "gauge", text, peer, float(row["path_bytes"])
        text = "Packets of this member that the peer's application has not taken yet."
        yield "seqcast_untaken_packets", "gauge", text, peer, float(max(0, gauges["last"] - row["consumed"]))
        if row["rtt"]:
            text = "Seconds of a round trip to the peer by heartbeats, smoothed."
            yield "seqcast_rtt_seconds", "gauge", text, peer, row["rtt"] / 1e9
        text = "Seconds since the peer was heard."
        yield "seqcast_silence_seconds", "gauge", text, peer, _since(board.read_ns, row["heard"])
        text = "How the peer is heard: 2 as the transport provides, 1 by unicast instead of multicast, 0 not."
        if (how := way(board, gauges["rank"], rank)) != "?":
            only = how == "u" and board.about["transport"] == "multicast"  # as the findings have it
            yield "seqcast_hears", "gauge", text, peer, 0.0 if how == "." else 1.0 if only else 2.0
        text = "Seconds for which senders of this member have waited for the peer."
        held = _since(board.read_ns, gauges["held_since"]) if gauges["held_by"] == row["id"] else 0.0
        yield "seqcast_waits_for_seconds", "gauge", text, peer, held


def _since(now: int, then: int) -> float:
    return max(0, now - then) / 1e9 if then else 0.0


def text_of(found: Sequence[Family]) -> str:
    """The metrics in Prometheus' text format."""
    lines = []
    for family in found:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        lines += [f"# HELP {name} {_escaped(family.help)}", f"# TYPE {name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(f'{key}="{_escaped(value, quotes=True)}"' for key, value in sample.labels.items())
            lines.append(f"{family.name}{sample.suffix}{{{labels}}} {sample.value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


class Collector:
    """Gives the metrics of a group to a registry of ``prometheus_client``: ``REGISTRY.register(Collector(group))``.

    Args:
        group: an open group with ``board=True``.

    Raises:
        UsageError: the group has no board: ``board=False``, or no place was found (the log says why).
    """

    def __init__(self, group: Group) -> None:
        if group.board is None:
            raise UsageError("the group has no board to read metrics from: join with board=True, and see its log")
        self._group = weakref.ref(group)  # a group that only a registry knows leaves by itself

    def collect(self) -> Iterator[Any]:
        """A registry calls this for each scrape; nothing after the group was left."""
        from prometheus_client.core import Metric

        group = self._group()
        path = group.board if group is not None else None  # another one after a rejoin
        try:
            found = families([read(path)]) if path is not None else []
        except OSError:
            return
        for family in found:
            metric = Metric(family.name, family.help, family.kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, sample.labels, sample.value)
            yield metric
