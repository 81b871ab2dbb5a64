"""The audit: proves or refutes the guarantees from members' journals, on Spark.

Two formulations, each for what it is best at: one task a segment finds what a journal tells of itself (`segments`,
`members`), one aggregate over all rows finds where members differ (`fingerprints`, `compare`), and only the buckets in
which they differ are compared row by row, so that a verdict is never that of a hash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal, Segment, find
from seqcast.journal.schema import JournalError, signed
from seqcast.spark import compare, members
from seqcast.spark.fingerprints import (
    EVERYTHING,
    Place,
    bucket_rows,
    find_messages,
    find_positions,
    fingerprints,
    inside,
    journal_rows,
    part_fingerprints,
    slices_of,
)
from seqcast.spark.segments import Summary, summarize
from seqcast.spark.verdicts import Audit, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seqcast.spark.compare import Differing, Groups

PAIRS_EXAMINED = 8
BUCKETS_EXAMINED = 2
"""Pairs of members, and buckets of each, that are compared row by row; the fingerprints tell that others differ too."""


def audit(
    spark: SparkSession,
    paths: str | Path | Sequence[str | Path],
    *,
    payloads: bool = True,
    tell: Callable[[str], None] = lambda stage: None,
) -> Audit:
    """Checks all guarantees that journals can show, of each cluster by itself.

    Args:
        paths: directories, each a member's journal or one that holds members' journals.
        payloads: whether kept payloads are read and hashed again; the hashes are compared in any case.
        tell: called with what is being done, stage by stage.

    Raises:
        JournalError: no journal there, two of one member, or a segment that cannot be read.
        UsageError: the journals hold no messages.
    """
    return audit_journals(spark, journals_of(paths), payloads=payloads, tell=tell)


def journals_of(paths: str | Path | Sequence[str | Path]) -> list[Journal]:
    """The journals to be audited.

    Raises:
        JournalError, UsageError: as `audit`.
    """
    journals = find([paths] if isinstance(paths, (str, Path)) else paths)
    if not any(journal.segments for journal in journals):
        raise UsageError("the journals hold no messages: nothing was delivered, or nothing was written yet")
    return journals


def audit_journals(
    spark: SparkSession,
    journals: Sequence[Journal],
    *,
    payloads: bool = True,
    tell: Callable[[str], None] = lambda stage: None,
) -> Audit:
    """As `audit`, of journals that were found already."""
    reports = []
    clusters = sorted({journal.cluster for journal in journals})
    for cluster in clusters:
        own = [journal for journal in journals if journal.cluster == cluster]

        def say(stage: str, cluster: str = cluster) -> None:
            tell(f"{cluster}: {stage}" if len(clusters) > 1 else stage)

        report = check_cluster(spark, own, payloads=payloads, tell=say)
        _check_foreign(own, [journal for journal in journals if journal.cluster != cluster], report)
        reports.append(report)
    return Audit(tuple(reports))


def check_cluster(
    spark: SparkSession,
    journals: Sequence[Journal],
    *,
    payloads: bool = True,
    tell: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Checks all guarantees among the journals of one cluster; see `audit`.

    Raises:
        JournalError: two journals of one member, or a segment that cannot be read.
    """
    begin = time.monotonic()
    owners: dict[int, Journal] = {}
    for journal in journals:
        if (other := owners.setdefault(journal.member.id, journal)) is not journal:
            raise JournalError(f"{other.path} and {journal.path} are journals of the same member: give one of them")
    names = members.Names(journals)
    tell(f"reading {sum(len(journal.segments) for journal in journals)} segments of {len(journals)} journals")
    summaries = _summaries(spark, journals, payloads)
    report = Report(
        cluster=journals[0].cluster if journals else "",
        journals=len(journals),
        rows=sum(summary.rows for _, summary in summaries),
        torn=sum(journal.torn for journal in journals),
    )
    _note_absent(journals, report)
    _check_views(journals, names, report)
    rows = journal_rows(spark, journals)
    doubts = []
    for number, journal in enumerate(journals):
        own = [summary for at, summary in summaries if at == number]
        doubts += [(number, doubt) for doubt in members.stitch(number, journal, own, names, report)]
    tell(f"judging {report.rows} rows: what each member was delivered by itself")
    _judge(rows, doubts, names, report)
    tell(f"judging {report.rows} rows: members beside each other")
    groups = fingerprints(rows)
    _check_senders(journals, groups, names, report)
    kept = compare.Kept(journals, summaries)
    compared = _compare(rows, journals, groups, kept, names, report)
    _say_compared(journals, [summary for _, summary in summaries], compared, report)
    report.seconds = time.monotonic() - begin
    return report


