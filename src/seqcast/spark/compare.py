"""Comparing members: which pairs may be compared, and the meaning of a bucket in which they differ.

Members that closed a view *for the same successor* delivered the same messages in it: those that installed it, and
those that left by it. Less is promised for a member that crashed or was cut off:

- if one sequencer stamped the view, its stream is the same for all: the deliveries of such a member are a prefix,
  and the sequencer's packets are in the cut if the sequencer survived; if order is per sender, the same holds for
  each sender's stream;
- in other total orders such a member delivered the same as the others, as far as any, up to the *stable point* of the
  closed view: later messages are transitional, and may be other ones there;
- if delivery is safe, members that closed the view delivered every non-transitional message that any member
  delivered, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seqcast.journal.reader import Journal
from seqcast.journal.schema import signed
from seqcast.journal.views import Installed
from seqcast.spark.lookup import Content, Place
from seqcast.spark.members import Names, order_of
from seqcast.spark.segments import FIFO_SHIFT, ORDERED_SHIFT, Group, Summary
from seqcast.spark.verdicts import Report

NOTHING = 1 << 80
"""Beyond every position: nothing of the view is kept."""
EXAMPLES = 16
"""At most this many messages that only one of a pair has in a bucket are looked up elsewhere."""

Groups = dict[tuple[int, int, int, int], Group]
"""By (journal, view tag, sender, bucket); ids and tags as signed integers. Their number grows with members, views,
senders and buckets, not with rows."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two journals and a view in which the second is compared with the first.

    Args:
        strict: both share the successor; otherwise ``other`` must be a prefix.
        survived: streams (senders; the sequencer's id if one orders) that are in the cut of ``reference`` to their
            last message, so that ``other`` can have nothing beyond.
        stable: up to this global seqno a prefix is promised, and only while neither has transitional messages: a member
            that crashed may have no record of how the view was closed. None: no such bound.
        safe: journals whose non-transitional messages the other one must have.
    """

    tag: int
    reference: int
    other: int
    strict: bool
    ordered: bool
    senders: frozenset[int]
    survived: frozenset[int]
    stable: int | None = None
    safe: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Missing:
    """A message that one journal of a pair has in a bucket and the other lacks."""

    pair: Pair
    has: int
    lacks: int
    place: Place


def groups_of(summaries: Iterable[tuple[int, Summary]]) -> Groups:
    """The groups of all journals, from the summaries of their segments."""
    groups: Groups = {}
    for number, summary in summaries:
        for key, group in summary.groups.items():
            if (before := groups.get((number, *key))) is None:
                groups[number, *key] = replace(group)  # later rows are not added to the summary's own
            else:
                before.add(group)
    return groups


def successors(journal: Journal) -> dict[int, int | None]:
    """View tag -> tag of the next view, which the member installed or left by; None if the journal ends before.

    A crash of the machine may keep the record of a view but not all rows before it; then the view before is a prefix.
    """
    if not journal.views:  # the journal ended before the first view
        return {}
    following = [
        signed(view.tag) if view.idx <= journal.end_idx or journal.closed is not None else None
        for view in journal.views[1:]
    ]
    end = journal.views[-1].end
    following.append(signed(end.successor) if end is not None and end.successor else None)
    return dict(zip((signed(view.tag) for view in journal.views), following, strict=True))


def pairs(journals: Sequence[Journal], report: Report, names: Names) -> list[Pair]:
    """The journals that are compared, by view."""
    installed: dict[int, dict[int, Installed]] = {}
    for number, journal in enumerate(journals):
        for view in journal.views:
            installed.setdefault(signed(view.tag), {})[number] = view
    following = [successors(journal) for journal in journals]
    found: list[Pair] = []
    for tag, holders in installed.items():
        view = next(iter(holders.values()))
        rank = {member.id: at for at, member in enumerate(view.members)}
        numbers = sorted(holders, key=lambda n: rank.get(journals[n].member.id, 1 << 30))
        classes: dict[int, list[int]] = {}
        for number in numbers:
            if (successor := following[number][tag]) is not None:
                classes.setdefault(successor, []).append(number)
        for one in classes.values():
            together = list(_pairs(journals, holders, tag, one, one, strict=True))
            _check_stable(journals, holders, together, names, report)
            found += together
        if main := _main_class(journals, view, classes):
            others = [number for number in numbers if number not in main]
            found += _pairs(journals, holders, tag, main, others, strict=False)
        else:  # the view is the last of all: each is compared with the one that has the most of it
            numbers.sort(key=lambda n: journals[n].end_idx - holders[n].idx, reverse=True)
            found += _pairs(journals, holders, tag, numbers, numbers, strict=False, went_on=False)
    return found


def _check_stable(
    journals: Sequence[Journal], holders: dict[int, Installed], pairs: Sequence[Pair], names: Names, report: Report
) -> None:
    """Members that closed a view together agree on its transitional messages. (Not if delivery is safe: one member may
    know that all have a message, and another not yet. And the first transitional message may be a member's own, which
    it does not deliver. If their ends differ, one lacks messages, which is reported.)"""
    for pair in pairs:
        one, other = (holders[number].end for number in (pair.reference, pair.other))
        both = [journals[number] for number in (pair.reference, pair.other)]
        if one is None or other is None or any(journal.safe or not journal.deliver_own for journal in both):
            continue
        if pair.ordered and one.global_seqno == other.global_seqno and one.stable != other.stable:
            report.violation(
                "transitional",
                f"{names.view(pair.tag)} is stable up to global seqno {one.stable} at {names.journal(pair.reference)}, "
                f"and up to {other.stable} at {names.journal(pair.other)}",
            )


def _sequencer(view: Installed) -> int:
    """Id of the member whose stream has everyone's messages, 0 if each sender's stream has its own."""
    rank = order_of(view).forwards_to(view.sequencer)
    return view.members[rank].id if 0 <= rank < len(view.members) else 0


def _main_class(journals: Sequence[Journal], view: Installed, classes: dict[int, list[int]]) -> list[int]:
    """The members that continued with the sequencer, otherwise the largest set that continued together."""
    if not classes:
        return []
    with_sequencer = [
        one for one in classes.values() if any(journals[number].member.id == _sequencer(view) for number in one)
    ]
    return with_sequencer[0] if with_sequencer else max(classes.values(), key=len)


def _pairs(
    journals: Sequence[Journal],
    holders: dict[int, Installed],
    tag: int,
    references: Sequence[int],
    others: Sequence[int],
    *,
    strict: bool,
    went_on: bool = True,
) -> Iterator[Pair]:
    """Each of ``others`` with the first reference that delivers a sender's messages: one pair per reference.

    Args:
        holders: the journals that have the view.
        went_on: the references closed the view for the same successor.
    """
    view = holders[references[0]]
    alive = {signed(journals[number].member.id) for number in references} if went_on else set()
    order, sequencer = order_of(view), _sequencer(view)
    survived = alive & {signed(sequencer)} if sequencer else alive
    closed = {n for n in (*references, *others) if (end := holders[n].end) and end.idx <= journals[n].end_idx}
    stable = {number: end.stable for number in closed if (end := holders[number].end)}
    for other in others:
        by_reference: dict[int, set[int]] = {}
        for member in view.members:
            able = [number for number in references if _delivers(journals[number], member.id)]
            if able and able[0] != other and _delivers(journals[other], member.id):
                by_reference.setdefault(able[0], set()).add(signed(member.id))
        for reference, senders in by_reference.items():
            pair = Pair(tag, reference, other, strict, order.total, frozenset(senders), frozenset(survived))
            both = {reference, other}
            if order.total and not order.prefix and not strict:
                bound = min((stable[number] for number in both & closed), default=NOTHING)
                pair = replace(pair, survived=frozenset(), stable=bound)
            if not strict and all(journals[number].safe for number in both):
                pair = replace(pair, safe=frozenset(n for n in both if both - {n} <= closed))
            yield pair


def _delivers(journal: Journal, sender: int) -> bool:
    return journal.deliver_own or journal.member.id != sender


class Kept:
    """Where the comparison starts in a view if one member lacks rows: the first, which retention removed, or some in a
    gap, after the last of which the comparison starts."""

    def __init__(self, journals: Sequence[Journal], summaries: Iterable[tuple[int, Summary]]) -> None:
        self._cut = {
            (number, signed(view.tag)): since
            for number, journal in enumerate(journals)
            for view, end in zip(journal.views, [*(view.idx for view in journal.views[1:]), NOTHING], strict=False)
            if (since := _complete_since(journal, view.idx, end)) > view.idx
        }
        self._first: dict[tuple[int, int], int] = {}
        self._keys: dict[tuple[int, int], int] = {}
        for number, summary in sorted(summaries, key=lambda each: (each[0], each[1].number)):
            if not journals[number].first_idx and not journals[number].gaps:
                continue
            for run in summary.views:
                if run.idx >= self._cut.get((number, run.tag), 0):
                    self._first.setdefault((number, run.tag), run.first)
            last = _complete_since(journals[number], 0, NOTHING)
            for sent in summary.senders:
                if sent.idx >= last:
                    self._keys.setdefault((number, sent.sender), sent.first)

    def since(self, pair: Pair, sender: int) -> int:
        """Lowest global seqno, or key of a sender, that both members of a pair have kept."""
        lowest = 0
        for number in (pair.reference, pair.other):
            if (number, pair.tag) in self._cut:
                first = self._first.get((number, pair.tag)) if pair.ordered else self._keys.get((number, sender))
                lowest = max(lowest, NOTHING if first is None else first)
        return lowest


def _complete_since(journal: Journal, first: int, end: int) -> int:
    """From where on a journal has all rows of those at the positions ``first`` to ``end`` - 1."""
    return max([first, min(journal.first_idx, end), *(gap.end for gap in journal.gaps if gap.idx < end)])


def decided(summaries: Iterable[tuple[int, Summary]]) -> dict[tuple[int, int], int]:
    """(journal, view tag) -> the global seqno up to which nothing that the member delivered is transitional."""
    first: dict[tuple[int, int], int] = {}
    highest: dict[tuple[int, int], int] = {}
    for number, summary in sorted(summaries, key=lambda each: (each[0], each[1].number)):
        for run in summary.views:
            key = number, run.tag
            highest[key] = max(highest.get(key, 0), run.highest)
            if run.transitional:
                first.setdefault(key, run.transitional)
    return {key: first[key] - 1 if key in first else end for key, end in highest.items()}


class Limits:
    """Up to where a pair is compared: global seqno of the view, or key of a sender's messages.

    Args:
        kept: the rows that retention kept.
        decided: see `decided`.
    """

    def __init__(
        self,
        pair: Pair,
        groups: Groups,
        buckets: dict[tuple[int, int], set[tuple[int, int]]],
        kept: Kept,
        decided: dict[tuple[int, int], int],
    ) -> None:
        self._pair = pair
        self._kept = kept
        self._limits: dict[int, int] = {}
        if pair.strict:
            return
        highest: dict[tuple[int, int], int] = {}
        due: dict[int, int] = {}  # by stream: messages that both must have, as delivery is safe
        for number in (pair.reference, pair.other):
            for sender, bucket in buckets.get((number, pair.tag), ()):
                stream, group = (0 if pair.ordered else sender), groups[number, pair.tag, sender, bucket]
                mark = group.highest if pair.ordered else group.highest_key
                highest[number, stream] = max(highest.get((number, stream), 0), mark)
                if number in pair.safe:
                    sure = decided.get((number, pair.tag), 0) if pair.ordered else group.decided_key
                    due[stream] = max(due.get(stream, 0), sure)
        for stream in {stream for _, stream in highest}:
            survived = bool(pair.survived) if pair.ordered else stream in pair.survived
            other = highest.get((pair.other, stream), 0)
            limit = other if survived else min(other, highest.get((pair.reference, stream), 0))
            if pair.stable is not None:
                ends = (decided.get((number, pair.tag), 0) for number in (pair.reference, pair.other))
                limit = min(limit, pair.stable, *ends)
            self._limits[stream] = max(limit, due.get(stream, 0))

    def of(self, sender: int, bucket: int) -> tuple[bool, int | None, int | None]:
        """(whether the bucket is compared, first and last position that is, or None for its ends)."""
        shift = ORDERED_SHIFT if self._pair.ordered else FIFO_SHIFT
        first = self._kept.since(self._pair, sender)
        since = first if bucket << shift < first else None
        if (bucket + 1) << shift <= first:
            return False, None, None
        if self._pair.strict:
            return True, since, None
        limit = self._limits.get(0 if self._pair.ordered else sender, 0)
        return limit >= max(bucket << shift, first, 1), since, limit if limit < (bucket + 1) << shift else None

    def holds(self, place: Place) -> bool:
        if (place.global_seqno if self._pair.ordered else place.key) < self._kept.since(self._pair, place.sender):
            return False
        if self._pair.strict:
            return True
        if self._pair.ordered:
            return place.global_seqno <= self._limits.get(0, 0)
        return place.key <= self._limits.get(place.sender, 0)


@dataclass(frozen=True, slots=True)
class Differing:
    """A bucket in which the fingerprints of a pair differ; they must be equal only from ``since`` to ``limit``."""

    pair: Pair
    sender: int
    bucket: int
    since: int | None
    limit: int | None

    @property
    def whole(self) -> bool:
        """Whether all of the bucket must be equal."""
        return self.since is None and self.limit is None


def differing(pair: Pair, limits: Limits, groups: Groups, buckets: Iterable[tuple[int, int]]) -> Iterator[Differing]:
    """The (sender, bucket) pairs in which both should have the same, but differ as a whole."""
    for sender, bucket in sorted(buckets):
        compares, since, limit = limits.of(sender, bucket)
        if sender not in pair.senders or not compares:
            continue
        one = groups.get((pair.reference, pair.tag, sender, bucket))
        other = groups.get((pair.other, pair.tag, sender, bucket))
        if one is None or other is None or (one.rows, one.fingerprint) != (other.rows, other.fingerprint):
            yield Differing(pair, sender, bucket, since, limit)


def examine(
    pair: Pair,
    limits: Limits,
    reference: Sequence[tuple[Place, Content]],
    other: Sequence[tuple[Place, Content]],
    names: Names,
    report: Report,
) -> list[Missing]:
    """Compares rows of differing buckets; returns the rows that only one has, as they may be elsewhere in the other."""
    one, two = _by_message(pair, limits, reference), _by_message(pair, limits, other)
    who, whom = names.journal(pair.reference), names.journal(pair.other)
    common = [message for message in one if message in two]
    for message in common:
        if one[message][1] != two[message][1]:
            report.violation(
                "integrity",
                f"{names.message(*message)} has one payload at {who} and another at {whom} (hash or length differs), "
                f"in {names.place(one[message][0])}",
            )
    if pair.ordered:
        common.sort(key=lambda message: one[message][0].global_seqno)
        for first, second in pairwise(common):
            if two[first][0].global_seqno >= two[second][0].global_seqno:
                places = [one[first][0].global_seqno, one[second][0].global_seqno]
                swapped = [two[first][0].global_seqno, two[second][0].global_seqno]
                report.violation(
                    "total order",
                    f"{names.view(pair.tag)}: {who} delivered {names.message(*first)} and {names.message(*second)} as "
                    f"global seqnos {places[0]} and {places[1]}, {whom} as {swapped[0]} and {swapped[1]}",
                )
    alone = [Missing(pair, pair.reference, pair.other, one[message][0]) for message in one if message not in two]
    alone += [Missing(pair, pair.other, pair.reference, two[message][0]) for message in two if message not in one]
    return sorted(alone, key=lambda missing: (missing.place.global_seqno, missing.place.key))[:EXAMPLES]


def bucket_of(pair: Pair, place: Place) -> int:
    return place.global_seqno >> ORDERED_SHIFT if pair.ordered else place.key >> FIFO_SHIFT


def _by_message(
    pair: Pair, limits: Limits, rows: Sequence[tuple[Place, Content]]
) -> dict[tuple[int, int], tuple[Place, Content]]:
    found: dict[tuple[int, int], tuple[Place, Content]] = {}
    for place, content in rows:
        if place.sender in pair.senders and limits.holds(place):
            found.setdefault((place.sender, place.key), (place, content))
    return found


def judge_missing(missing: Missing, elsewhere: Sequence[Place], names: Names, report: Report) -> None:
    """Reports a message that one journal lacks in a bucket, given where that journal has it."""
    tag, place = missing.pair.tag, missing.place
    if any(found.tag == tag for found in elsewhere):
        return  # in another bucket of the view: earlier rows moved it
    message = names.message(place.sender, place.key)
    has, lacks = names.journal(missing.has), names.journal(missing.lacks)
    if elsewhere:
        report.violation(
            "sending view",
            f"{message}: {has} delivered it in {names.place(place)}, {lacks} in {names.place(elsewhere[0])}",
        )
        return
    why = "both closed the view for the same one" if missing.pair.strict else f"{lacks} delivered later ones"
    went_on = missing.pair.survived or missing.pair.safe
    if not missing.pair.strict and missing.lacks == missing.pair.reference and went_on:
        why = "the members that continued never delivered it"
    report.violation("agreement", f"{has} delivered {message} in {names.place(place)}, {lacks} did not ({why})")
