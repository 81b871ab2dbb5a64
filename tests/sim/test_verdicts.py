"""The simulator's verdict on strangers, on the words for changes, on transitional messages and on late policies."""

from dataclasses import replace

import pytest

from seqcast._native.engine import Engine
from seqcast.core.secrets import CIPHERS
from seqcast.sim import Options, World
from seqcast.sim.checkers.changes import fitting
from seqcast.sim.checkers.transitional import check_needless
from seqcast.sim.checkers.views import check_made
from seqcast.sim.options import MS
from seqcast.sim.record import Delivered, Record
from seqcast.types import Member, MergeView, View, ViewId


class Trusting(Engine):
    """Takes in each datagram."""

    def receive(self, *given):
        super().receive(*given)
        return 1


@pytest.mark.parametrize("make_engine", [Engine, Trusting])
def test_datagrams_of_a_stranger_and_repeated_ones_may_not_be_taken_in(make_engine):
    options = Options(
        seed=1, members=2, keyed=True, strangers=0.6, duplicate=0.2, duration_ns=300 * MS, rate=50, bytes_max=100,
        spread_ns=0, order="fifo",
    )  # fmt: skip
    world = World(options, make_engine=make_engine)
    found = {" ".join(text.split()[2:7]) for text in world.run().violations}
    assert world.network.stranger.sent > 10
    assert found == (set() if make_engine is Engine else {"takes in a datagram that", "takes in the same datagram"})


def test_the_verdict_on_views_sees_what_does_not_fit_their_members():
    options = Options(seed=1, members=2, keyed=True, identities=True, duration_ns=300 * MS, spread_ns=0, order="fifo")
    world = World(options)
    assert not world.run().violations
    last = max(world.made.values(), key=lambda each: each.view_id)
    assert len(last.members) > 1, "VIEWs are noted though they are signed"
    first, *others = last.members
    for frame, word in (
        (replace(last, members=(replace(first, observer=True), *others)), "observer"),
        (replace(last, packet_bytes=last.packet_bytes + 4), "larger"),
        (replace(last, members=(replace(first, aes=False), *others), cipher=1), "AES"),
        (replace(last, departed=(first.id,)), "gone"),
    ):
        assert [word in text for text in check_made([last, frame], CIPHERS)] == [True]


class Patient(Engine):
    """Takes each answer of a policy as one in time."""

    def decide(self, *given):
        super().decide(*given)
        return True


@pytest.mark.parametrize("make_engine", [Engine, Patient])
def test_an_answer_of_a_policy_that_is_late_may_not_count(make_engine):
    options = Options(
        seed=1, members=2, order="records", orderer="late", duration_ns=500 * MS, spread_ns=0, bytes_max=100
    )
    found = {text.partition(":")[0] for text in World(options, make_engine=make_engine).run().violations}
    assert found == (set() if make_engine is Engine else {"order policy"})


A, B, C = (Member(name, number) for number, name in enumerate("abc", 1))


def view(*members, counter=1):
    return View(ViewId(counter, 1, (1, 1)), members)


def records(**leaving):
    found = {member.id: Record(0, member.name, member.id, Options(), 0) for member in (A, B, C)}
    for name, leaves in leaving.items():
        next(each for each in found.values() if each.name == name).leaving = leaves
    return found


def test_the_word_for_a_change_fits_who_came_and_who_is_gone():
    merged = MergeView(ViewId(2, 1, (1, 1)), (A, B), subgroups=(view(A), view(B)))
    assert fitting(view(A), view(A, B), records()) == {"join"}
    assert fitting(view(A), view(A), records()) == {"other"}
    assert fitting(view(A, B), view(A), records()) == {"loss"}
    assert fitting(view(A, B), view(A), records(b=True)) == {"leave", "loss"}
    assert fitting(view(A, B, C), view(A), records(b=True)) == {"loss"}
    assert fitting(view(A), merged, records()) == {"merge"}
    assert fitting(view(A, C), merged, records()) == {"loss"}


@pytest.mark.parametrize(("after", "wrong"), [((A, B), True), ((A,), False), ((A, B, C), True)])
def test_nothing_is_transitional_if_nobody_was_lost(after, wrong):
    record = records()[A.id]
    late = Delivered(B.id, 0, 0, 1, 1, 24, True, B.id, transitional=True)
    record.log += [view(A, B), late, view(*after, counter=2)]
    assert bool([*check_needless(record)]) == wrong
    record.log[1] = Delivered(B.id, 0, 0, 1, 1, 24, True, B.id)
    assert not [*check_needless(record)]