def _summaries(spark: SparkSession, journals: Sequence[Journal], payloads: bool) -> list[tuple[int, Summary]]:
    """Each segment by itself (formulation F6); where they are many, several in one task."""
    tasks = [
        (number, segment, payloads and journal.payload == "full")
        for number, journal in enumerate(journals)
        for segment in journal.segments
    ]
    if not tasks:
        return []
    slices = slices_of(spark, [segment for _, segment, _ in tasks])
    summaries = []
    for number, found in spark.sparkContext.parallelize(tasks, slices).map(_summarize).collect():
        if isinstance(found, str):
            raise JournalError(found)
        summaries.append((number, found))
    return summaries


def _summarize(task: tuple[int, Segment, bool]) -> tuple[int, Summary | str]:
    journal, segment, with_payload = task
    try:
        return journal, summarize(segment, with_payload)
    except JournalError as error:  # as text: Spark would bury it in the traceback of a task
        return journal, str(error)


def _judge(rows: DataFrame, doubts: Sequence[tuple[int, members.Doubt]], names: members.Names, report: Report) -> None:
    keys = [(number, *doubt.wanted) for number, doubt in doubts if doubt.kind.startswith("key")]
    seqnos = [(number, *doubt.wanted) for number, doubt in doubts if doubt.kind.startswith("seqno")]
    messages, positions = find_messages(rows, keys), find_positions(rows, seqnos)
    for number in sorted({number for number, _ in doubts}):
        own = sorted((doubt for at, doubt in doubts if at == number), key=lambda doubt: doubt.idx)
        members.judge(number, own, messages, positions, names, report)


def _check_views(journals: Sequence[Journal], names: members.Names, report: Report) -> None:
    """View agreement: one view id is one view of one cluster, and ids grow at each member."""
    first: dict[int, int] = {}
    for number, journal in enumerate(journals):
        for view in journal.views:
            reference = journals[first.setdefault(view.tag, number)]
            same = next(other for other in reference.views if other.tag == view.tag)
            if (same.members, same.order, same.mechanism, same.sequencer) != (
                view.members,
                view.order,
                view.mechanism,
                view.sequencer,
            ):
                report.violation(
                    "views",
                    f"{names.view(signed(view.tag))} has other members, another order or another sequencer at "
                    f"{names.journal(number)} than at {names.member(signed(reference.member.id))}",
                )
            if all(member.id != journal.member.id for member in view.members):
                report.violation(
                    "views", f"{names.journal(number)} installed {names.view(signed(view.tag))}, and is not in it"
                )
        for one, other in pairwise(journal.views):
            if other.view_id.counter <= one.view_id.counter:
                report.violation(
                    "views",
                    f"{names.journal(number)} installed {names.view(signed(other.tag))} after "
                    f"{names.view(signed(one.tag))}",
                )
    _check_predecessors(journals, names, report)


def _check_foreign(journals: Sequence[Journal], others: Sequence[Journal], report: Report) -> None:
    """A view is one of one cluster."""
    elsewhere = {view.tag: other for other in reversed(others) for view in other.views}
    names = members.Names([*journals, *others])
    for number, journal in enumerate(journals):
        for view in journal.views:
            if other := elsewhere.get(view.tag):
                report.violation(
                    "views",
                    f"{names.view(signed(view.tag))} is one of cluster {journal.cluster!r} at {names.journal(number)}, "
                    f"and of {other.cluster!r} at {names.member(signed(other.member.id))}",
                )


