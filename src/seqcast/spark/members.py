"""The findings from one journal by itself: the summaries of its segments, stitched and judged.

Some findings need other rows to be named (a seqno that went back: a repeat, or out of order?). They are collected,
looked up together, and then named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seqcast.core.orders import Order, by_name
from seqcast.journal.reader import Journal
from seqcast.journal.schema import VIEWS_FILE, JournalDamaged, JournalError, signed
from seqcast.journal.views import Installed
from seqcast.spark.lookup import Place
from seqcast.spark.segments import Found, Summary, ViewRun, follows
from seqcast.spark.verdicts import Report


def order_of(view: Installed) -> Order:
    """The mechanism that ordered the messages of a view.

    Raises:
        JournalError: a later release wrote the journal, with a mechanism unknown here.
    """
    try:
        return by_name(view.mechanism)
    except KeyError:
        raise JournalError(
            f"a view of the journal was ordered by {view.mechanism!r}, which this release of seqcast does not know: "
            "use the release that wrote the journal"
        ) from None


@dataclass(frozen=True, slots=True)
class Doubt:
    """A finding about one row. Other rows decide its kind.

    Args:
        kind: "key back", "key jump" (of a sender's messages), "seqno back" or "seqno jump" (of global seqnos).
        of: sender, or view tag.
        before: highest key or global seqno before the row.
        this: key or global seqno of the row.
    """

    kind: str
    of: int
    idx: int
    before: int
    this: int

    @property
    def wanted(self) -> tuple[int, int]:
        """The (sender, key) or (view tag, global seqno) to look up: it decides."""
        if self.kind == "key jump":
            return self.of, self.this - 1
        return self.of, self.before + 1 if self.kind == "seqno jump" else self.this


@dataclass(slots=True)
class Names:
    """How counter-examples call members, views and messages."""

    journals: Sequence[Journal]
    members: dict[int, str] = field(default_factory=dict)
    views: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        everyone = [journal.member for journal in self.journals]
        everyone += [member for journal in self.journals for view in journal.views for member in view.members]
        for member in everyone:
            if seen.setdefault(member.name, member.id) != member.id:
                self.members[signed(member.id)] = f"{member.name} ({member.id:016x})"  # two incarnations have the name
            else:
                self.members[signed(member.id)] = member.name
        for journal in self.journals:
            for view in journal.views:
                members = ", ".join(member.name for member in view.members)
                self.views[signed(view.tag)] = f"view {view.view_id.counter} [{members}]"

    def journal(self, number: int) -> str:
        return self.member(signed(self.journals[number].member.id))

    def member(self, sender: int) -> str:
        return self.members.get(sender, f"the unknown member {sender & (1 << 64) - 1:016x}")

    def view(self, tag: int) -> str:
        return self.views.get(tag, f"a view that is not in its journal (tag {tag & (1 << 64) - 1:016x})")

    def message(self, sender: int, key: int) -> str:
        return f"{self.member(sender)}'s message {key >> 16}.{key & 0xFFFF}"

    def place(self, place: Place) -> str:
        at = f"global seqno {place.global_seqno}" if place.global_seqno else f"row {place.idx}"
        return f"{self.view(place.tag)} at {at}"


def stitch(number: int, journal: Journal, summaries: Sequence[Summary], names: Names, report: Report) -> list[Doubt]:
    """Reports certain faults and returns the doubts that need a look-up."""
    doubts: list[Doubt] = []
    summaries = [summary for summary in sorted(summaries, key=lambda summary: summary.number) if summary.rows]
    _check_positions(names.journal(number), journal, summaries, report)
    _check_views(number, journal, [run for summary in summaries for run in summary.views], names, report, doubts)
    highest: dict[int, int] = {}
    behind = {gap.end for gap in journal.gaps}
    for summary in summaries:
        for run in summary.senders:
            # If retention removed the first rows, or a gap is before them, nothing is known about the rows before.
            before = highest.get(run.sender, run.first - 1 if journal.first_idx else -1)
            if summary.first_idx in behind:
                before = max(before, run.first - 1)
            if run.first <= before:
                doubts.append(Doubt("key back", run.sender, run.idx, before, run.first))
            elif not follows(before, run.first):
                doubts.append(Doubt("key jump", run.sender, run.idx, before, run.first))
            doubts += [Doubt("key back", run.sender, *example) for example in run.back.first]
            doubts += [Doubt("key jump", run.sender, *example) for example in run.jumps.first]
            highest[run.sender] = max(before, run.highest)
        if summary.altered.count:
            idx = summary.altered.first[0][0]
            report.violation(
                "integrity",
                f"{names.journal(number)}'s journal, row {idx}: the payload is not the one that was delivered (its "
                "hash differs)",
                summary.altered.count,
            )
    return doubts


def judge(
    number: int,
    doubts: Sequence[Doubt],
    messages: dict[tuple[int, int, int], list[Place]],
    positions: dict[tuple[int, int, int], list[Place]],
    names: Names,
    report: Report,
) -> None:
    """Names the doubts of one journal, given the look-ups."""
    who = names.journal(number)
    for doubt in doubts:
        key = (number, *doubt.wanted)
        if doubt.kind == "key back":
            message, places = names.message(doubt.of, doubt.this), messages.get(key, [])
            if len(places) > 1:
                first, second = sorted(places, key=lambda place: place.idx)[:2]
                where = f"{names.place(first)} and in {names.place(second)} (rows {first.idx} and {second.idx})"
                report.violation("duplicates", f"{who} delivered {message} twice, in {where}")
            else:
                late = names.message(doubt.of, doubt.before)
                report.violation("fifo", f"{who} delivered {message} after {late} (row {doubt.idx})")
        elif doubt.kind == "key jump" and key not in messages:
            message, later = names.message(*doubt.wanted), names.message(doubt.of, doubt.this)
            report.violation("gaps", f"{who} did not deliver {message} before {later} (row {doubt.idx})")
        elif doubt.kind == "seqno jump" and key not in positions:
            missing = f"{doubt.before + 1}" + (f" to {doubt.this - 1}" if doubt.this > doubt.before + 2 else "")
            report.violation(
                "gaps", f"{who} delivered no global seqno {missing} in {names.view(doubt.of)} (row {doubt.idx})"
            )
        elif doubt.kind == "seqno back":
            places = positions.get(key, [])
            if len({(place.sender, place.key) for place in places}) > 1:
                what = " and ".join(names.message(place.sender, place.key) for place in places[:2])
                report.violation(
                    "total order", f"{who} delivered {what} both as global seqno {doubt.this} in {names.view(doubt.of)}"
                )
            elif len(places) == 1:
                report.violation(
                    "total order",
                    f"{who} delivered global seqno {doubt.this} after {doubt.before} in {names.view(doubt.of)} "
                    f"(row {doubt.idx})",
                )


def _check_positions(who: str, journal: Journal, summaries: Sequence[Summary], report: Report) -> None:
    """Rows of a journal are numbered without gaps, by construction: from 0, or from the first row that is kept."""
    expected = journal.first_idx
    for summary in summaries:
        breaks = Found(summary.breaks.count, list(summary.breaks.first))
        expected = _over_gaps(journal, expected)
        if summary.first_idx != expected:
            breaks.count += 1
            breaks.first.insert(0, (summary.first_idx, expected - 1, summary.first_idx))
        if breaks.count:
            _, before, this = breaks.first[0]
            report.violation("gaps", f"{who}'s journal goes from row {before} to row {this}", breaks.count)
        expected = summary.last_idx + 1
    expected = _over_gaps(journal, expected)
    if journal.closed_idx > expected:
        report.violation(
            "gaps",
            f"{who}'s journal ends before row {expected}, and was closed at row {journal.closed_idx}",
            journal.closed_idx - expected,
        )
    elif journal.closed is not None and journal.closed_idx < expected:
        report.violation(
            "gaps",
            f"{who}'s journal was closed at row {journal.closed_idx}, but continues to row {expected}",
            expected - journal.closed_idx,
        )
    told = max((view.idx for view in journal.views), default=0)
    if journal.closed is None and told > expected:  # a crash of the machine may keep a view and not the rows before it
        report.notes.append(f"{told - expected} rows of {who}'s journal went with its tail")


def _over_gaps(journal: Journal, at: int) -> int:
    """The position after the gaps that begin at one."""
    for gap in journal.gaps:
        at = gap.end if gap.idx == at else at
    return at


def _check_views(
    number: int, journal: Journal, runs: Sequence[ViewRun], names: Names, report: Report, doubts: list[Doubt]
) -> None:
    who = names.journal(number)
    ends = [*(view.idx for view in journal.views[1:]), 1 << 63]
    spans = {signed(view.tag): (view, end) for view, end in zip(journal.views, ends, strict=False)}
    highest: dict[int, int] = {}
    late: dict[int, int] = {}
    behind = {gap.end for gap in journal.gaps}
    tail = len(runs)  # the runs from here on are of views that no record names
    while tail and runs[tail - 1].tag not in spans:
        tail -= 1
    for at, run in enumerate(runs):
        if run.tag not in spans:
            # A view is recorded before its rows, but a crash of the machine may take the record and leave the rows.
            if journal.torn_records or (at >= tail and journal.closed_idx < 0):
                raise JournalDamaged(
                    f"{journal.path / VIEWS_FILE} lacks its end: row {run.idx} is of a view after the last one"
                )
            report.violation("sending view", f"{who} delivered row {run.idx} in {names.view(run.tag)}", run.rows)
            continue
        view, end = spans[run.tag]
        _check_span(who, run, view, end, names, report)
        if not order_of(view).total:
            continue
        if run.zeros:
            report.violation(
                "total order", f"{who} delivered messages without a global seqno in {names.view(run.tag)}", run.zeros
            )
            continue
        # If retention removed the first rows of the view, nothing is known about the rows before.
        before = highest.get(run.tag, run.first - 1 if view.idx < journal.first_idx else 0)
        if run.idx in behind and run.idx > view.idx:  # the rows before it are in a gap
            before = max(before, run.first - 1)
        doubts += _seqno_doubts(run, before, journal.deliver_own)
        highest[run.tag] = max(before, run.highest)
        _check_transitional(who, run, late.get(run.tag, 0), names, report)
        if run.transitional:
            late.setdefault(run.tag, run.transitional)
    _check_ends(who, journal, highest, late, names, report)


def _check_transitional(who: str, run: ViewRun, first: int, names: Names, report: Report) -> None:
    """Transitional messages end a view. ``first``: the view's first one before this run; 0: there was none."""
    after = Found(run.decided.count, list(run.decided.first))
    if first and run.transitional != run.first:
        after.add(run.idx, first, run.first)
    if after.count:
        idx, before, this = min(after.first)
        report.violation(
            "transitional",
            f"{who} delivered global seqno {this} in {names.view(run.tag)}, which is not transitional, after {before}, "
            f"which is (row {idx})",
            after.count,
        )


def _check_span(who: str, run: ViewRun, view: Installed, end: int, names: Names, report: Report) -> None:
    """The rows of a view are between its installation and the next (``end``), under its counter."""
    if run.counters != (view.view_id.counter, view.view_id.counter):
        wrong = next(counter for counter in run.counters if counter != view.view_id.counter)
        report.violation("views", f"{who} has rows of {names.view(run.tag)} under the counter {wrong}")
    if run.idx < view.idx or run.idx + run.rows > end:
        outside = min(run.rows, max(view.idx - run.idx, run.idx + run.rows - end))
        at = run.idx if run.idx < view.idx else max(run.idx, end)
        when = "before it installed that view" if run.idx < view.idx else "after it installed the next"
        report.violation(
            "sending view", f"{who} delivered a message of {names.view(run.tag)} {when} (row {at})", outside
        )


def _seqno_doubts(run: ViewRun, before: int, deliver_own: bool) -> list[Doubt]:
    """Global seqnos that do not follow each other; ``before``: the highest of the view before this run."""
    doubts = [Doubt("seqno back", run.tag, run.idx, before, run.first)] if run.first <= before else []
    doubts += [Doubt("seqno back", run.tag, *example) for example in run.back.first]
    if deliver_own:  # without own messages, leaving out their global seqnos is right
        if run.first > before + 1:
            doubts.append(Doubt("seqno jump", run.tag, run.idx, before, run.first))
        doubts += [Doubt("seqno jump", run.tag, *example) for example in run.jumps.first]
    return doubts


def _check_ends(
    who: str, journal: Journal, highest: dict[int, int], late: dict[int, int], names: Names, report: Report
) -> None:
    """The rows of a closed view end at its recorded end, and are stable up to its recorded stable point.

    Args:
        highest, late: the highest global seqno, and the first transitional one, by view tag.
    """
    for view in journal.views:
        order = order_of(view)
        if view.end is None or not journal.first_idx < view.end.idx <= journal.end_idx or not order.total:
            continue  # retention, or a torn tail, removed its rows
        if journal.gap_in(view.idx, view.end.idx):
            continue
        last, first = highest.get(signed(view.tag), 0), late.get(signed(view.tag), 0)
        stable = first - 1 if first and not order.prefix else last
        if last == view.end.global_seqno and view.idx >= journal.first_idx:
            if stable != view.end.stable:
                report.violation(
                    "transitional",
                    f"{who} closed {names.view(signed(view.tag))} as stable up to global seqno {view.end.stable}, and "
                    f"by its rows of that view it is up to {stable}",
                )
        elif last != view.end.global_seqno:
            report.violation(
                "gaps",
                f"{who} closed {names.view(signed(view.tag))} after global seqno {view.end.global_seqno}, and its rows "
                f"of that view end at {last}",
            )
