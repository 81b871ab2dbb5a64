"""Which journal a stream follows, and where the stream continues in another one when that member is lost.

An offset has a position in one member's journal (``member``, ``idx``) and its meaning in the stream that all members
share: the whole id of the view (branches of a partition share counters) and the global seqno delivered last. At the
beginning of a view the position is also that after the views before (``also``): the member may be the only one that
ever installed the last of them. Another member's journal can be continued at the same place if that member

- installed the view, and has the global seqno at or below the view's *stable* point, up to which every member of the
  view, also one that fell, delivered the same (`seqcast.journal.views.ViewEnd`). A member that was cut off may have
  closed the view apart: then the lower of both points counts, and offsets name its own (``stable``). In a view that the
  other has not closed yet that is everything delivered there, or, if the order does not make all members' deliveries
  prefixes of one sequence, all before its first transitional message;
- or, beyond the stable point, has the same rows as the lost member's journal, if that can still be read;
- delivers its own messages, and all in one order. Positions in other journals mean nothing to anyone else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from seqcast.errors import UsageError
from seqcast.journal.reader import Journal
from seqcast.journal.schema import JournalError
from seqcast.journal.segments import Segment
from seqcast.journal.views import Installed
from seqcast.spark.branches import (
    Graph,
    Left,
    Missing,
    Range,
    is_counted,
    pending,
    stable_so_far,
    stable_while_open,
)
from seqcast.spark.groups import newer, view_text
from seqcast.spark.sides import Way, excluding, is_apart, is_over, lefts, way_out, way_to_end
from seqcast.spark.stalls import Stalls
from seqcast.spark.stores import Found, JournalStore, Part

IDENTITY = ("global_seqno", "sender", "seqno", "index", "payload_hash")

LOOK_S = 0.1
"""A task whose journal is gone looks this often for another one."""
LOOK_ALL_S = 1.0
LOOK_ALL_SHARE = 0.01
"""A stream that brings nothing new looks at the journals of all members no more often, and for no larger share of
its time, but looks four times in ``failover_s``."""
T = TypeVar("T")
NAMES_MAX = 16
"""At most this many views name the position of an offset: any number of views may have no messages."""
Name = tuple[str, int, int | None]
"""A view, the last global seqno delivered in it, and the view's stable point by the member's own journal if that is
lower: the member may have been cut off, and closed the view apart."""


class NotYet(Exception):
    """This journal cannot be continued now, but may be later."""


def merged_into(offset: Mapping[str, Any]) -> int:
    """Tag of the merged view whose branches are all given out, if the offset is at its beginning; else 0."""
    merged = offset.get("merged")
    return int(merged["into"], 16) if merged and branches_left(offset) == 0 else 0


def branches_left(offset: Mapping[str, Any]) -> int:
    """Rows of branches that are still to be given out at an offset."""
    merged = offset.get("merged", {})
    return sum(int(part[4]) - int(part[3]) for part in merged.get("parts", ())) - int(merged.get("done", 0))


def offset_of(found: Found, idx: int, merged: int = 0) -> dict[str, Any]:
    """The offset of a position: after ``idx`` rows of the journal.

    Args:
        merged: as of `offset_at`.

    Raises:
        JournalError: the last rows cannot be read.
    """
    return offset_at(found.journal, idx, merged, stable_while_open(found))


def offset_at(journal: Journal, idx: int, merged: int = 0, stable: int | None = None) -> dict[str, Any]:
    """As `offset_of`.

    Args:
        merged: tag of the merged view at the position whose branches were given out; the position is before others.
        stable: of the view that the member has not closed, if the journal's rows say one.
    """
    before = pending(journal, idx, merged)
    offset: dict[str, Any] = {"member": f"{journal.member.id:016x}", "idx": idx}
    names: list[Name] = []
    for view in reversed(journal.views[: journal.views.index(before) if before else None]):
        if view.idx <= idx:
            if not is_counted(journal, view):
                break
            apart = stable if view.end is None else view.end.stable
            apart = None if apart is None or apart >= idx - view.idx else apart
            names.append((view_text(view.view_id), idx - view.idx, apart))
            if view.idx < idx:
                break
    if names:
        offset["view"], offset["global_seqno"], apart = names[0]
        if apart is not None:
            offset["stable"] = apart
    if also := names[1:]:  # bounded, but with the oldest: a member that installed none of the newer ones has it
        kept = (*also[: NAMES_MAX - 2], *also[NAMES_MAX - 2 :][-1:])
        offset["also"] = [[each for each in name if each is not None] for name in kept]
    return offset


def _names(offset: Mapping[str, Any], lost: Found | None) -> list[Name]:
    """The views by which an offset names its position, newest first. A readable journal of its own may have more views
    at the position by now."""
    names: list[Name] = []
    read = []
    if lost is not None:
        with contextlib.suppress(JournalError):  # then the offset alone counts
            read.append(offset_of(lost, int(offset["idx"]), merged_into(offset)))
    for each in [*read, offset]:
        if "view" in each:
            apart = each.get("stable")
            names.append((each["view"], int(each["global_seqno"]), None if apart is None else int(apart)))
            names += [
                (str(view), int(seqno), int(stable[0]) if stable else None)
                for view, seqno, *stable in each.get("also", ())
            ]
    return list(dict.fromkeys(names))


class Follower:
    """Finds the journal for an offset.

    Args:
        stores: where journals are.
        fail_on_data_loss: raise an error if a stream gave out rows that the group never agreed on. Otherwise it
            continues after the last message of the view that the others have.
        failover_s: a member counts as lost after this long without a readable journal, or outside the others' views.
    """

    def __init__(self, stores: Sequence[JournalStore], fail_on_data_loss: bool, failover_s: float) -> None:
        self._stores = stores
        self._fail_on_data_loss = fail_on_data_loss
        self.failover_s = failover_s
        self._seen: list[Found] = []  # at the last look of an idle stream
        self._look_again = 0.0  # monotonic seconds
        self._told: dict[Any, tuple[list[Found], Mapping[str, Any], Any]] = {}
        self._behind: dict[str, dict[str, float]] = {}
        self._behind_of: list[Found] | None = None
        self._stalls = Stalls(failover_s)
        self._rest: dict[bool, tuple[Any, tuple[Way, list[Range]] | None]] = {}  # the last question, and the answer
        self._so_far: dict[int, tuple[Any, int]] = {}  # member -> its journal, and how far it is stable
        self._missed: dict[int, float] = {}  # member (0: a group) -> since when it seems lost, monotonic seconds

    def all(self) -> list[Found]:
        """Every journal that can be read now, once."""
        found: dict[int, Found] = {}
        for store in self._stores:
            for member in store.members():
                if member not in found and (journal := store.journal(member)) is not None:
                    found[member] = Found(store, journal)
        return sorted(found.values(), key=lambda each: (each.journal.member.name, each.id))

    def seen(self) -> list[Found]:
        """The result of `all` a moment ago: an idle stream asks many times a second."""
        began = time.monotonic()
        if began >= self._look_again:
            self._seen = self.all()
            self._pause(began)
        return self._seen

    def _pause(self, began: float) -> None:
        now = time.monotonic()
        self._look_again = now + min(self.failover_s / 4, max(LOOK_ALL_S, (now - began) / LOOK_ALL_SHARE))

    def behind(self, offset: dict[str, Any], *, now: bool = False) -> dict[str, dict[str, float]]:
        """How far an offset is behind each member whose journal shows that: messages, and seconds since the first of
        them was delivered (in the middle of a rolled segment about). As of the last look, unless ``now``."""
        seen, began = self.seen(), time.monotonic()
        if now or seen is not self._behind_of:
            self._behind_of, self._behind = seen, {}
            for each in seen:
                with contextlib.suppress(NotYet, JournalError):
                    self._behind[each.journal.member.name] = _behind(each, self.position(each, offset))
            self._pause(began)
        return self._behind

    def first(self, *, latest: bool, of: Sequence[Found] | None = None) -> Found:
        """The journal that a new stream begins with: the one with the longest history, or for the latest rows the one
        with the newest of all. (No file shows whether a journal is still written: a member that crashed leaves no
        record.)

        Args:
            of: these journals, by default all.

        Raises:
            UsageError: there is none, they are of several groups, or they cannot stand for one another.
        """
        found = self.all() if of is None else of
        if not found:
            raise UsageError("no journal can be read there: give a member's journal, or a directory of journals")
        clusters = sorted({each.journal.cluster for each in found})
        if len(clusters) > 1:
            raise UsageError(f"journals of several groups ({', '.join(clusters)}): a stream follows one")
        complete = [each for each in found if each.journal.deliver_own]
        if not complete and len(found) > 1:
            raise UsageError(
                "each of these members lacks its own messages (deliver_own=False): none can replace another; load one"
            )

        def rank(each: Found) -> tuple[int, bool, int, int, str]:
            first = each.journal.views[0] if each.journal.views else None
            counter, at_ns = (first.view_id.counter, first.at_ns) if first else (1 << 62, 0)
            newest = _newest_ns(each) if latest else 0
            return -newest, each.ended and latest, counter, at_ns, each.journal.member.name

        best = min(complete or found, key=rank)
        if latest and best.journal.views:  # by clocks that differ: of the same view one may have more rows
            last = best.journal.views[-1]
            same = [each for each in complete or found if each.journal.views and each.journal.views[-1].tag == last.tag]
            best = max([best, *same], key=lambda each: each.journal.end_idx - each.journal.views[-1].idx)
        return best

    def new_group(self, offset: Mapping[str, Any], *, wait: bool) -> Found | None:
        """The journal with the longest history of a group that was founded after that of an offset, of which nothing
        new comes; None: there is none, or the two groups are given time to merge.

        Args:
            wait: False: no time is given.
        """
        now = time.monotonic()
        found = self.seen() if wait else self.all()
        founded = self._of_the_look(newer, offset, found)
        if not founded:
            self._missed.pop(0, None)
            return None
        since = self._missed.setdefault(0, now)
        if wait and now < since + self.failover_s:
            return None
        del self._missed[0]
        return min(founded, key=lambda each: each[0])[1]

    def waits(self, offset: Mapping[str, Any]) -> str:
        """Why a stream that brings nothing new may wait in vain, as of the last look; empty: nothing tells."""
        return self._stalls.why(offset, self.seen())

    def _of_the_look(
        self, tell: Callable[[Mapping[str, Any], Sequence[Found]], T], offset: Mapping[str, Any], found: list[Found]
    ) -> T:
        """Journals' answers about an offset, asked once for each look at them."""
        kept = self._told.get(tell)
        if kept is None or kept[0] is not found or kept[1] != offset:
            kept = self._told[tell] = (found, offset, tell(offset, found))
        told: T = kept[2]
        return told

    def find(self, member: int) -> Found | None:
        """One member's journal, if readable now."""
        for store in self._stores:
            if (journal := store.journal(member)) is not None:
                return Found(store, journal)
        return None

    def go_on(self, offset: dict[str, Any], *, wait: bool) -> tuple[Found, int] | None:
        """Where a stream continues that has read up to an offset: in the same journal while its member is there,
        otherwise in another one. None: not known yet.

        Args:
            wait: False: a member that seems lost counts as lost at once.

        Raises:
            JournalError: no journal continues the rows read.
        """
        member, idx = int(offset["member"], 16), int(offset["idx"])
        followed = self.find(member)
        if followed is not None:
            if _has_more(followed, idx, merged_into(offset)):
                self._missed.pop(member, None)
                self._missed.pop(0, None)
                return followed, idx
        found = self.seen() if wait else self.all()
        if followed is None or not _stands(followed, idx):
            if followed is not None and not self._of_the_look(_seems_lost, offset, found):
                self._missed.pop(member, None)
                return followed, idx
            since = self._missed.setdefault(member, time.monotonic())
            if wait and time.monotonic() < since + self.failover_s:
                return None
        try:
            other = self._other(offset, followed)
        except JournalError:
            if followed is None or not is_apart(followed.journal, idx, found):
                raise
            other = None  # the rows in which its side differs come once, as at a merge
        idle = other is not None and not _has_more(*other, merged_into(offset))
        if idle and followed is not None and not _stands(followed, idx):
            other = None  # else two members that bring nothing new would pass the stream to each other for ever
        return other or ((followed, idx) if followed is not None else None)

    def _other(self, offset: dict[str, Any], lost: Found | None) -> tuple[Found, int] | None:
        why: JournalError | None = None
        same = False
        left = {each.view for each in lefts(offset)}
        bold = lost is None and not self._fail_on_data_loss
        names = set() if bold else {text for text, *_ in _names(offset, lost)}
        merged = merged_into(offset)
        for each in sorted(self.all(), key=lambda each: (each.over, each.ended)):
            if merged and all(view.tag != merged for view in each.journal.views):
                continue  # the branches before the merged view were given out, and would come again
            if f"{each.id:016x}" != offset["member"]:
                try:
                    at = self.position(each, offset, lost)
                except NotYet:
                    continue
                except JournalError as error:
                    why = error
                    continue
                if any(view.tag in left and view.idx >= at for view in each.journal.views):
                    continue  # the stream has been on that side, and gave out its rows
                if not each.ended and each.over and at == each.journal.end_idx:
                    same = True  # the stream gave out nothing that nobody else delivered
                    continue
                if _may_have_more_than_agreed(each, names):
                    continue
                # Else the stream would circle among ended journals, or those that lack the rows.
                if each.journal.gap_in(at, at + 1) is None and (at < each.journal.end_idx or not each.ended):
                    return each, at
        if why is not None and not same:
            raise why
        return None

    def beside(
        self, offset: dict[str, Any], *, wait: bool, ends: Mapping[int, int] | None = None
    ) -> tuple[Way, list[Range]] | None:
        """Where a stream that brings nothing new continues, if other members went on without the followed one, and
        the rows that come first. None: nowhere, or not yet.

        Args:
            wait: False: a member that seems lost counts as lost at once.
            ends: of each member's journal, the position up to which the stream goes; None: it has no such bound.

        Raises:
            JournalError: the journal of the member is gone, so the messages that the others have yet to deliver are
                unknown; or no journal has rows that come first.
        """
        member = int(offset["member"], 16)
        followed, now = self.find(member), time.monotonic()
        if followed is None or not _stands(followed, int(offset["idx"])):
            since = self._missed.get(member)
            if since is None or (wait and now < since + self.failover_s):
                return None
        found = self.seen() if wait else self.all()
        way = self._of_the_look(way_out, offset, found) if ends is None else way_out(offset, found, ends)
        if way is None:
            return self.rest(offset, found)
        if not way.planned:
            if way.gone and self._fail_on_data_loss:
                raise JournalError(
                    f"the journal of member {offset['member']}, which this query follows, is gone, and the others "
                    f"do not tell which of their rows that one had in view {offset.get('view', '')}: bring the "
                    "journal back, start the query with a new checkpoint, or set failOnDataLoss=false to go on with "
                    "the others' rows"
                )
            return way, []
        ranges = self.branches(way.base, way.view, way.left, leaves=True, wait=wait)
        return None if ranges is None else (way, ranges)

    def rest(
        self, offset: Mapping[str, Any], found: list[Found], *, over: bool | None = None
    ) -> tuple[Way, list[Range]] | None:
        """As `beside`, for others' deliveries in the view of a member that brings nothing new, if that view has no
        successor: `seqcast.spark.sides.way_to_end`.

        Args:
            over: whether the members of the view are all gone; None: that is to be found out.
        """
        over = self._of_the_look(is_over, offset, found) if over is None else over
        now = offset, [(each.id, each.ended, each.journal.end_idx, len(each.journal.views)) for each in found]
        if over not in self._rest or self._rest[over][0] != now:  # to tell, rows are read
            try:
                self._rest[over] = now, way_to_end(offset, found, over=over)
            except Missing as missing:
                if self._fail_on_data_loss:
                    raise JournalError(
                        f"the journals that have more of view {missing.view:016x}, in which this query is, lack rows "
                        "of it, by retention or a full disk: keep more (journal_keep_s, journal_keep_bytes), or set "
                        "failOnDataLoss=false to go on without them"
                    ) from None
                self._rest[over] = now, None
        return self._rest[over][1]

    def over_gap(self, offset: dict[str, Any], *, wait: bool) -> tuple[Found, int] | None:
        """Where a stream continues whose next rows its journal lacks, and no other one gives. None: the stream is not
        at such a place, or others may still show the rows.

        Args:
            wait: False: nothing is waited for.

        Raises:
            JournalError: they do not, and the stream is to have all rows.
        """
        member, idx, now = int(offset["member"], 16), int(offset["idx"]), time.monotonic()
        followed = self.find(member)
        gap = None if followed is None else followed.journal.gap_in(idx, idx + 1)
        if followed is None or gap is None:
            return None
        if wait and now < self._missed.setdefault(member, now) + self.failover_s:
            return None
        if self._fail_on_data_loss:
            raise JournalError(
                f"{followed.journal.path} lacks rows {gap.idx} to {gap.end - 1} ({gap.why}), and no other journal that "
                "can be read shows them at that place: load the journals of all members, or set failOnDataLoss=false "
                "to go on without them"
            )
        self._missed.pop(member, None)
        merge = pending(followed.journal, idx, merged_into(offset))
        return followed, gap.end if merge is None else min(gap.end, merge.idx)

    def branches(
        self, base: int, into: Installed, left: Sequence[Left], *, leaves: bool, wait: bool
    ) -> list[Range] | None:
        """The rows that the stream gives out before its next view; None: some are still to come.

        Args:
            base: tag of the stream's view before.
            left: the sides that the stream left.
            wait: False: absent rows are missing.

        Raises:
            JournalError: no journal has one of the rows.
        """
        graph, now = Graph(self.all()), time.monotonic()
        patient = wait and now < self._missed.get(into.tag, now) + self.failover_s
        try:
            ranges = graph.plan(base, into.tag, left, leaves=leaves, all_of=True, patient=patient)
        except Missing as missing:
            self._missed.setdefault(into.tag, now)
            if patient:
                return None
            if self._fail_on_data_loss:
                raise _no_branch(missing.view, into) from None
            ranges = graph.plan(base, into.tag, left, leaves=leaves, all_of=False, patient=False)
        self._missed.pop(into.tag, None)
        return ranges

    def closing(self, part: Range) -> tuple[Found, int]:
        """A journal that has the rows of a branch, and the position of the view there.

        Raises:
            JournalError: there is none.
        """
        try:
            found, view = Graph(self.all()).source(part.closing, part.member)
        except Missing:
            raise JournalError(
                f"rows of view {part.closing[0]:016x}, which another side of a partition delivered, are in no journal "
                "any more: bring the journals of its members back, or start the query with a new checkpoint"
            ) from None
        return found, view.idx

    def position(self, other: Found, offset: dict[str, Any], lost: Found | None = None) -> int:
        """The position in a journal that has the same meaning as an offset.

        Args:
            lost: the offset's own journal, if readable.

        Raises:
            NotYet: the journal does not show the position, or not yet.
            JournalError: the stream is ahead of the group's agreement.
        """
        if offset["member"] == f"{other.id:016x}":
            return int(offset["idx"])
        for name in _names(offset, lost):
            with contextlib.suppress(NotYet):
                return self._named(other, offset["member"], name, lost)
        raise NotYet

    def reserve(self, found: Found, first: int, until: int, end: dict[str, Any]) -> Reserve:
        """For the tasks of a batch.

        Args:
            first: position of the first row of a task.
            until, end: position after the last row of the batch, and its offset.
        """
        views = found.journal.views
        ends = [*(view.idx for view in views[1:]), 1 << 62]
        of = {view.tag: view.idx for view, last in zip(views, ends, strict=False) if last > first and view.idx < until}
        return Reserve(self, found.id, of, {**end, "member": f"{found.id:016x}", "idx": until})

    def _named(self, other: Found, member: str, name: Name, lost: Found | None) -> int:
        """The position in a journal after a global seqno of a view; raises as `position`."""
        journal, (text, seqno, apart) = other.journal, name
        view = next((view for view in journal.views if view_text(view.view_id) == text), None)
        if view is None or not is_counted(journal, view):
            raise NotYet
        if view.end is None:
            if seqno > self._stable_so_far(other, view) or (apart is not None and seqno > apart):
                raise NotYet
        elif seqno > (stable := _stable(view, lost, apart)) and not self._same(other, view, stable, seqno, lost):
            if self._fail_on_data_loss:
                raise JournalError(
                    f"the stream gave out messages up to {seqno} of view {text} from the journal of member "
                    f"{member}, which is lost, and the others are known to have the same only up to "
                    f"{stable}: start over from another member's journal, or set failOnDataLoss=false to go "
                    "on with the others' rows"
                )
            seqno = min(seqno, view.end.global_seqno)
        return view.idx + seqno

    def _stable_so_far(self, other: Found, view: Installed) -> int:
        """How far a view that a member has not closed is stable, by its journal now."""
        journal = other.journal
        now = view.tag, journal.first_idx, journal.end_idx, len(journal.gaps)
        before = self._so_far.get(other.id)
        if before is None or before[0] != now:
            before = self._so_far[other.id] = now, stable_so_far(other, view)
        return before[1]

    @staticmethod
    def _same(other: Found, view: Installed, first: int, end: int, lost: Found | None) -> bool:
        """Whether the lost member's journal has the same messages of a view after one global seqno, up to another."""
        assert view.end is not None
        if lost is None or end > view.end.global_seqno:
            return False
        begin = next((each.idx for each in lost.journal.views if each.tag == view.tag), None)
        if begin is None or begin + first < lost.journal.first_idx:
            return False
        if view.idx + first < other.journal.first_idx or lost.journal.end_idx < begin + end:
            return False
        if lost.journal.gap_in(begin + first, begin + end) or other.journal.gap_in(view.idx + first, view.idx + end):
            return False
        rows = [
            [batch.to_pydict() for batch in each.store.rows(each.journal, at + first, at + end, IDENTITY)]
            for each, at in ((lost, begin), (other, view.idx))
        ]
        ours, theirs = ({name: [row for part in of for row in part[name]] for name in IDENTITY} for of in rows)
        return ours == theirs