def _check_predecessors(journals: Sequence[Journal], names: members.Names, report: Report) -> None:
    """A view closes one view, the same at all its members, or, where it merges several, that of a member's own
    subgroup. A member whose journal has another view before it has skipped one, or lost it."""
    closes: dict[int, tuple[int, int]] = {}  # view -> the one that it closes, and whose journal says so
    for number, journal in enumerate(journals):
        counters = [view.view_id.counter for view in journal.views]
        if counters != sorted(set(counters)):
            continue  # told already
        for one, other in pairwise(journal.views):
            if other.closes != one.tag:
                report.violation(
                    "views",
                    f"{names.journal(number)} went from {names.view(signed(one.tag))} to "
                    f"{names.view(signed(other.tag))}, and recorded that it closed {names.view(signed(other.closes))}: "
                    "it skipped a view",
                )
                continue
            own = next((tag for tag, ids in other.subgroups if journal.member.id in ids), None)
            reference_tag, witness = (own, -1) if other.subgroups else closes.setdefault(other.tag, (one.tag, number))
            if reference_tag != one.tag:
                follows = f"follows {names.view(signed(reference_tag))}" if reference_tag else "merged others"
                where = f" at {names.journal(witness)}" if witness >= 0 else ""
                report.violation(
                    "views",
                    f"{names.journal(number)} went from {names.view(signed(one.tag))} to "
                    f"{names.view(signed(other.tag))}, which {follows}{where}: it skipped a view",
                )


def _check_senders(journals: Sequence[Journal], groups: Groups, names: members.Names, report: Report) -> None:
    inside = {
        (signed(view.tag), signed(member.id))
        for journal in journals
        for view in journal.views
        for member in view.members
    }
    known = {tag for tag, _ in inside}
    for (number, tag, sender, _), group in sorted(groups.items()):
        if tag in known and (tag, sender) not in inside:
            report.violation(
                "sending view",
                f"{names.journal(number)} delivered {names.message(sender, group.highest_key)} in {names.view(tag)}, "
                "of which its sender is no member",
                group.rows,
            )


def _compare(
    rows: DataFrame,
    journals: Sequence[Journal],
    groups: Groups,
    kept: compare.Kept,
    names: members.Names,
    report: Report,
) -> list[compare.Pair]:
    """Members against each other, by fingerprint; then row by row where these differ (formulation F4)."""
    buckets: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for number, tag, sender, bucket in groups:
        buckets.setdefault((number, tag), set()).add((sender, bucket))
    pairs = compare.pairs(journals, report, names)
    limits = {pair: compare.Limits(pair, groups, buckets, kept) for pair in pairs}
    differ = [
        found
        for pair in pairs
        for found in compare.differing(
            pair,
            limits[pair],
            groups,
            buckets.get((pair.reference, pair.tag), set()) | buckets.get((pair.other, pair.tag), set()),
        )
    ]
    differ = _beyond_prefixes(rows, differ)
    examined = _first_buckets(differ)
    wanted = [
        (number, pair.tag, bucket)
        for pair, few in examined.items()
        for bucket in few
        for number in (pair.reference, pair.other)
    ]
    content = bucket_rows(rows, wanted)
    alone: list[compare.Missing] = []
    for pair, few in examined.items():
        one, other = (
            [row for row in content.get((number, pair.tag), []) if compare.bucket_of(pair, row[0]) in few]
            for number in (pair.reference, pair.other)
        )
        alone += compare.examine(pair, limits[pair], one, other, names, report)
    elsewhere = find_messages(rows, [(missing.lacks, missing.place.sender, missing.place.key) for missing in alone])
    for missing in alone:
        places: list[Place] = elsewhere.get((missing.lacks, missing.place.sender, missing.place.key), [])
        compare.judge_missing(missing, places, names, report)
    left = len({(found.pair, found.bucket) for found in differ}) - sum(len(few) for few in examined.values())
    if differ and report.holds:  # a difference that nothing explains must not pass
        pair = differ[0].pair
        report.violation(
            "agreement",
            f"{names.journal(pair.reference)} and {names.journal(pair.other)} differ in {names.view(pair.tag)}, bucket "
            f"{differ[0].bucket}",
        )
    if left:
        report.notes.append(f"{left} more buckets differ between members; they were not compared row by row")
    report.unexamined = left
    return pairs


