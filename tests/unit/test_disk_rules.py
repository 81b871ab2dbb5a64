"""Whose state on disk has all that was decided (``core/rules/disks.py``)."""

import random
from dataclasses import replace

import pytest
from hostile.forge import Drawer, Known

from seqcast.core import orders
from seqcast.core.frames.fields import MemberInfo
from seqcast.core.frames.joining import NOBODY, VIEWS_MAX, Past, Was
from seqcast.core.rules.cut import first_view
from seqcast.core.rules.disks import before, followed, follows, fullest


def was(views, reached, position, mine):
    """Of a member that knows these views, (tag, voters) each, and had a vote in some of them."""
    tags = [NOBODY, *(tag for tag, _ in views)]
    pasts = [Past(tag, tag, n, before, tag in mine) for (tag, n), before in zip(views, tags, strict=False)]
    return Was(pasts[-1].counter, pasts[-1].view, NOBODY, reached, position, tuple(pasts))


ALONE, TWO, THREE, WITHOUT = (14, 1), (15, 2), (16, 3), (17, 2)
"""a alone, b comes, c comes, and a crashes."""


@pytest.mark.parametrize("reached", [14, 15, 16])
def test_one_that_had_the_state_alone_has_all_though_the_last_view_is_without_it(reached):
    disks = {
        11: was([ALONE, TWO, THREE], reached, 70, (14, 15, 16)),
        12: was([TWO, THREE, WITHOUT], 0, 1, (15, 16, 17)),
        13: was([THREE, WITHOUT], 0, 1, (16, 17)),
    }
    assert fullest(17, disks, ()) == 11
    assert fullest(16, disks, ()) == 11
    del disks[11]
    assert fullest(17, disks, ()) is None


def test_nobody_has_all_for_certain_if_most_disks_of_a_view_since_are_missing():
    disks = {11: was([ALONE, TWO, THREE], 14, 70, (14, 15, 16)), 13: was([THREE, WITHOUT], 0, 1, (16, 17))}
    assert fullest(17, disks, ()) == 11  # half of each view is here
    lone = (13, 1)
    disks[11] = was([lone, (14, 3), (15, 3)], 13, 70, (13,))
    disks[13] = was([(15, 3), (16, 1)], 0, 1, (16,))
    assert fullest(16, disks, ()) is None  # those of views 14 and 15 may have answered


def test_the_longest_of_those_that_reach_the_last_view_has_all():
    disks = {each: was([THREE], 16, position, (16,)) for each, position in ((11, 5), (12, 9), (13, 9))}
    assert fullest(16, disks, ()) == 12


def test_a_state_of_a_group_that_was_founded_apart_is_none_of_this_one():
    disks = {11: was([(16, 3)], 16, 5, (16,)), 12: was([(16, 3)], 0, 1, (16,))}
    other = Past(99, 16, 3, NOBODY, True)
    disks[13] = Was(16, 99, NOBODY, 16, 50, (other,))
    assert fullest(16, disks, ()) == 11
    assert follows(17, 15, {1: was([TWO, THREE, WITHOUT], 0, 1, ())}, ()) and not follows(17, 99, disks, ())


# ---- claims of others that are not true


class Ends(dict):
    """Disks that nobody looks at for ever."""

    looks = 0

    def values(self):
        self.looks += 1
        assert self.looks < 100, "the walk over the views does not end"
        return super().values()


@pytest.mark.parametrize("circle", [(15,), (15, 14), (16, 15, 14)])
def test_views_that_are_said_to_follow_each_other_in_a_circle_prove_nothing(circle):
    """Counters that nobody reached, and few voters: as nothing stops the walk, only the counters end it."""
    ends = dict(zip(circle, (*circle[1:], circle[0]), strict=True))
    claims = tuple(Past(tag, tag, 1, ends[tag], True) for tag in sorted(circle))
    own = (Past(17, 17, 2, circle[0], True),)
    disks = Ends({11: Was(17, 17, 11, 0, 1, own), 12: Was(17, 17, 12, 9, 90, claims)})
    assert fullest(17, disks, own) is None
    assert not follows(17, 99, disks, own)


