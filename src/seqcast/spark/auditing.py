"""The audit: proves or refutes the guarantees from members' journals, on Spark.

One pass over the rows, segment by segment, finds the faults that a journal shows by itself (`segments`, `members`) and
where members differ (`compare`). Only the buckets in which they differ are compared row by row (`lookup`), so no
verdict rests on a hash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from seqcast.errors import UsageError
from seqcast.journal.places import find, same_member
from seqcast.journal.reader import Journal
from seqcast.journal.schema import signed
from seqcast.journal.views import Installed
from seqcast.spark import causal, compare, members
from seqcast.spark.lookup import EVERYTHING, Lookup, Place, inside, run_tasks, runs_of
from seqcast.spark.segments import Summary, summarize
from seqcast.spark.verdicts import Audit, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seqcast.spark.compare import Differing, Groups

PAIRS_EXAMINED = 8
BUCKETS_EXAMINED = 2
"""At most this many pairs of members, and buckets of each, are compared row by row."""


def audit(
    spark: SparkSession,
    paths: str | Path | Sequence[str | Path],
    *,
    payloads: bool = True,
    tell: Callable[[str], None] = lambda stage: None,
) -> Audit:
    """Checks all guarantees that journals can show, for each cluster separately.

    Args:
        paths: directories, each a member's journal or a directory of members' journals.
        payloads: whether kept payloads are read and hashed again; the hashes are compared in any case.
        tell: called with the name of each stage.

    Raises:
        JournalError: no journal there, two of one member, or a segment that cannot be read.
        UsageError: the journals hold neither messages nor views, or the session is one of Spark Connect.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "the audit needs Spark's own API for its tasks, which Spark Connect does not have: give it a session of "
            "seqcast.spark.open_session, or run `seqcast audit --master URL`"
        )
    return audit_journals(spark, journals_of(paths), payloads=payloads, tell=tell)


def journals_of(paths: str | Path | Sequence[str | Path]) -> list[Journal]:
    """The journals to be audited.

    Raises:
        JournalError, UsageError: as `audit`.
    """
    # The driver opens no segment: their number must not matter, and the tasks compare the checksum of each.
    journals = find([paths] if isinstance(paths, (str, Path)) else paths, open_segments=False)
    if not any(journal.segments or journal.views for journal in journals):
        raise UsageError("the journals hold neither messages nor views: nothing was written yet")
    return journals


def audit_journals(
    spark: SparkSession,
    journals: Sequence[Journal],
    *,
    payloads: bool = True,
    tell: Callable[[str], None] = lambda stage: None,
) -> Audit:
    """As `audit`, for journals already found."""
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
            raise same_member(other.path, journal.path)
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
    lookup = Lookup(spark, journals, summaries)
    doubts = []
    for number, journal in enumerate(journals):
        own = [summary for at, summary in summaries if at == number]
        doubts += [(number, doubt) for doubt in members.stitch(number, journal, own, names, report)]
    tell(f"judging {report.rows} rows: the deliveries of each member by itself")
    _judge(lookup, doubts, names, report)
    tell(f"judging {report.rows} rows: members beside each other")
    groups = compare.groups_of(summaries)
    for (number, _, sender, _), group in groups.items():
        pair = names.journal(number), names.member(sender)
        report.delivered[pair] = report.delivered.get(pair, 0) + group.rows
    _check_senders(journals, groups, names, report)
    compared = _compare(lookup, journals, groups, summaries, names, report)
    said = causal.check(spark, lookup, journals, summaries, groups, names, report, tell)
    _say_compared(journals, [summary for _, summary in summaries], compared, said, report)
    report.seconds = time.monotonic() - begin
    return report


def _summaries(spark: SparkSession, journals: Sequence[Journal], payloads: bool) -> list[tuple[int, Summary]]:
    tasks = [
        (number, run, summarize, (payloads and journals[number].payload == "full",))
        for number, run in runs_of(spark, journals)
    ]
    return list(run_tasks(spark, tasks))


