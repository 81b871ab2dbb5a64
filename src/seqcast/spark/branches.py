"""Deliveries of the other sides of a partition: a stream gives them out where they merge with its own side.

Views are a graph: a view follows the one that its members closed, a merged view follows those of its subgroups. Members
that closed a view by the same successor delivered the same in it, so a *closing*, a view and its successor, stands for
rows that any of them has. A stream has given out all closings that lead to its view. A merged view has more, those that
lead to its other subgroups: their rows come before its own, in the order of the views. If the stream has already given
out a view as one side closed it, only the messages that this side lacks follow from the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seqcast.journal.live import values_of
from seqcast.journal.reader import Journal
from seqcast.journal.views import Installed, ViewEnd
from seqcast.spark.members import order_of
from seqcast.spark.stores import Found

Closing = tuple[int, int]
"""Tags of a view and of its successor."""
_MESSAGE = ("sender", "seqno", "index")


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of a closing: the places ``first`` to ``end`` - 1 in the view, in the journal of a member."""

    closing: Closing
    member: int
    first: int
    end: int

    def as_json(self) -> list[Any]:
        """For an offset."""
        return [*(f"{each:016x}" for each in (*self.closing, self.member)), self.first, self.end]

    @classmethod
    def of_json(cls, told: Sequence[Any]) -> Range:
        view, successor, member = (int(each, 16) for each in told[:3])
        return cls((view, successor), member, int(told[3]), int(told[4]))


@dataclass(frozen=True, slots=True)
class Left:
    """Where a stream left a side of a partition that went no further: the stream has given out the first ``rows`` rows
    of a view in the journal of a member, and all that leads to the view."""

    view: int
    member: int
    rows: int

    def as_json(self) -> list[Any]:
        """For an offset."""
        return [f"{self.view:016x}", f"{self.member:016x}", self.rows]

    @classmethod
    def of_json(cls, told: Sequence[Any]) -> Left:
        return cls(int(told[0], 16), int(told[1], 16), int(told[2]))


class Missing(Exception):
    """No journal that can be read now has a closing that is needed, or names the view before another.

    Args:
        view: tag of the view.
    """

    def __init__(self, view: int) -> None:
        super().__init__(view)
        self.view = view


def stable_while_open(found: Found) -> int | None:
    """The stable point of the view that a member has not closed, as its journal will say: a member that falls between
    its last messages, which are transitional, and its next view leaves no record. None: none of its rows is
    transitional, or the order makes all of them stable."""
    journal = found.journal
    view = journal.views[-1] if journal.views else None
    if view is None or view.end is not None or not is_counted(journal, view) or order_of(view).prefix:
        return None
    lacking = [gap for gap in journal.gaps if gap.end == journal.end_idx]  # these rows may be transitional
    end, width = min([journal.end_idx, *(gap.idx for gap in lacking)]), 1
    begin = min(end, max([view.idx, journal.first_idx, *(gap.end for gap in journal.gaps if gap not in lacking)]))
    while True:  # from the end: transitional rows are the last of a view, and mostly there are none
        at = first = max(begin, end - width)
        for batch in found.store.rows(journal, first, end, ["transitional"]):
            flags = batch["transitional"].to_pylist()
            at += flags.index(True) if True in flags else len(flags)
            if True in flags:
                break
        if at > first or first == begin:
            return None if at == journal.end_idx else max(0, at - view.idx)
        width *= 64


def stable_so_far(found: Found, view: Installed) -> int:
    """How far a view that a member has not closed is stable, by its journal now."""
    journal = found.journal
    if order_of(view).prefix:
        return journal.end_idx - view.idx
    if view is not journal.views[-1]:
        return 0
    stable = stable_while_open(found)
    return journal.end_idx - view.idx if stable is None else stable


def is_counted(journal: Journal, view: Installed) -> bool:
    """Whether the rows of a view have the global seqnos 1, 2, 3, ..."""
    return journal.deliver_own and order_of(view).total


def pending(journal: Journal, idx: int, merged: int) -> Installed | None:
    """The first merged view, from a position on, whose branches are not given out yet.

    Args:
        merged: tag of the last view whose branches are, if that view has no rows before the position.
    """
    at = next(
        (at for at, view in enumerate(journal.views) if view.tag == merged), 0
    )  # a stream begins after the first
    return next((view for view in journal.views[at + 1 :] if view.idx >= idx and view.subgroups), None)