@pytest.mark.parametrize(
    "lie",
    [
        {"voters": 1},  # so that the disk of one is half of them
        {"counter": 9},  # so that this one has reached the view
        {"closes": 14},  # so that the view before counts no more
    ],
    ids=lambda lie: next(iter(lie)),
)
@pytest.mark.parametrize("first", [True, False])
def test_claims_that_contradict_each_other_prove_nothing_and_our_own_record_counts_more(lie, first):
    known = was([ALONE, TWO, THREE, WITHOUT], 14, 70, (14, 15, 16))
    liar = was([ALONE, TWO, THREE, WITHOUT], 9, 90, (16, 17))
    views = tuple(past._replace(**lie) if past.view == 16 else past for past in liar.views)
    ours = was([WITHOUT], 0, 1, (17,))
    disks = {11: known, 10 if first else 12: liar._replace(views=views), 13: ours}
    disks = dict(sorted(disks.items()))
    assert fullest(17, disks, ours.views) is None
    assert before(16, disks, ()) == NOBODY
    assert fullest(17, disks, known.views) == 11
    assert before(16, disks, known.views) == 15


def test_the_walk_ends_whatever_joiners_claim():
    infos = tuple(MemberInfo(name, each, b"at", 1, 512, 1) for name, each in (("a", 11), ("b", 12)))
    view = first_view(infos, "total", orders.resolve("total"), 11)
    view = replace(view, view_id=replace(view.view_id, counter=20))
    rng, last, circles = random.Random(1), view.view_id.tag, 0
    drawer = Drawer(rng, Known(infos, view, "x", "total", (5, 6, 7)), 13, b"at")
    for _ in range(400):
        disks = Ends({each: drawn for each in range(3) if (drawn := drawer.was()) is not None})
        fullest(last, disks, ())
        closed = {past.view: past.closes for was in disks.values() for past in was.views}
        circles += any(closed.get(closes) == tag for tag, closes in closed.items())
    assert circles > 20


def test_the_counters_of_the_views_that_a_member_remembers_grow():
    """If no group was founded yet, a member may have had a higher one."""
    info = MemberInfo("a", 11, b"at", 1, 512, 1)
    view = first_view([info], "total", orders.resolve("total"), 11)
    view = replace(view, view_id=replace(view.view_id, counter=7))
    views = (Past(5, 5, 3), Past(8, 8, 1))
    assert [past.counter for past in followed(views, view, NOBODY, True)] == [5, 7]
    assert followed(followed(views, view, NOBODY, True), view, 5, True)[-1].closes == 5


# ---- any history


def history(seed):
    """Any views, disks that lag behind, and crashes. Returns the tag of the last view, the disks, and the highest
    position that was answered."""
    dice = random.Random(seed)
    names = range(1, dice.choice((3, 4, 6)))
    known = {name: [] for name in names}  # the views on the disk of the votes
    disk = dict.fromkeys(names, (0, 1))  # the state there
    holders, view, end, answered = {1}, {1}, 1, 1
    begins, tag = {}, 100
    before = NOBODY
    for _ in range(dice.randrange(1, 6)):
        tag += dice.randrange(1, 4)
        end += 1
        begins[tag] = end  # the position of the view itself
        for name in view:
            known[name] = [*known[name], Past(tag, tag, len(view), before, True)][-VIEWS_MAX:]
        for _ in range(dice.randrange(4)):
            if holders:
                end += 1
            for name in sorted(view):
                if name not in holders and holders and dice.random() < 0.2:
                    holders.add(name)
                if name in holders and dice.random() < 0.5:
                    reached = max(disk[name][1], begins[tag])
                    disk[name] = tag, dice.randint(reached, max(reached, end))
            most = sorted((disk[name][1] if disk[name][0] == tag else 0 for name in view), reverse=True)[len(view) // 2]
            answered = max(answered, most)
        before = tag
        fallen = {name for name in view if dice.random() < 0.3}
        stay = view - fallen or view
        comers = {name for name in names if name not in stay and dice.random() < 0.5}
        holders &= stay
        view = stay | comers
    disks = {name: Was(tag, tag, NOBODY, *disk[name], tuple(known[name])) for name in names if known[name]}
    return before, disks, answered


def test_whoever_is_missing_nobody_goes_on_without_all_that_was_answered():
    found = 0
    for seed in range(1500):
        last, disks, answered = history(seed)
        dice = random.Random(seed)
        here = {name: each for name, each in disks.items() if dice.random() < 0.8}
        if (first := fullest(last, here, ())) is not None:
            found += 1
            assert here[first].position >= answered, seed
    assert found > 500


def test_all_that_are_back_go_on_however_far_their_disks_are_behind():
    """As long as no more views than they remember have passed."""
    for last, disks, _ in map(history, range(500)):
        assert (fullest(last, disks, ()) is not None) == any(was.reached for was in disks.values())