def _judge(lookup: Lookup, doubts: Sequence[tuple[int, members.Doubt]], names: members.Names, report: Report) -> None:
    keys = [(number, *doubt.wanted) for number, doubt in doubts if doubt.kind.startswith("key")]
    seqnos = [(number, *doubt.wanted) for number, doubt in doubts if doubt.kind.startswith("seqno")]
    messages, positions = lookup.find_messages(keys), lookup.find_positions(seqnos)
    for number in sorted({number for number, _ in doubts}):
        own = sorted((doubt for at, doubt in doubts if at == number), key=lambda doubt: doubt.idx)
        members.judge(number, own, messages, positions, names, report)


def _check_views(journals: Sequence[Journal], names: members.Names, report: Report) -> None:
    """View agreement: a view id names one view of one cluster, and ids grow at each member."""
    first: dict[int, tuple[int, Installed]] = {}
    for number, journal in enumerate(journals):
        for view in journal.views:
            reference, same = first.setdefault(view.tag, (number, view))
            if (same.members, same.order, same.mechanism, same.sequencer, same.subgroups) != (
                view.members,
                view.order,
                view.mechanism,
                view.sequencer,
                view.subgroups,
            ):
                report.violation(
                    "views",
                    f"{names.view(signed(view.tag))} has other members, another order, another sequencer or other "
                    f"subgroups at {names.journal(number)} than at {names.journal(reference)}",
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
    _check_leavers(journals, names, report)


def _check_leavers(journals: Sequence[Journal], names: members.Names, report: Report) -> None:
    """A member leaves by a view that it is not in, and that closes its last one."""
    known = {view.tag: view for journal in journals for view in journal.views}
    closed = {view.tag: view.closes for journal in journals for view in journal.views if view.closes}
    for number, journal in enumerate(journals):
        last = journal.views[-1] if journal.views else None
        next_view = known.get(last.end.successor) if last is not None and last.end is not None else None
        if last is None or next_view is None:
            continue
        who, by = names.journal(number), names.view(signed(next_view.tag))
        before = {tag for tag, _ in next_view.subgroups} or {closed.get(next_view.tag, last.tag)}
        if any(member.id == journal.member.id for member in next_view.members):
            report.violation(
                "views", f"{who} recorded that it left by {by}, in which it is listed: it skipped that view"
            )
        elif last.tag not in before:
            follows = "merged others" if next_view.subgroups else f"follows {names.view(signed(*before))}"
            report.violation(
                "views",
                f"{who} left {names.view(signed(last.tag))}, as it recorded, by {by}, which {follows}: it skipped a "
                "view",
            )


def _check_foreign(journals: Sequence[Journal], others: Sequence[Journal], report: Report) -> None:
    """A view belongs to one cluster."""
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
    """A view closes one view, the same for every member, or, if several are merged, that of a member's own subgroup.
    If a member's journal has another view before, the member has skipped a view, or the journal has lost one."""
    closes: dict[int, tuple[int, int]] = {}  # view -> the view that it closes, and the journal that says so
    for number, journal in enumerate(journals):
        counters = [view.view_id.counter for view in journal.views]
        if counters != sorted(set(counters)):
            continue  # already reported
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
        if not journals[number].deliver_own and sender == signed(journals[number].member.id):
            report.violation(
                "agreement",
                f"{names.journal(number)} delivered {names.message(sender, group.highest_key)} in {names.view(tag)}, "
                "and it is set to deliver none of its own",
                group.rows,
            )
        if tag in known and (tag, sender) not in inside:
            report.violation(
                "sending view",
                f"{names.journal(number)} delivered {names.message(sender, group.highest_key)} in {names.view(tag)}, "
                "of which its sender is not a member",
                group.rows,
            )


def _compare(
    lookup: Lookup,
    journals: Sequence[Journal],
    groups: Groups,
    summaries: Sequence[tuple[int, Summary]],
    names: members.Names,
    report: Report,
) -> list[compare.Pair]:
    """Compares members by fingerprint, and row by row where fingerprints differ."""
    buckets: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for number, tag, sender, bucket in groups:
        buckets.setdefault((number, tag), set()).add((sender, bucket))
    pairs = compare.pairs(journals, report, names)
    kept, decided = compare.Kept(journals, summaries), compare.decided(summaries)
    limits = {pair: compare.Limits(pair, groups, buckets, kept, decided) for pair in pairs}
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
    differ = _beyond_prefixes(lookup, differ)
    examined = _first_buckets(differ)
    _examine(lookup, examined, limits, names, report)
    left = len({(found.pair, found.bucket) for found in differ}) - sum(len(few) for few in examined.values())
    if differ and report.holds:  # an unexplained difference must not pass
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


def _examine(
    lookup: Lookup,
    examined: dict[compare.Pair, list[int]],
    limits: dict[compare.Pair, compare.Limits],
    names: members.Names,
    report: Report,
) -> None:
    """Compares the examined buckets of pairs row by row."""
    wanted = [
        (number, pair.tag, bucket)
        for pair, few in examined.items()
        for bucket in few
        for number in (pair.reference, pair.other)
    ]
    content = lookup.bucket_rows(wanted)
    alone: list[compare.Missing] = []
    for pair, few in examined.items():
        one, other = (
            [row for row in content.get((number, pair.tag), []) if compare.bucket_of(pair, row[0]) in few]
            for number in (pair.reference, pair.other)
        )
        alone += compare.examine(pair, limits[pair], one, other, names, report)
    elsewhere = lookup.find_messages((missing.lacks, missing.place.sender, missing.place.key) for missing in alone)
    for missing in alone:
        places: list[Place] = elsewhere.get((missing.lacks, missing.place.sender, missing.place.key), [])
        compare.judge_missing(missing, places, names, report)


def _beyond_prefixes(lookup: Lookup, differ: Sequence[Differing]) -> list[Differing]:
    """Drops buckets of which only a part is compared, if that part is equal."""
    wanted = {
        (number, *_part(found)) for found in differ if not found.whole
        for number in (found.pair.reference, found.pair.other)
    }  # fmt: skip
    parts = lookup.parts(wanted)

    def same(found: Differing) -> bool:
        one, other = (parts.get((number, *_part(found))) for number in (found.pair.reference, found.pair.other))
        return one == other

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
        report.notes.append(f"rows that retention removed are not checked: the first of {', '.join(expired)}")
    for journal in journals:
        if journal.gaps:
            rows, whys = sum(gap.rows for gap in journal.gaps), sorted({gap.why for gap in journal.gaps})
            report.notes.append(
                f"{journal.member.name}'s journal lacks {rows:,} rows, in {len(journal.gaps)} gaps, which the disk did "
                f"not take ({'; '.join(whys)}): views with a gap are compared after it only"
            )
    crashed = sorted(journal.member.name for journal in journals if journal.closed is None)
    if crashed:
        report.notes.append(f"without a closing record (crashed, or still writing): {', '.join(crashed)}")


def _say_compared(
    journals: Sequence[Journal],
    summaries: Sequence[Summary],
    pairs: Sequence[compare.Pair],
    causal_ones: int,
    report: Report,
) -> None:
    views = len({view.tag for journal in journals for view in journal.views})
    said = {"views": f"{views} views at {len(journals)} members"} if views else {}
    if ends := sum(bool(view.end) and members.order_of(view).total for each in journals for view in each.views):
        said["transitional"] = f"{ends} ends of views"
    if payloads := sum(summary.payloads for summary in summaries):
        said["integrity"] = f"{payloads:,} payloads"
    if causal_ones:
        said["causal"] = f"{causal_ones:,} places where own messages follow others, at other members"
    if report.rows:
        rows = f"{report.rows:,} rows"
        said |= dict.fromkeys(("fifo", "duplicates", "gaps", "sending view"), rows) | _say_pairs(rows, pairs, said)
    for check, verdict in report.verdicts.items():
        unsure = report.unexamined and check in ("agreement", "integrity", "total order", "sending view")
        verdict.compared = said.get(check, "") if verdict.violations or not unsure else ""


def _say_pairs(rows: str, pairs: Sequence[compare.Pair], said: dict[str, str]) -> dict[str, str]:
    if not pairs:
        return {}
    strict, ordered = sum(pair.strict for pair in pairs), sum(pair.ordered for pair in pairs)
    together = f"{len(pairs)} pairs of members"
    return {
        "agreement": f"{strict} pairs of members with the same successor view, {len(pairs) - strict} as prefixes",
        "integrity": f"{together}, {said['integrity']}" if "integrity" in said else together,
        "total order": f"{rows}, {ordered} pairs of members" if ordered else "",
    }
