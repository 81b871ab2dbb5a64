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

import math
from collections.abc import Mapping

from seqcast.core.frames.joining import NOBODY, VIEWS_MAX, Past, Was
from seqcast.core.frames.view import NewView


def followed(views: tuple[Past, ...], frame: NewView, before: int, mine: bool) -> tuple[Past, ...]:
    """The last views, once one more is known. One in which no group was founded yet may have had a higher counter.

    Args:
        before: tag of the view before; `NOBODY`: not known, or none.
        mine: we have a vote in the new one.
    """
    voters = sum(not info.observer for info in frame.members)
    past = Past(frame.view_id.tag, frame.view_id.counter, voters, before, mine)
    return (*(each for each in views if each.counter < past.counter), past)[-VIEWS_MAX:]


def known(tag: int, disks: Mapping[int, Was], own: tuple[Past, ...]) -> Past | None:
    """The view with this tag, if one is known. Our own record counts more than claims of others, which come from the
    network; None also if only others know the view, and contradict each other."""
    ours = [past for past in own if past.view == tag]
    told = [past for was in disks.values() for past in was.views if past.view == tag]
    same = {(past.counter, past.voters) for past in ours or told}
    closes = {past.closes for past in ours} - {NOBODY} or {past.closes for past in told} - {NOBODY}
    if len(same) != 1 or len(closes) > 1:
        return None
    return Past(tag, *next(iter(same)), next(iter(closes), NOBODY))


def before(tag: int, disks: Mapping[int, Was], own: tuple[Past, ...]) -> int:
    """Tag of the view before this one, if that is known; otherwise `NOBODY`."""
    past = known(tag, disks, own)
    return past.closes if past is not None else NOBODY


def follows(later: int, tag: int, disks: Mapping[int, Was], own: tuple[Past, ...]) -> bool:
    """Is the view ``later`` one that follows from this one, as far as that is known?"""
    for _ in range(VIEWS_MAX):
        later = before(later, disks, own)
        if later in (tag, NOBODY):
            break
    return later == tag


def fullest(tag: int, disks: Mapping[int, Was], own: tuple[Past, ...]) -> int | None:
    """Whose state has all that was decided up to the end of this view; None: perhaps nobody's.

    Args:
        tag: of the last view.
        disks: of all that are back, by their ids.
        own: the views that we remember ourselves.
    """
    later = math.inf  # counters fall, so the walk ends, whatever others claim about the order of views
    while (past := known(tag, disks, own)) is not None and past.counter < later:
        here = {each: was for each, was in disks.items() if any(one.view == tag and one.mine for one in was.views)}
        if 2 * len(here) < past.voters:
            return None
        reaching = {each: was.position for each, was in here.items() if was.reached == past.counter}
        if reaching:
            return max(reaching, key=lambda each: (reaching[each], -each))
        tag, later = past.closes, past.counter
    return None