def _stable(view: Installed, lost: Found | None, apart: int | None) -> int:
    """How far a closed view is stable. A lost member may have closed the view, too, apart from the others, as its
    journal or the offset says (``apart``)."""
    assert view.end is not None
    ends = [each.end for each in lost.journal.views if each.tag == view.tag] if lost is not None else []
    return min([view.end.stable, *(end.stable for end in ends if end is not None), *([] if apart is None else [apart])])


def _has_more(found: Found, idx: int, merged: int) -> bool:
    """Whether a journal has something after a position: rows, or branches before a view."""
    merge = pending(found.journal, idx, merged)
    if found.journal.gap_in(idx, idx + 1) is not None:
        return merge is not None and merge.idx <= idx
    return idx < found.journal.end_idx or merge is not None


def _seems_lost(offset: Mapping[str, Any], found: Sequence[Found]) -> bool:
    """Whether the member that a stream follows has ended, by its process, or the others show that they went on without
    it; or one of them closed its view and has ended: then perhaps nobody installed the next one."""
    followed = next((each for each in found if f"{each.id:016x}" == offset["member"]), None)
    if followed is None or followed.over:
        return True
    last = followed.journal.views[-1].tag if followed.journal.views else 0
    closed = (view.tag for each in found if each.ended for view in each.journal.views if view.end is not None)
    return last in closed or _without(offset, found)


