"""Causal order: every member delivers a message after all those that its sender had delivered before it.

The sender's own journal has those. A sender queues a packet of its own for its application in the step that closes the
packet and records its causes, so the rows before the packet are its causes, by no clock.

As each sender's messages are in order, the last message of each sender before a message is all that has to be known: a
vector. Where other messages come before one of the sender's own in its journal, the vector of every other member at
that message must be at least as high. A message that the other member never had counts, too, unless a cut left it out:
members that close a view deliver the messages that a survivor has, and do not wait for the rest. The vectors, one for
each run of messages of a sender rather than for each message, are the only rows of an audit that are shuffled: to one
task for each view, sender and window of its packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seqcast.journal.reader import Journal
from seqcast.journal.schema import JournalError, signed
from seqcast.journal.views import Installed
from seqcast.spark import worker
from seqcast.spark.lookup import Lookup, slices_of
from seqcast.spark.members import Names, order_of
from seqcast.spark.segments import FIFO_SHIFT, Int64s, Run, Summary, run_batches
from seqcast.spark.verdicts import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seqcast.spark.compare import Groups

COLUMNS = ["view_tag", "sender", "seqno", "index"]
WINDOW_SHIFT = 10 + 16
"""A window is 1,024 packets of a sender: vectors of one window, from all members, are in memory together."""
BEYOND = 1 << 62
"""The place of messages further behind than any can be, in a falsified journal."""
EXAMPLES = 4
"""At most this many suspicions are looked up in each part of the result."""

Place = tuple[int, int, int]
"""View tag, rank of a sender, window of its packets; (0, -1, 0): of the errors."""
Piece = tuple[int, Any, Any]
"""(journal, places of messages, a vector for each), or (journal, error, None)."""
ERRORS: Place = (0, -1, 0)


@dataclass(frozen=True, slots=True)
class View:
    """A view with causal order. A message of a sender has a place: its seqno less the sender's base, index, plus one;
    so 0 is before its first one.

    Args:
        senders: ids by rank.
        bases: by rank: no message of the sender has a lower seqno.
        own: by rank: the number of the member's own journal, -1: there is none, or the member's messages are not there.
        last: journal -> by rank, the place of the last message present; 0: none.
        due: journal -> by rank, up to which place a cause must be there: a message that a member that closed the view
            never had, no survivor had (or agreement is broken); for another one, which saw no cut, these set the limit.
        cut: journals of which retention removed the beginning of the view.
        lacking: journals with a gap in the view: the missing rows may have been in time.
    """

    senders: tuple[int, ...]
    bases: tuple[int, ...]
    own: tuple[int, ...]
    last: dict[int, tuple[int, ...]]
    due: dict[int, tuple[int, ...]]
    cut: frozenset[int]
    lacking: frozenset[int]

    def place(self, rank: int, key: int) -> int:
        return min(key - (self.bases[rank] << 16) + 1, BEYOND)

    def key(self, rank: int, place: int) -> int:
        return place - 1 + (self.bases[rank] << 16)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """By the vectors, a journal has ``message`` before ``cause``, which ``owner`` had delivered before sending
    ``message``."""

    tag: int
    owner: int
    journal: int
    message: tuple[int, int]
    cause: tuple[int, int]
    never: bool
    """The journal has nothing of the cause's sender from there on."""


def check(
    spark: SparkSession,
    lookup: Lookup,
    journals: Sequence[Journal],
    summaries: Sequence[tuple[int, Summary]],
    groups: Groups,
    names: Names,
    report: Report,
    tell: Callable[[str], None],
) -> int:
    """Compares members in all views with causal order; returns the number of comparisons.

    Raises:
        JournalError: a segment cannot be read.
    """
    views = _views(journals, groups)
    tasks = list(_tasks(summaries, views))
    if not tasks:
        return 0
    tell(f"judging {report.rows} rows: causes before their effects")
    given = list(lookup.of_runs(tasks))
    slices = slices_of(spark, [run for _, run, _ in given])
    pieces = spark.sparkContext.parallelize(given, slices).flatMap(_vectors)
    compared, wrong, suspicions = 0, 0, []
    for error, *found in pieces.groupByKey(slices).mapPartitions(_Compare(views)).collect():
        if error:
            raise JournalError(error)
        compared, wrong = compared + found[0], wrong + found[1]
        suspicions += found[2]
    return compared if _judge(lookup, suspicions, wrong, names, report) else 0