def _beyond_prefixes(rows: DataFrame, differ: Sequence[Differing]) -> list[Differing]:
    """Without the buckets of which a part is compared, and that are equal there."""
    wanted = {
        (number, *_part(found)) for found in differ if not found.whole
        for number in (found.pair.reference, found.pair.other)
    }  # fmt: skip
    parts = part_fingerprints(rows, wanted)

    def same(found: Differing) -> bool:
        one, other = (parts.get((number, *_part(found))) for number in (found.pair.reference, found.pair.other))
        if one is None or other is None:
            return one is other
        return (one.rows, one.fingerprint) == (other.rows, other.fingerprint)

    return [found for found in differ if found.whole or not same(found)]


def _part(found: Differing) -> tuple[int, int, int, int, int]:
    since, limit = found.since or 0, EVERYTHING if found.limit is None else found.limit
    if not found.pair.ordered:
        since, limit = inside(since), limit if limit == EVERYTHING else inside(limit)
    return found.pair.tag, found.sender, found.bucket, since, limit


def _first_buckets(differ: Sequence[Differing]) -> dict[compare.Pair, list[int]]:
    chosen: dict[compare.Pair, list[int]] = {}
    for found in differ:
        if found.pair not in chosen and len(chosen) == PAIRS_EXAMINED:
            continue
        few = chosen.setdefault(found.pair, [])
        if found.bucket not in few and len(few) < BUCKETS_EXAMINED:
            few.append(found.bucket)
    return chosen


def _note_absent(journals: Sequence[Journal], report: Report) -> None:
    there = {journal.member.id for journal in journals}
    absent = {
        member.name
        for journal in journals
        for view in journal.views
        for member in view.members
        if member.id not in there
    }
    if absent:
        report.notes.append(f"no journal of {', '.join(sorted(absent))}: they are not compared")
    expired = sorted(journal.member.name for journal in journals if journal.first_idx)
    if expired:
        report.notes.append(f"what retention removed is not checked: the first rows of {', '.join(expired)}")
    crashed = sorted(journal.member.name for journal in journals if journal.closed is None)
    if crashed:
        report.notes.append(f"without a closing record (crashed, or still writing): {', '.join(crashed)}")


def _say_compared(
    journals: Sequence[Journal], summaries: Sequence[Summary], pairs: Sequence[compare.Pair], report: Report
) -> None:
    rows, payloads = f"{report.rows:,} rows", sum(summary.payloads for summary in summaries)
    views = len({view.tag for journal in journals for view in journal.views})
    strict, ordered = [pair for pair in pairs if pair.strict], [pair for pair in pairs if pair.ordered]
    between = f"{len(strict)} pairs of members with the same successor view, {len(pairs) - len(strict)} as prefixes"
    verdicts = report.verdicts
    verdicts["views"].compared = f"{views} views at {len(journals)} members" if views else ""
    for check in ("fifo", "duplicates", "gaps", "sending view"):
        verdicts[check].compared = rows if report.rows else ""
    if pairs and report.rows:
        verdicts["agreement"].compared = between
        verdicts["integrity"].compared = f"{len(pairs)} pairs of members" + (
            f", {payloads:,} payloads" * bool(payloads)
        )
    elif payloads:
        verdicts["integrity"].compared = f"{payloads:,} payloads"
    if ordered and report.rows:
        verdicts["total order"].compared = f"{rows}, {len(ordered)} pairs of members"
    if report.unexamined:
        for check in ("agreement", "integrity", "total order", "sending view"):
            verdicts[check].compared = verdicts[check].compared if verdicts[check].violations else ""