def _may_have_more_than_agreed(other: Found, names: Collection[str]) -> bool:
    """Whether a journal ends in a view of an offset that its member did not close and never will."""
    last = other.journal.views[-1] if other.journal.views else None
    return last is not None and last.end is None and view_text(last.view_id) in names and other.over


def _without(offset: Mapping[str, Any], found: Sequence[Found]) -> bool:
    """Whether another member installed, after a view of an offset, any view without the member that the stream follows
    (any, not only the next: an offset does not move in views without messages), or has gone on elsewhere without that
    member."""
    # Reads no rows: this is asked again and again.
    member, idx = int(offset["member"], 16), int(offset["idx"])
    here = [offset_at(each.journal, idx, merged_into(offset)) for each in found if each.id == member]
    named = {text for each in (*here, offset) for text, *_ in _names(each, None)}
    for views in (each.journal.views for each in found if each.id != member):
        at = max((at for at, view in enumerate(views) if view_text(view.view_id) in named), default=len(views))
        if any(all(each.id != member for each in view.members) for view in views[at + 1 :]):
            return True
    return any(excluding(member, each.journal) for each in found if each.id != member)


def _behind(found: Found, idx: int) -> dict[str, float]:
    """As of `Follower.behind`; reads no rolled segment."""
    journal = found.journal
    idx = max(idx, journal.first_idx)
    if idx >= journal.end_idx:
        return {"messages": 0, "seconds": 0.0}
    gap = journal.gap_in(idx, idx + 1)
    first = idx if gap is None else gap.end
    segment = next((each for each in journal.segments if first < each.first_idx + each.rows), None)
    if segment is None:  # the gap is the end
        since_ns = gap.at_ns if gap is not None else 0
    elif segment.live:
        first = max(first, segment.first_idx)  # after several gaps
        since_ns = next(_times(found, first, first + 1), 0)
    else:
        since_ns = _rolled_ns(segment, first)
    return {"messages": journal.end_idx - idx, "seconds": round(max(0.0, time.time() - since_ns / 1e9), 3)}


