"""Where a stream goes on when its side of a partition goes no further: the member that it follows fell alone, or left,
or nothing tells which position in another journal is the same (there is no total order).

Nothing in the files tells a member that fell from one that is still cut off. So the stream leaves the side as if that
side merged with another one: first come messages that the other side delivered and this one did not, then its next
view. The offset says how much of the side was given out (`Left`). If the member comes back, the rest comes at the
merge, or when the other side goes no further either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqcast.journal.reader import Journal
from seqcast.journal.views import Installed
from seqcast.spark.branches import Graph, Left, Range
from seqcast.spark.groups import tag_of
from seqcast.spark.stores import Found

LEFT_MAX = 1024
"""An offset has at most this many sides: the newest. Members that crashed and never come back would add up."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where a stream goes on that leaves the side of its member.

    Args:
        other: the journal that the stream goes on with.
        view: a view of that journal.
        idx: position in that journal: the beginning of the view, or where the stream left that view.
        base: tag of the view that the stream leaves; 0: not known, as the journal is gone.
        left: the sides that the stream has left then.
        planned: rows of branches may come first.
    """

    other: Found
    view: Installed
    idx: int
    base: int
    left: tuple[Left, ...]
    planned: bool = True

    @property
    def gone(self) -> bool:
        """The journal of the member is gone."""
        return not self.base


def lefts(offset: Mapping[str, Any]) -> tuple[Left, ...]:
    """The sides that an offset says the stream left."""
    return tuple(Left.of_json(each) for each in offset.get("left", ()))


def told(left: Sequence[Left]) -> dict[str, Any]:
    """For an offset."""
    return {"left": [each.as_json() for each in left[-LEFT_MAX:]]} if left else {}


def here_left(offset: Mapping[str, Any], found: Sequence[Found]) -> tuple[Left, ...]:
    """The sides that a stream has left that goes on elsewhere, and that of its member among them. Of members that are
    known to be gone none need be remembered, if all that they delivered was given out."""
    member = int(offset["member"], 16)
    followed = next((each for each in found if each.id == member), None)
    base = _view_at(followed.journal, int(offset["idx"])) if followed is not None else None
    if base is not None:
        here = [] if is_over(offset, found) else [Left(base.tag, member, int(offset["idx"]) - base.idx)]
    else:  # the journal is gone
        here = [Left(tag_of(offset["view"]), member, int(offset["global_seqno"]))] if "view" in offset else []
    return (*lefts(offset), *here)


def has_begun(view: Installed, idx: int, time_ns: int | None) -> bool:
    """Whether a view was installed before a position, and, if without rows there, before a time (None: by now)."""
    return view.idx < idx or (view.idx == idx and (time_ns is None or view.at_ns < time_ns))


def passed_over(
    followed: Found, at: int, found: Sequence[Found], begin_of: Callable[[Found], int], time_ns: int | None
) -> tuple[Left, ...]:
    """The sides apart from the followed member's, as far as they had come when a stream begins that does not have the
    rows before: those are as good as given out.

    Args:
        at: position in the followed member's journal at which the stream begins.
        begin_of: the same in the journal of a side.
        time_ns: of the beginning, as of `has_begun`.
    """
    ours = {view.tag: view for view in followed.journal.views}
    last = max((view.view_id.counter for view in ours.values()), default=0)
    sides: dict[int, Left] = {}
    for each in sorted(found, key=_last_view_ns):
        if all(of.tag in ours for of in each.journal.views):
            continue
        idx = begin_of(each)
        view = next((view for view in reversed(each.journal.views) if has_begun(view, idx, time_ns)), None)
        if view is None:
            continue
        if own := ours.get(view.tag):  # a side if both closed it, in other ways
            apart = own.idx < at and own.end is not None and _successor(view) not in {0, *ours}
        else:  # the followed member may still install a view that it is in
            apart = last >= view.view_id.counter or followed.id not in {member.id for member in view.members}
        rows = idx - view.idx
        if apart and (view.tag not in sides or rows > sides[view.tag].rows):  # of a view one, to go back to
            sides[view.tag] = Left(view.tag, each.id, rows)
    return tuple(sides.values())


def still_left(found: Sequence[Found], left: Sequence[Left], view: int) -> tuple[Left, ...]:
    """The sides whose members did not come along into a view."""
    graph = Graph(found) if left else None
    return tuple(each for each in left if graph and not graph.came(each, view))


def _successor(view: Installed) -> int:
    """Tag of the view by which a member closed one; 0: not known."""
    return view.end.successor if view.end is not None else 0


def is_apart(journal: Journal, idx: int, found: Sequence[Found]) -> bool:
    """Whether the view at a position, which is not the journal's first, is one that no other member installed."""
    view = _view_at(journal, idx)
    others = (each for each in found if each.id != journal.member.id)
    known = {of.tag for each in others for of in each.journal.views}
    return view is not None and view is not journal.views[0] and view.tag not in known