def _views(journals: Sequence[Journal], groups: Groups) -> dict[int, View]:
    holders: dict[int, dict[int, Installed]] = {}
    for number, journal in enumerate(journals):
        for installed in journal.views:
            if order_of(installed).causal:
                holders.setdefault(signed(installed.tag), {})[number] = installed
    lowest: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int, int], int] = {}
    for (number, tag, sender, bucket), group in groups.items():
        if tag in holders:
            first = bucket << FIFO_SHIFT - 16
            lowest[tag, sender] = min(lowest.get((tag, sender), first), first)
            last[number, tag, sender] = max(last.get((number, tag, sender), 0), group.highest_key)
    views: dict[int, View] = {}
    for tag, at in holders.items():
        senders = tuple(signed(member.id) for member in next(iter(at.values())).members)
        bases = tuple(lowest.get((tag, sender), 0) for sender in senders)
        own = {signed(journals[number].member.id): number for number in at if journals[number].deliver_own}
        cut = frozenset(number for number, each in at.items() if each.idx < journals[number].first_idx)
        lacking = frozenset(
            number
            for number, each in at.items()
            if journals[number].gap_in(each.idx, each.end.idx if each.end else BEYOND)
        )
        view = View(senders, bases, tuple(own.get(sender, -1) for sender in senders), {}, {}, cut, lacking)
        for number in at:
            keys = [last.get((number, tag, sender), -1) for sender in senders]
            view.last[number] = tuple(view.place(rank, key) if key >= 0 else 0 for rank, key in enumerate(keys))
        closed = [number for number, each in at.items() if each.end and each.end.idx <= journals[number].end_idx]
        for number, last_ones in view.last.items():
            view.due[number] = last_ones if number in closed else _due(journals[number], view, last_ones, closed)
        views[tag] = view
    return {tag: view for tag, view in views.items() if len(view.last) > 1 and max(view.own) >= 0}


def _due(journal: Journal, view: View, last: tuple[int, ...], closed: Sequence[int]) -> tuple[int, ...]:
    """`View.due` of a journal that did not close the view, given those that did."""
    sure = (max([last[rank], *(view.last[each][rank] for each in closed)]) for rank in range(len(last)))
    due = tuple(sure) if closed else (BEYOND,) * len(last)
    own = -1 if journal.deliver_own else signed(journal.member.id)
    return tuple(last[rank] if sender == own else due[rank] for rank, sender in enumerate(view.senders))


Given = dict[int, tuple[View, tuple[int, ...]]]
"""View tag -> the view, and the vector before the first row of a run of segments."""


def _tasks(summaries: Sequence[tuple[int, Summary]], views: dict[int, View]) -> Iterator[tuple[int, int, Given]]:
    """(journal, number of the first segment of a run, the reader for the run)."""
    highest: dict[tuple[int, int, int], int] = {}
    for number, summary in sorted(summaries, key=lambda pair: (pair[0], pair[1].number)):
        given = {
            run.tag: (view, tuple(highest.get((number, run.tag, sender), 0) for sender in view.senders))
            for run in summary.views
            if (view := views.get(run.tag)) and number in view.last
        }
        if given:
            yield number, summary.number, given
        for (tag, sender, _), group in summary.groups.items():
            if (view := views.get(tag)) and sender in view.senders:
                place = view.place(view.senders.index(sender), group.highest_key)
                highest[number, tag, sender] = max(highest.get((number, tag, sender), 0), place)


def _judge(lookup: Lookup, suspicions: Sequence[Suspicion], wrong: int, names: Names, report: Report) -> bool:
    """Reports the suspicions that rows bear out. Others, of a journal that lacks or repeats messages, are for other
    checks to name; False: there are no others."""
    wanted = {
        (at, *message)
        for each in suspicions
        for at in (each.owner, each.journal)
        for message in (each.message, each.cause)
    }
    found = lookup.find_messages(wanted)

    def row(journal: int, message: tuple[int, int], tag: int) -> int:
        return next((place.idx for place in found.get((journal, *message), []) if place.tag == tag), -1)

    borne_out = 0
    for each in sorted(suspicions, key=lambda each: (each.journal, row(each.journal, each.message, each.tag))):
        effect, cause = (row(each.journal, message, each.tag) for message in (each.message, each.cause))
        sent, known = (row(each.owner, message, each.tag) for message in (each.message, each.cause))
        if not (0 <= effect and (each.never or effect < cause) and 0 <= known < sent):
            continue
        message, before = names.message(*each.message), names.message(*each.cause)
        how = f"without {before}" if each.never else f"before {before}"
        rows = f"row {effect}" if each.never else f"rows {effect} and {cause}"
        report.violation(
            "causal",
            f"{names.journal(each.journal)} delivered {message} {how} in {names.view(each.tag)} ({rows}), and "
            f"{names.journal(each.owner)} had delivered {before} when it sent {message} "
            f"(rows {known} and {sent})",
            0 if borne_out else wrong,
        )
        borne_out += 1
    return bool(borne_out) or not suspicions


# ---- in a task