def _rolled_ns(segment: Segment, idx: int) -> int:
    """About when a row of a rolled segment was delivered, as if its rows had come evenly: a read of the time itself
    would compare the whole file with its checksum."""
    share = max(0, idx - segment.first_idx) / segment.rows
    return segment.first_ns + int((segment.last_ns - segment.first_ns) * share)


def _newest_ns(found: Found) -> int:
    """When the newest view or row of a journal was delivered."""
    journal = found.journal
    end = journal.end_idx
    last = [view.at_ns for view in journal.views[-1:]]
    if (gap := journal.gap_in(end - 1, end)) is not None:
        return max([gap.at_ns, *last])
    return max([*_times(found, end - 1, end), *last], default=0)


def _times(found: Found, first: int, end: int) -> Iterator[int]:
    """When the rows at some positions were delivered."""
    for batch in found.store.rows(found.journal, first, end, ["delivered_ns"]):
        yield from batch["delivered_ns"].to_pylist()


def _no_branch(view: int, merge: Installed) -> JournalError:
    return JournalError(
        f"view {view_text(merge.view_id)} merges sides of a partition, and no journal that can be read has all that "
        f"the other side delivered: view {view:016x} is missing; load the journals of all members, or set "
        "failOnDataLoss=false to go on without it"
    )