def way_out(offset: Mapping[str, Any], found: Sequence[Found], ends: Mapping[int, int] | None = None) -> Way | None:
    """Where a stream goes on whose member brings nothing new.

    Args:
        ends: of each member's journal, the position up to which the stream goes back; None: to its end.
    """
    member = int(offset["member"], 16)
    followed = next((each for each in found if each.id == member), None)
    others = [each for each in found if each.id != member and each.journal.deliver_own]
    if followed is None:
        return _without_journal(member, others)
    base = _view_at(followed.journal, int(offset["idx"]))
    if base is None or not followed.journal.deliver_own:
        return None
    before = lefts(offset)
    left = (*before, Left(base.tag, member, int(offset["idx"]) - base.idx))
    graph = Graph([followed, *others])
    given = graph.given(base.tag, left)
    known = {base.tag, *(each.view for each in left), *(tag for tag, _ in given)}

    def nearest(each: Found) -> tuple[bool, int, int]:
        return any(view.tag == base.tag for view in each.journal.views), _last_view_ns(each), each.id

    for other in sorted(others, key=nearest, reverse=True):
        views = other.journal.views
        last = max((at for at, view in enumerate(views) if view.tag in known), default=-1)
        new = next(iter(views[last + 1 :]), None)
        if new is None:
            continue
        agreed = any(each.id == member for each in new.members)  # to the view, but did not install that
        if graph.follows(new.tag, {base.tag} if agreed else known):
            return Way(other, new, new.idx, base.tag, left)
    return _way_back(before, left, others, base.tag, {tag for tag, _ in given}, ends)


def _way_back(
    before: Sequence[Left],
    left: Sequence[Left],
    others: Sequence[Found],
    base: int,
    closed: set[int],
    ends: Mapping[int, int] | None,
) -> Way | None:
    """To a side that the stream left before, and that has gone on since then.

    Args:
        closed: views of which the stream has given out all that some members delivered.
    """
    for each in reversed(before):
        back = next((other for other in others if other.id == each.member), None)
        views = back.journal.views if back is not None else ()
        view = next((view for view in views if view.tag == each.view), None)
        alone = each.view not in closed and sum(other.view == each.view for other in left) == 1
        if back is None or view is None or not alone:
            continue
        idx, end = view.idx + each.rows, back.journal.end_idx
        if idx < (end if ends is None else min(end, ends.get(back.id, idx))):
            return Way(back, view, idx, base, tuple(other for other in left if other != each), planned=False)
    return None


def way_to_end(offset: Mapping[str, Any], found: Sequence[Found], *, over: bool) -> tuple[Way, list[Range]] | None:
    """Where the stream goes on in a view that no other follows, as far as the journals show: in the rows of members
    that closed the view as they left, or, if nobody closed it, of all members.

    Args:
        over: the members of the view are all gone. Else the next view may lack some of these rows, and none of them
            come if nobody closed the view.

    Raises:
        Missing: a journal lacks rows that tell which ones come.
    """
    member = int(offset["member"], 16)
    followed = next((each for each in found if each.id == member and each.journal.deliver_own), None)
    base = _view_at(followed.journal, int(offset["idx"])) if followed is not None else None
    if followed is None or base is None or base is not followed.journal.views[-1]:
        return None
    left = (*lefts(offset), Left(base.tag, member, int(offset["idx"]) - base.idx))
    graph = Graph([each for each in found if each.journal.deliver_own])
    for closing in graph.ends(base.tag, over=over):
        if closing[1] == member:
            continue  # its own rows were given out
        other, view, ranges = graph.beyond(closing, left)
        if ranges:
            end = other.journal.end_idx if view.end is None else view.end.idx
            return Way(other, view, end, base.tag, left), ranges
    return None


def is_over(offset: Mapping[str, Any], found: Sequence[Found]) -> bool:
    """Whether the members of the view that a stream is in are all known to be gone, and all that were in a view with
    one of them."""
    followed = next((each for each in found if f"{each.id:016x}" == offset["member"]), None)
    base = _view_at(followed.journal, int(offset["idx"])) if followed is not None else None
    if base is None:
        return False
    ids = {member.id for member in base.members}
    those = [each for each in found if ids & {of.id for view in each.journal.views[-1:] for of in view.members}]
    return ids <= {each.id for each in those} and all(each.over for each in those)


def _without_journal(member: int, others: Sequence[Found]) -> Way | None:
    """If others have gone on without a member: their first view after that."""
    for other in sorted(others, key=_last_view_ns, reverse=True):
        if (view := excluding(member, other.journal)) is not None:
            return Way(other, view, view.idx, 0, (), planned=False)
    return None


def excluding(member: int, journal: Journal) -> Installed | None:
    """The view by which a member went on without another one, and has not merged with that one since. None: there is
    none."""
    views = journal.views
    last = max((at for at, view in enumerate(views) if any(each.id == member for each in view.members)), default=-1)
    return views[last + 1] if 0 <= last < len(views) - 1 else None


def _last_view_ns(found: Found) -> int:
    return max((view.at_ns for view in found.journal.views), default=0)


def _view_at(journal: Journal, idx: int) -> Installed | None:
    """The view that a stream is in after some rows."""
    return next((view for view in reversed(journal.views) if view.idx <= idx), None)