class Graph:
    """The views of journals."""

    def __init__(self, found: Sequence[Found]) -> None:
        self._before: dict[int, set[int]] = {}
        self._counters: dict[int, int] = {}
        self._founded: set[int] = set()
        self._closings: dict[Closing, list[tuple[Found, Installed]]] = {}
        self._of: dict[tuple[int, int], Installed] = {}  # of a member, as its journal says
        self._members: dict[int, set[int]] = {}
        self._took: dict[Closing, set[int]] = {}  # of a merged view: the members that came from another one
        self._journals = {each.id: each for each in found}
        self._gone: set[int] = set()
        self._patient = True
        for each in found:
            for view in each.journal.views:
                self._add(each, view)
        for (tag, _), ids in self._took.items():
            self._members.setdefault(tag, ids)  # of a view that no journal has

    def _add(self, found: Found, view: Installed) -> None:
        before = self._before.setdefault(view.tag, set())
        before.update(tag for tag, _ in view.subgroups)
        if view.closes:
            before.add(view.closes)
        elif found.id == view.view_id.flush[1]:  # who made a view was in the one before, if there was one
            self._founded.add(view.tag)
        self._of[found.id, view.tag] = view
        self._counters[view.tag] = view.view_id.counter
        self._members[view.tag] = {member.id for member in view.members}
        self._took.update(((tag, view.tag), set(ids)) for tag, ids in view.subgroups)
        if view.end is not None and view.end.successor:
            self._closings.setdefault((view.tag, view.end.successor), []).append((found, view))
        elif view is found.journal.views[-1]:  # nobody is known to have closed it so: the member stands for itself
            self._closings.setdefault((view.tag, found.id), []).append((found, view))

    def given(self, base: int, left: Sequence[Left]) -> set[Closing]:
        """The closings that a stream has given out.

        Args:
            base: tag of the stream's view.
            left: the sides that the stream left.
        """
        return set[Closing]().union(
            *(self._leading_to(tag, set(), all_of=False) for tag in (base, *(each.view for each in left)))
        )

    def follows(self, view: int, known: set[int]) -> bool:
        """Whether one of these views leads to a view."""
        return any(tag in known for tag, _ in self._leading_to(view, set(), all_of=False))

    def came(self, left: Left, view: int) -> bool:
        """Whether the member of a side that the stream left closed that side by a step that leads to a view."""
        of = self._of.get((left.member, left.view))
        closing = left.view, of.end.successor if of is not None and of.end is not None else 0
        return closing in self._leading_to(view, set(), all_of=False)

    def plan(
        self, base: int, into: int, left: Sequence[Left] = (), *, leaves: bool, all_of: bool, patient: bool
    ) -> list[Range]:
        """The rows of the branches that a view adds to the rows that a stream has given out: a merged view, or one of
        another side, if the stream leaves its own.

        A member that crashed may have journaled less than the cut gave: no remaining member has delivered rows that no
        other journal has either.

        Args:
            base: tag of the stream's view.
            into: tag of the view.
            left: the sides that the stream left.
            leaves: its own is among them. False: the stream goes on to the view in its own journal.
            all_of: False: leave out missing rows.
            patient: False: a member has no more than its journal shows, even if nothing says that it is gone.

        Raises:
            Missing: something is, and ``all_of``.
        """
        self._gone, self._patient = self._gone_since(into), patient
        given = [*self.given(base, left)]
        if not leaves:
            given.append((base, into))
        ranges: list[Range] = []
        known = {view for view, _ in given}
        for closing in sorted(self._leading_to(into, known, all_of=all_of) - {*given}, key=self._place):
            try:
                same = [each for each in given if each[0] == closing[0]]
                ranges += self._new(closing, same, [each for each in left if each.view == closing[0]])
                given.append(closing)
            except Missing:
                if all_of:
                    raise
        return ranges

    def ends(self, view: int, *, over: bool) -> list[Closing]:
        """The closings of a view, also by members that left, so that nobody need have installed the next one. If no
        journal shows one: the rows of each member by itself.

        Args:
            over: False: not these, as the view may still be closed without some.
        """
        found = [closing for closing in self._closings if closing[0] == view]
        closed = [each for each in found if any(of.end is not None for _, of in self._closings[each])]
        return sorted(closed or (found if over else ()), key=self._place)

    def beyond(self, closing: Closing, left: Sequence[Left]) -> tuple[Found, Installed, list[Range]]:
        """The rows of a closing that a stream has not given out that left the view at some places, and the journal that
        the stream is in behind them.

        Raises:
            Missing: no journal has them any more.
        """
        ranges = list(self._new(closing, (), [each for each in left if each.view == closing[0]]))
        return *self.source(closing), ranges

    def source(self, closing: Closing, member: int = 0) -> tuple[Found, Installed]:
        """A journal that has a closing, that of the given member before others, and the view as told there.

        Raises:
            Missing: there is none, or none that stands for that member's.
        """

        def rank(source: tuple[Found, Installed]) -> tuple[Any, ...]:
            journal, view = source[0].journal, source[1]
            whole = journal.first_idx <= view.idx and not journal.gap_in(view.idx, view.idx + _rows(*source))
            partly = not whole, not journal.deliver_own, -_rows(*source)
            return source[0].id != member, *partly, journal.member.name, source[0].id

        found = sorted(self._closings.get(closing, ()) or self._otherwise(closing), key=rank)
        if not found or (member and found[0][0].id != member and not is_counted(found[0][0].journal, found[0][1])):
            raise Missing(closing[0])
        return found[0]

    def _ids(self, closing: Closing) -> set[int]:
        """The members that closed a view so."""
        view, successor = closing
        return self._took.get(closing) or self._members.get(view, set()) & self._members.get(successor, set())

    def _lasts(self, ids: set[int]) -> list[tuple[Found, Installed]]:
        """The journals of members, each with its last view."""
        there = [each for member, each in self._journals.items() if member in ids and each.journal.views]
        return [(each, each.journal.views[-1]) for each in there]

    def _otherwise(self, closing: Closing) -> list[tuple[Found, Installed]]:
        """Journals of the members that closed a view so by the others' journals, and not by their own: a member that
        agreed to a view may crash, or be cut off and close its own one by another view, before it installs that."""
        found = [
            (self._journals[each], self._of.get((each, closing[0]))) for each in self._ids(closing) & {*self._journals}
        ]
        return [(each, view) for each, view in found if view is not None]

    def _gone_since(self, into: int) -> set[int]:
        """The members that are known to be in no later view than a merged one, or whose journals have ended."""
        later, left = {into}, [into]
        follow: dict[int, set[int]] = {}
        for view, before in self._before.items():
            for each in before:
                follow.setdefault(each, set()).add(view)
        while left:
            more = follow.get(left.pop(), set()) - later
            later |= more
            left += more
        over = {member for member, each in self._journals.items() if each.ended}
        return over | {
            member for member in self._journals if any(member not in self._members[view] for view in later - {into})
        }

    def _check_over(self, view: int, ids: set[int]) -> None:
        """Raises: Missing: one of the members of a view may show more rows."""
        closed = {member for member in ids if (of := self._of.get((member, view))) is not None and of.end is not None}
        alive = ids & self._journals.keys() - self._gone - closed
        if (alive and self._patient) or not ids or not ids <= self._journals.keys():
            raise Missing(view)

    def _place(self, closing: Closing) -> tuple[int, ...]:
        view, successor = closing
        return self._counters.get(view, 0), view, self._counters.get(successor, 0), successor

    def _leading_to(self, tag: int, known: set[int], *, all_of: bool) -> set[Closing]:
        """The closings that lead to a view, back to known views."""
        closings: set[Closing] = set()
        open_views, seen = [tag], {tag}
        while open_views:
            view = open_views.pop()
            before = self._before.get(view, set())
            if not before and view not in self._founded and all_of:
                self._check_over(view, self._members.get(view, set()))
                before = {last.tag for _, last in self._lasts(self._members[view]) if last.tag != view}
            closings.update((each, view) for each in before)
            open_views += before - known - seen
            seen |= before
        return closings

    def _as_left(self, left: Left) -> tuple[Found, Installed]:
        """As `source`, for the rows that a stream has given out of a view and then left."""
        view = self._of.get((left.member, left.view))
        if view is None:
            raise Missing(left.view)
        found = self._journals[left.member]
        stable = min(left.rows, _stable(found, view))
        return found, replace(view, end=ViewEnd(view.idx + left.rows, left.rows, stable))

    def _new(self, closing: Closing, given: Sequence[Closing], left: Sequence[Left]) -> Iterator[Range]:
        """The rows of a closing that no closing of the same view has that was given out."""
        if closing not in self._closings:
            self._check_over(closing[0], self._ids(closing))
            if not self._otherwise(closing):
                return
        found, view = self.source(closing)
        rows = _rows(found, view)
        others = [self.source(each) for each in given if each in self._closings or self._otherwise(each)]
        others += map(self._as_left, left)
        if not others:
            if rows:
                yield Range(closing, found.id, 0, rows)
            return
        same = min([_stable(*each) for each in ((found, view), *others)])
        last: dict[int, tuple[int, int]] = {}  # of each sender, the last row given out: rows come in the sender's order
        for other, theirs in others:
            for _, sender, *message in _messages(other, theirs, same, _rows(other, theirs)):
                last[sender] = max(last.get(sender, (0, 0)), (message[0], message[1]))
        first = end = same
        for at, sender, seqno, index in _messages(found, view, same, rows):
            if (seqno, index) <= last.get(sender, (-1, 0)):
                continue
            if at != end:
                if first < end:
                    yield Range(closing, found.id, first, end)
                first = at
            end = at + 1
        if first < end:
            yield Range(closing, found.id, first, end)


def _rows(found: Found, view: Installed) -> int:
    return (found.journal.end_idx if view.end is None else view.end.idx) - view.idx


def _stable(found: Found, view: Installed) -> int:
    """Up to this place all closings of a view have the same messages at the same places."""
    if not is_counted(found.journal, view):
        return 0
    return view.end.stable if view.end is not None else stable_so_far(found, view)


def _messages(found: Found, view: Installed, first: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Place in the view, sender, seqno and index of the messages at some places.

    Raises:
        Missing: retention removed some, or the disk did not take them.
    """
    if first >= end:
        return
    if view.idx + first < found.journal.first_idx or found.journal.gap_in(view.idx + first, view.idx + end):
        raise Missing(view.tag)
    at = first
    for batch in found.store.rows(found.journal, view.idx + first, view.idx + end, _MESSAGE):
        kinds = "int64", "int64", "int32"
        columns = [values_of(batch[name], kind).tolist() for name, kind in zip(_MESSAGE, kinds, strict=True)]
        for sender, seqno, index in zip(*columns, strict=True):
            yield at, sender, seqno, index
            at += 1