@dataclass(frozen=True)
class Reserve:
    """Where a task goes on if its journal goes away.

    Args:
        member: owner of the journal.
        views: of a stream's batch: tag and first position of each view that has rows of the batch.
        end: of a stream's batch: the offset after its last row. None: only the same member's journal, which may be in
            another store too, has the same rows, as in a table.
    """

    follower: Follower
    member: int
    views: dict[int, int] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    def rest(self, part: Part, at: int) -> Part | None:
        """The rows of a part from a position on, to be read elsewhere. None: they are nowhere, also after some time
        in which other members may show that they have the same.

        Raises:
            JournalError: a journal is damaged.
        """
        until = time.monotonic() + (self.follower.failover_s if self.end is not None else 0.0)
        while (found := self._now(part, at)) is None:
            if time.monotonic() >= until:
                return None
            time.sleep(LOOK_S)
        store, journal, more = found[0].store, found[0].journal, found[1]
        reserve = self
        if more or journal.member.id != self.member:
            assert self.end is not None
            end = {**self.end, "member": f"{journal.member.id:016x}", "idx": self.end["idx"] + more}
            views = {tag: idx + more for tag, idx in self.views.items()}
            reserve = Reserve(self.follower, journal.member.id, views, end)
        return replace(store.part(journal, part.wanted, at + more, part.end + more), reserve=reserve)

    def _now(self, part: Part, at: int) -> tuple[Found, int] | None:
        """A journal that has the rows now, and how much higher their positions in it are."""
        own = self.follower.find(self.member)
        if own is not None and _has(own, at, part.end):
            return own, 0
        for other in self.follower.all() if self.end is not None else ():
            if other.id != self.member and (more := self._shift(other)) is not None:
                if _has(other, at + more, part.end + more):
                    return other, more
        return None

    def _shift(self, other: Found) -> int | None:
        """How much higher the positions of the batch are in another member's journal; None: that journal does not show
        the same messages. It shows them if it has the end of the batch, and as many messages in each view before."""
        assert self.end is not None
        try:
            more = self.follower.position(other, self.end) - int(self.end["idx"])
        except (NotYet, JournalError):  # the second: the others do not agree up to there
            return None
        theirs = {view.tag: view.idx - more for view in other.journal.views}
        return more if self.views.items() <= theirs.items() else None


def _has(found: Found, first: int, end: int) -> bool:
    journal = found.journal
    return journal.first_idx <= first and end <= journal.end_idx and journal.gap_in(first, end) is None


def _stands(found: Found, idx: int) -> bool:
    """Whether a journal gives no row at a position, and never will."""
    return found.ended or found.journal.gap_in(idx, idx + 1) is not None