def _vectors(task: tuple[int, Run, Given]) -> Iterator[tuple[Place, Piece]]:
    """For each sender whose own journal is there: where a run of its messages begins, and the vector there."""
    worker.settle()
    number, run, given = task
    try:
        seen = {tag: np.array(before) for tag, (_, before) in given.items()}
        for batch in run_batches(run, COLUMNS):
            tags, *columns = (batch[name].to_numpy() for name in COLUMNS)
            ends = [0, *(np.flatnonzero(np.diff(tags)) + 1).tolist(), len(tags)]
            for first, end in pairwise(ends):
                if first < end and (tag := int(tags[first])) in given:
                    rows = [column[first:end] for column in columns]
                    yield from _pieces(number, tag, given[tag][0], seen[tag], *rows)
    except JournalError as error:
        yield ERRORS, (number, str(error), None)


def _pieces(
    number: int, tag: int, view: View, seen: Int64s, sender: Int64s, seqno: Int64s, index: Int64s
) -> Iterator[tuple[Place, Piece]]:
    """The pieces of consecutive rows of a view. ``seen``: the vector before them, and then behind them."""
    ids = np.array(view.senders)
    by_id = np.argsort(ids)
    ranks = by_id[np.minimum(np.searchsorted(ids[by_id], sender), len(ids) - 1)]
    known = ids[ranks] == sender
    ranks = ranks[known]
    if not len(ranks):
        return
    places = (seqno[known] - np.array(view.bases)[ranks] << 16 | index[known]) + 1
    windows = places - 1 >> WINDOW_SHIFT
    starts = np.flatnonzero((np.diff(ranks, prepend=-1) != 0) | (np.diff(windows, prepend=-1) != 0))
    after = np.zeros((len(starts) + 1, len(ids)), np.int64)
    after[0] = seen
    after[np.arange(1, len(starts) + 1), ranks[starts]] = np.maximum.reduceat(places, starts)
    np.maximum.accumulate(after, axis=0, out=after)
    seen[:] = after[-1]
    vectors, ranks, windows, places = after[:-1], ranks[starts], windows[starts], places[starts]
    order = np.lexsort((windows, ranks))
    ends = np.flatnonzero(np.diff(ranks[order]) | np.diff(windows[order])) + 1
    for at in np.split(order, ends):
        rank = int(ranks[at[0]])
        if view.own[rank] >= 0:
            yield (tag, rank, int(windows[at[0]])), (number, places[at], vectors[at])


@dataclass(frozen=True, slots=True)
class _Compare:
    """Compares the vectors of members, in the tasks that have those of a window together."""

    views: dict[int, View]

    def __call__(self, given: Iterable[tuple[Place, Iterable[Piece]]]) -> Iterator[tuple[Any, ...]]:
        compared, wrong = 0, 0
        suspicions: list[Suspicion] = []
        for (tag, rank, _), pieces in given:
            if rank < 0:
                yield (next(iter(pieces))[1],)
                continue
            more, violations = self._window(tag, rank, list(pieces), suspicions)
            compared, wrong = compared + more, wrong + violations
        yield "", compared, wrong, suspicions

    def _window(self, tag: int, rank: int, pieces: Sequence[Piece], suspicions: list[Suspicion]) -> tuple[int, int]:
        view, compared, wrong = self.views[tag], 0, 0
        owner = view.own[rank]
        # If the sender's own messages are out of order, their order of sending is unknown.
        own = [(places[ok], vectors[ok]) for number, places, vectors in pieces if number == owner
               for ok in [places == np.maximum.accumulate(places)]]  # fmt: skip
        if not own:
            return 0, 0
        messages, causes = (np.concatenate(part) for part in zip(*own, strict=True))
        for number in sorted({number for number, _, _ in pieces} - {owner} - view.lacking):
            places, vectors = (np.concatenate([piece[at] for piece in pieces if piece[0] == number]) for at in (1, 2))
            order = np.argsort(places, kind="stable")
            at = np.searchsorted(places[order], messages, side="right") - 1
            has = (at >= 0) & (messages <= view.last[number][rank])
            there = vectors[order[at[has]]]
            needed = np.minimum(causes[has], np.array(view.due[number]))
            needed[:, rank] = 0
            late = there < needed
            if number in view.cut:
                late &= there > 0  # the rows before are unknown
            rows = np.flatnonzero(late.any(axis=1))
            compared, wrong = compared + len(there), wrong + len(rows)
            for row in rows[: max(0, EXAMPLES - len(suspicions))].tolist():
                of = int(np.flatnonzero(late[row])[0])
                message = view.senders[rank], view.key(rank, int(messages[has][row]))
                cause = view.senders[of], view.key(of, int(needed[row, of]))
                never = int(needed[row, of]) > view.last[number][of]
                suspicions.append(Suspicion(tag, owner, number, message, cause, never))
        return compared, wrong
