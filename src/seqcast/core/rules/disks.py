"""Whose state on disk has all that was decided, once nobody is in the group any more (``stable=``).

An operation is answered when the disks of a strict majority of the members of its view have that operation. Any such
majority has a part in any half of these disks. So if at least half of a view's disks are back, and none of them reaches
its beginning, nothing was answered in that view, and its state at the end is that at the beginning. If some reach that,
the one that goes furthest has all that was answered there; and all that was decided before, since the state at the
beginning of the view has that.

Timeline without the walk over the views: a, alone in view 4, answers calls, and b and c join with views 5 and 6. They
have no state on disk yet when a crashes; they give up in view 7, which only they were in. All come back: the voters
of view 7 know nothing, and a, who knows everything, was not there.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqcast.core.frames.joining import NOBODY, VIEWS_MAX, Past, Was
from seqcast.core.frames.view import NewView


def followed(views: tuple[Past, ...], frame: NewView, before: int, mine: bool) -> tuple[Past, ...]:
    """The last views, once one more is known.

    Args:
        before: tag of the view before; `NOBODY`: not known, or none.
        mine: we have a vote in the new one.
    """
    voters = sum(not info.observer for info in frame.members)
    past = Past(frame.view_id.tag, frame.view_id.counter, voters, before, mine)
    return (*(each for each in views if each.view != past.view), past)[-VIEWS_MAX:]


def before(tag: int, disks: Mapping[int, Was]) -> int:
    """Tag of the view before this one, if somebody knows; otherwise `NOBODY`."""
    known = (past.closes for was in disks.values() for past in was.views if past.view == tag)
    return next((closes for closes in known if closes != NOBODY), NOBODY)


def follows(later: int, tag: int, disks: Mapping[int, Was]) -> bool:
    """Is the view ``later`` one that follows from this one, as far as somebody knows?"""
    for _ in range(VIEWS_MAX):
        later = before(later, disks)
        if later in (tag, NOBODY):
            break
    return later == tag


def fullest(tag: int, disks: Mapping[int, Was]) -> int | None:
    """Whose state has all that was decided up to the end of this view; None: perhaps nobody's.

    Args:
        tag: of the last view.
        disks: of all that are back, by their ids.
    """
    pasts = {past.view: past for was in disks.values() for past in was.views}
    while (past := pasts.get(tag)) is not None:
        here = {each: was for each, was in disks.items() if any(one.view == tag and one.mine for one in was.views)}
        if 2 * len(here) < past.voters:
            return None
        reaching = {each: was.position for each, was in here.items() if was.reached == past.counter}
        if reaching:
            return max(reaching, key=lambda each: (reaching[each], -each))
        tag = before(tag, disks)
    return None
